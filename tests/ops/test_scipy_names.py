"""The functions of SciPy's names, those of `cupyx.scipy`: values are SciPy's, gradients those of central differences of SciPy's values, in
programs that come twice, keep all, or are restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, numbers

from gpuad import Duplicated, GpuadError, ShadowError, Tape, TapeError, UnsupportedError, ops
from gpuad.errors import ConvergenceError
from gpuad.ops.special import SPECIAL

scipy = pytest.importorskip("scipy")
special = pytest.importorskip("scipy.special")
ndimage = pytest.importorskip("scipy.ndimage")
sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

X, P = numbers(7, 6), numbers(3, 4, seed=1, low=0.2)
W, V = numbers(3, 4, seed=2), numbers(4, seed=3)
PLACES = np.random.default_rng(5).uniform(-3, 9, (2, 11))
MODES, BETWEEN = ("reflect", "constant", "nearest", "mirror", "wrap"), ("constant", "nearest", "mirror", "reflect", "grid-wrap")


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("name", "expression"), [(name, expression) for name, expression, _ in SPECIAL])
def test_special_functions(name: str, expression: str) -> None:
    plain = getattr(special, name, lambda x: 1 / np.sqrt(x))  # rsqrt is CuPy's alone
    ours, two = getattr(ops, name), "{1}" in expression
    inverse = name in ("erfinv", "erfcinv", "logit", "ndtri")
    x, y = (P - 0.1 if inverse else 3 * P), numbers(3, 4, seed=8, low=0.3)
    check(ours, plain, *((x, y) if two else (x,)), tolerance=1e-6)
    if name in ("erf", "erfc", "expit", "log_expit", "ndtr", "log_ndtr", "i1", "j0", "gamma", "xlogy", "exp10"):
        z = np.array([-7.5, -1.3, -0.4, 0.0, 0.7, 4.2][:: 1 if name != "gamma" else 2])
        z = z if name != "gamma" else z + 0.3
        np.testing.assert_allclose(ours(z, np.abs(z)) if two else ours(z), plain(z, np.abs(z)) if two else plain(z), rtol=1e-11, atol=1e-14)
    single = ours(x.astype(np.float32), y.astype(np.float32)) if two else ours(x.astype(np.float32))
    assert single.dtype == np.float32


def test_scipys_own_objects_ask_pairs() -> None:
    """Of NumPy's arrays `scipy.special.erf(pair)` is recorded, as NumPy's own ufuncs are."""
    check(lambda x: special.erf(x) * special.xlogy(x + 2, x + 2), lambda x: special.erf(x) * special.xlogy(x + 2, x + 2), X)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums_of_exponentials(axis: int | None) -> None:
    check(lambda x: ops.logsumexp(x, axis), lambda x: np.asarray(special.logsumexp(x, axis)), 300 * X, tolerance=1e-5)
    check(lambda x: ops.softmax(x, axis) + ops.log_softmax(x, axis), lambda x: special.softmax(x, axis) + special.log_softmax(x, axis), X)
    check(lambda x: ops.logsumexp(x, axis, b=x * x), lambda x: np.asarray(special.logsumexp(x, axis, b=x * x)), X)


# --- filters, values between elements ---------------------------------------------------------------------------------------------------

FILTERS: dict[str, Callable[..., Any]] = {
    "correlate": lambda xp, x, mode: xp.correlate(x, W, mode=mode, cval=0.3, origin=(1, -1)),
    "convolve": lambda xp, x, mode: xp.convolve(x, W, mode=mode, origin=(-1, 0)) + xp.convolve(x, W[:, :3], mode=mode, cval=2.0),
    "along an axis": lambda xp, x, mode: xp.convolve1d(x, V, axis=0, mode=mode) * xp.correlate1d(x, V[:3], mode=mode, origin=1),
    "gaussian_filter": lambda xp, x, mode: xp.gaussian_filter(x, (1.3, 0.7), mode=mode) + xp.gaussian_filter(x, 1.1, (1, 2), mode=mode),
    "wide": lambda xp, x, mode: xp.gaussian_filter(x, 4.0, mode=mode) * xp.gaussian_filter1d(x, 1.0, axis=0, mode=mode, truncate=2.0),
    "uniform_filter": lambda xp, x, mode: xp.uniform_filter(x, (3, 4), mode=mode) ** 2,
    "slopes": lambda xp, x, mode: xp.sobel(x, 0, mode=mode) * xp.prewitt(x, mode=mode) + xp.laplace(x, mode=mode),
}


@pytest.mark.one_of(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str, mode: str) -> None:
    program = FILTERS[name]
    check(lambda x: program(ops.ndimage, x, mode), lambda x: program(ndimage, x, mode), X, tolerance=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "constant"])
def test_weights_with_a_gradient(mode: str) -> None:
    check(lambda x, w: ops.ndimage.convolve(x, w, mode=mode), lambda x, w: ndimage.convolve(x, w, mode=mode), X, W)
    z = numbers(5, 6, dtype=np.complex128)
    check(lambda z, w: ops.ndimage.correlate(z, w, mode=mode), lambda z, w: ndimage.correlate(z, w, mode=mode), z, W)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("order", [0, 1, 3])
@pytest.mark.parametrize("mode", BETWEEN)
def test_values_between_elements(mode: str, order: int) -> None:
    def sampled(xp: Any) -> Callable[..., Any]:
        return lambda x, places: xp.map_coordinates(x, places, order=order, mode=mode, cval=0.5)

    near = sampled(ops.ndimage) if order == 3 and mode == "reflect" else sampled(ndimage)  # whose splines are SciPy's to 8 digits
    check(sampled(ops.ndimage), near, X, PLACES, tolerance=1e-6)
    np.testing.assert_allclose(near(X, PLACES), sampled(ndimage)(X, PLACES), atol=1e-6)


MOVES: dict[str, Callable[..., Any]] = {
    "shift": lambda xp, x, order: xp.shift(x, (1.3, -0.6), order=order) + xp.shift(x, 0.4, order=order, mode="nearest"),
    "zoom": lambda xp, x, order: xp.zoom(x, (1.7, 0.6), order=order),
    "rotate": lambda xp, x, order: xp.rotate(x, 33.0, order=order) ** 2,
    "rotate in place": lambda xp, x, order: xp.rotate(x, -20.0, reshape=False, order=order, mode="mirror"),
    "affine_transform": lambda xp, x, order: xp.affine_transform(x, np.array([[0.9, 0.21], [-0.1, 1.1]]), (0.3, 0.2), (6, 6), order=order),
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, order: int) -> None:
    check(lambda x: MOVES[name](ops.ndimage, x, order), lambda x: MOVES[name](ndimage, x, order), X, tolerance=1e-6)


def test_what_moves_may_have_a_gradient() -> None:
    """SciPy takes plain numbers: of a pair of one element a number is made for it."""
    by, matrix, angle = np.array([0.43, -1.27]), np.array([[0.93, 0.21], [-0.13, 1.07]]), np.array(27.3)
    check(lambda x, s: ops.ndimage.shift(x, s, order=3), lambda x, s: ndimage.shift(x, s, order=3), X, by, tolerance=1e-6)
    check(
        lambda x, m, o: ops.ndimage.affine_transform(x, m, o, order=1, mode="nearest"),
        lambda x, m, o: ndimage.affine_transform(x, m, o, order=1, mode="nearest"), X, matrix, by, tolerance=1e-6,
    )  # fmt: skip
    check(
        lambda x, a: ops.ndimage.rotate(x, a, reshape=False, order=3), lambda x, a: ndimage.rotate(x, float(a), reshape=False, order=3), X,
        angle, tolerance=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.ndimage.map_coordinates(x, PLACES, order=2), lambda x: ops.ndimage.shift(x, 1.0, mode="wrap"),
        lambda x: ops.ndimage.gaussian_filter(x, Duplicated(np.array(1.0))), lambda x: ops.ndimage.convolve(x, V),
        lambda x: ops.ndimage.convolve(x, W, mode="reflected"), lambda x: ops.ndimage.convolve(x, W, origin=3),
        lambda x: ops.ndimage.map_coordinates(x, PLACES[:1]), lambda x: ops.ndimage.affine_transform(x, np.eye(4)),
        lambda x: ops.cg(sparse.eye(3), x[0, :3], callback=print), lambda x: ops.solve_with(3, x),
        lambda x: ndimage.gaussian_filter(x, 1.0),
        lambda x: ops.matmul(sparse.eye(3), x), lambda x: ops.solve_with(stencil, x[0], solver="lu"),
        lambda x: ops.solve_with(stencil, x[0], *[1.0] * 7), lambda x: ops.solve_with(lambda v: v[:2], x[0]),
    ],
)  # fmt: skip
def test_what_is_not_recorded_is_refused_in_words(call: Any) -> None:
    x = Duplicated(X.copy())
    with pytest.raises(GpuadError) as caught, Tape():
        call(x)
    assert len(str(caught.value)) > 20 and not x.shadow.any()


# --- systems ----------------------------------------------------------------------------------------------------------------------------

N = 8
K, B = np.random.default_rng(2).uniform(2, 3, N), numbers(N, seed=6)


def stencil(x: Any, k: Any, c: Any = 0.2) -> Any:
    """A matrix that is not symmetric, in place, of pairs and plain arrays."""
    y = k * x
    y[1:] -= 0.3 * x[:-1]
    y[:-1] -= c * x[1:] * k[1:]
    return y


def symmetric(x: Any, k: Any) -> Any:
    y = k * x
    y[1:] -= 0.5 * x[:-1]
    y[:-1] -= 0.5 * x[1:]
    return y


def dense(operator: Any, *parameters: Any) -> Any:
    return np.stack([operator(e, *parameters) for e in np.eye(N)], axis=1)


@pytest.mark.parametrize("solver", ["gmres", "own"])
def test_a_system_that_is_a_function(solver: str) -> None:
    """Its matrix and its right-hand side carry gradients; the closed form is that of the dense matrix."""
    own = gauss if solver == "own" else solver
    c = np.array(0.2)
    check(
        lambda k, b, c: ops.solve_with(stencil, b, k, c, solver=own), lambda k, b, c: np.linalg.solve(dense(stencil, k, c), b), K, B, c,
        tolerance=1e-6,
    )  # fmt: skip
    x, kbar, tape = Duplicated(B.copy()), Duplicated(K.copy()), Tape()
    with tape:
        found = ops.solve_with(stencil, x, kbar, 0.2, solver=own)
    tape.reverse({found: np.ones(N)})
    adjoint = np.linalg.solve(dense(stencil, K).T, np.ones(N))
    np.testing.assert_allclose(x.shadow, adjoint, rtol=1e-9)


def gauss(product: Any, b: Any) -> Any:
    return np.linalg.solve(np.stack([product(e) for e in np.eye(N)], axis=1), b)


def test_conjugate_gradients() -> None:
    check(
        lambda k, b: ops.solve_with(symmetric, b, k, solver="cg"), lambda k, b: np.linalg.solve(dense(symmetric, k), b), K, B,
        tolerance=1e-6,
    )  # fmt: skip


def test_of_complex_numbers_and_of_arrays_of_two_axes() -> None:
    z, w = numbers(N, dtype=np.complex128, seed=3), numbers(N, dtype=np.complex128, seed=4) * 0.3 + 2
    check(lambda k, b: ops.solve_with(stencil, b, k), lambda k, b: np.linalg.solve(dense(stencil, k), b), w, z, tolerance=1e-6)
    plane = lambda x, k: 5.0 * x + k * x * x[:1, :1] * 0 + 0.5 * ops.roll(x, 1, axis=0) + 0.25 * ops.roll(x, 1, axis=1)  # noqa: E731
    b = numbers(3, 4, seed=5)
    x, tape = Duplicated(b.copy()), Tape()
    with tape:
        found = ops.solve_with(plane, x, 1.0)
    np.testing.assert_allclose(plane(found.primal, 1.0), b, rtol=1e-10, atol=1e-11)
    tape.reverse({found: b})
    matrix = np.stack([plane(e.reshape(3, 4), 1.0).ravel() for e in np.eye(12)], axis=1)
    np.testing.assert_allclose(x.shadow.ravel(), np.linalg.solve(matrix.T, b.ravel()), rtol=1e-9)


@pytest.mark.parametrize("budget", [None, "1 MiB"])
def test_a_solve_in_rounds_keeps_what_was_overwritten(budget: str | None) -> None:
    """The matrix changes after the solve, in place; from the third round on the program is known."""
    k, b, tape = Duplicated(K.copy()), Duplicated(B.copy()), Tape(budget=budget)
    for number in range(4):
        k.primal[...], b.primal[...] = K, B
        b.shadow[...] = k.shadow[...] = 0
        with tape:
            y = b * 1.0
            for _ in range(3):
                y = ops.solve_with(stencil, y, k)
                k[...] = k * 1.1
            value = ops.sum(y)
        assert number < 2 or not tape.explain().anew
        tape.reverse({value: 1.0})
    seed = np.ones(N)
    for matrix in reversed([dense(stencil, K * 1.1**j) for j in range(3)]):
        seed = np.linalg.solve(matrix.T, seed)
    np.testing.assert_allclose(b.shadow, seed, rtol=1e-9)

    def plain(k: Any) -> float:
        y = B
        for j in range(3):
            y = np.linalg.solve(dense(stencil, k * 1.1**j), y)
        return float(y.sum())

    slopes = [(plain(K + 1e-6 * e) - plain(K - 1e-6 * e)) / 2e-6 for e in np.eye(N)]
    np.testing.assert_allclose(k.shadow, slopes, rtol=1e-6, atol=1e-8)


def test_what_is_not_reached_is_refused_and_shadows_stay() -> None:
    b, k = Duplicated(B.copy()), Duplicated(K.copy())
    with Tape(), pytest.raises(ConvergenceError, match="residual"):
        ops.solve_with(stencil, b, k, maxiter=2)
    backwards = iter([gauss])

    def once(product: Any, right: Any) -> Any:
        chosen = next(backwards, None)
        if chosen is None:
            raise ConvergenceError("not reached")
        return chosen(product, right)

    tape = Tape()
    with tape:
        x = ops.solve_with(stencil, b, k, solver=once)
    with pytest.raises(ConvergenceError):
        tape.reverse({x: np.ones(N)})
    assert not b.shadow.any() and not k.shadow.any()


def test_a_pair_from_elsewhere_is_refused() -> None:
    b, k = Duplicated(B.copy()), Duplicated(K.copy())
    with Tape(), pytest.raises(TapeError):
        ops.solve_with(lambda x: k * x, b)


MATRIX = sparse.random(N, N, 0.4, random_state=1, format="csr") + 3 * sparse.eye(N, format="csr")


def test_sparse_products_and_solvers() -> None:
    matrix, full = MATRIX, MATRIX.toarray()
    check(lambda b: ops.matmul(matrix, b) ** 2, lambda b: (matrix @ b) ** 2, B)
    check(lambda b: ops.matmul(b, matrix), lambda b: b @ full, numbers(3, N))
    check(lambda b: ops.matmul(linalg.aslinearoperator(matrix), b), lambda b: full @ b, B)
    spd = full @ full.T
    check(lambda b: ops.cg(sparse.csr_matrix(spd), b, rtol=1e-12)[0], lambda b: np.linalg.solve(spd, b), B)
    check(lambda b: ops.gmres(matrix, b, rtol=1e-12)[0] + ops.spsolve(matrix, b), lambda b: 2 * np.linalg.solve(full, b), B)
    check(lambda a, b: ops.gmres(a, b, rtol=1e-12)[0], lambda a, b: np.linalg.solve(a, b), full, B, tolerance=1e-6)
    tape, b = Tape(), Duplicated(B.copy())
    for number in range(4):
        with tape:
            found = ops.sum(ops.matmul(matrix, b) * ops.spsolve(matrix, b))
        assert number < 2 or not tape.explain().anew
        tape.reverse({found: 1.0})


def test_names_of_cupyx_are_these() -> None:
    """`scipy.ndimage.convolve` is no convolution of vectors."""
    from gpuad.namespaces.names import _operation_of

    assert _operation_of("scipy.ndimage.convolve") is ops.ndimage.convolve is not ops.convolve
    for path in (
        "scipy.ndimage.gaussian_filter",
        "scipy.sparse.linalg.cg",
        "scipy.special.erf",
        "scipy.special.logsumexp",
        "scipy.fft.rfft",
    ):
        assert _operation_of(path) is not None
    assert _operation_of("scipy.signal.convolve") is None and _operation_of("scipy.ndimage.generic_filter") is None


def test_errors_name_the_function() -> None:
    with Tape(), pytest.raises(UnsupportedError, match="zoom"):
        ops.ndimage.zoom(Duplicated(X.copy()), 2.0, order=5)
    with Tape(), pytest.raises(ShadowError, match="sigma"):
        ops.ndimage.gaussian_filter(X, Duplicated(np.array(1.0)))
