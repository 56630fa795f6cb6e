"""Fusion of a launch with its reverse: both in one kernel, where that is certified to be the same.

Threads of a launch come in any order, so thread by thread it is the same if no thread's reverse reads what another thread's forward writes.
That, and that the kernel does what the two do, is certified for the launch's numbers (`certified`).

So it is with values that are kept in place of memory (`ad.checkpoint_selection`): what they are made of is read by the launch, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..affine.relations import is_installed
from ..codegen.cpu.source import has_atomics, is_flat
from ..ir.nodes import Alloc, Barrier, Block, Buffer, Kernel, Load, Shuffle, Tell
from ..ir.rewrite import holds, walk_stmts
from ..ir.types import Space
from ..ir.verify import verify
from ..memo import Same
from ..pipeline.calls import Call
from ..pipeline.derived_kernels import Adjoint
from ..pipeline.modes import plain_allowed
from ..pipeline.pattern import Parameter
from ..pipeline.stage import Stage, is_plain
from .certified import Pointers, is_forward_and_reverse, is_keeping
from .forward_reverse_kernel import fused, preceded


@dataclass(frozen=True, eq=False)
class Fused:
    """One kernel for forward and reverse, and its parameters."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]
    reverse_first: bool


def fusing(primal: Kernel, adjoint: Adjoint, call: Call, stages: Sequence[Stage]) -> Fused | None:
    """Forward and reverse of a launch as one kernel; None where that is not proved to be the same, or not possible."""
    alone = is_plain(stages) and call.bound.width == 1 and not call.overlaps
    if not alone or adjoint.layout.scratch or adjoint.logs or not plain_allowed() or not is_installed():
        return None
    stage = stages[0]
    found: Fused | None = adjoint.facts.get(("fused", stage, call.bound.library), lambda: _fused(primal, call, stage))
    if found is None:
        return None
    for known in dict.fromkeys((call.at_large, call)):
        pointers = Pointers(known, stage.parameters, primal)
        key = "certified", stage, known.key, pointers.key
        if adjoint.facts.get(key, partial(_is_certified, found, pointers, primal, stage)):
            return found
    return None


def _is_certified(found: Fused, pointers: Pointers, primal: Kernel, stage: Stage) -> bool:
    text = (1, 0) if found.reverse_first else (0, 1)
    return is_forward_and_reverse(pointers, primal, stage.kernel, stage.parameters, found.kernel, text)


def _fused(primal: Kernel, call: Call, stage: Stage) -> Fused | None:
    if call.bound.library != "cupy" and has_atomics(stage.kernel) and not has_atomics(primal):
        return None  # on a CPU a kernel with atomics has one core, and the primal alone has all of them
    if _waits(primal.body) or _waits(stage.kernel.body) or holds(primal.body, Alloc):
        return None
    if any(p.role not in ("primal", "shadow", "entry") for p in stage.parameters):
        return None
    own = {i: item for i, item in enumerate(primal.params) if isinstance(item, Buffer)}
    entry = {p.item: own[p.position] for p in stage.parameters if p.role == "entry" and isinstance(p.item, Buffer)}
    written = {s.buffer for s in walk_stmts(primal.body) if hasattr(s, "buffer") and not isinstance(s, Load)}
    read = {s.buffer for s in walk_stmts(stage.kernel.body) if isinstance(s, Load)}
    before = {entry[b] for b in read if b in entry} & written
    after = read & written
    if (before and after) or any(p.item not in primal.params for p in stage.parameters if p.role == "primal"):
        return None
    parameters = tuple(p for p in stage.parameters if p.role != "entry")
    kernel = fused(primal, stage.kernel, entry, [p.item for p in parameters], reverse_first=not after)
    if call.bound.library != "cupy" and (is_flat(primal) or is_flat(stage.kernel)) and not is_flat(kernel):
        return None  # on a CPU a grid-stride loop is one over all elements, and two of them in one kernel are not
    verify(kernel)
    return Fused(kernel, parameters, not after)


def keeping(adjoint: Adjoint, primal: Kernel, extraction: Kernel, saved: Sequence[Buffer], call: Call) -> Kernel | None:
    """A launch that also does what the `extraction` would do after it: it reads memory that the launch leaves alone, and writes memory of
    its own, to `saved`. None where that is not so, or better done apart."""
    made = "keeping", Same(primal), Same(extraction), call.bound.library
    found: Kernel | None = adjoint.facts.get(made, lambda: (_keeping(primal, extraction, saved, call), primal, extraction))[0]
    if found is None:
        return None
    pointers = Pointers(call, (), primal)
    key = "certified", *made, call.key, pointers.key
    return found if adjoint.facts.get(key, lambda: is_keeping(pointers, primal, extraction, found)) else None


def _keeping(primal: Kernel, extraction: Kernel, saved: Sequence[Buffer], call: Call) -> Kernel | None:
    own = {*primal.params, *saved}
    if not is_installed() or any(p not in own for p in extraction.params) or _waits(primal.body):
        return None
    kernel = preceded(primal, extraction, saved)
    if call.bound.library != "cupy" and (has_atomics(primal) or (is_flat(primal) and not is_flat(kernel))):
        return None  # as for forward and reverse
    verify(kernel)
    return kernel


def _waits(body: Block) -> bool:
    """True if threads meet, or say something."""
    return any(
        isinstance(s, Barrier | Shuffle | Tell) or (isinstance(s, Alloc) and s.buffer.space is Space.SHARED) for s in walk_stmts(body)
    )
