"""Activity patterns and parameters: what a derivative depends on besides its kernel's source, and what generated parameters stand for.

In: a kernel's parameters, and of a call which of them have shadows and overlap. Out: `Pattern`, hashable, the key under which a derivative
is specialised; `Variant`, how each shadow is accumulated in one launch; and for each generated kernel a tuple of `Parameter`s, in its
order, from which `adjoint_memory.argument_of` finds the arguments. A shadow stands behind its primal; parameters that overlap share that of
their base. Raises nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..accumulate.materialise import Materialisation
from ..ad.recording import Recording
from ..ad.stack_layout import Layout
from ..ir.aliases import NONE, Aliases
from ..ir.nodes import Buffer, Kernel, Var
from ..ir.rewrite import Names
from ..ir.types import Scalar


@dataclass(frozen=True)
class Pattern:
    """What a derivative depends on besides the source: for each parameter (by position) the element type of its shadow, or None; which
    parameters overlap; through which nothing is to flow; for tests, whether recording is analysed or everything is recorded; whether
    strides that are parameters may be taken to be non-zero, and whether distances may too; whether what loops carry may be read from
    results that the launch leaves, in place of a stack; of conditions on whole numbers, whether they hold (`optimize.decided_conditions`),
    where that is asked."""

    shadows: tuple[Scalar | None, ...]
    aliases: Aliases = NONE
    stopped: frozenset[int] = frozenset()
    analyse: bool = True
    optimistic: bool = True
    distances: bool = True
    results: bool = True
    decided: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Parameter:
    """What a generated kernel's parameter stands for. `role`: 'primal' (as it is after the launch), 'shadow', 'entry' (a copy from before
    the launch), 'working' (the same, which the kernel overwrites), 'offset' (of an overlapping parameter), 'log', 'base', 'field',
    'depth', 'overflow', 'partial' (what threads keep for those that gather), 'first', 'threads', 'from' and 'to' (of a gather), or
    'tangent...'. `position`: the user's parameter, or the number of the log, scratch or axis."""

    role: str
    position: int
    item: Var | Buffer


_NONE: frozenset[Buffer] = frozenset()


@dataclass(frozen=True)
class Variant:
    """What is known of a launch. Shadows that are accumulated `plain`ly; that are zero, so `assigned` to; whose taken elements no one
    will look at (`left`); that share the memory of another (`aliased`). `in_blocks`: whether the threads of a block, where they all add
    to one element, had better form its sum first."""

    plain: frozenset[Buffer] = _NONE
    assigned: frozenset[Buffer] = _NONE
    left: frozenset[Buffer] = _NONE
    aliased: frozenset[Buffer] = _NONE
    in_blocks: bool = False


def shadows_of(kernel: Kernel, pattern: Pattern, names: Names, prefix: str) -> dict[Var | Buffer, Buffer]:
    """A shadow for each active parameter; parameters that overlap share that of their base."""
    return {
        p: names.buffer(f"{prefix}{p.name}", element)
        for position, (p, element) in enumerate(zip(kernel.params, pattern.shadows, strict=False))
        if element is not None and pattern.aliases.get(position) is None
    }


def stopped(kernel: Kernel, pattern: Pattern) -> list[Buffer]:
    return [p for i, p in enumerate(kernel.params) if i in pattern.stopped and isinstance(p, Buffer)]


def primal_and_shadow(kernel: Kernel, shadows: Mapping[Var | Buffer, Buffer], pattern: Pattern) -> tuple[Parameter, ...]:
    """Primal and shadow side by side, then the offsets of overlapping parameters."""
    out: list[Parameter] = []
    count = len(pattern.shadows)
    for position, item in enumerate(kernel.params):
        out.append(Parameter("primal" if position < count else "offset", _offset_position(pattern, position, count), item))
        if item in shadows and pattern.aliases.get(position) is None:
            out.append(Parameter("shadow", position, shadows[item]))
    return tuple(out)


def _offset_position(pattern: Pattern, position: int, count: int) -> int:
    """An offset parameter is numbered by the overlapping parameter that it belongs to."""
    if position < count:
        return position
    shifted = [o.position for o in pattern.aliases.overlaps if not o.equal]
    return shifted[position - count]


def adjoint_parameters(
    kernel: Kernel, pattern: Pattern, shadows: Mapping[Var | Buffer, Buffer], recording: Recording, layout: Layout, logs: tuple[Buffer, ...]
) -> tuple[Parameter, ...]:
    positions = {item: i for i, item in enumerate(kernel.params) if pattern.aliases.get(i) is None}
    entries = [Parameter("working" if b in recording.working else "entry", positions[b], copy) for b, copy in recording.entry.items()]
    recorded = [Parameter("log", i, log) for i, log in enumerate(logs)]
    return (*primal_and_shadow(kernel, shadows, pattern), *entries, *recorded, *stack_parameters(layout))


def partial_parameters(numbers: Materialisation | None) -> tuple[Parameter, ...]:
    """The arrays that threads keep numbers in, and how many threads there are."""
    if numbers is None:
        return ()
    arrays = (Parameter("partial", k, array) for k, array in enumerate(numbers.buffers))
    return (*arrays, *(Parameter("threads", k, v) for k, v in enumerate(numbers.threads)))


def stack_parameters(layout: Layout) -> tuple[Parameter, ...]:
    """Scratch memory for the stacks that do not lie in local arrays, and the flag that says that one overflowed."""
    found: list[Parameter] = []
    for number, scratch in enumerate(layout.scratch):
        found += [Parameter("base", number, scratch.base), *(Parameter("field", number, f) for f in scratch.fields)]
    return (*found, Parameter("overflow", 0, layout.overflow)) if layout.overflow else tuple(found)
