"""Traversals of the core IR: rebuilding expressions, looking into or rebuilding statements, fresh names.

Nodes are frozen, so a pass builds new ones. Expression tools return the very same object where nothing changed, which keeps passes cheap
and lets them test for a fixpoint with `is`. `Names` gives fresh variables and buffers for one kernel under construction, deterministically:
the same input gives the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from . import nodes as ir
from .nodes import Alloc, Buffer, Kernel, Stmt, Var
from .types import Scalar, Space

Rewrite = Callable[[ir.Expr], ir.Expr]


# --- expressions ---------------------------------------------------------------------------------------------------------------------


def rebuild(expr: ir.Expr, f: Rewrite) -> ir.Expr:
    """The expression with `f` applied to each of its direct subexpressions."""
    match expr:
        case ir.Unary(operand=a) | ir.Cast(operand=a):
            new = f(a)
            return expr if new is a else replace(expr, operand=new)
        case ir.Binary(left=a, right=b):
            left, right = f(a), f(b)
            return expr if left is a and right is b else replace(expr, left=left, right=right)
        case ir.Select(condition=c, then=a, otherwise=b):
            sides = f(c), f(a), f(b)
            return expr if _same(sides, (c, a, b)) else ir.Select(*sides)
        case ir.Call(arguments=args):
            arguments = tuple(f(a) for a in args)
            return expr if _same(arguments, args) else replace(expr, arguments=arguments)
    return expr


def map_expr(expr: ir.Expr, f: Rewrite) -> ir.Expr:
    """The expression rebuilt bottom-up: `f` sees each node after its children were rewritten, and gives what stands in its place."""
    return f(rebuild(expr, lambda child: map_expr(child, f)))


def substitute(expr: ir.Expr, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
    """The expression with every Var that is a key of `mapping` replaced, all at once (replacements are not searched again)."""
    return map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, ir.Var) else e) if mapping else expr


def is_short(expr: ir.Expr, most: int = 128) -> bool:
    """True if an expression has so few parts that others may be put together from it. Without such a bound the text of a variable in terms
    of others doubles with each line that uses the one before it twice."""
    return sum(1 for _ in islice(ir.walk(expr), most + 1)) <= most


def spelled(expr: ir.Expr, lets: Mapping[ir.Var, ir.Expr]) -> ir.Expr | None:
    """The expression without the names of `lets`, nor those that occur in what they stand for; None where it is no longer short."""
    while any(v in lets for v in ir.variables(expr)):
        expr = substitute(expr, lets)
        if not is_short(expr):
            return None
    return expr


def _same(new: tuple[ir.Expr, ...], old: tuple[ir.Expr, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


# --- statements ----------------------------------------------------------------------------------------------------------------------


def defined(stmt: ir.Stmt) -> tuple[ir.Var, ...]:
    """The Vars that a statement defines in its own block: an If's merges; the results of what a loop carries, and a While's `count`."""
    match stmt:
        case ir.Let(var=v) | ir.Load(var=v) | ir.Take(var=v) | ir.Shuffle(var=v):
            return (v,)
        case ir.Atomic(var=ir.Var() as v):
            return (v,)
        case ir.Pop(vars=vs):
            return vs
        case ir.If(merges=merges):
            return tuple(m.var for m in merges)
        case ir.For(carried=carried):
            return tuple(c.result for c in carried)
        case ir.While(carried=carried, count=count):
            return (*(c.result for c in carried), *((count,) if count else ()))
    return ()


def heads(stmt: ir.Stmt | None) -> tuple[ir.Var, ...]:
    """The Vars that a loop defines for the blocks inside it: a For's index or a While's `counter`, and what it carries."""
    match stmt:
        case ir.For(var=var, carried=carried):
            return (var, *(c.var for c in carried))
        case ir.While(counter=counter, carried=carried):
            return (*((counter,) if counter is not None else ()), *(c.var for c in carried))
    return ()


def bound(stmt: ir.Stmt) -> tuple[ir.Var, ...]:
    """The Vars that a statement defines, in its own block and for those inside it, but not those of the statements inside it."""
    return (*defined(stmt), *heads(stmt))


def blocks(stmt: ir.Stmt) -> tuple[ir.Block, ...]:
    """The blocks directly inside a statement, in order: an If's two sides, a For's body, a While's header and body."""
    match stmt:
        case ir.If(then=a, otherwise=b):
            return (a, b)
        case ir.For(body=body):
            return (body,)
        case ir.While(header=header, body=body):
            return (header, body)
    return ()


