"""Reads and rebuilds core IR for printing: memory reads as expressions, what a statement evaluates, defines and writes.

`Read` is the one expression that exists only here: a load printed at the place of its use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Block,
    Buffer,
    Call,
    Carried,
    Expr,
    For,
    If,
    Let,
    Load,
    Merge,
    Pop,
    Shuffle,
    Stmt,
    Store,
    Take,
    Var,
    While,
    variables,
    walk,
)
from ..ir.rewrite import Rewrite, is_short, map_stmt_exprs, substitute, walk_stmts
from ..ir.types import value_type


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


def expanded(lets: Iterable[Let]) -> dict[Var, Expr]:
    """What variables are in terms of others, as long as that is short."""
    table: dict[Var, Expr] = {}
    for let in lets:
        value = substitute(let.value, table)
        if is_short(value):
            table[let.var] = value
    return table


def visit_operands(stmt: Stmt, visit: Rewrite) -> Stmt:
    """The statement with `visit` applied to the expressions that it evaluates once, where it stands: not those in or behind its blocks."""
    match stmt:
        case If(condition=a):
            return replace(stmt, condition=visit(a))
        case For():
            start, stop, step = visit(stmt.start), visit(stmt.stop), visit(stmt.step)
            return replace(stmt, start=start, stop=stop, step=step, carried=_visit_inits(stmt.carried, visit))
        case While():
            return replace(stmt, carried=_visit_inits(stmt.carried, visit))
    return map_stmt_exprs(stmt, visit)


def _visit_inits(carried: tuple[Carried, ...], visit: Rewrite) -> tuple[Carried, ...]:
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


def expressions(block: Block) -> Iterator[Expr]:
    """All outermost expressions of the block and of its nested blocks."""
    for stmt in walk_stmts(block):
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


def loaded(block: Block) -> set[Buffer]:
    """What is read in a block."""
    return {s.buffer for s in walk_stmts(block) if isinstance(s, Load)} | {r.buffer for e in expressions(block) for r in reads(e)}


def merge_vars(merges: tuple[Merge, ...]) -> set[Var]:
    return {m.var for m in merges}
