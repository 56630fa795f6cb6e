"""The lines of a kernel's body as they are printed: its expressions with as few parentheses as the grammar allows, its open scopes, the C
variable of each value, assignments, and line breaks.

Each expression prints as a text and the precedence of its outermost operator. Association is kept as it is in the tree, since
floating-point sums may not be regrouped. A conversion that C makes by itself is not printed.

Each class of coalesced Vars becomes one C variable, declared where the first of them gets a value: before the `if` or the loop where
control flow meets, else at its definition. Values that meet are assigned in parallel, in an order (or through a temporary) that no
assignment disturbs another. Long lines break before an operator or behind a comma that as few brackets as possible enclose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..ir import nodes as ir
from ..ir.functions import FUNCTIONS, ROUNDINGS
from ..ir.rewrite import walk_stmts
from ..ir.shared import pieces
from ..ir.types import BOOL, Scalar, common_type, promoted
from .coalesce import coalesce
from .folded import Read, fold, merge_vars, targets
from .spelling import Names, c_type, converts_silently, function_name, literal

_LEVELS = ["||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"]
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, start=2) for op in ops.split()}
TERNARY, UNARY, PRIMARY = 1, 13, 15
_CLARIFIED = {
    "||": {"&&"},
    "&&": {"||"},
    "|": {"^", "&"},
    "^": {"|", "&"},
    "<<": {"+", "-", "*", "/", "%"},
    ">>": {"+", "-", "*", "/", "%"},
}


class Naming(Protocol):
    """How variables and buffers are called at the present place of the text."""

    def name_of(self, thing: ir.Var | ir.Buffer) -> str: ...


@dataclass
class Expressions:
    """A printer of expressions as CUDA; `helpers` collects the names of the functions that the text needs beside CUDA's own."""

    names: Naming
    helpers: set[str] = field(default_factory=set)

    def text(self, expr: ir.Expr) -> str:
        """The expression alone."""
        return self.printed(expr)[0]

    def at(self, expr: ir.Expr, level: int) -> str:
        """The expression as an operand of an operator that binds as strongly as `level`."""
        text, own = self.printed(expr)
        return text if own >= level else f"({text})"

    def assigned(self, expr: ir.Expr, target: Scalar) -> str:
        """The expression where C converts it to `target` by itself: an initialiser, the right side of an assignment."""
        if isinstance(expr, ir.Cast) and expr.type == target and converts_silently(expr.operand.type, target):
            return self.text(expr.operand)
        return self.text(expr)

    def element(self, buffer: ir.Buffer, index: ir.Expr) -> str:
        """`buffer[index]`."""
        return f"{self.names.name_of(buffer)}[{self.subscript(index)}]"

    def number_in(self, buffer: ir.Buffer, index: ir.Expr) -> str:
        """The number at `buffer[index]`."""
        rounding = ROUNDINGS.get(buffer.element)
        if rounding is None:
            return self.element(buffer, index)
        self.helpers.add(rounding)
        return f"{rounding.replace('_', '_from_')}({self.element(buffer, index)})"

    def bits_of(self, value: ir.Expr, element: Scalar) -> str:
        """The bits as which a float is kept in memory of halves or bfloat16; a rounding to that type is not done twice."""
        rounding = ROUNDINGS[element]
        self.helpers.add(rounding)
        while isinstance(value, ir.Call) and value.function == rounding:
            (value,) = value.arguments
        return f"{rounding.replace('_', '_to_')}({self.text(value)})"

    def subscript(self, index: ir.Expr) -> str:
        if isinstance(index, ir.Cast) and index.operand.type.is_integer and index.type.bits == 64 and index.operand.type.bits <= 32:
            index = index.operand
        return self.text(index)

    def printed(self, expr: ir.Expr) -> tuple[str, int]:
        match expr:
            case ir.Constant():
                return self.constant(expr)
            case ir.Var():
                return self.names.name_of(expr), PRIMARY
            case ir.LaunchIndex(name=name, axis=axis):
                return f"{name}.{axis}", PRIMARY
            case ir.Unary():
                return self.unary(expr)
            case ir.Binary():
                return self.binary(expr)
            case ir.Cast():
                return self.cast(expr)
            case ir.Select():
                return self.select(expr)
            case Read(buffer=buffer, index=index):
                return self.number_in(buffer, index), PRIMARY
            case ir.Call(function="gpuad_collected", arguments=(total,)):
                return self.binary(ir.Binary("!=", total, ir.Constant(0, total.type), BOOL))
            case ir.Call():
                return self.call(expr)
        raise TypeError(f"no expression: {expr!r}")

    def constant(self, constant: ir.Constant) -> tuple[str, int]:
        text = literal(constant)
        if "gpuad_" in text:
            self.helpers.add(text.strip("-()"))
        return text, UNARY if text.startswith("-") else PRIMARY

    def unary(self, expr: ir.Unary) -> tuple[str, int]:
        text = self.at(expr.operand, UNARY)
        if text.startswith(expr.op) and expr.op == "-":
            text = f"({text})"
        return self.narrowed(expr.op + text, UNARY, expr.type)

    def binary(self, expr: ir.Binary) -> tuple[str, int]:
        special = self.guarded(expr)
        if special is not None:
            return special, PRIMARY
        level = PRECEDENCE[expr.op]
        left, right = self.converted_operands(expr)
        text = f"{self.operand(left, expr.op, level)} {expr.op} {self.operand(right, expr.op, level + 1)}"
        return self.narrowed(text, level, expr.type)

    def operand(self, expr: ir.Expr, op: str, level: int) -> str:
        """An operand, in parentheses also where only a reader would need them."""
        unclear = isinstance(expr, ir.Binary) and expr.op in _CLARIFIED.get(op, ())
        text = self.at(expr, PRIMARY if unclear else level)
        return f"({text})" if text.startswith("-") and op in "+-" and level > PRECEDENCE[op] else text

    def converted_operands(self, expr: ir.Binary) -> tuple[ir.Expr, ir.Expr]:
        """The operands without a conversion that C makes by itself."""
        left, right = expr.left, expr.right
        if expr.op in ("<<", ">>", "&&", "||"):
            return left, right
        if isinstance(left, ir.Cast) and _implied(left, right.type):
            return left.operand, right
        if isinstance(right, ir.Cast) and _implied(right, left.type):
            return left, right.operand
        return left, right

    def guarded(self, expr: ir.Binary) -> str | None:
        """A call that stands for an operator which C leaves undefined for some operands; on a GPU the operator itself."""
        return None

    def narrowed(self, text: str, level: int, t: Scalar) -> tuple[str, int]:
        """C computes with ints what is narrower: brings the value back to its type."""
        if t.kind == "bool" or t.bits >= 32:
            return text, level
        return f"({c_type(t)})({text})", UNARY

    def cast(self, expr: ir.Cast) -> tuple[str, int]:
        if expr.type == expr.operand.type:
            return self.printed(expr.operand)
        if expr.type == BOOL:
            return f"{self.at(expr.operand, PRECEDENCE['=='] + 1)} != 0", PRECEDENCE["=="]
        return f"({c_type(expr.type)}){self.at(expr.operand, UNARY)}", UNARY

    def select(self, expr: ir.Select) -> tuple[str, int]:
        condition = self.at(expr.condition, TERNARY + 1)
        return f"{condition} ? {self.at(expr.then, TERNARY + 1)} : {self.at(expr.otherwise, TERNARY)}", TERNARY

    def call(self, expr: ir.Call) -> tuple[str, int]:
        name = function_name(expr)
        self.helpers.add(name)
        return f"{name}({self.arguments(expr)})", PRIMARY

    def arguments(self, expr: ir.Call) -> str:
        """The arguments; integers narrower than an int go as ints, between which CUDA's overloads choose."""
        integers = FUNCTIONS[expr.function].domain == "int"
        return ", ".join(self.text(ir.Cast(a, promoted(a.type)) if integers else a) for a in expr.arguments)


