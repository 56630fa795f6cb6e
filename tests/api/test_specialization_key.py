"""A launch that is like an earlier one is bound only once; whatever could make a difference is looked at each time."""

from __future__ import annotations

import contextlib
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Duplicated, LaunchError, api, pipeline
from gpuad.api import Kernel

SOURCE = r"""
extern "C" __global__ void shift(double* y, const double* x, double a, int n) { int i = threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }
extern "C" __global__ void pick(double* y, const double* x, const int* index, int n) { int i = threadIdx.x; if (i < n) y[i] = x[index[i]]; }
extern "C" __global__ void narrow(float* y, float a, int n) { int i = threadIdx.x; if (i < n) y[i] = a; }
extern "C" __global__ void beyond(double* y, int n) { int i = threadIdx.x; y[i + n] = 1.0; }
extern "C" __global__ void whole(double* y, int n) { int i = threadIdx.x; if (i < n) y[i] = n; }
extern "C" __global__ void tile(double* y, int n) {
    extern __shared__ double s[]; int i = threadIdx.x; s[i] = i < n ? y[i] : 0.0; __syncthreads(); if (i < n) y[i] = s[n - 1 - i]; }
"""
N = 6


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with running("reference"):
        yield


def kernel(name: str) -> Any:
    return gpuad.kernel(SOURCE, name)


def test_a_launch_that_is_like_another_is_not_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, x = kernel("shift")[1, 8], np.arange(N, dtype=float)
    launch(np.zeros(N), x, 2.0, N)
    monkeypatch.setattr(Kernel, "bind", lambda *_: pytest.fail("it was bound again"))
    base = np.zeros(3 * N)
    for y, a in ((np.zeros(N), 2.0), (base[N : 2 * N], -0.5), (np.ones(N), 0.25)):
        before = y.copy()
        launch(y, x, a, N)
        assert np.array_equal(y, before + a * x)
    assert not base[:N].any() and not base[2 * N :].any()


def test_arrays_that_overlap() -> None:
    launch, whole = kernel("shift")[1, 8], np.arange(2.0 * N)
    launch(np.zeros(N), np.ones(N), 1.0, N)
    launch(whole[N:], whole[:N], 10.0, N)
    assert np.array_equal(whole[N:], 10.0 * np.arange(N) + np.arange(N, 2 * N))
    same = np.ones(N)
    launch(same, same, 2.0, N)
    assert np.array_equal(same, np.full(N, 3.0))
    room = bytearray(8 * N)  # one memory, two owners
    one, two = np.frombuffer(room, np.float64), np.frombuffer(room, np.float64)
    launch(one, two, 1.0, N)
    assert np.array_equal(one, np.zeros(N))


def test_a_place_outside_of_memory() -> None:
    launch, base, room = kernel("beyond")[1, 4], np.zeros(N), np.zeros(2 * N)
    launch(np.zeros(N), 2)
    for _ in range(2):
        launch(base, 2)
        launch(room[:N], 3)  # outside of the view, inside of its allocation
        with pytest.raises(LaunchError, match="its memory ends"):
            launch(base, 3)
        with pytest.raises(LaunchError, match="its memory ends"):
            launch(room[N:], 3)
    assert np.array_equal(base, [0, 0, 1, 1, 1, 1]) and np.array_equal(np.flatnonzero(room), [3, 4, 5, 6])


def test_views_of_a_kernel_that_may_leave_them() -> None:
    launch, index = kernel("pick")[1, 8], np.arange(N, dtype=np.int32)
    x = np.arange(3.0 * N)
    for _ in range(2):
        y = np.zeros(N)
        launch(y, x[N : 2 * N], index, N)
        assert np.array_equal(y, x[N : 2 * N])
        launch(y, x[:N].copy(), index, N)
        assert np.array_equal(y, x[:N])


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(N, np.float32), 1.0, N), "not double"),
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(N, ">f8"), 1.0, N), "not double"),
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(2 * N)[::2], 1.0, N), "strided view"),
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(N), 1.0, 6.5), "no whole number"),
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(N), "1", N), "pass a number"),
        ("shift", (np.zeros(N), np.ones(N), 1.0, N), (np.zeros(N), np.ones(N), 1.0), "missing"),
        ("narrow", (np.zeros(N, np.float32), 1.0, N), (np.zeros(N, np.float32), 1e39, N), "cannot hold"),
        ("narrow", (np.zeros(N, np.float32), 1.0, N), (np.zeros(N, np.float32), np.float64(1.0), N), "8 bytes"),
        ("whole", (np.zeros(N), N), (np.zeros(N), 1 << 40), "beyond the range"),
    ],
)
def test_what_is_refused_stays_refused(name: str, good: Any, bad: Any, message: str) -> None:
    launch = kernel(name)[1, 8]
    for _ in range(2):
        launch(*good)
        with pytest.raises(LaunchError, match=message):
            launch(*bad)


