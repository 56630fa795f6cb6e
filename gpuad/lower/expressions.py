"""Lowers surface expressions: pure trees stay trees, and whatever touches memory or a variable is hoisted, in C's order.

`evaluate` gives a value, `place` what an lvalue denotes, `discard` runs an expression for its effects alone (which makes an unused
atomicAdd an Accumulate). A side of `&&`, `||` or `?:` that is pure and cannot misbehave becomes part of the tree, any other is guarded by
an If.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.aliases import compared
from ..ir.functions import ROUNDINGS
from ..ir.nodes import Barrier, Buffer, Call, Constant, Expr, LaunchIndex, Load, Shuffle, Stmt
from ..ir.records import is_composite, leaves, member_of, numbers, part_number, parts, points_to_pointers
from ..ir.rewrite import walk_stmts
from ..ir.types import BF16, BOOL, F32, F64, I32, I64, U32, Pointer, Scalar, Space, Type, Void, value_type
from ..source import Span
from . import bit_fields, memory, records, tables
from .lowering import UNDEFINED, Address, Branch, Cell, Lowering, Place, Record, Reference, Table, Undefined, Value, advance, combine

# --- values --------------------------------------------------------------------------------------------------------------------------


def scalar(s: Lowering, e: surface.Expr, name: str | None = None) -> Expr:
    """The value of a scalar expression. `name`: what to call a value that is loaded whole."""
    value = evaluate(s, e, name)
    if not isinstance(value, Expr):
        raise UnsupportedError(f"a value of type {e.type} where a number belongs", e.span)
    return value


def address(s: Lowering, e: surface.Expr) -> Address:
    """The value of a pointer expression."""
    value = evaluate(s, e)
    if not isinstance(value, Address):
        raise UnsupportedError("it is not known at compile time what this pointer points to", e.span)
    return value


def evaluate(s: Lowering, e: surface.Expr, name: str | None = None) -> Value:
    """The value of an expression, its effects emitted."""
    check_type(e.type, e.span)
    match e:
        case surface.Constant():
            return _constant(e)
        case surface.Name() | surface.Index() | surface.Deref():
            return _content(s, e, name)
        case surface.Member() | surface.Record() | surface.Bits():
            return _record(s, e, name)
        case surface.LaunchIndex(name=which, axis=axis):
            return LaunchIndex(which, axis)
        case surface.Unary(op=op, operand=operand):
            return folding.unary(op, scalar(s, operand))
        case surface.Cast(operand=operand):
            return _cast(s, e, operand)
        case surface.MathCall(function="bits", arguments=(number,)):
            return s.bits(scalar(s, number), _scalar_type(e))
        case surface.MathCall(function=function, arguments=arguments):
            return Call(function, tuple(scalar(s, a) for a in arguments), _scalar_type(e))
        case surface.Binary():
            return _binary(s, e)
        case surface.Logical():
            return _logical(s, e)
        case surface.Conditional():
            return _conditional(s, e, name)
    return _effect(s, e, name) if isinstance(e, _EFFECTS) else _address_value(s, e)


_EFFECTS = (surface.Assign, surface.IncDec, surface.Comma, surface.HelperCall, surface.AtomicCall, surface.ShuffleCall)


def _effect(s: Lowering, e: surface.Expr, name: str | None) -> Value:
    match e:
        case surface.Assign():
            return assign(s, e, used=True)
        case surface.IncDec():
            return _increment(s, e, used=True)
        case surface.Comma(first=first, second=second):
            discard(s, first)
            return evaluate(s, second, name)
        case surface.HelperCall():
            value = s.call(s, e)
            return memory.read(s, value.place, e.type, e.span, name) if isinstance(value, Reference) else value
        case surface.AtomicCall():
            return _atomic(s, e, name or "old")
        case surface.ShuffleCall():
            return _shuffle(s, e, name)
    raise UnsupportedError(f"{type(e).__name__} is not supported", e.span)


def _record(s: Lowering, e: surface.Member | surface.Record | surface.Bits, name: str | None) -> Value:
    """A field of a record, or bits of one; or a record made of values."""
    if isinstance(e, surface.Bits):
        return bit_fields.seen(e, scalar(s, e.lvalue, name))
    if isinstance(e, surface.Record):
        pieces = zip(e.values, parts(e.type), strict=True)
        return Record(tuple(evaluate(s, v, f"{name}_{part.name}" if name else None) for v, part in pieces))
    if is_place(e.record):
        return memory.read(s, place(s, e), e.type, e.span, name)
    number = _part_number(e, e.record.type)
    whole = evaluate(s, e.record)
    found = whole.values[number] if isinstance(whole, Record) else UNDEFINED
    if isinstance(found, Undefined):
        raise UnsupportedError(f"the member '{e.name}' is used before it has a value", e.span)
    return found


def _part_number(e: surface.Member, kind: Type) -> int:
    """Which of the parts of a value a member is."""
    shared = member_of(kind, e.name)
    if shared is None:
        return part_number(kind, e.name)
    for number, own in enumerate(parts(kind)):
        if own.offset == shared.offset and own.type == e.type:
            return number
    raise UnsupportedError(f"the member '{e.name}' of a value without a name is not supported; give the {kind} a name", e.span)


def is_place(e: surface.Expr) -> bool:
    """True if an expression denotes a variable or memory."""
    if isinstance(e, surface.Member | surface.Bits):
        return is_place(e.record if isinstance(e, surface.Member) else e.lvalue)
    if isinstance(e, (surface.HelperCall, surface.IncDec)):
        return e.function.reference if isinstance(e, surface.HelperCall) else e.prefix
    return isinstance(e, (surface.Name, surface.Index, surface.Deref, surface.Assign))


def _content(s: Lowering, e: surface.Name | surface.Index | surface.Deref, name: str | None) -> Value:
    """What is in a variable, in memory or in a table of pointers."""
    if isinstance(e.type, Pointer) and not isinstance(e, surface.Name):
        return _entry(s, e)
    return memory.read(s, place(s, e), e.type, e.span, name)


def table_of(s: Lowering, e: surface.Expr) -> Table:
    """The value of a pointer to pointers."""
    value = evaluate(s, e)
    if not isinstance(value, Table):
        raise UnsupportedError(tables.UNKNOWN, e.span)
    return value


def _entry(s: Lowering, e: surface.Index | surface.Deref) -> Address:
    index = scalar(s, e.index) if isinstance(e, surface.Index) else Constant(0, I32)
    assert isinstance(e.type, Pointer)
    return tables.entry(s, table_of(s, e.pointer), index, e.type, e.span)


def _address_value(s: Lowering, e: surface.Expr) -> Value:
    match e:
        case surface.Table(values=values):
            return Table(tuple(address(s, value) for value in values))
        case surface.PointerAdd(pointer=pointer, offset=offset) if points_to_pointers(e.type):
            return tables.moved(table_of(s, pointer), scalar(s, offset))
        case surface.Decay(array=surface.Conditional(condition=c, then=a, otherwise=b)):  # each side decays for itself
            sides = (replace(e, array=a), replace(e, array=b))
            return evaluate(s, surface.Conditional(e.span, e.type, c, *sides))
        case surface.Decay(array=array):
            return _as_address(place(s, array))
        case surface.AddressOf(lvalue=lvalue):
            return _as_address(place(s, lvalue))
        case surface.PointerAdd(pointer=pointer, offset=offset):
            base = address(s, pointer)
            return advance(base, scalar(s, offset), _stride(s, base, pointer))
    raise UnsupportedError(f"{type(e).__name__} is not supported", e.span)


def check_type(kind: Type, span: Span) -> None:
    """Refuses pointers to what holds pointers, but for tables of these."""
    if isinstance(kind, Pointer) and points_to_pointers(kind):
        kind = kind.element
    if isinstance(kind, Pointer) and any(isinstance(leaf.type, Pointer) for leaf in leaves(kind.element)):
        raise UnsupportedError("a pointer to a pointer comes in a later release", span)


def _scalar_type(e: surface.Expr) -> Scalar:
    if not isinstance(e.type, Scalar):
        raise UnsupportedError(f"a value of type {e.type} where a number belongs", e.span)
    return value_type(e.type)


def _constant(e: surface.Constant) -> Value:
    if isinstance(e.type, Pointer):
        return Address(())
    kind = _scalar_type(e)
    return folding.integer(int(e.value), kind) if kind.is_integer else Constant(e.value, kind)


def _cast(s: Lowering, e: surface.Cast, operand: surface.Expr) -> Value:
    if isinstance(e.type, Void):
        discard(s, operand)
        return UNDEFINED
    if isinstance(e.type, Pointer):
        return table_of(s, operand) if points_to_pointers(e.type) else _cast_pointer(s, e, e.type, operand)
    if is_composite(e.type) and e.type == operand.type:
        return evaluate(s, operand)
    if isinstance(operand.type, Pointer):
        raise UnsupportedError("a pointer as a condition or a number comes in a later release", e.span)
    value = scalar(s, operand)
    if e.type in ROUNDINGS and operand.type != e.type and e.rounds:
        exact = value if value.type == F64 else folding.cast(value, F64 if _is_long(value, e.type) else F32, e.implicit)
        return folding.cast(Call(ROUNDINGS[e.type], (exact,), exact.type), F32)
    return folding.cast(value, _scalar_type(e), e.implicit)


def _is_long(value: Expr, target: Type) -> bool:
    """True if an integer may have more digits than a float and is yet within the range of the target."""
    return target == BF16 and value.type.is_integer and value.type.bits >= 32


def _cast_pointer(s: Lowering, e: surface.Cast, kind: Pointer, operand: surface.Expr) -> Address:
    """A pointer as one of another type: the address stays. Into memory of structs of several types only numbers of the same type lead."""
    at = address(s, operand)
    own = operand.type.element if isinstance(operand.type, Pointer) else kind.element
    cut = e.cuts and all(isinstance(t, Buffer) and set(numbers(kind.element)) <= s.groups.get(t, {}).keys() for t in at.targets)
    if any(target in s.groups for target in at.targets) and not cut and numbers(own) != numbers(kind.element):
        raise UnsupportedError(f"memory of structs is used as {kind.element}, which a derivative cannot follow", e.span)
    return at


def _binary(s: Lowering, e: surface.Binary) -> Expr:
    if isinstance(e.left.type, Pointer) or isinstance(e.right.type, Pointer):
        return _pointer_binary(s, e)
    left = scalar(s, e.left)
    return folding.binary(e.op, left, scalar(s, e.right), _scalar_type(e))


def _pointer_binary(s: Lowering, e: surface.Binary) -> Expr:
    there = _is_there(s, e)
    if there is not None:
        return Constant(there == (e.op == "!="), BOOL)
    if points_to_pointers(e.left.type) and points_to_pointers(e.right.type):
        return tables.compared(table_of(s, e.left), table_of(s, e.right), e)
    left, right = address(s, e.left), address(s, e.right)
    if not left.targets or not right.targets:
        raise UnsupportedError(
            "comparison of a pointer with null is supported for parameters of the kernel and what begins as one; elsewhere pass a number "
            "that says whether there is an array",
            e.span,
        )
    if len(left.targets) > 1 or left.targets != right.targets:
        raise UnsupportedError(f"'{e.op}' of pointers that are not known to point into one array", e.span)
    if e.op != "-":
        return folding.binary(e.op, left.wide, right.wide, BOOL)
    difference = folding.binary("-", left.wide, right.wide, I64)
    stride = _stride(s, left, e.left)
    return folding.cast(folding.binary("/", difference, folding.integer(stride, I64), I64), _scalar_type(e))


def _is_there(s: Lowering, e: surface.Binary) -> bool | None:
    """Whether a pointer that is compared with null points to something; None where that is not known, or it is not compared with null."""
    pointer = compared(e)
    origin = s.origin(pointer) if pointer is not None else None
    return origin.name not in s.frames[0].function.absent if isinstance(origin, surface.Declaration) else origin


def _stride(s: Lowering, at: Address, pointer: surface.Expr) -> int:
    return records.stride(s, at, pointer.type.element, pointer.span) if isinstance(pointer.type, Pointer) else 1


# --- lvalues -------------------------------------------------------------------------------------------------------------------------


def place(s: Lowering, e: surface.Expr) -> Place:
    """What an lvalue denotes, the effects of finding it emitted."""
    match e:
        case surface.Index(type=Pointer()) | surface.Deref(type=Pointer()):
            raise UnsupportedError(tables.NO_PLACE, e.span)
        case surface.Name(declaration=declaration):
            return _named(s, declaration, e.span)
        case surface.Index(pointer=pointer, index=index):
            base = _of_the_block(address(s, pointer), pointer)
            return _pointee(advance(base, scalar(s, index), _stride(s, base, pointer)), e.span)
        case surface.Deref(pointer=pointer):
            return _pointee(_of_the_block(address(s, pointer), pointer), e.span)
        case surface.Member(record=record, name=name) if (shared := member_of(record.type, name)) is not None:
            return records.member(s, place(s, record), shared, e.span)
        case surface.Bits():
            raise UnsupportedError(bit_fields.NO_PLACE, e.span)
        case surface.Member(record=record, name=name):
            return records.part(s, place(s, record), record.type, part_number(record.type, name), e.span)
        case surface.HelperCall() if e.function.reference:
            return _returned(s, e)
        case surface.Cast(operand=operand, type=kind) if kind == operand.type:
            return place(s, operand)
        case surface.Assign() | surface.IncDec(prefix=True):
            discard(s, e)
            return place(s, e.target)
    raise UnsupportedError(f"{type(e).__name__} as the target of an assignment or reference", e.span)


def _returned(s: Lowering, e: surface.HelperCall) -> Place:
    """The place that a function returns a reference to."""
    found = s.call(s, e)
    if not isinstance(found, Reference):
        raise UnsupportedError(f"it is not known at compile time what '{e.function.name}' returns a reference to", e.span)
    return found.place


def _named(s: Lowering, declaration: surface.Declaration, span: Span) -> Place:
    cell = s.find(declaration, span)
    value = s.env[cell]
    return value.place if isinstance(value, Reference) else cell


def _pointee(at: Address, span: Span) -> Place:
    if not at.targets:
        raise UnsupportedError("a null pointer is dereferenced", span)
    cells = [t for t in at.targets if isinstance(t, Cell)]
    if len(cells) == len(at.targets) and at.offset is not None:  # where it may also lead to an array, the offset is that of the array
        raise UnsupportedError(f"an element beside the variable '{cells[0].name}'; for more than one element declare an array", span)
    return cells[0] if cells and len(at.targets) == 1 else at


def _of_the_block(at: Address, pointer: surface.Expr) -> Address:
    """What a pointer leads to: through one to volatile memory no memory of the launch, which other blocks may change."""
    is_volatile = isinstance(pointer.type, Pointer) and pointer.type.volatile
    if is_volatile and any(t.space is Space.GLOBAL for t in at.targets if isinstance(t, Buffer)):
        raise UnsupportedError(_VOLATILE, pointer.span)
    return at


_VOLATILE = (
    "volatile memory of the launch is not supported: threads of other blocks may change it, which a reverse pass cannot follow; if none "
    "does, leave volatile away"
)


def _as_address(at: Place) -> Address:
    return at if isinstance(at, Address) else Address((at,))


# --- assignments ---------------------------------------------------------------------------------------------------------------------


def discard(s: Lowering, e: surface.Expr) -> None:
    """Runs an expression for its effects."""
    match e:
        case surface.Assign():
            assign(s, e, used=False)
        case surface.IncDec():
            _increment(s, e, used=False)
        case surface.AtomicCall():
            _atomic(s, e, None)
        case surface.Comma(first=first, second=second):
            discard(s, first)
            discard(s, second)
        case surface.HelperCall():
            s.call(s, e)
        case surface.Cast(operand=operand):
            discard(s, operand)
        case surface.Conditional(condition=condition, then=then, otherwise=otherwise):
            _choose(s, condition, lambda: discard(s, then), lambda: discard(s, otherwise), e.span)
        case surface.Logical(op=op, left=left, right=right):
            sides = (lambda: discard(s, right), lambda: None)
            _choose(s, left, *(sides if op == "&&" else sides[::-1]), e.span)
        case _:
            evaluate(s, e)


def _choose(s: Lowering, e: surface.Expr, then: Callable[[], None], otherwise: Callable[[], None], span: Span) -> None:
    condition = scalar(s, e)
    if isinstance(condition, Constant):
        return then() if condition.value else otherwise()
    return s.join(condition, s.fork(then), s.fork(otherwise), span)


def assign(s: Lowering, e: surface.Assign, used: bool) -> Value:
    """An assignment; its value, which only counts if it is `used`. C++17's order: the right side first."""
    if isinstance(e.target, surface.Bits):
        return _assign_bits(s, e, e.target)
    mark = len(s.out)
    simple = e.op is None and isinstance(e.target, surface.Name)
    value = evaluate(s, e.value, e.target.declaration.name if simple and isinstance(e.target, surface.Name) else None)
    target = place(s, e.target)
    if e.op is not None:
        value = _updated(s, e, memory.read(s, target, e.target.type, e.span, None), value)
    return _written(s, e, target, value, None if used else mark)


