"""Runtime checks of proofs under GPUAD_CHECK=1: the reference executor runs what was proved, and plain atomics, and compares.

That no two threads touch one element of a shadow, and that a gather collects every contribution once, is decided on a launch's numbers,
whatever executor it is for. Here the reference executor, which sees every element that two threads touch, runs the reverse pass as it was
certified, and again with nothing but atomic additions, on copies of the arguments and with random numbers for shadows: they must leave the
same. That is done once for each kernel and the numbers of its launch, before anything is launched, and takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ..errors import LaunchError
from ..runtime.base import Executor, Memory
from .adjoint_memory import State, new_logs, shadow_of
from .calls import Call
from .derived_kernels import Adjoint

Pass: TypeAlias = Callable[[Call, State], None]
_CLOSE = {8: 1e-9, 4: 1e-3}


@cache
def _reference() -> Executor:
    from ..runtime.reference import Reference

    return Reference()


def check_proofs(adjoint: Adjoint, call: Call, certified: Pass, plainly: Pass) -> bool:
    """Raises LaunchError if the certified reverse pass has two threads meet in an element, or leaves other shadows than the one without
    proofs does; RaceError if the launch itself has a race, which its reverse then has too."""
    from ..runtime.reference import RaceError

    name = adjoint.primal.name
    try:
        found = _left_by(adjoint, call, certified)
    except RaceError as error:
        _run_primal(adjoint, call)
        what = f"GPUAD_CHECK: `{name}`: two threads meet in an element of a shadow. Nothing was launched; please report this kernel."
        raise LaunchError(f"{what}\n{error}") from error
    for position, right in _left_by(adjoint, call, plainly).items():
        bound = _CLOSE[right.dtype.itemsize] * max(1.0, float(np.abs(right[np.isfinite(right)]).max(initial=0)))
        if not np.allclose(found[position], right, rtol=0, atol=bound, equal_nan=True):
            raise LaunchError(
                f"GPUAD_CHECK: `{name}`: gradients of `{call.bound.arguments[position].name}` differ from those by atomic additions. "
                "Nothing was launched; please report this kernel."
            )
    return True


def _run_primal(adjoint: Adjoint, call: Call) -> None:
    """Runs the launch itself on copies of its arrays."""
    copies = _Copies()
    args = [copies.of(a.memory) if a.memory is not None else a.value for a in call.bound.arguments]
    replace(call, pool=_reference(), stream=None).run(adjoint.primal, [*args, *call.offset_values()])


def _left_by(adjoint: Adjoint, call: Call, reverse: Pass) -> dict[int, Any]:
    """The shadows, by the position of their arguments, that a reverse pass leaves of random ones."""
    copies = _Copies()
    shadows = {p.position: shadow_of(call, p.position, 0) for p in adjoint.parameters if p.role == "shadow"}
    made: Mapping[int, Memory] = {k: copies.random(m) for k, m in shadows.items() if m is not None}
    arguments = call.bound.arguments
    state = State({i: copies.of(a.memory) if a.memory is not None else a.value for i, a in enumerate(arguments)}, shadows=made)
    for p in adjoint.parameters:
        memory = arguments[p.position].memory if p.role in ("entry", "working") else None
        if memory is not None:
            state.entries[p.position] = _Copies().of(memory)
    again = replace(call, pool=_reference(), stream=None)
    state.logs = new_logs(adjoint, again)
    reverse(again, state)
    return {k: m.root for k, m in made.items()}


class _Copies:
    """Copies of allocations, one of each."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}

    def of(self, memory: Memory) -> Memory:
        """A copy of the memory as an array of NumPy's."""
        if id(memory.root) not in self.known:
            self.known[id(memory.root)] = memory.root.get() if hasattr(memory.root, "get") else np.array(memory.root)
        return Memory(self.known[id(memory.root)], memory.offset)

    def random(self, memory: Memory) -> Memory:
        """As many random numbers."""
        if id(memory.root) not in self.known:
            numbers = np.random.default_rng(len(self.known)).standard_normal(memory.root.size)
            self.known[id(memory.root)] = numbers.astype(memory.root.dtype)
        return Memory(self.known[id(memory.root)], memory.offset)
