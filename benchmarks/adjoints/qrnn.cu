/*gpuad
[[case]]
kernel = "qrnn_backward"
title = "qrnn"
sizes = {steps = 9, n = 20}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
forget = {shape = ["steps", "n"], init = "zeros"}
candidate = {shape = ["steps", "n"], init = "zeros"}
gate = {shape = ["steps", "n"], init = "zeros"}
cell = {shape = ["steps + 1", "n"], init = "zeros"}
dhidden = {shape = ["steps", "n"], init = "zeros"}
dforget = {shape = ["steps", "n"], init = "zeros"}
dcandidate = {shape = ["steps", "n"], init = "zeros"}
dgate = {shape = ["steps", "n"], init = "zeros"}
dcell = {shape = ["steps + 1", "n"], init = "zeros"}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {steps = 128, n = 16384}
*/
// Backward in time, with the cells that the forward pass has left; dcell holds what comes from elsewhere.
extern "C" __global__ void qrnn_backward(const float* forget, const float* candidate, const float* gate, const float* cell, const float* dhidden,
                                         float* dforget, float* dcandidate, float* dgate, float* dcell, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float running = 0.0f;
    for (int t = steps - 1; t >= 0; --t) {
        int at = t * n + i;
        float f = forget[at], g = dhidden[at];
        running += dcell[at + n] + gate[at] * g;
        dcell[at + n] = 0.0f;
        dgate[at] += cell[at + n] * g;
        dforget[at] += (cell[at] - candidate[at]) * running;
        dcandidate[at] += (1.0f - f) * running;
        running *= f;
    }
    dcell[i] += running;
}
