"""What CUDA's functions mean: each name that the prelude declares and gpuad supports, with how its call is lowered.

clang has resolved the overload by then, so a call's arguments and result have their types; a name only has to be mapped to one of
`ir.functions`, to a conversion, or to an atomic operation.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import UnsupportedError
from ...ir.functions import FUNCTIONS
from ...ir.surface import AtomicCall, Binary, Cast, Constant, Expr, MathCall, Record, ShuffleCall, Unary
from ...ir.types import BOOL, I32, I64, U32, Pointer, Scalar, Type
from ...source import Span
from .lower_expressions import dereferenced
from .types import constant, convert, explicit, reinterpreted


@dataclass(frozen=True)
class Call:
    """A call of one of CUDA's functions."""

    span: Span
    name: str
    type: Type
    arguments: tuple[Expr, ...]

    @property
    def scalar(self) -> Scalar:
        """The type of the result, a number."""
        if not isinstance(self.type, Scalar):
            raise UnsupportedError(f"the function {self.name} is not supported here", self.span)
        return self.type


Handler = Callable[[Call], Expr]


def _math(function: str) -> Handler:
    """A function of one type: integer arguments of `pow(float, int)` are converted to it, but for one that is whole."""
    whole = FUNCTIONS[function].whole

    def lower(call: Call) -> Expr:
        types = (I32 if position == whole else call.scalar for position in range(len(call.arguments)))
        arguments = tuple(convert(a, type, a.span, implicit=True) for a, type in zip(call.arguments, types, strict=True))
        return MathCall(call.span, call.type, function, arguments)

    return lower


def _typed(integer: str, floating: str) -> Handler:
    """`abs`, `min` and `max` of all types; the arguments take the type of the result."""

    def lower(call: Call) -> Expr:
        return _math(floating if call.scalar.is_float else integer)(call)

    return lower


def _predicate(function: str) -> Handler:
    """A question with CUDA's answer, an int."""

    def lower(call: Call) -> Expr:
        answer = MathCall(call.span, BOOL, function, call.arguments)
        return convert(answer, call.type, call.span, implicit=True)

    return lower


def _bits(function: str) -> Handler:
    """An integer function whose result may have another type than its argument."""

    def lower(call: Call) -> Expr:
        return MathCall(call.span, call.type, function, call.arguments)

    return lower


def _divide(call: Call) -> Expr:
    left, right = call.arguments
    return Binary(call.span, call.type, "/", left, right)


def _to_integer(rounding: str | None) -> Handler:
    """A float as an integer, rounded by a function first; C's own conversion truncates."""

    def lower(call: Call) -> Expr:
        (value,) = call.arguments
        rounded = MathCall(call.span, value.type, rounding, (value,)) if rounding else value
        return explicit(rounded, call.type, call.span)

    return lower


def _convert(call: Call) -> Expr:
    return explicit(call.arguments[0], call.type, call.span)


def _multiply24(call: Call) -> Expr:
    """The product of the low 24 bits of both, sign-extended if signed."""
    left, right = (_low24(argument) for argument in call.arguments)
    return Binary(call.span, call.type, "*", left, right)


def _low24(value: Expr) -> Expr:
    if value.type == U32:
        return Binary(value.span, U32, "&", value, Constant(value.span, U32, 0xFFFFFF))
    eight = Constant(value.span, I32, 8)
    return Binary(value.span, I32, ">>", Binary(value.span, I32, "<<", value, eight), eight)


def _nan(call: Call) -> Expr:
    return Constant(call.span, call.type, math.nan)


def _first(call: Call) -> Expr:
    """`__builtin_expect(x, likely)` is x."""
    return call.arguments[0]


def _as(call: Call) -> Expr:
    """The bits of a float as an integer."""
    return reinterpreted(call.arguments[0], call.scalar, call.span)


