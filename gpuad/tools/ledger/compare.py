"""What changed between a ledger and the kernels, in the words of a reviewer: `step`: du gather -> atomic: line 14 now reads u[idx[i]].

Worse is: a kernel that is refused, a shadow that is added to by more atomics, more bytes saved, deeper stacks, more registers (they are
handed out in eights, so only another eight counts), spilling, shared memory, one more kernel. Better is the opposite. The rest, a text
that changed or a reason, is only mentioned. A launch that the ledger does not know is an error too: it has to be written in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .entries import Entry, Needs, Place, Shadow

Direction: TypeAlias = 'Literal["worse", "better", "same"]'

# Ways to reach a shadow, by what they cost; between a gather and plain additions there is only another launch.
_COST = {"plain": 0, "gather": 0, "reduced": 1, "atomic": 2}
_REGISTERS = 8  # are handed out together


@dataclass(frozen=True)
class Change:
    """One fact that is another one now. `name`: the id of the example; `what`: the fact, `place`: where it comes from, if that is known."""

    name: str
    direction: Direction
    what: str
    place: Place | None = None

    @property
    def kernel(self) -> str:
        """The name without the file."""
        return self.name.rpartition("::")[2]

    def __str__(self) -> str:
        return f"`{self.kernel}`: {self.what}"


def compare(old: Mapping[str, Entry], new: Mapping[str, Entry], same_compiler: bool = True) -> list[Change]:
    """All changes, ordered by name. `same_compiler`: whether what kernels need can be compared."""
    found: list[Change] = []
    for name in sorted({*old, *new}):
        if name not in new:
            found.append(Change(name, "same", "is no longer there"))
        elif name not in old:
            found.append(Change(name, "worse", "is not in the ledger yet", _declared(new[name])))
        else:
            found += (Change(name, *change) for change in _changes(old[name], new[name], same_compiler))
    return found


_Change: TypeAlias = "tuple[Direction, str, Place | None]"


def _changes(old: Entry, new: Entry, same_compiler: bool) -> Iterator[_Change]:
    if new.refused:
        if not old.refused:
            yield "worse", f"accepted -> refused: {new.refused}", _declared(new)
        elif old.refused != new.refused:
            yield "same", f"refused for another reason: {new.refused}", _declared(new)
        return
    if old.refused:
        yield "better", f"refused -> accepted (it was: {old.refused})", _declared(new)
        return
    yield from _shadow_changes(old, new)
    yield from _saved_changes(old, new)
    if old.depth is not None and new.depth is not None:
        yield from _number("stack depth", old.depth, new.depth, _declared(new))
    if len(old.kernels) != len(new.kernels):
        direction: Direction = "worse" if len(new.kernels) > len(old.kernels) else "better"
        yield direction, f"kernels of the reverse pass {_names(old.kernels)} -> {_names(new.kernels)}", _declared(new)
    if same_compiler:
        yield from _needs_changes(old, new)
    if old.text != new.text:
        yield "same", "the generated text is another one", _declared(new)


def _shadow_changes(old: Entry, new: Entry) -> Iterator[_Change]:
    for name, now in new.shadows.items():
        was = old.shadows.get(name)
        if was is None:
            yield "same", f"{name} is new ({now.way}: {now.why})", _first(new, name)
        elif was.way != now.way:
            place, because = _cause(was, now, new.places.get(name, ()))
            yield _direction(_COST.get(was.way, 0), _COST.get(now.way, 0)), f"{name} {was.way} -> {now.way}: {because}", place
    for name in old.shadows.keys() - new.shadows.keys():
        yield "same", f"{name} is gone", _declared(new)


def _cause(was: Shadow, now: Shadow, places: tuple[Place, ...]) -> tuple[Place | None, str]:
    """The access that made the difference, which is new if one is, and what to say of it."""
    fresh = [p for p in places if p.code in now.accesses and p.code not in was.accesses]
    place = next(iter((*fresh, *places)), None)
    if place is None:
        return None, now.why
    verb = "writes" if place.code.endswith("=") else "reads"
    return (
        place,
        f"line {place.span.line} {'now ' if fresh else ''}{verb} {place.code.rstrip('+-*/=& ') if verb == 'writes' else place.code}",
    )


def _saved_changes(old: Entry, new: Entry) -> Iterator[_Change]:
    """What is saved otherwise: what takes more is worse, and what takes less is better, only if all of it does."""
    overall = _direction(old.saved, new.saved)
    for direction, what, place in _pieces(old, new):
        yield direction if direction == overall else "same", what, place


def _pieces(old: Entry, new: Entry) -> Iterator[_Change]:
    for name in sorted({*old.kept, *new.kept}):
        was, now = old.kept.get(name), new.kept.get(name)
        place = _kept_place(new, name)
        if was is None and now is not None:
            yield "worse", f"{name} is saved now, {now.bytes:g} B a thread as a {now.how}: {now.why}", place
        elif was is not None and now is None:
            yield "better", f"{name} is no longer saved ({was.bytes:g} B a thread)", place
        elif was is not None and now is not None and was.bytes != now.bytes:
            more = f", for {now.why}" if now.why != was.why else ""
            yield _direction(was.bytes, now.bytes), f"{name} saves {was.bytes:g} -> {now.bytes:g} B a thread{more}", place


def _kept_place(entry: Entry, name: str) -> Place | None:
    return _first(entry, f"saved {name}") or _declared(entry)


def _needs_changes(old: Entry, new: Entry) -> Iterator[_Change]:
    for architecture in sorted(old.needs.keys() & new.needs.keys()):
        both = old.needs[architecture].keys() & new.needs[architecture].keys()
        for kernel in sorted(both):
            was, now = old.needs[architecture][kernel], new.needs[architecture][kernel]
            for what, before, after, direction in _need_changes(was, now):
                yield direction, f"{kernel} on {architecture}: {what} {before} -> {after}", _declared(new)


def _need_changes(was: Needs, now: Needs) -> Iterator[tuple[str, int, int, Direction]]:
    if was.registers != now.registers:
        yield "registers", was.registers, now.registers, _direction(-(-was.registers // _REGISTERS), -(-now.registers // _REGISTERS))
    for what, before, after in (("spilled bytes", was.spilled, now.spilled), ("bytes of shared memory", was.shared, now.shared)):
        if before != after:
            yield what, before, after, _direction(before, after)


def _number(what: str, was: float, now: float, place: Place | None) -> Iterator[_Change]:
    if was != now:
        yield _direction(was, now), f"{what} {was:g} -> {now:g}", place


def _direction(was: float, now: float) -> Direction:
    return "worse" if now > was else "better" if now < was else "same"


def _declared(entry: Entry) -> Place | None:
    return _first(entry, "")


def _first(entry: Entry, name: str) -> Place | None:
    return next(iter(entry.places.get(name, ())), None)


def _names(kernels: tuple[str, ...]) -> str:
    return ", ".join(kernels) or "none"
