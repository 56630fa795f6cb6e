/*gpuad
title = "involution: a window for each pixel, which groups of channels share"
[[case]]
kernel = "involution"
sizes = {channels = 4, groups = 2, height = 9, width = 10, window = 3}
grid = ["(channels * height * width + 63) // 64"]
block = [64]
[case.arguments]
n = {value = "channels * height * width"}
x = {shape = ["channels", "height", "width"], init = "normal", active = true}
weight = {shape = ["groups", "window", "window", "height", "width"], init = "normal", active = true}
y = {shape = ["channels", "height", "width"], init = "zeros", active = true}
share = {value = "channels // groups"}
height = {value = "height"}
width = {value = "width"}
window = {value = "window"}
[case.benchmark]
sizes = {channels = 64, groups = 4, height = 128, width = 128, window = 7}
bytes = "4 * (2 * channels + groups * window * window) * height * width"
flops = "2 * channels * window * window * height * width"
*/
extern "C" __global__ void involution(int n, const float* x, const float* weight, float* y, int share, int height, int width, int window) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int c = i / height / width, row = (i / width) % height, column = i % width;
        const int group = c / share;
        float sum = 0.0f;
        for (int a = 0; a < window; ++a) {
            for (int b = 0; b < window; ++b) {
                const int there_row = row + a - window / 2, there_column = column + b - window / 2;
                if (there_row >= 0 && there_row < height && there_column >= 0 && there_column < width) {
                    sum += weight[(((group * window + a) * window + b) * height + row) * width + column] *
                           x[(c * height + there_row) * width + there_column];
                }
            }
        }
        y[i] = sum;
    }
}
