"""The schedule: the kernels (stages) of a reverse pass for the numbers of a launch, and how they are run.

In: an adjoint and a bound call. Out of `stages`: one or several `Stage`s in order: kernels that materialise, gather, sum over blocks, and
do the rest. For each shadow the first of these accumulations that is certified is chosen: plain (no two threads add to one element), a
gather, sums over blocks, atomic additions. Results are memoised by `Call.key`. `run_stages` sizes the stacks, from trip counts or by a
kernel that counts, allocates them, and launches.

Guarantees that nothing runs that has no certificate, other than atomic additions by the user's threads. Raises UnsupportedError where a
deterministic pass is not certified, LaunchError where a stack overflowed, GpuadError where a certificate that must exist is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..accumulate.block_reduce import BlockSums
from ..accumulate.fixed_point import fixed_point
from ..accumulate.gather import Gather
from ..accumulate.gather_launch import Box, Declined, Elements, Gathering, gather_launch
from ..accumulate.materialise import Materialisation
from ..ad.stack_layout import GROUP
from ..affine.certificate import Zeros
from ..affine.relations import NOT_WITHIN, is_installed
from ..analysis.affine_forms import footprints
from ..analysis.trip_counts import depths
from ..errors import GpuadError, LaunchError, UnsupportedError
from ..ir.dtypes import dtype_of
from ..ir.nodes import Accumulate, Buffer, Kernel, Load, Store
from ..ir.rewrite import walk_stmts, written_in
from ..progress import doing
from ..runtime.base import Argument, Memory
from .adjoint_memory import State, argument_of, copied, live, shadow_of
from .calls import Call
from .certificates import NO_ISLPY, certified, conflicting, counted_injective
from .certificates import in_fixed_point as certified_in_fixed_point
from .derived_kernels import Adjoint
from .inspectors import may_be_injective, one_by_one
from .launch_checks import stored_alike
from .modes import analysing, checks_proofs, in_fixed_point, plain_allowed
from .pattern import Variant
from .proof_checks import check_proofs
from .reproducible_sums import run_fixed
from .stage import Stage

_MOST_KEPT = (1 << 31) - 1  # threads that keep numbers for others: their index is an int
T = TypeVar("T")
_TRIED = 2  # values of numbers that vary, of which each is looked at
_SHARE, _SMALL = 2, 1 << 16  # they keep so many times as many numbers as there are elements in the shadows, or that many

_NO_SHADOWS: frozenset[Buffer] = frozenset()
Boxes: TypeAlias = "frozenset[tuple[Buffer, Box]]"
_NO_BOXES: Boxes = frozenset()
Assigned: TypeAlias = "Mapping[Buffer, tuple[Zeros, ...] | None]"  # None: wherever the launch stores
_NO_ZEROS: Assigned = {}


def plain_shadows(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    """The shadows that this launch may accumulate plainly."""
    return _plain(adjoint, at_large(adjoint, call))


def _plain(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    if not plain_allowed():
        return frozenset()
    find = _said("proving in which shadows of `{}` no two threads meet", adjoint, _plain_shadows, call)
    found: frozenset[Buffer] = adjoint.facts.get(("plain", call.key), find)
    return found


def _plain_shadows(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    """Those of which isl proves that no two threads access one element, or an inspector finds it at run time."""
    if not is_installed():
        _note(adjoint, call, dict.fromkeys(adjoint.undecided, NO_ISLPY))
        return frozenset()
    meeting = conflicting(adjoint, call)
    _note(adjoint, call, {b: reason for b, reason in meeting.items() if reason.startswith(NOT_WITHIN)})
    injective = {b for b in adjoint.undecided if b not in meeting} | (one_by_one(adjoint, call) & frozenset(adjoint.undecided))
    open_ = [b for b in adjoint.undecided if b not in injective]
    gathered = {b for by_digits in (False, True) for b in adjoint.gatherable(open_, by_digits=by_digits)}
    candidates = (b for b in open_ if b not in gathered or may_be_injective(adjoint, call, b))
    injective |= {b for b in candidates if counted_injective(adjoint, call, b)}
    chosen = Variant(frozenset(injective))
    alone = certified(adjoint, call, chosen, [Stage(adjoint.variant(chosen), adjoint.parameters)])
    if isinstance(alone, tuple):
        return chosen.plain
    _note(adjoint, call, alone)
    return frozenset()


def gathering(adjoint: Adjoint, call: Call) -> Gathering | None:
    """The accumulations that this launch may gather, or None if there are none."""
    return _gathering(adjoint, at_large(adjoint, call))


def _gathering(adjoint: Adjoint, call: Call) -> Gathering | None:
    find = _said("proving the gather of `{}`", adjoint, _inspected, call)
    found: Gathering | None = adjoint.facts.get(("gather", call.key, plain_allowed(), call.executor.sums_over_blocks), find)
    return found


def at_large(adjoint: Adjoint, call: Call) -> Call:
    """The call as that of all values of the numbers that vary, where what is proved of it leaves nothing to atomics, or no more than what
    was proved of the first two of them; else the call itself. So what costs most is found out once for a number in a condition, a bound or
    a loop."""
    whole = call.at_large
    if whole is call or in_fixed_point() or checks_proofs():  # what is refused, or run, is so for these numbers
        return call
    key = "at large", whole.key, plain_allowed(), call.executor.sums_over_blocks
    if key not in adjoint.facts.known:
        atomic = _atomic(adjoint, whole)
        seen = _noted(adjoint, call) if atomic else {}
        if atomic and len(seen) < _TRIED:
            return call
        adjoint.facts.get(key, lambda: all(atomic.isdisjoint(shadows) for shadows in seen.values()))
    return whole if adjoint.facts.known[key] else call


def _noted(adjoint: Adjoint, call: Call) -> Mapping[Hashable, frozenset[Buffer]]:
    """Notes the shadows that a launch adds to other than atomically; gives those of the first launches that differ from it in whole numbers
    alone."""
    way = plain_allowed(), call.executor.sums_over_blocks
    seen: dict[Hashable, frozenset[Buffer]] = adjoint.facts.get(("outcomes", call.frame, *way), dict)
    if len(seen) < _TRIED and call.key not in seen:
        reached = footprints(adjoint.layout.body, adjoint.undecided, call.numbers(adjoint.primal))
        touched = {b for b in adjoint.undecided if reached[b] != (0, -1)}
        seen[call.key] = frozenset(touched - _atomic(adjoint, call))
    return seen


def _atomic(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    """The shadows that are neither accumulated plainly nor gathered."""
    found = _gathering(adjoint, call)
    return frozenset(adjoint.undecided) - _plain(adjoint, call) - (found.buffers if found is not None else _NO_SHADOWS)


def _said(words: str, adjoint: Adjoint, find: Callable[[Adjoint, Call], T], call: Call) -> Callable[[], T]:
    """Finds something out, which may take long."""

    def found() -> T:
        with doing(words.format(adjoint.primal.name)):
            return find(adjoint, call)

    return found


def _inspected(adjoint: Adjoint, call: Call) -> Gathering | None:
    if not plain_allowed():
        return None
    plain, found = _plain(adjoint, call), []
    open_ = {b for b in adjoint.undecided if b not in plain}
    for way in ({"by_digits": True}, {}, {"keeping": True}):
        made, costly = _inspected_for(adjoint, call, open_, **way)
        found += [made] if made is not None else []
        open_ -= costly if "by_digits" in way else _NO_SHADOWS  # senders that digits identify have no other identification
    return max(found, key=lambda made: len(made.buffers), default=None)


def _inspected_for(
    adjoint: Adjoint, call: Call, shadows: Collection[Buffer], keeping: bool = False, by_digits: bool = False
) -> tuple[Gathering | None, frozenset[Buffer]]:
    """What of the shadows may be gathered, and what would be at too great a cost; `keeping`: threads keep for those that gather what their
    loops come to; `by_digits`: a thread is known by the digits of its index."""
    numbers, costly = call.numbers(adjoint.primal), _NO_SHADOWS
    ranks = {b: 0 for b in adjoint.undecided if b in shadows}
    while ranks:
        gathered = adjoint.gather(ranks, keeping=keeping, by_digits=by_digits)
        if gathered is None or (keeping and not _may_keep(adjoint, call, gathered)):
            break
        verdict = gather_launch(gathered, numbers, _elements(adjoint, call, gathered.buffers))
        failed = _refused(adjoint, call, verdict) if isinstance(verdict, Gathering) else verdict.buffers
        if isinstance(verdict, Gathering) and not failed:
            return verdict, costly
        costly |= failed if isinstance(verdict, Declined) and verdict.is_costly else _NO_SHADOWS
        ranks = {b: rank + (b in failed) for b, rank in ranks.items() if b in gathered.buffers}
    return None, costly


def _refused(adjoint: Adjoint, call: Call, found: Gathering) -> frozenset[Buffer]:
    """The shadows that may not be gathered, since the launches that do so are not certified to come to what the plain adjoint does."""
    chosen = Variant(_plain(adjoint, call), in_blocks=call.executor.sums_over_blocks)
    reasons = certified(adjoint, call, chosen, _composed(adjoint, call, found, None, chosen), found.buffers)
    if isinstance(reasons, tuple):
        return _NO_SHADOWS
    failed = found.buffers & reasons.keys() or found.buffers
    _note(adjoint, call, {b: reasons.get(b) or next(iter(reasons.values())) for b in failed})
    return failed


def _note(adjoint: Adjoint, call: Call, reasons: Mapping[Buffer, str]) -> None:
    adjoint.facts.get(("uncertified", call.key), dict).update(reasons)


def uncertified(adjoint: Adjoint, call: Call) -> Mapping[Buffer, str]:
    """The shadows for which something that was derived for the launch has no certificate, with the last reason. What runs has one, or needs
    none."""
    call = at_large(adjoint, call)
    found: dict[Buffer, str] = adjoint.facts.get(("uncertified", call.key), dict)
    return found


def _may_keep(adjoint: Adjoint, call: Call, gathered: Gather) -> bool:
    """True if what threads keep is of the size of what they add to, and is made of what has not been written to yet."""
    partials = adjoint.partials(gathered)
    if partials is None:
        return False
    size = len(partials.buffers) * call.threads
    return (
        partials.geometry.holds(call.grid, call.block)
        and call.threads < _MOST_KEPT
        and size <= max(_SHARE * _elements(adjoint, call, gathered.buffers), _SMALL)
    )


def _elements(adjoint: Adjoint, call: Call, shadows: frozenset[Buffer]) -> int:
    """How many elements the memory of shadows has, each allocation counted once."""
    found = (shadow_of(call, p.position, 0) for p in adjoint.parameters if p.role == "shadow" and p.item in shadows)
    return sum({id(memory.root): int(memory.root.size) for memory in found if memory is not None}.values())


def switches() -> tuple[bool, ...]:
    """What the kernels of a reverse pass depend on beyond the launch."""
    return analysing(), plain_allowed(), in_fixed_point(), checks_proofs()


def stages(
    adjoint: Adjoint, call: Call, left: frozenset[Buffer] = _NO_SHADOWS, aliased: frozenset[Buffer] = _NO_SHADOWS
) -> tuple[Stage, ...]:
    """The kernels of the reverse pass, in order. Elements taken of the shadows in `left` need not be cleared; nothing is added to those in
    `aliased`."""
    for kept in dict.fromkeys((left, _NO_SHADOWS)):
        found = stages_on_zeros(adjoint, call, _NO_ZEROS, kept, aliased, _NO_BOXES)
        if found is not None:
            return found
    raise GpuadError(f"`{adjoint.name}` has no certificate; nothing was launched. Please report this kernel.")


def stages_on_zeros(
    adjoint: Adjoint, call: Call, assigned: Assigned, left: frozenset[Buffer], aliased: frozenset[Buffer], boxes: Boxes
) -> tuple[Stage, ...] | None:
    """The kernels of the reverse pass, in order, where the shadows in `assigned` are zero in the elements that are said, which are all that
    the launch touches of them, and of gathered ones in `boxes` the elements of the threads in the box, whatever their memory holds: a store
    stands there in the place of an addition. `left`, `aliased`: as of `stages`. None where that is not certified."""
    whole = at_large(adjoint, call)
    if whole is call:
        _noted(adjoint, call)
    found = _stages_on_zeros(adjoint, whole, assigned, left, aliased, boxes)
    alone = found is None and whole is not call and not boxes  # whose places are those of what is gathered at large
    return _stages_on_zeros(adjoint, call, assigned, left, aliased, boxes) if alone else found


def _stages_on_zeros(
    adjoint: Adjoint, call: Call, assigned: Assigned, left: frozenset[Buffer], aliased: frozenset[Buffer], boxes: Boxes
) -> tuple[Stage, ...] | None:
    fixed = in_fixed_point()
    way = call.executor.sums_over_blocks, call.executor.orders_blocks
    key = "stages", call.key, plain_allowed(), *way, fixed, frozenset(assigned.items()), left, aliased, boxes

    def make() -> tuple[Stage, ...] | None:
        with doing(f"proving the reverse of `{adjoint.primal.name}`"):
            made = _stages(adjoint, call, assigned, left, aliased, boxes)
        return _in_fixed_point(adjoint, call, made) if fixed and made is not None else made

    for known in {_NO_BOXES, boxes} if checks_proofs() and plain_allowed() else ():
        adjoint.facts.get(("proved", call.key, call.executor.sums_over_blocks, known), partial(_proved, adjoint, call, known))
    found: tuple[Stage, ...] | None = adjoint.facts.get(key, make)
    return found


def _in_fixed_point(adjoint: Adjoint, call: Call, made: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The kernels with sums that do not depend on the order of threads."""
    stored = stored_alike(adjoint, call)
    alike = {p.item for p in adjoint.parameters if p.role == "shadow" and adjoint.primal.params[p.position] in stored}
    among = [x for x in alike if isinstance(x, Buffer)]
    found = []
    for stage in made:
        fixed = fixed_point(stage.kernel, among, orders_blocks=call.executor.orders_blocks)
        proved = certified_in_fixed_point(adjoint, call, replace(stage, fixed=fixed))
        if isinstance(proved, str):
            raise UnsupportedError(f"`{adjoint.primal.name}`: sums in fixed point are not certified ({proved}); none is deterministic")
        found.append(proved)
    return tuple(found)


