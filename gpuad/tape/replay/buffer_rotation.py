"""Lets the launches of a graph write the next state to where it will be kept, so that keeping it costs no copy.

A recording copies what is needed of a state just before a launch overwrites it. In a graph the arrays are not looked at between two steps.
So the launch that makes a state writes it into the bytes that were set aside for it, those that read it read it there, and the one that
would overwrite it writes elsewhere in turn; the last state goes to the user's array. What a launch leaves as it was (the border of a field)
is copied along, if it is little.

That is done for a state if all that touches its allocation from the launch that makes it to the one that overwrites it are plain launches
that stay within the bytes set aside, and neither of these two reads the allocation: a pointer has one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arguments.arrays import address, resolve
from ...ir.nodes import Kernel, Store
from ...ir.rewrite import walk_stmts
from ...pipeline import Call
from ...program.ir.region import EMPTY, Region, span
from ...runtime.actions import Action
from ...runtime.base import Memory
from ..memory.versions import Allocation, Piece, copying_live
from ..record.operations import Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..record.recording import Recording
from ..record.trace import Op

_LITTLE = 1 / 8  # share of a state that may be copied along


@dataclass(frozen=True, eq=False)
class _Launch:
    """A step that is one launch, and the copies before it: what it touches, may write and surely writes, by the allocation's id."""

    operation: Launched
    primal: Kernel
    touched: dict[int, Region]
    writes: dict[int, Region]
    must: dict[int, Region]

    def only_stores(self, allocation: Allocation) -> bool:
        """Whether it does nothing else with the allocation."""
        arguments = self.operation.call.bound.arguments
        own = {
            item
            for item, a in zip(self.primal.params, arguments, strict=False)
            if a.memory is not None and address(a.memory.root) == allocation.address
        }
        return all(isinstance(s, Store) for s in walk_stmts(self.primal.body) if getattr(s, "buffer", None) in own)


@dataclass(eq=False)
class _Change:
    """What becomes of a step: copies that are left out, copies that come before, and allocations that are elsewhere."""

    dropped: set[int] = field(default_factory=set)  # ids of actions
    before: list[Action] = field(default_factory=list)
    places: dict[int, Piece] = field(default_factory=dict)  # by address


def redirected(recording: Recording) -> dict[int, list[Action]]:
    """The actions of those ops that change, by number."""
    ops = recording.trace.ops
    if not recording.trace.is_plain or recording.restore or any(op.loads for op in ops):
        return {}
    launches = [_launch(recording, op, time) for time, op in enumerate(ops)]
    met = [_allocations(op) for op in ops]
    later = {where for op, there in zip(ops, met, strict=True) if _is_kept_late(op) for where in there}
    changes: dict[int, _Change] = {}
    for allocation in recording.allocations.values():
        if allocation.address not in later:  # which is read once more when something else is overwritten
            _follow(allocation, [time for time, there in enumerate(met) if allocation.address in there], launches, changes)
    return {time: _actions(ops[time], launches[time], change) for time, change in changes.items()}


def _is_kept_late(op: Op) -> bool:
    """Whether values of what the operation reads may be computed after it."""
    kept = getattr(op.operation, "kept", None)
    return kept is not None and kept.overwriter is not None


def _allocations(op: Op) -> set[int]:
    """The addresses of the allocations that an operation works on."""
    memories, operation = [resolve(a) for a in op.arrays if a.size], op.operation
    if isinstance(operation, Launched):
        memories += [a.memory for a in operation.call.bound.arguments if a.memory is not None]
    elif isinstance(operation, Ruled):
        memories += [operand.memory for operand in operation.operands.values()]
    return {address(memory.root) for memory in memories}


def _launch(recording: Recording, op: Op, time: int) -> _Launch | None:
    """The op as a launch that could as well be made with arrays elsewhere; None if it is none."""
    operation = op.operation
    if not isinstance(operation, Launched) or operation.logs or operation.kept is not None or op.check is not None:
        return None
    saving = {id(a) for allocation in recording.allocations.values() for p in allocation.pieces if p.time == time for a in p.saving}
    if not op.actions or any(id(a) not in saving for a in op.actions[:-1]) or id(op.actions[-1]) in saving:
        return None
    reads, writes = operation.reads, operation.writes
    primal = operation.kernel.primal(operation.call.aliases())
    return _Launch(operation, primal, _regions([*reads, *writes]), _regions(writes), _regions(operation.effects.must))