def test_read_only_memory() -> None:
    launch, y = kernel("whole")[1, 8], np.zeros(N)
    launch(y, N)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        launch(y, N)


def test_geometry() -> None:
    chosen, y = kernel("whole"), np.zeros(N)
    chosen[1, 8](y, N)
    for grid, block, message in ((1.0, 8, "whole numbers"), (1, 8.0, "whole numbers"), (-1, 8, "negative"), (1, 2048, "threads")):
        with pytest.raises(LaunchError, match=message):
            chosen[grid, block](y, N)
    chosen[(1,), np.int64(8)](y, N)
    y[...] = 0
    chosen[1, 4](y, N)
    assert np.array_equal(y, [N] * 4 + [0] * 2)


def test_real_numbers_of_every_kind() -> None:
    launch = kernel("narrow")[1, 8]
    for value in (0.1, -0.0, 1e-50, float("nan"), float("inf"), np.float32(0.1), 3, True):
        for _ in range(2):
            y = np.zeros(N, np.float32)
            launch(y, value, N)
            assert np.array_equal(y, np.full(N, np.float32(value)), equal_nan=True)
            assert np.array_equal(np.signbit(y), np.full(N, np.signbit(np.float32(value))))


def test_dynamic_shared_memory_and_executors() -> None:
    chosen = kernel("tile")
    for executor in ("reference", "host", "reference"):
        with running(executor):
            for threads in (8, 16):
                y = np.arange(N, dtype=float)
                chosen(1, threads, (y, N), shared_mem=8 * threads)
                assert np.array_equal(y, np.arange(N)[::-1])
    with pytest.raises(LaunchError, match="dynamic shared memory"):
        chosen(1, 8, (np.zeros(N), N))


def test_annotated_arguments_are_bound() -> None:
    launch, x = kernel("shift")[1, 8], np.ones(N)
    for _ in range(3):
        y = Duplicated(np.zeros(N))
        launch(y, gpuad.stop_gradient(x), 2.0, N)
        assert np.array_equal(y.primal, 2 * x)


def test_no_array_is_kept() -> None:
    launch, x = kernel("shift")[1, 8], np.ones(N)
    for _ in range(2):
        y = np.zeros(N)
        gone = weakref.ref(y)
        launch(y, x, 1.0, N)
        del y
        assert gone() is None


# --- random calls: what was bound before makes no difference ---------------------------------------------------------------------------

PAIRS = r"""
extern "C" __global__ void mix(double* y, const double* x, double a, int n) { int i = threadIdx.x; if (i < n) y[i] = a * x[i] * y[i]; }
extern "C" __global__ void reach(double* y, const double* x, const int* index, double a, int n)
{ int i = threadIdx.x; if (i < n) y[index[i]] += a * x[i]; }
"""
ROOM = 24


def memory(r: random.Random) -> dict[str, Any]:
    held: dict[str, Any] = {f"m{k}": np.linspace(0.1 + k, 0.9 + k, ROOM) for k in range(6)}
    held["index"] = np.arange(8, dtype=np.int32)
    held["da"] = np.zeros(4)
    return held


def view(held: dict[str, Any], r: random.Random, first: int = 0) -> Any:
    base = held[f"m{first + r.randrange(3) if r.random() < 0.85 else r.randrange(6)}"]
    choice = r.choice(["whole"] * 16 + ["low", "high", "middle", "steps", "read only", "single", "grid"])
    made = {
        "low": base[:12], "high": base[12:], "middle": base[6:18], "steps": base[::2], "single": base.astype(np.float32),
        "grid": base.reshape(4, 6),
    }.get(choice, base)  # fmt: skip
    if choice == "read only":
        made = made[:]
        made.flags.writeable = False
    return made


def argument(held: dict[str, Any], r: random.Random) -> Any:
    x = view(held, r)
    kind = r.choice(["bare", *["pair"] * 8, "const", "stop", "keep"])
    if kind == "bare":
        return x
    if kind == "const":
        return gpuad.Const(x)
    if kind == "stop":
        return gpuad.stop_gradient(x)
    return Duplicated(x, view(held, r, 3), keep=kind == "keep")


def number(held: dict[str, Any], r: random.Random) -> Any:
    value = r.choice([0.5, 0.5, -0.0, np.float64(0.25), 2])
    where = r.choice([held["da"][0:1], held["da"][1:2], held["da"][2:3], held["m0"][3:4], held["m5"][:1]])
    return gpuad.Active(value, where) if r.random() < 0.4 else value


