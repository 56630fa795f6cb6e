"""Dead code elimination, by marking from roots: keeps the writes that are visible after the launch, and what they depend on.

Of an adjoint, roots are writes to parameters. Barriers stay as long as they separate something: the forward sweep and its mirror repeat
every barrier of the primal, also where what they ordered is gone, so a barrier stays only if memory that other threads see has been touched
since the last one, and will be touched again, at least once by a write. A write to private memory (local and shared arrays, working copies)
counts only if the memory is read by something that is kept; a field of a stack only if something kept pops it. Vars are followed by
identity, and all definitions of a Var (siblings may repeat one another's) are kept or dropped together, which is conservative.

Of a freshly lowered kernel (`tidy`) all that other threads or a user may see are roots, barriers too.

Assumes and guarantees: valid IR. Loops are taken to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TypeAlias, TypeGuard

from ..ir import folding
from ..ir import nodes as ir
from ..ir.nodes import Accumulate, Alloc, Atomic, Barrier, Block, Buffer, For, How, If, Load, Shuffle, Stmt, Store, Take, While
from ..ir.rewrite import blocks, edit, expressions, holds, map_blocks, walk_stmts
from ..ir.types import Space


def eliminate_dead_code(body: ir.Block, private: Iterable[ir.Buffer] = ()) -> ir.Block:
    """The body without what nothing outside can see; `private` are parameters that are dead after the launch."""
    dead = frozenset(private)
    marks = _Marks(body, lambda s: (_is_write(s) and s.buffer.length is None and s.buffer not in dead) or _names_lanes(s))
    return remove_redundant_barriers(_sweep(body, marks))


def tidy(body: ir.Block) -> ir.Block:
    """A freshly lowered body without what has no effect on memory other than the thread's own arrays, on other threads or on output."""
    marks = _Marks(body, _has_effect, counters=True)
    swept = _sweep(body, marks)
    return _Tidied(swept, marks.vars).block(swept)


