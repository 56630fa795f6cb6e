"""The pass pipeline on one page: from the surface tree to the primal, adjoint and tangent kernels, in order.

    surface --PRIMAL--> primal --CANONICAL--> the form that is differentiated --ADJOINT--> adjoint (`reverse_of`)
                                                                              --TANGENT--> tangent (`tangent_of`)

What each pass has made is valid IR, and observers receive it by the pass's name (`ir.verify`; `gpuad show FILE.cu --stage NAME`). What
depends on a launch's numbers is decided afterwards, as a set of truth values, so that few texts serve all launches: `schedule.stages`
chooses kernels which `derived_kernels.Adjoint` makes (accumulate, materialise, gather, rest, sums, inspectors),
`certificates` say that they do what the adjoint does, and `codegen.cuda` or `codegen.cpu` prints them for the executors of `runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeAlias

from ..accumulate.reduce import broadcast
from ..ad.argmax_recording import record_argmax
from ..ad.forward import Kept, forward, kept_of, resolve_extrema
from ..ad.logs import Log, Mark, augmented, logs_of, mark_argmax, name_argmax_operands, written
from ..ad.recording import Recording, record
from ..ad.reverse import name_results
from ..ad.reversed_loops import run_forwards
from ..ad.stack_layout import Layout, stack_layout
from ..analysis.activity import Activity, activity, connected, escapes, reinterpretations, truncations
from ..analysis.atomic_extrema import check as check_atomics
from ..analysis.atomic_extrema import check_tangents
from ..errors import UnsupportedError
from ..ir import surface
from ..ir.aliases import NONE, Aliases, without_arrays
from ..ir.nodes import Alloc, Atomic, Block, Buffer, Expr, For, If, Kernel, Load, Push, Stmt, Var, children, walk
from ..ir.rewrite import Names, expressions_in, holds, walk_stmts
from ..ir.types import I64, Scalar, Space, value_type
from ..ir.verify import made, verify
from ..lower.normalize import normalize
from ..optimize.dead_code import eliminate_dead_code, without_output
from ..optimize.decided_conditions import decided
from ..optimize.privatisation import privatise_arrays, privatise_tiles
from ..optimize.register_promotion import promote_elements
from ..optimize.simplify import forward_stores, simplify
from ..optimize.sinking import sink_values
from .derived_kernels import Adjoint, Tangent
from .pattern import Parameter, Pattern, adjoint_parameters, primal_and_shadow, shadows_of, stack_parameters, stopped

__all__ = ["ADJOINT", "CANONICAL", "PRIMAL", "TANGENT", "primal_of", "reverse_of", "second_of", "tangent_of"]


@dataclass(frozen=True)
class Request:
    """What a kernel is derived with. `loud`: with what it prints and asserts; `refilled`: shared arrays that one loop uses are taken to be
    filled anew by each of its iterations, which a launch has to check; `recorded`: the logs of an adjoint, by `Adjoint.log_numbers`, that
    a tangent writes too, before its own."""

    pattern: Pattern
    loud: bool = False
    refilled: bool = False
    recorded: tuple[int, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A derivative on its way, with all that the passes before have found out. `first_own`: uids from there on are not of the user's
    variables; `shadows`: of parameters, in forward mode their tangents; `facts`: what is active; `marks`: of atomic maxima, which thread's
    number they keep; `logs`: what the launch writes down; `kept`: in forward mode, numbers whose tangents are known last; `recording`:
    where the reverse gets forward values from; `body`: the derivative's."""

    request: Request
    kernel: Kernel
    names: Names
    first_own: int
    shadows: Mapping[Var | Buffer, Buffer]
    facts: Activity
    exact: bool
    marks: Mapping[int, Mark] = field(default_factory=dict)
    logs: Mapping[int, Log] = field(default_factory=dict)
    kept: Mapping[Var, Kept] = field(default_factory=dict)
    recording: Recording | None = None
    body: Block | None = None
    layout: Layout | None = None

    @property
    def wide(self) -> Kernel:
        """The primal with the parameters of a derivative."""
        return replace(self.kernel, params=(*self.kernel.params, *self.shadows.values(), *(log.buffer for log in self.logs.values())))

    @property
    def current(self) -> Kernel:
        """What there is of the derivative, or else the primal."""
        if self.body is None:
            return self.wide
        stacks = tuple(p.item for p in stack_parameters(self.layout)) if self.layout is not None else ()
        known = {*self.wide.params, *stacks, *(s.buffer for s in walk_stmts(self.body) if isinstance(s, Alloc))}
        saved = dict.fromkeys(b for s in walk_stmts(self.body) if isinstance(b := getattr(s, "buffer", None), Buffer) and b not in known)
        return replace(self.wide, params=(*self.wide.params, *saved, *stacks), body=self.body)


