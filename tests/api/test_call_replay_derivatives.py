"""A derivative in the words of an earlier one is made at once; whatever could make a difference is noticed each time.

Each test warms a call until it is known, changes one thing, and compares with the derivative of a kernel that knows no call.
"""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, arguments, running, shipped
from nightly import cases, share

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, LaunchError, ShadowError, TapeError, api, autodiff, pipeline
from gpuad.api import Kernel
from gpuad.api.call_replay import CallReplay
from gpuad.pipeline import schedule

pytestmark = pytest.mark.cpu  # another executor's calls are not replayed

SOURCE = r"""
extern "C" __global__ void mix(double* y, const double* x, double a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] * y[i]; }
extern "C" __global__ void smooth(double* y, const double* x, double a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i > 0 && i < n - 1) y[i] += a * (x[i - 1] + x[i + 1]) * x[i]; }
extern "C" __global__ void put(double* y, const double* x, const int* to) { y[to[threadIdx.x]] = x[threadIdx.x]; }
extern "C" __global__ void beyond(double* y, const double* x, int n) { int i = threadIdx.x; y[i + n] = 2.0 * x[i + n]; }
extern "C" __global__ void tile(double* y, int n) {
    extern __shared__ double s[]; int i = threadIdx.x; s[i] = i < n ? y[i] : 0.0; __syncthreads(); if (i < n) y[i] = 3.0 * s[n - 1 - i]; }
extern "C" __global__ void sure(double* y, const double* x, int n)
{ int i = threadIdx.x; assert(x[i] > 0.0); if (i < n) y[i] = 2.0 * x[i]; }
extern "C" __global__ void power(double* y, const double* x, const int* many, int n)
{ int i = threadIdx.x; if (i < n) { double v = x[i]; for (int k = 0; k < many[i]; ++k) v = v * v + x[i]; y[i] = v; } }
extern "C" __global__ void square(double* y, double* x, int n) { int i = threadIdx.x; if (i < n) y[i] = 3.0 * x[i] * x[i]; }
struct One { double a; };
extern "C" __global__ void one(double* y, const double* x, One s, int n) { int i = threadIdx.x; if (i < n) y[i] = s.a * x[i]; }
__constant__ double factor[1];
extern "C" __global__ void scaled(double* y, const double* x, int n) { int i = threadIdx.x; if (i < n) y[i] = factor[0] * x[i]; }
extern "C" __global__ void turned(float2* y, const float2* x, int n)
{ int i = threadIdx.x; if (i < n) y[i] = make_float2(-x[i].y, x[i].x); }
"""
N = 6


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def kernel(name: str) -> Any:
    return gpuad.kernel(SOURCE, name)


