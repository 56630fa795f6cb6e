/*gpuad
title = "rows looked up by index, and messages added along the edges of a graph"
[[case]]
kernel = "lookup"
title = "embedding: y[j] = x[index[j]]"
sizes = {rows = 15, width = 6, n = 40}
grid = ["(n * width + 63) // 64"]
block = [64]
[case.arguments]
x = {shape = ["rows", "width"], init = "normal", active = true}
index = {shape = ["n"], init = "integers(0, rows)"}
y = {shape = ["n", "width"], init = "zeros", active = true}
width = {value = "width"}
count = {value = "n * width"}
[case.benchmark]
sizes = {rows = 1048576, width = 64, n = 1048576}
bytes = "8 * n * width + 8 * n"

[[case]]
kernel = "messages"
title = "each edge adds a nonlinear message to its target"
sizes = {nodes = 30, edges = 150}
grid = ["(edges + 63) // 64"]
block = [64]
[case.arguments]
source = {shape = ["edges"], init = "integers(0, nodes)"}
target = {shape = ["edges"], init = "integers(0, nodes)"}
weight = {shape = ["edges"], init = "normal", active = true}
x = {shape = ["nodes"], init = "normal", active = true}
y = {shape = ["nodes"], init = "zeros", active = true}
edges = {value = "edges"}
[case.benchmark]
sizes = {nodes = 1048576, edges = 16777216}
bytes = "12 * edges + 8 * nodes"
*/
extern "C" __global__ void lookup(const float* x, const long long* index, float* y, int width, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    y[i] = x[index[i / width] * width + i % width];
}

extern "C" __global__ void messages(const int* source, const int* target, const double* weight, const double* x, double* y, int edges) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= edges) return;
    int s = source[e], t = target[e];
    atomicAdd(&y[t], tanh(weight[e] * x[s]) - 0.1 * x[t]);
}
