"""Vectors over a launch's memory, and what differences say of something that depends on them.

A slope is a central difference, extrapolated from the steps h and h/2. Where the two disagree, or the slopes to both sides by an amount
that does not shrink with the step, there is a kink between (a knife edge): such an element has weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .launch_memory import LaunchMemory, Vector, scale_of
from .reports import Precision


def differences(
    state: LaunchMemory, precision: Precision, v: Vector, suffices: Callable[[Vector], bool] | None = None
) -> tuple[Vector, Vector, float]:
    """The derivative of the primal along `v`, its weights (0 at knife edges and where not finite), and the share of weights that are 0."""
    return slopes_of(lambda step: state.after(v, step) if step else state.after(), precision, suffices)


def slopes_of(
    run: Callable[[float], Vector], precision: Precision, suffices: Callable[[Vector], bool] | None = None
) -> tuple[Vector, Vector, float]:
    """The same for anything that depends on a step: `run(0)` is the middle. Where central differences of h/2 alone are such that this
    `suffices`, they are what is returned, all with weight 1."""
    h = precision.step
    middle = run(0.0)
    near = run(h / 2), run(-h / 2)
    if suffices is not None:
        plain = {key: _slopes(near[0][key], centre, near[1][key], h / 2)[0] for key, centre in middle.items()}
        if suffices(plain):
            return plain, {key: np.ones_like(slope) for key, slope in plain.items()}, 0.0
    runs = [(run(h), run(-h)), near]
    found, weights = {}, {}
    for key, centre in middle.items():
        with np.errstate(invalid="ignore", over="ignore"):
            (wide, wide_bend), (narrow, bend) = (
                _slopes(plus[key], centre, minus[key], s) for (plus, minus), s in zip(runs, (h, h / 2), strict=True)
            )
            allowed = precision.kink * (np.abs(narrow) + scale_of(narrow)) + 16 * precision.unit * np.abs(centre) / h
            smooth = (np.abs(narrow - wide) <= allowed) & ((bend <= allowed) | (bend <= 0.75 * wide_bend))
            found[key] = np.where(smooth, narrow + (narrow - wide) / 3, 0)
        weights[key] = smooth.astype(np.float64)
    out = sum(int((weight == 0).sum()) for weight in weights.values())
    return found, weights, out / max(sum(weight.size for weight in weights.values()), 1)


def _slopes(plus: Any, centre: Any, minus: Any, step: float) -> tuple[Any, Any]:
    """The central difference, and by how much the two one-sided ones differ: proportional to `step` if smooth, constant at a kink."""
    return (plus - minus) / (2 * step), np.abs(plus - 2 * centre + minus) / step


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(float(np.vdot(a[key], b[key])) for key in a.keys() & b.keys())


def norm(a: Vector) -> float:
    return math.sqrt(dot(a, a))


def relative(difference: float, *scales: float) -> float:
    scale = max(scales)
    return abs(difference) / scale if scale else (0.0 if difference == 0 else math.inf)


def without_scalars(w: Vector) -> Vector:
    """Numbers passed by value are no part of the state after the launch."""
    return {key: values for key, values in w.items() if key >= 0}