class Case:
    """A kernel of two arrays, and `call`, which makes a derivative with it and new pairs around the same arrays."""

    def __init__(self, name: str, mode: Any = gpuad.Reverse) -> None:
        self.name, self.kernel, self.mode = name, kernel(name), mode
        self.y, self.x = np.linspace(1, 2, N).copy(), np.linspace(0.5, 1.5, N).copy()
        self.dy, self.dx, self.da = np.linspace(-1, 1, N).copy(), np.zeros(N), np.zeros(())

    def args(self, *numbers: Any) -> tuple[Any, ...]:
        return Duplicated(self.y, self.dy), Duplicated(self.x, self.dx), *numbers

    def call(self, *args: Any, k: Any = None, grid: Any = 2, block: Any = 4, **keywords: Any) -> None:
        autodiff(k or self.kernel, grid, block, args, mode=self.mode, **keywords)

    def after(self, call: Callable[[], Any]) -> list[Any]:
        """What a call leaves in the arrays, which are then as before, and what it says if it is refused."""
        arrays = (self.y, self.x, self.dy, self.dx, self.da)
        before, said = [a.copy() for a in arrays], ""
        try:
            call()
        except gpuad.GpuadError as error:
            said = str(error)
        found = [*(a.tobytes() for a in arrays), said]
        for a, was in zip(arrays, before, strict=True):
            a[...] = was
        return found

    def warm(self, make: Callable[[], tuple[Any, ...]], **keywords: Any) -> None:
        """Makes the call until it is known."""
        for _ in range(4):
            self.after(lambda: self.call(*make(), **keywords))

    def agrees(self, make: Callable[[], tuple[Any, ...]], **keywords: Any) -> None:
        """The call leaves what it leaves with a kernel that knows no call."""
        found, wanted = (self.after(lambda k=k: self.call(*make(), k=k, **keywords)) for k in (self.kernel, kernel(self.name)))
        assert found == wanted


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Within it calls have to be made at once."""

    @contextlib.contextmanager
    def only() -> Iterator[None]:
        with monkeypatch.context() as closer:
            for way in ("known", "bind"):
                closer.setattr(Kernel, way, lambda *_: pytest.fail("it was looked at closer"))
            yield

    return only


# --- what is made at once ----------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(2)
@pytest.mark.parametrize("mode", [gpuad.Reverse, gpuad.Forward])
@pytest.mark.parametrize("name", ["mix", "smooth"])
def test_new_pairs_around_the_same_arrays(name: str, mode: Any, at_once: Any) -> None:
    case = Case(name, mode)
    for kind in (float, np.float64):
        case.warm(lambda kind=kind: case.args(Active(kind(0.5), case.da), N))
        for number in (0.5, 0.25, -0.0, 1e200):
            with at_once():
                found = case.after(lambda number=number, kind=kind: case.call(*case.args(Active(kind(number), case.da), N)))
            assert found == case.after(
                lambda number=number, kind=kind: case.call(*case.args(Active(kind(number), case.da), N), k=kernel(name))
            )


def test_shadows_accumulate_at_once(at_once: Any) -> None:
    case = Case("smooth")
    case.warm(lambda: case.args(0.5, N))
    case.call(*case.args(0.5, N))
    once = case.dx.copy()
    with at_once():
        case.call(*case.args(0.5, N))
    np.testing.assert_allclose(case.dx, 2 * once)


def several() -> dict[str, Callable[[Case], tuple[Any, ...]]]:
    """Arguments of which each has something that the others lack."""
    return {
        "pairs": lambda c: c.args(0.5, N),
        "swapped": lambda c: (Duplicated(c.x, c.dx), Duplicated(c.y, c.dy), 0.5, N),
        "other shadow": lambda c: (Duplicated(c.y, c.dx), Duplicated(c.x, c.dy), 0.5, N),
        "not needed": lambda c: (DuplicatedNoNeed(c.y, c.dy), Duplicated(c.x, c.dx), 0.5, N),
        "constant": lambda c: (Duplicated(c.y, c.dy), Const(c.x), 0.5, N),
        "stopped": lambda c: (Duplicated(c.y, c.dy), gpuad.stop_gradient(c.x), 0.5, N),
        "bare": lambda c: (Duplicated(c.y, c.dy), c.x, 0.5, N),
        "the same array": lambda c: (Duplicated(c.x, c.dx), Duplicated(c.x, c.dx), 0.5, N),
        "active number": lambda c: c.args(Active(0.5, c.da), N),
        "constant number": lambda c: c.args(Const(0.5), N),
        "whole number": lambda c: c.args(2, N),
        "fewer": lambda c: c.args(0.5, N - 2),
        "another width": lambda c: c.args(0.5, np.int16(N)),
        "views": lambda c: (Duplicated(c.y, c.dy)[1:], Duplicated(c.x, c.dx)[1:], 0.5, N - 1),
        "a list": lambda c: list(c.args(0.5, N)),
        "batch": lambda c: (BatchDuplicated(c.y, (c.dy, c.dy[::-1].copy())), BatchDuplicated(c.x, (c.dx, np.zeros(N))), 0.5, N),
    }


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("name", "known"), share([(name, known) for known in several() for name in ("mix", "smooth")], 3))
def test_a_known_call_is_not_taken_for_another(name: str, known: str) -> None:
    case = Case(name)
    case.warm(lambda: several()[known](case))
    for make in several().values():
        case.agrees(lambda make=make: make(case))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("what", [w for w in several() if w not in ("views", "batch")])  # which are new arrays each time
def test_all_of_them_are_made_at_once(what: str, at_once: Any) -> None:
    case = Case("mix")
    case.warm(lambda: several()[what](case))
    with at_once():
        case.after(lambda: case.call(*several()[what](case)))


def test_directions_of_a_batch(at_once: Any) -> None:
    case, seeds, found = Case("smooth"), (np.ones(N), np.arange(float(N))), (np.zeros(N), np.zeros(N))
    make = lambda: (BatchDuplicated(case.y, seeds), BatchDuplicated(case.x, found), 0.5, N)  # noqa: E731
    case.warm(make)
    for shadow in found:
        shadow[...] = 0
    with at_once():
        case.after(lambda: case.call(*make()))
    for seed, shadow in zip(seeds, found, strict=True):
        alone = np.zeros(N)
        case.after(lambda seed=seed, alone=alone: case.call(Duplicated(case.y, seed.copy()), Duplicated(case.x, alone), 0.5, N))
        np.testing.assert_array_equal(shadow, alone)


def test_stacks_whose_depth_hangs_on_data(at_once: Any) -> None:
    """The executor has memory of its own for them, as deep as the data of each call asks for."""
    case, many = Case("power"), np.array([1, 2, 0, 1, 3, 1], np.int32)
    case.warm(lambda: case.args(many, N), grid=1, block=8)
    with at_once():
        for shift in range(3):
            many[...] = np.roll(many, shift)
            found = case.after(lambda: case.call(*case.args(many, N), grid=1, block=8))
    assert found == case.after(lambda: case.call(*case.args(many, N), k=kernel("power"), grid=1, block=8))


def test_structures_of_numbers(at_once: Any) -> None:
    k, x, y = kernel("turned"), np.arange(2.0 * N, dtype=np.float32).reshape(N, 2), np.zeros((N, 2), np.float32)
    dx, dy = np.zeros_like(x), np.ones_like(y)
    for _ in range(4):
        autodiff(k, 1, 8, (Duplicated(y, dy), Duplicated(x, dx), N))
    dx[...], dy[...] = 0, np.arange(2.0 * N).reshape(N, 2)
    with at_once():
        autodiff(k, 1, 8, (Duplicated(y, dy), Duplicated(x, dx), N))
    np.testing.assert_array_equal(dx[:, 0], 2 * np.arange(N) + 1)
    np.testing.assert_array_equal(dx[:, 1], -2 * np.arange(N))


def test_a_launch_of_pairs_outside_of_tapes(at_once: Any) -> None:
    case = Case("mix")
    for _ in range(4):
        case.after(lambda: case.kernel(2, 4, case.args(Active(0.5, case.da), N)))
    with at_once():
        found = case.after(lambda: case.kernel(2, 4, case.args(Active(0.5, case.da), N)))
    assert found == case.after(lambda: kernel("mix")(2, 4, (case.y, case.x, 0.5, N)))
    with pytest.raises(ShadowError):
        case.kernel(2, 4, (Duplicated(case.y, case.x), Duplicated(case.x, case.dx), 0.5, N))
    case.dy.flags.writeable = False
    with pytest.raises(ShadowError, match="read-only"):
        case.kernel(2, 4, case.args(Active(0.5, case.da), N))


LOOKED_AT = {"insertion_sort"}  # stores that may meet


def memory_of(args: Sequence[Any]) -> list[Any]:
    """All arrays of arguments, shadows included."""
    found = []
    for x in args:
        if isinstance(x, Duplicated):
            found += [x.primal, x.shadow]
        elif isinstance(x, Active):
            found.append(x.shadow)
        elif isinstance(x, np.ndarray):
            found.append(x)
    return found


@pytest.mark.one_of(6)
@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, gpuad.Reverse) for name in share(list(CASES), 5)), *((name, gpuad.Forward) for name in share(list(CASES), 8))],
)
def test_every_case_on_other_content(name: str, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and logs are those of each call; bit by bit what a kernel that knows no call leaves."""
    k, args = type(shipped(name))(CASES[name].file, CASES[name].kernel), arguments(name)
    grid, block, shared_mem = CASES[name].geometry()
    rng, hits = np.random.default_rng(0), []
    arrays = memory_of(args)
    for x in args:
        if isinstance(x, Duplicated) and x.shadow.dtype.names is None:
            x.shadow[...] = rng.standard_normal(x.shadow.shape)
    before = [a.copy() for a in arrays]

    def left(factor: float) -> list[bytes]:
        for a, was in zip(arrays, before, strict=True):
            a[...] = was * a.dtype.type(factor) if a.dtype.kind in "fc" else was
        autodiff(k, grid, block, args, mode=mode, shared_mem=shared_mem)
        return [a.tobytes() for a in arrays]

    for _ in range(3):
        left(1.0)
    made = CallReplay.made
    monkeypatch.setattr(CallReplay, "made", lambda *given: hits.append(made(*given)) or hits[-1])
    found = left(0.96875)
    assert hits == ([] if name in LOOKED_AT else [True])
    chosen = api.kernel(k).suited(None, shared_mem)
    chosen._again.clear()
    chosen._ready.clear()
    assert found == left(0.96875)


