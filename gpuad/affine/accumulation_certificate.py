"""Certificates of how a kernel accumulates: its text is that of the plain adjoint, statement by statement, but for additions and takes.

Where no two threads meet in an element of a shadow (`certificate.meeting`), or it is that of an array of each thread's own, threads are
alone with what they do to it, and these are the same for each of them: an atomic operation and a plain one; `d = dx[i]; dx[i] = 0; ...
dx[i] += e` and `d = dx[i]; ... dx[i] = e`, if nothing between touches the shadow or changes the index. A shadow that is not read after the
launch (`left`) need not be cleared, and to one that shares the memory that would be added (`aliased`) nothing is. Any other difference is
none that is known to be right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..ir import folding as b
from ..ir.nodes import Accumulate, Block, Buffer, Call, Expr, How, Load, Stmt, Store, Take, variables
from ..ir.rewrite import assigned_vars, blocks, map_blocks, map_expr, map_exprs, touches
from ..ir.types import Space
from .certificate import Run, Zero, refused_stores

_NONE: frozenset[Buffer] = frozenset()


@dataclass(frozen=True)
class Premises:
    """What holds of the shadows of a launch: those that threads touch one by one (`injective`), `left` and `aliased` ones."""

    injective: Collection[Buffer] = _NONE
    left: Collection[Buffer] = _NONE
    aliased: Collection[Buffer] = _NONE


def marked(body: Block, injective: Collection[Buffer]) -> Block:
    """The adjoint with every addition and take atomic, but for shadows that threads touch one by one."""

    def decided(block: Block) -> Block:
        return tuple(map_blocks(_how(stmt, injective), decided) for stmt in block)

    return map_exprs(decided(body), lambda e: map_expr(e, _written_out))


def _how(stmt: Stmt, injective: Collection[Buffer]) -> Stmt:
    if isinstance(stmt, Accumulate | Take) and stmt.how is How.UNDECIDED:
        return replace(stmt, how=How.PLAIN if stmt.buffer in injective else How.ATOMIC)
    return stmt


def _written_out(expr: Expr) -> Expr:
    match expr:
        case Call(function="gpuad_used", arguments=(value,)):
            return b.compare("!=", value, b.zero(value.type))
    return expr


def accumulated_otherwise(reference: Block, made: Run, premises: Premises, zero: Zero = MappingProxyType({})) -> dict[Buffer | None, str]:
    """Why a kernel may do anything else than the `reference`, by shadow; None stands for all. `zero`: shadows that hold 0 where the kernel
    stores to them, as for `certificate.refused`."""
    alignment = _Alignment(premises)
    if not alignment.is_same(reference, made.body):
        return {None: "the text is another one"}
    return {b: reason for b, reason in refused_stores(made, zero, alignment.stored).items()} if alignment.stored else {}


class _Alignment:
    """`stored`: shadows to which a store stands in the place of an addition."""

    def __init__(self, premises: Premises) -> None:
        self.premises = premises
        self.stored: set[Buffer] = set()

    def is_same(self, reference: Block, made: Block) -> bool:
        """True if two blocks do the same."""
        rest, taken = list(made), dict[Buffer, Take]()
        for stmt in reference:
            other = rest[0] if rest else None
            if isinstance(stmt, Accumulate) and stmt.buffer in self.premises.aliased:
                continue
            if isinstance(stmt, Take) and self.is_read(stmt, other):
                if stmt.buffer in taken:
                    return False
                if stmt.buffer not in self.premises.left:
                    taken[stmt.buffer] = stmt
            elif isinstance(stmt, Accumulate) and stmt.buffer in taken:
                take = taken.pop(stmt.buffer)
                if stmt.index != take.index or stmt.how is not How.PLAIN:
                    return False
                if stmt.value == take.var and not _is_store(stmt, other):
                    continue
                if not _is_store(stmt, other):
                    return False
            elif isinstance(stmt, Accumulate) and stmt.buffer in self.premises.injective and _is_store(stmt, other):
                self.stored.add(stmt.buffer)
            elif other is None or not self.is_alike(stmt, other) or _disturbs(stmt, taken):
                return False
            rest = rest[1:]
        return not rest and not taken

    def is_read(self, take: Take, other: Stmt | None) -> bool:
        """True if an element is read where it is taken, by a thread that is alone with it or of a shadow that is left."""
        own = take.buffer.space is Space.LOCAL or take.buffer in self.premises.injective
        if take.buffer not in self.premises.left and not (own and take.how is How.PLAIN):
            return False
        return isinstance(other, Load) and (other.var, other.buffer, other.index) == (take.var, take.buffer, take.index)

    def is_alike(self, stmt: Stmt, other: Stmt) -> bool:
        return _head(stmt) == _head(other) and all(self.is_same(a, z) for a, z in zip(blocks(stmt), blocks(other), strict=True))


def _head(stmt: Stmt) -> Stmt:
    """A statement without the blocks in it."""
    return map_blocks(stmt, lambda block: ())


def _is_store(stmt: Accumulate, other: Stmt | None) -> bool:
    return isinstance(other, Store) and (other.buffer, other.index, other.value) == (stmt.buffer, stmt.index, stmt.value)


def _disturbs(stmt: Stmt, taken: Mapping[Buffer, Take]) -> bool:
    """True if a statement touches one of the shadows, or changes an index."""
    changed = assigned_vars((stmt,)) if taken else frozenset()
    kept = {v for t in taken.values() for v in (*variables(t.index), t.var)}
    return bool(kept & changed) or any(True for buffer in taken for _ in touches((stmt,), buffer))
