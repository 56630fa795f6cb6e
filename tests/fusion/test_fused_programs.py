"""Kernels that are put together at run time: from files that include one another, macros given as options, and Python's strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline, testing
from gpuad.errors import CompileError, LocatedError, UnsupportedError

KERNEL = """#include "scale.h"
#include <sub/shape.cuh>
extern "C" __global__ void k(double* x) { x[threadIdx.x] = shape<POWER>(x[threadIdx.x]) * SCALE; }
"""
SHAPE = '#pragma once\n#include "../deep.h"\ntemplate <int N> __device__ double shape(double a) { return DEEP(a) * N; }\n'
THRUST = "Thrust is not supported; of its headers thrust/complex.h is"
SHAPE_OF = "template <int N> __device__ double shape(double a) {{ {} }}"
FENCE = "clocks are not supported: their values cannot be replayed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel beside one header of its own, and a folder of others."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "lib" / "sub").mkdir(parents=True)
    for name, text in {"mine/k.cu": KERNEL, "mine/scale.h": "#define SCALE 0.5\n", "lib/sub/shape.cuh": SHAPE}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "lib/deep.h").write_text("#define DEEP(a) (a) * (a)\n")
    return tmp_path


def _options(folder: Path, *more: str) -> tuple[str, ...]:
    return ("-I", str(folder / "lib"), "-DPOWER=3", *more)


def _gradient(kernel: Any) -> Any:
    x, dx = np.array([0.5, 2.0]), np.ones(2)
    gpuad.autodiff(kernel, 1, 2, (Duplicated(x, dx),))
    return dx


def test_a_file_finds_what_is_beside_it_and_in_given_folders(folder: Path, executor: Any) -> None:
    kernel = gpuad.kernel(folder / "mine" / "k.cu", "k", options=_options(folder))
    with pipeline.executor_for_tests(executor):
        assert np.allclose(_gradient(kernel), 3 * np.array([0.5, 2.0]))
        testing.check_gradient(kernel, (np.array([0.5, 2.0]),), grid=1, block=2)


def test_a_changed_header_is_read_again(folder: Path) -> None:
    path = folder / "mine" / "k.cu"
    assert np.allclose(_gradient(gpuad.kernel(path, "k", options=_options(folder))), [1.5, 6])
    (folder / "lib/deep.h").write_text("#define DEEP(a) (a)\n")
    assert np.allclose(_gradient(gpuad.kernel(path, "k", options=_options(folder))), [1.5, 1.5])


@pytest.mark.parametrize(
    ("header", "text", "error", "message"),
    [
        ("lib/sub/shape.cuh", SHAPE_OF.format("return a * ^lost;"), CompileError, "use of undeclared identifier 'lost'"),
        ("lib/sub/shape.cuh", "\n^#error no shape", CompileError, "no shape"),
        ("lib/sub/shape.cuh", SHAPE_OF.format("\n  ^clock64(); return a;"), UnsupportedError, FENCE),
        ("mine/scale.h", "#include ^<thrust/sort.h>", UnsupportedError, f"the header 'thrust/sort.h' cannot be used: {THRUST}"),
        ("mine/scale.h", '\n#include ^"no.h"', UnsupportedError, "the header 'no.h' was not found; give its folder with the option -I"),
        ("mine/scale.h", "__device__ int s() {\n  return ^t; }\n#define SCALE s()", CompileError, "use of undeclared identifier 't'"),
    ],
)  # fmt: skip
def test_an_error_in_a_header_is_placed_there(folder: Path, header: str, text: str, error: type[LocatedError], message: str) -> None:
    before, _, after = text.partition("^")
    (folder / header).write_text(before + after)
    with pytest.raises(error) as caught:
        gpuad.kernel(folder / "mine" / "k.cu", "k", options=_options(folder))
    found = caught.value
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert (found.message, found.line) == (message, place[0])
    assert found.file is not None and Path(found.file).samefile(folder / header)
    assert found.column == place[1] or "#error" in text


@pytest.mark.parametrize("power", [1, 3])
def test_macros_and_format_strings(power: int) -> None:
    terms = " * ".join(["x[i]"] * power)
    text = f'extern "C" __global__ void k(REAL* x) {{ int i = threadIdx.x; x[i] = FACTOR({terms}); }}'
    kernel = gpuad.kernel(text, "k", options=("-DREAL=double", "-DFACTOR(x)=(2*(x))", "--std=c++14", "-lineinfo"))
    assert np.allclose(_gradient(kernel), 2 * power * np.array([0.5, 2.0]) ** (power - 1))


def test_an_error_through_a_macro_is_placed_where_the_macro_is_used() -> None:
    text = 'extern "C" __global__ void k(float* x)\n{ x[0] = BAD; }'
    with pytest.raises(UnsupportedError) as caught:
        gpuad.kernel(text, "k", options=("-DBAD=clock()",))
    assert (caught.value.line, caught.value.column) == (2, 10)
