"""Seeds that are read where the caller has them: where an adjoint takes them, and only there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases
from tape_tools import launch, pair
from test_trace_replay import N, content, fill, fresh, play, random_step

import gpuad
from gpuad import Active, LaunchError, TapeError
from gpuad.program.ir.region import span
from gpuad.runtime.base import Memory
from gpuad.tape.facade import recording_of
from gpuad.tape.reverse.in_place_seeds import Placed, placed

Held = dict[str, Any]


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with running("reference"):
        yield


def held() -> Held:
    rng = np.random.default_rng(5)
    made: Held = {name: pair(rng.uniform(0.2, 0.9, N)) for name in "abc"}
    return made | {"s": rng.standard_normal(N), "t": rng.standard_normal(N), "d": np.zeros(())}


def taken(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["b"]: h["s"]}


def taken_in_parts(h: Held) -> Any:
    launch("half_square", h["b"][:5], h["a"][:5])
    launch("half_square", h["b"][5:], h["a"][5:])
    return {h["b"]: h["s"]}


def taken_in_part(h: Held) -> Any:
    launch("half_square_inside", h["b"], h["a"])
    return {h["b"]: h["s"]}


def taken_then_added_to(h: Held) -> Any:
    launch("sine", h["b"])
    launch("half_square", h["a"], h["b"])
    launch("half_square", h["b"], h["a"])
    return {h["b"]: h["s"]}


def changed_in_place(h: Held) -> Any:
    launch("sine", h["b"])
    return {h["b"]: h["s"]}


def only_read(h: Held) -> Any:
    launch("axpy", h["b"], h["a"], Active(0.3, h["d"]))
    return {h["b"]: h["s"]}


def read_then_taken(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    launch("axpy", h["b"], h["a"], 0.3)
    return {h["b"]: h["s"]}


def taken_and_added_to(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    launch("blend", h["c"], h["a"], h["b"])
    return {h["c"]: h["s"], h["b"]: h["t"]}


def of_what_is_read(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["a"]: h["s"], h["b"]: h["s"]}


def of_what_nothing_touches(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    launch("fill", h["c"][:3], 0.5)
    return {h["c"][3:]: h["s"][3:], h["b"]: h["t"]}


def of_a_part(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["b"][2:9]: h["s"][2:9]}


def of_two_parts(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["b"][2:9]: h["s"][2:9], h["b"][9:]: h["t"][9:]}


def backwards(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["b"]: h["s"][::-1]}


def one_for_two(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    launch("half_square", h["c"], h["b"])
    return {h["b"]: h["s"], h["c"]: h["s"]}


def stencils(h: Held) -> Any:
    launch("stencil", h["b"], h["a"])
    launch("stencil", h["c"], h["b"])
    return {h["c"]: h["s"]}


def the_array_itself(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    return {h["b"]: h["b"].primal}


def another_array_that_is_overwritten(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    launch("fill", h["a"], 0.25)
    return {h["b"]: h["a"].primal}


def by_data(h: Held) -> Any:
    launch("scatter", h["b"], h["a"], (np.arange(N, dtype=np.int32) * 5) % N)
    return {h["b"]: h["s"]}


def operations(h: Held) -> Any:
    h["b"] += h["a"]
    gpuad.ops.exp(h["b"], out=h["c"])
    return {h["c"]: h["s"], h["b"]: h["t"]}


def overwritten_by_others(h: Held) -> Any:
    launch("half_square", h["b"], h["a"])
    tape = gpuad.arguments.recorder.current.get()
    assert tape is not None
    tape.overwrites(h["b"][:4])
    h["b"].primal[:4] = 0.1
    return {h["b"]: h["s"]}


def exchanged(h: Held) -> Any:
    launch("exchange", h["a"], h["b"])
    launch("half_square", h["c"], h["a"])
    return {h["c"]: h["s"], h["b"]: h["t"]}


PROGRAMS: dict[str, tuple[Callable[[Held], Any], int]] = {  # and how many seeds are never copied
    f.__name__: (f, count)
    for f, count in (
        (taken, 1), (taken_in_parts, 1), (taken_in_part, 0), (taken_then_added_to, 1), (changed_in_place, 0), (only_read, 0),
        (read_then_taken, 1), (taken_and_added_to, 0), (of_what_is_read, 1), (of_what_nothing_touches, 1), (of_a_part, 0),
        (of_two_parts, 0), (backwards, 0), (one_for_two, 1), (stencils, 0), (the_array_itself, 1), (another_array_that_is_overwritten, 1),
        (by_data, 0), (operations, 1), (overwritten_by_others, 0), (exchanged, 1),
    )
}  # fmt: skip


def begin(h: Held, run: int) -> None:
    rng = np.random.default_rng(run)
    for x in h.values():
        if x is h["d"]:
            x.fill(0)
            continue
        for array in (x,) if isinstance(x, np.ndarray) else (x.primal, x.shadow):
            array[...] = rng.uniform(0.2, 0.9, N)


def after(h: Held) -> list[Any]:
    return [a.copy() for x in h.values() for a in ((x,) if isinstance(x, np.ndarray) else (x.primal, x.shadow))]


def recorded(tape: gpuad.Tape, program: Callable[[Held], Any], h: Held) -> Any:
    with tape:
        return program(h)


def copied(monkeypatch: pytest.MonkeyPatch) -> list[Placed]:
    """The seeds that a plan copies after all."""
    found: list[Placed] = []
    action = Placed.action

    def noted(self: Placed) -> Any:
        found.append(self)
        return action(self)

    monkeypatch.setattr(Placed, "action", noted)
    return found


@pytest.mark.one_of(4)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_seeds_that_are_kept(name: str, restore: bool, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arrays as seeds, with other content each time, do what they do the first time; so does a graph."""
    program, apart = PROGRAMS[name]
    with running(executor):
        tape, h, seeds, late = gpuad.Tape(restore=restore), held(), None, copied(monkeypatch)
        wanted: dict[int, list[Any]] = {}
        for run in range(4):
            other = held()
            begin(other, run)
            new = gpuad.Tape(restore=restore)
            new.reverse(recorded(new, program, other))
            wanted[run] = after(other)
            assert not late
        for run in range(4):
            begin(h, run)
            made = recorded(tape, program, h)
            if seeds is None:
                seeds = made
            tape.reverse(seeds)
            for a, b in zip(after(h), wanted[run], strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"run {run}")
        plans = [p for p in recording_of(tape).reversals.plans.values() if p.placed]
        assert sum(len(p.placed) for p in plans) - len(late) == apart
        if program is overwritten_by_others:  # no graph repeats that
            return
        graph = tape.graph(seeds)
        for run in (3, 1):
            begin(h, run)
            graph.launch()
            for a, b in zip(after(h), wanted[run], strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"graph, run {run}")


