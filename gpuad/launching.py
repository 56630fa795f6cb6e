"""Makes launches: finds the executor, judges what depends on a launch's numbers, and gives each generated kernel its arguments.

A `Launch` is a bound call with its geometry; a `Plan` says for one adjoint and one set of numbers which kernels run and which memory they
need. Everything that can be refused is refused before the primal is launched.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from .analysis.affine import evaluate, strides
from .analysis.coverage import covered
from .analysis.depth import depths
from .analysis.injectivity import Launch as Numbers
from .analysis.injectivity import collision_free, footprints
from .analysis.races import Extent, proved_race
from .annotations import namespace
from .arguments import Bound, BoundArgument
from .arguments.aliasing import overlap, region
from .differentiate import Adjoint, Judged, Parameter
from .errors import CompileError, LaunchError, ShadowError, UnsupportedError
from .executors.base import Dim3, Executor, Memory
from .gathering import Failed, Gathering, judge
from .ir.nodes import Accumulate, Buffer, Kernel, Load, Store, Var
from .ir.rewrite import walk_stmts
from .ir.types import Scalar
from .transform.aliases import Aliases
from .transform.claims import contested
from .transform.stack_layout import GROUP
from .transform.tiles import tiles

_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)
_analysing: ContextVar[bool] = ContextVar("analysing", default=True)
_plain_allowed: ContextVar[bool] = ContextVar("plain_allowed", default=True)


@contextlib.contextmanager
def executor_for_tests(executor: Executor) -> Iterator[None]:
    """Within it NumPy arrays run on the given executor. For tests: users' arrays choose."""
    token = _chosen.set(executor)
    try:
        yield
    finally:
        _chosen.reset(token)


def executor_of(library: str | None, exact: bool = False) -> Executor:
    """The executor for arrays of a library: CuPy's run on the GPU, NumPy's on the CPU. `exact`: without contraction of products and
    sums."""
    if library == "cupy":
        return _cuda(exact)
    return _chosen.get() or _cpu()


@cache
def _cuda(exact: bool) -> Executor:
    from .executors.cuda import Cuda

    return Cuda(contract=not exact)


@cache
def _cpu() -> Executor:
    from .executors.compiler import find_compiler
    from .executors.host import Host
    from .executors.reference import Reference

    try:
        find_compiler()
    except CompileError:
        return Reference()
    return Host()


@dataclass(frozen=True, eq=False)
class Call:
    """A bound call and its geometry."""

    bound: Bound
    grid: Dim3
    block: Dim3
    shared_mem: int = 0
    stream: Any = None
    loose: frozenset[int] = frozenset()  # parameters through which the kernel may reach outside of their views
    exact: bool = False  # products and sums are not contracted
    pool: Executor | None = None  # the executor with memory of its own, if a tape has one

    @property
    def executor(self) -> Executor:
        return self.pool or executor_of(self.bound.library, self.exact)

    def prepare(self, kernels: Sequence[Kernel | None]) -> None:
        """Compiles what the launch will need, before anything is written."""
        x, y, z = self.block
        self.executor.prepare([k for k in kernels if k is not None], x * y * z)

    @property
    def threads(self) -> int:
        """Number of threads of the launch."""
        return int(np.prod(self.grid, dtype=np.int64) * np.prod(self.block, dtype=np.int64))

    def run(self, kernel: Kernel, args: list[Any], grid: Dim3 | None = None) -> None:
        """Launches a kernel, with a grid of its own if one is given."""
        self.executor.launch(kernel, grid or self.grid, self.block, args, shared_mem=self.shared_mem)

    @cached_property
    def key(self) -> Hashable:
        """What the analyses of a launch depend on besides the kernel: geometry, integers, and how the arrays are laid out and overlap."""
        return (
            self.grid,
            self.block,
            tuple(self.overlaps.items()),
            tuple(
                None
                if a.array is None and a.value is None
                else (a.array.shape, a.array.strides)
                if a.array is not None
                else _integer(a.value)
                for a in self.bound.arguments
            ),
        )

    def numbers(self, kernel: Kernel) -> Numbers:
        """Grid, block and integer scalars as the analyses take them."""
        scalars: dict[Var, int] = {}
        for item, argument in zip(kernel.params, self.bound.arguments, strict=False):
            if isinstance(item, Var) and item.type.is_integer and argument.value is not None:
                scalars[item] = int(argument.value)
        offsets = self.offsets()
        extra = [p for p in kernel.params[len(self.bound.arguments) :] if isinstance(p, Var)]
        scalars.update(zip(extra, offsets.values(), strict=False))
        return Numbers(self.grid, self.block, scalars)

    def offsets(self) -> dict[int, int]:
        """Element offsets of overlapping parameters from their base, for those that do not start where the base does."""
        return {i: o for i, (_, o) in self.overlaps.items() if o != 0}

    @cached_property
    def overlaps(self) -> Mapping[int, tuple[int, int]]:
        """For each parameter that may reach the memory of an earlier one: (position of that one, offset in elements)."""
        found: dict[int, tuple[int, int]] = {}
        aliases = self.bound.aliases
        wide = {a.allocation for i, a in enumerate(aliases) if a is not None and i in self.loose}
        for i, alias in enumerate(aliases):
            if alias is None:
                continue
            base, offset = (alias.allocation, alias.allocation_offset) if alias.allocation in wide else (alias.overlap, alias.offset)
            if base == i:
                continue
            if offset is None:
                raise LaunchError(f"`{self.bound.kernel}`: two arguments overlap by a part of an element; pass copies.")
            found[i] = (base, offset)
        return found

    def aliases(self) -> Aliases:
        """The pattern of overlaps."""
        return Aliases.of({i: (base, offset == 0) for i, (base, offset) in self.overlaps.items()})

    def offset_values(self) -> list[Any]:
        return [np.int64(o) for o in self.offsets().values()]


