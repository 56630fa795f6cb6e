"""gpuad differentiates CUDA kernels that overwrite their arguments in place. The public names, nothing else."""

from . import ops, testing
from .annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, stop_gradient
from .api import Forward, Kernel, Reverse, autodiff, autodiff_thunk, hvp, kernel
from .elementwise import ElementwiseKernel, ReductionKernel
from .errors import CompileError, GpuadError, LaunchError, ShadowError, TapeError, UnsupportedError
from .jitting import jit
from .launching import deterministic
from .program.rules import rule
from .tape import Tape

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
