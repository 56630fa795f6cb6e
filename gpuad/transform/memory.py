"""Reads and writes of places: a variable is looked up or bound in the environment, memory gives Loads, Stores and Accumulates.

Through a pointer with several candidates an access becomes a chain of Ifs over its tag. `y[i] += v` and `y[i] = y[i] + v` of floats become
one Accumulate, provided that nothing else uses the old content and nothing was written in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir import surface
from ..ir.nodes import Accumulate, Atomic, Binary, Buffer, Constant, Expr, How, Let, Load, Stmt, Store, Var, walk
from ..ir.rewrite import expressions
from ..ir.types import BOOL, I32, Scalar, Space, Type
from ..source import Span
from . import fold
from .lowering import Lowering
from .pointers import UNDEFINED, Address, Cell, Place, Target, Undefined, Value


def read(s: Lowering, at: Place, span: Span, name: str | None) -> Value:
    """The content of a place; a Load if it is memory."""
    if isinstance(at, Cell):
        return _variable(s, at, span)
    single = _single(at)
    if isinstance(single, Buffer):
        return _load(s, single, at.index, span, name)
    result = s.cell(name or "value", _element(at.targets[0]))
    s.env[result] = UNDEFINED

    def one(target: Target) -> None:
        s.env[result] = viewed(read(s, _narrow(at, target), span, name), result.type, span)

    through(s, at, one, span)
    return s.env.pop(result)


def viewed(value: Value, kind: Type, span: Span) -> Value:
    """A number as what its bits are in another type of its size: memory may be reached by a pointer of another type than its own."""
    if not isinstance(value, Expr) or value.type == kind or not isinstance(kind, Scalar):
        return value
    if value.type.is_integer and kind.is_integer and value.type.bits == kind.bits:
        return fold.cast(value, kind)
    if value.type.bits != kind.bits or kind.bits not in (32, 64) or value.type.is_float == kind.is_float:
        raise UnsupportedError(f"a value of type {value.type} where one of type {kind} belongs", span)
    return fold.bits(value, kind)


def _variable(s: Lowering, cell: Cell, span: Span) -> Value:
    value = s.env.get(cell)
    if value is None:
        raise UnsupportedError(f"a pointer to '{cell.name}', which no longer exists", span)
    if isinstance(value, Undefined):
        raise UnsupportedError(f"'{cell.name}' is used before it has a value", span)
    return value


def _check_owner(s: Lowering, buffer: Buffer, span: Span) -> None:
    if buffer in s.owners and s.owners[buffer] not in s.env:
        raise UnsupportedError(f"a pointer to '{buffer.name}', which no longer exists", span)


def _load(s: Lowering, buffer: Buffer, index: Expr, span: Span, name: str | None) -> Var:
    _check_owner(s, buffer, span)
    var = s.var(name or buffer.name, buffer.element)
    s.emit(Load(var, buffer, index, span=span))
    return var


def write(s: Lowering, at: Place, value: Value, span: Span, mark: int | None) -> Value:
    """Gives a place a new content, and returns that. `mark`: where in the emitted statements the user's statement began, if it may become
    an Accumulate."""
    if isinstance(at, Cell):
        value = viewed(value, at.type, span)
        s.env[at] = s.let(at.name, value, span) if isinstance(value, Expr) else value
        return s.env[at]
    if not isinstance(value, Expr):
        raise UnsupportedError("a pointer stored in memory", span)
    single = _single(at)
    if isinstance(single, Buffer):
        value = viewed(value, single.element, span)
        assert isinstance(value, Expr)
        return _store(s, single, at.index, value, span, mark)
    value = s.let("value", value, span)
    through(s, at, lambda target: _write_one(s, at, target, value, span), span)
    return value


def _write_one(s: Lowering, at: Address, target: Target, value: Expr, span: Span) -> None:
    write(s, _narrow(at, target), value, span, None)


def _store(s: Lowering, buffer: Buffer, index: Expr, value: Expr, span: Span, mark: int | None) -> Expr:
    if buffer in s.read_only:
        raise UnsupportedError(f"'{buffer.name}' is const, but written", span)
    _check_owner(s, buffer, span)
    if mark is not None and (added := _added(s, mark, buffer, index, value)) is not None:
        s.emit(Accumulate(buffer, index, added, How.PLAIN, span=span))
        return value
    if mark is None:
        value = s.let(buffer.name, value, span)  # it is used again as the value of the assignment
    s.emit(Store(buffer, index, value, span=span))
    return value


# --- accumulation --------------------------------------------------------------------------------------------------------------------


def _added(s: Lowering, mark: int, buffer: Buffer, index: Expr, value: Expr) -> Expr | None:
    """What is added if `value` is the old content of the very element plus something; the Load of the old content is then removed."""
    if not isinstance(value, Binary) or value.op not in ("+", "-") or not value.type.is_float:
        return None
    sides = ((value.left, value.right), (value.right, value.left)) if value.op == "+" else ((value.left, value.right),)
    for old, other in sides:
        position = _load_of(s, mark, buffer, index, old)
        if position is not None and old not in walk(other) and _only_here(s, old, position):
            del s.out[position]
            return other if value.op == "+" else fold.unary("-", other)
    return None


def _load_of(s: Lowering, mark: int, buffer: Buffer, index: Expr, old: Expr) -> int | None:
    """Where the old content was loaded, if in this statement and with no write since."""
    for position in range(len(s.out) - 1, mark - 1, -1):
        stmt = s.out[position]
        if not isinstance(stmt, (Let, Load)):
            return None
        if isinstance(stmt, Load) and stmt.var is old:
            return position if stmt.buffer == buffer and stmt.index == index else None
    return None


def _only_here(s: Lowering, old: Expr, position: int) -> bool:
    """Whether neither later statements nor variables refer to the loaded value."""
    return not any(_mentions(stmt, old) for stmt in s.out[position + 1 :]) and all(not _uses(value, old) for value in s.env.values())


def _mentions(stmt: Stmt, var: Expr) -> bool:
    return any(var in walk(e) for e in expressions(stmt))


def _uses(value: Value, var: Expr) -> bool:
    parts = (value.tag, value.index) if isinstance(value, Address) else (value,)
    return any(isinstance(part, Expr) and var in walk(part) for part in parts)


# --- atomics -------------------------------------------------------------------------------------------------------------------------


def atomic(s: Lowering, e: surface.AtomicCall, at: Address, operands: tuple[Expr, ...], name: str | None) -> Value:
    """An atomic operation; the old content under `name`, or nothing if that is None. An addition whose result is not used is an
    Accumulate."""
    if not at.targets:
        raise UnsupportedError("an atomic operation on a null pointer", e.span)
    single = _single(at)
    if single is not None:
        return _atomic_one(s, e, single, at.index, operands, name)
    result = s.cell(name or "old", e.type)
    s.env[result] = UNDEFINED
    operands = tuple(s.let("value", o, e.span) for o in operands)

    def one(target: Target) -> None:
        s.env[result] = _atomic_one(s, e, target, at.index, operands, name)

    through(s, at, one, e.span)
    return s.env.pop(result)


def _atomic_one(s: Lowering, e: surface.AtomicCall, on: Target, index: Expr, operands: tuple[Expr, ...], name: str | None) -> Value:
    if isinstance(on, Cell) or on.space is Space.LOCAL:
        raise UnsupportedError(f"an atomic operation on '{on.name}', which belongs to one thread", e.span)
    if on in s.read_only:
        raise UnsupportedError(f"'{on.name}' is const, but written", e.span)
    if on.element != operands[0].type:
        operands = _operands_of(on, e, operands)
    if name is None and e.op in ("add", "sub"):
        added = operands[0] if e.op == "add" else fold.unary("-", operands[0])
        s.emit(Accumulate(on, index, added, How.ATOMIC, span=e.span))
        return UNDEFINED
    old = None if name is None else s.var(name, on.element)
    s.emit(Atomic(e.op, old, on, index, operands, span=e.span))
    return UNDEFINED if old is None else viewed(old, e.type, e.span)


def _operands_of(on: Buffer, e: surface.AtomicCall, operands: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The operands of an atomic operation on memory of another type: the same bits, where signs do not matter."""
    kind = operands[0].type
    if not (kind.is_integer and on.element.is_integer and kind.bits == on.element.bits and e.op in _UNSIGNED):
        raise UnsupportedError(f"an atomic operation of {kind} on '{on.name}', which is memory of {on.element}", e.span)
    return tuple(fold.cast(operand, on.element) for operand in operands)


_UNSIGNED = ("add", "sub", "exch", "cas", "and", "or", "xor")  # operations that are the same for signed and unsigned


# --- pointers with several candidates ------------------------------------------------------------------------------------------------


def _single(at: Address) -> Target | None:
    if len(at.targets) > 1 and isinstance(at.tag, Constant):
        return at.targets[int(at.tag.value)]
    return at.targets[0] if len(at.targets) == 1 else None


def _narrow(at: Address, target: Target) -> Place:
    return target if isinstance(target, Cell) else replace(at, targets=(target,), tag=Constant(0, I32))


def _element(target: Target) -> Type:
    return target.element if isinstance(target, Buffer) else target.type


def through(s: Lowering, at: Address, action: Callable[[Target], None], span: Span, first: int = 0) -> None:
    """Runs an action for the candidate that the tag names, by a chain of Ifs."""
    if first == len(at.targets) - 1:
        return action(at.targets[first])
    condition = fold.binary("==", at.tag, Constant(first, I32), BOOL)
    return s.join(condition, s.fork(lambda: action(at.targets[first])), s.fork(lambda: through(s, at, action, span, first + 1)), span)
