"""Programs of in-place launches, recorded and reversed.

    tape = gpuad.Tape()
    with tape:
        step[grid, block](U, V, n)          # recorded, and run as ever
    tape.reverse({U: seed})

A tape keeps what each launch does to memory and what its adjoint needs. A region is copied just before it would be overwritten, and only
if a recorded adjoint needs it, once for all who do. The reverse hands each adjoint the version that it needs: live, saved, or put
together from pieces in a transient buffer; primal arrays are not written (unless `restore=True`).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np

from .. import pipeline
from ..api import FlatArguments, Kernel, check_flow, on_stream, pattern_of
from ..arguments.annotations import BatchDuplicated, Duplicated, address, namespace, resolve
from ..arguments.deferred_clearing import loudly, quietly
from ..arguments.layouts import float_views, layout
from ..arguments.recorder import current, unrecorded
from ..budget import rounded, shown
from ..errors import ShadowError, TapeError
from ..ir.dtypes import shadow_dtype
from ..pipeline import Call, executor_of
from ..pipeline.adjoint import Adjoint
from ..runtime.actions import ByPython, perform
from ..runtime.allocation import asked, mapped
from ..runtime.base import Memory, owner_of
from . import export
from .account import Account, account
from .arena import Arena, Full, Pooled
from .array_names import array_names
from .blocks import Block, Entry, Exit
from .budgeted import Budget
from .buffer_rotation import redirected
from .change_detection import Watch
from .copy_on_write import CopyOnWriteShadows, Homes
from .graph import Captured, Graph, forward_parts, reverse_parts
from .holding import Holding, holding
from .in_place_seeds import Placements, where_of
from .lossy import every, lossy_of
from .lossy_checks import refuse_deciding, refuse_needed, refuse_unfit, refuse_unmet
from .memory_log import Kind, MemoryLog, What
from .offload import checked
from .operations import Effects, Foreign, Operation, Renewed, Use
from .outlook import Outlook, Prospects, Tradeoff
from .reaching import unreached
from .recorded_launch import Launched
from .region import Region, of_array
from .relaunch import launch_again, rule_again
from .rerun import Rerun, of_uses
from .reversal_plan import Plan, Reversal
from .rules import Ruled
from .seeds import Asked, Seeding, as_before
from .streams import Streams
from .supposed import supposed
from .temporaries import Made, Temporary, inner
from .trace_cache import Recipe, call_key, line_of, place_of, user_frame
from .trace_replay import Repeating
from .trace_steps import ForeignStep, LaunchStep, MadeStep, RenewedStep, Step, arrays_of, constant, lasting
from .versions import Allocation
from .zero_regions import Stale

Seed = tuple[Any, Any, Any, Region]  # the shadow's elements, what goes there, the shadow's allocation and which elements of it these are

_REVERSED = "reversed already; record the program again"
_REPLAYED = "used up by a graph; record the program again"
_ENTRY = "block"
_INSTEAD = "write through the Duplicated (`U[0] = ...`) or by gpuad.ops, or announce it with tape.overwrites()"


@dataclass(frozen=True)
class Stats:
    """Bytes: `saved` copies of overwritten regions; `needed` by adjoints where they still are; `assembled` copied in the reverse to put
    versions together; `retained` allocations kept alive; the `arena`'s size; `scratch` of the reverse kernels; `shadow` arrays.
    `allocations`: new chunks since the last recording began."""

    saved_bytes: int
    needed_bytes: int
    assembled_bytes: int
    retained_bytes: int
    arena_bytes: int
    scratch_bytes: int
    shadow_bytes: int
    peak_bytes: int
    allocations: int


class Tape(Seeding, Repeating):
    """Records the launches of the thread that has entered it. Use it again for the same program: its memory is kept.

        tape = gpuad.Tape()
        with tape:
            square[grid, block](X, n)           # X = Duplicated(x)
        tape.reverse({X: seed})                 # the gradient is in X.shadow

    In its block the arrays of NumPy that the recording depends on are read-only to others; after it the memory that the reverse reads live
    is compared. `restore`: after a reverse the primal arrays hold what they held before the recording. `check`: None, or 'exact': what the
    recording depends on is compared at every operation, too, by all of its bytes. `save`: 'needed', or 'all' (for tests): everything that
    is overwritten. `budget`: the most memory that the tape may add to what the caller has, in bytes (an int), as a text ('2 GiB', '500 MB',
    '25%'), or as a fraction of what is free (a float): saved versions, checkpoints, scratch, shadows of temporaries and arrays that
    operations make count, as a pool rounds them. Within it operations run again where what they overwrote was not kept, and at the end of a
    reverse arrays hold what the program left in them; BudgetError says the smallest budget that would do. `offload`: where checkpoints of a
    program that is known may go besides, 'host' (pinned memory, for a program on a GPU) or a folder, for a file that is gone with the
    process. `store`: {Duplicated: 'bfloat16', 'float16' or 'float32'}: of these arrays the overwritten versions that adjoints read are
    stored in fewer bits; `explain()` has the largest error of what was stored. A launch in which such a value decides an index, a condition
    or a whole number, and a rule whose reverse reads one, are refused. Raises TapeError for other values, and when it is entered while
    another one records in this thread.
    """

    def __init__(
        self,
        *,
        restore: bool = False,
        check: str | None = None,
        save: str = "needed",
        budget: int | float | str | None = None,
        offload: str | os.PathLike[str] | None = None,
        store: Mapping[Any, str] | None = None,
    ) -> None:
        if check not in (None, "exact") or save not in ("needed", "all"):
            raise TapeError("Tape takes check=None or 'exact', save='needed' or 'all'")
        if budget is not None and save == "all":
            raise TapeError("save='all' is everything that is overwritten: no budget goes with it")
        if offload is not None:
            if budget is None:
                raise TapeError("offload goes with a budget: Tape(budget='2 GiB', offload=...)")
            checked(offload)
        self.restore, self.save_all, self.lossy = restore, save == "all", lossy_of(store)
        self.exact = (check or os.environ.get("GPUAD_CHECK")) == "exact"
        self._entries: dict[str, Entry] = {}  # at most one
        self.opening: weakref.ref[Block] | None = None  # that comes next
        self._recorded = False  # whether it ever was
        self._streams = Streams()
        self.memory = MemoryLog(self)
        self._homes = Homes(self._new_home)
        self._temporaries: dict[int, Any] = {}
        self._owners: dict[int, int] = {}  # whose shadow lives there in this recording: addresses
        self.own: dict[int, Made] = {}  # arrays that operations made in this recording, by address
        work = lambda: self._streams.work(executor_of(self._library))  # noqa: E731
        within = None if budget is None else Budget(self, budget, self._bytes, work, offload)
        self._transient: Arena = Arena(partial(self._bytes, kind=Kind.scratch), work) if within is None else within.transient
        self._library: str | None = None
        self.recipes: dict[Any, Any] = {}
        self.words: dict[Any, Any] = {}
        self._lease: object = None
        self._begun = self._seconds = 0.0
        self._supposed: tuple[tuple[object, ...], Prospects] | None = None
        super().__init__(Arena(partial(self._bytes, kind=Kind.saved)) if within is None else within.saved, within)
        weakref.finalize(self, self._streams.let_all_go).atexit = False
        weakref.finalize(self, self.guard.locks.release).atexit = False

    def _new_home(self, size: int, dtype: Any) -> Any:
        """Memory for shadows of temporaries."""
        if self.within is not None and self.state == "recording":
            self.within.make_room(size * np.dtype(dtype).itemsize)
        return self._zeros(size, dtype, Kind.shadow)

    def _zeros(self, size: int, dtype: Any, kind: Kind) -> Any:
        """Memory of the tape: all that it has, but for arrays that operations make, comes from here."""
        executor = executor_of(self._library)
        self._streams.owning(executor)
        return self.memory.took(kind, mapped(size, dtype) if executor.stream() is None else executor.zeros(size, dtype))

    def _bytes(self, size: int, kind: Kind = Kind.checkpoint) -> Any:
        made, stream = self._zeros(size, np.dtype(np.uint8), kind), executor_of(self._library).stream()
        if stream is not None:
            stream.synchronize()  # other streams will use it, too; it happens once
        return made

    def _out_of_memory(self, state: str) -> str:
        """What to do where memory has run out."""
        kinds = ", ".join(f"{shown(n)} {kind}" for kind, n in self.memory.held.items() if n)
        has = f"{shown(self.memory.total)} ({kinds})" if kinds else "nothing"
        return (
            f"gpuad: the tape had {has} when memory ran out. {state} Let go of arrays, or give the tape less: gpuad.Tape(budget=...) keeps "
            "within so many bytes, and tape.tradeoff() says of a recorded program what budgets cost."
        )

    def forget(self) -> None:
        """Begins anew; the tape's own memory is kept, the caller's is let go."""
        self.recipes.clear()
        self.words.clear()
        self._homes.reset()
        self._temporaries, self._owners = {}, {}
        self._streams.let_go()
        self.own = {}
        super().forget()
        self.assembled = 0
        self._watch: Watch | None = None

    __exit__ = Exit()

    def __enter__(self) -> Tape:
        entry = Entry(get_ident(), self.opening)
        try:
            self._enter(entry)
            return self
        except BaseException:  # an interrupt: nobody will leave a block that was not entered
            if self._entries.get(_ENTRY) is entry:
                self._leave()
            raise

    def _enter(self, entry: Entry) -> None:
        """Takes the tape for a block, and begins to record. TapeError if another block has it."""
        outer = current.get()
        if outer is not None and outer is not self:
            raise TapeError(
                "a tape is entered inside another; one program has one tape. (If an interrupt has left the block of the other one, enter "
                "that one again.)"
            )
        known = self._entries.setdefault(_ENTRY, entry)  # one step, whichever threads come
        if known is not entry:
            self._take_over(known, outer)
            self._entries[_ENTRY] = entry
        self.memory.begin()  # while what it had recorded is still there, for who listens
        self.state = "interrupted before the recording began"  # what it had recorded is changed from here on
        for lossy in every(self.lossy):
            lossy.measured.forget()
        if not self._expects():
            self.forget()
        self._streams.begin()
        self._begun = perf_counter()
        self._chunks = self._saved.allocations + self._transient.allocations + self._homes.allocations
        self.guard.locks.begin()
        self.state = "recording"
        current.set(self)

    def _take_over(self, known: Entry, outer: object) -> None:
        """Ends what an interrupt has left of an earlier block, if it was in this thread or in one that has ended."""
        here = outer is self and known.thread == get_ident()
        if here and known.is_open:
            raise TapeError("a tape is entered inside its own block; one program is one block")
        if not here and any(thread.ident == known.thread for thread in threading.enumerate()):
            raise TapeError(
                "the tape is recording already, in another thread or task: each has a tape of its own. That recording goes on, and nothing "
                "was recorded here."
            )
        self._leave()

    def _leave(self) -> list[Any]:
        """No block has the tape any more, and no array is locked by it. May be called again. Gives the arrays that were made writable in
        the block."""
        opened = self.guard.locks.release()
        if current.get() is self:
            current.set(None)
        self._entries.clear()
        return opened

    def lost(self, block: Any) -> None:
        """A block was left without a word: an interrupt came first."""
        entry = self._entries.get(_ENTRY)
        if entry is not None and entry.block is block:
            self._leave()
            self.state = "interrupted at the end of the recording"

    def left(self, kind: Any, error: Any) -> None:
        """A block ends."""
        try:
            self._exit(kind, error)
        finally:  # also if an interrupt comes while arrays are unlocked
            self._leave()
            if self.state == "recording":
                self.state = "interrupted at the end of the recording"
            self.memory.tell(What.recorded if self.state == "recorded" else What.failed)

    def _exit(self, kind: Any, error: Any) -> None:
        """Completes the recording, or says why it is none."""
        entered, opened = bool(self._entries), self._leave()
        if kind is not None:
            if isinstance(error, ValueError) and "read-only" in str(error):
                error.add_note(f"If this is an array of the recording: a tape locks what it depends on until its block ends; {_INSTEAD}.")
            if isinstance(error, MemoryError):
                error.add_note(self._out_of_memory("Arrays are as the operations before left them. The tape can be entered again."))
            self.state = f"interrupted by {kind.__name__}: {error}"
            return
        if not entered:
            self.state = "interrupted: it was entered again inside of its own block"
            raise TapeError("the tape was entered again inside of its own block, and left there: one program is one block; record it again")
        if self.state != "recording":  # an operation failed, and its error was caught inside
            return
        if opened:
            self.state = f"interrupted: an array of shape {opened[0].shape} was made writable in its block"
            raise TapeError(f"{self.state.removeprefix('interrupted: ')}, where the tape depends on it: {_INSTEAD}")
        if self._library is not None:
            self._streams.join(executor_of(self._library))
        if not self._whole():
            self._end()
        self.assembled = 0
        self._transient.reset()
        self._seconds = perf_counter() - self._begun
        watched = list(self.allocations.values()) if self.within is None else self.within.watched()
        self._watch = Watch.of(watched, self._portion)
        self.state = "recorded"

    @property
    def first(self) -> bool:
        """Whether this is the first recording, of NumPy arrays: elsewhere a look would wait for the stream."""
        return not self._recorded and self._library == "numpy"

    def _end(self) -> None:
        """What is done at the end of a program that was not known."""
        try:
            self._compare(None)
        except TapeError as changed:
            self.state = str(changed)
            raise
        try:
            refuse_unmet(self.lossy, self.allocations)
        except TapeError:
            self.state = "interrupted: store= names an array that it does not meet"
            raise
        self._recorded = True
        self.demand_all()
        self._paired = self.shadows.count
        self._remember()
        if self.within is not None:
            self.within.conclude()

    def launch(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it. One that is expected, since it came here the last time too, is only made."""
        args, step = self._inner(args), self._next
        if step is not None:
            same = step.what is kernel and isinstance(step, LaunchStep) and step.same(grid, block, args, shared_mem, stream)
            if same:
                self.guard.again(step, args)
                if self._repeat(step):
                    return
            self.differ()
        frame = user_frame()
        self.record_launch(kernel, grid, block, args, shared_mem, stream, line_of(frame), place_of(frame))

    def record_launch(
        self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, line: Any, where: str
    ) -> None:
        """Records and makes a launch that is new here. A call that was made before in the same words is known and costs a look-up."""
        try:
            fixed = type(args) is FlatArguments or all(constant(args[k]) for k in kernel.records if k < len(args))
            key = call_key(kernel, grid, block, args, shared_mem, stream, line) if fixed else None
            recipe = self.recipes.get(key) if key is not None else None
            if recipe is None or not self.holds(recipe):
                with kernel.room(), on_stream(stream, args):
                    recipe = self._prepare(kernel, grid, block, args, shared_mem, stream, where)
                if key is not None:
                    self.recipes[key] = recipe
            step = LaunchStep(kernel, recipe.args, line, where, grid, block, shared_mem, stream)
            self._run(recipe, step)
        except BaseException:
            loudly()
            self.unknown()
            raise
        self._note(step, fixed and recipe.lasts and lasting(grid) and lasting(block))

    def holds(self, recipe: Any) -> bool:
        """Whether what was found out about a call is true of this moment of this recording."""
        if recipe.recording is not self.shadows or self._tainted or (recipe.bare and recipe.pairs != self.shadows.count):
            return False
        return bool(list(map(layout, recipe.arrays)) == recipe.layouts)

    def _prepare(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, where: str) -> Recipe:
        """Binds and judges a call. Nothing is launched."""
        with quietly():
            try:
                call = kernel.bind(grid, block, args, shared_mem, stream)
            except ShadowError:
                self._refuse_earlier(kernel, args)
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
        if self.lossy and adjoint is not None:
            refuse_deciding(operation, adjoint)
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
        layouts = list(map(layout, arrays))
        return Recipe(
            operation, primal, args if isinstance(args, tuple) else tuple(args), bare, self.shadows, self.shadows.count, seen, given,
            doubtful, paired, arrays, layouts,
        )  # fmt: skip

    def _run(self, recipe: Recipe, step: LaunchStep) -> None:
        operation, call = recipe.operation, recipe.operation.call
        adjoint, executor = operation.adjoint, call.executor
        with executor.on(call.stream):
            self._streams.enter(executor)
            if adjoint is not None and recipe.doubtful:
                step.check = partial(self._check_stores, adjoint, call)
                if not self.doing.dry:
                    step.check()
                if not pipeline.stores_in_doubt(adjoint, call):  # it was told for good, from the launch's numbers
                    step.check = None
            augmented = adjoint.augmented if adjoint is not None else None
            if self.within is not None:
                if recipe not in self.within.again:
                    read = self.read_again(operation.kernel, recipe.primal, call)
                    self.within.again[recipe] = launch_again(recipe, operation, read)
                scratch = 0 if self.doing.dry else self.within.stacks(operation)
                self.within.coming(replace(self.within.again[recipe], scratch=scratch), (operation.kernel, step.line))
            logs = self._logs(adjoint, call) if augmented is not None and adjoint is not None else None
            if logs is not None:
                operation = replace(operation, logs=logs)
            with _Step(self, operation):
                noting = augmented if logs is not None else None
                self.doing.do(recipe.launch(executor) if noting is None else call.prepared(noting, [*recipe.given, *operation.logs]))
            if executor.stream() is not None:
                step.stream = True if call.stream is None else call.stream
        step.arrays = recipe.arrays
        if not recipe.paired:
            self._note_bare(operation, recipe.reads)

    def _logs(self, adjoint: Adjoint, call: Call) -> list[Memory] | None:
        """Room for what a launch writes down; None where a budget has none for it."""
        try:
            return pipeline.new_logs(adjoint, self.pooled(call)) if self.within is None or self.within.stores else None
        except Full:
            return None

    def _check_stores(self, adjoint: Adjoint, call: Call) -> None:
        self._transient.reset()
        pipeline.check_stores(adjoint, replace(call, pool=Pooled(call.executor, self._transient)))

    def room(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory of the tape for an operation's intermediates while it runs: an array, not cleared."""
        return self._transient.room(shape, dtype)

    def record(self, operation: Ruled, run: Callable[[], None], library: str, step: Step) -> None:
        """Records an operation that is no kernel launch, and makes it."""
        self._library = self._library or library
        executor = executor_of(self._library)
        self._streams.enter(executor)

        def act() -> None:
            self._transient.reset()
            with unrecorded():
                run()

        if self.lossy:
            refuse_needed(operation)
        action = ByPython(act, operation.name, operation.where, operation.rule.opaque)
        if self.within is not None:
            self.within.coming(rule_again(operation, action, self._library), (operation.rule, step.line))
            self.within.transient.most = 0
        with _Step(self, operation):
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
        self._note(step, all(map(lasting, step.args)))

    def overwrites(self, *arrays: Any) -> None:
        """Announces that code which the tape does not see is about to overwrite the arrays, with values that depend on nothing active.
        NumPy arrays may be written until the next operation on them; shadows of theirs are taken. TapeError outside of the tape's block."""
        arrays = self._inner(arrays)
        if self.repeats(Foreign, arrays):
            return
        frame = user_frame()
        try:
            self.record_foreign(arrays, line_of(frame), place_of(frame))
        except BaseException:
            self.unknown()
            raise

    def record_foreign(self, arrays: Sequence[Any], line: Any, where: str) -> None:
        """Records an announcement that is new."""
        self._require("recording")
        uses: list[Use] = []
        cleared: list[Any] = []
        for array in arrays:
            primal = getattr(array, "primal", array)
            if not hasattr(primal, "strides"):
                raise TapeError(f"tape.overwrites takes arrays, each as an argument of its own, not a {type(array).__name__}")
            memory = resolve(primal)
            allocation = self.allocation(memory)
            region = of_array(primal, memory.offset * int(primal.dtype.itemsize))
            uses.append(Use(allocation, region, 0))
            if isinstance(array, Duplicated | BatchDuplicated):
                for shadow in (array.shadow,) if isinstance(array, Duplicated) else array.shadows:
                    cleared.extend(float_views(shadow))
            elif self.shadows.of(allocation, region) is not None:
                cleared.extend(root[a:z] for root, a, z in self.shadows.written(allocation, region))
        if arrays:
            self._library = self._library or namespace(getattr(arrays[0], "primal", arrays[0])).__name__
            self._streams.enter(executor_of(self._library))
        if self.within is not None:
            self.within.coming(Rerun({}, of_uses(uses), of_uses(uses), None, None, "the tape does not see it"), (Foreign, line))
        with _Step(self, Foreign("foreign code", where, Effects(tuple(uses), must=tuple(uses)), cleared)):
            self.guard.open(arrays)
        for use in uses:
            use.allocation.written_bare = use.allocation.written_bare | use.region
        step = ForeignStep(Foreign, tuple(arrays), line, where)
        step.arrays = tuple(found for a in arrays for found in arrays_of(a))
        step.stream = True if executor_of(self._library).stream() is not None else None
        self._note(step, all(map(lasting, arrays)))

    def reverse(self, seeds: Mapping[Any, Any] | None = None, *, allow_unused: bool = False) -> None:
        """Runs the adjoints from the last operation to the first, on the current stream and after all that was recorded on any stream.

        `seeds`: {Duplicated: array or number}, or {BatchDuplicated: a tuple of one each, or one for all}. The shadow of each array of which
        the program writes, or a seed has, any element is cleared, all of it, the seeds put in; shadows of arrays that are only read
        accumulate. (An array is what was paired with a shadow, whatever views of the pair were passed; arrays that overlap are one. Where
        indices hang on data, a launch is taken to write all of the arrays that it was passed, but nothing beside them.) Without it the
        shadows are taken as they are (the raw rule). `allow_unused`: whether it is all right that no array or number with a shadow from
        before the recording reaches a seed, since the program overwrites or never uses them, so that all gradients are 0. Raises TapeError
        if it is not, if the recording is not complete, was reversed already, memory that is needed has been changed since, two seeds go to
        one element, or a tape is recording; then no shadow was touched.
        """
        self._require("recorded")
        assert self._watch is not None
        if current.get() is not None:
            raise TapeError(
                "a reverse inside of a tape would not be recorded: do it outside. (If an interrupt has left the tape's block, enter that "
                "tape again.) No shadow was touched."
            )
        if self._library is not None:
            self._streams.join(executor_of(self._library))
        refuse_unfit(self.lossy, self.allocations, "No shadow was touched.")
        try:
            self._transient.reset()
            self._watch.check(self._portion)
            self._transient.reset()
            resolved, plan = self._planned(self._inside(seeds))
        except MemoryError as error:
            error.add_note(self._out_of_memory("No shadow was touched: the reverse may be tried again."))
            raise
        _check_used(plan, allow_unused)
        actions = plan.now(executor_of(self._library, True))
        self.state = "undefined: a reverse failed, its shadows are undefined"
        self.memory.tell(What.reversing)
        with plan.counted():
            for shadow, seed, root, _ in resolved or ():
                if where_of(root) not in plan.placed:
                    shadow[...] = seed
            try:
                perform(actions)
            except BaseException as error:
                if self.within is not None:
                    self.within.failed()
                if isinstance(error, MemoryError):
                    error.add_note(self._out_of_memory("Arrays are as the program left them, shadows are undefined: record it again."))
                self.memory.tell(What.failed)
                raise
        refuse_unfit(self.lossy, self.allocations, "Shadows are undefined.")
        self.assembled = plan.assembled
        self.state = _REVERSED
        self.memory.tell(What.reversed)

    def graph(self, seeds: Mapping[Any, Any] | None = None, *, allow_unused: bool = False) -> Graph:
        """The recorded program and its reverse as one object, whose `.launch()` runs both again on what the same arrays hold then, without
        Python's part: on a GPU as a CUDA graph on CuPy's current stream, on a CPU as a list of prepared launches.

        `seeds`, `allow_unused`: as in `reverse`; arrays are read anew at each launch. The tape is recorded, and may have been reversed: a
        first run of both in the ordinary way is good practice, since it compiles all that is needed. A launch uses the tape's memory, so a
        recording that was not reversed before cannot be reversed any more. Raises TapeError, with the operation's name and place, for what
        cannot be captured: on a GPU a rule of your own, stacks whose depth is counted, stores that are checked at each launch, an operation
        that makes arrays or waits.
        """
        if self.state not in ("recorded", _REVERSED, _REPLAYED) or self.steps is None:
            known = self.state if self.steps is not None else "the recording of a program one of whose calls was refused"
            raise TapeError(f"the tape is {known}; a graph is made of a complete recording")
        if self.within is not None:
            self.within.refuse_scripted("a graph")
        self.extract_early()
        executor = executor_of(self._library)
        resolved, plan = self._planned(self._inside(seeds), lasting=True)
        _check_used(plan, allow_unused)
        if self.own:
            self._known = None  # the arrays are the graph's
        if executor.stream() is not None and not all(_on_device(seed) for _, seed, _, _ in resolved or ()):
            raise TapeError("a seed of a graph on a GPU is a CuPy array or a number, not an array of the host")
        executors = executor, executor_of(self._library, True)
        read = [replace(a) for a in self.allocations.values()]  # as its reverse does: the tape itself may need less of them later
        tape = Captured(read, self._streams, *executors, self._use_up, self._used_by, tuple(self._streams.sources.values()))
        pairs = [(shadow, seed) for shadow, seed, root, _ in resolved or () if where_of(root) not in plan.placed]
        return Graph(forward_parts(self.steps, redirected(self, self.steps)), reverse_parts(plan, pairs), plan, tape)

    def _use_up(self) -> object:
        """The tape's memory is about to be used by a graph; gives a token of this use."""
        self.state, self._lease = _REPLAYED, object()
        return self._lease

    def _used_by(self) -> object:
        """The token of the last use by a graph, if nothing else has happened since."""
        return self._lease if self.state == _REPLAYED else None

    def _planned(self, seeds: Mapping[Any, Any] | None, *, lasting: bool = False) -> tuple[list[Seed] | None, Plan]:
        """The seeds as they go to memory, and the plan for them. What they alone show to have a shadow has it for this reversal only, so
        that the next one, of the same recording or of one like it, does not depend on them."""
        operations, known = self.operations, self.shadows
        premises = operations, known, known.count, self.surroundings(), None if self.within is None else self.within.script
        if self._asked is not None and seeds is not None and not lasting and self._asked.again(seeds, premises):
            self._work()
            return self._asked.resolved(seeds), self._asked.plan
        self.shadows, before = known.copy(), self._last_seeds
        try:
            resolved = self._resolved(seeds, lasting=lasting) if seeds is not None else None
            plan = self._plan(resolved, self.placements(resolved or (), lasting))
            known_again = seeds is not None and resolved is not None and not lasting and as_before(seeds, resolved, before)
            self._asked = Asked.of(seeds or {}, resolved or (), premises, plan) if known_again else None
            return resolved, plan
        finally:
            if self.operations is operations:
                self.shadows = known
            else:  # a seed has shown a shadow of memory that was written without one
                self._known = None
                self.plans.clear()

    def _plan(self, resolved: list[Seed] | None, placements: Placements) -> Plan:
        """The plan for such seeds, kept as long as the recording is."""
        seeds = [(root, region) for _, _, root, region in resolved] if resolved is not None else None
        pairs = self.shadows.pairs if self._paired != self.shadows.count else None  # a seed has shown a shadow
        given = tuple((address(root), root.dtype, region) for root, region in seeds) if seeds is not None else None
        key = self.surroundings(), pairs, given, placements.key
        if key not in self.plans or self.plans[key].is_seen:
            executors = executor_of(self._library), executor_of(self._library, True)
            scripted = self.within.scripted() if self.within is not None else None
            reversal = Reversal(self.operations, self.allocations, self.shadows, self._transient, executors)
            shareable = {} if self.within is not None else dict(self._temporaries)  # copies on write would be beyond what was promised
            temporaries = list(shareable.values())
            stale = Stale(CopyOnWriteShadows(self._homes, shareable), placements)
            self.plans[key] = plan = reversal.plan(stale, seeds, temporaries, self.restore, scripted)
            if self.within is not None:
                self.within.check_planned()
            plan.unused = unreached(self.operations, self.shadows, seeds or (), self.own, self.touched)
        self._work()
        return self.plans[key]

    @property
    def _portion(self) -> Callable[[int], Any] | None:
        """Room for looking at memory: of a tape with a budget it is the host's, a few kilobytes."""
        return None if self.within is not None else self._transient.take

    @property
    def library_name(self) -> str | None:
        """Whose arrays the program works on."""
        return self._library

    def other_bytes(self) -> int:
        """Bytes of shadows of temporaries, with their copies, and of arrays that operations made."""
        made = sum(rounded(int(m.array.nbytes)) for m in self.own.values())
        return made + sum(rounded(int(a.nbytes)) for a in self._homes.arrays)

    def drop_plans(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""
        self.plans.clear()
        self._asked = None

    def _work(self) -> None:
        """The current stream is about to reverse."""
        if self._library is not None:
            self._streams.work(executor_of(self._library))

    def new(self, library: Any, shape: tuple[int, ...], dtype: Any, active: bool) -> Any:
        """An array for an operation that makes one, not cleared: it is no concern of the caller's. In a known program it is what was made
        there the last time. `active`: whether it is to have a shadow."""
        wanted, step = (library.__name__, shape, dtype, active), self._next
        if isinstance(step, MadeStep) and step.args == wanted and self.make_again():
            return step.made.handed_out()
        self.differ()
        if library is np:
            asked(math.prod(shape) * np.dtype(dtype).itemsize)
        if self.within is not None and self.state == "recording":
            self._library = self._library or library.__name__
            spare = self._spare(wanted)
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
        self.record_made(made, wanted)
        return made.handed_out()

    @property
    def awaited(self) -> Made | None:
        """In a program that is known, an array that it makes next."""
        step = self._next
        return step.made if isinstance(step, MadeStep) else None

    def make_again(self) -> bool:
        """Makes it; False if the program is another one."""
        step = self._next
        if step is None or not self._let_go(step) or not self._repeat(step):
            return False
        if isinstance(step, MadeStep) and step.made.stream is not None:
            step.made.stream = executor_of(self._library).stream()
            self._streams.making(step.made.stream, step.made.source)
        return True

    def record_made(self, made: Made, wanted: tuple[Any, ...]) -> None:
        """Notes an array that an operation has made; or made again, with the shadow that it had then."""
        if made.pair.has_shadow:
            self._note_temporary(resolve(made.pair.own_shadow).root, made.array)
        self.own[address(made.array)] = made
        self._streams.making(made.stream, made.source)
        self._note(MadeStep(Made, wanted, None, made.where, made), True)

    def _spare(self, wanted: tuple[Any, ...]) -> Made | None:
        """An array that an operation has made, and that nobody has any more, whose memory can be that of a new one: within a budget. It has
        the shadow that the new one is to have, or as little one."""
        library, shape, dtype, active = wanted
        for where, made in self.own.items():
            if made.array.shape != shape or made.array.dtype != dtype or made.has_handles or made.stream != executor_of(library).stream():
                continue
            pairs = [p for layer in self.shadows.layers for p in layer.get(where, ())]
            own = address(resolve(made.pair.own_shadow).root) if made.pair.has_shadow else None
            if bool(pairs) is not active or any(address(p.root) != own for p in pairs):
                continue
            if made.is_handed_out:
                self.guard.let_go(made.array)
            if not made.is_handed_out:
                return made
        return None

    def record_renewed(self, made: Made, wanted: tuple[Any, ...], line: Any, where: str) -> None:
        """Records that the memory of an array that an operation has made is that of a new one from here on."""
        assert self.within is not None
        memory = resolve(made.array)
        allocation = self.allocation(memory)
        region = of_array(made.array, memory.offset * int(made.array.dtype.itemsize))
        uses = (Use(allocation, region, 0),)
        cleared = [root[a:z] for root, a, z in self.shadows.written(allocation, region)]
        self.within.coming(Rerun({}, of_uses(uses), of_uses(uses), None, None), (Renewed, line))
        with _Step(self, Renewed(allocation.name, where, Effects(uses, must=uses), cleared)):
            pass
        allocation.read_bare, made.where = allocation.read_bare - region, where
        self._note(RenewedStep(Renewed, wanted, line, where, made), True)

    def _let_go(self, step: Step) -> bool:
        """Whether the memory of an array can be used again, as it was when the program was new: who still has a handle gets a copy. Else
        the program is recorded anew."""
        if not isinstance(step, RenewedStep):
            return True
        if step.made.is_handed_out:
            self.guard.let_go(step.made.array)
        if step.made.is_handed_out:
            self.differ()
            return False
        self._arrived = step.made.take_back(executor_of(self._library), self._arrived)
        return True

    def maker(self, array: Any) -> Made | None:
        """What is known of an array that an operation has just made; None where it has no elements."""
        return self.own.get(address(array)) if array.size else None

    def handed_out(self, x: Any) -> Any:
        """What a caller's code may keep: of an array that an operation made, or a view of it, one that keeps its memory from being used
        again."""
        made = self.own.get(address(owner_of(x))) if self.own and type(x) is np.ndarray and x.size else None
        if made is None:
            return x
        room = owner_of(made.handed_out()).reshape(-1).view(np.uint8)  # which is not locked, whatever is made of it
        return np.ndarray(x.shape, x.dtype, room, address(x) - address(made.array), x.strides)

    def _inner(self, args: Any) -> Any:
        """The arguments of a call as the tape knows them."""
        if not self.own or not isinstance(args, tuple | list) or not any(type(x) is Temporary for x in args):
            return args
        return (FlatArguments if type(args) is FlatArguments else tuple)(inner(x, self) for x in args)

    def _inside(self, seeds: Any) -> Any:
        """Seeds by what the tape knows their keys as."""
        return {inner(key, self): seed for key, seed in seeds.items()} if type(seeds) is dict else seeds

    def temporary_shadow(self, array: Any) -> Any:
        """A shadow of zeros for a temporary of this recording, in memory of the tape, laid out like the array (C-contiguous)."""
        self.differ()
        self._library = self._library or namespace(array).__name__
        root = self._homes.take(int(array.size), shadow_dtype(array.dtype))
        root.fill(0)
        self._note_temporary(root, array)
        return root[: array.size].reshape(array.shape)

    def _note_temporary(self, root: Any, array: Any) -> None:
        """Notes where the shadow of a temporary lives."""
        self._homes.keep(root)
        self._temporaries[address(root)] = root
        self._owners[address(root)] = address(array)

    def _note_pair(self, allocation: Allocation, region: Region, primal: Memory, shadows: Sequence[Memory], name: str) -> None:
        """Notes a pair. ShadowError for a temporary of an earlier recording: the memory of its shadow is used again."""
        for shadow in shadows:
            if region:
                self._refuse_reused(primal, shadow, name)
        super()._note_pair(allocation, region, primal, shadows, name)

    def _refuse_reused(self, primal: Memory, shadow: Memory, name: str) -> None:
        if self._homes.has(shadow.root) and self._owners.get(address(shadow.root)) != address(primal.root):
            raise ShadowError(
                f"`{name}` is a temporary of an earlier recording, whose shadow was the tape's; go on with Duplicated({name}.primal), "
                "which begins anew. Nothing was launched."
            )

    def _refuse_earlier(self, kernel: Kernel, args: Sequence[Any]) -> None:
        """ShadowError if an argument of a refused call is a temporary of an earlier recording: the memory of its shadow may be that
        of another's by now, which is what was seen."""
        for d, x in zip(kernel.parameters, args, strict=False):
            if isinstance(x, Duplicated) and x.primal.size:
                self._refuse_reused(resolve(x.primal), resolve(x.own_shadow), d.name)

    @property
    def stats(self) -> Stats:
        """What the last recording and reverse took, in bytes; `allocations` counts chunks of memory that had to be had."""
        saved = sum(p.nbytes for a in self.allocations.values() for p in a.pieces)
        saved += sum(int(log.root.nbytes) for op in self.operations if isinstance(op, Launched) for log in op.logs)
        retained = sum(int(a.root.nbytes) for a in self.allocations.values())
        arena = self.within.added() - self.other_bytes() if self.within is not None else self._saved.nbytes + self._transient.nbytes
        new = self._saved.allocations + self._transient.allocations + self._homes.allocations - getattr(self, "_chunks", 0)
        needed = sum(a.needed.nbytes for a in self.allocations.values())
        return Stats(
            saved, needed, self.assembled, retained, arena, self._transient.nbytes, self.shadows.nbytes, arena + self.shadows.nbytes, new
        )

    def plan(self, budget: int | float | str | None = None) -> Outlook:
        """What reversing the recorded program within a budget takes, before anything is run: the peak in bytes, checkpoints, how often
        operations run again. `budget`: as of `Tape`; the tape's own, or all that is free, if it is left out. BudgetError, with the
        smallest that would do, where it is too small; TapeError if no program is recorded."""
        return self._looked_at().plan(budget, self._seconds)

    def tradeoff(self, points: int = 24) -> Tradeoff:
        """The curve of bytes against operations that run again for the recorded program: printable, `.points`, `.picture(path)`."""
        return self._looked_at().tradeoff(points, self._seconds)

    def _looked_at(self) -> Prospects:
        """Who knows what budgets come to."""
        if not self.operations or self.state == "recording" or self.state.startswith("interrupted"):
            raise TapeError(f"plans and tradeoffs are of a program that is recorded to its end; the tape is {self.state}")
        if self.within is not None:
            return self.within.prospects
        if self._supposed is None or self._supposed[0] != self.outline:
            self._supposed = self.outline, supposed(self)
        return self._supposed[1]

    @property
    def most(self) -> int:
        """The most bytes that a tape with a budget has ever added to what the caller has; 0 of one without."""
        return self.within.most if self.within is not None else 0

    @property
    def source(self) -> str:
        """The reverse program as flat Python, one line an operation."""
        return "\n".join(op.line() for op in reversed(self.operations))

    def save(self, folder: str | os.PathLike[str], names: Mapping[str, Any] | None = None) -> None:
        """Stores the reverse program in a folder as files that run without gpuad: `program.py` (flat Python, one line an operation),
        `program.json`, `kernels.cu`, `kernels.cpp`, `saved.bin`. The recording is not used up.

        `program.reverse(arrays, shadows)` takes whole allocations, by the names of the arguments under which they were last passed, or by
        `names`: {name: array or Duplicated}; a second `dt` is `dt_2`. Arrays that operations made, and their shadows, belong to the stored
        program, unless they are named; so do, if there are names at all, other arrays without a shadow. The reverses of rules are carried
        along as text. TapeError, and nothing is written, if the tape is not recorded, or if an operation cannot be stored: a batch of
        shadows, a kernel whose stacks get as deep as the data say, a rule whose reverse uses what cannot be written down.
        """
        self._require("recorded")
        if self.lossy:
            raise TapeError("a program with arrays that are stored less exactly (store=) cannot be stored itself: record it without")
        if self.within is not None:
            self.within.refuse_scripted("a stored program")
        assert self._watch is not None
        self._watch.check()
        for deferred in self.shadows.deferred.values():
            deferred.show()
        export.save(self, folder, names or {})

    def held(self, budget: int | float | str | None = None) -> Holding:
        """For each byte that the recorded program and its reversal hold: from when to when, and why. Arrays are called as the caller calls
        them. `budget`: as it would be within another budget, as of `plan`."""
        names = array_names(user_frame())
        if budget is not None:
            looked = self._looked_at()
            return holding(self, names, looked.script_within(budget), looked.planner)
        scripted = self.within.script if self.within is not None else None
        return holding(self, names, scripted.script if scripted is not None else None)

    @property
    def outline(self) -> tuple[object, ...]:
        """What `held()` hangs on, to be compared: the recording, and what its reversal follows."""
        script = self.within.script if self.within is not None else None
        return weakref.ref(self.shadows), id(self.operations), id(script)

    def lent(self) -> tuple[tuple[str, str, int], ...]:
        """The arrays made by operations that variables of the caller still hold, so that their memory is not used again: the name, where it
        was made, and bytes."""
        names = array_names(user_frame())
        held = ((names.get(where), made) for where, made in self.own.items() if made.is_handed_out)
        return tuple((name, made.where, int(made.array.nbytes)) for name, made in held if name is not None)

    @property
    def scratch(self) -> Mapping[int, int]:
        """Bytes of transient memory that adjoints take, by the number of the operation, as far as a reversal has been planned."""
        return next(reversed(self.plans.values())).scratch if self.plans else {}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all transient memory."""
        return self._transient.nbytes

    def owns_shadow(self, root: Any) -> bool:
        """Whether a shadow is one that the tape has made."""
        return self._homes.has(root)

    def explain(self) -> Account:
        """For each saved piece the bytes, who needs it and who overwrites it; within a budget, what its plan stores, runs again, offloads
        and keeps, with bytes and reasons. Printable; `.rows`. Arrays are called as the caller calls them, or else as the kernels do."""
        made, names = {a: made.where for a, made in self.own.items()}, array_names(user_frame())
        found = account(self.operations, list(self.allocations.values()), made, names)

        def called(where: int) -> str:
            return names.get(where) or (f"temporary of {made[where]}" if where in made else self.allocations[where].name)

        if self.state in ("recorded", _REVERSED):
            found = replace(found, lossy=tuple(lossy.told(called(lossy.where)) for lossy in every(self.lossy)))
        if self.within is None or self.state not in ("recorded", _REVERSED):
            return found
        return replace(found, budget=self.within.told(self._seconds, called))


class _Step:
    """Saves what an operation is about to overwrite, and records the operation if it succeeds; poisons the tape if not."""

    def __init__(self, tape: Tape, operation: Operation) -> None:
        self.tape, self.operation = tape, operation

    def __enter__(self) -> None:
        self.tape._require("recording")
        self.operation = self.tape._before(self.operation)
        self.tape.guard.lock_operands(self.operation)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.tape._after(self.operation)
        else:
            self.tape.state = f"interrupted at operation {len(self.tape.operations)} ({self.operation.name}) by {kind.__name__}: {error}"


def _check_used(plan: Plan, allow_unused: bool) -> None:
    """TapeError for a reversal of which all gradients are 0, unless that is all right."""
    if plan.unused and not allow_unused:
        raise TapeError(plan.unused)


def _on_device(seed: Any) -> bool:
    """Whether a seed can be read by a graph on a GPU."""
    return (np.ndim(seed) == 0 and isinstance(seed, int | float | complex | np.generic)) or hasattr(seed, "__cuda_array_interface__")
