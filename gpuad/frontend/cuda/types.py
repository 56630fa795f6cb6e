"""clang's types as those of the IR."""

from __future__ import annotations

import re

from clang.cindex import CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir import types as ir
from ...ir.types import Array, Pointer, Scalar, Type
from ...source import Span

_FLOATS = {TypeKind.FLOAT: ir.F32, TypeKind.DOUBLE: ir.F64}
_SIGNED = {TypeKind.CHAR_S, TypeKind.SCHAR, TypeKind.SHORT, TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG}
_UNSIGNED = {TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.USHORT, TypeKind.UINT, TypeKind.ULONG, TypeKind.ULONGLONG}
_FUNCTIONS = {TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO, TypeKind.MEMBERPOINTER}
_REFERENCES = {TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE}
_VECTOR = re.compile(r"(u?(char|short|int|long|longlong)|float|double)[1-4]|dim3")


def lower_type(type_: ClangType, span: Span) -> Type:
    """The IR's type, const of a value left aside; UnsupportedError at `span` for what the IR has no type for."""
    type_ = type_.get_canonical()
    if type_.is_volatile_qualified():
        raise UnsupportedError("volatile memory is not supported: other threads may change it, which a reverse pass cannot follow", span)
    if type_.kind == TypeKind.VOID:
        return ir.VOID
    if type_.kind == TypeKind.POINTER:
        return _pointer(type_.get_pointee(), span)
    if type_.kind == TypeKind.CONSTANTARRAY:
        return _array(type_, span)
    if type_.kind in _REFERENCES:
        return lower_type(type_.get_pointee(), span)
    return _scalar(type_, span)


def lower_variable(type_: ClangType, span: Span) -> Type:
    """The type of a local variable: no other thread sees it, so that `volatile` says nothing about it, but much about what a pointer
    points to."""
    plain = type_.get_canonical()
    if plain.is_volatile_qualified() and (plain.kind in _FLOATS or plain.kind in _SIGNED | _UNSIGNED or plain.kind == TypeKind.BOOL):
        return _scalar(plain, span)
    return lower_type(type_, span)


def lower_parameter(type_: ClangType, span: Span) -> Type:
    """The type of a parameter: an array that is not a reference is a pointer, which the bindings do not say."""
    plain = type_.get_canonical()
    if plain.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        return Pointer(_pointer(plain.element_type, span).element, is_const(plain))
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


def _array(type_: ClangType, span: Span) -> Array:
    element = lower_type(type_.element_type, span)
    if isinstance(element, Pointer):
        raise UnsupportedError("arrays of pointers are not supported", span)
    if type_.element_count < 1:
        raise UnsupportedError("an array without elements is not supported", span)
    return Array(element, type_.element_count)


def _pointer(pointee: ClangType, span: Span) -> Pointer:
    if pointee.get_canonical().kind in _FUNCTIONS:
        raise UnsupportedError("function pointers are not supported", span)
    element = lower_type(pointee, span)
    if isinstance(element, Pointer):
        raise UnsupportedError("pointers to pointers are not supported", span)
    if isinstance(element, ir.Void):
        raise UnsupportedError("void pointers are not supported", span)
    return Pointer(element, is_const(pointee))


def is_const(type_: ClangType) -> bool:
    """True if a value of this type, or the elements of this array, may not be written."""
    type_ = type_.get_canonical()
    if type_.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY) and is_const(type_.element_type):
        return True
    return bool(type_.is_const_qualified())


def is_reference(type_: ClangType) -> bool:
    """True for `T&` and `T&&`."""
    return type_.get_canonical().kind in _REFERENCES


def is_rvalue_reference(type_: ClangType) -> bool:
    """True for `T&&`."""
    return bool(type_.get_canonical().kind == TypeKind.RVALUEREFERENCE)


def _reason(type_: ClangType) -> str:
    name = type_.spelling.removeprefix("const ")
    if type_.kind in _FUNCTIONS:
        return "function pointers are not supported"
    if type_.kind in (TypeKind.VARIABLEARRAY, TypeKind.INCOMPLETEARRAY):
        return "an array needs a constant length"
    if type_.kind == TypeKind.RECORD:
        return _record_reason(type_, name)
    if type_.kind == TypeKind.NULLPTR:
        return "a variable of nullptr's type is not supported"
    return f"the type {name} is not supported"


def _record_reason(type_: ClangType, name: str) -> str:
    if "(lambda" in name:
        return "lambdas are not supported; write a __device__ function"
    if _VECTOR.fullmatch(name):
        return f"vector types ({name}) come in a later release"
    if type_.get_declaration().kind == CursorKind.UNION_DECL:
        return "unions are not supported: a derivative cannot follow reinterpreted memory"
    return f"structs ({name}) come in a later release"
