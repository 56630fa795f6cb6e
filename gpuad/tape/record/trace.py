"""A recording as data: an `Op` for each of its entries, in the order in which they came.

An op is frozen. What a later pass decides about it (values kept in place of memory, other actions as the program comes again, a shadow that
turns up late) is another op in its place; what it was when it came is in it, so the part of a program up to any op is known for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.actions import Action
from ..budget.rerun import Rerun
from ..memory.buffers import Part
from .call_keys import CallKey
from .checkpoint_kernels import Cutting
from .known_calls import KnownCall
from .operations import Operation


@dataclass(frozen=True, eq=False, slots=True)
class Extraction:
    """Values in place of memory that an operation's adjoint reads, which an `action` of a later op, or of its own, puts into `memory`."""

    cut: Cutting
    memory: Sequence[Any]
    action: Action


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One entry of a recording.

    `key`: by what the call is known again; `operation`: what it does to memory and what its adjoint needs, as the recording has it now
    (None: it makes an array), `came`: the same as it came; `known`: the call, bound and judged; `run`: what makes it. `check`: what is
    looked at before each launch, and refuses it before anything is written; `actions`: all that was done, copies before it included;
    `room`: how far the saved bytes reach after it; `arrays`: whose memory it works on; `locks`: those that are locked with it; `stream`:
    None where there are none, True for the one that is current; `loads`, `stores`: parts of buffers, copied from what they stand for
    before it, and back after it. `rerun`: how it runs again, where a budget has asked; `keeping`: the values that its adjoint reads, as
    long as the program is new."""

    key: CallKey
    operation: Operation | None = None
    came: Operation | None = None
    known: KnownCall | None = None
    run: Action | None = None
    check: Action | None = None
    arrays: tuple[Any, ...] = ()
    stream: Any = None
    loads: tuple[Part, ...] = ()
    stores: tuple[Part, ...] = ()
    actions: tuple[Action, ...] = ()
    room: tuple[int, int] = (0, 0)
    locks: tuple[Any, ...] = ()
    rerun: Rerun | None = None
    keeping: Extraction | None = None

    def made(self, actions: tuple[Action, ...], room: tuple[int, int], locks: tuple[Any, ...]) -> Op:
        """The op, made."""
        return Op(
            self.key, self.operation, self.came, self.known, self.run, self.check, self.arrays, self.stream, self.loads, self.stores,
            actions, room, locks, self.rerun, self.keeping,
        )  # fmt: skip  # a third of the time of `replace`


END = Op(CallKey(None, (), None, ""))  # nothing is like it


class Trace:
    """The `ops` of a recording. `operations`: what those do that work on memory, in order: an operation's number, its time, counts these.
    `coming`: the op that is being recorded, not among them yet; `is_whole`: whether each call that came is an op, as it is made again;
    `version`: how often ops were changed."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.operations: list[Operation] = []
        self._numbers: list[int] = []
        self.coming: Op | None = None
        self.is_whole, self.version = True, 0

    def append(self, op: Op) -> None:
        """An op has been recorded."""
        if op.operation is not None:
            self._numbers.append(len(self.ops))
            self.operations.append(op.operation)
        self.ops.append(op)

    def at(self, time: int) -> Op:
        """The op of an operation."""
        if time == len(self.operations):
            assert self.coming is not None
            return self.coming
        return self.ops[self._numbers[time]]

    def operating(self) -> list[Op]:
        """The ops of all operations, by time."""
        return [self.ops[number] for number in self._numbers]

    @property
    def is_plain(self) -> bool:
        """True if there is nothing but operations, each as it is made again."""
        return self.is_whole and len(self.ops) == len(self.operations)

    @property
    def reruns(self) -> list[Rerun]:
        """The reruns of operations, in a budget."""
        return [op.rerun for op in self.operating() if op.rerun is not None]

    def change(self, time: int, **parts: Any) -> None:
        """Puts an op with other parts in the place of an operation's."""
        new = replace(self.at(time), **parts)
        if time == len(self.operations):
            self.coming = new
            return
        self.version += 1
        self.ops[self._numbers[time]] = new
        if new.operation is not None:
            self.operations[time] = new.operation

    def change_all(self, changed: Callable[[Op], Op]) -> None:
        """Puts another op in the place of each."""
        self.version += 1
        self.ops[:] = map(changed, self.ops)
        operations = [op.operation for op in self.ops if op.operation is not None]
        if any(a is not b for a, b in zip(self.operations, operations, strict=True)):
            self.operations = operations

    def changed(self, changed: Callable[[Operation], Operation]) -> Trace:
        """A recording of the same calls, some of which do something else to memory. This one stays as it is."""
        other = Trace()
        for op in self.ops:
            new = changed(op.operation) if op.operation is not None else None
            other.append(op if new is op.operation else replace(op, operation=new))
        other.coming, other.is_whole = self.coming, self.is_whole
        return other


__all__ = ["END", "Extraction", "Op", "Trace"]
