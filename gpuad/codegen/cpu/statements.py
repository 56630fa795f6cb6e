"""Prints the bodies of kernels for the CPU: what a thread adds to a sum over threads goes to the loop that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.nodes import Accumulate, Alloc, Barrier, Cast, Constant, Expr, For, Kernel, Shuffle, Tell, Var, While
from ...ir.rewrite import walk_stmts
from ...ir.types import F32, F64, Scalar
from ..spelling import c_type
from ..statements import Statements
from ..structure import Read
from .expressions import HostExpressions
from .mask_workaround import made_of_truth_values
from .reductions import is_sum
from .vectorisation_legality import is_vectorisable
from .widen import Wide, widen

_CUT = "threads that work together are printed by lane_text"
_STACK = 1 << 17  # bytes; a thread has no less than four times as many anywhere


def assertions(kernel: Kernel) -> list[Tell]:
    """What may end a launch, in the order of the text: the status of one that ended is 3 and the number of what did."""
    return list(dict.fromkeys(s for s in walk_stmts(kernel.body) if isinstance(s, Tell) and s.stops))


class HostStatements(Statements):
    """Prints a kernel's body for the CPU."""

    expressions_class = HostExpressions

    def __init__(self, kernel: Kernel, reserved: Sequence[str], wide: bool) -> None:
        super().__init__(kernel, reserved)
        self.source = kernel
        self.wide = widen(self.kernel, self.classes) if wide else Wide()
        assert isinstance(self.expressions, HostExpressions)
        self.text: HostExpressions = self.expressions
        self.text.wide = self.wide
        self.text.truths = made_of_truth_values(self.kernel)
        self.stack = 0  # bytes of arrays there
        self.apart = True  # whether no two parameters overlap
        self.sums: list[Sum] = []
        self.repeated = {id(s) for loop in walk_stmts(self.kernel.body) if isinstance(loop, For | While) for s in walk_stmts((loop,))}
        self.strips = all(isinstance(s.index, Constant) for s in walk_stmts(self.kernel.body) if isinstance(s, Accumulate) and is_sum(s))

    def type_name(self, var: Var) -> str:
        return "long long" if var in self.wide else c_type(var.type)

    def initial(self, var: Var, value: Expr) -> str:
        return self.text.widened(value)[0] if var in self.wide and self.wide.is_chain(value) else super().initial(var, value)

    def update(self, name: str, target: Var | Read, value: Expr) -> str:
        """A wide variable of which lanes have an array gets the same as one that is declared."""
        if isinstance(target, Var) and target in self.wide:
            return f"{name} = {self.initial(target, value)};"
        return super().update(name, target, value)

    def begin(self, var: Var, start: Expr) -> str:
        """A conversion to the loop's own type is not left to C where its variable is wider."""
        converts = var in self.wide and isinstance(start, Cast) and not self.wide.is_exact(start)
        return self.text.text(start) if converts else super().begin(var, start)

    def block_sum(self, element: str, stmt: Accumulate) -> str:
        k = len(self.sums)
        if not self.strips:
            self.sums.append(Sum(stmt, F64))
            return f"gpuad_block_sum(gpuad_sums[{k}], gpuad_done[{k}], &{element}, {self.text.text(stmt.value)});"
        again, value = id(stmt) in self.repeated, stmt.value
        if not again and isinstance(value, Cast) and value.operand.type == F32:
            value = value.operand
        self.sums.append(Sum(stmt, F64 if again else value.type))
        return f"gpuad_sum{k} {'+=' if again else '='} {self.text.text(value)};"

    print_name = "gpuad_print"

    def announce(self, stmt: For) -> None:
        straight = stmt.independent and not any(isinstance(s, For | While) for s in walk_stmts(stmt.body))
        if straight and is_vectorisable(stmt.body, self.apart):
            self.line("GPUAD_INDEPENDENT")

    def stop(self, stmt: Tell) -> None:
        self.line(f"throw gpuad_stopped{{{assertions(self.source).index(stmt)}}};", stmt.note)

    def initialised(self, stmt: Alloc, values: Sequence[Expr]) -> bool:
        size = len(values) * stmt.buffer.element.size
        if self.stack + size > _STACK or not super().initialised(stmt, values):
            return False
        self.stack += size
        return True

    def local(self, stmt: Alloc, kind: str, name: str) -> None:
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

    def shared(self, stmt: Alloc, kind: str, name: str) -> None:
        raise AssertionError(_CUT)

    def barrier(self, stmt: Barrier) -> None:
        raise AssertionError(_CUT)

    def shuffle(self, stmt: Shuffle) -> None:
        raise AssertionError(_CUT)


@dataclass(frozen=True)
class Sum:
    """A sum over threads, and the type of a thread's contribution."""

    stmt: Accumulate
    part: Scalar
