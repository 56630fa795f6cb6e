"""Launches of a program that become one: the same numbers as apart, where that is proved, and apart where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases
from tape_tools import launch, pair

import gpuad
from gpuad import Active, Duplicated, LaunchError, api, ops, pipeline
from gpuad.codegen.cuda import cuda_source
from gpuad.fusion.certified import Independent
from gpuad.fusion.link import Link
from gpuad.runtime import nvrtc
from gpuad.runtime.base import Memory, Prepared
from gpuad.runtime.reference import RaceError
from gpuad.tape.facade import recording_of

N = 24
Arrays = dict[str, Any]


def launches(graph: Any, which: str) -> list[str]:
    """The kernels that a part of a graph launches."""
    return [action.kernel.name for action, _, _ in graph._parts[which] if isinstance(action, Prepared)]


def texts(graph: Any, which: str) -> list[str]:
    return [cuda_source([action.kernel]).rpartition("\n\n")[2] for action, _, _ in graph._parts[which] if isinstance(action, Prepared)]


def held() -> Arrays:
    numbers = np.random.default_rng(7)
    found: Arrays = {name: pair(numbers.uniform(0.3, 0.9, N)) for name in "xyz"}
    found |= {name: Duplicated(numbers.uniform(0.3, 0.9, N).astype(np.float32)) for name in "fg"}
    found |= {"m": pair(numbers.uniform(0.3, 0.9, (4, 6))), "r": pair(numbers.uniform(0.3, 0.9, 6)), "mask": np.arange(N) % 3 == 0}
    return found


def content(arrays: Arrays) -> dict[str, bytes]:
    pairs = {name: x for name, x in arrays.items() if isinstance(x, Duplicated)}
    return {name + part: getattr(x, part).tobytes() for name, x in pairs.items() for part in ("primal", "shadow")}


def outcome(graph: Any, arrays: Arrays, start: Arrays) -> dict[str, bytes]:
    """What a graph leaves, from a start with some content in all shadows."""
    for name, x in arrays.items():
        if isinstance(x, Duplicated):
            x.primal[...], x.shadow[...] = start[name], 0.25
    graph.launch()
    graph.launch()
    return content(arrays)


def both(program: Callable[[Arrays], Any], seeds: Callable[[Arrays, Any], dict[Any, Any]]) -> tuple[Any, Any, dict[str, bytes]]:
    """The graphs of a program, chained and not, which leave the same."""
    arrays = held()
    start = {name: x.primal.copy() for name, x in arrays.items() if isinstance(x, Duplicated)}
    tape = gpuad.Tape()
    with tape:
        made = program(arrays)
    given = seeds(arrays, made)
    chained = tape.graph(given)
    with pipeline.nothing_chained_for_tests():
        apart = tape.graph(given)
    expected = outcome(apart, arrays, start)
    found = outcome(chained, arrays, start)
    assert found == expected
    return chained, apart, found


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither calls of mathematical functions part launches, nor arrays that are written."""
    monkeypatch.setattr("gpuad.fusion.chain.CALLS", 1000)
    monkeypatch.setattr("gpuad.fusion.chain.WRITTEN", 1000)


def fourteen(a: Arrays) -> Any:
    t = ops.sqrt(a["x"]) * a["y"]
    for _ in range(2):
        t = ops.absolute(t * t + 0.1)
        t *= a["x"] - 2.0
    return ops.square(t) * a["x"]


def dozen(a: Arrays) -> Any:
    t = ops.sqrt(a["x"]) * a["y"]
    for _ in range(3):
        t = ops.absolute(t * 0.5)
        t -= a["x"]
    return t * t


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_dozen_operations_on_a_cpu(executor: str) -> None:
    with running(executor):
        chained, apart, _ = both(dozen, lambda _, t: {t: 1.0})
    assert (len(launches(apart, "forward")), len(launches(chained, "forward"))) == (12, 1)
    assert len(launches(apart, "reverse")) >= 9 and len(launches(chained, "reverse")) == 1


@pytest.mark.usefixtures("as_on_a_gpu")
def test_operations_are_one_launch_forward_and_one_back() -> None:
    """With what is saved of a temporary that is overwritten, the seed, and the clearing of the temporaries' shadows."""
    with running("reference"):
        chained, apart, _ = both(fourteen, lambda _, t: {t: 1.0})
    assert (len(launches(apart, "forward")), len(launches(chained, "forward"))) == (14, 1)
    assert len(launches(apart, "reverse")) > 10 and len(launches(chained, "reverse")) == 1
    assert len(chained._parts["forward"]) == 1 and len(chained._parts["reverse"]) < 4 < len(apart._parts["reverse"]) / 4
    first, second, *_ = chained.explain().splitlines()
    assert first.startswith("op_sqrt, op_multiply, op_add, op_absolute, op_subtract, op_square  # test_chain.py:")
    assert second.startswith("seed, op_multiply, ")


