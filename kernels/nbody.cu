/*gpuad
title = "gravity between all pairs of bodies, and the step that moves them"
[[case]]
kernel = "forces"
title = "all-pairs acceleration with softening"
sizes = {n = 70}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
position = {shape = ["n", 3], init = "normal", active = true}
mass = {shape = ["n"], init = "positive", active = true}
acceleration = {shape = ["n", 3], init = "zeros", active = true}
softening = {value = 0.3}
n = {value = "n"}
[case.benchmark]
sizes = {n = 32768}
bytes = "28 * n"
flops = "21 * n * n"

[[case]]
kernel = "move"
title = "kick and drift, in place"
sizes = {n = 70}
grid = ["(3 * n + 63) // 64"]
block = [64]
[case.arguments]
position = {shape = ["n", 3], init = "normal", active = true}
velocity = {shape = ["n", 3], init = "normal", active = true}
acceleration = {shape = ["n", 3], init = "normal", active = true}
dt = {value = 0.01, active = true}
count = {value = "3 * n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "60 * n"
*/
extern "C" __global__ void forces(const float* position, const float* mass, float* acceleration, float softening, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float xi = position[3 * i], yi = position[3 * i + 1], zi = position[3 * i + 2];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int j = 0; j < n; j++) {
        float dx = position[3 * j] - xi;
        float dy = position[3 * j + 1] - yi;
        float dz = position[3 * j + 2] - zi;
        float r2 = dx * dx + dy * dy + dz * dz + softening * softening;
        float inverse = rsqrtf(r2);
        float s = mass[j] * inverse * inverse * inverse;
        ax += dx * s;
        ay += dy * s;
        az += dz * s;
    }
    acceleration[3 * i] = ax;
    acceleration[3 * i + 1] = ay;
    acceleration[3 * i + 2] = az;
}

extern "C" __global__ void move(float* position, float* velocity, const float* acceleration, float dt, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    velocity[i] += dt * acceleration[i];
    position[i] += dt * velocity[i];
}