# --- what has changed --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["y", "dy", "dx", "da"])
def test_memory_that_becomes_read_only(which: str) -> None:
    case = Case("mix")
    make = lambda: case.args(Active(0.5, case.da), N)  # noqa: E731
    case.warm(make)
    getattr(case, which).flags.writeable = False
    with pytest.raises((LaunchError, ShadowError), match="read-only"):
        case.call(*make())
    getattr(case, which).flags.writeable = True
    case.agrees(make)


@pytest.mark.parametrize("which", ["y", "x", "dy", "dx"])
@pytest.mark.parametrize(("name", "value"), [("shape", (2, 3)), ("dtype", np.dtype(np.int64)), ("strides", (0,)), ("shape", (3, 2))])
def test_an_array_that_is_laid_out_anew(which: str, name: str, value: Any) -> None:
    case = Case("mix")
    make = lambda: case.args(0.5, N)  # noqa: E731
    case.warm(make)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        setattr(getattr(case, which), name, value)
    with pytest.raises((LaunchError, ShadowError)):
        case.call(*make())


@pytest.mark.one_of(2)
@pytest.mark.parametrize("which", ["y", "x", "dy", "dx"])
def test_an_array_that_lies_elsewhere(which: str) -> None:
    """It has the same identity, shape and type; what is where it was before is left alone."""
    case = Case("smooth")
    make = lambda: case.args(0.5, N)  # noqa: E731
    case.warm(make)
    array = getattr(case, which)
    array.resize(1 << 16, refcheck=False)
    array.resize(N, refcheck=False)
    array[...] = 0.75
    case.agrees(make)
    array.resize(N - 1, refcheck=False)
    with pytest.raises((LaunchError, ShadowError)):
        case.call(*make())


