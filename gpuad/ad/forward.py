"""The forward pass: every value gets a tangent beside it, every active memory a tangent memory.

It works on primals (Jacobian-vector products) and on adjoints before their accumulations are decided (Hessian-vector products, forward over
reverse): takes, stacks and accumulations carry pairs. Singular partials use the same strong zero as the reverse pass, and
slopes of 0 at an infinite argument give 0, whatever the tangent.

Assumes and guarantees: valid IR.

Forward mode of atomic maxima and minima: memory gets the tangent of the number that it keeps.

Whose number stays is known when all threads are done (`mark_argmax`). On a shared array that is at the next barrier: behind it the thread
whose mark is the content stores its tangent, and another barrier follows. On memory of the launch it is at the end: each operation writes
down its mark, its place and its tangent, and a second launch, of the kernel that `resolve_extrema` makes, goes through what was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.activity import Activity
from ..analysis.atomic_extrema import spoken
from ..analysis.flows import differentiable
from ..analysis.index_polynomials import definitions, occurs
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.functions import EXTREMA, POLES, SATURATING, bits
from ..ir.rewrite import Names, blocks, bound_in, map_expr, map_stmt_exprs, touches
from ..ir.types import I32, I64, value_type
from ..source import Span
from .adjoint import times
from .derivatives import Decay, Partial, as_quotient, grows, partials
from .logs import NO_MARK, Log, Mark, log_of, numbered, numbering, with_loops


def forward(
    body: ir.Block,
    facts: Activity,
    tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer],
    names: Names,
    suffix: str = "",
    *,
    escaped: frozenset[ir.Buffer] = frozenset(),
    kept: Mapping[ir.Var, Kept] | None = None,
) -> ir.Block:
    """The body with tangents. `tangents` maps each active parameter to its tangent memory (of one element for a scalar); the tangent of
    a variable `x` is called `dx`, or `x<suffix>` if a suffix is given. `escaped`: memory without a tangent into which values that vary are
    written; every launch of such a body is refused (`check_flow`), so what comes out of it has the tangent 0. `kept`: the atomic maxima and
    minima (`resolved`)."""
    task = _Forward(facts, tangents, names, suffix, escaped, kept or {})
    loads = [s for v, memory in tangents.items() if isinstance(v, ir.Var) for s in task.scalar(v, memory)]
    return (*loads, *task.block(body))


class _Forward:
    def __init__(
        self,
        facts: Activity,
        tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer],
        names: Names,
        suffix: str,
        escaped: frozenset[ir.Buffer],
        kept: Mapping[ir.Var, Kept],
    ) -> None:
        self.facts = facts
        self.escaped = escaped
        self.kept = kept
        self.pending: list[list[Pending]] = [[]]  # of this block, after those around it
        self.memory: dict[ir.Buffer, ir.Buffer] = {k: v for k, v in tangents.items() if isinstance(k, ir.Buffer)}
        self.names = names
        self.suffix = suffix
        self.vars: dict[ir.Var, ir.Var] = {}
        self.stacks: dict[int, tuple[bool, ...]] = {}

    def name(self, name: str) -> str:
        return f"{name}{self.suffix}" if self.suffix else f"d{name}"

    def tangent_var(self, var: ir.Var) -> ir.Var:
        if var not in self.vars:
            self.vars[var] = self.names.var(self.name(var.name), var.type)
        return self.vars[var]

    def scalar(self, var: ir.Var, memory: ir.Buffer) -> ir.Block:
        """Reads a scalar parameter's tangent, which may be wider than the parameter."""
        wide = self.names.var(self.name(var.name), memory.element)
        return ir.Load(wide, memory, b.const(0, I32)), ir.Let(self.tangent_var(var), b.cast(wide, var.type))

    def varies(self, item: ir.Var | ir.Buffer) -> bool:
        return item in self.facts

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(s for stmt in block for s in self.stmt(map_stmt_exprs(stmt, self.widened)))

    def widened(self, expr: ir.Expr) -> ir.Expr:
        """A seed that is 0 is used all the same if its tangent is not."""

        def widen(e: ir.Expr) -> ir.Expr:
            if isinstance(e, ir.Call) and e.function == "gpuad_used":
                tangent = self.tangent(e.arguments[0], None)
                return e if b.is_const(tangent, 0) else ir.Binary("||", e, b.used(tangent), e.type)
            return e

        return map_expr(expr, widen)

    def stmt(self, stmt: ir.Stmt) -> ir.Block:
        match stmt:
            case ir.Let() | ir.Assign():
                return self.given(stmt)
            case ir.Load(var=var, buffer=buffer) | ir.Take(var=var, buffer=buffer):
                if self.varies(var) and buffer in self.escaped:
                    return (stmt, ir.Let(self.tangent_var(var), b.zero(var.type), span=stmt.span))
                return self.read(stmt, var, buffer)
            case ir.Store(buffer=buffer, value=value) | ir.Accumulate(buffer=buffer, value=value):
                return self.write(stmt, buffer, value)
            case ir.Alloc(buffer=buffer):
                return self.alloc(stmt, buffer)
            case ir.Atomic():
                return self.atomic(stmt)
            case ir.Push() | ir.Pop():
                return (self.stack(stmt),)
            case ir.If() | ir.For() | ir.While():
                return (self.control(stmt),)
            case ir.Shuffle():
                return self.shuffle(stmt)
        if isinstance(stmt, ir.Tell) or (isinstance(stmt, ir.Barrier) and stmt.scope != "block"):
            return (stmt,)
        assert isinstance(stmt, ir.Barrier), f"unexpected {type(stmt).__name__}"
        resolved = behind(stmt, self.pending[-1], self.names)
        self.pending[-1] = []
        return resolved

    def given(self, stmt: ir.Let | ir.Assign) -> ir.Block:
        if stmt.var in self.kept:
            return (stmt, *self.keep(self.kept[stmt.var]))
        if not self.varies(stmt.var):
            return (stmt,)
        return (replace(stmt, var=self.tangent_var(stmt.var), value=self.tangent(stmt.value, stmt.span)), stmt)

    def shuffle(self, stmt: ir.Shuffle) -> ir.Block:
        if not self.varies(stmt.var):
            return (stmt,)
        return (stmt, replace(stmt, var=self.tangent_var(stmt.var), value=self.tangent(stmt.value, stmt.span)))

    def read(self, stmt: ir.Load | ir.Take, var: ir.Var, buffer: ir.Buffer) -> ir.Block:
        """What a take leaves in memory is the constant 0, whose tangent is 0, also where nothing needs the tangent of what it took."""
        if buffer not in self.memory or (isinstance(stmt, ir.Load) and not self.varies(var)):
            return (stmt,)
        self.check_resolved(buffer, stmt.span)
        memory = self.memory[buffer]
        if not self.varies(var):
            return (stmt, ir.Store(memory, stmt.index, b.zero(memory.element), span=stmt.span))
        return (stmt, replace(stmt, var=self.tangent_var(var), buffer=memory))

    def write(self, stmt: ir.Store | ir.Accumulate, buffer: ir.Buffer, value: ir.Expr) -> ir.Block:
        if buffer not in self.memory:
            return (stmt,)
        self.check_resolved(buffer, stmt.span)
        tangent = self.tangent(value, stmt.span)
        if isinstance(stmt, ir.Accumulate) and b.is_const(tangent, 0):
            return (stmt,)
        return (stmt, replace(stmt, buffer=self.memory[buffer], value=tangent))

    def alloc(self, stmt: ir.Alloc, buffer: ir.Buffer) -> ir.Block:
        if not self.varies(buffer):
            return (stmt,)
        self.memory[buffer] = self.names.buffer(self.name(buffer.name), value_type(buffer.element), buffer.space, buffer.length)
        return (stmt, ir.Alloc(self.memory[buffer], zero=True, span=stmt.span))

    def atomic(self, stmt: ir.Atomic) -> ir.Block:
        if stmt.buffer not in self.memory:
            return (stmt,)
        memory, varies = self.memory[stmt.buffer], stmt.var is not None and self.varies(stmt.var)
        match stmt:
            case ir.Atomic(op="add" | "sub", operands=(value,)) if not varies:
                tangent = self.tangent(value, stmt.span)
                added = tangent if stmt.op == "add" else b.neg(tangent)
                return (stmt, ir.Accumulate(memory, stmt.index, added, ir.How.ATOMIC, span=stmt.span))
            case ir.Atomic(op="exch", operands=(value,)):  # no two threads meet in one element
                old = self.tangent_var(stmt.var) if stmt.var is not None and varies else None
                return (stmt, replace(stmt, var=old, buffer=memory, operands=(self.tangent(value, stmt.span),)))
            case ir.Atomic(op=op, var=old) if op in EXTREMA:
                if any(k.stmt.var == old for k in self.kept.values()):
                    return (stmt,)
                what = f"second derivatives through an atomic {spoken(stmt)} on the shared array '{stmt.buffer.name}'"
                raise UnsupportedError(f"{what} come in a later release", stmt.span)
        raise UnsupportedError(f"an atomic {spoken(stmt)} on '{stmt.buffer.name}', which has a tangent, is not supported", stmt.span)

    def keep(self, kept: Kept) -> ir.Block:
        """What stands behind the mark of an atomic maximum or minimum."""
        tangent = self.tangent(kept.stmt.operands[0], kept.stmt.span)
        if kept.logs:
            return written_down(kept, tangent)
        memory = self.memory[kept.stmt.buffer]
        self.pending[-1].append(Pending(kept, memory, kept.mark.var, kept.stmt.index, b.cast(tangent, memory.element)))
        return ()

    def check_resolved(self, buffer: ir.Buffer, span: Span | None) -> None:
        if any(p.kept.stmt.buffer == buffer for pending in self.pending for p in pending):
            raise UnsupportedError(
                f"the tangent of '{buffer.name}' is needed here after an atomic maximum or minimum, and no __syncthreads() lies between",
                span,
            )

    def inside(self, block: ir.Block) -> tuple[ir.Block, list[Pending]]:
        """A block inside of a statement, and what it leaves pending."""
        self.pending.append([])
        return self.block(block), self.pending.pop()

    def stack(self, stmt: ir.Push | ir.Pop) -> ir.Push | ir.Pop:
        """Each field whose value varies gets a second one for the tangent; pushes and pops of one stack agree on which."""
        stack = stmt.stack
        mask = self.stacks.setdefault(stack.uid, tuple(t.is_float for _, t in stack.fields))
        extra = tuple((self.name(n), t) for (n, t), on in zip(stack.fields, mask, strict=True) if on)
        wide: ir.Stack = replace(stack, fields=(*stack.fields, *extra))
        if isinstance(stmt, ir.Push):
            tangents = tuple(self.tangent(v, stmt.span) for v, on in zip(stmt.values, mask, strict=True) if on)
            return replace(stmt, stack=wide, values=(*stmt.values, *tangents))
        popped = tuple(self.tangent_var(v) for v, on in zip(stmt.vars, mask, strict=True) if on)
        return replace(stmt, stack=wide, vars=(*stmt.vars, *popped))

    def control(self, stmt: ir.If | ir.For | ir.While) -> ir.Stmt:
        if isinstance(stmt, ir.If):
            (then, first), (otherwise, second) = self.inside(stmt.then), self.inside(stmt.otherwise)
            merges = [m for merge in stmt.merges for m in self.merge(merge, stmt.span)]
            result = replace(stmt, then=then, otherwise=otherwise, merges=tuple(merges))
            branch, left = out_of_if(result, (first, second), self.names)
            self.pending[-1] += left
            return branch
        header = self.block(stmt.header) if isinstance(stmt, ir.While) else ()
        body, pending = self.inside(stmt.body)
        carried = self.carried(stmt)
        loop = (
            replace(stmt, header=header, body=body, carried=carried)
            if isinstance(stmt, ir.While)
            else replace(stmt, body=body, carried=carried)
        )
        loop, left = out_of_loop(loop, pending, self.names)
        self.pending[-1] += left
        return loop

    def merge(self, m: ir.Merge, span: Span | None) -> tuple[ir.Merge, ...]:
        if not self.varies(m.var):
            return (m,)
        return m, ir.Merge(self.tangent_var(m.var), self.tangent(m.then, span), self.tangent(m.otherwise, span))

    def carried(self, loop: ir.For | ir.While) -> tuple[ir.Carried, ...]:
        out: list[ir.Carried] = []
        for c in loop.carried:
            out.append(c)
            if self.varies(c.var) or self.varies(c.result):
                init, following = self.tangent(c.init, loop.span), self.tangent(c.next, loop.span)
                out.append(ir.Carried(self.tangent_var(c.var), init, following, self.tangent_var(c.result)))
        return tuple(out)

    # --- expressions -----------------------------------------------------------------------------------------------------------------

    def tangent(self, expr: ir.Expr, span: Span | None) -> ir.Expr:
        """The tangent of an expression's value."""
        if not any(self.varies(v) for v in differentiable(expr)):
            return b.zero(expr.type)
        match expr:
            case ir.Var():
                return self.tangent_var(expr)
            case ir.Unary(op="-", operand=a):
                return b.neg(self.tangent(a, span))
            case ir.Cast(operand=a):
                return b.cast(self.tangent(a, span), expr.type)
            case ir.Select(condition=c, then=x, otherwise=y):
                return b.select(c, self.tangent(x, span), self.tangent(y, span))
            case ir.Binary():
                return self.binary(expr, span)
            case ir.Call():
                return self.call(expr, span)
        raise UnsupportedError(f"no derivative for {type(expr).__name__}", span)

    def binary(self, expr: ir.Binary, span: Span | None) -> ir.Expr:
        x, y = expr.left, expr.right
        dx, dy = self.tangent(x, span), self.tangent(y, span)
        match expr.op:
            case "+":
                return b.add(dx, dy)
            case "-":
                return b.sub(dx, dy)
            case "*":
                return b.add(b.mul(y, dx), b.mul(x, dy))
            case "/" if isinstance(y, ir.Constant):
                return b.div(dx, y)
            case "/":
                return self.quotient(expr, expr, span)
        raise UnsupportedError(f"no derivative for operator '{expr.op}'", span)

    def quotient(self, quotient: ir.Binary, value: ir.Expr, span: Span | None) -> ir.Expr:
        """The tangent of a quotient that has this value."""
        y = quotient.right
        dx, dy = self.tangent(quotient.left, span), self.tangent(y, span)
        share = b.chain(value, dy) if self.facts.infinities.may_be(y) else b.mul(value, dy)
        return b.chain(b.sub(dx, share), b.div(b.const(1, y.type), y))

    def call(self, expr: ir.Call, span: Span | None) -> ir.Expr:
        if expr.function == "gpuad_chain":
            seed, partial = expr.arguments
            return b.add(b.chain(self.tangent(seed, span), partial), b.chain(seed, self.tangent(partial, span)))
        if (quotient := as_quotient(expr)) is not None:
            return self.quotient(quotient, expr, span)
        rule = partials(expr, expr)
        if rule is None:
            raise UnsupportedError(f"the derivative of '{expr.function}' is not known", span)
        total: ir.Expr = b.zero(expr.type)
        for argument, entry in zip(expr.arguments, rule, strict=True):
            if entry.value is not None and argument.type.is_float:
                total = b.add(total, self.term(expr, argument, entry, self.tangent(argument, span)))
        return total

    def term(self, expr: ir.Call, argument: ir.Expr, entry: Partial, tangent: ir.Expr) -> ir.Expr:
        """What an argument's tangent adds to that of a function."""
        infinities = self.facts.infinities
        if entry.decay is not None and any(map(infinities.may_be, expr.arguments)):
            return decayed(tangent, entry.decay, entry.singular)
        if expr.function in SATURATING and not grows(expr) and infinities.may_be(argument):
            return saturated(tangent, entry)
        assert entry.value is not None
        lost = expr.function in POLES and infinities.may_saturate(argument)  # a tangent that is 0 because of what has overflowed
        return b.chain(tangent, entry.value) if entry.singular and not lost else times(tangent, entry.value)


