"""NCCL's path, against stand-ins for CuPy and NCCL that check groups, streams, counts and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import fake_cupy
import fake_nccl
import numpy as np
import pytest
from collective_checks import numbers

from gpuad import Duplicated, LaunchError, Tape, UnsupportedError
from gpuad.distributed import IN_PLACE, Communicator, DistributedError, wrap

sys.modules["cupy"] = cupy = fake_cupy.module()


def paired(comm: Any) -> tuple[Communicator, Communicator]:
    """One over NCCL, and one over MPI."""
    return wrap(comm.mpi, nccl=fake_nccl.NcclCommunicator(comm.mpi), limit=10), wrap(comm.mpi, limit=10)


def gradients(comm: Any, program: Callable[[Any, list[Any]], None], *shapes: tuple[int, ...], dtype: Any = np.float64) -> None:
    """The same program over NCCL on a device and over MPI on the host: states and shadows, to the bit (whole numbers)."""
    over, host = paired(comm)
    found = []
    for ours, make in ((over, cupy.asarray), (host, lambda x: x)):
        with fake_cupy.Stream(non_blocking=True):
            state = [Duplicated(make(numbers(comm, *shape, dtype=dtype)), make(numbers(comm, *shape, dtype=dtype) * 2)) for shape in shapes]
            tape = Tape()
            with tape:
                program(ours, state)
            tape.reverse()
            values = [x for pair in state for x in (pair.primal, pair.shadow)]
            found.append([x.get() if hasattr(x, "get") else x for x in values])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (over.forward.nbytes, over.back.nbytes) == (host.forward.nbytes, host.back.nbytes)


def collectives(comm: Any) -> None:
    n, root = comm.size, comm.size - 1
    counts = [1 + r % 2 for r in range(n)]
    own = counts[comm.rank]
    gradients(comm, lambda c, z: c.Allreduce(z[0], z[1]), (3,), (3,))
    gradients(comm, lambda c, z: c.Allreduce(IN_PLACE, z[0]), (3,), dtype=np.float32)
    gradients(comm, lambda c, z: c.Allreduce(IN_PLACE, z[0]), (3,), dtype=np.complex128)
    gradients(comm, lambda c, z: c.Reduce(z[0], z[1] if c.rank == root else None, root=root), (3,), (3,))
    gradients(comm, lambda c, z: c.Bcast(z[0], root=root), (4,), dtype=np.float32)
    gradients(comm, lambda c, z: c.Allgatherv(z[0], [z[1], counts]), (own,), (sum(counts),))
    gradients(comm, lambda c, z: c.Gatherv(z[0], [z[1], counts] if c.rank == root else None, root), (own,), (sum(counts),))
    gradients(comm, lambda c, z: c.Scatterv([z[1], counts] if c.rank == root else None, z[0], root), (own,), (sum(counts),))
    gradients(comm, lambda c, z: c.Reduce_scatter(z[0], z[1], counts), (sum(counts),), (own,))
    gives, takes = [(comm.rank + s) % 3 for s in range(n)], [(s + comm.rank) % 3 for s in range(n)]
    gradients(comm, lambda c, z: c.Alltoallv([z[0], gives], [z[1], takes]), (sum(gives),), (sum(takes),))


def extrema(comm: Any) -> None:
    """The winners, too: the lowest of equals, and of NaN."""
    for op in ("MAX", "MIN"):
        gradients(comm, lambda c, z, op=op: c.Allreduce(z[0], z[1], op=op), (3,), (3,))
        gradients(comm, lambda c, z, op=op: c.Allreduce(IN_PLACE, z[0], op=op), (4,), dtype=np.float32)
        gradients(comm, lambda c, z, op=op: c.Reduce(z[0], z[1] if c.rank == 1 else None, op=op, root=1), (3,), (3,))
    over, _ = paired(comm)
    with fake_cupy.Stream(non_blocking=True):
        x, tape = Duplicated(cupy.asarray(np.array([1.0, float(comm.rank), np.nan if comm.rank else 9.0]))), Tape()
        with tape:
            over.Allreduce(IN_PLACE, x, op="MAX")
        np.testing.assert_array_equal(x.primal.get(), [1.0, comm.size - 1.0, np.nan])
        tape.reverse({x: cupy.asarray(np.ones(3))}, seed_rank=0)
        np.testing.assert_array_equal(x.shadow.get(), [float(comm.rank == r) for r in (0, comm.size - 1, 1)])


def messages(comm: Any) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    nobody = comm.MPI.PROC_NULL
    up, down = (comm.rank - 1 if comm.rank else nobody), (comm.rank + 1 if comm.rank < comm.size - 1 else nobody)
    gradients(comm, lambda c, z: c.Sendrecv(z[0], right, 0, z[1], left), (3,), (3,))
    gradients(comm, lambda c, z: c.Sendrecv_replace(z[0], right, 0, left), (3,))

    def halos(c: Any, z: Any) -> None:
        c.Sendrecv(z[0][1], up, 0, z[0][3], down)
        c.Sendrecv(z[0][2], down, 0, z[0][0], up)

    gradients(comm, halos, (4, 3))

    def requests(c: Any, z: Any) -> None:
        u = z[0]
        c.Waitall([c.Irecv(u[0], left), c.Irecv(u[3], right), c.Isend(u[2], right), c.Isend(u[1], left)])

    fake_nccl.groups.clear()
    gradients(comm, requests, (4, 3))
    assert fake_nccl.groups == [["recv", "recv", "send", "send"]] * 2  # forward, and the reverse: one group each


def chain(comm: Any) -> None:
    def program(c: Any, z: Any) -> None:
        if c.rank:
            c.Recv(z[0], c.rank - 1)
        if c.rank < c.size - 1:
            c.Send(z[0], c.rank + 1)
        c.Allreduce(IN_PLACE, z[1])

    gradients(comm, program, (3,), (2,))


def refused(comm: Any) -> None:
    over, _ = paired(comm)
    x = Duplicated(cupy.asarray(np.ones(3)))
    with Tape():
        for call, kind, text in (
            (lambda: over.Allreduce(IN_PLACE, Duplicated(np.ones(3))), LaunchError, "CuPy's arrays"),
            (lambda: over.Sendrecv_replace(x, 0, 5, 0), LaunchError, "tags go from 0 to 0"),
            (lambda: over.Split(0), UnsupportedError, "NCCL"),
        ):
            with pytest.raises(kind, match=text):
                call()
    with pytest.raises(DistributedError, match="do not make the same call"), Tape():
        over.Allreduce(IN_PLACE, Duplicated(cupy.asarray(np.ones(2 + comm.rank))))
    over, _ = paired(comm)
    other = (comm.rank + 1) % 2
    with pytest.raises((LaunchError, DistributedError)), Tape():
        requests = [over.Irecv(x, other), over.Irecv(Duplicated(cupy.asarray(np.ones(3))), other)] if comm.rank < 2 else []
        requests[1].Wait() if requests else over.Barrier()
    with pytest.raises(fake_nccl.NcclError, match="outside of a group"):
        over.nccl.send(x.primal.data.ptr, 8, fake_nccl.NCCL_UINT8, 0, 0)
    with pytest.raises(fake_nccl.NcclError, match="not that much"):
        over.nccl.bcast(x.primal.data.ptr, 1 << 20, fake_nccl.NCCL_UINT8, 0, 0)


CHECKS = [collectives, extrema, messages, chain, refused]
