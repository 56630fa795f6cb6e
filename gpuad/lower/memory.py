"""Reads and writes of places: a variable is looked up or bound in the environment, memory gives Loads, Stores and Accumulates.

Through a pointer with several candidates an access becomes a chain of Ifs over its tag. `y[i] += v` and `y[i] = y[i] + v` of floats become
one Accumulate, provided that nothing else uses the old content and nothing was written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.functions import EXTREMA, ROUNDINGS
from ..ir.nodes import Accumulate, Atomic, Binary, Buffer, Call, Constant, Expr, How, Let, Load, Stmt, Store, Var, walk
from ..ir.records import is_composite, parts
from ..ir.rewrite import expressions
from ..ir.types import BOOL, F32, F64, I32, Pointer, Scalar, Space, Type, value_type
from ..source import Span
from . import records
from .lowering import UNDEFINED, Address, Cell, Lowering, Place, Record, Target, Undefined, Value


def read(s: Lowering, at: Place, kind: Type, span: Span, name: str | None) -> Value:
    """The content of a place as a `kind`; Loads if it is memory."""
    if is_composite(kind):
        return _read_parts(s, at, kind, span, name)
    if isinstance(at, Cell):
        return _variable(s, at, kind, span)
    single = _single(at)
    if isinstance(single, Buffer):
        return viewed(_load(s, *records.number_at(s, single, at.index, kind, span), span, name), kind, span)
    if isinstance(single, Cell) and at.offset is None:
        return _variable(s, single, kind, span)
    result = s.cell(name or "value", kind)
    s.env[result] = UNDEFINED

    def one(target: Target) -> None:
        s.env[result] = read(s, _narrow(at, target), kind, span, name)

    through(s, at, one, span)
    return s.env.pop(result)


def viewed(value: Value, kind: Type, span: Span) -> Value:
    """A number as what its bits are in another type of its size: memory may be reached by a pointer of another type than its own."""
    if not isinstance(value, Expr) or not isinstance(kind, Scalar) or value.type == value_type(kind):
        return value
    if value.type.is_integer and kind.is_integer and value.type.bits == kind.bits:
        return folding.cast(value, kind)
    if value.type.bits != kind.bits or kind.bits not in (32, 64) or value.type.is_float == kind.is_float:
        raise UnsupportedError(f"a value of type {value.type} where one of type {kind} belongs", span)
    return folding.bits(value, kind)


def _read_parts(s: Lowering, at: Place, kind: Type, span: Span, name: str | None) -> Record:
    single = at if isinstance(at, Cell) else _single(at)
    base = name or (single.name if single is not None else "value")
    pieces = [(part, records.part(s, at, kind, k, span)) for k, part in enumerate(parts(kind))]
    return Record(tuple(_read_part(s, place, part.type, span, f"{base}_{part.name}") for part, place in pieces))


def _read_part(s: Lowering, at: Place, kind: Type, span: Span, name: str) -> Value:
    """A part of a record that is read whole: as long as nothing is computed with it, it may be undefined."""
    if isinstance(at, Cell) and not is_composite(kind) and isinstance(s.env.get(at), Undefined):
        return UNDEFINED
    return read(s, at, kind, span, name)


def _variable(s: Lowering, cell: Cell, kind: Type, span: Span) -> Value:
    value = s.env.get(cell)
    records.check_cell(cell, kind, span)
    if value is None:
        raise UnsupportedError(f"a pointer to '{cell.name}', which no longer exists", span)
    if isinstance(value, Undefined):
        raise UnsupportedError(f"'{cell.name}' is used before it has a value", span)
    return viewed(value, kind, span)


def _check_owner(s: Lowering, buffer: Buffer, span: Span) -> None:
    if buffer in s.owners and s.owners[buffer] not in s.env:
        raise UnsupportedError(f"a pointer to '{buffer.name}', which no longer exists", span)


def _load(s: Lowering, buffer: Buffer, index: Expr, span: Span, name: str | None) -> Var:
    _check_owner(s, buffer, span)
    var = s.var(name or buffer.name, value_type(buffer.element))
    s.emit(Load(var, buffer, index, span=span))
    return var


def write(s: Lowering, at: Place, kind: Type, value: Value, span: Span, mark: int | None) -> Value:
    """Gives a place a new content of type `kind`, and returns that. `mark`: where in the emitted statements the user's statement began, if
    it may become an Accumulate."""
    if isinstance(value, Record):
        return _write_parts(s, at, kind, value, span, mark)
    if isinstance(at, Cell):
        records.check_cell(at, kind, span)
        held = viewed(value, at.type, span)
        s.env[at] = s.let(at.name, held, span) if isinstance(held, Expr) else held
        return viewed(s.env[at], kind, span)
    if isinstance(value, Undefined):
        raise UnsupportedError("a part of this value is used before it has a value", span)
    if not isinstance(value, Expr):
        raise UnsupportedError("a pointer stored in memory", span)
    single = _single(at)
    if isinstance(single, Buffer):
        buffer, index = records.number_at(s, single, at.index, kind, span)
        stored = viewed(value, buffer.element, span)
        assert isinstance(stored, Expr)
        return _store(s, buffer, index, stored, span, mark)
    value = s.let("value", value, span)
    through(s, at, lambda target: _write_one(s, at, target, kind, value, span), span)
    return value


def _write_one(s: Lowering, at: Address, target: Target, kind: Type, value: Expr, span: Span) -> None:
    write(s, _narrow(at, target), kind, value, span, None)


def _write_parts(s: Lowering, at: Place, kind: Type, value: Record, span: Span, mark: int | None) -> Record:
    """Writes a record. What is added to its numbers in memory is found for all of them before the first is written."""
    leaves = list(records.scattered(s, at, kind, value, span))
    added = [_added_leaf(s, place, leaf, content, leaves, span, mark) for place, leaf, content in leaves]
    for (place, leaf, content), term in zip(leaves, added, strict=True):
        if term is not None:
            s.emit(Accumulate(*term[0], term[1], How.PLAIN, span=span))
        else:
            write(s, place, leaf, content, span, None if mark is None or isinstance(place, Cell) else len(s.out))
    return value


def _added_leaf(
    s: Lowering, at: Place, kind: Type, value: Value, leaves: list[tuple[Place, Type, Value]], span: Span, mark: int | None
) -> tuple[tuple[Buffer, Expr], Expr] | None:
    """Buffer and index of a number in memory to which `value` adds something, and what it adds."""
    single = None if mark is None or isinstance(at, Cell) else _single(at)
    if mark is None or not isinstance(single, Buffer) or not isinstance(at, Address) or not isinstance(value, Expr):
        return None
    place = records.number_at(s, single, at.index, kind, span)
    others = [other for _, _, other in leaves if other is not value and isinstance(other, Expr)]
    if place[0] in s.read_only or any(other == value for other in others):
        return None
    term = _added(s, mark, *place, value, others)
    return None if term is None else (place, term)


def _store(s: Lowering, buffer: Buffer, index: Expr, value: Expr, span: Span, mark: int | None) -> Expr:
    if buffer in s.read_only:
        raise UnsupportedError(f"'{buffer.name}' is const, but written", span)
    _check_owner(s, buffer, span)
    if mark is not None and (added := _added(s, mark, buffer, index, value)) is not None:
        s.emit(Accumulate(buffer, index, added, How.PLAIN, span=span))
        return value
    if mark is None:
        value = s.let(buffer.name, value, span)  # it is used again as the value of the assignment
    s.emit(Store(buffer, index, _rounded(value, buffer.element), span=span))
    return value


def _rounded(value: Expr, element: Scalar) -> Expr:
    """What is stored in memory of halves or bfloat16 is such a number, so that whoever reads it gets what was stored."""
    rounding = ROUNDINGS.get(element)
    if rounding is None or (isinstance(value, Call) and value.function == rounding):
        return value
    return Call(rounding, (value,), value.type)


# --- accumulation --------------------------------------------------------------------------------------------------------------------


def _added(s: Lowering, mark: int, buffer: Buffer, index: Expr, value: Expr, others: Sequence[Expr] = ()) -> Expr | None:
    """What is added if `value` is the old content of the very element plus something; the Load of the old content is then removed. It must
    not occur in `others`, which are still to be written."""
    if not isinstance(value, Binary) or value.op not in ("+", "-") or not value.type.is_float:
        return None
    sides = ((value.left, value.right), (value.right, value.left)) if value.op == "+" else ((value.left, value.right),)
    for old, other in sides:
        position = _load_of(s, mark, buffer, index, old)
        alone = position is not None and all(old not in walk(e) for e in (other, *others))
        if alone and position is not None and _only_here(s, old, position):
            del s.out[position]
            return other if value.op == "+" else folding.unary("-", other)
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
    """True if neither later statements nor variables refer to the loaded value."""
    return not any(_mentions(stmt, old) for stmt in s.out[position + 1 :]) and all(not _uses(value, old) for value in s.env.values())


def _mentions(stmt: Stmt, var: Expr) -> bool:
    return any(var in walk(e) for e in expressions(stmt))


def _uses(value: Value, var: Expr) -> bool:
    exprs = (value.tag, value.index) if isinstance(value, Address) else (value,)
    return any(isinstance(e, Expr) and var in walk(e) for e in exprs)


# --- atomics -------------------------------------------------------------------------------------------------------------------------


def atomic(s: Lowering, e: surface.AtomicCall, at: Address, operands: tuple[Expr, ...], name: str | None) -> Value:
    """An atomic operation; the old content under `name`, or nothing if that is None. An addition whose result is not used is an
    Accumulate."""
    if not at.targets:
        raise UnsupportedError("an atomic operation on a null pointer", e.span)
    if name is not None and not e.valued:
        raise UnsupportedError("the value of this atomic operation is used, but its loop does not end with the old content", e.span)
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
    kind = e.pointer.type.element if isinstance(e.pointer.type, Pointer) else e.type
    on, index = records.number_at(s, on, index, kind, e.span)
    if on in s.read_only:
        raise UnsupportedError(f"'{on.name}' is const, but written", e.span)
    op = e.op
    if value_type(on.element) != operands[0].type:
        op, operands = _of_another_type(s, on, e, operands)
    if op in EXTREMA and on.element.is_float and on.element.bits == 16:
        raise UnsupportedError(f"atomic maxima and minima on '{on.name}', which is memory of {on.element}, are not supported", e.span)
    if name is None and op in ("add", "sub"):
        added = operands[0] if op == "add" else folding.unary("-", operands[0])
        s.emit(Accumulate(on, index, added, How.ATOMIC, span=e.span))
        return UNDEFINED
    old = None if name is None else s.var(name, value_type(on.element))
    s.emit(Atomic(op, old, on, index, operands, span=e.span))
    return UNDEFINED if old is None else viewed(old, e.type, e.span)


def _of_another_type(s: Lowering, on: Buffer, e: surface.AtomicCall, operands: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
    """An atomic operation on memory of another type: the same bits, where signs do not matter. On floats the greatest of integers is
    that by the bits."""
    kind = operands[0].type
    if kind.is_integer and on.element in (F32, F64) and kind.bits == on.element.bits and e.op in ("min", "max", "exch", "cas"):
        order = "" if e.op in ("exch", "cas") else "i" if kind.is_signed else "u"
        return f"{order}{e.op}", tuple(s.bits(operand, on.element) for operand in operands)
    if not (kind.is_integer and on.element.is_integer and kind.bits == on.element.bits and e.op in _UNSIGNED):
        what = f"an atomic operation of {kind} on '{on.name}', which is memory of {on.element}"
        offer = "; on the bits of floats atomicMin, atomicMax, atomicExch and atomicCAS are supported" if on.element in (F32, F64) else ""
        raise UnsupportedError(what + offer, e.span)
    return e.op, tuple(folding.cast(operand, on.element) for operand in operands)


_UNSIGNED = ("add", "sub", "exch", "cas", "and", "or", "xor")  # operations that are the same for signed and unsigned


# --- pointers with several candidates ------------------------------------------------------------------------------------------------


def _single(at: Address) -> Target | None:
    if len(at.targets) > 1 and isinstance(at.tag, Constant):
        return at.targets[int(at.tag.value)]
    return at.targets[0] if len(at.targets) == 1 else None


def _narrow(at: Address, target: Target) -> Place:
    return target if isinstance(target, Cell) else replace(at, targets=(target,), tag=Constant(0, I32))


def through(s: Lowering, at: Address, action: Callable[[Target], None], span: Span, first: int = 0) -> None:
    """Runs an action for the candidate that the tag names, by a chain of Ifs."""
    if first == len(at.targets) - 1:
        return action(at.targets[first])
    condition = folding.binary("==", at.tag, Constant(first, I32), BOOL)
    return s.join(condition, s.fork(lambda: action(at.targets[first])), s.fork(lambda: through(s, at, action, span, first + 1)), span)