KernelPass: TypeAlias = Callable[[Kernel, Request], Kernel]
DraftPass: TypeAlias = Callable[[Draft], Draft]


def _where_kernel_has(*kinds: type[Stmt]) -> Callable[[KernelPass], KernelPass]:
    """A pass that is run only for kernels with a statement of these kinds."""
    return lambda one: wraps(one)(lambda kernel, request: one(kernel, request) if holds(kernel.body, *kinds) else kernel)


def _where_draft_has(*kinds: type[Stmt]) -> Callable[[DraftPass], DraftPass]:
    """A pass that is run only where the derivative so far, or else the primal, has a statement of these kinds."""
    return lambda one: wraps(one)(lambda draft: one(draft) if holds(draft.body or draft.kernel.body, *kinds) else draft)


# --- the primal ---------------------------------------------------------------------------------------------------------------------------


def absent_pointers(kernel: Kernel, request: Request) -> Kernel:
    """A thread that reaches an access of an array that is None ends the launch."""
    aliases = request.pattern.aliases
    return without_arrays(kernel, [p for i, p in enumerate(kernel.params) if i in aliases.absent and isinstance(p, Buffer)])


def decided_conditions(kernel: Kernel, request: Request) -> Kernel:
    """Decides conditions by the whole numbers of the launch, where no adjoint serves all of them."""
    known = request.pattern.decided
    return kernel if known is None else decided(kernel, known)


def silence(kernel: Kernel, request: Request) -> Kernel:
    """A derivative prints and asserts nothing: the primal has done so once."""
    return kernel if request.loud else without_output(kernel)


def named_results(kernel: Kernel, request: Request) -> Kernel:
    """A variable for each result that the reverse may need."""
    return name_results(kernel, Names(kernel))


def forwarded_stores(kernel: Kernel, request: Request) -> Kernel:
    """What was just stored is not read back from memory."""
    return forward_stores(kernel)


@_where_kernel_has(For)
def promoted_elements(kernel: Kernel, request: Request) -> Kernel:
    """An element of memory that a loop reads and writes is held in a variable through the loop."""
    return forward_stores(promote_elements(kernel))


@_where_kernel_has(If)
def sunk_values(kernel: Kernel, request: Request) -> Kernel:
    """What one branch alone uses is computed there."""
    return replace(kernel, body=sink_values(kernel.body))


@_where_kernel_has(Alloc)
def privatisation(kernel: Kernel, request: Request) -> Kernel:
    """A local array belongs to the iteration that fills it."""
    return privatise_arrays(kernel)


@_where_kernel_has(Alloc)
def tile_privatisation(kernel: Kernel, request: Request) -> Kernel:
    """A tile in shared memory belongs to the iteration that fills it."""
    return privatise_tiles(kernel) if request.refilled else kernel


@_where_kernel_has(Atomic)
def named_operands(kernel: Kernel, request: Request) -> Kernel:
    """A variable for what an atomic maximum or minimum compares."""
    return name_argmax_operands(kernel, Names(kernel))


PRIMAL = (absent_pointers,)
CANONICAL = (
    decided_conditions,
    silence,
    named_results,
    forwarded_stores,
    promoted_elements,
    sunk_values,
    privatisation,
    tile_privatisation,
    named_operands,
)


# --- the adjoint --------------------------------------------------------------------------------------------------------------------------


@_where_draft_has(Atomic)
def argmax_marks(draft: Draft) -> Draft:
    """Which thread's number an atomic maximum or minimum keeps is written down."""
    kernel, marks = mark_argmax(draft.kernel, draft.facts, draft.names)
    return replace(draft, kernel=kernel, marks=marks)


@_where_draft_has(Atomic)
def logs(draft: Draft) -> Draft:
    """A log for each result that another run might not give again."""
    kernel, found = logs_of(draft.kernel, draft.marks, draft.names)
    return replace(draft, kernel=kernel, logs=found)


