"""Programs of many in-place launches: what a tape costs, beside PyTorch and JAX on the same program.

Two fields in float32 change their roles at each step, and only the interior is written; the loss is the sum of squares of the last field,
and the gradient that of the initial one. `heat` is linear, so no state has to be kept; `fisher` (u + a lap(u) + r u (1 - u)) needs every
state that is overwritten. Whoever is installed takes part, all in turn in one run, and every gradient is checked against a reverse that is
written by hand in float64 before its time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

import gpuad
from gpuad import Duplicated, Tape

from . import measure
from .allocations import counted
from .measure import Effort, Pieces
from .records import failure

Record: TypeAlias = "dict[str, Any]"
Field: TypeAlias = "NDArray[np.float32]"

SIDES = (32, 256, 1024)
STEPS = 20
DIFFUSION, GROWTH = 0.1, 0.2
TOLERANCE = 1e-4  # of a float32 gradient, relative to its largest entry
FLOOR = 64  # bytes; the planner's notes on an operation are smaller, the smallest field is 4 KiB

SOURCE = """
extern "C" __global__ void advance(float* v, const float* u, float a, float r, int ny, int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int k = y * nx + x;
    float lap = u[k - 1] + u[k + 1] + u[k - nx] + u[k + nx] - 4.0f * u[k];
    v[k] = u[k] + a * lap GROWS;
}
"""


@dataclass(frozen=True)
class Problem:
    """A program: `nonlinear` or not, on a square field of so many `side`s, so many `steps`."""

    name: str
    nonlinear: bool
    side: int
    steps: int

    @property
    def growth(self) -> float:
        """The coefficient of u (1 - u)."""
        return GROWTH if self.nonlinear else 0.0

    @property
    def launches(self) -> int:
        """Operations: both fields are set, then the steps."""
        return self.steps + 2

    def start(self) -> Field:
        """The initial field."""
        return np.random.default_rng(self.side).uniform(0.2, 0.8, (self.side, self.side)).astype(np.float32)


def problems(sides: Sequence[int] = SIDES, steps: int = STEPS) -> list[Problem]:
    """All programs at all sizes."""
    return [Problem(name, name == "fisher", side, steps) for name in ("heat", "fisher") for side in sides]


class Runner(Protocol):
    """Somebody who computes the program and its gradient."""

    def primal(self) -> Any:
        """Runs the program alone."""

    def gradient(self) -> Field:
        """Runs the program and its reverse; the gradient of the loss by the initial field."""

    def about(self) -> Record:
        """What else is to be said: bytes, allocations."""


# --- by hand -------------------------------------------------------------------------------------------------------------------------


def by_hand(problem: Problem) -> NDArray[np.float64]:
    """The gradient in float64, by the adjoint of each step, written by hand."""
    a, r, inside = DIFFUSION, problem.growth, (slice(1, -1), slice(1, -1))
    u = problem.start().astype(np.float64)
    states = []
    for _ in range(problem.steps):
        states.append(u)
        lap = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[inside]
        u = u.copy()
        u[inside] += a * lap + r * u[inside] * (1 - u[inside])
    du = 2 * u
    for u in reversed(states):
        dv = du[inside]
        du = du.copy()
        du[inside] += dv * (r * (1 - 2 * u[inside]) - 4 * a)
        for part in (
            (slice(1, -1), slice(0, -2)),
            (slice(1, -1), slice(2, None)),
            (slice(0, -2), slice(1, -1)),
            (slice(2, None), slice(1, -1)),
        ):
            du[part] += a * dv
    return du


# --- gpuad ---------------------------------------------------------------------------------------------------------------------------


class OnTape:
    """The program as launches on a tape."""

    def __init__(self, problem: Problem) -> None:
        self.problem, side = problem, problem.side
        grows = " + r * u[k] * (1.0f - u[k])" if problem.nonlinear else ""
        block = min(side, 256)
        self.step = gpuad.kernel(SOURCE.replace(" GROWS", grows), "advance")[(-(-side // block), side), (block, 1)]
        self.start = Duplicated(problem.start())
        self.fields = tuple(Duplicated(np.zeros((side, side), np.float32)) for _ in range(2))
        self.seed, self.tape = np.empty_like(self.start.primal), Tape()
        self.seconds: dict[str, float] = {}

    def _run(self, start: Any, fields: tuple[Any, ...], copy: Callable[[Any, Any], None]) -> Any:
        v, u = fields
        for field in fields:
            copy(field, start)
        for _ in range(self.problem.steps):
            self.step(v, u, DIFFUSION, self.problem.growth, self.problem.side, self.problem.side)
            u, v = v, u
        return u

    def primal(self) -> Any:
        """As `Runner` has it."""
        return self._run(self.start.primal, tuple(f.primal for f in self.fields), np.copyto)

    def gradient(self) -> Field:
        """As `Runner` has it."""
        self.start.shadow.fill(0)
        self.seconds["record"] = measure.seconds(self._record)
        self.seconds["reverse"] = measure.seconds(lambda: self.tape.reverse({self.last: self._seed()}))
        found: Field = self.start.shadow
        return found

    def _record(self) -> None:
        with self.tape:
            self.last = self._run(self.start, self.fields, gpuad.ops.copyto)

    def _seed(self) -> Field:
        return np.multiply(self.last.primal, np.float32(2), out=self.seed)

    def about(self) -> Record:
        """As `Runner` has it: times, bytes, and the arrays that NumPy's allocator is asked for."""
        with counted() as made:
            self.gradient()
        stats, launches = self.tape.stats, self.problem.launches
        return {
            **{f"{part}_us_a_launch": round(seconds / launches * 1e6, 2) for part, seconds in self.seconds.items()},
            "saved_bytes": stats.saved_bytes,
            "arena_bytes": stats.arena_bytes,
            "allocations": made.of_at_least(FLOOR),
        }


