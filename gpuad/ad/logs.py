"""Logs: what the augmented primal records since another run might not give it again (contract, rule 5).

A log has one element for each thread and each iteration of the loops around the statement, thread beside thread. The reverse kernel finds
an element by the same numbers, so nothing has to be counted: that takes loops whose iterations are numbered by their own index, and inner
loops that are equally long in all iterations of the outer ones.

Argmax marks: records which thread's value an atomic maximum or minimum keeps, so that only that one gets the adjoint.

Each such operation on memory with a gradient is followed by its *mark*: the bits of the number that it put there, or all bits set if what
was there stayed. A number stays only until a greater one replaces it, so of all marks for an element at most one is its last content: that
of the execution to which the element's adjoint belongs. If there is none it belongs to what was there before. Equal numbers need no
decision: the first of them has replaced the content, the others have not.

On memory of the launch the marks are recorded while the primal runs, since another run might find another order. On a shared array, which
the reverse kernel fills again, they are made again with it; within an If they are handed out of it, to where the reverse can see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.activity import Activity
from ..analysis.index_polynomials import atoms, definitions, occurs, plus, polynomial, scale
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.functions import EXTREMA, bits, bits_type, replaces
from ..ir.rewrite import Names, blocks, bound_in, edit, expressions, map_blocks, walk_stmts
from ..ir.types import I64
from ..ir.verify import verify
from .stack_layout import thread_lets

Lets: TypeAlias = "Mapping[ir.Var, ir.Expr]"


@dataclass(frozen=True)
class Log:
    """`index`: an execution's element in `buffer`; `loops`: those around the statement, outermost first."""

    buffer: ir.Buffer
    index: ir.Expr
    loops: tuple[ir.For, ...] = ()


@dataclass(frozen=True)
class Numbering:
    """The number of this thread and that of all threads, and the statements that define them."""

    thread: ir.Var
    threads: ir.Var
    lets: ir.Block

    def at(self, iteration: ir.Expr) -> ir.Expr:
        """Where the element of this thread for an iteration is."""
        return b.binary("+", b.binary("*", iteration, self.threads, I64), self.thread, I64)


def numbering(names: Names) -> Numbering:
    """New variables for the numbers that a log is indexed with."""
    thread, threads = names.var("thread", I64), names.var("threads", I64)
    return Numbering(thread, threads, (*thread_lets(thread, names), ir.Let(threads, _all_threads())))


def logs_of(kernel: ir.Kernel, marks: Mapping[int, Mark], names: Names) -> tuple[ir.Kernel, dict[int, Log]]:
    """The logs of a kernel, by the id of the statement whose variable they keep, and the kernel with the variables of their indices.
    UnsupportedError for loops that they cannot number."""
    own = {id(m.let) for m in marks.values()}
    used = {v for s in walk_stmts(kernel.body) if id(s) not in own for e in expressions(s) for v in ir.variables(e)}
    recorded = {id(m.let) for m in marks.values() if m.recorded}
    lets = definitions(kernel.body)
    found: dict[int, Log] = {}
    numbers = numbering(names)
    for stmt, loops in with_loops(kernel.body):
        wanted = (isinstance(stmt, ir.Atomic) and stmt.var in used) or id(stmt) in recorded
        if wanted and isinstance(stmt, ir.Atomic | ir.Let) and stmt.var is not None:
            if isinstance(stmt, ir.Atomic) and id(stmt) in marks and not marks[id(stmt)].recorded:
                raise UnsupportedError(
                    f"the result of an atomic on the shared array '{stmt.buffer.name}', which carries a gradient, is used", stmt.span
                )
            log = names.buffer(f"{stmt.var.name}_saved", stmt.var.type)
            found[id(stmt)] = log_of(stmt, log, loops, lets, numbers)
    return numbered(kernel, numbers) if found else kernel, found


def numbered(kernel: ir.Kernel, numbers: Numbering) -> ir.Kernel:
    """The kernel with the variables that logs are indexed with."""
    return replace(kernel, body=(*numbers.lets, *kernel.body))


