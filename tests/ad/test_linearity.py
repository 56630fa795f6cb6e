"""What gathers of all-pairs loops add up, rearranged: against atomic accumulation, which knows none of it, and by what is in the text."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, pairs, reverse
from launch_tools import compiled
from nightly import cases

from gpuad import Duplicated
from gpuad.ir.nodes import Binary, For, walk
from gpuad.ir.rewrite import expressions, walk_stmts

PAIRS = """
extern "C" __global__ void k(const double* x, const double* y, const double* m, double* v, double* w, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0, t = 0;
    for (int j = 0; j < n; j++) {{
        double dx = x[j] - x[i], dy = y[j] - y[i], mi = m[i], mj = m[j];
        double r2 = dx * dx + dy * dy + 0.25, inverse = rsqrt(r2);
        s += {};
        t -= {};
    }}
    v[i] = s;
    w[i] = t;
}}"""
ATOMS = (
    "dx", "dx", "dy", "dy", "mi", "mj", "mj", "r2", "inverse", "inverse", "inverse", "2.0", "-0.5", "3.0", "x[j]", "y[i]",
    "atan2(dy, dx)", "cos(3.0 * atan2(dy, dx))", "copysign(1.5, dx)", "(dx > 0 ? dx : 0.5 * dy)", "1.0 / (dx + 7.0)", "sin(dx)", "sqrt(r2)",
    "exp(-r2)", "(double)(int)(4.0 * dx)", "(dx - dy)", "(dy - dx)", "(mj * dx + mj * dy)", "fmin(dx, -dx)", "-dx",
)  # fmt: skip


def expression(rng: random.Random) -> str:
    """A sum of products of what a pair has."""
    products = (" * ".join(rng.choice(ATOMS) for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 3)))
    return " + ".join(products)


def points() -> tuple[Any, ...]:
    return (*pairs(3, 7, 7, 7, 7, 7), 7)


def gather_text(text: str) -> str:
    source = str(compiled(text, "k").adjoint(*[Duplicated] * 5, grid=2, block=4, args=points()).source)
    found = re.search(r"void k_gather\(.*?^}", source, re.S | re.M)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("seed", range(cases(3, 16)))
def test_random_pairs(seed: int) -> None:
    rng = random.Random(seed)
    text = PAIRS.format(expression(rng), expression(rng))
    kernels = reverse(compiled(text, "k"), 2, 4, points())
    assert is_gathered(kernels) and not atomics(kernels)
    agree(text, 2, 4, points, executors=("reference",))


def test_a_sign_of_zero_that_decides() -> None:
    """A body is at distance +0 from itself; the opposite of a distance would be -0, of which atan2 makes half a turn."""
    text = PAIRS.format("mj * cos(3.0 * atan2(dy, dx)) + mj * dx * dy", "mj * copysign(1.5, dx) * copysign(2.0, dy)")
    args = points()
    assert is_gathered(reverse(compiled(text, "k"), 2, 4, args))
    seeds = args[3].shadow.copy(), args[4].shadow.copy()
    dm = gradients(text, 2, 4, lambda: args, executor="reference")[2] - pairs(3, 7, 7, 7)[2].shadow
    x, y = (a.primal for a in args[:2])
    dx, dy = x[None] - x[:, None], y[None] - y[:, None]
    right = seeds[0] @ (np.cos(3 * np.arctan2(dy, dx)) + dx * dy) - seeds[1] @ (np.copysign(1.5, dx) * np.copysign(2.0, dy))
    np.testing.assert_allclose(dm, right, rtol=1e-12, atol=1e-12)


def test_an_infinite_partial_that_nobody_asked_for() -> None:
    """At distance 0 the root's partial is infinite; two seeds that are 0 add up to one that is."""
    text = PAIRS.format("mj * sqrt(r2 - 0.25)", "mi * sqrt(r2 - 0.25)")

    def make() -> tuple[Any, ...]:
        x, y, m, v, w, n = points()
        for array in (v.shadow, w.shadow):
            array[...] = 0
        return x, y, m, v, w, n

    before = [p.shadow for p in make()[:3]]
    for found, start in zip(gradients(text, 2, 4, make, executor="reference"), before, strict=False):
        np.testing.assert_array_equal(found, start)


def test_pairs_share_their_factors() -> None:
    """The gradient of a pair potential: one root, one product with the partial, and one addition for each coordinate."""
    text = PAIRS.format("mj * inverse", "0.0 * mj")
    agree(text, 2, 4, points, executors=("reference",))
    gather = gather_text(text)
    assert [gather.count(f"{f}(") for f in ("rsqrt", "gpuad_chain")] == [1, 1]
    assert all(f" = xi - {name}" not in gather for name in ("x_2", "x_3"))
    assert all(len(re.findall(rf"{total} [-+]= ", gather)) == 1 for total in ("dm_2", "dx_2", "dy_2"))


MEAN = """
extern "C" __global__ void k(const double* x, const double* w, double* v, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0;
    for (int j = 0; j < m; j++) s += w[j] * x[i + j];
    v[i] = s / COUNT;
}"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("count", "late"), [("m", True), ("(double)(unsigned)m", False), ("(1.0 * m)", False), ("w[0]", False)])
def test_a_mean_is_divided_once(count: str, late: bool) -> None:
    """What collects multiplies by one over a number of elements at the end. A divisor of floating point may be small."""
    text = MEAN.replace("COUNT", count)

    def make() -> tuple[Any, ...]:
        return *pairs(5, 12, 4, 9), 9, 4

    agree(text, 3, 4, make, executors=("reference",))
    kernels = reverse(compiled(text, "k"), 3, 4, make())
    (loop, *_) = [s for s in walk_stmts(kernels[0].body) if isinstance(s, For)]
    divides = any(isinstance(e, Binary) and e.op == "/" for s in walk_stmts(loop.body) for top in expressions(s) for e in walk(top))
    assert is_gathered(kernels) and divides is not late


NESTED = """
extern "C" __global__ void k(const double* x, const double* m, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0;
    for (int j = 0; j < n; j++) s += m[j] * (x[j] - x[i]);
    s = s * s;
    for (int j = 0; j < n; j++) s += m[j] * x[i] * x[i] * (x[i] - x[j]);
    v[i] = s * x[i];
}"""


def test_sums_in_several_loops() -> None:
    def make() -> tuple[Any, ...]:
        return (*pairs(5, 9, 9, 9), 9)

    agree(NESTED, 3, 4, make, executors=("reference",))


def test_range() -> None:
    """No factor is taken to another place of a product where it would leave the range: distances in metres, masses in kilograms."""
    text = PAIRS.replace("double", "float").replace("0.25", "0.0f").format("mj * inverse * inverse * (mi / mj)", "0.0f")
    text = text.replace("rsqrt(", "rsqrtf(").replace("float dx", "if (i == j) continue; float dx")

    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(1)
        x, y = (np.float32(1e13) * rng.standard_normal(7).astype(np.float32) for _ in range(2))
        m = np.float32(1e30) * rng.uniform(1, 2, 7).astype(np.float32)
        made = [Duplicated(a, np.zeros(7, np.float32)) for a in (x, y, m, np.zeros(7, np.float32), np.zeros(7, np.float32))]
        made[3].shadow[...] = 1
        return *made, 7

    expected = gradients(text, 2, 4, make, executor="reference", plain=False)
    for found, right in zip(gradients(text, 2, 4, make, executor="reference")[:3], expected[:3], strict=True):
        assert np.abs(right).min() > 0
        np.testing.assert_allclose(found, right, rtol=1e-4)