def saturated(tangent: ir.Expr, entry: Partial) -> ir.Expr:
    """The tangent times a partial, 0 where that is exactly 0: the tangent of what has overflowed is infinite or NaN, and a function that
    saturates there has none."""
    partial = entry.value
    assert partial is not None
    if not entry.singular or b.is_const(tangent, 0):
        return b.chain(partial, tangent)
    return b.chain(b.select(b.compare("==", partial, b.zero(partial.type)), b.zero(tangent.type), tangent), partial)


def decayed(tangent: ir.Expr, decay: Decay, singular: bool) -> ir.Expr:
    """The tangent times a partial in two factors, 0 where the first is: an argument has overflowed there, and its tangent with it."""
    first, second = decay.first, decay.second
    if not singular or b.is_const(tangent, 0):
        return b.chain(first, b.mul(second, tangent))
    known = b.select(b.compare("==", first, b.zero(first.type)), b.zero(tangent.type), tangent)
    return b.chain(b.chain(known, second), first)


@dataclass(frozen=True)
class Kept:
    """An operation and its mark; on memory of the launch the logs of its mark (all bits flipped, so that 0 is no mark), its place and its
    tangent."""

    stmt: ir.Atomic
    mark: Mark
    logs: tuple[Log, ...]


def kept_of(
    kernel: ir.Kernel, marks: Mapping[int, Mark], tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer], names: Names
) -> tuple[ir.Kernel, dict[ir.Var, Kept]]:
    """The operations with a mark, by the variable of the mark, and the kernel with the variables of the logs' indices."""
    found: dict[ir.Var, Kept] = {}
    lets, numbers = definitions(kernel.body), numbering(names)
    for stmt, loops in with_loops(kernel.body):
        if isinstance(stmt, ir.Atomic) and id(stmt) in marks:
            mark, name = marks[id(stmt)], stmt.buffer.name
            logs: list[Log] = []
            if mark.recorded:
                kinds = (f"{name}_new", mark.var.type), (f"{name}_at", I64), (f"d{name}_new", tangents[stmt.buffer].element)
                logs = [log_of(stmt, names.buffer(f"{n}_saved", t), loops, lets, numbers) for n, t in kinds]
            found[mark.var] = Kept(stmt, mark, tuple(logs))
    return numbered(kernel, numbers) if any(k.logs for k in found.values()) else kernel, found


