/*gpuad
[[case]]
kernel = "spiking_backward"
title = "spiking"
sizes = {steps = 9, n = 20}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
current = {shape = ["steps", "n"], init = "zeros"}
membrane = {shape = ["steps + 1", "n"], init = "zeros"}
spike = {shape = ["steps", "n"], init = "zeros"}
leak = {shape = ["n"], init = "zeros"}
threshold = {shape = ["n"], init = "zeros"}
dspike = {shape = ["steps", "n"], init = "zeros"}
dcurrent = {shape = ["steps", "n"], init = "zeros"}
dmembrane = {shape = ["steps + 1", "n"], init = "zeros"}
dleak = {shape = ["n"], init = "zeros"}
dthreshold = {shape = ["n"], init = "zeros"}
slope = {value = 5.0}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {steps = 128, n = 16384}
*/
// Backward in time. The potential follows from the membrane before the step, which the forward pass has left.
extern "C" __global__ void spiking_backward(const float* current, const float* membrane, const float* spike, const float* leak,
                                            const float* threshold, const float* dspike, float* dcurrent, float* dmembrane, float* dleak,
                                            float* dthreshold, float slope, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float running = 0.0f, of_leak = 0.0f, of_threshold = 0.0f;
    for (int t = steps - 1; t >= 0; --t) {
        running += dmembrane[(t + 1) * n + i];
        dmembrane[(t + 1) * n + i] = 0.0f;
        float fired = spike[t * n + i];
        float steep = slope * fired * (1.0f - fired) * (dspike[t * n + i] - running * threshold[i]);
        of_threshold -= steep + running * fired;
        running += steep;
        dcurrent[t * n + i] += running;
        of_leak += running * membrane[t * n + i];
        running *= leak[i];
    }
    dmembrane[i] += running;
    dleak[i] += of_leak;
    dthreshold[i] += of_threshold;
}
