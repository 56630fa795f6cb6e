"""One runner of one problem, in a process of its own: `python -m benchmarks.worker PROBLEM RUNNER PLACE`.

It reads requests, a line of JSON each, and answers each with a line; all that frameworks print goes to standard error. So its memory is its
own, its crash ends nothing else, and several of them can be timed in turn.

* build: makes the runner for a size, with the inputs and the wanted gradients in a folder, and checks its first gradient; before the first
  size, runs the smallest, after which the process's memory is taken for its own; memory is that of a second gradient
* time: seconds of a piece, `primal`, `gradient` or `replay`: the median of as many calls as fit the time
* copy: bytes a second, read and written, of a plain copy of so many bytes in all
* say: checks the gradient again; memory, and what the runner says about itself
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpuad.errors import GpuadError

from . import measure, records, resident
from .problem import Arrays, Missing, Problem, Record, Runner, Size
from .problems import PROBLEMS

_WARM = 0.1  # seconds: what takes less is run once before it is timed
_MOST = 200  # calls


def gpuad(problem: Problem, size: Size, given: Arrays, place: str) -> Runner:
    """The problem on arrays of the place."""
    return problem.gpuad(size, given, np if place == "cpu" else importlib.import_module("cupy"))


def _of(module: str, name: str) -> Callable[..., Runner]:
    def make(*words: Any) -> Runner:
        runner: Runner = getattr(importlib.import_module(f"benchmarks.runners.{module}"), name)(*words)
        return runner

    return make


RUNNERS: dict[str, Callable[[Problem, Size, Arrays, str], Runner]] = {
    "gpuad": gpuad,
    "by hand": _of("by_hand", "ByHand"),
    "jax": _of("with_jax", "Jax"),
    "torch": _of("with_torch", "Torch"),
    "warp": _of("with_warp", "Warp"),
}
PACKAGES = {"jax": "jax", "torch": "torch", "warp": "warp"}  # what a runner imports; the others need nothing but gpuad


class Worker:
    """Answers requests."""

    def __init__(self, problem: str, runner: str, place: str) -> None:
        (self.problem,) = (p for p in PROBLEMS if p.name == problem)
        self.name, self.place = runner, place
        self.runner: Any = None
        self.imported = _import(runner)
        self.folder, self.base, self.no_replay = "", -1, ""
        self.memory: Record = {}

    def answer(self, request: Mapping[str, Any]) -> Record:
        """The answer to one request; a failure is an answer, too."""
        try:
            found: Record = getattr(self, request["do"])(**{k: v for k, v in request.items() if k != "do"})
        except Missing as missing:
            return {"missing": str(missing)}
        except Exception as error:  # the others still run
            return records.failure(error)
        return found

    def build(self, folder: str, size: dict[str, int]) -> Record:
        """Makes the runner for a size in place of the one before, and checks its gradient."""
        self.runner = None
        if self.imported:
            raise Missing(self.imported)
        if self.base < 0:
            self._warm()
        resident.settle()
        self.folder = folder
        self.runner = self._made(size, _loaded(folder, "given"))
        self.runner.prepare()
        self.runner.gradient()
        error = self._checked()
        self.memory = self._measured()
        self.no_replay = self._tried()
        return {"error": error, "pieces": ["primal", "gradient", *([] if self.no_replay else ["replay"])]}

    def _measured(self) -> Record:
        """The most memory that a gradient takes, before a graph is made of it too."""
        self.runner.prepare()
        resident.settle()
        forgot = resident.forget()
        self.runner.gradient()
        peak = resident.peak()
        return {
            "memory_bytes": max(0, peak - self.base),
            "process_bytes": peak,
            **({} if forgot else {"memory_is_a_bound": True}),
        }

    def _tried(self) -> str:
        """Why this runner cannot replay its gradient; nothing if it can, and is right."""
        if not hasattr(self.runner, "replay"):
            return "not offered"
        try:
            self.runner.prepare()
            self.runner.replay()
        except Missing as missing:
            return str(missing)
        except GpuadError as refused:  # such as a check that a graph cannot make
            return records.without_places(str(refused))
        self._checked()
        return ""

    def _warm(self) -> None:
        """Runs the problem at its smallest: what a process takes for code, and for compiling it, is not the problem's memory."""
        runner = self._made(self.problem.quick, self.problem.inputs(self.problem.quick, np.random.default_rng(0)))
        again = ["replay"] if hasattr(runner, "replay") else []
        for piece in ("primal", "gradient", "gradient", *again):  # for what is known again there is code of its own
            runner.prepare()
            with contextlib.suppress(Missing, GpuadError):
                getattr(runner, piece)()
        del runner
        resident.settle()
        self.base = resident.now()

    def _made(self, size: Size, given: Arrays) -> Runner:
        return RUNNERS[self.name](self.problem, size, given, self.place)

    def _checked(self) -> float:
        error = self.problem.error(self.runner.found(), _loaded(self.folder, "wanted"))
        if not error < self.problem.tolerance:
            raise ValueError(f"the gradient is wrong: {error:.1e} of its largest entry")
        return error

    def time(self, piece: str, seconds: float) -> Record:
        """Seconds of one call."""
        run = getattr(self.runner, piece)
        first, samples = self._once(run), []
        if first > _WARM:
            samples.append(first)
        while not samples or (sum(samples) < seconds and len(samples) < _MOST):
            samples.append(self._once(run))
        return {"seconds": statistics.median(samples)}

    def _once(self, run: Callable[[], Any]) -> float:
        self.runner.prepare()
        return measure.seconds(run)

    def copy(self, nbytes: int, seconds: float) -> Record:
        """How fast this place copies."""
        if self.place == "cpu":
            from .runners.by_hand import copy_seconds

            return {"rate": nbytes / copy_seconds(nbytes, seconds)}
        from . import device

        return {"rate": device.copy_rate(importlib.import_module("cupy"), max(nbytes // 2, 1))}

    def say(self) -> Record:
        """What this runner is beside fast: right, and how large."""
        self.runner.prepare()
        self.runner.gradient()
        error = self._checked()
        device = self.runner.memory() if self.place == "gpu" and hasattr(self.runner, "memory") else None
        return {
            "error": error,
            **self.memory,
            **({"device_bytes": device} if device is not None else {}),
            **({"no_replay": self.no_replay} if self.no_replay not in ("", "not offered") else {}),
            **self.runner.about(),
        }


def _import(runner: str) -> str:
    """Imports a runner's framework; why it is missing, or nothing."""
    package = PACKAGES.get(runner)
    try:
        if package:
            importlib.import_module(package)
    except ImportError as error:
        return f"{package} is not installed ({error})"
    return ""


def _loaded(folder: str, kind: str) -> Arrays:
    return {path.stem: np.load(path) for path in sorted((Path(folder) / kind).glob("*.npy"))}


def main(words: list[str]) -> None:
    """Answers until there are no more requests."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if words[2] == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    else:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    worker = Worker(*words)
    for line in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