# --- on memory of the launch --------------------------------------------------------------------------------------------------------------


def written_down(kept: Kept, tangent: ir.Expr) -> ir.Block:
    """What an operation leaves for the second launch."""
    mark = kept.mark.var
    values = (ir.Unary("~", mark, mark.type), b.cast(kept.stmt.index, I64), b.cast(tangent, kept.logs[2].buffer.element))
    return tuple(ir.Store(log.buffer, log.index, v, span=kept.stmt.span) for log, v in zip(kept.logs, values, strict=True))


def resolve_extrema(
    kept: Sequence[Kept], tangents: Mapping[ir.Var | ir.Buffer, ir.Buffer], counts: Sequence[ir.Var], names: Names
) -> ir.Block:
    """The body of the second launch: each thread goes through its elements of each log, as many as `counts` says."""
    numbers = numbering(names)
    out: list[ir.Stmt] = [*numbers.lets]
    for one, count in zip(kept, counts, strict=True):
        buffer, number = one.stmt.buffer, names.var("number", I64)
        index = numbers.at(number)
        flipped, at, dot = (names.var(log.buffer.name.removesuffix("_saved"), log.buffer.element) for log in one.logs)
        last = names.var(buffer.name, buffer.element)
        kept_here = b.compare("==", ir.Unary("~", flipped, flipped.type), bits(last))
        store = (ir.Load(dot, one.logs[2].buffer, index), ir.Store(tangents[buffer], at, dot))
        inner = (ir.Load(at, one.logs[1].buffer, index), ir.Load(last, buffer, at), ir.If(kept_here, store))
        body = (ir.Load(flipped, one.logs[0].buffer, index), ir.If(b.compare("!=", flipped, b.zero(flipped.type)), inner))
        out.append(ir.For(number, b.zero(I64), count, b.const(1, I64), body, span=one.stmt.span))
    return tuple(out)


