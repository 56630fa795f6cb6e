"""A case made runnable on an array library, in the pieces that are timed one by one: save, forward, reverse.

Kernels overwrite their arguments, so a repetition would measure other data than the one before it (a sorted array, a decayed field,
denormals): `restore` puts everything back, outside of what is timed. Only this module knows how gpuad launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from gpuad import Duplicated, api, pipeline
from gpuad.analysis.affine_forms import Launch
from gpuad.arguments import layouts
from gpuad.ir.dtypes import shadow_dtype
from gpuad.ir.nodes import Accumulate, Atomic, Buffer, How, If, Kernel, Load, Store, Take, Var
from gpuad.ir.rewrite import walk_stmts
from gpuad.pipeline.derived_kernels import Adjoint
from gpuad.tape.memory.effects import reached, surely_written
from gpuad.tools.cases import Case

Geometry: TypeAlias = "tuple[tuple[int, int, int], tuple[int, int, int]]"


@dataclass(eq=False)
class Workload:
    """One launch of a case's kernel with shadows for what the case calls active, and seeds of ones; or one that is of no case."""

    case: Case | None
    sizes: dict[str, int]
    kernel: api.Kernel
    args: tuple[Any, ...]
    call: pipeline.Call
    adjoint: Adjoint
    stages: tuple[pipeline.Stage, ...]
    kept: list[tuple[Any, Any]] = field(repr=False)

    @property
    def primal(self) -> Kernel:
        """The primal as it is launched alone."""
        return self.kernel.primal(self.call.aliases())

    @property
    def generated(self) -> Iterator[Kernel]:
        """Every kernel that one derivative launches."""
        yield self.primal
        yield from (
            k
            for k in (self.adjoint.augmented, pipeline.counting(self.adjoint, self.call), *(s.kernel for s in self.stages))
            if k is not None
        )

    @property
    def atomic(self) -> list[Buffer]:
        """The shadows into which the reverse kernels add atomically."""
        kernels = [stage.kernel for stage in self.stages]
        found = {s.buffer for k in kernels for s in walk_stmts(k.body) if isinstance(s, Accumulate) and s.how is How.ATOMIC}
        return [b for b in dict.fromkeys(b for k in kernels for b in k.buffers) if b in found]

    def restore(self) -> None:
        """Puts arguments and shadows back."""
        for array, before in self.kept:
            array[...] = before

    def save(self) -> pipeline.State:
        """What is taken down before the primal runs."""
        return pipeline.before(self.adjoint, self.call)

    def bare(self) -> None:
        """The primal alone, as a program without derivatives launches it."""
        pipeline.run_primal(self.primal, None, self.call)

    def forward(self, state: pipeline.State) -> None:
        """The primal in the form that the reverse pass wants."""
        pipeline.run_primal(self.primal, self.adjoint, self.call, state)

    def reverse(self, state: pipeline.State) -> None:
        """The reverse pass; a state serves once."""
        pipeline.run_stages(self.adjoint, self.stages, self.call, state)

    def saved_bytes(self, state: pipeline.State) -> int:
        """Bytes that are held from forward to reverse."""
        return sum(int(m.root.nbytes) for m in (*state.entries.values(), *state.logs))

    def scratch_bytes(self, state: pipeline.State) -> int:
        """Bytes of stacks, known after the reverse pass; on a CPU threads share rows that are no arrays."""
        return sum(int(m.root.nbytes) for m in state.scratch.values() if m is not None)

    @property
    def traffic(self) -> int:
        """Bytes that the primal has to move, as the case states them, else as `touched_bytes` counts them."""
        stated = self.case.traffic(self.sizes) if self.case is not None else None
        args = [*self.call.bound.primals(), *self.call.offset_values()]
        return stated if stated is not None else touched_bytes(self.primal, args)

    def reverse_traffic(self, state: pipeline.State) -> int:
        """Bytes that the reverse kernels have to move, as `touched_bytes` counts them; the state is one that has been reversed."""
        return sum(touched_bytes(stage.kernel, pipeline.stage_arguments(stage, self.call, state)) for stage in self.stages)


def workload(case: Case, library: Any, sizes: dict[str, int] | None = None, seed: int = 0) -> Workload:
    """The case on arrays of `library` (the module numpy or cupy), at the case's own sizes unless others are given."""
    kernel = api.Kernel(case.file, case.kernel)
    sizes = dict(sizes or {})
    made = case.arrays({d.name: d.type for d in kernel.parameters}, seed, sizes)
    args = tuple(_argument(value, name in case.active, library) for name, value in made.items())
    grid, block, shared_mem = case.geometry(sizes)
    return prepared(case, sizes, kernel, args, grid, block, shared_mem)


