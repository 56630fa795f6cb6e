"""The text of an adjoint with its contract, as CUDA and as a page.

In: an adjoint, for one launch or for every launch. Out: `AdjointText`, CUDA that needs nothing of gpuad, with the account of what it saves
and how it accumulates (`explain`) and the user's lines that each of its lines comes from (`adjoint_page`). Nothing is launched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path

from .. import pipeline
from ..arguments.conversions import BoundArgument
from ..codegen.cuda import Line, comment, cuda_source, located_lines
from ..ir.nodes import Buffer, Kernel
from ..ir.surface import Function
from ..pages.side_by_side import framed
from ..pipeline import Call, Stage
from ..pipeline.derived_kernels import Adjoint
from .adjoint_page import Facts, page
from .contract import contract
from .explain import Explanation, explanation


@dataclass(frozen=True)
class Written:
    """The parts of a text: the contract, the generated kernels in the order of their launches, the account, the facts of the launch if
    it is for one, and the arrays of adjoints."""

    contract: str
    kernels: tuple[Kernel, ...]
    explanation: Explanation
    facts: Facts = field(default_factory=Facts)
    shadows: frozenset[Buffer] = frozenset()


@dataclass(frozen=True, eq=False, repr=False)
class AdjointText:
    """The generated adjoint of a kernel. `parts`: the names of the parts of a kernel with `grid.sync()`, which with their adjoints are all
    in the text."""

    _function: Function
    _written: Written
    parts: tuple[str, ...] = ()

    @cached_property
    def source(self) -> str:
        """The text: CUDA that needs nothing of gpuad."""
        return f"{self._header}\n\n{cuda_source(self._written.kernels)}"

    @property
    def contract(self) -> str:
        """The header of the text: which arrays the kernels take, and what they do to them."""
        return self._written.contract

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the generated kernels, in the order of their launches."""
        return tuple(kernel.name for kernel in self._written.kernels)

    @property
    def _header(self) -> str:
        return "\n".join(comment(self.contract))

    def explain(self) -> Explanation:
        """What is saved and why, and how each gradient is accumulated."""
        return self._written.explanation

    def lines(self) -> tuple[Line, ...]:
        """The lines of `source`, with the statements that they print and the places of the user's source that they come from."""
        return (*map(Line, self._header.split("\n")), Line(""), *located_lines(self._written.kernels, self._written.shadows))

    def html(self) -> str:
        """A page of HTML that stands alone: the kernel on the left, this adjoint on the right, and which lines belong together."""
        return page(self._function, self.lines(), self._written.explanation, self._written.facts)

    def page(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"<adjoint of {self._function.name}: {', '.join(self.kernels)}, {len(self.source.splitlines())} lines>"

    def _repr_html_(self) -> str:
        return framed(self.html())


def written(function: Function, adjoint: Adjoint, call: Call | None) -> Written:
    """The text of an adjoint in parts, for a launch or for every launch."""
    plain = pipeline.plain_shadows(adjoint, call) if call is not None else frozenset()
    stages = pipeline.stages(adjoint, call) if call is not None else (Stage(adjoint.kernel(), adjoint.parameters),)
    kernels = tuple(k for k in (adjoint.augmented, adjoint.counting, *(k for s in stages for k in s.kernels)) if k is not None)
    facts = _facts(function, stages, call) if call is not None else Facts()
    parameters = (p for own in (adjoint.parameters, *(s.parameters for s in stages)) for p in own)
    shadows = frozenset(p.item for p in parameters if p.role.startswith(("shadow", "partial")) and isinstance(p.item, Buffer))
    return Written(contract(function, adjoint, stages, plain, call), kernels, explanation(adjoint, stages, call), facts, shadows)


def adjoint_text(function: Function, adjoint: Adjoint, call: Call | None) -> AdjointText:
    """The text for a launch, or that which holds for every launch."""
    return AdjointText(function, written(function, adjoint, call))


def together(found: Sequence[Facts]) -> Facts:
    """The facts of several launches: all of them, and the arguments of the first one."""
    launches = tuple(launch for facts in found for launch in facts.launches)
    return Facts(launches, found[0].arguments if found else ())


def _facts(function: Function, stages: Sequence[Stage], call: Call) -> Facts:
    launches = [(function.name, str(call.grid), str(call.block), call.threads, call.shared_mem)]
    for stage in stages:
        grid = call.grid if stage.grid is None else stage.grid
        launches += [(k.name, str(grid), str(call.block), prod(grid) * prod(call.block), call.shared_mem) for k in stage.kernels]
    return Facts(tuple(launches), tuple(_arguments(call)))


def _arguments(call: Call) -> Iterator[tuple[str, str, str, str]]:
    kinds = {"bare": "Const", "const": "Const", "stopped": "Const", "duplicated": "Duplicated", "active": "Active"}
    for argument in call.bound.arguments:
        yield argument.name, str(argument.declaration.type), kinds.get(argument.kind, argument.kind), _given(argument)


def _given(argument: BoundArgument) -> str:
    if not argument.is_pointer:
        return str(argument.value)
    shape = getattr(argument.array, "shape", None)
    return f"array of shape {shape}" if shape is not None else "none" if argument.memory is None else "memory"
