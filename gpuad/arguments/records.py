"""Vectors, complex numbers and structs as arguments. What is passed by value becomes a number for each that is in it; a pointer to structs
of several types of numbers becomes a pointer for each type, all to the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import LaunchError, ShadowError
from ..ir.dtypes import dtype_of, is_real
from ..ir.records import Part, is_record, leaves, numbers, size_of, split_parameter
from ..ir.surface import Declaration
from ..ir.types import Complex, Pointer, Scalar, Struct, Type, Vector
from ..public_calls import show
from ..runtime.array_types import NdArray
from ..runtime.base import Memory
from .aliasing import Alias
from .annotations import Active, BatchDuplicated, Duplicated
from .arrays import as_array
from .conversions import BoundArgument, Place, opened
from .layouts import described, dtype_leaves, element_dtype, fits

Passed = tuple[Place, BoundArgument]

# --- by value ----------------------------------------------------------------------------------------------------------------------------


def passed(place: Place, arg: Any) -> list[Passed]:
    """What an argument is bound to: itself, or the numbers in it, each with the place of its own."""
    type_ = place.declaration.type
    if not is_record(type_):
        return [(place, place.bind(arg))]
    if isinstance(arg, Duplicated | BatchDuplicated):
        raise place.refuse(f"is passed by value: use Active(value, shadow), not {type(arg).__name__}.", ShadowError)
    kind, value, _ = ("active", arg.value, ()) if isinstance(arg, Active) else opened(arg)
    values = _values(place, value, type_)
    shadows = _shadows(place, arg.shadow, type_) if isinstance(arg, Active) else [None] * len(values)
    found = []
    for declaration, number, shadow in zip(split_parameter(place.declaration), values, shadows, strict=True):
        own = replace(place, declaration=declaration)
        found.append((own, own.bind(Active(number, shadow)) if shadow is not None else _plain(own, kind, number)))
    return found


def numbers_of(kernel: str, position: int, declaration: Declaration, arg: Any) -> tuple[Any, ...]:
    """The numbers of a record that is passed by value, each in its own type, and with its own shadow if the record has one. Raises as
    binding does."""
    bound = (argument for _, argument in passed(Place(kernel, position, declaration), arg))
    return tuple(Active(a.value, a.shadow_arrays[0]) if a.kind == "active" else a.value for a in bound)


def _plain(place: Place, kind: str, number: Any) -> BoundArgument:
    assert isinstance(place.declaration.type, Scalar)
    kind = "const" if kind == "active" else kind
    return BoundArgument(place.position, place.declaration, kind, value=place.convert(number, place.declaration.type))


def _values(place: Place, value: Any, type_: Type) -> list[Any]:
    """The numbers of a record that is passed by value."""
    if isinstance(value, complex | np.complexfloating) and len(leaves(type_)) == 2:
        return [value.real, value.imag] if isinstance(value, np.complexfloating) else [float(value.real), float(value.imag)]
    if isinstance(type_, Complex) and isinstance(value, bool | int | float | np.integer | np.floating):
        return [value, 0]
    if isinstance(type_, Vector) and isinstance(value, tuple | list) and len(value) == type_.lanes:
        return list(value)
    array = np.asarray(value) if isinstance(value, np.void | np.ndarray) else None
    if array is not None and array.size == 1 and array.dtype.names and fits(array.dtype, type_):
        raw = array.tobytes()
        return [np.frombuffer(raw, dtype, 1, offset)[0] for offset, dtype in dtype_leaves(array.dtype)]
    raise place.refuse(f"got {show(value)}; {_wanted(type_)}.")


def _wanted(type_: Type) -> str:
    if isinstance(type_, Complex):
        return "pass a complex number"
    if isinstance(type_, Vector):
        return f"pass a tuple of its {type_.lanes} numbers"
    return f"pass a NumPy scalar of {described(type_)}"


def _shadows(place: Place, shadow: NdArray, type_: Type) -> list[Any]:
    """A shadow of no dimensions for each float of a record, views of the one that was given; None for integers."""
    if isinstance(shadow, tuple | list):
        raise place.refuse("has several shadows, which records by value cannot have.", ShadowError)
    array = as_array(shadow)
    views = _views(array, type_) if hasattr(array, "strides") and not isinstance(array, np.generic) else None
    if views is None:
        raise place.refuse(f"has as shadow {show(shadow)}; it needs an array of {_shape(type_)}.", ShadowError)
    return [view if isinstance(leaf.type, Scalar) and leaf.type.is_float else None for view, leaf in zip(views, leaves(type_), strict=True)]


def _shape(type_: Type) -> str:
    if isinstance(type_, Vector):
        return f"shape ({type_.lanes},)"
    if isinstance(type_, Struct):
        return f"shape () and its dtype, or of its bytes, of shape ({size_of(type_)},) and dtype uint8, as CuPy has them"
    return "shape () and its dtype"


def _views(array: NdArray, type_: Type) -> list[Any] | None:
    if isinstance(type_, Vector) and array.shape == (type_.lanes,) and is_real(array.dtype):
        return [array[k, ...] for k in range(type_.lanes)]
    if array.size == 1 and array.dtype.kind == "c" and len(leaves(type_)) == 2:
        return [array.reshape(1).real[0, ...], array.reshape(1).imag[0, ...]]
    if array.size == 1 and isinstance(array, np.ndarray) and array.dtype.names and fits(array.dtype, type_):
        return [np.ndarray((), dtype, array.reshape(1), offset) for offset, dtype in dtype_leaves(array.dtype)]
    if isinstance(type_, Struct) and array.dtype == np.uint8 and array.shape == (size_of(type_),) and array.strides == (1,):
        return [_number_of(array, part) for part in leaves(type_)]
    return None


def _number_of(struct: Any, part: Part) -> Any:
    """A view of a number in the bytes of a struct."""
    dtype = element_dtype(part.type)
    return struct[part.offset : part.offset + dtype.itemsize].view(dtype).reshape(())


# --- pointers ----------------------------------------------------------------------------------------------------------------------------


def spread(
    kernel: str, bound: Sequence[BoundArgument], aliases: Sequence[Alias | None]
) -> tuple[tuple[BoundArgument, ...], tuple[Alias | None, ...]]:
    """The arguments with a pointer for each type of number behind a pointer to structs, numbered anew, and how these lie beside each
    other."""
    counts = [len(split_parameter(a.declaration)) for a in bound]
    first = [sum(counts[:k]) for k in range(len(counts))]
    if all(count == 1 for count in counts):
        return tuple(bound), tuple(aliases)
    arguments = [leaf for a, start in zip(bound, first, strict=True) for leaf in _leaves_of(a, start)]
    return tuple(arguments), _aliases(kernel, bound, aliases, first)


def _aliases(
    kernel: str, bound: Sequence[BoundArgument], aliases: Sequence[Alias | None], first: Sequence[int]
) -> tuple[Alias | None, ...]:
    found: list[Alias | None] = []
    for argument, alias in zip(bound, aliases, strict=True):
        if alias is not None and alias.overlap != argument.position and _kinds(bound[alias.overlap]) != _kinds(argument):
            names = f"`{bound[alias.overlap].name}` and `{argument.name}`"
            raise LaunchError(f"{names} of `{kernel}` overlap, but point to different structs. Nothing was launched.")
        found.extend(alias and _alias(bound, first, alias, argument, k) for k in range(len(split_parameter(argument.declaration))))
    return tuple(found)


def _alias(bound: Sequence[BoundArgument], first: Sequence[int], alias: Alias, argument: BoundArgument, k: int) -> Alias:
    """How one of an argument's pointers lies beside those of the same type of number of others."""
    size = _kinds(argument)[k].size
    alike = _kinds(bound[alias.allocation]) == _kinds(argument)
    return Alias(
        first[alias.allocation] + (k if alike else 0),
        first[alias.overlap] + k,
        _whole(alias.offset, argument, size),
        _whole(alias.allocation_offset, argument, size) if alike else None,
        alias.equal,
    )


