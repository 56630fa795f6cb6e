"""A kernel's launch, its reverse and its tangents on arrays of NumPy or CuPy, as XLA hands them out.

Nothing here knows of tracing. What a launch needs and gives is known from shapes and whole numbers alone (`Launches.split`); a callback
gets buffers, of which those that are overwritten are results already: XLA has put the operand there, by donation or by a copy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..api import push_forward
from ..arguments.annotations import Active, Const, Duplicated
from ..interop import Signature, Split, separated, split_launch


class Call(NamedTuple):
    """What decides about a launch, by the parameters' positions: shapes and dtypes of its arrays (None elsewhere), whole numbers (None
    elsewhere), and which parameters have a shadow."""

    layouts: tuple[tuple[tuple[int, ...], str] | None, ...]
    words: tuple[Any, ...]
    active: tuple[bool, ...]


class Launches:
    """What is known of a kernel's launches."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.count = len(signature.kernel.parameters)
        self._splits: dict[Hashable, Split] = {}

    def geometry(self, call: Call) -> tuple[Any, Any, int]:
        """Grid, block, bytes of shared memory."""
        given = self._ghosts(call)
        signature = self.signature
        return signature.grid.of(given), signature.block.of(given), int(signature.shared_mem.of(given))

    def layout(self, call: Call, position: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of an array, also of one that is made."""
        known = call.layouts[position]
        if known is not None:
            return known[0], _dtype(known[1])
        return self.signature.shape_of(position, self._ghosts(call, made=False)), self.signature.dtype_of(position)

    def _ghosts(self, call: Call, *, made: bool = True) -> list[Any]:
        """Arrays of NumPy without content, and numbers, that are as those of the call."""
        found: list[Any] = [1.0 if k in self.signature.reals else word for k, word in enumerate(call.words)]
        for k, known in enumerate(call.layouts):
            if known is not None:
                found[k] = np.empty(known[0], _dtype(known[1]))
        for k in self.signature.fresh if made else ():
            shape, dtype = self.layout(call, k)
            found[k] = np.empty(shape, dtype)
        return found

    def split(self, call: Call, like: Any = None) -> Split:
        """Both halves of a launch, for arrays of the library of `like`. Raises as `gpuad.autodiff` does."""
        library = "numpy" if like is None or isinstance(like, np.ndarray) else "cupy"
        key = call, library
        if key not in self._splits:
            args = self._ghosts(call) if library == "numpy" else [_beside(like, x) for x in self._ghosts(call)]
            self._splits[key] = split_launch(self.signature.kernel, call.active, *self._extents(call), args, self.geometry(call)[2])
        return self._splits[key]

    def _extents(self, call: Call) -> tuple[Any, Any]:
        grid, block, _ = self.geometry(call)
        return grid, block

    def shadow_dtype(self, call: Call, position: int) -> np.dtype[Any]:
        """The dtype of the shadow of an active parameter."""
        dtype = self.split(call).shadows[position]
        assert dtype is not None
        return dtype

    # --- what callbacks do -------------------------------------------------------------------------------------------------------------

    def forward(self, call: Call, args: Sequence[Any], logs: Sequence[Any]) -> None:
        """Runs a launch on arrays and numbers by position, of which the overwritten and the made ones are results. `logs`: results, too."""
        for k in self.signature.fresh:
            args[k].fill(0)
        for log in logs:
            log.fill(0)
        args = separated(args, self.signature.written)
        if any(call.active):
            split = self.split(call, _first(args))
            with self.signature.kernel.room():
                split.forward(args, logs)
        else:
            grid, block, shared_mem = self.geometry(call)
            self.signature.kernel(grid, block, args, shared_mem=shared_mem)

    def reverse(
        self, call: Call, reads: Mapping[int, Any], before: Mapping[int, Any], logs: Sequence[Any], reals: Mapping[int, float],
        shadows: Sequence[Any],
    ) -> None:  # fmt: skip
        """Pulls back the seeds in `shadows`, which are results, by position."""
        args: list[Any] = list(call.words)
        for k in self.signature.reals:
            args[k] = reals[k]
        for k, x in reads.items():
            args[k] = x
        split = self.split(call, _first(shadows))
        copies = {k: x.copy() if k in split.working else x for k, x in before.items()}
        with self.signature.kernel.room():
            split.reverse(args, shadows, copies, logs)

    def tangents(self, call: Call, args: Sequence[Any], shadows: Sequence[Any]) -> None:
        """Pushes the tangents in `shadows`, which are results, by position. `args`: arrays and numbers before the launch; those that the
        kernel overwrites are ours."""
        grid, block, shared_mem = self.geometry(call)
        push_forward(self.signature.kernel, grid, block, self._pairs(separated(args, self.signature.written), shadows), shared_mem)

    def _pairs(self, args: Sequence[Any], shadows: Sequence[Any]) -> tuple[Any, ...]:
        made: list[Any] = []
        for k, (x, s) in enumerate(zip(args, shadows, strict=True)):
            if s is None:
                made.append(Const(x) if k in self.signature.pointers and x is not None else x)
            else:
                made.append(Active(x, s) if k in self.signature.reals else Duplicated(x, s))
        return tuple(made)


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        from ..ir.dtypes import dtype_of
        from ..ir.types import BF16

        return dtype_of(BF16)
    return np.dtype(name)


def _first(arrays: Sequence[Any]) -> Any:
    return next((x for x in arrays if hasattr(x, "strides")), None)


def _beside(like: Any, x: Any) -> Any:
    """An array without content in the library of another one."""
    from ..arguments.annotations import namespace

    return namespace(like).empty(x.shape, x.dtype) if isinstance(x, np.ndarray) else x