# --- on shared arrays ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """A tangent that is stored behind the next barrier, if the mark is the content there. `level`: how many Ifs it was handed out of."""

    kept: Kept
    memory: ir.Buffer
    mark: ir.Var
    at: ir.Expr
    tangent: ir.Expr
    level: int = 0

    def resolved(self, names: Names) -> ir.Stmt:
        """What stands behind the barrier."""
        buffer = self.kept.stmt.buffer
        last = names.var(buffer.name, buffer.element)
        store = ir.Store(self.memory, self.at, self.tangent, span=self.kept.stmt.span)
        check = (ir.Load(last, buffer, self.at), ir.If(b.compare("==", self.mark, bits(last)), (store,)))
        return ir.If(b.compare("!=", self.mark, b.const(NO_MARK, self.mark.type)), check, span=self.kept.stmt.span)


def behind(barrier: ir.Barrier, pending: Sequence[Pending], names: Names) -> ir.Block:
    """The barrier, the tangents that it lets be stored, and another."""
    return (barrier, *(p.resolved(names) for p in pending), barrier) if pending else (barrier,)


def out_of_if(stmt: ir.If, sides: Sequence[Sequence[Pending]], names: Names) -> tuple[ir.If, list[Pending]]:
    """The If that hands out what its sides have left pending."""
    merges: list[ir.Merge] = []
    left: list[Pending] = []
    for side, pending in enumerate(sides):
        for p in pending:
            outside = p.kept.mark.outside
            if p.level < len(outside):
                _, mark = outside[p.level]
            else:  # a loop lies between
                mark, unmarked = names.var(p.mark.name, p.mark.type), b.const(NO_MARK, p.mark.type)
                merges.append(ir.Merge(mark, p.mark, unmarked) if side == 0 else ir.Merge(mark, unmarked, p.mark))
            values = []
            for value in (p.at, p.tangent):
                if isinstance(value, ir.Constant):
                    values.append(value)
                    continue
                merged: ir.Var = names.var("at" if value is p.at else f"d{p.kept.stmt.buffer.name}_new", value.type)
                other = b.zero(value.type)
                merges.append(ir.Merge(merged, value, other) if side == 0 else ir.Merge(merged, other, value))
                values.append(merged)  # type: ignore[arg-type]
            left.append(replace(p, mark=mark, at=values[0], tangent=values[1], level=p.level + 1))
    return replace(stmt, merges=(*stmt.merges, *merges)), left


