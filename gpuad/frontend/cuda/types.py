"""clang's types as those of the IR, and C's conversions between types, made explicit as casts."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import replace

from clang.cindex import Cursor, CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir import types as ir
from ...ir.folding import wrapped
from ...ir.records import alike, holds_pointers, is_record, leaves, numbers, parts, points_to_pointers, size_of
from ...ir.surface import AddressOf, Binary, Cast, Constant, Decay, Deref, Expr, MathCall, Member, Name, Record
from ...ir.types import BOOL, F32, Array, Complex, Field, Pointer, Scalar, Struct, Type, Vector
from ...source import Span
from .clang_c import children, is_virtual, template_of
from .fence import FUNCTION_POINTER, LAMBDA, MEMBER_POINTER
from .overlaid import is_overlaid, overlaid
from .translation_unit import is_ours

_FLOATS = {TypeKind.FLOAT: ir.F32, TypeKind.DOUBLE: ir.F64}
_SIGNED = {TypeKind.CHAR_S, TypeKind.SCHAR, TypeKind.SHORT, TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG}
_UNSIGNED = {TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.USHORT, TypeKind.UINT, TypeKind.ULONG, TypeKind.ULONGLONG}
_FUNCTIONS = {TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO, TypeKind.MEMBERPOINTER}
_REFERENCES = {TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE}
_VOLATILE = (
    "volatile memory is not supported: other threads may change it, which a reverse pass cannot follow; only arrays of numbers in shared "
    "memory may be volatile"
)
_VECTOR = re.compile(r"((?:u?(?:char|short|int|long|longlong)|float|double)([1-4])|dim(3))(?:_\d+a)?")
HALVES: dict[str, Type] = {
    "__half": ir.F16,
    "__half2": Vector(ir.F16, 2),
    "__nv_bfloat16": ir.BF16,
    "__nv_bfloat162": Vector(ir.BF16, 2),
    "float16": ir.F16,  # CuPy's own
    "bfloat16": ir.BF16,
}
_Outer = tuple[str, ...]  # the structs in which a type is found


def lower_type(type_: ClangType, span: Span, outer: _Outer = ()) -> Type:
    """The IR's type, const of a value left aside; UnsupportedError at `span` for what the IR has no type for."""
    type_ = type_.get_canonical()
    if is_volatile(type_) and type_.kind != TypeKind.CONSTANTARRAY:
        raise UnsupportedError(_VOLATILE, span)
    if type_.kind == TypeKind.VOID:
        return ir.VOID
    if type_.kind == TypeKind.POINTER:
        return _pointer(type_.get_pointee(), span, outer)
    if type_.kind == TypeKind.CONSTANTARRAY:
        return _array(type_, span, outer)
    if type_.kind in _REFERENCES:
        return lower_type(type_.get_pointee(), span, outer)
    if type_.kind == TypeKind.RECORD:
        return _record(type_, span, outer)
    return _scalar(type_, span)


def lower_variable(type_: ClangType, span: Span) -> Type:
    """The type of a local variable: no other thread sees it, so that `volatile` says nothing about it."""
    plain = type_.get_canonical()
    return _scalar(plain, span) if _is_volatile_number(plain) else lower_type(type_, span)


def lower_parameter(type_: ClangType, span: Span) -> Type:
    """The type of a parameter: an array that is not a reference is a pointer, which the bindings do not say."""
    plain = type_.get_canonical()
    if plain.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        return replace(_pointer(plain.element_type, span), const=is_const(plain), volatile=is_volatile(plain))
    return lower_variable(type_, span)


def _scalar(type_: ClangType, span: Span) -> Scalar:
    if type_.kind in _FLOATS:
        return _FLOATS[type_.kind]
    if type_.kind == TypeKind.BOOL:
        return ir.BOOL
    if type_.kind in _SIGNED:
        return Scalar("int", 8 * type_.get_size())
    if type_.kind in _UNSIGNED:
        return Scalar("uint", 8 * type_.get_size())
    if type_.kind == TypeKind.ENUM:
        return _scalar(type_.get_declaration().enum_type.get_canonical(), span)
    raise UnsupportedError(_reason(type_), span)


