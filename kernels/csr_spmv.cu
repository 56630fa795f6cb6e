/*gpuad
title = "sparse matrix (CSR) times vector, one row a thread"
[[case]]
kernel = "csr_spmv"
sizes = {rows = 60, columns = 50, entries = 400}
grid = ["(rows + 31) // 32"]
block = [32]
[case.arguments]
row = {shape = ["rows + 1"], init = "rows(entries)"}
column = {shape = ["entries"], init = "integers(0, columns)"}
value = {shape = ["entries"], init = "normal", active = true}
x = {shape = ["columns"], init = "normal", active = true}
y = {shape = ["rows"], init = "normal", active = true}
rows = {value = "rows"}
[case.benchmark]
sizes = {rows = 4194304, columns = 4194304, entries = 67108864}
bytes = "8 * entries + 8 * rows + 4 * columns"
flops = "2 * entries"
*/
extern "C" __global__ void csr_spmv(const int* row, const int* column, const float* value, const float* x, float* y, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        float sum = 0.0f;
        for (int k = row[i]; k < row[i + 1]; k++) {
            sum += value[k] * x[column[k]];
        }
        y[i] = sum;
    }
}
