"""Adjoints of products in which a factor occurs more than once, and of what is made of a root: short, and right to the end of the range."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import Duplicated, pipeline, testing

TEXT = """extern "C" __global__ void k(const double* x, const double* y, double* v) {{
    double a = x[threadIdx.x], b = y[threadIdx.x];
    v[threadIdx.x] = {};
}}"""


def gradient(expression: str, x: float, y: float) -> tuple[float, float]:
    pairs = [Duplicated(np.array([x])), Duplicated(np.array([y])), Duplicated(np.zeros(1), np.ones(1))]
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        gpuad.autodiff(gpuad.kernel(TEXT.format(expression), "k"), 1, 1, pairs)
    return float(pairs[0].shadow[0]), float(pairs[1].shadow[0])


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("expression", "da", "db"),
    [
        ("b * a * a * a", lambda a, b: 3 * b * a**2, lambda a, b: a**3),
        ("a * a", lambda a, b: 2 * a, lambda a, b: 0),
        ("(a * b) * (a * b) * a", lambda a, b: 3 * a**2 * b**2, lambda a, b: 2 * a**3 * b),
        ("a * (b * a) * (2.5 * a * b) * -a", lambda a, b: -10 * a**3 * b**2, lambda a, b: -5 * a**4 * b),
        ("(a + b) * (a + b) * a", lambda a, b: (a + b) ** 2 + 2 * a * (a + b), lambda a, b: 2 * a * (a + b)),
        ("a * sin(a * a * b) * a", lambda a, b: 2 * a * np.sin(a * a * b) + 2 * a**3 * b * np.cos(a * a * b),
         lambda a, b: a**4 * np.cos(a * a * b)),
        ("a * a / (b * a * b)", lambda a, b: 1 / b**2, lambda a, b: -2 * a / b**3),
        ("a * a * (a > 0.5 ? a * b * a : b)", lambda a, b: 4 * a**3 * b, lambda a, b: a**4),
    ],
)  # fmt: skip
def test_of_repeated_factors(expression: str, da: object, db: object) -> None:
    a, b = 0.7, -1.3
    found = gradient(expression, a, b)
    np.testing.assert_allclose(found, (da(a, b), db(a, b)), rtol=1e-14)  # type: ignore[operator]
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        args = (np.array([a]), np.array([b]), np.zeros(1))
        testing.check_gradient(gpuad.kernel(TEXT.format(expression), "k"), args, grid=1, block=1)


def test_a_repeated_factor_has_one_term() -> None:
    source = gpuad.kernel(TEXT.format("b * a * a * a"), "k").adjoint(Duplicated, Duplicated, Duplicated).source
    (line,) = [line for line in source.splitlines() if "&dx[threadIdx.x]" in line]
    assert "3.0 * (b * dv_2)" in line
    assert line.count(" + ") == 0


@pytest.mark.parametrize("x", [-0.0, 0.0, 1e-44, -1e-20, 3.0, -1e18, 1e30, np.inf])
def test_reciprocals_to_the_end_of_the_range(x: float) -> None:
    """Their derivative is made of themselves."""
    text = 'extern "C" __global__ void k(const float* x, float* v) { v[threadIdx.x] = 1 / x[threadIdx.x]; }'
    pair, result = Duplicated(np.array([x], np.float32)), Duplicated(np.zeros(1, np.float32), np.ones(1, np.float32))
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 1, (pair, result))
    with np.errstate(all="ignore"):
        expected = np.float32(-1 / np.float64(np.float32(x)) ** 2)
    np.testing.assert_allclose(pair.shadow, [expected], rtol=1e-6, atol=1e-38)


def test_a_reciprocal_in_the_place_of_a_number_needs_nothing_saved() -> None:
    text = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1.0f / x[threadIdx.x]; }'
    source = gpuad.kernel(text, "k").adjoint(Duplicated).source
    assert "saved" not in source and " / " not in source


@pytest.mark.parametrize("x", [0.0, 1e-44, 1e-26, 1e-20, 1.0, 1e20, 1e30, 1e38, np.inf])
def test_reciprocal_roots_to_the_end_of_the_range(x: float) -> None:
    text = 'extern "C" __global__ void k(const float* x, float* v) { int i = threadIdx.x; float r = rsqrtf(x[i]); v[i] = r; }'
    pair, result = Duplicated(np.array([x], np.float32)), Duplicated(np.zeros(1, np.float32), np.ones(1, np.float32))
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 1, (pair, result))
    with np.errstate(all="ignore"):
        right = np.float32(-0.5 * np.float64(pair.primal[0]) ** -1.5)
    np.testing.assert_allclose(pair.shadow[0], right, rtol=1e-6, atol=3e-45)
