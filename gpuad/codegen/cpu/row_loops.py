"""Delinearisation: finds the rows into which a kernel divides a line of threads, so that the CPU runs one loop over rows and one over
columns.

`row = i / width; column = i % width` with the global index i costs every thread two divisions, and a compiler does not see that neighbours
read neighbours. Within a row the quotient is one number and the remainder counts up. So the quotient becomes a scalar that the loop over
rows computes, the remainder becomes the global x index, and i is `row * width + x`. Further divisors of i, as for planes, give further
scalars; a row ends where the first of all quotients changes.

The identity `i = (i / width) * width + i % width` holds for every width, also a negative one or 0, with the results that PTX defines: then
each thread is a row of its own.

Index-set splitting: the interior of a kernel that looks at neighbours, where no index wraps and none is clamped.

`(x + 1 + nx) % nx`, `x == 0 ? nx - 1 : x - 1`, `min(x + 1, nx - 1)`: for all but a few threads of a row these are `x + 1` and `x - 1`, and
neighbouring threads touch neighbouring elements. The loop over a row is split at where that begins and ends, as it is at guards (see
`iteration_domain`), and in its middle the kernel has the plain index.

Loop-invariant code motion: quotients and remainders that are uniform over a row leave the CPU's loop over it.

`(y + 1) % ny` where y is the index of the row: a compiler leaves it in the loop, since a division must not run where the kernel does not
divide, and with it the loop is no vector loop. As the kernel defines them they are total, so each is computed once, before the row's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir import nodes as ir
from ...ir.rewrite import defined, expressions_in, map_blocks, map_exprs, map_stmt_exprs, rebuild, substitute, walk_stmts
from ...ir.types import BOOL, I32, U32, Scalar
from ..folded import Read, single_values
from .iteration_domain import GLOBAL, Bound, Inner, bare, inner, is_of_row, is_uniform
from .widen import SMALL

_X = ir.LaunchIndex(GLOBAL, "x")
_SHORT = 16  # a constant row of fewer threads is not worth a loop


@dataclass(frozen=True)
class Row:
    """The quotient of the global x index by a divisor that is the same for all threads."""

    quotient: ir.Var
    divisor: ir.Expr


@dataclass(frozen=True)
class Columns:
    """A kernel whose global x index counts the columns of `rows[0]`; the quotients are its last parameters."""

    kernel: ir.Kernel
    rows: tuple[Row, ...]


def delinearise(kernel: ir.Kernel) -> Columns | None:
    """The folded kernel by rows and columns; None if it divides its global x index by nothing."""
    values = single_values(kernel)
    found = list(dict.fromkeys((e.op, e.right) for e in _divisions(kernel, values)))
    divisors = list(dict.fromkeys(d for op in "%/" for o, d in found if o == op))  # that of a remainder first
    if not divisors:
        return None
    rows = tuple(Row(ir.Var("row", d.type, -(1 << 28) - k), d) for k, d in enumerate(divisors))
    task = _ByRows(rows, values)
    return Columns(replace(kernel, params=(*kernel.params, *(r.quotient for r in rows)), body=map_exprs(kernel.body, task.visit)), rows)


def _divisions(kernel: ir.Kernel, values: dict[ir.Var, ir.Expr]) -> Iterator[ir.Binary]:
    for top in expressions_in(kernel.body):
        for expr in ir.walk(top):
            if isinstance(expr, ir.Binary) and _divides_x(expr, values) and is_uniform(substitute(expr.right, values), kernel):
                yield replace(expr, right=substitute(expr.right, values))


def _divides_x(expr: ir.Binary, values: dict[ir.Var, ir.Expr]) -> bool:
    """True if the global x index is divided, as an integer of 32 bits or more."""
    if expr.op not in ("/", "%") or not expr.type.is_integer or expr.type.bits < 32:
        return False
    short = isinstance(expr.right, ir.Constant) and abs(expr.right.value) < _SHORT
    return not short and _is_x(substitute(expr.left, values), expr.type)


def _is_x(expr: ir.Expr, t: Scalar) -> bool:
    """True if the expression is the global x index. One of 64 bits may be changed by a conversion to 32."""
    index = bare(expr)
    return index in (_X, replace(_X, type=t)) and all(e.type.bits >= index.type.bits for e in ir.walk(expr))


class _ByRows:
    """Rewrites expressions in terms of quotients and columns."""

    def __init__(self, rows: tuple[Row, ...], values: dict[ir.Var, ir.Expr]) -> None:
        self.rows = rows
        self.values = values

    def visit(self, expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.LaunchIndex) and expr.name == GLOBAL and expr.axis == "x":
            return self.index(expr.type)
        if isinstance(expr, ir.Binary) and _divides_x(expr, self.values):
            divisor = substitute(expr.right, self.values)
            row = next((r for r in self.rows if r.divisor == divisor), None)
            if row is not None:
                return row.quotient if expr.op == "/" else self.remainder(row)
        return rebuild(expr, self.visit)

    def index(self, t: Scalar) -> ir.Expr:
        """The global index of before."""
        first = self.rows[0]
        start = ir.Binary("*", _as(first.quotient, t), _as(first.divisor, t), t)
        return ir.Binary("+", start, ir.LaunchIndex(GLOBAL, "x", t), t)

    def remainder(self, row: Row) -> ir.Expr:
        t = row.divisor.type
        column = _as(ir.LaunchIndex(GLOBAL, "x"), t)
        if row == self.rows[0]:
            return column
        return ir.Binary("-", self.index(t), ir.Binary("*", row.quotient, row.divisor, t), t)


def _as(expr: ir.Expr, t: Scalar) -> ir.Expr:
    return expr if expr.type == t else ir.Cast(expr, t)


_LARGEST = 1 << 30  # an index and an extent up to this do not overflow in sum
_ROUNDS = 4


def split_index_set(kernel: ir.Kernel) -> Inner | None:
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
            rows = term if rows is None else ir.Binary("&&", rows, term, BOOL)
        found = Inner(replace(found.kernel, body=body), rows, tuple(dict.fromkeys((*found.bounds, *task.bounds))))
    return found if found.bounds else guarded


class _Wraps:
    """Goes through a body and replaces what is plain inside; `bounds` and `rows` say where that is."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.values = values_of(kernel.body)
        self.bounds: list[Bound] = []
        self.rows: list[ir.Expr] = []

    def block(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.If) and all(isinstance(s, ir.Let) for s in (*stmt.then, *stmt.otherwise)):
                known = self.decided(stmt.condition)
                if known is not None:
                    out += self.block(stmt.then if known else stmt.otherwise)
                    out += [ir.Let(m.var, self.visit(m.then if known else m.otherwise), span=stmt.span) for m in stmt.merges]
                    continue
            out.append(map_blocks(map_stmt_exprs(stmt, self.visit), self.block))
        return tuple(out)

    def visit(self, expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, self.visit)
        found: ir.Expr | None = None
        match expr:
            case ir.Binary(op="%", type=t) if t in (I32, U32):
                found = self.remainder(expr)
            case ir.Call(function="min" | "max", type=t) if t == I32:
                found = self.clamped(expr)
            case ir.Select(type=t) if t.is_integer:
                known = self.decided(expr.condition)
                found = None if known is None else expr.then if known else expr.otherwise
        return expr if found is None else found

    def remainder(self, expr: ir.Binary) -> ir.Expr | None:
        """`(x + c) % n` or `(x + c + n) % n` where x + c is in [0, n)."""
        extent = substitute(expr.right, self.values)
        if not is_uniform(extent, self.kernel):
            return None
        shift, rest = _sum(substitute(expr.left, self.values))
        if shift is None or rest not in ([], [_bare(extent)]):
            return None
        small = ir.Binary("<=", extent, ir.Constant(_LARGEST, extent.type), BOOL)
        self.rows += [small] if rest and small not in self.rows else []
        if shift < 0:
            self.bounds.append(Bound(True, ir.Constant(0, I32), -shift))
        self.bounds.append(Bound(False, extent, -shift))
        return _shifted(shift, expr.type)

    def clamped(self, expr: ir.Call) -> ir.Expr | None:
        """`max(x + c, least)` or `min(x + c, most)` where that is x + c."""
        for index, end in (expr.arguments, expr.arguments[::-1]):
            shift, limit = self.place(index), substitute(end, self.values)
            if shift is None or not is_uniform(limit, self.kernel):
                continue
            lower = expr.function == "max"
            self.bounds.append(Bound(lower, limit, -shift if lower else 1 - shift))
            return _shifted(shift, expr.type)
        return None

    def decided(self, condition: ir.Expr) -> bool | None:
        """What a comparison of x with something is for most of a row: with a constant x is large, with anything else it is small."""
        if not isinstance(condition, ir.Binary) or condition.op not in ir.COMPARISONS:
            return None
        for op, index, other in (
            (condition.op, condition.left, condition.right),
            (ir.MIRRORED[condition.op], condition.right, condition.left),
        ):
            shift, limit = self.place(index), substitute(other, self.values)
            if shift is None or not is_uniform(limit, self.kernel) or other.type != I32:
                continue
            if isinstance(limit, ir.Constant):
                self.bounds.append(Bound(True, limit, (op in ("<=", ">", "==", "!=")) - shift))
                return op in (">", ">=", "!=")
            self.bounds.append(Bound(False, limit, (op in ("<=", ">")) - shift))
            return op in ("<", "<=", "!=")
        return None

    def place(self, index: ir.Expr) -> int | None:
        """The small constant that an int adds to x; None if it is anything else."""
        if index.type != I32:
            return None
        shift, rest = _sum(substitute(index, self.values))
        return None if rest else shift


