"""Discrete Fourier transforms, as rules. The gradient of a complex array z = x + i y is (d/dx) + i (d/dy)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..annotations import namespace
from ..program.rules import rule
from .elementwise import check_recorded
from .layout import primal_of
from .reductions import result_for


def _fft_reverse(dx: Any, dy: Any, axis: int, inverse: bool) -> None:
    if dx is None:
        return
    n = dx.shape[axis]
    library = namespace(dy)
    back = library.fft.fft(dy, axis=axis) / n if inverse else library.fft.ifft(dy, axis=axis) * n
    dx += back if dx.dtype.kind == "c" else back.real


@rule(reads=("x",), overwrites=("y",), reverse=_fft_reverse)
def _fft(x: Any, y: Any, axis: int, inverse: bool) -> None:
    library = namespace(x)
    y[...] = library.fft.ifft(x, axis=axis) if inverse else library.fft.fft(x, axis=axis)


def fft(x: Any, axis: int = -1, out: Any = None) -> Any:
    """The transform along one axis, as `numpy.fft.fft`; of real arrays too. `out` is complex and does not overlap `x`."""
    return _transform("fft", x, axis, out, False)


def ifft(x: Any, axis: int = -1, out: Any = None) -> Any:
    """The inverse transform along one axis, as `numpy.fft.ifft`."""
    return _transform("ifft", x, axis, out, True)


def _transform(name: str, x: Any, axis: int, out: Any, inverse: bool) -> Any:
    check_recorded(name, (x, out))
    primal = primal_of(x)
    if out is None:
        out = result_for((x,), primal.shape, np.result_type(primal.dtype, np.complex64))
    _fft(x, out, range(primal.ndim)[axis], inverse)
    return out
