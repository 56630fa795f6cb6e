"""A problem in C++ as an expert writes it: loops over the cores by OpenMP, adjoints that gather.

The text of a problem has two functions, `primal` and `gradient`, of one signature: pointers to the arrays in the order that the problem
states, then the numbers of its size. A gradient is called d and the input's name.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuad.errors import CompileError
from gpuad.runtime.compiler import find_compiler

from .. import measure
from ..problem import Arrays, Missing, Record, Size

OPTIONS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC")
THREADS = "-fopenmp"


class ByHand:
    """The compiled functions on arrays of their own."""

    def __init__(self, problem: Any, size: Size, given: Arrays, place: str) -> None:
        if place != "cpu" or problem.cpp is None:
            raise Missing("nobody has written it" if place == "cpu" else "it is for the CPU")
        self.library, self.threads = compiled(problem.cpp)
        further = {name: np.zeros(shape, np.float32) for name, shape in problem.by_hand(size).items()}
        gradients = {f"d{name}": np.zeros_like(given[name]) for name in problem.active}
        self.arrays = {**given, **further, **gradients}
        self.gradients = gradients
        self.start = {name: given[name].copy() for name in problem.overwritten}
        self.history = sum(a.nbytes for name, a in further.items() if name == "history")
        self.call = [self.arrays[name].ctypes.data_as(ctypes.c_void_p) for name in problem.order]
        self.call += [ctypes.c_long(value) for value in size.values()]

    def prepare(self) -> None:
        for name, before in self.start.items():
            self.arrays[name][...] = before
        for gradient in self.gradients.values():
            gradient.fill(0)

    def primal(self) -> None:
        self.library.primal(*self.call)

    def gradient(self) -> None:
        self.library.gradient(*self.call)

    def found(self) -> Arrays:
        return {name[1:]: array for name, array in self.gradients.items()}

    def about(self) -> Record:
        return {"saved_bytes": self.history, **({} if self.threads else {"note": "on one core: the compiler has no OpenMP"})}


@cache
def compiled(text: str) -> tuple[Any, bool]:
    """The library, and whether it uses all cores."""
    folder = Path(tempfile.mkdtemp(prefix="by-hand-"))
    source = folder / "hand.cpp"
    source.write_text("#include <cmath>\n#include <cstring>\n#include <vector>\n" + text, encoding="utf-8")
    try:
        command = find_compiler().command
    except CompileError as error:
        raise Missing("no C++ compiler") from error
    for options in ((*OPTIONS, THREADS), OPTIONS):
        target = folder / f"hand{len(options)}.so"
        ran = subprocess.run([*command, *options, str(source), "-o", str(target)], capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return ctypes.CDLL(str(target)), THREADS in options
    raise CompileError(f"what is written by hand does not compile:\n{ran.stderr[-2000:]}")


# With a factor, so that it does not become a call of memcpy, which goes past the caches.
COPY = """
    extern "C" void copy(const float* __restrict__ a, float* __restrict__ b, long n, float one) {
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) b[i] = one * a[i];
    }
"""


def copy_seconds(nbytes: int, most: float) -> float:
    """Seconds of a copy from one half of so many bytes to the other, on all cores: the median of what fits the time. By NumPy on one core
    where there is no compiler."""
    a, b = np.ones(max(nbytes // 8, 1), np.float32), np.zeros(max(nbytes // 8, 1), np.float32)
    try:
        function = compiled(COPY)[0].copy
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, b)]
        run: Any = lambda: function(*pointers, ctypes.c_long(a.size), ctypes.c_float(1.0))  # noqa: E731
    except (CompileError, Missing):
        run = lambda: np.copyto(b, a)  # noqa: E731
    run()
    samples = [measure.seconds(run)]
    while sum(samples) < most and len(samples) < 200:
        samples.append(measure.seconds(run))
    return statistics.median(samples)
