"""Random programs on several ranks against the same program in one process.

Each rank has K numbers; one process has all of them as an array of a row for each rank. A statement is drawn once and said twice: as what a
rank does, with messages and collectives, and as what happens to the whole array, with slices of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from nightly import cases
from ranks import on_one

from gpuad import Duplicated, Tape, ops
from gpuad.distributed import IN_PLACE

K = 24
Local = Callable[[Any, Any], None]  # the communicator, this rank's numbers
Whole = Callable[[Any], None]  # the array of all ranks'


@dataclass(frozen=True)
class Statement:
    """What each rank does, and what that does to the whole."""

    text: str
    local: Local
    whole: Whole


def spans(drawn: random.Random, count: int, *sizes: int) -> list[slice]:
    """Slices that do not overlap, some of them with a step of 2."""
    order = drawn.sample(range(K // 4), sum(-(-s // 2) for s in sizes))
    found = []
    for size in sizes:
        blocks = -(-size // 2)
        mine, order = sorted(order[:blocks]), order[blocks:]
        at = mine[0] * 4
        step = 2 if size == 2 and drawn.random() < 0.5 else 1
        found.append(slice(at, at + step * (size - 1) + 1, step))
    return found[:count]


def pick(drawn: random.Random, size: int) -> slice:
    """Any slice of a size."""
    step = drawn.choice((1, 1, 2))
    at = drawn.randrange(K - step * (size - 1))
    return slice(at, at + step * (size - 1) + 1, step)


def arithmetic(drawn: random.Random, ranks: int) -> Statement:
    n = drawn.choice((2, 4, 8))
    a, b, c = pick(drawn, n), pick(drawn, n), pick(drawn, n)
    f, w = drawn.choice((ops.sin, ops.cos, ops.tanh)), drawn.uniform(0.5, 1.0)

    def do(z: Any) -> None:
        z[..., a] = f(z[..., b]) * w + z[..., c] * 0.5 if drawn_first else z[..., b] * z[..., c] * w + 0.25

    drawn_first = drawn.random() < 0.6
    return Statement(f"z[{a}] = {f.__name__}(z[{b}]), z[{c}]", lambda comm, z: do(z), do)


def shift(drawn: random.Random, ranks: int) -> Statement:
    """To the rank `by` further on, on a ring or a line."""
    n, by, ring = drawn.choice((1, 2, 2)), drawn.choice((1, -1, 1, 2)), drawn.random() < 0.5
    a, b = spans(drawn, 2, n, n)
    way = drawn.choice(("Sendrecv", "requests", "blocking"))

    def local(comm: Any, z: Any) -> None:
        nobody = comm.forward.mpi.PROC_NULL
        to, source = comm.rank + by, comm.rank - by
        to = to % ranks if ring else to if 0 <= to < ranks else nobody
        source = source % ranks if ring else source if 0 <= source < ranks else nobody
        if way == "Sendrecv":
            comm.Sendrecv(z[a], to, 3, z[b], source)
        elif way == "requests":
            coming, going = comm.Irecv(z[b], source, 4), comm.Isend(z[a], to, 4)
            z[a] = z[a] * 0.5  # it may be written at once
            comm.Waitall([going, coming] if comm.rank % 2 else [coming, going])
        else:
            comm.Send(z[a], to, 5)
            comm.Recv(z[b], source, 5)

    def whole(z: Any) -> None:
        pairs = [(r, (r + by) % ranks) for r in range(ranks) if ring or 0 <= r + by < ranks]
        sent = [(to, z[r, a] * 1.0) for r, to in pairs]
        if way == "requests":
            z[:, a] = z[:, a] * 0.5
        for to, values in sent:
            z[to, b] = values

    return Statement(f"{way} z[{a}] by {by} into z[{b}], ring {ring}", local, whole)


def swap(drawn: random.Random, ranks: int) -> Statement:
    n, tag = drawn.choice((1, 2)), drawn.randrange(9)
    (a,) = spans(drawn, 1, n)
    mirror = [ranks - 1 - r for r in range(ranks)]

    def local(comm: Any, z: Any) -> None:
        if mirror[comm.rank] != comm.rank:
            comm.Sendrecv_replace(z[a], mirror[comm.rank], tag, mirror[comm.rank])

    def whole(z: Any) -> None:
        old = z[:, a] * 1.0
        for r in range(ranks):
            z[r, a] = old[mirror[r]]

    return Statement(f"swap z[{a}]", local, whole)


def summed(drawn: random.Random, ranks: int) -> Statement:
    n, root = drawn.choice((1, 2, 3)), drawn.choice((None, *range(ranks)))
    n = 2 if n == 3 else n
    a, b = spans(drawn, 2, n, n)
    inside, op = drawn.random() < 0.4, drawn.choice(("SUM", "SUM", "MAX", "MIN"))

    def local(comm: Any, z: Any) -> None:
        if root is None:
            comm.Allreduce(IN_PLACE if inside else z[b], z[a], op=op)
        elif inside:
            comm.Reduce(IN_PLACE if comm.rank == root else z[a], z[a], op=op, root=root)
        else:
            comm.Reduce(z[b], z[a] if comm.rank == root else None, op=op, root=root)

    def whole(z: Any) -> None:
        given = z[:, a if inside else b]
        total = {"SUM": given.sum, "MAX": given.max, "MIN": given.min}[op](axis=0)
        for r in range(ranks) if root is None else [root]:
            z[r, a] = total

    return Statement(f"{op} of z[{a if inside else b}] into z[{a}], root {root}", local, whole)


def copied(drawn: random.Random, ranks: int) -> Statement:
    root, n = drawn.randrange(ranks), drawn.choice((2, 4))
    a = pick(drawn, n)

    def whole(z: Any) -> None:
        values = z[root, a] * 1.0
        for r in range(ranks):
            z[r, a] = values

    return Statement(f"z[{a}] of rank {root} to all", lambda comm, z: comm.Bcast(z[a], root=root), whole)


def gathered(drawn: random.Random, ranks: int) -> Statement:
    root = drawn.choice((None, *range(ranks)))
    counts = [drawn.randrange(3) for _ in range(ranks)]
    total = sum(counts)
    to = drawn.randrange(K - total)

    def source(r: int) -> slice:
        at = to + total if to + total + counts[r] <= K else to - counts[r]
        return slice(at, at + counts[r])

    def local(comm: Any, z: Any) -> None:
        into = [z[to : to + total], counts]
        if root is None:
            comm.Allgatherv(z[source(comm.rank)], into)
        else:
            comm.Gatherv(z[source(comm.rank)], into if comm.rank == root else None, root)

    def whole(z: Any) -> None:
        parts = [z[r, source(r)] * 1.0 for r in range(ranks)]
        for r in range(ranks) if root is None else [root]:
            at = to
            for part, count in zip(parts, counts, strict=True):
                if count:
                    z[r, at : at + count] = part
                at += count

    return Statement(f"gather {counts} at {to}, root {root}", local, whole)


def scattered(drawn: random.Random, ranks: int) -> Statement:
    root, n, to = drawn.randrange(ranks), drawn.choice((1, 2)), drawn.randrange(2)
    begin, places = 4, [drawn.randrange(K - 4 - n) for _ in range(ranks)]  # of the array after its begin; they may overlap
    adds = drawn.random() < 0.5

    def local(comm: Any, z: Any) -> None:
        if adds:
            comm.Reduce_scatter_block(z[begin : begin + n * ranks], z[to : to + n])
        else:
            comm.Scatterv([z[begin:], ([n] * ranks, places)] if comm.rank == root else None, z[to : to + n], root)

    def whole(z: Any) -> None:
        if adds:
            parts = [z[:, begin + n * r : begin + n * (r + 1)].sum(axis=0) for r in range(ranks)]
        else:
            parts = [z[root, begin + p : begin + p + n] * 1.0 for p in places]
        for r, part in enumerate(parts):
            z[r, to : to + n] = part

    return Statement(f"{'sum and ' if adds else ''}scatter {n} at {places}, root {root}", local, whole)


def exchanged(drawn: random.Random, ranks: int) -> Statement:
    counts = [[drawn.randrange(3) for _ in range(ranks)] for _ in range(ranks)]  # from, to
    half = K // 2

    def local(comm: Any, z: Any) -> None:
        gives, takes = counts[comm.rank], [row[comm.rank] for row in counts]
        comm.Alltoallv([z[half : half + sum(gives)], gives], [z[: sum(takes)], takes])

    def whole(z: Any) -> None:
        parts = {}
        for r, gives in enumerate(counts):
            at = half
            for s, count in enumerate(gives):
                if count:
                    parts[r, s] = z[r, at : at + count] * 1.0
                at += count
        for s in range(ranks):
            at = 0
            for r in range(ranks):
                if counts[r][s]:
                    z[s, at : at + counts[r][s]] = parts[r, s]
                at += counts[r][s]

    return Statement(f"exchange {counts}", local, whole)


KINDS = (arithmetic, arithmetic, arithmetic, shift, shift, swap, summed, summed, copied, gathered, scattered, exchanged)


def in_one_process(program: list[Statement], states: Any, seed: Any) -> list[tuple[Any, Any]]:
    """After each state the numbers and their shadows."""
    whole, tape, found = Duplicated(states[0].copy()), Tape(), []
    for state in states:
        whole.primal[...] = state
        with tape:
            for statement in program:
                statement.whole(whole)
        values = whole.primal.copy()
        tape.reverse({whole: seed}, allow_unused=True)
        found.append((values, whole.shadow.copy()))
    return found


def run(comm: Any, number: int) -> None:
    """One program, twice recorded: the second time it is known."""
    drawn = random.Random(f"{number} {comm.size}")
    program = [drawn.choice(KINDS)(drawn, comm.size) for _ in range(drawn.randrange(4, 14))]
    *states, seed = np.random.default_rng(number).uniform(-1, 1, (3, comm.size, K))
    ours, tape = Duplicated(states[0][comm.rank].copy()), Tape()
    whole = on_one(comm, lambda: in_one_process(program, states, seed))
    for turn, (state, (values, gradient)) in enumerate(zip(states, whole, strict=True)):
        ours.primal[...] = state[comm.rank]
        with tape:
            for statement in program:
                statement.local(comm, ours)
        text = "\n".join([f"program {number} on {comm.size} ranks, recording {turn}", *(s.text for s in program)])
        np.testing.assert_allclose(ours.primal, values[comm.rank], rtol=1e-13, atol=1e-13, err_msg=text)
        tape.reverse({ours: seed[comm.rank].copy()}, allow_unused=True, seed_rank="every")
        scale = max(1.0, float(np.abs(gradient).max()))
        np.testing.assert_allclose(ours.shadow, gradient[comm.rank], rtol=1e-12, atol=1e-12 * scale, err_msg=text)


def random_programs(comm: Any) -> None:
    """200 in the nightly set, on 2, 3 and 4 ranks together."""
    for number in range(cases(3 if comm.size == 2 else 1, 67)):
        run(comm, number)


CHECKS = [random_programs]
