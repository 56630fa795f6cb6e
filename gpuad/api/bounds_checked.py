"""Kernels of which every access is looked at before a launch: `gpuad.kernel(text, name, bounds=True)`.

In: a kernel and a call. Before the kernel is launched or recorded, or its derivative is, the interpreter runs it on copies of the arrays.
It raises BoundsError for the first access outside of an allocation, of shared or of local memory, with line, array, index and size, and
RaceError for a race. Then nothing was launched, and the arrays are as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.array_types import Extents, NdArray
from .adjoint_text import AdjointText
from .interpreted import interpret
from .kernels import Kernel, Planned, TextKernel


class BoundsCheckedKernel(TextKernel):
    """Calls of `kernel`, each after a run of the interpreter. What it has besides is the kernel's own."""

    def __init__(self, kernel: TextKernel) -> None:
        self.kernel = kernel
        self.name, self.file, self.in_parts = kernel.name, kernel.file, kernel.in_parts

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":  # before there is one, as for copies
            raise AttributeError(name)
        return getattr(self.kernel, name)

    @property
    def parameters(self) -> Any:
        """Those of the kernel."""
        return self.kernel.parameters

    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel, if all of its accesses lie inside of their arrays."""
        self._check(grid, block, args, shared_mem=shared_mem)
        self.kernel(grid, block, args, shared_mem=shared_mem, stream=stream)

    def adjoint(self, /, *annotations: Any, **keywords: Any) -> AdjointText:
        """That of the kernel."""
        return self.kernel.adjoint(*annotations, **keywords)

    def get_global(self, name: str) -> Any:
        """As of the kernel."""
        return self.kernel.get_global(name)

    def with_shadow(self, name: str, shadow: NdArray) -> BoundsCheckedKernel:
        """The kernel with a shadow for a variable of its module, looked at as this one is."""
        return BoundsCheckedKernel(self.kernel.with_shadow(name, shadow))

    def planned(self, *call: Any, **keywords: Any) -> Planned | None:
        """The launch that a derivative is taken of, looked at."""
        self._check(*call, shared_mem=keywords.get("shared_mem", 0))
        return self.kernel.planned(*call, **keywords)

    def launches(self, *call: Any, **keywords: Any) -> Iterator[Planned]:
        """The parts of a kernel with `grid.sync()`, which is looked at as a whole."""
        self._check(*call, shared_mem=keywords.get("shared_mem", 0))
        return self.kernel.launches(*call, **keywords)

    def in_parts_of(self, *call: Any, **keywords: Any) -> tuple[Any, Planned]:
        """As of the kernel."""
        return self.kernel.in_parts_of(*call, **keywords)

    def directions(self, given: Sequence[Any], chosen: Any) -> list[Any]:
        """As of the kernel."""
        return self.kernel.directions(given, chosen)

    def annotated(self, chosen: Kernel, positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """As of the kernel."""
        return self.kernel.annotated(chosen, positional, by_name)

    def _check(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0) -> None:
        copied = _copies()
        own = [copied(x) for x in args] if isinstance(args, tuple | list) else args
        interpret(self.kernel, grid, block, tuple(own), shared_mem=shared_mem)


def _copies() -> Callable[[Any], Any]:
    """Copies arrays to the CPU, of one allocation once, so that what overlaps does so in the copies."""
    roots: dict[int, Any] = {}

    def copied(x: Any) -> Any:
        x = getattr(x, "primal", getattr(x, "value", x))
        if isinstance(x, tuple | list):
            return [copied(part) for part in x]
        if not hasattr(x, "strides") or isinstance(x, np.generic):
            return x
        root = x
        while isinstance(getattr(root, "base", None), type(x)):
            root = root.base
        if id(root) not in roots:
            flat = root.get() if hasattr(root, "get") else np.array(root, order="K")
            roots[id(root)] = root, flat
        _, flat = roots[id(root)]
        return np.ndarray(x.shape, x.dtype, flat, _start(x) - _start(root), x.strides)

    return copied


def _start(x: Any) -> int:
    return int(x.data.ptr) if hasattr(x, "get") else int(x.ctypes.data)
