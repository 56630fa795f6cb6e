"""Runs kernels on the GPU through CuPy. The only module that imports CuPy, and only when a kernel is launched or an array made."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accumulate.shared_memory_spill import Spilled, spilled
from ..codegen.cuda import cuda_source
from ..codegen.folded import written
from ..errors import CompileError, LaunchError
from ..ir.dtypes import dtype_of
from ..ir.nodes import Buffer, Kernel
from ..ir.rewrite import walk_stmts
from ..ir.shared import OWN_BYTES, dynamic_bytes
from .array_types import NdArray
from .base import Argument, Dim3, Memory
from .tensor_versions import counting

LINEINFO = "GPUAD_LINEINFO"  # in the environment: generated kernels know the user's lines, for compute-sanitizer and profilers


@dataclass(frozen=True)
class _Compiled:
    """A kernel as a `cupy.RawKernel`, and the greatest block that it runs with."""

    kernel: weakref.ref[Kernel]
    function: Any
    threads: int


class Cuda:
    """The executor for CuPy arrays. `contract`: whether the compiler may fuse a product and a sum (-fmad); `options` go to NVRTC as they
    are, such as those of the primal."""

    name = "cuda"
    has_rows = False
    orders_blocks = False
    sums_over_blocks = True

    def __init__(self, *, contract: bool = True, options: tuple[str, ...] = ()) -> None:
        standard = () if any(o.startswith(("-std", "--std")) for o in options) else ("-std=c++17",)
        self.options = (*standard, *(() if contract else ("-fmad=false",)), *options)
        self.lock = threading.Lock()
        self.known: dict[int, _Compiled] = {}
        self.fitting: dict[tuple[int, int], tuple[weakref.ref[Kernel], Spilled]] = {}  # by kernel and device

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Enqueues the kernel on `stream`, by default CuPy's current one, on the current device; `args` follow `kernel.params`, pointers as
        `Memory` of CuPy arrays. Raises LaunchError for arguments that do not fit or a launch that the device refuses, CompileError for text
        that NVRTC rejects."""
        self.prepared(kernel, grid, block, args, shared_mem=shared_mem, stream=stream)()

    def prepared(
        self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None
    ) -> Callable[[], Any]:
        """A launch as a callable that makes it."""
        if len(args) != len(kernel.params):
            raise LaunchError(f"{kernel.name} takes {len(kernel.params)} arguments, not {len(args)}")
        fitting = self.fitted(kernel)
        self.check(kernel, block[0] * block[1] * block[2])
        with self.on(stream):
            args = [*args, *(self._rows(array, grid) for array in fitting.moved)]
        values = tuple(_value(param, arg) for param, arg in zip(fitting.kernel.params, args, strict=True))
        shared = max(shared_mem, dynamic_bytes(fitting.kernel))
        launch = partial(_enqueue, self.function(fitting.kernel), grid, block, values, shared, stream)
        launch.__dict__["memory"] = args  # kept alive: the values are addresses
        changed = {written(s) for s in walk_stmts(kernel.body)}
        pointers = zip(kernel.params, args, strict=False)
        return counting(launch, (a.root for p, a in pointers if isinstance(a, Memory) and p in changed))

    def prepare(self, kernels: Sequence[Kernel], threads: int = 1) -> None:
        """Compiles the kernels now, so that no launch has to wait for it or can fail for it. Raises LaunchError where a block of `threads`
        threads needs more registers than the device has."""
        for kernel in kernels:
            self.check(kernel, threads)

    def check(self, kernel: Kernel, threads: int) -> None:
        """Refuses a block that the compiled kernel cannot run with."""
        compiled = self.compiled(self.fitted(kernel).kernel)
        if threads > compiled.threads:
            raise LaunchError(
                f"{kernel.name} runs with at most {compiled.threads} threads a block on this device, since it needs "
                f"{compiled.function.num_regs} registers a thread; launch it with smaller blocks"
            )

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of what `run` does, captured on a stream of its own, to be launched on CuPy's current one. Memory that is made on
        the way would be given to others while the graph uses it, so that is refused (LaunchError), and so is waiting."""
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)
        with stream, cupy.cuda.using_allocator(_no_memory):
            stream.begin_capture()
            try:
                run()
            except Exception as error:
                with contextlib.suppress(Exception):  # the capture is spoiled: that it cannot be ended says no more
                    stream.end_capture()
                raise LaunchError(f"it does what a graph cannot repeat ({error})") from error
            try:
                graph = stream.end_capture()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise LaunchError(f"CUDA makes no graph of it ({error})") from error

        def launch() -> None:
            graph.launch()

        return launch

    def fitted(self, kernel: Kernel) -> Spilled:
        """The kernel as the current device can run it: with what its shared memory does not hold in global memory."""
        if not dynamic_bytes(kernel):
            return Spilled(kernel, ())
        key = (id(kernel), current_device())
        held = self.fitting.get(key)
        if held is not None and held[0]() is kernel:
            return held[1]
        with self.lock:
            self.fitting = {k: v for k, v in self.fitting.items() if v[0]() is not None}
            self.fitting[key] = (weakref.ref(kernel), spilled(kernel, _shared_limit() - OWN_BYTES))
        return self.fitting[key][1]

    def _rows(self, array: Buffer, grid: Dim3) -> Memory:
        """A row for each block in place of a shared array."""
        import cupy

        length = grid[0] * grid[1] * grid[2] * (array.length or 0)
        try:
            return Memory(cupy.empty(length, str(array.element)))
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise LaunchError(
                f"the device has no room for `{array.name}`, which its shared memory does not hold, in {length} elements of global memory; "
                "launch fewer blocks or use smaller tiles"
            ) from error

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Makes the stream CuPy's current one, so that copies and new arrays are ordered with the launches."""
        if stream is None:
            return nullcontext()
        import cupy

        held: AbstractContextManager[Any] = stream if hasattr(stream, "__enter__") else cupy.cuda.ExternalStream(stream.ptr)
        return held

    def stream(self) -> Any:
        """CuPy's current stream."""
        import cupy

        return cupy.cuda.get_current_stream()

    def wait(self, stream: Any) -> None:
        """Lets CuPy's current stream wait for what has been put into another one."""
        follow(self.stream(), stream)

    def free(self) -> int:
        """Bytes of the device's memory that is free, and those that CuPy's pool holds ready."""
        import cupy

        return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def marked(self, mark: Any = None) -> Any:
        """An event that the current stream has recorded, the given one if there is one: its `synchronize()` waits until it is reached."""
        import cupy

        mark = cupy.cuda.Event(disable_timing=True) if mark is None else mark
        mark.record(self.stream())
        return mark

    def function(self, kernel: Kernel) -> Any:
        """The kernel as a `cupy.RawKernel`."""
        return self.compiled(kernel).function

    def compiled(self, kernel: Kernel) -> _Compiled:
        """The kernel, compiled and loaded."""
        held = self.known.get(id(kernel))
        if held is not None and held.kernel() is kernel:
            return held
        function = self._raw(kernel)
        made = _Compiled(weakref.ref(kernel), function, int(function.max_threads_per_block))
        with self.lock:
            self.known = {k: v for k, v in self.known.items() if v.kernel() is not None} | {id(kernel): made}
        return made

    def _raw(self, kernel: Kernel) -> Any:
        import cupy

        try:
            located = os.environ.get(LINEINFO, "0") not in ("", "0")
            options = (*self.options, "-lineinfo") if located else self.options
            return cupy.RawModule(code=cuda_source([kernel], located=located), options=options).get_function(kernel.name)
        except cupy.cuda.compiler.CompileException as error:
            raise CompileError(f"NVRTC rejects the text generated for {kernel.name}:\n{error}", kernel.span) from error

    def zeros(self, length: int, dtype: Any) -> Any:
        """A new flat CuPy array of zeros, on the current device."""
        import cupy

        return cupy.zeros(length, dtype)

    def copy(self, array: NdArray) -> Any:
        """A new array with the same content, on the current device."""
        return array.copy()


