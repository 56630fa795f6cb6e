"""`check_gradient`: the gradient of one launch against the launch itself, along random directions.

In: a launch. Out: a `Report` of comparisons, with forward mode and with differences of the primal alone. What is compared stands in
`gpuad.testing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ir.dtypes import is_real
from ..public_calls import flag, positive, public, whole
from ..runtime.array_types import Extents
from .allocations import failing_allocations as failing_allocations
from .budgets import assert_memory as assert_memory
from .launch_memory import LaunchMemory, Vector, launched, scale_of
from .reports import Check, Precision, Report
from .rule_check import check_rule as check_rule
from .second_check import second_checks
from .slopes import differences, dot, norm, relative, without_scalars


@public
def check_gradient(
    f: Any,
    args: Sequence[Any],
    *,
    grid: Extents | None = None,
    block: Extents | None = None,
    shared_mem: int = 0,
    tolerance: float | None = None,
    directions: int = 3,
    seed: int = 0,
    race_check: bool = True,
    forward_check: bool = True,
    differences: bool = True,
    second_check: bool = True,
    **call: Any,
) -> Report:
    """Checks the gradient of one launch; arrays are as before when it returns.

    `f`: a Kernel with `grid` and `block`, a launch `kernel[grid, block]`, a tuple (kernel, grid, block), or an elementwise or reduction
    kernel (`call`: keywords of its call, `size` or `axis`). `args`: the arguments of the launch, outputs included; if none is annotated,
    every array of floats and every float, vector or struct by value is active; else those that are Duplicated or Active (their shadows are
    not touched). `tolerance`: relative, of the dot product (default 1e-12 for float64, 1e-5 for float32). `directions`: random directions
    tried, `seed` of them. `shared_mem`: bytes of dynamic shared memory. `race_check`: the primal is also run by the reference executor,
    which finds data races and indices out of bounds; that is slow, so use small inputs. `forward_check`, `differences`: reverse mode is
    compared with forward mode, and with differences of the primal; a check may leave one of them out. `second_check`: once the gradient
    agrees, `gpuad.hvp` is compared with differences of it, along one more direction; a note says where hvp refuses the launch. Returns a
    Report; raises AssertionError(str(report)) if something disagrees, and GpuadError where the launch itself is refused or has a race.
    """
    for what, given in (("race_check", race_check), ("forward_check", forward_check), ("differences", differences)):
        flag(what, given)
    whole("directions", directions, 1)
    whole("seed", seed)
    if tolerance is not None:
        positive("tolerance", tolerance)
    state = LaunchMemory(*launched(f, args, grid, block, shared_mem, call))
    with state.kept():
        precision = state.precision()
        if tolerance is not None:
            precision = replace(precision, dot=tolerance, taylor=max(tolerance, precision.taylor))
        notes = list(state.remarks())
        if race_check:
            state.check_races()
        rng = np.random.default_rng(seed)
        wanted = forward_check, differences
        checks = [c for number in range(1, directions + 1) for c in _direction(state, precision, rng, number, notes, wanted)]
        if second_check and all(check.passed for check in checks):
            checks += second_checks(state, precision, rng, notes)
    report = Report(state.launch.name, tuple(checks), tuple(notes))
    if not report.passed:
        raise AssertionError(str(report))
    return report


# --- one direction -------------------------------------------------------------------------------------------------------------------


def _direction(
    state: LaunchMemory, precision: Precision, rng: np.random.Generator, number: int, notes: list[str], wanted: tuple[bool, bool]
) -> Iterator[Check]:
    """The comparisons along one random direction `v`: with forward mode, with differences."""
    state.restore()
    v = state.random(rng, scaled=True)
    w = state.random(rng, scaled=False)
    if wanted[0]:
        yield from _forward_checks(state, precision, (v, w), number, notes)
    if wanted[1]:
        yield from _taylor(state, precision, (v, w), number, notes)


def _forward_checks(
    state: LaunchMemory, precision: Precision, vectors: tuple[Vector, Vector], number: int, notes: list[str]
) -> Iterator[Check]:
    v, w = vectors
    gradient = state.reverse(without_scalars(w))
    left = state.memory()
    yield from _dot_products(state, precision, (v, w, gradient), number, notes)
    state.after()
    yield Check(f"primal {number}", _largest(left, state.memory()), state.rounding(precision))


def _taylor(state: LaunchMemory, precision: Precision, vectors: tuple[Vector, Vector], number: int, notes: list[str]) -> Iterator[Check]:
    v, w = vectors
    slopes, weights, left_out = differences(state, precision, v)
    weights = {key: weight * (w[key] + slopes[key] * (norm(w) / (norm(slopes) or 1))) for key, weight in weights.items()}
    if left_out > 0:
        why = "a knife edge lies near, or they are not finite"
        notes.append(f"direction {number}: {left_out:.2%} of the elements were left out of the Taylor test: {why}")
    if left_out > 0.5:
        raise AssertionError(f"gradient of `{state.launch.name}`: more than half of the results lie on knife edges; choose other inputs")
    slope = dot(v, state.reverse(weights))
    error = relative(dot(slopes, weights) - slope, norm(slopes) * norm(weights), abs(slope))
    yield Check(f"Taylor {number}", error, precision.taylor)


def _dot_products(
    state: LaunchMemory, precision: Precision, vectors: tuple[Vector, Vector, Vector], number: int, notes: list[str]
) -> Iterator[Check]:
    v, w, gradient = vectors
    try:
        tangent = state.forward(v)
    except UnsupportedError as error:
        notes.append(f"direction {number}: no dot product, since forward mode refuses this kernel: {error.message}")
        return
    left, right = dot(tangent, without_scalars(w)), dot(v, gradient)
    yield Check(f"dot product {number}", relative(left - right, norm(tangent) * norm(w), norm(v) * norm(gradient)), precision.dot)
    second = state.reverse(gradient)
    left, right = (
        dot(tangent, without_scalars(gradient)),
        dot(v, second) - sum(float(np.vdot(v[k], gradient[k])) for k in gradient if k < 0),
    )
    gap = relative(left - right, norm(tangent) * norm(gradient), norm(v) * norm(second))
    yield Check(f"twice without clearing {number}", gap, precision.dot)


def _largest(a: dict[int, Any], b: dict[int, Any]) -> float:
    """The largest difference of two states, relative to the size of their entries; NaNs in the same places are equal."""
    worst = 0.0
    for key, one in a.items():
        other = b[key]
        same = (one == other) | ((one != one) & (other != other))
        if same.all():
            continue
        one, other = one[~same], other[~same]
        scale = scale_of(b[key]) if is_real(b[key].dtype) else 0.0
        worst = max(worst, float(np.max(np.abs(one - other))) / scale if scale else math.inf)
    return worst
