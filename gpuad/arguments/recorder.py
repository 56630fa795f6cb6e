"""Which recording is going on in this thread: a call of a kernel, rule or operation reads it to decide whether it is to be recorded.

`current` holds a `Recorder` while a tape records, else None. `Recorder` is the protocol (PEP 544) of what these calls need of a recording:
to record a launch or the call of a rule, and to make arrays, in a known program those of the last run. It lies below `tape`, so that
arguments, kernels and operations need not import it.

A context variable (PEP 567), so a recording holds in the context that entered it. `unrecorded()` sets it to None for a block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from ..context_variables import scoped
from ..runtime.array_types import Extents, NdArray


class Recorder(Protocol):
    """What records launches. `words`: what was worked out for operations on arrays, by what they are called with."""

    words: dict[Any, Any]

    @property
    def learns(self) -> bool:
        """True if the program is new to it."""

    def launch(self, kernel: Any, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it."""

    def decided(self, name: str) -> None:
        """Notes that data have decided, within a call of the kernel, which launches came."""

    def rule(self, rule: Any, arguments: Mapping[str, Any], regions: Mapping[str, Any]) -> None:
        """Records a call of a rule and makes it. `regions`: of arrays of which less is touched than all."""

    def new(self, library: Any, shape: tuple[int, ...], dtype: Any, active: bool) -> Any:
        """An array for an operation that makes one, not cleared; in a program that is known, the one that it made before. `active`: whether
        it is to have a shadow."""

    def maker(self, array: NdArray) -> Any:
        """What is known of such an array, if it can be made again."""

    def as_known(self, x: Any) -> Any:
        """An argument of a call as the recording knows it."""

    @property
    def awaited(self) -> Any:
        """In a program that is known, an array that it makes next."""

    def view_of(self, pair: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """The view of a pair that `make` makes, or that which it made before for what `key` says."""

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], by_content: bool = False) -> Any:
        """The result of a function that looks at what its arguments are and never at what is in them; what it recorded is made again at
        once where the program is known. `by_content`: it looks into plain arrays among them."""

    def make_again(self) -> bool:
        """Makes it; False if the program is another one."""


current: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def unrecorded() -> AbstractContextManager[None]:
    """Within it nothing is recorded: what an operation does by itself is a part of that operation."""
    return scoped(current, None)
