"""Kernels with barriers of the whole grid, `grid.sync()` of cooperative groups: each call is a sequence of launches, one for what lies
between two barriers (`lower.grid_parts`).

Each of these is a kernel and a launch like any other. So a tape records them one by one, and its planner asks between them what it asks
between launches: which of what a later one overwrites an earlier one's reverse will read. No cooperative launch is needed, and the grid may
have any number of blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any, Self

from ..analysis.activity import activity, connected, escapes
from ..analysis.affine_forms import Launch as Numbers
from ..analysis.must_define import defines_before_use
from ..analysis.uniformity import is_uniform, uniform
from ..arguments import split_options
from ..arguments.annotations import BatchDuplicated, Duplicated
from ..arguments.recorder import current as recording
from ..errors import GpuadError, LaunchError, ShadowError, UnsupportedError
from ..ir import nodes as ir
from ..ir.dtypes import dtype_of
from ..ir.folding import integer
from ..ir.rewrite import map_expr, map_exprs, touches, walk_stmts
from ..ir.surface import Declaration, Function, GridPart, walk
from ..ir.types import BOOL, I32, Pointer, Scalar, Space
from ..lower.grid_parts import Choose, Plan, Repeat, Step, is_shared, kept_type, plan_of
from ..lower.grid_variants import variants
from ..lower.normalize import host_numbers
from ..memo import Memo
from ..optimize.decided_conditions import without_decided
from ..pipeline import Call, active_positions
from ..pipeline.pattern import stopped
from ..runtime.array_types import Extents, NdArray
from ..source import SourceFile
from .adjoint_text import AdjointText
from .argument_flattening import ModuleMemory, library_of, on_stream
from .dropped_gradients import check_flow
from .grid_text import PartAdjoint, grid_text
from .kernels import SHADOWED, Kernel, OfFunction, Planned, TextKernel, annotated, pattern_of

MOST = 1 << 20  # launches of a call
_FEW = 64  # blocks that are looked at one by one
_FORKS = 4  # conditions of which both sides are looked at
_ONE = "`{}` has grid.sync() and runs as several launches, so that {} of the whole is not there: {}. Nothing was launched."
_OVERLAP = (
    "in a kernel with grid.sync() arrays that it writes have to be apart from all others, since what threads read before a barrier is read "
    "again behind it"
)
_SHARED = (
    "shared memory `{}` is read after grid.sync(), where one launch of gpuad ends and another begins, with new shared memory, and it is "
    "not known that the threads of the block have filled what they read since then; fill it on each side, without a condition that hangs "
    "on the block or on data, or keep it in an array of the launch"
)


class _Whole(OfFunction):
    """The kernel as it stands: calls are bound to it and judged by it, but nothing is launched."""

    def __call__(self, *call: Any, **keywords: Any) -> None:
        raise GpuadError(f"`{self.name}` has barriers of the grid, and is launched in parts")

    launch = reverse = tangent = second = __call__  # type: ignore[assignment]


@dataclass(frozen=True)
class _Parts:
    """The kernel for some of its optional arrays, and its parts. `names`: what parts take beside the kernel's own parameters is called."""

    whole: Kernel
    plan: Plan
    names: Mapping[ir.Var, str]
    made: Memo


