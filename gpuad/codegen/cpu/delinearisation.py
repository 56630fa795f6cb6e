"""Delinearisation: finds the rows into which a kernel divides a line of threads, so that the CPU runs one loop over rows and one over
columns.

`row = i / width; column = i % width` with the global index i costs every thread two divisions, and a compiler does not see that neighbours
read neighbours. Within a row the quotient is one number and the remainder counts up. So the quotient becomes a scalar that the loop over
rows computes, the remainder becomes the global x index, and i is `row * width + x`. Further divisors of i, as for planes, give further
scalars; a row ends where the first of all quotients changes.

The identity `i = (i / width) * width + i % width` holds for every width, also a negative one or 0, with the results that PTX defines: then
each thread is a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir.nodes import Binary, Cast, Constant, Expr, Kernel, LaunchIndex, Var, walk
from ...ir.rewrite import rebuild, substitute
from ...ir.types import Scalar
from ..structure import expressions, map_expressions, single_values
from .iteration_domain import GLOBAL, bare, is_uniform

_X = LaunchIndex(GLOBAL, "x")
_SHORT = 16  # a constant row of fewer threads is not worth a loop


@dataclass(frozen=True)
class Row:
    """The quotient of the global x index by a divisor that is the same for all threads."""

    quotient: Var
    divisor: Expr


@dataclass(frozen=True)
class Columns:
    """A kernel whose global x index counts the columns of `rows[0]`; the quotients are its last parameters."""

    kernel: Kernel
    rows: tuple[Row, ...]


def delinearise(kernel: Kernel) -> Columns | None:
    """The folded kernel by rows and columns; None if it divides its global x index by nothing."""
    values = single_values(kernel)
    found = list(dict.fromkeys((e.op, e.right) for e in _divisions(kernel, values)))
    divisors = list(dict.fromkeys(d for op in "%/" for o, d in found if o == op))  # that of a remainder first
    if not divisors:
        return None
    rows = tuple(Row(Var("row", d.type, -(1 << 28) - k), d) for k, d in enumerate(divisors))
    task = _ByRows(rows, values)
    return Columns(
        replace(kernel, params=(*kernel.params, *(r.quotient for r in rows)), body=map_expressions(kernel.body, task.visit)), rows
    )


def _divisions(kernel: Kernel, values: dict[Var, Expr]) -> Iterator[Binary]:
    for top in expressions(kernel.body):
        for expr in walk(top):
            if isinstance(expr, Binary) and _divides_x(expr, values) and is_uniform(substitute(expr.right, values), kernel):
                yield replace(expr, right=substitute(expr.right, values))


def _divides_x(expr: Binary, values: dict[Var, Expr]) -> bool:
    """Whether the global x index is divided, as an integer of 32 bits or more."""
    if expr.op not in ("/", "%") or not expr.type.is_integer or expr.type.bits < 32:
        return False
    short = isinstance(expr.right, Constant) and abs(expr.right.value) < _SHORT
    return not short and _is_x(substitute(expr.left, values), expr.type)


def _is_x(expr: Expr, t: Scalar) -> bool:
    """Whether the expression is the global x index. One of 64 bits may be changed by a conversion to 32."""
    index = bare(expr)
    return index in (_X, replace(_X, type=t)) and all(e.type.bits >= index.type.bits for e in walk(expr))


class _ByRows:
    """Rewrites expressions in terms of quotients and columns."""

    def __init__(self, rows: tuple[Row, ...], values: dict[Var, Expr]) -> None:
        self.rows = rows
        self.values = values

    def visit(self, expr: Expr) -> Expr:
        if isinstance(expr, LaunchIndex) and expr.name == GLOBAL and expr.axis == "x":
            return self.index(expr.type)
        if isinstance(expr, Binary) and _divides_x(expr, self.values):
            divisor = substitute(expr.right, self.values)
            row = next((r for r in self.rows if r.divisor == divisor), None)
            if row is not None:
                return row.quotient if expr.op == "/" else self.remainder(row)
        return rebuild(expr, self.visit)

    def index(self, t: Scalar) -> Expr:
        """The global index of before."""
        first = self.rows[0]
        start = Binary("*", _as(first.quotient, t), _as(first.divisor, t), t)
        return Binary("+", start, LaunchIndex(GLOBAL, "x", t), t)

    def remainder(self, row: Row) -> Expr:
        t = row.divisor.type
        column = _as(LaunchIndex(GLOBAL, "x"), t)
        if row == self.rows[0]:
            return column
        return Binary("-", self.index(t), Binary("*", row.quotient, row.divisor, t), t)


def _as(expr: Expr, t: Scalar) -> Expr:
    return expr if expr.type == t else Cast(expr, t)
