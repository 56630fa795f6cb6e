"""Argument flattening: a call's arguments as its kernel takes them, records as their numbers, and the memory of the module's variables.

What a caller passes as a record, or does not pass at all, is found out here once, so that all that is known of calls by their arguments
(`call_replay`, `specialization_key`, a tape's steps) sees numbers and arrays only. A struct is known by its bytes, since its owner may
change it.

The memory of a user's module: `__constant__` and `__device__` variables.

A generated kernel lives in a module of its own, so it is handed the user's memory as pointers, and everything that holds for arrays that
are passed holds for it: shadows, overlap, versions on a tape. For a `cupy.RawModule` that memory is on the device and CuPy gives its
address; a kernel from text has memory of its own, in the library of the arrays that it is first launched with.

Streams: what a call allocates and clears is ordered on the stream of its launch. A shadow that was not given is made, of zeros, by the
first call that needs it. Were it made on another stream than that of the launch, the zeros could come after the gradient, and the caller,
who has not seen it, could do nothing about that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..arguments import check_launch, numbers_of
from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import is_array, namespace
from ..arguments.layouts import element_dtype, identity, signature
from ..errors import GpuadError, LaunchError
from ..ir.dtypes import dtype_of
from ..ir.records import is_record, numbers, size_of, split_parameter
from ..ir.surface import Declaration, Global
from ..ir.types import HALVES, Pointer, Struct, Type, Vector
from ..pipeline import executor_of
from ..runtime.array_types import NdArray

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

    def _memory(self, variable: Global, array: NdArray | None, shadow: NdArray | None) -> Any:
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


class ModuleMemory:
    """The variables of one module by name, as arrays made when they are first needed. `raw`: the CuPy object, or None for text."""

    def __init__(self, raw: Any = None) -> None:
        self.raw = raw
        self.arrays: dict[str, Any] = {}

    def get(self, kernel: str, variable: Global, library: Any = np) -> Any:
        """The array of a variable; LaunchError where its memory cannot be reached."""
        if variable.name not in self.arrays:
            self.arrays[variable.name] = self._made(kernel, variable, library)
        return self.arrays[variable.name]

    def for_launch(self, kernel: str, variable: Global, written: bool, library: Any) -> Any:
        """A variable's memory for a launch; LaunchError also for memory that the kernel would read before anyone has put a value there."""
        if self.raw is None and not written and variable.initial is None and variable.name not in self.arrays:
            raise LaunchError(
                f"`{kernel}` reads `{variable.name}`, a variable of its module that has no value yet: set it through "
                f"kernel.get_global('{variable.name}'). A kernel that shares its module is made by gpuad.kernel(kernel, 'name'). "
                "Nothing was launched."
            )
        return self.get(kernel, variable, library)

    def _made(self, kernel: str, variable: Global, library: Any) -> Any:
        shape, dtype = _layout(variable, self.raw is None and library is np)
        if self.raw is None:
            values = np.zeros(shape, dtype)
            if variable.initial is not None:
                values.reshape(-1)[:] = variable.initial
            return values if library is np else _on_device(values)
        if not hasattr(self.raw, "get_global"):
            raise LaunchError(
                f"`{kernel}` reaches `{variable.name}`, a variable of its module, which a {type(self.raw).__name__} does not give away: "
                "pass the cupy.RawModule and the kernel's name, or declare it const with a value. Nothing was launched."
            )
        from ..runtime.cuda import module_array

        return module_array(self.raw, variable.name, shape, dtype)

    def on_host(self) -> ModuleMemory:
        """A copy on the host, for a launch on NumPy arrays that stands for one on the device."""
        copy = ModuleMemory()
        copy.arrays = {name: array.copy() if isinstance(array, np.ndarray) else array.get() for name, array in self.arrays.items()}
        return copy


def _on_device(values: Any) -> Any:
    from ..runtime.cuda import finished_array

    return finished_array(values)


def _layout(variable: Global, on_host: bool) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of a variable's array. CuPy has no dtype for structs: there it is of their numbers, or of their bytes where these are
    of several types."""
    assert isinstance(variable.pointer.type, Pointer)
    element: Type = variable.pointer.type.element
    if isinstance(element, Vector):
        return variable.shape, dtype_of(element.element)
    if on_host or not isinstance(element, Struct):
        return variable.shape, element_dtype(element)
    kinds = numbers(element)
    dtype = dtype_of(kinds[0]) if len(kinds) == 1 else np.dtype(np.uint8)
    return (*variable.shape, size_of(element) // dtype.itemsize), dtype


def library_of(args: Sequence[Any]) -> Any:
    """The library of a launch's arrays."""
    arrays = [getattr(arg, "primal", arg) for arg in args]
    return next((namespace(a) for a in arrays if type(a).__module__.partition(".")[0] == "cupy"), np)


def on_stream(stream: Any, args: Sequence[Any]) -> AbstractContextManager[Any]:
    """Within it what is made for a call with these arguments is made on the stream that was asked for; None: on the current one."""
    if stream is None:
        return nullcontext()
    check_launch("the kernel", 0, stream)
    if not isinstance(args, tuple | list):
        return nullcontext()
    return executor_of(library_of(args).__name__).on(stream)
