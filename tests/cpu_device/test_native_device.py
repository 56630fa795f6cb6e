"""The device on the CPU by its C interface, without CuPy: what streams, events and graphs put in order, memory, launches, faults."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuad.cpu_device.compilation import compiled
from gpuad.cpu_device.native_libraries import NATIVE, built
from gpuad.errors import CompileError
from gpuad.runtime.compiler import has_compiler

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not has_compiler(), reason="the device on the CPU needs Linux and a C++ compiler"
)

OUT_OF_MEMORY, INVALID_CONFIGURATION, NOT_FOUND, NOT_READY, ILLEGAL, UNSUPPORTED, INVALIDATED, UNJOINED = 2, 9, 500, 600, 700, 900, 901, 904
TO_HOST, NON_BLOCKING = 2, 1
SEEDS = range(12)
TEXT = """
extern "C" __global__ void add(double* x, double by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += by; }
extern "C" __global__ void turn(double* x) {
    extern __shared__ double s[];
    s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }
extern "C" __global__ void lanes(int* x) {
    int t = threadIdx.x, v = t, all = v;
    for (int by = 16; by; by /= 2) all += __shfl_xor_sync(0xffffffffu, all, by);
    x[t] = all + 1000 * __popc(__ballot_sync(0xffffffffu, t % 3 == 0)); }
extern "C" __global__ void outside(double* x) { x[1 << 20] = 1; }
extern "C" __global__ void apart() { if (threadIdx.x < 3) __syncthreads(); else __syncwarp(0xfu); }
__constant__ float c[3];
extern "C" __global__ void constant(double* x) { x[0] = c[2]; }
template <class T> __global__ void fill(T* x, T v) { x[threadIdx.x] = v; }
"""
P = ctypes.c_void_p


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return built("libgpuad-device.so", "", "", *(str(NATIVE / name) for name in ("device.cpp", "threads.cpp")))


@pytest.fixture(scope="module")
def code(library: ctypes.CDLL) -> bytes:
    return compiled(TEXT, [], [], {})[0]


class Device:
    """The interface, with errors as results."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Callable[..., int]:
        return getattr(self.library, name)

    def late(self, seed: int | None, fail_at: int = 0) -> None:
        self.library.gpuad_device_options(int(seed is not None), ctypes.c_ulonglong(seed or 0), 1, ctypes.c_long(fail_at))

    def made(self, function: str, *rest: Any) -> P:
        handle = P()
        assert getattr(self.library, function)(ctypes.byref(handle), *rest) == 0
        return handle

    def array(self, values: np.ndarray[Any, Any]) -> P:
        place = self.made("hipMalloc", ctypes.c_size_t(values.nbytes))
        assert self.library.hipMemcpy(place, values.ctypes.data_as(P), ctypes.c_size_t(values.nbytes), 1) == 0
        return place

    def read(self, place: P, count: int, dtype: str = "f8") -> np.ndarray[Any, Any]:
        values = np.zeros(count, dtype)
        assert self.library.hipMemcpy(values.ctypes.data_as(P), place, ctypes.c_size_t(values.nbytes), TO_HOST) == 0
        return values

    def launch(self, function: P, block: int, shared: int, stream: P | None, *args: Any, grid: int = 1) -> int:
        parameters = (P * len(args))(*(ctypes.cast(ctypes.byref(arg), P) for arg in args))
        return int(self.library.hipModuleLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, parameters, None))


@pytest.fixture
def device(library: ctypes.CDLL) -> Iterator[Device]:
    made = Device(library)
    made.late(None)
    yield made
    made.late(None)
    library.hipDeviceSynchronize()


@pytest.fixture
def functions(device: Device, code: bytes) -> Callable[[str], P]:
    module = device.made("hipModuleLoadData", code)
    return lambda name: device.made("hipModuleGetFunction", module, name.encode())


def add(device: Device, functions: Callable[[str], P], place: P, by: float, stream: P | None = None) -> None:
    assert device.launch(functions("add"), 8, 0, stream, place, ctypes.c_double(by), ctypes.c_int(8)) == 0


def test_a_kernel_runs(device: Device, functions: Callable[[str], P]) -> None:
    place = device.array(np.arange(20.0))
    assert device.launch(functions("add"), 8, 0, None, place, ctypes.c_double(0.5), ctypes.c_int(18), grid=3) == 0
    np.testing.assert_array_equal(device.read(place, 20), np.arange(20.0) + np.where(np.arange(20) < 18, 0.5, 0))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_threads_wait_for_one_another(device: Device, functions: Callable[[str], P], seed: int | None) -> None:
    device.late(seed)
    place = device.array(np.arange(70.0))
    assert device.launch(functions("turn"), 70, 70 * 8, None, place) == 0
    np.testing.assert_array_equal(device.read(place, 70), np.arange(70.0)[::-1])


