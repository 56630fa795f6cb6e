"""The folded IR that is printed: memory reads as expressions, and its traversals, rewriters, uses and definitions.

`Read` is the one expression that exists only here: a load printed at the place of its use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.rewrite import Rewrite, assigned_vars, is_short, map_stmt_exprs, substitute, walk_stmts
from ..ir.types import value_type


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
    found: list[ir.Expr] = []

    def note(expr: ir.Expr) -> ir.Expr:
        found.append(expr)
        return expr

    visit_operands(stmt, note)
    return found


def blocks(stmt: ir.Stmt) -> list[tuple[ir.Block, list[ir.Expr]]]:
    """The nested blocks, each with the expressions evaluated at its end. A While is one block: its header, then its body."""
    match stmt:
        case ir.If(merges=merges):
            return [(stmt.then, [m.then for m in merges]), (stmt.otherwise, [m.otherwise for m in merges])]
        case ir.For(carried=carried):
            return [(stmt.body, [c.next for c in carried])]
        case ir.While(carried=carried):
            return [(stmt.header + stmt.body, [stmt.condition, *(c.next for c in carried)])]
    return []


def expressions(block: ir.Block) -> Iterator[ir.Expr]:
    """All outermost expressions of the block and of its nested blocks."""
    for stmt in walk_stmts(block):
        yield from operands(stmt)
        for _, tail in blocks(stmt):
            yield from tail


class Uses:
    """How often statements use each Var (as a value, not as a target). Counts are kept, by the identity of the statement."""

    def __init__(self) -> None:
        self._whole: dict[int, tuple[ir.Stmt, Counter[ir.Var]]] = {}
        self._inside: dict[int, tuple[ir.Stmt, Counter[ir.Var]]] = {}

    def of(self, stmt: ir.Stmt) -> Counter[ir.Var]:
        """With all that is nested in it."""
        if id(stmt) not in self._whole:
            own = _counted(operands(stmt))
            self._whole[id(stmt)] = stmt, own + self.inside(stmt) if blocks(stmt) else own
        return self._whole[id(stmt)][1]

    def inside(self, stmt: ir.Stmt) -> Counter[ir.Var]:
        """In its blocks and at their ends only."""
        if id(stmt) not in self._inside:
            total: Counter[ir.Var] = Counter()
            for block, tail in blocks(stmt):
                total.update(_counted(tail))
                for inner in block:
                    total.update(self.of(inner))
            self._inside[id(stmt)] = stmt, total
        return self._inside[id(stmt)][1]


def _counted(exprs: Iterable[ir.Expr]) -> Counter[ir.Var]:
    return Counter(v for e in exprs for v in ir.variables(e))


def defined(stmt: ir.Stmt) -> tuple[ir.Var, ...]:
    """The Vars that the statement itself gives a value to, where it stands."""
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
    return {s.buffer for s in walk_stmts(block) if isinstance(s, ir.Load)} | {r.buffer for e in expressions(block) for r in reads(e)}


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


def map_expressions(block: ir.Block, visit: Rewrite) -> ir.Block:
    """The block with `visit` applied to every outermost expression."""
    return tuple(map_statement(stmt, visit, lambda inner: map_expressions(inner, visit)) for stmt in block)


def map_statement(stmt: ir.Stmt, visit: Rewrite, block: Callable[[ir.Block], ir.Block]) -> ir.Stmt:
    """The statement with `visit` applied to its own outermost expressions and `block` to its blocks."""
    stmt = visit_operands(stmt, visit)
    match stmt:
        case ir.If():
            merges = tuple(replace(m, then=visit(m.then), otherwise=visit(m.otherwise)) for m in stmt.merges)
            return replace(stmt, then=block(stmt.then), otherwise=block(stmt.otherwise), merges=merges)
        case ir.For():
            return replace(stmt, body=block(stmt.body), carried=_nexts(stmt.carried, visit))
        case ir.While():
            header, body = block(stmt.header), block(stmt.body)
            return replace(stmt, header=header, condition=visit(stmt.condition), body=body, carried=_nexts(stmt.carried, visit))
    return stmt


def _nexts(carried: tuple[ir.Carried, ...], visit: Rewrite) -> tuple[ir.Carried, ...]:
    return tuple(replace(c, next=visit(c.next)) for c in carried)


def single_values(kernel: ir.Kernel) -> dict[ir.Var, ir.Expr]:
    """What the variables that get one value only are in terms of others, where that is short."""
    assigned = assigned_vars(kernel.body)
    return expanded(s for s in walk_stmts(kernel.body) if isinstance(s, ir.Let) and s.var not in assigned)
