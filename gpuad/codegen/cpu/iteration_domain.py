"""The iteration domain of the CPU's loops over threads: the axes on which threads are one long line, the bounds that guards set to them,
and an estimate of the work per thread.

*Axes* (`merge_axes`). `blockIdx.x * blockDim.x + threadIdx.x`, through whatever conversions, becomes the launch index `globalIdx.x`. If
neither `blockIdx.x` nor `threadIdx.x` is left then, the kernel cannot tell where one block ends and the next begins.

*Bounds* (`take_bounds`). `if (x >= 1 && x < w - 1 && y < h) ...` as all that a kernel does, apart from computing values, needs no thread
with another x: the loop runs from 1 to w - 1, in 64 bits, where none of these comparisons can overflow, and the guard keeps `y < h`.
Without a guard in the loop compilers need no masks. Several guards are intersected (`inner`): between the bounds of all of them none is
tested.

*Work* (`iterations`). About how many iterations a thread makes, by which a launch of few long threads is split among workers too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir import folding as b
from ...ir import nodes as ir
from ...ir.rewrite import assigned_vars, defined, expressions_in, is_short, map_exprs, rebuild, substitute, walk_stmts
from ...ir.types import F64, I32, U32, Scalar
from ..folded import Read, expanded, scopes, single_values
from .widen import SMALL

GLOBAL = "globalIdx"


@dataclass(frozen=True)
class Axes:
    """A kernel with global indices, and the axes (of "xyz") that have no blocks any more."""

    kernel: ir.Kernel
    merged: frozenset[str]


def merge_axes(kernel: ir.Kernel) -> Axes:
    """The kernel in terms of global indices where it can be."""
    kernel = replace(kernel, body=map_exprs(kernel.body, _canonical))
    left = {e.axis for e in _indices(kernel.body) if e.name in ("threadIdx", "blockIdx")}
    return Axes(kernel, frozenset("xyz") - left)


def _indices(block: ir.Block) -> Iterator[ir.LaunchIndex]:
    return (e for top in expressions_in(block) for e in ir.walk(top) if isinstance(e, ir.LaunchIndex))


def _canonical(expr: ir.Expr) -> ir.Expr:
    axis = _global_axis(expr)
    if axis is None:
        return rebuild(expr, _canonical)
    index = ir.LaunchIndex(GLOBAL, axis)
    return index if expr.type == index.type else ir.Cast(index, expr.type)


def _global_axis(expr: ir.Expr) -> str | None:
    """The axis of which the expression is the global index."""
    if not isinstance(expr, ir.Binary) or expr.op != "+" or not _wide_enough(expr.type):
        return None
    for product, thread in ((expr.left, expr.right), (expr.right, expr.left)):
        product = bare(product)
        if isinstance(product, ir.Binary) and product.op == "*" and _wide_enough(product.type):
            parts = {index_name(product.left), index_name(product.right), index_name(thread)}
            for axis in "xyz":
                if parts == {f"blockIdx.{axis}", f"blockDim.{axis}", f"threadIdx.{axis}"} and index_name(thread) == f"threadIdx.{axis}":
                    return axis
    return None


def _wide_enough(t: Scalar) -> bool:
    return t.is_integer and t.bits >= 32


def bare(expr: ir.Expr) -> ir.Expr:
    """Without conversions between integers of 32 bits and more: no launch index or global index is changed by one."""
    while isinstance(expr, ir.Cast) and _wide_enough(expr.type) and _wide_enough(expr.operand.type):
        expr = expr.operand
    return expr


def index_name(expr: ir.Expr) -> str:
    """`blockDim.x` and kin for a launch index behind conversions, else an empty text."""
    expr = bare(expr)
    return f"{expr.name}.{expr.axis}" if isinstance(expr, ir.LaunchIndex) else ""


_X = ir.LaunchIndex(GLOBAL, "x")


@dataclass(frozen=True)
class Bound:
    """`x >= value + shift` if it is a lower bound, else `x < value + shift`."""

    lower: bool
    value: ir.Expr
    shift: int


@dataclass(frozen=True)
class Ranged:
    """A kernel whose guard has lost the bounds of x, and these bounds."""

    kernel: ir.Kernel
    bounds: tuple[Bound, ...] = ()


def take_bounds(kernel: ir.Kernel) -> Ranged:
    """The folded kernel without the bounds of x that hold for all that it does."""
    *before, last = kernel.body or (None,)
    if not isinstance(last, ir.If) or last.otherwise or last.merges or not all(isinstance(s, ir.Let) for s in before):
        return Ranged(kernel)
    values = expanded(s for s in before if isinstance(s, ir.Let))
    bounds, kept = [], []
    for term in b.conjuncts(last.condition):
        bound = bound_of(substitute(term, values), kernel)
        kept += [] if bound else [term]
        bounds += [bound] if bound else []
    if not bounds:
        return Ranged(kernel)
    rest = b.every(kept)
    body: list[ir.Stmt | None] = [*before, *(last.then if rest is None else [replace(last, condition=rest)])]
    return Ranged(replace(kernel, body=tuple(s for s in body if s is not None)), tuple(bounds))


def bound_of(term: ir.Expr, kernel: ir.Kernel) -> Bound | None:
    """The comparison of x with something that is the same in all threads, or None."""
    if not isinstance(term, ir.Binary) or term.left.type not in (I32, U32):
        return None
    if term.op == "!=" and _offset(term.left) == 0 and isinstance(term.right, ir.Constant) and term.right.value == 0:
        return Bound(True, term.right, 1)  # no thread has an index below 0
    if term.op not in ir.ORDERINGS:
        return None
    for op, left, right in ((term.op, term.left, term.right), (ir.MIRRORED[term.op], term.right, term.left)):
        offset = _offset(left)
        if offset is not None and is_uniform(right, kernel):
            return Bound(op in (">", ">="), right, (op in (">", "<=")) - offset)
    return None


def _offset(expr: ir.Expr) -> int | None:
    """The constant that the expression adds to the global x index; None if it is something else."""
    match expr:
        case ir.LaunchIndex():
            return 0 if expr == _X else None
        case ir.Cast(operand=operand, type=t) if t in (I32, U32):
            return 0 if operand == _X else None
        case ir.Binary(op="+" | "-", left=left, right=ir.Constant(value=value), type=t) if t == I32 and abs(value) < SMALL:
            return None if _offset(left) != 0 else int(value) if expr.op == "+" else -int(value)
    return None


def is_uniform(expr: ir.Expr, kernel: ir.Kernel) -> bool:
    """True if the expression is made of the kernel's scalar parameters and the launch's extents alone."""
    return all(v in kernel.params for v in ir.variables(expr)) and not any(
        isinstance(e, ir.Call) or (isinstance(e, ir.LaunchIndex) and e.name not in ("blockDim", "gridDim")) for e in ir.walk(expr)
    )


def is_of_row(expr: ir.Expr, kernel: ir.Kernel) -> bool:
    """True if the expression is made of scalar parameters and of what all threads of a row have in common."""
    return all(v in kernel.params for v in ir.variables(expr)) and not any(
        isinstance(e, Read) or (isinstance(e, ir.LaunchIndex) and e.axis == "x" and e.name in (GLOBAL, "threadIdx")) for e in ir.walk(expr)
    )


# --- several guards -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    """Where all guards of a kernel hold: its body without them, for rows in which `rows` holds, for x within the bounds."""

    kernel: ir.Kernel
    rows: ir.Expr | None
    bounds: tuple[Bound, ...]


def inner(kernel: ir.Kernel) -> Inner | None:
    """The inside of a kernel that asks for x in several places, as the gather of a stencil's adjoint does for each neighbour; None if there
    is none."""
    task = _Inside(kernel)
    body = task.block(kernel.body)
    names = [v for s in body for v in defined(s)]
    if task.guards < 2 or len(set(names)) < len(names):
        return None
    return Inner(replace(kernel, body=body), b.every(task.rows), tuple(task.bounds))


def without_row_guard(found: Inner) -> Inner:
    """The inside of a kernel also without a guard around all that it does which asks for the row alone: for rows in which it holds."""
    *before, last = found.kernel.body or (None,)
    if not isinstance(last, ir.If) or last.otherwise or last.merges or not all(isinstance(s, ir.Let) for s in before):
        return found
    values = expanded(s for s in before if isinstance(s, ir.Let))
    asked = [substitute(term, values) for term in b.conjuncts(last.condition)]
    if not all(is_of_row(term, found.kernel) for term in asked):
        return found
    body = (*(s for s in before if s is not None), *last.then)
    terms = [*([] if found.rows is None else [found.rows]), *asked]
    return Inner(replace(found.kernel, body=body), b.every(terms), found.bounds)


class _Inside:
    """Goes down the guards that ask for x and for the row only, and collects what they ask."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.fixed = assigned_vars(kernel.body)
        known = single_values(kernel)
        self.asked = {substitute(t, known) for s in walk_stmts(kernel.body) if isinstance(s, ir.If) for t in b.conjuncts(s.condition)}
        self.values: dict[ir.Var, ir.Expr] = {}
        self.bounds: list[Bound] = []
        self.rows: list[ir.Expr] = []
        self.guards = 0
        self.sums: set[ir.Var] = set()  # of which a guard has surely added to each

    def block(self, block: Sequence[ir.Stmt]) -> tuple[ir.Stmt, ...]:
        out: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.Let) and stmt.var not in self.fixed:
                value = substitute(stmt.value, self.values)
                self.values |= {stmt.var: value} if is_short(value) else {}
            if isinstance(stmt, ir.Assign) and self.guards:
                self.sums.add(stmt.var)
            if isinstance(stmt, ir.If) and self.is_collected(stmt.condition):
                out += stmt.then
                continue
            if isinstance(stmt, ir.If) and self.leaves_out(stmt):
                continue
            parts = _parts(stmt, self.values, self.kernel) if isinstance(stmt, ir.If) and not stmt.merges else None
            if parts is None or not isinstance(stmt, ir.If):
                out.append(stmt)
                continue
            self.guards += bool(parts[0])
            self.bounds += [bound for bound in parts[0] if bound not in self.bounds]
            self.rows += [term for term in parts[1] if term not in self.rows]
            out += self.block(stmt.then)
        return tuple(out)

    def leaves_out(self, stmt: ir.If) -> bool:
        """True if a guard asks for an edge, around which neighbours lie: one x or row, or those beyond where another guard ends. The inside
        is where it does not hold."""
        if stmt.otherwise or stmt.merges:
            return False
        for term in b.conjuncts(stmt.condition):
            full = substitute(term, self.values)
            elsewhere = self.beside(full) if isinstance(full, ir.Binary) and full.left.type.is_integer else None
            if elsewhere is not None:
                bound = bound_of(_ordered(elsewhere), self.kernel)
                if bound is None and not is_of_row(full, self.kernel):
                    continue
                self.bounds += [bound] if bound is not None and bound not in self.bounds else []
                self.rows += [elsewhere] if bound is None and elsewhere not in self.rows else []
                self.guards += 1
                return True
        return False

    def beside(self, term: ir.Binary) -> ir.Binary | None:
        """What holds elsewhere than at the edge that a term asks for; None if it is none."""
        if term.op == "==":
            return replace(term, op="!=")
        edge = "<" if isinstance(term.right, ir.Constant) else ">="
        other = replace(term, op=">=" if edge == "<" else "<")
        return other if term.op == edge and other in self.asked else None

    def is_collected(self, condition: ir.Expr) -> bool:
        """Whether all that is asked is whether something was added to a sum, and something was."""
        terms = b.conjuncts(condition)
        sums = [t.arguments[0] for t in terms if isinstance(t, ir.Call) and t.function == "gpuad_collected"]
        return len(sums) == len(terms) and all(s in self.sums for s in sums)


