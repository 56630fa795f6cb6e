"""Puts factors that terms of one sum share out of brackets.

In the gather of an all-pairs loop a thread adds what it sends to itself and what the other sends to it; both are made of the same distance
and the same root, and out of brackets most of what is done for the one is done for both. Nothing is multiplied out, and factors are
multiplied in the order in which they were, but for numbers near one: else a product of large and small numbers might leave the range on its
way. Where the chain rule's product is 0 because its seed is, it remains so: of two such products with one partial the seeds are added up.

Assumes unique definitions. Guarantees valid IR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import Assign, Binary, Block, Call, Constant, Expr, Let, Stmt, Unary, Var, variables
from ..ir.rewrite import map_blocks, rebuild
from .signs import signed
from .sums import Terms, added, adding, addition, terms

_SMALL = 1 << 10  # integers up to which sums are exact in every type, and a factor that matters to no range
_MOST = 12  # terms of a sum of which every two are compared


@dataclass
class Brackets:
    """Puts factors that terms of one sum share out of brackets; what is in the brackets gets a name, so that it is computed once."""

    linear: frozenset[Var]
    mutable: frozenset[Var]
    sums: Collection[Var]
    names: Names

    def block(self, block: Block, known: Mapping[Expr, Var]) -> Block:
        known = dict(known)
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known))
            made: list[Let] = []
            match stmt:
                case Let(var=var, value=value) if var in self.linear:
                    stmt = replace(stmt, value=self.expr(value, known, made))
                case Assign() if (parts := addition(stmt, self.sums)) is not None:
                    found = self.factored(parts, known, made)
                    stmt = adding(stmt, found) if found != parts else stmt
            out += (*(replace(let, span=stmt.span) for let in made), stmt)
        return tuple(out)

    def expr(self, expr: Expr, known: dict[Expr, Var], made: list[Let]) -> Expr:
        match expr:
            case Binary(op="+" | "-"):
                parts = terms(expr)
                found = self.factored(parts, known, made)
                return added(found) if found != parts else expr
            case Unary(op="-") | Binary(op="*") | Call(function="gpuad_chain"):
                return _gathered(rebuild(expr, lambda e: self.expr(e, known, made)))
            case Binary(op="/", left=x):
                return replace(expr, left=self.expr(x, known, made))
        return expr

    def factored(self, parts: Terms, known: dict[Expr, Var], made: list[Let]) -> Terms:
        """The terms with common factors put out of brackets, two at a time."""
        given = parts
        parts = [(sign, self.expr(part, known, made)) for sign, part in parts]
        given = parts if parts == given else [signed(part, sign) for sign, part in parts]
        if len(parts) > _MOST or not self.mutable.isdisjoint(v for _, part in parts for v in variables(part)):
            return given
        parts = [signed(part, sign) for sign, part in parts]
        if _pair(parts) is None:
            return given
        while (pair := _pair(parts)) is not None:
            i, j, common, left, right = pair
            s, t = parts[i][0], parts[j][0]
            inner = _chained(left, right, s == t) or _number(left, right, s == t)
            inner = inner or self.named(added([(True, left), (s == t, right)]), known, made)
            parts[i] = s, _product([*common, inner])
            del parts[j]
            parts = [p for p in parts if not b.is_const(p[1], 0)]
        return parts or [(True, b.zero(given[0][1].type))]

    def named(self, inner: Expr, known: dict[Expr, Var], made: list[Let]) -> Var:
        if inner not in known:
            name = next((v.name for v in variables(inner)), "sum")
            known[inner] = self.names.var(name, inner.type)
            made.append(Let(known[inner], self.expr(inner, known, made)))
        return known[inner]


def _pair(parts: Terms) -> tuple[int, int, list[Expr], Expr, Expr] | None:
    """The two terms that share most, what they share, and what is left of them; None if no two share anything but numbers."""
    best: tuple[int, int, list[Expr], Expr, Expr] | None = None
    for j in range(len(parts)):
        for i in range(j):
            common, left, right = _shared(parts[i][1], parts[j][1])
            shares = any(not isinstance(e, Constant) for e in common) or _meet(left, right)
            if shares and (best is None or len(common) > len(best[2])):
                best = i, j, common, left, right
    return best


def _shared(x: Expr, y: Expr) -> tuple[list[Expr], Expr, Expr]:
    """The numbers that both products have, and what both are multiplied by last; what is left of them."""
    (numbers, first), (others, second) = _sequence(x), _sequence(y)
    common = list((Counter(numbers) & Counter(others)).elements())
    left, right = (list((Counter(n) - Counter(common)).elements()) for n in (numbers, others))
    while (factor := next((e for e in _last(first) if e in _last(second)), None)) is not None:
        common.append(factor)
        first.remove(factor)
        second.remove(factor)
    return common, _of([*left, *first], x), _of([*right, *second], y)


def _sequence(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """The numbers near one in a product, and its other factors: what is multiplied by last comes first."""
    match expr:
        case Constant() if is_near_one(expr):
            return [expr], []
        case Binary(op="*", left=x, right=y) if not (_is_product(x) and _is_product(y)):
            outer, inner = (y, x) if _is_product(x) else (x, y)
            (numbers, one), (more, rest) = _sequence(outer), _sequence(inner)
            return [*numbers, *more], [*one, *rest]
    return [], [expr]


def _last(sequence: list[Expr]) -> list[Expr]:
    """By what a product may be said to be multiplied last: by either of two."""
    return sequence[:2] if len(sequence) == 2 else sequence[:1]


def _is_product(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op == "*"


def is_near_one(number: Constant) -> bool:
    """Whether a number may be multiplied by elsewhere: that moves what is between out of no range that matters."""
    return bool(1 / _SMALL <= abs(number.value) <= _SMALL)


def _of(factors: list[Expr], like: Expr) -> Expr:
    return _product(factors) if factors else b.const(1, like.type)


def _meet(left: Expr, right: Expr) -> bool:
    """Whether both are the chain rule's products with one partial."""
    match left, right:
        case Call(function="gpuad_chain", arguments=(_, p)), Call(function="gpuad_chain", arguments=(_, q)):
            return p == q
    return False


