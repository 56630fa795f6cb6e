"""The shape of loops over lanes: loops left to each thread (contiguous traversal), loops cut at slow operations (strip mining), and the
width of their vectors.

    for (k = 0; k < n; ++k)
        y[row * n + k] += a * x[row * n + k];

*Traversal* (`is_contiguous_traversal`). Run in step, lanes would write far from one another at every step, and evict one another's cache
lines. By itself a thread goes through such memory in vectors. Lanes are still faster where there is more to compute than is written, as
with an exponential, or an iteration depends on the one before; and where the trip count or the row's length is constant, the memory of all
stays in the cache.

*Strip mining* (`is_cut`). A root or a quotient takes as long as dozens of sums and products, and a processor looks ahead some hundred
operations. So if much depends on it, too few lanes are in flight. With the slow operation in a loop of its own nothing waits in the next;
what both use goes through the first cache.

*Branches* (`is_scattered`). Where lanes read behind a branch, each at a place that data say, compilers make no vectors: a loop over lanes
is no faster than one over threads, which keep in registers what is the same in all iterations; but where an iteration depends on the one
before, other lanes fill the time.

*Width* (`bytes_of_a_lane`). Compilers leave the widest vectors alone by default. Where all lanes compute, and what they load and store is
contiguous, these pay; where elements are gathered one by one they do not.

Strip tiles: blocks the loads of a loop by which each lane walks its own row, `a[row * n + k]` for the loop over k, so that lanes read
contiguous memory.

Neighbours then read far from one another at every step. So a tile is loaded first, each thread's part of a few iterations after the other,
and lies in an array where the lanes are neighbours. Only what every iteration reads for certain is loaded, from memory that the kernel does
not write.

Reductions: a lane's own loop of a sum.

`sum += a[row * n + k] * b[k]` for the loop over k, in an order that is not promised: run in step, neighbouring lanes would read far from
one another. Here a lane goes through the loop by itself, and the vectors hold its iterations (`reduction`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ...analysis.trip_counts import constant_trips
from ...ir import nodes as ir
from ...ir.nodes import Assign, Binary, Expr, For, Let, Load, Stmt, Var, variables
from ...ir.rewrite import assigned_vars, blocks, expressions_in, rebuild, substitute, walk_stmts
from ...ir.types import HALVES, I32, I64
from ..folded import Read, expanded, index_terms, loaded, operands, read, reads, visit_operands, written
from .lane_uniformity import Uniform, bound_in, is_long


def is_contiguous_traversal(loop: ir.For | ir.While, uniform: Uniform, meet: bool) -> bool:
    """True if that is so of a loop. `meet`: threads also add to one element somewhere, which lanes would do in turn."""
    if isinstance(loop, ir.While) or not is_long(loop) or (not meet and waits(loop, uniform)):
        return False
    if any(_is_much(e) for top in expressions_in(loop.body) for e in ir.walk(top)):
        return False
    return any(_is_walk(index, loop, uniform) for _, index in _written(loop))


def waits(loop: ir.For | ir.While, uniform: Uniform) -> bool:
    """True if an iteration may need what the one before it has computed, but for sums that may be formed in any order."""
    assigned = assigned_vars(loop.body)
    read = loaded(loop.body)
    return bool(loop.carried) or not assigned <= uniform.kernel.unordered or any(buffer in read for buffer, _ in _written(loop))


def _written(loop: ir.For | ir.While) -> Iterator[tuple[ir.Buffer, ir.Expr]]:
    """What the loop writes, and where."""
    return ((s.buffer, s.index) for s in walk_stmts(loop.body) if isinstance(s, ir.Store | ir.Accumulate | ir.Take))


def _is_walk(index: ir.Expr, loop: ir.For, uniform: Uniform) -> bool:
    """True if an index grows by one an iteration, in memory of the lane's own: in rows of a length that the text does not say."""
    parts = list(index_terms(substitute(index, uniform.steady), 1))
    own = [term for _, term in parts if not uniform.is_uniform(term)]
    return (1, loop.var) in parts and any(isinstance(term, ir.Binary) and not _is_multiple(term) for term in own)


