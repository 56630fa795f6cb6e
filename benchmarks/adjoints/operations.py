"""An operation: a primal, gpuad's adjoint of it, and the one by hand, on one set of primal arrays and a set of shadows each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuad import Duplicated, api, pipeline
from gpuad.ir import folding as b
from gpuad.ir import nodes as ir
from gpuad.ir.rewrite import Names, edit, walk_stmts
from gpuad.ir.types import F64, I32
from gpuad.pipeline.schedule import own_arguments
from gpuad.runtime.base import Memory
from gpuad.source import SourceFile
from gpuad.tools import cases
from gpuad.tools.cases import Case

from ..workload import Workload, prepared

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Launch:
    """A launch by hand; `own`: arrays among its arguments that are no primal's and no shadow's."""

    call: pipeline.Call
    kernel: ir.Kernel
    own: tuple[Any, ...]

    def run(self) -> None:
        """Launches it."""
        pipeline.run_primal(self.kernel, None, self.call)


@dataclass(frozen=True)
class Operation:
    """One operation at some sizes. `arrays`: the primal's arguments by their names; `shadows`, `theirs`: gpuad's shadows and those for the
    adjoint by hand, by the names of the arrays; `seeds`: what is in them before; `outputs`: what the primal writes and does not read."""

    workload: Workload
    by_hand: tuple[Launch, ...]
    arrays: dict[str, Any]
    outputs: frozenset[str]
    shadows: dict[str, Any]
    theirs: dict[str, Any]
    seeds: dict[str, Any]

    def put_back(self) -> None:
        """All arrays as they were before the primal was launched."""
        self.workload.restore()
        for name, seed in self.seeds.items():
            self.theirs[name][...] = seed

    def run_by_hand(self) -> None:
        """The adjoint by hand, after the primal."""
        for launch in self.by_hand:
            launch.run()

    def run_by_gpuad(self) -> pipeline.State:
        """The primal and gpuad's adjoint."""
        state = self.workload.save()
        self.workload.forward(state)
        self.workload.reverse(state)
        return state

    def bytes(self) -> int:
        """What gpuad saves and what its stacks take."""
        self.put_back()
        state = self.run_by_gpuad()
        return self.workload.saved_bytes(state) + self.workload.scratch_bytes(state)

    @property
    def own_bytes(self) -> int:
        """What the adjoint by hand has beside primal arrays and gradients."""
        return sum(int(array.nbytes) for launch in self.by_hand for array in launch.own)

    def gradients(self) -> dict[str, tuple[Any, Any]]:
        """gpuad's and the gradient by hand for each array but the outputs, from one run of both."""
        self.put_back()
        self.workload.bare()
        self.run_by_hand()
        found = {name: self.theirs[name].copy() for name in self.shadows if name not in self.outputs}
        self.put_back()
        self.run_by_gpuad()
        return {name: (self.shadows[name].copy(), theirs) for name, theirs in found.items()}

    def turns(self, seconds: Callable[[Callable[[], object]], float]) -> dict[str, float]:
        """Seconds of each piece, one after the other, by a clock."""
        self.put_back()
        found = {"primal": seconds(self.workload.bare), "by hand": seconds(self.run_by_hand)}
        self.put_back()
        states: list[Any] = []

        def forward() -> None:
            states.append(self.workload.save())
            self.workload.forward(states[0])

        found["forward"] = seconds(forward)
        found["reverse"] = seconds(lambda: self.workload.reverse(states[0]))
        return found

    def atomics(self) -> tuple[int, int]:
        """How many atomic additions gpuad's kernels and those by hand execute."""
        self.put_back()
        state = self.workload.save()
        self.workload.forward(state)
        ours = executed(self.workload, state)
        self.put_back()
        self.workload.bare()
        return ours, sum(counted(x.call, x.kernel, [*x.call.bound.primals(), *x.call.offset_values()], None) for x in self.by_hand)


def executed(work: Workload, state: Any) -> int:
    """How many atomic additions the reverse of a launch executes, after its forward has left this state."""
    total = 0
    for stage in work.stages:
        args = own_arguments(work.adjoint, stage, work.call, state, 0)
        assert args is not None, "the CPU has rows for stacks"
        total += counted(work.call, stage.kernel, args, stage.grid)
    return total


