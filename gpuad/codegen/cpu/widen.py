"""Widening: which 32-bit index variables the CPU's text declares as 64-bit ones, so that compilers vectorise the loop over threads.

A C++ compiler that must let an int wrap cannot prove that `u[y * w + x]` walks through memory in unit steps. In 64 bits nothing wraps, and
the value is the same: `+ - *` commute with reduction modulo 2^32, and an address whose 32-bit computation overflows is outside every array.
Sums and products of unsigned numbers may wrap into one: a launch in which they can takes the text in 32 bits (`Wrapping`). So wide
variables are used as they are in subscripts, and through a conversion back to their own type everywhere else. *Exact* ones (a launch index,
a loop's index, with a small constant added) cannot overflow at all and are also compared as they are.

A workaround for g++ 12: finds integers that are made of truth values, `k = x > 0` and `k = x > 0 ? 1 : 0`, and what is computed from
them.

g++ 12 miscompiles vector loops in which such a number is the part of a subscript that differs from thread to thread, as in `table[2 * row +
(x > 0)]`: it takes the mask for the number. So the CPU's text hides such subscripts from the compiler's view of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...ir.nodes import Assign, Binary, Cast, Constant, Expr, For, If, Kernel, LaunchIndex, Let, Select, Unary, Var, While, walk
from ...ir.rewrite import assigned_vars, expressions, walk_stmts
from ...ir.types import BOOL, I32, I64, U32
from ..coalesce import Classes

SMALL = 1 << 16  # constants below this, added to a launch index, stay within an int32; the launcher checks the extents


@dataclass(frozen=True)
class Wide:
    """The wide variables: `launch` (built from launch indices, or counting between small numbers) and `loops` have the very value of their
    32-bit originals, `congruent` ones the same modulo 2^32."""

    launch: frozenset[Var] = frozenset()
    loops: frozenset[Var] = frozenset()
    congruent: frozenset[Var] = frozenset()
    params: frozenset[Var] = frozenset()
    counts: frozenset[Var] = frozenset()  # of `launch`, loops' indices that are not negative

    def __contains__(self, var: object) -> bool:
        return var in self.launch or var in self.loops or var in self.congruent

    def is_exact(self, expr: Expr) -> bool:
        """True if the 64-bit form of a 32-bit expression has the very same value."""
        return expr in self.loops or self.is_index(expr)

    def is_index(self, expr: Expr) -> bool:
        """A launch index, or an int that differs from one by a small constant. As unsigned ones they are below 2^31."""
        match expr:
            case Var():
                return expr in self.launch
            case LaunchIndex():
                return True
            case Cast(operand=operand, type=t):
                small = (t == I32 and operand.type in (I32, U32)) or t == operand.type == U32 or (t == U32 and operand in self.counts)
                return small and self.is_index(operand)
            case Binary(op=op, left=left, right=Constant(value=value), type=t):
                return op in ("+", "-") and t == I32 and abs(value) < SMALL and self.is_index(left)
        return False

    def is_chain(self, expr: Expr) -> bool:
        """True if the expression is a sum or product in which a launch index or a wide variable takes part, and that 64 bits compute
        congruently modulo 2^32."""
        match expr:
            case Var() | LaunchIndex():
                return expr in self or self.is_index(expr)
            case Cast(operand=operand):
                return self.is_index(expr) or (expr.type in (I32, U32) and operand.type in (I32, U32) and self.is_chain(operand))
            case Binary(op="+" | "-" | "*", left=left, right=right):
                return self.is_part(left) and self.is_part(right) and (self.is_chain(left) or self.is_chain(right))
        return False

    def is_long(self, expr: Expr) -> bool:
        """True if a subscript of 64 bits is a sum or product in which an int takes part that is better computed in 64 bits, too."""
        match expr:
            case Cast(operand=operand, type=t):
                return t == I64 and ((operand.type == I32 and self.is_chain(operand)) or (operand.type == U32 and self.is_exact(operand)))
            case Binary(op="+" | "-" | "*", left=left, right=right, type=t):
                return t == I64 and (self.is_long(left) or self.is_long(right))
        return False

    def is_part(self, expr: Expr) -> bool:
        """True if the expression may be a part of a chain: any int; of unsigned values those whose 64-bit value is what their programmer
        means by them, small and of the right sign."""
        match expr:
            case Constant(value=value):
                return expr.type == I32 or (expr.type == U32 and abs(value) < SMALL)
            case Cast(operand=operand) if expr.type == U32:
                return operand.type == I32 or self.is_chain(expr)
            case Binary(op="+" | "-" | "*", left=left, right=right) if expr.type == U32:
                return self.is_part(left) and self.is_part(right)
        return expr.type == I32 or expr in self.params or self.is_chain(expr)


def _counts_threads(loop: For) -> bool:
    """True if the loop's index is small and not negative, as a launch index is."""
    if not all(isinstance(e, Constant) for e in (loop.start, loop.stop, loop.step)):
        return False
    start, stop = (int(e.value) for e in (loop.start, loop.stop) if isinstance(e, Constant))
    return min(start, stop) >= 0 and max(start, stop) < 1 << 30


