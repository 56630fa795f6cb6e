"""Rearranges what only goes into sums, so that the terms of one sum share their factors.

In the gather of an all-pairs loop a thread adds what it sends to itself and what the other sends to it. Both are made of the same
distance, but for its sign, and of the same root; put out of brackets, most of what is done for the one is done for both.

A value is *linear* if each of its uses is a term or a factor of what is added to a sum, or of another linear value: so it decides nothing, is
no argument of a function and no index, and may as well be computed with another rounding, or with another sign of zero. Only linear values
are touched, and three things are done to them: opposite differences become one with a sign, signs are moved to the sums, and common factors
are put out of brackets. Nothing is multiplied out. Where the chain rule's product is 0 because its seed is, it remains so: its seeds are added
up, and the partial is the same.

Assumes unique definitions. Guarantees valid IR.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import build as b
from ..ir.nodes import Accumulate, Assign, Binary, Block, Call, Constant, Expr, Let, Stmt, Store, Unary, Var, variables
from ..ir.rewrite import expressions, map_blocks, map_stmt_exprs, rebuild, substitute, walk_stmts
from .globally import assigned
from .names import Names
from .simplify import simplify
from .sums import Terms, added, adding, addition, terms

_ROUNDS = 8
_SMALL = 1 << 10  # numbers up to which sums are exact in every type
_MOST = 12  # terms of a sum of which every two are compared


def rearranged(body: Block, sums: Collection[Var], names: Names, first_own: int) -> Block:
    """The body with what goes into the sums rearranged. `sums`: variables that are added to, and stored at the end."""
    for _ in range(_ROUNDS):
        mutable = assigned(body)
        new = simplify(_Signs(linear(body, sums), mutable, sums, names).block(body, {}), first_own)
        new = simplify(_Brackets(linear(new, sums), mutable, sums, names).block(new, {}), first_own)
        new = _scaled(new, linear(new, sums), sums, first_own)
        if new == body:
            break
        body = new
    return body


# --- which values are linear ---------------------------------------------------------------------------------------------------------


def linear(body: Block, sums: Collection[Var]) -> frozenset[Var]:
    """The linear values of a body."""
    needs: dict[Var, list[Var]] = {}
    other: set[Var] = set(assigned(body))
    for stmt in walk_stmts(body):
        straight, bent = _uses(stmt, sums)
        other |= set(bent)
        if isinstance(stmt, Let):
            needs.setdefault(stmt.var, []).extend(straight)
    pending = [v for v in other if v in needs]
    while pending:
        for var in needs[pending.pop()]:
            if var not in other:
                other.add(var)
                pending += [var] if var in needs else []
    return frozenset(v for v in needs if v.type.is_float and v not in other)


def _uses(stmt: Stmt, sums: Collection[Var]) -> tuple[list[Var], list[Var]]:
    """The variables that a statement uses as terms and factors of a value or of what it adds to a sum, and those that it uses otherwise."""
    straight: list[Var] = []
    bent: list[Var] = []
    if isinstance(stmt, Let) and stmt.var.type.is_float:
        _part(stmt.value, straight, bent)
    elif (parts := addition(stmt, sums)) is not None:
        for _, part in parts:
            _part(part, straight, bent)
    elif isinstance(stmt, Store | Accumulate) and stmt.value in sums:
        bent += variables(stmt.index)
    else:
        bent += [v for e in expressions(stmt) for v in variables(e)]
    return straight, bent


def _part(expr: Expr, straight: list[Var], bent: list[Var]) -> None:
    match expr:
        case Var():
            straight.append(expr)
        case Unary(op="-", operand=inner):
            _part(inner, straight, bent)
        case Binary(op="+" | "-" | "*", left=x, right=y) | Call(function="gpuad_chain", arguments=(x, y)):
            _part(x, straight, bent)
            _part(y, straight, bent)
        case Binary(op="/", left=x, right=y):
            _part(x, straight, bent)
            bent += variables(y)
        case _:
            bent += variables(expr)


# --- signs ---------------------------------------------------------------------------------------------------------------------------


@dataclass
class _Signs:
    """Moves signs to the sums: a linear value that would be negative is given as its opposite."""

    linear: frozenset[Var]
    mutable: frozenset[Var]
    sums: Collection[Var]
    names: Names

    def __post_init__(self) -> None:
        self.renamed: dict[Var, Expr] = {}

    def block(self, block: Block, known: Mapping[tuple[Expr, Expr], Var]) -> Block:
        known = dict(known)
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known))
            match stmt:
                case Let(var=var, value=value) if var.type.is_float:
                    out += self.let(stmt, var, substitute(value, self.renamed), known)
                case Assign() if (parts := addition(stmt, self.sums)) is not None and self.concerns(parts):
                    out.append(adding(stmt, [(sign == s, e) for sign, part in parts for s, e in self.terms(part)]))
                case _:
                    out.append(stmt)  # what is linear occurs in no other
        return tuple(out)

    def concerns(self, parts: Terms) -> bool:
        return any(v in self.renamed for _, part in parts for v in variables(part))

    def terms(self, part: Expr) -> Terms:
        return [_signed(part, sign) for sign, part in terms(substitute(part, self.renamed))]

    def let(self, stmt: Let, var: Var, value: Expr, known: dict[tuple[Expr, Expr], Var]) -> Iterator[Stmt]:
        if isinstance(value, Binary) and value.op == "-" and self.mutable.isdisjoint(variables(value)):
            opposite = known.get((value.right, value.left))
            if opposite is not None and var in self.linear:
                self.renamed[var] = b.neg(opposite)
                return
            known.setdefault((value.left, value.right), var)
        if var not in self.linear or value == stmt.value and not isinstance(value, Unary):
            yield replace(stmt, value=value)
            return
        sign, value = _signed(value)
        if not sign:
            minus = self.names.var(f"minus_{var.name}", var.type)
            self.renamed[var] = b.neg(minus)
            var = minus
        yield replace(stmt, var=var, value=value)


def _signed(expr: Expr, sign: bool = True) -> tuple[bool, Expr]:
    """The expression, or its opposite (False), with as few signs inside as there need be."""
    match expr:
        case Unary(op="-", operand=inner):
            return _signed(inner, not sign)
        case Binary(op="*" | "/", left=x, right=y) | Call(function="gpuad_chain", arguments=(x, y)):
            (s, x), (t, y) = _signed(x), _signed(y) if not _is_quotient(expr) else (True, y)
            changed = replace(expr, left=x, right=y) if isinstance(expr, Binary) else replace(expr, arguments=(x, y))
            return sign == (s == t), changed
        case Binary(op="+" | "-"):
            parts = [(s == t, e) for s, part in terms(expr) for t, e in (_signed(part),)]
            if any(s for s, _ in parts):
                return sign, added(parts)
            return not sign, added([(True, e) for _, e in parts])
        case Constant(value=value) if value < 0:
            return not sign, b.neg(expr)
    return sign, expr


def _is_quotient(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op == "/"


# --- brackets ------------------------------------------------------------------------------------------------------------------------


@dataclass
class _Brackets:
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
        parts = [(sign, self.expr(part, known, made)) for sign, part in parts]
        given = parts
        if len(parts) > _MOST or not self.mutable.isdisjoint(v for _, part in parts for v in variables(part)):
            return given
        parts = [_signed(part, sign) for sign, part in parts]
        if _pair(parts) is None:
            return given
        while (pair := _pair(parts)) is not None:
            i, j, common = pair
            (s, x), (t, y) = parts[i], parts[j]
            left, right = _without(x, common), _without(y, common)
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


def _pair(parts: Terms) -> tuple[int, int, list[Expr]] | None:
    """The two terms that share most, and what they share; None if no two share anything but numbers."""
    best: tuple[int, int, list[Expr]] | None = None
    for j in range(len(parts)):
        for i in range(j):
            x, y = (Counter(_factors(parts[k][1])) for k in (i, j))
            common = list((x & y).elements())
            shares = any(not isinstance(e, Constant) for e in common)
            if (shares or _meet(_rest(x, common), _rest(y, common))) and (best is None or len(common) > len(best[2])):
                best = i, j, common
    return best


def _rest(found: Counter[Expr], common: Sequence[Expr]) -> list[Expr]:
    return list((found - Counter(common)).elements())


def _meet(left: list[Expr], right: list[Expr]) -> bool:
    """Whether both are the chain rule's products with one partial."""
    match left, right:
        case [Call(function="gpuad_chain", arguments=(_, p))], [Call(function="gpuad_chain", arguments=(_, q))]:
            return p == q
    return False


