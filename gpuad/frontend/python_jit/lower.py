"""From a Python function and the types of a call to its surface tree.

In: a function with source to read, and a `Signature`: for each parameter a number's type or an array's dtype, number of axes and layout.
Out: `Lowered`, the kernel's tree with spans in the Python file, and the names of the numbers that it takes after the user's arguments. A
device function is lowered once for each set of types.

Guarantees one declaration for each variable, hoisted ones first. Raises CompileError for another number of arguments and for what CuPy
rejects too, UnsupportedError for defaults, `*args`, recursion, and what has no lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import CompileError, UnsupportedError
from ...ir.surface import Block, Declaration, Function
from ...ir.types import VOID
from ...source import SourceFile, Span
from . import fence
from .context import Context, Program, layout_names, layout_type, pointer_type
from .signature import ArrayType, NumberType, Signature
from .source import Source, read
from .statements import block
from .values import ArrayValue, Number


@dataclass(frozen=True)
class Lowered:
    """A kernel's tree, the file that it was written in, and the numbers that it takes after the user's arguments, by key."""

    function: Function
    file: SourceFile
    numbers: tuple[str, ...]


def lower(function: Callable[..., object], signature: Signature) -> Lowered:
    """The kernel that a Python function is for the types of a call.

    Raises CompileError at a Python line for what CuPy rejects too (a name without a value, types that do not go together), UnsupportedError
    for what gpuad cannot represent.
    """
    source = read(function)
    names = _parameter_names(source)
    if len(names) != len(signature):
        raise CompileError(f"`{source.tree.name}` takes {len(names)} arguments, got {len(signature)}", source.span(source.tree))
    program = Program(_device, taken=frozenset(names))
    ctx = Context(program, source, function, {}, None)
    declared = tuple(
        _parameter(ctx, name, type_.type if isinstance(type_, NumberType) else type_) for name, type_ in zip(names, signature, strict=True)
    )
    body = block(ctx, source.tree.body, True)
    parameters = (*declared, *program.numbers.values())
    tree = Function(_place(source), source.tree.name, parameters, VOID, Block(_place(source), (*ctx.hoisted, *body)), is_kernel=True)
    return Lowered(tree, source.file, tuple(program.numbers))


def _place(source: Source) -> Span:
    """The function's name."""
    start = source.span(source.tree)
    column = start.file.line(start.line).find(source.tree.name, start.column) + 1
    return Span(start.file, start.line, max(column, start.column), len(source.tree.name))


def _parameter_names(source: Source) -> list[str]:
    args = source.tree.args
    if args.vararg or args.kwonlyargs or args.kwarg or args.defaults or args.posonlyargs:
        raise UnsupportedError(fence.PARAMETERS, source.span(source.tree))
    return [a.arg for a in args.args]


def _parameter(ctx: Context, name: str, type_: ArrayType | Number) -> Declaration:
    place = next(a for a in ctx.source.tree.args.args if a.arg == name)
    span = ctx.span(place)
    if not isinstance(type_, ArrayType):
        declaration = ctx.program.declare(span, name, type_)
        ctx.names[name] = declaration
        return declaration
    pointer = ctx.program.declare(span, name, pointer_type(type_, span))
    ctx.names[name] = ArrayValue(name, pointer, type_)
    return pointer


# --- device functions ----------------------------------------------------------------------------------------------------------------


def _device(program: Program, function: Callable[..., object], types: tuple[ArrayType | Number, ...], call: Span) -> Function:
    """A device function for the types of a call; lowered once for each."""
    key = (function, types)
    if key in program.helpers:
        known = program.helpers[key]
        if known is None:
            raise UnsupportedError("recursion is not supported", call)
        return known
    program.helpers[key] = None
    source = read(function)
    names = _parameter_names(source)
    if len(names) != len(types):
        raise CompileError(f"`{source.tree.name}` takes {len(names)} arguments, got {len(types)}", call)
    ctx = Context(program, source, function, {}, {})
    parameters: list[Declaration] = []
    for name, type_ in zip(names, types, strict=True):
        parameters.append(_parameter(ctx, name, type_))
        if isinstance(type_, ArrayType):
            parameters += _layout(ctx, name, type_)
    body = block(ctx, source.tree.body, True)
    made = Function(_place(source), source.tree.name, tuple(parameters), ctx.result or VOID, Block(_place(source), (*ctx.hoisted, *body)))
    program.helpers[key] = made
    return made


def _layout(ctx: Context, name: str, type_: ArrayType) -> list[Declaration]:
    span = ctx.span(ctx.source.tree)
    made = {n: ctx.program.declare(span, n, layout_type(type_), const=True) for n in layout_names(name, type_)}
    assert ctx.layout is not None
    ctx.layout.update(made)
    return list(made.values())
