"""Types of values and memory, shared by the surface tree and the core IR. All are frozen and compare by value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Type:
    """Base of all types."""


@dataclass(frozen=True)
class Void(Type):
    def __str__(self) -> str:
        return "void"


_SCALARS: dict[tuple[str, int], Scalar] = {}


@dataclass(frozen=True, eq=False)
class Scalar(Type):
    """A number: `kind` is 'bool', 'int', 'uint', 'float' or 'bfloat'; `bits` its width in memory (a bool has 8). There is one object for
    each, so that types, which passes compare more often than anything else, are equal if they are the same."""

    kind: str
    bits: int

    def __new__(cls, kind: str, bits: int) -> Scalar:
        return _SCALARS.get((kind, bits)) or _SCALARS.setdefault((kind, bits), super().__new__(cls))

    def __reduce__(self) -> tuple[type[Scalar], tuple[str, int]]:
        return Scalar, (self.kind, self.bits)

    def __hash__(self) -> int:  # not of its address: sets of types have the same order in every process
        return self.bits

    def __str__(self) -> str:
        return "bool" if self.kind == "bool" else f"{self.kind}{self.bits}"

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind == "int"

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.bits // 8


VOID = Void()
BOOL = Scalar("bool", 8)
I8, I16, I32, I64 = (Scalar("int", b) for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (Scalar("uint", b) for b in (8, 16, 32, 64))
F16, F32, F64 = (Scalar("float", b) for b in (16, 32, 64))
BF16 = Scalar("bfloat", 16)
HALVES = (F16, BF16)


def value_type(stored: Scalar) -> Scalar:
    """The type in which a number in memory is computed with: a half or a bfloat16 is a float32 as soon as it is read, and is rounded when
    it is written."""
    return F32 if stored in HALVES else stored


@dataclass(frozen=True)
class Vector(Type):
    """CUDA's float2 to float4 and their kin."""

    element: Scalar
    lanes: int

    def __str__(self) -> str:
        return f"{self.element}x{self.lanes}"


@dataclass(frozen=True)
class Complex(Type):
    """A complex number of two `element`s."""

    element: Scalar

    def __str__(self) -> str:
        return f"complex{2 * self.element.bits}"


@dataclass(frozen=True)
class Array(Type):
    """An array of known length: a local or shared array, or a struct's member."""

    element: Type
    length: int

    def __str__(self) -> str:
        return f"{self.element}[{self.length}]"


@dataclass(frozen=True)
class Field:
    """A member of a struct, `offset` bytes from its beginning; or, with `base`, the struct that it inherits from, under that one's name."""

    name: str
    type: Type
    offset: int
    base: bool = False


@dataclass(frozen=True)
class Member:
    """A name for numbers at `offset` in a struct whose members share memory. Of a bit-field `width` bits from the bit `shift` on of the
    integer that is there; 0: all."""

    name: str
    type: Type
    offset: int
    shift: int = 0
    width: int = 0


@dataclass(frozen=True)
class Struct(Type):
    """A plain struct of `size` bytes, padding included. `listed`: a list in braces gives its fields in order, since it has neither
    constructors nor values that fields have by default. Where members share memory (unions, bit-fields), `members` are those, and the
    fields the numbers that are there."""

    name: str
    fields: tuple[Field, ...]
    size: int
    listed: bool = True
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        return f"struct {self.name}"


class Space(Enum):
    """Where memory lies."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    CONSTANT = "constant"


@dataclass(frozen=True)
class Pointer(Type):
    """A pointer, in the surface tree only: the core IR has buffers and indices. `const` says the pointee may not be written through it,
    `volatile` that a warp's threads read and write through it in step."""

    element: Type
    const: bool = False
    volatile: bool = False

    def __str__(self) -> str:
        return f"{'const ' if self.const else ''}{self.element}*"


def promoted(type_: Scalar) -> Scalar:
    """The type after C's integer promotions."""
    small = type_ == BOOL or (type_.is_integer and type_.bits < 32)
    return I32 if small else type_


def common_type(left: Scalar, right: Scalar) -> Scalar:
    """The type after C's usual arithmetic conversions."""
    left, right = promoted(left), promoted(right)
    if left.is_float or right.is_float:
        return max((t for t in (left, right) if t.is_float), key=lambda t: t.bits)
    if left.bits != right.bits:
        return left if left.bits > right.bits else right
    return left if left.kind == "uint" else right