def _proved(adjoint: Adjoint, call: Call, boxes: Boxes) -> bool:
    """True if what is proved of a launch bears running it: whatever is in the elements of the boxes, it is as if they were zero."""
    certified_stages = _stages(adjoint, call, _NO_ZEROS, _NO_SHADOWS, _NO_SHADOWS, boxes)
    if certified_stages is None:  # nothing runs that would have to be
        return True
    plainly = (alone(adjoint, call, _NO_SHADOWS),)

    def run(these: Sequence[Stage], content: float, other: Call, state: State) -> None:
        _put(adjoint, call, boxes, state, content)
        run_stages(adjoint, these, other, state)

    return check_proofs(adjoint, call, partial(run, certified_stages, np.nan), partial(run, plainly, 0.0))


def _put(adjoint: Adjoint, call: Call, boxes: Boxes, state: State, content: float) -> None:
    """Sets the elements of the boxes."""
    gathered = _gathering(adjoint, call)
    for buffer, box in boxes if gathered is not None else ():
        assert gathered is not None
        (memory,) = (state.shadows[p.position] for p in adjoint.parameters if p.role == "shadow" and p.item == buffer)
        for form in gathered.elements[buffer].forms:
            places = np.array(memory.offset + form.constant)
            for digit, factor in form.terms:
                low, high = box["xyz".index(digit.axis)]
                places = places[..., None] + factor * np.arange(low, high + 1)
            memory.root[places.ravel()] = content


