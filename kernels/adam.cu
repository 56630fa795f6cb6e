/*gpuad
title = "one step of the Adam optimiser: parameters and both moments in place"
[[case]]
kernel = "adam"
sizes = {n = 400}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
parameter = {shape = ["n"], init = "normal", active = true}
gradient = {shape = ["n"], init = "normal", active = true}
first = {shape = ["n"], init = "0.1 * normal", active = true}
second = {shape = ["n"], init = "positive", active = true}
rate = {value = 0.01, active = true}
step = {value = 3}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "28 * n"
*/
#define BETA1 0.9f
#define BETA2 0.999f

extern "C" __global__ void adam(float* parameter, const float* gradient, float* first, float* second, float rate, int step, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = gradient[i];
    first[i] = BETA1 * first[i] + (1.0f - BETA1) * g;
    second[i] = BETA2 * second[i] + (1.0f - BETA2) * g * g;
    float m = first[i] / (1.0f - powf(BETA1, step));
    float v = second[i] / (1.0f - powf(BETA2, step));
    parameter[i] -= rate * m / (sqrtf(v) + 1e-3f);
}
