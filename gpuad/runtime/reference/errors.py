"""What the reference executor finds: data races, bad indices and divergent barriers. A launch that raises one has written nothing."""

from __future__ import annotations

from ...errors import LocatedError
from ...source import Span
from ..base import Dim3

Thread = tuple[Dim3, Dim3]  # (blockIdx, threadIdx)


class RaceError(LocatedError):
    """Two threads touch one element between two barriers, at least one of them by a plain write, or one plainly and one atomically.

    `.buffer` names the pointer of the later access, `.index` is its element index there, `.threads` are the (blockIdx, threadIdx) of the
    earlier and the later access, `.spans` their places (None where unknown), and `.verbs` say what each does, "reads" for one.
    """

    def __init__(
        self,
        message: str,
        buffer: str,
        index: int,
        threads: tuple[Thread, Thread],
        spans: tuple[Span | None, Span | None],
        verbs: tuple[str, str],
    ) -> None:
        super().__init__(message, spans[1])
        self.buffer = buffer
        self.index = index
        self.threads = threads
        self.spans = spans
        self.verbs = verbs


class BoundsError(LocatedError):
    """An access outside an allocation or array, or the use of a value that was read there or never initialised. `.buffer` names the memory,
    `.thread` is the (blockIdx, threadIdx), `.index` the element index, or None where a value was used later than it was read."""

    def __init__(self, message: str, span: Span | None, buffer: str, thread: Thread, index: int | None = None) -> None:
        super().__init__(message, span)
        self.buffer = buffer
        self.thread = thread
        self.index = index


class BarrierError(LocatedError):
    """Some threads of a block reach a barrier (or a block-wide sum) that others of it do not reach."""
