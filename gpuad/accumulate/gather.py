"""Gathering: scattered accumulations as a kernel in which the thread that owns an element computes all contributions to it.

A stencil `v[i] = f(u[i - 1], u[i], u[i + 1])` has an adjoint in which thread i adds to three elements of `du`. What thread `i` adds to
`du[i + 1]` may as well be computed by thread `j = i + 1`, if that thread puts itself in the place of `j - 1`: evaluates its guards, reads
its seeds, forms its partials. A *slice* is the part of the adjoint that one such contribution needs; in the gather kernel it stands once
for each *shift* between the sending and the receiving thread, with the sender's index in place of the thread's own.

That every contribution is counted once holds for any shift, since moving the work of all threads by one vector is one-to-one. What shifts
are good for, all contributions to an element meeting in one thread, is looked for here in the indices' polynomials and proved at each
launch (`accumulate.gather_launch`). The gather kernel writes nothing that it reads; what else the adjoint does runs after it (RULES 2).

Assumes: an adjoint without stacks and barriers. Guarantees: valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..analysis.index_polynomials import plus, polynomial, scale
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    Names,
    assigned_vars,
    defined,
    edit,
    expressions,
    expressions_in,
    map_blocks,
    map_expr,
    map_exprs,
    substitute,
    used_vars,
    walk_blocks,
    walk_stmts,
)
from ..ir.types import BOOL, I32, Scalar
from ..optimize.common_subexpressions import accumulate_directly, eliminate_common_subexpressions, flattened, folded, merge_control_flow
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.delinearisation import delinearise
from ..optimize.factoring import factor_linear_values, postpone_means
from ..optimize.piecewise_affine import cancelled, written
from ..optimize.privatisation import inline_constant_tables, making
from ..optimize.simplify import simplify
from ..optimize.thread_indices import AXES, Geometry, SimplifiedBounds, canonicalise_thread_indices, conjuncts, distribute_cyclically
from ..optimize.unique import make_unique
from .access_inversion import AccessInversion, Found, Move, Target, sum_type

_FORBIDDEN = (ir.Alloc, ir.Atomic, ir.Barrier, ir.Pop, ir.Push, ir.Shuffle)


MOST_SLICES = 64
Three: TypeAlias = "tuple[ir.Var, ir.Var, ir.Var]"
Ends: TypeAlias = "tuple[tuple[ir.Var, ir.Var], tuple[ir.Var, ir.Var], tuple[ir.Var, ir.Var]]"
Axes: TypeAlias = "tuple[bool, bool, bool]"


@dataclass(frozen=True)
class Asked:
    """What the gather kernel has to ask for a slice: along which axes (x, y, z) whether the sender's index is at least 0, whether it is
    below the number of the primal's threads, and whether the collecting thread's own index is 0. `within`: what is asked of senders that
    are gone through, and holds for none beyond the threads; `implied`: what follows from that; `held`: what the slice itself asks, in terms
    of senders, and holds for all that exist."""

    low: tuple[bool, bool, bool] = (False, False, False)
    high: tuple[bool, bool, bool] = (False, False, False)
    zero: tuple[bool, bool, bool] = (False, False, False)
    within: frozenset[ir.Expr] = frozenset()
    implied: frozenset[ir.Expr] = frozenset()
    held: frozenset[ir.Expr] = frozenset()


@dataclass(frozen=True)
class Sides:
    """Along which axes (x, y, z) the gather kernel begins before index 0, and what it asks for each slice."""

    before: tuple[bool, bool, bool]
    asked: tuple[Asked | None, ...]  # None: nothing is sent


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
    tables, body = inline_constant_tables(_without_sums(body))
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
    """Whether parts of the adjoint may be run by other threads, or in another order."""
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
    return _without(_replaced(body, {**senders, **names}), frozenset(names))


def _replaced(block: ir.Block, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Block:
    return map_exprs(block, lambda e: _placed(e, mapping))


def _without(block: ir.Block, names: Collection[ir.Var]) -> ir.Block:
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
    """Whether a slice knows of its thread no more than the global index, and needs nothing that its loops carry; loops in loops would be
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


