"""Adjoints of expressions: a seed is sent down the tree, and each variable below collects its contributions.

A contribution is a term: an expression and the predicate under which the value was used, because an operand of the side of a
select that was not taken must get nothing, not 0 times infinity. `Ledger` holds the terms of one scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..analysis.activity import Activity, differentiable
from ..errors import UnsupportedError
from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import Binary, Call, Cast, Constant, Expr, Let, Select, Stmt, Unary, Var
from ..ir.types import Scalar
from ..source import Span
from .derivatives import partials


@dataclass(frozen=True)
class Term:
    """One contribution. `conditional`: it comes out of a loop or an If and may be 0 because nothing was executed there."""

    value: Expr
    predicate: Expr | None = None
    conditional: bool = False


@dataclass
class Ledger:
    """The contributions that one scope has collected so far, and the statements that it has emitted."""

    out: list[Stmt] = field(default_factory=list)
    terms: dict[Var, list[Term]] = field(default_factory=dict)

    def add(self, var: Var, term: Term) -> None:
        if not b.is_const(term.value, 0):
            self.terms.setdefault(var, []).append(term)

    def take(self, var: Var) -> list[Term]:
        """The terms of a variable whose definition has been reached."""
        return self.terms.pop(var, [])


def total(terms: list[Term], type_: Scalar) -> Expr:
    """The sum of the terms, each only where its predicate holds; terms under one predicate, and under its opposite, share a choice."""
    sums: dict[Expr | None, Expr] = {}
    for term in terms:
        sums[term.predicate] = b.add(sums.get(term.predicate, b.zero(type_)), term.value)
    result = sums.pop(None, b.zero(type_))
    while sums:
        predicate, value = next(iter(sums.items()))
        assert predicate is not None
        del sums[predicate]
        result = b.add(result, b.select(predicate, value, sums.pop(b.negate(predicate), b.zero(type_))))
    return result


def only_conditional(terms: list[Term]) -> bool:
    """Whether the value was used, if at all, inside a loop or an If that may not have run."""
    return all(t.conditional and t.predicate is None for t in terms)


def is_linear(expr: Expr) -> bool:
    """Whether all partials of the expression are numbers in the text, so that a seed of 0 surely contributes 0."""
    match expr:
        case Binary(op="+" | "-", left=x, right=y):
            return is_linear(x) and is_linear(y)
        case Binary(op="*", left=Constant(), right=x) | Binary(op="*" | "/", left=x, right=Constant()):
            return is_linear(x)
        case Unary(operand=x) | Cast(operand=x):
            return is_linear(x)
        case Binary() | Call():
            return not any(True for _ in differentiable(expr))
        case Select(then=x, otherwise=y):
            return is_linear(x) and is_linear(y)
    return True


def common_predicate(terms: list[Term]) -> Expr | None:
    """The predicate that all terms share, or None."""
    first = terms[0].predicate if terms else None
    return first if all(t.predicate == first for t in terms) else None


class Propagation:
    """Sends seeds down expression trees of one kernel."""

    def __init__(self, facts: Activity, names: Names) -> None:
        self.facts = facts
        self.names = names

    def send(
        self,
        ledger: Ledger,
        expr: Expr,
        seed: Expr,
        name: str,
        span: Span | None,
        predicate: Expr | None = None,
        result: Expr | None = None,
        *,
        conditional: bool = False,
    ) -> None:
        """Adds to the ledger what `seed`, the adjoint of `expr`, contributes to the active variables in it. `name` is that of the value,
        for intermediate adjoints; `result` a variable that holds the value, if there is one; `conditional` as in `Term`."""
        if b.is_const(seed, 0):
            return
        step = _Step(self, ledger, name, span, predicate, conditional)
        step.down(expr, seed, result)


@dataclass
class _Step:
    owner: Propagation
    ledger: Ledger
    name: str
    span: Span | None
    predicate: Expr | None
    conditional: bool = False
    powers: dict[Var, int] = field(default_factory=dict)  # of the product that is gone down: its factors that occur more than once

    def active(self, expr: Expr) -> bool:
        return self.owner.facts.expression(expr)

    def down(self, expr: Expr, seed: Expr, result: Expr | None = None) -> None:
        if not self.active(expr):
            return
        match expr:
            case Var():
                self.ledger.add(expr, Term(seed, self.predicate, self.conditional))
            case Unary(op="-", operand=a):
                self.down(a, b.neg(seed))
            case Cast(operand=a):
                self.down(a, b.cast(seed, a.type))
            case Select(condition=c, then=x, otherwise=y):
                seed = self.bind(expr, seed)
                self.under(c, lambda: self.down(x, seed))
                self.under(b.negate(c), lambda: self.down(y, seed))
            case Binary():
                self.binary(expr, self.bind(expr, seed), result)
            case Call():
                self.call(expr, self.bind(expr, seed), result)
            case _:
                raise UnsupportedError(f"no derivative for {type(expr).__name__}", self.span)

    def under(self, condition: Expr, action: Callable[[], None]) -> None:
        outer, self.predicate = self.predicate, b.both(self.predicate, condition)
        action()
        self.predicate = outer

    def bind(self, expr: Expr, seed: Expr) -> Expr:
        """The seed as a variable, if it is long and will be used more than once."""
        leaves = sum(1 for v in differentiable(expr) if v in self.owner.facts)
        if leaves < 2 or b.size(seed) <= 2:
            return seed
        var = self.owner.names.var(f"d{self.name}", seed.type)
        self.ledger.out.append(Let(var, seed, span=self.span))
        return var

    def binary(self, expr: Binary, seed: Expr, result: Expr | None) -> None:
        x, y = expr.left, expr.right
        match expr.op:
            case "+":
                self.down(x, seed)
                self.down(y, seed)
            case "-":
                self.down(x, seed)
                self.down(y, b.neg(seed))
            case "*" if is_product(expr):
                self.product(expr, seed)
            case "*":
                self.down(x, b.mul(b.mul(b.const(2, x.type), x), seed))
            case "/":
                self.quotient(expr, seed, result)
            case _:
                raise UnsupportedError(f"no derivative for operator '{expr.op}'", self.span)

    def product(self, expr: Binary, seed: Expr) -> None:
        """A variable that is a factor n times gets one term, n times what it gets for the factor that is come to first: all n are the same
        product, in another order."""
        outer, self.powers = self.powers, repeated(expr)
        self.factors(expr, seed)
        self.powers = outer

    def factors(self, expr: Expr, seed: Expr) -> None:
        match expr:
            case Binary(left=x, right=y) if is_product(expr):
                seed = self.bind(expr, seed)
                self.factors(x, b.mul(y, seed))
                self.factors(y, b.mul(x, seed))
            case Var() if expr in self.powers:
                times, self.powers[expr] = self.powers[expr], 0
                if times:
                    self.down(expr, b.mul(b.const(times, expr.type), seed))
            case _:
                self.down(expr, seed)

    def quotient(self, expr: Binary, seed: Expr, result: Expr | None) -> None:
        x, y = expr.left, expr.right
        if isinstance(y, Constant):
            return self.down(x, b.div(seed, y))
        if self.active(x):
            self.down(x, b.chain(seed, b.div(b.const(1, y.type), y)))
        if self.active(y):
            self.down(y, b.chain(seed, b.neg(b.div(result if result is not None else expr, y))))
        return None

    def call(self, expr: Call, seed: Expr, result: Expr | None) -> None:
        rule = partials(expr, result if result is not None else expr)
        if rule is None:
            raise UnsupportedError(f"the derivative of '{expr.function}' is not known", self.span)
        for argument, partial in zip(expr.arguments, rule, strict=True):
            if partial.value is not None and self.active(argument):
                self.down(argument, b.chain(seed, partial.value) if partial.singular else times(seed, partial.value))


def repeated(product: Expr) -> dict[Var, int]:
    """The variables that are factors of a product more than once, and how often."""
    found = Counter(e for e in factors(product) if isinstance(e, Var))
    return {v: n for v, n in found.items() if n > 1}


def factors(expr: Expr) -> Iterator[Expr]:
    """What a product is made of."""
    if isinstance(expr, Binary) and is_product(expr):
        yield from factors(expr.left)
        yield from factors(expr.right)
    else:
        yield expr


def is_product(expr: Expr) -> bool:
    """Whether the adjoint of an expression goes to both factors; the square of something longer is gone down once."""
    return isinstance(expr, Binary) and expr.op == "*" and (expr.left != expr.right or isinstance(expr.left, Var))


def times(seed: Expr, partial: Expr) -> Expr:
    """The product; a partial that is a choice among constants becomes a choice among multiples of the seed."""
    if isinstance(partial, Select):
        return b.select(partial.condition, times(seed, partial.then), times(seed, partial.otherwise))
    return b.mul(partial, seed)
