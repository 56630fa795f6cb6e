"""Memory runs out at every allocation of a program and its reverse, once: arrays are as operations left them, the error says what to do,
and the tape can be used again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from tape_tools import launch, pair

import gpuad
from gpuad.runtime import allocation
from gpuad.tape.reverse import reversal_plan
from gpuad.testing import failing_allocations

N = 64


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))
    with running("host"):
        yield


class Program:
    """Twenty operations: launches that overwrite what they need, a stack, atomics, temporaries, a swap."""

    def __init__(self, budget: Any) -> None:
        rng = np.random.default_rng(0)
        self.start = {"x": rng.uniform(0.2, 0.8, N), "y": rng.uniform(0.2, 0.8, N), "z": rng.uniform(0.2, 0.8, N)}
        self.pairs = {name: pair(value) for name, value in self.start.items()}
        self.index = rng.integers(0, N, N).astype(np.int32)
        self.counts = rng.integers(0, 4, N).astype(np.int32)
        self.tape = gpuad.Tape(budget=budget)
        self.passed = 0
        self.states: list[list[bytes]] = []  # after each operation

    def begin(self) -> None:
        for name, p in self.pairs.items():
            p.primal[...] = self.start[name]
            p.shadow.fill(0)

    def primals(self) -> list[bytes]:
        return [p.primal.tobytes() for p in self.pairs.values()]

    def steps(self) -> Iterator[Callable[[], Any]]:
        x, y, z = self.pairs.values()
        for _ in range(3):
            yield lambda: launch("square", x, n=N)
            yield lambda: launch("blend", z, x, y, n=N)
            yield lambda: launch("iterate", y, self.counts, n=N)
            yield lambda: launch("scatter", z, x, self.index, n=N)
            yield lambda: launch("sine", x, n=N)
        yield lambda: launch("exchange", x, y, n=N)
        yield lambda: gpuad.ops.copyto(z, gpuad.ops.sin(x) * y)
        yield lambda: launch("times", z, x, n=N)
        yield lambda: launch("product", y, x, z, n=N)
        yield lambda: launch("decay", y, n=N)

    def record(self, note: bool = False) -> None:
        self.passed = 0
        with self.tape:
            for step in self.steps():
                step()
                self.passed += 1
                if note:
                    self.states.append(self.primals())

    def reverse(self) -> list[bytes]:
        self.tape.reverse({self.pairs["y"]: 1.0})
        return [p.shadow.tobytes() for p in self.pairs.values()]

    def play(self) -> list[bytes]:
        self.begin()
        self.record()
        return self.reverse()


@pytest.fixture(scope="module")
def oracle() -> Any:
    """The states after each operation, and the gradient."""
    with running("host"):
        program = Program(None)
        program.begin()
        first = program.primals()
        program.record(note=True)
        return [first, *program.states], program.reverse()


BUDGETS = [None, "1 GiB", 24 * 512 + 16 * 512]


@pytest.mark.one_of(2)
@pytest.mark.filterwarnings("ignore:gpuad. there is no memory for:RuntimeWarning")  # a tape with a budget plans anew
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("when", ["first", "again"])
def test_each_allocation_fails_once(budget: Any, when: str, oracle: Any) -> None:
    """In a first recording and its reverse, and in those of a program that is known."""
    states, gradient = oracle
    k, seen = 0, 0
    while True:
        program = Program(budget)
        if when == "again":
            assert program.play() == gradient
        program.begin()
        with failing_allocations(k) as failing:
            try:
                program.record()
                recorded = True
                found = program.reverse()
                assert found == gradient and program.primals() == states[-1]
                if not failing.failed:
                    break
                note = "planned anew within what there is"
            except MemoryError as error:
                (note,) = error.__notes__
                assert "the tape had" in note and "gpuad.Tape(budget=...)" in note, note
                recorded = program.passed == len(states) - 1
            except gpuad.GpuadError as error:
                assert "out of memory" in str(error) or "memory" in str(error), error
                recorded, note = program.passed == len(states) - 1, ""
        seen += 1
        assert failing.failed
        assert program.primals() == states[program.passed], (k, program.passed)
        if recorded and "No shadow was touched" in note:
            assert not any(p.shadow.any() for p in program.pairs.values())
            assert program.reverse() == gradient, k
        assert program.play() == gradient, k  # the tape can be used again
        assert program.primals() == states[-1]
        k += 1
    assert seen == k >= (5 if when == "first" else 0)
    assert not allocation.gates


def test_counting() -> None:
    with failing_allocations(-1) as failing:
        Program(None).play()
    assert failing.count >= 5 and not failing.failed


def test_the_callers_own_memory_error_is_his() -> None:
    with pytest.raises(MemoryError) as error, gpuad.Tape():
        raise MemoryError("mine")
    assert error.value.args == ("mine",)
