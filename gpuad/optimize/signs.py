"""Makes one of opposite differences, and moves signs to the sums.

In the gather of an all-pairs loop a thread needs the distance to the other and that from the other to it. One is minus the other, but for
the sign of a zero, of which linear values (`linear`) take no notice. A linear value that would be negative is given as its opposite.

Assumes unique definitions. Guarantees valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import Assign, Binary, Block, Call, Constant, Expr, Let, Stmt, Unary, Var, variables
from ..ir.rewrite import map_blocks, rebuild
from .sums import added, adding, addition, terms


@dataclass
class Signs:
    """Moves signs to the sums: a linear value that would be negative is given as its opposite."""

    linear: frozenset[Var]
    mutable: frozenset[Var]
    sums: Collection[Var]
    names: Names
    renamed: dict[Var, Expr] = field(default_factory=dict)

    def block(self, block: Block, known: Mapping[tuple[Expr, Expr], Var]) -> Block:
        known = dict(known)
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known))
            match stmt:
                case Let(var=var, value=value) if var.type.is_float:
                    out += self.let(stmt, var, value, known)
                case Assign() if (parts := addition(stmt, self.sums)) is not None:
                    new = [(sign, self.put(part, known)) for sign, part in parts]
                    out.append(adding(stmt, [signed(part, sign) for sign, part in new]) if new != parts else stmt)
                case _:
                    out.append(stmt)  # what is linear occurs in no other
        return tuple(out)

    def let(self, stmt: Let, var: Var, value: Expr, known: dict[tuple[Expr, Expr], Var]) -> Iterator[Stmt]:
        if var in self.linear:
            value = self.put(value, known)
        if _is_name(value) and value != stmt.value:
            self.renamed[var] = value
            return
        if var in self.linear and (value != stmt.value or isinstance(value, Unary)):
            sign, value = signed(value)
            if not sign:
                minus = self.names.var(f"minus_{var.name}", var.type)
                self.renamed[var] = b.neg(minus)
                var = minus
        if isinstance(value, Binary) and value.op == "-" and self.mutable.isdisjoint(variables(value)):
            known.setdefault((value.left, value.right), var)
        yield replace(stmt, var=var, value=value)

    def put(self, expr: Expr, known: Mapping[tuple[Expr, Expr], Var]) -> Expr:
        """A linear expression with what has another name by now, and differences that are known or whose opposites are."""
        match expr:
            case Var():
                return self.renamed.get(expr, expr)
            case Binary(op="-", left=x, right=y) if (x, y) in known:
                return known[x, y]
            case Binary(op="-", left=x, right=y) if (y, x) in known:
                return b.neg(known[y, x])
            case Binary(op="/", left=x):
                new = self.put(x, known)
                return expr if new is x else replace(expr, left=new)
            case Unary(op="-") | Binary(op="+" | "-" | "*") | Call(function="gpuad_chain"):
                return rebuild(expr, lambda e: self.put(e, known))
        return expr


def _is_name(expr: Expr) -> bool:
    return isinstance(expr.operand if isinstance(expr, Unary) else expr, Var)


def signed(expr: Expr, sign: bool = True) -> tuple[bool, Expr]:
    """The expression, or its opposite (False), with as few signs inside as there need be."""
    match expr:
        case Unary(op="-", operand=inner):
            return signed(inner, not sign)
        case Binary(op="*" | "/", left=x, right=y) | Call(function="gpuad_chain", arguments=(x, y)):
            (s, x), (t, y) = signed(x), signed(y) if not _is_quotient(expr) else (True, y)
            changed = replace(expr, left=x, right=y) if isinstance(expr, Binary) else replace(expr, arguments=(x, y))
            return sign == (s == t), changed
        case Binary(op="+" | "-"):
            parts = [(s == t, e) for s, part in terms(expr) for t, e in (signed(part),)]
            if any(s for s, _ in parts):
                return sign, added(parts)
            return not sign, added([(True, e) for _, e in parts])
        case Constant(value=value) if value < 0:
            return not sign, b.neg(expr)
    return sign, expr


def _is_quotient(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op == "/"
