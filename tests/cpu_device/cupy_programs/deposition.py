"""Particles onto a grid and a field back onto particles: atomics, an FFT for the potential, a graph of one step that is launched again."""

import cupy as cp
import numpy as np

PARTICLES, CELLS, STEPS, DT = 2000, 64, 12, 0.05

MODULE = cp.RawModule(
    code=r"""
template <typename T>
__global__ void deposit(const T* x, T* density, int n, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int left = (int)x[i];
    T w = x[i] - left;
    atomicAdd(&density[left % cells], 1 - w);
    atomicAdd(&density[(left + 1) % cells], w);
}

template <typename T>
__global__ void push(T* x, T* v, const T* field, T dt, int n, int cells) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int left = (int)x[i];
    T w = x[i] - left;
    v[i] += dt * ((1 - w) * field[left % cells] + w * field[(left + 1) % cells]);
    T moved = x[i] + dt * v[i];
    moved = fmod(moved, (T)cells);
    x[i] = moved < 0 ? moved + cells : moved;
}
""",
    name_expressions=["deposit<double>", "push<double>"],
    options=("-std=c++17",),
)


def start():
    r = np.random.default_rng(3)
    x = (np.arange(PARTICLES) * CELLS / PARTICLES + 0.3 * np.sin(2 * np.pi * np.arange(PARTICLES) / PARTICLES)) % CELLS
    return x, r.normal(0, 0.01, PARTICLES)


def field_of(xp, density):
    wave = 2 * np.pi * xp.fft.rfftfreq(CELLS)
    charge = xp.fft.rfft(density - density.mean())
    wave[0] = 1.0
    return xp.fft.irfft(-1j * charge / wave, CELLS) * (CELLS / PARTICLES)


def on_device():
    x, v = map(cp.asarray, start())
    density, energies = cp.zeros(CELLS), []
    deposit, push = MODULE.get_function("deposit<double>"), MODULE.get_function("push<double>")
    grid, block = ((PARTICLES + 127) // 128,), (128,)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        density.fill(0)
        deposit(grid, block, (x, density, PARTICLES, CELLS))
        graph = stream.end_capture()
        for _ in range(STEPS):
            graph.launch()
            field = field_of(cp, density)
            push(grid, block, (x, v, field, DT, PARTICLES, CELLS))
            energies.append(float((field**2).sum()))
        moved = cp.asnumpy(x)
    return np.sort(moved), np.array(energies)


def on_host():
    x, v = start()
    energies = []
    for _ in range(STEPS):
        left = x.astype(int)
        w = x - left
        density = np.bincount(left % CELLS, 1 - w, CELLS) + np.bincount((left + 1) % CELLS, w, CELLS)
        field = field_of(np, density)
        v += DT * ((1 - w) * field[left % CELLS] + w * field[(left + 1) % CELLS])
        x = (x + DT * v) % CELLS
        energies.append((field**2).sum())
    return np.sort(x), np.array(energies)


if __name__ == "__main__":
    for mine, theirs in zip(on_device(), on_host(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    print("they agree")
