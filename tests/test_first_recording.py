"""What is written behind a tape's first recording, between two operations, is seen without being asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
import gpuad.program.recording
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


@pytest.mark.parametrize("between", [edge, last, damped, coefficient], ids=lambda f: f.__name__)
def test_writes_between_launches_are_refused(between: Callable[[Rod, Any], None]) -> None:
    with pytest.raises(TapeError, match=r"changed between operation \d and operation \d \(heat, test_first_recording.py:\d+\).*write"):
        Rod().run(between, Tape())


@pytest.mark.parametrize("between", [edge, last, damped], ids=lambda f: f.__name__)
def test_of_large_arrays_too(between: Callable[[Rod, Any], None]) -> None:
    """Of which a sample is looked at, and the ends."""
    with running("host"), pytest.raises(TapeError, match="changed between operation"):
        Rod(1 << 18).run(between, Tape())


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
    first launch and after the last."""
    square, x, y, n = gpuad.kernel(SOURCE, "square"), np.full(N, 0.5), np.zeros(N), N
    X, Y, tape = Duplicated(x), Duplicated(y), Tape()
    with tape:
        y[...] = 7.0
        square(1, 64, (Y, X, n))
        y[...] = 9.0
        square(1, 64, (Y, X, n))
        tape.overwrites(Y)
        y[...] = 9.0
        square(1, 64, (Y, X, n))
        z = ops.sum(Y)
        y[0] = 3.0
    tape.reverse({z: 1.0})
    assert np.array_equal(X.shadow, np.full(N, 1.0))


def test_later_recordings_and_operations_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuad.program.recording._LOOKS", 4)
    rod, tape = Rod(), Tape()
    seen: list[int] = []
    mark = gpuad.program.recording.mark
    monkeypatch.setattr("gpuad.program.recording.mark", lambda *given: seen.append(1) or mark(*given))
    for turn in range(2):
        rod.run(lambda *_: None, tape, 10)
        assert turn or seen
        seen.clear()
    rod.run(lambda *_: None, Tape(), 4)
    few = len(seen)
    seen.clear()
    rod.run(lambda *_: None, Tape(), 10)
    assert len(seen) <= few
