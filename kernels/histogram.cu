/*gpuad
title = "weighted histograms by atomicAdd: bins given, and bins with linear weights between neighbours"
[[case]]
kernel = "histogram"
sizes = {n = 400, bins = 16}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
bin = {shape = ["n"], init = "integers(0, bins)"}
weight = {shape = ["n"], init = "normal", active = true}
counts = {shape = ["bins"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216, bins = 4096}
bytes = "8 * n"

[[case]]
kernel = "soft_histogram"
title = "each value is shared out between the two nearest bins"
sizes = {n = 400, bins = 6}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
value = {shape = ["n"], init = "(integers(0, bins - 1) + uniform(0.3, 0.7)) / (bins - 1)", active = true}
counts = {shape = ["bins"], init = "zeros", active = true}
n = {value = "n"}
bins = {value = "bins"}
[case.benchmark]
sizes = {n = 16777216, bins = 4096}
bytes = "4 * n"
*/
extern "C" __global__ void histogram(const int* bin, const float* weight, float* counts, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[bin[i]], weight[i]);
}

extern "C" __global__ void soft_histogram(const float* value, float* counts, int n, int bins) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    float position = value[i] * (bins - 1);
    int low = static_cast<int>(position);
    if (low < 0 || low + 1 >= bins) return;
    float share = position - low;
    atomicAdd(counts + low, 1.0f - share);
    atomicAdd(counts + low + 1, share);
}
