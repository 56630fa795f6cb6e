"""Lowers the surface tree to the core IR: mutable variables, pointers, calls and early exits become single assignment, buffers and
structure.

The surface tree is executed abstractly. An environment says what each variable stands for at this point; an assignment gives a new Var with
the user's name. After an If of which one side definitely exits, the rest of the statements goes into the other side, so that
`if (i >= n) return;` becomes `if (i < n) {rest}`; other exits are bool flags, and the rest runs under them. Every thread reaches the end
of the body.

Assumes a tree whose conversions are explicit and whose names are resolved (`ir.surface`). Guarantees valid core IR (`ir.verify`) without
dead statements; whatever cannot be represented is an UnsupportedError at its place.

Inlines calls of the user's __device__ functions: arguments are bound by value, by reference or as pointers, and the body is lowered in a
frame of its own, so that a function may be entered again (a template that calls itself with another argument) without mixing up variables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.aliases import NONE, Aliases, Origin, Overlap, nulls
from ..ir.nodes import Alloc, Barrier, Block, Buffer, Constant, Expr, Kernel, Shuffle, Stmt, Store, Tell, Var
from ..ir.records import holds_pointers, is_composite, is_record, numbers, points_to_pointers, size_of, split_parameter
from ..ir.rewrite import grid_barrier, holds, map_blocks
from ..ir.types import I32, I64, U32, Array, Pointer, Scalar, Space, Type, Void, value_type
from ..optimize.dead_code import tidy
from ..optimize.scalar_replacement import replace_aggregates
from ..source import Span
from . import expressions, loops, memory, records
from .active_masks import resolve_active_masks
from .barrier_hoisting import checked_barriers, hoist_barriers
from .expressions import check_type, discard, evaluate, scalar
from .grid_parts import plan_of
from .lowering import UNDEFINED, Address, Branch, Cell, Frame, Lowering, Record, Reference, Undefined, Value, Whole, advance

__all__ = ["NONE", "Aliases", "normalize"]

_WHOLE_WARP = Constant(0xFFFFFFFF, U32)


def normalize(function: surface.Function, aliases: Aliases = NONE) -> Kernel:
    """The kernel as core IR. Its parameters are the user's, in order, followed by an int64 `<name>_offset` (in elements) for each
    overlapping parameter that is not equal to its base. Raises UnsupportedError for what the core IR cannot represent."""
    if not isinstance(function.result, Void):
        raise UnsupportedError(f"kernel '{function.name}' returns {function.result}, not void", function.span)
    kernel = _whole(function, aliases)
    barrier = grid_barrier(kernel.body)
    if barrier is None or function.part == surface.GridPart():
        return kernel
    if function.part is None:
        raise UnsupportedError(_GRID, barrier.span)
    return _part(function, function.part, kernel)


_GRID = (
    "grid.sync() is supported in kernels that gpuad.kernel makes of CUDA text, a file, a RawKernel or a RawModule; split the kernel there "
    "into two launches"
)


def host_numbers(function: surface.Function, kernel: Kernel) -> tuple[Var, ...]:
    """The parameters of a kernel that are numbers of its call as they stand."""
    extra = function.part.extra if function.part is not None else ()
    names = {d.name for d in function.parameters if isinstance(d.type, Scalar) and d.name not in extra}
    return tuple(v for v in kernel.scalars if v.name in names)


def _part(function: surface.Function, part: surface.GridPart, kernel: Kernel) -> Kernel:
    """What lies between two barriers of the whole grid."""
    plan, number = plan_of(kernel, host_numbers(function, kernel)), part.number
    assert number is not None
    extra = [p for p in kernel.params if p.name in part.extra]
    signature = plan.signature(number) if number < len(plan.parts) else None
    if signature is None or not signature.fits(extra, part.fixed):
        raise UnsupportedError(f"`{kernel.name}`: arguments that overlap, in a kernel with grid.sync(), are not supported", kernel.span)
    given = dict(zip((*signature.numbers, *signature.arrays), extra, strict=True))
    return plan.assembled(number, given, dict(zip(signature.fixed, part.fixed, strict=True)))


def _whole(function: surface.Function, aliases: Aliases) -> Kernel:
    """Where steps do not fit a kernel's control flow it does without: a launch in which they matter has a race, and is refused as such."""
    if surface.syncs_warps(function.body):
        with contextlib.suppress(UnsupportedError):
            return _lowered(function, aliases, in_step=True)
    return _lowered(function, aliases, in_step=False)


