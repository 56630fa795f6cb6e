"""Gathers in which each thread reads memory of its own, one element after the other, add up in vectors of iterations on the CPU; what the
user adds up keeps its order."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, is_gathered, pairs, reverse
from launch_tools import compiled, running

import gpuad
from gpuad import Duplicated
from gpuad.codegen import host_source

COLUMNS = """
extern "C" __global__ void k(const double* a, const double* x, double* y, double* z, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0, t = 0;
    for (int k = 0; k < n; k++) {{
        {}
    }}
    y[i] = s;
    z[i] = t;
}}"""
BY_ITSELF = {
    "a product": "s += a[k * n + i] * x[k];",
    "two sums": "s += a[k * n + i] * x[k]; t -= a[k * n + i] * a[k * n + i] * x[k];",
    "what is named": "double b = a[k * n + i], c = x[k]; s += b * c * c; t += sqrt(b * b + 1.0) * c;",
    "a root": "s += x[k] / sqrt(1.0 + a[k * n + i] * a[k * n + i]); t = t - x[k];",
}
OTHERWISE = {
    "neighbours": "s += a[k + n * i] * x[k];",
    "every second element": "s += a[k * n + 2 * i] * x[k];",
    "a guard": "if (a[k * n + i] > 0.1) s += a[k * n + i] * x[k]; else t += x[k];",
    "an index from memory": "s += a[k * n + i] * x[(int)(3.0 * a[i]) & 1 ? k : n - 1];",
}


def arguments(n: int) -> Any:
    return lambda: (*pairs(5, 2 * n * n, n, n, n), n)


def gather_text(body: str, n: int = 70) -> str:
    kernels = reverse(compiled(COLUMNS.format(body), "k"), -(-n // 32), 32, arguments(n)())
    return host_source([k for k in kernels if k.name == "k_gather"]) if is_gathered(kernels) else ""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", BY_ITSELF | OTHERWISE)
def test_which_loops_a_lane_goes_through_by_itself(name: str) -> None:
    text = gather_text((BY_ITSELF | OTHERWISE)[name])
    assert bool(re.search(r"\n +GPUAD_SUMS", text)) == (name in BY_ITSELF)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", BY_ITSELF)
@pytest.mark.parametrize("n", [1, 7, 70, 129])
def test_their_gradients(name: str, n: int) -> None:
    agree(COLUMNS.format(BY_ITSELF[name]), -(-n // 32), 32, arguments(n))


def test_a_sum_that_is_the_same_in_all_lanes_is_formed_once() -> None:
    """Every thread sends as much to every element of `c`."""
    source = COLUMNS.format("s += a[k * n + i] * x[k] + c[k];").replace("const double* x,", "const double* x, const double* c,")
    for n in (7, 70):
        agree(source, -(-n // 32), 32, lambda n=n: (*pairs(5, n * n, n, n, n, n), n))


def test_the_users_own_sum_keeps_its_order() -> None:
    """One that a lane forms of memory of its own, in float32, bit for bit; it is loaded in tiles."""
    source = COLUMNS.format("s += a[i * n + k] * x[k];").replace("double", "float")
    kernel = compiled(source, "k")
    n = 100
    rng = np.random.default_rng(1)
    a, x = rng.standard_normal((n, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    y, z = np.zeros(n, np.float32), np.zeros(n, np.float32)
    kernel((4,), (32,), (a, x, y, z, n))
    expected = np.zeros(n, np.float32)
    for k in range(n):
        expected += a[:, k] * x[k]
    np.testing.assert_array_equal(y, expected)


def placed(x: Any, offset: int) -> Any:
    """The same numbers, so many bytes behind a cache line's beginning."""
    raw = np.empty(x.nbytes + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + offset
    view = raw[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def test_the_bits_do_not_hang_on_where_arrays_lie() -> None:
    """A compiler may begin a vector loop with a few iterations by themselves, until what it reads is aligned: not here."""
    kernel, n = compiled(COLUMNS.format(BY_ITSELF["two sums"]).replace("double", "float"), "k"), 67
    rng = np.random.default_rng(2)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in (n * n, n, n, n)]
    seeds = [np.zeros_like(x) if i < 2 else rng.standard_normal(n).astype(np.float32) for i, x in enumerate(given)]
    found = []
    for step in (0, 4, 12, 20, 32):
        args = [
            Duplicated(placed(x, i * step % 64), placed(s, (i + 1) * step % 64)) for i, (x, s) in enumerate(zip(given, seeds, strict=True))
        ]
        with running("host"), gpuad.deterministic():
            gpuad.autodiff(kernel, (-(-n // 32),), (32,), (*args, n))
        found.append([a.shadow.tobytes() for a in args])
    assert all(bits == found[0] for bits in found)
