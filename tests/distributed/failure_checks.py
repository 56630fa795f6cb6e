"""What goes wrong on one rank is an error on all, soon, and says what and where."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY
from program_checks import Heat
from ranks import on_one, quietly

import gpuad
from gpuad import Const, Duplicated, LaunchError, ShadowError, Tape, TapeError, UnsupportedError, stop_gradient
from gpuad.distributed import IN_PLACE, DistributedError, wrap
from gpuad.tape.facade import recording_of

SOON = 5.0  # seconds; the limit of these communicators is higher


def pair(n: int = 3) -> Duplicated:
    return Duplicated(np.arange(1.0, n + 1))


def refused(comm: Any, program: Callable[[Any], None], text: str, kind: type[Exception] = DistributedError) -> None:
    """All ranks raise it, and the communicator can be used again."""
    begin = time.monotonic()
    with pytest.raises(kind, match=text):
        program(comm)
    assert time.monotonic() - begin < SOON
    x = np.ones(1)
    comm.Allreduce(IN_PLACE, x)
    assert x[0] == comm.size


def recorded(program: Callable[[Any], None]) -> Callable[[Any], None]:
    def run(comm: Any) -> None:
        with Tape():
            program(comm)

    return run


def counts(comm: Any) -> None:
    own = 2 + (comm.rank == 1)
    refused(comm, lambda c: c.Allreduce(IN_PLACE, np.ones(own)), r"rank 1: Allreduce SUM of 3 float64")
    refused(comm, recorded(lambda c: c.Allreduce(IN_PLACE, pair(own))), r"rank 1: Allreduce SUM of 3 float64")
    refused(comm, lambda c: c.Allreduce(IN_PLACE, np.ones(own), op="MAX"), r"rank 1: Allreduce MAX of 3 float64")
    refused(comm, lambda c: c.Bcast(np.ones(own)), "rank 1: Bcast of 3 float64")
    takes = [2] * comm.size
    refused(comm, lambda c: c.Allgatherv(np.ones(2), [np.ones(sum(takes) + own - 2), [*takes[:-1], own]]) if own == 2 else
            c.Allgatherv(np.ones(3), [np.ones(sum(takes) + 1), [2, 3, *takes[2:]]]), "counts")  # fmt: skip
    into = np.ones(2 * comm.size) if comm.rank == 0 else None
    refused(comm, lambda c: c.Gather(np.ones(own), into), "rank 1 gives 24 bytes and rank 0 takes 16")
    gives = [1] * comm.size
    gives[0] = own
    refused(comm, lambda c: c.Alltoallv([np.ones(sum(gives)), gives], [np.ones(sum(gives)), gives]), "rank . gives")
    refused(comm, lambda c: c.Allreduce(IN_PLACE, np.ones(2, np.float32 if c.rank else np.float64)), "float32")
    refused(comm, lambda c: c.Bcast(np.ones(2), root=min(c.rank, 1)), "root 1")


def other_calls(comm: Any) -> None:
    def program(c: Any) -> None:
        if c.rank:
            c.Allreduce(IN_PLACE, np.ones(2))
        else:
            c.Barrier()

    refused(comm, program, "rank 0: Barrier")
    refused(comm, lambda c: c.Split(0) if c.rank else c.Dup(), "rank 0: Dup")


def messages(comm: Any) -> None:
    """The receiver finds out, and the others are told."""
    begin = time.monotonic()

    def program() -> None:
        if comm.rank == 0:
            comm.Send(pair(3), 1)
        if comm.rank == 1:
            comm.Recv(pair(2), 0)
        comm.Allreduce(IN_PLACE, pair(1))

    with pytest.raises(DistributedError, match="has 24 bytes of float64, and is received into 16"), Tape():
        program()
    assert time.monotonic() - begin < SOON


def shadows(comm: Any) -> None:
    """A shadow on one rank and none on the other."""
    mine = [Duplicated, Const][comm.rank % 2]
    refused(comm, recorded(lambda c: c.Allreduce(IN_PLACE, mine(np.ones(2)))), "without shadows")
    refused(comm, recorded(lambda c: c.Bcast(mine(np.ones(2)))), "without shadows")
    refused(comm, recorded(lambda c: c.Bcast(np.ones(2) if c.rank else pair(2))), "without shadows")
    refused(comm, recorded(lambda c: c.Bcast(pair(2) if c.rank else Const(np.ones(2)))), "without shadows")
    refused(comm, recorded(lambda c: c.Bcast(pair(2) if c.rank else stop_gradient(np.ones(2)))), "without shadows")


def shadows_of_one_rank(comm: Any) -> None:
    """What is seen without others is refused on each."""
    for given in (np.ones(3), Const(np.ones(3)), stop_gradient(np.ones(3))):
        with pytest.raises(LaunchError, match="a shadow on one of its arrays"), Tape():
            wrap(comm.mpi, limit=5).Allreduce(given, pair())
    with pytest.raises(LaunchError, match="a shadow on one of its arrays"), Tape():
        wrap(comm.mpi, limit=5).Allreduce(pair(), np.ones(3))
    x = pair()
    with pytest.raises((ShadowError, LaunchError)), Tape():
        c = wrap(comm.mpi, limit=5)
        c.Allreduce(IN_PLACE, x)
        comm.mpi.Barrier()  # all have come so far
        c.Allreduce(x.primal, np.ones(3))


def shadow_of_a_message(comm: Any) -> None:
    begin = time.monotonic()
    with pytest.raises(DistributedError, match="its gradient would be dropped"), Tape():
        if comm.rank == 0:
            comm.Send(pair(), 1)
        if comm.rank == 1:
            comm.Recv(np.ones(3), 0)
        comm.Allreduce(IN_PLACE, pair(1))
    assert time.monotonic() - begin < SOON


def a_rank_that_raises(comm: Any) -> None:
    begin = time.monotonic()
    kind, text = (ZeroDivisionError, "division") if comm.rank == 1 else (DistributedError, "rank 1 stopped: ZeroDivisionError: division")
    with pytest.raises(kind, match=text), Tape():
        comm.Allreduce(IN_PLACE, pair())
        if comm.rank == 1:
            print(1 / 0)
        comm.Allreduce(IN_PLACE, pair())
    assert time.monotonic() - begin < SOON
    with pytest.raises(DistributedError, match="stopped"):
        comm.Barrier()


def a_reverse_that_raises(comm: Any) -> None:
    """One rank has changed memory that its reverse needs."""
    begin, x, y, tape = time.monotonic(), pair(), pair(), Tape()
    with tape:
        comm.Allreduce(x, y)
        y *= x
        comm.Allreduce(IN_PLACE, y)
    if comm.rank == 1:
        x.primal[0] = 5
    kind, text = (TapeError, "changed") if comm.rank == 1 else (DistributedError, "rank 1 stopped: TapeError: .*changed")
    with pytest.raises(kind, match=text):
        tape.reverse({y: 1.0}, seed_rank=0)
    assert time.monotonic() - begin < SOON
    comm.recover()
    with pytest.raises(TapeError):  # half of it was done on some ranks
        tape.reverse({y: 1.0}, seed_rank=0)
    comm.recover()
    x.primal[...] = x.shadow[...] = y.primal[...] = 1.0
    with tape:
        comm.Allreduce(x, y)
        y *= x
    tape.reverse({y: 1.0}, seed_rank=0)
    np.testing.assert_array_equal(x.shadow, 2 + (comm.size if comm.rank == 0 else 0))


def another_program(comm: Any) -> None:
    """Found out at the reverse, where calls were not compared before."""
    loose = wrap(comm.mpi, limit=10, check=False)
    x, y, tape = pair(), pair(), Tape()
    with tape:
        loose.Allreduce(x, y)
        loose.Allreduce(IN_PLACE, y if comm.rank else pair())
        loose.Allreduce(IN_PLACE, y.primal.copy() if comm.rank == 1 else y)
    with pytest.raises(DistributedError, match="do not reverse the same program"):
        tape.reverse({y: 1.0}, seed_rank=0)
    with tape:
        loose.Allreduce(x, y)
        if comm.rank == 0:
            loose.Send(x, 1, tag=4)
        elif comm.rank == 1:
            loose.Irecv(y, 0, tag=4)  # and no Wait
    with pytest.raises(DistributedError, match="rank 0 sent is not what rank 1 received"):
        tape.reverse({y: 1.0}, seed_rank=0)


def without_shadows(comm: Any) -> None:
    """Arrays without shadows go through a recording; a shadow on one side only is found at the reverse where it was not before."""
    x, plain, came, tape = pair(), np.arange(3.0) + comm.rank, np.zeros(3), Tape()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with tape:
        comm.Sendrecv(plain, right, 1, came, left)
        comm.Bcast(plain, root=1)
        x *= came
        comm.Allreduce(IN_PLACE, x)
    messages = comm.back.messages
    tape.reverse({x: 1.0}, seed_rank=0)
    assert comm.back.messages == messages + 1  # nothing is sent for what has no shadow
    np.testing.assert_array_equal(x.shadow, np.arange(3.0) + left)
    loose = wrap(comm.mpi, limit=10, check=False)
    with tape:
        loose.Allreduce(IN_PLACE, x)
        if comm.rank == 0:
            loose.Send(x, 1)
        if comm.rank == 1:
            loose.Recv(came, 0)
    with pytest.raises(DistributedError, match="rank 0 sent is not what rank 1 received"):
        tape.reverse({x: 1.0}, seed_rank=0)


def seeds(comm: Any) -> None:
    x, loss, tape = pair(), Duplicated(np.zeros(1)), Tape()

    def record() -> None:
        x.shadow.fill(0)
        with tape:
            loss[...] = (x * x).sum()
            comm.Allreduce(IN_PLACE, loss)

    record()
    with pytest.raises(TapeError, match=f"{comm.size} times"):
        tape.reverse({loss: 1.0})
    tape.reverse({loss: 1.0}, seed_rank=0)  # it may be tried again
    np.testing.assert_array_equal(x.shadow, 2 * x.primal)
    record()
    tape.reverse({loss: 1.0}, seed_rank=comm.size - 1)
    np.testing.assert_array_equal(x.shadow, 2 * x.primal)
    record()
    tape.reverse({loss: 1.0}, seed_rank="every")
    np.testing.assert_array_equal(x.shadow, comm.size * 2 * x.primal)
    record()
    tape.reverse({loss: float(comm.rank == 0)})  # by hand
    np.testing.assert_array_equal(x.shadow, 2 * x.primal)
    record()
    with pytest.raises(DistributedError, match="do not reverse the same program"):
        tape.reverse({loss: 1.0}, seed_rank=comm.rank)
    with pytest.raises(TapeError, match="a rank from 0"):
        tape.reverse({loss: 1.0}, seed_rank=99)
    comm.mpi.Barrier()
    with pytest.raises(TapeError, match="several processes"):
        alone = Tape()
        with alone:
            x *= x
        alone.reverse({x: 1.0}, seed_rank=0)


def not_known(comm: Any) -> None:
    mpi = comm.forward.mpi
    with Tape():
        for call, kind, text in (
            (lambda: comm.Allreduce(IN_PLACE, pair(), op=mpi.PROD), UnsupportedError, "product"),
            (lambda: comm.Allreduce(IN_PLACE, pair(), op=mpi.LAND), UnsupportedError, "SUM, MAX and MIN"),
            (lambda: comm.Allreduce(IN_PLACE, Duplicated(np.ones(2, complex)), op=mpi.MAX), UnsupportedError, "no order"),
            (lambda: comm.Recv(pair(), mpi.ANY_SOURCE), LaunchError, "names its other side"),
            (lambda: comm.Recv(pair(), 0, mpi.ANY_TAG), LaunchError, "tags go"),
            (lambda: comm.Bcast([pair(), mpi.FLOAT]), LaunchError, "4 bytes for an array of float64"),
            (lambda: comm.Bcast(pair(), root=comm.size), LaunchError, "root"),
            (lambda: comm.Allreduce(pair(2), pair(3)), LaunchError, "alike"),
            (lambda: comm.Allgather(pair(2), pair(3)), LaunchError, "does not have"),
            (lambda: comm.Allreduce(pair(), gpuad.BatchDuplicated(np.ones(3), (np.ones(3), np.ones(3)))), gpuad.GpuadError, "one shadow"),
            (lambda: comm.Allgatherv(pair(1), [pair(4), [1] * comm.size, [0] * comm.size]), LaunchError, "overlap"),
        ):
            with pytest.raises(kind, match=text):
                call()


def too_many_messages(comm: Any) -> None:
    """More of one tag at once than the reverse can tell apart."""
    with pytest.raises((LaunchError, DistributedError), match="64 messages with one tag"), Tape():
        for _ in range(65):
            comm.Irecv(pair(), 0)


def other_order(comm: Any) -> None:
    """Sums in the order of the ranks on one of them only."""

    def program(c: Any) -> None:
        with gpuad.deterministic() if c.rank else nullcontext():
            c.Allreduce(IN_PLACE, np.ones(2))

    refused(comm, program, "in order")


def replicated(comm: Any) -> None:
    """What is not the same on all ranks, or written, is no replicated array; shadows go on accumulating; one all-reduce for all."""
    with pytest.raises(DistributedError, match="not the same on all ranks"), Tape():
        comm.replicated(Duplicated(np.full(2, float(comm.rank))))
    with pytest.raises(TapeError, match="overlaps another"), Tape():
        twice, other = pair(4), wrap(comm.mpi, limit=5)
        other.replicated(twice, twice)
        other.replicated(twice[1:])
    a, b, y, tape = pair(2), Duplicated(np.full(4, 2.0)), pair(2), Tape()
    a.shadow.fill(100.0)
    for turn in (1, 2):
        with tape:
            comm.replicated(a, b, a)
            y[...] = a * (b[:2] * (comm.rank + 1.0))
            comm.Barrier()
        messages = comm.back.messages
        tape.reverse({y: 1.0})
        assert comm.back.messages == messages + 1
        total = sum(range(1, comm.size + 1))
        np.testing.assert_array_equal(a.shadow, 100 + turn * 2 * total)
        np.testing.assert_array_equal(b.shadow[:2], turn * a.primal * total)
    x = pair()
    bad = Tape()
    with bad:
        comm.replicated(x)
        comm.Allreduce(IN_PLACE, x)
    with pytest.raises(TapeError, match="written by the program"):
        bad.reverse({x: 1.0}, seed_rank=0)


def budgets(comm: Any) -> None:
    """The same bits within a budget in which launches run again: no message is sent once more. All ranks have one budget."""
    free = Heat(comm, rows=16, n=24, steps=24)
    _, wanted = free.gradient()
    points = [p for p in free.tape.tradeoff().points if p.reruns > 20]
    for point in (points[0], points[len(points) // 2]) if NIGHTLY else points[:1]:
        budget = max(comm.mpi.allgather(point.budget))
        kept = Heat(comm, rows=16, n=24, steps=24, budget=budget)
        for _ in range(2):
            sent, back = comm.forward.nbytes, comm.back.nbytes
            _, found = kept.gradient()
            assert comm.forward.nbytes - sent == _sent_by(free)
            assert sum(comm.mpi.allgather(comm.back.nbytes - back)) == sum(comm.mpi.allgather(_sent_by(free) + 16))
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
        assert max(comm.mpi.allgather(kept.tape.plan().reruns)) > 20
        assert recording_of(kept.tape).most <= budget
    other = Heat(comm, rows=16, n=24, steps=4, budget=(64 << 20) * (1 + comm.rank))
    other.record()
    with pytest.raises(DistributedError, match="budget"):
        other.tape.reverse({other.loss: 1.0}, seed_rank=0)
    least = comm.mpi.allgather(free.tape.tradeoff().points[0].budget)[-1]
    begin, small = time.monotonic(), Heat(comm, rows=16, n=24, steps=24, budget=least // 2 if comm.rank == comm.size - 1 else least * 100)
    with pytest.raises(gpuad.BudgetError if comm.rank == comm.size - 1 else DistributedError, match="smallest budget that would do"):
        small.gradient()  # the rank that finds out tells the others
    assert time.monotonic() - begin < SOON


def _sent_by(program: Heat) -> int:
    """Bytes that a rank sends."""
    comm, plate = program.comm, program.plate
    neighbours = (comm.rank > 0) + (comm.rank < comm.size - 1)
    return int(program.steps * neighbours * plate.n * 8 + 8)


def graphs(comm: Any) -> None:
    """On a CPU a graph is the same calls, on all ranks."""
    program = Heat(comm)
    loss, wanted = program.gradient()
    program.record()
    with pytest.raises(TapeError, match="replicated"):
        program.tape.graph({program.loss: 1.0}, seed_rank=0)
    program = Heat(comm)
    program.shares = False
    program.gradient()
    program.record()
    with pytest.raises(TapeError, match=f"{comm.size} times"):
        program.tape.graph({program.loss: 1.0})
    graph = program.tape.graph({program.loss: 1.0}, seed_rank=0)
    for _ in range(2):
        program.u.primal[...] = program.v.primal[...] = program.start
        program.loss.primal.fill(0)
        program.k.shadow.fill(0)
        graph.launch()
        assert abs(program.loss.primal[0] - loss) < 1e-12 * loss
        np.testing.assert_allclose(program.k.shadow[1:-1], wanted[0], rtol=1e-12, atol=1e-15)


def graphs_of_requests(comm: Any) -> None:
    """A graph begins to receive where it waits."""
    x, y, tape = pair(), pair(), Tape()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def record() -> None:
        with tape:
            comm.Waitall([comm.Irecv(y, left, 1), comm.Isend(x, right, 1)])
            y[...] = y * 2.0

    record()
    tape.reverse({y: 1.0})
    record()
    graph = tape.graph({y: 1.0})
    for turn in (1, 2):
        x.primal[...], x.shadow[...] = turn * 10.0 + comm.rank, 0
        graph.launch()
        np.testing.assert_array_equal(y.primal, 2 * (turn * 10.0 + left))
        np.testing.assert_array_equal(x.shadow, 2.0)


def saving(comm: Any) -> None:
    program = Heat(comm)
    program.record()
    with pytest.raises(TapeError, match=r"Allreduce .* cannot be stored: it communicates"):
        program.tape.save("/nonexistent/folder")


# --- what can be done after it -----------------------------------------------------------------------------------------------------------


def not_further(comm: Any, text: str) -> None:
    """No call does anything on a communicator that is broken."""
    x = np.ones(1)
    with pytest.raises(DistributedError, match=text + r"(.|\n)*recover\(\) of the communicator that was wrapped"):
        comm.Allreduce(IN_PLACE, x)
    assert x[0] == 1


def again(comm: Any) -> None:
    """The gradient of a program with messages and a collective, as if nothing had been."""
    x, y, tape = pair(), pair(), Tape()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with tape:
        x *= float(comm.rank + 1)
        comm.Sendrecv(x, right, 7, y, left)
        requests = [comm.Irecv(x, left, 8), comm.Isend(y, right, 8)]
        comm.Waitall(requests)
        comm.Allreduce(IN_PLACE, x)
    total = sum(range(1, comm.size + 1))
    np.testing.assert_array_equal(x.primal, total * pair().primal)
    tape.reverse({x: 1.0}, seed_rank=0)
    np.testing.assert_array_equal(x.shadow, np.full(3, comm.rank + 1.0))


def recovery(comm: Any) -> None:
    """After each of these the communicator refuses, and begins anew when all ranks say so. Messages that were on their way, sent or asked
    for, match nothing that comes later."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    half = comm.Split(comm.rank % 2)

    def mismatch(big: Any) -> None:
        comm.Send(big, right, 7)  # nobody receives it
        requests.append(comm.Irecv(pair(), left, 8))  # nobody sends it
        half.Irecv(pair(), 0, 3)
        comm.Allreduce(IN_PLACE, pair(2 + comm.rank))

    def raises(big: Any) -> None:
        comm.Sendrecv(big, right, 7, pair(), left)
        if comm.rank == 0:
            raise ZeroDivisionError
        comm.Allreduce(IN_PLACE, pair())

    def unlike(big: Any) -> None:
        comm.Send(pair(2 + comm.rank % 2), right, 7)
        comm.Recv(pair(2), left, 7)
        comm.Allreduce(IN_PLACE, pair())

    def elsewhere(big: Any) -> None:
        half.Irecv(pair(), 0, 3)  # nobody sends it
        comm.Allreduce(IN_PLACE, pair(2 + comm.rank))

    requests: list[Any] = []
    kept, z = Tape(), pair()
    with kept:
        comm.Allreduce(IN_PLACE, z)
    for program in (mismatch, raises, unlike, elsewhere):
        with pytest.raises((DistributedError, ZeroDivisionError)), Tape():
            program(Duplicated(np.full(3, 100.0)))
        not_further(comm, "stopped")
        comm.recover()
        again(comm)
        again(half)
    comm.Send(np.ones(1), right, 7)  # and outside of a tape
    with pytest.raises(DistributedError, match="do not make the same call"):
        comm.Allreduce(IN_PLACE, np.ones(2 + comm.rank))
    not_further(comm, "stopped")
    comm.recover()
    again(comm)
    with pytest.raises(DistributedError, match="in which it was begun"):
        requests[0].Wait()
    void = comm.Irecv(np.ones(1), left, 9)
    comm.recover()
    with pytest.raises(DistributedError, match="before recover"):
        void.Wait()
    kept.reverse({z: 1.0}, seed_rank=0)  # what was complete can be reversed
    np.testing.assert_array_equal(z.shadow, np.ones(3))


