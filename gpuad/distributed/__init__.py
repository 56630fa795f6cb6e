"""Programs larger than one device: MPI's collectives and messages in place, recorded and differentiated.

    from mpi4py import MPI
    comm = gpuad.distributed.wrap(MPI.COMM_WORLD)
    with tape:
        comm.Sendrecv(U[1], up, 0, U[-1], down)     # U = Duplicated(u): a strip of the plate, with a row of each neighbour's
        step[grid, block](V, U, n)
        comm.Allreduce(comm.IN_PLACE, loss)
    tape.reverse({loss: 1.0}, seed_rank=0)

A call is an operation of the tape like a launch. The rule for its adjoint is the one for launches, with z the memory of all ranks:
z' = A z gives dz = A^T dz' (`linear` has the table, `operations` where x and y lie). There is no transport, launcher or scheduler of its
own: what is sent goes through mpi4py. What comes out of a recording is right on all ranks, or an error on all ranks, within a time limit.
"""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentTypeError, DistributedError
from .communicator import IN_PLACE, Communicator
from .request import Request

__all__ = ["IN_PLACE", "Communicator", "DistributedError", "Request", "wrap"]


def wrap(comm: Any, *, nccl: Any = None, limit: float = 60.0, check: bool = True) -> Communicator:
    """A communicator whose calls a tape records, made from mpi4py's. All ranks call it.

    `nccl`: a `cupy.cuda.nccl.NcclCommunicator` of the same ranks: what CuPy's arrays hold goes through it, in the current stream and
    without waiting; what the ranks compare goes through MPI. Messages then have no tags, and with one rank are waited for in order.
    `limit`: seconds that a rank waits for another before it raises; more than the longest time that ranks may be apart. `check`: whether
    calls are compared with the other ranks' before anything is sent (a few bytes more for each); without it a program whose ranks differ is
    found by the limit only, or at the reverse. Raises TypeError for what is no communicator of mpi4py's, ImportError without mpi4py,
    DistributedError if not all ranks come within the limit.
    """
    import mpi4py.MPI as mpi

    if not isinstance(comm, mpi.Intracomm):
        raise ArgumentTypeError(f"wrap takes a communicator of mpi4py (MPI.COMM_WORLD), not a {type(comm).__name__}")
    if nccl is not None and nccl.rank_id() != comm.Get_rank():
        raise ArgumentTypeError(
            f"rank {comm.Get_rank()} of MPI is rank {nccl.rank_id()} of NCCL: make both of the same ranks in the same order"
        )
    return Communicator(comm, None, limit, check, nccl)
