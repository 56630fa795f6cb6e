"""Generic tools for passes over the core IR: rebuilding expressions, and looking into or rebuilding statements.

Nodes are frozen, so a pass builds new ones. Expression tools give back the very same object where nothing changed, which keeps passes
cheap and lets them test for a fixpoint with `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from .nodes import (
    Accumulate,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Call,
    Carried,
    Cast,
    Expr,
    For,
    If,
    Let,
    Load,
    Merge,
    Pop,
    Push,
    Select,
    Shuffle,
    Stmt,
    Store,
    Take,
    Tell,
    Unary,
    Var,
    While,
    variables,
    walk,
)

Rewrite = Callable[[Expr], Expr]


# --- expressions ---------------------------------------------------------------------------------------------------------------------


def rebuild(expr: Expr, f: Rewrite) -> Expr:
    """The expression with `f` applied to each of its direct subexpressions."""
    match expr:
        case Unary(operand=a) | Cast(operand=a):
            new = f(a)
            return expr if new is a else replace(expr, operand=new)
        case Binary(left=a, right=b):
            left, right = f(a), f(b)
            return expr if left is a and right is b else replace(expr, left=left, right=right)
        case Select(condition=c, then=a, otherwise=b):
            sides = f(c), f(a), f(b)
            return expr if _same(sides, (c, a, b)) else Select(*sides)
        case Call(arguments=args):
            arguments = tuple(f(a) for a in args)
            return expr if _same(arguments, args) else replace(expr, arguments=arguments)
    return expr


def map_expr(expr: Expr, f: Rewrite) -> Expr:
    """The expression rebuilt bottom-up: `f` sees each node after its children were rewritten, and gives what stands in its place."""
    return f(rebuild(expr, lambda child: map_expr(child, f)))


def substitute(expr: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """The expression with every Var that is a key of `mapping` replaced, all at once (replacements are not searched again)."""
    return map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, Var) else e) if mapping else expr


def is_short(expr: Expr, most: int = 128) -> bool:
    """Whether an expression has so few parts that others may be put together from it. Without such a bound the text of a variable in terms
    of others doubles with each line that uses the one before it twice."""
    return sum(1 for _ in islice(walk(expr), most + 1)) <= most


def spelled(expr: Expr, lets: Mapping[Var, Expr]) -> Expr | None:
    """The expression without the names of `lets`, nor those that occur in what they stand for; None where it is no longer short."""
    while any(v in lets for v in variables(expr)):
        expr = substitute(expr, lets)
        if not is_short(expr):
            return None
    return expr


def _same(new: tuple[Expr, ...], old: tuple[Expr, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


# --- statements ----------------------------------------------------------------------------------------------------------------------


def defined(stmt: Stmt) -> tuple[Var, ...]:
    """The Vars that a statement defines in its own block: an If's merges; the results of what a loop carries, and a While's `count`."""
    match stmt:
        case Let(var=v) | Load(var=v) | Take(var=v) | Shuffle(var=v):
            return (v,)
        case Atomic(var=Var() as v):
            return (v,)
        case Pop(vars=vs):
            return vs
        case If(merges=merges):
            return tuple(m.var for m in merges)
        case For(carried=carried):
            return tuple(c.result for c in carried)
        case While(carried=carried, count=count):
            return (*(c.result for c in carried), *((count,) if count else ()))
    return ()


def heads(stmt: Stmt | None) -> tuple[Var, ...]:
    """The Vars that a loop defines for the blocks inside it: a For's index or a While's `counter`, and what it carries."""
    match stmt:
        case For(var=var, carried=carried):
            return (var, *(c.var for c in carried))
        case While(counter=counter, carried=carried):
            return (*((counter,) if counter is not None else ()), *(c.var for c in carried))
    return ()


def bound(stmt: Stmt) -> tuple[Var, ...]:
    """The Vars that a statement defines, in its own block and for those inside it, but not those of the statements inside it."""
    return (*defined(stmt), *heads(stmt))


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement, in order: an If's two sides, a For's body, a While's header and body."""
    match stmt:
        case If(then=a, otherwise=b):
            return (a, b)
        case For(body=body):
            return (body,)
        case While(header=header, body=body):
            return (header, body)
    return ()


