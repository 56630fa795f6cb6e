"""Compares gpuad's gradient of a launch, by the launches that it makes of its own, with difference quotients of the kernel's text.

The text is compiled by g++ and run thread by thread (`witness_oracle.cpp`); all numbers are small integers, so that both sides are exact
and have to be equal bit by bit.

    python tests/witness_checks.py [-n LAUNCHES] [SHAPE ...]      # lists what differs, with the launches that gpuad made
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from launch_tools import compiled, running
from witness_random import random_shape
from witness_shapes import INTEGERS, Launch, Shape, sample, shapes

import gpuad
from gpuad import Active, Duplicated, pipeline
from gpuad.api import pattern_of
from gpuad.errors import GpuadError
from gpuad.runtime.compiler import find_compiler

SHIM = Path(__file__).parent / "witness_oracle.cpp"
FLAGS = ("-O1", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC")
STEP = 1 / 64  # of the difference quotients
STEPS = 2  # of a program
Arrays = dict[str, Any]


# --- a launch's memory -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A launch with its memory: `start` and `seeds` have an array for each root (a number by value is one of one element), `integers` the
    arrays of indices and masks."""

    shape: Shape
    launch: Launch
    start: Arrays
    seeds: Arrays
    integers: Arrays

    @classmethod
    def of(cls, shape: Shape, launch: Launch) -> Case:
        rng = np.random.default_rng(zlib.crc32(f"{shape.name} {launch}".encode()))
        start, seeds, integers = {}, {}, {}
        for name in shape.parameters:
            if name in INTEGERS or name in shape.views:
                continue
            size = shape.size(name, launch)
            if name in ("idx", "mask"):
                below = max(1, shape.size("idx", launch)) if name == "idx" else 2
                integers[name] = rng.integers(0, below, size).astype(np.int32)
            else:
                start[name] = rng.choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], size)
                seeds[name] = rng.choice([-2.0, -1.0, 1.0, 2.0, 3.0], size)
        return cls(shape, launch, start, seeds, integers)

    @property
    def exchanged(self) -> dict[str, str]:
        """The arrays that change places from one step of a program to the next."""
        alike = not self.shape.views and {"u", "v"} <= self.start.keys() and self.start["u"].size == self.start["v"].size
        return {"u": "v", "v": "u"} if alike else {}

    def view(self, roots: Arrays, name: str, step: int = 0) -> Any:
        """The part of a root that a parameter points to in a step of a program."""
        root, offset = self.shape.views.get(name, (name, "0"))
        root = self.exchanged.get(root, root) if step % 2 else root
        if root not in roots:
            return None
        first = int(eval(self.shape.counted(offset), {}, dict(self.launch.numbers)))
        return roots[root][first : first + self.shape.size(name, self.launch)] if name in self.shape.views else roots[root]

    def arguments(self, primals: Arrays, shadows: Arrays, step: int = 0) -> tuple[Any, ...]:
        """Of the launch as gpuad takes them."""
        made: list[Any] = []
        for name in self.shape.parameters:
            primal = self.view(primals, name, step)
            if name in self.launch.numbers:
                made.append(self.launch.numbers[name])
            elif name in self.integers:
                made.append(self.integers[name])
            elif name == "a":
                made.append(Active(primal[0], shadows[name]))
            else:
                made.append(Duplicated(primal, self.view(shadows, name, step)))
        return tuple(made)

    def directions(self) -> tuple[Arrays, Arrays]:
        """Of the state and of the seeds, for second derivatives."""
        rng = np.random.default_rng(len(self.start))
        made = [{k: rng.choice([-1.0, 1.0, 2.0], a.size) for k, a in d.items()} for d in (self.start, self.seeds)]
        return made[0], made[1]

    def moved(self, step: float) -> Case:
        """The case that far along the directions."""
        moved = [{k: a + step * d[k] for k, a in s.items()} for s, d in zip((self.start, self.seeds), self.directions(), strict=True)]
        return replace(self, start=moved[0], seeds=moved[1])


def copies(arrays: Arrays) -> Arrays:
    return {name: np.array(a) for name, a in arrays.items()}


