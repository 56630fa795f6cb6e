"""Strip tiles: blocks the loads of a loop by which each lane walks its own row, `a[row * n + k]` for the loop over k, so that lanes read
contiguous memory.

Neighbours then read far from one another at every step. So a tile is loaded first, each thread's part of a few iterations after the other,
and lies in an array where the lanes are neighbours. Only what every iteration reads for certain is loaded, from memory that the kernel does
not write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...analysis.trip_counts import constant_trips
from ...ir import nodes as ir
from ...ir.rewrite import rebuild, substitute
from ...ir.types import HALVES, I32, I64
from ..structure import Read, index_terms, read, visit_operands
from .uniformity import Uniform, bound_in

DEPTH = 16  # iterations of a tile
_MOST = 4  # tiles of a loop
_FEW = 8  # iterations for which no tile is made


@dataclass(frozen=True)
class Tiled(ir.Call):
    """A load, the second argument, from a tile; the first argument is the loop's index."""

    number: int


@dataclass(frozen=True)
class Tile:
    """An array of the elements that a load reads in some iterations; `index` is the first iteration's."""

    number: int
    load: Read


@dataclass(frozen=True)
class Tiling:
    """A loop over the iterations of a tile, `first` to `end`, whose loads come from the tiles."""

    loop: ir.For
    start: ir.Expr
    stop: ir.Expr
    first: ir.Var
    end: ir.Var
    tiles: tuple[Tile, ...]


def tiled(loop: ir.For, uniform: Uniform, number: int) -> Tiling | None:
    """The loop by tiles; None if it has no such loads. Tiles are counted from `number`."""
    trips = constant_trips(loop)
    if loop.backward or loop.step != ir.Constant(1, loop.step.type) or loop.var.type not in (I32, I64):
        return None
    if trips is not None and trips < _FEW:
        return None
    task = _Tiles(loop, uniform, number)
    body = tuple(task.stmt(s) for s in loop.body)
    carried = tuple(task.carried(c) for c in loop.carried)
    if not task.found:
        return None
    made = replace(loop, start=task.first, stop=task.end, body=body, carried=carried)
    return Tiling(made, loop.start, loop.stop, task.first, task.end, tuple(Tile(t.number, task.start(t)) for t in task.found.values()))


class _Tiles:
    def __init__(self, loop: ir.For, uniform: Uniform, number: int) -> None:
        self.loop = loop
        self.uniform = uniform
        self.number = number
        self.inside = {*(c.var for c in loop.carried), *bound_in(loop.body)}
        self.first = ir.Var(f"{loop.var.name}_tile", I64, -(1 << 27) - number)
        self.end = ir.Var(f"{loop.var.name}_tile_end", I64, -(1 << 26) - number)
        self.counters = {loop.var, *uniform.loops, *([uniform.lane] if uniform.lane else [])}
        self.found: dict[ir.Expr, Tiled] = {}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.If | ir.For | ir.While):
            return stmt
        if isinstance(stmt, ir.Load):
            load = self.visit(read(stmt.buffer, stmt.index))
            return ir.Let(stmt.var, load, span=stmt.span, note=stmt.note) if isinstance(load, Tiled) else stmt
        return visit_operands(stmt, self.visit)

    def carried(self, carried: ir.Carried) -> ir.Carried:
        return replace(carried, next=self.visit(carried.next))

    def visit(self, expr: ir.Expr) -> ir.Expr:
        """The expression with what it surely loads from tiles."""
        match expr:
            case Read():
                return self.load(expr)
            case ir.Select(condition=condition):
                return replace(expr, condition=self.visit(condition))
            case ir.Binary(op="&&" | "||", left=left):
                return replace(expr, left=self.visit(left))
        return rebuild(expr, self.visit)

    def load(self, load: Read) -> ir.Expr:
        index = substitute(load.index, self.uniform.steady)
        key = replace(load, arguments=(index,))
        if key in self.found:
            return self.found[key]
        if len(self.found) == _MOST or not self.walks(key):
            return load
        self.found[key] = Tiled("[]", (self.loop.var, key), load.type, self.number + len(self.found))
        return self.found[key]

    def walks(self, load: Read) -> bool:
        """Whether each lane's address advances by one an iteration, and lanes are not neighbours."""
        if load.buffer in self.uniform.written or load.buffer.element in HALVES:
            return False
        if not all(v in self.counters or self.uniform.is_single(v) for v in ir.variables(load.index)):
            return False
        if any(isinstance(e, Read) and e.buffer in self.uniform.written for e in ir.walk(load.index)):
            return False
        parts = list(index_terms(load.index, 1))
        rest = [(sign, term) for sign, term in parts if (sign, term) != (1, self.loop.var)]
        if len(rest) != len(parts) - 1 or any(v in self.inside or v == self.loop.var for _, t in rest for v in ir.variables(t)):
            return False
        own = [(sign, term) for sign, term in rest if not self.uniform.is_uniform(term)]
        return bool(own) and not (len(own) == 1 and own[0][0] == 1 and self.is_lane(own[0][1]))

    def is_lane(self, term: ir.Expr) -> bool:
        return isinstance(term, ir.LaunchIndex) or term == self.uniform.lane

    def start(self, tile: Tiled) -> Read:
        """The load of the first iteration."""
        load = tile.arguments[1]
        assert isinstance(load, Read)
        first: ir.Expr = self.first if self.loop.var.type == I64 else ir.Cast(self.first, self.loop.var.type)
        return replace(load, arguments=(substitute(load.index, {self.loop.var: first}),))
