"""Functions that consist of others: differences, products, angles, views, grids. What they are made of is recorded.

In: what NumPy's function of that name takes, with pairs among the arrays. Out: a new array, a pair if an operand carries a gradient; for
some a view, or a list of views. The arguments have NumPy's names; what is not offered has no parameter, and is refused by its name.

Raises TapeError for a pair outside of a tape, UnsupportedError for what is not differentiated, ValueError for shapes that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import is_array, namespace
from ..errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .functions import add, arctan2, copy, divide, multiply, subtract
from .indexing import take
from .joining import concatenate, roll, stack
from .layout import array_of, axes_of, axis_of, primal_of
from .linear import matmul
from .plain_results import bare, library_behind
from .reductions import result_for, sum
from .views import broadcast_to, expand_dims, flip, imag, moveaxis, ravel, real, reshape, transpose, view


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


# --- differences and integrals -----------------------------------------------------------------------------------------------------------


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The n-th difference along an axis, as `numpy.diff`."""
    axis = axis_of("diff", axis, array_of("diff", a).ndim)
    if n < 0:
        raise ArgumentValueError(f"diff: n is 0 or more, not {n}")
    edges = [_edge(x, a, axis) for x in (prepend, append)]
    a = concatenate([x for x in (edges[0], a, edges[1]) if x is not None], axis) if any(e is not None for e in edges) else a
    for _ in range(n):
        high, low = part(a, axis, slice(1, None)), part(a, axis, slice(None, -1))
        a = np.not_equal(high, low) if primal_of(a).dtype == bool else subtract(high, low)
    return a