def _record(type_: ClangType, span: Span, outer: _Outer) -> Type:
    """A vector type of CUDA, its complex numbers and halves, or a struct with the offsets of its fields."""
    declaration = type_.get_declaration()
    name = str(declaration.spelling)
    if "(lambda" in type_.spelling:
        raise UnsupportedError(LAMBDA, span)
    if is_ours(declaration) and (vector := _VECTOR.fullmatch(name)):
        return Vector(_scalar(next(iter(type_.get_fields())).type.get_canonical(), span), int(vector[2] or vector[3]))
    if is_ours(declaration) and name in HALVES:
        return HALVES[name]
    if is_ours(declaration) and name == "complex":
        return Complex(_scalar(next(iter(type_.get_fields())).type.get_canonical(), span))
    if type_.spelling in outer:
        raise UnsupportedError(f"structs that hold pointers to their own kind ({name}) are not supported", span)
    if any(child.kind == CursorKind.DESTRUCTOR for child in definition_parts(declaration)):
        raise UnsupportedError(f"structs with destructors ({name}) are not supported", span)
    outer = (*outer, type_.spelling)
    bases = _bases(declaration, name, span, outer)
    if is_overlaid(type_):
        return _overlaid(type_, bases, name, span, outer)
    fields = tuple(_field(field, span, outer) for field in type_.get_fields())
    _check_layout(type_, bases, fields, name, span)
    listed = _is_listed(declaration) and all(base.type.listed for base in bases if isinstance(base.type, Struct))
    return Struct(name, (*bases, *fields), max(type_.get_size(), 0), listed)


def _overlaid(type_: ClangType, bases: tuple[Field, ...], name: str, span: Span, outer: _Outer) -> Struct:
    """A struct whose members share memory."""
    if bases or any(is_virtual(child) for child in definition_parts(type_.get_declaration())):
        raise UnsupportedError(f"structs with bases or virtual functions whose members share memory ({name}) are not supported", span)
    fields, members = overlaid(name, type_, lambda field: _member_type(field, span, outer), span)
    size = type_.get_size()
    if any(field.offset % size_of(field.type) or size % size_of(field.type) for field in fields):
        raise UnsupportedError(f"packed structs ({name}) are not supported", span)
    return Struct(name, fields, size, _is_listed(type_.get_declaration()), members)


def _member_type(field: Cursor, span: Span, outer: _Outer) -> Type:
    if not field.spelling.isidentifier() or field.type.get_canonical().kind in _REFERENCES:
        raise UnsupportedError("structs with references are not supported", span)
    return lower_type(field.type, span, outer)


def definition_parts(declaration: Cursor) -> list[Cursor]:
    """What stands in a struct's definition: of an instance of a template, in the template's."""
    return children(template_of(declaration) or declaration)


def bases_of(declaration: Cursor) -> list[ClangType]:
    """The structs that one inherits from. Those of an instance of a template that depend on its parameters are not told: what they hold is
    a gap before the fields, and refused as one."""
    found = [c.type.get_canonical() for c in definition_parts(declaration) if c.kind == CursorKind.CXX_BASE_SPECIFIER]
    return found if all(type_.kind == TypeKind.RECORD for type_ in found) else []


