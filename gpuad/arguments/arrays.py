"""Arrays of NumPy, of CuPy and of other libraries: whose they are, where they lie, and the allocation behind them.

In: any array, or any object. Out: an array of NumPy or CuPy on the same memory, its address, and its allocation as flat `Memory`, which is
how the package tells what shares memory. Nothing is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, LaunchError
from ..ir.dtypes import dtype_of, shadow_dtype
from ..ir.types import BF16
from ..runtime import cuda
from ..runtime.allocation import asked
from ..runtime.array_locks import unlocked
from ..runtime.array_types import NdArray
from ..runtime.base import Memory, address_of
from ..runtime.base import resolve as resolve_host

_PLAIN = (np.ndarray, np.memmap, np.recarray)  # what they mean is in their memory
_MORE = {
    "MaskedArray": ("a mask", "x.filled(value) for an array without holes, or x.data for all of its numbers"),
    "matrix": ("products of its own", "numpy.asarray(x)"),
}  # classes of NumPy, by name: numpy.ma is not imported by itself


def refuse_subclass(x: Any, name: str = "") -> None:
    """ArgumentTypeError for an array of a class derived from NumPy's: it may mean more than is in its memory, which is all that a kernel
    and a gradient see of it. `name`: of the argument, if it is known here."""
    if type(x) in _PLAIN or not isinstance(x, np.ndarray):
        return
    known = next((_MORE[c.__name__] for c in type(x).__mro__ if c.__name__ in _MORE and c.__module__.startswith("numpy")), None)
    more, instead = known or ("a meaning of its own", "x.view(numpy.ndarray) if its numbers are all that it means")
    what = f"is a {type(x).__qualname__}, an array with {more}, which gpuad would not see; pass {instead}."
    raise ArgumentTypeError(f"{name} {what}") if name else ArgumentTypeError.of(x, what)


def as_array(x: Any, name: str = "") -> Any:
    """An array of NumPy or CuPy as it is, another library's (`__dlpack__`, `__cuda_array_interface__`) as one of these on the same memory,
    anything else as it is. ArgumentTypeError for an array of a class derived from NumPy's, but for mapped files and record arrays."""
    refuse_subclass(x, name)
    return on_its_memory(x)


def on_its_memory(x: Any) -> Any:
    """As `as_array`, and an array of a derived class as it is: for one that is passed on to functions of the caller's."""
    if isinstance(x, np.ndarray | type) or type(x).__module__.partition(".")[0] == "cupy":
        return x
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _of_tensor(x, torch)
    if hasattr(x, "__dlpack__"):
        detached = x.detach() if hasattr(x, "detach") else x
        if int(x.__dlpack_device__()[0]) != _HOST:
            return _on_device(x, cuda.from_dlpack, detached)
        return (
            np.asarray(x) if hasattr(x, "__array_interface__") else np.from_dlpack(detached)
        )  # DLPack before 1.0 cannot say that memory is writable
    return _on_device(x, cuda.from_interface, x) if hasattr(x, "__cuda_array_interface__") else x


def _of_tensor(x: Any, torch: Any) -> Any:
    """The array on the memory of a tensor of PyTorch's, which knows the tensor's counter of changes (`runtime.tensor_versions`)."""
    _refuse_tracked(x, torch)
    own = x.detach()  # of the same counter: torch lends no memory that it would track
    bits = own.view(torch.int16) if x.dtype is torch.bfloat16 else own
    try:
        array = _on_device(x, cuda.of_tensor, bits) if x.is_cuda else bits.numpy()
    except (TypeError, RuntimeError) as error:
        raise ArgumentTypeError.of(x, f"is a tensor without memory that a kernel could use: {error}") from None
    return array if bits is own or array is x else array.view(dtype_of(BF16))


def _refuse_tracked(x: Any, torch: Any) -> None:
    """ArgumentTypeError for a tensor of PyTorch's whose meaning is not in its memory alone: a graph would not see what is done to it, or it
    stands for the conjugate or the negative of what is there."""
    if x.requires_grad and torch.is_grad_enabled():
        what = "requires a gradient, and PyTorch does not see what a launch does to it; use gpuad.torch.function or gpuad.torch.program, or"
        raise ArgumentTypeError.of(x, f"{what} pass x.detach() if PyTorch's gradient is not to go through it.")
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None:
        what = "has a tangent, which a launch does not push; use gpuad.torch.function, or"
        raise ArgumentTypeError.of(x, f"{what} pass x.detach() if PyTorch's tangent is not to go through it.")
    if type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise ArgumentTypeError.of(x, "means more than is in its memory (a masked or distributed tensor?); pass the plain tensor.")
    if x.is_conj() or x.is_neg():
        raise ArgumentTypeError.of(x, "is a lazy conjugate or negative of what is in its memory; pass x.resolve_conj().resolve_neg().")


