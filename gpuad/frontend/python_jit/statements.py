"""Statements, by the kind of their node. A variable has the type of its first value and lives in its function, as in CuPy.

In: the context of a function and statements of Python's `ast`. Out: statements of the surface tree. A variable is declared at its first
assignment if that is at the function's top level, or if no statement outside of this block names it; else at the beginning of the function.
A later value is converted to its type. `for` runs over `range` only, with bounds evaluated once before it; a branch on a constant is taken
at lowering.

Raises UnsupportedError for kinds without a handler (`fence`), CompileError for what CuPy rejects too, such as a float stored to an int."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...errors import CompileError
from ...ir import surface
from ...ir.surface import Expr as Node
from ...ir.types import BOOL, Complex, Scalar, Type
from ...source import Span
from ..cuda.types import constant
from . import complexes, fence
from .context import Context, occurrences
from .expressions import expression
from .operators import binary
from .signature import scalar_of_number
from .typing_rules import as_type, common, described, quotient, stored, truth, type_of
from .values import Action, Any_, ArrayValue, Items, Range, SharedValue, Static, Value


def block(ctx: Context, body: Sequence[ast.stmt], top: bool) -> tuple[surface.Stmt, ...]:
    """Statements in order. `top`: of the function itself, so a variable that begins here can be declared here."""
    scope = occurrences(list(body))
    return tuple(s for node in body for s in _statement(ctx, node, top, scope))


Scope = dict[str, int]


def _statement(ctx: Context, node: ast.stmt, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    handler = _HANDLERS.get(type(node))
    if handler is None:
        ctx.refuse(node, fence.message(node))
    return handler(ctx, node, top, scope)


# --- assignments ---------------------------------------------------------------------------------------------------------------------


def _assign(ctx: Context, node: ast.Assign, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    if len(node.targets) != 1:
        ctx.refuse(node, fence.TARGETS)
    return _store(ctx, node.targets[0], expression(ctx, node.value), node, top, scope)


def _store(ctx: Context, target: ast.expr, value: Any_, node: ast.stmt, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    if isinstance(target, ast.Name):
        return _variable(ctx, target, value, node, top, scope)
    if isinstance(target, ast.Subscript):
        place = _element(ctx, target)
        span = ctx.span(node)
        return (surface.Evaluate(span, surface.Assign(span, place.kind, place.expr, _fitting(value, place.kind, "the element", span))),)
    if not isinstance(target, ast.Tuple):
        ctx.refuse(target, fence.message(target))
    return _unpack(ctx, target, value, node, top, scope)


def _variable(ctx: Context, target: ast.Name, value: Any_, node: ast.stmt, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    known, span = ctx.names.get(target.id), ctx.span(node)
    if isinstance(known, surface.Declaration):
        expr = _fitting(value, known.type, f"`{target.id}`", span)
        return (surface.Evaluate(span, surface.Assign(span, known.type, surface.Name(ctx.span(target), known.type, known), expr)),)
    number = isinstance(value, Static) and (scalar_of_number(value.value) is not None or complexes.is_complex(value))
    if not isinstance(value, Value) and not number:
        return _alias(ctx, target, value, top)
    if known is not None:
        ctx.mistake(target, f"`{target.id}` is {described(known)} already and cannot become a number")
    return _begin(ctx, target, complexes.number(value, span), span, top, scope)


def _fitting(value: Any_, type_: Type, what: str, span: Span) -> Node:
    """A number for a variable or element of a type; a constant has the type that it has by itself first, so 0.1 is rounded to float32.
    CompileError where a complex one would become real."""
    if isinstance(value, Static) and (scalar_of_number(value.value) is not None or complexes.is_complex(value)):
        value = complexes.number(value, span)
    if isinstance(type_, Complex):
        return complexes.as_complex(value, type_, span)
    assert isinstance(type_, Scalar)
    if complexes.is_complex(value):
        raise CompileError(f"{what} is {type_} and cannot take a {complexes.kind_of(value, span)}; write z.real", span)
    return stored(value, type_, what, span)


def _begin(ctx: Context, target: ast.Name, value: Value, span: Span, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    """The first value of a variable: declared here where it is not used outside of this block, else at the function's beginning."""
    declaration = ctx.program.declare(ctx.span(target), target.id, value.kind)
    ctx.names[target.id] = declaration
    if top or scope.get(target.id) == ctx.uses[target.id]:
        return (surface.Declare(span, declaration, value.expr),)
    ctx.hoisted.append(surface.Declare(span, declaration, None))
    return (
        surface.Evaluate(
            span, surface.Assign(span, declaration.type, surface.Name(ctx.span(target), declaration.type, declaration), value.expr)
        ),
    )


