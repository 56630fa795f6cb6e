"""Runs kernels on the CPU: prints them as C++, compiles that with the machine's compiler, calls it through ctypes.

A kernel is compiled once for arguments that do not overlap (`__restrict__`) and, when a launch needs it, once for arguments that do.
Threads of a launch are shared out to as many workers as there are cores. A kernel with atomics runs on one worker, with plain operations: a
serial scatter is far faster than atomics from a few cores, and its result is the same every time.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..codegen.cpu.helpers import WITHOUT_POOL
from ..codegen.cpu.printer import assertions
from ..codegen.cpu.source import has_atomics, host_source
from ..codegen.cpu.widen import wrapping
from ..codegen.folded import written
from ..codegen.spelling import identifier
from ..errors import LaunchError
from ..ir.dtypes import dtype_of
from ..ir.nodes import Accumulate, Buffer, How, Kernel, Var
from ..ir.rewrite import walk_stmts
from ..memo import Same, found
from ..optimize.dead_code import waits
from .allocation import asked
from .array_types import NdArray
from .base import Argument, Dim3, InOrder, Memory
from .block_serialisation import serialise_blocks
from .compiler import compiled, has_compiler
from .tensor_versions import counting
from .thread_pool import Native, thread_pool

_LIMITS = (1 << 31, 1 << 16, 1 << 16)
_FORMATS = {
    "bool": "?7x", "int8": "b7x", "int16": "h6x", "int32": "i4x", "int64": "q", "uint8": "B7x", "uint16": "H6x", "uint32": "I4x",
    "uint64": "Q", "float32": "f4x", "float64": "d",
}  # fmt: skip
# No written argument overlaps another; all arrays and unsigned scalars are below 2^31, and no unsigned sum or product wraps.
Variant: TypeAlias = "tuple[bool, bool]"
_USUAL: Variant = (True, True)
_HALF = 1 << 31
_MOST = 0x7FFF0000  # threads along an axis, as the entries have it
Entry = Callable[[bytes, bytes], int]


class Host(InOrder):
    """The executor for NumPy arrays. `workers`: the number of threads that every kernel is run by, with real atomics where it has any; by
    default as many as the environment variable GPUAD_THREADS says, else one a core, and one for kernels with atomics and small launches."""

    name = "host"
    has_rows = True
    orders_blocks = True
    sums_over_blocks = False

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise LaunchError(f"{workers} workers cannot run a kernel")
        self.workers = workers
        self.lock = threading.Lock()
        self.by_id: dict[int, tuple[weakref.ref[Kernel], _Program]] = {}

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Runs the kernel and returns when it is done; `args` follow `kernel.params`, pointers as `Memory` of NumPy arrays. `shared_mem`
        and `stream` have no meaning here. Raises LaunchError for arguments or a geometry that do not fit, CompileError without a compiler,
        before anything is written."""
        program, block = self.fitting(kernel, block)
        program.run(grid, block, args)

    def prepared(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0) -> Callable[[], Any]:
        """A launch as a call of the compiled entry."""
        program, block = self.fitting(kernel, block)
        return program.prepared(grid, block, args)

    def fitting(self, kernel: Kernel, block: Dim3) -> tuple[_Program, Dim3]:
        """The program that runs a kernel, and with which blocks: if threads wait for one another, each block is one thread of it."""
        kernel = kernel.in_rows or kernel
        program = self.program(kernel)
        if not program.waits:
            return program, block
        check_block(kernel.name, block)
        return self.program(self.serial(kernel, block)), (1, 1, 1)

    def serial(self, kernel: Kernel, block: Dim3) -> Kernel:
        """The kernel as one whose threads are blocks, for blocks of these extents."""
        made: Kernel = found(kernel, ("serial", block), lambda: serialise_blocks(kernel, block))
        return made

    def prepare(self, kernels: Iterable[Kernel], threads: int = 1) -> None:
        """Compiles the kernels now, those of different names in one run of the compiler, so that no launch has to wait for it or can fail
        for want of a compiler; but for those whose threads wait for one another, whose text depends on the block's extents. The caller has
        to keep the kernels."""
        groups: dict[tuple[str, ...], dict[str, _Program]] = {}
        for program in (p for p in map(self.program, (k.in_rows or k for k in kernels)) if not p.waits):
            group = groups.setdefault(program.defines(True), {})
            if program.symbol in group:
                program.entry(_USUAL)
            elif _USUAL not in program.entries:
                group[program.symbol] = program
        for defines, group in groups.items():
            programs = list(group.values())
            entries = load(text_of([p.kernel for p in programs]), list(group), defines) if programs else []
            for program, entry in zip(programs, entries, strict=True):
                program.entries[_USUAL] = entry

    def program(self, kernel: Kernel) -> _Program:
        held = self.by_id.get(id(kernel))
        if held is not None and held[0]() is kernel:
            return held[1]
        program = _Program(kernel, self.workers)
        with self.lock:
            self.by_id = {k: v for k, v in self.by_id.items() if v[0]() is not None}
            self.by_id[id(kernel)] = (weakref.ref(kernel), program)
        return program

    def zeros(self, length: int, dtype: Any) -> Any:
        """A new flat NumPy array of zeros."""
        asked(length * np.dtype(dtype).itemsize)
        return np.zeros(length, dtype)

    def copy(self, array: NdArray) -> Any:
        """A new array with the same content."""
        asked(int(array.nbytes))
        return array.copy()


