/*gpuad
[[case]]
kernel = "correlation_first"
title = "correlation"
sizes = {channels = 3, height = 11, width = 14, reach = 2}
grid = ["(width + 31) // 32", "(height + 7) // 8", "channels"]
block = [32, 8]
[case.arguments]
second = {shape = ["channels", "height", "width"], init = "zeros"}
dcost = {shape = ["(2 * reach + 1) * (2 * reach + 1)", "height", "width"], init = "zeros"}
dfirst = {shape = ["channels", "height", "width"], init = "zeros"}
channels = {value = "channels"}
height = {value = "height"}
width = {value = "width"}
reach = {value = "reach"}
[case.benchmark]
sizes = {channels = 16, height = 128, width = 192, reach = 4}

[[case]]
kernel = "correlation_second"
title = "correlation"
sizes = {channels = 3, height = 11, width = 14, reach = 2}
grid = ["(width + 31) // 32", "(height + 7) // 8", "channels"]
block = [32, 8]
[case.arguments]
first = {shape = ["channels", "height", "width"], init = "zeros"}
dcost = {shape = ["(2 * reach + 1) * (2 * reach + 1)", "height", "width"], init = "zeros"}
dsecond = {shape = ["channels", "height", "width"], init = "zeros"}
channels = {value = "channels"}
height = {value = "height"}
width = {value = "width"}
reach = {value = "reach"}
[case.benchmark]
sizes = {channels = 16, height = 128, width = 192, reach = 4}
*/
// Two gathers: a thread for each feature goes through all displacements.
extern "C" __global__ void correlation_first(const float* second, const float* dcost, float* dfirst, int channels, int height, int width,
                                             int reach) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.z;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    int d = 0;
    for (int dy = -reach; dy <= reach; ++dy) {
        for (int dx = -reach; dx <= reach; ++dx, ++d) {
            if (y + dy >= 0 && y + dy < height && x + dx >= 0 && x + dx < width) {
                sum += dcost[(d * height + y) * width + x] * second[(c * height + y + dy) * width + x + dx];
            }
        }
    }
    dfirst[(c * height + y) * width + x] += sum / channels;
}

extern "C" __global__ void correlation_second(const float* first, const float* dcost, float* dsecond, int channels, int height, int width,
                                              int reach) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.z;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    int d = 0;
    for (int dy = -reach; dy <= reach; ++dy) {
        for (int dx = -reach; dx <= reach; ++dx, ++d) {
            if (y - dy >= 0 && y - dy < height && x - dx >= 0 && x - dx < width) {
                sum += dcost[(d * height + y - dy) * width + x - dx] * first[(c * height + y - dy) * width + x - dx];
            }
        }
    }
    dsecond[(c * height + y) * width + x] += sum / channels;
}
