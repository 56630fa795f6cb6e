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

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import launching
from .annotations import BatchDuplicated, Duplicated, address, as_array, leaf_memory, namespace, resolve
from .api import Kernel, check_flow, pattern_of
from .arguments.aliasing import hull
from .arguments.layouts import float_views
from .errors import ShadowError, TapeError
from .executors.base import Memory
from .launching import Call, executor_of
from .program import store
from .program.account import Account, account
from .program.arena import Arena, Pooled
from .program.context import current
from .program.finder import VersionFinder
from .program.launch import Launched
from .program.lending import Homes, Lending
from .program.memory import Allocation, Versions, place
from .program.operation import Effects, Foreign, Operation, Use
from .program.recipe import Recipe, call_key, place_of, user_frame
from .program.recording import Recording
from .program.region import Region, of_array
from .program.rules import Ruled
from .program.streams import Streams
from .program.zero import Stale, Step, elements, last_step, step_at_home, step_of, step_of_rule
from .watching import Watch


@dataclass(frozen=True)
class Stats:
    """Bytes: `saved` copies of overwritten regions; `assembled` copied in the reverse to put versions together; `retained` allocations
    kept alive; the `arena`'s size; `scratch` of the reverse kernels; `shadow` arrays. `allocations`: new chunks since the last recording
    began."""

    saved_bytes: int
    assembled_bytes: int
    retained_bytes: int
    arena_bytes: int
    scratch_bytes: int
    shadow_bytes: int
    peak_bytes: int
    allocations: int


