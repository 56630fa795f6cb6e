"""Which pointer parameters overlap at a launch, and which are null: the pattern for which a kernel is lowered.

Overlapping parameters become one buffer, so that every later pass sees one array with element offsets known relative to each other (rule 3
of the contract). Parameters not mentioned are assumed to be disjoint; the caller of a launch has to check that.

A comparison of a pointer with null (`bias ? bias[c] : 0`) becomes a constant: a kernel is lowered for launches without arrays for some of
its parameters (`Function.absent`). That holds for a parameter, and for what begins as one: a helper's parameter, a local pointer. One that
may be assigned later is not among these.

A null pointer is legal as long as it is not dereferenced, which may depend on data. `without_arrays` gives the variant in which every
access to an absent array is an assertion that fails, and what would be read is 0 for the passes after it. Assumes valid IR; guarantees that
none of the buffers is accessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from . import folding as b
from .nodes import Accumulate, Atomic, Buffer, Kernel, Let, Load, Stmt, Store, Tell
from .rewrite import edit
from .surface import (
    AddressOf,
    Assign,
    Binary,
    Cast,
    Comma,
    Conditional,
    Constant,
    Decay,
    Declaration,
    Declare,
    Deref,
    Expr,
    Function,
    HelperCall,
    Index,
    Name,
    Node,
    PointerAdd,
    walk,
)
from .types import Pointer


@dataclass(frozen=True)
class Overlap:
    """Parameter number `position` (from 0) reaches the memory of parameter `base`: at the same address if `equal`, else at an element
    offset that the launch passes as an extra int64 parameter."""

    position: int
    base: int
    equal: bool


@dataclass(frozen=True)
class Aliases:
    """The overlaps of one launch, at most one for each parameter; a base is itself no alias. `absent`: parameters for which it has no
    array, though the kernel may come to an access of it. Hashable."""

    overlaps: tuple[Overlap, ...] = ()
    absent: frozenset[int] = frozenset()

    @classmethod
    def of(cls, overlaps: Mapping[int, tuple[int, bool]], absent: frozenset[int] = frozenset()) -> Aliases:
        """From a mapping of parameter position to (position of the base parameter, equal)."""
        return cls(tuple(Overlap(position, base, equal) for position, (base, equal) in sorted(overlaps.items())), absent)

    def get(self, position: int) -> Overlap | None:
        """The overlap of a parameter, or None if it stands for itself."""
        return next((o for o in self.overlaps if o.position == position), None)


NONE = Aliases()


Origin: TypeAlias = "Declaration | bool"  # the kernel's parameter that a pointer began as; else whether it points to anything


@dataclass(frozen=True)
class Nulls:
    """What a kernel asks of pointers: `asked`, the parameters of which it must be known whether they are arrays, and `redirected`, the
    variables of which nothing is known."""

    asked: frozenset[Declaration] = frozenset()
    redirected: frozenset[Declaration] = frozenset()

    def origin(self, e: Expr, began: Callable[[Declaration], Origin | None]) -> Origin | None:
        """What a pointer began as; None if that is not known. `began`: the same of a variable that is not redirected."""
        match plain(e):
            case Constant(type=Pointer()):
                return False
            case Name(declaration=declaration):
                return began(declaration) if declaration not in self.redirected else None
            case PointerAdd(pointer=pointer) | AddressOf(lvalue=Index(pointer=pointer)):
                return self.origin(pointer, began) or None
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                return self.chosen(condition, (then, otherwise), began)
            case Decay() | AddressOf(lvalue=Name()) | Index(type=Pointer()) | Deref(type=Pointer()):  # a list has no gaps
                return True
        return None

    def chosen(self, condition: Expr, sides: tuple[Expr, Expr], began: Callable[[Declaration], Origin | None]) -> Origin | None:
        """What one of two pointers began as: the same whatever is chosen, or null where what the other one began as is."""
        one, other = (self.origin(side, began) for side in sides)
        asked = compared(condition)
        there, absent = (one, other) if isinstance(condition, Binary) and condition.op == "!=" else (other, one)
        own = asked is not None and absent is False and there == self.origin(asked, began)
        return there if own or one == other else None


def nulls(kernel: Function) -> Nulls:
    """What is compared with null in a kernel and in its helpers."""
    nodes = list(walk(kernel.body))
    pointers = [side for node in nodes if (side := compared(node)) is not None]
    if not pointers:
        return Nulls()
    found = Nulls(redirected=frozenset(d for node in nodes for d in _redirected(node)))
    begun = [pair for node in nodes for pair in _begun(node)]
    asked: set[Declaration] = set()
    while pointers:
        origins = (found.origin(e, lambda d: d) for e in pointers)
        new = {o for o in origins if isinstance(o, Declaration)} - asked
        pointers = [e for declaration, e in begun if declaration in new]
        asked |= new
    return replace(found, asked=frozenset(asked) & frozenset(kernel.parameters))


def compared(node: Node) -> Expr | None:
    """The pointer that a comparison with null asks for."""
    if not isinstance(node, Binary) or node.op not in ("==", "!="):
        return None
    left, right = plain(node.left), plain(node.right)
    if _is_null(left):
        left, right = right, left
    return left if _is_null(right) else None


def plain(e: Expr) -> Expr:
    """A pointer without its conversions."""
    while isinstance(e, Cast) and isinstance(e.type, Pointer):
        e = e.operand
    return e


def _is_null(e: Expr) -> bool:
    return isinstance(e, Constant) and isinstance(e.type, Pointer)


def _begun(node: Node) -> Iterator[tuple[Declaration, Expr]]:
    """The pointers that a node makes, and what they are at first."""
    if isinstance(node, Declare) and isinstance(node.init, Expr):
        yield node.declaration, node.init
    if isinstance(node, HelperCall):
        yield from zip(node.function.parameters, node.arguments, strict=True)


def _redirected(node: Node) -> Iterator[Declaration]:
    """The variables that a node gives another value than one along their array, or lets others do it."""
    if isinstance(node, Assign) and not _moved(node):
        yield from _named(node.target)
    if isinstance(node, AddressOf):
        yield from _named(node.lvalue)
    if isinstance(node, Declare) and node.declaration.reference and isinstance(node.init, Expr):
        yield from _named(node.init)
    if isinstance(node, HelperCall):
        for parameter, argument in zip(node.function.parameters, node.arguments, strict=True):
            if parameter.reference:
                yield from _named(argument)


def _moved(node: Assign) -> bool:
    """`p += n`, `p = p + n`."""
    value = plain(node.value)
    base = plain(value.pointer) if isinstance(value, PointerAdd) else None
    return node.op in ("+", "-") or (isinstance(base, Name) and {base.declaration} == set(_named(node.target)))


def _named(e: Expr) -> Iterator[Declaration]:
    """The variables that an lvalue may be."""
    match plain(e):
        case Name(declaration=declaration):
            yield declaration
        case Conditional(then=then, otherwise=otherwise):
            yield from _named(then)
            yield from _named(otherwise)
        case Comma(second=second):
            yield from _named(second)


def without_arrays(kernel: Kernel, absent: Collection[Buffer]) -> Kernel:
    """The kernel without accesses to the buffers."""

    def change(stmt: Stmt) -> Iterable[Stmt] | None:
        if isinstance(stmt, Load | Store | Accumulate | Atomic) and stmt.buffer in absent:
            return _stopped(stmt)
        return None

    return replace(kernel, body=edit(kernel.body, change)) if absent else kernel


def _stopped(stmt: Load | Store | Accumulate | Atomic) -> list[Stmt]:
    does = "read" if isinstance(stmt, Load) else "written"
    said = Tell(f"{stmt.span and stmt.span.in_text}: `{stmt.buffer.name}` is None, but is {does} here", (), True, span=stmt.span)
    result = getattr(stmt, "var", None)
    return [said] if result is None else [said, Let(result, b.const(0, result.type), span=stmt.span)]
