"""Deferred clearing: zeros of shadows that the caller has not looked at yet are written only when they are needed.

Where `Duplicated(x)` is given no shadow one is made, and the caller knows it once `.shadow` has been read. Until then its elements that a
reversal has to leave zero may hold anything. Such elements are *owed*: they are cleared when the caller reads `.shadow`, or before a
reversal that reads them. A reversal that takes them as zero without reading them, as the next one of the same program does, forgives them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from ..context_variables import scoped
from ..runtime.array_types import NdArray

_internal: ContextVar[bool] = ContextVar("internal reads", default=False)


class Elements(Protocol):
    """A set of elements of an allocation."""

    def __bool__(self) -> bool: ...

    def __le__(self, other: Any) -> bool: ...


Owed = Mapping[Hashable, "tuple[Elements, Sequence[Callable[[], Any]]]"]  # elements by the allocation, and what clears them


class DeferredClearing:
    """Whether the caller has seen a shadow that was made for him; `owed` elements by the allocation, and what clears them. `looked`:
    whether he himself has asked for it, not only a call that it was passed to: he may have put a seed there."""

    __slots__ = ("__weakref__", "looked", "owed", "seen", "shadow")

    def __init__(self) -> None:
        self.seen = self.looked = False
        self.shadow: Any = None
        self.owed: dict[Hashable, tuple[Elements, Sequence[Callable[[], Any]]]] = {}

    def show(self) -> None:
        """The caller is about to see the shadow."""
        if not _internal.get():
            self.seen = True
            if self.owed:
                self.clear_owed()

    def clear_owed(self) -> None:
        """Clears what is owed. What an interrupt leaves is owed as before."""
        for where, (_, actions) in tuple(self.owed.items()):
            for action in actions:
                action()
            self.owed.pop(where, None)

    def forgivable(self, zero: Mapping[Any, Elements]) -> Owed:
        """What is owed of allocations where all of it is among the elements that count as `zero` whatever they hold."""
        return {where: (part, how) for where, (part, how) in self.owed.items() if where in zero and part <= zero[where]}

    def forgive(self, forgiven: Owed) -> None:
        """These are not owed any more; clears the rest."""
        self.owed = {where: what for where, what in self.owed.items() if where not in forgiven}
        self.clear_owed()

    def owe(self, owed: Owed) -> None:
        """These have to be cleared: now, if the caller has seen the shadow."""
        self.owed.update(owed)
        if self.seen:
            self.clear_owed()


_known: weakref.WeakValueDictionary[int, DeferredClearing] = weakref.WeakValueDictionary()


def made(deferred: DeferredClearing, shadow: NdArray, where: int) -> None:
    """Notes a shadow, whose allocation is at the address `where`."""
    deferred.shadow = shadow  # kept alive, so that the address is its own
    _known[where] = deferred


def deferred_at(where: int) -> DeferredClearing | None:
    """What is known of a shadow whose allocation is at an address, if it was made here."""
    return _known.get(where)


def end_internal_reads() -> None:
    """Ends what `internal_reads` began: an interrupt that comes while its block is left may leave it."""
    _internal.set(False)


def internal_reads() -> AbstractContextManager[None]:
    """Within it gpuad itself reads `.shadow`, and does not let the caller see its elements before the next reversal."""
    return scoped(_internal, True)
