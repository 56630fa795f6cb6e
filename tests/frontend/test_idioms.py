"""A loop around atomicCAS that adds is an atomic addition; one that does anything else is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.errors import UnsupportedError

GUIDE = """
__device__ double add(double* address, double val) {
    unsigned long long int* address_as_ull = (unsigned long long int*)address;
    unsigned long long int old = *address_as_ull, assumed;
    do {
        assumed = old;
        old = atomicCAS(address_as_ull, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
"""
SHORT = """
__device__ void add(double* p, double v) {
    unsigned long long* q = reinterpret_cast<unsigned long long*>(p);
    unsigned long long seen = q[0];
    unsigned long long want;
    do {
        want = seen;
        seen = atomicCAS(q, want, (unsigned long long)__double_as_longlong(__longlong_as_double(want) + v));
    } while (seen != want);
}
"""
NUMBERS = """
__device__ double add(double* p, double v) {
    double old = *p, assumed;
    do {
        assumed = old;
        old = __longlong_as_double(atomicCAS((unsigned long long*)p, __double_as_longlong(assumed), __double_as_longlong(v + assumed)));
    } while (assumed != old);
    return old;
}
"""
FRESH = GUIDE.replace("old = *address_as_ull", "old = *(volatile unsigned long long int*)address_as_ull")
KERNEL = """
extern "C" __global__ void k(const T* x, T* h, const int* at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) add(&h[at[i]], x[i] * x[i]);
}
"""


def _check(executor: Any, helper: str, kind: str) -> None:
    x, dx = np.arange(1.0, 9.0).astype(kind), np.zeros(8, kind)
    h, dh = np.zeros(3, kind), np.array([1, 10, 100], kind)
    at = np.array([0, 2, 0, 1, 2, 2, 0, 1], np.int32)
    text = helper + KERNEL.replace("T*", ("double*" if kind == "float64" else "float*"))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 2, 4, (Duplicated(x, dx), Duplicated(h, dh), at, 8))
    wanted = np.zeros(3)
    np.add.at(wanted, at, np.arange(1.0, 9.0) ** 2)
    np.testing.assert_allclose(h, wanted)
    np.testing.assert_array_equal(dx, 2 * x * dh[at])
    np.testing.assert_array_equal(dh, [1, 10, 100])


@pytest.mark.parametrize("helper", [GUIDE, SHORT, NUMBERS, FRESH])
def test_ways_of_writing_it(executor: Any, helper: str) -> None:
    _check(executor, helper, "float64")


def test_in_single_precision(executor: Any) -> None:
    words = {
        "double": "float",
        "unsigned long long int": "int",
        "__float_as_longlong": "__float_as_int",
        "__longlong_as_float": "__int_as_float",
    }
    helper = GUIDE
    for old, new in words.items():
        helper = helper.replace(old, new)
    _check(executor, helper, "float32")


NO_IDIOM = {
    "bits are added": ("__double_as_longlong(val + __longlong_as_double(assumed))", "__double_as_longlong(val) + assumed"),
    "another value": ("val + __longlong_as_double(assumed)", "2 * val + __longlong_as_double(assumed)"),
    "not the old content": ("val + __longlong_as_double(assumed)", "val + val"),
    "a product": ("val + __longlong_as_double(assumed)", "val * __longlong_as_double(assumed)"),
    "not until it succeeds": ("assumed != old", "assumed == old"),
    "expects something else": ("atomicCAS(address_as_ull, assumed,", "atomicCAS(address_as_ull, old + 1,"),
    "a number as bits": ("= *address_as_ull, assumed", "= (unsigned long long)*address, assumed"),
    "more in the loop": ("assumed = old;", "assumed = old; val += 1;"),
    "more before it": ("unsigned long long int old", "val = 2 * val; unsigned long long int old"),
    "more behind it": ("return __longlong_as_double(old);", "*address = 0; return __longlong_as_double(old);"),
    "another result": ("return __longlong_as_double(old);", "return val;"),
}


@pytest.mark.parametrize("name", NO_IDIOM)
def test_anything_else_is_refused(name: str) -> None:
    """Values with a gradient through bits: no derivative follows them."""
    old, new = NO_IDIOM[name]
    assert GUIDE.count(old) == 1
    text = GUIDE.replace(old, new) + KERNEL.replace("T*", "double*")
    with pytest.raises(UnsupportedError) as found:
        gpuad.kernel(text, "k").adjoint(x=Duplicated, h=Duplicated)
    assert found.value.line


def test_a_result_that_is_used_is_refused() -> None:
    text = (
        GUIDE
        + """
    extern "C" __global__ void k(const double* x, double* h, double* out, int n) {
        int i = threadIdx.x;
        if (i < n) out[i] = add(&h[0], x[i]);
    }"""
    )
    with pytest.raises(UnsupportedError):
        gpuad.kernel(text, "k").adjoint(x=Duplicated, h=Duplicated, out=Duplicated)