# --- the kernel --------------------------------------------------------------------------------------------------------------------------


def indices(gathered: Gather, sides: Sides, wanted: Collection[ir.Var]) -> tuple[ir.Let, ...]:
    """The definitions of those of the collecting thread's indices that are wanted."""
    out = []
    for axis, own, first, before in zip(AXES, gathered.own, gathered.first, sides.before, strict=True):
        if own in wanted:
            here = b.cast(global_index(axis), I32)
            out.append(ir.Let(own, b.binary("+", here, first, I32) if before else here))
    return tuple(out)


def global_index(axis: str) -> ir.Expr:
    """A thread's number among all along an axis, of type uint32."""
    block, extent, thread = (ir.LaunchIndex(n, axis) for n in ("blockIdx", "blockDim", "threadIdx"))
    return ir.Binary("+", ir.Binary("*", block, extent, block.type), thread, block.type)


def questions(gathered: Gather, piece: Slice, asked: Asked) -> list[ir.Expr]:
    """What has to hold of a sender so that a slice is about it, in its own terms: that it exists, that loops that are solved have such an
    iteration, and the move's condition."""
    terms: list[ir.Expr] = []
    for k, (digit, sender) in enumerate(zip(piece.move.solved, gathered.sender, strict=True)):
        if asked.zero[k]:
            terms.append(b.compare("==", gathered.own[k], b.zero(I32)))
        if digit in gathered.loops and digit is not None:
            loop = gathered.loops[digit]
            terms += [b.compare(">=", digit, loop.start), b.compare("<", digit, loop.stop)]
        if asked.low[k]:
            terms.append(b.compare(">=", sender, b.zero(I32)))
        if asked.high[k]:
            terms.append(b.compare("<", sender, gathered.threads[k]))
    return terms + ([piece.move.condition] if piece.move.condition is not None else [])


def placed(gathered: Gather, piece: Slice, sides: Sides, tidied: SimplifiedBounds | None = None) -> ir.Block:
    """A slice in terms of the collecting thread's index, and of its own loops' variables: loops over the digits that are gone through, and
    questions as far outside as they can be asked."""
    asked = sides.asked[next(k for k, s in enumerate(gathered.slices) if s is piece)]
    if asked is None:
        return ()
    mapping = _solution(gathered, piece.move)
    tidied = tidied or tidying(gathered, sides)
    piece = replace(piece, block=without_held(piece.block, asked.held))
    terms = [t for e in questions(gathered, piece, asked) for t in conjuncts(tidied.condition(_placed(e, mapping)))]
    block = tidied.block(eliminate_dead_code(_inlined(_replaced(piece.block, mapping))))
    loops = [gathered.loops[v] for v in piece.move.searched]
    loops += [ir.For(v, b.zero(I32), gathered.threads[gathered.sender.index(v)], b.const(1, I32), ()) for v in piece.move.spread]
    for loop in reversed(loops):
        inner, block = _opened(flattened(block))
        mine = [t for t in (*terms, *inner) if loop.var in ir.variables(t)]
        terms = [t for t in (*terms, *inner) if loop.var not in ir.variables(t)]
        start, stop, mine = _bounds(loop, [t for t in mine if t not in asked.implied], asked.within)
        same: ir.Block = ()
        there = loop.var in piece.move.spread or loop.var in gathered.geometry.loops  # digits of threads, of which there is one at least
        if there and not mine and (start, stop) == (loop.start, loop.stop):
            same, block = _invariant(block, loop.var)
        block = (*same, replace(loop, start=start, stop=stop, body=_under(mine, block), carried=(), backward=False))
    return tidied.block(flattened(_under(terms, block)))


def without_held(block: ir.Block, held: Set[ir.Expr]) -> ir.Block:
    """The block without questions of which it is known that they hold."""
    out: list[ir.Stmt] = []
    for stmt in block if held else ():
        stmt = map_blocks(stmt, lambda inner: without_held(inner, held))
        if isinstance(stmt, ir.If) and not stmt.otherwise and not stmt.merges:
            terms = conjuncts(stmt.condition)
            out += _under([t for t in terms if t not in held], stmt.then) if held & {*terms} else (stmt,)
        else:
            out.append(stmt)
    return tuple(out) if held else block