def _kinds(argument: BoundArgument) -> tuple[Scalar, ...]:
    type_ = argument.declaration.type
    return numbers(type_.element) if isinstance(type_, Pointer) else ()


def _whole(offset: int | None, argument: BoundArgument, size: int) -> int | None:
    """Bytes as a number of elements, where the argument's memory is counted in bytes."""
    if offset is None or argument.memory is None or len(_kinds(argument)) < 2:
        return offset
    whole, rest = divmod(offset, size)
    return whole if rest == 0 else None


def _leaves_of(argument: BoundArgument, start: int) -> list[BoundArgument]:
    declarations = split_parameter(argument.declaration)
    if len(declarations) == 1:
        return [replace(argument, position=start)]
    return [_leaf(argument, declaration, start + k) for k, declaration in enumerate(declarations)]


def _leaf(argument: BoundArgument, declaration: Declaration, position: int) -> BoundArgument:
    """The pointer to the numbers of one type; only floats have shadows."""
    assert isinstance(argument.declaration.type, Pointer) and isinstance(declaration.type, Pointer)
    number = declaration.type.element
    assert isinstance(number, Scalar)
    memory = argument.memory and _typed(argument.memory, number, argument)
    shadows = tuple(_typed(s, number, argument) for s in argument.shadows)
    struct = argument.declaration.type.element
    pieces = tuple(leaf.offset for leaf in leaves(struct) if leaf.type == number)
    own = replace(argument, position=position, declaration=declaration, memory=memory, shadows=shadows, pieces=pieces, struct=struct)
    if number.is_float:
        return own
    kind = own.kind if own.kind in ("const", "bare", "stopped") else "const"
    return replace(own, kind=kind, shadows=(), shadow_arrays=())


def _typed(memory: Memory, number: Scalar, argument: BoundArgument) -> Memory:
    """Memory that is counted in bytes, counted in numbers of one type."""
    whole, rest = divmod(memory.offset, number.size)
    if rest:
        raise LaunchError(f"`{argument.name}` starts {memory.offset} bytes into its allocation, which is no multiple of {number.size}")
    root = memory.root[: memory.root.size // number.size * number.size]
    return Memory(root.view(dtype_of(number)), whole)
