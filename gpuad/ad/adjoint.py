"""Adjoints of expressions: a seed is sent down the tree, and each variable below collects its contributions.

A contribution is a term: an expression and the predicate under which the value was used, because an operand of the side of a
select that was not taken must get nothing, not 0 times infinity. `Ledger` holds the terms of one scope.

The adjoint of a warp shuffle: each lane gets back what the lanes that read it have collected.

A shuffle moves values between lanes; its adjoint moves adjoints the other way. `down` is undone by `up`, `up` by `down`, `xor` by itself; a
lane that got its own value, because its source lane lies beyond its segment, keeps its adjoint. For `__shfl_sync` every lane
may have read any lane: each scans all others. A lane collects only from lanes that took part in the shuffle: those that the mask names and
that the block has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..analysis.activity import Activity
from ..analysis.flows import differentiable, differentiable_parts
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir.functions import OVERFLOWING
from ..ir.nodes import Binary, Block, Call, Carried, Cast, Constant, Expr, For, LaunchIndex, Let, Select, Shuffle, Stmt, Unary, Var
from ..ir.rewrite import Names
from ..ir.types import BOOL, I32, U32, Scalar
from ..source import Span
from .derivatives import Decay, Partial, as_quotient, beyond, grows, partials, saturates


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
    """True if the value was used, if at all, inside a loop or an If that may not have run."""
    return all(t.conditional and t.predicate is None for t in terms)


def is_linear(expr: Expr) -> bool:
    """True if all partials of the expression are numbers in the text, so that a seed of 0 surely contributes 0."""
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
    divided: set[Expr] = field(default_factory=set)  # seeds of denominators that may overflow, and of what those are made of
    counts: dict[int, tuple[Expr, int]] = field(default_factory=dict)  # leaves by identity; the expression beside it keeps its number
    powers: dict[Var, int] = field(default_factory=dict)  # of the product that is gone down: its factors that occur more than once

    def active(self, expr: Expr) -> bool:
        return self.leaves(expr) > 0

    def down(self, expr: Expr, seed: Expr, result: Expr | None = None) -> None:
        if not self.active(expr):
            return
        match expr:
            case Var():
                self.ledger.add(expr, Term(seed, self.predicate, self.conditional))
            case Unary(op="-", operand=a):
                self.down(a, b.neg(seed))
            case Cast(operand=a):
                self.down(a, self.cast(seed, a.type))
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
        if self.leaves(expr) < 2 or b.size(seed) <= 2 or b.positive(seed) in self.divided:
            return seed
        return self.named(seed)

    def leaves(self, expr: Expr) -> int:
        """The number of occurrences of active variables on which the expression depends differentiably; found once for each expression,
        since it is asked at each level of a tree."""
        if isinstance(expr, Var):
            return int(expr.type.is_float and expr in self.owner.facts)
        known = self.counts.get(id(expr))
        if known is None:
            known = expr, sum(self.leaves(child) for child in differentiable_parts(expr))
            self.counts[id(expr)] = known
        return known[1]

    def named(self, seed: Expr) -> Expr:
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
                self.down(x, self.scaled(seed, b.mul(b.const(2, x.type), x)))
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
                self.factors(x, self.scaled(seed, y))
                self.factors(y, self.scaled(seed, x))
            case Var() if expr in self.powers:
                times, self.powers[expr] = self.powers[expr], 0
                if times:
                    self.down(expr, b.mul(b.const(times, expr.type), seed))
            case _:
                self.down(expr, seed)

    def scaled(self, seed: Expr, rest: Expr) -> Expr:
        """The seed times what is left of a product, of which nothing comes where the seed is 0 and the rest has overflowed."""
        if (product := self.within(seed, rest)) is not None:
            return self.noted(product)
        return b.chain(seed, rest) if self.comes_back_from(rest) else b.mul(rest, seed)

    def comes_back_from(self, partial: Expr) -> bool:
        """True if a partial may be infinite while what the kernel makes of the value is not."""
        infinities = self.owner.facts.infinities
        return infinities.comes_back and infinities.may_be(partial)

    def quotient(self, expr: Binary, seed: Expr, result: Expr | None) -> None:
        """The seed is divided first, then multiplied by the quotient: the product of one over the denominator and the quotient would leave
        the range of the type where the seed, or the slope of the denominator, is as large as they are small."""
        x, y = expr.left, expr.right
        if isinstance(y, Constant):
            return self.down(x, b.div(seed, y))
        whole = result if result is not None else expr
        over = whole if b.is_reciprocal(expr) else b.div(b.const(1, y.type), y)
        share = b.chain(over, seed) if self.loses(y) else b.chain(seed, over)
        if self.leaves(expr) > 1:
            share = self.named(share)
        self.down(x, share)
        seed = b.chain(share, whole)
        if self.owner.facts.infinities.may_be(y):
            self.divided.add(seed)
        return self.down(y, b.neg(seed))

    def loses(self, argument: Expr) -> bool:
        """True if nothing comes to an argument that has overflowed, however large the seed: that may be infinite by a vertical slope."""
        infinities = self.owner.facts.infinities
        return infinities.vertical and infinities.may_be(argument)

    def cast(self, seed: Expr, type_: Scalar) -> Expr:
        """The seed in another type; of a product that may leave that type's range the factors."""
        inner = b.positive(seed)
        if inner not in self.divided:
            return b.cast(seed, type_)
        assert isinstance(inner, Call)
        product = self.noted(b.chain(*(b.cast(e, type_) for e in inner.arguments)))
        return product if inner is seed else b.neg(product)

    def noted(self, seed: Expr) -> Expr:
        """The seed, a chain rule's product, whose second factor is multiplied by what the value is made of before the first is."""
        if isinstance(b.positive(seed), Call):
            self.divided.add(b.positive(seed))
        return seed

    def within(self, seed: Expr, *partials: Expr) -> Expr | None:
        """The seed of a denominator, or of what that is made of, times a partial, or the factors of one: the quotient is multiplied by that
        first, which is about as large as the quotient is small, and 0 is what the quotient was divided from. None if the seed is none of
        those."""
        inner = b.positive(seed)
        if inner not in self.divided:
            return None
        assert isinstance(inner, Call)
        share, whole = inner.arguments
        for partial in partials:
            whole = b.mul(whole, partial)
        product = b.chain(share, whole)
        return product if inner is seed else b.neg(product)

    def call(self, expr: Call, seed: Expr, result: Expr | None) -> None:
        value = result if result is not None else expr
        if (quotient := as_quotient(expr)) is not None:
            self.quotient(quotient, seed, value)
            return
        rule = partials(expr, value)
        if rule is None:
            raise UnsupportedError(f"the derivative of '{expr.function}' is not known", self.span)
        for argument, entry in zip(expr.arguments, rule, strict=True):
            if entry.value is not None and self.active(argument):
                self.down(argument, self.share(expr, argument, entry, seed))

    def share(self, expr: Call, argument: Expr, entry: Partial, seed: Expr) -> Expr:
        """The seed of an argument of a function."""
        may_be_infinite, partial, strong = self.owner.facts.infinities.may_be, entry.value, entry.singular
        assert partial is not None
        if entry.decay is not None and any(map(may_be_infinite, expr.arguments)):
            return self.decayed(argument, entry.decay, seed)
        if grows(expr) and may_be_infinite(argument):
            partial, strong = beyond(partial, argument), True
        overflowed, unbounded = may_be_infinite(argument), may_be_infinite(partial)
        grown, settles = unbounded and expr.function in OVERFLOWING, overflowed and saturates(expr)
        follows = not settles and (overflowed or (unbounded and not grown))
        if (grown or follows) and (product := self.within(seed, *(factors(partial) if grown else (partial,)))) is not None:
            return self.noted(product) if follows else product
        if settles and not grown and self.loses(argument):
            return b.chain(partial, seed)
        return b.chain(seed, partial) if strong or grown or self.comes_back_from(partial) else times(seed, partial)

    def decayed(self, argument: Expr, decay: Decay, seed: Expr) -> Expr:
        """The seed times a partial in two factors, of which the first is 0 where the argument has overflowed."""
        first, second, inner = decay.first, decay.second, b.positive(seed)
        if inner not in self.divided:
            share = b.chain(first, seed) if self.loses(argument) else b.chain(seed, first)
            return self.noted(b.chain(share, second))
        assert isinstance(inner, Call)
        share, whole = inner.arguments
        first = b.mul(whole, first)
        if decay.where is not None:  # what does not decay grows, and the quotient with it
            first, second = b.select(decay.where, first, b.const(1, first.type)), b.select(decay.where, second, b.mul(first, second))
        product = self.noted(b.chain(b.chain(share, first), second))
        return product if inner is seed else b.neg(product)


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
    """True if the adjoint of an expression goes to both factors; the square of something longer is gone down once."""
    return isinstance(expr, Binary) and expr.op == "*" and (expr.left != expr.right or isinstance(expr.left, Var))


