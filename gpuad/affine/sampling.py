"""Randomised evaluation: numbers for nodes at sampled instances, with pseudo-random memory (Schwartz 1980; Zippel 1979).

What is in an element is a hash of its array and index, so two expressions that are the same function of memory come to the same number, and
two that are not almost surely do not. Functions are NumPy's where it has them; others are some function, the same for the same arguments.
Of loops with many iterations some are gone through, the first, the last and others, and the number of all is mixed in: the same for two
copies of one loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..ir.types import BOOL, Scalar
from .effects import Dim, Recurrence
from .instances import Instances
from .values import NOWHERE, Node, limits

Lanes: TypeAlias = "np.ndarray[Any, Any]"
Value: TypeAlias = Any  # of each lane, an array; or one number for all of them
_ITERATIONS = (32, 8, 4)  # that are gone through of a loop, of one inside of it, and of all others
_CARRIED = 8  # of a loop that carries values
_SEARCHED = 8  # iterations that are gone through of a loop that does not count
_FRACTIONS = (0.31, 0.83, 0.07, 0.59, 0.97, 0.43, 0.71)  # where between two others an iteration is
_RING = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_PLAIN: dict[str, Callable[..., Value]] = {
    "!": np.logical_not,
    "&&": np.logical_and,
    "||": np.logical_or,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "neg": operator.neg,
    "floor": operator.floordiv,
    "above": lambda x: x,
    "below": lambda x: x,
}
_COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "fabs": np.abs,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "fma": lambda x, y, z: x * y + z,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "exp2": np.exp2,
    "cbrt": np.cbrt,
}


class Incomparable(Exception):
    """The value is not known as a function of memory."""


def hashed(*parts: Value) -> Lanes:
    """A pseudo-random number below 2^32 for each lane."""
    with np.errstate(over="ignore"):
        state: Value = np.uint64(0x9E3779B97F4A7C15)
        for part in parts:
            state = (state ^ _int64(np.asarray(part)).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
            state = state ^ (state >> np.uint64(29))
            state = state * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(32))
        return np.asarray(state & np.uint64(0xFFFFFFFF))


class Sampler:
    """Nodes at instances. `points`: for each dimension its value in each lane; `seed`: which memory: with an even one, numbers in it are
    positive, with each fourth one they are few, so that some are 0 and some are equal."""

    def __init__(self, instances: Instances, points: Mapping[str, Lanes], seed: int, outer: Sampler | None = None, inner: str = "") -> None:
        self.instances = instances
        self.points = points
        self.seed = seed
        self.outer = outer
        self.inner = inner
        self.known: dict[Node, Value] = {}

    def value(self, node: Node) -> Value:
        if self.outer is not None and self.inner not in node.dims:
            return self.outer.value(node)
        if node not in self.known:
            self.known[node] = self.made(node)
        return self.known[node]

    def made(self, node: Node) -> Value:
        match node.op:
            case "constant":
                return float.fromhex(node.args[0]) if node.type.is_float else node.args[0]
            case "dim":
                return self.points[node.args[0]]
            case "parameter":
                return self.number(node.type, hashed(self.seed, node.args[0].uid, -1))
            case "load":
                buffer, index = node.args
                return self.number(node.type, hashed(self.seed, buffer.uid, _code(buffer.name), self.value(index)))
            case "table":
                return self.table(self.value(node.args[0]), node.args[1], node.type)
            case "select":
                condition, a, b = (self.value(x) for x in node.args)
                return np.where(condition, a, b)
            case "compare":
                return _COMPARE[node.args[0]](self.value(node.args[1]), self.value(node.args[2]))
            case "stride":
                return self.value(node.args[0]) % node.args[1] == 0
            case "call":
                return self.call(node)
            case "sum" | "result" | "carried" | "at":
                return self.loop(node)
            case "unknown":
                raise Incomparable
        return self.operation(node, [self.value(a) for a in node.args])

    def number(self, kind: Scalar, bits: Lanes) -> Lanes:
        """What is in memory."""
        if kind == BOOL:
            return np.asarray(bits % 2 == 1)
        if kind.is_integer:
            return (bits % 8).astype(np.int64)
        unit = bits / 2.0**32
        if self.seed % 4 == 3:
            return np.asarray(np.floor(5 * unit) / 2 - 1)
        return np.asarray(unit + 0.5 if self.seed % 2 == 0 else 3 * unit - 1.5)

    def table(self, element: Value, contents: Sequence[tuple[int, Node]], kind: Scalar) -> Lanes:
        """What a table has at an element."""
        places = np.array([place for place, _ in contents])
        found = np.searchsorted(places, element).clip(max=len(places) - 1)
        values = np.array([self.value(value) for _, value in contents])
        return np.where(places[found] == element, values[found], np.nan if kind.is_float else NOWHERE)

    def operation(self, node: Node, args: list[Value]) -> Value:
        kind = node.type
        if node.op in _RING:
            return _wrapped(_RING[node.op](*args), kind)
        if node.op in _PLAIN:
            return _PLAIN[node.op](*args)
        match node.op:
            case "cast":
                return _cast(args[0], node.args[0].type, kind)
            case "/" if kind.is_float:
                return np.divide(args[0], args[1])
            case "%" | "mod" if node.args[0].text is not None:
                return args[0] % args[1]
        return self.some(node.op, args, kind)

    def call(self, node: Node) -> Value:
        name, *inner = node.args
        args = [self.value(a) for a in inner]
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*args)
        return self.some(name, args, node.type)

    def some(self, name: str, args: Sequence[Value], kind: Scalar) -> Value:
        """Some function of the arguments."""
        total = sum((np.asarray(a, float) * (0.37 + 0.61 * k) for k, a in enumerate(args)), float(_code(name) % 65521) / 31)
        if kind.is_float:
            return 1.25 + np.sin(total)
        return np.asarray(np.sin(total) > 0) if kind == BOOL else np.asarray(np.floor(4 + 4 * np.sin(total)), np.int64)

    # --- loops --------------------------------------------------------------------------------------------------------------------

    def loop(self, node: Node) -> Value:
        match node.op:
            case "at":
                inner, names, *mapped = node.args
                points = {**self.points, **dict(zip(names, (np.asarray(self.value(m)) for m in mapped), strict=True))}
                return Sampler(self.instances, points, self.seed).value(inner)
            case "sum":
                return self.sum(*node.args)
            case "result":
                name, k, *_ = node.args
                loop = self.recurrence(name)
                return self.after(loop, k, None) if loop.condition is None else self.searched(loop, loop.condition, k)
        name, k = node.args
        if self.recurrence(name).condition is not None:
            raise Incomparable
        return self.after(self.recurrence(name), k, self.points[name])

    def recurrence(self, name: str) -> Recurrence:
        if name not in self.instances.recurrences:
            raise Incomparable
        return self.instances.recurrences[name]

    def trips(self, start: Value, stop: Value, step: int) -> Lanes:
        span = np.asarray(stop, np.int64) - start if step > 0 else np.asarray(start, np.int64) - stop
        return np.asarray(np.maximum(-(-span // abs(step)), 0))

    def iterations(self, count: Lanes, most: int) -> list[tuple[Lanes, Lanes]]:
        """Numbers of iterations, and in which lanes each is gone through: all if they are few, else first ones, last ones, some between."""
        few = count <= most
        edge = most // 4
        between = (count - 2 * edge) / max(most - 2 * edge, 1)
        found = []
        for k in range(min(most, int(count.max(initial=0)))):
            if k < edge:
                many: Value = k
            elif k >= most - edge:
                many = count - (most - k)
            else:
                many = edge + ((k - edge + _FRACTIONS[k % len(_FRACTIONS)]) * between).astype(np.int64)
            found.append((np.where(few, k, many), count > k))
        return found

    def skipped(self, count: Lanes, most: int) -> None:
        """Notes whether iterations are left out, so that what differs may be the same."""
        self.instances.rough = self.instances.rough or int(count.max(initial=0)) > most

    def inside(self, name: str, value: Lanes) -> Sampler:
        return Sampler(self.instances, {**self.points, name: value}, self.seed, self, name)

    @property
    def depth(self) -> int:
        """In how many loops it is."""
        return 0 if self.outer is None else self.outer.depth + 1

    def sum(self, dim: Dim, added: Node) -> Value:
        """What a loop adds up, all its iterations at once along an axis of their own, the first."""
        if dim.bounds is None:
            raise Incomparable
        start, stop, step = self.value(dim.bounds[0]), self.value(dim.bounds[1]), dim.bounds[2]
        count = self.trips(start, stop, step)
        most = _ITERATIONS[min(self.depth, len(_ITERATIONS) - 1)]
        shape = np.broadcast_shapes(np.shape(start), count.shape, *(np.shape(p) for p in self.points.values()))
        count = np.broadcast_to(count, shape)
        self.skipped(count, most)
        parts = self.iterations(count, most)
        total: Value = 0.01 * (count > most) * (count % 1013)
        if not parts:
            return total
        number, there = (np.stack([np.broadcast_to(part[k], shape) for part in parts]) for k in (0, 1))
        values = self.inside(dim.name, start + number * step).value(added)
        return total + np.where(there, values, 0.0).sum(axis=0)

    def after(self, loop: Recurrence, k: int, at: Value) -> Value:
        """What a variable is after all iterations, or before the one in which the loop's variable is `at`."""
        start, stop = self.value(loop.start), self.value(loop.stop)
        count = self.trips(start, stop, loop.step)
        first = start + (count - 1) * loop.step if loop.backward else start
        step = -loop.step if loop.backward else loop.step
        done = count if at is None else (at - first) // step
        values: list[Value] = [np.asarray(self.value(f)) for f in loop.firsts]
        self.skipped(done, _CARRIED)
        for number, there in self.iterations(done, _CARRIED):
            inside = self.inside(loop.dim.args[0], first + number * step)
            inside.known.update(zip(loop.variables, values, strict=True))
            values = [np.where(there, inside.value(n), v) for n, v in zip(loop.nexts, values, strict=True)]
        extra = (done > _CARRIED) * (hashed(done) % np.uint64(1013)).astype(np.int64)
        return values[k] + (0.001 * extra if loop.variables[k].type.is_float else extra)

    def searched(self, loop: Recurrence, condition: Node, k: int) -> Value:
        """What a variable is when the condition fails; where it does not within a few iterations, what those have made of all variables."""
        shape = np.shape(next(iter(self.points.values()), 0))
        values = [np.broadcast_to(np.asarray(self.value(f)), shape) for f in loop.firsts]
        there = np.ones(shape, bool)
        self.instances.rough = True
        for number in range(_SEARCHED + 1):
            inside = self.inside(loop.dim.args[0], np.full(shape, number))
            inside.known.update(zip(loop.variables, values, strict=True))
            there = there & np.asarray(inside.value(condition), bool)
            if number < _SEARCHED:
                values = [np.where(there, inside.value(n), v) for n, v in zip(loop.nexts, values, strict=True)]
        mixed = (hashed(*(np.asarray(v, float).view(np.int64) for v in values)) % np.uint64(1013)).astype(np.int64)
        extra = np.where(there, mixed, 0)
        return values[k] + (0.001 * extra if loop.variables[k].type.is_float else extra)


def _code(name: str) -> int:
    return int(sum(ord(c) * 131**k for k, c in enumerate(name)) % (1 << 31))


def _int64(value: Value) -> Value:
    """Whole numbers, those that are wider modulo 2^64."""
    return ((value + (1 << 63)) % (1 << 64) - (1 << 63)).astype(np.int64) if value.dtype == object else value.astype(np.int64)


def _wrapped(value: Value, kind: Scalar) -> Value:
    """Whole numbers as their type holds them; those beyond int64 are Python's."""
    if kind.is_float:
        return value
    least, most = limits(kind)
    value = np.asarray(value)
    if most - least >= (1 << 62):
        value = _int64(value)
        return value.astype(object) % (1 << 64) if least == 0 and np.any(value < 0) else value
    return _int64((value - least) % (most - least + 1) + least)


def _cast(value: Value, source: Scalar, kind: Scalar) -> Value:
    if kind == BOOL:
        return np.asarray(value) != 0
    if kind.is_float:
        return np.asarray(value, float)
    if source.is_float:
        return np.asarray(np.trunc(np.nan_to_num(value)), np.int64)
    return _wrapped(value, kind)
