"""The functions of `ir.functions`, on arrays. A floating-point function is computed in float64 and rounded to its type; what arithmetic
alone defines (fabs, fmin, sqrt, `__fadd_rn`, ...) is computed in the type itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GpuadError
from ...ir.dtypes import Array, dtype_of, to_bfloat16
from ...ir.functions import FUNCTIONS
from ...ir.types import Scalar
from . import special
from .special import libm

Function = Callable[..., Array]


def function(name: str, type: Scalar, arguments: tuple[Scalar, ...]) -> Function:
    """The function `name` with a result of `type`. Raises GpuadError (malformed IR) for an unknown name or wrong argument types."""
    known = FUNCTIONS.get(name)
    if known is None or known.arity != len(arguments):
        raise GpuadError(f"malformed IR: function `{name}` of {len(arguments)} arguments")
    if known.domain == "float" and any(a != type for a in known.of_one_type(arguments)):
        raise GpuadError(f"malformed IR: `{name}` of type {type} with arguments of types {', '.join(map(str, arguments))}")
    if known.domain == "bits":
        return lambda a: np.ascontiguousarray(a).view(dtype_of(type))
    if known.domain != "int":
        return _EXACT[name] if name in _EXACT else _rounded(_DOUBLE[name], dtype_of(type))
    return _typed(_INTEGER[name], dtype_of(type))


def _rounded(compute: Function, dtype: np.dtype[Any]) -> Function:
    """Computes in float64 and rounds once."""
    if dtype == np.float64:
        return compute
    return lambda *arguments: compute(*(a.astype(np.float64) for a in arguments)).astype(dtype)


def _typed(compute: Function, dtype: np.dtype[Any]) -> Function:
    return lambda *arguments: compute(*arguments).astype(dtype, copy=False)


def _reciprocal(compute: Function) -> Function:
    return lambda *arguments: 1.0 / compute(*arguments)


def _fdim(a: Array, b: Array) -> Array:
    return np.where(a <= b, a.dtype.type(0), a - b)


def _saturate(a: Array) -> Array:
    one, zero = a.dtype.type(1), a.dtype.type(0)
    return np.asarray(np.fmin(np.fmax(a, zero), one))


def _ldexp(a: Array, exponent: Array) -> Array:
    return np.ldexp(a, exponent.astype(np.int32))


def _chain(seed: Array, partial: Array) -> Array:
    """0 where the seed is 0, whatever the partial."""
    return np.where(seed == 0, seed.dtype.type(0), seed * partial)


def _half(a: Array) -> Array:
    """The nearest half, as a number of the same type."""
    with np.errstate(over="ignore"):
        return a.astype(np.float16).astype(a.dtype)


def _bfloat16(a: Array) -> Array:
    """The nearest bfloat16, as a number of the same type."""
    return np.asarray(to_bfloat16(a).astype(a.dtype))


def _not_zero(a: Array) -> Array:
    return np.not_equal(a, 0)


def _one_over(a: Array) -> Array:
    return np.asarray(np.divide(a.dtype.type(1), a))


_EXACT: dict[str, Function] = {
    "sqrt": np.sqrt, "fabs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint,
    "fmin": np.fmin, "fmax": np.fmax, "fmod": np.fmod, "copysign": np.copysign, "fdim": _fdim, "gpuad_chain": _chain, "ldexp": _ldexp,
    "nextafter": np.nextafter,
    "gpuad_half": _half, "gpuad_bfloat16": _bfloat16, "gpuad_collected": _not_zero,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit,
    "__saturatef": _saturate, "__fdividef": np.divide, "__frcp_rn": _one_over, "__drcp_rn": _one_over,
    "__fsqrt_rn": np.sqrt, "__dsqrt_rn": np.sqrt,
    **{f"__{t}add_rn": np.add for t in "fd"}, **{f"__{t}sub_rn": np.subtract for t in "fd"},
    **{f"__{t}mul_rn": np.multiply for t in "fd"}, **{f"__{t}div_rn": np.divide for t in "fd"},
}  # fmt: skip

_ALIKE = "cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh hypot"  # as NumPy calls them
_INVERSE = "sin cos tan sinh cosh tanh"
_LIBRARY = "erf erfc tgamma lgamma j0 j1 y0 y1"
_SPECIAL = "sinpi cospi erfinv erfcinv erfcx normcdf normcdfinv logb fma cyl_bessel_i0 cyl_bessel_i1 jn yn"

_DOUBLE: dict[str, Function] = {
    **{name: getattr(np, name) for name in _ALIKE.split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in _INVERSE.split()},
    **{name: libm(name) for name in _LIBRARY.split()},
    **{name: getattr(special, name) for name in _SPECIAL.split()},
    "gpuad_digamma": special.digamma, "gpuad_trigamma": special.trigamma,
    "rsqrt": _reciprocal(np.sqrt), "rcbrt": _reciprocal(np.cbrt), "rhypot": _reciprocal(np.hypot),
    "exp10": lambda a: np.power(10.0, a), "round": special.round_half_away, "pow": np.power, "atan2": np.arctan2,
    "remainder": libm("remainder", 2),
    "__expf": np.exp, "__exp10f": lambda a: np.power(10.0, a), "__logf": np.log, "__log2f": np.log2, "__log10f": np.log10,
    "__sinf": np.sin, "__cosf": np.cos, "__tanf": np.tan, "__tanhf": np.tanh, "__powf": np.power, "__frsqrt_rn": _reciprocal(np.sqrt),
    "__fmaf_rn": special.fma, "__fma_rn": special.fma,
}  # fmt: skip


# --- integers ------------------------------------------------------------------------------------------------------------------------


def _unsigned(a: Array) -> Array:
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def _popc(a: Array) -> Array:
    bits = _unsigned(a).astype(np.uint64)
    return np.asarray(np.unpackbits(bits.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int32))


def _smear(bits: Array) -> Array:
    """Every bit below the highest set one, and that one."""
    shift = 1
    while shift < bits.dtype.itemsize * 8:
        bits = bits | (bits >> bits.dtype.type(shift))
        shift *= 2
    return bits


def _clz(a: Array) -> Array:
    return a.dtype.itemsize * 8 - _popc(_smear(_unsigned(a)))


def _ffs(a: Array) -> Array:
    bits = _unsigned(a)
    below = bits & ~(bits - bits.dtype.type(1))
    return np.where(bits == 0, 0, _popc(below - bits.dtype.type(1)) + 1)


def _brev(a: Array) -> Array:
    bits, width = _unsigned(a), a.dtype.itemsize * 8
    one, result = bits.dtype.type(1), np.zeros_like(bits)
    for position in range(width):
        result |= ((bits >> bits.dtype.type(position)) & one) << bits.dtype.type(width - 1 - position)
    return result.view(a.dtype)


def _mulhi(a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    return np.asarray((a.astype(object) * b.astype(object)) >> width).astype(a.dtype)


_INTEGER: dict[str, Function] = {
    "min": np.minimum, "max": np.maximum, "abs": np.abs, "popc": _popc, "clz": _clz, "ffs": _ffs, "brev": _brev, "mulhi": _mulhi,
}  # fmt: skip
