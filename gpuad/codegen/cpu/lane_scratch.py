"""Where the lanes of a strip keep what their loops leave for the reverse: in memory of the strip, in which the elements that all lanes
store or load at once lie side by side.

That needs an index which is the same for all lanes, as the top of a stack is that they push to in step. Where the number of elements
differs from lane to lane, threads are run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set

from ...ir.nodes import Binary, Buffer, Expr, Load, Select, Stmt, children
from ...ir.rewrite import walk_stmts
from ..structure import Read, expressions, operands, reads, written

Shelves = tuple[tuple[Buffer, Expr], ...]


def shelves(items: Sequence[Stmt | Expr], rows: Set[Buffer], is_same: Callable[[Expr], bool]) -> Shelves | None:
    """For each of these buffers that the work of a lane accesses, the index of its elements; None if they have several, or it is not the
    same for all lanes, or it may be that nothing is there."""
    if not rows:
        return ()
    found: dict[Buffer, Expr] = {}
    for buffer, index in _accesses(items, rows):
        if found.setdefault(buffer, index) != index or not is_same(index):
            return None
    certain = {buffer for item in items for buffer in _surely(item)}
    return tuple(found.items()) if found.keys() <= certain else None


def _accesses(items: Sequence[Stmt | Expr], rows: Set[Buffer]) -> Iterator[tuple[Buffer, Expr]]:
    done = tuple(item for item in items if isinstance(item, Stmt))
    for expr in (*expressions(done), *(item for item in items if isinstance(item, Expr))):
        yield from ((read.buffer, read.index) for read in reads(expr) if read.buffer in rows)
    for stmt in walk_stmts(done):
        buffer = _accessed(stmt)
        if buffer is not None and buffer in rows:
            yield buffer, operands(stmt)[0]


def _accessed(stmt: Stmt) -> Buffer | None:
    """The buffer that the statement itself loads from or writes."""
    return stmt.buffer if isinstance(stmt, Load) else written(stmt)


def _surely(item: Stmt | Expr) -> Iterator[Buffer]:
    """The buffers that are accessed wherever the item is done."""
    match item:
        case Read():
            yield item.buffer
        case Select(condition=condition):
            yield from _surely(condition)
            return
        case Binary(op="&&" | "||", left=left):
            yield from _surely(left)
            return
        case Stmt():
            yield from [buffer] if (buffer := _accessed(item)) is not None else []
    for expr in operands(item) if isinstance(item, Stmt) else children(item):
        yield from _surely(expr)