def with_loops(block: ir.Block, loops: tuple[ir.For | ir.While, ...] = ()) -> Iterator[tuple[ir.Stmt, tuple[ir.For | ir.While, ...]]]:
    """All statements inside a block with the loops around them, outermost first."""
    for stmt in block:
        yield stmt, loops
        for inner in blocks(stmt):
            yield from with_loops(inner, (*loops, stmt) if isinstance(stmt, ir.For | ir.While) else loops)


def log_of(stmt: ir.Stmt, log: ir.Buffer, loops: tuple[ir.For | ir.While, ...], lets: Lets, numbers: Numbering) -> Log:
    """The log with the memory `log` of what a statement gives. UnsupportedError for loops that it cannot number."""
    number: ir.Expr | None = None
    counted: list[ir.For] = []
    for position, loop in enumerate(loops):
        if not isinstance(loop, ir.For):
            raise UnsupportedError(
                "the result of an atomic inside a loop whose iterations are not counted before it begins is not recorded in this release",
                stmt.span,
            )
        done = _iteration(loop)
        if number is not None:
            trips = _trips(stmt, loop, loops[:position], lets)
            number = b.binary("+", b.binary("*", number, trips, I64), done, I64)
        else:
            number = done
        counted.append(loop)
    index: ir.Expr = numbers.thread
    if number is not None:
        index = numbers.at(number)
    return Log(log, index, tuple(counted))


def _iteration(loop: ir.For) -> ir.Expr:
    """The number of iterations before this one."""
    var, start, step = (b.cast(e, I64) for e in (loop.var, loop.start, loop.step))
    return b.binary("/", b.binary("-", var, start, I64), step, I64)


def _trips(stmt: ir.Stmt, loop: ir.For, outer: tuple[ir.For | ir.While, ...], lets: Lets) -> ir.Expr:
    """How many iterations the loop has, which has to be the same in all iterations of the loops around it."""
    bounds = [polynomial(e, lets) for e in (loop.start, loop.stop, loop.step)]
    moving = {v for o in outer for v in bound_in(o)}
    if any(occurs(a, v) for p in (plus(bounds[1], scale(bounds[0], -1)), bounds[2]) for a in atoms(p) for v in moving):
        raise UnsupportedError(
            "the result of an atomic inside a loop that is not equally long in all iterations of a loop around it is not recorded in this "
            "release",
            stmt.span,
        )
    start, stop, step = (b.cast(e, I64) for e in (loop.start, loop.stop, loop.step))
    length = b.binary("-", stop, start, I64)
    if step == ir.Constant(1, I64):
        return length
    down = isinstance(loop.step, ir.Constant) and loop.step.value < 0
    last = b.binary("-", length, ir.Constant(-1 if down else 1, I64), I64)
    return b.binary("+", b.binary("/", last, step, I64), ir.Constant(1, I64), I64)


def _all_threads() -> ir.Expr:
    """The number of threads of the launch."""
    result: ir.Expr = b.cast(ir.LaunchIndex("gridDim", "x"), I64)
    for name, axis in (("gridDim", "y"), ("gridDim", "z"), ("blockDim", "x"), ("blockDim", "y"), ("blockDim", "z")):
        result = ir.Binary("*", result, b.cast(ir.LaunchIndex(name, axis), I64), I64)
    return result


def augmented(kernel: ir.Kernel, logs: Mapping[int, Log]) -> ir.Kernel:
    """The primal that also writes its logs."""
    params = (*kernel.params, *(log.buffer for log in logs.values()))
    result = replace(kernel, name=f"{kernel.name}_augmented", params=params, body=written(kernel.body, logs))
    verify(result)
    return result