def recovery_of_a_budget(comm: Any) -> None:
    """A budget that is too small on one rank."""
    own = Heat(comm, rows=16, n=24, steps=24, budget=2000 if comm.rank == 0 else 64 << 20)
    other = Heat(comm, rows=16, n=24, steps=4, budget=(64 << 20) * (1 + comm.rank))
    with pytest.raises((gpuad.BudgetError, DistributedError)):
        own.gradient()
    not_further(comm, "stopped")
    comm.recover()
    with pytest.raises(DistributedError, match="budget"):
        other.gradient()
    comm.recover()
    again(comm)
    found, mine = Heat(comm).gradient()
    assert found == on_one(comm, lambda: found)
    assert np.abs(mine[0]).max() > 0


def recovery_is_for_all(comm: Any) -> None:
    """Where it is not one, it is refused, and where a rank does not come, an error on the others, for good."""
    half, short = comm.Split(0), wrap(comm.mpi, limit=0.5)
    with pytest.raises(LaunchError, match="that was wrapped"):
        half.recover()
    with pytest.raises(LaunchError, match="inside of a tape"), Tape():
        short.recover()
    if comm.rank:
        begin = time.monotonic()
        for _ in range(2):
            with pytest.raises(DistributedError, match=r"recover\(\)(.|\n)*nothing came from the other ranks for 0.5 s"):
                short.recover()
        assert time.monotonic() - begin < SOON
    quietly(comm.mpi, None)
    short.watch.lost = False  # or MPI would end the job
    comm.recover()
    again(comm)


CHECKS = [
    counts, other_calls, messages, shadows, shadows_of_one_rank, shadow_of_a_message, a_rank_that_raises, a_reverse_that_raises,
    another_program, without_shadows, seeds, not_known, too_many_messages, other_order, graphs_of_requests, replicated, budgets, graphs,
    saving, recovery, recovery_of_a_budget, recovery_is_for_all,
]  # fmt: skip
