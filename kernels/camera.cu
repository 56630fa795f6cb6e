/*gpuad
title = "pinhole camera with radial distortion: where points in space fall on the film; camera and light are structs and vectors by value"
[[case]]
kernel = "project"
sizes = {n = 70}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
points = {shape = ["n", 3], init = "normal(0, 0.5)", active = true}
camera = {value = "normal(0, 0.2)", members = {focal = 1.2, at = 3.0, flipped = 1}, active = true}
light = {value = "positive", active = true}
pixels = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "28 * n"
*/
struct Camera {
    float focal[2], centre[2];
    float bend[2];    // radial distortion: factors of r^2 and r^4
    float turn[3];    // rotation vector
    float at[3];
    int flipped;
};

struct Pixel {
    float x, y, brightness;
    int seen;
};

__device__ float3 cross(float3 a, float3 b) {
    return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

__device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

// Rodrigues' formula
__device__ float3 turned(float3 p, float3 by) {
    float angle = sqrtf(dot(by, by)) + 1e-6f;
    float3 axis = make_float3(by.x / angle, by.y / angle, by.z / angle);
    float c = cosf(angle), s = sinf(angle), along = dot(axis, p) * (1.0f - c);
    float3 aside = cross(axis, p);
    return make_float3(c * p.x + s * aside.x + along * axis.x, c * p.y + s * aside.y + along * axis.y, c * p.z + s * aside.z + along * axis.z);
}

extern "C" __global__ void project(const float3* points, Camera camera, float3 light, Pixel* pixels, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 p = turned(points[i], make_float3(camera.turn[0], camera.turn[1], camera.turn[2]));
    p = make_float3(p.x + camera.at[0], p.y + camera.at[1], p.z + camera.at[2]);
    float u = p.x / p.z, v = p.y / p.z, r2 = u * u + v * v;
    float stretch = 1.0f + r2 * (camera.bend[0] + r2 * camera.bend[1]);
    pixels[i].x = camera.centre[0] + camera.focal[0] * stretch * u;
    pixels[i].y = camera.centre[1] + (camera.flipped ? -camera.focal[1] : camera.focal[1]) * stretch * v;
    float3 way = make_float3(light.x - p.x, light.y - p.y, light.z - p.z);
    pixels[i].brightness = 1.0f / (1.0f + dot(way, way));
    pixels[i].seen = p.z > 0.0f;
}