def walk_stmts(block: ir.Block) -> Iterator[ir.Stmt]:
    """All statements of a block and of the blocks inside it, in order, each before what it contains."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from walk_stmts(inner)


def bound_in(loop: ir.For | ir.While) -> set[ir.Expr]:
    """Vars that change from one iteration to the next: whatever the loop defines inside."""
    inside = [stmt for block in blocks(loop) for stmt in walk_stmts(block)]
    return {*heads(loop), *(v for stmt in inside for v in bound(stmt))}


def holds(block: ir.Block, *kinds: type[ir.Stmt]) -> bool:
    """True if a statement of one of these kinds is in the block, at any depth."""
    return any(isinstance(stmt, kinds) for stmt in walk_stmts(block))


def grid_barrier(block: ir.Block) -> ir.Barrier | None:
    """The first barrier of the whole grid in a block, at any depth."""
    return next((s for s in walk_stmts(block) if isinstance(s, ir.Barrier) and s.scope == "grid"), None)


def walk_blocks(block: ir.Block) -> Iterator[ir.Block]:
    """A block and the blocks inside it, each before those that it contains."""
    yield block
    for stmt in block:
        for inner in blocks(stmt):
            yield from walk_blocks(inner)


def assigned_vars(block: ir.Block) -> frozenset[ir.Var]:
    """The Vars that an Assign in a block or inside it gives a value to: all others have one value."""
    return frozenset(s.var for s in walk_stmts(block) if isinstance(s, ir.Assign))


def touches(block: ir.Block, buffer: ir.Buffer) -> Iterator[ir.Stmt]:
    """The statements of a block and of the blocks inside it that name the buffer, in order: its array's Alloc too."""
    return (s for s in walk_stmts(block) if getattr(s, "buffer", None) == buffer)


def target(stmt: ir.Stmt) -> ir.Buffer | None:
    """The memory that a statement itself writes."""
    return stmt.buffer if isinstance(stmt, ir.Store | ir.Accumulate | ir.Take | ir.Atomic) else None


def written_in(block: ir.Block) -> frozenset[ir.Buffer]:
    """The memory that the statements of a block, or those inside it, write."""
    return frozenset(buffer for stmt in walk_stmts(block) if (buffer := target(stmt)) is not None)


