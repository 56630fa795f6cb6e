/*gpuad
[[case]]
kernel = "sinkhorn_columns"
title = "sinkhorn"
sizes = {rows = 13, columns = 17}
grid = ["(columns + 127) // 128"]
block = [128]
[case.arguments]
cost = {shape = ["rows", "columns"], init = "zeros"}
log_mass = {shape = ["rows"], init = "zeros"}
there = {shape = ["columns"], init = "zeros"}
here = {shape = ["rows"], init = "zeros"}
dhere = {shape = ["rows"], init = "zeros"}
dthere = {shape = ["columns"], init = "zeros"}
rows = {value = "rows"}
columns = {value = "columns"}
epsilon = {value = 0.3}
[case.benchmark]
sizes = {rows = 1024, columns = 1024}

[[case]]
kernel = "sinkhorn_rows"
title = "sinkhorn"
sizes = {rows = 13, columns = 17}
grid = ["(rows + 127) // 128"]
block = [128]
[case.arguments]
cost = {shape = ["rows", "columns"], init = "zeros"}
log_mass = {shape = ["rows"], init = "zeros"}
there = {shape = ["columns"], init = "zeros"}
here = {shape = ["rows"], init = "zeros"}
dhere = {shape = ["rows"], init = "zeros"}
dcost = {shape = ["rows", "columns"], init = "zeros"}
dlog_mass = {shape = ["rows"], init = "zeros"}
rows = {value = "rows"}
columns = {value = "columns"}
epsilon = {value = 0.3}
[case.benchmark]
sizes = {rows = 1024, columns = 1024}
*/
// The plan follows from the new potential: rows give the gradient for costs and masses, columns gather that for the other side. What the
// old potential adds cancels out.
extern "C" __global__ void sinkhorn_rows(const float* cost, const float* log_mass, const float* there, const float* here, float* dhere,
                                         float* dcost, float* dlog_mass, int rows, int columns, float epsilon) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float own = here[i] / epsilon - log_mass[i], share = dhere[i];
    for (int j = 0; j < columns; ++j) {
        dcost[i * columns + j] += share * expf((there[j] - cost[i * columns + j]) / epsilon + own);
    }
    dlog_mass[i] += epsilon * share;
    dhere[i] = 0.0f;
}

extern "C" __global__ void sinkhorn_columns(const float* cost, const float* log_mass, const float* there, const float* here, const float* dhere,
                                            float* dthere, int rows, int columns, float epsilon) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    float sum = 0.0f;
    for (int i = 0; i < rows; ++i) {
        sum += dhere[i] * expf((there[j] - cost[i * columns + j]) / epsilon + here[i] / epsilon - log_mass[i]);
    }
    dthere[j] -= sum;
}
