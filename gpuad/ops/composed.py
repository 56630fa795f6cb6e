"""Functions that consist of others: differences, integrals, products. What they are made of is recorded.

In: what NumPy's function of that name takes, with pairs among the arrays. Out: a new array, a pair if an operand carries a gradient; for
some a view, or a list of views. The arguments have NumPy's names; what is not offered has no parameter, and is refused by its name.

Raises TapeError for a pair outside of a tape, UnsupportedError for what is not differentiated, ValueError for shapes that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import namespace
from ..errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .functions import add, astype, divide, multiply, subtract
from .joining import concatenate, stack
from .layout import array_of, axes_of, axis_of, primal_of
from .linear import matmul
from .parts import as_operand, builtin_max, conjugated, part
from .reductions import result_for, sum
from .views import broadcast_to, expand_dims, flip, moveaxis, ravel, reshape, transpose, view

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
    ends = [None if x is None else astype(reshape(as_operand("ediff1d", x), -1), primal_of(ary).dtype) for x in (to_begin, to_end)]
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
    kind = primal_of(f).dtype if primal_of(f).dtype.kind == "f" else np.dtype(np.float64)
    widths = step if np.ndim(step) == 0 else library.diff(library.asarray(step)).astype(kind)
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


@rule(
    reads=("a", "v"),
    overwrites=("y",),
    needs={"a": ("before", "v"), "v": ("before", "a")},
    reverse=_convolve_reverse,
    linear=(("a",), ("v",)),
)
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


# --- all of them -------------------------------------------------------------------------------------------------------------------------

_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    convolve, correlate, cross, cumprod, diff, ediff1d, gradient, inner, kron, matvec, tensordot, trapezoid, vdot, vecdot, vecmat,
)  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {f.__name__: f for f in _FUNCTIONS} | {
    "trapz": trapezoid, "linalg.tensordot": tensordot, "linalg.vecdot": vecdot,
    "linalg.outer": lambda x1, x2: apply("multiply", expand_dims(ravel(x1), 1), ravel(x2)),
    "linalg.cross": lambda x1, x2, *, axis=-1: cross(x1, x2, axis=axis), "linalg.matmul": matmul,
}  # fmt: skip
