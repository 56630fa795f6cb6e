"""Filters of images that select an element of each window, and flat morphology, with the names of `scipy.ndimage`.

In: an array of any dimension, annotated or not; a window by `size` or `footprint`. Out: an array of its shape. The element that was
selected gets the gradient; of several that are equal the first of the window. Borders and ranks are those of SciPy, whose code selects.
Raises UnsupportedError for structures that are not flat, ArgumentValueError for windows that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, UnsupportedError
from ..public_calls import named
from ..tape.rules import rule
from .adjoints import library_of, scipy_of
from .elementwise import apply, check_recorded
from .filters import bordered, delivered, of_axis, turned, windows
from .indexing import take
from .layout import axis_of, primal_of
from .parts import as_operand
from .plain_results import library_behind
from .reductions import result_for
from .statistics import bincount
from .views import reshape


def _chosen(x: Any, y: Any, footprint: Any) -> Iterator[tuple[Any, Any]]:
    """Each window of the array, and where its element is the one that was selected."""
    done = library_of(y).zeros(y.shape, bool)
    for place, window in windows(footprint, y.shape):
        if footprint[place]:
            hit = (x[window] == y) & ~done
            done |= hit
            yield window, hit


def _select_reverse(x: Any, y: Any, dx: Any, dy: Any, footprint: Any) -> None:
    if dx is not None:
        for window, hit in _chosen(x, y, footprint):
            dx[window] += dy * hit


def _select_tangent(x: Any, y: Any, dx: Any, dy: Any, footprint: Any) -> None:
    dy[...] = 0
    for window, hit in _chosen(x, y, footprint):
        dy[hit] = dx[window][hit]


@rule(reads=("x",), overwrites=("y",), needs={"x": "before", "y": "after"}, reverse=_select_reverse, tangent=_select_tangent)
def _select(x: Any, y: Any, footprint: Any, rank: int) -> None:
    selected = scipy_of(x, "ndimage").rank_filter(x, rank, footprint=library_of(x).asarray(footprint))
    y[...] = selected[tuple(slice(m // 2, m // 2 + n) for m, n in zip(footprint.shape, y.shape, strict=True))]


def _window(name: str, ndim: int, size: Any, footprint: Any) -> Any:
    """The footprint as an array of truths of the host."""
    if footprint is None and size is None:
        raise ArgumentValueError(f"{name}: a window is told by size or footprint")
    if footprint is None:
        return np.ones([int(of_axis(size, k)) for k in range(ndim)], bool)
    found = np.asarray(footprint.get() if hasattr(footprint, "get") else footprint).astype(bool)
    if found.ndim != ndim or not found.any():
        raise ArgumentValueError(f"{name}: a footprint of shape {found.shape} for an array of {ndim} axes")
    return found


def _selected(name: str, rank: Callable[[int], int], input: Any, window: Any, output: Any, mode: Any, cval: float, origin: Any) -> Any:
    check_recorded(name, (input,))
    input = as_operand(name, input)
    count = int(window.sum())
    if not 0 <= rank(count) < count:
        raise ArgumentValueError(f"{name}: rank {rank(count)} of a window of {count} elements")
    out = result_for((input,), primal_of(input).shape, primal_of(input).dtype)
    _select(bordered(name, input, window.shape, mode, cval, origin), out, window, rank(count))
    return delivered(out, output)


def _by_rank(name: str, rank: Callable[[int, Any], int], asks: bool) -> Callable[..., Any]:
    """A filter; `asks`: its second argument says which element."""

    def function(
        input: Any, *which: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect", cval: float = 0.0,
        origin: Any = 0,
    ) -> Any:  # fmt: skip
        own, rest = (which[0], which[1:]) if asks else (None, which)
        given = dict(zip(("size", "footprint", "output", "mode", "cval", "origin"), rest, strict=False))
        said = {"size": size, "footprint": footprint, "output": output, "mode": mode, "cval": cval, "origin": origin} | given
        window = _window(name, primal_of(as_operand(name, input)).ndim, said.pop("size"), said.pop("footprint"))
        return _selected(name, lambda count: rank(count, own), input, window, **said)

    return named(function, name, f"As `scipy.ndimage.{name}`.")


def _percentile(count: int, percentile: float) -> int:
    share = percentile + 100 if percentile < 0 else percentile
    return count - 1 if share == 100 else int(count * share / 100)


rank_filter = _by_rank("rank_filter", lambda count, rank: rank + count if rank < 0 else rank, True)
percentile_filter = _by_rank("percentile_filter", _percentile, True)
median_filter = _by_rank("median_filter", lambda count, _: count // 2, False)
minimum_filter = _by_rank("minimum_filter", lambda count, _: 0, False)
maximum_filter = _by_rank("maximum_filter", lambda count, _: count - 1, False)


def _along(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: int = 0
    ) -> Any:
        ndim = primal_of(as_operand(name, input)).ndim
        axis = axis_of(name, axis, ndim)
        sizes, origins = ([n if k == axis else m for k in range(ndim)] for n, m in ((size, 1), (origin, 0)))
        return filter(input, size=sizes, output=output, mode=mode, cval=cval, origin=origins)

    return named(function, name, f"As `scipy.ndimage.{name}`.")


# --- morphology --------------------------------------------------------------------------------------------------------------------------


def _eroded(input: Any, window: Any, **said: Any) -> Any:
    return minimum_filter(input, footprint=window, **said)


def _dilated(input: Any, window: Any, origin: Any = 0, **said: Any) -> Any:
    mirrored, moved = turned(window, origin)
    return maximum_filter(input, footprint=mirrored, origin=moved, **said)


def _opened(input: Any, window: Any, **said: Any) -> Any:
    return _dilated(_eroded(input, window, **said), window, **said)


def _closed(input: Any, window: Any, **said: Any) -> Any:
    return _eroded(_dilated(input, window, **said), window, **said)


_MORPHOLOGY: dict[str, Callable[..., Any]] = {
    "grey_erosion": _eroded,
    "grey_dilation": _dilated,
    "grey_opening": _opened,
    "grey_closing": _closed,
    "white_tophat": lambda x, window, **said: apply("subtract", x, _opened(x, window, **said)),
    "black_tophat": lambda x, window, **said: apply("subtract", _closed(x, window, **said), x),
    "morphological_gradient": lambda x, window, **said: apply("subtract", _dilated(x, window, **said), _eroded(x, window, **said)),
    "morphological_laplace": lambda x, window, **said: apply(
        "subtract", apply("add", _dilated(x, window, **said), _eroded(x, window, **said)), apply("multiply", x, 2.0)
    ),
}


def _morphology(name: str) -> Callable[..., Any]:
    def function(
        input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None, mode: Any = "reflect",
        cval: float = 0.0, origin: Any = 0,
    ) -> Any:  # fmt: skip
        if structure is not None:
            raise UnsupportedError(f"{name}: of flat structures, which footprint says; others are not recorded")
        input = as_operand(name, input)
        window = _window(name, primal_of(input).ndim, size, footprint)
        return delivered(_MORPHOLOGY[name](input, window, mode=mode, cval=cval, origin=origin), output)

    return named(function, name, f"As `scipy.ndimage.{name}`, of flat structures.")


# --- sums over labels --------------------------------------------------------------------------------------------------------------------


def _over_labels(name: str, input: Any, labels: Any, index: Any) -> tuple[Any, Any]:
    """The sums, and how many elements each is of."""
    input = as_operand(name, input)
    library = library_behind([input])
    if labels is None or index is None:
        labels = library.ones(primal_of(input).shape, np.int64) if labels is None else (library.asarray(labels) > 0).astype(np.int64)
        index = 1
    labels = library.broadcast_to(library.asarray(labels), primal_of(input).shape).reshape(-1)
    wanted = library.asarray(index)
    if labels.size and int(labels.min()) < 0:
        raise ArgumentValueError(f"{name}: labels are whole numbers, 0 or more")
    most = int(library.maximum(wanted.max(), labels.max())) + 1
    totals, counts = bincount(labels, reshape(input, -1), most), library.bincount(labels, minlength=most)
    inside = (wanted >= 0) & (wanted < most)
    place = library.where(inside, wanted, 0)
    return apply("multiply", take(totals, place), inside), counts[place] * inside


def sum_labels(input: Any, labels: Any = None, index: Any = None) -> Any:
    """The sums over elements of each label, as `scipy.ndimage.sum_labels`."""
    return _over_labels("sum_labels", input, labels, index)[0]


def _mean(input: Any, labels: Any = None, index: Any = None) -> Any:
    """The means over elements of each label, as `scipy.ndimage.mean`."""
    total, count = _over_labels("mean", input, labels, index)
    return apply("divide", total, count)


TABLE: dict[str, Callable[..., Any]] = {
    f"ndimage.{f.__name__}": f
    for f in (
        rank_filter, percentile_filter, median_filter, minimum_filter, maximum_filter, _along("minimum_filter1d", minimum_filter),
        _along("maximum_filter1d", maximum_filter), *map(_morphology, _MORPHOLOGY), sum_labels,
    )
} | {"ndimage.sum": sum_labels, "ndimage.mean": _mean}  # fmt: skip