def _integer(value: Any) -> int | None:
    """A number as far as it enters proofs."""
    return int(value) if value.dtype.kind in "iu" else None


def dtype_of(type_: Scalar) -> np.dtype[Any]:
    """The NumPy dtype of a scalar type."""
    name = {"bool": "bool", "int": f"int{type_.bits}", "uint": f"uint{type_.bits}", "float": f"float{type_.bits}"}[type_.kind]
    return np.dtype(name)


def check_device(call: Call) -> None:
    """Refuses arrays that are not on the current device."""
    if call.bound.library != "cupy":
        return
    from .executors.cuda import current_device

    here = current_device()
    for argument in call.bound.arguments:
        for array in (argument.array, *argument.shadow_arrays):
            if array is not None and int(array.device.id) != here:
                raise LaunchError(
                    f"`{call.bound.kernel}`: `{argument.name}` or its shadow is on device {int(array.device.id)}, but device {here} is the "
                    "current one; enter the arrays' device, or copy them."
                )


def check_bounds(kernel: Kernel, call: Call, extents: tuple[Extent, ...]) -> None:
    """Refuses a launch that surely writes outside of an array's allocation."""
    memories = {item: (a.memory, a.name) for item, a in zip(kernel.params, call.bound.arguments, strict=False)}
    for extent in extents:
        memory, name = memories.get(extent.buffer, (None, ""))
        if memory is None:
            continue
        size = int(memory.root.size)
        if memory.offset + extent.low < 0 or memory.offset + extent.high >= size:
            raise LaunchError(
                f"`{call.bound.kernel}`: this launch writes `{name}` from element {extent.low} to {extent.high} ({extent.stmt.span}), but "
                f"its memory ends at {size - memory.offset - 1}: check the sizes that are passed, grid and block. Nothing was launched."
            )


def premises_hold(adjoint: Adjoint, call: Call) -> bool:
    """Whether the strides that the adjoint takes to be non-zero are so in this launch, and the tiles that it fills again are filled by
    each iteration before they are read."""
    numbers = call.numbers(adjoint.primal)
    if not all(strides(evaluate(p, numbers.scalars)) for p in adjoint.recording.premises):
        return False
    filled: bool = adjoint.facts.get(
        ("tiles", call.key), lambda: all(covered(adjoint.primal, loop, tile, numbers) for loop, tile in tiles(adjoint.primal))
    )
    return filled


# --- numbers of a launch -----------------------------------------------------------------------------------------------------------------