def _chained(left: Expr, right: Expr, same: bool) -> Expr | None:
    """The chain rule's product for the sum of both seeds, if there is one."""
    if not _meet([left], [right]):
        return None
    assert isinstance(left, Call)
    assert isinstance(right, Call)
    seed = added([(True, left.arguments[0]), (same, right.arguments[0])])
    return Call("gpuad_chain", (seed, left.arguments[1]), left.type)


def _gathered(expr: Expr) -> Expr:
    """The chain rule's product with numbers in front of it, and of its seed, as one in front of the partial, if that is exact."""
    match expr:
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
        case Binary(op="*", left=Constant()) if factor.value and math.isfinite(factor.value):
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


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Binary(op="*", left=x, right=y):
            return [*_factors(x), *_factors(y)]
    return [expr]


def _without(expr: Expr, common: Sequence[Expr]) -> Expr:
    """The product without these factors; the others stay in their order."""
    left = Counter(common)
    rest: list[Expr] = []
    for factor in _factors(expr):
        if left[factor]:
            left[factor] -= 1
        else:
            rest.append(factor)
    return _product(rest) if rest else b.const(1, expr.type)


def _product(of: Sequence[Expr]) -> Expr:
    """The product, numbers first."""
    result = of[-1]
    for factor in reversed(of[:-1]):
        result = b.mul(factor, result)
    return result


