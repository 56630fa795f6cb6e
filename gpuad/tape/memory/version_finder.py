"""Hands each adjoint the version of memory that it needs, while a recording is reversed.

In: a use of memory, as it was before an operation. Out: a pointer to that version: the live allocation, a saved piece, or a transient
buffer that is put together of pieces by copies planned before. Assumed: operations are reached from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.actions import Action, perform_one
from ...runtime.base import Memory
from ..record.operations import Operation, Use
from .arena import Arena
from .versions import Piece, Source, Versions, copying_live, placing


class VersionFinder:
    """Finds versions while a recording goes back in time; `do` copies what they are put together from, at once or later; `assembled`:
    bytes copied for it."""

    def __init__(self, transient: Arena, versions: Versions, do: Callable[[Action], None] = perform_one) -> None:
        self.transient = transient
        self.do = do
        self.assembled = 0
        self.versions = versions
        self.held: dict[int, list[Any]] = {}
        self.completed: dict[int, list[Any]] = {}  # by piece, with what it was completed for this operation

    def reach(self, operation: Operation, time: int) -> None:
        """Takes what the adjoint needs as it is after the operation, then goes back to before it."""
        self.held, self.completed = {}, {}
        for use in operation.effects.after:
            self.held[id(use)] = self.versions.sources(use.allocation, use.region)
        for use in (*operation.effects.writes, *operation.effects.before):
            self.versions.back_to(use.allocation, time)

    def sources(self, use: Use, *, own: bool) -> list[Source]:
        """What the version that a use means is made of; nothing where it is the live array, which is not to be written (`own`)."""
        if not use.region:
            return []
        sources = self.held.get(id(use)) or self.versions.sources(use.allocation, use.region)
        return sources if own or any(piece is not None for _, piece in sources) else []

    def assembles(self, use: Use, size: int, *, own: bool) -> int:
        """Bytes of transient memory that a version takes, of elements of `size` bytes. Where it is completed in a piece, that is noted."""
        sources = self.sources(use, own=own)
        home = None if own or not sources else self.home(sources, use, size)
        if home is not None:
            self.completed.setdefault(id(home), [s for s in sources if s[1] is not home])
        return use.region.high - use.region.low if sources and home is None else 0

    def memory(self, use: Use, like: Any, *, own: bool) -> Any:
        """The version as a pointer: the live array, a saved copy, or pieces put together."""
        sources = self.sources(use, own=own)
        if not sources:
            return like
        size = int(like.root.dtype.itemsize)
        home = None if own else self.home(sources, use, size)
        if home is not None and home.base is not None:
            self.complete(home, sources, use)
            return Memory(home.data.view(like.root.dtype), like.offset - home.base // size)
        low, high = use.region.low, use.region.high
        room = self.transient.take(high - low)
        for part, piece in sources:
            self.assembled += part.nbytes
            root = use.allocation.root
            for action in copying_live(root, part, room, low) if piece is None else placing(piece, part, room, low):
                self.do(action)
        return Memory(room.view(like.root.dtype), like.offset - low // size)

    def home(self, sources: list[Source], use: Use, size: int) -> Piece | None:
        """The piece that holds a version, or between whose spans the rest of it has its places, if no other version of this operation has
        them."""
        for _, piece in sources:
            if piece is None or piece.base is None or piece.base % size or piece.data.size % size:
                continue
            others = [s for s in sources if s[1] is not piece]
            inside = piece.base <= use.region.low and use.region.high <= piece.base + piece.data.size
            apart = not any(part & piece.region for part, _ in others)  # else another version may need what the piece holds there
            if inside and apart and self.completed.get(id(piece), others) == others:
                return piece
        return None

    def complete(self, home: Piece, sources: list[Source], use: Use) -> None:
        """Copies what the piece lacks into it, once an operation."""
        others = [s for s in sources if s[1] is not home]
        if id(home) in self.completed:
            return
        self.completed[id(home)] = others
        assert home.base is not None
        for part, piece in others:
            self.assembled += part.nbytes
            root = use.allocation.root
            for action in copying_live(root, part, home.data, home.base) if piece is None else placing(piece, part, home.data, home.base):
                self.do(action)
