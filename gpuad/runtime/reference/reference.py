"""A launch on the reference executor: arguments checked, memories grouped and copied, blocks run in chunks, results handed over only if no
race and no bad index was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from ...errors import GpuadError, LaunchError
from ...ir.dtypes import Array, dtype_of
from ...ir.nodes import Accumulate, Alloc, Atomic, Barrier, Block, Buffer, For, If, Kernel, Stmt, Store, Take, Var, While
from ...ir.types import Space
from ..allocation import asked
from ..array_types import NdArray
from ..base import Argument, Dim3, InOrder, Memory
from ..tensor_versions import count_writes
from .accesses import Run
from .expressions import Names
from .frame import ALL, Frame, Geometry, Storage, race
from .races import Conflict, Tracker, WarpClocks
from .statements import compile_block


@dataclass(frozen=True, eq=False)
class Program:
    """`written` are the buffers that the kernel may write; `private_bytes` what a thread's local arrays need."""

    kernel: Kernel
    run: Run
    names: Names
    written: frozenset[Buffer]
    barriers: bool
    private_bytes: int
    warp_clocks: bool  # whether there are barriers of a warp


def compile_kernel(kernel: Kernel) -> Program:
    """Raises GpuadError if the kernel is malformed, UnsupportedError for what the reference executor lacks."""
    names = Names()
    for buffer in kernel.buffers:
        names.buffer(buffer)
    for var in kernel.scalars:
        names.var(var)
    run = compile_block(kernel.body, names)
    statements = tuple(_statements(kernel.body))
    written = frozenset(s.buffer for s in statements if isinstance(s, Store | Accumulate | Take | Atomic))
    local = [s.buffer for s in statements if isinstance(s, Alloc) and s.buffer.space is not Space.SHARED]
    return Program(
        kernel,
        run,
        names,
        written,
        any(isinstance(s, Barrier) for s in statements),
        sum((b.length or 0) * (b.element.size + 4) for b in local),
        any(isinstance(s, Barrier) and s.scope == "warp" for s in statements),
    )


def _statements(block: Block) -> Iterator[Stmt]:
    for stmt in block:
        yield stmt
        match stmt:
            case If(then=first, otherwise=second) | While(header=first, body=second):
                yield from _statements(first)
                yield from _statements(second)
            case For(body=body):
                yield from _statements(body)


_LANES = 2**16  # threads in lockstep at a time
_PRIVATE = 2**28  # bytes of local arrays at a time
_KEPT = 512  # compiled kernels


@dataclass(eq=False)
class _Group:
    """One allocation, whatever the pointers into it: its bytes, a working copy if the kernel writes it, and the sets of who touched it."""

    root: NdArray
    cell: int
    written: bool
    work: Array
    tracker: Tracker | None = None