def plain_shadows(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    """The shadows that this launch may accumulate plainly."""
    if not _plain_allowed.get():
        return frozenset()

    def prove() -> frozenset[Buffer]:
        numbers = call.numbers(adjoint.primal)
        return frozenset(b for b in adjoint.undecided if collision_free(adjoint.layout.body, [b], numbers))

    found: frozenset[Buffer] = adjoint.facts.get(("plain", call.key), prove)
    return found


@dataclass(frozen=True, eq=False)
class Stage:
    """One kernel of a reverse pass. `grid`: its own, if that is not the primal's; `numbers`: the values of parameters that belong to it, by
    role and position."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]
    grid: Dim3 | None = None
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)


def gathering(adjoint: Adjoint, call: Call) -> Gathering | None:
    """The accumulations that this launch may gather, or None if there are none."""
    found: Gathering | None = adjoint.facts.get(("gather", call.key, _plain_allowed.get()), lambda: _judged(adjoint, call))
    return found


def _judged(adjoint: Adjoint, call: Call) -> Gathering | None:
    plain = plain_shadows(adjoint, call)
    wanted = frozenset(adjoint.undecided) - plain if _plain_allowed.get() else frozenset()
    while wanted:
        gathered = adjoint.gather(wanted)
        verdict = judge(gathered, call.numbers(adjoint.primal), plain) if gathered is not None else Failed(wanted)
        if isinstance(verdict, Gathering):
            return verdict
        wanted = (gathered.buffers if gathered is not None else frozenset()) - verdict.buffers
    return None


_NO_SHADOWS: frozenset[Buffer] = frozenset()


def stages(
    adjoint: Adjoint,
    call: Call,
    assigned: frozenset[Buffer] = _NO_SHADOWS,
    left: frozenset[Buffer] = _NO_SHADOWS,
    lent: frozenset[Buffer] = _NO_SHADOWS,
) -> tuple[Stage, ...]:
    """The kernels of the reverse pass, in order. Shadows in `assigned` are zero; elements taken of those in `left` need not be cleared;
    nothing is added to those in `lent`."""
    key = "stages", call.key, _plain_allowed.get(), assigned, left, lent
    found: tuple[Stage, ...] = adjoint.facts.get(key, lambda: _stages(adjoint, call, assigned, left, lent))
    return found


def _stages(
    adjoint: Adjoint, call: Call, assigned: frozenset[Buffer], left: frozenset[Buffer], lent: frozenset[Buffer]
) -> tuple[Stage, ...]:
    plain, found = plain_shadows(adjoint, call), gathering(adjoint, call)
    if found is None:
        return (Stage(adjoint.variant((plain, assigned, left, lent)), adjoint.parameters),)
    numbers = {(role, k): n for role, ns in (("first", found.first), ("threads", found.threads)) for k, n in enumerate(ns)}
    collecting = Stage(*adjoint.gathering(found.gathered, found.sides, assigned), found.grid, numbers)
    rest = adjoint.rest(found.buffers, (plain, assigned - found.buffers, left, lent))
    return (collecting, Stage(rest, adjoint.parameters)) if rest is not None else (collecting,)


def stays_inside(kernel: Kernel, call: Call) -> frozenset[str]:
    """Names of the pointer parameters through which the launch provably stays inside of the view that was passed."""
    numbers = call.numbers(kernel)
    found = footprints(kernel.body, kernel.buffers, numbers)
    inside = set()
    for item, argument in zip(kernel.params, call.bound.arguments, strict=False):
        reach = found.get(item) if isinstance(item, Buffer) else None
        memory = argument.memory
        if reach is None or memory is None or reach[0] < 0:
            continue
        if reach[1] < dense_extent(argument.array) * argument.array.dtype.itemsize // memory.itemsize:
            inside.add(argument.name)
    return frozenset(inside)


def dense_extent(array: Any) -> int:
    """Elements from a view's first element to its last, both included, if it is dense; else only the first run."""
    if array.size == 0:
        return 0
    span = 1 + sum(abs(s) * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)) // array.dtype.itemsize
    return span if span == array.size else 1


