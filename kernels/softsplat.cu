/*gpuad
title = "forward warping: every pixel is splatted to where its flow points, by atomicAdd"
[[case]]
kernel = "softsplat"
sizes = {channels = 2, height = 14, width = 17}
grid = ["(channels * height * width + 127) // 128"]
block = [128]
[case.arguments]
n = {value = "channels * height * width"}
image = {shape = ["channels", "height", "width"], init = "normal", active = true}
flow = {shape = [2, "height", "width"], init = "integers(-3, 3) + uniform(0.1, 0.9)", active = true}
splatted = {shape = ["channels", "height", "width"], init = "zeros", active = true}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {channels = 4, height = 2160, width = 3840}
bytes = "(8 * channels + 8) * height * width"
*/
extern "C" __global__ void softsplat(const int n, const float* __restrict__ image, const float* __restrict__ flow,
                                     float* __restrict__ splatted, const int height, const int width) {
    for (int index = (blockIdx.x * blockDim.x) + threadIdx.x; index < n; index += blockDim.x * gridDim.x) {
        const int c = (index / width / height), y = (index / width) % height, x = index % width;
        const float to_x = (float)(x) + flow[y * width + x];
        const float to_y = (float)(y) + flow[(height + y) * width + x];
        const float value = image[index];

        int west = (int)(floor(to_x)), north = (int)(floor(to_y));
        int east = west + 1, south = north + 1;
        float north_west = ((float)(east) - to_x) * ((float)(south) - to_y);
        float north_east = (to_x - (float)(west)) * ((float)(south) - to_y);
        float south_west = ((float)(east) - to_x) * (to_y - (float)(north));
        float south_east = (to_x - (float)(west)) * (to_y - (float)(north));

        if ((north >= 0) && (north < height) && (west >= 0) && (west < width)) {
            atomicAdd(&splatted[(c * height + north) * width + west], value * north_west);
        }
        if ((north >= 0) && (north < height) && (east >= 0) && (east < width)) {
            atomicAdd(&splatted[(c * height + north) * width + east], value * north_east);
        }
        if ((south >= 0) && (south < height) && (west >= 0) && (west < width)) {
            atomicAdd(&splatted[(c * height + south) * width + west], value * south_west);
        }
        if ((south >= 0) && (south < height) && (east >= 0) && (east < width)) {
            atomicAdd(&splatted[(c * height + south) * width + east], value * south_east);
        }
    }
}
