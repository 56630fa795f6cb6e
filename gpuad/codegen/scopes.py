"""The lines of a kernel's body as they are printed: its open scopes, the C variable of each value, assignments, and line breaks.

Each class of coalesced Vars becomes one C variable, declared where the first of them gets a value: before the `if` or the loop where
control flow meets, else at its definition. Values that meet are assigned in parallel, in an order (or through a temporary) that no
assignment disturbs another. Long lines break before an operator or behind a comma that as few brackets as possible enclose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir.nodes import Assign, Binary, Block, Buffer, Constant, Expr, For, If, Kernel, Let, Stmt, Unary, Var, While, variables
from ..ir.rewrite import walk_stmts
from ..ir.shared import pieces
from ..ir.types import Scalar
from .coalesce import coalesce
from .expressions import Expressions
from .fold import fold
from .spelling import Names, c_type
from .structure import Read, defined, merge_vars

LIMIT = 120
_INDENT = 4
_OPERATORS = {"?": 1, ":": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


@dataclass(frozen=True)
class _Break:
    """A place where a line may end: just before the character `at`. `cost`: how many brackets are open, how strongly the operator binds."""

    at: int
    cost: tuple[int, int]


def wrap(line: str, limit: int = LIMIT) -> list[str]:
    """The line, if it is longer than `limit`, in pieces that are not, as far as there are places to break it."""
    if len(line) <= limit:
        return [line]
    indent = len(line) - len(line.lstrip())
    further = " " * (indent + (2 * _INDENT if line.endswith("{") else _INDENT))
    at = _best(line, indent, limit)
    return [line] if at is None else [line[:at].rstrip(), *wrap_rest(further, line[at:], limit)]


def wrap_rest(indent: str, text: str, limit: int) -> list[str]:
    """The pieces of what is left of a line, all with the same indentation."""
    line = indent + text.lstrip()
    at = _best(line, len(indent), limit) if len(line) > limit else None
    return [line] if at is None else [line[:at].rstrip(), *wrap_rest(indent, line[at:], limit)]


def _best(line: str, indent: int, limit: int) -> int | None:
    """The cheapest place behind the first third of the width, else the last one."""
    fitting = [b for b in _breaks(line) if indent < b.at <= limit]
    late = [b for b in fitting if b.at > indent + (limit - indent) // 3]
    if late:
        return min(late, key=lambda b: (b.cost, -b.at)).at
    return fitting[-1].at if fitting else None


def _breaks(line: str) -> Iterator[_Break]:
    depth = 0
    code = line.find("//")
    for at, sign in enumerate(line if code < 0 else line[:code]):
        depth += (sign in "([{") - (sign in ")]}")
        if sign != " " or not line[:at].strip():
            continue
        word = line[at + 1 :].split(" ", 1)[0]
        if line[at - 1] in ",;":
            yield _Break(at + 1, (depth, 0))
        elif word in _OPERATORS:
            yield _Break(at + 1, (depth, _OPERATORS[word]))


INDENT = "    "
WIDTH = 110


class Scopes:
    """What the printers of statements have in common; `lines` is the text, `helpers` the functions that it needs."""

    expressions_class = Expressions
    print_name = "printf"

    def __init__(self, kernel: Kernel, reserved: Sequence[str] = ()) -> None:
        self.kernel = fold(kernel)
        self.classes = coalesce(self.kernel)
        self.mutable = self.mutable_roots(self.kernel.body)
        self.values = {s.var: s.value for s in walk_stmts(self.kernel.body) if isinstance(s, Let)}
        self.names = Names(reserved)
        self.visible: list[dict[Var | Buffer, str]] = [{}]
        self.holds: dict[Var | Buffer, Constant] = {}
        self.expressions = self.expressions_class(self)
        self.helpers = self.expressions.helpers
        self.lines: list[str] = []
        self.depth = 1
        self.temporaries = 0
        self.pieces = pieces(self.kernel)
        self.dynamic = self.names.new("gpuad_shared") if self.pieces else ""

    # --- variables ---

    def root(self, thing: Var | Buffer) -> Var | Buffer:
        return self.classes.find(thing) if isinstance(thing, Var) else thing

    def known(self, thing: Var | Buffer) -> str | None:
        """The C name of the variable or array, if it has been declared in a scope still open."""
        root = self.root(thing)
        return next((scope[root] for scope in reversed(self.visible) if root in scope), None)

    def name_of(self, thing: Var | Buffer) -> str:
        name = self.known(thing)
        if name is None:
            raise AssertionError(f"{thing.name} (uid {thing.uid}) is used where it is not visible in kernel {self.kernel.name}")
        return name

    def declare(self, thing: Var | Buffer) -> str:
        name = self.names.new(thing.name)
        self.visible[-1][self.root(thing)] = name
        self.holds.pop(self.root(thing), None)
        return name

    def mutable_roots(self, block: Block) -> set[Var]:
        """The C variables that get a value more than where they are declared."""
        return {self.classes.find(v) for s in walk_stmts(block) for v in joined(s) if len(self.classes.of(v)) > 1 or self.assigns(s)}

    def assigns(self, stmt: Stmt) -> bool:
        """Whether the statement gives a variable a value elsewhere than in its declaration."""
        return isinstance(stmt, Assign | For | While) or (isinstance(stmt, If) and not self.prints_as_select(stmt))

    def prints_as_select(self, stmt: If) -> bool:
        if stmt.then or stmt.otherwise or len(stmt.merges) != 1:
            return False
        merge = stmt.merges[0]
        return not any(self.same(e, merge.var) for e in (merge.then, merge.otherwise))

    def open(self) -> None:
        self.depth += 1
        self.visible.append({})
        self.names.open()

    def close(self) -> None:
        self.depth -= 1
        self.visible.pop()
        self.names.close()

    # --- lines ---

    def line(self, text: str, note: str = "") -> None:
        text = INDENT * self.depth + text
        if note and ("\n" in note or len(text) + len(note) > WIDTH or text.endswith("{")):
            self.comment(note)
            note = ""
        self.lines += wrap(f"{text}  // {note}" if note else text)

    def comment(self, note: str) -> None:
        self.lines += [f"{INDENT * self.depth}// {part}".rstrip() for part in note.splitlines()]

    def body(self) -> list[str]:
        """The lines of the kernel's body."""
        if self.dynamic:
            self.line(f"extern __shared__ __align__(16) unsigned char {self.dynamic}[];")
        self.block(self.kernel.body)
        return self.lines

    def block(self, block: Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def nested(self, block: Block, ends: list[tuple[Var, Expr]]) -> list[str]:
        """The lines of an inner block that ends with these parallel assignments."""
        outer, self.lines = self.lines, []
        self.open()
        self.block(block)
        self.assign_all(ends)
        self.close()
        outer, self.lines = self.lines, outer
        return outer

    def statement(self, stmt: Stmt) -> None:
        """Prints one statement."""
        raise NotImplementedError

    # --- scalars ---

    def define(self, var: Var, value: Expr, note: str = "") -> None:
        """Declares the variable with the value, or assigns if it is there already."""
        if isinstance(value, Var) and self.root(value) == self.root(var) and self.known(var):
            return
        if not self.known(var):
            self.give(var, self.initial(var, value), note)
        elif value != self.holds.get(self.root(var)):
            self.line(self.update(self.name_of(var), var, value), note)
        self.hold(var, value)

    def hold(self, var: Var, value: Expr) -> None:
        """Notes that the variable has the value from here on: a constant is not assigned twice."""
        self.holds.pop(self.root(var), None)
        if isinstance(value, Constant) and value.type == var.type:
            self.holds[self.root(var)] = value

    def forget(self, stmt: Stmt) -> None:
        """The variables that the statement changes hold no known value."""
        for root in self.changed(stmt):
            self.holds.pop(root, None)

    def changed(self, stmt: Stmt) -> set[Var | Buffer]:
        """The C variables that the statement changes."""
        return {self.root(v) for s in walk_stmts((stmt,)) for v in joined(s)}

    def initial(self, var: Var, value: Expr) -> str:
        """The value as the variable's initialiser."""
        return self.expressions.assigned(value, var.type)

    def give(self, var: Var, text: str, note: str = "") -> None:
        """The variable declared with (or assigned) a text."""
        name = self.known(var)
        self.holds.pop(self.root(var), None)
        if name is not None:
            self.line(f"{name} = {text};", note)
            return
        const = "const " if var.type.is_float and self.root(var) not in self.mutable else ""
        self.line(f"{const}{self.type_name(var)} {self.declare(var)} = {text};", note)

    def type_name(self, var: Var) -> str:
        return c_type(var.type)

    def update(self, name: str, target: Var | Read, value: Expr) -> str:
        """`name` gets a value, by a compound assignment where the value continues the old one."""
        compound = self.compound(target, value)
        if compound is None:
            return f"{name} = {self.expressions.assigned(value, target.type)};"
        op, operand = compound
        if op in "+-" and target.type.is_integer and operand == Constant(1, target.type):
            return f"{op}{op}{name};"
        return f"{name} {op}= {self.expressions.text(operand)};"

    def compound(self, target: Var | Read, value: Expr) -> tuple[str, Expr] | None:
        if not isinstance(value, Binary) or value.type != target.type or not self.compounds(value):
            return None
        if self.same(value.left, target) and value.op in "+-*/&|^":
            return signed(value.op, value.right)
        if self.same(value.right, target) and value.op in "+*&|^":
            return signed(value.op, value.left)
        return None

    def compounds(self, value: Binary) -> bool:
        """Whether the operation has a compound form: not where it prints as a call."""
        return self.expressions.guarded(value) is None and value.left.type == value.right.type == value.type

    def same(self, expr: Expr, target: Var | Read) -> bool:
        if isinstance(expr, Var) and isinstance(target, Var):
            return self.root(expr) == self.root(target)
        return expr == target

    def assign_all(self, pairs: list[tuple[Var, Expr]]) -> None:
        """Assigns in parallel: every value is that of before the first assignment."""
        waiting = [(v, e) for v, e in pairs if not (isinstance(e, Var) and self.root(e) == self.root(v))]
        while waiting:
            k = next((k for k in range(len(waiting)) if not self.disturbs(waiting, k)), None)
            if k is None:
                waiting = [*waiting[1:], (waiting[0][0], self.saved(*waiting[0]))]
            else:
                self.define(*waiting.pop(k))

    def disturbs(self, waiting: list[tuple[Var, Expr]], k: int) -> bool:
        """Whether the k-th assignment would change what another one reads."""
        target = self.root(waiting[k][0])
        return any(self.root(v) == target for j, (_, e) in enumerate(waiting) if j != k for v in variables(e))

    def saved(self, var: Var, value: Expr) -> Var:
        """A temporary with the value that the variable will get."""
        temporary = self.temporary(f"next_{var.name}", var.type)
        self.define(temporary, value)
        return temporary

    def temporary(self, name: str, kind: Scalar) -> Var:
        """A variable of the text's own, unlike any that an outer scope may still have."""
        self.temporaries += 1
        return Var(name, kind, -(1 << 30) - self.temporaries)


def joined(stmt: Stmt) -> set[Var]:
    """The Vars that the statement gives values to, also where control flow meets."""
    match stmt:
        case If(merges=merges):
            return merge_vars(merges)
        case For(carried=carried) | While(carried=carried):
            return {v for c in carried for v in (c.var, c.result)}
    return set(defined(stmt))


def signed(op: str, operand: Expr) -> tuple[str, Expr]:
    """`+ -v` as `- v`, and the other way round: the same number."""
    if op not in "+-" or not operand.type.is_float:
        return op, operand
    flipped = "-" if op == "+" else "+"
    if isinstance(operand, Unary) and operand.op == "-":
        return flipped, operand.operand
    if isinstance(operand, Constant) and operand.value < 0:
        return flipped, Constant(-operand.value, operand.type)
    return op, operand