def _parts(stmt: ir.If, values: dict[ir.Var, ir.Expr], kernel: ir.Kernel) -> tuple[list[Bound], list[ir.Expr]] | None:
    """The bounds of x in which a guard holds, given that what it asks of the row does; None if it asks anything else."""
    bounds, rows = [], []
    for term in b.conjuncts(stmt.condition):
        full = substitute(term, values)
        bound = bound_of(_ordered(full), kernel)
        if bound is not None:
            bounds.append(bound)
        elif is_of_row(full, kernel):
            rows.append(full)
        else:
            return None
    return bounds, rows


def _ordered(term: ir.Expr) -> ir.Expr:
    """`x != 0` as `x > 0`, `x != n` as `x < n`: one of the sides is enough for the inside."""
    if isinstance(term, ir.Binary) and term.op == "!=" and term.left.type.is_integer:
        return replace(term, op=">" if isinstance(term.right, ir.Constant) else "<")
    return term


_USUAL = 16  # iterations of a loop of which nothing is known before the launch


def iterations(kernel: ir.Kernel) -> ir.Expr | None:
    """About how many iterations a thread makes in all its loops, in terms of the kernel's scalar parameters and the launch's extents; None
    if there are no loops. What stands behind a branch counts."""
    task = _Iterations(kernel)
    found = task.block(kernel.body)
    return None if b.is_const(found, 0) else found


