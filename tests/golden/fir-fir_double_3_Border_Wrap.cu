// gpuad: adjoint of `fir_double_3_Border_Wrap` (fir.cu:47:17), for Duplicated y, x, taps; Const n.
// 1. put the seeds into dy. dx, dtaps are added to: clear first.
// 2. launch fir_double_3_Border_Wrap_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dtaps have grown by the gradient.
// Holds where no two threads touch one element of dy, as for grid (4, 1, 1), block (128, 1, 1), n = 500.

extern "C" __global__ void fir_double_3_Border_Wrap_reverse(
    const double* y, double* dy, const double* x, double* dx, const double* taps, double* dtaps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double taps_2 = taps[0];
        const double x_2 = x[i];
        const double dy_2 = dy[i];
        dy[i] = 0.0;
        for (int k = 1; k < 3; ++k) {
            int i_2 = i - k;
            const double x_3 = x[i_2 < 0 ? i_2 + n : i_2];
            atomicAdd(&dx[i_2 < 0 ? i_2 + n : i_2], taps[k] * dy_2);
            atomicAdd(&dtaps[k], x_3 * dy_2);
        }
        atomicAdd(&dx[i], taps_2 * dy_2);
        atomicAdd(&dtaps[0], x_2 * dy_2);
    }
}

// adjoint of `fir_double_3_Border_Wrap`
//   not saved  y                             no derivative needs what was overwritten
//   not saved  x                             never overwritten by this launch
//   not saved  taps                          never overwritten by this launch
//   shadow     dy                   plain    no two threads touch one element (fir.cu:53:5)
//   shadow     dx                   atomic   it is not proved that no two threads meet in one element (fir.cu:39:16)
//   shadow     dtaps                atomic   it is not proved that no two threads meet in one element (fir.cu:52:45)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
