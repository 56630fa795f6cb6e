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
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np

from ..arguments.arrays import address
from ..arguments.recorder import current
from ..errors import ArgumentError, TapeError
from ..pages.table import paragraph
from ..pipeline import executor_of
from ..public_calls import flag, of_these, whole
from ..runtime.actions import perform
from ..runtime.allocation import mapped
from ..runtime.tensor_versions import count_writes
from .account import Account, Stats, account
from .array_names import array_names
from .blocks import Block, Entry
from .budget.budgeted import Budget
from .budget.holding import Holding, holding
from .budget.limits import Limits
from .budget.offload import checked
from .budget.outlook import Outlook, Prospects, Tradeoff
from .export import program_files as export
from .graph import Captured, Graph, forward_parts, reverse_parts
from .joint import Joint
from .memory.arena import Arena
from .memory.change_detection import Watch
from .memory.lossy_arrays import Store
from .memory.made_arrays import MadeArrays
from .memory.memory_log import Kind, MemoryLog, What
from .memory.staging import Staging
from .memory.streams import Streams
from .memory.temporaries import Made
from .memory.versions import Allocation
from .record.checkpoint_extraction import write_early
from .record.known_calls import line_of, place_of, user_frame
from .record.launch_recording import LaunchRecording
from .record.operations import Foreign
from .record.recorded_launch import Launched
from .replay.bound_calls import BoundCalls
from .replay.buffer_rotation import redirected
from .reverse.in_place_seeds import where_of
from .reverse.reversal_plan import Plan
from .reverse.reverse_planner import ReversePlanner
from .status import RECORDED, RECORDING, REVERSED, UNDEFINED, USED_UP, interrupted, interrupted_by

_NO_SEEDS = (
    "nothing is seeded: the shadows of all arrays that the program writes hold 0, so all gradients are 0. Pass the seeds, "
    "`reverse({loss: 1.0})`, or put them into a shadow before (`Y.shadow[...] = 1`). If that is what you want, say so: "
    "reverse(allow_unused=True). No shadow was touched."
)
_ENTRY = "block"
_INSTEAD = "write through the Duplicated (`U[0] = ...`) or by gpuad.ops, or announce it with tape.overwrites()"


