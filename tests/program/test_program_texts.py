"""The texts of recorded programs and of the scripts of their reversals: kept in `tests/golden/programs`, and equal from run to run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running

import gpuad
from gpuad import Active, Duplicated, stop_gradient
from gpuad.program.ir import script
from gpuad.program.ir.program import Allocate, LaunchOp
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.memory_log import listeners
from gpuad.tools.demo import gray_scott, wave
from gpuad.tools.program_listing import Listener, Listing, printed

PACKAGE = Path(gpuad.__file__).parent
N, BYTES = 256, 2048
SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define K extern "C" __global__ void
K step(double* a, const double* b, double r, int n) { I; if (i > 0 && i < n - 1) a[i] = b[i] + r * b[i] * (b[i - 1] - b[i + 1]); }
K square(double* x, int n) { I; if (i < n) x[i] = 0.9 * x[i] * x[i]; }
K gather(double* y, const double* x, int n) { I; if (i < n) y[i] += 0.1 * x[i] * x[i]; }
K negate(double* x, int n) { I; if (i < n) x[i] = -x[i]; }
K scale(double* y, const double* x, double s, int n) { I; if (i < n) y[i] = s * x[i]; }
K ranked(double* y, const double* x, int* count, int n) { I; if (i < n) { int at = atomicAdd(count, 1); y[at] = x[i] * x[i]; } }
K relax(const double* f, double* g, double rate, int n) {
    I; if (i >= n) return;
    double m = 0; for (int k = 0; k < 5; k++) m += f[k * n + i];
    for (int k = 0; k < 5; k++) g[k * n + i] = f[k * n + i] + rate * (m * m * m - f[k * n + i]);
}
K blend(double* f, double rate, int n) {
    I; if (i >= n) return;
    double m = 0; for (int k = 0; k < 5; k++) m += f[k * n + i];
    for (int k = 0; k < 5; k++) f[k * n + i] += rate * (m * m - f[k * n + i]);
}
"""


def cube_reverse(x: Any, dx: Any, dy: Any) -> None:
    dx += 3 * x**2 * dy


@gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=cube_reverse, pure=True)
def cube(x: Any, y: Any) -> None:
    y[...] = x**3


def pair(scale: float = 1.0, size: int = N) -> Duplicated:
    return Duplicated(scale * np.linspace(0.1, 0.9, size), np.zeros(size))


