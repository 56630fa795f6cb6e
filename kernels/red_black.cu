/*gpuad
title = "one colour of a red-black relaxation of Poisson's equation, in place"
[[case]]
kernel = "red_black"
sizes = {n = 22}
grid = ["(n + 15) // 16", "(n + 15) // 16"]
block = [16, 16]
[case.arguments]
u = {shape = ["n", "n"], init = "normal", active = true}
f = {shape = ["n", "n"], init = "normal", active = true}
relaxation = {value = 1.5, active = true}
colour = {value = 1}
n = {value = "n"}
[case.benchmark]
sizes = {n = 8192}
bytes = "12 * n * n"
*/
extern "C" __global__ void red_black(double* u, const double* f, double relaxation, int colour, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x > n - 2 || y > n - 2) return;
    if ((x + y) % 2 != colour) return;
    int i = y * n + x;
    double residual = 0.25 * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - f[i]) - u[i];
    u[i] += relaxation * residual;
}
