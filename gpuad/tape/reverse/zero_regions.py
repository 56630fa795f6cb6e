"""How the adjoint of an operation is run on shadows of which elements are known to be zero (`shadow_state`).

In: an operation, what it does to its shadows (`shadow_touches`), and their state. Out: its `Step`, and the state before it. An adjoint that
adds to zero elements, to each once, assigns; one that takes elements does not clear them; one whose seeds are all zero has nothing to do.
Where some elements of a gathered shadow are zero and some are live, the threads of a box assign and the others add (see `interior_box`). An
adjoint that would copy a seed into the zero shadow of a temporary shares it instead. Where nothing of the kind is proved, zero elements are
cleared before they are used.

The plan is made before the first launch: it depends on what operations touch, not on data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from ... import pipeline
from ...affine.certificate import Zeros
from ...ir.nodes import Buffer
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...program.ir.region import EMPTY, Region, span
from ...runtime.base import Memory
from ..memory.versions import Rows, few_rows
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from .copy_on_write import Copy
from .in_place_seeds import Placed, Where, where_of
from .interior_box import Boxed, box_within
from .shadow_state import ShadowState, Step, elements
from .shadow_touches import Touch, touches_of


def step_of(operation: Launched, state: ShadowState) -> Step:
    """Plans the reverse of a launch, and moves on to the state before it."""
    if operation.adjoint is None:
        return Step(())
    if operation.shadowed is None:
        operation.shadowed = _shadowed(operation.adjoint, operation.call)
    shadowed: Shadowed = operation.shadowed
    lendable = any(_may_alias(shadowed, p, state) for p in shadowed.places)
    if lendable or not state.sharing.at_home(shadowed.roots.values()) or state.placements.has(shadowed.roots.values()):
        return _planned(operation, shadowed, state)
    key = (pipeline.in_fixed_point(), *[id(state.regions.get(where)) for where in shadowed.roots])  # equal regions are one object
    known = operation.plans.get(key)
    if known is None:
        before = [state.regions.get(where) for where in shadowed.roots]  # kept alive, so that their ids stay their own
        step = _planned(operation, shadowed, state)
        known = operation.plans[key] = (step, [(w, state.zeros(r)) for w, r in shadowed.roots.items()], before)
    for where, region in known[1]:
        state.roots[where] = shadowed.roots[where]
        state.regions[where] = region
    state.note(shadowed.roots.values())
    step = known[0]
    assert isinstance(step, Step)
    return step


@dataclass(frozen=True, eq=False)
class Shadowed:
    """What a launch's reverse does to its shadows: for each the pointer and the elements. `simple`: one shadow each, all apart."""

    places: tuple[tuple[Touch, Memory, Region], ...]
    roots: dict[Where, Any]
    simple: bool


def _shadowed(adjoint: Adjoint, call: Call) -> Shadowed:
    each = [(t, pipeline.shadow_of(call, t.position, width)) for t in touches_of(adjoint, call) for width in range(call.bound.width)]
    places = tuple((t, m, _reach(t, m)) for t, m in each if m is not None)
    return Shadowed(places, {where_of(m.root): m.root for _, m, _ in places}, call.bound.width == 1 and _disjoint(places))


def _planned(operation: Launched, shadowed: Shadowed, state: ShadowState) -> Step:
    places, adjoint = shadowed.places, operation.adjoint
    assert adjoint is not None
    if not shadowed.simple:
        step = state.at_home([(m.root, region) for _, m, region in places])
        return replace(step, stages=pipeline.stages(adjoint, operation.call))
    if any(t.seed for t, _, _ in places) and all(region <= state.zeros(m.root) for t, m, region in places if t.seed):
        return Step(())
    aliased = {p[0].buffer: p for p in places if _may_alias(shadowed, p, state)}
    left = frozenset(t.buffer for t, _, _ in places if t.once == "taken")
    assigned, boxes, stages = _on_zeros(operation, shadowed, state, left, frozenset(aliased))
    copies: list[Copy | Placed] = []
    cleared, moved = [], _read_in_place(shadowed, aliased, state)
    copies += state.placements.home(m.root for t, m, _ in places if t.position not in moved)
    for t, m, region in places:
        if t.buffer in aliased:
            continue
        wanted = state.make_live(m.root, region)
        if (wanted or (t.writes and t.buffer not in left)) and state.sharing.is_temporary(m.root):
            copies += state.sharing.alone(m.root)  # to clear elements is to write, too
        lives = state.sharing.place(m.root)
        if lives is not m.root:
            moved[t.position] = Memory(lives, m.offset)
        if wanted and t.buffer not in assigned:
            boxed = boxes[t.buffer].region.moved(m.offset) if t.buffer in boxes else EMPTY
            cleared += [(lives, rest)] if (rest := wanted - boxed) else []
    for t, m, region in aliased.values():
        state.sharing.lend(_source(shadowed, t)[1].root, m.root)
        state.make_live(m.root, region)
    for t, m, region in places:
        if t.buffer in left:
            state.make_zero(m.root, region)
            if t.position in moved and state.placements.of(m.root) is not None:
                state.placements.take(m.root, region)
    state.note(shadowed.roots.values())
    return Step(tuple(cleared), stages, tuple(copies), moved)


