"""Programs that somebody made up to get a wrong gradient out of a tape, or out of a split pair, without an error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running
from tape_tools import cuda, launch, pair

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, LaunchError, ShadowError, TapeError, api, ops
from gpuad.api import kernels
from gpuad.api.kernels import pattern_of
from gpuad.program.ir.region import Region

N = 6


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with running("reference"):
        yield


def numbers() -> Duplicated:
    return pair(np.arange(1.0, N + 1))


def test_a_promise_not_to_overwrite_is_about_the_memory_of_the_forward() -> None:
    """The reverse reads what the forward was given, so that is what must not have changed, whatever the reverse is given."""
    x, y, dx = np.arange(1.0, N + 1), np.zeros(N), np.zeros(N)
    augmented, reverse = gpuad.autodiff_thunk(cuda("square_to"), x=Duplicated, y=Duplicated, not_overwritten=("x",))
    saved = augmented(1, 8, (x, y, N))
    copy = x.copy()
    x[...] = 7
    with pytest.raises(LaunchError, match="not_overwritten"):
        reverse(1, 8, (Duplicated(copy, dx), Duplicated(y, np.ones(N)), N), saved)
    assert not dx.any()


@pytest.mark.parametrize("read", ["linear", "written", "rule"])
def test_the_exact_check_sees_changes_of_what_no_adjoint_needs(read: str) -> None:
    """What is overwritten behind the tape has another gradient from there on, though nobody needs its value."""
    x, y, z, tape = numbers(), pair(np.zeros(N)), pair(np.zeros(N)), gpuad.Tape(check="exact")
    other = x.primal.view()  # which no lock sees
    with pytest.raises(TapeError, match="changed between operation 0 and operation 1"), tape:
        if read == "rule":
            ops.cumsum(x, out=y)
        else:
            launch("copy", *((y, x) if read == "linear" else (x, y)))
        other[2] = 5.0
        launch("add", z, x, y)


def test_the_exact_check_takes_changes_that_are_announced_or_come_before() -> None:
    x, y, z = numbers(), pair(np.zeros(N)), pair(np.zeros(N))
    tape = gpuad.Tape(check="exact")
    with tape:
        launch("copy", y, x)
        z.primal[...] = 3.0  # which no operation has met
        launch("add", z, z, x)
        tape.overwrites(x)
        x.primal[:3] = 5.0
        launch("copy", y[:2], z[:2])
        x.primal[3:] = 6.0
        launch("add", z, x, z)
        tape.overwrites(x)
        x.primal[...] = 9.0  # which nobody reads
    tape.reverse({z: 1.0})
    np.testing.assert_array_equal(x.shadow, np.ones(N))


@pytest.mark.parametrize("restore", [False, True])
def test_a_reverse_is_not_recorded_by_another_tape(restore: bool) -> None:
    """The second derivative of a square by a tape around the reverse of another one would be 0."""
    x, y, z, inner, outer = numbers(), pair(np.zeros(N)), pair(np.zeros(N)), gpuad.Tape(restore=restore), gpuad.Tape()
    with inner:
        launch("square_to", x, y)
    gradient = pair(np.zeros(N))
    x = Duplicated(x.primal, gradient.primal)
    with outer:
        with pytest.raises(TapeError, match="would not be recorded"):
            inner.reverse({y: 1.0})
        launch("square_to", gradient, z)
    assert not gradient.primal.any()
    x = numbers()
    with inner:
        launch("square_to", x, y)
    inner.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 2 * np.arange(1.0, N + 1))


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1.0, np.float64(2), np.float64(0.5), np.float32(-1), np.int64(2)])
def test_numbers_of_numpy_are_strong_exponents(exponent: Any) -> None:
    x = np.linspace(1, 2, N, dtype=np.float32)
    with gpuad.Tape():
        power = ops.power(Duplicated(x), exponent)
    assert power.dtype == np.power(x, exponent).dtype
    np.testing.assert_allclose(power.primal, np.power(x, exponent), rtol=1e-6)


@pytest.mark.parametrize("overlap", ["one array", "views of one array"])
def test_each_tangent_of_a_batch_starts_from_what_was_there(overlap: str) -> None:
    """What is written is reached through the pointer of the argument that it overlaps, which is only read."""
    text = """extern "C" __global__ void k(const double* x, double* y, const int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[p[i]] * y[i]; }"""
    base, first, second = np.arange(1.0, 9.0), np.ones(8), np.arange(8.0)
    batch = BatchDuplicated(base.copy(), (first.copy(), second.copy()))
    kernel, order = compiled(text, "k"), np.arange(4, dtype=np.int32)
    if overlap == "one array":
        gpuad.autodiff(compiled(text.replace("x[p[i]]", "x[i]"), "k"), 1, 8, (batch, batch, order, 4), mode=gpuad.Forward)
        x = y = np.s_[:4]
    else:
        gpuad.autodiff(kernel, 1, 8, (batch[:4], batch[4:], order, 4), mode=gpuad.Forward)
        x, y = np.s_[:4], np.s_[4:]
    np.testing.assert_array_equal(batch.primal[y], base[x] * base[y])
    for tangent, after in zip((first, second), batch.shadows, strict=True):
        np.testing.assert_array_equal(after[y], tangent[x] * base[y] + base[x] * tangent[y])


def test_threads_get_the_same_region() -> None:
    """Equal regions are one object: a pair whose region is another one would be refused."""
    together, made = threading.Barrier(4), [[None] * 1000 for _ in range(4)]

    def make(found: list[Any]) -> None:
        for i in range(len(found)):
            together.wait()
            found[i] = Region(np.array([[i * 7, i * 7 + 3], [i * 7 + 5, i * 7 + 6]], np.int64))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make, args=(found,)) for found in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(len(set(map(id, each))) == 1 for each in zip(*made, strict=True))


def test_threads_get_the_same_adjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a kernel's launches is known by the adjoint: one that is made in vain must not be used."""
    kernel = api.kernel('extern "C" __global__ void k(double* x) { x[threadIdx.x] = sin(x[threadIdx.x]); }', "k")
    x = numbers()
    pattern = pattern_of(kernel, kernel.bind(1, N, (x,), 0, None))
    real, others = kernels.reverse_of, []

    def reverse_of(*given: Any) -> Any:
        if not others:
            others.append(None)
            others[0] = kernel.reverse(pattern)  # as another thread may, in the meantime
        return real(*given)

    monkeypatch.setattr(kernels, "reverse_of", reverse_of)
    assert kernel.reverse(pattern) is others[0]


