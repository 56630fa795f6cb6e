"""Materialisation: intermediate results of a thread's loops, stored by a kernel of their own so that a gather need not recompute them.

In the adjoint of `v[i] = f(sum of g(u[i + k]) over k)` thread i adds to all `du[i + k]` what its sum has to do with them. The thread that
collects for an element has many senders, and would have to go through each sender's loop for that sum. So a kernel of its own goes through
the loops first, and each thread keeps what they come to, an element for each thread and number; the rest of the adjoint reads it.

Assumes: an adjoint without stacks and barriers. Guarantees: valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir import folding
from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, bound, expressions, expressions_in, map_blocks, walk_stmts
from ..ir.types import F32, F64, I32
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.thread_indices import AXES, Geometry
from .gather import Three, only, threads_of
from .gather_kernel import global_index

MOST = 4  # numbers that a thread keeps


@dataclass(frozen=True, eq=False)
class Materialisation:
    """The arrays, of an element for each thread; what fills them, and the adjoint that reads them. `threads`: variables for the number of
    the launch's threads along x, y and z; `geometry`: what a launch is taken to be like, so that threads have elements of their own."""

    buffers: tuple[ir.Buffer, ...]
    filling: ir.Block
    reading: ir.Block
    threads: Three
    geometry: Geometry


def materialise(body: ir.Block, shadows: Collection[ir.Buffer], names: Names) -> Materialisation | None:
    """What has to be kept so that collecting for the shadows goes through no sender's loops; None if nothing, or what cannot be kept."""
    wanted = _Wanted(shadows, assigned_vars(body))
    wanted.block(body, ())
    if not wanted.found or len(wanted.found) > MOST or not all(v.type in (F32, F64) for v in wanted.found):
        return None
    if not wanted.found <= wanted.replaceable:
        return None
    threads = threads_of(names)
    arrays = {v: names.buffer(f"{v.name}_partial", v.type) for v in sorted(wanted.found, key=lambda v: v.uid)}
    indices, geometry = _indices(body)
    place = _place(body, indices, threads)
    rewrite = _Rewrite(arrays, place, names)
    return Materialisation(
        tuple(arrays.values()),
        eliminate_dead_code(rewrite.filling(only(body, {}, ()))),
        eliminate_dead_code(rewrite.reading(body)),
        threads,
        geometry,
    )


class _Wanted:
    """Goes through what a thread does outside of loops. `heavy`: what comes out of loops; `late`: out of such as add to the shadows;
    `found`: what of the heavy such loops use, and what is added outside of them; `replaceable`: what is defined outside of loops."""

    def __init__(self, shadows: Collection[ir.Buffer], mutable: Collection[ir.Var]) -> None:
        self.shadows = shadows
        self.heavy: set[ir.Var] = set()
        self.late: set[ir.Var] = set()
        self.mutable = frozenset(mutable)
        self.found: set[ir.Var] = set()
        self.replaceable: set[ir.Var] = set()

    def block(self, block: ir.Block, around: tuple[ir.Expr, ...]) -> None:
        for stmt in block:
            self.stmt(stmt, around)

    def stmt(self, stmt: ir.Stmt, around: tuple[ir.Expr, ...]) -> None:
        if isinstance(stmt, ir.For | ir.While):
            self.loop(stmt, around)
            return
        if isinstance(stmt, ir.If):
            inner = (*around, stmt.condition)
            self.block(stmt.then, inner)
            self.block(stmt.otherwise, inner)
            ends = ((m.var, (m.then, m.otherwise, *inner)) for m in stmt.merges)
        else:
            ends = ((v, (*expressions(stmt), *around)) for v in bound(stmt))
        for var, made_of in ends:
            self.define(var, made_of)
        if isinstance(stmt, ir.Assign):
            self.define(stmt.var, (stmt.value, *around))
        if not isinstance(stmt, ir.Take) and not self.mutable & set(bound(stmt)):
            self.replaceable.update(bound(stmt))
        if self.adds(stmt):
            self.found.update((self.heavy & _variables((*expressions(stmt), *around))) - self.late)

    def define(self, var: ir.Var, made_of: Iterable[ir.Expr]) -> None:
        used = _variables(made_of)
        if used & self.heavy:
            self.heavy.add(var)
        if used & self.late:
            self.late.add(var)

    def loop(self, loop: ir.For | ir.While, around: tuple[ir.Expr, ...]) -> None:
        inside = list(walk_stmts((loop,)))
        adds = any(self.adds(s) for s in inside)
        if adds:
            used = (e for s in inside for e in expressions(s))
            self.found.update(self.heavy & _variables((*used, *around)))
        results = {c.result for c in loop.carried} | {s.var for s in inside if isinstance(s, ir.Assign)}
        if isinstance(loop, ir.While) and loop.count is not None:
            results.add(loop.count)
        self.heavy |= results
        self.late |= results if adds else set()
        self.replaceable |= {c.result for c in loop.carried}

    def adds(self, stmt: ir.Stmt) -> bool:
        return isinstance(stmt, ir.Accumulate) and stmt.buffer in self.shadows and stmt.how is ir.How.UNDECIDED