def _lowered(function: surface.Function, aliases: Aliases, in_step: bool) -> Kernel:
    together, apart = surface.works_together(function.body), records.split_variables(function)
    s = Lowering(_sequence, call, nulls(function), barriers=together, in_step=in_step, seen_as=apart)
    enter(s, function)
    params, const = _parameters(s, function, aliases)
    for cell, value in s.given:
        memory.write(s, cell, cell.type, value, function.span, None)
    _sequence(s, function.body.body)
    shared = tuple(Alloc(b, span=function.span) for buffer in s.shared.values() for b in s.grouped(buffer))
    kernel = Kernel(function.name, params, (*shared, *s.out), function.span, const=const)
    together = holds(kernel.body, Barrier, Shuffle)
    kernel = hoist_barriers(resolve_active_masks(kernel)) if together else kernel
    kernel = replace_aggregates(kernel) if holds(kernel.body, Alloc) else kernel
    kernel = replace(kernel, body=tidy(kernel.body))
    return checked_barriers(kernel) if together else kernel


# --- parameters ----------------------------------------------------------------------------------------------------------------------


def _parameters(s: Lowering, function: surface.Function, aliases: Aliases) -> tuple[tuple[Var | Buffer, ...], frozenset[Buffer]]:
    given = [(d, _parameter(s, d)) for d in function.parameters]
    declared, params = [d for d, items in given for _ in items], [item for _, items in given for item in items]
    const = {p for d, p in zip(declared, params, strict=True) if isinstance(p, Buffer) and _is_const(d)}
    offsets: list[Var] = []
    for overlap in aliases.overlaps:
        offsets.extend(_overlay(s, declared, params, overlap))
        if not _is_const(declared[overlap.position]):
            const.discard(_buffer_at(params, overlap.base, declared[overlap.base]))
    s.read_only = set(const)
    return (*params, *offsets), frozenset(const)


def _parameter(s: Lowering, declaration: surface.Declaration) -> tuple[Var | Buffer, ...]:
    """Makes a parameter known; gives those that it is in the core IR."""
    kind, cell, span = declaration.type, s.declare(declaration), declaration.span
    check_type(kind, span)
    if points_to_pointers(kind):
        raise UnsupportedError(f"'{declaration.name}' is a list of arrays, of which a call says how many there are", span)
    if isinstance(kind, Pointer) and not declaration.reference:
        memory = records.memory_of(s, declaration.name, kind.element, Space.GLOBAL, None, span)
        s.env[cell] = Address((memory,))
        s.began(declaration, declaration)
        return s.grouped(memory)
    if holds_pointers(kind):
        raise UnsupportedError(
            f"parameter '{declaration.name}' of type {kind} holds pointers; pass them as parameters of their own, and make the {kind} of "
            "them in the kernel",
            span,
        )
    if declaration.reference or not numbers(kind):
        raise UnsupportedError(f"parameter '{declaration.name}' of type {kind} comes in a later release", span)
    if isinstance(kind, Scalar):
        var = s.var(declaration.name, value_type(kind))
        s.env[cell] = var
        return (var,)
    found = tuple(s.var(own.name, value_type(own.type)) for own in split_parameter(declaration) if isinstance(own.type, Scalar))
    records.define(s, cell, UNDEFINED, span)
    s.given.append((cell, records.gathered(kind, iter(found))))
    return found


def _is_const(declaration: surface.Declaration) -> bool:
    return isinstance(declaration.type, Pointer) and declaration.type.const


def _overlay(s: Lowering, declared: list[surface.Declaration], params: list[Var | Buffer], overlap: Overlap) -> tuple[Var, ...]:
    """Makes a parameter a pointer into its base; gives the extra parameter that this takes. Of several pointers for one parameter the
    first, and where they count in different sizes the one with the smallest, says where the parameter points."""
    own = declared[overlap.position]
    base, mine = _buffer_at(params, overlap.base, own), _buffer_at(params, overlap.position, own)
    if mine.element != base.element:
        raise UnsupportedError(f"'{own.name}' and '{base.name}' overlap, but differ in element type", own.span)
    offset = None if overlap.equal else s.var(f"{mine.name}_offset", I64)
    whole = next((first for first, group in s.groups.items() if base in group.values()), base)
    smallest = min(kind.size for kind in s.groups.get(whole, (base.element,)))
    if base is whole or base.element.size == smallest:
        s.env[s.declare(own)] = Address((whole,), offset=offset)
    return () if offset is None else (offset,)