def _sum(expr: ir.Expr) -> tuple[int | None, list[ir.Expr]]:
    """The constant that a sum of 32 bits adds to x, and its other terms; None if it is not x once and a small constant, or subtracts."""
    terms = list(_terms(expr, 1))
    constant = sum(sign * int(t.value) for sign, t in terms if isinstance(t, ir.Constant))
    constant = (constant + (1 << 31)) % (1 << 32) - (1 << 31)
    others = [(sign, t) for sign, t in terms if not isinstance(t, ir.Constant) and t != _X]
    once = [sign for sign, t in terms if t == _X] == [1]
    if not once or abs(constant) >= SMALL or any(sign < 0 for sign, _ in others):
        return None, []
    return constant, [t for _, t in others]


def _terms(expr: ir.Expr, sign: int) -> Iterator[tuple[int, ir.Expr]]:
    expr = _bare(expr)
    if isinstance(expr, ir.Binary) and expr.op in ("+", "-") and expr.type in (I32, U32):
        yield from _terms(expr.left, sign)
        yield from _terms(expr.right, sign if expr.op == "+" else -sign)
    else:
        yield sign, expr


def _bare(expr: ir.Expr) -> ir.Expr:
    """Without conversions between ints and unsigned ones, which change no sum modulo 2^32."""
    while isinstance(expr, ir.Cast) and expr.type in (I32, U32) and expr.operand.type in (I32, U32):
        expr = expr.operand
    return expr


