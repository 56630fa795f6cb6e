"""`gpuad run --cpu script.py args`: a program for CuPy on a machine without a GPU, its kernels looked at on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from .. import api, cpu_device
from ..cpu_device.library_functions import memory
from ..errors import CompileError, UnsupportedError
from .scripts import compiled, executed


def run(script: Path, args: Sequence[str], *, seed: int | None, check: bool) -> int:
    """Runs a script with the CPU as CuPy's device; gives its exit status. `seed`: as for `cpu_device.enable`. `check`: raw kernels run on
    gpuad's interpreter, which raises for races and for accesses outside of an array, with the line of the kernel."""
    code = compiled(script)
    cpu_device.enable(seed=seed)
    cupy = sys.modules["cupy"]
    if check:
        look_at_kernels(cupy)
    status = executed(code, script, args)
    cupy.cuda.Device().synchronize()  # an error of the last launches is one of the program
    return status


def look_at_kernels(cupy: Any) -> None:
    """Lets `cupy.RawKernel` and functions of `cupy.RawModule` run on gpuad's interpreter."""
    kernel, module = cupy.RawKernel, cupy.RawModule

    class RawModule(module):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._text, self._options = options.get("code", args[0] if args else None), tuple(options.get("options", ()))

        def get_function(self, name: str) -> Any:
            return _Checked(super().get_function(name), self._text, name, self._options)

    def raw_kernel(code: str, name: str, options: tuple[str, ...] = (), **rest: Any) -> Any:
        return _Checked(kernel(code, name, options, **rest), code, name, options)

    cupy.RawKernel, cupy.RawModule = raw_kernel, RawModule


class _Checked:
    """A kernel of CuPy whose launches run on the interpreter; one that gpuad does not read is compiled, and that is said."""

    def __init__(self, kernel: Any, text: str | None, name: str, options: tuple[str, ...]) -> None:
        self._kernel = kernel
        try:
            self._read = (
                None if text is None else api.kernel(text, name, options=tuple(o for o in options if o.startswith(("-D", "-I", "-std"))))
            )
        except (CompileError, UnsupportedError) as error:
            self._read = None
            print(f"gpuad: `{name}` is not looked at, but compiled: {error}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], **options: Any) -> None:
        """As CuPy's. LaunchError for a race or an access outside, with the kernel's line."""
        if self._read is None:
            self._kernel(grid, block, args, **options)
            return
        sys.modules["cupy"].cuda.Device().synchronize()
        api.check_races(self._read, tuple(grid), tuple(block), tuple(seen(args)), shared_mem=options.get("shared_mem", 0))


def seen(args: Sequence[Any]) -> Iterator[Any]:
    """The arguments with arrays of NumPy in place of CuPy's: the same memory, and what overlaps has one base."""
    arrays = [arg for arg in args if hasattr(arg, "__cuda_array_interface__")]
    extents: list[tuple[int, int]] = []
    for low, high in sorted(map(_extent, arrays)):
        if extents and low < extents[-1][1]:
            extents[-1] = extents[-1][0], max(high, extents[-1][1])
        else:
            extents.append((low, high))
    bases = {low: memory(low, high - low) for low, high in extents if high > low}
    for arg in args:
        yield _view(arg, bases) if hasattr(arg, "__cuda_array_interface__") else arg


def _extent(array: Any) -> tuple[int, int]:
    """The first address of an array and the one behind its last byte."""
    if array.size == 0:
        return array.data.ptr, array.data.ptr
    reaches = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    return array.data.ptr + sum(r for r in reaches if r < 0), array.data.ptr + sum(r for r in reaches if r > 0) + array.itemsize


def _view(array: Any, bases: dict[int, NDArray[np.uint8]]) -> NDArray[Any]:
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    low, high = _extent(array)
    start, base = max((place, base) for place, base in bases.items() if place <= low)
    part = base[low - start : high - start].view(array.dtype)[(array.data.ptr - low) // array.itemsize :]
    return as_strided(part, array.shape, array.strides)


__all__ = ["look_at_kernels", "run", "seen"]