def without_output(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without printf and assertions, and without what only they needed."""
    if not holds(kernel.body, ir.Tell):
        return kernel
    return replace(kernel, body=tidy(edit(kernel.body, lambda s: () if isinstance(s, ir.Tell) else None)))


def _is_write(stmt: ir.Stmt) -> TypeGuard[ir.Store | ir.Accumulate | ir.Take | ir.Atomic]:
    return isinstance(stmt, ir.Store | ir.Accumulate | ir.Take | ir.Atomic)


def _names_lanes(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier) and stmt.mask is not None


def _has_effect(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier | ir.Shuffle | ir.Tell) or (_is_write(stmt) and stmt.buffer.space is not Space.LOCAL)


class _Tidied:
    """`vars`: the Vars that are used. `starts`: Lets that only say where a loop of the same name starts; they move into it."""

    def __init__(self, body: ir.Block, used: Collection[ir.Var]) -> None:
        self.vars = used
        stmts = list(walk_stmts(body))
        uses = Counter(v for stmt in stmts for e in expressions(stmt) for v in ir.variables(e))
        lets = {stmt.var: stmt.value for stmt in stmts if isinstance(stmt, ir.Let)}
        first = [v for s in stmts if isinstance(s, ir.For) and isinstance(v := _plain(s.start), ir.Var) and v.name == s.var.name]
        self.starts: dict[ir.Expr, ir.Expr] = {v: lets[v] for v in first if v in lets and uses[v] == 1}

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(new for stmt in block for new in self.stmt(map_blocks(stmt, self.block)))

    def stmt(self, stmt: ir.Stmt) -> Iterable[ir.Stmt]:
        match stmt:
            case ir.Let(var=var) if var in self.starts:
                return ()
            case ir.Atomic(var=ir.Var() as var) if var not in self.vars:
                return (_without_result(stmt),)
            case ir.If(condition=c, then=then, otherwise=otherwise, merges=merges):
                return folding.make_if(c, then, otherwise, merges, stmt.span)
            case ir.For(start=start):
                return (replace(stmt, start=folding.cast(self.starts.get(_plain(start), _plain(start)), start.type)),)
        return (stmt,)


def _plain(start: ir.Expr) -> ir.Expr:
    """What a loop starts from, without its conversion to the loop's type."""
    return start.operand if isinstance(start, ir.Cast) else start


def _without_result(stmt: ir.Atomic) -> ir.Stmt:
    """An atomic operation whose result is unused."""
    if stmt.op not in ("add", "sub"):
        return replace(stmt, var=None)
    added = stmt.operands[0] if stmt.op == "add" else folding.unary("-", stmt.operands[0])
    return ir.Accumulate(stmt.buffer, stmt.index, added, ir.How.ATOMIC, span=stmt.span, note=stmt.note)


class _Marks:
    """What is live if the statements that `is_root` says are. `counters`: those of while loops stay."""

    def __init__(self, body: ir.Block, is_root: Callable[[ir.Stmt], bool], *, counters: bool = False) -> None:
        self.is_root = is_root
        self.counters = counters
        self.live: set[int] = set()
        self.vars: set[ir.Var] = set()
        self.buffers: set[ir.Buffer] = set()
        self.fields: set[tuple[ir.Stack, int]] = set()
        self.parents: dict[int, tuple[ir.Stmt, ...]] = {}
        self.definitions: dict[ir.Var, list[tuple[ir.Stmt, tuple[ir.Expr, ...]]]] = {}
        self.writers: dict[ir.Buffer, list[ir.Stmt]] = {}
        self.allocations: dict[ir.Buffer, list[ir.Alloc]] = {}
        self.pushes: dict[ir.Stack, list[ir.Push]] = {}
        self.work: list[ir.Stmt] = []
        self.collect(body, ())
        while self.work:
            self._need(self.work.pop())

    # --- facts -------------------------------------------------------------------------------------------------------------------

    def collect(self, block: ir.Block, path: tuple[ir.Stmt, ...]) -> None:
        for stmt in block:
            self.parents[id(stmt)] = path
            self._register(stmt)
            if self.is_root(stmt):
                self.keep(stmt)
            for inner in blocks(stmt):
                self.collect(inner, (*path, stmt))

    def _register(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(var=v, value=e) | ir.Assign(var=v, value=e):
                self._define(v, stmt, (e,))
            case ir.Load(var=v) | ir.Take(var=v) | ir.Shuffle(var=v):
                self._define(v, stmt, ())
            case ir.Atomic(var=ir.Var() as v):
                self._define(v, stmt, ())
            case ir.Pop(vars=vs):
                for v in vs:
                    self._define(v, stmt, ())
            case ir.If(merges=merges):
                for m in merges:
                    self._define(m.var, stmt, (m.then, m.otherwise))
            case ir.For(carried=carried) | ir.While(carried=carried):
                self._loop(stmt, carried)
            case ir.Push(stack=stack):
                self.pushes.setdefault(stack, []).append(stmt)
        if isinstance(stmt, ir.Store | ir.Accumulate | ir.Take | ir.Atomic | ir.Alloc):
            self.writers.setdefault(stmt.buffer, []).append(stmt)
        if isinstance(stmt, ir.Alloc):
            self.allocations.setdefault(stmt.buffer, []).append(stmt)

    def _loop(self, stmt: ir.For | ir.While, carried: tuple[ir.Carried, ...]) -> None:
        for c in carried:
            self._define(c.var, stmt, (c.init, c.next))
            self._define(c.result, stmt, (c.init, c.next, c.var))
        bound = (stmt.var,) if isinstance(stmt, ir.For) else (stmt.counter, stmt.count)
        for v in bound:
            if v is not None:
                self._define(v, stmt, ())

    def _define(self, var: ir.Var, stmt: ir.Stmt, inputs: tuple[ir.Expr, ...]) -> None:
        self.definitions.setdefault(var, []).append((stmt, inputs))

    # --- marking -----------------------------------------------------------------------------------------------------------------

    def keep(self, stmt: ir.Stmt) -> None:
        for s in (*self.parents[id(stmt)], stmt):
            if id(s) not in self.live:
                self.live.add(id(s))
                self.work.append(s)

    def _need(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(value=e):
                self.use(e)
            case ir.Assign(var=v, value=e):
                self.use(e, v)
            case ir.Load(buffer=b, index=i) | ir.Take(buffer=b, index=i):
                self.use(i)
                self.read(b)
            case ir.Store(buffer=b, index=i, value=e) | ir.Accumulate(buffer=b, index=i, value=e):
                self.use(i, e)
                self.made(b)
            case ir.Atomic(buffer=b, index=i, operands=operands):
                self.use(i, *operands)
                self.read(b)
            case ir.If(condition=c):
                self.use(c)
            case ir.For(start=a, stop=z, step=s):
                self.use(a, z, s)
            case ir.While(condition=c):
                self.use(c)
            case ir.Shuffle():
                self.use(stmt.mask, stmt.value, stmt.lane, stmt.width)
            case ir.Barrier(mask=mask) if mask is not None:
                self.use(mask)
            case ir.Tell(values=values):
                self.use(*values)

    def use(self, *exprs: ir.Expr) -> None:
        for expr in exprs:
            for v in ir.variables(expr):
                self.mark(v)

    def mark(self, var: ir.Var) -> None:
        if var in self.vars:
            return
        self.vars.add(var)
        for stmt, inputs in self.definitions.get(var, ()):
            self.keep(stmt)
            self.use(*inputs)
            if isinstance(stmt, ir.Pop):
                self.pop(stmt, stmt.vars.index(var))

    def pop(self, stmt: ir.Pop, index: int) -> None:
        self.fields.add((stmt.stack, index))
        for push in self.pushes.get(stmt.stack, ()):
            self.keep(push)
            self.use(push.values[index])

    def made(self, buffer: ir.Buffer) -> None:
        for allocation in self.allocations.get(buffer, ()):
            self.keep(allocation)

    def read(self, buffer: ir.Buffer) -> None:
        if buffer in self.buffers:
            return
        self.buffers.add(buffer)
        for writer in self.writers.get(buffer, ()):
            self.keep(writer)


def _sweep(block: ir.Block, marks: _Marks) -> ir.Block:
    """What is live of a block, with all barriers in it: of a loop that goes, one barrier stays."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.Barrier):
            out.append(stmt)
        elif id(stmt) in marks.live:
            out.append(_trim(stmt, marks))
        elif (scope := barrier_in(stmt)) is not None:
            out.append(ir.Barrier(scope, span=stmt.span))
    return tuple(out)


def _trim(stmt: ir.Stmt, marks: _Marks) -> ir.Stmt:
    match stmt:
        case ir.If(then=a, otherwise=b, merges=merges):
            kept = tuple(m for m in merges if m.var in marks.vars)
            return replace(stmt, then=_sweep(a, marks), otherwise=_sweep(b, marks), merges=kept)
        case ir.For(body=body, carried=carried):
            return replace(stmt, body=_sweep(body, marks), carried=_carried(carried, marks))
        case ir.While(header=header, body=body, carried=carried):
            return replace(
                stmt,
                header=_sweep(header, marks),
                body=_sweep(body, marks),
                carried=_carried(carried, marks),
                counter=stmt.counter if marks.counters or stmt.counter in marks.vars else None,
                count=stmt.count if marks.counters or stmt.count in marks.vars else None,
            )
        case ir.Push(stack=stack, values=values):
            kept_fields = [i for i in range(len(values)) if (stack, i) in marks.fields]
            return replace(stmt, stack=_fields(stack, kept_fields), values=tuple(values[i] for i in kept_fields))
        case ir.Pop(stack=stack, vars=vs):
            kept_fields = [i for i in range(len(vs)) if (stack, i) in marks.fields]
            return replace(stmt, stack=_fields(stack, kept_fields), vars=tuple(vs[i] for i in kept_fields))
    return stmt


def _carried(carried: tuple[ir.Carried, ...], marks: _Marks) -> tuple[ir.Carried, ...]:
    return tuple(c for c in carried if c.var in marks.vars or c.result in marks.vars)


def _fields(stack: ir.Stack, kept: list[int]) -> ir.Stack:
    return replace(stack, fields=tuple(stack.fields[i] for i in kept))


Memory: TypeAlias = "Buffer | tuple[str, int | None]"  # shared arrays by name and length: copies of one are one (`privatisation`)
Touched: TypeAlias = "frozenset[tuple[Memory, str]]"  # how: 'read', 'write' or 'atomic'

NOTHING: Touched = frozenset()


def waits(body: Block) -> bool:
    """True if threads wait for one another, or share memory of their block."""
    return any(isinstance(s, Barrier | Shuffle) or (isinstance(s, Alloc) and s.buffer.space is Space.SHARED) for s in walk_stmts(body))


def remove_redundant_barriers(body: Block) -> Block:
    """The body without the barriers that separate nothing."""
    if not holds(body, Barrier):
        return body
    return _block(body, NOTHING, NOTHING)[0]


def holds_barrier(stmt: Stmt) -> bool:
    """True if the statement is or contains a barrier of a block."""
    return barrier_in(stmt) == "block"


def barrier_in(stmt: Stmt) -> str | None:
    """The widest scope of the barriers in a statement, None if there are none."""
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    scopes = {s.scope for s in (stmt, *inner) if isinstance(s, Barrier)}
    return min(scopes, default=None)  # 'block' comes before 'warp'


def _block(block: Block, since: Touched, after: Touched) -> tuple[Block, Touched]:
    """The thinned block, and what has been touched since the last barrier at its end. `since`: the same at its start; `after`: what will
    be touched after it."""
    later = [after]
    for stmt in reversed(block):
        later.append(later[-1] | _touched(stmt))
    later.reverse()
    out: list[Stmt] = []
    for position, stmt in enumerate(block):
        match stmt:
            case Barrier(scope=scope):
                if _conflict(since, later[position + 1]):
                    out.append(stmt)
                    since = NOTHING if scope == "block" else since
            case If() | For() | While():
                stmt, since = _control(stmt, since, later[position + 1])
                out.append(stmt)
            case _:
                out.append(stmt)
                since |= _touched(stmt)
    return tuple(out), since


def _control(stmt: If | For | While, since: Touched, after: Touched) -> tuple[Stmt, Touched]:
    if not any(isinstance(s, Barrier) for block in blocks(stmt) for s in walk_stmts(block)):
        return stmt, since | _touched(stmt)
    if isinstance(stmt, If):
        then, first = _block(stmt.then, since, after)
        otherwise, second = _block(stmt.otherwise, since, after)
        return replace(stmt, then=then, otherwise=otherwise), first | second
    own = _touched(stmt)
    body, _ = _block(stmt.body, since | own, after | own)
    return replace(stmt, body=body), since | own


def _touched(stmt: Stmt) -> Touched:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return frozenset(t for s in (stmt, *inner) for t in _access(s))


def _access(stmt: Stmt) -> tuple[tuple[Memory, str], ...]:
    if not isinstance(stmt, Load | Store | Accumulate | Take | Atomic) or stmt.buffer.space is Space.LOCAL:
        return ()
    buffer = stmt.buffer
    memory = (buffer.name, buffer.length) if buffer.space is Space.SHARED else buffer
    if isinstance(stmt, Load):
        return ((memory, "read"),)
    adds = isinstance(stmt, Accumulate) and stmt.how is not How.PLAIN
    return ((memory, "atomic" if adds else "write"),)


def _conflict(before: Touched, after: Touched) -> bool:
    return any(a == b and not (how == other != "write") for a, how in before for b, other in after)
