"""`switch` as a chain of ifs.

What a label leads to are all statements from there to the first that surely leaves, through the labels that follow: a fall through repeats
them. `if (c) break;` puts what follows into its other side. A `break` that is nested otherwise needs a node of its own (`Breakable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from clang.cindex import Cursor, CursorKind

from ...ir.surface import Binary, Block, Break, Breakable, Cast, Continue, Declare, Expr, If, Logical, Name, Return, Stmt
from ...ir.types import BOOL, Scalar
from .clang_c import children, evaluate
from .context import Context
from .lower_statements import has_initialiser, header
from .types import constant

_LABELS = (CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT)


@dataclass
class _Section:
    """The labels in one place, and the statements from there to the next label."""

    labels: list[Expr] = field(default_factory=list)
    is_default: bool = False
    body: list[Stmt] = field(default_factory=list)


def switch(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`switch (value) { case 1: ... default: ... }`."""
    if has_initialiser(cursor, "switch"):  # the library does not show it
        ctx.refuse(cursor, "an initialiser in the header of a switch is not supported; write it before")
    before, (choice, cases) = header(ctx, cursor, "switch")
    span, value = ctx.span(cursor), ctx.expression(choice)
    if not isinstance(value.type, Scalar):
        ctx.refuse(cursor)
    name, named = _named(ctx, value)
    declared, sections = _sections(ctx, name, cases)
    chain = _chain(sections)
    body = Block(span, (*before, *declared, *named, *chain))
    return (Breakable(span, body) if any(_breaks(stmt) for stmt in chain) else body,)


def _named(ctx: Context, value: Expr) -> tuple[Expr, tuple[Stmt, ...]]:
    """The value as something that may be written down once a label. A variable is itself: no statement runs between the comparisons."""
    inner = value
    while isinstance(inner, Cast):
        inner = inner.operand
    if isinstance(inner, Name) and not inner.declaration.reference:
        return value, ()
    choice = ctx.fresh(value.span, "choice", value.type, const=True)
    return Name(value.span, value.type, choice), (Declare(value.span, choice, value),)


# --- reading -------------------------------------------------------------------------------------------------------------------------


def _sections(ctx: Context, value: Expr, body: Cursor) -> tuple[list[Stmt], list[_Section]]:
    """The sections in order, and before them the variables that are visible in all of them."""
    declared: list[Stmt] = []
    sections: list[_Section] = []
    for statement in children(body) if body.kind == CursorKind.COMPOUND_STMT else [body]:
        if statement.kind in _LABELS:
            sections.append(_Section())
            statement = _labelled(ctx, value, statement, sections[-1])
        for lowered in ctx.statement(statement):
            if isinstance(lowered, Declare) and lowered.init is None:
                declared.append(lowered)
            elif sections:
                sections[-1].body.append(lowered)
            else:
                ctx.refuse(statement, "a statement before the first case is never run")
    return declared, sections


def _labelled(ctx: Context, value: Expr, cursor: Cursor, section: _Section) -> Cursor:
    """Takes the labels off a statement."""
    while cursor.kind in _LABELS:
        *labels, inner = children(cursor)
        if len(labels) > 1:
            ctx.refuse(cursor, "ranges of cases are not supported")
        section.is_default |= not labels
        section.labels += [_label(ctx, value, label) for label in labels]
        cursor = inner
    return cursor


def _label(ctx: Context, value: Expr, cursor: Cursor) -> Expr:
    """`value == label`."""
    number, span = evaluate(cursor), ctx.span(cursor)
    if number is None or not isinstance(value.type, Scalar):
        ctx.refuse(cursor, "the value of this case is not known to the compiler")
    return Binary(span, BOOL, "==", value, constant(span, value.type, number))


# --- the chain -----------------------------------------------------------------------------------------------------------------------


def _chain(sections: Sequence[_Section]) -> tuple[Stmt, ...]:
    """Ifs, one a section; what `default` leads to is the last else, wherever it stands."""
    chain: tuple[Stmt, ...] = ()
    for number, section in enumerate(sections):
        if section.is_default:
            chain = _from(sections[number:])
    for number, section in reversed(list(enumerate(sections))):
        if section.labels and not section.is_default:
            condition = _any(section.labels)
            otherwise = Block(condition.span, chain) if len(chain) != 1 else chain[0]
            chain = (If(condition.span, condition, Block(condition.span, _from(sections[number:])), otherwise if chain else None),)
    return chain


def _any(conditions: Sequence[Expr]) -> Expr:
    first, *others = conditions
    for other in others:
        first = Logical(other.span, BOOL, "||", first, other)
    return first


def _from(sections: Sequence[_Section]) -> tuple[Stmt, ...]:
    """What happens from the start of the first section on."""
    return _until_left(list(_flat(stmt for section in sections for stmt in section.body)))


def _until_left(stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements to the first that surely leaves; a `break` there is what the end does anyway."""
    out: list[Stmt] = []
    for number, stmt in enumerate(stmts):
        if isinstance(stmt, Break):
            return tuple(out)
        if isinstance(stmt, If) and _breaks(stmt) and (_leaves(stmt.then) or _leaves(stmt.otherwise)):
            return (*out, _forked(stmt, stmts[number + 1 :]))
        out.append(stmt)
        if isinstance(stmt, (Return, Continue)):
            return tuple(out)
    return tuple(out)


def _forked(stmt: If, rest: Sequence[Stmt]) -> If:
    """The branch with what follows it at the end of the side that goes on; the other side is over before."""
    then, otherwise = (_until_left([*_flat([side] if side else []), *rest]) for side in (stmt.then, stmt.otherwise))
    return replace(stmt, then=Block(stmt.span, then), otherwise=Block(stmt.span, otherwise))


def _flat(stmts: Iterator[Stmt] | Sequence[Stmt]) -> Iterator[Stmt]:
    for stmt in stmts:
        if isinstance(stmt, Block):
            yield from _flat(stmt.body)
        else:
            yield stmt


def _leaves(stmt: Stmt | None) -> bool:
    """True if the statement's end is surely not reached."""
    return stmt is not None and any(isinstance(inner, (Break, Return, Continue)) for inner in _flat([stmt]))


def _breaks(stmt: Stmt | None) -> bool:
    """True if a `break` of this very switch is inside."""
    match stmt:
        case Break():
            return True
        case Block(body=body):
            return any(_breaks(inner) for inner in body)
        case If(then=then, otherwise=otherwise):
            return _breaks(then) or _breaks(otherwise)
    return False
