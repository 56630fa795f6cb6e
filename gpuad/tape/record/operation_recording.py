"""How operations that are no launches are recorded: calls of rules, code that the tape does not see, and arrays that operations make.

In: the operation, with its effects on memory, and what runs it. Out: an entry among the operations, a step by which the program is known
again, and what was overwritten and needed saved before. Assumed: `Recording` judges memory, `Repeating` what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from ... import pipeline
from ...api import FlatArguments
from ...arguments.annotations import BatchDuplicated, Duplicated
from ...arguments.arrays import address, is_array, leaf_memory, namespace, refuse_subclass, resolve
from ...arguments.layouts import float_views
from ...arguments.recorder import current
from ...errors import TapeError
from ...pipeline import executor_of
from ...program.ir.region import Region, of_array
from ...public_calls import show
from ...runtime.actions import Action, ByPython, perform
from ...runtime.allocation import asked
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ...runtime.tensor_versions import count_writes, tensor_of
from ..memory.arena import Full
from ..memory.buffers import Part, storing
from ..memory.lossy_arrays import Store
from ..memory.memory_log import Kind, MemoryLog
from ..memory.temporaries import Made, Temporary, inner
from ..replay.trace_replay import Repeating
from ..status import RECORDING, interrupted_by
from . import rule_calls
from .call_keys import CallKey, MadeKey, RuleKey, arrays_of, lasting
from .known_calls import KnownCall, KnownLaunch, line_of, place_of, user_frame
from .launch_kind import touched
from .operations import Effects, Foreign, Renewed, Use
from .recorded_launch import Launched
from .recorded_rule import Ruled
from .rule_calls import KnownRule
from .rule_checks import mapped
from .rule_declaration import Declared
from .trace import Op

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
        if known is None or self.judge.is_tainted or not known.holds(self.shadows):
            known = judge()
            if key is not None:
                self.known_calls[key] = known
        return cast("_K", known)

    def record(self, known: KnownRule, run: Callable[[], None], key: RuleKey) -> None:
        """Records a call of a rule that is new here, and makes it."""
        operation = known.operation
        self._library = self._library or known.library
        executor = executor_of(self._library)
        self.streams.enter(executor)

        written = [root for use in operation.effects.writes if tensor_of(root := use.allocation.root) is not None]
        reset, enter, leave = self.transient.reset, current.set, current.reset

        def act() -> None:
            reset()
            token = enter(None)  # as `unrecorded`, in a line that runs once an operation
            try:
                run()
            finally:
                leave(token)
                if written:
                    count_writes(written)

        self.store.refuse_needed(operation)
        loads, stores = self._stage_rule(operation)
        action = ByPython(act, operation.name, operation.where, operation.rule.opaque)
        stream = True if executor.stream() is not None else None
        op = Op(key, operation, operation, known, action, None, known.arrays, stream, loads, stores)
        self.perform(op, all(lasting(x, copied=True) for x in key.args))

    def perform(self, op: Op, lasts: bool, opened: Sequence[Any] = ()) -> None:
        """Makes an op that is new: what it is about to overwrite, and is needed, is saved before. Where that fails on the way the tape is
        interrupted. `lasts`: it is known by its arguments, none of which can be changed into something else; `opened`: arrays that code
        which the tape does not see is about to overwrite."""

        def make(action: Action | None) -> None:
            if opened:
                self.guard.open(opened)
            if action is not None:
                self.saver.log.do(action)
            perform(storing(op.stores))

        self._append(self.within.rerunning(op), make)
        self.cursor.note(op.key, lasts)

    def _append(self, op: Op, make: Callable[[Action | None], None]) -> None:
        """Appends an op, which `make` makes by an action, with what is saved before it."""
        self._require(RECORDING)
        time, trace = len(self.operations), self.trace
        op = trace.coming = self._with_logs(op)
        assert op.operation is not None
        try:
            self.within.before(op.operation, time)
            if self.marks.looks:
                self.marks.compare(op.operation, time)
            self.saver.before(op.operation, time)
            operation = trace.at(time).operation
            assert operation is not None
            self.guard.lock_operands(operation)
            try:
                make(_making(op))
                self.saver.after(operation, time)
                if self.marks.looks:
                    self.marks.mark(operation)
                self.judge.note_uses(op)
                trace.append(trace.coming.made(self.saver.log.taken(), self.within.saved.here(), self.guard.taken()))
            except BaseException as error:
                self.state = interrupted_by(error, f"at operation {time} ({operation.name})")
                raise
        finally:
            trace.coming = None
        self.within.after(time)
        if copied := self.saver.log.taken():
            trace.change(time, actions=(*trace.at(time).actions, *copied))

    def take_over(self, op: Op, paired: set[int]) -> None:
        """Records an op that was made in this round already. `paired`: ids of calls whose shadows are known, to which its own is added."""
        if op.operation is None:
            assert isinstance(op.key, MadeKey)
            self.record_made(op)
            return
        if isinstance(op.key, MadeKey):
            op.key.made.where = op.key.where
        if op.known is None or id(op.known) not in paired:
            paired.add(id(op.known))
            self._pair(op)
        self.made.staging.note_written(op.loads if op.key.what is Foreign else op.stores)

        def make(action: Action | None) -> None:
            if op.key.what is Foreign:
                self.guard.open(op.key.args)
            elif action is not None:
                self.saver.log.do(action)

        rerun = None if op.rerun is None else replace(op.rerun, arrives={})
        self._append(replace(op, operation=op.came, rerun=rerun, keeping=None), make)

    def _pair(self, op: Op) -> None:
        """Meets the memory of an op, and notes the shadows with which it came."""
        operation = op.came
        if isinstance(operation, Launched):
            call = operation.call
            self.judge.note_shadows(call, touched(operation.kernel, call), self.footprints.behind(call))
            for x in op.key.args:
                self.judge.note_array(x)
        elif isinstance(operation, Ruled):
            rule_calls.note_shadows(operation, op.key, self)
        elif operation is not None:
            for use in operation.effects.writes:
                self.allocation(Memory(use.allocation.root))

    def _with_logs(self, op: Op) -> Op:
        """An op with room for what it writes down for its adjoint; as it is where a budget has none for that."""
        operation = op.operation
        if not isinstance(operation, Launched) or operation.adjoint is None or operation.adjoint.augmented is None:
            return op
        if not self.within.stores:
            return op
        with suppress(Full):
            return replace(op, operation=replace(operation, logs=pipeline.new_logs(operation.adjoint, self.saver.pooled(operation.call))))
        return op

    def _stage_rule(self, operation: Ruled) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        operands, others = operation.operands, []

        def collect(_: str, x: Any) -> None:
            if is_array(x) and x.size and not x.dtype.hasobject:
                others.append(x)

        for name, value in operation.values.items():
            if name not in operands:
                mapped(value, name, collect)
        uses = [o.use for o in operands.values()]
        names, written = operation.effect.arrays, [operands[n].use for n in operation.effect.writes if n in operands]
        return self.stage(uses, written, lambda position: operands[names[position]].array, others)

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
        loads, stores = self.stage((), uses, lambda _: None, foreign=True)
        operation = Foreign("foreign code", where, Effects(tuple(uses), must=tuple(uses)), tuple(cleared))
        met = tuple(found for a in arrays for found in arrays_of(a))
        stream = True if executor_of(self._library).stream() is not None else None
        key = CallKey(Foreign, tuple(arrays), line, where)
        op = Op(key, operation, operation, arrays=met, stream=stream, loads=loads, stores=stores)
        self.perform(op, all(map(lasting, arrays)), (*arrays, *given))

    def new(self, library: Any, shape: tuple[int, ...], dtype: Any, active: bool) -> Any:
        """An array for an operation that makes one, not cleared: it is no concern of the caller's. In a known program it is what was made
        there the last time. `active`: whether it is to have a shadow."""
        wanted, made = (library.__name__, shape, dtype, active), self.awaited
        if made is not None and self.cursor.expected is not None and self.cursor.expected.key.args == wanted and self.make_again():
            return made.handed_out()
        self.differ(f"an array of shape {shape} and type {np.dtype(dtype)} is made")
        before = self.cursor.before(MadeKey)
        if library is np:
            asked(math.prod(shape) * np.dtype(dtype).itemsize)
        if self.within.is_limited and self.state.is_recording:
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
        self.record_made(Op(MadeKey(Made, wanted, None, made.where, made)))
        return made.handed_out()

    @property
    def awaited(self) -> Made | None:
        """In a program that is known, an array that it makes next."""
        op = self.cursor.expected
        return op.key.made if op is not None and isinstance(op.key, MadeKey) else None

    def make_again(self) -> bool:
        """Makes it; False if the program is another one."""
        op, made = self.cursor.expected, self.awaited
        if op is None or not self._let_go(op) or not self._repeat(op):
            return False
        if made is not None and made.stream is not None:
            made.stream = executor_of(self._library).stream()
            self.streams.making(made.stream, made.source)
        return True

    def record_made(self, op: Op) -> None:
        """Notes an array that an operation has made; or made again, with the shadow that it had then."""
        assert isinstance(op.key, MadeKey)
        made = op.key.made
        made.where = op.key.where
        self.made.note(made)
        self.streams.making(made.stream, made.source)
        self.trace.append(replace(op, room=self.within.saved.here()))

    def record_renewed(self, made: Made, wanted: tuple[Any, ...], line: Any, where: str) -> None:
        """Records that the memory of an array that an operation has made is that of a new one from here on."""
        memory = resolve(made.array)
        allocation = self.allocation(memory)
        region = of_array(made.array, memory.offset * int(made.array.dtype.itemsize))
        uses = (Use(allocation, region, 0),)
        cleared = tuple(root[a:z] for root, a, z in self.shadows.written(allocation, region))
        operation, made.where = Renewed(allocation.name, where, Effects(uses, must=uses), cleared), where
        self.perform(Op(MadeKey(Renewed, wanted, line, where, made), operation, operation), True)

    def _let_go(self, op: Op) -> bool:
        """Whether the memory of an array can be used again, as it was when the program was new. Else the program is recorded anew."""
        if op.key.what is not Renewed:
            return True
        assert isinstance(op.key, MadeKey)
        if not self.made.is_free(op.key.made):
            self.differ("the array that was made there before is still held")
            return False
        self.made.part(op.key.made, executor_of(self._library))
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

    def knows_pair(self, x: Any) -> bool:
        """Whether the memory of an array, or of a pair, is part of the recording."""
        return address(resolve(getattr(self.as_known(x), "primal", x)).root) in self.allocations

    def has_shadow(self, array: NdArray) -> bool:
        """Whether memory has a shadow in the recording, by whichever pair."""
        memory = leaf_memory(self.as_known(array))
        known = self.allocations.get(address(memory.root))
        region = of_array(array, memory.offset * int(memory.root.dtype.itemsize))
        return known is not None and self.shadows.of(known, region) is not None


def _making(op: Op) -> Action | None:
    """The actions that make an op: with what it writes down for its adjoint, if there is room for that."""
    operation, known = op.operation, op.known
    if not isinstance(operation, Launched) or not operation.logs:
        return op.run
    assert isinstance(known, KnownLaunch) and operation.adjoint is not None and operation.adjoint.augmented is not None
    return operation.call.prepared(operation.adjoint.augmented, [*known.given, *operation.logs])
