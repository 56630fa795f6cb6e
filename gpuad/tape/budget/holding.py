"""Which bytes a recorded program and its reversal hold, from when to when, and why.

Time goes by moments: operation number t of the program is moment t, and what the reversal does one after the other (adjoints, and, within a
budget, operations that run again and copies) are the moments after that. Bytes are saved just before the operation that overwrites them
and held until the adjoint of the first operation that needs them has run. All of this is read off the recording; nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...budget import rounded
from ...ir.nodes import Buffer, Load
from ...ir.rewrite import walk_stmts
from ...program.ir.region import EMPTY, Region
from ..memory.memory_log import Kind
from ..record.operations import Operation
from ..record.recorded_launch import WRITES, Launched
from ..record.recording import Recording
from .online_checkpoints import Copied
from .planner import Planner
from .script import Adjoint, Again, Arrive, Begin, Block, Fetch, Item, Script, Store, Stored

INITIAL = "the state at the beginning, from which operations run again"
UNSEEN = "written by code that the tape does not see"

_CALLER = "of the caller"


@dataclass(frozen=True, slots=True)
class Place:
    """An operation: its `name`, the user's line `where`, and, if it is known, the place `inside` of the kernel."""

    name: str
    where: str
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.where}{'; ' + self.inside if self.inside else ''})"


@dataclass(frozen=True, slots=True)
class Held:
    """`nbytes` of the array `name`, held from moment `begin` on and free again at moment `end`. `needed_by`: the last operation whose
    adjoint reads them, `overwritten_by`: why they are saved; `why`: what else they are held for. `added`: whether the tape added them to
    what the caller has."""

    name: str
    kind: Kind
    nbytes: int
    begin: int
    end: int
    needed_by: Place | None = None
    overwritten_by: Place | None = None
    why: str = ""
    added: bool = True

    @property
    def reason(self) -> str:
        """In words."""
        parts = [
            f"needed by {self.needed_by}" if self.needed_by else "",
            f"overwritten by {self.overwritten_by}" if self.overwritten_by else "",
        ]
        return ", ".join(part for part in (*parts, self.why) if part)


@dataclass(frozen=True, slots=True)
class Moment:
    """What happens: 'run' an operation of the program, its 'adjoint', run it 'again', 'store' or 'fetch' bytes."""

    what: str
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.place}" if self.place else self.what


@dataclass(frozen=True)
class Holding:
    """A recorded program with its reversal: `moments`, of which the first `operations` are the program's own, and all that is `held`."""

    operations: int
    moments: tuple[Moment, ...]
    held: tuple[Held, ...]

    def curve(self, kinds: Sequence[Kind] = tuple(Kind), *, added: bool = False) -> list[int]:
        """Bytes of these kinds at each moment; `added`: only what the tape adds."""
        steps = [0] * (len(self.moments) + 1)
        for h in self.held:
            if h.kind in kinds and (h.added or not added):
                steps[h.begin] += h.nbytes
                steps[min(h.end, len(self.moments))] -= h.nbytes
        total, found = 0, []
        for step in steps[:-1]:
            total += step
            found.append(total)
        return found

    @property
    def peak(self) -> int:
        """The most bytes that the tape adds at one moment."""
        return max(self.curve(added=True), default=0)

    def at(self, moment: int) -> tuple[Held, ...]:
        """What is held at a moment, the largest first."""
        return tuple(sorted((h for h in self.held if h.begin <= moment < h.end), key=lambda h: -h.nbytes))


# --- from a recording --------------------------------------------------------------------------------------------------------------------


