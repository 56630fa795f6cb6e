"""`mpiexec -n 2 python -m gpuad demo --program wave`: the plate cut into strips, one for each process.

A strip has the rows that its process computes and one of each neighbour's beside them, which come before each step. The kernels are those
of one process, on fewer rows. The descent runs in every process alike: the traces of all microphones and the gradient of the whole map are
put together by sums in which all terms but one are 0, so that they are the same bits everywhere.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...arguments.annotations import Duplicated
from ...distributed import IN_PLACE, Communicator, wrap
from ...errors import GpuadError
from .descent import Map
from .outcome import Outcome, Report
from .wave import Setting, Simulation, inverted

_LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")


class Strips(Simulation):
    """A process's part of the plate."""

    def __init__(self, setting: Setting, library: Any, comm: Communicator) -> None:
        self.comm, n = comm, setting.n
        if n // comm.size < 2:
            raise GpuadError(f"{comm.size} processes for a plate of {n} rows: at least 2 rows each")
        bounds = [n * r // comm.size for r in range(comm.size + 1)]
        self.own = slice(bounds[comm.rank], bounds[comm.rank + 1])
        self.up = comm.rank - 1 if comm.rank else None
        self.down = comm.rank + 1 if comm.rank < comm.size - 1 else None
        super().__init__(setting, library, max(self.own.start - 1, 0), min(self.own.stop + 1, n))

    def _owns(self, rows: Any) -> Any:
        return (rows >= self.own.start) & (rows < self.own.stop)

    def exchange(self, field: Duplicated) -> None:
        """The outer rows of the neighbours come."""
        waited = []
        if self.up is not None:
            waited += [self.comm.Irecv(field[:, 0], self.up, 1), self.comm.Isend(field[:, 1], self.up, 2)]
        if self.down is not None:
            waited += [self.comm.Irecv(field[:, -1], self.down, 2), self.comm.Isend(field[:, -2], self.down, 1)]
        self.comm.Waitall(waited)

    def recorded(self) -> Any:
        """The traces of all microphones."""
        s = self.setting
        traces = self.library.zeros((s.steps, s.shots, s.receivers), np.float32)
        traces[..., self.heard] = self.traces.primal
        self.comm.Allreduce(IN_PLACE, traces)
        return traces

    def whole(self, part: Map) -> Map:
        """The map of the plate, of which each process has its own rows."""
        found = np.zeros((self.setting.n, self.setting.n))
        found[self.own] = part[self.own.start - self.inside.start : self.own.stop - self.inside.start]
        self.comm.Allreduce(IN_PLACE, found)
        return found


def launched() -> Communicator | None:
    """The processes, where MPI has started more than one; None else."""
    if not any(name in os.environ for name in _LAUNCHED):
        return None
    try:
        from mpi4py import MPI
    except ImportError:
        raise GpuadError("started by mpiexec, but mpi4py is not installed: pip install 'gpuad[mpi]'") from None
    return wrap(MPI.COMM_WORLD) if MPI.COMM_WORLD.Get_size() > 1 else None


def invert(setting: Setting, library: Any, comm: Communicator, report: Report = lambda *_: None) -> Outcome:
    """As `wave.invert`, by all processes together."""
    return inverted(Strips(setting, library, comm), report)
