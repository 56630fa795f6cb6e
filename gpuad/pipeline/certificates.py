"""Certificates of launches: the kernels of a reverse pass as the certifiers in `affine` take them, with the numbers of a launch.

A launch that gpuad makes in the stead of the user's runs only with a `Certificate`, and no other module makes one. What has none falls back
to atomic additions by the user's threads, which need no proof; so does everything where there is no `islpy`. A proof takes milliseconds for
each kernel and the numbers of its launch, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..accumulate.fixed_point import DIGIT_BITS, DIGITS
from ..affine.accumulation_certificate import Premises, accumulated_otherwise
from ..affine.certificate import Run, Zero, meeting, refused
from ..affine.effects import Shape
from ..affine.fixed_point_certificate import summed_otherwise
from ..affine.relations import Allowance, is_installed
from ..ir.nodes import Block, Buffer, Kernel, Stmt, Store, Var
from ..ir.rewrite import walk_stmts
from ..memo import Same
from ..runtime.base import Dim3
from .calls import Call
from .derived_kernels import Adjoint, Inspected
from .inspectors import is_injective, one_by_one
from .pattern import Parameter, Variant
from .stage import Certificate, Stage

Numbers = Mapping[tuple[str, int], int]
Reasons = dict[Buffer, str]
_NONE: frozenset[Buffer] = frozenset()
NO_ISLPY = "there is no islpy: pip install islpy"
_DEEP = "the kernel is nested too deeply"


def run_of(
    adjoint: Inspected,
    call: Call,
    body: Block,
    parameters: Iterable[Parameter] = (),
    grid: Dim3 | None = None,
    numbers: Numbers | None = None,
) -> Run:
    """A kernel's body as it is launched; `numbers`: of parameters that are the kernel's own, by role and position."""
    known = dict(call.numbers(adjoint.primal).scalars)
    kept = set()
    for p in parameters:
        if isinstance(p.item, Var) and numbers is not None and (p.role, p.position) in numbers:
            known[p.item] = numbers[p.role, p.position]
        elif p.role == "partial":
            kept.add(p.item)
    stored = {s.buffer for s in walk_stmts(body) if isinstance(s, Store)}
    return Run(body, Shape(grid or call.grid, call.block, known), frozenset(b for b in kept if isinstance(b, Buffer)) & stored)


def shadows_of(adjoint: Adjoint) -> list[Buffer]:
    """The shadows in memory that all threads reach."""
    return [p.item for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)]


# --- what is accumulated plainly ----------------------------------------------------------------------------------------------------------


def conflicting(adjoint: Adjoint, call: Call) -> Reasons:
    """The shadows about which a launch decides, in one element of which two threads of the adjoint may meet, as far as isl knows, and why
    that is thought."""
    undecided = adjoint.undecided
    if not undecided or not is_installed():
        return dict.fromkeys(undecided, NO_ISLPY)
    try:
        run = run_of(adjoint, call, adjoint.layout.body)
        with _allowance(adjoint, call).spent():
            found = meeting(run, undecided)
        with Allowance().spent():
            still = meeting(run_of(adjoint, call, adjoint.unlaid), found, by_data=True) if found else {}
        return {buffer: reason for buffer, reason in found.items() if buffer in still}
    except RecursionError:
        return dict.fromkeys(undecided, _DEEP)


def _allowance(adjoint: Inspected, call: Call) -> Allowance:
    """What all proofs about a launch may take together."""
    found: Allowance = adjoint.facts.get(("allowance", call.key), Allowance)
    return found


def may_collide(adjoint: Inspected, call: Call, buffer: Buffer, counts: Callable[[Stmt], bool], body: Block | None = None) -> bool:
    """True if two threads of the primal, or of a `body` in its place, may come to one element of a buffer by statements that count, as far
    as isl knows."""
    if not is_installed():
        return True
    try:
        with _allowance(adjoint, call).spent():
            return bool(meeting(run_of(adjoint, call, adjoint.primal.body if body is None else body), [buffer], counts))
    except RecursionError:
        return True


def certified(
    adjoint: Adjoint, call: Call, chosen: Variant, stages: Sequence[Stage], gathered: frozenset[Buffer] = _NONE, zero: Zero | None = None
) -> tuple[Stage, ...] | Reasons:
    """The stages of a reverse pass with their certificate, or the shadows for which there is none, with the reasons. `chosen`: what is
    known of the shadows that are not `gathered`; `zero`: those that are 0 where a kernel stores to them, in which elements."""
    alone = Variant(chosen.plain - gathered, chosen.assigned, chosen.left, chosen.aliased, chosen.in_blocks)
    kernel = adjoint.variant(alone)
    key = "certificate", call.key, alone, tuple((Same(s.kernel), s.grid, frozenset(s.numbers.items())) for s in stages), _key(zero)
    is_plain = [s.kernel for s in stages] == [kernel] and alone == Variant(in_blocks=alone.in_blocks)  # it is the plain adjoint
    reasons: Reasons = {} if is_plain else adjoint.facts.get(key, lambda: _reasons(adjoint, call, alone, kernel, stages, zero or {}))
    if reasons:
        return reasons
    certificate = Certificate(tuple(s.kernel for s in stages))
    return tuple(replace(s, certificate=certificate) for s in stages)


def _key(zero: Zero | None) -> frozenset[object]:
    return frozenset((b, None if parts is None else tuple(parts)) for b, parts in (zero or {}).items())


def _reasons(adjoint: Adjoint, call: Call, alone: Variant, kernel: Kernel, stages: Sequence[Stage], zero: Zero) -> Reasons:
    """Two steps: the kernel that would be all of the pass accumulates as the plain adjoint does, and the stages do what it does."""
    shadows = shadows_of(adjoint)
    if not is_installed():
        return dict.fromkeys(shadows, NO_ISLPY)
    try:
        own = {b: z for b, z in zero.items() if b in alone.assigned}
        found = _accumulated_otherwise(adjoint, call, alone, kernel, own)
        if found or [s.kernel for s in stages] == [kernel]:
            return found
        made = [run_of(adjoint, call, s.kernel.body, s.parameters, s.grid, s.numbers) for s in stages]
        special = zero or alone.left or alone.aliased  # asked after the plain case was proved, of which it takes nothing
        with (Allowance() if special else _allowance(adjoint, call)).spent():
            return refused(run_of(adjoint, call, kernel.body), made, shadows, zero)
    except RecursionError:
        return dict.fromkeys(shadows, _DEEP)


def _accumulated_otherwise(adjoint: Adjoint, call: Call, alone: Variant, kernel: Kernel, zero: Zero) -> Reasons:
    premises = Premises(alone.plain, alone.left, alone.aliased)
    found: Reasons = {}
    for body, made in _texts(adjoint, kernel, alone):
        for shadow, reason in accumulated_otherwise(body, run_of(adjoint, call, made), premises, zero).items():
            found |= {shadow: reason} if shadow is not None else dict.fromkeys(shadows_of(adjoint), reason)
    return found


def _texts(adjoint: Adjoint, kernel: Kernel, alone: Variant) -> Iterable[tuple[Block, Block]]:
    """The text that accumulates plainly where no threads meet, and does nothing else that the plain adjoint does not, and that of a kernel:
    both for memory of all threads and for that of one after the other."""
    yield adjoint.marked(alone), kernel.body
    if kernel.in_rows is not None:
        yield adjoint.marked(alone, in_rows=True), kernel.in_rows.body


# --- sums in fixed point ------------------------------------------------------------------------------------------------------------------


def in_fixed_point(adjoint: Adjoint, call: Call, stage: Stage) -> Stage | str:
    """The stage with its certificate for the kernels of its `fixed`, or why it has none."""
    fixed, before = stage.fixed, stage.certificate
    if fixed is None:
        return stage
    count = len(stage.kernel.params)
    peaks, sums = ([p for p in k.params[count:] if isinstance(p, Buffer)] for k in (fixed.measure, fixed.collect))
    of_peaks = {t: (p,) for t, p in zip(fixed.targets, peaks, strict=True)}
    of_sums = {t: tuple(sums[2 * k : 2 * k + 2]) for k, t in enumerate(fixed.targets)}
    whole = [(stage.kernel, fixed.measure, fixed.collect)]
    if stage.kernel.in_rows is not None and fixed.measure.in_rows is not None and fixed.collect.in_rows is not None:
        whole.append((stage.kernel.in_rows, fixed.measure.in_rows, fixed.collect.in_rows))
    for kernel, measure, collect in whole:
        run = run_of(adjoint, call, kernel.body, stage.parameters, stage.grid, stage.numbers)
        reason = summed_otherwise(run, measure.body, collect.body, of_peaks, of_sums, DIGITS, DIGIT_BITS)
        if reason is not None:
            return reason
    return replace(stage, certificate=Certificate((*(before.kernels if before is not None else ()), fixed.measure, fixed.collect)))


# --- one kernel for all -------------------------------------------------------------------------------------------------------------------


def counted_injective(adjoint: Adjoint, call: Call, shadow: Buffer) -> bool:
    """True if no two threads of the launch touch one element of a shadow, as an inspector has counted in this launch."""
    return is_injective(adjoint, call, shadow) is not None


__all__ = [
    "NO_ISLPY",
    "Numbers",
    "certified",
    "conflicting",
    "counted_injective",
    "in_fixed_point",
    "may_collide",
    "one_by_one",
    "run_of",
    "shadows_of",
]