@pytest.mark.parametrize("seed", [None, 1])
def test_lanes_see_one_another(device: Device, functions: Callable[[str], P], seed: int | None) -> None:
    device.late(seed)
    place = device.array(np.zeros(64, "i4"))
    assert device.launch(functions("lanes"), 64, 0, None, place) == 0
    np.testing.assert_array_equal(device.read(place, 64, "i4"), np.repeat([11000 + sum(range(32)), 11000 + sum(range(32, 64))], 32))


def test_work_of_one_stream_is_in_order(device: Device, functions: Callable[[str], P]) -> None:
    for seed in SEEDS:
        device.late(seed)
        place, stream = device.array(np.zeros(8)), device.made("hipStreamCreateWithFlags", NON_BLOCKING)
        add(device, functions, place, 1, stream)
        device.hipMemsetAsync(place, 0, ctypes.c_size_t(32), stream)
        add(device, functions, place, 2, stream)
        assert device.hipStreamSynchronize(stream) == 0
        np.testing.assert_array_equal(device.read(place, 8), [2] * 4 + [3] * 4)


def test_a_wait_that_was_forgotten_is_seen(device: Device, functions: Callable[[str], P]) -> None:
    """Two streams write to one array: with an event in order, without one in either order."""
    found: dict[bool, set[float]] = {True: set(), False: set()}
    for waits, results in found.items():
        for seed in SEEDS:
            device.late(seed)
            place = device.array(np.zeros(8))
            first, second = (device.made("hipStreamCreateWithFlags", NON_BLOCKING) for _ in range(2))
            add(device, functions, place, 5, first)
            if waits:
                event = device.made("hipEventCreateWithFlags", 0)
                assert device.hipEventRecord(event, first) == 0
                assert device.hipStreamWaitEvent(second, event, 0) == 0
            device.hipMemsetAsync(place, 0, ctypes.c_size_t(64), second)
            assert device.hipStreamSynchronize(first) == device.hipStreamSynchronize(second) == 0
            results.add(float(device.read(place, 8)[0]))
    assert found == {True: {0.0}, False: {0.0, 5.0}}


def test_the_legacy_stream_waits_for_all_but_those_that_do_not_block(device: Device, functions: Callable[[str], P]) -> None:
    found: dict[int, set[float]] = {0: set(), NON_BLOCKING: set()}
    for flags, results in found.items():
        for seed in SEEDS:
            device.late(seed)
            place, stream = device.array(np.zeros(8)), device.made("hipStreamCreateWithFlags", flags)
            add(device, functions, place, 5, stream)
            results.add(float(device.read(place, 8)[0]))  # a copy on the legacy stream
            device.hipDeviceSynchronize()
    assert found == {0: {5.0}, NON_BLOCKING: {0.0, 5.0}}


def test_pinned_memory_is_written_late_and_pageable_memory_at_once(device: Device, functions: Callable[[str], P]) -> None:
    seen = set()
    for seed in SEEDS:
        device.late(seed)
        place, stream = device.array(np.full(8, 7.0)), device.made("hipStreamCreateWithFlags", NON_BLOCKING)
        pinned = device.made("hipHostMalloc", ctypes.c_size_t(64), 0)
        values = np.frombuffer(memoryview((ctypes.c_char * 64).from_address(pinned.value or 0)).cast("B"), "f8")
        values[...] = 0
        assert device.hipMemcpyAsync(pinned, place, ctypes.c_size_t(64), TO_HOST, stream) == 0
        seen.add(float(values[0]))
        host = np.zeros(8)
        assert device.hipMemcpyAsync(host.ctypes.data_as(P), place, ctypes.c_size_t(64), TO_HOST, stream) == 0
        assert host[0] == 7.0
        device.hipDeviceSynchronize()
        assert values[0] == 7.0
    assert seen == {0.0, 7.0}


def test_an_event_says_when_it_has_come(device: Device, functions: Callable[[str], P]) -> None:
    states = set()
    for seed in SEEDS:
        device.late(seed)
        place, stream, event = (
            device.array(np.zeros(8)),
            device.made("hipStreamCreateWithFlags", 1),
            device.made("hipEventCreateWithFlags", 0),
        )
        add(device, functions, place, 1, stream)
        assert device.hipEventRecord(event, stream) == 0
        states.add(device.hipEventQuery(event))
        assert device.hipEventSynchronize(event) == 0
        assert device.hipEventQuery(event) == 0
    assert states == {0, NOT_READY}


def captured(device: Device, functions: Callable[[str], P], place: P, joined: bool = True) -> tuple[int, P]:
    """A graph of two streams' work on halves of an array."""
    first, second = (device.made("hipStreamCreateWithFlags", NON_BLOCKING) for _ in range(2))
    begun, ended = (device.made("hipEventCreateWithFlags", 0) for _ in range(2))
    assert device.hipStreamBeginCapture(first, 2) == 0
    device.hipMemsetAsync(place, 0, ctypes.c_size_t(64), first)
    device.hipEventRecord(begun, first)
    device.hipStreamWaitEvent(second, begun, 0)
    assert device.launch(functions("add"), 4, 0, second, P((place.value or 0) + 32), ctypes.c_double(3), ctypes.c_int(4)) == 0
    assert device.launch(functions("add"), 4, 0, first, place, ctypes.c_double(2), ctypes.c_int(4)) == 0
    device.hipEventRecord(ended, second)
    if joined:
        device.hipStreamWaitEvent(first, ended, 0)
    graph = P()
    return device.hipStreamEndCapture(first, ctypes.byref(graph)), graph