class GridKernel(TextKernel):
    """A CUDA kernel with `grid.sync()`. It is launched and differentiated like a `Kernel`, by `kernel[grid, block](*args)`, in tapes, and
    by `gpuad.autodiff`; each call is one launch for each part of it."""

    in_parts = True

    def __init__(
        self, file: SourceFile, function: Function, options: Sequence[str] = (), raw: Any = None, module: ModuleMemory | None = None
    ) -> None:
        self.file, self.options, self.raw = file, tuple(options), raw
        self.name = function.name
        self.unsplit: Kernel = _Whole(replace(function, part=GridPart()), file, function.name, options, raw, module)
        self.module = self.unsplit.module
        self._known: dict[Hashable, _Parts] = {}
        self._parts(self.unsplit)  # what cannot be cut into launches is refused here

    def __repr__(self) -> str:
        return f"<gpuad kernel {self.name} of {self.file.where}, which has grid.sync()>"

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order of the call."""
        return self.unsplit.parameters

    def is_decided_by_data(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> bool:
        """True if data that a launch of a call finds decide which launches follow."""
        return bool(self._parts(self.unsplit.suited(args, shared_mem)).plan.asked)

    @property
    def declared(self) -> tuple[Declaration, ...]:
        """The parameters, followed by pointers to the variables of the module that the kernel reaches."""
        return self.unsplit.declared

    def get_global(self, name: str) -> Any:
        """A variable of the module, as `Kernel.get_global` gives it."""
        return self.unsplit.get_global(name)

    def with_shadow(self, name: str, shadow: NdArray) -> Self:
        """The kernel with a shadow for a variable of its module."""
        other = copy.copy(self)
        other.unsplit, other._known = self.unsplit.with_shadow(name, shadow), {}
        return other

    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Makes the launches of a call; inside of a tape they are recorded. Raises as a `Kernel` does, before the first of them where the
        call itself is at fault."""
        for plan in self.launches(grid, block, args, shared_mem=shared_mem, stream=stream):
            plan.kernel(plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, stream=plan.stream)

    def planned(self, *call: Any, **keywords: Any) -> Planned | None:
        """There is no one launch that a call means."""
        advice = "call it inside of a gpuad.Tape(), or by gpuad.autodiff; `launches(grid, block, args)` gives kernel and call of each"
        raise UnsupportedError(_ONE.format(self.name, "one launch", advice), self.unsplit.function.span)

    def in_parts_of(
        self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> tuple[GridKernel, Planned]:
        """The kernel itself, and the call as it is."""
        return self, Planned(self.unsplit, grid, block, args, shared_mem, stream)

    def adjoint(
        self, /, *annotations: Any, grid: Any = None, block: Any = None, args: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The adjoint of the whole before any launch, as `Kernel.adjoint` gives it: the text has the parts as kernels and the adjoint of
        each, its contract the order of their launches, `.parts` their names. With `grid`, `block` and `args` it is that of the launches of
        this call; where data decide which these are, that of every call. Raises as `Kernel.adjoint` does."""
        options = {"grid": grid, "block": block, "args": args, "shared_mem": shared_mem}
        positional, named, launch = split_options(annotations, by_name, options)
        kinds = self.unsplit.activities(positional, named)
        chosen = self.unsplit.suited(launch["args"], launch["shared_mem"] or 0)
        parts = self._parts(chosen)
        with chosen.room():
            if launch["args"] is None or parts.plan.asked:
                found = [_for_all(self._variant(parts, *variant), kinds) for variant in variants(parts.plan)]
            else:
                whole = Planned(chosen, launch["grid"], launch["block"], annotated(launch["args"], kinds), launch["shared_mem"] or 0)
                call = chosen.bind(*whole[1:])
                self._check(chosen, call)
                plans = {plan.kernel: plan for plan in [*self._launches(parts, call, whole)][::-1]}
                found = [_for_launch(plan) for plan in [*plans.values()][::-1]]
        return grid_text(self.unsplit.function, parts.plan, found)

    def launches(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Iterator[Planned]:
        """The launches of a call, in order, as kernels with their geometry and arguments. Raises for what is wrong with the call."""
        chosen = self.unsplit.suited(args, shared_mem)
        with chosen.room(), on_stream(stream, args):
            call = chosen.bind(grid, block, args, shared_mem, stream)
            self._check(chosen, call)
            self._check_flow(chosen, call)
        yield from self._launches(self._parts(chosen), call, Planned(self.unsplit, grid, block, args, shared_mem, stream))

    def _launches(self, parts: _Parts, call: Call, whole: Planned) -> Iterator[Planned]:
        """The launches of a call that is bound."""
        args, stream, recorder = whole.args, whole.stream, recording.get()
        whole = whole._replace(grid=call.grid, block=call.block)
        if recorder is not None and parts.plan.asked:
            recorder.decided(self.name)
        known = _given(parts.plan.kernel, call)
        kept = _Kept(call, args)
        for launched, number in enumerate(_Run(parts.plan, known, kept).steps(parts.plan.steps)):
            if launched >= MOST:
                raise LaunchError(f"`{self.name}`: the loops around its grid.sync() come to more than {MOST} launches")
            with on_stream(stream, args):
                plan = self._launch(parts, number, known, kept, whole)
            yield plan

    def _launch(self, parts: _Parts, number: int, known: Mapping[ir.Expr, ir.Expr], kept: _Kept, whole: Planned) -> Planned:
        """One of the launches; `known`: the numbers that the loops around the barriers have come to."""
        plan = parts.plan
        signature = parts.made.get(number, lambda: plan.signature(number))
        fixed = tuple(plan.value(v, known) for v in signature.fixed)
        kernel = self._variant(parts, number, fixed)
        numbers = [dtype_of(v.type).type(plan.value(v, known)) for v in signature.numbers]
        given = _numbers_of(kernel.primal(), plan.kernel, known, dict(zip(kernel.function.part.extra, numbers, strict=False)))  # type: ignore[union-attr]
        key = number, fixed, whole.grid, whole.block, tuple(given.items())
        unfilled = parts.made.get(
            ("unfilled", key), lambda: _unfilled(plan, number, kernel.primal(), Numbers(whole.grid, whole.block, given))
        )
        if unfilled is not None:
            raise UnsupportedError(_SHARED.format(unfilled.buffer.name), unfilled.span)
        return whole._replace(kernel=kernel, args=[*whole.args, *numbers, *(kept.array(v) for v in signature.arrays)])

    def _parts(self, chosen: Kernel) -> _Parts:
        key = chosen.function.dynamic, chosen.function.absent
        if key not in self._known:
            primal = chosen.primal()
            plan = plan_of(primal, host_numbers(chosen.function, primal))
            self._known[key] = _Parts(chosen, plan, _named(plan, {d.name for d in chosen.function.parameters}), Memo())
        return self._known[key]

    def _variant(self, parts: _Parts, number: int, fixed: tuple[int, ...]) -> Kernel:
        """The kernel of a part, for what its fixed numbers are."""
        made: Kernel = parts.made.get(("kernel", number, fixed), lambda: self._part(parts, number, fixed))
        return made

    def _part(self, parts: _Parts, number: int, fixed: tuple[int, ...]) -> Kernel:
        signature, function = parts.plan.signature(number), parts.whole.function
        first = max((n.uid for n in walk(function) if isinstance(n, Declaration)), default=0) + 1
        extra: list[Declaration] = []
        for v in (*signature.numbers, *signature.arrays):
            type_: Scalar | Pointer = Pointer(kept_type(v)) if v in signature.arrays else v.type
            extra.append(Declaration(function.span, parts.names[v], type_, first + len(extra)))
        own = len(function.parameters) - len(function.globals)
        made = replace(
            function,
            name="_".join([f"{function.name}_part{number}", *(str(n).replace("-", "minus") for n in fixed)]),
            parameters=(*function.parameters[:own], *extra, *function.parameters[own:]),
            part=GridPart(number, tuple(d.name for d in extra), fixed),
        )
        kernel = OfFunction(made, self.file, made.name, self.options, self.raw, self.module)
        kernel.shadows = self.unsplit.shadows
        return kernel

    def _check(self, chosen: Kernel, call: Call) -> None:
        """Refuses what is not known how to cut into launches."""
        for argument in call.bound.arguments:
            if argument.kind == "noneed" or argument.keep:
                what = "DuplicatedNoNeed" if argument.kind == "noneed" else "keep=True"
                raise ShadowError(
                    f"`{self.name}`: {what} (`{argument.name}`) is not supported for a kernel with grid.sync(); pass Duplicated"
                )
        names = [a.name for a in call.bound.arguments]
        for position, (base, _) in call.overlaps.items():
            if {names[position], names[base]} & set(chosen.written):
                raise LaunchError(f"`{self.name}`: `{names[position]}` overlaps `{names[base]}`; {_OVERLAP}. Nothing was launched.")

    def _check_flow(self, chosen: Kernel, call: Call) -> None:
        """Refuses what a part would not refuse and the whole does: a gradient that goes through memory without a shadow."""
        if not active_positions(call):
            return
        pattern, kernel = pattern_of(chosen, call), chosen.primal(call.aliases())
        active = [p for p, shadow in zip(kernel.params, pattern.shadows, strict=False) if shadow is not None]
        facts = activity(kernel, active, stopped=stopped(kernel, pattern))
        check_flow(chosen, call, escapes(kernel, facts), recording.get() is not None or connected(kernel, facts))


def _named(plan: Plan, taken: set[str]) -> dict[ir.Var, str]:
    """Names for the numbers and arrays that parts take, the same in all of them. `taken`: those of the kernel's own parameters."""
    found: dict[ir.Var, str] = {}
    for signature in map(plan.signature, range(len(plan.parts))):
        for what, group in (("now", signature.numbers), ("kept", signature.arrays)):
            for v in group:
                if v not in found:
                    found[v] = next(n for k in count() if (n := f"{v.name}_{what}{k or ''}") not in taken)
                    taken.add(found[v])
    return found


def _for_all(part: Kernel, kinds: Sequence[str]) -> PartAdjoint:
    """The adjoint of a part for every call. `kinds`: of the whole's parameters; what threads keep is active where anything is."""
    own, extra = part.function.part, len(kinds) - len(part.function.globals)
    assert own is not None and own.number is not None
    active = any(kind in SHADOWED for kind in kinds)
    shadowed = [
        active and isinstance(d.type, Pointer) and isinstance(d.type.element, Scalar) and d.type.element.is_float
        for d in part.declared
        if d.name in own.extra
    ]
    kept = ["duplicated" if s else "const" for s in shadowed]
    adjoint, _ = part.derived((*kinds[:extra], *kept, *kinds[extra:]), None, None, None)
    return PartAdjoint(own.number, part.function, adjoint, None)


def _for_launch(plan: Planned) -> PartAdjoint:
    """The adjoint of a part for a launch of it."""
    chosen = plan.kernel.suited(plan.args, plan.shared_mem)
    call = chosen.bind(plan.grid, plan.block, chosen.whole(plan.args), plan.shared_mem, plan.stream)
    own = chosen.function.part
    assert own is not None and own.number is not None
    return PartAdjoint(own.number, chosen.function, chosen.reverse_for(pattern_of(chosen, call), call), call)


# --- outside of the parts ---------------------------------------------------------------------------------------------------------------


def _given(kernel: ir.Kernel, call: Call) -> dict[ir.Expr, ir.Expr]:
    """The whole numbers of a call, and the extents of the launch."""
    known: dict[ir.Expr, ir.Expr] = {v: integer(n, v.type) for v, n in call.numbers(kernel).scalars.items()}
    for name, extents in (("gridDim", call.grid), ("blockDim", call.block)):
        for axis, n in zip("xyz", extents, strict=True):
            index = ir.LaunchIndex(name, axis)
            known[index] = integer(n, index.type)
    return known


class _Run:
    """The control flow around the barriers of a kernel. `known`: what it has come to, which changes as it goes on."""

    def __init__(self, plan: Plan, known: dict[ir.Expr, ir.Expr], kept: _Kept) -> None:
        self.plan, self.known, self.kept = plan, known, kept

    def value(self, expr: ir.Expr) -> int:
        """A number that decides; one that a part has found is read now."""
        if isinstance(expr, ir.Var) and expr in self.plan.asked:
            return self.kept.first(expr)
        return self.plan.value(expr, self.known)

    def put(self, values: Mapping[ir.Var, int]) -> None:
        self.known.update({v: integer(n, v.type) for v, n in values.items()})

    def steps(self, steps: Sequence[Step]) -> Iterator[int]:
        """The numbers of the parts in the order in which they run, each before it does."""
        for step in steps:
            if isinstance(step, int):
                yield step
            elif isinstance(step, Choose):
                yield from self.steps(step.then if self.value(step.stmt.condition) else step.otherwise)
            else:
                yield from self.repeated(step)

    def repeated(self, step: Repeat) -> Iterator[int]:
        loop = step.loop
        carried = [c for c in loop.carried if c.var not in self.plan.kept]
        self.put({c.var: self.value(c.init) for c in carried})
        count = 0
        if isinstance(loop, ir.For):
            for number in self.counted(loop):
                self.put({loop.var: number})
                yield from self.iteration(step, carried)
        else:
            while True:
                self.put({} if loop.counter is None else {loop.counter: count})
                yield from self.steps(step.header)
                if not self.value(loop.condition):
                    break
                yield from self.iteration(step, carried)
                count += 1
            self.put({} if loop.count is None else {loop.count: count})
        self.put({c.result: self.value(c.var) for c in carried})

    def iteration(self, step: Repeat, carried: Sequence[ir.Carried]) -> Iterator[int]:
        yield from self.steps(step.steps)
        self.put({c.var: value for c, value in [(c, self.value(c.next)) for c in carried]})

    def counted(self, loop: ir.For) -> Iterable[int]:
        """What a loop counts."""
        start, stop, by = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        if by == 0 or (by < 0 and not isinstance(loop.step, ir.Constant)):
            raise LaunchError(f"`{self.plan.kernel.name}`: a loop ({loop.span}) that counts up by {by} would not end")
        return range(start, stop, by)


class _Kept:
    """The arrays in which threads keep values between the launches of a call, made as they are needed; with shadows where arguments are
    active."""

    def __init__(self, call: Call, args: Sequence[Any]) -> None:
        self.threads, self.library = call.threads, library_of(args)
        self.active = any(a.kind in SHADOWED for a in call.bound.arguments)
        self.width = max((len(a.shadows) for a in args if isinstance(a, BatchDuplicated)), default=0)
        self.made: dict[ir.Var, Any] = {}

    def first(self, var: ir.Var) -> int:
        """What the first thread has kept: all have the same."""
        return int(self.array(var)[0])

    def array(self, var: ir.Var) -> Any:
        if var not in self.made:
            dtype = dtype_of(kept_type(var))
            made = [self.library.zeros(self.threads, dtype) for _ in range(1 + max(self.width, 1))]
            active = self.active and var.type.is_float
            pair = BatchDuplicated(made[0], tuple(made[1:])) if self.width else Duplicated(made[0], made[1])
            self.made[var] = pair if active else made[0]
        return self.made[var]


# --- shared memory ----------------------------------------------------------------------------------------------------------------------


def _numbers_of(kernel: ir.Kernel, whole: ir.Kernel, known: Mapping[ir.Expr, ir.Expr], extra: Mapping[str, Any]) -> dict[ir.Var, int]:
    """The whole numbers that a part is called with."""
    by_name = {
        v.name: int(c.value) for v, c in known.items() if v in whole.scalars and isinstance(v, ir.Var) and isinstance(c, ir.Constant)
    }
    by_name |= {name: int(n) for name, n in extra.items()}
    return {v: by_name[v.name] for v in kernel.scalars if v.name in by_name}


def _unfilled(plan: Plan, number: int, kernel: ir.Kernel, numbers: Numbers) -> ir.Load | ir.Accumulate | ir.Atomic | None:
    """The first read of shared memory of a part that another part, or the same one earlier, may have to have filled."""
    body = tuple(s for s in kernel.body if not is_shared(s))
    filled = {b: _fills(body, b, kernel, numbers) for b in _lasting(plan, number, kernel)}
    reading = (ir.Load, ir.Accumulate, ir.Atomic)
    return next((s for s in walk_stmts(body) if isinstance(s, reading) and not filled.get(s.buffer, True)), None)


def _fills(body: ir.Block, buffer: ir.Buffer, kernel: ir.Kernel, numbers: Numbers) -> bool:
    """True if a block fills all that it reads of a shared array: whichever block it is, or each of a few blocks, and whichever way it takes
    where all of its threads take the same."""
    same = uniform(kernel)
    forks = [*dict.fromkeys(c for c in _conditions(body, buffer) if is_uniform(c, same))]
    if not 0 < len(forks) <= _FORKS:
        return _fills_in_turn(body, buffer, kernel, numbers)

    def taken(way: Mapping[ir.Expr, bool]) -> ir.Block:
        return without_decided(map_exprs(body, lambda e: ir.Constant(way[e], BOOL) if e in way else e))

    ways = (dict(zip(forks, way, strict=True)) for way in product((True, False), repeat=len(forks)))
    return all(_fills_in_turn(taken(way), buffer, kernel, numbers) for way in ways)


def _conditions(block: ir.Block, buffer: ir.Buffer) -> Iterator[ir.Expr]:
    """The conditions around accesses to a shared array that are decided once, outside of loops."""
    for stmt in block:
        if isinstance(stmt, ir.If) and any(touches((stmt,), buffer)):
            yield stmt.condition
            yield from _conditions((*stmt.then, *stmt.otherwise), buffer)


def _fills_in_turn(body: ir.Block, buffer: ir.Buffer, kernel: ir.Kernel, numbers: Numbers) -> bool:
    def fills(block: Mapping[ir.Expr, ir.Expr]) -> bool:
        own = map_exprs(body, lambda e: map_expr(e, lambda part: block.get(part, part))) if block else body
        once = ir.For(ir.Var("once", I32, -1), ir.Constant(0, I32), ir.Constant(1, I32), ir.Constant(1, I32), own)
        return defines_before_use(replace(kernel, body=(once,)), once, buffer, numbers)

    x, y, z = numbers.grid
    if fills({}):
        return True
    places = product(*(range(n) for n in (x, y, z))) if x * y * z <= _FEW else ()
    indices = [ir.LaunchIndex("blockIdx", axis) for axis in "xyz"]
    each = [fills({index: integer(n, index.type) for index, n in zip(indices, place, strict=True)}) for place in places]
    return bool(each) and all(each)


def _lasting(plan: Plan, number: int, kernel: ir.Kernel) -> set[ir.Buffer]:
    """The shared arrays of a part that something may be in when it begins."""
    writing = (ir.Store, ir.Accumulate, ir.Atomic)

    def stored(k: int) -> set[tuple[str, int]]:
        inside = walk_stmts(tuple(plan.parts[k].body))
        return {(s.buffer.name, s.buffer.uid) for s in inside if isinstance(s, writing) and s.buffer.space is Space.SHARED}

    others = [k for k, part in enumerate(plan.parts) if k != number or part.repeated]
    found = {name for k in others for name, _ in stored(k)}
    return {s.buffer for s in kernel.body if is_shared(s) and s.buffer.name in found}
