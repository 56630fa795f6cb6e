"""Access relations by symbolic execution: what a kernel does to memory, statement by statement, over the instances of a launch.

An instance of a statement is a thread and an iteration of each loop around it. Its dimensions are `gx, gy, gz`, the thread's number among
all along each axis with more threads than one, and one a loop, the value of the loop's variable. `effects` goes through a kernel's body
once and notes each access with its element, its guards and, for what is added, the value, all as nodes of a `Graph`.

What a loop adds to a variable is a `sum` node over the loop's dimension, if each iteration adds something that does not depend on what was
added before; else what a loop carries is a `carried` node (its value at an iteration) or a `result` (after the last), known by the loop's
recurrence. What an array of the thread's own holds is known where it is a table of constants.

Assumes valid IR with every accumulation decided. Says nothing of barriers, shuffles and stacks: what comes out of those is unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import folding
from ..ir import nodes as ir
from ..ir.induction import closed_form
from ..ir.rewrite import bound_in, used_vars, walk_stmts, written_in
from ..ir.types import BOOL, I32, I64, U32, Scalar, Space, value_type
from .effects import AXES, Dim, Effect, Recurrence, Shape, Substitution, inside
from .unknowns import Unknowns
from .values import Graph, Node, addends, is_zero, limits, summands, vanishes

_NOT_ZERO = ("gpuad_used", "gpuad_collected")
_CHAIN = "gpuad_chain"  # a product
_PLACES = 64  # of a table
_MOST = (1 << 31) - 2  # the last iteration of any loop
_COUNTER = ir.Var("iteration", I32, -1)  # where a loop has none


@dataclass(frozen=True, eq=False)
class _Table:
    """An array of a thread's own that holds constants: made where these guards and dimensions hold, and all of 0 or not."""

    guards: tuple[Node, ...]
    dims: tuple[Dim, ...]
    zero: bool
    values: dict[int, Node]


@dataclass(frozen=True, eq=False)
class _Every:
    """Facts that hold in every iteration of a while loop: `forms`, variables by the `counter`, and `terms` of its condition, over
    them and the values `before` the loop. `last`: the number of the last iteration at most."""

    counter: ir.Var
    before: dict[ir.Var, Node]
    forms: tuple[ir.Let, ...]
    terms: tuple[ir.Expr, ...]
    last: int


class Instances:
    """Evaluates kernels symbolically in one graph. `by_data`: integers that hang on data become dimensions (`unknowns`).

    `recurrences`: by the name in `carried` and `result` nodes; `kept`: what was stored to arrays in which each thread keeps a number for
    others in the element of its own number, for the kernels that come after; `rough`: numbers that were sampled of values need not be the
    same where values are.
    """

    def __init__(self, *, by_data: bool = False) -> None:
        self.graph = Graph()
        self.unknowns = Unknowns(self.graph) if by_data else None
        self.recurrences: dict[str, Recurrence] = {}
        self.loops: dict[Hashable, int] = {}
        self.kept: dict[ir.Buffer, tuple[Effect, Shape]] = {}
        self.rough = False

    def effects(self, body: ir.Block, shape: Shape) -> list[Effect]:
        """The accesses of a kernel's body."""
        walk = Walk(self, shape)
        walk.changed = {b.element for b in written_in(body) if b.space is Space.GLOBAL}
        walk.block(body)
        return walk.found if self.unknowns is None else [self.unknowns.completed(effect) for effect in walk.found]

    def substituted(self, node: Node, mapping: Mapping[str, Node]) -> Node:
        """The node with other nodes for dimensions."""
        return Substitution(self.graph, mapping).node(node)