def _buffer_at(params: list[Var | Buffer], position: int, declaration: surface.Declaration) -> Buffer:
    param = params[position]
    if not isinstance(param, Buffer):
        raise UnsupportedError(f"'{param.name}' is said to overlap, but is no pointer", declaration.span)
    return param


# --- statements ----------------------------------------------------------------------------------------------------------------------


def _sequence(s: Lowering, stmts: tuple[surface.Stmt, ...]) -> None:
    """Lowers statements in order, as far as control reaches them."""
    while stmts:
        alive = s.alive()
        if not isinstance(alive, Constant):
            return s.when_alive(partial(_sequence, s, stmts), stmts[0].span)
        if not alive.value:
            return None
        stmts = _step(s, stmts[0], stmts[1:])
    return None


def _step(s: Lowering, stmt: surface.Stmt, rest: tuple[surface.Stmt, ...]) -> tuple[surface.Stmt, ...]:
    """Lowers one statement and gives those that are still to be lowered after it."""
    match stmt:
        case surface.Block(body=body):
            return body + rest
        case surface.If():
            return _if(s, stmt, rest)
        case surface.Declare():
            _declare(s, stmt)
        case surface.Evaluate(value=value):
            discard(s, value)
        case surface.For():
            loops.lower_for(s, stmt)
        case surface.While() | surface.DoWhile():
            loops.lower_while(s, stmt)
        case surface.Breakable():
            loops.lower_breakable(s, stmt)
        case surface.Return() | surface.Break() | surface.Continue():
            _exit(s, stmt)
        case surface.Barrier(scope=scope, mask=mask):
            named = None if mask is None else folding.cast(scalar(s, mask), U32)
            s.emit(Barrier(scope, None if named == _WHOLE_WARP else named, span=stmt.span))
        case surface.Tell(text=text, values=values, stops=stops):
            s.emit(Tell(text, tuple(scalar(s, v) for v in values), stops, span=stmt.span))
        case _:
            raise UnsupportedError(f"{type(stmt).__name__} is not supported", stmt.span)
    return rest


def _exit(s: Lowering, stmt: surface.Return | surface.Break | surface.Continue) -> None:
    if isinstance(stmt, surface.Return):
        if stmt.value is not None:
            _give(s, stmt.value)
        s.env[s.frame.returned] = folding.TRUE
        return
    if not s.frame.loops:
        raise UnsupportedError("'break' or 'continue' outside a loop", stmt.span)
    exits = s.frame.loops[-1]
    s.env[exits.broken if isinstance(stmt, surface.Break) else exits.skipped] = folding.TRUE


def _give(s: Lowering, value: surface.Expr) -> None:
    """The value that a function returns; named where it must not be evaluated elsewhere."""
    if isinstance(value.type, Void):
        return discard(s, value)
    if s.frame.function.reference:
        s.env[s.frame.result] = returned(s, value)
        return None
    found = evaluate(s, value)
    if isinstance(found, Record):
        records.keep(s, s.frame.result, found, value.span)
        return None
    if isinstance(found, Expr) and folding.can_trap(found):
        found = s.let(s.frame.result.name, found, value.span)
    s.env[s.frame.result] = found
    return None


def _if(s: Lowering, stmt: surface.If, rest: tuple[surface.Stmt, ...]) -> tuple[surface.Stmt, ...]:
    condition = scalar(s, stmt.condition)
    if isinstance(condition, Constant):
        chosen = stmt.then if condition.value else stmt.otherwise
        return rest if chosen is None else (chosen, *rest)
    then = s.fork(lambda: _sequence(s, (stmt.then,)))
    otherwise = s.fork(lambda: _sequence(s, () if stmt.otherwise is None else (stmt.otherwise,)))
    left = s.has_left(then) or s.has_left(otherwise)
    if s.is_dead(then) and not s.is_dead(otherwise):
        otherwise, rest = _go_on(s, otherwise, rest), ()
    elif s.is_dead(otherwise) and not s.is_dead(then):
        then, rest = _go_on(s, then, rest), ()
    leaving = s.barriers and left and not surface.has_barrier((stmt.then, stmt.otherwise))
    s.join(condition, then, otherwise, stmt.span, leaving=leaving)
    return rest


