"""The program that a tape has recorded, as data (`gpuad.program.ir`).

In: a tape that is recorded to its end, and the user's names of arrays by address. Out: its buffers and operations. Nothing runs, and
nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arguments import BoundArgument
from ..arguments.arrays import address
from ..program.ir import program as ir
from ..program.ir.region import Region
from ..program.ir.regions import joined
from .budget.rerun import order_matters
from .memory.temporaries import Made
from .record.call_keys import MadeKey
from .record.operations import Operation, Renewed, Use
from .record.recorded_launch import Launched
from .record.recorded_rule import Ruled
from .replay.trace_replay import Repeating

_BY = {  # the function that finds out what an operation does
    ir.LaunchOp: "tape/record/recorded_launch.py:reaches_of",
    ir.RuleOp: "tape/record/rule_calls.py:record",
    ir.ExternalWrite: "tape/record/operation_recording.py:record_foreign",
    ir.Allocate: "tape/record/operation_recording.py:record_made",
    ir.ReuseBuffer: "tape/record/operation_recording.py:record_renewed",
}
_WORDS = {"stopped": "stop_gradient", "noneed": "DuplicatedNoNeed", "const": "Const", "active": "Active"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)


@dataclass(frozen=True)
class RecordedProgram:
    """A program, with what ties it to its tape: the number of each buffer by the address of its allocation, and the number in the program
    of each operation of the tape."""

    program: ir.Program
    buffers: Mapping[int, int]
    numbers: tuple[int, ...]

    def access(self, where: int, region: Region) -> ir.Access:
        """Bytes of an allocation."""
        return ir.Access(self.buffers[where], region)


def program_of(tape: Repeating, names: Mapping[int, str]) -> RecordedProgram:
    """The program of a tape."""
    return _Reader(tape, names).read()


class _Reader:
    def __init__(self, tape: Repeating, names: Mapping[int, str]) -> None:
        self.tape, self.names = tape, names
        self.buffers: dict[int, ir.Buffer] = {}
        self.taken: dict[str, int] = {}
        shadows: dict[int, dict[int, None]] = {}  # by primal
        for where, pairings in tape.shadows.by_shadow.items():
            shadows.setdefault(pairings[0].allocation.address, {})[where] = None
        for where, a in tape.allocations.items():
            self._add(where, a.name, int(a.root.nbytes), shadows.get(where, {}))
        for where, made in tape.made.arrays.items():
            self._add(where, "t", int(made.array.nbytes), shadows.get(where, {}))
        self.at = {where: number for number, where in enumerate(self.buffers)}

    def _add(self, where: int, called: str, nbytes: int, shadows: Iterable[int]) -> None:
        if where in self.buffers:
            return
        made = self.tape.made.arrays.get(where)
        name = self._unique(self.names.get(where) or ("t" if made is not None else called))
        own = tuple(self.names.get(shadow) or f"d{name}" for shadow in shadows)
        self.buffers[where] = ir.Buffer(name, nbytes, own, made.where if made is not None else "")

    def _unique(self, name: str) -> str:
        """A name that no other buffer has."""
        count = self.taken[name] = self.taken.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def read(self) -> RecordedProgram:
        ops: list[ir.Op] = []
        numbers: list[int] = []
        for op in self.tape.trace.ops:
            if op.operation is None:
                assert isinstance(op.key, MadeKey)
                ops.append(self._allocate(op.key.made))
            else:
                numbers.append(len(ops))
                ops.append(self._op(op.operation))
        done = tuple(replace(op, by=_BY[type(op)]) for op in ops)
        return RecordedProgram(ir.Program(tuple(self.buffers.values()), done), self.at, tuple(numbers))

    def _allocate(self, made: Made) -> ir.Op:
        number = self.at[address(made.array)]
        name, array = list(self.buffers.values())[number].name, made.array
        return ir.Allocate(
            name=name, place=made.where, buffer=number, shape=tuple(array.shape), dtype=str(array.dtype), active=made.pair.has_shadow
        )

    def _op(self, operation: Operation) -> ir.Op:
        effects = ir.Effects(self._accesses(operation.effects.writes), self._accesses(operation.effects.must))
        before, after = self._accesses(operation.effects.before), self._accesses(operation.effects.after)
        if isinstance(operation, Launched):
            call, kept = operation.call, operation.kept
            return ir.LaunchOp(
                name=operation.name,
                place=operation.where,
                effects=effects,
                needs=ir.Needs(before, after, kept.names, kept.nbytes) if kept is not None else ir.Needs(before, after),
                adjoint=operation.adjoint is not None,
                runs_once=order_matters(operation.kernel.primal(call.aliases()), call),
                grid=tuple(call.grid),
                block=tuple(call.block),
                shared_mem=call.shared_mem,
                arguments=tuple(map(self._argument, call.bound.arguments)),
            )
        if isinstance(operation, Ruled):
            return ir.RuleOp(
                name=operation.name,
                place=operation.where,
                effects=effects,
                needs=ir.Needs(before, after),
                adjoint=operation.flows,
                runs_once="" if operation.rule.pure else "its rule is not declared pure",
                arguments=tuple(self._of_rule(operation)),
            )
        if isinstance(operation, Renewed):
            name = self._name(operation.effects.writes[0].allocation.address)
            return ir.ReuseBuffer(name=name, place=operation.where, effects=effects)
        return ir.ExternalWrite(name=operation.name, place=operation.where, effects=effects)

    def _accesses(self, uses: Iterable[Use]) -> tuple[ir.Access, ...]:
        """Uses, one for each allocation."""
        regions = joined((use.allocation.address, use.region) for use in uses)
        return tuple(ir.Access(self.at[where], region) for where, region in regions.items())

    def _argument(self, a: BoundArgument) -> str:
        if a.is_pointer and a.memory is None:
            return "NULL"
        text = _number(a.value) if a.memory is None else self._name(address(a.memory.root))
        if a.memory is not None and a.memory.offset:
            text += f"+{a.memory.offset * a.memory.itemsize}B"
        return f"{_WORDS[a.kind]}({text})" if a.kind in _WORDS and (a.is_pointer or a.kind == "active") else text

    def _name(self, where: int) -> str:
        return list(self.buffers.values())[self.at[where]].name if where in self.at else "?"

    def _of_rule(self, operation: Ruled) -> Iterable[str]:
        for name, operand in operation.operands.items():
            text = self._name(operand.use.allocation.address)
            yield f"{name}={f'stop_gradient({text})' if operand.stopped else f'Const({text})' if operand.dropped else text}"
        for name, active in operation.actives.items():
            yield f"{name}=Active({_number(active.value)})"
        for name, value in operation.values.items():
            if name not in operation.operands and name not in operation.actives:
                yield f"{name}={_number(value)}"


def _number(x: Any) -> str:
    """A value as a text that is the same in every run."""
    if isinstance(x, tuple | list):
        return f"({', '.join(map(_number, x))})"
    if isinstance(x, slice):
        return f"slice({_number(x.start)}, {_number(x.stop)}, {_number(x.step)})"
    if isinstance(x, np.generic):
        return str(x)
    return repr(x) if isinstance(x, _PLAIN) else type(x).__name__


__all__ = ["RecordedProgram", "program_of"]
