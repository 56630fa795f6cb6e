"""The cases every part must get right, as far as one launch goes: closed forms, seeds 1 unless given, on both executors, recording analysed
or everything recorded. The number in a test's name is the case's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed
from gpuad.errors import GpuadError, LaunchError, ShadowError, UnsupportedError
from gpuad.runtime.host import Host
from gpuad.testing import check_gradient

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@pytest.fixture(autouse=True, params=[f"{e}-{a}" for e in EXECUTORS for a in ("analysed", "all_recorded")])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test runs on each executor, with recording analysed and not."""
    executor, analysis = request.param.split("-")
    with running(executor, analysis == "analysed"):
        yield request.param


def kernel_of(parameters: str, body: str, name: str = "k") -> Any:
    """A kernel that does `body` in thread `i`."""
    return compiled(f'extern "C" __global__ void {name}({parameters})\n{{\n    {INDEX}\n    {body}\n}}\n', name)


def array(values: Any) -> Any:
    return np.array(values, dtype=np.float64)


def ones(count: int) -> Any:
    return np.ones(count)


def saved(k: Any, **active: Any) -> list[str]:
    """What is kept from before the launch, or pushed during it, by name."""
    return [row.name for row in k.adjoint(**active).explain().rows if row.topic in ("saved", "stack")]


def differentiate(k: Any, args: Sequence[Any], grid: Any = 1, block: Any = 64) -> None:
    gpuad.autodiff(k, grid, block, tuple(args))


