"""Turns scattered accumulations into a kernel in which each thread collects what others would have sent to its element.

A stencil `v[i] = f(u[i - 1], u[i], u[i + 1])` has an adjoint in which thread i adds to three elements of `du`. What thread `i` adds to
`du[i + 1]` may as well be computed by thread `j = i + 1`, if that thread puts itself in the place of `j - 1`: evaluates its guards, reads
its seeds, forms its partials. A *slice* is the part of the adjoint that one such contribution needs; in the gather kernel it stands once
for each *shift* between the sending and the receiving thread, with the sender's index in place of the thread's own.

That every contribution is counted once holds for any shift, since moving the work of all threads by one vector is one-to-one. What shifts
are good for, all contributions to an element meeting in one thread, is looked for here in the indices' polynomials and proved at each
launch (`gpuad.gathering`). The gather kernel writes nothing that it reads; what else the adjoint does runs after it (RULES 2).

Assumes: an adjoint without stacks and barriers. Guarantees: valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir import build as b
from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Cast,
    Constant,
    Expr,
    How,
    If,
    LaunchIndex,
    Let,
    Load,
    Pop,
    Push,
    Shuffle,
    Stmt,
    Store,
    Take,
    Var,
    variables,
    walk,
)
from ..ir.rewrite import blocks, expressions, map_blocks, map_expr, map_stmt_exprs, substitute, walk_stmts
from ..ir.types import BOOL, I32, Scalar
from . import fold
from .globally import AXES, Globally, assigned
from .names import Names
from .prune import prune
from .share import flattened, folded, shared
from .shifts import Found, Shift, Shifts, Target, sum_type
from .simplify import simplify
from .unique import unique

_FORBIDDEN = (Alloc, Atomic, Barrier, Pop, Push, Shuffle)


@dataclass(frozen=True)
class Sides:
    """Along which axes (x, y, z) the gather kernel begins before index 0, has to ask whether a sender's index is at least 0, and whether it
    is below the number of the primal's threads."""

    before: tuple[bool, bool, bool] = (False, False, False)
    low: tuple[bool, bool, bool] = (False, False, False)
    high: tuple[bool, bool, bool] = (False, False, False)


@dataclass(frozen=True, eq=False)
class Slice:
    """What thread `i` sends to thread `i + shift`: statements of the adjoint over the indices `Gather.sender`, with the accumulations as
    they were; `shift` is made of parameters."""

    shift: Shift
    block: Block


@dataclass(frozen=True, eq=False)
class Gather:
    """The accumulations into some shadows, by shift. `sender`: variables that stand for a thread's global index; `body`: the adjoint over
    them; `widths`: block sizes that the kernel takes for granted; `first`, `threads`: scalar parameters of the gather kernel, the least
    index along an axis, and the number of the primal's threads."""

    body: Block
    sender: tuple[Var, Var, Var]
    widths: Mapping[str, int]
    slices: tuple[Slice, ...]
    targets: tuple[Target, ...]
    first: tuple[Var, Var, Var]
    threads: tuple[Var, Var, Var]
    own: tuple[Var, Var, Var]  # the collecting thread's index

    @property
    def variables(self) -> tuple[Var, ...]:
        """The variables that are not the adjoint's."""
        return (*self.sender, *self.first, *self.threads, *self.own)

    @property
    def buffers(self) -> frozenset[Buffer]:
        """The shadows that are gathered."""
        return frozenset(t.buffer for t in self.targets)


# --- finding shifts ----------------------------------------------------------------------------------------------------------------------


def gather(body: Block, shadows: Collection[Buffer], params: Collection[Var | Buffer], names: Names) -> Gather | None:
    """The accumulations into those of the shadows that can be gathered, or None if there are none; what a launch has to prove is left to
    it."""
    if any(isinstance(s, _FORBIDDEN) or (isinstance(s, Assign) and not s.var.type.is_float) for s in walk_stmts(body)):
        return None
    sender = (names.var("x", I32), names.var("y", I32), names.var("z", I32))
    globally = Globally(dict(zip(AXES, sender, strict=True)), assigned(body))
    whole = globally.block(body)
    finder = Shifts(whole, sender, frozenset(p for p in params if isinstance(p, Var)))
    found = {buffer: shifts for buffer in shadows if (shifts := finder.of(buffer)) is not None}
    slices = _slices(whole, found)
    good = [buffer for buffer in found if all(_is_blind(s.block) for s in slices if _adds(s.block, buffer))]
    if len(good) < len(found):
        found = {buffer: found[buffer] for buffer in good}
        slices = _slices(whole, found)
    if not found:
        return None
    own = tuple(names.var(_name_of(whole, v), I32) for v in sender)
    first = tuple(names.var(f"first_{a}", I32) for a in AXES)
    threads = tuple(names.var(f"threads_{a}", I32) for a in AXES)
    targets = tuple(found[buffer].target for buffer in found)
    return Gather(whole, sender, globally.widths, slices, targets, first, threads, own)  # type: ignore[arg-type]


