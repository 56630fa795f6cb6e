"""Calls: of jit's own functions, of device functions, of functions of numbers.

In: what the callee and the arguments of a call are (`values`). Out: what the call is: a number, a tuple, a range, shared memory, or an
action. Builtins of `cupyx.jit` are dispatched by name; a device function is lowered for the types of this call, arrays passed as a pointer
with the numbers of their layout; functions of numbers go to `functions`; any other callable whose arguments are constants, but a function
of cupy, is evaluated by Python.

Raises CompileError at the call for wrong arguments, UnsupportedError for keywords, slices of arrays or shared memory passed to device
functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...ir.surface import DYNAMIC, AddressOf, AtomicCall, Binary, Expr, HelperCall, Name
from ...ir.types import F16, I32, I64, U32, Array, Pointer
from ...source import Span
from ..cuda.types import constant
from . import arrays, complexes, fence, functions, operators, warps
from .context import Context, layout_names
from .names import ATOMICS, SHUFFLES, Builtin, device_function
from .signature import ArrayType, number_of
from .typing_rules import described, rounded, stored, type_of
from .values import Any_, ArrayValue, Items, Number, Range, SharedValue, Static, Value
from .warps import launch_index

Keywords = Mapping[str, "Any_"]
_KEYWORDS = {"range": {"unroll"}, "syncwarp": {"mask"}, "shared_memory": {"alignment"}, **{name: {"width"} for name in SHUFFLES}}


def call(ctx: Context, callee: Any_, values: tuple[Any_, ...], keywords: Keywords, node: ast.Call) -> Any_:
    """A call."""
    if not isinstance(callee, Static):
        ctx.mistake(node, f"{described(callee)} cannot be called")
    function = callee.value
    if isinstance(function, Builtin):
        return builtin(ctx, function.name, values, keywords, node)
    if node.keywords:
        ctx.refuse(node.keywords[0].value, "keyword arguments are not supported here")
    if function is len:
        return _length(ctx, values, node)
    if function in (min, max) and len(values) > 1:
        return _extreme(ctx, function is max, values, node)
    if (inner := device_function(function)) is not None:
        return _device(ctx, inner, values, node)
    if functions.is_cast(function):
        return functions.cast(ctx, function, values, node)
    if all(isinstance(v, Static) for v in values) and callable(function) and not functions.is_of_cupy(function):
        return functions.known(ctx, function, values, node)
    if function is abs and len(values) == 1:
        return functions.absolute(ctx, values, ctx.span(node))
    return functions.function(ctx, function, values, node)


def builtin(ctx: Context, name: str, values: tuple[Any_, ...], keywords: Keywords, node: ast.Call) -> Any_:
    """A call of something of `cupyx.jit`."""
    unknown = [k for k in node.keywords if k.arg not in _KEYWORDS.get(name, set())]
    if unknown:
        ctx.mistake(unknown[0].value, f"jit.{name} takes no keyword {unknown[0].arg!r}")
    if name in warps.NAMES:
        return warps.call(ctx, name, values, keywords, node)
    if name == "shared_memory":
        return _shared(ctx, values, node)
    if name in ATOMICS:
        return _atomic(ctx, ATOMICS[name], values, node)
    if name in ("grid", "gridsize"):
        return _grid(ctx, name, values, node)
    if name != "range":
        ctx.mistake(node, f"jit.{name} cannot be called")
    return _range(ctx, values, node)


def _range(ctx: Context, values: tuple[Any_, ...], node: ast.Call) -> Range:
    if not 1 <= len(values) <= 3:
        ctx.mistake(node, f"range takes one to three numbers, got {len(values)}")
    numbers: list[Static | Value] = []
    for value in values:
        if not type_of(value, ctx.span(node)).is_integer or not isinstance(value, Static | Value):
            ctx.mistake(node, "range takes integers")
        numbers.append(value)
    if len(numbers) == 1:
        return Range(Static(0), numbers[0], Static(1))
    step = numbers[2] if len(numbers) == 3 else Static(1)
    if isinstance(step, Static) and step.value == 0:
        ctx.mistake(node, "range with a step of 0")
    return Range(numbers[0], numbers[1], step)


def _grid(ctx: Context, name: str, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    ndim = values[0].value if len(values) == 1 and isinstance(values[0], Static) else None
    if ndim not in (1, 2, 3):
        ctx.mistake(node, f"jit.{name} takes 1, 2 or 3, as a constant")
    span = ctx.span(node)

    def number(axis: str) -> Value:
        parts = [launch_index(n, axis, span).expr for n in ("threadIdx", "blockIdx", "blockDim", "gridDim")]
        if name == "gridsize":
            return Value(Binary(span, U32, "*", parts[2], parts[3]))
        return Value(Binary(span, U32, "+", parts[0], Binary(span, U32, "*", parts[1], parts[2])))

    return number("x") if ndim == 1 else Items(tuple(number(axis) for axis in "xyz"[:ndim]))


def _atomic(ctx: Context, op: str, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    """`jit.atomic_add(a, i, v)`; the value is the old content."""
    span, count = ctx.span(node), 4 if op == "cas" else 3
    if len(values) != count or not isinstance(values[0], ArrayValue | SharedValue):
        ctx.mistake(node, f"jit.atomic_{op} takes an array, an index and {'two numbers' if op == 'cas' else 'a number'}")
    target = arrays.indexed(ctx, values[0], values[1], node)
    if isinstance(target, ArrayValue):
        ctx.mistake(node, f"jit.atomic_{op} needs an index for each axis")
    if complexes.is_complex(target):
        ctx.mistake(node, f"jit.atomic_{op} is not for complex numbers; add to the parts as arrays of floats")
    operands = tuple(rounded(stored(v, target.type, "the element", span), span) for v in values[2:])
    return Value(AtomicCall(span, target.type, op, AddressOf(span, Pointer(target.type, False), target.expr), operands))


def _shared(ctx: Context, values: tuple[Any_, ...], node: ast.Call) -> SharedValue:
    """`jit.shared_memory(dtype, size)`, declared where the function begins; a size of None is decided by the launch."""
    known = [v.value for v in values if isinstance(v, Static)]
    if len(known) != 2 or len(values) != 2 or not (known[1] is None or (isinstance(known[1], int) and known[1] > 0)):
        ctx.mistake(node, "jit.shared_memory takes a dtype and a size, a constant or None")
    element = number_of(np.dtype(known[0]))
    if element is None:
        ctx.refuse(node, f"shared memory of {np.dtype(known[0])} comes in a later release")
    if element == F16:
        ctx.refuse(node, fence.SHARED_HALF)
    span = ctx.span(node)
    declaration = ctx.program.declare(span, "shared", Array(element, DYNAMIC if known[1] is None else known[1]))
    return SharedValue(replace(declaration, space="shared"), element)


def _length(ctx: Context, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    if len(values) == 1 and isinstance(values[0], Static):
        return functions.known(ctx, len, values, node)
    if len(values) != 1 or not isinstance(values[0], ArrayValue) or not values[0].ndim:
        ctx.mistake(node, "len takes an array with an axis")
    shape = arrays.attribute(ctx, values[0], ast.copy_location(ast.Attribute(node.func, "shape", ast.Load()), node))
    assert isinstance(shape, Items)
    return shape.items[0]


def _extreme(ctx: Context, greatest: bool, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    found = values[0]
    for value in values[1:]:
        found = operators.extreme(ctx.program, greatest, found, value, ctx.span(node))
    return found


def _device(ctx: Context, function: object, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    """A device function, for the types of this call; arrays come as pointer and layout."""
    span = ctx.span(node)
    types: list[ArrayType | Number] = []
    arguments: list[Expr] = []
    for value in values:
        if isinstance(value, SharedValue):
            ctx.refuse(node, fence.SHARED_ARGUMENT)
        if isinstance(value, ArrayValue):
            if value.indices:
                ctx.refuse(node, fence.SLICED)
            types.append(value.type)
            arguments.append(Name(span, value.pointer.type, value.pointer))
            arguments += [_layout(ctx, value, what, span) for what in (n.removeprefix("_") for n in layout_names("", value.type))]
        else:
            number = complexes.number(value, span)
            types.append(number.kind)
            arguments.append(number.expr)
    helper = ctx.program.lower_helper(ctx.program, function, tuple(types), span)
    return Value(HelperCall(span, helper.result, helper, tuple(arguments)))


def _layout(ctx: Context, value: ArrayValue, what: str, span: Span) -> Expr:
    if what == "o" and not value.type.moved:
        return constant(span, I64 if value.type.wide else I32, 0)
    return ctx.layout_number(value, what, span)