def reverse_sweep(draft: Draft) -> Draft:
    """The reverse pass over the primal, with the smallest recording that gives it the forward values that it needs (`ad.recording`)."""
    pattern = draft.request.pattern
    logged = {key: (log.buffer, log.index) for key, log in draft.logs.items()}
    optimistic, distances = pattern.optimistic, pattern.optimistic and pattern.distances
    recording = record(
        draft.wide,
        draft.facts,
        draft.shadows,
        logged,
        marks=draft.marks,
        analyse=pattern.analyse,
        optimistic=optimistic,
        distances=distances,
        results=pattern.results,
    )
    return replace(draft, recording=recording, body=recording.body)


def simplification(draft: Draft) -> Draft:
    """The body without what is computed twice or for nothing."""
    return replace(draft, body=simplify(_body(draft), draft.first_own))


@_where_draft_has(Push)
def argmax_recording(draft: Draft) -> Draft:
    """Iterations are noted where a stack of choices would say the same."""
    body = _body(draft)
    noted = record_argmax(body, Names(replace(draft.wide, body=body)))
    if noted is body:
        return draft
    return replace(draft, body=simplify(eliminate_dead_code(noted, private=list(_recording(draft).entry.values())), draft.first_own))


@_where_draft_has(For)
def loop_order(draft: Draft) -> Draft:
    """Reversed loops run in the primal's order where their iterations commute."""
    return replace(draft, body=run_forwards(_body(draft)))


def broadcast_sums(draft: Draft) -> Draft:
    """What all threads of a block read is added to once a block."""
    return replace(draft, body=broadcast(replace(draft.wide, body=_body(draft)))) if draft.request.pattern.analyse else draft


ADJOINT = (argmax_marks, logs, reverse_sweep, simplification, argmax_recording, loop_order, broadcast_sums)


# --- the tangent --------------------------------------------------------------------------------------------------------------------------


def tangent_logs(draft: Draft) -> Draft:
    """What an adjoint, and the tangents of numbers that are kept, find written down."""
    kernel, kept = kept_of(draft.kernel, draft.marks, draft.shadows, draft.names)
    recorded = draft.request.recorded
    kernel, writes = logs_of(kernel, draft.marks, draft.names) if recorded else (kernel, {})
    return replace(draft, kernel=kernel, kept=kept, logs={key: log for k, (key, log) in enumerate(writes.items()) if k in recorded})


def tangent_sweep(draft: Draft) -> Draft:
    """Every value gets a tangent beside it."""
    escaped = frozenset(e.buffer for e in escapes(draft.kernel, draft.facts))
    body = written(draft.kernel.body, draft.logs)
    return replace(draft, body=forward(body, draft.facts, draft.shadows, draft.names, escaped=escaped, kept=draft.kept))


TANGENT = (argmax_marks, tangent_logs, tangent_sweep, simplification)


# --- driving them -------------------------------------------------------------------------------------------------------------------------


def primal_of(function: surface.Function, aliases: Aliases = NONE) -> Kernel:
    """The kernel as core IR, to be run as it is."""
    return _kernel(made("normalize", normalize(function, aliases)), PRIMAL, Request(Pattern((), aliases)))


def _kernel(kernel: Kernel, passes: Sequence[KernelPass], request: Request) -> Kernel:
    for one in passes:
        kernel = made(one.__name__, one(kernel, request))
    return kernel


def _drafted(draft: Draft, passes: Sequence[DraftPass]) -> Draft:
    for one in passes:
        draft = one(draft)
        made(one.__name__, draft.current)
    return draft


def _begun(function: surface.Function, request: Request) -> Draft:
    """The kernel in the form that is differentiated, and what is active in it. Raises UnsupportedError for what has no derivative."""
    pattern = request.pattern
    kernel = _kernel(primal_of(function, pattern.aliases), CANONICAL, request)
    names = Names(kernel)
    first_own = names.uid()
    shadows = shadows_of(kernel, pattern, names, "d")
    facts = activity(kernel, shadows, stopped=stopped(kernel, pattern))
    _refuse_lost_bits(kernel, facts)
    return Draft(request, kernel, names, first_own, shadows, facts, exact(kernel))


def _body(draft: Draft) -> Block:
    assert draft.body is not None
    return draft.body


def _recording(draft: Draft) -> Recording:
    assert draft.recording is not None
    return draft.recording


