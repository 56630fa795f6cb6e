"""Prints core IR expressions as C++ with as few parentheses as the grammar allows.

Each expression prints as a text and the precedence of its outermost operator. Association is kept as it is in the tree, since
floating-point sums may not be regrouped. A conversion that C makes by itself is not printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..ir.functions import FUNCTIONS, ROUNDINGS
from ..ir.nodes import Binary, Buffer, Call, Cast, Constant, Expr, LaunchIndex, Select, Unary, Var
from ..ir.types import BOOL, Scalar
from .spelling import c_type, common_type, converts_silently, function_name, literal, promoted
from .structure import Read

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

    def name_of(self, thing: Var | Buffer) -> str: ...


@dataclass
class Expressions:
    """A printer of expressions as CUDA; `helpers` collects the names of the functions that the text needs beside CUDA's own."""

    names: Naming
    helpers: set[str] = field(default_factory=set)

    def text(self, expr: Expr) -> str:
        """The expression alone."""
        return self.printed(expr)[0]

    def at(self, expr: Expr, level: int) -> str:
        """The expression as an operand of an operator that binds as strongly as `level`."""
        text, own = self.printed(expr)
        return text if own >= level else f"({text})"

    def assigned(self, expr: Expr, target: Scalar) -> str:
        """The expression where C converts it to `target` by itself: an initialiser, the right side of an assignment."""
        if isinstance(expr, Cast) and expr.type == target and converts_silently(expr.operand.type, target):
            return self.text(expr.operand)
        return self.text(expr)

    def element(self, buffer: Buffer, index: Expr) -> str:
        """`buffer[index]`."""
        return f"{self.names.name_of(buffer)}[{self.subscript(index)}]"

    def number_in(self, buffer: Buffer, index: Expr) -> str:
        """The number at `buffer[index]`."""
        rounding = ROUNDINGS.get(buffer.element)
        if rounding is None:
            return self.element(buffer, index)
        self.helpers.add(rounding)
        return f"{rounding.replace('_', '_from_')}({self.element(buffer, index)})"

    def bits_of(self, value: Expr, element: Scalar) -> str:
        """The bits as which a float is kept in memory of halves or bfloat16; a rounding to that type is not done twice."""
        rounding = ROUNDINGS[element]
        self.helpers.add(rounding)
        while isinstance(value, Call) and value.function == rounding:
            (value,) = value.arguments
        return f"{rounding.replace('_', '_to_')}({self.text(value)})"

    def subscript(self, index: Expr) -> str:
        if isinstance(index, Cast) and index.operand.type.is_integer and index.type.bits == 64 and index.operand.type.bits <= 32:
            index = index.operand
        return self.text(index)

    def printed(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Constant():
                return self.constant(expr)
            case Var():
                return self.names.name_of(expr), PRIMARY
            case LaunchIndex(name=name, axis=axis):
                return f"{name}.{axis}", PRIMARY
            case Unary():
                return self.unary(expr)
            case Binary():
                return self.binary(expr)
            case Cast():
                return self.cast(expr)
            case Select():
                return self.select(expr)
            case Read(buffer=buffer, index=index):
                return self.number_in(buffer, index), PRIMARY
            case Call(function="gpuad_collected", arguments=(total,)):
                return self.binary(Binary("!=", total, Constant(0, total.type), BOOL))
            case Call():
                return self.call(expr)
        raise TypeError(f"no expression: {expr!r}")

    def constant(self, constant: Constant) -> tuple[str, int]:
        text = literal(constant)
        if "gpuad_" in text:
            self.helpers.add(text.strip("-()"))
        return text, UNARY if text.startswith("-") else PRIMARY

    def unary(self, expr: Unary) -> tuple[str, int]:
        text = self.at(expr.operand, UNARY)
        if text.startswith(expr.op) and expr.op == "-":
            text = f"({text})"
        return self.narrowed(expr.op + text, UNARY, expr.type)

    def binary(self, expr: Binary) -> tuple[str, int]:
        special = self.guarded(expr)
        if special is not None:
            return special, PRIMARY
        level = PRECEDENCE[expr.op]
        left, right = self.converted_operands(expr)
        text = f"{self.operand(left, expr.op, level)} {expr.op} {self.operand(right, expr.op, level + 1)}"
        return self.narrowed(text, level, expr.type)

    def operand(self, expr: Expr, op: str, level: int) -> str:
        """An operand, in parentheses also where only a reader would need them."""
        unclear = isinstance(expr, Binary) and expr.op in _CLARIFIED.get(op, ())
        text = self.at(expr, PRIMARY if unclear else level)
        return f"({text})" if text.startswith("-") and op in "+-" and level > PRECEDENCE[op] else text

    def converted_operands(self, expr: Binary) -> tuple[Expr, Expr]:
        """The operands without a conversion that C makes by itself."""
        left, right = expr.left, expr.right
        if expr.op in ("<<", ">>", "&&", "||"):
            return left, right
        if isinstance(left, Cast) and _implied(left, right.type):
            return left.operand, right
        if isinstance(right, Cast) and _implied(right, left.type):
            return left, right.operand
        return left, right

    def guarded(self, expr: Binary) -> str | None:
        """A call that stands for an operator which C leaves undefined for some operands; on a GPU the operator itself."""
        return None

    def narrowed(self, text: str, level: int, t: Scalar) -> tuple[str, int]:
        """C computes with ints what is narrower: brings the value back to its type."""
        if t.kind == "bool" or t.bits >= 32:
            return text, level
        return f"({c_type(t)})({text})", UNARY

    def cast(self, expr: Cast) -> tuple[str, int]:
        if expr.type == expr.operand.type:
            return self.printed(expr.operand)
        if expr.type == BOOL:
            return f"{self.at(expr.operand, PRECEDENCE['=='] + 1)} != 0", PRECEDENCE["=="]
        return f"({c_type(expr.type)}){self.at(expr.operand, UNARY)}", UNARY

    def select(self, expr: Select) -> tuple[str, int]:
        condition = self.at(expr.condition, TERNARY + 1)
        return f"{condition} ? {self.at(expr.then, TERNARY + 1)} : {self.at(expr.otherwise, TERNARY)}", TERNARY

    def call(self, expr: Call) -> tuple[str, int]:
        name = function_name(expr)
        self.helpers.add(name)
        return f"{name}({self.arguments(expr)})", PRIMARY

    def arguments(self, expr: Call) -> str:
        """The arguments; integers narrower than an int go as ints, between which CUDA's overloads choose."""
        integers = FUNCTIONS[expr.function].domain == "int"
        return ", ".join(self.text(Cast(a, promoted(a.type)) if integers else a) for a in expr.arguments)


def _implied(cast: Cast, other: Scalar) -> bool:
    source = cast.operand.type
    if source.kind == "bool" or cast.type != other:
        return False
    return common_type(source, other) == cast.type
