"""Kernels of the elementwise operations, as CUDA text. They are differentiated like a user's own: no derivative is written here.

The text depends on types and on the pattern of strides (broadcast, side by side, or a number), not on sizes; so a few kernels serve a
program, and each is built once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .. import pipeline
from ..api import Kernel
from ..arguments import bind, geometry
from ..errors import UnsupportedError
from ..frontend.elementwise import Operand
from ..frontend.elementwise.strided import thread_lines
from ..pipeline import Call
from ..source import SourceFile

_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip


@dataclass(frozen=True)
class Array:
    """A pointer operand: its type, and for each axis '0' (broadcast), '1' (side by side) or 's' (a stride by number)."""

    dtype: str
    pattern: str


@dataclass(frozen=True)
class Number:
    """An operand by value."""

    dtype: str


@dataclass(frozen=True)
class Spec:
    """What a generated kernel depends on. `arrays[0]` is the output; `numbers` come after the arrays. `inputs` says for each operand of
    `expression` which of them it is: an array by its place, a number by -1 - place. `raw`: so many operands are not converted. `loops`:
    outermost axes that are loops, not threads. `index`: the integer type of indices."""

    name: str
    expression: str
    compute: str
    arrays: tuple[Array, ...]
    numbers: tuple[Number, ...]
    inputs: tuple[int, ...]
    raw: int
    loops: int
    index: str

    @property
    def dims(self) -> int:
        """Number of axes."""
        return len(self.arrays[0].pattern)


def type_name(dtype: str) -> str:
    """A dtype as CUDA spells it. UnsupportedError for what elementwise kernels do not take."""
    if dtype not in _TYPES:
        raise UnsupportedError(f"gpuad.ops takes arrays of bool, integers, float32 and float64, not {np.dtype(dtype)}")
    return _TYPES[dtype]


class StridedKernel(Kernel):
    """A kernel that is told offsets and strides, so that it takes any view and touches its elements only."""

    def bind(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        shared_mem: int,
        stream: Any,
        kinds: Sequence[str] = (),
        tangents: Collection[int] = (),
    ) -> Call:
        """As for any kernel, but nothing has to be proved about where it reaches."""
        names = [d.name for d in self.parameters]
        bound = bind(self.name, self.parameters, args, written=[names[0]], inside=names, strided=True)
        call = Call(bound, *geometry(grid, block), shared_mem, stream)
        pipeline.check_device(call)
        return call


@cache
def built(spec: Spec) -> Kernel:
    """The kernel of a spec."""
    return StridedKernel(SourceFile(f"<gpuad.ops.{spec.name}>", text(spec)), f"op_{spec.name}")


def text(spec: Spec) -> str:
    """The CUDA text: pointers, numbers, lengths, offsets, strides are the parameters, in this order."""
    axes = range(spec.dims)
    pointers = [f"{'' if i == 0 else 'const '}{type_name(a.dtype)}* {symbol(i)}" for i, a in enumerate(spec.arrays)]
    numbers = [f"{type_name(n.dtype)} v{i}" for i, n in enumerate(spec.numbers)]
    integers = [f"n{k}" for k in axes] + [f"o{i}" for i in range(len(spec.arrays))]
    integers += [name for i, a in enumerate(spec.arrays) for name in Operand(str(i), a.pattern).numbers()]
    parameters = ", ".join([*pointers, *numbers, *(f"{spec.index} {name}" for name in integers)])
    return f'extern "C" __global__ void op_{spec.name}({parameters})\n{{\n{_body(spec)}\n}}\n'


def symbol(place: int) -> str:
    """The name of an array parameter: the output is `out`, inputs are a, b, c, ..."""
    return "out" if place == 0 else chr(ord("a") + place - 1)


def _body(spec: Spec) -> str:
    lines = [*thread_lines(spec.dims - spec.loops, spec.dims, spec.index), _statement(spec)]
    return "\n".join(f"    {line}" for line in lines)


def _statement(spec: Spec) -> str:
    operands = [_operand(spec, place, i < spec.raw) for i, place in enumerate(spec.inputs)]
    value = spec.expression.format(*operands, t=type_name(spec.compute), f="f" if spec.compute == "float32" else "")
    target = _element(spec, 0)
    if value.startswith("+= "):
        return f"{target} += {value.removeprefix('+= ')};"
    cast = "" if spec.arrays[0].dtype == spec.compute else f"({type_name(spec.arrays[0].dtype)})"
    return f"{target} = {cast}({value});" if cast else f"{target} = {value};"


def _operand(spec: Spec, place: int, raw: bool) -> str:
    if place < 0:
        return f"v{-1 - place}"
    cast = "" if raw or spec.arrays[place].dtype == spec.compute else f"({type_name(spec.compute)})"
    return f"{cast}{_element(spec, place)}"


def _element(spec: Spec, place: int) -> str:
    return f"{symbol(place)}[{Operand(str(place), spec.arrays[place].pattern).index()}]"
