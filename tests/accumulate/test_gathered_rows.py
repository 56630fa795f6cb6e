"""Several fields in one array, each read at another shift and around periodic edges, as lattice Boltzmann codes that pull do: no two
threads meet, which is found out before anybody gathers; and a gather never starts threads by the million that have nothing to collect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, is_gathered, reverse
from launch_tools import EXECUTORS, compiled, running

from gpuad import Duplicated, api, pipeline
from gpuad.analysis.affine_forms import Launch
from gpuad.analysis.conflicts import seem_to_conflict
from gpuad.api import pattern_of
from gpuad.pipeline import inspectors

PULL = """extern "C" __global__ void k(const double* f, double* g, const int* solid, double omega, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    int n = nx * ny, l = (x + nx - 1) % nx, r = (x + 1) % nx, d = (y + ny - 1) % ny, u = (y + 1) % ny;
    double p[5];
    MASK
    p[0] = f[y * nx + x];
    p[1] = f[n + y * nx + l];
    p[2] = f[2 * n + y * nx + r];
    p[3] = f[3 * n + d * nx + x];
    p[4] = f[4 * n + u * nx + x];
    double rho = p[0] + p[1] + p[2] + p[3] + p[4], ux = (p[1] - p[2]) / rho, uy = (p[3] - p[4]) / rho;
    int c = y * nx + x;
    g[c] = p[0] - omega * (p[0] - rho / 3);
    g[n + c] = p[1] - omega * (p[1] - rho / 6 * (1 + 3 * ux));
    g[2 * n + c] = p[2] - omega * (p[2] - rho / 6 * (1 - 3 * ux));
    g[3 * n + c] = p[3] - omega * (p[3] - rho / 6 * (1 + 3 * uy));
    g[4 * n + c] = p[4] - omega * (p[4] - rho / 6 * (1 - 3 * uy));
}"""
FREE, WALLS = PULL.replace("MASK", ""), PULL.replace("MASK", "if (solid[y * nx + x]) return;")
BOUNCE = WALLS.replace("p[1] = f[n + y * nx + l];", "p[1] = solid[y * nx + l] ? f[2 * n + y * nx + x] : f[n + y * nx + l];")
GRID, BLOCK = (3, 4), (8, 2)


def arguments(nx: int = 20, ny: int = 7) -> tuple[Any, ...]:
    rng = np.random.default_rng(nx)
    f, g = (Duplicated(rng.uniform(0.5, 1.5, (5, ny, nx)), rng.normal(size=(5, ny, nx))) for _ in range(2))
    return f, g, (rng.random((ny, nx)) < 0.2).astype(np.int32), 1.2, nx, ny


@pytest.mark.parametrize("text", [FREE, WALLS], ids=["free", "walls"])
def test_who_pulls_from_several_fields_is_alone(text: str) -> None:
    with running("reference"):
        kernels = reverse(compiled(text, "k"), GRID, BLOCK, arguments())
    assert len(kernels) == 1 and atomics(kernels) == 0


@pytest.mark.one_of(4)
@pytest.mark.parametrize("text", [FREE, WALLS, BOUNCE], ids=["free", "walls", "bounce"])
@pytest.mark.parametrize(("nx", "ny"), [(20, 7), (1, 1), (2, 2), (17, 1), (1, 6)])
def test_its_gradient_is_that_with_atomics(text: str, nx: int, ny: int) -> None:
    agree(text, (-(-nx // 8), -(-ny // 2)), BLOCK, lambda: arguments(nx, ny))


def test_fields_are_collected_side_by_side() -> None:
    """Where walls send back what came, two threads may read one element. A thread collects for its cell in each of the fields."""
    for kernels in (
        reverse(compiled(BOUNCE, "k"), GRID, BLOCK, arguments()),
        reverse(compiled(BOUNCE, "k"), (25, 75), BLOCK, arguments(200, 150)),
    ):
        assert is_gathered(kernels) and atomics(kernels) == 0


def test_a_gather_of_mostly_idle_threads_is_left_to_atomics() -> None:
    """Of an index in which the least digit is one of three channels, which is along x, where a block has 128 threads."""
    text = """extern "C" __global__ void k(const double* u, double* v, int n, int columns) {
        int i = blockIdx.x * blockDim.x + threadIdx.x, c = i % 3, p = i / 3;
        if (i < n) v[i] = u[i] * (p % columns > 0 ? u[i - 3] : 1.0) + c;
    }"""

    def make(n: int) -> tuple[Any, ...]:
        return *(Duplicated(np.ones(n), np.ones(n)) for _ in range(2)), n, 7

    with running("reference"):
        kernel = compiled(text, "k")
        for n, most in ((3 * 70, 1 << 16), (3 * 70_000, 16 * 3 * 70_000)):
            call = kernel.bind(-(-n // 128), 128, make(n), 0, None)
            found = pipeline.schedule.gathering(kernel.reverse_for(pattern_of(kernel, call), call), call)
            assert found is not None and np.prod(found.grid) * 128 <= most


ROLL = """extern "C" __global__ void k(const double* u, double* v, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = SUM;
}"""


@pytest.mark.parametrize(
    ("read", "kernels", "inspected"),
    [
        ("u[i ^ m] * u[i ^ m]", 1, True),  # all elements once, which isl does not know
        ("u[(i + m) % n] * u[(i + m) % n]", 1, False),  # which it does
        ("u[i] * u[(i + m) % n]", 2, False),  # more reads than elements
        ("u[i + 1] * u[i] * u[i]", 2, False),
    ],
)
def test_only_those_who_may_be_alone_are_inspected(read: str, kernels: int, inspected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = []
    counted = inspectors._counted
    monkeypatch.setattr(inspectors, "_counted", lambda *args: (launches.append(args), counted(*args))[1])
    text = ROLL.replace("SUM", read)

    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(1)
        return *(Duplicated(rng.normal(size=n), rng.normal(size=n)) for n in (21, 20)), 20, 3

    with running("reference"):
        assert len(reverse(compiled(text, "k"), 3, 8, make())) == kernels
    assert bool(launches) == inspected
    agree(text, 3, 8, make)


def test_where_memory_does_not_suffice_to_ask_it_is_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    text = ROLL.replace("SUM", "3.0 * u[i ^ m] * u[i ^ m]")
    u, v = (Duplicated(np.ones(40), np.ones(40)) for _ in range(2))
    with running("reference"), monkeypatch.context() as patch:
        patch.setattr(EXECUTORS["reference"], "zeros", full, raising=False)
        kernels = reverse(compiled(text, "k"), 5, 8, (u, v, 40, 3))
    assert atomics(kernels) > 0


def test_what_seems_to_meet() -> None:
    shape = ROLL.replace("int m", "int m, const int* at").replace("SUM", "u[i + 1] * u[at[i]] * u[i]")
    for text, seems in ((shape, True), (shape.replace("u[i + 1]", "u[2 * i]"), True), (shape.replace("u[i + 1]", "u[i]"), False)):
        primal = api.kernel(text, "k").primal()
        u, n = primal.params[0], primal.params[2]
        launch = Launch((3, 1, 1), (8, 1, 1), {n: 20})  # type: ignore[dict-item]
        assert seem_to_conflict(primal.body, u, launch) == seems  # type: ignore[arg-type]
