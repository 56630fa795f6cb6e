"""Uniformity: which values are the same in all threads of a block that are in step, and so may steer control flow around a barrier.

A value is uniform if it is computed from uniform values: scalar parameters, blockIdx, blockDim, gridDim, constants. A load at a uniform
index gives one value, since no other thread may write there without a barrier between (rule 11 of the contract). What an If gives is
uniform if its condition is, and what a loop carries if the number of its iterations is; both are found by assuming it and looking for a
contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from ..ir.nodes import Barrier, Block, Expr, For, If, Kernel, LaunchIndex, Let, Load, Stmt, Var, While, walk
from ..ir.rewrite import blocks, bound, defined, walk_stmts
from ..ir.types import Space
from .index_polynomials import atoms, definitions, plus, polynomial, scale


def uniform(kernel: Kernel, *, grid: bool = False) -> frozenset[Var]:
    """The Vars of the kernel that are uniform where all threads of a block define them together; with `grid` all threads of the launch,
    between barriers of which no other may write what one of them reads."""
    varying: set[Var] = set()
    lets = definitions(kernel.body)
    while True:
        before = len(varying)
        _visit(kernel.body, False, varying, lets, grid)
        if len(varying) == before:
            break
    return frozenset(v for s in walk_stmts(kernel.body) for v in bound(s) if v not in varying) | frozenset(kernel.scalars)


def common(kernel: Kernel, *, private_arrays: bool) -> set[Var]:
    """The Vars with one value in all threads of the launch and all iterations: computed from scalar parameters, or loaded at such an index
    from memory of the launch; with `private_arrays` from arrays of a thread or a block too, of which each has its own."""
    found: set[Var] = set(kernel.scalars)
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Let) and is_common(stmt.value, found):
            found.add(stmt.var)
        if isinstance(stmt, Load) and (private_arrays or stmt.buffer.length is None) and is_common(stmt.index, found):
            found.add(stmt.var)
    return found


def is_common(expr: Expr, known: Container[Var]) -> bool:
    """True if an expression over Vars with one value in the launch has one value itself."""
    return not any((isinstance(e, Var) and e not in known) or _is_place(e) for e in walk(expr))


def _is_place(expr: Expr) -> bool:
    """True if the expression is a thread's place in its block or grid."""
    return isinstance(expr, LaunchIndex) and expr.name in _PLACES


_PLACES = ("threadIdx", "blockIdx")


def split_barriers(body: Block, same: frozenset[Var]) -> Iterator[tuple[Barrier, Stmt]]:
    """The barriers of a block that not all of its threads may reach, with the innermost control statement that parts the threads."""
    yield from _split(body, None, lambda e: not is_uniform(e, same), definitions(body))


def _split(body: Block, culprit: Stmt | None, varies: Callable[[Expr], bool], lets: Mapping[Var, Expr]) -> Iterator[tuple[Barrier, Stmt]]:
    for stmt in body:
        if isinstance(stmt, Barrier) and stmt.scope != "warp" and culprit is not None:
            yield stmt, culprit
        for inner in blocks(stmt):
            yield from _split(inner, stmt if parts(stmt, varies, lets) else culprit, varies, lets)


def is_uniform(expr: Expr, same: Container[Var]) -> bool:
    """True if an expression over uniform Vars is uniform itself."""
    return not any((isinstance(e, Var) and e not in same) or is_thread(e) for e in walk(expr))


def is_thread(expr: Expr) -> bool:
    """True if the expression is a thread's place in its block."""
    return isinstance(expr, LaunchIndex) and expr.name == "threadIdx"


def parts(stmt: Stmt, varies: Callable[[Expr], bool], lets: Mapping[Var, Expr]) -> bool:
    """True if threads, between which some expressions vary, may go different ways in a control statement. A loop that counts from a signed
    start to a stop runs as often in all of them if the difference does not vary."""
    if not any(varies(e) for e in steering(stmt)):
        return False
    if not isinstance(stmt, For) or not stmt.var.type.is_signed or varies(stmt.step):
        return True
    return any(varies(e) for e in atoms(plus(polynomial(stmt.stop, lets), scale(polynomial(stmt.start, lets), -1))))


def steering(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that decide what of a control statement runs."""
    match stmt:
        case If(condition=c) | While(condition=c):
            return (c,)
        case For(start=start, stop=stop, step=step):
            return start, stop, step
    return ()


def _visit(block: Block, parted: bool, varying: set[Var], lets: Mapping[Var, Expr], grid: bool) -> None:
    """Adds to the Vars that differ between threads; `parted`: the threads may have come here in different iterations."""
    own = (Space.LOCAL, Space.SHARED) if grid else (Space.LOCAL,)

    def varies(expr: Expr) -> bool:
        return any((isinstance(e, Var) and e in varying) or is_thread(e) or (grid and _is_place(e)) for e in walk(expr))

    for stmt in block:
        split = parted or parts(stmt, varies, lets)
        for inner in blocks(stmt):
            _visit(inner, split if isinstance(stmt, For | While) else parted, varying, lets, grid)
        match stmt:
            case Let(var=var, value=value):
                if varies(value):
                    varying.add(var)
            case Load(var=var, buffer=buffer, index=index):
                if varies(index) or buffer.space in own or parted:
                    varying.add(var)
            case If(merges=merges):
                varying.update(m.var for m in merges if split or varies(m.then) or varies(m.otherwise))
            case For(carried=carried) | While(carried=carried):
                varying.update(v for c in carried if split or varies(c.init) or varies(c.next) for v in (c.var, c.result))
                if isinstance(stmt, For) and (split or varies(stmt.start)):
                    varying.add(stmt.var)
                if isinstance(stmt, While) and split:
                    varying.update(v for v in (stmt.counter, stmt.count) if v is not None)
            case _:
                varying.update(defined(stmt))
