// gpuad: adjoint of `fir_float_8` (fir.cu:47:17), for Duplicated y, x, taps; Const n.
// 1. put the seeds into dy. dx, dtaps are added to: clear first.
// 2. launch fir_float_8_gather with grid (8, 1, 1) and the block of fir_float_8.
// 3. launch fir_float_8_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dtaps have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dx, as for grid (8, 1, 1), block (128, 1, 1), n = 1000.

extern "C" __global__ void fir_float_8_gather(const float* dy, float* dx, const float* taps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dx_2 = 0.0f;
    if (i < n) {
        dx_2 += taps[0] * dy[i];
    }
    for (int k = 1; k < 8; ++k) {
        if (i + k < n) {
            dx_2 += taps[k] * dy[i + k];
        }
    }
    if (dx_2 != 0.0f) {
        dx[i] += dx_2;
    }
}

extern "C" __global__ void fir_float_8_reverse(
    const float* y, float* dy, const float* x, const float* dx, const float* taps, float* dtaps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x_2 = x[i];
        const float dy_2 = dy[i];
        dy[i] = 0.0f;
        for (int k = 1; k < 8; ++k) {
            int i_2 = i - k;
            const float value = i_2 >= 0 ? x[i_2] : 0.0f;
            atomicAdd(&dtaps[k], value * dy_2);
        }
        atomicAdd(&dtaps[0], x_2 * dy_2);
    }
}

// adjoint of `fir_float_8`
//   not saved  y                             no derivative needs what was overwritten
//   not saved  x                             never overwritten by this launch
//   not saved  taps                          never overwritten by this launch
//   shadow     dy                   plain    no two threads touch one element (fir.cu:53:5)
//   shadow     dx                   gather   each thread of fir_float_8_gather collects for an element of its own (fir.cu:41:40)
//   shadow     dtaps                atomic   it is not proved that no two threads meet in one element (fir.cu:52:45)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
