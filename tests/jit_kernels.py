"""Functions in the language of cupyx.jit, for the tests of that frontend."""

from __future__ import annotations

import math

import numpy as np

from gpuad import jit

COURANT = 0.3
DECAY = np.float64(0.9)
STENCIL = (1.0, -2.0, 1.0)


@jit.rawkernel()
def wave(p, u, c):
    i = jit.grid(1)
    n = u.size
    if i > 0 and i < n - 1:
        p[i] = 2 * u[i] - p[i] + c[i] * COURANT * (u[i - 1] - 2 * u[i] + u[i + 1])


@jit
def image(x, y):
    """Two axes, as a[i, j] and as a[i][j]."""
    i, j = jit.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[i, j] = x[i][j] * x[i, j] + np.sin(x[i, j])


@jit.rawkernel(device=True)
def square(x):
    return x * x


@jit.rawkernel(device=True)
def row_sum(a, i):
    s = a[i, 0] * 0
    for j in range(a.shape[1]):
        s += square(a[i, j])
    return s


@jit
def rows(a, out):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < len(a):
        out[i] = math.sqrt(row_sum(a, i))


@jit
def grid_stride(x, y, n):
    for i in range(jit.grid(1), n, jit.gridsize(1)):
        y[i] += DECAY * x[i] if x[i] > 1 else -(x[i] ** 2)


@jit
def scatter(v, at, y):
    i = jit.grid(1)
    if i >= v.size:
        return
    jit.atomic_add(y, at[i], v[i] * v[i])


@jit
def recurrence(x, steps, y):
    i = jit.grid(1)
    if i < x.shape[0]:
        s = x[i]
        k = 0
        while k < steps:
            if s > 1.1:
                s = s * np.float64(0.8)
            else:
                t = s * s
                s = t + 0.25 * x[i]
            k += 1
        y[i] = max(s, y[i]) + k % 2


@jit
def after_loop(x, y):
    """A loop's variable that is read after it, and values swapped."""
    i = jit.grid(1)
    a, b = x[i], x[i] * 2
    for k in range(3, 0, -1):  # noqa: B007
        a, b = b, a * b
    y[i] = a * k + b // 2


@jit
def in_place(x, a):
    i = jit.grid(1)
    if i < x.size:
        x[i] *= a
        x[i] /= 3 if i % 2 == 0 else 4
        x[i] -= abs(x[i])


@jit
def stencil(u, v):
    i = jit.grid(1)
    if i >= 1 and i < u.size - 1:
        s = v[i] * 0
        for k in range(3):
            s += u[i + k - 1] * float(k - 1)
        v[i] = s * STENCIL[1]


@jit
def strided(x, y):
    i, j = jit.grid(2)
    rows, columns = x.shape
    if i < rows and j < columns:
        y[j, i] = x[i, j] * x.strides[0] * x.ndim


@jit
def mirrored(x, y):
    """Each block's part of x backwards, through shared memory."""
    s = jit.shared_memory(np.float64, 8)
    t = jit.threadIdx.x
    i = jit.grid(1)
    s[t] = x[i] * x[i]
    jit.syncthreads()
    y[i] = s[jit.blockDim.x - 1 - t]


@jit
def block_sum(x, y):
    """A tree in dynamic shared memory."""
    s = jit.shared_memory(np.float64, None)
    t = jit.threadIdx.x
    i = jit.grid(1)
    s[t] = np.sin(x[i]) if i < x.size else 0.0
    jit.syncthreads()
    step = jit.blockDim.x // 2
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        jit.syncthreads()
        step //= 2
    if t == 0:
        jit.atomic_add(y, 0, s[0])


@jit
def counted(x, y):
    """A histogram in shared memory."""
    s = jit.shared_memory(np.float64, 4)
    t = jit.threadIdx.x
    if t < 4:
        s[t] = 0
    jit.syncthreads()
    jit.atomic_add(s, t % 4, x[t] * x[t])
    jit.syncthreads()
    if t < 4:
        y[t] = s[t]


@jit
def warp_sum(x, y):
    i = jit.grid(1)
    v = x[i] * x[i]
    for k in range(5):
        v += jit.shfl_down_sync(0xFFFFFFFF, v, 16 >> k)
    jit.syncwarp()
    if jit.laneid() == 0:
        y[i // 32] = v


@jit
def neighbours(x, y):
    i = jit.grid(1)
    a = jit.shfl_up_sync(0xFFFFFFFF, x[i], 1, width=16)
    b = jit.shfl_xor_sync(0xFFFFFFFF, x[i], 3)
    y[i] = a * b * jit.shfl_sync(0xFFFFFFFF, x[i], 5, width=8)


@jit
def nothing_there(x):
    if jit.grid(1) < x.size:
        x[0, 1] = missing  # noqa: F821
