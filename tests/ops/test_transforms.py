"""Transforms into cosines and sines, and of Hermitian signals: values are SciPy's, gradients those of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, inner, numbers

from gpuad import Duplicated, Tape, ops

fft = pytest.importorskip("scipy.fft")
X = numbers(4, 5)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "dst", "idct", "idst"])
def test_the_adjoint_of_each_type(name: str, type: int, norm: Any) -> None:
    """<y, F x> = <F^T y, x> to rounding, of lengths even and odd."""
    for n in (2, 5, 6):
        x, y = numbers(n, seed=1), numbers(n, seed=2)
        pair = Duplicated(x.copy())
        with Tape() as tape:
            found = getattr(ops, name)(pair, type, norm=norm)
        np.testing.assert_allclose(found.primal, getattr(fft, name)(x, type, norm=norm), rtol=1e-13, atol=1e-13)
        tape.reverse({found: y})
        np.testing.assert_allclose(inner(pair.shadow, x), inner(y, found.primal), rtol=1e-12, atol=1e-13)


def test_along_axes_and_with_lengths() -> None:
    check(lambda x: ops.dct(x, 2, 7, 0) ** 2, lambda x: fft.dct(x, 2, 7, 0) ** 2, X)
    check(lambda x: ops.idstn(x, 3, (3, 4), norm="ortho"), lambda x: fft.idstn(x, 3, (3, 4), norm="ortho"), X)
    check(lambda x: ops.dctn(x, axes=(0,)), lambda x: fft.dctn(x, axes=(0,)), X)


def test_of_hermitian_signals() -> None:
    z = numbers(3, 4, dtype=np.complex128)
    check(lambda z: ops.hfft2(z), lambda z: fft.hfft2(z), z)
    check(lambda x: ops.ihfftn(x, norm="ortho"), lambda x: fft.ihfftn(x, norm="ortho"), X)
    check(lambda z: ops.hfftn(z, (4, 6)), lambda z: fft.hfftn(z, (4, 6)), z)
    check(lambda x: ops.ihfft2(x), lambda x: fft.ihfft2(x), X)