# --- the oracle --------------------------------------------------------------------------------------------------------------------------


class Oracle:
    """Kernels compiled by g++ in one library."""

    def __init__(self, texts: Iterable[Shape], folder: Path) -> None:
        self.shapes = {s.text: f"launch_{hashlib.sha256(s.text.encode()).hexdigest()[:16]}" for s in texts}
        fibers = any("__syncthreads" in text for text in self.shapes)
        text = "#define GPUAD_FIBERS\n" * fibers + SHIM.read_text() + "".join(map(self.entry, self.shapes))
        name = hashlib.sha256(text.encode()).hexdigest()[:16]  # of its own: a library is loaded once under a name
        source, target = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text(text)
        subprocess.run([*find_compiler().command, *FLAGS, str(source), "-o", str(target)], check=True)
        self.library = ctypes.CDLL(str(target))

    def entry(self, text: str) -> str:
        """The kernel and its launch, in a namespace."""
        name = self.shapes[text]
        declared = [p.strip() for p in text.split(" k(")[1].split(")")[0].split(",")]
        passed = ", ".join(f"({d[: d.index('*') + 1]})a[{i}]" if "*" in d else f"*({d.split()[0]}*)a[{i}]" for i, d in enumerate(declared))
        own = text.replace('extern "C"', "static")
        run = "run_with_barriers" if "__syncthreads" in text else "run_plainly"
        return (
            f"namespace of_{name} {{\n{own}\nstatic void body(void** a) {{ k({passed}); }}\n}}\n"
            f'extern "C" void {name}(void** a, const unsigned* g) {{ {run}(of_{name}::body, a, g); }}\n'
        )

    def run(self, case: Case, steps: int) -> tuple[Arrays, Arrays]:
        """The state after that many launches, and the adjoint of the state before them."""
        roots = copies(case.start)
        seeds = {k: a * (k != "a") for k, a in case.seeds.items()}  # a number by value is no part of the state after a launch
        after, out = copies(roots), {name: np.zeros_like(a) for name, a in roots.items()}
        held = case.integers | {k: np.array(n, np.int32) for k, n in case.launch.numbers.items()}
        views = [[held.get(name, case.view(roots, name, step)) for name in case.shape.parameters] for step in range(steps)]
        calls = [_addresses(v) for v in views]
        self.library.derive(
            ctypes.cast(getattr(self.library, self.shapes[case.shape.text]), ctypes.c_void_p),
            ctypes.c_int(steps),
            (ctypes.c_void_p * steps)(*(ctypes.addressof(c) for c in calls)),
            (ctypes.c_uint * 6)(*case.launch.grid, *case.launch.block),
            ctypes.c_int(len(roots)),
            _addresses(roots.values()),
            (ctypes.c_long * len(roots))(*(a.size for a in roots.values())),
            *(_addresses(d[name] for name in roots) for d in (seeds, after, out)),
            ctypes.c_double(STEP),
        )
        return after, {k: v + (case.seeds[k] if k == "a" else 0) for k, v in out.items()}

    def second(self, case: Case) -> tuple[Arrays, Arrays]:
        """How the state after the launch and the adjoint change along the directions."""
        runs = [(weight, self.run(case.moved(step * STEP), 1)) for step, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1))]
        sums = [{k: sum(weight * run[side][k] for weight, run in runs) / (12 * STEP) for k in case.start} for side in (0, 1)]
        return sums[0], sums[1]


def _addresses(arrays: Iterable[Any]) -> Any:
    found = [a.ctypes.data for a in arrays]
    return (ctypes.c_void_p * len(found))(*found)


# --- gpuad -------------------------------------------------------------------------------------------------------------------------------


def by_autodiff(case: Case, primals: Arrays, shadows: Arrays) -> None:
    gpuad.autodiff(compiled(case.shape.text, "k"), case.launch.grid, case.launch.block, case.arguments(primals, shadows))


def by_tape(case: Case, primals: Arrays, shadows: Arrays) -> None:
    tape = gpuad.Tape()
    with tape:
        compiled(case.shape.text, "k")(case.launch.grid, case.launch.block, case.arguments(primals, shadows))
    tape.reverse(allow_unused=True)


