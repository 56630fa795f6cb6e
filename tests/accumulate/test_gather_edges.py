"""Gathered accumulations of stencils whose reads bend at the edges: periodic and clamped, in whatever way that is written."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, pairs, reverse
from launch_tools import compiled
from nightly import NIGHTLY, cases

from gpuad import Duplicated

BENDS = {
    "remainder": "(({v}) + {k} + {n}) % {n}",
    "remainder twice": "((({v}) + {k}) % {n} + {n}) % {n}",
    "lap": "(({v}) + {k} < 0 ? {v} + {k} + {n} : {v} + {k} >= {n} ? {v} + {k} - {n} : {v} + {k})",
    "clamp": "min(max({v} + {k}, 0), {n} - 1)",
    "choice": "({v} + {k} < 0 ? 0 : {v} + {k} > {n} - 1 ? {n} - 1 : {v} + {k})",
    "inside": "({v} + {k})",
}
NAMES, SIZES = ("x", "y", "z"), ("nx", "ny", "nz")
OUT = {1: "x", 2: "y * nx + x", 3: "(z * ny + y) * nx + x"}


def place(bends: tuple[str, ...], steps: tuple[int, ...]) -> str:
    """The index of a neighbour."""
    each = [v if k == 0 else BENDS[bend].format(v=v, k=k, n=n) for bend, v, k, n in zip(bends, NAMES, steps, SIZES, strict=False)]
    index = each[-1]
    for e, n in list(zip(each, SIZES, strict=False))[-2::-1]:
        index = f"({index}) * {n} + {e}"
    return index


def kernel(dimensions: int, body: str, guard: str = "") -> str:
    head = "".join(f"int {v} = blockIdx.{v} * blockDim.{v} + threadIdx.{v}; " for v in NAMES[:dimensions])
    inside = " && ".join(f"{v} < {n}" for v, n in zip(NAMES[:dimensions], SIZES, strict=False))
    sizes = ", ".join(f"int {n}" for n in SIZES[:dimensions])
    return f'extern "C" __global__ void k(const double* u, double* v, {sizes}) {{ {head} if ({inside}{guard}) {{ {body} }} }}'


def star(dimensions: int, radius: int, bend: str, linear: bool) -> str:
    steps = [tuple(s * k * (a == b) for b in range(dimensions)) for a in range(dimensions) for k in range(1, radius + 1) for s in (1, -1)]
    points = [f"u[{place((bend,) * dimensions, step)}]" for step in steps]
    own = OUT[dimensions]
    terms = [f"{1 / (2 + n)} * {p}" if linear else f"{1 / (2 + n)} * sin({p}) * u[{own}]" for n, p in enumerate(points)]
    return kernel(dimensions, f"v[{own}] = u[{own}] + {' + '.join(terms)};")


EXTENTS = {1: (13,), 2: (9, 7), 3: (7, 5, 6)}
COVERS = {"covering": 0, "partial": -1, "oversized": 2}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("bend", ["remainder", "clamp"])
@pytest.mark.parametrize("radius", [1, 2])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_edge(dimensions: int, radius: int, bend: str, cover: str) -> None:
    extent, block = EXTENTS[dimensions], (4, 2, 2)[:dimensions]
    grid = tuple(max(1, -(-n // m) + COVERS[cover]) for n, m in zip(extent, block, strict=True))
    text = star(dimensions, radius, bend, linear=dimensions == 3)

    def make() -> tuple[Any, ...]:
        return (*pairs(1, extent[::-1], extent[::-1]), *extent)

    kernels = reverse(compiled(text, "k"), grid, block, make())
    assert is_gathered(kernels) and not atomics(kernels)
    on_host = radius == 1 and dimensions == 2
    agree(text, grid, block, make, executors=("reference", "host") if on_host else ("reference",))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("extent", [(1,), (2,), (1, 3), (2, 2)])
@pytest.mark.parametrize("bend", [b for b in BENDS if b != "inside"])
def test_narrow(bend: str, extent: tuple[int, ...]) -> None:
    """Where both neighbours are one element, or the element itself."""
    text = star(len(extent), 1, bend, linear=False)

    def make() -> tuple[Any, ...]:
        return (*pairs(2, extent[::-1], extent[::-1]), *extent)

    agree(text, (2, 2)[: len(extent)], (4, 2)[: len(extent)], make, executors=("reference",))


LINE = 'extern "C" __global__ void k(const double* u, double* v, int n, int m) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {} }}'
WRITTEN = {
    "statements": "if (i >= n) return; int l = i - 1; if (l < 0) l += n; int r = i + 1; if (r >= n) r -= n; v[i] = u[l] * u[r];",
    "equal": "if (i < n) { int l = i == 0 ? n - 1 : i - 1, r = i == n - 1 ? 0 : i + 1; v[i] = u[l] * u[r]; }",
    "itself": "if (i < n) v[i] = u[i > 0 ? i - 1 : i] * u[i < n - 1 ? i + 1 : i];",
    "values": "if (i < n) { double l = i > 0 ? u[i - 1] : u[n - 1], r; if (i < n - 1) r = u[i + 1]; else r = u[0]; v[i] = l * r; }",
    "unsigned": "unsigned k = i; if (k < (unsigned)n) v[k] = u[(k + 1u) % (unsigned)n] * u[(k + (unsigned)n - 1u) % (unsigned)n];",
    "two laps": "if (i < n) v[i] = u[(i + 1 + 2 * n) % n] * u[(i + n) % n];",
    "literal": "if (i < 40) v[i] = u[(i + 1) % 40] * u[(i + 39) % 40];",
    "offset": "if (i < n) v[i] = u[m + (i + 1) % n] * u[m + i];",
    "inside an interior": "if (i >= 1 && i < n - 1) v[i] = u[max(i - 1, 1)] * u[min(i + 1, n - 2)];",
    "half the guard": "if (i < n) v[i] = u[max(i - 1, 0)] * u[i];",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", WRITTEN)
def test_written_otherwise(name: str) -> None:
    text = LINE.format(WRITTEN[name])

    def make() -> tuple[Any, ...]:
        return (*pairs(3, 64, 64), 40, 3)

    kernels = reverse(compiled(text, "k"), 5, 8, make())
    assert is_gathered(kernels) and not atomics(kernels)
    agree(text, 5, 8, make, executors=("reference",))


REFUSED = {
    "another period": "if (i < n) v[i] = u[(i + 1) % (n - 25)] * u[i];",
    "a step beyond the period": "if (i < n) v[i] = u[(i + 2 * m) % 5] * u[i];",
    "below zero": "if (i < n) v[i] = u[40 + (i - 1 - n) % n] * u[i];",
    "wrapping": "unsigned k = i; if (k < (unsigned)n) v[k] = u[(k - 1u) % (unsigned)n] * u[k];",
    "clamped further in": "if (i < n) v[i] = u[max(i - 1, 9)] * u[i];",
    "mirrored": "if (i < n) v[i] = u[n - 1 - i] * u[i];",
}


@pytest.mark.parametrize("name", REFUSED)
def test_not_proved(name: str) -> None:
    """Bends that are no edges of the launch: several threads send to one that is none of theirs. Right all the same."""
    text = LINE.format(REFUSED[name])

    def make() -> tuple[Any, ...]:
        return (*pairs(4, 128, 128), 40, 3)

    assert atomics(reverse(compiled(text, "k"), 5, 8, make()))
    agree(text, 5, 8, make, executors=("reference",))


def test_random_edges() -> None:
    """What the proofs say of random launches, the reference executor confirms, which sees every collision: of bends, extents, grids, guards
    that do not fit one another as well."""
    rng = random.Random(7)
    gathered = 0
    many = cases(5, 100)
    for _ in range(many):
        dimensions = rng.choice([1, 1, 2, 2, 3])
        bends = tuple(rng.choice(list(BENDS)) for _ in range(dimensions))
        terms = []
        for _ in range(rng.randint(1, 4)):
            steps = [tuple(rng.choice([-2, -1, 0, 1, 2]) if rng.random() < 0.6 else 0 for _ in bends) for _ in range(rng.randint(1, 2))]
            terms.append(" * ".join(f"u[{place(bends, step)}]" for step in steps))
        guard = "".join(f" && {v} >= 2 && {v} < {n} - 2" for v, n, b in zip(NAMES, SIZES, bends, strict=False) if b == "inside")
        text = kernel(dimensions, f"v[{OUT[dimensions]}] = {' + '.join(terms)};", guard)
        for _ in range(2):
            extent = [rng.randint(1, 9) for _ in bends]
            block = tuple(rng.choice([1, 2, 3, 4]) for _ in bends)
            grid = tuple(max(1, -(-n // m) + rng.choice([-1, 0, 0, 1])) for n, m in zip(extent, block, strict=True))

            def make(extent: tuple[int, ...] = tuple(extent)) -> tuple[Any, ...]:
                arrays = (np.random.default_rng(k).standard_normal(1329) for k in range(4))
                pair = [Duplicated(next(arrays), next(arrays))[300:] for _ in range(2)]
                return (*pair, *extent)

            kernels = reverse(compiled(text, "k"), grid, block, make())
            gathered += is_gathered(kernels)
            if is_gathered(kernels):
                expected = gradients(text, grid, block, make, executor="reference", plain=False)
                for found, right in zip(gradients(text, grid, block, make, executor="reference"), expected, strict=True):
                    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    assert (0.8 if NIGHTLY else 0.2) * many < gathered < 2 * many


def test_periodic_leapfrog_in_place() -> None:
    """CASES 45 on a ring: without atomics, in two launches."""
    body = "p[i] = 2 * u[i] - p[i] + c[i] * (u[(i + n - 1) % n] - 2 * u[i] + u[(i + 1) % n]);"
    text = f"""extern "C" __global__ void k(double* p, const double* u, const double* c, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {body} }}"""

    def make() -> tuple[Any, ...]:
        return (*pairs(4, 61, 61, 61), 61)

    kernels = reverse(compiled(text, "k"), 8, 8, make())
    assert [k.name for k in kernels] == ["k_gather", "k_reverse"]
    assert not atomics(kernels)
    agree(text, 8, 8, make)


def test_text() -> None:
    """At an edge there is nothing left of the bend."""
    text = LINE.format("if (i < n) v[i] = u[(i + n - 1) % n] + u[(i + 1) % n];")
    source = compiled(text, "k").adjoint(u=Duplicated, v=Duplicated, grid=5, block=8, args=(*pairs(1, 40, 40), 40, 0)).source
    body = source[source.index("void k_gather") : source.index("void k_reverse")]
    assert "%" not in body
    assert "if (i < 1)" in body and "if (i < n - 1)" in body
