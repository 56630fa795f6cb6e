"""Prints structured control flow as a programmer writes it.

In: `If`, `For` and `While` of the core IR, with their merges and carried variables. Out: lines of C++: chains of `if` and `else if`, `for`
with a header of three parts, `while`. A merge is declared before the `if` and assigned at the end of each side, or is a conditional
expression; a carried variable gets its first value before the loop and the next at the end of the body. Values that meet are assigned in
parallel (`Scopes.assign_all`).

A bound or step that the body changes is evaluated once, before the loop. A `backward` loop takes the iterations in the opposite order: it
counts up or down by 1 where its step is constant and 1 or -1, else it counts trips down and computes the index from the count. Assumes
valid IR with constant or positive steps. Raises nothing of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.folding import negate
from ..ir.nodes import Binary, Carried, Constant, Expr, For, If, Merge, Select, Var, While, variables
from ..ir.types import U64
from .scopes import INDENT, Scopes


@dataclass(frozen=True)
class Header:
    """The three parts of a `for`, and a declaration of the index at the top of the body if the header counts something else."""

    init: str
    condition: str
    advance: str
    index: str = ""

    def __str__(self) -> str:
        return f"for ({self.init}; {self.condition}; {self.advance})" if self.advance else f"for ({self.init}; {self.condition};)"


class Control(Scopes):
    """Prints branches and loops as CUDA."""

    def branch(self, stmt: If) -> None:
        if self.prints_as_select(stmt):
            merge = stmt.merges[0]
            self.define(merge.var, Select(stmt.condition, merge.then, merge.otherwise), stmt.note)
            return
        done = self.declare_merges(stmt)
        before = dict(self.holds)
        then = self.nested(stmt.then, [(m.var, m.then) for m in stmt.merges])
        self.holds = before
        otherwise = self.nested(stmt.otherwise, [(m.var, m.otherwise) for m in stmt.merges if m.var not in done])
        self.forget(stmt)
        condition = stmt.condition
        if not then:
            then, otherwise, condition = otherwise, [], negate(condition)
        if then:
            self.two_sides(self.expressions.text(condition), then, otherwise, stmt)

    def declare_merges(self, stmt: If) -> set[Var]:
        """Declares what the sides assign; gives the Vars that already have the value of the else side."""
        done = set()
        for merge in stmt.merges:
            if self.known(merge.var) is not None:
                continue
            if self.may_start(merge, stmt):
                value = f" = {self.expressions.assigned(merge.otherwise, merge.var.type)}"
                done.add(merge.var)
            else:
                value = ""
            self.line(f"{self.type_name(merge.var)} {self.declare(merge.var)}{value};")
            if value:
                self.hold(merge.var, merge.otherwise)
        return done

    def may_start(self, merge: Merge, stmt: If) -> bool:
        """True if the variable can be declared with the value of the else side. Not if a merge declared before it has changed that
        value."""
        return not stmt.otherwise and isinstance(merge.otherwise, Constant | Var)

    def two_sides(self, condition: str, then: list[str], otherwise: list[str], stmt: If) -> None:
        self.line(f"if ({condition}) {{", stmt.note)
        self.lines += then
        if self.is_chain(otherwise):
            self.line("} else " + otherwise[0].strip())
            self.lines += [line.removeprefix(INDENT) for line in otherwise[1:]]
            return
        if otherwise:
            self.line("} else {")
            self.lines += otherwise
        self.line("}")

    def is_chain(self, otherwise: list[str]) -> bool:
        """True if the else side is one `if` and nothing else."""
        inner = INDENT * (self.depth + 1)
        if not otherwise or not otherwise[0].startswith(inner + "if ("):
            return False
        return [k for k, line in enumerate(otherwise) if line == inner + "}"] == [len(otherwise) - 1]

    def start_carried(self, carried: Sequence[Carried]) -> None:
        """Brings the carried variables to their first values: new ones first, since these disturb nothing."""
        fresh = [c for c in carried if self.known(c.var) is None]
        old = [(c.var, c.init) for c in carried if self.known(c.var) is not None]
        for c in fresh:
            self.define(c.var, c.init)
        self.assign_all(old)

    def counted_loop(self, stmt: For) -> None:
        bounds = self.bounds(stmt)
        self.start_carried(stmt.carried)
        self.count(stmt, bounds, lambda: self.nested(stmt.body, [(c.var, c.next) for c in stmt.carried]))

    def bounds(self, stmt: For) -> tuple[Expr, Expr, Expr]:
        """Start, stop and step as the header may have them."""
        stop = self.stable(stmt.stop, stmt, "end")
        step = self.stable(stmt.step, stmt, "step")
        return self.stable(stmt.start, stmt, "begin") if stmt.backward else stmt.start, stop, step

    def count(self, stmt: For, bounds: tuple[Expr, Expr, Expr], body: Callable[[], list[str]]) -> None:
        """The loop with the lines that `body` prints."""
        self.forget(stmt)
        self.open()
        self.depth -= 1
        header = self.backward(stmt, *bounds) if stmt.backward else self.forward(stmt, *bounds)
        lines = body()
        self.announce(stmt)
        self.line(f"{header} {{", stmt.note)
        if header.index:
            self.line(INDENT + header.index)
        self.lines += lines
        self.line("}")
        self.depth += 1
        self.close()
        self.forget(stmt)

    def announce(self, stmt: For) -> None:
        """What is said to the compiler of the loop that follows."""

    def stable(self, expr: Expr, stmt: For, role: str) -> Expr:
        """The bound itself if it is the same in every iteration, else a variable with its value before the loop."""
        changed = self.changed(stmt)
        if not any(self.root(v) in changed for v in variables(expr)):
            return expr
        bound = self.temporary(f"{stmt.var.name}_{role}", expr.type)
        self.define(bound, expr)
        return bound

    def forward(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        end = self.expressions.at(stop, COMPARED)
        begin = self.begin(stmt.var, start)
        name = self.declare(stmt.var)
        constant = int(step.value) if isinstance(step, Constant) else None
        if constant is not None:
            return Header(
                f"{self.type_name(stmt.var)} {name} = {begin}", f"{name} {'<' if constant > 0 else '>'} {end}", _advance(name, constant)
            )
        by = self.expressions.assigned(step, stmt.var.type)
        return Header(f"{self.type_name(stmt.var)} {name} = {begin}", f"{name} < {end}", f"{name} += {by}")

    def begin(self, var: Var, start: Expr) -> str:
        """What a loop's variable is declared with."""
        return self.expressions.assigned(start, var.type)

    def backward(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        kind = self.type_name(stmt.var)
        constant = int(step.value) if isinstance(step, Constant) else None
        if constant not in (1, -1):
            return self.counted_down(stmt, start, stop, step)
        first = self.expressions.at(start, COMPARED)
        if constant == -1:
            last = self.expressions.text(_shifted(stop, 1))
            name = self.declare(stmt.var)
            return Header(f"{kind} {name} = {last}", f"{name} <= {first}", f"++{name}")
        if stmt.var.type.kind == "uint":
            last = self.expressions.text(stop)
            name = self.declare(stmt.var)
            return Header(f"{kind} {name} = {last}", f"{name}-- > {first}", "")
        last = self.expressions.text(_shifted(stop, -1))
        name = self.declare(stmt.var)
        return Header(f"{kind} {name} = {last}", f"{name} >= {first}", f"--{name}")

    def counted_down(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        """Any step: counts the iterations down and computes the index from the count."""
        helper = "gpuad_unsigned_trips" if stmt.var.type == U64 else "gpuad_trips"
        self.helpers.add(helper)
        text = self.expressions
        ends, size = (start, stop), step
        if isinstance(step, Constant) and step.value < 0:
            ends, size = (stop, start), Constant(-step.value, step.type)
        trips = f"{helper}({text.text(ends[0])}, {text.text(ends[1])}, {text.text(size)})"
        first, by = text.at(start, _ADDED), text.at(step, _ADDED + 2)
        count = self.names.new(f"{stmt.var.name}_count")
        name = self.declare(stmt.var)
        index = f"const {self.type_name(stmt.var)} {name} = {first} + {count} * {by};"
        return Header(f"long long {count} = {trips} - 1", f"{count} >= 0", f"--{count}", index)

    def while_loop(self, stmt: While) -> None:
        self.start_carried(stmt.carried)
        self.forget(stmt)
        self.repeat(stmt)
        self.forget(stmt)

    def repeat(self, stmt: While) -> None:
        ends = [(c.var, c.next) for c in stmt.carried]
        if not stmt.header:
            condition = self.expressions.text(stmt.condition)
            body = self.nested(stmt.body, ends)
            self.line(f"while ({condition}) {{", stmt.note)
            self.lines += body
            self.line("}")
            return
        self.line("while (true) {", stmt.note)
        self.open()
        self.block(stmt.header)
        self.line(f"if ({self.expressions.text(negate(stmt.condition))}) break;")
        self.block(stmt.body)
        self.assign_all(ends)
        self.close()
        self.line("}")


COMPARED, _ADDED = 9, 10


def _advance(name: str, step: int) -> str:
    if step in (1, -1):
        return f"++{name}" if step == 1 else f"--{name}"
    return f"{name} += {step}" if step > 0 else f"{name} -= {-step}"


def _shifted(bound: Expr, by: int) -> Expr:
    """`bound + by`, simplified."""
    if isinstance(bound, Constant):
        return Constant(int(bound.value) + by, bound.type)
    if isinstance(bound, Binary) and bound.op in "+-" and isinstance(bound.right, Constant):
        old = int(bound.right.value) if bound.op == "+" else -int(bound.right.value)
        bound, by = bound.left, old + by
    if by == 0:
        return bound
    return Binary("+" if by > 0 else "-", bound, Constant(abs(by), bound.type), bound.type)
