"""The shape of loops over lanes: loops left to each thread (contiguous traversal), loops cut at slow operations (strip mining), and the
width of their vectors.

    for (k = 0; k < n; ++k)
        y[row * n + k] += a * x[row * n + k];

*Traversal* (`is_contiguous_traversal`). Run in step, lanes would write far from one another at every step, and evict one another's cache
lines. By itself a thread goes through such memory in vectors. Lanes are still faster where there is more to compute than is written, as
with an exponential, or an iteration depends on the one before; and where the trip count or the row's length is constant, the memory of all
stays in the cache.

*Strip mining* (`is_cut`). A root or a quotient takes as long as dozens of sums and products, and a processor looks ahead some hundred
operations. So if much depends on it, too few lanes are in flight. With the slow operation in a loop of its own nothing waits in the next;
what both use goes through the first cache.

*Width* (`bytes_of_a_lane`). Compilers leave the widest vectors alone by default. Where all lanes compute, and what they load and store is
contiguous, these pay; where elements are gathered one by one they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...ir.nodes import (
    Accumulate,
    Binary,
    Buffer,
    Call,
    Constant,
    Expr,
    For,
    LaunchIndex,
    Let,
    Load,
    Stmt,
    Store,
    Take,
    Var,
    While,
    children,
    walk,
)
from ...ir.rewrite import assigned_vars, substitute, walk_stmts
from ..structure import Read, expanded, expressions, index_terms, loaded, operands
from .tiles import Tiled
from .uniformity import Uniform, is_long


def is_contiguous_traversal(loop: For | While, uniform: Uniform, meet: bool) -> bool:
    """Whether that is so of a loop. `meet`: threads also add to one element somewhere, which lanes would do in turn."""
    if isinstance(loop, While) or not is_long(loop) or (not meet and _waits(loop, uniform)):
        return False
    if any(_is_much(e) for top in expressions(loop.body) for e in walk(top)):
        return False
    return any(_is_walk(index, loop, uniform) for _, index in _written(loop))


def _waits(loop: For, uniform: Uniform) -> bool:
    """Whether an iteration may need what the one before it has computed, but for sums that may be formed in any order."""
    assigned = assigned_vars(loop.body)
    read = loaded(loop.body)
    return bool(loop.carried) or not assigned <= uniform.kernel.unordered or any(buffer in read for buffer, _ in _written(loop))


def _written(loop: For) -> Iterator[tuple[Buffer, Expr]]:
    """What the loop writes, and where."""
    return ((s.buffer, s.index) for s in walk_stmts(loop.body) if isinstance(s, Store | Accumulate | Take))


def _is_walk(index: Expr, loop: For, uniform: Uniform) -> bool:
    """Whether an index grows by one an iteration, in memory of the lane's own: in rows of a length that the text does not say."""
    parts = list(index_terms(substitute(index, uniform.steady), 1))
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


_SLOW = frozenset({"sqrt", "rsqrt", "cbrt", "rcbrt", "hypot", "rhypot", "__fsqrt_rn", "__frsqrt_rn", "__dsqrt_rn"})
_LONG = 24  # operations that wait


def is_cut(stmt: Stmt, after: Iterable[Expr], is_same: Callable[[Expr], bool]) -> bool:
    """Whether a loop over lanes ends after this statement; `after`: what else it would compute; `is_same`: what all lanes compute alike,
    which is computed before."""
    if not isinstance(stmt, Let) or not any(_is_slow(e) and not is_same(e) for e in walk(stmt.value)):
        return False
    return sum(_operations(e) for e in after) >= _LONG


def computed(block: Iterable[Stmt]) -> Iterable[Expr]:
    """What statements compute."""
    return (e for stmt in block for e in operands(stmt))


def _is_slow(expr: Expr) -> bool:
    match expr:
        case Binary(op="/", left=left, right=right):
            return expr.type.is_float and not (isinstance(left, Constant) and isinstance(right, Constant))
        case Call(function=function):
            return function in _SLOW
    return False


def _operations(expr: Expr) -> int:
    return sum(1 for e in walk(expr) if isinstance(e, Binary | Call) and e.type.is_float)


def bytes_of_a_lane(items: Sequence[Stmt | Expr], masked: bool, again: Sequence[Let], uniform: Uniform) -> int:
    """Of how many bytes numbers are, as many of which as possible shall be in a vector; 0 if that is left to the compiler. `items`: what
    lanes do; `again`: the indices that they compute."""
    table = expanded(again)
    done = [item for item in items if isinstance(item, Stmt)]
    exprs = [*expressions(tuple(done)), *(item for item in items if isinstance(item, Expr))]
    indices = [read.index for e in exprs for read in _reads(e)]
    indices += [s.index for s in walk_stmts(tuple(done)) if isinstance(s, Load | Store | Accumulate | Take)]
    if not all(_is_one(index, table, uniform) or is_beside(index, table, uniform) for index in indices):
        return 0
    sizes = {e.type.size for top in exprs for e in walk(top) if e.type.is_float or isinstance(e, Read)}
    return min({*sizes, *([4] if masked else [])} or {4})


def _reads(expr: Expr) -> Iterator[Read]:
    """The loads from memory, not those from tiles."""
    if isinstance(expr, Read):
        yield expr
    if not isinstance(expr, Tiled):
        yield from (read for e in children(expr) for read in _reads(e))


def is_beside(index: Expr, table: Mapping[Var, Expr], uniform: Uniform) -> bool:
    """Whether the lanes' elements lie side by side. `table`: what indices are of which this one may be made."""
    own = _own_terms(index, table, uniform)
    return len(own) == 1 and own[0][0] == 1 and (isinstance(own[0][1], LaunchIndex) or own[0][1] == uniform.lane)


def _is_one(index: Expr, table: Mapping[Var, Expr], uniform: Uniform) -> bool:
    """Whether the lanes have one element."""
    return not _own_terms(index, table, uniform)


def _own_terms(index: Expr, table: Mapping[Var, Expr], uniform: Uniform) -> list[tuple[int, Expr]]:
    """The terms of an index that differ from lane to lane."""
    return [(sign, term) for sign, term in index_terms(substitute(index, dict(table)), 1) if not uniform.is_uniform(term)]
