"""What gpuad needs of libclang beyond its Python bindings, as typed functions.

The bindings do not wrap operator kinds, initialisers, constant evaluation and file locations although the library exports them. This is the
only module that calls the C interface directly; a library without these functions (before LLVM 17) is refused with a clear message.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, SourceLocation, Type

from ...errors import CompileError

_EVAL_INT, _EVAL_FLOAT = 1, 2
_BREAK, _CONTINUE = 0, 1
_VISITOR: Any = ctypes.CFUNCTYPE(ctypes.c_int, Cursor, Cursor, ctypes.py_object)
_STEPPING = {1: "x++", 2: "x--", 3: "++x", 4: "--x"}

_CHECKS = {cindex._CXString: cindex._CXString.from_result, Cursor: Cursor.from_cursor_result, Type: Type.from_result}


@cache
def library() -> Any:
    """The loaded library with the prototypes of what is used here; CompileError where it is too old."""
    lib = cindex.conf.lib
    signatures: dict[str, tuple[list[Any], Any]] = {
        "clang_getCursorBinaryOperatorKind": ([Cursor], ctypes.c_int),
        "clang_getBinaryOperatorKindSpelling": ([ctypes.c_int], cindex._CXString),
        "clang_getCursorUnaryOperatorKind": ([Cursor], ctypes.c_int),
        "clang_getUnaryOperatorKindSpelling": ([ctypes.c_int], cindex._CXString),
        "clang_Cursor_getVarDeclInitializer": ([Cursor], Cursor),
        "clang_Cursor_Evaluate": ([Cursor], ctypes.c_void_p),
        "clang_EvalResult_getKind": ([ctypes.c_void_p], ctypes.c_int),
        "clang_EvalResult_isUnsignedInt": ([ctypes.c_void_p], ctypes.c_uint),
        "clang_EvalResult_getAsLongLong": ([ctypes.c_void_p], ctypes.c_longlong),
        "clang_EvalResult_getAsUnsigned": ([ctypes.c_void_p], ctypes.c_ulonglong),
        "clang_EvalResult_getAsDouble": ([ctypes.c_void_p], ctypes.c_double),
        "clang_EvalResult_dispose": ([ctypes.c_void_p], None),
        "clang_getSpecializedCursorTemplate": ([Cursor], Cursor),
        "clang_getUnqualifiedType": ([Type], Type),
        "clang_isVirtualBase": ([Cursor], ctypes.c_uint),
        "clang_visitChildren": ([Cursor, _VISITOR, ctypes.py_object], ctypes.c_uint),
        "clang_getFileLocation": ([SourceLocation, *[ctypes.c_void_p] * 4], None),
    }
    try:
        for name, (arguments, result) in signatures.items():
            function = getattr(lib, name)
            function.argtypes, function.restype = arguments, result
            if result in _CHECKS:
                function.errcheck = _CHECKS[result]
    except AttributeError as missing:
        raise CompileError(f"this libclang is too old for gpuad ({missing}): install the wheel libclang 18.1 or later") from None
    return lib


def unqualified(type_: Type) -> Type:
    """The canonical type without const and volatile of its own."""
    plain: Type = library().clang_getUnqualifiedType(type_.get_canonical())
    return plain


def binary_operator(cursor: Cursor) -> str:
    """'+', '&&', '=', '+=', ',' and so on."""
    lib = library()
    return str(lib.clang_getBinaryOperatorKindSpelling(lib.clang_getCursorBinaryOperatorKind(cursor)))


def unary_operator(cursor: Cursor) -> str:
    """'-', '~', '!', '*', '&', '+', and 'x++', 'x--', '++x', '--x'."""
    lib = library()
    kind = lib.clang_getCursorUnaryOperatorKind(cursor)
    return _STEPPING.get(kind) or str(lib.clang_getUnaryOperatorKindSpelling(kind))


def initializer(variable: Cursor) -> Cursor | None:
    """The initialiser of a variable's declaration, or None."""
    found: Cursor | None = library().clang_Cursor_getVarDeclInitializer(variable)
    return found