_sharing = 1  # processes of one job on this process's cores


def share_cores(processes: int) -> None:
    """Says that so many processes of one job compute on the cores of this one, each of which takes its part of them from here on."""
    global _sharing
    _sharing = max(_sharing, processes)


def default_workers() -> int:
    """The number in the environment variable GPUAD_THREADS, else this process's part of the cores that it may use; at least 1."""
    text = os.environ.get("GPUAD_THREADS")
    if text is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // _sharing)
    if not text.isdigit() or int(text) < 1:
        raise LaunchError(f"GPUAD_THREADS is {text!r}: it has to be a number of threads")
    return int(text)


_STOPPED = 2  # above this status, a launch has ended with the failure of an assertion


class _Program:
    """A kernel's compiled text, in the variants that launches have needed."""

    def __init__(self, kernel: Kernel, workers: int | None) -> None:
        self.reference = weakref.ref(kernel)
        self.kernel_name = kernel.name
        self.symbol = f"gpuad_launch_{identifier(kernel.name)}"
        self.params = kernel.params
        self.assertions = tuple(s.text for s in assertions(kernel))
        self.waits = waits(kernel.body)
        atomics = has_atomics(kernel)
        self.atomics = atomics and workers is not None and workers > 1
        self.demand = -workers if workers is not None else 1 if atomics else default_workers()
        self.sums = any(isinstance(s, Accumulate) and s.how is How.REDUCED for s in walk_stmts(kernel.body))
        self.pack = struct.Struct("=" + "".join("Q" if isinstance(p, Buffer) else _FORMATS[str(p.type)] for p in kernel.params)).pack
        changed = {written(s) for s in walk_stmts(kernel.body)}
        self.written = tuple(isinstance(p, Buffer) and p in changed for p in kernel.params)
        self.dtypes = tuple(dtype_of(p.element if isinstance(p, Buffer) else p.type) for p in kernel.params)
        self.unsigned = tuple(k for k, p in enumerate(kernel.params) if isinstance(p, Var) and str(p.type) == "uint32")
        self.wrapping = wrapping(kernel)
        self.wrapped: dict[tuple[Dim3, Dim3, tuple[int, ...]], bool] = {}
        self.sizes = tuple(p.element.size for p in kernel.buffers)
        self.entries: dict[Variant, Entry] = {}
        self.geometries: dict[tuple[Dim3, Dim3], bytes] = {}
        self.disjoint: dict[tuple[int, ...], bool] = {}

    def run(self, grid: Dim3, block: Dim3, args: Sequence[Argument]) -> None:
        if self.prepared(grid, block, args)():
            raise LaunchError(f"{self.kernel_name}: out of memory")

    def prepared(self, grid: Dim3, block: Dim3, args: Sequence[Argument]) -> Callable[[], Any]:
        geometry = self.geometries.get((grid, block)) or self.geometry(grid, block)
        if len(args) != len(self.params):
            raise LaunchError(f"{self.kernel_name} takes {len(self.params)} arguments, not {len(args)}")
        values, ranges = self.values(args)
        variant = self.variant(values, ranges)
        if self.wrapping.asked and variant[1] and self.wraps(grid, block, values):
            variant = variant[0], False
        entry = self.entries.get(variant) or self.entry(variant)
        native = Native(entry, geometry, self.pack(*values), args, abs(self.demand), self.sums)
        launch = partial(self.asserted, native) if self.assertions else native
        return counting(launch, (a.root for a, on in zip(args, self.written, strict=True) if on and isinstance(a, Memory)))

    def asserted(self, launch: Callable[[], int]) -> int:
        """Launches what may end with an assertion that fails."""
        status = launch()
        if status > _STOPPED:
            raise LaunchError(
                f"{self.kernel_name}: an assertion failed; what was written before stays: {self.assertions[status - _STOPPED - 1]}"
            )
        return status

    def values(self, args: Sequence[Argument]) -> tuple[list[Any], tuple[int, ...]]:
        """Addresses and scalars in the order of the call; first and last address of each pointer's allocation."""
        values: list[Any] = []
        ranges: list[int] = []
        for param, dtype, arg in zip(self.params, self.dtypes, args, strict=True):
            if isinstance(param, Var):
                values.append(_scalar(arg, param, dtype))
            elif isinstance(arg, Memory):
                root: Any = arg.root
                if root.dtype != dtype:
                    raise LaunchError(f"{self.kernel_name}: {param.name} points to {dtype}, not to {root.dtype}")
                start = arg.address
                values.append(start + arg.offset * dtype.itemsize)
                ranges += (start, start + root.nbytes)
            else:
                values.append(_null(arg, param))
                ranges += (0, 0)
        return values, tuple(ranges)

    def variant(self, values: list[Any], ranges: tuple[int, ...]) -> Variant:
        """Which text fits the arguments."""
        apart = self.disjoint.get(ranges)
        if apart is None:
            apart = self.remember(ranges)
        return apart, not any(values[k] >= _HALF for k in self.unsigned) and not self.huge(ranges)

    def wraps(self, grid: Dim3, block: Dim3, values: list[Any]) -> bool:
        """True if unsigned numbers from which subscripts may be made wrap in a launch."""
        numbers = {p: int(v) for p, v in zip(self.params, values, strict=True) if isinstance(p, Var) and p.type.is_integer}
        key = grid, block, tuple(numbers.values())
        if key not in self.wrapped:
            if len(self.wrapped) > 1000:
                self.wrapped.clear()
            self.wrapped[key] = self.wrapping.wraps(grid, block, numbers)
        return self.wrapped[key]

    def huge(self, ranges: tuple[int, ...]) -> bool:
        return any(b - a >= _HALF * s for a, b, s in zip(ranges[::2], ranges[1::2], self.sizes, strict=True))

    def remember(self, ranges: tuple[int, ...]) -> bool:
        if len(self.disjoint) > 1000:
            self.disjoint.clear()
        pointers = [w for p, w in zip(self.params, self.written, strict=True) if isinstance(p, Buffer)]
        pairs = list(zip(ranges[::2], ranges[1::2], pointers, strict=True))
        apart = not any(
            (a[2] or b[2]) and a[0] < b[1] and b[0] < a[1] for k, a in enumerate(pairs) for b in pairs[:k]
        )  # fmt: skip
        self.disjoint[ranges] = apart
        return apart

    def geometry(self, grid: Dim3, block: Dim3) -> bytes:
        """The launch's numbers as the entry takes them; LaunchError if a GPU would refuse them."""
        if len(grid) != 3 or min(grid) < 1:
            raise LaunchError(f"{self.kernel_name}: grid {grid} and block {block} have to be three positive numbers each")
        if any(g >= most for g, most in zip(grid, _LIMITS, strict=True)):
            raise LaunchError(f"{self.kernel_name}: grid {grid} is too large")
        check_block(self.kernel_name, block)
        if any(g * n > _MOST for g, n in zip(grid, block, strict=True)):
            raise LaunchError(f"{self.kernel_name}: more than 2^31 threads along an axis")
        packed = struct.pack("=7q", *grid, *block, self.demand)
        self.geometries[grid, block] = packed
        return packed

    def entry(self, variant: Variant) -> Entry:
        """The compiled kernel for such arguments."""
        if variant not in self.entries:
            apart, wide = variant
            (self.entries[variant],) = load(text_of([self.kernel], wide, apart), [self.symbol], self.defines(apart))
        return self.entries[variant]

    def defines(self, apart: bool) -> tuple[str, ...]:
        return (*(["-DGPUAD_RESTRICT=__restrict__"] if apart else []), *(["-DGPUAD_ATOMICS"] if self.atomics else []))

    @property
    def kernel(self) -> Kernel:
        kernel = self.reference()
        assert kernel is not None, "a program is only used through its kernel"
        return kernel


