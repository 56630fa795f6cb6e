"""Certificates of kernels that copy or clear in the threads of a launch beside it: derived from access relations, checked by their text.

In: a kernel with the numbers of its launch, its target, its source or None, and a range of elements. Out: True only if isl shows that the
elements written are exactly those of the range, and that each receives the source's element at the same index, or one constant. False
where an index or a condition depends on data.
"""

from __future__ import annotations

from functools import partial

from ..ir.nodes import Buffer
from ..ir.types import I64
from .certificate import Run
from .effects import inside
from .instances import Instances
from .relations import context, is_so, relation


def copies(run: Run, target: Buffer, source: Buffer | None, first: int, count: int) -> bool:
    """True if a kernel sets all of `count` elements of an array, from `first` on, and no others, each to that element of `source`, or to
    one number, if that is None."""
    return is_so(partial(_copies, run, target, source, first, count), undecided=False)


def _copies(run: Run, target: Buffer, source: Buffer | None, first: int, count: int) -> bool:
    import islpy

    instances = Instances()
    writes = [e for e in instances.effects(run.body, run.shape) if e.writes]
    if len(writes) != 1 or source == target:
        return False
    (write,) = writes
    guards = (*write.guards, *(g for d in write.dims for g in d.guards))
    if (write.kind, write.buffer, write.idle) != ("set", target, False) or write.value is None:
        return False
    if write.element.text is None or any(g.text is None for g in guards):
        return False
    if source is None:
        right = not write.value.dims and not any(node.op == "load" for node in inside([write.value]))
    else:
        right = write.value.op == "load" and write.value.args == (source, instances.graph.cast(write.element, I64))
    found = relation(instances.graph, write.dims, write.guards, [write.element.text]).range()
    wanted = islpy.Set.read_from_str(context(), f"{{ [o0] : {first} <= o0 < {first + count} }}")
    return right and bool(found.is_equal(wanted))


__all__ = ["copies"]
