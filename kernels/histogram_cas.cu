/*gpuad
title = "a histogram of squares in double precision, by a loop around atomicCAS from the time before atomicAdd took doubles"
[[case]]
kernel = "histogram_cas"
sizes = {n = 400, bins = 16}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
bin = {shape = ["n"], init = "integers(0, bins)"}
weight = {shape = ["n"], init = "normal", active = true}
counts = {shape = ["bins"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 8388608, bins = 4096}
bytes = "12 * n"
*/
__device__ double add_double(double* address, double value) {
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}

extern "C" __global__ void histogram_cas(const int* bin, const double* weight, double* counts, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) add_double(&counts[bin[i]], weight[i] * weight[i]);
}
