"""Barriers of the whole grid: a kernel with them as a sequence of launches, each of what lies between two of them.

    grid_group grid = this_grid();
    for (int s = 0; s < steps; s++) { v[i] = u[i] + c * u[i + 1]; grid.sync(); swap(u, v); }

A launch ends when all of its blocks have, which is what the barrier waits for. So the kernel's own control flow around its barriers is run
outside of it, and what it says between two of them is a *part*, a kernel without such barriers: everything that holds for kernels holds for
each. What decides that control flow is known there where it is made of whole numbers of the call alone, those of `host`: parameters,
blockDim and gridDim, counters of loops that are run there, and what such loops carry that is made of these (which of two pointers is `u`).
Its values are parameters of the parts, or, where a part only asks which one of several it is, *fixed*: there is a kernel for each. What
memory decides, alike for all threads, is *asked*: a part finds it, and it is read when that part has run.

What a thread knows from an earlier part is computed again where it is made of the thread's index, parameters, and memory that the kernel
does not write. All else it *keeps*: an array of the launch, with an element for each thread, is written at the end of the part that defines
the value, and read at the beginning of the parts that use it. What the parts of a loop carry is kept likewise.

Assumes: a lowered kernel, in which barriers have been hoisted. Guarantees of a part: valid core IR, without barriers of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, TypeGuard

from ..analysis.uniformity import is_common, uniform
from ..errors import UnsupportedError
from ..ir import folding
from ..ir import nodes as ir
from ..ir.rewrite import Names, bound, defined, expressions_in, grid_barrier, map_exprs, named, walk_stmts, written_in
from ..ir.types import BOOL, I32, I64, Scalar, Space
from ..optimize.dead_code import tidy
from ..optimize.decided_conditions import without_decided

_REFUSED = (
    "{} inside a {} ({}) that is not known to be the same for all threads of the grid: each of them has to reach it; decide by "
    "parameters, gridDim and what all threads read alike from memory, or split the kernel there into two launches"
)
_LOCAL = (
    "the array `{}` of each thread is used on both sides of grid.sync(), where gpuad ends one launch and begins another; keep it in an "
    "array of the launch, or declare one on each side"
)


@dataclass(frozen=True)
class Repeat:
    """A loop around barriers. `header`: what finds out whether there is another iteration, if that is not known without."""

    loop: ir.For | ir.While
    steps: tuple[Step, ...]
    header: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Choose:
    """A condition around barriers."""

    stmt: ir.If
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


Step: TypeAlias = "int | Repeat | Choose"  # a number: that of a part


@dataclass
class Part:
    """What lies between two barriers. `keeps`: what is written at its end, by what it is kept as; `repeated`: it may run several times."""

    body: list[ir.Stmt]
    repeated: bool
    keeps: list[tuple[ir.Var, ir.Expr]] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A kernel as parts. `host`: variables that are known outside of the parts; `tags`: those of them that are one of a few numbers, as
    which of two pointers it is; `asked`: what parts find that decides what runs; `lets`: what others are that are made of known ones;
    `kept`: for each variable that is kept, as which."""

    kernel: ir.Kernel
    steps: tuple[Step, ...]
    parts: tuple[Part, ...]
    host: frozenset[ir.Var]
    tags: frozenset[ir.Var]
    asked: frozenset[ir.Var]
    lets: Mapping[ir.Var, ir.Expr]
    kept: Mapping[ir.Var, ir.Var]
    written: frozenset[ir.Buffer]

    @cached_property
    def where(self) -> dict[ir.Var, ir.Stmt]:
        """What defines each variable of the parts."""
        return {v: stmt for part in self.parts for stmt in part.body for v in defined(stmt)}

    def value(self, expr: ir.Expr, known: Mapping[ir.Expr, ir.Expr]) -> int:
        """A whole number that is known outside of the parts; `known`: parameters, extents of the launch, and what loops there count."""
        values = dict(known)

        def find(e: ir.Expr) -> ir.Expr:
            for var in ir.variables(e):
                if var not in values:
                    values[var] = find(self.lets[var])
            return folding.evaluated(e, values)

        found = find(expr)
        assert isinstance(found, ir.Constant), "what is known outside of the parts is a number"
        return int(found.value)

    def signature(self, number: int) -> Signature:
        """What a part takes."""
        part = _Assembled(self, self.parts[number], {})
        part.body()
        body = (*part.prefix, *self.parts[number].body)
        fixed = tuple(v for v in part.numbers if v in self.tags and _is_choice(v, body, self.parts[number].keeps))
        arrays = dict.fromkeys((*part.loaded, *(self.kept[v] for v, _ in self.parts[number].keeps)))
        return Signature(tuple(v for v in part.numbers if v not in fixed), tuple(arrays), fixed)

    def assembled(self, number: int, given: Mapping[ir.Var, ir.Var | ir.Buffer], fixed: Mapping[ir.Var, int]) -> ir.Kernel:
        """A part as a kernel. `given`: the parameters that stand for its numbers and arrays; `fixed`: what others are."""
        part = self.parts[number]
        made = _Assembled(self, part, given)
        values: dict[ir.Var, ir.Expr] = {v: folding.integer(n, v.type) for v, n in fixed.items()}
        values |= {v: p for v, p in given.items() if isinstance(p, ir.Var)}
        body = without_decided(map_exprs(made.body(), lambda e: folding.evaluated(e, values)))
        return replace(self.kernel, body=tidy(body))


