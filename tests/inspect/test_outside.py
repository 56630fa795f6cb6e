"""Accesses outside of an array: those that a launch's numbers prove, and those that an inspector comes to, are refused before anything is
written."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Duplicated, LaunchError

HEAD = 'extern "C" __global__ void k(const double* x, const double* a, const int* index, double* y, int n)'


def refusal(body: str, *, index: Any = range(32), a: int = 32, block: int = 32) -> str | None:
    """What a launch for 32 elements is refused with. Nothing is written then."""
    k = gpuad.kernel(f"{HEAD} {{ int i = threadIdx.x; {body} }}", "k")
    y, dx = np.zeros(32), np.zeros(34)
    given = Duplicated(np.ones(34), dx), np.ones(a), np.array(index, np.int32), Duplicated(y, np.ones(32)), 32
    try:
        gpuad.autodiff(k, 1, block, given)
    except LaunchError as error:
        assert not dx.any() and not y.any()
        return str(error)
    return None


READS = {
    "y[i] = x[i] * a[i];": True,
    "if (i < n) y[i] = x[i] * a[i];": True,
    "double s = 0; for (int j = 0; j < n; ++j) s += a[j] * x[i]; y[i] = s;": True,
    "if (a[i] > 0) y[i] = x[i];": True,
    "if (i < n - 1) y[i] = x[i] * a[i];": False,
    "double r = a[i]; y[i] = i < n - 1 ? r * x[i] : x[i];": False,
    "y[i] = i < n - 1 && a[i] > 0 ? x[i] : x[i] * 2;": False,
    "if (x[i] > 2) y[i] = x[i] * a[i]; else y[i] = x[i];": False,
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("body", READS)
def test_reads_of_an_array_without_a_shadow(body: str, executor: str) -> None:
    """Where what is read past the end is used for certain."""
    with running(executor):
        found = refusal(body, a=31)
        assert refusal(body) is None
    if READS[body]:
        assert found is not None and re.search(r"reads `a` from element 0 to 31 \(<source>:\d+:\d+\), but its memory ends at 30", found)
    else:
        assert found is None


WRITES = {
    "y[index[i]] = x[i];": "store_conflicts",
    "int j = index[i]; y[j] = y[j] * x[i];": "store_conflicts",
    "y[index[i]] += x[i];": "store_conflicts",
    "y[index[i]] = x[i]; __syncthreads(); y[index[(i + 1) % 32]] += x[i];": "barrier_order",
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("outside", [-1, -1_000_000_000, 32, 1_000_000_000])
@pytest.mark.parametrize("body", WRITES)
def test_writes_at_indices_that_are_read(body: str, outside: int, executor: str) -> None:
    with running(executor):
        found = refusal(body, index=[*range(31), outside])
        assert refusal(body) is None
    assert found is not None and re.search(r"`k`: this launch (reads|writes) `y` outside of its memory \(<source>:1:\d+\)", found)
