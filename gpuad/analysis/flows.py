"""Which values reach which others: pairs of float variables and float memory, and what is reached over them.

Scalars are followed by their definitions, memory as one, whatever the order of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.functions import STEPS
from ..ir.rewrite import assigned_vars, walk_stmts

Value: TypeAlias = "ir.Var | ir.Buffer"


def differentiable(expr: ir.Expr, *, steps: bool = True) -> Iterator[ir.Var]:
    """The float Vars on which the expression depends differentiably; without `steps`, those whose derivative is not 0 by the table."""
    waiting = [expr]
    while waiting:  # no recursion: a sum of a thousand terms is as deep, and each level of generators hands on all that is below it
        found = waiting.pop()
        if isinstance(found, ir.Var) and found.type.is_float:
            yield found
        elif steps or not (isinstance(found, ir.Call) and found.function in STEPS):
            waiting.extend(differentiable_parts(found)[::-1])


def not_cancelled(kernel: ir.Kernel) -> Callable[[ir.Expr], Iterator[ir.Var]]:
    """As `differentiable`, without what cancels in a sum of sums: `(q - s) - p` depends on nothing where `q` is `s + p`. So what a
    compensated sum carries on has no derivative."""
    mutable = assigned_vars(kernel.body)
    lets = {s.var: s.value for s in walk_stmts(kernel.body) if isinstance(s, ir.Let) and s.var.type.is_float and s.var not in mutable}

    def terms(expr: ir.Expr, sign: int, found: dict[ir.Expr, int], most: int) -> bool:
        """Adds the terms of a sum to those found; false if there are too many, or variables that change."""
        if expr in mutable or len(found) > most:
            return False
        match lets.get(expr, expr) if isinstance(expr, ir.Var) else expr:
            case ir.Binary(op="+" | "-" as op, left=left, right=right) if expr.type.is_float:
                return terms(left, sign, found, most) and terms(right, sign if op == "+" else -sign, found, most)
            case ir.Unary(op="-", operand=operand):
                return terms(operand, -sign, found, most)
            case ir.Select(then=then, otherwise=otherwise) if expr.type.is_float:
                sides: list[dict[ir.Expr, int]] = [{}, {}]
                known = all([terms(side, sign, its, most) for side, its in zip((then, otherwise), sides, strict=True)])
                first, second = ({e: n for e, n in its.items() if n} for its in sides)
                if known and first == second:
                    found.update({e: found.get(e, 0) + n for e, n in first.items()})
                    return True
        found[expr] = found.get(expr, 0) + sign
        return True

    def remaining(expr: ir.Expr) -> Iterator[ir.Var]:
        found: dict[ir.Expr, int] = {}
        if _is_difference(expr) and terms(expr, 1, found, _TERMS) and not all(found.values()):
            return (v for e, times in found.items() if times for v in differentiable(e))
        return differentiable(expr)

    return remaining


_TERMS = 8  # of a sum that is looked at for terms that cancel


def _is_difference(expr: ir.Expr) -> bool:
    """True if an expression is a sum of several terms, some with a minus."""
    sums = [expr]
    for each in sums:
        inner = ir.children(each) if len(sums) < 2 * _TERMS else ()
        sums += [e for e in inner if isinstance(e, ir.Select) or (isinstance(e, ir.Binary) and e.op in ("+", "-") and e.type.is_float)]
    return len(sums) > 1 and isinstance(expr, ir.Binary) and expr.op in ("+", "-") and any(getattr(e, "op", "") == "-" for e in sums)


def differentiable_parts(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The direct subexpressions on which an expression may depend differentiably."""
    if not expr.type.is_float or (isinstance(expr, ir.Cast) and not expr.operand.type.is_float):
        return ()
    return (expr.then, expr.otherwise) if isinstance(expr, ir.Select) else ir.children(expr)


def flows(kernel: ir.Kernel, carried_by: Callable[[ir.Expr], Iterable[ir.Var]]) -> Iterator[tuple[Value, Value]]:
    """Pairs (from, to) of float variables and float memory; `carried_by` says from which variables something reaches an expression."""
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case ir.Let(var=var, value=value) | ir.Assign(var=var, value=value):
                yield from ((v, var) for v in carried_by(value))
            case ir.Load(var=var, buffer=buffer) | ir.Take(var=var, buffer=buffer) if var.type.is_float:
                yield buffer, var
            case ir.Push(stack=stack, values=values):
                yield from ((v, _field(stack, i)) for i, value in enumerate(values) for v in carried_by(value))
            case ir.Pop(stack=stack, vars=popped):
                yield from ((_field(stack, i), v) for i, v in enumerate(popped))
            case ir.Store(buffer=buffer, value=value) | ir.Accumulate(buffer=buffer, value=value):
                yield from ((v, buffer) for v in carried_by(value))
            case ir.Atomic(var=result, buffer=buffer, operands=operands) if buffer.element.is_float:
                yield from ((v, buffer) for o in operands for v in carried_by(o))
                if result is not None:
                    yield buffer, result
            case ir.Shuffle(var=var, value=value):
                yield from ((v, var) for v in carried_by(value))
            case ir.If(merges=merges):
                yield from ((v, m.var) for m in merges for side in (m.then, m.otherwise) for v in carried_by(side))
            case ir.For(carried=carried) | ir.While(carried=carried):
                yield from ((v, to) for c in carried for side in (c.init, c.next) for v in carried_by(side) for to in (c.var, c.result))


def _field(stack: ir.Stack, index: int) -> ir.Var:
    """A stand-in for what lies in one field of a stack."""
    return ir.Var(f"{stack.name}[{index}]", stack.fields[index][1], -stack.uid)


def closure(start: frozenset[Value], edges: Iterable[tuple[Value, Value]], blocked: frozenset[Value] = frozenset()) -> frozenset[Value]:
    """What is reached from `start` over the edges, not through `blocked`."""
    graph: dict[Value, list[Value]] = {}
    for a, b in edges:
        graph.setdefault(a, []).append(b)
    seen = set(start)
    work = list(start)
    while work:
        for target in graph.get(work.pop(), ()):
            if target not in seen and target not in blocked:
                seen.add(target)
                work.append(target)
    return frozenset(seen)
