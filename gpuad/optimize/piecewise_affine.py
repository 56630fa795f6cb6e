"""Decomposes the index of an accumulation into affine pieces: at clamps, remainders and choices.

`u[(i + 1) % n]` is `u[i + 1]` as long as `i + 1 < n`, and `u[i + 1 - n]` for the last thread; `u[max(i - 1, 0)]` is `u[i - 1]` or, for
thread 0, `u[i]`. Each *piece* is an index under conditions, and exact under these: conditions and indices are made of the user's own
expressions. A piece that ought not to be needed (`i + 1 >= 2 * n`) is left out: that no thread of a launch gets there is for a certificate
to say.

Where a piece does not depend on the thread, its conditions may leave few threads; each of these is *pinned*: `0` under `i == 0` is `i`. To
propose shifts, a bend is a *lap* along its axis, whatever it amounts to in elements: else a row's end would be taken for the next row's
beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.index_polynomials import Polynomial, atoms, constant, plus, polynomial, scale, split, times
from ..ir import folding as b
from ..ir.folding import COMPARE
from ..ir.nodes import MIRRORED, Binary, Call, Constant, Expr, LaunchIndex, Select, Unary, Var, variables, walk
from ..ir.rewrite import Names, is_short, map_expr, rebuild, substitute
from ..ir.types import I32

MOST = 12  # pieces of one index
_LONG = 512  # parts of one
PINS = 8  # threads that are told apart


@dataclass(frozen=True)
class Piece:
    """An index where `conditions` hold. `marked`: the same with laps for what bends add to it; `bends`: the nodes that bend, and what each
    of them comes to."""

    conditions: tuple[Expr, ...]
    index: Expr
    marked: Expr
    bends: tuple[tuple[Expr, Expr], ...] = ()


class TooMany(Exception):
    """An index has more pieces than anybody wants to read."""


class PiecewiseAffine:
    """Takes indices apart. `laps`: what each lap amounts to, over parameters."""

    def __init__(self, lets: Mapping[Var, Expr], senders: Sequence[Var], scalars: frozenset[Var], names: Names) -> None:
        self.lets = lets
        self.senders = senders
        self.scalars = scalars
        self.names = names
        self.laps: dict[Var, Polynomial] = {}
        self._known: dict[str, Var] = {}
        self._bending: dict[Var, Expr | None] = {}
        self._guessing = True

    def pieces(self, index: Expr, around: Sequence[Expr], *, guessing: bool = True) -> list[Piece]:
        """The pieces of an index where the conditions `around` hold. `guessing`: of a piece that does not depend on the thread, and whose
        conditions do not say how many threads get there, it is supposed that two do. Raises TooMany."""
        full, self._guessing = self.expanded(index), guessing
        return self.split(Piece((), full, full), around)

    def expanded(self, expr: Expr) -> Expr:
        """The expression without variables behind which it bends."""
        found = {v: value for v in dict.fromkeys(variables(expr)) if (value := self.bending(v)) is not None}
        return _readable(substitute(expr, found))

    def bending(self, var: Var) -> Expr | None:
        """What a variable is, if that bends."""
        if var not in self._bending:
            full = self.expanded(self.lets[var]) if var in self.lets else None
            self._bending[var] = full if full is not None and any(_bends(e) for e in walk(full)) else None
        return self._bending[var]

    def split(self, piece: Piece, around: Sequence[Expr]) -> list[Piece]:
        node, marked = _innermost(piece.index), _innermost(piece.marked)
        if node is None or marked is None:
            if node is not marked:
                raise TooMany
            return [piece]
        out: list[Piece] = []
        for part in self.alternatives(node, marked, (*around, *piece.conditions)):
            index, far = _put(piece.index, node, part.index), _put(piece.marked, marked, part.marked)
            conditions, bends = (*piece.conditions, *part.conditions), (*piece.bends, *part.bends)
            out += self.split(Piece(conditions, index, far, bends), around)
            if len(out) > MOST:
                raise TooMany
        return out

    def alternatives(self, node: Expr, marked: Expr, around: Sequence[Expr]) -> list[Piece]:
        """What may stand in place of a node that bends."""
        laps = self.quotients(node)
        parts = [replace(p, marked=q.index) for p, q in zip(_parts(node, laps), _parts(marked, laps), strict=True)]
        axis = self.bent(parts)
        if axis is None:
            return parts
        var, slope = axis
        out: list[Piece] = []
        for part in parts:
            if self.slope(part.marked, var):
                out.append(part)
            else:
                out += self.pinned(part, var, slope, around)
        return self.lapped(out, slope) if out else []

    def quotients(self, node: Expr) -> tuple[int, int]:
        """The least and greatest quotient that a remainder may be left by, if its thread index is less than the divisor."""
        if not isinstance(node, Binary) or node.op != "%":
            return 0, 1
        divisor = polynomial(node.right, self.lets)
        rest = polynomial(node.left, self.lets)
        for v in self.senders:
            parts = split(rest, v)
            rest = parts[1] if parts is not None and parts[0] == {(): 1} else rest
        steps = {m for m in rest if m not in divisor and m != ()}
        if len(divisor) != 1 or not all(len(m) == 1 and isinstance(m[0], Var) and m[0] not in self.scalars for m in steps):
            return 0, 1
        ((lead, factor),) = divisor.items()
        value = rest.get(lead, 0)
        whole = (2 * value + factor) // (2 * factor)
        ahead = rest.get((), 0) if lead else value - whole * factor
        if (lead and value != whole * factor) or not 0 <= whole <= 4:
            return 0, 1
        if steps:  # of loops, back and forth
            return max(whole - 1, 0), whole + 1
        return max(whole - (ahead < 0), 0), whole + (ahead > 0)

    def bent(self, parts: Sequence[Piece]) -> tuple[Var, Polynomial] | None:
        """The one thread index on which the parts depend, in their conditions or in themselves, and the factor that it has in them."""
        candidates = []
        for v in self.senders:
            slopes = [self.slope(p.marked, v) for p in parts]
            known = [s for s in slopes if s]
            if known and all(s == known[0] for s in known) and (len(known) < len(slopes) or self.asks(parts, v)):
                candidates.append((v, known[0]))
        return candidates[0] if len(candidates) == 1 else None

    def asks(self, parts: Sequence[Piece], var: Var) -> bool:
        return any(var in variables(self.plain(c)) for p in parts for c in p.conditions)

    def plain(self, expr: Expr) -> Expr:
        """The expression in terms of thread indices and parameters, as far as that goes. Raises TooMany."""
        while (new := substitute(expr, {v: self.lets[v] for v in variables(expr) if v in self.lets})) is not expr:
            expr = _readable(new)
        return expr

    def slope(self, expr: Expr, var: Var) -> Polynomial:
        parts = split(polynomial(expr, self.lets), var)
        return parts[0] if parts is not None else {}

    # --- pins --------------------------------------------------------------------------------------------------------------------

    def pinned(self, part: Piece, var: Var, slope: Polynomial, around: Sequence[Expr]) -> list[Piece]:
        """The part for each thread that gets there; as it is, if those are not told by a condition."""
        pins = self.pins(var, (*around, *part.conditions))
        if pins is None:
            return []
        factor = self.number(slope)
        out = []
        for pin in pins:
            known = [self.decided(term, var, pin) for term in part.conditions]
            if False in known:
                continue
            open_ = [c for c, k in zip(part.conditions, known, strict=True) if k is None]
            far = b.cast(b.binary("*", factor, Binary("-", var, pin, I32), I32), part.index.type)
            index, marked = (Binary("+", e, b.cast(far, e.type), e.type) for e in (part.index, part.marked))
            out.append(Piece((*open_, b.compare("==", var, pin)), index, marked, part.bends))
        return out if pins else [part]

    def decided(self, condition: Expr, var: Var, pin: Expr) -> bool | None:
        """Whether a comparison holds for the thread `pin`, if that is the same for all parameters."""
        full = self.plain(condition)
        if not isinstance(full, Binary) or full.op not in COMPARE or not full.left.type.is_signed or not full.right.type.is_signed:
            return None
        p = plus(polynomial(full.left, {}), scale(polynomial(full.right, {}), -1))
        parts = split(p, var)
        if parts is None or parts[0] not in ({(): 1}, {(): -1}):
            return None
        difference = constant(plus(times(parts[0], polynomial(pin, {})), parts[1]))
        return None if difference is None else COMPARE[full.op](difference, 0)

    def pins(self, var: Var, conditions: Iterable[Expr]) -> list[Expr] | None:
        """The threads that satisfy the conditions, if these say so; None if they say that there are none."""
        low: list[Polynomial] = [{}]
        high: list[Polynomial] = []
        for term in conditions:
            for kind, bound in self.bounds(term, var):
                if kind == "==":
                    return [self.number(bound)]
                (low if kind == ">=" else high).append(bound)
        spans = [(n, a) for a in low for z in high if (n := constant(plus(z, scale(a, -1)))) is not None and n < PINS]
        if spans:
            n, a = min(spans, key=lambda s: s[0])
            if n < 0:
                return None
            return [self.number(plus(a, {(): k} if k else {})) for k in range(n + 1)]
        return [self.number(plus(a, {(): k} if k else {})) for a in low[-1:] if a and self._guessing for k in range(2)]

    def bounds(self, condition: Expr, var: Var) -> list[tuple[str, Polynomial]]:
        """What a condition that holds says of the thread index alone: that it is at least, at most or exactly something."""
        match condition:
            case Binary(op="&&", left=x, right=y):
                return self.bounds(x, var) + self.bounds(y, var)
            case Unary(op="!", operand=inner):
                opposite = b.negate(inner)
                return [] if isinstance(opposite, Unary) else self.bounds(opposite, var)
            case Binary(op=op, left=x, right=y) if op in _SIGNS and x.type.is_integer:
                p = plus(polynomial(x, self.lets), scale(polynomial(y, self.lets), -1))
                parts = split(p, var)
                factor = constant(parts[0]) if parts is not None else None
                if parts is None or factor not in (1, -1) or not self.is_uniform(parts[1]):
                    return []
                shift, kind = _SIGNS[op if factor == 1 else MIRRORED[op]]
                return [(kind, plus(scale(parts[1], -factor), {(): shift} if shift else {}))]
        return []

    def is_uniform(self, p: Polynomial) -> bool:
        return all(_is_uniform(a, self.scalars) for a in atoms(p))

    # --- laps --------------------------------------------------------------------------------------------------------------------

    def lapped(self, parts: list[Piece], slope: Polynomial) -> list[Piece]:
        """The parts with what each is ahead of the straight one as a lap along its axis."""
        forms = {id(p): polynomial(p.marked, self.lets) for p in parts}
        straight = min(parts, key=lambda p: (len(p.conditions), _size(forms[id(p)])))
        out = []
        for part in parts:
            ahead = plus(forms[id(part)], scale(forms[id(straight)], -1))
            lap = self.lap(ahead, slope) if ahead else None
            if lap is not None:
                far = b.cast(b.binary("*", self.number(slope), lap, I32), straight.marked.type)
                part = replace(part, marked=Binary("+", straight.marked, far, straight.marked.type))
            out.append(part)
        return out

    def lap(self, ahead: Polynomial, slope: Polynomial) -> Var | None:
        """A variable that stands for the quotient, if there is one over parameters."""
        if not self.is_uniform(ahead):
            return None
        quotient = divided(ahead, slope)
        if quotient is None:
            return None
        key = repr(sorted(quotient.items(), key=repr))
        if key not in self._known:
            self._known[key] = self.names.var("lap", I32)
            self.laps[self._known[key]] = quotient
        return self._known[key]

    def number(self, p: Polynomial) -> Expr:
        """The polynomial as an int expression."""
        return written(p)


_SIGNS = {"<": (-1, "<="), "<=": (0, "<="), ">": (1, ">="), ">=": (0, ">="), "==": (0, "==")}


def _is_uniform(expr: Expr, scalars: frozenset[Var]) -> bool:
    """True if the expression is made of parameters alone."""
    return expr.type.is_integer and all(
        not isinstance(e, LaunchIndex | Call | Select) and (not isinstance(e, Var) or e in scalars) for e in walk(expr)
    )


def written(p: Polynomial, first: Expr | None = None) -> Expr:
    """The polynomial as an int expression over its atoms, what is added before what is taken away; `first` before all others."""
    result: Expr = b.zero(I32)
    order = sorted(p.items(), key=lambda item: (first not in item[0], item[1] < 0, -len(item[0]), repr(item[0])))
    for monomial, coefficient in order:
        term: Expr = b.const(abs(coefficient), I32)
        for atom in monomial:
            term = b.binary("*", term, b.cast(atom, I32), I32)
        negative = coefficient < 0 and result == b.zero(I32)
        result = b.unary("-", term) if negative else b.binary("+-"[coefficient < 0], result, term, I32)
    return result


def cancelled(expr: Expr) -> Expr:
    """The int expression with what is added and taken away again gone; ints wrap, so it is the same."""
    if expr.type != I32 or not isinstance(expr, Binary) or expr.op not in ("+", "-"):
        return rebuild(expr, cancelled)
    p = _ring(expr)
    if p is None or len(p) >= _leaves(expr):
        return rebuild(expr, cancelled)
    return written(p, next((v for v in variables(expr)), None))


def _leaves(expr: Expr) -> int:
    """How many terms a sum is written with."""
    match expr:
        case Binary(op="+" | "-", left=x, right=y):
            return _leaves(x) + _leaves(y)
        case Unary(op="-", operand=x):
            return _leaves(x)
    return 1


def _ring(expr: Expr) -> Polynomial | None:
    """The polynomial of an expression, None unless all of it down to the atoms are ints."""
    match expr:
        case Constant():
            return {(): int(expr.value)} if expr.value else {}
        case Unary(op="-", operand=x) if expr.type == I32:
            p = _ring(x)
            return None if p is None else scale(p, -1)
        case Binary(op="+" | "-" | "*" as op, left=x, right=y) if expr.type == I32:
            p, q = _ring(x), _ring(y)
            if p is None or q is None or len(p) * len(q) > 32:
                return None
            return times(p, q) if op == "*" else plus(p, scale(q, 1 if op == "+" else -1))
    return {(expr,): 1} if expr.type == I32 else None


def divided(p: Polynomial, by: Polynomial) -> Polynomial | None:
    """The exact quotient by a polynomial of one term, or None."""
    if len(by) != 1:
        return None
    ((lead, factor),) = by.items()
    quotient: Polynomial = {}
    for monomial, coefficient in p.items():
        left = list(monomial)
        for atom in lead:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % factor:
            return None
        quotient[tuple(left)] = coefficient // factor
    return quotient


def _size(p: Polynomial) -> int:
    return sum(abs(c) * (1 + 8 * len(m)) for m, c in p.items())


# --- where an index bends -----------------------------------------------------------------------------------------------------------------


def _bends(expr: Expr) -> bool:
    match expr:
        case Select(then=a) if a.type.is_integer:
            return True
        case Call(function="min" | "max"):
            return expr.type.is_integer
        case Binary(op="%"):
            return expr.type.is_integer
    return False


def _readable(expr: Expr) -> Expr:
    if not is_short(expr, _LONG):
        raise TooMany
    return expr


def _innermost(expr: Expr) -> Expr | None:
    """The first node that bends, with none inside it."""
    bent = [e for e in walk(expr) if _bends(e)]
    return next((e for e in bent if not any(_bends(inner) for inner in walk(e) if inner is not e)), None)


def _put(expr: Expr, node: Expr, other: Expr) -> Expr:
    return map_expr(expr, lambda e: other if e == node else e)


def _parts(node: Expr, quotients: tuple[int, int]) -> list[Piece]:
    """The pieces of a node: exhaustive, and exact in the arithmetic of its type."""
    match node:
        case Select(condition=c, then=x, otherwise=y):
            return [_part(node, x, c), _part(node, y, b.negate(c))]
        case Call(function="min" | "max" as f, arguments=(x, y)):
            less, more = ("<=", ">") if f == "min" else (">=", "<")
            return [_part(node, x, b.compare(less, x, y)), _part(node, y, b.compare(more, x, y))]
        case Binary(op="%"):
            return _remainders(node, *quotients)
    raise AssertionError(node)


def _remainders(node: Binary, first: int, last: int) -> list[Piece]:
    """`x - q * n` for each quotient; C's remainder of what is below 0 is below 0, too."""
    x, n = node.left, node.right

    def less(q: int) -> Expr:
        return b.binary("-", x, b.binary("*", b.const(q, n.type), n, n.type), node.type) if q else x

    parts = []
    for q in range(first, last + 1):
        above = [] if q == first else [b.compare(">=", x, b.binary("*", b.const(q, n.type), n, n.type))]
        below = [] if q == last else [b.compare("<", less(q), n)]
        parts.append(_part(node, less(q), *above, *below))
    return parts


def _part(node: Expr, value: Expr, *conditions: Expr) -> Piece:
    return Piece(conditions, value, value, ((node, value),))


__all__ = ["Piece", "PiecewiseAffine", "TooMany", "cancelled", "divided", "written"]
