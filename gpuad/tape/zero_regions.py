"""What a reversal knows of the shadows: which elements are zero for all that follows, whatever memory holds there (RULES 9).

When a program is reversed, the shadows of what it writes begin as zero, but for the seeds, and what an adjoint takes is zero after it.
Instead of clearing such elements they are noted as *stale*: their content does not count. An adjoint that adds to stale elements, to each
once, assigns; one that takes elements does not clear them; one whose seeds are all stale has nothing to do. Where nothing of the kind is
proved, stale elements are cleared before they are used, and those that are left at the end are cleared then. Where some elements of a
gathered shadow are stale and some count, the threads of a box assign and the others add (see `interior_box`). So what a user sees is what
the contract says, and knowledge never outlives the reversal. An adjoint that would copy a seed into the stale shadow of a temporary shares
it instead (see `copy_on_write`).

The plan is made before the first launch: it depends on what operations touch, not on data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from .. import pipeline
from ..affine.certificate import Zeros
from ..analysis.exact_coverage import begun, covers_exactly_once, surely
from ..analysis.injectivity import TOUCHES, Launch, Reach
from ..arguments.annotations import leaf_memory
from ..ir.nodes import Accumulate, Block, Buffer, Load, Stmt, Take
from ..ir.rewrite import touches
from ..pipeline import Call, Stage
from ..pipeline.adjoint import Adjoint
from ..runtime.actions import Action
from ..runtime.base import Memory
from .copy_on_write import Copy, CopyOnWriteShadows
from .effects import of_reach, reached
from .in_place_seeds import Placed, Placements, Where, where_of
from .interior_box import Boxed, box_within
from .recorded_launch import Launched
from .region import EMPTY, Region, of_array, span
from .ruled import Ruled
from .versions import Rows, clearing_of, few_rows


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


@dataclass(frozen=True, slots=True)
class Step:
    """How an operation is reversed: shadows to be copied and elements to be cleared first, the kernels (none: there is nothing to do, or
    it is no launch), and shadows that live elsewhere, by the parameter's position."""

    cleared: tuple[tuple[Any, Region], ...]
    stages: tuple[Stage, ...] = ()
    copies: tuple[Copy | Placed, ...] = ()
    moved: Mapping[int, Memory] = field(default_factory=dict)

    def begin(self) -> list[Action]:
        """What comes before the adjoint itself."""
        return [*(copy.action() for copy in self.copies), *(a for root, region in self.cleared for a in clearing_of(root, region))]


class Stale:
    """The stale elements of each shadow; where shadows live, and seeds that lie elsewhere."""

    def __init__(self, sharing: CopyOnWriteShadows, placements: Placements | None = None) -> None:
        self.regions: dict[Where, Region] = {}
        self.roots: dict[Where, Any] = {}
        self.sharing = sharing
        self.placements = placements or Placements()

    def of(self, root: Any) -> Region:
        return self.regions.get(where_of(root), EMPTY)

    def add(self, root: Any, region: Region) -> None:
        where = where_of(root)
        self.roots[where] = root
        self.regions[where] = self.regions.get(where, EMPTY) | region

    def drop(self, root: Any, region: Region) -> Region:
        """These elements count again; gives those of them that were stale."""
        stale = self.of(root)
        found = stale & region
        if found:
            self.regions[where_of(root)] = stale - found
        return found

    def alive(self, root: Any) -> bool:
        """Whether any of its elements count."""
        return not span(0, int(root.size)) <= self.of(root)

    def rest(self) -> list[tuple[Any, Region]]:
        """All that is stale."""
        return [(self.roots[where], region) for where, region in self.regions.items() if region]


def step_of(operation: Launched, stale: Stale) -> Step:
    """Plans the reverse of a launch, and moves on to what is stale before it."""
    if operation.adjoint is None:
        return Step(())
    if operation.shadowed is None:
        operation.shadowed = _shadowed(operation.adjoint, operation.call)
    shadowed: Shadowed = operation.shadowed
    lendable = any(_may_alias(shadowed, p, stale) for p in shadowed.places)
    if lendable or not stale.sharing.at_home(shadowed.roots.values()) or stale.placements.has(shadowed.roots.values()):
        return _planned(operation, shadowed, stale)
    key = (pipeline.in_fixed_point(), *[id(stale.regions.get(where)) for where in shadowed.roots])  # equal regions are one object
    known = operation.plans.get(key)
    if known is None:
        before = [stale.regions.get(where) for where in shadowed.roots]  # kept alive, so that their ids stay their own
        step = _planned(operation, shadowed, stale)
        known = operation.plans[key] = (step, [(w, stale.of(r)) for w, r in shadowed.roots.items()], before)
    for where, region in known[1]:
        stale.roots[where] = shadowed.roots[where]
        stale.regions[where] = region
    stale.sharing.note_liveness(shadowed.roots.values(), stale.alive)
    step = known[0]
    assert isinstance(step, Step)
    return step