def expressions(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """The expressions directly in a statement (not those of statements inside it): operands, indices, conditions, bounds, and the inputs of
    merges and carried values. Vars that the statement defines are not among them; an Assign's target is neither."""
    match stmt:
        case ir.Let(value=v) | ir.Assign(value=v):
            return (v,)
        case ir.Load(index=i) | ir.Take(index=i):
            return (i,)
        case ir.Store(index=i, value=v) | ir.Accumulate(index=i, value=v):
            return (i, v)
        case ir.If(condition=c, merges=merges):
            return (c, *(e for m in merges for e in (m.then, m.otherwise)))
        case ir.For(start=start, stop=stop, step=step, carried=carried):
            return (start, stop, step, *(e for c in carried for e in (c.init, c.next)))
        case ir.While(condition=c, carried=carried):
            return (c, *(e for k in carried for e in (k.init, k.next)))
        case ir.Atomic(index=i, operands=operands):
            return (i, *operands)
        case ir.Barrier(mask=mask):
            return () if mask is None else (mask,)
        case ir.Shuffle():
            return (stmt.mask, stmt.value, stmt.lane, stmt.width)
        case ir.Push(values=values) | ir.Tell(values=values):
            return values
    return ()


def expressions_in(block: ir.Block) -> Iterator[ir.Expr]:
    """The expressions of a block's statements and of those inside them."""
    return (e for stmt in walk_stmts(block) for e in expressions(stmt))


def used_vars(block: ir.Block) -> Iterator[ir.Var]:
    """The Vars that occur in the expressions of a block's statements and of those inside them, each as often as it does."""
    return (v for e in expressions_in(block) for v in ir.variables(e))


def named(stmt: ir.Stmt) -> Iterator[ir.Var]:
    """The Vars that occur in the expressions directly in a statement, and the one that an Assign gives a value to."""
    yield from (v for e in expressions(stmt) for v in ir.variables(e))
    if isinstance(stmt, ir.Assign):
        yield stmt.var


def map_stmt_exprs(stmt: ir.Stmt, f: Rewrite) -> ir.Stmt:
    """The statement with `f` applied to each expression directly in it; statements inside it and the Vars it defines stay."""
    match stmt:
        case ir.If() | ir.For() | ir.While():
            return _map_control(stmt, f)
        case ir.Let(value=v) | ir.Assign(value=v):
            return replace(stmt, value=f(v))
        case ir.Load(index=i) | ir.Take(index=i):
            return replace(stmt, index=f(i))
        case ir.Store(index=i, value=v) | ir.Accumulate(index=i, value=v):
            return replace(stmt, index=f(i), value=f(v))
        case ir.Atomic(index=i, operands=operands):
            return replace(stmt, index=f(i), operands=tuple(f(o) for o in operands))
        case ir.Barrier(mask=mask):
            return stmt if mask is None else replace(stmt, mask=f(mask))
        case ir.Shuffle():
            return replace(stmt, mask=f(stmt.mask), value=f(stmt.value), lane=f(stmt.lane), width=f(stmt.width))
        case ir.Push(values=values) | ir.Tell(values=values):
            return replace(stmt, values=tuple(f(v) for v in values))
    return stmt


def _map_control(stmt: ir.If | ir.For | ir.While, f: Rewrite) -> ir.Stmt:
    match stmt:
        case ir.If(condition=c, merges=merges):
            return replace(stmt, condition=f(c), merges=tuple(ir.Merge(m.var, f(m.then), f(m.otherwise)) for m in merges))
        case ir.For(start=start, stop=stop, step=step):
            return replace(stmt, start=f(start), stop=f(stop), step=f(step), carried=_map_carried(stmt.carried, f))
        case ir.While(condition=c):
            return replace(stmt, condition=f(c), carried=_map_carried(stmt.carried, f))


def _map_carried(carried: tuple[ir.Carried, ...], f: Rewrite) -> tuple[ir.Carried, ...]:
    return tuple(ir.Carried(c.var, f(c.init), f(c.next), c.result) for c in carried)


def map_blocks(stmt: ir.Stmt, f: Callable[[ir.Block], ir.Block]) -> ir.Stmt:
    """The statement with `f` applied to each block directly inside it."""
    match stmt:
        case ir.If(then=a, otherwise=b):
            return replace(stmt, then=f(a), otherwise=f(b))
        case ir.For(body=body):
            return replace(stmt, body=f(body))
        case ir.While(header=header, body=body):
            return replace(stmt, header=f(header), body=f(body))
    return stmt


def on_buffers(stmt: ir.Stmt, buffers: Mapping[ir.Buffer, ir.Buffer]) -> ir.Stmt:
    """The statement itself on other memory where its own is a key of `buffers`."""
    buffer = getattr(stmt, "buffer", None)
    return replace(stmt, buffer=buffers[buffer]) if isinstance(buffer, ir.Buffer) and buffer in buffers else stmt  # type: ignore[call-arg]


def map_exprs(block: ir.Block, f: Rewrite) -> ir.Block:
    """The block with `f` applied to each expression directly in one of its statements, then to those of the blocks inside it."""
    return tuple(map_blocks(map_stmt_exprs(stmt, f), lambda inner: map_exprs(inner, f)) for stmt in block)


def substituted(stmt: ir.Stmt, mapping: Mapping[ir.Var, ir.Expr]) -> ir.Stmt:
    """The statement and all inside it with the Vars replaced."""
    return map_exprs((stmt,), lambda e: substitute(e, mapping))[0] if mapping else stmt


def edit(block: ir.Block, change: Callable[[ir.Stmt], Iterable[ir.Stmt] | None]) -> ir.Block:
    """The block with `change(stmt)` in the place of each statement; where that is None the statement stays, and its blocks are edited. In
    order, each statement before what it contains; what `change` gives is not edited again."""
    out: list[ir.Stmt] = []
    for stmt in block:
        new = change(stmt)
        out.extend((map_blocks(stmt, lambda inner: edit(inner, change)),) if new is None else new)
    return tuple(out)


class Names:
    """Hands out uids above all that the kernel uses."""

    def __init__(self, kernel: Kernel) -> None:
        used = [p.uid for p in kernel.params]
        for stmt in walk_stmts(kernel.body):
            used.extend(_uids(stmt))
        self._next = max(used, default=0) + 1

    def var(self, name: str, type_: Scalar) -> Var:
        return Var(name, type_, self.uid())

    def buffer(self, name: str, element: Scalar, space: Space = Space.GLOBAL, length: int | None = None) -> Buffer:
        return Buffer(name, element, space, length, self.uid())

    def uid(self) -> int:
        self._next += 1
        return self._next - 1


def _uids(stmt: Stmt) -> list[int]:
    return [v.uid for v in bound(stmt)] + ([stmt.buffer.uid] if isinstance(stmt, Alloc) else [])