def _written(s: Lowering, e: surface.Assign | surface.IncDec, target: Place, value: Value, mark: int | None) -> Value:
    """The new content of a place. Where it is volatile memory of the block, the threads of a warp are in step: all have read before one
    writes, and all have written before one reads on. In a kernel with `__syncwarp()` all have read before one writes."""
    before = len(s.out)
    waits = s.in_step and isinstance(target, Address) and _reads_elsewhere(s.out, target)
    result = memory.write(s, target, e.target.type, value, e.span, mark)
    if surface.is_step(e) and isinstance(target, Address) and any(t.space is Space.SHARED for t in target.targets if isinstance(t, Buffer)):
        if len(target.targets) > 1:
            raise UnsupportedError("a pointer to volatile memory that may be one of several arrays is not supported", e.span)
        s.out.insert(min(before, len(s.out) - 1), Barrier("step", span=e.span))
        s.emit(Barrier("step", span=e.span))
    elif waits:
        s.out.insert(min(before, len(s.out) - 1), Barrier("step", span=e.span))
    return result


def _reads_elsewhere(stmts: Sequence[Stmt], target: Address) -> bool:
    """True if another element of the array in shared memory that is about to be written has been read since the last barrier."""
    own = [t for t in target.targets if isinstance(t, Buffer) and t.space is Space.SHARED]
    since = itertools.takewhile(lambda stmt: not isinstance(stmt, Barrier), reversed(stmts))
    reads = (read for stmt in since for read in walk_stmts((stmt,)) if isinstance(read, Load) and read.buffer in own)
    return any(folding.cast(read.index, I64) != target.wide for read in reads)


