"""Who holds which bytes, from when to when and why, and what arrays are called: against the versions that a reversal finds."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from launch_tools import compiled, running
from nightly import cases
from tape_tools import launch, pair
from test_budget_random import held_launches, held_operations

import gpuad
from gpuad import Duplicated
from gpuad.budget import rounded
from gpuad.tape.array_names import array_names
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.memory_log import Event, Kind, What, listeners
from gpuad.tape.memory.version_finder import VersionFinder
from gpuad.tape.memory.versions import Versions

STEP = r"""
extern "C" __global__ void step(double* new_value, const double* old_value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        new_value[i] = 0.9 * old_value[i]
            * old_value[i];
}"""
N = 200


def loop(tape: gpuad.Tape, steps: int = 6, again: int = 2) -> Duplicated:
    u, v = pair(np.full(N, 0.5)), pair(np.zeros(N))
    for _ in range(again):
        with tape:
            now, new = u, v
            for _ in range(steps):
                compiled(STEP, "step")[-(-N // 64), 64](new, now, N)
                now, new = new, now
        tape.reverse({now: 1.0})
    assert set(row.name for row in tape.explain().rows) <= {"u", "v"}
    return now


# --- what is held ----------------------------------------------------------------------------------------------------------------------


def test_each_piece_has_its_reason_from_when_to_when() -> None:
    tape = gpuad.Tape()
    loop(tape, steps=6)
    found = tape.held()
    saved = [h for h in found.held if h.kind is Kind.saved]
    # operation t overwrites, from t = 2 on and of the first array at t = 1, what operation t - 1 has read; its adjoint is moment 12 - t
    assert [(h.begin, h.end) for h in sorted(saved, key=lambda h: h.begin)] == [(t, 2 * 6 - (t - 1)) for t in range(1, 6)]
    assert all(h.nbytes == rounded(8 * N) and h.added for h in saved)
    reason = saved[0].reason
    assert reason.startswith("needed by step (test_holding.py:") and "<source>:5:" in reason.partition("overwritten")[0]
    assert "overwritten by step (test_holding.py:" in reason and "<source>:5:" in reason.partition("overwritten")[2]
    assert [str(m).split(" (")[0] for m in found.moments] == ["run step"] * 6 + ["adjoint step"] * 6
    assert found.peak == 5 * rounded(8 * N)
    assert found.curve((Kind.saved,)) == [
        0,
        *(rounded(8 * N) * k for k in (1, 2, 3, 4, 5)),
        *(rounded(8 * N) * k for k in (5, 5, 4, 3, 2, 1)),
    ]
    assert [h.nbytes for h in found.at(8)][:1] == [rounded(8 * N)]


def test_the_callers_arrays_are_called_as_he_calls_them() -> None:
    tape, fields = gpuad.Tape(), {"u": pair(np.ones(N)), "v": pair(np.zeros(N))}
    with tape:
        compiled(STEP, "step")[4, 64](fields["v"], fields["u"], N)
    names = {(h.name, h.kind) for h in tape.held().held}
    assert names == {("fields['u']", Kind.primal), ("fields['v']", Kind.primal)} | {
        ("fields['u'].shadow", Kind.shadow), ("fields['v'].shadow", Kind.shadow)
    }  # fmt: skip


@pytest.mark.parametrize("budget", [4 * rounded(8 * N), 5 * rounded(8 * N)])
def test_a_scripts_bytes_are_those_of_its_memory(budget: int) -> None:
    """Buffers have lifetimes of their own in the layout: at each moment what is held fits, and at the peak it is all."""
    tape = gpuad.Tape(budget=budget)
    loop(tape, steps=12, again=3)
    found = tape.held()
    assert found.peak == recording_of(tape).most == recording_of(tape).memory.most <= budget
    kinds = {h.kind for h in found.held}
    assert Kind.checkpoint in kinds and any(m.what == "again" for m in found.moments)
    assert any("the state before operation" in h.reason for h in found.held)
    assert any("put back at the end" in h.reason for h in found.held)
    assert tape.held("1 GiB").peak == 11 * rounded(8 * N)  # as it would be if nothing ran again


@pytest.mark.one_of(4)
@pytest.mark.parametrize("number", range(cases(6, 12)))
@pytest.mark.parametrize("make", [held_launches, held_operations])
def test_random_programs_hold_pieces_as_long_as_a_reversal_finds_them(number: int, make: Any) -> None:
    """A reversal goes back through the versions and finds each piece where it needs it: the last time is when it is let go."""
    with running("host"):
        tape, play = gpuad.Tape(), make(number)
        play(tape)
        found = tape.held()
        n = len(recording_of(tape).operations)
        last: dict[int, int] = {}
        finder = VersionFinder(None, Versions())  # type: ignore[arg-type]
        for time in range(n - 1, -1, -1):
            operation = recording_of(tape).operations[time]
            finder.reach(operation, time)
            for use in (*operation.effects.before, *operation.effects.after):
                for _, piece in finder.sources(use, own=True):
                    if piece is not None:
                        last[id(piece)] = 2 * n - time
        pieces = [p for a in recording_of(tape).allocations.values() for p in a.pieces]
        held = [h for h in found.held if h.kind is Kind.saved][: len(pieces)]
        assert [(h.begin, h.nbytes) for h in held] == [(p.time, rounded(int(p.data.size))) for p in pieces]
        for h, piece in zip(held, pieces, strict=True):
            assert h.end == last.get(id(piece), h.end if h.needed_by is None else None), h


# --- names -----------------------------------------------------------------------------------------------------------------------------


class Model:
    """What a user may have."""

    def __init__(self) -> None:
        self.density = np.zeros(3)
        self.parts = [pair(np.zeros(2)), np.zeros(4)]


def test_names_are_variables_entries_and_attributes() -> None:
    model, table = Model(), {"a": np.zeros(5)}
    view = model.density[1:]
    x, const = pair(np.zeros(7)), gpuad.Const(np.zeros(2))
    found = array_names(sys._getframe())
    assert sorted(found.values()) == sorted(
        ["model.density", "model.parts[0]", "model.parts[0].shadow", "model.parts[1]", "table['a']", "x", "x.shadow", "const"]
    ), found
    assert view.base is model.density and x.has_shadow and const is not None and table


def test_a_name_that_holds_all_goes_before_one_that_holds_a_part() -> None:
    part = np.zeros(10)[2:5]
    whole = part.base
    assert list(array_names(sys._getframe()).values()) == ["whole"] and whole is not None


class Hidden:
    """Its objects have attributes that cannot be asked for, as a `typing.TypeVar` has from Python 3.12 on."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise AttributeError("__dict__")


