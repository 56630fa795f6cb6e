/*gpuad
title = "overwrites under a mask: what is not written keeps its value and its gradient"
[[case]]
kernel = "masked_update"
sizes = {n = 150}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
x = {shape = ["n"], init = "normal", active = true}
a = {shape = ["n"], init = "normal", active = true}
mask = {shape = ["n"], init = "integers(0, 3)"}
total = {shape = ["n"], init = "normal", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "21 * n"
*/
extern "C" __global__ void masked_update(float* x, const float* a, const unsigned char* mask, float* total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    total[i] += sinf(x[i]);
    if (mask[i] == 1) {
        x[i] = a[i] * x[i];
    } else if (mask[i] == 2) {
        x[i] = 0.0f;
    }
}
