"""Whether what a lambda copies may be copied before the statement that makes it, as `y = apply([=] { return a; })` does with `a`.

It may where nothing in the statement comes before the lambda that could change the variable. An order that C++ leaves open may be any.
"""

from __future__ import annotations

from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind

from .clang_c import binary_operator, children

_HEADERS = (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.SWITCH_STMT)  # computed again, or among the cases
_IN_ORDER = ("&&", "||", ",")


def may_be_early(statement: Cursor, variable: Cursor) -> bool:
    """True if a variable is the same before the statement as where a lambda in it is made that copies the variable."""
    if statement.kind in _HEADERS:
        return False
    if statement.kind == CursorKind.IF_STMT:
        statement = children(statement)[0]
    return not _makes_late(statement) and not _is_changed(statement, variable)


def _makes_late(cursor: Cursor) -> bool:
    """True if a lambda is made after another part of the expression, which may change anything."""
    operands = children(cursor)
    in_order = cursor.kind == CursorKind.CONDITIONAL_OPERATOR or (
        cursor.kind == CursorKind.BINARY_OPERATOR and binary_operator(cursor) in _IN_ORDER
    )
    if in_order and any(part.kind == CursorKind.LAMBDA_EXPR for operand in operands[1:] for part in (operand, *_outside(operand))):
        return True
    return any(_makes_late(child) for child in operands if child.kind != CursorKind.LAMBDA_EXPR)


def _is_changed(statement: Cursor, variable: Cursor) -> bool:
    """True if a statement does anything with the variable but reading it. That a value is assigned to it at the very end does not count."""
    if statement.kind == CursorKind.BINARY_OPERATOR and binary_operator(statement) == "=":
        target, value = children(statement)
        return _touches(value, variable) or (not _names(target, variable) and _touches(target, variable))
    return _touches(statement, variable)


def _touches(cursor: Cursor, variable: Cursor) -> bool:
    return any(
        child == variable
        or (_names(child, variable) and cursor.kind != CursorKind.UNEXPOSED_EXPR)
        or (child.kind != CursorKind.LAMBDA_EXPR and _touches(child, variable))
        for child in children(cursor)
    )


def _names(expression: Cursor, variable: Cursor) -> bool:
    return expression.kind == CursorKind.DECL_REF_EXPR and expression.referenced is not None and bool(expression.referenced == variable)


def _outside(cursor: Cursor) -> Iterator[Cursor]:
    """What is in a cursor, the lambdas themselves but not what is in them."""
    for child in children(cursor):
        yield child
        if child.kind != CursorKind.LAMBDA_EXPR:
            yield from _outside(child)
