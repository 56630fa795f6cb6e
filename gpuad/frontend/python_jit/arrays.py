"""Arrays: indexing, and the attributes of an array.

In: an array parameter or shared memory with the indices given so far, and an index. Out: a `Value` for the element that all indices name,
an lvalue; an array with fewer axes left while some are missing. `attribute` gives `ndim` and `dtype` as constants, `shape`, `strides`
(bytes) and `size` as int64 numbers that the kernel takes after the user's arguments.

An offset is computed in 32 bits, unless the array is `wide` or an index has 64. Raises CompileError for too many indices or one that is no
integer, UnsupportedError for a negative constant index, which CuPy does not count from the end."""

from __future__ import annotations

import ast

from ...errors import CompileError
from ...ir.surface import Binary, Cast, Decay, Expr, Index, Name, PointerAdd
from ...ir.types import I32, I64, Pointer, Scalar
from ...source import Span
from ..cuda.types import constant
from .context import Context, layout_type
from .typing_rules import materialised, type_of
from .values import Any_, ArrayValue, Items, SharedValue, Static, Value


def indexed(ctx: Context, array: ArrayValue | SharedValue, index: Any_, node: ast.AST) -> ArrayValue | Value:
    """`a[i]`, `a[i, j]`: an element, or the array that is left."""
    span = ctx.span(node)
    given = index.items if isinstance(index, Items) else (index,)
    if isinstance(array, SharedValue):
        if len(given) != 1:
            ctx.mistake(node, f"{len(given)} indices for an array of 1 axes")
        pointer = Decay(span, Pointer(array.type, False), Name(span, array.declaration.type, array.declaration))
        return Value(Index(span, array.type, pointer, _index(ctx, given[0], node).expr))
    if len(given) > array.ndim:
        ctx.mistake(node, f"{len(given)} indices for an array of {array.ndim} axes" if array.ndim else "this array has no axes left")
    indices = tuple(_index(ctx, i, node) for i in given)
    array = ArrayValue(array.name, array.pointer, array.type, (*array.indices, *indices))
    return array if array.ndim else Value(element(ctx, array, span))


def _index(ctx: Context, index: Any_, node: ast.AST) -> Value:
    span = ctx.span(node)
    type_ = type_of(index, span)
    if not type_.is_integer:
        ctx.mistake(node, f"an index is an integer, not a {type_}")
    if isinstance(index, Static) and index.value < 0:
        ctx.refuse(node, f"a negative index ({index.value}) does not count from the end in a kernel; write a.shape[0] - {-index.value}")
    return index if isinstance(index, Value) else materialised(index, span)


def element(ctx: Context, array: ArrayValue, span: Span) -> Expr:
    """The element that all indices name, an lvalue."""
    pointer: Expr = Name(span, array.pointer.type, array.pointer)
    kind = array.pointer.type
    assert isinstance(kind, Pointer)
    if array.type.moved:
        pointer = PointerAdd(span, kind, pointer, ctx.layout_number(array, "o", span))
    return Index(span, kind.element, pointer, _offset(ctx, array, span))


def _offset(ctx: Context, array: ArrayValue, span: Span) -> Expr:
    if not array.indices:
        return constant(span, I32, 0)
    if array.type.contiguous and len(array.indices) == 1:
        return array.indices[0].expr
    type_ = I64 if array.type.wide or any(i.type.bits == 64 for i in array.indices) else I32
    counts = [_cast(i.expr, type_, span) for i in array.indices]
    if not array.type.contiguous:
        terms = [_product(count, _number(ctx, array, f"s{k}", type_, span), span) for k, count in enumerate(counts)]
        return _sum(terms, span)
    offset = counts[0]
    for k, count in enumerate(counts[1:], 1):
        offset = _sum([_product(offset, _number(ctx, array, f"n{k}", type_, span), span), count], span)
    return offset


def _number(ctx: Context, array: ArrayValue, what: str, type_: Scalar, span: Span) -> Expr:
    return _cast(ctx.layout_number(array, what, span), type_, span)


def _cast(expr: Expr, type_: Scalar, span: Span) -> Expr:
    return expr if expr.type == type_ else Cast(span, type_, expr, implicit=False)


def _product(left: Expr, right: Expr, span: Span) -> Expr:
    return Binary(span, left.type, "*", left, right)


def _sum(terms: list[Expr], span: Span) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = Binary(span, total.type, "+", total, term)
    return total


def attribute(ctx: Context, array: ArrayValue, node: ast.Attribute) -> Any_:
    """`a.shape`, `a.strides` (bytes), `a.size`, `a.ndim`, `a.dtype`."""
    span, taken, axes = ctx.span(node), len(array.indices), range(len(array.indices), array.type.ndim)

    def number(what: str) -> Value:
        return Value(_cast(ctx.layout_number(array, what, span), I64, span))

    if node.attr == "ndim":
        return Static(array.ndim)
    if node.attr == "dtype":
        return Static(array.type.dtype)
    if node.attr == "shape":
        return Items(tuple(number(f"n{k}") for k in axes))
    if node.attr == "strides":
        size = constant(span, I64, array.type.dtype.itemsize)
        return Items(tuple(Value(_product(number(f"s{k}").expr, size, span)) for k in axes))
    if node.attr == "size" and not taken:
        return number("size")
    raise CompileError(f"an array has no {node.attr!r} in a kernel; it has shape, strides, size, ndim and dtype", span)


__all__ = ["attribute", "element", "indexed", "layout_type"]
