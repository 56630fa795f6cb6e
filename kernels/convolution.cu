/*gpuad
title = "convolutions: a line with a long kernel, an image with a small window, and a layer over channels"
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

[[case]]
kernel = "convolve_channels"
title = "a layer of a network: a block for each channel of the output"
sizes = {inputs = 3, outputs = 4, height = 13, width = 18}
grid = ["(width + 7) // 8", "(height + 7) // 8", "outputs"]
block = [8, 8]
[case.arguments]
x = {shape = ["inputs", "height", "width"], init = "normal", active = true}
weight = {shape = ["outputs", "inputs", 3, 3], init = "normal", active = true}
bias = {shape = ["outputs"], init = "normal", active = true}
y = {shape = ["outputs", "height - 2", "width - 2"], init = "zeros", active = true}
inputs = {value = "inputs"}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {inputs = 32, outputs = 64, height = 514, width = 514}
bytes = "4 * (inputs + outputs) * height * width"
flops = "18 * inputs * outputs * (height - 2) * (width - 2)"
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

extern "C" __global__ void convolve_channels(const float* x, const float* weight, const float* bias, float* y, int inputs, int height,
                                             int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int out = blockIdx.z;
    if (row >= height - 2 || column >= width - 2) return;
    float sum = bias[out];
    for (int in = 0; in < inputs; in++) {
        for (int dy = 0; dy < 3; dy++) {
            for (int dx = 0; dx < 3; dx++) {
                sum += weight[((out * inputs + in) * 3 + dy) * 3 + dx] * x[(in * height + row + dy) * width + column + dx];
            }
        }
    }
    y[(out * (height - 2) + row) * (width - 2) + column] = sum > 0 ? sum : 0.1f * sum;
}