class Places:
    """The places of operations, and where in their kernels bytes are needed and overwritten; each is found once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self._known: dict[Any, Place] = {}
        self._inside: dict[Any, str] = {}

    def of(self, time: int, inside: str = "") -> Place:
        """The place of an operation."""
        operation = self.operations[time]
        key = operation.name, operation.where, inside
        return self._known.setdefault(key, Place(*key))

    def needing(self, time: int, where: int) -> Place:
        """With the line of the kernel whose adjoint reads an allocation."""
        operation = self.operations[time]
        if not isinstance(operation, Launched) or operation.adjoint is None:
            return self.of(time)
        adjoint = operation.adjoint
        for (role, position), use in operation.uses.items():
            if use.allocation.address == where:
                key = id(adjoint), role, position
                if key not in self._inside:
                    item = next((p.item for p in adjoint.parameters if (p.role, p.position) == (role, position)), None)
                    self._inside[key] = _first((*adjoint.layout.body, *adjoint.layout.counting), (Load,), item)
                return self.of(time, self._inside[key])
        return self.of(time)

    def overwriting(self, time: int, where: int) -> Place:
        """With the line of the kernel that overwrites an allocation."""
        operation = self.operations[time]
        if not isinstance(operation, Launched):
            return self.of(time)
        primal = operation.adjoint.primal if operation.adjoint is not None else operation.kernel.primal(operation.call.aliases())
        use = next((u for u in operation.effects.writes if u.allocation.address == where), None)
        if use is None:
            return self.of(time)
        key = id(primal), use.position
        if key not in self._inside:
            self._inside[key] = _first(primal.body, WRITES, primal.params[use.position])
        return self.of(time, self._inside[key])


def _first(body: Any, kinds: tuple[Any, ...], item: Any) -> str:
    found = next((s for s in walk_stmts(body) if isinstance(s, kinds) and s.buffer == item), None) if isinstance(item, Buffer) else None
    return str(found.span) if found is not None and found.span is not None else ""


class Needs:
    """Which operations' adjoints need a version of memory."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        touched: dict[int, dict[int, list[Region]]] = {}
        for time, operation in enumerate(operations):
            effects = operation.effects
            for k, uses in enumerate((effects.before, effects.after, effects.writes)):
                for use in uses:
                    regions = touched.setdefault(use.allocation.address, {}).setdefault(time, [EMPTY, EMPTY, EMPTY])
                    regions[k] = regions[k] | use.region if regions[k] else use.region
        self._touched = {where: list(times.items()) for where, times in touched.items()}

    def of(self, where: int, region: Region, time: int) -> tuple[int, int] | None:
        """The first and the last operation that need bytes as they are just before operation `time`; None if none does."""
        first = last = None
        rest = region
        for at, (before, after, writes) in self._back_from(where, time):
            if at < time:
                if after and after & rest:
                    first, last = at, at if last is None else last
                rest = rest - writes if writes else rest
                if not rest:
                    break
            if before and before & rest:
                first, last = at, at if last is None else last
        return None if first is None or last is None else (first, last)

    def _back_from(self, where: int, time: int) -> Iterator[tuple[int, list[Region]]]:
        entries = self._touched.get(where, [])
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if entries[middle][0] <= time else (low, middle)
        return (entries[k] for k in range(low - 1, -1, -1))


