"""Argmax marks: records which thread's value an atomic maximum or minimum keeps, so that only that one gets the adjoint.

Each such operation on memory with a gradient is followed by its *mark*: the bits of the number that it put there, or all bits set if what
was there stayed. A number stays only until a greater one replaces it, so of all marks for an element at most one is its last content: that
of the execution to which the element's adjoint belongs. If there is none it belongs to what was there before. Equal numbers need no
decision: the first of them has replaced the content, the others have not.

On memory of the launch the marks are recorded while the primal runs, since another run might find another order. On a shared array, which
the reverse kernel fills again, they are made again with it; within an If they are handed out of it, to where the reverse can see them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..analysis.activity import Activity
from ..ir import build as b
from ..ir.atomics import EXTREMA, bits, bits_type, replaces
from ..ir.names import Names
from ..ir.nodes import Atomic, Block, Constant, If, Kernel, Let, Merge, Select, Stmt, Var
from ..ir.rewrite import edit, map_blocks

NO_MARK = -1


@dataclass(frozen=True)
class Mark:
    """`var`: the mark, defined by `let` behind the operation. `recorded`: it is written down while the primal runs. `outside`, if it is
    not: for each If around it, innermost first, up to the next loop, the If's id and the variable that is the mark behind it."""

    let: Let
    recorded: bool
    outside: tuple[tuple[int, Var], ...] = ()

    @property
    def var(self) -> Var:
        return self.let.var


def mark_argmax(kernel: Kernel, facts: Activity, names: Names) -> tuple[Kernel, dict[int, Mark]]:
    """The kernel with marks, and the mark of each operation by its id. Assumes: what `analysis.atomic_extrema` refuses does not occur."""
    task = _Marking(facts, names)
    body, _ = task.block(kernel.body)
    return (replace(kernel, body=body) if task.marks else kernel), task.marks


def name_argmax_operands(kernel: Kernel, names: Names) -> Kernel:
    """Gives a variable to each number that may be kept, so that it is computed once for the operation and for its mark."""

    def change(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Atomic) or stmt.op not in EXTREMA or not stmt.buffer.element.is_float:
            return None
        (value,) = stmt.operands
        if isinstance(value, Var | Constant):
            return None
        var = names.var("value", value.type)
        return Let(var, value, span=stmt.span), replace(stmt, operands=(var,))

    return replace(kernel, body=edit(kernel.body, change))


@dataclass
class _Marking:
    facts: Activity
    names: Names
    marks: dict[int, Mark] = field(default_factory=dict)

    def block(self, block: Block) -> tuple[Block, list[tuple[int, Var]]]:
        """The block with marks, and those of shared arrays that can be seen at its end, by the id of their operation."""
        out: list[Stmt] = []
        seen: list[tuple[int, Var]] = []
        for stmt in block:
            if isinstance(stmt, Atomic) and stmt.op in EXTREMA and self.facts.has_shadow(stmt.buffer):
                seen += self.marked(stmt, out)
            elif isinstance(stmt, If):
                seen += self.branch(stmt, out)
            else:
                out.append(map_blocks(stmt, lambda inner: self.block(inner)[0]))
        return tuple(out), seen

    def marked(self, stmt: Atomic, out: list[Stmt]) -> list[tuple[int, Var]]:
        (value,) = stmt.operands
        old = stmt.var or self.names.var(f"{stmt.buffer.name}_old", value.type)
        stmt = replace(stmt, var=old)
        mark = self.names.var(f"{stmt.buffer.name}_new", bits_type(value.type))
        unmarked = b.const(NO_MARK, mark.type)
        let = Let(mark, Select(replaces(stmt.op, old, value), bits(value), unmarked), span=stmt.span)
        out += [stmt, let]
        recorded = stmt.buffer.length is None
        self.marks[id(stmt)] = Mark(let, recorded)
        return [] if recorded else [(id(stmt), mark)]

    def branch(self, stmt: If, out: list[Stmt]) -> list[tuple[int, Var]]:
        then, first = self.block(stmt.then)
        otherwise, second = self.block(stmt.otherwise)
        merges: list[Merge] = []
        behind: list[tuple[int, Var]] = []
        for key, var in (*first, *second):
            merged, unmarked = self.names.var(var.name, var.type), b.const(NO_MARK, var.type)
            merges.append(Merge(merged, var, unmarked) if (key, var) in first else Merge(merged, unmarked, var))
            behind.append((key, merged))
        result = replace(stmt, then=then, otherwise=otherwise, merges=(*stmt.merges, *merges))
        for key, merged in behind:
            mark = self.marks[key]
            self.marks[key] = replace(mark, outside=(*mark.outside, (id(result), merged)))
        out.append(result)
        return behind