def _invariant(block: ir.Block, index: ir.Var) -> tuple[ir.Block, ir.Block]:
    """What a block reads and computes first of all that is the same for all values of a loop's index, and the rest."""
    changing, same, rest = {index, *assigned_vars(block)}, list[ir.Stmt](), list[ir.Stmt]()
    for stmt in block:
        if isinstance(stmt, ir.Let | ir.Load) and changing.isdisjoint(v for e in (*expressions(stmt), stmt.var) for v in ir.variables(e)):
            same.append(stmt)
        else:
            changing.update(v for s in walk_stmts((stmt,)) for v in defined(s))
            rest.append(stmt)
    return tuple(same), tuple(rest)


def asked_first(block: ir.Block) -> list[ir.Expr]:
    """The terms of the questions that are asked before a block does anything."""
    return _opened(flattened(block))[0]


def _opened(block: ir.Block) -> tuple[list[ir.Expr], ir.Block]:
    """The terms of the questions that are asked before a block does anything, and what they are asked for."""
    match block:
        case (*before, ir.If(condition=c, then=then, otherwise=(), merges=())) if all(isinstance(s, ir.Let | ir.Load) for s in before):
            names = {v for s in before for v in defined(s)}
            if not names & set(ir.variables(c)):
                terms, rest = _opened((*before, *then))
                return [*conjuncts(c), *terms], rest
    return [], block


def _bounds(loop: ir.For, terms: Sequence[ir.Expr], within: Collection[ir.Expr]) -> tuple[ir.Expr, ir.Expr, list[ir.Expr]]:
    """The bounds of a loop over senders, those `within` being known to lie between its own, and what is left to be asked."""
    start, stop = loop.start, loop.stop
    rest: list[ir.Expr] = []
    for term in terms:
        match term:
            case ir.Binary(op="<", left=left, right=bound) if left == loop.var and term in within and stop == loop.stop:
                stop = bound
            case ir.Binary(op=">=", left=left, right=bound) if left == loop.var and term in within and start == loop.start:
                start = bound
            case _:
                rest.append(term)
    return start, stop, rest


def _inlined(block: ir.Block) -> ir.Block:
    """The block with short names of integers put out."""
    names = {s.var: s.value for s in walk_stmts(block) if isinstance(s, ir.Let) and s.var.type == I32 and _is_short(s.value)}
    mutable = assigned_vars(block)
    names = {v: e for v, e in names.items() if v not in mutable}
    while names and any(w in names for e in names.values() for w in ir.variables(e)):
        names = {v: substitute(e, names) for v, e in names.items()}
    return _without(_replaced(block, names), frozenset(names)) if names else block


def _is_short(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Var | ir.Constant)


def tidying(gathered: Gather, sides: Sides) -> SimplifiedBounds:
    """What rearranges the questions of a kernel."""
    natural = [own for own, before in zip(gathered.own, sides.before, strict=True) if not before]
    return SimplifiedBounds(gathered.own, natural, gathered.scalars)


def _placed(expr: ir.Expr, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    return cancelled(map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, ir.Var) else folded(e)))


def _under(terms: Sequence[ir.Expr], block: ir.Block) -> ir.Block:
    question = b.every(terms)
    return block if question is None else (ir.If(question, block),)


def _solution(gathered: Gather, move: Move) -> dict[ir.Var, ir.Expr]:
    """The sender's digits in terms of the collecting thread's index."""
    found: dict[ir.Var, ir.Expr] = {}
    for own, digit, shift in zip(gathered.own, move.solved, move.shift, strict=True):
        if digit is not None:
            sender = written(plus({(own,): 1}, scale(polynomial(shift, {}), -1)), own)
            found[digit] = b.cast(sender, digit.type)
    return found