def times(seed: Expr, partial: Expr) -> Expr:
    """The product; a partial that is a choice among constants becomes a choice among multiples of the seed."""
    if isinstance(partial, Select):
        return b.select(partial.condition, times(seed, partial.then), times(seed, partial.otherwise))
    return b.mul(partial, seed)


WARP = 32


def adjoint_of(stmt: Shuffle, seed: Var, names: Names) -> tuple[Block, Expr]:
    """Statements, and the adjoint of the shuffled value, from the adjoint `seed` of what the shuffle gave. All lanes that ran the shuffle
    have to run them."""
    task = _Adjoint(stmt, seed, names)
    result = task.gathered() if stmt.op == "" else task.sent_back()
    return tuple(task.out), result


def thread_of_block() -> Expr:
    """The number of this thread in its block, an int32."""
    return Binary("+", _index("threadIdx", "x"), _times(_index("blockDim", "x"), _rest()), I32)


def _rest() -> Expr:
    return Binary("+", _index("threadIdx", "y"), _times(_index("blockDim", "y"), _index("threadIdx", "z")), I32)


def _index(name: str, axis: str) -> Expr:
    return b.cast(LaunchIndex(name, axis), I32)


def _times(x: Expr, y: Expr) -> Expr:
    return Binary("*", x, y, I32)


