"""The state of a tape: what it holds, and, where an error or an interrupt has left it incomplete, the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """What a tape holds, with the words for it in messages."""

    EMPTY = "empty"
    RECORDING = "recording"
    RECORDED = "recorded"
    REVERSED = "reversed already; record the program again"
    USED_UP = "used up by a graph; record the program again"
    REFUSED = "refused: its reverse does not fit into the budget"
    UNDEFINED = "undefined: a reverse failed, its shadows are undefined"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class State:
    """A status; of an interrupted recording also `when` that happened ('at operation 3 (step) by KeyError'), and the `reason`."""

    status: Status
    when: str = ""
    reason: str = ""

    def __str__(self) -> str:
        when = f" {self.when}" if self.when else ""
        return f"{self.status.value}{when}{f': {self.reason}' if self.reason else ''}"

    @property
    def is_recording(self) -> bool:
        """True if the tape records."""
        return self.status is Status.RECORDING

    @property
    def is_recorded(self) -> bool:
        """True if a complete recording can be reversed."""
        return self.status is Status.RECORDED

    @property
    def is_described(self) -> bool:
        """Whether a complete recording, reversed or not, can be described."""
        return self.status in (Status.RECORDED, Status.REVERSED)

    @property
    def is_complete(self) -> bool:
        """True if the program was recorded to its end."""
        return self.status not in (Status.EMPTY, Status.RECORDING, Status.INTERRUPTED)

    @property
    def advises(self) -> bool:
        """True if its words say what to do."""
        return self.status in (Status.REVERSED, Status.USED_UP)


EMPTY, RECORDING, RECORDED = State(Status.EMPTY), State(Status.RECORDING), State(Status.RECORDED)
REVERSED, USED_UP = State(Status.REVERSED), State(Status.USED_UP)
REFUSED, UNDEFINED = State(Status.REFUSED), State(Status.UNDEFINED)


def interrupted(reason: str = "", when: str = "") -> State:
    """The state of a recording that has no end."""
    return State(Status.INTERRUPTED, when, reason)


def interrupted_by(error: BaseException, when: str = "") -> State:
    """The same, by an error."""
    return interrupted(str(error), f"{when} by {type(error).__name__}".lstrip())


__all__ = [
    "EMPTY",
    "RECORDED",
    "RECORDING",
    "REFUSED",
    "REVERSED",
    "UNDEFINED",
    "USED_UP",
    "State",
    "Status",
    "interrupted",
    "interrupted_by",
]
