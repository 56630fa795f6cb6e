"""Records while they are lowered: where their parts are, and which buffer and index a number in one has.

A record variable is a variable for each of its parts, named after both (`p_x`); an array in it is a local array. In memory a part lies a
known distance from the record's beginning. A struct of several types of numbers is several buffers over the same bytes, and an index counts
in the smallest of the numbers until the buffer of the number's own type is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.nodes import Alloc, Binary, Buffer, Constant, Expr, Store
from ..ir.records import alike, is_composite, is_overlaid, is_record, numbers, parts, size_of
from ..ir.types import I32, Array, Member, Pointer, Scalar, Space, Type
from ..source import Span
from .lowering import UNDEFINED, WHOLE, Address, Cell, Lowering, Place, Record, Reference, Target, Value, advance

# --- where things are --------------------------------------------------------------------------------------------------------------


def part(s: Lowering, at: Place, kind: Type, number: int, span: Span) -> Place:
    """Where a part of the record (or array) of type `kind` at a place is."""
    at = _laid_out(s, at)
    if isinstance(at, Cell):
        check_cell(at, kind, span)
        return _held(s, at, number)
    if not any(isinstance(target, Cell) for target in at.targets):
        return advance(at, Constant(parts(kind)[number].offset // unit(s, at, span), I32))
    return replace(at, targets=tuple(_part_target(s, target, kind, number, span) for target in at.targets))


def member(s: Lowering, at: Place, of: Member, span: Span) -> Place:
    """Where a member is that shares its memory with others, in a struct at a place."""
    at = _laid_out(s, at)
    if isinstance(at, Cell) or any(isinstance(target, Cell) for target in at.targets):
        raise UnsupportedError(f"the member '{of.name}' through a pointer to a variable comes in a later release", span)
    return advance(at, Constant(of.offset // unit(s, at, span), I32))


def _laid_out(s: Lowering, at: Place) -> Place:
    """The memory of a variable whose parts are no variables of their own; any other place as it is."""
    if isinstance(at, Cell):
        held = s.env.get(at)
        return held.place if isinstance(held, Reference) else at
    cell = at.targets[0] if len(at.targets) == 1 else None
    held = s.env.get(cell) if isinstance(cell, Cell) and at.offset is None else None
    return held.place if isinstance(held, Reference) else at


def check_cell(cell: Cell, kind: Type, span: Span) -> None:
    """Refuses a variable that is reached as a record by a pointer, but is none of that kind, or the other way round."""
    if cell.type != kind and (is_composite(cell.type) or is_composite(kind)):
        raise UnsupportedError(f"'{cell.name}', a {cell.type}, is used as a {kind} through a pointer", span)


def _held(s: Lowering, cell: Cell, number: int) -> Place:
    inner = s.part(cell, number)
    value = s.env.get(inner)
    return value.place if isinstance(value, Reference) else inner


def _part_target(s: Lowering, target: Target, kind: Type, number: int, span: Span) -> Target:
    found = part(s, target, kind, number, span) if isinstance(target, Cell) else None
    if isinstance(found, Address) and found.offset is None and len(found.targets) == 1:
        return found.targets[0]
    if not isinstance(found, Cell):
        raise UnsupportedError("a pointer that may point to a variable or into memory comes in a later release", span)
    return found


def unit(s: Lowering, at: Address, span: Span) -> int:
    """The bytes in which an address counts: those of the smallest number in the memory."""
    sizes = {_unit(s, t) for t in at.targets}
    if len(sizes) > 1:
        raise UnsupportedError("a pointer into different kinds of structs comes in a later release", span)
    return sizes.pop() if sizes else 1


def _unit(s: Lowering, target: Target) -> int:
    if isinstance(target, Cell):
        return size_of(target.type)
    return min((n.size for n in s.groups.get(target, ())), default=target.element.size)


def stride(s: Lowering, at: Address, element: Type, span: Span) -> int:
    """Units from one element to the next, seen through an address."""
    if any(isinstance(target, Cell) for target in at.targets):
        return 1
    return size_of(element) // unit(s, at, span)


def number_at(s: Lowering, buffer: Buffer, index: Expr, kind: Type, span: Span) -> tuple[Buffer, Expr]:
    """The buffer that holds a number of type `kind`, and its index there."""
    group = s.groups.get(buffer)
    found = group.get(kind) if group and isinstance(kind, Scalar) else buffer
    if found is None:
        raise UnsupportedError(f"memory of structs is used as {kind}, which a derivative cannot follow", span)
    return found, _quotient(index, found.element.size // _unit(s, buffer))


def _quotient(index: Expr, by: int) -> Expr:
    """An index that is a multiple of `by`, divided by it: term by term where that can be seen, so that its form stays affine."""
    if by == 1:
        return index
    if isinstance(index, Constant):
        return Constant(int(index.value) // by, index.type)
    if isinstance(index, Binary) and index.op == "+" and (pair := _quotients(index.left, index.right, by)):
        return folding.binary("+", *pair, index.type)
    if isinstance(index, Binary) and index.op == "*" and isinstance(index.right, Constant) and int(index.right.value) % by == 0:
        return folding.binary("*", index.left, Constant(int(index.right.value) // by, index.type), index.type)
    return folding.binary("/", index, Constant(by, index.type), index.type)


def _quotients(a: Expr, b: Expr, by: int) -> tuple[Expr, Expr] | None:
    """Both terms of a sum divided, or None unless one is known to be a multiple of `by`: then both are."""
    known = any(
        int(e.value) % by == 0 if isinstance(e, Constant) else isinstance(e, Binary) and e.op == "*" and _is_multiple(e.right, by)
        for e in (a, b)
    )
    return (_quotient(a, by), _quotient(b, by)) if known else None


def _is_multiple(e: Expr, of: int) -> bool:
    return isinstance(e, Constant) and int(e.value) % of == 0


def scattered(s: Lowering, at: Place, kind: Type, value: Value, span: Span) -> Iterator[tuple[Place, Type, Value]]:
    """Each number of a record with its place and type."""
    if not isinstance(value, Record):
        yield at, kind, value
        return
    for k, (piece, inner) in enumerate(zip(parts(kind), value.values, strict=True)):
        yield from scattered(s, part(s, at, kind, k, span), piece.type, inner, span)


def split_variables(function: surface.Function) -> dict[surface.Declaration, Scalar]:
    """The local records and arrays of a kernel and its helpers whose numbers are reached by pointers of another type, or beside one
    another, with the type in which their memory holds them: that of floats where they are seen as such."""
    found: dict[surface.Declaration, Scalar] = {}
    bound: list[tuple[surface.Declaration, surface.Expr]] = []
    for node in surface.walk(function):
        match node:
            case surface.Cast(type=Pointer(element=element), operand=surface.Expr(type=Pointer(element=own)) as pointer) if own != element:
                _note(found, _root(pointer), element)
            case (
                surface.Index(pointer=surface.AddressOf(lvalue=surface.Member() as member))
                | surface.PointerAdd(pointer=surface.AddressOf(lvalue=surface.Member() as member))
            ):
                _note(found, _root(member), member.type)
            case surface.Declare(declaration=declaration, init=surface.Expr() as init):
                bound.append((declaration, init))
            case surface.Assign(target=surface.Name(declaration=declaration), value=value, op=None):
                bound.append((declaration, value))
            case surface.HelperCall():
                bound += zip(node.function.parameters, node.arguments, strict=False)
    waiting = [d for d in found if d.reference or isinstance(d.type, Pointer)]
    while waiting:
        seen = waiting.pop()
        waiting += [root for d, value in bound if d == seen and (root := _root(value)) and _note(found, root, found[seen])]
    return {d: kind for d, kind in found.items() if is_record(d.type) or (isinstance(d.type, Array) and (kind,) != numbers(d.type))}


def _note(found: dict[surface.Declaration, Scalar], root: surface.Declaration | None, seen: Type) -> bool:
    """Notes that memory is seen as numbers of a type; true if that is new."""
    if root is None or root.space != "local":
        return False
    whole = root.type.element if isinstance(root.type, Pointer) else root.type
    own, kinds = numbers(whole), numbers(seen)
    if len(own) != 1 or len(kinds) != 1 or not alike(whole, Array(own[0], 1)) or own[0].size != kinds[0].size:
        return False
    before = found.get(root)
    found[root] = kinds[0] if kinds[0].is_float and (before is None or not before.is_float) else before or own[0]
    return found[root] != before


def _root(e: surface.Expr) -> surface.Declaration | None:
    """The variable into whose memory an lvalue or a pointer leads."""
    match e:
        case surface.Name(declaration=declaration):
            return declaration
        case surface.AddressOf(lvalue=inner) | surface.Decay(array=inner) | surface.Member(record=inner) | surface.Cast(operand=inner):
            return _root(inner)
        case surface.PointerAdd(pointer=inner) | surface.Index(pointer=inner) | surface.Deref(pointer=inner):
            return _root(inner)
    return None


# --- making ------------------------------------------------------------------------------------------------------------------------


def define(s: Lowering, cell: Cell, value: Value, span: Span) -> None:
    """Makes a variable: a number or pointer takes the value, a record gives each part its own, an array in it becomes a local array."""
    if isinstance(cell.type, Array) or is_overlaid(cell.type) or cell in s.taken_apart:
        element, length = (cell.type.element, cell.type.length) if isinstance(cell.type, Array) else (cell.type, 1)
        if (number := s.taken_apart.get(cell)) is not None:
            element, length = number, size_of(cell.type) // number.size
        array = local(s, cell.name, element, length, span)
        s.owners[array] = cell
        s.env[cell] = Reference(Address((array,)))
    elif is_composite(cell.type):
        s.env[cell] = WHOLE
        for k in range(len(parts(cell.type))):
            define(s, s.part(cell, k), value.values[k] if isinstance(value, Record) else UNDEFINED, span)
    else:
        s.env[cell] = s.let(cell.name, value, span) if isinstance(value, Expr) else value


def gathered(kind: Type, leaves: Iterator[Expr]) -> Value:
    """A value of a type made of its numbers in order."""
    return Record(tuple(gathered(part.type, leaves) for part in parts(kind))) if is_composite(kind) else next(leaves)


def keep(s: Lowering, cell: Cell, value: Value, span: Span) -> None:
    """Gives a record variable of ours, already made, a value without naming its numbers, but those that must not be evaluated elsewhere."""
    if isinstance(s.env.get(cell), Reference):
        _fill(s, cell, cell.type, value, span)
        return
    if not isinstance(value, Record):
        s.env[cell] = s.let(cell.name, value, span) if isinstance(value, Expr) and folding.can_trap(value) else value
        return
    for k, inner in enumerate(value.values):
        keep(s, s.part(cell, k), inner, span)


def _fill(s: Lowering, at: Place, kind: Type, value: Value, span: Span) -> None:
    for place, own, number in list(scattered(s, at, kind, value, span)):
        _store(s, place, own, number, span)


def _store(s: Lowering, at: Place, kind: Type, value: Value, span: Span) -> None:
    if isinstance(at, Address) and isinstance(at.targets[0], Buffer) and isinstance(value, Expr):
        buffer, index = number_at(s, at.targets[0], at.index, kind, span)
        s.emit(Store(buffer, index, value, span=span))


def local(s: Lowering, name: str, element: Type, length: int, span: Span) -> Buffer:
    """A new local array of `length` elements."""
    array = memory_of(s, name, element, Space.LOCAL, length, span)
    for buffer in s.grouped(array):
        s.emit(Alloc(buffer, span=span))
    return array


def memory_of(s: Lowering, name: str, element: Type, space: Space, length: int | None, span: Span) -> Buffer:
    """The buffer that stands for memory of such elements. Where it is one of several, the others are known by it."""
    kinds = numbers(element)
    if not kinds:
        raise UnsupportedError(f"'{name}': {element} holds no numbers", span)
    return s.memory(name, kinds, space, None if length is None else length * size_of(element))
