"""Checkpointing within loops: the cheapest set of values of an iteration from which its reverse can be recomputed, by a minimum cut.

The forward sweep pushes what cannot be computed again: what a loop carries, and what memory held before it was overwritten. The reverse of
the iteration computes the rest from it. But it may need less than it gets: of two numbers only which was greater, of a memory's old content
only its exponential, which may be in that memory now. So the values that the reverse computes from the popped ones are taken as a graph,
from these (source) to the statements that add to shadows (sink), and a minimum cut says which to push. A value counts its bytes; where
these are equal, operations decide: those for a value that the forward sweep has not computed, and those that the reverse is left with. What
lies in memory of the sweep that is not overwritten any more is loaded from there, not pushed.

Assumes an adjoint's pruned body with unique definitions, before its stacks are laid out. Guarantees valid IR, to be pruned again.

Records what a small local array holds at the start of an iteration, in place of all that the iteration reads from it.

An array that lives through a loop is overwritten by it, so every value read from it has to be recorded: a Runge-Kutta step on `y[4]`
reads its state for each stage. With the elements at the start of the iteration on record, the reverse of the iteration has the array as it
was and builds the rest again. Which of the two takes fewer bytes is tried (`recording`).

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..analysis.min_cut import SINK, SOURCE, Node, minimum_cut
from ..analysis.to_be_recorded import Order
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.nodes import Accumulate, Alloc, Atomic, Block, Buffer, Constant, For, If, Kernel, Load, Stmt, Store, Take, While
from ..ir.rewrite import (
    Names,
    assigned_vars,
    blocks,
    bound,
    defined,
    expressions,
    heads,
    map_blocks,
    map_expr,
    map_exprs,
    map_stmt_exprs,
    rebuild,
    touches,
    walk_stmts,
)
from ..ir.types import BOOL, I32, Space, value_type
from ..optimize.privatisation import built

_BYTE = 1024  # what a pushed byte counts, in operations
_LOAD = 3
_NAMELESS = 8  # operations that are rather done again than that an expression without a name is pushed
_MOST = 40  # operations that the forward sweep may do for a value
_SLOW = {"+": 1, "-": 1, "*": 1, "/": 8, "%": 8}


def checkpoint_iterations(
    body: ir.Block, origin: dict[ir.Var, ir.Var], copies: Collection[ir.Buffer], first: int, names: Names
) -> ir.Block:
    """The body with the cheapest values on each stack. `origin`: the primal's variable that each renamed one repeats; those below uid
    `first` are the primal's own. `copies`: memory that only the sweep writes."""
    body = _single_choices(body)
    for uid in dict.fromkeys(s.stack.uid for s in walk_stmts(body) if isinstance(s, ir.Push)):
        ends = [at for at in _places(body) if at.stmt.stack.uid == uid]
        if [type(at.stmt) for at in ends] == [ir.Push, ir.Pop]:
            body = _Iteration(body, ends[0], ends[1], origin, frozenset(copies), first, names).improved()
    return body


