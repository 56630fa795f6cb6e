"""Charged particles in a periodic box: their charge is deposited on a grid with atomic additions by a raw kernel, the field comes from the
spectrum, a second kernel gathers it and pushes the particles."""

import cupy as cp
import numpy as np

DEPOSIT = r"""
extern "C" __global__ void deposit(const double* x, const double* charge, double* rho, double h, int cells, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n) return;
    double place = x[p] / h;
    int left = (int)floor(place);
    double weight = place - left;
    left = ((left % cells) + cells) % cells;
    atomicAdd(&rho[left], charge[p] * (1.0 - weight) / h);
    atomicAdd(&rho[(left + 1) % cells], charge[p] * weight / h);
}"""
PUSH = r"""
extern "C" __global__ void push(double* x, double* v, const double* charge, const double* field, double h, double dt, int cells, int n) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n) return;
    double place = x[p] / h;
    int left = (int)floor(place);
    double weight = place - left;
    left = ((left % cells) + cells) % cells;
    double e = (1.0 - weight) * field[left] + weight * field[(left + 1) % cells];
    v[p] += dt * charge[p] * e;
    x[p] += dt * v[p];
}"""
deposit = cp.RawKernel(DEPOSIT, "deposit")
push = cp.RawModule(code=PUSH).get_function("push")


class Box:
    def __init__(self, length, cells):
        self.length, self.cells, self.h = length, cells, length / cells
        k = 2 * np.pi * np.fft.rfftfreq(cells, self.h)
        k[0] = 1.0
        inverse = -1j / k
        inverse[0] = 0.0
        self.inverse = cp.asarray(inverse)

    def density(self, x, charge):
        rho = cp.zeros(self.cells)
        n = x.size
        deposit(((n + 31) // 32,), (32,), (x, charge, rho, self.h, self.cells, n))
        return rho

    def field(self, rho):
        return cp.fft.irfft(cp.fft.rfft(rho) * self.inverse, n=self.cells)


def simulate(box, x, v, charge, dt, steps):
    x, v = cp.array(x), cp.array(v)
    n = x.size
    energy = cp.zeros(steps)
    for step in range(steps):
        rho = box.density(x, charge)
        rho -= cp.mean(rho)
        e = box.field(rho)
        energy[step] = 0.5 * box.h * cp.sum(e * e)
        push(((n + 31) // 32,), (32,), (x, v, charge, e, box.h, dt, box.cells, n))
    return x, v, energy


def loss(x, v, charge, box, dt, steps):
    moved, speed, energy = simulate(box, x, v, charge, dt, steps)
    spread = cp.mean(cp.square(moved - x)) + cp.sum(charge * cp.square(speed)) / charge.size
    return cp.log(energy[-1]) - cp.log(energy[0]) + 0.2 * spread


def arguments(rng):
    n = 20
    x = np.linspace(0, 4, n, endpoint=False) + 0.05 * np.sin(np.linspace(0, 6, n)) + 0.03
    return (cp.asarray(x), cp.asarray(rng.normal(0, 0.2, n)), cp.asarray(rng.uniform(0.8, 1.2, n)), Box(4.0, 8), 0.05, 4), (0, 1, 2)