@dataclass(frozen=True)
class Signature:
    """What a part takes beside the kernel's own parameters: numbers, and arrays for what it keeps; and the variables of which it is fixed
    what they are."""

    numbers: tuple[ir.Var, ...]
    arrays: tuple[ir.Var, ...]
    fixed: tuple[ir.Var, ...]

    def fits(self, params: Sequence[ir.Var | ir.Buffer], fixed: Sequence[int]) -> bool:
        """True if these are its parameters, and so many numbers are fixed."""
        own = [*((True, v.type) for v in self.numbers), *((False, kept_type(v)) for v in self.arrays)]
        given = [(True, p.type) if isinstance(p, ir.Var) else (False, p.element) for p in params]
        return own == given and len(fixed) == len(self.fixed)


def plan_of(kernel: ir.Kernel, numbers: Iterable[ir.Var]) -> Plan:
    """The kernel as parts. `numbers`: the parameters of which a call says what they are. Raises UnsupportedError where the control flow
    around a barrier is not known outside of the parts, or an array of a thread is used in several."""
    planner = _Planner(kernel, frozenset(v for v in numbers if not v.type.is_float))
    steps = planner.steps(kernel.body, repeated=False)
    planner.keep()
    parts, host = tuple(planner.parts), frozenset(planner.host)
    tags = frozenset(planner.tags)
    asked = frozenset(planner.asked)
    return Plan(kernel, _without_idle(steps, parts), parts, host, tags, asked, planner.lets, planner.kept, planner.written)


# --- what is known where ----------------------------------------------------------------------------------------------------------------


