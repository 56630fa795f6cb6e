"""Numerators of divisions in place: they follow from the quotient, which the launch leaves in memory, and the divisor.

A softmax that divides its row in place (`x[k] /= sum`) leaves quotients, of which the exponentials before are `x[k] * sum`, to a rounding.
So the reverse needs the sum, and of the row nothing that was there before. That holds for what the division itself loads, and for what a
loop over the same elements before it has loaded or stored there, if nothing but the division writes to them later.

Not for values on which something is decided: it could be decided otherwise for what is rounded otherwise. And not where something else of
the launch is made of them: a quotient that is too small for its type says nothing of its numerator any more, but what the numerator adds
to the adjoint by way of the division is too small then as well.

Assumes a primal with unique definitions. Guarantees valid IR; what is written later is for `to_be_recorded`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..analysis.decisions import decided_by, reached_from
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, bound_in, defined, expressions, spelled, substitute, target, used_vars, walk_stmts


@dataclass(frozen=True, eq=False)
class UndoneValue:
    """A numerator that `access` has loaded or stored: what `store` leaves at `index`, times the `divisor`. `early`: the divisor is known
    where the forward sweep comes to the numerator too, and what it stores may be of it. `behind`: the variable of the divisor that is
    defined after the numerator in its block, if one is; there it has its value."""

    access: ir.Load | ir.Store
    store: ir.Store
    index: ir.Expr
    divisor: ir.Expr
    early: bool
    behind: ir.Var | None = None

    def computed(self, var: ir.Var, names: Names) -> ir.Block:
        """What gives the value."""
        quotient = names.var(var.name, var.type)
        load = ir.Load(quotient, self.store.buffer, self.index, span=self.store.span, note="the quotient is still there")
        return (load, ir.Let(var, ir.Binary("*", quotient, self.divisor, var.type), span=self.access.span))


def undone_values(kernel: ir.Kernel) -> dict[ir.Var, UndoneValue]:
    """The numerators of a kernel, by their variables."""
    found: dict[ir.Var, UndoneValue] = {}
    for var, value in _in_block(kernel.body):
        if decided_by(kernel, var, memory=False) is None and not _goes_elsewhere(kernel, var, value.store.buffer):
            found.setdefault(var, replace(value, early=value.early and decided_by(kernel, var) is None))
    return found


def _goes_elsewhere(kernel: ir.Kernel, var: ir.Var, buffer: ir.Buffer) -> bool:
    """True if what is made of a variable, or of what this memory may hold, is stored to other memory of the launch."""
    reached = reached_from(kernel, var)
    writes = (s for s in walk_stmts(kernel.body) if (to := target(s)) is not None and to.length is None and to != buffer)
    return any(v in reached for s in writes for e in expressions(s) for v in ir.variables(e))


@dataclass(frozen=True)
class _Division:
    """A store of a block that divides what the block has loaded from the same element."""

    load: ir.Load
    store: ir.Store
    divisor: ir.Expr
    behind: ir.Var | None


def _in_block(block: ir.Block) -> Iterator[tuple[ir.Var, UndoneValue]]:
    for division in _divisions(block):
        yield division.load.var, UndoneValue(division.load, division.store, division.load.index, division.divisor, True, division.behind)
    for at, loop in enumerate(block):
        if isinstance(loop, ir.For):
            for division in _divisions(loop.body):
                yield from _before(block[:at], loop, division)
        for inner in blocks(loop):
            yield from _in_block(inner)


def _divisions(block: ir.Block) -> Iterator[_Division]:
    lets = _lets(block)
    loads = {s.var: at for at, s in enumerate(block) if isinstance(s, ir.Load)}
    homes = {v: at for at, s in enumerate(block) for v in defined(s)}
    for stmt in block:
        if not isinstance(stmt, ir.Store) or stmt.buffer.length is not None or stmt.buffer.element != stmt.value.type:
            continue
        value = lets.get(stmt.value, stmt.value) if isinstance(stmt.value, ir.Var) else stmt.value
        match value:
            case ir.Binary(op="/", left=ir.Var() as numerator, right=divisor) if value.type.is_float and numerator in loads:
                load = block[loads[numerator]]
                assert isinstance(load, ir.Load)
                same = load.buffer == stmt.buffer and spelled(load.index, lets) == spelled(stmt.index, lets) is not None
                last = max((v for v in ir.variables(divisor) if v in homes), key=homes.__getitem__, default=None)
                behind = last if last is not None and homes[last] > loads[numerator] else None
                between = block[loads[numerator] : homes[behind] + 1] if behind is not None else ()
                if same and numerator not in (*used_vars(between), *ir.variables(divisor)):
                    yield _Division(load, stmt, divisor, behind)


def _before(block: ir.Block, loop: ir.For, division: _Division) -> Iterator[tuple[ir.Var, UndoneValue]]:
    """What loops of a block over the same elements have loaded, or stored there, before `loop` divides them."""
    if any(v in bound_in(loop) for v in ir.variables(division.divisor)):
        return
    divided = _place(loop, division.store)
    for other in block:
        if not isinstance(other, ir.For) or (other.start, other.stop, other.step) != (loop.start, loop.stop, loop.step) or divided is None:
            continue
        for stmt in other.body:
            if not isinstance(stmt, ir.Load | ir.Store) or stmt.buffer != division.store.buffer:
                continue
            place = _place(other, stmt)
            var = stmt.var if isinstance(stmt, ir.Load) else stmt.value
            own = [v for s in other.body if isinstance(s, ir.Let | ir.Load) for v in defined(s) if v.type == division.load.var.type]
            if isinstance(var, ir.Var) and var in own and place is not None and substitute(place, {other.var: loop.var}) == divided:
                yield var, UndoneValue(stmt, division.store, place, division.divisor, False)


def _place(loop: ir.For, stmt: ir.Load | ir.Store) -> ir.Expr | None:
    """The element of an iteration, by the loop's variable and what is known before the loop."""
    index, inside = spelled(stmt.index, _lets(loop.body)), bound_in(loop) - {loop.var}
    return None if index is None or any(v in inside for v in ir.variables(index)) else index


def _lets(block: ir.Block) -> Mapping[ir.Var, ir.Expr]:
    return {s.var: s.value for s in block if isinstance(s, ir.Let)}
