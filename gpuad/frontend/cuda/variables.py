"""Variables that are no plain locals: in shared memory or of the module; and initialisers.

Shared memory: `__shared__` variables of a kernel or helper, and `extern __shared__` arrays, whose length a launch decides.

An array without a length gets DYNAMIC as its length; `lower.normalize` is told how many bytes there are. One that a function divides into
arrays of several types

    extern __shared__ unsigned char bytes[];
    float* values = (float*)bytes;
    int* keys = (int*)(values + n);

gets memory of its own for each type of number, as long as the whole (`cut`). That is the same as long as no array reaches into another one
of another type: they are arrays, and a kernel is taken to stay inside its arrays. So what is not such a division is refused: an array of
another type begins behind what there was before, at the same place for all threads, and in the initialiser of a pointer.

Initialisers and implicit constructors: clang shows the list as it was written, without conversions, zeros and left-out braces; all are
added here.

`__constant__` and `__device__` variables: memory of the user's module. A generated kernel is compiled into a module of its own, where a
variable of this name would be another one, full of zeros. So it gets a pointer to the user's: each variable that a kernel or a helper of it
reaches becomes a pointer parameter after the kernel's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from clang.cindex import Cursor, CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.records import holds_pointers, is_record, member_of, numbers, parts
from ...ir.surface import DYNAMIC, Binary, Cast, Constant, Declaration, Declare, Deref, Expr, Global, Name, Record, Table
from ...ir.types import I32, U64, Array, Complex, Member, Pointer, Scalar, Struct, Type, Vector
from ...source import Span
from .clang_c import binary_operator, children, descendants, evaluate, has_attribute, initializer, unary_operator, unqualified
from .context import Context
from .overlaid import is_anonymous
from .translation_unit import is_ours
from .types import (
    bases_of,
    constant,
    convert,
    default_value,
    definition_parts,
    element_type,
    is_const,
    is_reference,
    lower_type,
    reinterpreted,
)

_CASTS = (CursorKind.CXX_REINTERPRET_CAST_EXPR, CursorKind.CSTYLE_CAST_EXPR, CursorKind.CXX_STATIC_CAST_EXPR)
_PLAIN = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR)
_WHERE = (
    "dynamic shared memory can be cut into arrays of several types where each begins behind the one before, at an offset that is the same "
    "for all threads, and is the value of a pointer from the beginning: int* keys = (int*)(values + n)"
)


@dataclass
class _Found:
    """The pointers into the memory with the type of what they point to, and the casts that cut."""

    views: dict[Cursor, ClangType]
    casts: list[Cursor] = field(default_factory=list)
    first: ClangType | None = None  # what begins where the memory begins, if that is not what it is declared to be
    behind: bool = False  # whether anything else begins later


def cut(ctx: Context, array: Cursor, element: ClangType) -> tuple[Scalar, ...]:
    """The types of numbers in an `extern __shared__` array that is cut into arrays of several types; none if it is not."""
    if not ctx.active:
        return ()
    nodes = list(descendants(ctx.active[-1]))
    if array not in nodes:
        return ()
    found = _Found({array: unqualified(element)})
    for variable in (node for node in nodes if node.kind == CursorKind.VAR_DECL):
        _follow(ctx, found, variable, nodes)
    if not found.behind:  # at most the whole memory as one other type
        return ()
    if found.first is not None and _is_used(array, found, nodes):
        ctx.refuse(array, _WHERE)
    for node in nodes:
        if node.kind in _CASTS and node not in found.casts and _changes(found, node):
            ctx.refuse(node, _WHERE)
    ctx.cuts.update(found.casts)
    kinds = [kind for type_ in found.views.values() for kind in numbers(lower_type(type_, ctx.span(array)))]
    return tuple(dict.fromkeys(kinds))


def _follow(ctx: Context, found: _Found, variable: Cursor, nodes: list[Cursor]) -> None:
    """Notes a pointer that begins as one into the memory."""
    start = initializer(variable)
    while start is not None and start.kind in _PLAIN and len(children(start)) == 1:
        (start,) = children(start)
    if start is None:
        return
    is_cast = start.kind in _CASTS and _is_pointer(start)
    root, offsets = _root(_operand(start) if is_cast else start)
    if root not in found.views:
        return
    element = unqualified(start.type.get_canonical().get_pointee()) if is_cast else found.views[root]
    found.views[variable] = element
    if element == found.views[root]:
        return
    if holds_pointers(lower_type(element, ctx.span(start))) or not all(_is_uniform(offset, nodes, ()) for offset in offsets):
        ctx.refuse(start, _WHERE)
    if not offsets:
        if found.first not in (None, element) or next(iter(found.views)) != root:
            ctx.refuse(start, _WHERE)
        found.first = element
    found.behind |= bool(offsets)
    found.casts.append(start)


def _changes(found: _Found, cast: Cursor) -> bool:
    """Whether a cast makes a pointer into the memory one to another type."""
    root, _ = _root(_operand(cast))
    return _is_pointer(cast) and root in found.views and unqualified(cast.type.get_canonical().get_pointee()) != found.views[root]


def _is_used(array: Cursor, found: _Found, nodes: list[Cursor]) -> bool:
    """Whether the memory is used as what it is declared to be."""
    inside = {inner for cast in found.casts for inner in descendants(cast)}
    return any(is_use(node, array) and node not in inside for node in nodes)


def is_use(node: Cursor, variable: Cursor) -> bool:
    """Whether a node names a variable (a number that stands for a template's parameter names nothing)."""
    return node.kind == CursorKind.DECL_REF_EXPR and node.referenced is not None and bool(node.referenced == variable)


def _root(expression: Cursor) -> tuple[Cursor | None, list[Cursor]]:
    """The variable from which a pointer is counted, and what is added to it; None for any other expression."""
    while expression.kind in _PLAIN and len(children(expression)) == 1:
        (expression,) = children(expression)
    if expression.kind == CursorKind.DECL_REF_EXPR:
        return expression.referenced, []
    inner = children(expression)
    if expression.kind == CursorKind.BINARY_OPERATOR and binary_operator(expression) == "+":
        root, offsets = _root(inner[0])
        return root, [*offsets, inner[1]]
    if expression.kind == CursorKind.UNARY_OPERATOR and unary_operator(expression) == "&":
        (place,) = inner
        if place.kind == CursorKind.ARRAY_SUBSCRIPT_EXPR:
            root, offsets = _root(children(place)[0])
            return root, [*offsets, children(place)[1]]
    return None, []


def _is_uniform(expression: Cursor, nodes: list[Cursor], known: tuple[Cursor, ...]) -> bool:
    """Whether all threads of a block have the same value for an offset, which is not negative as far as one can see."""
    for node in (expression, *descendants(expression)):
        if node.kind == CursorKind.CALL_EXPR or (node.kind == CursorKind.UNARY_OPERATOR and unary_operator(node) == "-"):
            return False
        variable = node.referenced if node.kind == CursorKind.DECL_REF_EXPR else None
        if variable is None or variable in known or variable.kind not in (CursorKind.VAR_DECL, CursorKind.PARM_DECL):
            continue
        if is_ours(variable):
            if variable.spelling == "threadIdx":
                return False
        elif variable.kind == CursorKind.VAR_DECL and (start := initializer(variable)) is not None:
            if not _is_uniform(start, nodes, (*known, variable)) or _is_changed(variable, nodes):
                return False
        elif variable.kind == CursorKind.VAR_DECL or _is_changed(variable, nodes):
            return False
    return True


def _is_changed(variable: Cursor, nodes: list[Cursor]) -> bool:
    """Whether a variable is given another value than its first, or its address is taken."""
    for node in nodes:
        writes = node.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR
        writes |= node.kind == CursorKind.BINARY_OPERATOR and binary_operator(node) == "="
        writes |= node.kind == CursorKind.UNARY_OPERATOR and unary_operator(node) in ("&", "x++", "x--", "++x", "--x")
        changed = _root(children(node)[0])[0] if writes else None
        if changed is not None and changed == variable:
            return True
    return False


def _operand(cast: Cursor) -> Cursor:
    return [child for child in children(cast) if child.kind.is_expression()][-1]


def _is_pointer(cursor: Cursor) -> bool:
    return bool(cursor.type.get_canonical().get_pointee().spelling)


_VOLATILE = (
    "a single volatile number in shared memory is not supported; leave volatile away and write __syncthreads() where it is passed on"
)


_EXPLICIT_CASTS = (CursorKind.CXX_REINTERPRET_CAST_EXPR, CursorKind.CSTYLE_CAST_EXPR)


def is_shared(cursor: Cursor) -> bool:
    """Whether a variable is declared `__shared__`."""
    return has_attribute(cursor, CursorKind.CUDASHARED_ATTR)


def declare_shared(ctx: Context, cursor: Cursor) -> Declare:
    """The declaration of a `__shared__` variable."""
    return Declare(ctx.span(cursor), _declaration(ctx, cursor), None)


def global_shared(ctx: Context, variable: Cursor) -> Declaration:
    """A `__shared__` variable at file scope, the same one for every function that uses it."""
    return ctx.declarations.get(variable) or _declaration(ctx, variable)


def _declaration(ctx: Context, cursor: Cursor) -> Declaration:
    kind = cursor.type.get_canonical()
    element = kind
    while element.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        element = element.element_type.get_canonical()
    if kind.is_volatile_qualified() and kind == element:
        ctx.refuse(cursor, _VOLATILE)
    start = initializer(cursor)
    if (start is not None and not is_undefined(start)) or is_reference(cursor.type) or is_const(cursor.type):
        ctx.refuse(cursor, "shared memory cannot be const, a reference, or initialised")
    pieces: tuple[Scalar, ...] = ()
    if kind.kind == TypeKind.INCOMPLETEARRAY:
        pieces = cut(ctx, cursor, kind.element_type)
        element = kind.element_type if pieces else _meant(ctx, cursor, kind.element_type)
        type_: Type = Array(element_type(element, ctx.span(cursor)), DYNAMIC)
    else:
        type_ = ctx.type(cursor)
    return ctx.declare(cursor, ctx.fresh(ctx.span(cursor), cursor.spelling, type_, space="shared", cut=pieces))


def _meant(ctx: Context, cursor: Cursor, element: ClangType) -> ClangType:
    """The element of an array that the function only uses as an array of another type (`T* s = reinterpret_cast<T*>(bytes)`, the way to
    dynamic shared memory in a template): that type. Of any other array its own."""
    if not ctx.active:
        return element
    uses, targets = 0, list[ClangType]()
    for node in descendants(ctx.active[-1]):
        uses += is_use(node, cursor)
        if node.kind in _EXPLICIT_CASTS and is_use(_operand_of_cast(node), cursor):
            targets.append(unqualified(node.type.get_canonical().get_pointee()))
    return targets[0] if targets and len(targets) == uses and all(t == targets[0] for t in targets) else element


def _operand_of_cast(cast: Cursor) -> Cursor:
    """What is cast, without parentheses and conversions."""
    inner = cast
    while inner.kind in (*_EXPLICIT_CASTS, CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR):
        parts = [child for child in children(inner) if child.kind.is_expression()]
        if len(parts) != 1:
            break
        (inner,) = parts
    return inner


Initial: TypeAlias = "Callable[[Context, Type, Cursor], Expr]"


def initial_numbers(ctx: Context, type_: Type, cursor: Cursor) -> tuple[bool | int | float, ...]:
    """The values of a number or of all elements of an array, as far as the compiler knows them."""
    values = initial_values(ctx, type_, cursor, _number) if isinstance(type_, Array) else (_number(ctx, type_, cursor),)
    return tuple(value.value for value in values if isinstance(value, Constant))


def _number(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    inner = children(cursor) if cursor.kind == CursorKind.INIT_LIST_EXPR else [cursor]
    number = evaluate(inner[0]) if len(inner) == 1 else 0 if not inner else None
    if number is None or not isinstance(type_, Scalar):
        ctx.refuse(cursor, "the initial value of a variable of the module has to be a constant")
    return constant(ctx.span(cursor), type_, number)


def initial_values(ctx: Context, type_: Type, cursor: Cursor, value: Initial | None = None) -> tuple[Expr, ...]:
    """The values of all elements in memory order, of arrays of arrays too; what the list leaves out is 0. `value` lowers one of them."""
    while cursor.kind == CursorKind.UNEXPOSED_EXPR and len(children(cursor)) == 1:  # what cleans up temporary values of the list
        (cursor,) = children(cursor)
    if cursor.kind != CursorKind.INIT_LIST_EXPR or not isinstance(type_, Array):
        ctx.refuse(cursor, "an array can only be initialised by a list in braces")
    items = deque(children(cursor))
    values = _fill(ctx, type_, items, ctx.span(cursor), value or initial_value)
    _exhausted(ctx, items)
    return tuple(values)


def _exhausted(ctx: Context, items: deque[Cursor]) -> None:
    if items:
        ctx.refuse(items[0], "this initialiser is not supported")


def _fill(ctx: Context, array: Array, items: deque[Cursor], span: Span, value: Initial) -> list[Expr]:
    """Takes from `items` what this array holds: a nested list fills one element, other items fill in order (braces may be left out)."""
    values: list[Expr] = []
    for _ in range(array.length):
        if isinstance(array.element, Array):
            nested = items and items[0].kind == CursorKind.INIT_LIST_EXPR
            inner = array.element
            values += initial_values(ctx, inner, items.popleft(), value) if nested else _fill(ctx, inner, items, span, value)
        else:
            values.append(_element(ctx, array.element, items, span, value))
    return values


def _element(ctx: Context, type_: Type, items: deque[Cursor], span: Span, value: Initial) -> Expr:
    """The value of one element or field."""
    if isinstance(type_, Array):
        nested = bool(items) and items[0].kind == CursorKind.INIT_LIST_EXPR
        own = deque(children(items.popleft())) if nested else items
        values = tuple(_element(ctx, type_.element, own, span, value) for _ in range(type_.length))
        if nested:
            _exhausted(ctx, own)
        return Record(span, type_, values)
    if not items:
        return zero(ctx, type_, span)
    if isinstance(type_, Pointer) and items[0].kind == CursorKind.INIT_LIST_EXPR:
        ctx.refuse(items[0], "arrays of pointers are not supported")
    if isinstance(type_, Vector) and items[0].kind != CursorKind.INIT_LIST_EXPR and ctx.type(items[0]) != type_:
        return Record(span, type_, tuple(_element(ctx, part.type, items, span, value) for part in parts(type_)))
    return value(ctx, type_, items.popleft())


def zero(ctx: Context, type_: Type, span: Span) -> Expr:
    """The value of a type whose numbers are all 0."""
    if isinstance(type_, Scalar):
        return constant(span, type_, 0)
    if isinstance(type_, Pointer):
        return Constant(span, type_, 0)
    if isinstance(type_, Struct) and not type_.listed:
        raise UnsupportedError(f"the initialiser of {type_.name} is not supported; write its constructor", span)
    return Record(span, type_, tuple(zero(ctx, part.type, span) for part in parts(type_)))


def is_pointers(type_: ClangType) -> bool:
    """Whether a type is that of an array of pointers."""
    plain = type_.get_canonical()
    return bool(plain.kind == TypeKind.CONSTANTARRAY and plain.element_type.get_canonical().kind == TypeKind.POINTER)


def initial_pointers(ctx: Context, cursor: Cursor, start: Cursor) -> Table:
    """The pointers of an array that is given all of them."""
    plain, items = cursor.type.get_canonical(), children(start)
    if len(items) != plain.element_count:
        ctx.refuse(cursor, "an array of pointers needs a value for each of them")
    nulls = (CursorKind.CXX_NULL_PTR_LITERAL_EXPR, CursorKind.GNU_NULL_EXPR)
    for item in items:
        if any(node.kind in nulls for node in (item, *descendants(item))):
            ctx.refuse(item, "an array of pointers of which one is null is not supported")
    element = lower_type(plain.element_type, ctx.span(cursor))
    return Table(ctx.span(start), Pointer(element, const=True), tuple(initial_value(ctx, element, item) for item in items))


def initial_value(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    """The value of `x`, `{x}` or `{}` as a `type_`, a number, pointer or record."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR:
        return convert(ctx.expression(cursor), type_, ctx.span(cursor), implicit=True)
    inner = children(cursor)
    if is_record(type_):
        return _record(ctx, type_, deque(inner), cursor)
    if len(inner) > 1:
        ctx.refuse(cursor, "this initialiser is not supported")
    return initial_value(ctx, type_, inner[0]) if inner else zero(ctx, type_, ctx.span(cursor))


def _record(ctx: Context, type_: Type, items: deque[Cursor], cursor: Cursor) -> Expr:
    if len(items) == 1 and items[0].kind != CursorKind.INIT_LIST_EXPR and ctx.type(items[0]) == type_:
        return ctx.expression(items[0])
    if isinstance(type_, Struct) and not type_.listed:
        ctx.refuse(cursor, f"a list in braces for {type_.name} is not supported here; write its constructor")
    span = ctx.span(cursor)
    if isinstance(type_, Struct) and type_.members:
        return _overlaid(ctx, type_, items, cursor)
    values = tuple(_element(ctx, part.type, items, span, initial_value) for part in parts(type_))
    _exhausted(ctx, items)
    return Record(span, type_, values)


def _overlaid(ctx: Context, type_: Struct, items: deque[Cursor], cursor: Cursor) -> Expr:
    """A list for a struct whose members share memory: of a union it gives the first one."""
    span = ctx.span(cursor)
    numbers_at: dict[int, Expr] = {}
    for name, value in _listed_members(ctx, cursor.type.get_canonical(), items, span):
        member = member_of(type_, name)
        assert member is not None
        if member.width:
            own, known = value(member.type), numbers_at.get(member.offset)
            numbers_at[member.offset] = _packed(member, own, known)
            continue
        numbers_at |= dict(_scattered(ctx, member.type, value(member.type), member.offset, cursor))
    _exhausted(ctx, items)
    values = (numbers_at.get(part.offset) for part in parts(type_))
    return Record(
        span, type_, tuple(_as_held(v, p.type) if v else zero(ctx, p.type, span) for v, p in zip(values, parts(type_), strict=True))
    )


def _listed_members(ctx: Context, type_: ClangType, items: deque[Cursor], span: Span) -> Iterator[tuple[str, Callable[[Type], Expr]]]:
    """The members that a list gives values, with what makes them: all of a struct, the first of a union."""
    union = type_.get_declaration().kind == CursorKind.UNION_DECL
    for own in list(type_.get_fields())[: 1 if union else None]:
        inner = own.type.get_canonical()
        if not is_anonymous(own):
            yield own.spelling, lambda kind: _element(ctx, kind, items, span, initial_value)
        elif items and items[0].kind == CursorKind.INIT_LIST_EXPR:
            nested = deque(children(items.popleft()))
            yield from _listed_members(ctx, inner, nested, span)
            _exhausted(ctx, nested)
        else:
            yield from _listed_members(ctx, inner, items, span)


def _scattered(ctx: Context, type_: Type, value: Expr, offset: int, cursor: Cursor) -> Iterator[tuple[int, Expr]]:
    """The numbers of a value with the places where they come to lie."""
    if isinstance(type_, Scalar):
        yield offset, value
    elif isinstance(value, Record):
        for part, own in zip(parts(type_), value.values, strict=True):
            yield from _scattered(ctx, part.type, own, offset + part.offset, cursor)
    else:
        ctx.refuse(cursor, "a list in braces for members that share memory has to give numbers; give the members their values")


def _packed(member: Member, value: Expr, known: Expr | None) -> Expr:
    """The number in which a bit-field lies, with its value beside those of others."""
    span = value.span
    mask = Constant(span, U64, (1 << member.width) - 1)
    bits = Binary(span, U64, "&", convert(value, U64, span, implicit=False), mask)
    moved = Binary(span, U64, "<<", bits, Constant(span, I32, member.shift))
    return moved if known is None else Binary(span, U64, "|", known, moved)


def _as_held(value: Expr, held: Type) -> Expr:
    assert isinstance(held, Scalar)
    if isinstance(value.type, Scalar) and value.type.is_integer and held.is_integer:
        return convert(value, held, value.span, implicit=False)
    return value if value.type == held else reinterpreted(value, held, value.span)


def has_body(function: Cursor) -> bool:
    """True for a function that the user wrote, not the compiler: its own are where their struct is."""
    definition = function.get_definition()
    if function.is_default_method() or function.location == function.semantic_parent.location:
        return False
    return definition is not None and any(child.kind == CursorKind.COMPOUND_STMT for child in children(definition))


def is_undefined(start: Cursor) -> bool:
    """True for the initialiser that clang shows where there is none: `float4 v;`. Fields with values by default are an initialiser."""
    callee = start.referenced
    if start.kind != CursorKind.CALL_EXPR or callee is None or callee.kind != CursorKind.CONSTRUCTOR:
        return False
    return not has_body(callee) and not children(start) and not _has_defaults(callee.semantic_parent)


def _has_defaults(declaration: Cursor) -> bool:
    """Whether a struct without a constructor is not left as it is: fields have values by default, or bases have them or constructors."""
    if any(map(default_value, declaration.type.get_fields())):
        return True
    bases = [base.get_declaration() for base in bases_of(declaration)]
    constructors = (part for base in bases for part in definition_parts(base) if part.kind == CursorKind.CONSTRUCTOR)
    return any(map(has_body, constructors)) or any(map(_has_defaults, bases))


def is_braced(start: Cursor) -> bool:
    """True where empty braces ask for the value of the type, zeros for the most part: `complex<float> z{}`, `complex<float> z = {}`."""
    return [token.spelling for token in start.get_tokens()][-2:] == ["{", "}"]


def is_elided(call: Cursor) -> bool:
    """True for the copy of a temporary value, which is elided: before C++17 it is there in name (`float2 v = make_float2(x, y);`)."""
    original = children(call)
    return not call.spelling and len(original) == 1 and _unqualified(original[0]) == _unqualified(call)


def _unqualified(value: Cursor) -> str:
    return str(value.type.get_canonical().spelling).removeprefix("const ")


_SPACES = {CursorKind.CUDACONSTANT_ATTR: "__constant__", CursorKind.CUDADEVICE_ATTR: "__device__"}


_SCOPES = (CursorKind.NAMESPACE, CursorKind.TRANSLATION_UNIT, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL)


def module_variable(ctx: Context, use: Cursor, variable: Cursor) -> Expr:
    """The variable as what its parameter points to."""
    if variable not in ctx.globals:
        ctx.globals[variable] = _of_module(ctx, use, variable)
    pointer, type_, span = ctx.globals[variable].pointer, ctx.type(variable), ctx.span(use)
    assert isinstance(pointer.type, Pointer)
    whole = Pointer(type_, pointer.type.const)
    name: Expr = Name(span, pointer.type, pointer)
    return Deref(span, type_, name if whole == pointer.type else Cast(span, whole, name, True))


def _of_module(ctx: Context, use: Cursor, variable: Cursor) -> Global:
    space = next((name for kind, name in _SPACES.items() if has_attribute(variable, kind)), None)
    if space is None or variable.semantic_parent.kind not in _SCOPES:
        ctx.refuse(use, f"the variable {variable.spelling} is neither local nor in memory of the module (__constant__, __device__)")
    type_ = ctx.type(variable)
    element, shape = _element_and_shape(type_)
    if not isinstance(element, Scalar | Vector | Complex | Struct) or holds_pointers(element):
        kinds = "numbers, vectors, complex numbers, structs without pointers, or arrays of them"
        ctx.refuse(use, f"the variable {variable.spelling} is of type {type_}; variables of the module have to be {kinds}")
    const = space == "__constant__" or is_const(variable.type)
    start = initializer(variable)
    if start is not None and is_undefined(start):  # of vectors and halves clang shows the call of their constructor
        start = None
    if not isinstance(element, Scalar) and start is not None:
        kind = {Vector: "vectors", Complex: "complex numbers", Struct: "structs"}[type(element)]
        ctx.refuse(use, f"{kind} of the module with a value are not supported; set them through kernel.get_global")
    initial = initial_numbers(ctx, type_, start) if start is not None else None
    pointer = ctx.fresh(ctx.span(variable), variable.spelling, Pointer(element, const), const=True, space="module")
    return Global(ctx.span(variable), _full_name(variable), pointer, shape, initial)


def _element_and_shape(type_: Type) -> tuple[Type, tuple[int, ...]]:
    """What an array of arrays consists of at last, and its shape in numbers."""
    if isinstance(type_, Vector):
        return type_, (type_.lanes,)
    if not isinstance(type_, Array):
        return type_, ()
    element, shape = _element_and_shape(type_.element)
    return element, (type_.length, *shape)


def _full_name(variable: Cursor) -> str:
    """The name with its namespaces."""
    parent = variable.semantic_parent
    prefix = f"{_full_name(parent)}::" if parent.kind == CursorKind.NAMESPACE and not parent.is_anonymous() else ""
    return f"{prefix}{variable.spelling}"


def with_globals(function: surface.Function, found: tuple[Global, ...]) -> surface.Function:
    """The kernel with the parameters through which it reaches variables of the module, under names that no other parameter has."""
    if not found:
        return function
    taken = {p.name for p in function.parameters}
    for variable in found:
        if variable.pointer.name in taken:
            raise UnsupportedError(
                f"the variable {variable.name} of the module has the name of a parameter or of another variable that the kernel "
                f"{function.name} uses; rename one of them",
                variable.span,
            )
        taken.add(variable.pointer.name)
    return replace(function, parameters=(*function.parameters, *(v.pointer for v in found)), globals=found)