def step_of_rule(operation: Ruled, stale: Stale) -> Step | None:
    """What a rule's reverse does to zero regions; None if there is nothing to do, since all that comes in is zero."""
    outputs = [elements(s) for n in operation.effect.writes if (s := operation.shadow_of(n)) is not None]
    if outputs and all(region <= stale.of(root) for root, region in outputs):
        return None
    used = [elements(s) for n in operation.effect.arrays if (s := operation.shadow_of(n)) is not None]
    return step_at_home(used, stale)


def step_at_home(used: Sequence[tuple[Any, Region]], stale: Stale) -> Step:
    """What comes before code that reaches shadows by their own addresses."""
    copies: list[Copy | Placed] = [*stale.placements.home(root for root, _ in used)]
    copies += (c for root, _ in used for c in stale.sharing.home(root))
    cleared = tuple((root, part) for root, region in used if (part := stale.drop(root, region)))
    stale.sharing.note_liveness((root for root, _ in used), stale.alive)
    return Step(cleared, copies=tuple(copies))


def step_of_renewed(cleared: Sequence[tuple[Any, Region]], stale: Stale) -> Step:
    """What comes before memory that is used again: from here on these shadows are those of what was there before, and zero."""
    step = step_at_home(cleared, stale)
    for root, region in cleared:
        stale.add(root, region)
    return replace(step, cleared=())


def last_step(stale: Stale) -> Step:
    """What is left to do when all adjoints have run: every shadow goes home, and what is stale is cleared."""
    copies: list[Copy | Placed] = [*stale.placements.all()]
    copies += (c for root in stale.sharing.temporaries.values() for c in stale.sharing.home(root))
    return Step(tuple(stale.rest()), copies=tuple(copies))


