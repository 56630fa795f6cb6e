"""A launch split into its forward and its reverse half, with all that lies between them known beforehand.

In: a kernel, which of its parameters have a shadow, and a call whose arrays lie apart from each other. Out: the two halves for all calls
that are alike (types, layouts, whole numbers, geometry), and what the reverse needs of each: which arrays as they are after the launch
(`reads`), which as they were before it (`before`), and what the launch writes down on its way (`logs`). What is in none of these is not
needed, and nothing here keeps it. Whoever has a `Split` has no memory of a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .. import pipeline
from ..api import FlatArguments, Kernel, check_flow_bare
from ..arguments import BoundArgument
from ..arguments.annotations import Duplicated
from ..arguments.arrays import resolve
from ..arguments.conversions import Place
from ..errors import LaunchError, UnsupportedError
from ..ir.dtypes import dtype_of
from ..ir.nodes import Accumulate, Atomic, Buffer, Store, Take
from ..ir.nodes import Kernel as IrKernel
from ..ir.rewrite import walk_stmts
from ..pipeline import Call, State
from ..pipeline.derived_kernels import Adjoint
from ..pipeline.pattern import Pattern
from ..runtime.array_types import Extents, NdArray
from ..runtime.base import Memory


class Layout(NamedTuple):
    """How an array lies, without it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Split:
    """Both halves. Positions are those of the parameters; `shadows`: the dtype of each one's shadow, None where it has none."""

    kernel: Kernel
    call: Call  # without its memory
    adjoint: Adjoint
    primal: IrKernel
    stages: tuple[pipeline.Stage, ...]
    shadows: tuple[np.dtype[Any] | None, ...]
    roots: tuple[np.dtype[Any] | None, ...]  # of the numbers that a kernel's pointers count
    reads: tuple[int, ...]
    before: tuple[int, ...]
    working: frozenset[int]  # of `before`, what the reverse overwrites
    logs: tuple[tuple[int, np.dtype[Any]], ...]  # lengths and dtypes
    unchanged: frozenset[int]  # of those in `left`, seeds that the reverse only reads
    doubtful: bool  # whether the launch looks at the data, and may refuse: a reverse without it may be wrong

    @property
    def saved_bytes(self) -> int:
        """Bytes that the launch writes down for its reverse."""
        return sum(size * dtype.itemsize for size, dtype in self.logs)

    def forward(self, args: Sequence[Any], logs: Sequence[Any]) -> None:
        """Runs the launch on the current stream, `logs` being zeros. Raises before anything is written."""
        call = self.bound(args)
        pipeline.check_stores(self.adjoint, call)
        pipeline.run_primal(self.primal, self.adjoint, call, State({}, logs=[resolve(log) for log in logs]))

    def bound(self, args: Sequence[Any]) -> Call:
        """A call that is alike, bound."""
        own = self.call
        call = self.kernel.bind(own.grid, own.block, flat(self.kernel, args), own.shared_mem, None)
        return replace(call, exact=self.adjoint.exact)

    def reverse(self, args: Sequence[Any], shadows: Sequence[Any], before: Mapping[int, Any], logs: Sequence[Any]) -> None:
        """Pulls the seeds in `shadows` back, on the current stream. `args`: the call's numbers, and the arrays of `reads` as they are after
        the launch, None elsewhere; `before`: those of `before`, of which the ones in `working` are overwritten."""
        arguments = tuple(self._argument(i, x, shadow) for i, (x, shadow) in enumerate(zip(args, shadows, strict=True)))
        call = replace(self.call, bound=replace(self.call.bound, arguments=arguments))
        call.__dict__.update(key=self.call.key, overlaps={})
        primals = {i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(arguments)}
        entries = {i: self.memory(i, x) for i, x in before.items()}
        pipeline.run_stages(self.adjoint, self.stages, call, State(primals, entries, [resolve(log) for log in logs]))

    def _argument(self, i: int, x: Any, shadow: NdArray) -> BoundArgument:
        like = self.call.bound.arguments[i]
        made = (self.shadow_memory(i, shadow),) if shadow is not None else ()
        arrays = (shadow,) if shadow is not None else ()
        kind = ("duplicated" if like.is_pointer else "active") if made else "const"
        if like.is_pointer:
            return replace(like, kind=kind, memory=None if x is None else self.memory(i, x), shadows=made, shadow_arrays=arrays)
        value = Place(self.kernel.name, i, like.declaration).bind(x).value
        return replace(like, kind=kind, value=value, shadows=made, shadow_arrays=arrays)

    def memory(self, i: int, array: NdArray) -> Memory:
        """The memory of an array for a parameter."""
        return _as(resolve(array), self.roots[i])

    def shadow_memory(self, i: int, shadow: NdArray) -> Memory:
        """The memory of a shadow, which is counted in real numbers."""
        return _as(resolve(shadow), None if shadow.dtype.kind != "c" else np.dtype(f"f{shadow.dtype.itemsize // 2}"))


