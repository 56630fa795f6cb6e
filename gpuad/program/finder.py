"""Hands each adjoint the version of memory that it needs, while a recording is reversed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..executors.base import Memory
from .actions import Action, perform_one
from .arena import Arena
from .memory import Versions, copying_live, placing
from .operation import Operation, Use


class VersionFinder:
    """Finds versions while a recording goes back in time; `do` copies what they are put together from, at once or later; `assembled`:
    bytes copied for it."""

    def __init__(self, transient: Arena, versions: Versions, do: Callable[[Action], None] = perform_one) -> None:
        self.transient = transient
        self.do = do
        self.assembled = 0
        self.versions = versions
        self.held: dict[int, list[Any]] = {}

    def reach(self, operation: Operation, time: int) -> None:
        """Takes what the adjoint needs as it is after the operation, then goes back to before it."""
        self.held = {}
        for use in operation.effects.after:
            self.held[id(use)] = self.versions.sources(use.allocation, use.region)
        for use in (*operation.effects.writes, *operation.effects.before):
            self.versions.back_to(use.allocation, time)

    def memory(self, use: Use, like: Any, *, own: bool) -> Any:
        """The version as a pointer: the live array, a saved copy, or pieces put together."""
        if not use.region:
            return like
        sources = self.held.get(id(use)) or self.versions.sources(use.allocation, use.region)
        if not own and all(piece is None for _, piece in sources):
            return like
        size = int(like.root.dtype.itemsize)
        if not own and len(sources) == 1:
            part, piece = sources[0]
            if piece is not None and len(piece.region.spans) == 1 and piece.region.low % size == piece.region.nbytes % size == 0:
                return Memory(piece.data.view(like.root.dtype), like.offset - piece.region.low // size)
        low, high = use.region.low, use.region.high
        room = self.transient.take(high - low)
        for part, piece in sources:
            self.assembled += part.nbytes
            root = use.allocation.root
            for action in copying_live(root, part, room, low) if piece is None else placing(piece, part, room, low):
                self.do(action)
        return Memory(room.view(like.root.dtype), like.offset - low // size)
