"""A bound call with its geometry, and the executor that runs it.

In: bound arguments (`arguments.Bound`), grid, block and stream. Out: a frozen `Call`, which launches kernels on its executor and gives
analyses what they depend on: `key` (geometry, integers, layouts, overlaps), `numbers` (integer and bool scalars), `overlaps` (for each
argument that reaches memory of an earlier one, that one and the distance in elements). CuPy's arrays run on the GPU; NumPy's on the CPU, by
compiled C++, or interpreted where there is no compiler.

Raises LaunchError where two arguments overlap by a part of an element."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from ..analysis.affine_forms import Launch as Numbers
from ..arguments import Bound
from ..context_variables import scoped
from ..errors import LaunchError
from ..ir.aliases import Aliases
from ..ir.nodes import Kernel, Var
from ..ir.types import BOOL
from ..memo import Memo
from ..runtime.base import Argument, Dim3, Executor, Prepared, prepared
from ..traced_numbers import Traces

_T = TypeVar("_T")
_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def executor_for_tests(executor: Executor) -> AbstractContextManager[None]:
    """Within it NumPy arrays run on the given executor. For tests: users' arrays choose."""
    return scoped(_chosen, executor)


def executor_of(library: str | None, exact: bool = False) -> Executor:
    """The executor for arrays of a library: CuPy's run on the GPU, NumPy's on the CPU. `exact`: without contraction of products and
    sums."""
    if library == "cupy":
        return _cuda(exact)
    return _chosen.get() or _cpu()


@cache
def _cuda(exact: bool) -> Executor:
    from ..runtime.cuda import Cuda

    return Cuda(contract=not exact)


@cache
def _cpu() -> Executor:
    from ..runtime.compiler import has_compiler
    from ..runtime.host import Host
    from ..runtime.reference import Reference

    return Host() if has_compiler() else Reference()


