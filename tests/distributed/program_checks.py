"""Programs with kernels and halos on several ranks against the same program in one process."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from nightly import NIGHTLY
from ranks import on_one

import gpuad
from gpuad import Duplicated, Tape
from gpuad.distributed import IN_PLACE
from gpuad.tools.demo import strips
from gpuad.tools.demo import wave as wave_demo

SOURCE = r"""
// One step of heat conduction in rows 1 to rows - 2, with a conductivity that depends on the material and the temperature.
extern "C" __global__ void heat(double* v, const double* u, const double* k, const double* p, int rows, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= rows - 1) return;
    int i = y * n + x;
    double flow = u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4.0 * u[i];
    v[i] = u[i] + 0.1 * (k[i] + p[0] + p[1] * u[i] * u[i]) * flow;
}

// One step of the wave equation: the older field becomes the newer one.
extern "C" __global__ void wave(double* older, const double* now, const double* speed, int rows, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= rows - 1) return;
    int i = y * n + x;
    older[i] = 2.0 * now[i] - older[i] + speed[i] * (now[i - 1] + now[i + 1] + now[i - n] + now[i + n] - 4.0 * now[i]);
}

extern "C" __global__ void misfit(double* loss, const double* u, const double* wanted, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&loss[0], 0.5 * (u[i] - wanted[i]) * (u[i] - wanted[i]));
}
"""
heat, wave, misfit = (gpuad.kernel(SOURCE, name) for name in ("heat", "wave", "misfit"))


@dataclass
class Plate:
    """Rows of a plate, and a row of each neighbour's above and below. `first`: the number of its first row of its own."""

    first: int
    rows: int
    n: int

    def part(self, whole: Any) -> Any:
        """These rows of an array of the whole plate, with the neighbours'."""
        return whole[self.first - 1 : self.first + self.rows + 1].copy()

    @property
    def geometry(self) -> Any:
        return (-(-self.n // 8), -(-(self.rows + 2) // 8)), (8, 8)


def strip(comm: Any, rows: int, n: int) -> Plate:
    """A rank's strip of a plate with so many rows, besides the rim."""
    bounds = [1 + rows * r // comm.size for r in range(comm.size + 1)]
    return Plate(bounds[comm.rank], bounds[comm.rank + 1] - bounds[comm.rank], n)


def swap(comm: Any, u: Any) -> None:
    nobody = comm.forward.mpi.PROC_NULL
    up, down = (comm.rank - 1 if comm.rank else nobody), (comm.rank + 1 if comm.rank < comm.size - 1 else nobody)
    comm.Sendrecv(u[1], up, 1, u[-1], down)
    comm.Sendrecv(u[-2], down, 2, u[0], up)


class Heat:
    """The program: `steps` steps, the misfit to a wanted state over all ranks. `comm`: None for one process."""

    def __init__(self, comm: Any, rows: int = 18, n: int = 7, steps: int = 5, **tape: Any) -> None:
        self.shares = True  # whether all ranks' gradients of `p` are summed
        self.comm, self.steps, self.tape = comm, steps, Tape(**tape)
        self.plate = strip(comm, rows, n) if comm is not None else Plate(1, rows, n)
        drawn = np.random.default_rng(5)
        whole = [drawn.uniform(size=(rows + 2, n)) for _ in range(3)]
        start, material, wanted = map(self.plate.part, whole)
        self.start = start
        self.u, self.v, self.k = Duplicated(start.copy()), Duplicated(start.copy()), Duplicated(material)
        self.p, self.wanted = Duplicated(np.array([0.2, 0.3])), np.ascontiguousarray(wanted[1:-1])
        self.loss = Duplicated(np.zeros(1))

    def record(self) -> None:
        self.u.primal[...] = self.v.primal[...] = self.start
        self.loss.primal.fill(0)
        n, rows = self.plate.n, self.plate.rows
        with self.tape:
            if self.comm is not None and self.shares:
                self.comm.replicated(self.p)
            u, v = self.u, self.v
            for _ in range(self.steps):
                if self.comm is not None:
                    swap(self.comm, u)
                heat[self.plate.geometry](v, u, self.k, self.p, rows + 2, n)
                u, v = v, u
            count = rows * n
            misfit[(-(-count // 64),), (64,)](self.loss, u[1:-1], self.wanted, count)
            if self.comm is not None:
                self.comm.Allreduce(IN_PLACE, self.loss)

    def gradient(self) -> tuple[float, list[Any]]:
        """The loss; the gradients with respect to the conductivity of this plate's own rows, and to the two numbers."""
        for pair in (self.k, self.p):
            pair.shadow.fill(0)
        self.record()
        self.tape.reverse({self.loss: 1.0}, **({} if self.comm is None else {"seed_rank": 0}))
        return float(self.loss.primal[0]), [self.k.shadow[1:-1].copy(), self.p.shadow.copy()]


def compare(comm: Any, ours: list[Any], whole: list[Any], plate: Plate, tolerance: float = 1e-12) -> None:
    """The gradients of this rank's part against those of the whole plate."""
    mine = whole[0][plate.first - 1 : plate.first - 1 + plate.rows]
    np.testing.assert_allclose(ours[0], mine, rtol=tolerance, atol=tolerance * np.abs(whole[0]).max())
    for a, b in zip(ours[1:], whole[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def heat_on_strips(comm: Any) -> None:
    ours = Heat(comm)
    loss, whole = on_one(comm, lambda: Heat(None).gradient())
    for _ in range(3):  # the program is known from the second time on
        found, mine = ours.gradient()
        assert abs(found - loss) <= 1e-12 * loss
        compare(comm, mine, whole, ours.plate)


def saved_and_sent(comm: Any) -> None:
    """What is saved and what is sent, as predicted. A field that the kernel has read is overwritten two steps later, by the kernel in this
    rank's own rows one step later, by the messages in the neighbours', of which it reads all but the rim's two columns. The reverse sends
    what the forward sent, and one all-reduce more, of the two numbers that all ranks share."""
    ours = Heat(comm)
    forward, back = comm.forward.nbytes, comm.back.nbytes
    ours.record()
    plate, steps, own = ours.plate, ours.steps, comm.rank
    neighbours = (own > 0) + (own < comm.size - 1)
    inside, rows = plate.n - 2, neighbours * plate.n * 8
    predicted = (steps - 1) * plate.rows * inside * 8 + (steps - 2) * neighbours * inside * 8
    saved = ours.tape.stats.saved_bytes
    sent = comm.forward.nbytes - forward
    assert sent == steps * rows + 8  # and the loss
    ours.tape.reverse({ours.loss: 1.0}, seed_rank=0)
    returned = comm.back.nbytes - back
    whole = comm.mpi.allgather((sent, returned))
    assert sum(b for _, b in whole) == sum(a for a, _ in whole) + comm.size * 16, whole  # the gradient of p: two numbers
    assert saved == predicted


def wave_on_strips(comm: Any) -> None:
    """The demonstration in small, point by point of its descent, as in one process. The traces at a map are the same bits. Its gradient is
    rounded in another order in cells at which two strips meet, in float32, and the descent magnifies that from point to point."""
    iterations = 5 if comm.size == 2 or NIGHTLY else 1
    setting = wave_demo.Setting(n=40, steps=70, shots=3, receivers=9, sponge=4, period=12.0)

    def points(simulation: wave_demo.Simulation) -> list[tuple[Any, float]]:
        return list(islice(wave_demo.points(simulation), iterations + 1))

    alone = on_one(comm, lambda: points(wave_demo.Simulation(setting, np)))
    ours = points(strips.Strips(setting, np, comm))
    assert ours[0][1] == alone[0][1]
    for iteration, within in ((1, 2e-6), (2, 1e-5), (5, 1e-4)):
        if iteration <= iterations:
            (found, loss), (expected, wanted) = ours[iteration], alone[iteration]
            change = np.abs(expected - alone[0][0]).max()
            np.testing.assert_allclose(found, expected, rtol=0, atol=within * change)
            np.testing.assert_allclose(loss, wanted, rtol=within)
    assert ours[-1][1] < 0.99 * ours[0][1]
    assert len(set(comm.mpi.allgather(ours[-1][0].tobytes()))) == 1


def wave_in_double(comm: Any) -> None:
    """A wave that runs through all strips: the gradient with respect to the speed of each cell."""
    n, rows, steps = 9, 12, 14
    drawn = np.random.default_rng(3)
    whole = [drawn.uniform(0.1, 0.3, size=(rows + 2, n)), drawn.uniform(size=(rows + 2, n)), drawn.uniform(size=(rows + 2, n))]

    def gradient(comm: Any, plate: Plate) -> tuple[Any, Any, Tape]:
        speed, older, now = (Duplicated(plate.part(a)) for a in whole)
        tape = Tape()
        with tape:
            for _ in range(steps):
                if comm is not None:
                    swap(comm, now)
                wave[plate.geometry](older, now, speed, plate.rows + 2, n)
                older, now = now, older
        seed = np.zeros((plate.rows + 2, n))
        seed[1:-1] = np.cos(np.arange((rows + 2) * n)).reshape(rows + 2, n)[plate.first : plate.first + plate.rows]
        tape.reverse({now: seed})
        return speed.shadow[1:-1], now.primal[1:-1], tape

    alone, state = on_one(comm, lambda: gradient(None, Plate(1, rows, n))[:2])
    plate = strip(comm, rows, n)
    forward, back = comm.forward.nbytes, comm.back.nbytes
    ours, mine, tape = gradient(comm, plate)
    sent, returned = (sum(comm.mpi.allgather(n)) for n in (comm.forward.nbytes - forward, comm.back.nbytes - back))
    assert sent == returned == steps * 2 * (comm.size - 1) * n * 8  # nothing is shared: no all-reduce
    own = slice(plate.first - 1, plate.first - 1 + plate.rows)
    np.testing.assert_array_equal(mine, state[own])
    np.testing.assert_allclose(ours, alone[own], rtol=1e-12, atol=1e-12 * np.abs(alone).max())
    neighbours = (comm.rank > 0) + (comm.rank < comm.size - 1)
    predicted = (steps - 1) * plate.rows * (n - 2) * 8 + (steps - 2) * neighbours * (n - 2) * 8  # as of heat: the field that is read
    assert tape.stats.saved_bytes == predicted


def overlap(comm: Any) -> None:
    """Non-blocking halos around the interior: in the reverse, too, the messages are on their way while the interior's adjoint runs."""
    order: list[str] = []
    back = comm.back
    send, receive, finish = back.send, back.receive, back.finish
    back.send = lambda *a: (order.append("begin"), send(*a))[1]
    back.receive = lambda *a: (order.append("begin"), receive(*a))[1]
    back.finish = lambda p: (order.append("end"), finish(p))[1]
    u, v = Duplicated(np.ones((4, 6))), Duplicated(np.zeros((4, 6)))
    k, p, tape = Duplicated(np.ones((4, 6))), Duplicated(np.array([0.1, 0.2])), Tape()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with tape:
        requests = [comm.Irecv(u[0], left, 1), comm.Irecv(u[3], right, 2), comm.Isend(u[1], left, 2), comm.Isend(u[2], right, 1)]
        interior(v[1:3], u[1:3])
        comm.Waitall(requests)
        heat[(1, 1), (8, 8)](v, u, k, p, 4, 6)
    interior.seen = order
    tape.reverse({v: 1.0})
    assert order[:7] == ["begin"] * 4 + ["interior"] + ["end"] * 2, order


def memory_of_messages(comm: Any) -> None:
    """What messages and collectives take beside what a tape counts: of each that was begun and not waited for as many bytes as it has, of a
    collective what a rank gets; in the reverse the same. Nothing is left of it."""
    n, right, left = 50_000, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    u, v, w = (Duplicated(np.ones(n)) for _ in range(3))

    def halos() -> None:
        comm.Waitall([comm.Irecv(u, left, 1), comm.Irecv(v, right, 2), comm.Isend(w, right, 1), comm.Isend(w, left, 2)])

    def swap_all() -> None:
        comm.Sendrecv(w, right, 3, u, left)

    def total() -> None:
        comm.Allreduce(w, u)

    for program, forward, back in ((halos, 4, 4), (swap_all, 1, 2), (total, 1, 1)):
        tape = Tape()
        _record(tape, program)
        tape.reverse({u: 1.0}, seed_rank="every")
        after, most = _traced(partial(_record, tape, program))  # which is known by now
        left_over, peak = _traced(partial(tape.reverse, {u: 1.0}, seed_rank="every"))
        assert tape.stats.saved_bytes == 0
        assert [round(x / u.nbytes, 1) for x in (after, left_over)] == [0, 0], program.__name__
        assert [round(x / u.nbytes) for x in (most, peak)] == [forward, back], program.__name__


def _record(tape: Tape, program: Callable[[], None]) -> None:
    with tape:
        program()


def _traced(run: Callable[[], None]) -> tuple[int, int]:
    """Bytes that are there after a run and were not before, and the most within it."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def _interior_reverse(dx: Any, dy: Any) -> None:
    interior.seen.append("interior")
    dx += dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_interior_reverse)
def interior(y: Any, x: Any) -> None:
    y[...] = x


interior.seen = []  # type: ignore[attr-defined]
CHECKS = [heat_on_strips, saved_and_sent, wave_on_strips, wave_in_double, overlap, memory_of_messages]
