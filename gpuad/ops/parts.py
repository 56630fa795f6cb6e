"""Parts of arrays and arrays put together: views, diagonals, triangles, tiles, grids, stacks, and angles of complex numbers.

In: what NumPy's function of that name takes, with pairs among the arrays. Out: a view or a list of views where NumPy gives one, else a new
array, a pair if an operand carries a gradient, by recorded copies.

Raises TapeError for a pair outside of a tape, UnsupportedError for what is not differentiated, ValueError for shapes that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import is_array
from ..errors import ArgumentValueError
from ..public_calls import brief, named
from .adjoints import library_of
from .elementwise import apply
from .functions import arctan2, copy, multiply
from .indexing import take
from .joining import concatenate, roll
from .layout import array_of, axes_of, axis_of, primal_of
from .plain_results import bare, library_behind
from .reductions import result_for, sum
from .views import broadcast_to, expand_dims, imag, real, reshape, transpose, view


def as_operand(name: str, x: Any) -> Any:
    """An operand as an array, annotated or not: lists of numbers and numbers as the library makes one of them."""
    return x if isinstance(x, Duplicated) or is_array(x) else library_behind([x]).asarray(array_or_refused(name, x))


def array_or_refused(name: str, x: Any) -> Any:
    if not isinstance(x, bool | int | float | complex | np.generic | list | tuple):
        array_of(name, x)
    return x


def part(x: Any, axis: int, key: Any) -> Any:
    """`x[..., key, ...]` at an axis, as a view."""
    return view(x, lambda a: a[(*[slice(None)] * axis, key, ...)])


def conjugated(x: Any) -> Any:
    return apply("conjugate", x) if primal_of(x).dtype.kind == "c" else x


def builtin_max(*numbers: int) -> int:
    return sorted(numbers)[-1]


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of complex numbers, in radians or degrees, as `numpy.angle`; at 0 the gradient is 0."""
    z = as_operand("angle", z)
    if primal_of(z).dtype.kind != "c":
        return library_behind([z]).angle(bare(z), deg)  # 0 or pi
    found = arctan2(imag(z), real(z))
    return multiply(found, 180 / math.pi) if deg else found


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """The sum of a diagonal, as `numpy.trace`."""
    return sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The view of a diagonal, as `numpy.diagonal`; of a pair it may be written to."""
    ndim = array_of("diagonal", a).ndim
    one, two = (axis_of("diagonal", axis, ndim) for axis in (axis1, axis2))
    if one == two:
        raise ArgumentValueError("diagonal: axis1 and axis2 are two axes")

    def take_view(array: Any) -> Any:
        moved = library_of(array).moveaxis(array, (one, two), (-2, -1))
        moved = moved[..., : moved.shape[-2], offset:] if offset >= 0 else moved[..., -offset:, :]
        n = builtin_min(moved.shape[-2:])
        square = moved[..., :n, :n]
        if isinstance(array, np.ndarray):
            return np.einsum("...ii->...i", square)  # may be written to
        *outer, one_step, other_step = square.strides
        return library_of(array).lib.stride_tricks.as_strided(square, square.shape[:-1], (*outer, one_step + other_step))

    return view(a, take_view)


def builtin_min(numbers: Sequence[int]) -> int:
    return sorted(numbers)[0]


def diag(v: Any, k: int = 0) -> Any:
    """A matrix with a vector as its k-th diagonal, or a copy of that diagonal of a matrix, as `numpy.diag`."""
    v = as_operand("diag", v)
    if primal_of(v).ndim == 2:
        return copied_plainly(diagonal(v, k))
    if primal_of(v).ndim != 1:
        raise ArgumentValueError(f"diag takes a vector or a matrix, not an array of shape {tuple(primal_of(v).shape)}")
    n = primal_of(v).size + abs(k)
    out = result_for((v,), (n, n), primal_of(v).dtype)
    apply("copyto", 0, out=out)
    if primal_of(v).size:
        apply("copyto", v, out=diagonal(out, k))
    return out


def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with the elements of an array as its k-th diagonal, as `numpy.diagflat`."""
    return diag(reshape(as_operand("diagflat", v), -1), k)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Views of parts along an axis, as `numpy.array_split`."""
    axis = axis_of("array_split", axis, array_of("array_split", ary).ndim)
    n = primal_of(ary).shape[axis]
    if np.ndim(indices_or_sections):
        ends = [int(k) for k in indices_or_sections]
    else:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ArgumentValueError("array_split: the number of parts is 1 or more")
        each, extra = divmod(n, sections)
        ends = [each * k + builtin_min((k, extra)) for k in range(1, sections)]
    return [part(ary, axis, slice(low, high)) for low, high in zip([0, *ends], [*ends, n], strict=True)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Views of equal parts, or of those between places, as `numpy.split`."""
    n = array_of("split", ary).shape[axis_of("split", axis, array_of("split", ary).ndim)]
    if np.ndim(indices_or_sections) == 0 and n % int(indices_or_sections):
        raise ArgumentValueError("split: the parts do not come out equal")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Views of parts along the second axis, of a vector along the first, as `numpy.hsplit`."""
    return split(ary, indices_or_sections, 1 if array_of("hsplit", ary).ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Views of parts along the first axis, as `numpy.vsplit`."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Views of parts along the third axis, as `numpy.dsplit`."""
    return split(ary, indices_or_sections, 2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The views along an axis, one by one, as `numpy.unstack`."""
    axis = axis_of("unstack", axis, array_of("unstack", x).ndim)
    return tuple(part(x, axis, k) for k in range(primal_of(x).shape[axis]))


def at_least(ndim: int) -> Callable[..., Any]:
    """`atleast_1d`, `atleast_2d`, `atleast_3d`."""
    name = f"atleast_{ndim}d"

    def function(*arys: Any) -> Any:
        found = tuple(view(as_operand(name, a), lambda p: getattr(library_of(p), name)(p)) for a in arys)
        return found[0] if len(found) == 1 else found

    return named(function, name, f"Views with {ndim} axes or more, as `numpy.{name}`.")


def viewing(name: str) -> Callable[..., Any]:
    """A function of the library that gives a view of its first argument."""

    def function(m: Any, *args: Any, **keywords: Any) -> Any:
        array_of(name, m)
        return view(m, lambda p: getattr(library_of(p), name)(p, *args, **keywords))

    return named(function, name, f"The view that `numpy.{name}` gives.")


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Views of one shape, as `numpy.broadcast_arrays`; those of pairs add up their gradients."""
    arrays = [as_operand("broadcast_arrays", a) for a in args]
    shape = np.broadcast_shapes(*(primal_of(a).shape for a in arrays))
    return tuple(broadcast_to(a, shape) for a in arrays)


def stacked(name: str, ndim: int, axis: int) -> Callable[..., Any]:
    """`vstack`, `hstack`, `dstack`, `column_stack`: arrays with `ndim` axes or more, one after the other along an axis."""

    def function(tup: Any) -> Any:
        if isinstance(tup, Duplicated):
            tup = list(tup)
        arrays = [as_operand(name, x) for x in tup]
        along = 0 if name == "hstack" and all(primal_of(x).ndim < 2 for x in arrays) else axis
        raised = [transpose(at_least(2)(x)) if name == "column_stack" and primal_of(x).ndim < 2 else at_least(ndim)(x) for x in arrays]
        return concatenate(raised, along)

    return named(function, name, f"The arrays beside each other, as `numpy.{name}`.")


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """One array after the other along an axis, or their elements, as `numpy.append`."""
    return concatenate([as_operand("append", arr), as_operand("append", values)], axis)


def tile(A: Any, reps: Any) -> Any:
    """The array again and again along its axes, as `numpy.tile`."""
    A = as_operand("tile", A)
    counts = [int(n) for n in (reps if np.ndim(reps) else (reps,))]
    ndim = builtin_max(primal_of(A).ndim, len(counts))
    counts = [1] * (ndim - len(counts)) + counts
    lengths = [1] * (ndim - primal_of(A).ndim) + [int(n) for n in primal_of(A).shape]
    spread = reshape(A, tuple(m for n in lengths for m in (1, n)))
    whole = broadcast_to(spread, tuple(m for pair in zip(counts, lengths, strict=True) for m in pair))
    return reshape(copied_plainly(whole), tuple(c * n for c, n in zip(counts, lengths, strict=True)))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element several times along an axis, as `numpy.repeat`."""
    a = as_operand("repeat", a)
    if axis is None:
        a, axis = reshape(a, -1), 0
    axis = axis_of("repeat", axis, primal_of(a).ndim)
    shape = primal_of(a).shape
    if np.size(bare(repeats)) > 1:
        library = library_behind([a])
        return take(a, library.repeat(library.arange(shape[axis]), bare(repeats)), axis)
    count = int(np.reshape(repeats, ()))
    whole = broadcast_to(expand_dims(a, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return reshape(copied_plainly(whole), (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


def triangle(name: str) -> Callable[..., Any]:
    """`tril` and `triu`."""

    def function(m: Any, k: int = 0) -> Any:
        m = as_operand(name, m)
        library, shape = library_behind([m]), primal_of(m).shape[-2:]
        return apply("where", getattr(library, name)(library.ones(shape, bool), k), m, 0.0 if primal_of(m).dtype.kind in "fc" else 0)

    return named(function, name, f"A triangle of matrices, zeros beside it, as `numpy.{name}`.")


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinates of a grid, as `numpy.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ArgumentValueError(f"meshgrid: indexing is 'xy' or 'ij', not {brief(indexing)}")
    vectors = [reshape(as_operand("meshgrid", x), -1) for x in xi]
    ndim = len(vectors)
    order = (1, 0, *range(2, ndim)) if indexing == "xy" and ndim > 1 else tuple(range(ndim))
    shaped = [reshape(v, tuple(-1 if i == order[k] else 1 for i in range(ndim))) for k, v in enumerate(vectors)]
    if not sparse:
        shape = np.broadcast_shapes(*(primal_of(v).shape for v in shaped))
        shaped = [broadcast_to(v, shape) for v in shaped]
    return tuple(copied_plainly(v) if copy else v for v in shaped)


def copied_plainly(x: Any) -> Any:
    return copy(x) if isinstance(x, Duplicated) else x.copy()


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """The view turned by quarters, as `numpy.rot90`."""
    return view(m, lambda p: library_of(p).rot90(p, k, axes))


def shifted(name: str, sign: int) -> Callable[..., Any]:
    """`fftshift` and `ifftshift`."""

    def function(x: Any, axes: Any = None) -> Any:
        shape = array_of(name, x).shape
        along = axes_of(name, axes, len(shape))
        return roll(x, [sign * (shape[a] // 2) if sign > 0 else -(shape[a] // 2) for a in along], along)

    return named(function, name, f"The spectrum with its zero frequency moved, as `numpy.fft.{name}`.")


def _last_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """As `numpy.linalg.diagonal`: of the last two axes."""
    return diagonal(x, offset, -2, -1)


def _last_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """As `numpy.linalg.trace`: over the last two axes."""
    return trace(x, offset, -2, -1, dtype)


_VIEWS = ("flipud", "fliplr", "matrix_transpose", "rollaxis", "permute_dims")
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    angle, append, array_split, broadcast_arrays, diag, diagflat, diagonal, dsplit, hsplit, meshgrid, repeat, rot90, split, tile, trace,
    unstack, vsplit, stacked("vstack", 2, 0), stacked("hstack", 1, 1), stacked("dstack", 3, 2), stacked("column_stack", 2, 1),
    stacked("row_stack", 2, 0), triangle("tril"), triangle("triu"), *map(at_least, (1, 2, 3)), *map(viewing, _VIEWS),
)  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {f.__name__: f for f in _FUNCTIONS} | {
    "fft.fftshift": shifted("fftshift", 1), "fft.ifftshift": shifted("ifftshift", -1),
    "linalg.matrix_transpose": viewing("matrix_transpose"),
    "linalg.diagonal": _last_diagonal, "linalg.trace": _last_trace,
}  # fmt: skip
