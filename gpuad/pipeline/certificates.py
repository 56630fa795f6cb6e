"""Certificates of launches: the kernels of a reverse pass as `affine.certificate` takes them, with the numbers of a launch.

Where `islpy` is installed (extra `certify`) a launch that gpuad makes in the stead of the user's runs only if it is certified; what is not
falls back to atomic additions. GPUAD_CERTIFY=1 demands it, GPUAD_CERTIFY=0 does without. It takes milliseconds for each kernel and the
numbers of its launch, once.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..affine.certificate import Run, meeting, refused
from ..affine.instances import Shape
from ..context_variables import scoped
from ..errors import GpuadError
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
    if chosen is not None:
        return chosen
    asked = os.environ.get("GPUAD_CERTIFY")
    return asked == "1" or (asked != "0" and _has_isl())


@functools.cache
def _has_isl() -> bool:
    return importlib.util.find_spec("islpy") is not None


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


def threads_meet(adjoint: Adjoint, call: Call, shadows: Collection[Buffer]) -> frozenset[Buffer]:
    """The shadows in one element of which two threads of the adjoint may meet."""
    return _answered(lambda: meeting(run_of(adjoint, call, adjoint.layout.body), shadows), shadows)


def not_certified(adjoint: Adjoint, plain: Kernel, call: Call, made: Sequence[Run], zero: Collection[Buffer]) -> frozenset[Buffer]:
    """The shadows for which the kernels of a reverse pass are not certified to do what the `plain` one does; `zero`: those that are 0 where
    a kernel stores to them."""
    shadows = [p.item for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer)]
    return _answered(lambda: frozenset(refused(run_of(adjoint, call, plain.body), made, shadows, zero)), shadows)


def _answered(ask: Callable[[], frozenset[Buffer]], undecided: Collection[Buffer]) -> frozenset[Buffer]:
    """The answer to a question; all shadows where the certifier itself fails, which decides nothing and costs a user no gradient. An error
    of its own is shown under GPUAD_CERTIFY=1, and one of the environment always."""
    try:
        return ask()
    except (GpuadError, MemoryError):
        raise
    except Exception:
        if os.environ.get("GPUAD_CERTIFY") == "1":
            raise
        return frozenset(undecided)
