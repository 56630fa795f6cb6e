"""Minimisation within bounds for the demonstrations.

L-BFGS with a backtracking line search (Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 3.1). Points are clipped to the
bounds; an entry that a step would push out of them stays where it is and takes no part in that step's direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Map: TypeAlias = "NDArray[np.float64]"
Objective: TypeAlias = "Callable[[Map], tuple[float, Map]]"


def lbfgs(objective: Objective, x: Map, low: float, high: float, first: float, memory: int = 10) -> Iterator[tuple[Map, float]]:
    """Points of ever lower value, with their values, the start first; ends when no step lowers the value. Points are clipped to
    [low, high]; `first` is the largest change of an entry in the first step."""
    pairs: list[tuple[Map, Map]] = []
    value, gradient = objective(x)
    yield x, value
    while True:
        free = np.where(_held(x, gradient, (low, high)), 0, gradient)
        direction = _two_loop(pairs, free) if pairs else free * (first / max(float(np.abs(free).max()), 1e-30))
        direction[_held(x, direction, (low, high))] = 0
        found = _backtrack(objective, x, value, gradient, direction, (low, high))
        if found is None and not pairs:
            return
        if found is None:  # curvature that no longer holds: begin again from the gradient
            pairs = []
            continue
        new, value, slope = found
        step, change = new - x, slope - gradient
        if np.vdot(step, change) > 0:
            pairs = [*pairs, (step, change)][-memory:]
        x, gradient = new, slope
        yield x, value


def _held(x: Map, direction: Map, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    """Where a step against `direction` would leave the bounds at once."""
    low, high = bounds
    return ((x <= low) & (direction > 0)) | ((x >= high) & (direction < 0))


def _two_loop(pairs: list[tuple[Map, Map]], gradient: Map) -> Map:
    """The gradient times the approximate inverse Hessian (Nocedal and Wright, algorithm 7.4)."""
    q, weights = gradient.copy(), []
    for step, change in reversed(pairs):
        weights.append(np.vdot(step, q) / np.vdot(change, step))
        q -= weights[-1] * change
    step, change = pairs[-1]
    q *= np.vdot(step, change) / np.vdot(change, change)
    for (step, change), weight in zip(pairs, reversed(weights), strict=True):
        q += step * (weight - np.vdot(change, q) / np.vdot(change, step))
    return q


def _backtrack(
    objective: Objective, x: Map, value: float, gradient: Map, direction: Map, bounds: tuple[float, float]
) -> tuple[Map, float, Map] | None:
    """The first of the steps 1, 1/2, 1/4 ... along the direction that lowers the value enough (Armijo), or None."""
    for length in 0.5 ** np.arange(10):
        new = np.clip(x - length * direction, *bounds)
        lower, slope = objective(new)
        if lower <= value + 1e-4 * float(np.vdot(gradient, new - x)):
            return new, lower, slope
    return None


def on_host(array: Any) -> Map:
    """A NumPy or CuPy array as the optimiser wants it: in the host's memory, double precision."""
    return np.asarray(array.get() if hasattr(array, "get") else array, np.float64)
