"""Averages, quantiles, sums by place, interpolation, and choices by values: of recorded operations.

In: what NumPy's function of that name takes, with pairs among the arrays. Out: a new array, a pair if an operand carries a gradient. The
order of elements, the bins and the places between which is interpolated are decided by the values, and carry no gradient themselves.

Raises TapeError for a pair outside of a tape, UnsupportedError for what is not differentiated, ShadowError where all gradient would be
dropped, ValueError for shapes that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Duplicated
from ..arguments.arrays import namespace
from ..errors import ArgumentTypeError, ArgumentValueError, ShadowError, UnsupportedError
from ..public_calls import brief, named
from ..tape.rules import rule
from .adjoints import library_of, part_for
from .elementwise import apply
from .extrema import max, min
from .functions import astype, copyto
from .indexing import take
from .layout import axis_of, primal_of
from .linear import matmul
from .parts import as_operand, at_least, conjugated, diagonal
from .plain_results import bare, library_behind
from .reductions import mean, reduced_axes, result_for, sort, sum
from .trace_cache import by_arguments
from .views import broadcast_to, reshape, transpose


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """The weighted mean, as `numpy.average`."""
    a = as_operand("average", a)
    if weights is None:
        count = math.prod(primal_of(a).shape[k] for k in reduced_axes("average", axis, primal_of(a).ndim))
        found, total = mean(a, axis, keepdims=keepdims), float(count)
    else:
        weights = as_operand("average", weights)
        if primal_of(weights).shape != primal_of(a).shape:
            if primal_of(weights).ndim != 1 or axis is None or np.ndim(axis):
                raise ArgumentTypeError("average: weights have the shape of the array, or are one-dimensional, and axis one axis")
            along = axis_of("average", axis, primal_of(a).ndim)
            weights = reshape(weights, tuple(-1 if k == along else 1 for k in range(primal_of(a).ndim)))
            weights = broadcast_to(weights, primal_of(a).shape)
        total = sum(weights, axis, keepdims=keepdims)
        found = apply("divide", sum(apply("multiply", a, weights), axis, keepdims=keepdims), total)
    return (found, total) if returned else found


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The greatest element less the least, as `numpy.ptp`."""
    return apply("subtract", max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims), out=out)