@dataclass(frozen=True, eq=False)
class Call:
    """A bound call and its geometry."""

    bound: Bound
    grid: Dim3
    block: Dim3
    shared_mem: int = 0
    stream: Any = None
    loose: frozenset[int] = frozenset()  # parameters through which the kernel may reach outside of their views
    absent: frozenset[int] = frozenset()  # parameters without an array to which the kernel may come
    values: frozenset[int] = frozenset()  # whole numbers that only become floating-point values
    varying: frozenset[int] = frozenset()  # whole numbers that calls like this one have had other values of
    exact: bool = False  # products and sums are not contracted
    pool: Executor | None = None  # the executor with memory of its own, if a tape has one
    shared: dict[Hashable, Any] | None = None  # what was worked out for calls like this one, if there may be others

    @property
    def executor(self) -> Executor:
        return self.pool or executor_of(self.bound.library, self.exact)

    def prepare(self, kernels: Sequence[Kernel | None]) -> None:
        """Compiles what the launch will need, before anything is written."""
        x, y, z = self.block
        self.executor.prepare([k for k in kernels if k is not None], x * y * z)

    @property
    def threads(self) -> int:
        """Number of threads of the launch."""
        return prod(self.extents)

    @property
    def extents(self) -> Dim3:
        """Number of threads of the launch along x, y and z."""
        (a, b, c), (x, y, z) = self.grid, self.block
        return a * x, b * y, c * z

    def run(self, kernel: Kernel, args: list[Argument], grid: Dim3 | None = None) -> None:
        """Launches a kernel, with a grid of its own if one is given."""
        self.executor.launch(kernel, grid or self.grid, self.block, args, shared_mem=self.shared_mem)

    def prepared(self, kernel: Kernel, args: list[Argument], grid: Dim3 | None = None) -> Prepared:
        """A launch as a callable that makes it, any number of times."""
        return prepared(self.executor, kernel, grid or self.grid, self.block, args, self.shared_mem)

    @cached_property
    def key(self) -> Hashable:
        """What the analyses of a launch depend on besides the kernel: geometry, integers, and how the arrays are laid out and overlap."""
        return (
            self.grid,
            self.block,
            tuple(self.overlaps.items()),
            tuple(
                None
                if a.array is None and a.value is None
                else (a.array.shape, a.array.strides)
                if a.array is not None
                else _integer(a.value)
                if i not in self.values
                else None
                for i, a in enumerate(self.bound.arguments)
            ),
        )

    def but(self, **changes: Any) -> Call:
        """The call with other fields than those on which its `key` depends: `varying`, `exact`, `shared`."""
        made = replace(self, **changes)
        made.__dict__.update((name, self.__dict__[name]) for name in ("key", "frame", "overlaps") if name in self.__dict__)
        return made

    @cached_property
    def at_large(self) -> Call:
        """The call as if nothing were known of the numbers that vary: what holds for it holds for all of their values."""
        return replace(self, values=self.values | self.varying, varying=frozenset()) if self.varying else self

    def fact(self, facts: Memo, name: tuple[Hashable, ...], kernel: Kernel, find: Callable[[Numbers], _T]) -> _T:
        """The fact that `find` gives for the numbers of the launch, kept under its name and `key`. Where numbers vary, what is found for
        some of them is known for all for which it is found in the same way (`traced_numbers`). `find` takes nothing else that depends on
        the whole numbers of the launch. `kernel`: whose parameters they are."""
        own = (*name, self.key)

        def known() -> _T:
            found: _T = facts.get(own, lambda: find(self.numbers(kernel)))
            return found

        if not self.varying or own in facts.known:
            return known()
        given = self.numbers(kernel)
        traces: Traces = facts.get(("traced", *name, self.at_large.key), Traces)
        parameters = (kernel.params[i] for i in sorted(self.varying))
        varying = {p: given.scalars[p] for p in parameters if isinstance(p, Var) and p in given.scalars}
        return traces.of(varying, lambda numbers: find(replace(given, scalars={**given.scalars, **numbers})), known)

    @cached_property
    def frame(self) -> Hashable:
        """What it shares with calls that have other whole numbers."""
        return replace(self, values=self.values.union(self.whole_numbers)).key

    @property
    def whole_numbers(self) -> dict[int, int]:
        """The whole numbers of its key, by position."""
        given = ((i, a.value) for i, a in enumerate(self.bound.arguments) if a.array is None and a.value is not None)
        return {i: n for i, value in given if i not in self.values and (n := _integer(value)) is not None}

    @property
    def whole_values(self) -> tuple[int | None, ...]:
        """The whole numbers that `key` has not, since they are values alone."""
        return tuple(_integer(self.bound.arguments[i].value) for i in sorted(self.values))

    def numbers(self, kernel: Kernel) -> Numbers:
        """Grid, block and whole scalars, truth values too, as the analyses take them; values alone are unknown, as floats are."""
        scalars: dict[Var, int] = {}
        for i, (item, argument) in enumerate(zip(kernel.params, self.bound.arguments, strict=False)):
            whole = isinstance(item, Var) and (item.type.is_integer or item.type == BOOL) and i not in self.values
            if isinstance(item, Var) and whole and argument.value is not None:
                scalars[item] = int(argument.value)
        offsets = self.offsets()
        extra = [p for p in kernel.params[len(self.bound.arguments) :] if isinstance(p, Var)]
        scalars.update(zip(extra, offsets.values(), strict=False))
        return Numbers(self.grid, self.block, scalars)

    def offsets(self) -> dict[int, int]:
        """Element offsets of overlapping parameters from their base, for those that do not start where the base does."""
        return {i: o for i, (_, o) in self.overlaps.items() if o != 0}

    @cached_property
    def overlaps(self) -> Mapping[int, tuple[int, int]]:
        """For each parameter that may reach the memory of an earlier one: (position of that one, offset in elements)."""
        found: dict[int, tuple[int, int]] = {}
        aliases = self.bound.aliases
        wide = {a.allocation for i, a in enumerate(aliases) if a is not None and i in self.loose}
        for i, alias in enumerate(aliases):
            if alias is None:
                continue
            base, offset = (alias.allocation, alias.allocation_offset) if alias.allocation in wide else (alias.overlap, alias.offset)
            if base == i:
                continue
            if offset is None:
                raise LaunchError(f"`{self.bound.kernel}`: two arguments overlap by a part of an element; pass copies.")
            found[i] = (base, offset)
        return found

    def aliases(self) -> Aliases:
        """The pattern of overlaps and absent arrays."""
        return Aliases.of({i: (base, offset == 0) for i, (base, offset) in self.overlaps.items()}, self.absent)

    def offset_values(self) -> list[Argument]:
        return [np.int64(o) for o in self.offsets().values()]


def _integer(value: Any) -> int | None:
    """A number as far as it enters proofs."""
    return int(value) if value.dtype.kind in "iub" else None