def _no_memory(size: int) -> Any:
    raise LaunchError(f"it makes an array of {size} bytes")


def _shared_limit() -> int:
    """Bytes of shared memory that a block can have on the current device if it asks for them."""
    import cupy

    attributes = cupy.cuda.Device().attributes
    most = attributes.get("MaxSharedMemoryPerBlockOptin")  # HIP has none: nothing has to be asked for
    return int(attributes["MaxSharedMemoryPerBlock"] if most is None else most)


def _enqueue(function: Any, grid: Dim3, block: Dim3, values: tuple[Any, ...], shared_mem: int, stream: Any) -> None:
    import cupy

    try:
        if shared_mem and shared_mem > function.max_dynamic_shared_size_bytes:
            function.max_dynamic_shared_size_bytes = shared_mem  # never less than before: a graph may launch the same function with more
        function(grid, block, values, shared_mem=shared_mem, stream=stream)
    except cupy.cuda.driver.CUDADriverError as error:
        raise LaunchError(f"{function.name}: the device refuses the launch with grid {grid} and block {block}: {error}") from error


def _value(param: Any, arg: Argument) -> Any:
    """The argument as CuPy passes it: an 8-byte address, or a scalar of exactly the parameter's type."""
    if not isinstance(param, Buffer):
        dtype = dtype_of(param.type)
        if getattr(arg, "dtype", None) != dtype:
            raise LaunchError(f"{param.name} is a {dtype}, not {arg!r}")
        return dtype.type(arg)
    if arg is None:
        return np.uint64(0)
    if not isinstance(arg, Memory):
        raise LaunchError(f"{param.name} is a pointer: it takes an array or None, not {arg!r}")
    dtype = dtype_of(param.element)
    if arg.root.dtype != dtype:
        raise LaunchError(f"{param.name} points to {dtype}, not to {arg.root.dtype}")
    return np.uint64(arg.root.data.ptr + arg.offset * dtype.itemsize)


