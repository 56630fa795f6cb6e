"""Canonicalises thread indices: `blockIdx.x * blockDim.x + threadIdx.x` becomes one variable an axis, through conversions and variables.

A kernel that knows its thread by `blockIdx.z` alone is taken to have blocks of one thread along z, one that knows it by `threadIdx.y` alone
one block along y; one that has a block for each row, `blockIdx.x * n + threadIdx.x`, to be a launch in which the blocks stand along another
axis. What is left of `blockIdx` and `threadIdx` then is what the kernel knows of its thread besides the global index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.index_polynomials import polynomial
from ..ir import folding
from ..ir.nodes import Binary, Block, Cast, Constant, Expr, LaunchIndex, Let, Stmt, Var, walk
from ..ir.rewrite import assigned_vars, expressions, map_blocks, map_stmt_exprs, rebuild, substitute, walk_stmts
from ..ir.types import I32, U32, Scalar
from .cyclic_distribution import Iterations

AXES = "xyz"
Three: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True)
class Geometry:
    """What is taken for granted of a launch: `widths`, the block's size along some axes; `alone`, the axes along which there is one block;
    `rows`, axes whose blocks are taken to stand along another one; `iterations`, axes along which each of so many iterations is taken to
    have a thread."""

    widths: Mapping[str, int] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()
    rows: tuple[tuple[str, str], ...] = ()
    iterations: Mapping[str, Iterations] = field(default_factory=dict)

    def holds(self, grid: Three, block: Three) -> bool:
        """Whether a launch is like that."""
        widths = all(block[AXES.index(axis)] == n for axis, n in self.widths.items())
        return widths and all(grid[AXES.index(axis)] == 1 for axis in self.alone)

    def grid(self, grid: Three, block: Three, number: Callable[[Expr], int]) -> Three:
        """The grid with blocks where they are taken to stand, and as many as are taken to be; `number`: what an expression over parameters
        comes to."""
        blocks = dict(zip(AXES, grid, strict=True))
        for there, here in self.rows:
            blocks[there], blocks[here] = blocks[here], blocks[there]
        for axis, counts in self.iterations.items():
            blocks[axis] = max(1, *(-(-number(n) // block[AXES.index(axis)]) for n in counts))
        return blocks["x"], blocks["y"], blocks["z"]


def canonicalise_thread_indices(body: Block, indices: Mapping[str, Var], threads: Mapping[str, Var]) -> tuple[Block, Geometry]:
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


def _bare(body: Block, indices: Mapping[str, Var], threads: Mapping[str, Var]) -> tuple[dict[LaunchIndex, Var], Geometry]:
    """Which parts of an index are the index along an axis of which nothing else is known, and what that takes for granted."""
    used = {e for s in walk_stmts(body) for top in expressions(s) for e in walk(top) if isinstance(e, LaunchIndex | Var)}
    asked = {a: {e.name for e in used if isinstance(e, LaunchIndex) and e.axis == a} for a in AXES if indices[a] not in used}
    empty = [a for a, names in asked.items() if not names]
    bare: dict[LaunchIndex, Var] = {}
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
            bare |= {LaunchIndex("threadIdx", axis): indices[axis], LaunchIndex("blockDim", axis): threads[axis]}
        if "blockIdx" in names:
            widths[here] = 1
            bare |= {LaunchIndex("blockIdx", axis): indices[here], LaunchIndex("gridDim", axis): threads[here]}
    return bare, Geometry(widths, frozenset(alone), tuple(rows))


class _Canonicalisation:
    """Writes `blockIdx * blockDim + threadIdx` as one variable an axis. Variables that hold a part of that are put in at their uses.
    `bare`: what stands for parts of it, and for the number of threads."""

    def __init__(self, indices: Mapping[str, Var], assigned: Collection[Var], bare: Mapping[LaunchIndex, Var]) -> None:
        self.indices = indices
        self.assigned = assigned
        self.bare = bare
        self.widths: dict[str, int] = {}
        self.parts: dict[Var, Expr] = {}

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            inside = map_blocks(stmt, self.block)  # first: merges and carried values speak of what is defined there
            new = map_stmt_exprs(inside, lambda e: self.expr(substitute(e, self.parts)))
            if isinstance(new, Let) and new.var not in self.assigned and _leads(new.value):
                self.parts[new.var] = new.value
                continue
            out.append(new)
        return tuple(out)

    def expr(self, expr: Expr) -> Expr:
        if isinstance(expr, LaunchIndex):
            return folding.cast(self.bare[expr], expr.type) if expr in self.bare else expr
        axis = self.axis(expr)
        if axis is not None:
            return folding.cast(self.indices[axis], expr.type)
        new = rebuild(expr, self.expr)
        if isinstance(new, Cast) and isinstance(new.operand, Cast) and new.operand.operand in self.indices.values():
            wide = all(t.is_integer and t.bits >= 32 for t in (new.type, new.operand.type))
            return folding.cast(new.operand.operand, new.type) if wide else new  # the same for a thread that exists, signed or not
        if isinstance(new, Cast) and new.type == I32 and new.operand.type == U32 and any(e in self.indices.values() for e in walk(new)):
            return _signed(new.operand) or new
        return new

    def axis(self, expr: Expr) -> str | None:
        """The axis of which the expression is the global index, on condition of the noted width."""
        if not isinstance(expr, Binary) or expr.op != "+" or not all(_is_ring(e) for e in walk(expr)):
            return None
        p = polynomial(expr, {})
        for axis in AXES:
            thread, block, extent = (LaunchIndex(n, axis) for n in ("threadIdx", "blockIdx", "blockDim"))
            if p.get((thread,)) != 1 or len(p) != 2:
                continue
            (monomial, factor), *_ = [(m, c) for m, c in p.items() if m != (thread,)]
            if set(monomial) == {block, extent} and len(monomial) == 2 and factor == 1:
                return axis
            if monomial == (block,) and factor > 0 and self.widths.setdefault(axis, factor) == factor:
                return axis
        return None


def _is_ring(expr: Expr) -> bool:
    """Sums and products of launch indices and constants that cannot wrap where the global index is an int."""
    match expr:
        case LaunchIndex(name="threadIdx" | "blockIdx" | "blockDim"):
            return True
        case Constant(value=v):
            return expr.type.is_integer and 0 < int(v) <= 1024
        case Binary(op="+" | "*") | Cast():
            return expr.type.is_integer and expr.type.bits >= 32
    return False


def _signed(expr: Expr) -> Expr | None:
    """An unsigned sum of products, converted to int, as one of ints: wrapping, they are the same."""
    match expr:
        case Constant() | Cast(operand=Var(type=Scalar("int", 32))):
            return folding.cast(expr, I32)
        case Var():
            return Cast(expr, I32)
        case Binary(op="+" | "-" | "*", left=x, right=y):
            left, right = _signed(x), _signed(y)
            return None if left is None or right is None else folding.binary(expr.op, left, right, I32)
    return None


def _is_part(expr: Expr) -> bool:
    return isinstance(expr, LaunchIndex) and expr.name in ("threadIdx", "blockIdx")


def _leads(value: Expr) -> bool:
    """Whether the value is on the way to a global index: it has a part of one, or is the width of the blocks under a name of the user's."""
    bare = value
    while isinstance(bare, Cast):
        bare = bare.operand
    return any(_is_part(e) for e in walk(value)) or (isinstance(bare, LaunchIndex) and bare.name == "blockDim")
