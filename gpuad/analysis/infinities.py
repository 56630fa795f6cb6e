"""What may be infinite although the parameters of a kernel are not: values of functions that overflow, and what is made of them.

A derivative is a product, and where a value has overflowed some factor is infinite. `1 / (1 + exp(-x))` tends to 0, and so does its
derivative: the seed of `exp` is 0, its partial infinite. This analysis finds the products that may be such, so that the others are left as
they are. Poles (a quotient, a logarithm) count where their own partial is formed, not in what is made of them: a body's distance is a
number in most kernels. What a kernel reads before it writes it counts as finite. Else this errs on the side of more.

`exp` of what is at most 0, such as `exp(-d * d)`, does not overflow: signs of values are followed through what they are made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from ..ir import nodes as ir
from ..ir.functions import BOUNDED, CHOOSING, OVERFLOWING, POLES, POSITIVE, SATURATING, VERTICAL
from ..ir.rewrite import blocks, expressions, walk_stmts
from ..ir.types import F64
from .flows import Value, closure, differentiable, flows

_SOURCE = ir.Var("infinity", F64, -1)  # a stand-in for what overflows


@dataclass(frozen=True)
class Infinities:
    """The variables and memory of a kernel that may be infinite, the signs of variables, and whether the kernel comes back from infinity:
    by a denominator, or a function that is finite there or gives another argument. `saturated`: what is made of such. `vertical`: infinite
    seeds of such come from vertical slopes of finite values alone (a root), none from a pole (a logarithm)."""

    found: frozenset[Value]
    signs: Mapping[ir.Var, int]
    comes_back: bool = False
    saturated: frozenset[Value] = frozenset()
    vertical: bool = False

    def may_be(self, expr: ir.Expr) -> bool:
        """True if an expression over values of the kernel may be infinite."""
        return any(v == _SOURCE or v in self.found for v in _carried(expr, self.signs))

    def may_saturate(self, expr: ir.Expr) -> bool:
        """True if an expression may have its value from what was infinite."""
        return any(v == _SOURCE or v in self.saturated for v in self.saturating(expr))

    def saturating(self, expr: ir.Expr) -> Iterator[ir.Var]:
        """The variables that an expression has its value from, and the stand-in if that comes from what was infinite in it."""
        yield from differentiable(expr)
        if any(self.may_be(e) for e in _limited(expr)):
            yield _SOURCE


def infinities(kernel: ir.Kernel) -> Infinities:
    """What may be infinite in a kernel."""
    signs: dict[ir.Var, int] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, ir.Let):
            signs[stmt.var] = _sign(stmt.value, signs)
    unread = frozenset(b for b in kernel.params if isinstance(b, ir.Buffer)) - _read_again(kernel.body)
    found = Infinities(closure(frozenset((_SOURCE,)), flows(kernel, lambda e: _carried(e, signs)), unread), signs)
    saturated = closure(frozenset((_SOURCE,)), flows(kernel, found.saturating), unread)
    found = replace(found, saturated=saturated)
    every = [e for s in walk_stmts(kernel.body) for top in expressions(s) for e in ir.walk(top)]
    settled = _of_parameters(kernel)
    comes_back = any(found.may_be(limited) and not settled.issuperset(ir.variables(limited)) for e in every for limited in _limits(e))
    slopes = any(map(found.may_saturate, _arguments(every, VERTICAL)))
    poles = slopes and any(map(found.may_saturate, (*_arguments(every, POLES), *(e.right for e in every if _is_quotient(e)))))
    return replace(found, comes_back=comes_back, vertical=slopes and not poles)


def _of_parameters(kernel: ir.Kernel) -> frozenset[ir.Var]:
    """The variables that numbers given to the launch alone decide: where one has overflowed, so it has for all of the data."""
    found = {p for p in kernel.params if isinstance(p, ir.Var)}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, ir.Let) and found.issuperset(ir.variables(stmt.value)):
            found.add(stmt.var)
    return frozenset(found)


def _arguments(every: list[ir.Expr], functions: frozenset[str]) -> Iterator[ir.Expr]:
    """What these functions are given."""
    for expr in every:
        if isinstance(expr, ir.Call) and expr.function in functions:
            yield from (a for a in expr.arguments if a.type.is_float)


def _is_quotient(expr: ir.Expr) -> TypeGuard[ir.Binary]:
    return isinstance(expr, ir.Binary) and expr.op == "/" and expr.type.is_float


def _read_again(block: ir.Block, written: frozenset[ir.Buffer] = frozenset()) -> frozenset[ir.Buffer]:
    """The memory that is read behind a statement that writes it, or in a loop that does; `written`: what has been written before."""
    found: set[ir.Buffer] = set()
    before = set(written)
    for stmt in block:
        inner = tuple(walk_stmts((stmt,)))
        stored = {s.buffer for s in inner if isinstance(s, ir.Store | ir.Accumulate | ir.Atomic)}
        if isinstance(stmt, ir.If):
            for side in blocks(stmt):
                found |= _read_again(side, frozenset(before))
        else:
            known = before | (stored if len(inner) > 1 else set())
            found |= {s.buffer for s in inner if isinstance(s, ir.Load | ir.Take) and s.buffer in known}
        before |= stored
    return frozenset(found)


def _limited(expression: ir.Expr) -> Iterator[ir.Expr]:
    """What may be infinite while an expression makes something finite of it."""
    for expr in ir.walk(expression):
        yield from _limits(expr)


def _limits(expr: ir.Expr) -> Iterator[ir.Expr]:
    """What may be infinite while an operation makes something finite of it."""
    match expr:
        case ir.Binary(op="/", right=y):
            yield y
        case ir.Call(function=function, arguments=arguments) if function in SATURATING or function in CHOOSING:
            yield from arguments


def _carried(expr: ir.Expr, signs: Mapping[ir.Var, int]) -> Iterator[ir.Var]:
    """The variables that make the expression infinite if they are, and the stand-in if it overflows by itself."""
    if not expr.type.is_float:
        return
    match expr:
        case ir.Var():
            yield expr
        case ir.Binary(op="/", left=x):
            yield from _carried(x, signs)
        case ir.Call(function=function, arguments=arguments) if function in OVERFLOWING:
            if not (function in POSITIVE and _sign(arguments[0], signs) < 0):
                yield _SOURCE
        case ir.Call(function=function) if function in BOUNDED:
            return
        case ir.Select(then=x, otherwise=y):
            yield from _carried(x, signs)
            yield from _carried(y, signs)
        case _:
            for child in ir.children(expr):
                yield from _carried(child, signs)


def _sign(expr: ir.Expr, signs: Mapping[ir.Var, int]) -> int:
    """1 where an expression is surely at least 0 (or NaN), -1 where it is at most 0, 0 where it is not known."""
    match expr:
        case ir.Constant(value=value):
            return 1 if value >= 0 else -1
        case ir.Var():
            return signs.get(expr, 0)
        case ir.Unary(op="-", operand=x):
            return -_sign(x, signs)
        case ir.Cast(operand=x):
            return 1 if x.type.kind == "uint" else _sign(x, signs)
        case ir.Binary(op="*"):
            return _sign_of_product(expr, signs)
        case ir.Binary(op="/", left=x, right=y):
            return _sign(x, signs) * _sign(y, signs)
        case ir.Binary(op="+" | "-" as op, left=x, right=y):
            left, right = _sign(x, signs), _sign(y, signs)
            return left if left == (right if op == "+" else -right) else 0
        case ir.Call(function="fmax" | "fmin" as function, arguments=(x, y)):
            both = _sign(x, signs), _sign(y, signs)
            return max(both) if function == "fmax" and max(both) > 0 else min(both) if function == "fmin" and min(both) < 0 else 0
        case ir.Call(function=function) if function in POSITIVE:
            return 1
    return 0


def _sign_of_product(product: ir.Expr, signs: Mapping[ir.Var, int]) -> int:
    sign = 1
    for factor, times in Counter(_factors(product)).items():
        sign *= _sign(factor, signs) if times % 2 else 1
    return sign


def _factors(expr: ir.Expr) -> Iterator[ir.Expr]:
    if isinstance(expr, ir.Binary) and expr.op == "*":
        yield from _factors(expr.left)
        yield from _factors(expr.right)
    else:
        yield expr
