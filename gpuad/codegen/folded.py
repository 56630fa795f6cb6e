"""The folded IR that is printed: memory reads as expressions, and its traversals, rewriters, uses and definitions.

`Read` is the one expression that exists only here: a load printed at the place of its use.

Expression folding for printing: loads and single-use values are printed at their use, unused ones dropped: `float t = u[i]; v[i] = 2 *
t` becomes `v[i] = 2 * u[i]`.

A load moves to its one use if that changes neither the value nor how often it is read: nothing between the two may write memory that can be
the same, and it never moves into a loop. Two pointer parameters can be the same memory (a caller may pass one array twice), so any write to
global memory holds back every load from global memory. A barrier holds back all but a thread's own arrays.

The walk is repeated with the set of definitions that turned out to have to stay, so that these keep their place in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import ref

from ..ir import nodes as ir
from ..ir.folding import negate
from ..ir.rewrite import Rewrite, assigned_vars, expressions, expressions_in, is_short, map_stmt_exprs, substitute, walk_stmts
from ..ir.types import I32, Space, value_type


@dataclass(frozen=True)
class Read(ir.Call):
    """`buffer[index]` as an expression; a Call, so that everything that walks expressions walks its index."""

    buffer: ir.Buffer

    @property
    def index(self) -> ir.Expr:
        return self.arguments[0]


def read(buffer: ir.Buffer, index: ir.Expr) -> Read:
    """The element `index` of `buffer` as an expression."""
    return Read("[]", (index,), value_type(buffer.element), buffer)


def expanded(lets: Iterable[ir.Let]) -> dict[ir.Var, ir.Expr]:
    """What variables are in terms of others, as long as that is short."""
    table: dict[ir.Var, ir.Expr] = {}
    for let in lets:
        value = substitute(let.value, table)
        if is_short(value):
            table[let.var] = value
    return table


def visit_operands(stmt: ir.Stmt, visit: Rewrite) -> ir.Stmt:
    """The statement with `visit` applied to the expressions that it evaluates once, where it stands: not those in or behind its blocks."""
    match stmt:
        case ir.If(condition=a):
            return replace(stmt, condition=visit(a))
        case ir.For():
            start, stop, step = visit(stmt.start), visit(stmt.stop), visit(stmt.step)
            return replace(stmt, start=start, stop=stop, step=step, carried=_visit_inits(stmt.carried, visit))
        case ir.While():
            return replace(stmt, carried=_visit_inits(stmt.carried, visit))
    return map_stmt_exprs(stmt, visit)


def _visit_inits(carried: tuple[ir.Carried, ...], visit: Rewrite) -> tuple[ir.Carried, ...]:
    return tuple(replace(c, init=visit(c.init)) for c in carried)


def operands(stmt: ir.Stmt) -> list[ir.Expr]:
    """The expressions that `visit_operands` visits."""
    match stmt:
        case ir.If(condition=a):
            return [a]
        case ir.For():
            return [stmt.start, stmt.stop, stmt.step, *(c.init for c in stmt.carried)]
        case ir.While():
            return [c.init for c in stmt.carried]
    return [*expressions(stmt)]


def scopes(stmt: ir.Stmt) -> list[tuple[ir.Block, list[ir.Expr]]]:
    """The nested blocks, each with the expressions evaluated at its end. A While is one block: its header, then its body."""
    match stmt:
        case ir.If(merges=merges):
            return [(stmt.then, [m.then for m in merges]), (stmt.otherwise, [m.otherwise for m in merges])]
        case ir.For(carried=carried):
            return [(stmt.body, [c.next for c in carried])]
        case ir.While(carried=carried):
            return [(stmt.header + stmt.body, [stmt.condition, *(c.next for c in carried)])]
    return []


class Uses:
    """How often statements use each Var (as a value, not as a target). Counts are kept, by the identity of the statement."""

    def __init__(self) -> None:
        self._whole: dict[int, tuple[ir.Stmt, Counter[ir.Var]]] = {}
        self._inside: dict[int, tuple[ir.Stmt, Counter[ir.Var]]] = {}

    def of(self, stmt: ir.Stmt) -> Counter[ir.Var]:
        """With all that is nested in it."""
        if id(stmt) not in self._whole:
            own = _counted(operands(stmt))
            self._whole[id(stmt)] = stmt, own + self.inside(stmt) if scopes(stmt) else own
        return self._whole[id(stmt)][1]

    def inside(self, stmt: ir.Stmt) -> Counter[ir.Var]:
        """In its blocks and at their ends only."""
        if id(stmt) not in self._inside:
            total: Counter[ir.Var] = Counter()
            for block, tail in scopes(stmt):
                total.update(_counted(tail))
                for inner in block:
                    total.update(self.of(inner))
            self._inside[id(stmt)] = stmt, total
        return self._inside[id(stmt)][1]


def _counted(exprs: Iterable[ir.Expr]) -> Counter[ir.Var]:
    return Counter(v for e in exprs for v in ir.variables(e))


def targets(stmt: ir.Stmt) -> tuple[ir.Var, ...]:
    """The Vars that the statement itself gives a value to, where it stands: an Assign's too, but not what an If or a loop ends with."""
    match stmt:
        case ir.Let(var=v) | ir.Load(var=v) | ir.Take(var=v) | ir.Shuffle(var=v) | ir.Assign(var=v):
            return (v,)
        case ir.Atomic(var=v) if v is not None:
            return (v,)
        case ir.Pop(vars=vs):
            return vs
    return ()


