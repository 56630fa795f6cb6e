"""The trace caches of array operations and of kernels that are planned by their arguments (elementwise, reductions, jit functions).

In: an operation's name, or a family of kernels, and the very objects passed. Out: the launch that it was. `known`, `remember`: what types
and layouts say about an operation is worked out once in a recording; then it is a launch with fixed arguments, which the tape looks at as
at any other. `Complete`: a call whose outputs are among its arguments comes to the same launch whatever is in the arrays; outside of tapes
it is made at once, within one it is the launch that it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..api import CallKey, Family, Past, Planned, call_key, replay_call
from ..arguments.layouts import signature
from ..arguments.recorder import Recorder, current
from ..tape.memory.temporaries import Temporary
from ..tape.record.call_keys import arrays_of, lasting

P = ParamSpec("P")
R = TypeVar("R")


def by_arguments(function: Callable[P, R], by_content: bool = False) -> Callable[P, R]:
    """A function that looks at what its arguments are, and never at what is in arrays: so a known program does at once what it did the last
    time, where the arguments are the same. `by_content`: it looks into plain arrays among them, never into those of pairs."""
    recorder_of = current.get

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        recorder = recorder_of()
        if recorder is None:
            return function(*args, **keywords)
        found: R = recorder.call(function, args, keywords, by_content)
        return found

    return call


def by_content(function: Callable[P, R]) -> Callable[P, R]:
    """A function that looks into plain arrays among its arguments, as at places, and never into those of pairs."""
    return by_arguments(function, True)


@dataclass(frozen=True)
class Launch:
    """A kernel and what it is launched with."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shared_mem: int = 0

    def __call__(self) -> None:
        self.kernel(self.grid, self.block, self.args, shared_mem=self.shared_mem)


@dataclass(frozen=True, eq=False)
class _Known:
    """An operation; its operands, and what it made, are kept alive, whose ids are what it is known by."""

    operands: tuple[Any, ...]
    arrays: tuple[Any, ...]
    launch: Launch
    made: Any = None


def known(name: Hashable, operands: Sequence[Any]) -> Launch | None:
    """The launch that an operation was in this recording, if it is that again."""
    recorder = current.get()
    found: _Known | None = recorder.words.get((name, *_words(operands, recorder))) if recorder is not None else None
    return found.launch if found is not None and found.arrays == _arrays(operands) else None


def made_again(name: Hashable, operands: Sequence[Any]) -> Temporary | None:
    """What an operation made in this recording, made again, if the program is known and that comes next."""
    recorder = current.get()
    if recorder is None or (made := recorder.awaited) is None:
        return None
    found: _Known | None = recorder.words.get((name, *_words(operands, recorder), id(made)))
    if found is None or found.arrays != _arrays(operands) or not recorder.make_again():
        return None
    found.launch()
    return Temporary(made)


def remember(name: Hashable, operands: Sequence[Any], launch: Launch, result: Any = None) -> None:
    """Notes an operation that was one launch and nothing else, while a program is new: later there are new views each time. `result`: what
    it has made, if its output is none of the operands."""
    recorder = current.get()
    made = result.maker if type(result) is Temporary else None
    if recorder is None or not recorder.learns or (made is None) is not (result is None) or not all(map(lasting, operands)):
        return
    own = tuple(map(recorder.as_known, operands))
    key = (name, *_words(own, recorder), *(() if made is None else (id(made),)))
    recorder.words[key] = _Known(own, _arrays(own), _inside(launch, recorder), made)


def _inside(launch: Launch, tape: Recorder) -> Launch:
    """A launch with what the tape knows its arguments as."""
    return replace(launch, args=tuple(map(tape.as_known, launch.args)))


def _words(operands: Sequence[Any], tape: Recorder) -> tuple[Hashable, ...]:
    return tuple(_word(x, tape) for x in operands)


def _word(x: Any, tape: Recorder) -> Hashable:
    """What an operand is known by: numbers that are computed anew each time by their value, else the object."""
    kind = type(x)
    if kind is int or kind is bool:
        return kind, x
    if kind is float:
        return kind, x, math.copysign(1.0, x)
    return (kind, *_words(x, tape)) if kind is tuple else id(tape.as_known(x))


def _arrays(operands: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(signature(array) for x in operands for array in arrays_of(x))


@dataclass(frozen=True, eq=False)
class Complete:
    """A call of `family` with all outputs. `key`: what it says besides its arguments, and beside the geometry."""

    family: Family
    past: Past
    key: Hashable
    args: Sequence[Any]
    grid: Any = 0
    block: Any = 0
    shared_mem: int = 0

    def words(self, what: str) -> CallKey | None:
        """By what an earlier call is looked up outside of tapes."""
        return call_key(self.past, (what, self.key), self.args, self.grid, self.block, self.shared_mem)

    def again(self) -> bool:
        """Makes or records the launch if it is known; False, and nothing is done, if it is not."""
        if current.get() is None:
            said = self.words("launch")
            return said is not None and replay_call(said)
        launch = known((self.family, self.key), self._operands)
        if launch is not None:
            launch()
        return launch is not None

    def launch(self, plan: Planned) -> None:
        """Makes or records the launch that the call was found to be."""
        recorded = current.get() is not None
        if recorded:
            remember((self.family, self.key), self._operands, Launch(plan.kernel, plan.grid, plan.block, tuple(plan.args), plan.shared_mem))
        plan.kernel.launch(plan, None if recorded else self.words("launch"))

    @property
    def _operands(self) -> tuple[Any, ...]:
        return (*self.args, self.grid, self.block, self.shared_mem)
