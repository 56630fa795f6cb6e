"""Gathering: scattered accumulations as a kernel in which the thread that owns an element computes all contributions to it.

A stencil `v[i] = f(u[i - 1], u[i], u[i + 1])` has an adjoint in which thread i adds to three elements of `du`. What thread `i` adds to
`du[i + 1]` may as well be computed by thread `j = i + 1`, if that thread puts itself in the place of `j - 1`: evaluates its guards, reads
its seeds, forms its partials. A *slice* is the part of the adjoint that one such contribution needs; in the gather kernel it stands once
for each *shift* between the sending and the receiving thread, with the sender's index in place of the thread's own.

That every contribution is counted once holds for any shift, since moving the work of all threads by one vector is one-to-one. What shifts
are good for, all contributions to an element meeting in one thread, is looked for here in the indices' polynomials and proved at each
launch (`accumulate.gather_launch`). The gather kernel writes nothing that it reads; what else the adjoint does runs after it (rule 2 of the
contract).

Assumes: an adjoint without stacks and barriers. Guarantees: valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    Names,
    assigned_vars,
    defined,
    edit,
    expressions_in,
    holds,
    map_blocks,
    map_expr,
    map_exprs,
    substitute,
    used_vars,
    walk_stmts,
)
from ..ir.types import I32
from ..optimize.common_subexpressions import folded
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.delinearisation import delinearise
from ..optimize.piecewise_affine import cancelled
from ..optimize.privatisation import inline_constant_tables
from ..optimize.simplify import simplify
from ..optimize.thread_indices import AXES, Geometry, canonicalise_thread_indices, distribute_cyclically
from .access_inversion import MOST_SLICES, AccessInversion, Found, Move, Target

_FORBIDDEN = (ir.Alloc, ir.Atomic, ir.Barrier, ir.Pop, ir.Push, ir.Shuffle)
Three: TypeAlias = "tuple[ir.Var, ir.Var, ir.Var]"
Ends: TypeAlias = "tuple[tuple[ir.Var, ir.Var], tuple[ir.Var, ir.Var], tuple[ir.Var, ir.Var]]"
Axes: TypeAlias = "tuple[bool, bool, bool]"


@dataclass(frozen=True)
class Predicates:
    """The predicates that the gather kernel has to test for a slice: along which axes (x, y, z) that the sender's index is at least 0, that
    it is below the number of the primal's threads, and that the collecting thread's own index is 0. `within`: predicates of senders that
    are gone through, which hold for none beyond the threads; `implied`: those that follow from others; `held`: guards of the slice itself,
    in terms of senders, that hold for all that exist."""

    low: tuple[bool, bool, bool] = (False, False, False)
    high: tuple[bool, bool, bool] = (False, False, False)
    zero: tuple[bool, bool, bool] = (False, False, False)
    within: frozenset[ir.Expr] = frozenset()
    implied: frozenset[ir.Expr] = frozenset()
    held: frozenset[ir.Expr] = frozenset()


@dataclass(frozen=True)
class Sides:
    """Along which axes (x, y, z) the gather kernel begins before index 0, and what it tests for each slice."""

    before: tuple[bool, bool, bool]
    needed: tuple[Predicates | None, ...]  # None: nothing is sent


@dataclass(frozen=True, eq=False)
class Slice:
    """What senders send over a move: statements of the adjoint over the indices `Gather.sender`, with the accumulations as they were. The
    loops of the move are not in `block`: their variables are given."""

    move: Move
    block: ir.Block


@dataclass(frozen=True, eq=False)
class Gather:
    """The accumulations into some shadows, by move. `sender`: variables that stand for a thread's global index; `body`: the adjoint over
    them; `geometry`: what the kernel takes for granted of a launch; `loops`: by their variables;
    `lanes`: of which shadow a target is one; `tables`: what makes the arrays of constants that slices may read; `first`, `threads`: scalar
    parameters of the gather kernel, the least index along an axis, and the number of the primal's threads; `boxes`: for each shadow, along
    each axis, the first index of the threads whose elements are known to be zero, and the one after the last."""

    body: ir.Block
    sender: tuple[ir.Var, ir.Var, ir.Var]
    scalars: frozenset[ir.Var]
    geometry: Geometry
    loops: Mapping[ir.Var, ir.For]
    slices: tuple[Slice, ...]
    targets: tuple[Target, ...]
    lanes: Mapping[ir.Buffer, ir.Buffer]
    tables: ir.Block
    first: Three
    threads: Three
    own: Three  # the collecting thread's index
    boxes: Mapping[ir.Buffer, Ends]

    @property
    def variables(self) -> tuple[ir.Var, ...]:
        """The variables that are not the adjoint's."""
        ends = (v for pairs in self.boxes.values() for pair in pairs for v in pair)
        return (*self.sender, *self.first, *self.threads, *self.own, *ends)

    @property
    def buffers(self) -> frozenset[ir.Buffer]:
        """The shadows that are gathered."""
        return frozenset(self.lanes.values())


