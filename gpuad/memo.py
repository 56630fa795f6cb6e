"""A small memory for what was proved about launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

SOME = 16  # sets of numbers of one kernel; a program that has other numbers at each launch is not asked for ever


class Memo:
    """Keeps what was proved about launches, by their numbers; forgets all when there are too many."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self.known: dict[Hashable, Any] = {}

    def get(self, key: Hashable, find: Callable[[], Any]) -> Any:
        """The fact under `key`, found now if it is new. Threads that look for one at the same time get the same."""
        try:
            return self.known[key]
        except KeyError:
            pass
        found = find()
        if len(self.known) >= self.most:
            self.known.clear()
        return self.known.setdefault(key, found)

    def get_some(self, group: Hashable, key: Hashable, find: Callable[[], Any]) -> Any | None:
        """As `get`, for the first SOME keys of a group; None for those that come later, whose facts are not found any more."""
        if key not in self.known:
            tried: list[Hashable] = self.get(("tried", group), list)
            if len(tried) >= SOME:
                return None
            tried.append(key)
        return self.get(key, find)
