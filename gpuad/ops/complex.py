"""Elementwise operations on complex numbers, as rules of NumPy's own functions.

The gradient of a complex array z = x + i y is (d/dx) + i (d/dy): an operand of a holomorphic function gets the seed times the conjugate of
the derivative, and a real operand the real part of that. An output that overlaps an operand without adding to it is computed apart first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Duplicated
from ..errors import UnsupportedError
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .layout import primal_of
from .layout import same as same_elements
from .temporaries import new_array, temporary


def _linear_reverse(dx: Any, dy: Any, dz: Any, name: str) -> None:
    if dx is not None:
        add_to(dx, -dz if name == "negative" else dz.conj() if name == "conjugate" else dz)
    if dy is not None:
        add_to(dy, -dz if name == "subtract" else dz)


@rule(reads=("x", "y"), overwrites=("z",), reverse=_linear_reverse, linear=(("x", "y"),))
def _linear(x: Any, y: Any, z: Any, name: str) -> None:
    if name == "copyto":
        z[...] = x
    else:
        getattr(library_of(z), name)(*(x,) if y is None else (x, y), out=z, casting="same_kind")


def _increase_reverse(dx: Any, dz: Any, sign: int) -> None:
    if dx is not None:
        add_to(dx, dz if sign > 0 else -dz)


@rule(reads=("x",), adds=("z",), reverse=_increase_reverse, linear=(("x",),))
def _increase(x: Any, z: Any, sign: int) -> None:
    if sign > 0:
        z += x
    else:
        z -= x


def _multiply_reverse(x: Any, y: Any, dx: Any, dy: Any, dz: Any) -> None:
    if dx is not None:
        add_to(dx, dz * np.conj(y))
    if dy is not None:
        add_to(dy, dz * np.conj(x))


@rule(
    reads=("x", "y"),
    overwrites=("z",),
    needs={"x": ("before", "y"), "y": ("before", "x")},
    reverse=_multiply_reverse,
    linear=(("x",), ("y",)),
)
def _multiply(x: Any, y: Any, z: Any) -> None:
    library_of(z).multiply(x, y, out=z, casting="same_kind")


def _scale_reverse(x: Any, z: Any, dx: Any, dz: Any, dz_before: Any) -> None:
    if dx is not None:
        add_to(dx, dz * z.conj())
    if dz_before is not None:
        add_to(dz_before, dz * np.conj(x))


@rule(
    reads=("x", "z"), overwrites=("z",), needs={"x": ("before", "z"), "z": ("before", "x")}, reverse=_scale_reverse, linear=(("x",), ("z",))
)
def _scale(x: Any, z: Any) -> None:
    z *= x


def _divide_reverse(x: Any, y: Any, dx: Any, dy: Any, dz: Any) -> None:
    if dx is not None:
        add_to(dx, dz / library_of(dz).where(dz == 0, 1, np.conj(y)))
    if dy is not None:
        add_to(dy, -dz * library_of(dz).where(dz == 0, 0, np.conj(x / y / y)))


def _divide_tangent(y: Any, z: Any, dx: Any, dy: Any, dz: Any) -> None:
    dz[...] = (dx - z * dy) / y


@rule(
    reads=("x", "y"), overwrites=("z",), needs={"x": ("before", "y"), "y": "before"}, reverse=_divide_reverse, tangent=_divide_tangent,
)  # fmt: skip
def _divide(x: Any, y: Any, z: Any) -> None:
    library_of(z).divide(x, y, out=z, casting="same_kind")


def _unary_reverse(x: Any, dx: Any, dz: Any, name: str) -> None:
    if dx is not None:
        add_to(dx, _chained(name, library_of(x), x, dz))


def _chained(name: str, library: Any, x: Any, dz: Any) -> Any:
    """The seed times what a function of one number has for a derivative; nothing where the seed is 0, be the derivative infinite."""
    if name == "absolute":  # not holomorphic: along x, and nothing where x is 0; it has no imaginary part, in a complex array either
        size = library.absolute(x)
        return dz.real * library.where(size == 0, 0, x / library.where(size == 0, 1, size))
    slopes: dict[str, Callable[[Any], Any]] = {
        "square": lambda x: 2 * x,
        "reciprocal": lambda x: -1 / (x * x),
        "log": lambda x: 1 / x,
        "sqrt": lambda x: 0.5 / library.sqrt(x),
        "sin": library.cos,
        "cos": lambda x: -library.sin(x),
        "sinh": library.cosh,
        "cosh": library.sinh,
        "tanh": lambda x: _of_tanh(library, x),
    }
    return dz * library.where(dz == 0, 0, slopes[name](x).conj())


def _of_tanh(library: Any, x: Any) -> Any:
    """`4 u / (1 + u)**2` with u = exp(-2 x) where x lies on the right, and tanh is odd: of `1 - tanh(x)**2` far out nothing is left."""
    u = library.exp(library.where(x.real > 0, -2 * x, 2 * x))
    return 4 * u / (1 + u) ** 2


def _unary_tangent(x: Any, dx: Any, dz: Any, name: str) -> None:
    """All but the absolute value are holomorphic, so that the derivative is the conjugate of what the reverse multiplies with."""
    if name == "absolute":
        dz[...] = (dx * _chained(name, library_of(x), x, library_of(x).ones_like(dx)).conj()).real
    else:
        dz[...] = _chained(name, library_of(x), x, dx.conj()).conj()


@rule(reads=("x",), overwrites=("z",), needs={"x": "before"}, reverse=_unary_reverse, tangent=_unary_tangent)
def _unary(x: Any, z: Any, name: str) -> None:
    getattr(library_of(z), name)(x, out=z, casting="same_kind")


def _exp_reverse(z: Any, dx: Any, dz: Any) -> None:
    if dx is not None:
        add_to(dx, dz * z.conj())


def _exp_tangent(z: Any, dx: Any, dz: Any) -> None:
    dz[...] = z * dx


@rule(reads=("x",), overwrites=("z",), needs={"z": "after"}, reverse=_exp_reverse, tangent=_exp_tangent)
def _exp(x: Any, z: Any) -> None:
    library_of(z).exp(x, out=z, casting="same_kind")


def _where_reverse(condition: Any, dx: Any, dy: Any, dz: Any) -> None:
    if dx is not None:
        add_to(dx, library_of(dz).where(condition, dz, 0))
    if dy is not None:
        add_to(dy, library_of(dz).where(condition, 0, dz))


@rule(reads=("condition", "x", "y"), overwrites=("z",), needs={"condition": "before"}, reverse=_where_reverse, linear=(("x", "y"),))
def _where(condition: Any, x: Any, y: Any, z: Any) -> None:
    z[...] = library_of(z).where(condition, x, y)


# --- what `elementwise.apply` calls ----------------------------------------------------------------------------------------------------

_LINEAR = ("copyto", "add", "subtract", "negative", "conjugate")
_UNARY = ("square", "reciprocal", "log", "sqrt", "sin", "cos", "sinh", "cosh", "tanh", "absolute")


def result_type(name: str, values: Any) -> np.dtype[Any]:
    """The type in which a complex operation is computed; UnsupportedError for what is not differentiated."""
    if name not in (*_LINEAR, *_UNARY, "multiply", "divide", "exp", "where", "axpy"):
        raise UnsupportedError(f"gpuad.ops.{name} takes real arrays, not complex ones")
    kinds = [v.dtype if hasattr(v, "dtype") else v for v in values[1 if name == "where" else 0 :]]
    found = np.dtype(np.result_type(*kinds))
    if name == "absolute":
        return np.empty(0, found).real.dtype
    return found if found.kind in "fc" else np.dtype(np.float64)


def run(name: str, inputs: list[Any], out: Any) -> None:
    """Records the operation; its inputs are apart from `out` or the same elements."""
    if any(isinstance(x, Active) for x in inputs):
        raise UnsupportedError(f"gpuad.ops.{name}: an Active number with complex arrays; put it into an array of shape ()")
    same = [_is_array(x) and same_elements(primal_of(x), primal_of(out)) for x in inputs]  # who says something else of it is apart
    if name == "axpy":
        _increase(_product(inputs[0], inputs[1], out), out, 1)
    elif same[0] and name in ("add", "subtract") and not same[1]:
        _increase(inputs[1], out, 1 if name == "add" else -1)
    elif name == "multiply" and sum(same) == 1:
        _scale(inputs[1 if same[0] else 0], out)
    elif any(same) and name != "copyto":
        between = _like(out, isinstance(out, Duplicated))
        _into(name, inputs, between)
        _linear(between, None, out, "copyto")
    elif not any(same):
        _into(name, inputs, out)


def _into(name: str, inputs: list[Any], out: Any) -> None:
    match name:
        case "multiply":
            _multiply(*inputs, out)
        case "divide":
            _divide(*inputs, out)
        case "exp":
            _exp(*inputs, out)
        case "where":
            _where(*inputs, out)
        case _ if name in _UNARY:
            _unary(*inputs, out, name)
        case _:
            _linear(*inputs, *[None] * (2 - len(inputs)), out, name)


def _product(a: Any, x: Any, out: Any) -> Any:
    array = _like(out, isinstance(a, Duplicated) or isinstance(x, Duplicated))
    _multiply(a, x, array)
    return array


def _is_array(x: Any) -> bool:
    array = primal_of(x)
    return hasattr(array, "strides") and not isinstance(array, np.generic)


def _like(out: Any, pair: bool) -> Any:
    array = new_array(primal_of(out), primal_of(out).shape, primal_of(out).dtype, active=pair)
    return temporary(array) if pair else array