def written(stmt: ir.Stmt) -> ir.Buffer | None:
    """The buffer that the statement itself writes."""
    return stmt.buffer if isinstance(stmt, ir.Store | ir.Accumulate | ir.Take | ir.Atomic | ir.Alloc) else None


def reads(expr: ir.Expr) -> Iterator[Read]:
    """The memory reads in the expression."""
    return (e for e in ir.walk(expr) if isinstance(e, Read))


def loaded(block: ir.Block) -> set[ir.Buffer]:
    """What is read in a block."""
    return {s.buffer for s in walk_stmts(block) if isinstance(s, ir.Load)} | {r.buffer for e in expressions_in(block) for r in reads(e)}


def merge_vars(merges: tuple[ir.Merge, ...]) -> set[ir.Var]:
    return {m.var for m in merges}


def unconverted(expr: ir.Expr) -> ir.Expr:
    """An integer without the conversions around it that keep its value."""
    while (
        isinstance(expr, ir.Cast)
        and expr.type.is_integer
        and expr.operand.type.is_integer
        and expr.type.bits >= expr.operand.type.bits >= 32
    ):
        expr = expr.operand
    return expr


def index_terms(expr: ir.Expr, sign: int) -> Iterator[tuple[int, ir.Expr]]:
    """The terms of a sum of integers. A conversion to a narrower type is a term as a whole."""
    expr = unconverted(expr)
    if isinstance(expr, ir.Binary) and expr.op in "+-":
        yield from index_terms(expr.left, sign)
        yield from index_terms(expr.right, sign if expr.op == "+" else -sign)
    else:
        yield sign, expr


def single_values(kernel: ir.Kernel) -> dict[ir.Var, ir.Expr]:
    """What the variables that get one value only are in terms of others, where that is short."""
    assigned = assigned_vars(kernel.body)
    return expanded(s for s in walk_stmts(kernel.body) if isinstance(s, ir.Let) and s.var not in assigned)