def test_nothing_is_written_to_a_seed_nor_to_its_shadow() -> None:
    tape, h = gpuad.Tape(), held()
    for run in range(3):
        begin(h, run)
        recorded(tape, taken, h)
        h["s"].flags.writeable = run == 0
        tape.reverse({h["b"]: h["s"]})
        h["s"].flags.writeable = True
        assert not h["b"].shadow.any()
    (plan,) = (p for p in recording_of(tape).reversals.plans.values() if p.placed)
    assert len(plan.placed) == 1


def test_seeds_that_change_are_copied() -> None:
    """Made anew each time, a number, or in turn: what is planned for one array is not done with another."""
    tape, h = gpuad.Tape(), held()
    same = np.full(N, 2.0)
    for run, seed in enumerate((same, same, np.full(N, 3.0), 4.0, same, np.full(N, 5.0), same, same, np.float64(2.0))):
        begin(h, run)
        h["a"].shadow[...] = 0
        recorded(tape, taken, h)
        tape.reverse({h["b"]: seed})
        np.testing.assert_allclose(h["a"].shadow, h["a"].primal * seed, rtol=1e-14)
    assert len([p for p in recording_of(tape).reversals.plans.values() if p.placed]) == 1


def test_many_seeds_in_turn_are_copied() -> None:
    """So that a tape does not plan, and keep arrays alive, without end."""
    tape, h = gpuad.Tape(), held()
    for k in range(20):
        seed = np.full(N, float(k))
        for _ in range(2):
            begin(h, k)
            h["a"].shadow[...] = 0
            recorded(tape, taken, h)
            tape.reverse({h["b"]: seed})
            np.testing.assert_allclose(h["a"].shadow, h["a"].primal * seed, rtol=1e-14)
    assert len([p for p in recording_of(tape).reversals.plans.values() if p.placed]) == 8


def test_a_seed_in_a_shadow_is_copied_first() -> None:
    tape, h = gpuad.Tape(), held()
    for run in range(3):
        begin(h, run)
        seed = h["a"].shadow
        wanted = seed + h["a"].primal * seed
        recorded(tape, taken, h)
        tape.reverse({h["b"]: seed})
        np.testing.assert_allclose(h["a"].shadow, wanted, rtol=1e-14)
    with pytest.raises(TapeError, match="lies in a shadow"):
        tape.graph({h["b"]: h["a"].shadow})
    assert not any(p.placed for p in recording_of(tape).reversals.plans.values())


