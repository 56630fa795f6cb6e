"""One kernel of a reverse pass, as it is launched, and the certificate under which it may be.

In: a kernel with its `Parameter`s, a grid of its own or None, and values of parameters that belong to it. Out: `may_run`, which `schedule`
checks before each launch: the kernels are those of the certificate, by identity, or they run in the user's threads and write to shadows by
atomic operations only. `Certificate` is made by `certificates` alone; the plain adjoint, all atomic, needs none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..accumulate.fixed_point import FixedPoint
from ..ir.nodes import Accumulate, Buffer, How, Kernel, Store, Take
from ..ir.rewrite import walk_stmts
from ..runtime.base import Dim3
from .pattern import Parameter


@dataclass(frozen=True, eq=False)
class Certificate:
    """That kernels, launched in this order for the numbers of one launch, do what its plain adjoint does: the one in which every addition
    is atomic, by the user's threads. `certificates` gives it, and nothing else does."""

    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, eq=False)
class Stage:
    """One kernel of a reverse pass. `grid`: its own, if that is not the primal's; `numbers`: the values of parameters that belong to it, by
    role and position; `certificate`: of the pass that it is part of, None of a plain adjoint."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]
    grid: Dim3 | None = None
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)
    fixed: FixedPoint | None = None  # what runs in the place of the kernel, for sums whose bits do not depend on the order of threads
    certificate: Certificate | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those that are launched."""
        return (self.fixed.measure, self.fixed.collect) if self.fixed is not None else (self.kernel,)

    @cached_property
    def partials(self) -> tuple[Buffer, ...]:
        """The arrays in which threads keep numbers for those that gather."""
        return tuple(p.item for p in self.parameters if p.role == "partial" and isinstance(p.item, Buffer))

    @cached_property
    def may_run(self) -> bool:
        """True if the kernels are certified, or need no proof as far as their text says: each write to a shadow is atomic."""
        if self.certificate is not None:
            return all(any(k is known for known in self.certificate.kernels) for k in self.kernels)
        shadows = {p.item for p in self.parameters if p.role.startswith("shadow")}
        alone = self.grid is None and not self.partials and self.fixed is None
        return alone and not any(
            isinstance(s, Store) or (isinstance(s, Accumulate | Take) and s.how is How.PLAIN)
            for s in walk_stmts(self.kernel.body)
            if getattr(s, "buffer", None) in shadows
        )


def is_plain(stages: Sequence[Stage]) -> bool:
    """True if a reverse pass is one kernel that runs in the user's threads, with sums as they come."""
    return len(stages) == 1 and stages[0].grid is None and stages[0].fixed is None
