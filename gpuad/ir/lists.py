"""Lists of arrays, parameters that are arrays of pointers, `const float** rows`: a call passes a list, and the kernel for so many has a
parameter for each array, and a table of these pointers in the place of the one that it was written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .records import points_to_pointers
from .surface import Block, Declaration, Declare, Function, Name, Table
from .types import Pointer


def with_lists(function: Function, lengths: Mapping[str, int]) -> Function:
    """The kernel for lists of so many arrays, by the names of its parameters: `rows_0`, `rows_1` and so on in the place of `rows`."""
    taken = {d.name for d in function.parameters}
    parameters: list[Declaration] = []
    tables: list[Declare] = []
    for declaration in function.parameters:
        if not points_to_pointers(declaration.type):
            parameters.append(declaration)
            continue
        assert isinstance(declaration.type, Pointer)
        own = [_entry(declaration, k, taken) for k in range(lengths[declaration.name])]
        values = tuple(Name(d.span, d.type, d) for d in own)
        tables.append(Declare(declaration.span, declaration, Table(declaration.span, declaration.type, values)))
        parameters += own
    return replace(function, parameters=tuple(parameters), body=Block(function.body.span, (*tables, *function.body.body)))


def _entry(declaration: Declaration, number: int, taken: set[str]) -> Declaration:
    name = f"{declaration.name}_{number}"
    while name in taken:
        name += "_"
    taken.add(name)
    assert isinstance(declaration.type, Pointer)
    return replace(declaration, name=name, type=declaration.type.element, const=True)
