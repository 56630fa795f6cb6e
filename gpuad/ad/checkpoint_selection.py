"""What is checkpointed, by a minimum cut: which values of the forward part are saved in place of the memory that they are made of.

A reverse kernel computes forward values again from memory as it was before the launch. Where that memory would have to be saved because it
is overwritten, a few values a thread may do as well: a lattice-Boltzmann step needs density and velocity, not nine populations. The graph
has the values that a thread computes once, named or not, from the memory (source) to the statements of the reverse part that use them
(sink). Weights are bytes, and of what takes the same the value is preferred that has a name, or is made of more. Loops are one node each:
only what they result in can be saved.

Assumes an adjoint's body before its stacks are laid out. Guarantees valid IR: a kernel that saves the values, and an adjoint that reads
them instead of computing them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ..analysis.min_cut import SINK, SOURCE, Node, minimum_cut
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    Names,
    assigned_vars,
    blocks,
    bound,
    defined,
    expressions,
    heads,
    map_blocks,
    map_exprs,
    rebuild,
    target,
    walk_stmts,
)
from ..ir.types import BOOL, I64, U8
from ..optimize.dead_code import eliminate_dead_code
from .stack_layout import thread_place

_EFFECTS = (ir.Take, ir.Atomic, ir.Barrier, ir.Shuffle, ir.Push, ir.Pop, ir.Assign)
_BYTE = 1024  # what a saved byte counts; of what takes the same, values of many loads spare more memory, and names say what they are
_NAMELESS, _LOADED = 1, 2


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
    values = [e for e in graph.weights if e in chosen]
    saved = {e: names.buffer(f"{_name(e)}_saved", U8 if e.type == BOOL else e.type) for e in values}
    thread = names.var("thread", I64)
    body = (ir.Let(thread, thread_place()), *body)
    homes = _homes(body, values)
    stored = _after(body, {v: [ir.Store(saved[e], thread, b.cast(e, saved[e].element)) for e in made] for v, made in homes.items()})
    extraction = eliminate_dead_code(stored, private=primals | others)
    fresh = {e: names.var(_name(e), e.type) for e in values}
    loads = {v: [s for e in made for s in _loaded(fresh[e], saved[e], thread, names)] for v, made in homes.items()}
    rest = eliminate_dead_code(_after(_replaced(body, fresh), loads), private=primals)
    return Cut(tuple(saved.values()), extraction, rest)


def _loaded(var: ir.Var, saved: ir.Buffer, thread: ir.Var, names: Names) -> ir.Block:
    """The expression that gives a saved value back. A choice is a byte: compilers make no vectors of bools beside numbers."""
    if var.type == saved.element:
        return (ir.Load(var, saved, thread),)
    byte = names.var(var.name, saved.element)
    return ir.Load(byte, saved, thread), ir.Let(var, b.compare("!=", byte, b.zero(byte.type)))


def _name(expr: ir.Expr) -> str:
    """A name for a value, which the user may have given none."""
    return expr.name if isinstance(expr, ir.Var) else "choice" if expr.type.kind == "bool" else "value"


def _replaced(body: ir.Block, fresh: Mapping[ir.Expr, ir.Var]) -> ir.Block:
    """The body with variables for expressions."""

    def replaced(expr: ir.Expr) -> ir.Expr:
        return fresh[expr] if expr in fresh else rebuild(expr, replaced)

    return map_exprs(body, replaced)


def _homes(body: ir.Block, values: Sequence[ir.Expr]) -> dict[ir.Var, list[ir.Expr]]:
    """The values by the variable that is the last to be defined of those that they are made of: behind it they can be computed."""
    order = {v: at for at, v in enumerate(_definitions(body))}
    found: dict[ir.Var, list[ir.Expr]] = {}
    for expr in values:
        found.setdefault(max((v for v in ir.variables(expr) if v in order), key=order.__getitem__), []).append(expr)
    return found


def _definitions(block: ir.Block) -> Iterator[ir.Var]:
    """The variables that statements define, in the order in which that is done."""
    for stmt in block:
        for inner in blocks(stmt):
            yield from _definitions(inner)
        yield from defined(stmt)


def _after(block: ir.Block, added: Mapping[ir.Var, Sequence[ir.Stmt]]) -> ir.Block:
    """The block with statements behind the definition of each Var."""
    out: list[ir.Stmt] = []
    for stmt in block:
        out.append(map_blocks(stmt, lambda inner: _after(inner, added)))
        out.extend(replace(one, span=stmt.span) for v in defined(stmt) for one in added.get(v, ()))
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
        """True if the statement, or with a loop anything in it, is of the reverse part; of an If only its condition counts."""
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
            self.vars.update(bound(s))
            self.buffers.update(b for b in (_local(s),) if b is not None)


def _local(stmt: ir.Stmt) -> ir.Buffer | None:
    """The local array that a statement itself writes."""
    buffer = target(stmt)
    return buffer if buffer is not None and buffer.length is not None else None


# --- the graph -----------------------------------------------------------------------------------------------------------------------


class _Graph:
    """Nodes: expressions (with what it costs to save them as weight), local arrays, loops by their id."""

    def __init__(self, memory: frozenset[ir.Buffer], reverse: _Reverse) -> None:
        self.memory = memory
        self.reverse = reverse
        self.edges: list[tuple[Node, Node]] = []
        self.weights: dict[ir.Expr, int] = {}
        self.made: set[ir.Expr] = set()

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
            self.weigh(stmt.var, _LOADED if isinstance(stmt, ir.Load) else 0)
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
        inside = {v for inner in blocks(stmt) for s in walk_stmts(inner) for v in bound(s)} | set(heads(stmt))
        for s in walk_stmts((stmt,)):
            self.flow(s, node, inside)
            self.edges.extend((node, b) for b in (_local(s),) if b is not None)
        for v in defined(stmt):
            self.weigh(v)
            self.edges.append((node, v))

    def flow(self, stmt: ir.Stmt, target: Node, inside: Set[ir.Var] = frozenset()) -> None:
        """Leads what a statement itself uses into the target; `inside`: variables of iterations, which are no values of a thread."""
        for e in expressions(stmt):
            self.join(e, target, inside)
        if not isinstance(stmt, ir.Load):
            return
        if stmt.buffer.length is not None:
            self.edges.append((stmt.buffer, target))
        elif stmt.buffer in self.memory:
            self.edges.append((SOURCE, target))

    def join(self, expr: ir.Expr, target: Node, inside: Set[ir.Var] = frozenset()) -> None:
        """The largest parts of an expression that are values of a thread, and not of the reverse part, go into the target."""
        if any(v in inside or v in self.reverse.vars for v in ir.variables(expr)):
            for child in ir.children(expr):
                self.join(child, target, inside)
        elif isinstance(node := self.node(expr), ir.Var) or node in self.made:
            self.edges.append((node, target))

    def node(self, expr: ir.Expr) -> ir.Expr:
        """The node of an expression; made of a Var or of others it has edges from these."""
        if isinstance(expr, ir.Var) or expr in self.made:
            return expr
        parts = [n for n in map(self.node, ir.children(expr)) if isinstance(n, ir.Var) or n in self.made]
        if parts:
            self.made.add(expr)
            self.edges.extend((n, expr) for n in parts)
            self.weigh(expr, _NAMELESS)
        return expr

    def weigh(self, expr: ir.Expr, more: int = 0) -> None:
        if not b.can_trap(expr):  # computed where what it is made of is, and not only where it is used
            self.weights[expr] = expr.type.size * _BYTE + more


def memory_read(block: ir.Block) -> Iterator[ir.Buffer]:
    """The parameters that a block reads through."""
    return (s.buffer for s in walk_stmts(block) if isinstance(s, ir.Load) and s.buffer.length is None)
