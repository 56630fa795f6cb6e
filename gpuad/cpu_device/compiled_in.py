"""What CuPy has compiled in for a GPU: sorting and the new random generators, which are NumPy's here. Other kernels of that kind end in an
error that stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .library_functions import POINTER, Table, vector


def replace_sorting(cupy: Any, table: Table) -> None:
    """Gives the module of CuPy that calls Thrust functions of ours."""

    def enqueued(work: Any) -> None:
        status = table.enqueue_on(POINTER(cupy.cuda.get_current_stream().ptr), work)
        if status:
            raise RuntimeError(f"sorting failed: HIP error {status}")

    def sort(dtype: DTypeLike, data: int, keys: int, shape: Sequence[int]) -> None:
        def work() -> None:
            rows = vector(data, dtype, int(np.prod(shape))).reshape(-1, shape[-1])
            rows.sort(axis=-1, kind="stable")

        enqueued(work)

    def argsort(dtype: DTypeLike, indices: int, data: int, keys: int, shape: Sequence[int]) -> None:
        def work() -> None:
            count = int(np.prod(shape))
            rows = vector(data, dtype, count).reshape(-1, shape[-1])
            places = np.argsort(rows, axis=-1, kind="stable")
            vector(indices, np.uintp, count)[...] = places.ravel()
            rows[...] = np.take_along_axis(rows, places, -1)

        enqueued(work)

    def lexsort(dtype: DTypeLike, indices: int, keys: int, count: int, length: int) -> None:
        def work() -> None:
            vector(indices, np.uintp, length)[...] = np.lexsort(vector(keys, dtype, count * length).reshape(count, length))

        enqueued(work)

    thrust = cupy.cuda.thrust
    thrust.sort, thrust.argsort, thrust.lexsort = sort, argsort, lexsort


def replace_generators(cupy: Any) -> None:
    """Gives `cupy.random.default_rng` generators that draw NumPy's numbers: other ones than a device's, of the same distributions."""

    class Generator:
        """A generator with NumPy's methods, whose arrays are CuPy's."""

        def __init__(self, seed: int | None = None) -> None:
            self._drawn = np.random.default_rng(seed)

        def __getattr__(self, name: str) -> Any:
            draw = getattr(self._drawn, name)

            def drawn(*args: Any, out: Any = None, **options: Any) -> Any:
                given = [cupy.asnumpy(arg) if isinstance(arg, cupy.ndarray) else arg for arg in args]
                made = cupy.asarray(draw(*given, **options))
                if out is None:
                    return made
                out[...] = made
                return out

            return drawn

    cupy.random.Generator, cupy.random.default_rng = Generator, Generator
