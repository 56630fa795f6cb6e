"""Register promotion under an alias test: elements of an array that a thread updates in turn are held in variables where a row's numbers
show that they are distinct.

    df[8 * cells + i] = a; df[7 * cells + i] = b; ...; df[7 * cells + i] += c; df[8 * cells + i] += d;

A compiler cannot tell the elements apart, since `cells` may be 0: each is stored, loaded and stored again, and the threads of a row are not
announced as independent (`vectorisation_legality`). But how far two such elements lie from each other is one number for all threads of a
row. Where none of these distances is 0, which is asked before the loop over a row, an element's value waits in a variable until the last
access to it.

The result is the same to the last bit: no sum is formed in another order. Other threads do not notice, since a launch has no data races.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

from ...analysis.index_polynomials import Monomial, Polynomial, plus, scale, times
from ...ir import nodes as ir
from ...ir.rewrite import assigned_vars, bound, rebuild, substitute, walk_stmts
from ...ir.types import BOOL, HALVES, I32, I64, Space
from ..folded import Read, operands, read, reads, scopes, targets, unconverted, visit_operands, written
from .iteration_domain import GLOBAL, Inner, is_of_row, without_row_guard
from .lane_conflicts import is_sum
from .row_loops import values_of

MOST = 192  # distances that are worth being looked at for each row
_TERMS = 16


@dataclass(frozen=True)
class _Place:
    """An element: its array, and its subscript as a polynomial of so many bits."""

    buffer: ir.Buffer
    terms: frozenset[tuple[Monomial, int]]
    bits: int


@dataclass(frozen=True)
class Promotion:
    """The inside of a kernel, and the arrays of which a thread's accesses to two elements are apart there."""

    inner: Inner
    buffers: frozenset[ir.Buffer]


def promote_registers(inner: Inner) -> Promotion | None:
    """The inside of a kernel whose threads are independent and whose parameters do not overlap, for rows in which elements are apart;
    None if it is of no use."""
    inner = without_row_guard(inner)
    kernel = inner.kernel
    task = _Places(kernel)
    found, different = set(), list[ir.Expr]()
    for buffer in task.candidates():
        distances = task.distances(buffer)
        if distances is None or len(distances) > MOST:
            continue
        found.add(buffer)
        different += [ir.Binary("!=", distance, ir.Constant(0, distance.type), BOOL) for distance in distances]
    if not found:
        return None
    rows = _all(([] if inner.rows is None else [inner.rows]) + different)
    body = _Waiting(kernel, task, frozenset(found)).block(kernel.body)
    return Promotion(Inner(replace(kernel, body=body), rows, inner.bounds), frozenset(found))


