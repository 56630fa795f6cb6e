"""Calls of elementwise and reduction kernels and of jit functions in the words of an earlier one: made at once, and only if they are it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases

import gpuad
from gpuad import Active, Const, Duplicated, autodiff
from gpuad.api import Kernel
from gpuad.api.call_replay import CallReplay

pytestmark = pytest.mark.cpu  # another executor's calls are not replayed

N = 12


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def scale() -> Any:
    return gpuad.ElementwiseKernel("T x, float64 a", "T y", "y = a * x * x", "scale")


def total() -> Any:
    return gpuad.ReductionKernel("T x, float64 a", "T y", "a * x * x", "a + b", "y = a", "0", "total")


def twice(y: Any, x: Any, a: Any, n: Any) -> None:
    i = gpuad.jit.grid(1)
    if i < n:
        y[i] = a * x[i] * x[i]


MAKERS = {"elementwise": scale, "reduction": total, "jit": lambda: gpuad.jit(twice)}


def forget(k: Any) -> None:
    """Lets a kernel know no call."""
    k._again.clear()
    for concrete in k.specializations.values():
        concrete._ready.clear()
        concrete._again.clear()


def call(kind: str, k: Any, y: Any, x: Any, a: Any, derive: Any, axis: Any = None) -> Any:
    """A call; for the derivative as for the launch."""
    how: dict[str, Any] = {"axis": axis} if kind == "reduction" else {}
    args = (1, 16, (y, x, a, N)) if kind == "jit" else (x, a, y)
    return autodiff(k, *args, mode=derive, **how) if derive is not None else k(*args, **how)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("derive", [None, gpuad.Reverse, gpuad.Forward])
def test_the_same_words_are_not_looked_at_closer(kind: str, derive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    k, x = MAKERS[kind](), np.arange(1.0, N + 1)
    y = np.zeros(()) if kind == "reduction" else np.zeros(N)
    dx, dy, da = np.zeros(N), np.ones_like(y), np.zeros(())

    def make(number: float) -> Any:
        return call(kind, k, Duplicated(y, dy), Duplicated(x, dx), Active(number, da), derive)

    for _ in range(4):
        make(0.5)
    for name in ("known", "bind"):
        monkeypatch.setattr(Kernel, name, lambda *_: pytest.fail("it was looked at closer"))
    monkeypatch.setattr(type(k), "planned", lambda *_, **__: pytest.fail("it was planned"))
    dy[...], dx[...], da[...] = 1, 0, 0
    if derive is gpuad.Forward:
        dx[...] = 1
    for number in (0.5, 2.0):
        made = make(number)
        assert derive is not None or kind == "jit" or made.primal is y
        np.testing.assert_allclose(y, (number * x * x).sum() if kind == "reduction" else number * x * x)
        if derive is gpuad.Forward:
            np.testing.assert_allclose(dy, (2 * number * x).sum() if kind == "reduction" else 2 * number * x)
        if derive is gpuad.Reverse:
            np.testing.assert_allclose(dx, 2 * number * x)
        dy[...], da[...] = 1, 0
        dx[...] = derive is gpuad.Forward


def arrays(r: random.Random, kind: str, held: list[Any]) -> tuple[Any, Any]:
    """The output and the input of a call."""
    y, x = held[0], r.choice([held[1], held[1], held[1], held[0]])
    x = r.choice([*[lambda: x] * 6, lambda: x[::-1], lambda: np.broadcast_to(x[:1], (N,)), lambda: x[:6], lambda: x.reshape(3, 4)])()
    y = r.choice([*[lambda: y] * 6, lambda: y[::-1], lambda: y.reshape(3, 4), lambda: y[:6], lambda: y[:4], lambda: y[:1].reshape(())])()
    return y, x


def outcome(kind: str, k: Any, seed: int, held: list[Any]) -> list[Any]:
    r = random.Random(seed)
    y, x = arrays(r, kind, held)
    if kind == "reduction" and r.random() < 0.6:
        y, x = held[4], held[1]
    shadows = {id(held[0]): held[2], id(held[1]): held[3], id(held[4]): held[5]}
    a = r.choice([0.5, 0.25, 2, np.float64(0.25), np.float32(0.25), Const(0.5)])
    derive = r.choice([None, gpuad.Reverse, gpuad.Forward])
    if derive is not None:
        y, x = (Duplicated(array, _shadow(array, held, shadows)) if r.random() < 0.9 else array for array in (y, x))
    try:
        call(kind, k, y, x, a, derive, r.choice([None, None, 0, 1, (0,)]))
    except (gpuad.GpuadError, TypeError, ValueError) as error:
        found = [type(error), str(error)]
    else:
        found = []
    left = [b.tobytes() for b in held]
    for b in held:
        np.clip(np.nan_to_num(b), -2, 2, out=b)
    return [*found, *left]


def _shadow(array: Any, held: list[Any], shadows: dict[int, Any]) -> Any:
    whole = array if array.base is None else next(b for b in held if np.shares_memory(b, array))
    shadow = shadows.get(id(whole))
    return np.ndarray(array.shape, array.dtype, shadow, (_start(array) - _start(whole)), array.strides) if shadow is not None else None


def _start(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("kind", MAKERS)
def test_random_calls(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm, cold, hits = MAKERS[kind](), MAKERS[kind](), []
    made = CallReplay.made
    monkeypatch.setattr(CallReplay, "made", lambda *args: hits.append(made(*args)) or hits[-1])
    held = [[*(np.linspace(0.1 + k, 0.9 + k, N).copy() for k in range(4)), np.zeros(()), np.ones(())] for _ in range(2)]
    ran = 0
    for seed in range(cases(300, 600)):
        forget(cold)
        expected, found = (outcome(kind, k, seed, h) for k, h in zip((cold, warm), held, strict=True))
        assert expected == found, seed
        ran += isinstance(expected[0], bytes)
    assert ran > 50
    assert sum(hits) > 5


@pytest.mark.parametrize("kind", MAKERS)
def test_a_known_call_is_recorded_within_a_tape(kind: str) -> None:
    k, x = MAKERS[kind](), Duplicated(np.arange(1.0, N + 1))
    y = Duplicated(np.zeros(()) if kind == "reduction" else np.zeros(N))
    for _ in range(4):
        call(kind, k, y, x, 0.5, None)
    with gpuad.Tape() as tape:
        call(kind, k, y, x, 0.5, None)
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, x.primal)
    with gpuad.Tape(), pytest.raises(gpuad.TapeError):
        call(kind, k, y, x, 0.5, gpuad.Reverse)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_call_that_a_tape_knows_is_not_planned_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first recording the second of two calls is known already; another array, number or layout is not."""
    k, x = MAKERS[kind](), Duplicated(np.arange(1.0, N + 1))
    y, z = (Duplicated(np.zeros(()) if kind == "reduction" else np.zeros(N)) for _ in range(2))
    planned: list[int] = []
    name = "planned" if kind == "jit" else "_prepared"
    plan = getattr(type(k), name)
    monkeypatch.setattr(type(k), name, lambda *args, **keywords: planned.append(1) or plan(*args, **keywords))
    tape = gpuad.Tape()
    for _ in range(3):
        x.shadow[...] = 0
        with tape:
            for out, number in ((y, 0.5), (z, 0.5), (z, 0.25), (z, 0.5), (z, -0.0), (z, 0.0)):
                call(kind, k, out, x, float(str(number)), None)
        tape.reverse({y: 1.0})
        np.testing.assert_allclose(x.shadow, x.primal)
        np.testing.assert_array_equal(np.signbit(z.primal), False)
    assert len(planned) == 5
    x.primal.shape = (3, 4)
    x.shadow.shape = (3, 4)
    if kind == "reduction":
        with tape:
            call(kind, k, y, x, 0.5, None)
        np.testing.assert_allclose(y.primal, 0.5 * (x.primal**2).sum())
    else:
        with tape, pytest.raises((TypeError, ValueError, gpuad.GpuadError)):
            call(kind, k, y, x, 0.5, None)


