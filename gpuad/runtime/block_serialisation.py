"""Block serialisation for processors without barriers: a kernel with barriers becomes one whose threads are whole blocks, split at the
barriers into loops over threads.

The body is cut at barriers and shuffles. Each piece becomes a loop over the threads of the block; control flow around a barrier stays
outside of these loops, and which threads take part in it is kept as an array of bools. A variable that one piece defines and another uses
is an array with an element for each thread, and so is a thread's own array; a shared array is one array of the block. A shuffle is two
loops: all threads put down their values, then each picks one up.

Assumes: final IR. Guarantees: valid IR without barriers, shuffles and shared arrays, to be launched with the same grid and blocks of one
thread; the block's extents are numbers in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..analysis.uniformity import is_uniform
from ..codegen.folded import single_values
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    Names,
    assigned_vars,
    blocks,
    bound,
    defined,
    expressions,
    map_blocks,
    map_expr,
    map_exprs,
    named,
    substitute,
    walk_stmts,
)
from ..ir.types import BOOL, F64, I32, I64, U32, Scalar, Space, value_type
from ..ir.verify import verify
from .base import Dim3

WARP = 32


def serialise_blocks(kernel: ir.Kernel, block: Dim3) -> ir.Kernel:
    """The kernel for blocks of the given extents as one whose threads are blocks."""
    made = _Serial(kernel, block).kernel()
    verify(made)
    return made


def _is_wait(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier | ir.Shuffle) or (isinstance(stmt, ir.Alloc) and stmt.zero and stmt.buffer.space is Space.SHARED)


def _is_alone(stmt: ir.Stmt) -> bool:
    """True if threads that do such a thing may do it at once: it is no addition to what others add to, takes nothing that others may take,
    and is no output; nor has each an array that the compiler might take for one."""
    if isinstance(stmt, ir.Atomic | ir.Tell | ir.Alloc) or (isinstance(stmt, ir.Accumulate | ir.Take) and stmt.how is not ir.How.PLAIN):
        return False
    if isinstance(stmt, ir.Store):
        return stmt.buffer.space is Space.GLOBAL or not isinstance(stmt.index, ir.Constant)
    return not isinstance(stmt, ir.Accumulate | ir.Take) or stmt.buffer.space is Space.GLOBAL


def _has_wait(stmt: ir.Stmt) -> bool:
    return any(_is_wait(s) for s in walk_stmts((stmt,)))


@dataclass(frozen=True)
class _Thread:
    """The thread that loops over threads are at: its number in the block, and its index along each axis that has more than one."""

    number: ir.Var
    places: tuple[ir.Var | None, ...]


class _Serial:
    def __init__(self, kernel: ir.Kernel, block: Dim3) -> None:
        self.source = kernel
        self.block = block
        self.threads = block[0] * block[1] * block[2]
        self.names = Names(kernel)
        self.uses: Counter[ir.Var] = Counter(v for s in walk_stmts(kernel.body) for v in named(s))
        self.pieces = tuple(_pieces(kernel.body))
        self.homes: dict[ir.Var, ir.Buffer] = {}
        self.arrays: dict[ir.Buffer, ir.Buffer] = {}  # what stands for the arrays of threads and of the block
        self.sums: list[tuple[ir.Accumulate, ir.Buffer]] = []
        self.allocs: list[ir.Stmt] = []
        self.params = set(kernel.scalars)  # and what else all threads of a block have in common
        self.values = single_values(kernel)

    def kernel(self) -> ir.Kernel:
        self.place_arrays()
        body = self.lower(self.source.body, None)
        ends = [s for stmt, total in self.sums for s in self.sum_up(stmt, total)]
        return replace(self.source, body=(*self.allocs, *body, *ends))

    # --- arrays ----------------------------------------------------------------------------------------------------------------------

    def array(self, name: str, element: Scalar, length: int, *, zero: bool = False) -> ir.Buffer:
        buffer = self.names.buffer(name, element, Space.LOCAL, length)
        self.allocs.append(ir.Alloc(buffer, zero=zero))
        return buffer

    def place_arrays(self) -> None:
        """Shared arrays belong to the block; a thread's own, if more than one piece uses it, has a row for each thread."""
        for stmt in walk_stmts(self.source.body):
            if isinstance(stmt, ir.Alloc):
                buffer, length = stmt.buffer, stmt.buffer.length or 0
                if buffer.space is Space.SHARED:
                    if buffer not in self.arrays:
                        self.arrays[buffer] = self.array(buffer.name, buffer.element, length)
                elif sum(any(_touches(s, buffer) for s in walk_stmts(piece)) for piece in self.pieces) > 1:
                    self.arrays[buffer] = self.array(buffer.name, buffer.element, length * self.threads)

    def home(self, var: ir.Var) -> ir.Buffer:
        if var not in self.homes:
            self.homes[var] = self.array(var.name, var.type, self.threads)
        return self.homes[var]

    # --- blocks ----------------------------------------------------------------------------------------------------------------------

    def lower(self, block: ir.Block, mask: ir.Buffer | None) -> ir.Block:
        """The block for all threads for which `mask` holds."""
        out: list[ir.Stmt] = []
        piece: list[ir.Stmt] = []

        def end() -> None:
            if piece:
                out.append(self.piece(tuple(piece), mask))
                piece.clear()

        for stmt in block:
            if not _has_wait(stmt):
                piece.append(stmt)
                continue
            end()
            out.extend(self.wait(stmt, mask))
        end()
        return tuple(out)

    def wait(self, stmt: ir.Stmt, mask: ir.Buffer | None) -> ir.Block:
        together = self.together(stmt) if mask is None else None
        if together is not None:
            return together
        match stmt:
            case ir.Alloc(buffer=buffer):
                return (self.cleared(self.arrays[buffer]),)
            case ir.Shuffle():
                return self.shuffle(stmt, mask)
            case ir.If():
                return self.branch(stmt, mask)
            case ir.For():
                return self.counted(stmt, mask)
            case ir.While():
                return self.repeated(stmt, mask)
        return ()

    def cleared(self, buffer: ir.Buffer) -> ir.Stmt:
        k = self.names.var("k", I32)
        store = ir.Store(buffer, k, b.zero(buffer.element))
        return ir.For(k, b.const(0, I32), b.const(buffer.length or 0, I32), b.const(1, I32), (store,))

    # --- pieces ----------------------------------------------------------------------------------------------------------------------

    def piece(self, stmts: ir.Block, mask: ir.Buffer | None) -> ir.Stmt:
        """A loop over the threads. What other pieces define is fetched first, what they use put down last."""
        inside = Counter(v for s in walk_stmts(stmts) for v in named(s))
        own = {v for s in walk_stmts(stmts) for v in bound(s)}
        top = {v for s in stmts for v in defined(s)}
        assigned = assigned_vars(stmts) - own
        fetched = [v for v in dict.fromkeys((*inside, *assigned)) if v not in own and v not in self.params]
        given = [v for v in dict.fromkeys((*sorted(top, key=lambda v: v.uid), *assigned)) if v in assigned or self.uses[v] > inside[v]]

        def body(thread: _Thread) -> ir.Block:
            out: list[ir.Stmt] = []
            for var in fetched:
                out.extend(self.fetch(var, thread, mutable=var in assigned))
            out.extend(self.threaded(stmts, thread))
            out.extend(ir.Store(self.home(v), thread.number, v) for v in given)
            return tuple(out)

        return self.each(body, mask)

    def fetch(self, var: ir.Var, thread: _Thread, *, mutable: bool = False) -> ir.Block:
        if not mutable:
            return (ir.Load(var, self.home(var), thread.number),)
        held = self.names.var(var.name, var.type)
        return (ir.Load(held, self.home(var), thread.number), ir.Let(var, held))

    def each(self, body: Callable[[_Thread], ir.Block], mask: ir.Buffer | None) -> ir.Stmt:
        """A loop over the threads for which `mask` holds."""
        thread = self.thread()
        inner = body(thread)
        alone = all(_is_alone(s) for s in walk_stmts(inner))
        if mask is not None:
            active = self.names.var("active", BOOL)
            inner = (ir.Load(active, mask, thread.number), ir.If(active, inner))
        return self.nest(thread, tuple(self.numbered(s, thread) for s in inner), alone)

    def thread(self) -> _Thread:
        places = tuple(self.names.var(f"thread_{axis}", I32) if n > 1 else None for axis, n in zip("xyz", self.block, strict=True))
        several = sum(v is not None for v in places) != 1
        number = self.names.var("thread", I32) if several else next(v for v in places if v is not None)
        return _Thread(number, places)

    def nest(self, thread: _Thread, inner: ir.Block, alone: bool) -> ir.Stmt:
        """The loops over the threads, x innermost; `alone`: no thread adds to what another one does."""
        loops = [(v, n) for v, n in zip(thread.places, self.block, strict=True) if v is not None]
        if not loops:
            return self.loop(thread.number, 1, inner, False)
        if len(loops) > 1:
            inner = (ir.Let(thread.number, self.count(loops)), *inner)
        (x, threads), *outer = loops
        nest = self.loop(x, threads, inner, alone)
        for var, extent in outer:
            nest = self.loop(var, extent, (nest,), False)
        return nest

    def loop(self, var: ir.Var, extent: int, body: ir.Block, alone: bool) -> ir.Stmt:
        return ir.For(var, b.const(0, I32), b.const(extent, I32), b.const(1, I32), body, independent=alone)

    def count(self, loops: Sequence[tuple[ir.Var, int]]) -> ir.Expr:
        """The number of a thread, x counted first."""
        (var, extent), *rest = loops
        return ir.Binary("+", ir.Binary("*", self.count(rest), b.const(extent, I32), I32), var, I32) if rest else var

    def numbered(self, stmt: ir.Stmt, thread: _Thread) -> ir.Stmt:
        """The statement with numbers for the launch's indices."""

        def index(e: ir.Expr) -> ir.Expr:
            if not isinstance(e, ir.LaunchIndex):
                return e
            return self.position("xyz".index(e.axis), thread, e.type) if e.name == "threadIdx" else self.extent(e)

        return map_exprs((stmt,), lambda e: map_expr(e, index))[0]

    def extent(self, index: ir.LaunchIndex) -> ir.Expr:
        """A number for an extent of the block."""
        return b.const(self.block["xyz".index(index.axis)], index.type) if index.name == "blockDim" else index

    def position(self, axis: int, thread: _Thread, kind: Scalar) -> ir.Expr:
        """The thread's index along an axis."""
        return b.cast(thread.places[axis] or b.const(0, I32), kind)

    def threaded(self, stmts: ir.Block, thread: _Thread) -> ir.Block:
        """The statements on the arrays that stand for the threads' and the block's own."""
        return tuple(s for stmt in stmts for s in self.stmt(stmt, thread))

    def stmt(self, stmt: ir.Stmt, thread: _Thread) -> ir.Block:
        match stmt:
            case ir.Alloc(buffer=buffer) if buffer.space is Space.SHARED:
                return ()
            case ir.Alloc(buffer=buffer) if buffer in self.arrays:
                return self.fresh(stmt, thread) if stmt.zero else ()
            case ir.Accumulate(how=ir.How.REDUCED) if stmt.buffer not in self.arrays:
                return (self.partial(stmt),)
            case ir.Load() | ir.Store() | ir.Accumulate() | ir.Take() | ir.Atomic() if stmt.buffer in self.arrays:
                return (self.access(stmt, thread),)
        return (map_blocks(stmt, lambda block: self.threaded(block, thread)),)

    def fresh(self, stmt: ir.Alloc, thread: _Thread) -> ir.Block:
        k = self.names.var("k", I32)
        store = ir.Store(self.arrays[stmt.buffer], self.row(k, thread), b.zero(value_type(stmt.buffer.element)))
        return (ir.For(k, b.const(0, I32), b.const(stmt.buffer.length or 0, I32), b.const(1, I32), (store,)),)

    def row(self, index: ir.Expr, thread: _Thread) -> ir.Expr:
        wide = b.cast(index, I64)
        return ir.Binary("+", ir.Binary("*", wide, b.const(self.threads, I64), I64), b.cast(thread.number, I64), I64)

    def access(self, stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic, thread: _Thread) -> ir.Stmt:
        index = stmt.index if stmt.buffer.space is Space.SHARED else self.row(stmt.index, thread)
        moved = replace(stmt, buffer=self.arrays[stmt.buffer], index=index)
        if not isinstance(moved, ir.Accumulate | ir.Take):
            return moved
        plain = replace(moved, how=ir.How.PLAIN)
        return self.where_there_is_one(plain) if isinstance(plain, ir.Accumulate) and moved.how is ir.How.REDUCED else plain

    def where_there_is_one(self, add: ir.Accumulate) -> ir.Stmt:
        """A thread's part of a sum over its block: where it is 0 for all of them, there may be no such element."""
        if isinstance(add.index, ir.Constant) and 0 <= add.index.value < (add.buffer.length or 0):
            return add
        return ir.If(b.compare("!=", add.value, b.zero(add.value.type)), (add,))

    def partial(self, stmt: ir.Accumulate) -> ir.Stmt:
        """A sum over the threads: formed in double, and added to memory once a block."""
        if not isinstance(stmt.index, ir.Constant) or not stmt.buffer.element.is_float:
            return replace(stmt, how=ir.How.ATOMIC)
        total = self.array("sum", F64, 1, zero=True)
        self.sums.append((stmt, total))
        return ir.Accumulate(total, b.const(0, I32), b.cast(stmt.value, F64), ir.How.PLAIN, span=stmt.span)

    def sum_up(self, stmt: ir.Accumulate, total: ir.Buffer) -> ir.Block:
        value = self.names.var("sum", F64)
        reduced = replace(stmt, value=b.cast(value, stmt.buffer.element))
        return (ir.Load(value, total, b.const(0, I32)), reduced)

    # --- shuffles --------------------------------------------------------------------------------------------------------------------

    def ballot(self, stmt: ir.Shuffle, mask: ir.Buffer | None) -> ir.Block:
        """Each thread looks at the votes of its warp."""
        place = self.array(f"{stmt.var.name}_votes", U32, -(-self.threads // WARP) * WARP)

        def put(thread: _Thread) -> ir.Block:
            return (*self.fetched((stmt.value,), thread), ir.Store(place, thread.number, stmt.value))

        def count(thread: _Thread) -> ir.Block:
            k, vote, votes, all_votes = (self.names.var(n, t) for n, t in (("k", I32), ("vote", U32), ("votes", U32), ("votes", U32)))
            first = ir.Binary("-", thread.number, ir.Binary("&", thread.number, b.const(WARP - 1, I32), I32), I32)
            bit = ir.Binary("<<", vote, b.cast(k, U32), U32)
            carried = ir.Carried(votes, b.const(0, U32), ir.Binary("|", votes, bit, U32), all_votes)
            look = ir.Load(vote, place, ir.Binary("+", first, k, I32))
            return (
                *self.fetched((stmt.mask,), thread),
                ir.For(k, b.const(0, I32), b.const(WARP, I32), b.const(1, I32), (look,), (carried,)),
                ir.Let(stmt.var, ir.Binary("&", all_votes, stmt.mask, U32)),
                ir.Store(self.home(stmt.var), thread.number, stmt.var),
            )

        return (self.cleared(place), self.each(put, mask), self.each(count, mask))

    def shuffle(self, stmt: ir.Shuffle, mask: ir.Buffer | None) -> ir.Block:
        if stmt.op == "ballot":
            return self.ballot(stmt, mask)
        place = self.array(f"{stmt.var.name}_lanes", stmt.var.type, self.threads)

        def put(thread: _Thread) -> ir.Block:
            return (*self.fetched((stmt.value,), thread), ir.Store(place, thread.number, stmt.value))

        def pick(thread: _Thread) -> ir.Block:
            source = self.names.var("source", I32)
            return (
                *self.fetched((stmt.lane, stmt.width), thread),
                ir.Let(source, source_thread(stmt, thread.number, self.threads)),
                ir.Load(stmt.var, place, source),
                ir.Store(self.home(stmt.var), thread.number, stmt.var),
            )

        return (self.each(put, mask), self.each(pick, mask))

    def fetched(self, exprs: tuple[ir.Expr, ...], thread: _Thread) -> ir.Block:
        used = dict.fromkeys(v for e in exprs for v in ir.variables(e) if v not in self.params)
        return tuple(s for v in used for s in self.fetch(v, thread))

    # --- control flow ----------------------------------------------------------------------------------------------------------------

    def bools(self, name: str) -> ir.Buffer:
        return self.array(name, BOOL, self.threads)

    def branch(self, stmt: ir.If, mask: ir.Buffer | None) -> ir.Block:
        first, second = self.bools("then"), self.bools("otherwise")

        def decide(thread: _Thread) -> ir.Block:
            return (
                *self.fetched((stmt.condition,), thread),
                ir.Store(first, thread.number, stmt.condition),
                ir.Store(second, thread.number, b.negate(stmt.condition)),
            )

        out: list[ir.Stmt] = [self.cleared(first), self.cleared(second), self.each(decide, mask)]
        for side, taken, pick in ((stmt.then, first, 0), (stmt.otherwise, second, 1)):
            out.extend(self.lower(side, taken))
            values = tuple((m.var, (m.then, m.otherwise)[pick]) for m in stmt.merges)
            if values:
                out.append(self.give(values, taken))
        return tuple(out)

    def give(self, values: tuple[tuple[ir.Var, ir.Expr], ...], mask: ir.Buffer | None) -> ir.Stmt:
        """Gives the variables new values, all at once."""

        def body(thread: _Thread) -> ir.Block:
            fresh = [(v, self.names.var(v.name, v.type), e) for v, e in values]
            return (
                *self.fetched(tuple(e for _, e in values), thread),
                *(ir.Let(new, e) for _, new, e in fresh),
                *(ir.Store(self.home(v), thread.number, new) for v, new, _ in fresh),
            )

        return self.each(body, mask)

    def begin(self, carried: tuple[ir.Carried, ...], mask: ir.Buffer | None) -> ir.Block:
        return (self.give(tuple((c.var, c.init) for c in carried), mask),) if carried else ()

    def advance(self, carried: tuple[ir.Carried, ...], live: ir.Buffer | None) -> ir.Block:
        return (self.give(tuple((c.var, c.next) for c in carried), live),) if carried else ()

    def end(self, carried: tuple[ir.Carried, ...], mask: ir.Buffer | None) -> ir.Block:
        return (self.give(tuple((c.result, c.var) for c in carried), mask),) if carried else ()

    def common(self, expr: ir.Expr) -> ir.Expr | None:
        """The expression, if all threads of the block have the same value, in terms of what they have in common."""
        full = map_expr(substitute(expr, self.values), lambda e: self.extent(e) if isinstance(e, ir.LaunchIndex) else e)
        return full if is_uniform(full, self.params) else None

    def together(self, stmt: ir.Stmt) -> ir.Block | None:
        """A loop or a branch that all threads of the block take together."""
        match stmt:
            case ir.If():
                condition = self.common(stmt.condition)
                return None if condition is None else self.branch_together(stmt, condition)
            case ir.For():
                bounds = [self.common(e) for e in (stmt.start, stmt.stop, stmt.step)]
                start, stop, step = bounds
                if start is None or stop is None or step is None:
                    return None
                self.params.add(stmt.var)
                body = (*self.lower(stmt.body, None), *self.advance(stmt.carried, None))
                loop = replace(stmt, start=start, stop=stop, step=step, body=body, carried=())
                return (*self.begin(stmt.carried, None), loop, *self.end(stmt.carried, None))
        return None

    def branch_together(self, stmt: ir.If, condition: ir.Expr) -> ir.Block:
        sides = []
        for side, pick in ((stmt.then, 0), (stmt.otherwise, 1)):
            values = tuple((m.var, (m.then, m.otherwise)[pick]) for m in stmt.merges)
            sides.append((*self.lower(side, None), *((self.give(values, None),) if values else ())))
        return (replace(stmt, condition=condition, then=sides[0], otherwise=sides[1], merges=()),)

    def counted(self, loop: ir.For, mask: ir.Buffer | None) -> ir.Block:
        """Each thread's iterations are counted beforehand; the loop runs for the thread that has most."""
        trips, most, live = self.array("trips", I64, self.threads), self.array("most", I64, 1), self.bools("live")

        def count(thread: _Thread) -> ir.Block:
            number, found = self.names.var("trips", I64), self.names.var("most", I64)
            more = ir.Store(most, b.const(0, I32), number)
            return (
                *self.fetched((loop.start, loop.stop, loop.step), thread),
                ir.Let(number, _trips(loop)),
                ir.Store(trips, thread.number, number),
                ir.Load(found, most, b.const(0, I32)),
                ir.If(b.compare("<", found, number), (more,)),
            )

        done, last = self.names.var("done", I64), self.names.var("last", I64)

        def step(thread: _Thread) -> ir.Block:
            number = self.names.var("trips", I64)
            at: ir.Expr = ir.Binary("-", ir.Binary("-", number, b.const(1, I64), I64), done, I64) if loop.backward else done
            index = ir.Binary("+", b.cast(loop.start, I64), ir.Binary("*", b.cast(loop.step, I64), at, I64), I64)
            return (
                *self.fetched((loop.start, loop.step), thread),
                ir.Load(number, trips, thread.number),
                ir.Store(live, thread.number, b.compare("<", done, number)),
                ir.Store(self.home(loop.var), thread.number, b.cast(index, loop.var.type)),
            )

        body = (self.cleared(live), self.each(step, mask), *self.lower(loop.body, live), *self.advance(loop.carried, live))
        return (
            *self.begin(loop.carried, mask),
            self.cleared(trips),
            self.cleared(most),
            self.each(count, mask),
            ir.Load(last, most, b.const(0, I32)),
            ir.For(done, b.const(0, I64), last, b.const(1, I64), body),
            *self.end(loop.carried, mask),
        )

    def repeated(self, loop: ir.While, mask: ir.Buffer | None) -> ir.Block:
        live, some = self.bools("live"), self.array("some", BOOL, 1)
        counter = self.names.var("iteration", I32) if loop.counter is None else loop.counter

        def test(thread: _Thread) -> ir.Block:
            inside = {v for s in loop.header for v in defined(s)}
            used = (*(e for s in loop.header for e in expressions(s)), loop.condition)
            outside = dict.fromkeys(v for e in used for v in ir.variables(e) if v not in inside and v not in self.params)
            kept = tuple(ir.Store(self.home(v), thread.number, v) for v in inside)
            go = self.names.var("go", BOOL)
            return (
                *(s for v in outside for s in self.fetch(v, thread)),
                *self.threaded(loop.header, thread),
                *kept,
                ir.Let(go, loop.condition),
                ir.Store(live, thread.number, go),
                ir.If(go, (ir.Store(some, b.const(0, I32), b.const(True, BOOL)),)),
            )

        def start(thread: _Thread) -> ir.Block:
            return (ir.Store(live, thread.number, b.const(True, BOOL)),)

        more = ((counter, ir.Binary("+", counter, b.const(1, I32), I32)),)
        again, on = (self.names.var("some", BOOL) for _ in range(2))
        retest = (self.cleared(some), self.each(test, live), ir.Load(again, some, b.const(0, I32)))
        first = ir.Carried(on, self.names.var("some", BOOL), again, self.names.var("some", BOOL))
        assert isinstance(first.init, ir.Var)
        body = (*self.lower(loop.body, live), *self.advance(loop.carried, live), self.give(more, live), *retest)
        count = () if loop.count is None else (self.give(((loop.count, counter),), mask),)
        return (
            *self.begin(loop.carried, mask),
            self.give(((counter, b.const(0, I32)),), mask),
            self.cleared(live),
            self.each(start, mask),
            self.cleared(some),
            self.each(test, live if mask is not None else None),
            ir.Load(first.init, some, b.const(0, I32)),
            ir.While((), on, body, (first,)),
            *self.end(loop.carried, mask),
            *count,
        )


def source_thread(stmt: ir.Shuffle, thread: ir.Expr, threads: int) -> ir.Expr:
    """The number of the thread whose value a shuffle gives to a thread; itself where the shuffle says so, or where there is none."""

    def whole(value: int) -> ir.Constant:
        return b.const(value, I64)

    def of(op: str, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        return ir.Binary(op, x, y, I64)

    own, width, step = b.cast(thread, I64), b.cast(stmt.width, I64), b.cast(stmt.lane, I64)
    if isinstance(stmt.lane.type, Scalar) and stmt.lane.type == U32 and stmt.op == "":
        step = b.cast(b.cast(stmt.lane, I32), I64)
    lane = of("&", own, whole(WARP - 1))
    low = of("&", lane, of("-", width, whole(1)))  # within its segment
    match stmt.op:
        case "up":
            shift, stays = of("-", own, step), b.compare(">", step, low)
        case "down":
            shift, stays = of("+", own, step), b.compare(">=", of("+", low, step), width)
        case "xor":
            target = of("^", lane, of("&", step, whole(WARP - 1)))
            shift, stays = of("+", of("-", own, lane), target), b.compare(">=", target, of("+", of("-", lane, low), width))
        case "":
            shift = of("+", of("-", own, low), of("&", step, of("-", width, whole(1))))
            stays = b.const(False, BOOL)
        case kind:
            raise AssertionError(f"a shuffle of the kind {kind!r}")
    missing = b.compare(">=", shift, whole(threads))
    return b.cast(ir.Select(ir.Binary("||", stays, missing, BOOL), own, shift), I32)


def _trips(loop: ir.For) -> ir.Expr:
    """The length of `range(start, stop, step)`, in 64 bits."""
    start, stop, step = (b.cast(e, I64) for e in (loop.start, loop.stop, loop.step))
    if isinstance(loop.step, ir.Constant) and loop.step.value < 0:
        start, stop, step = stop, start, b.const(-int(loop.step.value), I64)
    span = ir.Binary("-", ir.Binary("+", ir.Binary("-", stop, start, I64), step, I64), b.const(1, I64), I64)
    return ir.Select(b.compare("<", start, stop), ir.Binary("/", span, step, I64), b.const(0, I64))


def _touches(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    return isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic | ir.Alloc) and stmt.buffer == buffer


def _pieces(block: ir.Block) -> Iterator[ir.Block]:
    """The runs of statements between what waits."""
    piece: list[ir.Stmt] = []
    for stmt in block:
        if not _has_wait(stmt):
            piece.append(stmt)
            continue
        if piece:
            yield tuple(piece)
            piece = []
        for inner in blocks(stmt):
            yield from _pieces(inner)
    if piece:
        yield tuple(piece)
