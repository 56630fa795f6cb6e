"""The account of what an adjoint saves and how it accumulates.

In: an adjoint, for one launch or for every launch. Out: `Explanation`, whose rows say of each array and each shadow what is done and why,
with the place in the user's source. Nothing is launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import pipeline
from ..analysis.index_polynomials import atoms, definitions, polynomial
from ..analysis.races import contested, is_plain_write
from ..ir.nodes import Accumulate, Alloc, Atomic, Block, Buffer, How, Load, Stmt, Store, Take, Var, walk
from ..ir.rewrite import target, walk_stmts
from ..pages.table import paragraph, table
from ..pipeline import Call, Stage
from ..pipeline.derived_kernels import Adjoint
from ..source import Span, traced
from .contract import filled, gathered, shadow_parameters


@dataclass(frozen=True)
class Row:
    """One line of the account: `topic` 'saved', 'not saved', 'stack', 'partial' or 'shadow'; the `name` in the generated text; `how`;
    `why`, with the place in the user's source. `needed`, `overwritten`: all places in the user's source where a derivative needs a saved
    array or one that is read as the launch leaves it, and where the launch writes to it. `reason`: of a shadow, `why` without the place."""

    topic: str
    name: str
    how: str
    why: str
    needed: tuple[Span, ...] = ()
    overwritten: tuple[Span, ...] = ()
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Printable; `.rows` for programs, `.assumptions` that could not be proved. `parts`: those of a kernel with `grid.sync()`, whose rows
    and assumptions are among its own."""

    kernel: str
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]
    parts: tuple[Explanation, ...] = ()

    def __repr__(self) -> str:
        return f"<explanation of the adjoint of {self.kernel}; print it for its {len(self.rows)} rows>"

    def __str__(self) -> str:
        if self.parts:
            return "\n".join([f"adjoint of `{self.kernel}`, a launch for each part", *map(str, self.parts)])
        out = [f"adjoint of `{self.kernel}`"]
        out.extend(f"  {row.topic:<10} {row.name:<20} {row.how:<8} {row.why}" for row in self.rows)
        out.extend(f"  assumed    {text}" for text in self.assumptions)
        return "\n".join(out)

    def _repr_html_(self) -> str:
        rows = [(row.topic, row.name, row.how, row.why) for row in self.rows]
        title = f"adjoint of {self.kernel}"
        return table(("", "array", "how", "why"), rows, title) + "".join(paragraph(f"assumed: {text}") for text in self.assumptions)


# --- the account -----------------------------------------------------------------------------------------------------------------------


def explanation(adjoint: Adjoint, stages: Sequence[Stage], call: Call | None) -> Explanation:
    """What the adjoint saves and why, and how each shadow is accumulated in the kernels of the reverse pass."""
    rows = [*_saved_rows(adjoint), *_stack_rows(adjoint), *_partial_rows(stages), *_shadow_rows(adjoint, stages, call)]
    assumed = dict.fromkeys((*_assumptions(adjoint), *_barrier_orders(adjoint, call)))
    return Explanation(adjoint.primal.name, tuple(rows), tuple(assumed))


def _saved_rows(adjoint: Adjoint) -> list[Row]:
    rows = []
    for buffer in adjoint.primal.buffers:
        copy = adjoint.recording.entry.get(buffer)
        writes = [s for s in walk_stmts(adjoint.primal.body) if isinstance(s, Store | Accumulate | Atomic) and s.buffer == buffer]
        places = needs(adjoint, copy or buffer), _places(writes)
        if copy is not None:
            need = _first(adjoint.layout.body, Load, copy)
            why = f"needed by {_at(need)}, overwritten by {_at(writes[0] if writes else None)}"
            rows.append(Row("saved", buffer.name, "copy", why, *places))
        elif not writes:
            rows.append(Row("not saved", buffer.name, "", "never overwritten by this launch"))
        elif buffer in adjoint.reads:
            need = _first(adjoint.layout.body, Load, buffer)
            rows.append(Row("not saved", buffer.name, "", f"needed by {_at(need)}, read as this launch leaves it", *places))
        else:
            rows.append(Row("not saved", buffer.name, "", "no derivative needs what was overwritten"))
    rows.extend(
        Row("saved", log.name, "log", "what an atomic gave, or whose number it keeps, cannot be computed again") for log in adjoint.logs
    )
    return rows


def needs(adjoint: Adjoint, buffer: Buffer) -> tuple[Span, ...]:
    """The places where the adjoint reads a buffer."""
    return _places([s for s in walk_stmts(adjoint.layout.body) if isinstance(s, Load) and s.buffer == buffer])


def _places(stmts: Sequence[Stmt]) -> tuple[Span, ...]:
    return tuple(dict.fromkeys(traced(s.span) for s in stmts if s.span is not None))


def _stack_rows(adjoint: Adjoint) -> list[Row]:
    arrays = [s.buffer for s in walk_stmts(adjoint.layout.body) if isinstance(s, Alloc) and s.buffer.name.endswith("_saved")]
    fields = [f for scratch in adjoint.layout.scratch for f in scratch.fields]
    return [
        *(Row("stack", a.name, "local", f"{a.length} entries in each thread", needs(adjoint, a)) for a in arrays),
        *(
            Row(
                "stack",
                f.name,
                "scratch",
                f"an entry an iteration, needed by {_at(_first(adjoint.layout.body, Load, f))}",
                needs(adjoint, f),
            )
            for f in fields
        ),
    ]


