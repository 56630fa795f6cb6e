"""Second derivatives of a launch against differences of its gradient, which other checks have compared with differences of the launch.

In: a launch's memory, directions `v` of it, seeds `w`, and directions `u` of the seeds. Along a step s the gradient `g(s)` starts from
`x + s v` with the seeds `w + s u`; `hvp` gives its derivative at 0, with the gradient and the tangent of what the launch leaves beside it.
An element where the gradient has a kink has weight 0, as in `gpuad.testing.slopes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import api
from ..arguments import layouts
from ..arguments.annotations import Duplicated
from ..arguments.arrays import address, leaf_memory, resolve
from ..errors import ShadowError, UnsupportedError
from .launch_memory import LaunchMemory, Vector, placed, plain
from .reports import Check, Precision
from .slopes import differences, dot, norm, relative, slopes_of, without_scalars

SECOND = TANGENT, GRADIENT, CHANGE = "tangent beside hvp", "gradient beside hvp", "second derivatives"  # what is compared, in this order
Suffices = Callable[[Vector], bool]
_SEEDED = 0.75  # of the seeds; where one is 0 its tangent is not, and counts
_MOST_EDGES = 0.5  # share of elements at kinks, of those with a gradient, from which on nothing is compared


@dataclass(frozen=True)
class Second:
    """What `hvp` gives: the `tangent` of what the launch leaves, the `gradient`, and its derivative (`change`)."""

    tangent: Vector
    gradient: Vector
    change: Vector


def second_checks(
    state: LaunchMemory, precision: Precision, rng: np.random.Generator, notes: list[str], *, alone: bool = False
) -> Iterator[Check]:
    """Compares `hvp` along one random direction with the launch and with differences of its gradient. Where `hvp` refuses the launch, a
    note says why. `alone`: the gradient is that of `hvp` too, compared with its tangent, so that no other kernel is derived; and a second
    step is tried only where differences of the smaller one do not agree."""
    state.restore()
    v, w, u = state.random(rng, scaled=True), *(without_scalars(state.random(rng, scaled=False)) for _ in range(2))
    w = {key: values * (rng.random(values.shape) < _SEEDED) for key, values in w.items()}
    try:
        second = along(state, v, w, u)
    except (UnsupportedError, ShadowError) as error:
        notes.append(f"no second derivatives, since hvp refuses this launch: {getattr(error, 'message', error)}")
        return

    def agrees(found: Vector, centre: Vector) -> Suffices | None:
        """True if differences of one step agree with all elements of what was found, so that no other step is tried."""
        ones = {key: np.ones_like(values) for key, values in found.items()}
        return (lambda slopes: _error(found, slopes, ones, centre) <= precision.taylor) if alone else None

    slopes, weights, _ = differences(state, precision, v, agrees(second.tangent, state.after()))
    yield Check(TANGENT, _error(second.tangent, slopes, weights, state.after()), precision.taylor)

    def gradient_at(step: float) -> Vector:
        seeds = {k: w[k] + step * u[k] for k in w}
        return along(state, v, seeds, u, step).gradient if alone else state.reverse(seeds, v, step)

    gradient = second.gradient if alone else gradient_at(0.0)
    yield Check(GRADIENT, _untransposed(second, v, w) if alone else _difference(gradient, second.gradient), precision.dot)
    slopes, weights, left_out = slopes_of(lambda step: gradient_at(step) if step else gradient, precision, agrees(second.change, gradient))
    if left_out > 0:
        why = "the gradient has a kink near, or is not finite"
        notes.append(f"{left_out:.2%} of the elements were left out of the second derivatives: {why}")
    if _left_out(weights, gradient) <= _MOST_EDGES:
        yield Check(CHANGE, _error(second.change, slopes, weights, gradient), precision.taylor)


def along(state: LaunchMemory, v: Vector, w: Vector, u: Vector, step: float = 0.0) -> Second:
    """Runs `hvp`, `step` along `v`. Raises UnsupportedError or ShadowError where that refuses the launch."""
    primal_dots, shadow_dots = _Copies(state, v), _Copies(state, u)
    numbers = state.move(v, step)
    state.fill(w)
    actives = state.actives(numbers, w)
    dots = state.actives({p: layouts.with_floats(value, v[-1 - p]) for p, value in numbers.items()}, u)
    pairs = {p: Duplicated(primal_dots.view(pair.shadow), shadow_dots.view(pair.shadow)) for p, pair in state.pairs.items()}
    own, directions = {**state.pairs, **actives}, {**pairs, **dots}
    args = tuple(own.get(p, a) for p, a in enumerate(state.args))
    launch = state.launch
    api.hvp(state.with_shadows(), launch.grid, launch.block, args, tuple(directions.get(p) for p in range(len(args))), **launch.call)
    gradient = {**state.shadows(), **_numbers(state, actives)}
    return Second(primal_dots.read(), gradient, {**shadow_dots.read(), **_numbers(state, dots)})


def _numbers(state: LaunchMemory, actives: dict[int, Any]) -> Vector:
    return {-1 - p: layouts.gradient(state.scalars[p], plain(active.shadow)) for p, active in actives.items()}


class _Copies:
    """Memory that lies as the shadows of a launch do, filled with a vector."""

    def __init__(self, state: LaunchMemory, vector: Vector) -> None:
        self.state = state
        state.fill(vector)
        self.roots = {address(memory.root): memory.root for memory in map(_memory, self._shadows())}
        self.copies = {key: root.copy() for key, root in self.roots.items()}

    def _shadows(self) -> list[Any]:
        return [pair.shadow for pair in self.state.pairs.values()]

    def view(self, shadow: Any) -> Any:
        memory = _memory(shadow)
        return placed(self.copies[address(memory.root)], memory.offset, shadow.shape, shadow.dtype, shadow.strides)

    def read(self) -> Vector:
        """The vector that is there now; the launch's own shadows are lost."""
        for key, root in self.roots.items():
            root[...] = self.copies[key]
        return self.state.shadows()