def in_steps(case: Case, primals: Arrays, shadows: Arrays) -> None:
    """Some launches after each other, `u` and `v` in turns, as a program that comes again: what it becomes then is what counts."""
    tape, kernel = gpuad.Tape(), compiled(case.shape.text, "k")
    calls = [case.arguments(primals, shadows, step) for step in range(STEPS)]
    for _ in range(3):
        for mine, given in ((primals, case.start), (shadows, case.seeds)):
            for name, array in given.items():
                mine[name][...] = array
        with tape:
            for call in calls:
                kernel(case.launch.grid, case.launch.block, call)
        tape.reverse(allow_unused=True)


def deterministically(case: Case, primals: Arrays, shadows: Arrays) -> None:
    with gpuad.deterministic():
        by_autodiff(case, primals, shadows)


def atomically(case: Case, primals: Arrays, shadows: Arrays) -> None:
    with pipeline.nothing_plain_for_tests():
        by_autodiff(case, primals, shadows)


def by_hvp(case: Case, primals: Arrays, shadows: Arrays) -> tuple[Arrays, Arrays]:
    """Along the case's directions, which it gives as they are after it."""
    moves = case.directions()
    dots = [d if isinstance(d, Duplicated | Active) else None for d in case.arguments(*moves)]
    k = compiled(case.shape.text, "k")
    gpuad.hvp(k, case.launch.grid, case.launch.block, case.arguments(primals, shadows), tuple(dots))
    return moves


DEFAULT = ("autodiff", "reference")
Way = Callable[[Case, Arrays, Arrays], tuple[Arrays, Arrays] | None]
WAYS: dict[str, Way] = {
    "autodiff": by_autodiff,
    "deterministic": deterministically,
    "tape": by_tape,
    "steps": in_steps,
    "hvp": by_hvp,
    "atomic": atomically,
}


def derived(case: Case, way: str, executor: str) -> tuple[Arrays, ...]:
    """The state after the launch and the shadows; for second derivatives also the directions of both."""
    primals, shadows = copies(case.start), copies(case.seeds)
    with running(executor):
        return primals, shadows, *(WAYS[way](case, primals, shadows) or ())


def made_launches(case: Case, executor: str = "reference") -> str:
    """The launches of the reverse, by kernel and grid."""
    with running(executor):
        kernel = compiled(case.shape.text, "k")
        call = kernel.bind(case.launch.grid, case.launch.block, case.arguments(copies(case.start), copies(case.seeds)), 0, None)
        found = pipeline.stages(kernel.reverse_for(pattern_of(kernel, call), call), call)
        return ", ".join(f"{s.kernel.name}{'' if s.grid is None else s.grid}" for s in found)


# --- what differs ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    case: Case
    way: str
    executor: str
    what: str  # "state a", "shadow c" or "error"
    expected: Any
    found: Any

    def __str__(self) -> str:
        lines = [f"{self.case.shape.name}, {self.way} on {self.executor}: {self.case.launch}"]
        lines.append(f"  {self.what}: {_plain(self.found)} instead of {_plain(self.expected)}")
        try:
            lines.append(f"  made: {made_launches(self.case, self.executor)}")
        except Exception as error:  # it is the report of a failure
            lines.append(f"  made: {type(error).__name__}")
        return "\n".join(lines)


def _equal(right: Any, found: Any, *, exact: bool) -> bool:
    """Of several steps, and of second derivatives, the quotients are not exact."""
    return np.array_equal(right, found) or (not exact and np.allclose(right, found, rtol=1e-6, atol=1e-6 * (1 + np.abs(right).max())))


def _plain(numbers: Any) -> str:
    return numbers if isinstance(numbers, str) else "[" + " ".join(f"{x:g}" for x in numbers) + "]"


@dataclass
class Tally:
    """Launches compared, by way and executor; those that are not reversed by one kernel with the user's threads; launches refused, by
    message; what differs."""

    compared: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        ways = ", ".join(f"{k}: {n}" for k, n in self.compared.items())
        rest = f"{self.replaced} replaced, {self.refused.total()} refused, {len(self.differences)} differ"
        return f"{self.compared.total()} launches ({ways}), {rest}"


