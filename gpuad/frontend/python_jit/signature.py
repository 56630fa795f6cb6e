"""The types of a call: what a function is lowered for, as CuPy decides it.

Python's ints are int32 (int64 where they do not fit), its floats float32, and its bools bool; NumPy's numbers keep their type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...ir.dtypes import DType
from ...ir.types import BOOL, F32, I32, I64, Complex, Scalar

_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float"}


@dataclass(frozen=True)
class ArrayType:
    """An array: `contiguous` in C order, or indexed with strides; `moved`: its first element is not its lowest; `wide`: 32 bits do not
    count its elements."""

    dtype: DType
    ndim: int
    contiguous: bool
    moved: bool
    wide: bool


@dataclass(frozen=True)
class NumberType:
    """A number by value."""

    type: Scalar | Complex


Signature: TypeAlias = "tuple[ArrayType | NumberType, ...]"


def scalar_of(dtype: DType) -> Scalar | None:
    """The IR's type for a dtype; None for what is no real number of up to 64 bits."""
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        return None
    return BOOL if dtype.kind == "b" else Scalar(_KINDS[dtype.kind], 8 * dtype.itemsize)


def number_of(dtype: DType) -> Scalar | Complex | None:
    """The IR's type for a dtype, complex64 and complex128 too."""
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return Complex(Scalar("float", 4 * dtype.itemsize))
    return scalar_of(dtype)


def scalar_of_number(value: Any) -> Scalar | None:
    """The type of a number as an argument or a constant; None for what is no real number."""
    if isinstance(value, np.generic):
        return scalar_of(value.dtype)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return I32 if -(1 << 31) <= value < 1 << 31 else I64
    return F32 if isinstance(value, float) else None
