"""Factoring of linear values: common factors of a sum's terms, opposite signs, and powers of two are applied once.

A value is *linear* if each of its uses is a term or a factor of what is added to a sum, or of another linear value (`linear_values`). It
decides nothing, is no argument of a function, no divisor and no index, so it may be computed with another rounding, or another sign of
zero.

In the gather of an all-pairs loop a thread adds what it sends to itself and what the other sends to it. Both are made of one distance and
one root: `Signs` makes one of opposite differences, `Brackets` factors out what terms share, `factor_powers` multiplies once by a power of
two that all uses multiply by, as in the adjoint of a sum of squares; `factor_linear_values` repeats them until nothing changes. Nothing is
multiplied out, and factors keep their order, but for numbers near one, and the divisor of a mean (`postpone_means`): else a product of
large and small numbers might overflow on its way.
Where the chain rule's product is 0 because its seed is, it remains so: of two such products with one partial the seeds are added up.

Assumes unique definitions. Guarantees valid IR.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir import folding as b
from ..ir.nodes import Accumulate, Assign, Binary, Block, Call, Cast, Constant, Expr, If, Let, Stmt, Store, Unary, Var, variables
from ..ir.rewrite import Names, assigned_vars, expressions, map_blocks, map_stmt_exprs, rebuild, used_vars, walk_stmts
from .common_subexpressions import Terms, added, adding, addition, terms
from .simplify import simplify


def linear_values(body: Block, sums: Collection[Var]) -> frozenset[Var]:
    """The linear values of a body."""
    needs: dict[Var, list[Var]] = {}
    other: set[Var] = set(assigned_vars(body))
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


@dataclass
class Signs:
    """Moves signs to the sums: a linear value that would be negative is given as its opposite."""

    linear: frozenset[Var]
    mutable: frozenset[Var]
    sums: Collection[Var]
    names: Names
    renamed: dict[Var, Expr] = field(default_factory=dict)

    def block(self, block: Block, known: Mapping[tuple[Expr, Expr], Var]) -> Block:
        known = dict(known)
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known))
            match stmt:
                case Let(var=var, value=value) if var.type.is_float:
                    out += self.let(stmt, var, value, known)
                case Assign() if (parts := addition(stmt, self.sums)) is not None:
                    new = [(sign, self.put(part, known)) for sign, part in parts]
                    out.append(adding(stmt, [signed(part, sign) for sign, part in new]) if new != parts else stmt)
                case _:
                    out.append(stmt)  # what is linear occurs in no other
        return tuple(out)

    def let(self, stmt: Let, var: Var, value: Expr, known: dict[tuple[Expr, Expr], Var]) -> Iterator[Stmt]:
        if var in self.linear:
            value = self.put(value, known)
        if _is_name(value) and value != stmt.value:
            self.renamed[var] = value
            return
        if var in self.linear and (value != stmt.value or isinstance(value, Unary)):
            sign, value = signed(value)
            if not sign:
                minus = self.names.var(f"minus_{var.name}", var.type)
                self.renamed[var] = b.neg(minus)
                var = minus
        if isinstance(value, Binary) and value.op == "-" and self.mutable.isdisjoint(variables(value)):
            known.setdefault((value.left, value.right), var)
        yield replace(stmt, var=var, value=value)

    def put(self, expr: Expr, known: Mapping[tuple[Expr, Expr], Var]) -> Expr:
        """A linear expression with what has another name by now, and differences that are known or whose opposites are."""
        match expr:
            case Var():
                return self.renamed.get(expr, expr)
            case Binary(op="-", left=x, right=y) if (x, y) in known:
                return known[x, y]
            case Binary(op="-", left=x, right=y) if (y, x) in known:
                return b.neg(known[y, x])
            case Binary(op="/", left=x):
                new = self.put(x, known)
                return expr if new is x else replace(expr, left=new)
            case Unary(op="-") | Binary(op="+" | "-" | "*") | Call(function="gpuad_chain"):
                return rebuild(expr, lambda e: self.put(e, known))
        return expr


def _is_name(expr: Expr) -> bool:
    return isinstance(expr.operand if isinstance(expr, Unary) else expr, Var)


def signed(expr: Expr, sign: bool = True) -> tuple[bool, Expr]:
    """The expression, or its opposite (False), with as few signs inside as there need be."""
    match expr:
        case Unary(op="-", operand=inner):
            return signed(inner, not sign)
        case Binary(op="*" | "/", left=x, right=y) | Call(function="gpuad_chain", arguments=(x, y)):
            (s, x), (t, y) = signed(x), signed(y) if not _is_quotient(expr) else (True, y)
            changed = replace(expr, left=x, right=y) if isinstance(expr, Binary) else replace(expr, arguments=(x, y))
            return sign == (s == t), changed
        case Binary(op="+" | "-"):
            parts = [(s == t, e) for s, part in terms(expr) for t, e in (signed(part),)]
            if any(s for s, _ in parts):
                return sign, added(parts)
            return not sign, added([(True, e) for _, e in parts])
        case Constant(value=value) if value < 0:
            return not sign, b.neg(expr)
    return sign, expr


def _is_quotient(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op == "/"


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
            shares = any(not isinstance(e, Constant) for e in common) or _share_partial(left, right)
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
    """True if a number may be multiplied by elsewhere: that moves what is between out of no range that matters."""
    return bool(1 / _SMALL <= abs(number.value) <= _SMALL)


def _of(factors: list[Expr], like: Expr) -> Expr:
    return _product(factors) if factors else b.const(1, like.type)


def _share_partial(left: Expr, right: Expr) -> bool:
    """True if both are the chain rule's products with one partial."""
    match left, right:
        case Call(function="gpuad_chain", arguments=(_, p)), Call(function="gpuad_chain", arguments=(_, q)):
            return p == q
    return False


