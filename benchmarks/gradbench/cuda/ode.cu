// A step of the classical Runge-Kutta method for y[0]' = x[0], y[i]' = x[i] y[i - 1]. Each thread forms what it needs of the stages of the
// entries before its own.
__device__ double k1(const double* x, const double* y, int i) { return i > 0 ? x[i] * y[i - 1] : x[0]; }

__device__ double k2(const double* x, const double* y, double h, int i) {
    return i > 0 ? x[i] * (y[i - 1] + 0.5 * h * k1(x, y, i - 1)) : x[0];
}

__device__ double k3(const double* x, const double* y, double h, int i) {
    return i > 0 ? x[i] * (y[i - 1] + 0.5 * h * k2(x, y, h, i - 1)) : x[0];
}

__device__ double k4(const double* x, const double* y, double h, int i) {
    return i > 0 ? x[i] * (y[i - 1] + h * k3(x, y, h, i - 1)) : x[0];
}

extern "C" __global__ void runge_kutta(const double* x, const double* y, double* next, double h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) next[i] = y[i] + h / 6.0 * (k1(x, y, i) + 2.0 * k2(x, y, h, i) + 2.0 * k3(x, y, h, i) + k4(x, y, h, i));
}
