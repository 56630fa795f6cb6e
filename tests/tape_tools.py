"""What the tests of tapes share: kernels, a way to run a program in every mode, and a model of it in NumPy as the oracle.

A program is written twice: as launches that overwrite arrays, and as a model, plain NumPy on a dictionary of arrays. The model's Jacobian
comes from complex steps, all directions in one run: every array of the model has the directions as its first axis. That is exact to
rounding and knows nothing of gpuad.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Active, Duplicated
from gpuad.api import Kernel
from gpuad.runtime import allocation

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define K extern "C" __global__ void

K square(double* x, int n) { I; if (i < n) x[i] = x[i] * x[i]; }
K square_to(const double* x, double* y, int n) { I; if (i < n) y[i] = x[i] * x[i]; }
K half_square(double* v, const double* u, int n) { I; if (i < n) v[i] = 0.5 * u[i] * u[i]; }
K half_square_inside(double* v, const double* u, int n) { I; if (i > 0 && i < n - 1) v[i] = 0.5 * u[i] * u[i]; }
K sine(double* x, int n) { I; if (i < n) x[i] = sin(x[i]) + 0.5 * x[i]; }
K decay(double* x, int n) { I; if (i < n) x[i] = exp(-0.5 * x[i]); }
K times(double* x, const double* p, int n) { I; if (i < n) x[i] *= p[i]; }
K blend(double* z, const double* x, const double* y, int n) { I; if (i < n) z[i] = 0.7 * z[i] + sin(x[i] + 0.5 * y[i]); }
K product(double* z, const double* x, const double* y, int n) { I; if (i < n) z[i] = x[i] * y[i]; }
K add(double* z, const double* x, const double* y, int n) { I; if (i < n) z[i] = x[i] + y[i]; }
K copy(double* y, const double* x, int n) { I; if (i < n) y[i] = x[i]; }
K fill(double* x, double value, int n) { I; if (i < n) x[i] = value; }
K scale(double* x, double a, int n) { I; if (i < n) x[i] = a * x[i]; }
K axpy(double* y, const double* x, double a, int n) { I; if (i < n) y[i] += a * x[i]; }
K linear(double* v, const double* u, int n) { I; if (i > 0 && i < n - 1) v[i] = 0.5 * u[i] + 0.25 * (u[i - 1] + u[i + 1]); }
K stencil(double* v, const double* u, int n) {
    I; if (i > 0 && i < n - 1) v[i] = 0.3 * u[i - 1] + 0.2 * u[i] * u[i] - 0.1 * u[i + 1] * u[i];
}
K around(double* y, const double* p, int n) { I; if (i < n) y[i] = p[i - 1] * p[i + 1]; }
K neighbours(double* y, const double* a, const double* b, int n) { I; if (i < n) y[i] = a[i] * b[i]; }
K masked(double* x, const double* y, const int* mask, int n) { I; if (i < n && mask[i]) x[i] = 0.9 * x[i] * y[i] + 0.1; }
K gather(double* y, const double* x, const int* index, int n) { I; if (i < n) y[i] = 0.7 * x[index[i]] * x[index[i]]; }
K scatter(double* y, const double* x, const int* index, int n) { I; if (i < n) atomicAdd(&y[index[i]], 0.1 * x[i] * x[i]); }
K exchange(double* x, double* y, int n) { I; if (i < n) { double t = x[i]; x[i] = y[i]; y[i] = t; } }
K plane(double* v, const double* u, int rows, int columns, int pitch) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows) return;
    int k = y * pitch + x;
    v[k] = 0.4 * u[k] * u[k] + 0.1 * (u[k - 1] + u[k + 1] - u[k - pitch] * u[k + pitch]);
}
K iterate(double* x, const int* counts, int n) {
    I; if (i >= n) return;
    double s = x[i];
    for (int j = 0; j < counts[i]; ++j) s = sin(s) * s + 0.5;
    x[i] = s;
}
K powers(double* x, int times, int n) { I; if (i < n) for (int j = 0; j < times; ++j) x[i] = 0.8 * x[i] * x[i] + 0.2; }
K compact(double* out, const double* x, int* counter, int n) {
    I; if (i < n && x[i] > 0.0) { int place = atomicAdd(counter, 1); out[place] = x[i] * x[i]; }
}
K next_index(int* index, int n) { I; if (i < n) index[i] = (3 * index[i] + 1) % n; }
K flip(int* mask, int n) { I; if (i < n) mask[i] = 1 - mask[i]; }
K leaves(double* r, int n) { I; if (i == 0) r[n] = r[n - 1] + r[n - 2]; }
"""
THREADS = 8  # a block; small, so that programs on a few elements have several

