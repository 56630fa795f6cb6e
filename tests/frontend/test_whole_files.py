"""Files as they are: several kernels, local headers, headers of the host and functions that only the host calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuad
from gpuad.errors import CompileError, UnsupportedError
from gpuad.testing import check_gradient

COMMON = """#pragma once
#ifndef TILE
#error "define TILE"
#endif
#define SQUARE(x) ((x) * (x))
template <class F> __device__ float applied(F f, float x) { return f(x) * TILE; }
"""
FILE = """
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>
#include <sys/time.h>
#include <omp.h>
#include <cuda_runtime.h>
#include "common.h"
#define KERNEL(name, of) \\
  extern "C" __global__ void name(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = of(x[i]); }
KERNEL(squares, SQUARE)
KERNEL(roots, sqrtf)
namespace inner { __host__ __device__ inline float twice(float a) { return 2 * a; } }
void launched(float* x, float* y, int n) {
  std::vector<float> all(n);
  std::cout << all.size() << std::endl;
  squares<<<1, n>>>(x, y, n);
  printf("%d threads\\n", omp_get_max_threads());
}
extern "C" __global__ void last(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = applied([=](float a) { return inner::twice(a) * x[i]; }, x[i]);
}
template <class T> __global__ void pairs(T* u) { u[threadIdx.x].x *= u[threadIdx.x].y; }
int main() { launched(nullptr, nullptr, 0); return 0; }
""".replace("\\\\", "\\")


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "common.h").write_text(COMMON)
    (tmp_path / "whole.cu").write_text(FILE)
    return str(tmp_path / "whole.cu")


@pytest.mark.parametrize("name", ["squares", "roots", "last"])
def test_each_kernel(file: str, name: str) -> None:
    kernel = gpuad.kernel(file, name, options=("-DTILE=3",))
    x = np.linspace(0.5, 2, 8, dtype=np.float32)
    check_gradient(kernel, (x, np.zeros(8, np.float32), 8), grid=(1,), block=(8,), directions=1)


def test_a_template_without_arguments(file: str) -> None:
    with pytest.raises(CompileError, match=r"'pairs' is a template; name an instance of it, as in 'pairs<float2>'"):
        gpuad.kernel(file, "pairs", options=("-DTILE=3",))


def test_what_is_missing(file: str) -> None:
    """A macro is asked for by the header's own line; a header by its name."""
    with pytest.raises(CompileError, match='"define TILE"') as error:
        gpuad.kernel(file, "squares")
    assert error.value.file is not None
    assert error.value.file.endswith("common.h")
    assert error.value.line == 3
    with pytest.raises(UnsupportedError, match=r"the header 'common.h' was not found; give its folder with the option -I"):
        gpuad.kernel(FILE, "squares", options=("-DTILE=3",))


def test_the_host_outside_of_functions() -> None:
    """What such an error leaves of a text is not known; where it is, what to write."""
    text = '#include <vector>\nstd::vector<float> all;\nextern "C" __global__ void k(float* x) { x[0] = 1; }'
    with pytest.raises(CompileError, match=r"undefined template 'std::vector<float>'; code of the host that needs it stands between"):
        gpuad.kernel(text, "k")
    between = text.replace("std::vector<float> all;", "#ifndef __CUDACC_RTC__\nstd::vector<float> all;\n#endif")
    gpuad.kernel(between, "k")


@pytest.mark.parametrize("body", ["int a = ;", "std::array<float, 3 v; v[0] = 1;", "auto f = [&](int i) { return a[i; };"])
def test_the_host_inside_of_a_function(body: str) -> None:
    """A text that does not parse is refused as NVRTC does, at its place, with what to write."""
    text = f'extern "C" __global__ void k(float* x) {{ x[0] = 1; }}\nvoid run(float* a) {{ {body} }}'
    with pytest.raises(CompileError, match=r"; 'run' is a function of the host, which NVRTC reads too: it stands between #ifndef") as error:
        gpuad.kernel(text, "k")
    assert error.value.line == 2
    gpuad.kernel(text.replace("void run", "#ifndef __CUDACC_RTC__\nvoid run") + "\n#endif", "k")


def test_the_device_inside_of_a_function() -> None:
    with pytest.raises(CompileError) as error:
        gpuad.kernel('__device__ float f(float a) { return a +; }\nextern "C" __global__ void k(float* x) { x[0] = f(1); }', "k")
    assert error.value.message == "expected expression"
