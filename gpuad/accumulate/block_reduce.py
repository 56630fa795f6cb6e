"""Block reductions: additions of all threads to an element that a loop walks over become a kernel that sums each element over blocks first.

In `for (k...) y[i] += w[k] * x[i + k]` all threads add to `dw[k]` in iteration k. A kernel of its own goes through the same loop with the
guards of a thread inside: so all threads of a block are there to form the sum, of which one atomic addition a block is left. It runs
before the rest of the adjoint, and must read only what that has not written yet, which a certificate tells. Where data decide in the loop
which threads add, few may, and the additions stay atomic.

Assumes: an adjoint without stacks and barriers. Guarantees: valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..analysis.uniformity import is_thread
from ..ir import folding as b
from ..ir.nodes import Accumulate, Assign, Block, Buffer, Constant, Expr, For, How, If, Let, Stmt, Var, While, variables, walk
from ..ir.rewrite import Names, blocks, defined, edit, spelled, used_vars, walk_stmts
from ..ir.types import F32, F64
from ..memo import Same
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.simplify import simplify
from .gather import is_movable, only


@dataclass(frozen=True, eq=False)
class BlockSums:
    """Additions, and for each nest of loops what they need, with the loops left out."""

    moved: frozenset[Same]
    nests: tuple[tuple[tuple[For, ...], Block], ...]

    @property
    def buffers(self) -> frozenset[Buffer]:
        """The shadows that are added to."""
        return frozenset(s.buffer for _, block in self.nests for s in walk_stmts(block) if isinstance(s, Accumulate))


def block_sums(body: Block, shadows: Collection[Buffer], params: Collection[Var | Buffer]) -> BlockSums | None:
    """Those of the additions to the shadows that can be summed over blocks in loops, or None if there are none."""
    if not is_movable(body):
        return None
    lets = {s.var: s.value for s in walk_stmts(body) if isinstance(s, Let) and s.var.type.is_integer}
    known = _Known(lets, frozenset(p for p in params if isinstance(p, Var)))
    nests: dict[tuple[int, ...], tuple[tuple[For, ...], dict[int, Accumulate]]] = {}
    data = _data(body)
    for stmt, loops, guards in _additions(body):
        if stmt.buffer not in shadows or stmt.buffer.element not in (F32, F64) or not loops or any(v in data for v in guards):
            continue
        even = [known.even(loop) for loop in loops]
        index = known.full(stmt.index, {loop.var for loop in loops})
        if index is None or any(loop is None for loop in even):
            continue
        nest = nests.setdefault(tuple(id(loop) for loop in loops), (tuple(loop for loop in even if loop is not None), {}))
        nest[1][id(stmt)] = replace(stmt, index=index)
    found = []
    for loops, kept in nests.values():
        block = eliminate_dead_code(only(body, {where: (stmt,) for where, stmt in kept.items()}, [loop.var for loop in loops]))
        if _is_good(block, loops):
            found.append((loops, block, kept))
    if not found:
        return None
    taken = {where for *_, kept in found for where in kept}
    moved = frozenset(Same(stmt) for stmt in walk_stmts(body) if id(stmt) in taken)
    return BlockSums(moved, tuple((loops, block) for loops, block, _ in found))


def block_sums_kernel(sums: BlockSums, names: Names, first_own: int) -> Block:
    """The body of the kernel that adds them."""
    out: list[Stmt] = []
    for loops, block in sums.nests:
        totals: dict[tuple[Buffer, Expr], Var] = {}
        inner = _summed(block, totals, names)
        adds = {(s.buffer, s.index): s for s in walk_stmts(block) if isinstance(s, Accumulate)}
        ends = tuple(replace(adds[key], value=total, how=How.REDUCED) for key, total in totals.items())
        nest: Block = (*(Let(v, b.zero(v.type)) for v in totals.values()), *inner, *ends)
        for loop in reversed(loops):
            nest = (replace(loop, body=nest, carried=(), backward=False),)
        out += nest
    return simplify(tuple(out), first_own)


def _summed(block: Block, totals: dict[tuple[Buffer, Expr], Var], names: Names) -> Block:
    def change(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Accumulate):
            return None
        key = stmt.buffer, stmt.index
        total = totals.get(key) or totals.setdefault(key, names.var(stmt.buffer.name, stmt.value.type))
        return (Assign(total, b.add(total, stmt.value), span=stmt.span),)

    return edit(block, change)


def _data(body: Block) -> set[Var]:
    """The variables that memory or floats decide."""
    found: set[Var] = set()
    for stmt in walk_stmts(body):
        if not isinstance(stmt, Let) or stmt.var.type.is_float or any(v in found for v in variables(stmt.value)):
            found.update(defined(stmt))
    return found


def _additions(
    block: Block, loops: tuple[For, ...] = (), guards: tuple[Var, ...] = ()
) -> Iterator[tuple[Accumulate, tuple[For, ...], tuple[Var, ...]]]:
    """The undecided additions with the loops around them, and the variables of the guards in these; those in loops that search for their
    end are left out."""
    for stmt in block:
        if isinstance(stmt, Accumulate) and stmt.how is How.UNDECIDED:
            yield stmt, loops, guards
        elif isinstance(stmt, For):
            yield from _additions(stmt.body, (*loops, stmt), guards)
        elif isinstance(stmt, If):
            more = tuple(variables(stmt.condition)) if loops else ()
            for inner in blocks(stmt):
                yield from _additions(inner, loops, (*guards, *more))


@dataclass(frozen=True)
class _Known:
    lets: Mapping[Var, Expr]
    params: frozenset[Var]

    def full(self, expr: Expr, allowed: Collection[Var]) -> Expr | None:
        """The expression in terms of what is allowed and what all threads of a block have in common."""
        full = spelled(expr, {v: value for v, value in self.lets.items() if v not in allowed})
        if full is None or any(map(is_thread, walk(full))):
            return None
        return full if all(v in allowed or v in self.params for v in variables(full)) else None

    def even(self, loop: For) -> For | None:
        """The loop with bounds made of parameters, if all threads go through the same iterations."""
        start, stop = self.full(loop.start, ()), self.full(loop.stop, ())
        if start is None or stop is None or not isinstance(loop.step, Constant):
            return None
        return replace(loop, start=start, stop=stop)


def _is_good(block: Block, loops: tuple[For, ...]) -> bool:
    """True if nothing is needed that the loops carried, and no other loop is run again in each iteration."""
    carried = {v for loop in loops for c in loop.carried for v in (c.var, c.result)}
    used = set(used_vars(block))
    return not carried & used and not any(isinstance(s, For | While | Assign) for s in walk_stmts(block))
