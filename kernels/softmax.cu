/*gpuad
title = "softmax of each row in place, one row a thread"
[[case]]
kernel = "softmax"
sizes = {rows = 25, n = 17}
grid = ["(rows + 15) // 16"]
block = [16]
[case.arguments]
x = {shape = ["rows", "n"], init = "spread(-3.0, 3.0)", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 1048576, n = 64}
bytes = "8 * rows * n"
*/
extern "C" __global__ void softmax(float* x, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float* row = &x[r * n];
    float largest = row[0];
    for (int k = 1; k < n; k++) largest = fmaxf(largest, row[k]);
    float sum = 0.0f;
    for (int k = 0; k < n; k++) {
        row[k] = expf(row[k] - largest);
        sum += row[k];
    }
    for (int k = 0; k < n; k++) row[k] /= sum;
}
