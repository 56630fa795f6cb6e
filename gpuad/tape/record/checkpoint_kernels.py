"""A reverse kernel that reads a few values of the forward part, not the memory that they were made of (see `ad.checkpoint_selection`).

In: an adjoint, and the positions of arguments that it reads as they were before the launch. Out: a `Cutting`: the adjoint that reads the
values from logs, an element a thread each, and the kernel that extracts them on memory from before the primal; the values are those of a
minimum cut, by bytes. None if there is no cut, if the adjoint replays stores to that memory, or if a value depends on memory that the
primal writes.

Guarantees that the adjoint does not read the given memory any more, and valid IR (`ir.verify` raises for the extracting kernel)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ...ad.checkpoint_selection import Cut, memory_read, smallest_cut
from ...ad.reversed_loops import run_forwards
from ...ad.stack_layout import stack_layout
from ...analysis.affine_forms import Launch as Numbers
from ...ir.nodes import Buffer, Kernel, Load, Store
from ...ir.rewrite import Names, written_in
from ...ir.verify import verify
from ...optimize.simplify import simplify
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...pipeline.pattern import Parameter, stack_parameters
from ..memory.effects import reached


@dataclass(frozen=True, eq=False)
class Cutting:
    """`adjoint` reads the values from the last of its logs, an element a thread each; `extraction`, launched with `parameters` on memory
    as it was before the primal, puts them there. `elements`: of each log in a certain launch, where threads beyond its bounds have none."""

    adjoint: Adjoint
    extraction: Kernel
    parameters: tuple[Parameter, ...]
    saved: tuple[Buffer, ...]
    elements: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes a thread."""
        return sum(b.element.size for b in self.saved)

    @property
    def total(self) -> int:
        """Bytes in a certain launch."""
        return self.nbytes * self.elements

    def spares(self, position: int) -> bool:
        """Whether the adjoint no longer reads what was before the launch in the memory of an argument."""
        return _memory(self.adjoint, frozenset({position})).isdisjoint(self.adjoint.reads)

    @property
    def names(self) -> str:
        """The values, for the user."""
        return ", ".join(dict.fromkeys(b.name.removesuffix("_saved") for b in self.saved))


def cutting(adjoint: Adjoint, positions: frozenset[int]) -> Cutting | None:
    """The cheapest values to keep in place of what the adjoint reads through the user's parameters at `positions` as it was before the
    launch; None if there are none, or if the adjoint replays stores to that memory."""
    memory = _memory(adjoint, positions)
    if not memory or adjoint.recording.working:
        return None
    others = frozenset(p.item for p in adjoint.parameters if isinstance(p.item, Buffer) and p.role not in ("primal", "entry"))
    primals = frozenset(p.item for p in adjoint.parameters if isinstance(p.item, Buffer)) - others
    whole = replace(adjoint.primal, params=adjoint.params, body=adjoint.unlaid)
    cut = smallest_cut(adjoint.unlaid, memory, others, primals, Names(whole))
    if cut is None or not _before(adjoint, cut):
        return None
    found = Cutting(_adjoint(adjoint, cut), *_extraction(adjoint, cut), cut.saved)
    return None if found.adjoint.reads & memory else found


def _memory(adjoint: Adjoint, positions: frozenset[int]) -> frozenset[Buffer]:
    """The buffers through which an adjoint sees what was before the launch in the memory of some arguments."""
    written = written_in(adjoint.primal.body)
    found = ((p.role, p.item) for p in adjoint.parameters if p.position in positions)
    return frozenset(b for role, b in found if isinstance(b, Buffer) and (role == "entry" or (role == "primal" and b not in written)))


def cutting_for(adjoint: Adjoint, positions: frozenset[int], call: Call) -> Cutting | None:
    """As `cutting`, with the number of elements that the logs have in a launch."""
    cut: Cutting | None = adjoint.facts.get(("cutting", positions), lambda: cutting(adjoint, positions))
    if cut is None:
        return None
    name = "elements", positions
    return replace(cut, elements=call.fact(adjoint.facts, name, adjoint.primal, partial(_elements, cut, call.threads)))


def _elements(cut: Cutting, threads: int, numbers: Numbers) -> int:
    """How many elements the logs of a launch need: those of threads that come to write or to read one."""
    body = (*cut.extraction.body, *cut.adjoint.unlaid)
    found = [reached(body, b, numbers, (Load, Store), 1) for b in cut.saved]
    return max(1, max(threads if r is None else min(r.high, threads) for r in found))


def _before(adjoint: Adjoint, cut: Cut) -> bool:
    """Whether the values are made of memory as it was before the launch only."""
    written = written_in(adjoint.primal.body)
    return not any(b in written for b in memory_read(cut.extraction))


def _extraction(adjoint: Adjoint, cut: Cut) -> tuple[Kernel, tuple[Parameter, ...]]:
    count = len(adjoint.logs)
    kept = [p for p in adjoint.parameters if p.role in ("primal", "entry", "offset", "log")]
    parameters = (*kept, *(Parameter("log", count + i, b) for i, b in enumerate(cut.saved)))
    body = run_forwards(simplify(cut.extraction, adjoint.first_own))
    kernel = Kernel(f"{adjoint.primal.name}_extract", tuple(p.item for p in parameters), body, adjoint.primal.span)
    verify(kernel)
    return kernel, parameters


def _adjoint(adjoint: Adjoint, cut: Cut) -> Adjoint:
    body = run_forwards(simplify(cut.rest, adjoint.first_own))
    logs = (*adjoint.logs, *cut.saved)
    read = set(memory_read(body))
    entry = {b: copy for b, copy in adjoint.recording.entry.items() if copy in read}
    shadows = [p.item for p in adjoint.parameters if p.role == "shadow"]
    wide = replace(adjoint.primal, params=(*adjoint.primal.params, *shadows, *logs))
    names = Names(replace(wide, body=body, params=(*wide.params, *entry.values())))
    layout = stack_layout(body, adjoint.recording.primal, entry, adjoint.recording.stacks, adjoint.logged, names)
    parameters = [p for p in adjoint.parameters if p.role in ("primal", "shadow", "offset") or (p.role == "entry" and p.item in read)]
    parameters += [Parameter("log", i, b) for i, b in enumerate(logs)]
    parameters += stack_parameters(layout)
    recording = replace(adjoint.recording, entry=entry)
    return replace(adjoint, layout=layout, parameters=tuple(parameters), logs=logs, unlaid=body, recording=recording)
