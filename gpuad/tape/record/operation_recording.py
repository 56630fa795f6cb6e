"""How operations that are no launches are recorded: calls of rules, code that the tape does not see, and arrays that operations make.

In: the operation, with its effects on memory, and what runs it. Out: an entry among the operations, a step by which the program is known
again, and what was overwritten and needed saved before. Assumed: `Recording` judges memory, `Repeating` what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from ...api import FlatArguments
from ...arguments.annotations import BatchDuplicated, Duplicated
from ...arguments.arrays import address, is_array, leaf_memory, namespace, refuse_subclass, resolve
from ...arguments.layouts import float_views
from ...arguments.recorder import current
from ...errors import TapeError
from ...pipeline import executor_of
from ...program.ir.region import Region, of_array
from ...public_calls import show
from ...runtime.actions import ByPython, perform
from ...runtime.allocation import asked
from ...runtime.array_types import NdArray
from ...runtime.tensor_versions import count_writes
from ..budget.rerun import Rerun, of_uses, rule_again
from ..memory.buffers import storing
from ..memory.lossy_arrays import Store
from ..memory.memory_log import Kind, MemoryLog
from ..memory.temporaries import Made, Temporary, inner
from ..replay.trace_cache import KnownCall, line_of, place_of, user_frame
from ..replay.trace_replay import Repeating
from ..replay.trace_steps import ForeignStep, MadeStep, RenewedStep, Step, arrays_of, lasting
from ..status import RECORDING, interrupted_by
from . import rule_calls
from .operations import Effects, Foreign, Operation, Renewed, Use
from .recorded_rule import Ruled
from .rule_checks import mapped
from .rule_declaration import Declared

_K = TypeVar("_K", bound=KnownCall)


class OperationRecording(Repeating):
    """The part of a tape that records operations."""

    memory: MemoryLog
    store: Store
    known_calls: dict[Hashable, KnownCall]

    def rule(self, rule: Declared, arguments: Mapping[str, Any], regions: Mapping[str, Region]) -> None:
        """Records a call of a rule and makes it."""
        rule_calls.record(rule, arguments, self, regions)

    def known_call(self, key: Hashable | None, judge: Callable[[], _K]) -> _K:
        """What is known of a call in these words, if it has some that say all; found out now where it is new, or holds no more."""
        known = self.known_calls.get(key) if key is not None else None
        if known is None or self._tainted or not known.holds(self.shadows):
            known = judge()
            if key is not None:
                self.known_calls[key] = known
        return cast("_K", known)

    def record(self, operation: Ruled, run: Callable[[], None], library: str, step: Step) -> None:
        """Records an operation that is no kernel launch, and makes it."""
        self._library = self._library or library
        executor = executor_of(self._library)
        self.streams.enter(executor)

        written = [use.allocation.root for use in operation.effects.writes]

        def act() -> None:
            self.transient.reset()
            token = current.set(None)  # as `unrecorded`, in a line that runs once an operation
            try:
                run()
            finally:
                current.reset(token)
                count_writes(written)

        self.store.refuse_needed(operation)
        self._stage_rule(operation)
        action = ByPython(act, operation.name, operation.where, operation.rule.opaque)
        if self.within is not None:
            self.within.coming(rule_again(operation, action, self._library), (operation.rule, step.line))
            self.within.transient.most = 0
        with Saving(self, operation):
            self.doing.do(action)
        if self.within is not None and self.within.reruns:
            self.within.reruns[-1].room = self.within.transient.most
        if executor.stream() is not None:
            step.stream = True
        for a, region in operation.read_bare():
            a.read_bare = a.read_bare | region
        for a, region, tainted in operation.written_bare():
            if tainted:
                self._tainted = True
                a.tainted = a.tainted | region
            else:
                a.written_bare = a.written_bare | region
        self._note(step, all(lasting(x, copied=True) for x in step.args))

    def _stage_rule(self, operation: Ruled) -> None:
        operands, others = operation.operands, []

        def collect(_: str, x: Any) -> None:
            if is_array(x) and x.size and not x.dtype.hasobject:
                others.append(x)

        for name, value in operation.values.items():
            if name not in operands:
                mapped(value, name, collect)
        uses = [o.use for o in operands.values()]
        names, written = operation.effect.arrays, [operands[n].use for n in operation.effect.writes if n in operands]
        self.stage(uses, written, lambda position: operands[names[position]].array, others)

    def record_foreign(self, arrays: Sequence[Any], line: Any, where: str, given: Sequence[Any] = ()) -> None:
        """Records an announcement that is new. `given`: the arrays as the caller has passed them."""
        self._require(RECORDING)
        uses: list[Use] = []
        cleared: list[Any] = []
        for array in arrays:
            primal = getattr(array, "primal", array)
            refuse_subclass(primal)
            if not is_array(primal):
                raise TapeError(f"tape.overwrites takes arrays, each as an argument of its own, not a {type(array).__name__}")
            if primal.dtype.hasobject:
                raise TapeError(f"tape.overwrites: `arrays` hold numbers, not Python objects: {show(primal)}")
            memory = resolve(primal)
            allocation = self.allocation(memory)
            region = of_array(primal, memory.offset * int(primal.dtype.itemsize))
            uses.append(Use(allocation, region, 0))
            if isinstance(array, Duplicated | BatchDuplicated):
                for shadow in (array.shadow,) if isinstance(array, Duplicated) else array.shadows:
                    cleared.extend(float_views(shadow))
            else:
                cleared.extend(root[a:z] for root, a, z in self.shadows.written(allocation, region))
        if arrays:
            self._library = self._library or namespace(getattr(arrays[0], "primal", arrays[0])).__name__
            self.streams.enter(executor_of(self._library))
        self.stage((), uses, lambda _: None, foreign=True)
        if self.within is not None:
            self.within.coming(Rerun({}, of_uses(uses), of_uses(uses), None, None, "the tape does not see it"), (Foreign, line))
        with Saving(self, Foreign("foreign code", where, Effects(tuple(uses), must=tuple(uses)), cleared)):
            self.guard.open((*arrays, *given))
        for use in uses:
            use.allocation.written_bare = use.allocation.written_bare | use.region
        step = ForeignStep(Foreign, tuple(arrays), line, where)
        step.arrays = tuple(found for a in arrays for found in arrays_of(a))
        step.stream = True if executor_of(self._library).stream() is not None else None
        self._note(step, all(map(lasting, arrays)))

    def new(self, library: Any, shape: tuple[int, ...], dtype: Any, active: bool) -> Any:
        """An array for an operation that makes one, not cleared: it is no concern of the caller's. In a known program it is what was made
        there the last time. `active`: whether it is to have a shadow."""
        wanted, step = (library.__name__, shape, dtype, active), self.cursor.expected
        if isinstance(step, MadeStep) and step.args == wanted and self.make_again():
            return step.made.handed_out()
        self.differ(f"an array of shape {shape} and type {np.dtype(dtype)} is made")
        before = self.cursor.before(MadeStep)
        if library is np:
            asked(math.prod(shape) * np.dtype(dtype).itemsize)
        if self.within is not None and self.state.is_recording:
            self._library = self._library or library.__name__
            spare = self.made.spare(shape, dtype, active, executor_of(library.__name__).stream(), self.shadows)
            if spare is not None:
                frame = user_frame()
                self.record_renewed(spare, wanted, line_of(frame), place_of(frame))
                return spare.handed_out()
            self.within.make_room(math.prod(shape) * np.dtype(dtype).itemsize)
        array = library.empty(shape, dtype)
        if not array.size:
            return array
        self.memory.took(Kind.primal, array)
        made = Made(array, self.temporary_shadow, self, executor_of(library.__name__).stream(), place_of(user_frame()))
        if before is not None and before.held:
            made.apart = True
        self.record_made(made, wanted)
        return made.handed_out()

    @property
    def awaited(self) -> Made | None:
        """In a program that is known, an array that it makes next."""
        step = self.cursor.expected
        return step.made if isinstance(step, MadeStep) else None

    def make_again(self) -> bool:
        """Makes it; False if the program is another one."""
        step = self.cursor.expected
        if step is None or not self._let_go(step) or not self._repeat(step):
            return False
        if isinstance(step, MadeStep) and step.made.stream is not None:
            step.made.stream = executor_of(self._library).stream()
            self.streams.making(step.made.stream, step.made.source)
        return True

    def record_made(self, made: Made, wanted: tuple[Any, ...]) -> None:
        """Notes an array that an operation has made; or made again, with the shadow that it had then."""
        self.made.note(made)
        self.streams.making(made.stream, made.source)
        self._note(MadeStep(Made, wanted, None, made.where, made), True)

    def record_renewed(self, made: Made, wanted: tuple[Any, ...], line: Any, where: str) -> None:
        """Records that the memory of an array that an operation has made is that of a new one from here on."""
        assert self.within is not None
        memory = resolve(made.array)
        allocation = self.allocation(memory)
        region = of_array(made.array, memory.offset * int(made.array.dtype.itemsize))
        uses = (Use(allocation, region, 0),)
        cleared = [root[a:z] for root, a, z in self.shadows.written(allocation, region)]
        self.within.coming(Rerun({}, of_uses(uses), of_uses(uses), None, None), (Renewed, line))
        with Saving(self, Renewed(allocation.name, where, Effects(uses, must=uses), cleared)):
            pass
        allocation.read_bare, made.where = allocation.read_bare - region, where
        self._note(RenewedStep(Renewed, wanted, line, where, made), True)

    def _let_go(self, step: Step) -> bool:
        """Whether the memory of an array can be used again, as it was when the program was new. Else the program is recorded anew."""
        if not isinstance(step, RenewedStep):
            return True
        if not self.made.is_free(step.made):
            self.differ("the array that was made there before is still held")
            return False
        self.made.part(step.made, executor_of(self._library))
        return True

    def maker(self, array: NdArray) -> Made | None:
        """What is known of an array that an operation has just made; None where it has no elements."""
        return self.made.maker(array)

    def temporary_shadow(self, array: NdArray) -> Any:
        """A shadow of zeros for a temporary of this recording, in memory of the tape, laid out like the array (C-contiguous)."""
        self.differ("a shadow is made for a temporary that had none")
        self._library = self._library or namespace(array).__name__
        return self.made.shadow(array)

    def inner(self, args: Any) -> Any:
        """The arguments of a call, with the pairs that the tape knows in place of handles."""
        if not self.made.arrays or not isinstance(args, tuple | list) or not any(type(x) is Temporary for x in args):
            return args
        return (FlatArguments if type(args) is FlatArguments else tuple)(inner(x, self) for x in args)

    def as_known(self, x: Any) -> Any:
        """An argument as the tape knows it."""
        x, staging = self.made.inside(inner(x, self)), self.made.staging
        return staging.arguments((x,), (), None)[0] if staging.holds_any else x

    def has_met(self, x: Any) -> bool:
        """Whether the memory of an array, or of a pair, is part of the recording."""
        return address(resolve(getattr(self.as_known(x), "primal", x)).root) in self.allocations

    def has_shadow(self, array: NdArray) -> bool:
        """Whether memory has a shadow in the recording, by whichever pair."""
        memory = leaf_memory(self.as_known(array))
        known = self.allocations.get(address(memory.root))
        region = of_array(array, memory.offset * int(memory.root.dtype.itemsize))
        return known is not None and self.shadows.of(known, region) is not None


class Saving:
    """Saves what an operation is about to overwrite, and records the operation if it succeeds; poisons the tape if not."""

    def __init__(self, tape: OperationRecording, operation: Operation) -> None:
        self.tape, self.operation = tape, operation

    def __enter__(self) -> None:
        self.tape._require(RECORDING)
        self.operation = self.tape._before(self.operation)
        self.tape.guard.lock_operands(self.operation)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            if not self.tape.doing.dry:
                perform(storing(self.tape.copied[1]))
            self.tape._after(self.operation)
        else:
            self.tape.state = interrupted_by(error, f"at operation {len(self.tape.operations)} ({self.operation.name})")
