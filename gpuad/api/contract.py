"""The contract of a generated adjoint: the comment above it that says what its caller has to do, in order.

In: an adjoint with the kernels of its reverse pass, for one launch or for every launch. Out: text, by which somebody without gpuad can make
the launches: what is copied before, which kernel runs where, what is cleared, what holds on exit, and for which launches all of it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ad.stack_layout import GROUP
from ..ir.aliases import nulls
from ..ir.nodes import Accumulate, Atomic, Buffer, Store
from ..ir.printer import expr_text
from ..ir.rewrite import walk_stmts
from ..ir.shared import dynamic_bytes
from ..ir.surface import Function
from ..ir.types import Space
from ..optimize.decided_conditions import conditions
from ..optimize.privatisation import tiles
from ..pipeline import Call, Stage
from ..pipeline.derived_kernels import Adjoint
from ..pipeline.passes import primal_of
from ..pipeline.pattern import Parameter


def contract(function: Function, adjoint: Adjoint, stages: Sequence[Stage], plain: frozenset[Buffer], call: Call | None) -> str:
    """The comment above the reverse kernels: what their caller has to do, in order."""
    name = adjoint.primal.name
    cut = ["What is active reaches nothing that is: no gradient passes, and `autodiff` refuses it. Annotate the input and the output."]
    steps = [*_before(adjoint, name), _seeds(adjoint), *_scratch(adjoint, name), *(_launch(stage, name) for stage in stages)]
    lines = [
        f"gpuad: adjoint of `{name}` ({function.span.in_text}), for {_activity(adjoint)}.",
        *(cut if not adjoint.connected and function.part is None else []),
    ]
    lines += [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    if function.globals:
        names = ", ".join(g.pointer.name for g in function.globals)
        lines.append(f"{names}: addresses of the variables of that name in the module of {name}.")
    lines.append(_exit(adjoint))
    if adjoint.exact:
        lines.append(f"Compile {name} and these kernels with -fmad=false: branches depend on floating-point values and must agree.")
    lines += _optional(function)
    if adjoint.pattern.decided is not None:
        known = zip(conditions(primal_of(function, adjoint.pattern.aliases)), adjoint.pattern.decided, strict=True)
        sides = ", ".join(f"{expr_text(e)} is {'true' if n else 'false'}" for e, n in known if n is not None)
        lines.append(f"Holds where {sides}.")
    lines.append(_holds(plain, frozenset(b for stage in stages for b in gathered(stage)), call))
    if call is not None:
        lines.extend(
            f"Holds where each iteration of the loop at {loop.span and loop.span.in_text} stores what it reads of {tile.name}, "
            f"as for block {call.block}."
            for loop, tile in tiles(adjoint.primal)
        )
    return "\n".join(lines)


def _optional(function: Function) -> list[str]:
    """Which of the pointers that the kernel compares with null are taken for arrays."""
    names = sorted(d.name for d in nulls(function).asked)
    cases = (("an array", [n for n in names if n not in function.absent]), ("null", [n for n in names if n in function.absent]))
    return [f"Holds where {', '.join(some)} {'is' if len(some) == 1 else 'are each'} {what}." for what, some in cases if some]


def _activity(adjoint: Adjoint) -> str:
    active = [p.name for p, s in zip(adjoint.primal.params, adjoint.pattern.shadows, strict=False) if s is not None]
    rest = [p.name for p, s in zip(adjoint.primal.params, adjoint.pattern.shadows, strict=False) if s is None]
    pointers = {b.name for b in adjoint.primal.buffers}
    groups = (
        ("Duplicated", [n for n in active if n in pointers]),
        ("Active", [n for n in active if n not in pointers]),
        ("Const", rest),
    )
    return "; ".join(f"{title} {', '.join(names)}" for title, names in groups if names)


def _before(adjoint: Adjoint, name: str) -> list[str]:
    copies = [p for p in adjoint.parameters if p.role in ("entry", "working")]
    steps = []
    if copies:
        listed = ", ".join(f"{adjoint.primal.params[p.position].name} to {p.item.name}" for p in copies)
        steps.append(f"before {name} runs, copy {listed} (all that it may touch).")
    working = [p.item.name for p in copies if p.role == "working"]
    if working:
        steps[-1] += f" {', '.join(working)} will be overwritten."
    if adjoint.augmented is not None:
        logs = ", ".join(log.name for log in adjoint.logs)
        looped = [log.name for log in adjoint.logs if log in adjoint.log_loops]
        size = "one element a thread of the launch"
        if looped:
            size += f", times the iterations of the loops around the atomic for {', '.join(looped)}"
        steps.append(f"launch {name}_augmented instead of {name}: it also fills {logs}, {size}.")
    return steps


def _seeds(adjoint: Adjoint) -> str:
    outputs = [p.item.name for p in shadow_parameters(adjoint) if _stored(adjoint, p)]
    inputs = [p.item.name for p in shadow_parameters(adjoint) if not _stored(adjoint, p)]
    text = f"put the seeds into {', '.join(outputs)}." if outputs else "there are no seeds."
    return text + (f" {', '.join(inputs)} {'is' if len(inputs) == 1 else 'are'} added to: clear first." if inputs else "")


def shadow_parameters(adjoint: Adjoint) -> list[Parameter]:
    """The reverse kernel's shadow parameters."""
    return [p for p in adjoint.parameters if p.role == "shadow"]


