"""Values that a loop carries and that the launch leaves in memory: the reverse loads them, and nothing is recorded.

A recurrence that stores what it carries on (`y = a * y + x[t]; x[t] = y;`) left the value with which an iteration began where the iteration
before stored it, if nothing is stored there later. What is carried two iterations further (`y2 = y1; y1 = y;`) lies two iterations back.

Assumes a primal with unique definitions. Guarantees valid IR; whether a store is the last to its element is for `to_be_recorded`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir import nodes as ir
from ..ir.rewrite import Names, bound_in, spelled, substitute, walk_stmts
from ..ir.types import BOOL

_FURTHEST = 4  # iterations back


@dataclass(frozen=True, eq=False)
class LeftValue:
    """The first of `carried` at the start of an iteration of `loop`: each of them is the next one of the iteration before, and the
    last one is what `store` stored in that iteration, at `index`."""

    loop: ir.For
    carried: tuple[ir.Carried, ...]
    store: ir.Store
    index: ir.Expr

    def loaded(self, names: Names) -> ir.Block:
        """Statements that give the value at the start of an iteration."""
        return self._value(self.carried[0].var, 0, names)

    def _value(self, var: ir.Var, back: int, names: Names) -> ir.Block:
        at, before = (self._iteration(count) for count in (back, back + 1))
        found = names.var(var.name, var.type)
        if back + 1 < len(self.carried):
            inner = self._value(found, back + 1, names)
        else:
            index = substitute(self.index, {self.loop.var: before})
            inner = (ir.Load(found, self.store.buffer, index, span=self.store.span, note="the result is still there"),)
        ran = ir.Binary("!=", at, self.loop.start, BOOL)
        return (ir.If(ran, inner, (), (ir.Merge(var, found, self.carried[back].init),), span=self.loop.span),)

    def _iteration(self, back: int) -> ir.Expr:
        at: ir.Expr = self.loop.var
        for _ in range(back):
            at = ir.Binary("-", at, self.loop.step, self.loop.var.type)
        return at


def left_values(kernel: ir.Kernel, closed: Mapping[ir.Var, ir.Expr]) -> dict[ir.Var, LeftValue]:
    """The carried values of the kernel's loops that are stored as they are. `closed`: carried values as expressions of their loop's
    counter."""
    loops = (s for s in walk_stmts(kernel.body) if isinstance(s, ir.For) and not s.backward)
    return {found.carried[0].var: found for loop in loops for found in _of_loop(loop, closed)}


def _of_loop(loop: ir.For, closed: Mapping[ir.Var, ir.Expr]) -> Iterator[LeftValue]:
    stores = {s.value: s for s in loop.body if isinstance(s, ir.Store) and s.buffer.length is None and s.buffer.element == s.value.type}
    lets = {**closed, **{s.var: s.value for s in loop.body if isinstance(s, ir.Let)}}
    inside, following = bound_in(loop) - {loop.var}, {c.var: c for c in loop.carried}
    for first in loop.carried if stores else ():
        carried = [first]
        while len(carried) < _FURTHEST and isinstance(v := carried[-1].next, ir.Var) and v in following:
            carried.append(following[v])
        store = stores.get(carried[-1].next)
        index = spelled(store.index, lets) if store is not None else None
        if store is not None and index is not None and not any(v in inside for v in ir.variables(index)):
            yield LeftValue(loop, tuple(carried), store, index)
