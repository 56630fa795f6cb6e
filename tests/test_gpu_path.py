"""The way of a call on CuPy arrays, on a machine without a GPU: with a stand-in for CuPy that runs the generated CUDA text on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fake_cupy
import gpu_checks
import numpy as np
import pytest
from launch_tools import CASES, compiled

import gpuad
from gpuad import Duplicated, testing
from gpuad.launching.states import fingerprint


@pytest.mark.parametrize("name", CASES)
def test_case(cupy: Any, name: str) -> None:
    gpu_checks.agrees(cupy, name)


@pytest.mark.parametrize("name", ["saxpy", "softmax", "kepler-orbit", "gemm"])
def test_forward_mode(cupy: Any, name: str) -> None:
    gpu_checks.agrees(cupy, name, gpuad.Forward)


@pytest.mark.parametrize("name", gpu_checks.SPLIT)
def test_split_pair(cupy: Any, name: str) -> None:
    gpu_checks.split_agrees(cupy, name)


@pytest.mark.parametrize("name", gpu_checks.RUN_AS_TEXT)
def test_golden_text(cupy: Any, name: str) -> None:
    gpu_checks.golden_runs(cupy, name)


@pytest.mark.parametrize("check", gpu_checks.CHECKS, ids=lambda check: check.__name__)
def test_check(cupy: Any, check: Callable[[Any], None]) -> None:
    check(cupy)


@pytest.mark.parametrize("way", ["current", "keyword"])
def test_stream(cupy: Any, way: str) -> None:
    gpu_checks.on_stream(cupy, way)


def test_every_launch_is_on_the_stream(cupy: Any) -> None:
    stream, x = cupy.cuda.Stream(non_blocking=True), cupy.asarray(np.full(8, 0.5))
    dx, steps = cupy.ones(8), cupy.asarray(np.arange(8, dtype=np.int32))
    cupy.cuda.Device().synchronize()
    before = len(fake_cupy.NULL.launches)
    gpuad.autodiff(compiled(gpu_checks.CUBE, "settle"), 1, 32, (Duplicated(x, dx), steps, 8), stream=stream)
    assert {"settle", "settle_reverse"} <= set(stream.launches)
    assert len(fake_cupy.NULL.launches) == before


@pytest.mark.parametrize("begin", [0, 4])
def test_a_fingerprint_sees_every_bit(cupy: Any, begin: int) -> None:
    """In words where memory is aligned to them, else in bytes."""
    host = np.random.default_rng(0).integers(0, 256, 68, dtype=np.uint8)
    before = fingerprint(cupy.asarray(host)[begin : begin + 64])
    for bit in range(8 * begin, 8 * (begin + 64)):
        changed = host.copy()
        changed[bit // 8] ^= 1 << bit % 8
        assert fingerprint(cupy.asarray(changed)[begin : begin + 64]) != before
    assert fingerprint(cupy.asarray(host)[begin : begin + 64]) == before


def test_array_module(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert testing.array_module() is cupy
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    assert testing.array_module() is np


def test_the_stand_in_tells_streams_apart(cupy: Any) -> None:
    x = cupy.ones(10)
    with pytest.raises(fake_cupy.StreamError), cupy.cuda.Stream(non_blocking=True):
        x.fill(2)
