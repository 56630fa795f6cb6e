"""Records: vectors, complex numbers and structs seen as one thing, a sequence of named parts at known offsets. An array is one too, of its
elements.

The core IR knows numbers only. A record variable is lowered to a variable for each number in it, and a record in memory to accesses of a
buffer of those numbers. Where all numbers of a record have one type, memory is counted in that number; a struct of several types is
several buffers over the same bytes, one a type, and memory is counted in the smallest of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from .surface import Declaration
from .types import HALVES, Array, Complex, Member, Pointer, Scalar, Struct, Type, Vector, value_type

LANES = "xyzw"
POINTER_SIZE = 8


@dataclass(frozen=True)
class Part:
    """A field or element, `offset` bytes from the beginning."""

    name: str
    type: Type
    offset: int


def is_record(kind: Type) -> bool:
    """True if a type is a vector, a complex number or a struct."""
    return isinstance(kind, (Vector, Complex, Struct))


def is_composite(kind: Type) -> bool:
    """True if values of a type consist of parts, be it of none (a struct without fields)."""
    return is_record(kind) or isinstance(kind, Array)


def points_to_pointers(kind: Type) -> bool:
    """True if a type is that of a pointer to pointers."""
    return isinstance(kind, Pointer) and isinstance(kind.element, Pointer)


TEXTURE = "cudaTextureObject_t"


def is_texture(kind: Type) -> bool:
    """True if a type is that of a texture."""
    return isinstance(kind, Struct) and kind.name == TEXTURE


def is_shaped(kind: Type) -> bool:
    """True if a type is that of an array with its shape, CuPy's `CArray`."""
    return isinstance(kind, Struct) and kind.name == "CArray" and [f.name for f in kind.fields[:2]] == ["data_", "size_"]


def is_expanded(kind: Type) -> bool:
    """True if an argument for a parameter of the type is several of the launch: a list of arrays, a texture, an array with its shape."""
    return points_to_pointers(kind) or is_texture(kind) or is_shaped(kind)


def member_of(kind: Type, name: str) -> Member | None:
    """The member of a struct whose members share memory; None of any other."""
    return next((m for m in kind.members if m.name == name), None) if isinstance(kind, Struct) else None


def is_overlaid(kind: Type) -> bool:
    """True if members of a struct share memory, so that a variable of it is memory too."""
    return isinstance(kind, Struct) and bool(kind.members)


@cache
def parts(kind: Type) -> tuple[Part, ...]:
    """The parts of a record or array; none of anything else."""
    match kind:
        case Vector(element=element, lanes=lanes):
            return tuple(Part(LANES[k], element, k * element.size) for k in range(lanes))
        case Complex(element=element):
            return (Part("re", element, 0), Part("im", element, element.size))
        case Struct(fields=fields):
            return tuple(Part(f.name, f.type, f.offset) for f in fields)
        case Array(element=inner, length=length):
            return tuple(Part(str(k), inner, k * size_of(inner)) for k in range(length))
    return ()


def part_number(kind: Type, name: str) -> int:
    """The place of a field among the parts."""
    return next(k for k, part in enumerate(parts(kind)) if part.name == name)


@cache
def size_of(kind: Type) -> int:
    """Bytes of a value in memory."""
    match kind:
        case Scalar(size=size) | Struct(size=size):
            return size
        case Vector(element=element, lanes=lanes):
            return element.size * lanes
        case Complex(element=element):
            return 2 * element.size
        case Array(element=inner, length=length):
            return length * size_of(inner)
        case Pointer():
            return POINTER_SIZE
    raise TypeError(f"a value of type {kind} has no size")


@cache
def leaves(kind: Type) -> tuple[Part, ...]:
    """What is at the bottom of a type, in memory order: numbers (and pointers), with names such as `v_x` and `w_2`; a number is its own
    only leaf, without a name."""
    if not parts(kind):
        return (Part("", kind, 0),)
    return tuple(
        Part(f"{part.name}_{leaf.name}" if leaf.name else part.name, leaf.type, part.offset + leaf.offset)
        for part in parts(kind)
        for leaf in leaves(part.type)
    )


@cache
def numbers(kind: Type) -> tuple[Scalar, ...]:
    """The types of the numbers in a type, each once, in memory order."""
    if isinstance(kind, Array):
        return numbers(kind.element)
    return tuple(dict.fromkeys(leaf.type for leaf in leaves(kind) if isinstance(leaf.type, Scalar)))


@cache
def unit(kind: Type) -> int:
    """The bytes in which memory that holds such values is counted: those of its smallest number; 1 for what holds none."""
    return min((n.size for n in numbers(kind)), default=1)


def holds_pointers(kind: Type) -> bool:
    """True if a pointer is among the leaves."""
    return any(isinstance(leaf.type, Pointer) for leaf in leaves(kind))


def split_parameter(declaration: Declaration) -> tuple[Declaration, ...]:
    """The parameters of the core IR for one of the user's: a number for each in a record by value, a pointer for each type of number
    behind a pointer."""
    kind, name = declaration.type, declaration.name
    if isinstance(kind.element if isinstance(kind, Pointer) else kind, Scalar):
        return (declaration,)  # nearly always: each launch asks
    if isinstance(kind, Pointer):
        made = zip(group_names(name, numbers(kind.element)), numbers(kind.element), strict=True)
        split = tuple(replace(declaration, name=own, type=Pointer(number, kind.const)) for own, number in made)
        return split if len(split) > 1 else (declaration,)
    if is_record(kind):
        return tuple(replace(declaration, name=f"{name}_{leaf.name}", type=leaf.type) for leaf in leaves(kind))
    return (declaration,)


def tangent_parameter(declaration: Declaration) -> Declaration:
    """A parameter as one for its tangents, which are computed and kept in float32 where its numbers are halves."""
    return replace(declaration, type=_widened(declaration.type))


def _widened(kind: Type) -> Type:
    match kind:
        case Scalar():
            return value_type(kind)
        case Pointer(element=element):
            return replace(kind, element=_widened(element))
        case Vector(element=element):
            return replace(kind, element=value_type(element))
        case Struct() if set(numbers(kind)) <= set(HALVES):  # as many float32 as it has halves
            return value_type(numbers(kind)[0])
    return kind


def group_names(name: str, kinds: tuple[Scalar, ...]) -> list[str]:
    """What the buffers for the types of numbers behind a pointer are called: the first by the pointer's own name."""
    return [name, *(f"{name}_{_WORDS.get(str(kind), str(kind))}" for kind in kinds[1:])]


_WORDS = {"int32": "int", "uint32": "uint", "float32": "float", "float64": "double", "float16": "half"}


def alike(a: Type, b: Type) -> bool:
    """True if memory of `a`s may be read as `b`s: both consist of numbers of one and the same type without gaps."""
    return a == b or (len(numbers(a)) == 1 and numbers(a) == numbers(b) and _dense(a) and _dense(b))


def _dense(kind: Type) -> bool:
    return not holds_pointers(kind) and sum(leaf.type.size for leaf in leaves(kind) if isinstance(leaf.type, Scalar)) == size_of(kind)
