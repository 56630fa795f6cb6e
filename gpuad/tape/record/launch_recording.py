"""How launches of kernels are recorded.

In: a call. It is bound, judged by the memory behind its arguments, and given the adjoint that fits its annotations (`_prepare`); that is
kept for calls in the same words (`trace_cache`). Out: the launch, made, with what its adjoint needs saved before (`_run`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ... import pipeline
from ...api import FlatArguments, Kernel, check_flow, on_stream, pattern_of
from ...arguments.deferred_clearing import end_internal_reads, internal_reads
from ...arguments.layouts import layout
from ...errors import ShadowError
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...progress import doing
from ...runtime.array_types import Extents
from ...runtime.base import Memory
from ..budget.rerun import launch_again
from ..memory.arena import Full, Pooled
from ..replay.differences import difference
from ..replay.trace_cache import KnownLaunch, call_key, line_of, place_of, user_frame
from ..replay.trace_steps import LaunchStep, constant, lasting
from .operation_recording import OperationRecording, Saving


class LaunchRecording(OperationRecording):
    """The part of a tape that records launches."""

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it. One that is expected, since it came here the last time too, is only made."""
        given, step = self.inner(args), self.cursor.expected
        if type(grid) is list or type(block) is list:  # which may be changed later
            grid, block = (tuple(x) if type(x) is list else x for x in (grid, block))
        args = given
        if step is not None:
            if self.made.arrays or self.made.staging.buffers:
                with on_stream(stream, given):
                    args = self.staged(kernel, given)
            if step.what is kernel and isinstance(step, LaunchStep) and step.same(grid, block, args, shared_mem, stream):
                self.guard.again(step, given)
                if self._repeat(step):
                    return
            self.differ(difference(step, kernel, args, grid, block))
        frame = user_frame()
        line = line_of(frame)
        with on_stream(stream, given):
            args = self.staged(kernel, given, line)
        self.record_launch(kernel, grid, block, args, shared_mem, stream, line, place_of(frame))
        self.guard.follow(args, given)

    def record_launch(
        self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any, line: Any, where: str
    ) -> None:
        """Records and makes a launch that is new here. A call that was made before in the same words is known and costs a look-up."""
        try:
            fixed = type(args) is FlatArguments or all(constant(args[k]) for k in kernel.records if k < len(args))
            key = call_key(kernel, grid, block, args, shared_mem, stream, line) if fixed else None
            known = self.known_call(key, lambda: self._prepare(kernel, grid, block, args, shared_mem, stream, where))
            step = LaunchStep(kernel, known.args, line, where, grid, block, shared_mem, stream)
            self._run(known, step)
        except BaseException:
            end_internal_reads()
            self.unknown()
            raise
        self._note(step, fixed and known.lasts and lasting(grid) and lasting(block))

    def _prepare(
        self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any, where: str
    ) -> KnownLaunch:
        """Binds and judges a call. Nothing is launched."""
        with doing(f"recording step {len(self.operations)} ({where})"), kernel.room(), on_stream(stream, args):
            return self._known_launch(kernel, grid, block, args, shared_mem, stream, where)

    def _known_launch(
        self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any, where: str
    ) -> KnownLaunch:
        with internal_reads():
            try:
                call = kernel.bind_moved(grid, block, args, shared_mem, stream)
            except ShadowError:
                self.made.refuse_earlier((d.name for d in kernel.parameters), args)
                raise
        self._library = self._library or call.bound.library
        self._note_shadows(call)
        for x in args:
            self.note_array(x)
        call = self._adopt(kernel, call)
        bare = any(a.memory is not None and not a.shadows and a.memory.is_float for a in call.bound.arguments)
        adjoint, primal = None, kernel.primal(call.aliases())
        if pipeline.active_positions(call):
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            self._refuse_taint(kernel, adjoint, call)
            check_flow(kernel, call, adjoint.escapes, True)
            call = replace(call, exact=adjoint.exact)
        else:
            self._refuse_taint(kernel, None, call)
        operation = self._operation(kernel, primal, adjoint, call, where)
        if self.store and adjoint is not None:
            self.store.refuse_deciding(operation, adjoint)
        reverse = (
            [pipeline.counting(adjoint, call), *(k for s in pipeline.stages(adjoint, call) for k in s.kernels)]
            if adjoint is not None
            else []
        )
        call.prepare([(adjoint.augmented if adjoint is not None else None) or primal, *reverse])
        arguments = call.bound.arguments
        seen = tuple(u for u in self._touched(kernel, call)[0] if not arguments[u.position].shadows)
        given = [*call.bound.primals(), *call.offset_values()]
        doubtful = adjoint is not None and bool(pipeline.stores_in_doubt(adjoint, call))
        paired = not seen and all(arguments[u.position].shadows for u in operation.effects.writes)
        arrays = tuple(x for a in arguments for x in (a.array, *a.shadow_arrays) if x is not None)
        kept = args if isinstance(args, tuple) else tuple(args)
        layouts, pairs = list(map(layout, arrays)), self.shadows.count
        return KnownLaunch(kept, bare, self.shadows, pairs, arrays, layouts, operation, primal, seen, given, doubtful, paired)

    def _run(self, known: KnownLaunch, step: LaunchStep) -> None:
        operation, call = known.operation, known.operation.call
        adjoint, executor = operation.adjoint, call.executor
        with executor.on(call.stream):
            self.streams.enter(executor)
            room = 0
            reads, writes = self._touched(operation.kernel, call)
            self.stage(reads, writes, lambda position: call.bound.arguments[position].array)
            if adjoint is not None and known.doubtful:
                step.check = partial(self._check_stores, adjoint, call)
                if not self.doing.dry:
                    room = self._room_of(step.check)
                if not pipeline.stores_in_doubt(adjoint, call):  # it was told for good, from the launch's numbers
                    step.check = None
            augmented = adjoint.augmented if adjoint is not None else None
            if self.within is not None:
                if known not in self.within.again:
                    read = self.read_again(operation.kernel, known.primal, call)
                    self.within.again[known] = launch_again(known, operation, read)
                scratch = 0 if self.doing.dry else self.within.stacks(operation)
                self.within.coming(replace(self.within.again[known], scratch=scratch, room=room), (operation.kernel, step.line))
            logs = self._logs(adjoint, call) if augmented is not None and adjoint is not None else None
            if logs is not None:
                operation = replace(operation, logs=logs)
            with Saving(self, operation):
                noting = augmented if logs is not None else None
                self.doing.do(known.launch(executor) if noting is None else call.prepared(noting, [*known.given, *operation.logs]))
            if executor.stream() is not None:
                step.stream = True if call.stream is None else call.stream
        step.arrays = known.arrays
        if not known.paired:
            self._note_bare(operation, known.reads)

    def _logs(self, adjoint: Adjoint, call: Call) -> list[Memory] | None:
        """Room for what a launch writes down; None where a budget has none for it."""
        try:
            return pipeline.new_logs(adjoint, self.pooled(call)) if self.within is None or self.within.stores else None
        except Full:
            return None

    def _room_of(self, check: Callable[[], None]) -> int:
        """Makes a check, and says how much transient memory of a budget it takes: it is made each time that the program is recorded."""
        if self.within is None:
            check()
            return 0
        return self.within.measured(check)

    def _check_stores(self, adjoint: Adjoint, call: Call) -> None:
        self.transient.reset()
        pipeline.check_stores(adjoint, replace(call, pool=Pooled(call.executor, self.transient)))