def _all(terms: list[ir.Expr]) -> ir.Expr | None:
    """Whether all of the terms hold, in a tree that is no deeper than it has to be."""
    if len(terms) < 2:
        return terms[0] if terms else None
    one, other = _all(terms[: len(terms) // 2]), _all(terms[len(terms) // 2 :])
    assert one is not None and other is not None
    return ir.Binary("&&", one, other, BOOL)


# --- places ------------------------------------------------------------------------------------------------------------------------------


@dataclass
class _Places:
    """The elements that a kernel reaches in what it writes: their subscripts as polynomials."""

    kernel: ir.Kernel
    values: dict[ir.Var, ir.Expr] = field(init=False)
    assigned: set[ir.Var] = field(init=False)

    def __post_init__(self) -> None:
        self.values = values_of(self.kernel.body)
        self.assigned = set(assigned_vars(self.kernel.body))

    def candidates(self) -> list[ir.Buffer]:
        """Arrays that are only accessed outside of branches and loops, and more than once somewhere."""
        body = self.kernel.body
        if not all(isinstance(s, ir.Let | ir.Load | ir.Assign | ir.Store | ir.Accumulate | ir.Take) or scopes(s) for s in walk_stmts(body)):
            return []
        changed = {b for s in body if (b := written(s)) is not None and b.space is Space.GLOBAL and b.element not in HALVES}
        inside = [s for stmt in body for block, _ in scopes(stmt) for s in walk_stmts(block)]
        tails = [e for s in walk_stmts(body) for _, tail in scopes(s) for e in tail]
        changed -= {b for s in inside if (b := getattr(s, "buffer", None)) is not None}
        changed -= {r.buffer for e in (*(o for s in inside for o in operands(s)), *tails) for r in reads(e)}
        changed -= {s.buffer for s in body if isinstance(s, ir.Store | ir.Accumulate) and s.value.type != s.buffer.element}
        changed -= {s.buffer for s in body if isinstance(s, ir.Accumulate) and is_sum(s)}  # all threads add to it
        return [b for b in dict.fromkeys(written(s) for s in body) if b in changed]

    def distances(self, buffer: ir.Buffer) -> list[ir.Expr] | None:
        """What has to be other than 0 for the array's elements to be apart; None where that is no matter of the row."""
        found: dict[_Place, None] = {}
        for index in (i for stmt in self.kernel.body for b, i in accesses(stmt) if b == buffer):
            place = self.place(buffer, index)
            if place is None or any(place.bits != other.bits for other in found):
                return None
            found[place] = None
        distances: dict[ir.Expr, None] = {}
        for one, other in combinations(found, 2):
            far = _difference(dict(one.terms), dict(other.terms), one.bits)
            if not self.of_row(far):
                return None
            if any(far):
                distances[_written(far, one.bits)] = None
        return list(distances)

    def place(self, buffer: ir.Buffer, index: ir.Expr) -> _Place | None:
        """What tells elements apart; None for a subscript that is not the same wherever it stands."""
        if any(v in self.assigned for v in ir.variables(index)) or any(True for _ in reads(index)) or index.type.bits < 32:
            return None
        full = unconverted(substitute(index, self.values))
        found = _wrapped(_polynomial(full), full.type.bits)
        return _Place(buffer, frozenset(found.items()), full.type.bits) if len(found) <= _TERMS else None

    def of_row(self, far: Polynomial) -> bool:
        """True if a distance is made of what is known before the loop over a row."""
        parts = [e for factors in far for e in factors]
        own = [e for part in parts for e in ir.walk(part) if isinstance(e, ir.LaunchIndex)]
        known = all(e.name in ("blockDim", "gridDim") or (e.name == GLOBAL and e.axis != "x") for e in own)
        return known and all(is_of_row(part, self.kernel) for part in parts)


def accesses(stmt: ir.Stmt) -> Iterator[tuple[ir.Buffer, ir.Expr]]:
    """What a statement itself reads and writes, in this order."""
    yield from ((r.buffer, r.index) for e in operands(stmt) for r in reads(e))
    if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take):
        yield stmt.buffer, stmt.index


def _polynomial(expr: ir.Expr) -> Polynomial:
    """An integer as a polynomial modulo what its type holds."""
    match expr:
        case ir.Constant(value=value):
            return {(): int(value)} if value else {}
        case ir.Cast(operand=operand) if operand.type.is_integer and operand.type.bits == expr.type.bits:
            return _polynomial(operand)
        case ir.Binary(op="+" | "-" as op, left=left, right=right):
            return plus(_polynomial(left), scale(_polynomial(right), 1 if op == "+" else -1))
        case ir.Binary(op="*", left=left, right=right):
            one, other = _polynomial(left), _polynomial(right)
            if len(one) * len(other) <= _TERMS:
                return times(one, other)
    return {(expr,): 1}


def _wrapped(polynomial: Polynomial, bits: int) -> Polynomial:
    """A polynomial modulo 2^bits, in signed numbers."""
    numbers = {factors: (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for factors, number in polynomial.items()}
    return {factors: number for factors, number in numbers.items() if number}


def _difference(one: Polynomial, other: Polynomial, bits: int) -> Polynomial:
    """How far two elements lie apart, in one of the two directions."""
    far = _wrapped(plus(one, scale(other, -1)), bits)
    first = next((number for factors, number in sorted(far.items(), key=repr) if factors), 1)
    return far if first > 0 else _wrapped(scale(far, -1), bits)


def _written(far: Polynomial, bits: int) -> ir.Expr:
    """The polynomial as an expression."""
    t, found = (I32 if bits == 32 else I64), None
    for factors, number in sorted(far.items(), key=repr):
        term: ir.Expr = ir.Constant(number, t)
        for factor in factors:
            other = factor if factor.type == t else ir.Cast(factor, t)
            term = other if term == ir.Constant(1, t) else ir.Binary("*", term, other, t)
        found = term if found is None else ir.Binary("+", found, term, t)
    assert found is not None
    return found


# --- variables ---------------------------------------------------------------------------------------------------------------------------


class _Waiting:
    """Goes through a body; `held` is what the elements hold that have been written to, `left` how often each is still accessed."""

    def __init__(self, kernel: ir.Kernel, places: _Places, buffers: frozenset[ir.Buffer]) -> None:
        self.places = places
        self.buffers = buffers
        own = (v for s in walk_stmts(kernel.body) for v in (*targets(s), *bound(s)))
        self.uid = 1 + max((v.uid for v in (*kernel.scalars, *own)), default=0)
        self.held: dict[_Place, ir.Var] = {}
        self.first: dict[_Place, ir.Expr] = {}  # the subscript under which an element is met first: a compiler sees that it is the same
        self.left: dict[_Place, int] = {}
        for stmt in kernel.body:
            for buffer, index in accesses(stmt):
                if buffer in buffers:
                    place = self.place(buffer, index)
                    self.first.setdefault(place, index)
                    self.left[place] = self.left.get(place, 0) + 1

    def place(self, buffer: ir.Buffer, index: ir.Expr) -> _Place:
        found = self.places.place(buffer, index)
        assert found is not None
        return found

    def block(self, body: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for old in body:
            done: list[_Place] = []
            stmt = visit_operands(old, lambda e: self.visit(e, done))  # noqa: B023
            if isinstance(stmt, ir.Load) and stmt.buffer in self.buffers:
                place = self.visited(stmt.buffer, stmt.index, done)
                held = self.held.get(place)
                out.append(ir.Let(stmt.var, held, span=stmt.span) if held is not None else replace(stmt, index=self.first[place]))
            elif isinstance(stmt, ir.Store | ir.Accumulate | ir.Take) and stmt.buffer in self.buffers:
                self.write(stmt, out, done)
            else:
                out.append(stmt)
            out += [self.stored(place, old) for place in done if place in self.held]
        return tuple(out)

    def visit(self, expr: ir.Expr, done: list[_Place]) -> ir.Expr:
        """The expression with what is held in place of what memory will hold; `done`: elements that were met for the last time."""
        if not isinstance(expr, Read) or expr.buffer not in self.buffers:
            return rebuild(expr, lambda e: self.visit(e, done))
        place = self.visited(expr.buffer, expr.index, done)
        return self.held.get(place) or read(expr.buffer, self.first[place])

    def visited(self, buffer: ir.Buffer, index: ir.Expr, done: list[_Place]) -> _Place:
        place = self.place(buffer, index)
        self.left[place] -= 1
        if not self.left[place]:
            done.append(place)
        return place

    def write(self, stmt: ir.Store | ir.Accumulate | ir.Take, out: list[ir.Stmt], done: list[_Place]) -> None:
        place = self.visited(stmt.buffer, stmt.index, done)
        held = self.held.get(place)
        if held is None and not self.left[place]:
            out.append(replace(stmt, index=self.first[place]))
            return
        before = held if held is not None else read(stmt.buffer, self.first[place])
        if isinstance(stmt, ir.Take):
            out.append(ir.Let(stmt.var, before, span=stmt.span))
            value: ir.Expr = ir.Constant(0, stmt.buffer.element)
        else:
            value = stmt.value if isinstance(stmt, ir.Store) else ir.Binary("+", before, stmt.value, stmt.value.type)
        self.held[place] = var = self.var(stmt.buffer)
        out.append(ir.Let(var, value, span=stmt.span, note=stmt.note))

    def stored(self, place: _Place, stmt: ir.Stmt) -> ir.Stmt:
        return ir.Store(place.buffer, self.first[place], self.held[place], span=stmt.span)

    def var(self, buffer: ir.Buffer) -> ir.Var:
        self.uid += 1
        return ir.Var(buffer.name, buffer.element, self.uid)
