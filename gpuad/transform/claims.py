"""A kernel that finds out whether two threads of a launch store to one element.

The adjoint of a store takes its shadow. If several threads store different values to one element, one of them wins and only that one may
receive the adjoint, and which one it was is not on record: such a launch is refused (RULES 10). Where the map of a store is not proved
one-to-one and its value is not the same for all threads, this slice of the primal runs before the launch: every such store claims its
element for its thread, and a claim by a second thread sets a flag.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ..ir import build as b
from ..ir.nodes import (
    Accumulate,
    Atomic,
    Block,
    Buffer,
    Expr,
    If,
    Kernel,
    LaunchIndex,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    walk,
)
from ..ir.rewrite import map_blocks, walk_stmts
from ..ir.types import I32, I64
from .names import Names
from .prune import prune
from .stack_layout import thread_number


@dataclass(frozen=True)
class Claims:
    """The checking kernel: the primal's parameters, then for each buffer of `copies` a copy that it may overwrite, for each of `claims` an
    int64 array of the same extent, all 0, and the int32 flag."""

    kernel: Kernel
    copies: tuple[Buffer, ...]
    claims: tuple[Buffer, ...]


def contested(kernel: Kernel, buffers: Collection[Buffer]) -> tuple[Store, ...]:
    """The stores to `buffers` that may give different values for different threads."""
    uniform = _uniform(kernel)
    return tuple(s for s in walk_stmts(kernel.body) if isinstance(s, Store) and s.buffer in buffers and not _is_uniform(s.value, uniform))


def claims(kernel: Kernel, buffers: Collection[Buffer]) -> Claims:
    """The kernel that checks the contested stores to `buffers`."""
    names = Names(kernel)
    written = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Store | Accumulate | Atomic) and s.buffer.length is None}
    copies = {x: names.buffer(f"{x.name}_saved", x.element) for x in kernel.buffers if x in written}
    owners = {x: names.buffer(f"{x.name}_claim", I64) for x in kernel.buffers if x in buffers}
    flag = names.buffer("gpuad_collision", I32)
    wanted = {id(s) for s in contested(kernel, buffers)}
    thread = names.var("thread", I64)

    def block(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            if id(stmt) in wanted and isinstance(stmt, Store):
                out.extend(_claim(stmt, owners[stmt.buffer], flag, thread, names))
            target = getattr(stmt, "buffer", None)
            if target in copies:
                stmt = replace(stmt, buffer=copies[target])  # type: ignore[call-arg]
            out.append(map_blocks(stmt, block))
        return tuple(out)

    body = prune((Let(thread, thread_number()), *block(kernel.body)), private=copies.values())
    params = (*kernel.params, *copies.values(), *owners.values(), flag)
    return Claims(replace(kernel, name=f"{kernel.name}_claims", params=params, body=body), tuple(copies), tuple(owners))


def _claim(stmt: Store, owner: Buffer, flag: Buffer, thread: Var, names: Names) -> Block:
    mine = b.add(thread, b.const(1, I64))
    before = names.var("owner", I64)
    other = b.both(b.compare("!=", before, b.const(0, I64)), b.compare("!=", before, mine))
    assert other is not None
    report = Store(flag, b.const(0, I32), b.const(1, I32), span=stmt.span)
    return Atomic("exch", before, owner, stmt.index, (mine,), span=stmt.span), If(other, (report,), span=stmt.span)


def _uniform(kernel: Kernel) -> set[Var]:
    """Variables that have one value in all threads of the launch."""
    found = set(kernel.scalars)
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Let) and _is_uniform(stmt.value, found):
            found.add(stmt.var)
        if isinstance(stmt, Load) and stmt.buffer.length is None and _is_uniform(stmt.index, found):
            found.add(stmt.var)
    return found


def _is_uniform(expr: Expr, uniform: set[Var]) -> bool:
    for e in walk(expr):
        if isinstance(e, Var) and e not in uniform:
            return False
        if isinstance(e, LaunchIndex) and e.name in ("threadIdx", "blockIdx"):
            return False
    return True
