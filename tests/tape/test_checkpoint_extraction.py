"""Values that are kept in place of memory are written by the launch that reads the memory, once a program is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases

import gpuad
from gpuad import Duplicated, LaunchError, api, fusion, pipeline
from gpuad.api import pattern_of
from gpuad.codegen import cuda_source
from gpuad.fusion.forward_reverse_kernel import _on_memory
from gpuad.runtime import nvrtc
from gpuad.runtime.base import Prepared
from gpuad.tape.account import FASTER
from gpuad.tape.facade import recording_of
from gpuad.tape.record.checkpoint_extraction import reads_fewer_bytes
from gpuad.tape.record.checkpoint_kernels import cutting
from gpuad.tape.record.recorded_launch import Launched

TEXT = """
__device__ double mean(const double* f, int i, int n) { double s = 0; for (int k = 0; k < 5; k++) s += f[k * n + i]; return s / 5; }
extern "C" __global__ void relax(const double* f, double* g, double rate, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int shift[5] = {0, 1, 2, -1, -2};
    const double m = mean(f, i, n);
    for (int k = 0; k < 5; k++) g[k * n + (i + shift[k] + n) % n] = f[k * n + i] + rate * (m * m * m - f[k * n + i]);
}
extern "C" __global__ void in_place(double* f, double rate, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double m = mean(f, i, n);
    for (int k = 0; k < 5; k++) f[k * n + i] += rate * (m * m - f[k * n + i]);
}
extern "C" __global__ void beside(const double* f, double* g, int from, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double m = mean(f, i, n);
    for (int k = 0; k < 5; k++) g[from + k * n + i] = m * m * (k + 1);
}
extern "C" __global__ void clear(double* f, int begin, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int k = 0; k < 3; k++) f[begin + k * n + i] = 0;
}
extern "C" __global__ void flux(const double* f, double* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += exp(mean(f, i, n));
}
"""
NAMES = ("relax", "in_place", "beside", "clear", "flux")
KERNELS = {name: gpuad.kernel(TEXT, name) for name in NAMES}
N = 12
Pairs = dict[str, Any]
Program = Callable[[Pairs], None]


def pairs() -> Pairs:
    return {name: Duplicated(np.zeros(size), np.zeros(size)) for name, size in (("u", 10 * N), ("v", 5 * N), ("w", 5 * N), ("out", N))}


def run(name: str, *args: Any) -> None:
    KERNELS[name][1, 16](*args, N)


def ping_pong(p: Pairs) -> None:
    u, v = p["u"][: 5 * N], p["v"]
    for k in range(4):
        run("relax", u, v, 0.3 + 0.1 * k)
        u, v = v, u
    run("flux", u, p["out"])


def parts_overwritten(p: Pairs) -> None:
    """What two launches read is overwritten in three parts, one after the other."""
    run("relax", p["v"], p["w"], 0.4)
    run("flux", p["v"], p["out"])
    for k in (0, 1, 2):
        run("clear", p["v"], k * N)
    run("flux", p["w"], p["out"])
    run("relax", p["w"], p["v"], 0.2)
    run("clear", p["w"], 0)
    run("flux", p["v"], p["out"])


def of_itself(p: Pairs) -> None:
    run("in_place", p["v"], 0.3)
    run("in_place", p["v"], 0.2)
    run("flux", p["v"], p["out"])


def one_allocation(p: Pairs) -> None:
    """Views of one array: apart for what is known of the kernel, apart but that is not known, and the same view."""
    run("beside", p["u"][: 5 * N], p["u"][5 * N :], 0)
    run("relax", p["u"][5 * N :], p["u"][: 5 * N], 0.2)
    run("beside", p["u"], p["u"], 5 * N)
    run("relax", p["u"][5 * N :], p["u"][: 5 * N], 0.6)
    run("flux", p["u"][: 5 * N], p["out"])


PROGRAMS = {f.__name__: f for f in (ping_pong, parts_overwritten, of_itself, one_allocation)}
KEPT = {"ping_pong": (3, 3), "parts_overwritten": (4, 4), "of_itself": (2, 0), "one_allocation": (4, 1)}  # and of these by the launch
LIGHT = {"ping_pong": 2, "parts_overwritten": 1, "of_itself": 1, "one_allocation": 1}  # by the launch, of what nobody overwrites


def fill(p: Pairs, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for pair in p.values():
        pair.primal[...] = rng.uniform(0.1, 0.9, pair.primal.shape)
        pair.shadow[...] = rng.standard_normal(pair.shadow.shape)


def reversed_once(tape: gpuad.Tape, p: Pairs, program: Program, seed: int) -> list[Any]:
    fill(p, seed)
    with tape:
        program(p)
    tape.reverse()
    return [a.copy() for pair in p.values() for a in (pair.primal, pair.shadow)]


def expected(program: Program, seed: int) -> list[Any]:
    """With all saved that is overwritten."""
    return reversed_once(gpuad.Tape(save="all"), pairs(), program, seed)


def close(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def launched(tape: gpuad.Tape) -> list[str]:
    return [a.kernel.name for s in recording_of(tape).trace.ops for a in s.actions if isinstance(a, Prepared)]


def actions(tape: gpuad.Tape) -> int:
    return sum(len(s.actions) for s in recording_of(tape).trace.ops)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_comes_again(name: str, executor: str) -> None:
    with running(executor):
        tape, p, program = gpuad.Tape(), pairs(), PROGRAMS[name]
        first = reversed_once(tape, p, program, 1)
        close(first, expected(program, 1))
        kept, early = KEPT[name]
        before, saved = actions(tape), tape.stats.saved_bytes
        assert sum(op.keeping is not None for op in recording_of(tape).trace.ops) == kept
        again = reversed_once(tape, p, program, 1)
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert sum(n.endswith("_keep") for n in launched(tape)) == early + LIGHT[name]
        assert actions(tape) == before - early
        assert tape.stats.saved_bytes == saved + LIGHT[name] * N * 8
        assert tape.explain().saved_bytes == tape.stats.saved_bytes
        assert sum(row.pieces for row in tape.explain().rows if row.overwritten_by == FASTER) == LIGHT[name]
        for seed in (2, 3):
            close(reversed_once(tape, p, program, seed), expected(program, seed))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph(name: str, executor: str) -> None:
    """Made of the first recording, or of one that has come again."""
    with running(executor):
        for times in (1, 2):
            tape, p, program = gpuad.Tape(), pairs(), PROGRAMS[name]
            for seed in range(times):
                reversed_once(tape, p, program, seed)
            graph = tape.graph()
            assert sum("_keep" in n for n in launched(tape)) == KEPT[name][1] + (LIGHT[name] if times == 2 else 0)
            for seed in (5, 6):
                fill(p, seed)
                graph.launch()
                close([a for pair in p.values() for a in (pair.primal, pair.shadow)], expected(program, seed))
            close(reversed_once(tape, p, program, 7), expected(program, 7))


def without_last(p: Pairs) -> None:
    """Differs after the launch whose values are kept, before what overwrites its memory."""
    run("relax", p["u"][: 5 * N], p["v"], 0.3)
    run("flux", p["v"], p["out"])


def another_after_it(p: Pairs) -> None:
    """Something else is saved first, where the values would lie."""
    run("relax", p["u"][: 5 * N], p["v"], 0.3)
    run("in_place", p["v"], 0.1)
    run("relax", p["v"], p["u"][: 5 * N], 0.5)
    run("flux", p["u"][: 5 * N], p["out"])


def another_later(p: Pairs) -> None:
    """Differs after the first values have been kept."""
    run("relax", p["u"][: 5 * N], p["v"], 0.3)
    run("relax", p["v"], p["u"][: 5 * N], 0.4)
    run("in_place", p["v"], 0.1)
    run("clear", p["u"], 3)
    run("flux", p["v"], p["out"])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("other", [without_last, another_after_it, another_later])
def test_a_program_that_differs(other: Program) -> None:
    with running("reference"):
        tape, p = gpuad.Tape(), pairs()
        for seed in range(2):
            reversed_once(tape, p, ping_pong, seed)
        assert any(n.endswith("_keep") for n in launched(tape))
        for seed, program in enumerate((other, other, ping_pong, other, ping_pong, ping_pong, ping_pong)):
            close(reversed_once(tape, p, program, seed), expected(program, seed))


@contextmanager
def failing(number: int) -> Iterator[None]:
    """Within it the launch with this number, from now on, fails."""
    perform, seen = Prepared.__call__, [0]

    def call(self: Any, *args: Any) -> Any:
        seen[0] += 1
        if seen[0] == number:
            raise LaunchError("no")
        return perform(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Prepared, "__call__", call, raising=False)
        yield


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_launch_that_fails_in_the_middle(number: int) -> None:
    with running("reference"):
        tape, p = gpuad.Tape(), pairs()
        for seed in range(2):
            reversed_once(tape, p, ping_pong, seed)
        fill(p, 3)
        with failing(number), pytest.raises(LaunchError), tape:
            ping_pong(p)
        with pytest.raises(gpuad.TapeError, match="interrupted"):
            tape.reverse()
        for seed in (4, 5, 6):
            close(reversed_once(tape, p, ping_pong, seed), expected(ping_pong, seed))


def test_code_that_the_tape_does_not_see_overwrites_it() -> None:
    def program(p: Pairs) -> None:
        run("relax", p["v"], p["w"], 0.4)
        tape = gpuad.arguments.recorder.current.get()
        assert tape is not None
        tape.overwrites(p["v"])
        p["v"].primal[...] = 0.7
        run("relax", p["w"], p["v"], 0.2)
        run("flux", p["v"], p["out"])

    with running("reference"):
        tape, p = gpuad.Tape(), pairs()
        for seed in range(3):
            close(reversed_once(tape, p, program, seed), expected(program, seed))
        assert launched(tape) == ["relax_keep", "relax_keep", "flux_keep"]


def test_nothing_is_changed_where_launches_stay_apart() -> None:
    with running("reference"), pipeline.nothing_chained_for_tests():
        tape, p = gpuad.Tape(), pairs()
        for seed in range(3):
            close(reversed_once(tape, p, ping_pong, seed), expected(ping_pong, seed))
        assert not any(n.endswith("_keep") for n in launched(tape))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_light_values_stand_for_may_change(executor: str) -> None:
    """The first time the adjoints read it."""
    with running(executor):
        tape, p = gpuad.Tape(), pairs()
        for seed in range(3):
            fill(p, seed)
            with tape:
                ping_pong(p)
            before = [pair.primal.copy() for pair in p.values()]
            for name in "uvw":
                p[name].primal.fill(np.nan)
            if seed == 0:
                with pytest.raises(gpuad.TapeError, match="was changed between the recording and the reverse"):
                    tape.reverse()
                continue
            tape.reverse()
            found = [x for primal, pair in zip(before, p.values(), strict=True) for x in (primal, pair.shadow)]
            close(found, expected(ping_pong, seed))


def test_a_graph_reads_what_was_there_when_it_was_made() -> None:
    with running("reference"):
        tape, p = gpuad.Tape(), pairs()
        fill(p, 1)
        with tape:
            ping_pong(p)
        graph = tape.graph()
        tape.reverse()  # the graph was not launched: nothing is kept yet but what is overwritten
        close([a for pair in p.values() for a in (pair.primal, pair.shadow)], expected(ping_pong, 1))
        for seed in (2, 3):
            close(reversed_once(tape, p, ping_pong, seed), expected(ping_pong, seed))
        fill(p, 4)
        graph.forward()
        p["u"].primal.fill(0.5)
        with pytest.raises(gpuad.TapeError, match="was changed between the recording and the reverse"):
            graph.reverse()
        fill(p, 5)
        graph.launch()
        close([a for pair in p.values() for a in (pair.primal, pair.shadow)], expected(ping_pong, 5))
        close(reversed_once(tape, p, ping_pong, 6), expected(ping_pong, 6))


def random_program(rng: random.Random) -> Program:
    steps = [
        (rng.choice([*NAMES, "relax", "relax", "flux"]), rng.sample(range(4), 2), rng.uniform(0.1, 0.6)) for _ in range(rng.randint(2, 7))
    ]

    def program(p: Pairs) -> None:
        fields = [p["u"][: 5 * N], p["u"][5 * N :], p["v"], p["w"]]
        for name, (a, b), rate in steps:
            more = {"relax": (fields[b], rate), "in_place": (rate,), "beside": (fields[b], 0), "clear": (a,), "flux": (p["out"],)}
            run(name, fields[a], *more[name])

    return program


@pytest.mark.one_of(2)
@pytest.mark.parametrize("number", range(cases(4, 8)))
def test_random_programs_in_turn(number: int) -> None:
    """Each of two comes again and again, and they take the place of one another."""
    rng = random.Random(number)
    programs = [random_program(rng) for _ in range(2)]
    with running("reference"):
        tape, p = gpuad.Tape(), pairs()
        for seed, which in enumerate((0, 0, 0, 1, 1, 0, 0)):
            close(reversed_once(tape, p, programs[which], seed), expected(programs[which], seed))


def test_values_of_more_than_a_third_are_not_light() -> None:
    """Two numbers are read, and their mean would be kept. On a GPU nothing is light."""
    text = """extern "C" __global__ void two(const double* f, double* out, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        double m = 0;
        for (int k = 0; k < 2; k++) m += f[k * n + i] / 2;
        out[i] += exp(m);
    }"""
    two, shape = gpuad.kernel(text, "two"), ((1,), (16,))
    with running("reference"):
        tape, f, out = gpuad.Tape(), Duplicated(np.ones(32), np.zeros(32)), Duplicated(np.zeros(16), np.ones(16))
        for _ in range(3):
            with tape:
                two[shape](f, out, 16)
            assert launched(tape) == ["two"]
            out.shadow.fill(1.0)
            tape.reverse()
        operation = recording_of(tape).operations[0]
        assert isinstance(operation, Launched)
        cut = operation.cuts.whole if operation.cuts is not None else None
        assert cut is not None and cut.nbytes == 8
        assert not reads_fewer_bytes(operation, cut)
        tape = gpuad.Tape()
        with tape:
            run("flux", pairs()["v"], pairs()["out"])
        operation = recording_of(tape).operations[0]
        assert isinstance(operation, Launched)
        cut = operation.cuts.whole if operation.cuts is not None else None
        assert cut is not None and reads_fewer_bytes(operation, cut)
        on_gpu = replace(operation.call, bound=replace(operation.call.bound, library="cupy"))
        assert not reads_fewer_bytes(replace(operation, call=on_gpu), cut)


def extraction_of(name: str, *args: Any) -> tuple[Any, Any, Any]:
    kernel = api.kernel(KERNELS[name])
    call = kernel.bind((1,), (16,), (*args, N), 0, None)
    adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
    cut = cutting(adjoint, frozenset({0}))
    assert cut is not None
    return kernel.primal(call.aliases()), cut, call


def test_what_the_launch_overwrites_itself_is_read_by_a_launch_of_its_own() -> None:
    """The premise: no thread of the launch writes what is read."""
    p = pairs()
    primal, cut, call = extraction_of("relax", p["v"], p["w"], 0.3)
    kernel = fusion.keeping(cut.adjoint, primal, cut.extraction, cut.saved, call)
    assert kernel is not None
    assert kernel.params == (*primal.params, *cut.saved)
    primal, cut, call = extraction_of("in_place", p["v"], 0.3)
    assert fusion.keeping(cut.adjoint, primal, cut.extraction, cut.saved, call) is None
    primal, cut, call = extraction_of("relax", p["v"], p["w"], 0.3)
    f, g, *others = primal.params
    turned = replace(primal, params=(f, g, *others), body=_on_memory(cut.extraction.body, {f: g}))  # reads what is written
    assert fusion.keeping(cut.adjoint, primal, replace(turned, params=cut.extraction.params), cut.saved, call) is None


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_the_launch_with_its_values_compiles_under_nvrtc() -> None:
    primal, cut, call = extraction_of("relax", *(pairs()[name] for name in "vw"), 0.3)
    kernel = fusion.keeping(cut.adjoint, primal, cut.extraction, cut.saved, call)
    assert kernel is not None
    assert nvrtc.resources(nvrtc.compile_cuda(cuda_source([kernel])))["relax_keep"].registers > 0
