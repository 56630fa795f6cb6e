"""How a recorded op runs again: found out as it is recorded where a tape has a budget, else when a budget is asked about."""

from __future__ import annotations

from typing import Protocol

from ..record.footprints import Footprints
from ..record.known_calls import KnownLaunch
from ..record.operations import Foreign
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..record.trace import Op
from .rerun import Rerun, external_again, launch_again, rule_again


class Rerunning(Protocol):
    """What is asked of a recording."""

    footprints: Footprints

    @property
    def library_name(self) -> str | None:
        """Whose arrays the program works on."""


def rerun_of(op: Op, recording: Rerunning) -> Rerun:
    """The rerun of an op that is an operation."""
    operation, known = op.operation, op.known
    if isinstance(operation, Launched):
        assert isinstance(known, KnownLaunch)
        return launch_again(known, operation, recording.footprints.read_again(operation, known.kind.primal))
    if isinstance(operation, Ruled):
        return rule_again(operation, op.run, recording.library_name)
    assert isinstance(operation, Foreign)
    return external_again(operation)


__all__ = ["Rerunning", "rerun_of"]