def array_module() -> Any:
    """CuPy if it is installed and finds a device, else NumPy."""
    try:
        import cupy

        return cupy if cupy.cuda.runtime.getDeviceCount() > 0 else np
    except Exception:  # no package, no driver, no device: each fails in a way of its own
        return np


def library(name: str = "cupy") -> Any:
    """CuPy's module `cupy`, or `cupyx`. ImportError where there is none."""
    import cupy

    if name == "cupyx":
        import cupyx

        return cupyx
    return cupy


def module_array(module: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """A variable of a `cupy.RawModule` as an array on its memory; LaunchError where the module has none of this name."""
    import cupy

    try:
        address = module.get_global(name).ptr
    except cupy.cuda.driver.CUDADriverError as error:
        raise LaunchError(f'the module has no variable `{name}` under this name ({error}); give it extern "C" linkage') from error
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, module), 0))


def unowned_view(array: Any, behind: Any) -> Any:
    """A CuPy array (C-contiguous) once more, by other means: it and all views of it keep `behind` alive."""
    import cupy

    memory = cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, behind, int(array.device.id))
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))


def follow(stream: Any, other: Any) -> None:
    """Lets a stream wait for what has been put into another one."""
    if stream.ptr != other.ptr:
        stream.wait_event(other.record())


class Pinned:
    """Pinned memory of the host, and a copy stream of its own."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory: Any = None

    def reserve(self, nbytes: int) -> None:
        """There is room for so many bytes from here on; what was there is lost."""
        if self.memory is not None and len(self.memory) >= nbytes:
            return
        self.stream.synchronize()
        self.memory = None  # before there is more
        self.memory = np.frombuffer(self.cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8)[:nbytes]

    def write(self, at: int, data: Any) -> None:
        """Begins to copy a flat array of bytes to place `at`, once the current stream has come here."""
        follow(self.stream, self.cupy.cuda.get_current_stream())
        data.get(self.stream, out=self.memory[at : at + data.size], blocking=False)

    def read(self, at: int, data: Any) -> None:
        """Begins to copy from there into an array."""
        follow(self.stream, self.cupy.cuda.get_current_stream())
        data.set(self.memory[at : at + data.size], stream=self.stream)

    def join(self) -> None:
        """The current stream goes on once all that is done."""
        follow(self.cupy.cuda.get_current_stream(), self.stream)


def finished_array(values: Any) -> Any:
    """A CuPy array with the content of a NumPy array, which has arrived when this returns: any stream may use it."""
    import cupy

    array = cupy.asarray(values)
    cupy.cuda.get_current_stream().synchronize()
    return array


def current_device() -> int:
    """The number of CuPy's current device."""
    import cupy

    return int(cupy.cuda.Device().id)


@contextlib.contextmanager
def pool_peak(used: Any) -> Iterator[None]:
    """Sets `used.peak` and `used.left` to the bytes that CuPy's pools hand out within it: the most at one time, and at its end."""
    import cupy

    lock = threading.Lock()

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "gpuad-peak"
        held = 0

        def _change(self, size: int) -> None:
            with lock:
                self.held += size
                used.peak = max(used.peak, self.held)

        def malloc_postprocess(self, *, mem_size: int, **_: Any) -> None:
            self._change(mem_size)

        def free_preprocess(self, *, mem_size: int, **_: Any) -> None:
            self._change(-mem_size)

    hook = Hook()
    with hook:
        yield
    used.left = max(hook.held, 0)


def out_of_memory(nbytes: int) -> Exception:
    """The error that CuPy raises where memory has run out."""
    import cupy

    found: Exception = cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
    return found


