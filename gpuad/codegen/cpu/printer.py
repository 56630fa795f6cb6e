"""Prints expressions and the bodies of kernels for the CPU, in C++.

Subscripts are in 64 bits; an integer operation that C++ leaves undefined and PTX defines is a call of a helper. What a thread adds to a sum
over threads goes to the loop that runs the thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir import nodes as ir
from ...ir.rewrite import holds, walk_stmts
from ...ir.types import BOOL, F32, F64, I32, I64, U32, U64, Scalar, promoted
from ..folded import Read
from ..scopes import PRECEDENCE, PRIMARY, UNARY, Expressions
from ..spelling import c_type
from ..statements import Statements
from .lane_conflicts import is_sum
from .vectorisation_legality import is_vectorisable
from .widen import Wide, is_of_truth, made_of_truth_values, widen

_GUARDED = {"/": "gpuad_div", "%": "gpuad_rem", "<<": "gpuad_shl", ">>": "gpuad_shr"}


@dataclass
class HostExpressions(Expressions):
    """A printer of expressions as C++ for the CPU; `wide` are the variables declared with 64 bits, `booleans` those that are made
    of truth values."""

    wide: Wide = field(default_factory=Wide)
    booleans: frozenset[ir.Var] = frozenset()

    def element(self, buffer: ir.Buffer, index: ir.Expr) -> str:
        if not is_of_truth(index, self.booleans):
            return super().element(buffer, index)
        self.helpers.add("gpuad_hidden")
        return f"{self.names.name_of(buffer)}[gpuad_hidden({self.subscript(index)})]"

    def printed(self, expr: ir.Expr) -> tuple[str, int]:
        if isinstance(expr, ir.LaunchIndex) or (isinstance(expr, ir.Var) and expr in self.wide):
            return f"({c_type(expr.type)}){self.widened(expr)[0]}", UNARY
        return super().printed(expr)

    def subscript(self, index: ir.Expr) -> str:
        while isinstance(index, ir.Cast) and index.type in (I64, U64) and index.operand.type in (I32, U32):
            index = index.operand
        wide = self.wide.is_chain(index) if index.type in (I32, U32) else self.wide.is_long(index)
        return self.widened(index)[0] if wide else super().subscript(index)

    def widened(self, expr: ir.Expr) -> tuple[str, int, bool]:
        """The text in 64 bits, its precedence, and whether it really has 64 bits: a leaf may have 32 and be converted by its neighbour."""
        match expr:
            case ir.Var() if expr in self.wide:
                return self.names.name_of(expr), PRIMARY, True
            case ir.LaunchIndex(name=name, axis=axis):
                return f"{name}.{axis}", PRIMARY, True
            case ir.Cast(operand=operand) if self.wide.is_chain(expr) or self.wide.is_long(expr):
                return self.widened(operand)
            case ir.Cast(operand=operand, type=t) if t == U32 and operand.type == I32:
                return self.widened(operand)
            case ir.Binary() if self.wide.is_chain(expr) or self.wide.is_long(expr):
                return self.widened_binary(expr)
        return *self.printed(expr), False

    def widened_binary(self, expr: ir.Binary) -> tuple[str, int, bool]:
        level = PRECEDENCE[expr.op]
        (left, left_level, left_wide), (right, right_level, right_wide) = self.widened(expr.left), self.widened(expr.right)
        if not (left_wide or right_wide):
            left, left_level = f"(long long){left if left_level >= UNARY else f'({left})'}", UNARY
        left = left if left_level >= level else f"({left})"
        right = f"({right})" if right_level <= level or right.startswith("-") else right
        return f"{left} {expr.op} {right}", level, True

    def binary(self, expr: ir.Binary) -> tuple[str, int]:
        if expr.op in ir.COMPARISONS and (self.compares_wide(expr.left) or self.compares_wide(expr.right)):
            level = PRECEDENCE[expr.op]
            return f"{self.compared(expr.left, level)} {expr.op} {self.compared(expr.right, level + 1)}", level
        return super().binary(expr)

    def compares_wide(self, expr: ir.Expr) -> bool:
        return expr.type in (I32, U32) and self.wide.is_exact(expr)

    def compared(self, expr: ir.Expr, level: int) -> str:
        if not self.compares_wide(expr):
            return self.at(expr, level)
        text, own, _ = self.widened(expr)
        return text if own >= level else f"({text})"

    def guarded(self, expr: ir.Binary) -> str | None:
        name = _GUARDED.get(expr.op)
        if name is None or expr.type.is_float or _harmless(expr):
            return None
        self.helpers.add(name)
        right = expr.right if expr.op in "/%" else ir.Cast(expr.right, U32 if expr.right.type.bits <= 32 else U64)
        return f"{name}<{c_type(promoted(expr.type))}>({self.text(expr.left)}, {self.text(right)})"

    def converted_operands(self, expr: ir.Binary) -> tuple[ir.Expr, ir.Expr]:
        """A conversion to 64 bits of what has them already is not left to C: it would go through the 32 bits."""
        left, right = super().converted_operands(expr)
        return (expr.left if self.is_widened(expr.left) else left), (expr.right if self.is_widened(expr.right) else right)

    def is_widened(self, expr: ir.Expr) -> bool:
        return isinstance(expr, ir.Cast) and expr.type in (I64, U64) and self.compares_wide(expr.operand)

    def cast(self, expr: ir.Cast) -> tuple[str, int]:
        if self.is_widened(expr):
            text, level, _ = self.widened(expr.operand)
            return (text, level) if expr.type == I64 else (f"(unsigned long long){text if level >= UNARY else f'({text})'}", UNARY)
        if not expr.operand.type.is_float or not expr.type.is_integer:
            return super().cast(expr)
        self.helpers.add("gpuad_f2i")
        wide = expr.type if expr.type.bits >= 32 else U32 if expr.type.kind == "uint" else I32  # PTX has no narrower conversion
        call = f"gpuad_f2i<{c_type(wide)}>({self.text(expr.operand)})"
        return (call, PRIMARY) if wide == expr.type else (f"({c_type(expr.type)}){call}", UNARY)

    def assigned(self, expr: ir.Expr, target: Scalar) -> str:
        if self.is_widened(expr):
            return self.text(expr)
        if target != BOOL and self.compares_wide(expr) and target.is_integer and target.bits <= expr.type.bits:
            return self.widened(expr)[0]
        return super().assigned(expr, target)


def _harmless(expr: ir.Binary) -> bool:
    """True if C++ defines the operation whatever the left operand is."""
    if not isinstance(expr.right, ir.Constant):
        return False
    value = int(expr.right.value)
    return value not in (0, -1) if expr.op in "/%" else 0 <= value < promoted(expr.type).bits


_CUT = "threads that work together are printed by lane_text"
_STACK = 1 << 17  # bytes; a thread has no less than four times as many anywhere


def assertions(kernel: ir.Kernel) -> list[ir.Tell]:
    """What may end a launch, in the order of the text: the status of one that ended is 3 and the number of what did."""
    return list(dict.fromkeys(s for s in walk_stmts(kernel.body) if isinstance(s, ir.Tell) and s.stops))


class HostStatements(Statements):
    """Prints a kernel's body for the CPU."""

    expressions_class = HostExpressions

    def __init__(self, kernel: ir.Kernel, reserved: Sequence[str], wide: bool) -> None:
        super().__init__(kernel, reserved)
        self.source = kernel
        self.wide = widen(self.kernel, self.classes) if wide else Wide()
        assert isinstance(self.expressions, HostExpressions)
        self.text: HostExpressions = self.expressions
        self.text.wide = self.wide
        self.text.booleans = made_of_truth_values(self.kernel)
        self.stack = 0  # bytes of arrays there
        self.no_alias = True  # whether no two parameters overlap
        self.sums: list[Sum] = []
        self.repeated = {id(s) for loop in walk_stmts(self.kernel.body) if isinstance(loop, ir.For | ir.While) for s in walk_stmts((loop,))}
        self.strips = all(
            isinstance(s.index, ir.Constant) for s in walk_stmts(self.kernel.body) if isinstance(s, ir.Accumulate) and is_sum(s)
        )

    def type_name(self, var: ir.Var) -> str:
        return "long long" if var in self.wide else c_type(var.type)

    def initial(self, var: ir.Var, value: ir.Expr) -> str:
        return self.text.widened(value)[0] if var in self.wide and self.wide.is_chain(value) else super().initial(var, value)

    def update(self, name: str, target: ir.Var | Read, value: ir.Expr) -> str:
        """A wide variable of which lanes have an array gets the same as one that is declared."""
        if isinstance(target, ir.Var) and target in self.wide:
            return f"{name} = {self.initial(target, value)};"
        return super().update(name, target, value)

    def begin(self, var: ir.Var, start: ir.Expr) -> str:
        """A conversion to the loop's own type is not left to C where its variable is wider."""
        converts = var in self.wide and isinstance(start, ir.Cast) and not self.wide.is_exact(start)
        return self.text.text(start) if converts else super().begin(var, start)

    def block_sum(self, element: str, stmt: ir.Accumulate) -> str:
        k = len(self.sums)
        if not self.strips:
            self.sums.append(Sum(stmt, F64))
            return f"gpuad_block_sum(gpuad_sums[{k}], gpuad_done[{k}], &{element}, {self.text.text(stmt.value)});"
        again, value = id(stmt) in self.repeated, stmt.value
        if not again and isinstance(value, ir.Cast) and value.operand.type == F32:
            value = value.operand
        self.sums.append(Sum(stmt, F64 if again else value.type))
        return f"gpuad_sum{k} {'+=' if again else '='} {self.text.text(value)};"

    print_name = "gpuad_print"

    def announce(self, stmt: ir.For) -> None:
        straight = stmt.independent and not holds(stmt.body, ir.For, ir.While)
        if straight and is_vectorisable(stmt.body, self.no_alias):
            self.line("GPUAD_INDEPENDENT")

    def stop(self, stmt: ir.Tell) -> None:
        self.line(f"throw gpuad_stopped{{{assertions(self.source).index(stmt)}}};", stmt.note)

    def initialised(self, stmt: ir.Alloc, values: Sequence[ir.Expr]) -> bool:
        size = len(values) * stmt.buffer.element.size
        if self.stack + size > _STACK or not super().initialised(stmt, values):
            return False
        self.stack += size
        return True

    def local(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        """Arrays of a whole block may be more than the stack of a core's thread takes: these are elsewhere."""
        length = stmt.buffer.length
        assert length is not None
        self.stack += length * stmt.buffer.element.size
        if self.stack <= _STACK:
            super().local(stmt, kind, name)
            return
        self.stack -= length * stmt.buffer.element.size
        memory = self.names.new(f"{name}_memory")
        self.line(f"const gpuad_large<{kind}> {memory}({length}{', 0' if stmt.zero else ''});", stmt.note)
        self.line(f"{kind}* __restrict__ const {name} = {memory}.data;")

    def shared(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        raise AssertionError(_CUT)

    def barrier(self, stmt: ir.Barrier) -> None:
        raise AssertionError(_CUT)

    def shuffle(self, stmt: ir.Shuffle) -> None:
        raise AssertionError(_CUT)


@dataclass(frozen=True)
class Sum:
    """A sum over threads, and the type of a thread's contribution."""

    stmt: ir.Accumulate
    part: Scalar
