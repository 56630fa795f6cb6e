"""The memory of a user's module: `__constant__` and `__device__` variables.

A generated kernel lives in a module of its own, so it is handed the user's memory as pointers, and everything that holds for arrays that
are passed holds for it: shadows, overlap, versions on a tape. For a `cupy.RawModule` that memory is on the device and CuPy gives its
address; a kernel from text has memory of its own, in the library of the arrays that it is first launched with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import namespace
from ..arguments.layouts import element_dtype
from ..errors import LaunchError
from ..ir.dtypes import dtype_of
from ..ir.records import numbers, size_of
from ..ir.surface import Global
from ..ir.types import Pointer, Struct, Type, Vector


class ModuleMemory:
    """The variables of one module by name, as arrays made when they are first needed. `raw`: the CuPy object, or None for text."""

    def __init__(self, raw: Any = None) -> None:
        self.raw = raw
        self.arrays: dict[str, Any] = {}

    def get(self, kernel: str, variable: Global, library: Any = np) -> Any:
        """The array of a variable; LaunchError where its memory cannot be reached."""
        if variable.name not in self.arrays:
            self.arrays[variable.name] = self._made(kernel, variable, library)
        return self.arrays[variable.name]

    def for_launch(self, kernel: str, variable: Global, written: bool, library: Any) -> Any:
        """A variable's memory for a launch; LaunchError also for memory that the kernel would read before anyone has put a value there."""
        if self.raw is None and not written and variable.initial is None and variable.name not in self.arrays:
            raise LaunchError(
                f"`{kernel}` reads `{variable.name}`, a variable of its module that has no value yet: set it through "
                f"kernel.get_global('{variable.name}'). A kernel that shares its module is made by gpuad.kernel(kernel, 'name'). "
                "Nothing was launched."
            )
        return self.get(kernel, variable, library)

    def _made(self, kernel: str, variable: Global, library: Any) -> Any:
        shape, dtype = _layout(variable, self.raw is None and library is np)
        if self.raw is None:
            values = np.zeros(shape, dtype)
            if variable.initial is not None:
                values.reshape(-1)[:] = variable.initial
            return values if library is np else _on_device(values)
        if not hasattr(self.raw, "get_global"):
            raise LaunchError(
                f"`{kernel}` reaches `{variable.name}`, a variable of its module, which a {type(self.raw).__name__} does not give away: "
                "pass the cupy.RawModule and the kernel's name, or declare it const with a value. Nothing was launched."
            )
        from ..runtime.cuda import module_array

        return module_array(self.raw, variable.name, shape, dtype)

    def on_host(self) -> ModuleMemory:
        """A copy on the host, for a launch on NumPy arrays that stands for one on the device."""
        copy = ModuleMemory()
        copy.arrays = {name: array.copy() if isinstance(array, np.ndarray) else array.get() for name, array in self.arrays.items()}
        return copy


def _on_device(values: Any) -> Any:
    from ..runtime.cuda import finished_array

    return finished_array(values)


def _layout(variable: Global, on_host: bool) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of a variable's array. CuPy has no dtype for structs: there it is of their numbers, or of their bytes where these are
    of several types."""
    assert isinstance(variable.pointer.type, Pointer)
    element: Type = variable.pointer.type.element
    if isinstance(element, Vector):
        return variable.shape, dtype_of(element.element)
    if on_host or not isinstance(element, Struct):
        return variable.shape, element_dtype(element)
    kinds = numbers(element)
    dtype = dtype_of(kinds[0]) if len(kinds) == 1 else np.dtype(np.uint8)
    return (*variable.shape, size_of(element) // dtype.itemsize), dtype


def library_of(args: Sequence[Any]) -> Any:
    """The library of a launch's arrays."""
    arrays = [getattr(arg, "primal", arg) for arg in args]
    return next((namespace(a) for a in arrays if type(a).__module__.partition(".")[0] == "cupy"), np)