def check_stores(adjoint: Judged, call: Call) -> None:
    """Refuses a launch in which two threads store different values to one element that has a shadow; nothing has been launched then."""
    doubtful = stores_in_doubt(adjoint, call)
    if not doubtful:
        return
    check = adjoint.claims(frozenset(doubtful))
    positions = {item: i for i, item in enumerate(adjoint.primal.params)}
    given = [call.bound.arguments[positions[b]].memory for b in check.copies]
    owned = [call.bound.arguments[positions[b]].memory for b in check.claims]
    flag = Memory(call.executor.zeros(1, np.dtype(np.int32)))
    claims = [None if m is None else Memory(call.executor.zeros(m.root.size, np.dtype(np.int64)), m.offset) for m in owned]
    for run in (0, 1):
        copies = [None if m is None else copied(call, m) for m in given]
        call.run(check.kernel, [*call.bound.primals(), *call.offset_values(), *copies, *claims, np.int32(run), flag])
    if int(flag.root[0]):
        names = ", ".join(f"`{b.name}`" for b in doubtful)
        raise LaunchError(
            f"`{call.bound.kernel}`: two threads write to one element of {names}: what stays is undefined, and so is the gradient. "
            "Use atomicAdd to sum, or make the indices unique. Nothing was launched."
        )


def stores_in_doubt(adjoint: Judged, call: Call) -> list[Buffer]:
    """The shadowed buffers for which a check before each launch has to tell whether stores collide. UnsupportedError for a proved race."""
    check_races(adjoint, call)
    found: list[Buffer] = adjoint.facts.get(("stores", call.key), lambda: doubtful_stores(adjoint, call))
    return found


def check_races(adjoint: Judged, call: Call) -> None:
    """Refuses a launch in which one thread surely reads what another writes."""
    race = adjoint.facts.get(("race", call.key), lambda: proved_race(adjoint.primal, call.numbers(adjoint.primal)))
    if race is not None:
        raise UnsupportedError(
            f"a data race: in this launch a thread reads an element of `{race.buffer.name}` here that another thread writes at "
            f"{race.write.span}; the result depends on chance, and so would its gradient",
            race.read.span,
        )


def doubtful_stores(adjoint: Judged, call: Call) -> list[Buffer]:
    """The shadowed buffers to whose elements two threads may store different values."""
    numbers = call.numbers(adjoint.primal)
    return [b for b in _stored(adjoint) if not collision_free(adjoint.primal.body, [b], numbers, (Store, Accumulate), atomics=False)]


def _stored(adjoint: Judged) -> list[Buffer]:
    return [b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and contested(adjoint.primal, [b])]


def analysing() -> bool:
    """Whether recording is analysed; tests switch it off."""
    return _analysing.get()


@contextlib.contextmanager
def everything_recorded_for_tests() -> Iterator[None]:
    """Within it every value of overwritten memory is recorded, needed or not."""
    token = _analysing.set(False)
    try:
        yield
    finally:
        _analysing.reset(token)


@contextlib.contextmanager
def nothing_plain_for_tests() -> Iterator[None]:
    """Within it every accumulation is atomic."""
    token = _plain_allowed.set(False)
    try:
        yield
    finally:
        _plain_allowed.reset(token)


# --- arguments of generated kernels ------------------------------------------------------------------------------------------------------


@dataclass
class State:
    """The memory with which an adjoint runs: for each user parameter the primal as the reverse sees it (`owned`: copies that are ours),
    copies from before the launch, logs and scratch."""

    primals: dict[int, Any]
    entries: dict[int, Memory] = field(default_factory=dict)
    logs: list[Any] = field(default_factory=list)
    scratch: dict[Buffer, Memory] = field(default_factory=dict)
    overflow: Any = None
    owned: set[int] = field(default_factory=set)
    dots: dict[tuple[str, int], Any] = field(default_factory=dict)  # tangents, by role and position
    shadows: Mapping[int, Memory] = field(default_factory=dict)  # those that live elsewhere than the call says

    def again(self, adjoint: Adjoint, call: Call) -> State:
        """The state for one of several reverse launches: working copies are written by each, so each has its own."""
        working = {p.position for p in adjoint.parameters if p.role == "working"}
        entries = {i: copied(call, m) if i in working and call.bound.width > 1 else m for i, m in self.entries.items()}
        return State(self.primals, entries, self.logs)


def check_stopped(call: Call) -> None:
    """A stopped argument reads memory through which a gradient flows elsewhere in the same launch: the two cannot be told apart."""
    arguments = call.bound.arguments
    bases = {i: call.overlaps.get(i, (i, 0))[0] for i in range(len(arguments))}
    for i, argument in enumerate(arguments):
        others = [a for j, a in enumerate(arguments) if j != i and bases[j] == bases[i] and a.shadows]
        if argument.kind == "stopped" and others:
            raise ShadowError(
                f"`{call.bound.kernel}`: `{argument.name}` is stopped, but its memory is also `{others[0].name}`, which has a shadow; pass "
                "a copy of it. Nothing was launched."
            )


