"""The kernel that gathers: slices of an adjoint in terms of the thread that collects, and what becomes of their sums.

Of a slice (`gather.Slice`) the sender's index is written in terms of the collecting thread's, solved by its move; the predicates that a
sender has to satisfy are tested as far outside as possible. Contributions are added to a variable for each target; the thread that owns the
element adds it to the shadow at the end, or stores it where the shadow is known to be zero.

Assumes: what a launch has to prove of the slices (`gather_launch`). Guarantees: valid IR with unique definitions, in which no shadow is
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ..analysis.index_polynomials import plus, polynomial, scale
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, defined, expressions, map_blocks, substitute, used_vars, walk_blocks, walk_stmts
from ..ir.types import BOOL, I32, Scalar
from ..optimize.common_subexpressions import accumulate_directly, eliminate_common_subexpressions, flattened, merge_control_flow
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.factoring import factor_linear_values, postpone_means
from ..optimize.piecewise_affine import written
from ..optimize.privatisation import making
from ..optimize.simplify import simplify
from ..optimize.thread_indices import AXES, SimplifiedBounds
from ..optimize.unique import make_unique
from .access_inversion import Move, Target, sum_type
from .gather import Axes, Gather, Predicates, Sides, Slice, replaced, replaced_in, without_lets


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


def predicates(gathered: Gather, piece: Slice, needed: Predicates) -> list[ir.Expr]:
    """The predicates under which a slice covers a sender, in terms of the sender: that it exists, that loops that are solved have such an
    iteration, and the move's condition."""
    terms: list[ir.Expr] = []
    for k, (digit, sender) in enumerate(zip(piece.move.solved, gathered.sender, strict=True)):
        if needed.zero[k]:
            terms.append(b.compare("==", gathered.own[k], b.zero(I32)))
        if digit in gathered.loops and digit is not None:
            loop = gathered.loops[digit]
            terms += [b.compare(">=", digit, loop.start), b.compare("<", digit, loop.stop)]
        if needed.low[k]:
            terms.append(b.compare(">=", sender, b.zero(I32)))
        if needed.high[k]:
            terms.append(b.compare("<", sender, gathered.threads[k]))
    return terms + ([piece.move.condition] if piece.move.condition is not None else [])


def placed(gathered: Gather, piece: Slice, sides: Sides, tidied: SimplifiedBounds | None = None) -> ir.Block:
    """A slice in terms of the collecting thread's index, and of its own loops' variables: loops over the digits that are gone through, and
    the predicates as far outside as they can be evaluated."""
    needed = sides.needed[next(k for k, s in enumerate(gathered.slices) if s is piece)]
    if needed is None:
        return ()
    mapping = _solution(gathered, piece.move)
    tidied = tidied or tidying(gathered, sides)
    piece = replace(piece, block=without_held(piece.block, needed.held))
    terms = [t for e in predicates(gathered, piece, needed) for t in b.conjuncts(tidied.condition(replaced_in(e, mapping)))]
    block = tidied.block(eliminate_dead_code(_inlined(replaced(piece.block, mapping))))
    loops = [gathered.loops[v] for v in piece.move.searched]
    loops += [ir.For(v, b.zero(I32), gathered.threads[gathered.sender.index(v)], b.const(1, I32), ()) for v in piece.move.spread]
    for loop in reversed(loops):
        inner, block = _opened(flattened(block))
        mine = [t for t in (*terms, *inner) if loop.var in ir.variables(t)]
        terms = [t for t in (*terms, *inner) if loop.var not in ir.variables(t)]
        start, stop, mine = _bounds(loop, [t for t in mine if t not in needed.implied], needed.within)
        same: ir.Block = ()
        there = loop.var in piece.move.spread or loop.var in gathered.geometry.loops  # digits of threads, of which there is one at least
        if there and not mine and (start, stop) == (loop.start, loop.stop):
            same, block = _invariant(block, loop.var)
        block = (*same, replace(loop, start=start, stop=stop, body=_under(mine, block), carried=(), backward=False))
    return tidied.block(flattened(_under(terms, block)))


def without_held(block: ir.Block, held: Set[ir.Expr]) -> ir.Block:
    """The block without predicates that are known to hold."""
    out: list[ir.Stmt] = []
    for stmt in block if held else ():
        stmt = map_blocks(stmt, lambda inner: without_held(inner, held))
        if isinstance(stmt, ir.If) and not stmt.otherwise and not stmt.merges:
            terms = b.conjuncts(stmt.condition)
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


def leading_guards(block: ir.Block) -> list[ir.Expr]:
    """The conjuncts of the predicates that guard all of a block."""
    return _opened(flattened(block))[0]


def _opened(block: ir.Block) -> tuple[list[ir.Expr], ir.Block]:
    """The conjuncts of the predicates that guard all of a block, and the block that they guard."""
    match block:
        case (*before, ir.If(condition=c, then=then, otherwise=(), merges=())) if all(isinstance(s, ir.Let | ir.Load) for s in before):
            names = {v for s in before for v in defined(s)}
            if not names & set(ir.variables(c)):
                terms, rest = _opened((*before, *then))
                return [*b.conjuncts(c), *terms], rest
    return [], block


def _bounds(loop: ir.For, terms: Sequence[ir.Expr], within: Collection[ir.Expr]) -> tuple[ir.Expr, ir.Expr, list[ir.Expr]]:
    """The bounds of a loop over senders, those `within` being known to lie between its own, and the terms that are left to be tested."""
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
    return without_lets(replaced(block, names), frozenset(names)) if names else block


def _is_short(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Var | ir.Constant)


def tidying(gathered: Gather, sides: Sides) -> SimplifiedBounds:
    """What rearranges the predicates of a kernel."""
    natural = [own for own, before in zip(gathered.own, sides.before, strict=True) if not before]
    return SimplifiedBounds(gathered.own, natural, gathered.scalars)


def _under(terms: Sequence[ir.Expr], block: ir.Block) -> ir.Block:
    predicate = b.every(terms)
    return block if predicate is None else (ir.If(predicate, block),)


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
    axes given, and added to by the others; all others are added to."""
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
    return (*(making(gathered.tables, body) if gathered.tables else ()), *body), collecting


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
    needed = [(own, ends) for own, ends, wanted in zip(gathered.own, gathered.boxes[buffer], axes, strict=True) if wanted]
    terms = [t for own, (low, high) in needed for t in (b.compare(">=", own, low), b.compare("<", own, high))]
    predicate = b.every(terms)
    return (
        tuple(stores) if predicate is None else (ir.If(predicate, tuple(stores), tuple(adds), note=f"{buffer.name} is known to be 0 here"),)
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
