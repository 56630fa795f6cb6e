"""Where the numbers of an array's elements lie, compared with where a kernel's struct has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import dtype_of, is_bfloat16, is_real
from ..ir.records import Part, leaves, size_of
from ..ir.types import BF16, Array, Complex, Scalar, Struct, Type, Vector

DType = np.dtype[Any]


def repeats(array: Any) -> bool:
    """Whether elements of an array may share memory with one another, so that adding to all of them loses some: broadcast arrays do, and
    views by `as_strided`, of which those count, too, whose elements interlace without meeting."""
    end = int(array.dtype.itemsize)
    for step, count in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if step < end:
            return bool(array.size)
        end = step * (count - 1) + end
    return False


def dtype_leaves(dtype: DType, offset: int = 0) -> list[tuple[int, DType]]:
    """The numbers in an element of an array: byte offset and dtype of each, in memory order."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [leaf for k in range(int(np.prod(shape))) for leaf in dtype_leaves(base, offset + k * base.itemsize)]
    if dtype.fields is not None:
        found = [leaf for field in dtype.fields.values() for leaf in dtype_leaves(field[0], offset + field[1])]
        return sorted(found, key=lambda leaf: leaf[0])
    if dtype.kind == "c":
        half = np.dtype(f"f{dtype.itemsize // 2}")
        return [(offset, half), (offset + half.itemsize, half)]
    return [(offset, dtype)]


def element_dtype(type_: Type) -> DType:
    """The dtype of NumPy arrays of a type: a struct has its fields under their names, and a vector in it is an array of its numbers."""
    match type_:
        case Scalar():
            return dtype_of(type_)
        case Complex(element=element):
            return np.dtype(f"c{2 * element.size}")
        case Vector(element=element, lanes=length) | Array(element=element, length=length):
            return np.dtype((element_dtype(element), (length,)))
        case Struct(fields=fields, size=size):
            names, formats, offsets = zip(*((f.name, element_dtype(f.type), f.offset) for f in fields), strict=True)
            return np.dtype({"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size})
    raise TypeError(f"a value of type {type_} has no dtype")


def float_views(array: Any) -> list[Any]:
    """The fields of an array of structs that hold floats; any other array itself."""
    if array.dtype.names:
        return [view for name in array.dtype.names for view in float_views(array[name]) if view.dtype.kind == "c" or is_real(view.dtype)]
    return [array]


def same_number(leaf: Scalar, dtype: DType) -> bool:
    """Whether a number of an array is one of the kernel's, signedness aside."""
    if leaf == BF16:
        return is_bfloat16(dtype)
    kinds = "f" if leaf.is_float else "iub"
    return dtype.kind in kinds and dtype.itemsize == leaf.size and dtype.isnative


def fits(dtype: DType, type_: Type) -> bool:
    """Whether elements of a structured dtype are values of a type: the same size, and the same numbers at the same places."""
    numbers = dtype_leaves(dtype)
    wanted = leaves(type_)
    return (
        dtype.itemsize == size_of(type_)
        and len(numbers) == len(wanted)
        and all(o == w.offset and isinstance(w.type, Scalar) and same_number(w.type, d) for (o, d), w in zip(numbers, wanted, strict=True))
    )


def described(type_: Type) -> str:
    """The dtype that a struct has, as one would write it."""
    parts = [leaf for leaf in leaves(type_) if isinstance(leaf.type, Scalar)]
    names, formats, offsets = zip(*((p.name, _format(p), p.offset) for p in parts), strict=True)
    return f"numpy.dtype({{'names': {list(names)}, 'formats': {list(formats)}, 'offsets': {list(offsets)}, 'itemsize': {size_of(type_)}}})"


def _format(leaf: Part) -> str:
    assert isinstance(leaf.type, Scalar)
    return str(leaf.type) if leaf.type == BF16 else dtype_of(leaf.type).str.lstrip("<|=")
