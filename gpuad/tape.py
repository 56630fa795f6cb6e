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
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from . import launching
from .annotations import Duplicated, address, leaf_memory, namespace, resolve
from .api import Kernel, check_flow, pattern_of
from .differentiate import Adjoint
from .errors import ShadowError, TapeError
from .executors.base import Memory
from .launching import Call, executor_of
from .program.arena import Arena, Pooled
from .program.context import current
from .program.launch import Launched, effects_of, reads, writes
from .program.memory import NOWHERE, Allocation, Versions, copy_live, place
from .program.operation import Effects, Foreign, Operation, Use
from .program.region import Region, of_array
from .program.shadows import Shadows
from .watching import Watch, mark

_PACKAGE = str(Path(__file__).parent)


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


class Tape:
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
        self._saved = Arena(self._bytes)
        self._transient = Arena(self._bytes)
        self._library: str | None = None
        self._recipes: dict[Any, Recipe] = {}
        self._begin()

    def _bytes(self, size: int) -> Any:
        return executor_of(self._library).zeros(size, np.dtype(np.uint8))

    def _begin(self) -> None:
        if len(self._recipes) > 10_000:  # numbers that differ in every call
            self._recipes.clear()
        self.operations: list[Operation] = []
        self.allocations: dict[int, Allocation] = {}
        self.shadows = Shadows()
        self.actives: dict[int, Any] = {}
        self.state = "empty"
        self.assembled = 0
        self._tainted = False
        self._saved.reset()
        self._watch: Watch | None = None

    # --- recording -------------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if current.get() is not None:
            raise TapeError("a tape is entered inside another; one program has one tape")
        self._begin()
        self._chunks = self._saved.allocations + self._transient.allocations
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
        self.state = "recorded"
        self._watch = Watch.of(self.allocations.values(), self.exact)

    def launch(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Records a launch and makes it. A call that was made before in the same words is known and costs a look-up."""
        frame = user_frame()
        key = call_key(kernel, grid, block, args, shared_mem, stream, frame)
        recipe = self._recipes.get(key) if key is not None else None
        if recipe is None or not self._still_holds(recipe):
            recipe = self._prepare(kernel, grid, block, args, shared_mem, stream, place_of(frame))
            if key is not None:
                self._recipes[key] = recipe
        self._run(recipe)

    def _still_holds(self, recipe: Recipe) -> bool:
        """Whether what was found out about a call is true of this moment of this recording."""
        return recipe.recording is self.shadows and not self._tainted and (not recipe.bare or recipe.pairs == self.shadows.count)

    def _prepare(self, kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, where: str) -> Recipe:
        """Binds and judges a call. Nothing is launched."""
        call = kernel.bind(grid, block, args, shared_mem, stream)
        self._library = self._library or call.bound.library
        self._note_shadows(call)
        call = self._adopt(kernel, call)
        bare = any(a.memory is not None and not a.shadows and a.array.dtype.kind == "f" for a in call.bound.arguments)
        adjoint, primal = None, kernel.primal(call.aliases())
        if launching.active_positions(call):
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            self._refuse_taint(kernel, adjoint, call)
            check_flow(kernel, call, adjoint.escapes, True)
            call = replace(call, exact=adjoint.exact)
        else:
            self._refuse_taint(kernel, None, call)
        operation = self._operation(kernel, primal, adjoint, call, where)
        call.prepare([*((adjoint.augmented or primal, adjoint.counting) if adjoint is not None else (primal,)), operation.reverse_kernel])
        seen = tuple(u for u in reads(primal, call, self.allocation) if not call.bound.arguments[u.position].shadows)
        return Recipe(operation, primal, tuple(args), bare, self.shadows, self.shadows.count, seen)

    def _operation(self, kernel: Kernel, primal: Any, adjoint: Adjoint | None, call: Call, where: str) -> Launched:
        variant = adjoint.kernel(launching.plain_shadows(adjoint, call)) if adjoint is not None else None
        source = adjoint.primal if adjoint is not None else primal
        effects, uses = kernel.facts.get(
            ("effects", id(adjoint), call.key, tuple(_place(a.memory) for a in call.bound.arguments)),
            lambda: effects_of(source, adjoint, call, lambda _: NOWHERE),
        )
        effects, uses = self._ours(effects, uses, call)
        return Launched(kernel.name, where, call, effects, adjoint, variant, uses, [], kernel)

    def _run(self, recipe: Recipe) -> None:
        operation, call = recipe.operation, recipe.operation.call
        adjoint = operation.adjoint
        with call.executor.on(call.stream):
            if adjoint is not None:
                launching.check_stores(adjoint, call)
                if adjoint.logs:
                    operation = replace(operation, logs=launching.new_logs(adjoint, call))
            with _Step(self, operation):
                launching.run_primal(recipe.primal, adjoint, call, launching.State({}, logs=operation.logs))
        self._note_bare(operation, recipe.reads)

    def record(self, operation: Operation, run: Callable[[], None], library: str) -> None:
        """Records an operation that is no kernel launch, and makes it."""
        self._library = self._library or library
        with _Step(self, operation):
            run()

    def adopt(self, array: Any, shadow: Any, name: str) -> None:
        """Notes that an array of an operation has a shadow; ShadowError if it has another one already."""
        memory, pair = leaf_memory(array), leaf_memory(shadow)
        region = of_array(array, memory.offset * int(memory.root.dtype.itemsize))
        self.shadows.add(self.allocation(memory), region, memory, pair, name)

    def overwrites(self, *arrays: Any) -> None:
        """Announces that code which the tape does not see is about to overwrite the arrays, with values that depend on nothing active."""
        self._require("recording")
        uses, cleared = [], []
        for array in arrays:
            primal = getattr(array, "primal", array)
            memory = resolve(primal)
            allocation = self.allocation(memory)
            region = of_array(primal, memory.offset * int(primal.dtype.itemsize))
            uses.append(Use(allocation, region, 0))
            if isinstance(array, Duplicated):
                cleared.append(array.shadow)
            elif self.shadows.of(allocation, region) is not None:
                cleared.extend(root[a:z] for root, a, z in self.shadows.written(allocation, region))
        with _Step(self, Foreign("foreign code", place_of(user_frame()), Effects(tuple(uses)), cleared)):
            pass
        for use in uses:
            use.allocation.written_bare = use.allocation.written_bare | use.region

    def allocation(self, memory: Memory) -> Allocation:
        """The allocation behind a pointer; the tape keeps it alive, so its address is not given to another."""
        where, size = address(memory.root), int(memory.root.nbytes)
        known = self.allocations.get(where)
        if known is None or known.root.nbytes < size:
            self._refuse_overlap(where, size)
            known = self.allocations[where] = Allocation(memory.root.view(np.uint8), where, f"memory {len(self.allocations)}")
        return known

    def _refuse_overlap(self, where: int, size: int) -> None:
        """Two owners of the same bytes (views made by foreign code) cannot be told apart from two allocations."""
        for other in self.allocations.values():
            if size and other.root.nbytes and where < other.address + other.root.nbytes and other.address < where + size:
                raise ShadowError(
                    f"an array shares memory with `{other.name}` without being a view of the same array (foreign memory?); slice one array "
                    "instead. Nothing was launched."
                )

    # --- shadows by memory -----------------------------------------------------------------------------------------------------------

    def _adopt(self, kernel: Kernel, call: Call) -> Call:
        """Bare arguments on memory that has a shadow take it if they are only written; to read it bare would drop a gradient."""
        primal = kernel.primal(call.aliases())
        arguments = list(call.bound.arguments)
        seen = {u.position: u for u in reads(primal, call, self.allocation)}
        for i, use in {**seen, **{u.position: u for u in writes(primal, call, self.allocation)}}.items():
            a = arguments[i]
            if a.shadows or a.kind == "stopped" or a.memory is None or a.array.dtype.kind != "f":
                continue
            region = use.region | seen[i].region if i in seen else use.region
            pairing = self.shadows.of(use.allocation, region)
            if pairing is None:
                continue
            if i in seen:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is read bare, but its memory has a shadow (`{pairing.name}`): the "
                    f"gradient would be dropped. Pass the Duplicated, or stop_gradient({a.name}). Nothing was launched."
                )
            shadow = Memory(pairing.root, a.memory.offset + pairing.shift)
            arguments[i] = replace(a, kind="duplicated", shadows=(shadow,))
        return replace(call, bound=replace(call.bound, arguments=tuple(arguments)))

    def _note_shadows(self, call: Call) -> None:
        for a in call.bound.arguments:
            if a.keep and a.shadows:
                raise ShadowError(
                    f"`{a.name}`: keep=True has no meaning inside a tape: seeds are given to reverse(). Nothing was launched."
                )
            if len(a.shadows) > 1:
                raise ShadowError(
                    f"`{a.name}`: a BatchDuplicated is not taken inside a tape in this release; record the program once a seed."
                )
            if a.memory is not None:
                self.allocation(a.memory).name = a.name
                for shadow in a.shadows:
                    region = of_array(a.array, a.memory.offset * int(a.array.dtype.itemsize))
                    self._note_pair(self.allocation(a.memory), region, a.memory, shadow, a.name)
            elif a.kind == "active":
                self._note_active(a)

    def _note_pair(self, allocation: Allocation, region: Region, primal: Memory, shadow: Memory, name: str) -> None:
        """Notes a pair; what was done to the memory before it was known to have a shadow is judged again."""
        count = self.shadows.count
        self.shadows.add(allocation, region, primal, shadow, name)
        if self.shadows.count == count:
            return
        if allocation.read_bare & region or allocation.tainted & region:
            raise ShadowError(
                f"`{name}` has a shadow here, but its memory was used without one earlier in this recording: the gradient of that use would be "
                "dropped. Pass the Duplicated there too. Nothing was launched."
            )
        if allocation.written_bare & region:
            self.operations = [self._rejudged(op, allocation, region, name) for op in self.operations]
            allocation.written_bare = allocation.written_bare - region

    def _rejudged(self, operation: Operation, allocation: Allocation, region: Region, name: str) -> Operation:
        """An earlier operation that wrote memory now known to have a shadow: its adjoint clears it."""
        if not any(u.allocation is allocation and u.region & region for u in operation.effects.writes):
            return operation
        if isinstance(operation, Foreign):
            operation.cleared.extend(
                root[a:z] for root, a, z in self.shadows.written(allocation, region & operation.effects.writes[0].region)
            )
            return operation
        assert isinstance(operation, Launched)
        call = self._adopt(operation.kernel, operation.call)
        adjoint = operation.kernel.reverse_for(pattern_of(operation.kernel, call), call)
        new = self._operation(operation.kernel, operation.kernel.primal(call.aliases()), adjoint, call, operation.where)
        if new.uses or adjoint.logs:
            raise ShadowError(
                f"`{name}` has a shadow here, but was written bare by `{operation.name}` ({operation.where}); pass the Duplicated there too. "
                "Nothing was launched."
            )
        return new

    def _note_active(self, a: Any) -> None:
        """One shadow for two values would hide that host arithmetic lies between them."""
        key = address(a.shadow_arrays[0])
        if self.actives.setdefault(key, a.value).tobytes() != a.value.tobytes():
            raise ShadowError(
                f"`{a.name}`: one shadow for two values ({self.actives[key]} and {a.value}): host arithmetic on a scalar is not recorded; "
                "give each value its own shadow"
            )

    def _refuse_taint(self, kernel: Kernel, adjoint: Any, call: Call) -> None:
        """Active data that went into an array without a shadow must not come out again (RULES 4)."""
        primal = kernel.primal(call.aliases()) if adjoint is None else adjoint.primal
        for use in reads(primal, call, self.allocation):
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
        for use in seen:
            if arguments[use.position].kind != "stopped" and arguments[use.position].array.dtype.kind == "f":
                use.allocation.read_bare = use.allocation.read_bare | use.region
        for use in operation.effects.writes:
            a = use.allocation
            if arguments[use.position].shadows:
                continue
            if operation.adjoint is not None and operation.adjoint.primal.params[use.position] in escaped:
                self._tainted = True
                a.tainted = a.tainted | use.region
            else:
                a.written_bare = a.written_bare | use.region

    def _ours(self, effects: Effects, uses: Any, call: Call) -> tuple[Effects, Any]:
        """Remembered effects name no allocations; these are the ones of this call."""

        def own(use: Use) -> Use:
            memory = call.bound.arguments[use.position].memory
            return Use(self.allocation(memory), use.region, use.position) if memory is not None else use

        groups = (tuple(own(u) for u in part) for part in (effects.writes, effects.before, effects.after))
        return Effects(*groups), {key: own(u) for key, u in uses.items()}

    # --- versions ----------------------------------------------------------------------------------------------------------------------

    def _before(self, operation: Operation) -> None:
        time = len(self.operations)
        if self.exact:
            self._compare(operation)
        for use in operation.effects.before:
            use.allocation.pending = use.allocation.pending | use.region
        for use in operation.effects.writes:
            a = use.allocation
            wanted = use.region if self.save_all else a.pending & use.region
            if self.restore:
                fresh = use.region - a.initial
                wanted, a.initial = wanted | fresh, a.initial | fresh
            if wanted:
                a.save(wanted, time, self._saved.take)
            a.pending = a.pending - use.region
            a.written = a.written | use.region
            a.tainted = a.tainted - use.region

    def _compare(self, operation: Operation) -> None:
        """With an exact check, what is needed is as the operation before left it."""
        for a in {id(u.allocation): u.allocation for u in (*operation.effects.writes, *operation.effects.before)}.values():
            if a.mark is not None and mark(a, a.pending) != a.mark:
                raise TapeError(
                    f"`{a.name}` was changed between operation {len(self.operations) - 1} and operation {len(self.operations)} "
                    f"({operation.name}, {operation.where}) by code that the tape does not see; announce it with tape.overwrites()"
                )

    def _after(self, operation: Operation) -> None:
        for use in operation.effects.after:
            use.allocation.pending = use.allocation.pending | use.region
        if self.exact:
            for use in (*operation.effects.writes, *operation.effects.before, *operation.effects.after):
                use.allocation.mark = mark(use.allocation, use.allocation.pending) if use.allocation.pending else None
        self.operations.append(operation)

    # --- reversing ---------------------------------------------------------------------------------------------------------------------

    def reverse(self, seeds: Mapping[Any, Any] | None = None) -> None:
        """Runs the adjoints from the last operation to the first.

        `seeds`: {Duplicated: array or number}. The shadows of all that the program writes are cleared, the seeds put in; shadows of what
        is only read accumulate. Without it the shadows are taken as they are (the raw rule). Raises TapeError if the recording is not
        complete, was reversed already, or memory that is needed has been changed since; then no shadow was touched.
        """
        self._require("recorded")
        assert self._watch is not None
        self._watch.check()
        resolved = self._resolved(seeds) if seeds is not None else None
        if resolved is not None:
            self._seed(resolved)
        self.state = "undefined: a reverse failed, its shadows are undefined"
        resolver = _Resolver(self, Versions())
        pool = Pooled(executor_of(self._library), self._transient)
        for time in range(len(self.operations) - 1, -1, -1):
            self._transient.reset()
            operation = self.operations[time]
            if isinstance(operation, Launched):
                operation.call = replace(operation.call, pool=pool)
            resolver.reach(operation, time)
            operation.reverse(resolver)
        if self.restore:
            self._restore(resolver.versions)
        self.state = "reversed already; record the program again"

    def _seed(self, seeds: list[tuple[Any, Any]]) -> None:
        for a in self.allocations.values():
            for root, low, high in self.shadows.written(a, a.written):
                root[low:high] = 0
        for shadow, seed in seeds:
            shadow[...] = seed

    def _resolved(self, seeds: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        """The shadow views that seeds go to, by memory, and the seeds, copied; nothing is written yet."""
        found = []
        for key, seed in seeds.items():
            if not isinstance(key, Duplicated):
                raise TapeError("seeds are {Duplicated: array or number}")
            primal = key.primal
            if primal.size == 0:
                continue
            memory = resolve(primal)
            known = self.allocations.get(address(memory.root))
            region = of_array(primal, memory.offset * int(primal.dtype.itemsize))
            pairing = self.shadows.of(known, region) if known is not None else None
            if pairing is None:
                raise TapeError("a seed for memory that was not part of the recording. No shadow was touched.")
            shadow = view_like(Memory(pairing.root, memory.offset + pairing.shift), primal)
            if np.shape(seed) and np.shape(seed) != shadow.shape:
                raise TapeError(f"a seed of shape {np.shape(seed)} for an array of shape {shadow.shape}. No shadow was touched.")
            found.append((shadow, seed.copy() if hasattr(seed, "copy") else seed))
        return found

    def _restore(self, versions: Versions) -> None:
        for a in self.allocations.values():
            versions.back_to(a, 0)
            for part, piece in versions.sources(a, a.initial):
                if piece is not None:
                    place(piece, part, a.root, 0)

    def _require(self, state: str) -> None:
        if self.state != state:
            raise TapeError(f"the tape is {self.state}, not {state}")

    # --- accounts ------------------------------------------------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """What the last recording and reverse took, in bytes."""
        saved = sum(p.region.nbytes for a in self.allocations.values() for p in a.pieces)
        retained = sum(int(a.root.nbytes) for a in self.allocations.values())
        arena = self._saved.nbytes + self._transient.nbytes
        new = self._saved.allocations + self._transient.allocations - getattr(self, "_chunks", 0)
        return Stats(saved, self.assembled, retained, arena, self._transient.nbytes, self.shadows.nbytes, arena + self.shadows.nbytes, new)

    @property
    def source(self) -> str:
        """The reverse program as flat Python, one line an operation."""
        return "\n".join(op.line() for op in reversed(self.operations))

    def explain(self) -> Any:
        """For each saved piece the bytes, who needs it and who overwrites it. Printable; `.rows`."""
        from .program.account import account

        return account(self.operations, list(self.allocations.values()))


class _Step:
    """Saves what an operation is about to overwrite, and records the operation if it succeeds; poisons the tape if not."""

    def __init__(self, tape: Tape, operation: Operation) -> None:
        self.tape, self.operation = tape, operation

    def __enter__(self) -> None:
        self.tape._require("recording")
        self.tape._before(self.operation)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.tape._after(self.operation)
        else:
            self.tape.state = f"interrupted at operation {len(self.tape.operations)} ({self.operation.name}) by {kind.__name__}: {error}"


class _Resolver:
    """Finds versions while a tape goes back in time."""

    def __init__(self, tape: Tape, versions: Versions) -> None:
        self.tape = tape
        self.versions = versions
        self.held: dict[int, list[Any]] = {}

    def reach(self, operation: Operation, time: int) -> None:
        """Takes what the adjoint needs as it is after the operation, then goes back to before it."""
        self.held = {}
        for use in operation.effects.after:
            self.held[id(use)] = self.versions.sources(use.allocation, use.region)
        for use in (*operation.effects.writes, *operation.effects.before):
            self.versions.back_to(use.allocation, time)

    def moved(self, array: Any) -> Any:
        """A copy of an array, dense and in memory of the tape that is free again after this operation's adjoint."""
        copy = self.tape._transient.take(int(array.nbytes)).view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def memory(self, use: Use, like: Memory, *, own: bool) -> Memory:
        """The version as a pointer: the live array, a saved copy, or pieces put together."""
        if not use.region:
            return like
        sources = self.held.get(id(use)) or self.versions.sources(use.allocation, use.region)
        if not own and all(piece is None for _, piece in sources):
            return like
        size = int(like.root.dtype.itemsize)
        if not own and len(sources) == 1:
            part, piece = sources[0]
            if piece is not None and len(piece.region.spans) == 1 and piece.region.low % size == piece.region.nbytes % size == 0:
                return Memory(piece.data.view(like.root.dtype), like.offset - piece.region.low // size)
        low, high = use.region.low, use.region.high
        room = self.tape._transient.take(high - low)
        for part, piece in sources:
            self.tape.assembled += part.nbytes
            if piece is None:
                copy_live(use.allocation.root, part, room, low)
            else:
                place(piece, part, room, low)
        return Memory(room.view(like.root.dtype), like.offset - low // size)


def _place(memory: Memory | None) -> Any:
    """Where a pointer points, relative to its allocation: what regions depend on."""
    return None if memory is None else (memory.offset, int(memory.root.nbytes))


@dataclass(frozen=True, eq=False)
class Recipe:
    """A call that has been bound and judged, to be run again as it is. `args` keeps the caller's objects alive, whose ids are in the key.
    `bare`: it has float arrays without a shadow, whose treatment depends on the `pairs` noted so far in the `recording`."""

    operation: Launched
    primal: Any
    args: tuple[Any, ...]
    bare: bool
    recording: Shadows
    pairs: int
    reads: tuple[Use, ...]  # of memory without a shadow


def call_key(kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, frame: FrameType | None) -> Any:
    """What makes two calls the same: kernel, geometry, the very objects passed (numbers by value), and the line of the call."""
    line = (id(frame.f_code), frame.f_lineno) if frame is not None else None
    key = (id(kernel), grid, block, shared_mem, id(stream), line, *[_identity(a) for a in args])
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _identity(arg: Any) -> Any:
    return (type(arg), arg) if isinstance(arg, int | float | np.generic) else id(arg)


def user_frame() -> FrameType | None:
    """The frame of the user's code that called into the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType | None) -> str:
    """File and line."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else "?"


def view_like(memory: Memory, array: Any) -> Any:
    """A view of the memory with the shape and strides of `array`."""
    strided = namespace(memory.root).lib.stride_tricks.as_strided
    return strided(memory.root[memory.offset :], array.shape, array.strides)
