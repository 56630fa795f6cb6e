"""A function's value and gradients as those of one vector, and the recipes of docs/how-to/fit-parameters.md with the optimisers that are
installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, GpuadError

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "fit-parameters.md"
K, Z = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([1 + 2j, -1j])


def loss(k: Any, z: Any, scale: float, weights: Any) -> Any:
    return np.sum(weights * k * k) * scale + np.sum(np.abs(z) ** 2 * np.array([1.0, 3.0])) + np.imag(z[0])


def test_a_vector_of_arrays_numbers_and_complex_numbers() -> None:
    f = gpuad.value_and_grad(loss, (0, 1, 2)).flat(K, Z, 0.5, np.ones((2, 2)))
    np.testing.assert_array_equal(f.start, [1, 2, 3, 4, 1, 2, 0, -1, 0.5])
    assert f.start.dtype == np.float64
    for _ in range(3):
        value, gradient = f(f.start)
        assert type(value) is float and value == 15 + 5 + 3 + 2 and gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, [1, 2, 3, 4, 2, 5, 0, -6, 30])
    k, z, scale = f.arrays(f.start)
    assert k.dtype == np.float32 and k.shape == (2, 2) and z.dtype == complex and type(scale) is float
    np.testing.assert_array_equal(z, Z)
    value, gradient = f(f.start, np.full((2, 2), 2.0))
    assert value == 30 + 5 + 3 + 2 and gradient[0] == 2
    h = 1e-4
    slopes = [(f(f.start + h * e)[0] - f(f.start - h * e)[0]) / (2 * h) for e in np.eye(9)]
    np.testing.assert_allclose(f(f.start)[1], slopes, rtol=1e-2)  # k is of single precision


def test_one_argument_is_given_back_alone_and_pairs_are_left() -> None:
    x = Duplicated(np.arange(3.0))
    f = gpuad.value_and_grad(lambda x: np.sum(x**3)).flat(x)
    value, gradient = f(f.start + 1)
    np.testing.assert_allclose(gradient, 3 * np.arange(1.0, 4) ** 2)
    assert isinstance(f.arrays(f.start), np.ndarray) and not x.shadow.any() and value == 36
    np.testing.assert_array_equal(x.primal, np.arange(3.0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: f(np.zeros(8)), "a vector of 9 numbers"), (lambda f: f(f.start, 1.0, 2.0), "1 arguments have no gradient, 2 are given"),
        (lambda f: f.arrays(np.zeros((9, 1))), "a vector of 9 numbers"),
        (lambda f: gpuad.value_and_grad(loss, 7).flat(K, Z), "argnums"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, words: str) -> None:
    f = gpuad.value_and_grad(loss, (0, 1, 2)).flat(K, Z, 0.5, np.ones((2, 2)))
    with pytest.raises(GpuadError, match=words):
        call(f)


def test_of_arrays_of_a_device(cupy: Any) -> None:
    f = gpuad.value_and_grad(lambda x, y: (x * x * y).sum(), 0).flat(cupy.asarray(np.arange(3.0)), cupy.asarray(np.arange(3.0)))
    value, gradient = f(f.start + 1)
    np.testing.assert_allclose(gradient, 2 * (np.arange(3.0) + 1) * np.arange(3.0))
    assert type(gradient) is np.ndarray and type(f.arrays(f.start)) is cupy.ndarray and value == 4 + 18


def recipes() -> dict[str, Any]:
    """What the page's code defines, its own fits left out."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"Duplicated": Duplicated}
    for block in (b for b in blocks if "def " in b):
        exec(block, names)
    return names


def test_the_recipe_for_pytorch() -> None:
    pytest.importorskip("torch")
    page = recipes()
    fitted = page["fit_with_torch"](300)
    assert page["misfit"](fitted, page["true_start"], page["measured"]) < 1e-6


def test_the_recipe_for_optax() -> None:
    pytest.importorskip("optax")
    page = recipes()
    fitted = page["fit_with_optax"](300)
    assert page["misfit"](fitted["rate"], fitted["start"], page["measured"]) < 1e-3
