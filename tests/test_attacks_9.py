"""Found by attacks on what is remembered, owed or done in batches."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuad.errors import CompileError
from gpuad.executors import clear, digest
from gpuad.executors.compiler import find_compiler


def _has_compiler() -> bool:
    try:
        find_compiler()
    except CompileError:
        return False
    return True


@pytest.mark.skipif(not _has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("module", [clear, digest])
def test_own_texts_compile(module: object) -> None:
    """A text that the compiler rejected passed for a machine without a compiler, and NumPy did the work."""
    module._entry.cache_clear()  # type: ignore[attr-defined]
    assert module._entry() is not None  # type: ignore[attr-defined]


_FIRST = """
import numpy as np
from gpuad.program.actions import clearing, perform
array = np.ones(1 << 20)
perform([clearing(array)])
assert not array.any()
import gpuad
square = gpuad.kernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2.0f; }', "f")
x = np.ones(4, np.float32)
square(1, 4, (x,))
assert (x == 2).all()
"""


def test_what_is_compiled_first() -> None:
    """The library that is loaded first does the batches of all, whatever else it is there for."""
    subprocess.run([sys.executable, "-c", _FIRST], check=True)
