"""Store checks: whether two threads of a launch write to one element, by proof or by an inspector; such a launch is refused.

What a store leaves has to be one thread's: either no other comes to the element (`inspect.store_conflicts`), or threads of one block take
turns in it, with barriers between (`inspect.barrier_order`). Nothing has been written when a launch is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..analysis.injectivity import Launch, collision_free
from ..analysis.races import proved_race
from ..errors import LaunchError, UnsupportedError
from ..inspect.barrier_order import Access, hindrance, may_be_ordered
from ..inspect.store_conflicts import StoreConflictInspector, contested, distinguishing_stores, is_plain_write
from ..ir.nodes import Accumulate, Atomic, Buffer, Load, Store
from ..ir.rewrite import walk_stmts
from ..runtime.base import Memory
from .adjoint import Inspected
from .adjoint_memory import copied
from .calls import Call


def check_stores(adjoint: Inspected, call: Call) -> None:
    """Refuses a launch in which two threads store different values to one element that has a shadow, unless they take turns; nothing has
    been launched then."""
    doubtful = stores_in_doubt(adjoint, call)
    if not doubtful:
        return
    if ("turns", call.key) in adjoint.facts.known and _first_conflict(adjoint, call, doubtful) is None:
        return
    check = adjoint.store_conflicts(frozenset(doubtful))
    flag = _flag(check, call)
    if flag == 2:
        raise LaunchError(
            f"`{call.bound.kernel}`: different atomic operations meet in one element of {_named(adjoint, doubtful)}: what is left depends "
            "on the order of the threads, and so would the gradient. Nothing was launched."
        )
    if flag:
        _check_barrier_order(adjoint, call, doubtful)
    elif check.by_numbers:
        adjoint.facts.get(("apart", call.key), lambda: True)


def _flag(check: StoreConflictInspector, call: Call) -> int:
    """What a checking kernel finds in a launch."""
    if check.by_numbers and call.pool is not None:  # once for these numbers: not in memory that a tape keeps
        call = replace(call, pool=None)
    memories = dict(zip(check.kernel.params, (a.memory for a in call.bound.arguments), strict=False))
    given, owned = ([memories[b] for b in buffers if isinstance(b, Buffer)] for buffers in (check.copies, check.claims))
    flag = Memory(call.executor.zeros(1, np.dtype(np.int32)))
    claims = [None if m is None else Memory(call.executor.zeros(m.root.size, np.dtype(np.int64)), m.offset) for m in owned]
    for run in range(check.runs):
        copies = [None if m is None else copied(call, m) for m in given]
        number = [np.int32(run)] if check.runs > 1 else []
        call.run(check.kernel, [*call.bound.primals(), *call.offset_values(), *copies, *claims, *number, flag])
    return int(flag.root[0])


def _check_barrier_order(adjoint: Inspected, call: Call, doubtful: Sequence[Buffer]) -> None:
    """Refuses a launch in which threads that write to one element do not take turns (`inspect.barrier_order`)."""
    before = f"`{call.bound.kernel}`: two threads write to one element of {_named(adjoint, doubtful)}:"
    if not may_be_ordered(adjoint.primal):
        then = "what stays is undefined, and so is the gradient. Use atomicAdd to sum, or make the indices unique."
        raise LaunchError(f"{before} {then} Nothing was launched.")
    obstacle = hindrance(adjoint.primal, doubtful)
    if obstacle is not None:
        what = "in the condition of a loop" if isinstance(obstacle, Load) else "by atomic operations"
        raise LaunchError(
            f"{before} unless a __syncthreads() lies between, what stays is undefined; if one does, that threads take turns in an array "
            f"that is also reached {what} ({obstacle.span}) is not supported in this release. Nothing was launched."
        )
    met = _first_conflict(adjoint, call, doubtful)
    if met is not None:
        raise LaunchError(f"`{call.bound.kernel}`: {_said(*met)} Nothing was launched.")
    adjoint.facts.get(("turns", call.key), lambda: True)


def _first_conflict(adjoint: Inspected, call: Call, doubtful: Sequence[Buffer]) -> tuple[Access, bool] | None:
    """None if threads that come to one element take turns: in the doubtful buffers, and in all others that the kernel stores to. Else an
    access where they do not, and whether that is by another block."""
    check = adjoint.barrier_order(frozenset((*doubtful, *_free(adjoint, _stored(adjoint)))))
    flag = _flag(check, call)
    if flag:
        return check.meeting(flag)
    if check.by_numbers:
        adjoint.facts.get(("apart", call.key), lambda: True)
    return None


def ordered_by_barriers(adjoint: Inspected, call: Call | None) -> list[Buffer]:
    """The buffers in whose elements threads may take turns: in a launch, as far as its numbers tell, or in any."""
    if not may_be_ordered(adjoint.primal):
        return []
    found = _stored(adjoint) if call is None else doubtful_stores(adjoint, call)
    return _free(adjoint, found)


def _free(adjoint: Inspected, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Those in which nothing stands in the way of turns."""
    return [b for b in buffers if hindrance(adjoint.primal, [b]) is None]


