"""Finds the axes along which a kernel knows its threads by their global index only: there the CPU runs one long loop instead of blocks.

`blockIdx.x * blockDim.x + threadIdx.x`, through whatever conversions, becomes the launch index `globalIdx.x`. If neither `blockIdx.x` nor
`threadIdx.x` is left then, the kernel cannot tell where one block ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ...ir.nodes import Binary, Block, Carried, Cast, Expr, For, If, Kernel, LaunchIndex, Stmt, While, walk
from ...ir.rewrite import Rewrite, rebuild
from ...ir.types import Scalar
from ..structure import expressions, visit_operands

GLOBAL = "globalIdx"


@dataclass(frozen=True)
class Axes:
    """A kernel with global indices, and the axes (of "xyz") that have no blocks any more."""

    kernel: Kernel
    merged: frozenset[str]


def merge_axes(kernel: Kernel) -> Axes:
    """The kernel in terms of global indices where it can be."""
    kernel = replace(kernel, body=map_expressions(kernel.body, _globally))
    left = {e.axis for e in _indices(kernel.body) if e.name in ("threadIdx", "blockIdx")}
    return Axes(kernel, frozenset("xyz") - left)


def _indices(block: Block) -> Iterator[LaunchIndex]:
    return (e for top in expressions(block) for e in walk(top) if isinstance(e, LaunchIndex))


def _globally(expr: Expr) -> Expr:
    axis = _global_axis(expr)
    if axis is None:
        return rebuild(expr, _globally)
    index = LaunchIndex(GLOBAL, axis)
    return index if expr.type == index.type else Cast(index, expr.type)


def _global_axis(expr: Expr) -> str | None:
    """The axis of which the expression is the global index."""
    if not isinstance(expr, Binary) or expr.op != "+" or not _wide_enough(expr.type):
        return None
    for product, thread in ((expr.left, expr.right), (expr.right, expr.left)):
        product = bare(product)
        if isinstance(product, Binary) and product.op == "*" and _wide_enough(product.type):
            parts = {index_name(product.left), index_name(product.right), index_name(thread)}
            for axis in "xyz":
                if parts == {f"blockIdx.{axis}", f"blockDim.{axis}", f"threadIdx.{axis}"} and index_name(thread) == f"threadIdx.{axis}":
                    return axis
    return None


def _wide_enough(t: Scalar) -> bool:
    return t.is_integer and t.bits >= 32


def bare(expr: Expr) -> Expr:
    """Without conversions between integers of 32 bits and more: no launch index or global index is changed by one."""
    while isinstance(expr, Cast) and _wide_enough(expr.type) and _wide_enough(expr.operand.type):
        expr = expr.operand
    return expr


def index_name(expr: Expr) -> str:
    """`blockDim.x` and kin for a launch index behind conversions, else an empty text."""
    expr = bare(expr)
    return f"{expr.name}.{expr.axis}" if isinstance(expr, LaunchIndex) else ""


def map_expressions(block: Block, visit: Rewrite) -> Block:
    """The block with `visit` applied to every outermost expression."""
    return tuple(_map(stmt, visit) for stmt in block)


def _map(stmt: Stmt, visit: Rewrite) -> Stmt:
    return map_statement(stmt, visit, lambda block: map_expressions(block, visit))


def map_statement(stmt: Stmt, visit: Rewrite, block: Callable[[Block], Block]) -> Stmt:
    """The statement with `visit` applied to its own outermost expressions and `block` to its blocks."""
    stmt = visit_operands(stmt, visit)
    match stmt:
        case If():
            merges = tuple(replace(m, then=visit(m.then), otherwise=visit(m.otherwise)) for m in stmt.merges)
            return replace(stmt, then=block(stmt.then), otherwise=block(stmt.otherwise), merges=merges)
        case For():
            return replace(stmt, body=block(stmt.body), carried=_nexts(stmt.carried, visit))
        case While():
            header, body = block(stmt.header), block(stmt.body)
            return replace(stmt, header=header, condition=visit(stmt.condition), body=body, carried=_nexts(stmt.carried, visit))
    return stmt


def _nexts(carried: tuple[Carried, ...], visit: Rewrite) -> tuple[Carried, ...]:
    return tuple(replace(c, next=visit(c.next)) for c in carried)
