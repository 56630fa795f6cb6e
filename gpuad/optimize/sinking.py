"""Code sinking: a number that only one branch uses is computed in that branch.

    w = (e - x) * (s - y);                             if (inside) {
    if (inside) out[k] += v * w;            becomes        w = (e - x) * (s - y);
                                                           out[k] += v * w;
                                                       }

So its adjoint is formed in the branch as well, where it is known that the number was used. Outside, each of its partials would have to ask
whether it was, since one that is infinite must not come to anything where it was not (rule 18 of the contract).

Assumes unique definitions. Guarantees the same values; nothing is sunk into a loop, and no read of memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace

from ..ir import nodes as ir
from ..ir.rewrite import assigned_vars, expressions_in, map_blocks, used_vars

Uses = Counter[ir.Var]


def sink_values(body: ir.Block) -> ir.Block:
    """The body with products, quotients and results of functions where they are used, if that is one branch."""
    uses = Counter(used_vars(body))
    return _Sinking(uses, assigned_vars(body)).block(body)


@dataclass(frozen=True)
class _Sinking:
    """`uses`: of the whole body; `mutable`: variables that change; `known`: what the two branches of an If use, by its id."""

    uses: Uses
    mutable: Set[ir.Var]
    known: dict[int, tuple[ir.If, Uses, Uses]] = field(default_factory=dict)

    def block(self, block: ir.Block) -> ir.Block:
        after: list[ir.Stmt] = []  # backwards
        for stmt in reversed(block):
            if not (isinstance(stmt, ir.Let) and self.may_move(stmt) and self.sinks(stmt, after)):
                after.append(stmt)
        return tuple(map_blocks(stmt, self.block) for stmt in reversed(after))

    def may_move(self, let: ir.Let) -> bool:
        """True if a definition is of something that has partials, of numbers that do not change."""
        used = tuple(ir.variables(let.value))
        computes = any(isinstance(e, ir.Call) or (isinstance(e, ir.Binary) and e.op in ("*", "/")) for e in ir.walk(let.value))
        return let.var.type.is_float and computes and any(v.type.is_float for v in used) and self.mutable.isdisjoint((let.var, *used))

    def sinks(self, let: ir.Let, after: list[ir.Stmt]) -> bool:
        """Puts a definition into the one branch among the statements that has all its uses; False if none has."""
        for number, stmt in enumerate(after):
            if isinstance(stmt, ir.If):
                then, otherwise = self.used(stmt)
                if 0 < self.uses[let.var] == then[let.var]:
                    after[number] = replace(stmt, then=(let, *stmt.then))
                    return True
                if 0 < self.uses[let.var] == otherwise[let.var]:
                    after[number] = replace(stmt, otherwise=(let, *stmt.otherwise))
                    return True
        return False

    def used(self, stmt: ir.If) -> tuple[Uses, Uses]:
        """What the branches use, with what they leave to what comes after."""
        if id(stmt) not in self.known:
            sides = (
                (*expressions_in(stmt.then), *(m.then for m in stmt.merges)),
                (*expressions_in(stmt.otherwise), *(m.otherwise for m in stmt.merges)),
            )
            then, otherwise = (Counter(v for e in side for v in ir.variables(e)) for side in sides)
            self.known[id(stmt)] = stmt, then, otherwise
        return self.known[id(stmt)][1:]
