"""The text of an adjoint with its contract, and the account of what it saves and how it accumulates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .codegen.cuda import cuda_source
from .differentiate import Adjoint, Parameter
from .ir.nodes import Accumulate, Buffer, How, Kernel, Load, Stmt, Store, Take, Var
from .ir.rewrite import walk_stmts
from .ir.surface import Function
from .transform.stack_layout import GROUP


@dataclass(frozen=True)
class Row:
    """One line of the account: `topic` 'saved', 'not saved', 'stack' or 'shadow'; the `name` in the generated text; `how`; `why`, with the
    place in the user's source."""

    topic: str
    name: str
    how: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """Printable; `.rows` for programs, `.assumptions` that could not be proved."""

    kernel: str
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        out = [f"adjoint of `{self.kernel}`"]
        for row in self.rows:
            out.append(f"  {row.topic:<10} {row.name:<20} {row.how:<12} {row.why}")
        out.extend(f"  assumed    {text}" for text in self.assumptions)
        return "\n".join(out)


@dataclass(frozen=True)
class AdjointText:
    """A generated adjoint: `source` is CUDA text that needs nothing of gpuad; `kernels` the kernels in it, in the order of their launches."""

    source: str
    kernels: tuple[str, ...]
    explanation: Explanation

    def explain(self) -> Explanation:
        """What is saved and why, and how each gradient is accumulated."""
        return self.explanation

    def __str__(self) -> str:
        return self.source


def adjoint_text(function: Function, adjoint: Adjoint, plain: frozenset[Buffer], call: Any) -> AdjointText:
    """The text for the shadows `plain` accumulated plainly; `call` is the launch that allows it, or None for text that holds for every launch."""
    reverse = adjoint.kernel(plain, header=contract(function, adjoint, plain, call))
    kernels = [k for k in (adjoint.augmented, adjoint.counting, reverse) if k is not None]
    return AdjointText(cuda_source(kernels), tuple(k.name for k in kernels), explanation(adjoint, reverse))


# --- the contract ----------------------------------------------------------------------------------------------------------------------


