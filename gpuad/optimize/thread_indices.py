"""Canonicalises thread indices: `blockIdx.x * blockDim.x + threadIdx.x` becomes one variable an axis, through conversions and variables.

A kernel that knows its thread by `blockIdx.z` alone is taken to have blocks of one thread along z, one that knows it by `threadIdx.y` alone
one block along y; one that has a block for each row, `blockIdx.x * n + threadIdx.x`, to be a launch in which the blocks stand along another
axis. What is left of `blockIdx` and `threadIdx` then is what the kernel knows of its thread besides the global index.

Undoes the cyclic distribution of a loop's iterations over threads (grid-stride loops): for proofs, each iteration is a thread of its
own.

`for (i = x; i < n; i += threads_x)`, x being the thread's index, reaches each i below n once, in one thread or another. Where a thread is
known by such loops alone and writes to memory nowhere else, the launch comes to one of as many threads as there are iterations, whose index
is i. What stands beside such a loop is done once a thread, however many iterations there are, so it keeps the launch as it is (rule 26 of
the contract). That is for those that look at where things are touched: it says nothing of the order in which a thread comes to its
iterations, so who relies on one thread not reading what another has written has to show that no two iterations meet.

Normalises comparisons of a thread's index with bounds: `x >= 2` for `x - 1 > 0`, `x < 1` for `x + (n - 1) < n`.

A comparison of ints is rearranged as one of whole numbers, which it is where no value on the way is near the ends of an int. So what is
rearranged is noted, for a launch to look at the numbers (`Tidied.forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.index_polynomials import Polynomial, atoms, constant, definitions, plus, polynomial, scale, split
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    Names,
    assigned_vars,
    bound,
    expressions_in,
    map_blocks,
    map_stmt_exprs,
    rebuild,
    spelled,
    substitute,
    walk_stmts,
)
from ..ir.types import BOOL, I32, I64, U32, Scalar
from .dead_code import eliminate_dead_code
from .delinearisation import MixedRadix
from .piecewise_affine import written

AXES = "xyz"
Three: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True)
class Geometry:
    """What is taken for granted of a launch: `widths`, the block's size along some axes; `alone`, the axes along which there is one block;
    `rows`, axes whose blocks are taken to stand along another one; `iterations`, axes along which each of so many iterations is taken to
    have a thread; `digits`, axes along which a thread's index is taken apart, which takes the other axes in it to have one thread."""

    widths: Mapping[str, int] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()
    rows: tuple[tuple[str, str], ...] = ()
    iterations: Mapping[str, Iterations] = field(default_factory=dict)
    digits: Mapping[str, MixedRadix] = field(default_factory=dict)

    def holds(self, grid: Three, block: Three) -> bool:
        """True if a launch is like that."""
        widths = all(block[AXES.index(axis)] == n for axis, n in self.widths.items())
        taken = {other for axis, mixed in self.digits.items() for other, _ in mixed.axes if other != axis}
        free = all(grid[AXES.index(axis)] == block[AXES.index(axis)] == 1 for axis in taken)
        return widths and free and all(grid[AXES.index(axis)] == 1 for axis in self.alone)

    @property
    def loops(self) -> frozenset[ir.Var]:
        """The digits that are loops around all that a thread does."""
        return frozenset(var for mixed in self.digits.values() for var, _ in mixed.loops)

    def threads(self, grid: Three, block: Three, number: Callable[[ir.Expr], int]) -> Three:
        """How many threads there are taken to be along each axis; `number`: what an expression over parameters comes to."""
        found = {axis: g * n for axis, g, n in zip(AXES, self.grid(grid, block, number), block, strict=True)}
        for axis, mixed in self.digits.items():
            found |= mixed.threads(found[axis], number)
        return found["x"], found["y"], found["z"]

    def grid(self, grid: Three, block: Three, number: Callable[[ir.Expr], int]) -> Three:
        """The grid with blocks where they are taken to stand, and as many as are taken to be; `number`: what an expression over parameters
        comes to."""
        blocks = dict(zip(AXES, grid, strict=True))
        for there, here in self.rows:
            blocks[there], blocks[here] = blocks[here], blocks[there]
        for axis, counts in self.iterations.items():
            blocks[axis] = max(1, *(-(-number(n) // block[AXES.index(axis)]) for n in counts))
        return blocks["x"], blocks["y"], blocks["z"]


def canonicalise_thread_indices(body: ir.Block, indices: Mapping[str, ir.Var], threads: Mapping[str, ir.Var]) -> tuple[ir.Block, Geometry]:
    """The body with the thread's index along each axis as a variable, and for which launches that holds; `threads`: what stands for the
    number of threads along an axis."""
    first = _Canonicalisation(indices, assigned_vars(body), {})
    written = first.block(body)
    bare, geometry = _bare(written, indices, threads)
    if not bare:
        return written, Geometry(first.widths)
    second = _Canonicalisation(indices, assigned_vars(body), bare)
    written = second.block(body)
    return written, replace(geometry, widths={**second.widths, **geometry.widths})


def _bare(body: ir.Block, indices: Mapping[str, ir.Var], threads: Mapping[str, ir.Var]) -> tuple[dict[ir.LaunchIndex, ir.Var], Geometry]:
    """Which parts of an index are the index along an axis of which nothing else is known, and what that takes for granted."""
    used = {e for top in expressions_in(body) for e in ir.walk(top) if isinstance(e, ir.LaunchIndex | ir.Var)}
    asked = {a: {e.name for e in used if isinstance(e, ir.LaunchIndex) and e.axis == a} for a in AXES if indices[a] not in used}
    empty = [a for a, names in asked.items() if not names]
    bare: dict[ir.LaunchIndex, ir.Var] = {}
    widths: dict[str, int] = {}
    alone: set[str] = set()
    rows: list[tuple[str, str]] = []
    for axis, names in asked.items():
        here = axis
        if {"blockIdx", "threadIdx"} <= names:
            if not empty:
                continue
            here = empty.pop(0)
            rows.append((axis, here))
        if "threadIdx" in names:
            alone.add(here)
            bare |= {ir.LaunchIndex("threadIdx", axis): indices[axis], ir.LaunchIndex("blockDim", axis): threads[axis]}
        if "blockIdx" in names:
            widths[here] = 1
            bare |= {ir.LaunchIndex("blockIdx", axis): indices[here], ir.LaunchIndex("gridDim", axis): threads[here]}
    return bare, Geometry(widths, frozenset(alone), tuple(rows))


class _Canonicalisation:
    """Writes `blockIdx * blockDim + threadIdx` as one variable an axis. Variables that hold a part of that are put in at their uses.
    `bare`: what stands for parts of it, and for the number of threads."""

    def __init__(self, indices: Mapping[str, ir.Var], assigned: Collection[ir.Var], bare: Mapping[ir.LaunchIndex, ir.Var]) -> None:
        self.indices = indices
        self.assigned = assigned
        self.bare = bare
        self.widths: dict[str, int] = {}
        self.parts: dict[ir.Var, ir.Expr] = {}

    def block(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            inside = map_blocks(stmt, self.block)  # first: merges and carried values speak of what is defined there
            new = map_stmt_exprs(inside, lambda e: self.expr(substitute(e, self.parts)))
            if isinstance(new, ir.Let) and new.var not in self.assigned and _leads(new.value):
                self.parts[new.var] = new.value
                continue
            out.append(new)
        return tuple(out)

    def expr(self, expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.LaunchIndex):
            return b.cast(self.bare[expr], expr.type) if expr in self.bare else expr
        axis = self.axis(expr)
        if axis is not None:
            return b.cast(self.indices[axis], expr.type)
        new = rebuild(expr, self.expr)
        if isinstance(new, ir.Cast) and isinstance(new.operand, ir.Cast) and new.operand.operand in self.indices.values():
            wide = all(t.is_integer and t.bits >= 32 for t in (new.type, new.operand.type))
            return b.cast(new.operand.operand, new.type) if wide else new  # the same for a thread that exists, signed or not
        if (
            isinstance(new, ir.Cast)
            and new.type == I32
            and new.operand.type == U32
            and any(e in self.indices.values() for e in ir.walk(new))
        ):
            return _signed(new.operand) or new
        return new

    def axis(self, expr: ir.Expr) -> str | None:
        """The axis of which the expression is the global index, on condition of the noted width."""
        if not isinstance(expr, ir.Binary) or expr.op != "+" or not all(_is_ring(e) for e in ir.walk(expr)):
            return None
        p = polynomial(expr, {})
        for axis in AXES:
            thread, block, extent = (ir.LaunchIndex(n, axis) for n in ("threadIdx", "blockIdx", "blockDim"))
            if p.get((thread,)) != 1 or len(p) != 2:
                continue
            (monomial, factor), *_ = [(m, c) for m, c in p.items() if m != (thread,)]
            if set(monomial) == {block, extent} and len(monomial) == 2 and factor == 1:
                return axis
            if monomial == (block,) and factor > 0 and self.widths.setdefault(axis, factor) == factor:
                return axis
        return None


def _is_ring(expr: ir.Expr) -> bool:
    """Sums and products of launch indices and constants that cannot wrap where the global index is an int."""
    match expr:
        case ir.LaunchIndex(name="threadIdx" | "blockIdx" | "blockDim"):
            return True
        case ir.Constant(value=v):
            return expr.type.is_integer and 0 < int(v) <= 1024
        case ir.Binary(op="+" | "*") | ir.Cast():
            return expr.type.is_integer and expr.type.bits >= 32
    return False


def _signed(expr: ir.Expr) -> ir.Expr | None:
    """An unsigned sum of products, converted to int, as one of ints: wrapping, they are the same."""
    match expr:
        case ir.Constant() | ir.Cast(operand=ir.Var(type=Scalar("int", 32))):
            return b.cast(expr, I32)
        case ir.Var():
            return ir.Cast(expr, I32)
        case ir.Binary(op="+" | "-" | "*", left=x, right=y):
            left, right = _signed(x), _signed(y)
            return None if left is None or right is None else b.binary(expr.op, left, right, I32)
    return None


def _is_part(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.LaunchIndex) and expr.name in ("threadIdx", "blockIdx")


def _leads(value: ir.Expr) -> bool:
    """True if the value is on the way to a global index: it has a part of one, or is the width of the blocks under a name of the user's."""
    bare = value
    while isinstance(bare, ir.Cast):
        bare = bare.operand
    return any(_is_part(e) for e in ir.walk(value)) or (isinstance(bare, ir.LaunchIndex) and bare.name == "blockDim")


_WRITES = (ir.Store, ir.Take, ir.Accumulate, ir.Atomic)
_FAR = 1 << 30  # what stands for a negative number in unsigned arithmetic is far
Iterations = tuple[ir.Expr, ...]  # how many iterations each loop along an axis has


def distribute_cyclically(
    body: ir.Block, indices: Mapping[str, ir.Var], threads: Mapping[str, ir.Var], params: Collection[ir.Var], names: Names
) -> tuple[ir.Block, dict[str, ir.Var], dict[str, Iterations]]:
    """The body with iterations as threads along those axes where that can be; the index along each axis, and how many iterations the loops
    along those axes have."""
    indices, found = dict(indices), {}
    for axis, index in indices.items():
        loops = _Distribution(axis, index, threads[axis], frozenset(params), definitions(body), names)
        new = eliminate_dead_code(loops.block(body))
        if loops.iterations and not loops.beside and not loops.knows(new):
            body, indices[axis], found[axis] = new, loops.own, tuple(dict.fromkeys(loops.iterations))
    return body, indices, found


@dataclass(frozen=True)
class _Number:
    """What a loop's variable is in the iteration of a number; what has to be `asked` of the number, beside the loop's own bound; how many
    numbers there are."""

    variable: ir.Expr
    asked: tuple[ir.Expr, ...]
    end: ir.Expr


class _Distribution:
    """Writes loops along an axis as what an iteration does, with `own` for its number."""

    def __init__(
        self, axis: str, index: ir.Var, threads: ir.Var, params: frozenset[ir.Var], lets: Mapping[ir.Var, ir.Expr], names: Names
    ) -> None:
        self.axis = axis
        self.index = index
        self.threads = threads
        self.params = params
        self.lets = lets
        self.own = names.var(index.name, index.type)
        self.iterations: list[ir.Expr] = []
        self.beside = False  # whether something is done to memory, or carried on, outside of the loops

    def block(self, block: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            self.beside = self.beside or isinstance(stmt, _WRITES)
            out += self.loop(stmt) if isinstance(stmt, ir.For) else (map_blocks(stmt, self.block),)
        return tuple(out)

    def loop(self, loop: ir.For) -> ir.Block:
        number = self.numbered(loop)
        if number is None or loop.carried or self.hands_on(loop) or not self.counts_threads(polynomial(loop.step, self.lets)):
            return (map_blocks(loop, self.block),)
        inside = b.every([*number.asked, b.compare("<", loop.var, loop.stop)])
        assert inside is not None
        self.iterations.append(number.end)
        return (ir.Let(loop.var, b.cast(number.variable, loop.var.type), span=loop.span), ir.If(inside, loop.body, span=loop.span))

    def numbered(self, loop: ir.For) -> _Number | None:
        """The loop's variable in terms of an iteration's number, where that can be said."""
        first = plus(polynomial(loop.start, self.lets), {(self.index,): -1})
        stop = spelled(loop.stop, self.lets)  # as it is written: so its value is asked for
        if stop is None or any(v not in self.params for v in ir.variables(stop)):
            return None
        if not self.is_uniform(first) or any(abs(c) >= _FAR for c in first.values()):
            return None
        end = b.cast(stop, I64)
        least = first.get((), 0)
        if first.keys() <= {()} and least >= 0:  # then the variable may as well be the number
            return _Number(self.own, (b.compare(">=", self.own, b.integer(least, I32)),) if least else (), end)
        if loop.var.type != I32:  # may begin below zero, and so far above
            return None
        before = written(first)
        return _Number(b.binary("+", self.own, before, I32), (), b.binary("-", end, b.cast(before, I64), I64))

    def hands_on(self, loop: ir.For) -> bool:
        """True if an iteration leaves something in a variable for others."""
        inside = list(walk_stmts(loop.body))
        own = {v for s in inside for v in bound(s)}
        return any(isinstance(s, ir.Assign) and s.var not in own for s in inside)

    def counts_threads(self, p: Polynomial) -> bool:
        """True if that is the number of threads along the axis."""
        blocks, size = ir.LaunchIndex("gridDim", self.axis), ir.LaunchIndex("blockDim", self.axis)
        return p == {(self.threads,): 1} or (len(p) == 1 and all(set(m) == {blocks, size} and len(m) == 2 and c == 1 for m, c in p.items()))

    def is_uniform(self, p: Polynomial) -> bool:
        return all(isinstance(atom, ir.Var) and atom in self.params for monomial in p for atom in monomial)

    def knows(self, body: ir.Block) -> bool:
        """True if something depends on which thread has an iteration."""
        used = (e for top in expressions_in(body) for e in ir.walk(top))
        return any(e in (self.index, self.threads) or (isinstance(e, ir.LaunchIndex) and e.axis == self.axis) for e in used)


_ENDS = {"<": (1, -1), "<=": (1, 0), ">": (-1, 1), ">=": (-1, 0)}  # which way, and how far from the bound the last one lies


@dataclass
class SimplifiedBounds:
    """Rearranges comparisons of `indices`, of which those in `natural` are never negative. `forms`: what was compared, as sums;
    `known`: what it has become."""

    indices: Collection[ir.Var]
    natural: Collection[ir.Var]
    scalars: Collection[ir.Var]
    forms: list[Polynomial] = field(default_factory=list)
    known: set[ir.Expr] = field(default_factory=set)

    def block(self, block: ir.Block) -> ir.Block:
        """The block with conditions rearranged; those that surely hold are gone."""
        out: list[ir.Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, self.block)
            match stmt:
                case ir.If(condition=c, then=then, otherwise=(), merges=()):
                    condition = self.condition(c)
                    out += then if b.is_const(condition, True) else [ir.If(condition, then, span=stmt.span, note=stmt.note)]
                case _:
                    out.append(stmt)
        return tuple(out)

    def condition(self, expr: ir.Expr) -> ir.Expr:
        """A conjunction, each term once."""
        terms: list[ir.Expr] = []
        for term in b.conjuncts(expr):
            new = self.term(term)
            if not b.is_const(new, True) and not any(self.implies(other, new) for other in terms):
                terms = [*(other for other in terms if not self.implies(new, other)), new]
        result: ir.Expr | None = None
        for term in terms:
            result = term if result is None else ir.Binary("&&", result, term, BOOL)
        return result if result is not None else b.const(True, BOOL)

    def implies(self, given: ir.Expr, term: ir.Expr) -> bool:
        """True if one comparison of an index makes another superfluous."""
        if given == term:
            return True
        if (
            not isinstance(given, ir.Binary)
            or not isinstance(term, ir.Binary)
            or given.left != term.left
            or not {given, term} <= self.known
        ):
            return False
        ahead = constant(plus(polynomial(term.right, {}), scale(polynomial(given.right, {}), -1)))
        if ahead is None or term.op not in _ENDS or (given.op != "==" and _ENDS.get(given.op, (0, 0))[0] != _ENDS[term.op][0]):
            return False
        way, last = _ENDS[term.op]
        return way * (ahead + last - _ENDS.get(given.op, (0, 0))[1]) >= 0

    def term(self, term: ir.Expr) -> ir.Expr:
        if not isinstance(term, ir.Binary) or term.op not in ir.COMPARISONS or term.left.type != I32 or not _is_sum(term.left, term.right):
            return term
        left, right = polynomial(term.left, {}), polynomial(term.right, {})
        rest = plus(left, scale(right, -1))
        found = [v for v in self.indices if any(v in m for m in rest)]
        parts = split(rest, found[0]) if len(found) == 1 else None
        if parts is None or parts[0] not in ({(): 1}, {(): -1}) or not all(a in self.scalars for a in atoms(parts[1])):
            return term
        positive = parts[0][()] == 1
        bound = scale(parts[1], -1 if positive else 1)
        self.forms += [left, right, bound]
        new = self.written(found[0], term.op if positive else ir.MIRRORED[term.op], bound)
        self.known.add(new)
        return new

    def written(self, index: ir.Var, op: str, bound: Polynomial) -> ir.Expr:
        if op in ("<=", ">") and bound.get(()) == -1:
            bound, op = {m: c for m, c in bound.items() if m}, "<" if op == "<=" else ">="
        low = written(bound)
        if (
            index in self.natural
            and isinstance(low, ir.Constant)
            and ((op == ">=" and low.value <= 0) or (op in (">", "!=") and low.value < 0))
        ):
            return b.const(True, BOOL)
        return b.compare(op, index, low)


def _is_sum(*exprs: ir.Expr) -> bool:
    """True if the expressions are sums and products of ints, and conversions of ints of 64 bits."""
    for expr in exprs:
        for e in ir.walk(expr):
            match e:
                case ir.Var() | ir.Constant() | ir.Unary(op="-") | ir.Binary(op="+" | "-" | "*") if e.type == I32:
                    continue
                case ir.Cast(operand=ir.Var(type=t)) if e.type == I32 and t == I64:
                    continue
                case ir.Var() if e.type == I64:
                    continue
            return False
    return True
