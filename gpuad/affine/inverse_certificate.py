"""Certificates of inverses: one kernel takes back, in all bits, what another has done in a launch.

Both are followed for any one thread, on memory whose elements are symbols: at the end each element that either touches has to hold the
symbol that it began with. And all elements, of one thread and of two, have to be different ones, by isl, for the numbers of the launch.
None of this uses what made the inverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..ir import nodes as ir
from ..ir.rewrite import walk_stmts
from ..ir.types import BOOL, U32, Scalar
from .certificate import Run, meeting
from .effects import Shape

Symbol = tuple[Any, ...]
Access = tuple[tuple[Symbol, ...], ir.Load | ir.Store, Symbol, Symbol | None]  # below which conditions, what, at which element, the value


def takes_back(kernel: ir.Kernel, undone: ir.Kernel, shape: Shape) -> bool:
    """True if a launch of `undone`, after one of `kernel`, leaves memory as it was before, to the bit."""
    memory: dict[Symbol, Symbol] = {}
    cells: dict[Symbol, ir.Store] = {}
    guards: set[tuple[Symbol, ...]] = set()
    for body in (kernel.body, undone.body):
        try:
            for below, stmt, cell, _ in _accesses(body, memory):
                guards.add(below)
                if isinstance(stmt, ir.Store) and body is kernel.body:
                    cells[cell] = stmt
        except _Unknown:
            return False
    if not cells or len(guards) != 1 or cells.keys() != memory.keys() or any(found != _cell(at) for at, found in memory.items()):
        return False
    return _all_different(kernel, list(cells.values()), shape)


class _Unknown(Exception):
    """What is not followed."""


def _cell(at: Symbol) -> Symbol:
    return ("cell", at)


def _accesses(body: ir.Block, memory: dict[Symbol, Symbol]) -> Iterator[Access]:
    """Follows a thread."""
    values: dict[ir.Var, Symbol] = {}

    def follow(block: ir.Block, below: tuple[Symbol, ...]) -> Iterator[Access]:
        for stmt in block:
            match stmt:
                case ir.Let(var=var, value=value):
                    values[var] = _symbol(value, values)
                case ir.If(condition=condition, then=then, otherwise=otherwise, merges=()):
                    guard = _symbol(condition, values)
                    if _reads(guard):
                        raise _Unknown
                    yield from follow(then, (*below, ("then", guard)))
                    yield from follow(otherwise, (*below, ("otherwise", guard)))
                case ir.Load(var=var, buffer=buffer, index=index):
                    at = _place(buffer, index, values)
                    values[var] = memory.setdefault(at, _cell(at))
                    yield below, stmt, at, None
                case ir.Store(buffer=buffer, index=index, value=value):
                    at = _place(buffer, index, values)
                    memory[at] = _symbol(value, values)
                    yield below, stmt, at, memory[at]
                case _:
                    raise _Unknown

    yield from follow(body, ())


def _place(buffer: ir.Buffer, index: ir.Expr, values: Mapping[ir.Var, Symbol]) -> Symbol:
    found = _symbol(index, values)
    if _reads(found):
        raise _Unknown
    return ("place", buffer, found)


def _reads(symbol: Symbol) -> bool:
    """True if a value has something that was read of memory."""
    return symbol[:1] == ("cell",) or any(_reads(part) for part in symbol if isinstance(part, tuple))


def _symbol(expr: ir.Expr, values: Mapping[ir.Var, Symbol]) -> Symbol:
    """An expression's value: the same symbol where it is surely the same number."""
    match expr:
        case ir.Var():
            return values.get(expr, ("given", expr))
        case ir.Constant():
            return ("number", repr(expr.value), expr.type)
        case ir.LaunchIndex(name=name, axis=axis):
            return ("index", name, axis)
        case ir.Unary(op=op, operand=a, type=type_):
            inner = _symbol(a, values)
            turned = (op == "-" or (op == "~" and type_.is_integer)) and inner[:3] == ("unary", op, type_)
            return inner[3] if turned else ("unary", op, type_, inner)
        case ir.Binary(op=op, left=a, right=b, type=type_):
            return _combined(op, _symbol(a, values), _symbol(b, values), type_)
        case ir.Cast(operand=a, type=type_):
            return ("cast", type_, _symbol(a, values))
    raise _Unknown


def _combined(op: str, a: Symbol, b: Symbol, type_: Scalar) -> Symbol:
    """Two values joined; sums and exclusive ors of integers, which wrap, without what cancels out."""
    if type_.is_integer:
        kind, parts = a[:3], a[3:]
        if op == "-" and kind == ("binary", "+", type_) and b in parts:
            return parts[1 - parts.index(b)]  # type: ignore[no-any-return]
        if op == "+" and kind == ("binary", "-", type_) and parts[1] == b:
            return parts[0]  # type: ignore[no-any-return]
        if op == "-" and b[:3] == ("binary", "-", type_) and b[3] == a:
            return b[4]  # type: ignore[no-any-return]
        if op == "^" and kind == ("binary", "^", type_) and b in parts:
            return parts[1 - parts.index(b)]  # type: ignore[no-any-return]
    return ("binary", op, type_, a, b)


def _all_different(kernel: ir.Kernel, stores: list[ir.Store], shape: Shape) -> bool:
    """True if all elements that all threads touch are different ones: each store as a thread of its own, along an axis that is free."""
    buffers = {s.buffer for s in stores}
    if shape.grid[2] * shape.block[2] != 1 or any(_asks_z(e) for s in walk_stmts(kernel.body) for e in _every(s)):
        return False
    spread = _spread(kernel.body, {id(s): k for k, s in enumerate(stores)})
    block = (shape.block[0], shape.block[1], len(stores))
    try:
        return not meeting(Run(spread, Shape(shape.grid, block, shape.numbers)), buffers)
    except RecursionError:
        return False


def _every(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    match stmt:
        case ir.Let(value=value):
            yield from ir.walk(value)
        case ir.If(condition=condition):
            yield from ir.walk(condition)
        case ir.Load(index=index):
            yield from ir.walk(index)
        case ir.Store(index=index, value=value):
            yield from ir.walk(index)
            yield from ir.walk(value)


def _asks_z(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.LaunchIndex) and expr.axis == "z"


def _spread(block: ir.Block, numbers: Mapping[int, int]) -> ir.Block:
    """A block whose stores are done by one thread each; what they store is no matter, and loads are left out with what is made of them."""
    found: list[ir.Stmt] = []
    gone: set[ir.Var] = set()
    for stmt in block:
        match stmt:
            case ir.Load(var=var):
                gone.add(var)
            case ir.Let(var=var, value=value) if any(v in gone for v in ir.variables(value)):
                gone.add(var)
            case ir.If(then=then, otherwise=otherwise):
                found.append(replace(stmt, then=_spread(then, numbers), otherwise=_spread(otherwise, numbers)))
            case ir.Store(buffer=buffer, index=index):
                turn = ir.Binary("==", ir.LaunchIndex("threadIdx", "z"), ir.Constant(numbers[id(stmt)], U32), BOOL)
                found.append(ir.If(turn, (ir.Store(buffer, index, ir.Constant(0, buffer.element)),)))
            case _:
                found.append(stmt)
    return tuple(found)


__all__ = ["takes_back"]
