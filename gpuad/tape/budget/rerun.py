"""Recorded operations that run again: what each reads and writes then, and which may not.

An operation that runs again on the state that it had before leaves the state that it left then, if nothing but memory decides what it
does. That is not so where the order of threads decides: floating sums and exchanges by atomics, on executors with open order; of a rule
whose function was not declared `pure`; and of code that the tape does not see. What these wrote is kept, and copied back in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir.nodes import Accumulate, Atomic, How, Kernel
from ...ir.rewrite import walk_stmts
from ...optimize.dead_code import without_output
from ...pipeline import Call
from ...runtime.actions import Action
from ...runtime.base import Memory
from ..memory.region import EMPTY, Region
from ..memory.versions import Allocation
from ..record.operations import Operation, Use
from ..record.recorded_rule import Ruled

Regions: TypeAlias = "dict[int, Region]"  # bytes of allocations, by address


@dataclass(eq=False, slots=True)
class Rerun:
    """An operation as it runs again. `reads`: what decides what it writes, and the bytes that it may leave as they are among what it may
    write; `writes`, `must`: what it may, and surely does. `first`: the launch as the user made it; `again`: the same without what it says,
    None where it may not run again, because of `why`. `logs`: bytes of what the launch writes down for its adjoint; `noting`: the launch
    that does so, into such memory. `room`: bytes of the tape's memory that it took while it ran, `scratch`: that the stacks of its reverse
    take. `arrives`: memory that code which the tape does not see has written before it. `undo`: makes what takes back what it wrote, to the
    bit; None where that is not known."""

    reads: Regions
    writes: Regions
    must: Regions
    first: Action | None
    again: Action | None
    why: str = ""
    logs: tuple[int, ...] = ()
    noting: Callable[[Sequence[Any]], tuple[Sequence[Memory], Action]] | None = None
    room: int = 0
    scratch: int = 0
    arrives: Regions = field(default_factory=dict)
    undo: Callable[[], Action] | None = None

    @property
    def keeps(self) -> bool:
        """Whether what it wrote is kept, since it may not run again."""
        return bool(self.why) and self.first is not None


def joined(parts: Iterable[tuple[int, Region]]) -> Regions:
    """Regions by allocation."""
    found: Regions = {}
    for where, region in parts:
        if region:
            found[where] = found.get(where, EMPTY) | region
    return found


def of_uses(uses: Iterable[Use]) -> Regions:
    """What uses mean, by allocation."""
    return joined((use.allocation.address, use.region) for use in uses)


def united(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes of both."""
    return joined((*a.items(), *b.items()))


def without(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes of `a` that are not in `b`."""
    return {where: rest for where, region in a.items() if (rest := region - b.get(where, EMPTY))}


def common(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes that are in both."""
    return {where: both for where, region in a.items() if (both := region & b.get(where, EMPTY))}


def needs_of(operation: Operation, must: Mapping[int, Region]) -> Regions:
    """What an operation's adjoint reads of the state before it."""
    return united(of_uses(operation.effects.before), without(of_uses(operation.effects.after), must))


def adjoint_reads(operation: Operation) -> tuple[Regions, Regions]:
    """What an operation's adjoint reads, as it is before the operation, and as it is after it."""
    return of_uses(operation.effects.before), of_uses(operation.effects.after)


def order_matters(kernel: Kernel, call: Call) -> str:
    """Why a launch may leave something else when it runs again; empty if it may not."""
    executor = call.executor
    if executor.name == "reference" or (executor.name == "host" and getattr(executor, "workers", None) is None):
        return ""  # threads that meet come one after the other there
    for s in walk_stmts(kernel.body):
        if isinstance(s, Atomic):
            return "what its atomics find hangs on the order of threads"
        if isinstance(s, Accumulate) and s.how in (How.ATOMIC, How.REDUCED) and not s.buffer.element.is_integer:
            return "the order of its atomic floating-point additions is open"
    return ""


def said_once(primal: Kernel) -> Kernel:
    """The launch without printf and assertions: the user has heard them."""
    return without_output(primal)


def touched_by_rule(operation: Ruled) -> tuple[Regions, Regions, Regions]:
    """What the function of a rule reads, may write, and surely writes."""
    effect, operands = operation.effect, operation.operands
    writes = of_uses(operands[n].use for n in effect.writes if n in operands)
    must = of_uses(o.use for n in effect.overwrites if (o := operands.get(n)) is not None and o.use.region is o.extent)
    reads = of_uses(o.use for n, o in operands.items() if n not in effect.overwrites or n in effect.reads)
    return united(reads, without(writes, must)), writes, must


def allocation_of(operation: Operation) -> dict[int, Allocation]:
    """The allocations that an operation, or its adjoint, works on, by address."""
    effects = operation.effects
    uses = [*effects.writes, *effects.before, *effects.after, *effects.must]
    if isinstance(operation, Ruled):
        uses += [o.use for o in operation.operands.values()]
    return {use.allocation.address: use.allocation for use in uses}


__all__ = [
    "Regions", "Rerun", "adjoint_reads", "allocation_of", "common", "joined", "needs_of", "of_uses", "order_matters",
    "said_once", "touched_by_rule", "united", "without",
]  # fmt: skip