class ProgramRecording(LaunchRecording):
    """A tape from inside: what records, reverses and describes. Users hold a `facade.Tape`, whose methods of the same names say what each
    does; every one of them is called on the same object here."""

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
        flag("restore", restore)
        try:
            of_these("check", check, (None, "exact"))
            of_these("save", save, ("needed", "all"))
        except ArgumentError as error:
            raise TapeError(f"Tape: {error}") from None
        if budget is not None and save == "all":
            raise TapeError("save='all' is everything that is overwritten: no budget goes with it")
        if offload is not None:
            if budget is None:
                raise TapeError("offload goes with a budget: Tape(budget='2 GiB', offload=...)")
            checked(offload)
        self.restore, self.save_all, self.store = restore, save == "all", Store(store)
        self.exact = (check or os.environ.get("GPUAD_CHECK")) == "exact"
        self._entries: dict[str, Entry] = {}  # at most one
        self.opening: weakref.ref[Block] | None = None  # that comes next
        self._recorded = False  # whether it ever was
        self.streams = Streams()
        self.memory = MemoryLog(self)
        work = lambda: self.streams.work(executor_of(self._library))  # noqa: E731
        self._library: str | None = None
        self.known_calls: dict[Any, Any] = {}
        self.words: dict[Any, Any] = {}
        self.bound: BoundCalls | None = None
        self._lease: object = None
        self._begun = self._seconds = 0.0
        self._decided = ""  # a kernel of which data have decided what it launches
        self.joint: Joint | None = None  # the other processes that take part in the recording
        if budget is None:
            own = Arena(partial(self._bytes, kind=Kind.saved)), Arena(partial(self._bytes, kind=Kind.scratch), work)
        within = Limits(self, *own) if budget is None else Budget(self, budget, self._bytes, work, offload)
        self.reversals = ReversePlanner(self)
        staging = Staging(lambda size: self._zeros(size, np.uint8, Kind.primal), self._works_on, self._admits)
        super().__init__(within, MadeArrays(self._new_home, staging), self._is_first)
        self.bound = BoundCalls(self)
        self.call, self.view_of = self.bound.call, self.bound.view_of
        weakref.finalize(self, self.streams.let_all_go).atexit = False
        weakref.finalize(self, self.guard.locks.release).atexit = False

    def _new_home(self, size: int, dtype: Any) -> Any:
        """Memory for shadows of temporaries."""
        if self.state.is_recording:
            self.within.make_room(size * np.dtype(dtype).itemsize)
        return self._zeros(size, dtype, Kind.shadow)

    def _works_on(self) -> Iterator[tuple[int, int]]:
        """The ranges of addresses that the program works on, but for buffers."""
        found = {where: int(a.root.nbytes) for where, a in self.allocations.items()}
        found |= {where: int(made.array.nbytes) for where, made in self.made.arrays.items()}
        found |= {address(root): int(root.nbytes) for root in self.shadows.roots}
        found |= {where: max(found.get(where, 0), region.high) for where, region in self.shadows.numbers.items()}
        return ((where, where + size) for where, size in found.items() if where not in self.made.staging.buffers)

    def _admits(self, size: int) -> bool:
        """True if there is room for a buffer."""
        return self.within.admits_buffer(size)

    def _zeros(self, size: int, dtype: Any, kind: Kind) -> Any:
        """Memory of the tape: all that it has, but for arrays that operations make, comes from here."""
        executor = executor_of(self._library)
        self.streams.owning(executor)
        return self.memory.took(kind, mapped(size, dtype) if executor.stream() is None else executor.zeros(size, dtype))

    def _bytes(self, size: int, kind: Kind = Kind.checkpoint) -> Any:
        made, stream = self._zeros(size, np.dtype(np.uint8), kind), executor_of(self._library).stream()
        if stream is not None:
            stream.synchronize()  # other streams will use it, too; it happens once
        return made

    @property
    def _portion(self) -> Callable[[int], Any] | None:
        """Room for looking at memory: of a tape with a budget it is the host's, a few kilobytes."""
        return None if self.within.is_limited else self.transient.take

    def drop_plans(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""
        self.reversals.drop()

    def forget(self) -> None:
        """Begins anew; the tape's own memory is kept, the caller's is let go."""
        self.known_calls.clear()
        self.words.clear()
        if self.bound is not None:
            self.bound.forget()
        self.streams.let_go()
        super().forget()
        self.reversals.forget()
        self.assembled = 0
        self._watch: Watch | None = None
        self._unmarked: dict[int, Allocation] = {}

    def enter(self) -> None:
        """Begins to record, in the block that comes next. TapeError if another block has the tape, or records in this thread."""
        entry = Entry(get_ident(), self.opening)
        try:
            self._enter(entry)
        except BaseException:  # an interrupt: a block that was not entered will not be left
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
            known.refuse_open(inside=outer is self)
            self._leave()
            self._entries[_ENTRY] = entry
        self._decided = ""
        self.memory.begin()  # while what it had recorded is still there, for who listens
        before = self.state
        self.state = interrupted(when="before the recording began")  # what it had recorded is changed from here on
        self.store.forget()
        if not self._expects():
            previous = self._previous() if before.is_complete else None
            self.forget()
            self.cursor.compare_with(previous)
        self.streams.begin()
        self._begun = perf_counter()
        self.joint = None
        self._chunks = self.within.saved.allocations + self.transient.allocations + self.made.homes.allocations
        self.guard.locks.begin()
        self.state = RECORDING
        current.set(self)

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
            self.state = interrupted(when="at the end of the recording")

    def left(self, kind: Any, error: Any, trace: Any = None) -> None:
        """A block ends."""
        try:
            self._exit(kind, error)
            self._notify_others(error)
        except BaseException as refused:
            self._notify_others(refused)
            raise
        finally:  # also if an interrupt comes while arrays are unlocked
            self._leave()
            if self.state.is_recording:
                self.state = interrupted(when="at the end of the recording")
            self.memory.tell(What.recorded if self.state.is_recorded else What.failed)

    def _notify_others(self, error: BaseException | None) -> None:
        """Tells other processes that take part of an error: they would wait for this one."""
        if error is not None and self.joint is not None:
            self.joint.failed(error)

    def _exit(self, kind: Any, error: Any) -> None:
        """Completes the recording, or says why it is none."""
        entered, opened = bool(self._entries), self._leave()
        if kind is not None:
            if isinstance(error, ValueError) and "read-only" in str(error):
                error.add_note(f"If this is an array of the recording: a tape locks what it depends on until its block ends; {_INSTEAD}.")
            if isinstance(error, MemoryError):
                error.add_note(self.memory.ran_out("Arrays are as the operations before left them. The tape can be entered again."))
            self.state = interrupted_by(error)
            return
        if not entered:
            self.state = interrupted("it was entered again inside of its own block")
            raise TapeError("the tape was entered again inside of its own block, and left there: one program is one block; record it again")
        if not self.state.is_recording:  # an operation failed, and its error was caught inside
            return
        if opened:
            reason = f"an array of shape {opened[0].shape} was made writable in its block"
            self.state = interrupted(reason)
            raise TapeError(f"{reason}, where the tape depends on it: {_INSTEAD}")
        if self._library is not None:
            self.streams.join(executor_of(self._library))
        again = self._whole()
        if not again:
            self._end()
        self.assembled = 0
        self.transient.reset()
        self._seconds = perf_counter() - self._begun if again else math.nan  # a program that is new is compiled, too
        watched = self.within.watched()
        alone = watched.keys() & (self.made.arrays.keys() - self.made.still_shared())
        self._unmarked = {where: watched[where] for where in alone}  # which cannot be changed until they are shared
        self._watch = Watch.of((watched[where] for where in watched.keys() - alone), self._portion)
        self.state = RECORDED

    def sharing(self, made: Made) -> None:
        """Marks an array that an operation made, in a complete recording, before it is handed out."""
        known = self._unmarked.pop(address(made.array), None)
        if known is not None and self._watch is not None and self.state.is_recorded:
            self._watch = Watch((*self._watch.marks, *Watch.of((known,), self._portion).marks))

    def _is_first(self) -> bool:
        """True if this is the first recording, of NumPy arrays: elsewhere a look would wait for the stream."""
        return not self._recorded and self._library == "numpy"

    def _end(self) -> None:
        """What is done at the end of a program that was not known."""
        try:
            self.marks.compare(None, len(self.operations))
        except TapeError as changed:
            self.state = interrupted(str(changed))
            raise
        try:
            self.store.refuse_unmet(self.allocations)
        except TapeError:
            self.state = interrupted("store= names an array that it does not meet")
            raise
        self._recorded = True
        self.saver.values.demand_all()
        self.paired = self.shadows.count
        self._remember()
        self.made.staging.drop_unused()
        self.within.conclude()

    def overwrites(self, *arrays: Any) -> None:
        """See `facade.Tape.overwrites`."""
        given = self.inner(arrays)
        if not self.learns and self.repeats(Foreign, self.staged(Foreign, given), given):
            return
        frame = user_frame()
        line = line_of(frame)
        try:
            self.record_foreign(self.staged(Foreign, given, line), line, place_of(frame), given)
        except BaseException:
            self.unknown()
            raise

    def reverse(self, seeds: Mapping[Any, Any] | None = None, *, allow_unused: bool = False, seed_rank: int | str | None = None) -> None:
        """See `facade.Tape.reverse`."""
        flag("allow_unused", allow_unused)
        if self.joint is not None:
            with self.joint.reversing(self, seeds, seed_rank) as own:
                self._reverse(own, allow_unused)
            return
        if seed_rank is not None:
            raise TapeError(
                "seed_rank is for programs of several processes: nothing of gpuad.distributed was recorded (a Barrier is enough)."
            )
        self._reverse(seeds, allow_unused)

    def _reverse(self, seeds: Mapping[Any, Any] | None, allow_unused: bool) -> None:
        self._require(RECORDED)
        assert self._watch is not None
        if current.get() is not None:
            raise TapeError(
                "a reverse inside of a tape would not be recorded: do it outside. (If an interrupt has left the tape's block, enter that "
                "tape again.) No shadow was touched."
            )
        if self._library is not None:
            self.streams.join(executor_of(self._library))
        self.store.refuse_unfit(self.allocations, "No shadow was touched.")
        try:
            self.transient.reset()
            self._watch.check(self._portion)
            self.transient.reset()
            self.made.staging.load_shadows()
            resolved, plan = self.reversals.planned(seeds)
        except MemoryError as error:
            error.add_note(self.memory.ran_out("No shadow was touched: the reverse may be tried again."))
            raise
        _check_used(plan, allow_unused)
        looks = seeds is None and not allow_unused and self.joint is None and bool(self.operations)
        if looks and self.shadows.are_empty(self.allocations.values()):
            raise TapeError(_NO_SEEDS)
        actions = plan.now(executor_of(self._library, True))
        self.state = UNDEFINED
        self.memory.tell(What.reversing)
        with plan.counted():
            for shadow, seed, root, _ in resolved or ():
                if where_of(root) not in plan.placed:
                    shadow[...] = seed
                    count_writes((shadow,))
            try:
                perform(actions)
            except BaseException as error:
                self.within.failed()
                if isinstance(error, MemoryError):
                    error.add_note(self.memory.ran_out("Arrays are as the program left them, shadows are undefined: record it again."))
                self.memory.tell(What.failed)
                raise
        self.made.staging.store_shadows()
        if self.restore:
            self.made.staging.store_written()
        self.store.refuse_unfit(self.allocations, "Shadows are undefined.")
        self.assembled, self.made.zeroed = plan.assembled, plan.zeroed
        self.state = REVERSED
        self.memory.tell(What.reversed)

    def graph(self, seeds: Mapping[Any, Any] | None = None, *, allow_unused: bool = False, seed_rank: int | str | None = None) -> Graph:
        """See `facade.Tape.graph`."""
        flag("allow_unused", allow_unused)
        if self.state not in (RECORDED, REVERSED, USED_UP) or not self.trace.is_whole:
            known = self.state if self.trace.is_whole else "the recording of a program one of whose calls was refused"
            raise TapeError(f"the tape is {known}; a graph is made of a complete recording")
        self._refuse_decided("a graph")
        self.within.refuse_scripted("a graph")
        if self.joint is not None:
            seeds = self.joint.captured(self, seeds, seed_rank)
        write_early(self.trace)
        executor = executor_of(self._library)
        resolved, plan = self.reversals.planned(seeds, lasting=True)
        _check_used(plan, allow_unused)
        if self.made.arrays:
            self.cursor.drop("its arrays are those of a graph")
        if executor.stream() is not None and not all(_on_device(seed) for _, seed, _, _ in resolved or ()):
            raise TapeError("a seed of a graph on a GPU is a CuPy array or a number, not an array of the host")
        executors = executor, executor_of(self._library, True)
        read = [replace(a) for a in self.allocations.values()]  # as its reverse does: the tape itself may need less of them later
        tape = Captured(read, self.streams, *executors, self._use_up, self._used_by, tuple(self.streams.sources.values()))
        pairs = [(shadow, seed) for shadow, seed, root, _ in resolved or () if where_of(root) not in plan.placed]
        forward = forward_parts(self.trace.ops, redirected(self))
        return Graph(forward, reverse_parts(plan, pairs, self.made.staging, self.restore), plan, tape)

    def decided(self, name: str) -> None:
        """Notes that data have decided, within a call of the kernel, which launches came."""
        self._decided = name

    def _refuse_decided(self, what: str) -> None:
        if self._decided:
            raise TapeError(f"data decide which launches `{self._decided}` is, between its grid.sync(): {what} would always make the same")

    def _use_up(self) -> object:
        """The tape's memory is about to be used by a graph; gives a token of this use."""
        self.state, self._lease, self.made.zeroed = USED_UP, object(), frozenset()
        return self._lease

    def _used_by(self) -> object:
        """The token of the last use by a graph, if nothing else has happened since."""
        return self._lease if self.state == USED_UP else None

    @property
    def stats(self) -> Stats:
        """See `facade.Tape.stats`."""
        saved = sum(p.nbytes for a in self.allocations.values() for p in a.pieces)
        saved += sum(int(log.root.nbytes) for op in self.operations if isinstance(op, Launched) for log in op.logs)
        retained = sum(int(a.root.nbytes) for a in self.allocations.values())
        arena = self.within.added() - self.made.nbytes
        new = self.within.saved.allocations + self.transient.allocations + self.made.homes.allocations - getattr(self, "_chunks", 0)
        needed = sum(a.needed.nbytes for a in self.allocations.values())
        return Stats(saved, needed, self.assembled, retained, arena, self.transient.nbytes, self.shadows.nbytes, new)

    @property
    def peak_bytes(self) -> int:
        """See `facade.Tape.peak_bytes`."""
        return self.memory.most

    def plan(self, budget: int | float | str | None = None) -> Outlook:
        """See `facade.Tape.plan`."""
        return self._looked_at().plan(budget, self._seconds)

    def tradeoff(self, points: int = 24) -> Tradeoff:
        """See `facade.Tape.tradeoff`."""
        whole("points", points, 1)
        return self._looked_at().tradeoff(points, self._seconds)

    def _looked_at(self) -> Prospects:
        """Who knows what budgets come to."""
        if not self.operations or not self.state.is_complete:
            raise TapeError(f"plans and tradeoffs are of a program that is recorded to its end; the tape is {self.state}")
        return self.within.prospects

    @property
    def most(self) -> int:
        """The most bytes that a tape with a budget has ever added to what the caller has; 0 of one without."""
        return self.within.most

    @property
    def source(self) -> str:
        """See `facade.Tape.source`."""
        return "\n".join(op.line() for op in reversed(self.operations))

    def save(self, folder: str | os.PathLike[str], names: Mapping[str, Any] | None = None) -> None:
        """See `facade.Tape.save`."""
        self._require(RECORDED)
        self._refuse_decided("a stored program")
        if self.store:
            raise TapeError("a program with arrays that are stored less exactly (store=) cannot be stored itself: record it without")
        self.within.refuse_scripted("a stored program")
        assert self._watch is not None
        self._watch.check()
        for deferred in self.shadows.deferred.values():
            deferred.show()
        export.save(self, folder, {name: self.as_known(array) for name, array in (names or {}).items()})

    def held(self, budget: int | float | str | None = None) -> Holding:
        """See `facade.Tape.held`."""
        names = self._names(user_frame())
        if budget is not None:
            looked = self._looked_at()
            return holding(self, names, looked.script_within(budget), looked.planner, scratch=self.reversals.scratch)
        scripted = self.within.script
        return holding(self, names, scripted.script if scripted is not None else None, scratch=self.reversals.scratch)

    @property
    def outline(self) -> tuple[object, ...]:
        """What `held()` hangs on, to be compared: the recording, and what its reversal follows."""
        return weakref.ref(self.shadows), id(self.operations), id(self.within.script)

    def held_by_caller(self) -> tuple[tuple[str, str, int], ...]:
        """The arrays made by operations that variables of the caller still hold, so that their memory is not used again: the name, where it
        was made, and bytes."""
        names = self._names(user_frame())
        held = ((names.get(where), made) for where, made in self.made.arrays.items() if made.is_handed_out)
        return tuple((name, made.where, int(made.array.nbytes)) for name, made in held if name is not None)

    def _names(self, frame: FrameType | None) -> dict[int, str]:
        """Names of arrays by the addresses that the tape knows."""
        names = array_names(frame)
        return names | {where: names[outside] for where, outside in self.made.staging.names if outside in names}

    def explain(self) -> Account:
        """See `facade.Tape.explain`."""
        made, names = {a: made.where for a, made in self.made.arrays.items()}, self._names(user_frame())
        found = replace(account(self.operations, list(self.allocations.values()), made, names), anew=self.cursor.why)

        def called(where: int) -> str:
            return names.get(where) or (f"temporary of {made[where]}" if where in made else self.allocations[where].name)

        if self.state.is_described:
            found = replace(found, lossy=self.store.described(called))
        if not self.operations or not self.state.is_described:
            return found
        return replace(found, budget=self.within.described(self._seconds, called))

    def __repr__(self) -> str:
        return f"<tape: {len(self.operations)} operations, {self.state}>"

    def _repr_html_(self) -> str:
        return paragraph(repr(self).strip("<>")) + (self.explain()._repr_html_() if self.state.is_described else "")


def _check_used(plan: Plan, allow_unused: bool) -> None:
    """TapeError for a reversal of which all gradients are 0, unless that is all right."""
    if plan.unused and not allow_unused:
        raise TapeError(plan.unused)


def _on_device(seed: Any) -> bool:
    """True if a seed can be read by a graph on a GPU."""
    return (np.ndim(seed) == 0 and isinstance(seed, int | float | complex | np.generic)) or hasattr(seed, "__cuda_array_interface__")
