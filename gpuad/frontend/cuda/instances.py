"""Name expressions: `step<float, 3>` asks for an instance of a template, as in NVRTC and CuPy.

An uninstantiated template says nothing that may be believed: its types are unknown, its calls unresolved. So a line that takes the
address of the instance is put after the user's text, clang makes the instance, and what that line refers to is the concrete function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clang.cindex import Cursor, CursorKind, Diagnostic, SourceLocation, TranslationUnit

from .clang_c import children, file_location, has_attribute
from .places import MAIN, Places

_VARIABLE = "gpuad_instance"
_SPELLED = {"*": " pointer ", "&": " reference ", "-": " minus "}


def is_expression(name: str) -> bool:
    """Whether a name asks for an instance of a template."""
    return "<" in name


def request(expression: str) -> str:
    """The text that makes clang instantiate what the expression names."""
    return f"\n\nauto {_VARIABLE} = &({expression.strip().removeprefix('&')});\n"


def is_request(location: SourceLocation, places: Places) -> bool:
    """Whether a place is in the request itself, not in the user's text."""
    name, line, _, _ = file_location(location)
    return name == MAIN and places.is_beyond(line)


def requests(error: Diagnostic) -> tuple[SourceLocation, ...]:
    """Where the instances were asked for in which clang found an error; without a body, they cannot be seen to contain it."""
    return tuple(note.location for note in error.children)


def instance(unit: TranslationUnit) -> Cursor | None:
    """The kernel that the request at the end of the text refers to, or None if that is no kernel."""
    variables = [cursor for cursor in children(unit.cursor) if cursor.spelling == _VARIABLE]
    for reference in _references(variables[-1]) if variables else ():
        function = reference.referenced.get_definition() if reference.referenced is not None else None
        if function is not None and function.kind == CursorKind.FUNCTION_DECL and has_attribute(function, CursorKind.CUDAGLOBAL_ATTR):
            return function
    return None


def _references(cursor: Cursor) -> list[Cursor]:
    """The names that an address is taken of: the first on each way down."""
    if cursor.kind == CursorKind.DECL_REF_EXPR:
        return [cursor]
    return [found for child in children(cursor) for found in _references(child)]


def legal_name(expression: str) -> str:
    """`step<float, 3>` as an identifier: `step_float_3`."""
    plain = expression.strip().removeprefix("&")
    head, _, arguments = plain.partition("<")
    spelled = "".join(_SPELLED.get(c, c) for c in arguments)
    return "_".join(re.findall(r"\w+", f"{head.rpartition('::')[2]} {spelled}"))


def needs_arguments(template: Cursor, source: str, kernels: Sequence[str]) -> str:
    """What is said to the name of a template without arguments."""
    name = template.spelling
    return (
        f"{name!r} is a template; name an instance of it, as in {_example(template)!r}. The kernels of {source} are: {', '.join(kernels)}"
    )


def _example(template: Cursor) -> str:
    kinds = (CursorKind.TEMPLATE_TYPE_PARAMETER, CursorKind.TEMPLATE_NON_TYPE_PARAMETER, CursorKind.TEMPLATE_TEMPLATE_PARAMETER)
    parameters = [child for child in children(template) if child.kind in kinds]
    return f"{template.spelling}<{', '.join('float' if p.kind == kinds[0] else '3' for p in parameters)}>"


def no_instance(expression: str, reason: str, source: str, kernels: Sequence[str]) -> str:
    """What is said to a name expression for which there is no kernel."""
    if "incompatible initializer" in reason:
        reason = "no template of this name takes these arguments"
    known = ", ".join(kernels) or "none"
    advice = "A template is named with its arguments: 'step<float, 3>'"
    return f"no kernel {expression!r} in {source}: {reason}; its kernels are: {known}. {advice}"