def _partial_rows(stages: Sequence[Stage]) -> list[Row]:
    return [
        Row("partial", array.name, "scratch", f"an element a thread, {_at(_first(stage.kernel.body, Store, array))}, for those that gather")
        for stage in stages
        for array in filled(stage)
    ]


def _shadow_rows(adjoint: Adjoint, stages: Sequence[Stage], call: Call | None) -> list[Row]:
    rows = []
    uncertified = pipeline.uncertified(adjoint, call) if call is not None else {}
    sources = _index_sources(adjoint)
    body = [s for stage in stages for s in walk_stmts(stage.kernel.body)]
    collected = {b: stage.kernel.name for stage in stages for b in gathered(stage)}
    for p in shadow_parameters(adjoint):
        hows = {s.how for s in body if isinstance(s, Accumulate | Take) and s.buffer == p.item}
        first = next((s for s in walk_stmts(adjoint.layout.body) if getattr(s, "buffer", None) == p.item), None)
        how, why = _how(hows)
        if how == "atomic" and isinstance(p.item, Buffer):
            if p.item in uncertified:
                why = f"what is faster is not certified ({uncertified[p.item]})"
            elif p.item in sources:
                names = ", ".join(f"`{name}`" for name in sorted(sources[p.item]))
                why = f"its index is read from {names}, so that two threads may meet in one element"
            elif call is None and p.item in adjoint.undecided and hows == {How.ATOMIC}:
                why = "no launch is given; for one it may be proved that no two threads meet in one element"
        if not any(target(s) == p.item for s in body):
            why = "it is only read"
        if p.item in collected:
            how, why = "gather", f"each thread of {collected[p.item]} collects for an element of its own"
        rows.append(Row("shadow", p.item.name, how, f"{why} ({_at(first)})", reason=why))
    return rows


def _how(hows: set[How]) -> tuple[str, str]:
    if {How.REDUCED, How.ATOMIC} <= hows:
        return "atomic", "threads meet in elements; what all add to one element is summed over each block first"
    if How.REDUCED in hows:
        return "reduced", "summed over each block, then one atomic addition a block"
    if How.ATOMIC in hows:
        return "atomic", "it is not proved that no two threads meet in one element"
    return "plain", "no two threads touch one element"


def _index_sources(adjoint: Adjoint) -> dict[Buffer, set[str]]:
    """The names of the user's arrays of which the adjoint reads an index, by the buffer that it accesses there."""
    own = {b: b.name for b in adjoint.primal.buffers} | {copy: b.name for b, copy in adjoint.recording.entry.items()}
    found: dict[Buffer, set[str]] = {}
    for stmt, read in _indirect(adjoint.layout.body):
        if names := {own[b] for b in read if b in own}:
            found.setdefault(stmt.buffer, set()).update(names)
    return found


def _indirect(body: Block) -> Iterator[tuple[Load | Store | Accumulate, set[Buffer]]]:
    """The accesses whose index is made of integers in memory, with the buffers that these are read from."""
    loaded = {s.var: s.buffer for s in walk_stmts(body) if isinstance(s, Load) and s.var.type.is_integer}
    lets = definitions(body)
    for stmt in walk_stmts(body):
        if isinstance(stmt, Load | Store | Accumulate):
            read = {loaded[v] for a in atoms(polynomial(stmt.index, lets)) for v in walk(a) if isinstance(v, Var) and v in loaded}
            if read:
                yield stmt, read


def _assumptions(adjoint: Adjoint) -> list[str]:
    """The premises of rule 11 of the contract that are not proved here."""
    found = ["the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it"]
    indirect = {id(stmt) for stmt, _ in _indirect(adjoint.primal.body)}
    for stmt in walk_stmts(adjoint.primal.body):
        if isinstance(stmt, Load | Store | Accumulate) and id(stmt) in indirect:
            found.append(f"{_at(stmt)}: an index of `{stmt.buffer.name}` is data, taken to be in bounds")
            if isinstance(stmt, Store) and contested(adjoint.primal, [stmt.buffer]):
                found[-1] += " and stored to by one thread, which is checked before each launch"
        if id(stmt) in adjoint.mixed and isinstance(stmt, Accumulate | Atomic):
            found.append(f"{_at(stmt)}: different atomics on `{stmt.buffer.name}` meet in no element, which is checked before each launch")
    return found


def _barrier_orders(adjoint: Adjoint, call: Call | None) -> Iterator[str]:
    """The arrays in which threads of a block may take turns (`inspect.barrier_order`): in this launch, or in any."""
    for buffer in pipeline.ordered_by_barriers(adjoint, call):
        write = next(s for s in walk_stmts(adjoint.primal.body) if is_plain_write(s) and s.buffer == buffer)
        yield (
            f"{_at(write)}: where several threads write to one element of `{buffer.name}`, they are of one block and take turns, with a "
            "__syncthreads() between, which is checked before each launch"
        )


def _first(body: tuple[Stmt, ...], kind: type[Stmt], buffer: Buffer) -> Stmt | None:
    return next((s for s in walk_stmts(body) if isinstance(s, kind) and getattr(s, "buffer", None) == buffer), None)


def _at(stmt: Stmt | None) -> str:
    return str(stmt.span) if stmt is not None and stmt.span is not None else "the kernel"
