"""Delinearises a thread's index: `i` becomes `x + w * (y + h * z)` where a kernel takes it apart by quotients and remainders.

A kernel over an array of several dimensions, launched along one axis, gets coordinates back as `i % w`, `i / w % h`, `i / (w * h)`. These
are digits of a mixed-radix number: each such node is a run of digits, from one *bound* to another, and the bounds that occur (1, w, w * h)
divide each other. The digits become the thread's indices along that axis and those of which the kernel knows nothing, as if the launch had
as many threads along each; digits for which no axis is left become loops around the body. The last digit goes as far as the threads do.

Assumes: indices are variables (`thread_indices`). A proposal: that the threads with these digits are those of the launch, each once, is for
a certificate to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

from ..analysis.index_polynomials import Polynomial, atoms, definitions, polynomial, times
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, expressions, map_exprs, rebuild, used_vars, walk_stmts
from ..ir.types import I32
from .piecewise_affine import written

_Factor: TypeAlias = "frozenset[tuple[tuple[ir.Expr, ...], int]]"  # the items of a polynomial over parameters


@dataclass(frozen=True)
class _Product:
    """A product over parameters: a number, and factors in a fixed order."""

    number: int = 1
    factors: tuple[_Factor, ...] = ()

    def __mul__(self, other: _Product) -> _Product:
        return _Product(self.number * other.number, tuple(sorted((*self.factors, *other.factors), key=repr)))

    def over(self, other: _Product) -> _Product | None:
        """The quotient, if the other divides this one."""
        left = Counter(self.factors)
        left.subtract(other.factors)
        if self.number % other.number or any(n < 0 for n in left.values()):
            return None
        return _Product(self.number // other.number, tuple(left.elements()))

    @property
    def expression(self) -> ir.Expr:
        """The product as an int expression."""
        return written(reduce(times, (dict(f) for f in self.factors), {(): self.number}))


@dataclass(frozen=True)
class _Run:
    """Digits of the index from one bound to another: `i / low % (high / low)`; `high` is None for all that there are."""

    low: _Product
    high: _Product | None


@dataclass(frozen=True)
class MixedRadix:
    """Digits of a thread's index along an axis, the least first: `axes` that stand for some of them, each with how many numbers the digit
    has, None for the last; `loops`: the same by the variables of those that are loops."""

    axes: tuple[tuple[str, ir.Expr | None], ...]
    loops: tuple[tuple[ir.Var, ir.Expr], ...] = ()

    def threads(self, count: int, number: Callable[[ir.Expr], int]) -> dict[str, int]:
        """How many threads there are along the axes in place of `count`; `number`: what an expression over parameters comes to."""
        found = {axis: max(number(extent), 1) for axis, extent in self.axes if extent is not None}
        below = 1
        for n in (*found.values(), *(max(number(extent), 1) for _, extent in self.loops)):
            below *= n
        return {**found, self.axes[-1][0]: -(-count // below)}


def delinearise(
    body: ir.Block, indices: Mapping[str, ir.Var], params: Collection[ir.Var], names: Names
) -> tuple[ir.Block, dict[str, MixedRadix]] | None:
    """The body over the digits of an index, and what they are, by the index's axis; None where none is taken apart. `indices`: the thread's
    along each axis, which stand for the digits in the result; `params`: the same for all threads."""
    used = set(used_vars(body))
    free = [axis for axis, index in indices.items() if index not in used]
    for axis, index in indices.items():
        digits = _Digits(index, frozenset(params), definitions(body))
        bounds = digits.bounds(body) if index in used else None
        if bounds is None:
            continue
        extents = [size.expression for low, high in pairwise(bounds) if (size := high.over(low)) is not None]
        alone, middle = extents[: len(free)], extents[len(free) :]
        loops = [names.var("digit", I32) for _ in middle]
        axes = [axis, *free][: len(alone) + 1]
        digits.known = dict(zip(bounds, [*(indices[a] for a in axes[:-1]), *loops, indices[axes[-1]]], strict=True))
        changed = map_exprs(body, digits.rewritten)
        gone_through = tuple(zip(loops, middle, strict=True))
        for var, extent in gone_through:
            changed = (ir.For(var, b.zero(I32), extent, b.const(1, I32), changed),)
        return changed, {axis: MixedRadix((*zip(axes[:-1], alone, strict=True), (axes[-1], None)), gone_through)}
    return None


class _Digits:
    """Knows which nodes are runs of the digits of an index. `known`: the digit that begins at each bound, the least first."""

    def __init__(self, index: ir.Var, params: frozenset[ir.Var], lets: Mapping[ir.Var, ir.Expr]) -> None:
        self.index = index
        self.params = params
        self.lets = lets
        self.known: dict[_Product, ir.Var] = {}
        self._runs: dict[ir.Var, _Run | None] = {index: _Run(_Product(), None)}

    def bounds(self, body: ir.Block) -> list[_Product] | None:
        """All bounds that occur, each dividing the next; None if there are no others than 1, or they do not divide each other."""
        found = [run for s in walk_stmts(body) if not self.is_named(s) for top in expressions(s) for run in self.wholes(top)]
        every = {end for run in found for end in (run.low, run.high) if end is not None}
        order = sorted(every | {_Product()}, key=lambda p: (len(p.factors), p.number))
        divide = all((size := high.over(low)) is not None and size != _Product() for low, high in pairwise(order))
        return order if len(order) > 1 and divide else None

    def is_named(self, stmt: ir.Stmt) -> bool:
        """True if a statement only names some digits: what is done with them counts."""
        return isinstance(stmt, ir.Let) and self.run(stmt.value) is not None

    def wholes(self, expr: ir.Expr) -> Iterator[_Run]:
        """The runs of digits in an expression that are not on the way to another one, as `i / h` is in `i / h / w`."""
        run = self.run(expr)
        if run is not None:
            yield run
            return
        for inner in ir.children(expr):
            yield from self.wholes(inner)

    def run(self, expr: ir.Expr) -> _Run | None:
        """Which digits a node is."""
        if not expr.type.is_integer or expr.type.bits < 32:
            return None
        match expr:
            case ir.Var():
                if expr not in self._runs:
                    self._runs[expr] = self.run(self.lets[expr]) if expr in self.lets else None
                return self._runs[expr]
            case ir.Cast(operand=inner):
                return self.run(inner)
            case ir.Binary(op="/" | "%" | ">>" | "&" as op, left=inner, right=right):
                run, by = self.run(inner), self.divisor(op, right)
                if run is None or by is None:
                    return None
                end = run.low * by
                return _Run(end, run.high) if op in ("/", ">>") else _Run(run.low, end)
        return None

    def divisor(self, op: str, right: ir.Expr) -> _Product | None:
        """By what an operator divides."""
        if op in ("/", "%"):
            return self.product(right)
        if not isinstance(right, ir.Constant):
            return None
        value = int(right.value)
        if op == ">>":
            return _Product(1 << value) if 0 < value < 31 else None
        return _Product(value + 1) if 0 < value < 1 << 30 and value & (value + 1) == 0 else None

    def product(self, expr: ir.Expr) -> _Product | None:
        """A divisor as a product over parameters."""
        p = polynomial(expr, self.lets)
        if not all(isinstance(a, ir.Var) and a in self.params for a in atoms(p)):
            return None
        if len(p) == 1:
            ((monomial, number),) = p.items()
            return _Product(number, tuple(sorted((_factor({(a,): 1}) for a in monomial), key=repr))) if number > 0 else None
        match expr:
            case ir.Var() if expr in self.lets:
                return self.product(self.lets[expr])
            case ir.Cast(operand=inner):
                return self.product(inner)
            case ir.Binary(op="*", left=left, right=right):
                one, other = self.product(left), self.product(right)
                return one * other if one is not None and other is not None else None
        return _Product(1, (_factor(p),)) if p else None

    def rewritten(self, expr: ir.Expr) -> ir.Expr:
        """The expression over the digits."""
        run = self.run(expr)
        is_known = run is not None and {run.low, run.high} <= {*self.known, None}
        return b.cast(self.written(run), expr.type) if run is not None and is_known else rebuild(expr, self.rewritten)

    def written(self, run: _Run) -> ir.Expr:
        """Some of the digits as a number, by Horner's rule."""
        ends = [*self.known]
        first, after = ends.index(run.low), ends.index(run.high) if run.high is not None else len(ends)
        result: ir.Expr = self.known[ends[after - 1]] if after > first else b.zero(I32)
        for k in reversed(range(first, after - 1)):
            size = ends[k + 1].over(ends[k])
            assert size is not None
            result = b.binary("+", b.binary("*", result, size.expression, I32), self.known[ends[k]], I32)
        return result


def _factor(p: Polynomial) -> _Factor:
    return frozenset(p.items())
