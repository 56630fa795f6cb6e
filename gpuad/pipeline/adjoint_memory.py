"""The memory with which an adjoint runs, and what each generated kernel is launched with.

In: an adjoint, a bound call, and a `State` (primals as the reverse sees them, copies from before the launch, logs, stacks). Out: the
arguments of a generated kernel, in the order of its `Parameter`s; copies are whole allocations, with the pointer at the same place in them.
`before` takes the copies that have to be taken before the primal runs, `keep_live` those from after it; what the caller promises not to
overwrite gets a fingerprint instead, which finds a change nearly always.

Parameters that overlap share the shadow of their base. Raises UnsupportedError where the number of a log's entries does not follow from the
launch's numbers."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..analysis.trip_counts import trips
from ..arguments import BoundArgument
from ..arguments.arrays import address, namespace
from ..errors import UnsupportedError
from ..ir.dtypes import DType, dtype_of
from ..ir.nodes import Buffer
from ..ir.types import Scalar
from ..runtime.base import Argument, Memory
from .calls import Call
from .derived_kernels import Adjoint, Inspected
from .pattern import Parameter


@dataclass
class State:
    """The memory with which an adjoint runs: for each user parameter the primal as the reverse sees it (`owned`: copies that are ours),
    copies from before the launch, logs and scratch."""

    primals: dict[int, Argument]
    entries: dict[int, Memory] = field(default_factory=dict)
    logs: list[Memory] = field(default_factory=list)
    scratch: dict[Buffer, Memory | None] = field(default_factory=dict)
    overflow: Memory | None = None
    owned: set[int] = field(default_factory=set)
    dots: dict[tuple[str, int], Argument] = field(default_factory=dict)  # tangents, by role and position
    shadows: Mapping[int, Memory] = field(default_factory=dict)  # those that live elsewhere than the call says

    def again(self, adjoint: Adjoint, call: Call) -> State:
        """The state for one of several reverse launches: working copies are written by each, so each has its own."""
        working = {p.position for p in adjoint.parameters if p.role == "working"}
        entries = {i: copied(call, m) if i in working and call.bound.width > 1 else m for i, m in self.entries.items()}
        return State(self.primals, entries, self.logs)


def batch_states(call: Call, written: Sequence[str]) -> list[State]:
    """The primal memory for each direction of a batch: the user's for the first, copies from before the launch for the others."""
    arguments, overlaps = call.bound.arguments, call.overlaps
    bases = [overlaps.get(i, (i, 0))[0] for i in range(len(arguments))]  # through whose pointers the memory is reached
    changed = {base for base, a in zip(bases, arguments, strict=True) if a.name in written}
    states = [live(call)]
    for _ in range(1, call.bound.width):
        copies = {i: copied(call, m) for i in changed if (m := arguments[i].memory) is not None}
        states.append(State({**states[0].primals, **copies}))
    return states


def live(call: Call) -> State:
    """The user's own memory."""
    return State({i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(call.bound.arguments)})


def copied(call: Call, memory: Memory) -> Memory:
    """A copy of the allocation behind a pointer, with the pointer at the same place in it."""
    return Memory(call.executor.copy(memory.root), memory.offset)


def before(adjoint: Adjoint, call: Call) -> State:
    """What must be taken down before the primal runs."""
    state = live(call)
    copies: dict[tuple[int, int], Memory] = {}  # one for all arguments in an allocation, as the fields of structs are
    for p in adjoint.parameters:
        if p.role in ("entry", "working"):
            memory = call.bound.arguments[p.position].memory
            if memory is not None:
                where = memory.address, int(memory.root.nbytes)
                if where not in copies:
                    copies[where] = copied(call, memory)
                root = copies[where].root
                state.entries[p.position] = Memory(root if root.dtype == memory.root.dtype else root.view(memory.root.dtype), memory.offset)
    state.logs = new_logs(adjoint, call)
    return state


def log_sizes(adjoint: Inspected, call: Call) -> list[tuple[int, DType]]:
    """What the primal writes down: an element for each thread and iteration, of this type."""
    sizes = adjoint.facts.get(("logs", call.key), lambda: [_log_size(adjoint, call, log) for log in adjoint.logs])
    return [(size, np.dtype(dtype_of(log.element))) for size, log in zip(sizes, adjoint.logs, strict=True)]


