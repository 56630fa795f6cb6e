"""hipFFT by NumPy's transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .library_functions import INT, POINTER, SIZE, Array, Table, vector, write

_TYPES = {0x2A: "R2C", 0x2C: "C2R", 0x29: "C2C", 0x6A: "D2Z", 0x6C: "Z2D", 0x69: "Z2Z"}
_DTYPES = {"R": "f4", "C": "c8", "D": "f8", "Z": "c16"}


@dataclass(frozen=True)
class Layout:
    """The layout of a batch of arrays in memory, in elements: the extents around each axis, the innermost step, from one to the next."""

    extents: tuple[int, ...]
    step: int
    apart: int

    def view(self, address: int, dtype: str, shape: Sequence[int], count: int) -> Array:
        steps = [self.step]
        for extent in self.extents[:0:-1]:
            steps.insert(0, steps[0] * extent)
        strides = (self.apart, *steps)
        last = sum((n - 1) * stride for n, stride in zip((count, *shape), strides, strict=True))
        whole = vector(address, dtype, last + 1)
        return as_strided(whole, (count, *shape), [stride * whole.itemsize for stride in strides])


@dataclass(frozen=True)
class Plan:
    """A transform over the last axes of a batch."""

    kind: str
    shape: tuple[int, ...]
    count: int
    source: Layout
    target: Layout

    def run(self, source: int, target: int, direction: int) -> None:
        half = (*self.shape[:-1], self.shape[-1] // 2 + 1)
        read, written = (half if name in "CZ" and self.real else self.shape for name in (self.kind[0], self.kind[2]))
        given = self.source.view(source, _DTYPES[self.kind[0]], read, self.count).copy()  # in place, a transform reads what it overwrites
        self.target.view(target, _DTYPES[self.kind[2]], written, self.count)[...] = self._transformed(given, direction)

    @property
    def real(self) -> bool:
        return self.kind in ("R2C", "D2Z", "C2R", "Z2D")

    def _transformed(self, given: Array, direction: int) -> Array:
        axes = tuple(range(1, 1 + len(self.shape)))
        if self.kind in ("R2C", "D2Z"):
            return np.fft.rfftn(given, axes=axes)
        if self.kind in ("C2R", "Z2D"):
            return np.fft.irfftn(given, self.shape, axes, norm="forward")  # without a factor, as the library
        return np.fft.fftn(given, axes=axes) if direction < 0 else np.fft.ifftn(given, axes=axes, norm="forward")


def add_fft(table: Table) -> None:
    """Plans and transforms of complex and real arrays."""
    plans: dict[int, Plan] = {}

    def created(place: int) -> None:
        write(place, POINTER, table.new_handle())

    def one_dimension(handle: int, length: int, kind: int, count: int, room: int) -> None:
        name = _TYPES[kind]
        halved = length // 2 + 1
        source = Layout((length,), 1, halved if name in ("C2R", "Z2D") else length)
        target = Layout((length,), 1, halved if name in ("R2C", "D2Z") else length)
        plans[handle] = Plan(name, (length,), count, source, target)
        write(room, SIZE, 0)

    def many(
        handle: int,
        rank: int,
        n: int,
        inside: int,
        step: int,
        apart: int,
        outside: int,
        out_step: int,
        out_apart: int,
        kind: int,
        count: int,
        room: int,
    ) -> None:
        shape, name = tuple(map(int, vector(n, "i4", rank))), _TYPES[kind]
        half = (*shape[:-1], shape[-1] // 2 + 1)
        read = half if name in ("C2R", "Z2D") else shape
        written = half if name in ("R2C", "D2Z") else shape

        def layout(extents: int, usual: tuple[int, ...], step: int, apart: int) -> Layout:
            if not extents:
                return Layout(usual, 1, int(np.prod(usual)))
            return Layout(tuple(map(int, vector(extents, "i4", rank))), step, apart)

        plans[handle] = Plan(name, shape, count, layout(inside, read, step, apart), layout(outside, written, out_step, out_apart))
        write(room, SIZE, 0)

    def execute(handle: int, source: int, target: int, direction: int = -1) -> int:
        plan = plans[handle]
        return table.enqueue(handle, lambda: plan.run(source, target, direction))

    table.add("hipfftCreate", (POINTER,), created)
    table.add("hipfftDestroy", (POINTER,), lambda handle: plans.__delitem__(handle))
    table.add("hipfftGetVersion", (POINTER,), lambda place: write(place, INT, 10000))
    table.add_stream("hipfftSetStream")
    table.add("hipfftSetAutoAllocation", (POINTER, INT), lambda handle, on: None)
    table.add("hipfftSetWorkArea", (POINTER, POINTER), lambda handle, area: None)
    table.add("hipfftMakePlan1d", (POINTER, INT, INT, INT, POINTER), one_dimension)
    table.add("hipfftMakePlanMany", (POINTER, INT, POINTER, POINTER, INT, INT, POINTER, INT, INT, INT, INT, POINTER), many)
    for name in _TYPES.values():
        table.add(f"hipfftExec{name}", (POINTER, POINTER, POINTER, *((INT,) if name in ("C2C", "Z2Z") else ())), execute)
