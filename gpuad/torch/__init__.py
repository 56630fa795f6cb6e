"""gpuad's kernels and programs as functions of PyTorch: `function` for one kernel, `program` for a recorded one.

Tensors on a CPU are shared with NumPy, those on a GPU with CuPy through DLPack, on PyTorch's current stream. Nothing is copied that the
form of a call does not ask for. `import gpuad.torch` needs PyTorch; `import gpuad` does not."""

from .functions import function
from .programs import program

__all__ = ["function", "program"]
