// The log posterior of a mixture of k Gaussians in d dimensions under a Wishart prior, at n points. Component c has the inverse covariance
// Q'Q with Q lower triangular, row j of it at Q[(c * d + j) * d]; the points have their coordinates in rows, x[i * n + p].

// Q from the logarithms of its diagonal and from what is below it, column by column.
extern "C" __global__ void unpack(const double* q, const double* l, double* Q, int d, int k) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= k * d * d) return;
    int c = e / (d * d), j = e / d % d, i = e % d;
    double value = 0.0;
    if (i == j) value = exp(q[c * d + j]);
    else if (i < j) value = l[c * (d * (d - 1) / 2) + i * d - i * (i + 1) / 2 + j - i - 1];
    Q[e] = value;
}

// Of each row of Q its product with the mean.
extern "C" __global__ void centres(const double* Q, const double* mu, double* centre, int d, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= k * d) return;
    double sum = 0.0;
    for (int i = 0; i <= row % d; i++) sum += Q[row * d + i] * mu[row / d * d + i];
    centre[row] = sum;
}

// y = Q (x - mu), a thread a row and a point.
extern "C" __global__ void whiten(const double* Q, const double* x, const double* centre, double* y, int d, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    if (p >= n) return;
    double sum = -centre[row];
    for (int i = 0; i <= row % d; i++) sum += Q[row * d + i] * x[i * n + p];
    y[row * n + p] = sum;
}

// The logarithm of each component's weight, up to a constant.
extern "C" __global__ void weights(const double* alpha, const double* q, double* weight, int d, int k) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= k) return;
    double sum = alpha[c];
    for (int j = 0; j < d; j++) sum += q[c * d + j];
    weight[c] = sum;
}

extern "C" __global__ void terms(const double* y, const double* weight, double* term, int d, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y;
    if (p >= n) return;
    double square = 0.0;
    for (int j = 0; j < d; j++) square += y[(c * d + j) * n + p] * y[(c * d + j) * n + p];
    term[c * n + p] = weight[c] - 0.5 * square;
}

// The largest of a point's terms, by which the exponentials are shifted.
extern "C" __global__ void largest(const double* term, double* shift, int k, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n) return;
    double found = term[p];
    for (int c = 1; c < k; c++) found = fmax(found, term[c * n + p]);
    shift[p] = found;
}

extern "C" __global__ void log_sums(const double* term, const double* shift, double* loss, double factor, int k, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n) return;
    double sum = 0.0, a = shift[p];
    for (int c = 0; c < k; c++) sum += exp(term[c * n + p] - a);
    atomicAdd(&loss[0], factor * (log(sum) + a));
}

// The prior, a thread a row of Q.
extern "C" __global__ void wishart(const double* Q, const double* q, double* loss, double gamma, int m, int d, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= k * d) return;
    double square = 0.0;
    for (int i = 0; i <= row % d; i++) square += Q[row * d + i] * Q[row * d + i];
    atomicAdd(&loss[0], m * q[row] - 0.5 * gamma * gamma * square);
}
