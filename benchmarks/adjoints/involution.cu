/*gpuad
[[case]]
kernel = "involution_x"
title = "involution"
sizes = {channels = 4, groups = 2, height = 9, width = 10, window = 3}
grid = ["(channels * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "channels * height * width"}
weight = {shape = ["groups", "window", "window", "height", "width"], init = "zeros"}
dy = {shape = ["channels", "height", "width"], init = "zeros"}
dx = {shape = ["channels", "height", "width"], init = "zeros"}
share = {value = "channels // groups"}
height = {value = "height"}
width = {value = "width"}
window = {value = "window"}
[case.benchmark]
sizes = {channels = 32, groups = 4, height = 96, width = 96, window = 7}

[[case]]
kernel = "involution_weight"
title = "involution"
sizes = {channels = 4, groups = 2, height = 9, width = 10, window = 3}
grid = ["(groups * window * window * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "groups * window * window * height * width"}
x = {shape = ["channels", "height", "width"], init = "zeros"}
dy = {shape = ["channels", "height", "width"], init = "zeros"}
dweight = {shape = ["groups", "window", "window", "height", "width"], init = "zeros"}
share = {value = "channels // groups"}
height = {value = "height"}
width = {value = "width"}
window = {value = "window"}
[case.benchmark]
sizes = {channels = 32, groups = 4, height = 96, width = 96, window = 7}
*/
// Two gathers: the image goes through the window, a weight through the channels of its group.
extern "C" __global__ void involution_x(int n, const float* weight, const float* dy, float* dx, int share, int height, int width, int window) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int c = i / height / width, row = (i / width) % height, column = i % width;
        const int group = c / share;
        float sum = 0.0f;
        for (int a = 0; a < window; ++a) {
            for (int b = 0; b < window; ++b) {
                const int from_row = row - a + window / 2, from_column = column - b + window / 2;
                if (from_row >= 0 && from_row < height && from_column >= 0 && from_column < width) {
                    sum += weight[(((group * window + a) * window + b) * height + from_row) * width + from_column] *
                           dy[(c * height + from_row) * width + from_column];
                }
            }
        }
        dx[i] += sum;
    }
}

extern "C" __global__ void involution_weight(int n, const float* x, const float* dy, float* dweight, int share, int height, int width,
                                             int window) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int group = i / width / height / window / window, a = (i / width / height / window) % window;
        const int b = (i / width / height) % window, row = (i / width) % height, column = i % width;
        const int there_row = row + a - window / 2, there_column = column + b - window / 2;
        if (there_row < 0 || there_row >= height || there_column < 0 || there_column >= width) continue;
        float sum = 0.0f;
        for (int c = group * share; c < (group + 1) * share; ++c) {
            sum += x[(c * height + there_row) * width + there_column] * dy[(c * height + row) * width + column];
        }
        dweight[i] += sum;
    }
}
