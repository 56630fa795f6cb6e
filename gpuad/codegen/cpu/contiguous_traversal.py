"""Whether a loop had better be left to each thread by itself: it writes one element of memory of the thread's own after the other, and does
little else.

    for (k = 0; k < n; ++k)
        y[row * n + k] += a * x[row * n + k];

Run in step, lanes would write far from one another at every step, and throw one another out of the cache. By itself a thread goes through
such memory in vectors. Lanes are still faster where there is more to compute than is written, as with an exponential, or an iteration waits
for the one before it; and where the text says how many iterations there are or how long a row is, the memory of all stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.nodes import Accumulate, Assign, Binary, Buffer, Call, Constant, Expr, For, Store, Take, While, walk
from ...ir.rewrite import substitute, walk_stmts
from ..structure import Read, expressions, loaded
from .grid_stride import terms
from .uniformity import Uniform, is_long


def walks(loop: For | While, uniform: Uniform, meet: bool) -> bool:
    """Whether that is so of a loop. `meet`: threads also add to one element somewhere, which lanes would do in turn."""
    if isinstance(loop, While) or not is_long(loop) or (not meet and _waits(loop, uniform)):
        return False
    if any(_is_much(e) for top in expressions(loop.body) for e in walk(top)):
        return False
    return any(_is_walk(index, loop, uniform) for _, index in _written(loop))


def _waits(loop: For, uniform: Uniform) -> bool:
    """Whether an iteration may need what the one before it has computed, but for sums that may be formed in any order."""
    assigned = {s.var for s in walk_stmts(loop.body) if isinstance(s, Assign)}
    read = loaded(loop.body)
    return bool(loop.carried) or not assigned <= uniform.kernel.unordered or any(buffer in read for buffer, _ in _written(loop))


def _written(loop: For) -> Iterator[tuple[Buffer, Expr]]:
    """What the loop writes, and where."""
    return ((s.buffer, s.index) for s in walk_stmts(loop.body) if isinstance(s, Store | Accumulate | Take))


def _is_walk(index: Expr, loop: For, uniform: Uniform) -> bool:
    """Whether an index grows by one an iteration, in memory of the lane's own: in rows of a length that the text does not say."""
    parts = list(terms(substitute(index, uniform.steady), 1))
    own = [term for _, term in parts if not uniform.is_uniform(term)]
    return (1, loop.var) in parts and any(isinstance(term, Binary) and not _is_multiple(term) for term in own)


def _is_multiple(term: Binary) -> bool:
    """Whether a term has a constant factor."""
    return term.op == "*" and any(isinstance(e, Constant) for e in (term.left, term.right))


def _is_much(expr: Expr) -> bool:
    """Whether an operation takes as long as many others."""
    match expr:
        case Binary(op="/", type=t):
            return t.is_float
        case Call():
            return not isinstance(expr, Read)
    return False
