/*gpuad
title = "a particle-in-cell step: an array of structs, in which integers lie beside floats"
[[case]]
kernel = "push"
title = "Boris push in a given field, periodic cells"
sizes = {particles = 60, cells = 8}
grid = ["(particles + 31) // 32"]
block = [32]
[case.arguments]
particle = {shape = ["particles"], init = "uniform(0.1, 0.9)", members = {cell = "integers(0, cells)", velocity = "normal"}, active = true}
electric = {shape = ["cells + 1"], init = "normal", active = true}
magnetic = {value = 0.4, active = true}
dt = {value = 0.1, active = true}
particles = {value = "particles"}
cells = {value = "cells"}
[case.benchmark]
sizes = {particles = 4194304, cells = 65536}
bytes = "48 * particles"

[[case]]
kernel = "deposit"
title = "charge density by linear weighting"
sizes = {particles = 60, cells = 8}
grid = ["(particles + 31) // 32"]
block = [32]
[case.arguments]
particle = {shape = ["particles"], init = "uniform(0.1, 0.9)", members = {cell = "integers(0, cells)"}, active = true}
density = {shape = ["cells + 1"], init = "zeros", active = true}
particles = {value = "particles"}
[case.benchmark]
sizes = {particles = 4194304, cells = 65536}
bytes = "24 * particles + 8 * cells"
*/
struct Particle {
    float offset;
    float2 velocity;
    float weight;
    int cell;

    __device__ float interpolated(const float* field) const { return (1.0f - offset) * field[cell] + offset * field[cell + 1]; }
    __device__ void move(float dt, int cells) {
        offset += dt * velocity.x;
        const float crossed = floorf(offset);
        offset -= crossed;
        cell = ((cell + (int)crossed) % cells + cells) % cells;
    }
};

extern "C" __global__ void push(Particle* particle, const float* electric, float magnetic, float dt, int particles, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= particles) return;
    Particle p = particle[i];
    const float kick = 0.5f * dt * p.interpolated(electric);
    const float t = 0.5f * dt * magnetic, s = 2.0f * t / (1.0f + t * t);
    float2 v = {p.velocity.x + kick, p.velocity.y};
    const float2 turned = {v.x + t * v.y, v.y - t * v.x};
    v.x += s * turned.y;
    v.y -= s * turned.x;
    v.x += kick;
    p.velocity = v;
    p.move(dt, cells);
    particle[i] = p;
}

extern "C" __global__ void deposit(const Particle* particle, float* density, int particles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= particles) return;
    const Particle& p = particle[i];
    atomicAdd(&density[p.cell], (1.0f - p.offset) * p.weight);
    atomicAdd(&density[p.cell + 1], p.offset * p.weight);
}