def test_a_graph_repeats_what_was_captured(device: Device, functions: Callable[[str], P]) -> None:
    for seed in (None, *SEEDS):
        device.late(seed)
        place = device.array(np.ones(8))
        status, graph = captured(device, functions, place)
        assert status == 0
        np.testing.assert_array_equal(device.read(place, 8), np.ones(8))  # captured, not run
        executable = device.made("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))
        add(device, functions, place, 9)
        assert device.hipGraphLaunch(executable, None) == 0
        np.testing.assert_array_equal(device.read(place, 8), [2] * 4 + [3] * 4)


def test_a_stream_that_does_not_come_back_spoils_a_capture(device: Device, functions: Callable[[str], P]) -> None:
    assert captured(device, functions, device.array(np.ones(8)), joined=False)[0] == UNJOINED


def test_waiting_spoils_a_capture(device: Device) -> None:
    stream, graph = device.made("hipStreamCreateWithFlags", NON_BLOCKING), P()
    assert device.hipStreamBeginCapture(stream, 0) == 0
    assert device.hipDeviceSynchronize() == UNSUPPORTED
    assert device.hipStreamEndCapture(stream, ctypes.byref(graph)) == INVALIDATED


def test_the_kth_allocation_fails(device: Device) -> None:
    device.late(None, fail_at=3)
    states = [device.hipMalloc(ctypes.byref(P()), ctypes.c_size_t(64)) for _ in range(4)]
    assert states == [0, 0, OUT_OF_MEMORY, 0]


def test_memory_that_was_not_written_is_no_number(device: Device) -> None:
    place = device.made("hipMalloc", ctypes.c_size_t(800))
    assert np.isnan(device.read(place, 100)).all()


@pytest.mark.parametrize(("grid", "block", "shared"), [(1, 1025, 0), (0, 1, 0), (1, 0, 0)])
def test_launches_that_are_too_large(device: Device, functions: Callable[[str], P], grid: int, block: int, shared: int) -> None:
    place = device.array(np.zeros(8))
    assert device.launch(functions("turn"), block, shared, None, place, grid=grid) == INVALID_CONFIGURATION


def test_shared_memory_has_to_be_asked_for(device: Device, functions: Callable[[str], P]) -> None:
    turn, place = functions("turn"), device.array(np.arange(8.0))
    assert device.launch(turn, 8, 49 << 10, None, place) == 1
    assert device.hipFuncSetAttribute(turn, 8, 64 << 10) == 0
    assert device.launch(turn, 8, 49 << 10, None, place) == 0


def test_constants_and_names(device: Device, code: bytes) -> None:
    module, place, size = device.made("hipModuleLoadData", code), P(), ctypes.c_size_t()
    assert device.hipModuleGetGlobal(ctypes.byref(place), ctypes.byref(size), module, b"c") == 0
    assert size.value == 12
    values = np.array([1, 2, 3], "f4")
    assert device.hipMemcpy(place, values.ctypes.data_as(P), size, 1) == 0
    out = device.array(np.zeros(1))
    assert device.launch(device.made("hipModuleGetFunction", module, b"constant"), 1, 0, None, out) == 0
    assert device.read(out, 1)[0] == 3
    assert device.hipModuleGetFunction(ctypes.byref(P()), module, b"absent") == NOT_FOUND


def test_errors_of_a_text_have_its_lines() -> None:
    with pytest.raises(CompileError, match=r"kernel\.cu:2:\d+: error: .*absent"):
        compiled('extern "C" __global__ void k(double* x) {\n x[0] = absent; }', [], [], {})


def test_an_access_to_no_memory_is_an_error_that_stays(code: bytes) -> None:
    """In a process of its own, since it stays."""
    run = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import test_native_device as t
library = t.built("libgpuad-device.so", "", "", *(str(t.NATIVE / name) for name in ("device.cpp", "threads.cpp")))
device = t.Device(library)
module = device.made("hipModuleLoadData", t.compiled(t.TEXT, [], [], {})[0])
place = device.array(np.zeros(8))
print(device.launch(device.made("hipModuleGetFunction", module, sys.argv[2].encode()), 4, 0, None, place), device.hipDeviceSynchronize())
"""

    def said(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", run, str(Path(__file__).parent), name], capture_output=True, text=True, check=True)

    assert said("outside").stdout.split() == [str(ILLEGAL)] * 2
    stuck = said("apart")
    assert stuck.stdout.split() == [str(ILLEGAL)] * 2
    assert "not all of them reach a barrier" in stuck.stderr