def without_nan(name: str, reduce: Callable[..., Any], value: float) -> Callable[..., Any]:
    """`nansum` and its kind: a NaN counts as `value`, and gets no gradient."""

    def function(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        a = as_operand(name, a)
        known = apply("where", library_behind([a]).isnan(bare(a)), value, a)
        return reduce(known, axis=axis, keepdims=keepdims)

    return named(function, name, f"As `numpy.{name}`; what is no number gets no gradient.")


def nanmean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean of what is not NaN, as `numpy.nanmean`."""
    a = as_operand("nanmean", a)
    count = (~library_behind([a]).isnan(bare(a))).sum(axis=axis, keepdims=keepdims).astype(primal_of(a).dtype)
    return apply("divide", without_nan("nansum", sum, 0.0)(a, axis, keepdims), count)


def _refuse_active(name: str, q: Any) -> None:
    if isinstance(q, Duplicated | Active) or (isinstance(q, list | tuple) and any(isinstance(x, Duplicated | Active) for x in q)):
        raise UnsupportedError(f"{name}: q carries no gradient here, which would be dropped; pass `.primal`")


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Quantiles by linear interpolation between the two nearest elements, as `numpy.quantile`; `q` has no gradient."""
    _refuse_active("quantile", q)
    if method != "linear":
        raise UnsupportedError(f"quantile: method {brief(method)} is not recorded; there is 'linear'")
    a = as_operand("quantile", a)
    ndim, at = primal_of(a).ndim, np.asarray(bare(q), float)
    if not bool(((at >= 0) & (at <= 1)).all()):
        raise ArgumentValueError("quantile: q lies between 0 and 1")
    along = reduced_axes("quantile", axis, ndim)
    kept = [k for k in range(ndim) if k not in along]
    rows = reshape(transpose(a, (*along, *kept)), (-1, *(primal_of(a).shape[k] for k in kept)))
    ordered, n = sort(rows, axis=0), primal_of(rows).shape[0]
    place = at * (n - 1)
    low = np.floor(place).astype(np.int64)
    library = library_behind([a])
    shape = (*at.shape, *[1] * len(kept))
    kind = primal_of(a).dtype if isinstance(q, int | float) and primal_of(a).dtype.kind == "f" else float  # numbers of Python's are weak
    fraction = library.asarray((place - low).reshape(shape).astype(kind))
    below, above = (take(ordered, library.asarray(k), axis=0) for k in (low, np.minimum(low + 1, n - 1)))
    found = apply("add", below, apply("multiply", apply("subtract", above, below), fraction))
    if keepdims:
        found = reshape(found, (*at.shape, *(1 if k in along else m for k, m in enumerate(primal_of(a).shape))))
    return found if out is None else apply("copyto", found, out=out)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Percentiles, as `quantile` of q / 100."""
    _refuse_active("percentile", q)
    share = q / 100 if isinstance(q, int | float) else np.asarray(bare(q), float) / 100
    return quantile(a, share, axis, out, overwrite_input, method, keepdims)


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The median, of an even number of elements the mean of the two in the middle, as `numpy.median`."""
    return quantile(a, 0.5, axis, out, keepdims=keepdims)


def cov(m: Any, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Any:
    """The covariance matrix of variables, a row each, as `numpy.cov`."""
    m = at_least(2)(as_operand("cov", m))
    m = astype(m, np.result_type(primal_of(m).dtype, np.float64), copy=False)
    m = m if rowvar or primal_of(m).shape[0] == 1 else transpose(m)
    off = apply("subtract", m, mean(m, axis=1, keepdims=True))
    count = primal_of(m).shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    found = apply("divide", matmul(off, transpose(conjugated(off))), float(count))
    return reshape(found, ()) if primal_of(found).size == 1 else found


# --- sums by place, interpolation --------------------------------------------------------------------------------------------------------


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number comes, or the sum of its weights, as `numpy.bincount`."""
    places, library = bare(x), library_behind([x, weights])
    if not isinstance(weights, Duplicated | BatchDuplicated):
        return library.bincount(places, bare(weights), minlength)
    places = library.asarray(places)
    if places.ndim != 1 or primal_of(weights).shape != places.shape or (places.size and int(places.min()) < 0):
        raise ArgumentValueError("bincount: x is a vector of whole numbers, 0 or more, and weights have its length")
    if primal_of(weights).dtype.kind == "c":
        raise ArgumentTypeError("bincount: weights are real, as NumPy takes them")
    return _counted(weights, places, sorted((int(minlength), int(places.max()) + 1 if places.size else 0))[-1])


@by_arguments
def _counted(weights: Any, places: Any, size: int) -> Any:
    out = result_for((weights,), (size,), np.float64)
    if size:
        _bincount(weights, places, out)
    return out


def _bincount_reverse(dweights: Any, places: Any, dout: Any) -> None:
    if dweights is not None:
        dweights += dout[places]


@rule(
    reads=("weights", "places"), overwrites=("out",), needs={"places": ("before", "weights")}, reverse=_bincount_reverse,
    linear=(("weights",),),
)  # fmt: skip
def _bincount(weights: Any, places: Any, out: Any) -> None:
    out[...] = library_of(out).bincount(places, weights, out.size)


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Any, Any]:
    """The sums of weights in bins and their edges, as `numpy.histogram`. ShadowError for an active `a`, whose counts have no gradient."""
    if isinstance(a, Duplicated) or isinstance(bins, Duplicated):
        raise ShadowError(
            "histogram of a pair: in which bin a number falls has no gradient, so all gradients would be 0. Weight the bins smoothly, or "
            "pass `.primal` for the counts alone"
        )
    library = library_behind([a, weights])
    values = library.asarray(a).reshape(-1)
    edges = library.histogram(values, bins, range)[1]
    if weights is None:
        return library.histogram(values, bins, range, density=density)[0], edges
    weights = reshape(as_operand("histogram", weights), -1)
    place = library.searchsorted(edges, values, side="right") - 1
    place = library.where(values == edges[-1], edges.size - 2, place)
    inside = library.nonzero((place >= 0) & (place < edges.size - 1))[0]
    sums = astype(bincount(place[inside], take(weights, inside), edges.size - 1), primal_of(weights).dtype, copy=False)
    if density:
        sums = apply("divide", apply("divide", sums, edges[1:] - edges[:-1]), sum(sums))
    return sums, edges


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Piecewise linear interpolation, as `numpy.interp`; each of `x`, `xp` and `fp` may carry a gradient."""
    if period is not None or any(isinstance(v, Duplicated) for v in (left, right)):
        raise UnsupportedError("interp: period, and a gradient of left or right, are not recorded")
    x, xp, fp = (as_operand("interp", v) for v in (x, xp, fp))
    places, values = primal_of(xp), primal_of(fp)
    if places.ndim != 1 or values.shape != places.shape or not places.size:
        raise ArgumentValueError("interp: xp and fp are vectors of the same length, which is not 0")
    out = result_for((x, xp, fp), primal_of(x).shape, np.result_type(values.dtype, np.float64))
    if primal_of(out).size:
        _interp(x, xp, fp, out, left, right)
    return out


def _pieces(x: Any, xp: Any, fp: Any) -> tuple[Any, ...]:
    """Where each x lies: the number of the place after it, which part of the way it is there, the slope and the width of the piece, and
    whether it lies before the first place, or behind the last."""
    at = library_of(x).clip(library_of(x).searchsorted(xp, x, side="right"), int(xp.size > 1), xp.size - 1)
    width = library_of(x).where(at > 0, xp[at] - xp[at - 1], 1.0)
    return at, (x - xp[at - 1]) / width, (fp[at] - fp[at - 1]) / width, x < xp[0], x > xp[-1]


def _interp_reverse(dx: Any, dxp: Any, dfp: Any, dout: Any, x: Any, xp: Any, fp: Any, left: Any, right: Any) -> None:
    at, share, slope, before, behind = _pieces(x, xp, fp)
    within = library_of(x).where(before | behind, 0.0, dout)
    if dx is not None:
        dx += part_for(dx, within * slope.conj())
    for target, low, high in (
        (dxp, within * slope.conj() * (share - 1), -within * slope.conj() * share),
        (dfp, within * (1 - share), within * share),
    ):
        if target is not None:
            library_of(x).add.at(target, at - 1, part_for(target, low))
            library_of(x).add.at(target, at, part_for(target, high))
    if dfp is not None:
        dfp[0] += part_for(dfp, (dout * before).sum() if left is None else dout.dtype.type(0))
        dfp[-1] += part_for(dfp, (dout * behind).sum() if right is None else dout.dtype.type(0))


def _interp_tangent(x: Any, xp: Any, fp: Any, dx: Any, dxp: Any, dfp: Any, dout: Any, left: Any, right: Any) -> None:
    at, share, slope, before, behind = _pieces(x, xp, fp)
    dout[...] = slope * (dx - (1 - share) * dxp[at - 1] - share * dxp[at]) + (1 - share) * dfp[at - 1] + share * dfp[at]
    dout[before], dout[behind] = dfp[0] if left is None else 0, dfp[-1] if right is None else 0


@rule(
    reads=("x", "xp", "fp"), overwrites=("out",), needs={"x": "before", "xp": "before", "fp": ("before", "x", "xp")},
    reverse=_interp_reverse, tangent=_interp_tangent,
)  # fmt: skip
def _interp(x: Any, xp: Any, fp: Any, out: Any, left: Any, right: Any) -> None:
    out[...] = library_of(out).interp(x, xp, fp, left, right)


# --- exponentials ------------------------------------------------------------------------------------------------------------------------


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """log(sum(b * exp(a))) over axes, without overflow, as `scipy.special.logsumexp`."""
    a = as_operand("logsumexp", a)
    library, values = library_behind([a]), bare(a)
    top = values.max(axis=reduced_axes("logsumexp", axis, values.ndim) or None, keepdims=True) if values.size else 0.0
    top = library.where(library.isfinite(top), top, 0.0).astype(values.dtype)
    terms = apply("exp", apply("subtract", a, top))
    found = apply("log", sum(terms if b is None else apply("multiply", terms, as_operand("logsumexp", b)), axis, keepdims=keepdims))
    return apply("add", found, top if keepdims else top.reshape(primal_of(found).shape))


def log_softmax(x: Any, axis: Any = None) -> Any:
    """The logarithm of softmax(x), as `scipy.special.log_softmax`."""
    return apply("subtract", as_operand("log_softmax", x), logsumexp(x, axis, keepdims=True))


def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x) over its sum, as `scipy.special.softmax`."""
    return apply("exp", log_softmax(x, axis))


# --- choices -----------------------------------------------------------------------------------------------------------------------------


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """The first choice whose condition holds, as `numpy.select`."""
    if len(condlist) != len(choicelist):
        raise ArgumentValueError("select: as many conditions as choices")
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = apply("where", bare(condition), as_operand("select", choice), found)
    return found


def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Numbers in the place of NaN and infinities, which get no gradient, as `numpy.nan_to_num`."""
    x = as_operand("nan_to_num", x)
    library, values, limits = library_behind([x]), bare(x), np.finfo(primal_of(x).dtype)
    found = apply("where", library.isnan(values), nan, x)
    found = apply("where", values == math.inf, float(limits.max) if posinf is None else posinf, found)
    found = apply("where", values == -math.inf, float(limits.min) if neginf is None else neginf, found)
    if not copy:
        copyto(x, found)
    return found if copy else x


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    """`arr[..., indices, ...] = values` along an axis, as `numpy.put_along_axis`."""
    target = reshape(arr, -1) if axis is None else arr
    along = axis_of("put_along_axis", -1 if axis is None else axis, primal_of(target).ndim)
    indices = namespace(primal_of(arr)).asarray(bare(indices))
    key = tuple(
        indices if k == along else namespace(primal_of(arr)).arange(n).reshape([-1 if i == k else 1 for i in range(indices.ndim)])
        for k, n in enumerate(primal_of(target).shape)
    )
    target[key] = values


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Sets the main diagonal of a matrix, as `numpy.fill_diagonal`."""
    if primal_of(a).ndim != 2 or wrap:
        raise UnsupportedError("fill_diagonal: of matrices, without wrap")
    diagonal(a)[...] = val


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Sets elements where a mask holds, by `values` that broadcast, as `numpy.putmask` where they have its shape."""
    copyto(a, values, where=bare(mask))


def around(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Rounded to some decimals, as `numpy.round`; its gradient is 0."""
    if decimals == 0:
        return apply("rint", a, out=out)
    factor = 10.0**decimals
    return apply("divide", apply("rint", apply("multiply", a, factor)), factor, out=out)


def divmod_(x1: Any, x2: Any) -> tuple[Any, Any]:
    """The quotient, plain, and the remainder, as `numpy.divmod`."""
    return library_behind([x1, x2]).floor_divide(bare(x1), bare(x2)), apply("remainder", x1, x2)


def modf(x: Any) -> tuple[Any, Any]:
    """The fraction and the whole number towards 0, as `numpy.modf`."""
    whole = apply("trunc", x)
    return apply("subtract", x, whole), whole


TABLE: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        around, average, bincount, cov, fill_diagonal, histogram, interp, log_softmax, logsumexp, median, modf, nan_to_num, nanmean,
        percentile, ptp,
        put_along_axis, putmask, quantile, select, softmax,
    )
} | {
    "round": around, "divmod": divmod_, "nansum": without_nan("nansum", sum, 0.0), "nanmax": without_nan("nanmax", max, -math.inf),
    "nanmin": without_nan("nanmin", min, math.inf),
}  # fmt: skip
