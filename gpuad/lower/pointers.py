"""What a variable of the surface tree stands for while it is lowered: a scalar expression, an array, a bound reference, or a pointer.

A pointer is a set of candidate targets, a tag that says which one it is (where there are several), and an offset in scalar elements. Where
control flow meets, values are split into slots (a scalar has one, a pointer up to two) which are merged like any variable: two pointers
join into one whose candidates are the union of theirs. So `p = c ? a : b` and pointers swapped in a loop need nothing but an int32 in the
core IR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir import folding
from ..ir.nodes import Binary, Buffer, Constant, Expr
from ..ir.types import BOOL, I32, I64, Scalar, Space, Type, value_type

FIRST = Constant(0, I32)


@dataclass(frozen=True)
class Cell:
    """A variable of the user's, or one of ours (flags, temporaries), as a key of the environment. `uid` tells instances apart."""

    name: str
    type: Type
    uid: int


Target: TypeAlias = "Buffer | Cell"


@dataclass(frozen=True)
class Address:
    """A pointer's value: `targets[tag]`, at `offset` units of its memory, as a rule numbers (None: 0). No targets: null. `tag` is int32; of
    any value if there is one target."""

    targets: tuple[Target, ...]
    tag: Expr = FIRST
    offset: Expr | None = None

    @property
    def index(self) -> Expr:
        """The offset as an expression."""
        return self.offset if self.offset is not None else Constant(0, I32)

    @property
    def wide(self) -> Expr:
        """The offset as an int64."""
        return folding.cast(self.index, I64)

    @property
    def is_local(self) -> bool:
        """Whether it can only point into arrays of the kernel, in which an int32 reaches every element."""
        return all(isinstance(t, Buffer) and t.space in (Space.LOCAL, Space.SHARED) for t in self.targets)


Place: TypeAlias = "Cell | Address"  # what an lvalue denotes


@dataclass(frozen=True)
class Reference:
    """What a variable of reference type, or an array's name, stands for."""

    place: Place


class Undefined:
    """The value of a variable that was declared without one."""


class Whole:
    """What a record's own variable holds: nothing, since its parts are variables (or arrays) of their own."""


@dataclass(frozen=True)
class Record:
    """The value of a record or of an array inside of one: those of its parts."""

    values: tuple[Value, ...]


UNDEFINED, WHOLE = Undefined(), Whole()
Value: TypeAlias = "Expr | Address | Reference | Undefined | Whole | Record"


def advance(address: Address, steps: Expr, stride: int = 1) -> Address:
    """The address moved by `steps` times `stride` units of its memory. Sums and products are formed in int64, in thread-local arrays in
    int32; a truth value is 0 or 1."""
    steps = folding.cast(steps, I32) if steps.type == BOOL else steps
    if isinstance(steps, Constant) and steps.value == 0:
        return address
    kind = I32 if address.is_local and steps.type == address.index.type == I32 else I64
    if stride != 1:
        steps = folding.binary("*", folding.cast(steps, kind), folding.integer(stride, kind), kind)
    if address.offset is not None:
        steps = folding.binary("+", folding.cast(address.offset, kind), folding.cast(steps, kind), kind)
    return replace(address, offset=None if isinstance(steps, Constant) and steps.value == 0 else steps)


# --- joining -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What is known of a value whatever path was taken: a scalar's type, or a pointer's possible targets and its offset if that is the same
    on all paths (`moving` otherwise)."""

    scalar: Scalar | None = None
    targets: tuple[Target, ...] = ()
    moving: bool = False
    offset: Expr | None = None

    @property
    def slots(self) -> tuple[tuple[str, Scalar], ...]:
        """Suffix and type of each scalar that a value of this shape consists of."""
        if self.scalar is not None:
            return (("", self.scalar),)
        tag = (("_tag", I32),) if len(self.targets) > 1 else ()
        return (*tag, *((("_offset", I64),) if self.moving else ()))


def shape(value: Value, kind: Type) -> Shape | None:
    """The shape of one value of a variable of type `kind`; None for what never changes (arrays, references)."""
    if isinstance(value, Address):
        return Shape(targets=value.targets, offset=value.offset)
    if isinstance(value, Undefined):
        return Shape(scalar=value_type(kind) if isinstance(kind, Scalar) else None)
    return Shape(scalar=value.type) if isinstance(value, Expr) else None


def join(a: Shape, b: Shape) -> Shape:
    """The least shape that holds values of both."""
    if a.scalar is not None:
        return a
    if not a.targets or not b.targets:
        return a if a.targets else b
    targets = tuple(sorted({*a.targets, *b.targets}, key=lambda t: t.uid))
    moving = a.moving or b.moving or a.offset != b.offset
    return Shape(None, targets, moving, None if moving else a.offset)


def split(value: Value, into: Shape) -> tuple[Expr, ...]:
    """The slots of a value that fits the shape; zeros for an undefined one."""
    if isinstance(value, Address) and value.targets:
        tag = (retag(value, into.targets),) if len(into.targets) > 1 else ()
        return (*tag, *((value.wide,) if into.moving else ()))
    return (value,) if isinstance(value, Expr) else tuple(folding.zero(kind) for _, kind in into.slots)


def retag(value: Address, targets: tuple[Target, ...]) -> Expr:
    """The tag of a pointer among more targets than its own."""
    if value.targets == targets:
        return value.tag
    numbers = [Constant(targets.index(t), I32) for t in value.targets]
    tag: Expr = numbers[-1]
    for k, number in list(enumerate(numbers[:-1]))[::-1]:
        tag = folding.select(Binary("==", value.tag, Constant(k, I32), BOOL), number, tag)
    return tag


def assemble(slots: tuple[Expr, ...], of: Shape) -> Value:
    """The inverse of `split`."""
    if of.scalar is not None:
        return slots[0]
    if not of.targets:
        return Address(())
    tag = slots[0] if len(of.targets) > 1 else Constant(0, I32)
    offset = slots[-1] if of.moving else of.offset
    return Address(of.targets, tag, None if isinstance(offset, Constant) and offset.value == 0 else offset)


def combine(a: Value, b: Value, kind: Type, pick: Callable[[str, Expr, Expr], Expr]) -> Value:
    """The value that is `a` on one path and `b` on the other; `pick(suffix, x, y)` merges two differing scalars."""
    if a == b:
        return a
    first, second = shape(a, kind), shape(b, kind)
    if first is None or second is None:
        return UNDEFINED  # an array or a reference of an inner scope, which ends here
    joined = join(first, second)
    pairs = zip(joined.slots, split(a, joined), split(b, joined), strict=True)
    return assemble(tuple(x if x == y else pick(suffix, x, y) for (suffix, _), x, y in pairs), joined)