def same(a: Any, b: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# --- overwritten inputs --------------------------------------------------------------------------------------------------------------

SQUARE = "double* x", "x[i] = x[i] * x[i];"


def test_case_01_square() -> None:
    k = kernel_of(*SQUARE)
    x, dx = np.arange(1.0, 65), ones(64)
    differentiate(k, [Duplicated(x, dx)])
    same(x, np.arange(1.0, 65) ** 2)
    same(dx, np.arange(2.0, 129, 2))
    assert saved(k, x=Duplicated) == ["x"]


def test_case_02_exp_needs_its_result_only() -> None:
    k = kernel_of("double* x", "x[i] = exp(x[i]);")
    old, dx = np.linspace(-2, 2, 64), np.linspace(1, 3, 64)
    differentiate(k, [Duplicated(old.copy(), dx)])
    same(dx, np.exp(old) * np.linspace(1, 3, 64))
    assert saved(k, x=Duplicated) == []


def test_case_03_cos_needs_the_old_value() -> None:
    k = kernel_of("double* x", "x[i] = cos(x[i]);")
    old, dx = np.linspace(-2, 2, 64), ones(64)
    differentiate(k, [Duplicated(old.copy(), dx)])
    same(dx, -np.sin(old))
    assert saved(k, x=Duplicated) == ["x"]


@pytest.mark.parametrize("active", [True, False])
def test_case_04_axpy(active: bool) -> None:
    k = kernel_of("double a, const double* x, double* y", "y[i] += a * x[i];")
    x, y, dx, dy, da = np.linspace(1, 2, 64), ones(64), np.full(64, 0.5), np.linspace(0, 1, 64), array(10.0)
    differentiate(k, [Active(3.0, da) if active else 3.0, Duplicated(x, dx), Duplicated(y, dy)])
    same(y, 1 + 3 * x)
    same(dy, np.linspace(0, 1, 64))
    same(dx, 0.5 + 3 * dy)
    same(da, 10 + x @ dy if active else 10)
    assert saved(k, x=Duplicated, y=Duplicated, **({"a": Active} if active else {})) == []


def test_case_05_an_inactive_store_clears_the_shadow() -> None:
    k = kernel_of("double* x, double* out", "double s = x[i]; x[i] = 2; out[i] = s * x[i];")
    x, dx, dout = np.linspace(1, 2, 64), np.full(64, 7.0), ones(64)
    differentiate(k, [Duplicated(x, dx), Duplicated(np.zeros(64), dout)])
    same(dx, np.full(64, 2.0))
    same(dout, np.zeros(64))


def test_case_06_partial_overwrite() -> None:
    k = kernel_of("double* x, double* out, int n", "x[0] = 2; double t = 0; for (int j = 0; j < n; ++j) t += x[j]; out[0] = t;")
    x, dx = np.linspace(1, 2, 9), np.arange(10.0, 19)
    differentiate(k, [Duplicated(x, dx), Duplicated(np.zeros(1), ones(1)), 9], 1, 1)
    same(dx, [0, *(np.arange(11.0, 19) + 1)])


def test_case_07_product_with_both_active() -> None:
    k = kernel_of("double* x, const double* w", "x[i] *= w[i];")
    old, w, dx, dw = np.linspace(1, 2, 64), np.linspace(2, 5, 64), np.linspace(-1, 1, 64), np.full(64, 4.0)
    differentiate(k, [Duplicated(old.copy(), dx), Duplicated(w, dw)])
    same(dx, w * np.linspace(-1, 1, 64))
    same(dw, 4 + old * np.linspace(-1, 1, 64))
    assert saved(k, x=Duplicated, w=Duplicated) == ["x"]
    assert saved(k, x=Duplicated) == []


def test_case_08_result_and_increment_in_one_kernel() -> None:
    k = kernel_of("double* x, double* y", "y[i] = x[i] * x[i]; x[i] += 1;")
    old, dx, dy = np.linspace(1, 2, 64), np.full(64, 5.0), ones(64)
    differentiate(k, [Duplicated(old.copy(), dx), Duplicated(np.zeros(64), dy)])
    same(dx, 5 + 2 * old)
    same(dy, np.zeros(64))


def test_case_08_increment_by_the_square() -> None:
    k = kernel_of("double* x", "x[i] += x[i] * x[i];")
    old, dx = np.linspace(1, 2, 64), ones(64)
    differentiate(k, [Duplicated(old.copy(), dx)])
    same(dx, 1 + 2 * old)


def test_case_08_three_times_sin() -> None:
    k = kernel_of("double* x", "for (int t = 0; t < 3; ++t) x[i] = sin(x[i]);")
    old, dx = np.linspace(-1, 1, 64), ones(64)
    differentiate(k, [Duplicated(old.copy(), dx)])
    same(dx, np.cos(old) * np.cos(np.sin(old)) * np.cos(np.sin(np.sin(old))))


def test_case_09_swap() -> None:
    k = kernel_of("double* x, double* y", "double t = x[i]; x[i] = y[i]; y[i] = t;")
    dx, dy = np.linspace(1, 2, 64), np.linspace(5, 7, 64)
    differentiate(k, [Duplicated(ones(64), dx), Duplicated(np.zeros(64), dy)])
    same(dx, np.linspace(5, 7, 64))
    same(dy, np.linspace(1, 2, 64))
    assert saved(k, x=Duplicated, y=Duplicated) == []


@pytest.mark.parametrize("length", [0, 1, 7])
def test_case_10_product_of_dynamic_length(length: int) -> None:
    k = kernel_of("const double* x, double* p, int n", "double q = 1; for (int j = 0; j < n; ++j) q *= x[j]; p[0] = q;")
    x, dx = np.linspace(0.5, 2, 8), np.zeros(8)
    differentiate(k, [Duplicated(x, dx), Duplicated(np.zeros(1), ones(1)), length], 1, 1)
    same(dx, [np.prod(np.delete(x[:length], j)) if j < length else 0 for j in range(8)])


@pytest.mark.parametrize("length", [0, 5])
def test_case_10_bound_read_from_memory(length: int) -> None:
    k = kernel_of("const double* x, double* p, const int* n", "double q = 1; for (int j = 0; j < n[0]; ++j) q *= x[j]; p[0] = q;")
    x, dx = np.linspace(0.5, 2, 8), np.zeros(8)
    differentiate(k, [Duplicated(x, dx), Duplicated(np.zeros(1), ones(1)), np.array([length], np.int32)], 1, 1)
    same(dx, [np.prod(np.delete(x[:length], j)) if j < length else 0 for j in range(8)])


def test_case_11_the_index_is_recomputed_the_value_saved() -> None:
    k = kernel_of("double* x", "for (int t = 0; t < 20; ++t) x[t % 2] = x[t % 2] * x[t % 2];")
    old, dx = array([1.001, 0.999]), ones(2)
    differentiate(k, [Duplicated(old.copy(), dx)], 1, 1)
    same(dx, 1024 * old**1023, 1e-11)
    stacks = [row for row in k.adjoint(x=Duplicated).explain().rows if row.topic == "stack"]
    assert len(stacks) == 1, stacks


def test_case_12_insertion_sort() -> None:
    body = """for (int a = 1; a < n; ++a) {
        double key = x[a]; int b = a - 1;
        while (b >= 0 && x[b] > key) { x[b + 1] = x[b]; --b; }
        x[b + 1] = key;
    }
    double s = 0; for (int a = 0; a < n / 2; ++a) s += x[a]; out[0] = s;"""
    k = kernel_of("double* x, double* out, int n", body)
    old = np.random.default_rng(1).permutation(16) + 0.5
    x, dx = old.copy(), np.zeros(16)
    differentiate(k, [Duplicated(x, dx), Duplicated(np.zeros(1), ones(1)), 16], 1, 1)
    same(x, np.sort(old))
    same(dx, old < 8)


def test_case_13_a_local_array_rebuilt_in_each_iteration() -> None:
    body = """double r = 0; double tmp[3];
    for (int a = 0; a < n; ++a) {
        for (int j = 0; j < 3; ++j) tmp[j] = a * (j + 1) * (j + 1);
        for (int j = 0; j < 3; ++j) r += tmp[j] * x[a];
    }
    out[0] = r;"""
    k = kernel_of("const double* x, double* out, int n", body)
    dx = np.zeros(10)
    differentiate(k, [Duplicated(np.linspace(1, 2, 10), dx), Duplicated(np.zeros(1), ones(1)), 10], 1, 1)
    same(dx, 14 * np.arange(10))
    assert saved(k, x=Duplicated, out=Duplicated) == []


def test_case_13_the_same_in_memory() -> None:
    body = """double r = 0;
    for (int a = 0; a < n; ++a) {
        for (int j = 0; j < 3; ++j) tmp[j] = a * (j + 1) * (j + 1);
        for (int j = 0; j < 3; ++j) r += tmp[j] * x[a];
    }
    out[0] = r;"""
    k = kernel_of("const double* x, double* tmp, double* out, int n", body)
    dx, tmp = np.zeros(10), np.full(3, np.nan)
    differentiate(k, [Duplicated(np.linspace(1, 2, 10), dx), tmp, Duplicated(np.zeros(1), ones(1)), 10], 1, 1)
    same(dx, 14 * np.arange(10))
    same(tmp, [9, 36, 81])


# --- case 17: matrix product with scalars ----------------------------------------------------------------------------------------------

GEMM = (
    "double alpha, double beta, const double* A, const double* B, double* C, int m, int n, int inner",
    """if (i >= m * n) return;
    double s = 0; for (int t = 0; t < inner; ++t) s += A[i / n * inner + t] * B[t * n + i % n];
    C[i] = beta == 0.0 ? alpha * s : alpha * s + beta * C[i];""",
)


def test_case_17_gemm() -> None:
    k = kernel_of(*GEMM)
    dalpha, dbeta, dA, dB, dC = np.zeros(()), np.zeros(()), np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1))
    arrays = [Duplicated(array([[v]]), d) for v, d in ((3, dA), (4, dB), (7, dC))]
    differentiate(k, [Active(2.0, dalpha), Active(0.5, dbeta), *arrays, 1, 1, 1])
    same([dalpha, dbeta, dA.item(), dB.item(), dC.item()], [12, 7, 8, 6, 0.5])
    both = {name: Duplicated for name in "ABC"}
    assert "C" in saved(k, beta=Active, **both)
    assert "C" not in saved(k, alpha=Active, **both)
    assert saved(k, **both) == []