def contract(function: Function, adjoint: Adjoint, plain: frozenset[Buffer], call: Any) -> str:
    """The comment above the reverse kernel: what its caller has to do, in order."""
    name = adjoint.primal.name
    steps = [*_before(adjoint, name), _seeds(adjoint), *_scratch(adjoint, name), f"launch {name}_reverse with the same grid and block."]
    lines = [f"gpuad: adjoint of `{name}` ({function.span}), for {_activity(adjoint)}."]
    lines += [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    lines.append(_exit(adjoint))
    if adjoint.exact:
        lines.append(f"Compile {name} and these kernels with -fmad=false: branches depend on floating-point values and must agree.")
    lines.append(_holds(plain, call))
    return "\n".join(lines)


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
        steps.append(f"launch {name}_augmented instead of {name}: it also fills {logs}, one element a thread of the launch.")
    return steps


def _seeds(adjoint: Adjoint) -> str:
    outputs = [p.item.name for p in _shadow_parameters(adjoint) if _stored(adjoint, p)]
    inputs = [p.item.name for p in _shadow_parameters(adjoint) if not _stored(adjoint, p)]
    text = f"put the seeds into {', '.join(outputs)}." if outputs else "there are no seeds."
    return text + (f" {', '.join(inputs)} {'is' if len(inputs) == 1 else 'are'} added to: clear first." if inputs else "")


def _shadow_parameters(adjoint: Adjoint) -> list[Parameter]:
    return [p for p in adjoint.parameters if p.role == "shadow"]


def _stored(adjoint: Adjoint, parameter: Parameter) -> bool:
    item = adjoint.primal.params[parameter.position]
    return any(isinstance(s, Store | Accumulate) and s.buffer == item for s in walk_stmts(adjoint.primal.body))


def _scratch(adjoint: Adjoint, name: str) -> list[str]:
    if not adjoint.layout.scratch:
        return []
    steps = [
        f"launch {name}_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to {GROUP})."
    ]
    if any(p.role == "working" for p in adjoint.parameters):
        steps[-1] += " It overwrites the copies: give it copies of its own."
    for scratch in adjoint.layout.scratch:
        fields = ", ".join(f.name for f in scratch.fields)
        steps.append(
            f"{scratch.base.name}[g + 1] = {scratch.base.name}[g] + {GROUP} * (greatest {scratch.depths.name} in threads {GROUP} g to {GROUP} g + {GROUP - 1}); "
            f"{scratch.base.name}[0] = 0; its last entry is the length of {fields}."
        )
    steps.append("gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.")
    return steps


def _exit(adjoint: Adjoint) -> str:
    taken = [p.item.name for p in _shadow_parameters(adjoint) if _stored(adjoint, p)]
    grown = [p.item.name for p in _shadow_parameters(adjoint) if not _stored(adjoint, p)]
    parts = []
    if taken:
        parts.append(f"{', '.join(taken)} hold{'s' if len(taken) == 1 else ''} the adjoint of the state before the launch")
    if grown:
        parts.append(f"{', '.join(grown)} ha{'s' if len(grown) == 1 else 've'} grown by the gradient")
    return f"On exit {'; '.join(parts)}." if parts else "On exit nothing has changed."


def _holds(plain: frozenset[Buffer], call: Any) -> str:
    if call is None or not plain:
        return "Holds for every grid and block."
    names = ", ".join(sorted(b.name for b in plain))
    numbers = ", ".join(f"{a.name} = {a.value}" for a in call.bound.arguments if a.value is not None and a.value.dtype.kind in "iu")
    return f"Holds where no two threads touch one element of {names}, as for grid {call.grid}, block {call.block}{', ' + numbers if numbers else ''}."


# --- the account -----------------------------------------------------------------------------------------------------------------------


def explanation(adjoint: Adjoint, reverse: Kernel) -> Explanation:
    """What the adjoint saves and why, and how each shadow is accumulated in `reverse`."""
    rows = [*_saved_rows(adjoint), *_stack_rows(adjoint), *_shadow_rows(adjoint, reverse)]
    return Explanation(adjoint.primal.name, tuple(rows), tuple(_assumptions(adjoint)))


def _saved_rows(adjoint: Adjoint) -> list[Row]:
    rows = []
    for buffer in adjoint.primal.buffers:
        copy = adjoint.recording.entry.get(buffer)
        writes = [s for s in walk_stmts(adjoint.primal.body) if isinstance(s, Store | Accumulate) and s.buffer == buffer]
        if copy is not None:
            need = _first(adjoint.layout.body, Load, copy)
            rows.append(Row("saved", buffer.name, "copy", f"needed by {_at(need)}, overwritten by {_at(writes[0] if writes else None)}"))
        elif not writes:
            rows.append(Row("not saved", buffer.name, "", "never overwritten by this launch"))
        else:
            rows.append(Row("not saved", buffer.name, "", "no derivative needs what was overwritten"))
    for log in adjoint.logs:
        rows.append(Row("saved", log.name, "log", "the result of an atomic cannot be computed again"))
    return rows


def _stack_rows(adjoint: Adjoint) -> list[Row]:
    from .ir.nodes import Alloc
    from .ir.types import Space

    rows = []
    for stmt in walk_stmts(adjoint.layout.body):
        if isinstance(stmt, Alloc) and stmt.buffer.space is Space.LOCAL and stmt.buffer.name.endswith("_saved"):
            rows.append(Row("stack", stmt.buffer.name, "local", f"{stmt.buffer.length} entries in each thread"))
    for scratch in adjoint.layout.scratch:
        for f in scratch.fields:
            rows.append(Row("stack", f.name, "scratch", f"one entry an iteration, needed by {_at(_first(adjoint.layout.body, Load, f))}"))
    return rows


def _shadow_rows(adjoint: Adjoint, reverse: Kernel) -> list[Row]:
    rows = []
    for p in _shadow_parameters(adjoint):
        hows = {s.how for s in walk_stmts(reverse.body) if isinstance(s, Accumulate | Take) and s.buffer == p.item}
        first = next((s for s in walk_stmts(reverse.body) if getattr(s, "buffer", None) == p.item), None)
        how, why = _way(hows)
        rows.append(Row("shadow", p.item.name, how, f"{why} ({_at(first)})"))
    return rows


def _way(hows: set[How]) -> tuple[str, str]:
    if How.REDUCED in hows:
        return "reduced", "summed over each block, then one atomic addition a block"
    if How.ATOMIC in hows:
        return "atomic", "it is not proved that no two threads meet in one element"
    return "plain", "no two threads touch one element"


def _assumptions(adjoint: Adjoint) -> list[str]:
    """The premises of RULES 11 that are not proved here."""
    found = ["the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it"]
    for stmt in walk_stmts(adjoint.primal.body):
        if isinstance(stmt, Store) and _indirect(stmt):
            found.append(f"{_at(stmt)}: the index is data; that no two threads store there is checked before each launch")
    return found


def _indirect(stmt: Store) -> bool:
    return False


def _first(body: tuple[Stmt, ...], kind: type[Stmt], buffer: Buffer) -> Stmt | None:
    return next((s for s in walk_stmts(body) if isinstance(s, kind) and getattr(s, "buffer", None) == buffer), None)


def _at(stmt: Stmt | None) -> str:
    return str(stmt.span) if stmt is not None and stmt.span is not None else "the kernel"


__all__ = ["AdjointText", "Explanation", "Row", "Var", "adjoint_text"]
