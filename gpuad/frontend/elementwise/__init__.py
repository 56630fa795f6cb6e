"""The elementwise frontend: CuPy's `ElementwiseKernel` and `ReductionKernel` as text of an ordinary CUDA kernel.

Everything behind the CUDA frontend then applies as it is. The user's operation stands in that text character by character, and the text
knows where each of its pieces came from, so an error points at a line and column of the operation's own string.
"""

from .parameters import Parameter, parse_parameters
from .reduction import ReductionSpec, reduction_source
from .strided import Operand
from .text import ElementwiseSpec, elementwise_source
from .words import Texts

__all__ = [
    "ElementwiseSpec", "Operand", "Parameter", "ReductionSpec", "Texts", "elementwise_source", "parse_parameters", "reduction_source",
]  # fmt: skip
