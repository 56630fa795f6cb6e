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
from ...api import FlatArguments, Kernel, on_stream
from ...arguments.deferred_clearing import end_internal_reads, internal_reads
from ...errors import ShadowError
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...progress import doing
from ...runtime.array_types import Extents
from ..memory.arena import Pooled
from ..replay.differences import difference
from .call_keys import LaunchKey, constant, lasting
from .known_calls import KnownLaunch, call_key, line_of, place_of, user_frame
from .launch_kind import touched
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
        with on_stream(stream, args), internal_reads():
            call = kernel.recalled(grid, block, args, shared_mem, stream)
            if call is not None:
                return self._known_launch(kernel, call, args, where)
            with doing(f"recording step {len(self.operations)} ({where})"), kernel.room():
                try:
                    call = kernel.bind_moved(grid, block, args, shared_mem, stream)
                except ShadowError:
                    self.made.refuse_earlier((d.name for d in kernel.parameters), args)
                    raise
                return self._known_launch(kernel, call, args, where)

    def _known_launch(self, kernel: Kernel, call: Call, args: Sequence[Any], where: str) -> KnownLaunch:
        """Judges a call by the memory behind its arguments."""
        self._library = self._library or call.bound.library
        allocations = self.footprints.behind(call)
        found = touched(kernel, call)
        self.judge.note_shadows(call, found, allocations)
        for x in args:
            self.judge.note_array(x)
        call = self.judge.with_known_shadows(kernel, call, found, allocations)
        kind = found.kind(kernel, call)
        self.judge.refuse_taint(kernel, kind.adjoint, call, found, allocations)
        operation = self.footprints.operation(kernel, kind, call, allocations, where)
        if self.store and kind.adjoint is not None:
            self.store.refuse_deciding(operation, kind.adjoint)
        arrays = tuple([x for a in call.bound.arguments for x in (a.array, *a.shadow_arrays) if x is not None])
        given, kept = [*call.bound.primals(), *call.offset_values()], args if isinstance(args, tuple) else tuple(args)
        return KnownLaunch(kept, kind.bare, self.shadows, self.shadows.count, arrays, kind.layouts, operation, kind, given)

    def _run(self, known: KnownLaunch, key: LaunchKey, lasts: bool) -> None:
        operation, call = known.operation, known.operation.call
        executor = call.executor
        with executor.on(call.stream):
            self.streams.enter(executor)
            loads, stores = self.stage(operation.reads, operation.writes, lambda position: call.bound.arguments[position].array)
            check = self._checked(known)
            stream = None if executor.stream() is None else True if call.stream is None else call.stream
            run = known.launch(executor)
            self.perform(Op(key, operation, operation, known, run, check, known.arrays, stream, loads, stores), lasts)

    def _checked(self, known: KnownLaunch) -> Callable[[], None] | None:
        """Checks a launch whose stores are in doubt; gives the check, if it is to be made again before each launch."""
        call, adjoint = known.operation.call, known.operation.adjoint
        if adjoint is None or not (known.kind.doubtful and pipeline.stores_in_doubt(adjoint, call)):
            return None
        check = partial(self._check_stores, adjoint, call)
        self.within.measure_room(check)
        return check if pipeline.stores_in_doubt(adjoint, call) else None  # or it was told for good, from the launch's numbers

    def _check_stores(self, adjoint: Adjoint, call: Call) -> None:
        self.transient.reset()
        pipeline.check_stores(adjoint, replace(call, pool=Pooled(call.executor, self.transient)))