class _Planner:
    def __init__(self, kernel: ir.Kernel, numbers: frozenset[ir.Var]) -> None:
        self.kernel = kernel
        self.host = set(numbers)
        self.names, self.common = Names(kernel), uniform(kernel, grid=True)
        self.tags: set[ir.Var] = set()
        self.asked: set[ir.Var] = set()
        self.lets: dict[ir.Var, ir.Expr] = {}
        self.parts: list[Part] = []
        self.where: dict[ir.Var, tuple[int, ir.Stmt]] = {}
        self.kept: dict[ir.Var, ir.Var] = {}
        self.pure: dict[ir.Var, bool] = {}
        self.written = written_in(kernel.body)

    # control flow around barriers

    def steps(self, block: ir.Block, repeated: bool) -> tuple[Step, ...]:
        """What a block with barriers does, in order."""
        found: list[Step] = []
        piece: list[ir.Stmt] = []

        def end() -> None:
            if piece:
                found.append(self.part(piece, repeated))
                piece.clear()

        for stmt in block:
            if isinstance(stmt, ir.Barrier) and stmt.scope == "grid":
                end()
            elif grid_barrier((stmt,)) is None:
                piece.append(stmt)
                if isinstance(stmt, ir.Let) and self.is_known(stmt.value):
                    self.lets[stmt.var] = stmt.value
            else:
                end()
                found.extend(self.control(stmt, found, repeated))
        end()
        return tuple(found)

    def part(self, piece: Iterable[ir.Stmt], repeated: bool) -> int:
        number = len(self.parts)
        self.parts.append(Part(list(piece), repeated))
        self.where |= {v: (number, stmt) for stmt in self.parts[-1].body for v in defined(stmt)}
        return number

    def control(self, stmt: ir.Stmt, before: list[Step], repeated: bool) -> Iterator[Step]:
        """What is done in the place of a control statement around barriers; what it carries is kept from `before` it on."""
        more: list[Step] = []
        first = before if before and isinstance(before[-1], int) else more
        if isinstance(stmt, ir.If):
            stmt = replace(stmt, condition=self.decided_by(stmt, "condition", stmt.condition, first, repeated))
            then, otherwise = list(self.steps(stmt.then, repeated)), list(self.steps(stmt.otherwise, repeated))
            for m in stmt.merges:
                self.keep_as(m.var, m.var)
                self.at_end(then, m.var, m.then, repeated)
                self.at_end(otherwise, m.var, m.otherwise, repeated)
            yield from more
            yield Choose(stmt, tuple(then), tuple(otherwise))
            return
        assert isinstance(stmt, ir.For | ir.While)
        outside = self.carried_outside(stmt)
        self.note_tags([c for c in stmt.carried if c.var in outside])
        for c in stmt.carried:
            if c.var not in outside:
                self.keep_as(c.var, c.var)
                self.keep_as(c.result, c.var)
                self.at_end(first, c.var, c.init, repeated)
        self.host.update(v for v in heads_of(stmt) if v not in self.kept)
        header: list[Step] = []
        if isinstance(stmt, ir.For):
            bounds = [self.decided_by(stmt, "loop", e, first, repeated) for e in (stmt.start, stmt.stop, stmt.step)]
            stmt = replace(stmt, start=bounds[0], stop=bounds[1], step=bounds[2])
        else:
            header = list(self.steps(stmt.header, True))
            condition = self.decided_by(stmt, "loop", stmt.condition, header, True)
            header = header if condition in self.asked else []
            stmt = replace(stmt, condition=condition)
        body = list(self.steps(stmt.body, True))
        for c in stmt.carried:
            if c.var not in outside:
                self.at_end(body, c.var, c.next, True)
        self.host.update(c.result for c in stmt.carried if c.var in outside)
        if isinstance(stmt, ir.While) and stmt.count is not None:
            self.host.add(stmt.count)
        yield from more
        yield Repeat(stmt, tuple(body), tuple(header))

    def carried_outside(self, loop: ir.For | ir.While) -> frozenset[ir.Var]:
        """What a loop carries that is known outside of the parts: whole numbers that are made of such."""
        found = {c.var for c in loop.carried if not c.var.type.is_float and self.is_known(c.init)}
        lets = {s.var: s.value for block in _own_blocks(loop) for s in block if isinstance(s, ir.Let)}
        counters = set(heads_of(loop)) - {c.var for c in loop.carried}
        while True:
            known = self.host | found | counters
            wrong = {c.var for c in loop.carried if c.var in found and not _is_known(c.next, known, {**self.lets, **lets})}
            if not wrong:
                return frozenset(found)
            found -= wrong

    def note_tags(self, carried: list[ir.Carried]) -> None:
        """Notes what of a loop's numbers is one of a few: constants at first, and then one of each other."""
        found = {c.var for c in carried if isinstance(c.init, ir.Constant) or c.init in self.tags}
        while wrong := {c.var for c in carried if c.var in found and not _is_one_of(c.next, found | self.tags)}:
            found -= wrong
        self.tags |= {v for c in carried if c.var in found for v in (c.var, c.result)}

    def is_known(self, expr: ir.Expr) -> bool:
        return _is_known(expr, self.host, self.lets)

    def decided_by(self, stmt: ir.Stmt, what: str, expr: ir.Expr, steps: list[Step], repeated: bool) -> ir.Expr:
        """What decides a control statement: as it stands where it is known, else as the last of some parts finds it."""
        if self.is_known(expr):
            return expr
        if not is_common(expr, self.common):
            barrier = grid_barrier((stmt,))
            assert barrier is not None
            raise UnsupportedError(_REFUSED.format(barrier.note or "grid.sync()", what, f"at {stmt.span}"), barrier.span)
        asked = self.names.var("asked", expr.type)
        self.asked.add(asked)
        self.keep_as(asked, asked)
        self.at_end(steps, asked, expr, repeated)
        return asked

    # what threads keep

    def keep_as(self, var: ir.Var, as_: ir.Var) -> None:
        self.kept[var] = as_

    def at_end(self, steps: list[Step], var: ir.Var, value: ir.Expr, repeated: bool) -> None:
        """Has the last of some parts keep a value."""
        if not steps or not isinstance(steps[-1], int):
            steps.append(self.part((), repeated))
        last = steps[-1]
        assert isinstance(last, int)
        self.parts[last].keeps.append((var, value))

    def keep(self) -> None:
        """Has the parts keep what others use and cannot compute again."""
        waiting = list(range(len(self.parts)))
        while waiting:
            number = waiting.pop()
            for var in _free(self.parts[number]):
                if var not in self.host and var not in self.kept and not self.is_pure(var):
                    home, _ = self.where[var]
                    self.kept[var] = var
                    self.parts[home].keeps.append((var, var))
                    waiting.append(home)
        self.check_arrays()

    def is_pure(self, var: ir.Var) -> bool:
        """True if each part can compute a value again."""
        if var not in self.pure:
            given = var in self.kernel.scalars or var in self.host
            made = var not in self.kept and var in self.where
            self.pure[var] = given or (made and is_pure(self.where[var][1], self.written, self.is_pure))
        return self.pure[var]

    def check_arrays(self) -> None:
        """Arrays of threads live in one part."""
        homes: dict[ir.Buffer, int] = {}
        for number, part in enumerate(self.parts):
            for stmt in walk_stmts(tuple(part.body)):
                buffer = getattr(stmt, "buffer", None)
                if isinstance(buffer, ir.Buffer) and buffer.space is Space.LOCAL and homes.setdefault(buffer, number) != number:
                    raise UnsupportedError(_LOCAL.format(buffer.name), stmt.span)