def at_target(gathered: Gather, target: Target) -> tuple[tuple[ir.Let, ...], ir.Expr]:
    """The definitions and the index of the collecting thread's element."""
    mapping: dict[ir.Var, ir.Expr] = dict(zip(gathered.sender, gathered.own, strict=True))
    lets = tuple(replace(let, value=substitute(let.value, mapping)) for let in target.lets)
    return lets, substitute(target.index, mapping)


def gather_kernel(
    gathered: Gather, sides: Sides, assigned: Collection[ir.Buffer], boxed: Mapping[ir.Buffer, Axes], names: Names, first_own: int
) -> tuple[ir.Block, frozenset[ir.Var]]:
    """The body of the gather kernel, and its sums. Shadows in `assigned` are stored to; those in `boxed` by the threads of a box, along the
    axes that are asked for, and added to by the others; all others are added to."""
    sums = {t.buffer: names.var(t.buffer.name, _target_type(gathered, t.buffer)) for t in gathered.targets}
    out: list[ir.Stmt] = []
    places: dict[ir.Buffer, ir.Expr] = {}
    mapping: dict[ir.Var, ir.Expr] = {}
    for target in gathered.targets:
        lets, index = at_target(gathered, target)
        for let in lets:
            fresh = names.var(let.var.name, let.var.type)
            out.append(replace(let, var=fresh, value=substitute(let.value, mapping)))
            mapping[let.var] = fresh
        places[target.buffer] = substitute(index, mapping)
    flags = _flags([lane for lane, buffer in gathered.lanes.items() if buffer in assigned], gathered, names)
    tidied = tidying(gathered, sides)
    for own, lanes in _by_own_loops(gathered).items():
        mine = {lane: sums[lane] for lane in lanes}
        block: list[ir.Stmt] = [ir.Let(v, b.zero(v.type)) for v in mine.values()]
        block += [ir.Let(v, b.const(False, BOOL)) for v in dict.fromkeys(flags[lane] for lane in lanes if lane in flags)]
        for piece in (p for p in gathered.slices if p.move.own == own):
            block += _collecting(placed(gathered, piece, sides, tidied), sums, flags)
        block += _left(gathered, mine, places, flags, boxed)
        for var in reversed(own):
            block = [replace(gathered.loops[var], body=tuple(block), carried=(), backward=False)]
        out += block
    wanted = set(used_vars(tuple(out)))
    body, *_ = make_unique((*indices(gathered, sides, wanted), *out), names)
    collecting = frozenset(sums.values())
    body = simplify(accumulate_directly(eliminate_common_subexpressions(merge_control_flow(body)), collecting), first_own)
    body = flattened(simplify(factor_linear_values(body, collecting, names, first_own), first_own))
    body = postpone_means(body, collecting, gathered.scalars)
    return (*making(gathered.tables, body), *body), collecting


def _by_own_loops(gathered: Gather) -> dict[tuple[ir.Var, ...], list[ir.Buffer]]:
    """The lanes by the loops for each iteration of which a thread has an element of them."""
    found: dict[tuple[ir.Var, ...], list[ir.Buffer]] = {}
    loops = {s.buffer: piece.move.own for piece in gathered.slices for s in walk_stmts(piece.block) if isinstance(s, ir.Accumulate)}
    for target in gathered.targets:
        found.setdefault(loops.get(target.buffer, ()), []).append(target.buffer)
    return dict(sorted(found.items(), key=lambda item: len(item[0])))


def _left(
    gathered: Gather,
    sums: Mapping[ir.Buffer, ir.Var],
    places: Mapping[ir.Buffer, ir.Expr],
    flags: Mapping[ir.Buffer, ir.Var],
    boxed: Mapping[ir.Buffer, Axes],
) -> ir.Block:
    """What becomes of the sums of some lanes."""
    out: list[ir.Stmt] = []
    for buffer in dict.fromkeys(gathered.lanes[lane] for lane in sums):
        lanes = {lane: total for lane, total in sums.items() if gathered.lanes[lane] == buffer}
        stores = [ir.Store(buffer, places[lane], total) for lane, total in lanes.items()]
        if lanes.keys() <= flags.keys():  # what is there does not count: 0 is stored, too
            out += [ir.If(flags[lane], (store,)) for lane, store in zip(lanes, stores, strict=True)]
            continue
        adds = [_added(buffer, places[lane], total) for lane, total in lanes.items()]
        out += _in_box(gathered, buffer, boxed[buffer], stores, adds) if buffer in boxed else adds
    return tuple(out)