class Reading:
    """Reads off a tape's recording, or off a `script` for it, what is held. `names`: the user's, by address. `planner`: whose script it is,
    if it is not the tape's own, but one that it might have; `scratch_of`: bytes that adjoints take, by operation."""

    def __init__(
        self, tape: Recording, names: Mapping[int, str], script: Script | None, planner: Planner | None, scratch: Mapping[int, int]
    ) -> None:
        self.tape, self.names, self.script, self.planner, self.scratch_of = tape, names, script, planner, scratch
        self.operations: Sequence[Operation] = tape.operations
        self.places, self.needs = Places(self.operations), Needs(self.operations)
        self.n = len(self.operations)
        reversal = script.reversal if script is not None else None
        self.moments = (*(Moment("run", self.places.of(t)) for t in range(self.n)), *self._reversal(reversal))
        self.end = len(self.moments)

    def _reversal(self, items: Sequence[Item] | None) -> Iterator[Moment]:
        if items is None:
            yield from (Moment("adjoint", self.places.of(t)) for t in range(self.n - 1, -1, -1))
            return
        for item in items:
            match item:
                case Adjoint(time):
                    yield Moment("adjoint", self.places.of(time))
                case Again(time):
                    yield Moment("again", self.places.of(time))
                case Store():
                    yield Moment("store")
                case Fetch() | Begin() | Arrive():
                    yield Moment("fetch")
                case _:
                    yield Moment(type(item).__name__.lower())

    def name(self, where: int) -> str:
        """What an allocation is called: by the user, else by the kernel it was last passed to."""
        made = self.tape.made.arrays.get(where)
        known = self.names.get(where)
        if made is not None:
            return f"{known or 'temporary'} of {made.where}"
        allocation = self.tape.allocations.get(where)
        return known or (allocation.name if allocation is not None else "?")

    def held(self) -> Iterator[Held]:
        """All of it."""
        yield from self.arrays()
        yield from self.shadows()
        if self.script is None:
            yield from self.pieces()
            yield from self.values()
        else:
            yield from _Scripted(self, self.script).held()
        if self.planner is not None and self.script is not None and (self.script.has_initial or self.tape.restore):
            yield from self.supposed(self.planner)
        elif self.planner is None:
            yield from self.kept()
        yield from self.scratch()

    def why(self, where: int, made: bool, how: str) -> str:
        """Whose an array or shadow is; `how`: what is said of one that operations `made`."""
        if made:
            return how
        return "in place of arrays that are others in each round" if where in self.tape.made.staging.buffers else _CALLER

    def arrays(self) -> Iterator[Held]:
        """Of the user, and made by operations."""
        for where, a in self.tape.allocations.items():
            why = self.why(where, where in self.tape.made.arrays, "made by an operation")
            own = why != _CALLER
            size = int(a.root.nbytes)
            yield Held(self.name(where), Kind.primal, rounded(size) if own else size, 0, self.end, why=why, added=own)

    def shadows(self) -> Iterator[Held]:
        """By the array that each is the shadow of."""
        for where, pairings in self.tape.shadows.by_shadow.items():
            why = self.why(where, self.tape.made.homes.has(pairings[0].root), "of a temporary")
            own = why != _CALLER
            size = int(pairings[0].root.nbytes)
            name = self.names.get(where) or f"d{self.name(pairings[0].allocation.address)}"
            yield Held(name, Kind.shadow, rounded(size) if own else size, 0, self.end, why=why, added=own)

    def pieces(self) -> Iterator[Held]:
        """What was saved of memory that was overwritten."""
        for a in self.tape.allocations.values():
            for piece in a.pieces:
                yield self.saved(a.address, piece.region, piece.time, rounded(int(piece.data.size)), piece.time, None)

    def saved(self, where: int, region: Region, time: int, nbytes: int, begin: int, end: int | None) -> Held:
        """Bytes of an allocation as they were before operation `time`; `end`: when they are let go, if that is not when they are used."""
        needers = self.needs.of(where, region, time)
        over = self.places.overwriting(time, where) if time < self.n else None
        if needers is None:
            return Held(self.name(where), Kind.saved, nbytes, begin, end or self.end, None, over, "kept to restore, or on request")
        first, last = needers
        return Held(self.name(where), Kind.saved, nbytes, begin, end or 2 * self.n - first, self.places.needing(last, where), over)

    def values(self) -> Iterator[Held]:
        """What launches wrote down, and values kept in place of memory."""
        for time, operation in enumerate(self.operations):
            if not isinstance(operation, Launched) or not operation.logs:
                continue
            kept = operation.kept
            begin = kept.overwriter if kept is not None and kept.overwriter is not None else time
            over = self.places.of(begin) if begin != time else None
            why = "" if over else ("values in place of more memory" if kept is not None else "cannot be computed again")
            size = sum(rounded(int(log.root.nbytes)) for log in operation.logs)
            name = kept.names if kept is not None else f"log of {operation.name}"
            yield Held(name, Kind.saved, size, begin, 2 * self.n - time, self.places.of(time), over, why)

    def supposed(self, planner: Planner) -> Iterator[Held]:
        """What operations would run again from."""
        for time, where, nbytes in planner.initial_parts:
            over = self.places.overwriting(time, where)
            yield Held(self.name(where), Kind.checkpoint, rounded(nbytes), time, self.end, None, over, INITIAL)
        for time, rerun in enumerate(planner.program.reruns):
            for where, region in (*(rerun.writes.items() if rerun.keeps else ()), *rerun.arrives.items()):
                why = f"result of {self.places.of(time)}, which may not run again: {rerun.why}" if rerun.keeps else UNSEEN
                yield Held(self.name(where), Kind.checkpoint, rounded(region.nbytes), time, self.end, why=why)

    def kept(self) -> Iterator[Held]:
        """What operations run again from."""
        kept, reruns = self.tape.within.kept, self.tape.trace.reruns
        for copied in kept.initial:
            yield self._copied(copied, copied.piece.time, INITIAL)
        for time, copies in kept.results.items():
            for copied in copies:
                why = reruns[time].why if time < len(reruns) else ""
                yield self._copied(copied, time, f"result of {self.places.of(time)}, which may not run again: {why}")
        for time, copies in kept.arrivals.items():
            for copied in copies:
                yield self._copied(copied, time, UNSEEN)

    def _copied(self, copied: Copied, begin: int, why: str) -> Held:
        where = copied.allocation.address
        over = self.places.overwriting(copied.piece.time, where) if copied.piece.time < self.n else None
        return Held(self.name(where), Kind.checkpoint, copied.nbytes, begin, self.end, None, over, why)

    def scratch(self) -> Iterator[Held]:
        """Of adjoints while they run: versions put together, partial sums, stacks."""
        known = self.scratch_of
        adjoints = {m: t for m, t in self._adjoints() if t in known or self._has_stacks(t)}
        for moment, time in adjoints.items():
            size, why = known.get(time, 0), "versions put together, partial sums"
            if self._has_stacks(time):
                rerun = self.tape.trace.at(time).rerun
                least = rerun.scratch if rerun is not None else 0
                size, why = (size + least, "stacks") if least else (self.tape.scratch_bytes, "stacks whose depth is counted first: at most")
            if size:
                yield Held(
                    f"scratch of {self.operations[time].name}",
                    Kind.scratch,
                    rounded(size),
                    moment,
                    moment + 1,
                    self.places.of(time),
                    why=why,
                )

    def _has_stacks(self, time: int) -> bool:
        operation = self.operations[time]
        return isinstance(operation, Launched) and operation.adjoint is not None and bool(operation.adjoint.layout.scratch)

    def _adjoints(self) -> Iterator[tuple[int, int]]:
        if self.script is None:
            yield from ((self.n + k, self.n - 1 - k) for k in range(self.n))
            return
        yield from ((self.n + k, item.time) for k, item in enumerate(self.script.reversal) if isinstance(item, Adjoint))


