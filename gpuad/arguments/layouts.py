"""Where the numbers of an array's elements lie, compared with where a kernel's struct has them.

What a call passes by value, a number, a vector, a complex number or a struct, as the vector of the floats in it and back again.

The identity of an argument in caches: a number's value; an array's address, type and layout.

Nothing here looks at what an array holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..ir.dtypes import dtype_of, is_bfloat16, is_real
from ..ir.records import Part, leaves, size_of
from ..ir.types import BF16, HALVES, Array, Complex, Scalar, Struct, Type, Vector
from ..runtime.array_locks import writeable
from ..runtime.array_types import NdArray
from .annotations import Active
from .arrays import address

DType = np.dtype[Any]


def repeats(array: NdArray) -> bool:
    """True if elements of an array may share memory with one another, so that adding to all of them loses some: broadcast arrays do, and
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


def float_views(array: NdArray) -> list[Any]:
    """The fields of an array of structs that hold floats; any other array itself."""
    if array.dtype.names:
        return [view for name in array.dtype.names for view in float_views(array[name]) if view.dtype.kind == "c" or is_real(view.dtype)]
    return [array]


def same_number(leaf: Scalar, dtype: DType) -> bool:
    """True if a number of an array is one of the kernel's, signedness aside."""
    if leaf == BF16:
        return is_bfloat16(dtype)
    kinds = "f" if leaf.is_float else "iub"
    return dtype.kind in kinds and dtype.itemsize == leaf.size and dtype.isnative


def fits(dtype: DType, type_: Type) -> bool:
    """True if elements of a structured dtype are values of a type: the same size, and the same numbers at the same places."""
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


def float_types(type_: Type) -> tuple[Scalar, ...]:
    """The types of the floats in a parameter by value, in memory order: none of a pointer or a whole number."""
    kinds = (leaf.type for leaf in leaves(type_))
    return tuple(kind for kind in kinds if isinstance(kind, Scalar) and kind.is_float)


def can_be_active(type_: Type) -> bool:
    """True if a parameter by value may have a shadow: there is a float in it, and no half in a struct."""
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
        return type(value)(_of_type(v, float(p)) for v, p in zip(value, parts, strict=True))
    if isinstance(value, complex | np.complexfloating):
        return _of_type(value, complex(*parts))
    if _is_struct(value):
        made = np.empty_like(np.asarray(value))
        made[...] = value  # np.array(value) would be the memory of a NumPy scalar of structs itself
        _struct(made, parts)
        return made if isinstance(value, np.ndarray) else made[()]
    return _of_type(value, float(parts[0]))


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


def _of_type(given: Any, value: float | complex) -> Any:
    return given.dtype.type(value) if isinstance(given, np.generic) else value


def identity(arg: Any) -> Any:
    """What an argument is known by: a number by its value, anything else as the object that it is."""
    if isinstance(arg, np.generic):
        return type(arg), arg.dtype, arg.tobytes()  # 0.0 and -0.0 are equal, but not the same
    if isinstance(arg, float):
        return type(arg), arg, math.copysign(1.0, arg)
    return (type(arg), arg) if isinstance(arg, int) else id(arg)


def signature(array: NdArray) -> tuple[Any, ...]:
    """What makes an array what it is for a launch, but for its content."""
    return address(array), *layout(array)


def layout(array: NdArray) -> tuple[Any, ...]:
    """What an array's owner may change about it in place: its signature but for where it lies."""
    return array.shape, array.strides, array.dtype, writeable(array)
