/*gpuad
title = "gravity with float4: position and mass of a body in one vector"
[[case]]
kernel = "attract"
title = "all-pairs acceleration with operators on float3"
sizes = {n = 40}
grid = ["(n + 15) // 16"]
block = [16]
[case.arguments]
body = {shape = ["n", 4], init = "uniform(0.5, 1.5)", active = true}
acceleration = {shape = ["n", 4], init = "zeros", active = true}
softening = {value = 0.3}
n = {value = "n"}
[case.benchmark]
sizes = {n = 32768}
bytes = "32 * n"
flops = "21 * n * n"

[[case]]
kernel = "drift"
title = "kick and drift of whole vectors, in place"
sizes = {n = 70}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
body = {shape = ["n", 4], init = "normal", active = true}
velocity = {shape = ["n", 4], init = "normal", active = true}
acceleration = {shape = ["n", 4], init = "normal", active = true}
dt = {value = 0.01, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "80 * n"
*/
__device__ inline float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ inline float3 operator*(float s, float3 a) { return make_float3(s * a.x, s * a.y, s * a.z); }

__device__ float3 pull(float4 from, float4 to, float softening) {
    float3 r = {to.x - from.x, to.y - from.y, to.z - from.z};
    float r2 = r.x * r.x + r.y * r.y + r.z * r.z + softening * softening;
    float inverse = rsqrtf(r2);
    return (to.w * inverse * inverse * inverse) * r;
}

extern "C" __global__ void attract(const float4* __restrict__ body, float4* acceleration, float softening, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float4 self = body[i];
    float3 a = {0.0f, 0.0f, 0.0f};
    for (int j = 0; j < n; j++) a = a + pull(self, body[j], softening);
    acceleration[i] = make_float4(a.x, a.y, a.z, 0.0f);
}

extern "C" __global__ void drift(float4* body, float4* velocity, const float4* acceleration, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4& v = velocity[i];
    const float4 a = acceleration[i];
    v.x += dt * a.x;
    v.y += dt * a.y;
    v.z += dt * a.z;
    float4 p = body[i];
    p.x += dt * v.x;
    p.y += dt * v.y;
    p.z += dt * v.z;
    body[i] = p;
}
