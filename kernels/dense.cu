/*gpuad
title = "a dense layer: product, bias and GELU in one kernel, one entry a thread"
[[case]]
kernel = "dense"
sizes = {batch = 13, inputs = 10, outputs = 18}
grid = ["(outputs + 15) // 16", "(batch + 3) // 4"]
block = [16, 4]
[case.arguments]
x = {shape = ["batch", "inputs"], init = "normal", active = true}
weights = {shape = ["inputs", "outputs"], init = "normal", active = true}
bias = {shape = ["outputs"], init = "normal", active = true}
y = {shape = ["batch", "outputs"], init = "zeros", active = true}
batch = {value = "batch"}
inputs = {value = "inputs"}
outputs = {value = "outputs"}
[case.benchmark]
sizes = {batch = 4096, inputs = 1024, outputs = 1024}
bytes = "4 * (batch * inputs + inputs * outputs + outputs + batch * outputs)"
flops = "2 * batch * inputs * outputs"
*/
extern "C" __global__ void dense(const float* x, const float* weights, const float* bias, float* y, int batch, int inputs, int outputs) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int sample = blockIdx.y * blockDim.y + threadIdx.y;
    if (unit >= outputs || sample >= batch) return;
    float sum = bias[unit];
    for (int i = 0; i < inputs; ++i) sum += x[sample * inputs + i] * weights[i * outputs + unit];
    y[sample * outputs + unit] = 0.5f * sum * (1.0f + erff(sum * 0.70710678f));
}
