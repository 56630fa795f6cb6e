// gpuad: adjoint of `fir_double_3_Border_Wrap` (fir.cu:47:17), for Duplicated y, x, taps; Const n.
// 1. put the seeds into dy. dx, dtaps are added to: clear first.
// 2. launch fir_double_3_Border_Wrap_gather with grid (4, 1, 1) and the block of fir_double_3_Border_Wrap.
// 3. launch fir_double_3_Border_Wrap_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dtaps have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dx, as for grid (4, 1, 1), block (128, 1, 1), n = 500.

extern "C" __global__ void fir_double_3_Border_Wrap_gather(
    const double* dy, double* dx, const double* taps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double dx_2 = 0.0;
    if (i < n) {
        dx_2 += taps[0] * dy[i];
        for (int k = 1; k < 3; ++k) {
            if (i + k - n >= 0 && i + k - n < n) {
                dx_2 += taps[k] * dy[i + k - n];
            }
        }
    }
    for (int k = 1; k < 3; ++k) {
        if (i + k < n) {
            dx_2 += taps[k] * dy[i + k];
        }
    }
    if (dx_2 != 0.0) {
        dx[i] += dx_2;
    }
}

extern "C" __global__ void fir_double_3_Border_Wrap_reverse(
    const double* y, double* dy, const double* x, const double* dx, const double* taps, double* dtaps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double x_2 = x[i];
        const double dy_2 = dy[i];
        dy[i] = 0.0;
        for (int k = 1; k < 3; ++k) {
            int i_2 = i - k;
            atomicAdd(&dtaps[k], x[i_2 < 0 ? i_2 + n : i_2] * dy_2);
        }
        atomicAdd(&dtaps[0], x_2 * dy_2);
    }
}

// adjoint of `fir_double_3_Border_Wrap`
//   not saved  y                             no derivative needs what was overwritten
//   not saved  x                             never overwritten by this launch
//   not saved  taps                          never overwritten by this launch
//   shadow     dy                   plain    no two threads touch one element (fir.cu:53:5)
//   shadow     dx                   gather   each thread of fir_double_3_Border_Wrap_gather collects for an element of its own (fir.cu:39:16)
//   shadow     dtaps                atomic   it is not proved that no two threads meet in one element (fir.cu:52:45)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
