"""`PYTHONPATH=.:tests python tests/second_search.py [GRAMMAR ...] --cases 2000`: second derivatives of random kernels, and nothing else.

Of each kernel of a grammar `hvp` alone is derived, with nothing proved of the launch, and run by the reference executor without its watch
for races: its tangent is compared with differences of the primal, its gradient with its tangent (`<J v, w> = <v, J^T w>`), and the
derivative of its gradient with differences of that gradient. `--minutes` ends each grammar after so long; how many kernels there were is
said of each. A kernel that fails is printed with its seed, and the exit status is 1.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from random_cuda import random_kernel
from random_cuda_checks import Case, Discarded, Failure, Tally, second_alone, small_or_discarded
from random_jit import ROW, RandomJit, loaded
from random_language import whole_kernel
from random_language_case import WholeCase
from random_shared import RandomShared
from random_turns import RandomTurns

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.api import kernels
from gpuad.ir import verify as verifying
from gpuad.ir.aliases import NONE, Aliases
from gpuad.pipeline import passes
from gpuad.runtime.reference import Reference
from gpuad.testing.launch_memory import LaunchMemory, Vector, launched
from gpuad.testing.reports import Check as Compared
from gpuad.testing.second_check import CHANGE, along, second_checks
from gpuad.testing.slopes import without_scalars

Check = Callable[[Tally], None]
NEARER = (1, 16, 256)  # a kink or a bend that lies within a step is none within a smaller one


def launch(kernel: Any, args: tuple[Any, ...], grid: int, block: int, seed: int) -> Check:
    """The checks of a launch, by what `check_gradient` compares second derivatives with."""

    def check(tally: Tally) -> None:
        state = LaunchMemory(*launched(kernel, args, grid, block, 0, {}))
        for nearer in NEARER:
            notes: list[str] = []
            found = compared(state, nearer, seed, notes)
            wrong = [check for check in found if not check.passed]
            if not wrong:
                break
        refused = any("hvp refuses" in note for note in notes)
        if any("no path from an active input" in note for note in notes) or not (wrong or refused or found[-1].name == CHANGE):
            raise Discarded  # what it writes depends on nothing, or bends within any step
        if wrong:
            small_or_discarded(*steepness(state, seed))
            raise Failure(wrong[0].name, f"{wrong[0].error:.2e}, at most {wrong[0].tolerance:.2e}")
        tally.kernels += 1
        tally.seconds += not refused
        tally.refused += refused

    return check


def compared(state: LaunchMemory, nearer: int, seed: int, notes: list[str]) -> list[Compared]:
    """All comparisons with differences of a step this many times smaller than the usual one."""
    precision = state.precision()
    return list(second_checks(state, replace(precision, step=precision.step / nearer), np.random.default_rng(seed), notes, alone=True))


def steepness(state: LaunchMemory, seed: int) -> tuple[Vector, Vector]:
    """The tangent and the gradient, along random vectors: where they are large no difference tells anything."""
    rng = np.random.default_rng(seed)
    v, w = state.random(rng, scaled=True), without_scalars(state.random(rng, scaled=False))
    second = along(state, v, w, w)
    return second.tangent, second.gradient


def cuda(seed: int) -> tuple[str, Check]:
    made = random_kernel(seed)
    return made.text, lambda tally: second_alone(Case.of(made), tally)


def language(seed: int) -> tuple[str, Check]:
    made = whole_kernel(seed)
    return made.text, lambda tally: second_alone(WholeCase.of(made), tally)


def shared(seed: int) -> tuple[str, Check]:
    made, r = RandomShared(seed, warps=seed % 5 == 0), np.random.default_rng(seed)
    n = 2 * made.block - (0 if made.warps else 3)
    args = (Duplicated(r.uniform(0.3, 0.9, n)), Duplicated(r.normal(size=n)), np.int32(n), np.int32(2))
    return made.text, lambda tally: launch(gpuad.kernel(made.text, "k"), args, 2, made.block, seed)(tally)


def turns(seed: int) -> tuple[str, Check]:
    made, r = RandomTurns(seed), np.random.default_rng(seed)
    n, size = 2 * made.block - 3, 2 * made.block
    arrays = [Duplicated(r.uniform(0.1, 0.9, length)) for length in (n, n, size, size)]
    return made.text, lambda tally: launch(gpuad.kernel(made.text, "k"), (*arrays, n, 2), 2, made.block, seed)(tally)


def jit(seed: int) -> tuple[str, Check]:
    made, r, n = RandomJit(seed), np.random.default_rng(seed), 6
    arrays = [Duplicated(r.uniform(0.3, 1.2, (n, ROW) if name == "y" else n)) for name in ("a", "b", "x", "y", "s")]
    args = (*arrays, r.integers(0, n, n).astype(np.int32), n, 2)

    def check(tally: Tally) -> None:
        with tempfile.TemporaryDirectory() as folder:
            launch(loaded(made.text, Path(folder) / f"jit_{seed}.py").kernel, args, 2, 4, seed)(tally)

    return made.text, check


GRAMMARS: dict[str, Callable[[int], tuple[str, Check]]] = {f.__name__: f for f in (cuda, language, shared, turns, jit)}


@contextmanager
def asked_once() -> Iterator[None]:
    """Within it the surface tree of a kernel is lowered once, and not for its primal, its adjoint and its tangent each; two threads that
    write to one element are looked for in the first launch of a kernel alone; and the IR is not verified, as it is in all other tests."""
    lowered: dict[tuple[int, Aliases], tuple[Any, Any]] = {}  # by the id of the function, which stays alive
    looked: dict[int, Any] = {}  # by the id of the derived kernel, which stays alive
    primal_of, check_stores = passes.primal_of, pipeline.check_stores

    def once(function: Any, aliases: Aliases = NONE) -> Any:
        key = id(function), aliases
        if key not in lowered:
            lowered.clear()
            lowered[key] = function, primal_of(function, aliases)
        return lowered[key][1]

    def first(derived: Any, call: Any) -> None:
        if id(derived) not in looked:
            check_stores(derived, call)
            looked[id(derived)] = derived

    replaced = [
        (kernels, "primal_of", primal_of, once),
        (passes, "primal_of", primal_of, once),
        (pipeline, "check_stores", check_stores, first),
        *((module, "verify", module.verify, lambda kernel: None) for module in (passes, verifying)),
    ]
    for module, name, _, new in replaced:
        setattr(module, name, new)
    try:
        yield
    finally:
        for module, name, old, _ in replaced:
            setattr(module, name, old)


def searched(name: str, seeds: range, seconds: float) -> tuple[Tally, list[str]]:
    """The kernels of a grammar with these seeds, as many as there is time for: what was counted, and what failed."""
    tally, failed, end = Tally(), [], time.process_time() + seconds
    with pipeline.executor_for_tests(Reference(check=False)), pipeline.nothing_plain_for_tests(), asked_once():
        for seed in seeds:
            if time.process_time() > end:
                break
            if (seed - seeds.start) % 50 == 49:
                print(f"{name}: {tally}", file=sys.stderr, flush=True)
            text, check = GRAMMARS[name](seed)
            try:
                check(tally)
            except Discarded:
                tally.discarded += 1
            except Exception as error:  # whatever it is, the others are still checked
                failed.append(f"{name}, seed {seed}: {type(error).__name__}: {error}\n{text}")
                print(failed[-1], flush=True)
    return tally, failed


def main(
    grammars: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(GRAMMARS)}; all by default")] = None,
    cases: Annotated[int, typer.Option(help="kernels of each grammar")] = 2000,
    seed: Annotated[int, typer.Option(help="that of the first")] = 0,
    minutes: Annotated[float, typer.Option(help="of CPU time, that each grammar may take")] = 1e6,
) -> None:
    """Compares second derivatives of random kernels with differences."""
    os.environ["GPUAD_CACHE_FACTS"] = "0"  # each kernel is derived anew
    wrong = []
    for name in grammars or GRAMMARS:
        start = time.process_time()
        tally, failed = searched(name, range(seed, seed + cases), 60 * minutes)
        wrong += failed
        print(f"{name}: {len(failed)} failed; {tally}; {time.process_time() - start:.0f} s", flush=True)
    raise typer.Exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
