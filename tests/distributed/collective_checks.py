"""The collectives and messages, each against differences over the inputs of all ranks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from ranks import agree

import gpuad
from gpuad import Duplicated, Tape
from gpuad.distributed import IN_PLACE, processes
from gpuad.runtime import host


def numbers(comm: Any, *shape: int, dtype: Any = np.float64) -> Any:
    """Whole numbers, different on each rank."""
    drawn = np.random.default_rng(comm.rank + 7 * sum(shape)).permutation(40)[: int(np.prod(shape))] - 20.0
    return (drawn * (1 + 2j) if np.dtype(dtype).kind == "c" else drawn).astype(dtype).reshape(shape)


def allreduce(comm: Any) -> None:
    agree(comm, lambda c, z: c.Allreduce(z[0], z[1]), [numbers(comm, 2), numbers(comm, 2)])
    agree(comm, lambda c, z: c.Allreduce(IN_PLACE, z[0]), [numbers(comm, 3)])
    agree(comm, lambda c, z: c.Allreduce(c.forward.mpi.IN_PLACE, z[0], op=c.forward.mpi.SUM), [numbers(comm, 2, 2)])


def reduce(comm: Any) -> None:
    root = comm.size - 1
    agree(comm, lambda c, z: c.Reduce(z[0], z[1] if c.rank == root else None, root=root), [numbers(comm, 2), numbers(comm, 2)])

    def in_place(c: Any, z: Any) -> None:
        c.Reduce(IN_PLACE if c.rank == root else z[0], z[0], root=root)

    agree(comm, in_place, [numbers(comm, 3)])


def bcast(comm: Any) -> None:
    for root in range(comm.size):
        agree(comm, lambda c, z, root=root: c.Bcast(z[0], root=root), [numbers(comm, 2)])


def sendrecv(comm: Any) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    agree(comm, lambda c, z: c.Sendrecv(z[0][2:], right, 3, z[0][:1], left), [numbers(comm, 3)])
    agree(comm, lambda c, z: c.Sendrecv_replace(z[0], right, 0, left), [numbers(comm, 2)])


def halos(comm: Any) -> None:
    """Strips without neighbours at the ends."""
    nobody = comm.forward.mpi.PROC_NULL
    up, down = (comm.rank - 1 if comm.rank else nobody), (comm.rank + 1 if comm.rank < comm.size - 1 else nobody)

    def swap(c: Any, z: Any) -> None:
        c.Sendrecv(z[0][1], up, 1, z[0][-1], down)
        c.Sendrecv(z[0][-2], down, 2, z[0][0], up)

    agree(comm, swap, [numbers(comm, 4, 2)])


def send_and_receive(comm: Any) -> None:
    def chain(c: Any, z: Any) -> None:
        if c.rank:
            c.Recv(z[0], c.rank - 1, 5)
        if c.rank < c.size - 1:
            c.Send(z[0], c.rank + 1, 5)

    agree(comm, chain, [numbers(comm, 2)])

    def crossing(c: Any, z: Any) -> None:  # both send first: it works where messages are buffered, and so does its reverse
        if c.rank < 2:
            c.Send(z[0], 1 - c.rank)
            c.Recv(z[1], 1 - c.rank)

    agree(comm, crossing, [numbers(comm, 2), numbers(comm, 2)])


def several(comm: Any) -> None:
    """One after the other, with a barrier."""

    def program(c: Any, z: Any) -> None:
        c.Bcast(z[0], root=1)
        c.Allreduce(z[0], z[1])
        c.Barrier()
        c.Sendrecv(z[1], (c.rank + 1) % c.size, 0, z[0], (c.rank - 1) % c.size)
        c.Allreduce(IN_PLACE, z[0])

    agree(comm, program, [numbers(comm, 2), numbers(comm, 2)])


def extrema(comm: Any) -> None:
    agree(
        comm, lambda c, z: c.Allreduce(z[0], z[1], op="MAX"), [numbers(comm, 3) + 0.3 * comm.rank, numbers(comm, 3)], h=1e-3, tolerance=1e-9
    )
    agree(
        comm, lambda c, z: c.Allreduce(IN_PLACE, z[0], op=c.forward.mpi.MIN), [numbers(comm, 3) + 0.3 * comm.rank], h=1e-3, tolerance=1e-9
    )

    def to_root(c: Any, z: Any) -> None:
        c.Reduce(z[0], z[1] if c.rank == 1 else None, op="MAX", root=1)

    agree(comm, to_root, [numbers(comm, 3) + 0.3 * comm.rank, numbers(comm, 3)], h=1e-3, tolerance=1e-9)


def extrema_of_equals(comm: Any) -> None:
    """All goes to the lowest rank of those that have it; NaN wins, as in NumPy."""
    x, y, tape = Duplicated(np.array([1.0, -0.0 if comm.rank else 0.0, np.nan if comm.rank == 1 else 9.0])), Duplicated(np.zeros(3)), Tape()
    with tape:
        comm.Allreduce(x, y, op="MAX")
        y[:2] = y[:2] * 1.0
    np.testing.assert_array_equal(y.primal, [1.0, 0.0, np.nan])
    tape.reverse({y: [1.0, 1.0, 1.0]}, seed_rank=0)
    np.testing.assert_array_equal(x.shadow, [float(comm.rank == 0), float(comm.rank == 0), float(comm.rank == 1)])


def allgather(comm: Any) -> None:
    n = comm.size
    agree(comm, lambda c, z: c.Allgather(z[0], z[1]), [numbers(comm, 2), numbers(comm, n, 2)])
    agree(comm, lambda c, z: c.Allgather(IN_PLACE, z[0]), [numbers(comm, n)])
    counts = [r % 3 for r in range(n)]  # one of them gives nothing
    total = sum(counts)
    agree(comm, lambda c, z: c.Allgatherv(z[0], [z[1], counts]), [numbers(comm, counts[comm.rank]), numbers(comm, total)])
    places = [total - sum(counts[: r + 1]) for r in range(n)]  # the other way round
    agree(comm, lambda c, z: c.Allgatherv(z[0], [z[1], (counts, places)]), [numbers(comm, counts[comm.rank]), numbers(comm, total)])
    agree(comm, lambda c, z: c.Allgatherv(IN_PLACE, [z[0], counts, places]), [numbers(comm, total)])
    gaps = [3 * r for r in range(n)]
    agree(comm, lambda c, z: c.Allgatherv(IN_PLACE, [z[0], counts, gaps]), [numbers(comm, 3 * n)])


def gather(comm: Any) -> None:
    n, root = comm.size, 1
    agree(comm, lambda c, z: c.Gather(z[0], z[1] if c.rank == root else None, root), [numbers(comm, 2), numbers(comm, 2 * n)])
    counts = [1 + r % 2 for r in range(n)]
    whole = [numbers(comm, counts[comm.rank]), *([numbers(comm, sum(counts))] if comm.rank == root else [])]
    agree(comm, lambda c, z: c.Gatherv(z[0], [z[1], counts] if c.rank == root else None, root), whole)

    def in_place(c: Any, z: Any) -> None:
        c.Gatherv(IN_PLACE if c.rank == root else z[0], [z[-1], counts] if c.rank == root else None, root)

    agree(comm, in_place, whole)


def scatter(comm: Any) -> None:
    n, root = comm.size, 1
    agree(comm, lambda c, z: c.Scatter(z[1] if c.rank == root else None, z[0], root), [numbers(comm, 2), numbers(comm, 2 * n)])
    counts, places = [1 + r % 2 for r in range(n)], list(range(n))  # blocks that overlap where they are read
    whole = [numbers(comm, counts[comm.rank]), *([numbers(comm, 2 * n)] if comm.rank == root else [])]
    agree(comm, lambda c, z: c.Scatterv([z[1], counts, places] if c.rank == root else None, z[0], root), whole)

    def stays(c: Any, z: Any) -> None:
        c.Scatterv([z[1], counts, places] if c.rank == root else None, IN_PLACE if c.rank == root else z[0], root)

    agree(comm, stays, whole)


def reduce_scatter(comm: Any) -> None:
    n = comm.size
    agree(comm, lambda c, z: c.Reduce_scatter_block(z[0], z[1]), [numbers(comm, 2 * n), numbers(comm, 2)])
    counts = [r % 3 for r in range(n)]
    agree(comm, lambda c, z: c.Reduce_scatter(z[0], z[1], counts), [numbers(comm, sum(counts)), numbers(comm, counts[comm.rank])])
    agree(
        comm,
        lambda c, z: c.Reduce_scatter(IN_PLACE, z[0], [1 + k % 2 for k in range(n)]),
        [numbers(comm, sum(1 + k % 2 for k in range(n)))],
    )


def alltoall(comm: Any) -> None:
    n, rank = comm.size, comm.rank
    agree(comm, lambda c, z: c.Alltoall(z[0], z[1]), [numbers(comm, n, 2), numbers(comm, n, 2)])
    agree(comm, lambda c, z: c.Alltoall(IN_PLACE, z[0]), [numbers(comm, n)])
    gives, takes = [(rank + s) % 3 for s in range(n)], [(s + rank) % 3 for s in range(n)]
    agree(comm, lambda c, z: c.Alltoallv([z[0], gives], [z[1], takes]), [numbers(comm, sum(gives)), numbers(comm, sum(takes))])
    gives, takes = [s % 2 for s in range(n)], [rank % 2] * n
    state = [numbers(comm, sum(gives)), numbers(comm, sum(takes))]
    agree(comm, lambda c, z: c.Alltoallv([z[0], gives], [z[1], takes]), state)


def requests(comm: Any) -> None:
    """Halos that are begun, and waited for in another order than they were begun."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def ring(c: Any, z: Any) -> None:
        u = z[0]
        wanted = [c.Irecv(u[0], left, 1), c.Irecv(u[-1], right, 2)]
        sent = [c.Isend(u[1], left, 2), c.Isend(u[-2], right, 1)]
        u[1:-1] = u[1:-1] * 2.0 if hasattr(u, "shadow") else 2 * u[1:-1]  # the interior, between
        c.Waitall([wanted[1], sent[0], wanted[0], sent[1]])

    agree(comm, ring, [numbers(comm, 4, 2)])

    def same_tag(c: Any, z: Any) -> None:
        if c.rank == 0:
            first, second = c.Isend(z[0], 1), c.Isend(z[1], 1)
            first.Wait()
            second.Wait()
        if c.rank == 1:
            first, second = c.Irecv(z[0], 0), c.Irecv(z[1], 0)
            second.Wait()
            first.Wait()

    agree(comm, same_tag, [numbers(comm, 2), numbers(comm, 2)])


