"""A kernel that finds out whether two threads of a launch store different values to one element.

The adjoint of a store takes its shadow. If several threads store different values to one element, one of them wins and only that one may
receive the adjoint, and which one it was is not on record: such a launch is refused (RULES 10). Where the map of a store is not proved
one-to-one and its value is not the same for all threads, this slice of the primal runs twice before the launch. In the first run every such
store claims its element for its thread and leaves its value; in the second, a thread that finds another's claim and another value sets a
flag.
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
    For,
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
    int64 array of the same extent, all 0, and another for values, of the element's type; then the number of the run (int32, 0 or 1) and
    the int32 flag."""

    kernel: Kernel
    copies: tuple[Buffer, ...]
    claims: tuple[Buffer, ...]


def contested(kernel: Kernel, buffers: Collection[Buffer]) -> tuple[Store, ...]:
    """The stores to `buffers` that may give different values for different threads: all to a buffer, unless each gives the one same value."""
    uniform = _uniform(kernel)
    found: list[Store] = []
    for buffer in buffers:
        stores = [s for s in walk_stmts(kernel.body) if isinstance(s, Store) and s.buffer == buffer]
        if any(not _is_uniform(s.value, uniform) or s.value != stores[0].value for s in stores):
            found.extend(stores)
    return tuple(found)


def claims(kernel: Kernel, buffers: Collection[Buffer]) -> Claims:
    """The kernel that checks the contested stores to `buffers`."""
    names = Names(kernel)
    written = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Store | Accumulate | Atomic) and s.buffer.length is None}
    copies = {x: names.buffer(f"{x.name}_saved", x.element) for x in kernel.buffers if x in written}
    owners = {x: names.buffer(f"{x.name}_claim", I64) for x in kernel.buffers if x in buffers}
    values = {x: names.buffer(f"{x.name}_value", x.element) for x in owners}
    check = _Check(owners, values, names.buffer("gpuad_collision", I32), names.var("run", I32), names.var("thread", I64), names)
    wanted = {id(s) for s in contested(kernel, buffers)}

    def block(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            if id(stmt) in wanted and isinstance(stmt, Store):
                out.append(check.store(stmt))
            target = getattr(stmt, "buffer", None)
            if target in copies:
                stmt = replace(stmt, buffer=copies[target])  # type: ignore[call-arg]
            out.append(map_blocks(stmt, block))
        return tuple(out)

    body = prune((Let(check.thread, thread_number()), *block(kernel.body)), private=copies.values())
    params = (*kernel.params, *copies.values(), *owners.values(), *values.values(), check.run, check.flag)
    return Claims(replace(kernel, name=f"{kernel.name}_claims", params=params, body=body), tuple(copies), tuple(owners))


@dataclass(frozen=True)
class _Check:
    owners: dict[Buffer, Buffer]
    values: dict[Buffer, Buffer]
    flag: Buffer
    run: Var
    thread: Var
    names: Names

    def store(self, stmt: Store) -> Stmt:
        """What stands before a contested store: its claim in the first run, the comparison in the second."""
        first = b.compare("==", self.run, b.const(0, I32))
        return If(first, self.claim(stmt), self.compare(stmt), span=stmt.span)

    def claim(self, stmt: Store) -> Block:
        mine = b.add(self.thread, b.const(1, I64))
        owner = Atomic("exch", None, self.owners[stmt.buffer], stmt.index, (mine,), span=stmt.span)
        value = Atomic("exch", None, self.values[stmt.buffer], stmt.index, (stmt.value,), span=stmt.span)
        return owner, value

    def compare(self, stmt: Store) -> Block:
        owner = self.names.var("owner", I64)
        value = self.names.var("value", stmt.buffer.element)
        different = b.compare("!=", value, stmt.value)
        number = b.compare("==", value, value) if value.type.is_float else None  # NaN is no number: two of them are not told apart
        clash = b.both(b.both(b.compare("!=", owner, b.add(self.thread, b.const(1, I64))), different), number)
        assert clash is not None
        report = Store(self.flag, b.const(0, I32), b.const(1, I32), span=stmt.span)
        return (
            Load(owner, self.owners[stmt.buffer], stmt.index, span=stmt.span),
            Load(value, self.values[stmt.buffer], stmt.index, span=stmt.span),
            If(clash, (report,), span=stmt.span),
        )


def _uniform(kernel: Kernel) -> set[Var]:
    """Variables that have one value in all threads of the launch, in each iteration of the loops around them."""
    found = set(kernel.scalars)
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For) and all(_is_uniform(e, found) for e in (stmt.start, stmt.stop, stmt.step)):
            found.add(stmt.var)
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