def _edge(x: Any, like: Any, axis: int) -> Any:
    if x is None:
        return None
    x = as_operand("diff", x)
    shape = primal_of(like).shape
    return broadcast_to(x, (*shape[:axis], 1, *shape[axis + 1 :])) if primal_of(x).ndim == 0 else x


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours of the flat array, as `numpy.ediff1d`."""
    found = diff(ravel(ary))
    ends = [None if x is None else reshape(as_operand("ediff1d", x), -1) for x in (to_begin, to_end)]
    return concatenate([x for x in (ends[0], found, ends[1]) if x is not None]) if ends != [None, None] else found


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences, one-sided at the edges, as `numpy.gradient`; the distances are numbers or coordinates, without a gradient."""
    ndim = array_of("gradient", f).ndim
    along = axes_of("gradient", axis, ndim)
    steps = list(varargs) * (len(along) if len(varargs) == 1 else 1) or [1.0] * len(along)
    if len(steps) != len(along):
        raise ArgumentTypeError(f"gradient: {len(steps)} distances for {len(along)} axes")
    found = [_slopes(f, a, h, edge_order) for a, h in zip(along, steps, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slopes(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Along one axis."""
    if isinstance(step, Duplicated):
        raise UnsupportedError("gradient: distances carry no gradient here; pass `.primal`")
    if edge_order not in (1, 2) or primal_of(f).shape[axis] < edge_order + 1:
        raise ArgumentValueError(f"gradient: edge_order is 1 or 2, and an axis has more elements than that, not {primal_of(f).shape[axis]}")
    library = namespace(primal_of(f))
    widths = step if np.ndim(step) == 0 else library.diff(library.asarray(step))
    uniform = np.ndim(step) == 0
    one, two = (widths, widths) if uniform else (widths[:-1], widths[1:])
    first, last = (widths, widths) if uniform else (float(widths[0]), float(widths[-1]))
    inside = [part(f, axis, slice(k, n)) for k, n in ((None, -2), (1, -1), (2, None))]
    if uniform:
        middle = divide(subtract(inside[2], inside[0]), 2.0 * widths)
    else:
        shape = [-1 if k == axis else 1 for k in range(primal_of(f).ndim)]
        ratios = [-two / (one * (one + two)), (two - one) / (one * two), one / (two * (one + two))]
        middle = _weighted(inside, [r.reshape(shape) for r in ratios])
    edges = [
        [part(f, axis, slice(k, k + 1 or None)) for k in places] for places in ((0, 1, 2)[: edge_order + 1], (-3, -2, -1)[2 - edge_order :])
    ]
    if edge_order == 1:
        ends = [divide(subtract(e[1], e[0]), h) for e, h in zip(edges, (first, last), strict=True)]
    else:
        second, before = (widths, widths) if uniform else (float(widths[1]), float(widths[-2]))
        ends = [_weighted(edges[0], _one_sided(first, second)), _weighted(edges[1], [-w for w in _one_sided(last, before)[::-1]])]
    return concatenate([ends[0], middle, ends[1]], axis)


def _one_sided(near: float, far: float) -> list[float]:
    """The weights of three neighbours for the slope at the first of them."""
    return [-(2 * near + far) / (near * (near + far)), (near + far) / (near * far), -near / (far * (near + far))]


def _weighted(parts: Sequence[Any], weights: Sequence[Any]) -> Any:
    terms = [multiply(p, w) for p, w in zip(parts, weights, strict=True)]
    return add(add(terms[0], terms[1]), terms[2])


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral by the trapezoidal rule, as `numpy.trapezoid`."""
    y = as_operand("trapezoid", y)
    axis = axis_of("trapezoid", axis, primal_of(y).ndim)
    if x is None:
        width = dx
    elif primal_of(x := as_operand("trapezoid", x)).ndim == 1:
        width = reshape(diff(x), (-1, *[1] * (primal_of(y).ndim - axis - 1)))
    else:
        width = diff(x, axis=axis)
    halves = multiply(add(part(y, axis, slice(1, None)), part(y, axis, slice(None, -1))), 0.5)
    return sum(multiply(halves, width), axis=axis)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The cumulative product along an axis, as `numpy.cumprod`; without an axis of the flat array."""
    check_recorded("cumprod", (a, out))
    primal = array_of("cumprod", a)
    if axis is None:
        a, axis = reshape(a, -1), 0
    axis = axis_of("cumprod", axis, primal_of(a).ndim)
    kind = np.dtype(dtype or np.cumprod(np.ones(1, primal.dtype)).dtype)
    if out is None:
        out = result_for((a,), primal_of(a).shape, kind)
    check_out("cumprod", out, primal_of(a).shape, kind)
    _cumprod(are_disjoint(a, primal_of(out)), out, axis)
    return out


def _cumprod_reverse(x: Any, y: Any, dx: Any, dy: Any, axis: int) -> None:
    """From the last to the first: what comes to a product goes to its factor, and to the product before; no division, elements may be 0."""
    if dx is None:
        return
    library = library_of(x)
    factors, products, given, found = (library.moveaxis(a, axis, 0) for a in (x, y, dy, library.zeros(dx.shape, dy.dtype)))
    carried = 0
    for k in range(len(factors) - 1, -1, -1):
        carried = given[k] + carried
        found[k] = carried * products[k - 1].conj() if k else carried
        carried = carried * factors[k].conj()
    add_to(dx, library.moveaxis(found, 0, axis))


@rule(reads=("x",), overwrites=("y",), needs={"x": "before", "y": "after"}, reverse=_cumprod_reverse)
def _cumprod(x: Any, y: Any, axis: int) -> None:
    y[...] = library_of(x).cumprod(x, axis, dtype=y.dtype)


# --- products ----------------------------------------------------------------------------------------------------------------------------


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products over axes of both, as `numpy.tensordot`."""
    a, b = as_operand("tensordot", a), as_operand("tensordot", b)
    one, two = primal_of(a), primal_of(b)
    if isinstance(axes, int):
        first, second = tuple(range(one.ndim - axes, one.ndim)), tuple(range(axes))
    else:
        first, second = (
            axes_of("tensordot", tuple(x) if isinstance(x, list | tuple) else x, p.ndim) for x, p in zip(axes, (one, two), strict=True)
        )
    if [one.shape[i] for i in first] != [two.shape[i] for i in second]:
        raise ArgumentValueError(
            f"tensordot: arrays of shapes {tuple(one.shape)} and {tuple(two.shape)} do not fit over the axes {brief(axes)}"
        )
    left, right = ([i for i in range(p.ndim) if i not in used] for p, used in ((one, first), (two, second)))
    inner_size = math.prod(one.shape[i] for i in first)
    rows = reshape(transpose(a, (*left, *first)), (math.prod(one.shape[i] for i in left), inner_size))
    columns = reshape(transpose(b, (*second, *right)), (inner_size, math.prod(two.shape[i] for i in right)))
    return reshape(matmul(rows, columns), (*(one.shape[i] for i in left), *(two.shape[i] for i in right)))


def inner(a: Any, b: Any) -> Any:
    """The sum of products over the last axes, as `numpy.inner`."""
    a, b = as_operand("inner", a), as_operand("inner", b)
    return multiply(a, b) if min_ndim(a, b) == 0 else tensordot(a, b, (-1, -1))


def min_ndim(*operands: Any) -> int:
    return sorted(int(primal_of(x).ndim) for x in operands)[0]


def vdot(a: Any, b: Any) -> Any:
    """The product of the flat arrays, the first one conjugated, as `numpy.vdot`."""
    a, b = reshape(as_operand("vdot", a), -1), reshape(as_operand("vdot", b), -1)
    return matmul(conjugated(a), b)


def conjugated(x: Any) -> Any:
    return apply("conjugate", x) if primal_of(x).dtype.kind == "c" else x


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """The products of vectors along an axis, the first one conjugated, as `numpy.vecdot`."""
    return sum(multiply(conjugated(as_operand("vecdot", x1)), as_operand("vecdot", x2)), axis=axis)


def matvec(x1: Any, x2: Any) -> Any:
    """Matrices times vectors, as `numpy.matvec`."""
    return view(matmul(as_operand("matvec", x1), expand_dims(as_operand("matvec", x2), -1)), lambda a: a[..., 0])


def vecmat(x1: Any, x2: Any) -> Any:
    """Vectors, conjugated, times matrices, as `numpy.vecmat`."""
    return view(matmul(expand_dims(conjugated(as_operand("vecmat", x1)), -2), as_operand("vecmat", x2)), lambda a: a[..., 0, :])


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product, as `numpy.kron`."""
    a, b = as_operand("kron", a), as_operand("kron", b)
    ndim = builtin_max(primal_of(a).ndim, primal_of(b).ndim)
    one, two = ((1,) * (ndim - primal_of(x).ndim) + tuple(primal_of(x).shape) for x in (a, b))
    first = reshape(a, tuple(n for pair in zip(one, (1,) * ndim, strict=True) for n in pair))
    second = reshape(b, tuple(n for pair in zip((1,) * ndim, two, strict=True) for n in pair))
    return reshape(multiply(first, second), tuple(n * m for n, m in zip(one, two, strict=True)))


def builtin_max(*numbers: int) -> int:
    return sorted(numbers)[-1]


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The product of vectors of three components, as `numpy.cross`."""
    axisa, axisb, axisc = (axis,) * 3 if axis is not None else (axisa, axisb, axisc)
    a, b = moveaxis(as_operand("cross", a), axisa, -1), moveaxis(as_operand("cross", b), axisb, -1)
    if primal_of(a).shape[-1] != 3 or primal_of(b).shape[-1] != 3:
        raise UnsupportedError("cross: vectors of three components are recorded; write x[0] * y[1] - x[1] * y[0] for two")
    x, y = ([part(v, primal_of(v).ndim - 1, k) for k in range(3)] for v in (a, b))
    return stack([subtract(multiply(x[i], y[j]), multiply(x[j], y[i])) for i, j in ((1, 2), (2, 0), (0, 1))], axisc)


def _convolve_reverse(a: Any, v: Any, da: Any, dv: Any, dy: Any, skipped: int) -> None:
    library = library_of(dy)
    full = library.zeros(a.size + v.size - 1, dy.dtype)
    full[skipped : skipped + dy.size] = dy
    if da is not None:
        add_to(da, library.correlate(full, v.astype(dy.dtype), "valid"))
    if dv is not None:
        add_to(dv, library.correlate(full, a.astype(dy.dtype), "valid"))


@rule(reads=("a", "v"), overwrites=("y",), needs={"a": ("before", "v"), "v": ("before", "a")}, reverse=_convolve_reverse)
def _convolve(a: Any, v: Any, y: Any, skipped: int) -> None:
    y[...] = library_of(y).convolve(a, v, "full")[skipped : skipped + y.size]


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """The convolution of two vectors, as `numpy.convolve`."""
    a, v = as_operand("convolve", a), as_operand("convolve", v)
    check_recorded("convolve", (a, v))
    if primal_of(a).ndim != 1 or primal_of(v).ndim != 1 or not primal_of(a).size or not primal_of(v).size:
        raise ArgumentValueError("convolve takes two vectors that are not empty")
    if mode not in ("full", "same", "valid"):
        raise ArgumentValueError(f"convolve: mode is 'full', 'same' or 'valid', not {brief(mode)}")
    n, m = sorted((primal_of(a).size, primal_of(v).size), reverse=True)
    size = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    skipped = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[mode]
    out = result_for((a, v), (size,), np.result_type(primal_of(a).dtype, primal_of(v).dtype))
    _convolve(a, v, out, skipped)
    return out


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """The correlation of two vectors, the second one conjugated, as `numpy.correlate`."""
    a, v = as_operand("correlate", a), as_operand("correlate", v)
    found = convolve(a, flip(conjugated(v)), mode)
    if mode == "same" and primal_of(v).size % 2 == 0 and primal_of(v).size <= primal_of(a).size:
        found = view(convolve(a, flip(conjugated(v)), "full"), lambda p: p[primal_of(v).size // 2 :][: primal_of(a).size])
    return found


# --- complex numbers, views --------------------------------------------------------------------------------------------------------------


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

    def function(*arys: Any) -> Any:
        found = tuple(view(as_operand(name, a), lambda p: getattr(library_of(p), name)(p)) for a in arys)
        return found[0] if len(found) == 1 else found

    name = function.__name__ = function.__qualname__ = f"atleast_{ndim}d"
    function.__doc__ = f"Views with {ndim} axes or more, as `numpy.{name}`."
    return function


def viewing(name: str) -> Callable[..., Any]:
    """A function of the library that gives a view of its first argument."""

    def function(m: Any, *args: Any, **keywords: Any) -> Any:
        array_of(name, m)
        return view(m, lambda p: getattr(library_of(p), name)(p, *args, **keywords))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The view that `numpy.{name}` gives."
    return function


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

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The arrays beside each other, as `numpy.{name}`."
    return function


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

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A triangle of matrices, zeros beside it, as `numpy.{name}`."
    return function


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

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The spectrum with its zero frequency moved, as `numpy.fft.{name}`."
    return function


# --- all of them -------------------------------------------------------------------------------------------------------------------------

_VIEWS = ("flipud", "fliplr", "matrix_transpose", "rollaxis", "permute_dims")
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    angle, append, array_split, broadcast_arrays, convolve, correlate, cross, cumprod, diagonal, diff, dsplit, ediff1d, gradient, hsplit,
    inner, kron, matvec, meshgrid, repeat, rot90, split, tensordot, tile, trace, trapezoid, unstack, vdot, vecdot, vecmat, vsplit,
    stacked("vstack", 2, 0), stacked("hstack", 1, 1), stacked("dstack", 3, 2), stacked("column_stack", 2, 1), stacked("row_stack", 2, 0),
    triangle("tril"), triangle("triu"), *map(at_least, (1, 2, 3)), *map(viewing, _VIEWS),
)  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {f.__name__: f for f in _FUNCTIONS} | {
    "trapz": trapezoid, "fft.fftshift": shifted("fftshift", 1), "fft.ifftshift": shifted("ifftshift", -1), "linalg.tensordot": tensordot,
    "linalg.vecdot": vecdot, "linalg.outer": lambda x1, x2: apply("multiply", expand_dims(ravel(x1), 1), ravel(x2)),
    "linalg.cross": lambda x1, x2, *, axis=-1: cross(x1, x2, axis=axis), "linalg.matmul": matmul,
    "linalg.matrix_transpose": viewing("matrix_transpose"),
    "linalg.diagonal": lambda x, *, offset=0: diagonal(x, offset, -2, -1),
    "linalg.trace": lambda x, *, offset=0, dtype=None: trace(x, offset, -2, -1, dtype),
}  # fmt: skip
