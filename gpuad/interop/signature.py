"""Which parameters of a kernel a caller passes, which are made for the call, what comes back, and the geometry of a launch.

Grid, block, shared memory and the shapes of new outputs are numbers, or functions of the kernel's parameters by their names: such a
function gets the shape of an array and the value of a number."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..api import FlatArguments, Kernel
from ..api import kernel as made
from ..arguments import numbers_of
from ..arguments.aliasing import hull
from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import namespace, resolve
from ..arguments.layouts import element_dtype
from ..errors import LaunchError
from ..ir.dtypes import is_real
from ..ir.records import is_record, split_parameter
from ..ir.surface import Declaration, Global
from ..ir.types import HALVES, Complex, Pointer, Scalar, Vector
from ..runtime.array_types import Extents, NdArray


@dataclass(frozen=True, eq=False)
class Rule:
    """A number, or a function of the parameters that it names."""

    value: Any
    names: tuple[int, ...] | None  # positions of what the function takes; None: no function

    def of(self, args: Sequence[Any]) -> Any:
        """Its value for a call; of an array the function gets the shape."""
        if self.names is None:
            return self.value
        return self.value(
            *(tuple(map(int, a.shape)) if getattr(a, "ndim", 0) or hasattr(a, "strides") else a for a in (args[k] for k in self.names))
        )


@dataclass(frozen=True, eq=False)
class Signature:
    """A kernel as a function. All positions are those of its parameters."""

    kernel: Kernel
    grid: Rule
    block: Rule
    shared_mem: Rule
    pointers: tuple[int, ...]
    reals: tuple[int, ...]  # floats by value, which may carry a gradient
    words: tuple[int, ...]  # all other numbers by value: they decide about the launch
    written: frozenset[int]
    floats: frozenset[int]  # pointers to numbers that carry a gradient
    fresh: Mapping[int, Rule]  # made for a call, of zeros, and their shapes
    outputs: tuple[int, ...]
    passed: tuple[int, ...]
    parameters: tuple[Declaration, ...]
    given: tuple[Given, ...]  # what a caller passes, if that is something else

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    def word(self, position: int) -> str:
        """A parameter's name."""
        return self.parameters[position].name

    def flattened(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        """What a caller passes as arguments for `passed`: records by value, of which those of the framework have gradients, as their
        numbers, and variables of the module, by their names, at the end. Raises LaunchError."""
        own = [g for g in self.given if g.variable is None] if self.given else self.passed
        variables = [g for g in self.given if g.variable is not None]
        if len(args) != len(own) or set(keywords) != {g.name for g in variables}:
            words = [g.name if isinstance(g, Given) else self.word(g) for g in own]
            names = ", ".join([*words, *(f"{g.name}=" for g in variables)])
            raise LaunchError(
                f"`{self.name}` takes {len(own)} arguments ({names}{'; variables of its module by name' if variables else ''}), got "
                f"{', '.join([str(len(args)), *(f'{n}=' for n in keywords)])}. Nothing was launched."
            )
        if not self.given:
            return args
        return [
            *(n for g, x in zip(self.given, args, strict=False) for n in g.numbers(self.name, x)),
            *(g.array(self.name, keywords[g.name]) for g in variables),
        ]

    def whole(self, args: Sequence[Any]) -> list[Any]:
        """The arguments at their parameters' positions, None where an array is made. LaunchError if there are too many or too few."""
        if len(args) != len(self.passed):
            names = ", ".join(self.word(k) for k in self.passed)
            raise LaunchError(f"`{self.name}` takes {len(self.passed)} arguments ({names}), got {len(args)}. Nothing was launched.")
        if not self.fresh:
            return list(args)
        found: list[Any] = [None] * len(self.parameters)
        for k, a in zip(self.passed, args, strict=True):
            found[k] = a
        return found

    def shape_of(self, position: int, args: Sequence[Any]) -> tuple[int, ...]:
        """The shape of an array that is made."""
        shape = self.fresh[position].of(args)
        return (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))

    def dtype_of(self, position: int) -> np.dtype[Any]:
        """The dtype of an array that is made."""
        type_ = self.parameters[position].type
        assert isinstance(type_, Pointer)
        dtype = element_dtype(type_.element)
        return dtype.subdtype[0] if dtype.subdtype is not None else dtype

    def separated(self, args: Sequence[Any]) -> list[Any]:
        """The arrays and numbers of a call, by position; of arrays on one memory all but the first as copies, so that each has a shadow of
        its own: a kernel only reads such, since what it overwrites comes first and lies alone."""
        found, places = list(args), list[tuple[int, int]]()
        for k in sorted((k for k in self.pointers if args[k] is not None and args[k].size), key=lambda k: k not in self.written):
            low, high = hull(found[k])
            if any(low < end and start < high for start, end in places):
                found[k] = _copy(found[k])
                low, high = hull(found[k])
            places.append((low, high))
        return found

    def pairs(self, args: Sequence[Any], shadows: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays and numbers of a call with their shadows, by position; None: what has none."""
        return self._flat(self._pair(k, x, s) for k, (x, s) in enumerate(zip(args, shadows, strict=True)))

    def _flat(self, found: Iterable[Any]) -> tuple[Any, ...]:
        return FlatArguments(found) if self.kernel.composed else tuple(found)

    def _pair(self, k: int, x: Any, shadow: NdArray) -> Any:
        if shadow is None:
            return Const(x) if k in self.pointers and x is not None else x
        return Duplicated(x, shadow) if k in self.pointers else Active(x, shadow)

    def directions(self, dots: Sequence[Any], grown: Sequence[Any]) -> tuple[Any, ...]:
        """What `gpuad.hvp` takes as directions: arrays with the tangents of the arguments (of shape () of a number) and of their shadows;
        None: what has none."""
        own = [d if d is None or k in self.pointers else d.item() for k, d in enumerate(dots)]
        return self._flat(None if d is None else self._pair(k, d, g) for k, (d, g) in enumerate(zip(own, grown, strict=True)))

    def active(self, wanted: Sequence[bool]) -> tuple[bool, ...]:
        """Which parameters have a shadow, if a gradient is wanted of those: they, and what may come to depend on them."""
        some, own = any(wanted), range(len(wanted))
        return tuple((k in self.floats and (wanted[k] or (some and k in self.written))) or (k in self.reals and wanted[k]) for k in own)


def _copy(array: NdArray) -> Any:
    """A copy that lies as the array does, with what is in its gaps."""
    if array.flags.c_contiguous:
        return array.copy()
    memory = resolve(array)
    room = memory.root.copy()
    if isinstance(room, np.ndarray):
        return np.ndarray(array.shape, array.dtype, room, memory.offset * memory.root.dtype.itemsize, array.strides)
    return namespace(array).lib.stride_tricks.as_strided(room[memory.offset :], array.shape, array.strides)


def read_signature(
    kernel: Any, grid: Extents, block: Extents, shared_mem: Any, outputs: Sequence[str] | Mapping[str, Any] | None, bridge: str
) -> Signature:
    """The signature of a kernel. `outputs`: names of parameters that the kernel writes, in the order in which they come back, each passed
    by the caller; or a mapping of names to None (passed), to the name of a parameter (made, like that one), or to a shape or a function
    (made). None: all that it writes, passed. Raises LaunchError."""
    k = made(kernel)
    if not isinstance(k, Kernel):
        raise LaunchError(f"`{k.name}` is no kernel of one text: {bridge}.function takes CUDA kernels; {bridge}.program takes others")
    _refuse(k, bridge)
    variables = {g.pointer.name: g for g in k.function.globals}
    parameters = k.flat
    names = [_short(variables[d.name]) if d.name in variables else d.name for d in parameters]
    pointers = tuple(i for i, d in enumerate(parameters) if isinstance(d.type, Pointer))
    written = frozenset(i for i in pointers if parameters[i].name in k.written)
    chosen = dict.fromkeys(names[i] for i in sorted(written)) if outputs is None else outputs
    spec: dict[str, Any] = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen)
    for name in spec:
        if name not in names or names.index(name) not in written:
            known = ", ".join(names[i] for i in sorted(written)) or "nothing"
            raise LaunchError(f"`{k.name}` does not write `{name}`; what it writes: {known}")
    if not spec:
        raise LaunchError(f"`{k.name}` writes nothing, so it has no output")
    fresh = {names.index(name): _shape(k, names, value) for name, value in spec.items() if value is not None}
    reals = tuple(i for i, d in enumerate(parameters) if isinstance(d.type, Scalar) and d.type.is_float and d.type not in HALVES)
    return Signature(
        k, _rule(k, names, grid), _rule(k, names, block), _rule(k, names, shared_mem), pointers, reals,
        tuple(i for i in range(len(names)) if i not in pointers and i not in reals), written,
        frozenset(i for i in pointers if _carries(parameters[i])), fresh, tuple(names.index(name) for name in spec),
        tuple(i for i in range(len(names)) if i not in fresh), parameters, _given(k, names, fresh),
    )  # fmt: skip


def _refuse(k: Kernel, bridge: str) -> None:
    """Refuses what no framework has, with what to write."""
    records = [d for d in k.parameters if is_record(d.type)]
    for d in k.parameters:
        if len(split_parameter(d)) > 1 and isinstance(d.type, Pointer):
            raise LaunchError(
                f"`{k.name}` takes `{d.name}`, an array of structs of several types, which {bridge} has no array for: give the kernel "
                "an array for each field, or call gpuad.autodiff on NumPy or CuPy arrays"
            )
    for d in records:
        if any(leaf.type in HALVES for leaf in split_parameter(d)):
            raise LaunchError(
                f"`{k.name}` takes `{d.name}`, a record of halves by value, which {bridge}.function does not take apart: pass floats"
            )
    if records and k.optional:
        raise LaunchError(
            f"`{k.name}` takes `{records[0].name}`, a record by value, and `{k.optional[0]}`, which may be null: {bridge}.function "
            "takes one of the two; pass the record's numbers each as a parameter of its own"
        )


@dataclass(frozen=True, eq=False)
class Given:
    """What a caller passes: a parameter of the user's text, of which `leaves` are positions, or a variable of the module."""

    name: str
    position: int
    declaration: Declaration
    leaves: int
    variable: Global | None = None

    def numbers(self, kernel: str, x: Any) -> Sequence[Any]:
        """The argument, or its numbers if it is a record. Of a framework's array they are made by its own operations."""
        type_ = self.declaration.type
        if not is_record(type_):
            return [x]
        if _is_framework_s(x):
            if isinstance(type_, Complex) and x.ndim == 0:
                return [x.real, x.imag] if "complex" in str(x.dtype) else [x, 0.0]
            if tuple(x.shape) == (self.leaves,) and isinstance(type_, Vector):
                return [x[i] for i in range(self.leaves)]
            wanted = "()" if isinstance(type_, Complex) else f"({self.leaves},)" if isinstance(type_, Vector) else "none; pass a tuple"
            raise LaunchError(f"`{kernel}`: `{self.name}` got an array of shape {tuple(x.shape)}; it takes one of shape {wanted}")
        if isinstance(x, tuple | list) and any(map(_is_framework_s, x)) and len(x) == self.leaves:
            return list(x)
        return [n.item() if hasattr(n, "item") else n for n in numbers_of(kernel, self.position, self.declaration, x)]

    def array(self, kernel: str, x: Any) -> Any:
        """A variable of the module. Raises LaunchError where it is of another size."""
        assert self.variable is not None
        shape = tuple(map(int, getattr(x, "shape", ())))
        element = self.declaration.type.element if isinstance(self.declaration.type, Pointer) else self.declaration.type
        wanted = (*self.variable.shape, *((element.lanes,) if isinstance(element, Vector) else ()))
        if shape != wanted:
            raise LaunchError(f"`{kernel}`: `{self.name}`, a variable of its module, is an array of shape {wanted}; got {shape}")
        return x


def _is_framework_s(x: Any) -> bool:
    return hasattr(x, "ndim") and hasattr(x, "dtype") and not isinstance(x, np.ndarray | np.generic)


def _short(variable: Global) -> str:
    return variable.name.rpartition("::")[2]


def _given(k: Kernel, names: Sequence[str], fresh: Collection[int]) -> tuple[Given, ...]:
    """What a caller passes; nothing where that are the kernel's own parameters."""
    if not k.composed:
        return ()
    found, at = [], 0
    for i, d in enumerate(k.parameters):
        leaves = len(split_parameter(d)) if is_record(d.type) else 1
        if at not in fresh:
            found.append(Given(d.name, i, d, leaves))
        at += leaves
    for variable in k.function.globals:
        if at not in fresh:
            found.append(Given(names[at], at, variable.pointer, 1, variable))
        at += 1
    return tuple(found)


def _carries(declaration: Declaration) -> bool:
    type_ = declaration.type
    assert isinstance(type_, Pointer)
    dtype = element_dtype(type_.element)
    dtype = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    return dtype.kind == "c" or is_real(dtype)


def _shape(kernel: Kernel, names: Sequence[str], value: Any) -> Rule:
    if isinstance(value, str):
        if value not in names:
            raise LaunchError(f"`{kernel.name}` has no parameter `{value}` that an output could be like")
        return Rule(lambda shape: shape, (names.index(value),))
    return _rule(kernel, names, value)


def _rule(kernel: Kernel, names: Sequence[str], value: Any) -> Rule:
    if not callable(value):
        return Rule(value, None)
    asked = list(inspect.signature(value).parameters)
    for name in asked:
        if name not in names:
            raise LaunchError(
                f"a function of the launch of `{kernel.name}` takes `{name}`, which is none of its parameters {', '.join(names)}"
            )
    return Rule(value, tuple(map(names.index, asked)))
