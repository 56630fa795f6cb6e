"""Faults that were found once, in each way in which a gradient is computed: `docs/testing.md` lists which test bears which of them.

Ways are executors times calls: `autodiff`, a tape that comes again, a graph, deterministic sums, second derivatives, which are compared
with differences of the gradient too. What a call refuses it
has to refuse in each of them, before anything is written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running

import gpuad
from gpuad import Duplicated
from gpuad.errors import GpuadError, LaunchError, TapeError
from gpuad.testing.launch_memory import Launch, LaunchMemory
from gpuad.testing.second_check import second_checks

Call = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]  # text, grid, block, arguments


def by_autodiff(call: Call) -> None:
    text, grid, block, args = call
    gpuad.autodiff(compiled(text, "k"), grid, block, args)


def deterministically(call: Call) -> None:
    with gpuad.deterministic():
        by_autodiff(call)


def _again(call: Call, reverse: Callable[[gpuad.Tape], Callable[[], None]]) -> None:
    """Three rounds on a tape, each from the same arrays and shadows."""
    text, grid, block, args = call
    tape, pairs = gpuad.Tape(), [a for a in args if isinstance(a, Duplicated)]
    before = [(a.primal.copy(), a.shadow.copy()) for a in pairs]
    for _ in range(3):
        for pair, (primal, shadow) in zip(pairs, before, strict=True):
            pair.primal[...], pair.shadow[...] = primal, shadow
        with tape:
            compiled(text, "k")(grid, block, args)
        reverse(tape)()


def by_tape(call: Call) -> None:
    _again(call, lambda tape: tape.reverse)


def by_graph(call: Call) -> None:
    text, grid, block, args = call
    tape, pairs = gpuad.Tape(), [a for a in args if isinstance(a, Duplicated)]
    before = [(a.primal.copy(), a.shadow.copy()) for a in pairs]
    with tape:
        compiled(text, "k")(grid, block, args)
    graph = tape.graph()
    for _ in range(2):
        for pair, (primal, shadow) in zip(pairs, before, strict=True):
            pair.primal[...], pair.shadow[...] = primal, shadow
        graph.launch()


def by_hvp(call: Call) -> None:
    """The gradient that comes beside second derivatives; and these, beside differences of it."""
    text, grid, block, args = call
    before = tuple(copy.deepcopy(a) for a in args)
    dots = tuple(Duplicated(np.zeros_like(a.primal), np.zeros_like(a.shadow)) if isinstance(a, Duplicated) else None for a in args)
    gpuad.hvp(compiled(text, "k"), grid, block, args, dots)
    state, notes = LaunchMemory(Launch(compiled(text, "k"), grid, block), before), list[str]()
    with state.kept():
        checks = list(second_checks(state, state.precision(), np.random.default_rng(0), notes))
    assert checks and all(check.passed for check in checks), (checks, notes)


WAYS = {"autodiff": by_autodiff, "deterministic": deterministically, "tape": by_tape, "graph": by_graph, "hvp": by_hvp}


@pytest.fixture(params=[(way, executor) for way in WAYS for executor in ("host", "reference")], ids="-".join)
def way(request: pytest.FixtureRequest) -> Any:
    """What takes a call, within the executor."""
    name, executor = request.param
    with running(executor):
        yield WAYS[name]


def pair(values: Sequence[float] | float, seed: Sequence[float] | float) -> Duplicated:
    return Duplicated(np.array(values, float, ndmin=1), np.array(seed, float, ndmin=1))


# --- a kernel's gradient -----------------------------------------------------------------------------------------------------------------

BESIDE = """extern "C" __global__ void k(const double* u, double* v, const double* c, double* y, int n, int m) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v[i] = 2.0 * u[i];
    for (int j = 0; j < m; j++) atomicAdd(&y[j], c[j]); }"""


@pytest.mark.parametrize("n", [3, 7, 13])
def test_work_beside_a_loop_over_the_grid_counts_once_a_thread(way: Callable[[Call], None], n: int) -> None:
    u, v, c, y = pair(np.ones(n), np.zeros(n)), pair(np.ones(n), np.ones(n)), pair(np.ones(4), np.zeros(4)), pair(np.ones(4), np.ones(4))
    way((BESIDE, (2,), (3,), (u, v, c, y, n, 4)))
    assert c.shadow.tolist() == [6.0] * 4 and u.shadow.tolist() == [2.0] * n


ADDED = 'extern "C" __global__ void k(double* y, const double* w, int n) { int i = threadIdx.x; if (i < n) BODY }'


@pytest.mark.parametrize("body", ["y[i] += w[i];", "y[i] = y[i] + w[i];", "atomicAdd(&y[i], w[i]);"])
def test_what_is_added_to_keeps_its_adjoint(way: Callable[[Call], None], body: str) -> None:
    y = pair(np.ones(3), [1.0, 2.0, 3.0])
    way((ADDED.replace("BODY", body), (1,), (4,), (y, np.ones(3), 3)))
    assert y.shadow.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "value, x, slope",
    [("fmod(1.0, x)", 0.1, -9.0), ("remainder(1.0, x)", 1 / 5.5, -5.0), ("expm1(x)", -40.0, np.exp(-40.0)), ("tanh(x)", 20.0, None)],
)
def test_slopes_of_functions_where_others_lose_all_digits(way: Callable[[Call], None], value: str, x: float, slope: float | None) -> None:
    u, v = pair(x, 0.0), pair(0.0, 1.0)
    way((f'extern "C" __global__ void k(const double* u, double* v) {{ double x = u[0]; v[0] = {value}; }}', (1,), (1,), (u, v)))
    np.testing.assert_allclose(u.shadow[0], 4 * np.exp(-40.0) if slope is None else slope, rtol=1e-12)


@pytest.mark.parametrize(
    ("body", "dy", "da"),
    [
        ("y[t] = rint(y[t]); __syncthreads(); y[t] = y[t] * a[t];", [0.0, 0.0], [3.0, 1.0]),
        ("y[t] = y[t] * y[t]; if (a[t] > 0) y[t] = floor(a[t]); y[t] = y[t] * a[t];", [0.0, 2 * 1.3 * -2.3], [1.0, 1.3 * 1.3]),
        (
            "double s[2] = {y[t], y[t] * a[t]}; s[t] = rint(s[t]); y[t] = s[0] * s[1] * a[t];",
            [3 * 1.4 * 1.4, -3 * -2.3],
            [3 * 3.2 * 2 * 1.4, -3 * 1.3],
        ),
    ],
)
def test_what_is_overwritten_by_something_of_derivative_zero(way: Callable[[Call], None], body: str, dy: Any, da: Any) -> None:
    text = f'extern "C" __global__ void k(double* y, const double* a) {{ int t = threadIdx.x; {body} }}'
    y, a = pair([3.2, 1.3], [1.0, 1.0]), pair([1.4, -2.3], [0.0, 0.0])
    way((text, (1,), (2,), (y, a)))
    np.testing.assert_allclose(y.shadow, dy, rtol=1e-12)
    np.testing.assert_allclose(a.shadow, da, rtol=1e-12)


# --- arguments that lie ------------------------------------------------------------------------------------------------------------------

READ = 'extern "C" __global__ void k(const double* w, double* y, int n) { int i = threadIdx.x; if (i < n) y[i] = w[i] * w[i]; }'


@pytest.mark.parametrize("lie", ["a stride of 0", "a read past the end", "None"])
def test_arguments_that_lie_are_refused(way: Callable[[Call], None], lie: str) -> None:
    """Before anything is written: neither an array nor a shadow."""
    y = pair(np.full(4, 7.0), np.full(4, 5.0))
    w: Any = {
        "a stride of 0": np.broadcast_to(np.ones(1), 4),
        "a read past the end": Duplicated(np.ones(2), np.zeros(2)),
        "None": None,
    }[lie]
    with pytest.raises(
        LaunchError, match={"a stride of 0": "stride of 0", "None": "`w` is None"}.get(lie, "reads `w` from element 0 to 3")
    ):
        way((READ, (1,), (4,), (w, y, 4)))
    assert y.primal.tolist() == [7.0] * 4 and y.shadow.tolist() == [5.0] * 4
    assert lie != "a read past the end" or not w.shadow.any()


# --- programs ----------------------------------------------------------------------------------------------------------------------------

SQUARE = 'extern "C" __global__ void k(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }'


@pytest.fixture(params=[("host", False), ("reference", False), ("host", True), ("reference", True)], ids=str)
def tape(request: pytest.FixtureRequest) -> Any:
    """A tape within an executor, and with sums that do not depend on the order of threads."""
    executor, fixed = request.param
    with running(executor):
        if not fixed:
            yield gpuad.Tape()
            return
        with gpuad.deterministic():
            yield gpuad.Tape()


def squared(tape: gpuad.Tape, x: Duplicated, between: Callable[[], None] = lambda: None) -> None:
    """Two squares of the first two elements, with something between them."""
    kernel = compiled(SQUARE, "k")
    with tape:
        kernel((1,), (4,), (x, 2))
        between()
        kernel((1,), (4,), (x, 2))


def test_a_program_that_overwrites_its_only_input_says_so(tape: gpuad.Tape) -> None:
    h = pair(np.ones(3), np.zeros(3))
    for finish in (tape.reverse, tape.graph):
        with tape:
            h[...] = np.full(3, 2.0)
            compiled(SQUARE, "k")((1,), (4,), (h, 3))
        with pytest.raises(TapeError, match=r"overwrites its `\w+` before"):
            finish({h: 1.0})


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_raw_write_fails_where_it_stands(tape: gpuad.Tape, rounds: int) -> None:
    """In the middle of the block and behind its last operation, in every round."""
    for late in (False, True):
        x = pair(np.full(3, 2.0), np.zeros(3))

        def write(x: Duplicated = x) -> None:
            x.primal[0] = 0.0

        for k in range(rounds):
            x.primal[...] = 2.0
            if k < rounds - 1:
                squared(tape, x)
                continue
            with pytest.raises((ValueError, GpuadError), match="read-only"):
                if late:
                    with tape:
                        compiled(SQUARE, "k")((1,), (4,), (x, 2))
                        write()
                else:
                    squared(tape, x, write)
        x.primal[0] = 1.0  # it is writable again


def test_elements_that_nothing_writes_start_fresh_too(tape: gpuad.Tape) -> None:
    x = pair(np.full(3, 2.0), np.zeros(3))
    for _ in range(3):
        x.primal[...] = 2.0
        squared(tape, x)
        tape.reverse({x: 1.0})
        assert x.shadow.tolist() == [32.0, 32.0, 1.0]
    x.primal[...] = 2.0
    squared(tape, x)
    graph = tape.graph({x: 1.0})
    for _ in range(2):
        x.primal[...] = 2.0
        graph.launch()
        assert x.shadow.tolist() == [32.0, 32.0, 1.0]


def _linear_reverse(p: Any, dx: Any, dy: Any) -> None:
    dx += dy * p
    dy[...] = 0


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_linear_reverse)
def linear(x: Any, y: Any, p: Any) -> None:
    """A rule that reads a constant."""
    y[...] = x * p


def test_rules_that_do_not_say_what_they_do(tape: gpuad.Tape) -> None:
    """A pair for a parameter that stands in no list is refused; a constant that an operation overwrites is kept as it was."""

    x, y, p = pair(np.ones(3), np.zeros(3)), pair(np.ones(3), np.zeros(3)), np.full(3, 2.0)
    with pytest.raises(GpuadError, match="`p`"), tape:
        linear(x, y, pair(p, 0 * p))
    fresh = gpuad.Tape()
    for _ in range(3):
        p[...] = 2.0
        with fresh:
            linear(x, y, p)
            compiled(SQUARE, "k")((1,), (4,), (p, 3))
        x.shadow[...] = 0
        fresh.reverse({y: 1.0})
        assert x.shadow.tolist() == [2.0] * 3 and p.tolist() == [4.0] * 3