def _as(memory: Memory, dtype: np.dtype[Any] | None) -> Memory:
    if dtype is None or memory.root.dtype == dtype:
        return memory
    return Memory(memory.root.view(dtype), memory.offset * memory.root.dtype.itemsize // dtype.itemsize)


def flat(kernel: Kernel, args: Sequence[Any]) -> Sequence[Any]:
    """Arguments by the positions of `Kernel.flat`, as a kernel takes them."""
    return FlatArguments(args) if kernel.composed else args


def split_launch(
    kernel: Kernel,
    active: Sequence[bool],
    grid: Extents,
    block: Extents,
    args: Sequence[Any],
    shared_mem: int = 0,
    left: Collection[int] = (),
) -> Split:
    """Splits a call, and compiles both halves: nothing is launched. `active`: which parameters have a shadow; `args`: arrays and numbers;
    `left`: parameters whose gradient by the state before the launch is not wanted. Raises as `gpuad.autodiff` does."""
    with kernel.room():
        chosen = kernel.suited(args, shared_mem)
        call = chosen.bind(grid, block, flat(chosen, args), shared_mem, None)
        if call.overlaps:
            raise LaunchError(f"`{kernel.name}`: arrays that share memory are not split between two frameworks; pass copies")
        return _split(chosen, tuple(active), call, left)


def _split(chosen: Kernel, active: tuple[bool, ...], call: Call, left: Collection[int]) -> Split:
    arguments = call.bound.arguments
    kinds = [
        ("duplicated" if a.is_pointer else "active") if on and (a.memory is not None or not a.is_pointer) else "const"
        for on, a in zip(active, arguments, strict=True)
    ]
    elements = chosen.leaf_shadow_types(kinds)
    adjoint = chosen.reverse_for(Pattern(elements, call.aliases(), analyse=pipeline.analysing()), call)
    check_flow_bare(chosen, adjoint, kinds, True)
    pipeline.check_races(adjoint, call)
    primal = chosen.primal(call.aliases())
    call = replace(call, exact=adjoint.exact)
    full = _with_shadows(call, [None if e is None else dtype_of(e) for e in elements])
    dropped = frozenset(p.item for p in adjoint.parameters if p.role == "shadow" and p.position in left and isinstance(p.item, Buffer))
    stages = pipeline.stages(adjoint, full, dropped)
    call.prepare([adjoint.augmented or primal, pipeline.counting(adjoint, call), *(k for s in stages for k in s.kernels)])
    roles = {
        role: {p.position for p in adjoint.parameters if p.role == role and arguments[p.position].memory is not None}
        for role in ("primal", "entry", "working")
    }
    reads = {p.position for p in adjoint.parameters if p.role == "primal" and p.item in adjoint.reads} & roles["primal"]
    return Split(
        chosen, _without_memory(call), adjoint, primal, stages,
        tuple(None if e is None else _shadow_dtype(a, dtype_of(e)) for e, a in zip(elements, arguments, strict=True)),
        tuple(None if a.memory is None else a.memory.root.dtype for a in arguments),
        tuple(sorted(reads)), tuple(sorted(roles["entry"] | roles["working"])), frozenset(roles["working"]),
        tuple(pipeline.log_sizes(adjoint, call)), frozenset(k for k in left if not _changes(stages, k)),
        bool(pipeline.stores_in_doubt(adjoint, call)),
    )  # fmt: skip


def _changes(stages: Sequence[pipeline.Stage], position: int) -> bool:
    """True if a reverse may write to the shadow of a parameter."""
    for stage in stages:
        if stage.fixed is not None:
            return True
        own = {k.params[i] for k in stage.kernels for i, p in enumerate(stage.parameters) if p.role == "shadow" and p.position == position}
        for kernel in stage.kernels:
            if any(isinstance(s, Store | Accumulate | Atomic | Take) and s.buffer in own for s in walk_stmts(kernel.body)):
                return True
    return False


def _shadow_dtype(argument: BoundArgument, element: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the array that a caller would have as shadow: complex for a complex one."""
    array = argument.array
    return np.dtype(f"c{2 * element.itemsize}") if array is not None and array.dtype.kind == "c" else element


def _with_shadows(call: Call, dtypes: Sequence[np.dtype[Any] | None]) -> Call:
    """A call with new shadows, on which its schedule is found out."""
    made = []
    for argument, dtype in zip(call.bound.arguments, dtypes, strict=True):
        if dtype is None:
            made.append(argument)
        elif argument.is_pointer:
            shadow = Duplicated(argument.array).shadow
            memory = _as(resolve(shadow), None if shadow.dtype.kind != "c" else dtype)
            made.append(replace(argument, kind="duplicated", shadows=(memory,), shadow_arrays=(shadow,)))
        else:
            room = call.executor.zeros(1, dtype)
            made.append(replace(argument, kind="active", shadows=(resolve(room),), shadow_arrays=(room,)))
    full = replace(call, bound=replace(call.bound, arguments=tuple(made)))
    if full.bound.width != 1:
        raise UnsupportedError("a batch of shadows is not split")
    return full


def _without_memory(call: Call) -> Call:
    """A call that keeps no array alive."""
    bare = tuple(
        a if a.array is None else replace(a, memory=None, array=Layout(tuple(a.array.shape), tuple(a.array.strides), a.array.dtype))
        for a in call.bound.arguments
    )
    return replace(call, bound=replace(call.bound, arguments=bare), shared=None)