def _from_bits(integer: str, floating: str) -> Handler:
    """A float given by its bits, as a number where they are a constant."""

    def lower(call: Call) -> Expr:
        number = constant_value(call.arguments[0])
        if number is None:
            return _as(call)
        mask = (1 << (8 * struct.calcsize(integer))) - 1
        return constant(call.span, call.scalar, struct.unpack(floating, struct.pack(integer, number & mask))[0])

    return lower


def _low_word(call: Call) -> Expr:
    return convert(reinterpreted(call.arguments[0], I64, call.span), I32, call.span, implicit=False)


def _high_word(call: Call) -> Expr:
    whole = reinterpreted(call.arguments[0], I64, call.span)
    return convert(Binary(call.span, I64, ">>", whole, Constant(call.span, I32, 32)), I32, call.span, implicit=False)


def _from_words(call: Call) -> Expr:
    """A double from its high and its low word."""
    high, low = call.arguments
    shifted = Binary(call.span, I64, "<<", convert(high, I64, call.span, implicit=False), Constant(call.span, I32, 32))
    below = convert(convert(low, U32, call.span, implicit=False), I64, call.span, implicit=False)
    return reinterpreted(Binary(call.span, I64, "|", shifted, below), call.scalar, call.span)


def constant_value(value: Expr) -> int | None:
    """The integer that a constant is, through conversions that keep its bits."""
    if isinstance(value, Cast):
        return constant_value(value.operand)
    return int(value.value) if isinstance(value, Constant) else None


def _make(call: Call) -> Expr:
    """`make_float4(x, y, z, w)`."""
    return Record(call.span, call.type, call.arguments)


def _load(call: Call) -> Expr:
    return dereferenced(call.arguments[0])


def _atomic(operation: str) -> Handler:
    def lower(call: Call) -> Expr:
        pointer, *operands = call.arguments
        if not isinstance(pointer.type, Pointer):
            raise UnsupportedError(f"{call.name} needs a pointer", call.span)
        compared = operation in ("min", "max") and isinstance(call.type, Scalar) and call.type.is_float  # by CuPy, with fminf and fmaxf
        return AtomicCall(call.span, call.type, f"f{operation}" if compared else operation, pointer, tuple(operands))

    return lower


def _shuffle(operation: str) -> Handler:
    def lower(call: Call) -> Expr:
        mask, value, lane, *width = call.arguments
        return ShuffleCall(call.span, call.type, operation, mask, value, lane, width[0] if width else Constant(call.span, I32, 32))

    return lower


def _vote(name: str) -> Handler:
    """`__any_sync` is a ballot that is not empty, `__all_sync` one against without a vote."""

    def lower(call: Call) -> Expr:
        mask, predicate = call.arguments
        none, zero = Constant(call.span, I32, 0), Constant(call.span, U32, 0)
        asked = Unary(call.span, BOOL, "!", convert(predicate, BOOL, call.span, implicit=True)) if name == "all" else predicate
        ballot = ShuffleCall(call.span, U32, "ballot", mask, asked, none, none)
        if name == "ballot":
            return ballot
        result = Binary(call.span, BOOL, "==" if name == "all" else "!=", ballot, zero)
        return convert(result, call.scalar, call.span, implicit=True)

    return lower


def _active(call: Call) -> Expr:
    """The threads of the warp that have come here."""
    none, all_lanes, one = (Constant(call.span, kind, n) for kind, n in ((I32, 0), (U32, 0xFFFFFFFF), (U32, 1)))
    return ShuffleCall(call.span, U32, "active", all_lanes, one, none, none)


_VECTORS = ("float", "double", *(u + name for u in ("", "u") for name in ("char", "short", "int", "long", "longlong")))