def _chained(left: Expr, right: Expr, same: bool) -> Expr | None:
    """The chain rule's product for the sum of both seeds, if there is one."""
    if not _share_partial(left, right):
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


_ROUNDS = 8


def factor_linear_values(body: Block, sums: Collection[Var], names: Names, first_own: int) -> Block:
    """The body with what goes into the sums rearranged. `sums`: variables that are added to, and stored at the end."""
    for _ in range(_ROUNDS):
        mutable = assigned_vars(body)
        new = simplify(Signs(linear_values(body, sums), mutable, sums, names).block(body, {}), first_own)
        new = simplify(Brackets(linear_values(new, sums), mutable, sums, names).block(new, {}), first_own)
        new = factor_powers(new, linear_values(new, sums), sums, first_own)
        if new == body:
            break
        body = new
    return body


def postpone_means(body: Block, sums: Collection[Var], scalars: Collection[Var]) -> Block:
    """The body in which a sum is multiplied once, at its end, by what the chain rule multiplies all its terms by, if that is one over a
    parameter that is an integer: the adjoint of a mean. `scalars`: the parameters."""
    for total in sums:
        added_up = [found for s in walk_stmts(body) if (found := addition(s, (total,))) is not None]
        parts = [part for found in added_up for _, part in found]
        means = {mean for part in parts if (mean := _mean(part, scalars)) is not None}
        given = sum(isinstance(s, Store | Accumulate) and s.value == total for s in walk_stmts(body))
        asked = sum(isinstance(s, If) and _is_any(s.condition, total) for s in walk_stmts(body))
        uses = sum(v == total for v in used_vars(body))
        known = all(_mean(part, scalars) is not None for part in parts) and uses == given + asked + len(added_up)
        if len(means) == 1 and given and known:
            body = _postponed(body, total, means.pop())
    return body


def _is_any(condition: Expr, total: Var) -> bool:
    """True if a condition asks if there is something to give, which a mean does not change."""
    return isinstance(condition, Call) and condition.function == "gpuad_collected" and condition.arguments == (total,)