def elements(view: Any) -> tuple[Any, Region]:
    """The allocation of an array, flat, and which of its elements the array has."""
    memory = leaf_memory(view)
    size = int(memory.root.dtype.itemsize)
    return memory.root, Region(of_array(view, memory.offset * size).spans // size)


@dataclass(frozen=True, eq=False)
class Shadowed:
    """What a launch's reverse does to its shadows: for each the pointer and the elements. `simple`: one shadow each, all apart."""

    places: tuple[tuple[Touch, Memory, Region], ...]
    roots: dict[Where, Any]
    simple: bool


def _shadowed(adjoint: Adjoint, call: Call) -> Shadowed:
    key = "touches", call.key, pipeline.plain_shadows(adjoint, call)
    found: tuple[Touch, ...] = adjoint.facts.get(key, lambda: touches_of(adjoint, call))
    each = [(t, pipeline.shadow_of(call, t.position, width)) for t in found for width in range(call.bound.width)]
    places = tuple((t, m, _reach(t, m)) for t, m in each if m is not None)
    return Shadowed(places, {where_of(m.root): m.root for _, m, _ in places}, call.bound.width == 1 and _disjoint(places))


def _planned(operation: Launched, shadowed: Shadowed, stale: Stale) -> Step:
    places, adjoint = shadowed.places, operation.adjoint
    assert adjoint is not None
    if not shadowed.simple:
        step = step_at_home([(m.root, region) for _, m, region in places], stale)
        return replace(step, stages=pipeline.stages(adjoint, operation.call))
    if any(t.seed for t, _, _ in places) and all(region <= stale.of(m.root) for t, m, region in places if t.seed):
        return Step(())
    aliased = {p[0].buffer: p for p in places if _may_alias(shadowed, p, stale)}
    left = frozenset(t.buffer for t, _, _ in places if t.once == "taken")
    assigned, boxes, stages = _on_zeros(operation, shadowed, stale, left, frozenset(aliased))
    copies: list[Copy | Placed] = []
    cleared, moved = [], _read_in_place(shadowed, aliased, stale)
    copies += stale.placements.home(m.root for t, m, _ in places if t.position not in moved)
    for t, m, region in places:
        if t.buffer in aliased:
            continue
        wanted = stale.drop(m.root, region)
        if (wanted or (t.writes and t.buffer not in left)) and stale.sharing.is_temporary(m.root):
            copies += stale.sharing.alone(m.root)  # to clear elements is to write, too
        lives = stale.sharing.place(m.root)
        if lives is not m.root:
            moved[t.position] = Memory(lives, m.offset)
        if wanted and t.buffer not in assigned:
            boxed = boxes[t.buffer].region.moved(m.offset) if t.buffer in boxes else EMPTY
            cleared += [(lives, rest)] if (rest := wanted - boxed) else []
    for t, m, region in aliased.values():
        stale.sharing.lend(_source(shadowed, t)[1].root, m.root)
        stale.drop(m.root, region)
    for t, m, region in places:
        if t.buffer in left:
            stale.add(m.root, region)
            if t.position in moved and stale.placements.of(m.root) is not None:
                stale.placements.take(m.root, region)
    stale.sharing.note_liveness(shadowed.roots.values(), stale.alive)
    return Step(tuple(cleared), stages, tuple(copies), moved)


def _on_zeros(
    operation: Launched, shadowed: Shadowed, stale: Stale, left: frozenset[Buffer], aliased: frozenset[Buffer]
) -> tuple[frozenset[Buffer], Mapping[Buffer, Boxed], tuple[pipeline.Stage, ...]]:
    """The shadows that a launch stores to since all that it adds to is zero, those of which a box is, and its kernels."""
    places, adjoint = shadowed.places, operation.adjoint
    assert adjoint is not None
    boxes = _boxes(operation, shadowed, stale)
    whole = {t.buffer: (m, region) for t, m, region in places if t.once == "added" and region and region <= stale.of(m.root)}
    found = {buffer: zeros_of(region.moved(-m.offset)) for buffer, (m, region) in whole.items() if buffer not in boxes}
    said = {buffer: zeros for buffer, zeros in found.items() if zeros is not None}
    assigned = frozenset(said)
    if all(t.buffer in aliased or t.buffer in left or not t.writes for t, _, _ in places):
        return assigned, boxes, ()
    known = frozenset((buffer, boxed.box) for buffer, boxed in boxes.items())
    stages = pipeline.stages_on_zeros(adjoint, operation.call, said, left, aliased, known)
    if stages is not None:
        return assigned, boxes, stages
    return frozenset(), {}, pipeline.stages(adjoint, operation.call, left, aliased)


def zeros_of(region: Region) -> tuple[Zeros, ...] | None:
    """Elements as sums of multiples, None if these are too many to say it so."""
    rows = few_rows(region)
    if rows is None:
        return None
    lows, shapes = [r.low for r in rows], {(r.run, r.stride, r.count) for r in rows}
    steps = {high - low for low, high in pairwise(lows)}
    if len(shapes) == len(steps) == 1:  # planes of a box
        return (_zeros(rows[0], (steps.pop(), 0, len(rows) - 1)),)
    return tuple(map(_zeros, rows))


def _zeros(rows: Rows, *planes: tuple[int, int, int]) -> Zeros:
    return Zeros(rows.low, ((1, 0, rows.run - 1), (rows.stride, 0, rows.count - 1), *planes))


def _read_in_place(shadowed: Shadowed, aliased: Mapping[Buffer, Any], stale: Stale) -> dict[int, Memory]:
    """The seeds that the launch can read where they are, by the position of the parameter: all that it does to such a shadow is to read, or
    to take, elements of the seed."""
    found: dict[int, Memory] = {}
    for t, m, region in shadowed.places if stale.placements.seeds else ():
        seed = stale.placements.of(m.root)
        met = sum(other.position == t.position or where_of(its.root) == where_of(m.root) for other, its, _ in shadowed.places)
        if seed is None or met > 1 or t.buffer in aliased or t.region is None or (t.writes and t.once != "taken"):
            continue
        memory = seed.at(m.offset)
        if memory is not None and region and region <= seed.region:
            found[t.position] = memory
    return found


def _boxes(operation: Launched, shadowed: Shadowed, stale: Stale) -> dict[Buffer, Boxed]:
    """For gathered shadows the threads that assign, where that spares clearing at least half of what would be cleared, or all of it."""
    adjoint, call = operation.adjoint, operation.call
    assert adjoint is not None
    gathering = pipeline.gathering(adjoint, call)
    elements = gathering.elements if gathering is not None else {}
    found: dict[Buffer, Boxed] = {}
    for t, m, region in shadowed.places:
        known = stale.of(m.root)
        wanted = known & region
        if not wanted or t.buffer not in elements:
            continue
        key, relative = ("box", call.key, pipeline.plain_allowed(), t.buffer), known.moved(-m.offset)
        boxed = adjoint.facts.get((*key, relative), partial(box_within, elements[t.buffer], relative, call.numbers(adjoint.primal)))
        if boxed is None or _is_touched_elsewhere(boxed.region.moved(m.offset), t, m, shadowed):
            continue
        spared = wanted & boxed.region.moved(m.offset)
        if spared is wanted or (2 * spared.nbytes >= wanted.nbytes and not (t.once == "added" and wanted is region)):
            found[t.buffer] = boxed
    return found


def _is_touched_elsewhere(region: Region, touch: Touch, memory: Memory, shadowed: Shadowed) -> bool:
    """Whether some other shadow of the launch is touched in a region of this one's allocation."""
    others = ((m, r) for t, m, r in shadowed.places if t is not touch and where_of(m.root) == where_of(memory.root))
    return any(bool(r & region) for _, r in others)


def _may_alias(shadowed: Shadowed, place: tuple[Touch, Memory, Region], stale: Stale) -> bool:
    """Whether all that happens to the shadow of a temporary is that it becomes that of another."""
    touch, memory, region = place
    if touch.copies is None or not shadowed.simple or not stale.sharing.is_temporary(memory.root):
        return False
    other, owner = _source(shadowed, touch)
    whole = span(0, int(memory.root.size))
    if owner.root.dtype != memory.root.dtype or owner.root.size != memory.root.size or not _aligned(touch, memory, other, owner):
        return False
    return stale.sharing.is_temporary(owner.root) and region is whole and whole <= stale.of(memory.root)


def _aligned(one: Touch, here: Memory, other: Touch, there: Memory) -> bool:
    """Whether each thread touches the element of the same number in both."""
    a, b = one.reach, other.reach
    if a is None or b is None or here.offset + a.form.constant != there.offset + b.form.constant:
        return False
    return dict(a.form.terms) == dict(b.form.terms) and all(a.ranges[d] == b.ranges[d] for d, _ in a.form.terms)


def _source(shadowed: Shadowed, touch: Touch) -> tuple[Touch, Memory]:
    """The shadow that another one would be a copy of."""
    return next((t, m) for t, m, _ in shadowed.places if t.buffer == touch.copies)


def _reach(touch: Touch, memory: Memory) -> Region:
    everything = span(0, int(memory.root.size))
    return everything if touch.region is None else touch.region.moved(memory.offset) & everything


def _disjoint(places: Iterable[tuple[Touch, Memory, Region]]) -> bool:
    """Whether the shadows of a launch lie in different allocations, or different parts are touched."""
    seen: dict[Where, Region] = {}
    for _, memory, region in places:
        where = where_of(memory.root)
        known = seen.get(where, EMPTY)
        if known & region:
            return False
        seen[where] = known | region
    return True


# --- what a reverse kernel does to its shadows ---------------------------------------------------------------------------------------


def touches_of(adjoint: Adjoint, call: Call) -> tuple[Touch, ...]:
    """For each shadow of a launch."""
    launch, plain = call.numbers(adjoint.primal), pipeline.plain_shadows(adjoint, call)
    gathering = pipeline.gathering(adjoint, call)
    gathered = gathering.buffers if gathering is not None else frozenset()
    body = adjoint.layout.body
    shadows = {p.item: p.position for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)}
    exact = {b: found for b in shadows if b in plain and (found := _exact(body, b, launch)) is not None}
    collected = {b: region for b in shadows if b in gathered and (region := _collected(body, b, launch)) is not None}
    other = [b for b in shadows if b in plain and b not in exact]
    collected |= {b: region for b in other if (region := _begun(body, b, launch) or _counted(adjoint, call, b)) is not None}
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


def _counted(adjoint: Adjoint, call: Call, buffer: Buffer) -> Region | None:
    """The elements that are touched once, where an inspector is asked for them: all taken, or all added to by one statement."""
    stmts = list(touches(adjoint.layout.body, buffer))
    alike = all(isinstance(s, Take) for s in stmts) or (len(stmts) == 1 and isinstance(stmts[0], Accumulate))
    found = pipeline.is_injective(adjoint, call, buffer) if alike else None
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


__all__ = ["Stale", "Step", "elements", "last_step", "step_at_home", "step_of", "step_of_rule"]
