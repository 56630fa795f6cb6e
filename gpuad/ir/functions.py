"""The functions that an expression may call: one name each, whatever spelling the user chose.

A floating-point function `sin` takes and gives values of one float type; it prints as `sinf` at float32 and `sin` at float64. Functions
whose CUDA name starts with two underscores exist at float32 only and print as they are. Ours are `gpuad_chain(seed, partial)`: `seed *
partial`, but 0 where the seed is exactly 0, so that an infinite partial without a seed gives no NaN; `gpuad_digamma` and
`gpuad_trigamma`, the derivatives of lgamma; `gpuad_used(seed)`, which says that a seed is not 0, so that the value was used at all
(passes after `accumulate.reduce` see a comparison instead); and `gpuad_collected(sum)`, that a sum is not 0: its element is
one that the launch may touch (printed as a comparison). `bits` reads the bits of a float as an integer of its size or the other way round
(float32 and int32 or uint32, float64 and int64); no derivative follows it.

Atomic operations that keep the greatest or the least number.

CUDA has them for integers. For floats users compare the numbers in a loop around atomicCAS, or let the integer operation compare their
bits: as signed integers (right for numbers that are not negative), or as unsigned ones (with the order reversed, for negative numbers).
Each is an operation of its own here, since they differ for NaN, for zeros, and where the bits' order is not the numbers'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from . import folding as b
from .nodes import Binary, Call, Cast, Expr, Unary
from .types import BF16, BOOL, F16, F64, I32, I64, U32, U64, Scalar

T = TypeVar("T")


@dataclass(frozen=True)
class Function:
    """`domain`: 'float' (float args, float result), 'predicate' (float args, bool result), 'int' (integer args and result) or 'bits' (a
    float for an integer or an integer for a float). `whole` is the position of an argument of a float function that is an int32."""

    name: str
    arity: int
    domain: str = "float"
    single: str | None = None  # spelling at float32
    double: str | None = None  # spelling at float64; None for intrinsics of float32 only
    whole: int | None = None

    def of_one_type(self, arguments: Sequence[T]) -> list[T]:
        """The arguments that have one type, or what stands for them: all but the whole one."""
        return [a for position, a in enumerate(arguments) if position != self.whole]


def _pair(name: str, arity: int = 1) -> Function:
    return Function(name, arity, "float", name + "f", name)


_UNARY = [
    "sqrt",
    "rsqrt",
    "cbrt",
    "rcbrt",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sinpi",
    "cospi",
    "erf",
    "erfc",
    "erfinv",
    "erfcinv",
    "erfcx",
    "normcdf",
    "normcdfinv",
    "tgamma",
    "lgamma",
    "j0",
    "j1",
    "y0",
    "y1",
    "cyl_bessel_i0",
    "cyl_bessel_i1",
    "fabs",
    "floor",
    "ceil",
    "trunc",
    "round",
    "rint",
    "nearbyint",
    "logb",
]
STEPS = ("floor", "ceil", "trunc", "round", "rint", "nearbyint", "logb")  # constant between jumps: the derivative is 0
OVERFLOWING = frozenset({
    "exp", "exp2", "exp10", "expm1", "__expf", "__exp10f", "sinh", "cosh", "pow", "__powf", "tgamma", "erfcx", "ldexp",
    "cyl_bessel_i0", "cyl_bessel_i1",
})  # fmt: skip
"""Infinite far from 0, where their values leave the range of the type."""
GROWING = frozenset(
    {"log", "log2", "log10", "log1p", "__logf", "__log2f", "__log10f", "sqrt", "__fsqrt_rn", "__dsqrt_rn", "cbrt", "asinh", "acosh"}
)
"""Infinite at infinity, where their slope is 0."""
POLES = frozenset({"log", "log2", "log10", "__logf", "__log2f", "__log10f", "rsqrt", "rcbrt", "__frsqrt_rn", "__frcp_rn", "__drcp_rn"})
"""Infinite at 0."""
VERTICAL = frozenset({"sqrt", "__fsqrt_rn", "__dsqrt_rn", "cbrt", "pow", "__powf", "asin", "acos", "acosh"})
"""Finite at an argument where their slope is infinite."""
SATURATING = frozenset({
    "exp", "exp2", "exp10", "expm1", "__expf", "__exp10f", "tanh", "__tanhf", "erf", "erfc", "erfcx", "normcdf", "atan", "atan2", "rsqrt",
    "rcbrt", "rhypot", "pow", "__powf", "__frsqrt_rn", "__frcp_rn", "__drcp_rn", "__fdividef", "__fdiv_rn", "__ddiv_rn",
    "__saturatef", "j0", "j1", "jn", "fmod", "remainder",
})  # fmt: skip
"""Finite at infinity (of one sign at least), where their slope is 0."""
BOUNDED = frozenset({
    "sin", "cos", "__sinf", "__cosf", "sinpi", "cospi", "tanh", "__tanhf", "erf", "erfc", "normcdf", "atan", "atan2", "asin", "acos", "j0",
    "j1", "jn", "__saturatef",
})  # fmt: skip
"""Finite, or NaN, whatever their arguments."""
CHOOSING = frozenset({"fmin", "fmax", "fdim", "copysign"})
"""Give one of their arguments, or part of it, so that the other's seed is 0."""
POSITIVE = frozenset({"exp", "exp2", "exp10", "__expf", "__exp10f", "fabs", "sqrt", "rsqrt", "hypot", "__fsqrt_rn", "__dsqrt_rn"})
"""At least 0; of those that overflow, at most 1 where the argument is at most 0."""
_BINARY = ["pow", "atan2", "fmin", "fmax", "fmod", "remainder", "hypot", "rhypot", "fdim", "copysign", "nextafter"]
_FAST = {
    "__expf": 1, "__exp10f": 1, "__logf": 1, "__log2f": 1, "__log10f": 1, "__sinf": 1, "__cosf": 1, "__tanf": 1, "__tanhf": 1,
    "__saturatef": 1,
    "__powf": 2, "__fdividef": 2, "__frcp_rn": 1, "__fsqrt_rn": 1, "__frsqrt_rn": 1, "__fadd_rn": 2, "__fsub_rn": 2, "__fmul_rn": 2,
    "__fdiv_rn": 2, "__fmaf_rn": 3,
}  # fmt: skip
_FAST_DOUBLE = {"__dadd_rn": 2, "__dsub_rn": 2, "__dmul_rn": 2, "__ddiv_rn": 2, "__dsqrt_rn": 1, "__drcp_rn": 1, "__fma_rn": 3}