def _assign_bits(s: Lowering, e: surface.Assign, target: surface.Bits) -> Expr:
    value, at = scalar(s, e.value), place(s, target.lvalue)
    whole = e.op is None and not target.width
    held = folding.zero(_scalar_type(target.lvalue)) if whole else _held_number(s, target, at)
    if e.op is not None:
        kind = value_type(e.computation or _scalar_type(target))
        value = folding.cast(
            folding.binary(e.op, folding.cast(bit_fields.seen(target, held), kind), value, kind), _scalar_type(target), implicit=True
        )
    return _written_bits(s, target, at, held, value)


def _increment_bits(s: Lowering, e: surface.IncDec, target: surface.Bits) -> Expr:
    at = place(s, target.lvalue)
    held = _held_number(s, target, at)
    old = s.let("old", bit_fields.seen(target, held), e.span)
    new = _written_bits(s, target, at, held, folding.binary(e.op, old, Constant(1, old.type), old.type))
    return new if e.prefix else old


def _held_number(s: Lowering, target: surface.Bits, at: Place) -> Expr:
    """The number that the bits are of."""
    held = memory.read(s, at, target.lvalue.type, target.span, None)
    assert isinstance(held, Expr)
    return held


def _written_bits(s: Lowering, target: surface.Bits, at: Place, held: Expr, value: Expr) -> Expr:
    written = memory.write(s, at, target.lvalue.type, bit_fields.with_value(target, held, value), target.span, None)
    assert isinstance(written, Expr)
    return bit_fields.seen(target, written)


