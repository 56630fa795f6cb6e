"""A program in which operations make arrays is known when it comes again; what a caller still has of the earlier ones is his."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from tape_tools import nothing_is_analysed

import gpuad
from gpuad import Duplicated, ShadowError, Tape, TapeError, ops
from gpuad.tape.memory.temporaries import Temporary

N = 6
SOURCE = """
extern "C" __global__ void square(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }
extern "C" __global__ void blend(const double* x, const double* y, double* z, int n) {
    int i = threadIdx.x;
    if (i < n) z[i] = x[i] * y[n - 1 - i] + 0.5 * z[i];
}
"""
KERNELS = {name: gpuad.kernel(SOURCE, name) for name in ("square", "blend")}


@pytest.fixture(autouse=True, params=["host", "reference"])
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


class Fit:
    """A program with a loss made by operations: of x and a target, after a kernel in place."""

    def __init__(self) -> None:
        self.tape, self.x, self.target = Tape(), np.zeros(N), np.linspace(0.5, 1.5, N)
        self.dx = np.zeros(N)
        self.X = Duplicated(self.x, self.dx)

    def run(self, start: float, loss: Callable[[Any], Any] | None = None) -> Any:
        self.x[...], self.dx[...] = start + np.arange(N) / 8, 0.0
        with self.tape:
            KERNELS["square"](1, 8, (self.X, N))
            made = (loss or self.loss)(self.X)
        self.tape.reverse({made: 1.0})
        return made

    def loss(self, X: Any) -> Any:
        return ops.sum((X - self.target) ** 2)

    def expected(self, start: float) -> tuple[float, np.ndarray]:
        x = start + np.arange(N) / 8
        rest = x * x - self.target
        return float((rest**2).sum()), 4 * rest * x


# --- it is known -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [False, True])
def test_a_loss_is_known(keep: bool) -> None:
    """Also where the caller still has the last one, and those before."""
    fit, kept = Fit(), []
    for turn in range(8):
        start = 0.5 + turn / 4
        if turn < 3:
            loss = fit.run(start)
        else:
            with nothing_is_analysed():
                loss = fit.run(start)
        kept += [(loss, start)] if keep else []
        value, gradient = fit.expected(start)
        assert np.isclose(float(loss.primal), value, rtol=1e-14) and np.allclose(fit.dx, gradient, rtol=1e-13)
    for loss, start in kept:
        assert np.isclose(float(loss.primal), fit.expected(start)[0], rtol=1e-14)


def test_views_and_copies_of_temporaries_are_known() -> None:
    fit = Fit()

    def loss(X: Any) -> Any:
        rest = (X - fit.target).reshape(2, N // 2)
        both = rest[0] * rest[1, ::-1] + rest.T[:, 1]
        return ops.sum(both**2)

    gradients = []
    for turn in range(5):
        if turn < 3:
            made = fit.run(0.75, loss)
        else:
            with nothing_is_analysed():
                made = fit.run(0.75, loss)
        gradients.append((float(made.primal), fit.dx.tobytes()))
    assert len(set(gradients)) == 1


def test_the_raw_rule_begins_with_zeros() -> None:
    fit = Fit()
    for turn in range(5):
        fit.x[...], fit.dx[...] = 0.5, 0.0
        with fit.tape:
            y = fit.X * 3.0
            z = y * y
        z.shadow[...] = 1.0
        fit.tape.reverse()
        assert np.array_equal(fit.dx, np.full(N, 2 * 9 * 0.5)), turn


# --- what the caller has is his ----------------------------------------------------------------------------------------------------------

HOLDS: dict[str, Callable[[Any], Any]] = {
    "the pair": lambda y: y,
    "a view of the pair": lambda y: y[1:4],
    "a view of a view of the pair": lambda y: y.reshape(2, 3)[1].reshape(3, 1),
    "the array": lambda y: y.primal,
    "a view of the array": lambda y: y.primal[1:][::2],
    "flat": lambda y: y.primal.flat,
    "memory": lambda y: memoryview(y.primal),
    "a copy of the pair": lambda y: copy.copy(y),
    "a deep copy": lambda y: copy.deepcopy(y),
    "pickled": lambda y: pickle.loads(pickle.dumps(y.primal)),
    "a pair of the array": lambda y: Duplicated(y.primal),
    "a constant": lambda y: gpuad.Const(y.primal),
    "broadcast": lambda y: np.broadcast_to(y.primal, (2, N)),
}


def content(held: Any) -> bytes:
    array = getattr(held, "primal", held)
    return np.array(array.copy() if isinstance(array, np.flatiter) else array, np.float64).tobytes()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("when", ["within", "after"])
def test_what_is_held_stays(hold: str, when: str) -> None:
    fit, kept = Fit(), []
    for turn in range(7):
        start = 0.5 + turn / 4
        held = None
        fit.x[...], fit.dx[...] = start, 0.0
        with fit.tape:
            KERNELS["square"](1, 8, (fit.X, N))
            y = fit.X + np.arange(N)
            if turn in (0, 2, 3, 5) and when == "within":
                held = HOLDS[hold](y)
            KERNELS["square"](1, 8, (y, N))
            loss = ops.sum(y)
        fit.tape.reverse({loss: 1.0})
        if turn in (0, 2, 3, 5) and when == "after":
            held = HOLDS[hold](y)
        if held is not None and not (when == "within" and "cop" in hold) and hold != "pickled":
            kept.append((held, content(HOLDS[hold](Duplicated((start**2 + np.arange(N)) ** 2)))))
        assert np.allclose(fit.dx, 2 * (start**2 + np.arange(N)) * 2 * start, rtol=1e-14)
        assert all(content(held) == expected for held, expected in kept), turn


def test_a_handle_from_before_is_written_by_its_owner_alone() -> None:
    fit = Fit()
    first = fit.run(0.5)
    for start in (0.75, 1.0, 1.25):
        fit.run(start)
        first.primal[...] = -7.0
    assert float(first.primal) == -7.0


def test_nothing_keeps_a_handle_alive() -> None:
    fit = Fit()
    for start in (0.5, 0.75, 1.0, 1.25):
        loss = fit.run(start)
    gc.disable()
    try:
        made = loss._made_by
        assert type(loss) is Temporary and [known() for known in made.handles] == [loss]
        del loss
        assert [known() for known in made.handles] == [None] and not made.is_handed_out
    finally:
        gc.enable()


def test_nothing_keeps_what_a_handle_from_before_has() -> None:
    """It goes with the handle: memory of a device is not what makes Python look for circles."""
    fit = Fit()
    gc.disable()
    try:
        for start in (0.5, 0.75, 1.0, 1.25):
            loss = fit.run(start)
        fit.run(1.5)
        gone = weakref.ref(loss)
        assert loss._made_by is None
        del loss
        assert gone() is None
    finally:
        gc.enable()


def test_a_temporary_of_an_earlier_recording_is_refused() -> None:
    """As where it was not known; what is begun anew with its array is not."""
    fit, made = Fit(), []
    for start in (0.5, 0.75, 1.0, 1.25):
        fit.run(start, lambda X: ops.sum(made.append((X - fit.target) ** 2) or made[-1]))
    last = made[-1]
    with pytest.raises(ShadowError, match="temporary of an earlier recording"), fit.tape:
        ops.sum(fit.X * last)
    loss = fit.run(1.5, lambda X: fit.loss(X) * ops.sum(Duplicated(last.primal)))
    assert np.isclose(float(loss.primal), fit.expected(1.5)[0] * fit.expected(1.25)[0], rtol=1e-13)


def test_a_graph_has_the_arrays_that_its_recording_made() -> None:
    fit = Fit()
    for start in (0.5, 0.75, 1.0):
        loss = fit.run(start)
    graph = fit.tape.graph({loss: 1.0})
    for start in (1.25, 1.5):
        other = fit.run(start)
        fit.x[...], fit.dx[...] = 2.0 + np.arange(N) / 8, 0.0
        graph.launch()
        value, gradient = fit.expected(2.0)
        assert np.isclose(float(loss.primal), value, rtol=1e-14) and np.allclose(fit.dx, gradient, rtol=1e-13)
        assert np.isclose(float(other.primal), fit.expected(start)[0], rtol=1e-14)


def test_an_array_in_a_seed() -> None:
    """The seed of one reverse is what the last program made: it is held as long as it may be read."""
    fit, seed = Fit(), np.ones(())
    for start in (0.5, 0.75, 1.0, 1.25, 1.5):
        fit.x[...], fit.dx[...] = start + np.arange(N) / 8, 0.0
        with fit.tape:
            KERNELS["square"](1, 8, (fit.X, N))
            loss = fit.loss(fit.X)
        fit.tape.reverse({loss: seed})
        assert np.allclose(fit.dx, float(seed) * fit.expected(start)[1], rtol=1e-13)
        seed = loss.primal
    assert np.isclose(float(seed), fit.expected(1.5)[0], rtol=1e-14)


def test_an_error_within_a_known_program() -> None:
    fit = Fit()
    for start in (0.5, 0.75, 1.0):
        fit.run(start)
    fit.x[...] = 0.5
    with pytest.raises(ZeroDivisionError), fit.tape:
        KERNELS["square"](1, 8, (fit.X, N))
        rest = fit.X - fit.target
        raise ZeroDivisionError
    kept = rest.primal.copy()
    with pytest.raises(TapeError):
        fit.tape.reverse({rest: 1.0})
    loss = fit.run(1.25)
    assert np.allclose(fit.dx, fit.expected(1.25)[1], rtol=1e-13) and np.isclose(float(loss.primal), fit.expected(1.25)[0], rtol=1e-14)
    assert np.array_equal(rest.primal, kept)


def test_shadows_that_others_have_begin_with_zeros() -> None:
    """What a reversal leaves is zeros; but who has ever had the shadow may write it at any time: the caller, and another tape."""
    x, tape = Duplicated(np.arange(1.0, 1.0 + N)), Tape()
    had: list[Any] = []
    for turn in range(6):
        x.shadow[...] = 0
        with tape:
            y = x * 2.0
            loss = ops.sum(y * y)
        if turn == 2:
            had.append(y)
        tape.reverse({loss: 1.0})
        np.testing.assert_array_equal(x.shadow, 8 * x.primal)
        if turn == 3:
            with Tape() as other:
                total = ops.sum(y * 3.0)
            other.reverse({total: 1.0})
        for pair in had:
            pair.shadow[...] = 7.0


def test_an_array_that_is_lent_after_the_block_is_looked_at() -> None:
    """What nobody has is not marked at the end of a recording; it is before somebody gets it."""
    x, tape = Duplicated(np.arange(1.0, 1.0 + N)), Tape()
    for turn in range(5):
        x.shadow[...] = 0
        with tape:
            y = ops.exp(x * 0.5)
            loss = ops.sum(y * y)
        if turn == 4:
            y.primal[...] = 0
            with pytest.raises(TapeError, match="was changed between the recording and the reverse"):
                tape.reverse({loss: 1.0})
            return
        assert float(y.primal[0]) == np.exp(0.5 * x.primal[0])
        tape.reverse({loss: 1.0})
        np.testing.assert_allclose(x.shadow, np.exp(x.primal))


def test_an_array_that_another_tape_writes_is_looked_at() -> None:
    x, tape = Duplicated(np.arange(1.0, 1.0 + N)), Tape()
    for turn in range(4):
        with tape:
            y = ops.exp(x)
            loss = ops.sum(y * y)
        if turn == 3:
            with Tape():
                ops.multiply(y, 0.0, out=y)
            with pytest.raises(TapeError, match="was changed between the recording and the reverse"):
                tape.reverse({loss: 1.0})
