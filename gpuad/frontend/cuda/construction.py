"""What clang shows of the constructors that the compiler itself writes."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from .clang_c import children
from .types import default_value


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
    return not has_body(callee) and not children(start) and not any(map(default_value, callee.semantic_parent.type.get_fields()))


def is_braced(start: Cursor) -> bool:
    """True where empty braces ask for the value of the type, zeros for the most part: `complex<float> z{}`, `complex<float> z = {}`."""
    return [token.spelling for token in start.get_tokens()][-2:] == ["{", "}"]


def is_elided(call: Cursor) -> bool:
    """True for the copy of a temporary value, which nobody makes: before C++17 it is there in name (`float2 v = make_float2(x, y);`)."""
    original = children(call)
    return not call.spelling and len(original) == 1 and _plain(original[0]) == _plain(call)


def _plain(value: Cursor) -> str:
    return str(value.type.get_canonical().spelling).removeprefix("const ")
