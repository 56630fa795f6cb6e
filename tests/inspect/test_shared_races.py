"""Races in shared memory that a launch's numbers prove: refused with their place; nothing else is, and threads of a warp between
`__syncwarp()` read before they write."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases
from random_shared import RandomShared

import gpuad
from gpuad import Duplicated, UnsupportedError
from gpuad.api import check_races
from gpuad.pipeline import inspectors
from gpuad.runtime.reference import RaceError

SIGNATURE = 'extern "C" __global__ void k(const double* x, double* y, int n)'


def kernel(body: str) -> gpuad.Kernel:
    return gpuad.kernel(f"{SIGNATURE} {{\n__shared__ double s[256], q[256];\nint t = threadIdx.x;\n{body}\n}}", "k")


def gradient(body: str, block: int = 64, grid: int = 1) -> np.ndarray:
    """The gradient of the sum of all results."""
    x, dx = np.random.default_rng(0).uniform(1, 2, 256), np.zeros(256)
    y, dy = np.zeros(256), np.ones(256)
    gpuad.autodiff(kernel(body), grid, block, (Duplicated(x, dx), Duplicated(y, dy), 128))
    return dx


RACES = {
    "a read without a barrier": "s[t] = x[t]; y[t] = s[63 - t];",
    "within a warp": "s[t] = x[t]; y[t] = s[t ^ 1];",
    "a barrier of the warp, threads of two": "s[t] = x[t]; __syncwarp(); y[t] = s[t ^ 32];",
    "two values in one element": "s[t / 2] = x[t]; __syncthreads(); y[t] = s[t / 2];",
    "two computed values": "double v = t < 9 ? x[t] : 3.0; s[t / 2] = sin(v) * v; __syncthreads(); y[t] = s[t / 2];",
    "a sum in one statement": """s[t] = x[t]; __syncthreads(); for (int o = 32; o > 0; o >>= 1) { s[t] += s[t + o]; __syncthreads(); }
        y[t] = s[0];""",
    "two warps between barriers of warps": """s[t] = x[t]; s[t + 64] = 0; __syncthreads();
        s[t] += s[t + 32]; __syncwarp(); s[t] += s[t + 16]; if (t == 0) y[0] = s[0];""",
    "one barrier is missing": """s[t] = x[t]; s[t + 64] = 0; __syncthreads();
        if (t < 32) { s[t] += s[t + 32]; __syncwarp(); s[t] += s[t + 16]; s[t] += s[t + 8]; } if (t == 0) y[0] = s[0];""",
    "at the end of a loop": """for (int c = 0; c < 3; ++c) { if (t < 4) s[t] = 0; __syncthreads(); atomicAdd(&s[t % 4], x[t] * c);
        __syncthreads(); if (t == 0) y[c] = s[0] + s[1] + s[2] + s[3]; }""",
    "in a loop over the grid": """for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) {
        s[t] = x[i]; y[i] = s[(t + 1) % 64]; }""",
    "a tile in a while loop": """int j = 2; double sum = 0; while (j > 0) { s[t] = x[j * 64 + t]; __syncthreads(); sum += s[63 - t]; j--; }
        y[t] = sum;""",
    "a sum that is reset": "if (t == 0) s[0] = 0; atomicAdd(&s[0], x[t]); __syncthreads(); y[t] = s[0];",
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", RACES)
def test_refused(name: str, executor: str) -> None:
    with running(executor), pytest.raises(UnsupportedError, match=r"a data race: .*in shared memory") as caught:
        gradient(RACES[name])
    assert re.match(r"<source>:\d+:\d+: ", str(caught.value))
    with pytest.raises(RaceError):  # the witness, which runs the whole kernel
        check_races(kernel(RACES[name]), 1, 64, (np.random.default_rng(0).uniform(1, 2, 256), np.zeros(256), 128))


NO_RACES = {
    "a barrier": ("s[t] = x[t]; __syncthreads(); y[t] = s[63 - t];", 64),
    "within a warp": ("s[t] = x[t]; __syncwarp(); y[t] = s[t ^ 1];", 64),
    "one value in one element": ("s[t % 32] = x[t % 32]; __syncthreads(); y[t] = s[t % 32];", 64),
    "one computed value": ("s[t / 2] = sin(x[t / 2]) * 3; __syncthreads(); y[t] = s[t / 2];", 64),
    "a halo that is read by both": (
        "s[t + 1] = x[t + 1]; s[t] = x[t]; s[t + 2] = x[t + 2]; __syncthreads(); y[t] = s[t] - 2 * s[t + 1] + s[t + 2];",
        64,
    ),
    "a sum of a warp, in all its lanes": (
        """double v = x[t]; for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o); s[t / 32] = v; __syncthreads();
        if (t == 0) y[0] = s[0] + s[1];""",
        64,
    ),
    "the half of the threads": (
        "s[t] = x[t]; __syncthreads(); for (int o = 32; o > 0; o >>= 1) { if (t < o) s[t] += s[t + o]; __syncthreads(); } y[t] = s[0];",
        64,
    ),
    "what data decide": ("double v = x[t]; if (v > 5) { s[t] = v; y[t] = s[63 - t]; }", 64),
    "barriers in a loop of which data decide the end": (
        "for (int j = 0; j < (int)x[0]; ++j) { s[t] = x[t]; __syncthreads(); y[t] = s[63 - t]; __syncthreads(); }",
        64,
    ),
    "turns in a loop": (
        """for (int c = 0; c < 3; ++c) { if (t < 4) s[t] = 0; __syncthreads(); atomicAdd(&s[t % 4], x[t] * c); __syncthreads();
        if (t == 0) y[c] = s[0] + s[1] + s[2] + s[3]; __syncthreads(); }""",
        64,
    ),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NO_RACES)
def test_taken(name: str, executor: str) -> None:
    body, block = NO_RACES[name]
    with running(executor):
        gradient(body, block)


WARP = "s[t] = x[t]; s[t + 32] = 0; __syncthreads(); {} if (t == 0) y[0] = s[0];"
SUMS = {
    "+=": " ".join(f"s[t] += s[t + {o}]; __syncwarp();" for o in (16, 8, 4, 2, 1)),
    "=": " ".join(f"s[t] = s[t] + s[t + {o}]; __syncwarp();" for o in (16, 8, 4, 2, 1)),
    "a loop": "for (int o = 16; o > 0; o >>= 1) { s[t] += s[t + o]; __syncwarp(); }",
    "a value by name": "for (int o = 16; o > 0; o /= 2) { double v = s[t + o]; s[t] += v; __syncwarp(); }",
    "a mask": "for (int o = 16; o > 0; o >>= 1) { s[t] += s[t + o]; __syncwarp(0xffffffff); }",
    "a branch": "if (t < 32) { for (int o = 16; o > 0; o >>= 1) { s[t] += s[t + o]; __syncwarp(); } }",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SUMS)
def test_threads_of_a_warp_are_in_step(name: str, executor: str) -> None:
    """Each element comes into the sum once, as with `volatile`, and its gradient is 1."""
    with running(executor):
        dx = gradient(WARP.format(SUMS[name]), 32)
    np.testing.assert_array_equal(dx, [1.0] * 32 + [0.0] * 224)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_product_in_step(executor: str) -> None:
    """What is read is what was there before the statement, against a closed form: each thread's value times its neighbour's."""
    with running(executor):
        dx = gradient("s[t] = x[t]; __syncwarp(); s[t] = s[t] * s[(t + 1) % 32]; __syncwarp(); y[t] = s[t];", 32)
    x = np.random.default_rng(0).uniform(1, 2, 256)[:32]
    np.testing.assert_allclose(dx[:32], np.roll(x, 1) + np.roll(x, -1))


def test_the_last_warp_of_several() -> None:
    body = """s[t] = x[t]; s[t + 64] = 0; __syncthreads(); if (t < 32) { s[t] += s[t + 32]; __syncwarp();
        for (int o = 16; o > 0; o >>= 1) { s[t] += s[t + o]; __syncwarp(); } } if (t == 0) y[0] = s[0];"""
    np.testing.assert_array_equal(gradient(body)[:64], 1)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race behind more steps than are looked at is not found; one before is."""
    late = "for (int j = 0; j < 5000; ++j) { s[t] = j; __syncthreads(); } s[t] = x[t]; y[t] = s[63 - t];"
    early = "s[t] = x[t]; y[t] = s[63 - t]; for (int j = 0; j < 5000; ++j) { __syncthreads(); s[t] = j; }"
    gradient(late)
    with pytest.raises(UnsupportedError, match="data race"):
        gradient(early)
    monkeypatch.setattr(inspectors, "STEPS", 20_000)
    with pytest.raises(UnsupportedError, match="data race"):
        gradient(late)


@pytest.mark.parametrize("seed", range(cases(2, 100)))
def test_against_the_interpreter(seed: int) -> None:
    """Random kernels from which one barrier was taken: what the interpreter of the whole kernel calls a race is refused, nothing else."""
    made, chance = RandomShared(seed, warps=seed % 2 == 0), random.Random(seed)
    parts = made.text.split("__syncthreads();")
    at = chance.randrange(1, len(parts))
    text = (
        "__syncthreads();".join(parts[:at])
        + " ".join(("", "__syncwarp();")[: chance.randrange(1, 3)])
        + "__syncthreads();".join(parts[at:])
    )
    k, x = gpuad.kernel(text, "k"), np.random.default_rng(seed).uniform(0.1, 0.9, 2 * made.block)
    n = 2 * made.block - 3
    try:
        check_races(k, 2, made.block, (x.copy(), np.zeros_like(x), n, 3))
        races = False
    except RaceError:
        races = True
    try:
        gpuad.autodiff(k, 2, made.block, (Duplicated(x, np.zeros_like(x)), Duplicated(np.zeros_like(x), np.ones_like(x)), n, 3))
        refused = False
    except UnsupportedError as error:
        refused = "data race" in str(error)
    assert refused == races, text
