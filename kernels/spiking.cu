/*gpuad
title = "spiking neurons: leaky membranes that fire softly and are reset, through time"
[[case]]
kernel = "spiking"
sizes = {steps = 9, n = 20}
grid = ["(n + 15) // 16"]
block = [16]
[case.arguments]
current = {shape = ["steps", "n"], init = "uniform(0.0, 0.6)", active = true}
membrane = {shape = ["steps + 1", "n"], init = "uniform(0.0, 0.5)", active = true}
spike = {shape = ["steps", "n"], init = "zeros", active = true}
leak = {shape = ["n"], init = "uniform(0.7, 0.95)", active = true}
threshold = {shape = ["n"], init = "uniform(0.8, 1.2)", active = true}
slope = {value = 5.0}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {steps = 128, n = 65536}
bytes = "12 * steps * n"
*/
extern "C" __global__ void spiking(const float* current, float* membrane, float* spike, const float* leak, const float* threshold, float slope,
                                   int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float limit = threshold[i], factor = leak[i];
    for (int t = 0; t < steps; ++t) {
        int at = t * n + i;
        float potential = factor * membrane[at] + current[at];
        float fired = 1.0f / (1.0f + expf(slope * (limit - potential)));
        spike[at] = fired;
        membrane[at + n] = potential - fired * limit;
    }
}
