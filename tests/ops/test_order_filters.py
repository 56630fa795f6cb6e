"""Filters that select, flat morphology, filters of spectra and sums over labels: values are SciPy's, gradients those of differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, numbers

import gpuad
from gpuad import Duplicated, GpuadError, Tape, ops

ndimage = pytest.importorskip("scipy.ndimage")
X = (1 + np.random.default_rng(4).permutation(42).reshape(7, 6)) / 43  # no two are equal, and none is 0
FOOT = np.array([[0, 1, 1], [1, 1, 0], [0, 1, 0], [1, 0, 1]])
LABELS = np.random.default_rng(1).integers(0, 4, X.shape)
CASES: dict[str, Callable[..., Any]] = {
    "rank": lambda xp, x, m: xp.rank_filter(x, 2, size=3, mode=m) + xp.rank_filter(x, -2, footprint=FOOT, mode=m, cval=0.4, origin=(1, -1)),
    "median": lambda xp, x, m: xp.median_filter(x, 3, mode=m) * xp.median_filter(x, (2, 4), mode=m),
    "percentile": lambda xp, x, m: xp.percentile_filter(x, 30, size=(3, 2), mode=m) + xp.percentile_filter(x, -20, footprint=FOOT, mode=m),
    "extremes": lambda xp, x, m: xp.minimum_filter(x, (3, 1), mode=m, cval=2.0) * xp.maximum_filter(x, footprint=FOOT, mode=m, origin=-1),
    "along an axis": lambda xp, x, m: xp.minimum_filter1d(x, 4, 0, mode=m, origin=1) + xp.maximum_filter1d(x, 3, mode=m),
    "erosion": lambda xp, x, m: xp.grey_erosion(x, (3, 2), mode=m, origin=(0, -1)) * xp.grey_dilation(x, footprint=FOOT, mode=m),
    "opening": lambda xp, x, m: xp.grey_opening(x, 3, mode=m) + 2 * xp.grey_closing(x, (2, 3), mode=m),
    "tophat": lambda xp, x, m: xp.white_tophat(x, 3, mode=m) * 2 + xp.black_tophat(x, (2, 3), mode=m),
    "gradient": lambda xp, x, m: xp.morphological_gradient(x, 3, mode=m) + xp.morphological_laplace(x, (2, 3), mode=m) ** 2,
    "laplace of a Gaussian": lambda xp, x, m: xp.gaussian_laplace(x, (1.2, 0.8), mode=m) + xp.gaussian_gradient_magnitude(x, 1.1, mode=m),
}  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.parametrize("mode", ["reflect", "constant", "nearest", "mirror", "wrap"])
@pytest.mark.parametrize("name", CASES)
def test_filters(name: str, mode: str) -> None:
    check(lambda x: CASES[name](ops.ndimage, x, mode), lambda x: CASES[name](ndimage, x, mode), X)


def test_of_several_that_are_equal_one_gets_the_gradient() -> None:
    pair = Duplicated(np.array([1.0, 1.0, 0.0, 2.0, 2.0]))
    with Tape() as tape:
        found = ops.ndimage.maximum_filter(pair, 3)
    tape.reverse({found: np.ones(5)})
    assert pair.shadow.sum() == 5 and pair.shadow[2] == 0
    _, slope = gpuad.jvp(lambda x: ops.ndimage.median_filter(x, 3), (X,), (np.cos(X),))
    up, down = (ndimage.median_filter(X + s * 1e-6 * np.cos(X), 3) for s in (1, -1))
    np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["fourier_gaussian", "fourier_uniform", "fourier_shift", "fourier_ellipsoid"])
def test_of_spectra(name: str) -> None:
    z = numbers(5, 6, dtype=np.complex128)
    by = (1.3, 2.0) if name != "fourier_ellipsoid" else 3.0
    check(lambda z: getattr(ops.ndimage, name)(z, by, 8), lambda z: getattr(ndimage, name)(z, by, 8), z)
    check(lambda x: getattr(ops.ndimage, name)(x, by), lambda x: getattr(ndimage, name)(x, by), X)


@pytest.mark.parametrize("index", [None, 2, [1, 3, 0], [[2], [9]]])
def test_sums_over_labels(index: Any) -> None:
    check(lambda x: ops.ndimage.sum_labels(x * x, LABELS, index), lambda x: np.asarray(ndimage.sum_labels(x * x, LABELS, index)), X)
    if index != [[2], [9]]:
        check(lambda x: ops.ndimage.mean(x * x, LABELS, index), lambda x: np.asarray(ndimage.mean(x * x, LABELS, index)), X)
    check(lambda x: ops.ndimage.mean(x), lambda x: np.asarray(ndimage.mean(x)), X)


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x: n.median_filter(x), lambda n, x: n.rank_filter(x, 9, size=3), lambda n, x: n.median_filter(x, footprint=np.ones(3)),
        lambda n, x: n.grey_erosion(x, structure=np.ones((3, 3))), lambda n, x: n.median_filter(x, 3, mode="reflected"),
        lambda n, x: n.fourier_shift(x, Duplicated(np.ones(2))), lambda n, x: n.sum_labels(x, LABELS - 1, 0),
    ],
)  # fmt: skip
def test_refused_in_words(call: Any) -> None:
    with pytest.raises(GpuadError) as caught, Tape():
        call(ops.ndimage, Duplicated(X.copy()))
    assert len(str(caught.value)) > 20