def _updated(s: Lowering, e: surface.Assign, old: Value, value: Value) -> Value:
    assert e.op is not None
    if not isinstance(value, Expr):
        raise UnsupportedError(f"'{e.op}=' with a value of type {e.value.type}", e.span)
    if isinstance(old, Address) and e.op in ("+", "-"):
        return advance(old, value if e.op == "+" else folding.unary("-", folding.cast(value, I64)), _stride(s, old, e.target))
    if not isinstance(old, Expr):
        raise UnsupportedError(f"'{e.op}=' on a value of type {e.target.type}", e.span)
    kind = value_type(e.computation or old.type)
    return folding.cast(folding.binary(e.op, folding.cast(old, kind), value, kind), old.type, implicit=True)


def _increment(s: Lowering, e: surface.IncDec, used: bool) -> Value:
    if isinstance(e.target, surface.Bits):
        return _increment_bits(s, e, e.target)
    mark = len(s.out)
    target = place(s, e.target)
    old = memory.read(s, target, e.target.type, e.span, None)
    if isinstance(old, Address):
        new: Value = advance(old, folding.integer(1 if e.op == "+" else -1, I64), _stride(s, old, e.target))
    elif isinstance(old, Table):
        new = tables.moved(old, Constant(1 if e.op == "+" else -1, I32))
    elif isinstance(old, Expr) and old.type != BOOL:
        new = folding.binary(e.op, old, Constant(1, old.type), old.type)
    else:
        raise UnsupportedError(f"'{e.op}{e.op}' on a value of type {e.target.type}", e.span)
    new = _written(s, e, target, new, None if used else mark)
    return new if e.prefix else old


