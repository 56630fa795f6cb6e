"""Variables that are no plain locals: in shared memory or of the module.

Shared memory: `__shared__` variables of a kernel or helper, and `extern __shared__` arrays, whose length a launch decides.

An array without a length gets DYNAMIC as its length; `lower.normalize` is told how many bytes there are. One that a function divides into
arrays of several types

    extern __shared__ unsigned char bytes[];
    float* values = (float*)bytes;
    int* keys = (int*)(values + n);

gets memory of its own for each type of number, as long as the whole (`cut`). That is the same as long as no array reaches into another one
of another type: they are arrays, and a kernel is taken to stay inside its arrays. So what is not such a division is refused: an array of
another type begins behind what there was before, at the same place for all threads, and in the initialiser of a pointer.

`__constant__` and `__device__` variables: memory of the user's module. A generated kernel is compiled into a module of its own, where a
variable of this name would be another one, full of zeros. So it gets a pointer to the user's: each variable that a kernel or a helper of it
reaches becomes a pointer parameter after the kernel's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from clang.cindex import Cursor, CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.records import holds_pointers, numbers, size_of
from ...ir.surface import DYNAMIC, Cast, Declaration, Declare, Deref, Expr, Global, Name
from ...ir.types import Array, Complex, Pointer, Scalar, Struct, Type, Vector
from .clang_c import binary_operator, children, descendants, has_attribute, initializer, unary_operator, unqualified
from .context import Context
from .initialisers import initial_numbers, is_undefined
from .translation_unit import is_ours
from .types import (
    element_type,
    is_const,
    is_reference,
    is_void_pointer,
    lower_type,
)

_CASTS = (CursorKind.CXX_REINTERPRET_CAST_EXPR, CursorKind.CSTYLE_CAST_EXPR, CursorKind.CXX_STATIC_CAST_EXPR)
_PLAIN = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR)
_WHERE = (
    "shared memory can be cut into arrays of several types where each begins behind the one before, at an offset that is the same "
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
    """True if a cast makes a pointer into the memory one to another type."""
    root, _ = _root(_operand(cast))
    return _is_pointer(cast) and root in found.views and unqualified(cast.type.get_canonical().get_pointee()) != found.views[root]


def _is_used(array: Cursor, found: _Found, nodes: list[Cursor]) -> bool:
    """True if the memory is used as what it is declared to be."""
    inside = {inner for cast in found.casts for inner in descendants(cast)}
    return any(is_use(node, array) and node not in inside for node in nodes)


def is_use(node: Cursor, variable: Cursor) -> bool:
    """True if a node names a variable (a number that stands for a template's parameter names nothing)."""
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
    """True if all threads of a block have the same value for an offset, which is not negative as far as one can see."""
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
    """True if a variable is given another value than its first, or its address is taken."""
    for node in nodes:
        writes = node.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR
        writes |= node.kind == CursorKind.BINARY_OPERATOR and binary_operator(node) == "="
        writes |= node.kind == CursorKind.UNARY_OPERATOR and unary_operator(node) in ("&", "x++", "x--", "++x", "--x")
        changed = _root(children(node)[0])[0] if writes else None
        if changed is not None and changed == variable:
            return True
    return False


def only_reads(node: Cursor, variable: Cursor) -> bool:
    """True if nothing in a node does more with a variable than read it: as a number, in a loop over it, or through a pointer to const."""
    for child in children(node):
        indices = _indices(child, variable)
        if indices is None:
            if not only_reads(child, variable):
                return False
        elif not _is_read(node) or not all(only_reads(index, variable) for index in indices):
            return False
    return True


def _is_read(node: Cursor) -> bool:
    if node.kind == CursorKind.CXX_FOR_RANGE_STMT:
        type_ = children(node)[0].type.get_canonical()
        return not is_reference(type_) or is_const(type_.get_pointee())
    pointee = node.type.get_canonical().get_pointee()
    return bool(node.kind == CursorKind.UNEXPOSED_EXPR and (not pointee.spelling or is_const(pointee)))


def _indices(place: Cursor, variable: Cursor) -> list[Cursor] | None:
    """The indices in an expression that is a variable, or a part of it; None for any other expression."""
    inner = children(place)
    if is_use(place, variable):
        return []
    decays = place.kind == CursorKind.UNEXPOSED_EXPR and inner and inner[0].type.get_canonical().kind == TypeKind.CONSTANTARRAY
    if decays or (place.kind in (CursorKind.PAREN_EXPR, CursorKind.MEMBER_REF_EXPR) and inner):
        return _indices(inner[0], variable)
    if place.kind != CursorKind.ARRAY_SUBSCRIPT_EXPR or (indices := _indices(inner[0], variable)) is None:
        return None
    return [*indices, inner[1]]


def _operand(cast: Cursor) -> Cursor:
    return [child for child in children(cast) if child.kind.is_expression()][-1]


def _is_pointer(cursor: Cursor) -> bool:
    return bool(cursor.type.get_canonical().get_pointee().spelling)


_VOLATILE = (
    "a single volatile number in shared memory is not supported; leave volatile away and write __syncthreads() where it is passed on"
)


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
    dynamic = kind.kind == TypeKind.INCOMPLETEARRAY
    if dynamic or (kind.kind == TypeKind.CONSTANTARRAY and kind.element_type.get_size() == 1):  # bytes may stand for any type
        pieces = cut(ctx, cursor, kind.element_type)
        inner = element_type(kind.element_type if pieces else _meant(ctx, cursor, kind.element_type), ctx.span(cursor))
        length = DYNAMIC if dynamic else kind.get_size() // size_of(inner)
        type_: Type = Array(inner, length)
        if length == 0:
            ctx.refuse(cursor, f"shared memory of {kind.get_size()} bytes has no room for the type that it is cast to")
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
        if node.kind in _CASTS and not is_void_pointer(node) and is_use(_operand_of_cast(node), cursor):
            targets.append(unqualified(node.type.get_canonical().get_pointee()))
    return targets[0] if targets and len(targets) == uses and all(t == targets[0] for t in targets) else element


def _operand_of_cast(cast: Cursor) -> Cursor:
    """What is cast, without parentheses and conversions."""
    inner = cast
    while inner.kind in (*_CASTS, CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR):
        parts = [child for child in children(inner) if child.kind.is_expression()]
        if len(parts) != 1:
            break
        (inner,) = parts
    return inner


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