def test_case_17_gemm_of_matrices() -> None:
    k = kernel_of(*GEMM)
    rng = np.random.default_rng(2)
    A, B, C, seed = rng.normal(size=(5, 4)), rng.normal(size=(4, 3)), rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    dalpha, dbeta, dA, dB, dC = np.zeros(()), np.zeros(()), np.zeros((5, 4)), np.zeros((4, 3)), seed.copy()
    args = [Duplicated(A, dA), Duplicated(B, dB), Duplicated(C.copy(), dC)]
    differentiate(k, [Active(2.0, dalpha), Active(0.5, dbeta), *args, 5, 3, 4])
    same(dalpha, np.vdot(seed, A @ B))
    same(dbeta, np.vdot(seed, C))
    same(dA, 2 * seed @ B.T)
    same(dB, 2 * A.T @ seed)
    same(dC, 0.5 * seed)


def test_case_17_nan_in_c_is_harmless_for_beta_0() -> None:
    k = kernel_of(*GEMM)
    dbeta, dA, dB, dC = np.zeros(()), np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1))
    C = np.full((1, 1), np.nan)
    args = [Duplicated(array([[3]]), dA), Duplicated(array([[4]]), dB), Duplicated(C, dC)]
    differentiate(k, [2.0, Active(0.0, dbeta), *args, 1, 1, 1])
    same([C.item(), dA.item(), dB.item(), dC.item()], [24, 8, 6, 0])


# --- aliasing --------------------------------------------------------------------------------------------------------------------------

PRODUCT = "const double* x, const double* y, double* z, int n", "if (i < n) z[i] = x[i] * y[i];"


def test_case_22_one_array_as_two_arguments() -> None:
    x, dx, dz = np.linspace(1, 2, 64), np.full(64, 3.0), np.linspace(0, 1, 64)
    pair = Duplicated(x, dx)
    differentiate(kernel_of(*PRODUCT), [pair, pair, Duplicated(np.zeros(64), dz), 64])
    same(dx, 3 + 2 * x * np.linspace(0, 1, 64))


def refused(args: Sequence[Any], watched: Sequence[Any], k: Any = None, error: type[GpuadError] = ShadowError) -> str:
    """Asserts that the launch is refused and no array written; gives the message."""
    before = [a.copy() for a in watched]
    with pytest.raises(error) as caught:
        differentiate(k or kernel_of(*PRODUCT), args)
    for a, b in zip(watched, before, strict=True):
        np.testing.assert_array_equal(a, b)
    return str(caught.value)


def test_case_22_two_shadows_for_one_primal() -> None:
    x, d1, d2, z, dz = ones(64), ones(64), ones(64), np.zeros(64), ones(64)
    refused([Duplicated(x, d1), Duplicated(x, d2), Duplicated(z, dz), 64], [x, d1, d2, z, dz])


def test_case_22_one_shadow_for_two_primals() -> None:
    x, y, d, z, dz = ones(64), np.full(64, 2.0), ones(64), np.zeros(64), ones(64)
    refused([Duplicated(x, d), Duplicated(y, d), Duplicated(z, dz), 64], [x, y, d, z, dz])


def bad_shadows(x: Any, y: Any) -> dict[str, Any]:
    whole = np.zeros(128)
    return {
        "itself": x,
        "overlaps another primal": y.base[32:96],
        "shape": np.zeros(63),
        "dtype": np.zeros(64, np.float32),
        "integers": np.zeros(64, np.int64),
        "strides": whole[::2],
        "reversed": np.zeros(64)[::-1],
    }


