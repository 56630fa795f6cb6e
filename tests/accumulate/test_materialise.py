"""Threads that keep what their loops come to for those that collect: dense layers, windows with a normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, pairs, reverse
from launch_tools import compiled, running
from nightly import cases
from test_save import same_bits

import gpuad
from gpuad import Duplicated
from gpuad.testing import check_gradient

XY = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
DENSE = f"""extern "C" __global__ void k(const double* X, const double* W, double* Y, int n, int m, int d) {{
    {XY}
    if (x >= m || y >= n) return;
    double s = 0.1;
    for (int j = 0; j < d; j++) s += W[j * m + x] * X[y * d + j];
    Y[y * m + x] = VALUE;
}}"""
TANH, IN_PLACE = DENSE.replace("VALUE", "tanh(s)"), DENSE.replace("VALUE", "tanh(s + Y[y * m + x] * Y[y * m + x])")
RELU = DENSE.replace("Y[y * m + x] = VALUE;", "if (s > 0) Y[y * m + x] = s * s; else Y[y * m + x] = 0;")
WINDOW = f"""extern "C" __global__ void k(const double* u, double* v, double sharp, int radius, int w, int h) {{
    {XY}
    if (x < radius || y < radius || x >= w - radius || y >= h - radius) return;
    double sum = 0, total = 0;
    for (int q = -radius; q <= radius; q++)
        for (int p = -radius; p <= radius; p++) {{
            double other = u[(y + q) * w + x + p], apart = other - u[y * w + x];
            double weight = exp(-sharp * apart * apart);
            sum += weight * other;
            total += weight;
        }}
    v[y * w + x] = sum / total;
}}"""
LINE = """extern "C" __global__ void k(const double* u, double* v, int n, int r) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    BODY
}"""
SOFTMAX = LINE.replace(
    "BODY",
    """double total = 0, mean = 0;
    for (int k = 0; k <= r; k++) total += exp(u[i + k]);
    for (int k = 0; k <= r; k++) mean += exp(u[i + k]) / total * u[i + k] * u[i + k];
    v[i] = mean;""",
)


def dense(n: int = 6, m: int = 5, d: int = 7) -> tuple[Any, ...]:
    return *pairs(n, (n, d), (d, m), (n, m)), n, m, d


def window(w: int = 11, h: int = 9, radius: int = 2) -> tuple[Any, ...]:
    return *pairs(w, (h, w), (h, w)), 0.7, radius, w, h


def line(n: int = 20, r: int = 3) -> tuple[Any, ...]:
    return *pairs(n, n + r, n), n, r


def names(text: str, grid: Any, block: Any, args: tuple[Any, ...]) -> list[str]:
    with running("reference"):
        return [kernel.name for kernel in reverse(compiled(text, "k"), grid, block, args)]


ALL = ["k_partials", "k_gather", "k_reverse"]
BRANCH = LINE.replace(
    "BODY",
    """double s = 0, q = 0;
    for (int k = 0; k <= r; k++) s += u[i + k];
    for (int k = 0; k <= r; k++) q += u[i + k] * s;
    if (tanh(s) > 0.4) v[i] = fmax(s, 0.3) * tanh(q); else v[i] = 0.25 * q;""",
)
CASES = {
    "tanh": (TANH, dense, (3, 3), (2, 2)),
    "in place": (IN_PLACE, dense, (3, 3), (2, 2)),
    "relu": (RELU, dense, (3, 3), (2, 2)),
    "window": (WINDOW, window, (3, 3), (4, 3)),
    "softmax": (SOFTMAX, line, (5,), (4,)),
    "branch": (BRANCH, line, (5,), (4,)),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("case", CASES)
def test_it_gathers_without_atomics(case: str) -> None:
    text, make, grid, block = CASES[case]
    with running("reference"):
        kernels = reverse(compiled(text, "k"), grid, block, make())
    assert [kernel.name for kernel in kernels] == ALL and atomics(kernels) == 0
    agree(text, grid, block, make)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_derivative(case: str) -> None:
    text, make, grid, block = CASES[case]
    args = tuple(a.primal if isinstance(a, Duplicated) else a for a in make())
    check_gradient(compiled(text, "k"), args, grid=grid, block=block, race_check=True)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("seed", range(cases(14, 40)))
def test_any_geometry(seed: int) -> None:
    """Grids that cover, that do not, and that go far beyond; blocks of all shapes."""
    rng = np.random.default_rng(seed)
    blocks = [int(b) for b in rng.integers(1, 6, 2)]
    grid = [int(g) for g in rng.integers(1, 7, 2)]
    n, m, d = (int(k) for k in rng.integers(1, 12, 3))
    w, h = (int(k) for k in rng.integers(3, 16, 2))
    text, make = ((TANH, lambda: dense(n, m, d)), (WINDOW, lambda: window(w, h, 1)))[seed % 2]
    agree(text, tuple(grid), tuple(blocks), make, executors=["host"])


def test_the_text_reads_what_was_kept_and_says_so() -> None:
    text = compiled(TANH, "k").adjoint(grid=(3, 3), block=(2, 2), args=dense())
    source = str(text)
    assert "launch k_partials with the same grid and block, threads_x = 6. It fills ds_partial, an element for each thread" in source
    assert "ds_partial[y * threads_x + x] = ds;" in source and "atomicAdd" not in source
    reverse_ = source[source.index("void k_reverse") :]
    assert "for (" not in reverse_  # nothing is computed again
    (row,) = [row for row in text.explain().rows if row.topic == "partial"]
    assert (row.name, row.how) == ("ds_partial", "scratch")


def test_what_else_needs_the_numbers_reads_them_too() -> None:
    text = TANH.replace("int n, int m", "const double* b, const int* at, int n, int m").replace("s = 0.1", "s = b[at[x]]")

    def make() -> tuple[Any, ...]:
        X, W, Y, *rest = dense()
        return X, W, Y, *pairs(3, 4), np.array([0, 3, 3, 1, 0], np.int32), *rest

    source = str(compiled(text, "k").adjoint(grid=(3, 3), block=(2, 2), args=make()))
    assert "atomicAdd(&db[at_2], ds_partial[y * threads_x + x]);" in source
    agree(text, (3, 3), (2, 2), make)


# --- where nothing is kept -----------------------------------------------------------------------------------------------------------


def test_without_loops_neighbours_are_computed_again() -> None:
    assert names(LINE.replace("BODY", "v[i] = sin(u[i] * u[i + 1]);"), 5, 4, line()) == ["k_gather", "k_reverse"]


def test_not_where_threads_differ_in_what_the_kernel_does_not_look_at() -> None:
    """Two threads with one x would keep in one place; here that is no race, as both only add."""
    text = SOFTMAX.replace("v[i] = mean", "atomicAdd(&v[i], mean)")
    assert names(text, (5, 2), 4, line())[0] != "k_partials"
    agree(text, (5, 2), 4, line)
    assert names(text, 5, 4, line()) == ALL[:2]
    agree(text, 5, 4, line)


def test_not_more_than_a_few_numbers() -> None:
    sums = ["a", "b", "c", "d", "e"]
    loops = "".join(f"double {s} = 0; for (int k = 0; k <= r; k++) {s} += sin({j + 1} * u[i + k]);" for j, s in enumerate(sums))
    text = LINE.replace("BODY", f"{loops} v[i] = a * b * c * d * e;")
    assert "k_partials" not in names(text, 5, 4, line())
    agree(text, 5, 4, line)
    few = LINE.replace("BODY", f"{loops} v[i] = a * b * c * d;")
    assert names(few, 5, 4, line()) == ALL
    agree(few, 5, 4, line)


def test_not_more_than_the_size_of_what_is_added_to() -> None:
    """A million threads that all read the same few elements."""
    text = LINE.replace("BODY", "double s = 0; for (int k = 0; k < r; k++) s += sin(u[k]); v[i] = s * s;")
    n = 1 << 17
    args = (*pairs(1, 3, n), n, 3)
    assert "k_partials" not in names(text, n // 256, 256, args)


def test_not_what_was_written_to_before() -> None:
    """The seed of v is taken, and what takes its place is not that with which the launch began."""
    text = LINE.replace("BODY", "double s = 0; for (int k = 0; k <= r; k++) s += sin(u[i + k]); v[i] = s * v[i]; v[i] = sin(v[i]) * s;")
    agree(text, 5, 4, line)
    check_gradient(compiled(text, "k"), tuple(getattr(a, "primal", a) for a in line()), grid=5, block=4)


# --- the ways to call it -------------------------------------------------------------------------------------------------------------


def test_calls_after_the_first_make_room_of_their_own() -> None:
    """A call in the same words goes another way; it once wrote where the first call's room had been."""
    kernel, args = compiled(TANH, "k"), dense()
    found = []
    for _ in range(4):
        for a in args[:2]:
            a.shadow[...] = 0
        args[2].shadow[...] = 1
        gpuad.autodiff(kernel, (3, 3), (2, 2), args)
        found.append([np.array(a.shadow) for a in args[:2]])
    for again in found[1:]:
        for one, other in zip(found[0], again, strict=True):
            np.testing.assert_array_equal(one, other)


