"""NumPy's types for the numbers of the IR, and what is true of them.

bfloat16 is no type of NumPy: the package ml_dtypes adds it, CuPy takes it from there as well. It is imported here alone, when the first
bfloat16 is met. NumPy does not count it among its floats (`dtype.kind` is 'V'), so what asks whether numbers carry a gradient asks here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError
from .types import BF16, Scalar

Array = NDArray[Any]
DType = np.dtype[Any]


@cache
def dtype_of(kind: Scalar) -> DType:
    """The dtype of a number. LaunchError for a bfloat16 where the package ml_dtypes is missing."""
    if kind == BF16:
        return _bfloat16()
    return np.dtype(np.bool_) if kind.kind == "bool" else np.dtype(str(kind))


def _bfloat16() -> DType:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise LaunchError("bfloat16 needs the package ml_dtypes, which gives NumPy this type: pip install 'gpuad[bfloat16]'") from None
    return np.dtype(bfloat16)  # type: ignore[no-any-return]


def to_bfloat16(a: NDArray[Any]) -> NDArray[Any]:
    """Floats or doubles rounded to the nearest bfloat16, ties to even. ml_dtypes rounds a double twice; here it goes through a float that
    is rounded to odd (Boldo and Melquiond, 2008), so that the second rounding is as if there had been one."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = np.ascontiguousarray(a.astype(np.float32))
        away = np.abs(single.astype(a.dtype)) > np.abs(a)
        odd = single.view(np.uint32) - away.astype(np.uint32) | (single != a).astype(np.uint32)
        return np.asarray(odd.view(np.float32).astype(dtype_of(BF16)))


def is_bfloat16(dtype: DType) -> bool:
    """True if a dtype is that of ml_dtypes, which need not be imported to ask."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def is_real(dtype: DType) -> bool:
    """True if a dtype is of real floating-point numbers, of which each carries a gradient."""
    return dtype.kind == "f" or is_bfloat16(dtype)


def is_half(dtype: DType) -> bool:
    """True if a dtype is float16 or bfloat16: their shadows are float32, since sums in them lose small contributions."""
    return dtype == np.float16 or is_bfloat16(dtype)


def shadow_dtype(dtype: DType) -> DType:
    """The dtype of the shadow that is made for numbers of a dtype."""
    return np.dtype(np.float32) if is_half(dtype) else dtype
