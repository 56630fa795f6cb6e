"""What a reversal knows of the shadows: which elements are zero for all that follows, whatever memory holds there (RULES 9).

When a program is reversed, the shadows of what it writes begin as zero, but for the seeds, and what an adjoint takes is zero after it.
Instead of clearing such elements they are noted as *stale*: their content does not count. An adjoint that adds to stale elements, to each
once, assigns; one that takes elements does not clear them; one whose seeds are all stale has nothing to do. Where nothing of the kind is
proved, stale elements are cleared before they are used, and those that are left at the end are cleared then. So what a user sees is what
the contract says, and knowledge never outlives the reversal.

The plan is made before the first launch: it depends on what operations touch, not on data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .. import launching
from ..analysis.injectivity import Launch, Unknown, Walk
from ..analysis.once import once, touches
from ..annotations import address, leaf_memory
from ..differentiate import Adjoint
from ..executors.base import Memory
from ..ir.nodes import Accumulate, Block, Buffer, Kernel, Stmt, Take
from ..launching import Call
from .effects import of_reach
from .launch import Launched
from .region import EMPTY, Region, of_array, span
from .rules import Ruled


@dataclass(frozen=True)
class Touch:
    """What a reverse kernel does to a shadow, in elements from where it points. `region`: what it may touch, None for everything.
    `once`: 'added' or 'taken', where that is all that happens there, to each element of the region, once. `seed`: it reads elements."""

    buffer: Buffer
    position: int
    region: Region | None
    once: str
    seed: bool


@dataclass(frozen=True)
class Step:
    """How an operation is reversed: elements to be cleared first, and the kernel (None: there is nothing to do, or it is no launch)."""

    cleared: tuple[tuple[Any, Region], ...]
    kernel: Kernel | None


class Stale:
    """The stale elements of each shadow, by the address of its allocation."""

    def __init__(self) -> None:
        self.regions: dict[int, Region] = {}
        self.roots: dict[int, Any] = {}

    def of(self, root: Any) -> Region:
        return self.regions.get(address(root), EMPTY)

    def add(self, root: Any, region: Region) -> None:
        where = address(root)
        self.roots[where] = root
        self.regions[where] = self.regions.get(where, EMPTY) | region

    def drop(self, root: Any, region: Region) -> Region:
        """These elements count again; gives those of them that were stale."""
        stale = self.of(root)
        found = stale & region
        if found:
            self.regions[address(root)] = stale - found
        return found

    def rest(self) -> list[tuple[Any, Region]]:
        """All that is stale."""
        return [(self.roots[where], region) for where, region in self.regions.items() if region]


def clear(parts: Iterable[tuple[Any, Region]]) -> None:
    """Sets elements to 0."""
    for root, region in parts:
        for low, high in region.spans.tolist():
            root[low:high] = 0


def step_of(operation: Launched, stale: Stale) -> Step:
    """Plans the reverse of a launch, and moves on to what is stale before it."""
    if operation.adjoint is None or operation.reverse_kernel is None:
        return Step((), None)
    if operation.shadowed is None:
        operation.shadowed = _shadowed(operation.adjoint, operation.call)
    shadowed: Shadowed = operation.shadowed
    key = tuple([id(stale.regions.get(where)) for where in shadowed.roots])  # equal regions are one object
    known = operation.plans.get(key)
    if known is None:
        before = [stale.regions.get(where) for where in shadowed.roots]  # kept alive, so that their ids stay their own
        step = _planned(operation, shadowed, stale)
        known = operation.plans[key] = (step, [(w, stale.of(r)) for w, r in shadowed.roots.items()], before)
    for where, region in known[1]:
        stale.roots[where] = shadowed.roots[where]
        stale.regions[where] = region
    step = known[0]
    assert isinstance(step, Step)
    return step


def step_of_rule(operation: Ruled, stale: Stale) -> Step | None:
    """The same for a rule; None if there is nothing to do, since all that comes in is zero."""
    outputs = [elements(s) for n in operation.rule.effect.writes if (s := operation.shadow_of(n)) is not None]
    if outputs and all(region <= stale.of(root) for root, region in outputs):
        return None
    used = [elements(s) for n in operation.rule.effect.arrays if (s := operation.shadow_of(n)) is not None]
    return Step(tuple((root, part) for root, region in used if (part := stale.drop(root, region))), None)


def elements(view: Any) -> tuple[Any, Region]:
    """The allocation of an array, flat, and which of its elements the array has."""
    memory = leaf_memory(view)
    size = int(memory.root.dtype.itemsize)
    return memory.root, Region(of_array(view, memory.offset * size).spans // size)


@dataclass(frozen=True, eq=False)
class Shadowed:
    """What a launch's reverse does to its shadows: for each the allocation and the elements. `simple`: one shadow each, all apart."""

    plain: frozenset[Buffer]
    places: tuple[tuple[Touch, Any, Region], ...]
    roots: dict[int, Any]
    simple: bool


