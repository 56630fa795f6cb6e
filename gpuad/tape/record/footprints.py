"""Which memory operations reach: its allocations, and the regions of them that a call reads, writes, and needs for its adjoint.

In: a call that is bound, and its kind. Out: its uses of allocations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ...api import Kernel
from ...arguments.arrays import resolve
from ...errors import ShadowError
from ...ir.nodes import Kernel as Primal
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...runtime.base import Memory
from ..memory.buffers import Spans
from ..memory.lossy_arrays import Store
from ..memory.staging import Staging
from ..memory.versions import Allocation
from .launch_kind import Allocations, LaunchKind, Uses, reach, read_again
from .operations import Effects, Operation, Use
from .recorded_launch import Cuts, Launched
from .recorded_rule import Ruled


class Footprints:
    """The `allocations` that a recording has met, by address, and what its operations reach of them. `store`: memory of which versions are
    stored less exactly; `cuts`: whether a few values may be kept in place of what an adjoint reads."""

    def __init__(self, store: Store, staging: Staging, *, cuts: bool) -> None:
        self._store, self._staging, self._cuts = store, staging, cuts
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.allocations: dict[int, Allocation] = {}
        self._earlier: Mapping[int, Allocation] = {}
        self._spans = Spans()

    @contextmanager
    def taking_over(self, earlier: Mapping[int, Allocation]) -> Iterator[None]:
        """Within it memory that was met earlier is the allocation that it was, of which nothing is known."""
        self._earlier = earlier
        try:
            yield
        finally:
            self._earlier = {}

    def allocation(self, memory: Memory) -> Allocation:
        """The allocation behind a pointer; the tape keeps it alive, so its address is not given to another."""
        known = self.allocations.get(memory.address)
        return known if known is not None and known.root.nbytes >= memory.root.nbytes else self._note(memory)

    def _note(self, memory: Memory) -> Allocation:
        """Notes an allocation. Two owners of the same bytes (views made by foreign code) cannot be told apart from two allocations."""
        where = memory.address
        root = resolve(memory.root.view(np.uint8)).root  # all of it: elements of several bytes leave some at its end
        size = int(root.nbytes)
        if size and self._spans.overlaps(where, where + size):
            name = next(a.name for a in self.allocations.values() if where < a.address + a.root.nbytes and a.address < where + size)
            raise ShadowError(
                f"an array shares memory with `{name}` without being a view of the same array (foreign memory?); slice one array "
                "instead. Nothing was launched."
            )
        self._staging.refuse_overlap(where, size)
        found, name = self._earlier.get(where), f"memory {len(self.allocations)}"
        if found is not None and found.root.nbytes == size:
            found.forget(name)
        else:
            found = Allocation(root, where, name, self._store.of(where))
        self.allocations[where] = found
        if size:
            self._spans.add(where, where + size)
        return found

    def behind(self, call: Call) -> list[Allocation | None]:
        """The allocations behind the arguments of a call."""
        return [self.allocation(a.memory) if a.memory is not None else None for a in call.bound.arguments]

    def operation(self, kernel: Kernel, kind: LaunchKind, call: Call, allocations: Allocations, where: str) -> Launched:
        """A launch as an operation of the recording."""
        if kind.adjoint is not None and call.exact is not kind.adjoint.exact:
            call = call.but(exact=kind.adjoint.exact)
        (*effects, reads, writes), uses = kind.footprint.at(allocations)
        cuts = Cuts(kind.adjoint, call, kind.sizes, kind.found) if kind.adjoint is not None and kind.sizes and self._cuts else None
        return Launched(kernel.name, where, call, Effects(*effects), kind.adjoint, uses, [], kernel, reads, writes, cuts)

    def reach(self, operation: Launched, adjoint: Adjoint) -> tuple[Effects, Uses]:
        """The effects of a launch with another adjoint, and what that reads, by its parameters."""
        return reach(operation.kernel, adjoint, operation.call, self.behind(operation.call))

    def read_again(self, operation: Launched, primal: Primal) -> tuple[Use, ...]:
        """The regions that decide what a launch writes, what it adds to included."""
        return read_again(operation.kernel, primal, operation.call, self.behind(operation.call))

    def uses(self, operation: Operation) -> list[Use]:
        """The regions that an operation reads and writes."""
        if isinstance(operation, Launched):
            return [*operation.reads, *operation.writes]
        if isinstance(operation, Ruled):
            return [operand.use for operand in operation.operands.values()]
        return list(operation.effects.writes)

    def worked_on(self, operation: Operation) -> list[Allocation]:
        """The allocations that an operation, or its adjoint, works on."""
        effects, found = operation.effects, {}
        for part in (effects.writes, effects.before, effects.after, self.uses(operation)):
            for use in part:
                found[id(use.allocation)] = use.allocation
        return list(found.values())
