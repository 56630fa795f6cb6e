// gpuad: adjoint of `grid_samples` (gridding.cu:43:28), for Duplicated sample, density, cells; Const place, samples, side, beta.
// 1. put the seeds into dcells. dsample, ddensity are added to: clear first.
// 2. launch grid_samples_reverse with the same grid and block.
// On exit dcells holds the adjoint of the state before the launch; dsample, ddensity have grown by the gradient.
// Compile grid_samples and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of ddensity, dsample, as for grid (2, 1, 1), block (32, 1, 1), samples = 40, side = 16.

extern "C" __global__ void grid_samples_reverse(
    const float* place, const float* sample, float* dsample, const float* density, float* ddensity,
    const float* cells, const float* dcells, int samples, int side, float beta)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples) {
        const float at_x = place[i * 2LL];
        const float at_y = place[i * 2LL + 1LL];
        const float density_2 = density[i];
        const float sample_2 = sample[i * 2LL];
        const float sample_3 = sample[i * 2LL + 1LL];
        int left = (int)ceilf(at_x - 2.0f);
        int top = (int)ceilf(at_y - 2.0f);
        float along[4];
        for (int dx = 0; dx < 4; ++dx) {
            const float distance = at_x - (left + dx);
            const float x = distance / 2.0f;
            const float inside = 1.0f - x * x;
            along[dx] = inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
        }
        float dimaginary = 0.0f;
        float dreal = 0.0f;
        for (int dy = 0; dy < 4; ++dy) {
            const float x = (at_y - (top + dy)) / 2.0f;
            const float inside = 1.0f - x * x;
            int row = (top + dy + side) % side;
            const float across = inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
            float dimaginary_2 = 0.0f;
            float dreal_2 = 0.0f;
            for (int dx = 0; dx < 4; ++dx) {
                const float weight = across * along[dx];
                dimaginary_2 += weight * dcells[(row * side + (left + dx + side) % side) * 2LL + 1LL];
                dreal_2 += weight * dcells[(row * side + (left + dx + side) % side) * 2LL];
            }
            dimaginary += dimaginary_2;
            dreal += dreal_2;
        }
        if (dimaginary != 0.0f) {
            dsample[i * 2LL + 1LL] += density_2 * dimaginary;
        }
        if (dreal != 0.0f) {
            dsample[i * 2LL] += density_2 * dreal;
        }
        if (dimaginary != 0.0f) {
            ddensity[i] += sample_3 * dimaginary;
        }
        if (dreal != 0.0f) {
            ddensity[i] += sample_2 * dreal;
        }
    }
}

// adjoint of `grid_samples`
//   not saved  place                         never overwritten by this launch
//   not saved  sample                        never overwritten by this launch
//   not saved  density                       never overwritten by this launch
//   not saved  cells                         no derivative needs what was overwritten
//   shadow     dsample              plain    no two threads touch one element (gridding.cu:48:69)
//   shadow     ddensity             plain    no two threads touch one element (gridding.cu:48:18)
//   shadow     dcells               plain    it is only read (gridding.cu:59:13)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
