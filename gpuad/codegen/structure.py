"""Reads and rebuilds core IR for printing: memory reads as expressions, what a statement evaluates, defines and writes.

`Read` is the one expression that exists only here: a load printed at the place of its use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Call,
    Carried,
    Cast,
    Expr,
    For,
    If,
    Let,
    Load,
    Merge,
    Pop,
    Push,
    Select,
    Shuffle,
    Stmt,
    Store,
    Take,
    Tell,
    Unary,
    Var,
    While,
    variables,
    walk,
)
from ..ir.rewrite import is_short
from ..ir.types import value_type

Visit: TypeAlias = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Read(Call):
    """`buffer[index]` as an expression; a Call, so that everything that walks expressions walks its index."""

    buffer: Buffer

    @property
    def index(self) -> Expr:
        return self.arguments[0]


def read(buffer: Buffer, index: Expr) -> Read:
    """The element `index` of `buffer` as an expression."""
    return Read("[]", (index,), value_type(buffer.element), buffer)


def rebuild(expr: Expr, visit: Visit) -> Expr:
    """The expression with `visit` applied to its direct subexpressions."""
    match expr:
        case Unary(operand=a) | Cast(operand=a):
            return replace(expr, operand=visit(a))
        case Binary(left=a, right=b):
            return replace(expr, left=visit(a), right=visit(b))
        case Select(condition=c, then=a, otherwise=b):
            return Select(visit(c), visit(a), visit(b))
        case Call(arguments=args):
            return replace(expr, arguments=tuple(visit(a) for a in args))
    return expr


def substitute(expr: Expr, table: dict[Var, Expr]) -> Expr:
    """The expression with the Vars of `table` replaced."""
    if isinstance(expr, Var):
        return table.get(expr, expr)
    return rebuild(expr, lambda e: substitute(e, table)) if table else expr


def expanded(lets: Iterable[Let]) -> dict[Var, Expr]:
    """What variables are in terms of others, as long as that is short."""
    table: dict[Var, Expr] = {}
    for let in lets:
        value = substitute(let.value, table)
        if is_short(value):
            table[let.var] = value
    return table


def visit_operands(stmt: Stmt, visit: Visit) -> Stmt:
    """The statement with `visit` applied to the expressions that it evaluates once, where it stands: not those in or behind its blocks."""
    match stmt:
        case Let(value=a) | Assign(value=a):
            return replace(stmt, value=visit(a))
        case Load(index=a) | Take(index=a):
            return replace(stmt, index=visit(a))
        case Store(index=a, value=b) | Accumulate(index=a, value=b):
            return replace(stmt, index=visit(a), value=visit(b))
        case Atomic(index=a, operands=values):
            return replace(stmt, index=visit(a), operands=tuple(visit(v) for v in values))
        case If(condition=a):
            return replace(stmt, condition=visit(a))
        case For():
            start, stop, step = visit(stmt.start), visit(stmt.stop), visit(stmt.step)
            return replace(stmt, start=start, stop=stop, step=step, carried=_visit_inits(stmt.carried, visit))
        case While():
            return replace(stmt, carried=_visit_inits(stmt.carried, visit))
        case Barrier(mask=a) if a is not None:
            return replace(stmt, mask=visit(a))
        case Shuffle():
            return replace(stmt, mask=visit(stmt.mask), value=visit(stmt.value), lane=visit(stmt.lane), width=visit(stmt.width))
        case Push(values=values) | Tell(values=values):
            return replace(stmt, values=tuple(visit(v) for v in values))
    return stmt


def _visit_inits(carried: tuple[Carried, ...], visit: Visit) -> tuple[Carried, ...]:
    return tuple(replace(c, init=visit(c.init)) for c in carried)


def operands(stmt: Stmt) -> list[Expr]:
    """The expressions that `visit_operands` visits."""
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    visit_operands(stmt, note)
    return found


def blocks(stmt: Stmt) -> list[tuple[Block, list[Expr]]]:
    """The nested blocks, each with the expressions evaluated at its end. A While is one block: its header, then its body."""
    match stmt:
        case If(merges=merges):
            return [(stmt.then, [m.then for m in merges]), (stmt.otherwise, [m.otherwise for m in merges])]
        case For(carried=carried):
            return [(stmt.body, [c.next for c in carried])]
        case While(carried=carried):
            return [(stmt.header + stmt.body, [stmt.condition, *(c.next for c in carried)])]
    return []


def statements(block: Block) -> Iterator[Stmt]:
    """All statements of the block and of its nested blocks, in textual order."""
    for stmt in block:
        yield stmt
        for inner, _ in blocks(stmt):
            yield from statements(inner)


def expressions(block: Block) -> Iterator[Expr]:
    """All outermost expressions of the block and of its nested blocks."""
    for stmt in statements(block):
        yield from operands(stmt)
        for _, tail in blocks(stmt):
            yield from tail


class Uses:
    """How often statements use each Var (as a value, not as a target). Counts are kept, by the identity of the statement."""

    def __init__(self) -> None:
        self._whole: dict[int, tuple[Stmt, Counter[Var]]] = {}
        self._inside: dict[int, tuple[Stmt, Counter[Var]]] = {}

    def of(self, stmt: Stmt) -> Counter[Var]:
        """With all that is nested in it."""
        if id(stmt) not in self._whole:
            own = _counted(operands(stmt))
            self._whole[id(stmt)] = stmt, own + self.inside(stmt) if blocks(stmt) else own
        return self._whole[id(stmt)][1]

    def inside(self, stmt: Stmt) -> Counter[Var]:
        """In its blocks and at their ends only."""
        if id(stmt) not in self._inside:
            total: Counter[Var] = Counter()
            for block, tail in blocks(stmt):
                total.update(_counted(tail))
                for inner in block:
                    total.update(self.of(inner))
            self._inside[id(stmt)] = stmt, total
        return self._inside[id(stmt)][1]


def _counted(exprs: Iterable[Expr]) -> Counter[Var]:
    return Counter(v for e in exprs for v in variables(e))


def defined(stmt: Stmt) -> tuple[Var, ...]:
    """The Vars that the statement itself gives a value to, where it stands."""
    match stmt:
        case Let(var=v) | Load(var=v) | Take(var=v) | Shuffle(var=v) | Assign(var=v):
            return (v,)
        case Atomic(var=v) if v is not None:
            return (v,)
        case Pop(vars=vs):
            return vs
    return ()


def written(stmt: Stmt) -> Buffer | None:
    """The buffer that the statement itself writes."""
    return stmt.buffer if isinstance(stmt, Store | Accumulate | Take | Atomic | Alloc) else None


def reads(expr: Expr) -> Iterator[Read]:
    """The memory reads in the expression."""
    return (e for e in walk(expr) if isinstance(e, Read))


def merge_vars(merges: tuple[Merge, ...]) -> set[Var]:
    return {m.var for m in merges}