# --- finding shifts ----------------------------------------------------------------------------------------------------------------------


def gather(
    body: ir.Block,
    shadows: Mapping[ir.Buffer, int],
    params: Collection[ir.Var | ir.Buffer],
    names: Names,
    threads: Three | None = None,
    *,
    by_digits: bool = False,
) -> Gather | None:
    """The accumulations into those of the shadows that can be gathered, or None if there are none; what a launch has to prove is left to
    it. Of each shadow: which of several ways to see its accumulations (`Shifts.of`). `threads`: what `body` calls the number of threads.
    `by_digits`: a thread is known by the digits of its index, and where it takes none apart there is nothing to gather."""
    body = _without_sums(body)
    tables, body = inline_constant_tables(body) if holds(body, ir.Alloc) else ((), body)
    if not is_movable(body):
        return None
    indices = {axis: names.var(axis, I32) for axis in AXES}
    threads = threads or threads_of(names)
    numbers = dict(zip(AXES, threads, strict=True))
    written, geometry = canonicalise_thread_indices(body, indices, numbers)
    scalars = frozenset(p for p in params if isinstance(p, ir.Var))
    written, indices, iterations = distribute_cyclically(written, indices, numbers, scalars, names)
    geometry = replace(geometry, iterations=iterations)
    if by_digits:
        taken = delinearise(written, indices, scalars, names)
        if taken is None:
            return None
        written, geometry = taken[0], replace(geometry, digits=taken[1])
    named = _chosen(written)
    x, y, z = (names.var(_name_of(named, v), I32) for v in indices.values())
    sender = x, y, z
    whole = _renamed(named, dict(zip(indices.values(), sender, strict=True)))
    finder = AccessInversion(whole, sender, scalars | {*threads}, names)
    found = {buffer: shifts for buffer, rank in shadows.items() if (shifts := finder.of(buffer, rank)) is not None}
    loops = {v: loop for shadow in found.values() for v, loop in shadow.loops.items()}
    slices = _slices(whole, found)
    while bad := {b for s in slices if not _is_good(s, loops) for b in _owners(s, found)}:
        found = {buffer: shifts for buffer, shifts in found.items() if buffer not in bad}
        slices = _slices(whole, found)
    if not found or len(slices) > MOST_SLICES:
        return None
    first = tuple(names.var(f"first_{a}", I32) for a in AXES)
    own = tuple(names.var(name, I32) for name in _names_along(slices, sender))
    return Gather(
        body=whole,
        sender=sender,
        scalars=finder.scalars,
        geometry=geometry,
        loops=loops,
        slices=slices,
        targets=tuple(t for shadow in found.values() for t in shadow.targets),
        lanes={t.buffer: buffer for buffer, shadow in found.items() for t in shadow.targets},
        tables=tables,
        first=first,  # type: ignore[arg-type]
        threads=threads,
        own=own,  # type: ignore[arg-type]
        boxes={buffer: _ends(names) for buffer in found},
    )


def _without_sums(body: ir.Block) -> ir.Block:
    """The body without what is added to numbers of all threads, which is no business of others."""
    sums = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Accumulate) and s.how is ir.How.REDUCED}
    sums -= {getattr(s, "buffer", None) for s in walk_stmts(body) if not isinstance(s, ir.Accumulate)}
    return eliminate_dead_code(_but(body, sums)) if sums else body


