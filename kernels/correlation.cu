/*gpuad
title = "cost volume: how alike two images' features are at each pixel and displacement"
[[case]]
kernel = "correlation"
sizes = {channels = 3, height = 11, width = 14, reach = 2}
grid = ["(width + 7) // 8", "(height + 7) // 8", "(2 * reach + 1) * (2 * reach + 1)"]
block = [8, 8]
[case.arguments]
first = {shape = ["channels", "height", "width"], init = "normal", active = true}
second = {shape = ["channels", "height", "width"], init = "normal", active = true}
cost = {shape = ["(2 * reach + 1) * (2 * reach + 1)", "height", "width"], init = "zeros", active = true}
channels = {value = "channels"}
height = {value = "height"}
width = {value = "width"}
reach = {value = "reach"}
[case.benchmark]
sizes = {channels = 32, height = 256, width = 448, reach = 4}
bytes = "4 * ((2 * reach + 1) * (2 * reach + 1) + 2 * channels) * height * width"
flops = "2 * (2 * reach + 1) * (2 * reach + 1) * channels * height * width"
*/
extern "C" __global__ void correlation(const float* first, const float* second, float* cost, int channels, int height, int width, int reach) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int side = 2 * reach + 1;
    int there_x = x + (int)blockIdx.z % side - reach;
    int there_y = y + (int)blockIdx.z / side - reach;
    float sum = 0.0f;
    if (there_x >= 0 && there_x < width && there_y >= 0 && there_y < height) {
        for (int c = 0; c < channels; ++c) {
            sum += first[(c * height + y) * width + x] * second[(c * height + there_y) * width + there_x];
        }
    }
    cost[(blockIdx.z * height + y) * width + x] = sum / channels;
}
