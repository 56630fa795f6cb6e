"""Checks a rule against itself: what its function does against what is declared, and its reverse against differences of the function.

Of the function, run on copies of the arguments:

* only read: what stands in none of `overwrites`, `adds`, `sets` is as it was, constants among it;
* repeatable: two runs give the same bits;
* overwrites: nothing is left of what was there before, unless the array is also read; adds: what is added does not depend on what was
  there; sets: each element is either new, whatever was there, or as it was.

Of the reverse, in a program that overwrites every array after the call, so that each version is a copy that the tape has kept:

* Taylor: central differences along random directions, extrapolated, against the gradient, with weights on all that was read and written;
* adds to dx: what a shadow holds already is still in it afterwards;
* the reverse is repeatable;
* alone: the gradient of each input is the same where no other input has a shadow, as far as conditional `needs` go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import namespace
from ..errors import ArgumentTypeError, GpuadError
from ..ir.dtypes import is_real
from ..public_calls import positive, public, show, whole
from ..tape.facade import Tape
from ..tape.record.rule_calls import check_listed
from ..tape.record.rule_checks import is_constant, mapped
from ..tape.rules import Rule
from .reports import PRECISIONS, Check, Precision, Report

Vector = dict[str, Any]  # host arrays by the name of the parameter


@public
def check_rule(rule: Rule, args: Sequence[Any], *, tolerance: float | None = None, directions: int = 2, seed: int = 0) -> Report:
    """Checks a rule: its declarations, and its reverse; the arguments are not written.

    `args`: the arguments of a call, arrays and numbers; if none is annotated, every array of floats that the rule lists and every float
    that it reads is active, else those that are Duplicated or Active (whose shadows are not touched), and all that is written. `tolerance`:
    relative, of the comparison with differences (default 1e-7 for float64, 3e-3 for float32). `directions`: random directions tried;
    `seed`: of them.
    Returns a Report; raises AssertionError(str(report)) if something disagrees, GpuadError where a tape refuses the call.
    """
    if not isinstance(rule, Rule):
        raise ArgumentTypeError(f"`rule` is what @gpuad.rule makes, not {show(rule)}.")
    if not isinstance(args, tuple | list):
        raise ArgumentTypeError(f"`args` are the arguments of a call, as a tuple, not {show(args)}.")
    whole("directions", directions, 1)
    whole("seed", seed)
    if tolerance is not None:
        positive("tolerance", tolerance)
    state = _State(rule, args)
    precision = state.precision()
    limit = precision.taylor if tolerance is None else tolerance
    rng = np.random.default_rng(seed)
    checks = list(_function_checks(state, precision, rng))
    if all(check.passed for check in checks) and rule.reverse is not None:
        for number in range(1, directions + 1):
            checks += _reverse_checks(state, precision, limit, rng, number)
    notes = () if rule.reverse is not None else ("the rule has no reverse",)
    report = Report(rule.name, tuple(checks), notes)
    if not report.passed:
        raise AssertionError(str(report))
    return report


@dataclass(eq=False)
class _State:
    """A call: its arguments by name, and which of them carry a gradient."""

    rule: Rule
    args: Sequence[Any]
    given: dict[str, Any] = field(init=False)
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        bound = self.rule.bound(*self.args)
        bound.apply_defaults()
        self.given = dict(bound.arguments)
        check_listed(self.rule, self.given)
        annotated = any(isinstance(x, Duplicated | Active) for x in self.given.values())
        active = {n for n, x in self.given.items() if isinstance(x, Duplicated | Active) or (not annotated and not isinstance(x, Const))}
        effect = self.rule.effect
        self.inputs = tuple(n for n in effect.reads if n in active and _is_float(_plain(self.given[n])))
        self.outputs = tuple(n for n in effect.writes if not isinstance(self.given[n], Const) and _is_float(_plain(self.given[n])))
        self.tape = Tape()

    @property
    def names(self) -> tuple[str, ...]:
        """All that carries a gradient before or after the call."""
        return tuple(dict.fromkeys((*self.inputs, *self.outputs)))

    def precision(self) -> Precision:
        dtypes = (np.asarray(x).dtype if not _is_array(x) else x.dtype for x in (_plain(self.given[n]) for n in self.names))
        sizes = [np.zeros((), dtype).real.dtype.itemsize for dtype in dtypes]
        return PRECISIONS[min(sizes, default=8)]

    def plain(self, changed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The arguments as plain arrays and numbers, copied; `changed`: other content for some."""
        found = {n: mapped(_plain(x), n, lambda _, part: part.copy() if is_constant(part) else part) for n, x in self.given.items()}
        for n, content in (changed or {}).items():
            found[n] = _like(found[n], content)
        return found

    def content(self) -> Vector:
        """What is there before the call."""
        return {n: _host(_plain(self.given[n])) for n in self.names}

    def after(self, changed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """All arguments after a run of the function."""
        values = self.plain(changed)
        self.rule(**values)
        return values

    def results(self, changed: Mapping[str, Any]) -> Vector:
        """What carries a gradient, after a run."""
        values = self.after(changed)
        return {n: _host(values[n]) for n in self.names if _is_array(values[n])}

    def gradient(self, weights: Vector, active: Sequence[str] | None = None) -> Vector:
        """`J^T w` for the map from what is there before the call to what is there after it; `active`: inputs with a shadow."""
        values = self.plain()
        wanted = self.names if active is None else tuple(dict.fromkeys((*active, *self.outputs)))
        pairs = {n: Duplicated(values[n]) for n in wanted if _is_array(values[n])}
        library = next((namespace(x) for x in values.values() if _is_array(x)), np)
        actives: dict[str, Any] = {}
        for n in wanted:
            if n not in pairs:
                actives[n] = Active(values[n], library.zeros((), np.result_type(values[n], np.float32)))
        rest = {n: Const(x) if isinstance(self.given[n], Const) else x for n, x in values.items()}
        with self.tape:
            self.rule(**{**rest, **pairs, **actives})
            left = {n: pair.copy() for n, pair in pairs.items()}
            for pair in pairs.values():
                pair.fill(0)
        self.tape.reverse({left[n]: _like(values[n], weights[n]) for n in left if n in weights}, allow_unused=True)
        return {n: _host(x.shadow) for n, x in {**pairs, **actives}.items()}


# --- the function ------------------------------------------------------------------------------------------------------------------------


def _function_checks(state: _State, precision: Precision, rng: np.random.Generator) -> Iterator[Check]:
    effect, before, after = state.rule.effect, _flat(state.plain()), _flat(state.after())
    again = _flat(state.after())
    for name, array in before.items():
        if name not in effect.writes:
            yield Check(f"`{name}` is only read", _same(array, after[name]), 0.0)
    yield Check("repeatable", max((_same(x, again[n]) for n, x in after.items()), default=0.0), 0.0)
    for name in effect.writes:
        if name not in before or name in effect.reads or not is_real(before[name].real.dtype):
            continue
        old = _host(before[name])
        other = _host(_like(state.plain()[name], old + 1 + _random(rng, old)))
        result = _flat(state.after({name: other}))
        one, two = _host(after[name]), _host(result[name])
        rest = max((_same(x, result[n]) for n, x in after.items() if n != name), default=0.0)
        yield Check(f"`{name}` is not read", rest, 0.0)
        if name in effect.overwrites:
            yield Check(f"`{name}` is overwritten", _same(one, two), 0.0)
        elif name in effect.adds:
            gap = (two - other) - (one - old)
            size = max(np.max(np.abs(x), initial=0.0) for x in (one, two, old, other))
            yield Check(f"`{name}` is added to", _ratio(float(np.max(np.abs(gap), initial=0.0)), float(size)), 64 * precision.unit)
        else:
            fits = (one == two) | ((one == old) & (two == other)) | ((one != one) & (two != two))
            yield Check(f"`{name}` is set", 0.0 if fits.all() else math.inf, 0.0)


# --- the reverse -------------------------------------------------------------------------------------------------------------------------


def _reverse_checks(state: _State, precision: Precision, limit: float, rng: np.random.Generator, number: int) -> Iterator[Check]:
    start = state.content()
    v = {n: _random(rng, x) * _scale(x) for n, x in start.items()}
    slopes, smooth = _slopes(state, start, v, precision)
    w = {n: _random(rng, x) * smooth[n] for n, x in slopes.items()}
    gradient = _tried(state, w, "")
    wanted, got = _dot(slopes, w), _dot(v, gradient)
    yield Check(f"Taylor {number}", _ratio(abs(wanted - got), _norm(slopes) * _norm(w), _norm(v) * _norm(gradient)), limit)
    again = _tried(state, w, "")
    yield Check(f"the reverse is repeatable {number}", max(_same(x, again[n]) for n, x in gradient.items()), 0.0)
    kept = [n for n in state.inputs if n not in state.outputs and n in w]
    bare = _tried(state, {n: x * (n not in kept) for n, x in w.items()}, "")
    for n in kept:
        gap, size = gradient[n] - bare[n] - w[n], max(np.max(np.abs(x), initial=0.0) for x in (gradient[n], w[n]))
        yield Check(f"adds to `d{n}` {number}", _ratio(float(np.max(np.abs(gap), initial=0.0)), float(size)), 64 * precision.unit)
    for n in state.inputs if len(state.inputs) > 1 else ():
        alone = _tried(state, w, f" where `{n}` alone is active", (n,))
        size = max(np.max(np.abs(gradient[n]), initial=0.0), np.max(np.abs(alone[n]), initial=0.0))
        gap = alone[n] - gradient[n]
        yield Check(f"`d{n}` alone {number}", _ratio(float(np.max(np.abs(gap), initial=0.0)), float(size)), 64 * precision.unit)


def _tried(state: _State, weights: Vector, when: str, active: Sequence[str] | None = None) -> Vector:
    """The gradient; AssertionError where the reverse fails."""
    try:
        return state.gradient(weights, active)
    except GpuadError:
        raise
    except Exception as error:
        raise AssertionError(f"the reverse of `{state.rule.name}` fails{when}: {type(error).__name__}: {error}") from error


def _slopes(state: _State, start: Vector, v: Vector, precision: Precision) -> tuple[Vector, Vector]:
    """The derivative of what is there after the call, along `v`, and where it can be had: 0 beside kinks and where it is not finite."""

    def central(h: float) -> Vector:
        plus, minus = (state.results({n: x + s * h * v[n] for n, x in start.items()}) for s in (1, -1))
        return {n: (plus[n] - minus[n]) / (2 * h) for n in plus}

    with np.errstate(invalid="ignore", over="ignore"):
        wide, narrow = central(precision.step), central(precision.step / 2)
        smooth = {n: np.abs(x - wide[n]) <= precision.kink * 10 * (np.abs(x) + _scale(x)) for n, x in narrow.items()}
        slopes = {n: np.where(smooth[n], x + (x - wide[n]) / 3, 0) for n, x in narrow.items()}
    return slopes, {n: x.astype(np.float64) for n, x in smooth.items()}


# --- arrays ------------------------------------------------------------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    return x.primal if isinstance(x, Duplicated | Const | Active) else x


def _is_array(x: Any) -> bool:
    return hasattr(x, "strides") and not isinstance(x, np.generic)


def _is_float(x: Any) -> bool:
    if not _is_array(x):
        return isinstance(x, float | np.floating)
    return x.dtype.kind == "c" or is_real(x.dtype)


def _host(x: Any) -> Any:
    """A copy on the host, in double precision if it is of floats."""
    x = np.array(x.get() if hasattr(x, "get") else x)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if x.dtype.kind in "fc" else x


def _like(x: Any, content: Any) -> Any:
    """The content as an array, or a number, of the same kind."""
    if _is_array(x):
        return namespace(x).asarray(content).astype(x.dtype)
    return type(x)(content)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """All arrays among some arguments, on the host."""
    found: dict[str, Any] = {}

    def collect(name: str, x: Any) -> None:
        if is_constant(x):
            found[name] = np.array(x.get() if hasattr(x, "get") else x)

    for name, x in values.items():
        mapped(x, name, collect)
    return found


def _random(rng: np.random.Generator, like: Any) -> Any:
    real = rng.standard_normal(np.shape(like))
    return real + 1j * rng.standard_normal(np.shape(like)) if np.asarray(like).dtype.kind == "c" else real


def _scale(x: Any) -> float:
    finite = np.abs(x)[np.isfinite(x)] if np.size(x) else np.zeros(0)
    return float(np.sqrt(np.mean(finite**2))) or 1.0 if finite.size else 1.0


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(float(np.real(np.vdot(a[n], b[n]))) for n in a.keys() & b.keys())


def _norm(a: Vector) -> float:
    return math.sqrt(_dot(a, a))


def _ratio(gap: float, *sizes: float) -> float:
    size = max(sizes)
    return gap / size if size else (0.0 if gap == 0 else math.inf)


def _same(a: Any, b: Any) -> float:
    """0 if two arrays are equal, NaNs in the same places included."""
    equal = (a == b) | ((a != a) & (b != b))
    return 0.0 if np.all(equal) else math.inf