def _bases(declaration: Cursor, name: str, span: Span, outer: _Outer) -> tuple[Field, ...]:
    """The bases that hold anything, as fields: the first at the beginning, each of the others behind the one before. The library does not
    tell where they are, so one that others could overlap, in the padding at its end, must be the only one."""
    placed: list[Field] = []
    end = 0
    inherited = bases_of(declaration)
    if inherited and any(is_virtual(child) for child in definition_parts(declaration)):
        raise UnsupportedError(_derived(name), span)
    for type_ in inherited:
        base, called = lower_type(type_, span, outer), str(type_.get_declaration().spelling)
        if not parts(base):
            continue
        if placed and (end < placed[-1].offset + size_of(placed[-1].type) or any(called == known.name for known in placed)):
            raise UnsupportedError(f"structs with several bases of one name or with padding ({name}) are not supported", span)
        offset = -(-end // type_.get_align()) * type_.get_align()
        placed.append(Field(called, base, offset, base=True))
        end = offset + _end_of(base)
    return tuple(placed)


def _end_of(kind: Type) -> int:
    """Where the last number of a struct ends, and padding begins."""
    return max((leaf.offset + size_of(leaf.type) for leaf in leaves(kind)), default=0)


def _field(field: Cursor, span: Span, outer: _Outer) -> Field:
    return Field(field.spelling, _member_type(field, span, outer), field.get_field_offsetof() // 8)


def _is_listed(declaration: Cursor) -> bool:
    """True for a struct without constructors and without default values of fields; an instance of a template is asked by its template."""
    found = definition_parts(declaration)
    constructors = (CursorKind.CONSTRUCTOR, CursorKind.FUNCTION_TEMPLATE, CursorKind.USING_DECLARATION)
    return not any(
        (c.kind in constructors and (c.kind != CursorKind.FUNCTION_TEMPLATE or c.spelling.partition("<")[0] == declaration.spelling))
        or (c.kind == CursorKind.FIELD_DECL and default_value(c) is not None)
        for c in found
    )


def default_value(field: Cursor) -> Cursor | None:
    """The value that a field has by default (`float w = 1;`), or None; an array's bounds are expressions too."""
    inner = [child for child in children(field) if child.kind.is_expression()][1 if field.is_bitfield() else 0 :]  # behind its width
    is_array = field.type.get_canonical().kind in (TypeKind.CONSTANTARRAY, TypeKind.DEPENDENTSIZEDARRAY)
    return inner[-1] if inner and (not is_array or inner[-1].kind == CursorKind.INIT_LIST_EXPR) else None


def _check_layout(type_: ClangType, bases: tuple[Field, ...], fields: tuple[Field, ...], name: str, span: Span) -> None:
    """Refuses a struct with more in it than its bases and fields (a table of virtual functions) or with fields that are not aligned."""
    end, clang = max((base.offset + size_of(base.type) for base in bases), default=0), list(type_.get_fields())
    for field, cursor in zip(fields, clang, strict=True):
        align = max(cursor.type.get_align(), 1)
        if field.offset - end >= align and not _is_aligned(cursor):
            raise UnsupportedError(_derived(name), span)
        if any((field.offset + leaf.offset) % leaf.type.size for leaf in leaves(field.type) if isinstance(leaf.type, Scalar)):
            raise UnsupportedError(f"packed structs ({name}) are not supported", span)
        end = field.offset + size_of(field.type)
    size = type_.get_size()
    if size > 0 and any(size % number.size for field in (*bases, *fields) for number in numbers(field.type)):
        raise UnsupportedError(f"packed structs ({name}) are not supported", span)
    if not fields and not bases and size > 1:
        raise UnsupportedError(_derived(name), span)


def _derived(name: str) -> str:
    return (
        f"structs with virtual functions, or bases that depend on a template ({name}), are not supported; write the fields into the struct"
    )


def _is_aligned(field: Cursor) -> bool:
    return any(child.kind == CursorKind.ALIGNED_ATTR for child in children(field))


def _array(type_: ClangType, span: Span, outer: _Outer) -> Array:
    element = element_type(type_.element_type, span, outer)
    if is_volatile(type_) and not isinstance(element, Scalar | Array):
        raise UnsupportedError(_VOLATILE, span)
    if isinstance(element, Pointer) or (is_record(element) and holds_pointers(element)):
        raise UnsupportedError("arrays of pointers are not supported", span)
    if type_.element_count < 1:
        raise UnsupportedError("an array without elements is not supported", span)
    return Array(element, type_.element_count)


def _pointer(pointee: ClangType, span: Span, outer: _Outer = ()) -> Pointer:
    if pointee.get_canonical().kind in _FUNCTIONS:
        raise UnsupportedError(FUNCTION_POINTER, span)
    element = element_type(pointee, span, outer)
    if points_to_pointers(element):
        raise UnsupportedError("pointers to pointers to pointers are not supported; pass a list of arrays for each", span)
    if is_record(element) and holds_pointers(element):
        raise UnsupportedError("pointers in structs behind pointers are not supported; pass the arrays alone", span)
    if isinstance(element, ir.Void):
        raise UnsupportedError("void pointers are not supported; give the type of what they point to", span)
    return Pointer(element, is_const(pointee), is_volatile(pointee))


def element_type(type_: ClangType, span: Span, outer: _Outer = ()) -> Type:
    """The type of an array's elements, or of what a pointer points to: of numbers there may be volatile ones."""
    plain = type_.get_canonical()
    return _scalar(plain, span) if _is_volatile_number(plain) else lower_type(type_, span, outer)


def _is_volatile_number(type_: ClangType) -> bool:
    return is_volatile(type_) and (type_.kind in _FLOATS or type_.kind in _SIGNED | _UNSIGNED or type_.kind == TypeKind.BOOL)


def is_volatile(type_: ClangType) -> bool:
    """True if a value of this type, or the elements of this array, are volatile."""
    type_ = type_.get_canonical()
    if type_.is_volatile_qualified():
        return True
    return type_.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY) and is_volatile(type_.element_type)


def is_const(type_: ClangType) -> bool:
    """True if a value of this type, or the elements of this array, may not be written."""
    type_ = type_.get_canonical()
    if type_.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY) and is_const(type_.element_type):
        return True
    return bool(type_.is_const_qualified())


