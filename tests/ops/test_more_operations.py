"""NumPy's further functions, called by NumPy's own names on pairs: values are NumPy's, gradients those of central differences of NumPy's
values; what has no gradient is plain. One table for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, numbers

import gpuad
from gpuad import BatchDuplicated, Duplicated, GpuadError, ShadowError, Tape
from gpuad.arguments.recorder import current
from gpuad.context_variables import scoped
from gpuad.interop import Pushing

X, Y, V = numbers(3, 4), numbers(3, 4, seed=1), numbers(5, seed=2)
Z = numbers(3, 4, dtype=complex, seed=3)
A = numbers(3, 3, seed=4) + 2 * np.eye(3)
C = numbers(3, 3, dtype=complex, seed=5) + 2 * np.eye(3)
S = numbers(2, 3, 3, seed=6) + 2 * np.eye(3)
MASK, ORDER = X > 0.1, np.argsort(X, axis=1)

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "tile": (lambda x: np.tile(x, (2, 3)) * np.arange(12.0), (X,)),
    "tile of more axes": (lambda x: np.tile(x, (2, 1, 2)) ** 2, (X,)),
    "repeat": (lambda x: np.repeat(x, 2, axis=1) + np.repeat(x, [1, 2, 0, 1], axis=1).sum(), (X,)),
    "pad": (lambda x: np.pad(x, ((1, 2), (0, 1))) ** 2, (X,)),
    "pad by a number": (lambda x: np.pad(x, 1, constant_values=2.0) ** 2, (X,)),
    "pad edge": (lambda x: np.pad(x, (1, 2), mode="edge") ** 2, (X,)),
    "pad reflect": (lambda x: np.pad(x, 2, "reflect") ** 2, (X,)),
    "pad wrap": (lambda x: np.pad(x, ((2, 1), (1, 1)), "wrap") ** 2, (X,)),
    "pad symmetric": (lambda x: np.pad(x, 3, "symmetric") ** 2, (V,)),
    "vstack": (lambda x, y: np.vstack([x, y, x]) ** 2, (X, Y)),
    "hstack": (lambda x, y: np.hstack((x, 2.0 * y)) ** 2, (X, Y)),
    "hstack with a constant": (lambda x: np.hstack((x, Y)) ** 2, (X,)),
    "dstack": (lambda x, y: np.dstack([x, y]) ** 2, (X, Y)),
    "column_stack": (lambda v: np.column_stack([v, v * v]), (V,)),
    "stack": (lambda x, y: np.stack([x, y], axis=-1) ** 2, (X, Y)),
    "block": (lambda x: np.block([[x, np.ones((3, 1))], [2.0 * x, np.zeros((3, 1))]]) ** 2, (X,)),
    "append": (lambda x, y: np.append(x, y, axis=0) ** 2, (X, Y)),
    "insert": (lambda v: np.insert(v, 2, 1.0) ** 2, (V,)),
    "delete": (lambda v: np.delete(v, [1, 3]) ** 2, (V,)),
    "resize": (lambda v: np.resize(v, (3, 4)) ** 2, (V,)),
    "tril": (lambda x: np.tril(x, 1) ** 2 + np.triu(x), (X,)),
    "diag": (lambda v: np.diag(v, 1) ** 2, (V,)),
    "diag of a matrix": (lambda a: np.diag(a) ** 2, (A,)),
    "compress": (lambda x: np.compress([True, False, True, True], x, axis=1) ** 2, (X,)),
    "extract": (lambda x: np.extract(MASK, x) ** 2, (X,)),
    "take_along_axis": (lambda x: np.take_along_axis(x, ORDER, axis=1) * np.arange(4.0), (X,)),
    "choose": (lambda x, y: np.choose(MASK.astype(int), [x, y * y]), (X, Y)),
    "select": (lambda x, y: np.select([MASK, ~MASK], [x * x, y], 0.0), (X, Y)),
    "meshgrid": (lambda v, w: np.sin(np.meshgrid(v, w)[0]) * np.meshgrid(v, w)[1], (V, V[:3].copy())),
    "meshgrid ij": (lambda v: np.meshgrid(v, np.arange(3.0), indexing="ij", sparse=True)[0] * np.arange(3.0), (V,)),
    "roll": (lambda x: np.roll(x, 2, axis=1) * X, (X,)),
    "fftshift": (lambda x: np.fft.fftshift(x) * X + np.fft.ifftshift(x, axes=1), (X,)),
    "fft of another length": (lambda x: np.fft.fft(x, 6) * np.fft.fft2(x, (3, 6))[:1] + np.fft.ifft(x, 3, axis=1).sum(), (X,)),
    "rfft of another length": (lambda x: np.fft.rfft(x, 7, axis=0) + np.fft.irfft(x * 1j + x, 5, axis=1)[:, :4].sum(), (X,)),
    "rfftn": (lambda x: np.fft.rfftn(x) + np.fft.rfft2(x, (3, 4), norm="ortho"), (X,)),
    "irfftn": (lambda z: np.fft.irfftn(z) ** 2 + np.fft.irfft2(z, (3, 6)), (Z,)),
    "hfft": (lambda z: np.fft.hfft(z, axis=1), (Z,)),
    "ihfft": (lambda x: np.fft.ihfft(x), (X,)),
    "diff": (lambda x: np.diff(x, n=2, axis=1) ** 2, (X,)),
    "diff with edges": (lambda x: np.diff(x, axis=0, prepend=0.0, append=x[:1]) ** 2, (X,)),
    "ediff1d": (lambda v: np.ediff1d(v, to_end=1.0) ** 2, (V,)),
    "gradient": (lambda x: np.gradient(x, 0.5, axis=1) ** 2, (X,)),
    "gradient of order 2": (lambda v: np.gradient(v, [0.0, 0.5, 1.5, 2.0, 4.0], edge_order=2) ** 2, (V,)),
    "gradient by both axes": (lambda x: np.gradient(x, edge_order=2)[0] * np.gradient(x)[1], (X,)),
    "trapezoid": (lambda x: np.trapezoid(x * x, dx=0.3, axis=1), (X,)),
    "trapezoid over places": (lambda x, v: np.trapezoid(x[:, :3] ** 2, v[:3]), (X, V)),
    "cumsum": (lambda x: np.cumsum(x, axis=1) ** 2, (X,)),
    "cumprod": (lambda x: np.cumprod(x, axis=1), (X,)),
    "cumprod of complex numbers": (lambda z: np.cumprod(z), (Z,)),
    "inner": (lambda x, y: np.inner(x, y), (X, Y)),
    "vdot": (lambda z, w: np.vdot(z, 2.0 * w), (Z, Z * 1j + 1)),
    "vecdot": (lambda z: np.vecdot(z, Z * z, axis=0), (Z,)),
    "matvec": (lambda x, v: np.matvec(x, v[:4]), (X, V)),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=([0, 1], [0, 1])) * np.tensordot(x, y.T, 1), (X, Y)),
    "kron": (lambda x, v: np.kron(x, v), (X, V)),
    "cross": (lambda a: np.cross(a, a[::-1] * a), (A,)),
    "convolve": (lambda v, x: np.convolve(v, x[0]), (V, X)),
    "convolve same": (lambda v, x: np.convolve(x[0], v, "same") + np.convolve(v, x[0, :3], "valid").sum(), (V, X)),
    "correlate": (lambda v: np.correlate(v, np.array([1.0, -2.0, 0.5]) * v[0], "same"), (V,)),
    "angle": (lambda z: np.angle(z) + np.angle(z * z, deg=True), (Z,)),
    "trace": (lambda a: np.trace(a @ a, 1), (A,)),
    "diagonal": (lambda s: np.diagonal(s, axis1=1, axis2=2) ** 2, (S,)),
    "split": (lambda x: np.split(x, 2, axis=1)[0] * np.array_split(x, 3, axis=1)[1][:, :1], (X,)),
    "hsplit": (lambda x: np.hsplit(x, [1, 3])[1] ** 2, (X,)),
    "rot90": (lambda x: np.rot90(x) ** 2 + np.flipud(x).T, (X,)),
    "atleast": (lambda v: np.atleast_2d(v) * np.atleast_3d(v)[0], (V,)),
    "broadcast_arrays": (lambda v, x: np.broadcast_arrays(v[:4], x)[0] * x, (V, X)),
    "average": (lambda x, y: np.average(x, axis=1, weights=y + 3.0), (X, Y)),
    "ptp": (lambda x: np.ptp(x, axis=1), (X,)),
    "median": (lambda x: np.median(x, axis=1) + np.median(x), (X,)),
    "quantile": (lambda x: np.quantile(x, [0.1, 0.6], axis=0) * np.percentile(x, 30.0), (X,)),
    "nansum": (lambda x: np.nansum(np.where(MASK, np.nan, x * x), axis=1) + np.nanmean(x) + np.nanmax(x), (X,)),
    "nan_to_num": (lambda x: np.nan_to_num(np.where(MASK, np.inf, x), posinf=7.0) ** 2, (X,)),
    "cov": (lambda x: np.cov(x), (X,)),
    "bincount": (lambda v: np.bincount([0, 2, 2, 1, 0], weights=v * v, minlength=5), (V,)),
    "histogram": (lambda v: np.histogram([0.1, 0.9, 0.5, 1.0, 0.2], bins=4, range=(0, 1), weights=v * v)[0], (V,)),
    "interp": (lambda v, f: np.interp(v, [-1.0, -0.2, 0.3, 1.5], f[:4]), (V, X[0].copy())),
    "interp over active places": (lambda p: np.interp(np.array([-2.0, 0.15, 0.6]), p * 0.2 + np.arange(5.0) / 4, p), (V,)),
    "around": (lambda x: np.round(x, 1) + x, (X,)),
    "modf": (lambda x: np.modf(3 * x)[0] ** 2, (X,)),
    "logaddexp": (lambda x, y: np.logaddexp(x, y) * np.logaddexp2(y, x), (X, Y)),
    "sinc": (lambda x: np.sinc(x) + np.i0(x), (X,)),
    "degrees": (lambda x: np.degrees(np.deg2rad(x) ** 2) + np.fabs(x) + np.float_power(x + 2, 2.5) + np.heaviside(x, 0.5), (X,)),
    "linalg.solve": (lambda a, x: np.linalg.solve(a, x), (A, X)),
    "linalg.solve of a vector": (lambda s, v: np.linalg.solve(s, v[:3]), (S, V)),
    "linalg.solve of complex numbers": (lambda c, x: np.linalg.solve(c, x), (C, X)),
    "linalg.inv": (lambda s: np.linalg.inv(s), (S,)),
    "linalg.inv of complex numbers": (lambda c: np.linalg.inv(c), (C,)),
    "linalg.det": (lambda s: np.linalg.det(s), (S,)),
    "linalg.det of complex numbers": (lambda c: np.linalg.det(c), (C,)),
    "linalg.det of a singular matrix": (lambda a: np.linalg.det(a), (np.outer([1.0, 2, 3], [4.0, 5, 6]) + np.diag([0, 0, 1.0]),)),
    "linalg.slogdet": (lambda s: np.linalg.slogdet(s)[1], (S,)),
    "linalg.cholesky": (lambda a: np.linalg.cholesky(a @ a.T + np.eye(3)), (A,)),
    "linalg.cholesky of a triangle": (lambda a: np.linalg.cholesky(a), (A @ A.T + np.eye(3),)),
    "linalg.cholesky of complex numbers": (lambda c: np.linalg.cholesky(c @ c.conj().T + np.eye(3)), (C,)),
    "linalg.eigh": (lambda a: np.linalg.eigh(a)[0], (A + A.T,)),
    "linalg.eigh of complex numbers": (lambda c: np.linalg.eigvalsh(c + c.conj().T, UPLO="U"), (C,)),
    "linalg.eigh with vectors": (lambda a: np.linalg.eigh(a)[1] ** 2, (A + A.T,)),
    "linalg.svd": (lambda x: np.abs(np.linalg.svd(x, full_matrices=False)[0]) + 0, (X,)),
    "linalg.svd other side": (lambda x: np.linalg.svd(x.T, full_matrices=False)[2] ** 2, (X,)),
    "linalg.svd of complex numbers": (lambda z: np.linalg.svd(z, compute_uv=False), (Z,)),
    "linalg.qr": (lambda x: np.linalg.qr(x.T)[0] @ np.linalg.qr(x.T)[1][:, :2] + np.linalg.qr(x.T)[0][:, :2] ** 2, (X,)),
    "linalg.pinv": (lambda x: np.linalg.pinv(x) + np.linalg.pinv(x.T).T, (X,)),
    "linalg.matrix_power": (lambda a: np.linalg.matrix_power(a, 5) * 0.01 + np.linalg.matrix_power(a, -2), (A,)),
    "linalg.multi_dot": (lambda a, x: np.linalg.multi_dot([a, a, x]), (A, X)),
    "linalg.norm": (lambda x: np.linalg.norm(x, 1) + np.linalg.norm(x, np.inf) + np.linalg.norm(x, 2) + np.linalg.norm(x, "nuc"), (X,)),
    "linalg.norm of vectors": (lambda x: np.linalg.norm(x, 3, axis=1) + np.linalg.norm(x, -np.inf, axis=1, keepdims=True).T, (X,)),
    "linalg.cond": (lambda a: np.linalg.cond(a) + np.linalg.vector_norm(a) + np.linalg.matrix_norm(a), (A,)),
}  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    program, arrays = CASES[name]
    check(program, lambda *a: np.asarray(program(*a)), *arrays, tolerance=2e-6)


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", CASES)
def test_of_views(name: str) -> None:
    """The same of arrays that lie otherwise in memory: turned around, and with gaps."""
    program, arrays = CASES[name]
    turned = lambda x: x[::-1, ..., 0]  # noqa: E731
    wide = [np.stack([a[::-1], a], axis=-1) for a in arrays]
    check(lambda *a: program(*map(turned, a)), lambda *a: np.asarray(program(*map(turned, a))), *wide, tolerance=2e-6)


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", CASES)
def test_single_precision_gives_numpys_types(name: str) -> None:
    program, arrays = CASES[name]
    singles = [a.astype(np.complex64 if a.dtype.kind == "c" else np.float32) for a in arrays]
    expected = np.asarray(program(*[a.copy() for a in singles]))
    pairs, doubles, tape = (
        [Duplicated(a) for a in singles],
        [Duplicated(a.astype(b.dtype)) for a, b in zip(singles, arrays, strict=True)],
        Tape(),
    )
    for given in (pairs, doubles):
        with tape:
            value = program(*given)
        if given is pairs:
            assert value.dtype == expected.dtype and value.shape == expected.shape
            np.testing.assert_allclose(value.primal, expected, rtol=2e-3, atol=2e-4)
        tape.reverse({value: np.ones(expected.shape, value.dtype)})
    for single, double in zip(pairs, doubles, strict=True):
        scale = max(1.0, float(np.abs(double.shadow).max()))
        np.testing.assert_allclose(single.shadow, double.shadow, rtol=2e-2, atol=2e-3 * scale)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["compress", "concatenate", "cumprod", "trace", "ptp", "round", "logaddexp", "stack"])
def test_into_an_array(name: str) -> None:
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "compress": lambda x, out: np.compress([True, False, True, False], x, axis=1, out=out[:, :2]),
        "concatenate": lambda x, out: np.concatenate([x[:, 2:], x[:, :2] * x[:, :2]], axis=1, out=out),
        "cumprod": lambda x, out: np.cumprod(x, axis=0, out=out),
        "trace": lambda x, out: np.trace(x, out=out[0, 0, ...]),
        "ptp": lambda x, out: np.ptp(x, axis=0, out=out[1]),
        "round": lambda x, out: np.round(x, 1, out=out),
        "logaddexp": lambda x, out: np.logaddexp(x, x * x, out=out),
        "stack": lambda x, out: np.stack([x[0], x[2]], out=out[1:]),
    }

    def program(x: Any) -> Any:
        y = x * 2.0
        calls[name](x, y)
        return y * y

    check(program, program, X, tolerance=1e-6)


def test_the_shadows_of_what_is_written_along_an_axis() -> None:
    def program(x: Any) -> Any:
        y = x * 1.0
        np.put_along_axis(y, ORDER[:, :2], x[:, :2] * x[:, 2:], axis=1)
        np.fill_diagonal(y[:, :3], x[0, :3])
        np.putmask(y, MASK, x * x)
        np.copyto(y, x * x * x, where=~MASK)
        return y * y

    check(program, program, X)


def test_a_histogram_of_an_active_array_is_refused() -> None:
    x = Duplicated(X.copy())
    with Tape(), pytest.raises(ShadowError, match="gradients would be 0"):
        np.histogram(x, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.pad(x, 1, mode="mean"), lambda x: np.linalg.svd(x), lambda x: np.quantile(x, 0.5, method="lower"),
        lambda x: np.quantile(X, x[0, 0] * 0.5), lambda x: np.percentile(x, [x[0, 1], 3.0]),
        lambda x: np.unwrap(x), lambda x: np.exp(x, where=MASK), lambda x: np.linalg.eig(x[:, :3]),
    ],
)  # fmt: skip
def test_what_is_not_recorded_is_refused(call: Any) -> None:
    with Tape(), pytest.raises(gpuad.GpuadError):
        call(Duplicated(X.copy()))


def test_forward_and_twice() -> None:
    """What consists of kernels alone has tangents too, and so what is made of them."""
    x, direction = X.copy(), numbers(3, 4, seed=9)
    with scoped(current, Pushing()):
        pair = Duplicated(x, direction.copy())
        out = np.diff(np.pad(pair * pair, 1), axis=0) + np.logaddexp(np.hstack([pair[:, :3], pair[:, 1:]]), 0.5)[:1]
    h = 1e-6

    def plain(x: Any) -> Any:
        return np.diff(np.pad(x * x, 1), axis=0) + np.logaddexp(np.hstack([x[:, :3], x[:, 1:]]), 0.5)[:1]

    np.testing.assert_allclose(out.shadow, (plain(x + h * direction) - plain(x - h * direction)) / (2 * h), atol=1e-8)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.delete(x, 0), lambda x: np.insert(X[0], 1, x[0]), lambda x: np.bincount([0, 1, 1, 0], x[0]), lambda x: np.tile(x, 2),
        lambda x: np.pad(x, 1), lambda x: np.linalg.inv(x[:, :3]), lambda x: np.cumprod(x), lambda x: np.take_along_axis(x, ORDER, 1),
    ],
)  # fmt: skip
def test_several_shadows_are_kept_or_refused(call: Any) -> None:
    """None of them is dropped in silence."""
    x = BatchDuplicated(X.copy(), (np.zeros_like(X), np.zeros_like(X)))
    with Tape():
        try:
            found = call(x)
        except (GpuadError, TypeError) as error:
            assert isinstance(error, GpuadError) or "__array_function__" in str(error)
        else:
            assert isinstance(found, BatchDuplicated)
