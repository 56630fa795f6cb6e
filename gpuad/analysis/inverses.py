"""The inverse of a kernel of which each thread exchanges the elements that it overwrites, or changes them in a way that loses no bit.

Taken are kernels whose accesses to memory stand in one block, below conditions and definitions that do not hang on memory: each element
that is stored to is read once before, and each number that is stored is one that was read, with its sign or its bits turned, or an
integer with something added that is no content of memory. The inverse reads the elements that were stored to and stores what was there
before. That the elements are different ones, and that the inverse is one, is for others to show (`affine.inverse_certificate`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.rewrite import Names, holds, spelled, walk_stmts


@dataclass(frozen=True)
class _Change:
    """What a store makes of what was read: `value` of variable `of`, which was read at `source`; `target`: as the kernel writes it."""

    target: tuple[ir.Buffer, ir.Expr]
    source: tuple[ir.Buffer, ir.Expr]
    value: ir.Expr
    of: ir.Var


def inverse(kernel: ir.Kernel) -> ir.Kernel | None:
    """The kernel that takes back what a kernel does; None where this is not known."""
    body = _undone(kernel.body, {}, Names(kernel))
    return replace(kernel, name=f"{kernel.name}_undone", body=body, in_rows=None) if body is not None else None


def _undone(block: ir.Block, lets: Mapping[ir.Var, ir.Expr], names: Names) -> ir.Block | None:
    """A block with the accesses of it undone; None where that cannot be."""
    inner = [s for s in block if holds((s,), ir.Load, ir.Store)]
    if not inner or not all(isinstance(s, ir.Let | ir.If | ir.Load | ir.Store) for s in walk_stmts(block)):
        return None
    known = {**lets, **{s.var: s.value for s in block if isinstance(s, ir.Let)}}
    if all(isinstance(s, ir.Load | ir.Store) for s in inner) and not any(isinstance(s, ir.If) for s in block):
        return _block_undone(block, known, names)
    (branch,) = inner if len(inner) == 1 else (None,)
    if not isinstance(branch, ir.If) or branch.merges or bool(branch.then) is bool(branch.otherwise):
        return None
    side = _undone(branch.then or branch.otherwise, known, names)
    if side is None:
        return None
    new = replace(branch, then=side) if branch.then else replace(branch, otherwise=side)
    return tuple(new if s is branch else s for s in block)


def _block_undone(block: ir.Block, lets: Mapping[ir.Var, ir.Expr], names: Names) -> ir.Block | None:
    changes = _changes(block, lets)
    if changes is None:
        return None
    read = {s.var for s in block if isinstance(s, ir.Load)}
    found: list[ir.Stmt] = [s for s in block if isinstance(s, ir.Let) and not _hangs_on(s.value, lets, read)]
    stores: list[ir.Stmt] = []
    for change in changes:
        there = names.var(change.target[0].name, change.of.type)
        before = _solved(change.value, change.of, there)
        if before is None:
            return None
        found.append(ir.Load(there, *change.target))
        stores.append(ir.Store(*change.source, before))
    return (*found, *stores)


def _changes(block: ir.Block, lets: Mapping[ir.Var, ir.Expr]) -> list[_Change] | None:
    """What is stored where; None unless the elements that are read are those that are stored to, each once, and read before."""
    loads = [s for s in block if isinstance(s, ir.Load)]
    stores = [s for s in block if isinstance(s, ir.Store)]
    read = {s.var: s for s in loads}
    late = any(a.buffer == b.buffer and block.index(a) < block.index(b) for a in stores for b in loads)
    accesses: list[ir.Load | ir.Store] = [*loads, *stores]
    if late or any(_hangs_on(s.index, lets, read) or s.buffer.element.bits < 32 or s.buffer.length is not None for s in accesses):
        return None
    sources = {(s.buffer, spelled(s.index, lets)) for s in loads}
    if sources != {(s.buffer, spelled(s.index, lets)) for s in stores} or not len(sources) == len(loads) == len(stores):
        return None
    found = []
    for s in stores:
        value = spelled(s.value, lets)
        of = {v for v in ir.variables(value) if v in read} if value is not None else set()
        if value is None or len(of) != 1:
            return None
        (var,) = of
        found.append(_Change((s.buffer, s.index), (read[var].buffer, read[var].index), value, var))
    return found if len({c.of for c in found}) == len(loads) else None


def _hangs_on(expr: ir.Expr, lets: Mapping[ir.Var, ir.Expr], read: Collection[ir.Var]) -> bool:
    """True if an expression has something that was read of memory."""
    whole = spelled(expr, lets)
    return whole is None or any(v in read for v in ir.variables(whole))


def _solved(value: ir.Expr, of: ir.Var, there: ir.Expr) -> ir.Expr | None:
    """What `of` was, where `value` of it is `there`; None where bits may be lost."""
    if value == of:
        return there
    whole = value.type.is_integer
    match value:
        case ir.Unary(op="-", operand=inner) if inner.type == value.type:
            return _solved(inner, of, replace(value, operand=there))
        case ir.Unary(op="~", operand=inner) if whole and inner.type == value.type:
            return _solved(inner, of, replace(value, operand=there))
        case ir.Binary(op="+" | "^" as op, left=a, right=b) if whole and a.type == b.type == value.type:
            inner, other = (b, a) if of in set(ir.variables(b)) else (a, b)
            if of in set(ir.variables(other)):
                return None
            return _solved(inner, of, ir.Binary("-" if op == "+" else "^", there, other, value.type))
        case ir.Binary(op="-", left=a, right=b) if whole and a.type == b.type == value.type:
            if of not in set(ir.variables(b)):
                return _solved(a, of, ir.Binary("+", there, b, value.type))
            if of not in set(ir.variables(a)):
                return _solved(b, of, ir.Binary("-", a, there, value.type))
    return None
