"""Affine forms of indices by a launch's numbers: what accesses reach, where, and in which threads.

An index becomes an affine form over *digits*: the thread's global index along an axis (or its block and thread index where these occur
otherwise) and the iteration numbers of the loops around the access, each with the range that launch, bounds and guards leave it. Every
intermediate value must fit its C type; what wraps, is loaded from memory or is not affine has no form. From forms transformations are
derived, footprints, and refusals of launches that are surely wrong; that something never happens is for a certificate to say (`affine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.rewrite import blocks
from ..ir.types import BOOL, Scalar

TOUCHES: tuple[type[ir.Stmt], ...] = (ir.Load, ir.Store, ir.Take, ir.Accumulate, ir.Atomic)
UNBOUNDED = 1 << 62
_ROUNDS = 8


class Unknown(Exception):
    """The expression is not affine in the digits, or may wrap."""


@dataclass(frozen=True)
class Launch:
    """The numbers of one launch: grid and block (x, y, z), and the values of integer scalar parameters."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scalars: Mapping[ir.Var, int]


@dataclass(frozen=True)
class Digit:
    """An unknown of the forms. `kind`: 'thread', 'block' or 'global' index of an `axis`, or 'loop' with the loop's own identity."""

    kind: str
    axis: str
    loop: int = 0

    @property
    def is_thread(self) -> bool:
        return self.kind != "loop"


@dataclass(frozen=True)
class Form:
    """`constant + sum(coefficient * digit)`."""

    constant: int
    terms: tuple[tuple[Digit, int], ...] = ()

    def __add__(self, other: Form) -> Form:
        terms = dict(self.terms)
        for d, c in other.terms:
            terms[d] = terms.get(d, 0) + c
        return Form(self.constant + other.constant, tuple((d, c) for d, c in terms.items() if c))

    def scaled(self, factor: int) -> Form:
        return Form(self.constant * factor, tuple((d, c * factor) for d, c in self.terms) if factor else ())


Ranges = dict[Digit, tuple[int, int]]  # inclusive


@dataclass(frozen=True)
class Reach:
    """One access: its form and what its digits range over where it is executed. `within`: the form's least and greatest value, if a loop
    bounds it closer than its digits do, whose last iterations not every thread makes."""

    form: Form
    ranges: Ranges
    within: tuple[int, int] | None = None


# --- forms of indices ------------------------------------------------------------------------------------------------------------------