def reverse_of(function: surface.Function, pattern: Pattern) -> Adjoint:
    """The adjoint of a kernel. Raises UnsupportedError where no sound one can be given."""
    draft = _begun(function, Request(pattern, refilled=pattern.optimistic and pattern.analyse))
    if holds(draft.kernel.body, Atomic):
        check_atomics(draft.kernel, draft.facts)
    draft = _drafted(draft, ADJOINT)
    kernel, body, recording = draft.kernel, _body(draft), _recording(draft)
    logged = {key: (log.buffer, log.index) for key, log in draft.logs.items()}
    layout = stack_layout(body, recording.primal, recording.entry, recording.stacks, logged, Names(replace(draft.wide, body=body)))
    made("stack_layout", replace(draft, body=layout.body, layout=layout).current)
    used = _read_logs(layout, draft.logs)
    kept = tuple(log.buffer for log in used.values())
    _refuse_unasked(kernel, pattern, kept)
    return Adjoint(
        primal=kernel,
        pattern=pattern,
        activity=draft.facts,
        recording=recording,
        layout=layout,
        parameters=adjoint_parameters(kernel, pattern, draft.shadows, recording, layout, kept),
        augmented=augmented(kernel, used) if used else None,
        logs=kept,
        log_loops={log.buffer: log.loops for log in used.values() if log.loops},
        escapes=escapes(kernel, draft.facts),
        connected=connected(kernel, draft.facts),
        exact=draft.exact,
        unlaid=body,
        first_own=draft.first_own,
        logged=logged,
        log_numbers=tuple(k for k, key in enumerate(draft.logs) if key in used),
        name=f"{kernel.name}_reverse",
    )


def _refuse_unasked(kernel: Kernel, pattern: Pattern, logs: Collection[Buffer]) -> None:
    """A launch that writes something down for its adjoint is quiet: it would not say that it has come to an array that is not there."""
    if logs and pattern.aliases.absent:
        names = ", ".join(f"`{kernel.params[i].name}`" for i in sorted(pattern.aliases.absent))
        raise UnsupportedError(
            f"`{kernel.name}`: {names} is None, and data may lead to it; pass an array, of one element if need be", kernel.span
        )


def second_of(function: surface.Function, pattern: Pattern) -> Adjoint:
    """The adjoint with tangents beside everything, forward over reverse: it gives products with the Hessian. Parameters whose role ends
    in `_dot` are the tangents of the ones that they follow."""
    first = reverse_of(function, pattern)
    kernel = first.primal
    memory = {p.item: _element_type(p.item) for p in first.parameters if p.role in ("primal", "shadow", "entry", "working")}
    active = {p.item for p in first.parameters if p.item in memory and pattern.shadows[p.position] is not None}
    wide = replace(kernel, params=first.params, body=first.unlaid)
    names = Names(wide)
    first_own = names.uid()
    own = [p.item for p in first.parameters if p.item in active]
    numbers: dict[Var | Buffer, Scalar | None] = {  # whose tangents are as wide as their shadows
        p.item: pattern.shadows[p.position] for p in first.parameters if isinstance(p.item, Var)
    }
    dots = {item: names.buffer(f"{item.name}_dot", numbers.get(item) or value_type(memory[item])) for item in own}
    body = forward(first.unlaid, activity(wide, dots), dots, names, suffix="_dot")
    entry = {**first.recording.entry, **{dots[b]: dots[c] for b, c in first.recording.entry.items() if c in dots}}
    body = run_forwards(simplify(eliminate_dead_code(body, private=list(entry.values())), first_own))
    whole = replace(wide, params=(*wide.params, *dots.values()), body=body)
    layout = stack_layout(body, first.recording.primal, first.recording.entry, first.recording.stacks, first.logged, Names(whole))
    kept = [p for p in first.parameters if p.role not in ("base", "field", "overflow")]
    pairs = [q for p in kept for q in (p, *([Parameter(f"{p.role}_dot", p.position, dots[p.item])] if p.item in dots else []))]
    return replace(first, layout=layout, parameters=(*pairs, *stack_parameters(layout)), unlaid=body, name=f"{kernel.name}_reverse_forward")


def _element_type(item: Var | Buffer) -> Scalar:
    return item.element if isinstance(item, Buffer) else item.type


