"""What a call passes by value, a number, a vector, a complex number or a struct, as the vector of the floats in it and back again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..ir.dtypes import is_real
from ..ir.records import leaves
from ..ir.types import HALVES, Scalar, Type
from .annotations import Active
from .layouts import dtype_leaves


def float_types(type_: Type) -> tuple[Scalar, ...]:
    """The types of the floats in a parameter by value, in memory order: none of a pointer or a whole number."""
    kinds = (leaf.type for leaf in leaves(type_))
    return tuple(kind for kind in kinds if isinstance(kind, Scalar) and kind.is_float)


def can_be_active(type_: Type) -> bool:
    """Whether a parameter by value may have a shadow: there is a float in it, and no half in a struct."""
    kinds = float_types(type_)
    return bool(kinds) and (isinstance(type_, Scalar) or not any(kind in HALVES for kind in kinds))


def floats(value: Any) -> Any:
    """The floats in a value, a float64 array of shape (k,)."""
    numbers = np.asarray(value)
    if numbers.dtype.names:
        return np.array([own[0] for own in _fields(numbers)], np.float64)
    numbers = np.atleast_1d(numbers)
    return (numbers.view(numbers.real.dtype) if numbers.dtype.kind == "c" else numbers).astype(np.float64)


def scales(value: Any) -> Any:
    """How large a change of each float may be called, float64 of shape (k,): the numbers in a struct have nothing to do with each other,
    those in a vector have. 1 for what is 0 or not finite."""
    sizes = np.abs(floats(value))
    if not _is_struct(value):
        sizes[:] = np.sqrt(np.mean(sizes**2))
    return np.where(np.isfinite(sizes) & (sizes > 0), sizes, 1.0)


def with_floats(value: Any, parts: Any) -> Any:
    """A value of the same type as `value` with these floats, of shape (k,), in place of its own."""
    if isinstance(value, tuple | list):
        return type(value)(_typed(v, float(p)) for v, p in zip(value, parts, strict=True))
    if isinstance(value, complex | np.complexfloating):
        return _typed(value, complex(*parts))
    if _is_struct(value):
        made = np.empty_like(np.asarray(value))
        made[...] = value  # np.array(value) would be the memory of a NumPy scalar of structs itself
        _struct(made, parts)
        return made if isinstance(value, np.ndarray) else made[()]
    return _typed(value, float(parts[0]))


def shadow(value: Any, library: Any = np, parts: Any = None) -> Any:
    """An array of `library`, the module numpy or cupy, as `Active(value, shadow)` takes it, with these floats in it, or zeros. CuPy has no
    arrays of structs: there it is one of the struct's bytes."""
    parts = np.zeros(len(floats(value))) if parts is None else parts
    if _is_struct(value):
        made = _struct(np.zeros((), value.dtype), parts)
        return made if library is np else library.asarray(np.frombuffer(made.tobytes(), np.uint8))
    if isinstance(value, tuple | list):
        return library.array(parts, np.float64)  # a copy: gradients are added to it
    return library.array(complex(*parts) if len(parts) == 2 else float(parts[0]))


def gradient(value: Any, held: Any) -> Any:
    """The floats in a shadow that `shadow` made for a value and that was brought to the host, a float64 array of shape (k,)."""
    return floats(held.view(value.dtype) if _is_struct(value) and held.dtype == np.uint8 else held)


def active(value: Any, library: Any = np) -> Active:
    """The value with a new shadow of zeros."""
    return Active(value, shadow(value, library))


def _is_struct(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "names", None) is not None


def _struct(made: Any, parts: Any) -> Any:
    for own, part in zip(_fields(made), parts, strict=True):
        own[0] = part
    return made


def _fields(struct: Any) -> Iterator[Any]:
    """Views of the floats in an array of one struct, each of shape (1,)."""
    for offset, dtype in dtype_leaves(struct.dtype):
        if is_real(dtype):
            yield np.ndarray((1,), dtype, struct.reshape(1), offset)


def _typed(given: Any, value: float | complex) -> Any:
    return given.dtype.type(value) if isinstance(given, np.generic) else value
