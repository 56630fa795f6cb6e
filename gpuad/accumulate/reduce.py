"""The accumulation policy: how each accumulation and take of an adjoint reaches memory, plainly, atomically, or reduced first.

In: an adjoint without stacks, and the shadows of which a proof or an inspector has found that no two threads access one element
(`pipeline.schedule`); those are accumulated *plainly*, all others *atomically*, in device scope. In a plain shadow, a take that the same
block follows with an addition to the same element becomes a load and a store. Out: valid IR in which no How.UNDECIDED is left.

Repeated atomic additions to one element become one addition of a sum. Where the index is made of parameters and the block's number, all
threads of a block add to one element: each sums its own contributions, and the block's sum is added once at the kernel's end. Where a loop
does not change the index, its sum is added once after it, unless it had no iteration: the element may be none then. Before any of this,
`broadcast` finds what a block reads together of its shared memory: all of its threads add to one element there, between the same barriers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ..analysis.uniformity import is_thread, is_uniform, steering, uniform
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.nodes import Accumulate, Atomic, Block, Buffer, Call, Expr, How, Load, Stmt, Store, Take
from ..ir.rewrite import (
    Names,
    assigned_vars,
    blocks,
    bound,
    defined,
    edit,
    heads,
    map_blocks,
    map_expr,
    map_exprs,
    spelled,
    touches,
    walk_stmts,
)
from ..ir.types import F32, F64, Space


def reduce_repeated_additions(body: ir.Block, names: Names, *, in_blocks: bool = False) -> ir.Block:
    """The body with sums in registers, and over blocks; `in_blocks`: of elements that are another one for each block, too."""
    sums = _Sums(names, _only_added_to(body), in_blocks)
    inside = sums.uniform(body, _lets(body), _varying(body))
    starts = tuple(ir.Let(v, b.zero(v.type)) for v in sums.totals.values())
    ends = tuple(replace(sums.first[key], index=key[1], value=v, how=ir.How.REDUCED) for key, v in sums.totals.items())
    return (*starts, *sums.lifted(inside), *ends)


def broadcast(reverse: ir.Kernel) -> ir.Block:
    """The body with sums over the block where all of its threads come to one addition to one element of a shared array, or to the branch
    that it is in. Assumes that nothing is decided yet of these."""
    return _Broadcast(uniform(reverse), Names(reverse)).block(reverse.body)


@dataclass(frozen=True)
class _Broadcast:
    same: frozenset[ir.Var]
    names: Names

    def block(self, block: ir.Block) -> ir.Block:
        """A block to which all threads come."""
        out: list[ir.Stmt] = []
        for stmt in block:
            if all(is_uniform(e, self.same) for e in steering(stmt)):
                out.append(self.together(map_blocks(stmt, self.block)))
            elif isinstance(stmt, ir.If):
                out.extend(self.out_of(stmt))
            else:
                out.append(stmt)
        return tuple(out)

    def together(self, stmt: ir.Stmt) -> ir.Stmt:
        return replace(stmt, how=ir.How.REDUCED) if isinstance(stmt, ir.Accumulate) and self.is_of_all(stmt, ()) else stmt

    def is_of_all(self, stmt: ir.Stmt, own: Collection[ir.Var]) -> bool:
        """True if the statement adds to an element of a shared array that is the same for all threads, and no secret of its branch."""
        if not isinstance(stmt, ir.Accumulate) or stmt.how is not ir.How.UNDECIDED or stmt.buffer.element not in (F32, F64):
            return False
        if stmt.buffer.space is not Space.SHARED or stmt.buffer.length is None:
            return False
        return is_uniform(stmt.index, self.same) and not any(v in own for v in ir.variables(stmt.index))

    def out_of(self, branch: ir.If) -> ir.Block:
        """A branch to which all threads come, and not all take: the additions behind it, of 0 by those that do not take it. What is done
        for one thread is left alone."""
        if self.picks(branch.condition):
            return (branch,)
        stmts = [s for side in (branch.then, branch.otherwise) for s in walk_stmts(side)]
        own = {v for s in stmts for v in bound(s)}
        others = {getattr(s, "buffer", None) for s in stmts if not isinstance(s, ir.Accumulate)}
        merges, sums, kept = list(branch.merges), [], []
        for number, side in enumerate((branch.then, branch.otherwise)):
            left: list[ir.Stmt] = []
            for stmt in side:
                if isinstance(stmt, ir.Accumulate) and self.is_of_all(stmt, own) and stmt.buffer not in others:
                    sums.append(replace(stmt, value=self.part(branch, number, stmt, merges), how=ir.How.REDUCED))
                else:
                    left.append(stmt)
            kept.append(tuple(left))
        rest = replace(branch, then=kept[0], otherwise=kept[1], merges=tuple(merges))
        return (*((rest,) if kept[0] or kept[1] or merges else ()), *sums)

    def picks(self, condition: ir.Expr) -> bool:
        """True if a condition is there to pick one thread, as far as the text says."""
        pairs = (e for e in ir.walk(condition) if isinstance(e, ir.Binary) and e.op == "==" and e.left.type.is_integer)
        return any(not is_uniform(e, self.same) for e in pairs)

    def part(self, branch: ir.If, side: int, add: ir.Accumulate, merges: list[ir.Merge]) -> ir.Expr:
        """What a thread adds: 0 if it does not take this side of the branch, which is not to be said again of what is left out where it is
        0."""
        match branch.condition:
            case ir.Call(function="gpuad_used", arguments=(value,)) if side == 0 and value == add.value:
                return value
        part, none = self.names.var(add.buffer.name, add.value.type), b.zero(add.value.type)
        merges.append(ir.Merge(part, *((none, add.value) if side else (add.value, none))))
        return part


def _only_added_to(body: ir.Block) -> frozenset[ir.Buffer]:
    """Arrays of floats of which nothing is read."""
    added = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Accumulate) and s.buffer.length is None}
    others = {getattr(s, "buffer", None) for s in walk_stmts(body) if not isinstance(s, ir.Accumulate)}
    return frozenset(buffer for buffer in added - others if buffer.element in (F32, F64))


def _lets(body: ir.Block) -> dict[ir.Var, ir.Expr]:
    return {s.var: s.value for s in walk_stmts(body) if isinstance(s, ir.Let) and s.var.type.is_integer}


def _varying(body: ir.Block) -> frozenset[ir.Var]:
    """The variables that the body defines, other than by a Let of integers."""
    found: set[ir.Var] = {*assigned_vars(body)}
    for stmt in walk_stmts(body):
        if not (isinstance(stmt, ir.Let) and stmt.var.type.is_integer):
            found.update(defined(stmt))
        found.update(heads(stmt))
    return frozenset(found)


@dataclass
class _Sums:
    names: Names
    shadows: Collection[ir.Buffer]
    in_blocks: bool
    totals: dict[tuple[ir.Buffer, ir.Expr], ir.Var] = field(default_factory=dict)
    first: dict[tuple[ir.Buffer, ir.Expr], ir.Accumulate] = field(default_factory=dict)

    def is_atomic(self, stmt: ir.Stmt) -> bool:
        return isinstance(stmt, ir.Accumulate) and stmt.how is ir.How.ATOMIC and stmt.buffer in self.shadows

    # --- one element for all threads ---------------------------------------------------------------------------------------------

    def uniform(self, block: ir.Block, lets: Mapping[ir.Var, ir.Expr], varying: Collection[ir.Var]) -> ir.Block:
        """The block with additions to elements that are the same for all threads of a block of the launch going to `totals`."""
        out: list[ir.Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.uniform(inner, lets, varying))
            index = _common(stmt.index, lets, varying) if isinstance(stmt, ir.Accumulate) and self.is_atomic(stmt) else None
            if isinstance(stmt, ir.Accumulate) and index is not None and (self.in_blocks or not _has_own(index)):
                key = stmt.buffer, index
                self.first.setdefault(key, stmt)
                total = self.totals.setdefault(key, self.names.var(stmt.buffer.name, stmt.value.type))
                stmt = ir.Assign(total, b.add(total, stmt.value), span=stmt.span)
            out.append(stmt)
        return tuple(out)

    # --- one element for all iterations ------------------------------------------------------------------------------------------

    def lifted(self, block: ir.Block) -> ir.Block:
        """The block with additions that a loop makes to one element made after it."""
        out: list[ir.Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, self.lifted)
            out += self.after(stmt) if isinstance(stmt, ir.For | ir.While) else [stmt]
        return tuple(out)

    def after(self, loop: ir.For | ir.While) -> list[ir.Stmt]:
        inner = [s for block in blocks(loop) for s in walk_stmts(block)]
        own = {v for s in (loop, *inner) for v in bound(s)} | {s.var for s in inner if isinstance(s, ir.Assign)}
        totals: dict[tuple[ir.Buffer, ir.Expr], ir.Var] = {}
        ends: list[ir.Stmt] = []
        for stmt in inner:
            if isinstance(stmt, ir.Accumulate) and self.is_atomic(stmt) and not own & set(ir.variables(stmt.index)):
                key = stmt.buffer, stmt.index
                if key not in totals:
                    totals[key] = self.names.var(stmt.buffer.name, stmt.value.type)
                    ends.append(ir.If(b.compare("!=", totals[key], b.zero(stmt.value.type)), (replace(stmt, value=totals[key]),)))
        if not totals:
            return [loop]
        return [*(ir.Let(v, b.zero(v.type)) for v in totals.values()), map_blocks(loop, lambda block: _summed(block, totals)), *ends]


def _common(index: ir.Expr, lets: Mapping[ir.Var, ir.Expr], varying: Collection[ir.Var]) -> ir.Expr | None:
    """The index in terms of parameters and what else the threads of a block have in common, if it can be had so."""
    full = spelled(index, lets)
    if full is None or any(v in varying for v in ir.variables(full)) or any(map(is_thread, ir.walk(full))):
        return None
    return full


def _has_own(index: ir.Expr) -> bool:
    """True if the index may be another one for each block."""
    return any(isinstance(e, ir.LaunchIndex) for e in ir.walk(index))


def _summed(block: ir.Block, totals: Mapping[tuple[ir.Buffer, ir.Expr], ir.Var]) -> ir.Block:
    def change(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.Accumulate) or stmt.how is not ir.How.ATOMIC:
            return None
        total = totals.get((stmt.buffer, stmt.index))
        return None if total is None else (ir.Assign(total, b.add(total, stmt.value), span=stmt.span),)

    return edit(block, change)


def choose_accumulation(
    body: Block,
    plain: Mapping[Buffer, bool],
    assigned: frozenset[Buffer] = frozenset(),
    left: frozenset[Buffer] = frozenset(),
    aliased: frozenset[Buffer] = frozenset(),
) -> Block:
    """The body with every accumulation decided; `plain` says of each shadow whether plain accumulation is proved safe. Shadows in
    `assigned` are known to be zero, and their first addition comes to each element once and before all others: it is stored. Elements taken
    of those in `left` are not cleared: they are dead. Nothing is added to those in `aliased`: they share the memory that would be
    added."""

    def decide(block: Block) -> Block:
        kept = (s for s in block if not (isinstance(s, Accumulate) and s.buffer in aliased))
        return _join_takes(tuple(map_blocks(_decided(_known(s, first, left), plain), decide) for s in kept))

    body = _compared(body)
    first = _first_additions(body, assigned)
    return decide(body)


def _first_additions(body: Block, shadows: frozenset[Buffer]) -> set[int]:
    """The ids of the first addition to each of the shadows."""
    found: dict[Buffer, int] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, Accumulate) and stmt.buffer in shadows:
            found.setdefault(stmt.buffer, id(stmt))
    return set(found.values())


def _compared(block: Block) -> Block:
    """The body with `gpuad_used` written out as a comparison with 0."""

    def write_out(expr: Expr) -> Expr:
        if isinstance(expr, Call) and expr.function == "gpuad_used":
            return b.compare("!=", expr.arguments[0], b.zero(expr.arguments[0].type))
        return expr

    return map_exprs(block, lambda e: map_expr(e, write_out))


def _known(stmt: Stmt, first: set[int], left: frozenset[Buffer]) -> Stmt:
    if isinstance(stmt, Accumulate) and id(stmt) in first:
        return Store(stmt.buffer, stmt.index, stmt.value, span=stmt.span, note=stmt.note)
    if isinstance(stmt, Take) and stmt.buffer in left:
        return Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span, note=stmt.note)
    return stmt


def _decided(stmt: Stmt, plain: Mapping[Buffer, bool]) -> Stmt:
    if isinstance(stmt, Accumulate | Take) and stmt.how is How.UNDECIDED:
        return replace(stmt, how=How.PLAIN if plain.get(stmt.buffer, False) else How.ATOMIC)
    return stmt


def _join_takes(block: Block) -> Block:
    """`d = dx[i]; dx[i] = 0; ...; dx[i] += e` becomes `d = dx[i]; ...; dx[i] = e` where nothing else touches the shadow in between; a take
    whose value is added back as it is becomes a load."""
    out = list(block)
    for at, stmt in enumerate(block):
        if isinstance(stmt, Take) and stmt.how is How.PLAIN:
            other = _next_access(block, at)
            if other is not None:
                add = block[other]
                assert isinstance(add, Accumulate)
                out[at] = Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span, note=stmt.note)
                out[other] = Store(add.buffer, add.index, add.value, span=add.span, note=add.note)
    return tuple(s for s in out if not _idle(s, out))


def _next_access(block: Block, at: int) -> int | None:
    """Where the taken element is next touched, if that is a plain addition in this block."""
    take = block[at]
    assert isinstance(take, Take)
    for position in range(at + 1, len(block)):
        stmt = block[position]
        if isinstance(stmt, Accumulate) and stmt.buffer == take.buffer and stmt.index == take.index and stmt.how is How.PLAIN:
            return position
        if any(touches((stmt,), take.buffer)):
            return None
    return None


def _idle(stmt: Stmt, block: list[Stmt]) -> bool:
    """A store of what was just loaded from the same place."""
    if not isinstance(stmt, Store):
        return False
    loads = (s for s in block if isinstance(s, Load) and s.var == stmt.value)
    return any(s.buffer == stmt.buffer and s.index == stmt.index for s in loads) and _only_store(stmt, block)


def _only_store(stmt: Store, block: list[Stmt]) -> bool:
    """True if nothing else in the block, or deeper, writes to the array."""
    return sum(1 for s in walk_stmts(tuple(block)) if isinstance(s, Store | Accumulate | Take | Atomic) and s.buffer == stmt.buffer) == 1


def undecided(body: Block) -> tuple[Buffer, ...]:
    """The shadows about which a decision is needed, in order of appearance."""
    found = (s.buffer for s in walk_stmts(body) if isinstance(s, Accumulate | Take) and s.how is How.UNDECIDED)
    return tuple(dict.fromkeys(found))
