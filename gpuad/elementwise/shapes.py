"""Shapes and strides of an elementwise call: broadcasting, the axes over which CuPy counts, and the counters as arrays.

`i` is what an array would hold that counts the elements in C order, and `_ind.get()[d]` likewise; so both are laid out like operands, and
stay affine in the coordinates whatever order the axes take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments.aliasing import overlap, region
from ..arguments.arrays import address, namespace
from ..errors import ArgumentValueError, LaunchError
from ..frontend.elementwise import Operand
from ..frontend.elementwise.words import Raw
from ..ops.layout import Axes, element_strides, hull_size, origin
from ..runtime.array_types import NdArray
from .operands import Given

INT = 2**31 - 2**11  # a thread's number may be a block beyond the end


def common_shape(name: str, arguments: Sequence[Given], size: int | None) -> tuple[int, ...]:
    """The shape over which the operation runs. ValueError as CuPy raises it."""
    shapes = [tuple(g.array.shape) for g in arguments if g.follows]
    if size is not None:
        if shapes:
            raise ArgumentValueError(f"`{name}`: size= is for calls in which all arrays are raw")
        return (int(size),)
    if not shapes:
        raise ArgumentValueError(f"`{name}`: nothing says how many elements there are; pass size=")
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        named = ", ".join(f"`{g.parameter.name}` {tuple(g.array.shape)}" for g in arguments if g.follows)
        raise ArgumentValueError(f"`{name}`: arrays of these shapes do not fit together: {named}") from None


def counter(shape: Sequence[int]) -> Any:
    """An array's view that stands for the number of each element in C order: only its shape and strides count."""
    return standing(shape, [int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape))])


def coordinates(shape: Sequence[int], groups: Sequence[Sequence[int]]) -> list[Any]:
    """For each group of adjacent axes the same for the number within that group."""
    found = []
    for group in groups:
        strides = [0] * len(shape)
        for k in group:
            strides[k] = int(np.prod([shape[j] for j in group if j > k], dtype=np.int64))
        found.append(standing(shape, strides))
    return found


def standing(shape: Sequence[int], strides: Sequence[int]) -> Any:
    """Something with a shape and element strides; there is nothing in it."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), tuple(shape), tuple(strides), writeable=False)


def grouped(shape: Sequence[int], arguments: Sequence[Given], reduce_dims: bool) -> list[list[int]]:
    """The axes that CuPy counts as one, as `_ind.get()` shows them."""
    arrays = [g.array for g in arguments if g.follows]
    single = [[k] for k in range(len(shape))]
    if not reduce_dims or len(shape) <= 1 or not arrays:
        return single
    strides = [s for s in (broadcast_strides(a, shape) for a in arrays) if not _dense(s, shape)]
    if not strides:
        return [list(range(len(shape)))]
    return single if len(shape) == 2 and len(arguments) > 1 else _merged(shape, strides)


def _merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    groups: list[list[int]] = []
    for k, n in enumerate(shape):
        if n == 1:
            continue
        if groups and all(s[k] * n == s[groups[-1][-1]] for s in strides):
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def broadcast_strides(array: NdArray, shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of an array that is broadcast to a shape."""
    missing = len(shape) - len(array.shape)
    own = zip(array.shape, element_strides(array), shape[missing:], strict=True)
    return (*[0] * missing, *(0 if n == 1 != m else s for n, s, m in own))


def _dense(strides: Sequence[int], shape: Sequence[int]) -> bool:
    return all(s == int(np.prod(shape[k + 1 :], dtype=np.int64)) for k, s in enumerate(strides) if shape[k] > 1)


def pattern(steps: Sequence[int]) -> str:
    """The steps along the axes by kind."""
    return "".join({0: "0", 1: "1"}.get(s, "s") for s in steps)


def operand(key: str, number: int, layout: Axes) -> Operand:
    """An operand of a layout under the name by which the text knows it."""
    return Operand(key, pattern(layout.steps[number]))


def axis_values(layout: Axes, operands: Sequence[Operand]) -> dict[str, int]:
    """Lengths, offsets and strides by name."""
    values = {f"_n{k}": n for k, n in enumerate(layout.lengths)}
    for o, offset, steps in zip(operands, layout.offsets, layout.steps, strict=True):
        values[f"_o{o.key}"] = offset
        values |= {f"_s{o.key}_{k}": s for k, s in enumerate(steps)}
    return values


def raw_of(g: Given) -> Raw | None:
    """A raw array as the text knows it; None for anything else."""
    if g.array is None or g.follows:
        return None
    return Raw(g.parameter.name, int(g.array.ndim), bool(g.array.flags.c_contiguous))


def raw_values(g: Given) -> dict[str, int]:
    """What may be asked of a raw array, by name; nothing of anything else."""
    if g.array is None or g.follows:
        return {}
    name, array = g.parameter.name, g.array
    values = {f"_{name}_size": int(array.size), f"_o{name}": origin(array) if array.size else 0}
    values |= {f"_{name}_n{k}": int(n) for k, n in enumerate(array.shape)}
    return values | {f"_{name}_s{k}": s for k, s in enumerate(element_strides(array))}


def index_type(layout: Axes, arrays: Sequence[Any]) -> str:
    """The type of coordinates: wide where an index does not fit into an int."""
    return "long long" if any(hull_size(a) > INT for a in arrays) or max(layout.lengths) > INT else "int"


def check_disjoint(name: str, arguments: Sequence[Given], same_is_apart: bool) -> None:
    """Refuses an output that shares memory with another array otherwise than element by element: one thread would read or write what
    another writes, and the result would depend on chance, in CuPy too. `same_is_apart`: the same elements in the same order will do."""
    arrays = [g for g in arguments if g.follows and g.array.size]
    for out in (g for g in arrays if g.parameter.output):
        for g in arrays:
            if g is out or namespace(g.array) is not namespace(out.array) or (same_is_apart and _elements(g.array) == _elements(out.array)):
                continue
            if _near(g.array, out.array) and overlap(region(g.array), region(out.array)):
                raise LaunchError(
                    f"`{name}`: `{g.parameter.name}` and output `{out.parameter.name}` share memory without being the same elements, so "
                    "the result depends on chance; pass a copy of one. Nothing was launched."
                )


def _near(a: Any, b: Any) -> bool:
    """True if the memory between lowest and highest element has something in common."""
    (low, high), (first, last) = _extent(a), _extent(b)
    return low < last and first < high


def _extent(array: NdArray) -> tuple[int, int]:
    steps = [s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)]
    start = address(array)
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + int(array.dtype.itemsize)


def _elements(array: NdArray) -> tuple[Any, ...]:
    """What two arrays of the same elements in the same order have in common."""
    return address(array), tuple(array.shape), [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


def check_output(name: str, g: Given, shape: Sequence[int]) -> None:
    """Refuses an output of another shape, or whose elements share memory."""
    if tuple(g.array.shape) != tuple(shape):
        raise ArgumentValueError(f"`{name}`: the output `{g.parameter.name}` has shape {tuple(g.array.shape)}, the result {tuple(shape)}")
    if g.array.size and any(s == 0 and n > 1 for s, n in zip(g.array.strides, g.array.shape, strict=True)):
        raise LaunchError(f"`{name}`: the output `{g.parameter.name}` is a broadcast array, its elements share memory; pass one of its own")
