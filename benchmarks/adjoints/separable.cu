/*gpuad
[[case]]
kernel = "separable_vertical"
title = "separable"
sizes = {channels = 3, height = 9, width = 12, taps = 5}
grid = ["(taps * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "taps * height * width"}
channels = {value = "channels"}
padded = {shape = ["channels", "height + taps - 1", "width + taps - 1"], init = "zeros"}
horizontal = {shape = ["taps", "height", "width"], init = "zeros"}
doutput = {shape = ["channels", "height", "width"], init = "zeros"}
dvertical = {shape = ["taps", "height", "width"], init = "zeros"}
height = {value = "height"}
width = {value = "width"}
taps = {value = "taps"}
[case.benchmark]
sizes = {channels = 3, height = 96, width = 128, taps = 25}

[[case]]
kernel = "separable_horizontal"
title = "separable"
sizes = {channels = 3, height = 9, width = 12, taps = 5}
grid = ["(taps * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "taps * height * width"}
channels = {value = "channels"}
padded = {shape = ["channels", "height + taps - 1", "width + taps - 1"], init = "zeros"}
vertical = {shape = ["taps", "height", "width"], init = "zeros"}
doutput = {shape = ["channels", "height", "width"], init = "zeros"}
dhorizontal = {shape = ["taps", "height", "width"], init = "zeros"}
height = {value = "height"}
width = {value = "width"}
taps = {value = "taps"}
[case.benchmark]
sizes = {channels = 3, height = 96, width = 128, taps = 25}

[[case]]
kernel = "separable_padded"
title = "separable"
sizes = {channels = 3, height = 9, width = 12, taps = 5}
grid = ["(channels * (height + taps - 1) * (width + taps - 1) + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "channels * (height + taps - 1) * (width + taps - 1)"}
vertical = {shape = ["taps", "height", "width"], init = "zeros"}
horizontal = {shape = ["taps", "height", "width"], init = "zeros"}
doutput = {shape = ["channels", "height", "width"], init = "zeros"}
dpadded = {shape = ["channels", "height + taps - 1", "width + taps - 1"], init = "zeros"}
height = {value = "height"}
width = {value = "width"}
taps = {value = "taps"}
[case.benchmark]
sizes = {channels = 3, height = 96, width = 128, taps = 25}
*/
// A gather for each of the three: filters go through channels and the other filter, the padded image through the taps that have seen it.
extern "C" __global__ void separable_vertical(int n, int channels, const float* padded, const float* horizontal, const float* doutput,
                                              float* dvertical, int height, int width, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int v = i / (height * width), y = (i / width) % height, x = i % width;
    const int pitch = width + taps - 1, rows = height + taps - 1;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        float inner = 0.0f;
        for (int h = 0; h < taps; ++h) inner += padded[(c * rows + y + v) * pitch + x + h] * horizontal[(h * height + y) * width + x];
        sum += inner * doutput[(c * height + y) * width + x];
    }
    dvertical[i] += sum;
}

extern "C" __global__ void separable_horizontal(int n, int channels, const float* padded, const float* vertical, const float* doutput,
                                                float* dhorizontal, int height, int width, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int h = i / (height * width), y = (i / width) % height, x = i % width;
    const int pitch = width + taps - 1, rows = height + taps - 1;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        float inner = 0.0f;
        for (int v = 0; v < taps; ++v) inner += padded[(c * rows + y + v) * pitch + x + h] * vertical[(v * height + y) * width + x];
        sum += inner * doutput[(c * height + y) * width + x];
    }
    dhorizontal[i] += sum;
}

extern "C" __global__ void separable_padded(int n, const float* vertical, const float* horizontal, const float* doutput, float* dpadded,
                                            int height, int width, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int pitch = width + taps - 1, rows = height + taps - 1;
    const int c = i / (rows * pitch), row = (i / pitch) % rows, column = i % pitch;
    float sum = 0.0f;
    for (int v = 0; v < taps; ++v) {
        const int y = row - v;
        if (y < 0 || y >= height) continue;
        for (int h = 0; h < taps; ++h) {
            const int x = column - h;
            if (x < 0 || x >= width) continue;
            sum += doutput[(c * height + y) * width + x] * vertical[(v * height + y) * width + x] * horizontal[(h * height + y) * width + x];
        }
    }
    dpadded[i] += sum;
}
