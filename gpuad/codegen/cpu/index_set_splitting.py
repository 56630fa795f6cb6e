"""Index-set splitting: the interior of a kernel that looks at neighbours, where no index wraps and none is clamped.

`(x + 1 + nx) % nx`, `x == 0 ? nx - 1 : x - 1`, `min(x + 1, nx - 1)`: for all but a few threads of a row these are `x + 1` and `x - 1`, and
neighbouring threads touch neighbouring elements. The loop over a row is split at where that begins and ends, as it is at guards (see
`iteration_domain`), and in its middle the kernel has the plain index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.nodes import Binary, Block, Call, Cast, Constant, Expr, If, Kernel, LaunchIndex, Let, Select, Stmt
from ...ir.rewrite import defined, rebuild, substitute
from ...ir.types import BOOL, I32, U32, Scalar
from ..structure import map_statement
from .iteration_domain import GLOBAL, Bound, Inner, inner, is_uniform
from .loop_invariants import values_of
from .widen import SMALL

_X = LaunchIndex(GLOBAL, "x")
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_LARGEST = 1 << 30  # an index and an extent up to this do not overflow in sum
_ROUNDS = 4


def split_index_set(kernel: Kernel) -> Inner | None:
    """Where all guards of a folded kernel hold and nothing wraps; None if there is nothing of the kind."""
    guarded = inner(kernel)
    found = guarded or Inner(kernel, None, ())
    for _ in range(_ROUNDS):  # what is clamped on both sides takes two
        task = _Wraps(found.kernel)
        body = task.block(found.kernel.body)
        names = [v for s in body for v in defined(s)]
        if not task.bounds or len(set(names)) < len(names):
            break
        rows = found.rows
        for term in task.rows:
            rows = term if rows is None else Binary("&&", rows, term, BOOL)
        found = Inner(replace(found.kernel, body=body), rows, tuple(dict.fromkeys((*found.bounds, *task.bounds))))
    return found if found.bounds else guarded


class _Wraps:
    """Goes through a body and replaces what is plain inside; `bounds` and `rows` say where that is."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.values = values_of(kernel.body)
        self.bounds: list[Bound] = []
        self.rows: list[Expr] = []

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, If) and all(isinstance(s, Let) for s in (*stmt.then, *stmt.otherwise)):
                known = self.decided(stmt.condition)
                if known is not None:
                    out += self.block(stmt.then if known else stmt.otherwise)
                    out += [Let(m.var, self.visit(m.then if known else m.otherwise), span=stmt.span) for m in stmt.merges]
                    continue
            out.append(map_statement(stmt, self.visit, self.block))
        return tuple(out)

    def visit(self, expr: Expr) -> Expr:
        expr = rebuild(expr, self.visit)
        found: Expr | None = None
        match expr:
            case Binary(op="%", type=t) if t in (I32, U32):
                found = self.remainder(expr)
            case Call(function="min" | "max", type=t) if t == I32:
                found = self.clamped(expr)
            case Select(type=t) if t.is_integer:
                known = self.decided(expr.condition)
                found = None if known is None else expr.then if known else expr.otherwise
        return expr if found is None else found

    def remainder(self, expr: Binary) -> Expr | None:
        """`(x + c) % n` or `(x + c + n) % n` where x + c is in [0, n)."""
        extent = substitute(expr.right, self.values)
        if not is_uniform(extent, self.kernel):
            return None
        shift, rest = _sum(substitute(expr.left, self.values))
        if shift is None or rest not in ([], [_bare(extent)]):
            return None
        small = Binary("<=", extent, Constant(_LARGEST, extent.type), BOOL)
        self.rows += [small] if rest and small not in self.rows else []
        if shift < 0:
            self.bounds.append(Bound(True, Constant(0, I32), -shift))
        self.bounds.append(Bound(False, extent, -shift))
        return _shifted(shift, expr.type)

    def clamped(self, expr: Call) -> Expr | None:
        """`max(x + c, least)` or `min(x + c, most)` where that is x + c."""
        for index, end in (expr.arguments, expr.arguments[::-1]):
            shift, limit = self.place(index), substitute(end, self.values)
            if shift is None or not is_uniform(limit, self.kernel):
                continue
            lower = expr.function == "max"
            self.bounds.append(Bound(lower, limit, -shift if lower else 1 - shift))
            return _shifted(shift, expr.type)
        return None

    def decided(self, condition: Expr) -> bool | None:
        """What a comparison of x with something is for most of a row: with a constant x is large, with anything else it is small."""
        if not isinstance(condition, Binary) or condition.op not in _MIRRORED:
            return None
        for op, index, other in (
            (condition.op, condition.left, condition.right),
            (_MIRRORED[condition.op], condition.right, condition.left),
        ):
            shift, limit = self.place(index), substitute(other, self.values)
            if shift is None or not is_uniform(limit, self.kernel) or other.type != I32:
                continue
            if isinstance(limit, Constant):
                self.bounds.append(Bound(True, limit, (op in ("<=", ">", "==", "!=")) - shift))
                return op in (">", ">=", "!=")
            self.bounds.append(Bound(False, limit, (op in ("<=", ">")) - shift))
            return op in ("<", "<=", "!=")
        return None

    def place(self, index: Expr) -> int | None:
        """The small constant that an int adds to x; None if it is anything else."""
        if index.type != I32:
            return None
        shift, rest = _sum(substitute(index, self.values))
        return None if rest else shift


def _sum(expr: Expr) -> tuple[int | None, list[Expr]]:
    """The constant that a sum of 32 bits adds to x, and its other terms; None if it is not x once and a small constant, or subtracts."""
    terms = list(_terms(expr, 1))
    constant = sum(sign * int(t.value) for sign, t in terms if isinstance(t, Constant))
    constant = (constant + (1 << 31)) % (1 << 32) - (1 << 31)
    others = [(sign, t) for sign, t in terms if not isinstance(t, Constant) and t != _X]
    once = [sign for sign, t in terms if t == _X] == [1]
    if not once or abs(constant) >= SMALL or any(sign < 0 for sign, _ in others):
        return None, []
    return constant, [t for _, t in others]


def _terms(expr: Expr, sign: int) -> Iterator[tuple[int, Expr]]:
    expr = _bare(expr)
    if isinstance(expr, Binary) and expr.op in ("+", "-") and expr.type in (I32, U32):
        yield from _terms(expr.left, sign)
        yield from _terms(expr.right, sign if expr.op == "+" else -sign)
    else:
        yield sign, expr


def _bare(expr: Expr) -> Expr:
    """Without conversions between ints and unsigned ones, which change no sum modulo 2^32."""
    while isinstance(expr, Cast) and expr.type in (I32, U32) and expr.operand.type in (I32, U32):
        expr = expr.operand
    return expr


def _shifted(shift: int, t: Scalar) -> Expr:
    """x and a constant, as an int that does not overflow."""
    index: Expr = Cast(_X, I32)
    if shift:
        index = Binary("+" if shift > 0 else "-", index, Constant(abs(shift), I32), I32)
    return index if t == I32 else Cast(index, t)