def _shadowed(adjoint: Adjoint, call: Call) -> Shadowed:
    plain = launching.plain_shadows(adjoint, call)
    found: tuple[Touch, ...] = adjoint.facts.get(("touches", call.key), lambda: touches_of(adjoint, call, plain))
    places = [(t, m.root, _reach(t, m)) for t in found for m in call.bound.arguments[t.position].shadows]
    single = all(len(call.bound.arguments[t.position].shadows) == 1 for t in found)
    return Shadowed(plain, tuple(places), {address(root): root for _, root, _ in places}, single and _apart(places))


def _planned(operation: Launched, shadowed: Shadowed, stale: Stale) -> Step:
    places = shadowed.places
    if not shadowed.simple:
        parts = tuple((root, part) for _, root, region in places if (part := stale.drop(root, region)))
        return Step(parts, operation.reverse_kernel)
    if any(t.seed for t, _, _ in places) and all(region <= stale.of(root) for t, root, region in places if t.seed):
        return Step((), None)
    assigned = frozenset(t.buffer for t, root, region in places if t.once == "added" and region and region <= stale.of(root))
    left = frozenset(t.buffer for t, _, _ in places if t.once == "taken")
    cleared = []
    for t, root, region in places:
        wanted = stale.drop(root, region)
        if wanted and t.buffer not in assigned:
            cleared.append((root, wanted))
    for t, root, region in places:
        if t.buffer in left:
            stale.add(root, region)
    assert operation.adjoint is not None
    return Step(tuple(cleared), operation.adjoint.variant((shadowed.plain, assigned, left)))


def _reach(touch: Touch, memory: Memory) -> Region:
    everything = span(0, int(memory.root.size))
    return everything if touch.region is None else touch.region.moved(memory.offset) & everything


def _apart(places: Iterable[tuple[Touch, Any, Region]]) -> bool:
    """Whether the shadows of a launch lie in different allocations, or different parts are touched."""
    seen: dict[int, Region] = {}
    for _, root, region in places:
        known = seen.get(address(root), EMPTY)
        if known & region:
            return False
        seen[address(root)] = known | region
    return True


# --- what a reverse kernel does to its shadows ---------------------------------------------------------------------------------------


def touches_of(adjoint: Adjoint, call: Call, plain: frozenset[Buffer]) -> tuple[Touch, ...]:
    """For each shadow of a launch."""
    launch = call.numbers(adjoint.primal)
    body = adjoint.layout.body
    shadows = [(p.item, p.position) for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)]
    return tuple(_touch(item, position, body, launch, item in plain) for item, position in shadows)


def _touch(buffer: Buffer, position: int, body: Block, launch: Launch, plain: bool) -> Touch:
    stmts = touches(body, buffer)
    seed = any(not isinstance(s, Accumulate) for s in stmts)
    exact = _exact(body, buffer, launch) if plain else None
    if exact is not None:
        return Touch(buffer, position, exact, _kind(stmts[0]), seed)
    return Touch(buffer, position, _reached(body, buffer, launch), "", seed)


def _kind(stmt: Stmt) -> str:
    return "added" if isinstance(stmt, Accumulate) else "taken" if isinstance(stmt, Take) else ""


def _exact(body: Block, buffer: Buffer, launch: Launch) -> Region | None:
    """The elements that are touched for certain, each once, where that is all that is touched."""
    reach = once(body, buffer, launch)
    region = of_reach(reach, 0, 1, launch) if reach is not None else None
    if reach is None or region is None:
        return None
    count = 1
    for digit, _ in reach.form.terms:
        low, high = reach.ranges[digit]
        count *= high - low + 1
    return region if region.nbytes == count else None


def _reached(body: Block, buffer: Buffer, launch: Launch) -> Region | None:
    try:
        reaches = Walk(launch, frozenset({buffer})).run(body)
    except Unknown:
        return None
    found = EMPTY
    for reach in reaches:
        part = of_reach(reach, 0, 1, launch)
        if part is None:
            return None
        found = found | part
    return found


__all__ = ["Stale", "Step", "clear", "elements", "step_of", "step_of_rule"]
