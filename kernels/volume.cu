/*gpuad
title = "volume rendering: each thread marches a ray through fog that glows, front to back, until it is opaque"
[[case]]
kernel = "render"
sizes = {n = 8, width = 7, height = 6, colours = 4}
grid = ["(width + 15) // 16", "(height + 3) // 4"]
block = [16, 4]
[case.arguments]
density = {shape = ["n", "n", "n"], init = "uniform(0.1, 0.9)", active = true}
palette = {shape = ["colours", 4], init = "positive", active = true}
image = {shape = ["height", "width", 4], init = "normal", active = true}
n = {value = "n"}
colours = {value = "colours"}
width = {value = "width"}
height = {value = "height"}
tilt = {value = 0.3}
step = {value = 0.6}
[case.benchmark]
sizes = {n = 192, width = 512, height = 512, colours = 16}
bytes = "4 * n * n * n + 16 * width * height"
*/
__device__ float sampled(const float* density, int n, float3 p) {
    p.x = fminf(fmaxf(p.x, 0.0f), n - 1.001f);
    p.y = fminf(fmaxf(p.y, 0.0f), n - 1.001f);
    p.z = fminf(fmaxf(p.z, 0.0f), n - 1.001f);
    int3 c = make_int3((int)p.x, (int)p.y, (int)p.z);
    float3 f = make_float3(p.x - c.x, p.y - c.y, p.z - c.z);
    const float* corner = density + (c.z * n + c.y) * n + c.x;
    float sum = 0.0f;
    for (int k = 0; k < 8; k++) {
        int dx = k & 1, dy = k >> 1 & 1, dz = k >> 2;
        float weight = (dx ? f.x : 1.0f - f.x) * (dy ? f.y : 1.0f - f.y) * (dz ? f.z : 1.0f - f.z);
        sum += weight * corner[(dz * n + dy) * n + dx];
    }
    return sum;
}

__device__ float3 coloured(const float4* palette, int colours, float density) {
    float place = fminf(density, 0.999f) * (colours - 1);
    int k = (int)place;
    float f = place - k;
    float4 a = palette[k], b = palette[k + 1];
    return make_float3(a.x + f * (b.x - a.x), a.y + f * (b.y - a.y), a.z + f * (b.z - a.z));
}

extern "C" __global__ void render(const float* density, const float4* palette, float4* image, int n, int colours, int width, int height,
                                  float tilt, float step) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    float3 p = make_float3((px + 0.5f) * n / width, (py + 0.5f) * n / height, 0.0f);
    float4 pixel = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float clear = 1.0f;
    while (p.z < n - 1) {
        float fog = sampled(density, n, p);
        float opacity = 1.0f - expf(-fog * step);
        float3 light = coloured(palette, colours, fog);
        pixel.x += clear * opacity * light.x;
        pixel.y += clear * opacity * light.y;
        pixel.z += clear * opacity * light.z;
        clear *= 1.0f - opacity;
        if (clear < 0.05f) break;
        p.x += tilt * step;
        p.z += step;
    }
    pixel.w = 1.0f - clear;
    image[py * width + px] = pixel;
}
