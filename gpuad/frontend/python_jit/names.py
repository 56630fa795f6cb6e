"""What names outside of a function stand for: CuPy's own functions and variables of `cupyx.jit`, and ours of the same names.

In: an object found under a name or attribute. Out: the `Builtin` that it is, by identity with the attributes of `cupyx.jit` if that is
loaded; the Python function behind a device function; None for anything else. CuPy is never imported here. A `Builtin` that is called
outside of a kernel, or of which an index is read there, raises OutsideKernelError."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...errors import OutsideKernelError, UnknownNameError

INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
ATOMICS = {f"atomic_{op}": op for op in ("add", "sub", "exch", "min", "max", "inc", "dec", "cas", "and", "or", "xor")}
SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
BUILTINS = frozenset(
    {*INDICES, *ATOMICS, *SHUFFLES, "grid", "gridsize", "laneid", "warpsize", "range", "syncthreads", "syncwarp", "shared_memory"}
)


@dataclass(frozen=True)
class Builtin:
    """Something of `cupyx.jit` that only a kernel can use, by its name there. In Python it does nothing."""

    name: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise OutsideKernelError(f"jit.{self.name} is for kernels: call it in a function that is decorated with jit.rawkernel")

    def __getattr__(self, name: str) -> Any:
        if self.name in INDICES and name in ("x", "y", "z"):
            raise OutsideKernelError(f"jit.{self.name}.{name} is for kernels: read it in a function that is decorated with jit.rawkernel")
        raise UnknownNameError(f"jit.{self.name} has no attribute {name!r}")


def builtin_of(value: Any) -> Builtin | None:
    """The builtin that an object is, CuPy's or ours; None for anything else."""
    if isinstance(value, Builtin):
        return value
    if value is range:
        return Builtin("range")
    if not type(value).__module__.startswith("cupyx.jit"):
        return None
    module = sys.modules.get("cupyx.jit")
    name = next((n for n in BUILTINS if getattr(module, n, None) is value), None)
    return Builtin(name) if name else None


def attribute(value: Any, name: str) -> Any:
    """An attribute of something outside; builtins of the module `cupyx.jit` by their name."""
    if isinstance(value, ModuleType) and value.__name__ == "cupyx.jit" and name in BUILTINS:
        return Builtin(name)
    return getattr(value, name)


def device_function(value: Any) -> Any:
    """The Python function behind a device function, CuPy's or ours; None for anything else."""
    if hasattr(value, "_func") and getattr(value, "_device", False):
        return value._func
    return None
