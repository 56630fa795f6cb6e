"""A stand-in for CuPy on a machine without a GPU: enough of its interface for gpuad, with "device memory" on the host.

A kernel's text is read by gpuad's own frontend and run by its host executor, so that the CUDA that is printed is executed, and everything
between a user's call and that text (allocations, addresses, scalars, streams, attributes) takes the way that it takes on a GPU. The
helpers that add or exchange atomically are replaced before reading, by what they do when threads run one after another: the frontend
takes neither their shuffles nor their bit casts.

Device memory refuses what CuPy refuses: implicit conversion to NumPy. And it watches streams: memory that was written on one stream and is
then used on another, without a synchronisation between, raises. A stream that captures runs nothing: it keeps what is put into it, and
refuses new memory, results, waiting for it, and waiting for what was not captured, as CUDA does.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import fake_cupy_more
import numpy as np

from gpuad.arguments.aliasing import hull
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Accumulate, Atomic, Buffer, Store
from gpuad.ir.rewrite import walk_stmts
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory as KernelMemory
from gpuad.runtime.host import Host
from gpuad.source import SourceFile

_UNIT = 512  # the pool rounds up to it
_HELPER = re.compile(
    r"(?:template <typename T>\n)?__device__ inline [\w ]+ (gpuad_(?:block_sum|exch|cas|add))\((.*?)\)\n\{.*?\n\}\n", re.DOTALL
)
_SERIAL = {
    "gpuad_block_sum": "__device__ inline void gpuad_block_sum({0}* target, double value) {{ *target += ({0})value; }}\n",
    "gpuad_exch": "__device__ inline {0} gpuad_exch({0}* target, {0} value) {{ {0} old = *target; *target = value; return old; }}\n",
    "gpuad_cas": "__device__ inline {0} gpuad_cas({0}* target, {0} expected, {0} value)\n"
    "{{ {0} old = *target; if (old == expected) *target = value; return old; }}\n",
    "gpuad_add": "__device__ inline {0} gpuad_add({0}* target, {0} value) {{ {0} old = *target; *target = old + value; return old; }}\n",
}


class StreamError(AssertionError):
    """Two streams use one allocation and nothing orders them."""


# --- streams -------------------------------------------------------------------------------------------------------------------------


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class Graph:
    """What a stream has captured."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work

    def launch(self, stream: Stream | None = None) -> None:
        chosen = stream or Stream.current
        assert chosen.captured is None
        chosen.launches.append("graph")
        with chosen:
            for piece in self.work:
                piece()


class Stream:
    """Runs at once; knows which allocations it has used since it was last waited for."""

    captured: list[Callable[[], None]] | None = None

    current: Stream
    now: ClassVar[int] = 0
    every: ClassVar[weakref.WeakSet[Stream]] = weakref.WeakSet()

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = 0 if null else id(self)
        self.pending: dict[tuple[int, int], tuple[int, int]] = {}  # bytes from .. to, and when they were written and used last
        self.waited: dict[int, int] = {}  # other streams, and up to when they were waited for
        self.before: list[Stream] = []
        self.launches: list[str] = []
        Stream.every.add(self)

    def __enter__(self) -> Stream:
        self.before.append(Stream.current)
        Stream.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current = self.before.pop()

    def synchronize(self) -> None:
        self.refuse("waited for")
        self.record().synchronize()

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.captured = []

    def end_capture(self) -> Graph:
        work, self.captured = self.captured, None
        assert work is not None
        return Graph(work)

    def is_capturing(self) -> bool:
        return self.captured is not None

    def refuse(self, what: str) -> None:
        """Raises if the stream captures."""
        if self.captured is not None:
            raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: a stream that captures is {what}")

    def put(self, work: Callable[[], None]) -> None:
        """Does it, or keeps it while capturing."""
        if self.captured is not None:
            self.captured.append(work)
        else:
            work()

    def touch(self, low: int, high: int, writes: bool = True) -> None:
        """Marks bytes as in use on this stream; StreamError if another stream may still be using them and one of the two writes."""
        for other in (o for o in Stream.every if o is not self):
            since = self.waited.get(id(other), 0)
            for (begin, end), (written, used) in other.pending.items():
                if begin < high and low < end and (used if writes else written) > since:
                    raise StreamError("an allocation is used on two streams without a synchronisation between")
        Stream.now += 1
        self.pending[low, high] = (Stream.now if writes else self.pending.get((low, high), (0, 0))[0], Stream.now)

    def record(self) -> Event:
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.refuse("made to wait for work that is not captured")
        for stream, time in event.done.items():
            self.waited[stream] = max(self.waited.get(stream, 0), time)