def _stages(
    adjoint: Adjoint, call: Call, assigned: Assigned, left: frozenset[Buffer], aliased: frozenset[Buffer], boxes: Boxes = _NO_BOXES
) -> tuple[Stage, ...] | None:
    plain, found = _plain(adjoint, call), _gathering(adjoint, call)
    gathered = found.buffers if found is not None else _NO_SHADOWS
    partials = adjoint.partials(found.gathered) if found is not None else None
    sums = _summed(adjoint, call, frozenset(adjoint.undecided).difference(plain, gathered, assigned, aliased), partials)
    chosen = Variant(plain, frozenset(assigned).difference(gathered), left, aliased, in_blocks=call.executor.sums_over_blocks)
    stored = frozenset(assigned).intersection(gathered)
    zero = {**assigned, **{buffer: _zeros(found.elements[buffer], box) for buffer, box in boxes if found is not None}}
    for summed in dict.fromkeys((sums, None)):
        made = _composed(adjoint, call, found, summed, chosen, stored, boxes)
        proved = certified(adjoint, call, chosen, made, gathered, zero)
        if isinstance(proved, tuple):
            return proved
    assert zero or left or aliased, "what is gathered and what is plain have certificates"
    return None


def _zeros(elements: Elements, box: Box) -> tuple[Zeros, ...]:
    """The elements of the threads of a box."""
    ends = dict(zip("xyz", box, strict=True))
    return tuple(Zeros(form.constant, tuple((factor, *ends[digit.axis]) for digit, factor in form.terms)) for form in elements.forms)