def test_an_allocation_that_ends_elsewhere() -> None:
    """The views are what they were; how far a kernel may leave them is a matter of what they are views of."""
    rooms = [np.ones(3 * N) for _ in range(4)]
    y, dy, x, dx = (room[:N] for room in rooms)
    k = kernel("beyond")
    for _ in range(4):
        autodiff(k, 1, N, (Duplicated(y, dy), Duplicated(x, dx), N))
    for room in rooms:
        room.resize(2 * N - 1, refcheck=False)
    with pytest.raises(LaunchError, match="its memory ends"):
        autodiff(k, 1, N, (Duplicated(y, dy), Duplicated(x, dx), N))


def test_a_seed_that_is_kept_is_no_seed_that_is_taken() -> None:
    k, x, dx, y, dy = kernel("square"), np.arange(1.0, N + 1), np.zeros(N), np.zeros(N), np.ones(N)
    for keep in (True, False, True, True, True):
        for seed in (1.0, 0.5, 2.0, 1.0):
            dy[...], dx[...] = seed, 0.0
            autodiff(k, 1, 8, (Duplicated(y, dy, keep=keep), Duplicated(x, dx), N))
            assert (dy == keep * seed).all()
            np.testing.assert_allclose(dx, 6 * x * seed)


def test_stores_are_checked_though_the_index_array_is_the_same() -> None:
    case, to = Case("put"), np.arange(N, dtype=np.int32)
    case.warm(lambda: case.args(to), grid=1, block=N)
    to[...] = 2
    with pytest.raises(LaunchError, match="two threads write"):
        case.call(*case.args(to), grid=1, block=N)


