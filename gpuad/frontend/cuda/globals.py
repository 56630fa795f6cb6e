"""`__constant__` and `__device__` variables: memory of the user's module.

A generated kernel is compiled into a module of its own, where a variable of this name would be another one, full of zeros. So it gets a
pointer to the user's: each variable that a kernel or a helper of it reaches becomes a pointer parameter after the kernel's own.
"""

from __future__ import annotations

from dataclasses import replace

from clang.cindex import Cursor, CursorKind

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.records import holds_pointers
from ...ir.surface import Cast, Deref, Expr, Global, Name
from ...ir.types import Array, Complex, Pointer, Scalar, Struct, Type, Vector
from .arrays import initial_numbers, is_undefined
from .clang_c import has_attribute, initializer
from .context import Context
from .types import is_const

_SPACES = {CursorKind.CUDACONSTANT_ATTR: "__constant__", CursorKind.CUDADEVICE_ATTR: "__device__"}
_SCOPES = (CursorKind.NAMESPACE, CursorKind.TRANSLATION_UNIT, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL)


def module_variable(ctx: Context, use: Cursor, variable: Cursor) -> Expr:
    """The variable as what its parameter points to."""
    if variable not in ctx.globals:
        ctx.globals[variable] = _global(ctx, use, variable)
    pointer, type_, span = ctx.globals[variable].pointer, ctx.type(variable), ctx.span(use)
    assert isinstance(pointer.type, Pointer)
    whole = Pointer(type_, pointer.type.const)
    name: Expr = Name(span, pointer.type, pointer)
    return Deref(span, type_, name if whole == pointer.type else Cast(span, whole, name, True))


def _global(ctx: Context, use: Cursor, variable: Cursor) -> Global:
    space = next((name for kind, name in _SPACES.items() if has_attribute(variable, kind)), None)
    if space is None or variable.semantic_parent.kind not in _SCOPES:
        ctx.refuse(use, f"the variable {variable.spelling} is neither local nor in memory of the module (__constant__, __device__)")
    type_ = ctx.type(variable)
    element, shape = _element(type_)
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


def _element(type_: Type) -> tuple[Type, tuple[int, ...]]:
    """What an array of arrays consists of at last, and its shape in numbers."""
    if isinstance(type_, Vector):
        return type_, (type_.lanes,)
    if not isinstance(type_, Array):
        return type_, ()
    element, shape = _element(type_.element)
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
