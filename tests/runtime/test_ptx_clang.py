"""The shipped kernels as the PTX that clang makes of the printed texts, against the reference executor: what a second compiler has
understood. `GPUAD_NIGHTLY=1` runs all of them, primal, reverse and forward mode; else three cases in reverse."""

from __future__ import annotations

import os

import gpu_checks
import numpy as np
import pytest
from launch_tools import CASES, EXECUTORS
from ptx import clang
from ptx_executor import Ptx
from ptx_tools import Device
from test_ptx_kernels import run, tolerance

from gpuad import pipeline

NIGHTLY = bool(os.environ.get("GPUAD_NIGHTLY"))
CHOSEN = [(name, way) for name in CASES for way in ("primal", "reverse", "forward")] if NIGHTLY else []
CHOSEN += [] if NIGHTLY else [(name, "reverse") for name in ("heat", "block_softmax", "histogram")]
PTX = Ptx(front_end=clang.ptx)


@pytest.fixture(autouse=True)
def front_end() -> None:
    if (reason := clang.missing()) is not None:
        pytest.skip(reason)


@pytest.mark.parametrize(("name", "way"), CHOSEN)
def test_clang_agrees_with_the_reference(name: str, way: str) -> None:
    sides = []
    for executor in (PTX, EXECUTORS["reference"]):
        with pipeline.executor_for_tests(executor):
            sides.append(run(name, way, np))
    gpu_checks.close(*sides, tolerance(sides[1]))
    for key, value in gpu_checks.fields(sides[1], sides[1]).items():
        if value.dtype.kind in "iub":
            np.testing.assert_array_equal(gpu_checks.fields(sides[0], sides[1])[key], value, err_msg=key)


def test_a_text_that_clang_refuses() -> None:
    with pytest.raises(clang.CompileError, match="identifier 'flat'"):
        clang.ptx('extern "C" __global__ void k(flat* x) {}')


def test_options_mean_what_they_mean_to_nvrtc() -> None:
    text = 'extern "C" __global__ void k(float* x, float a, float b) { x[0] = x[1] * a + b; }'
    near, sum_, least = np.float32(1 + 2**-12), np.float32(-1 - 2**-11), np.float32(2.0**-130)
    for options, factors, expected in (
        ((), (near, near, sum_), 2.0**-24),
        (("-fmad=false",), (near, near, sum_), 0.0),
        ((), (least, 1, 0), least),
        (("-ftz=true",), (least, 1, 0), 0.0),
    ):
        x = np.array([7, factors[0]], np.float32)
        Device().launch(clang.ptx(text, options)[0], "k", 1, 1, [x, *map(np.float32, factors[1:])])
        assert x[0] == expected, options