def launch(name: str, *args: Any) -> None:
    compiled(SOURCE, name)[N // 64, 64](*args, N)


def stencil(tape: gpuad.Tape, steps: int = 3) -> Any:
    u, v = pair(), pair(0.5)
    for _ in range(2):
        with tape:
            now, new = u, v
            for _ in range(steps):
                launch("step", new, now, 0.1)
                now, new = new, now
        tape.reverse({now: 1.0})


def in_place(tape: gpuad.Tape) -> Any:
    x, y = pair(), pair()
    for _ in range(2):
        with tape:
            for _ in range(3):
                launch("gather", y, x)
                launch("square", x)
                launch("negate", x)
        tape.reverse({y: 1.0})


def kept_values(tape: gpuad.Tape) -> Any:
    f, g = pair(size=5 * N), pair(size=5 * N)
    for _ in range(3):
        with tape:
            launch("relax", f, g, 0.3)
            launch("blend", g, 0.3)
        tape.reverse({g: 1.0})


def annotations(tape: gpuad.Tape) -> Any:
    x, y, z, w = pair(), pair(), pair(), pair()
    with tape:
        compiled(SOURCE, "scale")[3, 64](y[64:], x, Active(0.5, np.zeros(())), N - 64)
        launch("gather", z, stop_gradient(y))
        tape.overwrites(y)
        cube(x, w)
    tape.reverse({z: 1.0, w: 2.0})


def operations(tape: gpuad.Tape) -> Any:
    x = pair()
    for _ in range(2):
        with tape:
            for _ in range(2):
                loss = gpuad.ops.sum((x - 0.5) ** 2)
        tape.reverse({loss: 0.5})


PROGRAMS: dict[str, tuple[Callable[[gpuad.Tape], Any], Callable[[], dict[str, Any]]]] = {
    "stencil": (stencil, dict),
    "stencil_restored": (stencil, lambda: {"restore": True}),
    "in_place": (in_place, dict),
    "in_place_within_a_budget": (in_place, lambda: {"budget": 5 * BYTES}),
    "stencil_within_a_budget": (lambda tape: stencil(tape, 12), lambda: {"budget": 6 * BYTES}),
    "kept_values": (kept_values, dict),
    "annotations": (annotations, dict),
    "operations": (operations, dict),
    "operations_within_a_budget": (operations, lambda: {"budget": 16 * BYTES}),
}


def demo(module: Any, **small: Any) -> None:
    setting = module.Setting(**small)
    module.invert(setting, np)


DEMOS = {
    "demo_gray_scott": lambda: demo(gray_scott, n=16, seeds=2, steps=3, iterations=1),
    "demo_wave": lambda: demo(wave, n=32, steps=4, iterations=1),
}


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    listeners.append(found)
    try:
        with running("host"):
            yield found
    finally:
        listeners.remove(found)


def listings(listener: Listener) -> list[Listing]:
    return [listing for one in listener.finished() for _, listing in one.listings]


def text(listener: Listener) -> str:
    found = [
        "\n".join([f"tape {one.number}, recording {k} of {one.rounds}", *printed(listing, blame=True)])
        for one in listener.finished()
        for k, listing in one.listings
    ]
    return re.sub(r"(\w\.py):\d+", r"\1", "\n\n".join(found)) + "\n"


def play(name: str, listener: Listener) -> None:
    program, options = PROGRAMS[name]
    program(gpuad.Tape(**options()))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_and_their_scripts(name: str, listener: Listener, golden: Callable[[str, str], None]) -> None:
    play(name, listener)
    golden(f"programs/{name}.txt", text(listener))


@pytest.mark.parametrize("name", DEMOS)
def test_programs_of_the_demonstrations(name: str, listener: Listener, golden: Callable[[str, str], None]) -> None:
    DEMOS[name]()
    golden(f"programs/{name}.txt", text(listener))


# --- what the data are good for --------------------------------------------------------------------------------------------------------


def test_programs_are_compared_as_data(listener: Listener) -> None:
    """The same calls on other arrays are the same program; another number is another one."""
    for steps in (3, 3, 4):
        stencil(gpuad.Tape(), steps)
    one, same, other = listings(listener)
    assert one == same and hash(one.program) == hash(same.program) and one.program != other.program
    assert one.program.ops == other.program.ops[:3], "what came before is the same"
    with pytest.raises(FrozenInstanceError):
        one.program.ops[0].name = "x"  # type: ignore[misc]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_function_that_is_blamed_is_there(name: str, listener: Listener) -> None:
    play(name, listener)
    for by in {by for listing in listings(listener) for by, _ in listing.lines() if "/" in by}:
        file, function = by.split(":")
        assert re.search(rf"^ *def {function}\(", (PACKAGE / file).read_text(encoding="utf-8"), re.M), by


class Interpreter:
    """Runs a script on versions in place of bytes: the number of the operation that wrote a byte last. It knows nothing of the tape."""

    def __init__(self, listing: Listing) -> None:
        assert listing.script is not None
        self.program, self.script = listing.program, listing.script
        self.buffers = self._fresh()
        self.slots: dict[int, Any] = {}
        self.values: dict[int, int] = {}  # whose values a slot holds
        self.seen = self._seen()

    def _fresh(self) -> list[Any]:
        return [np.full(b.nbytes, -1) for b in self.program.buffers]

    def _seen(self) -> list[tuple[list[Any], list[Any]]]:
        """The versions before and after each operation, as the program runs."""
        now, found = self._fresh(), []
        for number in range(len(self.program.ops)):
            before = [b.copy() for b in now]
            self._write(now, number)
            found.append((before, [b.copy() for b in now]))
        return found

    def _write(self, buffers: list[Any], number: int) -> None:
        for access in self.program.ops[number].effects.writes:
            buffers[access.buffer][bytes_of(access)] = number

    def run(self) -> int:
        """Runs all of it; gives the number of adjoints, each of which found the versions that its operation saw."""
        for item in (*self.script.forward, *self.script.reversal):
            match item:
                case script.Run(number=number, values=values):
                    self._write(self.buffers, number)
                    self.values.update((slot.number, number) for slot in values)
                case script.Extract(number=number, values=values):
                    self.values.update((slot.number, number) for slot in values)
                case script.Store(slot=slot, access=access):
                    self.slots[slot.number] = access, self.buffers[access.buffer].copy()
                case script.Fetch(slot=slot, access=access):
                    self.buffers[access.buffer][bytes_of(access)] = self.slots[slot.number][1][bytes_of(access)]
                case script.Undo(number=number):
                    for access in self.program.ops[number].effects.writes:
                        self.buffers[access.buffer][bytes_of(access)] = self.seen[number][0][access.buffer][bytes_of(access)]
                case script.Adjoint():
                    self._check(item)
        return sum(isinstance(item, script.Adjoint) for item in self.script.reversal)

    def _check(self, item: script.Adjoint) -> None:
        needs = self.program.ops[item.number].needs
        assert all(self.values[slot.number] == item.number for slot in item.values)
        for accesses, wanted in ((needs.before, self.seen[item.number][0]), (needs.after, self.seen[item.number][1])):
            for access in accesses:
                missing = np.zeros(self.program.buffers[access.buffer].nbytes, bool)
                missing[bytes_of(access)] = True
                for read in item.reads:
                    if read.access.buffer == access.buffer:
                        held = self.buffers[access.buffer] if read.slot is None else self.slots[read.slot.number][1]
                        at = bytes_of(read.access)
                        missing[at] &= held[at] != wanted[access.buffer][at]
                assert not missing.any(), f"{item} does not find what operation {item.number} saw"


def bytes_of(access: Any) -> Any:
    return np.concatenate([np.arange(low, high) for low, high in access.region.spans]) if access.region else np.zeros(0, int)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_hands_each_adjoint_what_its_operation_saw(name: str, listener: Listener) -> None:
    play(name, listener)
    for listing in listings(listener):
        assert Interpreter(listing).run() == sum(op.adjoint and op.kind in ("launch", "rule") for op in listing.program.ops)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("budget", [None, 5, 6, 8, 12, 20])
def test_scripts_of_all_lengths_and_budgets(steps: int, budget: int | None, listener: Listener) -> None:
    """In the first recording and in those that follow a schedule; what runs again is what the tape says."""
    tape = gpuad.Tape(budget=None if budget is None else budget * BYTES)
    stencil(tape, steps)
    found = listings(listener)
    for listing in found:
        assert Interpreter(listing).run() == steps
    assert found[-1].script is not None
    again = sum(isinstance(item, script.Run) for item in found[-1].script.reversal)
    within = recording_of(tape).within.script if recording_of(tape).within is not None else None
    assert again == (within.script.reruns if within is not None else 0)


def test_what_a_launch_writes_down_for_its_adjoint(listener: Listener) -> None:
    """Where an atomic addition decides an index, that cannot be computed again."""
    x, y, count = pair(), pair(), np.zeros(1, np.int32)
    tape = gpuad.Tape()
    with tape:
        launch("ranked", y, x, count)
    tape.reverse({y: 1.0})
    (listing,) = listings(listener)
    assert listing.script is not None and Interpreter(listing).run() == 1
    (run,) = listing.script.forward
    assert isinstance(run, script.Run) and run.values and run.by == "ad/recording.py:record"


def test_slots_are_what_the_tape_says_it_saved(listener: Listener) -> None:
    tape = gpuad.Tape()
    in_place(tape)
    (listing,) = listings(listener)
    assert listing.script is not None and sum(s.nbytes for s in listing.script.slots) == tape.stats.saved_bytes


def test_a_recording_that_is_not_reversed_has_a_program(listener: Listener) -> None:
    u, v, tape = pair(), pair(), gpuad.Tape()
    with tape:
        launch("step", u, v, 0.1)
    (listing,) = listings(listener)
    assert [op.call for op in listing.program.ops] == ["step[4, 64](u, v, 0.1, 256)"] and isinstance(listing.program.ops[0], LaunchOp)


def test_arrays_that_operations_make_are_allocated_in_order(listener: Listener) -> None:
    operations(gpuad.Tape())
    (listing,) = listings(listener)
    made = [op.buffer for op in listing.program.ops if isinstance(op, Allocate)]
    assert len(made) == 6 and all(listing.program.buffers[number].made_at for number in made)