def _is_multiple(term: ir.Binary) -> bool:
    """True if a term has a constant factor."""
    return term.op == "*" and any(isinstance(e, ir.Constant) for e in (term.left, term.right))


def _is_much(expr: ir.Expr) -> bool:
    """True if an operation takes as long as many others."""
    match expr:
        case ir.Binary(op="/", type=t):
            return t.is_float
        case ir.Call():
            return not isinstance(expr, Read)
    return False


_SLOW = frozenset({"sqrt", "rsqrt", "cbrt", "rcbrt", "hypot", "rhypot", "__fsqrt_rn", "__frsqrt_rn", "__dsqrt_rn"})
_LONG = 24  # operations that wait


def is_cut(stmt: ir.Stmt, after: Iterable[ir.Expr], is_same: Callable[[ir.Expr], bool]) -> bool:
    """True if a loop over lanes ends after this statement; `after`: what else it would compute; `is_same`: what all lanes compute alike,
    which is computed before."""
    if not isinstance(stmt, ir.Let) or not any(_is_slow(e) and not is_same(e) for e in ir.walk(stmt.value)):
        return False
    return sum(_operations(e) for e in after) >= _LONG


def computed(block: Iterable[ir.Stmt]) -> Iterable[ir.Expr]:
    """What statements compute."""
    return (e for stmt in block for e in operands(stmt))


def _is_slow(expr: ir.Expr) -> bool:
    match expr:
        case ir.Binary(op="/", left=left, right=right):
            return expr.type.is_float and not (isinstance(left, ir.Constant) and isinstance(right, ir.Constant))
        case ir.Call(function=function):
            return function in _SLOW
    return False


def _operations(expr: ir.Expr) -> int:
    return sum(1 for e in ir.walk(expr) if isinstance(e, ir.Binary | ir.Call) and e.type.is_float)


def bytes_of_a_lane(items: Sequence[ir.Stmt | ir.Expr], masked: bool, again: Sequence[ir.Let], uniform: Uniform) -> int:
    """Of how many bytes numbers are, as many of which as possible shall be in a vector; 0 if that is left to the compiler. `items`: what
    lanes do; `again`: the indices that they compute."""
    table = expanded(again)
    done = [item for item in items if isinstance(item, ir.Stmt)]
    exprs = [*expressions_in(tuple(done)), *(item for item in items if isinstance(item, ir.Expr))]
    indices = [read.index for e in exprs for read in _reads(e)]
    indices += [s.index for s in walk_stmts(tuple(done)) if isinstance(s, ir.Load | ir.Store | ir.Accumulate | ir.Take)]
    if not all(_is_one(index, table, uniform) or is_beside(index, table, uniform) for index in indices):
        return 0
    sizes = {e.type.size for top in exprs for e in ir.walk(top) if e.type.is_float or isinstance(e, Read)}
    return min({*sizes, *([4] if masked else [])} or {4})


def is_scattered(items: Sequence[ir.Stmt | ir.Expr], masked: bool, again: Sequence[ir.Let], uniform: Uniform) -> bool:
    """True if some lanes read or write, and others do not, at places that their numbers do not tell: no vector does that. `items`, `again`:
    as of `bytes_of_a_lane`; `masked`: all that is done is done by some lanes."""
    table = expanded(again)
    indices = (index for item in items for index in _by_some(item, masked))
    return any(not _is_one(index, table, uniform) and not is_beside(index, table, uniform) for index in indices)


