"""Store-conflict inspector: a kernel that finds out whether two threads of a launch store different values to one element.

The adjoint of a store takes its shadow. If several threads store different values to one element, one of them wins and only that one may
receive the adjoint, and which one it was is not on record: such a launch is refused (rule 10 of the contract), unless barriers put the
threads in an order (`barrier_order`). Values that are equal by accident count as different. Where the map of a store is not proved
one-to-one and its value is not the same for all threads, this slice of the primal runs twice before the launch. In the first run every such
store leaves a signature of what its value is made of (the places that it was read from; if that cannot be told, the thread); in the second,
a thread that finds another signature sets a flag.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ..ad.stack_layout import thread_number
from ..analysis.races import Write, contested, is_plain_write, stored_value
from ..analysis.uniformity import common
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, defined, edit, expressions, on_buffers, touches, walk_stmts, written_in
from ..ir.types import I32, I64
from ..optimize.dead_code import eliminate_dead_code


@dataclass(frozen=True)
class StoreConflictInspector:
    """The checking kernel: the primal's parameters, then for each buffer of `copies` a copy that it overwrites, for each of
    `store_conflict_inspector` an int64 array of the same extent, all 0: the greatest and the least thread and the signature, the greatest
    and the least kind; then for each buffer of `bounded` between which elements its memory lies, the first and behind the last (int64);
    then, if there are several `runs`, the number of the run (int32), and the int32 flag, which is `OUTSIDE` and more where one of the
    `stores` goes outside of that memory."""

    kernel: ir.Kernel
    copies: tuple[ir.Buffer, ...]
    notes: tuple[ir.Buffer, ...]  # each buffer several times
    runs: int = 2
    bounded: tuple[ir.Buffer, ...] = ()
    stores: tuple[ir.Stmt, ...] = ()

    def outside(self, flag: int) -> ir.Stmt | None:
        """The statement of which a flag says that it goes outside of its memory."""
        return self.stores[flag - OUTSIDE] if flag >= OUTSIDE else None

    @cached_property
    def by_numbers(self) -> bool:
        """True if what it finds depends on the launch's geometry and whole numbers alone: it looks at no memory, and at no real number."""
        own = len(self.notes) + 2 * len(self.bounded) + (2 if self.runs > 1 else 1)
        given = self.kernel.params[: len(self.kernel.params) - own]
        memory = {p for p in given if isinstance(p, ir.Buffer)}
        others = {p for p in given if isinstance(p, ir.Var) and p.type.kind not in ("int", "uint")}
        stmts = list(walk_stmts(self.kernel.body))
        used = {v for s in stmts for e in expressions(s) for v in ir.variables(e)}
        return not (used & others) and not any(getattr(s, "buffer", None) in memory for s in stmts)


def copies_of(kernel: ir.Kernel, names: Names) -> dict[ir.Buffer, ir.Buffer]:
    """For each array that the kernel writes a copy, which it writes instead while it is inspected."""
    written = written_in(kernel.body)
    return {x: names.buffer(f"{x.name}_saved", x.element) for x in kernel.buffers if x in written}


