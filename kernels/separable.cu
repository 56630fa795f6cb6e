/*gpuad
title = "separable convolution with a kernel for each pixel: frame interpolation by two filters that a network predicts"
[[case]]
kernel = "separable"
sizes = {channels = 3, height = 9, width = 12, taps = 5}
grid = ["(channels * height * width + 63) // 64"]
block = [64]
[case.arguments]
n = {value = "channels * height * width"}
padded = {shape = ["channels", "height + taps - 1", "width + taps - 1"], init = "normal", active = true}
vertical = {shape = ["taps", "height", "width"], init = "normal", active = true}
horizontal = {shape = ["taps", "height", "width"], init = "normal", active = true}
output = {shape = ["channels", "height", "width"], init = "zeros", active = true}
height = {value = "height"}
width = {value = "width"}
taps = {value = "taps"}
[case.benchmark]
sizes = {channels = 3, height = 480, width = 640, taps = 25}
bytes = "4 * (2 * taps + 2 * channels) * height * width"
flops = "3 * taps * taps * channels * height * width"
*/
extern "C" __global__ void separable(int n, const float* padded, const float* vertical, const float* horizontal, float* output, int height,
                                     int width, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int c = i / (height * width), y = (i / width) % height, x = i % width;
    const int pitch = width + taps - 1, rows = height + taps - 1;
    float sum = 0.0f;
    for (int v = 0; v < taps; ++v) {
        for (int h = 0; h < taps; ++h) {
            sum += padded[(c * rows + y + v) * pitch + x + h] * vertical[(v * height + y) * width + x] * horizontal[(h * height + y) * width + x];
        }
    }
    output[i] = sum;
}
