"""Activity: which values carry a derivative from a shadow going in to a shadow coming out.

A value is *varied* if it depends differentiably on an active input, *useful* if an active output depends differentiably on it, and
*active* if both. Integers, comparisons and conversions to integers end a path. Scalars are followed by their definitions; memory by one
bit a buffer, whatever the order of statements, which errs on the side of more activity. Activity prunes values, never takes: whether a
store clears a shadow does not depend on activity (rule 4 of the contract).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ..ir import nodes as ir
from ..ir.rewrite import expressions, used_vars, walk_stmts
from ..source import Span
from .flows import closure, differentiable, flows, not_cancelled
from .infinities import Infinities, infinities


@dataclass(frozen=True)
class Activity:
    """Values that vary, that are useful, and their intersections; `reached` are those that would vary if nothing cancelled, `shadowed` the
    global buffers that have a shadow, `infinities` what may be infinite."""

    shadowed: frozenset[ir.Buffer]
    reached: frozenset[ir.Var | ir.Buffer]
    varied: frozenset[ir.Var | ir.Buffer]
    useful: frozenset[ir.Var | ir.Buffer]
    infinities: Infinities

    def __contains__(self, item: ir.Expr | ir.Buffer) -> bool:
        return item in self.varied and item in self.useful

    def has_shadow(self, buffer: ir.Buffer) -> bool:
        """True if the adjoint keeps a shadow of this memory: parameters that were given one, local arrays if they are active."""
        return buffer in self.shadowed or (buffer.length is not None and buffer in self)

    def expression(self, expr: ir.Expr) -> bool:
        """True if the expression's value is varied through active variables."""
        return any(v in self for v in differentiable(expr))


@dataclass(frozen=True)
class Escape:
    """Varied values that are written into memory without a shadow (`buffer`), first at `span`; `returns`: they also come out of it
    again."""

    buffer: ir.Buffer
    span: Span | None
    returns: bool


def activity(kernel: ir.Kernel, active: Iterable[ir.Var | ir.Buffer], *, stopped: Iterable[ir.Buffer] = ()) -> Activity:
    """Activity of a kernel whose parameters `active` have shadows; nothing flows out of `stopped` buffers."""
    sources = frozenset(active)
    shadowed = frozenset(a for a in sources if isinstance(a, ir.Buffer))
    edges, kept = tuple(flows(kernel, differentiable)), tuple(flows(kernel, not_cancelled(kernel)))
    reached = closure(sources, edges, frozenset(stopped))
    varied = reached if kept == edges else closure(sources, kept, frozenset(stopped))
    useful = closure(shadowed, ((d, v) for v, d in edges), frozenset(stopped) - shadowed)
    return Activity(shadowed, reached, varied, useful, infinities(kernel))


def escapes(kernel: ir.Kernel, facts: Activity) -> tuple[Escape, ...]:
    """Where varied values leave for parameters that have no shadow: gradients that would be dropped."""
    found: dict[ir.Buffer, Escape] = {}
    for stmt in walk_stmts(kernel.body):
        buffer, values = _written(stmt)
        if buffer is None or buffer.length is not None or buffer in facts.shadowed or buffer in found:
            continue
        if any(v in facts.varied for value in values for v in differentiable(value)):
            found[buffer] = Escape(buffer, stmt.span, buffer in facts.useful)
    return tuple(found.values())


def connected(kernel: ir.Kernel, facts: Activity) -> bool:
    """True if some value that varies, or would if nothing cancelled, reaches memory that has a shadow: what is written there, or what is
    there already and is added to, as in `y[i] += w[i]`, or compared with, as by an atomic maximum, whatever with."""

    def carries(stmt: ir.Stmt) -> bool:
        buffer, values = _written(stmt)
        keeps = isinstance(stmt, ir.Accumulate) or (isinstance(stmt, ir.Atomic) and stmt.op != "exch")
        return buffer in facts.shadowed and (keeps or any(v in facts.reached for value in values for v in differentiable(value)))

    return any(map(carries, walk_stmts(kernel.body)))


def truncations(kernel: ir.Kernel, facts: Activity) -> Iterator[ir.Stmt]:
    """Statements in which a varied value becomes an integer by a conversion that the user did not write.

    What has been rounded to a whole number by a function (`int i = floorf(x)`) has the derivative 0 already: nothing is lost.
    """
    casts = [
        (stmt, expr)
        for stmt in walk_stmts(kernel.body)
        for expr in (e for top in expressions(stmt) for e in ir.walk(top))
        if isinstance(expr, ir.Cast) and expr.implicit and expr.type.is_integer
    ]
    if not any(v in facts.varied for _, expr in casts for v in differentiable(expr.operand)):
        return
    carrying = facts.varied & _carrying(kernel, facts)
    for stmt, expr in casts:
        if any(v in carrying for v in differentiable(expr.operand, steps=False)):
            yield stmt


def _carrying(kernel: ir.Kernel, facts: Activity) -> frozenset[ir.Var | ir.Buffer]:
    """What varies with an active parameter otherwise than through functions whose derivative is 0."""
    return closure(frozenset(p for p in kernel.params if p in facts.varied), flows(kernel, partial(differentiable, steps=False)))


def reinterpretations(kernel: ir.Kernel, facts: Activity) -> Iterator[ir.Stmt]:
    """Statements in which the bits of a varied value are read as an integer that is used."""
    used = set(used_vars(kernel.body))
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, ir.Let) and stmt.var not in used:
            continue
        for expr in (e for top in expressions(stmt) for e in ir.walk(top)):
            if isinstance(expr, ir.Call) and expr.function == "bits" and any(v in facts.varied for v in differentiable(expr.arguments[0])):
                yield stmt


def _written(stmt: ir.Stmt) -> tuple[ir.Buffer | None, tuple[ir.Expr, ...]]:
    match stmt:
        case ir.Store(buffer=b, value=v) | ir.Accumulate(buffer=b, value=v):
            return b, (v,)
        case ir.Atomic(buffer=b, operands=operands):
            return b, operands
    return None, ()
