"""Poisson's equation by conjugate gradients: a raw kernel for the operator, BLAS for dots and updates, pinned memory for the residuals."""

import cupy as cp
import cupyx
import numpy as np

N, ROUNDS = 40, 60

laplace = cp.RawKernel(
    r"""
extern "C" __global__ void laplace(const double* u, double* v, int n) {
    __shared__ double tile[10][10];
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, s = threadIdx.x + 1, t = threadIdx.y + 1;
    bool inside = x < n && y < n;
    tile[t][s] = inside ? u[y * n + x] : 0;
    if (s == 1) tile[t][0] = x > 0 && y < n ? u[y * n + x - 1] : 0;
    if (s == 8) tile[t][9] = x < n - 1 && y < n ? u[y * n + x + 1] : 0;
    if (t == 1) tile[0][s] = y > 0 && x < n ? u[(y - 1) * n + x] : 0;
    if (t == 8) tile[9][s] = y < n - 1 && x < n ? u[(y + 1) * n + x] : 0;
    __syncthreads();
    if (inside) v[y * n + x] = 4 * tile[t][s] - tile[t][s - 1] - tile[t][s + 1] - tile[t - 1][s] - tile[t + 1][s];
}""",
    "laplace",
)


def right_side(xp):
    x = (xp.arange(N) + 1.0) / (N + 1)
    return xp.outer(xp.sin(np.pi * x), x * (1 - x)).ravel()


def solved(xp, operator):
    b = right_side(xp)
    u, r = xp.zeros_like(b), b.copy()
    p, history = r.copy(), []
    rho = r @ r
    for _ in range(ROUNDS):
        q = operator(p)
        alpha = rho / (p @ q)
        u += alpha * p
        r -= alpha * q
        new = r @ r
        p = r + new / rho * p
        rho = new
        history.append(new)
    return u, history


def on_device():
    def operator(p):
        q = cp.empty_like(p)
        laplace(((N + 7) // 8, (N + 7) // 8), (8, 8), (p, q, N))
        return q

    u, history = solved(cp, operator)
    pinned = cupyx.empty_pinned(ROUNDS)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    cp.stack(history).get(out=pinned)
    stream.synchronize()
    return cp.asnumpy(u), pinned.copy()


def on_host():
    def operator(p):
        v = np.pad(p.reshape(N, N), 1)
        return (4 * v[1:-1, 1:-1] - v[1:-1, :-2] - v[1:-1, 2:] - v[:-2, 1:-1] - v[2:, 1:-1]).ravel()

    u, history = solved(np, operator)
    return u, np.array(history)


if __name__ == "__main__":
    (u, history), (v, other) = on_device(), on_host()
    np.testing.assert_allclose(u, v, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(history[:12], other[:12], rtol=1e-6)
    print("they agree")
