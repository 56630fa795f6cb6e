"""hipRAND by NumPy's generators: other numbers than a device's, of the same distributions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from .library_functions import DOUBLE, FLOAT, INT, LONG, POINTER, SIZE, Array, Table, vector, write


def add_random(table: Table) -> None:
    """The generators of pseudo-random numbers and their distributions."""
    generators: dict[int, np.random.Generator] = {}

    def created(place: int, kind: int) -> None:
        handle = table.new_handle()
        generators[handle] = np.random.default_rng(0)
        write(place, POINTER, handle)

    def drawn(dtype: str, draw: Callable[..., Array]) -> Callable[..., int]:
        def call(handle: int, address: int, count: int, *parameters: float) -> int:
            numbers = draw(generators[handle], count, *parameters)  # which they are is settled by the order of the calls

            def work() -> None:
                vector(address, dtype, count)[...] = numbers

            return table.enqueue(handle, work)

        return call

    table.add("hiprandCreateGenerator", (POINTER, INT), created)
    table.add("hiprandDestroyGenerator", (POINTER,), lambda handle: generators.__delitem__(handle))
    table.add_stream("hiprandSetStream")
    table.add("hiprandGetVersion", (POINTER,), lambda place: write(place, INT, 300000))
    seeded = lambda handle, seed: generators.update({handle: np.random.default_rng(seed)})  # noqa: E731
    table.add("hiprandSetPseudoRandomGeneratorSeed", (POINTER, ctypes.c_ulonglong), seeded)
    table.add("hiprandSetGeneratorOffset", (POINTER, LONG), lambda handle, offset: None)
    table.add("hiprandGenerate", (POINTER, POINTER, SIZE), drawn("u4", lambda r, n: r.integers(0, 1 << 32, n, "u4")))
    table.add("hiprandGeneratePoisson", (POINTER, POINTER, SIZE, DOUBLE), drawn("u4", lambda r, n, mean: r.poisson(mean, n)))
    for suffix, dtype, real in (("", "f4", FLOAT), ("Double", "f8", DOUBLE)):
        uniform = drawn(dtype, lambda r, n, dtype=dtype: 1 - r.random(n, dtype))  # (0, 1], as cuRAND has it
        table.add(f"hiprandGenerateUniform{suffix}", (POINTER, POINTER, SIZE), uniform)
        table.add(
            f"hiprandGenerateNormal{suffix}",
            (POINTER, POINTER, SIZE, real, real),
            drawn(dtype, lambda r, n, mean, width: r.normal(mean, width, n)),
        )
        table.add(
            f"hiprandGenerateLogNormal{suffix}",
            (POINTER, POINTER, SIZE, real, real),
            drawn(dtype, lambda r, n, mean, width: r.lognormal(mean, width, n)),
        )
