"""Atomic maxima, minima and exchanges on memory with a gradient: all goes to the thread whose number stays, or stays with the memory."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import BatchDuplicated, Duplicated, pipeline
from gpuad.errors import LaunchError, UnsupportedError
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient

BITS = "__device__ void keep(float* p, float v) { atomicMax((int*)p, __float_as_int(v)); }"
GUIDE = """
__device__ float keep(float* address, float v) {
    int* bits = (int*)address;
    int old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(fmaxf(v, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}
"""
WHILE = """
__device__ float keep(float* address, float v) {
    int* bits = (int*)address;
    int old = *bits, assumed;
    while (v > __int_as_float(old)) {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(v));
    }
    return __int_as_float(old);
}
"""
FORUM = """
static __device__ __forceinline__ float keep(float* address, float v) {
    int ret = __float_as_int(*address);
    while (v > __int_as_float(ret)) {
        int old = ret;
        if ((ret = atomicCAS((int*)address, old, __float_as_int(v))) == old) break;
    }
    return __int_as_float(ret);
}
"""
EARLY = """
__device__ void keep(float* const address, const float v) {
    if (*address >= v) { return; }
    int* const bits = (int*)address;
    int old = *bits, assumed;
    do {
        assumed = old;
        if (__int_as_float(assumed) >= v) { break; }
        old = atomicCAS(bits, assumed, __float_as_int(v));
    } while (assumed != old);
}
"""
CHOSEN = """
__device__ void keep(float* p, float v) {
    unsigned* bits = (unsigned*)p;
    unsigned old = bits[0], assumed;
    do {
        assumed = old;
        float there = __uint_as_float(assumed);
        old = atomicCAS(bits, assumed, __float_as_uint(v > there ? v : there));
    } while (old != assumed);
}
"""
SEEN = """
__device__ void keep(float* p, float v) {
    int old = *(int*)p;
    while (true) {
        if (!(v > __int_as_float(old))) break;
        int seen = atomicCAS((int*)p, old, __float_as_int(v));
        if (seen == old) break;
        old = seen;
    }
}
"""
RETURNS = """
__device__ float keep(float* p, float v) {
    int old = __float_as_int(*p);
    for (;;) {
        if (__int_as_float(old) >= v) return __int_as_float(old);
        int assumed = old;
        old = ::atomicCAS((int*)p, assumed, __float_as_int(v));
        if (old == assumed) { return __int_as_float(assumed); }
    }
}
"""
SPLIT = """
__device__ __forceinline__ float keep(float* addr, float v) {
    float old;
    old = (v >= 0) ? __int_as_float(atomicMax((int*)addr, __float_as_int(v)))
                   : __uint_as_float(atomicMin((unsigned int*)addr, __float_as_uint(v)));
    return old;
}
"""
SIGNBIT = """
__device__ void keep(float* addr, float v) {
    if (!signbit(v)) atomicMax((int*)addr, __float_as_int(v));
    else atomicMin((unsigned int*)addr, __float_as_uint(v));
}
"""
WAYS = {
    "bits": BITS, "guide": GUIDE, "while": WHILE, "forum": FORUM, "early": EARLY, "chosen": CHOSEN, "seen": SEEN, "returns": RETURNS,
    "split": SPLIT, "signbit": SIGNBIT,
}  # fmt: skip
POOL = """
extern "C" __global__ void k(const float* x, const int* at, float* best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) keep(&best[at[i]], x[i] * x[i] - SHIFT);
}
"""
DOUBLE = """
__device__ void OPkeep(double* p, double v) {
    unsigned long long* bits = (unsigned long long*)p;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(OP(v, __longlong_as_double(assumed))));
    } while (assumed != old);
}
"""
LEAST, GREATEST = DOUBLE.replace("OP", "fmin"), DOUBLE.replace("OP", "fmax")


def kernel(signature: str, body: str) -> Any:
    """A kernel in double precision, with `fmaxkeep` and `fminkeep` at hand."""
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return gpuad.kernel(f'{LEAST}{GREATEST}\nextern "C" __global__ void k({signature}) {{ {index}\n{body}\n}}', "k")


def run(k: Any, grid: Any, block: Any, args: Any, executor: Any = None) -> None:
    with pipeline.executor_for_tests(executor or Reference()):
        gpuad.autodiff(k, grid, block, args)


# --- ways of writing it ------------------------------------------------------------------------------------------------------------------


def pooled(way: str, executor: Any, least: bool, values: Any, before: Any) -> None:
    """Forward and reverse against a search by hand."""
    helper = WAYS[way]
    if least:
        swaps = {"atomicMax": "atomicMIN", "atomicMin": "atomicMax", "fmaxf": "fminf", "v > ": "v < ", ">= v": "<= v"}
        for old, new in swaps.items():
            helper = helper.replace(old, new)
        helper = helper.replace("atomicMIN", "atomicMin")
    at = np.random.default_rng(2).integers(0, 6, 90).astype(np.int32)
    at[at == 4] = 0  # to cell 4 comes nobody
    best, shadow = before.copy(), np.arange(1, 7).astype(np.float32)
    x, dx = values.copy(), np.zeros(90, np.float32)
    shift = "0.0f" if way == "bits" else "0.5f"
    run(gpuad.kernel(helper + POOL.replace("SHIFT", shift), "k"), 3, 32, (Duplicated(x, dx), at, Duplicated(best, shadow), 90), executor)
    given = x * x - np.float32(shift[:-1])
    wanted, left = np.zeros(90), np.arange(1, 7).astype(float)
    for cell in range(6):
        mine = np.flatnonzero(at == cell)
        first = mine[(given[mine].argmin() if least else given[mine].argmax())] if len(mine) else None
        if first is not None and (given[first] < before[cell] if least else given[first] > before[cell]):
            assert best[cell] == given[first]
            wanted[first], left[cell] = 2 * x[first] * (cell + 1), 0
        else:
            assert best[cell] == before[cell]
    np.testing.assert_allclose(dx, wanted, rtol=1e-6)
    np.testing.assert_array_equal(shadow, left)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("least", [False, True], ids=["greatest", "least"])
@pytest.mark.parametrize("way", WAYS)
def test_ways_of_writing_it(way: str, least: bool) -> None:
    values = np.random.default_rng(1).standard_normal(90).astype(np.float32) * np.float32(0.9)
    before = np.array([0, 0.3, 9, 0, 0.1, 0], np.float32)
    if least:
        before = np.array([9, 0.02, 0, 9, 0.1, 9], np.float32)
    if way not in ("bits",) and not least:
        before[0] = -3
    pooled(way, Reference(), least, values, before)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", ["forum", "split"])
def test_on_the_cpu(way: str, workers: int) -> None:
    values = np.random.default_rng(1).standard_normal(90).astype(np.float32)
    pooled(way, Host(workers=workers), False, values, np.array([-1, 0.3, 9, 0, 0.1, 0], np.float32))


NO_IDIOM = {
    "the other value": (GUIDE, "fmaxf(v, __int_as_float(assumed))", "fmaxf(v, v)"),
    "another value": (GUIDE, "fmaxf(v,", "fmaxf(2 * v,"),
    "two comparisons that disagree": (EARLY, "if (__int_as_float(assumed) >= v)", "if (__int_as_float(assumed) <= v)"),
    "an early return for what matters": (EARLY, "if (*address >= v)", "if (*address <= v)"),
    "stores what was tested elsewhere": (WHILE, "while (v > __int_as_float(old))", "while (v > *address)"),
    "stores something else": (WHILE, "assumed, __float_as_int(v)", "assumed, __float_as_int(-v)"),
    "expects something else": (FORUM, "(int*)address, old,", "(int*)address, __float_as_int(v),"),
    "not until it succeeds": (FORUM, "== old) break", "!= old) break"),
    "no test": (SEEN, "if (!(v > __int_as_float(old))) break;", ""),
    "the wrong choice": (CHOSEN, "v > there ? v : there", "v > 0 ? v : there"),
    "returns the value": (RETURNS, "return __int_as_float(old)", "return v"),
    "changes the value": (SEEN, "old = seen;", "old = seen; v = v + 1;"),
}


@pytest.mark.parametrize("name", NO_IDIOM)
def test_anything_else_is_refused(name: str) -> None:
    helper, old, new = NO_IDIOM[name]
    assert helper.count(old) == 1
    with pytest.raises(UnsupportedError) as found:
        gpuad.kernel(helper.replace(old, new) + POOL.replace("SHIFT", "0.5f"), "k").adjoint(x=Duplicated, best=Duplicated)
    assert found.value.line


def test_a_loop_that_multiplies_is_refused_with_a_hint() -> None:
    text = """
    extern "C" __global__ void k(const float* x, float* y) {
        int old = *(int*)y, assumed;
        do {
            assumed = old;
            old = atomicCAS((int*)y, assumed, __float_as_int(x[0] * __int_as_float(assumed)));
        } while (assumed != old);
    }"""
    with pytest.raises(UnsupportedError, match=r"reinterpreted bits \(a loop around atomicCAS is understood where it adds, or"):
        gpuad.kernel(text, "k").adjoint(x=Duplicated, y=Duplicated)


def test_a_loop_whose_result_is_the_new_content_has_none() -> None:
    """`while (v > old)` without a break: after a success it is the new content that is returned."""
    text = WHILE + 'extern "C" __global__ void k(const float* x, float* y, float* z) { z[0] = keep(y, x[threadIdx.x]); }'
    with pytest.raises(UnsupportedError, match="its loop does not end with the old content"):
        gpuad.kernel(text, "k").adjoint(x=Duplicated, y=Duplicated)


@pytest.mark.parametrize("condition", ["v < 0", "v > 0", "v <= 0.5f"])
def test_bits_that_are_compared_the_wrong_way_are_refused_where_both_meet(condition: str) -> None:
    k = gpuad.kernel(SPLIT.replace("v >= 0", condition) + POOL.replace("x[i] * x[i] - SHIFT", "x[i]"), "k")
    x, y = np.array([1, 2, 0, -1], np.float32), np.array([-3, -3], np.float32)
    args = Duplicated(x, np.zeros(4, np.float32)), np.array([0, 0, 1, 0], np.int32), Duplicated(y, np.ones(2, np.float32)), 4
    with pytest.raises(LaunchError, match="different atomic operations meet in one element of `best`"):
        run(k, 1, 4, args)
    assert (y == -3).all()


# --- whose number stays ------------------------------------------------------------------------------------------------------------------


def test_equal_numbers_one_of_them_gets_all() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[0], x[i]);")
    for executor in (Reference(), Host(workers=2)):
        x, dx, y, dy = np.ones(64), np.zeros(64), np.zeros(1), np.array([3.0])
        run(k, 2, 32, (Duplicated(x, dx), Duplicated(y, dy), 64), executor)
        assert sorted(dx)[-2:] == [0, 3]
        assert dy[0] == 0


def test_what_was_there_before_wins_a_tie() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[0], x[i]);")
    x, dx, y, dy = np.ones(64), np.zeros(64), np.ones(1), np.array([3.0])
    run(k, 2, 32, (Duplicated(x, dx), Duplicated(y, dy), 64))
    assert not dx.any()
    assert dy[0] == 3


def test_bits_of_negative_numbers_have_the_opposite_order() -> None:
    """The gradient is that of what the kernel does: among negative numbers the greatest bits are those of the least number."""
    k = gpuad.kernel(BITS + POOL.replace("SHIFT", "9.0f"), "k")
    x, dx, y, dy = np.array([1, 2, 0.5], np.float32), np.zeros(3, np.float32), np.array([-1], np.float32), np.ones(1, np.float32)
    run(k, 1, 3, (Duplicated(x, dx), np.zeros(3, np.int32), Duplicated(y, dy), 3))
    assert y[0] == -8.75
    np.testing.assert_array_equal(dx, [0, 0, 1])
    assert dy[0] == 0


NANS = {  # helper: what is left of [NaN, 3, NaN, 2] over 1, and of 2 over NaN
    "guide": (3, 2), "while": (3, np.nan), "bits": (np.nan, np.nan),
}  # fmt: skip


@pytest.mark.parametrize("way", NANS)
def test_nan_is_kept_or_not_as_the_users_comparison_has_it(way: str) -> None:
    k = gpuad.kernel(WAYS[way] + POOL.replace("x[i] * x[i] - SHIFT", "x[i]"), "k")
    for values, before, wanted in (([np.nan, 3, np.nan, 2], 1, NANS[way][0]), ([2], np.nan, NANS[way][1])):
        x, y = np.array(values, np.float32), np.array([before], np.float32)
        dx, dy = np.zeros(len(x), np.float32), np.ones(1, np.float32)
        run(k, 1, 4, (Duplicated(x, dx), np.zeros(len(x), np.int32), Duplicated(y, dy), len(x)))
        np.testing.assert_array_equal(y, np.float32([wanted]))
        assert dx.sum() + dy[0] == 1
        kept = np.flatnonzero(dx)
        assert len(kept) == 0 or x[kept[0]] == wanted or (np.isnan(wanted) and np.isnan(x[kept[0]]))


def test_a_partial_that_is_infinite_for_a_loser_gives_no_nan() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[0], sqrt(x[i]));")
    x, dx, y, dy = np.array([0.0, 4, 1]), np.zeros(3), np.zeros(1), np.ones(1)
    run(k, 1, 4, (Duplicated(x, dx), Duplicated(y, dy), 3))
    np.testing.assert_array_equal(dx, [0, 0.25, 0])


def test_something_inactive_wins_and_takes_the_gradient_with_it() -> None:
    k = kernel("const double* x, const double* z, double* y, int n", "if (i < n) fmaxkeep(&y[i % 3], i % 2 ? x[i] : z[i]);")
    x, z, dx = np.array([0, 5, 0, 1, 0, 1.0]), np.array([1, 0, 2, 0, 3, 0.0]), np.zeros(6)
    y, dy = np.array([0, 0, 9.0]), np.array([1, 2, 4.0])
    run(k, 1, 6, (Duplicated(x, dx), z, Duplicated(y, dy), 6))
    np.testing.assert_array_equal(y, [1, 5, 9])  # 1 of z in cell 0 was there before 1 of x
    np.testing.assert_array_equal(dx, [0, 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(dy, [0, 0, 4])


def test_only_inactive_numbers_clear_the_shadow() -> None:
    k = kernel("double* x, const double* z, double* y, int n", "if (i < n) { fmaxkeep(&y[i], z[i]); x[i] *= 3; }")
    z, y, dy, dx = np.array([1.0, -2]), np.zeros(2), np.array([1.0, 2]), np.ones(2)
    run(k, 1, 2, (Duplicated(np.ones(2), dx), z, Duplicated(y, dy), 2))
    np.testing.assert_array_equal(dy, [0, 2])
    np.testing.assert_array_equal(dx, [3, 3])


def test_two_shadows() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[i % 3], x[i]);")
    x, y = np.random.default_rng(1).random(40), np.zeros(3)
    dx, dy = (np.zeros(40), np.ones(40)), (np.ones(3), np.array([1.0, 0, 2]))
    run(k, 2, 32, (BatchDuplicated(x, dx), BatchDuplicated(y, dy), 40))
    winners = [3 * x[c::3].argmax() + c for c in range(3)]
    np.testing.assert_array_equal(np.flatnonzero(dx[0]), sorted(winners))
    np.testing.assert_array_equal(dx[1][winners], [2, 1, 3])
    assert not np.any(dy)


# --- in every way ------------------------------------------------------------------------------------------------------------------------

CHECKED: dict[str, tuple[str, str, Any]] = {
    "segments in loops": (
        "const double* x, const int* at, double* y, int n, int m",
        "for (; i < n; i += gridDim.x * blockDim.x) for (int c = m - 1; c >= 0; c -= 2) fmaxkeep(&y[at[i] * m + c], x[i * m + c] * x[i]);",
        lambda r: (r.standard_normal(200), r.integers(0, 5, 40).astype(np.int32), r.standard_normal(25), 40, 5),
    ),
    "box": (
        "const double* x, double* box, int n",
        "if (i < n) { fminkeep(box, x[i]); fmaxkeep(box + 1, x[i]); fminkeep(&box[2], x[i + n]); fmaxkeep(&box[3], x[i + n]); }",
        lambda r: (r.standard_normal(80), np.array([9.0, -9, 9, -9]), 40),
    ),
    "filled before": (
        "const double* x, double* y, int n",
        "if (threadIdx.x == 0) y[blockIdx.x] = x[0]; __syncthreads(); if (i < n) fmaxkeep(&y[blockIdx.x], x[i] * x[i]);",
        lambda r: (r.standard_normal(40), np.zeros(3), 40),
    ),
    "block": (
        "const double* x, double* y, int n",
        "__shared__ double s; if (threadIdx.x == 0) s = 0.01; __syncthreads(); if (i < n) fmaxkeep(&s, x[i] * x[i]); __syncthreads();"
        "if (i < n) y[i] = x[i] / s;",
        lambda r: (r.standard_normal(40), np.zeros(40), 40),
    ),
    "block in a loop": (
        "const double* x, double* y, int n",
        "__shared__ double s; if (threadIdx.x == 0) s = 0.01; __syncthreads();"
        "for (int j = threadIdx.x; j < n; j += blockDim.x) fmaxkeep(&s, x[j] * x[j]); __syncthreads();"
        "for (int j = threadIdx.x; j < n; j += blockDim.x) y[blockIdx.x * n + j] = exp(x[j]) / s;",
        lambda r: (r.standard_normal(40), np.zeros(120), 40),
    ),
    "tiles": (
        "const double* x, double* y, int n",
        "__shared__ double s; for (int t = 0; t < n; t += blockDim.x) { int j = t + threadIdx.x;"
        "if (threadIdx.x == 0) s = 0.01; __syncthreads();"
        "if (j < n) { if (x[j] > 0) fmaxkeep(&s, x[j] * x[j]); else fmaxkeep(&s, -2 * x[j]); } __syncthreads();"
        "if (j < n) y[blockIdx.x * n + j] = x[j] / s; __syncthreads(); }",
        lambda r: (r.standard_normal(40), np.zeros(120), 40),
    ),
    "branches": (
        "const double* x, double* y, int n",
        "__shared__ double s[4]; if (threadIdx.x < 4) s[threadIdx.x] = 0.1; __syncthreads(); double v = x[i % n];"
        "if (i < n) { if (v > 0) fmaxkeep(&s[i % 4], v * v); else fmaxkeep(&s[(i + 1) % 4], -v); } __syncthreads();"
        "if (threadIdx.x < 4) fmaxkeep(&y[threadIdx.x], s[threadIdx.x] * v);",
        lambda r: (r.standard_normal(40), np.zeros(4), 40),
    ),
    "while": (
        "const double* x, double* y, int n",
        "__shared__ double s; if (threadIdx.x == 0) s = 0.01; __syncthreads(); double v = x[i % n]; int m = 0;"
        "while (v * v > 0.1 && m < 5) { v = v * 0.8; fmaxkeep(&s, v); m++; } __syncthreads(); if (i < n) y[i] = v * s;",
        lambda r: (r.standard_normal(40), np.zeros(40), 40),
    ),
    "exchanged": (
        "double* x, double* y, int n",
        "if (i < n) { double* p = &y[(7 * i) % n]; double t = x[i]; x[i] = 0; unsigned long long o = atomicExch((unsigned long long*)p,"
        "(unsigned long long)__double_as_longlong(t * t)); x[i] = sin(__longlong_as_double(o)); }",
        lambda r: (r.standard_normal(40), r.standard_normal(40), 40),
    ),
    "sum whose result decides": (
        "const double* x, double* y, int n",
        "if (i < n) { double before = atomicAdd(&y[0], x[i]); if (before > 1e9) y[1 + i] = x[i]; else y[1 + i] = 2 * x[i]; }",
        lambda r: (r.standard_normal(40), np.zeros(41), 40),
    ),
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("executor", ["reference", "host"], indirect=True)
@pytest.mark.parametrize("name", CHECKED)
def test_gradient(name: str, executor: Any) -> None:
    """Forward against reverse, and reverse against the primal alone."""
    signature, body, make = CHECKED[name]
    args = make(np.random.default_rng(3))
    host = isinstance(executor, Host)
    with pipeline.executor_for_tests(executor), pipeline.nothing_plain_for_tests() if host else contextlib.nullcontext():
        report = check_gradient(kernel(signature, body), args, grid=3, block=16, directions=1, race_check=not host)
    assert not any("no dot product" in note for note in report.notes), report


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["block in a loop", "while", "branches", "segments in loops"])
def test_gradient_with_everything_recorded(name: str) -> None:
    signature, body, make = CHECKED[name]
    with pipeline.executor_for_tests(Reference()), pipeline.everything_recorded_for_tests():
        check_gradient(kernel(signature, body), make(np.random.default_rng(3)), grid=3, block=16, directions=1, race_check=False)


# --- what is refused ---------------------------------------------------------------------------------------------------------------------

# `^` marks the place; it is on line 21.
REFUSED: dict[str, tuple[str, str]] = {
    "written behind it": (
        "fmaxkeep(&y[c[i]], x[i]); __syncthreads(); ^y[i] = 0;",
        "'y' is written here after the atomic maximum at <source>:21:1, whose last content the gradient needs",
    ),
    "read between": (
        "fmaxkeep(&y[i], x[i]); z[i] = ^y[i]; fmaxkeep(&y[i], x[n + i]);",
        "'y' is read here between atomic operations (<source>:21:1, <source>:21:37): whose number it was at that time is not recorded",
    ),
    "its value": (
        "fmaxkeep(&y[i], x[i]); z[i] = ^y[i] * y[i];",
        "the gradient needs the value of 'y' read here, which threads change atomically in one launch",
    ),
    "result of a maximum": (
        "z[i] = __longlong_as_double(^atomicMax((long long*)&y[c[i]], __double_as_longlong(x[i])));",
        "the result of an atomic maximum on 'y' carries a gradient: whose number it was is not recorded",
    ),
    "result of an addition": ("z[i] = ^atomicAdd(&y[c[i]], x[i]);", "atomicAdd on 'y', which carries a gradient, whose result carries one"),
    "exchange in shared memory": (
        "__shared__ double s[32]; ^atomicExch((unsigned long long*)&s[i], (unsigned long long)__double_as_longlong(x[i])); z[i] = s[i];",
        "an atomic exchange on the shared array 's', which carries a gradient: its order is not recorded",
    ),
    "greatest and least in shared memory": (
        "__shared__ double s[32]; fminkeep(&s[c[i]], x[i]); ^fmaxkeep(&s[1], x[i]); __syncthreads(); z[i] = s[i];",
        "an atomic maximum on 's', which carries a gradient, and an atomic minimum at <source>:21:26: where both meet, what is left "
        "depends on the order of the threads",
    ),
    "swap": (
        "^atomicCAS((unsigned long long*)&y[c[i]], 0ull, (unsigned long long)__double_as_longlong(x[i]));",
        "atomicCAS on 'y', which carries a gradient, is not supported",
    ),
    "loop of unknown length": (
        "double v = x[i]; while (v > 0.1) { v *= 0.5; ^fmaxkeep(&y[c[i]], v); }",
        "the result of an atomic inside a loop whose iterations are not counted before it begins is not recorded in this release",
    ),
    "loops of changing length": (
        "for (int a = 0; a < n; ++a) for (int b = 0; b < a; ++b) ^fmaxkeep(&y[c[b]], x[a]);",
        "the result of an atomic inside a loop that is not equally long in all iterations of a loop around it is not recorded in this "
        "release",
    ),
    "loop in a loop that fills a shared array": (
        "__shared__ double s; for (int t = 0; t < n; ++t) { if (i == 0) s = 0; __syncthreads(); for (int j = 0; j < 3; ++j)"
        " ^fmaxkeep(&s, x[i + j * t]); __syncthreads(); z[i + t] = s; __syncthreads(); }",
        "an atomic operation in a loop on the shared array 's', which carries a gradient and is filled anew by each iteration of a loop "
        "around it, is not supported",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    marked, message = REFUSED[name]
    k = kernel("const double* x, double* y, double* z, const int* c, int n", marked.replace("^", ""))
    x, y, z = np.ones(64), np.zeros(64), np.zeros(128)
    with pytest.raises(UnsupportedError) as found:
        run(k, 1, 4, (Duplicated(x), Duplicated(y, np.ones(64)), Duplicated(z, np.ones(128)), np.zeros(32, np.int32), 4))
    assert found.value.message == message
    assert (found.value.line, found.value.column) == (21, marked.index("^") + 1)
    assert not y.any()


def test_different_atomics_in_one_element_are_refused_at_the_launch() -> None:
    """Boxes of a least and a greatest number: which element an operation reaches is data."""
    k = kernel(
        "const double* x, double* box, const int* c, int n, int m",
        "if (i < n) { fminkeep(box + 2 * c[i], x[i]); fmaxkeep(box + 2 * c[i] + m, x[i]); }",
    )
    x, c = np.random.default_rng(1).standard_normal(30), np.random.default_rng(2).integers(0, 3, 30).astype(np.int32)
    box, dx, dbox = np.tile([9.0, -9], 3), np.zeros(30), np.arange(1.0, 7)
    run(k, 2, 16, (Duplicated(x, dx), Duplicated(box, dbox), c, 30, 1))
    for cell in range(3):
        mine = np.flatnonzero(c == cell)
        assert dx[mine[x[mine].argmin()]] == 2 * cell + 1
        assert dx[mine[x[mine].argmax()]] == 2 * cell + 2
    assert not dbox.any()
    with pytest.raises(LaunchError, match="different atomic operations meet in one element of `box`"):
        run(k, 2, 16, (Duplicated(x, dx), Duplicated(box, dbox), c, 30, 0))
    assert any(
        "different atomics on `box` meet in no element" in text for text in k.adjoint(x=Duplicated, box=Duplicated).explain().assumptions
    )


def test_exchanges_of_several_threads_in_one_element_are_refused_at_the_launch() -> None:
    k = kernel(
        "const double* x, double* y, const int* c, int n",
        "if (i < n) atomicExch((unsigned long long*)&y[c[i]], (unsigned long long)__double_as_longlong(x[i]));",
    )
    x, y, dx, dy, c = np.arange(8.0), np.zeros(8), np.zeros(8), np.arange(8.0), np.arange(8)[::-1].astype(np.int32)
    run(k, 1, 8, (Duplicated(x, dx), Duplicated(y, dy), c, 8))
    np.testing.assert_array_equal(dx, np.arange(8)[::-1])
    assert not dy.any()
    c[3] = c[4]
    with pytest.raises(LaunchError, match="two threads write to one element of `y`"):
        run(k, 1, 8, (Duplicated(x, dx), Duplicated(y, dy), c, 8))


# --- what the launch writes down ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_slots_of_a_compaction_in_a_loop(workers: int) -> None:
    """CASE 42 in a grid-stride loop, with an inner loop."""
    body = """for (; i < n; i += gridDim.x * blockDim.x)
    for (int c = 0; c < 2; ++c)
        if (x[2 * i + c] > 0.5) { int slot = atomicAdd(count, 1); y[slot] = x[2 * i + c] * x[2 * i + c]; }"""
    k = kernel("const double* x, double* y, int* count, int n", body)
    x, dx, y, count = np.random.default_rng(3).random(100), np.zeros(100), np.zeros(100), np.zeros(1, np.int32)
    dy = np.random.default_rng(4).random(100)
    seeds = dy.copy()
    run(k, 2, 8, (Duplicated(x, dx), Duplicated(y, dy), count, 50), Host(workers=workers))
    slots = {value: slot for slot, value in enumerate(y[: count[0]])}
    np.testing.assert_allclose(dx, [2 * v * seeds[slots[v * v]] if v > 0.5 else 0 for v in x])


def test_a_result_that_only_decides() -> None:
    """The old content of a sum, and of a maximum, that nobody differentiates."""
    body = """if (i < n) {
        double old = __longlong_as_double(atomicMax((long long*)&y[0], __double_as_longlong(x[i])));
        if (old < x[i]) atomicAdd(&raised[i], 1);
    }"""
    k = kernel("const double* x, double* y, int* raised, int n", body)
    x, dx, y, dy, raised = np.array([3.0, 1, 4, 1, 5, 2]), np.zeros(6), np.zeros(1), np.ones(1), np.zeros(6, np.int32)
    run(k, 1, 6, (Duplicated(x, dx), Duplicated(y, dy), raised, 6))
    np.testing.assert_array_equal(dx, [0, 0, 0, 0, 1, 0])
    assert raised[4] == 1


def test_a_split_pair_keeps_the_last_content() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[i % 2], x[i]);")
    augmented, reverse = gpuad.autodiff_thunk(k, x=Duplicated, y=Duplicated)
    with pipeline.executor_for_tests(Reference()):
        x, y = np.arange(8.0), np.zeros(2)
        saved = augmented(1, 8, (x, y, 8))
        y[:] = 1  # the caller uses it for something else
        dx, dy = np.zeros(8), np.array([1.0, 2])
        reverse(1, 8, (Duplicated(x, dx), Duplicated(y, dy), 8), saved)
    np.testing.assert_array_equal(dx, [0, 0, 0, 0, 0, 0, 1, 2])
    assert not dy.any()


def test_launch_after_launch_on_a_tape() -> None:
    """A running maximum over windows: each launch's last content is needed by its reverse, and overwritten by the next one."""
    k = kernel("const double* x, double* y, int n, int o", "if (i < n) fmaxkeep(&y[(i + o) % 4], x[i] * x[i] * y[4 + i % 2]);")
    square = kernel("double* y", "y[i] = y[i] * y[i] * 0.6;")
    values = np.random.default_rng(5).standard_normal(24)
    start = np.array([0.1, 9, 0.3, 0.2, 1.2, 0.7])

    def program(x: Any, y: Any) -> None:
        for o in range(3):
            k[2, 16](x, y, 24, o)
            square[1, 4](y)

    def final(x: Any, y: Any) -> float:
        x, y = x.copy(), y.copy()
        program(x, y)
        return float(y.sum())

    with pipeline.executor_for_tests(Reference()):
        x, y = Duplicated(values.copy(), np.zeros(24)), Duplicated(start.copy())
        tape = gpuad.Tape()
        for _ in range(2):
            y.primal[:] = start
            with tape:
                program(x, y)
            x.shadow[:] = 0
            tape.reverse({y: np.ones(6)})
            for i in range(24):
                step = np.eye(24)[i] * 1e-6
                assert x.shadow[i] == pytest.approx((final(values + step, start) - final(values - step, start)) / 2e-6, rel=1e-4, abs=1e-6)
            for i in range(6):
                step = np.eye(6)[i] * 1e-6
                assert y.shadow[i] == pytest.approx((final(values, start + step) - final(values, start - step)) / 2e-6, rel=1e-4, abs=1e-6)