# --- powers of two -------------------------------------------------------------------------------------------------------------------


def _scaled(body: Block, among: Collection[Var], sums: Collection[Var], first_own: int) -> Block:
    """The body with what all uses of a value multiply by the same power of two multiplied by it once."""
    found: dict[Var, list[float]] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, Let) and stmt.var in among:
            _note(stmt.value, found)
        for _, part in addition(stmt, sums) or ():
            _note(part, found)
    for var, factors in found.items():
        factor = factors[0]
        if var in among and var.uid >= first_own and len(factors) > 1 and factor != 1 and factors == [factor] * len(factors):
            return _by(body, var, factor, among, sums)
    return body


def _note(expr: Expr, found: dict[Var, list[float]]) -> None:
    """Notes by which power of two each variable is multiplied wherever it occurs; 1 where by none."""
    factors = _factors(expr)
    power = next((e.value for e in factors if isinstance(e, Constant) and _is_power(e.value)), 1.0)
    for factor in factors:
        if isinstance(factor, Var):
            found.setdefault(factor, []).append(power if factors.count(factor) == 1 else 1.0)
        else:
            for inner in _inside(factor):
                _note(inner, found)


def _inside(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Unary(operand=x):
            return (x,)
        case Binary(left=x, right=y) | Call(arguments=(x, y)):
            return (x, y)
    return ()


def _is_power(value: float) -> bool:
    return value not in (0, 1) and math.isfinite(value) and math.frexp(value)[0] == 0.5


def _by(block: Block, var: Var, factor: float, among: Collection[Var], sums: Collection[Var]) -> Block:
    def f(expr: Expr) -> Expr:
        factors = _factors(expr)
        if len(factors) > 1 and var in factors:
            return _product([e for e in _without_one(factors, factor)])
        return rebuild(expr, f)

    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _by(inner, var, factor, among, sums))
        if isinstance(stmt, Let) and stmt.var == var:
            stmt = replace(stmt, value=_times(factor, stmt.value))
        elif addition(stmt, sums) is not None or (isinstance(stmt, Let) and stmt.var in among):
            stmt = map_stmt_exprs(stmt, f)
        out.append(stmt)
    return tuple(out)


def _without_one(factors: Sequence[Expr], value: float) -> Iterator[Expr]:
    at = next(k for k, e in enumerate(factors) if isinstance(e, Constant) and e.value == value)
    yield from (e for k, e in enumerate(factors) if k != at)


def _times(factor: float, expr: Expr) -> Expr:
    match expr:
        case Call(function="gpuad_chain", arguments=(seed, partial)):
            return b.chain(seed, b.mul(b.const(factor, partial.type), partial))
    return b.mul(b.const(factor, expr.type), expr)
