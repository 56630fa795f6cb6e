"""A recorded program: buffers, and operations in the order in which they ran.

An operation says what it does to memory and what its adjoint reads. Two programs are the same if they are equal. The text of a program is
a line for each buffer, then each operation with its number, and below it what it writes and needs; a buffer's name alone means all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from .region import Region

_RUNS = 3  # of a region that are written out


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation of `nbytes` bytes; `shadows`: the names of the buffers with its gradient; `made_at`: the user's line where an
    operation made it, empty for the caller's memory."""

    name: str
    nbytes: int
    shadows: tuple[str, ...] = ()
    made_at: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """The bytes `region` of the program's buffer number `buffer`."""

    buffer: int
    region: Region


@dataclass(frozen=True, slots=True)
class Effects:
    """The bytes that an operation may write, and those that it surely writes."""

    writes: tuple[Access, ...] = ()
    must: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True)
class Needs:
    """The bytes that an adjoint reads, as they are before its operation or after it, and the `values` (by their names in the kernel,
    `nbytes` in all) that are kept in place of bytes."""

    before: tuple[Access, ...] = ()
    after: tuple[Access, ...] = ()
    values: str = ""
    nbytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operation: its `name`, the `place` (file:line) of the user's call, its effects and its adjoint's needs. `adjoint`: whether it has
    one; `runs_once`: the reason why it may not run again, empty if it may; `by`: the function that found all that out, as
    `file.py:function` below the package."""

    kind: ClassVar[str] = ""
    name: str
    place: str
    effects: Effects = Effects()
    needs: Needs = Needs()
    adjoint: bool = True
    runs_once: str = ""
    by: str = field(default="", compare=False)

    @property
    def call(self) -> str:
        """The call, as the user would write it."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOp(Op):
    """A launch of a kernel. `arguments`: names of buffers, and numbers."""

    kind: ClassVar[str] = "launch"
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_mem: int
    arguments: tuple[str, ...]

    @property
    def call(self) -> str:
        extents = [_extent(self.grid), _extent(self.block), *([str(self.shared_mem)] if self.shared_mem else [])]
        return f"{self.name}[{', '.join(extents)}]({', '.join(self.arguments)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOp(Op):
    """A call of a rule, array operations of the package among them. `arguments`: `name=value`."""

    kind: ClassVar[str] = "rule"
    arguments: tuple[str, ...]

    @property
    def call(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalWrite(Op):
    """Code that the tape does not see overwrites buffers, as announced; its result depends on nothing active."""

    kind: ClassVar[str] = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate(Op):
    """An operation makes an array: buffer number `buffer`, not written yet."""

    kind: ClassVar[str] = "allocate"
    buffer: int
    shape: tuple[int, ...]
    dtype: str
    active: bool

    @property
    def call(self) -> str:
        return f"{self.name} = empty({self.shape}, {self.dtype}{', with a shadow' if self.active else ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseBuffer(Op):
    """The memory of an array that an operation made, and that has no references left, becomes that of a new array."""

    kind: ClassVar[str] = "reuse"


@dataclass(frozen=True, slots=True)
class Program:
    """A recorded program."""

    buffers: tuple[Buffer, ...]
    ops: tuple[Op, ...]

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line of its text, with the function that decided it."""
        yield "", self.title
        yield from (("", _buffer_line(b)) for b in self.buffers)
        for number, op in enumerate(self.ops):
            yield from ((op.by, line) for line in self.op_lines(number))

    @property
    def title(self) -> str:
        """The first line."""
        return f"program: {counted(len(self.ops), 'operation')} on {counted(len(self.buffers), 'buffer')}"

    def op_lines(self, number: int) -> list[str]:
        """The lines of operation number `number`."""
        op = self.ops[number]
        under = [f"       {what:<7} {text}" for what, text in self._remarks(op) if text]
        return [f"{number:>4}  {op.kind:<8} {op.call}  # {op.place}", *under]

    def _remarks(self, op: Op) -> list[tuple[str, str]]:
        needs, surely = op.needs, op.effects.must
        parts = [
            f"{self.shown(needs.before)} as before" if needs.before else "",
            f"{self.shown(needs.after)} as after" if needs.after else "",
        ]
        parts += [f"the values {needs.values} ({needs.nbytes} B)" if needs.values else ""]
        return [
            ("writes", self.shown(op.effects.writes)),
            ("surely", (self.shown(surely) or "nothing") if surely != op.effects.writes else ""),
            ("needs", ", ".join(part for part in parts if part)),
            ("adjoint", "" if op.adjoint else "none: it carries no gradient"),
            ("once", op.runs_once),
        ]

    def shown(self, accesses: tuple[Access, ...]) -> str:
        """Accesses as a text."""
        return ", ".join(self._access(a) for a in accesses if a.region)

    def _access(self, access: Access) -> str:
        buffer, region = self.buffers[access.buffer], access.region
        if region.nbytes == buffer.nbytes:
            return buffer.name
        runs = [f"{low}:{high}" for low, high in region.spans[:_RUNS].tolist()]
        more = f" ... {len(region.spans)} runs, {region.nbytes} B" if len(region.spans) > _RUNS else ""
        return f"{buffer.name}[{', '.join(runs)}{more}]"


def _buffer_line(buffer: Buffer) -> str:
    shadows = f"  shadow {', '.join(buffer.shadows)}" if buffer.shadows else ""
    made = f"  # made at {buffer.made_at}" if buffer.made_at else ""
    return f"      buffer   {buffer.name}  {buffer.nbytes} B{shadows}{made}"


def _extent(extent: tuple[int, ...]) -> str:
    """A grid or a block without its last ones."""
    *rest, last = extent
    return _extent(tuple(rest)) if last == 1 and rest else str(extent[0]) if len(extent) == 1 else str(extent)


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


__all__ = [
    "Access",
    "Allocate",
    "Buffer",
    "Effects",
    "ExternalWrite",
    "LaunchOp",
    "Needs",
    "Op",
    "Program",
    "ReuseBuffer",
    "RuleOp",
    "counted",
]
