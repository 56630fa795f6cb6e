"""The adjoint of a kernel with `grid.sync()` as text: its parts, the adjoint of each, and the order in which a call launches them.

In: the kernel as parts, and the adjoints of those that a call comes to, for one launch or for every launch. Out: CUDA text that needs
nothing of gpuad, under a contract, and the account of what each part saves and what is kept from one launch to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.nodes import Accumulate, Atomic, Barrier, Buffer, Kernel, Store
from ..ir.rewrite import walk_stmts
from ..ir.surface import Function
from ..lower.grid_parts import Choose, Plan, Repeat, Step
from ..pipeline import Call
from ..pipeline.derived_kernels import Adjoint
from ..source import traced
from .adjoint_text import AdjointText, Written, together, written
from .explain import Explanation, Row, needs


@dataclass(frozen=True, eq=False)
class PartAdjoint:
    """The adjoint of a part, by its `number`; `function`: the part; `call`: the launch that it is for, None where it holds for all."""

    number: int
    function: Function
    adjoint: Adjoint
    call: Call | None

    @property
    def name(self) -> str:
        """That of the part's kernel."""
        return self.function.name


def grid_text(function: Function, plan: Plan, parts: Sequence[PartAdjoint]) -> AdjointText:
    """The text of the whole. `function`: the kernel as it stands."""
    made = [written(part.function, part.adjoint, part.call) for part in parts]
    kernels = [k for part, own in zip(parts, made, strict=True) for k in _launched(part, own)]
    header = "\n".join([_contract(function, plan, parts), *(f"\n{own.contract}" for own in made)])
    explained = tuple(_explained(part, own, plan, parts) for part, own in zip(parts, made, strict=True))
    whole = Explanation(
        function.name,
        tuple(r for e in explained for r in e.rows),
        tuple(dict.fromkeys(a for e in explained for a in e.assumptions)),
        explained,
    )
    facts = together([own.facts for own in made])
    shadows = frozenset().union(*(own.shadows for own in made))
    return AdjointText(function, Written(header, tuple(kernels), whole, facts, shadows), tuple(p.name for p in parts))


def _launched(part: PartAdjoint, own: Written) -> Iterator[Kernel]:
    """The kernels of a part: what runs forward, unless that is an augmented kernel among those of its adjoint, and these."""
    if part.adjoint.augmented is None:
        yield part.adjoint.primal
    yield from own.kernels


def _contract(function: Function, plan: Plan, parts: Sequence[PartAdjoint]) -> str:
    names: dict[int, list[str]] = {}
    for part in parts:
        names.setdefault(part.number, []).append(part.name)
    barrier = next((s.note for s in walk_stmts(plan.kernel.body) if isinstance(s, Barrier) and s.scope == "grid"), "") or "grid.sync()"
    lines = [
        f"gpuad: adjoint of `{function.name}` ({function.span.in_text}), which has {barrier}: each part of it is a launch.",
        f"Forward, with one grid and block: {_order(plan.steps, names)}.",
        "Reverse: the adjoints of these launches, from the last to the first, each as below. What an adjoint reads as its launch left it, "
        "and a later launch overwrites, is copied in between.",
    ]
    for part in parts:
        fixed = _fixed(part, plan)
        lines += [f"{part.name} is for {fixed}."] if fixed else []
    kept = dict.fromkeys(d.name for part in parts for d in part.function.parameters if _is_kept(part, d.name))
    if kept:
        lines.append(
            f"{', '.join(kept)}: arrays with an element for each thread of the grid, in which values are kept between launches; shadows of "
            "theirs are 0 before the first launch."
        )
    if plan.asked:
        lines.append("What memory holds decides which launches follow: it is read when the part has run that finds it.")
    return "\n".join(lines)


def _fixed(part: PartAdjoint, plan: Plan) -> str:
    """The numbers that a part is made for, such as which of two pointers one is."""
    own = part.function.part
    names = [v.name for v in plan.signature(part.number).fixed]
    return ", ".join(f"{name} = {n}" for name, n in zip(names, own.fixed if own is not None else (), strict=True))


def _is_kept(part: PartAdjoint, name: str) -> bool:
    own = part.function.part
    return own is not None and name in own.extra and any(b.name == name for b in part.adjoint.primal.buffers)


def _order(steps: Sequence[Step], names: Mapping[int, Sequence[str]]) -> str:
    """Launches in order, with what decides."""
    return "; ".join(found for step in steps if (found := _shown(step, names))) or "nothing"


def _shown(step: Step, names: Mapping[int, Sequence[str]]) -> str:
    if isinstance(step, Repeat):
        header = f"{_order(step.header, names)} to find out whether there is another iteration, then " if step.header else ""
        return f"for each iteration of the loop at {step.loop.span}: ({header}{_order(step.steps, names)})"
    if isinstance(step, Choose):
        return f"by the condition at {step.stmt.span}: ({_order(step.then, names)}), or else ({_order(step.otherwise, names)})"
    return " or ".join(names.get(step, ()))


# --- the account -----------------------------------------------------------------------------------------------------------------------


def _explained(part: PartAdjoint, own: Written, plan: Plan, parts: Sequence[PartAdjoint]) -> Explanation:
    """The account of a part, with what is copied after its launch since a later one overwrites it."""
    between = [row for b in part.adjoint.primal.buffers if b in part.adjoint.reads and (row := _between(part, b, plan, parts)) is not None]
    names = {row.name for row in between}
    rows = [row for row in own.explanation.rows if not (row.topic == "not saved" and row.name in names)]
    return replace(own.explanation, rows=(*between, *rows))


def _between(part: PartAdjoint, buffer: Buffer, plan: Plan, parts: Sequence[PartAdjoint]) -> Row | None:
    """Why an array is copied after a launch, if it may have to be."""
    for other in parts:
        if other.number <= part.number and not plan.parts[other.number].repeated:
            continue  # which is over by then
        for stmt in walk_stmts(other.adjoint.primal.body):
            if isinstance(stmt, Store | Accumulate | Atomic) and stmt.buffer.name == buffer.name:
                why = f"as {part.name} leaves it, overwritten by {other.name} ({stmt.span})"
                places = (traced(stmt.span),) if stmt.span is not None else ()
                return Row("saved", buffer.name, "between", why, needs(part.adjoint, buffer), places)
    return None