def _regions(uses: Iterable[Use]) -> dict[int, Region]:
    found: dict[int, Region] = {}
    for use in uses:
        found[id(use.allocation)] = found.get(id(use.allocation), EMPTY) | use.region
    return found


def _follow(allocation: Allocation, touching: Sequence[int], launches: Sequence[_Launch | None], changes: dict[int, _Change]) -> None:
    """Goes through the states of an allocation and redirects those for which that is possible."""
    pieces = {p.time: p for p in allocation.pieces}
    if allocation.lossy or len(pieces) < len(allocation.pieces) or not pieces.keys() <= set(touching):
        return
    here: Piece | None = None  # where the present state is; None: in the allocation itself
    newer = EMPTY  # what of it is not in the allocation
    for k, time in enumerate(touching):
        launch = launches[time]
        then = here
        if time in pieces:
            then = _room(allocation, touching[k:], launches, pieces, here)
        if launch is None:
            assert here is None and then is None
            continue
        writes, must = (each.get(id(allocation), EMPTY) for each in (launch.writes, launch.must))
        change = _Change()
        if here is not None and time in pieces:
            change.dropped = {id(a) for a in here.saving}
        if then is not here:
            whole = newer if then is None else _bytes(then)
            root, base = (allocation.root, 0) if here is None else (here.data, here.base or 0)
            target, shift = (allocation.root, 0) if then is None else (then.data, then.base or 0)
            rest = whole - must
            change.before = copying_live(root, rest, target, shift, base) if rest else []
            newer = EMPTY if then is None else newer
        if then is not None:
            change.places[allocation.address] = then
            newer = newer | writes
        here = then
        if change.dropped or change.before or change.places:
            known = changes.setdefault(time, _Change())
            known.dropped |= change.dropped
            known.before += change.before
            known.places |= change.places


def _room(
    allocation: Allocation, touching: Sequence[int], launches: Sequence[_Launch | None], pieces: dict[int, Piece], here: Piece | None
) -> Piece | None:
    """The piece whose bytes take the state that the first of these launches makes; None if it goes to the allocation itself. `here`: where
    the state before is."""
    first, *later = touching
    last = next((time for time in later if time in pieces), None)
    if last is None:
        return None
    piece, own = pieces[last], id(allocation)
    numbers = (first, *later[: later.index(last) + 1])
    between = [launch for time in numbers if (launch := launches[time]) is not None]
    if piece.base is None or len(between) < len(numbers) or (here is not None and _bytes(here) is not _bytes(piece)):
        return None
    inside, rest = _bytes(piece), _bytes(piece) - between[0].must.get(own, EMPTY)
    stays = all(launch.touched.get(own, EMPTY) <= inside and _fits(launch.operation.call, allocation, piece) for launch in between[:-1])
    fresh = all(launch.only_stores(allocation) for launch in (between[0], between[-1]))
    return piece if stays and fresh and rest.nbytes <= _LITTLE * inside.nbytes else None


def _bytes(piece: Piece) -> Region:
    """The bytes of the allocation that have a place in a piece's memory."""
    assert piece.base is not None
    return span(piece.base, piece.base + int(piece.data.size))


def _fits(call: Call, allocation: Allocation, piece: Piece) -> bool:
    """Whether the launch's pointers into the allocation have a place in the piece's memory."""
    sizes = [a.memory.itemsize for a in call.bound.arguments if a.memory is not None and address(a.memory.root) == allocation.address]
    return all((piece.base or 0) % size == 0 and piece.data.size % size == 0 for size in sizes)


def _actions(op: Op, launch: _Launch | None, change: _Change) -> list[Action]:
    kept = [a for a in op.actions[:-1] if id(a) not in change.dropped]
    if launch is None or not change.places:
        return [*kept, *change.before, op.actions[-1]]
    call = launch.operation.call
    given = [_moved(value, change.places) for value in (*call.bound.primals(), *call.offset_values())]
    return [*kept, *change.before, call.prepared(launch.primal, given)]


def _moved(value: Any, places: dict[int, Piece]) -> Any:
    """An argument of a launch whose memory is elsewhere."""
    piece = places.get(address(value.root)) if isinstance(value, Memory) else None
    if piece is None:
        return value
    assert piece.base is not None
    return Memory(piece.data.view(value.root.dtype), value.offset - piece.base // value.itemsize)


__all__ = ["redirected"]
