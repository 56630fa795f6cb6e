"""Forward mode of array operations: tangents are central differences of the values, or the operation is refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_more_operations import CASES, A, X, Y, Z
from test_ops_numpy import like

import gpuad
from gpuad import Duplicated, GpuadError, UnsupportedError, jvp, ops

PLAIN = np.zeros((3, 3))
REFUSED = {  # rules that have no tangent: of values that are sorted or multiplied one by one, of determinants and factors
    "cumprod", "cumprod of complex numbers", "median", "quantile", "linalg.det", "linalg.det of complex numbers",
    "linalg.det of a singular matrix",
    "linalg.cholesky", "linalg.cholesky of a triangle", "linalg.cholesky of complex numbers", "linalg.eigh",
    "linalg.eigh of complex numbers", "linalg.eigh with vectors", "linalg.svd", "linalg.svd other side", "linalg.svd of complex numbers",
    "linalg.qr", "linalg.norm", "linalg.cond",
}  # fmt: skip
MORE: dict[str, Any] = {
    "slices in place": (lambda x, y: written(x, y), (X, Y)),
    "index arrays": (lambda x: x[[0, 2, 2]] * x[np.array([1, 0, 1])], (X,)),
    "put and scatter": (lambda x, y: scattered(x, y), (X, Y)),
    "products": (lambda a, x: np.einsum("ij,jk->ik", a, x) @ (a @ x).T, (A, X)),
    "complex arithmetic": (lambda z: (z * z - 2j * z) * np.conj(z) + z.real * 1j, (Z,)),
    "spectra": (lambda x: np.fft.irfft(np.fft.rfft(x) * np.arange(3.0) * 1j) * np.abs(np.fft.fft2(x)) ** 2, (X,)),
    "means": (lambda x: np.mean(x, axis=0) * np.sum(x * x) + np.var(x), (X,)),
    "filters": (lambda x, y: ops.ndimage.convolve(x, y[:, :3]) * ops.ndimage.gaussian_filter(x, 1.0), (X, Y)),
}


def written(x: Any, y: Any) -> Any:
    z = x * y
    z[1:] += y[:-1] * z[1:]
    z[:, 0] = x[:, 1]
    z *= x
    return z


def scattered(x: Any, y: Any) -> Any:
    z = x * 1.0
    np.add.at(z, [0, 2, 0], y)
    z[[1, 2], [0, 1]] = y[0, :2] * x[1, :2]
    return z * z


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_tangents(name: str) -> None:
    program, arrays = (CASES | MORE)[name]
    directions = [like(a, 8 + k) for k, a in enumerate(arrays)]
    before = [a.copy() for a in arrays]
    if name in REFUSED:
        with pytest.raises(UnsupportedError, match="forward mode"):
            jvp(program, arrays, directions)
        return
    value, tangent = jvp(program, arrays, directions)
    h = 1e-6
    up, down = (np.asarray(program(*[a + s * h * d for a, d in zip(arrays, directions, strict=True)])) for s in (1, -1))
    np.testing.assert_allclose(value, np.asarray(program(*arrays)), rtol=1e-12, atol=1e-13)
    scale = max(1.0, float(np.abs(tangent).max(initial=0.0)))
    np.testing.assert_allclose(tangent / scale, (up - down) / (2 * h) / scale, atol=2e-7)
    for array, same in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_forward_and_reverse_are_transposed() -> None:
    """<w, J v> = <J^T w, v>, of a program of all kinds."""

    def program(x: Any) -> Any:
        return written(x, np.sin(x)) + np.linalg.solve(A, np.cumsum(x, axis=1))[:, ::-1] + np.pad(x, 1, mode="edge")[1:-1, 1:-1]

    v, w = like(X, 1), like(X, 2)
    pair, tape = Duplicated(X.copy()), gpuad.Tape()
    with tape:
        found = program(pair)
    tape.reverse({found: w})
    assert np.sum(w * jvp(program, (X,), (v,))[1]) == pytest.approx(np.sum(pair.shadow * v), rel=1e-12)


def test_programs_of_others_numbers_and_several_results() -> None:
    """By `trace`: buffers of the program's own; a result without a tangent has zeros."""

    def program(x: Any, scale: float, n: int) -> Any:
        y = np.zeros(x.shape)
        for k in range(n):
            y[k] = scale * np.sum(x[: k + 1] ** 2)
        return y, x * 0 + 1, np.arange(3)

    x = np.array([1.0, 2.0, 3.0])
    (y, one, plain), (dy, none, nothing) = jvp(program, (x, 2.0, 3), (np.ones(3), 0.5, None))
    np.testing.assert_allclose(y, [2, 10, 28])
    np.testing.assert_allclose(dy, 0.5 * np.array([1, 5, 14]) + 4 * np.array([1, 3, 6]))
    assert not none.any() and nothing is None and plain[2] == 2 and one[0] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: jvp(3, (X,), (X,)), lambda: jvp(np.sin, (X,), (X[0],)), lambda: jvp(np.sin, (X,), (X, X)), lambda: jvp(np.sin, X, X),
        lambda: jvp(lambda x: np.linalg.det(x[:, :3]), (X,), (X,)), lambda: jvp(lambda x: np.dot(x, x.T, out=PLAIN), (X,), (X,)),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(GpuadError):
        call()


def blur_reverse(dx: Any, dy: Any) -> None:
    dx += dy[::-1]


def cube_reverse(x: Any, dx: Any, dy: Any) -> None:
    dx += 3 * x * x * dy


def cube_tangent(x: Any, dx: Any, dy: Any) -> None:
    dy[...] = 3 * x * x * dx


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=blur_reverse, linear=(("x",),))
def turned(x: Any, y: Any) -> None:
    y[...] = x[::-1]


@gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=cube_reverse, tangent=cube_tangent)
def cubed(x: Any, y: Any) -> None:
    y[...] = x**3


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=blur_reverse)
def without(x: Any, y: Any) -> None:
    y[...] = x[::-1]


def test_rules_of_the_user() -> None:
    def program(x: Any, through: Any) -> Any:
        y = np.zeros(3)
        through(x * 2.0, y)
        return y

    x, v = np.arange(1.0, 4), np.array([1.0, 0, 2])
    np.testing.assert_array_equal(jvp(program, (x, turned), (v, None))[1], [4, 0, 2])
    np.testing.assert_allclose(jvp(program, (x, cubed), (v, None))[1], 24 * x * x * v)
    with pytest.raises(UnsupportedError, match="`without` is a rule, whose reverse alone is stated"):
        jvp(program, (x, without), (v, None))
