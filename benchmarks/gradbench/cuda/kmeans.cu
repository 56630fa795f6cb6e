// Points and centroids have their coordinates in rows: points[l * n + i].
extern "C" __global__ void nearest(const double* points, const double* centroids, int* label, int n, int k, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double least = 1.0e300;
    int found = 0;
    for (int c = 0; c < k; c++) {
        double sum = 0.0;
        for (int l = 0; l < d; l++) {
            double difference = points[l * n + i] - centroids[c * d + l];
            sum += difference * difference;
        }
        if (sum < least) {
            least = sum;
            found = c;
        }
    }
    label[i] = found;
}

extern "C" __global__ void squared_distances(const double* points, const double* centroids, const int* label, double* cost, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0;
    for (int l = 0; l < d; l++) {
        double difference = points[l * n + i] - centroids[label[i] * d + l];
        sum += difference * difference;
    }
    atomicAdd(&cost[0], sum);
}