@pytest.mark.parametrize("which", bad_shadows(ones(64), ones(128)[:64]))
def test_case_23_shadows_that_do_not_fit(which: str) -> None:
    base = np.linspace(0, 1, 128)
    x, y, z, dz = np.linspace(1, 2, 64), base[:64], np.zeros(64), ones(64)
    shadow = bad_shadows(x, y)[which]
    message = refused([Duplicated(x, shadow), y, Duplicated(z, dz), 64], [x, base, z, dz, shadow])
    assert "`x`" in message or "x`" in message
    assert "Nothing was launched" in message


def test_case_24_partial_overlap() -> None:
    u, du, dy = np.linspace(1, 2, 65), np.full(65, 0.5), np.linspace(1, 3, 64)
    U = Duplicated(u, du)
    differentiate(kernel_of(*PRODUCT), [U[:-1], U[1:], Duplicated(np.zeros(64), dy), 64], 4, 16)
    expected = np.full(65, 0.5)
    expected[:-1] += u[1:] * np.linspace(1, 3, 64)
    expected[1:] += u[:-1] * np.linspace(1, 3, 64)
    same(du, expected)


def test_case_24_shadows_not_alike() -> None:
    u, d1, d2, z, dz = ones(65), np.zeros(64), np.zeros(64), np.zeros(64), ones(64)
    refused([Duplicated(u[:-1], d1), Duplicated(u[1:], d2), Duplicated(z, dz), 64], [u, d1, d2, z, dz])


# --- scatter and gather ----------------------------------------------------------------------------------------------------------------


def test_case_25_gather() -> None:
    k = kernel_of("const double* x, const int* idx, double* y, int n", "if (i < n) y[i] = x[idx[i]];")
    dx, dy = np.zeros(8), array([1, 2, 3])
    differentiate(k, [Duplicated(np.arange(8.0), dx), np.array([3, 5, 3], np.int32), Duplicated(np.zeros(3), dy), 3])
    same(dx, [0, 0, 0, 4, 0, 2, 0, 0])
    same(dy, np.zeros(3))


def test_case_26_scatter_with_atomic_add() -> None:
    k = kernel_of("const double* v, const int* idx, double* y, int n", "if (i < n) atomicAdd(&y[idx[i]], v[i]);")
    y, dv, dy = np.arange(8.0), np.zeros(3), np.arange(10.0, 18)
    differentiate(k, [Duplicated(array([1, 2, 4]), dv), np.array([3, 5, 3], np.int32), Duplicated(y, dy), 3])
    same(y, [0, 1, 2, 8, 4, 7, 6, 7])
    same(dv, [13, 15, 13])
    same(dy, np.arange(10.0, 18))


COMPACT = (
    "const double* x, double* out, int* counter, int n",
    "if (i < n && x[i] > 0.5) { int pos = atomicAdd(counter, 1); out[pos] = x[i] * x[i]; }",
)


def test_case_26_an_inactive_result_is_recorded() -> None:
    x, dx, counter = np.random.default_rng(3).random(64), np.zeros(64), np.zeros(1, np.int32)
    out, dout = np.zeros(64), np.random.default_rng(4).random(64)
    seed = dout.copy()
    differentiate(kernel_of(*COMPACT), [Duplicated(x, dx), Duplicated(out, dout), counter, 64], 4, 16)
    count = int((x > 0.5).sum())
    assert counter[0] == count
    slots = {value: slot for slot, value in enumerate(out[:count])}
    same(dx, [2 * v * seed[slots[v * v]] if v > 0.5 else 0 for v in x])
    same(dout, [0] * count + list(seed[count:]))


def test_case_26_an_active_result_is_refused() -> None:
    k = kernel_of("const double* x, double* sum, double* y, int n", "if (i < n) y[i] = atomicAdd(sum, x[i]);")
    x, s, y, dx, ds, dy = ones(8), np.zeros(1), np.zeros(8), np.zeros(8), ones(1), ones(8)
    args = [Duplicated(x, dx), Duplicated(s, ds), Duplicated(y, dy), 8]
    message = refused(args, [x, s, y, dx, ds, dy], k, UnsupportedError)
    assert "<source>:4:" in message


def right_or_refused(k: Any, args: Sequence[Any], watched: Sequence[Any]) -> bool:
    """Whether the launch was made; if it was refused, asserts that the message has the place and that no array was written."""
    before = [a.copy() for a in watched]
    try:
        differentiate(k, args, 4, 16)
    except UnsupportedError as error:
        assert str(error).startswith("<source>:4:"), error
        for a, b in zip(watched, before, strict=True):
            np.testing.assert_array_equal(a, b)
        return False
    return True


@pytest.mark.parametrize("name", ["atomicMax", "atomicMin"])
def test_case_26_a_maximum_of_active_values_by_their_bits(name: str) -> None:
    body = f"if (i < n) {name}((int*)best, __float_as_int(x[i]));"
    x, dx = (np.random.default_rng(5).permutation(64) + 0.25).astype(np.float32), np.zeros(64, np.float32)
    best, dbest = np.array([0.125 if name == "atomicMax" else 100.0], np.float32), np.array([3.0], np.float32)
    before = [a.copy() for a in (x, dx, best, dbest)]
    try:  # making the kernel may be refused already
        k = kernel_of("const float* x, float* best, int n", body)
        differentiate(k, [Duplicated(x, dx), Duplicated(best, dbest), 64], 4, 16)
    except UnsupportedError as error:
        assert str(error).startswith("<source>:4:"), error
        for a, b in zip((x, dx, best, dbest), before, strict=True):
            np.testing.assert_array_equal(a, b)
        return
    winner = x.argmax() if name == "atomicMax" else x.argmin()
    same(dx, [3.0 if j == winner else 0.0 for j in range(64)])
    same(dbest, [0])


