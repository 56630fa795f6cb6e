"""A mixture of Gaussians by expectation and maximisation: batched Cholesky factors, solves, determinants, `logsumexp`, `cupyx.jit`."""

import cupy as cp
import numpy as np
from cupyx import jit

POINTS, DIMENSIONS, PARTS, ROUNDS = 600, 2, 3, 10


@jit.rawkernel()
def responsibilities(logs, weights, n, parts):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < n:
        top = logs[i, 0]
        for k in range(1, parts):
            top = max(top, logs[i, k])
        total = 0.0
        for k in range(parts):
            total += cp.exp(logs[i, k] - top)
        for k in range(parts):
            weights[i, k] = cp.exp(logs[i, k] - top) / total


def data():
    r = np.random.default_rng(5)
    middle = np.array([[-3.0, 0.0], [2.0, 2.0], [1.0, -3.0]])
    return middle[r.integers(0, PARTS, POINTS)] + r.normal(0, 1, (POINTS, DIMENSIONS)) * [1.0, 0.5]


def on_device_weights(logs):
    weights = cp.empty_like(logs)
    responsibilities(((POINTS + 63) // 64,), (64,), (logs, weights, np.int32(POINTS), np.int32(PARTS)))
    return weights


def on_host_weights(logs):
    e = np.exp(logs - logs.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def fitted(xp, points, weights_of):
    points = xp.asarray(points)
    means = points[:: POINTS // PARTS][:PARTS].copy()
    spreads = xp.stack([xp.eye(DIMENSIONS)] * PARTS)
    shares = xp.full(PARTS, 1.0 / PARTS)
    for _ in range(ROUNDS):
        logs = xp.empty((POINTS, PARTS))
        for k in range(PARTS):
            factor = xp.linalg.cholesky(spreads[k])
            scaled = xp.linalg.solve(factor, (points - means[k]).T)
            logs[:, k] = xp.log(shares[k]) - 0.5 * (scaled**2).sum(0) - xp.log(xp.diag(factor)).sum()
        weights = weights_of(logs)
        mass = weights.sum(0)
        means = (weights.T @ points) / mass[:, None]
        shares = mass / POINTS
        apart = points[None] - means[:, None]
        spreads = xp.einsum("nk,kni,knj->kij", weights, apart, apart) / mass[:, None, None] + 1e-6 * xp.eye(DIMENSIONS)
    return means, spreads, shares, xp.linalg.det(spreads)


if __name__ == "__main__":
    points = data()
    for mine, theirs in zip(fitted(cp, points, on_device_weights), fitted(np, points, on_host_weights), strict=True):
        np.testing.assert_allclose(cp.asnumpy(mine), theirs, rtol=1e-7, atol=1e-9)
    print("they agree")
