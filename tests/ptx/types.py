"""PTX's fundamental types as NumPy's. Numbers of 16 bits that NumPy lacks are kept as their bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import Unknown

DTYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": np.dtype("f2"),
    "bf16": np.dtype("u2"),
    "f16x2": np.dtype("u4"),
    "bf16x2": np.dtype("u4"),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "pred": np.dtype("?"),
}
FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def dtype(name: str) -> Any:
    """The NumPy type of a PTX type; Unknown for those that no text has needed yet."""
    if name not in DTYPES:
        raise Unknown(f"type .{name}")
    return DTYPES[name]


def unsigned(size: int) -> Any:
    return np.dtype(f"u{size}")


def viewed(value: Any, wanted: Any) -> Any:
    """The bits of a register as another type: of the same size, or its lower bytes."""
    if value.dtype == wanted:
        return value
    if value.dtype.itemsize > wanted.itemsize:
        value = value.view(unsigned(value.dtype.itemsize)).astype(unsigned(wanted.itemsize))
    if value.dtype.itemsize < wanted.itemsize:
        raise Unknown(f"a register of {value.dtype.itemsize} bytes read as one of {wanted.itemsize}")
    return value.view(wanted)


def widened(value: Any, size: int) -> Any:
    """A result in a register of so many bytes: extended by its sign, or by zeros."""
    if value.dtype.itemsize == size or value.dtype == np.bool_:
        return value
    if value.dtype.itemsize > size:
        raise Unknown(f"a result of {value.dtype.itemsize} bytes in a register of {size}")
    return value.astype(np.dtype(f"i{size}") if value.dtype.kind == "i" else unsigned(size))


def uniform(value: Any, wanted: Any) -> Any:
    """One value for all lanes."""
    return np.array([value], wanted)