def _go_on(s: Lowering, branch: Branch, rest: tuple[surface.Stmt, ...]) -> Branch:
    return s.resume(branch, lambda: _sequence(s, rest))


# --- declarations --------------------------------------------------------------------------------------------------------------------


def _declare(s: Lowering, stmt: surface.Declare) -> None:
    declaration = stmt.declaration
    if declaration.space == "shared":
        s.share(declaration)
        return
    cell = s.declare(declaration)
    if declaration.reference:
        if stmt.init is None or isinstance(stmt.init, tuple):
            raise UnsupportedError(f"reference '{declaration.name}' without an initialiser", stmt.span)
        s.env[cell] = bind(s, declaration, stmt.init)
    elif isinstance(declaration.type, Array) and is_record(_bottom(declaration.type)):
        _declare_records(s, stmt, declaration.type)
    elif isinstance(declaration.type, Array):
        _declare_array(s, stmt, declaration.type)
    else:
        _declare_value(s, stmt)


def _declare_value(s: Lowering, stmt: surface.Declare) -> None:
    declaration, init = stmt.declaration, stmt.init
    check_type(declaration.type, declaration.span)
    cell = s.declare(declaration)
    if isinstance(init, tuple):
        raise UnsupportedError(f"'{declaration.name}' is initialised by a list", stmt.span)
    value: Value = UNDEFINED if init is None else evaluate(s, init, declaration.name)
    s.began(declaration, s.origin(init) if init is not None else None)
    if is_composite(declaration.type):
        records.define(s, cell, UNDEFINED, stmt.span)
        if isinstance(value, Record):
            memory.write(s, cell, declaration.type, value, stmt.span, None)
        return
    s.env[cell] = s.let(declaration.name, value, stmt.span) if isinstance(value, Expr) else value


def _declare_array(s: Lowering, stmt: surface.Declare, kind: Array) -> None:
    declaration, init = stmt.declaration, stmt.init
    element, length = _bottom(kind), size_of(kind) // size_of(_bottom(kind))
    if not isinstance(element, Scalar):
        raise UnsupportedError(f"an array of {element} comes in a later release", declaration.span)
    if isinstance(init, surface.Expr) or (init is not None and len(init) != length):
        raise UnsupportedError(f"'{declaration.name}' needs {length} initial values", stmt.span)
    cell = s.declare(declaration)
    element = s.taken_apart.get(cell, element)
    buffer = s.buffer(declaration.name, element, Space.LOCAL, length)
    values = [scalar(s, e) for e in init] if init is not None else []
    values = [s.bits(value, element) for value in values] if cell in s.taken_apart else values
    zeros = bool(values) and all(isinstance(v, Constant) and v == folding.zero(element) for v in values)
    s.emit(Alloc(buffer, zeros, span=stmt.span))
    for k, value in enumerate(() if zeros else values):
        s.emit(Store(buffer, Constant(k, I32), value, span=stmt.span))
    s.owners[buffer] = cell
    s.env[cell] = Reference(Address((buffer,)))


def _bottom(kind: Type) -> Type:
    """What is at the bottom of arrays of arrays."""
    return _bottom(kind.element) if isinstance(kind, Array) else kind


def _declare_records(s: Lowering, stmt: surface.Declare, kind: Array) -> None:
    """A local array of vectors or structs."""
    declaration, init = stmt.declaration, stmt.init
    element, length = _bottom(kind), size_of(kind) // size_of(_bottom(kind))
    if isinstance(init, surface.Expr) or (init is not None and len(init) != length):
        raise UnsupportedError(f"'{declaration.name}' needs {length} initial values", stmt.span)
    cell = s.declare(declaration)
    values = [evaluate(s, e) for e in init] if init is not None else []
    records.define(s, cell, UNDEFINED, stmt.span)
    first = expressions.place(s, surface.Name(stmt.span, declaration.type, declaration))
    assert isinstance(first, Address)
    for k, value in enumerate(values):
        at = advance(first, Constant(k, I32), records.stride(s, first, element, stmt.span))
        memory.write(s, at, element, value, stmt.span, None)


MAX_DEPTH = 64


