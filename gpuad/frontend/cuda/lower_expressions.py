"""Expressions: names, constants and memory, which they start from; operators and casts.

In: the context of a kernel and libclang's cursor of an expression; the functions are handlers of kinds of cursors (`parse` has the table).
Out: nodes of the surface tree, each with its type and its place in the user's text. A node that the bindings do not name is taken for a
conversion if it adds no token to its only child. Compound assignments get the usual arithmetic conversions here (C++ standard,
[expr.arith.conv]), since clang shows none.

Assumes a translation unit without errors. Guarantees that the operands of an arithmetic operation or comparison have one type, shifts and
pointers aside. Raises UnsupportedError at the cursor for everything else; a cast to a reference of another layout is among it."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, TypeKind

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.records import alike, is_record
from ...ir.types import BOOL, I32, I64, U32, Array, Pointer, Scalar, Type, Vector, common_type, promoted
from .clang_c import binary_operator, children, descendants, evaluate, initializer, is_shared, same_extent, unary_operator
from .context import Context
from .fence import FUNCTION_POINTER
from .initialisers import initial_value, initial_values
from .pointer_arrays import ENTRY, all_entries, entry
from .translation_unit import is_ours
from .types import constant, convert, explicit, is_const, is_void_pointer, lower_parameter
from .variables import global_shared, module_variable

_AROUND = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR, CursorKind.CSTYLE_CAST_EXPR, CursorKind.CXX_STATIC_CAST_EXPR)
LAUNCH = {"threadIdx", "blockIdx", "blockDim", "gridDim"}
_WARP_SIZE = 32


def literal(ctx: Context, cursor: Cursor) -> surface.Expr:
    """A number, character, bool, `sizeof`, or a call that clang itself can compute."""
    value, type_ = evaluate(cursor), ctx.type(cursor)
    if value is None or not isinstance(type_, Scalar):
        ctx.refuse(cursor)
    return constant(ctx.span(cursor), type_, value)


def null(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`nullptr` on its own, as an integer 0; the conversion around it gives the pointer's type."""
    return surface.Constant(ctx.span(cursor), I64, 0)


def name(ctx: Context, cursor: Cursor) -> surface.Expr:
    """A variable, a parameter, an enumerator or a constant of the file."""
    declared = cursor.referenced
    if declared is not None and (own := ctx.entries.get(declared)) is not None:
        return all_entries(ctx, cursor, own)
    known = ctx.declarations.get(declared) if declared is not None else None
    if known is not None:
        return surface.Name(ctx.span(cursor), known.type, known)
    if declared is None or declared.kind == CursorKind.UNEXPOSED_DECL:
        return _substituted(ctx, cursor)
    if declared.kind == CursorKind.ENUM_CONSTANT_DECL:
        return constant(ctx.span(cursor), _scalar(ctx, cursor), declared.enum_value)
    if declared in ctx.functions:
        ctx.refuse(cursor, FUNCTION_POINTER)
    if declared.kind == CursorKind.VAR_DECL:
        return _global(ctx, cursor, declared.get_definition() or declared)
    if declared.kind == CursorKind.FUNCTION_DECL:
        ctx.refuse(cursor, FUNCTION_POINTER)
    return ctx.refuse(cursor, f"the name {cursor.spelling} is not supported here")


def _substituted(ctx: Context, cursor: Cursor) -> surface.Expr:
    """What an instance of a template has in the place of a parameter that is a number; or an instance of a template for a constant."""
    value = evaluate(cursor)
    if value is None:
        ctx.refuse(
            cursor, f"the name {cursor.spelling} is not supported here" if cursor.spelling else "this template argument is not supported"
        )
    return constant(ctx.span(cursor), _scalar(ctx, cursor), value)


def _scalar(ctx: Context, cursor: Cursor) -> Scalar:
    type_ = ctx.type(cursor)
    if not isinstance(type_, Scalar):
        ctx.refuse(cursor)
    return type_


def _global(ctx: Context, use: Cursor, variable: Cursor) -> surface.Expr:
    if is_ours(variable) and variable.spelling == "warpSize":
        return surface.Constant(ctx.span(use), I32, _WARP_SIZE)
    if is_ours(variable) and variable.spelling in LAUNCH:
        span = ctx.span(use)
        return surface.Record(span, Vector(U32, 3), tuple(surface.LaunchIndex(span, U32, variable.spelling, axis) for axis in "xyz"))
    if is_ours(variable) and not is_const(variable.type):
        ctx.refuse(use, f"{variable.spelling} is not supported here")
    if is_shared(variable):
        shared = global_shared(ctx, variable)
        return surface.Name(ctx.span(use), shared.type, shared)
    start = initializer(variable)
    if not is_const(variable.type) or start is None:
        return module_variable(ctx, use, variable)
    type_ = ctx.type(variable)
    return _table(ctx, use, variable, start) if isinstance(type_, Array) else _folded(ctx, use, variable, start, type_)