def _name_of(body: Block, index: Var) -> str:
    """What the user calls the index."""
    lets = (s for s in walk_stmts(body) if isinstance(s, Let))
    return next((s.var.name for s in lets if s.value == index or (isinstance(s.value, Cast) and s.value.operand == index)), index.name)


# --- slices ------------------------------------------------------------------------------------------------------------------------------


def _slices(body: Block, found: Mapping[Buffer, Found]) -> tuple[Slice, ...]:
    """For each shift what its accumulations need, those with no shift first."""
    groups: dict[Shift, set[int]] = {}
    for shadow in found.values():
        for where, shift in shadow.shifts.items():
            groups.setdefault(shift, set()).add(where)
    none = (b.zero(I32),) * 3
    order = sorted(groups, key=lambda s: s != none)
    return tuple(Slice(shift, prune(_only(body, groups[shift]))) for shift in order)


def _only(block: Block, kept: Collection[int]) -> Block:
    """The block in which nothing is written but by the accumulations `kept`."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Take):
            stmt = Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span)
        if isinstance(stmt, Store | Accumulate) and id(stmt) not in kept:
            continue
        out.append(map_blocks(stmt, lambda inner: _only(inner, kept)))
    return tuple(out)


def _adds(block: Block, buffer: Buffer) -> bool:
    return any(isinstance(s, Accumulate) and s.buffer == buffer for s in walk_stmts(block))


def _is_blind(block: Block) -> bool:
    """Whether a slice knows of its thread no more than the global index."""
    return not any(isinstance(e, LaunchIndex) for s in walk_stmts(block) for top in expressions(s) for e in walk(top))


def rest(body: Block, gathered: Collection[Buffer], plain: Collection[Buffer], left: Collection[Buffer], first_own: int) -> Block:
    """What of the adjoint is left to a second launch: all but the accumulations that are gathered. What is only taken to be cleared is
    stored to; not even that if it is in `left`."""
    kept = prune(_but(body, gathered))
    used = {v for s in walk_stmts(kept) for e in expressions(s) for v in variables(e)}
    return simplify(prune(_cleared(kept, used, plain, left)), first_own)


def _but(block: Block, gathered: Collection[Buffer]) -> Block:
    kept = (s for s in block if not (isinstance(s, Accumulate) and s.buffer in gathered))
    return tuple(map_blocks(s, lambda inner: _but(inner, gathered)) for s in kept)


def _cleared(block: Block, used: Collection[Var], plain: Collection[Buffer], left: Collection[Buffer]) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Take) and stmt.var not in used and stmt.buffer in plain:
            if stmt.buffer in left:
                continue
            stmt = Store(stmt.buffer, stmt.index, b.zero(stmt.buffer.element), span=stmt.span, note=stmt.note)
        out.append(map_blocks(stmt, lambda inner: _cleared(inner, used, plain, left)))
    return tuple(out)


# --- the kernel --------------------------------------------------------------------------------------------------------------------------


def indices(gathered: Gather, sides: Sides) -> tuple[Let, ...]:
    """The definitions of the collecting thread's index along the axes that matter."""
    wanted = _axes(gathered)
    out = []
    for axis, own, first, before in zip(AXES, gathered.own, gathered.first, sides.before, strict=True):
        if axis in wanted:
            here = fold.cast(_global(axis), I32)
            out.append(Let(own, fold.binary("+", here, first, I32) if before else here))
    return tuple(out)


def _axes(gathered: Gather) -> set[str]:
    parts = [*(e for s in gathered.slices for t in walk_stmts(s.block) for e in expressions(t))]
    parts += [e for t in gathered.targets for e in (t.index, *(let.value for let in t.lets))]
    used = {v for e in parts for v in variables(e)}
    return {a for a, v in zip(AXES, gathered.sender, strict=True) if v in used}


def _global(axis: str) -> Expr:
    block, extent, thread = (LaunchIndex(n, axis) for n in ("blockIdx", "blockDim", "threadIdx"))
    return Binary("+", Binary("*", block, extent, block.type), thread, block.type)


def placed(gathered: Gather, piece: Slice, sides: Sides) -> Block:
    """A slice in terms of the collecting thread's index; within a question whether its sender exists, where that is to be asked."""
    senders = [_before(own, s) for own, s in zip(gathered.own, piece.shift, strict=True)]
    block = _replaced(piece.block, dict(zip(gathered.sender, senders, strict=True)))
    wanted = _axes(gathered)
    exists: Expr | None = None
    for k, axis in enumerate(AXES):
        if axis not in wanted:
            continue
        surely = not sides.before[k] and isinstance(piece.shift[k], Constant) and int(piece.shift[k].value) <= 0  # type: ignore[attr-defined]
        if sides.low[k] and not surely:
            exists = b.both(exists, _at_least(senders[k], gathered.own[k], piece.shift[k], sides.before[k]))
        if sides.high[k]:
            exists = b.both(exists, b.compare("<", senders[k], gathered.threads[k]))
    return block if exists is None else (If(exists, block),)


