"""gpuad's kernels and programs as functions of JAX: `function` for one kernel, `program` for a recorded one.

A kernel runs on XLA's own buffers, in XLA's stream; what it overwrites is a donated input where the caller donates it. `import gpuad.jax`
needs JAX; `import gpuad` does not."""

from .functions import function
from .programs import program

__all__ = ["function", "program"]
