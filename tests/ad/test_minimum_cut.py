"""The smallest cut: a few values are kept in place of the memory that they are made of, where that takes fewer bytes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY, cases
from random_cuda import random_kernel
from random_cuda_checks import Case

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.analysis.min_cut import SINK, SOURCE, minimum_cut
from gpuad.api import pattern_of
from gpuad.errors import UnsupportedError
from gpuad.pipeline import State
from gpuad.runtime.reference import Reference
from gpuad.tape.record.checkpoint_kernels import cutting

KERNELS = Path(__file__).parents[2] / "kernels"
NY, NX = 6, 32


def _boltzmann(save: str, steps: int, omega: Any = None) -> tuple[Any, gpuad.Tape]:
    """The gradient of a weighted sum of the last populations with respect to the first, by a ping-pong of steps."""
    step = gpuad.kernel(str(KERNELS / "lattice_boltzmann.cu"), "lattice_boltzmann")
    start = np.random.default_rng(0).uniform(0.09, 0.13, (9, NY, NX)).astype(np.float32)
    now, new = (Duplicated(a, np.zeros_like(a)) for a in (start, np.zeros_like(start)))
    first = now
    tape = gpuad.Tape(save=save)
    with tape:
        for _ in range(steps):
            step[(1, NY), (32,)](now, new, np.float32(1.2) if omega is None else omega, NY, NX)
            now, new = new, now
    tape.reverse({now: np.random.default_rng(1).standard_normal(start.shape).astype(np.float32)})
    return first.shadow, tape


def test_lattice_boltzmann_keeps_density_and_velocity(executor: Any) -> None:
    """12 bytes a cell and overwritten step, and the very gradient that saving everything gives."""
    with pipeline.executor_for_tests(executor):
        gradient, tape = _boltzmann("needed", 5)
        all_saved, _ = _boltzmann("all", 5)
    assert tape.stats.saved_bytes == 4 * 12 * NY * NX  # the last step's populations are still there
    assert np.array_equal(gradient, all_saved)
    assert np.abs(gradient).max() > 0
    (row,) = tape.explain().rows
    assert (row.name, row.bytes, row.pieces) == ("rho, ux, uy", 4 * 12 * NY * NX, 4)
    assert "test_minimum_cut.py" in row.needed_by and "test_minimum_cut.py" in row.overwritten_by


def test_with_an_active_rate_the_populations_themselves_are_needed(executor: Any) -> None:
    with pipeline.executor_for_tests(executor):
        omega = gpuad.Active(np.float32(1.2), np.zeros(1, np.float64))
        _, tape = _boltzmann("needed", 3, omega)
    assert tape.stats.saved_bytes == 2 * 36 * NY * NX


COLLIDE = """
extern "C" __global__ void collide(double* f, double rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
    for (int k = 0; k < 5; k++) sum += f[k * n + i];
    for (int k = 0; k < 5; k++) f[k * n + i] += rate * (sum * sum - f[k * n + i]);
}
extern "C" __global__ void clear(double* f, int begin, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f[begin + i] = 0;
}
extern "C" __global__ void flux(const double* f, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
    for (int k = 0; k < 5; k++) sum += f[k * n + i];
    out[i] += exp(sum);
}
"""
N = 8


def _program(save: str, run: Any) -> tuple[Any, gpuad.Tape]:
    rng = np.random.default_rng(3)
    f, out = (Duplicated(a, np.zeros_like(a)) for a in (rng.uniform(0.1, 0.3, 5 * N), np.zeros(N)))
    tape = gpuad.Tape(save=save)
    with tape:
        run(f, out)
    f.shadow[...] = rng.standard_normal(5 * N)
    out.shadow[...] = rng.standard_normal(N)
    tape.reverse()
    return f.shadow.copy(), tape


def _kernels() -> tuple[Any, Any, Any]:
    return tuple(gpuad.kernel(COLLIDE, name) for name in ("collide", "clear", "flux"))  # type: ignore[return-value]


def _saved(executor: Any, run: Any) -> int:
    """The bytes saved, where the gradient is that with everything saved."""
    with pipeline.executor_for_tests(executor):
        found, tape = _program("needed", run)
        wanted, _ = _program("all", run)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    return tape.stats.saved_bytes


def test_what_a_launch_itself_overwrites(executor: Any) -> None:
    collide, _, _ = _kernels()
    assert _saved(executor, lambda f, out: collide[1, N](f, 0.3, N)) == 8 * N


def test_a_copy_where_that_is_smaller(executor: Any) -> None:
    """Only half of one row is overwritten."""
    _, clear, flux = _kernels()

    def run(f: Any, out: Any) -> None:
        flux[1, N](f, out, N)
        clear[1, N](f, N, N // 2)

    assert _saved(executor, run) == 8 * N // 2


def test_one_copy_serves_many_who_need_it(executor: Any) -> None:
    """Each of six launches would keep 8 N bytes; a copy for all of them has 5 * 8 N."""
    _, clear, flux = _kernels()

    def run(f: Any, out: Any) -> None:
        for _ in range(6):
            flux[1, N](f, out, N)
        clear[1, 5 * N](f, 0, 5 * N)

    assert _saved(executor, run) == 5 * 8 * N


def test_values_kept_for_some_where_others_need_nothing(executor: Any) -> None:
    _, clear, flux = _kernels()

    def run(f: Any, out: Any) -> None:
        flux[1, N](f, out, N)
        flux[1, N](f, out, N)
        clear[1, 5 * N](f, 0, 5 * N)
        flux[1, N](f, out, N)

    assert _saved(executor, run) == 2 * 8 * N


def test_nothing_is_kept_of_memory_that_survives(executor: Any) -> None:
    _, _, flux = _kernels()
    assert _saved(executor, lambda f, out: flux[1, N](f, out, N)) == 0


def test_memory_behind_a_claim_is_watched() -> None:
    """It may be read live in the end."""
    _, _, flux = _kernels()
    f, out = (Duplicated(a, np.ones_like(a)) for a in (np.full(5 * N, 0.1), np.zeros(N)))
    tape = gpuad.Tape()
    with tape:
        flux[1, N](f, out, N)
    f.primal[3] = 7
    with pytest.raises(gpuad.errors.TapeError, match="changed"):
        tape.reverse()


# --- any kernel -----------------------------------------------------------------------------------------------------------------------


SEEDS = [range(first, first + 10) for first in range(0, cases(30, 30), 10)] if NIGHTLY else [range(7, 9)]  # one in ten has cuts


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_random_kernels_have_the_same_gradient_from_their_cuts(seeds: range) -> None:
    """For each set of arguments a cut stands for, the reverse from kept values is that from memory."""
    tried = sum(_same_from_cuts(seed) for seed in seeds)
    assert tried


def _same_from_cuts(seed: int) -> int:
    case = Case.of(random_kernel(seed))
    tried = 0

    def run(args: tuple[Any, ...]) -> None:
        nonlocal tried
        call = case.compiled.bind(case.kernel.grid, case.kernel.threads, args, 0, None)
        adjoint = case.compiled.reverse_for(pattern_of(case.compiled, call), call)
        state = pipeline.before(adjoint, call)
        wanted = _gradient(adjoint, call, state)
        positions = sorted({p.position for p in adjoint.parameters if p.role in ("primal", "entry")})
        for chosen in [*([p] for p in positions), positions]:
            cut = cutting(adjoint, frozenset(chosen))
            if cut is None:
                continue
            tried += 1
            logs = pipeline.new_logs(cut.adjoint, call)
            for old, new in zip(state.logs, logs, strict=False):
                new.root[...] = old.root
            spoiled = State(state.primals, state.entries, logs)
            call.run(cut.extraction, pipeline.arguments(cut.parameters, call, spoiled))
            found = _gradient(cut.adjoint, call, spoiled)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(wanted, found, strict=True)), (seed, chosen)

    with pipeline.executor_for_tests(Reference()), np.errstate(all="ignore"):
        w = case.direction()
        try:
            case.launch(run, {k: np.array(v) for k, v in w.items()})
        except UnsupportedError:
            return 0
    return tried


def _gradient(adjoint: Any, call: Any, state: Any) -> list[Any]:
    """The shadows after the reverse kernel alone, on memory as it is; they are put back."""
    roots = {id(s.root): s.root for a in call.bound.arguments for s in a.shadows}
    before = {k: r.copy() for k, r in roots.items()}
    pipeline.run_stages(adjoint, [pipeline.alone(adjoint, call)], call, state)
    after = [r.copy() for r in roots.values()]
    for k, r in roots.items():
        r[...] = before[k]
    return after


@pytest.mark.parametrize("seed", range(cases(20, 60)))
def test_a_minimum_cut_is_the_cheapest_of_all(seed: int) -> None:
    rng = random.Random(seed)
    nodes = list(range(6))
    edges: list[tuple[Any, Any]] = [(a, b) for a in nodes for b in nodes if a < b and rng.random() < 0.4]
    edges += [(SOURCE, n) for n in nodes if rng.random() < 0.4] + [(n, SINK) for n in nodes if rng.random() < 0.4]
    weights = {n: rng.choice((1, 4, 8)) for n in nodes if rng.random() < 0.8}
    sets = [c for r in range(len(weights) + 1) for c in itertools.combinations(weights, r) if _separates(edges, set(c))]
    found = minimum_cut(edges, weights)
    if not sets:
        assert found is None
        return
    assert found is not None and _separates(edges, set(found))
    assert sum(weights[n] for n in found) == min(sum(weights[n] for n in c) for c in sets)  # type: ignore[index]


def _separates(edges: list[tuple[Any, Any]], removed: set[Any]) -> bool:
    seen, waiting = {SOURCE}, [SOURCE]
    while waiting:
        at = waiting.pop()
        for a, b in edges:
            if a == at and b not in seen and b not in removed:
                seen.add(b)
                waiting.append(b)
    return SINK not in seen