def _atomic(s: Lowering, e: surface.AtomicCall, name: str | None) -> Value:
    at = address(s, e.pointer)
    return memory.atomic(s, e, at, tuple(scalar(s, o) for o in e.operands), name)


def _shuffle(s: Lowering, e: surface.ShuffleCall, name: str | None) -> Value:
    """Each operand gets a name, so that the adjoint can refer to it."""
    mask, value, lane, width = (s.let(n, scalar(s, o), e.span) for n, o in _operands(e))
    if e.op == "ballot":
        value = folding.select(
            folding.binary("!=", value, folding.zero(value.type), BOOL), folding.integer(1, U32), folding.integer(0, U32)
        )
    var = s.var(name or ("ballot" if e.op == "ballot" else "other"), value.type)
    s.emit(Shuffle(var, e.op, folding.cast(mask, U32), value, lane, width, span=e.span))
    return var if e.type == var.type else folding.cast(var, _scalar_type(e))


def _operands(e: surface.ShuffleCall) -> tuple[tuple[str, surface.Expr], ...]:
    return ("mask", e.mask), ("value", e.value), ("lane", e.lane), ("width", e.width)


# --- guarded sides -------------------------------------------------------------------------------------------------------------------


def _logical(s: Lowering, e: surface.Logical) -> Expr:
    left = scalar(s, e.left)
    short = folding.TRUE if e.op == "||" else folding.FALSE
    if isinstance(left, Constant):
        return left if left == short else scalar(s, e.right)
    result = s.flag("both" if e.op == "&&" else "either")
    right = s.fork(lambda: _leave(s, result, scalar(s, e.right), e.span))
    other = s.fork(lambda: _leave(s, result, short, e.span))
    value = right.env[result]
    if _is_pure(s, right, result) and isinstance(value, Expr):
        del s.env[result]
        return folding.logical(e.op, left, value)
    s.join(left, *((right, other) if e.op == "&&" else (other, right)), e.span)
    merged = s.env.pop(result)
    assert isinstance(merged, Expr)
    return merged


