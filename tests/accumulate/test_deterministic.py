"""Deterministic reverse passes: the same bits in every run, with one worker, two, and more, on executors that really add in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import cases

import gpuad
from gpuad import Active, BatchDuplicated, Duplicated, Kernel, LaunchError, UnsupportedError, pipeline
from gpuad.codegen.cuda import cuda_source
from gpuad.runtime import nvrtc
from gpuad.runtime.host import Host

WORKERS = {count: Host(count) for count in (1, 2, 4)}
N = 4096
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"

GATHER = f"""extern "C" __global__ void k(const float* x, const int* at, float* y, float a, int n) {{
    {HEAD}
    y[i] = a * x[at[i]] * x[(at[i] + i) % 7] + sinf(x[at[n - 1 - i]]);
}}"""
PLAIN = f"""extern "C" __global__ void k(double* x, const double* w, int n) {{ {HEAD} x[i] = sin(x[i]) * w[i]; }}"""


def gather(seed: int = 0) -> tuple[Any, ...]:
    r = np.random.default_rng(seed)
    x, at = r.normal(size=60).astype(np.float32), r.integers(0, 60, N).astype(np.int32)
    scales = 10.0 ** r.integers(-6, 6, N)  # so that the order of the additions shows
    y = Duplicated(np.zeros(N, np.float32), (r.normal(size=N) * scales).astype(np.float32))
    return Duplicated(x, np.zeros(60, np.float32)), at, y, Active(np.float32(0.7), np.zeros((), np.float64)), N


def gradients(make: Callable[[], tuple[Any, ...]], kernel: Kernel, host: Host, block: int = 32) -> bytes:
    args = make()
    with pipeline.executor_for_tests(host):
        gpuad.autodiff(kernel, -(-N // block), block, args)
    return b"".join(a.shadow.tobytes() for a in args if hasattr(a, "shadow"))


class Unordered(Host):
    """As a GPU, on which the threads of a block come in any order."""

    orders_blocks = False


class Noting(Host):
    """Keeps what it launches."""

    def __init__(self) -> None:
        super().__init__(2)
        self.launched: list[Any] = []

    def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
        self.launched.append(kernel)
        super().launch(kernel, *args, **keywords)


def test_a_hundred_runs_on_any_number_of_workers() -> None:
    """Scatter with duplicates, and a number that all threads share; without the mode two workers give many results."""
    kernel = gpuad.kernel(GATHER, "k")
    with gpuad.deterministic():
        assert len({gradients(gather, kernel, host) for host in (*WORKERS.values(), Host()) for _ in range(100)}) == 1


def test_sums_over_all_threads_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gpuad.kernel(f'extern "C" __global__ void k(const double* x, double* y, double a, int n) {{ {HEAD} y[i] += a * x[i]; }}', "k")
    r = np.random.default_rng(4)
    x, found = r.normal(size=1 << 17) * 10.0 ** r.integers(-8, 8, 1 << 17), set()
    for threads in (1, 2, 4):
        monkeypatch.setenv("GPUAD_THREADS", str(threads))
        for _ in range(10):
            da, y = np.zeros(()), Duplicated(np.zeros(x.size), np.ones(x.size))
            with gpuad.deterministic(), pipeline.executor_for_tests(Host()):
                gpuad.autodiff(kernel, x.size // 256, 256, (x, y, Active(0.5, da), x.size))
            found.add(da.item())
    assert found == {math.fsum(x)}


def test_without_the_mode_there_is_one_kernel() -> None:
    noting = Noting()
    gradients(gather, gpuad.kernel(GATHER, "k"), noting)
    assert [k.name for k in noting.launched] == ["k", "k_reverse"]


def test_what_is_summed_is_the_exact_sum_rounded_once() -> None:
    kernel = gpuad.kernel(
        f'extern "C" __global__ void k(const double* x, const int* at, double* y, int n) {{ {HEAD} y[i] = x[at[i]]; }}', "k"
    )
    r = np.random.default_rng(1)
    at, seed = r.integers(0, 5, N).astype(np.int32), r.normal(size=N) * 2.0 ** r.integers(-30, 30, N)
    x = Duplicated(np.zeros(5), np.zeros(5))
    with gpuad.deterministic(), pipeline.executor_for_tests(WORKERS[2]):
        gpuad.autodiff(kernel, 128, 32, (x, at, Duplicated(np.zeros(N), seed.copy()), N))
    exact = [math.fsum(seed[at == k]) for k in range(5)]
    np.testing.assert_allclose(x.shadow, exact, rtol=2**-51)


@pytest.mark.parametrize("exponent", [-1070, -1000, -300, 0, 300, 1000])
def test_magnitudes_of_every_size(exponent: int) -> None:
    kernel = gpuad.kernel(f'extern "C" __global__ void k(const double* x, double* y, int n) {{ {HEAD} y[i] = x[0]; }}', "k")
    seed = np.linspace(1, 2, 64) * 2.0**exponent
    x = Duplicated(np.zeros(3), np.full(3, 2.0**exponent))
    with gpuad.deterministic(), pipeline.executor_for_tests(WORKERS[2]):
        gpuad.autodiff(kernel, 2, 32, (x, Duplicated(np.zeros(64), seed.copy()), 64))
    expected = math.fsum([*seed, 2.0**exponent])
    assert abs(x.shadow[0] - expected) <= 2**-50 * expected + 5e-324 * 64
    assert x.shadow[1:].tolist() == [2.0**exponent] * 2


def test_views_stacks_and_batches() -> None:
    """A shadow that begins within its allocation, a data-dependent loop with a stack, two shadows at once."""
    text = f"""extern "C" __global__ void k(const double* x, const int* at, double* y, int n) {{
        {HEAD}
        double s = x[at[i]];
        for (int j = 0; j < at[i] % 4 + 1; j++) s = sin(s) * x[at[(i + j) % n]] + s;
        y[i] = s;
    }}"""
    kernel, r = gpuad.kernel(text, "k"), np.random.default_rng(2)
    at, seeds = r.integers(0, 50, N).astype(np.int32), r.normal(size=(2, N))

    def run(host: Host) -> Any:
        x, room = np.linspace(0, 1, 57), [np.zeros(57) for _ in range(2)]
        y = BatchDuplicated(np.zeros(N), tuple(s.copy() for s in seeds))
        with pipeline.executor_for_tests(host):
            gpuad.autodiff(kernel, 128, 32, (BatchDuplicated(x[5:55], tuple(d[5:55] for d in room)), at, y, N))
        return np.stack(room)

    with gpuad.deterministic():
        found = [run(WORKERS[4]) for _ in range(20)]
    assert len({f.tobytes() for f in found}) == 1
    np.testing.assert_allclose(found[0], run(WORKERS[1]), rtol=1e-10, atol=1e-12)
    assert not found[0][:, :5].any() and not found[0][:, 55:].any()


def test_nothing_changes_where_nobody_meets() -> None:
    kernel = gpuad.kernel(PLAIN, "k")

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(3)
        return Duplicated(r.normal(size=N), r.normal(size=N)), Duplicated(r.normal(size=N), np.zeros(N)), N

    with gpuad.deterministic():
        found = {gradients(make, kernel, host) for host in WORKERS.values()}
    assert found == {gradients(make, kernel, WORKERS[2])}


def test_a_contribution_that_is_not_finite() -> None:
    kernel = gpuad.kernel(f'extern "C" __global__ void k(const double* x, double* y, int n) {{ {HEAD} y[i] = x[0]; }}', "k")
    x, y = Duplicated(np.zeros(1), np.ones(1)), Duplicated(np.zeros(64), np.ones(64))
    y.shadow[5] = np.inf
    with gpuad.deterministic(), pipeline.executor_for_tests(WORKERS[2]), pytest.raises(LaunchError, match="contribution to `dx` is inf"):
        gpuad.autodiff(kernel, 2, 32, (x, y, 64))
    assert x.shadow.tolist() == [1.0] and y.shadow[4:7].tolist() == [1.0, np.inf, 1.0]


REFUSED = {
    "a sum in shared memory": (
        "__shared__ double s[4]; s[threadIdx.x % 4] = 0; __syncthreads(); double v = x[i]; __syncthreads();"
        "if (threadIdx.x < 4) s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[(threadIdx.x * v > 0) ? 1 : 2];",
        "shared memory here, in the order in which they come",
    ),
    "a shadow that is read after it was added to": (
        "x[at[i]] = y[i] * 2.0; __syncthreads(); y[i] = x[at[(i + 1) % n]];",
        "is read after other threads may have added to it",
    ),
    "one value stored by all": (
        "double v = sin(x[0]) * x[1]; y[at[0]] = v;",
        "threads may store one value to one element here, and the one that comes first takes its adjoint",
    ),
    "one value stored by some": (
        "y[at[i] / 2] = x[i / 2] * x[i / 2];",
        "threads may store one value to one element here, and the one that comes first takes its adjoint",
    ),
}


def test_stores_that_are_seen_to_be_of_one_thread_each() -> None:
    """Indices are data; what is stored tells the thread that has done it."""
    body = "y[at[i]] = sin(x[i]) * x[(i + 1) % n];"
    kernel = gpuad.kernel(f'extern "C" __global__ void k(const double* x, const int* at, double* y, int n) {{ {HEAD} {body} }}', "k")
    at = np.random.default_rng(8).permutation(N).astype(np.int32)

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(7)
        return Duplicated(r.normal(size=N), np.zeros(N)), at, Duplicated(np.zeros(N), r.normal(size=N)), N

    with gpuad.deterministic():
        assert len({gradients(make, kernel, host) for host in WORKERS.values() for _ in range(5)}) == 1
        at[3] = at[4]
        with pytest.raises(LaunchError, match="two threads write to one element"):
            gradients(make, kernel, WORKERS[2])


def recorded(host: Host, *, restore: bool = False) -> tuple[gpuad.Tape, Any, Any]:
    """A tape with three launches that scatter in reverse, its input and its output."""
    body = "y[i] = sin(x[at[i]]) * x[at[n - 1 - i]];"
    text = f'extern "C" __global__ void k(const double* x, const int* at, double* y, int n) {{ {HEAD} {body} }}'
    kernel, r = gpuad.kernel(text, "k"), np.random.default_rng(5)
    x, y, z = (Duplicated(r.normal(size=n)) for n in (40, N, N))
    few, many = r.integers(0, 40, N).astype(np.int32), r.integers(0, 99, N).astype(np.int32)
    tape = gpuad.Tape(restore=restore)
    with pipeline.executor_for_tests(host), tape:
        kernel[128, 32](x, few, y, N)
        kernel[128, 32](y, many, z, N)
        kernel[128, 32](z, many, y, N)
    return tape, x, y


def test_tapes() -> None:
    found = set()
    seed = np.random.default_rng(6).normal(size=N)
    for host in (*WORKERS.values(), Host()):
        for _ in range(cases(2, 5)):
            with gpuad.deterministic(), pipeline.executor_for_tests(host):
                tape, x, y = recorded(host)
                tape.reverse({y: seed})
            found.add(x.shadow.tobytes())
    assert len(found) == 1
    tape, x, y = recorded(WORKERS[1])
    with pipeline.executor_for_tests(WORKERS[1]):
        tape.reverse({y: seed})
    np.testing.assert_allclose(np.frombuffer(found.pop()), x.shadow, rtol=1e-9, atol=1e-9)


def test_a_stored_program_has_no_such_sums(tmp_path: Path) -> None:
    with gpuad.deterministic(), pipeline.executor_for_tests(WORKERS[2]):
        tape, _, _ = recorded(WORKERS[2])
        with pytest.raises(gpuad.TapeError, match="fixed point"):
            tape.save(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    kernel = gpuad.kernel(f'extern "C" __global__ void k(double* x, const int* at, double* y, int n) {{ {HEAD} {body} }}', "k")
    pairs = [Duplicated(np.ones(32), np.ones(32)) for _ in range(2)]
    args = (pairs[0], np.arange(32, dtype=np.int32), pairs[1], 32)
    with gpuad.deterministic(), pipeline.executor_for_tests(Unordered(2)), pytest.raises(UnsupportedError, match=message) as found:
        gpuad.autodiff(kernel, 1, 32, args)
    assert found.value.line == 1
    assert all((p.primal == 1).all() and (p.shadow == 1).all() for p in pairs)


def test_the_environment_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gpuad.kernel(GATHER, "k")
    monkeypatch.setenv("GPUAD_DETERMINISTIC", "1")
    assert len({gradients(gather, kernel, WORKERS[4]) for _ in range(20)}) == 1
    noting = Noting()
    with gpuad.deterministic(False):
        gradients(gather, kernel, noting)
    assert [k.name for k in noting.launched] == ["k", "k_reverse"]


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_the_text_compiles() -> None:
    noting = Noting()
    with gpuad.deterministic():
        gradients(gather, gpuad.kernel(GATHER, "k"), noting)
    names = [k.name for k in noting.launched]
    assert names == ["k", "k_reverse_measure", "k_reverse_collect"]
    for arch in ("sm_75", "sm_90", "sm_100"):
        assert set(nvrtc.resources(nvrtc.compile_cuda(cuda_source(noting.launched), arch))) == set(names)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_additions_at_index_arrays_have_the_same_bits_in_any_order(dtype: Any) -> None:
    """What array operations use where the library adds in no order; beside `math.fsum`."""
    r, count = np.random.default_rng(3), 5000
    places, values = r.integers(0, 40, count), (r.normal(size=count) * 10.0 ** r.integers(-8, 8, count)).astype(dtype)
    values = values * (1 + 2j) if dtype is np.complex128 else values
    found = set()
    for _ in range(10):
        memory, order = np.zeros(50, dtype), r.permutation(count)
        pipeline.add_in_fixed_point(memory, places[order].reshape(50, 100), values[order].reshape(50, 100))
        found.add(memory.tobytes())
    assert len(found) == 1
    for k in range(50):
        own = values[places == k]
        wanted = complex(math.fsum(own.real), math.fsum(own.imag)) if own.size else 0.0
        assert np.isclose(memory[k], wanted, rtol=2 * np.finfo(dtype).eps, atol=0)


def test_an_addition_that_is_not_finite_is_refused_and_nothing_is_added() -> None:
    memory = np.ones(4)
    with pytest.raises(LaunchError, match="not finite"):
        pipeline.add_in_fixed_point(memory, np.array([0, 1, 0]), np.array([1.0, np.inf, 2.0]))
    assert np.array_equal(memory, np.ones(4))
