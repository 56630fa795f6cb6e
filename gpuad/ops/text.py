"""The elementwise operations, and the kernels that are made of them.

In: the table below, of expressions in CUDA with the NumPy functions whose types and names they have; a `Spec`, of types and the pattern of
strides. Out: a kernel, which is differentiated like a user's own: no derivative is written here. It does not depend on sizes, so a few
kernels serve a program, and each is built once.

In an expression `{0}`, `{1}`, ... are the operands, already of the type in which is computed; `{t}` is that type and `{f}` the suffix of
C's functions for it. `+=` begins an expression that is added to the output.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .. import pipeline
from ..api import Kernel
from ..arguments import bind, geometry
from ..arguments.conversions import CUDA_NAMES
from ..errors import UnsupportedError
from ..frontend.elementwise import Operand
from ..frontend.elementwise.strided import thread_lines
from ..pipeline import Call
from ..runtime.array_types import Extents
from ..source import SourceFile
from .special import SPECIAL

_TYPES = {dtype: name for dtype, name in CUDA_NAMES.items() if dtype not in ("float16", "bfloat16")}


@dataclass(frozen=True)
class Array:
    """A pointer operand: its type, and for each axis '0' (broadcast), '1' (side by side) or 's' (a stride by number)."""

    dtype: str
    pattern: str


@dataclass(frozen=True)
class Number:
    """An operand by value."""

    dtype: str


@dataclass(frozen=True)
class Spec:
    """What a generated kernel depends on. `arrays[0]` is the output; `numbers` come after the arrays. `inputs` says for each operand of
    `expression` which of them it is: an array by its place, a number by -1 - place. `raw`: so many operands are not converted. `loops`:
    outermost axes that are loops, not threads. `index`: the integer type of indices."""

    name: str
    expression: str
    compute: str
    arrays: tuple[Array, ...]
    numbers: tuple[Number, ...]
    inputs: tuple[int, ...]
    raw: int
    loops: int
    index: str

    @property
    def dims(self) -> int:
        """Number of axes."""
        return len(self.arrays[0].pattern)


def type_name(dtype: str) -> str:
    """A dtype as CUDA spells it. UnsupportedError for what elementwise kernels do not take."""
    if dtype not in _TYPES:
        what = "structs: name one of their fields, `U['x']`" if dtype.startswith("void") else dtype
        raise UnsupportedError(f"gpuad.ops takes arrays of bool, integers, float32 and float64, not {what}")
    return _TYPES[dtype]


class StridedKernel(Kernel):
    """A kernel that is told offsets and strides, so that it takes any view and touches its elements only."""

    def bind(
        self,
        grid: Extents,
        block: Extents,
        args: Sequence[Any],
        shared_mem: int,
        stream: Any,
        kinds: Sequence[str] = (),
        tangents: Collection[int] = (),
    ) -> Call:
        """As for any kernel, but nothing has to be proved about where it reaches."""
        names = [d.name for d in self.parameters]
        bound = bind(self.name, self.parameters, args, written=[names[0]], inside=names, strided=True)
        call = Call(bound, *geometry(grid, block), shared_mem, stream)
        pipeline.check_device(call)
        return call


@cache
def built(spec: Spec) -> Kernel:
    """The kernel of a spec."""
    return StridedKernel(SourceFile(f"<gpuad.ops.{spec.name}>", text(spec)), f"op_{spec.name}")


def text(spec: Spec) -> str:
    """The CUDA text: pointers, numbers, lengths, offsets, strides are the parameters, in this order."""
    axes = range(spec.dims)
    pointers = [f"{'' if i == 0 else 'const '}{type_name(a.dtype)}* {symbol(i)}" for i, a in enumerate(spec.arrays)]
    numbers = [f"{type_name(n.dtype)} v{i}" for i, n in enumerate(spec.numbers)]
    integers = [f"n{k}" for k in axes] + [f"o{i}" for i in range(len(spec.arrays))]
    integers += [name for i, a in enumerate(spec.arrays) for name in Operand(str(i), a.pattern).numbers()]
    parameters = ", ".join([*pointers, *numbers, *(f"{spec.index} {name}" for name in integers)])
    return f'extern "C" __global__ void op_{spec.name}({parameters})\n{{\n{_body(spec)}\n}}\n'


def symbol(place: int) -> str:
    """The name of an array parameter: the output is `out`, inputs are a, b, c, ..."""
    return "out" if place == 0 else chr(ord("a") + place - 1)


def _body(spec: Spec) -> str:
    lines = [*thread_lines(spec.dims - spec.loops, spec.dims, spec.index), _statement(spec)]
    return "\n".join(f"    {line}" for line in lines)


def _statement(spec: Spec) -> str:
    operands = [_operand(spec, place, i < spec.raw) for i, place in enumerate(spec.inputs)]
    value = spec.expression.format(*operands, t=type_name(spec.compute), f="f" if spec.compute == "float32" else "")
    target = _element(spec, 0)
    if value.startswith("+= "):
        return f"{target} += {value.removeprefix('+= ')};"
    cast = "" if spec.arrays[0].dtype == spec.compute else f"({type_name(spec.arrays[0].dtype)})"
    return f"{target} = {cast}({value});" if cast else f"{target} = {value};"


def _operand(spec: Spec, place: int, raw: bool) -> str:
    if place < 0:
        return f"v{-1 - place}"
    cast = "" if raw or spec.arrays[place].dtype == spec.compute else f"({type_name(spec.compute)})"
    return f"{cast}{_element(spec, place)}"


def _element(spec: Spec, place: int) -> str:
    return f"{symbol(place)}[{Operand(str(place), spec.arrays[place].pattern).index()}]"


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

# log(exp x + exp y): the greater one comes out of the sum, so that nothing overflows; where both are equal each has half of the gradient
_LOGADDEXP = "{0} > {1} ? {0} + log1p{f}(exp{f}({1} - {0})) : {1} == {0} && isinf({0}) ? {0} : {1} + log1p{f}(exp{f}({0} - {1}))"
_LOGADDEXP2 = (
    "{0} > {1} ? {0} + log1p{f}(exp2{f}({1} - {0})) * ({t})1.4426950408889634 : {1} == {0} && isinf({0}) ? {0} : "
    "{1} + log1p{f}(exp2{f}({0} - {1})) * ({t})1.4426950408889634"
)

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
        _rounding("fabs", np.fabs),
        Elementwise("float_power", "pow({0}, {1})", np.float_power),
        Elementwise("deg2rad", "{0} * ({t})0.017453292519943295", np.deg2rad),
        Elementwise("rad2deg", "{0} * ({t})57.29577951308232", np.rad2deg),
        Elementwise("heaviside", "{0} != {0} ? {0} : {0} < 0 ? ({t})0 : {0} > 0 ? ({t})1 : {1}", np.heaviside),
        Elementwise("logaddexp", _LOGADDEXP, np.logaddexp),
        Elementwise("logaddexp2", _LOGADDEXP2, np.logaddexp2),
        Elementwise("sinc", "{0} == 0 ? ({t})1 : sin{f}(({t})3.141592653589793 * {0}) / (({t})3.141592653589793 * {0})", np.sin),
        Elementwise("i0", "cyl_bessel_i0{f}({0})", np.sin),
        *(Elementwise(name, expression, np.hypot if "{1}" in expression else np.sin) for name, expression, _ in SPECIAL),
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
