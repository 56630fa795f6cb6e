"""Which parameters of a kernel a caller passes, which are made for the call, what comes back, and the geometry of a launch.

Grid, block, shared memory and the shapes of new outputs are numbers, or functions of the kernel's parameters by their names: such a
function gets the shape of an array and the value of a number."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..api import Kernel
from ..arguments.aliasing import hull
from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import namespace, resolve
from ..arguments.layouts import element_dtype
from ..errors import LaunchError
from ..ir.dtypes import is_real
from ..ir.records import is_record, split_parameter
from ..ir.types import HALVES, Pointer, Scalar


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

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    def word(self, position: int) -> str:
        """A parameter's name."""
        return self.kernel.parameters[position].name

    def whole(self, args: Sequence[Any]) -> list[Any]:
        """The arguments at their parameters' positions, None where an array is made. LaunchError if there are too many or too few."""
        if len(args) != len(self.passed):
            names = ", ".join(self.word(k) for k in self.passed)
            raise LaunchError(f"`{self.name}` takes {len(self.passed)} arguments ({names}), got {len(args)}. Nothing was launched.")
        if not self.fresh:
            return list(args)
        found: list[Any] = [None] * len(self.kernel.parameters)
        for k, a in zip(self.passed, args, strict=True):
            found[k] = a
        return found

    def shape_of(self, position: int, args: Sequence[Any]) -> tuple[int, ...]:
        """The shape of an array that is made."""
        shape = self.fresh[position].of(args)
        return (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))

    def dtype_of(self, position: int) -> np.dtype[Any]:
        """The dtype of an array that is made."""
        type_ = self.kernel.parameters[position].type
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
        return tuple(self._pair(k, x, s) for k, (x, s) in enumerate(zip(args, shadows, strict=True)))

    def _pair(self, k: int, x: Any, shadow: Any) -> Any:
        if shadow is None:
            return Const(x) if k in self.pointers and x is not None else x
        return Duplicated(x, shadow) if k in self.pointers else Active(x, shadow)

    def directions(self, dots: Sequence[Any], grown: Sequence[Any]) -> tuple[Any, ...]:
        """What `gpuad.hvp` takes as directions: arrays with the tangents of the arguments (of shape () of a number) and of their shadows;
        None: what has none."""
        own = [d if d is None or k in self.pointers else d.item() for k, d in enumerate(dots)]
        return tuple(None if d is None else self._pair(k, d, g) for k, (d, g) in enumerate(zip(own, grown, strict=True)))

    def active(self, wanted: Sequence[bool]) -> tuple[bool, ...]:
        """Which parameters have a shadow, if a gradient is wanted of those: they, and what may come to depend on them."""
        some, own = any(wanted), range(len(wanted))
        return tuple((k in self.floats and (wanted[k] or (some and k in self.written))) or (k in self.reals and wanted[k]) for k in own)


def _copy(array: Any) -> Any:
    """A copy that lies as the array does, with what is in its gaps."""
    if array.flags.c_contiguous:
        return array.copy()
    memory = resolve(array)
    room = memory.root.copy()
    if isinstance(room, np.ndarray):
        return np.ndarray(array.shape, array.dtype, room, memory.offset * memory.root.dtype.itemsize, array.strides)
    return namespace(array).lib.stride_tricks.as_strided(room[memory.offset :], array.shape, array.strides)


def read_signature(
    kernel: Any, grid: Any, block: Any, shared_mem: Any, outputs: Sequence[str] | Mapping[str, Any] | None, bridge: str
) -> Signature:
    """The signature of a kernel. `outputs`: names of parameters that the kernel writes, in the order in which they come back, each passed
    by the caller; or a mapping of names to None (passed), to the name of a parameter (made, like that one), or to a shape or a function
    (made). None: all that it writes, passed. Raises LaunchError."""
    from ..api import kernel as made

    k = made(kernel)
    others = "; gpuad.torch.program takes others" if bridge == "gpuad.torch" else ""
    if not isinstance(k, Kernel):
        raise LaunchError(f"`{k.name}` is no kernel of one text: {bridge}.function takes CUDA kernels{others}")
    refused = [d.name for d in k.parameters if is_record(d.type)] + [g.name for g in k.function.globals]
    if refused:
        raise LaunchError(
            f"`{k.name}` takes `{refused[0]}`, a struct, vector or complex number by value or a variable of its module: {bridge}.function "
            f"takes arrays and numbers{others}"
        )
    names = [d.name for d in k.parameters]
    pointers = tuple(i for i, d in enumerate(k.parameters) if isinstance(d.type, Pointer))
    written = frozenset(i for i in pointers if any(leaf.name in k.written for leaf in split_parameter(k.parameters[i])))
    chosen = dict.fromkeys(names[i] for i in sorted(written)) if outputs is None else outputs
    spec: dict[str, Any] = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen)
    for name in spec:
        if name not in names or names.index(name) not in written:
            known = ", ".join(names[i] for i in sorted(written)) or "nothing"
            raise LaunchError(f"`{k.name}` does not write `{name}`; what it writes: {known}")
    if not spec:
        raise LaunchError(f"`{k.name}` writes nothing, so it has no output")
    fresh = {names.index(name): _shape(k, names, value) for name, value in spec.items() if value is not None}
    reals = tuple(i for i, d in enumerate(k.parameters) if isinstance(d.type, Scalar) and d.type.is_float and d.type not in HALVES)
    return Signature(
        k, _rule(k, names, grid), _rule(k, names, block), _rule(k, names, shared_mem), pointers, reals,
        tuple(i for i in range(len(names)) if i not in pointers and i not in reals), written,
        frozenset(i for i in pointers if _carries(k, i)), fresh, tuple(names.index(name) for name in spec),
        tuple(i for i in range(len(names)) if i not in fresh),
    )  # fmt: skip


def _carries(kernel: Kernel, position: int) -> bool:
    type_ = kernel.parameters[position].type
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