@pytest.mark.parametrize("name", ["atomicMax", "atomicMin", "atomicExch"])
def test_case_26_the_old_value_of_an_integer_is_recorded(name: str) -> None:
    body = f"if (i < n) {{ int old = {name}(best, key[i]); y[i] = x[i] * (old + 1); }}"
    k = kernel_of("const int* key, int* best, const double* x, double* y, int n", body)
    key, best = np.random.default_rng(5).permutation(64).astype(np.int32), np.array([20], np.int32)
    x, y, dx = np.linspace(1, 2, 64), np.zeros(64), np.zeros(64)
    if right_or_refused(k, [key, best, Duplicated(x, dx), Duplicated(y, ones(64)), 64], [best, y, dx]):
        same(dx, y / x)
        assert best[0] == {"atomicMax": 63, "atomicMin": 0}.get(name, best[0])


def test_case_26_a_lock_by_compare_and_swap() -> None:
    body = "if (i < n) { int old = atomicCAS(first, 0, i + 1); y[i] = x[i] * (old + 1); }"
    k = kernel_of("int* first, const double* x, double* y, int n", body)
    first, x, y, dx = np.zeros(1, np.int32), np.linspace(1, 2, 64), np.zeros(64), np.zeros(64)
    if right_or_refused(k, [first, Duplicated(x, dx), Duplicated(y, ones(64)), 64], [first, y, dx]):
        same(dx, y / x)
        assert (y == x).sum() == 1


ADD_BY_SWAP = """if (i < n) {
        unsigned long long* at = (unsigned long long*)sum; unsigned long long old = *at, assumed;
        do {
            assumed = old;
            old = atomicCAS(at, assumed, __double_as_longlong(x[i] * x[i] + __longlong_as_double(assumed)));
        } while (assumed != old);
    }"""


def test_case_26_addition_by_compare_and_swap() -> None:
    x, total, dx, dtotal = np.linspace(1, 2, 64), np.zeros(1), np.zeros(64), ones(1)
    try:
        k = kernel_of("const double* x, double* sum, int n", ADD_BY_SWAP)
        differentiate(k, [Duplicated(x, dx), Duplicated(total, dtotal), 64], 4, 16)
    except UnsupportedError as error:
        assert str(error).startswith("<source>:"), error
        assert not total.any()
        assert not dx.any()
        return
    same(total, [x @ x])
    same(dx, 2 * x)
    same(dtotal, [1])


def test_case_27_scalar_of_all_threads() -> None:
    k = kernel_of("double a, const double* x, double* y, int n", "if (i < n) y[i] = a * x[i];")
    da, dy = np.zeros(()), ones(64)
    differentiate(k, [Active(2.0, da), np.arange(1.0, 65), Duplicated(np.zeros(64), dy), 64], 3, 32)
    same(da, 2080)
    same(dy, np.zeros(64))


# --- empty things ------------------------------------------------------------------------------------------------------------------------


def test_case_36_arrays_without_elements() -> None:
    x, z = np.zeros(0), np.zeros(0)
    differentiate(kernel_of(*PRODUCT), [Duplicated(x, np.zeros(0)), Duplicated(x.copy(), np.zeros(0)), Duplicated(z, np.zeros(0)), 0])


def test_case_36_loops_without_iterations() -> None:
    k = kernel_of("double* x, int n, double a", "for (int t = 0; t < n; ++t) x[i] = a * sin(x[i]);")
    old, dx, da = np.linspace(1, 2, 64), np.linspace(3, 4, 64), np.zeros(())
    x = old.copy()
    differentiate(k, [Duplicated(x, dx), 0, Active(2.0, da)])
    same(x, old)
    same(dx, np.linspace(3, 4, 64))
    same(da, 0)


# --- modes -------------------------------------------------------------------------------------------------------------------------------


def test_case_37_two_shadows_at_once() -> None:
    k = kernel_of("double a, const double* x, double* y", "y[i] = a * x[i] * x[i];")
    x, da = np.linspace(1, 2, 64), array([100, 200])
    dx, dy = (np.full(64, 5.0), np.full(64, 7.0)), (ones(64), np.full(64, 3.0))
    differentiate(k, [Active(2.0, da), BatchDuplicated(x, dx), BatchDuplicated(np.zeros(64), dy)])
    same(dx[0], 5 + 4 * x)
    same(dx[1], 7 + 12 * x)
    same(da, [100 + x @ x, 200 + 3 * x @ x])
    same(dy, np.zeros((2, 64)))


def test_case_37_two_shadows_of_what_is_overwritten() -> None:
    k = kernel_of("double* x", "for (int t = 0; t < 5; ++t) x[i] = sin(x[i]);")
    old, single, pair = np.linspace(1, 2, 64), ones(64), (ones(64), np.full(64, 3.0))
    differentiate(k, [Duplicated(old.copy(), single)])
    differentiate(k, [BatchDuplicated(old.copy(), pair)])
    same(pair, (single, 3 * single))