def _folded(ctx: Context, use: Cursor, variable: Cursor, start: Cursor, type_: Type) -> surface.Expr:
    """The value of a constant of the file."""
    if is_record(type_) and start.kind == CursorKind.INIT_LIST_EXPR:
        return initial_value(ctx, type_, start)
    number = evaluate(start)
    if number is None or not isinstance(type_, Scalar):
        ctx.refuse(use, f"the value of {variable.spelling} is not known to the compiler")
    return constant(ctx.span(use), type_, number)


def _table(ctx: Context, use: Cursor, variable: Cursor, start: Cursor) -> surface.Expr:
    """A table of numbers at file scope becomes a local array of each function that reads it."""
    for known in ctx.tables[-1]:
        if known.declaration.name == variable.spelling and known.span == ctx.span(variable):
            return surface.Name(ctx.span(use), known.declaration.type, known.declaration)
    declaration = ctx.fresh(ctx.span(variable), variable.spelling, ctx.type(variable), const=True)
    ctx.tables[-1].append(surface.Declare(declaration.span, declaration, initial_values(ctx, declaration.type, start)))
    return surface.Name(ctx.span(use), declaration.type, declaration)


def subscript(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`a[i]`, or `i[a]`."""
    if (known := entry(ctx, cursor)) is not None:
        return known
    left, right = (ctx.expression(child) for child in children(cursor))
    pointer, index = (left, right) if isinstance(left.type, Pointer) else (right, left)
    if not isinstance(pointer.type, Pointer) or not isinstance(index.type, Scalar):
        ctx.refuse(cursor)
    return surface.Index(ctx.span(cursor), pointer.type.element, pointer, index)


def dereferenced(pointer: surface.Expr) -> surface.Expr:
    """`*pointer`, written as the lvalue that it is where that is known."""
    if isinstance(pointer, surface.AddressOf):
        return pointer.lvalue
    if not isinstance(pointer.type, Pointer):
        raise UnsupportedError("only a pointer can be dereferenced", pointer.span)
    return surface.Deref(pointer.span, pointer.type.element, pointer)


def address(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`&x`."""
    (operand,) = children(cursor)
    lvalue = ctx.lvalue(operand)
    if isinstance(lvalue.type, Array):
        ctx.refuse(cursor, "the address of a whole array is not supported; an array's name is a pointer to its first element")
    if isinstance(lvalue.type, Pointer):
        ctx.refuse(cursor, "pointers to pointers are not supported")
    return surface.AddressOf(ctx.span(cursor), ctx.type(cursor), lvalue)


_COMPARISONS = {"<", ">", "<=", ">=", "==", "!="}
_SHIFTS = {"<<", ">>"}
_ARITHMETIC = {"+", "-", "*", "/", "%", "&", "|", "^"} | _SHIFTS


def implicit(ctx: Context, cursor: Cursor) -> surface.Expr:
    """A node that the bindings do not name: taken for a conversion if it adds no token of its own to its only child, else refused."""
    inner = children(cursor)
    if not inner and (known := evaluate(cursor)) is not None and isinstance(type_ := ctx.type(cursor), Scalar):  # `T()`
        return constant(ctx.span(cursor), type_, known)
    if len(inner) != 1 or not same_extent(cursor, inner[0]):
        ctx.refuse(cursor, "this expression is not supported")
    if cursor.type == inner[0].type:
        return ctx.expression(inner[0])
    target = lower_parameter(
        cursor.type, ctx.span(cursor)
    )  # the bindings show a conversion to an array parameter's type as one to an array
    if isinstance(target, Pointer) and _is_null(inner[0]):
        return surface.Constant(ctx.span(cursor), target, 0)
    if target == BOOL and _is_text(inner[0]):  # as in `assert(n > 0 && "there is nothing")`
        return surface.Constant(ctx.span(cursor), BOOL, True)
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


def parenthesised(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`(x)`."""
    (inner,) = children(cursor)
    return ctx.expression(inner)


def cast(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`(float)x`, `float(x)`, `static_cast<float>(x)`, `const_cast<float*>(x)`."""
    target, inner = ctx.type(cursor), [child for child in children(cursor) if child.kind.is_expression()]
    while inner and isinstance(target, Pointer) and is_void_pointer(inner[-1]) and inner[-1].kind in _AROUND:
        inner = [child for child in children(inner[-1]) if child.kind.is_expression()]  # what was a pointer to a type before
    if not inner:
        ctx.refuse(cursor, "this cast is not supported")
    if isinstance(target, Pointer) and _is_null(inner[-1]):
        return surface.Constant(ctx.span(cursor), target, 0)
    if _is_place(inner[-1]) and ctx.type(inner[-1]) != target:
        return _reinterpreted(ctx, cursor, ctx.lvalue(inner[-1]), target)
    if inner[-1].kind == CursorKind.INIT_LIST_EXPR:
        return explicit(initial_value(ctx, target, inner[-1]), target, ctx.span(cursor))
    if cursor in ctx.cuts:
        return surface.Cast(ctx.span(cursor), target, ctx.expression(inner[-1]), False, cuts=True)
    return explicit(_whole(ctx, inner[-1]) or ctx.expression(inner[-1]), target, ctx.span(cursor))


def _whole(ctx: Context, cursor: Cursor) -> surface.Expr | None:
    """`&a` of an array as the pointer to its first element, which under a cast to another pointer means the same; else None."""
    while cursor.kind == CursorKind.PAREN_EXPR:
        (cursor,) = children(cursor)
    pointee = cursor.type.get_canonical().get_pointee().get_canonical()
    if pointee.kind != TypeKind.CONSTANTARRAY or cursor.kind != CursorKind.UNARY_OPERATOR or unary_operator(cursor) != "&":
        return None
    lvalue = ctx.lvalue(children(cursor)[0])
    return surface.Decay(ctx.span(cursor), Pointer(lvalue.type.element), lvalue) if isinstance(lvalue.type, Array) else None


def _reinterpreted(ctx: Context, cursor: Cursor, place: surface.Expr, target: Type) -> surface.Expr:
    """`reinterpret_cast<float4&>(x[4 * i])`."""
    if not alike(place.type, target):
        ctx.refuse(cursor, "a cast to a reference of another type reinterprets memory, which a derivative cannot follow")
    span = ctx.span(cursor)
    return dereferenced(convert(surface.AddressOf(span, Pointer(place.type), place), Pointer(target), span, implicit=False))


def _is_place(cursor: Cursor) -> bool:
    """True for an lvalue that is not read: clang shows the reading of a variable as a node around it."""
    while cursor.kind == CursorKind.PAREN_EXPR:
        (cursor,) = children(cursor)
    if cursor.kind == CursorKind.DECL_REF_EXPR:
        declared = cursor.referenced  # None for a number that stands for a template's parameter
        return declared is not None and bool(declared.kind in (CursorKind.VAR_DECL, CursorKind.PARM_DECL))
    places = (CursorKind.ARRAY_SUBSCRIPT_EXPR, CursorKind.MEMBER_REF_EXPR)
    return cursor.kind in places or (cursor.kind == CursorKind.UNARY_OPERATOR and unary_operator(cursor) == "*")


def braced(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`{x}` as the value of a number."""
    return initial_value(ctx, ctx.type(cursor), cursor)


def conditional(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`c ? a : b`."""
    condition, then, otherwise = (ctx.expression(child) for child in children(cursor))
    if then.type != otherwise.type:
        ctx.refuse(cursor, "the two sides of ?: have different types")
    return surface.Conditional(ctx.span(cursor), then.type, condition, then, otherwise)


def _confirmed(ctx: Context, pointer: Cursor) -> Cursor:
    """The p of `*(volatile T*)p` where the function goes on to confirm what it has read by atomicCAS, as loops around that begin. Elsewhere
    the pointer as it stands, and volatile memory is refused."""
    pointee = pointer.type.get_canonical().get_pointee()
    if pointer.kind != CursorKind.CSTYLE_CAST_EXPR or not pointee.is_volatile_qualified():
        return pointer
    inner = children(pointer)[-1]
    same = pointee.spelling.replace("volatile ", "") == inner.type.get_canonical().get_pointee().spelling
    confirmed = any(part.kind == CursorKind.CALL_EXPR and part.spelling == "atomicCAS" for part in descendants(ctx.active[-1]))
    return inner if same and confirmed else pointer


def unary(ctx: Context, cursor: Cursor) -> surface.Expr:
    """Operators with one operand."""
    operator, (operand,) = unary_operator(cursor), children(cursor)
    if operator in ("x++", "x--", "++x", "--x"):
        target = ctx.lvalue(operand)
        return surface.IncDec(ctx.span(cursor), target.type, target, operator.strip("x")[0], operator.endswith("x"))
    if operator == "&":
        return address(ctx, cursor)
    if operator == "*":
        return dereferenced(ctx.expression(_confirmed(ctx, operand)))
    if operator == "+":
        return ctx.expression(operand)
    if operator not in ("-", "~", "!"):
        ctx.refuse(cursor, f"the operator {operator} is not supported")
    return surface.Unary(ctx.span(cursor), ctx.type(cursor), operator, ctx.expression(operand))


def binary(ctx: Context, cursor: Cursor) -> surface.Expr:
    """Operators with two operands, plain assignment among them."""
    operator, (left, right) = binary_operator(cursor), children(cursor)
    if operator == "=":
        return _assignment(ctx, cursor, left, right)
    if operator == ",":
        first, second = ctx.expression(left), ctx.expression(right)
        return surface.Comma(ctx.span(cursor), second.type, first, second)
    if operator in ("&&", "||"):
        return surface.Logical(ctx.span(cursor), BOOL, operator, ctx.expression(left), ctx.expression(right))
    if operator not in _ARITHMETIC | _COMPARISONS:
        ctx.refuse(cursor, f"the operator {operator} is not supported")
    return _arithmetic(ctx, cursor, operator, ctx.expression(left), ctx.expression(right))


def _arithmetic(ctx: Context, cursor: Cursor, operator: str, left: surface.Expr, right: surface.Expr) -> surface.Expr:
    pointers = sum(isinstance(side.type, Pointer) for side in (left, right))
    if operator in ("+", "-") and pointers == 1:
        return _moved(ctx, cursor, operator, left, right)
    result = ctx.type(cursor)
    if (operator not in _SHIFTS and left.type != right.type and pointers < 2) or not isinstance(result, Scalar):
        ctx.refuse(cursor, f"the operands have types that do not go together ({left.type} and {right.type})")
    return surface.Binary(ctx.span(cursor), result, operator, left, right)


def _moved(ctx: Context, cursor: Cursor, operator: str, left: surface.Expr, right: surface.Expr) -> surface.PointerAdd:
    """`p + i`, `i + p`, `p - i`."""
    pointer, offset = (left, right) if isinstance(left.type, Pointer) else (right, left)
    if operator == "-":  # negated in 64 bits: the negative of an unsigned offset would wrap
        offset = surface.Unary(offset.span, I64, "-", convert(offset, I64, offset.span, implicit=True))
    return surface.PointerAdd(ctx.span(cursor), pointer.type, pointer, offset)


def _assignment(ctx: Context, cursor: Cursor, left: Cursor, right: Cursor) -> surface.Expr:
    target = ctx.lvalue(left)
    if isinstance(target, surface.Index) and isinstance(surface.without_casts(target.pointer), surface.Table):
        ctx.refuse(left, ENTRY)
    value = initial_value(ctx, target.type, right) if right.kind == CursorKind.INIT_LIST_EXPR else ctx.expression(right)
    if value.type != target.type:
        ctx.refuse(cursor, f"an assignment of {value.type} to {target.type} is not supported")
    return surface.Assign(ctx.span(cursor), target.type, target, value)


def compound(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`x += y` and its kin. clang shows no conversion here, so C's are applied: the operation is done in the common type of both sides."""
    operator, (left, right) = binary_operator(cursor).removesuffix("="), children(cursor)
    target, value, span = ctx.lvalue(left), ctx.expression(right), ctx.span(cursor)
    if isinstance(target.type, Pointer):
        return _moved_pointer(ctx, cursor, operator, target, value)
    if not isinstance(target.type, Scalar) or not isinstance(value.type, Scalar) or operator not in _ARITHMETIC:
        ctx.refuse(cursor)
    own = I32 if isinstance(target, surface.Bits) and 0 < target.width < 32 else target.type  # whose values are all an int's
    if operator in _SHIFTS:
        return surface.Assign(span, target.type, target, value, operator, promoted(own))
    computation = common_type(own, value.type)
    return surface.Assign(span, target.type, target, convert(value, computation, value.span, implicit=True), operator, computation)


def _moved_pointer(ctx: Context, cursor: Cursor, operator: str, target: surface.Expr, value: surface.Expr) -> surface.Expr:
    moved = _moved(ctx, cursor, operator, target, value)
    return surface.Assign(ctx.span(cursor), target.type, target, moved)
