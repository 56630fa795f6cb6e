"""Accumulations that are gathered: in a launch of its own each thread collects what others would have sent to its element.

Gathered and atomic gradients agree on every executor, for grids that cover the array, that leave a part of it out and that reach beyond it.
The reference executor refuses a launch in which one thread reads what another writes, so that it also checks every proof.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Active, Duplicated, api, launching
from gpuad.ir.nodes import Accumulate, How, Kernel, Take
from gpuad.ir.rewrite import walk_stmts

LINE = """
extern "C" __global__ void k(const double* u, double* v, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (GUARD) { BODY }
}
"""
PLANE = """
extern "C" __global__ void k(const double* u, double* v, double a, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = threadIdx.y + blockDim.y * blockIdx.y;
    if (GUARD) { int i = y * nx + x; BODY }
}
"""
SPACE = """
extern "C" __global__ void k(const double* u, double* v, double a, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (GUARD) { int i = (z * ny + y) * nx + x; BODY }
}
"""
INSIDE = {
    1: "i >= {r} && i < n - {r}",
    2: "x >= {r} && y >= {r} && x < nx - {r} && y < ny - {r}",
    3: "x >= {r} && y >= {r} && z >= {r} && x < nx - {r} && y < ny - {r} && z < nz - {r}",
}
AXES = {1: ["1"], 2: ["1", "nx"], 3: ["1", "nx", "nx * ny"]}


def stencil(dimensions: int, radius: int, linear: bool) -> str:
    """A star of the radius; nonlinear: each neighbour's weight depends on the neighbour and on the centre."""
    points = [f"u[i {sign} {k} * {step}]" for step in AXES[dimensions] for k in range(1, radius + 1) for sign in "+-"]
    terms = [f"{1 / (2 + n)} * {p}" if linear else f"{1 / (2 + n)} * sin({p}) * u[i]" for n, p in enumerate(points)]
    body = f"v[i] = u[i] + a * ({' + '.join(terms)});"
    return (LINE, PLANE, SPACE)[dimensions - 1].replace("GUARD", INSIDE[dimensions].format(r=radius)).replace("BODY", body)


def reverse(kernel: api.Kernel, grid: Any, block: Any, args: tuple[Any, ...]) -> list[Kernel]:
    """The kernels of the launch's reverse pass."""
    call = kernel.bind(grid, block, args, 0, None)
    return [s.kernel for s in launching.stages(kernel.reverse_for(api.pattern_of(kernel, call), call), call)]


def atomics(kernels: list[Kernel]) -> int:
    return sum(isinstance(s, Accumulate | Take) and s.how is How.ATOMIC for k in kernels for s in walk_stmts(k.body))


def is_gathered(kernels: list[Kernel]) -> bool:
    return kernels[0].name.endswith("_gather")


def pairs(seed: int, *shapes: Any) -> list[Duplicated]:
    rng = np.random.default_rng(seed)
    return [Duplicated(rng.standard_normal(s), rng.standard_normal(s)) for s in shapes]


def gradients(text: str, grid: Any, block: Any, make: Callable[[], tuple[Any, ...]], name: str = "k", **ways: Any) -> list[Any]:
    args = make()
    with running(**ways):
        gpuad.autodiff(compiled(text, name), grid, block, args)
    return [np.array(a.shadow, copy=True) for a in args if isinstance(a, Duplicated | Active)]


def agree(text: str, grid: Any, block: Any, make: Callable[[], tuple[Any, ...]], name: str = "k") -> None:
    """Gathered and atomic gradients are the same on every executor."""
    expected = gradients(text, grid, block, make, name, executor="reference", plain=False)
    for executor in EXECUTORS:
        for found, right in zip(gradients(text, grid, block, make, name, executor=executor), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12 * max(1.0, float(np.abs(right).max(initial=0))))


SIZES = {1: [(37,)], 2: [(13, 9)], 3: [(7, 6, 8)]}
COVERS = {"covering": 0, "partial": -1, "oversized": 2}