class Walk:
    """Goes through a body in order."""

    def __init__(self, instances: Instances, shape: Shape) -> None:
        self.instances = instances
        self.unknowns = instances.unknowns
        self.graph = instances.graph
        self.shape = shape
        self.changed: set[Scalar] = set()  # types of elements that are written
        self.values: dict[ir.Var, Node] = {}
        self.tables: dict[ir.Buffer, _Table] = {}
        self.found: list[Effect] = []
        self.guards: tuple[Node, ...] = ()
        self.order = 0
        self.times: dict[str, int] = {}
        self.counted: dict[ir.Var, _Every] = {}
        self.dims = tuple(self.thread(axis) for axis, n in zip(AXES, shape.threads, strict=True) if n > 1)

    def thread(self, axis: str) -> Dim:
        node = self.global_index(axis)
        zero, end = self.graph.constant(0, I64), self.graph.constant(node.high + 1, I64)
        wide = self.graph.dim(node.args[0], I64, -(1 << 62), (1 << 62) - 1)  # as if it were not known where it lies
        return Dim(node.args[0], (self.graph.compare(">=", wide, zero), self.graph.compare("<", wide, end)), True)

    def global_index(self, axis: str) -> Node:
        n = self.shape.threads[AXES.index(axis)]
        return self.graph.dim(f"g{axis}", U32, 0, n - 1) if n > 1 else self.graph.constant(0, U32)

    # --- statements ---------------------------------------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self.order += 1
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let() | ir.Assign():
                self.values[stmt.var] = self.expr(stmt.value)
            case ir.If():
                self.branch(stmt)
            case ir.For():
                self.loop(stmt)
            case ir.While():
                self.repeat(stmt)
            case ir.Push(stack=stack, values=values) if self.unknowns is not None:
                for place, value in enumerate(values):
                    self.unknowns.pushed.setdefault((stack.uid, place), []).append(self.expr(value))
            case ir.Pop(stack=stack, vars=variables):
                found = [self.anything(v.type) for v in variables]
                if self.unknowns is not None:
                    found = [self.unknowns.popped(stack.uid, place, value) for place, value in enumerate(found)]
                self.values.update(zip(variables, found, strict=True))
            case ir.Shuffle(var=var):
                self.values[var] = self.anything(var.type)
            case _:
                self.memory(stmt)

    def memory(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Alloc(buffer=b, zero=zero) if b.space is Space.LOCAL:
                self.tables[b] = _Table(self.guards, self.dims, zero, {})
            case ir.Load(buffer=b, index=i):
                self.values[stmt.var] = self.load(stmt, b, self.expr(i))
            case ir.Take(buffer=b, index=i):
                element = self.expr(i)
                self.note("clear", stmt, element, None, stmt.how)
                self.values[stmt.var] = self.content(b, element)
            case ir.Store(index=i, value=v):
                self.store(stmt, self.expr(i), self.expr(v))
            case ir.Accumulate(buffer=b, index=i, value=v):
                self.private(b)
                self.note("add", stmt, self.expr(i), self.expr(v), stmt.how)
            case ir.Atomic(buffer=b, index=i):
                self.private(b)
                self.note("change", stmt, self.expr(i), None, ir.How.ATOMIC)
                if stmt.var is not None:
                    self.values[stmt.var] = self.anything(stmt.var.type)

    def anything(self, kind: Scalar) -> Node:
        return self.graph.unknown(kind, [d.name for d in self.dims])

    def note(
        self,
        kind: str,
        stmt: ir.Load | ir.Store | ir.Take | ir.Accumulate | ir.Atomic,
        element: Node,
        value: Node | None,
        how: ir.How | None,
    ) -> None:
        guards = self.guards
        if kind == "add" and value is not None:
            guards = tuple(g for g in guards if not _asks_for(g, value))
        idle = len(guards) < len(self.guards)
        self.found.append(Effect(kind, stmt.buffer, element, value, self.dims, guards, how, self.order, stmt, idle))

    def private(self, buffer: ir.Buffer) -> None:
        """What is in an array of the thread's own is not known any more."""
        self.tables.pop(buffer, None)

    def store(self, stmt: ir.Store, element: Node, value: Node) -> None:
        table = self.tables.get(stmt.buffer)
        if table is not None:
            if element.is_constant and value.is_constant and (table.guards, table.dims) == (self.guards, self.dims):
                table.values[element.low] = value
                return
            self.private(stmt.buffer)
        self.note("set", stmt, element, value, None)

    def load(self, stmt: ir.Load, buffer: ir.Buffer, element: Node) -> Node:
        if buffer in self.tables:
            return self.from_table(self.tables[buffer], element, stmt.var.type)
        self.note("read", stmt, element, None, None)
        if buffer in self.instances.kept:
            return self.from_thread(buffer, element)
        if buffer.space in (Space.LOCAL, Space.SHARED) or (self.unknowns is not None and buffer.element in self.changed):
            return self.anything(stmt.var.type)
        return self.content(buffer, element)

    def content(self, buffer: ir.Buffer, element: Node) -> Node:
        """What was in an element before the kernels."""
        return self.graph.node("load", (buffer, self.graph.cast(element, I64)), value_type(buffer.element))

    def from_table(self, table: _Table, element: Node, kind: Scalar) -> Node:
        values = table.values
        if table.zero and element.text is not None and element.high - element.low < _PLACES:
            zero = self.graph.constant(0, kind)
            values = {**dict.fromkeys(range(max(element.low, 0), element.high + 1), zero), **values}
        if not 0 < len(values) <= _PLACES or (element.is_constant and element.low not in values):
            return self.anything(kind)
        return self.graph.table(element, tuple(sorted(values.items())), kind)

    def from_thread(self, buffer: ir.Buffer, element: Node) -> Node:
        """What another thread has kept: its value in terms of its number, which is the element; 0 where it has kept none."""
        kept, shape = self.instances.kept[buffer]
        x, y, _ = shape.threads
        wide = self.graph.cast(element, I64)
        number = {"gx": (1, x), "gy": (x, y), "gz": (x * y, 0)}
        mapping = {name: self.digit(wide, before, size) for name, (before, size) in number.items()}
        if kept.value is None or wide.text is None:
            return self.anything(value_type(buffer.element))
        substitution = Substitution(self.graph, mapping)
        value = substitution.node(kept.value)
        for guard in reversed(kept.guards):
            value = self.graph.select(substitution.node(guard), value, self.graph.constant(0.0, value.type))
        return value

    def digit(self, number: Node, before: int, size: int) -> Node:
        whole = self.graph.arithmetic("/", number, self.graph.constant(before, I64), I64)
        return self.graph.arithmetic("%", whole, self.graph.constant(size, I64), I64) if size else whole

    # --- control flow -------------------------------------------------------------------------------------------------------------

    def branch(self, stmt: ir.If) -> None:
        condition = self.expr(stmt.condition)
        before, tables = dict(self.values), set(self.tables)
        sides = [self.side(block, c) for block, c in ((stmt.then, condition), (stmt.otherwise, self.graph.negated(condition)))]
        then, otherwise = sides
        changed = [v for v in before if then.get(v) is not before[v] or otherwise.get(v) is not before[v]]
        self.values = before
        for var in changed:
            self.values[var] = self.merged(condition, then[var], otherwise[var])
        for merge in stmt.merges:
            self.values[merge.var] = self.merged(condition, self.under(then, merge.then), self.under(otherwise, merge.otherwise))
        self.tables = {b: t for b, t in self.tables.items() if b in tables}

    def side(self, block: ir.Block, condition: Node) -> dict[ir.Var, Node]:
        guards, values = self.guards, dict(self.values)
        if not (condition.is_constant and not condition.args[0]):
            self.guards = guards if condition.is_constant else (*guards, condition)
            self.block(block)
        found, self.guards, self.values = self.values, guards, values
        return found

    def under(self, values: dict[ir.Var, Node], expr: ir.Expr) -> Node:
        kept, self.values = self.values, values
        found = self.expr(expr)
        self.values = kept
        return found

    def merged(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """A choice; of two sums that begin alike, of what comes after."""
        if then is otherwise or not then.type.is_float:
            return self.graph.select(condition, then, otherwise)
        one, two = list(addends(then)), list(addends(otherwise))
        alike = 0
        while alike < min(len(one), len(two)) and one[alike] == two[alike]:
            alike += 1
        zero = self.graph.constant(0.0, then.type)
        parts = [self.total(few, zero) for few in (one[:alike], one[alike:], two[alike:])]
        idle = is_zero(parts[2]) and _asks_for(condition, parts[1])  # what is left out is 0
        choice = parts[1] if idle else self.graph.select(condition, parts[1], parts[2])
        return choice if alike == 0 else self.graph.node("+", (parts[0], choice), then.type)

    def total(self, parts: Sequence[tuple[int, Node]], zero: Node) -> Node:
        total = None
        for sign, node in parts:
            if total is None:
                total = node if sign > 0 else self.graph.node("neg", (node,), node.type)
            else:
                total = self.graph.node("+" if sign > 0 else "-", (total, node), zero.type)
        return zero if total is None else total

    def loop(self, stmt: ir.For) -> None:
        start, stop, step = (self.expr(e) for e in (stmt.start, stmt.stop, stmt.step))
        pace = step.low if step.is_constant and step.low else 0
        name = self.named(f"l{stmt.var.uid}", stmt)
        low, high = (start.low, max(stop.high - 1, start.low)) if pace > 0 else (min(stop.low + 1, start.high), start.high)
        low, high = _clamped(low, high, stmt.var.type) if pace else _clamped(1, 0, stmt.var.type)
        var = self.graph.dim(name, stmt.var.type, low, high)
        wide = self.graph.dim(name, I64, -(1 << 62), (1 << 62) - 1)
        guards = self.bounds(wide, start, stop, pace) if pace else (self.anything(BOOL),)
        if isinstance(stmt.stop, ir.Var) and stmt.stop in self.counted and pace == 1 and start.is_constant and start.low == 0:
            guards = (*guards, *self.holding(self.counted[stmt.stop], var))
        self.inside(
            stmt.var,
            var,
            Dim(name, guards, False, (start, stop, pace) if pace else None),
            stmt.body,
            stmt.carried,
            (start, stop, pace, stmt.backward) if pace else None,
        )

    def named(self, name: str, stmt: ir.For | ir.While) -> str:
        """A name for a loop's dimension, another one each time that a loop with the variable comes; where the loop carries something, one
        for this loop with what it finds alone, for that is what the name stands for in `carried` nodes."""
        self.times[name] = self.times.get(name, 0) + 1
        name = f"{name}_{self.times[name]}"
        if stmt.carried or any(v in self.values for v in _assigned((stmt,))):
            free = dict.fromkeys(used_vars((stmt,)))
            key = name, stmt, tuple(self.values.get(v) for v in free), self.shape.grid, self.shape.block, self.integers(free)
            name = f"{name}_{self.instances.loops.setdefault(key, len(self.instances.loops))}"
        return name

    def integers(self, free: Iterable[ir.Var]) -> tuple[int | None, ...]:
        return tuple(self.shape.numbers.get(v) for v in free)

    def bounds(self, wide: Node, start: Node, stop: Node, pace: int) -> tuple[Node, ...]:
        first, end = self.graph.cast(start, I64), self.graph.cast(stop, I64)
        after, before = (">=", "<") if pace > 0 else ("<=", ">")
        guards = [self.graph.compare(after, wide, first), self.graph.compare(before, wide, end)]
        if abs(pace) != 1:
            gap = self.graph.arithmetic("-", wide, first, I64)
            text = None if gap.text is None else f"(({gap.text}) mod {abs(pace)} = 0)"
            guards.append(self.graph.node("stride", (gap, abs(pace)), BOOL, text))
        return tuple(guards)

    def inside(
        self,
        var: ir.Var | None,
        index: Node | None,
        dim: Dim,
        body: ir.Block,
        carried: Sequence[ir.Carried],
        bounds: tuple[Node, Node, int, bool] | None,
        condition: ir.Expr | None = None,
    ) -> None:
        """A loop's body, once for all its iterations. `condition`: of a loop that goes on while it holds."""
        outer = [v for v in _assigned(body) if v in self.values]
        name = dim.name
        every = frozenset({name, *(d.name for d in self.dims)})
        placeholders = tuple(
            self.graph.node("carried", (name, k), v.type, dims=every) for k, v in enumerate((*(c.var for c in carried), *outer))
        )
        firsts = [self.expr(c.init) for c in carried] + [self.values[v] for v in outer]
        for buffer in {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Store | ir.Accumulate | ir.Atomic)}:
            self.private(buffer)  # what an iteration reads may be what one before has stored
        values, dims, tables = dict(self.values), self.dims, set(self.tables)
        self.values |= dict(zip((*(c.var for c in carried), *outer), placeholders, strict=True))
        self.values |= {var: index} if var is not None and index is not None else {}
        self.dims = (*dims, dim)
        self.block(body)
        nexts = [self.expr(c.next) for c in carried] + [self.values[v] for v in outer]
        holds = self.truth(condition) if condition is not None and not outer else None
        self.dims, self.values = dims, values
        self.tables = {b: t for b, t in self.tables.items() if b in tables}
        names = [c.result for c in carried] + outer
        for k, (result, first, after) in enumerate(zip(names, firsts, nexts, strict=True)):
            if self.unknowns is not None:
                self.unknowns.carried[name, k] = first, after
            self.values[result] = self.ended(k, dim, first, after, placeholders, result.type, bounds is not None)
        if bounds is not None and index is not None and placeholders:
            start, stop, pace, backward = bounds
            self.instances.recurrences[name] = Recurrence(index, start, stop, pace, backward, placeholders, tuple(firsts), tuple(nexts))
        if holds is not None and index is not None and placeholders:
            zero = self.graph.constant(0, I32)
            self.instances.recurrences[name] = Recurrence(index, zero, zero, 1, False, placeholders, tuple(firsts), tuple(nexts), holds)

    def ended(self, k: int, dim: Dim, first: Node, after: Node, placeholders: tuple[Node, ...], kind: Scalar, counts: bool) -> Node:
        """What a variable is after a loop."""
        own = placeholders[k]
        if after is own:
            return first
        if kind.is_float and counts:
            parts = list(addends(after))
            rest = [(sign, node) for sign, node in parts if node is not own]
            alone = len(parts) - len(rest) == 1 and (1, own) in parts
            if alone and not any(found in placeholders for found in inside([node for _, node in rest], dims=True)):
                total = self.total(rest, self.graph.constant(0.0, kind))
                added = self.graph.node("sum", (dim, total), kind)
                return added if is_zero(first) else self.graph.node("+", (first, added), kind)
        every = frozenset(d.name for d in self.dims)
        return self.graph.node("result", (dim.name, k, first, *dim.guards), kind, dims=every)

    def repeat(self, stmt: ir.While) -> None:
        """A loop of which it is not known how often it runs. What holds in each of its iterations by their number alone does so in those of
        a loop that counts to the number of iterations, too."""
        name = self.named(f"w{stmt.counter.uid}" if stmt.counter is not None else "w", stmt)
        every = self.of_every(replace(stmt, counter=stmt.counter or _COUNTER))
        index = self.graph.dim(name, I32, 0, every.last)
        wide = self.graph.dim(name, I64, -(1 << 62), (1 << 62) - 1)
        guards = self.graph.compare(">=", wide, self.graph.constant(0, I64)), self.anything(BOOL), *self.holding(every, index)
        body = (*every.forms, *stmt.header, *stmt.body)
        self.inside(every.counter, index, Dim(name, guards, False), body, stmt.carried, None, stmt.condition)
        if stmt.count is not None:
            self.values[stmt.count] = replace(self.anything(stmt.count.type), low=0, high=every.last + 1)
            self.counted[stmt.count] = every

    def of_every(self, loop: ir.While) -> _Every:
        """Facts that hold in every iteration of a loop."""
        assert loop.counter is not None
        forms = [ir.Let(c.var, form) for c in loop.carried if (form := closed_form(loop, c)) is not None and form.type.is_integer]
        moving = bound_in(loop) - {loop.counter, *(let.var for let in forms)}
        terms = [t for t in folding.conjuncts(loop.condition) if moving.isdisjoint(ir.walk(t))]
        every = _Every(loop.counter, dict(self.values), tuple(forms), tuple(terms), _MOST)
        first, second = (self.values_in(every, self.graph.constant(k, I32)) for k in (0, 1))
        return replace(every, last=min((self.last(term, let.var, first, second) for term in terms for let in forms), default=_MOST))

    def values_in(self, every: _Every, index: Node) -> dict[ir.Var, Node]:
        """The variables that follow from the number of an iteration, and those from before the loop."""
        kept, self.values = self.values, {**every.before, every.counter: index}
        for let in every.forms:
            self.values[let.var] = self.expr(let.value)
        found, self.values = self.values, kept
        return found

    def holding(self, every: _Every, index: Node) -> list[Node]:
        """The facts about an iteration that there is."""
        values, wide = self.values_in(every, index), self.graph.dim(index.args[0], I64, -(1 << 62), (1 << 62) - 1)
        last = self.graph.compare("<=", wide, self.graph.constant(every.last, I64))
        return [last, *(self.under(values, term) for term in every.terms)]

    def last(self, term: ir.Expr, var: ir.Var, first: dict[ir.Var, Node], second: dict[ir.Var, Node]) -> int:
        """The last iteration for which a comparison may hold, by the values of a variable in the first and the second; it must not leave
        its type before."""
        if not isinstance(term, ir.Binary) or term.op not in ir.ORDERINGS:
            return _MOST
        mine, op, other = (term.left, term.op, term.right) if _bare(term.left) == var else (term.right, ir.MIRRORED[term.op], term.left)
        start, (terms, constant), (following, end) = first[var], summands(first[var]), summands(second[var])
        if _bare(mine) != var or var in ir.variables(other) or terms != following or (mine != var and start.low < 0):
            return _MOST
        step, bound, (least, most) = end - constant, self.under(first, other), limits(var.type)
        if step > 0 and op in ("<", "<=") and (end := bound.high - (op == "<")) + step <= most:
            return min(max((end - start.low) // step, 0), _MOST)
        if step < 0 and op in (">", ">=") and (end := bound.low + (op == ">")) + step >= least:
            return min(max((start.high - end) // -step, 0), _MOST)
        return _MOST

    # --- expressions --------------------------------------------------------------------------------------------------------------

    def expr(self, expr: ir.Expr) -> Node:
        found = self.evaluated(expr)
        return found if self.unknowns is None else self.unknowns.dimension(found)

    def evaluated(self, expr: ir.Expr) -> Node:
        graph = self.graph
        match expr:
            case ir.Constant(value=v):
                return graph.constant(v, expr.type)
            case ir.Var():
                return self.variable(expr)
            case ir.LaunchIndex():
                return self.launch_index(expr)
            case ir.Unary(op="-", operand=a):
                inner = self.expr(a)
                if expr.type.is_float:
                    return graph.node("neg", (inner,), expr.type)
                return graph.arithmetic("-", graph.constant(0, expr.type), inner, expr.type)
            case ir.Unary(op="!", operand=a):
                return graph.negated(self.truth(a))
            case ir.Unary(op=op, operand=a):
                return graph.node(op, (self.expr(a),), expr.type)
            case ir.Cast(operand=a):
                return graph.cast(self.expr(a), expr.type)
            case ir.Select(condition=c, then=a, otherwise=z):
                return self.merged(self.truth(c), self.expr(a), self.expr(z))
            case ir.Binary():
                return self.binary(expr)
            case ir.Call():
                return self.call(expr)
        return self.anything(expr.type)

    def truth(self, expr: ir.Expr) -> Node:
        return self.graph.cast(self.expr(expr), BOOL)

    def variable(self, var: ir.Var) -> Node:
        if var in self.values:
            return self.values[var]
        if var.type.is_integer and var in self.shape.numbers:
            return self.graph.constant(self.shape.numbers[var], var.type)
        return self.graph.node("parameter", (var,), var.type)

    def launch_index(self, expr: ir.LaunchIndex) -> Node:
        graph, k = self.graph, AXES.index(expr.axis)
        grid, block = self.shape.grid[k], self.shape.block[k]
        if expr.name == "blockDim":
            return graph.constant(block, U32)
        if expr.name == "gridDim":
            return graph.constant(grid, U32)
        whole = self.global_index(expr.axis)
        return graph.arithmetic("%" if expr.name == "threadIdx" else "/", whole, graph.constant(block, U32), U32)

    def binary(self, expr: ir.Binary) -> Node:
        graph = self.graph
        if expr.op in ("&&", "||"):
            join = graph.both if expr.op == "&&" else graph.either
            return join(self.truth(expr.left), self.truth(expr.right))
        left, right = self.expr(expr.left), self.expr(expr.right)
        if expr.op in ("<", "<=", ">", ">=", "==", "!="):
            return graph.compare(expr.op, left, right)
        return graph.arithmetic(expr.op, left, right, expr.type)

    def call(self, expr: ir.Call) -> Node:
        graph = self.graph
        args = tuple(self.expr(a) for a in expr.arguments)
        if expr.function in _NOT_ZERO:
            return graph.compare("!=", args[0], graph.constant(0.0, args[0].type))
        if expr.function == _CHAIN:
            return graph.node("*", args, expr.type)
        if expr.function in ("min", "max") and expr.type.is_integer:
            return graph.extreme(expr.function, args[0], args[1], expr.type)
        return graph.node("call", (expr.function, *args), expr.type)


def _asks_for(guard: Node, value: Node) -> bool:
    """True if a guard only leaves out additions of 0."""
    if guard.op != "compare" or guard.args[0] != "!=" or not guard.args[1].type.is_float:
        return False
    return is_zero(guard.args[2]) and vanishes(value, guard.args[1])


def _assigned(body: ir.Block) -> list[ir.Var]:
    return list(dict.fromkeys(s.var for s in walk_stmts(body) if isinstance(s, ir.Assign)))


def _bare(expr: ir.Expr) -> ir.Expr:
    return expr.operand if isinstance(expr, ir.Cast) else expr


def _clamped(low: int, high: int, kind: Scalar) -> tuple[int, int]:
    least, most = limits(kind)
    return (low, high) if least <= low <= high <= most else (least, most)
