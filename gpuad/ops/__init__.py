"""Array operations that a tape records, with NumPy's names: in place with `out=`, or with a new array as result.

Operands are pairs (`Duplicated`), plain arrays (inactive), `Active` and plain numbers; shapes broadcast and types promote as in NumPy,
whose scalars are strong and Python's weak; but absolute, sign, power, reciprocal, the rounding functions, fmax, fmin and the remainders
are computed in float64 where all operands are integers. A result is a pair if an operand carries a gradient: a temporary, whose gradient
is `.shadow`, with a dtype of its own. Inside of a tape every operation is recorded; outside of one a `Duplicated` is refused (TapeError).
"""

from __future__ import annotations

from types import SimpleNamespace as _SimpleNamespace
from typing import Any as _Any

from ..arguments.operators import provide as _provide
from ..errors import UnknownNameError as _UnknownNameError
from ..errors import near as _near
from ..public_calls import public_operation as _public
from .composed import TABLE as _COMPOSED
from .contraction import einsum
from .extrema import max, min, norm, prod, std, var
from .filters import TABLE as _FILTERS
from .fourier import TABLE as _FOURIER
from .fourier import fft, fft2, fftn, ifft, ifft2, ifftn, irfft, rfft
from .functions import MORE as _MORE
from .functions import (
    abs,
    absolute,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    astype,
    axpy,
    cbrt,
    ceil,
    clip,
    conj,
    conjugate,
    copy,
    copysign,
    copyto,
    cos,
    cosh,
    divide,
    exp,
    exp2,
    expm1,
    fill,
    floor,
    fmax,
    fmin,
    fmod,
    hypot,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    positive,
    power,
    reciprocal,
    remainder,
    rint,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from .functions import assign as _assign
from .indexing import getitem as _getitem
from .indexing import put, scatter_add, take
from .indexing import setitem as _setitem
from .interpolation import TABLE as _INTERPOLATED
from .joining import concatenate, roll, stack
from .linear import dot, gemm, matmul, outer, solve_triangular
from .linear_algebra import TABLE as _LINALG
from .numbers import taking_numbers as _taking_numbers
from .order_filters import TABLE as _SELECTED
from .parts import TABLE as _PARTS
from .plain_results import TABLE as _PLAIN
from .rearranging import TABLE as _REARRANGED
from .reductions import cumsum, mean, sort, sum
from .scipy_linalg import TABLE as _FACTORED
from .solving import TABLE as _SOLVED
from .special_rules import TABLE as _SPECIAL
from .statistics import TABLE as _STATISTICS
from .text import TABLE as _TEXT
from .trace_cache import by_arguments as _by_arguments
from .views import broadcast_to, expand_dims, flip, imag, moveaxis, ravel, real, reshape, squeeze, swapaxes, transpose

amax, amin = max, min

__all__ = [
    "abs", "absolute", "add", "amax", "amin", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "astype", "axpy",
    "broadcast_to", "cbrt", "ceil", "clip", "concatenate", "conj", "conjugate", "copy", "copysign", "copyto", "cos", "cosh", "cumsum",
    "divide", "dot", "einsum", "exp", "exp2", "expand_dims", "expm1", "fft", "fft2", "fftn", "fill", "flip", "floor", "fmax", "fmin",
    "fmod", "gemm", "hypot", "ifft", "ifft2", "ifftn", "imag", "irfft", "log", "log1p", "log2", "log10", "matmul", "max", "maximum",
    "mean", "min", "minimum", "mod", "moveaxis", "multiply", "negative", "norm", "outer", "positive", "power", "prod", "put", "ravel",
    "real", "reciprocal", "remainder", "reshape", "rfft", "rint", "roll", "scatter_add", "sign", "sin", "sinh", "solve_triangular",
    "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "tan", "tanh", "transpose", "true_divide",
    "trunc", "var", "where",
]  # fmt: skip

_TABLES: dict[str, _Any] = {
    **_PLAIN, **_REARRANGED, **_PARTS, **_COMPOSED, **_STATISTICS, **_FOURIER, **_LINALG, **_MORE, **_SOLVED,
    **_FILTERS, **_INTERPOLATED, **_SPECIAL, **_SELECTED, **_FACTORED, "concat": concatenate,
}  # fmt: skip
_BLIND = frozenset((  # which look at what arrays are and never at what is in them
    *_TEXT, *_MORE, *_FOURIER, *_SPECIAL, "abs", "amax", "amin", "angle", "append", "around", "array_split", "astype", "atleast_1d",
    "atleast_2d", "atleast_3d", "average", "block", "broadcast_arrays", "broadcast_to", "clip", "column_stack", "concat", "concatenate",
    "conj", "convolve", "copy", "correlate", "cov", "cross", "cumprod", "cumsum", "diag", "diagflat", "diagonal", "diff", "dot", "dsplit",
    "dstack", "ediff1d", "einsum", "expand_dims", "fft", "fft.fftshift", "fft.ifftshift", "fft2", "fftn", "fill", "fill_diagonal", "flip",
    "fliplr", "flipud", "gemm", "hsplit", "hstack", "ifft", "ifft2", "ifftn", "imag", "inner", "interp", "irfft", "kron", "linalg.cholesky",
    "linalg.cond", "linalg.cross", "linalg.det", "linalg.diagonal", "linalg.eigh", "linalg.eigvalsh", "linalg.inv", "linalg.matmul",
    "linalg.matrix_norm", "linalg.matrix_power", "linalg.matrix_transpose", "linalg.multi_dot", "linalg.norm", "linalg.outer", "linalg.qr",
    "linalg.solve", "linalg.svd", "linalg.svdvals", "linalg.tensordot", "linalg.trace", "linalg.vecdot", "linalg.vector_norm", "matmul",
    "matrix_transpose", "matvec", "max", "mean", "meshgrid", "min", "mod", "modf", "moveaxis", "norm", "outer", "pad", "permute_dims",
    "positive", "prod", "ptp", "ravel", "real", "reshape", "rfft", "roll", "rollaxis", "rot90", "round", "row_stack", "solve_triangular",
    "sort", "split", "squeeze", "stack", "std", "sum", "swapaxes", "tensordot", "tile", "trace", "transpose", "trapezoid", "trapz", "tril",
    "triu", "true_divide", "unstack", "var", "vdot", "vecdot", "vecmat", "vsplit", "vstack", "linalg.expm",
))  # fmt: skip


def _offered(function: _Any, name: str) -> _Any:
    """An operation as it is offered."""
    found = _taking_numbers(_public(function), name)
    return _by_arguments(found) if name in _BLIND else found


globals().update({name: _offered(globals()[name], name) for name in __all__})
_FFT = ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "rfft")  # rooms that NumPy's functions of these names are in
_ROOMS = dict.fromkeys(_FFT, "fft.") | {"solve_triangular": "linalg."}
_OFFERED = {_ROOMS.get(name, "") + name: globals()[name] for name in __all__ if name != "norm"} | {
    name: _offered(function, name) for name, function in _TABLES.items()
}
_provide(_OFFERED | {"getitem": _getitem, "setitem": _setitem, "assign": _by_arguments(_public(_assign))})


def __getattr__(name: str) -> _Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ndimage":
        return _SimpleNamespace(**{n.removeprefix("ndimage."): f for n, f in _OFFERED.items() if n.startswith("ndimage.")})
    found = next((_OFFERED[room + name] for room in ("", "linalg.", "fft.", "ndimage.", "sparse.linalg.") if room + name in _OFFERED), None)
    if found is None:
        advice = "use `.primal` for the raw array, or a kernel or a rule of your own"
        raise _UnknownNameError(f"gpuad.ops has no operation {name!r}: {advice}{_near(name, __all__)}")
    return found