def test_an_assertion_fails_in_a_known_call() -> None:
    case = Case("sure")
    case.warm(lambda: case.args(N), grid=1, block=N)
    case.x[3] = -1.0
    with pytest.raises(LaunchError, match="assertion"):
        case.call(*case.args(N), grid=1, block=N)


def test_a_struct_by_value_in_an_array() -> None:
    """Its bytes are an argument, whatever array they are in."""
    one = np.zeros((), np.dtype([("a", np.float64)]))
    case = Case("one")
    for number in (1.0, 1.0, 1.0, 2.0, 3.0):
        one["a"] = number
        case.dx[...] = 0
        found = case.after(lambda: case.call(*case.args(one, N), grid=1, block=8))
        np.testing.assert_allclose(np.frombuffer(found[3]), number * case.dy)


def test_a_variable_of_the_module() -> None:
    case = Case("scaled")
    factor = case.kernel.get_global("factor")
    other = case.kernel.with_shadow("factor", np.zeros(1))
    for number in (1.0, 1.0, 1.0, 2.0):
        factor[0] = number
        found = case.after(lambda: case.call(*case.args(N), grid=1, block=8))
        np.testing.assert_allclose(np.frombuffer(found[3]), number * case.dy)
        case.after(lambda: case.call(*case.args(N), k=other, grid=1, block=8))
    np.testing.assert_allclose(next(iter(api.kernel(other).shadows.values())), 4 * (case.x * case.dy).sum())


# --- how it is called --------------------------------------------------------------------------------------------------------------------


def test_geometry() -> None:
    case = Case("mix")
    make = lambda: case.args(0.5, N)  # noqa: E731
    case.warm(make)
    for grid, block in ((1, 4), ((1,), (2,)), (np.int64(2), 4), ([2], [4]), ((2, 1), 4)):
        for _ in range(4):
            case.agrees(make, grid=grid, block=block)
    for grid, block in ((-1, 4), (1, 2048), (1.0, 4)):
        with pytest.raises(LaunchError):
            case.call(*make(), grid=grid, block=block)


def test_a_list_that_is_the_grid_may_change() -> None:
    case, grid = Case("mix"), [1]
    make = lambda: (Duplicated(case.x, case.dx), Duplicated(case.x, case.dx), 0.5, N)  # noqa: E731
    case.warm(make, grid=grid, block=2)
    grid[0] = 3
    case.agrees(make, grid=grid, block=2)


def test_dynamic_shared_memory() -> None:
    k, y, dy = kernel("tile"), np.arange(float(N)), np.arange(float(N))
    for threads in (8, 16, 8, 16, 8, 16):
        for _ in range(3):
            y[...], dy[...] = np.arange(N), np.arange(N)
            autodiff(k, 1, threads, (Duplicated(y, dy), N), shared_mem=8 * threads)
            np.testing.assert_array_equal(dy, 3.0 * np.arange(N)[::-1])
    with pytest.raises(LaunchError, match="dynamic shared memory"):
        autodiff(k, 1, 8, (Duplicated(y, dy), N))


