"""PyTorch's version counters: of what gpuad writes into a tensor's memory PyTorch is told.

A graph of PyTorch keeps tensors with the number of changes that they had seen by then, and refuses a backward pass that needs one which has
changed since. PyTorch counts its own changes; what others write they have to count for it, or the gradient is wrong without a word. An
array of NumPy knows whose memory it lies in, by what its chain of bases ends in, and so does an array of CuPy that gpuad has made of a
tensor. Nothing is asked, and nothing imported, where PyTorch is not loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from numpy import ndarray


def tensor_of(array: Any) -> Any:
    """The tensor of PyTorch in whose memory an array of NumPy or CuPy lies, as far as that is known; None for any other."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if not isinstance(array, ndarray):
        return getattr(getattr(getattr(array, "data", None), "mem", None), "tensor", None)
    base: Any = array.base
    while base is not None:
        if isinstance(base, torch.Tensor):
            return base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def count_writes(arrays: Iterable[Any]) -> None:
    """Counts a change of each tensor in whose memory one of the arrays lies."""
    torch = sys.modules.get("torch")
    if torch is not None:
        _count([tensor for array in arrays if (tensor := tensor_of(array)) is not None])


def _count(tensors: list[Any]) -> None:
    if tensors:
        sys.modules["torch"].autograd.graph.increment_version(tensors)


class Counting:
    """A launch that writes into tensors, `func`, and counts that; a launch that fails may have written, too."""

    __slots__ = ("func", "tensors")

    def __init__(self, func: Callable[[], Any], tensors: list[Any]) -> None:
        self.func, self.tensors = func, tensors

    def __call__(self) -> Any:
        try:
            return self.func()
        finally:
            _count(self.tensors)


def counting(launch: Callable[[], Any], arrays: Iterable[Any]) -> Callable[[], Any]:
    """A launch that writes the arrays, as it is where none lies in a tensor."""
    if "torch" not in sys.modules:
        return launch
    tensors = [tensor for array in arrays if (tensor := tensor_of(array)) is not None]
    return Counting(launch, tensors) if tensors else launch
