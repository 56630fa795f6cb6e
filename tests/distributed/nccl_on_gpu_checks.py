"""NCCL itself, a rank a device, against the same program over MPI on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from collective_checks import numbers
from cupy.cuda import nccl

from gpuad import Duplicated, Tape
from gpuad.distributed import IN_PLACE, wrap


def gradients(comm: Any, program: Callable[[Any, list[Any]], None], *shapes: tuple[int, ...]) -> None:
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    name = comm.mpi.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    over = wrap(comm.mpi, nccl=nccl.NcclCommunicator(comm.size, name, comm.rank), limit=30)
    found = []
    for ours, make in ((over, cupy.asarray), (comm, lambda x: x)):
        state = [Duplicated(make(numbers(comm, *shape)), make(numbers(comm, *shape) * 2)) for shape in shapes]
        tape = Tape()
        for _ in range(2):
            with tape:
                program(ours, state)
            tape.reverse()
        found.append([cupy.asnumpy(x) for pair in state for x in (pair.primal, pair.shadow)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def collectives(comm: Any) -> None:
    n = comm.size
    gradients(comm, lambda c, z: c.Allreduce(z[0], z[1]), (3,), (3,))
    gradients(comm, lambda c, z: c.Allreduce(IN_PLACE, z[0], op="MAX"), (3,))
    gradients(comm, lambda c, z: c.Bcast(z[0][:, 1]), (4, 3))
    gradients(comm, lambda c, z: c.Allgather(z[0], z[1]), (2,), (2 * n,))
    gradients(comm, lambda c, z: c.Reduce_scatter_block(z[0], z[1]), (2 * n,), (2,))
    gradients(comm, lambda c, z: c.Alltoall(z[0], z[1]), (n, 2), (n, 2))


def messages(comm: Any) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    gradients(comm, lambda c, z: c.Sendrecv(z[0][2], right, 0, z[0][0], left), (4, 3))
    gradients(comm, lambda c, z: c.Waitall([c.Irecv(z[0][0], left), c.Isend(z[0][2], right)]), (4, 3))


CHECKS = [collectives, messages]
