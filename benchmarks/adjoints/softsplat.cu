/*gpuad
[[case]]
kernel = "softsplat_image"
title = "softsplat"
sizes = {channels = 2, height = 14, width = 17}
grid = ["(channels * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "channels * height * width"}
flow = {shape = [2, "height", "width"], init = "zeros"}
dsplatted = {shape = ["channels", "height", "width"], init = "zeros"}
dimage = {shape = ["channels", "height", "width"], init = "zeros"}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {channels = 4, height = 512, width = 768}

[[case]]
kernel = "softsplat_flow"
title = "softsplat"
sizes = {channels = 2, height = 14, width = 17}
grid = ["(height * width + 127) // 128"]
block = [128]
[case.arguments]
channels = {value = "channels"}
image = {shape = ["channels", "height", "width"], init = "zeros"}
flow = {shape = [2, "height", "width"], init = "zeros"}
dsplatted = {shape = ["channels", "height", "width"], init = "zeros"}
dflow = {shape = [2, "height", "width"], init = "zeros"}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {channels = 4, height = 512, width = 768}
*/
// The gradient for the image gathers the four corners; that for the flow has a thread for each pixel, which goes through the channels.
__device__ float at(const float* d, int c, int y, int x, int height, int width) {
    return y >= 0 && y < height && x >= 0 && x < width ? d[(c * height + y) * width + x] : 0.0f;
}

extern "C" __global__ void softsplat_image(int n, const float* flow, const float* dsplatted, float* dimage, int height, int width) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int c = i / width / height, y = (i / width) % height, x = i % width;
        const float to_x = x + flow[y * width + x], to_y = y + flow[(height + y) * width + x];
        const int west = (int)floorf(to_x), north = (int)floorf(to_y);
        const float right = to_x - west, left = 1.0f - right, down = to_y - north, up = 1.0f - down;
        dimage[i] += left * up * at(dsplatted, c, north, west, height, width) + right * up * at(dsplatted, c, north, west + 1, height, width) +
                     left * down * at(dsplatted, c, north + 1, west, height, width) +
                     right * down * at(dsplatted, c, north + 1, west + 1, height, width);
    }
}

extern "C" __global__ void softsplat_flow(int channels, const float* image, const float* flow, const float* dsplatted, float* dflow, int height,
                                          int width) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < height * width; i += blockDim.x * gridDim.x) {
        const int y = i / width, x = i % width;
        const float to_x = x + flow[i], to_y = y + flow[height * width + i];
        const int west = (int)floorf(to_x), north = (int)floorf(to_y);
        const float right = to_x - west, left = 1.0f - right, down = to_y - north, up = 1.0f - down;
        float along_x = 0.0f, along_y = 0.0f;
        for (int c = 0; c < channels; ++c) {
            const float nw = at(dsplatted, c, north, west, height, width), ne = at(dsplatted, c, north, west + 1, height, width);
            const float sw = at(dsplatted, c, north + 1, west, height, width), se = at(dsplatted, c, north + 1, west + 1, height, width);
            const float value = image[c * height * width + i];
            along_x += value * (up * (ne - nw) + down * (se - sw));
            along_y += value * (left * (sw - nw) + right * (se - ne));
        }
        dflow[i] += along_x;
        dflow[height * width + i] += along_y;
    }
}
