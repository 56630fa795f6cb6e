/*gpuad
title = "quasi-recurrent layer: forget and output gates that a convolution has made, gone through in time"
[[case]]
kernel = "qrnn"
sizes = {steps = 9, n = 20}
grid = ["(n + 15) // 16"]
block = [16]
[case.arguments]
forget = {shape = ["steps", "n"], init = "uniform(0.1, 0.9)", active = true}
candidate = {shape = ["steps", "n"], init = "uniform(-0.3, 0.3)", active = true}
gate = {shape = ["steps", "n"], init = "uniform(0.1, 0.9)", active = true}
cell = {shape = ["steps + 1", "n"], init = "uniform(0.1, 0.9)", active = true}
hidden = {shape = ["steps", "n"], init = "zeros", active = true}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {steps = 128, n = 65536}
bytes = "20 * steps * n"
*/
extern "C" __global__ void qrnn(const float* forget, const float* candidate, const float* gate, float* cell, float* hidden, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int t = 0; t < steps; ++t) {
        int at = t * n + i;
        float f = forget[at];
        cell[at + n] = f * cell[at] + (1.0f - f) * candidate[at];
        hidden[at] = gate[at] * cell[at + n];
    }
}
