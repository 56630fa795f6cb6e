"""Parameters that a kernel compares with null: `bias ? bias[c] : 0`, `if (mask != nullptr)`.

Whether there is an array is the launch's to say, and one adjoint cannot serve both answers. gpuad's answer is yes: the comparison becomes a
constant, and a launch without an array there is refused (`arguments.bind`). That holds for a parameter that is only ever moved along its
array; one that may be made to point elsewhere, to nothing for instance, is not among these.
"""

from __future__ import annotations

from collections.abc import Iterator

from .surface import (
    AddressOf,
    Assign,
    Binary,
    Cast,
    Comma,
    Conditional,
    Constant,
    Declaration,
    Declare,
    Expr,
    Function,
    HelperCall,
    Name,
    Node,
    PointerAdd,
    walk,
)
from .types import Pointer


def given(kernel: Function) -> frozenset[Declaration]:
    """The parameters that are compared with null and never point anywhere but into their array."""
    nodes = list(walk(kernel.body))
    asked = {d for node in nodes if (d := compared(node)) is not None and d in kernel.parameters}
    return frozenset(asked - {d for node in nodes for d in _redirected(node)}) if asked else frozenset()


def compared(node: Node) -> Declaration | None:
    """The variable that a comparison with null asks for."""
    if not isinstance(node, Binary) or node.op not in ("==", "!="):
        return None
    left, right = _plain(node.left), _plain(node.right)
    if _is_null(left):
        left, right = right, left
    return left.declaration if isinstance(left, Name) and _is_null(right) else None


def _is_null(e: Expr) -> bool:
    return isinstance(e, Constant) and isinstance(e.type, Pointer)


def _redirected(node: Node) -> Iterator[Declaration]:
    """The variables that a node gives another value than one along their array, or lets others do it."""
    if isinstance(node, Assign) and not _moved(node):
        yield from _named(node.target)
    if isinstance(node, AddressOf):
        yield from _named(node.lvalue)
    if isinstance(node, Declare) and node.declaration.reference and isinstance(node.init, Expr):
        yield from _named(node.init)
    if isinstance(node, HelperCall):
        for parameter, argument in zip(node.function.parameters, node.arguments, strict=True):
            if parameter.reference:
                yield from _named(argument)


def _moved(node: Assign) -> bool:
    """`p += n`, `p = p + n`."""
    value = _plain(node.value)
    base = _plain(value.pointer) if isinstance(value, PointerAdd) else None
    return node.op in ("+", "-") or (isinstance(base, Name) and {base.declaration} == set(_named(node.target)))


def _named(e: Expr) -> Iterator[Declaration]:
    """The variables that an lvalue may be."""
    match _plain(e):
        case Name(declaration=declaration):
            yield declaration
        case Conditional(then=then, otherwise=otherwise):
            yield from _named(then)
            yield from _named(otherwise)
        case Comma(second=second):
            yield from _named(second)


def _plain(e: Expr) -> Expr:
    while isinstance(e, Cast) and isinstance(e.type, Pointer):
        e = e.operand
    return e