def test_shadows_that_nobody_has_seen_stay_so_within_a_tape() -> None:
    k, x, y = scale(), Duplicated(np.ones(N)), Duplicated(np.zeros(N))
    tape = gpuad.Tape()
    for _ in range(3):
        with tape:
            k(x, 0.5, y)
    assert x._deferred is not None
    assert not x._deferred.seen


def test_axes_and_outputs() -> None:
    k, x, rows, columns = total(), np.arange(12.0).reshape(3, 4), np.zeros(3), np.zeros(4)
    for _ in range(4):
        assert k(x, 1.0, rows, axis=1) is rows and k(x, 1.0, out=columns, axis=0) is columns
        np.testing.assert_array_equal(rows, (x * x).sum(axis=1))
        np.testing.assert_array_equal(columns, (x * x).sum(axis=0))
        with pytest.raises(ValueError, match=r"out|shape|axis"):
            k(x, 1.0, rows, axis=0)
        axes = [1]
        np.testing.assert_array_equal(k(x, 1.0, rows, axis=axes), (x * x).sum(axis=1))
        kept = np.zeros((3, 1))
        assert k(x, 1.0, kept, axis=1, keepdims=True) is kept
    single = gpuad.ElementwiseKernel("T x", "T y", "y = x", "single", no_return=True)
    packed = gpuad.ElementwiseKernel("T x", "T y", "y = x", "packed", return_tuple=True)
    for _ in range(4):
        assert single(x[0], columns) is None
        assert packed(x[0], columns)[0] is columns


def test_how_many_elements() -> None:
    k, y = gpuad.ElementwiseKernel("float64 a", "raw float64 y", "y[i] = a", "some"), np.zeros(N)
    for size in (3, 3, 3, 5, 3, 5, 5):
        y[...] = 0
        k(1.0, y, size=size)
        assert y.sum() == size


def test_numbers_that_do_not_fit() -> None:
    k, x, y = (
        gpuad.ElementwiseKernel("float32 x, float32 a", "float32 y", "y = a * x", "narrow"),
        np.ones(N, np.float32),
        np.zeros(N, np.float32),
    )
    for number in (0.1, 0.1, 0.1, 0.1, 0.3):
        k(x, number, y)
        np.testing.assert_array_equal(y, np.float32(number))
    for number in (np.float64(0.1), np.float64(0.1), np.float64(0.1), np.float64(0.7)):
        k(x, number, y)
        np.testing.assert_array_equal(y, np.float32(number))
    with pytest.raises(gpuad.LaunchError):
        k(x, 1e39, y)