def widen(kernel: Kernel, classes: Classes) -> Wide:
    """The wide variables of a folded kernel: single-assignment 32-bit integers built from launch indices, and loop indices."""
    assigned = assigned_vars(kernel.body)
    wide = Wide(params=frozenset(v for v in kernel.scalars if v.type == U32))
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For) and stmt.var.type == I32:
            if _counts_threads(stmt):
                wide = replace(wide, launch=wide.launch | {stmt.var}, counts=wide.counts | {stmt.var})
            else:
                wide = replace(wide, loops=wide.loops | {stmt.var})
        if not isinstance(stmt, Let) or stmt.var in assigned or stmt.var.type not in (I32, U32) or len(classes.of(stmt.var)) > 1:
            continue
        if wide.is_index(stmt.value):
            wide = replace(wide, launch=wide.launch | {stmt.var})
        elif wide.is_chain(stmt.value):
            wide = replace(wide, congruent=wide.congruent | {stmt.var})
    return wide


_Range: TypeAlias = "tuple[int, int]"  # the least and the greatest
_FAR = 1 << 64


@dataclass(frozen=True)
class Wrapping:
    """The sums and products of unsigned 32-bit numbers in a kernel that may wrap, for all that its text says, and between which expressions
    its variables are."""

    asked: tuple[Binary, ...]
    values: Mapping[Var, tuple[Expr, Expr]]

    def wraps(self, grid: Sequence[int], block: Sequence[int], numbers: Mapping[Var, int]) -> bool:
        """True if one of them may, in a launch with these scalars, so that an element's index comes out. What is made of what is not known,
        as of what was read, is taken for an index that someone has made sure of."""
        extents = {"blockDim": block, "gridDim": grid}
        counted = {"threadIdx": block, "blockIdx": grid}
        held: dict[Var, _Range | None] = {}

        def ends(expr: Expr) -> _Range | None:
            match expr:
                case Constant(value=value):
                    return int(value), int(value)
                case LaunchIndex(name=name, axis=axis) if name in extents:
                    return (extents[name]["xyz".index(axis)],) * 2
                case LaunchIndex(name=name, axis=axis) if name in counted:
                    return 0, counted[name]["xyz".index(axis)] - 1
                case Var():
                    if expr not in held:
                        held[expr] = of(expr)
                    return held[expr]
                case Cast(operand=operand) if operand.type.is_integer:
                    return ends(operand)
                case Binary(op="+" | "-" | "*" as op, left=left, right=right):
                    one, other = ends(left), ends(right)
                    return None if one is None or other is None else _combined(op, one, other)
            return None

        def of(var: Var) -> _Range | None:
            if var not in self.values:
                return (numbers[var],) * 2 if var in numbers else None
            low, high = map(ends, self.values[var])
            return None if low is None or high is None else (low[0], high[1])

        found = map(ends, self.asked)
        return any(f is not None and (f[0] < -(1 << 31) or f[1] >= 1 << 32) for f in found)


