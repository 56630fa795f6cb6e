"""Argument flattening: a call's arguments as its kernel takes them, records as their numbers, and the memory of the module's variables.

What a caller passes as a record, or does not pass at all, is found out here once, so that all that is known of calls by their arguments
(`call_replay`, `specialization_key`, a tape's steps) sees numbers and arrays only. A struct is known by its bytes, since its owner may
change it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arguments import numbers_of
from ..arguments.annotations import Active, Const, Duplicated, is_array
from ..arguments.identity import identity, signature
from ..errors import GpuadError
from ..ir.records import is_record, split_parameter
from ..ir.surface import Declaration, Global
from ..ir.types import HALVES

_MANY = 256  # records that are remembered


class FlatArguments(tuple[Any, ...]):
    """Arguments that are that."""

    __slots__ = ()


class Flattening:
    """Makes the arguments of a kernel's calls whole."""

    def __init__(self, kernel: str, parameters: Sequence[Declaration], variables: Sequence[Global]) -> None:
        self.kernel, self.parameters, self.variables = kernel, parameters, variables
        self._records = tuple(i for i, d in enumerate(parameters) if is_record(d.type))
        self._numbers: dict[Hashable, tuple[Any, ...] | None] = {}
        self._last: dict[int, tuple[Hashable, tuple[Any, ...] | None]] = {}
        self._pairs: dict[str, Duplicated] = {}
        each = [split_parameter(d) if is_record(d.type) else (d,) for d in parameters]
        self.halves = any(leaf.type in HALVES for i in self._records for leaf in each[i])  # bound as the float32 that they round to
        self.needed = bool(self._records or variables) and not self.halves
        own = tuple(v.pointer for v in variables)
        self.declared = (*(leaf for leaves in each for leaf in leaves), *own)
        self.origins = tuple(i for i, d in enumerate(self.declared) for _ in split_parameter(d))  # of what is bound, in what is declared
        self.numbering = (*(i for i, leaves in enumerate(each) for _ in leaves), *range(len(parameters), len(parameters) + len(own)))

    def whole(self, args: Sequence[Any], arrays: Mapping[str, Any], shadows: Mapping[str, Any]) -> Sequence[Any]:
        """The arguments, whole; as they are if there is something about them that binding looks at closer, or refuses. `arrays`: the memory
        of the module's variables, by name, so far as anybody has asked for it; `shadows`: what they have of these, by pointer."""
        if (type(args) is not tuple and type(args) is not list) or len(args) != len(self.parameters):
            return args
        found, done = [], 0
        for i in self._records:
            numbers = self._known(i, args[i])
            if numbers is None:
                return args
            found += [*args[done:i], *numbers]
            done = i + 1
        found += args[done:]
        for variable in self.variables:
            array = self._memory(variable, arrays.get(variable.name), shadows.get(variable.pointer.name))
            if array is None:
                return args
            found.append(array)
        return FlatArguments(found)

    def directions(self, given: Sequence[Any]) -> FlatArguments:
        """Tangents of the arguments as those of whole ones: one for each float of a record, none for the module's variables. Raises
        ShadowError for a direction that does not fit a record."""
        each = [self._direction(i, d) if is_record(self.parameters[i].type) else (d,) for i, d in enumerate(given)]
        return FlatArguments([*(d for parts in each for d in parts), *(None for _ in self.variables)])

    def _direction(self, i: int, direction: Any) -> Sequence[Any]:
        declaration = self.parameters[i]
        if direction is None:
            return [None] * len(split_parameter(declaration))
        return [d if type(d) is Active else None for d in numbers_of(self.kernel, i, declaration, direction)]

    def _known(self, i: int, x: Any) -> Sequence[Any] | None:
        """The numbers of a record, with shadows if it has one; None if that is looked at closer."""
        if type(x) is Active:
            return self._active(i, x)
        x = x.primal if isinstance(x, Const) else x  # as numbers without a shadow are
        said = _content(x)
        if said is None:
            return None
        key = i, said
        if key not in self._numbers:
            if len(self._numbers) >= _MANY:
                self._numbers.clear()
            self._numbers[key] = self._found(i, x)
        return self._numbers[key]

    def _active(self, i: int, x: Active) -> Sequence[Any] | None:
        """The numbers of a record with a shadow, in which each has its own: the last such is kept, and its shadow with it."""
        said = _content(x.value)
        if said is None or not is_array(x.shadow):
            return None
        key = said, signature(x.shadow)
        if self._last.get(i, (None,))[0] != key:
            self._last[i] = key, self._found(i, x)
        return self._last[i][1]

    def _found(self, i: int, x: Any) -> tuple[Any, ...] | None:
        try:
            return numbers_of(self.kernel, i, self.parameters[i], x)
        except GpuadError:  # binding says which
            return None

    def _memory(self, variable: Global, array: Any, shadow: Any) -> Any:
        """What a variable is passed as: its array, or the same pair each time; None if there is no array so far."""
        if array is None or shadow is None:
            return array
        pair = self._pairs.get(variable.name)
        if pair is None or pair.primal is not array or pair.shadow is not shadow:
            pair = self._pairs[variable.name] = Duplicated(array, shadow)
        return pair


def _content(x: Any) -> Hashable:
    """What a record is known by; None for one that is annotated, or is none."""
    kind = type(x)
    if isinstance(x, np.void) or (isinstance(x, np.ndarray) and x.dtype.names and x.size == 1):
        return kind, x.dtype, x.tobytes()
    if kind is tuple or kind is list:
        return (kind, *map(identity, x)) if all(map(_is_number, x)) else None
    if kind is complex:
        return kind, np.complex128(x).tobytes()
    return identity(x) if _is_number(x) else None


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float | np.number | np.bool_)
