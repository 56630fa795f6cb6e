"""What a recording knows of memory: which has a shadow, which was used without one, what is needed, and what has been saved of it.

Every operation passes here before it runs. An argument is judged by the memory behind it, not by the name under which it comes (rule 4 of
the contract): bare memory that has a shadow takes it if it is only written, and is refused if it is read; active data that goes into memory
without a shadow must not come out again; and where a shadow turns up late, what was done to its memory before is judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...api import Kernel, pattern_of
from ...arguments.annotations import BatchDuplicated, Duplicated, shadows_of_array
from ...arguments.arrays import address, resolve
from ...errors import ShadowError, TapeError
from ...ir.nodes import Kernel as Primal
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...program.ir.region import EMPTY, Region, span
from ...runtime.actions import ActionLog, Performed
from ...runtime.array_locks import borrows_memory
from ...runtime.base import Memory
from ..budget.limits import Limits
from ..memory.arena import Full, Pooled
from ..memory.change_detection import mark
from ..memory.effects import absolute, bytes_of, dense
from ..memory.lossy_arrays import Store
from ..memory.made_arrays import MadeArrays
from ..memory.versions import Allocation, DeferrableNeed
from ..reverse.shadows import Shadows
from ..status import EMPTY as NO_RECORDING
from ..status import State
from .checkpoints import ValueCheckpoints
from .operations import Effects, Foreign, Operation, Use
from .recorded_launch import Cuts, Launched, Reach, Reaches, absolutely, cuts_of, reaches_of, reads, reads_again, writes
from .recorded_rule import Ruled
from .rule_calls import with_new_shadows
from .trace import Trace

SMALL = 1 << 20  # bytes of an allocation that a first recording looks at


class Recording:
    """The operations recorded so far and the memory that they touch. `within`: the limits on what it adds; `made`: arrays that operations
    made. `exact`: compare what is needed at every operation, `save_all`: save everything that is
    overwritten, `restore`: save the state before the recording too, `store`: memory of which versions are stored less exactly."""

    exact: bool
    save_all: bool
    restore: bool
    store: Store

    def __init__(self, within: Limits, made: MadeArrays) -> None:
        self._saved, self.transient, self.within, self.made = within.saved, within.transient, within, made
        self.doing: ActionLog = Performed()
        self.values = ValueCheckpoints(self)  # kept in place of memory
        self.paired = 0  # pairs of arrays and shadows that the operations have shown
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.trace = Trace()
        self.values.forget()
        self._earlier: Mapping[int, Allocation] = {}  # of the program before, as long as a part of it is taken over
        self.allocations: dict[int, Allocation] = {}
        self.shadows = Shadows()
        self.actives: dict[int, Any] = {}
        self.state = NO_RECORDING
        self._tainted = False
        self._met_by: dict[int, tuple[Call, list[Use], list[Use]]] = {}
        self._saved.reset()
        self.made.forget()
        self.within.forget()

    @property
    def operations(self) -> list[Operation]:
        """What was recorded that works on memory, in order."""
        return self.trace.operations

    def _require(self, state: State) -> None:
        if self.state is not state:  # the states that are required have one object each
            needs = "" if self.state.advises else f"; this needs one that is {state}"
            raise TapeError(f"the tape is {self.state}{needs}")

    def allocation(self, memory: Memory) -> Allocation:
        """The allocation behind a pointer; the tape keeps it alive, so its address is not given to another."""
        where, size = address(memory.root), int(memory.root.nbytes)
        known = self.allocations.get(where)
        if known is None or known.root.nbytes < size:
            root = resolve(memory.root.view(np.uint8)).root  # all of it: elements of several bytes leave some at its end
            self._refuse_overlap(where, int(root.nbytes))
            self.made.staging.refuse_overlap(where, int(root.nbytes))
            earlier = self._earlier.get(where)
            if earlier is not None and earlier.root.nbytes == root.nbytes:
                earlier.forget(f"memory {len(self.allocations)}")
            else:
                earlier = Allocation(root, where, f"memory {len(self.allocations)}", self.store.of(where))
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

    def adopt(self, allocation: Allocation, region: Region, primal: Memory, shadow: Memory, name: str) -> None:
        """Notes that an array of an operation has a shadow; ShadowError if it has another one already."""
        self.add_pair(allocation, region, primal, (shadow,), name)

    def note_array(self, x: Any) -> None:
        """Notes which array an argument is a view of, if that has a shadow."""
        if isinstance(x, Duplicated | BatchDuplicated):
            for shadow in shadows_of_array(x):
                self.shadows.add_array(shadow)

    # --- shadows by memory -----------------------------------------------------------------------------------------------------------

    def _adopt(self, kernel: Kernel, call: Call) -> Call:
        """Bare arguments on memory that has a shadow take it if they are only written; to read it bare would drop a gradient."""
        arguments = list(call.bound.arguments)
        touched = self._touched(kernel, call)
        seen, written = ({u.position: u for u in part} for part in touched)
        for i, use in {**seen, **written}.items():
            a = arguments[i]
            if a.memory is not None and self.shadows.is_shadow(use.allocation.address, use.region):
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is a shadow of this recording; what happens to shadows belongs "
                    "outside of the tape. Nothing was launched."
                )
            if a.kind == "stopped" and i in written and self.shadows.all_of(use.allocation, use.region):
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is stopped, but written too, and its memory has a shadow: pass the "
                    "Duplicated, or a stopped copy where the kernel reads it. Nothing was launched."
                )
            if a.shadows or a.kind == "stopped" or a.memory is None:
                continue
            region = use.region | seen[i].region if i in seen else use.region
            if a.pieces or not a.memory.is_float:
                region = _inside(a, region)
            pairings = self.shadows.all_of(use.allocation, region)
            if not pairings:
                continue
            if i in seen:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is read bare, but its memory has a shadow (`{pairings[0].name}`): the "
                    f"gradient would be dropped. Pass the Duplicated, or stop_gradient({a.name}). Nothing was launched."
                )
            if not a.memory.is_float or a.memory.itemsize != pairings[0].size:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is written as {a.memory.root.dtype}, but its memory has a shadow "
                    f"as elements of {pairings[0].size} bytes (`{pairings[0].name}`); write it in its own type, or by code "
                    "that the tape does not see, after tape.overwrites(array). Nothing was launched."
                )
            shadows = tuple(Memory(p.root, a.memory.offset + p.shift) for p in pairings)
            arguments[i] = replace(a, kind="duplicated", shadows=shadows)
        width = max([call.bound.width, *(len(a.shadows) for a in arguments)])
        return replace(call, bound=replace(call.bound, arguments=tuple(arguments), width=width))

    def _note_shadows(self, call: Call) -> None:
        for a in call.bound.arguments:
            if a.keep and a.shadows:
                raise ShadowError(
                    f"`{a.name}`: keep=True has no meaning inside a tape: seeds are given to reverse(). Nothing was launched."
                )
            if a.memory is not None:
                self.allocation(a.memory).name = a.name
                if a.shadow_arrays:
                    region = bytes_of(a).moved(a.memory.offset * a.memory.itemsize)
                    self.add_pair(self.allocation(a.memory), region, a.memory, a.shadows, a.name)
            elif a.kind == "active":
                self._note_active(a)

    def add_pair(self, allocation: Allocation, region: Region, primal: Memory, shadows: Sequence[Memory], name: str) -> None:
        """Notes a pair; what was done to the memory before it was known to have a shadow is judged again. ShadowError for a temporary of an
        earlier recording."""
        for shadow in shadows if region else ():
            self.made.refuse_reused(primal, shadow, name)
        count = self.shadows.count
        self.shadows.add_all(allocation, region, primal, shadows, name)
        if self.shadows.count == count:
            return
        for shadow in shadows:
            self._refuse_used(shadow, Region(region.spans // int(primal.root.dtype.itemsize) + (shadow.offset - primal.offset)), name)
        if allocation.read_bare & region or allocation.tainted & region:
            raise ShadowError(
                f"`{name}` has a shadow here, but its memory was used without one earlier in this recording: the gradient of that use "
                "would be dropped. Pass the Duplicated there too. Nothing was launched."
            )
        if allocation.written_bare & region:
            self.trace = self.trace.changed(lambda operation: self._with_late_shadow(operation, allocation, region, name))
            allocation.written_bare = allocation.written_bare - region

    def _refuse_used(self, shadow: Memory, elements: Region, name: str) -> None:
        """What an operation read or wrote as an array cannot serve as a shadow: the reverse changes it."""
        used = self.allocations.get(address(shadow.root))
        if used is None:
            return
        if (used.read_bare | used.written_bare | used.written | used.needed) & Region(elements.spans * int(shadow.root.dtype.itemsize)):
            raise ShadowError(
                f"the shadow of `{name}` was an argument of an operation earlier in this recording, and the reverse changes it: pass a "
                "copy of it there. Nothing was launched."
            )

    def _with_late_shadow(self, operation: Operation, allocation: Allocation, region: Region, name: str) -> Operation:
        """An earlier operation that wrote memory now known to have a shadow: its adjoint clears it."""
        arguments = operation.call.bound.arguments if isinstance(operation, Launched) else None
        bare = [u for u in operation.effects.writes if arguments is None or not arguments[u.position].shadows]
        if not any(u.allocation is allocation and u.region & region for u in bare):
            return operation
        if isinstance(operation, Foreign):
            parts = [region & use.region for use in operation.effects.writes if use.allocation is allocation]
            more = [root[a:z] for part in parts for root, a, z in self.shadows.written(allocation, part)]
            return replace(operation, cleared=(*operation.cleared, *more))
        if isinstance(operation, Ruled):
            return with_new_shadows(operation, self)
        assert isinstance(operation, Launched)
        call = self._adopt(operation.kernel, operation.call)
        adjoint = operation.kernel.reverse_for(pattern_of(operation.kernel, call), call)
        new = self._operation(operation.kernel, operation.kernel.primal(call.aliases()), adjoint, call, operation.where)
        if new.uses or adjoint.logs:
            raise ShadowError(
                f"`{name}` has a shadow here, but was written bare by `{operation.name}` ({operation.where}); pass the Duplicated there "
                "too. Nothing was launched."
            )
        return new

    def adopt_number(self, shadow: Memory, name: str) -> None:
        """Notes the shadow of a number; ShadowError if its memory serves, or served, for something else."""
        if self.shadows.add_number(shadow, name):
            self._refuse_used(shadow, span(shadow.offset, shadow.offset + 1), name)

    def _note_active(self, a: Any) -> None:
        """One shadow for two values would hide that host arithmetic lies between them."""
        for shadow in a.shadows:
            self.adopt_number(shadow, a.name)
        for key in map(address, a.shadow_arrays):
            if self.actives.setdefault(key, a.value).tobytes() != a.value.tobytes():
                raise ShadowError(
                    f"`{a.name}`: one shadow for two values ({self.actives[key]} and {a.value}): host arithmetic on a scalar is not "
                    "recorded; give each value its own shadow"
                )

    def _refuse_taint(self, kernel: Kernel, adjoint: Adjoint | None, call: Call) -> None:
        """Active data that went into an array without a shadow must not come out again (rule 4 of the contract)."""
        if not self._tainted:
            return
        primal = kernel.primal(call.aliases()) if adjoint is None else adjoint.primal
        for use in self._touched(kernel, call)[0]:
            a = call.bound.arguments[use.position]
            if a.shadows or a.kind == "stopped" or not use.allocation.tainted & use.region:
                continue
            if adjoint is None or primal.params[use.position] in adjoint.activity.useful:
                raise ShadowError(
                    f"argument {use.position + 1} `{a.name}` of `{kernel.name}` holds values that depend on active data, but has no "
                    f"shadow: give it one, Duplicated({a.name}), or stop_gradient({a.name}). Nothing was launched."
                )

    def _note_bare(self, operation: Launched, seen: Sequence[Use]) -> None:
        """What the launch read and wrote without a shadow: of interest if one turns up later."""
        arguments = operation.call.bound.arguments
        escaped = {e.buffer for e in operation.adjoint.escapes} if operation.adjoint is not None else set()
        spread = any(u.allocation.tainted & u.region and arguments[u.position].kind != "stopped" for u in seen)
        for use in seen:
            a = arguments[use.position]
            if a.kind != "stopped" and a.memory is not None:
                read = use.region if a.memory.is_float else _inside(a, use.region)
                use.allocation.read_bare = use.allocation.read_bare | read
        for use in operation.effects.writes:
            memory = use.allocation
            if arguments[use.position].shadows:
                continue
            if spread or (operation.adjoint is not None and operation.adjoint.primal.params[use.position] in escaped):
                self._tainted = True
                memory.tainted = memory.tainted | use.region
            else:
                memory.written_bare = memory.written_bare | use.region

    # --- versions --------------------------------------------------------------------------------------------------------------------

    def _operation(self, kernel: Kernel, primal: Primal, adjoint: Adjoint | None, call: Call, where: str) -> Launched:
        reaches = self._reaches(kernel, primal, adjoint, call)
        effects, uses = self._ours(reaches, call)
        cuts: Cuts | None = None
        if adjoint is not None and reaches.before and not self.save_all and not self.within.is_limited:  # else they run again from memory
            cuts = cuts_of(adjoint, reaches, call)
        return Launched(kernel.name, where, call, effects, adjoint, uses, [], kernel, cuts)

    def _reaches(self, kernel: Kernel, primal: Primal, adjoint: Adjoint | None, call: Call) -> Reaches:
        source = adjoint.primal if adjoint is not None else primal
        key = call.key_of(source) if adjoint is None else call.key_of_adjoint(adjoint)
        return call.fact(kernel.facts, ("reaches", adjoint), key, source, partial(reaches_of, source, adjoint, call))

    def reach(self, kernel: Kernel, adjoint: Adjoint, call: Call) -> tuple[Effects, dict[tuple[str, int], Use]]:
        """What a launch does to memory, and what the adjoint reads, by its parameters."""
        return self._ours(self._reaches(kernel, adjoint.primal, adjoint, call), call)

    def pooled(self, call: Call) -> Call:
        """The call with memory for its needs from what the tape saves."""
        return replace(call, pool=Pooled(call.executor, self._saved, self.doing.do))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all transient memory."""
        return self.transient.nbytes

    def room(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory of the tape for an operation's intermediates while it runs: an array, not cleared."""
        return self.transient.room(shape, dtype)

    def space(self, length: int, dtype: Any) -> Any:
        """A flat array in what the tape saves, not cleared."""
        return self._saved.room((length,), dtype)

    def _touched(self, kernel: Kernel, call: Call) -> tuple[list[Use], list[Use]]:
        """What the primal reads and writes in this call; found out once."""
        known = self._met_by.get(id(call))
        if known is None:
            known = self._met_by[id(call)] = call, *self._touching(kernel, call)
        return known[1], known[2]

    def _touching(self, kernel: Kernel, call: Call) -> tuple[list[Use], list[Use]]:
        primal = kernel.primal(call.aliases())
        key = call.key_of(primal)
        found = call.fact(kernel.facts, ("touched",), key, primal, lambda n: (reads(primal, call, n), writes(primal, call, n)))
        return [self._use(r, call) for r in found[0]], [self._use(r, call) for r in found[1]]

    def read_again(self, kernel: Kernel, primal: Primal, call: Call) -> list[Use]:
        """What decides what a launch writes, what it adds to included."""
        key = call.key_of(primal)
        found = call.fact(kernel.facts, ("read again",), key, primal, partial(reads_again, primal, call))
        return [self._use(r, call) for r in found]

    def touched(self, operation: Launched) -> tuple[list[Use], list[Use]]:
        """What a launch reads and writes."""
        return self._touched(operation.kernel, operation.call)

    def _use(self, reach: Reach, call: Call) -> Use:
        """What a reach means in this call."""
        argument = call.bound.arguments[reach.position]
        memory = argument.memory
        assert memory is not None
        passed = absolute(dense(argument), memory) if reach.region is None else None
        return Use(self.allocation(memory), absolutely(reach, call), reach.position, passed)

    def _ours(self, reaches: Reaches, call: Call) -> tuple[Effects, dict[tuple[str, int], Use]]:
        """What is remembered of a launch, for the memory of this call."""
        parts = (reaches.writes, reaches.before, reaches.after, reaches.must)
        made = {id(r): self._use(r, call) for part in parts for r in part}
        groups = (tuple(made[id(r)] for r in part) for part in parts)
        return Effects(*groups), {key: made[id(r)] for key, r in reaches.uses.items()}

    def _before(self, operation: Operation, time: int) -> None:
        """Saves what the operation that comes is about to overwrite."""
        self.within.before(operation, time)
        if self.looks:
            self._compare(operation)
        try:
            self.note_needs(operation, time)
            self._overwrite(operation, time)
        except BaseException:
            self.values.release({time})
            raise

    def note_needs(self, operation: Operation, time: int) -> None:
        """Notes what the operation's adjoint needs of memory as it is."""
        for use in operation.effects.before:
            if isinstance(operation, Launched) and operation.cuts is not None and operation.cuts.worthwhile:
                use.allocation.deferrable.append(DeferrableNeed(time, use.region, use.position))
            else:
                use.allocation.pending = use.allocation.pending | use.region

    def _overwrite(self, operation: Operation, time: int) -> None:
        self.values.choose(operation.effects.writes)
        self.values.stack_results(operation.effects.writes)
        self.save_overwritten(operation, time)
        for use in operation.effects.writes:
            a = use.allocation
            a.written, a.cleared = a.written | use.region, a.cleared | use.shown
        for use in operation.effects.must:
            use.allocation.tainted = use.allocation.tainted - use.region

    def save_overwritten(self, operation: Operation, time: int) -> None:
        """Saves what operation number `time` is about to overwrite, as far as it is needed."""
        for use in operation.effects.writes:
            a = use.allocation
            wanted = use.region if self.save_all else a.pending & use.region
            fresh = EMPTY
            if self.restore and a.address not in self.made.arrays:  # what an operation made was nothing before
                fresh = use.region - a.initial
                wanted, a.initial = wanted | fresh, a.initial | fresh
            if a.lossy and fresh:  # which is put back
                self._save(a, fresh, time, exact=True)
                wanted = wanted - fresh
            if wanted:
                self._save(a, wanted, time)
            a.pending = a.pending - use.region

    def _save(self, allocation: Allocation, region: Region, time: int, *, exact: bool = False) -> None:
        """Copies what is about to be overwritten, and needed."""
        if not self.within.stores:
            return
        with suppress(Full):  # of a budget
            allocation.save(region, time, self._saved.take, self.doing.do, exact=exact)

    @property
    def first(self) -> bool:
        """Whether the tape records for the first time: what is written behind it then is, as a rule, written behind it ever after."""
        raise NotImplementedError

    @property
    def looks(self) -> bool:
        """Whether each operation is followed by a look at what it left behind."""
        return self.exact or (self.first and any(map(self._looks_at, self.allocations.values())))

    def _looks_at(self, a: Allocation) -> bool:
        """Whether an allocation is looked at. In a first recording it is where that costs little beside the recording, for views that were
        made before anything was locked, and where others have the memory, too, so that it cannot be locked."""
        return self.exact or a.root.nbytes <= SMALL or borrows_memory(a.root)

    def _compare(self, operation: Operation | None) -> None:
        """What the operation works on is as the operation before left it, as far as it is needed or has a shadow; at the end (None) all
        allocations are. Raises TapeError."""
        allocations = self._worked_on(operation) if operation is not None else self.allocations.values()
        for a in (a for a in allocations if a.marks):
            marks = a.marks[:1] if operation is not None and self._renews(operation, a) else a.marks
            if any(mark(a, region) != before for region, before in marks if region):
                where = (
                    f"operation {len(self.operations)} ({operation.name}, {operation.where})" if operation else "the end of the recording"
                )
                raise TapeError(
                    f"`{a.name}` was changed between operation {len(self.operations) - 1} and {where} by code that the tape does not see: "
                    "write through the Duplicated (`U[0] = ...`) or by gpuad.ops, or announce it with tape.overwrites()"
                )

    def _renews(self, operation: Operation, a: Allocation) -> bool:
        """Whether an operation surely overwrites what is looked at of an allocation, which it does not read: what was there does not matter
        then, but to an exact check."""
        if self.exact or not isinstance(operation, Launched) or any(use.allocation is a for use in self.touched(operation)[0]):
            return False
        region = a.used - a.needed
        for use in operation.effects.must:
            region = region - use.region if use.allocation is a else region
        return not region

    def _after(self, operation: Operation, time: int) -> None:
        """Notes what the adjoint of the operation that has been made needs of memory as it is now."""
        stacks = isinstance(operation, Launched) and operation.adjoint is not None and operation.adjoint.recording.results
        for use in operation.effects.after:
            if stacks and not self.save_all and not self.within.is_limited:
                use.allocation.results.append(DeferrableNeed(time, use.region, use.position))
            else:
                use.allocation.pending = use.allocation.pending | use.region
        if self.looks:
            self._mark(operation)

    def _mark(self, operation: Operation) -> None:
        """Marks what a change behind the tape would spoil: what an adjoint needs, and what has a shadow, once an operation has met it: that
        the next one finds another value there is not in the gradient."""
        for use in filter(lambda use: self._looks_at(use.allocation), self._uses(operation)):
            if isinstance(operation, Foreign):  # it is overwritten from here on
                use.allocation.used = use.allocation.used - use.region
            else:
                use.allocation.used = use.allocation.used | self.shadows.with_shadow(use.allocation, use.region)
        for a in filter(self._looks_at, self._worked_on(operation)):
            parts = a.needed, a.used - a.needed
            a.marks = tuple((region, mark(a, region) if region else 0) for region in parts)

    def _uses(self, operation: Operation) -> list[Use]:
        """What an operation reads and writes."""
        if isinstance(operation, Launched):
            return [use for part in self.touched(operation) for use in part]
        if isinstance(operation, Ruled):
            return [operand.use for operand in operation.operands.values()]
        return list(operation.effects.writes)

    def _worked_on(self, operation: Operation) -> list[Allocation]:
        """The allocations that an operation, or its adjoint, works on."""
        effects = operation.effects
        uses = (*effects.writes, *effects.before, *effects.after, *self._uses(operation))
        return list({id(use.allocation): use.allocation for use in uses}.values())


def _inside(a: Any, region: Region) -> Region:
    """What of a region lies inside of an argument's view: of a struct, the numbers of the pointer's type. Integers that share an allocation
    with floats are no business of theirs where it is not known how far a kernel reaches."""
    return region & bytes_of(a).moved(a.memory.offset * a.memory.itemsize)
