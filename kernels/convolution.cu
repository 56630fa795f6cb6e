/*gpuad
title = "convolutions: a line with a long kernel, and an image with a small window"
[[case]]
kernel = "convolve_line"
sizes = {n = 300, taps = 9}
grid = ["(n + 63) // 64"]
block = [64]
[case.arguments]
x = {shape = ["n"], init = "normal", active = true}
weight = {shape = ["taps"], init = "normal", active = true}
y = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
taps = {value = "taps"}
[case.benchmark]
sizes = {n = 16777216, taps = 33}
bytes = "8 * n"
flops = "2 * n * taps"

[[case]]
kernel = "convolve_image"
title = "3 x 3 window with zeros beyond the border"
sizes = {height = 21, width = 26}
grid = ["(width + 7) // 8", "(height + 7) // 8"]
block = [8, 8]
[case.arguments]
image = {shape = ["height", "width"], init = "normal", active = true}
weight = {shape = [3, 3], init = "normal", active = true}
filtered = {shape = ["height", "width"], init = "zeros", active = true}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {height = 8192, width = 8192}
bytes = "8 * height * width"
flops = "18 * height * width"
*/
extern "C" __global__ void convolve_line(const double* x, const double* weight, double* y, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
    for (int k = 0; k < taps; k++) {
        int j = i + k - taps / 2;
        if (j < 0 || j >= n) continue;
        sum += weight[k] * x[j];
    }
    y[i] = sum;
}

extern "C" __global__ void convolve_image(const float* image, const float* weight, float* filtered, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            int row = y + dy, column = x + dx;
            float pixel = row >= 0 && row < height && column >= 0 && column < width ? image[row * width + column] : 0.0f;
            sum += pixel * weight[(dy + 1) * 3 + dx + 1];
        }
    }
    filtered[y * width + x] = sum;
}
