"""Forward mode of atomic maxima and minima: memory gets the tangent of the number that it keeps.

Whose number stays is known when all threads are done (`winners`). On a shared array that is at the next barrier: behind it the thread
whose mark is the content stores its tangent, and another barrier follows. On memory of the launch it is at the end: each operation writes
down its mark, its place and its tangent, and a second launch, of the kernel that `settling` makes, goes through what was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.index_polynomials import definitions, occurs
from ..analysis.to_be_recorded import bound_in
from ..errors import UnsupportedError
from ..ir import build as b
from ..ir.atomics import bits
from ..ir.names import Names
from ..ir.nodes import (
    Atomic,
    Barrier,
    Block,
    Buffer,
    Carried,
    Constant,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Merge,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    walk,
)
from ..ir.rewrite import blocks, touches
from ..ir.types import I64
from .argmax_marks import NOBODY, Mark
from .logs import Log, log_of, numbered, numbering, with_loops


@dataclass(frozen=True)
class Kept:
    """An operation and its mark; on memory of the launch the logs of its mark (all bits flipped, so that 0 is nobody's), its place and its
    tangent."""

    stmt: Atomic
    mark: Mark
    logs: tuple[Log, ...]


def kept_of(
    kernel: Kernel, marks: Mapping[int, Mark], tangents: Mapping[Var | Buffer, Buffer], names: Names
) -> tuple[Kernel, dict[Var, Kept]]:
    """The operations with a mark, by the variable of the mark, and the kernel with the variables of the logs' indices."""
    found: dict[Var, Kept] = {}
    lets, numbers = definitions(kernel.body), numbering(names)
    for stmt, loops in with_loops(kernel.body):
        if isinstance(stmt, Atomic) and id(stmt) in marks:
            mark, name = marks[id(stmt)], stmt.buffer.name
            logs: list[Log] = []
            if mark.recorded:
                kinds = (f"{name}_new", mark.var.type), (f"{name}_at", I64), (f"d{name}_new", tangents[stmt.buffer].element)
                logs = [log_of(stmt, names.buffer(f"{n}_saved", t), loops, lets, numbers) for n, t in kinds]
            found[mark.var] = Kept(stmt, mark, tuple(logs))
    return numbered(kernel, numbers) if any(k.logs for k in found.values()) else kernel, found


# --- on memory of the launch --------------------------------------------------------------------------------------------------------------


def written_down(kept: Kept, tangent: Expr) -> Block:
    """What an operation leaves for the second launch."""
    mark = kept.mark.var
    values = (Unary("~", mark, mark.type), b.cast(kept.stmt.index, I64), b.cast(tangent, kept.logs[2].buffer.element))
    return tuple(Store(log.buffer, log.index, v, span=kept.stmt.span) for log, v in zip(kept.logs, values, strict=True))


def settling(kept: Sequence[Kept], tangents: Mapping[Var | Buffer, Buffer], counts: Sequence[Var], names: Names) -> Block:
    """The body of the second launch: each thread goes through its elements of each log, as many as `counts` says."""
    numbers = numbering(names)
    out: list[Stmt] = [*numbers.lets]
    for one, count in zip(kept, counts, strict=True):
        buffer, number = one.stmt.buffer, names.var("number", I64)
        index = numbers.at(number)
        flipped, at, dot = (names.var(log.buffer.name.removesuffix("_saved"), log.buffer.element) for log in one.logs)
        last = names.var(buffer.name, buffer.element)
        kept_here = b.compare("==", Unary("~", flipped, flipped.type), bits(last))
        store = (Load(dot, one.logs[2].buffer, index), Store(tangents[buffer], at, dot))
        inner = (Load(at, one.logs[1].buffer, index), Load(last, buffer, at), If(kept_here, store))
        body = (Load(flipped, one.logs[0].buffer, index), If(b.compare("!=", flipped, b.zero(flipped.type)), inner))
        out.append(For(number, b.zero(I64), count, b.const(1, I64), body, span=one.stmt.span))
    return tuple(out)


# --- on shared arrays ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """A tangent that is stored behind the next barrier, if the mark is the content there. `level`: how many Ifs it was handed out of."""

    kept: Kept
    memory: Buffer
    mark: Var
    at: Expr
    tangent: Expr
    level: int = 0

    def settled(self, names: Names) -> Stmt:
        """What stands behind the barrier."""
        buffer = self.kept.stmt.buffer
        last = names.var(buffer.name, buffer.element)
        store = Store(self.memory, self.at, self.tangent, span=self.kept.stmt.span)
        check = (Load(last, buffer, self.at), If(b.compare("==", self.mark, bits(last)), (store,)))
        return If(b.compare("!=", self.mark, b.const(NOBODY, self.mark.type)), check, span=self.kept.stmt.span)


def behind(barrier: Barrier, pending: Sequence[Pending], names: Names) -> Block:
    """The barrier, the tangents that it lets be stored, and another."""
    return (barrier, *(p.settled(names) for p in pending), barrier) if pending else (barrier,)


def out_of_if(stmt: If, sides: Sequence[Sequence[Pending]], names: Names) -> tuple[If, list[Pending]]:
    """The If that hands out what its sides have left pending."""
    merges: list[Merge] = []
    left: list[Pending] = []
    for side, pending in enumerate(sides):
        for p in pending:
            outside = p.kept.mark.outside
            if p.level < len(outside):
                _, mark = outside[p.level]
            else:  # a loop lies between
                mark, nobody = names.var(p.mark.name, p.mark.type), b.const(NOBODY, p.mark.type)
                merges.append(Merge(mark, p.mark, nobody) if side == 0 else Merge(mark, nobody, p.mark))
            values = []
            for value in (p.at, p.tangent):
                if isinstance(value, Constant):
                    values.append(value)
                    continue
                merged: Var = names.var("at" if value is p.at else f"d{p.kept.stmt.buffer.name}_new", value.type)
                other = b.zero(value.type)
                merges.append(Merge(merged, value, other) if side == 0 else Merge(merged, other, value))
                values.append(merged)  # type: ignore[arg-type]
            left.append(replace(p, mark=mark, at=values[0], tangent=values[1], level=p.level + 1))
    return replace(stmt, merges=(*stmt.merges, *merges)), left


def out_of_loop(loop: For | While, pending: Sequence[Pending], names: Names) -> tuple[For | While, list[Pending]]:
    """The loop that hands out what the last iterations that left something have left. UnsupportedError if that may be several elements."""
    carried: list[Carried] = []
    left: list[Pending] = []
    for p in pending:
        others = (s for inner in blocks(loop) for s in touches(inner, p.kept.stmt.buffer) if not isinstance(s, Atomic))
        if any(others) or any(occurs(e, v) for e in walk(p.at) if isinstance(e, Var) for v in bound_in(loop)):
            raise UnsupportedError(
                f"the tangent of '{p.kept.stmt.buffer.name}' after this atomic '{p.kept.stmt.op}' in a loop, which uses it in other ways "
                "or reaches several elements without a __syncthreads() behind it, is not supported",
                p.kept.stmt.span,
            )
        nobody = b.const(NOBODY, p.mark.type)
        made = b.compare("!=", p.mark, nobody)
        results = []
        for value, init in ((p.mark, nobody), (p.tangent, b.zero(p.tangent.type))):
            name = p.mark.name if value is p.mark else f"d{p.kept.stmt.buffer.name}_new"
            before, result = names.var(name, value.type), names.var(name, value.type)
            carried.append(Carried(before, init, Select(made, value, before), result))
            results.append(result)
        left.append(replace(p, mark=results[0], tangent=results[1]))
    return replace(loop, carried=(*loop.carried, *carried)), left