def batch_states(call: Call, written: Sequence[str]) -> list[State]:
    """The primal memory for each direction of a batch: the user's for the first, copies from before the launch for the others."""
    states = [State({i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(call.bound.arguments)})]
    for _ in range(1, call.bound.width):
        copies = {i: copied(call, a.memory) for i, a in enumerate(call.bound.arguments) if a.name in written and a.memory is not None}
        states.append(State({**states[0].primals, **copies}))
    return states


def copied(call: Call, memory: Memory) -> Memory:
    """A copy of the allocation behind a pointer, with the pointer at the same place in it."""
    return Memory(call.executor.copy(memory.root), memory.offset)


def before(adjoint: Adjoint, call: Call) -> State:
    """What must be taken down before the primal runs."""
    state = State({i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(call.bound.arguments)})
    for p in adjoint.parameters:
        if p.role in ("entry", "working"):
            memory = call.bound.arguments[p.position].memory
            if memory is not None:
                state.entries[p.position] = copied(call, memory)
    state.logs = new_logs(adjoint, call)
    return state


def new_logs(adjoint: Adjoint, call: Call) -> list[Memory]:
    """Room for the results of atomics, one element a thread."""
    return [Memory(call.executor.zeros(call.threads, dtype_of(log.element))) for log in adjoint.logs]


def run_primal(kernel: Kernel, adjoint: Adjoint | None, call: Call, state: State | None = None) -> None:
    """Runs the primal, or its augmented form if something has to be written down on the way."""
    args = [*call.bound.primals(), *call.offset_values()]
    if adjoint is not None and adjoint.augmented is not None and state is not None:
        call.run(adjoint.augmented, [*args, *state.logs])
        return
    call.run(kernel, args)


def run_reverse(adjoint: Adjoint, kernel: Kernel, call: Call, state: State, width: int = 0) -> None:
    """Counts what the stacks need, allocates it, and runs the reverse kernel."""
    _scratch(adjoint, call, state)
    call.run(kernel, arguments(adjoint.parameters, call, state, width))
    if state.overflow is not None and int(state.overflow.root[0]):
        raise LaunchError(
            f"`{kernel.name}`: a stack overflowed, which means that counting and reversing took different branches; the shadows of this "
            "launch are undefined. Please report this kernel."
        )


def run_stages(adjoint: Adjoint, stages: Sequence[Stage], call: Call, state: State, width: int = 0) -> None:
    """Runs the kernels of a reverse pass."""
    for stage in stages:
        if stage.grid is None:
            run_reverse(adjoint, stage.kernel, call, state, width)
            continue
        call.run(stage.kernel, stage_arguments(stage, call, state, width), stage.grid)


def stage_arguments(stage: Stage, call: Call, state: State, width: int = 0) -> list[Any]:
    """What a kernel of a reverse pass is launched with."""
    given = [(p, stage.numbers.get((p.role, p.position))) for p in stage.parameters]
    return [_argument(p, call, state, width) if number is None else np.int32(number) for p, number in given]