def _added(buffer: ir.Buffer, place: ir.Expr, total: ir.Var) -> ir.Stmt:
    """Adds what was collected; an element without senders may be none."""
    return ir.If(b.collected(total), (ir.Accumulate(buffer, place, total, ir.How.PLAIN),))


def _in_box(gathered: Gather, buffer: ir.Buffer, axes: Axes, stores: Sequence[ir.Stmt], adds: Sequence[ir.Stmt]) -> ir.Block:
    """Stores in the box of threads for whose elements what is there does not count, else adds."""
    asked = [(own, ends) for own, ends, wanted in zip(gathered.own, gathered.boxes[buffer], axes, strict=True) if wanted]
    terms = [t for own, (low, high) in asked for t in (b.compare(">=", own, low), b.compare("<", own, high))]
    question = b.every(terms)
    return (
        tuple(stores) if question is None else (ir.If(question, tuple(stores), tuple(adds), note=f"{buffer.name} is known to be 0 here"),)
    )


def _flags(lanes: Collection[ir.Buffer], gathered: Gather, names: Names) -> dict[ir.Buffer, ir.Var]:
    """For each lane the variable that says whether anything was collected; one for those that are added to side by side everywhere."""
    found: dict[tuple[tuple[int, int], ...], ir.Var] = {}
    result: dict[ir.Buffer, ir.Var] = {}
    for lane in lanes:
        where = tuple((k, n) for k, piece in enumerate(gathered.slices) for n in _blocks_with(piece.block, lane))
        if where not in found:
            found[where] = names.var("collected", BOOL)
        result[lane] = found[where]
    return result


def _blocks_with(block: ir.Block, lane: ir.Buffer) -> Iterator[int]:
    """The blocks, numbered in order, that add to the lane themselves."""
    for number, inner in enumerate(walk_blocks(block)):
        if any(isinstance(s, ir.Accumulate) and s.buffer == lane for s in inner):
            yield number


def _target_type(gathered: Gather, buffer: ir.Buffer) -> Scalar:
    adds = (s for piece in gathered.slices for s in walk_stmts(piece.block) if isinstance(s, ir.Accumulate) and s.buffer == buffer)
    types = [t for s in adds if (t := sum_type(s)) is not None]
    return max(types, key=lambda t: t.bits)


def _collecting(block: ir.Block, sums: Mapping[ir.Buffer, ir.Var], flags: Mapping[ir.Buffer, ir.Var]) -> ir.Block:
    """The block with contributions added to the sums, and noted."""
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Accumulate():
                total = sums[stmt.buffer]
                out.append(ir.Assign(total, b.add(total, b.cast(stmt.value, total.type)), span=stmt.span))
            case ir.If(condition=ir.Call(function="gpuad_used", arguments=(seed,)), then=(ir.Accumulate(value=value) as add,)) if (
                value == seed and add.buffer not in flags
            ):
                out += _collecting(stmt.then, sums, flags)  # 0 may as well be added
            case _:
                out.append(map_blocks(stmt, lambda inner: _collecting(inner, sums, flags)))
    hit = dict.fromkeys(flags[s.buffer] for s in block if isinstance(s, ir.Accumulate) and s.buffer in flags)
    return (*out, *(ir.Assign(v, b.const(True, BOOL)) for v in hit))


__all__ = [
    "Asked",
    "Gather",
    "Sides",
    "Slice",
    "Target",
    "asked_first",
    "at_target",
    "gather",
    "gather_kernel",
    "global_index",
    "is_movable",
    "only",
    "placed",
    "questions",
    "rest",
    "threads_of",
    "tidying",
    "without_held",
]
