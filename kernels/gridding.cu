/*gpuad
title = "MRI gridding: samples along a trajectory are spread over a grid by a Kaiser-Bessel window, and read back from it"
[[case]]
kernel = "grid_samples"
sizes = {samples = 40, side = 16}
grid = ["(samples + 31) // 32"]
block = [32]
[case.arguments]
place = {shape = ["samples", 2], init = "uniform(0.0, side)"}
sample = {shape = ["samples", 2], init = "normal", active = true}
density = {shape = ["samples"], init = "positive", active = true}
cells = {shape = ["side", "side", 2], init = "zeros", active = true}
samples = {value = "samples"}
side = {value = "side"}
beta = {value = 8.5}
[case.benchmark]
sizes = {samples = 1048576, side = 512}
bytes = "20 * samples + 8 * side * side"

[[case]]
kernel = "sample_grid"
title = "from the grid to the samples"
sizes = {samples = 40, side = 16}
grid = ["(samples + 31) // 32"]
block = [32]
[case.arguments]
place = {shape = ["samples", 2], init = "uniform(0.0, side)"}
sample = {shape = ["samples", 2], init = "zeros", active = true}
cells = {shape = ["side", "side", 2], init = "normal", active = true}
samples = {value = "samples"}
side = {value = "side"}
beta = {value = 8.5}
[case.benchmark]
sizes = {samples = 1048576, side = 512}
bytes = "16 * samples + 8 * side * side"
*/
__device__ float window_at(float distance, float beta) {
    float x = distance / 2.0f;
    float inside = 1.0f - x * x;
    return inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
}

extern "C" __global__ void grid_samples(const float2* place, const float2* sample, const float* density, float2* cells, int samples,
                                        int side, float beta) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples) return;
    float2 at = place[i];
    float real = density[i] * sample[i].x, imaginary = density[i] * sample[i].y;
    int left = (int)ceilf(at.x - 2.0f), top = (int)ceilf(at.y - 2.0f);
    float along[4];
    for (int dx = 0; dx < 4; ++dx) along[dx] = window_at(at.x - (left + dx), beta);
    for (int dy = 0; dy < 4; ++dy) {
        float across = window_at(at.y - (top + dy), beta);
        int row = (top + dy + side) % side;
        for (int dx = 0; dx < 4; ++dx) {
            float weight = across * along[dx];
            float2* cell = &cells[row * side + (left + dx + side) % side];
            atomicAdd(&cell->x, weight * real);
            atomicAdd(&cell->y, weight * imaginary);
        }
    }
}

extern "C" __global__ void sample_grid(const float2* place, float2* sample, const float2* cells, int samples, int side, float beta) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples) return;
    float2 at = place[i];
    int left = (int)ceilf(at.x - 2.0f), top = (int)ceilf(at.y - 2.0f);
    float along[4];
    for (int dx = 0; dx < 4; ++dx) along[dx] = window_at(at.x - (left + dx), beta);
    float real = 0.0f, imaginary = 0.0f;
    for (int dy = 0; dy < 4; ++dy) {
        float across = window_at(at.y - (top + dy), beta);
        int row = (top + dy + side) % side;
        for (int dx = 0; dx < 4; ++dx) {
            float weight = across * along[dx];
            float2 cell = cells[row * side + (left + dx + side) % side];
            real += weight * cell.x;
            imaginary += weight * cell.y;
        }
    }
    sample[i] = make_float2(real, imaginary);
}
