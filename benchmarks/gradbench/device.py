"""The array library of the evals: CuPy where there is a GPU, else NumPy; and the kernels, loaded once."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import gpuad

CUDA = Path(__file__).parent / "cuda"
KERNELS = Path(__file__).parents[2] / "kernels"


@cache
def library() -> Any:
    """CuPy, if it is installed and finds a GPU; else NumPy."""
    try:
        cupy = import_module("cupy")
        return cupy if cupy.cuda.runtime.getDeviceCount() > 0 else np
    except Exception:  # not installed, or no driver: CuPy has errors of its own for each
        return np


@cache
def kernel(file: str, name: str) -> gpuad.Kernel:
    """A kernel of a file beside the tool, else of one in `kernels/`."""
    path = CUDA / file
    return gpuad.kernel((path if path.exists() else KERNELS / file).read_text(encoding="utf-8"), name)


def array(values: Any, dtype: Any = np.float64) -> Any:
    """The values as an array of the device, in C order."""
    return library().ascontiguousarray(library().asarray(values, dtype=dtype))


def zeros(*shape: int) -> Any:
    """Zeros of float64 on the device."""
    return library().zeros(shape)


def finish() -> None:
    """Waits until all launches have ended."""
    if library() is not np:
        library().cuda.Device().synchronize()


def blocks(threads: int, block: int) -> tuple[int]:
    """The grid that has at least so many threads."""
    return (-(-threads // block),)
