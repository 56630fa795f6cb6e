"""How wide the vectors shall be in which a piece of work for lanes is computed.

By themselves compilers leave the widest vectors of a processor alone. Where all lanes compute, and what they load and store lies side by
side, these pay; where each lane's elements lie by themselves, they are put together one by one, the longer the wider the vector is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...ir.nodes import Accumulate, Expr, LaunchIndex, Let, Load, Stmt, Store, Take, Var, children, walk
from ...ir.rewrite import substitute, walk_stmts
from ..structure import Read, expanded, expressions
from .grid_stride import terms
from .tiles import Tiled
from .uniformity import Uniform


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
    return [(sign, term) for sign, term in terms(substitute(index, dict(table)), 1) if not uniform.is_uniform(term)]
