"""The end of a row on the CPU: where threads may do their work twice, the last ones are one more full strip."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated
from gpuad.codegen.cpu.source import host_source
from gpuad.codegen.cpu.vectorisation_legality import STRIP, may_overlap_tail
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

HEIGHT, MOST = 3, 100
NEXT, HERE = "y * n + (x + 1) % n", "y * n + x"
STORES = {  # what is only stored to
    "pulled": f"v[{HERE}] = u[{NEXT}] * 2.0f;",
    "pushed": f"v[{NEXT}] = u[{HERE}] - 1.0f;",
    "several": f"v[{HERE}] = u[{NEXT}]; w[{NEXT}] = sqrtf(u[{HERE}]); w[{HERE} + n * {HEIGHT}] = u[{HERE}];",
    "twice": f"v[{HERE}] = u[{NEXT}]; v[{HERE}] = u[{HERE}] + 3.0f;",
    "in branches": f"float a = u[{NEXT}]; if (a > 20.0f) a -= u[{HERE}]; else a += 1.0f; v[{HERE}] = a;",
    "by all the same": f"v[y] = 5.0f; w[{HERE}] = u[{NEXT}];",
}
OTHERS = {  # a thread's work can be done once only
    "added": f"v[{HERE}] += u[{NEXT}];",
    "in place": f"v[{HERE}] = v[{HERE}] * 0.5f + u[{NEXT}];",
    "read and then stored": f"const float a = w[{HERE}]; w[{HERE}] = a * 2.0f + u[{NEXT}]; v[{HERE}] = a;",
    "atomic": f"atomicAdd(v + y, u[{NEXT}]);",
    "told": f'if (u[{HERE}] > 1e9f) printf("%f", u[{HERE}]); v[{HERE}] = u[{NEXT}];',
    "asserted": f"assert(u[{HERE}] < 1e9f); v[{HERE}] = u[{NEXT}];",
    "in a loop": f"float a = 0.0f; for (int k = 0; k < n; ++k) a += u[k]; v[{HERE}] = a + u[{NEXT}];",
}
ALL = STORES | OTHERS


@cache
def made(name: str) -> Kernel:
    symbol = f"k{list(ALL).index(name)}"
    text = f"""#include <assert.h>
        extern "C" __global__ void {symbol}(const float* u, float* v, float* w, int n) {{
        const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
        if (x < n) {{ {ALL[name]} }}
    }}"""
    return primal_of(parse(SourceFile("twice.cu", text)).kernel(symbol))


@cache
def host(workers: int) -> Host:
    """All kernels, compiled at once."""
    executor = Host(workers)
    executor.prepare([made(name) for name in ALL])
    return executor


def results(executor: Any, kernel: Kernel, n: int) -> list[Any]:
    u = (np.arange(HEIGHT * MOST) * 37 % 101).astype(np.float32)
    v, w = (np.arange(2 * HEIGHT * MOST).astype(np.float32) * k for k in (1, -1))
    executor.launch(kernel, (-(-n // 8), HEIGHT, 1), (8, 1, 1), [Memory(u), Memory(v), Memory(w), np.int32(n)])
    return [v, w]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_rows_of_all_lengths(name: str, workers: int) -> None:
    """Threads of a row are shared out, too, where there are more workers than rows."""
    for n in (1, 2, 9, 15, 16, 17, 18, 19, 31, 33, 34, 47, 50, 51, 65, 100):
        for got, wanted in zip(results(host(workers), made(name), n), results(Reference(), made(name), n), strict=True):
            assert np.array_equal(got, wanted), n


@pytest.mark.parametrize("name", ALL)
def test_which_threads_are_done_twice(name: str) -> None:
    assert may_overlap_tail(made(name)) == (name in STORES)
    assert (f"gpuad_strip += {STRIP}" in host_source([made(name)])) == (name in STORES)
    assert "gpuad_strip" not in host_source([made(name)], no_alias=False)  # what is stored may be what another thread reads


@pytest.mark.one_of(3)
@pytest.mark.parametrize("n", [15, 16, 17, 18, 33, 47])
def test_a_program_and_its_gradient(n: int) -> None:
    """Of a step whose adjoint first assigns what it has gathered and, in the end, adds it."""
    text = """extern "C" __global__ void turn(const double* u, double* v, int n) {
        const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
        if (x < n) v[y * n + x] = u[y * n + (x + 1) % n] * u[y * n + x] + u[y * n + (x + n - 1) % n];
    }"""
    turn, launch = gpuad.kernel(text, "turn"), ((-(-n // 16), 2), (16,))
    rng = np.random.default_rng(n)
    start, w = rng.standard_normal((2, 2, n))
    u, a, b = Duplicated(start.copy(), np.zeros_like(start)), *(Duplicated(np.zeros_like(start)) for _ in range(2))
    tape = gpuad.Tape()
    for _ in range(3):
        u.shadow.fill(0.25)
        with tape:
            for f, g in ((u, a), (a, b), (b, a)):
                turn[launch](f, g, n)
        tape.reverse({a: w})
        states = [start]
        for _ in range(2):
            f = states[-1]
            states.append(np.roll(f, -1, 1) * f + np.roll(f, 1, 1))
        d = w
        for f in reversed(states):
            d = np.roll(d * f, 1, 1) + d * np.roll(f, -1, 1) + np.roll(d, -1, 1)
        np.testing.assert_allclose(u.shadow - 0.25, d, rtol=1e-12, atol=1e-12)