def test_modes_are_told_apart() -> None:
    case = Case("smooth")
    for _ in range(4):
        for case.mode in (gpuad.Reverse, gpuad.Forward):
            case.agrees(lambda: case.args(0.5, N))
    with pytest.raises(LaunchError, match="mode"):
        autodiff(case.kernel, 2, 4, case.args(0.5, N), mode="reverse")  # type: ignore[arg-type]


def test_within_a_recording() -> None:
    case = Case("mix")
    case.warm(lambda: case.args(0.5, N))
    with gpuad.Tape(), pytest.raises(TapeError, match="inside a tape"):
        case.call(*case.args(0.5, N))
    tape, y, x = gpuad.Tape(), *case.args()
    before = case.y.copy()
    for _ in range(4):  # a launch that is known outside of tapes is recorded within one
        case.after(lambda: case.kernel(2, 4, (y, x, 0.5, N)))
    with tape:
        case.kernel(2, 4, (y, x, 0.5, N))
    case.dx[...] = 0
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(case.dx, 0.5 * before)


def test_switches() -> None:
    case = Case("smooth")
    make = lambda: case.args(Active(0.5, case.da), N)  # noqa: E731
    for _ in range(3):
        case.agrees(make)
        for switch in (gpuad.deterministic, pipeline.nothing_plain_for_tests, pipeline.everything_recorded_for_tests):
            with switch():
                case.agrees(make)


def test_a_deterministic_sum_is_asked_for_by_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    case, runs = Case("smooth"), []
    fixed = schedule.run_fixed
    monkeypatch.setattr(schedule, "run_fixed", lambda *args: (runs.append(args), fixed(*args)))
    make = lambda: case.args(Active(0.5, case.da), N)  # noqa: E731
    for wanted in ("0", "1", "1", "1", "0", "1"):
        monkeypatch.setenv("GPUAD_DETERMINISTIC", wanted)
        case.warm(make)
        assert (len(runs) > 0) is (wanted == "1")
        runs.clear()


def test_proofs_are_checked_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    case, checked = Case("smooth"), []
    monkeypatch.setattr(schedule, "check_proofs", lambda *_: checked.append(1) or True)
    case.warm(lambda: case.args(0.5, N))
    assert not checked
    monkeypatch.setenv("GPUAD_CHECK", "1")
    case.call(*case.args(0.5, N))
    assert checked


def test_another_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("smooth")
    case.warm(lambda: case.args(0.5, N))
    with running("reference") as _, monkeypatch.context() as m:
        m.setattr(CallReplay, "_launches", lambda *_: pytest.fail("compiled code"))
        case.agrees(lambda: case.args(0.5, N))


def test_a_stream_is_looked_at() -> None:
    case = Case("mix")
    case.warm(lambda: case.args(0.5, N))
    case.agrees(lambda: case.args(0.5, N), stream=object())


# --- memory and threads ------------------------------------------------------------------------------------------------------------------


def test_no_array_is_kept_alive() -> None:
    k = kernel("smooth")

    def use() -> list[Any]:
        case = Case("smooth")
        case.kernel = k
        case.warm(lambda: case.args(Active(0.5, case.da), N))
        return [weakref.ref(a) for a in (case.y, case.x, case.dy, case.dx, case.da)]

    seen = use()
    gc.collect()
    assert all(ref() is None for ref in seen)


def test_a_shadow_that_is_made_is_another_one_each_time() -> None:
    k, x = kernel("square"), np.arange(1.0, N + 1)
    for _ in range(20):
        pair, y = Duplicated(x), Duplicated(np.zeros(N), np.ones(N))
        autodiff(k, 1, 8, (y, pair, N))
        np.testing.assert_allclose(pair.shadow, 6 * x)


