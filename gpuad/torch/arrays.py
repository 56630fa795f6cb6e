"""Tensors as arrays of NumPy and CuPy: the same memory, never a copy.

bfloat16 has no type in NumPy's protocol, so its bits are handed over as integers and named again on the other side. Within `on_stream_of`
all that CuPy does is put into PyTorch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from ..errors import LaunchError
from ..ir.dtypes import dtype_of
from ..ir.types import BF16
from ..runtime import cuda

TYPES = {
    np.dtype(name): getattr(torch, name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64",
        "complex128",
    )
}  # fmt: skip
NAMES = {theirs: ours for ours, theirs in TYPES.items()}


def shared(tensor: Any) -> Any:
    """The array on a tensor's memory. LaunchError where there is none: a lazy conjugate, a sparse or quantised tensor."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or is_lazy(tensor):
        raise LaunchError(
            f"a tensor of layout {tensor.layout}{', a lazy conjugate or negative' if tensor.layout is torch.strided else ''} has no plain "
            "memory; pass tensor.resolve_conj().resolve_neg(), or a dense tensor. Nothing was launched."
        )
    half = tensor.dtype is torch.bfloat16
    bits = tensor.view(torch.int16) if half else tensor
    if not half and tensor.dtype not in NAMES:
        raise LaunchError(f"a tensor of {tensor.dtype} holds no numbers that a kernel takes. Nothing was launched.")
    array = cuda.from_dlpack(bits) if on_device(tensor) else _on_host(bits)
    return array.view(dtype_of(BF16)) if half else array


def _on_host(tensor: Any) -> Any:
    """The NumPy array of a tensor, which the core does not know for one: what is changed is counted here. One that leaves gaps is a view of
    all from its first element to its last, as NumPy has it."""
    array = tensor.numpy()
    if array.flags.c_contiguous or array.flags.f_contiguous or not array.size:
        return np.asarray(_Borrowed(array))
    room = tensor.as_strided((1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)),), (1,)).numpy()
    return np.ndarray(array.shape, array.dtype, np.asarray(_Borrowed(room)), 0, array.strides)


class _Borrowed:
    """An array's memory, which it keeps alive."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: Any) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


def lies_as(tensor: Any, layout: Any) -> bool:
    """True if a tensor lies as it did in a launch (shape, strides, type)."""
    return bool(tensor.stride() == layout[1] and tensor.shape == layout[0] and tensor.dtype is layout[2])


def refuse_own_meaning(tensor: Any) -> None:
    """LaunchError for a tensor of a class that says itself what its operations are (masked, fake, distributed tensors): its memory, if it
    has any, is not what it means."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise LaunchError(f"a {type(tensor).__name__} has no plain memory; pass the plain tensor that is meant. Nothing was launched.")


def is_lazy(tensor: Any) -> bool:
    """Whether a tensor stands for the conjugate or the negative of what is in its memory."""
    return bool(tensor.is_conj() or tensor.is_neg())


def on_device(tensor: Any) -> bool:
    """Whether a tensor lives on a GPU."""
    return bool(tensor.is_cuda)


def on_stream_of(tensors: Sequence[Any]) -> AbstractContextManager[Any]:
    """Within it CuPy works on PyTorch's current stream and device, if the tensors live on a GPU."""
    first = next((t for t in tensors if t is not None), None)
    return nullcontext() if first is None or not on_device(first) else cuda.on_foreign_stream(stream_of(first), first.device.index)


def stream_of(tensor: Any) -> int:
    """The address of PyTorch's current stream on a tensor's device."""
    return int(torch.cuda.current_stream(tensor.device).cuda_stream)


def type_of(dtype: np.dtype[Any]) -> Any:
    """PyTorch's type of a dtype."""
    return TYPES.get(dtype, torch.bfloat16)


def is_whole(tensor: Any) -> bool:
    """Whether a tensor is all of its storage."""
    return bool(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())


def placed(tensor: Any) -> tuple[int, int]:
    """The addresses between which a tensor lies, the end excluded."""
    start = tensor.data_ptr()
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size() if tensor.numel() else start


def like(tensor: Any, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """Zeros on the device of a tensor (None: the CPU), with this layout."""
    return torch.empty_strided(shape, strides, dtype=dtype, device=None if tensor is None else tensor.device).zero_()


def relaid(tensor: Any, layout: Any) -> Any:
    """A tensor's content as it lay in a launch (shape, strides, type): hooks of saved tensors may have laid it otherwise. LaunchError for
    one that is of another shape or type by now, of which PyTorch has counted no change."""
    if tensor.shape != layout[0] or tensor.dtype is not layout[2]:
        raise LaunchError(
            f"a tensor that this backward pass reads was of shape {tuple(layout[0])} and {layout[2]} in the launch, and is of shape "
            f"{tuple(tensor.shape)} and {tensor.dtype} now: its `.data` was set to something else in between, or a hook has changed it"
        )
    return torch.empty_strided(layout[0], layout[1], dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def copied(tensor: Any) -> Any:
    """A copy with the same strides, of zeros or repeated elements too where they lie apart."""
    if tensor.is_contiguous():
        return tensor.clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def empty_array(shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """A NumPy array without content that lies as a tensor would; `strides` in elements, `dtype` PyTorch's or NumPy's."""
    own = dtype if isinstance(dtype, np.dtype) else dtype_of(BF16) if dtype is torch.bfloat16 else NAMES[dtype]
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
    return np.ndarray(shape, own, np.empty(reach, own), 0, tuple(s * own.itemsize for s in strides))
