"""CUDA text to a `Module`: libclang reads it, its diagnostics become errors at the user's line, and kernels are lowered when needed.

Name expressions, `step<float, 3>`, name an instance of a template, as in NVRTC and CuPy. An uninstantiated template has no types: so a
line that takes the address of the instance is appended to the user's text, and what that line refers to is the concrete function. From a
function's cursor to its surface tree leads `lower_function`, with the tables of handlers of the `lower_*` modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from clang.cindex import Cursor, CursorKind, Diagnostic, SourceLocation, TranslationUnit, TypeKind

from ...errors import CompileError, UnsupportedError, near
from ...ir import surface
from ...ir.records import is_record
from ...ir.surface import Block, Cast, Declaration, Declare, Deref, Name
from ...ir.types import Array, Pointer, Scalar, Type
from ...recursion_limit import room
from ...source import SourceFile, Span
from . import lower_calls, lower_expressions, lower_statements, lower_switch, records
from .clang_c import children, file_location, file_number, has_attribute, template_of
from .context import Context, ExpressionHandler, StatementHandler
from .fence import header_message
from .lower_calls import is_lambda, is_passed
from .lower_expressions import LAUNCH
from .swaps_in_place import with_swaps
from .translation_unit import HOST_NAMES, INCLUDE, MAIN, Places, command_line, is_ours, translation_unit
from .types import is_const, is_reference, is_rvalue_reference, lower_parameter, lower_type
from .variables import with_globals

_VARIABLE = "gpuad_instance"
_SPELLED = {"*": " pointer ", "&": " reference ", "-": " minus "}


def is_expression(name: str) -> bool:
    """True if a name asks for an instance of a template."""
    return "<" in name


def request(expression: str) -> str:
    """The text that makes clang instantiate what the expression names."""
    return f"\n\nauto {_VARIABLE} = &({expression.strip().removeprefix('&')});\n"


def is_request(location: SourceLocation, places: Places) -> bool:
    """True if a place is in the request itself, not in the user's text."""
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
    type_ = "float" + _lanes(template)
    return f"{template.spelling}<{', '.join(type_ if p.kind == kinds[0] else '3' for p in parameters)}>"


def _lanes(template: Cursor) -> str:
    """How many numbers a template's type has, by the members that its text reads of anything but the launch's indices: "2" for `u[i].y`."""
    words = [token.spelling for token in template.get_tokens()]
    members = {m for of, dot, m in zip(words, words[1:], words[2:], strict=False) if dot == "." and of not in LAUNCH and m in "xyzw"}
    return str(" xyzw".index(max(members, key="xyzw".index))) if members else ""


def no_instance(expression: str, reason: str, source: str, kernels: Sequence[str]) -> str:
    """What is said to a name expression for which there is no kernel."""
    if "incompatible initializer" in reason:
        reason = "no template of this name takes these arguments"
    known = ", ".join(kernels) or "none"
    advice = "A template is named with its arguments: 'step<float, 3>'"
    return f"no kernel {expression!r} in {source}: {reason}; its kernels are: {known}. {advice}"


_SCOPES = {CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL}
_FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE}
_HOST_NAME = re.compile(
    r"(unknown type name|use of undeclared identifier) '(u_char|ushort|uint|ulong|std|M_\w+|INFINITY|NAN|HUGE_VALF?|U?\w+_(MIN|MAX))'.*"
)
_OF_THE_HOST = re.compile(
    r"no \w+ named '(\w+_ptr|chrono|thread|c(out|err)|endl|runtime_error|exception|[io]?(f|string)stream)' in namespace 'std'.*"
    r"|.*(undefined template|incomplete type|incomplete result type) '(const )?std::.*"
)
_UNSEQUENCED = re.compile(r"\bunsequenced\b")
_CONTAINED = "Semantic Issue"  # an error of this category does not change how the text around it is read