class Tape(Recording):
    """Records the launches of the thread that has entered it. Use it again for the same program: its memory is kept.

    `restore`: after a reverse the primal arrays hold what they held before the recording. `check`: None, a fingerprint of the memory that
    the reverse reads live, from a sample of it; 'exact', of all of it. `save`: 'needed', or 'all' (for tests): everything that is
    overwritten.
    """

    def __init__(self, *, restore: bool = False, check: str | None = None, save: str = "needed") -> None:
        if check not in (None, "exact") or save not in ("needed", "all"):
            raise TapeError("Tape takes check=None or 'exact', save='needed' or 'all'")
        self.restore, self.save_all = restore, save == "all"
        self.exact = (check or os.environ.get("GPUAD_CHECK")) == "exact"
        self._token: Token[Any] | None = None
        self._streams = Streams()
        self._homes = Homes(lambda size, dtype: executor_of(self._library).zeros(size, dtype))
        self._temporaries: dict[int, Any] = {}
        self._owners: dict[int, int] = {}  # whose shadow lives there in this recording: addresses
        self.own: dict[int, tuple[Any, str]] = {}  # arrays that operations made in this recording, and where, by address
        self._transient = Arena(self._bytes, lambda: self._streams.work(executor_of(self._library)))
        self._library: str | None = None
        self.recipes: dict[Any, Any] = {}
        super().__init__(Arena(self._bytes))

    def _bytes(self, size: int) -> Any:
        executor = executor_of(self._library)
        made, stream = executor.zeros(size, np.dtype(np.uint8)), executor.stream()
        if stream is not None:
            stream.synchronize()  # other streams will use it, too; it happens once
        return made

    def forget(self) -> None:
        """Begins anew; the tape's own memory is kept, the caller's is let go."""
        self.recipes.clear()
        self._homes.reset()
        self._temporaries, self._owners = {}, {}
        self.own = {}
        super().forget()
        self.assembled = 0
        self._watch: Watch | None = None

    def __enter__(self) -> Tape:
        if current.get() is not None:
            raise TapeError("a tape is entered inside another; one program has one tape")
        self.forget()
        self._streams.begin()
        self._chunks = self._saved.allocations + self._transient.allocations + self._homes.allocations
        self.state = "recording"
        self._token = current.set(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._token is not None
        current.reset(self._token)
        if kind is not None:
            self.state = f"interrupted by {kind.__name__}: {error}"
            return
        if self.state != "recording":  # an operation failed, and its error was caught inside
            return
        if self._library is not None:
            self._streams.join(executor_of(self._library))
        try:
            self._compare(None)
        except TapeError as changed:
            self.state = str(changed)
            raise
        self.demand_all()
        self.state = "recorded"
        self._transient.reset()
        self._watch = Watch.of(self.allocations.values(), self.exact, self._transient.take)

    def launch(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it. A call that was made before in the same words is known and costs a look-up."""
        frame = user_frame()
        key = call_key(kernel, grid, block, args, shared_mem, stream, frame)
        recipe = self.recipes.get(key) if key is not None else None
        if recipe is None or not self.holds(recipe):
            with kernel.room():
                recipe = self._prepare(kernel, grid, block, args, shared_mem, stream, place_of(frame))
            if key is not None:
                self.recipes[key] = recipe
        self._run(recipe)

    def holds(self, recipe: Any) -> bool:
        """Whether what was found out about a call is true of this moment of this recording."""
        return recipe.recording is self.shadows and not self._tainted and (not recipe.bare or recipe.pairs == self.shadows.count)

    def _prepare(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, where: str) -> Recipe:
        """Binds and judges a call. Nothing is launched."""
        call = kernel.bind(grid, block, args, shared_mem, stream)
        self._library = self._library or call.bound.library
        self._note_shadows(call)
        call = self._adopt(kernel, call)
        bare = any(a.memory is not None and not a.shadows and a.memory.is_float for a in call.bound.arguments)
        adjoint, primal = None, kernel.primal(call.aliases())
        if launching.active_positions(call):
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            self._refuse_taint(kernel, adjoint, call)
            check_flow(kernel, call, adjoint.escapes, True)
            call = replace(call, exact=adjoint.exact)
        else:
            self._refuse_taint(kernel, None, call)
        operation = self._operation(kernel, primal, adjoint, call, where)
        reverse = [adjoint.counting, *(s.kernel for s in launching.stages(adjoint, call))] if adjoint is not None else []
        call.prepare([(adjoint.augmented if adjoint is not None else None) or primal, *reverse])
        arguments = call.bound.arguments
        seen = tuple(u for u in self._touched(kernel, call)[0] if not arguments[u.position].shadows)
        given = [*call.bound.primals(), *call.offset_values()]
        doubtful = adjoint is not None and bool(launching.stores_in_doubt(adjoint, call))
        paired = not seen and all(arguments[u.position].shadows for u in operation.effects.writes)
        return Recipe(operation, primal, tuple(args), bare, self.shadows, self.shadows.count, seen, given, doubtful, paired)

    def _run(self, recipe: Recipe) -> None:
        operation, call = recipe.operation, recipe.operation.call
        adjoint = operation.adjoint
        with call.executor.on(call.stream):
            self._streams.enter(call.executor)
            kernel, given = recipe.primal, recipe.given
            if adjoint is not None and recipe.doubtful:
                self._transient.reset()
                launching.check_stores(adjoint, self._pooled(call, self._transient))
            if adjoint is not None and adjoint.augmented is not None:
                operation = replace(operation, logs=launching.new_logs(adjoint, self.pooled(call)))
                kernel, given = adjoint.augmented, [*given, *operation.logs]
            with _Step(self, operation):
                call.run(kernel, given)
        if not recipe.paired:
            self._note_bare(operation, recipe.reads)

    def _pooled(self, call: Call, arena: Arena) -> Call:
        """The call with memory for its needs from one of the tape's arenas."""
        return replace(call, pool=Pooled(call.executor, arena))

    def room(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory of the tape for an operation's intermediates while it runs: an array, not cleared."""
        return self._transient.room(shape, dtype)

    def record(self, operation: Ruled, run: Callable[[], None], library: str) -> None:
        """Records an operation that is no kernel launch, and makes it."""
        self._library = self._library or library
        self._streams.enter(executor_of(self._library))
        self._transient.reset()
        with _Step(self, operation):
            run()
        for a, region in operation.read_bare():
            a.read_bare = a.read_bare | region
        for a, region, tainted in operation.written_bare():
            if tainted:
                self._tainted = True
                a.tainted = a.tainted | region
            else:
                a.written_bare = a.written_bare | region

    def overwrites(self, *arrays: Any) -> None:
        """Announces that code which the tape does not see is about to overwrite the arrays, with values that depend on nothing active."""
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
        with _Step(self, Foreign("foreign code", place_of(user_frame()), Effects(tuple(uses), must=tuple(uses)), cleared)):
            pass
        for use in uses:
            use.allocation.written_bare = use.allocation.written_bare | use.region

    def reverse(self, seeds: Mapping[Any, Any] | None = None) -> None:
        """Runs the adjoints from the last operation to the first, on the current stream and after all that was recorded on any stream.

        `seeds`: {Duplicated: array or number}, or {BatchDuplicated: a tuple of one each, or one for all}. The shadows of all that the
        program writes are cleared, the seeds put in; shadows of what is only read accumulate. Without it the shadows are taken as they
        are (the raw rule). Raises TapeError if the recording is not complete, was reversed already, or memory that is needed has been
        changed since; then no shadow was touched.
        """
        self._require("recorded")
        assert self._watch is not None
        if self._library is not None:
            self._streams.join(executor_of(self._library))
        self._transient.reset()
        self._watch.check(self._transient.take)
        self._transient.reset()
        resolved = self._resolved(seeds) if seeds is not None else None
        steps = self._planned(resolved)
        for shadow, seed, _, _ in resolved or ():
            shadow[...] = seed
        self.state = "undefined: a reverse failed, its shadows are undefined"
        resolver = VersionFinder(self._transient, Versions())
        pools = [Pooled(executor_of(self._library, exact), self._transient) for exact in (False, True)]
        for time in range(len(self.operations) - 1, -1, -1):
            resolver.reach(self.operations[time], time)
            self._reverse(self.operations[time], steps.get(time), resolver, pools)
        steps[-1].begin()
        self.assembled = resolver.assembled
        if self.restore:
            self._restore(resolver.versions)
        self.state = "reversed already; record the program again"

    def _planned(self, seeds: list[tuple[Any, Any, Any, Region]] | None) -> dict[int, Step]:
        """How each operation is reversed, compiled, and at -1 what comes last. What is not in it has nothing to do."""
        stale = Stale(Lending(self._homes, dict(self._temporaries)))
        for a in self.allocations.values() if seeds is not None else ():
            for root, part in self.shadows.parts(a, a.written):
                stale.add(root, part)
        for _, _, root, region in seeds or ():
            stale.drop(root, region)
        stale.lending.settle(self._temporaries.values(), stale.alive)
        steps: dict[int, Step] = {}
        compiled: set[tuple[int, bool]] = set()
        for time in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[time]
            step = self._step(operation, stale)
            if step is not None:
                steps[time] = step
            if not isinstance(operation, Launched) or step is None:
                continue
            wanted = [s.kernel for s in step.stages if (id(s.kernel), operation.call.exact) not in compiled]
            compiled.update((id(k), operation.call.exact) for k in wanted)
            if wanted:
                operation.call.prepare(wanted)
        steps[-1] = last_step(stale)
        return steps

    def _step(self, operation: Operation, stale: Stale) -> Step | None:
        if isinstance(operation, Launched):
            return step_of(operation, stale)
        if isinstance(operation, Ruled):
            return step_of_rule(operation, stale)
        assert isinstance(operation, Foreign)
        return step_at_home([elements(view) for view in operation.cleared], stale)

    def _reverse(self, operation: Operation, step: Step | None, resolver: VersionFinder, pools: Sequence[Pooled]) -> None:
        self._transient.reset()
        if step is None:
            return
        step.begin()
        if isinstance(operation, Foreign | Ruled):
            operation.reverse(resolver)
        elif isinstance(operation, Launched) and step.stages:
            operation.reverse(resolver, step.stages, step.moved, pools[operation.call.exact])

    def made(self, array: Any) -> None:
        """Notes an array that an operation has made: it is no concern of the caller's."""
        if array.size:
            self.own[address(array)] = array, place_of(user_frame())

    def temporary_shadow(self, array: Any) -> Any:
        """A shadow of zeros for a temporary of this recording, in memory of the tape, laid out like the array (C-contiguous)."""
        self._library = self._library or namespace(array).__name__
        root = self._homes.take(int(array.size), array.dtype)
        root.fill(0)
        self._temporaries[address(root)] = root
        self._owners[address(root)] = address(array)
        return root[: array.size].reshape(array.shape)

    def _note_pair(self, allocation: Allocation, region: Region, primal: Memory, shadows: Sequence[Memory], name: str) -> None:
        """Notes a pair. ShadowError for a temporary of an earlier recording: the memory of its shadow is used again."""
        for shadow in shadows:
            if region and self._homes.has(shadow.root) and self._owners.get(address(shadow.root)) != address(primal.root):
                raise ShadowError(
                    f"`{name}` is a temporary of an earlier recording, whose shadow was the tape's; go on with Duplicated({name}.primal), "
                    "which begins anew. Nothing was launched."
                )
        super()._note_pair(allocation, region, primal, shadows, name)

    def _resolved(self, seeds: Mapping[Any, Any]) -> list[tuple[Any, Any, Any, Region]]:
        """The shadow views that seeds go to, by memory, and the seeds, copied; the allocation of each and its elements. Nothing is written
        yet."""
        if not isinstance(seeds, Mapping):
            raise TapeError("seeds are {Duplicated: array or number}, or {BatchDuplicated: a tuple of such}")
        found = []
        for key, seed in seeds.items():
            if not isinstance(key, Duplicated | BatchDuplicated):
                raise TapeError("seeds are {Duplicated: array or number}, or {BatchDuplicated: a tuple of such}")
            primal = key.primal
            if primal.size == 0:
                continue
            if primal.dtype.names:
                raise TapeError("seeds of structs are put into their shadow, before reverse() without seeds. No shadow was touched.")
            shadows = self._seeded(key)
            several = isinstance(seed, tuple | list) and isinstance(key, BatchDuplicated)
            if several and len(seed) != len(shadows):
                raise TapeError(f"{len(seed)} seeds for an array with {len(shadows)} shadows. No shadow was touched.")
            for (shadow, root, touched), part in zip(shadows, seed if several else [seed] * len(shadows), strict=True):
                _check_seed(part, shadow.dtype)
                if np.shape(part) and np.shape(part) != shadow.shape:
                    raise TapeError(f"a seed of shape {np.shape(part)} for an array of shape {shadow.shape}. No shadow was touched.")
                kind = part.dtype if hasattr(part, "dtype") else np.asarray(part).dtype
                if isinstance(kind, np.dtype) and not np.can_cast(kind, shadow.dtype, "same_kind"):
                    raise TapeError(f"a seed of {kind} for a shadow of {shadow.dtype}. No shadow was touched.")
                found.append((shadow, self._apart(part), root, touched))
        return found

    def _seeded(self, key: Any) -> list[tuple[Any, Any, Region]]:
        """The shadows that belong to a key's memory, as views like its primal, the allocation of each, and its elements in there;
        TapeError if they are not of the recording."""
        primal, memory = key.primal, leaf_memory(key.primal)
        known = self.allocations.get(address(memory.root))
        region = of_array(primal, memory.offset * int(memory.root.dtype.itemsize))
        own = key.shadows if isinstance(key, BatchDuplicated) else (key.shadow,) if key.has_shadow else ()
        if known is not None and own:
            self._note_pair(known, region, memory, tuple(map(leaf_memory, own)), "the seed's array")
        pairings = self.shadows.all_of(known, region) if known is not None else ()
        if not pairings:
            raise TapeError("a seed for memory that was not part of the recording. No shadow was touched.")
        if len(pairings) > 1 and not isinstance(key, BatchDuplicated):
            raise TapeError(f"the memory of a seed has {len(pairings)} shadows: its key is the BatchDuplicated. No shadow was touched.")
        views = (view_like(Memory(p.root, memory.offset + p.shift), primal) for p in pairings)  # of a complex array in complex numbers
        return [(view, p.root, Region(region.spans // p.size + p.shift)) for view, p in zip(views, pairings, strict=True)]

    def _apart(self, seed: Any) -> Any:
        """The seed, or a copy of it where it lies in a shadow, which is cleared before the seeds are put in."""
        seed = as_array(seed)
        if not hasattr(seed, "strides") or isinstance(seed, np.generic):
            return seed
        low, high = hull(seed)
        if not any(low < end and begin < high for begin, end in map(hull, self.shadows.roots)):
            return seed
        copy = self.room(seed.shape, seed.dtype)
        copy[...] = seed
        return copy

    def _restore(self, versions: Versions) -> None:
        for a in self.allocations.values():
            versions.back_to(a, 0)
            for part, piece in versions.sources(a, a.initial):
                if piece is not None:
                    place(piece, part, a.root, 0)

    @property
    def stats(self) -> Stats:
        """What the last recording and reverse took, in bytes."""
        saved = sum(p.region.nbytes for a in self.allocations.values() for p in a.pieces)
        saved += sum(int(log.root.nbytes) for op in self.operations if isinstance(op, Launched) for log in op.logs)
        retained = sum(int(a.root.nbytes) for a in self.allocations.values())
        arena = self._saved.nbytes + self._transient.nbytes
        new = self._saved.allocations + self._transient.allocations + self._homes.allocations - getattr(self, "_chunks", 0)
        return Stats(saved, self.assembled, retained, arena, self._transient.nbytes, self.shadows.nbytes, arena + self.shadows.nbytes, new)

    @property
    def source(self) -> str:
        """The reverse program as flat Python, one line an operation."""
        return "\n".join(op.line() for op in reversed(self.operations))

    def save(self, folder: str | os.PathLike[str], names: Mapping[str, Any] | None = None) -> None:
        """Stores the reverse program in a folder as files that run without gpuad: `program.py` (flat Python, one line an operation),
        `program.json`, `kernels.cu`, `kernels.cpp`, `saved.bin`. The recording is not used up.

        `program.reverse(arrays, shadows)` takes whole allocations, by the names of the arguments under which they were last passed, or by
        `names`: {name: array or Duplicated}. Arrays that operations made, and their shadows, belong to the stored program, unless they are
        named; so do, if there are names at all, other arrays without a shadow. The reverses of rules are carried along as text. TapeError,
        and nothing is written, if the tape is not recorded, or if an operation cannot be stored: a batch of shadows, a kernel whose stacks
        get as deep as the data say, a rule whose reverse uses what cannot be written down.
        """
        self._require("recorded")
        assert self._watch is not None
        self._watch.check()
        store.save(self, folder, names or {})

    def explain(self) -> Account:
        """For each saved piece the bytes, who needs it and who overwrites it. Printable; `.rows`."""
        return account(self.operations, list(self.allocations.values()), {a: where for a, (_, where) in self.own.items()})


def _check_seed(seed: Any, dtype: np.dtype[Any]) -> None:
    """A seed is an array or a number; TapeError if it is something else, or complex where the shadow is not."""
    if isinstance(seed, Duplicated | BatchDuplicated):
        raise TapeError("a seed is an array or a number, not an annotation: pass `.primal`. No shadow was touched.")
    given = seed.dtype if hasattr(seed, "dtype") else np.asarray(seed).dtype
    if given != dtype and given.kind not in ("biufc" if dtype.kind == "c" else "biuf"):
        raise TapeError(f"a seed of type {given} for a shadow of {dtype}. No shadow was touched.")


class _Step:
    """Saves what an operation is about to overwrite, and records the operation if it succeeds; poisons the tape if not."""

    def __init__(self, tape: Tape, operation: Operation) -> None:
        self.tape, self.operation = tape, operation

    def __enter__(self) -> None:
        self.tape._require("recording")
        self.operation = self.tape._before(self.operation)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.tape._after(self.operation)
        else:
            self.tape.state = f"interrupted at operation {len(self.tape.operations)} ({self.operation.name}) by {kind.__name__}: {error}"


def view_like(memory: Memory, array: Any) -> Any:
    """A view of the memory with the shape and strides of `array`, in complex numbers if it has such."""
    strided = namespace(memory.root).lib.stride_tricks.as_strided
    begin, numbers = memory.root[memory.offset :], 1 if array.dtype.kind != "c" else 2
    if numbers == 2:
        begin = begin[: begin.size // 2 * 2].view(f"c{begin.dtype.itemsize * 2}")
    each = array.dtype.itemsize // numbers  # of halves the shadow is wider
    return strided(begin, array.shape, tuple(s // each * memory.itemsize for s in array.strides))