_HOST = 1  # of DLPack's kinds of devices


def _on_device(x: Any, made: Callable[[Any], Any], detached: Any) -> Any:
    """The CuPy array of an array on a GPU; where there is no CuPy, it as it is."""
    try:
        return made(detached)
    except ImportError:
        return x


def is_array(x: Any) -> bool:
    """True if it is an array of NumPy or CuPy."""
    return isinstance(x, np.ndarray) or (hasattr(x, "strides") and type(x).__module__.partition(".")[0] == "cupy")


def address(array: NdArray) -> int:
    """The address of an array's first element: a host address for NumPy arrays, a device address for CuPy arrays."""
    one: Any = array
    if isinstance(array, np.ndarray):
        return address_of(array) if array.base is None else int(one.__array_interface__["data"][0])
    return int(one.__cuda_array_interface__["data"][0])


def namespace(array: NdArray) -> Any:
    """The array library of an array: the module `numpy` or `cupy`."""
    return np if isinstance(array, np.ndarray) else sys.modules[type(array).__module__.partition(".")[0]]


def resolve(array: NdArray, number: np.dtype[Any] | None = None) -> Memory:
    """The allocation behind an array of NumPy or CuPy, flat and of its dtype, and the element at which the array begins. `number`: what its
    elements consist of, to have the allocation as these, and the place counted in them.

    Raises LaunchError when the array does not begin at a multiple of its item size.
    """
    library, number = namespace(array), number or array.dtype
    if isinstance(array, np.ndarray):
        whole_array = array.ndim == 0 and not isinstance(array.base, np.ndarray)
        return Memory(unlocked(array).reshape(1).view(number), 0) if whole_array else resolve_host(array, number)
    block, size = array.data.mem, array.dtype.itemsize
    whole, rest = divmod(int(array.data.ptr) - int(block.ptr), size) if array.size else (0, 0)
    if rest:
        raise LaunchError(f"an array of {array.dtype} starts {rest} bytes off a multiple of {size} in its allocation")
    start = library.cuda.MemoryPointer(block, 0)
    room = int(block.size) or (whole + _reach(array)) * size  # a variable of a RawModule: CuPy does not know its size
    return Memory(library.ndarray((room // number.itemsize,), number, start), whole * size // number.itemsize)


def _reach(array: NdArray) -> int:
    """Elements from the array's first to its last in memory, both included."""
    return 1 + int(sum(max(0, s) * (n - 1) for s, n in zip(array.strides, array.shape, strict=True))) // int(array.dtype.itemsize)


def leaf_memory(array: NdArray) -> Memory:
    """As `resolve`, with a complex array counted in its real numbers."""
    return resolve(array, None if array.dtype.kind != "c" else np.dtype(f"f{array.dtype.itemsize // 2}"))


def reinterpreted(root: NdArray, dtype: np.dtype[Any]) -> Any:
    """An allocation, flat, as elements of another dtype, as many as it has whole."""
    return root if root.dtype == dtype else root.view(np.uint8)[: root.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)


def fills(array: NdArray, memory: Memory) -> bool:
    """True if an array is all of its allocation, so that no kernel can legally reach outside of it. CuPy's pool rounds up to 512 bytes."""
    rounding = 1 if namespace(array).__name__ == "numpy" else 512
    lowest = sum(min(0, stride) * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True))
    return bool(memory.offset * array.dtype.itemsize + lowest == 0 and 0 <= memory.root.nbytes - array.nbytes < rounding)


def zeros_like(x: Any) -> Any:
    """Zeros laid out like `x`, with the same room around them: a kernel that leaves a view leaves its shadow too. Of halves in float32: a
    half would lose every contribution below the 2048th part of what is there."""
    memory, library = resolve(x), namespace(x)
    dtype = shadow_dtype(x.dtype)
    if library is np:
        asked(int(memory.root.size) * dtype.itemsize)
    if fills(x, memory) and min(x.strides, default=0) >= 0:
        return library.zeros_like(x, dtype)
    room, strides = library.zeros(memory.root.size, dtype), tuple(s // x.dtype.itemsize * dtype.itemsize for s in x.strides)
    if library.__name__ == "numpy":  # as_strided would hide from NumPy whose memory it is
        return np.ndarray(x.shape, dtype, room, memory.offset * dtype.itemsize, strides)
    return library.lib.stride_tricks.as_strided(room[memory.offset :], x.shape, strides)