def operations() -> Iterator[tuple[Case, tuple[Case, ...]]]:
    """The primals, each with the kernels of its adjoint by hand in order."""
    for file in sorted(HERE.glob("*.cu")):
        by_hand = cases.read(SourceFile(file.name, file.read_text(encoding="utf-8")))
        primals = cases.read(cases.kernel_folder() / file.name)
        for name in dict.fromkeys(case.title for case in by_hand):
            yield next(p for p in primals if p.kernel == name), tuple(c for c in by_hand if c.title == name)


def made(case: Case, by_hand: tuple[Case, ...], *, full: bool, seed: int = 0) -> Operation:
    """An operation at the sizes of the comparison (`full`), or at the small ones of the case. What the primal writes has random seeds, and
    the gradients of all else begin at 0."""
    sizes = dict(by_hand[0].benchmark.sizes) if full and by_hand[0].benchmark is not None else {}
    kernel = api.Kernel(case.file, case.kernel)
    arrays = case.arrays({d.name: d.type for d in kernel.parameters}, seed, sizes)
    rng = np.random.default_rng(seed)
    seeds = {name: rng.standard_normal(arrays[name].shape).astype(arrays[name].dtype) for name in case.active}
    shadows, theirs = ({name: seed.copy() for name, seed in seeds.items()} for _ in range(2))
    args = tuple(Duplicated(value, shadows[name]) if name in shadows else value for name, value in arrays.items())
    grid, block, shared = case.geometry(sizes)
    workload = prepared(case, sizes, kernel, args, grid, block, shared)
    written, read = (
        {s.buffer.name for s in walk_stmts(workload.primal.body) if isinstance(s, kinds)}
        for kinds in (ir.Store | ir.Accumulate | ir.Atomic, ir.Load | ir.Accumulate | ir.Atomic)
    )
    for name in seeds.keys() - written:
        seeds[name][...] = shadows[name][...] = 0
    workload = prepared(case, sizes, kernel, args, grid, block, shared)
    known = {**arrays, **{f"d{name}": shadow for name, shadow in theirs.items()}}
    by_hand_launches = tuple(_launch(c, sizes, known) for c in by_hand)
    return Operation(workload, by_hand_launches, arrays, frozenset(written - read), shadows, theirs, seeds)


def _launch(case: Case, sizes: dict[str, int], known: dict[str, Any]) -> Launch:
    kernel = api.Kernel(case.file, case.kernel)
    arrays = case.arrays({d.name: d.type for d in kernel.parameters}, 0, sizes)
    args = tuple(known.get(name, value) if isinstance(value, np.ndarray) else value for name, value in arrays.items())
    grid, block, shared = case.geometry(sizes)
    chosen = kernel.suited(args, shared)
    call = chosen.bind(grid, block, args, shared, None)
    own = tuple(value for name, value in arrays.items() if isinstance(value, np.ndarray) and name not in known)
    return Launch(call, chosen.primal(call.aliases()), own)


def counted(call: pipeline.Call, kernel: ir.Kernel, args: list[Any], grid: Any) -> int:
    """How many atomic additions a launch executes: by the kernel with a count beside each of them. A sum over a block is one of them."""
    names = Names(kernel)
    count = names.buffer("count", F64)

    def beside(stmt: ir.Stmt) -> ir.Block | None:
        how = getattr(stmt, "how", ir.How.ATOMIC)
        if not isinstance(stmt, ir.Accumulate | ir.Atomic | ir.Take) or how is ir.How.PLAIN:
            return None
        share = 1.0 / math.prod(call.block) if how is ir.How.REDUCED else 1.0
        return stmt, ir.Accumulate(count, b.zero(I32), b.const(share, F64), how)

    def counting(one: ir.Kernel) -> ir.Kernel:
        in_rows = counting(one.in_rows) if one.in_rows is not None else None
        return replace(one, params=(*one.params, count), body=edit(one.body, beside), in_rows=in_rows)

    total = np.zeros(1)
    call.run(counting(kernel), [*args, Memory(total)], grid)
    return round(total[0])
