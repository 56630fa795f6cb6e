/*gpuad
title = "bilateral filter: neighbours weighted by distance and by likeness"
[[case]]
kernel = "bilateral"
sizes = {height = 14, width = 17}
grid = ["(width + 7) // 8", "(height + 7) // 8"]
block = [8, 8]
[case.arguments]
image = {shape = ["height", "width"], init = "uniform", active = true}
filtered = {shape = ["height", "width"], init = "zeros", active = true}
spatial = {value = 1.5, active = true}
tonal = {value = 0.4, active = true}
radius = {value = 2}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {height = 4096, width = 4096}
bytes = "8 * height * width"
*/
#define SQUARE(a) ((a) * (a))

__device__ float closeness(float distance2, float sigma) { return expf(-distance2 / (2.0f * SQUARE(sigma))); }

extern "C" __global__ void bilateral(const float* image, float* filtered, float spatial, float tonal, int radius, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float centre = image[y * width + x], sum = 0.0f, total = 0.0f;
    for (int dy = -radius; dy <= radius; dy++) {
        if (y + dy < 0 || y + dy >= height) continue;
        for (int dx = -radius; dx <= radius; dx++) {
            if (x + dx < 0) continue;
            if (x + dx >= width) break;
            float other = image[(y + dy) * width + x + dx];
            float weight = closeness(dx * dx + dy * dy, spatial) * closeness(SQUARE(other - centre), tonal);
            sum += weight * other;
            total += weight;
        }
    }
    filtered[y * width + x] = sum / total;
}
