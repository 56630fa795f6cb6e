/*gpuad
title = "bilinear sampling of an image at given points, clamped at the border (grid_sample)"
[[case]]
kernel = "bilinear"
sizes = {height = 18, width = 22, points = 130}
grid = ["(points + 63) // 64"]
block = [64]
[case.arguments]
image = {shape = ["height", "width"], init = "normal", active = true}
px = {shape = ["points"], init = "integers(-2, width + 1) + uniform(0.1, 0.9)", active = true}
py = {shape = ["points"], init = "integers(-2, height + 1) + uniform(0.1, 0.9)", active = true}
sampled = {shape = ["points"], init = "zeros", active = true}
height = {value = "height"}
width = {value = "width"}
points = {value = "points"}
[case.benchmark]
sizes = {height = 4096, width = 4096, points = 16777216}
bytes = "12 * points + 4 * height * width"
*/
__device__ int clamp(int value, int low, int high) {
    if (value < low) return low;
    if (value > high) return high;
    return value;
}

extern "C" __global__ void bilinear(const float* image, const float* px, const float* py, float* sampled, int height, int width, int points) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= points) return;
    float x = px[i], y = py[i];
    int x0 = (int)floorf(x), y0 = (int)floorf(y);
    float fx = x - x0, fy = y - y0;
    int left = clamp(x0, 0, width - 1), right = clamp(x0 + 1, 0, width - 1);
    const float* top = image + clamp(y0, 0, height - 1) * width;
    const float* bottom = image + clamp(y0 + 1, 0, height - 1) * width;
    float upper = top[left] * (1.0f - fx) + top[right] * fx;
    float lower = bottom[left] * (1.0f - fx) + bottom[right] * fx;
    sampled[i] = upper * (1.0f - fy) + lower * fy;
}
