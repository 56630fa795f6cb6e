"""Certificates of launches: the kernels of a reverse pass as `affine.certificate` takes them, with the numbers of a launch.

A launch that gpuad makes in the stead of the user's runs only if it is certified; what is not falls back to atomic additions, which need no
proof. That takes milliseconds for each kernel and the numbers of its launch, once. Under GPUAD_CERTIFY=0, and where there is no `islpy`,
the proofs of those who derive the launches have to do.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..affine.certificate import Run, Zero, meeting, refused
from ..affine.instances import Shape
from ..affine.relations import is_installed
from ..context_variables import scoped
from ..ir.nodes import Block, Buffer, Kernel, Store, Var
from ..ir.rewrite import walk_stmts
from ..runtime.base import Dim3
from .adjoint import Adjoint
from .calls import Call
from .pattern import Parameter

Numbers = Mapping[tuple[str, int], int]
_certifying: ContextVar[bool | None] = ContextVar("certifying", default=None)


def certifying() -> bool:
    """Whether launches are certified before they run."""
    chosen = _certifying.get()
    return is_installed() and os.environ.get("GPUAD_CERTIFY") != "0" if chosen is None else chosen


def certified_for_tests(wanted: bool = True) -> AbstractContextManager[None]:
    """Within it launches are certified, or not, whatever the environment says."""
    return scoped(_certifying, wanted)


def run_of(
    adjoint: Adjoint,
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


def conflicting(adjoint: Adjoint, call: Call, shadows: Collection[Buffer]) -> frozenset[Buffer]:
    """The shadows in one element of which two threads of the adjoint may meet."""
    try:
        return meeting(run_of(adjoint, call, adjoint.layout.body), shadows)
    except RecursionError:
        return frozenset(shadows)


def not_certified(adjoint: Adjoint, plain: Kernel, call: Call, made: Sequence[Run], zero: Zero) -> dict[Buffer, str]:
    """The shadows for which the kernels of a reverse pass are not certified to do what the `plain` one does, with the reasons; `zero`:
    those that are 0 where a kernel stores to them."""
    shadows = [p.item for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)]
    try:
        return refused(run_of(adjoint, call, plain.body), made, shadows, zero)
    except RecursionError:
        return dict.fromkeys(shadows, "the kernel is nested too deeply")