def _composed(
    adjoint: Adjoint,
    call: Call,
    found: Gathering | None,
    sums: BlockSums | None,
    chosen: Variant,
    assigned: frozenset[Buffer] = _NO_SHADOWS,
    boxes: Boxes = _NO_BOXES,
) -> tuple[Stage, ...]:
    """The kernels of a reverse pass that gathers and sums over blocks what is `found` to allow it."""
    if found is None and sums is None:
        return (Stage(adjoint.variant(chosen), adjoint.parameters),)
    gathered = found.buffers if found is not None else _NO_SHADOWS
    partials = adjoint.partials(found.gathered) if found is not None else None
    threads = {("threads", k): n for k, n in enumerate(call.extents)} if partials is not None else {}
    rest = adjoint.rest(gathered, chosen, sums.moved if sums is not None else frozenset(), partials)
    first = [Stage(*adjoint.keeping(partials), numbers=threads)] if partials is not None else []
    collect = [_collecting(adjoint, found, assigned, boxes)] if found is not None else []
    summing = [Stage(*adjoint.summing(sums, partials), numbers=threads)] if sums is not None else []
    after = [Stage(*rest, numbers=threads)] if rest is not None else []
    return (*first, *collect, *summing, *after)


def _summed(adjoint: Adjoint, call: Call, shadows: frozenset[Buffer], partials: Materialisation | None) -> BlockSums | None:
    """The additions in loops that this launch may sum over blocks; `partials`: what threads have kept."""
    if not shadows or not call.executor.sums_over_blocks or not plain_allowed():
        return None
    return adjoint.block_sums(shadows, partials)


