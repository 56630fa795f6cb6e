/*gpuad
title = "activations in place: bias and rectifier, and bias and GELU"
[[case]]
kernel = "relu_bias"
sizes = {rows = 20, columns = 30}
grid = ["(columns + 31) // 32", "rows"]
block = [32, 1]
[case.arguments]
x = {shape = ["rows", "columns"], init = "(2 * integers(0, 2) - 1) * uniform(0.3, 2.0)", active = true}
bias = {shape = ["columns"], init = "uniform(-0.1, 0.1)", active = true}
rows = {value = "rows"}
columns = {value = "columns"}
[case.benchmark]
sizes = {rows = 16384, columns = 4096}
bytes = "8 * rows * columns"

[[case]]
kernel = "gelu_bias"
sizes = {rows = 20, columns = 30}
grid = ["(rows * columns + 127) // 128"]
block = [128]
[case.arguments]
x = {shape = ["rows", "columns"], init = "normal", active = true}
bias = {shape = ["columns"], init = "normal", active = true}
columns = {value = "columns"}
count = {value = "rows * columns"}
[case.benchmark]
sizes = {rows = 16384, columns = 4096}
bytes = "8 * rows * columns"
*/
extern "C" __global__ void relu_bias(float* x, const float* bias, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float value = x[row * columns + column] + bias[column];
    x[row * columns + column] = value > 0.0f ? value : 0.01f * value;
}

extern "C" __global__ void gelu_bias(float* x, const float* bias, int columns, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = x[i] + bias[i % columns];
    x[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
