/*gpuad
title = "nonlinear diffusion of a line, with a halo in shared memory"
[[case]]
kernel = "diffuse"
sizes = {n = 150}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "positive", active = true}
v = {shape = ["n"], init = "zeros", active = true}
c = {value = 0.2, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 4194304}
bytes = "8 * n"
*/
#define BLOCK 32
#define R 2

extern "C" __global__ void diffuse(const float* u, float* v, float c, int n) {
    __shared__ float s[BLOCK + 2 * R];
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
    s[t + R] = i < n ? u[i] : 0.0f;
    if (t < R) {
        s[t] = i >= R ? u[i - R] : 0.0f;
        s[t + BLOCK + R] = i + BLOCK < n ? u[i + BLOCK] : 0.0f;
    }
    __syncthreads();
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 1; k <= R; k++) {
        float left = s[t + R - k], here = s[t + R], right = s[t + R + k];
        sum += (left + right - 2.0f * here) * here / k;
    }
    v[i] = s[t + R] + c * sum;
}
