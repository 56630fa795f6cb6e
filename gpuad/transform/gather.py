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
from typing import TypeAlias

from ..analysis.affine import Polynomial, atoms, definitions, plus, polynomial, scale, split, times
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
    For,
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
    While,
    variables,
    walk,
)
from ..ir.rewrite import blocks, expressions, map_blocks, map_expr, map_stmt_exprs, rebuild, substitute, walk_stmts
from ..ir.types import BOOL, F32, F64, I32, I64, U32, Scalar
from . import fold
from .names import Names
from .prune import prune
from .simplify import simplify
from .unique import unique

AXES = "xyz"
Shift: TypeAlias = "tuple[Expr, Expr, Expr]"
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
class Target:
    """The element of a shadow that a thread collects for: `lets` lead to `index`, over the indices `Gather.sender`."""

    buffer: Buffer
    lets: tuple[Let, ...]
    index: Expr


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
    globally = _Globally(dict(zip(AXES, sender, strict=True)), _assigned(body))
    whole = globally.block(body)
    finder = _Shifts(whole, sender, frozenset(p for p in params if isinstance(p, Var)))
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


@dataclass(frozen=True, eq=False)
class _Found:
    """The accumulations into a shadow, by id, with their shifts, and the element of a thread."""

    shifts: Mapping[int, Shift]
    target: Target


class _Shifts:
    """Looks for the shifts between the indices of a shadow's accumulations."""

    def __init__(self, body: Block, sender: tuple[Var, Var, Var], scalars: frozenset[Var]) -> None:
        self.body = body
        self.sender = sender
        self.scalars = scalars
        self.lets = definitions(body)
        loops = (s for s in walk_stmts(body) if isinstance(s, For | While))
        self.inner = {id(s) for loop in loops for block in blocks(loop) for s in walk_stmts(block)}

    def of(self, buffer: Buffer) -> _Found | None:
        """None unless all that happens to the shadow are additions at shifts of one index."""
        touches = [s for s in walk_stmts(self.body) if getattr(s, "buffer", None) == buffer]
        adds = [s for s in touches if isinstance(s, Accumulate) and s.how is How.UNDECIDED and id(s) not in self.inner]
        if not adds or len(adds) < len(touches) or any(_sum_type(s) is None for s in adds):
            return None
        base = polynomial(adds[0].index, self.lets)
        slopes = self.slopes(base)
        vectors = [self.vector(polynomial(s.index, self.lets), base, slopes) for s in adds] if slopes is not None else []
        known = [v for v in vectors if v is not None]
        if not slopes or len(known) < len(adds):
            return None
        chosen = self.middle(buffer, known, base, slopes)
        if chosen is None:
            return None
        target, origin = chosen
        shifts = {}
        for stmt, vector in zip(adds, known, strict=True):
            shift = [self.number(plus(v, scale(o, -1))) for v, o in zip(vector, origin, strict=True)]
            if any(s is None for s in shift):
                return None
            shifts[id(stmt)] = tuple(shift)
        return _Found(shifts, target)  # type: ignore[arg-type]

    def slopes(self, p: Polynomial) -> list[Polynomial] | None:
        """The factor of each axis's index, made of parameters; None if there is another dependence on the thread."""
        found = []
        for index in self.sender:
            parts = split(p, index)
            if parts is None:
                return None
            found.append(parts[0])
            p = parts[1]
        return found if not any(v in self.sender for s in found for a in atoms(s) for v in variables(a)) else None

    def vector(self, p: Polynomial, base: Polynomial, slopes: list[Polynomial]) -> list[Polynomial] | None:
        """By how many threads along each axis an index is ahead of another, if it is by some."""
        rest = plus(p, scale(base, -1))
        if any(v in self.sender for a in atoms(rest) for v in variables(a)):
            return None
        result: list[Polynomial] = [{}, {}, {}]
        for axis in sorted(range(3), key=lambda a: _order(slopes[a]), reverse=True):
            if slopes[axis]:
                result[axis], rest = _divided(rest, slopes[axis], last=axis == self.last(slopes))
        return None if rest else result

    def last(self, slopes: list[Polynomial]) -> int:
        """The axis with the smallest factor."""
        return min((a for a in range(3) if slopes[a]), key=lambda a: _order(slopes[a]))

    def middle(
        self, buffer: Buffer, vectors: list[list[Polynomial]], base: Polynomial, slopes: list[Polynomial]
    ) -> tuple[Target, list[Polynomial]] | None:
        """The index, of those that occur, from which all are least far."""
        best: tuple[tuple[int, int], Target, list[Polynomial]] | None = None
        for stmt in walk_stmts(self.body):
            if not isinstance(stmt, Take | Accumulate | Load | Store):
                continue
            lets = self.closure(stmt.index)
            vector = self.vector(polynomial(stmt.index, self.lets), base, slopes) if lets is not None else None
            if vector is None or lets is None:
                continue
            cost = sum(_size(plus(v, scale(o, -1))) for w in vectors for v, o in zip(w, vector, strict=True))
            rank = (cost, 0 if isinstance(stmt, Take) else 1)
            if best is None or rank < best[0]:
                best = rank, Target(buffer, lets, stmt.index), vector
        return best[1:] if best is not None else None

    def closure(self, index: Expr) -> tuple[Let, ...] | None:
        """The definitions, in order, that lead from a thread's index and parameters to an index; None if others do."""
        needed: set[Var] = set()
        waiting = [index]
        while waiting:
            for v in variables(waiting.pop()):
                if v in self.scalars or v in self.sender or v in needed:
                    continue
                if v not in self.lets:
                    return None
                needed.add(v)
                waiting.append(self.lets[v])
        found: dict[Var, Let] = {}
        for stmt in walk_stmts(self.body):
            if isinstance(stmt, Let) and stmt.var in needed:
                found.setdefault(stmt.var, stmt)
        return tuple(found.values()) if not any(isinstance(e, LaunchIndex) for s in found.values() for e in walk(s.value)) else None

    def number(self, p: Polynomial) -> Expr | None:
        """The polynomial as an int expression over parameters (a launch makes sure that it is as small as that)."""
        result: Expr = b.zero(I32)
        for monomial, coefficient in sorted(p.items(), key=lambda item: (-len(item[0]), repr(item[0]))):
            if abs(coefficient) >= 1 << 20 or any(a not in self.scalars or a.type not in (I32, I64) for a in monomial):
                return None
            term: Expr = b.const(abs(coefficient), I32)
            for atom in monomial:
                term = fold.binary("*", term, fold.cast(atom, I32), I32)
            first = coefficient < 0 and result == b.zero(I32)
            result = fold.unary("-", term) if first else fold.binary("+-"[coefficient < 0], result, term, I32)
        return result


