"""Grid-stride loops on the CPU: flattens a loop of stride gridDim * blockDim into one loop over elements.

`for (int i = x; i < n; i += gridDim.x * blockDim.x) body` with the global index x visits every i from 0 to n - 1 in exactly one thread.
Thread after thread would walk through memory in strides of the whole grid; so the kernel becomes one whose threads are the elements, and
the loop over x runs from 0 to n.

Two iterations of different threads are independent, since the launch has no data races. Of two iterations of one thread that has to be
shown: a buffer that the body writes is accessed at one element an iteration (`u[i + c]`, or `u[3 * i]` to `u[3 * i + 2]`), or only by
atomic additions whose results are unused. The loop carries nothing but sums that end in sums over threads. Arrays must not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...ir import nodes as ir
from ...ir.rewrite import expressions_in, map_exprs, substitute, used_vars, walk_stmts
from ...ir.types import I32, I64, U32, Scalar, Space
from ..folded import expanded, index_terms, operands, scopes, unconverted, visit_operands, written
from .iteration_domain import GLOBAL, bare, index_name, is_uniform
from .lane_conflicts import is_linear, is_sum

_ALLOWED = (ir.Let, ir.Assign, ir.Alloc, ir.Load, ir.Store, ir.Accumulate, ir.Take, ir.If, ir.For, ir.While)


@dataclass(frozen=True)
class Flat:
    """A kernel; if it was a grid-stride loop, each of its threads is an iteration, and they are `stop` along x."""

    kernel: ir.Kernel
    stop: ir.Expr | None = None


def flatten(kernel: ir.Kernel) -> Flat:
    """The kernel, in terms of global indices, with a thread for each iteration if all that it does is a grid-stride loop over x."""
    parts = _split(kernel.body)
    if parts is None:
        return Flat(kernel)
    before, loop, after = parts
    values = expanded(s for s in before if isinstance(s, ir.Let))
    stop = substitute(loop.stop, values)
    if not (
        _is_grid_stride(loop, values) and is_uniform(stop, kernel) and _is_blind(loop, after, before) and _is_independent(loop, kernel)
    ):
        return Flat(kernel)
    inner = _without_sums(loop, after)
    if inner is None:
        return Flat(kernel)
    return Flat(replace(kernel, body=(*before, ir.Let(loop.var, _index(loop.var.type)), *inner)), stop)


def _split(body: ir.Block) -> tuple[list[ir.Let | ir.Load], ir.For, ir.Block] | None:
    """Definitions, among them reads of what is not written, one loop, and sums over threads, if there is nothing else."""
    changed = {buffer for s in walk_stmts(body) if (buffer := written(s)) is not None}
    found: list[ir.Let | ir.Load] = []
    for stmt in body:
        if not isinstance(stmt, ir.Let | ir.Load) or (isinstance(stmt, ir.Load) and stmt.buffer in changed):
            break
        found.append(stmt)
    before, at = found, len(found)
    if at == len(body):
        return None
    loop, after = body[at], body[at + 1 :]
    return (before, loop, after) if isinstance(loop, ir.For) and all(is_sum(s) for s in after) else None


def _is_grid_stride(loop: ir.For, values: dict[ir.Var, ir.Expr]) -> bool:
    step = bare(substitute(loop.step, values))
    if index_name(substitute(loop.start, values)) != f"{GLOBAL}.x" or loop.var.type.bits < 32:
        return False
    if not isinstance(step, ir.Binary) or step.op != "*":
        return False
    return {index_name(step.left), index_name(step.right)} == {"blockDim.x", "gridDim.x"}


def _index(t: Scalar) -> ir.Expr:
    index = ir.LaunchIndex(GLOBAL, "x") if t in (I32, U32) else ir.LaunchIndex(GLOBAL, "x", I64)
    return index if t == index.type else ir.Cast(index, t)


def _is_blind(loop: ir.For, after: ir.Block, before: Iterable[ir.Let | ir.Load]) -> bool:
    """True if an iteration does not know in which thread it runs."""
    knowing: set[ir.Var] = set()

    def knows(expr: ir.Expr) -> bool:
        return any(e in knowing if isinstance(e, ir.Var) else _is_of_thread(e) for e in ir.walk(expr))

    for stmt in before:
        knowing |= {stmt.var} if any(knows(e) for e in operands(stmt)) else set()
    used = [*expressions_in(loop.body), *(e for c in loop.carried for e in (c.init, c.next)), *expressions_in(after)]
    return not any(knows(e) for e in used)


def _is_of_thread(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.LaunchIndex) and expr.axis == "x" and expr.name not in ("blockDim", "gridDim")


# --- iterations of one thread ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """The subscript `factor * i + shift + rest`, the rest being the same in all iterations."""

    factor: int
    shift: int
    rest: frozenset[tuple[int, ir.Expr]]


def _is_independent(loop: ir.For, kernel: ir.Kernel) -> bool:
    inner = list(walk_stmts(loop.body))
    if not all(isinstance(s, _ALLOWED) for s in inner):
        return False
    own = {s.buffer for s in inner if isinstance(s, ir.Alloc)}
    if any(b.space is not Space.LOCAL for b in own):
        return False
    assigned = {s.var for s in inner if isinstance(s, ir.Assign)}
    if not assigned <= {s.var for s in inner if isinstance(s, ir.Let)}:
        return False
    values = expanded(s for s in inner if isinstance(s, ir.Let) and s.var not in assigned)
    accesses: dict[ir.Buffer, list[ir.Stmt]] = {}
    for stmt in inner:
        if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take) and stmt.buffer not in own:
            accesses.setdefault(stmt.buffer, []).append(stmt)
    return all(_carries_no_dependence(stmts, loop.var, values, kernel) for stmts in accesses.values())


def _carries_no_dependence(stmts: list[ir.Stmt], i: ir.Var, values: dict[ir.Var, ir.Expr], kernel: ir.Kernel) -> bool:
    """True if no two iterations meet at an element of the buffer that these statements access, or if they do it does not matter."""
    if all(isinstance(s, ir.Load) for s in stmts) or all(isinstance(s, ir.Accumulate) and s.how is ir.How.ATOMIC for s in stmts):
        return True
    if any(isinstance(s, ir.Accumulate | ir.Take) and s.how is not ir.How.PLAIN for s in stmts):
        return False
    places = [_place(substitute(operands(s)[0], values), i, kernel) for s in stmts]
    found = [p for p in places if p is not None]
    if len(found) < len(places) or len({(p.factor, p.rest) for p in found}) > 1:
        return False
    shifts = [p.shift for p in found]
    return max(shifts) - min(shifts) < found[0].factor


def _place(index: ir.Expr, i: ir.Var, kernel: ir.Kernel) -> _Place | None:
    factor, shift, rest = 0, 0, []
    for sign, term in index_terms(index, 1):
        times = 1 if term == i else _multiple(term, i)
        if times:
            factor += sign * times
        elif isinstance(term, ir.Constant):
            shift += sign * int(term.value)
        elif is_uniform(term, kernel):
            rest.append((sign, term))
        else:
            return None
    unique = frozenset(rest)
    return _Place(factor, shift, unique) if factor > 0 and len(unique) == len(rest) else None


def _multiple(term: ir.Expr, i: ir.Var) -> int:
    """The constant by which the term multiplies i; 0 if it is something else."""
    if isinstance(term, ir.Binary) and term.op == "*":
        for a, b in ((term.left, term.right), (term.right, term.left)):
            if isinstance(a, ir.Constant) and unconverted(b) == i:
                return max(int(a.value), 0)
    return 0


# --- sums --------------------------------------------------------------------------------------------------------------------------------


def _without_sums(loop: ir.For, after: ir.Block) -> ir.Block | None:
    """The body of the loop with the sums behind it, to each of which an iteration adds its own term; None if it carries anything else."""
    sums = {c.result: c.var for c in loop.carried}
    if not all(isinstance(c.init, ir.Constant) and c.init.value == 0 and c.init.type.is_float for c in loop.carried):
        return None
    if not all(isinstance(s, ir.Accumulate) and isinstance(s.index, ir.Constant) and is_linear(s.value, sums.keys()) for s in after):
        return None
    roots = {c.var: c.var for c in loop.carried}
    if not _only_grows(loop.body, roots) or any(_root(c.next, roots) != c.var for c in loop.carried):
        return None
    table = {c.var: c.init for c in loop.carried}
    ends = {c.result: _term(c.next, table) for c in loop.carried}
    return map_exprs(loop.body, lambda e: _term(e, table)) + tuple(visit_operands(s, lambda e: substitute(e, ends)) for s in after)


def _term(expr: ir.Expr, table: dict[ir.Var, ir.Expr]) -> ir.Expr:
    """The expression without the sum that it continues."""
    if isinstance(expr, ir.Binary) and expr.op == "+" and (expr.left in table or expr.right in table):
        return expr.right if expr.left in table else expr.left
    return substitute(expr, table)


def _only_grows(block: ir.Block, roots: dict[ir.Var, ir.Var]) -> bool:
    """True if the block uses the sums only to add to them; `roots` learns which variables are a sum with something added."""
    return all(_grows(stmt, roots) for stmt in block)


def _grows(stmt: ir.Stmt, roots: dict[ir.Var, ir.Var]) -> bool:
    if isinstance(stmt, ir.Let):
        return _joins(stmt.var, [stmt.value], roots)
    carried = stmt.carried if isinstance(stmt, ir.For) else ()
    plain = [e for e in operands(stmt) if not any(e is c.init for c in carried)]
    if any(v in roots for e in plain for v in ir.variables(e)):
        return False
    if isinstance(stmt, ir.While):
        return not any(v in roots for v in used_vars((stmt,)))
    if not all(_joins(c.var, [c.init], roots) for c in carried):
        return False
    if not all(_only_grows(inner, roots) for inner, _ in scopes(stmt)):
        return False
    merges = stmt.merges if isinstance(stmt, ir.If) else ()
    return all(_joins(m.var, [m.then, m.otherwise], roots) for m in merges) and all(
        _root(c.next, roots) == roots.get(c.var) and _joins(c.result, [c.next], roots) for c in carried
    )


def _joins(var: ir.Var, values: list[ir.Expr], roots: dict[ir.Var, ir.Var]) -> bool:
    """True if the values are all the same sum with something added, or none of them is; notes the sum that `var` continues."""
    if not any(v in roots for e in values for v in ir.variables(e)):
        return True
    found = {_root(e, roots) for e in values}
    if len(found) != 1 or None in found:
        return False
    roots[var] = next(r for r in found if r is not None)
    return True


def _root(expr: ir.Expr, roots: dict[ir.Var, ir.Var]) -> ir.Var | None:
    """The sum that the expression adds something to."""
    if isinstance(expr, ir.Var):
        return roots.get(expr)
    if not isinstance(expr, ir.Binary) or expr.op not in "+-":
        return None
    left, right = (any(v in roots for v in ir.variables(e)) for e in (expr.left, expr.right))
    if left == right or (right and expr.op == "-"):
        return None
    return _root(expr.left if left else expr.right, roots)
