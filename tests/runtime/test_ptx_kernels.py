"""The kernels that ship, as NVRTC's PTX: primal, reverse, forward and the split pair, against the reference executor.

Every launch is checked for accesses out of bounds, misaligned and uninitialised, and for races in shared memory. `GPUAD_NIGHTLY=1` runs all
of it; else the first case of each file runs in reverse.
"""

from __future__ import annotations

import os
from typing import Any

import gpu_checks
import numpy as np
import ptx_cupy
import pytest
from launch_tools import CASES, EXECUTORS
from ptx import nvrtc

import gpuad
from benchmarks.workload import workload
from gpuad import Duplicated, pipeline

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

NIGHTLY = bool(os.environ.get("GPUAD_NIGHTLY"))
WAYS = ("primal", "reverse", "forward", "split")
FIRST = {case.file.name: name for name, case in reversed(CASES.items())}.values()
CHOSEN = [(name, way) for name in CASES for way in WAYS if NIGHTLY or (name in FIRST and way == "reverse")]


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in for CuPy that executes PTX."""
    with ptx_cupy.installed(monkeypatch) as module:
        yield module


def run(name: str, way: str, library: Any) -> dict[str, Any]:
    """A case's arrays and shadows after it ran in one of the ways."""
    case = CASES[name]
    work = gpu_checks.seeded(workload(case, library), library)
    grid, block, shared_mem = case.geometry()
    match way:
        case "primal":
            work.kernel(grid, block, work.args, shared_mem=shared_mem)
        case "split":
            active = {n: type(a) for n, a in zip((d.name for d in work.kernel.parameters), work.args, strict=True) if n in case.active}
            augmented, reverse = gpuad.autodiff_thunk(work.kernel, **active)
            saved = augmented(grid, block, work.args, shared_mem=shared_mem)
            for arg in work.args:
                if isinstance(arg, Duplicated):
                    arg.primal.fill(0)
            reverse(grid, block, work.args, saved, shared_mem=shared_mem)
        case _:
            mode = gpuad.Forward if way == "forward" else gpuad.Reverse
            gpuad.autodiff(work.kernel, grid, block, work.args, mode=mode, shared_mem=shared_mem)
    return gpu_checks.results(work)


def tolerance(found: dict[str, Any]) -> float:
    """What the types of a case allow, relative to the norm: the compiler fuses products and sums, and atomic additions have any order."""
    kinds = {x.dtype[n] if n else x.dtype for x in found.values() for n in x.dtype.names or ("",)}
    if any(str(k) == "bfloat16" for k in kinds):
        return 2.0**-8
    return 1e-5 if any((k.kind in "fc" and k.itemsize <= (8 if k.kind == "c" else 4)) or k.kind == "V" for k in kinds) else 1e-12


@pytest.mark.parametrize(("name", "way"), CHOSEN)
def test_ptx_agrees_with_the_reference(cupy: Any, name: str, way: str) -> None:
    found = run(name, way, cupy)
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        expected = run(name, way, np)
    found = {key: x.view(expected[key].dtype) if key in expected else x for key, x in found.items()}
    gpu_checks.close(found, expected, tolerance(expected))
    for key, value in gpu_checks.fields(expected, expected).items():
        if value.dtype.kind in "iub":
            np.testing.assert_array_equal(gpu_checks.fields(found, expected)[key], value, err_msg=key)
