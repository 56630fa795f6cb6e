"""Electromagnetic waves in two dimensions on a staggered grid, with a source and absorbing edges; kernels overwrite the fields."""

import cupy as cp
import numpy as np

NX, NY, STEPS = 96, 80, 120

MODULE = cp.RawModule(
    code=r"""
extern "C" __global__ void magnetic(double* hx, double* hy, const double* ez, double c, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    int i = y * nx + x;
    if (y < ny - 1) hx[i] -= c * (ez[i + nx] - ez[i]);
    if (x < nx - 1) hy[i] += c * (ez[i + 1] - ez[i]);
}

extern "C" __global__ void electric(double* ez, const double* hx, const double* hy, const double* eps, const double* loss,
                                    double c, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= nx - 1 || y >= ny - 1) return;
    int i = y * nx + x;
    ez[i] = loss[i] * (ez[i] + c / eps[i] * (hy[i] - hy[i - 1] - hx[i] + hx[i - nx]));
}

extern "C" __global__ void source(double* ez, const double* pulse, int at, int it) { ez[at] += pulse[it]; }
"""
)


def medium(xp):
    y, x = xp.meshgrid(xp.arange(NY), xp.arange(NX), indexing="ij")
    eps = xp.where((x - 60) ** 2 + (y - 40) ** 2 < 144, 4.0, 1.0)
    edge = xp.minimum(xp.minimum(x, NX - 1 - x), xp.minimum(y, NY - 1 - y))
    loss = xp.where(edge < 8, 1 - 0.02 * (8 - edge) ** 2 / 8, 1.0)
    return eps.astype("f8"), loss.astype("f8")


def pulse():
    t = np.arange(STEPS)
    return (1 - 2 * ((t - 30) / 8.0) ** 2) * np.exp(-(((t - 30) / 8.0) ** 2))


def on_device():
    eps, loss = medium(cp)
    ez, hx, hy = (cp.zeros((NY, NX)) for _ in range(3))
    wave = cp.asarray(pulse())
    magnetic, electric, source = (MODULE.get_function(name) for name in ("magnetic", "electric", "source"))
    grid, block = ((NX + 15) // 16, (NY + 7) // 8), (16, 8)
    trace = cp.empty(STEPS)
    for it in range(STEPS):
        magnetic(grid, block, (hx, hy, ez, 0.5, NX, NY))
        electric(grid, block, (ez, hx, hy, eps, loss, 0.5, NX, NY))
        source((1,), (1,), (ez, wave, 40 * NX + 24, it))
        trace[it] = ez[40, 80]
    return cp.asnumpy(ez), cp.asnumpy(trace), float(cp.linalg.norm(hx))


def on_host():
    eps, loss = medium(np)
    ez, hx, hy = (np.zeros((NY, NX)) for _ in range(3))
    trace, wave = np.empty(STEPS), pulse()
    for it in range(STEPS):
        hx[:-1] -= 0.5 * (ez[1:] - ez[:-1])
        hy[:, :-1] += 0.5 * (ez[:, 1:] - ez[:, :-1])
        curl = hy[1:-1, 1:-1] - hy[1:-1, :-2] - hx[1:-1, 1:-1] + hx[:-2, 1:-1]
        ez[1:-1, 1:-1] = loss[1:-1, 1:-1] * (ez[1:-1, 1:-1] + 0.5 / eps[1:-1, 1:-1] * curl)
        ez[40, 24] += wave[it]
        trace[it] = ez[40, 80]
    return ez, trace, np.linalg.norm(hx)


if __name__ == "__main__":
    for mine, theirs in zip(on_device(), on_host(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    print("they agree")
