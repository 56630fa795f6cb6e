"""What is written behind a tape's first recording, between two operations, is seen without being asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
import gpuad.tape.record.change_marks
from gpuad import Duplicated, Tape, TapeError, ops

N = 64
SOURCE = """
extern "C" __global__ void heat(double* v, const double* u, const double* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = u[i] + k[0] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
extern "C" __global__ void square(double* v, const double* u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] * u[i];
}
"""


@pytest.fixture(autouse=True, params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


class Rod:
    """Explicit steps of the heat equation between two arrays; `between`: what is done after each."""

    def __init__(self, n: int = N) -> None:
        self.n, self.heat = n, gpuad.kernel(SOURCE, "heat")
        self.u, self.v, self.k = np.linspace(0, 1, n) ** 2, np.zeros(n), np.full(1, 0.2)
        self.U, self.V, self.K = Duplicated(self.u), Duplicated(self.v), Duplicated(self.k)

    def run(self, between: Callable[[Rod, Any], None], tape: Tape, steps: int = 3) -> None:
        with tape:
            for _ in range(steps):
                self.heat[-(-self.n // 64), 64](self.V, self.U, self.K, self.n)
                between(self, self.V)
                self.U, self.V = self.V, self.U
        tape.reverse({self.U: 1.0})


def edge(_: Rod, V: Any) -> None:
    V.primal[0] = V.primal[1]


def last(_: Rod, V: Any) -> None:
    V.primal[-1] = 0.5


def damped(_: Rod, V: Any) -> None:
    np.multiply(V.primal, 0.9, out=V.primal)


def coefficient(rod: Rod, _: Any) -> None:
    rod.k[0] *= 0.9


@pytest.mark.one_of(2)
@pytest.mark.parametrize("n", [N, 1 << 18])
@pytest.mark.parametrize("between", [edge, last, damped, coefficient], ids=lambda f: f.__name__)
def test_writes_between_launches_are_refused(between: Callable[[Rod, Any], None], n: int) -> None:
    """At the user's line, and the error says what to write instead."""
    with running("host"), pytest.raises(ValueError, match="read-only") as caught:
        Rod(n).run(between, Tape())
    assert "tape.overwrites()" in caught.value.__notes__[0]


@pytest.mark.parametrize("between", [edge, last, damped], ids=lambda f: f.__name__)
def test_writes_by_views_of_before_are_seen(between: Callable[[Rod, Any], None]) -> None:
    """Which no lock reaches; of what is small."""
    rod = Rod()
    views = {id(a): Duplicated(a.view()) for a in (rod.u, rod.v)}
    with pytest.raises(TapeError, match=r"changed between operation \d and operation \d \(heat, test_first_recording.py:\d+\).*write"):
        rod.run(lambda rod, V: between(rod, views[id(V.primal)]), Tape())


def test_what_is_written_through_the_pair_is_right() -> None:
    rod = Rod()

    def total(k: complex) -> complex:
        u, v = np.linspace(0, 1, N).astype(complex) ** 2, np.zeros(N, complex)
        for _ in range(3):
            v[1:-1] = u[1:-1] + k * (u[:-2] - 2 * u[1:-1] + u[2:])
            v[0] = v[1]
            u, v = v, u
        return complex(u.sum())

    rod.run(lambda _, V: V.__setitem__(0, V[1]), Tape())
    assert np.isclose(rod.K.shadow[0], total(0.2 + 1e-30j).imag / 1e-30, rtol=1e-12)


def test_what_does_not_matter_is_taken() -> None:
    """Memory that the next launch overwrites without a look at it, and that no adjoint reads; what is announced; what comes before the
    first launch; what has no shadow, and no adjoint reads."""
    square, x, y, k, n = gpuad.kernel(SOURCE, "square"), np.full(N, 0.5), np.zeros(N), np.zeros(N), N
    X, Y, tape, view = Duplicated(x), Duplicated(y), Tape(), y.view()
    with tape:
        y[...] = 7.0
        square(1, 64, (Y, X, n))
        view[...] = 9.0
        square(1, 64, (Y, X, n))
        tape.overwrites(Y)
        y[...] = 9.0
        square(1, 64, (Y, X, n))
        z = ops.sum(Y)
        square(1, 64, (k, k, n))
        k[0] = 1.0
        square(1, 64, (k, k, n))
    tape.reverse({z: 1.0})
    assert np.array_equal(X.shadow, np.full(N, 1.0))


def test_later_recordings_and_large_arrays_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """At their operations: what they depend on is locked."""
    sizes: list[int] = []
    mark = gpuad.tape.record.change_marks.fingerprint
    monkeypatch.setattr("gpuad.tape.record.change_marks.fingerprint", lambda a, *given: sizes.append(a.root.nbytes) or mark(a, *given))
    rod, tape = Rod(), Tape()
    for turn in range(2):
        sizes.clear()
        rod.run(lambda *_: None, tape, 4)
        assert bool(sizes) == (turn == 0)
    with running("host"):
        Rod(1 << 18).run(lambda *_: None, Tape(), 4)
    assert max(sizes) == 8, "of the large ones it has locked all that there is; the coefficient is small"