def test_a_seed_in_the_shadow_of_a_number_is_copied_first() -> None:
    """It is changed while the seed would be read."""
    tape, h, both = gpuad.Tape(), held(), np.zeros(N)
    for run in range(3):
        begin(h, run)
        both[...] = h["s"]
        before = both.copy()
        h["a"].shadow[...] = 0
        with tape:
            launch("scale", h["b"], Active(0.5, both[3:4]))
            launch("axpy", h["b"], h["a"], Active(0.5, both[3:4]))
        old = h["b"].primal - 0.5 * h["a"].primal
        tape.reverse({h["b"]: both})
        np.testing.assert_allclose(h["a"].shadow, 0.5 * before, rtol=1e-14)
        np.testing.assert_allclose(h["b"].shadow, 0.5 * before, rtol=1e-14)
        np.testing.assert_allclose(both[3], before[3] + (before * (h["a"].primal + 2 * old)).sum(), rtol=1e-12)
    assert not any(p.placed for p in recording_of(tape).reversals.plans.values())


def test_a_failure_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    tape, h = gpuad.Tape(), held()
    for run in range(2):
        begin(h, run)
        recorded(tape, stencils, h)
        tape.reverse({h["c"]: h["s"]})

    def fail(*_: Any) -> None:
        raise LaunchError("no")

    recorded(tape, stencils, h)
    with monkeypatch.context() as patch:
        patch.setattr("gpuad.tape.program_recording.perform", fail)
        with pytest.raises(LaunchError):
            tape.reverse({h["c"]: h["s"]})
    with pytest.raises(TapeError, match="undefined"):
        tape.reverse({h["c"]: h["s"]})
    for run in range(2):
        other, new = held(), gpuad.Tape()
        for which, arrays in ((tape, h), (new, other)):
            begin(arrays, run)
            recorded(which, stencils, arrays)
            which.reverse({arrays["c"]: arrays["s"]})
        for a, b in zip(after(h), after(other), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("seed", range(cases(6, 16)))
def test_random_programs(seed: int) -> None:
    """Seeds that are kept, on a tape that is used again, and on a new one."""
    r = random.Random(seed)
    restore = r.random() < 0.3
    tape, arrays, seeds = gpuad.Tape(restore=restore), fresh(seed), {name: np.zeros(N) for name in "abc"}
    steps, keys = [random_step(r) for _ in range(r.randrange(1, 8))], r.sample("abc", r.randrange(1, 4))
    for run in range(4):
        start, other, new = fresh(100 * seed + run), fresh(100 * seed + run), gpuad.Tape(restore=restore)
        fill(arrays, start)
        for name in "abc":
            seeds[name][...] = np.random.default_rng(run).standard_normal(N)
        results = []
        for which, h in ((tape, arrays), (new, other)):
            for name in "abc":
                h[name].shadow[...] = 0.0
            try:
                with which:
                    launch("add", h["a"], h["b"], h["c"])
                    play(which, steps, h)
                which.reverse({h[name]: seeds[name] for name in keys})
            except gpuad.GpuadError as error:
                results.append([type(error)])
                break
            results.append(content(h))
        assert results[0] == results[-1], f"run {run}: {steps} {keys}"


# --- which seeds -------------------------------------------------------------------------------------------------------------------------


def test_arrays_that_are_laid_out_like_the_shadow() -> None:
    shadow, root = np.zeros((3, 4)), np.zeros(12)
    whole = span(0, 12)
    assert placed(shadow, np.zeros((3, 4)), root, whole) is not None
    others = [2.0, np.zeros((4, 3)), np.zeros((3, 4), np.float32), np.zeros((3, 4), order="F"), np.zeros((6, 4))[::2], np.zeros(12)]
    others.append(np.frombuffer(bytes(97), np.uint8)[1:].view(np.float64).reshape(3, 4))  # not aligned
    assert all(placed(shadow, seed, root, whole) is None for seed in others)
    assert placed(shadow, np.zeros((3, 4)), root, span(0, 5) | span(6, 13)) is None
    assert placed(np.zeros((4, 3)).T, np.zeros((3, 4)), root, whole) is None


def test_a_pointer_into_a_seed_stays_in_its_allocation() -> None:
    root, room = np.zeros(12), np.zeros(9)
    one = Placed(root, 4, 12, Memory(room, 1), span(4, 12))
    pointer = one.at(4)
    assert pointer is not None and pointer.root is room and pointer.offset == 1
    assert one.at(2) is None and one.at(3) is not None and one.at(13) is None


def test_a_batch_of_shadows() -> None:
    x, y = np.zeros(N), np.zeros(N)
    dx, dy, seeds = (tuple(np.zeros(N) for _ in range(2)) for _ in range(3))
    a, b, tape = gpuad.BatchDuplicated(x, dx), gpuad.BatchDuplicated(y, dy), gpuad.Tape()
    for run in range(4):
        rng = np.random.default_rng(run)
        x[...] = rng.uniform(0.2, 0.9, N)
        for k in range(2):
            dx[k][...], seeds[k][...] = 0, rng.standard_normal(N)
        with tape:
            launch("half_square", b, a)
        tape.reverse({b: seeds})
        for k in range(2):
            np.testing.assert_allclose(dx[k], x * seeds[k], rtol=1e-14)
            assert not dy[k].any()