Stream.current = NULL = Stream(null=True)


class Event:
    """A point in a stream: what has to be done when it is reached."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.done: dict[int, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or Stream.current
        self.done = {**stream.waited, id(stream): Stream.now}

    def synchronize(self) -> None:
        """What was put into the streams before is done, for all of them."""
        for stream in Stream.every:
            until = self.done.get(id(stream), 0)
            stream.pending = {k: (written, used) for k, (written, used) in stream.pending.items() if used > until}


# --- memory --------------------------------------------------------------------------------------------------------------------------


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class Block:
    """One allocation."""

    known: ClassVar[weakref.WeakValueDictionary[int, Block]] = weakref.WeakValueDictionary()
    total = 0

    def __init__(self, size: int) -> None:
        Stream.current.refuse("given new memory")
        self.asked, self.size = size, -(-size // _UNIT) * _UNIT
        self.bytes = np.frombuffer(bytearray(self.size + _UNIT), np.uint8)
        start = int(self.bytes.__array_interface__["data"][0])
        self.bytes = self.bytes[-start % _UNIT :][: self.size]
        self.ptr = int(self.bytes.__array_interface__["data"][0]) if size else 0
        self.device_id = 0
        Block.total += self.size
        if size:
            Block.known[self.ptr] = self
        for stream in Stream.every:  # the pool keeps memory that is in use
            stream.pending = {k: v for k, v in stream.pending.items() if not (k[0] < self.ptr + self.size and self.ptr < k[1])}

    @staticmethod
    def at(address: int) -> Block | None:
        return next((b for b in Block.known.values() if b.ptr <= address < b.ptr + b.size), None)


class MemoryPointer:
    """A place in an allocation."""

    def __init__(self, mem: Block, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


_allocator: list[Callable[[int], MemoryPointer]] = [lambda size: MemoryPointer(Block(size), 0)]


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer]) -> Iterator[None]:
    """As CuPy's."""
    _allocator.append(allocator)
    try:
        yield
    finally:
        _allocator.pop()


def _binary(name: str) -> Callable[..., Any]:
    def method(self: ndarray, other: Any) -> Any:
        if hasattr(other, "__array_ufunc__") and not isinstance(other, ndarray | np.ndarray | np.generic):
            return NotImplemented
        return wrapped(getattr(self.host(), name)(_host(other)))

    return method