def _variables(exprs: Iterable[ir.Expr]) -> set[ir.Var]:
    return {v for e in exprs for v in ir.variables(e)}


def _indices(body: ir.Block) -> tuple[dict[str, ir.Expr], Geometry]:
    """A thread's index along each axis, in those words that the kernel has for it, and what they take for granted of a launch."""
    used = {e for top in expressions_in(body) for e in ir.walk(top) if isinstance(e, ir.LaunchIndex)}
    names = {axis: {e.name for e in used if e.axis == axis} & {"blockIdx", "threadIdx"} for axis in AXES}
    found: dict[str, ir.Expr] = {}
    for axis in (a for a in AXES if names[a]):
        name, *others = names[axis]
        found[axis] = global_index(axis) if others else ir.LaunchIndex(name, axis)
    widths = {axis: 1 for axis in AXES if "threadIdx" not in names[axis]}
    return found, Geometry(widths, frozenset(axis for axis in AXES if "blockIdx" not in names[axis]))


def _place(body: ir.Block, indices: Mapping[str, ir.Expr], threads: Three) -> ir.Expr:
    """The number of a thread, in rows along x."""
    names = {s.value: s.var for s in _leading(body)}
    place: ir.Expr | None = None
    for axis, index in reversed(list(indices.items())):
        here = folding.cast(index, I32)
        here = names.get(here, here)
        place = here if place is None else ir.Binary("+", ir.Binary("*", place, threads[AXES.index(axis)], I32), here, I32)
    assert place is not None
    return place


def _leading(body: ir.Block) -> Iterator[ir.Let]:
    """The definitions with which a kernel begins."""
    for stmt in body:
        if not isinstance(stmt, ir.Let):
            return
        yield stmt


@dataclass
class _Rewrite:
    """Puts stores to the arrays behind the definitions of the numbers, or reads in their place."""

    arrays: dict[ir.Var, ir.Buffer]
    place: ir.Expr
    names: Names

    def filling(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            out.append(stmt if isinstance(stmt, ir.For | ir.While) else map_blocks(stmt, self.filling))
            ends = [v for v in _ends(stmt) if v in self.arrays]
            out += [ir.Store(self.arrays[v], self.place, v, span=stmt.span) for v in ends]
        return tuple(out)

    def reading(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            ends = [v for v in _ends(stmt) if v in self.arrays]
            match stmt:
                case ir.If(then=then, otherwise=otherwise, merges=merges):
                    left = tuple(m for m in merges if m.var not in ends)
                    out.append(replace(stmt, then=self.reading(then), otherwise=self.reading(otherwise), merges=left))
                case ir.For(carried=carried) | ir.While(carried=carried):
                    fresh = {v: self.names.var(v.name, v.type) for v in ends}
                    out.append(replace(stmt, carried=tuple(replace(c, result=fresh.get(c.result, c.result)) for c in carried)))
                case _ if not ends:
                    out.append(stmt)
            out += [ir.Load(v, self.arrays[v], self.place, span=stmt.span) for v in ends]
        return tuple(out)


def _ends(stmt: ir.Stmt) -> tuple[ir.Var, ...]:
    """What a statement defines for those behind it."""
    return tuple(c.result for c in stmt.carried) if isinstance(stmt, ir.For | ir.While) else bound(stmt)
