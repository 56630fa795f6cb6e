"""What a ledger says of one launch, found by deriving its adjoint as for a GPU; nothing is launched but the counting of stacks.

Facts that a reviewer cares about and that do not move with the lines of a file: places are given by the text of the access there, and the
hash is that of the generated text without its comments. Where things are now, for messages, is kept beside (`Entry.places`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ... import pipeline
from ...api import GridKernel, Planned, pattern_of
from ...api.adjoint_text import AdjointText, adjoint_text
from ...api.contract import shadow_parameters
from ...errors import GpuadError, LocatedError
from ...ir.nodes import Accumulate, How, Take
from ...ir.rewrite import walk_stmts
from ...pipeline import Stage
from ...pipeline.derived_kernels import Adjoint
from ...runtime import nvrtc
from ...runtime.reference import Reference
from ...source import SourceFile, Span, traced
from ...testing import PlannedCall
from ..cases import CaseError
from ..examples import Example
from .saved import Kept, saved_by

_ASSIGNED = re.compile(r"[^=!<>]*?[^=!<>\s]\s*(?:[-+*/&|^%]|<<|>>)?=(?!=)")
_HEADS = re.compile(r"(?:for|while|if|switch)\b")
_COMMENTS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True)
class Shadow:
    """How contributions reach a shadow (`way`: gather, plain, reduced or atomic), why, and the accesses whose adjoints these are."""

    way: str
    why: str
    accesses: tuple[str, ...]


@dataclass(frozen=True)
class Needs:
    """What a kernel needs on an architecture: registers a thread, bytes that it spills, bytes of static shared memory a block."""

    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True)
class Place:
    """An access, and where it is now."""

    code: str
    span: Span


@dataclass(frozen=True)
class Entry:
    """One launch. `refused`: why it has no adjoint (then the rest is empty). `needs`: by architecture and kernel; empty where there was no
    compiler. `depth`: entries of the deepest stack of a thread; None where the launch cannot be run to count them. `text`: the hash."""

    refused: str = ""
    kernels: tuple[str, ...] = ()
    shadows: Mapping[str, Shadow] = field(default_factory=dict)
    kept: Mapping[str, Kept] = field(default_factory=dict)
    depth: int | None = 0
    needs: Mapping[str, Mapping[str, Needs]] = field(default_factory=dict)
    text: str = ""
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict, compare=False)

    @property
    def saved(self) -> float:
        """Bytes saved a thread, in all."""
        return round(sum(k.bytes for k in self.kept.values()), 2)


Compiled = Mapping[str, Mapping[str, Mapping[str, Needs]]]  # needs by the hash of the text


def entry_of(example: Example, architectures: Sequence[str], compiled: Compiled) -> Entry | None:
    """What there is to say of an example; None of a rule, which is not generated. `compiled`: what the same compiler said of texts before.
    A kernel that gpuad refuses has an entry that says so; CaseError says what is wrong with the description itself."""
    try:
        launch = example.launch()
        if launch.is_rule:
            return None
        plan = launch.planned()
        with pipeline.executor_for_tests(Reference()):
            if isinstance(plan.kernel, GridKernel):
                return _in_parts(plan.kernel, plan, architectures, compiled)
            with plan.kernel.room():
                return _derived(Planned(plan.kernel, *plan[1:]), architectures, compiled)
    except CaseError:
        raise
    except GpuadError as error:
        return _refused(error, example.file)


def _refused(error: GpuadError, file: SourceFile) -> Entry:
    """What is left to say; the message without the positions in it, which move with the lines."""
    message = (error.message if isinstance(error, LocatedError) else str(error)).partition("\n")[0]
    span = error.span if isinstance(error, LocatedError) else None
    named = re.search(rf"\({re.escape(file.name)}:(\d+):(\d+)\)", message)
    if span is None and named is not None:
        span = Span(file, int(named[1]), int(named[2]))
    message = re.sub(r" \([^()]+:\d+:\d+\)", "", re.sub(r"^`[^`]+`: ", "", message))
    return Entry(refused=message or type(error).__name__, places={"": (_place(span),)} if span else {})


def _in_parts(kernel: GridKernel, plan: PlannedCall, architectures: Sequence[str], compiled: Compiled) -> Entry:
    """The launches of a call, which are made, since data may decide which follow: facts by the names of the parts."""
    made: dict[str, Entry] = {}
    for launch in kernel.launches(plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem):
        if launch.kernel.name not in made:
            arrays = [a for a in (getattr(a, "primal", a) for a in launch.args) if isinstance(a, np.ndarray)]
            before = [a.copy() for a in arrays]
            with launch.kernel.room():
                made[launch.kernel.name] = _derived(launch, architectures, compiled)
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
        launch.kernel(launch.grid, launch.block, launch.args, shared_mem=launch.shared_mem)
    return _together(made, _place(kernel.unsplit.function.span))


def _together(parts: Mapping[str, Entry], declared: Place) -> Entry:
    depths = [entry.depth for entry in parts.values()]
    needs: dict[str, dict[str, Needs]] = {}
    for entry in parts.values():
        for architecture, kernels in entry.needs.items():
            needs.setdefault(architecture, {}).update(kernels)
    places = {_of_part(part, name): found for part, entry in parts.items() for name, found in entry.places.items() if name}
    return Entry(
        kernels=tuple(name for entry in parts.values() for name in entry.kernels),
        shadows={_of_part(part, name): shadow for part, entry in parts.items() for name, shadow in entry.shadows.items()},
        kept={_of_part(part, name): kept for part, entry in parts.items() for name, kept in entry.kept.items()},
        depth=None if None in depths else max((d for d in depths if d is not None), default=0),
        needs=needs,
        text=hashlib.sha256("\n".join(entry.text for entry in parts.values()).encode()).hexdigest()[:16],
        places={**places, "": (declared,)},
    )


def _of_part(part: str, name: str) -> str:
    return f"saved {part}.{name.removeprefix('saved ')}" if name.startswith("saved ") else f"{part}.{name}"


def _derived(plan: Planned, architectures: Sequence[str], compiled: Compiled) -> Entry:
    kernel = plan.kernel.suited(plan.args, plan.shared_mem)
    plan = kernel.completed(plan)
    call = kernel.bind(plan.grid, plan.block, plan.args, plan.shared_mem, None)
    adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
    stages = pipeline.stages(adjoint, call)
    text = adjoint_text(kernel.function, adjoint, call)
    spans = [s.span for body in (adjoint.primal.body, adjoint.layout.body) for s in walk_stmts(body) if s.span]
    written = {str(span): _place(span) for span in spans}
    rows = [row for row in text.explain().rows if row.topic in ("saved", "stack", "partial")]
    why = {row.name: _unplaced(row.why, written) for row in rows}
    kept, depth = saved_by(kernel.primal(call.aliases()), adjoint, call, stages, why)
    shadows, places = _shadows(adjoint, stages, text)
    own = _hash(text.source)
    needs = {a: compiled.get(own, {}).get(a) or _needs(text.source, a) for a in architectures} if nvrtc.available() else {}
    places |= {f"saved {row.name}": tuple(place for where, place in written.items() if f"{where}," in f"{row.why},") for row in rows}
    places[""] = (_place(kernel.function.span),)
    return Entry("", text.kernels, shadows, kept, depth, needs, own, places)


def _hash(source: str) -> str:
    bare = _COMMENTS.sub(lambda m: m[0] if m[0].startswith('"') else "", source)
    lines = (line.rstrip() for line in bare.splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


def _needs(source: str, architecture: str) -> dict[str, Needs]:
    cubin = nvrtc.compile_cuda(source, architecture, ["--ptxas-options=-v"])
    spilled = nvrtc.spilled(cubin.log)
    return {name: Needs(r.registers, spilled.get(name, 0), r.shared_bytes) for name, r in sorted(nvrtc.resources(cubin).items())}


# --- places ----------------------------------------------------------------------------------------------------------------------------


def _place(span: Span) -> Place:
    span = traced(span)
    code = " ".join(span.file.line(span.line)[span.column - 1 :][: span.length].split())
    target = None if _HEADS.match(code) else _ASSIGNED.match(code)  # what is written says where; what it is set to may change
    return Place(target[0] if target else code.removesuffix(" {") or "the kernel", span)


def _unplaced(text: str, places: Mapping[str, Place]) -> str:
    """A sentence with accesses in the place of positions in files."""
    for where in sorted(places, key=len, reverse=True):
        text = re.sub(rf"{re.escape(where)}(?!\d)", lambda _, code=places[where].code: f"`{code}`", text)  # type: ignore[misc]
    return text


def _shadows(adjoint: Adjoint, stages: Sequence[Stage], text: AdjointText) -> tuple[dict[str, Shadow], dict[str, tuple[Place, ...]]]:
    rows = {row.name: row for row in text.explain().rows if row.topic == "shadow"}
    found, places, declared = {}, {}, adjoint.primal.span  # where scalars are
    for p in shadow_parameters(adjoint):
        name = p.item.name
        everywhere = _unique(s.span for s in walk_stmts(adjoint.layout.body) if getattr(s, "buffer", None) == p.item and s.span)
        added = [s for stage in stages for s in walk_stmts(stage.kernel.body) if isinstance(s, Accumulate | Take) and s.buffer == p.item]
        atomic = _unique(s.span for s in added if s.how is How.ATOMIC and s.span)
        found[name] = Shadow(
            rows[name].how,
            rows[name].why.rpartition(" (")[0],
            tuple(sorted({place.code for place in everywhere if place.span != declared})),
        )
        places[name] = tuple(atomic) + tuple(place for place in everywhere if place not in atomic)
    return found, places


def _unique(spans: Iterator[Span]) -> list[Place]:
    found = {(s.line, s.column): _place(s) for s in spans}
    return [found[key] for key in sorted(found)]