class Unbound:
    """Stands for what is not there, as Flask's `request` does outside of one."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("working outside of a request")


class Nameless:
    """Its class does not say where it was defined."""

    __module__ = cast("str", None)
    __dict__ = cast("dict[str, Any]", None)


@pytest.mark.parametrize("odd", [Hidden, Unbound, Nameless, partial(TypeVar, "T")], ids=["hidden", "unbound", "nameless", "TypeVar"])
def test_names_are_found_beside_objects_that_hide_theirs(odd: Callable[[], object]) -> None:
    x, there, holds = pair(np.ones(N)), odd(), [odd()]
    tape = gpuad.Tape()
    with tape:
        launch("square", x)
    assert {row.name for row in tape.explain().rows} == {"x"}
    assert "x" in {h.name for h in tape.held().held}
    assert there is not None and holds


def test_looking_for_names_keeps_nothing_alive() -> None:
    array = np.zeros(3)
    gone = weakref.ref(array)
    assert "array" in array_names(sys._getframe()).values()
    array = np.zeros(1)
    gc.collect()
    assert gone() is None and array is not None


def test_looking_for_names_leaves_handles_as_they_are() -> None:
    tape, x = gpuad.Tape(), pair(np.ones(N))
    with tape:
        z = gpuad.ops.sin(x)
        (made,) = recording_of(tape).made.arrays.values()
        before = sys.getrefcount(made._shared())
        names = array_names(sys._getframe())
        after = sys.getrefcount(made._shared())
        assert "z" in names.values() and after == before
        launch("square", z)
    assert z is not None


# --- the log ---------------------------------------------------------------------------------------------------------------------------


def test_the_log_tells_what_is_taken_and_let_go() -> None:
    events: list[Event] = []
    listen = lambda event, _: events.append(event)  # noqa: E731
    listeners.append(listen)
    try:
        tape = gpuad.Tape(budget=4 * rounded(8 * N))
        loop(tape, steps=12, again=2)
        held = dict(recording_of(tape).memory.held)
    finally:
        listeners.remove(listen)
    phases = [e.what for e in events if e.kind is None]
    assert phases == [What.began, What.recorded, What.reversing, What.reversed] * 2
    sums = dict.fromkeys(Kind, 0)
    for e in events:
        if e.kind is not None:
            sums[e.kind] += e.nbytes if e.what is What.took else -e.nbytes
    assert sums == held and sum(held.values()) == recording_of(tape).memory.total > 0
    assert [e.seconds for e in events] == sorted(e.seconds for e in events)


def test_what_is_let_go_is_gone_from_the_log() -> None:
    tape = gpuad.Tape()
    loop(tape)
    log = recording_of(tape).memory
    assert log.total > 0
    del tape
    gc.collect()
    assert log.total == 0 and not any(log.held.values())


def test_a_failure_is_an_event() -> None:
    events: list[What] = []
    listen = lambda event, _: events.append(event.what)  # noqa: E731
    listeners.append(listen)
    try:
        with pytest.raises(ZeroDivisionError), gpuad.Tape():
            raise ZeroDivisionError
    finally:
        listeners.remove(listen)
    assert events == [What.began, What.failed]
