"""Calls: of CUDA's functions and of the user's `__device__` helpers.

Lambdas: `auto f = [&](float u) { return u * a; };` and then `f(x)`, `apply(f, x)`, `apply([&] { ... }, x)`, or `[&] { ... }()`.

A lambda is a helper that sees the variables of the function that makes it. What it captures by reference are these variables. What it
captures by copy is copied where the lambda is made, and its body sees the copies. Its object holds nothing else, so it is no argument of
the functions that it is passed to: each lambda has a type, and an instance of the function template, of its own.

Pointers to functions, `apply(square, x)`, `f<square>(x)`, `float (*f)(float) = square;`: which function it is, is known where it is called,
since variables of this kind never change. A function that is passed one is a helper for that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clang.cindex import Cursor, CursorKind

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.types import BOOL, Array, Pointer, Scalar, Struct, Type, Vector
from .builtins import BUILTINS, Call
from .clang_c import children, descendants, evaluate, file_location, initializer, same_extent
from .compare_and_swap import atomic_idiom
from .context import Context
from .fence import FUNCTION_POINTER, LAMBDA, MUTABLE, RETURNED_FUNCTION, TEMPORARY_ARRAY, function_message
from .initialisers import has_body, is_elided
from .lower_expressions import dereferenced
from .records import implicit_assignment, implicit_construction, is_method, receiver
from .translation_unit import is_ours
from .types import HALVES, constant, convert, explicit, is_const, is_function, is_function_pointer, is_lambda_type, is_reference, record_of

_METHODS = {CursorKind.CXX_METHOD, CursorKind.CONVERSION_FUNCTION}
_FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.CONSTRUCTOR, *_METHODS}


def call(ctx: Context, cursor: Cursor) -> surface.Expr:
    """A call whose value counts."""
    callee = cursor.referenced
    if callee is None and is_elided(cursor):
        (original,) = children(cursor)
        return ctx.expression(original)
    if (callee is None or callee.kind != CursorKind.CONSTRUCTOR) and _is_returned(cursor):
        ctx.refuse(cursor, RETURNED_FUNCTION)
    if callee is None or callee.kind not in _FUNCTIONS:
        callee = pointed_to(ctx, children(cursor)[0])
    if is_lambda(callee):
        return _lambda(ctx, cursor, callee)
    if callee.kind in (CursorKind.CONSTRUCTOR, CursorKind.CONVERSION_FUNCTION) and is_ours(callee) and _is_half(callee):
        return _half(ctx, cursor)
    if callee.kind == CursorKind.CXX_METHOD and callee.spelling == "operator=" and is_ours(callee) and _is_half(callee):
        return _assigned(ctx, cursor)
    if callee.kind == CursorKind.CONSTRUCTOR and not has_body(callee):
        return implicit_construction(ctx, cursor)
    if callee.kind == CursorKind.CXX_METHOD and callee.spelling == "operator=" and not has_body(callee):
        return implicit_assignment(ctx, cursor)
    declared_only = is_ours(callee) and callee.get_definition() is None
    if declared_only or (callee.kind == CursorKind.FUNCTION_DECL and callee.spelling.startswith("__builtin_")):
        return _builtin(ctx, cursor, callee)
    if (value := evaluate(cursor)) is not None and isinstance(type_ := ctx.type(cursor), Scalar):  # of a constexpr function
        return constant(ctx.span(cursor), type_, value)
    return _helper(ctx, cursor, callee)


def _is_returned(cursor: Cursor) -> bool:
    """True if the function that is called is what another call returns: clang names that one."""
    called = next(iter(children(cursor)), None)
    while called is not None and called.kind in (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR, CursorKind.UNARY_OPERATOR):
        called = next(iter(children(called)), None)
    return called is not None and called.kind == CursorKind.CALL_EXPR and (is_function_pointer(called) or is_function(called.type))


def _is_half(callee: Cursor) -> bool:
    return callee.semantic_parent.spelling in HALVES


def _half(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`__half(x)` and `(float)h`, and so for bfloat16: numbers that convert to each other."""
    span, target = ctx.span(cursor), ctx.type(cursor)
    arguments = list(cursor.get_arguments())
    if cursor.referenced.kind == CursorKind.CONVERSION_FUNCTION:
        (first, *_) = children(cursor)
        (source,) = [child for child in children(first) if child.kind.is_expression()]
        return explicit(ctx.expression(source), target, span)
    if isinstance(target, Vector) and len(arguments) == target.lanes:
        return surface.Record(
            span, target, tuple(convert(ctx.expression(a), target.element, ctx.span(a), implicit=True) for a in arguments)
        )
    if not isinstance(target, Scalar):
        return implicit_construction(ctx, cursor)
    if not arguments:
        return constant(span, target, 0)
    return explicit(ctx.expression(arguments[0]), target, span)