def prepared(
    case: Case | None, sizes: dict[str, int], kernel: api.Kernel, args: tuple[Any, ...], grid: Any, block: Any, shared: int
) -> Workload:
    """The workload of a launch: what `autodiff` decides before its first launch is decided here."""
    kernel = kernel.suited(args, shared)
    call = kernel.bind(grid, block, args, shared, None)
    adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
    call = replace(call, exact=adjoint.exact)
    stages = pipeline.stages(adjoint, call)
    given = [array for arg in args for array in (getattr(arg, "primal", arg), getattr(arg, "shadow", None))]
    arrays: list[Any] = [array for array in given if hasattr(array, "strides") and not isinstance(array, np.generic)]
    kept = [(array, array.copy()) for array in arrays]
    return Workload(case, sizes, kernel, args, call, adjoint, stages, kept)


def _argument(value: Any, active: bool, library: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return layouts.active(value, library) if active else value
    both = value, np.ones_like(value, None if value.dtype.names else shadow_dtype(value.dtype))
    if value.dtype.names and library is not np:  # CuPy has no structured arrays
        kinds = {kind for kind, *_ in value.dtype.fields.values()}
        numbers = kinds.pop() if len(kinds) == 1 else np.uint8
        both = value.view(numbers), both[1].view(numbers)
    array, seed = map(library.asarray, both)
    return Duplicated(array, seed) if active else array


def touched_bytes(kernel: Kernel, args: list[Any], geometry: Geometry | None = None) -> int:
    """Bytes that a kernel moves at least if it touches all of every array: once for those that it reads, once for those that it writes.
    Where it adds but to what it does not store to (`If` one, else the other), and the launch's `geometry` (grid, block) says how much that
    is, only that is read; nothing of what it has stored to before."""
    read, written = set(), set()
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Load | Take | Accumulate | Atomic):
            read.add(stmt.buffer)
        if isinstance(stmt, Store | Take | Accumulate | Atomic):
            written.add(stmt.buffer)
    sizes = {p: int(a.root.nbytes) for p, a in zip(kernel.params, args, strict=True) if isinstance(p, Buffer) and a is not None}
    spared = _assigned_bytes(kernel, args, geometry) | _stored_first(kernel, args, geometry) if geometry is not None else {}
    return sum(size * ((p in read) + (p in written)) - spared.get(p, 0) for p, size in sizes.items())


def _assigned_bytes(kernel: Kernel, args: list[Any], geometry: Geometry) -> dict[Buffer, int]:
    """Of shadows that are added to where they are not stored to: the bytes that are stored to."""
    launch, found = _launch(kernel, args, geometry), dict[Buffer, int]()
    for stmt in walk_stmts(kernel.body):
        inside = {s.buffer for s in stmt.then if isinstance(s, Store)} if isinstance(stmt, If) else set()
        beside = {s.buffer for s in walk_stmts(stmt.otherwise) if isinstance(s, Accumulate)} if isinstance(stmt, If) else set()
        for buffer in inside & beside:
            others = [s for s in walk_stmts(kernel.body) if getattr(s, "buffer", None) == buffer and s not in walk_stmts((stmt,))]
            region = reached(kernel.body, buffer, launch, (Store,), buffer.element.size) if not others else None
            found[buffer] = region.nbytes if region is not None else 0
    return found


def _stored_first(kernel: Kernel, args: list[Any], geometry: Geometry) -> dict[Buffer, int]:
    """Of arrays that are read only where, and after, they were stored to: their bytes."""
    launch, found = _launch(kernel, args, geometry), dict[Buffer, int]()
    for buffer, array in zip(kernel.params, args, strict=True):
        uses = [s for s in walk_stmts(kernel.body) if getattr(s, "buffer", None) == buffer]
        reads = [n for n, s in enumerate(uses) if isinstance(s, Load | Take | Accumulate | Atomic)]
        if isinstance(buffer, Buffer) and array is not None and reads and len(uses) > len(reads) == len(uses) - reads[0]:
            size = buffer.element.size
            read = reached(kernel.body, buffer, launch, (Load, Take, Accumulate, Atomic), size)
            if read is not None and read <= surely_written(kernel, buffer, launch, size):
                found[buffer] = int(array.root.nbytes)
    return found


def _launch(kernel: Kernel, args: list[Any], geometry: Geometry) -> Launch:
    numbers = {p: int(a) for p, a in zip(kernel.params, args, strict=True) if isinstance(p, Var) and p.type.is_integer}
    return Launch(*geometry, numbers)