def _before(own: Var, shift: Expr) -> Expr:
    """The thread that sends something over the shift."""
    backward = isinstance(shift, Constant) and int(shift.value) < 0
    return fold.binary("+" if backward else "-", own, fold.unary("-", shift) if backward else shift, I32)


def _at_least(sender: Expr, own: Var, shift: Expr, before: bool) -> Expr:
    return b.compare(">=", sender, b.zero(I32)) if before else b.compare(">=", own, shift)


def at_target(gathered: Gather, target: Target) -> tuple[tuple[Let, ...], Expr]:
    """The definitions and the index of the collecting thread's element."""
    mapping: dict[Var, Expr] = dict(zip(gathered.sender, gathered.own, strict=True))
    lets = tuple(replace(let, value=substitute(let.value, mapping)) for let in target.lets)
    return lets, substitute(target.index, mapping)


def _replaced(block: Block, mapping: Mapping[Var, Expr]) -> Block:
    def f(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, Var) else folded(e))

    return tuple(map_blocks(map_stmt_exprs(s, f), lambda inner: _replaced(inner, mapping)) for s in block)


def gather_kernel(gathered: Gather, sides: Sides, assigned: Collection[Buffer], names: Names, first_own: int) -> Block:
    """The body of the gather kernel. Shadows in `assigned` are stored to, all others added to."""
    sums = {t.buffer: names.var(t.buffer.name, _target_type(gathered, t.buffer)) for t in gathered.targets}
    flags = _flags(gathered, names)
    out: list[Stmt] = list(indices(gathered, sides))
    places: dict[Buffer, Expr] = {}
    mapping: dict[Var, Expr] = {}
    for target in gathered.targets:
        lets, index = at_target(gathered, target)
        for let in lets:
            fresh = names.var(let.var.name, let.var.type)
            out.append(replace(let, var=fresh, value=substitute(let.value, mapping)))
            mapping[let.var] = fresh
        places[target.buffer] = substitute(index, mapping)
    out += [Let(v, b.zero(v.type)) for v in sums.values()]
    out += [Let(v, b.const(False, BOOL)) for v in dict.fromkeys(flags.values())]
    for piece in gathered.slices:
        out += _collecting(placed(gathered, piece, sides), sums, flags)
    for flag in dict.fromkeys(flags.values()):
        mine = [t.buffer for t in gathered.targets if flags[t.buffer] == flag]
        ends = tuple(_end(buffer, places[buffer], sums[buffer], buffer in assigned) for buffer in mine)
        out.append(If(flag, ends))
    body, *_ = unique(tuple(out), names)
    return flattened(simplify(shared(body), first_own))


def _end(buffer: Buffer, index: Expr, total: Var, assigned: bool) -> Stmt:
    return Store(buffer, index, total) if assigned else Accumulate(buffer, index, total, How.PLAIN)


def _target_type(gathered: Gather, buffer: Buffer) -> Scalar:
    adds = (s for piece in gathered.slices for s in walk_stmts(piece.block) if isinstance(s, Accumulate) and s.buffer == buffer)
    types = [t for s in adds if (t := sum_type(s)) is not None]
    return max(types, key=lambda t: t.bits)


def _flags(gathered: Gather, names: Names) -> dict[Buffer, Var]:
    """For each shadow the variable that says whether anything was collected; one for those that are added to side by side everywhere."""
    found: dict[tuple[tuple[int, int], ...], Var] = {}
    result: dict[Buffer, Var] = {}
    for target in gathered.targets:
        where = tuple((k, n) for k, piece in enumerate(gathered.slices) for n in _blocks_with(piece.block, target.buffer))
        if where not in found:
            found[where] = names.var("collected", BOOL)
        result[target.buffer] = found[where]
    return result


def _blocks_with(block: Block, buffer: Buffer) -> Iterator[int]:
    """The blocks, numbered in order, that add to the shadow themselves."""
    for number, inner in enumerate(_all_blocks(block)):
        if any(isinstance(s, Accumulate) and s.buffer == buffer for s in inner):
            yield number


def _all_blocks(block: Block) -> Iterator[Block]:
    yield block
    for stmt in block:
        for inner in blocks(stmt):
            yield from _all_blocks(inner)


def _collecting(block: Block, sums: Mapping[Buffer, Var], flags: Mapping[Buffer, Var]) -> Block:
    """The block with contributions added to the sums."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Accumulate):
            total = sums[stmt.buffer]
            out.append(Assign(total, b.add(total, b.cast(stmt.value, total.type)), span=stmt.span))
        else:
            out.append(map_blocks(stmt, lambda inner: _collecting(inner, sums, flags)))
    hit = dict.fromkeys(flags[s.buffer] for s in block if isinstance(s, Accumulate))
    return (*out, *(Assign(v, b.const(True, BOOL)) for v in hit))


__all__ = ["Gather", "Sides", "Slice", "Target", "at_target", "gather", "gather_kernel", "indices", "placed", "rest"]
