"""Discrete Fourier transforms, as rules. The gradient of a complex array z = x + i y is (d/dx) + i (d/dy), so the reverse of a transform is
its adjoint: the inverse without its factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..runtime.array_types import NdArray
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .elementwise import are_disjoint, check_out, check_recorded
from .layout import array_of, axis_of, primal_of
from .reductions import result_for

_INVERSE = {"fftn": "ifftn", "ifftn": "fftn"}
_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _fft_reverse(dx: Any, dy: Any, name: str, axes: Any, norm: str) -> None:
    if dx is not None:
        add_to(dx, getattr(library_of(dy).fft, _INVERSE[name])(dy, axes=axes, norm=_SWAPPED[norm]))


@rule(reads=("x",), overwrites=("y",), reverse=_fft_reverse)
def _fft(x: Any, y: Any, name: str, axes: Any, norm: str) -> None:
    y[...] = getattr(library_of(x).fft, name)(x, axes=axes, norm=norm)


def _rfft_reverse(dx: Any, dy: Any, axis: int, norm: str) -> None:
    """The other half of the spectrum has no gradient."""
    if dx is None:
        return
    full = library_of(dy).zeros(dx.shape, dy.dtype)
    full[(slice(None),) * axis + (slice(0, dy.shape[axis]),)] = dy
    dx += library_of(dy).fft.ifft(full, axis=axis, norm=_SWAPPED[norm]).real


@rule(reads=("x",), overwrites=("y",), reverse=_rfft_reverse)
def _rfft(x: Any, y: Any, axis: int, norm: str) -> None:
    y[...] = library_of(x).fft.rfft(x, axis=axis, norm=norm)


def _irfft_reverse(dx: Any, dy: Any, axis: int, norm: str) -> None:
    """Each frequency but the first, and for an even length the last, stands for two."""
    if dx is None:
        return
    half = library_of(dy).fft.rfft(dy.real, axis=axis, norm=_SWAPPED[norm])
    half[(slice(None),) * axis + (slice(1, (dy.shape[axis] + 1) // 2),)] *= 2
    add_to(dx, half)


@rule(reads=("x",), overwrites=("y",), reverse=_irfft_reverse)
def _irfft(x: Any, y: Any, axis: int, norm: str) -> None:
    y[...] = library_of(x).fft.irfft(x, n=y.shape[axis], axis=axis, norm=norm)


# --- what users call -----------------------------------------------------------------------------------------------------------------


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The transform along one axis, as `numpy.fft.fft`; of real arrays too. `n` is the length of the axis: cut or pad before. `out` is
    complex and may be `x` itself."""
    return _transform("fft", "fftn", x, None if n is None else (n,), (axis,), norm, out)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The inverse transform along one axis, as `numpy.fft.ifft`; complex."""
    return _transform("ifft", "ifftn", x, None if n is None else (n,), (axis,), norm, out)


def fft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The transform along two axes, as `numpy.fft.fft2`; complex."""
    return _transform("fft2", "fftn", x, s, axes, norm, out)


def ifft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The inverse transform along two axes, as `numpy.fft.ifft2`; complex."""
    return _transform("ifft2", "ifftn", x, s, axes, norm, out)


def fftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """The transform along some axes, all by default, as `numpy.fft.fftn`; complex."""
    return _transform("fftn", "fftn", x, s, axes, norm, out)


def ifftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """The inverse transform along some axes, all by default, as `numpy.fft.ifftn`; complex."""
    return _transform("ifftn", "ifftn", x, s, axes, norm, out)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The transform of a real array along one axis, length // 2 + 1 frequencies of it, as `numpy.fft.rfft`."""
    check_recorded("rfft", (x, out))
    primal = array_of("rfft", x)
    if primal.dtype.kind == "c":
        raise ArgumentTypeError("rfft takes real arrays")
    axis = axis_of("rfft", axis, primal.ndim)
    _check_lengths("rfft", primal, None if n is None else (n,), (axis,))
    return _along(_rfft, "rfft", x, axis, norm, out, primal.shape[axis] // 2 + 1, _spectrum_type(primal.dtype))


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The real array of length `n` (by default the even one) whose transform is given, as `numpy.fft.irfft`."""
    check_recorded("irfft", (x, out))
    primal = array_of("irfft", x)
    axis = axis_of("irfft", axis, primal.ndim)
    length = 2 * (primal.shape[axis] - 1) if n is None else int(n)
    if length < 1 or length // 2 + 1 != primal.shape[axis]:
        raise UnsupportedError(f"irfft: {primal.shape[axis]} frequencies are not those of {length} numbers; cut or pad them before")
    return _along(_irfft, "irfft", x, axis, norm, out, length, np.empty(0, _spectrum_type(primal.dtype)).real.dtype)


def _along(rule_: Any, name: str, x: Any, axis: int, norm: str | None, out: Any, length: int, dtype: Any) -> Any:
    shape = tuple(length if i == axis else n for i, n in enumerate(primal_of(x).shape))
    if out is None:
        out = result_for((x,), shape, dtype)
    check_out(name, out, shape, dtype)
    rule_(are_disjoint(x, primal_of(out)), out, axis, _norm(norm))
    return out


def _transform(name: str, function: str, x: Any, lengths: Any, axes: Sequence[int] | None, norm: str | None, out: Any) -> Any:
    check_recorded(name, (x, out))
    primal = array_of(name, x)
    named = range(primal.ndim) if axes is None else axes if isinstance(axes, Iterable) else (axes,)
    chosen = tuple(axis_of(name, a, primal.ndim) for a in named)
    _check_lengths(name, primal, lengths, chosen)
    dtype = _spectrum_type(primal.dtype)
    if out is None:
        out = result_for((x,), primal.shape, dtype)
    check_out(name, out, primal.shape, dtype)
    _fft(are_disjoint(x, primal_of(out)), out, function, chosen, _norm(norm))
    return out


def _check_lengths(name: str, array: NdArray, lengths: Any, axes: Sequence[int]) -> None:
    if lengths is not None and not isinstance(lengths, Iterable):
        raise ArgumentTypeError(f"{name}: s is a tuple of lengths, one for each axis, not {brief(lengths)}")
    if lengths is not None and tuple(lengths) != tuple(array.shape[a] for a in axes):
        raise UnsupportedError(f"{name} of other lengths than the array's, {brief(tuple(lengths))}; cut or pad it before")


def _spectrum_type(dtype: Any) -> np.dtype[Any]:
    """Integers of any length are transformed as float64."""
    return np.dtype(np.result_type(np.float64 if dtype.kind in "biu" else dtype, np.complex64))


def _norm(norm: str | None) -> str:
    if norm not in (None, *_SWAPPED):
        raise ArgumentValueError(f"norm is None, 'backward', 'ortho' or 'forward', not {brief(norm)}")
    return norm or "backward"
