"""The non-uniform Fourier transform of type 1 by gridding with a Gaussian: strengths at points that are sought give measured modes."""

import numpy as np


class Plan:
    def __init__(self, modes, spread=6, ratio=2):
        self.modes, self.fine, self.spread = modes, ratio * modes, spread
        self.tau = np.pi * spread / (modes**2 * ratio * (ratio - 0.5))
        self.k = np.arange(-(modes // 2), (modes + 1) // 2)
        self.correction = np.sqrt(np.pi / self.tau) * np.exp(self.k**2 * self.tau)


def neighbours(plan, points):
    """Which cells of the fine grid each point is spread to, and how far these are."""
    h = 2 * np.pi / plan.fine
    nearest = np.floor(points / h).astype(np.int64)
    cells = nearest[:, None] + np.arange(-plan.spread, plan.spread + 1)
    distance = points[:, None] - cells * h
    return np.mod(cells, plan.fine), distance


def spread(plan, points, strengths):
    grid = np.zeros(plan.fine, dtype=complex)
    cells, distance = neighbours(plan, points)
    weights = np.exp(-(distance**2) / (4 * plan.tau))
    np.add.at(grid, cells, strengths[:, None] * weights)
    return grid


def forward(plan, points, strengths):
    spectrum = np.fft.fft(spread(plan, points, strengths)) / plan.fine
    return spectrum[plan.k] * plan.correction


def direct(modes, points, strengths):
    k = np.arange(-(modes // 2), (modes + 1) // 2)
    return np.exp(-1j * np.outer(k, points)) @ strengths


def loss(points, strengths, plan, measured, density):
    residual = forward(plan, points, strengths * np.sqrt(density)) - measured
    wrapped = np.angle(np.exp(1j * points))
    gaps = np.diff(np.sort(points))
    return np.vdot(residual, residual).real / plan.modes + 1e-2 * np.mean(np.cos(wrapped)) + 1e-3 * np.sum(1 / (gaps + 0.1))


def arguments(rng):
    plan = Plan(12)
    points = rng.uniform(0, 2 * np.pi, 9)
    strengths = rng.normal(size=9) + 1j * rng.normal(size=9)
    measured = direct(12, rng.uniform(0, 2 * np.pi, 9), strengths)
    return (points, strengths, plan, measured, rng.uniform(0.5, 1.5, 9)), (0, 1)
