"""What is checkpointed, by a minimum cut: which values of the forward part are saved in place of the memory that they are made of.

A reverse kernel computes forward values again from memory as it was before the launch. Where that memory would have to be saved because it
is overwritten, a few values a thread may do as well: a lattice-Boltzmann step needs density and velocity, not nine populations. The graph
has the values that a thread computes once, from the memory (source) to the statements of the reverse part that use them (sink); weights
are bytes. Loops are one node each: only what they result in can be saved.

Assumes an adjoint's body before its stacks are laid out. Guarantees valid IR: a kernel that saves the values, and an adjoint that reads
them instead of computing them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..analysis.min_cut import SINK, SOURCE, Node, minimum_cut
from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, blocks, defined, expressions, map_blocks, map_exprs, substitute, target, walk_stmts
from ..ir.types import I64
from ..optimize.dead_code import eliminate_dead_code
from .stack_layout import thread_place

_EFFECTS = (ir.Take, ir.Atomic, ir.Barrier, ir.Shuffle, ir.Push, ir.Pop, ir.Assign)


@dataclass(frozen=True)
class Cut:
    """`saved`: an array for each value, an element a thread. `extraction` computes and stores them; `rest` is the adjoint that reads
    them."""

    saved: tuple[ir.Buffer, ...]
    extraction: ir.Block
    rest: ir.Block


def smallest_cut(
    body: ir.Block, memory: frozenset[ir.Buffer], others: frozenset[ir.Buffer], primals: frozenset[ir.Buffer], names: Names
) -> Cut | None:
    """The cheapest values to save in place of `memory`, some of the parameters `primals` that hold primal values; `others` are all
    other parameters. None where nothing spares an adjoint reading that memory."""
    reverse = _Reverse(body, others)
    graph = _Graph(memory - frozenset(reverse.reads(body)), reverse)
    graph.block(body)
    chosen = minimum_cut(graph.edges, graph.weights)
    if not chosen:
        return None
    values = [v for v in graph.weights if v in chosen]
    saved = {v: names.buffer(f"{v.name}_saved", v.type) for v in values}
    thread = names.var("thread", I64)
    body = (ir.Let(thread, thread_place()), *body)
    stored = _after(body, {v: ir.Store(b, thread, v) for v, b in saved.items()})
    extraction = eliminate_dead_code(stored, private=primals | others)
    fresh = {v: names.var(v.name, v.type) for v in values}
    loads: dict[ir.Var, ir.Stmt] = {v: ir.Load(fresh[v], b, thread) for v, b in saved.items()}
    rest = eliminate_dead_code(_after(map_exprs(body, lambda e: substitute(e, fresh)), loads), private=primals)
    return Cut(tuple(saved.values()), extraction, rest)


def _after(block: ir.Block, added: Mapping[ir.Var, ir.Stmt]) -> ir.Block:
    """The block with a statement behind the definition of each Var."""
    out: list[ir.Stmt] = []
    for stmt in block:
        out.append(map_blocks(stmt, lambda inner: _after(inner, added)))
        out.extend(replace(added[v], span=stmt.span) for v in defined(stmt) if v in added)
    return tuple(out)


# --- the reverse part ----------------------------------------------------------------------------------------------------------------


class _Reverse:
    """What belongs to the reverse part: everything that depends on a seed, has an effect, or shares a loop with such. It stays as it is,
    and what it uses of the forward part has to be there. `vars` and `buffers` (local arrays) grow to a fixed point."""

    def __init__(self, body: ir.Block, others: frozenset[ir.Buffer]) -> None:
        self.others = others
        self.vars: set[ir.Var] = {*assigned_vars(body)}
        self.buffers: set[ir.Buffer] = set()
        before = -1
        while before != len(self.vars) + len(self.buffers):
            before = len(self.vars) + len(self.buffers)
            for stmt in body:
                self.spread(stmt)

    def has(self, stmt: ir.Stmt) -> bool:
        """Whether the statement, or with a loop anything in it, is of the reverse part; of an If only its condition counts."""
        if isinstance(stmt, ir.If):
            return self.uses(stmt.condition)
        if isinstance(stmt, ir.For | ir.While):
            return self.itself(stmt) or any(self.itself(s) for inner in blocks(stmt) for s in walk_stmts(inner))
        return self.itself(stmt)

    def itself(self, stmt: ir.Stmt) -> bool:
        if isinstance(stmt, _EFFECTS) or target(stmt) is not _local(stmt):
            return True
        if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate) and (stmt.buffer in self.buffers or stmt.buffer in self.others):
            return True
        return any(v in self.vars for v in defined(stmt)) or any(self.uses(e) for e in expressions(stmt))

    def uses(self, expr: ir.Expr) -> bool:
        return any(v in self.vars for v in ir.variables(expr))

    def reads(self, block: ir.Block) -> Iterator[ir.Buffer]:
        """The memory that the reverse part itself reads: it is needed in any case."""
        for stmt in block:
            if self.has(stmt):
                yield from memory_read((stmt,))
            elif isinstance(stmt, ir.If):
                yield from self.reads((*stmt.then, *stmt.otherwise))

    def spread(self, stmt: ir.Stmt) -> None:
        whole = self.has(stmt)
        if isinstance(stmt, ir.If) and not whole:
            self.vars.update(m.var for m in stmt.merges if self.uses(m.then) or self.uses(m.otherwise))
            for inner in blocks(stmt):
                for s in inner:
                    self.spread(s)
            return
        if not whole:
            return
        for s in walk_stmts((stmt,)):
            self.vars.update(defined(s))
            self.buffers.update(b for b in (_local(s),) if b is not None)


def _local(stmt: ir.Stmt) -> ir.Buffer | None:
    """The local array that a statement itself writes."""
    buffer = target(stmt)
    return buffer if buffer is not None and buffer.length is not None else None


# --- the graph -----------------------------------------------------------------------------------------------------------------------


class _Graph:
    """Nodes: Vars (with their bytes as weight), local arrays, loops by their id."""

    def __init__(self, memory: frozenset[ir.Buffer], reverse: _Reverse) -> None:
        self.memory = memory
        self.reverse = reverse
        self.edges: list[tuple[Node, Node]] = []
        self.weights: dict[ir.Var, int] = {}

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def statement(self, stmt: ir.Stmt) -> None:
        if self.reverse.has(stmt):
            self.needed(stmt)
        elif isinstance(stmt, ir.If):
            self.branches(stmt)
        elif isinstance(stmt, ir.For | ir.While):
            self.loop(stmt)
        elif isinstance(stmt, ir.Let | ir.Load):
            self.weigh(stmt.var)
            self.flow(stmt, stmt.var)
        elif isinstance(stmt, ir.Store | ir.Accumulate):
            self.flow(stmt, stmt.buffer)
        else:
            assert isinstance(stmt, ir.Alloc), stmt

    def needed(self, stmt: ir.Stmt) -> None:
        """All that a part of the reverse uses has to be there."""
        for s in walk_stmts((stmt,)):
            self.flow(s, SINK)

    def branches(self, stmt: ir.If) -> None:
        inside = list(walk_stmts((*stmt.then, *stmt.otherwise)))
        self.block(stmt.then)
        self.block(stmt.otherwise)
        targets: list[Node] = [m.var for m in stmt.merges]
        targets += [b for s in inside if (b := _local(s)) is not None and b not in self.reverse.buffers]
        if any(self.reverse.itself(s) for s in inside):
            targets.append(SINK)
        for changed in targets:
            self.join(stmt.condition, changed)
        for m in stmt.merges:
            if m.var not in self.reverse.vars:
                self.weigh(m.var)
            for side in (m.then, m.otherwise):
                self.join(side, SINK if m.var in self.reverse.vars else m.var)

    def loop(self, stmt: ir.For | ir.While) -> None:
        node = id(stmt)
        for s in walk_stmts((stmt,)):
            self.flow(s, node)
            self.edges.extend((node, b) for b in (_local(s),) if b is not None)
        for v in defined(stmt):
            self.weigh(v)
            self.edges.append((node, v))

    def flow(self, stmt: ir.Stmt, target: Node) -> None:
        """What a statement itself uses goes into the target."""
        for e in expressions(stmt):
            self.join(e, target)
        if not isinstance(stmt, ir.Load):
            return
        if stmt.buffer.length is not None:
            self.edges.append((stmt.buffer, target))
        elif stmt.buffer in self.memory:
            self.edges.append((SOURCE, target))

    def join(self, expr: ir.Expr, target: Node) -> None:
        self.edges.extend((v, target) for v in ir.variables(expr) if v not in self.reverse.vars)

    def weigh(self, var: ir.Var) -> None:
        if var.type.kind != "bool":
            self.weights[var] = var.type.size


def memory_read(block: ir.Block) -> Iterator[ir.Buffer]:
    """The parameters that a block reads through."""
    return (s.buffer for s in walk_stmts(block) if isinstance(s, ir.Load) and s.buffer.length is None)
