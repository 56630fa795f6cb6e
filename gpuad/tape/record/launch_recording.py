"""How launches of kernels are recorded.

In: a call. It is bound, judged by the memory behind its arguments, and given the adjoint that fits its annotations (`_prepare`); that is
kept for calls in the same words (`known_calls`). Out: the launch, made, with what its adjoint needs saved before (`_run`).
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
from ..memory.arena import Pooled
from ..replay.differences import difference
from .call_keys import LaunchKey, constant, lasting
from .known_calls import KnownLaunch, call_key, line_of, place_of, user_frame
from .operation_recording import OperationRecording
from .trace import Op


class LaunchRecording(OperationRecording):
    """The part of a tape that records launches."""

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it. One that is expected, since it came here the last time too, is only made."""
        given, op = self.inner(args), self.cursor.expected
        if type(grid) is list or type(block) is list:  # which may be changed later
            grid, block = (tuple(x) if type(x) is list else x for x in (grid, block))
        args = given
        if op is not None:
            if self.made.arrays or self.made.staging.buffers:
                with on_stream(stream, given):
                    args = self.staged(kernel, given)
            key = op.key
            if key.what is kernel and isinstance(key, LaunchKey) and key.same(grid, block, args, shared_mem, stream):
                self.guard.again(op, given)
                if self._repeat(op):
                    return
            self.differ(difference(key, kernel, args, grid, block))
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
            named = LaunchKey(kernel, known.args, line, where, grid, block, shared_mem, stream)
            self._run(known, named, fixed and known.lasts and lasting(grid) and lasting(block))
        except BaseException:
            end_internal_reads()
            self.unknown()
            raise

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
        self.judge.note_shadows(call)
        for x in args:
            self.judge.note_array(x)
        call = self.judge.with_known_shadows(kernel, call)
        bare = any(a.memory is not None and not a.shadows and a.memory.is_float for a in call.bound.arguments)
        adjoint, primal = None, kernel.primal(call.aliases())
        if pipeline.active_positions(call):
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            self.judge.refuse_taint(kernel, adjoint, call)
            check_flow(kernel, call, adjoint.escapes, True)
            call = call.but(exact=adjoint.exact)
        else:
            self.judge.refuse_taint(kernel, None, call)
        operation = self.footprints.operation(kernel, primal, adjoint, call, where)
        if self.store and adjoint is not None:
            self.store.refuse_deciding(operation, adjoint)
        reverse = (
            [pipeline.counting(adjoint, call), *(k for s in pipeline.stages(adjoint, call) for k in s.kernels)]
            if adjoint is not None
            else []
        )
        call.prepare([(adjoint.augmented if adjoint is not None else None) or primal, *reverse])
        arguments = call.bound.arguments
        seen = tuple(u for u in self.footprints.touched(kernel, call)[0] if not arguments[u.position].shadows)
        given = [*call.bound.primals(), *call.offset_values()]
        doubtful = adjoint is not None and bool(pipeline.stores_in_doubt(adjoint, call))
        paired = not seen and all(arguments[u.position].shadows for u in operation.effects.writes)
        arrays = tuple(x for a in arguments for x in (a.array, *a.shadow_arrays) if x is not None)
        kept = args if isinstance(args, tuple) else tuple(args)
        layouts, pairs = list(map(layout, arrays)), self.shadows.count
        return KnownLaunch(kept, bare, self.shadows, pairs, arrays, layouts, operation, primal, seen, given, doubtful, paired)

    def _run(self, known: KnownLaunch, key: LaunchKey, lasts: bool) -> None:
        operation, call = known.operation, known.operation.call
        executor = call.executor
        with executor.on(call.stream):
            self.streams.enter(executor)
            reads, writes = self.footprints.touched(operation.kernel, call)
            loads, stores = self.stage(reads, writes, lambda position: call.bound.arguments[position].array)
            check = self._checked(known)
            stream = None if executor.stream() is None else True if call.stream is None else call.stream
            run = known.launch(executor)
            self.perform(Op(key, operation, operation, known, run, check, known.arrays, stream, loads, stores), lasts)

    def _checked(self, known: KnownLaunch) -> Callable[[], None] | None:
        """Checks a launch whose stores are in doubt; gives the check, if it is to be made again before each launch."""
        call, adjoint = known.operation.call, known.operation.adjoint
        if adjoint is None or not known.doubtful:
            return None
        check = partial(self._check_stores, adjoint, call)
        self.within.measure_room(check)
        return check if pipeline.stores_in_doubt(adjoint, call) else None  # or it was told for good, from the launch's numbers

    def _check_stores(self, adjoint: Adjoint, call: Call) -> None:
        self.transient.reset()
        pipeline.check_stores(adjoint, replace(call, pool=Pooled(call.executor, self.transient)))
