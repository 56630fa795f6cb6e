"""The element of a gradient that is most wrong, for a message: found where a check along random directions has failed already.

A gradient that is wrong along a random direction is wrong in some elements. Half of the candidates at a time is followed in which gradient
and differences are further apart; the last few dozen are compared one by one. So of several wrong elements it is a bad one, not always the
worst of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..api import Kernel
from ..arguments import layouts
from ..runtime.array_types import Extents
from ..tape.rules import Rule
from . import rule_check
from .launch_memory import LaunchMemory, launched
from .slopes import differences, dot, norm, without_scalars

_FEW = 48
Candidate: TypeAlias = "tuple[Any, tuple[int, ...]]"  # whose element, and which


@dataclass(frozen=True)
class Worst:
    """An element of the gradient of `argument`: what came, and what differences of the call itself say."""

    argument: str
    index: tuple[int, ...]
    got: float
    expected: float

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"gradient of `{self.argument}{where}`: got {self.got:.9g}, expected {self.expected:.9g} (by differences)"


Slopes: TypeAlias = "Callable[[Sequence[tuple[Candidate, float]]], tuple[float, float]]"


def _worst(candidates: list[Candidate], slopes: Slopes, rng: np.random.Generator) -> tuple[Candidate, float, float] | None:
    """`slopes`: what the gradient and what differences say along a direction, given by its entries."""

    def disagreement(some: list[Candidate]) -> float:
        got, expected = slopes([(c, float(s)) for c, s in zip(some, rng.choice((-1.0, 1.0), len(some)), strict=True)])
        return abs(got - expected) if np.isfinite(got) and np.isfinite(expected) else np.inf

    while len(candidates) > _FEW:
        middle = len(candidates) // 2
        candidates = max((candidates[:middle], candidates[middle:]), key=disagreement)
    compared = [(c, *slopes([(c, 1.0)])) for c in candidates]
    return max(compared, key=lambda one: _distance(one[1], one[2]), default=None)


def _distance(got: float, expected: float) -> float:
    gap = abs(got - expected)
    return gap if np.isfinite(gap) else np.inf


def worst_of_kernel(
    f: Any, args: Sequence[Any], grid: Extents, block: Extents, shared_mem: int, call: Mapping[str, Any], seed: int
) -> Worst | None:
    """Of a launch, given as to `check_gradient`; None if nothing can be said. Arrays are as before when it returns."""
    state = LaunchMemory(*launched(f, args, grid, block, shared_mem, call))
    with state.kept():
        precision, rng = state.precision(), np.random.default_rng(seed)
        v, w = state.random(rng, scaled=True), state.random(rng, scaled=False)
        slopes_along_v, weights, _ = differences(state, precision, v)
        towards = {key: w[key] + slopes_along_v[key] * (norm(w) / (norm(slopes_along_v) or 1)) for key in weights}
        weights = {key: weight * towards[key] for key, weight in weights.items()}
        gradient = state.reverse(weights)

        def direction(entries: Sequence[tuple[Candidate, float]]) -> Any:
            for room in state.rooms.values():
                room.shadow.fill(0)
            made: dict[int, Any] = {-1 - p: np.zeros_like(layouts.scales(value)) for p, value in state.scalars.items()}
            for (key, index), size in entries:
                if isinstance(key, tuple):
                    state.views[key][2][index] = size
                else:
                    made[-1 - key][index] = size
            return {**state.shadows(), **made}

        def slopes(entries: Sequence[tuple[Candidate, float]]) -> tuple[float, float]:
            along = direction(entries)
            h = precision.step
            plus, minus = state.after(along, h), state.after(along, -h)
            change = {key: (plus[key] - minus[key]) / (2 * h) for key in weights}
            return dot(along, gradient), dot(without_scalars(weights), change)

        candidates: list[Candidate] = [(key, index) for key, (_, array, _) in state.views.items() for index in np.ndindex(array.shape)]
        candidates += [(p, index) for p, value in state.scalars.items() for index in np.ndindex(np.shape(layouts.scales(value)))]
        found = _worst(candidates, slopes, rng)
        return None if found is None else Worst(_name(state.launch.kernel, found[0][0]), found[0][1], found[1], found[2])


def _name(kernel: Any, key: Any) -> str:
    position = key[0] if isinstance(key, tuple) else key
    declared = kernel.declared if isinstance(kernel, Kernel) else ()
    return declared[position].name if position < len(declared) else f"argument {position + 1}"


def worst_of_rule(rule: Rule, args: Sequence[Any], seed: int) -> Worst | None:
    """Of a rule, given as to `check_rule`; None if nothing can be said."""
    state = rule_check._State(rule, args)
    rng, step = np.random.default_rng(seed), state.precision().step
    start = state.content()
    weights = {n: rule_check._random(rng, x) for n, x in state.results(start).items()}
    gradient = state.gradient(weights)

    def slopes(entries: Sequence[tuple[Candidate, float]]) -> tuple[float, float]:
        along = {n: np.zeros_like(x) for n, x in start.items()}
        for (name, index), size in entries:
            along[name][index] = size
        plus, minus = (state.results({n: x + s * step * along[n] for n, x in start.items()}) for s in (1, -1))
        change = {n: (plus[n] - minus[n]) / (2 * step) for n in plus}
        return rule_check._dot(along, gradient), rule_check._dot(change, weights)

    found = _worst([(n, index) for n in state.names for index in np.ndindex(np.shape(start[n]))], slopes, rng)
    return None if found is None else Worst(found[0][0], found[0][1], found[1], found[2])