def _order(p: Polynomial) -> tuple[int, int]:
    """Products of more parameters are taken to be greater, and greater numbers."""
    lead = max(p, key=len, default=())
    return len(lead), abs(p.get(lead, 0)) if p else -1


def _divided(p: Polynomial, by: Polynomial, *, last: bool) -> tuple[Polynomial, Polynomial]:
    """Quotient and rest; `last`: nothing else will divide the rest."""
    lead = max(by, key=lambda m: (len(m), repr(m)))
    quotient: Polynomial = {}
    for _ in range(8):
        step: Polynomial = {}
        for monomial, coefficient in p.items():
            left = _without(monomial, lead)
            if left is None or (left and not last):
                continue
            whole, rest = divmod(coefficient, by[lead])
            if not last and abs(2 * rest) > abs(by[lead]):
                whole += 1
            if whole:
                step[left] = whole
        if not step:
            break
        quotient, p = plus(quotient, step), plus(p, scale(times(step, by), -1))
    return quotient, p


def _without(monomial: tuple[Expr, ...], part: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _size(p: Polynomial) -> int:
    return sum(abs(c) * (1 + 8 * len(m)) for m, c in p.items())


def _sum_type(stmt: Accumulate) -> Scalar | None:
    """In what type contributions are summed."""
    wider = stmt.value.type if stmt.value.type.bits > stmt.buffer.element.bits else stmt.buffer.element
    return wider if wider in (F32, F64) else None


# --- global indices ----------------------------------------------------------------------------------------------------------------------


class _Globally:
    """Writes `blockIdx * blockDim + threadIdx` as one variable an axis. Variables that hold a part of that are put in at their uses."""

    def __init__(self, indices: Mapping[str, Var], assigned: frozenset[Var]) -> None:
        self.indices = indices
        self.assigned = assigned
        self.widths: dict[str, int] = {}
        self.parts: dict[Var, Expr] = {}

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            inside = map_blocks(stmt, self.block)  # first: merges and carried values speak of what is defined there
            new = map_stmt_exprs(inside, lambda e: self.expr(substitute(e, self.parts)))
            if isinstance(new, Let) and new.var not in self.assigned and any(_is_part(e) for e in walk(new.value)):
                self.parts[new.var] = new.value
                continue
            out.append(new)
        return tuple(out)

    def expr(self, expr: Expr) -> Expr:
        axis = self.axis(expr)
        if axis is not None:
            return fold.cast(self.indices[axis], expr.type)
        new = rebuild(expr, self.expr)
        if isinstance(new, Cast) and isinstance(new.operand, Cast) and new.operand.operand in self.indices.values():
            wide = all(t.is_integer and t.bits >= 32 for t in (new.type, new.operand.type))
            return fold.cast(new.operand.operand, new.type) if wide else new  # the same for a thread that exists, signed or not
        if isinstance(new, Cast) and new.type == I32 and new.operand.type == U32 and any(e in self.indices.values() for e in walk(new)):
            return _signed(new.operand) or new
        return new

    def axis(self, expr: Expr) -> str | None:
        """The axis of which the expression is the global index, on condition of the noted width."""
        if not isinstance(expr, Binary) or expr.op != "+" or not all(_is_ring(e) for e in walk(expr)):
            return None
        p = polynomial(expr, {})
        for axis in AXES:
            thread, block, extent = (LaunchIndex(n, axis) for n in ("threadIdx", "blockIdx", "blockDim"))
            if p.get((thread,)) != 1 or len(p) != 2:
                continue
            (monomial, factor), *_ = [(m, c) for m, c in p.items() if m != (thread,)]
            if set(monomial) == {block, extent} and len(monomial) == 2 and factor == 1:
                return axis
            if monomial == (block,) and factor > 0 and self.widths.setdefault(axis, factor) == factor:
                return axis
        return None


def _is_ring(expr: Expr) -> bool:
    """Sums and products of launch indices and constants that cannot wrap where the global index is an int."""
    match expr:
        case LaunchIndex(name="threadIdx" | "blockIdx" | "blockDim"):
            return True
        case Constant(value=v):
            return expr.type.is_integer and 0 < int(v) <= 1024
        case Binary(op="+" | "*") | Cast():
            return expr.type.is_integer and expr.type.bits >= 32
    return False


def _signed(expr: Expr) -> Expr | None:
    """An unsigned sum of products, converted to int, as one of ints: wrapping, they are the same."""
    match expr:
        case Constant() | Cast(operand=Var(type=Scalar("int", 32))):
            return fold.cast(expr, I32)
        case Var():
            return Cast(expr, I32)
        case Binary(op="+" | "-" | "*", left=x, right=y):
            left, right = _signed(x), _signed(y)
            return None if left is None or right is None else fold.binary(expr.op, left, right, I32)
    return None


def _is_part(expr: Expr) -> bool:
    return isinstance(expr, LaunchIndex) and expr.name in ("threadIdx", "blockIdx")


def _assigned(body: Block) -> frozenset[Var]:
    return frozenset(s.var for s in walk_stmts(body) if isinstance(s, Assign))


def _name_of(body: Block, index: Var) -> str:
    """What the user calls the index."""
    lets = (s for s in walk_stmts(body) if isinstance(s, Let))
    return next((s.var.name for s in lets if s.value == index or (isinstance(s.value, Cast) and s.value.operand == index)), index.name)


# --- slices ------------------------------------------------------------------------------------------------------------------------------


def _slices(body: Block, found: Mapping[Buffer, _Found]) -> tuple[Slice, ...]:
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
        return map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, Var) else _folded(e))

    return tuple(map_blocks(map_stmt_exprs(s, f), lambda inner: _replaced(inner, mapping)) for s in block)