def is_lambda_type(type_: ClangType) -> bool:
    """True if a type is that of a lambda, or a reference to one."""
    type_ = type_.get_canonical()
    plain = type_.get_pointee() if type_.kind in _REFERENCES else type_
    return str(plain.spelling).removeprefix("const ").startswith("(lambda")


def is_function(type_: ClangType) -> bool:
    """True if a type is that of a function itself, as what a reference to one refers to."""
    return type_.get_canonical().kind in _FUNCTIONS


def is_function_pointer(cursor: Cursor) -> bool:
    """True if what is declared is a pointer, or a reference, to a function; a parameter of a function's type is one too."""
    plain = cursor.type.get_canonical()
    return plain.kind == TypeKind.FUNCTIONPROTO or plain.get_pointee().get_canonical().kind in _FUNCTIONS


def record_of(cursor: Cursor) -> Cursor | None:
    """The struct that an expression is one of, or points to; None for any other."""
    type_ = cursor.type.get_canonical()
    type_ = type_.get_pointee() if type_.kind == TypeKind.POINTER else type_
    return type_.get_declaration() if type_.kind == TypeKind.RECORD else None


def is_reference(type_: ClangType) -> bool:
    """True for `T&` and `T&&`."""
    return type_.get_canonical().kind in _REFERENCES


def is_rvalue_reference(type_: ClangType) -> bool:
    """True for `T&&`."""
    return bool(type_.get_canonical().kind == TypeKind.RVALUEREFERENCE)


def _reason(type_: ClangType) -> str:
    name = type_.spelling.removeprefix("const ")
    if type_.kind == TypeKind.MEMBERPOINTER:
        return MEMBER_POINTER
    if type_.kind in _FUNCTIONS:
        return FUNCTION_POINTER
    if type_.kind in (TypeKind.VARIABLEARRAY, TypeKind.INCOMPLETEARRAY):
        return "an array needs a constant length"
    if type_.kind == TypeKind.NULLPTR:
        return "a variable of nullptr's type is not supported"
    return f"the type {name} is not supported"


def convert(value: Expr, target: Type, span: Span, *, implicit: bool) -> Expr:
    """`value` as a `target`; UnsupportedError for conversions that are none between numbers or of one kind of pointer."""
    source = value.type
    if source == target:
        return value
    if isinstance(source, Scalar) and isinstance(target, Scalar):
        return Cast(span, target, value, implicit)
    if isinstance(source, Array) and isinstance(target, Pointer) and source.element == target.element:
        return Decay(span, target, value)
    if isinstance(source, Array) and isinstance(target, Pointer) and is_shared_memory(value):  # bytes that are only used as another type
        return Decay(span, Pointer(source.element), value)
    if isinstance(source, Pointer) and target == BOOL:
        return Binary(span, BOOL, "!=", value, Constant(span, source, 0))
    if isinstance(source, Struct) and is_record(target):
        return as_base(value, target, span)
    if isinstance(source, Pointer) and isinstance(target, Pointer):
        return _as_pointer(value, target, span, implicit)
    if isinstance(source, Scalar) and source.bits == 64 and isinstance(target, Pointer):
        raise UnsupportedError(
            f"a conversion from {source} to {target} is not supported: which array lies at an address cannot be told. Of an array of "
            f"addresses make the parameter a pointer to pointers, as in `const float** rows`, and pass a list of the arrays",
            span,
        )
    raise UnsupportedError(f"a conversion from {source} to {target} is not supported", span)


