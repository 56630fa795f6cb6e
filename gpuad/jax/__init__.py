"""gpuad's kernels as functions of JAX: `function`, with jit, grad, jvp and vmap.

A kernel runs on XLA's own buffers, in XLA's stream; what it overwrites is a donated input where the caller donates it. `import gpuad.jax`
needs JAX; `import gpuad` does not."""

from .functions import function

__all__ = ["function"]
