"""Forward mode of atomic maxima and minima: memory gets the tangent of the number that it keeps.

Whose number stays is known when all threads are done (`mark_argmax`). On a shared array that is at the next barrier: behind it the thread
whose mark is the content stores its tangent, and another barrier follows. On memory of the launch it is at the end: each operation writes
down its mark, its place and its tangent, and a second launch, of the kernel that `resolve_extrema` makes, goes through what was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.index_polynomials import definitions, occurs
from ..analysis.to_be_recorded import bound_in
from ..errors import UnsupportedError
from ..ir import build as b
from ..ir import nodes as ir
from ..ir.atomics import bits
from ..ir.names import Names
from ..ir.rewrite import blocks, touches
from ..ir.types import I64
from .argmax_marks import NO_MARK, Mark
from .logs import Log, log_of, numbered, numbering, with_loops


@dataclass(frozen=True)
class Kept:
    """An operation and its mark; on memory of the launch the logs of its mark (all bits flipped, so that 0 is no mark), its place and its
    tangent."""

    stmt: ir.Atomic
    mark: Mark
    logs: tuple[Log, ...]


def kept_of(
    kernel: ir.Kernel, marks: Mapping[int, Mark], tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer], names: Names
) -> tuple[ir.Kernel, dict[ir.Var, Kept]]:
    """The operations with a mark, by the variable of the mark, and the kernel with the variables of the logs' indices."""
    found: dict[ir.Var, Kept] = {}
    lets, numbers = definitions(kernel.body), numbering(names)
    for stmt, loops in with_loops(kernel.body):
        if isinstance(stmt, ir.Atomic) and id(stmt) in marks:
            mark, name = marks[id(stmt)], stmt.buffer.name
            logs: list[Log] = []
            if mark.recorded:
                kinds = (f"{name}_new", mark.var.type), (f"{name}_at", I64), (f"d{name}_new", tangents[stmt.buffer].element)
                logs = [log_of(stmt, names.buffer(f"{n}_saved", t), loops, lets, numbers) for n, t in kinds]
            found[mark.var] = Kept(stmt, mark, tuple(logs))
    return numbered(kernel, numbers) if any(k.logs for k in found.values()) else kernel, found


# --- on memory of the launch --------------------------------------------------------------------------------------------------------------


def written_down(kept: Kept, tangent: ir.Expr) -> ir.Block:
    """What an operation leaves for the second launch."""
    mark = kept.mark.var
    values = (ir.Unary("~", mark, mark.type), b.cast(kept.stmt.index, I64), b.cast(tangent, kept.logs[2].buffer.element))
    return tuple(ir.Store(log.buffer, log.index, v, span=kept.stmt.span) for log, v in zip(kept.logs, values, strict=True))


def resolve_extrema(
    kept: Sequence[Kept], tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer], counts: Sequence[ir.Var], names: Names
) -> ir.Block:
    """The body of the second launch: each thread goes through its elements of each log, as many as `counts` says."""
    numbers = numbering(names)
    out: list[ir.Stmt] = [*numbers.lets]
    for one, count in zip(kept, counts, strict=True):
        buffer, number = one.stmt.buffer, names.var("number", I64)
        index = numbers.at(number)
        flipped, at, dot = (names.var(log.buffer.name.removesuffix("_saved"), log.buffer.element) for log in one.logs)
        last = names.var(buffer.name, buffer.element)
        kept_here = b.compare("==", ir.Unary("~", flipped, flipped.type), bits(last))
        store = (ir.Load(dot, one.logs[2].buffer, index), ir.Store(tangents[buffer], at, dot))
        inner = (ir.Load(at, one.logs[1].buffer, index), ir.Load(last, buffer, at), ir.If(kept_here, store))
        body = (ir.Load(flipped, one.logs[0].buffer, index), ir.If(b.compare("!=", flipped, b.zero(flipped.type)), inner))
        out.append(ir.For(number, b.zero(I64), count, b.const(1, I64), body, span=one.stmt.span))
    return tuple(out)


