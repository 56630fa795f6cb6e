// gpuad: adjoint of `masked_update` (masked_update.cu:18:28), for Duplicated x, a, total; Const mask, n.
// 1. before masked_update runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx, dtotal. da is added to: clear first.
// 3. launch masked_update_reverse with the same grid and block.
// On exit dx, dtotal hold the adjoint of the state before the launch; da has grown by the gradient.
// Holds where no two threads touch one element of da, dx, as for grid (5, 1, 1), block (32, 1, 1), n = 150.

extern "C" __global__ void masked_update_reverse(
    const float* x, float* dx, const float* a, float* da, const unsigned char* mask, const float* total,
    const float* dtotal, int n, const float* x_saved)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x_2 = x_saved[i];
        if (mask[i] == 1) {
            const float x_3 = x_saved[i];
            const float dx_2 = dx[i];
            dx[i] = a[i] * dx_2;
            da[i] += x_3 * dx_2;
        } else if (mask[i] == 2) {
            dx[i] = 0.0f;  // overwritten with something inactive
        }
        dx[i] += cosf(x_2) * dtotal[i];
    }
}

// adjoint of `masked_update`
//   saved      x                    copy     needed by masked_update.cu:21:22, overwritten by masked_update.cu:23:9
//   not saved  a                             never overwritten by this launch
//   not saved  mask                          never overwritten by this launch
//   not saved  total                         no derivative needs what was overwritten
//   shadow     dx                   plain    no two threads touch one element (masked_update.cu:23:9)
//   shadow     da                   plain    no two threads touch one element (masked_update.cu:23:16)
//   shadow     dtotal               plain    it is only read (masked_update.cu:21:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
