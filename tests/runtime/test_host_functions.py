"""The functions that the CPU's text has of its own, so that loops with them become vector loops: against NumPy in double."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import gpuad
from gpuad.codegen import host_source
from gpuad.frontend.cuda import parse
from gpuad.pipeline.passes import primal_of
from gpuad.source import SourceFile

SOURCE = """
extern "C" __global__ void k(const float* x, const float* y, float* z, int n)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = {};
}}
"""


def computed(expression: str, x: Any, y: Any = None) -> Any:
    z = np.zeros_like(x)
    source = SOURCE if x.dtype == np.float32 else SOURCE.replace("float*", "double*")
    gpuad.kernel(source.format(expression), "k")((-(-x.size // 128),), (128,), (x, x if y is None else y, z, x.size))
    return z


def test_the_exponential_is_right_to_little_more_than_an_ulp() -> None:
    """At a float in 997 of those whose exponential is neither 0 nor infinite, the smallest and largest results among them."""
    bits = np.arange(0, 0x42D00000, 997, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), -bits.view(np.float32)])
    found, right = computed("expf(x[i])", x).astype(np.float64), np.exp(x.astype(np.float64))
    finite = right < float(np.finfo(np.float32).max)
    ulp = np.ldexp(1.0, np.maximum(np.frexp(right)[1], -125) - 24)
    assert np.max(np.abs(found - right)[finite] / ulp[finite]) <= 1.02
    assert np.all(np.isinf(found[right > float(np.finfo(np.float32).max) * (1 + 2.0**-25)]))


def test_the_exponential_of_what_is_special() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 89.0, 3e38, -104.0, -3e38, 1e-45, -1e-45, -103.0], np.float32)
    right = np.array([1, 1, np.inf, 0, np.nan, np.inf, np.inf, 0, 0, 1, 1, 1.4e-45], np.float32)
    np.testing.assert_array_equal(computed("expf(x[i])", x), right)


def test_the_exponential_in_double_is_right_to_an_ulp() -> None:
    """Against 40 digits, over the whole range, near 0, and where results are no normal numbers."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(low, high, 500) for low, high in ((-708, 709.78), (-1, 1), (-1e-9, 1e-9), (-745.2, -708), (0.3, 0.4))])
    found = computed("exp(x[i])", x)
    with mpmath.workdps(40):
        errors = [abs(mpmath.mpf(float(y)) - mpmath.exp(float(v))) / float(np.spacing(y)) for v, y in zip(x, found, strict=True)]
    assert max(errors) <= 1


def test_the_exponential_in_double_of_what_is_special() -> None:
    least = float(np.nextafter(0.0, 1.0))
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 709.782712893384, 709.782712893385, 1e308, -745.13, -745.14, -1e308, least, -least])
    right = np.array([1, 1, np.inf, 0, np.nan, 1.797693134862273e308, np.inf, np.inf, least, 0, 0, 1, 1])
    np.testing.assert_allclose(computed("exp(x[i])", x), right, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_the_larger_and_the_smaller(name: str, dtype: Any) -> None:
    special = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], dtype)
    x, y = np.repeat(special, special.size), np.tile(special, special.size)
    function = name if dtype is np.float64 else f"{name}f"
    np.testing.assert_array_equal(computed(f"{function}(x[i], y[i])", x, y), getattr(np, name)(x, y))


def test_they_are_no_calls() -> None:
    """And loops in step with them are turned inside out."""
    body = "0; for (int k = 0; k < n; ++k) z[i] += expf(x[k] * fmaxf(x[i], y[k]))"
    kernel = primal_of(parse(SourceFile("k.cu", SOURCE.format(body))).kernel("k"))
    assert "gpuad_strips_k(" in host_source([kernel])