def _stored(adjoint: Adjoint, parameter: Parameter) -> bool:
    item = adjoint.primal.params[parameter.position]
    return any(isinstance(s, Store | Accumulate | Atomic) and s.buffer == item for s in walk_stmts(adjoint.primal.body))


def _scratch(adjoint: Adjoint, name: str) -> list[str]:
    if not adjoint.layout.scratch:
        return []
    steps = [
        f"launch {name}_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, "
        f"threads rounded up to {GROUP})."
    ]
    if any(p.role == "working" for p in adjoint.parameters):
        steps[-1] += " It overwrites the copies: give it copies of its own."
    for scratch in adjoint.layout.scratch:
        fields = ", ".join(f.name for f in scratch.fields)
        steps.append(
            f"{scratch.base.name}[0] = 0; {scratch.base.name}[g + 1] = {scratch.base.name}[g] + {GROUP} * (greatest {scratch.depths.name} "
            f"of threads {GROUP} g to {GROUP} g + {GROUP - 1}); its last entry is the length of {fields}."
        )
    steps.append("gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.")
    return steps


def _exit(adjoint: Adjoint) -> str:
    taken = [p.item.name for p in shadow_parameters(adjoint) if _stored(adjoint, p)]
    grown = [p.item.name for p in shadow_parameters(adjoint) if not _stored(adjoint, p)]
    parts = []
    if taken:
        parts.append(f"{', '.join(taken)} hold{'s' if len(taken) == 1 else ''} the adjoint of the state before the launch")
    if grown:
        parts.append(f"{', '.join(grown)} ha{'s' if len(grown) == 1 else 've'} grown by the gradient")
    return f"On exit {'; '.join(parts)}." if parts else "On exit nothing has changed."


def filled(stage: Stage) -> list[Buffer]:
    """The arrays in which threads keep numbers for those that gather, if the stage is what fills them."""
    stored = {s.buffer for s in walk_stmts(stage.kernel.body) if isinstance(s, Store)}
    return [array for array in stage.partials if array in stored]


def gathered(stage: Stage) -> frozenset[Buffer]:
    """The shadows into which a stage of its own grid collects."""
    if stage.grid is None:
        return frozenset()
    return frozenset(s.buffer for s in walk_stmts(stage.kernel.body) if isinstance(s, Accumulate | Store))


def _launch(stage: Stage, name: str) -> str:
    needed = dynamic_bytes(stage.kernel)
    large = f" It needs {needed} bytes of dynamic shared memory: set cudaFuncAttributeMaxDynamicSharedMemorySize to it." if needed else ""
    numbers = [f"{p.item.name} = {stage.numbers[p.role, p.position]}" for p in stage.parameters if (p.role, p.position) in stage.numbers]
    shape = "the same grid and block" if stage.grid is None else f"grid {stage.grid} and the block of {name}"
    arrays = ", ".join(b.name for b in filled(stage))
    more = f" It fills {arrays}, an element for each thread of the launch." if arrays else ""
    return f"launch {', '.join([f'{stage.kernel.name} with {shape}', *numbers])}.{more}{large}"


def _names(buffers: Collection[Buffer]) -> str:
    return ", ".join(sorted(b.name for b in buffers))


def _holds(plain: frozenset[Buffer], collected: frozenset[Buffer], call: Call | None) -> str:
    if call is None or not (plain or collected):
        return "Holds for every grid and block."
    shared = {b for b in plain if b.space is Space.SHARED}
    alone = [f"no two threads touch one element of {_names(plain - shared)}"] if plain - shared else []
    if shared:
        alone.append(f"no two threads of a block touch one element of {_names(shared)} between two barriers")
    if collected:
        alone.append(f"the gather's threads do not meet in {_names(collected)}")
    numbers = ", ".join(f"{a.name} = {a.value}" for a in call.bound.arguments if a.value is not None and a.value.dtype.kind in "iu")
    given = f"grid {call.grid}, block {call.block}{', ' + numbers if numbers else ''}"
    return f"Holds where {f'{chr(10)}and '.join(alone)}, as for {given}."