def _by_some(item: ir.Stmt | ir.Expr, some: bool) -> Iterator[ir.Expr]:
    """The indices of what not all lanes access."""
    inside: list[tuple[ir.Stmt | ir.Expr, bool]] = []
    match item:
        case ir.If(condition=condition, then=then, otherwise=otherwise, merges=merges):
            inside = [(condition, some), *((s, True) for s in (*then, *otherwise))]
            inside += [(e, True) for m in merges for e in (m.then, m.otherwise)]
        case ir.Stmt():
            index = getattr(item, "index", None)
            if some and index is not None:
                yield index
            inside = [(e, some) for e in operands(item)]
            inside += [(s, True) for block in blocks(item) for s in block]
        case Tiled():
            inside = [(item.arguments[0], some)]
        case Read(index=index):
            if some:
                yield index
            inside = [(index, some)]
        case ir.Select(condition=condition, then=then, otherwise=otherwise):
            inside = [(condition, some), (then, True), (otherwise, True)]
        case ir.Binary(op="&&" | "||", left=left, right=right):
            inside = [(left, some), (right, True)]
        case _:
            inside = [(e, some) for e in ir.children(item)]
    for part, by_some in inside:
        yield from _by_some(part, by_some)


def _reads(expr: ir.Expr) -> Iterator[Read]:
    """The loads from memory, not those from tiles."""
    if isinstance(expr, Read):
        yield expr
    if not isinstance(expr, Tiled):
        yield from (read for e in ir.children(expr) for read in _reads(e))


def is_beside(index: ir.Expr, table: Mapping[ir.Var, ir.Expr], uniform: Uniform) -> bool:
    """True if the lanes' elements lie side by side. `table`: what indices are of which this one may be made."""
    own = _own_terms(index, table, uniform)
    return len(own) == 1 and own[0][0] == 1 and (isinstance(own[0][1], ir.LaunchIndex) or own[0][1] == uniform.lane)


def _is_one(index: ir.Expr, table: Mapping[ir.Var, ir.Expr], uniform: Uniform) -> bool:
    """True if the lanes have one element."""
    return not _own_terms(index, table, uniform)


def _own_terms(index: ir.Expr, table: Mapping[ir.Var, ir.Expr], uniform: Uniform) -> list[tuple[int, ir.Expr]]:
    """The terms of an index that differ from lane to lane."""
    return [(sign, term) for sign, term in index_terms(substitute(index, dict(table)), 1) if not uniform.is_uniform(term)]


DEPTH = 16  # iterations of a tile
_MOST = 4  # tiles of a loop
_FEW = 8  # iterations for which no tile is made


@dataclass(frozen=True)
class Tiled(ir.Call):
    """A load, the second argument, from a tile; the first argument is the loop's index."""

    number: int


@dataclass(frozen=True)
class Tile:
    """An array of the elements that a load reads in some iterations; `index` is the first iteration's."""

    number: int
    load: Read


@dataclass(frozen=True)
class Tiling:
    """A loop over the iterations of a tile, `first` to `end`, whose loads come from the tiles."""

    loop: ir.For
    start: ir.Expr
    stop: ir.Expr
    first: ir.Var
    end: ir.Var
    tiles: tuple[Tile, ...]


def tiled(loop: ir.For, uniform: Uniform, number: int) -> Tiling | None:
    """The loop by tiles; None if it has no such loads. Tiles are counted from `number`."""
    trips = constant_trips(loop)
    if loop.backward or loop.step != ir.Constant(1, loop.step.type) or loop.var.type not in (I32, I64):
        return None
    if trips is not None and trips < _FEW:
        return None
    task = _Tiles(loop, uniform, number)
    body = tuple(task.stmt(s) for s in loop.body)
    carried = tuple(task.carried(c) for c in loop.carried)
    if not task.found:
        return None
    made = replace(loop, start=task.first, stop=task.end, body=body, carried=carried)
    return Tiling(made, loop.start, loop.stop, task.first, task.end, tuple(Tile(t.number, task.start(t)) for t in task.found.values()))


