"""A kernel's launch, its reverse, its tangents and second derivatives on arrays of NumPy or CuPy, as XLA hands them out.

Nothing here knows of tracing. What a launch needs and gives is known from shapes and whole numbers alone (`Launch`); what is overwritten
lies in results already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ..api import hvp, push_forward
from ..arguments.arrays import namespace
from ..interop import Signature, Split, flat, split_launch
from .callbacks import number


@dataclass(frozen=True)
class Launch:
    """A launch without its content: all that decides about it, equal for launches that are alike. Positions are those of the parameters.

    `layouts`: shapes and dtypes of the arrays, those that are made among them, None elsewhere; `words`: whole numbers, None elsewhere;
    `order`: what is an operand; `active`: which parameters have a shadow, none where there is no derivative; `dotted`: of which operands
    there are tangents, or gradients; `moved`: along which operands a gradient is differentiated again; `said`: the whole numbers as a text,
    which tells 0.0 from -0.0."""

    signature: Signature
    layouts: tuple[tuple[tuple[int, ...], str] | None, ...]
    words: tuple[Any, ...]
    order: tuple[int, ...]
    active: tuple[bool, ...]
    dotted: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    said: str = ""

    # --- what is known beforehand ------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of parameters."""
        return len(self.words)

    def layout(self, k: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of an array."""
        known = self.layouts[k]
        assert known is not None
        return known[0], dtype_named(known[1])

    @cached_property
    def written(self) -> tuple[int, ...]:
        """What a launch gives: all that it writes."""
        return tuple(k for k in sorted(self.signature.written) if self.layouts[k] is not None)

    @cached_property
    def shadowed(self) -> tuple[int, ...]:
        """What has a shadow."""
        return tuple(k for k, on in enumerate(self.active) if on)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """Of what it gives, what has a tangent."""
        return tuple(k for k in self.written if self.active[k])

    @cached_property
    def after(self) -> tuple[int, ...]:
        """Of what it gives, what the reverse is given: what it reads, and something where the launch may refuse, which XLA would leave out
        if it was not used."""
        split = self.split()
        reads = tuple(k for k in split.reads if k in self.written)
        return reads or (self.written[:1] if split.doubtful and not split.logs else ())

    @cached_property
    def geometry(self) -> tuple[Any, Any, int]:
        """Grid, block, bytes of shared memory."""
        given, own = self._ghosts(), self.signature
        return own.grid.of(given), own.block.of(given), int(own.shared_mem.of(given))

    def _ghosts(self) -> list[Any]:
        """Arrays of NumPy without content, and numbers, that are as those of the call."""
        found: list[Any] = [1.0 if k in self.signature.reals else word for k, word in enumerate(self.words)]
        for k, known in enumerate(self.layouts):
            if known is not None:
                found[k] = np.empty(*self.layout(k))
        return found

    def split(self, like: Any = None) -> Split:
        """Both halves of a launch, for arrays of the library of `like`. Raises as `gpuad.autodiff` does."""
        library = np if like is None else namespace(like)
        if library not in self._splits:
            self._splits[library] = _split(replace(self, dotted=(), moved=()), library)
        return self._splits[library]

    @cached_property
    def _splits(self) -> dict[Any, Split]:
        return {}

    def shadow(self, k: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of a shadow."""
        dtype = self.split().shadows[k]
        assert dtype is not None
        return (() if k in self.signature.reals else self.layout(k)[0]), dtype

    def placed(self, operands: Sequence[Any]) -> list[Any]:
        """Operands by position, beside the whole numbers."""
        args: list[Any] = list(self.words)
        for k, x in zip(self.order, operands, strict=False):
            args[k] = number(x) if k in self.signature.reals else x
        return args

    # --- what callbacks do -------------------------------------------------------------------------------------------------------------

    def run(self, args: list[Any], results: Sequence[Any]) -> None:
        """Runs the launch. `args`: by position; `results`: what it writes, and what it writes down."""
        for k, x in zip(self.written, results, strict=False):
            args[k] = x
        for x in (*(args[k] for k in self.signature.fresh), *results[len(self.written) :]):
            x.fill(0)
        args = self.signature.separated(args)
        kernel = self.signature.kernel
        if not any(self.active):
            grid, block, shared_mem = self.geometry
            kernel(grid, block, flat(kernel, args), shared_mem=shared_mem)
            return
        with kernel.room():
            self.split(_first(args)).forward(args, results[len(self.written) :])

    def reverse(self, args: Sequence[Any], after: Mapping[int, Any], logs: Sequence[Any], shadows: Sequence[Any]) -> None:
        """Pulls back the seeds in `shadows`, by position. `args`: from before the launch, by position; `after`: from after it."""
        split = self.split(_first(shadows))
        kept = [x if k not in self.signature.pointers else after.get(k, x) if k in split.reads else None for k, x in enumerate(args)]
        before = {k: args[k].copy() if k in split.working else args[k] for k in split.before}
        with self.signature.kernel.room():
            split.reverse(kept, shadows, before, logs)

    def tangents(self, args: Sequence[Any], dots: Sequence[Any]) -> None:
        """Pushes tangents, by position. `args`: from before the launch, of which what is overwritten is ours."""
        grid, block, shared_mem = self.geometry
        own = self.signature
        push_forward(own.kernel, grid, block, own.pairs(own.separated(args), dots), shared_mem)

    def second(self, args: Sequence[Any], shadows: Sequence[Any], dots: Sequence[Any], grown: Sequence[Any]) -> None:
        """Pulls the seeds in `shadows` back, pushes `dots`, and adds to `grown` the tangents of the gradient, all by position."""
        grid, block, shared_mem = self.geometry
        own = self.signature
        hvp(own.kernel, grid, block, own.pairs(own.separated(args), shadows), own.directions(dots, grown), shared_mem=shared_mem)


@lru_cache(maxsize=512)
def _split(launch: Launch, library: Any) -> Split:
    given, (grid, block, shared_mem) = launch._ghosts(), launch.geometry
    arrays = [library.empty(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in given]
    return split_launch(launch.signature.kernel, launch.active, grid, block, arrays, shared_mem)


def dtype_named(name: str) -> np.dtype[Any]:
    """A dtype by its name, bfloat16 among them."""
    if name == "bfloat16":
        from ..ir.dtypes import dtype_of
        from ..ir.types import BF16

        return dtype_of(BF16)
    return np.dtype(name)


def _first(arrays: Sequence[Any]) -> Any:
    return next((x for x in arrays if hasattr(x, "strides")), None)