Arrays = Mapping[str, Any]
Program = Callable[..., None]  # (tape, pairs by name)
Model = Callable[[dict[str, Any]], None]  # changes the arrays of a dictionary in place, directions first


def cuda(name: str) -> Any:
    """A kernel of SOURCE."""
    return compiled(SOURCE, name)


def launch(name: str, *args: Any, n: int | None = None) -> None:
    """Launches a kernel of SOURCE with one thread an element; its last argument is the number of elements."""
    count = len_of(args[0]) if n is None else n
    cuda(name)[-(-max(count, 1) // THREADS), THREADS](*args, count)


def len_of(array: Any) -> int:
    return int(raw(array).shape[0])


def pair(values: Any) -> Duplicated:
    """New memory with a zero shadow."""
    array = np.array(values, dtype=np.float64)
    return Duplicated(array, np.zeros_like(array))


def raw(x: Any) -> Any:
    """The array without its shadow."""
    return getattr(x, "primal", x)


@dataclass(frozen=True)
class Run:
    """A program that was recorded and reversed."""

    tape: gpuad.Tape
    primals: dict[str, Any]
    shadows: dict[str, Any]
    unused: bool = False  # whether the tape refused the seeds, since nothing reaches them


def run(
    program: Program, inputs: Arrays, seeds: Arrays, tape: gpuad.Tape | None = None, priors: Arrays | None = None, *, plain: bool = False
) -> Run:
    """Records `program(tape, pairs)` on copies of the inputs and reverses it. Floating arrays become Duplicated, floats Active; others
    stay. `plain`: the seeds are put into the shadows, and `reverse()` takes them as they are."""
    pairs = {name: _input(value) for name, value in inputs.items()}
    for name, prior in (priors or {}).items():
        pairs[name].shadow[...] = prior
    tape = tape or gpuad.Tape()
    with tape:
        program(tape, pairs)
    if plain:
        for name, seed in seeds.items():
            pairs[name].shadow[...] = seed
    given = None if plain else {pairs[name]: seed for name, seed in seeds.items()}
    unused = False
    try:
        tape.reverse(given)
    except gpuad.TapeError as error:
        unused = "reaches the seeds" in str(error)
        if not unused:
            raise
        tape.reverse(given, allow_unused=True)
    primals = {name: raw(p).copy() if hasattr(raw(p), "copy") else raw(p) for name, p in pairs.items()}
    shadows = {n: p.shadow.copy() for n, p in pairs.items() if isinstance(p, Duplicated | Active)}
    assert not unused or not any(np.any(s) for n, s in shadows.items() if n not in (priors or {})), "refused, but there is a gradient"
    return Run(tape, primals, shadows, unused)


def run_again(program: Program, inputs: Arrays, seeds: Arrays) -> Iterator[tuple[str, Run]]:
    """The same on one set of arrays: recorded, recorded once more, when it is known, and run by a graph, where it can be."""
    pairs, tape = {name: _input(value) for name, value in inputs.items()}, gpuad.Tape()
    active = {n: p for n, p in pairs.items() if isinstance(p, Duplicated | Active)}

    def begin() -> None:
        for name, value in inputs.items():
            if not isinstance(value, float):
                raw(pairs[name])[...] = value
        for name, p in active.items():
            p.shadow[...] = seeds.get(name, 0)

    def result() -> Run:
        primals = {name: raw(p).copy() if hasattr(raw(p), "copy") else raw(p) for name, p in pairs.items()}
        return Run(tape, primals, {n: p.shadow.copy() for n, p in active.items()})

    for which in ("recorded", "known"):
        begin()
        with tape:
            program(tape, pairs)
        tape.reverse()
        yield which, result()
    try:
        graph = tape.graph()
    except gpuad.TapeError as refused:
        assert "tape.overwrites" in str(refused)
        return
    for which in ("graph", "graph again"):
        begin()
        graph.launch()
        yield which, result()


def _input(value: Any) -> Any:
    if isinstance(value, float):
        return Active(value, np.zeros(()))
    return pair(value) if np.asarray(value).dtype.kind == "f" else np.array(value)


def jacobian_transposed(model: Model, inputs: Arrays, seeds: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
    """The final arrays, and for each floating input the gradient of the sum of seed times final value, by complex steps."""
    floats = {n: np.asarray(v, dtype=np.float64) for n, v in inputs.items() if np.asarray(v).dtype.kind == "f"}
    total = sum(v.size for v in floats.values())
    step = 1e-30
    state: dict[str, Any] = {}
    at = 0
    for name, value in inputs.items():
        if name not in floats:
            state[name] = np.array(value)
            continue
        spread = np.repeat(floats[name].astype(complex)[None], total + 1, axis=0)
        flat = spread.reshape(total + 1, -1)
        flat[np.arange(at, at + flat.shape[1]), np.arange(flat.shape[1])] += 1j * step
        state[name] = spread
        at += flat.shape[1]
    model(state)
    loss = np.zeros(total)
    for name, seed in seeds.items():
        final = state[name][:total].imag / step
        loss += (final * np.broadcast_to(seed, floats[name].shape)).reshape(total, -1).sum(axis=1)
    gradients, at = {}, 0
    for name, value in floats.items():
        gradients[name] = loss[at : at + value.size].reshape(value.shape)
        at += value.size
    finals = {n: (state[n][total].real if n in floats else state[n]) for n in inputs}
    return finals, gradients


def agree(got: Arrays, wanted: Arrays, what: str, tolerance: float = 1e-11) -> None:
    """Every array equals the wanted one, relative to the largest entry."""
    for name, value in wanted.items():
        scale = max(1.0, float(np.abs(value).max(initial=0.0)))
        np.testing.assert_allclose(got[name] / scale, value / scale, rtol=0, atol=tolerance, err_msg=f"{what} `{name}`")


def check(
    program: Program, model: Model, inputs: Arrays, seeds: Arrays, executor: str, saved: int | None = None, priors: Arrays | None = None
) -> Run:
    """The program's primals and gradients are those of the model: with what is needed saved (exactly `saved` bytes, if given), with all
    saved, and on one tape twice; and `restore` gives the inputs back."""
    finals, gradients = jacobian_transposed(model, inputs, seeds)
    for name, prior in (priors or {}).items():
        gradients[name] = gradients[name] + prior
    with running(executor):
        tape = gpuad.Tape()
        first = run(program, inputs, seeds, tape, priors)
        if saved is not None:
            assert tape.stats.saved_bytes == saved == tape.explain().saved_bytes, str(tape.explain())
        again = run(program, inputs, seeds, tape, priors)
        everything = run(program, inputs, seeds, gpuad.Tape(save="all", check="exact"), priors)
        restored = run(program, inputs, seeds, gpuad.Tape(restore=True), priors)
    for name, result in {"needed": first, "again": again, "all": everything, "restore": restored}.items():
        agree(result.shadows, gradients, f"{name}: gradient of")
        start = {n: np.asarray(v) for n, v in inputs.items()}
        agree(result.primals, start if name == "restore" else finals, f"{name}: state of")
    return first


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Within it the list holds one entry a new array of gpuad's own: its bytes."""
    made: list[int] = []
    allocation.gates.append(made.append)
    try:
        yield made
    finally:
        allocation.gates.remove(made.append)


class Fault(Exception):
    """An error that a test injects."""


@contextlib.contextmanager
def failing(executor: Any, at: int, method: str = "launch", after: bool = False) -> Iterator[list[str]]:
    """Within it call number `at` of the executor's method raises Fault, before it does its work or after. The list holds an entry a
    call: for launches the kernel's name."""
    calls: list[str] = []
    real = getattr(executor, method)

    def call(*args: Any, **keywords: Any) -> Any:
        calls.append(getattr(args[0], "name", method))
        if len(calls) - 1 == at:
            if after:
                real(*args, **keywords)
            raise Fault(f"{method} {at}")
        return real(*args, **keywords)

    setattr(executor, method, call)
    try:
        yield calls
    finally:
        delattr(executor, method)


__all__ = [
    "EXECUTORS", "SOURCE", "THREADS", "Fault", "Run", "agree", "check", "compiled", "counted", "cuda", "failing", "jacobian_transposed",
    "launch", "pair", "raw", "run", "running",
]  # fmt: skip


def edited(steps: list[Any], r: random.Random, random_step: Callable[[random.Random], Any]) -> list[Any]:
    """The same program, or one that differs somewhere; `random_step`: one more of its steps."""
    made, at = list(steps), r.randrange(len(steps) + 1)
    match r.choice(["same", "same", "same", "longer", "shorter", "insert", "drop", "replace", "swap"]):
        case "longer":
            made += [random_step(r), random_step(r)]
        case "shorter":
            made = made[:at]
        case "insert":
            made.insert(at, random_step(r))
        case "drop":
            del made[at : at + 1]
        case "replace":
            made[at : at + 1] = [random_step(r)]
        case "swap":
            made.reverse()
    return made or [random_step(r)]


@contextlib.contextmanager
def nothing_is_analysed() -> Iterator[None]:
    """Within it no call is bound, no rule checked and no reverse planned."""
    with pytest.MonkeyPatch.context() as patch:
        for what in ("gpuad.tape.reverse.reversal_plan.Reversal.plan", "gpuad.tape.record.rule_calls._checked"):
            patch.setattr(what, never)
        patch.setattr(Kernel, "bind", never)
        yield


def never(*_: Any, **__: Any) -> None:
    """In the place of what must not be called."""
    raise AssertionError("this was known")