def fold(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel as it is printed: single-use loads are `Read` expressions, unused values are gone, the counters of while loops are
    carried values. The printers of one launch ask for the same kernel one after the other."""
    for asked, folded in _last:
        if asked() is kernel:
            return folded
    folded = _folded(kernel)
    _last[:] = [(ref(kernel), folded)]
    return folded


_last: list[tuple[ref[ir.Kernel], ir.Kernel]] = []


def _folded(kernel: ir.Kernel) -> ir.Kernel:
    body = _count_iterations(kernel.body)
    blocked: set[int] = set()
    uses = Uses()
    while True:
        run = _Fold(body, blocked, uses)
        folded = run.block(body, [])[0]
        if run.late:
            blocked |= run.late
        elif folded == body:
            return replace(kernel, body=folded)
        else:
            body, blocked = folded, set()


def _count_iterations(block: ir.Block) -> ir.Block:
    """While loops whose counter or count is wanted, with these as a carried value."""
    return tuple(_with_counts(stmt) for stmt in block)


def _with_counts(stmt: ir.Stmt) -> ir.Stmt:
    match stmt:
        case ir.If():
            return replace(stmt, then=_count_iterations(stmt.then), otherwise=_count_iterations(stmt.otherwise))
        case ir.For():
            return replace(stmt, body=_count_iterations(stmt.body))
        case ir.While():
            stmt = replace(stmt, body=_count_iterations(stmt.body))
            return _with_counter(stmt) if stmt.counter or stmt.count else stmt
    return stmt


def _with_counter(stmt: ir.While) -> ir.While:
    wanted = stmt.count or stmt.counter
    assert wanted is not None
    counter = stmt.counter or replace(wanted, uid=-1 - wanted.uid)
    count = stmt.count or replace(wanted, uid=-1 - wanted.uid)
    carried = ir.Carried(counter, ir.Constant(0, I32), ir.Binary("+", counter, ir.Constant(1, I32), I32), count)
    return replace(stmt, carried=(*stmt.carried, carried), counter=None, count=None)


class _Fold:
    """One walk. `late` collects the definitions that were folded too eagerly; the walk is then repeated with them in `blocked`."""

    def __init__(self, body: ir.Block, blocked: set[int], uses: Uses) -> None:
        self.blocked = blocked
        self.uses = uses
        self.late: set[int] = set()
        self.position = 0
        self.mutable = assigned_vars(body)
        self.accessed = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic)}
        self.accessed |= {r.buffer for e in expressions_in(body) for r in reads(e)}
        self.pending: dict[ir.Var, ir.Expr] = {}
        self.positions: dict[ir.Var, int] = {}

    def block(self, block: ir.Block, tail: list[ir.Expr]) -> tuple[ir.Block, list[ir.Expr]]:
        """The folded block, and the expressions evaluated at its end."""
        remaining = Counter(v for e in tail for v in ir.variables(e))
        for stmt in block:
            remaining.update(self.uses.of(stmt))
        outer: dict[ir.Var, ir.Expr] = dict(self.pending)
        result: list[ir.Stmt] = []
        for stmt in block:
            remaining.subtract(self.uses.of(stmt))
            kept = self.statement(stmt, remaining)
            if isinstance(kept, ir.For) and not kept.backward and kept.start not in self.mutable:
                kept = self.with_start(kept, result, remaining)
            result += [] if kept is None else [kept]
        tail = [self.put(e) for e in tail]
        self.pending = outer
        return tuple(result), tail

    def statement(self, stmt: ir.Stmt, after: Counter[ir.Var]) -> ir.Stmt | None:
        """The statement as it is kept, or None; `after` counts the uses in the rest of its block."""
        self.position += 1
        if isinstance(stmt, ir.Let | ir.Load) and not after[stmt.var] and stmt.var not in self.mutable:
            return None
        if isinstance(stmt, ir.Alloc) and stmt.buffer not in self.accessed:
            return None
        position = self.position
        stmt = self.operands(stmt)
        value = self.candidate(stmt, after)
        if value is not None and position not in self.blocked:
            assert isinstance(stmt, ir.Let | ir.Load)
            self.pending[stmt.var], self.positions[stmt.var] = value, position
            return None
        stmt = self.nested(stmt, after)
        self.keep({v for v in self.stale(stmt) if after[v]})
        return self.pruned(stmt, after)

    def operands(self, stmt: ir.Stmt) -> ir.Stmt:
        if not isinstance(stmt, ir.For):
            return visit_operands(stmt, self.put)
        self.keep({v for e in (stmt.stop, stmt.step) for v in ir.variables(e) if any(reads(self.pending.get(v, v)))})
        return visit_operands(stmt, self.put)

    def candidate(self, stmt: ir.Stmt, after: Counter[ir.Var]) -> ir.Expr | None:
        """What may be printed instead of the variable that the statement defines."""
        if not isinstance(stmt, ir.Let | ir.Load) or stmt.note or after[stmt.var] != 1 or stmt.var in self.mutable:
            return None
        if isinstance(stmt, ir.Load):
            return read(stmt.buffer, stmt.index)
        return stmt.value if isinstance(stmt.value, ir.Var) else None

    def put(self, expr: ir.Expr) -> ir.Expr:
        return substitute(expr, self.pending)

    def keep(self, names: set[ir.Var]) -> None:
        """These may not be folded after all."""
        self.late |= {self.positions[v] for v in names if v in self.pending}

    def nested(self, stmt: ir.Stmt, after: Counter[ir.Var]) -> ir.Stmt:
        if not scopes(stmt):
            return stmt
        self.keep(self.crossing(stmt, after))
        if isinstance(stmt, ir.If):
            return self.branches(stmt)
        used = self.uses.inside(stmt)
        self.keep({v for v in self.pending if used[v]})
        return self.loop(stmt)

    def crossing(self, stmt: ir.Stmt, after: Counter[ir.Var]) -> set[ir.Var]:
        """The pending values that are used behind a statement within which they may change."""
        changed = {v for s in walk_stmts((stmt,)) for v in self.stale(s)} if self.pending else set()
        return {v for v in changed if after[v]}

    def branches(self, stmt: ir.If) -> ir.If:
        then, thens = self.block(stmt.then, [m.then for m in stmt.merges])
        otherwise, others = self.block(stmt.otherwise, [m.otherwise for m in stmt.merges])
        merges = tuple(replace(m, then=a, otherwise=b) for m, a, b in zip(stmt.merges, thens, others, strict=True))
        return replace(stmt, then=then, otherwise=otherwise, merges=merges)

    def loop(self, stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.For):
            body, tail = self.block(stmt.body, [c.next for c in stmt.carried])
            return replace(stmt, body=body, carried=_with_next(stmt.carried, tail))
        assert isinstance(stmt, ir.While)
        header, body, tail = self.while_blocks(stmt)
        return replace(stmt, header=header, condition=tail[0], body=body, carried=_with_next(stmt.carried, tail[1:]))

    def while_blocks(self, stmt: ir.While) -> tuple[ir.Block, ir.Block, list[ir.Expr]]:
        """Header and body are one scope with the condition between them: values needed behind the condition stay in the header."""
        behind = {v for e in [*expressions_in(stmt.body), *(c.next for c in stmt.carried)] for v in ir.variables(e)}
        header, ends = self.block(stmt.header, [stmt.condition, *behind])
        self.late |= {self.positions[v] for v, e in zip(behind, ends[1:], strict=True) if e is not v}
        body, tail = self.block(stmt.body, [c.next for c in stmt.carried])
        return header, body, [ends[0], *tail]

    def stale(self, stmt: ir.Stmt) -> set[ir.Var]:
        """The pending values that the statement itself, without its blocks, may change."""
        if isinstance(stmt, ir.Assign):
            return {v for v, e in self.pending.items() if stmt.var in ir.variables(e)}
        target = written(stmt)
        synchronises = isinstance(stmt, ir.Barrier | ir.Shuffle | ir.Atomic)
        if target is None and not synchronises:
            return set()
        return {v for v, e in self.pending.items() if any(_touches(target, synchronises, r.buffer) for r in reads(e))}

    def with_start(self, stmt: ir.For, before: list[ir.Stmt], after: Counter[ir.Var]) -> ir.For:
        """The loop with its start in its header, where a definition just before gives it the name of the loop's index and no other use."""
        last = before[-1] if before else None
        if not isinstance(last, ir.Let) or last.note or stmt.start != last.var or last.var.name != stmt.var.name:
            return stmt
        if after[last.var] or self.uses.of(stmt)[last.var] != 1:
            return stmt
        before.pop()
        return replace(stmt, start=last.value)

    def pruned(self, stmt: ir.Stmt, after: Counter[ir.Var]) -> ir.Stmt | None:
        """The statement without unused results; None if nothing is left."""
        match stmt:
            case ir.If(merges=merges):
                stmt = replace(stmt, merges=tuple(m for m in merges if after[m.var]))
                if not stmt.merges and not stmt.then:
                    return replace(stmt, condition=negate(stmt.condition), then=stmt.otherwise, otherwise=()) if stmt.otherwise else None
            case ir.For(body=(), carried=()):
                return None
            case ir.For() | ir.While():
                return replace(stmt, carried=self.live_carried(stmt, after))
        return stmt

    def live_carried(self, stmt: ir.For | ir.While, after: Counter[ir.Var]) -> tuple[ir.Carried, ...]:
        """Without the carried values that only their own next value uses."""
        inside, bounds = self.uses.inside(stmt), _counted((stmt.start, stmt.stop, stmt.step)) if isinstance(stmt, ir.For) else Counter()
        own = {c.var: sum(v == c.var for v in ir.variables(c.next)) for c in stmt.carried}
        return tuple(c for c in stmt.carried if after[c.result] or inside[c.var] + bounds[c.var] > own[c.var])


def _touches(target: ir.Buffer | None, synchronises: bool, buffer: ir.Buffer) -> bool:
    if synchronises and buffer.space is not Space.LOCAL:
        return True
    return target is not None and (target == buffer or target.space is buffer.space is Space.GLOBAL)


def _with_next(carried: tuple[ir.Carried, ...], tail: list[ir.Expr]) -> tuple[ir.Carried, ...]:
    return tuple(replace(c, next=e) for c, e in zip(carried, tail, strict=True))
