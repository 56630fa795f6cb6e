// gpuad: adjoint of `convolve_line` (convolution.cu:55:28), for Duplicated x, weight, y; Const n, taps.
// 1. put the seeds into dy. dx, dweight are added to: clear first.
// 2. launch convolve_line_gather with grid (5, 1, 1) and the block of convolve_line.
// 3. launch convolve_line_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dweight have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dx, as for grid (5, 1, 1), block (64, 1, 1), n = 300, taps = 9.

extern "C" __global__ void convolve_line_gather(
    double* dx, const double* weight, const double* dy, int n, int taps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double dx_2 = 0.0;
    if (i < n) {
        for (int k = 0; k < taps; ++k) {
            if (i + taps / 2 - k >= 0 && i + taps / 2 - k < n) {
                dx_2 += weight[k] * dy[i + taps / 2 - k];
            }
        }
    }
    if (dx_2 != 0.0) {
        dx[i] += dx_2;
    }
}

extern "C" __global__ void convolve_line_reverse(
    const double* x, const double* dx, const double* weight, double* dweight, const double* y, double* dy,
    int n, int taps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double dy_2 = dy[i];
        dy[i] = 0.0;
        for (int k = 0; k < taps; ++k) {
            int j = i + k - taps / 2;
            if (j >= 0 && j < n) {
                atomicAdd(&dweight[k], x[j] * dy_2);
            }
        }
    }
}

// adjoint of `convolve_line`
//   not saved  x                             never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dx                   gather   each thread of convolve_line_gather collects for an element of its own (convolution.cu:62:28)
//   shadow     dweight              atomic   it is not proved that no two threads meet in one element (convolution.cu:62:16)
//   shadow     dy                   plain    no two threads touch one element (convolution.cu:64:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
