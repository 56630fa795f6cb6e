"""Barrier-phase inspector: a kernel that notes which threads of a block touch which elements of shared shadows, per interval between
barriers.

Threads of a block may add to one element plainly if a barrier lies between them. Which thread comes to which element between which barriers
hangs, as a rule, on the block's extents and the launch's whole numbers alone, and is the same in all blocks: then one block can be asked,
before the launch and once for these numbers. What is left of the reverse kernel is what computes indices, trip counts and guards; it has no
barriers, but each thread counts those that it passes.

What is found may be more than what happens, never less. Both sides are gone through of a branch that data, or the number of the block,
decide, and so is the body of a loop of which they decide how often it runs, if its indices do not depend on that; barriers in there are not
counted, so that intervals only grow. A loop whose iterations all touch the same elements runs twice: once after itself, as any other time.

Assumes stacks that are not laid out yet: what comes back from one is known if all that goes there is, and nothing goes there or comes back
where both sides of a branch are gone through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ad.stack_layout import thread_in_block
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, defined, holds, map_blocks, used_vars, walk_stmts
from ..ir.types import BOOL, I64, Space
from ..optimize.dead_code import eliminate_dead_code

NOTES = 1 << 10  # that a thread may leave
ITERATIONS = 1 << 11  # of a thread, give or take as many
_INDEX_BITS = 32
_SHADOW_BITS = 6
_TRUE = b.const(True, BOOL)
Place: TypeAlias = "tuple[int, int | None]"  # a stack by its uid, or one of its fields


@dataclass(frozen=True)
class BarrierPhaseInspector:
    """The kernel, for one block: whole numbers of the launch, then three int64 arrays, which are 0: `NOTES` notes for each thread (see
    `shadow_of`), how many each thread has left (-1: it has not come to its end), and how many barriers it has counted. `lost`: shadows to
    which something is done that depends on more than whole numbers."""

    kernel: ir.Kernel
    scalars: tuple[ir.Var, ...]
    shadows: tuple[ir.Buffer, ...]
    lost: frozenset[ir.Buffer]

    @staticmethod
    def shadow_of(note: int) -> int:
        """The number of the shadow that a note is of. Notes of one element in one interval differ in the last bit only: whether it is a
        write."""
        return note >> (_INDEX_BITS + 1) & ((1 << _SHADOW_BITS) - 1)


def barrier_phase_inspector(reverse: ir.Kernel, shadows: Collection[ir.Buffer]) -> BarrierPhaseInspector | None:
    """The kernel that notes what is done to the shadows, arrays in shared memory; None where that depends on more than whole numbers."""
    ordered = tuple(sorted(shadows, key=lambda s: s.uid))
    if not 0 < len(ordered) < 1 << _SHADOW_BITS or not all(_is_fit(s, reverse.body) for s in ordered):
        return None
    slice_, doubts = Slice(reverse, ordered, frozenset()), -1
    while len(slice_.doubtful) != doubts:
        doubts = len(slice_.doubtful)
        slice_ = Slice(reverse, ordered, frozenset(slice_.doubtful))
        body = slice_.kernel()
    if slice_.lost.issuperset(ordered):
        return None
    used = set(used_vars(body))
    scalars = tuple(v for v in reverse.scalars if v in used)
    kernel = ir.Kernel(f"{reverse.name}_intervals", (*scalars, *slice_.arrays), body, reverse.span)
    return BarrierPhaseInspector(kernel, scalars, ordered, frozenset(slice_.lost))


def _is_fit(shadow: ir.Buffer, body: ir.Block) -> bool:
    """True if an array is one for the whole kernel, of a length of its own."""
    made = [s for s in walk_stmts(body) if isinstance(s, ir.Alloc) and s.buffer == shadow]
    return shadow.space is Space.SHARED and shadow.length is not None and len(made) == 1 and made[0] in body


def _is_of_grid(expr: ir.Expr) -> bool:
    """True if an expression is not the same in all blocks, or in all grids."""
    return isinstance(expr, ir.LaunchIndex) and expr.name in ("blockIdx", "gridDim")


class Slice:
    """Makes what is left of a reverse kernel. `known`: the variables that whole numbers decide. `doubtful`: stacks and their fields that
    hold something else; who finds one has to begin again."""

    def __init__(self, reverse: ir.Kernel, shadows: tuple[ir.Buffer, ...], doubtful: frozenset[Place]) -> None:
        self.doubtful: set[Place] = set(doubtful)
        self.reverse = reverse
        self.shadows = shadows
        self.names = Names(reverse)
        self.arrays = tuple(self.names.buffer(name, I64) for name in ("notes", "counts", "barriers"))
        self.first = self.names.var("first", I64)  # of the thread's notes
        self.count, self.interval, self.left, self.late = (self.names.var(n, I64) for n in ("count", "interval", "left", "late"))
        self.known = {v for v in reverse.scalars if v.type.is_integer}
        self.assigned = assigned_vars(reverse.body)
        self.lost: set[ir.Buffer] = set()

    def kernel(self) -> ir.Block:
        thread = self.names.var("thread", I64)
        starts = (ir.Let(v, _whole(0)) for v in (self.count, self.interval, self.late))
        before = (ir.Let(thread, thread_in_block()), ir.Let(self.first, _of("*", thread, NOTES)), *starts)
        _, counts, barriers = self.arrays
        found = b.select(b.compare("==", self.late, _whole(0)), self.count, _whole(-1))
        after = (ir.Store(counts, thread, found), ir.Store(barriers, thread, self.interval))
        body = eliminate_dead_code((*before, *self.block(self.reverse.body, True), *after))
        return eliminate_dead_code((ir.Let(self.left, _whole(ITERATIONS)), *self.bounded(body)))

    # --- what is kept --------------------------------------------------------------------------------------------------------------

    def block(self, stmts: ir.Block, counted: bool) -> ir.Block:
        """The block; `counted`: its barriers are counted."""
        return tuple(made for stmt in stmts for made in self.stmt(stmt, counted))

    def stmt(self, stmt: ir.Stmt, counted: bool) -> ir.Block:
        match stmt:
            case ir.Let(var=var, value=value):
                self.learn(var, self.is_known(value) and var not in self.assigned)
                return (stmt,) if var in self.known else ()
            case ir.Load() | ir.Store() | ir.Take() | ir.Accumulate() | ir.Atomic() if stmt.buffer in self.shadows:
                self.forget(defined(stmt))
                return self.access(stmt, counted)
            case ir.Barrier(scope="block"):
                return self.passed(counted)
            case ir.Push():
                return self.push(stmt, counted)
            case ir.Pop():
                return self.pop(stmt, counted)
            case ir.If():
                return self.branch(stmt, counted)
            case ir.For():
                return self.counting(stmt, counted)
            case ir.While():
                return self.searching(stmt, counted)
        self.forget(defined(stmt))
        return ()

    def is_known(self, expr: ir.Expr) -> bool:
        return all(not e.type.is_float and (not isinstance(e, ir.Var) or e in self.known) and not _is_of_grid(e) for e in ir.walk(expr))

    def learn(self, var: ir.Var, known: bool) -> None:
        (self.known.add if known else self.known.discard)(var)

    def forget(self, found: Collection[ir.Var]) -> None:
        self.known.difference_update(found)

    def passed(self, counted: bool) -> ir.Block:
        return (ir.Assign(self.interval, _of("+", self.interval, 1)),) if counted else ()

    def access(self, stmt: ir.Load | ir.Store | ir.Take | ir.Accumulate | ir.Atomic, counted: bool) -> ir.Block:
        """A sum over the block is added by one thread, behind a barrier, and with one after it."""
        if not self.is_known(stmt.index):
            self.lost.add(stmt.buffer)
            return ()
        note = self.note(stmt)
        if getattr(stmt, "how", None) is not ir.How.REDUCED:
            return note
        first = b.compare("==", self.first, _whole(0))
        return (*self.passed(counted), ir.If(first, note), *self.passed(counted))

    def note(self, stmt: ir.Load | ir.Store | ir.Take | ir.Accumulate | ir.Atomic) -> ir.Block:
        """An index that is none can only be found where a branch is gone through that is not taken."""
        at = b.cast(stmt.index, I64)
        inside = b.both(b.compare(">=", at, _whole(0)), b.compare("<", at, _whole(stmt.buffer.length or 0)))
        assert inside is not None
        whose = _of("+", _of("<<", self.interval, _SHADOW_BITS), self.shadows.index(stmt.buffer))
        which = _of("+", _of("<<", whose, _INDEX_BITS), at)
        value = b.select(inside, _of("+", _of("<<", which, 1), 0 if isinstance(stmt, ir.Load) else 1), _whole(-1))
        place = _of("+", self.first, _of("&", self.count, NOTES - 1))
        return ir.Store(self.arrays[0], place, value, span=stmt.span), ir.Assign(self.count, _of("+", self.count, 1))

    # --- stacks ----------------------------------------------------------------------------------------------------------------------

    def push(self, stmt: ir.Push, counted: bool) -> ir.Block:
        self.doubt(stmt.stack, counted)
        known = [self.is_known(v) for v in stmt.values]
        self.doubtful.update((stmt.stack.uid, k) for k, is_known in enumerate(known) if not is_known)
        values = tuple(v if is_known else b.zero(v.type) for v, is_known in zip(stmt.values, known, strict=True))
        return () if (stmt.stack.uid, None) in self.doubtful else (replace(stmt, values=values),)

    def pop(self, stmt: ir.Pop, counted: bool) -> ir.Block:
        self.doubt(stmt.stack, counted)
        whole = (stmt.stack.uid, None) not in self.doubtful
        for k, var in enumerate(stmt.vars):
            self.learn(var, whole and (stmt.stack.uid, k) not in self.doubtful and var not in self.assigned)
        return (stmt,) if whole else ()

    def doubt(self, stack: ir.Stack, counted: bool) -> None:
        if not counted:
            self.doubtful.add((stack.uid, None))

    # --- control -------------------------------------------------------------------------------------------------------------------

    def branch(self, stmt: ir.If, counted: bool) -> ir.Block:
        known = self.is_known(stmt.condition)
        then, otherwise = (self.block(side, counted and known) for side in (stmt.then, stmt.otherwise))
        merges = tuple(m for m in stmt.merges if known and self.is_known(m.then) and self.is_known(m.otherwise))
        self.forget(defined(stmt))
        self.known.update(m.var for m in merges)
        if known:
            return (replace(stmt, then=then, otherwise=otherwise, merges=merges),)
        return self.in_doubt(stmt, (then, otherwise))

    def counting(self, loop: ir.For, counted: bool) -> ir.Block:
        known = all(self.is_known(e) for e in (loop.start, loop.stop, loop.step))
        carried, (body,) = self.repeated(loop, (loop.var,), (loop.body,), counted, known)
        return (replace(loop, body=body, carried=carried),) if known else self.in_doubt(loop, (body,))

    def searching(self, loop: ir.While, counted: bool) -> ir.Block:
        own, parts = tuple(v for v in (loop.counter, loop.count) if v is not None), (loop.header, loop.body)
        before = set(self.known)
        carried, (header, body) = self.repeated(loop, own, parts, counted, True)
        if self.is_known(loop.condition) and all(isinstance(s, ir.Let) for s in header):
            return (replace(loop, header=header, body=body, carried=carried),)
        self.known = before
        _, (header, body) = self.repeated(loop, own, parts, counted, False)
        return self.in_doubt(loop, ((*header, *body),))

    def in_doubt(self, stmt: ir.Stmt, parts: tuple[ir.Block, ...]) -> ir.Block:
        """What stands for a statement of which data decide which of its parts run, and how often."""
        return tuple(ir.If(_TRUE, part) for part in parts)

    def repeated(
        self, loop: ir.For | ir.While, own: tuple[ir.Var, ...], parts: tuple[ir.Block, ...], counted: bool, known: bool
    ) -> tuple[tuple[ir.Carried, ...], tuple[ir.Block, ...]]:
        """What a loop carries that is known, and its blocks. `known`: how often it runs, and so the variables of its `own`; else they are
        gone through once."""
        before = self.known - {*own, *(c.var for c in loop.carried)}
        carried = tuple(c for c in loop.carried if known and self.is_known(c.init))
        while True:
            self.known = {*before, *(own if known else ()), *(c.var for c in carried)} - self.assigned
            made = tuple(self.block(part, counted and known) for part in parts)
            kept = tuple(c for c in carried if self.is_known(c.next))
            if len(kept) == len(carried):
                break
            carried = kept
        self.forget([c.result for c in loop.carried])
        self.known.update(c.result for c in carried)
        return carried, made

    # --- how often loops run -------------------------------------------------------------------------------------------------------

    def bounded(self, block: ir.Block) -> ir.Block:
        """The block with loops that come to an end soon, or say that they have not."""
        return tuple(made for stmt in block for made in self.bound(map_blocks(stmt, self.bounded)))

    def bound(self, stmt: ir.Stmt) -> ir.Block:
        if not isinstance(stmt, ir.For):
            return (stmt,)
        start, stop, step = (b.cast(e, I64) for e in (stmt.start, stmt.stop, stmt.step))
        down = isinstance(stmt.step, ir.Constant) and int(stmt.step.value) < 0  # a step that is not constant counts up
        span, pace = (_of("-", start, stop), b.neg(step)) if down else (_of("-", stop, start), step)
        trips, k = self.names.var("trips", I64), self.names.var("k", I64)
        forward = b.compare(">", pace, _whole(0))
        some = _of("+", _of("/", _of("-", span, 1), b.select(forward, pace, _whole(1))), 1)
        length = ir.Let(trips, b.select(b.compare(">", span, _whole(0)), some, _whole(0)))
        used = set(used_vars(stmt.body))
        alike = stmt.var not in used and not stmt.carried and not holds(stmt.body, ir.Push, ir.Pop)
        most = _whole(2) if alike else self.left
        over = b.negate(forward) if alike else ir.Binary("||", b.negate(forward), b.compare(">", trips, self.left), BOOL)
        late = ir.If(over, (ir.Assign(self.late, _whole(1)),))
        value = ir.Let(stmt.var, b.cast(_of("+", start, _of("*", k, step)), stmt.var.type))
        body = stmt.body if alike else (value, ir.Assign(self.left, _of("-", self.left, 1)), *stmt.body)
        return length, late, replace(stmt, var=k, start=_whole(0), stop=_least(trips, most), step=_whole(1), body=body)


def _whole(value: int) -> ir.Constant:
    return b.const(value, I64)


def _of(op: str, left: ir.Expr, right: ir.Expr | int) -> ir.Expr:
    return ir.Binary(op, left, _whole(right) if isinstance(right, int) else right, I64)


def _least(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return b.select(b.compare("<", left, right), left, right)


__all__ = ["NOTES", "BarrierPhaseInspector", "barrier_phase_inspector"]