@contextlib.contextmanager
def allocation_gate(gate: Callable[[int], None]) -> Iterator[None]:
    """Within it CuPy asks the gate before it allocates, in this thread; nothing where CuPy was never imported."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        yield
        return
    allocate = cupy.cuda.get_allocator()

    def asked(size: int) -> Any:
        gate(size)
        return allocate(size)

    with cupy.cuda.using_allocator(asked):
        yield


def allocator_kind() -> str:
    """What CuPy's arrays come from: its 'pool', the driver's 'async' one, 'rmm', or 'other'."""
    import cupy

    allocate = cupy.cuda.get_allocator()
    owner = getattr(allocate, "__self__", None)
    if "rmm" in (str(getattr(allocate, "__module__", "")).partition(".")[0], type(owner).__module__.partition(".")[0]):
        return "rmm"
    if isinstance(owner, cupy.cuda.MemoryAsyncPool):
        return "async"
    return "pool" if isinstance(owner, cupy.cuda.MemoryPool) else "other"


def allocator_bytes(kind: str) -> int | None:
    """Bytes that an allocator without memory hooks has handed out; None where it does not say."""
    import cupy

    if kind == "async":
        return int(cupy.cuda.get_allocator().__self__.used_bytes())
    statistics = getattr(sys.modules.get("rmm"), "statistics", None) if kind == "rmm" else None
    found = statistics.get_statistics() if statistics is not None else None
    return None if found is None else int(found.current_bytes)


class PoolWatch:
    """Bytes that CuPy's pool has handed out (`held`), as its memory hooks tell of this thread, hits of the pool too."""

    def __init__(self) -> None:
        import cupy

        self.held = int(cupy.get_default_memory_pool().used_bytes())

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Within it the figure is kept up to date."""
        import cupy

        watch = self

        class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
            name = "gpuad-profile"

            def malloc_postprocess(self, *, mem_size: int, **_: Any) -> None:
                watch.held += mem_size

            def free_postprocess(self, *, mem_size: int, **_: Any) -> None:
                watch.held -= mem_size

        with Hook():
            yield


def pci_addresses() -> list[str]:
    """The PCI addresses of the devices that CUDA shows, in its order. Raises as CuPy does."""
    import cupy

    return [str(cupy.cuda.runtime.deviceGetPCIBusId(k)) for k in range(cupy.cuda.runtime.getDeviceCount())]


def free_memory(index: int) -> int:
    """Bytes that are free on a device, or on the instance of a split one."""
    import cupy

    with cupy.cuda.Device(index):
        return int(cupy.cuda.runtime.memGetInfo()[0])


def use_device(index: int) -> Any:
    """Makes a device the current one; CuPy's module."""
    import cupy

    cupy.cuda.Device(index).use()
    return cupy


def elapsed_ms(run: Callable[[], object]) -> float:
    """Milliseconds on the device from the start of what `run` enqueues on the current stream to its end."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


def synchronize() -> None:
    """Waits for the current device."""
    import cupy

    cupy.cuda.runtime.deviceSynchronize()


def launch_text(text: str, name: str, threads: int, *, elements: int) -> None:
    """Launches a kernel of a text with one block on floats that are an allocation of their own and were never written; waits."""
    import cupy

    kernel = cupy.RawModule(code=text, options=("-std=c++17", "-lineinfo")).get_function(name)
    with cupy.cuda.using_allocator(None):  # not from a pool, whose neighbours would hide what is out of bounds
        data = cupy.empty(elements, "float32")
        kernel((1,), (threads,), (data,))
        cupy.cuda.runtime.deviceSynchronize()


def from_dlpack(array: NdArray) -> Any:
    """The CuPy array on the memory of another library's array on a GPU."""
    import cupy

    return cupy.from_dlpack(array)


def of_tensor(tensor: Any) -> Any:
    """The CuPy array on the memory of a tensor of PyTorch's on a GPU; it and its views know the tensor (`tensor_versions`)."""
    import cupy

    class TensorMemory(cupy.cuda.UnownedMemory):  # type: ignore[misc]
        """Memory that knows whose it is."""

    array = cupy.from_dlpack(tensor)
    lent = array.data.mem
    memory = TensorMemory(lent.ptr, lent.size, array, int(array.device.id))
    memory.tensor = tensor
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, array.data.ptr - lent.ptr), array.strides)


@contextlib.contextmanager
def on_foreign_stream(address: int, device: int | None = None) -> Iterator[None]:
    """Within it all that CuPy does goes into another library's stream."""
    import cupy

    with cupy.cuda.Device(device or 0), cupy.cuda.ExternalStream(address):
        yield


def from_interface(array: NdArray) -> Any:
    """The CuPy array on the memory of an object with `__cuda_array_interface__`."""
    import cupy

    return cupy.asarray(array)
