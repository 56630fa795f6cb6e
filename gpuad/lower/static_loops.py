"""Counts While loops whose condition is known at compile time, `for (int d = 16; d > 0; d /= 2)`, and makes a For of each.

The While becomes a For, whose stacks have a depth that is known and whose iterations all threads count alike. A number that it goes by is
written as what it is in iteration t (`16 >> t`) where it is that in each of them, and carried otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analysis.trip_counts import passed
from ..ir import folding
from ..ir.folding import wrapped
from ..ir.nodes import Binary, Expr, For, Let, Stmt, Var, While
from ..ir.types import I32, Scalar

_BITS = 8  # that a number is shifted by in an iteration, and more


def static_loop(loop: While) -> tuple[Stmt, ...] | None:
    """The statements in its place; None where more than the text decides how often it runs, or it never does."""
    found = passed(loop, lambda _: None)
    if found is None or len(found) == 1 or loop.counter is None:
        return None
    *values, last = found
    moving = [c.var for c in loop.carried if c.var in last]
    forms = {v: form for v in moving if (form := _form([of[v] for of in values], v.type, loop.counter)) is not None}
    carried = tuple(c for c in loop.carried if c.var not in forms)
    body: tuple[Stmt, ...] = (*(Let(var, form, span=loop.span) for var, form in forms.items()), *loop.body)
    ends = [Let(c.result, folding.integer(last[c.var], c.var.type), span=loop.span) for c in loop.carried if c.var in forms]
    if loop.count is not None:
        ends.append(Let(loop.count, folding.integer(len(values), I32), span=loop.span))
    start, stop, step = (folding.integer(n, I32) for n in (0, len(values), 1))
    return For(loop.counter, start, stop, step, body, carried, span=loop.span), *ends


def _form(values: Sequence[int], kind: Scalar, counter: Var) -> Expr | None:
    """A number as an expression of the iteration's."""
    if kind.bits < 32:  # C would compute with wider ones
        return None
    return next((form for form, of in _candidates(values, kind, counter) if list(of) == list(values)), None)


def _candidates(values: Sequence[int], kind: Scalar, counter: Var) -> Iterator[tuple[Expr, Iterator[int]]]:
    """Expressions that begin as the values do, and what they are in each iteration."""
    first, many, t = values[0], range(len(values)), folding.cast(counter, kind)
    start = folding.integer(first, kind)
    step = wrapped(values[min(1, len(values) - 1)] - first, kind)
    times = folding.binary("*", t, folding.integer(step, kind), kind)
    yield folding.binary("+", start, times, kind), (wrapped(first + step * n, kind) for n in many)
    for bits in range(1, _BITS):
        if bits * (len(values) - 1) < kind.bits:
            amount = folding.binary("*", t, folding.integer(bits, kind), kind)
            yield Binary(">>", start, amount, kind), (first >> bits * n for n in many)
            yield Binary("<<", start, amount, kind), (wrapped(first << bits * n, kind) for n in many)