def _scratch(adjoint: Adjoint, call: Call, state: State) -> None:
    if not adjoint.layout.scratch:
        return
    groups = -(-call.threads // GROUP)
    for scratch, base in zip(adjoint.layout.scratch, _bases(adjoint, call, state, groups), strict=True):
        state.scratch[scratch.base] = Memory(base)
        for array in scratch.fields:
            state.scratch[array] = Memory(call.executor.zeros(max(int(base[-1]), 1), dtype_of(array.element)))
    state.overflow = Memory(call.executor.zeros(1, np.dtype(np.int32)))


def _bases(adjoint: Adjoint, call: Call, state: State, groups: int) -> list[Any]:
    """Where each group's part of a stack begins: from trip counts that the launch's numbers give, else by counting."""
    bounds = adjoint.facts.get(("depths", call.key), lambda: depths(adjoint.unlaid, call.numbers(adjoint.primal)))
    known = [bounds.get(scratch.stack) for scratch in adjoint.layout.scratch]
    counted = _depths(adjoint, call, state, groups) if any(k is None for k in known) else []
    bases = []
    for number, depth in enumerate(known):
        base = call.executor.zeros(groups + 1, np.dtype(np.int64))
        base[1:] = GROUP if depth is None else GROUP * depth
        if depth is None:
            base[1:] *= counted[number]
        bases.append(base.cumsum())
    return bases


def _depths(adjoint: Adjoint, call: Call, state: State, groups: int) -> list[Any]:
    """The deepest stack of each group of threads, for each scratch."""
    assert adjoint.counting is not None
    arrays = [Memory(call.executor.zeros(groups * GROUP, np.dtype(np.int32))) for _ in adjoint.layout.scratch]
    aside = State(state.primals, {}, state.logs)
    stored = {s.buffer for s in walk_stmts(adjoint.counting.body) if isinstance(s, Store | Accumulate)}
    for p in adjoint.counting_parameters:
        if p.role in ("entry", "working") and p.position in state.entries:
            memory = state.entries[p.position]
            aside.entries[p.position] = copied(call, memory) if p.item in stored else memory
    args = [arrays[p.position] if p.role == "depth" else _argument(p, call, aside, 0) for p in adjoint.counting_parameters]
    call.run(adjoint.counting, args)
    return [a.root.reshape(groups, GROUP).max(axis=1) for a in arrays]


def arguments(parameters: tuple[Parameter, ...], call: Call, state: State, width: int = 0) -> list[Any]:
    """What a generated kernel is launched with."""
    return [_argument(p, call, state, width) for p in parameters]


def keep_live(adjoint: Adjoint, call: Call, state: State, not_overwritten: frozenset[str]) -> dict[str, int]:
    """Copies the primal memory that the reverse reads as it is after the launch, where the caller may overwrite it. What the caller
    promises not to overwrite is marked by a fingerprint instead, which is returned."""
    marks: dict[str, int] = {}
    for p in adjoint.parameters:
        memory = state.primals.get(p.position)
        if p.role != "primal" or p.item not in adjoint.reads or memory is None:
            continue
        if p.item.name in not_overwritten:
            marks[p.item.name] = fingerprint(memory.root)
        else:
            state.primals[p.position] = copied(call, memory)
            state.owned.add(p.position)
    return marks


def fingerprint(array: Any) -> int:
    """A number that differs, nearly always, if any element of a flat array does."""
    if isinstance(array, np.ndarray):
        return zlib.crc32(array.view(np.uint8).data)
    words = array.view(np.uint8).astype(np.uint64)
    places = namespace(array).arange(1, words.size + 1, dtype=np.uint64)
    return int((words * (places * np.uint64(0x9E3779B97F4A7C15))).sum())


def check_same(before: Call, now: Call, marks: Mapping[str, int]) -> None:
    """Refuses a reverse that is not that of the launch that was saved, or whose inputs have changed against a promise."""
    name = now.bound.kernel
    if before.key != now.key or before.loose != now.loose:
        raise LaunchError(f"`{name}`: the reverse is called with another grid, block, integers, array layouts or overlaps than its forward")
    for argument in now.bound.arguments:
        mark = marks.get(argument.name)
        if mark is not None and argument.memory is not None and fingerprint(argument.memory.root) != mark:
            raise LaunchError(
                f"`{name}`: `{argument.name}` was declared not_overwritten, but has changed since the forward; leave it out of "
                "not_overwritten to have it saved. No shadow was touched."
            )


def loads(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether the kernel reads the buffer."""
    return any(isinstance(s, Load) and s.buffer == buffer for s in walk_stmts(kernel.body))


def _argument(p: Parameter, call: Call, state: State, width: int) -> Any:
    if p.role.endswith("_dot"):
        return state.dots[p.role, p.position]
    match p.role:
        case "primal":
            return state.primals[p.position]
        case "offset":
            return np.int64(call.offsets()[p.position])
        case "shadow":
            return state.shadows.get(p.position) or shadow_of(call, p.position, width)
        case "entry" | "working":
            return state.entries.get(p.position)
        case "log":
            return state.logs[p.position]
        case "overflow":
            return state.overflow
    assert isinstance(p.item, Buffer)
    return state.scratch[p.item]


def shadow_of(call: Call, position: int, width: int) -> Memory | None:
    """The shadow for a parameter, which may be that of one that overlaps it, moved to where this one starts."""
    arguments = call.bound.arguments
    own = arguments[position]
    if own.shadows:
        return own.shadows[width]
    for other, (base, offset) in call.overlaps.items():
        if base == position and arguments[other].shadows:
            shadow = arguments[other].shadows[width]
            return Memory(shadow.root, shadow.offset - offset)
    return None


def active_positions(call: Call) -> dict[int, BoundArgument]:
    """Parameters that have a shadow, each overlap class by its base."""
    found: dict[int, BoundArgument] = {}
    overlaps = call.overlaps
    for i, argument in enumerate(call.bound.arguments):
        if argument.shadows:
            found.setdefault(overlaps.get(i, (i, 0))[0], argument)
    return found


def shadow_type(argument: BoundArgument) -> Scalar:
    """The element type of an argument's shadow, which may be wider than the primal's."""
    kinds = {"f": "float"}
    dtype = argument.shadows[0].root.dtype
    return Scalar(kinds[dtype.kind], dtype.itemsize * 8)


# --- forward over reverse ----------------------------------------------------------------------------------------------------------------


def paired(name: str, call: Call, directions: Sequence[Any]) -> tuple[Any, ...]:
    """The directions as the arguments of a call of their own, so that they are bound and checked like one: what has no tangent is the
    primal itself, not active."""
    if len(directions) != len(call.bound.arguments):
        raise LaunchError(f"`{name}`: {len(directions)} directions for {len(call.bound.arguments)} arguments; use None where there is none")
    out = []
    for argument, direction in zip(call.bound.arguments, directions, strict=True):
        if bool(argument.shadows) != (direction is not None):
            what = "needs a direction: Duplicated(x_dot, dx_dot)" if argument.shadows else "is not active: its direction is None"
            raise ShadowError(f"`{name}`: argument `{argument.name}` {what}")
        out.append(direction if direction is not None else _bare(argument))
    return tuple(out)


def check_directions(name: str, call: Call, dots: Call) -> None:
    """A direction is laid out like its argument, in memory of its own. Raises ShadowError."""
    if call.bound.width > 1 or dots.bound.width > 1:
        raise ShadowError(
            f"`{name}`: hvp takes one direction at a time; call it for each shadow of a BatchDuplicated. Nothing was launched."
        )
    kept = next((a.name for a in call.bound.arguments if a.keep), None)
    if kept is not None:
        raise ShadowError(f"`{kept}`: keep=True has no meaning in hvp, which takes the seed; pass a copy of it. Nothing was launched.")
    if call.key != dots.key:
        raise ShadowError(
            f"`{name}`: directions have the shapes and strides of their arguments, and overlap where these do, at the same offsets. "
            "Nothing was launched."
        )
    used = [region(x) for a in call.bound.arguments for x in (a.array, *a.shadow_arrays) if x is not None]
    for a in dots.bound.arguments:
        if a.shadows and any(overlap(region(x), u) for x in (a.array, *a.shadow_arrays) if x is not None for u in used):
            raise ShadowError(
                f"`{name}`: the direction of `{a.name}` lies in an argument or in a shadow of this call; pass a copy of it, x.copy(). "
                "Nothing was launched."
            )


def _bare(argument: BoundArgument) -> Any:
    return argument.array if argument.is_pointer else argument.value


def before_second(adjoint: Adjoint, call: Call, dots: Call) -> State:
    """The state of a second-order reverse: copies of primals and of their tangents, and the tangents themselves."""
    state = before(adjoint, call)
    for p in adjoint.parameters:
        if not p.role.endswith("_dot"):
            continue
        argument = dots.bound.arguments[p.position]
        if p.role in ("entry_dot", "working_dot") and argument.memory is not None:
            state.dots[p.role, p.position] = copied(call, argument.memory)
        elif p.role == "shadow_dot":
            state.dots[p.role, p.position] = shadow_of(dots, p.position, 0)
        elif p.role == "primal_dot":
            state.dots[p.role, p.position] = argument.memory if argument.is_pointer else _one(call, argument.value)
    return state


def _one(call: Call, value: Any) -> Memory:
    array = call.executor.zeros(1, value.dtype)
    array[0] = value
    return Memory(array)


def tangent_arguments(parameters: tuple[Parameter, ...], call: Call, state: State) -> list[Any]:
    """Arguments of the forward kernel where tangents are not in the shadows but in `state.dots`."""
    return [state.dots["primal_dot", p.position] if p.role == "shadow" else _argument(p, call, state, 0) for p in parameters]
