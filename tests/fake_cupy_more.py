"""What whole programs call of CuPy beyond what gpuad itself needs, for the stand-in: functions by NumPy's on the host's memory, transforms,
and kernels without a grid, which gpuad's own executor runs on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import gpuad

FUNCTIONS = (
    "log", "cos", "tanh", "square", "mean", "log1p", "floor", "clip", "minimum", "concatenate", "linspace", "eye", "conj", "angle", "roll",
    "outer", "dot", "arctan2", "hypot", "cumsum", "argsort", "take_along_axis", "bincount", "searchsorted", "pad", "prod", "min", "max",
    "var", "std", "meshgrid", "tensordot", "einsum", "power", "divide", "subtract",
)  # fmt: skip
TRANSFORMS = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "fftfreq", "rfftfreq", "fftshift", "ifftshift")


class _Mapped:
    """A kernel that is called with arrays: CuPy's attributes, and a call that gpuad runs on the host."""

    kind: Callable[..., Any]

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._own = self.kind(*args, **keywords)
        self.in_params, self.out_params = (tuple(map(_described, found)) for found in (self._own.in_params, self._own.out_params))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_own"], name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        assert not any(isinstance(x, gpuad.Duplicated | gpuad.Active) for x in (*args, *keywords.values())), "CuPy knows no pairs"
        return wrapped(self._own(*map(host, args), **{key: host(value) for key, value in keywords.items()}))


def _described(parameter: Any) -> SimpleNamespace:
    """A parameter as CuPy's objects have it."""
    return SimpleNamespace(dtype=parameter.dtype, ctype=parameter.letter, raw=parameter.raw, name=parameter.name)


class ElementwiseKernel(_Mapped):
    kind = gpuad.ElementwiseKernel

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", reduce_dims: bool = True, preamble: str = "",
        no_return: bool = False, return_tuple: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_params, out_params, operation, name, reduce_dims, preamble, no_return, return_tuple, **kwargs)
        self.operation, self.preamble, self.kwargs = operation, preamble, kwargs


class ReductionKernel(_Mapped):
    kind = gpuad.ReductionKernel

    def __init__(
        self, in_params: str, out_params: str, map_expr: str, reduce_expr: str, post_map_expr: str, identity: Any,
        name: str = "reduce_kernel", reduce_type: Any = None, reduce_dims: bool = True, preamble: str = "", options: Any = (),
    ) -> None:  # fmt: skip
        super().__init__(
            in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name, reduce_type, reduce_dims, preamble, options
        )
        self.map_expr, self.reduce_expr, self.post_map_expr, self.preamble = map_expr, reduce_expr, post_map_expr, preamble


for _kind in (ElementwiseKernel, ReductionKernel):
    _kind.__module__ = "cupy"


def host(x: Any) -> Any:
    """The content of an array of the stand-in; of lists and tuples that of each part."""
    if type(x) in (list, tuple):
        return type(x)(map(host, x))
    return x.host() if hasattr(x, "host") else x


def wrapped(x: Any) -> Any:
    """Results of NumPy's as arrays of the stand-in."""
    import fake_cupy

    if type(x) in (list, tuple):
        return type(x)(map(wrapped, x))
    return fake_cupy.wrapped(x) if isinstance(x, np.ndarray | np.generic) else x


def called(function: Callable[..., Any], *args: Any, out: Any = None, **keywords: Any) -> Any:
    """A function of NumPy's on the host's memory; its result as a new array, or in `out`."""
    if out is not None:
        out[...] = called(function, *args, **keywords)
        return out
    return wrapped(function(*map(host, args), **{key: host(value) for key, value in keywords.items()}))


class Fusion:
    """What CuPy's `fuse` makes of a function."""

    def __init__(self, func: Callable[..., Any], name: str | None = None) -> None:
        self.func = func

    def __call__(self, *args: Any) -> Any:
        assert not any(isinstance(x, gpuad.Duplicated | gpuad.Active) for x in args), "CuPy's fusion knows no pairs"
        return self.func(*args)


Fusion.__module__ = "cupy._core.new_fusion"


def fuse(*args: Any, **keywords: Any) -> Any:
    """As CuPy's: with a function, or with options before one."""
    if args:
        return Fusion(*args, keywords.get("kernel_name"))
    return lambda function: Fusion(function, keywords.get("kernel_name"))


def extend(cupy: ModuleType) -> None:
    """Adds these to a module `cupy`."""
    for name in FUNCTIONS:
        if not hasattr(cupy, name):
            setattr(cupy, name, partial(called, getattr(np, name)))
    cupy.fft = ModuleType("cupy.fft")  # type: ignore[attr-defined]
    for name in TRANSFORMS:
        setattr(cupy.fft, name, partial(called, getattr(np.fft, name)))
    vars(cupy).update(ElementwiseKernel=ElementwiseKernel, ReductionKernel=ReductionKernel, fuse=fuse, complex128=np.complex128, pi=np.pi)
