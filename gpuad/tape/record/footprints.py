"""Which memory operations reach: its allocations, and the regions of them that a call reads, writes, and needs for its adjoint.

In: a call that is bound. Out: its uses of allocations. What is found out about a kernel for a launch's numbers is remembered with the
kernel (`Reaches`), and means other regions for other arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from ...api import Kernel
from ...arguments import Bound
from ...arguments.arrays import address, resolve
from ...errors import ShadowError
from ...ir.nodes import Kernel as Primal
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...runtime.base import Memory
from ..memory.effects import absolute, dense
from ..memory.lossy_arrays import Store
from ..memory.staging import Staging
from ..memory.versions import Allocation
from .operations import Effects, Operation, Use
from .recorded_launch import Cuts, Launched, Reach, Reaches, absolutely, cuts_of, reaches_of, reads, reads_again, writes
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
        self._met_by: dict[int, tuple[Bound, list[Use], list[Use]]] = {}

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
        where, size = address(memory.root), int(memory.root.nbytes)
        known = self.allocations.get(where)
        if known is None or known.root.nbytes < size:
            root = resolve(memory.root.view(np.uint8)).root  # all of it: elements of several bytes leave some at its end
            self._refuse_overlap(where, int(root.nbytes))
            self._staging.refuse_overlap(where, int(root.nbytes))
            earlier = self._earlier.get(where)
            if earlier is not None and earlier.root.nbytes == root.nbytes:
                earlier.forget(f"memory {len(self.allocations)}")
            else:
                earlier = Allocation(root, where, f"memory {len(self.allocations)}", self._store.of(where))
            known = self.allocations[where] = earlier
        return known

    def _refuse_overlap(self, where: int, size: int) -> None:
        """Two owners of the same bytes (views made by foreign code) cannot be told apart from two allocations."""
        for other in self.allocations.values():
            if size and other.root.nbytes and where < other.address + other.root.nbytes and other.address < where + size:
                raise ShadowError(
                    f"an array shares memory with `{other.name}` without being a view of the same array (foreign memory?); slice one array "
                    "instead. Nothing was launched."
                )

    def operation(self, kernel: Kernel, primal: Primal, adjoint: Adjoint | None, call: Call, where: str) -> Launched:
        """A launch as an operation of the recording."""
        reaches = self._reaches(kernel, primal, adjoint, call)
        effects, uses = self.effects_of(reaches, call)
        cuts: Cuts | None = None
        if adjoint is not None and reaches.before and self._cuts:
            cuts = cuts_of(adjoint, reaches, call)
        return Launched(kernel.name, where, call, effects, adjoint, uses, [], kernel, cuts)

    def _reaches(self, kernel: Kernel, primal: Primal, adjoint: Adjoint | None, call: Call) -> Reaches:
        source = adjoint.primal if adjoint is not None else primal
        return call.fact(kernel.facts, ("reaches", adjoint), source, partial(reaches_of, source, adjoint, call))

    def reach(self, kernel: Kernel, adjoint: Adjoint, call: Call) -> tuple[Effects, dict[tuple[str, int], Use]]:
        """The effects of a launch on memory, and what the adjoint reads, by its parameters."""
        return self.effects_of(self._reaches(kernel, adjoint.primal, adjoint, call), call)

    def touched(self, kernel: Kernel, call: Call) -> tuple[list[Use], list[Use]]:
        """The regions that the primal reads and writes in this call; found out once."""
        known = self._met_by.get(id(call.bound))
        if known is None:
            known = self._met_by[id(call.bound)] = call.bound, *self._touching(kernel, call)
        return known[1], known[2]

    def _touching(self, kernel: Kernel, call: Call) -> tuple[list[Use], list[Use]]:
        primal = kernel.primal(call.aliases())
        found = call.fact(kernel.facts, ("touched",), primal, lambda n: (reads(primal, call, n), writes(primal, call, n)))
        return [self._use(r, call) for r in found[0]], [self._use(r, call) for r in found[1]]

    def read_again(self, kernel: Kernel, primal: Primal, call: Call) -> list[Use]:
        """The regions that decide what a launch writes, what it adds to included."""
        found = call.fact(kernel.facts, ("read again",), primal, partial(reads_again, primal, call))
        return [self._use(r, call) for r in found]

    def touched_by(self, operation: Launched) -> tuple[list[Use], list[Use]]:
        """The regions that a launch reads and writes."""
        return self.touched(operation.kernel, operation.call)

    def _use(self, reach: Reach, call: Call) -> Use:
        """The region of a reach in this call."""
        argument = call.bound.arguments[reach.position]
        memory = argument.memory
        assert memory is not None
        passed = absolute(dense(argument), memory) if reach.region is None else None
        return Use(self.allocation(memory), absolutely(reach, call), reach.position, passed)

    def effects_of(self, reaches: Reaches, call: Call) -> tuple[Effects, dict[tuple[str, int], Use]]:
        """The remembered footprint of a launch, for the memory of this call."""
        parts = (reaches.writes, reaches.before, reaches.after, reaches.must)
        made = {id(r): self._use(r, call) for part in parts for r in part}
        groups = (tuple(made[id(r)] for r in part) for part in parts)
        return Effects(*groups), {key: made[id(r)] for key, r in reaches.uses.items()}

    def uses(self, operation: Operation) -> list[Use]:
        """The regions that an operation reads and writes."""
        if isinstance(operation, Launched):
            return [use for part in self.touched_by(operation) for use in part]
        if isinstance(operation, Ruled):
            return [operand.use for operand in operation.operands.values()]
        return list(operation.effects.writes)

    def worked_on(self, operation: Operation) -> list[Allocation]:
        """The allocations that an operation, or its adjoint, works on."""
        effects = operation.effects
        uses = (*effects.writes, *effects.before, *effects.after, *self.uses(operation))
        return list({id(use.allocation): use.allocation for use in uses}.values())
