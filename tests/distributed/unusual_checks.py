"""Messages and collectives as they are seldom written, each against differences over the inputs of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from collective_checks import numbers
from ranks import agree

from gpuad import Duplicated, LaunchError, Tape
from gpuad.distributed import IN_PLACE, DistributedError

Program = Callable[[Any, list[Any]], None]
PROGRAMS: list[tuple[Program, tuple[tuple[int, ...], ...]]] = []


def unusual(*shapes: tuple[int, ...]) -> Callable[[Program], Program]:
    def note(program: Program) -> Program:
        PROGRAMS.append((program, shapes))
        return program

    return note


def around(c: Any) -> tuple[int, int]:
    return (c.rank + 1) % c.size, (c.rank - 1) % c.size


def scaled(x: Any, factor: float) -> Any:
    """The same statement for a pair and for an array."""
    return x * factor


@unusual((3,), (3,))
def one_array_in_two_messages(c: Any, z: Any) -> None:
    right, left = around(c)
    sent = [c.Isend(z[0], right, 1), c.Isend(z[0], left, 2)]
    c.Irecv(z[1], left, 1).Wait()
    z[0][...] = scaled(z[1], 2.0)
    c.Irecv(z[1], right, 2).Wait()
    c.Waitall(sent)


@unusual((4,), (2,))
def overlapping_views_in_flight(c: Any, z: Any) -> None:
    right, left = around(c)
    sent = [c.Isend(z[0][:3], right, 1), c.Isend(z[0][1:], right, 2)]
    z[0][1:3] = scaled(z[0][1:3], 3.0)
    coming = [c.Irecv(z[0][:3], left, 1), c.Irecv(z[0][1:], left, 2)]
    c.Waitall([coming[1], sent[1], coming[0], sent[0]])
    c.Allreduce(z[0][:2], z[1])


@unusual((2,), (2,))
def requests_of_one_tag_waited_backwards(c: Any, z: Any) -> None:
    right, left = around(c)
    sent = [c.Isend(z[k], right, 5) for k in (0, 1)]
    coming = [c.Irecv(z[k], left, 5) for k in (1, 0)]
    c.Waitall([*reversed(coming), *reversed(sent)])


@unusual((3,), (3,))
def messages_to_itself(c: Any, z: Any) -> None:
    c.Sendrecv(z[0], c.rank, 1, z[1], c.rank)
    z[0][...] = scaled(z[1], 0.5)
    request = c.Irecv(z[0][:2], c.rank, 2)
    c.Isend(z[1][1:], c.rank, 2).Wait()
    request.Wait()


@unusual((3,))
def replaced_by_itself(c: Any, z: Any) -> None:
    c.Sendrecv_replace(z[0], c.rank, 0, c.rank)
    z[0][...] = scaled(z[0], 2.0)


@unusual((4,))
def sent_and_received_where_it_overlaps_elsewhere(c: Any, z: Any) -> None:
    right, left = around(c)
    c.Sendrecv(z[0][::2], right, 1, z[0][1::2], left)
    c.Sendrecv(z[0][1::2], left, 1, z[0][::2], right)


@unusual((3,), (0,))
def nothing_is_sent(c: Any, z: Any) -> None:
    right, left = around(c)
    c.Sendrecv(z[0][:0], right, 1, z[1], left)
    c.Allreduce(z[1], z[0][3:])
    c.Bcast(z[1])
    c.Allgather(z[1], z[0][:0])
    c.Isend(z[1], right, 2).Wait()
    c.Recv(z[1], left, 2)
    z[0][...] = scaled(z[0], 2.0)


@unusual((4,), (4,))
def one_rank_gives_all(c: Any, z: Any) -> None:
    counts = [4 if r == 1 else 0 for r in range(c.size)]
    c.Allgatherv(z[0][: counts[c.rank]], [z[1], counts])
    c.Gatherv(z[1][: counts[c.rank]], [z[0], counts] if c.rank == 0 else None, 0)


@unusual((3,), (3,))
def collectives_in_a_loop_with_swaps(c: Any, z: Any) -> None:
    a, b = z
    for k in range(5):
        c.Allreduce(a, b) if k % 2 else c.Sendrecv(a, around(c)[0], k, b, around(c)[1])
        b[...] = scaled(b, 0.25)
        a, b = b, a
        c.Bcast(a[k % 3 :], root=k % c.size)


@unusual((2,), (2,), (2,))
def three_arrays_in_turn(c: Any, z: Any) -> None:
    old, now, new = z
    for _ in range(4):
        c.Allreduce(now, new)
        new[...] = scaled(new, 0.5)
        old[...] = scaled(now, 1.0)
        old, now, new = now, new, old


@unusual((4, 3), (3, 4))
def transposed_views(c: Any, z: Any) -> None:
    right, left = around(c)
    c.Sendrecv(z[0].T, right, 1, z[1], left)
    c.Allreduce(IN_PLACE, z[1].T)
    c.Bcast(z[0].T[1], root=1)


@unusual((6,))
def backwards(c: Any, z: Any) -> None:
    right, left = around(c)
    c.Sendrecv(z[0][::-2], right, 1, z[0][::2], left)
    c.Allreduce(IN_PLACE, z[0][::-1][:4])


@unusual((2, 2, 2))
def middle_axis(c: Any, z: Any) -> None:
    c.Allreduce(z[0][:, 0], z[0][:, 1])
    c.Reduce(IN_PLACE if c.rank == 1 else z[0][..., 0], z[0][..., 0], root=1)


@unusual((3,))
def all_reduced_thrice(c: Any, z: Any) -> None:
    for _ in range(3):
        c.Allreduce(IN_PLACE, z[0])


@unusual((2,))
def broadcast_from_all_in_turn(c: Any, z: Any) -> None:
    for root in range(c.size):
        z[0][...] = scaled(z[0], 2.0)
        c.Bcast(z[0][root % 2 :], root=root)


@unusual((2,), (2,))
def reduced_to_changing_roots(c: Any, z: Any) -> None:
    for root in range(c.size):
        c.Reduce(z[0], z[1] if c.rank == root else None, root=root)
        z[0][...] = scaled(z[1], 0.5)


@unusual((3,), (3,))
def scattered_from_one_element(c: Any, z: Any) -> None:
    c.Scatterv([z[0], ([1] * c.size, [2] * c.size)] if c.rank == 0 else None, z[1][:1], 0)


@unusual((2,))
def a_maximum_of_a_maximum(c: Any, z: Any) -> None:
    c.Allreduce(IN_PLACE, z[0], op="MAX")
    c.Allreduce(IN_PLACE, z[0], op="MIN")
    z[0][...] = scaled(z[0], 3.0)


@unusual((3,), (3,))
def split_of_a_split(c: Any, z: Any) -> None:
    part = c.Split(c.rank % 2, -c.rank)
    single = part.Split(part.rank)
    twin = c.Dup()
    part.Allreduce(z[0], z[1])
    single.Allreduce(IN_PLACE, z[1])
    twin.Allreduce(IN_PLACE, z[1])
    part.Bcast(z[0], root=part.size - 1)


@unusual((2,))
def undefined_colour(c: Any, z: Any) -> None:
    some = c.Split(c.MPI.UNDEFINED if c.rank == 1 else 3)
    if some is not None:
        some.Allreduce(IN_PLACE, z[0])
    c.Bcast(z[0][:1], root=1)


@unusual((2,), (2,))
def two_communicators_with_one_tag(c: Any, z: Any) -> None:
    twin, (right, left) = c.Dup(), around(c)
    sent = [twin.Isend(z[0], right, 1), c.Isend(z[1], right, 1)]
    coming = [c.Irecv(z[0], left, 1), twin.Irecv(z[1], left, 1)]
    c.Waitall(coming + sent)


@unusual((2,), (2,))
def in_another_order_on_each_rank(c: Any, z: Any) -> None:
    right, left = around(c)
    coming = [c.Irecv(z[0], left, 1), c.Irecv(z[1], right, 2)]
    sent = [c.Isend(z[0], right, 1), c.Isend(z[1], left, 2)]
    every = coming + sent
    c.Waitall(every[c.rank % 4 :] + every[: c.rank % 4])


@unusual((2,), (2,))
def begun_long_before(c: Any, z: Any) -> None:
    right, left = around(c)
    request = c.Irecv(z[1], left, 1)
    c.Allreduce(IN_PLACE, z[0])
    sent = c.Isend(z[0], right, 1)
    c.Bcast(z[0])
    request.Wait()
    c.Allreduce(IN_PLACE, z[1])
    sent.Wait()


@unusual((2,), (2,))
def received_over_what_was_sent(c: Any, z: Any) -> None:
    right, left = around(c)
    sent = c.Isend(z[0], right, 1)
    c.Recv(z[0], left, 1)
    sent.Wait()
    c.Sendrecv(z[0], left, 2, z[1], right)


@unusual((3,))
def a_line_with_ends(c: Any, z: Any) -> None:
    nobody = c.MPI.PROC_NULL
    up, down = c.rank - 1 if c.rank else nobody, c.rank + 1 if c.rank < c.size - 1 else nobody
    for _ in range(2):
        coming = [c.Irecv(z[0][:1], up, 1), c.Irecv(z[0][2:], down, 2)]
        sent = [c.Isend(z[0][1:2], down, 1), c.Isend(z[0][1:2], up, 2)]
        c.Waitall(coming + sent)
        z[0][1:2] = scaled(z[0][:1], 0.5)


@unusual((5,), (5,))
def counts_of_a_longer_array(c: Any, z: Any) -> None:
    c.Allreduce([z[0], 3], [z[1], 3])
    c.Bcast([z[1], 2, c.MPI.DOUBLE], root=1)


@unusual((4, 2))
def rows_to_all_in_turn(c: Any, z: Any) -> None:
    for k in range(c.size):
        c.Bcast(z[0][k], root=k)
    c.Alltoall(IN_PLACE, z[0].reshape(-1)[: 2 * c.size])


@unusual((6,), (6,))
def exchanged_in_blocks_of_zero(c: Any, z: Any) -> None:
    gives = [1 if (c.rank + s) % 2 else 0 for s in range(c.size)]
    takes = [1 if (s + c.rank) % 2 else 0 for s in range(c.size)]
    c.Alltoallv([z[0][: sum(gives)], gives], [z[1][: sum(takes)], takes])


@unusual((4,), (1,))
def summed_block_by_block(c: Any, z: Any) -> None:
    counts = [c.size - 1 if r == 0 else (1 if r == 1 else 0) for r in range(c.size)]
    x = z[0][: sum(counts)]
    c.Reduce_scatter(IN_PLACE, x, counts)
    c.Allreduce(x[:1], z[1])


def unusual_programs(comm: Any) -> None:
    """All of them."""
    for program, shapes in PROGRAMS:
        step, tolerance = (1e-3, 1e-9) if "maximum" in program.__name__ else (1.0, 1e-12)
        try:
            agree(comm, program, [numbers(comm, *shape) for shape in shapes], h=step, tolerance=tolerance, seeds=4)
        except Exception as error:
            error.add_note(program.__name__)
            raise


def two_tapes(comm: Any) -> None:
    """One after the other on the same arrays, reversed the other way round."""
    x, y, first, second = Duplicated(np.arange(3.0)), Duplicated(np.zeros(3)), Tape(), Tape()
    with first:
        comm.Allreduce(x, y)
    with second:
        comm.Bcast(y, root=1)
        y *= 2.0
    second.reverse({y: np.full(3, comm.rank + 1.0)}, seed_rank="every")
    first.reverse()
    np.testing.assert_array_equal(x.shadow, np.full(3, 2.0 * sum(range(1, comm.size + 1))))


def after_an_exception(comm: Any) -> None:
    """An error that one rank makes at its first call, before anything is sent, and all go on after it."""
    x = Duplicated(np.arange(3.0))
    with pytest.raises(LaunchError if comm.rank == 1 else DistributedError, match="they have to be alike"), Tape():
        comm.Allreduce(x, Duplicated(np.zeros(2 if comm.rank == 1 else 3)))
    with pytest.raises(DistributedError, match="recover"):
        comm.Barrier()
    comm.recover()
    for program, shapes in PROGRAMS[:3]:
        agree(comm, program, [numbers(comm, *shape) for shape in shapes])


CHECKS = [unusual_programs, two_tapes, after_an_exception]
