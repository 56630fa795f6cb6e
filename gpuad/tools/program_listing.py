"""`gpuad show --program script.py args`: what the tapes of a script record, and the scripts of their reversals.

A listener of the tapes reads off each program, once when it is new and once when it has come again, since some decisions are only made
then. What is equal is printed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GpuadError
from ..program.ir.program import Program
from ..program.ir.script import Script
from ..tape.array_names import array_names
from ..tape.memory.memory_log import Event, What, listeners
from ..tape.program_recording import ProgramRecording
from ..tape.read_program import program_of
from ..tape.read_script import script_of
from ..tape.record.known_calls import user_frame
from .scripts import compiled, executed


@dataclass(frozen=True)
class Listing:
    """A recorded program with the script of its reversal. `script`: None where it was not reversed, and its budget has not decided yet."""

    program: Program
    script: Script | None

    def lines(self) -> Iterator[tuple[str, str]]:
        """The lines, with the function that decided each."""
        yield from self.program.lines()
        yield from self.script.lines() if self.script is not None else [("", "script: decided when it is reversed")]


@dataclass(eq=False)
class _Followed:
    """A tape: the `tape` itself, as long as its recording has not been read off, with the user's `names` of
    its arrays, how many `rounds` have been, and their outline."""

    number: int
    pending: ProgramRecording | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    rounds: int = 0
    outline: object = None
    listings: list[tuple[int, Listing]] = field(default_factory=list)  # with the round in which it was new


class Listener:
    """Reads off what tapes record."""

    def __init__(self) -> None:
        self.followed: dict[int, _Followed] = {}
        self._alive: list[ProgramRecording] = []  # so that no other has its id

    def __call__(self, event: Event, tape: ProgramRecording) -> None:
        if event.what not in (What.began, What.recorded, What.reversed, What.failed):
            return
        one = self.followed.get(id(tape))
        if one is None:
            one = self.followed[id(tape)] = _Followed(len(self.followed) + 1)
            self._alive.append(tape)
        if event.what is What.recorded:
            one.pending, one.names = tape, array_names(user_frame())
        elif event.what is What.failed:
            one.pending = None
        else:
            self.read(one)

    def read(self, one: _Followed) -> None:
        """Reads off a recording that has not been."""
        tape, one.pending = one.pending, None
        if tape is None:
            return
        one.rounds += 1
        if one.rounds > 2 and one.outline == tape.outline:  # it came again before
            return
        one.outline = tape.outline
        recorded = program_of(tape, one.names)
        listing = Listing(recorded.program, script_of(tape, recorded))
        if not one.listings or one.listings[-1][1] != listing:
            one.listings.append((one.rounds, listing))

    def finished(self) -> list[_Followed]:
        """All tapes, with what they have recorded."""
        for one in self.followed.values():
            self.read(one)
        return list(self.followed.values())


def followed(script: Path, args: Sequence[str]) -> tuple[int, list[tuple[str, Listing]]]:
    """Runs a script as `python script.py args` does. Returns its exit status, and what its tapes recorded, also if it failed, with a title
    each. Raises GpuadError where no tape was recorded."""
    code, listener = compiled(script), Listener()
    listeners.append(listener)
    try:
        status = executed(code, script, args)
    finally:
        listeners.remove(listener)
    found = listener.finished()
    if not found:
        raise GpuadError(f"{script}: error: no tape was recorded while the script ran")
    listed = [(one, number, listing) for one in found for number, listing in one.listings]
    return status, [(f"tape {one.number}, recording {number} of {one.rounds}", listing) for one, number, listing in listed]


def text(listings: Sequence[tuple[str, Listing]], blame: bool) -> str:
    """The listings below each other."""
    return "\n".join(line for title, listing in listings for line in ["", title, *printed(listing, blame)])


def printed(listing: Listing, blame: bool) -> list[str]:
    """The lines; with `blame`, the function that decided each beside it."""
    lines = list(listing.lines())
    width = max(len(by) for by, _ in lines) if blame else 0
    return [f"{by:<{width}}  {text}" if blame else text for by, text in lines]


__all__ = ["Listener", "Listing", "followed", "printed", "text"]
