/*gpuad
[[case]]
kernel = "scores_query"
title = "neighbourhood_scores"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(depth + 31) // 32", "(length + 3) // 4", "heads"]
block = [32, 4]
[case.arguments]
key = {shape = ["heads", "length", "depth"], init = "zeros"}
dscore = {shape = ["heads", "length", "window"], init = "zeros"}
dquery = {shape = ["heads", "length", "depth"], init = "zeros"}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 4, length = 8192, depth = 32, window = 13}

[[case]]
kernel = "scores_key"
title = "neighbourhood_scores"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(depth + 31) // 32", "(length + 3) // 4", "heads"]
block = [32, 4]
[case.arguments]
query = {shape = ["heads", "length", "depth"], init = "zeros"}
dscore = {shape = ["heads", "length", "window"], init = "zeros"}
dkey = {shape = ["heads", "length", "depth"], init = "zeros"}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 4, length = 8192, depth = 32, window = 13}

[[case]]
kernel = "values_weight"
title = "neighbourhood_values"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(window + 15) // 16", "(length + 7) // 8", "heads"]
block = [16, 8]
[case.arguments]
value = {shape = ["heads", "length", "depth"], init = "zeros"}
doutput = {shape = ["heads", "length", "depth"], init = "zeros"}
dweight = {shape = ["heads", "length", "window"], init = "zeros"}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 4, length = 8192, depth = 32, window = 13}

[[case]]
kernel = "values_value"
title = "neighbourhood_values"
sizes = {heads = 2, length = 19, depth = 3, window = 5}
grid = ["(depth + 31) // 32", "(length + 3) // 4", "heads"]
block = [32, 4]
[case.arguments]
weight = {shape = ["heads", "length", "window"], init = "zeros"}
doutput = {shape = ["heads", "length", "depth"], init = "zeros"}
dvalue = {shape = ["heads", "length", "depth"], init = "zeros"}
length = {value = "length"}
depth = {value = "depth"}
window = {value = "window"}
[case.benchmark]
sizes = {heads = 4, length = 8192, depth = 32, window = 13}
*/
// Queries and weights are their own thread's; a key or a value goes through the queries whose window it is in.
__device__ int window_start(int i, int length, int window) {
    int start = i - window / 2;
    if (start < 0) start = 0;
    if (start > length - window) start = length - window;
    return start;
}
__device__ int first_query(int j, int length, int window) { return j < window ? 0 : j - window + 1 + window / 2; }
__device__ int last_query(int j, int length, int window) { return j >= length - window ? length - 1 : j + window / 2; }

extern "C" __global__ void scores_query(const float* key, const float* dscore, float* dquery, int length, int depth, int window) {
    int d = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y, head = blockIdx.z;
    if (d >= depth || i >= length) return;
    int start = window_start(i, length, window);
    float sum = 0.0f;
    for (int k = 0; k < window; ++k) sum += dscore[(head * length + i) * window + k] * key[(head * length + start + k) * depth + d];
    dquery[(head * length + i) * depth + d] += sum;
}

extern "C" __global__ void scores_key(const float* query, const float* dscore, float* dkey, int length, int depth, int window) {
    int d = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, head = blockIdx.z;
    if (d >= depth || j >= length) return;
    float sum = 0.0f;
    for (int i = first_query(j, length, window); i <= last_query(j, length, window); ++i) {
        int k = j - window_start(i, length, window);
        if (k >= 0 && k < window) sum += dscore[(head * length + i) * window + k] * query[(head * length + i) * depth + d];
    }
    dkey[(head * length + j) * depth + d] += sum;
}

extern "C" __global__ void values_weight(const float* value, const float* doutput, float* dweight, int length, int depth, int window) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y, head = blockIdx.z;
    if (k >= window || i >= length) return;
    int j = window_start(i, length, window) + k;
    float sum = 0.0f;
    for (int d = 0; d < depth; ++d) sum += doutput[(head * length + i) * depth + d] * value[(head * length + j) * depth + d];
    dweight[(head * length + i) * window + k] += sum;
}

extern "C" __global__ void values_value(const float* weight, const float* doutput, float* dvalue, int length, int depth, int window) {
    int d = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, head = blockIdx.z;
    if (d >= depth || j >= length) return;
    float sum = 0.0f;
    for (int i = first_query(j, length, window); i <= last_query(j, length, window); ++i) {
        int k = j - window_start(i, length, window);
        if (k >= 0 && k < window) sum += weight[(head * length + i) * window + k] * doutput[(head * length + i) * depth + d];
    }
    dvalue[(head * length + j) * depth + d] += sum;
}