def call(s: Lowering, e: surface.HelperCall) -> Value:
    """The value of a call (UNDEFINED if it has none), its effects emitted."""
    function = e.function
    if len(s.frames) > MAX_DEPTH or any(frame.function is function for frame in s.frames):
        raise UnsupportedError(f"'{function.name}' calls itself; recursion is not supported", e.span)
    if len(function.parameters) != len(e.arguments):
        raise UnsupportedError(f"'{function.name}' takes {len(function.parameters)} arguments, not {len(e.arguments)}", e.span)
    bound = [_argument(s, p, a) for p, a in zip(function.parameters, e.arguments, strict=True)]
    origins = [s.origin(a) for a in e.arguments]
    return _run(s, function, bound, origins, e.span)


def _run(s: Lowering, function: surface.Function, bound: list[Value], origins: list[Origin | None], span: Span) -> Value:
    before = dict(s.env)
    enter(s, function)
    for parameter, value, origin in zip(function.parameters, bound, origins, strict=True):
        _receive(s, parameter, value, span)
        s.began(parameter, origin)
    if function.library:
        s.out.extend(_said_at(s.capture(lambda: _in_library(s, function, span)), span))
    else:
        s.run(s, function.body.body)
    frame = s.frames.pop()
    result = s.env[frame.result]
    if isinstance(result, Whole) or (isinstance(result, Reference) and not function.reference):
        result = memory.read(s, frame.result, function.result, span, function.name)
    s.forget(before)
    if isinstance(result, Undefined) and not isinstance(function.result, Void):
        raise UnsupportedError(f"'{function.name}' returns no value", span)
    return result


def _in_library(s: Lowering, function: surface.Function, span: Span) -> None:
    """Runs a function that the user did not write: what is wrong in it is wrong with the call."""
    try:
        s.run(s, function.body.body)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, span) from None


def _said_at(block: Iterable[Stmt], span: Span) -> Block:
    return tuple(replace(map_blocks(stmt, lambda inner: _said_at(inner, span)), span=span) for stmt in block)


def _receive(s: Lowering, parameter: surface.Declaration, value: Value, span: Span) -> None:
    cell = s.declare(parameter)
    if isinstance(value, Record):
        records.define(s, cell, UNDEFINED, span)
        memory.write(s, cell, parameter.type, value, span, None)
    else:
        s.env[cell] = value


def enter(s: Lowering, function: surface.Function) -> None:
    """Starts a frame."""
    result = s.cell(function.name, function.result)
    s.env[result] = UNDEFINED
    if is_composite(function.result) and not function.reference:
        records.define(s, result, UNDEFINED, function.span)
    s.frames.append(Frame(function, s.flag("returned"), result))


def _argument(s: Lowering, parameter: surface.Declaration, argument: surface.Expr) -> Value:
    if (isinstance(parameter.type, Array) and not parameter.reference) or parameter.space != "local":
        raise UnsupportedError(f"parameter '{parameter.name}' of type {parameter.type}", parameter.span)
    if parameter.reference:
        return bind(s, parameter, argument)
    if _is_undefined(s, argument):
        return UNDEFINED
    value = expressions.evaluate(s, argument, parameter.name)
    return s.let(parameter.name, value, argument.span) if isinstance(value, Expr) else value


def _is_undefined(s: Lowering, argument: surface.Expr) -> bool:
    """True if a number without a value is passed on; that is no error as long as it is not used."""
    while isinstance(argument, surface.Cast) and argument.type == argument.operand.type:
        argument = argument.operand
    if not isinstance(argument, surface.Name) or is_composite(argument.type):
        return False
    at = expressions.place(s, argument)
    return isinstance(at, Cell) and isinstance(s.env.get(at), Undefined)


def bind(s: Lowering, declaration: surface.Declaration, to: surface.Expr) -> Reference:
    """What a reference stands for: the lvalue `to`, or a temporary that holds its value."""
    while isinstance(to, surface.Cast) and to.type == to.operand.type:
        to = to.operand
    if expressions.is_place(to):
        return Reference(expressions.place(s, to))
    value = expressions.evaluate(s, to, declaration.name)
    temporary = s.cell(declaration.name, declaration.type)
    if isinstance(value, Record):
        records.define(s, temporary, UNDEFINED, to.span)
        memory.write(s, temporary, declaration.type, value, to.span, None)
        return Reference(temporary)
    s.env[temporary] = s.let(declaration.name, value, to.span) if isinstance(value, Expr) else value
    return Reference(temporary)


def returned(s: Lowering, value: surface.Expr) -> Reference:
    """What a function returns by reference."""
    return Reference(expressions.place(s, surface.chosen_place(value)))
