"""The lanes that execute a block together, and the decoding of an instruction into a step on them.

A value is a vector with an element for each lane, or with one element where all lanes have the same. A step takes the `Lanes`, reads its
sources, and writes its result. Handlers register themselves by opcode in `HANDLERS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .faults import Unknown
from .parser import Address, Group, Instruction, Negated, Number, Operand, Register, Special, Symbol
from .types import DTYPES, dtype, uniform, viewed, widened

if TYPE_CHECKING:
    from .machine import Activation

Step: TypeAlias = "Callable[[Lanes], None]"
Fetch: TypeAlias = "Callable[[Lanes], Any]"
HANDLERS: dict[str, Callable[[Coded], Step]] = {}
MET: Counter[str] = Counter()  # opcodes with modifiers, as often as they were decoded


class Lanes:
    """Some lanes of an activation: `index` names them (None: all), `count` is their number. Registers are read and written here, and go
    back to the activation when the block ends."""

    def __init__(self, activation: Activation, index: Any, count: int) -> None:
        self.activation, self.index, self.count = activation, index, count
        self.values: dict[str, Any] = {}
        self.carry: Any = None

    def read(self, name: str) -> Any:
        found = self.values.get(name)
        if found is None:
            found = self.values[name] = self.activation.read(name, self.index)
        return found

    def full(self, value: Any) -> Any:
        """A value with an element for each lane."""
        return value if value.size == self.count else np.broadcast_to(value, self.count)

    @property
    def rows(self) -> Any:
        """The block of each lane."""
        return self.pick(self.activation.blocks)

    @property
    def threads(self) -> Any:
        """The number of each lane in its block."""
        return self.pick(self.activation.threads)

    @property
    def warps(self) -> Any:
        """The warp of each lane, counted over all blocks."""
        return self.pick(self.activation.warps)

    def pick(self, values: Any) -> Any:
        return values if self.index is None else values[self.index]

    def commit(self, alive: frozenset[str]) -> None:
        for name, value in self.values.items():
            if name in alive:
                self.activation.write(name, self.index, value)


class Coded:
    """An instruction while it is decoded: modifiers are taken one by one, and none may be left."""

    def __init__(self, instruction: Instruction, scope: Any) -> None:
        self.instruction, self.scope = instruction, scope
        self.operands = instruction.operands
        self.rest = list(instruction.modifiers)
        self.text = instruction.text

    def flag(self, *names: str) -> str:
        """The modifier among these that the instruction has, or nothing."""
        for name in names:
            if name in self.rest:
                self.rest.remove(name)
                return name
        return ""

    def need(self, *names: str) -> str:
        found = self.flag(*names)
        if not found:
            raise Unknown(f"{self.text}: none of .{', .'.join(names)}")
        return found

    def type(self) -> str:
        """The last type among the modifiers."""
        for name in reversed(self.rest):
            if name in DTYPES:
                self.rest.remove(name)
                return name
        raise Unknown(f"{self.text}: no type that is known")

    def done(self, *operands: int) -> None:
        """Refuses what is left over, and another number of operands than these."""
        if self.rest:
            raise Unknown(f"{self.text}: .{' .'.join(self.rest)}")
        if operands and len(self.operands) not in operands:
            raise Unknown(f"{self.text}: {len(self.operands)} operands")

    # --- operands

    def source(self, at: int, type_: str) -> Fetch:
        return self.fetch(self.operands[at], dtype(type_))

    def fetch(self, operand: Operand, wanted: Any) -> Fetch:
        match operand:
            case Register(name):
                return lambda lanes: viewed(lanes.read(name), wanted)
            case Negated(Register(name)):
                return lambda lanes: ~lanes.read(name)
            case Number():
                constant = immediate(operand, wanted)
                return lambda lanes: constant
            case Symbol(name, offset):
                address = uniform(self.scope.address(name) + offset, wanted)
                return lambda lanes: address
            case Special(name):
                return lambda lanes: _special(lanes, name, wanted)
        raise Unknown(f"{self.text}: operand {operand}")

    def target(self, at: int = 0) -> Callable[[Lanes, Any], None]:
        return self.put(self.operands[at])

    def put(self, operand: Operand) -> Callable[[Lanes, Any], None]:
        """Writes a result into a register, extended to its size."""
        match operand:
            case None:
                return lambda lanes, value: None
            case Register(name, size):

                def write(lanes: Lanes, value: Any) -> None:
                    lanes.values[name] = widened(value, size) if size else value

                return write
        raise Unknown(f"{self.text}: a result in {operand}")

    def pair(self, at: int) -> tuple[Callable[[Lanes, Any], None], Callable[[Lanes, Any], None] | None]:
        """`d|p`, or `d` alone."""
        operand = self.operands[at]
        if isinstance(operand, Group):
            return self.put(operand.parts[0]), self.put(operand.parts[1])
        return self.put(operand), None

    def parts(self, at: int) -> tuple[Operand, ...]:
        operand = self.operands[at]
        return operand.parts if isinstance(operand, Group) else (operand,)

    def addresses(self, at: int) -> Fetch:
        """The addresses of `[base+offset]` as 64-bit numbers."""
        operand = self.operands[at]
        if not isinstance(operand, Address):
            raise Unknown(f"{self.text}: {operand} is no address")
        offset = np.array([operand.offset], np.int64).view(np.uint64)
        match operand.base:
            case Register(name, size):
                if size == 8:
                    return lambda lanes: lanes.read(name).view(np.uint64) + offset
                return lambda lanes: (viewed(lanes.read(name), np.dtype("u4")).astype(np.int64) + operand.offset).view(np.uint64)
            case Symbol(name):
                constant = np.array([self.scope.address(name)], np.uint64) + offset
                return lambda lanes: constant
            case Number(bits):
                constant = np.array([bits], np.uint64) + offset
                return lambda lanes: constant
        raise Unknown(self.text)


def immediate(operand: Number, wanted: Any) -> Any:
    """A constant as bits of the wanted type."""
    size = wanted.itemsize
    if wanted == np.bool_:
        return uniform(operand.bits != 0, wanted)
    if operand.size == 8 and wanted == np.float32:
        return np.array([operand.bits], np.uint64).view(np.float64).astype(np.float32)
    if operand.size == 0 and wanted.kind == "f" and operand.bits and wanted.itemsize > 2:
        return uniform(operand.bits, wanted)
    return np.array([operand.bits & ((1 << 8 * size) - 1)], np.dtype(f"u{size}")).view(wanted)


def _special(lanes: Lanes, name: str, wanted: Any) -> Any:
    value = lanes.activation.special(name)
    value = value if value.size == 1 else lanes.pick(value)
    return value.astype(wanted)


def handler(*names: str) -> Callable[[Callable[[Coded], Step]], Callable[[Coded], Step]]:
    def register(function: Callable[[Coded], Step]) -> Callable[[Coded], Step]:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


def decode(instruction: Instruction, scope: Any) -> Step:
    """The instruction as a step; Unknown, with its text, if no handler takes all of it."""
    if instruction.opcode not in HANDLERS:
        raise Unknown(f"instruction {instruction.text}")
    step = HANDLERS[instruction.opcode](Coded(instruction, scope))
    MET[instruction.form] += 1
    return step


def applied(coded: Coded, operation: Callable[..., Any], types: tuple[str, ...]) -> Step:
    """`operation` on the sources behind the target, of these types."""
    coded.done(len(types) + 1)
    sources = [coded.source(at + 1, type_) for at, type_ in enumerate(types)]
    put = coded.target()
    if len(sources) == 1:
        (first,) = sources
        return lambda lanes: put(lanes, operation(first(lanes)))
    if len(sources) == 2:
        left, right = sources
        return lambda lanes: put(lanes, operation(left(lanes), right(lanes)))
    return lambda lanes: put(lanes, operation(*[source(lanes) for source in sources]))
