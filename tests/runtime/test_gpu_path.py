"""The way of a call on CuPy arrays, on a machine without a GPU: with a stand-in for CuPy that runs the generated CUDA text on the host."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import fake_cupy
import gpu_checks
import gpu_checks_2
import numpy as np
import pytest
from launch_tools import CASES, compiled
from nightly import share

import gpuad
from gpuad import Duplicated, testing
from gpuad.pipeline.adjoint_memory import fingerprint
from gpuad.program.ir.region import Region
from gpuad.runtime.actions import Copying, perform
from gpuad.tape.memory.versions import gathering, scattering


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", share(list(CASES), 6))
def test_case(cupy: Any, name: str) -> None:
    gpu_checks.agrees(cupy, name)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["saxpy", "softmax", "kepler-orbit", "gemm"])
def test_forward_mode(cupy: Any, name: str) -> None:
    gpu_checks.agrees(cupy, name, gpuad.Forward)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", gpu_checks.SPLIT)
def test_split_pair(cupy: Any, name: str) -> None:
    gpu_checks.split_agrees(cupy, name)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", gpu_checks.RUN_AS_TEXT)
def test_golden_text(cupy: Any, name: str) -> None:
    gpu_checks.golden_runs(cupy, name)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("check", (*gpu_checks.CHECKS, *gpu_checks_2.CHECKS), ids=lambda check: check.__name__)
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


@pytest.mark.parametrize(("begin", "run", "word"), [(0, 16, 8), (8, 12, 4), (2, 6, 2), (1, 7, 1)])
def test_runs_with_gaps_are_copied_by_words(cupy: Any, begin: int, run: int, word: int) -> None:
    host = np.random.default_rng(0).integers(0, 256, 200, dtype=np.uint8)
    region = Region(np.array([[low, low + run] for low in range(begin, 160, 32)], dtype=np.int64))
    root, packed, back = cupy.asarray(host), cupy.zeros(region.nbytes, np.uint8), cupy.zeros(200, np.uint8)
    for actions in (gathering(root, region, packed), scattering(packed, region, back)):
        (action,) = actions
        assert isinstance(action, Copying) and action.target.dtype.itemsize == word
        perform(actions)
    expected = np.zeros_like(host)
    for low, high in region.spans:
        expected[low:high] = host[low:high]
    np.testing.assert_array_equal(back.get(), expected)


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


@pytest.mark.parametrize("way", ["the tape goes", "another program", "a graph goes"])
def test_memory_is_given_back_after_those_who_use_it(cupy: Any, way: str) -> None:
    """CuPy gives it to what comes next on the stream on which it was made."""
    x, tape = Duplicated(cupy.ones(64), cupy.zeros(64)), gpuad.Tape()
    made, reversing = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with made, tape:
        y = x * x * x
    with reversing:
        tape.reverse({y: 1.0})
        graph = tape.graph({y: 1.0}) if way == "a graph goes" else None
        if graph is not None:
            graph.launch()
    used, before = max(when for _, when in reversing.pending.values()), dict(made.waited)
    del y
    if way == "another program":
        with tape:
            x.primal.fill(1.0)
    else:
        del tape, graph
        gc.collect()
    assert before.get(id(reversing), 0) < used <= made.waited[id(reversing)]