def _shifted(shift: int, t: Scalar) -> ir.Expr:
    """x and a constant, as an int that does not overflow."""
    index: ir.Expr = ir.Cast(_X, I32)
    if shift:
        index = ir.Binary("+" if shift > 0 else "-", index, ir.Constant(abs(shift), I32), I32)
    return index if t == I32 else ir.Cast(index, t)


_SIZE = 40  # nodes of an expression that is looked through


@dataclass(frozen=True)
class Rows:
    """A kernel with further scalar parameters, and what they are in a row."""

    kernel: ir.Kernel
    values: tuple[tuple[ir.Var, ir.Expr], ...] = ()


def hoist(kernel: ir.Kernel) -> Rows:
    """The kernel with its rows' quotients and remainders as parameters."""
    task = _Hoist(kernel)
    body = map_exprs(kernel.body, task.visit)
    made = tuple((var, value) for value, var in task.found.items())
    return Rows(replace(kernel, params=(*kernel.params, *(v for v, _ in made)), body=body), made) if made else Rows(kernel)


class _Hoist:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.values = values_of(kernel.body)
        self.uid = 1 + max((v.uid for v in (*kernel.scalars, *(v for s in walk_stmts(kernel.body) for v in defined(s)))), default=0)
        self.found: dict[ir.Expr, ir.Var] = {}

    def visit(self, expr: ir.Expr) -> ir.Expr:
        if not any(_divides(e) for e in ir.walk(expr)):
            return expr
        full = substitute(expr, self.values)
        if not expr.type.is_integer or not is_of_row(full, self.kernel):
            return rebuild(expr, self.visit)
        if full not in self.found:
            self.uid += 1
            self.found[full] = ir.Var("gpuad_of_row", expr.type, self.uid)
        return self.found[full]


def _divides(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Binary) and expr.op in ("/", "%") and expr.type.is_integer and not isinstance(expr.right, ir.Constant)


def values_of(body: ir.Block) -> dict[ir.Var, ir.Expr]:
    """What the whole numbers that are defined once are in terms of parameters, launch indices, and what has no value here."""
    stmts = list(walk_stmts(body))
    times = Counter(v for s in stmts for v in defined(s))
    fixed = {s.var for s in stmts if isinstance(s, ir.Assign)}
    table: dict[ir.Var, ir.Expr] = {}
    for stmt in stmts:
        if not isinstance(stmt, ir.Let) or stmt.var in fixed or times[stmt.var] > 1 or stmt.var.type.is_float:
            continue
        value = substitute(stmt.value, table)
        if sum(1 for _ in ir.walk(value)) <= _SIZE and not any(isinstance(e, Read) for e in ir.walk(value)) and not _reads(value, fixed):
            table[stmt.var] = value
    return table


def _reads(expr: ir.Expr, names: set[ir.Var]) -> bool:
    return any(v in names for v in ir.variables(expr))
