/*gpuad
title = "Fisher-KPP, one nonlinear step: diffusion and logistic growth, u to v; the border of v is left as it was"
[[case]]
kernel = "fisher_kpp"
sizes = {n = 33}
grid = ["(n + 31) // 32", "(n + 7) // 8"]
block = [32, 8]
[case.arguments]
v = {shape = ["n", "n"], init = "uniform", active = true}
u = {shape = ["n", "n"], init = "uniform", active = true}
diffusion = {value = 0.2, active = true}
growth = {value = 0.1, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 8192}
bytes = "8 * n * n"
*/
extern "C" __global__ void fisher_kpp(float* v, const float* u, float diffusion, float growth, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i == 0 || j == 0 || i >= n - 1 || j >= n - 1) return;
    const float* c = u + i * n + j;
    float laplace = c[-n] + c[n] + c[-1] + c[1] - 4 * c[0];
    v[i * n + j] = *c + diffusion * laplace + growth * *c * (1 - *c);
}