def outcome(chosen: Any, seed: int, derive: bool) -> list[Any]:
    r = random.Random(seed)
    held = memory(r)
    args: list[Any] = [argument(held, r), argument(held, r)]
    if chosen.name == "reach":
        args.append(held["index"])
    args += [number(held, r), r.choice([8, 8, 8, 8, 8, 5, np.int32(8), 30])]
    try:
        if derive:
            gpuad.autodiff(chosen, 1, 8, args)
        else:
            chosen(1, 8, args)
    except (gpuad.GpuadError, ArithmeticError) as error:
        return [type(error), str(error), *(a.tobytes() for a in held.values())]
    return [a.tobytes() for a in held.values()]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["mix", "reach"])
@pytest.mark.parametrize("derive", [True, False])
def test_random_calls(name: str, derive: bool) -> None:
    warm, cold = gpuad.kernel(PAIRS, name), gpuad.kernel(PAIRS, name)
    ran = hits = 0
    for seed in range(200):
        api.kernel(cold)._ready.clear()
        api.kernel(cold)._again.clear()
        known = len(api.kernel(warm)._ready)
        expected, found = outcome(cold, seed, derive), outcome(warm, seed, derive)
        assert expected == found, seed
        ran += isinstance(expected[0], bytes)
        hits += isinstance(expected[0], bytes) and len(api.kernel(warm)._ready) == known
    assert ran > 10 and hits > 5


def test_pairs_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, da = gpuad.kernel(PAIRS, "mix"), np.zeros(())

    def pair(value: float) -> Duplicated:
        return Duplicated(np.full(N, value), np.ones(N))

    gpuad.autodiff(chosen, 1, 8, (pair(1.0), pair(2.0), gpuad.Active(0.5, da), N))
    monkeypatch.setattr(Kernel, "_bound", lambda *_: pytest.fail("it was bound again"))
    y, x = pair(3.0), pair(4.0)
    da[...] = 0
    gpuad.autodiff(chosen, 1, 8, (y, x, gpuad.Active(0.25, da), N))
    assert np.allclose(y.primal, 3.0) and np.allclose(y.shadow, 1.0) and np.allclose(x.shadow, 1 + 0.75) and da == 12.0 * N
    with gpuad.Tape() as tape:
        chosen[1, 8](y, x, gpuad.Active(2.0, da), N)
    tape.reverse({y: 1.0})
    assert np.allclose(y.shadow, 8.0)


# --- autodiff: the way that a call goes is found out once --------------------------------------------------------------------------------

STENCIL = r"""
extern "C" __global__ void smooth(const double* x, double* y, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i > 0 && i < n - 1) y[i] += a * (x[i - 1] + x[i + 1]) * x[i]; }
"""


def gradient(k: Any, x: Any, seed: Any, a: float) -> tuple[Any, float]:
    dx, da, y = np.zeros(N), np.zeros(1), np.zeros(N)
    gpuad.autodiff(k, 2, 4, (Duplicated(x, dx), Duplicated(y, seed.copy()), gpuad.Active(a, da), N))
    return dx, float(da[0])


def expected(x: Any, seed: Any, a: float) -> tuple[Any, float]:
    dx, middle = np.zeros(N), seed[1:-1]
    dx[1:-1] += a * middle * (x[:-2] + x[2:])
    dx[:-2] += a * middle * x[1:-1]
    dx[2:] += a * middle * x[1:-1]
    return dx, float((middle * (x[:-2] + x[2:]) * x[1:-1]).sum())


def test_later_gradients_are_those_of_their_own_arrays_and_numbers() -> None:
    k, rng = gpuad.kernel(STENCIL, "smooth"), np.random.default_rng(0)
    for _ in range(6):
        x, seed, a = rng.random(N), rng.random(N), rng.random()
        found, wanted = gradient(k, x, seed, a), expected(x, seed, a)
        assert np.allclose(found[0], wanted[0], rtol=1e-14, atol=0)
        assert np.isclose(found[1], wanted[1], rtol=1e-14)


def test_a_known_way_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    k, x, seed = gpuad.kernel(STENCIL, "smooth"), np.arange(1.0, N + 1), np.ones(N)
    gradient(k, x, seed, 0.5)
    monkeypatch.setattr(Kernel, "bind", None)
    assert np.allclose(gradient(k, 2 * x, seed, 0.25)[0], expected(2 * x, seed, 0.25)[0])


def split(pair: Any, x: Any, seed: Any, a: float) -> tuple[Any, float]:
    dx, da, y = np.zeros(N), np.zeros(1), np.zeros(N)
    args = (Duplicated(x, dx), Duplicated(y, seed.copy()), gpuad.Active(a, da), N)
    augmented, reverse = pair
    reverse(2, 4, args, augmented(2, 4, (x, y, a, N)))
    return dx, float(da[0])