class _Iterations:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.values = single_values(kernel)

    def block(self, block: ir.Block) -> ir.Expr:
        total: ir.Expr = b.const(0, F64)
        for stmt in block:
            inner: ir.Expr = b.const(0, F64)
            for nested, _ in scopes(stmt):
                inner = b.add(inner, self.block(nested))
            if isinstance(stmt, ir.For | ir.While):
                inner = b.mul(self.trips(stmt), b.add(b.const(1, F64), inner))
            total = b.add(total, inner)
        return total

    def trips(self, loop: ir.For | ir.While) -> ir.Expr:
        """How often a loop is run."""
        usual = b.const(_USUAL, F64)
        if isinstance(loop, ir.While) or not isinstance(loop.step, ir.Constant):
            return usual
        start, stop = (substitute(e, self.values) for e in (loop.start, loop.stop))
        if not (is_uniform(start, self.kernel) and is_uniform(stop, self.kernel)):
            return usual
        first, last = (start, stop) if loop.step.value > 0 else (stop, start)
        if isinstance(first, ir.Constant) and isinstance(last, ir.Constant):
            return b.const(max(0.0, (last.value - first.value) / abs(loop.step.value)), F64)
        span = b.sub(b.cast(last, F64), b.cast(first, F64))
        return ir.Select(b.compare("<", first, last), b.mul(span, b.const(1 / abs(loop.step.value), F64)), b.const(0, F64))