@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("linear", [True, False], ids=["linear", "nonlinear"])
@pytest.mark.parametrize("radius", [1, 2])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_stencil(dimensions: int, radius: int, linear: bool, cover: str) -> None:
    size = SIZES[dimensions][0]
    block = (8, 2, 2)[:dimensions]
    grid = tuple(max(1, -(-n // m) + COVERS[cover]) for n, m in zip(size, block, strict=True))
    text = stencil(dimensions, radius, linear)

    def make() -> tuple[Any, ...]:
        u, v = pairs(1, size[::-1], size[::-1])
        return (u, v, Active(0.3, np.zeros(())), *size)

    kernels = reverse(compiled(text, "k"), grid, block, make())
    assert is_gathered(kernels) and not atomics(kernels)
    agree(text, grid, block, make)


# --- edges -------------------------------------------------------------------------------------------------------------------------------

EDGES = {
    "thread of its own for each element": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "v[i] = u[i] * u[i + 1] * u[i + 2];", True),
    "one further": ("int i = blockIdx.x * blockDim.x + threadIdx.x + 1;", "if (i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "unsigned": ("unsigned i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i - 1 < n - 2u) v[i] = u[i - 1] * u[i + 1];", False),
    "unsigned, two guards": (
        "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= 1u && i < n - 1u) v[i] = u[i - 1] * u[i + 1];",
        True,
    ),
    "size_t": ("size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= 1 && i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "early return": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "v[i] = u[i - 1] * u[i + 1];",
        True,
    ),
    "split index": ("int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;", "if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "literal width": ("int i = blockIdx.x * 8 + threadIdx.x;", "if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "two strides": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i > 0 && 2 * i < n - 2) v[i] = u[2 * i - 2] * u[2 * i];", True),
    "half a stride": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i > 0 && 2 * i < n - 2) v[i] = u[2 * i - 1] * u[2 * i];",
        False,
    ),
    "periodic": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n) v[i] = u[(i + 1) % n] * u[i];", False),
    "clamped": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n) v[i] = u[min(i + 1, n - 1)] * u[i];", False),
    "mirrored": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n) v[i] = u[n - 1 - i] * u[i];", False),
    "data guard": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i > 0 && i < n - 1 && u[i] > 0.1) v[i] = u[i - 1] * u[i + 1];",
        True,
    ),
    "two sides": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "if (u[i] > 0) v[i] = u[i - 1] * u[i]; else v[i] = sin(u[i + 1]);",
        True,
    ),
    "ternary": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;",
        "double left = i > 0 ? u[i - 1] : 0.0, right = i < n - 1 ? u[i + 1] : 1.0; v[i] = left * right * u[i];",
        True,
    ),
    "twice stored": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "v[i] = u[i - 1]; v[i] = v[i] * u[i + 1];",
        None,
    ),
    "added to": ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;", "v[i] += u[i - 1] * u[i + 1];", True),
    "reversed": (
        "int i = n - 1 - (int)(blockIdx.x * blockDim.x + threadIdx.x);",
        "if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1];",
        True,
    ),
    "one of two elsewhere": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "v[i] = u[i - 1] * u[0];",
        False,
    ),
    "block index": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "v[i] = u[i - 1] * u[i + 1] * (blockIdx.x + 1);",
        False,
    ),
    "wide shift": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; int x = i % 7; if (x == 0 || x == 6 || i < 7 || i >= n - 7) return;",
        "v[i] = u[i - 7] * u[i + 7] + u[i - 1] * u[i + 1];",
        True,
    ),
}


@pytest.mark.parametrize("blocks", [2, 5, 6])
@pytest.mark.parametrize("name", EDGES)
def test_edge(name: str, blocks: int) -> None:
    head, body, gathered = EDGES[name]
    text = f'extern "C" __global__ void k(const double* u, double* v, int n) {{ {head} {body} }}'
    n = 40

    def make() -> tuple[Any, ...]:
        return (*pairs(2, 56, 56), n)

    kernels = reverse(compiled(text, "k"), blocks, 8, make())
    if gathered is not None and blocks > 2:
        assert is_gathered(kernels) == gathered
    agree(text, blocks, 8, make)


def test_random_geometries() -> None:
    """What the proofs say of 200 launches, the reference executor confirms, which sees every collision."""
    rng = random.Random(5)
    gathered = 0
    for _ in range(200):
        nx, ny, pitch = rng.randint(1, 9), rng.randint(1, 7), rng.randint(1, 12)
        low, high = rng.randint(-1, 2), rng.randint(-1, 2)
        steps = rng.sample([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-2, 0), (0, 2), (2, 1), (0, 0)], rng.randint(2, 4))
        reads = " + ".join(f"{k + 1}.0 * u[(y + {b}) * pitch + x + {a} + 60] * u[y * pitch + x + 60]" for k, (a, b) in enumerate(steps))
        text = f"""extern "C" __global__ void k(const double* u, double* v, int nx, int ny, int pitch) {{
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            if (x >= {low} && y >= {low} && x < nx - {high} && y < ny - {high}) v[y * 64 + x] = {reads};
        }}"""
        block = rng.choice([(4, 2), (3, 3), (8, 1)])
        grid = rng.randint(1, 4), rng.randint(1, 4)

        def make(shape: tuple[int, int, int] = (nx, ny, pitch)) -> tuple[Any, ...]:
            return (*pairs(3, 1024, 4096), *shape)

        kernels = reverse(compiled(text, "k"), grid, block, make())
        gathered += is_gathered(kernels)
        expected = gradients(text, grid, block, make, executor="reference", plain=False)
        for found, right in zip(gradients(text, grid, block, make, executor="reference"), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    assert 60 < gathered < 200
