/*gpuad
title = "tridiagonal systems by Thomas' algorithm, one system a thread, the right-hand side becomes the solution"
[[case]]
kernel = "tridiagonal"
sizes = {systems = 20, n = 13}
grid = ["(systems + 15) // 16"]
block = [16]
[case.arguments]
lower = {shape = ["n", "systems"], init = "uniform(-1.0, 1.0)", active = true}
diagonal = {shape = ["n", "systems"], init = "uniform(3.0, 4.0)", active = true}
upper = {shape = ["n", "systems"], init = "uniform(-1.0, 1.0)", active = true}
x = {shape = ["n", "systems"], init = "normal", active = true}
scratch = {shape = ["n", "systems"], init = "zeros", active = true}
n = {value = "n"}
systems = {value = "systems"}
[case.benchmark]
sizes = {systems = 262144, n = 128}
bytes = "64 * n * systems"
*/
extern "C" __global__ void tridiagonal(const double* lower, const double* diagonal, const double* upper, double* x, double* scratch, int n,
                                       int systems) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= systems) return;
    scratch[s] = upper[s] / diagonal[s];
    x[s] = x[s] / diagonal[s];
    for (int i = 1; i < n; ++i) {
        int at = i * systems + s, before = at - systems;
        double pivot = 1.0 / (diagonal[at] - lower[at] * scratch[before]);
        scratch[at] = upper[at] * pivot;
        x[at] = (x[at] - lower[at] * x[before]) * pivot;
    }
    for (int i = n - 2; i >= 0; --i) {
        x[i * systems + s] -= scratch[i * systems + s] * x[(i + 1) * systems + s];
    }
}