def _alias(ctx: Context, target: ast.Name, value: Any_, top: bool) -> tuple[surface.Stmt, ...]:
    """Another name for something that is no number: a function, an array, a tuple."""
    if isinstance(value, SharedValue):
        return _shared(ctx, target, value, top)
    if not top or ctx.names.get(target.id) is not None:
        ctx.refuse(target, f"`{target.id}` = {described(value)}: only numbers can be assigned here")
    if isinstance(value, Items):
        statements, items = _kept(ctx, value, ctx.span(target))
        ctx.names[target.id] = Items(items)
        return statements
    if isinstance(value, ArrayValue) and value.indices:
        ctx.refuse(target, "a part of an array cannot be assigned to a name; index it where it is used")
    ctx.names[target.id] = value
    return ()


def _shared(ctx: Context, target: ast.Name, value: SharedValue, top: bool) -> tuple[surface.Stmt, ...]:
    """A name for shared memory, declared under it."""
    if not top or ctx.names.get(target.id) is not None:
        ctx.refuse(target, fence.SHARED_PLACE)
    declaration = replace(value.declaration, name=target.id)
    ctx.names[target.id] = replace(value, declaration=declaration)
    return (surface.Declare(ctx.span(target), declaration, None),)


def _kept(ctx: Context, value: Items, span: Span) -> tuple[tuple[surface.Stmt, ...], tuple[Static | Value, ...]]:
    """The values of a tuple, each evaluated once and now."""
    statements: list[surface.Stmt] = []
    items: list[Static | Value] = []
    for k, item in enumerate(value.items):
        if isinstance(item, Static):
            items.append(item)
            continue
        item = complexes.number(item, span)
        declaration = ctx.program.declare(span, f"item{k}", item.kind)
        statements.append(surface.Declare(span, declaration, item.expr))
        items.append(Value(surface.Name(span, item.kind, declaration)))
    return tuple(statements), tuple(items)