# --- measuring -----------------------------------------------------------------------------------------------------------------------


def measured(effort: Effort, sides: Sequence[int] = SIDES, steps: int = STEPS) -> dict[str, Record]:
    """For each program a record of everybody: milliseconds of the primal and of the gradient (with the primal), and what they say."""
    return {f"{p.name} {p.side}^2, {p.steps} steps": _compared(p, effort) for p in problems(sides, steps)}


def _compared(problem: Problem, effort: Effort) -> dict[str, Record]:
    from . import peers  # imports whole frameworks, where they are

    found: dict[str, Record] = {}
    runners: dict[str, Runner] = {}
    wanted = by_hand(problem)
    for name, make in {"gpuad": OnTape, **peers.PEERS}.items():
        try:
            runner = make(problem)
            check(runner.gradient(), wanted)
        except ModuleNotFoundError as error:
            found[name] = {"missing": f"{error.name} is not installed"}
            continue
        except Exception as error:  # whoever is wrong is recorded so, and the others are still measured
            found[name] = failure(error)
            continue
        runners[name] = runner

    def repetition() -> Pieces:
        pieces = {}
        for name, runner in runners.items():
            pieces[f"{name} primal"] = measure.seconds(runner.primal)
            pieces[f"{name} gradient"] = measure.seconds(runner.gradient)
        return pieces

    times = measure.lower_medians(repetition, effort)
    for name, runner in runners.items():
        check(runner.gradient(), wanted)
        parts = {f"{part}_ms": round(times[f"{name} {part}"] * 1e3, 4) for part in ("primal", "gradient")}
        found[name] = {**parts, "ratio": round(parts["gradient_ms"] / parts["primal_ms"], 2), **runner.about()}
    return found


def check(gradient: Any, wanted: NDArray[np.float64]) -> None:
    """ValueError if a gradient is not that which was computed by hand."""
    error = float(np.abs(gradient - wanted).max() / np.abs(wanted).max())
    if not error < TOLERANCE:
        raise ValueError(f"the gradient is wrong: {error:.1e} of its largest entry")