def heads_of(loop: ir.For | ir.While) -> tuple[ir.Var, ...]:
    """What a loop defines for its body."""
    own = loop.var if isinstance(loop, ir.For) else loop.counter
    return (*((own,) if own is not None else ()), *(c.var for c in loop.carried))


def _own_blocks(loop: ir.For | ir.While) -> tuple[ir.Block, ...]:
    return (loop.body,) if isinstance(loop, ir.For) else (loop.header, loop.body)


def _is_one_of(expr: ir.Expr, tags: Collection[ir.Var]) -> bool:
    """True if an expression is a constant or one of the variables, whatever decides which."""
    if isinstance(expr, ir.Select):
        return _is_one_of(expr.then, tags) and _is_one_of(expr.otherwise, tags)
    return isinstance(expr, ir.Constant) or expr in tags


_KNOWN = (ir.Constant, ir.Var, ir.LaunchIndex, ir.Unary, ir.Binary, ir.Cast, ir.Select)


def _is_known(expr: ir.Expr, host: Iterable[ir.Var], lets: Mapping[ir.Var, ir.Expr]) -> bool:
    """True if an expression is a whole number made of what is known outside of the parts."""
    host, seen, waiting = set(host), set[ir.Var](), [expr]
    while waiting:
        for e in ir.walk(waiting.pop()):
            if not isinstance(e, _KNOWN) or e.type.is_float or (isinstance(e, ir.LaunchIndex) and e.name in ("threadIdx", "blockIdx")):
                return False
            if isinstance(e, ir.Var) and e not in host and e not in seen:
                if e not in lets:
                    return False
                seen.add(e)
                waiting.append(lets[e])
    return True


def is_pure(stmt: ir.Stmt, written: frozenset[ir.Buffer], known: Callable[[ir.Var], bool]) -> bool:
    """True if a statement computes what it defines of memory that the kernel does not write, and of variables that are `known`."""
    inside = list(walk_stmts((stmt,)))
    for s in inside:
        if isinstance(s, ir.Load) and (s.buffer.space is not Space.GLOBAL or s.buffer in written):
            return False
        if not isinstance(s, ir.Let | ir.Load | ir.If):
            return False
    own = {v for s in inside for v in bound(s)}
    return all(v in own or known(v) for s in inside for v in named(s))


def _free(part: Part) -> list[ir.Var]:
    """The variables that a part uses and does not define."""
    stmts = list(walk_stmts(tuple(part.body)))
    own = {v for s in stmts for v in bound(s)}
    used = [v for s in stmts for v in named(s)] + [v for _, value in part.keeps for v in ir.variables(value)]
    return [v for v in dict.fromkeys(used) if v not in own]


