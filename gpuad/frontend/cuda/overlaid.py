"""Structs of which members share memory: unions, anonymous structs and unions, bit-fields.

What is in memory are numbers, each once: `content` lists them. A member is a name for some of them. Where two members have a number of the
same size at the same place, they mean the same one, whatever its type: the memory holds a float if one of them says so, and a member of
another type reads and writes its bits. Members whose numbers differ in size or overlap otherwise are refused: no derivative follows part of
a number. Bit-fields lie in whole numbers, the smallest that hold those of one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from clang.cindex import Cursor, CursorKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir.records import Part, leaves, size_of
from ...ir.types import Field, Member, Pointer, Scalar, Type
from ...source import Span


@dataclass(frozen=True)
class Named:
    """A member as clang has it, with its place in the outermost struct, in bits."""

    cursor: Cursor
    place: int


def is_anonymous(field: Cursor) -> bool:
    """True if a member has no name of its own, so that the members in it are the struct's."""
    return not field.is_bitfield() and not field.spelling.isidentifier()


def is_overlaid(type_: ClangType) -> bool:
    """True if members of a struct may share memory."""
    union = type_.get_declaration().kind == CursorKind.UNION_DECL
    return union or any(field.is_bitfield() or _is_record(field) for field in type_.get_fields())


def _is_record(field: Cursor) -> bool:
    """True if a member is an anonymous struct or union."""
    kinds = (CursorKind.UNION_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_DECL)
    return is_anonymous(field) and field.type.get_canonical().get_declaration().kind in kinds


def named_members(type_: ClangType, place: int = 0) -> Iterator[Named]:
    """The members that have names, those of anonymous members among them, in order."""
    for field in type_.get_fields():
        at = place + field.get_field_offsetof()
        if _is_record(field):
            yield from named_members(field.type.get_canonical(), at)
        elif field.spelling.isidentifier():
            yield Named(field, at)
        elif not field.is_bitfield():
            yield Named(field, at)  # a reference, which is refused


def overlaid(name: str, type_: ClangType, lower: Callable[[Cursor], Type], span: Span) -> tuple[tuple[Field, ...], tuple[Member, ...]]:
    """The content of such a struct, and its members; `lower` gives a member's type. Raises UnsupportedError at `span`."""
    found = list(named_members(type_))
    plain = [Member(n.cursor.spelling, lower(n.cursor), n.place // 8) for n in found if not n.cursor.is_bitfield()]
    content = _content(name, plain, span)
    units = _units(name, [n for n in found if n.cursor.is_bitfield()], content, lower, span)
    narrow = [_narrow(n, lower(n.cursor), units) for n in found if n.cursor.is_bitfield()]
    members = {member.name: member for member in (*plain, *narrow)}
    fields = sorted((*content.values(), *units), key=lambda part: part.offset)
    unique = _renamed(fields)
    return unique, tuple(members[n.cursor.spelling] for n in found)


def _renamed(parts: list[Part]) -> tuple[Field, ...]:
    """The parts as fields, under names of which each is there once."""
    taken: set[str] = set()
    fields = []
    for part in parts:
        name = part.name if part.name not in taken else f"{part.name}_{part.offset}"
        taken.add(name)
        fields.append(Field(name, part.type, part.offset))
    return tuple(fields)


def _content(name: str, members: list[Member], span: Span) -> dict[int, Part]:
    """The numbers in memory by their places, with the names that the first member gives them."""
    content: dict[int, Part] = {}
    for member in members:
        for leaf in leaves(member.type):
            if isinstance(leaf.type, Pointer):
                raise UnsupportedError(f"pointers in unions and beside bit-fields ({name}) are not supported; make it a struct", span)
            called = f"{member.name}_{leaf.name}" if leaf.name else member.name
            own = Part(called, leaf.type, member.offset + leaf.offset)
            known = content.get(own.offset)
            if known is None:
                content[own.offset] = own
            elif size_of(known.type) != size_of(own.type) or not _shares_bits(known.type, own.type):
                raise UnsupportedError(_differing(name, known, own), span)
            elif _is_float(own.type) and not _is_float(known.type):
                content[own.offset] = replace(known, type=own.type)
    ordered = sorted(content.values(), key=lambda part: part.offset)
    for one, next_ in pairwise(ordered):
        if one.offset + size_of(one.type) > next_.offset:
            raise UnsupportedError(_differing(name, one, next_), span)
    return content


def _differing(name: str, one: Part, other: Part) -> str:
    return (
        f"members of {name} that share memory differ in their numbers ({one.name}: {one.type}, {other.name}: {other.type}): a derivative "
        "cannot follow reinterpreted memory; make it a struct"
    )


def _shares_bits(one: Type, other: Type) -> bool:
    """True if numbers of one size may stand for each other's bits."""
    if one == other:
        return True
    assert isinstance(one, Scalar) and isinstance(other, Scalar)
    return (one.is_integer and other.is_integer) or (one.bits in (32, 64) and "bool" not in (one.kind, other.kind))


def _is_float(type_: Type) -> bool:
    return isinstance(type_, Scalar) and type_.is_float


# --- bit-fields --------------------------------------------------------------------------------------------------------------------------


def _units(name: str, fields: list[Named], content: dict[int, Part], lower: Callable[[Cursor], Type], span: Span) -> list[Part]:
    """The whole numbers in which bit-fields lie, each named after the first of them: of the sizes of their types, or smaller ones where
    another member begins within."""
    numbers: list[Part] = []
    for field in sorted(fields, key=lambda n: n.place):
        own = _unit(field, 8 * size_of(lower(field.cursor)))
        if any(_overlap(own, part) for part in content.values()):
            own = _unit(field, 8)
        meeting = [part for part in numbers if _overlap(own, part)]
        numbers = [part for part in numbers if part not in meeting]
        numbers.append(max((*meeting, own), key=lambda part: size_of(part.type)))
        if any(_overlap(numbers[-1], part) for part in content.values()):
            raise UnsupportedError(
                f"bit-fields beside other members of the same bytes ({name}) are not supported; make them integers", span
            )
    return numbers


def _unit(field: Named, size: int) -> Part:
    """The number of so many bits, or the smallest larger one, in which a bit-field lies whole."""
    first = field.place // size * size
    if field.place + field.cursor.get_bitfield_width() > first + size:
        return _unit(field, 2 * size)
    return Part(field.cursor.spelling, Scalar("uint", size), first // 8)


def _overlap(one: Part, other: Part) -> bool:
    return one.offset < other.offset + size_of(other.type) and other.offset < one.offset + size_of(one.type)


def _narrow(field: Named, type_: Type, units: list[Part]) -> Member:
    unit = next(u for u in units if 8 * u.offset <= field.place < 8 * (u.offset + size_of(u.type)))
    return Member(field.cursor.spelling, type_, unit.offset, field.place - 8 * unit.offset, field.cursor.get_bitfield_width())
