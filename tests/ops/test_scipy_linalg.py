"""Functions of `scipy.linalg`, least squares, matrices made of vectors: values are SciPy's, gradients those of differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, numbers

import gpuad
from gpuad import Duplicated, GpuadError, Tape, ops

linalg = pytest.importorskip("scipy.linalg")
A, Z, B, V = numbers(4, 4), numbers(4, 4, dtype=np.complex128, seed=2), numbers(4, 3, seed=3), numbers(5, seed=4)
TALL, WIDE = numbers(6, 3, seed=5), numbers(3, 6, seed=6)


class _Plain:
    """NumPy's functions, and SciPy's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np.linalg if name in ("lstsq", "tensorsolve", "tensorinv") else linalg, name)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "expm": (lambda xp, a: xp.expm(0.7 * a), (A,)),
    "expm of complex numbers": (lambda xp, a: xp.expm(a), (Z,)),
    "lu": (lambda xp, a: xp.lu(a)[1] @ (2 * xp.lu(a)[2]) + xp.lu(a)[0], (A,)),
    "lu of complex numbers": (lambda xp, a: xp.lu(a, permute_l=True)[0] * xp.lu(a, True)[1], (Z,)),
    "lu_factor": (lambda xp, a: xp.lu_factor(a)[0] ** 2, (A,)),
    "solved": (lambda xp, a, b: xp.lu_solve(xp.lu_factor(a), b), (A, B)),
    "solved by the transpose": (lambda xp, a, b: xp.lu_solve(xp.lu_factor(a), b, 1), (A, B[:, 0].copy())),
    "solved, complex": (lambda xp, a, b: xp.lu_solve(xp.lu_factor(a), b, 1) + 2 * xp.lu_solve(xp.lu_factor(a), b, 2), (Z, Z[:, :2].copy())),
    "solved, mixed": (lambda xp, a, b: xp.lu_solve(xp.lu_factor(a), b), (A, Z[:, :2].copy())),
    "lstsq": (lambda xp, a, b: xp.lstsq(a, b, rcond=None)[0], (TALL, numbers(6, 2, seed=7))),
    "what is left": (lambda xp, a, b: xp.lstsq(a, b, rcond=None)[1], (TALL, numbers(6, 2, seed=7))),
    "singular values": (lambda xp, a, b: xp.lstsq(a, b, rcond=None)[3], (TALL, numbers(6, seed=7))),
    "lstsq of a wide matrix": (lambda xp, a, b: xp.lstsq(a, b, rcond=None)[0], (WIDE, B[:3, 0].copy())),
    "lstsq of complex numbers": (lambda xp, a, b: xp.lstsq(a, b, rcond=None)[0], (Z[:, :2].copy(), Z[:, 2].copy())),
    "tensorsolve": (lambda xp, a, b: xp.tensorsolve(a, b, axes=(0,)), (numbers(6, 2, 3, seed=8), numbers(2, 3, seed=9))),
    "tensorinv": (lambda xp, a: xp.tensorinv(a, 1), (numbers(6, 2, 3, seed=8),)),
    "toeplitz": (lambda xp, c, r: xp.toeplitz(c, r) + xp.toeplitz(c, c * r)[:, ::-1], (V, V[::-1].copy())),
    "toeplitz of a column": (lambda xp, c: xp.toeplitz(c) * xp.hankel(c), (numbers(4, dtype=np.complex128),)),
    "circulant": (lambda xp, c: xp.circulant(c) @ xp.hankel(c, c), (V,)),
    "block_diag": (lambda xp, a, v: xp.block_diag(a, v, 2.0 * a), (A, V)),
    "khatri_rao": (lambda xp, a, b: xp.khatri_rao(a, b), (B, TALL)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    program, arrays = CASES[name]
    check(lambda *x: program(ops, *x), lambda *x: program(_Plain(), *x), *arrays, tolerance=2e-6)


def test_forward_mode_of_the_exponential() -> None:
    _, slope = gpuad.jvp(ops.expm, (A,), (np.cos(A),))
    up, down = (linalg.expm(A + s * 1e-6 * np.cos(A)) for s in (1, -1))
    np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-8)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.lstsq(x * 0 + 1, x[:, 0]), lambda x: ops.expm(x[:2]), lambda x: ops.lu(x[:, :2]), lambda x: ops.tensorinv(x, 2),
        lambda x: ops.lu_solve(ops.lu_factor(x), x, 3), lambda x: ops.khatri_rao(x, x[:, :2]), lambda x: ops.lstsq(x, x[0, :3]),
        lambda x: ops.tensorsolve(x, x),
    ],
)  # fmt: skip
def test_refused_in_words(call: Any) -> None:
    with pytest.raises(GpuadError) as caught, Tape():
        call(Duplicated(A.copy()))
    assert len(str(caught.value)) > 20
