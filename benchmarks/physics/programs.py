"""What is measured: single launches as the cases of `kernels/` describe them, and the time loop of shock hydrodynamics on a tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuad.tools import cases

from ..adjoints.operations import executed
from ..measure import Effort, lower_medians, seconds
from ..workload import Workload, workload
from . import hydrodynamics
from .hydrodynamics import Body, Setting

Row = dict[str, Any]
LIKE = {
    "cross_section": "XSBench",
    "multipole": "RSBench",
    "lattice_boltzmann_3d": "LBM, D3Q19",
    "lattice_boltzmann": "LBM, D2Q9",
    "shock_hydrodynamics": "LULESH",
}
LOOP = Setting(side=32, steps=20, elsewhere=1.0)
QUICK = Setting(side=4, steps=2, elsewhere=1.0)


@dataclass(frozen=True)
class Program:
    """`name`: of a kernel, or of the time loop; `like`: the program that it follows."""

    name: str
    like: str
    measured: Callable[[Effort], Row]


def programs(*, full: bool = True) -> Iterator[Program]:
    """All of them; at small sizes unless `full`."""
    for stem, like in LIKE.items():
        for case in cases.read(cases.kernel_folder() / f"{stem}.cu"):
            sizes = dict(case.benchmark.sizes) if full and case.benchmark else {}
            yield Program(case.kernel, like, lambda effort, case=case, sizes=sizes: launch(workload(case, np, sizes), effort))
    yield Program("time loop", LIKE["shock_hydrodynamics"], lambda effort: loop(LOOP if full else QUICK, effort))


def launch(work: Workload, effort: Effort) -> Row:
    """The row of one launch: all that its case calls active has a shadow."""

    def turns() -> dict[str, float]:
        work.restore()
        found, states = {"primal": seconds(work.bare)}, list[Any]()
        work.restore()

        def forward() -> None:
            states.append(work.save())
            work.forward(states[0])

        return found | {"forward": seconds(forward), "reverse": seconds(lambda: work.reverse(states[0]))}

    work.restore()
    state = work.save()
    work.forward(state)
    work.reverse(state)
    times = lower_medians(turns, effort)
    kept = work.saved_bytes(state) + work.scratch_bytes(state)
    return row(work.sizes or work.case.resolve(), times["primal"], times["forward"] + times["reverse"], kept, atomics(work))


def atomics(work: Workload) -> int:
    """How many atomic additions the reverse kernels execute."""
    work.restore()
    state = work.save()
    work.forward(state)
    return executed(work, state)


def loop(setting: Setting, effort: Effort) -> Row:
    """The row of the time loop, recorded and reversed on one tape. Seeds are ones for the energy of all elements in the end."""
    start = hydrodynamics.beginning(setting)
    tape, body = hydrodynamics.recorded(setting, start)
    bare = Body(setting, {name: a.copy() for name, a in start.items()})

    def put_back() -> None:
        for name, array in start.items():
            bare.arrays[name][...] = array
            getattr(body.arrays[name], "primal", body.arrays[name])[...] = array

    def record() -> None:
        with tape:
            body.run()

    def turns() -> dict[str, float]:
        put_back()
        found = {"primal": seconds(bare.run), "forward": seconds(record)}
        return found | {"reverse": seconds(lambda: tape.reverse({body.arrays["energy"]: 1.0}))}

    times = lower_medians(turns, effort)
    sizes = {"side": setting.side, "steps": setting.steps}
    stats = tape.stats
    return row(sizes, times["primal"], times["forward"] + times["reverse"], stats.saved_bytes, setting.steps * of_a_step(setting))


def of_a_step(setting: Setting) -> int:
    """Atomic additions of the reverse of one time step, whose five launches are counted one by one; numbers have no shadows."""
    sizes = {"side": setting.side, "elements": setting.side**3}
    all_cases = [without_numbers(case) for case in cases.read(hydrodynamics.FILE)]
    return sum(atomics(workload(case, np, {name: n for name, n in sizes.items() if name in case.sizes})) for case in all_cases)


def without_numbers(case: cases.Case) -> cases.Case:
    """The case with shadows for arrays alone."""
    return replace(case, arguments={n: replace(a, active=a.active and a.shape is not None) for n, a in case.arguments.items()})


def row(sizes: dict[str, int], primal: float, gradient: float, kept: int, added: int) -> Row:
    """A row of the record."""
    return {
        "sizes": dict(sizes),
        "primal_ms": round(1e3 * primal, 3),
        "gradient_ms": round(1e3 * gradient, 3),
        "overhead": round(gradient / primal, 2),
        "bytes": kept,
        "atomics": added,
    }
