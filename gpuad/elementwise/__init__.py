"""CuPy's `ElementwiseKernel` and `ReductionKernel`: called with arrays and numbers, without a geometry.

A call decides types and shapes as CuPy does, becomes the launch of an ordinary kernel that `gpuad.frontend.elementwise` writes, and is
recorded and reversed like any other.
"""

from ..api import offer
from ..arguments.operators import provide
from .kernels import ElementwiseKernel
from .recognise import called, recognised
from .reductions import ReductionKernel

offer(recognised)
provide({"elementwise kernel": called})

__all__ = ["ElementwiseKernel", "ReductionKernel"]
