"""What lowering one kernel carries along: the tables of handlers, the declarations seen so far, and the helpers already lowered.

Each kind of clang node has at most one handler, in a table; a kind without one is refused. The tables are put together in `parse.py`, so
the modules of expressions, calls and statements need not know one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from clang.cindex import Cursor, CursorKind

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.surface import Declaration, Declare, Expr, Stmt, chosen_place, is_lvalue
from ...ir.types import Scalar, Type
from ...source import Span
from .early_copies import may_be_early
from .fence import kind_message
from .translation_unit import Places
from .types import lower_type

ExpressionHandler: TypeAlias = "Callable[[Context, Cursor], Expr]"
StatementHandler: TypeAlias = "Callable[[Context, Cursor], tuple[Stmt, ...]]"


@dataclass
class Context:
    """The state of lowering one kernel with its helpers."""

    places: Places
    expressions: Mapping[CursorKind, ExpressionHandler]
    statements: Mapping[CursorKind, StatementHandler]
    lower_function: Callable[[Context, Cursor, Type | None], surface.Function]
    check: Callable[[Cursor], None]
    declarations: dict[Cursor, Declaration] = field(default_factory=dict)
    helpers: dict[tuple[Cursor, Type | None, tuple[Cursor, ...]], surface.Function] = field(
        default_factory=dict
    )  # of a member function one a type of object, of one that is passed functions one for these
    functions: dict[Cursor, Cursor] = field(default_factory=dict)  # what pointers to functions point to, by the variable
    active: list[Cursor] = field(
        default_factory=list
    )  # the functions being lowered, outermost first: one of them called again is a recursion
    globals: dict[Cursor, surface.Global] = field(default_factory=dict)  # variables of the module that the kernel reaches
    copies: dict[Cursor, dict[Cursor, Declaration]] = field(default_factory=dict)  # per lambda made so far: what it captured by copy
    entries: dict[Cursor, tuple[Declaration, ...]] = field(default_factory=dict)  # of arrays of pointers that are filled later
    counters: dict[Cursor, int] = field(default_factory=dict)  # of loops whose iterations are written out
    cuts: set[Cursor] = field(default_factory=set)  # the casts that cut shared memory into arrays of several types
    before: list[tuple[Cursor, Stmt]] = field(default_factory=list)  # variables that are copied before the statement that is being lowered
    receivers: list[Declaration | None] = field(default_factory=list)  # per active function: the object of a member function
    tables: list[list[Declare]] = field(default_factory=list)  # per active function: file-scope tables that it reads
    _uids: int = 0

    def span(self, cursor: Cursor) -> Span:
        """Where `cursor` is in the user's text."""
        return self.places.of(cursor)

    def refuse(self, cursor: Cursor, message: str | None = None) -> NoReturn:
        """Raises UnsupportedError at `cursor`."""
        raise UnsupportedError(message or kind_message(cursor), self.span(cursor))

    def type(self, cursor: Cursor) -> Type:
        """The type of an expression or declaration."""
        return lower_type(cursor.type, self.span(cursor))

    def expression(self, cursor: Cursor) -> Expr:
        """The tree of an expression."""
        handler = self.expressions.get(cursor.kind)
        return handler(self, cursor) if handler else self.refuse(cursor)

    def lvalue(self, cursor: Cursor) -> Expr:
        """The tree of an expression that stands for a place in memory."""
        value = chosen_place(self.expression(cursor))
        if not is_lvalue(value):
            self.refuse(cursor, "only a variable, an element or what a pointer points to can be changed or referred to here")
        return value

    def statement(self, cursor: Cursor) -> tuple[Stmt, ...]:
        """The statements for one statement; declarations stay in the scope that they are in."""
        handler = self.statements.get(cursor.kind)
        if handler is None and cursor.kind.is_expression():
            handler = self.statements[CursorKind.CALL_EXPR]
        if handler is None:
            self.refuse(cursor)
        return self.after_copies(cursor, handler)

    def after_copies(self, cursor: Cursor, handler: StatementHandler) -> tuple[Stmt, ...]:
        """The statements for one statement or declaration, after the copies that lambdas take which are made in it."""
        known = len(self.before)
        body = handler(self, cursor)
        copied = self.before[known:]
        del self.before[known:]
        for variable, _ in copied:
            if not may_be_early(cursor, variable):
                self.refuse(cursor, f"a lambda that is made here copies {variable.spelling}, which may change here; name the lambda before")
        return (*(copy for _, copy in copied), *body)

    def fresh(
        self,
        span: Span,
        name: str,
        type_: Type,
        *,
        reference: bool = False,
        const: bool = False,
        space: str = "local",
        cut: tuple[Scalar, ...] = (),
    ) -> Declaration:
        """A new declaration with an identity of its own."""
        self._uids += 1
        return Declaration(span, name, type_, self._uids, reference, space, const, cut)

    def declare(self, cursor: Cursor, declaration: Declaration) -> Declaration:
        """Records what `cursor` declares."""
        self.declarations[cursor] = declaration
        return declaration
