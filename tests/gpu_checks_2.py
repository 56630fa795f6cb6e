"""More of what has to hold for CuPy arrays, as in `gpu_checks`: arrays left out, arrays of arrays, turns, stores that are checked."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gpu_checks import CUBE, PUT, close, on_host
from launch_tools import compiled

import gpuad
from gpuad import Active, BatchDuplicated, Duplicated
from gpuad.errors import LaunchError, TapeError
from gpuad.program.ir.region import lattice, span
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.change_detection import mark
from gpuad.tape.memory.versions import Allocation
from gpuad.tools.cases import kernel_folder

# --- arrays that a call may leave out ------------------------------------------------------------------------------------------------

BIASED = """
__device__ double at(const double* p, int i) { return p == nullptr ? 0.5 : p[i]; }
extern "C" __global__ void biased(double* y, const double* x, const double* weight, const double* bias, const double* unused, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i] * x[i] * at(weight, i);
    if (bias) v += bias[i] * x[i];
    y[i] += n < 0 ? unused[i] : v;
}
"""


def left_out(cupy: Any) -> None:
    """None for arrays that the kernel compares with null, and for one that it never reads: calls, a tape, a graph, several shadows."""
    n = 300
    x, w, b = (np.random.default_rng(k).uniform(0.5, 1.5, n) for k in range(3))
    k, geometry = compiled(BIASED, "biased"), (-(-n // 128), 128)
    px, pw, pb, py = (Duplicated(cupy.asarray(a), cupy.zeros(n)) for a in (x, w, b, 0 * x))

    def expected(weight: Any, bias: Any) -> tuple[Any, Any]:
        return 2 * x * (0.5 if weight is None else w) + (0 if bias is None else b), None if bias is None else x

    for weight, bias in (pw, pb), (None, pb), (pw, None), (None, None), (pw, pb), (None, pb), (None, None):
        for pair, value in ((px, 0), (pw, 0), (pb, 0), (py, 1)):
            pair.shadow.fill(value)
        gpuad.autodiff(k, *geometry, (py, px, weight, bias, None, n))
        dx, db = expected(weight, bias)
        np.testing.assert_allclose(px.shadow.get(), dx, rtol=1e-12)
        np.testing.assert_allclose(pb.shadow.get(), 0 if db is None else db, rtol=1e-12)
        np.testing.assert_allclose(pw.shadow.get(), 0 if weight is None else x**2, rtol=1e-12)
    tape = gpuad.Tape()
    total = expected(pw, None)[0] + expected(None, pb)[0]
    for _ in range(3):
        px.shadow.fill(0)
        with tape:
            k(*geometry, (py, px, pw, None, None, n))
            k(*geometry, (py, px, None, pb, None, n))
        tape.reverse({py: 1.0})
        np.testing.assert_allclose(px.shadow.get(), total, rtol=1e-12)
    made = tape.graph({py: 1.0})
    px.shadow.fill(0)
    made.launch()
    np.testing.assert_allclose(px.shadow.get(), total, rtol=1e-12)
    several = BatchDuplicated(px.primal, (cupy.zeros(n), cupy.zeros(n)))
    seeds = BatchDuplicated(py.primal, (cupy.ones(n), 2 * cupy.ones(n)))
    gpuad.autodiff(k, *geometry, (seeds, several, None, gpuad.Const(pb), None, n))
    for factor, shadow in zip((1, 2), several.shadows, strict=True):
        np.testing.assert_allclose(shadow.get(), factor * expected(None, pb)[0], rtol=1e-12)


# --- parameters that point to arrays --------------------------------------------------------------------------------------------------

ROTATED = """extern "C" __global__ void rotated(float (*v)[3], const float turn[][3][3], float by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float w[3];
    for (int a = 0; a < 3; ++a) {
        w[a] = by * v[i][a] * v[i][a];
        for (int b = 0; b < 3; ++b) w[a] += turn[i % 2][a][b] * v[i][b];
    }
    for (int a = 0; a < 3; ++a) v[i][a] = w[a];
}
"""


def arrays_behind_pointers(cupy: Any) -> None:
    """Rows of three, and matrices of three by three, that all threads share."""
    n = 700
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape).astype(np.float32) for shape in ((n, 3), (2, 3, 3), (n, 3), (2, 3, 3))]
    sides = []
    for library in (cupy, np):
        v, turn, dv, dturn = (library.asarray(a.copy()) for a in given)
        dby = library.zeros(())
        gpuad.autodiff(
            gpuad.kernel(ROTATED, "rotated"), -(-n // 128), 128, (Duplicated(v, dv), Duplicated(turn, dturn), Active(0.5, dby), n)
        )
        sides.append({name: on_host(a) for name, a in (("v", v), ("dv", dv), ("dturn", dturn), ("dby", dby))})
    v, turn, dv, _ = map(np.float64, given)
    close(*sides, 1e-5)
    turns = turn[np.arange(n) % 2]
    np.testing.assert_allclose(sides[0]["dv"], np.einsum("nab,na->nb", turns, dv) + v * dv, rtol=1e-4, atol=1e-5)


# --- turns ---------------------------------------------------------------------------------------------------------------------------

SWAPPED = """extern "C" __global__ void swapped(double* a, const int* order, double rate, int n)
{
    a += blockIdx.x * n;
    for (int step = 0; step < 3; ++step) {
        int i = order[(threadIdx.x + step) % n];
        if (threadIdx.x < n) a[i] = a[i] * a[i] * rate + (step + 1);
        __syncthreads();
        double other = threadIdx.x < n ? a[(i + 1) % n] : 0;
        __syncthreads();
        if (threadIdx.x < n) a[i] += 0.25 * other * other;
        __syncthreads();
    }
}
"""


def swapped(a: Any, da: Any, order: Any, rate: float) -> tuple[Any, Any]:
    """What that leaves in the rows of `a`, and the adjoint of what was there."""
    n, steps, kept = len(order), range(3), []
    for step in steps:
        square = a * a * rate + step + 1
        kept.append((a, square))
        a = square + 0.25 * np.roll(square, -1, axis=1) ** 2
    for _, (before, square) in zip(steps, reversed(kept), strict=True):
        da = da + np.roll(0.5 * np.roll(square, -1, axis=1) * da, 1, axis=1)
        da = da * 2 * rate * before
    assert sorted(order) == list(range(n))
    return a, da


def turns_by_data(cupy: Any) -> None:
    """Threads whose turns hang on an array, which is looked at before each launch: alone, in a known program on streams of its own, and
    refused where two meet; then nothing is written. No graph can look."""
    rng = np.random.default_rng(7)
    n, blocks, rate = 40, 5, 0.3
    k = compiled(SWAPPED, "swapped")
    start, seed, order = rng.uniform(0.2, 0.8, (blocks, n)), rng.normal(size=(blocks, n)), rng.permutation(n).astype(np.int32)
    bad = order.copy()
    bad[3] = bad[17]
    a, da, at = cupy.asarray(start), cupy.asarray(seed), cupy.asarray(order)
    gpuad.autodiff(k, blocks, 64, (Duplicated(a, da), at, rate, n))
    for found, expected in zip((a, da), swapped(start, seed, order, rate), strict=True):
        np.testing.assert_allclose(found.get(), expected, rtol=1e-10)
    a[...], at[...] = cupy.asarray(start), cupy.asarray(bad)
    with pytest.raises(LaunchError, match=r"with no __syncthreads\(\)"):
        gpuad.autodiff(k, blocks, 64, (Duplicated(a, da), at, rate, n))
    np.testing.assert_array_equal(a.get(), start)
    main, stream = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    pair, tape = Duplicated(a, da), gpuad.Tape()
    for run in range(4):
        given = rng.permutation(n).astype(np.int32)
        a[...] = cupy.asarray(start)
        host = cupy.asarray(given)
        stream.wait_event(main.record())
        with stream:  # the check belongs where the launch does: elsewhere it would look at the order of the run before
            at[...] = host
        with tape:
            k(blocks, 64, (pair, at, rate, n), stream=stream)
        tape.reverse({pair: cupy.asarray(seed)})
        for found, expected in zip((a, da), swapped(start, seed, given, rate), strict=True):
            np.testing.assert_allclose(found.get(), expected, rtol=1e-10)
        assert run < 2 or tape.stats.allocations == 0
    with pytest.raises(TapeError, match="two threads write to one element"):
        tape.graph({pair: 1.0})


def turns_by_numbers(cupy: Any) -> None:
    """The same where whole numbers alone tell: in a graph there is nothing to look at."""
    rng = np.random.default_rng(8)
    n, blocks, rate = 40, 5, 0.3
    k = compiled(SWAPPED.replace("order[(threadIdx.x + step) % n]", "(threadIdx.x + step) % n"), "swapped")
    start, seed, order = rng.uniform(0.2, 0.8, (blocks, n)), rng.normal(size=(blocks, n)), np.arange(n)
    pair, at = Duplicated(cupy.asarray(start), cupy.asarray(seed)), cupy.zeros(n, np.int32)
    tape = gpuad.Tape()
    with tape:
        k(blocks, 64, (pair, at, rate, n))
    made = tape.graph({pair: cupy.asarray(seed)})
    for _ in range(2):
        pair.primal[...] = cupy.asarray(start)
        made.launch()
        for found, expected in zip((pair.primal, pair.shadow), swapped(start, seed, order, rate), strict=True):
            np.testing.assert_allclose(found.get(), expected, rtol=1e-10)


# --- stores that are checked ----------------------------------------------------------------------------------------------------------


def stores_checked_on_streams(cupy: Any) -> None:
    """A known program whose launch is looked at each time, on the stream on which it is made, where its indices are made too."""
    n, k, tape = 3000, compiled(PUT, "put"), gpuad.Tape()
    rng, stream, main = np.random.default_rng(2), cupy.cuda.Stream(non_blocking=True), cupy.cuda.get_current_stream()
    x, y, index = (
        Duplicated(cupy.asarray(rng.normal(size=n)), cupy.zeros(n)),
        Duplicated(cupy.zeros(n), cupy.zeros(n)),
        cupy.zeros(n, np.int32),
    )

    def run(given: Any, seed: Any) -> None:
        host = cupy.asarray(given.astype(np.int32))
        x.shadow.fill(0)
        stream.wait_event(main.record())
        with stream:
            index[...] = host
        with tape:
            k(-(-n // 128), 128, (y, x, index, n), stream=stream)
        tape.reverse({y: cupy.asarray(seed)})

    for _ in range(4):
        order, seed = rng.permutation(n), rng.normal(size=n)
        run(order, seed)
        np.testing.assert_allclose(x.shadow.get(), 2 * x.primal.get() * seed[order], rtol=1e-12)
    order[17] = order[2000]
    with pytest.raises(LaunchError, match="two threads write to one element"):
        run(order, seed)
    main.wait_event(stream.record())
    assert not x.shadow.get().any()


def shadows_made_on_streams(cupy: Any) -> None:
    """A shadow that the first call makes comes before what that call adds to it, on whatever stream that is."""
    n, k = 300, compiled(CUBE, "scale")
    main, first, last = cupy.cuda.get_current_stream(), *(cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    augmented, reverse = gpuad.autodiff_thunk(k, y=Duplicated, x=Duplicated)
    tape = gpuad.Tape()

    def split(*call: Any) -> None:
        reverse(*call, augmented(*call, stream=first), stream=first)

    def recorded(*call: Any) -> None:
        with tape:
            k(*call, stream=first)
        with last:
            tape.reverse()

    for run in (lambda *call: gpuad.autodiff(k, *call, stream=first)), split, recorded, recorded, recorded:
        x, y = Duplicated(cupy.asarray(np.linspace(0, 1, n))), Duplicated(cupy.zeros(n), cupy.ones(n))
        for stream in (first, last):
            stream.wait_event(main.record())
        run(-(-n // 128), 128, (y, x, 0.5, n))
        for stream in (first, last):
            main.wait_event(stream.record())
        np.testing.assert_allclose(x.shadow.get(), 0.5 * np.cos(np.linspace(0, 1, n)), rtol=1e-12)


WEIGHED = """__constant__ double weights[3] = {1.0, 2.0, 3.0};
extern "C" __global__ void weighed(double* y, const double* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = weights[i % 3] * x[i];
}
"""


def memory_made_on_streams(cupy: Any) -> None:
    """A module's variables are there for all streams; what elementwise kernels make is there for the stream that they were asked for."""
    n, main = 300, cupy.cuda.get_current_stream()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    k, x, ys = gpuad.kernel(WEIGHED, "weighed"), cupy.ones(n), [cupy.zeros(n) for _ in streams]
    for stream, y in zip(streams, ys, strict=True):
        stream.wait_event(main.record())
        k(-(-n // 128), 128, (y, x, n), stream=stream)
    for stream, y in zip(streams, ys, strict=True):
        main.wait_event(stream.record())
        np.testing.assert_array_equal(y.get(), np.arange(n) % 3 + 1)
    product = gpuad.ElementwiseKernel("T x, T y", "T z", "z = x * y", "product")
    total = gpuad.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "total")
    tape, stream = gpuad.Tape(), streams[0]
    for _ in range(3):
        a, b = (Duplicated(cupy.asarray(np.linspace(1, 2, n))) for _ in range(2))
        stream.wait_event(main.record())
        with tape:
            result = total(product(a, b, stream=stream), stream=stream)
        with stream:
            tape.reverse({result: 1.0})
        main.wait_event(stream.record())
        np.testing.assert_allclose(a.shadow.get(), 2 * np.linspace(1, 2, n) ** 3, rtol=1e-12)


# --- seeds ----------------------------------------------------------------------------------------------------------------------------


def seeds_of_the_other_side(cupy: Any) -> None:
    """Arrays of the host are no seeds of a device's, nor the other way; a number is, of whatever library. The tape goes on."""
    n, k, tape = 300, compiled(CUBE, "scale"), gpuad.Tape()
    for library, other in ((cupy, np), (np, cupy)):
        x, y = Duplicated(library.ones(n), library.zeros(n)), Duplicated(library.zeros(n), library.zeros(n))
        with tape:
            k(-(-n // 128), 128, (y, x, 0.5, n))
        with pytest.raises(TapeError, match=f"a seed for a {'CuPy' if library is cupy else 'NumPy'} array is a"):
            tape.reverse({y: other.ones(n)})
        tape.reverse({y: np.asarray(2.0)})
        np.testing.assert_allclose(on_host(x.shadow), np.cos(1.0), rtol=1e-12)
        tape = gpuad.Tape()


# --- shared memory whose bytes the launch names ---------------------------------------------------------------------------------------


def dynamic_shared(cupy: Any) -> None:
    """One kernel launched with several lengths in turn, alone and in a known program."""
    n, scan = 200, gpuad.kernel(kernel_folder() / "block_scan.cu", "scan")
    given = np.random.default_rng(1).uniform(0.99, 1.01, n).astype(np.float32)
    seed = np.random.default_rng(2).normal(size=n).astype(np.float32)
    sides = []
    for library in (cupy, np):
        x, tape, found = Duplicated(library.asarray(given.copy()), library.zeros(n, np.float32)), gpuad.Tape(), {}
        for block in (32, 64, 32):
            x.primal[...], x.shadow[...] = library.asarray(given), library.asarray(seed)
            gpuad.autodiff(scan, -(-n // block), block, (x, n), shared_mem=8 * block)
            found[f"x {block}"], found[f"dx {block}"] = on_host(x.primal).copy(), on_host(x.shadow).copy()
        for _ in range(3):
            x.primal[...] = library.asarray(given)
            with tape:
                for block in (32, 64):
                    scan(-(-n // block), block, (x, n), shared_mem=8 * block)
            tape.reverse({x: library.asarray(seed)})
        found["dx"] = on_host(x.shadow)
        sides.append(found)
    assert np.isfinite(sides[1]["dx"]).all()
    close(*sides, 1e-5)


# --- sums in a fixed order -----------------------------------------------------------------------------------------------------------

MEETING = """extern "C" __global__ void meeting(const double* x, const int* at, float* y, double rate, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[at[(i * 7) % n]], (float)(rate * x[at[i]] * x[at[i]]));
}
"""


def deterministic_sums(cupy: Any) -> None:
    """Threads that add to one element of a shadow, and to a number's, give the same bits in every run, as on a CPU."""
    n, rng = 5000, np.random.default_rng(4)
    at, x, dy = rng.integers(0, 20, n).astype(np.int32), rng.normal(size=20) * 10.0 ** rng.integers(-6, 6, 20), rng.normal(size=20)
    found = []
    for library in (cupy, cupy, np):
        dx, drate = library.zeros(20), library.zeros(())
        y = Duplicated(library.zeros(20, np.float32), library.asarray(dy.astype(np.float32)))
        pair = Duplicated(library.asarray(x), dx)
        with gpuad.deterministic():
            gpuad.autodiff(compiled(MEETING, "meeting"), -(-n // 128), 128, (pair, library.asarray(at), y, Active(0.5, drate), n))
        found.append({"dx": on_host(dx), "drate": on_host(drate)})
    close(found[0], found[2], 1e-12)
    assert all(found[0][name].tobytes() == found[1][name].tobytes() for name in found[0])


# --- arrays that operations make -----------------------------------------------------------------------------------------------------


def arrays_made_again(cupy: Any) -> None:
    """A program that makes arrays is known when it comes again, on other streams too; what is kept of earlier rounds stays."""
    n, tape, k = 300, gpuad.Tape(), compiled(CUBE, "cube")
    start, target = np.random.default_rng(3).uniform(0.5, 1.5, (2, n)).astype(np.float32)
    X, aim, seed = Duplicated(cupy.asarray(start), cupy.zeros(n, np.float32)), cupy.asarray(target), cupy.ones(n, np.float32)
    main, kept, known = cupy.cuda.get_current_stream(), [], []
    main.synchronize()
    streams = [main, *(cupy.cuda.Stream(non_blocking=True) for _ in range(2))]
    for turn in range(12):
        stream = streams[0 if turn < 5 else turn % 3]
        with stream:
            X.primal.fill(0.5 + turn / 16)
            X.shadow.fill(0)
            with tape:
                known.append(recording_of(tape).cursor.expected is not None)
                k(-(-n // 128), 128, (X, n))
                rest = X - aim
                k(-(-n // 128), 128, (rest, n))
                loss = rest[1:] * rest[1:]
            tape.reverse({loss: seed[1:]})
            cube, x = np.float32(0.5 + turn / 16) ** 3, np.float32(0.5 + turn / 16)
            gap = (cube - target).astype(np.float64)
            slope = 2 * gap**3 * 3 * gap**2 * 3 * float(x) ** 2
            slope[0] = 0
            np.testing.assert_allclose(X.shadow.get(), slope, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(loss.primal.get(), gap[1:] ** 6, rtol=1e-4, atol=1e-6)
            stream.synchronize()
        kept.append(({0: loss, 1: loss.primal, 2: loss[5:], 3: loss.primal[5:]}.get(turn % 7), gap[1:] ** 6))
        for held, expected in kept:
            if held is not None:
                np.testing.assert_allclose(getattr(held, "primal", held).get(), expected[expected.size - held.size :], rtol=1e-4, atol=1e-6)
    assert sum(known) >= 4, known
    made = tape.graph({loss: 1.0})
    X.primal.fill(0.75)
    made.launch()
    np.testing.assert_allclose(loss.primal.get(), (0.75**3 - target[1:].astype(np.float64)) ** 6, rtol=1e-4, atol=1e-6)


def made_arrays_on_streams(cupy: Any) -> None:
    """What is kept of an earlier round is there for each stream, and memory is used again after what is still read where it was made."""
    n, tape = 1 << 16, gpuad.Tape()
    x = cupy.zeros(n)
    X, sums, kept = Duplicated(x, cupy.zeros(n)), [], []
    cupy.cuda.get_current_stream().synchronize()
    made, reversed_, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
    for turn in range(8):
        with made:
            x.fill(1.0 + turn)
            with tape:
                y = X * 2.0  # nothing is read in the reverse, so nobody waits for a fingerprint
                z = y * 3.0
        with other:  # knows nothing of the copies that this round has begun with
            for held, expected in kept:
                np.testing.assert_array_equal((held.primal + 0.0).get(), np.full(held.size, expected))
        with reversed_:
            tape.reverse({z: 1.0})
            np.testing.assert_array_equal(X.shadow.get(), np.full(n, 6.0))
            X.shadow.fill(0)
            reversed_.synchronize()
        with made:
            sums.append(y.primal[1:] + 0.0)  # read where it was made, and let go at once
        if turn % 3 == 1:  # nobody waits for what has just been read
            made, other = other, made
            del y, z
            continue
        kept.append((z if turn % 2 else z[3:], 6.0 * (1 + turn)))
        del y, z
    for stream in (made, other):
        stream.synchronize()
    for turn, found in enumerate(sums):
        np.testing.assert_array_equal(found.get(), np.full(n - 1, 2.0 * (1 + turn)))


VIEWS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda cupy, y: y.primal[2:][::-2],
    lambda cupy, y: y.primal.reshape(-1, 2).T,
    lambda cupy, y: y.primal[None].ravel(),
    lambda cupy, y: y.primal.view(np.int64),
    lambda cupy, y: cupy.asarray(y.primal)[:],
    lambda cupy, y: cupy.lib.stride_tricks.as_strided(y.primal, (3,), (16,)),
    lambda cupy, y: cupy.ndarray((4,), np.float64, cupy.cuda.MemoryPointer(y.primal.data.mem, 8)),
    lambda cupy, y: cupy.from_dlpack(y.primal) if hasattr(cupy, "from_dlpack") else y.primal,
    lambda cupy, y: Duplicated(y.primal),
    lambda cupy, y: y[3:],
)


def views_of_made_arrays(cupy: Any) -> None:
    """Whoever has a view of an array that an operation made, by whatever way, keeps what he sees."""
    n = 64
    for view in VIEWS:
        X, tape, kept = Duplicated(cupy.zeros(n), cupy.zeros(n)), gpuad.Tape(), []
        for turn in range(6):
            X.primal.fill(1.0 + turn)
            with tape:
                y = X * X
                z = y * y
            X.shadow.fill(0)
            tape.reverse({z: 1.0})
            np.testing.assert_allclose(X.shadow.get(), np.full(n, 4.0 * (1 + turn) ** 3), rtol=1e-14)
            if turn != 1:
                held = view(cupy, y)
                kept.append((held, on_host(getattr(held, "primal", held)).copy()))
            y = z = held = None
            for held, expected in kept:
                np.testing.assert_array_equal(on_host(getattr(held, "primal", held)), expected)


def made_arrays_take_no_more(cupy: Any) -> None:
    """Rounds take no memory that those before them did not, also where the arrays of the last one are still there, and losses are kept."""
    n, pool, used, kept = 1 << 16, cupy.get_default_memory_pool(), [], []
    X, tape = Duplicated(cupy.zeros(n), cupy.zeros(n)), gpuad.Tape()
    gc.collect()
    gc.disable()
    try:
        for turn in range(12):
            X.primal.fill(1.0 + turn)
            with tape:
                y = X * X
                z = y * y
            tape.reverse({z: 1.0})
            used.append(pool.used_bytes())
            kept.append(z[:4])
            if turn % 2:
                kept[-1].primal.get()
        del y, z
    finally:
        gc.enable()
    copies = 8 * n  # those that the views in `kept` have behind them
    assert all(later - earlier <= copies + 4096 for earlier, later in pairwise(used[3:])), used


def graph_of_made_arrays(cupy: Any) -> None:
    """A graph has the arrays that its program made; the tape goes on with others."""
    n, tape, k = 300, gpuad.Tape(), compiled(CUBE, "cube")
    X, aim, kept = (
        Duplicated(cupy.zeros(n, np.float32), cupy.zeros(n, np.float32)),
        cupy.asarray(np.linspace(0, 1, n, dtype=np.float32)),
        [],
    )

    def found(x: float, loss: Any) -> None:
        rest = x**3 - np.linspace(0, 1, n)
        np.testing.assert_allclose(loss.primal.get(), rest**2, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(X.shadow.get(), 2 * rest * 3 * x * x, rtol=1e-4, atol=1e-5)

    def record(x: float) -> Any:
        X.primal.fill(x)
        X.shadow.fill(0)
        with tape:
            k(-(-n // 128), 128, (X, n))
            rest = X - aim
            loss = rest * rest
        tape.reverse({loss: 1.0})
        found(x, loss)
        kept.append((x, loss))
        return loss

    for _ in range(2):
        for x in (0.5, 0.75, 1.25):
            of_graph = record(x)
        kept.pop()
        graph = tape.graph({of_graph: 1.0})
        for x in (1.5, 0.625, 1.0, 0.875):
            X.primal.fill(x / 2)
            X.shadow.fill(0)
            graph.launch()
            found(x / 2, of_graph)
            record(x)
        for x, loss in kept:
            np.testing.assert_allclose(loss.primal.get(), (x**3 - np.linspace(0, 1, n)) ** 2, rtol=1e-4, atol=1e-6)


def changes_of_what_is_needed(cupy: Any) -> None:
    """All bytes of what a reverse reads live are compared, whatever the alignment of the numbers and of the views."""
    for dtype, n in ((np.float64, 101), (np.float32, 101), (np.float32, 7)):
        x, y = (Duplicated(cupy.ones(n, dtype)) for _ in range(2))
        for at in (0, n // 2, n - 1):
            with gpuad.Tape() as tape:
                gpuad.ops.multiply(x, x, out=y)
            tape.reverse({y: 1.0})
            with tape:
                gpuad.ops.multiply(x, x, out=y)
            x.primal[at] = 1.5
            with pytest.raises(TapeError, match="was changed"):
                tape.reverse({y: 1.0})
            x.primal[at] = 1.0
    host = np.random.default_rng(0).integers(0, 256, 200_003, np.uint8)
    root = cupy.asarray(host)
    for region in (span(0, 200_000), span(4, 200_000), span(3, 200_003), lattice(8, 40, [(64, 3000)])):
        a = Allocation(root, 0, "u")
        before = mark(a, region)
        for at in (region.low, region.high - 1):
            root[at] = int(host[at]) ^ 16
            assert mark(a, region) != before
            root[at] = int(host[at])
        assert mark(a, region) == before


CHECKS: tuple[Callable[[Any], None], ...] = (
    left_out, arrays_behind_pointers, turns_by_data, turns_by_numbers, stores_checked_on_streams,
    shadows_made_on_streams, memory_made_on_streams, deterministic_sums, seeds_of_the_other_side, dynamic_shared,
    changes_of_what_is_needed,
    arrays_made_again, made_arrays_on_streams, views_of_made_arrays, made_arrays_take_no_more, graph_of_made_arrays,
)  # fmt: skip