def _said(stmt: Access, across: bool) -> str:
    """What is wrong with an access to an element that another thread comes to."""
    name = f"`{stmt.buffer.name}`"
    how = "reads an element that another one writes" if isinstance(stmt, Load) else "writes an element to which another one comes"
    if across:
        what = f"a block {how}, of {name} ({stmt.span}): nothing orders the blocks of a launch"
    else:
        what = f"a thread {how}, of {name} ({stmt.span}), with no __syncthreads() between"
    return f"{what}; what stays is undefined, and so is the gradient. Let threads of one block take turns with a __syncthreads() between."


def _named(adjoint: Inspected, buffers: Sequence[Buffer]) -> str:
    """The buffers, and where the kernel first writes to one."""
    return ", ".join(f"`{b.name}`" for b in buffers) + _first_place(adjoint, buffers)


def _first_place(adjoint: Inspected, buffers: Sequence[Buffer]) -> str:
    """Where the kernel first writes to one of the buffers, in brackets."""
    writes = (s for s in walk_stmts(adjoint.primal.body) if isinstance(s, _WRITES) and s.buffer in buffers and s.span is not None)
    return next((f" ({s.span})" for s in writes), "")


def stores_in_doubt(adjoint: Inspected, call: Call) -> list[Buffer]:
    """The shadowed buffers for which a check before each launch has to tell whether stores collide: not where a check of the same numbers
    has told, and there is nothing else to look at. UnsupportedError for a proved race."""
    check_races(adjoint, call)
    if ("apart", call.key) in adjoint.facts.known:
        return []
    found: list[Buffer] = adjoint.facts.get(("stores", call.key), lambda: doubtful_stores(adjoint, call))
    return found


def check_races(adjoint: Inspected, call: Call) -> None:
    """Refuses a launch in which one thread surely reads what another writes."""
    race = adjoint.facts.get(("race", call.key), lambda: proved_race(adjoint.primal, call.numbers(adjoint.primal)))
    if race is not None:
        raise UnsupportedError(
            f"a data race: in this launch a thread reads an element of `{race.buffer.name}` here that another thread writes at "
            f"{race.write.span}; the result depends on chance, and so would its gradient",
            race.read.span,
        )


def doubtful_stores(adjoint: Inspected, call: Call) -> list[Buffer]:
    """The shadowed buffers to whose elements two threads may store different values, or in which different atomics may meet."""
    numbers = call.numbers(adjoint.primal)
    mixed = {getattr(s, "buffer", None) for s in walk_stmts(adjoint.primal.body) if id(s) in adjoint.mixed}
    stored = [b for b in _stored(adjoint) if not collision_free(adjoint.primal.body, [b], numbers, _WRITES, atomics=False)]
    return [b for b in adjoint.primal.buffers if b in stored or b in mixed]


def stored_alike(adjoint: Inspected, call: Call) -> frozenset[Buffer]:
    """The shadowed buffers to one element of which two threads may store one same value, which is no fault: the one that comes first takes
    its adjoint."""
    numbers = call.numbers(adjoint.primal)
    return frozenset(b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and _may_be_alike(adjoint, b, numbers))


def _may_be_alike(adjoint: Inspected, buffer: Buffer, numbers: Launch) -> bool:
    body = adjoint.primal.body
    if not any(is_plain_write(s) and s.buffer == buffer for s in walk_stmts(body)):
        return False
    if collision_free(body, [buffer], numbers, _WRITES, atomics=False):
        return False
    if not contested(adjoint.primal, [buffer]):
        return True
    kinds = distinguishing_stores(adjoint.primal, buffer)
    return not all(any(collision_free(way, [buffer], numbers, (Store,)) for way in ways) for ways in kinds)


_WRITES = (Store, Accumulate, Atomic)


def _stored(adjoint: Inspected) -> list[Buffer]:
    return [b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and contested(adjoint.primal, [b])]