def _implied(cast: ir.Cast, other: Scalar) -> bool:
    source = cast.operand.type
    if source.kind == "bool" or cast.type != other:
        return False
    return common_type(source, other) == cast.type


LIMIT = 120
_INDENT = 4
_OPERATORS = {"?": 1, ":": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_LONGEST_OPERATOR = 2


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
    fitting = [b for b in _breaks(line, limit) if indent < b.at]
    late = [b for b in fitting if b.at > indent + (limit - indent) // 3]
    if late:
        return min(late, key=lambda b: (b.cost, -b.at)).at
    return fitting[-1].at if fitting else None


def _breaks(line: str, limit: int) -> Iterator[_Break]:
    """Places up to a limit where a line may end. No more of it is looked at: it may be as long as a sum of a thousand terms."""
    depth = 0
    line = line[: limit + _LONGEST_OPERATOR + 1]
    code = line.find("//")
    for at, sign in enumerate(line[:limit] if code < 0 else line[: min(code, limit)]):
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

    def __init__(self, kernel: ir.Kernel, reserved: Sequence[str] = ()) -> None:
        self.kernel = fold(kernel)
        self.classes = coalesce(self.kernel)
        self.mutable = self.mutable_roots(self.kernel.body)
        self.values = {s.var: s.value for s in walk_stmts(self.kernel.body) if isinstance(s, ir.Let)}
        self.names = Names(reserved)
        self.visible: list[dict[ir.Var | ir.Buffer, str]] = [{}]
        self.holds: dict[ir.Var | ir.Buffer, ir.Constant] = {}
        self.expressions = self.expressions_class(self)
        self.helpers = self.expressions.helpers
        self.lines: list[str] = []
        self.depth = 1
        self.temporaries = 0
        self.pieces = pieces(self.kernel)
        self.dynamic = self.names.new("gpuad_shared") if self.pieces else ""

    # --- variables ---

    def root(self, thing: ir.Var | ir.Buffer) -> ir.Var | ir.Buffer:
        return self.classes.find(thing) if isinstance(thing, ir.Var) else thing

    def known(self, thing: ir.Var | ir.Buffer) -> str | None:
        """The C name of the variable or array, if it has been declared in a scope still open."""
        root = self.root(thing)
        return next((scope[root] for scope in reversed(self.visible) if root in scope), None)

    def name_of(self, thing: ir.Var | ir.Buffer) -> str:
        name = self.known(thing)
        if name is None:
            raise AssertionError(f"{thing.name} (uid {thing.uid}) is used where it is not visible in kernel {self.kernel.name}")
        return name

    def declare(self, thing: ir.Var | ir.Buffer) -> str:
        name = self.names.new(thing.name)
        self.visible[-1][self.root(thing)] = name
        self.holds.pop(self.root(thing), None)
        return name

    def mutable_roots(self, block: ir.Block) -> set[ir.Var]:
        """The C variables that get a value more than where they are declared."""
        return {self.classes.find(v) for s in walk_stmts(block) for v in joined(s) if len(self.classes.of(v)) > 1 or self.assigns(s)}

    def assigns(self, stmt: ir.Stmt) -> bool:
        """True if the statement gives a variable a value elsewhere than in its declaration."""
        return isinstance(stmt, ir.Assign | ir.For | ir.While) or (isinstance(stmt, ir.If) and not self.prints_as_select(stmt))

    def prints_as_select(self, stmt: ir.If) -> bool:
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

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def nested(self, block: ir.Block, ends: list[tuple[ir.Var, ir.Expr]]) -> list[str]:
        """The lines of an inner block that ends with these parallel assignments."""
        outer, self.lines = self.lines, []
        self.open()
        self.block(block)
        self.assign_all(ends)
        self.close()
        outer, self.lines = self.lines, outer
        return outer

    def statement(self, stmt: ir.Stmt) -> None:
        """Prints one statement."""
        raise NotImplementedError

    # --- scalars ---

    def define(self, var: ir.Var, value: ir.Expr, note: str = "") -> None:
        """Declares the variable with the value, or assigns if it is there already."""
        if isinstance(value, ir.Var) and self.root(value) == self.root(var) and self.known(var):
            return
        if not self.known(var):
            self.give(var, self.initial(var, value), note)
        elif value != self.holds.get(self.root(var)):
            self.line(self.update(self.name_of(var), var, value), note)
        self.hold(var, value)

    def hold(self, var: ir.Var, value: ir.Expr) -> None:
        """Notes that the variable has the value from here on: a constant is not assigned twice."""
        self.holds.pop(self.root(var), None)
        if isinstance(value, ir.Constant) and value.type == var.type:
            self.holds[self.root(var)] = value

    def forget(self, stmt: ir.Stmt) -> None:
        """The variables that the statement changes hold no known value."""
        for root in self.changed(stmt):
            self.holds.pop(root, None)

    def changed(self, stmt: ir.Stmt) -> set[ir.Var | ir.Buffer]:
        """The C variables that the statement changes."""
        return {self.root(v) for s in walk_stmts((stmt,)) for v in joined(s)}

    def initial(self, var: ir.Var, value: ir.Expr) -> str:
        """The value as the variable's initialiser."""
        return self.expressions.assigned(value, var.type)

    def give(self, var: ir.Var, text: str, note: str = "") -> None:
        """The variable declared with (or assigned) a text."""
        name = self.known(var)
        self.holds.pop(self.root(var), None)
        if name is not None:
            self.line(f"{name} = {text};", note)
            return
        const = "const " if var.type.is_float and self.root(var) not in self.mutable else ""
        self.line(f"{const}{self.type_name(var)} {self.declare(var)} = {text};", note)

    def type_name(self, var: ir.Var) -> str:
        return c_type(var.type)

    def update(self, name: str, target: ir.Var | Read, value: ir.Expr) -> str:
        """`name` gets a value, by a compound assignment where the value continues the old one."""
        compound = self.compound(target, value)
        if compound is None:
            return f"{name} = {self.expressions.assigned(value, target.type)};"
        op, operand = compound
        if op in "+-" and target.type.is_integer and operand == ir.Constant(1, target.type):
            return f"{op}{op}{name};"
        return f"{name} {op}= {self.expressions.text(operand)};"

    def compound(self, target: ir.Var | Read, value: ir.Expr) -> tuple[str, ir.Expr] | None:
        if not isinstance(value, ir.Binary) or value.type != target.type or not self.compounds(value):
            return None
        if self.same(value.left, target) and value.op in "+-*/&|^":
            return signed(value.op, value.right)
        if self.same(value.right, target) and value.op in "+*&|^":
            return signed(value.op, value.left)
        return None

    def compounds(self, value: ir.Binary) -> bool:
        """True if the operation has a compound form: not where it prints as a call."""
        return self.expressions.guarded(value) is None and value.left.type == value.right.type == value.type

    def same(self, expr: ir.Expr, target: ir.Var | Read) -> bool:
        if isinstance(expr, ir.Var) and isinstance(target, ir.Var):
            return self.root(expr) == self.root(target)
        return expr == target

    def assign_all(self, pairs: list[tuple[ir.Var, ir.Expr]]) -> None:
        """Assigns in parallel: every value is that of before the first assignment."""
        waiting = [(v, e) for v, e in pairs if not (isinstance(e, ir.Var) and self.root(e) == self.root(v))]
        while waiting:
            k = next((k for k in range(len(waiting)) if not self.disturbs(waiting, k)), None)
            if k is None:
                waiting = [*waiting[1:], (waiting[0][0], self.saved(*waiting[0]))]
            else:
                self.define(*waiting.pop(k))

    def disturbs(self, waiting: list[tuple[ir.Var, ir.Expr]], k: int) -> bool:
        """True if the k-th assignment would change what another one reads."""
        target = self.root(waiting[k][0])
        return any(self.root(v) == target for j, (_, e) in enumerate(waiting) if j != k for v in ir.variables(e))

    def saved(self, var: ir.Var, value: ir.Expr) -> ir.Var:
        """A temporary with the value that the variable will get."""
        temporary = self.temporary(f"next_{var.name}", var.type)
        self.define(temporary, value)
        return temporary

    def temporary(self, name: str, kind: Scalar) -> ir.Var:
        """A variable of the text's own, unlike any that an outer scope may still have."""
        self.temporaries += 1
        return ir.Var(name, kind, -(1 << 30) - self.temporaries)


def joined(stmt: ir.Stmt) -> set[ir.Var]:
    """The Vars that the statement gives values to, also where control flow meets."""
    match stmt:
        case ir.If(merges=merges):
            return merge_vars(merges)
        case ir.For(carried=carried) | ir.While(carried=carried):
            return {v for c in carried for v in (c.var, c.result)}
    return set(targets(stmt))


def signed(op: str, operand: ir.Expr) -> tuple[str, ir.Expr]:
    """`+ -v` as `- v`, and the other way round: the same number."""
    if op not in "+-" or not operand.type.is_float:
        return op, operand
    flipped = "-" if op == "+" else "+"
    if isinstance(operand, ir.Unary) and operand.op == "-":
        return flipped, operand.operand
    if isinstance(operand, ir.Constant) and operand.value < 0:
        return flipped, ir.Constant(-operand.value, operand.type)
    return op, operand