def _ten_times(dx: Any, dy: Any) -> None:
    dx += 10 * dy


@gpuad.rule(reads=("x",), overwrites=("y", "count"), reverse=_ten_times)
def _by_kernels(x: Any, y: Any, count: Any) -> None:
    launch("square_to", x, y)
    launch("flip", count)


def test_what_a_rule_launches_is_a_part_of_it() -> None:
    """Its launches on plain arrays would be refused, or made twice by a graph."""
    x, y, count, tape = numbers(), pair(np.zeros(N)), np.zeros(N, np.int32), gpuad.Tape()
    for turn in range(3):
        x.shadow[...] = 0
        with tape:
            _by_kernels(x, y, count)
        tape.reverse({y: 1.0})
        np.testing.assert_array_equal(y.primal, x.primal**2)
        np.testing.assert_array_equal(x.shadow, np.full(N, 10.0))
        assert (count == (turn + 1) % 2).all()
    with tape:
        _by_kernels(x, y, count)
    graph = tape.graph({y: 1.0})
    for turn in range(2):
        graph.launch()
        assert (count == (turn + 1) % 2).all()


def test_equality_is_a_mask_as_the_other_comparisons_are() -> None:
    """That two objects are not the same is no condition for `where`."""
    x, batch = pair([1.0, 2.0, 1.0]), BatchDuplicated(np.array([1.0, 2.0, 1.0]), (np.zeros(3),))
    seeds, tape = {x: 1.0, batch: 2.0}, gpuad.Tape()
    assert (seeds[x], seeds[batch]) == (1.0, 2.0) and x != "x"
    for mask in (x == 1, x == np.float64(1), batch == 1, np.equal(x, 1), np.array([1.0, 1.0, 1.0]) == x):
        np.testing.assert_array_equal(mask, [True, False, True])
    assert (Const(x.primal) == 1).tolist() == [True, False, True] and Active(0.5, np.zeros(())) == 0.5 != Active(0.25, np.zeros(()))
    for mask in (x != 1, np.float64(1) != x, batch != 1, np.not_equal(1, x)):
        np.testing.assert_array_equal(mask, [False, True, False])
    with tape:
        y = ops.where(x == 1, x * 2.0, x * 3.0)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(y.primal, [2.0, 6.0, 2.0])
    np.testing.assert_array_equal(x.shadow, [2.0, 3.0, 2.0])


def test_a_state_serves_the_activities_that_it_was_saved_for() -> None:
    """What only the gradient of another argument needs was not saved: it would be read as it is now, or not be there at all."""
    x, y, z = np.arange(1.0, 4.0), np.full(3, 5.0), np.zeros(3)
    augmented, reverse = gpuad.autodiff_thunk(cuda("product"), z=Duplicated, x=Duplicated)
    saved = augmented(1, 8, (z, x, y, 3))
    x[...] = 100
    shadows = np.ones(3), np.zeros(3), np.zeros(3)
    with pytest.raises(ShadowError, match="`y` has a shadow here, but was declared Const"):
        reverse(1, 8, (Duplicated(z, shadows[0]), Duplicated(x, shadows[1]), Duplicated(y, shadows[2]), 3), saved)
    assert shadows[0].all() and not shadows[1].any() and not shadows[2].any()
    reverse(1, 8, (Duplicated(z, shadows[0]), Duplicated(x, shadows[1]), y, 3), saved)
    np.testing.assert_array_equal(shadows[1], y)
    augmented, reverse = gpuad.autodiff_thunk(cuda("times"), x=Duplicated)
    saved = augmented(1, 8, (x, y, 3))
    with pytest.raises(ShadowError, match="`p` has a shadow here"):
        reverse(1, 8, (Duplicated(x, np.ones(3)), Duplicated(y, np.zeros(3)), 3), saved)


