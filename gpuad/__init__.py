"""gpuad differentiates CUDA kernels that overwrite their arguments in place. The public names, nothing else.

Each name is imported when it is first used: a script that launches one kernel does not wait for tapes and array operations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .deferred_import import register

if TYPE_CHECKING:
    from . import distributed, ops, testing
    from .api import Forward, Reverse, autodiff, autodiff_thunk, hvp
    from .api.facade import Kernel, kernel
    from .arguments.annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, stop_gradient
    from .arguments.textures import Texture
    from .elementwise import ElementwiseKernel, ReductionKernel
    from .errors import ArgumentError, BudgetError, CompileError, GpuadError, LaunchError, ShadowError, TapeError, UnsupportedError
    from .jit_kernels import jit
    from .namespaces.tracing import jvp, trace, value_and_grad
    from .pipeline import deterministic
    from .profiling import profile
    from .tape.facade import Tape
    from .tape.rules import rule

__version__ = "0.6.0.dev0"

__all__ = [
    "Active",
    "ArgumentError",
    "BatchDuplicated",
    "BudgetError",
    "CompileError",
    "Const",
    "Duplicated",
    "DuplicatedNoNeed",
    "ElementwiseKernel",
    "Forward",
    "GpuadError",
    "Kernel",
    "LaunchError",
    "ReductionKernel",
    "Reverse",
    "ShadowError",
    "Tape",
    "TapeError",
    "Texture",
    "UnsupportedError",
    "autodiff",
    "autodiff_thunk",
    "deterministic",
    "distributed",
    "hvp",
    "jit",
    "jvp",
    "kernel",
    "ops",
    "profile",
    "rule",
    "stop_gradient",
    "testing",
    "trace",
    "value_and_grad",
]

_HOMES = {
    ".api": ("Forward", "Reverse", "autodiff", "autodiff_thunk", "hvp"),
    ".api.facade": ("Kernel", "kernel"),
    ".arguments.annotations": ("Active", "BatchDuplicated", "Const", "Duplicated", "DuplicatedNoNeed", "stop_gradient"),
    ".arguments.textures": ("Texture",),
    ".elementwise": ("ElementwiseKernel", "ReductionKernel"),
    ".errors": (
        "ArgumentError",
        "BudgetError",
        "CompileError",
        "GpuadError",
        "LaunchError",
        "ShadowError",
        "TapeError",
        "UnsupportedError",
    ),
    ".jit_kernels": ("jit",),
    ".namespaces.tracing": ("jvp", "trace", "value_and_grad"),
    ".pipeline": ("deterministic",),
    ".profiling": ("profile",),
    ".tape.rules": ("rule",),
    ".tape.facade": ("Tape",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

register("gpuad.ops", "gpuad.elementwise", "gpuad.jit_kernels")


def __getattr__(name: str) -> Any:
    if name in ("cupy", "cupyx", "distributed", "numpy", "ops", "testing"):
        return import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        from .errors import UnknownNameError, near

        raise UnknownNameError(f"module {__name__!r} has no attribute {name!r}{near(name, __dir__())}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