def _assigned(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`h = x` of CuPy's classes, which take any number."""
    left, right = cursor.get_arguments()
    target, span = ctx.lvalue(left), ctx.span(cursor)
    return surface.Assign(span, target.type, target, explicit(ctx.expression(right), target.type, span))


def builtin_name(cursor: Cursor) -> str | None:
    """The name of the CUDA function that an expression calls, or None."""
    callee = cursor.referenced if cursor.kind == CursorKind.CALL_EXPR else None
    if callee is None or callee.kind != CursorKind.FUNCTION_DECL:
        return None
    if not is_ours(callee) and not callee.spelling.startswith("__builtin_"):  # clang places these where they are used
        return None
    return str(callee.spelling)


def _builtin(ctx: Context, cursor: Cursor, callee: Cursor) -> surface.Expr:
    name, span = str(callee.spelling), ctx.span(cursor)
    if name.startswith("__builtin_") and (value := evaluate(cursor)) is not None and isinstance(type_ := ctx.type(cursor), Scalar):
        return constant(span, type_, value)
    if name in ("nan", "nanf"):
        return BUILTINS[name](Call(span, name, ctx.type(cursor), ()))
    owner = str(callee.semantic_parent.spelling)
    handler = BUILTINS.get(name) if callee.kind == CursorKind.FUNCTION_DECL and owner != "cooperative_groups" else None
    if handler is None:
        ctx.refuse(cursor, function_message(name, owner))
    arguments = tuple(ctx.expression(argument) for argument in cursor.get_arguments() if not _is_default(argument))
    if callee.semantic_parent.spelling == "std" and name in ("min", "max"):
        return _std_extreme(ctx, cursor, name, *arguments)
    return handler(Call(span, name, ctx.type(cursor), arguments))


def _std_extreme(ctx: Context, cursor: Cursor, name: str, left: surface.Expr, right: surface.Expr) -> surface.Expr:
    """`std::max(a, b)` is `a < b ? b : a`, which differs from CUDA's `max` where one of them is NaN."""
    if surface.has_effects(left) or surface.has_effects(right):
        ctx.refuse(cursor, f"std::{name} with arguments that have side effects is not supported")
    span = ctx.span(cursor)
    less = surface.Binary(span, BOOL, "<", left, right) if name == "max" else surface.Binary(span, BOOL, "<", right, left)
    return surface.Conditional(span, left.type, less, right, left)


def _helper(ctx: Context, cursor: Cursor, callee: Cursor) -> surface.Expr:
    definition = callee.get_definition()
    if definition is None:
        ctx.refuse(cursor, f"the function {callee.spelling} has no body in this source")
    if definition in ctx.active:
        ctx.refuse(cursor, f"recursion is not supported: this call of {callee.spelling} leads back to it; write a loop")
    parameters = list(callee.get_arguments())
    target, given = _receiver(ctx, cursor, callee)
    if len(given) != len(parameters):
        ctx.refuse(cursor, "functions with a variable number of arguments are not supported")
    functions = _passed_functions(ctx, given, definition)
    function = _lowered(ctx, definition, target[0].type if target else None, functions, cursor)
    return _helper_call(ctx, cursor, callee, function, target, given)


def _helper_call(
    ctx: Context, cursor: Cursor, callee: Cursor, function: surface.Function, target: tuple[surface.Expr, ...], given: list[Cursor]
) -> surface.Expr:
    """The call of what has been lowered, with the arguments that are no functions themselves."""
    pairs = [(g, p) for g, p in zip(given, callee.get_arguments(), strict=True) if not is_passed(p)]
    declared = function.parameters[len(target) :]
    arguments = tuple(_argument(ctx, g, p, d, cursor) for (g, p), d in zip(pairs, declared, strict=True))
    idiom = atomic_idiom(function, (*target, *arguments), ctx.span(cursor))
    return idiom or surface.HelperCall(ctx.span(cursor), function.result, function, (*target, *arguments))


def _lambda(ctx: Context, cursor: Cursor, callee: Cursor) -> surface.Expr:
    """`f(x)` of a lambda: the object, its first argument, holds nothing."""
    given, definition = list(cursor.get_arguments())[1:], callee.get_definition()
    function = lowered(ctx, cursor, callee, _passed_functions(ctx, given, definition)) if definition is not None else None
    if function is None:
        ctx.refuse(cursor, LAMBDA)
    return _helper_call(ctx, cursor, callee, function, (), given)


def _passed_functions(ctx: Context, given: list[Cursor], definition: Cursor) -> dict[Cursor, Cursor]:
    """The functions that a call passes on, by the parameter. Lambdas among the arguments are made."""
    functions = dict[Cursor, Cursor]()
    for argument, parameter in zip(given, definition.get_arguments(), strict=True):
        passed(ctx, argument, parameter)
        if is_function_pointer(parameter):
            functions[parameter] = _passed_function(ctx, argument, parameter)
    return functions


def _receiver(ctx: Context, cursor: Cursor, callee: Cursor) -> tuple[tuple[surface.Expr, ...], list[Cursor]]:
    """The object of a call of a member function (none for a plain function), and the cursors of the other arguments."""
    given = list(cursor.get_arguments())
    if not is_method(callee):
        return (), given
    (first, *_) = children(cursor)
    if first.kind != CursorKind.MEMBER_REF_EXPR or first.referenced != callee:  # an operator: the object is the first argument
        return (_object(ctx, given[0]),), given[1:]
    bases = [child for child in children(first) if child.kind.is_expression()]
    return (_object(ctx, bases[0]) if bases else receiver(ctx, cursor),), given


def _object(ctx: Context, cursor: Cursor) -> surface.Expr:
    """The object itself, also where the function is one of a base: in there it may be cast back."""
    while cursor.kind == CursorKind.UNEXPOSED_EXPR and _is_derived(cursor, *children(cursor)):
        (cursor,) = children(cursor)
    value = ctx.expression(cursor)
    return dereferenced(value) if isinstance(value.type, Pointer) else value


def _is_derived(cursor: Cursor, *inner: Cursor) -> bool:
    """True if an expression is another one as its base, or a pointer to that."""
    return len(inner) == 1 and same_extent(cursor, inner[0]) and record_of(cursor) != record_of(inner[0])


def _lowered(
    ctx: Context, definition: Cursor, object_type: Type | None, functions: Mapping[Cursor, Cursor], call: Cursor
) -> surface.Function:
    """A helper is lowered once for each type of the object that it is called on, and for the functions that it is passed; all calls share
    it. What is wrong in a function of ours is wrong with the call."""
    key = definition, object_type, tuple(functions.values())
    if key not in ctx.helpers:
        ctx.functions.update(functions)
        try:
            ctx.helpers[key] = ctx.lower_function(ctx, definition, object_type)
        except UnsupportedError as error:
            if error.span is None or not ctx.places.is_ours(error.span):
                raise
            raise UnsupportedError(error.message, ctx.span(call)) from None
    return ctx.helpers[key]


def _argument(ctx: Context, given: Cursor, parameter: Cursor, declaration: surface.Declaration, at: Cursor) -> surface.Expr:
    """The argument; for a parameter that is a reference the lvalue, or a value that a const reference is bound to."""
    if _is_default(given):
        return _default(ctx, parameter, at)
    if declaration.reference and not declaration.const:
        place = ctx.lvalue(given)
        return convert(place, declaration.type, place.span, implicit=True) if isinstance(place.type, Struct) else place
    value = convert(ctx.expression(given), declaration.type, ctx.span(given), implicit=True)
    if isinstance(value.type, Array) and not surface.is_lvalue(value):
        ctx.refuse(given, TEMPORARY_ARRAY)
    return value


def _is_default(given: Cursor) -> bool:
    """True if an argument was not written."""
    return given.kind == CursorKind.UNEXPOSED_EXPR and not children(given) and file_location(given.extent.start)[0] is None


def _default(ctx: Context, parameter: Cursor, at: Cursor) -> surface.Expr:
    start = initializer(parameter)
    if start is None:
        ctx.refuse(at, f"the default of the argument {parameter.spelling} is not supported")
    return ctx.expression(start)


_CAPTURE = "a lambda can capture variables by their names, all of them by reference, or all by copy ([a, &b], [&], [=]), and nothing else"
_MACRO = "a lambda, or what it captures, from a macro is not supported"
_WRAPPERS = (CursorKind.UNEXPOSED_EXPR, CursorKind.CALL_EXPR, CursorKind.PAREN_EXPR)
_AROUND_FUNCTIONS = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR, CursorKind.UNARY_OPERATOR, CursorKind.DECL_REF_EXPR)
_VARIABLES = (CursorKind.VAR_DECL, CursorKind.PARM_DECL)