def inspecting(
    kernel: ir.Kernel,
    copies: Mapping[ir.Buffer, ir.Buffer],
    before: ir.Block,
    watched: Callable[[ir.Stmt], tuple[ir.Block, ir.Block]],
    bounds: Bounds,
) -> tuple[ir.Block, dict[ir.Buffer, ir.Buffer]]:
    """The slice of a kernel that an inspector runs, on copies of what it writes, and which of the copies it needs. `watched`: what stands
    before and after a statement, where that is inside of the `bounds`; `before`: before all."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        (first, last), copied = watched(stmt), on_buffers(stmt, copies)
        if not (first or last or copied is not stmt):
            return None
        if first and is_plain_write(stmt) and not defined(stmt):
            return bounds.guarded(stmt, (*first, copied, *last))
        return (*(bounds.guarded(stmt, first) if first else ()), copied, *last)

    body = eliminate_dead_code((*before, *edit(kernel.body, change)), private=copies.values())
    used = {getattr(s, "buffer", None) for s in walk_stmts(body)}
    return body, {x: copy for x, copy in copies.items() if copy in used}


OUTSIDE = 1 << 20  # flags from here on say that a statement goes outside of its memory


@dataclass(frozen=True)
class Bounds:
    """Between which elements the memory of buffers lies, as parameters of an inspector; `stores`: the statements that are held against
    that."""

    ends: dict[ir.Buffer, tuple[ir.Var, ir.Var]]
    flag: ir.Buffer
    stores: list[ir.Stmt]

    @staticmethod
    def of(buffers: Collection[ir.Buffer], flag: ir.Buffer, names: Names) -> Bounds:
        """Parameters for the memory of some buffers."""
        return Bounds({x: (names.var(f"{x.name}_begin", I64), names.var(f"{x.name}_end", I64)) for x in buffers}, flag, [])

    @property
    def params(self) -> tuple[ir.Var, ...]:
        return tuple(v for ends in self.ends.values() for v in ends)

    def guarded(self, stmt: ir.Stmt, block: ir.Block) -> ir.Block:
        """What stands for an access, where it is inside; else the flag is raised."""
        buffer, index = getattr(stmt, "buffer", None), getattr(stmt, "index", None)
        if buffer not in self.ends or index is None:
            return block
        begin, end = self.ends[buffer]
        at = b.cast(index, I64)
        inside = b.both(b.compare(">=", at, begin), b.compare("<", at, end))
        assert inside is not None
        report = _raised(self.flag, OUTSIDE + len(self.stores), stmt)
        self.stores.append(stmt)
        return (ir.If(inside, block, (report,), span=stmt.span),)


def _raised(flag: ir.Buffer, number: int, stmt: ir.Stmt) -> ir.Stmt:
    """The greatest number that a thread has to report stays in the flag."""
    return ir.Atomic("max", None, flag, b.const(0, I32), (b.const(number, I32),), span=stmt.span)


STORED = ("last", "first", "signature")
MIXED = ("most", "least")


def store_conflict_inspector(
    kernel: ir.Kernel, buffers: Collection[ir.Buffer], kinds: Mapping[int, int] | None = None
) -> StoreConflictInspector:
    """The kernel that checks the contested stores to `buffers`, and whether atomic operations of different `kinds` (by the id of the
    statement) meet in an element; of these the flag is 2."""
    names = Names(kernel)
    copies = copies_of(kernel, names)
    stored, mixed = {id(s) for s in contested(kernel, buffers)}, kinds or {}
    owners: dict[ir.Buffer, dict[str, ir.Buffer]] = {x: {} for x in kernel.buffers if x in buffers}
    for x, made in owners.items():
        touching = {id(s) for s in touches(kernel.body, x)}
        parts = (*(STORED if stored & touching else ()), *(MIXED if mixed.keys() & touching else ()))
        made.update({part: names.buffer(f"{x.name}_{part}", I64) for part in parts})
    check = _Check(
        owners, _Signatures(kernel), names.buffer("gpuad_collision", I32), names.var("run", I32), names.var("thread", I64), names
    )

    def watched(stmt: ir.Stmt) -> tuple[ir.Block, ir.Block]:
        checks: list[ir.Stmt] = []
        if id(stmt) in stored and is_plain_write(stmt):
            checks.append(check.store(stmt))
        if id(stmt) in mixed and isinstance(stmt, ir.Atomic | ir.Accumulate):
            checks.append(check.kind(stmt, mixed[id(stmt)]))
        return tuple(checks), ()

    bounds = Bounds.of(owners, check.flag, names)
    body, copies = inspecting(kernel, copies, (ir.Let(check.thread, thread_number()),), watched, bounds)
    made_notes = (o for made in owners.values() for o in made.values())
    params = (*kernel.params, *copies.values(), *made_notes, *bounds.params, check.run, check.flag)
    return StoreConflictInspector(
        replace(kernel, name=f"{kernel.name}_store_conflicts", params=params, body=body),
        tuple(copies),
        tuple(x for x, made in owners.items() for _ in made),
        bounded=tuple(owners),
        stores=tuple(bounds.stores),
    )


@dataclass(frozen=True)
class _Check:
    owners: dict[ir.Buffer, dict[str, ir.Buffer]]
    signatures: _Signatures
    flag: ir.Buffer
    run: ir.Var
    thread: ir.Var
    names: Names

    def store(self, stmt: Write) -> ir.Stmt:
        """What stands before a contested store: its note in the first run, the comparison in the second."""
        last, first, signature = (self.owners[stmt.buffer][part] for part in STORED)
        written = stored_value(stmt)
        mine = self.signatures.of(stmt, written, self.thread) if written is not None else self.thread
        note = (
            ir.Atomic("max", None, last, stmt.index, (self.up,), span=stmt.span),
            ir.Atomic("max", None, first, stmt.index, (self.down,), span=stmt.span),
            ir.Atomic("exch", None, signature, stmt.index, (mine,), span=stmt.span),
        )
        up, down, other = (self.names.var(n, I64) for n in ("up", "down", "other"))
        several = b.compare("!=", ir.Binary("+", up, down, I64), b.const(_MOST, I64))
        clash = b.both(several, b.compare("!=", other, mine))
        assert clash is not None
        report = _raised(self.flag, 1, stmt)
        compare = (
            ir.Load(up, last, stmt.index, span=stmt.span),
            ir.Load(down, first, stmt.index, span=stmt.span),
            ir.Load(other, signature, stmt.index, span=stmt.span),
            ir.If(clash, (report,), span=stmt.span),
        )
        return ir.If(b.compare("==", self.run, b.const(0, I32)), note, compare, span=stmt.span)

    def kind(self, stmt: ir.Atomic | ir.Accumulate, number: int) -> ir.Stmt:
        """What stands before an atomic operation that must not meet one of another kind."""
        most, least = (self.owners[stmt.buffer][part] for part in MIXED)
        note = (
            ir.Atomic("max", None, most, stmt.index, (b.const(number + 1, I64),), span=stmt.span),
            ir.Atomic("max", None, least, stmt.index, (b.const(_MOST - number, I64),), span=stmt.span),
        )
        up, down = self.names.var("up", I64), self.names.var("down", I64)
        several = b.compare("!=", ir.Binary("+", up, down, I64), b.const(_MOST + 1, I64))
        report = _raised(self.flag, 2, stmt)
        compare = (ir.Load(up, most, stmt.index), ir.Load(down, least, stmt.index), ir.If(several, (report,), span=stmt.span))
        return ir.If(b.compare("==", self.run, b.const(0, I32)), note, compare, span=stmt.span)

    @property
    def up(self) -> ir.Expr:
        """Greatest for the last thread; above 0 for all."""
        return ir.Binary("+", self.thread, b.const(1, I64), I64)

    @property
    def down(self) -> ir.Expr:
        """Greatest for the first thread; `up + down` is the same for all threads."""
        return ir.Binary("-", b.const(_MOST - 1, I64), self.thread, I64)


_MOST = 1 << 62


class _Signatures:
    """What the values of a kernel's stores are made of, as 64-bit numbers."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.uniform = common(kernel, private_arrays=False)
        self.lets = {s.var: s.value for s in walk_stmts(kernel.body) if isinstance(s, ir.Let)}
        self.loads = {s.var: s for s in walk_stmts(kernel.body) if isinstance(s, ir.Load)}
        self.numbers = {x: i + 1 for i, x in enumerate(kernel.buffers)}
        stmts = list(walk_stmts(kernel.body))
        self.places = {id(s): i for i, s in enumerate(stmts)}
        self.barriers = [i for i, s in enumerate(stmts) if isinstance(s, ir.Barrier)]

    def of(self, stmt: Write, value: ir.Expr, thread: ir.Var) -> ir.Expr:
        """Equal for two threads only if the value is the same function of the same elements; the thread's number where that is not
        known, and where the value is made of what was in the element: one thread may find there what another one has left."""
        leaves = self.leaves(value)
        if leaves is None:
            return thread
        result: ir.Expr = b.const(hash_of(value), I64)
        for leaf in leaves:
            result = ir.Binary("+", ir.Binary("*", result, b.const(_MIX, I64), I64), b.cast(leaf, I64), I64)
        for index in self.read_before(stmt, value):
            result = b.select(b.compare("==", b.cast(index, I64), b.cast(stmt.index, I64)), thread, result)
        return result

    def read_before(self, stmt: Write, value: ir.Expr) -> list[ir.Expr]:
        """Where the value was read from the memory that the store goes to, with no barrier between."""
        loads = (self.loads[v] for v in self.made_of(value) if v in self.loads)
        return list(dict.fromkeys(x.index for x in loads if x.buffer == stmt.buffer and not self.parted(x, stmt)))

    def parted(self, load: ir.Load, stmt: Write) -> bool:
        """True if a barrier stands between: several threads may then have found what was there before them all."""
        return any(self.places[id(load)] < barrier < self.places[id(stmt)] for barrier in self.barriers)

    def made_of(self, value: ir.Expr) -> Iterator[ir.Var]:
        """The variables of a value, through the values that were given names; each once."""
        seen: set[ir.Var] = set()
        waiting = [value]
        while waiting:
            for v in ir.variables(waiting.pop()):
                if v in seen:
                    continue
                seen.add(v)
                yield v
                if v in self.lets:
                    waiting.append(self.lets[v])

    def leaves(self, expr: ir.Expr) -> list[ir.Expr] | None:
        """The integers that tell one thread's value from another's: thread indices, and where things were read. Each once: as a tree the
        value may be far larger than the kernel."""
        found: dict[ir.Expr, None] = {}
        seen: set[ir.Var] = set()
        waiting = [expr]
        while waiting:
            for e in ir.walk(waiting.pop()):
                if isinstance(e, ir.LaunchIndex) and e.name in ("threadIdx", "blockIdx"):
                    found[e] = None
                if not isinstance(e, ir.Var) or e in self.uniform or e in seen:
                    continue
                seen.add(e)
                if e.type.is_integer:
                    found[e] = None
                elif e in self.lets:
                    waiting.append(self.lets[e])
                elif e in self.loads and self.loads[e].buffer in self.numbers:
                    found[b.const(self.numbers[self.loads[e].buffer], I64)] = None
                    found[self.loads[e].index] = None
                else:
                    return None
        return list(found) if len(found) <= _LEAVES else None


