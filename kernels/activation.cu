/*gpuad
title = "an activation function in place, chosen for each row"
[[case]]
kernel = "activation"
sizes = {rows = 12, n = 50}
grid = ["(n + 63) // 64", "rows"]
block = [64]
[case.arguments]
x = {shape = ["rows", "n"], init = "normal", active = true}
kind = {shape = ["rows"], init = "integers(0, 7)"}
slope = {value = 0.1, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 1024, n = 16384}
bytes = "8 * rows * n"
*/
enum Activation { IDENTITY, RELU, LEAKY_RELU, SIGMOID, SWISH, TANH };

extern "C" __global__ void activation(float* x, const int* kind, float slope, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    if (i >= n) return;
    float value = x[row * n + i];
    float gate = 1.0f;
    switch (kind[row]) {
        case IDENTITY:
            return;
        case RELU:
            slope = 0.0f;
        case LEAKY_RELU:
            if (value >= 0.0f) break;
            value *= slope;
            break;
        case SWISH:
            gate = value;
        case SIGMOID:
            value = gate / (1.0f + expf(-value));
            break;
        case TANH:
            value = tanhf(value);
            break;
        default:
            value = 0.0f;
    }
    x[row * n + i] = value;
}
