"""CuPy's own kernel objects, recognised by their attributes, as ours.

In: any object. Out of `recognised`: an `ElementwiseKernel` or `ReductionKernel` of gpuad with the same texts, types and options, or None.
By attributes (`in_params`, `operation`, `map_expr`), so CuPy need not be installed. `called` keeps one for each object, and the object with
it, since its id is the key. Raises LaunchError for what `cupy.fuse` makes, and what the constructors raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..api import Family, kernel
from ..errors import LaunchError
from .kernels import ElementwiseKernel
from .reductions import ReductionKernel


def recognised(source: Any) -> Family | None:
    """A CuPy ElementwiseKernel or ReductionKernel as ours; None for anything else."""
    if type(source).__name__ == "Fusion" or (hasattr(source, "func") and type(source).__module__.startswith("cupy._core.fusion")):
        raise LaunchError("cupy.fuse is not supported in this release: write the operation as an ElementwiseKernel, or use gpuad.ops")
    if not hasattr(source, "in_params") or not hasattr(source, "out_params"):
        return None
    if hasattr(source, "operation"):
        keywords = {k: v for k, v in dict(source.kwargs).items() if k in ("loop_prep", "after_loop", "options")}
        return ElementwiseKernel(
            _listed(source.in_params), _listed(source.out_params), source.operation, source.name, bool(source.reduce_dims),
            source.preamble, bool(source.no_return), bool(source.return_tuple), **keywords,
        )  # fmt: skip
    if hasattr(source, "map_expr"):
        return ReductionKernel(
            _listed(source.in_params), _listed(source.out_params), source.map_expr, source.reduce_expr, source.post_map_expr,
            source.identity, source.name, source.reduce_type, bool(source.reduce_dims), source.preamble, tuple(source.options),
        )  # fmt: skip
    return None


def _listed(parameters: Sequence[Any]) -> str:
    """CuPy's parameters as the list from which they were made."""
    return ", ".join(map(_shown, parameters))


def _shown(p: Any) -> str:
    kind = np.dtype(p.dtype).name if p.dtype is not None else p.ctype
    return f"{'raw ' if p.raw else ''}{kind} {p.name}"


_known: dict[int, tuple[Any, Family]] = {}


def called(source: Any, *args: Any, **keywords: Any) -> Any:
    """A CuPy kernel object that was called with a pair; it is kept with its kernels."""
    if id(source) not in _known:
        _known[id(source)] = (source, kernel(source))
    return _known[id(source)][1](*args, **keywords)  # type: ignore[operator]
