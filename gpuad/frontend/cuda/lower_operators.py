"""Operators and casts."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, TypeKind

from ...ir.records import alike
from ...ir.surface import AddressOf, Assign, Binary, Cast, Comma, Conditional, Constant, Expr, IncDec, Logical, PointerAdd, Unary
from ...ir.types import BOOL, I64, Array, Pointer, Scalar, Type
from .clang_c import binary_operator, children, evaluate, same_extent, unary_operator
from .context import Context
from .lower_memory import address, dereferenced
from .types import common, convert, explicit, lower_parameter, promoted
from .variables import initial_value

_COMPARISONS = {"<", ">", "<=", ">=", "==", "!="}
_SHIFTS = {"<<", ">>"}
_ARITHMETIC = {"+", "-", "*", "/", "%", "&", "|", "^"} | _SHIFTS


def implicit(ctx: Context, cursor: Cursor) -> Expr:
    """A node that the bindings do not name: taken for a conversion if it adds no token of its own to its only child, else refused."""
    inner = children(cursor)
    if len(inner) != 1 or not same_extent(cursor, inner[0]):
        ctx.refuse(cursor, "this expression is not supported")
    if cursor.type == inner[0].type:
        return ctx.expression(inner[0])
    target = lower_parameter(
        cursor.type, ctx.span(cursor)
    )  # the bindings show a conversion to an array parameter's type as one to an array
    if isinstance(target, Pointer) and _is_null(inner[0]):
        return Constant(ctx.span(cursor), target, 0)
    if target == BOOL and _is_text(inner[0]):  # as in `assert(n > 0 && "there is nothing")`
        return Constant(ctx.span(cursor), BOOL, True)
    value = ctx.expression(inner[0])
    if isinstance(value.type, Array) and cursor.type.get_canonical().kind == TypeKind.CONSTANTARRAY:  # only const has been added
        return value
    return convert(value, target, ctx.span(cursor), implicit=True)


def _is_text(cursor: Cursor) -> bool:
    while cursor.kind in (CursorKind.PAREN_EXPR, CursorKind.UNEXPOSED_EXPR) and len(inner := children(cursor)) == 1:
        cursor = inner[0]
    return bool(cursor.kind == CursorKind.STRING_LITERAL)


def _is_null(cursor: Cursor) -> bool:
    """True for `nullptr` and for a literal 0."""
    while cursor.kind in (CursorKind.PAREN_EXPR, CursorKind.UNEXPOSED_EXPR) and len(inner := children(cursor)) == 1:
        cursor = inner[0]
    zero = cursor.kind == CursorKind.INTEGER_LITERAL and evaluate(cursor) == 0
    return zero or cursor.kind in (CursorKind.CXX_NULL_PTR_LITERAL_EXPR, CursorKind.GNU_NULL_EXPR)


def parenthesised(ctx: Context, cursor: Cursor) -> Expr:
    """`(x)`."""
    (inner,) = children(cursor)
    return ctx.expression(inner)


def cast(ctx: Context, cursor: Cursor) -> Expr:
    """`(float)x`, `float(x)`, `static_cast<float>(x)`, `const_cast<float*>(x)`."""
    target, inner = ctx.type(cursor), [child for child in children(cursor) if child.kind.is_expression()]
    if not inner:
        ctx.refuse(cursor, "this cast is not supported")
    if isinstance(target, Pointer) and _is_null(inner[-1]):
        return Constant(ctx.span(cursor), target, 0)
    if _is_place(inner[-1]) and ctx.type(inner[-1]) != target:
        return _reinterpreted(ctx, cursor, ctx.lvalue(inner[-1]), target)
    if inner[-1].kind == CursorKind.INIT_LIST_EXPR:
        return explicit(initial_value(ctx, target, inner[-1]), target, ctx.span(cursor))
    if cursor in ctx.cuts:
        return Cast(ctx.span(cursor), target, ctx.expression(inner[-1]), False, cuts=True)
    return explicit(ctx.expression(inner[-1]), target, ctx.span(cursor))


def _reinterpreted(ctx: Context, cursor: Cursor, place: Expr, target: Type) -> Expr:
    """`reinterpret_cast<float4&>(x[4 * i])`."""
    if not alike(place.type, target):
        ctx.refuse(cursor, "a cast to a reference of another type reinterprets memory, which a derivative cannot follow")
    span = ctx.span(cursor)
    return dereferenced(convert(AddressOf(span, Pointer(place.type), place), Pointer(target), span, implicit=False))


def _is_place(cursor: Cursor) -> bool:
    """True for an lvalue that is not read: clang shows the reading of a variable as a node around it."""
    while cursor.kind == CursorKind.PAREN_EXPR:
        (cursor,) = children(cursor)
    if cursor.kind == CursorKind.DECL_REF_EXPR:
        declared = cursor.referenced  # None for a number that stands for a template's parameter
        return declared is not None and bool(declared.kind in (CursorKind.VAR_DECL, CursorKind.PARM_DECL))
    places = (CursorKind.ARRAY_SUBSCRIPT_EXPR, CursorKind.MEMBER_REF_EXPR)
    return cursor.kind in places or (cursor.kind == CursorKind.UNARY_OPERATOR and unary_operator(cursor) == "*")


def braced(ctx: Context, cursor: Cursor) -> Expr:
    """`{x}` as the value of a number."""
    return initial_value(ctx, ctx.type(cursor), cursor)


def conditional(ctx: Context, cursor: Cursor) -> Expr:
    """`c ? a : b`."""
    condition, then, otherwise = (ctx.expression(child) for child in children(cursor))
    if then.type != otherwise.type:
        ctx.refuse(cursor, "the two sides of ?: have different types")
    return Conditional(ctx.span(cursor), then.type, condition, then, otherwise)


def unary(ctx: Context, cursor: Cursor) -> Expr:
    """Operators with one operand."""
    operator, (operand,) = unary_operator(cursor), children(cursor)
    if operator in ("x++", "x--", "++x", "--x"):
        target = ctx.lvalue(operand)
        return IncDec(ctx.span(cursor), target.type, target, operator.strip("x")[0], operator.endswith("x"))
    if operator == "&":
        return address(ctx, cursor)
    if operator == "*":
        return dereferenced(ctx.expression(operand))
    if operator == "+":
        return ctx.expression(operand)
    if operator not in ("-", "~", "!"):
        ctx.refuse(cursor, f"the operator {operator} is not supported")
    return Unary(ctx.span(cursor), ctx.type(cursor), operator, ctx.expression(operand))


def binary(ctx: Context, cursor: Cursor) -> Expr:
    """Operators with two operands, plain assignment among them."""
    operator, (left, right) = binary_operator(cursor), children(cursor)
    if operator == "=":
        return _assignment(ctx, cursor, left, right)
    if operator == ",":
        first, second = ctx.expression(left), ctx.expression(right)
        return Comma(ctx.span(cursor), second.type, first, second)
    if operator in ("&&", "||"):
        return Logical(ctx.span(cursor), BOOL, operator, ctx.expression(left), ctx.expression(right))
    if operator not in _ARITHMETIC | _COMPARISONS:
        ctx.refuse(cursor, f"the operator {operator} is not supported")
    return _arithmetic(ctx, cursor, operator, ctx.expression(left), ctx.expression(right))


def _arithmetic(ctx: Context, cursor: Cursor, operator: str, left: Expr, right: Expr) -> Expr:
    pointers = sum(isinstance(side.type, Pointer) for side in (left, right))
    if operator in ("+", "-") and pointers == 1:
        return _moved(ctx, cursor, operator, left, right)
    result = ctx.type(cursor)
    if (operator not in _SHIFTS and left.type != right.type and pointers < 2) or not isinstance(result, Scalar):
        ctx.refuse(cursor, f"the operands have types that do not go together ({left.type} and {right.type})")
    return Binary(ctx.span(cursor), result, operator, left, right)


def _moved(ctx: Context, cursor: Cursor, operator: str, left: Expr, right: Expr) -> PointerAdd:
    """`p + i`, `i + p`, `p - i`."""
    pointer, offset = (left, right) if isinstance(left.type, Pointer) else (right, left)
    if operator == "-":  # negated in 64 bits: the negative of an unsigned offset would wrap
        offset = Unary(offset.span, I64, "-", convert(offset, I64, offset.span, implicit=True))
    return PointerAdd(ctx.span(cursor), pointer.type, pointer, offset)


def _assignment(ctx: Context, cursor: Cursor, left: Cursor, right: Cursor) -> Expr:
    target = ctx.lvalue(left)
    value = initial_value(ctx, target.type, right) if right.kind == CursorKind.INIT_LIST_EXPR else ctx.expression(right)
    if value.type != target.type:
        ctx.refuse(cursor, f"an assignment of {value.type} to {target.type} is not supported")
    return Assign(ctx.span(cursor), target.type, target, value)


def compound(ctx: Context, cursor: Cursor) -> Expr:
    """`x += y` and its kin. clang shows no conversion here, so C's are applied: the operation is done in the common type of both sides."""
    operator, (left, right) = binary_operator(cursor).removesuffix("="), children(cursor)
    target, value, span = ctx.lvalue(left), ctx.expression(right), ctx.span(cursor)
    if isinstance(target.type, Pointer):
        return _moved_pointer(ctx, cursor, operator, target, value)
    if not isinstance(target.type, Scalar) or not isinstance(value.type, Scalar) or operator not in _ARITHMETIC:
        ctx.refuse(cursor)
    if operator in _SHIFTS:
        return Assign(span, target.type, target, value, operator, promoted(target.type))
    computation = common(target.type, value.type)
    return Assign(span, target.type, target, convert(value, computation, value.span, implicit=True), operator, computation)


def _moved_pointer(ctx: Context, cursor: Cursor, operator: str, target: Expr, value: Expr) -> Expr:
    moved = _moved(ctx, cursor, operator, target, value)
    return Assign(ctx.span(cursor), target.type, target, moved)