SIDES = ("state", "shadow", "tangent", "second")


def compare(case: Case, oracle: Oracle, ways: Sequence[tuple[str, str]], tally: Tally) -> None:
    """Each way of differentiating, on an executor, with the oracle."""
    once = oracle.run(case, 1)
    for way, executor in ways:
        try:
            found = derived(case, way, executor)
        except GpuadError as error:
            tally.refused[f"{case.shape.name}, {way} on {executor}: {type(error).__name__}: {error}"] += 1
            continue
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            tally.differences.append(Difference(case, way, executor, "error", "a gradient or a refusal", said))
            continue
        tally.compared[f"{way} on {executor}"] += 1
        tally.replaced += (way, executor) == DEFAULT and made_launches(case) != "k_reverse"
        expected = oracle.run(case, STEPS) if way == "steps" else (*once, *oracle.second(case)) if way == "hvp" else once
        for side, right, mine in zip(SIDES, expected, found, strict=False):
            for name in right:
                seen = side in ("shadow", "second") or name != "a"  # a number by value has no state
                if seen and not _equal(right[name], mine[name], exact=way not in ("steps", "hvp")):
                    tally.differences.append(Difference(case, way, executor, f"{side} {name}", right[name], mine[name]))


Ways = Callable[[int], list[tuple[str, str]]]
OTHERS = [(way, executor) for executor in ("reference", "host") for way in WAYS if (way, executor) != DEFAULT]


def by_default(_: int) -> list[tuple[str, str]]:
    return [DEFAULT]


def in_few_ways(number: int) -> list[tuple[str, str]]:
    """Of the launch of a number: by default, every fourth in another way too, and a few on the host, where each shape is compiled."""
    more = [OTHERS[number // 4 % 5]] if number % 4 == 3 else [("autodiff", "host")] if number % 80 == 0 else []
    return [DEFAULT, *more]


def in_all_ways(number: int) -> list[tuple[str, str]]:
    """By default, and every fourth launch in one of the other ways, in turn."""
    return [DEFAULT, *([OTHERS[number // 4 % len(OTHERS)]] if number % 4 == 3 else [])]


def witness(chosen: Sequence[Shape], folder: Path, most: int | None = None, ways: Ways = in_all_ways) -> Tally:
    """Compares all launches of the shapes, or `most` of each."""
    oracle, tally = Oracle(chosen, folder), Tally()
    launches = [(shape, launch) for shape in chosen for launch in sample(shape.launches, most or len(shape.launches), shape.name)]
    for number, (shape, launch) in enumerate(launches):
        compare(Case.of(shape, launch), oracle, ways(number), tally)
    return tally


def _main() -> int:
    parser = argparse.ArgumentParser(description="compares gpuad's gradients of small launches with difference quotients")
    parser.add_argument("shapes", nargs="*", help="their names, all by default")
    parser.add_argument("-n", type=int, default=None, help="launches of each shape, all by default")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th shape, from the K-th")
    parser.add_argument("--random", type=int, nargs=2, metavar=("FIRST", "COUNT"), help="random shapes of these seeds in their place")
    parser.add_argument("--default-only", action="store_true", help="only by default, on the reference executor")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    total = 0
    chosen = [shapes()[name] for name in given.shapes] or list(shapes().values())
    if given.random:
        chosen = [random_shape(given.random[0] + k) for k in range(given.random[1])]
    for shape in chosen[first::step]:
        with tempfile.TemporaryDirectory() as folder:
            tally = witness([shape], Path(folder), given.n, by_default if given.default_only else in_all_ways)
        print(f"{shape.name}: {tally}", flush=True)
        for message, count in tally.refused.items():
            print(f"  {count} refused: {message[:300]}")
        by: dict[tuple[str, str, str], list[Difference]] = {}
        for d in tally.differences:
            by.setdefault((d.way, d.executor, d.what), []).append(d)
        for found in by.values():
            print(f"  {len(found)} such: {found[0]}", flush=True)
        total += len(tally.differences)
    print(f"{total} differ")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(_main())