def _collecting(adjoint: Adjoint, found: Gathering, assigned: frozenset[Buffer], boxes: Boxes) -> Stage:
    """The kernel that gathers."""
    numbers = {(role, k): n for role, ns in (("first", found.first), ("threads", found.threads)) for k, n in enumerate(ns)}
    ends, order = dict(boxes), list(found.gathered.boxes)
    for buffer, box in ends.items():
        for axis, (low, high) in enumerate(box):
            at = 3 * order.index(buffer) + axis
            numbers |= {("from", at): low, ("to", at): high + 1}
    boxed = frozenset((buffer, found.elements[buffer].needed) for buffer in ends)
    return Stage(*adjoint.gathering(found.gathered, found.sides, assigned & found.gathered.buffers, boxed), found.grid, numbers)


def run_primal(kernel: Kernel, adjoint: Adjoint | None, call: Call, state: State | None = None) -> None:
    """Runs the primal, or its augmented form if something has to be written down on the way."""
    args = [*call.bound.primals(), *call.offset_values()]
    if adjoint is not None and adjoint.augmented is not None and state is not None:
        call.run(adjoint.augmented, [*args, *state.logs])
        return
    call.run(kernel, args)


def alone(adjoint: Adjoint, call: Call, plain: frozenset[Buffer] | None = None) -> Stage:
    """The one kernel that is all of the reverse pass; `plain`: the shadows that are, else all that may be."""
    call = at_large(adjoint, call)
    chosen = Variant(_plain(adjoint, call) if plain is None else plain)
    proved = certified(adjoint, call, chosen, [Stage(adjoint.variant(chosen), adjoint.parameters)])
    assert isinstance(proved, tuple), "what is plain has a certificate"
    return proved[0]


