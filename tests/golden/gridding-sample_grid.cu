// gpuad: adjoint of `sample_grid` (gridding.cu:64:28), for Duplicated sample, cells; Const place, samples, side, beta.
// 1. put the seeds into dsample. dcells is added to: clear first.
// 2. launch sample_grid_reverse with the same grid and block.
// On exit dsample holds the adjoint of the state before the launch; dcells has grown by the gradient.
// Compile sample_grid and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dsample, as for grid (2, 1, 1), block (32, 1, 1), samples = 40, side = 16.

extern "C" __global__ void sample_grid_reverse(
    const float* place, const float* sample, float* dsample, const float* cells, float* dcells, int samples,
    int side, float beta)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples) {
        const float at_x = place[i * 2LL];
        const float at_y = place[i * 2LL + 1LL];
        int left = (int)ceilf(at_x - 2.0f);
        int top = (int)ceilf(at_y - 2.0f);
        float along[4];
        for (int dx = 0; dx < 4; ++dx) {
            const float distance = at_x - (left + dx);
            const float x = distance / 2.0f;
            const float inside = 1.0f - x * x;
            along[dx] = inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
        }
        const float dsample_2 = dsample[i * 2LL + 1LL];
        dsample[i * 2LL + 1LL] = 0.0f;
        const float dsample_3 = dsample[i * 2LL];
        dsample[i * 2LL] = 0.0f;
        for (int dy = 0; dy < 4; ++dy) {
            const float x = (at_y - (top + dy)) / 2.0f;
            const float inside = 1.0f - x * x;
            int row = (top + dy + side) % side;
            const float across = inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
            for (int dx = 0; dx < 4; ++dx) {
                const float weight = across * along[dx];
                atomicAdd(&dcells[(row * side + (left + dx + side) % side) * 2LL + 1LL], weight * dsample_2);
                atomicAdd(&dcells[(row * side + (left + dx + side) % side) * 2LL], weight * dsample_3);
            }
        }
    }
}

// adjoint of `sample_grid`
//   not saved  place                         never overwritten by this launch
//   not saved  sample                        no derivative needs what was overwritten
//   not saved  cells                         never overwritten by this launch
//   shadow     dsample              plain    no two threads touch one element (gridding.cu:82:5)
//   shadow     dcells               atomic   it is not proved that no two threads meet in one element (gridding.cu:77:27)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
