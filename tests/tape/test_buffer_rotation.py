"""In a graph a launch writes the next state to where it will be kept: same results, without the copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import NIGHTLY, cases
from test_interior_box import NX, Run, kernel

import gpuad
from gpuad import Duplicated
from gpuad.runtime.actions import Copying
from gpuad.tape.facade import recording_of
from gpuad.tape.record.recorded_launch import Kept
from gpuad.tape.replay.buffer_rotation import redirected
from gpuad.tools.cases import kernel_folder

SIDE = 80
STEPS = 5


def copies(graph: Any, least: int) -> int:
    """How many copies of so many bytes the program makes, apart from launches."""
    return sum(isinstance(action, Copying) and action.target.nbytes >= least for action, _, _ in graph._parts["forward"])


def steps(u: Any, v: Any, start: Any, name: str = "fisher_kpp") -> Any:
    """A field goes to the other and back; both begin as a copy."""
    made = gpuad.kernel(kernel_folder() / f"{name}.cu", name)
    for field in (u, v):
        gpuad.ops.copyto(field, start)
    for _ in range(STEPS):
        made[(5, 10), (16, 8)](v, u, 0.2, 0.1, SIDE)
        u, v = v, u
    return u


def new(seed: int) -> tuple[Duplicated, ...]:
    start = np.random.default_rng(seed).uniform(size=(SIDE, SIDE)).astype(np.float32)
    return Duplicated(np.zeros_like(start)), Duplicated(np.zeros_like(start)), Duplicated(start, np.zeros_like(start))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_states_are_written_to_where_they_are_kept(executor: str) -> None:
    """The first state alone is copied, since it is in the user's array; the last one is there again."""
    with running(executor):
        fields, tape = new(0), gpuad.Tape()
        with tape:
            last = steps(*fields)
        saved = tape.stats.saved_bytes
        graph = tape.graph({last: 1.0})
        assert saved >= (STEPS - 1) * (SIDE - 2) ** 2 * 4
        assert copies(graph, (SIDE - 2) ** 2 * 4) == 2, "the first state of each field"
        for seed in (1, 2, 1):  # other borders, too
            others, usual = new(seed), gpuad.Tape()
            with usual:
                end = steps(*others)
            usual.reverse({end: 1.0})
            fields[2].primal[...], fields[2].shadow[...] = new(seed)[2].primal, 0
            graph.launch()
            for mine, other in zip(fields, others, strict=True):
                np.testing.assert_array_equal(mine.primal, other.primal)
                np.testing.assert_array_equal(mine.shadow, other.shadow)


def test_a_program_that_leaves_its_last_state_to_be_seen() -> None:
    with running("reference"):
        fields, tape = new(0), gpuad.Tape()
        with tape:
            last = steps(*fields)
        graph = tape.graph()
        wanted = [f.primal.copy() for f in fields]
        for field in fields[:2]:
            field.primal[...] = np.nan
        graph.forward()
        for field, primal in zip(fields, wanted, strict=True):
            np.testing.assert_array_equal(field.primal, primal)
        last.shadow[...] = 1
        graph.reverse()


def test_what_is_read_again_when_something_else_is_overwritten_stays_where_it_is() -> None:
    """Values that are kept in place of memory are computed from a launch's arguments, steps after it."""
    with running("reference"):
        fields, tape = new(0), gpuad.Tape()
        with tape:
            steps(*fields)
        assert redirected(recording_of(tape))
        operation: Any = recording_of(tape).operations[3]
        recording_of(tape).trace.change(3, operation=replace(operation, kept=Kept("", 4, 5)))
        assert not redirected(recording_of(tape))


BATCH = 10 if NIGHTLY else 4


@pytest.mark.parametrize("first", range(0, cases(BATCH, 60), BATCH))
def test_random_programs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stencils over part of a field, in place, views, three fields: by a graph as by a tape, however much has to be copied along."""
    monkeypatch.setattr("gpuad.tape.memory.versions.GAPS", 10)
    monkeypatch.setattr("gpuad.tape.replay.buffer_rotation._LITTLE", 10)
    elsewhere = 0
    for number in range(first, first + BATCH):
        run = Run(number)
        held, other = run.fields(), run.fields()
        with running("reference"):
            tape, usual = gpuad.Tape(), gpuad.Tape()
            record(run, held, tape)
            graph = tape.graph({held[run.steps[0][1][0]]: 0.5})
            for k, (mine, theirs) in enumerate(zip(held, run.fields(), strict=True)):
                mine.primal[...], mine.shadow[...] = theirs.primal + 0.1 * k, theirs.shadow
                other[k].primal[...], other[k].shadow[...] = theirs.primal + 0.1 * k, theirs.shadow
            elsewhere += len(redirected(recording_of(tape)))
            graph.launch()
            record(run, other, usual)
            usual.reverse({other[run.steps[0][1][0]]: 0.5})
        for mine, theirs in zip(held, other, strict=True):
            np.testing.assert_array_equal(mine.primal, theirs.primal, err_msg=f"program {number}: {run.steps}")
            np.testing.assert_array_equal(mine.shadow, theirs.shadow, err_msg=f"program {number}: {run.steps}")
    assert elsewhere > BATCH


def record(run: Run, fields: Any, tape: gpuad.Tape) -> None:
    with tape:
        for name, picked, box in run.steps * 2:
            kernel(name)[run.grid, run.block](*(fields[k] for k in picked), NX, *box)