class _Tiles:
    def __init__(self, loop: ir.For, uniform: Uniform, number: int) -> None:
        self.loop = loop
        self.uniform = uniform
        self.number = number
        self.inside = {*(c.var for c in loop.carried), *bound_in(loop.body)}
        self.first = ir.Var(f"{loop.var.name}_tile", I64, -(1 << 27) - number)
        self.end = ir.Var(f"{loop.var.name}_tile_end", I64, -(1 << 26) - number)
        self.counters = {loop.var, *uniform.loops, *([uniform.lane] if uniform.lane else [])}
        self.found: dict[ir.Expr, Tiled] = {}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.If | ir.For | ir.While):
            return stmt
        if isinstance(stmt, ir.Load):
            load = self.visit(read(stmt.buffer, stmt.index))
            return ir.Let(stmt.var, load, span=stmt.span, note=stmt.note) if isinstance(load, Tiled) else stmt
        return visit_operands(stmt, self.visit)

    def carried(self, carried: ir.Carried) -> ir.Carried:
        return replace(carried, next=self.visit(carried.next))

    def visit(self, expr: ir.Expr) -> ir.Expr:
        """The expression with what it surely loads from tiles."""
        match expr:
            case Read():
                return self.load(expr)
            case ir.Select(condition=condition):
                return replace(expr, condition=self.visit(condition))
            case ir.Binary(op="&&" | "||", left=left):
                return replace(expr, left=self.visit(left))
        return rebuild(expr, self.visit)

    def load(self, load: Read) -> ir.Expr:
        index = substitute(load.index, self.uniform.steady)
        key = replace(load, arguments=(index,))
        if key in self.found:
            return self.found[key]
        if len(self.found) == _MOST or not self.walks(key):
            return load
        self.found[key] = Tiled("[]", (self.loop.var, key), load.type, self.number + len(self.found))
        return self.found[key]

    def walks(self, load: Read) -> bool:
        """True if each lane's address advances by one an iteration, and lanes are not neighbours."""
        if load.buffer in self.uniform.written or load.buffer.element in HALVES:
            return False
        if not all(v in self.counters or self.uniform.is_single(v) for v in ir.variables(load.index)):
            return False
        if any(isinstance(e, Read) and e.buffer in self.uniform.written for e in ir.walk(load.index)):
            return False
        parts = list(index_terms(load.index, 1))
        rest = [(sign, term) for sign, term in parts if (sign, term) != (1, self.loop.var)]
        if len(rest) != len(parts) - 1 or any(v in self.inside or v == self.loop.var for _, t in rest for v in ir.variables(t)):
            return False
        own = [(sign, term) for sign, term in rest if not self.uniform.is_uniform(term)]
        return bool(own) and not (len(own) == 1 and own[0][0] == 1 and self.is_lane(own[0][1]))

    def is_lane(self, term: ir.Expr) -> bool:
        return isinstance(term, ir.LaunchIndex) or term == self.uniform.lane

    def start(self, tile: Tiled) -> Read:
        """The load of the first iteration."""
        load = tile.arguments[1]
        assert isinstance(load, Read)
        first: ir.Expr = self.first if self.loop.var.type == I64 else ir.Cast(self.first, self.loop.var.type)
        return replace(load, arguments=(substitute(load.index, {self.loop.var: first}),))


LaneScratch = tuple[tuple[ir.Buffer, ir.Expr], ...]


def lane_scratch(items: Sequence[ir.Stmt | ir.Expr], rows: Set[ir.Buffer], is_same: Callable[[ir.Expr], bool]) -> LaneScratch | None:
    """For each of these buffers that the work of a lane accesses, the index of its elements; None if they have several, or it is not the
    same for all lanes, or it may be that nothing is there."""
    if not rows:
        return ()
    found: dict[ir.Buffer, ir.Expr] = {}
    for buffer, index in _accesses(items, rows):
        if found.setdefault(buffer, index) != index or not is_same(index):
            return None
    certain = {buffer for item in items for buffer in _surely(item)}
    return tuple(found.items()) if found.keys() <= certain else None


