"""Stores that might collide are checked before a launch, and not again where the same numbers would give the same answer (RULES 10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.errors import LaunchError
from gpuad.runtime.reference import Reference

N = 6
BODIES = {
    "push": "y[((i + m) % n) ^ 1] = x[i] * x[i];",  # nothing but numbers, of which isl has no words
    "index": "y[at[i]] = x[i] * x[i];",
    "real": "y[c > 0.5 ? i : 0] = x[i] * x[i];",
    "flag": "y[wide ? i : 0] = x[i] * x[i];",
    "counted": "y[atomicAdd(count, 1) % n] = x[i] * x[i];",
}


class Noting(Reference):
    """Keeps the names of what it launches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
        self.names.append(kernel.name)
        super().launch(kernel, *args, **keywords)


def kernel(name: str) -> Any:
    head = "const double* x, double* y, const int* at, int* count, int n, int m, double c, bool wide"
    return gpuad.kernel(f'extern "C" __global__ void k({head}) {{ int i = threadIdx.x; if (i < n) {{ {BODIES[name]} }} }}', "k")


def run(k: Any, *, at: Any = None, m: int = 1, c: float = 1.0, wide: bool = True) -> tuple[Any, int]:
    """The gradient, and how many checks were run."""
    x, y = Duplicated(np.arange(1.0, N + 1), np.zeros(N)), Duplicated(np.zeros(N), np.ones(N))
    at = np.arange(N, dtype=np.int32) if at is None else np.array(at, np.int32)
    noting = Noting()
    with pipeline.executor_for_tests(noting):
        gpuad.autodiff(k, 1, N, (x, y, at, np.zeros(1, np.int32), N, m, c, wide))
    return x.shadow, sum(name.endswith("_store_conflicts") for name in noting.names)


def test_what_hangs_on_numbers_alone_is_checked_once() -> None:
    k = kernel("push")
    checks = []
    for m in (1, 1, 2, 1, 2):
        gradient, count = run(k, m=m)
        np.testing.assert_allclose(gradient, 2 * np.arange(1.0, N + 1))
        checks.append(count > 0)
    assert checks == [True, False, True, False, False]


@pytest.mark.parametrize(("name", "other"), [("index", {"at": [0, 1, 2, 2, 4, 5]}), ("real", {"c": 0.0}), ("flag", {"wide": False})])
def test_what_hangs_on_more_is_checked_each_time(name: str, other: dict[str, Any]) -> None:
    k = kernel(name)
    for _ in range(2):
        assert run(k)[1] > 0
    with pytest.raises(LaunchError, match="two threads write to one element of `y`"):
        run(k, **other)


def test_slots_from_a_counter_are_checked_each_time() -> None:
    k = kernel("counted")
    assert [run(k)[1] > 0 for _ in range(2)] == [True, True]
