"""On a GPU: every case against the host executor, kernels and memory as CuPy users have them, streams, and the generated text by itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gpu_checks
import gpu_checks_2
import numpy as np
import pytest
from launch_tools import CASES, compiled

import gpuad
from gpuad import Duplicated, testing
from gpuad.errors import LaunchError

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy() -> Any:
    return importlib.import_module("cupy")


@pytest.mark.parametrize("mode", ["Reverse", "Forward"])
@pytest.mark.parametrize("name", CASES)
def test_case(cupy: Any, name: str, mode: str) -> None:
    gpu_checks.agrees(cupy, name, getattr(gpuad, mode))


@pytest.mark.parametrize("name", gpu_checks.SPLIT)
def test_split_pair(cupy: Any, name: str) -> None:
    gpu_checks.split_agrees(cupy, name)


@pytest.mark.parametrize("name", gpu_checks.RUN_AS_TEXT)
def test_golden_text(cupy: Any, name: str) -> None:
    gpu_checks.golden_runs(cupy, name)


@pytest.mark.parametrize("check", (*gpu_checks.CHECKS, *gpu_checks_2.CHECKS), ids=lambda check: check.__name__)
def test_check(cupy: Any, check: Callable[[Any], None]) -> None:
    check(cupy)


@pytest.mark.parametrize("way", ["current", "keyword"])
@pytest.mark.parametrize("again", range(3))
def test_stream(cupy: Any, way: str, again: int) -> None:
    gpu_checks.on_stream(cupy, way)


@pytest.mark.parametrize("allocate", ["managed", "foreign", "async", "unpooled"])
def test_memory_of_other_allocators(cupy: Any, allocate: str) -> None:
    """Managed and stream-ordered memory, memory without a pool, and memory that another library owns."""
    memory = cupy.cuda.memory
    makers = {"managed": memory.malloc_managed, "async": memory.malloc_async, "unpooled": None}
    if allocate == "foreign":
        owner = cupy.ones(200, dtype=np.float32)
        block = memory.UnownedMemory(owner.data.ptr, owner.nbytes, owner)
        pair = [cupy.ndarray((100,), np.float32, memory.MemoryPointer(block, offset)) for offset in (0, 400)]
    else:
        with cupy.cuda.using_allocator(makers[allocate]):
            pair = [cupy.ones(100, dtype=np.float32) for _ in range(2)]
    pair[0].fill(2)
    gpuad.autodiff(compiled(gpu_checks.CUBE, "cube"), 1, 128, (Duplicated(*pair), 100))
    np.testing.assert_array_equal(pair[0].get(), np.full(100, 8))
    np.testing.assert_array_equal(pair[1].get(), np.full(100, 12))


def test_a_launch_beyond_the_device_changes_nothing(cupy: Any) -> None:
    x, dx = cupy.full(10, 2, dtype=np.float32), cupy.ones(10, dtype=np.float32)
    with pytest.raises(LaunchError):
        gpuad.autodiff(compiled(gpu_checks.CUBE, "cube"), 1, 1024, (Duplicated(x, dx), 10), shared_mem=1 << 24)
    np.testing.assert_array_equal(x.get(), np.full(10, 2))
    np.testing.assert_array_equal(dx.get(), np.ones(10))


def test_gradient_check_runs_on_the_device(cupy: Any) -> None:
    x = cupy.asarray(np.linspace(0.5, 1.5, 40))
    y = cupy.zeros(40)
    report = testing.check_gradient(compiled(gpu_checks.CUBE, "scale"), (y, x, 2.0, 40), grid=1, block=64, race_check=False)
    assert report.passed


def test_rows_taken_by_index_have_gradients_of_the_same_bits(cupy: Any) -> None:
    """CuPy adds at index arrays in no order; a deterministic reverse does not show it."""
    r = np.random.default_rng(5)
    at, seed = cupy.asarray(r.integers(0, 30, 20000)), cupy.asarray(r.normal(size=20000) * 10.0 ** r.integers(-8, 8, 20000))
    found = set()
    for _ in range(20):
        x, tape = Duplicated(cupy.ones(30)), gpuad.Tape()
        with gpuad.deterministic():
            with tape:
                y = gpuad.ops.take(x, at)
            tape.reverse({y: seed})
        found.add(x.shadow.get().tobytes())
    assert len(found) == 1