def test_the_text_keeps_in_registers_what_is_read_again() -> None:
    with running("reference"):
        chained, _, _ = both(lambda a: (launch("times", a["x"], a["y"]), launch("square", a["x"])), lambda a, _: {a["x"]: 1.0})
    forward, reverse = (texts(chained, which) for which in ("forward", "reverse"))
    assert forward == [FORWARD] and reverse == [REVERSE]


FORWARD = """\
// In one launch, thread by thread:
// save_x, times, save_x, square
extern "C" __global__ void times_to_square_2(
    double* x, const double* p, double* x_saved, double* x_saved_2, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double x_2 = x[i];
        x_saved[i] = x_2;
        x_2 *= p[i];
        x_saved_2[i] = x_2;
        x_2 *= x_2;
        x[i] = x_2;
    }
}
"""
REVERSE = """\
// In one launch, thread by thread:
// set_dx, square_reverse, times_reverse
extern "C" __global__ void square_reverse_to_times_reverse_2(
    const double* x, double* dx, const double* x_saved, const double* p, double* dp, const double* x_saved_2,
    int n, double seed)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double dx_2 = 2.0 * (x_saved[i] * seed);
        const double x_2 = x_saved_2[i];
        const double dx_3 = p[i] * dx_2;
        dx[i] = dx_3;
        dp[i] += x_2 * dx_2;
    }
}
"""


# --- random programs ----------------------------------------------------------------------------------------------------------------------


def random_program(r: random.Random) -> Callable[[Arrays], Any]:
    """A program of elementwise operations and kernels, on whole arrays and views."""
    chosen = [r.choice(CHOICES)(r) for _ in range(r.randrange(4, 14))]

    def program(a: Arrays) -> None:
        temporaries: list[Any] = []
        for name in "xzm":
            ops.square(a[name], out=a[name])
        for step in chosen:
            step(a, temporaries)

    return program


def view(r: random.Random) -> Callable[[Any], Any]:
    cut = r.choice(
        [slice(None)] * 4 + [slice(0, 12), slice(3, 15), slice(12, 24), slice(None, None, 2), slice(1, None, 2), slice(None, None, -1)]
    )
    return lambda x: x[cut]


def unary(r: random.Random) -> Any:
    name, (x, y), cut = r.choice(["sin", "exp", "sqrt", "square", "tanh"]), r.choices("xyzfg", k=2), view(r)
    return lambda a, _: getattr(ops, name)(cut(a[x]), out=cut(a[y])) if a[x].dtype <= a[y].dtype else None


def binary(r: random.Random) -> Any:
    name, (x, y, z) = r.choice(["add", "multiply", "subtract", "maximum"]), r.choices("xyz", k=3)
    cuts = [view(r)] * 3 if r.random() < 0.7 else [view(r) for _ in range(3)]

    def step(a: Arrays, _: list[Any]) -> None:
        given = [cut(a[name]) for cut, name in zip(cuts, (x, y, z), strict=True)]
        if len({g.shape for g in given}) == 1:
            getattr(ops, name)(*given[:2], out=given[2])

    return step


def in_place(r: random.Random) -> Any:
    x, y, cut = r.choice("xyz"), r.choice("xyzfg"), view(r)

    def step(a: Arrays, _: list[Any]) -> None:
        target = cut(a[x])
        target += cut(a[y])
        target *= 0.7

    return step


def temporary(r: random.Random) -> Any:
    x, y, z = r.choices("xyz", k=3)

    def step(a: Arrays, temporaries: list[Any]) -> None:
        t = a[x] * (temporaries[-1] if temporaries else a[y])
        temporaries.append(ops.sin(t) + a[x])
        if len(temporaries) % 2 == 0:
            ops.add(temporaries[0], temporaries[-1], out=a[z])

    return step


def where(r: random.Random) -> Any:
    x, y, z = r.choices("xyz", k=3)
    return lambda a, _: ops.where(a["mask"], a[x], a[y], out=a[z])


def broadcast(r: random.Random) -> Any:
    name = r.choice(["multiply", "add"])
    return lambda a, _: getattr(ops, name)(a["m"], a["r"], out=a["m"])