def test_split_pairs_of_one_kernel() -> None:
    """What a pair finds out is found out once, and belongs to its activities and to the switches of the call."""
    k, rng = gpuad.kernel(STENCIL, "smooth"), np.random.default_rng(0)
    active = {"x": Duplicated, "y": Duplicated, "a": gpuad.Active}
    pair, other = (gpuad.autodiff_thunk(k, **chosen) for chosen in (active, {"x": Duplicated, "y": Duplicated}))
    switches = (gpuad.deterministic, pipeline.nothing_plain_for_tests, pipeline.everything_recorded_for_tests, gpuad.deterministic)
    for switch in (None, None, *switches, None):
        x, seed, a = rng.random(N), rng.random(N), rng.random()
        with switch() if switch is not None else contextlib.nullcontext():
            found, wanted = split(pair, x, seed, a), expected(x, seed, a)
            dx, y = np.zeros(N), np.zeros(N)
            other[1](2, 4, (Duplicated(x, dx), Duplicated(y, seed.copy()), a, N), other[0](2, 4, (x, y, a, N)))
        for gradient_of_x in (found[0], dx):
            assert np.allclose(gradient_of_x, wanted[0], rtol=1e-14, atol=0)
        assert np.isclose(found[1], wanted[1], rtol=1e-14)
        with pytest.raises(gpuad.ShadowError, match="declared"):
            other[1](2, 4, (Duplicated(x, dx), Duplicated(y, seed), gpuad.Active(a, np.zeros(1)), N), other[0](2, 4, (x, y, a, N)))


def test_a_known_split_pair_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    k, x, seed = gpuad.kernel(STENCIL, "smooth"), np.arange(1.0, N + 1), np.ones(N)
    pair = gpuad.autodiff_thunk(k, x=Duplicated, y=Duplicated, a=gpuad.Active)
    split(pair, x, seed, 0.5)
    for way in ("reverse", "reverse_for", "_bound"):
        monkeypatch.setattr(Kernel, way, None)
    assert np.allclose(split(pair, 2 * x, seed, 0.25)[0], expected(2 * x, seed, 0.25)[0])


def test_switches_are_looked_at_in_each_call() -> None:
    k, x, seed = gpuad.kernel(STENCIL, "smooth"), np.arange(1.0, N + 1), np.ones(N)
    wanted = expected(x, seed, 0.5)
    for switch in (gpuad.deterministic(), pipeline.nothing_plain_for_tests(), pipeline.everything_recorded_for_tests()):
        gradient(k, x, seed, 0.5)
        with switch:
            found = gradient(k, x, seed, 0.5)
        assert np.allclose(found[0], wanted[0], rtol=1e-14, atol=0)
        assert np.isclose(found[1], wanted[1], rtol=1e-14)


def test_a_shadow_that_is_another_arrays_memory_is_refused_after_a_good_call() -> None:
    k, x, seed = gpuad.kernel(STENCIL, "smooth"), np.arange(1.0, N + 1), np.ones(N)
    gradient(k, x, seed, 0.5)
    y = np.zeros(N)
    with pytest.raises(gpuad.ShadowError):
        gpuad.autodiff(k, 2, 4, (Duplicated(x, x), Duplicated(y, seed), gpuad.Active(0.5, np.zeros(1)), N))
    assert not y.any()


def test_seeds_that_are_kept_are_kept_each_time() -> None:
    k, x = gpuad.kernel(SOURCE, "pick"), np.arange(float(N))
    index, seed = np.arange(N, dtype=np.int32)[::-1].copy(), np.arange(1.0, N + 1)
    for _ in range(3):
        dx = np.zeros(N)
        gpuad.autodiff(k, 1, N, (Duplicated(np.zeros(N), seed, keep=True), Duplicated(x, dx), index, N))
        assert np.array_equal(dx, seed[::-1])
        assert np.array_equal(seed, np.arange(1.0, N + 1))


def test_stores_are_checked_in_each_call() -> None:
    source = 'extern "C" __global__ void put(double* y, const double* x, const int* i, int n) { int t = threadIdx.x; y[i[t]] = x[t]; }'
    k, x = gpuad.kernel(source, "put"), np.arange(float(N))
    for index in (np.arange(N, dtype=np.int32), np.arange(N, dtype=np.int32)[::-1].copy()):
        gpuad.autodiff(k, 1, N, (Duplicated(np.zeros(N), np.ones(N)), Duplicated(x, np.zeros(N)), index, N))
    with pytest.raises(LaunchError, match="two threads write"):
        gpuad.autodiff(k, 1, N, (Duplicated(np.zeros(N), np.ones(N)), Duplicated(x, np.zeros(N)), np.zeros(N, np.int32), N))