class _Scripted:
    """What a script holds: blocks of versions, and checkpoints."""

    def __init__(self, reading: Reading, script: Script) -> None:
        self.reading, self.script = reading, script
        n = reading.n
        self.begins: dict[int, int] = {}
        self.logs: dict[int, tuple[int, int, int]] = {}  # (begin, time, bytes) of a buffer
        self.ends: dict[int, int] = {}  # of stored bytes that are fetched
        self.checkpoints: dict[int, tuple[Stored, int]] = {}  # and before which operation
        self.blocks: dict[int, tuple[Block, int]] = {}  # and when they are let go
        self.following = self._following()
        for time, stores in script.forward.items():
            for store in stores:
                self._stored(store, time, time)
        for time, buffers in script.noted.items():
            self.logs.update((id(b), (time, time, b.size)) for b in buffers)
        for moment, item in enumerate(script.reversal, n):
            match item:
                case Store():
                    self._stored(item, moment, self.following[moment - n])
                case Fetch(stored):
                    self.ends.update((id(s), moment + 1) for s in stored)
                case Again(time, logs) if logs:
                    self.logs.update((id(b), (moment, time, b.size)) for b in logs)
                case Adjoint(_, block):
                    self.blocks[id(block)] = block, moment + 1

    def _following(self) -> list[int]:
        """For each item the operation that runs again next."""
        found, after = [0] * len(self.script.reversal), 0
        for k in range(len(self.script.reversal) - 1, -1, -1):
            item = self.script.reversal[k]
            after = item.time if isinstance(item, Again) else after
            found[k] = after
        return found

    def _stored(self, store: Store, moment: int, time: int) -> None:
        for s in store.stored:
            self.begins[id(s)] = moment
            self.checkpoints[id(s)] = s, time

    def held(self) -> Iterator[Held]:
        """All of it."""
        reading = self.reading
        for block, end in self.blocks.values():
            for where, stored in block.pieces.items():
                for s in stored:
                    self.checkpoints.pop(id(s), None)
                    yield reading.saved(where, s.region, s.time, rounded(s.buffer.size), self.begins.get(id(s), 0), end)
            for time, buffers in block.logs.items():
                begin = min(self.logs[id(b)][0] for b in buffers) if buffers else 0
                size, name = sum(rounded(b.size) for b in buffers), reading.operations[time].name
                yield Held(f"log of {name}", Kind.saved, size, begin, end, reading.places.of(time), None, "cannot be computed again")
        finals = {id(s) for s in self.script.finals}
        for key, (s, time) in self.checkpoints.items():
            if key in finals:
                why = "what the program left there, put back at the end"
            else:
                why = f"the state before operation {time}, {reading.places.of(time)}, from which operations run again"
            begin, end = self.begins[key], self.ends.get(key, reading.end)
            yield Held(reading.name(s.where), Kind.checkpoint, rounded(s.buffer.size), begin, end, why=why)


def holding(
    tape: Recording, names: Mapping[int, str], script: Script | None, planner: Planner | None = None, *, scratch: Mapping[int, int]
) -> Holding:
    """What a tape's complete recording and its reversal hold; `script`: what the reversal follows, None if nothing runs again; `planner`:
    whose script that is, if it is not the tape's own; `scratch`: bytes that adjoints take, by operation."""
    reading = Reading(tape, names, script, planner, scratch)
    return Holding(reading.n, reading.moments, tuple(reading.held()))


__all__ = ["Held", "Holding", "Moment", "Place", "holding"]
