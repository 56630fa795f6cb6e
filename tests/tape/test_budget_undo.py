"""Launches that are taken back within a budget, in place of what they overwrite: the same bits, in fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled
from nightly import cases

import gpuad
from gpuad import Duplicated, TapeError
from gpuad.tape.budget import planner, rerun
from gpuad.tape.budget.script import Undo
from gpuad.tape.facade import recording_of
from gpuad.tape.reverse import reversal_plan

pytest.importorskip("islpy")
SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define K extern "C" __global__ void
K gather(double* y, const double* x, int n) { I; if (i < n) y[i] += 0.1 * x[i] * x[i]; }
K negate(double* x, int n) { I; if (i < n) x[i] = -x[i]; }
K flip(double* x, int n) { I; if (i < n / 2) { double t = x[i]; x[i] = x[n - 1 - i]; x[n - 1 - i] = t; } }
K swap(double* x, double* w, int n) { I; if (i < n) { double t = x[i]; x[i] = w[i]; w[i] = -t; } }
K square(double* x, int n) { I; if (i < n) x[i] = x[i] * x[i] * 0.9 + 0.05; }
K next(int* at, int s, int n) { I; if (i < n) at[i] = s - at[i]; }
K taken(double* y, const double* x, const int* at, int n) { I; if (i < n) y[i] = x[at[i]] * y[i]; }
"""
N, STEPS = 256, 48
BYTES = 2048


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


