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


@dataclass(frozen=True, eq=False, repr=False)
class AdjointText:
    """A generated adjoint of the kernel `function`: `source` is CUDA text that needs nothing of gpuad; `kernels` the names of the kernels
    in it, in the order of their launches; `facts`: of the launch that it is for, if it is for one. `parts`: the names of the parts of a
    kernel with `grid.sync()`, which with their adjoints are all in the text. `shadows`: the arrays of adjoints in it."""

    function: Function
    contract: str
    generated: tuple[Kernel, ...]
    explanation: Explanation
    facts: Facts = field(default_factory=Facts)
    parts: tuple[str, ...] = ()
    shadows: frozenset[Buffer] = frozenset()

    @cached_property
    def source(self) -> str:
        """The text."""
        return f"{self._header}\n\n{cuda_source(self.generated)}"

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the generated kernels."""
        return tuple(kernel.name for kernel in self.generated)

    @property
    def _header(self) -> str:
        return "\n".join(comment(self.contract))

    def explain(self) -> Explanation:
        """What is saved and why, and how each gradient is accumulated."""
        return self.explanation

    def lines(self) -> tuple[Line, ...]:
        """The lines of `source`, with the statements that they print and the places of the user's source that they come from."""
        return (*map(Line, self._header.split("\n")), Line(""), *located_lines(self.generated, self.shadows))

    def html(self) -> str:
        """A page of HTML that stands alone: the kernel on the left, this adjoint on the right, and which lines belong together."""
        return page(self.function, self.lines(), self.explanation, self.facts)

    def page(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"<adjoint of {self.function.name}: {', '.join(self.kernels)}, {len(self.source.splitlines())} lines>"

    def _repr_html_(self) -> str:
        return framed(self.html())


@dataclass(frozen=True)
class Written:
    """What a text is made of: the contract, the generated kernels in the order of their launches, the account, and the launch's facts."""

    contract: str
    kernels: tuple[Kernel, ...]
    explanation: Explanation
    facts: Facts
    shadows: frozenset[Buffer]


def written(function: Function, adjoint: Adjoint, call: Call | None) -> Written:
    """What there is to write of an adjoint for a launch, or for every launch."""
    plain = pipeline.plain_shadows(adjoint, call) if call is not None else frozenset()
    stages = pipeline.stages(adjoint, call) if call is not None else (Stage(adjoint.kernel(), adjoint.parameters),)
    kernels = tuple(k for k in (adjoint.augmented, adjoint.counting, *(k for s in stages for k in s.kernels)) if k is not None)
    facts = _facts(function, stages, call) if call is not None else Facts()
    parameters = (p for own in (adjoint.parameters, *(s.parameters for s in stages)) for p in own)
    shadows = frozenset(p.item for p in parameters if p.role.startswith(("shadow", "partial")) and isinstance(p.item, Buffer))
    return Written(contract(function, adjoint, stages, plain, call), kernels, explanation(adjoint, stages, call), facts, shadows)


def adjoint_text(function: Function, adjoint: Adjoint, call: Call | None) -> AdjointText:
    """The text for a launch, or that which holds for every launch."""
    made = written(function, adjoint, call)
    return AdjointText(function, made.contract, made.kernels, made.explanation, made.facts, shadows=made.shadows)


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
