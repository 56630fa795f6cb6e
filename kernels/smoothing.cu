/*gpuad
title = "smoothing that keeps edges, with any number of threads: each goes through the line in steps of the grid"
[[case]]
kernel = "smooth"
sizes = {n = 500, blocks = 3}
grid = ["blocks"]
block = [64]
[case.arguments]
noisy = {shape = ["n"], init = "normal", active = true}
smoothed = {shape = ["n"], init = "zeros", active = true}
rate = {value = 0.3, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 67108864, blocks = 4224}
bytes = "8 * n"
*/
extern "C" __global__ void smooth(const float* noisy, float* smoothed, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    while (i < n) {
        float here = noisy[i];
        float left = i > 0 ? noisy[i - 1] - here : 0.0f;
        float right = i < n - 1 ? noisy[i + 1] - here : 0.0f;
        smoothed[i] = here + rate * (left / (1 + left * left) + right / (1 + right * right));
        i += blockDim.x * gridDim.x;
    }
}