@dataclass(frozen=True)
class Module:
    """The kernels of one source text.

    `kernels` are the names of its __global__ functions in order, with their namespaces (`filters::blur`), and
    `kernel(name)` gives the tree of one. A template is there by its own name; `kernel` wants an instance of it (`step<float, 3>`).
    """

    source: SourceFile
    kernels: tuple[str, ...]
    options: tuple[str, ...]
    _definitions: dict[str, tuple[Cursor, ...]] = field(repr=False, compare=False)
    _errors: tuple[Diagnostic, ...] = field(repr=False, compare=False)
    _places: Places = field(repr=False, compare=False)
    _unit: TranslationUnit = field(repr=False, compare=False)
    _lowered: dict[str, surface.Function] = field(default_factory=dict, repr=False, compare=False)

    @property
    def includes_files(self) -> bool:
        """True if the text depends on files that are not gpuad's own."""
        return "__has_include" in self.source.text or any(
            not Path(str(file.include.name)).is_relative_to(INCLUDE) for file in self._unit.get_includes()
        )

    def span(self, name: str) -> Span:
        """Where the kernel is defined; CompileError if there is none of this name."""
        module, definition = self._found(name)
        return module._places.of(definition)

    def symbol(self, name: str) -> str:
        """The kernel's name as compilers make it from its types, its own if it is `extern "C"`."""
        return str(self._found(name)[1].mangled_name)

    def called(self, symbol: str, expressions: Sequence[str] = ()) -> str:
        """The name, of `expressions` or of `kernels`, of the kernel that the compiler calls `symbol`; CompileError if there is none."""
        for name in (*expressions, *self.kernels):
            with suppress(CompileError, UnsupportedError):  # not every expression has to be that of a kernel
                if self.symbol(name) == symbol:
                    return name
        raise CompileError(f"no kernel {symbol!r} in {self.source.name}; its kernels are: {', '.join(self.kernels) or 'none'}")

    def kernel(self, name: str) -> surface.Function:
        """The kernel's surface tree, with those of all the helpers that it calls. `name` is a name of `kernels`, one without its namespaces
        if that is clear, or a name expression as NVRTC takes it: `step<float, 3>`.

        Raises CompileError if the source has no such kernel or clang rejects a function that it consists of, UnsupportedError with file,
        line and column for whatever gpuad cannot represent.
        """
        if name not in self._lowered:
            module, definition = self._found(name)
            tree = module._lower(definition)
            self._lowered[name] = replace(tree, name=legal_name(name)) if is_expression(name) else tree
        return self._lowered[name]

    def _found(self, name: str) -> tuple[Module, Cursor]:
        """The kernel, and the module that it is in: an instance of a template is in one of its own."""
        return self._instance(name) if is_expression(name) else (self, self._definition(name))

    def _instance(self, expression: str) -> tuple[Module, Cursor]:
        """An instance of a template, from a parse of its own: the text with a line after it that asks for the instance."""
        unit = translation_unit(self.source, self.options, request(expression))
        places = Places(self.source, command_line(self.options).header)
        functions = [cursor for _, cursor in _functions(unit.cursor, "")]
        errors = _errors(unit)
        for error in errors:
            if is_request(error.location, places):
                _raise_error_in_template(expression, errors, functions, places)
                raise CompileError(no_instance(expression, str(error.spelling), self.source.name, self.kernels))
            _raise_unless_contained(error, functions, places)
        definition = instance(unit)
        for error in errors:
            if definition is None and any(is_request(place, places) for place in requests(error)):
                raise _compile_error(error, places)
        if definition is None:
            _raise_error_in_template(expression, errors, functions, places)
            raise CompileError(no_instance(expression, "it is no kernel", self.source.name, self.kernels))
        return replace(self, _definitions={}, _errors=errors, _places=places, _unit=unit, _lowered={}), definition

    def _definition(self, name: str) -> Cursor:
        found = self._definitions.get(name) or tuple(
            cursor for full, cursors in self._definitions.items() if full.rpartition("::")[2] == name for cursor in cursors
        )
        if not found:
            known = ", ".join(self.kernels) or "none"
            raise CompileError(f"no kernel {name!r} in {self.source.name}; its kernels are: {known}{near(name, self.kernels)}")
        if len(found) > 1:
            raise CompileError(f"{name!r} stands for several kernels in {self.source.name}; its kernels are: {', '.join(self.kernels)}")
        if found[0].kind == CursorKind.FUNCTION_TEMPLATE:
            raise CompileError(needs_arguments(found[0], self.source.name, self.kernels), self._places.of(found[0]))
        return found[0]

    def _lower(self, definition: Cursor) -> surface.Function:
        with room(definition.spelling, self._places.of(definition)):
            return lower_kernel(self._places, definition, self._refuse_errors_in)

    def _refuse_errors_in(self, function: Cursor) -> None:
        for error in self._errors:
            if any(_lies_in(place, function) for place in (error.location, *requests(error))):
                raise _compile_error(error, self._places)


def parse(source: SourceFile, *, options: tuple[str, ...] = ()) -> Module:
    """Reads CUDA C++ text. `options` are those for NVRTC; `-D`, `-U`, `-I`, `-std` and `-arch` count here.

    Raises CompileError with clang's message where the text is no CUDA C++, UnsupportedError for a header that gpuad does not have. An error
    inside one function is raised only when a kernel that uses the function is asked for. The same text with the same options is read once,
    but for one that includes files of the user, who may change them.
    """
    module = _read_once(source, tuple(options))
    return _parse(source, tuple(options)) if module.includes_files else module