def _folded(expr: Expr) -> Expr:
    if isinstance(expr, Binary) and expr.type.is_integer:
        return fold.binary(expr.op, expr.left, expr.right, expr.type)
    return expr


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
    return _flattened(simplify(_shared(body), first_own))


def _flattened(block: Block) -> Block:
    """The block in which a condition that stands alone inside another joins it."""
    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, _flattened)
        match stmt:
            case If(then=(If() as inner,), otherwise=(), merges=()) if not inner.otherwise and not inner.merges:
                out.append(replace(inner, condition=_conjunction(stmt.condition, inner.condition)))
            case _:
                out.append(stmt)
    return tuple(out)


def _conjunction(left: Expr, right: Expr) -> Expr:
    """`left && right`, without parentheses."""
    if isinstance(right, Binary) and right.op == "&&":
        return Binary("&&", _conjunction(left, right.left), right.right, BOOL)
    return Binary("&&", left, right, BOOL)


def _end(buffer: Buffer, index: Expr, total: Var, assigned: bool) -> Stmt:
    return Store(buffer, index, total) if assigned else Accumulate(buffer, index, total, How.PLAIN)


def _target_type(gathered: Gather, buffer: Buffer) -> Scalar:
    adds = (s for piece in gathered.slices for s in walk_stmts(piece.block) if isinstance(s, Accumulate) and s.buffer == buffer)
    types = [t for s in adds if (t := _sum_type(s)) is not None]
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