def run_stages(adjoint: Adjoint, stages: Sequence[Stage], call: Call, state: State, width: int = 0) -> None:
    """Runs the kernels of a reverse pass."""
    for stage in stages:
        if stage.fixed is None:
            _run(adjoint, stage, call, state, width)
        else:
            run_fixed(stage.fixed, stage.parameters, call, state, width, partial(_run_one, adjoint, stage, call, width))


def _run_one(adjoint: Adjoint, stage: Stage, call: Call, width: int, kernel: Kernel, more: Sequence[Argument], state: State) -> None:
    _run(adjoint, replace(stage, kernel=kernel), call, state, width, more)


def _run(adjoint: Adjoint, stage: Stage, call: Call, state: State, width: int, more: Sequence[Argument] = ()) -> None:
    """Counts what the stacks need, allocates it, and runs the kernel of a stage; `more`: arguments beyond the stage's."""
    if not stage.may_run:
        raise GpuadError(f"`{stage.kernel.name}` has no certificate; nothing was launched. Please report this kernel.")
    if stage.grid is None:
        _scratch(adjoint, stage.kernel, call, state)
    call.run(stage.kernel, [*stage_arguments(stage, call, state, width), *more], stage.grid)
    if state.overflow is not None and int(state.overflow.root[0]):
        raise LaunchError(
            f"`{stage.kernel.name}`: a stack overflowed, which means that counting and reversing took different branches; the shadows of "
            "this launch are undefined. Please report this kernel."
        )


def take_scratch(adjoint: Adjoint, call: Call) -> None:
    """Counts, on memory as it is before the launch, what the stacks of the reverse need, and allocates it as the reverse will, so that
    a caller can measure it. Nothing is done where the launch has to write something first: what it records, or memory that is
    counted by as the launch leaves it."""
    if adjoint.logs or _counts_by_results(adjoint):
        return
    state = live(call)
    for p in adjoint.parameters:
        memory = call.bound.arguments[p.position].memory if p.role in ("entry", "working") else None
        if memory is not None:
            state.entries[p.position] = memory
    for stage in stages(adjoint, call):
        for kernel in stage.kernels if stage.grid is None else ():
            _scratch(adjoint, kernel, call, replace(state, scratch={}))


def _counts_by_results(adjoint: Adjoint) -> bool:
    """True if the kernel that counts reads what the launch writes."""
    written = written_in(adjoint.primal.body)
    return any(isinstance(s, Load) and s.buffer in written for s in walk_stmts(adjoint.layout.counting))


def counting(adjoint: Adjoint, call: Call) -> Kernel | None:
    """The kernel that counts how deep the stacks get, where that has to be known."""
    return None if call.executor.has_rows else adjoint.counting