SECOND = {
    "maximum": "if (i < n) fmaxkeep(&y[i % 3], x[i] * x[i] * x[i]);",
    "loops": "for (; i < n; i += gridDim.x * blockDim.x) for (int c = 0; c < 2; ++c) fminkeep(&y[(i + c) % 3], sin(x[i]) * x[i] - c);",
    "compaction": "if (i < n && x[i] > 0) { int slot = atomicAdd(count, 1); y[slot] = x[i] * x[i] * x[i]; }",
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    """Against differences of the gradient."""
    k = kernel("const double* x, double* y, int* count, int n", SECOND[name])
    rng = np.random.default_rng(4)
    x, v, w, u = rng.standard_normal(30), rng.standard_normal(30), rng.standard_normal(30), rng.standard_normal(30)
    y = np.full(30, 0.1)

    def gradient(step: float) -> tuple[Any, Any]:
        dx, dy = np.zeros(30), w.copy()
        run(k, 1, 32, (Duplicated(x + step * v, dx), Duplicated(y + step * u, dy), np.zeros(1, np.int32), 30))
        return dx, dy

    wanted = [(a - b) / 2e-6 for a, b in zip(gradient(1e-6), gradient(-1e-6), strict=True)]
    found = np.zeros(30), np.zeros(30)
    args = Duplicated(x.copy(), np.zeros(30)), Duplicated(y.copy(), w.copy()), np.zeros(1, np.int32), 30
    with pipeline.executor_for_tests(Reference()):
        gpuad.hvp(k, 1, 32, args, (Duplicated(v.copy(), found[0]), Duplicated(u.copy(), found[1]), None, None))
    assert np.abs(wanted[0]).max() > 0.1
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_second_derivatives_that_are_refused() -> None:
    shared = "__shared__ double s; if (i == 0) s = 0; __syncthreads(); fmaxkeep(&s, x[i]); __syncthreads(); y[i] = x[i] * s;"
    exchange = "y[i] = exp(__longlong_as_double(atomicExch((unsigned long long*)&z[i], (unsigned long long)__double_as_longlong(x[i]))));"
    for body, message in (
        (shared, "second derivatives through an atomic maximum on the shared array 's' come in a later release"),
        (exchange, "second derivatives of the float that an atomic gives come in a later release"),
    ):
        k = kernel("const double* x, double* y, double* z", body)
        pairs = [Duplicated(np.ones(4), np.ones(4)) for _ in range(6)]
        with pytest.raises(UnsupportedError, match=message), pipeline.executor_for_tests(Reference()):
            gpuad.hvp(k, 1, 4, tuple(pairs[:3]), tuple(pairs[3:]))


# --- other ways in -----------------------------------------------------------------------------------------------------------------------


def test_elementwise_kernels_have_cupys_overloads() -> None:
    k = gpuad.ElementwiseKernel("float32 x, int32 c", "raw float32 y", "atomicMax(&y[c], x * x); atomicMin(&y[4 + c], x)", "pool")
    x, c = np.random.default_rng(1).standard_normal(30).astype(np.float32), (np.arange(30) % 4).astype(np.int32)
    y, dy, dx = np.zeros(8, np.float32), np.arange(1, 9).astype(np.float32), np.zeros(30, np.float32)
    with pipeline.executor_for_tests(Reference()):
        gpuad.autodiff(k, Duplicated(x, dx), c, Duplicated(y, dy))
    wanted = np.zeros(30)
    for cell in range(4):
        mine = np.arange(cell, 30, 4)
        wanted[mine[(x[mine] ** 2).argmax()]] += 2 * x[mine[(x[mine] ** 2).argmax()]] * (cell + 1)
        wanted[mine[x[mine].argmin()]] += cell + 5
    np.testing.assert_allclose(dx, wanted, rtol=1e-6)
    assert not dy.any()


@gpuad.jit
def pool_in_python(x, c, y, n):  # type: ignore[no-untyped-def]
    i = gpuad.jit.grid(1)
    if i < n:
        gpuad.jit.atomic_max(y, c[i], x[i] * x[i])


def test_jit_functions() -> None:
    x, c = np.random.default_rng(1).standard_normal(30), (np.arange(30) % 4).astype(np.int32)
    dx, y, dy = np.zeros(30), np.zeros(4), np.ones(4)
    run(pool_in_python, 2, 16, (Duplicated(x, dx), c, Duplicated(y, dy), 30))
    winners = [4 * (x[k::4] ** 2).argmax() + k for k in range(4)]
    assert sorted(np.flatnonzero(dx)) == sorted(winners)
    np.testing.assert_allclose(dx[winners], 2 * x[winners])


def test_deterministic_sums() -> None:
    k = kernel("const double* x, double* y, int n", "if (i < n) fmaxkeep(&y[i % 3], x[i] * x[i / 2]);")
    x, found = np.random.default_rng(1).random(40), []
    for wanted in (False, True):
        dx, y, dy = np.zeros(40), np.zeros(3), np.ones(3)
        with gpuad.deterministic(wanted):
            run(k, 2, 32, (Duplicated(x, dx), Duplicated(y, dy), 40))
        found.append((dx, dy))
    np.testing.assert_allclose(found[0][0], found[1][0])
    assert found[0][0].any()
    assert not found[1][1].any()