def _conditional(s: Lowering, e: surface.Conditional, name: str | None) -> Value:
    condition = scalar(s, e.condition)
    if isinstance(condition, Constant):
        return evaluate(s, e.then if condition.value else e.otherwise, name)
    if is_composite(e.type):
        return _record_conditional(s, e, condition, name)
    result = s.cell(name or "value", e.type)
    s.env[result] = UNDEFINED
    then = s.fork(lambda: _leave(s, result, evaluate(s, e.then, name), e.span))
    otherwise = s.fork(lambda: _leave(s, result, evaluate(s, e.otherwise, name), e.span))
    if _is_pure(s, then, result) and _is_pure(s, otherwise, result):
        del s.env[result]
        return combine(then.env[result], otherwise.env[result], e.type, lambda _, a, b: folding.select(condition, a, b))
    s.join(condition, then, otherwise, e.span)
    return s.env.pop(result)


def _record_conditional(s: Lowering, e: surface.Conditional, condition: Expr, name: str | None) -> Value:
    """The chosen side is copied into a variable."""
    before = dict(s.env)
    result = s.cell(name or "value", e.type)
    records.define(s, result, UNDEFINED, e.span)
    then = s.fork(lambda: _copy(s, result, e.then))
    otherwise = s.fork(lambda: _copy(s, result, e.otherwise))
    s.join(condition, then, otherwise, e.span)
    value = memory.read(s, result, e.type, e.span, name)
    s.forget(before)
    return value


def _copy(s: Lowering, into: Cell, e: surface.Expr) -> None:
    memory.write(s, into, e.type, evaluate(s, e), e.span, None)


def _leave(s: Lowering, result: Cell, value: Value, span: Span) -> None:
    """Leaves the value of a guarded side for the join; one that must not be evaluated elsewhere is named there."""
    s.env[result] = s.let(result.name, value, span) if isinstance(value, Expr) and folding.can_trap(value) else value


def _is_pure(s: Lowering, side: Branch, result: Cell) -> bool:
    """True if a side emitted nothing and changed nothing but its result."""
    return not side.out and all(side.env[cell] == value for cell, value in s.env.items() if cell is not result)