def _without_idle(steps: tuple[Step, ...], parts: tuple[Part, ...]) -> tuple[Step, ...]:
    """The steps without parts that change nothing."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Repeat):
            found.append(replace(step, steps=_without_idle(step.steps, parts), header=_without_idle(step.header, parts)))
        elif isinstance(step, Choose):
            found.append(replace(step, then=_without_idle(step.then, parts), otherwise=_without_idle(step.otherwise, parts)))
        elif parts[step].keeps or any(map(_has_effect, walk_stmts(tuple(parts[step].body)))):
            found.append(step)
    return tuple(found)


def _has_effect(stmt: ir.Stmt) -> bool:
    written = isinstance(stmt, ir.Store | ir.Accumulate | ir.Atomic) and stmt.buffer.space is Space.GLOBAL
    return written or isinstance(stmt, ir.Tell)


# --- a part as a kernel -----------------------------------------------------------------------------------------------------------------


class _Assembled:
    """Puts a part together: what it computes again and reads back, its own statements, and what it keeps."""

    def __init__(self, plan: Plan, part: Part, given: Mapping[ir.Var, ir.Var | ir.Buffer]) -> None:
        self.plan, self.part, self.given = plan, part, given
        self.prefix: list[ir.Stmt] = []
        self.numbers: list[ir.Var] = []
        self.loaded: list[ir.Var] = []
        self.have: set[ir.Var] = set()
        self.names = Names(plan.kernel)

    def body(self) -> ir.Block:
        for var in _free(self.part):
            self.need(var)
        own = tuple(s for s in self.part.body if not is_shared(s))
        touched = {getattr(s, "buffer", None) for s in walk_stmts(own)}
        shared = (s for p in self.plan.parts for s in p.body if is_shared(s) and s.buffer in touched)
        return (*shared, *self.prefix, *own, *(s for var, value in self.part.keeps for s in self.store(var, value)))

    def need(self, var: ir.Var) -> None:
        """Has a variable at hand that another part defines."""
        if var in self.have:
            return
        self.have.add(var)
        if var in self.plan.host:
            if var not in self.plan.kernel.scalars:
                self.numbers.append(var)
        elif var in self.plan.kept:
            self.load(var)
        elif var not in self.plan.kernel.scalars:
            stmt = self.plan.where[var]
            inside = list(walk_stmts((stmt,)))
            own = {v for s in inside for v in bound(s)}
            self.have |= set(defined(stmt))
            for v in dict.fromkeys(v for s in inside for v in named(s) if v not in own):
                self.need(v)
            self.prefix.append(stmt)

    def load(self, var: ir.Var) -> None:
        kept = self.plan.kept[var]
        if kept not in self.loaded:
            self.loaded.append(kept)
        memory = self.given.get(kept)
        if not isinstance(memory, ir.Buffer):
            return
        if var.type != BOOL:
            self.prefix.append(ir.Load(var, memory, _thread()))
            return
        number = self.names.var(var.name, I32)
        self.prefix += [ir.Load(number, memory, _thread()), ir.Let(var, ir.Binary("!=", number, ir.Constant(0, I32), BOOL))]

    def store(self, var: ir.Var, value: ir.Expr) -> Iterator[ir.Stmt]:
        memory = self.given.get(self.plan.kept[var])
        if isinstance(memory, ir.Buffer):
            yield ir.Store(memory, _thread(), ir.Cast(value, I32) if var.type == BOOL else value)


def is_shared(stmt: ir.Stmt) -> TypeGuard[ir.Alloc]:
    """Whether a statement makes an array of a block."""
    return isinstance(stmt, ir.Alloc) and stmt.buffer.space is Space.SHARED


def kept_type(var: ir.Var) -> Scalar:
    """The element of the array in which threads keep a variable."""
    return I32 if var.type == BOOL else var.type


def _thread() -> ir.Expr:
    """A thread's number in the grid, which is the element that it keeps."""

    def place(name: str, extents: str) -> ir.Expr:
        x, y, z = (folding.cast(ir.LaunchIndex(name, axis), I64) for axis in "xyz")
        width, height = (folding.cast(ir.LaunchIndex(extents, axis), I64) for axis in "xy")
        return ir.Binary("+", x, ir.Binary("*", width, ir.Binary("+", y, ir.Binary("*", height, z, I64), I64), I64), I64)

    sizes = [folding.cast(ir.LaunchIndex("blockDim", axis), I64) for axis in "xyz"]
    size = ir.Binary("*", sizes[0], ir.Binary("*", sizes[1], sizes[2], I64), I64)
    return ir.Binary("+", ir.Binary("*", place("blockIdx", "gridDim"), size, I64), place("threadIdx", "blockDim"), I64)


def _is_choice(var: ir.Var, body: Iterable[ir.Stmt], keeps: Iterable[tuple[ir.Var, ir.Expr]]) -> bool:
    """True if a part only asks which of several a number is."""
    used = [*expressions_in(tuple(body)), *(value for _, value in keeps)]
    asked = sum(_asks(e, var) for top in used for e in ir.walk(top))
    return asked == sum(v == var for e in used for v in ir.variables(e))


def _asks(e: ir.Expr, var: ir.Var) -> bool:
    return isinstance(e, ir.Binary) and e.op in ("==", "!=") and e.left == var and isinstance(e.right, ir.Constant)