def walk_stmts(block: Block) -> Iterator[Stmt]:
    """All statements of a block and of the blocks inside it, in order, each before what it contains."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from walk_stmts(inner)


def touches(block: Block, buffer: Buffer) -> Iterator[Stmt]:
    """The statements of a block and of the blocks inside it that name the buffer, in order: its array's Alloc too."""
    return (s for s in walk_stmts(block) if getattr(s, "buffer", None) == buffer)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in a statement (not those of statements inside it): operands, indices, conditions, bounds, and the inputs of
    merges and carried values. Vars that the statement defines are not among them; an Assign's target is neither."""
    seen: list[Expr] = []

    def note(expr: Expr) -> Expr:
        seen.append(expr)
        return expr

    map_stmt_exprs(stmt, note)
    return tuple(seen)


def named(stmt: Stmt) -> Iterator[Var]:
    """The Vars that occur in the expressions directly in a statement, and the one that an Assign gives a value to."""
    yield from (v for e in expressions(stmt) for v in variables(e))
    if isinstance(stmt, Assign):
        yield stmt.var


def map_stmt_exprs(stmt: Stmt, f: Rewrite) -> Stmt:
    """The statement with `f` applied to each expression directly in it; statements inside it and the Vars it defines stay."""
    match stmt:
        case If() | For() | While():
            return _map_control(stmt, f)
        case Let(value=v) | Assign(value=v):
            return replace(stmt, value=f(v))
        case Load(index=i) | Take(index=i):
            return replace(stmt, index=f(i))
        case Store(index=i, value=v) | Accumulate(index=i, value=v):
            return replace(stmt, index=f(i), value=f(v))
        case Atomic(index=i, operands=operands):
            return replace(stmt, index=f(i), operands=tuple(f(o) for o in operands))
        case Barrier(mask=mask):
            return stmt if mask is None else replace(stmt, mask=f(mask))
        case Shuffle():
            return replace(stmt, mask=f(stmt.mask), value=f(stmt.value), lane=f(stmt.lane), width=f(stmt.width))
        case Push(values=values) | Tell(values=values):
            return replace(stmt, values=tuple(f(v) for v in values))
    return stmt


def _map_control(stmt: If | For | While, f: Rewrite) -> Stmt:
    match stmt:
        case If(condition=c, merges=merges):
            return replace(stmt, condition=f(c), merges=tuple(Merge(m.var, f(m.then), f(m.otherwise)) for m in merges))
        case For(start=start, stop=stop, step=step):
            return replace(stmt, start=f(start), stop=f(stop), step=f(step), carried=_map_carried(stmt.carried, f))
        case While(condition=c):
            return replace(stmt, condition=f(c), carried=_map_carried(stmt.carried, f))


def _map_carried(carried: tuple[Carried, ...], f: Rewrite) -> tuple[Carried, ...]:
    return tuple(Carried(c.var, f(c.init), f(c.next), c.result) for c in carried)


def map_blocks(stmt: Stmt, f: Callable[[Block], Block]) -> Stmt:
    """The statement with `f` applied to each block directly inside it."""
    match stmt:
        case If(then=a, otherwise=b):
            return replace(stmt, then=f(a), otherwise=f(b))
        case For(body=body):
            return replace(stmt, body=f(body))
        case While(header=header, body=body):
            return replace(stmt, header=f(header), body=f(body))
    return stmt


def substituted(stmt: Stmt, mapping: Mapping[Var, Expr]) -> Stmt:
    """The statement and all inside it with the Vars replaced."""
    if not mapping:
        return stmt
    stmt = map_stmt_exprs(stmt, lambda e: substitute(e, mapping))
    return map_blocks(stmt, lambda block: tuple(substituted(s, mapping) for s in block))