# --- shorter text ------------------------------------------------------------------------------------------------------------------------


def _shared(body: Block) -> Block:
    """Integers and conditions that were computed before, around, are not computed again; an index that lies next to one of these is
    written so."""
    return _share(body, {}, {}, {}, _assigned(body))


def _share(block: Block, known: dict[Expr, Var], forms: dict[Var, Polynomial], renamed: dict[Var, Expr], mutable: frozenset[Var]) -> Block:
    known, forms = dict(known), dict(forms)
    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _share(inner, known, forms, renamed, mutable))
        stmt = map_stmt_exprs(stmt, lambda e: _near(map_expr(substitute(e, renamed), _folded), forms))
        lasting = isinstance(stmt, Let) and not mutable & {stmt.var, *variables(stmt.value)}
        if isinstance(stmt, Let) and lasting and not stmt.var.type.is_float:
            other = known.get(stmt.value)
            if other is not None or _is_short(stmt.value):
                renamed[stmt.var] = other if other is not None else stmt.value
                continue
            known[stmt.value] = stmt.var
            form = _form(stmt.value, forms)
            if form is not None:
                forms[stmt.var] = form
        out.append(stmt)
    return tuple(out)


def _is_short(expr: Expr) -> bool:
    """Whether an expression is a variable, or one with a constant or a parameter added."""
    match expr:
        case Var() | Constant():
            return True
        case Binary(op="+" | "-", left=Var(), right=Var() | Constant()):
            return expr.type.is_integer
    return False


def _form(expr: Expr, forms: Mapping[Var, Polynomial]) -> Polynomial | None:
    """The expression as a polynomial over variables, exact in wrapping 32-bit arithmetic; None if it is none."""
    match expr:
        case Constant(value=v) if expr.type == I32:
            return {(): int(v)} if v else {}
        case Var() if expr.type == I32:
            return forms.get(expr, {(expr,): 1})
        case Binary(op="+" | "-" | "*", left=left, right=right) if expr.type == I32:
            x, y = _form(left, forms), _form(right, forms)
            if x is None or y is None or len(x) * len(y) > 16:
                return None
            return times(x, y) if expr.op == "*" else plus(x, scale(y, 1 if expr.op == "+" else -1))
    return None


def _near(expr: Expr, forms: Mapping[Var, Polynomial]) -> Expr:
    """The expression as a known variable with something short added, if that is shorter."""
    if not isinstance(expr, Binary) or expr.type != I32 or b.size(expr) <= 3:
        return rebuild(expr, lambda e: _near(e, forms))
    form = _form(expr, forms)
    for var, other in forms.items() if form is not None else ():
        if len(other) < 2:
            continue
        far = plus(form or {}, scale(other, -1))
        if len(far) <= 1 and all(abs(c) == 1 or not m for m, c in far.items()) and all(len(m) <= 1 for m in far):
            return _moved(var, far)
    return rebuild(expr, lambda e: _near(e, forms))


def _moved(var: Var, far: Polynomial) -> Expr:
    for monomial, coefficient in far.items():
        step: Expr = monomial[0] if monomial else b.const(abs(coefficient), I32)
        return fold.binary("+-"[coefficient < 0], var, step, I32)
    return var


__all__ = ["Gather", "Sides", "Slice", "Target", "at_target", "gather", "gather_kernel", "indices", "placed", "rest"]
