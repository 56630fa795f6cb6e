"""Every collective and message on each kind of array: complex, halves, views with strides; and on a communicator of some ranks in another
order. Each against differences over the inputs of all ranks, with counts that differ where it takes any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from collective_checks import numbers
from ml_dtypes import bfloat16
from ranks import agree

from gpuad.distributed import IN_PLACE

Way = Callable[[Any, Any, Any], None]  # a communicator, what is given, what is overwritten


def _counts(c: Any) -> tuple[list[int], int, int]:
    counts = [1 + r % 2 for r in range(c.size)]
    return counts, counts[c.rank], sum(counts)


def _at_root(c: Any, x: Any) -> Any:
    return x if c.rank == c.size - 1 else None


def _allgather(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Allgatherv(s[:own], [r[:total], counts])


def _allgather_in_place(c: Any, s: Any, r: Any) -> None:
    counts, _, total = _counts(c)
    c.Allgatherv(IN_PLACE, [r[:total], counts])


def _gather(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Gatherv(s[:own], _at_root(c, [r[:total], counts]), c.size - 1)


def _gather_in_place(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Gatherv(IN_PLACE if c.rank == c.size - 1 else s[:own], _at_root(c, [r[:total], counts]), c.size - 1)


def _scatter(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Scatterv(_at_root(c, [s[:total], counts]), r[:own], c.size - 1)


def _scatter_in_place(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Scatterv(_at_root(c, [s[:total], counts]), IN_PLACE if c.rank == c.size - 1 else r[:own], c.size - 1)


def _reduce_scatter(c: Any, s: Any, r: Any) -> None:
    counts, own, total = _counts(c)
    c.Reduce_scatter(s[:total], r[:own], counts)


def _reduce_scatter_in_place(c: Any, s: Any, r: Any) -> None:
    counts, _, total = _counts(c)
    c.Reduce_scatter(IN_PLACE, r[:total], counts)


def _alltoall(c: Any, s: Any, r: Any) -> None:
    gives, takes = [(c.rank + 2 * k) % 3 % 2 for k in range(c.size)], [(k + 2 * c.rank) % 3 % 2 for k in range(c.size)]
    c.Alltoallv([s[: sum(gives)], gives], [r[: sum(takes)], takes])


def _requests(c: Any, s: Any, r: Any) -> None:
    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    c.Waitall([c.Irecv(r, left, 1), c.Isend(s, right, 1)])


def _send_and_receive(c: Any, s: Any, r: Any) -> None:
    c.Send(s, 0) if c.rank == c.size - 1 else None
    c.Recv(r, c.size - 1) if c.rank == 0 else None


LINEAR: dict[str, Way] = {
    "Allreduce": lambda c, s, r: c.Allreduce(s, r),
    "Allreduce in place": lambda c, s, r: c.Allreduce(IN_PLACE, r),
    "Reduce": lambda c, s, r: c.Reduce(s, _at_root(c, r), root=c.size - 1),
    "Reduce in place": lambda c, s, r: c.Reduce(IN_PLACE if c.rank == c.size - 1 else r, r, root=c.size - 1),
    "Bcast": lambda c, s, r: c.Bcast(r, root=c.size - 1),
    "Allgatherv": _allgather,
    "Allgatherv in place": _allgather_in_place,
    "Gatherv": _gather,
    "Gatherv in place": _gather_in_place,
    "Scatterv": _scatter,
    "Scatterv in place": _scatter_in_place,
    "Reduce_scatter": _reduce_scatter,
    "Reduce_scatter in place": _reduce_scatter_in_place,
    "Alltoall": lambda c, s, r: c.Alltoall(s[: c.size], r[: c.size]),
    "Alltoall in place": lambda c, s, r: c.Alltoall(IN_PLACE, r[: c.size]),
    "Alltoallv": _alltoall,
    "Sendrecv": lambda c, s, r: c.Sendrecv(s, (c.rank + 1) % c.size, 1, r, (c.rank - 1) % c.size),
    "Sendrecv_replace": lambda c, s, r: c.Sendrecv_replace(r, (c.rank + 1) % c.size, 1, (c.rank - 1) % c.size),
    "Isend, Irecv": _requests,
    "Send, Recv": _send_and_receive,
}
EXTREMA: dict[str, Way] = {
    "MAX": lambda c, s, r: c.Allreduce(s, r, op="MAX"),
    "MIN in place": lambda c, s, r: c.Allreduce(IN_PLACE, r, op="MIN"),
    "MAX to the root": lambda c, s, r: c.Reduce(s, _at_root(c, r), op="MAX", root=c.size - 1),
}


def each(comm: Any, ways: dict[str, Way], part: Any, dtype: Any = np.float64, step: int = 1, h: float = 1.0) -> None:
    """All of them, with arrays of as many numbers as all counts together. `part`: the communicator, None on ranks that are not in it;
    `step`: of views."""

    n = comm.size + comm.size // 2

    def program(way: Way, c: Any, z: Any) -> None:
        if part is not None:
            way(part, *(x[::step] for x in z))

    for name, way in ways.items():
        state = [numbers(comm, step * n, dtype=dtype) + dtype(0 if h == 1 else comm.rank / 4) for _ in range(2)]
        try:
            agree(comm, partial(program, way), state, h=h, seeds=4)
        except Exception as error:
            error.add_note(f"{name} of {np.dtype(dtype)}, step {step}")
            raise


def on_views(comm: Any) -> None:
    """Every other element."""
    each(comm, LINEAR | EXTREMA, comm, step=2, h=2.0**-6)


def of_complex_numbers(comm: Any) -> None:
    """In single precision."""
    each(comm, LINEAR, comm, dtype=np.complex64)


def of_halves(comm: Any) -> None:
    """Of both kinds."""
    each(comm, LINEAR, comm, dtype=np.float16)
    each(comm, LINEAR, comm, dtype=bfloat16)
    each(comm, EXTREMA, comm, dtype=np.float16, h=2.0**-3)


def on_some_ranks(comm: Any) -> None:
    """The last two, in the other order."""
    part = comm.Split(0 if comm.rank >= comm.size - 2 else comm.MPI.UNDEFINED, -comm.rank)
    each(comm, LINEAR | EXTREMA, part, h=2.0**-6)


CHECKS = [on_views, of_complex_numbers, of_halves, on_some_ranks]
