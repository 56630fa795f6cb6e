/*gpuad
title = "earth mover's distance, regularised: one side of a step of Sinkhorn's iteration, on potentials, in place"
[[case]]
kernel = "sinkhorn"
sizes = {rows = 13, columns = 17}
grid = ["(rows + 7) // 8"]
block = [8]
[case.arguments]
cost = {shape = ["rows", "columns"], init = "positive", active = true}
log_mass = {shape = ["rows"], init = "normal", active = true}
there = {shape = ["columns"], init = "uniform(-0.2, 0.2)", active = true}
here = {shape = ["rows"], init = "uniform(-0.2, 0.2)", active = true}
rows = {value = "rows"}
columns = {value = "columns"}
epsilon = {value = 0.3}
[case.benchmark]
sizes = {rows = 2048, columns = 2048}
bytes = "4 * rows * columns"
flops = "12 * rows * columns"
*/
extern "C" __global__ void sinkhorn(const float* cost, const float* log_mass, const float* there, float* here, int rows, int columns,
                                    float epsilon) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float own = here[i], sum = 0.0f;
    for (int j = 0; j < columns; ++j) sum += expf((own + there[j] - cost[i * columns + j]) / epsilon);
    here[i] = own + epsilon * (log_mass[i] - logf(sum));
}
