"""Barrier hoisting: moves barriers out of the branches that early returns make, so that every thread reaches every barrier.

CUDA lets a thread return before a barrier: it is no longer waited for. In the core IR no thread leaves early; `if (i >= n) return;` makes
what follows it one side of an If, barriers included. Here that side is cut at its barriers: the pieces between run under the condition, the
barriers outside of it, loops that contain barriers are run by all threads with their pieces under the condition. So the adjoint's barriers
are reached by all threads too. What a piece defines for a later one is merged with zeros for the threads that have returned.

Any other control flow around a barrier has to be the same for all threads of the block: else the kernel is refused at the barrier.

Volatile shared memory is how warps were programmed whose threads are in step by themselves: `if (lane < 16) s[t] += s[t + 16];`. What such
threads do not need is written out: around each assignment there is a barrier of scope 'step', between what all threads of a warp read
before and after it. Where some threads of a warp do more than the others, their barriers are taken out of the branch as above. It is not
said which of two sides is first, nor where threads meet again that leave a loop at different times: there the memory may only be written.
Steps become barriers of warps in the end.

A memory fence (`__threadfence()`) makes no thread wait, but all of them might reach it before one goes on: a kernel that shows what blocks
have written by a fence, and the last of them by a counter, does the same with a barrier of the grid there. That barrier is taken out of
branches (`if (threadIdx.x == 0) { part[b] = s; __threadfence(); ticket = atomicInc(&n, gridDim.x); }`) as above. A kernel in which threads
wait for one another in a loop that reads memory is refused: there no barrier is in the place of a fence.

Assumes: a lowered kernel. Guarantees: control flow around barriers of a block is uniform over the block; there are no steps.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.uniformity import is_uniform, split_barriers, steering, uniform
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, defined, edit, expressions, map_blocks, substitute, substituted, walk_stmts, written_in
from ..ir.types import I32, U32, Space


def hoist_barriers(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with its barriers lifted. Raises UnsupportedError at a barrier that some threads of a block may not reach."""
    steps, fences = (any(is_one(s) for s in walk_stmts(kernel.body)) for is_one in (_is_step, _is_fence))
    if fences:
        _refuse_spinning(kernel)
        kernel = _with_atomic_resets(kernel)
    task = _Hoisting(Names(kernel), uniform(kernel, grid=fences) if steps or fences else frozenset())
    return replace(kernel, body=_fences_as_barriers(task.block(task.masked(kernel.body, None))))


