"""Random programs under random budgets: the bits of a tape without one, or a BudgetError whose smallest budget works and one byte less does
not.

The programs are those of tests/gradients: launches that overwrite views, swaps, temporaries, atomics, stacks, integer indices that change
on the way, code that the tape does not see; and array operations with rules, complex numbers and single precision. Each is recorded three
times on the same arrays, since a tape knows its schedule from the second time on. GPUAD_NIGHTLY is the number of programs of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import test_random_ops as operations
import test_random_programs as launches
from tape_tools import running

import gpuad
from gpuad import Active, BudgetError, Duplicated
from gpuad.tape.facade import recording_of
from gpuad.tape.record.operations import Foreign
from gpuad.tape.reverse import reversal_plan

NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY") or 0)
CHUNK = 1


@pytest.fixture(autouse=True)
def nothing_is_joined(launches_are_joined_at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that were joined add up a sum in another order: a tape with a budget joins none."""
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))


Outcome = list[bytes]
Play = Callable[[gpuad.Tape], Outcome]


def held_launches(number: int) -> Play:
    """A program of launches on arrays of its own, to be played again and again."""
    steps, inputs, seeds = launches.program(number)
    pairs: dict[str, Any] = {}
    for name, value in inputs.items():
        array = np.array(value)
        paired = Duplicated(array, np.zeros_like(array)) if array.dtype.kind == "f" else array
        pairs[name] = Active(value, np.zeros(())) if isinstance(value, float) else paired

    def play(tape: gpuad.Tape) -> Outcome:
        for name, value in inputs.items():
            if not isinstance(value, float):
                getattr(pairs[name], "primal", pairs[name])[...] = value
        shadows = {n: p.shadow for n, p in pairs.items() if isinstance(p, Duplicated | Active)}
        with tape:
            launches.record(steps)(tape, pairs)
        for n, shadow in shadows.items():
            shadow[...] = seeds.get(n, 0.1)
        tape.reverse(allow_unused=True)
        primals = [getattr(p, "primal", p) for n, p in pairs.items() if n != "c"]
        return [a.tobytes() for a in (*primals, *shadows.values())]

    return play


def held_operations(number: int) -> Play:
    """The same of a program of array operations."""
    r = np.random.default_rng(number)
    program = [(sorted(operations.STEPS)[r.integers(len(operations.STEPS))], int(r.integers(1 << 31))) for _ in range(operations.LENGTH)]
    kinds: dict[str, Any] = {**dict.fromkeys("abc", float), "z": complex, "f": np.float32}

    def like(kind: Any) -> Any:
        real = r.uniform(-1, 1, (4, 4))
        return (real + 1j * r.uniform(-1, 1, (4, 4)) if kind is complex else real).astype(kind)

    start, weights = ({n: like(k) for n, k in kinds.items()} for _ in range(2))
    shadows = np.zeros(()), np.zeros(())
    s0 = operations.given(start, lambda x: Duplicated(x, np.zeros_like(x)), Active(0.4, shadows[0]), Active(0.9, shadows[1]))

    def play(tape: gpuad.Tape) -> Outcome:
        for n in operations.NAMES:
            s0[n].primal[...] = start[n]
            s0[n].shadow[...] = 0
        s0["weights"][...], s0["index"][...] = 1, 0
        for shadow in shadows:
            shadow[...] = 0
        s = dict(s0)
        with tape:
            operations.execute(program, s, tape)
        operations.seeded("seeds", tape, s, weights)
        return [a.tobytes() for n in operations.NAMES for a in (s0[n].primal, s0[n].shadow)] + [a.tobytes() for a in shadows]

    return play


def tried(made: Callable[[], Play], rng: Any, what: str) -> None:
    """A program under budgets from the smallest to more than enough."""
    free = made()
    tape = gpuad.Tape()
    wanted = [free(tape) for _ in range(3)]
    smallest, none = 0, gpuad.Tape(budget=0)
    try:
        made()(none)
    except BudgetError as error:
        assert error.smallest, f"{what}: {error}"
        smallest = error.smallest
    exact = not recording_of(none).within.planner.kept  # else it is not known in time that results need not be kept
    if smallest and exact:
        with pytest.raises(BudgetError):
            made()(gpuad.Tape(budget=smallest - 1))
    for factor in (1.0, *rng.uniform(1.0, 4.0, 3)):
        budget, play = int(smallest * factor), made()
        tape = gpuad.Tape(budget=budget)
        for turn, result in enumerate(wanted):
            found = play(tape)
            assert found == result, f"{what}, budget {budget} ({factor} of {smallest}), recording {turn}: other bits"
            inside = recording_of(tape)
            assert inside.most <= budget, f"{what}: {inside.most} of {budget} bytes"
            if not any(isinstance(op, Foreign) for op in inside.operations):  # what it wrote last is set aside while others run once more
                assert inside.memory.most <= budget, f"{what}: {inside.memory.most} of {budget} bytes by the log of all memory"


@pytest.mark.parametrize("chunk", range(-(-(NIGHTLY or 1) // CHUNK)))
def test_random_launches(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        with running("host" if number % 2 else "reference"), np.errstate(all="ignore"):
            tried(lambda n=number: held_launches(n), np.random.default_rng(number), f"program {number}")


@pytest.mark.parametrize("chunk", range(-(-(NIGHTLY or 1) // CHUNK)))
def test_random_operations(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        with running("host"), np.errstate(all="ignore"):
            tried(lambda n=number: held_operations(n), np.random.default_rng(number), f"operations {number}")
