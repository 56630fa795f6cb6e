"""Discrete Fourier transforms, as rules. The gradient of a complex array z = x + i y is (d/dx) + i (d/dy), so the reverse of a transform is
its adjoint: the inverse without its factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError
from ..public_calls import brief, index, named
from ..tape.rules import rule
from .adjoints import add_to, library_of, scipy_of
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .layout import array_of, axis_of, primal_of
from .rearranging import pad
from .reductions import result_for
from .views import view

_INVERSE = {"fftn": "ifftn", "ifftn": "fftn"}
_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _fft_reverse(dx: Any, dy: Any, name: str, axes: Any, norm: str) -> None:
    if dx is not None:
        add_to(dx, getattr(library_of(dy).fft, _INVERSE[name])(dy, axes=axes, norm=_SWAPPED[norm]))


@rule(reads=("x",), overwrites=("y",), reverse=_fft_reverse, linear=(("x",),))
def _fft(x: Any, y: Any, name: str, axes: Any, norm: str) -> None:
    y[...] = getattr(library_of(x).fft, name)(x, axes=axes, norm=norm)


def _rfft_reverse(dx: Any, dy: Any, axis: int, norm: str) -> None:
    """The other half of the spectrum has no gradient."""
    if dx is None:
        return
    full = library_of(dy).zeros(dx.shape, dy.dtype)
    full[(slice(None),) * axis + (slice(0, dy.shape[axis]),)] = dy
    dx += library_of(dy).fft.ifft(full, axis=axis, norm=_SWAPPED[norm]).real


@rule(reads=("x",), overwrites=("y",), reverse=_rfft_reverse, linear=(("x",),))
def _rfft(x: Any, y: Any, axis: int, norm: str) -> None:
    y[...] = library_of(x).fft.rfft(x, axis=axis, norm=norm)


def _irfft_reverse(dx: Any, dy: Any, axis: int, norm: str) -> None:
    """Each frequency but the first, and for an even length the last, stands for two."""
    if dx is None:
        return
    half = library_of(dy).fft.rfft(dy.real, axis=axis, norm=_SWAPPED[norm])
    half[(slice(None),) * axis + (slice(1, (dy.shape[axis] + 1) // 2),)] *= 2
    add_to(dx, half)


@rule(reads=("x",), overwrites=("y",), reverse=_irfft_reverse, linear=(("x",),))
def _irfft(x: Any, y: Any, axis: int, norm: str) -> None:
    y[...] = library_of(x).fft.irfft(x, n=y.shape[axis], axis=axis, norm=norm)


# --- what users call -----------------------------------------------------------------------------------------------------------------


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The transform along one axis, as `numpy.fft.fft`; of real arrays too. With `n` the axis is cut to this length,
    or followed by zeros. `out` is
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
    x = _fitted("rfft", x, None if n is None else (n,), (axis,))
    return _along(_rfft, "rfft", x, axis, norm, out, primal_of(x).shape[axis] // 2 + 1, _spectrum_type(primal.dtype))


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The real array of length `n` (by default the even one) whose transform is given, as `numpy.fft.irfft`."""
    check_recorded("irfft", (x, out))
    primal = array_of("irfft", x)
    axis = axis_of("irfft", axis, primal.ndim)
    length = 2 * (primal.shape[axis] - 1) if n is None else int(n)
    if length < 1:
        raise ArgumentValueError(f"irfft: {length} numbers are none")
    x = _fitted("irfft", x, (length // 2 + 1,), (axis,))
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
    x = _fitted(name, x, lengths, chosen)
    shape, dtype = primal_of(x).shape, _spectrum_type(primal.dtype)
    if out is None:
        out = result_for((x,), shape, dtype)
    check_out(name, out, shape, dtype)
    _fft(are_disjoint(x, primal_of(out)), out, function, chosen, _norm(norm))
    return out


def _fitted(name: str, x: Any, lengths: Any, axes: Sequence[int]) -> Any:
    """The array with its axes cut to these lengths, or followed by zeros."""
    if lengths is None:
        return x
    if not isinstance(lengths, Sequence | np.ndarray) or isinstance(lengths, str):
        raise ArgumentTypeError(f"{name}: s is a tuple of lengths, one for each axis, not {brief(lengths)}")
    for axis, length in zip(axes, lengths, strict=True):
        n, wanted = int(primal_of(x).shape[axis]), index(length)
        if wanted is None or wanted < 1:
            raise ArgumentValueError(f"{name}: a length is a whole number above 0, not {brief(length)}")
        key = (*[slice(None)] * axis, slice(0, wanted), ...)
        if wanted < n:
            x = view(x, lambda a, key=key: a[key])  # type: ignore[misc]
        elif wanted > n:
            x = pad(x, [(0, wanted - n if k == axis else 0) for k in range(primal_of(x).ndim)])
    return x


def _several(name: str, x: Any, s: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The axes of a transform along several, and their lengths."""
    ndim = array_of(name, x).ndim
    named = axes if axes is not None else range(ndim) if s is None else range(ndim - len(tuple(s)), ndim)
    return tuple(axis_of(name, a, ndim) for a in named), None if s is None else tuple(s)


def rfftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """The transform of a real array along some axes, all by default, as `numpy.fft.rfftn`."""
    along, lengths = _several("rfftn", x, s, axes)
    half = rfft(x, None if lengths is None else lengths[-1], along[-1], norm)
    return fftn(half, None if lengths is None else lengths[:-1], along[:-1], norm, out) if along[:-1] else half


def irfftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """The real array whose transform along some axes, all by default, is given, as `numpy.fft.irfftn`."""
    along, lengths = _several("irfftn", x, s, axes)
    full = ifftn(x, None if lengths is None else lengths[:-1], along[:-1], norm) if along[:-1] else x
    return irfft(full, None if lengths is None else lengths[-1], along[-1], norm, out)


def rfft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The transform of a real array along two axes, as `numpy.fft.rfft2`."""
    return rfftn(x, s, axes, norm, out)


def irfft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The real array whose transform along two axes is given, as `numpy.fft.irfft2`."""
    return irfftn(x, s, axes, norm, out)


def hfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The transform, which is real, of half of a Hermitian signal, as `numpy.fft.hfft`."""
    return irfft(apply("conjugate", x) if primal_of(x).dtype.kind == "c" else x, n, axis, _SWAPPED[_norm(norm)], out)


def ihfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """Half of the Hermitian signal whose transform is given, as `numpy.fft.ihfft`."""
    return apply("conjugate", rfft(x, n, axis, _SWAPPED[_norm(norm)]), out=out)


def _spectrum_type(dtype: Any) -> np.dtype[Any]:
    """Integers of any length are transformed as float64."""
    return np.dtype(np.result_type(np.float64 if dtype.kind in "biu" else dtype, np.complex64))


def _norm(norm: str | None) -> str:
    if norm not in (None, *_SWAPPED):
        raise ArgumentValueError(f"norm is None, 'backward', 'ortho' or 'forward', not {brief(norm)}")
    return norm or "backward"


def hfftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """The transform, which is real, of half of a Hermitian signal along some axes, as `scipy.fft.hfftn`."""
    return irfftn(apply("conjugate", x) if primal_of(x).dtype.kind == "c" else x, s, axes, _SWAPPED[_norm(norm)], out)


def ihfftn(x: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None, out: Any = None) -> Any:
    """Half of the Hermitian signal whose transform along some axes is given, as `scipy.fft.ihfftn`."""
    return apply("conjugate", rfftn(x, s, axes, _SWAPPED[_norm(norm)]), out=out)


def hfft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """As `hfftn` along two axes."""
    return hfftn(x, s, axes, norm, out)


def ihfft2(x: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """As `ihfftn` along two axes."""
    return ihfftn(x, s, axes, norm, out)


# --- transforms of real numbers into cosines and sines -----------------------------------------------------------------------------------

_INVERSE_TYPE = {1: 1, 2: 3, 3: 2, 4: 4}


def _weighted(y: Any, name: str, type: int, axis: int, power: int) -> Any:
    """The elements that stand for one frequency, where others stand for two, divided or multiplied (`power`) by 2."""
    if type == 4 or (name == "dst" and type == 1):
        return y
    ends = [0, -1] if type == 1 else [0] if name == "dct" else [-1]
    y = y.copy()
    for k in ends:
        y[(slice(None),) * axis + (k,)] *= 2.0**power
    return y


def _trigonometric_reverse(dx: Any, dy: Any, name: str, type: int, axis: int, scale: float | None) -> None:
    """Applies the transposed transform: types 2 and 3 are each other's but for the end that stands for one frequency, 1 and 4 their own."""
    if dx is None:
        return
    module, turned = scipy_of(dy, "fft"), _INVERSE_TYPE[type]
    if scale is None:
        grown = getattr(module, name)(dy, turned, axis=axis, norm="ortho")
    else:
        given = _weighted(dy, name, type, axis, 1) if type in (1, 2) else dy
        grown = getattr(module, name)(given, turned, axis=axis) * dy.dtype.type(scale)
        grown = _weighted(grown, name, type, axis, -1) if type in (1, 3) else grown
    add_to(dx, grown)


@rule(reads=("x",), overwrites=("y",), reverse=_trigonometric_reverse, linear=(("x",),))
def _trigonometric(x: Any, y: Any, name: str, type: int, axis: int, scale: float | None) -> None:
    """Makes a transform. `scale`: by which the one without a norm is multiplied; None for the orthogonal one."""
    y[...] = getattr(scipy_of(x, "fft"), name)(x, type, axis=axis, norm="ortho" if scale is None else None)
    if scale not in (None, 1.0):
        y *= y.dtype.type(scale)


def _several_trigonometric(name: str, x: Any, type: int, s: Any, axes: Any, norm: str | None, inverse: bool) -> Any:
    called = f"{'i' if inverse else ''}{name}"
    check_recorded(called, (x,))
    if type not in _INVERSE_TYPE:
        raise ArgumentValueError(f"{called}: type is 1, 2, 3 or 4, not {brief(type)}")
    along, lengths = _several(called, x, s, axes)
    x = _fitted(called, x, lengths, along)
    kind = np.result_type(primal_of(x).dtype, np.float32)
    for axis in along:
        n, own = int(primal_of(x).shape[axis]), _INVERSE_TYPE[type] if inverse else type
        period = 2 * (n if type != 1 else n - 1 if name == "dct" else n + 1)
        chosen = _norm(norm)
        out = result_for((x,), primal_of(x).shape, kind)
        scale = None if chosen == "ortho" else 1.0 / period if (chosen == "forward") is not inverse else 1.0
        _trigonometric(x, out, name, own, axis, scale)
        x = out
    return x


def _trigonometric_functions(name: str, inverse: bool) -> list[Callable[..., Any]]:
    """The transform along one axis, and that along several."""

    def one(x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: bool = False) -> Any:
        return _several_trigonometric(name, x, type, None if n is None else (n,), (axis,), norm, inverse)

    def several(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: Any = None, overwrite_x: bool = False) -> Any:
        return _several_trigonometric(name, x, type, s, axes if axes is None or np.ndim(axes) else (axes,), norm, inverse)

    own = f"{'i' if inverse else ''}{name}"
    text = "As `scipy.fft.{}`, of real arrays; the input is never overwritten."
    return [named(function, known, text.format(known)) for function, known in ((one, own), (several, f"{own}n"))]


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    rfftn, irfftn, rfft2, irfft2, hfft, ihfft, hfftn, ihfftn, hfft2, ihfft2,
    *(f for name in ("dct", "dst") for inverse in (False, True) for f in _trigonometric_functions(name, inverse)),
)  # fmt: skip
TABLE = {f"fft.{f.__name__}": f for f in _FUNCTIONS}