@lru_cache(maxsize=64)
def _read_once(source: SourceFile, options: tuple[str, ...]) -> Module:
    return _parse(source, options)


def _parse(source: SourceFile, options: tuple[str, ...]) -> Module:
    unit = translation_unit(source, options)
    if any(_HOST_NAME.match(str(error.spelling)) for error in _errors(unit)):
        options = (*options, *HOST_NAMES)
        unit = translation_unit(source, options)
    places = Places(source, command_line(options).header)
    definitions: dict[str, list[Cursor]] = {}
    functions = list(_functions(unit.cursor, ""))
    for name, cursor in functions:
        if has_attribute(cursor, CursorKind.CUDAGLOBAL_ATTR) and cursor.is_definition() and template_of(cursor) is None:
            definitions.setdefault(name, []).append(cursor)
    errors = _errors(unit)
    for error in errors:
        _raise_unless_contained(error, [cursor for _, cursor in functions], places)
    found = {name: tuple(cursors) for name, cursors in definitions.items()}
    return Module(source, tuple(definitions), options, found, errors, places, unit)


def _errors(unit: TranslationUnit) -> tuple[Diagnostic, ...]:
    return tuple(d for d in unit.diagnostics if d.severity >= Diagnostic.Error)


def _functions(scope: Cursor, prefix: str, ours: dict[int | None, bool] | None = None) -> list[tuple[str, Cursor]]:
    """The user's functions with their namespaces. `ours`: which files, by number, are headers of ours."""
    found: list[tuple[str, Cursor]] = []
    ours = {} if ours is None else ours
    for cursor in children(scope):
        number = file_number(cursor.location)
        if number not in ours:
            ours[number] = is_ours(cursor)
        if ours[number]:
            continue
        if cursor.kind in _FUNCTIONS:
            found.append((prefix + cursor.spelling, cursor))
        elif cursor.kind in _SCOPES:
            found += _functions(cursor, prefix + (f"{cursor.spelling}::" if cursor.kind == CursorKind.NAMESPACE else ""), ours)
    return found


def _raise_unless_contained(error: Diagnostic, functions: list[Cursor], places: Places) -> None:
    missing = re.fullmatch(r"'(.+)' file not found", error.spelling)
    if missing:
        raise UnsupportedError(header_message(missing[1]), places.at(error.location))
    contained = error.severity == Diagnostic.Error and error.category_name == _CONTAINED
    around = [function for function in functions if _lies_in(error.location, function)]
    if not contained or not around:
        raise _compile_error(error, places, around)


def _raise_error_in_template(expression: str, errors: Sequence[Diagnostic], functions: Sequence[Cursor], places: Places) -> None:
    """Raises the first error in the text of a template of which there is no instance: it is the reason that there is none."""
    name = expression.partition("<")[0].rpartition("::")[2].strip(" &")
    templates = [function for function in functions if function.spelling == name]
    for error in errors:
        if any(_lies_in(error.location, template) for template in templates):
            raise _compile_error(error, places)


def _lies_in(place: SourceLocation, function: Cursor) -> bool:
    name, _, _, offset = file_location(place)
    start, end = file_location(function.extent.start), file_location(function.extent.end)
    return name == start[0] and start[3] <= offset <= end[3]


def _is_of_the_host(function: Cursor) -> bool:
    return not any(has_attribute(function, kind) for kind in (CursorKind.CUDAGLOBAL_ATTR, CursorKind.CUDADEVICE_ATTR))


def _compile_error(error: Diagnostic, places: Places, around: Sequence[Cursor] = ()) -> CompileError:
    """clang's message with what can be done about it. `around`: the functions in which the error lies."""
    unknown = re.fullmatch(r"use of undeclared identifier '([A-Z][A-Z\d_]*)'", str(error.spelling))
    hint = f"; if it is a macro, define it by the option -D{unknown[1]}=..." if unknown else ""
    host = [function.spelling for function in around if _is_of_the_host(function)]
    if host:
        hint = f"; {host[0]!r} is a function of the host, which NVRTC reads too: it stands between #ifndef __CUDACC_RTC__ and #endif"
    elif _OF_THE_HOST.fullmatch(str(error.spelling)):
        hint = "; code of the host that needs it stands between #ifndef __CUDACC_RTC__ and #endif"
    elif _UNSEQUENCED.search(str(error.spelling)):
        hint = "; C++ does not say which comes first: write two statements"
    return CompileError(f"{error.spelling}{hint}", places.at(error.location))


