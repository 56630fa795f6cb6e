"""Induction variables: what loops carry that follows from the number of the iteration alone.

A loop that is left early, by `break`, by `return`, or since a second condition fails, moves its variables in all iterations but the last:
at the start of each iteration it is known what they are, since the one before was not the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import folding as b
from . import nodes as ir
from .rewrite import blocks, bound_in, walk_stmts
from .types import I32, Scalar


def closed_forms(block: ir.Block) -> dict[ir.Var, ir.Expr]:
    """The carried values of all loops that have a closed form, and it."""
    loops = (s for s in walk_stmts(block) if isinstance(s, ir.For | ir.While))
    forms = ((c.var, closed_form(loop, c)) for loop in loops for c in loop.carried)
    return {var: form for var, form in forms if form is not None}


def closed_form(loop: ir.For | ir.While, carried: ir.Carried) -> ir.Expr | None:
    """The carried value at the start of an iteration as an expression of the loop's counter, if it grows by a fixed integer step, is
    shifted by a fixed number of bits, or turns its sign."""
    following = _following(loop, carried)
    if isinstance(following, ir.Unary) and following.op == "-" and following.operand == carried.var:
        return _turned(loop, carried)
    moved = _moved(loop, carried.var, following)
    if moved is None:
        return _shifted(loop, carried, following)
    counter = _iteration(loop, moved.type)
    times = moved.right if counter is not None else _in_steps(loop, moved.right)
    counter = counter if counter is not None else _way(loop, moved.type)
    if counter is None or times is None:
        return None
    offset = counter if b.is_const(times, 1) else ir.Binary("*", counter, times, moved.type)
    return b.cast(ir.Binary(moved.op, b.cast(carried.init, moved.type), offset, moved.type), carried.var.type)


def _following(loop: ir.For | ir.While, carried: ir.Carried) -> ir.Expr:
    """The value in the iteration that follows, if one does."""
    if carried.var.type.is_integer:
        return _GoingOn(loop).value(carried.next)
    named = (s.value for block in blocks(loop) for s in block if isinstance(s, ir.Let) and s.var == carried.next)
    return next(named, carried.next)


def _moved(loop: ir.For | ir.While, var: ir.Var, following: ir.Expr) -> ir.Binary | None:
    """A sum of the variable and a step that no iteration changes, or a difference, computed in a type that has all bits of it."""
    moved = following.operand if isinstance(following, ir.Cast) else following
    if not isinstance(moved, ir.Binary) or moved.op not in ("+", "-") or not (var.type.is_integer and moved.type.is_integer):
        return None
    left = moved.left.operand if isinstance(moved.left, ir.Cast) else moved.left
    fits = moved.type == var.type if moved is following else moved.type.bits >= var.type.bits
    return moved if left == var and fits and bound_in(loop).isdisjoint(ir.walk(moved.right)) else None


def _shifted(loop: ir.For | ir.While, carried: ir.Carried, following: ir.Expr) -> ir.Expr | None:
    """The closed form of a value that is halved or doubled: `d >>= 1`, `d *= 2`, and `d /= 2` where the loop runs on only while `d > 0`."""
    bits: int | None = None
    match following:
        case ir.Binary(op=">>" | "<<" as op, left=left, right=ir.Constant(value=v)) if left == carried.var:
            bits, op = int(v), op
        case ir.Binary(op="*" | "/" as sign, left=left, right=ir.Constant(value=v)) if left == carried.var and carried.var.type.is_integer:
            bits, op = int(v).bit_length() - 1, "<<" if sign == "*" else ">>"
            if int(v) != 1 << max(bits, 0) or (sign == "/" and carried.var.type.is_signed and not _positive(loop, carried.var)):
                return None
    counter = _iteration(loop, carried.var.type)
    if bits is None or not 0 < bits < 8 or carried.var.type.bits < 32 or counter is None:
        return None
    amount = counter if bits == 1 else ir.Binary("*", counter, b.const(bits, carried.var.type), carried.var.type)
    return ir.Binary(op, carried.init, amount, carried.var.type)


def _turned(loop: ir.For | ir.While, carried: ir.Carried) -> ir.Expr | None:
    """The closed form of `sign = -sign`."""
    counter = _iteration(loop, loop.var.type if isinstance(loop, ir.For) else I32)
    if counter is None or not counter.type.is_integer:
        return None
    odd = b.compare("!=", ir.Binary("&", counter, b.const(1, counter.type), counter.type), b.const(0, counter.type))
    return ir.Select(odd, b.neg(carried.init), carried.init)


def _positive(loop: ir.For | ir.While, var: ir.Var) -> bool:
    """True if an iteration runs only if the variable is greater than 0 at its start."""
    return isinstance(loop, ir.While) and loop.condition == b.compare(">", var, b.const(0, var.type))


def _iteration(loop: ir.For | ir.While, kind: Scalar) -> ir.Expr | None:
    """The number of completed iterations, in a carried variable's type."""
    if isinstance(loop, ir.While):
        return b.cast(loop.counter, kind) if loop.counter is not None else None
    if not isinstance(loop.step, ir.Constant) or not kind.is_integer or kind.bits < loop.var.type.bits:
        return None
    step, own = int(loop.step.value), loop.var.type
    gone = loop.var if b.is_const(loop.start, 0) and step > 0 else b.binary("-", loop.var, loop.start, own)
    gone = b.binary("-", loop.start, loop.var, own) if step < 0 else gone
    return b.cast(gone if abs(step) == 1 else b.binary("/", gone, b.const(abs(step), own), own), kind)