def tangent_of(function: surface.Function, pattern: Pattern, recorded: tuple[int, ...] = ()) -> Tangent:
    """The forward-mode kernel. `recorded`: the logs of an adjoint, by `Adjoint.log_numbers`, that it writes too, before its own."""
    draft = _begun(function, Request(pattern, loud=not recorded, recorded=recorded))  # logs are numbered as in the adjoint, which is quiet
    leaks = escapes(draft.kernel, draft.facts)
    if holds(draft.kernel.body, Atomic):
        check_atomics(draft.kernel, draft.facts, forward=True)
        check_tangents(draft.kernel, draft.facts)
    primal = draft.kernel
    draft = _drafted(draft, TANGENT)
    logs = [*draft.logs.values(), *(log for one in draft.kept.values() for log in one.logs)]
    parameters = (*primal_and_shadow(primal, draft.shadows, pattern), *(Parameter("log", i, log.buffer) for i, log in enumerate(logs)))
    result = Kernel(f"{primal.name}_forward", tuple(p.item for p in parameters), _body(draft), primal.span)
    verify(result)
    resolve, resolve_parameters = _extrema_resolution(
        primal, [k for k in draft.kept.values() if k.logs], draft.shadows, parameters, draft.names
    )
    return Tangent(
        primal=draft.kernel,
        activity=draft.facts,
        kernel=result,
        parameters=parameters,
        escapes=leaks,
        connected=connected(primal, draft.facts),
        exact=draft.exact,
        logs=tuple(log.buffer for log in logs),
        log_loops={log.buffer: log.loops for log in logs if log.loops},
        resolve=resolve,
        resolve_parameters=resolve_parameters,
    )


def _extrema_resolution(
    kernel: Kernel, kept: list[Kept], tangents: Mapping[Var | Buffer, Buffer], parameters: tuple[Parameter, ...], names: Names
) -> tuple[Kernel | None, tuple[Parameter, ...]]:
    """The kernel that gives memory the tangents of the numbers that it has kept, and its parameters."""
    if not kept:
        return None, ()
    counts = [names.var("count", I64) for _ in kept]
    body = resolve_extrema(kept, tangents, counts, names)
    touched = {getattr(s, "buffer", None) for s in walk_stmts(body)}
    first = {p.item: p.position for p in parameters if p.role == "log"}
    lengths = [Parameter("count", first[one.logs[0].buffer], count) for one, count in zip(kept, counts, strict=True)]
    used = (*(p for p in parameters if p.item in touched), *lengths)
    result = Kernel(f"{kernel.name}_extrema_tangents", tuple(p.item for p in used), body, kernel.span)
    verify(result)
    return result, used


def _refuse_lost_bits(kernel: Kernel, facts: Activity) -> None:
    for stmt in truncations(kernel, facts):
        raise UnsupportedError(
            "a value that carries a gradient becomes an integer here without a cast; write the cast if that is meant: its derivative is 0. "
            "Or pass what it comes from without a shadow",
            stmt.span,
        )
    swaps = any(isinstance(s, Atomic) and s.op == "cas" for s in walk_stmts(kernel.body))
    hint = " (a loop around atomicCAS is understood where it adds, or keeps the greater or the less of two)" if swaps else ""
    shared = any(isinstance(s, Alloc) and s.buffer.space is Space.SHARED for s in walk_stmts(kernel.body))
    hint += "; to shared memory that holds integers beside floats let a pointer variable lead, `int* k = (int*)(s + n);`" if shared else ""
    for stmt in reinterpretations(kernel, facts):
        raise UnsupportedError(
            f"the bits of a value that carries a gradient are read here as an integer: a derivative cannot follow reinterpreted bits{hint}",
            stmt.span,
        )


def _read_logs(layout: Layout, logs: Mapping[int, Log]) -> dict[int, Log]:
    read = {s.buffer for s in walk_stmts((*layout.body, *layout.counting)) if isinstance(s, Load)}
    return {key: log for key, log in logs.items() if log.buffer in read}


# --- exactness ----------------------------------------------------------------------------------------------------------------------------


def exact(kernel: Kernel) -> bool:
    """True if something is decided by floating-point values, so that primal and reverse must round alike (no contraction, rule 12 of the
    contract)."""
    return any(_decides(e) for top in expressions_in(kernel.body) for e in walk(top))


def _decides(expr: Expr) -> bool:
    """True if the expression is a bool or an integer that is made of a float."""
    return not expr.type.is_float and any(c.type.is_float for c in children(expr))