def _unpack(ctx: Context, target: ast.Tuple, value: Any_, node: ast.stmt, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    if isinstance(value, Static) and isinstance(value.value, tuple):
        value = Items(tuple(Static(v) for v in value.value))
    if not isinstance(value, Items):
        ctx.mistake(node, f"{described(value)} cannot be unpacked")
    if len(value.items) != len(target.elts):
        ctx.mistake(node, f"{len(value.items)} values for {len(target.elts)} names")
    new = all(isinstance(p, ast.Name) and p.id not in ctx.names for p in target.elts)
    statements, items = ((), value.items) if new else _kept(ctx, value, ctx.span(node))
    for part, item in zip(target.elts, items, strict=True):
        statements += _store(ctx, part, item, node, top, scope)
    return statements


def _augmented(ctx: Context, node: ast.AugAssign, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    """`x += v`: the type of the operation, then that of the target."""
    span, value = ctx.span(node), expression(ctx, node.value)
    place = _element(ctx, node.target) if isinstance(node.target, ast.Subscript) else expression(ctx, node.target)
    if not isinstance(place, Value) or not isinstance(value, Static | Value):
        ctx.mistake(node, "only numbers can be changed in place")
    if not _is_whole(value):
        value = complexes.number(value, span)
    if complexes.is_complex(place, value):
        return _complex_augmented(ctx, node, place, value)
    op = _COMPOUND.get(type(node.op))
    if op is None or place.type == BOOL:
        _check_evaluated_twice(ctx, node, place)
        changed = binary(ctx.program, node.op, place, value, span)
        return (surface.Evaluate(span, surface.Assign(span, place.type, place.expr, stored(changed, place.type, "the target", span))),)
    shared = quotient(place.type, type_of(value, span)) if op == "/" else common(place.type, type_of(value, span))
    if shared.is_float and not place.type.is_float:
        ctx.mistake(node, f"the target is {place.type} and cannot take a {shared}; begin with a float")
    if shared.is_float and op in ("<<", ">>", "|", "&", "^"):
        ctx.mistake(node, f"this operator is not for {shared}")
    return (surface.Evaluate(span, surface.Assign(span, place.type, place.expr, as_type(value, shared, span), op, shared)),)


def _complex_augmented(ctx: Context, node: ast.AugAssign, place: Value, value: Static | Value) -> tuple[surface.Stmt, ...]:
    span = ctx.span(node)
    _check_evaluated_twice(ctx, node, place)
    changed = complexes.binary(node.op, place, value, span)
    return (surface.Evaluate(span, surface.Assign(span, place.kind, place.expr, _fitting(changed, place.kind, "the target", span))),)


def _is_whole(value: Static | Value) -> bool:
    """True if a value is a constant that is the same number in every type."""
    return isinstance(value, Static) and isinstance(value.value, int | np.integer)


def _check_evaluated_twice(ctx: Context, node: ast.AugAssign, place: Value) -> None:
    if surface.has_effects(place.expr):
        ctx.refuse(node.target, "a target whose index is a call or an atomic operation: assign the index to a variable first")


_COMPOUND: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>",
}  # fmt: skip


def _element(ctx: Context, target: ast.Subscript) -> Value:
    place = expression(ctx, target)
    if isinstance(place, ArrayValue):
        ctx.refuse(target, fence.SLICED)
    if not isinstance(place, Value):
        ctx.mistake(target, "only elements of arrays can be assigned")
    return place


def _scalar(declaration: surface.Declaration) -> Scalar:
    assert isinstance(declaration.type, Scalar)
    return declaration.type


# --- control -------------------------------------------------------------------------------------------------------------------------


def _if(ctx: Context, node: ast.If, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    condition = expression(ctx, node.test)
    if isinstance(condition, Static):
        return block(ctx, node.body if condition.value else node.orelse, top)
    span = ctx.span(node)
    then = surface.Block(span, block(ctx, node.body, False))
    otherwise = surface.Block(span, block(ctx, node.orelse, False)) if node.orelse else None
    return (surface.If(span, truth(condition, span), then, otherwise),)


def _while(ctx: Context, node: ast.While, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    if node.orelse:
        ctx.refuse(node.orelse[0], fence.ORELSE)
    span = ctx.span(node)
    return (surface.While(span, truth(expression(ctx, node.test), span), surface.Block(span, block(ctx, node.body, False))),)


def _for(ctx: Context, node: ast.For, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    if node.orelse:
        ctx.refuse(node.orelse[0], fence.ORELSE)
    span, over = ctx.span(node), expression(ctx, node.iter)
    if not isinstance(over, Range):
        ctx.refuse(node.iter, fence.LOOPS)
    if not isinstance(node.target, ast.Name):
        ctx.refuse(node.target, fence.message(node.target))
    name, type_ = node.target.id, type_of(over.stop, span)
    known = ctx.names.get(name)
    if known is not None and not (isinstance(known, surface.Declaration) and known.type == type_):
        ctx.mistake(node.target, f"`{name}` is something else already; name the loop's variable differently")
    before: list[surface.Stmt] = []
    stop, step = (_bound(ctx, v, type_, what, before, span) for v, what in ((over.stop, "stop"), (over.step, "step")))
    own = known is None and _only_here(ctx, name)
    counter = ctx.program.declare(ctx.span(node.target), name, type_)
    at = surface.Name(span, type_, counter)
    init = surface.Declare(span, counter, as_type(over.start, type_, span))
    advance = surface.Assign(span, type_, at, step, "+", type_)
    first: tuple[surface.Stmt, ...] = ()
    if own:
        ctx.names[name] = counter
    else:
        first = _copy(ctx, name, known, at, span)
    body = (*first, *block(ctx, node.body, False))
    if own:
        del ctx.names[name]
    return (*before, surface.For(span, init, _condition(over, at, stop, span), advance, surface.Block(span, body)))


def _only_here(ctx: Context, name: str) -> bool:
    """True if a loop's variable is only read, and only in the loop's body (or is that of other loops likewise)."""
    loops = [n for n in ast.walk(ctx.source.tree) if isinstance(n, ast.For) and isinstance(n.target, ast.Name) and n.target.id == name]
    inside = sum(occurrences([*n.body])[name] + 1 for n in loops)
    stores = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(ctx.source.tree))
    nested = any(inner is not n for n in loops for inner in ast.walk(n) if inner in loops)
    return not nested and inside == ctx.uses[name] and stores == len(loops)


def _copy(ctx: Context, name: str, known: Any_ | surface.Declaration | None, at: Node, span: Span) -> tuple[surface.Stmt, ...]:
    """The assignment to the function's variable with which an iteration begins."""
    if not isinstance(known, surface.Declaration):
        known = ctx.program.declare(span, name, at.type)
        ctx.names[name] = known
        ctx.hoisted.append(surface.Declare(span, known, None))
    return (surface.Evaluate(span, surface.Assign(span, known.type, surface.Name(span, known.type, known), at)),)


def _bound(ctx: Context, value: Static | Value, type_: Scalar, what: str, before: list[surface.Stmt], span: Span) -> Node:
    """A bound of a loop, evaluated before it."""
    expr = as_type(value, type_, span)
    if isinstance(value, Static):
        return expr
    declaration = ctx.program.declare(span, what, type_, const=True)
    before.append(surface.Declare(span, declaration, expr))
    return surface.Name(span, type_, declaration)


def _condition(over: Range, at: Node, stop: Node, span: Span) -> Node:
    up, down = surface.Binary(span, BOOL, "<", at, stop), surface.Binary(span, BOOL, ">", at, stop)
    if isinstance(over.step, Static):
        return up if over.step.value > 0 else down
    type_ = type_of(over.step, span)
    if not type_.is_signed:
        return up
    return surface.Conditional(
        span, BOOL, surface.Binary(span, BOOL, ">=", as_type(over.step, type_, span), constant(span, type_, 0)), up, down
    )


def _return(ctx: Context, node: ast.Return, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    span = ctx.span(node)
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        return (surface.Return(span, None),)
    if ctx.layout is None:
        ctx.mistake(node, "a kernel returns nothing; write into an array")
    value = expression(ctx, node.value)
    if not isinstance(value, Static | Value):
        ctx.refuse(node, "a device function returns one number")
    number = complexes.number(value, span)
    if ctx.result is not None and ctx.result != number.kind:
        ctx.mistake(node, f"this returns a {number.kind}, another return of the function a {ctx.result}")
    ctx.result = number.kind
    return (surface.Return(span, number.expr),)


def _expression(ctx: Context, node: ast.Expr, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    value = expression(ctx, node.value)
    if isinstance(value, SharedValue):
        ctx.refuse(node, fence.SHARED_PLACE)
    if isinstance(value, Action):
        return (value.statement,)
    return (surface.Evaluate(ctx.span(node), value.expr),) if isinstance(value, Value) else ()


def _nothing(ctx: Context, node: ast.Pass, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    return ()


def _break(ctx: Context, node: ast.Break, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    return (surface.Break(ctx.span(node)),)


def _continue(ctx: Context, node: ast.Continue, top: bool, scope: Scope) -> tuple[surface.Stmt, ...]:
    return (surface.Continue(ctx.span(node)),)


_HANDLERS: dict[type[ast.stmt], Callable[..., tuple[surface.Stmt, ...]]] = {
    ast.Assign: _assign, ast.AugAssign: _augmented, ast.If: _if, ast.While: _while, ast.For: _for, ast.Return: _return,
    ast.Expr: _expression, ast.Pass: _nothing, ast.Break: _break, ast.Continue: _continue,
}  # fmt: skip