class Walk:
    """Goes down a body with the ranges that hold there and collects the accesses to the wanted buffers."""

    def __init__(self, launch: Launch, wanted: frozenset[ir.Buffer], kinds: tuple[type[ir.Stmt], ...] = TOUCHES) -> None:
        self.launch = launch
        self.kinds = kinds
        self.wanted = wanted
        self.forms: dict[ir.Var, Form] = {v: Form(n) for v, n in launch.scalars.items()}
        self.bools: dict[ir.Var, ir.Expr] = {}
        self.found: list[Reach] = []
        self.loops = 0
        self.counters: list[tuple[Form, int, int]] = []  # of the loops around: least and greatest value

    def run(self, body: ir.Block) -> list[Reach]:
        self.block(body, self.everywhere())
        return self.found

    def everywhere(self) -> Ranges:
        """The ranges of all threads of the launch."""
        ranges: Ranges = {}
        for axis, grid, block in zip("xyz", self.launch.grid, self.launch.block, strict=True):
            ranges[Digit("thread", axis)] = (0, block - 1)
            ranges[Digit("block", axis)] = (0, grid - 1)
            ranges[Digit("global", axis)] = (0, grid * block - 1)
        return ranges

    def block(self, block: ir.Block, ranges: Ranges) -> None:
        for stmt in block:
            self.stmt(stmt, ranges)

    def stmt(self, stmt: ir.Stmt, ranges: Ranges) -> None:
        match stmt:
            case ir.Let(var=var, value=value) if var.type.is_integer:
                self.define(var, value, ranges)
            case ir.Let(var=var, value=value) if not var.type.is_float:
                self.bools[var] = value
            case (
                ir.Load(buffer=b, index=i)
                | ir.Store(buffer=b, index=i)
                | ir.Take(buffer=b, index=i)
                | ir.Accumulate(buffer=b, index=i)
                | ir.Atomic(buffer=b, index=i)
            ):
                if b in self.wanted and isinstance(stmt, self.kinds):
                    form = self.form(i, ranges)
                    self.found.append(Reach(canonical(form, self.launch), ranges, self.of_loops(form)))
            case ir.If(condition=c, then=a, otherwise=z):
                for block, holds in ((a, True), (z, False)):
                    self.branch(block, c, holds, ranges)
                self.bools.update((m.var, said) for m in stmt.merges if (said := _said(c, m)) is not None)
            case ir.For():
                self.loop(stmt, ranges)
            case ir.While():
                for inner in blocks(stmt):
                    self.block(inner, self.counted(stmt, ranges))

    def under(self, condition: ir.Expr, holds: bool, ranges: Ranges) -> Ranges | None:
        """The ranges where a condition holds, or does not; None if that cannot be. One bound may show what an inequality says."""
        found = narrowed(ranges, self.constraints(condition, holds, ranges), self.launch)
        for _ in range(_ROUNDS):
            if found is None or found == ranges or not any(isinstance(e, ir.Binary) and e.op in ("!=", "==") for e in ir.walk(condition)):
                break
            ranges = found
            found = narrowed(ranges, self.constraints(condition, holds, ranges), self.launch)
        return found

    def branch(self, block: ir.Block, condition: ir.Expr, holds: bool, ranges: Ranges) -> None:
        self.side(block, self.under(condition, holds, ranges))

    def side(self, block: ir.Block, ranges: Ranges | None) -> None:
        if ranges is not None:  # else the side is never taken
            self.block(block, ranges)

    def define(self, var: ir.Var, value: ir.Expr, ranges: Ranges) -> None:
        try:
            self.forms[var] = self.form(value, ranges)
        except Unknown:
            self.forms.pop(var, None)

    def counted(self, loop: ir.While, ranges: Ranges) -> Ranges:
        if loop.counter is None:
            return ranges
        digit = self.digit()
        self.forms[loop.counter] = Form(0, ((digit, 1),))
        return {**ranges, digit: (0, (1 << 31) - 1)}

    def digit(self) -> Digit:
        self.loops += 1
        return Digit("loop", "", self.loops)

    def loop(self, stmt: ir.For, ranges: Ranges) -> None:
        digit = self.digit()
        try:
            start, step = self.form(stmt.start, ranges), self.form(stmt.step, ranges)
            if step.terms or step.constant == 0:
                raise Unknown
        except Unknown:
            self.forms.pop(stmt.var, None)
            self.loop_body(stmt, ranges, UNBOUNDED)
            return
        last = self.trips(stmt, start, step.constant, ranges)
        counter = self.forms[stmt.var] = start + Form(0, ((digit, step.constant),))
        self.counters.append((counter, *self.extent(stmt, start, step.constant, ranges)))
        self.loop_body(stmt, {**ranges, digit: (0, max(last, 0))}, last)
        self.counters.pop()

    def extent(self, stmt: ir.For, start: Form, step: int, ranges: Ranges) -> tuple[int, int]:
        """The least and the greatest value that a loop's variable has in an iteration."""
        first, last = interval(start, ranges)
        try:
            low, high = interval(self.form(stmt.stop, ranges), ranges)
        except Unknown:
            low, high = -UNBOUNDED, UNBOUNDED
        return (first, high - 1) if step > 0 else (low + 1, last)

    def of_loops(self, form: Form) -> tuple[int, int] | None:
        """What a loop around says of a form that is its variable and a number."""
        for counter, low, high in self.counters:
            shift = form + counter.scaled(-1)
            if not shift.terms:
                return low + shift.constant, high + shift.constant
        return None

    def loop_body(self, stmt: ir.For, ranges: Ranges, last: int) -> None:
        """`last`: the greatest iteration number, -1 if there is none, UNBOUNDED if it is not known."""
        if last >= 0:
            self.block(stmt.body, ranges)

    def trips(self, stmt: ir.For, start: Form, step: int, ranges: Ranges) -> int:
        """The greatest iteration number, -1 if there is none."""
        try:
            stop = self.form(stmt.stop, ranges)
        except Unknown:
            return UNBOUNDED
        low, high = interval(stop + start.scaled(-1), ranges)
        span = high - 1 if step > 0 else -low - 1
        return max(span // abs(step), -1) if span < UNBOUNDED else UNBOUNDED

    def form(self, expr: ir.Expr, ranges: Ranges) -> Form:
        """The expression's form; raises Unknown if it has none or may leave its type's range."""
        result = self._form(expr, ranges)
        low, high = interval(result, ranges)
        least, most = limits(expr.type)
        if low < least or high > most:
            # the sum may fit although the box of its digits does not: a global index has a range of its own
            low, high = interval(canonical(result, self.launch), ranges)
            if low < least or high > most:
                raise Unknown
        return result

    def _form(self, expr: ir.Expr, ranges: Ranges) -> Form:
        match expr:
            case ir.Constant(value=v) if expr.type.is_integer:
                return Form(int(v))
            case ir.Var() if expr in self.forms:
                return self.forms[expr]
            case ir.LaunchIndex(name="blockDim", axis=axis):
                return Form(self.launch.block["xyz".index(axis)])
            case ir.LaunchIndex(name="gridDim", axis=axis):
                return Form(self.launch.grid["xyz".index(axis)])
            case ir.LaunchIndex(name=name, axis=axis):
                return _index("thread" if name == "threadIdx" else "block", axis, self.launch)
            case ir.Cast(operand=a) if a.type.is_integer and expr.type.is_integer:
                return self.form(a, ranges)
            case ir.Unary(op="-", operand=a) if expr.type.is_integer:
                return self.form(a, ranges).scaled(-1)
            case ir.Binary(op="+", left=a, right=b):
                return self.form(a, ranges) + self.form(b, ranges)
            case ir.Binary(op="-", left=a, right=b):
                return self.form(a, ranges) + self.form(b, ranges).scaled(-1)
            case ir.Binary(op="*" | "<<" | "/" | "%", left=a, right=b):
                return self._product(expr.op, self.form(a, ranges), self.form(b, ranges))
        raise Unknown

    def _product(self, op: str, a: Form, b: Form) -> Form:
        if op == "*" and (not a.terms or not b.terms):
            return b.scaled(a.constant) if not a.terms else a.scaled(b.constant)
        if op == "<<" and not b.terms and 0 <= b.constant < 63:
            return a.scaled(1 << b.constant)
        if not a.terms and not b.terms and op in "/%" and b.constant > 0:  # C rounds to zero
            quotient = abs(a.constant) // b.constant * (1 if a.constant >= 0 else -1)
            return Form(quotient if op == "/" else a.constant - quotient * b.constant)
        raise Unknown

    # --- guards --------------------------------------------------------------------------------------------------------------------

    def constraints(self, condition: ir.Expr, holds: bool, ranges: Ranges) -> list[tuple[Form, str]]:
        """Forms with `form <= 0` (or `== 0`) that follow from the condition."""
        match condition:
            case ir.Var() if condition in self.bools:
                return self.constraints(self.bools[condition], holds, ranges)
            case ir.Var() if condition in self.forms and bool(self.forms[condition].constant) is not holds:
                return [(Form(1), "<=")]  # a parameter: it is one number
            case ir.Cast(operand=a) if a.type.is_integer and condition.type == BOOL:
                return self.constraints(ir.Binary("!=", a, ir.Constant(0, a.type), BOOL), holds, ranges)
            case ir.Unary(op="!", operand=a):
                return self.constraints(a, not holds, ranges)
            case ir.Binary(op="&&", left=a, right=b) if holds:
                return self.constraints(a, True, ranges) + self.constraints(b, True, ranges)
            case ir.Binary(op="||", left=a, right=b) if not holds:
                return self.constraints(a, False, ranges) + self.constraints(b, False, ranges)
            case ir.Binary(op=op, left=a, right=b) if a.type.is_integer and (op if holds else ir.NEGATED.get(op)) in _BOUNDS:
                try:
                    difference = self.form(a, ranges) + self.form(b, ranges).scaled(-1)
                except Unknown:
                    return []
                sign, shift, kind = _BOUNDS[op if holds else ir.NEGATED[op]]
                return [(difference.scaled(sign) + Form(shift), kind)]
            case ir.Binary(op=op, left=a, right=b) if a.type.is_integer and op == ("!=" if holds else "=="):
                return self.unequal(a, b, ranges)
        return []

    def unequal(self, a: ir.Expr, b: ir.Expr, ranges: Ranges) -> list[tuple[Form, str]]:
        """`x != 0` is a bound where x is never negative, or never positive."""
        try:
            form = canonical(self.form(a, ranges) + self.form(b, ranges).scaled(-1), self.launch)
        except Unknown:
            return []
        low, high = interval(form, ranges)
        return [(form.scaled(-1) + Form(1), "<=")] if low == 0 else [(form + Form(1), "<=")] if high == 0 else []


def _said(condition: ir.Expr, merge: ir.Merge) -> ir.Expr | None:
    """A truth value after a branch in terms of the condition, where the right side of `&&` or `||` needed a branch of its own."""
    if merge.var.type != BOOL:
        return None
    for own, fixed, other in ((condition, merge.then, merge.otherwise), (ir.Unary("!", condition, BOOL), merge.otherwise, merge.then)):
        if isinstance(fixed, ir.Constant):
            if fixed.value:
                return ir.Binary("||", own, other, BOOL)
            return ir.Binary("&&", ir.Unary("!", own, BOOL), other, BOOL)
    return None


_BOUNDS = {"<": (1, 1, "<="), "<=": (1, 0, "<="), ">": (-1, 1, "<="), ">=": (-1, 0, "<="), "==": (1, 0, "==")}


def _index(kind: str, axis: str, launch: Launch) -> Form:
    """A thread's or a block's index: where there is one block, or each has one thread, the other one is the global index."""
    block, grid = (extents["xyz".index(axis)] for extents in (launch.block, launch.grid))
    own, other = (block, grid) if kind == "thread" else (grid, block)
    if own == 1:
        return Form(0)
    return Form(0, ((Digit("global" if other == 1 else kind, axis), 1),))


def narrowed(ranges: Ranges, constraints: Sequence[tuple[Form, str]], launch: Launch) -> Ranges | None:
    """The ranges with the constraints applied to each of their digits by itself; None if they cannot hold."""
    result = dict(ranges)
    for form, kind in constraints:
        for f in (form, form.scaled(-1)) if kind == "==" else (form,):
            terms = canonical(f, launch).terms
            least = interval(replace(f, terms=terms), result)[0]
            if least > 0:
                return None
            for digit, coefficient in terms:
                low, high = result[digit]
                left = -(least - min(coefficient * low, coefficient * high))  # what is left to the digit where the others are least
                result[digit] = (low, min(high, left // coefficient)) if coefficient > 0 else (max(low, -(left // -coefficient)), high)
    return result


def canonical(form: Form, launch: Launch) -> Form:
    """The form with `blockIdx * blockDim + threadIdx` as one digit, the global index."""
    terms = dict(form.terms)
    for axis, extent in zip("xyz", launch.block, strict=True):
        thread, block = Digit("thread", axis), Digit("block", axis)
        if terms.get(thread) and terms.get(block) == terms[thread] * extent:
            terms[Digit("global", axis)] = terms.pop(thread)
            del terms[block]
    return replace(form, terms=tuple(terms.items()))


def interval(form: Form, ranges: Ranges) -> tuple[int, int]:
    """The least and greatest value."""
    low = high = form.constant
    for digit, coefficient in form.terms:
        a, b = (coefficient * end for end in ranges[digit])
        low, high = low + min(a, b), high + max(a, b)
    return low, high


def limits(type_: Scalar) -> tuple[int, int]:
    """The range of an integer type."""
    return (-(1 << (type_.bits - 1)), (1 << (type_.bits - 1)) - 1) if type_.is_signed else (0, (1 << type_.bits) - 1)


# --- the search --------------------------------------------------------------------------------------------------------------------------


def footprints(body: ir.Block, buffers: Iterable[ir.Buffer], launch: Launch) -> dict[ir.Buffer, tuple[int, int] | None]:
    """For each buffer the least and greatest index that the body may touch, (0, -1) if it touches none, None if that cannot be told."""
    return {buffer: _footprint(body, buffer, launch) for buffer in buffers}


def _footprint(body: ir.Block, buffer: ir.Buffer, launch: Launch) -> tuple[int, int] | None:
    try:
        reaches = Walk(launch, frozenset({buffer})).run(body)
    except Unknown:
        return None
    ends = [interval(reach.form, reach.ranges) for reach in reaches]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0, -1)
