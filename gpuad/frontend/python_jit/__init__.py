"""The frontend of `cupyx.jit` functions: from their Python syntax tree to the surface tree, without CUDA text in between.

A text would need clang to tell types that are decided here already, by CuPy's rules and not C's; and every place would have to be led back
through two languages. So each node is lowered to the surface tree directly and carries the place of its Python expression. A function is
lowered for the types of one call, as CuPy compiles it: arrays by dtype, number of axes and layout, numbers by type.
"""

from .lower import Lowered, lower
from .names import Builtin
from .signature import ArrayType, NumberType, Signature

__all__ = ["ArrayType", "Builtin", "Lowered", "NumberType", "Signature", "lower"]
