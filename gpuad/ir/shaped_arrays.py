"""Arrays with their shapes as parameters (CuPy's `CArray<T, 2>`): in the kernel that is launched a pointer, the size, extents and strides
are parameters in the place of each, of which the body makes the struct that it was written with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import LaunchError
from .records import is_shaped
from .surface import Block, Declaration, Declare, Expr, Function, Name, Record, walk
from .types import I64, Array, Field, Pointer, Struct


def axes_of(declaration: Declaration) -> int:
    """Number of axes of such a parameter."""
    return sum(f.type.length for f in _fields(declaration) if f.name == "shape_" and isinstance(f.type, Array))


def element_pointer(declaration: Declaration) -> Pointer:
    """Pointer to the elements of such a parameter."""
    return next(f.type for f in _fields(declaration) if isinstance(f.type, Pointer))


def with_pointers(function: Function) -> Function:
    """The kernel with `x`, `x_size`, `x_shape0`, ... and `x_stride0`, ... (in bytes) in the place of each parameter `x` of that kind."""
    taken = {d.name for d in function.parameters}
    uid = max((n.uid for n in walk(function) if isinstance(n, Declaration)), default=0) + 1
    parameters: list[Declaration] = []
    made: list[Declare] = []
    for declaration in function.parameters:
        if not is_shaped(declaration.type):
            parameters.append(declaration)
            continue
        own = [replace(declaration, type=element_pointer(declaration), uid=uid)]
        for name in _numbers(declaration):
            if name in taken:
                raise LaunchError(f"`{function.name}`: a parameter is called `{name}`, as a number of the array `{declaration.name}` is")
            own.append(replace(declaration, name=name, type=I64, uid=uid + len(own)))
        uid += len(own)
        parameters += own
        made.append(Declare(declaration.span, declaration, _struct(declaration, own)))
    return replace(function, parameters=tuple(parameters), body=Block(function.body.span, (*made, *function.body.body)))


def _fields(declaration: Declaration) -> tuple[Field, ...]:
    assert isinstance(declaration.type, Struct)
    return declaration.type.fields


def _numbers(declaration: Declaration) -> Iterator[str]:
    yield f"{declaration.name}_size"
    for what in ("shape", "stride"):
        yield from (f"{declaration.name}_{what}{axis}" for axis in range(axes_of(declaration)))


def _struct(declaration: Declaration, own: list[Declaration]) -> Record:
    span, axes = declaration.span, axes_of(declaration)
    data, size, *numbers = (Name(span, d.type, d) for d in own)
    rows = {"shape_": numbers[:axes], "strides_": numbers[axes:]}
    values: list[Expr] = []
    for part in _fields(declaration):
        if part.name in rows:
            values.append(Record(span, part.type, tuple(rows[part.name])))
        else:
            values.append(data if isinstance(part.type, Pointer) else size)
    return Record(span, declaration.type, tuple(values))


__all__ = ["axes_of", "element_pointer", "with_pointers"]
