"""Expressions, by the kind of their node. A kind without a handler is refused.

In: the context of a function and an expression of Python's `ast`. Out: what it is (`values`): a constant known at lowering, a number of the
kernel as a typed node of the surface tree, an array, a tuple, a range. Constants are folded by Python itself, and of a conditional with a
constant condition only the side that is taken is lowered.

Types follow CuPy's rules (`typing_rules`). Raises UnsupportedError for a kind that is refused (`fence`), CompileError for what CuPy rejects
too, both at the node's place in the Python file."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ...ir.surface import Conditional
from ...ir.types import I32
from . import arrays, calls, complexes, fence, operators
from .context import Context
from .names import INDICES, Builtin, attribute, builtin_of
from .signature import scalar_of_number
from .typing_rules import as_type, common, described, is_narrow, promoted, type_of
from .typing_rules import truth as as_condition
from .values import Any_, ArrayValue, Items, SharedValue, Static, Value
from .warps import launch_index

_INDEX_KEYS = {"x", "y", "z"}


def expression(ctx: Context, node: ast.expr) -> Any_:
    """What an expression is."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        ctx.refuse(node, fence.message(node))
    return handler(ctx, node)


def _constant(ctx: Context, node: ast.Constant) -> Any_:
    return Static(node.value)


def _name(ctx: Context, node: ast.Name) -> Any_:
    found = ctx.look_up(node)
    if isinstance(found, Static) and found.value == Builtin("warpsize"):
        return Static(32)
    return found


def _attribute(ctx: Context, node: ast.Attribute) -> Any_:
    value = expression(ctx, node.value)
    if isinstance(value, ArrayValue):
        return arrays.attribute(ctx, value, node)
    if isinstance(value, Value) and complexes.is_complex(value) and node.attr in ("real", "imag"):
        return complexes.part(value, node.attr, ctx.span(node))
    if not isinstance(value, Static):
        ctx.mistake(node, f"{described(value)} has no attribute {node.attr!r} in a kernel")
    if isinstance(value.value, Builtin):
        if value.value.name in INDICES and node.attr in _INDEX_KEYS:
            return launch_index(value.value.name, node.attr, ctx.span(node))
        ctx.mistake(node, f"jit.{value.value.name} has no attribute {node.attr!r}")
    try:
        found = attribute(value.value, node.attr)
    except AttributeError as error:
        ctx.mistake(node, str(error))
    found = builtin_of(found) or found
    return Static(32) if found == Builtin("warpsize") else Static(found)


