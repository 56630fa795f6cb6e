"""Recorded operations that run again: what each reads and writes then, and which may not.

An operation that runs again on the state that it had before leaves the state that it left then, if nothing but memory decides what it
does. That is not so where the order of threads decides: floating sums and exchanges by atomics, on executors with open order; of a rule
whose function was not declared `pure`; and of code that the tape does not see. What these wrote is kept, and copied back in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import pipeline
from ...affine.effects import Shape
from ...affine.inverse_certificate import takes_back
from ...affine.relations import is_installed
from ...analysis.inverses import inverse
from ...api import Kernel as UserKernel
from ...ir.nodes import Accumulate, Atomic, How, Kernel
from ...ir.rewrite import walk_stmts
from ...memo import Same
from ...optimize.dead_code import without_output
from ...pipeline import Call
from ...program.ir.region import Region
from ...program.ir.regions import Regions, joined, united, without
from ...runtime.actions import Action
from ...runtime.base import Memory, prepared
from ..memory.versions import Allocation
from ..record.known_calls import KnownLaunch
from ..record.operations import Foreign, Operation, Renewed, Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled


@dataclass(frozen=True, eq=False, slots=True)
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
        """True if what it wrote is kept, since it may not run again."""
        return bool(self.why) and self.first is not None


def of_uses(uses: Iterable[Use]) -> Regions:
    """What uses mean, by allocation."""
    return joined((use.allocation.address, use.region) for use in uses)


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


# --- what runs it again -------------------------------------------------------------------------------------------------------------------


def launch_again(known: KnownLaunch, operation: Launched, read: Iterable[Use]) -> Rerun:
    """A launch as it runs again; `read`: what the primal reads and adds to."""
    call, adjoint = operation.call, operation.adjoint
    writes, must = of_uses(operation.effects.writes), of_uses(operation.effects.must)
    first, why = known.launch(call.executor), order_matters(known.kind.primal, call)
    reads = {} if why else of_uses(read)
    must = writes if why else must
    augmented = adjoint.augmented if adjoint is not None else None
    sizes = pipeline.log_sizes(adjoint, call) if adjoint is not None and augmented is not None else []

    def noting(data: Sequence[Any]) -> tuple[Sequence[Memory], Action]:
        assert augmented is not None
        logs = [Memory(d.view(dtype)) for d, (_, dtype) in zip(data, sizes, strict=True)]
        return logs, call.prepared(augmented, [*known.given, *logs])

    reads = united(reads, without(writes, must))
    again = None if why else _silent(known, call, first)
    logs = tuple(n * dtype.itemsize for n, dtype in sizes)
    undo = None if why or logs or operation.effects.after else undo_of(known.operation.kernel, known.kind.primal, call, known.given)
    return Rerun(reads, writes, must, first, again, why, logs, noting, undo=undo)


def undo_of(kernel: UserKernel, primal: Kernel, call: Call, given: Sequence[Any]) -> Callable[[], Action] | None:
    """What makes the launch that takes one back to the bit, where there is a certificate for one. `given`: what it is launched with."""
    if call.overlaps or call.absent:
        return None
    undone = kernel.facts.get(("undone", Same(primal), call.key), lambda: (primal, _certified(primal, call)))[1]
    if undone is None:
        return None

    def made() -> Action:
        call.prepare([undone])
        return prepared(call.executor, undone, call.grid, call.block, given, call.shared_mem)

    return made


def _certified(primal: Kernel, call: Call) -> Kernel | None:
    found = inverse(primal)
    if found is None or not is_installed():
        return None
    shape = Shape(call.grid, call.block, dict(call.numbers(primal).scalars))
    return found if takes_back(primal, found, shape) else None


def _silent(known: KnownLaunch, call: Call, first: Action) -> Action:
    """The launch without what the user has heard already."""
    primal = known.kind.primal
    silent = known.operation.kernel.facts.get(("said once", Same(primal)), lambda: (primal, said_once(primal)))[1]
    if silent is primal:
        return first
    call.prepare([silent])
    return prepared(call.executor, silent, call.grid, call.block, known.given, call.shared_mem)


def external_again(operation: Foreign) -> Rerun:
    """Code that the tape does not see, or memory that is used again: there is nothing to run."""
    writes = of_uses(operation.effects.writes)
    return Rerun({}, writes, writes, None, None, "" if isinstance(operation, Renewed) else "the tape does not see it")


def rule_again(operation: Ruled, action: Action | None, library: str | None) -> Rerun:
    """A call of a rule as it runs again."""
    reads, writes, must = touched_by_rule(operation)
    why = "" if operation.rule.pure else "its rule is not declared pure"
    if library == "cupy" and operation.effect.adds:
        why = why or "the order of its additions is open"
    return Rerun({} if why else reads, writes, writes if why else must, action, None if why else action, why)
