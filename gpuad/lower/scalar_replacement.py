"""Scalar replacement of aggregates (SROA) on primals: local arrays with constant indices only (`R[0]`, `camera.at[2]`) become variables.

So they are values like any other: nothing of them has to be kept for the reverse pass that could be named, and its text has no array.

Assumes: a lowered kernel. Guarantees: the same values; an element that is read before it was written, which C++ leaves open, is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.rewrite import Names, walk_stmts
from ..ir.types import Space, value_type

Element: TypeAlias = "tuple[ir.Buffer, int]"
Values: TypeAlias = "dict[Element, ir.Expr]"


def replace_aggregates(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without the arrays that can be variables."""
    arrays = _plain_arrays(kernel.body)
    if not arrays:
        return kernel
    return replace(kernel, body=_Replacement(frozenset(arrays), Names(kernel)).block(kernel.body, {}))


def _plain_arrays(body: ir.Block) -> set[ir.Buffer]:
    """The arrays of a thread that are only reached by numbers within their length."""
    stmts = list(walk_stmts(body))
    arrays = {s.buffer for s in stmts if isinstance(s, ir.Alloc) and s.buffer.space is Space.LOCAL}
    return arrays - {s.buffer for s in stmts if hasattr(s, "buffer") and not isinstance(s, ir.Alloc) and not _is_plain(s)}


def _is_plain(stmt: ir.Stmt) -> bool:
    if not isinstance(stmt, ir.Load | ir.Store | ir.Accumulate) or not isinstance(stmt.index, ir.Constant):
        return False
    return 0 <= int(stmt.index.value) < (stmt.buffer.length or 0)


@dataclass(frozen=True)
class _Replacement:
    arrays: frozenset[ir.Buffer]
    names: Names

    def block(self, block: ir.Block, now: Values) -> ir.Block:
        """The block, after which `now` says what each element is."""
        return tuple(made for stmt in block for made in self._stmt(stmt, now))

    def _stmt(self, stmt: ir.Stmt, now: Values) -> Iterable[ir.Stmt]:
        match stmt:
            case ir.If():
                yield self._if(stmt, now)
            case ir.For() | ir.While():
                yield self._loop(stmt, now)
            case ir.Alloc(buffer=b) if b in self.arrays:
                for key in [key for key in now if key[0] == b]:
                    del now[key]
            case ir.Load(var=var, buffer=b) if b in self.arrays:
                yield ir.Let(var, _value(now, self._element(stmt)), span=stmt.span, note=stmt.note)
            case ir.Store(buffer=b, value=value) if b in self.arrays:
                yield from self._written(stmt, value, now)
            case ir.Accumulate(buffer=b, value=value) if b in self.arrays:
                old = _value(now, self._element(stmt))
                yield from self._written(stmt, ir.Binary("+", old, value, value_type(b.element)), now)
            case _:
                yield stmt

    def _element(self, stmt: ir.Load | ir.Store | ir.Accumulate) -> Element:
        assert isinstance(stmt.index, ir.Constant)
        return stmt.buffer, int(stmt.index.value)

    def _written(self, stmt: ir.Store | ir.Accumulate, value: ir.Expr, now: Values) -> Iterable[ir.Stmt]:
        element = self._element(stmt)
        var = now[element] = self._variable(element)
        yield ir.Let(var, value, span=stmt.span, note=stmt.note)

    def _variable(self, element: Element) -> ir.Var:
        array, number = element
        return self.names.var(f"{array.name}_{number}", value_type(array.element))

    def _if(self, stmt: ir.If, now: Values) -> ir.If:
        sides = dict(now), dict(now)
        blocks = [self.block(block, side) for block, side in zip((stmt.then, stmt.otherwise), sides, strict=True)]
        merges = list(stmt.merges)
        for element in self._changed((stmt.then, stmt.otherwise)):
            then, otherwise = (_value(side, element) for side in sides)
            if then != otherwise:
                var = self._variable(element)
                merges.append(ir.Merge(var, then, otherwise))
                then = var
            now[element] = then
        return replace(stmt, then=blocks[0], otherwise=blocks[1], merges=tuple(merges))

    def _loop(self, stmt: ir.For | ir.While, now: Values) -> ir.For | ir.While:
        inner = [stmt.body] if isinstance(stmt, ir.For) else [stmt.header, stmt.body]
        begun = {element: self._variable(element) for element in self._changed(inner)}
        after: Values = {**now, **begun}
        made = [self.block(block, after) for block in inner]
        carried = list(stmt.carried)
        for element, var in begun.items():
            result = self._variable(element)
            carried.append(ir.Carried(var, _value(now, element), _value(after, element), result))
            now[element] = result
        if isinstance(stmt, ir.For):
            return replace(stmt, body=made[0], carried=tuple(carried))
        return replace(stmt, header=made[0], body=made[1], carried=tuple(carried))

    def _changed(self, blocks: Iterable[ir.Block]) -> list[Element]:
        """The elements that are written in the blocks, of arrays that were there before."""
        stmts = [s for block in blocks for s in walk_stmts(block)]
        own = {s.buffer for s in stmts if isinstance(s, ir.Alloc)}
        written = (self._element(s) for s in stmts if isinstance(s, ir.Store | ir.Accumulate) and s.buffer in self.arrays)
        return [element for element in dict.fromkeys(written) if element[0] not in own]


def _value(now: Values, element: Element) -> ir.Expr:
    return now.get(element, ir.Constant(0, value_type(element[0].element)))