class Reference(InOrder):
    """The oracle: interprets core IR with NumPy and needs no compiler.

    `check`: find data races (bad indices and divergent barriers are always found). `order`: in which order threads come where order shows
    (atomics, floating-point sums, blocks of a large grid): 'forward', 'reversed' or 'random' (from `seed`). `limit`: iterations after
    which a while loop counts as endless. `steps`: how many iterations and accesses that are looked at a launch may have, each of all
    threads at once (UnsupportedError beyond); None: any number. A `How` that is undecided is taken as atomic.

    `findings` are messages about the last launch: reads outside an allocation whose values were not used.
    """

    name = "reference"
    has_rows = False
    orders_blocks = True
    sums_over_blocks = True

    def __init__(self, check: bool = True, order: str = "forward", seed: int = 0, limit: int = 1_000_000, steps: int | None = None) -> None:
        if order not in ("forward", "reversed", "random"):
            raise ValueError(f"order must be 'forward', 'reversed' or 'random', not {order!r}")
        self.check = check
        self.order = order
        self.seed = seed
        self.limit = limit
        self.steps = steps
        self.findings: list[str] = []
        self._programs: dict[int, Program] = {}

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Runs the kernel on NumPy memory. Raises LaunchError, RaceError, BoundsError, BarrierError, or UnsupportedError for what it cannot
        interpret; whatever it raises, no argument has changed."""
        program = self._program(kernel)
        geometry = _geometry(grid, block)
        _check_arguments(kernel, args)
        self.findings = []
        with np.errstate(all="ignore"):
            try:
                groups = self._run(program, geometry, args, shared_mem, None)
            except Conflict as conflict:
                raise self._explain(program, geometry, args, shared_mem, conflict) from None
        written = [group for group in groups if group.written]
        for group in written:
            group.root.view(np.uint8)[...] = group.work
        count_writes(group.root for group in written)

    def prepared(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0) -> Callable[[], Any]:
        """A launch as a callable that makes it."""
        _check_arguments(kernel, args)
        return partial(self.launch, kernel, grid, block, args, shared_mem=shared_mem)

    def prepare(self, kernels: Sequence[Kernel], threads: int = 1) -> None:
        """Nothing: kernels are not compiled."""

    def zeros(self, length: int, dtype: Any) -> Array:
        """A new flat array of zeros."""
        asked(length * np.dtype(dtype).itemsize)
        return np.zeros(length, dtype)

    def copy(self, array: Any) -> Array:
        """A new array with the same content and dtype."""
        asked(int(array.nbytes))
        return np.array(array)

    def _program(self, kernel: Kernel) -> Program:
        known = self._programs.get(id(kernel))  # it keeps the kernel alive, so that its id stays its own
        if known is None:
            known = self._programs[id(kernel)] = compile_kernel(kernel)
            if len(self._programs) > _KEPT:
                del self._programs[next(iter(self._programs))]
        return known

    def _explain(self, program: Program, geometry: Geometry, args: Sequence[Argument], shared_mem: int, conflict: Conflict) -> GpuadError:
        """Repeats the launch with the conflict's element watched."""
        try:
            self._run(program, geometry, args, shared_mem, (conflict.tracker.key, conflict.cell))
        except Conflict as again:
            return race(again.tracker, geometry)
        raise AssertionError("a launch that is repeated on the same memory went another way")

    def _run(
        self, program: Program, geometry: Geometry, args: Sequence[Argument], shared_mem: int, watch: tuple[object, int] | None
    ) -> list[_Group]:
        storages, groups = _bind(program, geometry, args, self.check, watch)
        causes: list[Any] = []
        steps = None if self.steps is None else [self.steps]
        for number, threads in enumerate(self._chunks(program, geometry)):
            frame = Frame(
                geometry=geometry,
                threads=threads,
                env=[None] * len(program.names.vars),
                storages=[*storages, *[None] * (len(program.names.buffers) - len(storages))],
                shared_mem=shared_mem,
                check=self.check,
                limit=self.limit,
                steps=steps,
                causes=causes,
                intervals=np.zeros(len(threads) // geometry.threads, np.int32) if program.barriers else None,
                warp_clocks=WarpClocks(len(threads)) if program.warp_clocks else None,
                watch=watch,
                chunk=number,
            )
            for param, arg in zip(program.kernel.params, args, strict=True):
                if isinstance(param, Var):
                    frame.define(program.names.var(param), _scalar(param, arg))
            program.run(frame, ALL)
        self.findings = [f"{what} `{buffer.name}` at {stmt.span}, unused" for stmt, buffer, what in causes if what != "uninitialised"]
        return groups

    def _chunks(self, program: Program, geometry: Geometry) -> list[Array]:
        """Numbers of the threads in the order asked for, some whole blocks at a time."""
        blocks, lanes = np.arange(geometry.blocks), np.arange(geometry.threads)
        if self.order == "reversed":
            blocks, lanes = blocks[::-1], lanes[::-1]
        elif self.order == "random":
            random = np.random.default_rng(self.seed)
            blocks, lanes = random.permutation(blocks), random.permutation(lanes)
        room = min(_LANES, _PRIVATE // max(program.private_bytes, 1))
        at_a_time = max(1, room // geometry.threads)
        starts = [*range(0, geometry.blocks, at_a_time), geometry.blocks]
        return [(blocks[a:b, None] * geometry.threads + lanes).ravel().astype(np.int32) for a, b in pairwise(starts)]


# --- arguments -----------------------------------------------------------------------------------------------------------------------


def _geometry(grid: Dim3, block: Dim3) -> Geometry:
    for name, shape, limits in (("grid", grid, (2**31 - 1, 65535, 65535)), ("block", block, (1024, 1024, 64))):
        if len(shape) != 3 or any(not 1 <= n <= limit for n, limit in zip(shape, limits, strict=True)):
            raise LaunchError(f"{name} {tuple(shape)} is outside (1, 1, 1) to {limits}")
    geometry = Geometry((int(grid[0]), int(grid[1]), int(grid[2])), (int(block[0]), int(block[1]), int(block[2])))
    if geometry.threads > 1024:
        raise LaunchError(f"block {geometry.block} has {geometry.threads} threads, more than 1024")
    if geometry.threads * geometry.blocks >= 2**31 - 4:
        raise LaunchError(f"{geometry.threads * geometry.blocks} threads are too many for the reference executor")
    return geometry


def _check_arguments(kernel: Kernel, args: Sequence[Argument]) -> None:
    if len(args) != len(kernel.params):
        raise LaunchError(f"kernel `{kernel.name}` has {len(kernel.params)} parameters, but {len(args)} arguments were given")
    for param, arg in zip(kernel.params, args, strict=True):
        if isinstance(param, Buffer):
            _check_memory(param, arg)
        else:
            _check_scalar(param, arg)


def _check_scalar(param: Var, arg: Argument) -> None:
    if isinstance(arg, Memory) or arg is None or np.ndim(arg):
        raise LaunchError(f"`{param.name}` is a scalar, but a {type(arg).__name__} was given")
    if not param.type.is_float and _scalar(param, arg)[0] != arg:
        raise LaunchError(f"`{param.name}` of type {param.type} cannot hold {arg}")


def _scalar(param: Var, arg: Any) -> Array:
    return np.array([arg]).astype(dtype_of(param.type))


def _check_memory(param: Buffer, arg: Argument) -> None:
    if arg is None:
        return
    if not isinstance(arg, Memory) or not isinstance(arg.root, np.ndarray):
        raise LaunchError(f"`{param.name}` is a pointer, but a {type(arg).__name__} was given")
    root = arg.root
    if root.dtype != dtype_of(param.element):
        raise LaunchError(f"`{param.name}` points to {param.element}, but its memory holds {root.dtype}")
    if root.ndim != 1 or not root.flags.c_contiguous:
        raise LaunchError(f"the memory of `{param.name}` is not flat and contiguous")


def _bind(
    program: Program, geometry: Geometry, args: Sequence[Argument], check: bool, watch: tuple[object, int] | None
) -> tuple[list[Storage | None], list[_Group]]:
    """A storage for each pointer parameter, and the allocations behind them."""
    pairs = [(p, a if isinstance(a, Memory) else None) for p, a in zip(program.kernel.params, args, strict=True) if isinstance(p, Buffer)]
    groups = _groups([(p, m) for p, m in pairs if m is not None and m.root.size], program.written)
    for number, group in enumerate(groups.values()):
        if check and group.written:
            key = ("launch", number)
            watched = watch[1] if watch is not None and watch[0] == key else None
            group.tracker = Tracker(key, len(group.work) // group.cell, geometry.threads, watched)
    return [_storage(param, memory, groups) for param, memory in pairs], list(groups.values())


def _storage(param: Buffer, memory: Memory | None, groups: dict[int, _Group]) -> Storage:
    dtype = dtype_of(param.element)
    if memory is None or not memory.root.size:
        return Storage(param, np.zeros(0, dtype), 0, 0)
    group = groups[_address(memory.root)]
    data = group.work[: memory.root.nbytes].view(dtype)
    return Storage(param, data, memory.offset, len(data), "launch", group.tracker, dtype.itemsize // group.cell)


def _groups(pairs: list[tuple[Buffer, Memory]], written: frozenset[Buffer]) -> dict[int, _Group]:
    """The allocations by address. Raises LaunchError if two roots overlap in part and one is written, or if a read-only one would
    be."""
    groups: dict[int, _Group] = {}
    for param, memory in sorted(pairs, key=lambda pair: -pair[1].root.nbytes):
        size = dtype_of(param.element).itemsize
        group = groups.setdefault(_address(memory.root), _Group(memory.root, size, False, memory.root.view(np.uint8)))
        group.cell = min(group.cell, size)
        if param in written:
            if not memory.root.flags.writeable:
                raise LaunchError(f"the kernel writes `{param.name}`, but its memory is read-only")
            group.written = True
    ordered = [groups[address] for address in sorted(groups)]
    for a, b in combinations(ordered, 2):
        if (a.written or b.written) and _address(a.root) + a.root.nbytes > _address(b.root):
            raise LaunchError("two memories overlap in part; resolve both to the allocation that owns them")
    for group in ordered:
        if group.written:
            group.work = group.root.view(np.uint8).copy()
    return groups


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