EXPRESSIONS: dict[CursorKind, ExpressionHandler] = {
    CursorKind.UNEXPOSED_EXPR: lower_expressions.implicit,
    CursorKind.PAREN_EXPR: lower_expressions.parenthesised,
    CursorKind.INTEGER_LITERAL: lower_expressions.literal,
    CursorKind.FLOATING_LITERAL: lower_expressions.literal,
    CursorKind.CHARACTER_LITERAL: lower_expressions.literal,
    CursorKind.CXX_BOOL_LITERAL_EXPR: lower_expressions.literal,
    CursorKind.CXX_UNARY_EXPR: lower_expressions.literal,
    CursorKind.SIZE_OF_PACK_EXPR: lower_expressions.literal,
    CursorKind.CXX_NULL_PTR_LITERAL_EXPR: lower_expressions.null,
    CursorKind.DECL_REF_EXPR: lower_expressions.name,
    CursorKind.MEMBER_REF_EXPR: records.member,
    CursorKind.CXX_THIS_EXPR: records.this,
    CursorKind.ARRAY_SUBSCRIPT_EXPR: lower_expressions.subscript,
    CursorKind.UNARY_OPERATOR: lower_expressions.unary,
    CursorKind.BINARY_OPERATOR: lower_expressions.binary,
    CursorKind.COMPOUND_ASSIGNMENT_OPERATOR: lower_expressions.compound,
    CursorKind.CONDITIONAL_OPERATOR: lower_expressions.conditional,
    CursorKind.CSTYLE_CAST_EXPR: lower_expressions.cast,
    CursorKind.CXX_STATIC_CAST_EXPR: lower_expressions.cast,
    CursorKind.CXX_FUNCTIONAL_CAST_EXPR: lower_expressions.cast,
    CursorKind.CXX_CONST_CAST_EXPR: lower_expressions.cast,
    CursorKind.CXX_REINTERPRET_CAST_EXPR: lower_expressions.cast,
    CursorKind.INIT_LIST_EXPR: lower_expressions.braced,
    CursorKind.CALL_EXPR: lower_calls.call,
}

STATEMENTS: dict[CursorKind, StatementHandler] = {
    CursorKind.COMPOUND_STMT: lower_statements.block,
    CursorKind.DECL_STMT: lower_statements.declarations,
    CursorKind.IF_STMT: lower_statements.branch,
    CursorKind.SWITCH_STMT: lower_switch.switch,
    CursorKind.FOR_STMT: lower_statements.for_loop,
    CursorKind.CXX_FOR_RANGE_STMT: lower_statements.range_loop,
    CursorKind.WHILE_STMT: lower_statements.while_loop,
    CursorKind.DO_STMT: lower_statements.do_loop,
    CursorKind.BREAK_STMT: lower_statements.stop,
    CursorKind.CONTINUE_STMT: lower_statements.skip,
    CursorKind.RETURN_STMT: lower_statements.leave,
    CursorKind.NULL_STMT: lower_statements.nothing,
    CursorKind.UNEXPOSED_STMT: lower_statements.attributed,
    CursorKind.CALL_EXPR: lower_statements.evaluate,
}

NO_ELEMENT = "a kernel's pointer must point to numbers, structs, or arrays of these"


def lower_kernel(places: Places, definition: Cursor, check: Callable[[Cursor], None]) -> surface.Function:
    """The kernel's tree. `check` is called with each definition that it consists of, its own and those of the helpers that it reaches,
    before that is lowered: it raises where clang has found an error."""
    ctx = Context(places, EXPRESSIONS, STATEMENTS, lower_function, check)
    function = with_swaps(lower_function(ctx, definition, None), ctx.fresh)
    return with_globals(function, tuple(ctx.globals.values())) if ctx.globals else function


