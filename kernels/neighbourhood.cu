/*gpuad
title = "neighbourhood attention along a sequence: each query looks at the nearest keys, which are always as many"
[[case]]
kernel = "neighbourhood_scores"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(length + 15) // 16", "window", "heads"]
block = [16, 1]
[case.arguments]
query = {shape = ["heads", "length", "depth"], init = "normal", active = true}
key = {shape = ["heads", "length", "depth"], init = "normal", active = true}
score = {shape = ["heads", "length", "window"], init = "zeros", active = true}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 8, length = 16384, depth = 32, window = 13}
bytes = "4 * heads * length * (2 * depth + window)"
flops = "2 * heads * length * depth * window"

[[case]]
kernel = "neighbourhood_values"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(depth + 3) // 4", "(length + 7) // 8", "heads"]
block = [4, 8]
[case.arguments]
weight = {shape = ["heads", "length", "window"], init = "normal", active = true}
value = {shape = ["heads", "length", "depth"], init = "normal", active = true}
output = {shape = ["heads", "length", "depth"], init = "zeros", active = true}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 8, length = 16384, depth = 32, window = 13}
bytes = "4 * heads * length * (2 * depth + window)"
flops = "2 * heads * length * depth * window"
*/
__device__ int window_start(int i, int length, int window) {
    int start = i - window / 2;
    if (start < 0) start = 0;
    if (start > length - window) start = length - window;
    return start;
}

extern "C" __global__ void neighbourhood_scores(const float* query, const float* key, float* score, int length, int depth, int window) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (i >= length || k >= window) return;
    int j = window_start(i, length, window) + k;
    float sum = 0.0f;
    for (int d = 0; d < depth; ++d) {
        sum += query[(head * length + i) * depth + d] * key[(head * length + j) * depth + d];
    }
    score[(head * length + i) * window + k] = sum;
}

extern "C" __global__ void neighbourhood_values(const float* weight, const float* value, float* output, int length, int depth, int window) {
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (d >= depth || i >= length) return;
    int start = window_start(i, length, window);
    float sum = 0.0f;
    for (int k = 0; k < window; ++k) {
        sum += weight[(head * length + i) * window + k] * value[(head * length + start + k) * depth + d];
    }
    output[(head * length + i) * depth + d] = sum;
}
