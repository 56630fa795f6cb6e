"""Barriers, and what the threads of a warp do together.

In: a call of `jit.syncthreads`, `syncwarp`, `laneid` or a shuffle. Out: an `Action` with a barrier of the block or of the lanes in `mask`,
the thread's lane (its number in the block modulo 32, x fastest, uint32), or a shuffle of the value's own type. Launch indices are uint32.

Raises CompileError for arguments, for a mask of a shuffle that is not a constant of 32 bits, for a value of less than 32 bits, and for a
lane that is a float. Semantics: CUDA C++ Programming Guide, Warp Shuffle Functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...ir.surface import Barrier, Binary, Expr, LaunchIndex, ShuffleCall
from ...ir.types import I32, U32
from ...source import Span
from ..cuda.types import constant
from .context import Context
from .names import SHUFFLES
from .typing_rules import as_type, materialised, type_of
from .values import Action, Any_, Static, Value

NAMES = frozenset({"syncthreads", "syncwarp", "laneid", *SHUFFLES})
_WHOLE = 0xFFFFFFFF


def call(ctx: Context, name: str, values: tuple[Any_, ...], keywords: Mapping[str, Any_], node: ast.Call) -> Any_:
    """A call of one of `NAMES`."""
    span = ctx.span(node)
    if name in SHUFFLES:
        return _shuffle(ctx, name, values, keywords, node)
    if values:
        ctx.mistake(node, f"jit.{name} takes no arguments")
    if name == "laneid":
        return Value(Binary(span, U32, "&", _number_in_block(span), constant(span, U32, 31)))
    if name == "syncthreads":
        return Action(Barrier(span))
    mask = keywords.get("mask", Static(_WHOLE))
    whole = isinstance(mask, Static) and mask.value == _WHOLE
    return Action(Barrier(span, "warp", None if whole else as_type(mask, U32, span)))


def launch_index(name: str, axis: str, span: Span) -> Value:
    """`threadIdx.x` and its kin, uint32."""
    return Value(LaunchIndex(span, U32, name, axis))


def _number_in_block(span: Span) -> Expr:
    """The number of a thread in its block, x fastest."""

    def index(name: str, axis: str) -> Expr:
        return launch_index(name, axis, span).expr

    rows = Binary(span, U32, "+", index("threadIdx", "y"), Binary(span, U32, "*", index("blockDim", "y"), index("threadIdx", "z")))
    return Binary(span, U32, "+", index("threadIdx", "x"), Binary(span, U32, "*", index("blockDim", "x"), rows))


def _shuffle(ctx: Context, name: str, values: tuple[Any_, ...], keywords: Mapping[str, Any_], node: ast.Call) -> Value:
    """`jit.shfl_down_sync(mask, value, delta, width=32)` and its kin."""
    op, span = name.removeprefix("shfl").removesuffix("sync").strip("_"), ctx.span(node)
    mask = values[0].value if len(values) == 3 and isinstance(values[0], Static) else None
    if not isinstance(mask, int) or not 0 <= mask <= _WHOLE:
        ctx.mistake(node, f"jit.{name} takes a mask, a constant of 32 bits, a number and a lane")
    value = materialised(values[1], span)
    if value.type.bits < 32:
        ctx.mistake(node, f"jit.{name} moves numbers of 32 or 64 bits, not {value.type}")
    if type_of(values[2], span).is_float:
        ctx.mistake(node, f"a lane is an integer, not a {type_of(values[2], span)}")
    lane = as_type(values[2], U32 if op in ("up", "down") else I32, span)
    width = as_type(keywords.get("width", Static(32)), I32, span)
    return Value(ShuffleCall(span, value.type, op, constant(span, U32, mask), value.expr, lane, width))