def check_block(name: str, block: Dim3) -> None:
    """Raises LaunchError for a block that a GPU would refuse."""
    if len(block) != 3 or min(block) < 1:
        raise LaunchError(f"{name}: block {block} has to be three positive numbers")
    if block[0] * block[1] * block[2] > 1024 or block[2] > 64:
        raise LaunchError(f"{name}: block {block} has more than 1024 threads")


def text_of(kernels: Sequence[Kernel], wide: bool = True, no_alias: bool = True) -> str:
    """The C++ text of kernels, made once."""
    first, *more = kernels
    text: str = found(first, ("host", wide, no_alias, *map(Same, more)), lambda: host_source(kernels, wide, no_alias))
    return text


def load(source: str, symbols: Sequence[str], defines: tuple[str, ...]) -> list[Entry]:
    """Compiles the text, or takes it from the cache, and gives its entries."""
    library = compiled(source, symbols, defines)
    thread_pool().lend(library)
    return [_entry(library, symbol) for symbol in symbols]


def own_entry(text: str, symbol: str) -> Entry | None:
    """The entry of a text of the package's own, which follows what all have; None without a compiler. CompileError if the compiler rejects
    it, which must not pass for that."""
    return load(WITHOUT_POOL + text, [symbol], ())[0] if has_compiler() else None


def _entry(library: ctypes.CDLL, symbol: str) -> Entry:
    function = getattr(library, symbol)
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_int
    return function  # type: ignore[no-any-return]


def _scalar(arg: Argument, param: Var, dtype: np.dtype[Any]) -> Any:
    if getattr(arg, "dtype", None) != dtype or getattr(arg, "shape", None) != ():
        raise LaunchError(f"{param.name} is a {dtype}, not {arg!r}")
    return arg.item()  # type: ignore[union-attr]


def _null(arg: Argument, param: Buffer) -> int:
    if arg is not None:
        raise LaunchError(f"{param.name} is a pointer: it takes an array or None, not {arg!r}")
    return 0
