"""The elementwise operations: each an expression in CUDA, and the NumPy function whose types and names it has.

In an expression `{0}`, `{1}`, ... are the operands, already of the type in which is computed; `{t}` is that type and `{f}` the suffix of
C's functions for it. `+=` begins an expression that is added to the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Elementwise:
    """One operation. `ufunc`: whose type resolution it follows. `inplace`: the expression where the first operand is the output itself."""

    name: str
    expression: str
    ufunc: np.ufunc
    inplace: str | None = None
    floating: bool = False  # integers are computed with as float64
    raw: int = 0  # so many operands keep their own type


def _function(name: str, ufunc: np.ufunc) -> Elementwise:
    return Elementwise(ufunc.__name__, f"{name}{{f}}({{0}})", ufunc)


def _rounding(name: str, ufunc: np.ufunc) -> Elementwise:
    return Elementwise(ufunc.__name__, f"{name}{{f}}({{0}})", ufunc, floating=True)


# fmod has the sign of the dividend, NumPy's remainder that of the divisor
_REMAINDER = "(fmod{f}({0}, {1}) != 0 && (fmod{f}({0}, {1}) < 0) != ({1} < 0)) ? fmod{f}({0}, {1}) + {1} : fmod{f}({0}, {1})"

TABLE: dict[str, Elementwise] = {
    e.name: e
    for e in (
        Elementwise("copyto", "{0}", np.positive),
        Elementwise("add", "{0} + {1}", np.add, "+= {1}"),
        Elementwise("subtract", "{0} - {1}", np.subtract),
        Elementwise("multiply", "{0} * {1}", np.multiply),
        Elementwise("divide", "{0} / {1}", np.true_divide),
        Elementwise("negative", "-{0}", np.negative),
        Elementwise("power", "pow{f}({0}, {1})", np.power, floating=True),
        Elementwise("square", "{0} * {0}", np.square),
        Elementwise("reciprocal", "({t})1 / {0}", np.reciprocal, floating=True),
        Elementwise("maximum", "({0} >= {1} || {0} != {0}) ? {0} : {1}", np.maximum),
        Elementwise("minimum", "({0} <= {1} || {0} != {0}) ? {0} : {1}", np.minimum),
        Elementwise("where", "{0} != 0 ? {1} : {2}", np.maximum, raw=1),
        Elementwise("axpy", "+= {0} * {1}", np.multiply),
        Elementwise("absolute", "fabs{f}({0})", np.absolute, floating=True),
        _function("exp", np.exp),
        _function("log", np.log),
        _function("sqrt", np.sqrt),
        _function("sin", np.sin),
        _function("cos", np.cos),
        _function("tan", np.tan),
        _function("tanh", np.tanh),
        _function("sinh", np.sinh),
        _function("cosh", np.cosh),
        _function("log1p", np.log1p),
        _function("expm1", np.expm1),
        _function("exp2", np.exp2),
        _function("log2", np.log2),
        _function("log10", np.log10),
        _function("cbrt", np.cbrt),
        _function("asin", np.arcsin),
        _function("acos", np.arccos),
        _function("atan", np.arctan),
        _function("asinh", np.arcsinh),
        _function("acosh", np.arccosh),
        _function("atanh", np.arctanh),
        _rounding("floor", np.floor),
        _rounding("ceil", np.ceil),
        _rounding("trunc", np.trunc),
        _rounding("rint", np.rint),
        Elementwise("sign", "{0} != {0} ? {0} : ({t})(({0} > 0) - ({0} < 0))", np.sign, floating=True),
        Elementwise("arctan2", "atan2{f}({0}, {1})", np.arctan2),
        Elementwise("hypot", "hypot{f}({0}, {1})", np.hypot),
        Elementwise("fmax", "fmax{f}({0}, {1})", np.fmax, floating=True),
        Elementwise("fmin", "fmin{f}({0}, {1})", np.fmin, floating=True),
        Elementwise("fmod", "fmod{f}({0}, {1})", np.fmod, floating=True),
        Elementwise("remainder", _REMAINDER, np.remainder, floating=True),
        Elementwise("copysign", "copysign{f}({0}, {1})", np.copysign),
        Elementwise("conjugate", "{0}", np.positive),
    )
}


def result_type(operation: Elementwise, operands: Sequence[Any]) -> np.dtype[Any]:
    """The type in which is computed, by NumPy's own rules; Python's numbers adapt to the arrays. TypeError as NumPy raises it."""
    if operation.ufunc is np.positive:
        kind: np.dtype[Any] = np.dtype(_kind(operands[0]))
        return kind
    kinds = tuple(_kind(x) for x in operands[-operation.ufunc.nin :])
    if all(k in (int, float) for k in kinds):
        kinds = tuple(np.dtype(k) for k in kinds)
    return operation.ufunc.resolve_dtypes((*kinds, None))[-1]


def _kind(x: Any) -> Any:
    """A dtype, or for a Python number its type; a bool is never wider than anything."""
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.dtype(bool) if isinstance(x, bool) else type(x)
