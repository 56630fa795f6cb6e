"""The CPU executor's threads stay from launch to launch: every part of a launch is run once, also by several callers and after a fork."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import api, pipeline
from gpuad.codegen import host_source
from gpuad.runtime.compiler import compiled
from gpuad.runtime.host import Host

SOURCE = """
extern "C" __global__ void step(const double* x, double* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i] * x[(i + 1) % n];
}
"""
N, BLOCK = (1 << 18) + 77, 128
GRID = -(-N // BLOCK)
X = np.arange(N) % 1013.0  # sums of its products are exact


def stepped(kernel: Any, times: int) -> Any:
    y = np.zeros(N)
    for _ in range(times):
        kernel((GRID,), (BLOCK,), (X, y, N))
    return y


@pytest.fixture(scope="module")
def kernel() -> Any:
    return gpuad.kernel(SOURCE, "step")


@pytest.mark.parametrize("workers", [1, 2, 3, 17])
def test_each_part_of_many_launches_is_run_once(kernel: Any, workers: int) -> None:
    with pipeline.executor_for_tests(Host(workers)):
        assert np.array_equal(stepped(kernel, 200), 200 * (X * np.roll(X, -1)))


def test_launches_of_several_callers_do_not_mix(kernel: Any) -> None:
    """One of them has the threads, the others run alone."""
    found: list[Any] = []
    callers = [threading.Thread(target=lambda: found.append(stepped(kernel, 50))) for _ in range(4)]
    with pipeline.executor_for_tests(Host(3)):
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert len(found) == 4
    assert all(np.array_equal(y, 50 * (X * np.roll(X, -1))) for y in found)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("end", "threads"), [("m", {10: 1, 100_000: 3}), ("m < 5 ? m : 5", {100_000: 1}), ("s < m ? m : 3", {100_000: 1})])
def test_few_threads_that_loop_long_are_shared_out(end: str, threads: dict[int, int]) -> None:
    """As far as the launch's numbers tell how long they loop."""
    source = f"""extern "C" __global__ void k(const float* x, float* y, int m) {{
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        float s = x[i];
        const int end = {end};
        for (int j = 0; j < end; j += 2) s = 0.5f * s + x[j & 63];
        y[i] = s;
    }}"""
    script = f"""
import numpy as np, gpuad
from pathlib import Path
k, x, y = gpuad.kernel({source!r}, "k"), np.ones(256, np.float32), np.zeros(256, np.float32)
for m in {list(threads)}:
    k((2,), (128,), (x, y, m))
    print(sum(1 for _ in Path("/proc/self/task").iterdir()))
"""
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted in /proc")
    environment = {**os.environ, "GPUAD_THREADS": "3", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert list(map(int, run.stdout.split())) == list(threads.values())


def test_kernels_of_different_libraries_share_the_threads() -> None:
    script = f"""
import threading, numpy as np, gpuad
from pathlib import Path
source, x, y = {SOURCE!r}, np.ones({N}), np.zeros({N})
for k in range(4):
    gpuad.kernel(source.replace("step", f"step{{k}}"), f"step{{k}}")(({GRID},), ({BLOCK},), (x, y, {N}))
print(sum(1 for _ in Path("/proc/self/task").iterdir()))
"""
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted in /proc")
    environment = {**os.environ, "GPUAD_THREADS": "3", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(run.stdout) == 3


def test_a_text_without_a_crew_does_all_by_itself(kernel: Any) -> None:
    text, y, n = host_source([api.kernel(kernel).primal()]), np.zeros(N), np.int32(N)
    assert "pthread" not in text and "pthread" in host_source([api.kernel(kernel).primal()], own_pool=True)
    entry = compiled(f"// of nobody else\n{text}", ["gpuad_launch_step"]).gpuad_launch_step
    slots = struct.pack("=2Qi4x", X.ctypes.data, y.ctypes.data, n)
    assert (
        entry(struct.pack("=7q", GRID, 1, 1, BLOCK, 1, 1, -40), slots) == 0
    )  # as many parts as one thread can have on its stack, and more
    assert np.array_equal(y, X * np.roll(X, -1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_has_threads_of_its_own(kernel: Any) -> None:
    with pipeline.executor_for_tests(Host(2)):
        expected = stepped(kernel, 3)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(stepped(kernel, 3), expected) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert np.array_equal(stepped(kernel, 3), expected)