def threads_of(names: Names) -> Three:
    """Variables for the number of the primal's threads along x, y and z."""
    return names.var("threads_x", I32), names.var("threads_y", I32), names.var("threads_z", I32)


def _ends(names: Names) -> Ends:
    x, y, z = ((names.var(f"from_{a}", I32), names.var(f"to_{a}", I32)) for a in AXES)
    return x, y, z


def is_movable(body: ir.Block) -> bool:
    """True if parts of the adjoint may be run by other threads, or in another order."""
    return not any(isinstance(s, _FORBIDDEN) or (isinstance(s, ir.Assign) and not s.var.type.is_float) for s in walk_stmts(body))


def _name_of(body: ir.Block, index: ir.Var) -> str:
    """What the user calls the index."""
    lets = (s for s in walk_stmts(body) if isinstance(s, ir.Let))
    return next((s.var.name for s in lets if s.value == index or (isinstance(s.value, ir.Cast) and s.value.operand == index)), index.name)


def _names_along(slices: Sequence[Slice], sender: Three) -> list[str]:
    """What the user calls what tells a thread's element along each axis, an index of threads or of a loop that stands in its place; the
    axes where these have changed places."""
    found = [{v.name for piece in slices if (v := piece.move.solved[k]) is not None} for k in range(3)]
    several = AXES if sum(len(names) > 1 for names in found) > 1 else [v.name for v in sender]
    return [names.pop() if len(names) == 1 else other for names, other in zip(found, several, strict=True)]


# --- slices ------------------------------------------------------------------------------------------------------------------------------


def _slices(body: ir.Block, found: Mapping[ir.Buffer, Found]) -> tuple[Slice, ...]:
    """For each move what its accumulations need, the straight one first."""
    groups: dict[Move, dict[int, ir.Block]] = {}
    for shadow in found.values():
        for where, pieces in shadow.sent.items():
            for sent in pieces:
                group = groups.setdefault(sent.move, {})
                group[where] = (*group.get(where, ()), *_guarded(sent.condition, sent.lane, sent.index))
    order = sorted(groups, key=lambda m: not m.is_straight)
    return tuple(Slice(move, eliminate_dead_code(_straightened(only(body, groups[move], move.loops), dict(move.bends)))) for move in order)


def _straightened(block: ir.Block, bends: Mapping[ir.Expr, ir.Expr]) -> ir.Block:
    """The block with nodes that bend as what they come to."""
    return map_exprs(block, lambda top: map_expr(top, lambda e: bends.get(e, folded(e)))) if bends else block


def _renamed(body: ir.Block, senders: Mapping[ir.Var, ir.Var]) -> ir.Block:
    """The body with these variables for a thread's index, and without other names for it."""
    mutable = assigned_vars(body)
    lets = [s for s in walk_stmts(body) if isinstance(s, ir.Let) and s.var not in mutable and s.var.type == I32]
    names = {
        s.var: substitute(s.value, senders)
        for s in lets
        if s.value in senders or (isinstance(s.value, ir.Cast) and s.value.operand in senders)
    }
    return without_lets(replaced(body, {**senders, **names}), frozenset(names))


def replaced(block: ir.Block, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Block:
    """The block with these Vars replaced, and folded."""
    return map_exprs(block, lambda e: replaced_in(e, mapping))


def replaced_in(expr: ir.Expr, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    """The expression with these Vars replaced, and folded."""
    return cancelled(map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, ir.Var) else folded(e)))


def without_lets(block: ir.Block, names: Collection[ir.Var]) -> ir.Block:
    """The block without the definitions of these Vars."""
    return edit(block, lambda s: () if isinstance(s, ir.Let) and s.var in names else None)


def _but(block: ir.Block, gathered: Collection[ir.Buffer]) -> ir.Block:
    return edit(block, lambda s: () if isinstance(s, ir.Accumulate) and s.buffer in gathered else None)


def _chosen(block: ir.Block) -> ir.Block:
    """The block with integers that are chosen by an If alone as choices."""
    out: list[ir.Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, _chosen)
        if isinstance(stmt, ir.If) and _only_chooses(stmt):
            out += (*stmt.then, *stmt.otherwise)
            out += [ir.Let(m.var, b.select(stmt.condition, m.then, m.otherwise), span=stmt.span) for m in stmt.merges]
        else:
            out.append(stmt)
    return tuple(out)


