/*gpuad
[[case]]
kernel = "grid_samples_backward"
title = "grid_samples"
sizes = {samples = 40, side = 16}
grid = ["(samples + 127) // 128"]
block = [128]
[case.arguments]
place = {shape = ["samples", 2], init = "zeros"}
sample = {shape = ["samples", 2], init = "zeros"}
density = {shape = ["samples"], init = "zeros"}
dcells = {shape = ["side", "side", 2], init = "zeros"}
dsample = {shape = ["samples", 2], init = "zeros"}
ddensity = {shape = ["samples"], init = "zeros"}
samples = {value = "samples"}
side = {value = "side"}
beta = {value = 8.5}
[case.benchmark]
sizes = {samples = 100000, side = 256}

[[case]]
kernel = "sample_grid_backward"
title = "sample_grid"
sizes = {samples = 40, side = 16}
grid = ["(samples + 127) // 128"]
block = [128]
[case.arguments]
place = {shape = ["samples", 2], init = "zeros"}
dsample = {shape = ["samples", 2], init = "zeros"}
dcells = {shape = ["side", "side", 2], init = "zeros"}
samples = {value = "samples"}
side = {value = "side"}
beta = {value = 8.5}
[case.benchmark]
sizes = {samples = 100000, side = 256}
*/
// The adjoint of spreading is reading, and the other way around.
__device__ float window_at(float distance, float beta) {
    float x = distance / 2.0f;
    float inside = 1.0f - x * x;
    return inside > 0.0f ? cyl_bessel_i0f(beta * sqrtf(inside)) / cyl_bessel_i0f(beta) : 0.0f;
}

extern "C" __global__ void grid_samples_backward(const float2* place, const float2* sample, const float* density, const float2* dcells,
                                                 float2* dsample, float* ddensity, int samples, int side, float beta) {
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
            float2 cell = dcells[row * side + (left + dx + side) % side];
            real += across * along[dx] * cell.x;
            imaginary += across * along[dx] * cell.y;
        }
    }
    dsample[i].x += density[i] * real;
    dsample[i].y += density[i] * imaginary;
    ddensity[i] += sample[i].x * real + sample[i].y * imaginary;
}

extern "C" __global__ void sample_grid_backward(const float2* place, const float2* dsample, float2* dcells, int samples, int side, float beta) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples) return;
    float2 at = place[i], share = dsample[i];
    int left = (int)ceilf(at.x - 2.0f), top = (int)ceilf(at.y - 2.0f);
    float along[4];
    for (int dx = 0; dx < 4; ++dx) along[dx] = window_at(at.x - (left + dx), beta);
    for (int dy = 0; dy < 4; ++dy) {
        float across = window_at(at.y - (top + dy), beta);
        int row = (top + dy + side) % side;
        for (int dx = 0; dx < 4; ++dx) {
            float2* cell = &dcells[row * side + (left + dx + side) % side];
            atomicAdd(&cell->x, across * along[dx] * share.x);
            atomicAdd(&cell->y, across * along[dx] * share.y);
        }
    }
}