def _table() -> dict[str, Handler]:
    table: dict[str, Handler] = {}
    for name, function in FUNCTIONS.items():
        if function.domain == "float" and not name.startswith("gpuad"):
            table.update({spelling: _math(name) for spelling in {name, function.single or name, function.double or name}})
    table.update(dict.fromkeys(("scalbn", "scalbnf"), _math("ldexp")))
    for name in ("isnan", "isinf", "isfinite", "signbit"):
        for spelling in (name, f"__{name}", f"__{name}f", f"__{name.removeprefix('is')}", f"__{name.removeprefix('is')}f"):
            table[spelling] = _predicate(name)
    table.update(_integer_functions())
    table.update(_conversions())
    for operation in ("Add", "Sub", "Min", "Max", "Exch", "CAS", "And", "Or", "Xor", "Inc", "Dec"):
        scopes = ("", "_block", "_system")  # the widest order is among the orders of a narrower scope
        table.update({f"atomic{operation}{scope}": _atomic(operation.lower()) for scope in scopes})
    table.update({f"__shfl{'_' + op if op else ''}_sync": _shuffle(op) for op in ("", "up", "down", "xor")})
    table["__activemask"] = _active
    table.update({f"__{name}_sync": _vote(name) for name in ("ballot", "any", "all")})
    table.update(dict.fromkeys(("__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu"), _load))
    for half in ("half", "bfloat16"):
        table.update(dict.fromkeys((f"__{half}2float", f"__float2{half}_rn", f"__float2{half}", f"__double2{half}"), _convert))
    table.update({f"make_{name}{lanes}": _make for name in _VECTORS for lanes in (1, 2, 3, 4)})
    table.update({"fdividef": _divide, "fmaf": _math("fma"), "nan": _nan, "nanf": _nan, "__builtin_expect": _first})
    return table


def _integer_functions() -> dict[str, Handler]:
    table: dict[str, Handler] = {"abs": _typed("abs", "fabs"), "labs": _typed("abs", "fabs"), "llabs": _typed("abs", "fabs")}
    for name in ("min", "max"):
        table.update({prefix + name: _typed(name, f"f{name}") for prefix in ("", "u", "ll", "ull")})
    table.update({"__popc": _bits("popc"), "__popcll": _bits("popc"), "__clz": _bits("clz"), "__clzll": _bits("clz")})
    table.update({"__ffs": _bits("ffs"), "__ffsll": _bits("ffs"), "__brev": _bits("brev"), "__brevll": _bits("brev")})
    table.update(dict.fromkeys(("__mulhi", "__umulhi", "__mul64hi", "__umul64hi"), _bits("mulhi")))
    table.update({"__mul24": _multiply24, "__umul24": _multiply24})
    return table


_CONVERSIONS = ["__int2float", "__uint2float", "__ll2float", "__ull2float", "__double2float"]
_CONVERSIONS += ["__int2double", "__uint2double", "__ll2double", "__ull2double"]


def _conversions() -> dict[str, Handler]:
    table: dict[str, Handler] = {}
    for source in ("float", "double"):
        for target in ("int", "uint", "ll", "ull"):
            for suffix, rounding in (("rn", "rint"), ("rz", None), ("ru", "ceil"), ("rd", "floor")):
                table[f"__{source}2{target}_{suffix}"] = _to_integer(rounding)
    for name in _CONVERSIONS:
        table[f"{name}_rn"] = _convert
    for name in ("lrint", "llrint", "lround", "llround"):
        table[name] = table[f"{name}f"] = _to_integer("rint" if name.endswith("rint") else "round")
    table.update(
        {"__int_as_float": _from_bits("I", "f"), "__uint_as_float": _from_bits("I", "f"), "__longlong_as_double": _from_bits("Q", "d")}
    )
    table.update(dict.fromkeys(("__float_as_int", "__float_as_uint", "__double_as_longlong"), _as))
    table.update({"__double2loint": _low_word, "__double2hiint": _high_word, "__hiloint2double": _from_words})
    return table


BUILTINS: dict[str, Handler] = _table()
SINCOS = re.compile(r"__sincosf|sincos(pi)?f?")