def is_lambda(callee: Cursor) -> bool:
    """True if a member function is the body of a lambda."""
    return bool(callee.spelling == "operator()" and "(lambda" in callee.semantic_parent.type.spelling)


def lambda_of(start: Cursor | None) -> Cursor | None:
    """The lambda that an expression is, or None."""
    while start is not None and start.kind in _WRAPPERS:
        inner = [child for child in children(start) if child.kind.is_expression()]
        start = inner[0] if len(inner) == 1 else None
    return start if start is not None and start.kind == CursorKind.LAMBDA_EXPR else None


def is_passed(parameter: Cursor) -> bool:
    """True if what is declared is a lambda, or a pointer to a function: the program that is made of the kernel has none of them."""
    return is_lambda_type(parameter.type) or is_function_pointer(parameter)


def _passed_function(ctx: Context, given: Cursor, parameter: Cursor) -> Cursor:
    """The function that an argument is, or the parameter is by default."""
    start = initializer(parameter) if _is_default(given) else None
    return pointed_to(ctx, start if start is not None else given)


def pointed_to(ctx: Context, value: Cursor) -> Cursor:
    """The function that an expression is, or points to. Refuses one of which that is not known."""
    at = value
    while at.kind in _AROUND_FUNCTIONS:
        inner = [child for child in children(at) if child.kind.is_expression()]
        if at.kind == CursorKind.DECL_REF_EXPR and at.referenced is not None:
            break
        if len(inner) != 1:
            ctx.refuse(value, FUNCTION_POINTER)
        (at,) = inner
    found = at.referenced if at.kind == CursorKind.DECL_REF_EXPR else None
    if found is not None and found.kind == CursorKind.FUNCTION_DECL:
        return found
    if found is None or found not in ctx.functions:
        ctx.refuse(value, FUNCTION_POINTER)
    return ctx.functions[found]


