"""Shared memory: `__shared__` variables of a kernel or helper, and `extern __shared__` arrays, whose length a launch decides.

An array without a length gets DYNAMIC as its length; `lower.normalize` is told how many bytes there are.
"""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...ir.surface import DYNAMIC, Declaration, Declare
from ...ir.types import Array, Scalar, Type
from .clang_c import children, descendants, has_attribute, initializer
from .construction import is_undefined
from .context import Context
from .cuts import cut, is_use
from .types import is_const, is_reference, lower_type

_VOLATILE = (
    "volatile shared memory is not supported: the threads of a warp are no longer in step by themselves; leave volatile away and write "
    "__syncwarp() between the steps"
)


_CASTS = (CursorKind.CXX_REINTERPRET_CAST_EXPR, CursorKind.CSTYLE_CAST_EXPR)


def is_shared(cursor: Cursor) -> bool:
    """Whether a variable is declared `__shared__`."""
    return has_attribute(cursor, CursorKind.CUDASHARED_ATTR)


def declare_shared(ctx: Context, cursor: Cursor) -> Declare:
    """The declaration of a `__shared__` variable."""
    return Declare(ctx.span(cursor), _declaration(ctx, cursor), None)


def global_shared(ctx: Context, variable: Cursor) -> Declaration:
    """A `__shared__` variable at file scope, the same one for every function that uses it."""
    return ctx.declarations.get(variable) or _declaration(ctx, variable)


def _declaration(ctx: Context, cursor: Cursor) -> Declaration:
    kind = cursor.type.get_canonical()
    element = kind
    while element.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        element = element.element_type.get_canonical()
    if element.is_volatile_qualified() or kind.is_volatile_qualified():
        ctx.refuse(cursor, _VOLATILE)
    start = initializer(cursor)
    if (start is not None and not is_undefined(start)) or is_reference(cursor.type) or is_const(cursor.type):
        ctx.refuse(cursor, "shared memory cannot be const, a reference, or initialised")
    pieces: tuple[Scalar, ...] = ()
    if kind.kind == TypeKind.INCOMPLETEARRAY:
        pieces = cut(ctx, cursor, kind.element_type)
        element = kind.element_type if pieces else _meant(ctx, cursor, kind.element_type)
        type_: Type = Array(lower_type(element, ctx.span(cursor)), DYNAMIC)
    else:
        type_ = ctx.type(cursor)
    return ctx.declare(cursor, ctx.fresh(ctx.span(cursor), cursor.spelling, type_, space="shared", cut=pieces))


def _meant(ctx: Context, cursor: Cursor, element: ClangType) -> ClangType:
    """The element of an array that the function only uses as an array of another type (`T* s = reinterpret_cast<T*>(bytes)`, the way to
    dynamic shared memory in a template): that type. Of any other array its own."""
    if not ctx.active:
        return element
    uses, targets = 0, list[ClangType]()
    for node in descendants(ctx.active[-1]):
        uses += is_use(node, cursor)
        if node.kind in _CASTS and is_use(_operand(node), cursor):
            targets.append(node.type.get_canonical().get_pointee())
    return targets[0] if targets and len(targets) == uses and all(t == targets[0] for t in targets) else element


def _operand(cast: Cursor) -> Cursor:
    """What is cast, without parentheses and conversions."""
    inner = cast
    while inner.kind in (*_CASTS, CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR):
        parts = [child for child in children(inner) if child.kind.is_expression()]
        if len(parts) != 1:
            break
        (inner,) = parts
    return inner