class _Adjoint:
    def __init__(self, stmt: Shuffle, seed: Var, names: Names) -> None:
        self.stmt = stmt
        self.seed = seed
        self.names = names
        self.out: list[Stmt] = []
        self.thread = self.let("thread", thread_of_block())
        self.lane = self.let("lane", Binary("&", self.thread, b.const(WARP - 1, I32), I32))
        self.width = b.cast(stmt.width, I32)
        last = Binary("-", self.width, b.const(1, I32), I32) if not isinstance(self.width, Constant) else b.const(self.width.value - 1, I32)
        self.low = self.lane if b.is_const(self.width, WARP) else self.let("low", Binary("&", self.lane, last, I32))
        self.last = last

    def let(self, name: str, value: Expr) -> Var:
        var = self.names.var(name, value.type)
        self.out.append(Let(var, value, span=self.stmt.span))
        return var

    def shuffle(self, op: str, value: Expr, lane: Expr, width: Expr) -> Var:
        var = self.names.var(self.seed.name, value.type)
        self.out.append(Shuffle(var, op, self.stmt.mask, value, lane, width, span=self.stmt.span))
        return var

    def takes_part(self, lane: Expr) -> Expr:
        """Whether a lane of this warp ran the shuffle."""
        bit = Binary("&", Binary(">>", self.stmt.mask, b.cast(lane, U32), U32), b.const(1, U32), U32)
        size = _times(_index("blockDim", "x"), _times(_index("blockDim", "y"), _index("blockDim", "z")))
        there = b.compare("<", Binary("+", Binary("-", self.thread, self.lane, I32), lane, I32), size)
        return there if _is_full(self.stmt.mask) else Binary("&&", there, b.compare("!=", bit, b.const(0, U32)), BOOL)

    def kept(self, condition: Expr, value: Expr) -> Expr:
        return b.select(condition, value, b.zero(value.type))

    def sent_back(self) -> Expr:
        """For `up`, `down` and `xor`."""
        stmt, low, width = self.stmt, b.cast(self.low, U32), b.cast(self.width, U32)
        room = Binary("-", width, low, U32)
        if stmt.op == "xor":
            return self.exchanged()
        if stmt.op not in ("up", "down"):
            raise UnsupportedError(f"a shuffle of the kind {stmt.op!r} has no adjoint yet", stmt.span)
        step = self.let("distance", b.cast(stmt.lane, U32))
        if stmt.op == "down":
            own, comes, sign = b.compare(">=", step, room), b.compare("<=", step, low), "-"
        else:
            own, comes, sign = b.compare(">", step, low), b.compare("<", step, room), "+"
        got = self.shuffle("up" if stmt.op == "down" else "down", self.seed, stmt.lane, stmt.width)
        source = Binary(sign, self.lane, b.cast(step, I32), I32)
        return self.both(own, comes, source, got)

    def exchanged(self) -> Expr:
        """For `xor`. A lane may read a segment before its own, but gets its own value where the other lies in a segment after it."""
        step = self.let("distance", Binary("&", b.cast(self.stmt.lane, I32), b.const(WARP - 1, I32), I32))
        other = self.let("other", Binary("^", self.lane, step, I32))
        start = Binary("-", self.lane, self.low, I32)
        theirs = Binary("-", other, Binary("&", other, self.last, I32), I32)
        own = b.compare(">=", other, Binary("+", start, self.width, I32))
        comes = b.compare("<", self.lane, Binary("+", theirs, self.width, I32))
        got = self.shuffle("xor", self.seed, step, b.const(WARP, I32))
        if b.is_const(self.width, WARP):
            return self.kept(self.takes_part(other), got)
        return self.both(own, comes, other, got)

    def both(self, own: Expr, comes: Expr, source: Expr, got: Var) -> Expr:
        """What a lane keeps for its own value, and what comes from the lane that read it."""
        valid = Binary("&&", comes, self.takes_part(source), BOOL)
        return Binary("+", self.kept(own, self.seed), self.kept(valid, got), self.seed.type)

    def gathered(self) -> Expr:
        """For `__shfl_sync`: the sum over the lanes of the segment that read this one."""
        stmt = self.stmt
        wanted = self.let("source", Binary("&", b.cast(stmt.lane, I32), self.last, I32))
        other, total = self.names.var("other", I32), self.names.var(self.seed.name, self.seed.type)
        reader, given = self.names.var("source", I32), self.names.var(self.seed.name, self.seed.type)
        lane = Binary("+", Binary("-", self.lane, self.low, I32), other, I32)
        ask = Shuffle(reader, "", stmt.mask, wanted, other, stmt.width, span=stmt.span)
        give = Shuffle(given, "", stmt.mask, self.seed, other, stmt.width, span=stmt.span)
        mine = Binary("&&", b.compare("==", reader, self.low), self.takes_part(lane), BOOL)
        result = self.names.var(self.seed.name, self.seed.type)
        carried = Carried(total, b.zero(self.seed.type), Binary("+", total, self.kept(mine, given), total.type), result)
        zero, one = b.const(0, I32), b.const(1, I32)
        self.out.append(For(other, zero, self.width, one, (ask, give), (carried,), span=stmt.span))
        return result


def _is_full(mask: Expr) -> bool:
    return isinstance(mask, Constant) and int(mask.value) & 0xFFFFFFFF == 0xFFFFFFFF
