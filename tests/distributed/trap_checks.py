"""Gradients that others got wrong, as programs of ours, by the name of the report."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import fake_cupy
import numpy as np

from gpuad import Duplicated, Tape
from gpuad.distributed import IN_PLACE, wrap


def mpi4jax_allreduce(comm: Any) -> None:
    """An all-reduce whose transpose is the identity: right only where every rank has the same cotangent."""
    x, tape = Duplicated(np.ones(2)), Tape()
    with tape:
        comm.Allreduce(IN_PLACE, x)
    tape.reverse({x: np.array([1.0, 10.0]) * (comm.rank + 1)})
    np.testing.assert_array_equal(x.shadow, np.array([1.0, 10.0]) * sum(range(1, comm.size + 1)))
    assert comm.back.messages == 1


def flash_attention_1244(comm: Any) -> None:
    """The same in a layer that is split over ranks: y = sum over ranks of w_r x, each rank goes on with y in its own way."""
    w, x, y, tape = Duplicated(np.full(3, 2.0 + comm.rank)), Duplicated(np.arange(1.0, 4.0)), Duplicated(np.zeros(3)), Tape()
    with tape:
        y[...] = w * x
        comm.Allreduce(IN_PLACE, y)
        y *= comm.rank + 1.0
    tape.reverse({y: 1.0 + np.zeros(3)}, seed_rank="every")
    total = sum(range(1, comm.size + 1))
    np.testing.assert_array_equal(w.shadow, total * x.primal)
    np.testing.assert_array_equal(x.shadow, total * w.primal)


def netket_1690(comm: Any) -> None:
    """A factor of the number of ranks: a mean over samples on all ranks, its gradient by parameters that all ranks have."""
    samples, p, loss, tape = Duplicated(np.arange(3.0) + 3 * comm.rank), Duplicated(np.array([2.0])), Duplicated(np.zeros(1)), Tape()
    with tape:
        comm.replicated(p)
        loss[...] = (samples * samples).sum() * p * (1.0 / (3 * comm.size))
        comm.Allreduce(IN_PLACE, loss)
    tape.reverse({loss: 1.0}, seed_rank=0)
    every = np.arange(3.0 * comm.size)
    np.testing.assert_allclose(p.shadow, [(every**2).mean()], rtol=1e-14)
    np.testing.assert_allclose(samples.shadow, 2 * samples.primal * 2 / every.size, rtol=1e-14)


def torch_120386(comm: Any) -> None:
    """An all-gather whose gradient is lost where the buffer is not contiguous."""
    x, y, tape = Duplicated(np.ones((2, 4))), Duplicated(np.zeros((2 * comm.size, 3))), Tape()
    with tape:
        comm.Allgather(x[:, 1], y[:, 2])
    seed = np.zeros((2 * comm.size, 3))
    seed[:, 2] = np.arange(2.0 * comm.size) + 100 * comm.rank
    tape.reverse({y: seed})
    expected = np.zeros((2, 4))
    expected[:, 1] = sum(np.arange(2.0) + 2 * comm.rank + 100 * r for r in range(comm.size))
    np.testing.assert_array_equal(x.shadow, expected)


def horovod_2687(comm: Any) -> None:
    """The gradient of a mean over ranks is a mean, not a sum."""
    x, tape = Duplicated(np.full(2, float(comm.rank))), Tape()
    with tape:
        comm.Allreduce(IN_PLACE, x)
        x *= 1.0 / comm.size
    tape.reverse({x: np.ones(2)}, seed_rank="every")
    np.testing.assert_allclose(x.shadow, np.ones(2), rtol=1e-15)


def pylops_mpi_182(comm: Any) -> None:
    """Device memory is handed to MPI after the stream that writes it was waited for: each array, forward and in the reverse."""
    sys.modules["cupy"] = cupy = fake_cupy.module()
    try:
        order: list[str] = []
        own = fake_cupy.Stream.synchronize

        def synchronize(stream: Any) -> None:
            order.append("wait")
            own(stream)

        fake_cupy.Stream.synchronize = synchronize  # type: ignore[method-assign]
        ours = wrap(comm.mpi, limit=10)
        for transport in (ours.forward, ours.back):
            transport.comm = _Started(transport.comm, order)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        with fake_cupy.Stream(non_blocking=True):
            x, y, tape = (*(Duplicated(cupy.asarray(np.full(4, comm.rank + k))) for k in (5.0, 7.0)), Tape())
            with tape:
                ours.Bcast(x, root=1)
                ours.Sendrecv(x, right, 0, y, left)
                ours.Allreduce(IN_PLACE, y)
            np.testing.assert_array_equal(y.primal.get(), np.full(4, 6.0 * comm.size))
            tape.reverse({y: cupy.asarray(np.ones(4))}, seed_rank=0)
            np.testing.assert_array_equal(x.shadow.get(), np.full(4, comm.size * float(comm.rank == 1)))
        assert [name for name in order if name != "wait"] == [
            *("Ibcast", "Irecv", "Isend", "Iallreduce"),
            *("Iallreduce", "Irecv", "Isend", "Ireduce"),
        ]
    finally:
        fake_cupy.Stream.synchronize = own  # type: ignore[method-assign]
        del sys.modules["cupy"]


class _Started:
    """A communicator to which arrays may be handed only just after a wait for their stream. What is on the "device" is on the host here."""

    def __init__(self, comm: Any, order: list[str]) -> None:
        self.comm, self.order = comm, order

    def __getattr__(self, name: str) -> Any:
        return partial(self._start, name) if name.startswith("I") else getattr(self.comm, name)

    def _start(self, name: str, *args: Any, **keywords: Any) -> Any:
        assert self.order[-1:] == ["wait"], f"{name} before the stream was waited for"
        self.order.append(name)
        return getattr(self.comm, name)(*map(_on_host, args), **keywords)


def _on_host(given: Any) -> Any:
    if isinstance(given, list):
        return [_on_host(x) for x in given]
    return given.host(True) if isinstance(given, fake_cupy.ndarray) else given


CHECKS = [mpi4jax_allreduce, flash_attention_1244, netket_1690, torch_120386, horovod_2687, pylops_mpi_182]
