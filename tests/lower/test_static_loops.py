"""Loops that say in the text how often they run have stacks of known depth; others are counted as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import cases

import gpuad
from gpuad import Duplicated, api, pipeline
from gpuad.ir.nodes import For, While
from gpuad.ir.rewrite import walk_stmts
from gpuad.pipeline import schedule
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient

BODY = "v = 0.9 * v * v + 0.01 * d * v;"


def kernel(body: str) -> gpuad.Kernel:
    return gpuad.kernel(
        f"""extern "C" __global__ void k(const double* x, double* y, int m, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            double v = x[i];
            {body}
            y[i] = v;
        }}""",
        "k",
    )


def loops(k: gpuad.Kernel, kind: type) -> int:
    return sum(isinstance(s, kind) for s in walk_stmts(api.kernel(k).primal().body))


def check(k: gpuad.Kernel, executor: Any) -> None:
    x = np.random.default_rng(0).uniform(0.4, 1.0, 20)
    with pipeline.executor_for_tests(executor):
        check_gradient(k, (x, np.ones(20), 3, 20), grid=(3,), block=(8,))


COUNTED = [
    f"for (int d = 16; d > 0; d >>= 1) {BODY}",
    f"for (int d = 16; d; d /= 2) {BODY}",
    f"for (unsigned int d = 8; d != 0; d >>= 1) {BODY}",
    f"for (int d = 1; d < 32; d *= 2) {BODY}",
    f"for (int d = 1; d < 30; d <<= 1) {{ {BODY} }} v += 0.5;",
    "for (unsigned int d = 1u << 28; d; d <<= 1) v = 0.9 * v * v + 0.01 * (d >> 28) * v;",
    f"for (int d = -8; d; d /= 2) {BODY}",
    f"for (int d = -8; d < -1; d >>= 1) {BODY}",
    f"for (int d = 1; d < 30; d *= 3) {BODY}",
    "for (unsigned char d = 128; d; d >>= 1) v = 0.9 * v * v + 0.001 * d * v;",
    "for (long long d = 1ll << 33; d > 1ll << 30; d /= 2) v = 0.9 * v * v + (d >> 31) * 0.01 * v;",
    f"for (int a = 0, b = 7; a < b; ++a, --b) {{ int d = b - a; {BODY} }}",
    f"int d = 16; while (d > 2) {{ {BODY} d >>= 1; }} v += 0.1 * d * v;",
    f"int d = 1; while (d < 200) {{ if (v > 0.5) {{ {BODY} }} d = d * d + 1; }} v *= d * 1e-3;",
    "for (int d = 4; d > 0; d >>= 1) for (int e = 1; e < 4; e *= 2) v = 0.9 * v * v + 0.01 * d * e * v;",
    f"for (int d = 8; d > 0; d >>= 1) {{ if (v > 0.7) continue; {BODY} }}",
    f"for (int r = 0; r < 3; ++r) for (int d = 4; d > 0; d >>= 1) {BODY}",
    f"for (int d = 64, e = 1; d > e; d /= 2, e += 3) {BODY}",
]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("body", COUNTED)
def test_loops_by_constants(body: str, executor: Any) -> None:
    k = kernel(body)
    assert loops(k, While) == 0 and "_count(" not in k.adjoint(x=Duplicated, y=Duplicated).source
    check(k, executor)


OTHERS = [
    f"for (int d = m; d > 0; d >>= 1) {BODY}",  # as often as a number of the launch says
    f"for (int d = 16; d > 0; d >>= 1) {{ if (v < 0.3) break; {BODY} }}",
    f"for (int d = 16; d > 0; ) {{ {BODY} if (v > 0.3) d >>= 1; else d = 0; }}",
    f"for (int d = 16; d > 0 && v > 0.2; d >>= 1) {BODY}",
    f"int d = 99; do {{ {BODY} d /= 3; }} while (d > 0);",
    "for (int d = 0, e = 1; d < 70; d += e, e = 1 + (d & 0)) v = 0.999 * v;",  # too many
    f"int d = 16; while (d > 0) {{ {BODY} for (int c = 0; c < m - 2; ++c) d >>= 1; }}",  # changed by a loop inside
    f"int d = 16; while (d > 0) {{ {BODY} if (i > 3) d >>= 1; else d -= 4; }}",
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("body", OTHERS)
def test_other_loops_stay_what_they_are(body: str, executor: Any) -> None:
    k = kernel(body)
    assert loops(k, While) == 1
    check(k, executor)


def test_a_loop_that_never_runs(executor: Any) -> None:
    check(kernel(f"for (int d = 0; d > 0; d >>= 1) {BODY} v = v * v;"), executor)


def test_the_text_has_the_users_name_and_a_stack_of_its_own() -> None:
    k = kernel(COUNTED[0])
    adjoint = k.adjoint(x=Duplicated, y=Duplicated)
    assert "int d = 16 >> iteration;" in adjoint.source and "double v_saved[5];" in adjoint.source
    assert "local    5 entries in each thread" in str(adjoint.explain())
    assert loops(k, For) == 1


@pytest.mark.parametrize("way", ["d >>= 1", "d /= 2"])
def test_shuffles_of_halved_distances(way: str, executor: Any) -> None:
    k = gpuad.kernel(
        f"""extern "C" __global__ void k(double* x, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            double v = i < n ? x[i] : 0.0;
            for (int d = 16; d; {way}) v += 0.3 * v * __shfl_xor_sync(0xffffffff, v, d);
            if (i < n) x[i] = v;
        }}""",
        "k",
    )
    assert loops(k, While) == 0
    with pipeline.executor_for_tests(executor):
        check_gradient(k, (np.random.default_rng(1).uniform(0.1, 0.4, 50), 50), grid=(2,), block=(32,))


REDUCTION = r"""
extern "C" __global__ void k(const double* x, double* y, int n, int first) {
    extern __shared__ double s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.5;
    __syncthreads();
    for (unsigned int d = WAY) {
        if (t % (2 * d) == 0 && t + d < blockDim.x) s[t] = s[t] * s[t + d] + 0.1 * s[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}
"""
WAYS = ["blockDim.x / 2; d > 0; d >>= 1", "1; d < blockDim.x; d *= 2", "first; d < gridDim.x * blockDim.x / 4; d <<= 1"]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("way", WAYS)
def test_loops_by_numbers_of_the_launch_are_not_counted(way: str, executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    k = gpuad.kernel(REDUCTION.replace("WAY", way), "k")
    monkeypatch.setattr(schedule, "_depths", lambda *_: pytest.fail("the depth is known"))
    with pipeline.executor_for_tests(executor):
        x = np.random.default_rng(1).uniform(0.5, 1.2, 61)
        check_gradient(k, (x, np.ones(4), 61, 1), grid=(4,), block=(16,), shared_mem=16 * 8)


def test_a_bound_that_data_give_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    k, counts = kernel(f"for (int d = x[0] > 0.0 ? m : 7; d > 0; d >>= 1) {BODY}"), []
    count = schedule._depths
    monkeypatch.setattr(schedule, "_depths", lambda *a: counts.append(1) or count(*a))
    check(k, Reference())
    assert counts


TYPES = {"int": (32, True), "unsigned int": (32, False), "long long": (64, True), "unsigned long long": (64, False), "short": (16, True)}
STEPS = ["d >>= {}", "d <<= {}", "d *= {}", "d /= {}", "d += {}", "d -= {}", "d = d * d + {}", "d = (d ^ {}) / 2", "d = {} - d / 2"]


def told(bits: int, signed: bool, value: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def gone_through(kind: str, first: int, step: str, by: int, op: str, bound: int) -> tuple[int, list[int]] | None:
    """What the loop's number is after it, and in its iterations, as C computes it; None if there are many, or something is undefined."""
    bits, signed = TYPES[kind]
    wide = max(bits, 32), signed or bits < 32  # short is computed with as an int
    d, seen = told(bits, signed, first), []
    bound = told(*wide, bound)
    while {"<": d < bound, ">": d > bound, "!=": d != bound}[op]:
        seen.append(d)
        half = abs(d ^ by) // 2 * (-1 if d ^ by < 0 else 1)
        of_two = abs(d) // 2 * (-1 if d < 0 else 1)
        whole = abs(d) // by * (-1 if d < 0 else 1)
        values = [d >> by, d << by, d * by, whole, d + by, d - by, d * d + by, half, by - of_two]
        following = values[STEPS.index(step)]
        if len(seen) > 40 or (wide[1] and told(*wide, following) != following) or (step == STEPS[1] and d < 0):
            return None
        d = told(bits, signed, following)
    return d, seen


def test_random_loops() -> None:
    """Against the same loop in Python."""
    random, done = np.random.default_rng(5), 0
    while done < cases(25, 150):
        kind, step, op = (str(random.choice(list(each))) for each in (TYPES, STEPS, ["<", ">", "!="]))
        first, by, bound = (
            int(random.choice([0, 1, 2, 7, 16, 100, 1000, -5, -64])),
            int(random.integers(1, 5)),
            int(random.integers(-40, 200)),
        )
        expected = gone_through(kind, first, step, by, op, bound)
        if expected is None:
            continue
        done += 1
        text = f"""extern "C" __global__ void k(double* y) {{
            double sum = 0.0, many = 0.0;
            {kind} d = {first};
            for (; d {op} ({kind}){bound}; {step.format(by)}) {{ many += 1.0; sum += many * (double)d; }}
            y[0] = many; y[1] = sum; y[2] = (double)d;
        }}"""
        y = np.zeros(3)
        with pipeline.executor_for_tests(Reference()):
            gpuad.kernel(text, "k")((1,), (1,), (y,))
        last, seen = expected
        assert y.tolist() == [len(seen), float(sum((t + 1) * d for t, d in enumerate(seen))), float(last)], text