def checked_barriers(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel, its steps barriers of warps. Refuses one with a barrier that some threads of a block may not reach; those of the whole
    grid are asked for more (`grid_parts`)."""
    for barrier, culprit in split_barriers(kernel.body, uniform(kernel)):
        if barrier.scope == "grid":
            continue
        what = "condition" if isinstance(culprit, ir.If) else "loop"
        place = f" (at {culprit.span})" if culprit.span else ""
        if _is_step(barrier):
            raise UnsupportedError(
                f"volatile shared memory is written inside a {what}{place} that is not known to be the same for all threads of the "
                "block, so it is not known which of them are in step; leave volatile away and write __syncwarp() where what others have "
                "written is read",
                barrier.span,
            )
        raise UnsupportedError(
            f"__syncthreads() inside a {what}{place} that is not known to be the same for all threads of the block: each of them has to "
            "reach it",
            barrier.span,
        )
    return replace(kernel, body=_in_warps(kernel.body))


def _in_warps(block: ir.Block) -> ir.Block:
    """The block with barriers of warps for steps, and none beside another barrier."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if _is_step(stmt) and out and _stops(out[-1]):
            continue
        if _stops(stmt) and out and _is_step(out[-1]):
            out.pop()
        out.append(map_blocks(stmt, _in_warps))
    return tuple(ir.Barrier("warp", span=stmt.span) if _is_step(stmt) else stmt for stmt in out)


def _is_step(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier) and stmt.scope == "step"


def _has_step(stmt: ir.Stmt) -> bool:
    return any(_is_step(s) or _is_fence(s) for s in walk_stmts((stmt,)))


def _is_fence(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier) and stmt.scope == "fence"


def _fences_as_barriers(block: ir.Block) -> ir.Block:
    return tuple(replace(s, scope="grid", note=FENCE) if _is_fence(s) else map_blocks(s, _fences_as_barriers) for s in block)  # type: ignore[call-arg]


def _with_atomic_resets(kernel: ir.Kernel) -> ir.Kernel:
    """Stores to counters, which nothing else but atomics touches, as atomics: that the last block alone comes to one, after all others,
    is said by the counter's value, which no proof about threads looks at."""
    stmts = list(walk_stmts(kernel.body))
    read = {s.buffer for s in stmts if isinstance(s, ir.Load)}
    counters = {s.buffer for s in stmts if isinstance(s, ir.Atomic) and s.buffer.element.is_integer and s.buffer.length is None} - read

    def change(stmt: ir.Stmt) -> list[ir.Stmt] | None:
        if isinstance(stmt, ir.Store) and stmt.buffer in counters:
            return [ir.Atomic("exch", None, stmt.buffer, stmt.index, (stmt.value,), span=stmt.span)]
        return None

    return replace(kernel, body=edit(kernel.body, change))


def _refuse_spinning(kernel: ir.Kernel) -> None:
    """UnsupportedError where a loop goes on until other threads have written something."""
    written = written_in(kernel.body)
    for loop in (s for s in walk_stmts(kernel.body) if isinstance(s, ir.While)):
        inside = list(walk_stmts((*loop.header, *loop.body)))
        deciding, before = set(ir.variables(loop.condition)), 0
        while len(deciding) > before:
            before = len(deciding)
            deciding |= {v for c in loop.carried if c.var in deciding for v in ir.variables(c.next)}
            for stmt in inside:
                if not deciding.isdisjoint(defined(stmt)):
                    deciding |= {v for e in expressions(stmt) for v in ir.variables(e)}
        found = (s for s in inside if isinstance(s, ir.Load | ir.Atomic) and s.buffer in written and s.var in deciding)
        seen = next(found, None)
        if seen is not None:
            raise UnsupportedError(
                "in a kernel with a memory fence a loop goes on until other threads have written what is read here: the reverse pass "
                "cannot follow threads that wait for one another by memory; split the kernel there into two launches",
                seen.span,
            )


def _only_steps(stmt: ir.Stmt) -> bool:
    return all(_is_step(s) for s in walk_stmts((stmt,)) if _stops(s))


def _stops(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Barrier) and stmt.mask is None


def _has_stop(stmt: ir.Stmt) -> bool:
    return _stops(stmt) or any(_stops(s) for block in blocks(stmt) for s in walk_stmts(block))


_ALL = 0xFFFFFFFF
FENCE = "__threadfence()"  # noted of the barriers that stand for one


def _has_shuffle(stmt: ir.Stmt) -> bool:
    """True if threads are named by a mask in the statement."""
    return any(isinstance(s, ir.Shuffle) or (isinstance(s, ir.Barrier) and s.mask is not None) for s in walk_stmts((stmt,)))


def _remasked(stmt: ir.Stmt, ballot: ir.Var) -> ir.Stmt:
    """The statement with the mask of every shuffle in it narrowed to the ballot; not of those that have been narrowed already."""
    if isinstance(stmt, ir.Shuffle | ir.Barrier):
        if stmt.mask is None or ballot in ir.variables(stmt.mask):
            return stmt
        full = isinstance(stmt.mask, ir.Constant) and int(stmt.mask.value) == _ALL
        return replace(stmt, mask=ballot if full else ir.Binary("&", stmt.mask, ballot, U32))
    return map_blocks(stmt, lambda block: tuple(_remasked(s, ballot) for s in block))


def _only_written(stmt: ir.Stmt) -> bool:
    """True if in a control statement shared memory is only written, and nothing else is waited for."""
    reading = (ir.Load, ir.Accumulate, ir.Atomic)
    inside = (s for s in walk_stmts((stmt,)) if isinstance(s, reading))
    return _only_steps(stmt) and not any(s.buffer.space is Space.SHARED for s in inside)


def _without_steps(stmt: ir.Stmt) -> ir.Stmt:
    return map_blocks(stmt, lambda block: tuple(_without_steps(s) for s in block if not _is_step(s)))


class _Hoisting:
    def __init__(self, names: Names, same: frozenset[ir.Var]) -> None:
        self.names = names
        self.same = same  # the variables that are the same in all threads of a block, if that is asked

    def block(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            if not _has_stop(stmt) or _stops(stmt):
                out.append(stmt)
                continue
            stmt = map_blocks(stmt, self.block)
            parts = _has_step(stmt) and not all(is_uniform(e, self.same) for e in steering(stmt))
            if isinstance(stmt, ir.If) and (stmt.leaving or parts):
                out.extend(self.leaving(stmt))
            elif parts and _only_written(stmt):
                step = next(s for s in walk_stmts((stmt,)) if _is_step(s))
                out.extend((step, _without_steps(stmt), step))
            else:
                out.append(stmt)
        return tuple(out)

    # --- shuffles ----------------------------------------------------------------------------------------------------------------

    def masked(self, block: ir.Block, mask: ir.Expr | None) -> ir.Block:
        """Threads that have returned take no part in a shuffle, whatever its mask says: here they still run, so they leave the mask.
        `mask`: who has not returned before, None for all."""
        out: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.If) and stmt.leaving and _has_shuffle(stmt):
                out.extend(self.voted(stmt, mask))
                continue
            for inner in blocks(stmt):
                self.refuse_returns(inner)
            out.append(stmt)
        return tuple(out)

    def refuse_returns(self, block: ir.Block) -> None:
        for stmt in walk_stmts(block):
            if isinstance(stmt, ir.If) and stmt.leaving and _has_shuffle(stmt):
                raise UnsupportedError("a return inside control flow, before a warp shuffle, is not supported", stmt.span)

    def voted(self, stmt: ir.If, mask: ir.Expr | None) -> ir.Block:
        first = any(_has_shuffle(s) for s in stmt.then)
        if first and any(_has_shuffle(s) for s in stmt.otherwise):
            raise UnsupportedError("warp shuffles both before and after an early return are not supported here", stmt.span)
        alive = stmt.condition if first else b.negate(stmt.condition)
        vote, ballot = self.names.var("active", U32), self.names.var("ballot", U32)
        everyone = b.const(_ALL, U32) if mask is None else mask
        ones = ir.Select(alive, b.const(1, U32), b.const(0, U32))
        asked = ir.Shuffle(ballot, "ballot", everyone, vote, b.const(0, I32), b.const(0, I32), span=stmt.span)
        side = tuple(_remasked(s, ballot) for s in self.masked(stmt.then if first else stmt.otherwise, ballot))
        stmt = replace(stmt, then=side) if first else replace(stmt, otherwise=side)
        return (ir.Let(vote, ones, span=stmt.span), asked, stmt)

    # --- barriers ----------------------------------------------------------------------------------------------------------------

    def leaving(self, stmt: ir.If) -> ir.Block:
        """The pieces of an If that an early return made."""
        first = any(_has_stop(s) for s in stmt.then)
        both = first and any(_has_stop(s) for s in stmt.otherwise)
        if both and not _only_written(stmt):
            return (stmt,)
        alive: ir.Expr = stmt.condition if first else b.negate(stmt.condition)
        out: list[ir.Stmt] = []
        if not isinstance(alive, ir.Var):
            name = self.names.var("active", alive.type)
            out.append(ir.Let(name, alive, span=stmt.span))
            alive = name
        inside, outside = (stmt.then, stmt.otherwise) if first else (stmt.otherwise, stmt.then)
        mapping: dict[ir.Var, ir.Expr] = {}
        if outside and not both:
            out.append(self.piece(b.negate(alive), outside, stmt, mapping))
        out.extend(self.guarded(inside, alive, stmt, mapping))
        if both:
            out.extend(self.guarded(outside, b.negate(alive), stmt, mapping))
        for m in stmt.merges:
            then, otherwise = substitute(m.then, mapping), substitute(m.otherwise, mapping)
            out.append(ir.Let(m.var, ir.Select(alive, *((then, otherwise) if first else (otherwise, then))), span=stmt.span))
        return tuple(out)

    def guarded(self, block: ir.Block, alive: ir.Expr, owner: ir.If, mapping: dict[ir.Var, ir.Expr]) -> ir.Block:
        """The block with everything but its barriers under the condition; `mapping` learns what stands for its variables."""
        out: list[ir.Stmt] = []
        piece: list[ir.Stmt] = []

        def end() -> None:
            if piece:
                out.append(self.piece(alive, tuple(piece), owner, mapping))
                piece.clear()

        for stmt in block:
            stmt = substituted(stmt, mapping)
            own = {v for s in piece for v in defined(s)}
            if isinstance(stmt, ir.Alloc):
                out.append(stmt)  # a later piece may use it too
            elif isinstance(stmt, ir.Let) and not stmt.var.type.is_float and not any(v in own for v in ir.variables(stmt.value)):
                out.append(stmt)  # pure: it does no harm where the thread has returned, and may steer what all threads do
            elif _has_stop(stmt):
                end()
                out.append(self.control(substituted(stmt, mapping), alive, owner))
            else:
                piece.append(stmt)
        end()
        return tuple(out)

    def piece(self, condition: ir.Expr, block: ir.Block, owner: ir.If, mapping: dict[ir.Var, ir.Expr]) -> ir.If:
        merges: list[ir.Merge] = []
        for stmt in block:
            for var in defined(stmt):
                fresh = self.names.var(var.name, var.type)
                merges.append(ir.Merge(fresh, var, b.zero(var.type)))
                mapping[var] = fresh
        return ir.If(condition, block, (), tuple(merges), span=owner.span)

    def control(self, stmt: ir.Stmt, alive: ir.Expr, owner: ir.If) -> ir.Stmt:
        """A barrier, or a control statement that contains one, for all threads."""
        match stmt:
            case ir.If():
                then, first = self.inner(stmt.then, alive, owner)
                otherwise, second = self.inner(stmt.otherwise, alive, owner)
                merges = tuple(ir.Merge(m.var, substitute(m.then, first), substitute(m.otherwise, second)) for m in stmt.merges)
                return replace(stmt, then=then, otherwise=otherwise, merges=merges)
            case ir.For():
                body, mapping = self.inner(stmt.body, alive, owner)
                return replace(stmt, body=body, carried=tuple(replace(c, next=substitute(c.next, mapping)) for c in stmt.carried))
            case ir.While():
                if any(isinstance(s, ir.Load) for s in stmt.header):
                    raise UnsupportedError("a loop with __syncthreads() whose condition reads memory, after an early return", stmt.span)
                body, mapping = self.inner(stmt.body, alive, owner)
                return replace(stmt, body=body, carried=tuple(replace(c, next=substitute(c.next, mapping)) for c in stmt.carried))
        return stmt

    def inner(self, block: ir.Block, alive: ir.Expr, owner: ir.If) -> tuple[ir.Block, dict[ir.Var, ir.Expr]]:
        mapping: dict[ir.Var, ir.Expr] = {}
        return self.guarded(block, alive, owner, mapping), mapping
