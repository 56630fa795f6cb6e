"""An executor for NumPy arrays that prints each kernel as CUDA, as the one for CuPy does, and runs the PTX that a compiler makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from ptx import nvrtc
from ptx.launch import Kernel as PtxKernel
from ptx.memory import Memory as DeviceMemory
from ptx.module import Loaded

from gpuad.accumulate.shared_memory_spill import Spilled, spilled
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.dtypes import dtype_of
from gpuad.ir.nodes import Binary, Buffer, Cast, Constant, Kernel, walk
from gpuad.ir.rewrite import expressions, walk_stmts
from gpuad.ir.shared import OWN_BYTES, dynamic_bytes
from gpuad.runtime.base import Argument, Dim3, Memory
from gpuad.runtime.reference import Reference

SHARED_LIMIT = 227 * 1024
KEPT = 500  # loaded kernels
_Known: TypeAlias = "tuple[Spilled, Loaded, DeviceMemory]"
FrontEnd: TypeAlias = "Callable[[str, tuple[str, ...]], tuple[str, dict[str, str]]]"


class Ptx(Reference):
    """`options` go to the `front_end`, NVRTC unless another is given, behind those that CuPy adds."""

    name = "ptx"
    orders_blocks = False

    def __init__(self, *options: str, front_end: FrontEnd = nvrtc.ptx) -> None:
        super().__init__()
        self.front_end = front_end
        self.options = ("-std=c++17", *nvrtc.CUPY, *options)
        self.launches = 0
        self.known: dict[int, tuple[Kernel, _Known]] = {}  # by a kernel's id, with the kernel, which keeps it alive

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Runs the printed kernel."""
        fitting, loaded, own = self._loaded(kernel)
        blocks = grid[0] * grid[1] * grid[2]
        args = [*args, *(Memory(np.empty(blocks * (a.length or 0), str(a.element))) for a in fitting.moved)]
        self.launches += 1
        loaded.memory = _memory(args, own)
        values = [_value(param, arg) for param, arg in zip(fitting.kernel.params, args, strict=True)]
        try:
            PtxKernel(loaded, kernel.name)(grid, block, values, max(shared_mem, dynamic_bytes(fitting.kernel)))
        finally:
            loaded.memory = own  # the arguments are let go

    def _loaded(self, kernel: Kernel) -> _Known:
        """The kernel as a device can run it, and the PTX of its printed text, with the variables of that."""
        known = self.known.get(id(kernel))
        if known is None or known[0] is not kernel:
            if len(self.known) >= KEPT:
                self.known.clear()
            fitting = spilled(kernel, SHARED_LIMIT - OWN_BYTES)
            text, _ = self.front_end(cuda_source([fitting.kernel]), self.options)
            own = DeviceMemory()
            known = self.known[id(kernel)] = (kernel, (fitting, Loaded(text, own), own))
        return known[1]


def _address(root: Any) -> int:
    return int(root.__array_interface__["data"][0])


def _memory(args: Sequence[Argument], own: DeviceMemory) -> DeviceMemory:
    """The allocations of the arguments, at their own addresses, beside those of the module's variables; one that lies in another is known
    with that."""
    memory, end = DeviceMemory(), 0
    for start, variable in own.known.items():
        memory.attach(start, variable.data, variable.name)
    roots = [arg.root for arg in args if isinstance(arg, Memory) and arg.root.size]
    for root in sorted(roots, key=lambda r: (_address(r), -r.nbytes)):
        if _address(root) + root.nbytes > end:
            end = _address(root) + root.nbytes
            memory.attach(_address(root), root.view(np.uint8), f"an array of {root.nbytes} bytes")
    return memory


def _value(param: Any, arg: Argument) -> Any:
    if not isinstance(param, Buffer):
        return dtype_of(param.type).type(arg)
    return np.uint64(0) if arg is None else np.uint64(_address(arg.root) + arg.offset * arg.itemsize)


def is_defined(kernel: Kernel) -> bool:
    """Whether C++ surely defines every expression of a kernel: it has no integer division, no conversion of a real number to an integer,
    and shifts only by constants that are less than the width. The reference executor defines the others, too; a compiler takes them to be
    anything."""
    return all(map(_is_defined, (e for s in walk_stmts(kernel.body) for top in expressions(s) for e in walk(top))))


def _is_defined(expr: Any) -> bool:
    match expr:
        case Binary(op="/" | "%"):
            return bool(expr.type.is_float)
        case Binary(op="<<" | ">>"):
            return isinstance(expr.right, Constant) and 0 <= int(expr.right.value) < expr.type.bits
        case Cast():
            return bool(expr.type.is_float or not expr.operand.type.is_float)
    return True
