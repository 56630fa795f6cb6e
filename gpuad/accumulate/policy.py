"""The accumulation policy: how each accumulation and take reaches memory (plain, atomic, reduced), and why.

A shadow whose elements are each touched by one thread only is accumulated *plainly*; any other *atomically*, in device scope. Reductions
into 0-d shadows stay reductions. In a plain shadow, a take that the same block follows with an addition to the same element becomes a load
and a store.

Assumes: an adjoint without stacks. Guarantees: no How.UNDECIDED is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir import folding as b
from ..ir.nodes import Accumulate, Atomic, Block, Buffer, Call, Expr, How, Load, Stmt, Store, Take
from ..ir.rewrite import map_blocks, map_expr, map_exprs, touches, walk_stmts


def choose_accumulation(
    body: Block,
    plain: Mapping[Buffer, bool],
    assigned: frozenset[Buffer] = frozenset(),
    left: frozenset[Buffer] = frozenset(),
    aliased: frozenset[Buffer] = frozenset(),
) -> Block:
    """The body with every accumulation decided; `plain` says of each shadow whether plain accumulation is proved safe. Shadows in
    `assigned` are known to be zero, and their first addition comes to each element once and before all others: it is stored. Elements taken
    of those in `left` are not cleared: they are dead. Nothing is added to those in `aliased`: they share the memory that would be
    added."""

    def decide(block: Block) -> Block:
        kept = (s for s in block if not (isinstance(s, Accumulate) and s.buffer in aliased))
        return _join_takes(tuple(map_blocks(_decided(_known(s, first, left), plain), decide) for s in kept))

    body = _compared(body)
    first = _first_additions(body, assigned)
    return decide(body)


def _first_additions(body: Block, shadows: frozenset[Buffer]) -> set[int]:
    """The ids of the first addition to each of the shadows."""
    found: dict[Buffer, int] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, Accumulate) and stmt.buffer in shadows:
            found.setdefault(stmt.buffer, id(stmt))
    return set(found.values())


def _compared(block: Block) -> Block:
    """The body with `gpuad_used` written out as a comparison with 0."""

    def write_out(expr: Expr) -> Expr:
        if isinstance(expr, Call) and expr.function == "gpuad_used":
            return b.compare("!=", expr.arguments[0], b.zero(expr.arguments[0].type))
        return expr

    return map_exprs(block, lambda e: map_expr(e, write_out))


def _known(stmt: Stmt, first: set[int], left: frozenset[Buffer]) -> Stmt:
    if isinstance(stmt, Accumulate) and id(stmt) in first:
        return Store(stmt.buffer, stmt.index, stmt.value, span=stmt.span, note=stmt.note)
    if isinstance(stmt, Take) and stmt.buffer in left:
        return Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span, note=stmt.note)
    return stmt


def _decided(stmt: Stmt, plain: Mapping[Buffer, bool]) -> Stmt:
    if isinstance(stmt, Accumulate | Take) and stmt.how is How.UNDECIDED:
        return replace(stmt, how=How.PLAIN if plain.get(stmt.buffer, False) else How.ATOMIC)
    return stmt


def _join_takes(block: Block) -> Block:
    """`d = dx[i]; dx[i] = 0; ...; dx[i] += e` becomes `d = dx[i]; ...; dx[i] = e` where nothing else touches the shadow in between; a take
    whose value is added back as it is becomes a load."""
    out = list(block)
    for at, stmt in enumerate(block):
        if isinstance(stmt, Take) and stmt.how is How.PLAIN:
            other = _next_access(block, at)
            if other is not None:
                add = block[other]
                assert isinstance(add, Accumulate)
                out[at] = Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span, note=stmt.note)
                out[other] = Store(add.buffer, add.index, add.value, span=add.span, note=add.note)
    return tuple(s for s in out if not _idle(s, out))


def _next_access(block: Block, at: int) -> int | None:
    """Where the taken element is next touched, if that is a plain addition in this block."""
    take = block[at]
    assert isinstance(take, Take)
    for position in range(at + 1, len(block)):
        stmt = block[position]
        if isinstance(stmt, Accumulate) and stmt.buffer == take.buffer and stmt.index == take.index and stmt.how is How.PLAIN:
            return position
        if any(touches((stmt,), take.buffer)):
            return None
    return None


def _idle(stmt: Stmt, block: list[Stmt]) -> bool:
    """A store of what was just loaded from the same place."""
    if not isinstance(stmt, Store):
        return False
    loads = (s for s in block if isinstance(s, Load) and s.var == stmt.value)
    return any(s.buffer == stmt.buffer and s.index == stmt.index for s in loads) and _only_store(stmt, block)


def _only_store(stmt: Store, block: list[Stmt]) -> bool:
    """Whether nothing else in the block, or deeper, writes to the array."""
    return sum(1 for s in walk_stmts(tuple(block)) if isinstance(s, Store | Accumulate | Take | Atomic) and s.buffer == stmt.buffer) == 1


def undecided(body: Block) -> tuple[Buffer, ...]:
    """The shadows about which a decision is needed, in order of appearance."""
    found = (s.buffer for s in walk_stmts(body) if isinstance(s, Accumulate | Take) and s.how is How.UNDECIDED)
    return tuple(dict.fromkeys(found))