def large_messages(comm: Any) -> None:
    """Which MPI fetches from the sender's memory when they are received: it is written before, in the forward and in the reverse."""
    n, right, left = 1 << 17, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x, y, tape = Duplicated(np.full(n, comm.rank + 1.0)), Duplicated(np.zeros(n)), Tape()
    with tape:
        sent = comm.Isend(x, right)
        x *= 0.0
        comm.Barrier()
        comm.Recv(y, left)
        sent.Wait()
    np.testing.assert_array_equal(y.primal, left + 1.0)
    tape.reverse({y: np.full(n, 10.0 + comm.rank)})
    np.testing.assert_array_equal(x.shadow, 10.0 + right)
    np.testing.assert_array_equal(y.shadow, 0)


def communicators(comm: Any) -> None:
    """Rows and columns of a grid of ranks, and one that not all are in."""
    world = comm.mpi
    row, column = comm.Split(comm.rank // 2, comm.rank), comm.Split(comm.rank % 2, -comm.rank)
    some = comm.Split(0 if comm.rank != 0 else comm.forward.mpi.UNDEFINED)
    assert (some is None) == (comm.rank == 0)

    def program(c: Any, z: Any) -> None:
        row.Allreduce(z[0], z[1])
        column.Bcast(z[1], root=0)
        if some is not None:
            some.Allreduce(IN_PLACE, z[0])
        c.Reduce(z[1], z[2] if c.rank == 0 else None)

    agree(comm, program, [numbers(comm, 2), numbers(comm, 2), numbers(comm, 2)])
    assert world.size == comm.size


def datatypes(comm: Any) -> None:
    mpi = comm.forward.mpi
    other = comm.size - 1 - comm.rank
    column = mpi.DOUBLE.Create_vector(3, 1, 4).Commit()
    block = mpi.DOUBLE.Create_subarray([3, 4], [2, 2], [1, 1]).Commit()
    pair = mpi.DOUBLE.Create_contiguous(2).Commit()
    columns = mpi.DOUBLE.Create_vector(3, 2, 4).Commit()

    def program(c: Any, z: Any) -> None:
        if other != c.rank:
            c.Sendrecv([z[0], 1, column], other, 0, [z[1], 1, column], other)
            c.Sendrecv([z[0], block], other, 1, [z[1][:2, 2:].reshape(2, 2)[:, :2], mpi.DOUBLE], other)
        c.Bcast([z[1], 1, columns], root=1)
        c.Bcast([z[0], 1, pair], root=1)
        c.Allreduce([z[0], 5, mpi.DOUBLE], [z[1], 5, mpi.DOUBLE])

    agree(comm, program, [numbers(comm, 3, 4), numbers(comm, 3, 4)])


def views(comm: Any) -> None:
    def program(c: Any, z: Any) -> None:
        c.Allreduce(z[0][::2, 1], z[0][1::2, 0])
        c.Bcast(z[0][:, 1], root=0)
        c.Allreduce(IN_PLACE, z[0].T[1])

    agree(comm, program, [numbers(comm, 4, 2)])


def blocks_of_views(comm: Any) -> None:
    """Blocks in another order, and blocks that overlap where they are read, of arrays that are not contiguous."""
    n = comm.size
    counts, places = [1 + r % 2 for r in range(n)], [2 * (n - 1 - r) for r in range(n)]
    agree(comm, lambda c, z: c.Allgatherv(IN_PLACE, [z[0][:, 1], counts, places]), [numbers(comm, 2 * n, 2)])
    agree(comm, lambda c, z: c.Allgatherv(IN_PLACE, [z[0][:, :2], counts, places]), [numbers(comm, n, 3)])
    overlapping = [2 + r for r in range(n)]

    def deal(c: Any, z: Any) -> None:
        c.Scatterv([z[-1][:, :2], counts, overlapping] if c.rank == 1 else None, z[0][::2], 1)

    own = numbers(comm, 2 * counts[comm.rank] - 1)
    agree(comm, deal, [own, *([numbers(comm, n + 2, 3)] if comm.rank == 1 else [])])


def complex_numbers(comm: Any) -> None:
    for dtype in (np.complex128, np.complex64):
        agree(comm, lambda c, z: c.Allreduce(z[0], z[1]), [numbers(comm, 2, dtype=dtype), numbers(comm, 2, dtype=dtype)])
        agree(comm, lambda c, z: c.Bcast(z[0][::2], root=1), [numbers(comm, 3, dtype=dtype)])
        agree(comm, lambda c, z: c.Reduce_scatter_block(z[0], z[1]), [numbers(comm, comm.size, dtype=dtype), numbers(comm, 1, dtype=dtype)])


def halves(comm: Any) -> None:
    for dtype in (np.float16, bfloat16):
        agree(comm, lambda c, z: c.Allreduce(z[0], z[1]), [numbers(comm, 2, dtype=dtype), numbers(comm, 2, dtype=dtype)])
        agree(
            comm,
            lambda c, z: c.Sendrecv_replace(z[0][::2], (c.rank + 1) % c.size, 0, (c.rank - 1) % c.size),
            [numbers(comm, 3, dtype=dtype)],
        )
        agree(comm, lambda c, z: c.Allgather(z[0], z[1]), [numbers(comm, 1, dtype=dtype), numbers(comm, comm.size, dtype=dtype)])
        agree(
            comm,
            lambda c, z: c.Scatter(z[1] if c.rank == 0 else None, z[0]),
            [numbers(comm, 1, dtype=dtype), numbers(comm, comm.size, dtype=dtype)],
        )
        agree(
            comm, lambda c, z: c.Allreduce(IN_PLACE, z[0], op="MAX"), [numbers(comm, 2, dtype=dtype) * dtype(4) + dtype(comm.rank)], h=0.25
        )


def in_order(comm: Any) -> None:
    """Sums over ranks in the order of the ranks: the same bits as one process that adds them one after the other."""
    x = np.random.default_rng(comm.rank).standard_normal(50) * 10.0 ** np.random.default_rng(comm.rank + 9).integers(-8, 8, 50)
    parts = comm.mpi.allgather(x)
    expected = parts[0].copy()
    for part in parts[1:]:
        expected += part
    y, blocks = np.empty(50), np.empty(1)
    with gpuad.deterministic():
        comm.Allreduce(x, y)
        assert y.tobytes() == expected.tobytes()
        comm.Reduce(x, y if comm.rank == 0 else None)
        if comm.rank == 0:
            assert y.tobytes() == expected.tobytes()
        comm.Reduce_scatter_block(x[: comm.size].copy(), blocks)
        assert blocks[0] == expected[comm.rank]
        for program in (
            lambda c, z: c.Allreduce(IN_PLACE, z[0]),
            lambda c, z: c.Bcast(z[0]),
            lambda c, z: c.Allgather(IN_PLACE, z[0]),
            lambda c, z: c.Reduce(IN_PLACE if c.rank == 0 else z[0], z[0]),
        ):
            agree(comm, program, [numbers(comm, comm.size)])
        counts = [r % 3 for r in range(comm.size)]
        state = [numbers(comm, sum(counts)), numbers(comm, counts[comm.rank])]
        agree(comm, lambda c, z: c.Reduce_scatter(z[0], z[1], counts), state)
        b, tape = Duplicated(np.zeros(50)), Tape()
        with tape:
            comm.Bcast(b)
        tape.reverse({b: x})
        if comm.rank == 0:  # the root's own seed comes last: what the others give is summed first
            others = np.zeros(50)
            for part in parts[1:]:
                others += part
            np.testing.assert_array_equal(b.shadow, x + others)


def cores(comm: Any) -> None:
    """Each of the ranks on a machine has its part of the cores that they may all use; those bound to others do not count."""
    mine = sorted(os.sched_getaffinity(0))
    sharing = comm.mpi.allgather(mine).count(mine)
    assert processes.on_these_cores(comm.watch.processes) == sharing
    assert processes.on_these_cores([(*processes.own()[:3], 0), (0, *processes.own()[1:])]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPUAD_THREADS", raising=False)
        assert host.default_workers() == max(1, len(mine) // sharing)
        patch.setenv("GPUAD_THREADS", "5")
        assert host.default_workers() == 5


def order_of_memory(comm: Any) -> None:
    """Elements of an array in Fortran's order move as they lie in memory, as mpi4py moves them, forth and back."""
    given = np.asfortranarray(np.arange(12.0).reshape(3, 4) + 100 * comm.rank)
    expected, got, tape = np.zeros((4, 3)), Duplicated(np.zeros((4, 3))), Tape()
    comm.mpi.Sendrecv(given, comm.rank, 0, expected, comm.rank)
    x = Duplicated(given, np.zeros_like(given, order="F"))
    with tape:
        comm.Sendrecv(x, comm.rank, 0, got, comm.rank)
    np.testing.assert_array_equal(got.primal, expected)
    seed = np.random.default_rng(comm.rank).normal(size=(4, 3))
    tape.reverse({got: seed})
    np.testing.assert_array_equal(x.shadow, seed.T)
    whole, mine = np.zeros((comm.size, 4, 3)), np.zeros((comm.size, 4, 3))
    comm.mpi.Allgather(given, whole)
    comm.Allgather(given, mine)
    np.testing.assert_array_equal(mine, whole)


CHECKS = [
    cores,
    allreduce, reduce, bcast, sendrecv, halos, send_and_receive, several, extrema, extrema_of_equals, allgather, gather, scatter,
    reduce_scatter, alltoall, requests, large_messages, communicators, datatypes, views, blocks_of_views, complex_numbers, halves, in_order,
    order_of_memory,
]  # fmt: skip