def _mean(product: Expr, scalars: Collection[Var]) -> Expr | None:
    """One over a parameter, by which the chain rule multiplies a factor of a product; None where that is none, or several are."""
    found = [e.arguments[1] for e in factors(product) if isinstance(e, Call) and e.function == "gpuad_chain"]
    match found:
        case [Binary(op="/", left=Constant(value=1), right=Cast(operand=Var() as count)) as mean] if count in scalars:
            return mean if count.type.is_integer else None
    return None


def _postponed(block: Block, total: Var, mean: Expr) -> Block:
    def bare(expr: Expr) -> Expr:
        match expr:
            case Call(function="gpuad_chain", arguments=(seed, partial)) if partial == mean:
                return seed
            case Binary(op="*"):
                return rebuild(expr, bare)
        return expr

    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _postponed(inner, total, mean))
        parts = addition(stmt, (total,))
        if isinstance(stmt, Assign) and parts is not None:
            stmt = adding(stmt, [(sign, bare(part)) for sign, part in parts])
        elif isinstance(stmt, Store | Accumulate) and stmt.value == total:
            stmt = replace(stmt, value=b.chain(total, mean))
        out.append(stmt)
    return tuple(out)


def factor_powers(body: Block, among: Collection[Var], sums: Collection[Var], first_own: int) -> Block:
    """The body with one of these linear values, if there is such a one, multiplied where it is made and not where it is used."""
    found: dict[Var, list[float]] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, Let) and stmt.var in among:
            _note(stmt.value, found)
        for _, part in addition(stmt, sums) or ():
            _note(part, found)
    for var, powers in found.items():
        if var in among and var.uid >= first_own and len(powers) > 1 and powers[0] != 1 and len(set(powers)) == 1:
            return _by(body, var, b.const(powers[0], var.type), among, sums)
    return body


def _note(expr: Expr, found: dict[Var, list[float]]) -> None:
    """Notes by which power of two each variable is multiplied wherever it occurs; 1 where by none."""
    of = factors(expr)
    power = next((e.value for e in of if isinstance(e, Constant) and _is_power(e.value)), 1.0)
    for factor in of:
        if isinstance(factor, Var):
            found.setdefault(factor, []).append(power if of.count(factor) == 1 else 1.0)
        else:
            for inner in _inside(factor):
                _note(inner, found)


def factors(expr: Expr) -> list[Expr]:
    """What a product is made of."""
    match expr:
        case Binary(op="*", left=x, right=y):
            return [*factors(x), *factors(y)]
    return [expr]


def _without(expr: Expr, power: Constant) -> Expr | None:
    """The product without this factor; None if it has none."""
    match expr:
        case Binary(op="*", left=x, right=y):
            if power in (x, y):
                return y if x == power else x
            left, right = _without(x, power), _without(y, power)
            return replace(expr, left=left) if left is not None else replace(expr, right=right) if right is not None else None
    return None


def _inside(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Unary(operand=x):
            return (x,)
        case Binary(left=x, right=y) | Call(arguments=(x, y)):
            return (x, y)
    return ()


def _is_power(value: float) -> bool:
    return value not in (0, 1) and math.isfinite(value) and math.frexp(value)[0] == 0.5


def _by(block: Block, var: Var, power: Constant, among: Collection[Var], sums: Collection[Var]) -> Block:
    """The block with the variable a multiple of what it was."""

    def used(expr: Expr) -> Expr:
        return _without(expr, power) or expr if var in factors(expr) else rebuild(expr, used)

    out = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _by(inner, var, power, among, sums))
        if isinstance(stmt, Let) and stmt.var == var:
            stmt = replace(stmt, value=_power(power, stmt.value))
        elif addition(stmt, sums) is not None or (isinstance(stmt, Let) and stmt.var in among):
            stmt = map_stmt_exprs(stmt, used)
        out.append(stmt)
    return tuple(out)


def _power(power: Constant, expr: Expr) -> Expr:
    match expr:
        case Call(function="gpuad_chain", arguments=(seed, partial)):
            return b.chain(seed, b.mul(power, partial))
    return b.mul(power, expr)