def _memory(shadow: Any) -> Any:
    return resolve(shadow) if shadow.dtype.names else leaf_memory(shadow)


def _error(found: Vector, slopes: Vector, weights: Vector, centre: Vector) -> float:
    """How far `found` is from slopes, relative to their size, or to that of what they are slopes of along a direction of its size."""
    weighed = [{key: np.where(weight > 0, one[key], 0.0) for key, weight in weights.items()} for one in (found, slopes, centre)]
    got, expected, middle = weighed
    return relative(norm({key: got[key] - expected[key] for key in got}), norm(got), norm(expected), norm(middle))


def _left_out(weights: Vector, gradient: Vector) -> float:
    """The share of the elements with a gradient that have weight 0."""
    own = np.concatenate([np.ravel(weight)[np.ravel(gradient[key]) != 0] for key, weight in weights.items()])
    return float(np.mean(own == 0)) if own.size else 0.0


def _untransposed(second: Second, v: Vector, w: Vector) -> float:
    """By how much `<J v, w>` and `<v, J^T w>` differ, relative to their size."""
    gap = dot(second.tangent, w) - dot(v, second.gradient)
    return relative(gap, norm(second.tangent) * norm(w), norm(v) * norm(second.gradient))


def _difference(one: Vector, other: Vector) -> float:
    """How far two vectors are apart, relative to their size; NaNs in the same places are equal."""
    same = {key: (a == other[key]) | ((a != a) & (other[key] != other[key])) for key, a in one.items()}
    with np.errstate(invalid="ignore"):
        gap = {key: np.where(same[key], 0.0, a - other[key]) for key, a in one.items()}
    finite = {key: np.where(np.isfinite(a), a, 0.0) for key, a in one.items()}
    return relative(norm(gap), norm(finite))
