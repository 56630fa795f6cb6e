"""Values between the elements of an array, with the names of `scipy.ndimage`: by the nearest element, linear, or cubic splines.

In: an array of any dimension and coordinates, either of which may carry a gradient; for `shift`, `zoom`, `rotate` and `affine_transform`
what the coordinates are made of. Modes 'constant', 'nearest', 'mirror', 'reflect' and 'grid-wrap'. Out: a new array, a pair if an operand
carries a gradient; `output` as for filters. The coefficients of splines are products with constant matrices. At places where a weight has a
kink the gradient is that of one side.

Raises UnsupportedError for splines of other orders and other modes, ValueError for shapes that do not fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Duplicated
from ..errors import ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..tape.rules import rule
from .adjoints import library_of
from .elementwise import apply
from .filters import delivered
from .functions import astype
from .indexing import add_at
from .joining import stack
from .layout import primal_of
from .linear import matmul
from .parts import as_operand
from .plain_results import bare, library_behind
from .rearranging import pad
from .reductions import result_for
from .views import broadcast_to, moveaxis, reshape

_MODES = ("constant", "nearest", "mirror", "reflect", "grid-wrap")


def _folded(at: Any, n: int, mode: str) -> tuple[Any, Any, Any]:
    """Coordinates inside of an axis, their slopes, and where they lie outside."""
    library = library_of(at)
    outside = (at < 0) | (at > n - 1) if mode == "constant" else None
    if mode in ("constant", "nearest"):
        return library.clip(at, 0, n - 1), ((at >= 0) & (at <= n - 1)).astype(at.dtype), outside
    if mode == "grid-wrap":
        return at % n, library.ones_like(at), None
    shift, period = (0.5, 2 * n) if mode == "reflect" else (0.0, 2 * max(n - 1, 1))
    place = (at + shift) % period
    back = place > period / 2
    return library.where(back, period - place, place) - shift, library.where(back, -1.0, 1.0).astype(at.dtype), None


def _taps(at: Any, n: int, order: int, mode: str) -> tuple[list[tuple[Any, Any, Any]], Any]:
    """Of an axis: places, weights and slopes of weights; and where coordinates lie outside."""
    library = library_of(at)
    at, slope, outside = _folded(at, n, mode)
    start = library.floor(at + 0.5) if order == 0 else library.floor(at)
    t = at - start
    if order == 0:
        weights = [(0, library.ones_like(t), library.zeros_like(t))]
    elif order == 1:
        weights = [(0, 1 - t, -library.ones_like(t)), (1, t, library.ones_like(t))]
    else:
        s = 1 - t
        weights = [
            (-1, s * s * s / 6, -s * s / 2), (0, (3 * t * t * t - 6 * t * t + 4) / 6, (3 * t * t - 4 * t) / 2),
            (1, (3 * s * s * s - 6 * s * s + 4) / 6, (4 * s - 3 * s * s) / 2), (2, t * t * t / 6, t * t / 2),
        ]  # fmt: skip
    first = start.astype(np.int64)
    return [(_inside(first + k, n, mode), w, dw * slope) for k, w, dw in weights], outside


def _inside(place: Any, n: int, mode: str) -> Any:
    """Places beyond an end as those that they stand for."""
    library = library_of(place)
    if mode == "grid-wrap":
        return place % n
    if mode == "reflect":
        place = place % (2 * n)
        return library.minimum(place, 2 * n - 1 - place)
    period = 2 * max(n - 1, 1)
    place = place % period
    return library.minimum(place, period - place) if n > 1 else place * 0


def _corners(shape: Sequence[int], coordinates: Any, order: int, mode: str) -> tuple[Any, list[Any]]:
    axes, beyond = [], []
    for at, n in zip(coordinates, shape, strict=True):
        taps, outside = _taps(at, n, order, mode)
        axes.append(taps)
        beyond += [outside] if outside is not None else []
    return itertools.product(*axes), beyond


def _interpolate_reverse(
    x: Any, coordinates: Any, dx: Any, dcoordinates: Any, dy: Any, order: int, mode: str, cval: float
) -> None:  # fmt: skip
    corners, beyond = _corners((dx if x is None else x).shape, coordinates, order, mode)
    seed = dy
    for outside in beyond:
        seed = library_of(dy).where(outside, 0, seed)
    for corner in corners:
        place = tuple(p for p, _, _ in corner)
        if dx is not None:
            add_at(dx, place, math.prod((w for _, w, _ in corner), start=seed))
        for axis in range(len(corner)) if dcoordinates is not None else ():
            part = math.prod((dw if k == axis else w for k, (_, w, dw) in enumerate(corner)), start=seed * x[place].conj())
            dcoordinates[axis] += part.real


@rule(
    reads=("x", "coordinates"), overwrites=("y",), needs={"x": ("before", "coordinates"), "coordinates": "before"},
    reverse=_interpolate_reverse,
)  # fmt: skip
def _interpolate(x: Any, coordinates: Any, y: Any, order: int, mode: str, cval: float) -> None:
    corners, beyond = _corners(x.shape, coordinates, order, mode)
    total: Any = 0
    for corner in corners:
        total = total + math.prod((w for _, w, _ in corner), start=x[tuple(p for p, _, _ in corner)])
    for outside in beyond:
        total = library_of(y).where(outside, cval, total)
    y[...] = total


_MARGIN = 12  # elements by which an array is prolonged for splines whose mode is 'nearest', as SciPy does


@lru_cache(maxsize=64)
def _coefficients(n: int, mode: str) -> Any:
    """The matrix that makes coefficients of cubic splines of the values along an axis."""
    values = np.zeros((n, n))
    for k in range(n):
        for place, weight in zip(_inside(np.arange(k - 1, k + 2), n, mode), (1 / 6, 4 / 6, 1 / 6), strict=True):
            values[k, place] += weight
    return np.linalg.inv(values)


def _spline(x: Any, mode: str) -> Any:
    """The coefficients of cubic splines through an array."""
    for axis, n in enumerate(primal_of(x).shape):
        if n > 1:
            matrix = library_behind([x]).asarray(_coefficients(n, mode).astype(primal_of(x).real.dtype))
            moved = moveaxis(x, axis, -1)
            rows = matmul(reshape(moved, (-1, n)), matrix.T)
            x = moveaxis(reshape(rows, primal_of(moved).shape), -1, axis)
    return x


def map_coordinates(
    input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0, prefilter: bool = True
) -> Any:
    """The values of an array at coordinates (ndim, ...), as `scipy.ndimage.map_coordinates`, for the orders 0, 1 and 3."""
    if order not in (0, 1, 3):
        raise UnsupportedError(f"map_coordinates: order is 0, 1 or 3, not {brief(order)}")
    if mode not in _MODES:
        raise UnsupportedError(f"map_coordinates: mode is one of {', '.join(map(repr, _MODES))}, not {brief(mode)}")
    input, coordinates = as_operand("map_coordinates", input), as_operand("map_coordinates", coordinates)
    shape = primal_of(coordinates).shape
    if not shape or shape[0] != primal_of(input).ndim:
        raise ArgumentValueError(f"map_coordinates: coordinates of shape {tuple(shape)} for an array of {primal_of(input).ndim} axes")
    kind = np.result_type(primal_of(input).dtype, np.float32)
    real = np.result_type(np.empty(0, kind).real.dtype, primal_of(coordinates).dtype, np.float32)
    input, coordinates = (x if primal_of(x).dtype == t else astype(x, t) for x, t in ((input, kind), (coordinates, real)))
    if order == 3 and prefilter:
        if mode == "nearest":
            input, coordinates = pad(input, _MARGIN, mode="edge"), apply("add", coordinates, float(_MARGIN))
        input = _spline(input, mode)
    out = result_for((input, coordinates), tuple(shape[1:]), kind)
    _interpolate(input, coordinates, out, order, mode, float(cval))
    return delivered(out, output)


def _grid(shape: Sequence[int], library: Any) -> Any:
    return library.asarray(np.indices(tuple(shape)).astype(np.float64))


def _sampled(name: str, input: Any, coordinates: Any, output: Any, order: int, mode: str, cval: float, prefilter: bool) -> Any:
    try:
        return map_coordinates(input, coordinates, output, order, mode, cval, prefilter)
    except UnsupportedError as error:
        raise UnsupportedError(str(error).replace("map_coordinates", name)) from None


def shift(
    input: Any, shift: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0, prefilter: bool = True
) -> Any:
    """The array moved by numbers of elements, which may carry a gradient, as `scipy.ndimage.shift`."""
    input = as_operand("shift", input)
    library, shape = library_behind([input]), primal_of(input).shape
    by = as_operand("shift", shift)
    by = broadcast_to(by, (len(shape),)) if primal_of(by).ndim == 0 else by
    coordinates = apply("subtract", _grid(shape, library), reshape(by, (-1, *[1] * len(shape))))
    return _sampled("shift", input, coordinates, output, order, mode, cval, prefilter)


def zoom(
    input: Any, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0, prefilter: bool = True
) -> Any:
    """The array at another number of places between its ends, as `scipy.ndimage.zoom`."""
    input = as_operand("zoom", input)
    shape = primal_of(input).shape
    factors = np.broadcast_to(np.asarray(bare(zoom), float), (len(shape),))
    sizes = [round(n * float(f)) for n, f in zip(shape, factors, strict=True)]
    places = [np.linspace(0, n - 1, m) for n, m in zip(shape, sizes, strict=True)]
    grid = library_behind([input]).asarray(np.stack(np.meshgrid(*places, indexing="ij")))
    return _sampled("zoom", input, grid, output, order, mode, cval, prefilter)


def affine_transform(
    input: Any, matrix: Any, offset: Any = 0.0, output_shape: Any = None, output: Any = None, order: int = 3, mode: str = "constant",
    cval: float = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    """The array at `matrix @ place + offset`, either of which may carry a gradient, as `scipy.ndimage.affine_transform`."""
    input, matrix, offset = (as_operand("affine_transform", x) for x in (input, matrix, offset))
    library, ndim = library_behind([input]), primal_of(input).ndim
    shape = tuple(primal_of(input).shape if output_shape is None else output_shape)
    sizes = tuple(primal_of(matrix).shape)
    if sizes in ((ndim, ndim + 1), (ndim + 1, ndim + 1)):
        matrix, offset = matrix[:ndim, :ndim], matrix[:ndim, ndim]
    elif sizes not in ((ndim, ndim), (ndim,)):
        raise ArgumentValueError(f"affine_transform: a matrix of shape {sizes} for an array of {ndim} axes")
    places = reshape(_grid(shape, library), (ndim, -1))
    moved = apply("multiply", reshape(matrix, (ndim, 1)), places) if primal_of(matrix).ndim == 1 else matmul(matrix, places)
    by = offset if primal_of(offset).ndim == 0 else reshape(offset, (ndim, 1))
    coordinates = reshape(apply("add", moved, by), (ndim, *shape))
    return _sampled("affine_transform", input, coordinates, output, order, mode, cval, prefilter)


def rotate(
    input: Any, angle: Any, axes: tuple[int, int] = (1, 0), reshape: bool = True, output: Any = None, order: int = 3,
    mode: str = "constant", cval: float = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    """The array turned in a plane by an angle in degrees, which may carry a gradient, as `scipy.ndimage.rotate`."""
    input = as_operand("rotate", input)
    library, ndim = library_behind([input]), primal_of(input).ndim
    one, two = sorted(k % ndim for k in axes)
    radians = apply("deg2rad", angle) if isinstance(angle, Duplicated | Active) else math.radians(float(angle))
    c, s = (apply(name, radians) if isinstance(radians, Duplicated) else getattr(math, name)(radians) for name in ("cos", "sin"))
    known = np.array([[float(bare(c)), float(bare(s))], [-float(bare(s)), float(bare(c))]])
    inner = np.array([primal_of(input).shape[one], primal_of(input).shape[two]])
    outer = inner
    if reshape:
        corners = known @ np.array([[0, 0, inner[0], inner[0]], [0, inner[1], 0, inner[1]]])
        outer = (np.ptp(corners, axis=1) + 0.5).astype(int)
    shape = list(primal_of(input).shape)
    shape[one], shape[two] = int(outer[0]), int(outer[1])
    grid = _grid(shape, library)
    v, u = (grid[k] - (n - 1) / 2 for k, n in ((one, outer[0]), (two, outer[1])))
    turned = {
        one: apply("add", apply("add", apply("multiply", v, c), apply("multiply", u, s)), float((inner[0] - 1) / 2)),
        two: apply("add", apply("subtract", apply("multiply", u, c), apply("multiply", v, s)), float((inner[1] - 1) / 2)),
    }
    coordinates = stack([turned.get(k, grid[k]) for k in range(ndim)])
    return _sampled("rotate", input, coordinates, output, order, mode, cval, prefilter)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (affine_transform, map_coordinates, rotate, shift, zoom)
TABLE: dict[str, Callable[..., Any]] = {f"ndimage.{f.__name__}": f for f in _FUNCTIONS}
