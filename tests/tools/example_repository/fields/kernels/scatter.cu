/*gpuad
title = "what is carried is laid down in cells"
[[case]]
kernel = "scatter"
sizes = {n = 100, cells = 20}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
carried = {shape = ["n"], init = "normal", active = true}
cell = {shape = ["n"], init = "integers(0, cells)"}
laid = {shape = ["cells"], init = "zeros", active = true}
n = {value = "n"}
*/
extern "C" __global__ void scatter(const float* carried, const int* cell, float* laid, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&laid[cell[i]], carried[i] * carried[i]);
    }
}
