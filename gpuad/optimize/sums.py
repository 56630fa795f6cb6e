"""Accumulates into a sum directly where a contribution is computed: a loop's own partial sum and repeated additions of a block are removed.

In which order contributions are added is not promised. Assumes unique definitions, and sums that are only added to before they are put to
use outside of the statements that are looked at. Guarantees valid IR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir import build as b
from ..ir.nodes import Assign, Binary, Block, Carried, Expr, For, Let, Load, Stmt, Unary, Var, variables
from ..ir.rewrite import expressions, map_blocks, walk_stmts
from .control_flow_merging import needs

Terms: TypeAlias = "list[tuple[bool, Expr]]"  # what is added up; False: its opposite


def terms(expr: Expr, sign: bool = True) -> Terms:
    """What a sum is made of."""
    match expr:
        case Binary(op="+" | "-" as op, left=left, right=right) if expr.type.is_float:
            return [*terms(left, sign), *terms(right, sign == (op == "+"))]
        case Unary(op="-", operand=inner) if expr.type.is_float:
            return terms(inner, not sign)
    return [(sign, expr)]


def added(parts: Sequence[tuple[bool, Expr]]) -> Expr:
    """The sum of so many terms, at least one, which begins with one that needs no sign if there is one."""
    first = next((k for k, (sign, _) in enumerate(parts) if sign), None)
    if first is None:
        return b.neg(added([(True, e) for _, e in parts]))
    total = parts[first][1]
    for sign, term in (*parts[:first], *parts[first + 1 :]):
        total = Binary("+" if sign else "-", total, term, total.type)
    return total


def addition(stmt: Stmt, sums: Collection[Var]) -> Terms | None:
    """What a statement adds to a sum; None if it does something else."""
    if not isinstance(stmt, Assign) or stmt.var not in sums:
        return None
    whole = terms(stmt.value)
    rest = [t for t in whole if t != (True, stmt.var)]
    return rest if len(rest) == len(whole) - 1 and not any(v == stmt.var for _, e in rest for v in variables(e)) else None


def adding(stmt: Assign, parts: Terms) -> Assign:
    """The statement as one that adds this to its sum."""
    op = "+" if any(sign for sign, _ in parts) else "-"
    total = added(parts if op == "+" else [(True, e) for _, e in parts])
    return replace(stmt, value=Binary(op, stmt.var, total, total.type))


def accumulate_directly(body: Block, sums: Collection[Var]) -> Block:
    """The body in which loops add to the sums themselves, and blocks once."""
    uses = Counter(v for s in walk_stmts(body) for e in expressions(s) for v in variables(e))
    return _Direct(sums, uses).block(body)


@dataclass(frozen=True)
class _Direct:
    sums: Collection[Var]
    uses: Counter[Var]

    def block(self, block: Block) -> Block:
        out = list(block)
        for at, stmt in enumerate(block):
            if isinstance(stmt, For):
                for carried in stmt.carried:
                    self.moved(out, at, carried)
        out = [map_blocks(s, self.block) for s in out if not (isinstance(s, Assign) and s.value == s.var)]
        return self.at_once(out)

    def moved(self, out: list[Stmt], at: int, carried: Carried) -> None:
        """Lets the loop add to a sum what it carries for it, if that is all that becomes of it."""
        step = [t for t in terms(carried.next) if t != (True, carried.var)]
        if not b.is_const(carried.init, 0) or len(step) != len(terms(carried.next)) - 1 or not step:
            return
        if self.uses[carried.var] != 1 or self.uses[carried.result] != 1:
            return
        for later in range(at + 1, len(out)):
            stmt, parts = out[later], addition(out[later], self.sums)
            own = [sign for sign, e in parts or () if e == carried.result]
            if not own or not isinstance(stmt, Assign) or parts is None or stmt.var.type != carried.var.type:
                continue
            loop = out[at]
            assert isinstance(loop, For)
            if needs((loop, *out[at + 1 : later]), {stmt.var}):
                return
            rest = [t for t in parts if t[1] != carried.result]
            inner = adding(stmt, [(sign == own[0], e) for sign, e in step])
            kept = tuple(c for c in loop.carried if c != carried)
            out[at] = replace(loop, body=(*loop.body, inner), carried=kept)
            out[later] = adding(stmt, rest) if rest else replace(stmt, value=stmt.var)
            return

    def at_once(self, block: Sequence[Stmt]) -> Block:
        """The block with what it adds to a sum added by the last of its additions."""
        out: list[Stmt | None] = []
        last: dict[Var, int] = {}
        for stmt in block:
            parts = addition(stmt, self.sums)
            if not isinstance(stmt, Let | Load | Assign) or self.stays(stmt, parts, [out[k] for k in last.values()]):
                last = {}
            elif isinstance(stmt, Assign) and parts is not None:
                if stmt.var in last:
                    before = out[last[stmt.var]]
                    stmt = adding(stmt, [*((addition(before, self.sums) if before else None) or ()), *parts])
                    out[last[stmt.var]] = None
                last[stmt.var] = len(out)
            out.append(stmt)
        return tuple(s for s in out if s is not None)

    def stays(self, stmt: Let | Load | Assign, parts: Terms | None, before: Sequence[Stmt | None]) -> bool:
        """Whether no addition may go past a statement: it uses a sum, or changes what is added."""
        used = {v for e in ([e for _, e in parts] if parts is not None else expressions(stmt)) for v in variables(e)}
        if not used.isdisjoint(self.sums):
            return True
        return parts is None and any(stmt.var in variables(e) for s in before if s is not None for e in expressions(s))
