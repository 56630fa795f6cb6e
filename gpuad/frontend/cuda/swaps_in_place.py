"""Loops around atomicCAS that stand in a kernel itself, not in a helper: what the loop does is read as the helper that it could be.

    unsigned* p = (unsigned*)&h[k];  unsigned old = *p, assumed;
    do { assumed = old; old = atomicCAS(p, assumed, __float_as_uint(x[i] * w + __uint_as_float(assumed))); } while (assumed != old);

The address becomes one parameter of that helper, and what is added, or compared with the content, the other one. The statements before the
loop that read the content are left out; a variable that holds it has, after the loop, what the atomic operation gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from ...ir import surface
from ...ir.types import VOID, Pointer, Scalar, Type
from ...source import Span
from .compare_and_swap import atomic_idiom, named, number
from .types import reinterpreted

Fresh = Callable[[Span, str, Type], surface.Declaration]
Tree = TypeVar("Tree")
Loop = surface.DoWhile | surface.While | surface.For


def with_swaps(node: Tree, fresh: Fresh) -> Tree:
    """A function, or a piece of one, with atomic operations in the place of such loops."""
    if isinstance(node, tuple):
        return tuple(with_swaps(part, fresh) for part in node)  # type: ignore[return-value]
    if not isinstance(node, surface.Stmt | surface.Function) or not any(isinstance(n, surface.AtomicCall) for n in surface.walk(node)):
        return node
    if isinstance(node, surface.Block):
        node = replace(node, body=_swapped_in(node.body, fresh))
    inner = {f.name: with_swaps(getattr(node, f.name), fresh) for f in fields(node) if f.name != "span"}
    return replace(node, **inner)


def _swapped_in(body: tuple[surface.Stmt, ...], fresh: Fresh) -> tuple[surface.Stmt, ...]:
    for at, stmt in enumerate(body):
        if isinstance(stmt, Loop) and (made := _swapped(body[:at], stmt, body[at + 1 :], fresh)) is not None:
            return (*made, *_swapped_in(body[at + 1 :], fresh))
    return body


def _swapped(before: Sequence[surface.Stmt], loop: Loop, after: tuple[surface.Stmt, ...], fresh: Fresh) -> tuple[surface.Stmt, ...] | None:
    swaps = [node for node in surface.walk(loop) if isinstance(node, surface.AtomicCall)]
    if len(swaps) != 1 or swaps[0].op != "cas" or (root := _root(before, swaps[0].pointer)) is None:
        return None
    address = fresh(loop.span, "address", root.type)
    places = _places(root, surface.Name(loop.span, root.type, address))
    reading = _Reading(address, [(stmt, _replaced(stmt, places)) for stmt in before])
    whole = _replaced(loop, places)
    given = _value(whole, reading)
    if given is None or surface.has_effects(given):
        return None
    value = given.declaration if isinstance(given, surface.Name) else fresh(loop.span, "value", given.type)
    whole = _replaced(whole, [(given, surface.Name(given.span, given.type, value))])
    body = surface.Block(loop.span, (*reading.steps, whole))
    helper = surface.Function(loop.span, "swap", (address, value), VOID, body, False)
    found = atomic_idiom(helper, (root, given), loop.span)
    return None if found is None else _written(found, before, reading, after)


def _written(
    found: surface.AtomicCall, before: Sequence[surface.Stmt], reading: _Reading, after: tuple[surface.Stmt, ...]
) -> tuple[surface.Stmt, ...] | None:
    """The statements before the loop, without the readings of the content, and the atomic operation."""
    used = {node.declaration for node in surface.walk(after) if isinstance(node, surface.Name)}
    wanted = [content for content in reading.contents if content in used]
    if len(wanted) > 1 or (wanted and not found.valued):
        return None
    kept = tuple(_unread(stmt) if stmt in reading.read else stmt for stmt in before if stmt not in reading.assigned)
    if not wanted:
        return (*kept, surface.Evaluate(found.span, replace(found, valued=False)))
    held = wanted[0].type
    assert isinstance(held, Scalar)
    target = surface.Name(found.span, held, wanted[0])
    return (*kept, surface.Evaluate(found.span, surface.Assign(found.span, held, target, reinterpreted(found, held, found.span))))


def _unread(stmt: surface.Stmt) -> surface.Stmt:
    return replace(stmt, init=None) if isinstance(stmt, surface.Declare) else stmt


class _Reading:
    """What the statements before the loop do for it. `steps`: those that the helper has; `read`, `assigned`: as they stand, declarations
    and assignments of variables that hold the `contents`."""

    def __init__(self, address: surface.Declaration, before: Sequence[tuple[surface.Stmt, surface.Stmt]]) -> None:
        self.addresses, self.contents = {address}, list[surface.Declaration]()
        self.steps, self.read, self.assigned = list[surface.Stmt](), list[surface.Stmt](), list[surface.Stmt]()
        for stmt, seen in before:
            match seen:
                case surface.Declare(declaration=target, init=surface.Expr() as init):
                    self.note(stmt, seen, target, init, self.read)
                case surface.Evaluate(value=surface.Assign(target=surface.Name(declaration=target), value=init, op=None)):
                    self.note(stmt, seen, target, init, self.assigned)

    def note(self, stmt: surface.Stmt, seen: surface.Stmt, target: surface.Declaration, init: surface.Expr, of: list[surface.Stmt]) -> None:
        plain, held = surface.without_casts(init), number(init)
        if isinstance(plain, surface.Name) and plain.declaration in self.addresses:
            self.addresses.add(target)
            self.steps.append(seen)
        elif self.is_content(held):
            self.contents.append(target)
            self.steps.append(seen)
            of.append(stmt)

    def is_content(self, held: surface.Expr) -> bool:
        if isinstance(held, surface.Name):
            return held.declaration in self.contents
        if isinstance(held, surface.Index) and (not isinstance(held.index, surface.Constant) or held.index.value):
            return False
        pointer = surface.without_casts(held.pointer) if isinstance(held, surface.Deref | surface.Index) else None
        return isinstance(pointer, surface.Name) and pointer.declaration in self.addresses


def _root(before: Sequence[surface.Stmt], pointer: surface.Expr) -> surface.Expr | None:
    """The address at last: a pointer to a number with a gradient, through variables that hold it under another type."""
    values = {s.declaration: s.init for s in before if isinstance(s, surface.Declare) and isinstance(s.init, surface.Expr)}
    plain = surface.without_casts(pointer)
    while not _is_real(plain.type) and isinstance(plain, surface.Name) and plain.declaration in values:
        plain = surface.without_casts(values[plain.declaration])
    return plain if _is_real(plain.type) and not surface.has_effects(plain) else None


def _places(root: surface.Expr, address: surface.Name) -> list[tuple[surface.Expr, surface.Expr]]:
    """The ways to write the address and what is there, each with the helper's own."""
    assert isinstance(root.type, Pointer)
    content = surface.Deref(address.span, root.type.element, address)
    match root:
        case surface.AddressOf(lvalue=surface.Index(pointer=pointer, index=index) as lvalue):
            return [(root, address), (lvalue, content), (surface.PointerAdd(root.span, root.type, pointer, index), address)]
        case surface.AddressOf(lvalue=lvalue):
            return [(root, address), (lvalue, content)]
        case surface.PointerAdd(pointer=pointer, offset=offset):
            return [(root, address), (surface.Index(root.span, root.type.element, pointer, offset), content)]
    return [(root, address)]


