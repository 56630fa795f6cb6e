"""Lane loops: interchanges a thread's loops with the loop over the threads of a strip, so that the innermost loops run over lanes.

    for (j = 0; j < n; ++j)                              for each strip of threads i:
        sum += f(x[i], y[j]);     for each thread i          for (j = 0; j < n; ++j)
                                                                 for each lane: sum[lane] += f(x[i], y[j])

The work is cut into pieces at the loops in step. What one piece computes and another uses is an array with an element for each lane; only
indices are computed anew in each piece, so that a compiler sees how a subscript moves from lane to lane. Branches around such a loop that
some threads take and others do not become masks. What is the same in all lanes is computed once, before the piece that it stands in.

Each thread's operations keep their order. Those of different threads are interleaved, which is right for threads that are independent: a
launch without data races and output, and without atomics whose results are used. Where threads add to one element, see `lane_conflicts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

from ...ir import nodes as ir
from ...ir.folding import negate
from ...ir.rewrite import holds, is_short, rebuild, substitute, walk_stmts
from ...ir.types import BOOL
from ..coalesce import Classes
from ..folded import Read, expanded, operands, targets, visit_operands
from .iteration_domain import Bound
from .lane_conflicts import Total, conflicting_buffers, conflicts, has_conflict
from .lane_loops import (
    LaneScratch,
    Reduction,
    Tile,
    Tiling,
    bytes_of_a_lane,
    computed,
    is_beside,
    is_contiguous_traversal,
    is_cut,
    is_scattered,
    lane_scratch,
    reduction,
    tiled,
    waits,
)
from .lane_uniformity import Uniform, bound_in, used

Pairs: TypeAlias = "tuple[tuple[ir.Var, ir.Expr], ...]"


@dataclass(frozen=True)
class Give:
    """Variables get their values, all at once."""

    pairs: Pairs


@dataclass(frozen=True)
class Mask:
    """The threads for which the condition holds are in mask `number`."""

    number: int
    condition: ir.Expr


Action: TypeAlias = "ir.Stmt | Give | Mask | Tile | Reduction | Total"


@dataclass(frozen=True)
class Piece:
    """A loop over the lanes, those of a mask or all. `again`: the indices that it needs; `bytes`: of what the vectors are made (see
    `lane_loops`); `scratch`: where it accesses memory of the strip, None where that cannot be said; `in_turn`: lanes may meet in it."""

    actions: tuple[Action, ...]
    mask: int | None
    again: tuple[ir.Let, ...] = ()
    bytes: int = 0
    scratch: LaneScratch | None = ()
    in_turn: bool = False


@dataclass(frozen=True)
class Once:
    """What is the same for all lanes."""

    action: ir.Stmt | Give


@dataclass(frozen=True)
class Loop:
    """A loop that all lanes run in step."""

    stmt: ir.For | ir.While
    header: tuple[Node, ...]
    body: tuple[Node, ...]
    tiling: Tiling | None = None
    fill: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Branch:
    """A branch that all lanes take together."""

    condition: ir.Expr
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True)
class Masked:
    """What is done for the lanes of a mask, if there is any."""

    mask: int
    body: tuple[Node, ...]


Node: TypeAlias = "Piece | Once | Loop | Branch | Masked"


@dataclass(frozen=True)
class Lanes:
    """A kernel's work for a strip of threads; the C variables that are arrays over the lanes; the threads' own arrays, of which each lane
    has one; where along x a strip has to end."""

    nodes: tuple[Node, ...]
    arrays: tuple[ir.Var, ...]
    tables: tuple[ir.Buffer, ...]
    cuts: tuple[Bound, ...]


def lanes(kernel: ir.Kernel, classes: Classes, threads: ir.For | None = None) -> Lanes | None:
    """The folded kernel for strips of threads, or of it the body of a loop over threads; None if it has no loop that they run in step, or
    none in which there are vectors or a lane waits for what it has computed before, or if memory that is as long as what is stored to it
    is not accessed at the same index by all of them."""
    uniform = Uniform(kernel, classes, threads)
    loops = [s for s in walk_stmts(uniform.work) if isinstance(s, ir.For | ir.While) and uniform.lifts(s)]
    if not loops or holds(uniform.work, ir.Atomic):
        return None
    meet = has_conflict(uniform.work)
    if any(is_contiguous_traversal(loop, uniform, meet) for loop in loops):
        return None
    plan = _Plan(uniform)
    nodes = plan.finished(plan.block(uniform.work, None, ()))
    if any(piece.scratch is None for piece in _pieces(nodes)):
        return None
    in_turn = meet or any(waits(loop, uniform) for loop in loops)
    if not in_turn and not any(map(plan.is_vector, _stepping(nodes))):
        return None
    pieces: Counter[ir.Var] = Counter(root for piece in _pieces(nodes) for root in plan.variables_of(piece))
    arrays = tuple(root for root, count in pieces.items() if count > 1 or uniform.begins_outside(root))
    return Lanes(nodes, arrays, tuple(plan.tables), uniform.cuts)


@dataclass
class _Open:
    """A piece that more may come to. `in_turn`: what lanes do one after the other when it is done, since they may meet there; `after`: what
    is the same for all lanes, and changes what they do not use until then."""

    actions: list[Action] = field(default_factory=list)
    in_turn: list[ir.Stmt] = field(default_factory=list)
    after: list[ir.Stmt] = field(default_factory=list)

    def close(self, out: list[Node], mask: int | None) -> None:
        """Ends the piece, with what is done after it."""
        out += [Piece(tuple(self.actions), mask)] if self.actions else []
        out += [Piece(tuple(self.in_turn), mask, in_turn=True)] if self.in_turn else []
        out += [Once(stmt) for stmt in self.after]
        for part in (self.actions, self.in_turn, self.after):
            part.clear()


class _Plan:
    def __init__(self, uniform: Uniform) -> None:
        self.uniform = uniform
        self.again: dict[ir.Var, ir.Let] = {}
        self.values: dict[ir.Var, ir.Expr] = {}  # of these, in terms of launch indices and what is the same for all
        self.masks = 0
        self.tiles = 0
        self.loops = 0  # around what is planned
        self.loads = 0
        self.tables: list[ir.Buffer] = []
        self.prepared = 0

    def block(self, block: ir.Block, mask: int | None, ends: Pairs) -> tuple[Node, ...]:
        """The block, which ends with these parallel assignments, for the lanes of a mask."""
        out: list[Node] = []
        piece = _Open()
        for at, stmt in enumerate(block):
            if self.depends(stmt, piece.after):
                piece.close(out, mask)
            if self.uniform.lifts(stmt) or (self.loops and isinstance(stmt, ir.If) and self.loads_same(stmt)):
                self.in_step(stmt, mask, out, piece)
            elif isinstance(stmt, ir.Alloc):
                self.tables.append(stmt.buffer)
                out.append(Once(stmt))
            elif has_conflict((stmt,)):
                self.conflict(stmt, mask, out, piece)
            elif self.uniform.is_once(stmt):
                once = visit_operands(stmt, self.first)
                if self.is_movable(stmt):
                    out.append(Once(once))
                else:
                    piece.after.append(once)
            elif isinstance(stmt, ir.Let) and self.is_index(stmt) and is_short(value := self.first(stmt.value)):
                self.again[stmt.var] = stmt
                self.values[stmt.var] = value
            else:
                piece.actions.append(self.loaded(stmt, mask, out))
                if self.loops and is_cut(stmt, self.computed_after(block[at + 1 :], ends), self.uniform.is_uniform):
                    piece.close(out, mask)
        if piece.after and any(self.is_one_of(v, piece.after) for _, value in ends for v in ir.variables(value)):
            piece.close(out, mask)
        self.give(tuple((var, self.same_loaded(value, mask, out)) for var, value in ends), mask, out, piece)
        piece.close(out, mask)
        return tuple(out)

    def depends(self, stmt: ir.Stmt, after: Sequence[ir.Stmt]) -> bool:
        """True if what is done after the piece has to be done before the statement."""
        if not after:
            return False
        return isinstance(stmt, ir.If | ir.For | ir.While) or any(self.is_one_of(v, after) for v in used(stmt))

    def is_one_of(self, var: ir.Var, stmts: Sequence[ir.Stmt]) -> bool:
        """True if the statements give the C variable a value."""
        find = self.uniform.classes.find
        return any(find(v) == find(var) for s in stmts for v in targets(s))

    def computed_after(self, block: ir.Block, ends: Pairs) -> Iterator[ir.Expr]:
        """What the same piece computes after a statement, with these that follow it."""
        yield from computed(self.up_to_loop(block))
        yield from (value for _, value in ends)

    def up_to_loop(self, block: ir.Block) -> Iterator[ir.Stmt]:
        """What follows in the same piece."""
        return takewhile(lambda s: not self.uniform.lifts(s), (s for s in block if not self.uniform.is_once(s)))

    def first(self, expr: ir.Expr) -> ir.Expr:
        """What is the same for all lanes, in terms of the first lane's indices."""
        return substitute(self.uniform.of_first(expr), self.values)

    def is_movable(self, stmt: ir.Stmt) -> bool:
        """True if the statement may be done before the piece that it stands in."""
        return isinstance(stmt, ir.Let | ir.Load) and self.uniform.is_single(stmt.var)

    def give(self, pairs: Pairs, mask: int | None, out: list[Node], piece: _Open) -> None:
        """First the lanes' own: their values may use what is the same for all, as it was before."""
        own = tuple(p for p in pairs if not self.uniform.is_same(p[0]))
        same = tuple(p for p in pairs if self.uniform.is_same(p[0]))
        piece.actions += [Give(own)] if own else []
        if same:
            piece.close(out, mask)
            out.append(Once(Give(tuple((var, self.first(value)) for var, value in same))))

    def in_step(self, stmt: ir.Stmt, mask: int | None, out: list[Node], piece: _Open) -> None:
        if isinstance(stmt, ir.If):
            self.branch(stmt, mask, out, piece)
            return
        assert isinstance(stmt, ir.For | ir.While)
        self.give(tuple((c.var, c.init) for c in stmt.carried), mask, out, piece)
        piece.close(out, mask)
        header = self.block(stmt.header, mask, ()) if isinstance(stmt, ir.While) else ()
        early = self.early(stmt) if isinstance(stmt, ir.For) else ()
        if early and isinstance(stmt, ir.For):
            out.append(Branch(self.first(_runs(stmt)), (Piece(early, mask),), ()))
        stmt = replace(stmt, body=tuple(s for s in stmt.body if s not in early))
        stmt = self.by_first(stmt)
        if isinstance(stmt, ir.For) and (own := reduction(stmt, self.uniform)) is not None:
            out.append(Piece((own,), mask))
            return
        tiling = tiled(stmt, self.uniform, self.tiles) if isinstance(stmt, ir.For) else None
        stmt = tiling.loop if tiling else stmt
        self.tiles += len(tiling.tiles) if tiling else 0
        fill = (Piece(tiling.tiles, mask),) if tiling else ()
        self.loops += 1
        out.append(Loop(stmt, header, self.block(stmt.body, mask, tuple((c.var, c.next) for c in stmt.carried)), tiling, fill))
        self.loops -= 1

    def by_first(self, loop: ir.For | ir.While) -> ir.For | ir.While:
        """The loop with bounds in terms of the first lane's indices."""
        if isinstance(loop, ir.While):
            return replace(loop, condition=self.first(loop.condition))
        return replace(loop, start=self.first(loop.start), stop=self.first(loop.stop), step=self.first(loop.step))

    def early(self, loop: ir.For) -> tuple[ir.Stmt, ...]:
        """The loads of the lanes' own numbers that are the same in all iterations, from memory that the kernel does not write."""
        inside = {loop.var, *(c.var for c in loop.carried), *bound_in(loop.body)}
        return tuple(s for s in loop.body if self.is_load(s) and not any(v in inside for e in operands(s) for v in ir.variables(e)))

    def is_load(self, stmt: ir.Stmt) -> bool:
        if not isinstance(stmt, ir.Let | ir.Load) or not self.uniform.is_single(stmt.var) or self.uniform.is_same(stmt.var):
            return False
        if isinstance(stmt, ir.Load):
            return stmt.buffer not in self.uniform.written
        return isinstance(stmt.value, Read) and stmt.value.buffer not in self.uniform.written

    # --- where threads meet ---

    def conflict(self, stmt: ir.Stmt, mask: int | None, out: list[Node], piece: _Open) -> None:
        """What threads do that meet: as a part of the piece where that is right, or as one of its own (see `lane_conflicts`)."""
        if isinstance(stmt, ir.Accumulate) and self.is_total(stmt):
            piece.actions.append(Total(replace(stmt, index=self.first(stmt.index), value=self.same_loaded(stmt.value, mask, out))))
        elif isinstance(stmt, ir.Accumulate | ir.Take) and is_beside(stmt.index, expanded(self.again.values()), self.uniform):
            if stmt.buffer in conflicting_buffers(piece.actions):
                piece.close(out, mask)
            piece.actions.append(self.loaded(stmt, mask, out))
        else:
            loaded = self.loaded(stmt, mask, out)
            piece.in_turn.append(self.prepare(loaded, piece) if conflicts(stmt) else loaded)
            if not (isinstance(stmt, ir.Accumulate) and stmt.buffer in self.uniform.only_added):
                piece.close(out, mask)

    def is_total(self, stmt: ir.Accumulate) -> bool:
        """True if the strip forms the sum of what its lanes add."""
        return stmt.buffer in self.uniform.only_added and self.uniform.is_uniform(stmt.index)

    def prepare(self, stmt: ir.Stmt, piece: _Open) -> ir.Stmt:
        """A statement that lanes do in turn after the piece, with what it needs computed in the piece."""

        def prepared(expr: ir.Expr) -> ir.Expr:
            if self.is_still(expr):
                return expr
            self.prepared += 1
            var = ir.Var("ready", expr.type, -(1 << 23) - self.prepared)
            self.uniform.varying.add(var)
            piece.actions.append(ir.Let(var, expr))
            return var

        return visit_operands(stmt, prepared)

    def is_still(self, expr: ir.Expr) -> bool:
        """True if the expression is a sum or product of whole numbers, or a number, that is the same after the piece."""
        match expr:
            case ir.Constant() | ir.LaunchIndex():
                return True
            case ir.Var():
                return self.uniform.is_single(expr) or self.uniform.is_same(expr)
            case ir.Binary(op="+" | "-" | "*") | ir.Cast():
                return expr.type.is_integer and all(map(self.is_still, ir.children(expr)))
        return False

    def branch(self, stmt: ir.If, mask: int | None, out: list[Node], piece: _Open) -> None:
        sides = (
            (stmt.then, self.changes((m.var, m.then) for m in stmt.merges)),
            (
                stmt.otherwise,
                self.changes((m.var, m.otherwise) for m in stmt.merges),
            ),
        )
        if self.uniform.is_uniform(stmt.condition):
            piece.close(out, mask)
            then, otherwise = (self.block(block, mask, ends) for block, ends in sides)
            out.append(Branch(self.first(stmt.condition), then, otherwise))
            return
        numbers = []
        for condition, side in zip((stmt.condition, negate(stmt.condition)), sides, strict=True):
            numbers.append(self.masks)
            self.masks += 1
            piece.actions += [Mask(numbers[-1], condition)] if any(side) else []
        piece.close(out, mask)
        taken = ((n, *side) for n, side in zip(numbers, sides, strict=True) if any(side))
        out += [Masked(number, self.block(block, number, ends)) for number, block, ends in taken]

    def changes(self, pairs: Iterable[tuple[ir.Var, ir.Expr]]) -> Pairs:
        """The assignments but for those of a C variable to itself."""
        find = self.uniform.classes.find
        return tuple((var, value) for var, value in pairs if not (isinstance(value, ir.Var) and find(value) == find(var)))

    # --- loads behind masks ---

    def loads_same(self, stmt: ir.If) -> bool:
        """True if threads for which the branch is taken load what is the same for all: vectors have no such load behind a mask."""
        found: list[ir.Expr] = []
        for block, ends in ((stmt.then, [m.then for m in stmt.merges]), (stmt.otherwise, [m.otherwise for m in stmt.merges])):
            for expr in (*(e for s in block for e in operands(s)), *ends):
                self.same_reads(expr, found)
        return bool(found)

    def same_reads(self, expr: ir.Expr, found: list[ir.Expr]) -> ir.Expr:
        """Notes the loads that are made for certain, and are the same for all lanes; gives the expression with `found` in their place."""
        match expr:
            case Read() if self.uniform.is_uniform(expr):
                found.append(expr)
            case ir.Select(condition=condition):
                return replace(expr, condition=self.same_reads(condition, found))
            case ir.Binary(op="&&" | "||", left=left):
                return replace(expr, left=self.same_reads(left, found))
            case _:
                return rebuild(expr, lambda e: self.same_reads(e, found))
        return expr

    def loaded(self, stmt: ir.Stmt, mask: int | None, out: list[Node]) -> ir.Stmt:
        """The statement with what it loads for all lanes alike loaded before."""
        return stmt if isinstance(stmt, ir.If | ir.For | ir.While) else visit_operands(stmt, lambda e: self.same_loaded(e, mask, out))

    def same_loaded(self, expr: ir.Expr, mask: int | None, out: list[Node]) -> ir.Expr:
        if mask is None or not self.loops:
            return expr
        found: list[ir.Expr] = []
        self.same_reads(expr, found)
        table: dict[ir.Expr, ir.Expr] = {}
        for load in dict.fromkeys(found):
            self.loads += 1
            var = ir.Var("same", load.type, -(1 << 25) - self.loads)
            out.append(Once(ir.Let(var, self.first(load))))
            table[load] = var
        return _put(expr, table)

    def is_index(self, stmt: ir.Let) -> bool:
        """True if the variable is an index that is computed anew wherever it is used."""
        return stmt.var.type.is_integer and self.uniform.is_single(stmt.var) and self.is_part(stmt.value)

    def is_part(self, expr: ir.Expr) -> bool:
        """True if an index may be made of it: a sum or product of launch indices, other indices, and what is the same for all lanes."""
        if self.is_steady(expr):
            return True
        match expr:
            case ir.Var():
                return expr in self.again or expr == self.uniform.lane
            case ir.Binary(op=op, left=left, right=right):
                return op in ("+", "-", "*") and self.is_part(left) and self.is_part(right)
            case ir.Cast(operand=operand, type=t):
                return t.is_integer and operand.type.is_integer and self.is_part(operand)
        return isinstance(expr, ir.LaunchIndex)

    def is_steady(self, expr: ir.Expr) -> bool:
        """True if the expression is the same for all lanes, wherever it is computed."""
        if any(isinstance(e, ir.Call) for e in ir.walk(expr)) or not self.uniform.is_uniform(expr):
            return False
        return all(self.uniform.is_single(v) or v in self.uniform.loops for v in ir.variables(expr))

    # --- what pieces use ---

    def finished(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes with the indices that each piece needs."""
        return tuple(self.with_indices(node) for node in nodes)

    def with_indices(self, node: Node) -> Node:
        match node:
            case Piece():
                return self.with_scratch(self.with_width(replace(node, again=self.indices(node))))
            case Loop():
                return replace(node, header=self.finished(node.header), body=self.finished(node.body), fill=self.finished(node.fill))
            case Branch():
                return replace(node, then=self.finished(node.then), otherwise=self.finished(node.otherwise))
            case Masked():
                return replace(node, body=self.finished(node.body))
        return node

    def with_width(self, piece: Piece) -> Piece:
        masked = piece.mask is not None or any(isinstance(a, Mask) for a in piece.actions)
        items = [item for a in piece.actions for item in evaluated(a)]
        return replace(piece, bytes=bytes_of_a_lane(items, masked, piece.again, self.uniform))

    def is_vector(self, piece: Piece) -> bool:
        """True if there are vectors in what lanes do, and it is more than to say who does what."""
        items = [item for a in piece.actions for item in evaluated(a)]
        if any(isinstance(a, Reduction) for a in piece.actions):  # of a lane's own iterations
            return True
        if all(isinstance(a, Mask) for a in piece.actions):
            return False
        return not is_scattered(items, piece.mask is not None, piece.again, self.uniform)

    def with_scratch(self, piece: Piece) -> Piece:
        rows = self.uniform.kernel.rows if self.uniform.lane is None else frozenset()
        found = lane_scratch([item for a in piece.actions for item in evaluated(a)], rows, self.uniform.is_uniform)
        return replace(piece, scratch=found and tuple((buffer, self.first(index)) for buffer, index in found))

    def indices(self, piece: Piece) -> tuple[ir.Let, ...]:
        wanted = {v for action in piece.actions for v in _used(action)}
        for var, let in reversed(self.again.items()):
            if var in wanted:
                wanted |= set(ir.variables(let.value))
        return tuple(let for var, let in self.again.items() if var in wanted)

    def variables_of(self, piece: Piece) -> dict[ir.Var, None]:
        """The C variables of the piece that may differ from lane to lane, but for indices."""
        own = (v for action in piece.actions for v in _used(action) if v not in self.again and not self.uniform.is_same(v))
        found = (v for v in own if v != self.uniform.lane)
        return dict.fromkeys(self.uniform.classes.find(v) for v in found)


def _put(expr: ir.Expr, table: dict[ir.Expr, ir.Expr]) -> ir.Expr:
    """The expression with others in the place of some of its parts."""
    return table.get(expr) or rebuild(expr, lambda e: _put(e, table)) if table else expr


def _runs(loop: ir.For) -> ir.Expr:
    """Whether the loop has an iteration."""
    down = isinstance(loop.step, ir.Constant) and loop.step.value < 0
    return ir.Binary(">" if down else "<", loop.start, loop.stop, BOOL)


def _used(action: Action) -> Iterator[ir.Var]:
    match action:
        case Give(pairs=pairs):
            yield from (v for var, value in pairs for v in (var, *ir.variables(value)))
        case Mask(condition=condition):
            yield from ir.variables(condition)
        case Tile(load=load):
            yield from ir.variables(load)
        case Reduction(loop=loop):
            yield from used(loop)
        case Total(stmt=stmt):
            yield from ir.variables(stmt.value)
        case _:
            yield from used(action)


def evaluated(action: Action) -> Iterator[ir.Stmt | ir.Expr]:
    """What an action does, in its order. What is given at the end of a piece is not used in it."""
    match action:
        case Give(pairs=pairs):
            yield from (value for _, value in pairs)
        case Mask(condition=condition):
            yield condition
        case Total(stmt=stmt):
            yield stmt.value
        case ir.Stmt():
            yield action


def _stepping(nodes: Sequence[Node]) -> Iterator[Piece]:
    """The pieces that are loops, or in loops."""
    for node in nodes:
        match node:
            case Piece(actions=actions) if any(isinstance(a, Reduction) for a in actions):
                yield node
            case Loop():
                yield from _pieces((node,))
            case Branch(then=then, otherwise=otherwise):
                yield from _stepping((*then, *otherwise))
            case Masked(body=body):
                yield from _stepping(body)


def _pieces(nodes: Sequence[Node]) -> Iterator[Piece]:
    for node in nodes:
        match node:
            case Piece():
                yield node
            case Loop(header=header, body=body, fill=fill):
                yield from _pieces((*fill, *header, *body))
            case Branch(then=then, otherwise=otherwise):
                yield from _pieces((*then, *otherwise))
            case Masked(body=body):
                yield from _pieces(body)
