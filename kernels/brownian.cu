/*gpuad
title = "random numbers of curand's generators, whose states are memory like any other"
[[case]]
kernel = "paths"
title = "geometric Brownian motion, one path a thread; the states go on where they were"
sizes = {n = 70, steps = 6}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
price = {shape = ["n"], init = "uniform(0.5, 1.5)", active = true}
drift = {value = 0.05, active = true}
volatility = {value = 0.3, active = true}
dt = {value = 0.1}
states = {shape = ["n"], init = "integers(1, 2147483647)", members = {has_normal = "integers(0, 2)", has_normal_double = "zeros", normal = "normal", normal_double = "zeros"}}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {n = 1048576, steps = 64}
bytes = "104 * n"

[[case]]
kernel = "dropout"
title = "drops what a counter says, four numbers at a time"
sizes = {n = 203}
grid = ["(n + 127) // 128"]
block = [32]
[case.arguments]
x = {shape = ["n"], init = "normal", active = true}
keep = {value = 0.7}
seed = {value = 2026}
n = {value = "n"}
[case.benchmark]
sizes = {n = 67108864}
bytes = "8 * n"
*/
#include <curand_kernel.h>

extern "C" __global__ void paths(float* price, float drift, float volatility, float dt, curandState* states, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandState state = states[i];
    float s = price[i];
    for (int t = 0; t < steps; ++t) {
        float z = curand_normal(&state);
        s *= expf((drift - 0.5f * volatility * volatility) * dt + volatility * sqrtf(dt) * z);
    }
    price[i] = s;
    states[i] = state;
}

extern "C" __global__ void dropout(float* x, float keep, unsigned long long seed, int n) {
    int group = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, group, 0, &state);
    float4 u = curand_uniform4(&state);
    int i = 4 * group;
    if (i < n) x[i] = u.x <= keep ? x[i] / keep : 0.0f;
    if (i + 1 < n) x[i + 1] = u.y <= keep ? x[i + 1] / keep : 0.0f;
    if (i + 2 < n) x[i + 2] = u.z <= keep ? x[i + 2] / keep : 0.0f;
    if (i + 3 < n) x[i + 3] = u.w <= keep ? x[i + 3] / keep : 0.0f;
}