def _only_chooses(stmt: ir.If) -> bool:
    names = [v for s in (*stmt.then, *stmt.otherwise) for v in defined(s)]
    lets = all(isinstance(s, ir.Let) for s in (*stmt.then, *stmt.otherwise)) and len(set(names)) == len(names)
    return lets and bool(stmt.merges) and all(m.var.type.is_integer for m in stmt.merges)


def _guarded(condition: ir.Expr | None, lane: ir.Buffer, index: ir.Expr) -> ir.Block:
    """An accumulation in place of the user's, whose value it takes over."""
    add = ir.Accumulate(lane, index, b.zero(lane.element))
    return (add,) if condition is None else (ir.If(condition, (add,)),)


def only(block: ir.Block, kept: Mapping[int, ir.Block], opened: Collection[ir.Var]) -> ir.Block:
    """The block in which nothing is written but by what is `kept` in place of accumulations; the bodies of loops that are `opened` stand
    for themselves."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.Take):
            stmt = ir.Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span)
        if isinstance(stmt, ir.Accumulate) and id(stmt) in kept:
            out += _valued(kept[id(stmt)], stmt)
        elif isinstance(stmt, ir.Store | ir.Accumulate):
            continue
        elif isinstance(stmt, ir.For) and stmt.var in opened:
            out += only(stmt.body, kept, opened)
        else:
            out.append(map_blocks(stmt, lambda inner: only(inner, kept, opened)))
    return tuple(out)


def _valued(pieces: ir.Block, stmt: ir.Accumulate) -> ir.Block:
    """The pieces with the value of the accumulation."""

    def filled(piece: ir.Stmt) -> ir.Stmt:
        if isinstance(piece, ir.Accumulate):
            return replace(piece, value=stmt.value, span=stmt.span, note=stmt.note)
        return map_blocks(piece, lambda inner: tuple(filled(s) for s in inner))

    return tuple(filled(p) for p in pieces)


def _owners(piece: Slice, found: Mapping[ir.Buffer, Found]) -> set[ir.Buffer]:
    """The shadows that a slice adds to."""
    adds = {s.buffer for s in walk_stmts(piece.block) if isinstance(s, ir.Accumulate)}
    return {buffer for buffer, shadow in found.items() for t in shadow.targets if t.buffer in adds}


def _is_good(piece: Slice, loops: Mapping[ir.Var, ir.For]) -> bool:
    """True if a slice knows of its thread no more than the global index, and needs nothing that its loops carry; loops in loops would be
    run more often than the user's."""
    if any(isinstance(e, ir.LaunchIndex) for top in expressions_in(piece.block) for e in ir.walk(top)):
        return False
    if not piece.move.loops and not piece.move.spread:
        return True
    carried = {v for w in piece.move.loops for c in loops[w].carried for v in (c.var, c.result)}
    used = set(used_vars(piece.block))
    return not carried & used and not any(isinstance(s, ir.For | ir.While | ir.Assign) for s in walk_stmts(piece.block))


def rest(
    body: ir.Block, gathered: Collection[ir.Buffer], plain: Collection[ir.Buffer], left: Collection[ir.Buffer], first_own: int
) -> ir.Block:
    """What of the adjoint is left to a second launch: all but the accumulations that are gathered. What is only taken to be cleared is
    stored to; not even that if it is in `left`."""
    kept = eliminate_dead_code(_but(body, gathered))
    used = set(used_vars(kept))
    return simplify(eliminate_dead_code(_cleared(kept, used, plain, left)), first_own)


def _cleared(block: ir.Block, used: Collection[ir.Var], plain: Collection[ir.Buffer], left: Collection[ir.Buffer]) -> ir.Block:
    def change(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.Take) or stmt.var in used or stmt.buffer not in plain:
            return None
        clear = ir.Store(stmt.buffer, stmt.index, b.zero(stmt.buffer.element), span=stmt.span, note=stmt.note)
        return () if stmt.buffer in left else (clear,)

    return edit(block, change)
