"""Accumulations that are gathered: in a launch of its own each thread collects what others would have sent to its element.

Gathered and atomic gradients agree on every executor, for grids that cover the array, that leave a part of it out and that reach beyond it.
The reference executor refuses a launch in which one thread reads what another writes, so that it also checks every proof.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, pairs, reverse
from launch_tools import EXECUTORS, compiled, running
from nightly import cases

import gpuad
from gpuad import Active, Duplicated
from gpuad.ir.nodes import Take
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


SIZES = {1: [(37,)], 2: [(13, 9)], 3: [(7, 6, 8)]}
COVERS = {"covering": 0, "partial": -1, "oversized": 2}


@pytest.mark.one_of(8)
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


# --- edges ------------------------------------------------------------------------------------------------------------------------------

EDGES = {
    "thread of its own for each element": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "v[i] = u[i] * u[i + 1] * u[i + 2];", True),
    "one further": ("int i = blockIdx.x * blockDim.x + threadIdx.x + 1;", "if (i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "unsigned": ("unsigned i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i - 1 < n - 2u) v[i] = u[i - 1] * u[i + 1];", True),
    "unsigned, two guards": (
        "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= 1u && i < n - 1u) v[i] = u[i - 1] * u[i + 1];",
        True,
    ),
    "size_t": ("size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= 1 && i < n - 1) v[i] = u[i - 1] * u[i + 1];", True),
    "long long": (
        "long long i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i < n - 3) v[i] = u[i] * u[i + 3];",
        True,
    ),
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
    "periodic": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n) v[i] = u[(i + 1) % n] * u[i];", True),
    "clamped": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n) v[i] = u[min(i + 1, n - 1)] * u[i];", True),
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
    "integer choice": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "int k = 3; if (u[i] > 0) { int t = threadIdx.x + blockDim.x * blockIdx.x + 2; k = t * t; } v[i] = k * u[i - 1] * u[i + 1];",
        True,
    ),
    "inner loop": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "double w = 0; int p = 0; for (int m = 0; m < 3; m++) { int q = i + m; p = q + 1; w += q; } v[i] = (w + p) * u[i - 1] * u[i + 1];",
        True,
    ),
    "search": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1 || i >= n - 1) return;",
        "int m = 0; while (m * m < i) m++; v[i] = m * u[i - 1] * u[i + 1];",
        True,
    ),
    "wide shift": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; int x = i % 7; if (x == 0 || x == 6 || i < 7 || i >= n - 7) return;",
        "v[i] = u[i - 7] * u[i + 7] + u[i - 1] * u[i + 1];",
        True,
    ),
}


@pytest.mark.one_of(6)
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


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", ["unsigned char", "signed char", "float", "short"])
def test_narrow_index(kind: str) -> None:
    """What a conversion loses of the index is lost in the gather, too."""
    text = f"""extern "C" __global__ void k(const double* u, double* v, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x, k = (int)({kind})i;
        if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1] * k; }}"""

    def make() -> tuple[Any, ...]:
        return (*pairs(9, 300, 300), 300)

    assert is_gathered(reverse(compiled(text, "k"), 38, 8, make()))
    agree(text, 38, 8, make)


def test_random_geometries() -> None:
    """What the proofs say of random launches, the reference executor confirms, which sees every collision."""
    rng = random.Random(5)
    gathered = 0
    many = cases(6, 200)
    for _ in range(many):
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
    assert 0.3 * many < gathered < many


# --- programs and other ways to a reverse pass --------------------------------------------------------------------------------------------

LEAPFROG = """
extern "C" __global__ void k(double* p, const double* u, const double* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) p[i] = 2 * u[i] - p[i] + c[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
"""
TWO = """
extern "C" __global__ void k(const double* u, const double* v, double* s, double* t, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int i = y * nx + x;
    double r = u[i] * v[i] * v[i];
    s[i] = u[i] + 0.1 * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4 * u[i]) - r;
    t[i] = v[i] + 0.2 * (v[i - 1] + v[i + 1] + v[i - nx] + v[i + nx] - 4 * v[i]) + r;
}
"""
PAIR = """
extern "C" __global__ void k(const double* a, const double* b, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i];
}
"""


@pytest.mark.parametrize("block", [64, 32, 8])
def test_leapfrog_in_place(block: int) -> None:
    """CASES 45: what a thread takes, its neighbours read; in one launch that would be a race (RULES 2)."""

    def make() -> tuple[Any, ...]:
        return (*pairs(4, 64, 64, 64), 64)

    kernels = reverse(compiled(LEAPFROG, "k"), 64 // block, block, make())
    assert [k.name for k in kernels] == ["k_gather", "k_reverse"]
    assert not atomics(kernels)
    assert not any(isinstance(s, Take) for s in walk_stmts(kernels[0].body))
    agree(LEAPFROG, 64 // block, block, make)


def test_two_shadows_in_one_launch() -> None:
    def make() -> tuple[Any, ...]:
        return (*pairs(5, (9, 11), (9, 11), (9, 11), (9, 11)), 11, 9)

    kernels = reverse(compiled(TWO, "k"), (2, 3), (8, 4), make())
    assert [k.name for k in kernels] == ["k_gather", "k_reverse"]
    assert not atomics(kernels)
    agree(TWO, (2, 3), (8, 4), make)


@pytest.mark.parametrize("shift", [1, 3, 20])
def test_two_views_of_one_array(shift: int) -> None:
    """CASES 44: reads of one array through two arguments are shifts of one another."""

    def make() -> tuple[Any, ...]:
        x = Duplicated(*(np.random.default_rng(k).standard_normal(64) for k in (1, 2)))
        return x[:-shift], x[shift:], *pairs(3, 64 - shift), 64 - shift

    kernels = reverse(compiled(PAIR, "k"), 8, 8, make())
    assert is_gathered(kernels) and not atomics(kernels)
    expected = make()
    with running("reference", plain=False):
        gpuad.autodiff(compiled(PAIR, "k"), 8, 8, expected)
    for executor in EXECUTORS:
        found = make()
        with running(executor):
            gpuad.autodiff(compiled(PAIR, "k"), 8, 8, found)
        np.testing.assert_allclose(found[0].shadow, expected[0].shadow, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1].shadow, expected[1].shadow, rtol=1e-12, atol=1e-12)


def test_output_that_is_an_input() -> None:
    """v[i] = u[i - 1] + u[i + 1] with v the same array is a race and refused; with v elsewhere in it, it is gathered or not, but right."""
    text = """extern "C" __global__ void k(const double* u, double* v, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1]; }"""

    def make() -> tuple[Any, ...]:
        x = Duplicated(*(np.random.default_rng(k).standard_normal(80) for k in (1, 2)))
        return x[:40], x[40:], 40

    expected, found = make(), make()
    with running("reference", plain=False):
        gpuad.autodiff(compiled(text, "k"), 5, 8, expected)
    with running("reference"):
        gpuad.autodiff(compiled(text, "k"), 5, 8, found)
    for a, b in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a.shadow, b.shadow, rtol=1e-12, atol=1e-12)


def test_batch() -> None:
    text, rng = stencil(1, 2, False), np.random.default_rng(6)
    u, v = rng.standard_normal(37), rng.standard_normal(37)
    seeds = [rng.standard_normal(37) for _ in range(3)]
    expected = []
    for seed in seeds:
        du, dv, da = np.ones(37), seed.copy(), np.zeros(())
        gpuad.autodiff(compiled(text, "k"), 5, 8, (Duplicated(u, du), Duplicated(v.copy(), dv), Active(0.3, da), 37))
        expected.append((du, dv))
    shadows = [np.ones(37) for _ in seeds], [s.copy() for s in seeds]
    a, b = (tuple(s) for s in shadows)
    gpuad.autodiff(compiled(text, "k"), 5, 8, (gpuad.BatchDuplicated(u, a), gpuad.BatchDuplicated(v, b), 0.3, 37))
    for width, (du, dv) in enumerate(expected):
        np.testing.assert_allclose(shadows[0][width], du, rtol=1e-12)
        np.testing.assert_allclose(shadows[1][width], dv, rtol=1e-12)


def test_split_pair() -> None:
    text = stencil(2, 1, False)
    args, expected = [(*pairs(7, (9, 13), (9, 13)), Active(0.3, np.zeros(())), 13, 9) for _ in range(2)]
    gpuad.autodiff(compiled(text, "k"), (2, 5), (8, 2), expected)
    augmented, back = gpuad.autodiff_thunk(compiled(text, "k"), u=Duplicated, v=Duplicated, a=Active)
    saved = augmented((2, 5), (8, 2), args)
    back((2, 5), (8, 2), args, saved)
    for a, b in zip(args[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(a.shadow, b.shadow)


GUARDS = {
    "interior": "x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1",
    "unequal": "x != 0 && y != 0 && x < nx && y < ny && x != nx - 1 && y != ny - 1",
    "data": "x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1 && u[y * nx + x] > -0.5",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("guard", GUARDS)
def test_ping_pong(executor: str, guard: str) -> None:
    """In a program shadows that are known to be zero are assigned to, and nothing is cleared that nobody looks at."""
    body = "v[i] = u[i] + a * (sin(u[i - 1]) + u[i + 1] * u[i] + u[i - nx] + u[i + nx] - 4 * u[i]);"
    step = compiled(PLANE.replace("GUARD", GUARDS[guard]).replace("BODY", body), "k")

    def run(plain: bool) -> list[Any]:
        with running(executor, plain=plain):
            u, v = pairs(8, (12, 10), (12, 10))
            a = Active(0.1, np.zeros(()))
            tape = gpuad.Tape()
            with tape:
                for _ in range(5):
                    step[(2, 3), (8, 4)](u, v, a, 10, 12)
                    u, v = v, u
            tape.reverse({u: np.cos(u.primal), v: 0.5})
            return [u.shadow, v.shadow, a.shadow]

    for found, right in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


# --- what is printed ----------------------------------------------------------------------------------------------------------------------


def text_of(name: str) -> str:
    from test_golden import adjoint

    return str(adjoint(name).source)


def test_heat_reads_like_an_adjoint_by_hand() -> None:
    """One guard and one sum for each of the five neighbours; nothing atomic, no array."""
    from test_golden import body, statements

    lines = statements(body(text_of("heat"), "heat_gather"))
    by_hand = 3 + 1 + 5 * 2 + 2  # indices and sum; guards and sums; the end
    assert len(lines) <= 1.3 * by_hand, lines
    assert not any("atomic" in line or "[5]" in line for line in lines)


def test_contract_names_the_launches() -> None:
    text = text_of("heat")
    assert "2. launch heat_gather with grid (3, 5, 1) and the block of heat." in text
    assert "3. launch heat_reverse with the same grid and block." in text


def test_text_before_a_launch_holds_for_every_launch() -> None:
    made = compiled(stencil(1, 1, True), "k").adjoint(u=Duplicated, v=Duplicated)
    assert made.kernels == ("k_reverse",)
    assert "atomicAdd" in made.source


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_does_not_count_is_overwritten_with_zero(executor: str) -> None:
    """In a program the shadows of what is written begin as zero, whatever is in their memory: where a gather collects nothing but zeros,
    that is what is stored."""
    step = compiled(PLANE.replace("GUARD", GUARDS["interior"]).replace("BODY", "v[i] = u[i] + a * (u[i - 1] + u[i + 1] - u[i - nx]);"), "k")
    square = compiled(
        """extern "C" __global__ void square(const double* w, double* u, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) u[i] = w[i] * w[i]; }""",
        "square",
    )

    def run(plain: bool) -> Any:
        with running(executor, plain=plain):
            w, u, v = pairs(8, (12, 10), (12, 10), (12, 10))
            seed = np.zeros((12, 10))
            seed[5, 4] = 1.0
            tape = gpuad.Tape()
            with tape:
                square[4, 32](w, u, 120)
                step[(2, 3), (8, 4)](u, v, 0.5, 10, 12)
            for x in (w, u, v):
                x.shadow[...] = 7.0
            tape.reverse({v: seed})
            return w.shadow

    np.testing.assert_allclose(run(True), run(False), rtol=1e-12, atol=1e-12)