def template_of(function: Cursor) -> Cursor | None:
    """The template that a function is an instance of, or None."""
    found: Cursor | None = library().clang_getSpecializedCursorTemplate(function)
    return found


def evaluate(cursor: Cursor) -> int | float | None:
    """The value of a constant expression, exact, or None if it is none."""
    lib = library()
    result = lib.clang_Cursor_Evaluate(cursor)
    if not result:
        return None
    try:
        return _value(lib, result)
    finally:
        lib.clang_EvalResult_dispose(result)


def _value(lib: Any, result: int) -> int | float | None:
    kind = lib.clang_EvalResult_getKind(result)
    if kind == _EVAL_FLOAT:
        return float(lib.clang_EvalResult_getAsDouble(result))
    if kind != _EVAL_INT:
        return None
    unsigned = lib.clang_EvalResult_isUnsignedInt(result)
    return int(lib.clang_EvalResult_getAsUnsigned(result) if unsigned else lib.clang_EvalResult_getAsLongLong(result))


def file_location(location: SourceLocation) -> tuple[str | None, int, int, int]:
    """File name, line, column in bytes, offset in bytes. What comes from a macro's body lies where the macro is used."""
    number, *rest = numbered_location(location)
    return (None if number is None else file_name(number), *rest)  # type: ignore[return-value]


def numbered_location(location: SourceLocation) -> tuple[int | None, int, int, int]:
    """As `file_location`, with a number of the file, the same for all locations of a translation unit that are in it: that of its name
    costs ten times as much."""
    file = cindex.c_object_p()
    line, column, offset = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    library().clang_getFileLocation(location, *map(ctypes.byref, (file, line, column, offset)))
    return ctypes.cast(file, ctypes.c_void_p).value, line.value, column.value, offset.value


def file_number(location: SourceLocation) -> int | None:
    """The number of a location's file."""
    return numbered_location(location)[0]


def file_name(number: int) -> str:
    """The name of a file of a translation unit that is still there."""
    return str(cindex.File(ctypes.cast(number, cindex.c_object_p)).name)


def is_virtual(part: Cursor) -> bool:
    """True if a part of a struct's definition is a virtual function or base."""
    if part.kind == CursorKind.CXX_BASE_SPECIFIER:
        return bool(library().clang_isVirtualBase(part))
    return bool(part.kind == CursorKind.CXX_METHOD and part.is_virtual_method())


def children(cursor: Cursor) -> list[Cursor]:
    """The child cursors in source order.

    The bindings' own `get_children` loses children without a word where Python cannot run its visitor (at the recursion limit, or when
    the user interrupts it): a term would be dropped. The library tells when a visit was broken off.
    """
    failure: list[BaseException] = []

    def visit(child: Cursor, parent: Cursor, found: list[Cursor]) -> int:
        try:
            child._tu = cursor._tu  # a cursor is valid as long as its translation unit
            found.append(child)
        except BaseException as error:
            failure.append(error)
            return _BREAK
        return _CONTINUE

    found: list[Cursor] = []
    broken_off = library().clang_visitChildren(cursor, _VISITOR(visit), found)
    if broken_off:
        raise failure[0] if failure else RecursionError("the children of a cursor")
    return found


def descendants(cursor: Cursor) -> Iterator[Cursor]:
    """All that is inside a cursor, each before what it contains."""
    for child in children(cursor):
        yield child
        yield from descendants(child)


def same_extent(one: Cursor, other: Cursor) -> bool:
    """True if both begin and end at the very same tokens: an implicit expression adds none of its own."""
    return bool(one.extent.start == other.extent.start and one.extent.end == other.extent.end)


def has_attribute(declaration: Cursor, kind: CursorKind) -> bool:
    """True if the declaration carries the attribute."""
    return any(child.kind == kind for child in children(declaration))


def is_shared(cursor: Cursor) -> bool:
    """True if a variable is declared `__shared__`."""
    return has_attribute(cursor, CursorKind.CUDASHARED_ATTR)
