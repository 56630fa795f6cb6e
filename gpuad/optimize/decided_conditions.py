"""Conditions that the whole numbers of a launch decide, and kernels in which they are decided.

`if (back) atomicAdd(&f[j], w * s); else s += w * f[j];` is two kernels in one text. Where no adjoint is that of both, a launch has that of
the one that it is: which it is says a truth value for each such condition, not the number itself, so that few texts serve all launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..analysis.uniform_uses import uniform_lets, uniform_uses
from ..ir import folding
from ..ir import nodes as ir
from ..ir.nodes import Block, Expr, Kernel, Var
from ..ir.rewrite import map_blocks, map_exprs, substitute, walk_stmts
from ..ir.types import BOOL
from .dead_code import tidy


def conditions(kernel: Kernel) -> tuple[Expr, ...]:
    """The greatest conditions of a kernel that are made of whole numbers of its launch alone."""
    return tuple(e for e in uniform_uses(kernel) if e.type == BOOL)


def outcomes(kernel: Kernel, scalars: Mapping[Var, int]) -> tuple[int | None, ...]:
    """For each of the `conditions` whether a launch with these numbers fulfils it; None where they do not say."""
    given: dict[Var, Expr] = {v: folding.integer(n, v.type) for v, n in scalars.items()}
    return tuple(folding.whole(folding.evaluated(e, given)) for e in conditions(kernel))


def decided(kernel: Kernel, known: Sequence[int | None]) -> Kernel:
    """The kernel as launches run it that have these `outcomes`."""
    sides = {e: ir.Constant(bool(n), BOOL) for e, n in zip(conditions(kernel), known, strict=True) if n is not None}
    lets = uniform_lets(kernel)

    def side(e: Expr) -> Expr:
        return sides.get(substitute(e, lets), e) if e.type == BOOL else e

    body = map_exprs(kernel.body, side)
    while (simpler := _simpler(body)) != body:
        body = simpler
    return replace(kernel, body=tidy(body))


def _simpler(body: Block) -> Block:
    """The block with what has become constant in its place."""
    known = {s.var: s.value for s in walk_stmts(body) if isinstance(s, ir.Let) and isinstance(s.value, ir.Constant)}
    return without_decided(map_exprs(body, lambda e: folding.evaluated(e, known)))


def without_decided(block: Block) -> Block:
    """The block without conditions that are constants."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.If) and isinstance(stmt.condition, ir.Constant):
            holds = bool(stmt.condition.value)
            out.extend(without_decided(stmt.then if holds else stmt.otherwise))
            out.extend(ir.Let(m.var, m.then if holds else m.otherwise, span=stmt.span) for m in stmt.merges)
        else:
            out.append(map_blocks(stmt, without_decided))
    return tuple(out)
