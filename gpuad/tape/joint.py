"""Programs that run in several processes: what a tape asks of whoever knows the others (`gpuad.distributed`).

A recording in which an operation met other processes has a `Joint`. Its reversal is begun by all of them together, and an error in one of
them is told to the others, who would else wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Joint(Protocol):
    """The processes that take part in a recording."""

    def reversing(
        self, tape: Any, seeds: Mapping[Any, Any] | None, seed_rank: int | str | None
    ) -> AbstractContextManager[Mapping[Any, Any] | None]:
        """Around a reversal: agrees with the others that all are about to reverse the same program, and gives the seeds of this process.
        Raises an error in all of them if they are not."""

    def captured(self, tape: Any, seeds: Mapping[Any, Any] | None, seed_rank: int | str | None) -> Mapping[Any, Any] | None:
        """The seeds of this process for a graph, after agreeing as for a reversal. Raises an error where a graph would leave out what a
        reversal does together with the others."""

    def failed(self, error: BaseException) -> None:
        """Tells the others that this process goes no further."""
