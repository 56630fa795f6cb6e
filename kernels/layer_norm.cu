/*gpuad
title = "each row is given mean zero and variance one, then scale and shift, in place"
[[case]]
kernel = "layer_norm"
sizes = {rows = 18, n = 20}
grid = ["(rows + 15) // 16"]
block = [16]
[case.arguments]
x = {shape = ["rows", "n"], init = "normal", active = true}
scale = {shape = ["n"], init = "positive", active = true}
shift = {shape = ["n"], init = "normal", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 1048576, n = 64}
bytes = "8 * rows * n"
*/
extern "C" __global__ void layer_norm(float* x, const float* scale, const float* shift, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int k = 0; k < n; k++) mean += x[r * n + k];
    mean /= n;
    for (int k = 0; k < n; k++) {
        float d = x[r * n + k] - mean;
        variance += d * d;
    }
    float inverse = rsqrtf(variance / n + 1e-5f);
    for (int k = 0; k < n; k++) x[r * n + k] = (x[r * n + k] - mean) * inverse * scale[k] + shift[k];
}