# --- on shared arrays ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """A tangent that is stored behind the next barrier, if the mark is the content there. `level`: how many Ifs it was handed out of."""

    kept: Kept
    memory: ir.Buffer
    mark: ir.Var
    at: ir.Expr
    tangent: ir.Expr
    level: int = 0

    def resolved(self, names: Names) -> ir.Stmt:
        """What stands behind the barrier."""
        buffer = self.kept.stmt.buffer
        last = names.var(buffer.name, buffer.element)
        store = ir.Store(self.memory, self.at, self.tangent, span=self.kept.stmt.span)
        check = (ir.Load(last, buffer, self.at), ir.If(b.compare("==", self.mark, bits(last)), (store,)))
        return ir.If(b.compare("!=", self.mark, b.const(NO_MARK, self.mark.type)), check, span=self.kept.stmt.span)


def behind(barrier: ir.Barrier, pending: Sequence[Pending], names: Names) -> ir.Block:
    """The barrier, the tangents that it lets be stored, and another."""
    return (barrier, *(p.resolved(names) for p in pending), barrier) if pending else (barrier,)


def out_of_if(stmt: ir.If, sides: Sequence[Sequence[Pending]], names: Names) -> tuple[ir.If, list[Pending]]:
    """The If that hands out what its sides have left pending."""
    merges: list[ir.Merge] = []
    left: list[Pending] = []
    for side, pending in enumerate(sides):
        for p in pending:
            outside = p.kept.mark.outside
            if p.level < len(outside):
                _, mark = outside[p.level]
            else:  # a loop lies between
                mark, unmarked = names.var(p.mark.name, p.mark.type), b.const(NO_MARK, p.mark.type)
                merges.append(ir.Merge(mark, p.mark, unmarked) if side == 0 else ir.Merge(mark, unmarked, p.mark))
            values = []
            for value in (p.at, p.tangent):
                if isinstance(value, ir.Constant):
                    values.append(value)
                    continue
                merged: ir.Var = names.var("at" if value is p.at else f"d{p.kept.stmt.buffer.name}_new", value.type)
                other = b.zero(value.type)
                merges.append(ir.Merge(merged, value, other) if side == 0 else ir.Merge(merged, other, value))
                values.append(merged)  # type: ignore[arg-type]
            left.append(replace(p, mark=mark, at=values[0], tangent=values[1], level=p.level + 1))
    return replace(stmt, merges=(*stmt.merges, *merges)), left


def out_of_loop(loop: ir.For | ir.While, pending: Sequence[Pending], names: Names) -> tuple[ir.For | ir.While, list[Pending]]:
    """The loop that hands out what the last iterations that left something have left. UnsupportedError if that may be several elements."""
    carried: list[ir.Carried] = []
    left: list[Pending] = []
    for p in pending:
        others = (s for inner in blocks(loop) for s in touches(inner, p.kept.stmt.buffer) if not isinstance(s, ir.Atomic))
        if any(others) or any(occurs(e, v) for e in ir.walk(p.at) if isinstance(e, ir.Var) for v in bound_in(loop)):
            raise UnsupportedError(
                f"the tangent of '{p.kept.stmt.buffer.name}' after this atomic '{p.kept.stmt.op}' in a loop, which uses it in other ways "
                "or reaches several elements without a __syncthreads() behind it, is not supported",
                p.kept.stmt.span,
            )
        unmarked = b.const(NO_MARK, p.mark.type)
        made = b.compare("!=", p.mark, unmarked)
        results = []
        for value, init in ((p.mark, unmarked), (p.tangent, b.zero(p.tangent.type))):
            name = p.mark.name if value is p.mark else f"d{p.kept.stmt.buffer.name}_new"
            before, result = names.var(name, value.type), names.var(name, value.type)
            carried.append(ir.Carried(before, init, ir.Select(made, value, before), result))
            results.append(result)
        left.append(replace(p, mark=results[0], tangent=results[1]))
    return replace(loop, carried=(*loop.carried, *carried)), left