def _chained(left: Expr, right: Expr, same: bool) -> Expr | None:
    """The chain rule's product for the sum of both seeds, if there is one."""
    if not _meet(left, right):
        return None
    assert isinstance(left, Call)
    assert isinstance(right, Call)
    seed = added([(True, left.arguments[0]), (same, right.arguments[0])])
    return Call("gpuad_chain", (seed, left.arguments[1]), left.type)


def _gathered(expr: Expr) -> Expr:
    """The chain rule's product with numbers in front of it, and of its seed, as one in front of the partial, if that is exact."""
    match expr:
        case Binary(op="*", left=Constant() as c, right=Unary(op="-", operand=inner)):
            return b.neg(_gathered(b.mul(c, inner)))
        case Binary(op="*", left=Constant() as c, right=Call(function="gpuad_chain", arguments=(seed, partial)) as product):
            gathered = _multiple(c, partial)
            return replace(product, arguments=(seed, gathered)) if gathered is not None else expr
        case Call(function="gpuad_chain", arguments=(Binary(op="*", left=Constant() as c, right=seed), partial)):
            gathered = _multiple(c, partial)
            return replace(expr, arguments=(seed, gathered)) if gathered is not None else expr
    return expr


def _multiple(factor: Constant, expr: Expr) -> Expr | None:
    """The multiple of a product that has a number in front, if the product of both numbers is exact."""
    match expr:
        case Binary(op="*", left=Constant()) if is_near_one(factor):
            multiple = b.mul(factor, expr)
            return multiple if b.size(multiple) <= b.size(expr) else None
    return None


def _number(left: Expr, right: Expr, same: bool) -> Expr | None:
    """The sum of two small integers."""
    if not all(isinstance(e, Constant) and abs(e.value) < _SMALL and e.value == int(e.value) for e in (left, right)):
        return None
    assert isinstance(left, Constant)
    assert isinstance(right, Constant)
    return b.const(left.value + (right.value if same else -right.value), left.type)


def _product(of: Sequence[Expr]) -> Expr:
    """The product, numbers first."""
    result = of[-1]
    for factor in reversed(of[:-1]):
        result = b.mul(factor, result)
    return result