def test_a_shadow_that_a_tape_leaves_uncleared() -> None:
    """It is zero for who looks at it, and so for a known call."""
    k, y, x = kernel("square"), Duplicated(np.zeros(N)), Duplicated(np.arange(1.0, N + 1))
    tape = gpuad.Tape()
    for _ in range(4):
        with tape:
            k(1, 8, (y, x, N))
        tape.reverse({y: 1.0})
        x._own_shadow[...] = 0
        autodiff(k, 1, 8, (y, x, N), allow_unused=True)  # the reverse has taken the shadow of y: there is no seed
        assert not x.shadow.any()


def test_threads() -> None:
    shared, failures = Case("smooth"), []

    def work(seed: int) -> None:
        own = Case("smooth")
        own.kernel = shared.kernel
        with running("host"):
            for number in np.random.default_rng(seed).random(50):
                own.dx[...] = 0
                before = own.x.copy()
                own.call(*own.args(float(number), N))
                wanted = np.zeros(N)
                middle = number * own.dy[1:-1]
                wanted[1:-1] += middle * (before[:-2] + before[2:])
                wanted[:-2] += middle * before[1:-1]
                wanted[2:] += middle * before[1:-1]
                if not np.allclose(own.dx, wanted):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- random calls ------------------------------------------------------------------------------------------------------------------------


def view(r: random.Random, bases: list[Any]) -> Any:
    """An array that is there all along, a view of one, or a new one."""
    base = r.choice(bases)
    return r.choice([*[lambda: base] * 12, lambda: base[:12], lambda: base[12:], lambda: base[::2], lambda: np.full(24, 0.5)])()


def outcome(k: Any, seed: int, held: list[Any]) -> list[Any]:
    r = random.Random(seed)
    kinds = [*[Duplicated] * 8, Const, gpuad.stop_gradient, lambda x: x]
    args: list[Any] = []
    for at in r.choice([(0, 1), (0, 1), (0, 1), (1, 0), (0, 0)]):
        make = r.choice(kinds)
        x = view(r, held[at : at + 1])
        shadow = held[2 + at] if r.random() < 0.9 else r.choice(held)
        args.append(make(x, shadow if x is held[at] else np.ones_like(x)) if make is Duplicated else make(x))
    number = r.choice([0.5, 0.25, 2, np.float64(0.25)])
    args += [r.choice([number, number, Active(number, held[4][:1]), Active(number, held[4][1:2])]), r.choice([8, 8, 8, 5, 30])]
    locked = r.choice(held) if r.random() < 0.05 else None
    if locked is not None:
        locked.flags.writeable = False
    try:
        autodiff(k, *r.choice([(1, 8), (1, 8), (2, 4)]), tuple(args), mode=r.choice([gpuad.Reverse, gpuad.Reverse, gpuad.Forward]))
    except gpuad.GpuadError as error:
        found = [type(error), str(error)]
    else:
        found = []
    if locked is not None:
        locked.flags.writeable = True
    left = [a.tobytes() for a in held]
    for a in held[:4]:
        np.clip(np.nan_to_num(a), -2, 2, out=a)
    return [*found, *left]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["mix", "smooth"])
def test_random_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm, cold, hits = kernel(name), kernel(name), []
    made = CallReplay.made
    monkeypatch.setattr(CallReplay, "made", lambda *args: hits.append(made(*args)) or hits[-1])
    held = [[*(np.linspace(0.1 + k, 0.9 + k, 24) for k in range(4)), np.zeros(2)] for _ in range(2)]
    ran = 0
    for seed in range(cases(600, 1200)):
        api.kernel(cold)._ready.clear()
        api.kernel(cold)._again.clear()
        expected, found = (outcome(k, seed, h) for k, h in zip((cold, warm), held, strict=True))
        assert expected == found, seed
        ran += isinstance(expected[0], bytes)
    assert ran > 100 and sum(hits) > 10 and sum(hits) < len(hits)
