/*gpuad
title = "recurrences along rows, in place, one row a thread"
[[case]]
kernel = "iir"
title = "second-order recursive filter"
sizes = {rows = 12, n = 40}
grid = ["(rows + 7) // 8"]
block = [8]
[case.arguments]
x = {shape = ["rows", "n"], init = "normal", active = true}
a1 = {value = 0.6, active = true}
a2 = {value = -0.3, active = true}
b0 = {value = 0.9, active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 65536, n = 512}
bytes = "16 * rows * n"

[[case]]
kernel = "cumulative_product"
title = "running product, each value over the one that it replaces"
sizes = {rows = 12, n = 30}
grid = ["(rows + 7) // 8"]
block = [8]
[case.arguments]
x = {shape = ["rows", "n"], init = "positive", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 65536, n = 64}
bytes = "16 * rows * n"

[[case]]
kernel = "logistic_map"
title = "the recurrence reads back what it stored"
sizes = {rows = 12, n = 8}
grid = ["(rows + 7) // 8"]
block = [8]
[case.arguments]
x = {shape = ["rows", "n"], init = "uniform(0.1, 0.9)", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 1048576, n = 64}
bytes = "16 * rows * n"
*/
extern "C" __global__ void iir(double* x, double a1, double a2, double b0, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double* line = x + r * n;
    double y1 = 0.0, y2 = 0.0;
    for (int t = 0; t < n; ++t) {
        double y = b0 * line[t] + a1 * y1 + a2 * y2;
        line[t] = y;
        y2 = y1;
        y1 = y;
    }
}

extern "C" __global__ void cumulative_product(double* x, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double product = 1.0;
    for (int t = 0; t < n; ++t) {
        product *= x[r * n + t];
        x[r * n + t] = product;
    }
}

extern "C" __global__ void logistic_map(double* x, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    for (int t = 1; t < n; ++t) {
        double before = x[r * n + t - 1];
        x[r * n + t] = 0.1 * x[r * n + t] + 3.2 * before * (1.0 - before) * 0.9;
    }
}
