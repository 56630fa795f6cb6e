"""gpuad differentiates CUDA kernels that overwrite their arguments in place. The public names, nothing else."""

from . import ops, testing
from .api import Forward, Kernel, Reverse, autodiff, autodiff_thunk, hvp, kernel
from .arguments.annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, stop_gradient
from .elementwise import ElementwiseKernel, ReductionKernel
from .errors import CompileError, GpuadError, LaunchError, ShadowError, TapeError, UnsupportedError
from .jit import jit
from .pipeline import deterministic
from .tape.rules import rule
from .tape.tape import Tape

__version__ = "0.1.0"

__all__ = [
    "Active",
    "BatchDuplicated",
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
    "UnsupportedError",
    "autodiff",
    "autodiff_thunk",
    "deterministic",
    "hvp",
    "jit",
    "kernel",
    "ops",
    "rule",
    "stop_gradient",
    "testing",
]
