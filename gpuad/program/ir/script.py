"""The script of a program: what it does beside its operations, and how it is reversed, item by item, with and without a budget.

A slot is memory of the tape that holds bytes or values. Each item says in `by` which function decided it, as `file.py:function` below the
package, so that a reader finds the reason. Operations are named by their numbers in the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .program import Access, Program, counted


@dataclass(frozen=True, slots=True)
class Slot:
    """Memory of the tape, of `nbytes` bytes; `far`: beyond the budget, on the second level."""

    number: int
    nbytes: int
    far: bool = False

    def __str__(self) -> str:
        return f"s{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One step of a script; `by`: the function that decided it."""

    verb: ClassVar[str] = ""
    by: str = ""

    def text(self, program: Program) -> str:
        """The item without its verb."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Item):
    """Copies bytes as they are now to a slot. `why`: what they are for, where that is no adjoint."""

    verb: ClassVar[str] = "store"
    slot: Slot
    access: Access
    why: str = ""

    def text(self, program: Program) -> str:
        return f"{program.shown((self.access,))} -> {self.slot}" + (f"  # {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(Item):
    """Copies bytes back from a slot to where they belong."""

    verb: ClassVar[str] = "fetch"
    slot: Slot
    access: Access

    def text(self, program: Program) -> str:
        return f"{program.shown((self.access,))} <- {self.slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch(Item):
    """Begins to bring bytes back from the second level."""

    verb: ClassVar[str] = "prefetch"
    nbytes: int

    def text(self, program: Program) -> str:
        return f"{self.nbytes} B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Item):
    """Runs an operation, of the program itself or again. `values`: slots into which it writes what its adjoint needs."""

    verb: ClassVar[str] = "run"
    number: int
    values: tuple[Slot, ...] = ()

    def text(self, program: Program) -> str:
        return f"{self.number} {program.ops[self.number].name}{_into(self.values)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract(Item):
    """Computes the values that the adjoint of operation `number` needs, from memory that is about to be overwritten."""

    verb: ClassVar[str] = "extract"
    number: int
    values: tuple[Slot, ...]

    def text(self, program: Program) -> str:
        return f"{self.number} {program.ops[self.number].name}{_into(self.values)}"


@dataclass(frozen=True, slots=True)
class Read:
    """What an adjoint reads, and the slot that holds it; None: it is still in the buffer."""

    access: Access
    slot: Slot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjoint(Item):
    """Runs the adjoint of an operation. `values`: slots with what its launch wrote down."""

    verb: ClassVar[str] = "adjoint"
    number: int
    reads: tuple[Read, ...] = ()
    values: tuple[Slot, ...] = ()

    def text(self, program: Program) -> str:
        reads = [program.shown((r.access,)) + (f" from {r.slot}" if r.slot is not None else "") for r in self.reads]
        reads += [f"values from {', '.join(map(str, self.values))}"] if self.values else []
        name = f"{self.number} {program.ops[self.number].name}"
        return f"{name}, reads {', '.join(reads)}" if reads else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo(Item):
    """Takes back what an operation wrote, by a launch that is its inverse to the bit."""

    verb: ClassVar[str] = "undo"
    number: int

    def text(self, program: Program) -> str:
        return f"{self.number} {program.ops[self.number].name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear(Item):
    """Sets the shadows of what an operation overwrote to zero."""

    verb: ClassVar[str] = "clear"
    number: int

    def text(self, program: Program) -> str:
        op = program.ops[self.number]
        return f"{self.number} {op.name}, the shadow of {program.shown(op.effects.writes)}"


@dataclass(frozen=True, slots=True)
class Script:
    """What happens as a program runs (`forward`), and as it is reversed (`reversal`)."""

    program: Program
    forward: tuple[Item, ...]
    reversal: tuple[Item, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, in order."""
        found = {slot.number: slot for item in (*self.forward, *self.reversal) for slot in _slots_of(item)}
        return tuple(found[number] for number in sorted(found))

    @property
    def title(self) -> str:
        """The first line."""
        again = sum(isinstance(item, Run) for item in self.reversal)
        runs = f"{counted(again, 'operation')} run again" if again > 1 else "1 operation runs again" if again else "nothing runs again"
        slots = self.slots
        return f"script: {counted(len(slots), 'slot')}, {sum(s.nbytes for s in slots)} B; {runs}"

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line of its text, with the function that decided it."""
        yield "", self.title
        for name, items in (("forward", self.forward), ("reverse", self.reversal)):
            yield "", name
            yield from ((item.by, f"      {item.verb:<8} {item.text(self.program)}") for item in items)


def _into(values: tuple[Slot, ...]) -> str:
    return f", values -> {', '.join(map(str, values))}" if values else ""


def _slots_of(item: Item) -> tuple[Slot, ...]:
    match item:
        case Store() | Fetch():
            return (item.slot,)
        case Run() | Extract():
            return item.values
        case Adjoint():
            return (*item.values, *(r.slot for r in item.reads if r.slot is not None))
    return ()


__all__ = ["Adjoint", "Clear", "Extract", "Fetch", "Item", "Prefetch", "Read", "Run", "Script", "Slot", "Store", "Undo"]