def across(r: random.Random) -> Any:
    x, y, z = r.sample("xyz", 3)
    kernel = r.choice(["square", "sine", "times", "blend", "copy", "exchange", "stencil", "add", "linear", "masked"])
    given = {"square": (x,), "sine": (x,), "times": (x, y), "copy": (x, y), "exchange": (x, y), "stencil": (x, y), "linear": (x, y)}
    if kernel == "masked":
        return lambda a, _: launch("masked", a[x], a[y], a["mask"].astype(np.int32))
    return lambda a, _: launch(kernel, *(a[n] for n in given.get(kernel, (x, y, z))))


def active(r: random.Random) -> Any:
    x, d = r.choice("xyz"), np.zeros(())
    return lambda a, _: launch("scale", a[x], Active(0.9, d))


CHOICES = [unary, binary, binary, in_place, temporary, where, broadcast, across, across, active]


@pytest.mark.one_of(2)
@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("seed", range(cases(4, 36)))
def test_random_programs(seed: int) -> None:
    with running("reference"):
        both(random_program(random.Random(seed)), lambda a, _: {a["x"]: 1.0, a["z"]: np.linspace(0.5, 1, N), a["m"]: 2.0})


@pytest.mark.parametrize("seed", [3])
def test_random_programs_compiled(seed: int) -> None:
    with running("host"):
        both(random_program(random.Random(seed)), lambda a, _: {a["x"]: 1.0, a["z"]: np.linspace(0.5, 1, N), a["m"]: 2.0})


def test_a_tape_that_reverses_a_known_program_again() -> None:
    """The second reverse of a program that has come again has fewer launches and leaves the same."""
    with running("reference"):
        arrays, tape, results = held(), gpuad.Tape(), []
        start = {name: x.primal.copy() for name, x in arrays.items() if isinstance(x, Duplicated)}
        for _ in range(4):
            for name, value in start.items():
                arrays[name].primal[...], arrays[name].shadow[...] = value, 0
            with tape:
                for _ in range(3):
                    launch("times", arrays["x"], arrays["y"].primal)
                    launch("sine", arrays["x"])
                    launch("product", arrays["z"], arrays["x"], arrays["x"])
            tape.reverse({arrays["z"]: 1.0})
            results.append(content(arrays))
        (plan,) = recording_of(tape).reversals.plans.values()
        assert all(r == results[0] for r in results) and plan.runs == 4
        assert 2 * len(plan.again) < len(plan.actions)


def test_launches_are_joined_once_that_is_worth_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the second reverse of a program that is quickly done, but when as much time has gone by."""
    monkeypatch.setattr("gpuad.tape.reverse.reversal_plan.PATIENCE", 1.0)
    with running("reference"):
        arrays, tape = held(), gpuad.Tape()
        for _ in range(2):
            with tape:
                for _ in range(3):
                    launch("times", arrays["x"], arrays["y"].primal)
                    launch("sine", arrays["x"])
            tape.reverse({arrays["x"]: 1.0})
        (plan,) = recording_of(tape).reversals.plans.values()
        assert plan.runs == 2 and not plan.joined and 0 < plan.later < 1 < 4 * plan.first + 1
        plan.later += 1 + 1e-3 * len(plan.actions)
        with tape:
            for _ in range(3):
                launch("times", arrays["x"], arrays["y"].primal)
                launch("sine", arrays["x"])
        tape.reverse({arrays["x"]: 1.0})
        assert plan.joined and len(plan.again) < len(plan.actions)


# --- what stays apart ---------------------------------------------------------------------------------------------------------------------

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define K extern "C" __global__ void
K square(double* x, int n) { I; x[i] = x[i] * x[i]; }
K to(double* y, const double* x, int n) { I; y[i] = x[i] * x[i]; }
K behind(double* y, const double* x, int n) { I; y[i] = x[n - 1 - i] * x[i]; }
K strided(double* y, const double* x, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 8) y[i] = x[i] * x[i]; }
K loop_square(double* x, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 8) x[i] = x[i] * x[i]; }
K loop_sine(double* x, int n) { for (int i = blockIdx.x * 8 + threadIdx.x; i < n; i += 8) if (x[i] > 0.4) x[i] = sin(x[i]); }
K picked(double* y, const double* x, const int* index, int n) { I; y[i] = x[index[i]] * x[i]; }
K scatter(double* y, const double* x, const int* index, int n) { I; atomicAdd(&y[index[i]], x[i] * x[i]); }
K asserted(double* x, int n) { I; assert(x[i] < 9.0); x[i] = x[i] * x[i]; }
K tile(double* x, int n) { __shared__ double s[8]; int i = blockIdx.x * 8 + threadIdx.x; s[threadIdx.x] = i < n ? x[i] : 0.0;
    __syncthreads(); if (i < n) x[i] = s[threadIdx.x] * s[0]; }
K local(double* x, int n) { I; double s[2]; s[i % 2] = x[i]; s[1 - i % 2] = 2.0; x[i] = s[0] * s[1]; }
K all(double* y, const double* x, int n) { I; y[i] = x[0] * x[i]; }
K worded(double* x, int m) { int tid = threadIdx.x + blockDim.x * blockIdx.x; if (tid <= m - 1) { x[tid] = 1.5 * x[tid] * x[tid]; } }
K last(double* x, int n) { I; if (x[i] > 0.5) x[i] = x[i] * x[i]; }
"""