def written(block: ir.Block, logs: Mapping[int, Log]) -> ir.Block:
    """The block in which each statement that has a log writes it."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if id(stmt) not in logs or not isinstance(stmt, ir.Atomic | ir.Let) or stmt.var is None:
            return None
        return stmt, ir.Store(logs[id(stmt)].buffer, logs[id(stmt)].index, stmt.var, span=stmt.span)

    return edit(block, change)


NO_MARK = -1


@dataclass(frozen=True)
class Mark:
    """`var`: the mark, defined by `let` behind the operation. `recorded`: it is written down while the primal runs. `outside`, if it is
    not: for each If around it, innermost first, up to the next loop, the If's id and the variable that is the mark behind it."""

    let: ir.Let
    recorded: bool
    outside: tuple[tuple[int, ir.Var], ...] = ()

    @property
    def var(self) -> ir.Var:
        return self.let.var


def mark_argmax(kernel: ir.Kernel, facts: Activity, names: Names) -> tuple[ir.Kernel, dict[int, Mark]]:
    """The kernel with marks, and the mark of each operation by its id. Assumes: what `analysis.atomic_extrema` refuses does not occur."""
    task = _Marking(facts, names)
    body, _ = task.block(kernel.body)
    return (replace(kernel, body=body) if task.marks else kernel), task.marks


def name_argmax_operands(kernel: ir.Kernel, names: Names) -> ir.Kernel:
    """Gives a variable to each number that may be kept, so that it is computed once for the operation and for its mark."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.Atomic) or stmt.op not in EXTREMA or not stmt.buffer.element.is_float:
            return None
        (value,) = stmt.operands
        if isinstance(value, ir.Var | ir.Constant):
            return None
        var = names.var("value", value.type)
        return ir.Let(var, value, span=stmt.span), replace(stmt, operands=(var,))

    return replace(kernel, body=edit(kernel.body, change))


@dataclass
class _Marking:
    facts: Activity
    names: Names
    marks: dict[int, Mark] = field(default_factory=dict)

    def block(self, block: ir.Block) -> tuple[ir.Block, list[tuple[int, ir.Var]]]:
        """The block with marks, and those of shared arrays that can be seen at its end, by the id of their operation."""
        out: list[ir.Stmt] = []
        seen: list[tuple[int, ir.Var]] = []
        for stmt in block:
            if isinstance(stmt, ir.Atomic) and stmt.op in EXTREMA and self.facts.has_shadow(stmt.buffer):
                seen += self.marked(stmt, out)
            elif isinstance(stmt, ir.If):
                seen += self.branch(stmt, out)
            else:
                out.append(map_blocks(stmt, lambda inner: self.block(inner)[0]))
        return tuple(out), seen

    def marked(self, stmt: ir.Atomic, out: list[ir.Stmt]) -> list[tuple[int, ir.Var]]:
        (value,) = stmt.operands
        old = stmt.var or self.names.var(f"{stmt.buffer.name}_old", value.type)
        stmt = replace(stmt, var=old)
        mark = self.names.var(f"{stmt.buffer.name}_new", bits_type(value.type))
        unmarked = b.const(NO_MARK, mark.type)
        let = ir.Let(mark, ir.Select(replaces(stmt.op, old, value), bits(value), unmarked), span=stmt.span)
        out += [stmt, let]
        recorded = stmt.buffer.length is None
        self.marks[id(stmt)] = Mark(let, recorded)
        return [] if recorded else [(id(stmt), mark)]

    def branch(self, stmt: ir.If, out: list[ir.Stmt]) -> list[tuple[int, ir.Var]]:
        then, first = self.block(stmt.then)
        otherwise, second = self.block(stmt.otherwise)
        merges: list[ir.Merge] = []
        behind: list[tuple[int, ir.Var]] = []
        for key, var in (*first, *second):
            merged, unmarked = self.names.var(var.name, var.type), b.const(NO_MARK, var.type)
            merges.append(ir.Merge(merged, var, unmarked) if (key, var) in first else ir.Merge(merged, unmarked, var))
            behind.append((key, merged))
        result = replace(stmt, then=then, otherwise=otherwise, merges=(*stmt.merges, *merges))
        for key, merged in behind:
            mark = self.marks[key]
            self.marks[key] = replace(mark, outside=(*mark.outside, (id(result), merged)))
        out.append(result)
        return behind