class Program:
    """Launches by name, on arrays of their own."""

    def __init__(self, names: list[str], budget: Any = None, **options: Any) -> None:
        rng = np.random.default_rng(0)
        self.names, self.start = names, [rng.uniform(0.1, 0.9, N) for _ in range(3)]
        self.x, self.y, self.w = (Duplicated(a.copy(), np.zeros(N)) for a in self.start)
        self.at = np.arange(N, dtype=np.int32)
        self.tape = gpuad.Tape(budget=budget, **options)

    def record(self) -> None:
        for pair, start in zip((self.x, self.y, self.w), self.start, strict=True):
            pair.primal[...] = start
        self.at[...] = np.arange(N)
        arguments: dict[str, Any] = {
            "gather": (self.y, self.x, N), "negate": (self.x, N), "flip": (self.x, N), "swap": (self.x, self.w, N), "square": (self.x, N),
            "next": (self.at, N - 1, N), "taken": (self.y, self.x, self.at, N),
        }  # fmt: skip
        with self.tape:
            for name in self.names:
                compiled(SOURCE, name)[N // 64, 64](*arguments[name])

    def run(self) -> list[bytes]:
        self.record()
        self.tape.reverse({self.y: 1.0, self.x: 0.5, **({self.w: 0.25} if "swap" in self.names else {})})
        return [*(a.tobytes() for p in (self.x, self.y, self.w) for a in (p.primal, p.shadow)), self.at.tobytes()]

    @property
    def undone(self) -> int:
        script = recording_of(self.tape).within.script  # type: ignore[union-attr]
        return sum(isinstance(item, Undo) for item in script.script.reversal) if script is not None else 0


LOOPS = {
    "negate": ["gather", "negate"], "flip": ["gather", "flip"], "swap": ["gather", "swap", "gather"],
    "mixed": ["gather", "negate", "gather", "flip", "square", "gather", "swap"], "integers": ["gather", "taken", "next"],
    "only some": ["gather", "square", "gather", "negate"],
}  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", LOOPS)
def test_bits_are_those_without_a_budget_and_those_without_taking_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = LOOPS[name] * (STEPS // len(LOOPS[name]))
    free = Program(names)
    wanted = [free.run() for _ in range(3)]
    undone = 0
    for share in (10, 12, 16, 24):
        with_it, without = Program(names, BYTES * share), Program(names, BYTES * share)
        for bits in wanted:
            assert with_it.run() == bits
            assert max(recording_of(with_it.tape).most, recording_of(with_it.tape).memory.most) <= BYTES * share
        undone += with_it.undone
        with monkeypatch.context() as patch:
            patch.setattr(rerun, "inverse", lambda kernel: None)
            patch.setattr(planner.Planner, "undoes", False)
            for bits in wanted:
                assert without.run() == bits
            assert without.undone == 0
            assert with_it.tape.plan().work <= without.tape.plan().work
    assert undone > 0


def test_a_loop_of_exact_steps_takes_what_one_state_does() -> None:
    """Nothing is kept of any step, and nothing runs again: the state at the beginning, and what is put back at the end, are all."""
    names = LOOPS["negate"] * 50
    program, free = Program(names, BYTES * 5), Program(names)
    for _ in range(3):
        assert program.run() == free.run()
    plan = program.tape.plan()
    assert plan.reruns == 0 and plan.peak <= 3 * BYTES and program.undone == 50
    assert free.tape.stats.saved_bytes >= 49 * BYTES
    text = str(program.tape.explain())
    assert "undo       50 of `negate`, which is exact in bits" in text
    assert any(p.peak == plan.peak and p.reruns == 0 for p in program.tape.tradeoff().points)
    assert free.tape.plan(BYTES * 5).peak == plan.peak


def test_a_failure_puts_back_what_the_program_left(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(LOOPS["swap"] * 10, BYTES * 8)
    program.run()
    wanted = program.run()
    assert program.undone
    program.record()
    _, plan = recording_of(program.tape).reversals.planned({program.y: 1.0})
    broken = list(plan.again or plan.actions)

    def fail() -> None:
        raise RuntimeError("in the middle")

    broken[len(broken) // 2] = fail
    monkeypatch.setattr(type(plan), "now", lambda self, executor: tuple(broken))
    with pytest.raises(RuntimeError, match="in the middle"):
        program.tape.reverse({program.y: 1.0})
    assert [p.primal.tobytes() for p in (program.x, program.y, program.w)] == [wanted[0], wanted[2], wanted[4]]
    monkeypatch.undo()
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))
    assert program.run() == wanted


def test_what_is_taken_back_has_to_be_as_the_program_left_it() -> None:
    program = Program(LOOPS["negate"] * 20, BYTES * 5)
    program.run()
    program.record()
    program.x.primal[3] += 1.0
    with pytest.raises(TapeError, match="was changed between the recording and the reverse"):
        program.tape.reverse({program.y: 1.0})


def test_where_the_initial_state_is_wanted_nothing_is_taken_back() -> None:
    names = LOOPS["negate"] * 15
    program, free = Program(names, BYTES * 14, restore=True), Program(names, restore=True)
    for _ in range(3):
        assert program.run() == free.run()
        assert program.undone == 0 and program.x.primal.tobytes() == program.start[0].tobytes()


def test_views_that_overlap_are_not_taken_back() -> None:
    """Two arguments that share memory: the kernel for them is another one."""
    results = []
    for budget in (None, BYTES * 12):
        a = Duplicated(np.linspace(0.1, 1, 2 * N), np.zeros(2 * N))
        y, tape = Duplicated(np.zeros(N), np.zeros(N)), gpuad.Tape(budget=budget)
        for _ in range(3):
            a.primal[...], y.primal[...] = np.linspace(0.1, 1, 2 * N), 0
            with tape:
                for _ in range(8):
                    compiled(SOURCE, "gather")[N // 64, 64](y, a[:N], N)
                    compiled(SOURCE, "swap")[N // 64, 64](a[:N], a[N:], N)
                    compiled(SOURCE, "swap")[1, 64](a[: N // 2], a[N // 4 :], N // 4)
            tape.reverse({y: 1.0})
            results.append([p.tobytes() for p in (a.primal, a.shadow, y.primal)])
    assert results[:3] == results[3:]


@pytest.mark.parametrize("number", range(cases(3, 6)))
def test_random_orders(number: int) -> None:
    rng = np.random.default_rng(number)
    names = [str(n) for n in rng.choice(["gather", "negate", "flip", "swap", "square", "next", "taken"], 24)]
    free = Program(names)
    wanted = [free.run() for _ in range(2)]
    for share in rng.integers(8, 40, 3):
        program = Program(names, int(BYTES * share))
        for bits in wanted:
            try:
                found = program.run()
            except gpuad.BudgetError as error:
                assert error.smallest is not None and error.smallest > BYTES * share
                break
            assert found == bits, (names, share)
            assert max(recording_of(program.tape).most, recording_of(program.tape).memory.most) <= BYTES * share