def _combined(op: str, one: _Range, other: _Range) -> _Range:
    """The range of a sum, a difference or a product; what is far is kept no farther."""
    if op == "*":
        found = [a * b for a in one for b in other]
        low, high = min(found), max(found)
    else:
        least, most = other if op == "+" else (-other[1], -other[0])
        low, high = one[0] + least, one[1] + most
    return max(low, -_FAR), min(high, _FAR)


def wrapping(kernel: Kernel) -> Wrapping:
    """The sums and products in a kernel of which a launch has to be asked; those of launch indices alone are small."""
    stmts = list(walk_stmts(kernel.body))
    found = dict.fromkeys(e for s in stmts for top in expressions(s) for e in walk(top) if isinstance(e, Binary) and _may_wrap(e))
    assigned = {s.var for s in stmts if isinstance(s, Assign)}
    values = {s.var: (s.value, s.value) for s in stmts if isinstance(s, Let) and s.var not in assigned and s.var.type.is_integer}
    for stmt in stmts:
        if isinstance(stmt, For) and isinstance(stmt.step, Constant) and stmt.var.type.is_integer:
            values[stmt.var] = (stmt.start, stmt.stop) if stmt.step.value > 0 else (stmt.stop, stmt.start)
    return Wrapping(tuple(found), values)


def _may_wrap(expr: Binary) -> bool:
    if expr.type != U32 or expr.op not in ("+", "-", "*"):
        return False
    if any(isinstance(e, Constant) and abs(e.value) >= SMALL for e in (expr.left, expr.right)):  # no part of a chain
        return False
    return not all(map(_is_of_launch, walk(expr)))


def _is_of_launch(expr: Expr) -> bool:
    """True if the expression is a launch index or a constant, or such are put together as in a global index."""
    if isinstance(expr, Binary) and expr.op == "*":
        return isinstance(expr.left, LaunchIndex) and isinstance(expr.right, LaunchIndex)
    return isinstance(expr, LaunchIndex | Constant | Cast) or (isinstance(expr, Binary) and expr.op in ("+", "-"))


def made_of_truth_values(kernel: Kernel) -> frozenset[Var]:
    """The variables of a folded kernel that are whole numbers made of truth values."""
    found: set[Var] = set()
    before = -1
    while before != len(found):
        before = len(found)
        found |= {var for var, values in _given(kernel) if _is_chosen(values) or any(is_of_truth(e, found) for e in values)}
    return frozenset(found)


def is_of_truth(expr: Expr, known: set[Var] | frozenset[Var]) -> bool:
    """True if a truth value, as a number or as the choice between two numbers, is a part of the expression."""
    return any(e in known if isinstance(e, Var) else _is_one(e) for e in walk(expr))


def _is_one(expr: Expr) -> bool:
    match expr:
        case Cast(operand=operand, type=t):
            return t.is_integer and operand.type == BOOL
        case Select(then=a, otherwise=b, type=t):
            return t.is_integer and _is_chosen([a, b])
        case Unary(op="!", type=t):
            return t.is_integer
    return False


def _is_chosen(values: list[Expr]) -> bool:
    return len(values) > 1 and all(isinstance(v, Constant) for v in values)


def _given(kernel: Kernel) -> Iterator[tuple[Var, list[Expr]]]:
    """Each whole number and what it is given, at one place or where control flow meets."""
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Let(var=var, value=value) | Assign(var=var, value=value) if var.type.is_integer:
                yield var, [value]
            case If(merges=merges):
                yield from ((m.var, [m.then, m.otherwise]) for m in merges if m.var.type.is_integer)
            case For(carried=carried) | While(carried=carried):
                yield from ((v, [c.init, c.next]) for c in carried if c.var.type.is_integer for v in (c.var, c.result))