def stage_arguments(stage: Stage, call: Call, state: State, width: int = 0) -> list[Argument]:
    """What a kernel of a reverse pass is launched with; arrays in which threads keep numbers for others are made if they are not there."""
    for array in stage.partials:
        if array not in state.scratch:
            state.scratch[array] = Memory(call.executor.zeros(call.threads, dtype_of(array.element)))
    given = [(p, stage.numbers.get((p.role, p.position))) for p in stage.parameters]
    return [argument_of(p, call, state, width) if number is None else np.int32(number) for p, number in given]


def own_arguments(adjoint: Adjoint, stage: Stage, call: Call, state: State, width: int) -> list[Argument] | None:
    """What a kernel of a reverse pass is launched with, where that is found without a look at the data; else None."""
    if stage.fixed is not None:
        return None
    if adjoint.layout.scratch and stage.grid is None:
        if not _in_rows(stage.kernel, call):
            return None
        state.scratch = _nothing(adjoint)
    return stage_arguments(stage, call, state, width)


def _in_rows(kernel: Kernel, call: Call) -> bool:
    """True if the executor has memory of its own for a kernel's stacks."""
    return call.executor.has_rows and kernel.in_rows is not None


def _nothing(adjoint: Adjoint) -> dict[Buffer, Memory | None]:
    """No memory for stacks."""
    return {buffer: None for scratch in adjoint.layout.scratch for buffer in (scratch.base, *scratch.fields)}


def _scratch(adjoint: Adjoint, kernel: Kernel, call: Call, state: State) -> None:
    if not adjoint.layout.scratch:
        return
    if _in_rows(kernel, call):
        state.scratch = _nothing(adjoint)
        return
    for scratch, base in zip(adjoint.layout.scratch, stack_bases(adjoint, call, state), strict=True):
        state.scratch[scratch.base] = Memory(base)
        for array in scratch.fields:
            state.scratch[array] = Memory(call.executor.zeros(max(int(base[-1]), 1), dtype_of(array.element)))
    state.overflow = Memory(call.executor.zeros(1, np.dtype(np.int32)))


def stack_bases(adjoint: Adjoint, call: Call, state: State) -> list[Any]:
    """For each stack in scratch memory where each group's part of it begins, in entries, and at last how many there are: from trip counts
    that the launch's numbers give, else by counting."""
    groups = -(-call.threads // GROUP)
    bounds = adjoint.facts.get(("depths", call.key), lambda: depths(adjoint.unlaid, call.numbers(adjoint.primal)))
    known = [bounds.get(scratch.stack) for scratch in adjoint.layout.scratch]
    counted = _depths(adjoint, call, state, groups) if any(k is None for k in known) else []
    bases = []
    for number, depth in enumerate(known):
        base = call.executor.zeros(groups + 1, np.dtype(np.int64))
        base[1:] = GROUP if depth is None else GROUP * depth
        if depth is None:
            base[1:] *= counted[number]
        bases.append(base.cumsum())
    return bases


def _depths(adjoint: Adjoint, call: Call, state: State, groups: int) -> list[Any]:
    """The deepest stack of each group of threads, for each scratch."""
    assert adjoint.counting is not None
    arrays = [Memory(call.executor.zeros(groups * GROUP, np.dtype(np.int32))) for _ in adjoint.layout.scratch]
    aside = State(state.primals, {}, state.logs)
    stored = {s.buffer for s in walk_stmts(adjoint.counting.body) if isinstance(s, Store | Accumulate)}
    for p in adjoint.counting_parameters:
        if p.role in ("entry", "working") and p.position in state.entries:
            memory = state.entries[p.position]
            aside.entries[p.position] = copied(call, memory) if p.item in stored else memory
    args = [arrays[p.position] if p.role == "depth" else argument_of(p, call, aside, 0) for p in adjoint.counting_parameters]
    call.run(adjoint.counting, args)
    return [a.root.reshape(groups, GROUP).max(axis=1) for a in arrays]
