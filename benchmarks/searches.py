"""Searches and proofs: `python -m benchmarks.searches [TEXT ...]`, the largest CPU time that a launch spends in each, with its limit.

Of the cases of kernels/ whose names have one of the texts in them (of all by default), and of MADE_UP launches (`made_up`), all is done
that comes before the first launch of a reverse pass, down to its texts for a GPU and for a CPU. The programs of two demos, small, and of
MADE_UP programs (`made_up_programs`) are recorded twice and reversed by the reference executor. Of each search: its limit, read from the
code; what follows where that is met; and the largest time that one launch spends in it, with what that is called. Without texts the record
goes to `results/`, from which docs/searches.md has its table.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from gpuad import api, pipeline
from gpuad.codegen.cpu.source import host_source
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import GpuadError
from gpuad.pipeline.launch_checks import check_races
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.tape.reverse import reversal_plan
from gpuad.tools.cases import Case, all_cases
from gpuad.tools.demo import gray_scott, wave

from . import made_up, made_up_programs, records

HOST = Host()
MADE_UP = 200
KINDS = "kernels", "made up"
WHOLE = "all of a launch", "all of a program, its runs too"


@dataclass
class Search:
    """A search: `place`, the function that a launch or a program enters for it, below `gpuad`; `limit` in words with names of constants in
    braces, which stand in the module of the place or behind its name; what is done `beyond`."""

    question: str
    place: str
    limit: str
    beyond: str
    spent: dict[str, float] = field(default_factory=dict)  # by launch
    inside: bool = False


_ATOMIC = "atomic additions, and `explain` says so"
SEARCHES = (
    # proofs
    Search("do the kernels add what the plain adjoint adds", "affine.certificate.refused",
           "{affine.relations.STEPS} steps a launch, {affine.relations.OPERATIONS} operations of isl an obligation", _ATOMIC),
    Search("may two threads touch one element", "affine.certificate.meeting", "the same, and once more for indices that are data", _ATOMIC),
    Search("is a relation one-to-one, is a set empty", "affine.relations.tractable",
           "{affine.relations.QUOTIENTS} quotients of a part, {affine.relations.DIVISIONS} in a text", _ATOMIC),
    Search("a set without another", "affine.relations.without", "{affine.relations.SUBTRACTING} operations of isl", _ATOMIC),
    Search("the parts of a sum by seeds", "affine.equivalence._atoms", "{affine.equivalence._ATOMS} parts", _ATOMIC),
    Search("cells of instances", "affine.cells.cells", "{affine.cells._CELLS} cells, {affine.cells._CUTS} conditions", _ATOMIC),
    Search("points of a set", "affine.cells.scattered", "{affine.points._GRID} points of a box, {affine.points._TRIES} random ones",
           "fewer points are looked at, those at the ends among them"),
    Search("which instances belong together", "affine.classes.Classes.difference",
           "{affine.classes._TRIALS} relations a pair, {affine.classes._WAVES} steps through a class", _ATOMIC),
    Search("values at points", "affine.sampling.Sampler.value", "{affine.sampling._ITERATIONS} iterations of nested loops",
           "a random value stands for the others"),
    Search("is a kernel the text of the plain adjoint", "affine.accumulation_certificate.accumulated_otherwise", "one pass", ""),
    # deriving
    Search("trip counts of while loops", "analysis.trip_counts.passed", "{analysis.trip_counts._MOST} iterations", "depths are counted"),
    Search("calls of functions", "lower.normalize.normalize", "{lower.normalize.MAX_DEPTH} calls in one another",
           "refused, with its place"),
    Search("what a minimum cut saves", "analysis.min_cut.minimum_cut", "{analysis.min_cut.STEPS} edges",
           "what was to be saved is saved"),
    Search("what is recorded", "ad.recording.record", "each round needs one more value", ""),
    Search("arrays of constants and small loops written out", "optimize.scalar_replacement.unroll_local_arrays",
           "{optimize.scalar_replacement.LENGTH} elements, {optimize.scalar_replacement.STATEMENTS} statements", "they stay as they are"),
    Search("factors put out of brackets", "optimize.factoring.factor_linear_values",
           "{optimize.factoring._ROUNDS} rounds, sums of {optimize.factoring._MOST} terms", "they stay as they are"),
    Search("indices as polynomials", "analysis.index_polynomials.polynomial", "{analysis.index_polynomials._LIMIT} monomials",
           "the expression is one unknown"),
    Search("pieces of an index that bends", "optimize.piecewise_affine.PiecewiseAffine.pieces",
           "{optimize.piecewise_affine.MOST} pieces, {optimize.piecewise_affine._LONG} parts, {optimize.piecewise_affine.PINS} threads",
           "not gathered"),
    Search("shifts between senders and elements", "accumulate.gather.gather",
           "{accumulate.access_inversion.MOST_SLICES} slices", "not gathered"),
    Search("the launch of a gather", "accumulate.gather_launch.gather_launch",
           "{accumulate.gather_launch._IDLE} times as many threads as elements", "not gathered"),
    # refusing
    Search("a race that the numbers prove", "analysis.races.proved_race",
           "{analysis.conflicts.NODES} nodes a pair, {analysis.conflicts.ALL_NODES} in all", "an assumption, which `explain` lists"),
    Search("a race in shared memory", "pipeline.inspectors.shared_race", "{pipeline.inspectors.STEPS} steps of the first block",
           "an assumption"),
    Search("reads past the end", "analysis.races.sure_reads", "one pass", ""),
    Search("is a tile stored before it is read", "analysis.must_define.defines_before_use",
           "{analysis.must_define.STEPS} iterations, {analysis.must_define.WORK} of all threads", "the tile is recorded"),
    Search("ranges under conditions", "analysis.affine_forms.Walk.under", "{analysis.affine_forms._ROUNDS} rounds", "wider ranges"),
    # texts
    Search("variables that share a name", "codegen.coalesce.coalesce", "each loop's needs only grow", ""),
    Search("expressions written in place", "codegen.folded.fold", "each round has fewer statements", ""),
    Search("rows of a grid on a CPU", "codegen.cpu.row_loops.split_index_set", "{codegen.cpu.row_loops._ROUNDS} rounds", "no rows"),
    Search("registers along a row", "codegen.cpu.register_promotion.promote_registers",
           "{codegen.cpu.register_promotion.MOST} distances, {codegen.cpu.register_promotion._TERMS} terms", "memory is read"),
    Search("may a row be vectorised", "codegen.cpu.vectorisation_legality.is_vectorisable",
           "sums of {codegen.cpu.vectorisation_legality._MOST_TERMS} terms", "it is not"),
    # programs
    Search("do two views overlap", "arguments.aliasing.overlap", "{arguments.aliasing._OVERLAP_WORK} steps of NumPy's solver",
           "refused: pass contiguous copies"),
    Search("launches in one", "fusion.chain.one_after_the_other",
           "{fusion.chain.MOST} launches, {fusion.link.STATEMENTS} statements, {fusion.chain.KERNELS} kernels a program; "
           "{affine.relations.OPERATIONS} operations of isl a pair", "they stay apart"),
    Search("states of a grid-wide kernel's numbers", "lower.grid_variants.variants", "{lower.grid_variants.MOST} states",
           "refused, with its place"),
    Search("the period of a program", "tape.budget.planner.period", "{tape.budget.planner._LONGEST} operations",
           "each operation is a unit"),
    Search("checkpoints within a budget", "tape.budget.planner.Planner.best",
           "{tape.budget.planner.MOST_UNITS} units, {tape.budget.planner.MOST_WEIGHED} by what each costs",
           "several operations are a unit"),
    Search("where a shadow is zero", "tape.reverse.zero_regions.step_of",
           "{tape.memory.effects.MOST_RUNS} runs, {tape.reverse.interior_box._LAYERS} layers", "a larger region is cleared"),
    Search("what an inspector looks at", "pipeline.inspectors.one_by_one",
           "{inspect.barrier_phase.NOTES} notes of a thread, {inspect.barrier_phase.ITERATIONS} iterations; else as long as the launch",
           "refused, or atomic"),
)  # fmt: skip


def number(name: str) -> str:
    """A constant of the package as text."""
    module, _, constant = name.rpartition(".")
    value = getattr(import_module(f"gpuad.{module}"), constant)
    return " x ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"


def limit(search: Search) -> str:
    """The limit in words and numbers."""
    parts = search.limit.split("{")
    return parts[0] + "".join(number(name) + rest for name, _, rest in (part.partition("}") for part in parts[1:]))


def owner(place: str) -> tuple[Any, str]:
    """The module or class that has a function, and its name."""
    parts = place.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found = import_module("gpuad." + ".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:-1]:
            found = getattr(found, name)
        return found, parts[-1]
    raise ValueError(place)


@contextmanager
def watched(current: Callable[[], str]) -> Iterator[None]:
    """Within it the searches are timed, wherever they were imported."""
    replaced: list[tuple[Any, str, Any]] = []
    for search in SEARCHES:
        where, name = owner(search.place)
        function = getattr(where, name)
        timed = _timed(search, function, current)
        users = [where] if isinstance(where, type) else [m for n, m in list(sys.modules.items()) if n.startswith("gpuad")]
        for user in users:
            if vars(user).get(name) is function:
                replaced.append((user, name, function))
                setattr(user, name, timed)
    try:
        yield
    finally:
        for user, name, function in replaced:
            setattr(user, name, function)


def _timed(search: Search, function: Callable[..., Any], current: Callable[[], str]) -> Callable[..., Any]:
    def ask(*args: Any, **named: Any) -> Any:
        if search.inside:
            return function(*args, **named)
        search.inside, start = True, time.process_time()
        try:
            return function(*args, **named)
        finally:
            search.inside = False
            search.spent[current()] = search.spent.get(current(), 0.0) + time.process_time() - start

    return ask


def prepared(kernel: Any, args: tuple[Any, ...], grid: Any, block: Any) -> None:
    """All that comes before the first launch of a reverse pass."""
    with kernel.room():
        call = kernel.bind(grid, block, args, 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        check_races(adjoint, call)
        made = [stage.kernel for stage in pipeline.stages(adjoint, call)]
        cuda_source(made)
        host_source([HOST.fitting(kernel, call.block)[0].kernel for kernel in made])


def of_case(case: Case) -> None:
    kernel = api.Kernel(case.file, case.kernel)
    arrays = case.arrays({d.name: d.type for d in kernel.parameters}, 0)
    grid, block, _ = case.geometry()
    prepared(kernel, tuple(case.annotated(argument, value) for argument, value in arrays.items()), grid, block)


def demos() -> list[tuple[str, Callable[[], None]]]:
    """The programs of two demos, small, each with its tape recorded several times."""

    def dish() -> None:
        gray_scott.invert(gray_scott.Setting(n=16, seeds=4, steps=12, iterations=2), np)

    def plate() -> None:
        simulation = wave.Simulation(wave.Setting(n=32, steps=24, shots=2, receivers=8, sponge=4), np)
        for _, _ in zip(range(3), wave.points(simulation), strict=False):
            pass

    return [("demo gray-scott", dish), ("demo wave", plate)]


@contextmanager
def joined_at_once() -> Iterator[None]:
    """Within it launches of a program are joined as soon as it comes again, and not when it has come often enough for that to pay."""
    patience, reversal_plan.PATIENCE = reversal_plan.PATIENCE, 0.0
    try:
        yield
    finally:
        reversal_plan.PATIENCE = patience


def measured(texts: list[str], made_ups: int) -> dict[str, float]:
    """The CPU seconds of each launch, by kind and name; what each spends in the searches is noted there."""
    todo: list[tuple[str, Callable[[], None]]] = [
        (f"{KINDS[0]}: {case.id}", lambda case=case: of_case(case))  # type: ignore[misc]
        for case in all_cases()
        if not texts or any(text in case.id for text in texts)
    ]
    todo += [(f"{KINDS[0]}: {name}", program) for name, program in demos() if not texts or any(text in name for text in texts)]
    todo += [
        (f"{KINDS[1]}: {made.name}", lambda made=made: prepared(api.kernel(made.text, "k"), made.arguments(), made.grid, made.block))  # type: ignore[misc]
        for made in made_up.launches(made_ups)
    ]
    todo += [(f"{KINDS[1]}: {made.name}", made) for made in made_up_programs.programs(made_ups)]
    whole: dict[str, float] = {}
    now = [""]
    with watched(lambda: now[0]), pipeline.executor_for_tests(Reference(check=False)), joined_at_once():
        for name, run in todo:
            now[0], start = name, time.process_time()
            try:
                run()
            except GpuadError as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            whole[name] = time.process_time() - start
    return whole


def largest(spent: dict[str, float], kind: str) -> tuple[float, str]:
    """The largest time of a kind of launches, in milliseconds, and which."""
    mine = {name.removeprefix(f"{kind}: "): seconds for name, seconds in spent.items() if name.startswith(kind)}
    name = max(mine, key=mine.__getitem__, default="")
    return round(1e3 * mine.get(name, 0.0), 1), name


def rows(whole: dict[str, float]) -> list[dict[str, Any]]:
    """What the record has: of launches and of programs all together, and of each search."""
    programs = {name: seconds for name, seconds in whole.items() if ": demo " in name or ": program " in name}
    launches = {name: seconds for name, seconds in whole.items() if name not in programs}
    found = [(WHOLE[0], launches), (WHOLE[1], programs), *((s.question, s.spent) for s in SEARCHES)]
    return [{"question": question, **{kind: largest(spent, kind) for kind in KINDS}} for question, spent in found]


def table(found: list[dict[str, Any]]) -> str:
    """The searches with their limits as they are now, and the milliseconds of a record, each with its launch; Markdown."""
    times = {row["question"]: " | ".join(f"{row[kind][0]:.0f} | {row[kind][1]}" for kind in KINDS) for row in found}
    lines = ["| what is looked for | limit | beyond it | kernels/ and demos, ms | | made up, ms | |", "|---|---|---|---:|---|---:|---|"]
    lines += [f"| {name} | | | {times[name]} |" for name in WHOLE]
    for search in SEARCHES:
        lines.append(f"| {search.question} (`{search.place}`) | {limit(search)} | {search.beyond} | {times[search.question]} |")
    return "\n".join(lines) + "\n"


def main(texts: list[str]) -> None:
    os.environ["GPUAD_CACHE_FACTS"] = "0"  # else what an earlier process has found is not looked for
    found = rows(measured(texts, MADE_UP if not texts else 3))
    print(table(found))
    if not texts:
        records.write(
            "searches", "epyc-2-cores", records.today(), {"versions": records.versions("islpy"), "load": records.load(), "rows": found}
        )


if __name__ == "__main__":
    main(sys.argv[1:])
