"""Whether anything that a program began with reaches its seeds (rule 29 of the contract).

An overwritten value reaches nothing: where every path from an array with a shadow to the seeds goes through an overwrite, all gradients are
zero. That is right, and surely not what was asked for. So the recorded operations are followed back from the seeds by what they do to
memory, whatever is in it. Bytes are *wanted* if what they hold at that moment may reach a seed. An operation that surely overwrites wanted
bytes ends that; one that may write wanted bytes makes wanted what it reads with a shadow. If nothing is wanted in the end of which there
was a shadow before the program, and no number with a shadow was met, then nothing is reached.

What is not known errs on one side: reads are never fewer than they are, sure overwrites never more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arguments.arrays import address
from ...program.ir.region import EMPTY, Region
from ..memory.versions import Allocation
from ..record.operations import Operation, Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from .shadows import Shadows

_MOST = 3  # lines that a message names
_PURPOSE = "If that is what you want, say so: reverse(seeds, allow_unused=True). No shadow was touched."


@dataclass(frozen=True)
class _Cut:
    """An operation that overwrites what others read of an allocation later; `alone`: with values that depend on nothing with a shadow."""

    time: int
    operation: Operation
    memory: str
    alone: bool


def unreached(operations: Sequence[Operation], shadows: Shadows, seeds: Iterable[tuple[Any, Region]], made: Collection[int]) -> str:
    """Why nothing that has had a shadow from before the program reaches a seed; empty if something does, or if there are no seeds.

    `seeds`: flat shadows, and the elements of each that get a seed. `made`: addresses of arrays that the program itself made.
    """
    found = _Backward(shadows, made)
    if not found.begin(seeds):
        return ""
    for time in range(len(operations) - 1, -1, -1):
        if found.passes(operations[time], time):
            return ""
    return "" if found.arrived() else found.message()


class _Backward:
    """What is wanted at the moment to which a walk back through the operations has come, by the address of the allocation; `read`: because
    an operation reads it, not only for a seed."""

    def __init__(self, shadows: Shadows, made: Collection[int]) -> None:
        self.shadows, self.made = shadows, made
        self.wanted: dict[int, Region] = {}
        self.read: dict[int, Region] = {}
        self.allocations: dict[int, Allocation] = {}
        self.cuts: dict[int, _Cut] = {}
        self.sources: list[Operation] = []  # that made wanted values of nothing with a shadow, the last one first

    def begin(self, seeds: Iterable[tuple[Any, Region]]) -> bool:
        """Whether there are seeds."""
        for root, elements in seeds:
            for p in self.shadows.by_shadow.get(address(root), ()):
                self.want(p.allocation, Region((elements.spans - p.shift) * p.size) & p.region)
        return bool(self.wanted)

    def want(self, a: Allocation, region: Region) -> None:
        """Bytes become wanted."""
        if region:
            self.allocations[a.address] = a
            self.wanted[a.address] = self.wanted.get(a.address, EMPTY) | region

    def passes(self, operation: Operation, time: int) -> bool:
        """Goes back over an operation; whether it is certain by now that something is reached."""
        if not any(use.region & self.wanted.get(use.allocation.address, EMPTY) for use in operation.effects.writes):
            return False
        reads, number = self._inputs(operation)
        if number:
            return True
        if not reads:
            self.sources.append(operation)
        for use in _overwritten(operation):
            self._cut(use, operation, time, alone=not reads)
        for use in reads:
            self.want(use.allocation, use.region)
            self.read[use.allocation.address] = self.read.get(use.allocation.address, EMPTY) | use.region
        return any(bool(self._from_before(use.allocation, use.region - use.allocation.written)) for use in reads)

    def _cut(self, use: Use, operation: Operation, time: int, *, alone: bool) -> None:
        where = use.allocation.address
        wanted = self.wanted.get(where, EMPTY)
        if not use.region & wanted:
            return
        self.wanted[where] = wanted - use.region
        read = self.read.get(where, EMPTY)
        if self._from_before(use.allocation, use.region & read):
            self.cuts[where] = _Cut(time, operation, _name(operation, use), alone)
        self.read[where] = read - use.region

    def _inputs(self, operation: Operation) -> tuple[list[Use], bool]:
        """What an operation reads that has a shadow, and whether a number with one, or what another process has, is among it."""
        if isinstance(operation, Launched):
            arguments = operation.call.bound.arguments
            if operation.adjoint is None:
                return [], False
            uses = [use for use in operation.reads if arguments[use.position].shadows]
            return uses, any(a.memory is None and a.shadows for a in arguments)
        if isinstance(operation, Ruled):
            read = (operation.operands[n] for n in operation.effect.reads if n in operation.operands)
            given = any(n in operation.actives for n in operation.effect.reads)
            return [o.use for o in read if o.shadow is not None], given or operation.rule.joint  # others have what it came from
        return [], False

    def _from_before(self, a: Allocation, region: Region) -> Region:
        """What of a region has had a shadow from before the program."""
        return EMPTY if a.address in self.made or not region else self.shadows.with_shadow(a, region)

    def arrived(self) -> bool:
        """Whether anything is wanted, at the beginning, that has a shadow."""
        return any(bool(self._from_before(a, self.wanted[where])) for where, a in self.allocations.items())

    def message(self) -> str:
        """What is the matter, and what to write instead."""
        cuts = sorted(self.cuts.values(), key=lambda cut: (not cut.alone, cut.time))
        cuts = [cut for cut in cuts if cut.alone] or cuts[:1]
        if not cuts:
            made = "; ".join(f"{op.name.removeprefix('op_')} ({op.where})" for op in self.sources[:_MOST])
            return (
                f"no array or number with a shadow reaches the seeds, which come from plain data alone: {made}. All gradients are 0. "
                f"Pass what you want the gradient of as Duplicated(x) or Active(value, shadow). {_PURPOSE}"
            )
        lines = [f"{c.operation.name.removeprefix('op_')} ({c.operation.where}) overwrites its `{c.memory}`" for c in cuts[:_MOST]]
        more = f" (and {len(cuts) - _MOST} more)" if len(cuts) > _MOST else ""
        return (
            f"no array or number with a shadow reaches the seeds, so all gradients are 0: {'; '.join(lines)}{more} before anything that "
            "was in it reaches them. For the gradient of an initial state `h0` in `H` write `H.primal[...] = h0` before the `with` block, "
            f"or make h0 a `Duplicated` of its own, whose shadow gets the gradient. {_PURPOSE}"
        )


def _name(operation: Operation, use: Use) -> str:
    """What an operation calls the array that it reaches."""
    if isinstance(operation, Launched):
        return operation.call.bound.arguments[use.position].name
    operands = operation.operands.values() if isinstance(operation, Ruled) else ()
    return next((o.name for o in operands if o.use is use), use.allocation.name)


def _overwritten(operation: Operation) -> Sequence[Use]:
    """What an operation surely overwrites."""
    if isinstance(operation, Ruled):
        found = (operation.operands[n] for n in operation.effect.overwrites if n in operation.operands)
        return [o.use for o in found if o.use.region is o.extent]
    return operation.effects.must