def test_case_38_a_result_that_is_not_wanted() -> None:
    k = kernel_of(*PRODUCT)
    x, dx, dz = np.linspace(1, 2, 64), np.zeros(64), ones(64)
    differentiate(k, [Duplicated(x, dx), Const(np.full(64, 3.0)), DuplicatedNoNeed(np.zeros(64), dz), 64])
    same(dx, np.full(64, 3.0))
    same(dz, np.zeros(64))


def test_case_39_hessian_vector_product() -> None:
    """x <- x^2 under the loss <w, x>: the Hessian is 2 diag(w)."""
    k = kernel_of(*SQUARE)
    old, w, v = np.arange(1.0, 65), np.linspace(1, 2, 64), np.linspace(-1, 1, 64)
    x, dx, x_dot, dx_dot = old.copy(), w.copy(), v.copy(), np.zeros(64)
    gpuad.hvp(k, 1, 64, (Duplicated(x, dx),), (Duplicated(x_dot, dx_dot),))
    same(x, old**2)
    same(dx, 2 * old * w)
    same(x_dot, 2 * old * v)
    same(dx_dot, 2 * w * v)


def test_case_39_of_a_kernel_with_state() -> None:
    """Against central differences of the gradient: a stack in the kernel, a scalar, an input that is overwritten and one that is read."""
    k = kernel_of("double* x, const double* y, double a, int n", "for (int t = 0; t < n; ++t) x[i] = sin(a * x[i]) * y[i] + x[i];")
    rng = np.random.default_rng(11)
    x, y, w, x_dot, y_dot = (rng.normal(size=64) for _ in range(5))
    a, a_dot = 1.3, 0.7

    def gradient(step: float) -> tuple[Any, Any, Any]:
        dx, dy, da = w.copy(), np.zeros(64), np.zeros(())
        differentiate(k, [Duplicated(x + step * x_dot, dx), Duplicated(y + step * y_dot, dy), Active(a + step * a_dot, da), 5])
        return dx, dy, da

    pairs = [Duplicated(x.copy(), w.copy()), Duplicated(y, np.zeros(64)), Active(a, np.zeros(())), 5]
    dots = [Duplicated(x_dot.copy(), np.zeros(64)), Duplicated(y_dot, np.zeros(64)), Active(a_dot, np.zeros(())), None]
    gpuad.hvp(k, 1, 64, pairs, dots)
    wide, narrow = ([(p - m) / (2 * h) for p, m in zip(gradient(h), gradient(-h), strict=True)] for h in (2e-4, 1e-4))
    for pair, dot, d1, d2, first in zip(pairs, dots, wide, narrow, gradient(0), strict=False):
        same(pair.shadow, first)
        np.testing.assert_allclose(dot.shadow, d2 + (d2 - d1) / 3, rtol=1e-6, atol=1e-6)


def test_case_40_called_twice_without_clearing() -> None:
    k = kernel_of(*PRODUCT)
    x, dx, z, dz = np.linspace(1, 2, 64), np.zeros(64), np.zeros(64), np.zeros(64)
    for _ in range(2):
        dz.fill(1)
        differentiate(k, [Duplicated(x, dx), np.full(64, 3.0), Duplicated(z, dz), 64])
        same(dz, np.zeros(64))
    same(dx, np.full(64, 6.0))


# --- where simpler rules break -----------------------------------------------------------------------------------------------------------


def test_case_41_masked_overwrite_after_a_read() -> None:
    k = kernel_of("const int* mask, const double* a, double* x, double* y", "y[i] = x[i] * x[i]; if (mask[i]) x[i] = a[i] * x[i];")
    rng = np.random.default_rng(6)
    mask, a, old, prior, seed = rng.integers(0, 2, 64).astype(np.int32), rng.random(64), rng.random(64), rng.random(64), rng.random(64)
    da, dx, dy = np.zeros(64), prior.copy(), seed.copy()
    differentiate(k, [mask, Duplicated(a, da), Duplicated(old.copy(), dx), Duplicated(np.zeros(64), dy)])
    same(dx, np.where(mask, a * prior, prior) + 2 * old * seed)
    same(da, np.where(mask, old * prior, 0))


SCATTER = "const double* v, const int* idx, double* out, int n", "if (i < n) out[idx[i]] = v[i];"


def test_case_43_stores_to_one_element_are_refused() -> None:
    v, out, dv, dout = array([1, 2, 3]), np.zeros(8), np.zeros(3), ones(8)
    args = [Duplicated(v, dv), np.array([3, 5, 3], np.int32), Duplicated(out, dout), 3]
    message = refused(args, [v, out, dv, dout], kernel_of(*SCATTER), GpuadError)
    assert "`out`" in message


def test_case_43_unique_indices() -> None:
    dv, dout = np.zeros(3), np.arange(8.0)
    differentiate(kernel_of(*SCATTER), [Duplicated(ones(3), dv), np.array([3, 5, 1], np.int32), Duplicated(np.zeros(8), dout), 3])
    same(dv, [3, 5, 1])
    same(dout, [0, 0, 2, 0, 4, 0, 6, 7])


def test_case_43_one_value_stored_by_all_threads() -> None:
    k = kernel_of("const double* a, const double* b, double* m", "m[0] = a[0] * b[0];")
    m, da, db, dm = np.zeros(1), np.zeros(1), np.zeros(1), ones(1)
    differentiate(k, [Duplicated(array([5]), da), Duplicated(array([3]), db), Duplicated(m, dm)], 4, 64)
    same([m[0], da[0], db[0], dm[0]], [15, 3, 5, 0])