def lower_function(ctx: Context, definition: Cursor, object_type: Type | None) -> surface.Function:
    """A kernel or helper with its body. A member function has its object, an `object_type`, as first parameter, a constructor gives the
    object that it makes."""
    ctx.check(definition)
    is_kernel = has_attribute(definition, CursorKind.CUDAGLOBAL_ATTR)
    ctx.active.append(definition)
    ctx.tables.append([])
    closure, constructor = is_lambda(definition), records.is_constructor(definition)
    method = records.is_method(definition) and not closure
    ctx.receivers.append(records.own_object(ctx, definition, object_type) if method or constructor else None)
    receiver = (ctx.receivers[-1],) if method and ctx.receivers[-1] else ()
    parameters = tuple(
        _parameter(ctx, p, number, is_kernel) for number, p in enumerate(definition.get_arguments()) if is_kernel or not is_passed(p)
    )
    result = ctx.receivers[-1].type if constructor and ctx.receivers[-1] else lower_type(definition.result_type, ctx.span(definition))
    body = _body(ctx, definition)
    ctx.active.pop()
    ctx.receivers.pop()
    reference = not constructor and is_reference(definition.result_type)
    name = "lambda" if closure else definition.spelling
    library = is_ours(definition)
    return surface.Function(
        ctx.span(definition), name, (*receiver, *parameters), result, body, is_kernel, reference, library, closure=closure
    )


def _body(ctx: Context, definition: Cursor) -> Block:
    """The statements, after the tables of the file that they read."""
    bodies = [child for child in children(definition) if child.kind == CursorKind.COMPOUND_STMT]
    if len(bodies) != 1:
        ctx.refuse(definition, f"the function {definition.spelling} has no plain body")
    (block,) = ctx.statement(bodies[0])
    assert isinstance(block, Block)
    statements = records.constructed(ctx, definition, block.body) if records.is_constructor(definition) else block.body
    return Block(block.span, (*ctx.tables.pop(), *statements))


def _parameter(ctx: Context, cursor: Cursor, number: int, is_kernel: bool) -> Declaration:
    reference = is_reference(cursor.type)
    if is_rvalue_reference(cursor.type):
        ctx.refuse(cursor, "a parameter that is a reference to a temporary value (&&) is not supported; make it const and &")
    if is_kernel and reference:
        return _referred(ctx, cursor)
    type_ = lower_parameter(cursor.type, ctx.span(cursor))
    if isinstance(type_, Pointer) and is_kernel:
        if isinstance(type_.element, Array):
            return _flat(ctx, cursor, type_)
        inner = type_.element.element if isinstance(type_.element, Pointer) else type_.element
        if not _is_element(inner):
            ctx.refuse(cursor, NO_ELEMENT)
    declared = cursor.type.get_canonical().get_pointee() if reference else cursor.type
    const = is_const(declared) and isinstance(type_, Pointer) == (declared.get_canonical().kind == TypeKind.POINTER)
    name = _parameter_name(cursor, number)
    return ctx.declare(cursor, ctx.fresh(ctx.span(cursor), name, type_, reference=reference, const=const))


def _flat(ctx: Context, cursor: Cursor, type_: Pointer) -> Declaration:
    """A kernel's parameter that points to arrays (`float (*x)[3]`, `float u[][N]`): it is passed as a pointer to their elements, and seen
    through a local one of the type that the user gave it."""
    element = type_.element
    while isinstance(element, Array):
        element = element.element
    if not _is_element(element):
        ctx.refuse(cursor, NO_ELEMENT)
    span = ctx.span(cursor)
    flat = ctx.fresh(span, cursor.spelling, Pointer(element, type_.const), const=True)
    seen = ctx.declare(cursor, ctx.fresh(span, cursor.spelling, type_))
    ctx.tables[-1].append(Declare(span, seen, Cast(span, type_, Name(span, flat.type, flat), True)))
    return flat


def _referred(ctx: Context, cursor: Cursor) -> Declaration:
    """A kernel's parameter that is a reference (`const float& rate`): what is passed is the address of one element, and the name stands for
    what is there."""
    span, pointee = ctx.span(cursor), cursor.type.get_canonical().get_pointee()
    element, const = lower_type(pointee, span), is_const(pointee)
    if not _is_element(element):
        ctx.refuse(cursor, "a kernel's reference must be one to a number or a struct")
    pointer = ctx.fresh(span, cursor.spelling, Pointer(element, const), const=True)
    seen = ctx.declare(cursor, ctx.fresh(span, cursor.spelling, element, reference=True, const=const))
    ctx.tables[-1].append(Declare(span, seen, Deref(span, element, Name(span, pointer.type, pointer))))
    return pointer


def _is_element(type_: Type) -> bool:
    return isinstance(type_, Scalar) or is_record(type_)


def _parameter_name(cursor: Cursor, number: int) -> str:
    """The parameter's own name; one of a parameter pack, which all have the same, is numbered."""
    names = [p.spelling for p in cursor.semantic_parent.get_arguments()]
    if not cursor.spelling:
        return f"unnamed{number}"
    return str(cursor.spelling) if names.count(cursor.spelling) == 1 else f"{cursor.spelling}_{number}"
