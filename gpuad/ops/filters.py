"""Linear filters of images, with the names of `scipy.ndimage`: a border by the mode, then one rule that sums shifted views by weights.

In: an array of any dimension, annotated or not; weights, which may be a pair too; modes 'reflect', 'constant', 'nearest', 'mirror', 'wrap'
and their grid names. Out: an array of the input's shape. `output`: None, a type, or an array or pair to be written. Nothing is saved for
constant weights. Raises UnsupportedError for what is not linear or not offered, ValueError for shapes that do not fit."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import is_array
from ..errors import ArgumentValueError, ShadowError
from ..public_calls import brief, named
from ..tape.rules import rule
from .adjoints import scipy_of
from .elementwise import apply
from .functions import astype
from .layout import axis_of, primal_of
from .parts import as_operand
from .plain_results import library_behind
from .rearranging import pad
from .reductions import result_for

_BORDERS = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge", "constant": "constant", "wrap": "wrap",
    "grid-constant": "constant", "grid-wrap": "wrap",
}  # fmt: skip


def windows(w: Any, shape: tuple[int, ...]) -> Any:
    """Each place in the weights, with the part of the array that it is multiplied with."""
    for place in itertools.product(*map(range, w.shape)):
        yield place, tuple(slice(k, k + n) for k, n in zip(place, shape, strict=True))


def _filter_reverse(x: Any, w: Any, dx: Any, dw: Any, dy: Any) -> None:
    for place, window in windows(w, dy.shape):
        if dx is not None:
            dx[window] += w[place] * dy
        if dw is not None:
            dw[place] += (x[window].conj() * dy).real.sum() if dy.dtype.kind == "c" else (x[window] * dy).sum()


@rule(reads=("x", "w"), overwrites=("y",), needs={"x": ("before", "w"), "w": "before"}, reverse=_filter_reverse, linear=(("x",), ("w",)))
def _filter(x: Any, w: Any, y: Any) -> None:
    y[...] = 0
    for place, window in windows(w, y.shape):
        y += w[place] * x[window]


def _filtered(name: str, input: Any, weights: Any, mode: Any, cval: float, origin: Any, output: Any = None) -> Any:
    input, weights = as_operand(name, input), as_operand(name, weights)
    shape = primal_of(input).shape
    if primal_of(weights).ndim != len(shape) or 0 in primal_of(weights).shape:
        raise ArgumentValueError(f"{name}: weights of shape {tuple(primal_of(weights).shape)} for an array of shape {tuple(shape)}")
    kind = np.result_type(primal_of(input).dtype, np.float32)
    input = input if primal_of(input).dtype == kind else astype(input, kind)
    weights = astype(weights, np.empty(0, kind).real.dtype, copy=False) if isinstance(weights, Duplicated) else weights
    input = bordered(name, input, primal_of(weights).shape, mode, cval, origin)
    out = result_for((input, weights), shape, kind)
    _filter(input, weights, out)
    return delivered(out, output)


def bordered(name: str, input: Any, window: Sequence[int], mode: Any, cval: float, origin: Any) -> Any:
    """The array with a border on which windows of this shape lie, one for each of its elements."""
    for axis, m in enumerate(window):
        low = m // 2 + of_axis(origin, axis)
        if not 0 <= low < m:
            raise ArgumentValueError(f"{name}: origin {brief(origin)} lies outside of the weights")
        chosen = of_axis(mode, axis)
        if chosen not in _BORDERS:
            raise ArgumentValueError(f"{name}: mode is one of {', '.join(map(repr, _BORDERS))}, not {brief(chosen)}")
        more = {"constant_values": cval} if _BORDERS[chosen] == "constant" else {}
        if m > 1:
            input = pad(input, [(low, m - 1 - low) if k == axis else (0, 0) for k in range(len(window))], mode=_BORDERS[chosen], **more)
    return input


def of_axis(x: Any, axis: int) -> Any:
    """The part for an axis of an argument that says it for each, or for all."""
    return x if isinstance(x, str | int | float) or np.ndim(x) == 0 else x[axis]


def delivered(found: Any, output: Any) -> Any:
    """The result as `output` asks for it."""
    if output is None:
        return found
    if isinstance(output, Duplicated) or is_array(output):
        return apply("copyto", found, out=output)
    return astype(found, output, copy=False)


def correlate(input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: float = 0.0, origin: Any = 0) -> Any:
    """The correlation with weights of as many dimensions, as `scipy.ndimage.correlate`; weights may be a pair."""
    return _filtered("correlate", input, weights, mode, cval, origin, output)


def turned(window: Any, origin: Any) -> tuple[Any, list[Any]]:
    """The window of a convolution as that of a correlation, with its origin along each axis."""
    shape = primal_of(window).shape
    return window[(slice(None, None, -1),) * len(shape)], [-of_axis(origin, k) - (1 - m % 2) for k, m in enumerate(shape)]


def convolve(input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: float = 0.0, origin: Any = 0) -> Any:
    """The convolution with weights of as many dimensions, as `scipy.ndimage.convolve`; weights may be a pair."""
    window, moved = turned(as_operand("convolve", weights), origin)
    return _filtered("convolve", input, window, mode, cval, moved, output)


def _along(name: str, input: Any, weights: Any, axis: int) -> tuple[int, Any]:
    ndim = primal_of(as_operand(name, input)).ndim
    axis = axis_of(name, axis, ndim)
    weights = as_operand(name, weights)
    if primal_of(weights).ndim != 1:
        raise ArgumentValueError(f"{name}: weights are a vector, not of shape {tuple(primal_of(weights).shape)}")
    return axis, weights.reshape([-1 if k == axis else 1 for k in range(ndim)])


def correlate1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: int = 0
) -> Any:
    """The correlation with a vector along an axis, as `scipy.ndimage.correlate1d`."""
    axis, shaped = _along("correlate1d", input, weights, axis)
    at = [origin if k == axis else 0 for k in range(primal_of(shaped).ndim)]
    return _filtered("correlate1d", input, shaped, mode, cval, at, output)


def convolve1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: int = 0
) -> Any:
    """The convolution with a vector along an axis, as `scipy.ndimage.convolve1d`."""
    weights = as_operand("convolve1d", weights)
    even = 1 - primal_of(weights).shape[0] % 2
    return correlate1d(input, weights[::-1], axis, output, mode, cval, -origin - even)


def _gaussian(sigma: float, order: int, radius: int) -> Any:
    """The weights of a Gaussian or of its derivative, for a correlation."""
    x = np.arange(-radius, radius + 1)
    phi = np.exp(-0.5 / (sigma * sigma) * x**2)
    phi /= phi.sum()
    q = np.polynomial.Polynomial([1.0])
    for _ in range(order):  # (q phi)' = (q' - x q / sigma^2) phi
        q = q.deriv() - np.polynomial.Polynomial([0.0, 1.0 / sigma**2]) * q
    return (q(x) * phi)[::-1]


def gaussian_filter1d(
    input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None, mode: str = "reflect", cval: float = 0.0,
    truncate: float = 4.0, *, radius: int | None = None,
) -> Any:  # fmt: skip
    """A Gaussian filter along an axis, or its derivative of an order, as `scipy.ndimage.gaussian_filter1d`; sigma has no gradient."""
    if isinstance(sigma, Duplicated) or not isinstance(sigma, int | float | np.number):
        raise ShadowError("gaussian_filter: sigma is a number without a gradient; form the weights yourself and use correlate1d")
    reach = int(truncate * float(sigma) + 0.5) if radius is None else int(radius)
    weights = library_behind([input]).asarray(_gaussian(float(sigma), order, reach).copy())
    return correlate1d(input, weights, axis, output, mode, cval)


def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect", cval: float = 0.0, truncate: float = 4.0, *,
    radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    """A Gaussian filter along all axes, as `scipy.ndimage.gaussian_filter`; sigma has no gradient."""
    found = as_operand("gaussian_filter", input)
    along = range(primal_of(found).ndim) if axes is None else [axes] if isinstance(axes, int) else list(axes)
    for k, axis in enumerate(along):
        if isinstance(sigma, Duplicated) or float(of_axis(sigma, k)) > 1e-15:
            chosen = sigma if isinstance(sigma, Duplicated) else of_axis(sigma, k)
            reach = None if radius is None else of_axis(radius, k)
            found = gaussian_filter1d(found, chosen, axis, of_axis(order, k), None, of_axis(mode, k), cval, truncate, radius=reach)
    return delivered(found if found is not input else apply("copyto", found), output)


def uniform_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: int = 0
) -> Any:
    """The mean over a window along an axis, as `scipy.ndimage.uniform_filter1d`."""
    return correlate1d(input, library_behind([input]).asarray(np.full(size, 1.0 / size)), axis, output, mode, cval, origin)


def uniform_filter(input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: float = 0.0, origin: Any = 0) -> Any:
    """The mean over a window, as `scipy.ndimage.uniform_filter`."""
    found = as_operand("uniform_filter", input)
    for k in range(primal_of(found).ndim):
        found = uniform_filter1d(found, int(of_axis(size, k)), k, None, of_axis(mode, k), cval, of_axis(origin, k))
    return delivered(found, output)


def laplace(input: Any, output: Any = None, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """The sum of second differences, as `scipy.ndimage.laplace`."""
    library, ndim = library_behind([input]), primal_of(as_operand("laplace", input)).ndim
    weights = library.asarray(np.array([1.0, -2.0, 1.0]))
    found = None
    for axis in range(ndim):
        term = correlate1d(input, weights, axis, None, of_axis(mode, axis), cval)
        found = term if found is None else apply("add", found, term)
    return delivered(found, output)


def gaussian_laplace(input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: float = 0.0, **keywords: Any) -> Any:
    """The sum of second derivatives of a Gaussian filter, as `scipy.ndimage.gaussian_laplace`."""
    return delivered(functools.reduce(lambda a, b: apply("add", a, b), _derivatives(2, input, sigma, mode, cval, keywords)), output)


def gaussian_gradient_magnitude(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: float = 0.0, **keywords: Any
) -> Any:
    """The length of the gradient of a Gaussian filter, as `scipy.ndimage.gaussian_gradient_magnitude`."""
    squares = [apply("multiply", d, d) for d in _derivatives(1, input, sigma, mode, cval, keywords)]
    return delivered(apply("sqrt", functools.reduce(lambda a, b: apply("add", a, b), squares)), output)


def _derivatives(order: int, input: Any, sigma: Any, mode: Any, cval: float, keywords: Any) -> list[Any]:
    n = primal_of(as_operand("gaussian_filter", input)).ndim
    return [gaussian_filter(input, sigma, [order * (k == axis) for k in range(n)], None, mode, cval, **keywords) for axis in range(n)]


def _fourier(name: str) -> Callable[..., Any]:
    """A filter of a spectrum, which is a product with what it makes of ones."""

    def function(input: Any, by: Any, n: int = -1, axis: int = -1, output: Any = None) -> Any:
        input = as_operand(name, input)
        if isinstance(by, Duplicated):
            raise ShadowError(f"{name}: its second argument has no gradient here; write the product with the filter yourself")
        ones = library_behind([input]).ones(primal_of(input).shape, primal_of(input).dtype)
        return delivered(apply("multiply", input, getattr(scipy_of(ones, "ndimage"), name)(ones, by, n, axis)), output)

    return named(function, name, f"As `scipy.ndimage.{name}`.")


def _slope(name: str, across: Sequence[float]) -> Callable[..., Any]:
    """`sobel` and `prewitt`: a difference along an axis, smoothed along the others."""

    def function(input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: float = 0.0) -> Any:
        library, ndim = library_behind([input]), primal_of(as_operand(name, input)).ndim
        axis = axis_of(name, axis, ndim)
        found = correlate1d(input, library.asarray(np.array([-1.0, 0.0, 1.0])), axis, None, of_axis(mode, axis), cval)
        for k in (k for k in range(ndim) if k != axis):
            found = correlate1d(found, library.asarray(np.array(across)), k, None, of_axis(mode, k), cval)
        return delivered(found, output)

    return named(function, name, f"As `scipy.ndimage.{name}`.")


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    convolve, convolve1d, correlate, correlate1d, gaussian_filter, gaussian_filter1d, laplace, uniform_filter, uniform_filter1d,
    _slope("sobel", (1.0, 2.0, 1.0)), _slope("prewitt", (1.0, 1.0, 1.0)), gaussian_laplace, gaussian_gradient_magnitude,
    *map(_fourier, ("fourier_gaussian", "fourier_uniform", "fourier_shift", "fourier_ellipsoid")),
)  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {f"ndimage.{f.__name__}": f for f in _FUNCTIONS}