_LEAVES = 64  # of a signature, which is one expression
_MIX = 0x1E3779B97F4A7C15  # any large odd number


def hash_of(expr: ir.Expr) -> int:
    """A number for the expression's text, the same in every process."""
    return zlib.crc32(repr(expr).encode())


def distinguishing_stores(kernel: ir.Kernel, buffer: ir.Buffer) -> tuple[tuple[ir.Block, ...], ...]:
    """For each kind of value that the contested stores to a buffer give: the kernel's body with stores of that kind alone, to where a
    number says that the value is made from, in each of several ways. If in one of them no two threads store to one place, their signatures
    differ, and the check finds any two that store to one element of the buffer. Values that tell their thread are left out."""
    writes, signatures = contested(kernel, [buffer]), _Signatures(kernel)
    kinds = dict.fromkeys(value for value in map(stored_value, writes) if value is not None)
    leaves = {value: signatures.leaves(value) for value in kinds}

    def stored(stmt: ir.Stmt, value: ir.Expr, leaf: ir.Expr) -> ir.Block | None:
        if not any(stmt is w for w in writes):
            return None
        is_wanted = is_plain_write(stmt) and stored_value(stmt) == value
        return (ir.Store(buffer, leaf, b.zero(buffer.element), span=stmt.span),) if is_wanted else ()

    return tuple(
        tuple(edit(kernel.body, partial(stored, value=value, leaf=leaf)) for leaf in found)
        for value, found in leaves.items()
        if found is not None
    )