def is_void_pointer(cursor: Cursor) -> bool:
    """True if an expression is a pointer to no type."""
    return bool(cursor.type.get_canonical().get_pointee().get_canonical().kind == TypeKind.VOID)


def is_shared_memory(value: Expr) -> bool:
    """True if an expression is a variable in shared memory."""
    return isinstance(value, Name) and value.declaration.space == "shared"


def as_base(value: Expr, base: Type, span: Span) -> Expr:
    """The part of a struct that is one of its bases, or of their bases: clang converts between structs in no other way."""
    if not parts(base):
        return Record(span, base, ())
    paths = list(_paths(value.type, base))
    if len(paths) != 1:
        raise UnsupportedError(f"a conversion from {value.type} to {base} is not supported", span)
    for field in paths[0]:
        value = Member(span, field.type, value, field.name)
    return value


def _paths(kind: Type, base: Type) -> Iterator[tuple[Field, ...]]:
    """The ways from a struct to a base of it."""
    if kind == base:
        yield ()
    for field in kind.fields if isinstance(kind, Struct) else ():
        if field.base:
            yield from ((field, *path) for path in _paths(field.type, base))


def _as_pointer(value: Expr, target: Pointer, span: Span, implicit: bool) -> Expr:
    source = value.type
    if isinstance(source, Pointer) and any(_paths(source.element, target.element)):
        place = value.lvalue if isinstance(value, AddressOf) else Deref(span, source.element, value)
        return AddressOf(span, target, as_base(place, target.element, span))
    if isinstance(source, Pointer) and any(sum(f.offset for f in path) for path in _paths(target.element, source.element)):
        raise UnsupportedError(f"a cast from {source}, a base behind the beginning of {target.element}, to {target} is not supported", span)
    if isinstance(source, Pointer) and (_alike(source.element, target.element) or _same_size(source.element, target.element)):
        return Cast(span, target, value, implicit)
    raise UnsupportedError(f"a cast from {source} to {target} reinterprets memory, which a derivative cannot follow", span)


def _alike(one: Type, other: Type) -> bool:
    """True if memory of one may be read as the other; of pointers, where they point to the same."""
    if isinstance(one, Pointer) and isinstance(other, Pointer):
        return one.element == other.element
    return alike(one, other)


def _same_size(one: Type, other: Type) -> bool:
    """True if the numbers that memory of one type consists of can be read as those of the other, bit for bit."""
    if len(numbers(one)) != 1 or len(numbers(other)) != 1:
        return False
    (a,), (z,) = numbers(one), numbers(other)
    if a.bits != z.bits or not alike(one, Array(a, 1)) or not alike(other, Array(z, 1)):
        return False
    return a.bits in (32, 64) or {a.kind, z.kind} == {"int", "uint"}


def explicit(value: Expr, target: Type, span: Span) -> Expr:
    """A value converted as the user asks: a conversion that clang put under a cast of the user is the user's."""
    if isinstance(value, Cast) and value.implicit and value.type == target:
        return replace(value, span=span, implicit=False)
    return convert(value, target, span, implicit=False)


def reinterpreted(value: Expr, target: Scalar, span: Span) -> Expr:
    """The bits of a number as another number of its size."""
    source = value.type
    if not isinstance(source, Scalar) or source.bits != target.bits or target.bits not in (32, 64):
        raise UnsupportedError(f"a bit cast from {source} to {target} is not supported", span)
    if source.is_float == target.is_float:
        return convert(value, target, span, implicit=False)
    wide = Scalar("int", 64) if 64 in (source.bits, target.bits) else None
    if wide is not None and source.is_integer:
        return MathCall(span, target, "bits", (convert(value, wide, span, implicit=False),))
    if wide is not None:
        return convert(MathCall(span, wide, "bits", (value,)), target, span, implicit=False)
    return MathCall(span, target, "bits", (value,))


def constant(span: Span, type_: Scalar, number: int | float) -> Constant:
    """A constant of `type_`, its value brought into the type's range as C does."""
    if type_.is_float:
        return Constant(span, type_, _rounded(float(number)) if type_ == F32 else float(number))
    if type_ == BOOL:
        return Constant(span, type_, bool(number))
    return Constant(span, type_, wrapped(int(number), type_))


def _rounded(number: float) -> float:
    """`number` as the nearest float32."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