def test_case_43_one_value_of_scalars_stored_by_all_threads() -> None:
    k = kernel_of("double a, double b, double* m", "m[0] = a * b;")
    da, db, dm = np.zeros(()), np.zeros(()), ones(1)
    differentiate(k, [Active(5.0, da), Active(3.0, db), Duplicated(np.zeros(1), dm)], 4, 64)
    same([da, db, dm[0]], [3, 5, 0])


@pytest.mark.parametrize("block", [8, 256])
def test_case_44_two_reads_of_one_memory_in_many_blocks(block: int) -> None:
    count = 4000
    u, du, seed = np.random.default_rng(7).random(count + 1), np.zeros(count + 1), np.random.default_rng(8).random(count)
    U = Duplicated(u, du)
    differentiate(kernel_of(*PRODUCT), [U[:-1], U[1:], Duplicated(np.zeros(count), seed.copy()), count], -(-count // block), block)
    expected = np.zeros(count + 1)
    expected[:-1] += u[1:] * seed
    expected[1:] += u[:-1] * seed
    same(du, expected)


LEFT = "const double* p, double* q, int n", "if (i < n) q[i] = p[i] * p[i - 1];"


def test_case_46_a_read_outside_of_the_view() -> None:
    u, du, seed = np.linspace(1, 2, 66), np.zeros(66), np.linspace(0, 1, 64)
    differentiate(kernel_of(*LEFT), [Duplicated(u, du)[1:-1], Duplicated(np.zeros(64), seed.copy()), 64])
    expected = np.zeros(66)
    expected[1:-1] += u[:-2] * seed
    expected[:-2] += u[1:-1] * seed
    same(du, expected)


def test_case_46_a_shadow_without_the_room() -> None:
    u, du, q, dq = np.linspace(1, 2, 66), np.zeros(64), np.zeros(64), ones(64)
    message = refused([Duplicated(u[1:-1], du), Duplicated(q, dq), 64], [u, du, q, dq], kernel_of(*LEFT))
    assert "slice the pair" in message


def test_case_46_a_shadow_made_by_gpuad_has_the_room() -> None:
    u, seed = np.linspace(1, 2, 66), np.linspace(0, 1, 64)
    p = Duplicated(u[1:-1])
    differentiate(kernel_of(*LEFT), [p, Duplicated(np.zeros(64), seed.copy()), 64])
    expected = np.zeros(66)
    expected[1:-1] += u[:-2] * seed
    expected[:-2] += u[1:-1] * seed
    same(p.shadow, expected[1:-1])


def test_case_52_trip_count_on_a_knife_edge() -> None:
    body = """if (i >= n) return;
    double t = a[i] * b[i], y = x[i]; int k = 0;
    while (k < 9 && t - c[k * n + i] > 0) { y = y * y * t; t = t * 0.75; ++k; }
    x[i] = y; trips[i] = k;"""
    k = kernel_of("const double* a, const double* b, const double* c, double* x, int* trips, int n", body)
    rng, n = np.random.default_rng(9), 4096
    a, b, x = rng.random(n) + 0.5, rng.random(n) + 0.5, rng.random(n) + 0.5
    t, c = a * b, np.zeros((9, n))
    for row in range(9):  # half of them are the rounded t: the difference is 0, or not, if the product and the difference are fused
        c[row] = np.where(rng.random(n) < 0.5, t, 0)
        t = t * 0.75
    old, trips, dx, da = x.copy(), np.zeros(n, np.int32), ones(n), np.zeros(n)
    differentiate(k, [Duplicated(a, da), b, c, Duplicated(x, dx), trips, n], 32, 128)
    value, slope, t = old.copy(), ones(n), a * b
    for row in range(9):
        on = trips > row
        slope = np.where(on, slope * 2 * value * t, slope)
        value = np.where(on, value * value * t, value)
        t = t * 0.75
    same(x, value, 1e-9)
    same(dx, slope, 1e-9)
    assert {0, 1, 2} <= set(trips.tolist())


def test_case_52_newton_in_place_until_it_no_longer_moves() -> None:
    """What the counting kernel stores must not be what the reverse reads."""
    body = "if (i >= n) return; double a = x[i], r = a; while (fabs(r * r - a) > 1e-14 * a) r = 0.5 * (r + a / r); x[i] = r;"
    x, dx = np.linspace(2, 9, 64), ones(64)
    differentiate(kernel_of("double* x, int n", body), [Duplicated(x, dx), 64])
    same(x, np.sqrt(np.linspace(2, 9, 64)))
    same(dx, 0.5 / np.sqrt(np.linspace(2, 9, 64)))


def test_case_52_steps_until_a_sum_is_reached() -> None:
    """The loop's condition, its bound and its state all lie in memory that the kernel overwrites."""
    body = """if (i >= n) return;
    while (sum[i] < bound[i]) { sum[i] += x[i]; x[i] = x[i] * x[i] + 0.25; bound[i] -= 0.01; }
    out[i] = x[i] * sum[i];"""
    k = kernel_of("double* sum, double* bound, double* x, double* out, int n", body)
    rng = np.random.default_rng(12)
    arrays = [rng.random(64), 2 + 3 * rng.random(64), 0.6 + 0.3 * rng.random(64), np.zeros(64)]
    check_gradient(k, [*(Duplicated(a) for a in arrays), 64], grid=2, block=32, directions=2)


def test_case_53_scratch_near_the_sum_of_the_lengths(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """if (i >= rows) return;
    double y = x[i];
    for (int j = start[i]; j < start[i + 1]; ++j) y = sin(y) * w[j];
    x[i] = y;"""
    k = kernel_of("const int* start, const double* w, double* x, int rows", body)
    rng = np.random.default_rng(10)
    executor, made = EXECUTORS[way.split("-")[0]], []
    on_cpu = isinstance(executor, Host)
    lengths = rng.poisson(8, 512)
    lengths[100] = 5000 if on_cpu else 500
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    zeros = executor.zeros
    monkeypatch.setattr(executor, "zeros", lambda count, dtype: made.append(count * np.dtype(dtype).itemsize) or zeros(count, dtype))
    w, x = rng.random(lengths.sum()) + 0.5, rng.random(512)
    dw, dx = np.zeros_like(w), ones(512)
    differentiate(k, [start, Duplicated(w, dw), Duplicated(x.copy(), dx), 512], 8, 64)
    longest = lengths.reshape(-1, 32).max(axis=1)
    if on_cpu:
        assert sum(made) <= 8 * lengths.max()  # one row, that of the longest, serves all threads of a worker
    else:
        assert 8 * lengths.sum() <= sum(made) <= 2 * 8 * 32 * (longest.sum() + 1) + 64 * 512
        assert sum(made) < 8 * lengths.size * lengths.max() / 4
    y, slope = x[100], 1.0
    for j in range(start[100], start[101]):
        slope, y = slope * np.cos(y) * w[j], np.sin(y) * w[j]
    np.testing.assert_allclose(dx[100], slope, rtol=1e-9)
    check = [start, Duplicated(w[: start[40]]), Duplicated(x[:40].copy()), 40]
    check_gradient(k, check, grid=2, block=32, directions=1)


def test_case_54_a_read_past_the_end_that_is_not_used() -> None:
    k = kernel_of("const double* u, double* v, int n", "if (i >= n) return; double r = u[i + 1]; v[i] = i + 1 < n ? u[i] + r * r : u[i];")
    u, du, seed = np.linspace(1, 2, 65), np.zeros(65), np.linspace(1, 2, 64)
    u[64], du[64] = np.nan, 42
    v = np.zeros(64)
    differentiate(k, [Duplicated(u, du)[:-1], Duplicated(v, seed.copy()), 64])
    expected = np.zeros(64)
    expected += seed
    expected[1:] += 2 * u[1:64] * seed[:-1]
    same(du[:64], expected)
    assert du[64] == 42
    assert np.isfinite(v).all()


def test_case_54_without_room_behind_the_array() -> None:
    k = kernel_of("const double* u, double* v, int n", "if (i < n) v[i] = i + 1 < n ? u[i] + u[i + 1] : u[i];")
    du, seed = np.zeros(64), np.linspace(1, 2, 64)
    differentiate(k, [Duplicated(np.linspace(1, 2, 64), du), Duplicated(np.zeros(64), seed.copy()), 64])
    same(du, seed + np.concatenate([[0], seed[:-1]]))


def test_case_57_a_thunk_whose_argument_is_overwritten() -> None:
    k = kernel_of(*PRODUCT)
    augmented, reverse = gpuad.autodiff_thunk(k, x=Duplicated, y=Duplicated, z=Duplicated)
    x, y = np.linspace(1, 2, 64), np.linspace(2, 5, 64)
    old = x.copy(), y.copy()
    dx, dy, dz = np.zeros(64), np.zeros(64), ones(64)
    args = (Duplicated(x, dx), Duplicated(y, dy), Duplicated(np.zeros(64), dz), 64)
    kept = augmented(1, 64, args)
    x.fill(np.nan)
    y *= 2
    reverse(1, 64, args, kept)
    same(dx, old[1])
    same(dy, old[0])
    with pytest.raises(GpuadError, match="serves one reverse"):
        reverse(1, 64, args, kept)


def test_case_57_what_the_caller_promises_not_to_overwrite_is_not_copied() -> None:
    k = kernel_of(*PRODUCT)
    x, dx = np.linspace(1, 2, 64), np.zeros(64)
    sizes = []
    for kept in ((), ("x",), ("x", "y")):
        augmented, reverse = gpuad.autodiff_thunk(k, x=Duplicated, y=Duplicated, z=Duplicated, not_overwritten=kept)
        args = (Duplicated(x, dx), Duplicated(x + 1, np.zeros(64)), Duplicated(np.zeros(64), ones(64)), 64)
        saved_state = augmented(1, 64, args)
        sizes.append(saved_state.nbytes)
        reverse(1, 64, args, saved_state)
    same(dx, 3 * (x + 1))
    assert sizes == [1024, 512, 0]


def test_case_57_unknown_parameter() -> None:
    with pytest.raises(LaunchError, match="no parameter `w`"):
        gpuad.autodiff_thunk(kernel_of(*PRODUCT), x=Duplicated, z=Duplicated, not_overwritten=("w",))
