"""What the gradient of a whole program takes beside the program: those of `tests/programs` and of `examples`, without gpuad in them.

Run `python -m benchmarks.whole_programs [NAME ...]`, with `--large` at a million elements an array as well, where a program has such
arguments below. A round is what `gpuad.value_and_grad` does with the program as it stands: its tape, the program, the reverse, with other
values in the active arrays each time. The first round compiles and records, the second is recorded in part, later ones should be known
(`anew` counts those that were not). Primal and gradient run in turn; figures are lower medians, in processor time of this process, and
their ratio is of one run. `wall` is the ratio by the clock. `saved`: bytes that the tape keeps for the reverse.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gpuad

from .measure import Effort, lower_medians

PROGRAMS = Path(__file__).parents[1] / "tests" / "programs"
EXAMPLES = Path(__file__).parents[1] / "examples"
Arguments = tuple[Sequence[Any], Sequence[int]]  # of the loss, and the places of those that gradients are of


def _beam(rng: Any) -> Arguments:
    return (rng.normal(0, 0.4, 1_000_000), rng.normal(0, 0.3, 1_000_000), 0.8, np.array([0.3]), 3), (0, 1, 3)


def _heat_inversion(rng: Any) -> Arguments:
    n = 1000
    start = np.sin(np.pi * np.linspace(0, 1, n)) + 0.1
    return (rng.normal(0, 0.3, n), start, rng.normal(0.5, 0.1, (5, 3)), np.array([200, 500, 900])), (0, 1)


LARGE: dict[str, Callable[[Any], Arguments]] = {
    "beam": _beam, "heat_inversion": _heat_inversion,
}  # fmt: skip


class Compared:
    """A program, and its gradient on a tape that is kept."""

    def __init__(self, program: Any, arguments: Arguments) -> None:
        self.args, self.active = list(arguments[0]), arguments[1]
        self.program = program
        self.gradient = gpuad.value_and_grad(program.loss, list(self.active))
        self.rounds = self.anew = 0
        self._rng = np.random.default_rng(0)

    def move(self) -> None:
        """Other values in the active arrays."""
        for k in self.active:
            given = np.asarray(self.args[k])
            self.args[k] = (given + 1e-4 * self._rng.normal(size=given.shape)).astype(given.dtype)

    def round(self) -> None:
        """A value and its gradients."""
        self.gradient(*self.args)
        self.rounds += 1
        self.anew += self.rounds > 2 and bool(self.gradient.tape.explain().anew)

    def times(self, calls: int) -> dict[str, float]:
        """Seconds of one of `calls` runs of each, by the processor and by the clock."""
        self.move()
        found = {}
        for name, run in (("primal", lambda: self.program.loss(*self.args)), ("round", lambda: self.gradient(*self.args))):
            wall, own = time.perf_counter(), time.process_time()
            for _ in range(calls):
                run()
            found[name], found[f"{name} wall"] = (time.process_time() - own) / calls, (time.perf_counter() - wall) / calls
        self.round()
        return found


def example(name: str) -> tuple[Any, Callable[[Any], Arguments]]:
    """An example before it knew of gpuad, and its arguments."""
    module, sizes = importlib.import_module(f"{name}_forward"), importlib.import_module("example_sizes")

    def arguments(rng: Any) -> Arguments:
        return sizes.small(module, name, rng)  # type: ignore[no-any-return]

    return module, arguments


def measured(name: str, program: Any, arguments: Callable[[Any], Arguments], effort: Effort, calls: int) -> str:
    """The row of a program."""
    compared = Compared(program, arguments(np.random.default_rng(3)))
    early = []
    for _ in range(3):
        compared.move()
        begin = time.process_time()
        compared.round()
        early.append((time.process_time() - begin) * 1e3)
    found = lower_medians(partial(compared.times, calls), effort)
    largest = max(np.size(x) for x in compared.args)
    first, second, third = (f"{t:10.1f}" for t in early)
    return (
        f"{name:<18}{largest:>9}{found['primal'] * 1e3:10.3f}{first}{second}{third}{found['round'] * 1e3:10.3f}"
        f"{found['round'] / found['primal']:8.1f}{found['round wall'] / found['primal wall']:8.1f}{compared.anew:6}"
        f"{compared.gradient.tape.stats.saved_bytes:12}"
    )


def main() -> None:
    """Prints a row for each program, and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0)
    asked = parser.parse_args()
    sys.path[:0] = [str(PROGRAMS), str(EXAMPLES)]
    programs = sorted(path.stem for path in PROGRAMS.glob("*.py") if "def arguments(" in path.read_text(encoding="utf-8"))
    examples = sorted(importlib.import_module("example_sizes").SIZES)
    names = asked.names or [*programs, *examples]
    print(f"{'program':<18}{'largest':>9}{'primal ms':>10}{'first':>10}{'second':>10}{'third':>10}{'later':>10}", end="")
    print(f"{'ratio':>8}{'wall':>8}{'anew':>6}{'saved':>12}", flush=True)
    for name in names:
        if name in programs and "import cupy" in (PROGRAMS / f"{name}.py").read_text(encoding="utf-8") and not _has_cupy():
            print(f"{name:<18} left out: it imports cupy, which is not installed", flush=True)
            continue
        module, arguments = (importlib.import_module(name), None) if name in programs else example(name)
        print(measured(name, module, arguments or module.arguments, Effort(3, 15, asked.seconds), 5), flush=True)
        if asked.large and name in LARGE:
            print(measured(name, module, LARGE[name], Effort(3, 3, asked.seconds), 1), flush=True)


def _has_cupy() -> bool:
    return importlib.util.find_spec("cupy") is not None


if __name__ == "__main__":
    main()
