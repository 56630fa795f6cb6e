"""What the gradient of a whole program takes beside the program: the programs of `tests/programs`, which know nothing of gpuad.

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
Arguments = tuple[Sequence[Any], Sequence[int]]  # of the loss, and the places of those that gradients are of


def _beam(rng: Any) -> Arguments:
    return (rng.normal(0, 0.4, 1_000_000), rng.normal(0, 0.3, 1_000_000), 0.8, np.array([0.3]), 3), (0, 1, 3)


def _finite_elements(rng: Any) -> Arguments:
    n = 500
    nodes = np.stack([np.arange(n) * 0.5, np.arange(n) % 2], axis=1) + rng.normal(0, 0.02, (n, 2))
    bars = [(k, k + 1) for k in range(n - 1)] + [(k, k + 2) for k in range(n - 2)]
    force = np.zeros(2 * n)
    force[1::50] = -1e-3
    return (nodes, rng.uniform(0.8, 1.2, len(bars)), bars, force, [0, 1, 2 * n - 1]), (0, 1)


def _heat_inversion(rng: Any) -> Arguments:
    n = 1000
    start = np.sin(np.pi * np.linspace(0, 1, n)) + 0.1
    return (rng.normal(0, 0.3, n), start, rng.normal(0.5, 0.1, (5, 3)), np.array([200, 500, 900])), (0, 1)


def _ptychography(rng: Any) -> Arguments:
    n, m = 1000, 500
    probe = np.exp(-(np.hypot(*np.meshgrid(np.arange(m) - m / 2, np.arange(m) - m / 2)) ** 2) / m**2).astype(complex)
    obj = np.exp(1j * rng.uniform(-0.5, 0.5, (n, n)))
    return (obj, probe, [(0, 0), (0, m), (m // 2, 200), (m, m)], rng.uniform(0, 1, (4, m, m))), (0, 1)


def _tomography(rng: Any) -> Arguments:
    return (rng.uniform(0, 1, (1000, 1000)), [0.1, 0.8, 1.7, 2.6], rng.uniform(0, 3, (4, 1004))), (0,)


LARGE: dict[str, Callable[[Any], Arguments]] = {
    "beam": _beam, "finite_elements": _finite_elements, "heat_inversion": _heat_inversion, "ptychography": _ptychography,
    "tomography": _tomography,
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


def measured(name: str, arguments: Callable[[Any], Arguments], effort: Effort, calls: int) -> str:
    """The row of a program."""
    compared = Compared(importlib.import_module(name), arguments(np.random.default_rng(3)))
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
    sys.path.insert(0, str(PROGRAMS))
    names = asked.names or sorted(path.stem for path in PROGRAMS.glob("*.py") if "def arguments(" in path.read_text(encoding="utf-8"))
    print(f"{'program':<18}{'largest':>9}{'primal ms':>10}{'first':>10}{'second':>10}{'third':>10}{'later':>10}", end="")
    print(f"{'ratio':>8}{'wall':>8}{'anew':>6}{'saved':>12}", flush=True)
    for name in names:
        if "import cupy" in (PROGRAMS / f"{name}.py").read_text(encoding="utf-8") and not importlib.util.find_spec("cupy"):
            print(f"{name:<18} left out: it imports cupy, which is not installed", flush=True)
            continue
        effort = Effort(rounds=3, repeats=15, seconds=asked.seconds)
        print(measured(name, importlib.import_module(name).arguments, effort, 5), flush=True)
        if asked.large and name in LARGE:
            print(measured(name, LARGE[name], Effort(rounds=3, repeats=3, seconds=asked.seconds), 1), flush=True)


if __name__ == "__main__":
    main()
