"""A workaround for g++ 12: finds integers that are made of truth values, `k = x > 0` and `k = x > 0 ? 1 : 0`, and what is computed from
them.

g++ 12 miscompiles vector loops in which such a number is the part of a subscript that differs from thread to thread, as in `table[2 * row +
(x > 0)]`: it takes the mask for the number. So the CPU's text hides such subscripts from the compiler's view of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.nodes import Assign, Cast, Constant, Expr, For, If, Kernel, Let, Select, Unary, Var, While, walk
from ...ir.rewrite import walk_stmts
from ...ir.types import BOOL


def made_of_truth_values(kernel: Kernel) -> frozenset[Var]:
    """The variables of a folded kernel that are whole numbers made of truth values."""
    found: set[Var] = set()
    before = -1
    while before != len(found):
        before = len(found)
        found |= {var for var, values in _given(kernel) if _is_chosen(values) or any(is_of_truth(e, found) for e in values)}
    return frozenset(found)


def is_of_truth(expr: Expr, known: set[Var] | frozenset[Var]) -> bool:
    """Whether a truth value, as a number or as the choice between two numbers, is a part of the expression."""
    return any(e in known if isinstance(e, Var) else _is_one(e) for e in walk(expr))


def _is_one(expr: Expr) -> bool:
    match expr:
        case Cast(operand=operand, type=t):
            return t.is_integer and operand.type == BOOL
        case Select(then=a, otherwise=b, type=t):
            return t.is_integer and _is_chosen([a, b])
        case Unary(op="!", type=t):
            return t.is_integer
    return False


def _is_chosen(values: list[Expr]) -> bool:
    return len(values) > 1 and all(isinstance(v, Constant) for v in values)


def _given(kernel: Kernel) -> Iterator[tuple[Var, list[Expr]]]:
    """Each whole number and what it is given, at one place or where control flow meets."""
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Let(var=var, value=value) | Assign(var=var, value=value) if var.type.is_integer:
                yield var, [value]
            case If(merges=merges):
                yield from ((m.var, [m.then, m.otherwise]) for m in merges if m.var.type.is_integer)
            case For(carried=carried) | While(carried=carried):
                yield from ((v, [c.init, c.next]) for c in carried if c.var.type.is_integer for v in (c.var, c.result))