def out_of_loop(loop: ir.For | ir.While, pending: Sequence[Pending], names: Names) -> tuple[ir.For | ir.While, list[Pending]]:
    """The loop that hands out what the last iterations that left something have left. UnsupportedError if that may be several elements."""
    carried: list[ir.Carried] = []
    left: list[Pending] = []
    for p in pending:
        others = (s for inner in blocks(loop) for s in touches(inner, p.kept.stmt.buffer) if not isinstance(s, ir.Atomic))
        if any(others) or any(occurs(e, v) for e in ir.walk(p.at) if isinstance(e, ir.Var) for v in bound_in(loop)):
            raise UnsupportedError(
                f"the tangent of '{p.kept.stmt.buffer.name}' after this atomic '{p.kept.stmt.op}' in a loop, which uses it in other ways "
                "or reaches several elements without a __syncthreads() behind it, is not supported",
                p.kept.stmt.span,
            )
        unmarked = b.const(NO_MARK, p.mark.type)
        made = b.compare("!=", p.mark, unmarked)
        results = []
        for value, init in ((p.mark, unmarked), (p.tangent, b.zero(p.tangent.type))):
            name = p.mark.name if value is p.mark else f"d{p.kept.stmt.buffer.name}_new"
            before, result = names.var(name, value.type), names.var(name, value.type)
            carried.append(ir.Carried(before, init, ir.Select(made, value, before), result))
            results.append(result)
        left.append(replace(p, mark=results[0], tangent=results[1]))
    return replace(loop, carried=(*loop.carried, *carried)), left