def _subscript(ctx: Context, node: ast.Subscript) -> Any_:
    value = expression(ctx, node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(isinstance(part, ast.Slice) for part in parts):
        ctx.refuse(node, fence.EXPRESSIONS[ast.Slice])
    index = expression(ctx, node.slice)
    if isinstance(value, ArrayValue | SharedValue):
        return arrays.indexed(ctx, value, index, node)
    if not isinstance(value, Items | Static) or not isinstance(index, Static):
        ctx.mistake(node, f"{described(value)} cannot be indexed by {described(index)}")
    return _item(ctx, value, index, node) if isinstance(value, Items) else _known_item(ctx, value, index, node)


def _known_item(ctx: Context, value: Static, index: Static, node: ast.Subscript) -> Any_:
    try:
        return Static(value.value[index.value])
    except Exception as error:  # whatever Python raises for these constants is the user's mistake at this place
        ctx.mistake(node, f"{type(error).__name__}: {error}")


def _item(ctx: Context, value: Items, index: Static, node: ast.Subscript) -> Any_:
    if not isinstance(index.value, int) or not -len(value.items) <= index.value < len(value.items):
        ctx.mistake(node, f"a tuple of {len(value.items)} has no item {index.value!r}")
    return value.items[index.value]


def _tuple(ctx: Context, node: ast.Tuple) -> Any_:
    items = [expression(ctx, e) for e in node.elts]
    if all(isinstance(i, Static) for i in items):
        statics = tuple(i.value for i in items if isinstance(i, Static))
        if any(scalar_of_number(v) is None for v in statics):
            return Static(statics)
    numbers = tuple(i for i in items if isinstance(i, Static | Value))
    if len(numbers) != len(items):
        ctx.refuse(node, "a tuple of arrays is not supported")
    return Items(numbers)


def _binary(ctx: Context, node: ast.BinOp) -> Any_:
    return operators.binary(ctx.program, node.op, expression(ctx, node.left), expression(ctx, node.right), ctx.span(node))


def _unary(ctx: Context, node: ast.UnaryOp) -> Any_:
    return operators.unary(node.op, expression(ctx, node.operand), ctx.span(node))


def _logical(ctx: Context, node: ast.BoolOp) -> Any_:
    found = expression(ctx, node.values[0])
    for value in node.values[1:]:
        found = operators.binary(ctx.program, node.op, found, expression(ctx, value), ctx.span(node))
    return found


def _compare(ctx: Context, node: ast.Compare) -> Any_:
    if len(node.ops) != 1:
        ctx.refuse(node, fence.CHAINED)
    left, right = expression(ctx, node.left), expression(ctx, node.comparators[0])
    return operators.binary(ctx.program, node.ops[0], left, right, ctx.span(node))


def _conditional(ctx: Context, node: ast.IfExp) -> Any_:
    """`x if c else y`; a constant takes the type of the other side."""
    condition = expression(ctx, node.test)
    if isinstance(condition, Static):
        return expression(ctx, node.body if condition.value else node.orelse)
    then, otherwise = expression(ctx, node.body), expression(ctx, node.orelse)
    span = ctx.span(node)
    if complexes.is_complex(then, otherwise):
        return _complex_conditional(ctx, condition, then, otherwise, node)
    types = type_of(then, span), type_of(otherwise, span)
    if isinstance(then, Static) != isinstance(otherwise, Static):
        type_ = types[1] if isinstance(then, Static) else types[0]
        if types[isinstance(otherwise, Static)].is_float and not type_.is_float:
            ctx.mistake(node, f"the sides of this are {types[0]} and {types[1]}; convert one")
    elif types[0] != types[1]:
        if not (isinstance(then, Static) and isinstance(otherwise, Static)):
            ctx.mistake(node, f"the sides of this are {types[0]} and {types[1]}; convert one")
        type_ = common(*types)
    else:
        type_ = types[0]
    if is_narrow(type_):
        ints = promoted(then, type_, span), promoted(otherwise, type_, span)
        return Value(Conditional(span, I32, as_condition(condition, span), *ints), narrow=type_)
    sides = as_type(then, type_, span), as_type(otherwise, type_, span)
    return Value(Conditional(span, type_, as_condition(condition, span), *sides))


def _complex_conditional(ctx: Context, condition: Any_, then: Any_, otherwise: Any_, node: ast.IfExp) -> Value:
    span = ctx.span(node)
    kinds = {complexes.kind_of(side, span) for side in (then, otherwise) if not isinstance(side, Static)}
    if len(kinds) > 1:
        ctx.mistake(node, f"the sides of this are {' and '.join(sorted(map(str, kinds)))}; convert one")
    kind = complexes.common(*(kinds or {complexes.kind_of(side, span) for side in (then, otherwise)}))
    if kinds and kind not in kinds:
        ctx.mistake(node, f"the sides of this are {kind} and {next(iter(kinds))}; convert one")
    sides = (complexes.as_complex(side, kind, span) for side in (then, otherwise))
    return Value(Conditional(span, kind, as_condition(condition, span), *sides))


def _call(ctx: Context, node: ast.Call) -> Any_:
    callee = expression(ctx, node.func)
    starred = next((a for a in node.args if isinstance(a, ast.Starred)), None)
    if starred is not None:
        ctx.refuse(starred, fence.EXPRESSIONS[ast.Starred])
    double = next((k for k in node.keywords if k.arg is None), None)
    if double is not None:
        ctx.refuse(double.value, fence.EXPRESSIONS[ast.Starred])
    keywords = {str(k.arg): expression(ctx, k.value) for k in node.keywords}
    return calls.call(ctx, callee, tuple(expression(ctx, a) for a in node.args), keywords, node)


_HANDLERS: dict[type[ast.expr], Callable[..., Any_]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript, ast.Tuple: _tuple, ast.BinOp: _binary,
    ast.UnaryOp: _unary, ast.BoolOp: _logical, ast.Compare: _compare, ast.IfExp: _conditional, ast.Call: _call,
}  # fmt: skip