def _on_zeros(
    operation: Launched, shadowed: Shadowed, state: ShadowState, left: frozenset[Buffer], aliased: frozenset[Buffer]
) -> tuple[frozenset[Buffer], Mapping[Buffer, Boxed], tuple[pipeline.Stage, ...]]:
    """The shadows that a launch stores to since all that it adds to is zero, those of which a box is, and its kernels."""
    places, adjoint = shadowed.places, operation.adjoint
    assert adjoint is not None
    boxes = _boxes(operation, shadowed, state)
    whole = {t.buffer: (m, region) for t, m, region in places if t.once == "added" and region and region <= state.zeros(m.root)}
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


def _read_in_place(shadowed: Shadowed, aliased: Mapping[Buffer, Any], state: ShadowState) -> dict[int, Memory]:
    """The seeds that the launch can read where they are, by the position of the parameter: all that it does to such a shadow is to read, or
    to take, elements of the seed."""
    found: dict[int, Memory] = {}
    for t, m, region in shadowed.places if state.placements.seeds else ():
        seed = state.placements.of(m.root)
        met = sum(other.position == t.position or where_of(its.root) == where_of(m.root) for other, its, _ in shadowed.places)
        if seed is None or met > 1 or t.buffer in aliased or t.region is None or (t.writes and t.once != "taken"):
            continue
        memory = seed.at(m.offset)
        if memory is not None and region and region <= seed.region:
            found[t.position] = memory
    return found


def _boxes(operation: Launched, shadowed: Shadowed, state: ShadowState) -> dict[Buffer, Boxed]:
    """For gathered shadows the threads that assign, where that spares clearing at least half of what would be cleared, or all of it."""
    adjoint, call = operation.adjoint, operation.call
    assert adjoint is not None
    gathering = pipeline.gathering(adjoint, call)
    elements = gathering.elements if gathering is not None else {}
    found: dict[Buffer, Boxed] = {}
    for t, m, region in shadowed.places:
        known = state.zeros(m.root)
        wanted = known & region
        if not wanted or t.buffer not in elements:
            continue
        large = pipeline.at_large(adjoint, call)
        key, relative = ("box", large.key, pipeline.plain_allowed(), t.buffer), known.moved(-m.offset)
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


def _may_alias(shadowed: Shadowed, place: tuple[Touch, Memory, Region], state: ShadowState) -> bool:
    """Whether all that happens to the shadow of a temporary is that it becomes that of another."""
    touch, memory, region = place
    if touch.copies is None or not shadowed.simple or not state.sharing.is_temporary(memory.root):
        return False
    other, owner = _source(shadowed, touch)
    whole = span(0, int(memory.root.size))
    if owner.root.dtype != memory.root.dtype or owner.root.size != memory.root.size or not _aligned(touch, memory, other, owner):
        return False
    return state.sharing.is_temporary(owner.root) and region is whole and whole <= state.zeros(memory.root)


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


def step_of_rule(operation: Ruled, state: ShadowState) -> Step | None:
    """What a rule's reverse does to zero regions; None if there is nothing to do, since all that comes in is zero: in all processes that
    it meets."""
    outputs = [elements(s) for n in operation.effect.writes if (s := operation.shadow_of(n)) is not None]
    if outputs and not operation.rule.joint and all(region <= state.zeros(root) for root, region in outputs):
        return None
    used = [elements(s) for n in operation.effect.arrays if (s := operation.shadow_of(n)) is not None]
    return state.at_home(used)


__all__ = ["step_of", "step_of_rule", "zeros_of"]
