"""Vectorisation legality: whether a loop over threads may be announced to the compiler as one with independent iterations, and whether its
tail may overlap the strip before it.

Iterations are independent: a launch has no data races. But compilers take the announcement to mean more, that no two accesses alias which
they cannot tell apart, in one iteration too: a load is moved to an earlier load of its neighbour, over a store of the same thread to the
same element, and a store is moved to a later one. So no access of a thread may follow a store to the same buffer, unless the compiler sees
for itself how the two lie: their subscripts differ by a constant, or are the same. Without the announcement it vectorises what it can
prove.

Subscripts are compared as sums of products of numbers, of which equal ones have one name (value numbering). Loops are gone through twice,
with new names for what an iteration computes: so the accesses of an iteration are compared with those of a later one.

A row's tail that fills no vector is done thread by thread: of a row of 256 cells as much as a third of the time. If a thread only stores,
to memory that no thread reads, running it twice is idempotent (`may_overlap_tail`), and the tail is one more full strip that overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from ...ir import nodes as ir
from ...ir.nodes import Assign, Buffer, If, Kernel, Let, Load, Store
from ...ir.rewrite import rebuild, walk_stmts
from ...ir.types import Scalar
from ..folded import Read, operands, reads, scopes, targets, written
from .lane_conflicts import is_sum

_Product = tuple[int, ...]  # the numbers of its factors
_MOST_TERMS = 8
_MOST_FACTORS = 16  # of a product


@dataclass(frozen=True)
class _Sum:
    """A constant and products of numbered values with their factors. `signed`: computed in signed integers only, which never wrap here."""

    terms: frozenset[tuple[_Product, int]]
    constant: int
    signed: bool = True


@dataclass(frozen=True)
class _Access:
    buffer: ir.Buffer
    place: _Sum


def is_vectorisable(work: Iterable[ir.Stmt | ir.Expr], no_alias: bool, promoted: Set[ir.Buffer] = frozenset()) -> bool:
    """True if the work of a thread, statements or expressions only evaluated, is right wherever its accesses are reordered that a compiler
    cannot tell apart. `no_alias`: no two parameters overlap. `promoted`: buffers of which a thread reaches one element by one
    subscript."""
    items = tuple(work)
    changed = {b for s in walk_stmts(tuple(i for i in items if isinstance(i, ir.Stmt))) if (b := written(s)) is not None}
    order = _Order(no_alias, changed, promoted)
    if order.changed:
        order.items(items, ())
    return order.is_kept()


class _Order:
    """Goes through the work in its order, with the stores that may have been made before."""

    def __init__(self, no_alias: bool, changed: set[ir.Buffer], promoted: Set[ir.Buffer]) -> None:
        self.no_alias = no_alias
        self.changed = changed
        self.promoted = promoted
        self.unclear: set[ir.Buffer] = set()  # what has an access after a store that a compiler cannot tell apart from it
        self.mixed: set[ir.Buffer] = set()  # what is not only stored to, once at each place
        self.stores: dict[_Access, None] = {}
        self.placed: set[tuple[ir.Buffer, frozenset[tuple[_Product, int]]]] = set()
        self.known: dict[ir.Var, _Sum] = {}
        self.numbers: dict[object, int] = {}
        self.counters: dict[int, int] = {}  # of which loop a number is the counter
        self.odd: set[int] = set()  # numbers of which a compiler may know more than we do
        self.in_loops = 0
        self.made = 0

    # --- the work ---

    def items(self, items: Iterable[ir.Stmt | ir.Expr], path: tuple[int, ...]) -> None:
        for k, item in enumerate(items):
            if isinstance(item, ir.Expr):
                self.read(item)
            else:
                self.statement(item, (*path, k))

    def statement(self, stmt: ir.Stmt, path: tuple[int, ...]) -> None:
        for expr in operands(stmt):
            self.read(expr)
        match stmt:
            case ir.If():
                self.branches(stmt, path)
            case ir.For() | ir.While():
                self.loop(stmt, path)
            case ir.Load():
                self.mixed |= {stmt.buffer}
                self.access(stmt.buffer, stmt.index)
            case _ if isinstance(stmt, ir.Alloc) or (isinstance(stmt, ir.Accumulate) and is_sum(stmt)):
                pass
            case _ if (buffer := written(stmt)) is not None:
                self.access(buffer, operands(stmt)[0])
                self.store(stmt, _Access(buffer, self.sum(operands(stmt)[0])))
        self.define(stmt)

    def define(self, stmt: ir.Stmt) -> None:
        for var in targets(stmt):
            is_value = isinstance(stmt, ir.Let | ir.Assign) and var.type.is_integer
            self.known[var] = self.sum(operands(stmt)[0]) if is_value else self.new()

    def branches(self, stmt: ir.If, path: tuple[int, ...]) -> None:
        before, after = self.stores, dict(self.stores)
        for k, (block, ends) in enumerate(scopes(stmt)):
            self.stores = dict(before)
            if k:
                self.renew(stmt)
            self.items((*block, *ends), (*path, k))
            after |= self.stores
        self.stores = after
        self.renew(stmt)
        self.known |= {m.var: self.new() for m in stmt.merges}

    def loop(self, stmt: ir.For | ir.While, path: tuple[int, ...]) -> None:
        ((block, ends),) = scopes(stmt)
        self.in_loops += 1
        for _ in range(2):
            self.renew(stmt)
            self.known |= {c.var: self.new() for c in stmt.carried}
            self.count(stmt, path)
            self.items((*block, *ends), path)
        self.in_loops -= 1
        self.renew(stmt)
        self.known |= {c.result: self.new() for c in stmt.carried}
        if isinstance(stmt, ir.While) and stmt.count is not None:
            self.known[stmt.count] = self.new()

    def count(self, stmt: ir.For | ir.While, path: tuple[int, ...]) -> None:
        counter = stmt.var if isinstance(stmt, ir.For) else stmt.counter
        loop = self.number(path)
        if counter is not None:
            self.known[counter] = self.new()
            if isinstance(stmt, ir.For):
                self.counters[self.made] = loop

    def renew(self, stmt: ir.Stmt) -> None:
        """What the blocks of the statement assign to has another value."""
        inside = (s for block, _ in scopes(stmt) for s in walk_stmts(block))
        self.known |= {s.var: self.new() for s in inside if isinstance(s, ir.Assign)}

    # --- accesses ---

    def read(self, expr: ir.Expr) -> None:
        for found in reads(expr):
            self.mixed |= {found.buffer}
            self.access(found.buffer, found.index)

    def access(self, buffer: ir.Buffer, index: ir.Expr) -> None:
        if not self.stores or (self.no_alias and buffer not in self.changed):
            return
        later = _Access(buffer, self.sum(index))
        self.unclear |= {store.buffer for store in self.stores if not self.is_plain(store, later)}

    def store(self, stmt: ir.Stmt, store: _Access) -> None:
        near = (store.buffer, store.place.terms)
        plain = not any(n in self.odd for product, _ in store.place.terms for n in product)
        lone = isinstance(stmt, ir.Store) and near not in self.placed and not self.in_loops and plain
        self.mixed |= set() if lone else {store.buffer}
        self.placed.add(near)
        self.stores[store] = None

    def is_kept(self) -> bool:
        """True if all is clear, or what is not is no matter: a store that has no neighbour stays where it is."""
        return not self.unclear or (self.no_alias and not self.unclear & self.mixed)

    def is_plain(self, store: _Access, later: _Access) -> bool:
        """True if a compiler sees how the access lies to the store, or they are known to be different elements."""
        if store.buffer != later.buffer:
            return self.no_alias or store.buffer.length is not None or later.buffer.length is not None
        a, b = store.place, later.place
        if a.terms == b.terms:
            return a.constant != b.constant or (a.signed and b.signed)
        if store.buffer in self.promoted:
            return True
        return a.constant == b.constant and self.by_loop(a) == self.by_loop(b) is not None

    def by_loop(self, place: _Sum) -> frozenset[tuple[_Product, int]] | None:
        """The terms in terms of loops instead of iterations; None if iterations may lie at several distances that are no constants."""
        steps: set[_Product | None] = set()
        for product, _ in place.terms:
            rest = tuple(n for n in product if n not in self.counters)
            steps |= {rest} if len(rest) + 1 == len(product) else {rest, None} if len(rest) < len(product) else set()
        if len(steps) > 1:
            return None
        return frozenset((tuple(sorted(self.counters.get(n, n) for n in product)), factor) for product, factor in place.terms)

    # --- subscripts ---

    def number(self, key: object) -> int:
        if key not in self.numbers:
            self.made += 1
            self.numbers[key] = self.made
        return self.numbers[key]

    def new(self) -> _Sum:
        """A value that is like no other."""
        self.made += 1
        self.odd.add(self.made)
        return _one(self.made)

    def sum(self, expr: ir.Expr) -> _Sum:
        match expr:
            case ir.Constant(value=value, type=t) if t.is_integer:
                return _Sum(frozenset(), int(value), t.kind == "int")
            case ir.Var():
                return self.known.get(expr) or _one(self.number(expr))
            case ir.Cast(operand=operand, type=t) if _widens(operand.type, t):
                inner = self.sum(operand)
                same = isinstance(operand, ir.LaunchIndex) or operand.type.kind == t.kind == "int"  # indices of threads are below 2^31
                return _Sum(inner.terms, inner.constant, inner.signed and same)
            case ir.Binary(op="<<", left=left, right=ir.Constant(value=by), type=t) if t.bits >= 32 and 0 <= by < 31:
                return self.sum(ir.Binary("*", left, ir.Constant(1 << int(by), t), t))
            case ir.Binary(op="+" | "-" | "*" as op, left=left, right=right, type=t) if t.is_integer and t.bits >= 32:
                found = _combined(op, self.sum(left), self.sum(right), t)
                return found if found is not None else self.opaque(expr)
        return self.opaque(expr)

    def opaque(self, expr: ir.Expr) -> _Sum:
        if isinstance(expr, Read) and (expr.buffer in self.changed or not self.no_alias):
            return self.new()
        parts: list[_Sum] = []

        def named(part: ir.Expr) -> ir.Expr:
            parts.append(self.sum(part))
            return ir.Var("", part.type, self.number(parts[-1]))

        number = self.number(rebuild(expr, named))
        if not _is_plain(expr) or any(n in self.odd for part in parts for product, _ in part.terms for n in product):
            self.odd.add(number)
        return _one(number)


def _is_plain(expr: ir.Expr) -> bool:
    """True if a compiler knows no more about the number than that it is what it is."""
    return isinstance(expr, Read | ir.LaunchIndex | ir.Cast) or (isinstance(expr, ir.Binary) and expr.op in "%/")


def _one(number: int) -> _Sum:
    return _Sum(frozenset({((number,), 1)}), 0)


def _widens(inner: Scalar, outer: Scalar) -> bool:
    return inner.is_integer and outer.is_integer and outer.bits >= inner.bits >= 32


def _factors(sum_: _Sum) -> int:
    return max((len(product) for product, _ in sum_.terms), default=0)


def _combined(op: str, a: _Sum, b: _Sum, t: Scalar) -> _Sum | None:
    signed = a.signed and b.signed and t.kind == "int"
    terms: dict[_Product, int] = {}
    if op == "*":
        if (len(a.terms) + 1) * (len(b.terms) + 1) > _MOST_TERMS or _factors(a) + _factors(b) > _MOST_FACTORS:
            return None
        for p, f in (*a.terms, ((), a.constant)):
            for q, g in (*b.terms, ((), b.constant)):
                product = tuple(sorted((*p, *q)))
                terms[product] = terms.get(product, 0) + f * g
        constant = terms.pop((), 0)
    else:
        sign = 1 if op == "+" else -1
        terms = dict(a.terms)
        for p, f in b.terms:
            terms[p] = terms.get(p, 0) + sign * f
        constant = a.constant + sign * b.constant
    return _Sum(frozenset((p, f) for p, f in terms.items() if f), constant, signed)


STRIP = 16  # threads; a vector of the widest processors has as many floats


def may_overlap_tail(kernel: Kernel) -> bool:
    """True if that is so of a kernel whose parameters do not overlap, and which only computes."""
    read: set[Buffer] = set()
    stored: set[Buffer] = set()
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, Let | Load | Assign | Store | If):
            return False
        if isinstance(stmt, Store):
            stored.add(stmt.buffer)
        if isinstance(stmt, Load):
            read.add(stmt.buffer)
        behind = [e for _, tail in scopes(stmt) for e in tail]
        read.update(r.buffer for e in (*operands(stmt), *behind) for r in reads(e))
    return not stored & read and all(b.length is None for b in stored)