def _accesses(items: Sequence[ir.Stmt | ir.Expr], rows: Set[ir.Buffer]) -> Iterator[tuple[ir.Buffer, ir.Expr]]:
    done = tuple(item for item in items if isinstance(item, ir.Stmt))
    for expr in (*expressions_in(done), *(item for item in items if isinstance(item, ir.Expr))):
        yield from ((read.buffer, read.index) for read in reads(expr) if read.buffer in rows)
    for stmt in walk_stmts(done):
        buffer = _accessed(stmt)
        if buffer is not None and buffer in rows:
            yield buffer, operands(stmt)[0]


def _accessed(stmt: ir.Stmt) -> ir.Buffer | None:
    """The buffer that the statement itself loads from or writes."""
    return stmt.buffer if isinstance(stmt, ir.Load) else written(stmt)


def _surely(item: ir.Stmt | ir.Expr) -> Iterator[ir.Buffer]:
    """The buffers that are accessed wherever the item is done."""
    match item:
        case Read():
            yield item.buffer
        case ir.Select(condition=condition):
            yield from _surely(condition)
            return
        case ir.Binary(op="&&" | "||", left=left):
            yield from _surely(left)
            return
        case ir.Stmt():
            yield from [buffer] if (buffer := _accessed(item)) is not None else []
    for expr in operands(item) if isinstance(item, ir.Stmt) else ir.children(item):
        yield from _surely(expr)


@dataclass(frozen=True)
class Reduction:
    """A loop that only adds to these variables."""

    loop: For
    sums: tuple[Var, ...]

    def into(self, parts: Mapping[Var, Var]) -> For:
        """The loop that adds to others in their place."""
        table: dict[Var, Expr] = dict(parts)

        def stmt(given: Stmt) -> Stmt:
            made = visit_operands(given, lambda e: substitute(e, table))
            return replace(made, var=parts[made.var]) if isinstance(made, Assign) else made

        return replace(self.loop, body=tuple(stmt(s) for s in self.loop.body))


def reduction(loop: For, uniform: Uniform) -> Reduction | None:
    """The loop as one that a lane goes through by itself; None if it does anything else, or reads memory in another way."""
    if loop.carried or tiled(loop, uniform, 0) is None or not all(isinstance(s, Let | Load | Assign) for s in loop.body):
        return None
    added = [s for s in loop.body if isinstance(s, Assign)]
    sums = dict.fromkeys(s.var for s in added)
    if not added or not sums.keys() <= uniform.kernel.unordered or not all(v.type.is_float for v in sums):
        return None
    if any(uniform.is_same(v) for v in sums):  # such a sum is formed once, not by each lane
        return None
    values = [v for s in loop.body for e in _values(s) for v in variables(e)]
    if any(v in sums for v in values) or not all(_is_straight(index, loop, uniform) for index in _indices(loop, uniform)):
        return None
    return Reduction(loop, tuple(sums))


def _values(stmt: Stmt) -> Iterator[Expr]:
    """What a statement computes; of an addition to a sum, what is added."""
    match stmt:
        case Load(index=index):
            yield index
        case Assign(var=var, value=Binary(op="+" | "-", left=left, right=right)) if left == var:
            yield right
        case Let(value=value) | Assign(value=value):
            yield value


def _indices(loop: For, uniform: Uniform) -> Iterator[Expr | None]:
    """Where the loop reads; None where it reads what the kernel writes."""
    for expr in expressions_in(loop.body):
        yield from (None if read.buffer in uniform.written else read.index for read in reads(expr))
    for stmt in loop.body:
        if isinstance(stmt, Load):
            yield None if stmt.buffer in uniform.written else stmt.index


def _is_straight(index: Expr | None, loop: For, uniform: Uniform) -> bool:
    """True if an index stays, or grows by one an iteration."""
    if index is None:
        return False
    inside = {loop.var, *bound_in(loop.body)}
    rest = [(sign, term) for sign, term in index_terms(substitute(index, uniform.steady), 1) if any(v in inside for v in variables(term))]
    return not rest or rest == [(1, loop.var)]