def passed(ctx: Context, given: Cursor, parameter: Cursor) -> None:
    """A lambda as an argument: one that is made there takes its copies before the statement."""
    if (made := lambda_of(given)) is not None:
        copies = make_lambda(ctx, made)
        ctx.before.extend(zip(ctx.copies[made.type.get_declaration()], copies, strict=True))
    elif is_lambda_type(parameter.type):
        named_again(ctx, given, parameter)


def named_again(ctx: Context, given: Cursor, variable: Cursor) -> None:
    """Refuses to give a lambda that changes its copies to another variable, which would have copies of its own."""
    type_ = variable.type.get_canonical()
    if not is_reference(type_) and any(not d.const for d in ctx.copies.get(type_.get_declaration(), {}).values()):
        ctx.refuse(given, MUTABLE)


def make_lambda(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """Where a lambda is made: the copies that it takes."""
    copies: dict[Cursor, surface.Declaration] = {}
    made: list[surface.Stmt] = []
    words = [token.spelling for token in cursor.get_tokens()]
    const = "mutable" not in words[: words.index("{")]
    for variable in _copied(ctx, cursor):
        known, span = ctx.declarations[variable], ctx.span(cursor)
        if isinstance(known.type, Array):
            ctx.refuse(cursor, f"a lambda that captures an array ({variable.spelling}) by copy is not supported; capture it by reference")
        copies[variable] = ctx.fresh(span, variable.spelling, known.type, const=const)
        made.append(surface.Declare(span, copies[variable], surface.Name(span, known.type, known)))
    ctx.copies[cursor.type.get_declaration()] = copies
    return tuple(made)


def lowered(ctx: Context, cursor: Cursor, callee: Cursor, functions: Mapping[Cursor, Cursor]) -> surface.Function:
    """The body of the lambda that is called, as a helper that sees the variables around it, for the functions that it is passed."""
    definition, kind = callee.get_definition(), callee.semantic_parent
    key = definition, None, tuple(functions.values())
    if key not in ctx.helpers and not _is_made(ctx, cursor, kind):
        ctx.refuse(cursor, LAMBDA)
    if definition in ctx.active:
        ctx.refuse(cursor, "recursion is not supported: this call of a lambda leads back to it; write a loop")
    if key not in ctx.helpers:
        ctx.functions.update(functions)
        copies = ctx.copies[kind]
        outer = {variable: ctx.declarations[variable] for variable in copies}
        ctx.declarations.update(copies)
        ctx.helpers[key] = ctx.lower_function(ctx, definition, None)
        ctx.declarations.update(outer)
    return ctx.helpers[key]


def _is_made(ctx: Context, cursor: Cursor, kind: Cursor) -> bool:
    """True if a lambda has been met; one that is called at once needs no copies."""
    if kind not in ctx.copies and (at_once := lambda_of(children(cursor)[0])) is not None:
        _captures(ctx, at_once)
        ctx.copies[kind] = {}
    return kind in ctx.copies


def _copied(ctx: Context, cursor: Cursor) -> Iterator[Cursor]:
    """The variables around a lambda that it captures by copy."""
    by_copy, named = _captures(ctx, cursor)
    nodes = list(descendants(cursor))
    own = {node for node in nodes if node.kind in _VARIABLES}
    used = (node.referenced for node in nodes if node.kind == CursorKind.DECL_REF_EXPR and node.referenced is not None)
    for variable in dict.fromkeys(v for v in used if v not in own and v in ctx.declarations):
        if ctx.declarations[variable].space != "local":
            continue
        copied = named.get(variable.spelling, by_copy)
        if copied is None and not is_const(variable.type):  # a constant need not be captured
            ctx.refuse(cursor, _MACRO)
        if copied is not False:
            yield variable


def _captures(ctx: Context, cursor: Cursor) -> tuple[bool | None, dict[str, bool]]:
    """Whether a lambda captures by copy, None if it only does what it names, and the same of each variable that it names."""
    tokens = list(cursor.get_tokens())
    words = [token.spelling for token in tokens]
    if words[:1] != ["["] or file_location(tokens[0].location)[3] != file_location(cursor.extent.start)[3]:
        ctx.refuse(cursor, _MACRO)
    default, named = None, dict[str, bool]()
    for item in " ".join(words[1 : words.index("]")]).split(","):
        match item.split():
            case []:
                pass
            case ["&"] | ["="]:
                default = item.split() == ["="]
            case ["&", name] if _is_variable(ctx, name):
                named[name] = False
            case [name] if _is_variable(ctx, name):
                named[name] = True
            case _:
                ctx.refuse(cursor, _CAPTURE)
    return default, named


def _is_variable(ctx: Context, name: str) -> bool:
    return any(variable.spelling == name for variable in ctx.declarations)
