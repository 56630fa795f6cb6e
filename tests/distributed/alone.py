"""Programs in which one rank goes its own way, each started by a test: `alone.py WHAT FOLDER`. The others write to the folder what they are
told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import gpuad
from gpuad import Duplicated, Tape
from gpuad.distributed import IN_PLACE

LIMIT = 2.0
what, folder = sys.argv[1], Path(sys.argv[2])
comm = gpuad.distributed.wrap(MPI.COMM_WORLD, limit=LIMIT)
x, tape = Duplicated(np.ones(4)), Tape()
begin = time.monotonic()


def last() -> None:
    """What the last rank does, in place of the second call."""
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "stuck":
        time.sleep(60)
    if what == "raises outside":
        raise RuntimeError("no such file")


try:
    with tape:
        comm.Allreduce(IN_PLACE, x)
    if comm.rank == comm.size - 1:
        last()
    if what == "other length" and comm.rank:  # one rank does not come to the reverse
        comm.Barrier()
    tape.reverse({x: 1.0}, seed_rank=0)
except gpuad.distributed.DistributedError as error:
    (folder / str(comm.rank)).write_text(f"{time.monotonic() - begin:.1f} {error}")
    raise
