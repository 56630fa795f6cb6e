/*gpuad
title = "a polynomial by Horner's rule, in place, its coefficients walked by a pointer"
[[case]]
kernel = "horner"
sizes = {n = 200, degree = 6}
grid = ["(n + 63) // 64"]
block = [64]
[case.arguments]
x = {shape = ["n"], init = "uniform(-1.0, 1.0)", active = true}
coefficients = {shape = ["degree + 1"], init = "normal", active = true}
degree = {value = "degree"}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216, degree = 12}
bytes = "16 * n"
*/
extern "C" __global__ void horner(double* x, const double* coefficients, int degree, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double* p = coefficients;
    double value = *p++;
    while (p <= coefficients + degree) value = value * x[i] + *p++;
    x[i] = value;
}
