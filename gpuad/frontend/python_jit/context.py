"""What lowering one function carries along: names, declarations, the layouts of its arrays.

`Program` belongs to a kernel with its device functions: helpers lowered so far, and the numbers that the kernel takes after the user's
arguments (lengths, strides, offsets of arrays). `Context` belongs to one function: its names, the declarations hoisted to its beginning,
its result type. A name is looked up as Python does: variables, then the closure, globals and builtins, as they are at lowering.

Guarantees a declaration with an identity of its own for each variable. `refuse` raises UnsupportedError and `mistake` CompileError, with
the place of a node."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from ...errors import CompileError, UnsupportedError
from ...ir.surface import Declaration, Declare, Expr, Function, Name
from ...ir.types import I32, I64, Pointer, Scalar, Type
from ...source import Span
from .names import builtin_of
from .signature import ArrayType, number_of
from .source import Source
from .values import Any_, ArrayValue, Number, Static, Value

Key: TypeAlias = "tuple[Any, ...]"


@dataclass
class Program:
    """What a kernel and its device functions share: the device functions lowered already (None while that is going on), helpers that stand
    for Python's own operations, and the numbers that the kernel takes beside its arguments."""

    lower_helper: Callable[[Program, Any, tuple[ArrayType | Number, ...], Span], Function]
    helpers: dict[Key, Function | None] = field(default_factory=dict)
    numbers: dict[str, Declaration] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    uids: int = 0

    def declare(self, span: Span, name: str, type_: Type, const: bool = False) -> Declaration:
        """A new declaration with an identity of its own."""
        self.uids += 1
        return Declaration(span, name, type_, self.uids, const=const)

    def number(self, name: str, type_: Scalar, span: Span) -> Declaration:
        """A number that the kernel takes beside its arguments."""
        if name not in self.numbers:
            self.numbers[name] = self.declare(span, f"{name}_" if name in self.taken else name, type_, const=True)
        return self.numbers[name]


@dataclass
class Context:
    """One function. `hoisted`: declarations that go to its beginning. `layout`: of a device function the numbers of its arrays, which are
    parameters of its own; None in a kernel. `uses`: how often each name occurs."""

    program: Program
    source: Source
    function: Any
    names: dict[str, Any_ | Declaration]
    layout: dict[str, Declaration] | None
    hoisted: list[Declare] = field(default_factory=list)
    result: Number | None = None

    def __post_init__(self) -> None:
        self.uses = occurrences(self.source.tree.body)

    def span(self, node: ast.AST) -> Span:
        """Where a node is."""
        return self.source.span(node)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raises UnsupportedError at a node."""
        raise UnsupportedError(message, self.span(node))

    def mistake(self, node: ast.AST, message: str) -> NoReturn:
        """Raises CompileError at a node, for what CuPy rejects too."""
        raise CompileError(message, self.span(node))

    def look_up(self, node: ast.Name) -> Any_:
        """What a name stands for: a variable, else what it is outside of the function."""
        found = self.names.get(node.id)
        if isinstance(found, Declaration):
            return Value(Name(self.span(node), found.type, found))
        return found if found is not None else Static(self._outside(node))

    def _outside(self, node: ast.Name) -> Any:
        code = self.function.__code__
        if node.id in code.co_freevars:
            cell = self.function.__closure__[code.co_freevars.index(node.id)]
            value = cell.cell_contents
        elif node.id in self.function.__globals__:
            value = self.function.__globals__[node.id]
        elif hasattr(builtins, node.id):
            value = getattr(builtins, node.id)
        else:
            self.mistake(node, f"the name {node.id!r} has no value here")
        return builtin_of(value) or value

    def layout_number(self, array: ArrayValue, what: str, span: Span) -> Expr:
        """A number of an array's layout: `n0` a length, `s0` a stride in elements, `o` the offset of the first element, `size`."""
        name = f"{array.name}_{what}"
        found = self.layout[name] if self.layout is not None else self.program.number(name, layout_type(array.type), span)
        return Name(span, found.type, found)


def layout_type(array: ArrayType) -> Scalar:
    """The type in which an array's elements are counted."""
    return I64 if array.wide else I32


def layout_names(name: str, array: ArrayType) -> list[str]:
    """All numbers that say how an array lies."""
    axes = range(array.ndim)
    return [f"{name}_{what}" for what in (*(f"n{k}" for k in axes), *(f"s{k}" for k in axes), "o", "size")]


def pointer_type(array: ArrayType, span: Span) -> Pointer:
    """The type of the pointer to an array. UnsupportedError for elements that are no numbers."""
    element = number_of(array.dtype)
    if element is None:
        raise UnsupportedError(f"arrays of {array.dtype} in jit functions come in a later release", span)
    return Pointer(element, False)


def occurrences(body: list[ast.stmt]) -> Counter[str]:
    """How often each name occurs in statements."""
    return Counter(n.id for stmt in body for n in ast.walk(stmt) if isinstance(n, ast.Name))