def _is_real(kind: Type) -> bool:
    return isinstance(kind, Pointer) and isinstance(kind.element, Scalar) and kind.element.is_float


def _value(loop: Loop, reading: _Reading) -> surface.Expr | None:
    """The operand of the new content besides the old one, which does not change in the loop."""
    made = {d.declaration: d.init for d in surface.walk(loop) if isinstance(d, surface.Declare) and isinstance(d.init, surface.Expr)}
    changed = {n.target.declaration for n in surface.walk(loop) if isinstance(n, surface.Assign) and isinstance(n.target, surface.Name)}
    (swap,) = (node for node in surface.walk(loop) if isinstance(node, surface.AtomicCall))
    new = number(swap.operands[1])
    while isinstance(new, surface.Name) and new.declaration in made:
        new = number(made[new.declaration])
    moving = {*made, *changed, *reading.contents}
    sides = list(_sides(new))
    found = [side for side in sides if not any(isinstance(n, surface.Name) and n.declaration in moving for n in surface.walk(side))]
    old = [side for side in sides if named(side) in moving]
    return number(found[0]) if len(found) == 1 and (old or len(sides) == 1) else None


def _sides(new: surface.Expr) -> Iterator[surface.Expr]:
    match new:
        case surface.Binary(left=a, right=b) | surface.MathCall(arguments=(a, b)) | surface.Conditional(then=a, otherwise=b):
            yield from (a, b)
        case _:
            yield new


def _same(one: object, other: object) -> bool:
    """True if two pieces of the tree are the same but for their places in the text."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if not isinstance(one, surface.Expr) or type(one) is not type(other):
        return one == other
    return all(f.name == "span" or _same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def _replaced(node: Tree, places: Sequence[tuple[surface.Expr, surface.Expr]]) -> Tree:
    """The tree with other expressions in the place of some."""
    if isinstance(node, tuple):
        return tuple(_replaced(part, places) for part in node)  # type: ignore[return-value]
    if not isinstance(node, surface.Expr | surface.Stmt):
        return node
    if isinstance(node, surface.Expr) and (found := next((new for old, new in places if _same(node, old)), None)) is not None:
        return found  # type: ignore[return-value]
    changed = {f.name: _replaced(getattr(node, f.name), places) for f in fields(node) if f.name != "span"}
    return replace(node, **changed)
