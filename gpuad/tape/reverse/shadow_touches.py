"""What a reverse kernel does to its shadows: which elements it touches, whether each once, and how.

In: the adjoint, and the launch with its numbers. Out: a `Touch` for each shadow, in elements from where it points. Exact regions are proved
(`exact_coverage`) or counted by an inspector; where nothing is known it is all of the allocation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ... import pipeline
from ...analysis.affine_forms import TOUCHES, Launch, Reach
from ...analysis.exact_coverage import begun, covers_exactly_once, surely
from ...ir.nodes import Accumulate, Block, Buffer, Load, Stmt, Take
from ...ir.rewrite import touches
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...program.ir.region import EMPTY, Region
from ..memory.effects import of_reach, reached


@dataclass(frozen=True)
class Touch:
    """What a reverse kernel does to a shadow, in elements from where it points. `region`: what it may touch, None for everything.
    `covers_exactly_once`: 'added' or 'taken', where that is all that happens there, to each element of the region, once. `seed`: it reads
    elements, `writes`: it changes some. `copies`: each element of that shadow is added to one here as it is, and nothing else; `reach` says
    to which."""

    buffer: Buffer
    position: int
    region: Region | None
    once: str
    seed: bool
    writes: bool
    copies: Buffer | None
    reach: Reach | None


Exact: TypeAlias = "tuple[Region, Reach]"


def touches_of(adjoint: Adjoint, call: Call) -> tuple[Touch, ...]:
    """For each shadow of a launch."""
    plain, gathering = pipeline.plain_shadows(adjoint, call), pipeline.gathering(adjoint, call)
    gathered = gathering.buffers if gathering is not None else frozenset()
    find = partial(_touches, adjoint, call, plain, gathered)
    return call.fact(adjoint.facts, ("touches", plain, gathered), adjoint.primal, find)


def _touches(adjoint: Adjoint, call: Call, plain: frozenset[Buffer], gathered: frozenset[Buffer], launch: Launch) -> tuple[Touch, ...]:
    """The same with these numbers, where some shadows are accumulated plainly and some are gathered."""
    body = adjoint.layout.body
    shadows = {p.item: p.position for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)}
    exact = {b: found for b in shadows if b in plain and (found := _exact(body, b, launch)) is not None}
    collected = {b: region for b in shadows if b in gathered and (region := _collected(body, b, launch)) is not None}
    other = [b for b in shadows if b in plain and b not in exact]
    collected |= {b: region for b in other if (region := _begun(body, b, launch) or _counted(adjoint, call, b, launch)) is not None}
    return tuple(_touch(item, position, body, launch, exact, collected) for item, position in shadows.items())


def _touch(
    buffer: Buffer, position: int, body: Block, launch: Launch, exact: Mapping[Buffer, Exact], collected: Mapping[Buffer, Region]
) -> Touch:
    stmts = list(touches(body, buffer))
    seed = any(not isinstance(s, Accumulate) for s in stmts)
    writes = any(not isinstance(s, Load) for s in stmts)
    if buffer in collected:
        return Touch(buffer, position, collected[buffer], _kind(stmts[0]), seed, writes, None, None)
    if buffer not in exact:
        return Touch(buffer, position, reached(body, buffer, launch, TOUCHES, 1), "", seed, writes, None, None)
    region, reach = exact[buffer]
    return Touch(buffer, position, region, _kind(stmts[0]), seed, writes, _copied(body, buffer, exact), reach)


def _copied(body: Block, buffer: Buffer, exact: Mapping[Buffer, Exact]) -> Buffer | None:
    """The shadow of which each element is added, as it is, to an element of this one."""
    (target,) = touches(body, buffer)
    for other in exact:
        (source,) = touches(body, other)
        if not isinstance(target, Accumulate) or not isinstance(source, Take | Load):
            continue
        if target.value == source.var and other.element == buffer.element:
            return other
    return None


def _kind(stmt: Stmt) -> str:
    return "added" if isinstance(stmt, Accumulate) else "taken" if isinstance(stmt, Take) else ""


def _exact(body: Block, buffer: Buffer, launch: Launch) -> Exact | None:
    """The elements that are touched for certain, each once, where that is all that is touched, and in which order."""
    return _all_of(covers_exactly_once(body, buffer, launch), launch)


def _collected(body: Block, buffer: Buffer, launch: Launch) -> Region | None:
    """The elements that a gather adds to, each once, where every contribution to it is certain."""
    found = EMPTY
    for stmt in touches(body, buffer):
        exact = _all_of(surely(body, stmt, launch), launch)
        if exact is None:
            return None
        found = found | exact[0]
    return found


def _begun(body: Block, buffer: Buffer, launch: Launch) -> Region | None:
    """The elements that are added to several times, by one thread each, and by one statement before all others."""
    first = _all_of(begun(body, buffer, launch), launch)
    everything = reached(body, buffer, launch, TOUCHES, 1) if first is not None else None
    return first[0] if first is not None and everything is not None and everything <= first[0] else None


def _counted(adjoint: Adjoint, call: Call, buffer: Buffer, launch: Launch) -> Region | None:
    """The elements that are touched once, where an inspector is asked for them: all taken, or all added to by one statement."""
    stmts = list(touches(adjoint.layout.body, buffer))
    alike = all(isinstance(s, Take) for s in stmts) or (len(stmts) == 1 and isinstance(stmts[0], Accumulate))
    if not alike or launch != call.numbers(adjoint.primal):  # which pins them, if they are traced
        return None
    found = pipeline.is_injective(adjoint, call, buffer)
    return Region(found.spans) if found is not None and found.once and found.spans is not None else None


def _all_of(reach: Reach | None, launch: Launch) -> Exact | None:
    """The elements of a reach, if it comes to each once."""
    region = of_reach(reach, 0, 1, launch) if reach is not None else None
    if reach is None or region is None:
        return None
    count = 1
    for digit, _ in reach.form.terms:
        low, high = reach.ranges[digit]
        count *= high - low + 1
    return (region, reach) if region.nbytes == count else None
