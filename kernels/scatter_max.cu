/*gpuad
title = "the greatest feature of the points that fall into a cell, by atomicMax on the bits and by loops around atomicCAS"
[[case]]
kernel = "scatter_max"
title = "points to cells, channel by channel (point clouds to pillars)"
sizes = {points = 120, channels = 3, cells = 17}
grid = ["(points + 63) // 64"]
block = [64]
[case.arguments]
feature = {shape = ["points", "channels"], init = "normal", active = true}
cell = {shape = ["points"], init = "integers(-1, cells)"}
weight = {shape = ["channels"], init = "normal", active = true}
pooled = {shape = ["cells", "channels"], init = "normal - 0.5", active = true}
points = {value = "points"}
channels = {value = "channels"}
[case.benchmark]
sizes = {points = 4194304, channels = 8, cells = 65536}
bytes = "12 * points * channels + 4 * points"

[[case]]
kernel = "bounds"
title = "the least and the greatest value of each of several segments, in double precision"
sizes = {n = 150, segments = 4}
grid = [2]
block = [32]
[case.arguments]
x = {shape = ["n"], init = "normal", active = true}
segment = {shape = ["n"], init = "integers(0, segments)"}
low = {shape = ["segments"], init = "normal + 4", active = true}
high = {shape = ["segments"], init = "normal - 4", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216, segments = 4096}
bytes = "20 * n"

[[case]]
kernel = "normalize_by_max"
title = "rows divided by their greatest absolute value, which a block finds in shared memory"
sizes = {rows = 3, width = 75}
grid = ["rows"]
block = [32]
[case.arguments]
x = {shape = ["rows", "width"], init = "normal", active = true}
y = {shape = ["rows", "width"], init = "zeros", active = true}
width = {value = "width"}
[case.benchmark]
sizes = {rows = 65536, width = 256}
bytes = "16 * rows * width"
*/

// The bits of floats have the order of the floats for one sign, and the opposite order for the other.
__device__ __forceinline__ float atomicMaxFloat(float* address, float value) {
    float old;
    old = (value >= 0) ? __int_as_float(atomicMax((int*)address, __float_as_int(value)))
                       : __uint_as_float(atomicMin((unsigned int*)address, __float_as_uint(value)));
    return old;
}

__device__ double atomicMaxDouble(double* address, double value) {
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long old = *bits;
    while (value > __longlong_as_double(old)) {
        unsigned long long assumed = old;
        if ((old = atomicCAS(bits, assumed, __double_as_longlong(value))) == assumed) break;
    }
    return __longlong_as_double(old);
}

__device__ void atomicMinDouble(double* address, double value) {
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(fmin(value, __longlong_as_double(assumed))));
    } while (assumed != old);
}

extern "C" __global__ void scatter_max(const float* feature, const int* cell, const float* weight, float* pooled, int points,
                                       int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= points || cell[i] < 0) return;
    for (int c = 0; c < channels; c++) {
        atomicMaxFloat(&pooled[cell[i] * channels + c], weight[c] * feature[i * channels + c]);
    }
}

extern "C" __global__ void bounds(const double* x, const int* segment, double* low, double* high, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicMinDouble(low + segment[i], x[i]);
        atomicMaxDouble(high + segment[i], x[i]);
    }
}

extern "C" __global__ void normalize_by_max(const float* x, float* y, int width) {
    __shared__ float largest;
    const float* row = x + blockIdx.x * width;
    if (threadIdx.x == 0) largest = 1e-20f;
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        atomicMax((int*)&largest, __float_as_int(fabsf(row[i])));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        y[blockIdx.x * width + i] = row[i] / largest;
    }
}
