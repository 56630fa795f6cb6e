"""Memory for the stacks of the CPU's threads, and where the lanes of a strip lie in it (lane scratch).

How deep a stack gets is not known before. So a row reserves more addresses than it can need, and the system maps pages as they are touched.
A row that grows by copying needs a call in the loop, around which compilers spill all that the loop computes: with it the reverse of a
tomographic projection took 1.8 times as long.

The lanes of a strip share a row in which the elements that all lanes push or pop at once are contiguous. That needs an index which is
uniform over the lanes, as the top of a stack is that they push to in step (`lane_scratch`); where the depth differs from lane to lane,
threads run one by one. As a strip keeps the stacks of all its threads, kernels with very deep ones are run in narrower strips.
"""

from collections.abc import Callable, Iterator, Sequence, Set

from ...ir.nodes import Binary, Buffer, Expr, Load, Select, Stmt, children
from ...ir.rewrite import walk_stmts
from ..structure import Read, expressions, operands, reads, written

LaneScratch = tuple[tuple[Buffer, Expr], ...]


def lane_scratch(items: Sequence[Stmt | Expr], rows: Set[Buffer], is_same: Callable[[Expr], bool]) -> LaneScratch | None:
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
