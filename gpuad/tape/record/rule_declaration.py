"""What a rule declares: what its function does to arrays, and by which names its reverse is called.

In: the function, names of its parameters, and the reverse. Out: `Declared`, checked as far as names go; TypeError where one has no meaning.
What the parameters of a reverse stand for is told in `rules`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import Any

from ...errors import ArgumentTypeError
from ...public_calls import show
from .rule_checks import lost_binding

VERSIONS = ("before", "after")
ROOM = "room"


@dataclass(frozen=True)
class Effect:
    """What a rule does to its arguments: names of its parameters."""

    reads: tuple[str, ...]
    overwrites: tuple[str, ...]
    adds: tuple[str, ...]
    sets: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]  # 'before' or 'after', then the parameters of which one has to be active for the need to exist

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """All parameters that the rule may write."""
        return (*self.overwrites, *self.adds, *self.sets)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """All parameters that are arrays (or Active numbers that are read)."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


class Declared:
    """A function with its effects and its reverse. `rooms`: the bytes of intermediates that a recorded call (`recorded_rule.Ruled`) takes.
    `joint`: whether it meets other processes, so that its reverse runs whatever this one knows of it, and takes halves (whose shadows are
    wider)."""

    joint = False
    linear: tuple[tuple[str, ...], ...] = ()
    tangent: Callable[..., None] | None = None

    def __init__(self, function: Callable[..., Any], effect: Effect, reverse: Callable[..., None] | None, pure: bool = False) -> None:
        self.function, self.effect = function, effect
        self.pure = pure or not self.opaque
        self.rooms: Callable[[Any], Sequence[int]] = lambda operation: [int(o.array.nbytes) for o in operation.operands.values()]
        self.name = function.__name__.strip("_")
        self.signature = inspect.signature(function)
        update_wrapper(self, function)  # type: ignore[arg-type]  # a Rule can be called
        _check_names(self.name, effect, tuple(self.signature.parameters))
        self._reverse: Callable[..., None] | None = None
        self.wanted: tuple[str, ...] = ()  # the names of the reverse's parameters
        self.deterministic: Callable[..., None] | None = (
            None  # takes the reverse's place where sums must not depend on the order of threads
        )
        if reverse is not None:
            self.reverse = reverse

    def bound(self, *args: Any, **keywords: Any) -> inspect.BoundArguments:
        """The arguments of a call by name. ArgumentTypeError where they do not fit the function's parameters."""
        try:
            return self.signature.bind(*args, **keywords)
        except TypeError as error:
            raise ArgumentTypeError(f"rule {self.name}{self.signature}: {error}. Nothing was run.") from None

    @property
    def opaque(self) -> str:
        """Why a graph on a GPU cannot repeat it; empty for the package's own, which only enqueue array operations, but for those whose
        function says that the host decides in it (`host_decides`)."""
        if getattr(self.function, "host_decides", False):
            return "the host decides in it how often it iterates"
        own = self.function.__module__.startswith(f"{__package__.partition('.')[0]}.ops.")
        return "" if own else "it is a rule, whose function may do anything"

    @property
    def reverse(self) -> Callable[..., None] | None:
        """The reverse: a module-level function."""
        return self._reverse

    @reverse.setter
    def reverse(self, function: Callable[..., None]) -> None:
        if not callable(function):
            raise ArgumentTypeError(f"rule {self.name}: `reverse` is a function, not {show(function)}.")
        if "<" in getattr(function, "__qualname__", "<") or getattr(function, "__closure__", None):
            raise ArgumentTypeError(f"rule {self.name}: the reverse must be a module-level function, so that a tape can be stored")
        wanted = tuple(inspect.signature(function).parameters)
        for name in wanted:
            _check_parameter(self.name, self.effect, tuple(self.signature.parameters), name)
        added = [
            n for n in wanted if n not in self.signature.parameters and n.removesuffix("_before").removeprefix("d") in self.effect.reads
        ]
        lost = lost_binding(function, added) if self.opaque else None
        if lost is not None:
            raise ArgumentTypeError(
                f"rule {self.name}: its reverse binds `{lost}` anew, so the gradient is lost: add to the array in place (`{lost} += ...`)"
            )
        self._reverse, self.wanted = function, wanted


def _check_names(name: str, effect: Effect, parameters: Sequence[str]) -> None:
    for p in (*effect.arrays, *effect.needs, *(c for n in effect.needs.values() for c in n[1:])):
        if p not in parameters:
            raise ArgumentTypeError(f"rule {name} has no parameter {p!r}; it has {', '.join(parameters)}")
    written = [*effect.writes, *(p for p in effect.reads if p in (*effect.adds, *effect.sets))]
    if len(set(written)) < len(written):
        raise ArgumentTypeError(
            f"rule {name}: an array is overwritten, added to or set, and only an overwritten one may be listed in reads too"
        )
    for p, need in effect.needs.items():
        if p not in effect.arrays or need[0] not in VERSIONS:
            raise ArgumentTypeError(f"rule {name}: needs are {{array: 'before' or 'after'}}, got {p!r}: {need[0]!r}")


def _check_parameter(name: str, effect: Effect, parameters: Sequence[str], wanted: str) -> None:
    """A parameter of a reverse must have a meaning."""
    if wanted in effect.writes and wanted not in effect.needs:
        raise ArgumentTypeError(f"rule {name}: its reverse takes {wanted!r}, which the rule writes: state the version in needs")
    if wanted == ROOM or wanted in parameters or wanted.removeprefix("d") in effect.arrays:
        return
    core = wanted.removeprefix("d").removesuffix("_before")
    if core in effect.reads and core in effect.overwrites:
        return
    raise ArgumentTypeError(f"rule {name}: its reverse takes {wanted!r}, which is nothing that the rule knows")
