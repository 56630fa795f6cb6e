"""The kernels that ship, as NVRTC's PTX, against the reference executor: primal, reverse, forward mode, the split pair; with everything
recorded, with every addition to a shadow atomic, with the same bits in every run, forward over reverse; and twice in a program, recorded,
reversed, and replayed as a graph with its launches joined.

Every launch is checked for accesses out of bounds, misaligned and uninitialised, and for races in shared memory. `GPUAD_NIGHTLY=1` runs all
of it; else the first case of every second file runs in reverse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gpu_checks
import numpy as np
import ptx_cupy
import pytest
from launch_tools import CASES
from nightly import share
from ptx import nvrtc

import gpuad
from benchmarks.workload import Workload, workload
from gpuad import Active, Duplicated, TapeError, UnsupportedError, pipeline
from gpuad.runtime.reference import Reference

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

NIGHTLY = bool(os.environ.get("GPUAD_NIGHTLY"))
SETTINGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "recorded": pipeline.everything_recorded_for_tests,
    "atomic": pipeline.nothing_plain_for_tests,
    "deterministic": gpuad.deterministic,
}
FIRST = {case.file.name: name for name, case in reversed(CASES.items())}.values()
EVERY_SECOND = share(list(FIRST), 2)
WAYS = ("primal", "reverse", "forward", "split", *SETTINGS, "hvp", "program")
CHOSEN = [(name, way) for name in CASES for way in WAYS if NIGHTLY or (name in EVERY_SECOND and way == "reverse")]


class Unordered(Reference):
    """As a GPU, on which the threads of a block come in any order: what hangs on that is refused."""

    orders_blocks = False


REFERENCE = Unordered()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in for CuPy that executes PTX."""
    with ptx_cupy.installed(monkeypatch) as module:
        yield module


def run(name: str, way: str, library: Any) -> dict[str, Any]:
    """A case's arrays and shadows after it ran in one of the ways; UnsupportedError where that way is refused."""
    case = CASES[name]
    work = gpu_checks.seeded(workload(case, library), library)
    grid, block, shared_mem = case.geometry()
    launch = (work.kernel, grid, block, work.args)
    match way:
        case "primal":
            work.kernel(grid, block, work.args, shared_mem=shared_mem)
        case "split":
            split(work, shared_mem)
        case "hvp":
            dots = tuple(map(direction, work.args))
            gpuad.hvp(*launch, dots, shared_mem=shared_mem)
            found = {f"{n} {part}": getattr(dot, part, None) for n, dot in enumerate(dots) for part in ("primal", "shadow")}
            return gpu_checks.results(work) | {n: gpu_checks.on_host(x) for n, x in found.items() if hasattr(x, "strides")}
        case "program":
            program(work, shared_mem)
        case _:
            with SETTINGS.get(way, nullcontext)():
                gpuad.autodiff(*launch, mode=gpuad.Forward if way == "forward" else gpuad.Reverse, shared_mem=shared_mem)
    return gpu_checks.results(work)


def split(work: Workload, shared_mem: int) -> None:
    """Forward and reverse apart, with the arguments cleared between them."""
    active = {n: type(a) for n, a in zip((d.name for d in work.kernel.parameters), work.args, strict=True) if n in work.case.active}
    augmented, reverse = gpuad.autodiff_thunk(work.kernel, **active)
    saved = augmented(work.call.grid, work.call.block, work.args, shared_mem=shared_mem)
    for arg in work.args:
        if isinstance(arg, Duplicated):
            arg.primal.fill(0)
    reverse(work.call.grid, work.call.block, work.args, saved, shared_mem=shared_mem)


def program(work: Workload, shared_mem: int) -> None:
    """Two launches, recorded and reversed; then all of it from the same start as a graph, or once more where none can be captured."""
    tape, start = gpuad.Tape(), [(array, array.copy()) for array, _ in work.kept]

    def recorded() -> None:
        with tape:
            for _ in range(2):
                work.kernel(work.call.grid, work.call.block, work.args, shared_mem=shared_mem)
        tape.reverse(allow_unused=True)

    recorded()
    try:
        again = tape.graph().launch
    except TapeError as refused:
        assert "cannot be captured in a graph" in str(refused)
        again = recorded
    for array, before in start:
        array[...] = before
    again()


def direction(arg: Any) -> Any:
    """Along an argument's own seed, for `hvp`."""
    if isinstance(arg, Active):
        return Active(arg.value, arg.shadow.copy())
    return Duplicated(arg.shadow.copy(), arg.shadow.copy()) if isinstance(arg, Duplicated) else None


def tolerance(found: dict[str, Any]) -> float:
    """What the types of a case allow, relative to the norm: the compiler fuses products and sums, and atomic additions have any order."""
    kinds = {x.dtype[n] if n else x.dtype for x in found.values() for n in x.dtype.names or ("",)}
    if any(str(k) == "bfloat16" for k in kinds):
        return 2.0**-8
    return 1e-5 if any((k.kind in "fc" and k.itemsize <= (8 if k.kind == "c" else 4)) or k.kind == "V" for k in kinds) else 1e-12


@pytest.mark.one_of(12)
@pytest.mark.parametrize(("name", "way"), CHOSEN)
def test_ptx_agrees_with_the_reference(cupy: Any, name: str, way: str) -> None:
    try:
        with pipeline.executor_for_tests(REFERENCE):
            expected = run(name, way, np)
    except UnsupportedError as refused:
        with pytest.raises(UnsupportedError, match=re.escape(str(refused))):
            run(name, way, cupy)
        return
    found = run(name, way, cupy)
    found = {key: x.view(expected[key].dtype) if key in expected else x for key, x in found.items()}
    start = gpu_checks.results(workload(CASES[name], np)) if way == "program" else None
    gpu_checks.close(found, expected, tolerance(expected), start)
    for key, value in gpu_checks.fields(expected, expected).items():
        if value.dtype.kind in "iub":
            np.testing.assert_array_equal(gpu_checks.fields(found, expected)[key], value, err_msg=key)
