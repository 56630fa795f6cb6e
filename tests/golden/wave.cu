// gpuad: adjoint of `wave` (wave.cu:18:28), for Duplicated old, now, c2; Const ny, nx.
// 1. put the seeds into dold. dnow, dc2 are added to: clear first.
// 2. launch wave_gather with grid (2, 8, 1) and the block of wave.
// 3. launch wave_reverse with the same grid and block.
// On exit dold holds the adjoint of the state before the launch; dnow, dc2 have grown by the gradient.
// Holds where no two threads touch one element of dc2, dold
// and the gather's threads do not meet in dnow, as for grid (2, 8, 1), block (32, 4, 1), ny = 30, nx = 45.

extern "C" __global__ void wave_gather(const float* dold, float* dnow, const float* c2, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int i = y * nx + x;
    float dnow_2 = 0.0f;
    if (x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1) {
        dnow_2 += dold[i] * (2.0f - 4.0f * c2[i]);
    }
    if (x >= 1 && y >= 2 && x < nx - 1 && y < ny) {
        dnow_2 += c2[i - nx] * dold[i - nx];
    }
    if (x >= 1 && x < nx - 1 && y < ny - 2) {
        dnow_2 += c2[i + nx] * dold[i + nx];
    }
    if (x >= 2 && y >= 1 && x < nx && y < ny - 1) {
        dnow_2 += c2[i - 1] * dold[i - 1];
    }
    if (y >= 1 && x < nx - 2 && y < ny - 1) {
        dnow_2 += c2[i + 1] * dold[i + 1];
    }
    if (dnow_2 != 0.0f) {
        dnow[i] += dnow_2;
    }
}

extern "C" __global__ void wave_reverse(
    const float* old, float* dold, const float* now, const float* dnow, const float* c2, float* dc2, int ny,
    int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1) {
        int i = y * nx + x;
        const float lap = now[i - 1] + now[i + 1] + now[i - nx] + now[i + nx] - 4.0f * now[i];
        const float dold_2 = dold[i];
        dc2[i] += lap * dold_2;
        dold[i] = -dold_2;
    }
}

// adjoint of `wave`
//   not saved  old                           no derivative needs what was overwritten
//   not saved  now                           never overwritten by this launch
//   not saved  c2                            never overwritten by this launch
//   shadow     dold                 plain    no two threads touch one element (wave.cu:23:5)
//   shadow     dnow                 gather   each thread of wave_gather collects for an element of its own (wave.cu:22:78)
//   shadow     dc2                  plain    no two threads touch one element (wave.cu:23:39)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
