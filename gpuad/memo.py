"""What is found out once and kept: facts about launches by their numbers (`Memo`), and what an object makes of itself by what it is asked
for (`specialized`): kernels for patterns, variants of these.

Both outlive the process (`api.kept_kernels`). So a key says all that its fact depends on, and has no id of an object, which is another
one elsewhere, but the object itself, or as `Same` where equal ones are not meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import update_wrapper
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

SOME = 16  # sets of numbers of one kernel; a program that has other numbers at each launch is not asked for ever


_OF_ONE_PROCESS = frozenset(
    {"proved", "allowance", "traced"}
)  # seen by running a launch (GPUAD_CHECK=1 means this process); what proofs have left; code


class Same:
    """An object as a key: this one, and no other that is equal to it."""

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it

    def __reduce__(self) -> tuple[type[Same], tuple[object]]:
        return Same, (self.it,)


class Memo:
    """Keeps what was proved about launches, by their numbers; forgets all when there are too many."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self.known: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What outlives the process."""
        known = {k: v for k, v in self.known.copy().items() if not (isinstance(k, tuple) and k[0] in _OF_ONE_PROCESS)}
        return {"most": self.most, "known": {k: v for k, v in known.items() if not isinstance(v, BaseException)}}

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


class Making(Protocol):
    """What executors make something of."""

    @property
    def made(self) -> dict[Hashable, Any]:
        """What they have made of it."""


news = Counter[str]()  # how many facts were found, and things made, in this process


def found(origin: Making, key: Hashable, make: Callable[[], Any]) -> Any:
    """The thing made of an object, made now if it is new."""
    if key not in origin.made:
        origin.made.setdefault(key, make())
        news["made"] += 1
    return origin.made[key]


class Specializing(Protocol):
    """An object with methods that are `specialized`: what they gave, by method and arguments."""

    @property
    def specializations(self) -> dict[Hashable, Any]:
        """Empty at first."""


_S = TypeVar("_S", bound=Specializing)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def specialized(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """A method that does its work once for the same arguments. Threads that ask at the same time get the same."""
    parameters = signature(method)
    count = len(parameters.parameters) - 1

    def kept(self: _S, /, *args: _P.args, **keywords: _P.kwargs) -> _R:
        given: tuple[object, ...] = args
        if keywords or len(args) < count:
            bound = parameters.bind(self, *args, **keywords)
            bound.apply_defaults()
            given = tuple(bound.arguments.values())[1:]
        key, known = (method.__name__, *given), self.specializations
        if key not in known:
            known.setdefault(key, method(self, *args, **keywords))
        found: _R = known[key]
        return found

    update_wrapper(kept, method)
    return kept