def test_a_state_serves_the_kernel_that_it_was_saved_for() -> None:
    x = np.arange(1.0, 4.0)
    augmented, _ = gpuad.autodiff_thunk(cuda("square"), Duplicated)
    _, reverse = gpuad.autodiff_thunk(cuda("sine"), Duplicated)
    saved = augmented(1, 8, (x, 3))
    with pytest.raises(LaunchError, match="another kernel"):
        reverse(1, 8, (Duplicated(x, np.ones(3)), 3), saved)


@pytest.mark.parametrize("mode", ["forward", "Forward", None, True])
def test_a_mode_is_one_of_two(mode: Any) -> None:
    """Anything else would be taken for the reverse."""
    x = numbers()
    with pytest.raises(LaunchError, match="mode is gpuad"):
        gpuad.autodiff(cuda("square"), 1, 8, (x, N), mode=mode)
    np.testing.assert_array_equal(x.primal, np.arange(1.0, N + 1))


def test_a_field_of_structs() -> None:
    """It is a pair of views, in array operations and beside a kernel that takes the structs; whole structs are refused there."""
    kind = np.dtype([("x", "f8"), ("k", "i4"), ("w", "f4")], align=True)
    k = gpuad.kernel(
        'struct P { double x; int k; float w; }; extern "C" __global__ void k(P* p) { int i = threadIdx.x; p[i].x *= p[i].w; }', "k"
    )
    p, dp = np.ones(3, kind), np.full(3, 9, kind)
    p["w"] = 3
    pair = Duplicated(p, dp)
    with gpuad.Tape() as tape:
        pair["x"] *= 2.0
        k[1, 3](pair)
        pair["x"][2:] = 5.0
        y = gpuad.ops.sum(pair["x"] * pair["x"])
        with pytest.raises(gpuad.UnsupportedError, match=r"not structs: name one of their fields, `U\['x'\]`"):
            pair[...] = Duplicated(np.zeros(3, kind), np.zeros(3, kind))
    tape.reverse({y: 1.0})
    assert dp["x"].tolist() == [72, 72, 0] and dp["w"].tolist() == [24, 24, 0] and dp["k"].tolist() == [9] * 3
    with pytest.raises(ValueError, match="no field of name"):
        pair["y"]


ELSEWHERE = ["nobody", "an open recording", "a reversed recording", "a seed", "an earlier recording of this tape", "autodiff"]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("read", ["launch", "operation", "rule"])
@pytest.mark.parametrize("met", ELSEWHERE)
def test_a_bare_array_is_judged_by_the_pairs_of_its_own_recording(met: str, read: str, given: bool) -> None:
    """It is a constant, whoever else has met its pair."""
    raw, y, w, tape = np.arange(1.0, N + 1), pair(np.zeros(N)), numbers(), gpuad.Tape()
    x = Duplicated(raw, np.zeros(N)) if given else Duplicated(raw)
    other = tape if met == "an earlier recording of this tape" else gpuad.Tape()
    if met == "autodiff":
        gpuad.autodiff(cuda("square_to"), 1, 8, (x, Duplicated(np.zeros(N), np.ones(N)), N))
    elif met != "nobody":
        with other:
            launch("square_to", *((w, x) if met == "a seed" else (x, y)))
        if met != "an open recording":
            other.reverse({x if met == "a seed" else y: 1.0})
        raw[...], w.shadow[...] = numbers().primal, 0.0
    before = x.shadow.copy()
    with tape:
        if read == "launch":
            launch("product", y, w, raw)
        elif read == "operation":
            y[...] = w * raw
        else:
            ops.cumsum(raw, out=raw.copy())
            y[...] = w * raw
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(w.shadow, raw)
    np.testing.assert_array_equal(x.shadow, before)


@pytest.mark.parametrize("met", ["before", "after", "by a view", "as a seed"])
@pytest.mark.parametrize("read", ["launch", "operation"])
def test_a_bare_array_whose_pair_its_own_recording_meets(met: str, read: str) -> None:
    x, y, w, z, tape = numbers(), pair(np.zeros(N)), numbers(), pair(np.zeros(N)), gpuad.Tape()

    def bare() -> None:
        if read == "launch":
            launch("product", y, w, x.primal)
        else:
            y[...] = w * x.primal

    with pytest.raises(ShadowError, match=r"[pP]ass the Duplicated"):
        with tape:
            if met == "before":
                launch("square_to", x, z)
            bare()
            if met == "after":
                launch("square_to", x, z)
            elif met == "by a view":
                ops.sum(x[1:2])
        tape.reverse({x: 1.0, y: 1.0})