def new_logs(adjoint: Inspected, call: Call) -> list[Memory]:
    """Room for what the primal writes down."""
    return [Memory(call.executor.zeros(size, dtype)) for size, dtype in log_sizes(adjoint, call)]


def _log_size(adjoint: Inspected, call: Call, log: Buffer) -> int:
    loops = adjoint.log_loops.get(log, ())
    counts = trips(adjoint.primal.body, call.numbers(adjoint.primal)) if loops else {}
    size = call.threads
    for loop in loops:
        count = counts.get(id(loop), 0)  # a loop that is not reached has none
        if count is None:
            raise UnsupportedError(
                "an atomic in this loop gives something that has to be recorded, but the launch's numbers do not say how often it runs",
                loop.span,
            )
        size *= count
    return max(size, 1)


def arguments(parameters: tuple[Parameter, ...], call: Call, state: State, width: int = 0) -> list[Argument]:
    """What a generated kernel is launched with."""
    return [argument_of(p, call, state, width) for p in parameters]


def keep_live(adjoint: Adjoint, call: Call, state: State, not_overwritten: frozenset[str]) -> dict[str, int]:
    """Copies the primal memory that the reverse reads as it is after the launch, where the caller may overwrite it. What the caller
    promises not to overwrite is marked by a fingerprint instead, which is returned."""
    marks: dict[str, int] = {}
    for p in adjoint.parameters:
        memory = state.primals.get(p.position)
        if p.role != "primal" or p.item not in adjoint.reads or memory is None:
            continue
        if p.item.name in not_overwritten:
            marks[p.item.name] = fingerprint(memory.root)
        else:
            state.primals[p.position] = copied(call, memory)
            state.owned.add(p.position)
    return marks


def argument_of(p: Parameter, call: Call, state: State, width: int) -> Argument:
    if p.role.endswith("_dot"):
        return state.dots[p.role, p.position]
    match p.role:
        case "primal":
            return state.primals[p.position]
        case "offset":
            return np.int64(call.offsets()[p.position])
        case "shadow":
            return state.shadows.get(p.position) or shadow_of(call, p.position, width)
        case "entry" | "working":
            return state.entries.get(p.position)
        case "log":
            return state.logs[p.position]
        case "count":  # of a thread's elements of a log
            return np.int64(state.logs[p.position].root.size // call.threads)
        case "overflow":
            return state.overflow
    assert isinstance(p.item, Buffer)
    return state.scratch[p.item]


def shadow_of(call: Call, position: int, width: int) -> Memory | None:
    """The shadow for a parameter, which may be that of one that overlaps it, moved to where this one starts."""
    arguments = call.bound.arguments
    own = arguments[position]
    if own.shadows:
        return own.shadows[width]
    for other, (base, offset) in call.overlaps.items():
        if base == position and arguments[other].shadows:
            shadow = arguments[other].shadows[width]
            return Memory(shadow.root, shadow.offset - offset)
    return None


def active_positions(call: Call) -> dict[int, BoundArgument]:
    """Parameters that have a shadow, each overlap class by its base."""
    found: dict[int, BoundArgument] = {}
    overlaps = call.overlaps
    for i, argument in enumerate(call.bound.arguments):
        if argument.shadows:
            found.setdefault(overlaps.get(i, (i, 0))[0], argument)
    return found


def shadow_type(argument: BoundArgument) -> Scalar:
    """The element type of an argument's shadow, which may be wider than the primal's."""
    kinds = {"f": "float"}
    dtype = argument.shadows[0].root.dtype
    return Scalar(kinds[dtype.kind], dtype.itemsize * 8)


def fingerprint(array: Any) -> int:
    """A number that differs, nearly always, if any element of a flat array does."""
    if isinstance(array, np.ndarray):
        return zlib.crc32(array.view(np.uint8).data)
    data = array.view(np.uint8)
    whole = data.size % 8 == 0 and address(data) % 8 == 0
    words = data.view(np.uint64) if whole else data.astype(np.uint64)
    odd = namespace(array).arange(1, 2 * words.size + 1, 2, dtype=np.uint64)  # so that no bit of a word is multiplied away
    return int((words * (odd * np.uint64(0x9E3779B97F4A7C15))).sum())
