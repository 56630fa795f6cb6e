"""Undoes the cyclic distribution of a loop's iterations over threads (grid-stride loops): for proofs, each iteration is a thread of its
own.

`for (i = x; i < n; i += threads_x)`, x being the thread's index, reaches each i below n once, in one thread or another. Where a thread is
known by such loops alone and writes to memory nowhere else, the launch comes to one of as many threads as there are iterations, whose index
is i. What stands beside such a loop is done once a thread, however many iterations there are, so it keeps the launch as it is (RULES 26).
That is for those that look at where things are touched: it says nothing of the order in which a thread comes to its iterations, so who
relies on one thread not reading what another has written has to show that no two iterations meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..analysis.index_polynomials import Polynomial, definitions, plus, polynomial
from ..ir import build as b
from ..ir import folding
from ..ir.names import Names
from ..ir.nodes import Accumulate, Assign, Atomic, Block, Expr, For, If, LaunchIndex, Let, Stmt, Store, Take, Var, variables, walk
from ..ir.rewrite import bound, expressions, map_blocks, spelled, walk_stmts
from ..ir.types import I32, I64
from .dead_code import eliminate_dead_code
from .piecewise_affine import written

_WRITES = (Store, Take, Accumulate, Atomic)
_FAR = 1 << 30  # what stands for a negative number in unsigned arithmetic is far
Iterations = tuple[Expr, ...]  # how many iterations each loop along an axis has


def distribute_cyclically(
    body: Block, indices: Mapping[str, Var], threads: Mapping[str, Var], params: Collection[Var], names: Names
) -> tuple[Block, dict[str, Var], dict[str, Iterations]]:
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

    variable: Expr
    asked: tuple[Expr, ...]
    end: Expr


class _Distribution:
    """Writes loops along an axis as what an iteration does, with `own` for its number."""

    def __init__(self, axis: str, index: Var, threads: Var, params: frozenset[Var], lets: Mapping[Var, Expr], names: Names) -> None:
        self.axis = axis
        self.index = index
        self.threads = threads
        self.params = params
        self.lets = lets
        self.own = names.var(index.name, index.type)
        self.iterations: list[Expr] = []
        self.beside = False  # whether something is done to memory, or carried on, outside of the loops

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            self.beside = self.beside or isinstance(stmt, _WRITES)
            out += self.loop(stmt) if isinstance(stmt, For) else (map_blocks(stmt, self.block),)
        return tuple(out)

    def loop(self, loop: For) -> Block:
        number = self.numbered(loop)
        if number is None or loop.carried or self.hands_on(loop) or not self.counts_threads(polynomial(loop.step, self.lets)):
            return (map_blocks(loop, self.block),)
        inside = b.every([*number.asked, b.compare("<", loop.var, loop.stop)])
        assert inside is not None
        self.iterations.append(number.end)
        return (Let(loop.var, folding.cast(number.variable, loop.var.type), span=loop.span), If(inside, loop.body, span=loop.span))

    def numbered(self, loop: For) -> _Number | None:
        """The loop's variable in terms of an iteration's number, where that can be said."""
        first = plus(polynomial(loop.start, self.lets), {(self.index,): -1})
        stop = spelled(loop.stop, self.lets)  # as it is written: so its value is asked for
        if stop is None or any(v not in self.params for v in variables(stop)):
            return None
        if not self.is_uniform(first) or any(abs(c) >= _FAR for c in first.values()):
            return None
        end = folding.cast(stop, I64)
        least = first.get((), 0)
        if first.keys() <= {()} and least >= 0:  # then the variable may as well be the number
            return _Number(self.own, (b.compare(">=", self.own, folding.integer(least, I32)),) if least else (), end)
        if loop.var.type != I32:  # may begin below zero, and so far above
            return None
        before = written(first)
        return _Number(folding.binary("+", self.own, before, I32), (), folding.binary("-", end, folding.cast(before, I64), I64))

    def hands_on(self, loop: For) -> bool:
        """Whether an iteration leaves something in a variable for others."""
        inside = list(walk_stmts(loop.body))
        own = {v for s in inside for v in bound(s)}
        return any(isinstance(s, Assign) and s.var not in own for s in inside)

    def counts_threads(self, p: Polynomial) -> bool:
        """Whether that is the number of threads along the axis."""
        blocks, size = LaunchIndex("gridDim", self.axis), LaunchIndex("blockDim", self.axis)
        return p == {(self.threads,): 1} or (len(p) == 1 and all(set(m) == {blocks, size} and len(m) == 2 and c == 1 for m, c in p.items()))

    def is_uniform(self, p: Polynomial) -> bool:
        return all(isinstance(atom, Var) and atom in self.params for monomial in p for atom in monomial)

    def knows(self, body: Block) -> bool:
        """Whether something depends on which thread has an iteration."""
        used = (e for s in walk_stmts(body) for top in expressions(s) for e in walk(top))
        return any(e in (self.index, self.threads) or (isinstance(e, LaunchIndex) and e.axis == self.axis) for e in used)