def own(name: str, *args: Any, n: int = N, blocks: int = 0) -> None:
    gpuad.kernel(SOURCE, name)[(blocks or -(-n // 8),), (8,)](*args, n)


Pieces = dict[str, Callable[[Arrays], tuple[Any, Any]]]
ORDER = np.arange(N, dtype=np.int32)
APART: Pieces = {
    "another thread reads what was written": lambda a: (own("square", a["x"]), own("behind", a["y"], a["x"])),
    "another thread overwrites what was read": lambda a: (own("behind", a["y"], a["x"]), own("square", a["x"])),
    "all read one element": lambda a: (own("square", a["x"]), own("all", a["y"], a["x"])),
    "a stencil": lambda a: (launch("sine", a["x"]), launch("stencil", a["y"], a["x"])),
    "overlapping views": lambda a: (own("square", a["x"][:-1], n=N - 1), own("square", a["x"][1:], n=N - 1)),
    "an index from data": lambda a: (own("square", a["x"]), own("picked", a["y"], a["x"], ORDER)),
    "atomics": lambda a: (own("square", a["x"]), own("scatter", a["y"], a["x"], ORDER)),
    "barriers": lambda a: (own("square", a["x"]), own("tile", a["x"])),
    "an array of its own": lambda a: (own("square", a["x"]), own("local", a["x"])),
    "an assertion": lambda a: (own("square", a["x"]), own("asserted", a["x"])),
    "a loop": lambda a: (own("square", a["x"]), own("strided", a["y"], a["x"])),
    "another iteration reads what was written": lambda a: (
        own("loop_square", a["x"][:-8], n=N - 8, blocks=1),
        own("strided", a["y"][:-8], a["x"][8:], n=N - 8, blocks=1),
    ),
    "other loops": lambda a: (own("loop_square", a["x"], blocks=1), own("loop_square", a["x"], n=N - 1, blocks=1)),
    "other sizes": lambda a: (own("square", a["x"]), own("square", a["x"], n=N - 1)),
    "other grids": lambda a: (own("square", a["x"]), gpuad.kernel(SOURCE, "square")[(N,), (1,)](a["x"], N)),
    "two axes and one": lambda a: (own("square", a["x"]), ops.multiply(a["m"], a["r"], out=a["m"])),
}


@pytest.mark.one_of(3)
@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("name", APART)
def test_what_stays_apart(name: str) -> None:
    with running("reference"):
        chained, apart, _ = both(APART[name], lambda a, _: {a["x"]: 1.0})
    assert len(launches(chained, "forward")) == len(launches(apart, "forward")) == 2


TOGETHER: Pieces = {
    "shifted views of what is only read": lambda a: (
        own("to", a["x"][:-1], a["y"][1:], n=N - 1),
        own("to", a["z"][1:], a["y"][:-1], n=N - 1),
    ),
    "parts of one array": lambda a: (own("square", a["x"][:12], n=12), own("square", a["x"][12:], n=12)),
    "a table": lambda a: (own("picked", a["y"], a["x"], ORDER), own("square", a["z"])),
    "guards in other words": lambda a: (own("square", a["x"]), own("worded", a["x"])),
    "loops over the elements": lambda a: (own("loop_square", a["x"], blocks=1), own("loop_sine", a["x"], blocks=1)),
    "a branch": lambda a: (own("last", a["x"]), own("last", a["x"])),
    "what nobody writes": lambda a: (own("square", a["y"]), own("behind", a["y"], a["x"])),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", TOGETHER)
def test_what_comes_together(name: str) -> None:
    with running("reference"):
        chained, apart, _ = both(TOGETHER[name], lambda a, _: {a["x"]: 1.0})
    assert (len(launches(chained, "forward")), len(launches(apart, "forward"))) == (1, 2)


@pytest.mark.parametrize("seed", [-0.0, float("nan"), float("inf"), 3])
def test_seeds_that_are_numbers(seed: float) -> None:
    with running("reference"):
        chained, _, found = both(TOGETHER["a table"], lambda a, _: {a["z"]: seed})
    assert len(launches(chained, "reverse")) == 1
    assert np.isnan(seed) or (np.signbit(np.frombuffer(found["zshadow"])) == np.signbit(seed)).all()


def test_launches_that_a_device_refuses_as_one_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise LaunchError("too many registers")

    monkeypatch.setattr("gpuad.tape.replay.launch_joining.prepared", refused)
    with running("reference"):
        chained, apart, _ = both(TOGETHER["a table"], lambda a, _: {a["z"]: 1.0})
    assert launches(chained, "whole") == launches(apart, "whole")


HALVES = r"""
#include <cuda_fp16.h>
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
extern "C" __global__ void third(__half* x, int n) { I; x[i] = __float2half(__half2float(x[i]) / 3.0f); }
extern "C" __global__ void widen(float* y, const __half* x, int n) { I; y[i] = y[i] * __half2float(x[i]); }
"""


def test_halves_are_rounded_on_the_way() -> None:
    with running("reference"):
        x, y = Duplicated(np.linspace(0.5, 0.9, N).astype(np.float16)), Duplicated(np.ones(N, np.float32))
        tape, results = gpuad.Tape(), []
        with tape:
            gpuad.kernel(HALVES, "third")[(3,), (8,)](x, N)
            gpuad.kernel(HALVES, "widen")[(3,), (8,)](y, x, N)
        graph = tape.graph({y: 1.0})
        with pipeline.nothing_chained_for_tests():
            apart = tape.graph({y: 1.0})
        for g in (apart, graph):
            x.primal[...], y.primal[...], x.shadow[...] = np.linspace(0.5, 0.9, N).astype(np.float16), 1, 0
            g.launch()
            results.append([a.tobytes() for a in (x.primal, y.primal, x.shadow, y.shadow)])
    assert len(launches(graph, "forward")) == 1 and results[0] == results[1]


def everything_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuad.fusion.certified.Independent.takes", lambda *_: True)
    monkeypatch.setattr("gpuad.fusion.chain.is_certified", lambda *_: True)


@pytest.mark.parametrize("name", ["another thread reads what was written", "another thread overwrites what was read", "overlapping views"])
def test_without_the_proof_it_would_be_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything_proved(monkeypatch)
    with running("reference"), pytest.raises(RaceError):
        both(APART[name], lambda a, _: {a["x"]: 1.0})


# --- the proof, against all threads one by one --------------------------------------------------------------------------------------------

FORMS = r"""
#define K extern "C" __global__ void
#define IJ int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y
#define EACH for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < w; i += gridDim.x * blockDim.x)
K writes(double* x, int sx, int sy, int o, int w, int h) { IJ; if (i < w && j < h) x[o + sx * i + sy * j] = 1.0; }
K reads(double* y, double* x, int sx, int sy, int o, int w, int h) { IJ; if (i < w && j < h) y[i + 99 * j] = x[sx * i + sy * j + o]; }
K loop_writes(double* x, int sx, int sy, int o, int w, int h) { EACH { x[o + sx * i + sy * (int)threadIdx.x] = 1.0; } }
K loop_reads(double* y, const double* x, int sx, int sy, int o, int w, int h) { EACH { y[i] = x[o + sx * i + sy * (int)threadIdx.x]; } }
"""


def geometry(r: random.Random, looped: bool) -> tuple[Any, Any, list[int], list[int], int]:
    """Grid and block, strides and offset of a write and of a read, and how much later the pointer of the read points."""
    rows = 1 if looped else r.choice([1, 2, 4])
    grid, block = (r.randrange(1, 4), 1 if looped else r.randrange(1, 3), 1), (r.choice([1, 2, 3, 4]), rows, 1)
    one, two = ([r.choice([0, 1, 1, 2, 3, -1]), r.choice([0, 0, 1, 4, 12, 5]), 40 + r.randrange(4)] for _ in range(2))
    return grid, block, one, one if r.random() < 0.4 else two, r.choice([0, 0, 1, 13])


@pytest.mark.parametrize("looped", [False, True])
def test_the_proof_on_random_geometries(looped: bool) -> None:
    """Units of work are threads, or the iterations of each."""
    r, found = random.Random(5), {True: 0, False: 0}
    write, read = (api.kernel(FORMS, name).primal() for name in (("loop_writes", "loop_reads") if looped else ("writes", "reads")))
    for _ in range(300):
        grid, block, one, two, shift = geometry(r, looped)
        width, height = r.randrange(1, 13), r.randrange(1, 9)
        x, y, numbers = Memory(np.zeros(400)), Memory(np.zeros(2000)), [np.int32(width), np.int32(height)]
        first = Link(write, grid, block, [x, *map(np.int32, one), *numbers])
        together = Independent(first)
        assert together.takes(first)
        count = grid[0] * block[0]
        pairs = product(range(min(width, count)), range(min(height, grid[1] * block[1])))
        units = [(i, i % count % block[0]) for i in range(width)] if looped else list(pairs)
        written = [(one[2] + one[0] * i + one[1] * j, (i, j)) for i, j in units]
        seen = [(two[2] + two[0] * i + two[1] * j + shift, (i, j)) for i, j in units]
        meet = any(a == b and t != u for a, t in written for b, u in seen)
        taken = together.takes(Link(read, grid, block, [y, Memory(x.root, shift), *map(np.int32, two), *numbers]))
        assert not (taken and meet), (grid, block, one, two, shift, width, height)
        found[taken] += not meet
    assert found[True] > 0 == found[False]


# --- programs of many steps ---------------------------------------------------------------------------------------------------------------


def test_a_long_program_has_few_kernels() -> None:
    def program(a: Arrays) -> None:
        for _ in range(40):
            launch("times", a["x"], a["y"])
            launch("axpy", a["x"], a["z"], 0.1)
            launch("times", a["x"], a["z"])

    with running("reference"):
        chained, apart, _ = both(program, lambda a, _: {a["x"]: 1.0})
    for which in ("forward", "reverse"):
        assert len(launches(chained, which)) < len(launches(apart, which)) / 8
        assert len(set(launches(chained, which))) <= 3
        assert len({id(part.kernel) for part, _, _ in chained._parts[which] if isinstance(part, Prepared)}) <= 4


def test_a_program_has_few_kernels_compiled_for_this(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(a: Arrays) -> None:
        for count in (2, 3, 4, 5):
            for _ in range(count):
                launch("times", a["x"], a["y"])
            own("behind", a["z"], a["x"])

    def joint() -> int:
        with running("reference"):
            chained, _, _ = both(program, lambda a, _: {a["x"]: 1.0})
        parts = [part for part, _, _ in chained._parts["forward"]]
        return len({id(part.kernel) for part in parts if isinstance(part, Prepared) and part.kernel.header})

    assert joint() > 2
    monkeypatch.setattr("gpuad.fusion.chain.KERNELS", 2)
    assert joint() == 2


def test_memory_seen_under_two_types_stays_apart() -> None:
    """Where the same bytes are written."""
    memory = np.zeros(16)
    kernel = api.kernel('extern "C" __global__ void put(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = 1.0f; }', "put").primal()
    other = api.kernel('extern "C" __global__ void put(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = 1.0; }', "put").primal()
    first = Link(kernel, (1, 1, 1), (8, 1, 1), [Memory(memory.view(np.float32)), np.int32(8)])
    together = Independent(first)
    assert together.takes(first)
    assert together.takes(Link(other, (1, 1, 1), (8, 1, 1), [Memory(memory, 4), np.int32(8)]))
    assert not together.takes(Link(other, (1, 1, 1), (8, 1, 1), [Memory(memory, 3), np.int32(8)]))


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.usefixtures("as_on_a_gpu")
def test_the_texts_compile() -> None:
    found = []
    with running("reference"):
        for seed in range(8):
            chained, _, _ = both(
                random_program(random.Random(seed)), lambda a, _: {a["x"]: 1.0, a["z"]: np.linspace(0.5, 1, N), a["m"]: 2.0}
            )
            found += [part.kernel for part, _, _ in chained._parts["whole"] if isinstance(part, Prepared) and part.kernel.header]
    names = {kernel.name: kernel for kernel in found}
    assert len(names) > 8
    assert set(nvrtc.resources(nvrtc.compile_cuda(cuda_source(list(names.values()))))) == set(names)