def _way(loop: ir.For | ir.While, kind: Scalar) -> ir.Expr | None:
    """How far the variable of a loop has come."""
    fits = isinstance(loop, ir.For) and kind.is_integer and kind.bits >= loop.var.type.bits
    return b.cast(b.binary("-", loop.var, loop.start, loop.var.type), kind) if fits and isinstance(loop, ir.For) else None


def _in_steps(loop: ir.For | ir.While, expr: ir.Expr) -> ir.Expr | None:
    """How many times the step of a loop an expression is, where it is written as such: the step may be a number of threads."""
    if not isinstance(loop, ir.For):
        return None
    if _uncast(expr) == _uncast(loop.step):
        return b.const(1, expr.type)
    if isinstance(expr, ir.Cast) and expr.type.is_integer and expr.operand.type.is_integer:
        times = _in_steps(loop, expr.operand)
        return None if times is None else b.cast(times, expr.type)
    for factor, other in ((expr.left, expr.right), (expr.right, expr.left)) if isinstance(expr, ir.Binary) and expr.op == "*" else ():
        if (times := _in_steps(loop, factor)) is not None:
            return b.binary("*", times, other, expr.type)
    return None


def _uncast(expr: ir.Expr) -> ir.Expr:
    """An integer without casts that keep all of its bits."""
    while isinstance(expr, ir.Cast) and expr.operand.type.is_integer and expr.type.is_integer and expr.type.bits >= expr.operand.type.bits:
        expr = expr.operand
    return expr


def _moved_by_all(loop: ir.For, carried: ir.Carried) -> ir.Expr | None:
    """The value that a loop between constants leaves of a variable that it moves by a fixed step."""
    moved = _moved(loop, carried.var, _GoingOn(loop).value(carried.next))
    ends = [int(e.value) for e in (loop.start, loop.stop, loop.step) if isinstance(e, ir.Constant)]
    if moved is None or len(ends) < 3:
        return None
    step = b.binary("*", moved.right, b.const(len(range(*ends)), moved.type), moved.type)
    return b.cast(b.binary(moved.op, b.cast(carried.init, moved.type), step, moved.type), carried.var.type)


class _GoingOn:
    """Facts that hold at the end of an iteration that another one follows."""

    def __init__(self, loop: ir.For | ir.While) -> None:
        inside = [s for block in blocks(loop) for s in walk_stmts(block)]
        self.lets = {s.var: s.value for s in inside if isinstance(s, ir.Let)}
        self.ended = {c.result: (s, c) for s in inside if isinstance(s, ir.For) for c in s.carried}
        self.merges = {m.var: (s, m) for s in inside if isinstance(s, ir.If) for m in s.merges}
        self.required = dict(_required(loop))
        for var in self.required.copy():
            self.require(var, self.required[var])

    def require(self, var: ir.Var, wanted: bool) -> None:
        """Takes note that a variable has to be so, and with it the ones that it is merged of."""
        self.required[var] = wanted
        _, merge = self.merges.get(var, (None, None))
        for side in (merge.then, merge.otherwise) if merge is not None else ():
            if isinstance(side, ir.Var):
                self.require(side, wanted)

    def value(self, expr: ir.Expr) -> ir.Expr:
        """An expression without variables that only the way through the body decides."""
        while isinstance(expr, ir.Var):
            if expr in self.lets:
                expr = self.lets[expr]
            elif expr in self.ended and (total := _moved_by_all(*self.ended[expr])) is not None:
                return total
            elif expr in self.merges and (side := self.side(self.merges[expr][0])) is not None:
                merge = self.merges[expr][1]
                expr = merge.then if side == 0 else merge.otherwise
            else:
                break
        return expr

    def side(self, stmt: ir.If) -> int | None:
        """The one side of an If after which the loop may go on; None if there are two."""
        going_on = [k for k in (0, 1) if not any(self.ends(m, k) for m in stmt.merges)]
        return going_on[0] if len(going_on) == 1 else None

    def ends(self, merge: ir.Merge, side: int) -> bool:
        value = merge.then if side == 0 else merge.otherwise
        return merge.var in self.required and isinstance(value, ir.Constant) and bool(value.value) != self.required[merge.var]


def _required(loop: ir.For | ir.While) -> Iterator[tuple[ir.Var, bool]]:
    """The truths that a loop carries and that have to be so, or not so, for an iteration, as they are at the end of the one before."""
    following = {c.var: c.next for c in loop.carried}
    for term in b.conjuncts(loop.condition) if isinstance(loop, ir.While) else ():
        match term:
            case ir.Unary(op="!", operand=ir.Var() as var):
                after, wanted = following.get(var), False
            case ir.Var():
                after, wanted = following.get(term), True
            case _:
                continue
        if isinstance(after, ir.Var):
            yield after, wanted
