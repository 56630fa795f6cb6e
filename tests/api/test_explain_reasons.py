"""Why a shadow is atomic, as `explain` says it: the index is data, a launch may prove what all launches cannot, or nothing is proved."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

TEXT = """extern "C" __global__ void k(const double* u, const int* first, const int* next, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { INDEX v[i] = u[j]; }
}"""


def reasons(index: str, launch: dict[str, Any]) -> dict[str, str]:
    text = gpuad.kernel(TEXT.replace("INDEX", index), "k").adjoint(**launch)
    return {row.name: f"{row.how}: {row.why}" for row in text.explain().rows if row.topic == "shadow"}


def launched() -> dict[str, Any]:
    u, v = (Duplicated(np.zeros(8), np.zeros(8)) for _ in range(2))
    return {"grid": 1, "block": 8, "args": (u, np.zeros(8, np.int32), np.zeros(8, np.int32), v, 8)}


def test_the_arrays_that_an_index_is_read_from() -> None:
    for launch in ({"u": Duplicated, "v": Duplicated}, launched()):
        assert reasons("int j = first[i];", launch)["du"].startswith("atomic: its index is read from `first`, so that two threads may meet")
        assert "read from `first`, so" in reasons("int j = first[next[i]];", launch)["du"]
        assert "read from `first`, `next`, so" in reasons("int j = first[i] + 2 * next[i];", launch)["du"]


def test_one_launch_may_prove_what_all_cannot() -> None:
    every, one = (reasons("int j = i;", launch) for launch in ({"u": Duplicated, "v": Duplicated}, launched()))
    assert every["du"].startswith("atomic: no launch is given; for one it may be proved") and one["du"].startswith("plain")


def test_an_index_that_threads_share() -> None:
    assert reasons("int j = i * i % 4;", launched())["du"].startswith("atomic: it is not proved that no two threads meet")


def test_a_shadow_that_is_only_read() -> None:
    """What threads add to the primal of is the seed of all of them: nothing is said of two threads and one element."""
    text = TEXT.replace("v[i] = u[j]", "atomicAdd(&v[i % 3], u[j] * u[j])").replace("INDEX", "int j = i;")
    rows = gpuad.kernel(text, "k").adjoint(**launched()).explain().rows
    whys = {row.name: row.why for row in rows if row.topic == "shadow"}
    assert whys["dv"].startswith("it is only read") and whys["du"].startswith("no two threads touch one element")