def _single_choices(block: ir.Block) -> ir.Block:
    """The block with one choice for two that end alike: `a ? x : b ? x : y` is `a || b ? x : y`."""

    def one(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Select(condition=a, then=x, otherwise=ir.Select(condition=b, then=other, otherwise=y)) if x == other:
                return ir.Select(ir.Binary("||", a, b, BOOL), x, y)
        return expr

    return map_exprs(block, lambda e: map_expr(e, one))


@dataclass(frozen=True)
class _Place:
    """Where a Push or Pop stands: the blocks around it, outermost first, each with what it belongs to and the position in it."""

    stmt: ir.Push | ir.Pop
    around: tuple[tuple[ir.Stmt | None, int, ir.Block, int], ...]

    def visible(self, levels: int | None = None) -> Iterator[ir.Var]:
        """The variables that can be used there (of the outermost blocks only)."""
        for owner, branch, block, position in self.around[:levels]:
            yield from heads(owner)
            if isinstance(owner, ir.While) and branch == 1:
                yield from (v for s in owner.header for v in defined(s))
            yield from (v for s in block[:position] for v in defined(s))


def _places(
    block: ir.Block, owner: ir.Stmt | None = None, branch: int = 0, around: tuple[tuple[ir.Stmt | None, int, ir.Block, int], ...] = ()
) -> Iterator[_Place]:
    for position, stmt in enumerate(block):
        here = (*around, (owner, branch, block, position))
        if isinstance(stmt, ir.Push | ir.Pop):
            yield _Place(stmt, here)
        for number, inner in enumerate(blocks(stmt)):
            yield from _places(inner, stmt, number, here)


class _Iteration:
    """One stack: the scope that fills it, and the one that takes from it."""

    def __init__(
        self,
        body: ir.Block,
        push: _Place,
        pop: _Place,
        origin: dict[ir.Var, ir.Var],
        copies: frozenset[ir.Buffer],
        first: int,
        names: Names,
    ) -> None:
        assert isinstance(push.stmt, ir.Push) and isinstance(pop.stmt, ir.Pop)
        self.body, self.origin, self.copies, self.first, self.names = body, origin, copies, first, names
        self.push, self.pop = push, pop
        self.pushed = dict(zip(pop.stmt.vars, push.stmt.values, strict=True))
        mutable = assigned_vars(body)
        self.own = {v for s in walk_stmts(body) for v in bound(s)}
        levels = sum(a[0] is b[0] and a[1] == b[1] for a, b in zip(push.around, pop.around, strict=False))
        at_push = [v for v in push.visible() if v not in mutable]
        both = set(pop.visible(levels)) & set(push.visible(levels)) - mutable
        self.at_push = set(at_push)
        self.by_origin = {origin.get(v, v): v for v in at_push}
        self.both = both
        self.known = {v for v in pop.visible() if v not in mutable and self.is_forward(v)}
        self.values: dict[ir.Var, ir.Expr] = {}  # of the variables that the reverse computes with a Let
        self.nodes: set[ir.Var] = set()  # variables of the reverse scope that depend on what is popped
        self.opaque: set[ir.Var] = set()  # of these, those that are no Let
        self.edges: list[tuple[Node, Node]] = []
        self.weights: dict[Node, int] = {}
        self.there: dict[ir.Expr, tuple[ir.Buffer, ir.Expr]] = {}  # values that are in memory
        self.seen: set[ir.Expr] = set()

    def is_param(self, var: ir.Var) -> bool:
        """True if the variable is a parameter of the kernel."""
        return var not in self.own

    def is_forward(self, var: ir.Var) -> bool:
        return self.origin.get(var, var).uid < self.first or self.is_param(var)

    # --- the graph -------------------------------------------------------------------------------------------------------------------

    def improved(self) -> ir.Block:
        stored = self.stored()
        for var in self.pushed:
            self.nodes.add(var)
            self.edges.append((SOURCE, var))
            self.weigh(var)
        owner, _, block, position = self.pop.around[-1]
        for stmt in block[position + 1 :]:
            self.statement(stmt)
        for expr in _tail(owner, block):
            self.use(expr)
        for node in list(self.weights):
            if isinstance(node, ir.Var) and (place := stored.get(self.leaf(node))) is not None:
                self.there[node] = place
                self.weights[node] = _LOAD
        chosen = minimum_cut(self.edges, self.weights)
        if chosen is None:
            return self.body
        wanted = [n for n in self.weights if n in chosen and isinstance(n, ir.Expr)]
        return self.body if wanted == list(self.pushed) and not self.there else self.rewritten(wanted)

    def statement(self, stmt: ir.Stmt) -> None:
        """Takes in a statement of the reverse scope."""
        found = defined(stmt)
        inside = list(walk_stmts((stmt,)))
        if (
            found
            and all(self.is_forward(v) for v in found)
            and all(isinstance(s, ir.Let | ir.Load | ir.If | ir.For | ir.While) for s in inside)
        ):
            self.compute(stmt, inside)
            return
        for s in inside:
            for expr in expressions(s):
                self.use(expr)

    def compute(self, stmt: ir.Stmt, inside: list[ir.Stmt]) -> None:
        """A statement that computes values of the primal again."""
        inputs = [e for s in inside for e in expressions(s)]
        depends = [v for e in inputs for v in ir.variables(e) if v in self.nodes]
        self.known.update(defined(stmt))
        for var in defined(stmt) if depends else ():
            self.nodes.add(var)
            if isinstance(stmt, ir.Let):
                self.values[var] = stmt.value
                self.edges.append((self.node(stmt.value), var))
            else:
                self.opaque.add(var)
                self.edges.extend((v, var) for v in depends)
            self.weigh(var)

    def use(self, expr: ir.Expr) -> None:
        """What the adjoint itself uses of the primal has to be there."""
        if not any(v in self.nodes for v in ir.variables(expr)):
            return
        if all(v in self.known or v in self.nodes or self.is_param(v) for v in ir.variables(expr)) and not _is_private(expr):
            self.edges.append((self.node(expr), SINK))
            return
        for child in ir.children(expr):
            self.use(child)

    def node(self, expr: ir.Expr) -> Node:
        """The node of an expression that depends on what is popped."""
        if isinstance(expr, ir.Var) or expr in self.seen:
            return expr
        self.seen.add(expr)
        for child in ir.children(expr):
            if any(v in self.nodes for v in ir.variables(child)):
                self.edges.append((self.node(child), expr))
        done = ("done", expr)
        self.edges += [(SOURCE, done), (done, expr)]
        self.weights[done] = max(_cost(expr), 1)
        self.weigh(expr)
        return expr

    def weigh(self, expr: ir.Expr) -> None:
        """Says what it costs to push the value, if the forward sweep can."""
        made = self.made(expr)
        if made is not None and (cost := sum(_cost(e) for e in ir.walk(made))) <= _MOST:
            self.weights[expr] = expr.type.size * _BYTE + cost + (0 if isinstance(expr, ir.Var) else _NAMELESS)

    # --- the forward sweep's side ------------------------------------------------------------------------------------------------------

    def made(self, expr: ir.Expr) -> ir.Expr | None:
        """A value in terms of what is visible at the push; None if there is no such expression."""
        if isinstance(expr, ir.Var):
            return self.leaf(expr)
        parts = {c: self.made(c) for c in ir.children(expr)}
        return None if None in parts.values() else rebuild(expr, lambda c: parts[c] or c)

    def leaf(self, var: ir.Var) -> ir.Expr | None:
        if var in self.pushed:
            return self.pushed[var]
        if var in self.both or self.is_param(var):
            return var
        twin = self.by_origin.get(self.origin.get(var, var)) if self.is_forward(var) else None
        if twin is not None:
            return twin
        return self.made(self.values[var]) if var in self.values else None

    def stored(self) -> dict[ir.Expr | None, tuple[ir.Buffer, ir.Expr]]:
        """Values that the sweep has stored where no later statement stores, with where that is for the reverse scope."""
        _, _, block, position = self.push.around[-1]
        stores = [s for s in block[:position] if isinstance(s, ir.Store) and s.buffer in self.copies and s.buffer.element == s.value.type]
        if not stores:
            return {}
        back = {self.origin.get(v, v): v for v in self.pop.visible() if self.is_forward(v)}
        order = Order(ir.Kernel("", tuple(v for v in _parameters(self.body)), self.body))
        found: dict[ir.Expr | None, tuple[ir.Buffer, ir.Expr]] = {}
        for store in stores:
            index = self.seen_from(store.index, back)
            own = next(a for a in order.accesses if a.stmt is store)
            others = [a for a in order.accesses if a.writes and a.buffer == store.buffer]
            if isinstance(store.value, ir.Var) and index is not None and not any(order.after(a, own) for a in others):
                found[store.value] = store.buffer, index
        return found

    def seen_from(self, expr: ir.Expr, back: Mapping[ir.Var, ir.Var]) -> ir.Expr | None:
        """An expression of the sweep in terms of what is visible at the pop."""
        if isinstance(expr, ir.Var):
            return expr if expr in self.both or self.is_param(expr) else back.get(self.origin.get(expr, expr))
        parts = {c: self.seen_from(c, back) for c in ir.children(expr)}
        return None if None in parts.values() else rebuild(expr, lambda c: parts[c] or c)

    # --- the result --------------------------------------------------------------------------------------------------------------------

    def rewritten(self, wanted: list[ir.Expr]) -> ir.Block:
        assert isinstance(self.push.stmt, ir.Push) and isinstance(self.pop.stmt, ir.Pop)
        named = {e: e if e in self.pushed else self.names.var(_name(e), e.type) for e in wanted}
        self.origin.update({named[e]: self.origin.get(e, e) for e in wanted if isinstance(e, ir.Var)})
        kept = [e for e in wanted if e not in self.there]
        stack = ir.Stack(self.push.stmt.stack.name, tuple((named[e].name, e.type) for e in kept), self.push.stmt.stack.uid)
        values = [self.made(e) for e in kept]
        push = replace(self.push.stmt, stack=stack, values=tuple(v for v in values if v is not None))
        pop = replace(self.pop.stmt, stack=stack, vars=tuple(named[e] for e in kept))
        loads = tuple(ir.Load(named[e], *self.there[e], span=pop.span) for e in wanted if e in self.there)
        new: dict[int, ir.Block] = {id(self.push.stmt): (push,) if kept else (), id(self.pop.stmt): (*((pop,) if kept else ()), *loads)}
        return _replaced(self.body, new, {e: v for e, v in named.items() if e != v})


def _replaced(block: ir.Block, new: Mapping[int, ir.Block], named: Mapping[ir.Expr, ir.Var]) -> ir.Block:
    """The block with other statements, and with variables for expressions."""

    def expr(e: ir.Expr) -> ir.Expr:
        return named[e] if e in named else rebuild(e, expr)

    out: list[ir.Stmt] = []
    for stmt in block:
        if id(stmt) in new:
            out.extend(new[id(stmt)])
        else:
            stmt = map_stmt_exprs(stmt, expr) if named else stmt
            out.append(map_blocks(stmt, lambda inner: _replaced(inner, new, named)))
    return tuple(out)


def _tail(owner: ir.Stmt | None, block: ir.Block) -> Iterator[ir.Expr]:
    """What is evaluated at the end of the block."""
    match owner:
        case ir.For(carried=carried):
            yield from (c.next for c in carried)
        case ir.If(then=then, merges=merges):
            yield from (m.then if block is then else m.otherwise for m in merges)


def _parameters(body: ir.Block) -> Iterator[ir.Buffer]:
    return iter(dict.fromkeys(s.buffer for s in walk_stmts(body) if hasattr(s, "buffer") and s.buffer.length is None))


def _is_private(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.LaunchIndex)


def _name(expr: ir.Expr) -> str:
    """A name for a value that the user has given none."""
    if isinstance(expr, ir.Var):
        return expr.name
    return "choice" if expr.type.kind == "bool" else "value"


def _cost(expr: ir.Expr) -> int:
    """About how many operations an expression does itself."""
    match expr:
        case ir.Var() | ir.Constant() | ir.LaunchIndex():
            return 0
        case ir.Binary(op=op) if expr.type.is_float:
            return _SLOW.get(op, 1)
        case ir.Call(function=function):
            return 1 if function in ("fabs", "fmin", "fmax", "min", "max", "abs") else 8 if function == "sqrt" else 16
    return 1


MOST = 16  # elements


@dataclass(frozen=True)
class Snapshots:
    """A kernel in whose loops, by their id, the first statements load all elements of some arrays."""

    kernel: Kernel
    loads: Mapping[int, tuple[Load, ...]]

    def arrays(self, loop: Stmt) -> frozenset[Buffer]:
        """The arrays that are on record at the start of each iteration of a loop."""
        return frozenset(load.buffer for load in self.loads.get(id(loop), ()))

    def restored(self, loop: Stmt) -> Block:
        """What gives the reverse of an iteration the arrays as they were."""
        loads = self.loads.get(id(loop), ())
        made = tuple(Alloc(array, span=loop.span) for array in dict.fromkeys(load.buffer for load in loads))
        return (*made, *(Store(load.buffer, load.index, load.var, span=load.span) for load in loads))


def snapshots(kernel: Kernel) -> Snapshots | None:
    """The kernel with loads where loops of many iterations read and write an array that is built before them; None if there is none."""
    task = _Task(Names(kernel))
    body = task.block(kernel.body, frozenset())
    return Snapshots(replace(kernel, body=body), task.loads) if task.loads else None


class _Task:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.loads: dict[int, tuple[Load, ...]] = {}

    def block(self, block: Block, whole: frozenset[Buffer]) -> Block:
        """`whole`: arrays of which every element has been stored to before the block."""
        small = {s.buffer: s.zero for s in block if isinstance(s, Alloc) and _is_small(s.buffer)}
        out: list[Stmt] = []
        for at, stmt in enumerate(block):
            whole |= {a for a, zero in small.items() if zero or built(block[:at], a)}
            match stmt:
                case If(then=then, otherwise=otherwise):
                    stmt = replace(stmt, then=self.block(then, whole), otherwise=self.block(otherwise, whole))
                case For() | While():
                    stmt = self.loop(stmt, whole)
            out.append(stmt)
        return tuple(out)

    def loop(self, loop: For | While, whole: frozenset[Buffer]) -> Stmt:
        arrays = sorted((a for a in whole if _is_updated(loop, a)), key=lambda a: a.uid)
        loads = tuple(
            Load(self.names.var(a.name, value_type(a.element)), a, b.const(e, I32), span=loop.span)
            for a in arrays
            for e in range(a.length or 0)
        )
        made = replace(loop, body=(*loads, *self.block(loop.body, frozenset())))
        if loads:
            self.loads[id(made)] = loads
        return made


def _is_small(array: Buffer) -> bool:
    return array.space is Space.LOCAL and (array.length or MOST + 1) <= MOST


def _is_updated(loop: For | While, array: Buffer) -> bool:
    """True if a loop of many iterations reads and writes an array in its body."""
    few = isinstance(loop, For) and isinstance(loop.start, Constant) and isinstance(loop.stop, Constant)
    used = list(touches(loop.body, array))
    header = isinstance(loop, While) and any(touches(loop.header, array))
    reads, writes = (any(isinstance(s, kind) for s in used) for kind in (Load | Accumulate, Store | Accumulate))
    return reads and writes and not few and not header and not any(isinstance(s, Take | Atomic) for s in used)