ROUNDINGS = {F16: "gpuad_half", BF16: "gpuad_bfloat16"}  # to the nearest number of a type, as the float or double that it came from

FUNCTIONS: dict[str, Function] = {
    **{name: _pair(name) for name in _UNARY},
    **{name: _pair(name, 2) for name in _BINARY},
    "fma": _pair("fma", 3),
    "ldexp": Function("ldexp", 2, "float", "ldexpf", "ldexp", whole=1),
    **{name: Function(name, 2, "float", name + "f", name, whole=0) for name in ("jn", "yn")},
    **{name: Function(name, arity, "float", name, None) for name, arity in _FAST.items()},
    **{name: Function(name, arity, "float", None, name) for name, arity in _FAST_DOUBLE.items()},
    **{name: Function(name, 1, "predicate", name, name) for name in ("isnan", "isinf", "isfinite", "signbit")},
    "min": Function("min", 2, "int"),
    "max": Function("max", 2, "int"),
    "abs": Function("abs", 1, "int"),
    "popc": Function("popc", 1, "int"),  # __popc, __popcll: int32 result
    "clz": Function("clz", 1, "int"),  # __clz, __clzll: int32 result
    "ffs": Function("ffs", 1, "int"),
    "brev": Function("brev", 1, "int"),
    "mulhi": Function("mulhi", 2, "int"),
    "bits": Function("bits", 1, "bits"),
    "gpuad_used": Function("gpuad_used", 1, "predicate"),
    "gpuad_collected": Function("gpuad_collected", 1, "predicate"),
    "gpuad_digamma": Function("gpuad_digamma", 1, "float", "gpuad_digamma", "gpuad_digamma"),
    "gpuad_trigamma": Function("gpuad_trigamma", 1, "float", "gpuad_trigamma", "gpuad_trigamma"),
    **{name: Function(name, 1, "float", name, name) for name in ROUNDINGS.values()},
    "gpuad_chain": Function("gpuad_chain", 2, "float", "gpuad_chain", "gpuad_chain"),
}


EXTREMA = frozenset({"max", "min", "fmax", "fmin", "nmax", "nmin", "imax", "imin", "umax", "umin"})
"""On memory of floats: `max`, `min` replace the content where the new number is greater (less); `fmax`, `fmin` also where the content is
NaN and the new number is not; `nmax`, `nmin` where one of them is NaN; `imax`, `umax` and kin compare bits as signed or unsigned integers.
On memory of integers only `max` and `min`."""


def bits_type(kind: Scalar, *, signed: bool = True) -> Scalar:
    """The integer type that holds the bits of a float; of 64 bits there is only the signed one."""
    return I64 if kind == F64 else I32 if signed else U32


def bits(value: Expr, *, signed: bool = True) -> Expr:
    """The bits of a float as an integer."""
    return Call("bits", (value,), bits_type(value.type, signed=signed))


def replaces(op: str, old: Expr, value: Expr) -> Expr:
    """Whether the operation changes a float `old` to `value`: at most one of equal values does, the first."""
    greater = ">" if op.endswith("max") else "<"
    if op in ("max", "min"):
        return b.compare(greater, value, old)
    if op in ("fmax", "fmin"):
        number = Binary("&&", b.compare("!=", old, old), b.compare("==", value, value), BOOL)
        return Binary("||", b.compare(greater, value, old), number, BOOL)
    if op in ("nmax", "nmin"):
        return Unary("!", b.compare(">=" if op == "nmax" else "<=", old, value), BOOL)
    first, second = _ordered(op, value), _ordered(op, old)
    return b.compare(greater, first, second)


def _ordered(op: str, value: Expr) -> Expr:
    """The bits of a float as the operation compares them."""
    if op[0] == "i" or value.type != F64:
        return bits(value, signed=op[0] == "i")
    return Cast(bits(value), U64)