class ndarray:  # the name is CuPy's
    """An array in device memory: every access to its content goes through the current stream."""

    def __init__(self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None, strides: Any = None) -> None:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = np.dtype(dtype)
        self.data = memptr or _allocator[-1](math.prod(shape) * dtype.itemsize)
        self._view = np.ndarray(shape, dtype, self.data.mem.bytes, self.data.ptr - self.data.mem.ptr, strides)

    @classmethod
    def _of(cls, view: Any, block: Block) -> ndarray:
        made = cls.__new__(cls)
        offset = int(view.__array_interface__["data"][0]) - block.ptr if view.size else 0
        made.data, made._view = MemoryPointer(block, offset), view
        return made

    def host(self, writes: bool = False) -> Any:
        """The content, for use on the current stream."""
        Stream.current.refuse("asked for content")
        if self._view.size:
            Stream.current.touch(*hull(self._view), writes)
        return self._view

    def get(self, stream: Stream | None = None, out: Any = None, blocking: bool = True) -> Any:
        if out is not None and not blocking:  # as into pinned memory: it is there when the stream has come to it
            assert stream is not None
            with stream:
                stream.put(lambda: out.__setitem__(..., self.host()))
            return out
        content = self.host().copy()
        Stream.current.synchronize()
        return content

    def set(self, array: Any, stream: Stream | None = None) -> None:
        with stream or Stream.current:
            (stream or Stream.current).put(lambda: self.host(True).__setitem__(..., array))

    shape = property(lambda self: self._view.shape)
    strides = property(lambda self: self._view.strides)
    dtype = property(lambda self: self._view.dtype)
    size = property(lambda self: self._view.size)
    ndim = property(lambda self: self._view.ndim)
    nbytes = property(lambda self: self._view.nbytes)
    itemsize = property(lambda self: self._view.itemsize)
    flags = property(lambda self: SimpleNamespace(c_contiguous=self._view.flags.c_contiguous, f_contiguous=self._view.flags.f_contiguous))
    device = property(lambda _: Device())
    T = property(lambda self: self._inside(self._view.T))
    real = property(lambda self: self._inside(self._view.real))
    imag = property(lambda self: self._inside(self._view.imag))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.data.ptr if self.size else 0, False), "shape": self.shape, "strides": self.strides, "typestr": self.dtype.str}

    def _inside(self, view: Any) -> ndarray:
        return ndarray._of(view, self.data.mem)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        if method != "__call__" or not all(isinstance(x, ndarray | int | float | complex | np.generic) for x in inputs):
            return NotImplemented
        return _applied(ufunc, *inputs, out=out and out[0], **keywords)

    def __getitem__(self, key: Any) -> ndarray:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, ndarray | np.ndarray | list) for part in parts):
            return wrapped(self.host()[tuple(map(_host, parts))])
        return self._inside(
            self._view[(*key, ...) if isinstance(key, tuple) and ... not in key else key if isinstance(key, tuple) else (key, ...)]
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.shape != ():
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if any(isinstance(part, np.ndarray | list) for part in (key if isinstance(key, tuple) else (key,))):
            Stream.current.refuse("given new memory")  # for the indices

        def put() -> None:
            self.host(True)[tuple(map(_host, key)) if isinstance(key, tuple) else _host(key)] = _host(value)

        Stream.current.put(put)

    def reshape(self, *shape: Any) -> ndarray:
        view = self._view.reshape(*shape)
        return self._inside(view) if np.shares_memory(view, self._view) or not view.size else wrapped(view)

    def ravel(self) -> ndarray:
        return self.reshape(-1)

    def view(self, dtype: Any) -> ndarray:
        return self._inside(self._view.view(dtype))

    def astype(self, dtype: Any, **_: Any) -> ndarray:
        return wrapped(self.host().astype(dtype))

    def swapaxes(self, *axes: int) -> ndarray:
        return self._inside(self._view.swapaxes(*axes))

    def transpose(self, *axes: Any) -> ndarray:
        return self._inside(self._view.transpose(*axes))

    def prod(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return wrapped(self.host().prod(axis=axis, dtype=dtype))

    def conj(self) -> ndarray:
        return wrapped(self.host().conj())

    def min(self, axis: int | None = None) -> ndarray:
        return wrapped(self.host().min(axis=axis))

    def copy(self) -> ndarray:
        made = ndarray(self.shape, self.dtype)
        made[...] = self
        return made

    def fill(self, value: Any) -> None:
        self[...] = value

    def cumsum(self, **keywords: Any) -> ndarray:
        return wrapped(self.host().cumsum(**keywords))

    def max(self, axis: int | None = None) -> ndarray:
        return wrapped(self.host().max(axis=axis))

    def argmax(self, axis: int | None = None) -> ndarray:
        return wrapped(self.host().argmax(axis=axis))

    def sum(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return wrapped(self.host().sum(axis=axis, dtype=dtype))

    def nonzero(self) -> tuple[ndarray, ...]:
        return tuple(map(wrapped, self.host().nonzero()))

    def all(self) -> ndarray:
        return wrapped(self.host().all())

    def any(self, axis: int | None = None) -> ndarray:
        return wrapped(self.host().any(axis=axis))

    def clip(self, low: Any, high: Any) -> ndarray:
        return wrapped(self.host().clip(low, high))

    def __iadd__(self, other: Any) -> ndarray:
        self[...] = self + other
        return self

    def __neg__(self) -> ndarray:
        return wrapped(-self.host())

    def __invert__(self) -> ndarray:
        return wrapped(~self.host())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __len__(self) -> int:
        return len(self._view)

    __add__, __sub__, __mul__, __truediv__ = map(_binary, ("__add__", "__sub__", "__mul__", "__truediv__"))
    __radd__, __rmul__, __rsub__, __eq__ = map(_binary, ("__radd__", "__rmul__", "__rsub__", "__eq__"))  # type: ignore[assignment]
    __gt__, __le__, __or__, __and__ = map(_binary, ("__gt__", "__le__", "__or__", "__and__"))
    __rshift__, __lshift__, __ne__ = map(_binary, ("__rshift__", "__lshift__", "__ne__"))  # type: ignore[assignment]
    __lt__, __mod__, __pow__, __ge__ = map(_binary, ("__lt__", "__mod__", "__pow__", "__ge__"))
    __rtruediv__, __floordiv__, __matmul__, __isub__ = map(_binary, ("__rtruediv__", "__floordiv__", "__matmul__", "__sub__"))
    __hash__ = None  # type: ignore[assignment]


ndarray.__module__ = "cupy"


def _host(value: Any) -> Any:
    return value.host() if isinstance(value, ndarray) else value


def wrapped(value: Any) -> ndarray:
    """A new device array with the content of a NumPy array."""
    content = np.asarray(value)
    made = ndarray(content.shape, content.dtype)
    made.host(True)[...] = content
    return made


def _applied(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    return fake_cupy_more.called(function, *args, **keywords)


# --- kernels -------------------------------------------------------------------------------------------------------------------------


class CompileException(Exception):
    """As CuPy's."""


class CUDADriverError(RuntimeError):
    """As CuPy's."""


HOST = Host(workers=1)


def _serial(helper: re.Match[str]) -> str:
    types = ("float", "double") if helper[2].startswith("T*") else (helper[2].partition("*")[0],)
    return "".join(_SERIAL[helper[1]].format(type_) for type_ in types)


_HALVES = """
__device__ inline float gpuad_from_half(unsigned short h) {
    unsigned e = (h >> 10) & 31u, m = h & 1023u;
    float v = e == 31u ? __uint_as_float(0x7f800000u | (m << 13)) : __uint_as_float(((e + 112u) << 23) | (m << 13));
    if (e == 0u) v = (float)m * 5.9604644775390625e-8f;
    return (h & 0x8000u) ? -v : v;
}
__device__ inline unsigned short gpuad_to_half(float v) {
    unsigned sign = (__float_as_uint(v) >> 16) & 0x8000u, u = __float_as_uint(fabsf(v));
    if (v != v) return 0x7fffu;
    if (fabsf(v) >= 65520.0f) return sign | 0x7c00u;
    if (fabsf(v) < 6.103515625e-5f) return sign | (unsigned)rintf(fabsf(v) * 16777216.0f);
    return sign | ((u + 0xfffu + ((u >> 13) & 1u) - 0x38000000u) >> 13);
}
__device__ inline float gpuad_half(float v) { return gpuad_from_half(gpuad_to_half(v)); }
__device__ inline double gpuad_half(double v) { return gpuad_from_half(gpuad_to_half((float)v)); }

"""  # what the assembly of the generated text does


_PIECE = re.compile(r"(\w[\w ]*)\* (\w+) = \(\1\*\)\(gpuad_shared \+ (\d+)\);  // \1\[(\d+)\]")
_SIZES = {"float": 4, "int": 4, "unsigned int": 4, "double": 8, "long long": 8}


def _check_shared(code: str, name: str, given: int, allowed: int) -> None:
    """What a device checks: that the kernel has as much shared memory as it uses, and may have it."""
    _, _, body = code.partition(f"void {name}(")
    used = max((int(at) + int(n) * _SIZES[kind] for kind, _, at, n in _PIECE.findall(body.partition("\n}")[0])), default=0)
    if not used <= given <= min(allowed, Device.attributes["MaxSharedMemoryPerBlockOptin"]):
        raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: {used} bytes of shared memory, {given} given, {allowed} allowed")


@cache
def _lowered(code: str, name: str, options: tuple[str, ...]) -> Any:
    text = re.sub(
        r"// Halves are kept.*?(?=// A bfloat16|// The chain|// Adds|// atomic|extern)",
        lambda _: _HALVES,
        _HELPER.sub(_serial, code),
        flags=re.S,
    )
    text = re.sub(r"extern __shared__ .*? gpuad_shared\[\];", "", _PIECE.sub(r"__shared__ \1 \2[\4];", text))
    text = re.sub(r"#if __CUDA_ARCH__ .*?#else\n(.*?)#endif\n", r"\1", text, flags=re.S)  # what GPUs without the instruction do
    return primal_of(parse(SourceFile("generated.cu", text), options=options).kernel(name))


class RawKernel:
    """A kernel that is compiled from its text."""

    max_threads_per_block = 1024
    num_regs, local_size_bytes, shared_size_bytes, const_size_bytes = 32, 0, 0, 0
    max_dynamic_shared_size_bytes = 48 * 1024

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        self.code, self.name, self.options, self.backend = code, name, options, backend
        self.file_path = None
        self._name_expressions: tuple[str, ...] | None = None  # which CuPy's object shows in its state alone

    def __getstate__(self) -> dict[str, Any]:
        return {"code": self.code, "name": self.name, "options": self.options, "name_expressions": self._name_expressions}

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None) -> None:
        options = tuple(o for o in self.options if not o.startswith("-fmad"))
        name = self.name
        if self._name_expressions is not None:
            name = parse(SourceFile("module.cu", self.code), options=options).called(name, self._name_expressions)
        kernel = _lowered(self.code, name, options)
        _check_shared(self.code, name, shared_mem, self.max_dynamic_shared_size_bytes)
        chosen = stream or Stream.current
        captured = chosen.captured is not None  # then the stream is that on which the graph is launched
        chosen.put(lambda: self.run(kernel, grid, block, args, Stream.current if captured else chosen))

    def run(self, kernel: Any, grid: Any, block: Any, args: Any, stream: Stream) -> None:
        stream.launches.append(self.name)
        written = _written(kernel)
        values = [_argument(param, arg, stream, param in written) for param, arg in zip(kernel.params, args, strict=True)]
        HOST.launch(kernel, (*grid, 1, 1)[:3], (*block, 1, 1)[:3], values)


@cache
def _written(kernel: Any) -> frozenset[Any]:
    """The parameters into which a kernel stores."""
    stores = (s for s in walk_stmts(kernel.body) if isinstance(s, Store | Accumulate | Atomic))
    return frozenset(s.buffer for s in stores)


def _argument(param: Any, arg: Any, stream: Stream, writes: bool) -> Any:
    if not isinstance(param, Buffer):
        dtype = np.dtype(str(param.type))
        raw = np.asarray(arg if isinstance(arg, np.generic) else np.int64(arg) if isinstance(arg, int) else np.float64(arg))
        return np.frombuffer(raw.tobytes()[: dtype.itemsize], dtype)[0]  # a kernel takes as many bytes as it wants, whatever they mean
    address = arg.data.ptr if isinstance(arg, ndarray) else int(arg or 0)
    block = Block.at(address)
    if block is None:
        return None
    stream.touch(block.ptr, block.ptr + block.size, writes)
    dtype = np.dtype(str(param.element))
    return KernelMemory(block.bytes.view(dtype), (address - block.ptr) // dtype.itemsize)


RawKernel.__module__ = "cupy"


_GLOBAL = re.compile(r"__(?:constant|device)__\s+([\w<>]+)\s+(\w+)((?:\[\d+\])*)\s*(?:=\s*([^;]*))?;")
_NUMBERS = {"float": "f4", "double": "f8", "int": "i4"}
_STRUCT = "V64"  # as many bytes as any struct of the tests


class UnownedMemory:
    """Memory that another object owns; here always that of a `Block`."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = 0) -> None:
        block = Block.at(ptr)
        assert block is not None
        self.ptr, self.size, self.device_id, self.owner = ptr, size, device_id, (owner, block)
        self.bytes = block.bytes[ptr - block.ptr :][: size or None]


class RawModule:
    """Several kernels of one text, and its variables."""

    def __init__(self, *, code: str | None = None, options: tuple[str, ...] = (), name_expressions: Any = None) -> None:
        self.code, self.options, self.name_expressions = code, options, name_expressions
        self.variables: dict[str, Block] = {}
        for type_, name, extents, initial in _GLOBAL.findall(code or ""):
            values = np.zeros(math.prod(map(int, re.findall(r"\d+", extents))), _NUMBERS.get(type_, _STRUCT))
            given = [float(v.rstrip("f")) for v in re.findall(r"[-\d.]+f?", initial)]
            if given:
                values[: len(given)] = given
            self.variables[name] = Block(values.nbytes)
            self.variables[name].bytes[: values.nbytes] = values.view(np.uint8)

    def get_global(self, name: str) -> MemoryPointer:
        if name not in self.variables:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return MemoryPointer(UnownedMemory(self.variables[name].ptr, 0, self), 0)  # CuPy does not know its size either

    def get_function(self, name: str) -> RawKernel:
        assert self.code is not None
        if "<" in name and name not in (self.name_expressions or ()):
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        kernel = RawKernel(self.code, name, self.options)
        if self.name_expressions is not None:
            kernel._name_expressions = tuple(self.name_expressions)
            kernel.name = parse(SourceFile("module.cu", self.code), options=self.options).symbol(name)
        return kernel


RawModule.__module__ = "cupy"


# --- the module ----------------------------------------------------------------------------------------------------------------------


class Device:
    """The only device."""

    id = 0
    attributes: ClassVar[dict[str, int]] = {"MaxSharedMemoryPerBlockOptin": 227 * 1024}

    def __init__(self, number: int = 0) -> None:
        assert number == 0

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        for stream in Stream.every:
            stream.synchronize()


def external_stream(address: int) -> Stream:
    """Another library's stream, here always one of these."""
    return next(stream for stream in Stream.every if stream.ptr == address)


class _Foreign(Block):
    """Memory that another library has made on the device, which is the host."""

    def __init__(self, content: Any) -> None:
        flat = content.reshape(-1).view(np.uint8)
        self.asked = self.size = flat.size
        self.bytes, self.device_id = flat, 0
        self.ptr = int(flat.__array_interface__["data"][0]) if flat.size else 0
        if flat.size:
            Block.known[self.ptr] = self


def from_dlpack(array: Any) -> ndarray:
    """An array on memory that another library has made; `array`: what NumPy takes as well."""
    if isinstance(array, ndarray):
        return array._inside(array._view)
    content = np.from_dlpack(array)
    memory = content.ravel(order="K")
    assert np.shares_memory(memory, content) or not content.size
    return ndarray._of(content, _Foreign(memory))


def _strided(x: ndarray, shape: Any, strides: Any) -> ndarray:
    block = x.data.mem
    return ndarray._of(np.ndarray(shape, x.dtype, block.bytes, x.data.ptr - block.ptr, strides), block)


def _made(make: Callable[..., Any], *args: Any, **keywords: Any) -> ndarray:
    return wrapped(make(*map(_host, args), **keywords))


def _like(make: Callable[..., Any], x: ndarray, dtype: Any = None) -> ndarray:
    return wrapped(make(x._view, dtype))  # of `x` nothing is read


def _viewed(take: Callable[..., Any], x: ndarray, *args: Any) -> ndarray:
    return x._inside(take(x._view, *args))


def _asarray(x: Any, dtype: Any = None) -> ndarray:
    if isinstance(x, ndarray) and dtype in (None, x.dtype):
        return x
    if hasattr(x, "__cuda_array_interface__"):
        said = x.__cuda_array_interface__
        block = Block.at(said["data"][0])
        assert block is not None
        view = np.ndarray(said["shape"], said["typestr"], block.bytes, said["data"][0] - block.ptr, said.get("strides"))
        return ndarray._of(view, block)
    return wrapped(np.asarray(_host(x), dtype))


def module() -> ModuleType:
    """A new module `cupy`."""
    cupy = ModuleType("cupy")
    for kind in (ndarray, RawKernel, RawModule):
        setattr(cupy, kind.__name__, kind)
    for name in ("zeros", "ones", "empty", "arange"):
        setattr(cupy, name, partial(_made, getattr(np, name)))
    for name in ("zeros_like", "ones_like", "empty_like"):
        setattr(cupy, name, partial(_like, getattr(np, name)))
    for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "inf"):
        setattr(cupy, name, getattr(np, name))
    for name in ("exp", "sin", "sqrt", "add", "multiply", "sum", "diff", "argmax", "copy", "ascontiguousarray", "matmul", "gradient"):
        setattr(cupy, name, partial(_applied, getattr(np, name)))
    for name in ("expand_dims", "broadcast_to", "flip", "moveaxis", "swapaxes"):  # views
        setattr(cupy, name, partial(_viewed, getattr(np, name)))
    cupy.get_array_module = lambda *args: cupy if any(isinstance(x, ndarray) for x in args) else np
    for name in ("full", "full_like"):
        setattr(cupy, name, partial(_made, getattr(np, name)))
    for name in ("where", "isfinite", "isnan", "abs", "maximum"):
        setattr(cupy, name, partial(_applied, getattr(np, name)))
    vars(cupy).update(
        __version__="0.0.fake",
        asarray=_asarray,
        array=lambda x, dtype=None, **_: wrapped(np.asarray(_host(x), dtype)),
        asnumpy=lambda x: x.get(),
        stack=lambda arrays: wrapped(np.stack([a.host() for a in arrays])),
        from_dlpack=from_dlpack,
        lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_strided)),
        cuda=_cuda(),
        get_default_memory_pool=lambda: SimpleNamespace(
            total_bytes=lambda: Block.total,
            used_bytes=lambda: sum(block.size for block in Block.known.values()),
            free_all_blocks=lambda: None,
        ),
    )
    fake_cupy_more.extend(cupy)
    return cupy


def _cuda() -> SimpleNamespace:
    properties = {"name": b"a host", "major": 0, "minor": 0, "multiProcessorCount": 1, "totalGlobalMem": 1 << 30}
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1,
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        getDeviceProperties=lambda _: properties,
    )
    return SimpleNamespace(
        runtime=runtime,
        Stream=Stream,
        ExternalStream=external_stream,
        Graph=Graph,
        using_allocator=using_allocator,
        Event=Event,
        Device=Device,
        alloc_pinned_memory=bytearray,
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
        get_current_stream=lambda: Stream.current,
        get_elapsed_time=lambda _start, _end: 1.0,
        set_allocator=lambda _: None,
        nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        compiler=SimpleNamespace(CompileException=CompileException),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
    )


@contextmanager
def waited() -> Iterator[None]:
    """Every stream is waited for before and after."""
    Device().synchronize()
    yield
    Device().synchronize()