def test_checked_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_CHECK", "1")
    for text, make, grid, block in CASES.values():
        gradients(text, grid, block, make, executor="host")


def test_deterministic() -> None:
    text = TANH.replace("int n, int m", "double* b, int n, int m").replace("s = 0.1", "s = b[x]")

    def make() -> tuple[Any, ...]:
        X, W, Y, *rest = dense(40, 30, 9)
        return X, W, Y, *pairs(3, 30), *rest

    usual = gradients(text, (8, 10), (4, 4), make, executor="host")
    with gpuad.deterministic():
        first = gradients(text, (8, 10), (4, 4), make, executor="host")
        for _ in range(5):
            for one, other in zip(first, gradients(text, (8, 10), (4, 4), make, executor="host"), strict=True):
                np.testing.assert_array_equal(one, other)
    for one, other in zip(usual, first, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_several_shadows_at_once() -> None:
    rng = np.random.default_rng(1)
    X, W, Y, *rest = dense()
    seeds = [rng.normal(size=Y.primal.shape) for _ in range(3)]
    each = []
    for seed in seeds:
        args = (Duplicated(X.primal, np.zeros_like(X.primal)), gpuad.Const(W.primal), Duplicated(Y.primal.copy(), seed.copy()), *rest)
        gpuad.autodiff(compiled(TANH, "k"), (3, 3), (2, 2), args)
        each.append(args[0].shadow)
    together = tuple(np.zeros_like(X.primal) for _ in seeds)
    batch = (gpuad.BatchDuplicated(X.primal, together), W.primal, gpuad.BatchDuplicated(Y.primal, tuple(s.copy() for s in seeds)), *rest)
    gpuad.autodiff(compiled(TANH, "k"), (3, 3), (2, 2), batch)
    for one, other in zip(each, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.cpu
@pytest.mark.parametrize("restore", [False, True])
def test_in_a_program(tmp_path: Path, restore: bool) -> None:
    """Recorded, replayed, and stored to be run elsewhere; gradients by central differences."""
    kernel, n, m = compiled(IN_PLACE, "k"), 6, 5
    X, W, Y, *_ = dense(n, m, 7)
    for pair in (X, W, Y):
        pair.primal[...] *= 0.3
        pair.shadow[...] = 0
    start = Y.primal.copy()
    tape = gpuad.Tape(restore=restore)
    with tape:
        for _ in range(3):
            kernel[(3, 3), (2, 2)](X, W, Y, n, m, 7)
    weights = np.random.default_rng(5).normal(size=(n, m))
    same_bits(tmp_path, tape, {"X": X, "W": W, "Y": Y}, {}, {"Y": weights})

    def loss(delta: float) -> float:
        out = start.copy()
        moved = W.primal.copy()
        moved[2, 3] += delta
        for _ in range(3):
            kernel[(3, 3), (2, 2)](X.primal, moved, out, n, m, 7)
        return float((weights * out).sum())

    np.testing.assert_allclose(W.shadow[2, 3], (loss(1e-6) - loss(-1e-6)) / 2e-6, rtol=1e-6)


def test_as_a_graph() -> None:
    kernel, n, m = compiled(TANH, "k"), 6, 5
    X, W, Y, *_ = dense(n, m, 7)
    Z, V = pairs(3, (n, m), (m, m))
    tape = gpuad.Tape()
    with tape:
        kernel[(3, 3), (2, 2)](X, W, Y, n, m, 7)
        kernel[(3, 3), (2, 2)](Y, V, Z, n, m, m)
    seed = np.random.default_rng(5).normal(size=(n, m))
    for pair in (X, W, V, Y, Z):
        pair.shadow[...] = 0
    tape.reverse({Z: seed})
    expected = [p.shadow.copy() for p in (X, W, V)]
    graph = tape.graph({Z: seed})
    for pair in (X, W, V, Y, Z):
        pair.shadow[...] = 0
    graph.launch()
    for pair, right in zip((X, W, V), expected, strict=True):
        np.testing.assert_allclose(pair.shadow, right, rtol=1e-13)


def test_hessian_vector_products() -> None:
    kernel = compiled(TANH, "k")
    X, W, Y, *rest = dense()

    def gradient(shift: float) -> Any:
        args = (Duplicated(X.primal + shift * X.shadow, np.zeros_like(X.primal)), W.primal, Duplicated(Y.primal.copy(), Y.shadow.copy()))
        gpuad.autodiff(kernel, (3, 3), (2, 2), (*args, *rest))
        return args[0].shadow

    expected = (gradient(1e-6) - gradient(-1e-6)) / 2e-6
    x, y = (Duplicated(a.primal.copy(), s) for a, s in ((X, np.zeros_like(X.primal)), (Y, Y.shadow.copy())))
    directions = Duplicated(X.shadow, np.zeros_like(X.primal)), None, Duplicated(np.zeros_like(Y.primal), np.zeros_like(Y.primal))
    gpuad.hvp(kernel, (3, 3), (2, 2), (x, W.primal, y, *rest), (*directions, None, None, None))
    np.testing.assert_allclose(directions[0].shadow, expected, rtol=1e-5, atol=1e-8)
