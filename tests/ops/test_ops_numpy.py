"""Array operations as NumPy has them: reductions, contractions, transforms, complex numbers, views, in place and aliased.

A program runs on plain NumPy arrays and on pairs inside a tape; values must be NumPy's, and gradients those of central differences of
NumPy's values along random directions, with `out=` an operand, with all saved, restored, and on one tape twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Const, Duplicated, ShadowError, Tape, TapeError, UnsupportedError, ops
from gpuad.tape.facade import recording_of

Program = Callable[..., Any]


def numbers(*shape: int, dtype: Any = np.float64, seed: int = 0, low: float = -1.0) -> Any:
    """Random numbers between `low` and 1."""
    rng = np.random.default_rng([seed, *shape])
    real = rng.uniform(low, 1, shape)
    return (real + 1j * rng.uniform(-1, 1, shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


def like(array: Any, seed: int) -> Any:
    return numbers(*np.shape(array), dtype=np.complex128 if array.dtype.kind == "c" else np.float64, seed=seed)


def inner(a: Any, b: Any) -> float:
    """The real inner product of arrays as vectors of real numbers."""
    return float(np.real(np.conj(a) * b).sum())


def check(program: Program, plain: Program, *arrays: Any, h: float = 1e-6, tolerance: float = 1e-7) -> Tape:
    """The program's value and gradients against those of `plain`."""
    expected = np.asarray(plain(*[a.copy() for a in arrays]))
    weights = like(expected, 7)
    directions = [like(a, 8 + i) for i, a in enumerate(arrays)]
    up, down = (plain(*[a + s * h * d for a, d in zip(arrays, directions, strict=True)]) for s in (1, -1))
    slope = inner(weights, (up - down) / (2 * h))
    tapes = [Tape(), Tape(save="all", check="exact"), Tape(restore=True)]
    for tape in tapes:
        for _ in range(2 if tape is tapes[0] else 1):
            pairs = [Duplicated(a.copy()) for a in arrays]
            with tape:
                value = program(*pairs)
            assert value.primal.shape == expected.shape and value.primal.dtype == expected.dtype
            if not recording_of(tape).restore:
                np.testing.assert_allclose(value.primal, expected, rtol=1e-12, atol=1e-13)
            tape.reverse({value: weights})
            found = sum(inner(p.shadow, d) for p, d in zip(pairs, directions, strict=True))
            assert found == pytest.approx(slope, rel=tolerance, abs=tolerance), (found, slope)
            if recording_of(tape).restore:
                for pair, array in zip(pairs, arrays, strict=True):
                    np.testing.assert_array_equal(pair.primal, array)
    return tapes[0]


# --- elementwise -----------------------------------------------------------------------------------------------------------------------

UNARY = ["exp2", "cbrt", "arcsin", "arccos", "arctan", "arcsinh", "arctanh", "floor", "ceil", "trunc", "rint", "sign", "conjugate"]
POSITIVE = ["log2", "log10"]
BINARY = ["arctan2", "hypot", "fmax", "fmin", "fmod", "remainder", "copysign"]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", [*UNARY, *POSITIVE, "arccosh"])
def test_functions_of_one_number(name: str) -> None:
    x = numbers(3, 4, low=0.1 if name in POSITIVE else -1.0) * (0.9 if name != "arccosh" else 0.4) + (name == "arccosh") * 2.5
    check(getattr(ops, name), getattr(np, name), x)

    def in_place(x: Any) -> Any:
        getattr(ops, name)(x[::-1], out=x)
        return x * x

    def plain(x: Any) -> Any:
        return getattr(np, name)(x[::-1]) ** 2

    check(in_place, plain, x)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str) -> None:
    x, y = numbers(3, 4) * 3, numbers(4, seed=2)
    check(getattr(ops, name), getattr(np, name), x, y)
    check(lambda x, y: getattr(np, name)(x, y), getattr(np, name), x, y)


def test_remainder_operators() -> None:
    check(lambda x: x % 0.7 + 2.0 % x, lambda x: x % 0.7 + 2.0 % x, numbers(5) * 2)

    def in_place(x: Any) -> Any:
        x %= x * x
        return x

    check(in_place, lambda x: x % (x * x), numbers(5) * 2)
    for one, two in ((-3.0, 2.0), (3.0, -2.0), (4.0, -2.0), (-4.0, 2.0), (0.0, 2.0)):
        with Tape():
            assert (Duplicated(np.array([one])) % two).primal == np.remainder(one, two)


# --- reductions ------------------------------------------------------------------------------------------------------------------------

AXES: list[Any] = [None, 0, 1, -1, (0, 2), (-1, -3), ()]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std"])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    if name == "std" and axis == ():
        return  # not differentiable: it is 0
    call = lambda xp: lambda x: getattr(xp, name)(x, axis=axis, keepdims=keepdims)  # noqa: E731
    check(call(ops), lambda x: np.asarray(call(np)(x)), numbers(2, 3, 4), tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum"])
def test_reductions_of_complex_numbers(name: str, dtype: Any) -> None:
    check(lambda x: getattr(ops, name)(x, axis=1), lambda x: getattr(np, name)(x, axis=1), numbers(3, 4, dtype=dtype))


def test_reductions_into_their_operand_and_other_types() -> None:
    def program(x: Any) -> Any:
        y = x * 1.0
        ops.sum(y, axis=0, out=y[1])
        ops.max(y, axis=1, out=y[:, 0])
        ops.cumsum(y[::-1], axis=0, out=y)
        ops.sort(y[:, ::-1], axis=1, out=y)
        return y * y

    def plain(x: Any) -> Any:
        y = x * 1.0
        y[1] = y.sum(axis=0)
        y[:, 0] = y.max(axis=1)
        y = y[::-1].cumsum(axis=0)
        return np.sort(y[:, ::-1], axis=1) ** 2

    check(program, plain, numbers(3, 4))
    x, tape = Duplicated(np.full(3, 0.1, np.float32)), Tape()
    with tape:
        total = ops.sum(x, dtype=np.float64)
        running = x.cumsum(dtype=np.float64)
    assert total.dtype == running.dtype == np.float64 and total.primal == x.primal.sum(dtype=np.float64)
    tape.reverse({total: 1.0, running: 1.0})
    np.testing.assert_array_equal(x.shadow, [4, 3, 2])


def test_products_with_zeros() -> None:
    x, tape = Duplicated(np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]])), Tape()
    with tape:
        y = x.prod(axis=1)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, [[6, 0, 0], [0, 0, 0]])


def test_extrema_of_ties_and_nan() -> None:
    x, tape = Duplicated(np.array([[1.0, 3.0, 3.0], [np.nan, 7.0, np.nan], [2.0, 2.0, 5.0]])), Tape()
    with tape:
        y, z = np.max(x, axis=1), x.min(axis=1)
    np.testing.assert_array_equal(y.primal, [3, np.nan, 5])
    tape.reverse({y: 1.0, z: 10.0})
    np.testing.assert_array_equal(x.shadow, [[10, 1, 0], [11, 0, 0], [10, 0, 1]])


def test_bad_axes_do_not_spoil_the_recording() -> None:
    x, tape = Duplicated(numbers(2, 3)), Tape()
    with tape:
        for call in (ops.sum, ops.mean, ops.max, ops.prod, ops.var):
            for axis, error in ((2, IndexError), (-3, IndexError), ((0, 0), ValueError), ((1, -1), ValueError)):
                with pytest.raises(error):
                    call(x, axis=axis)
        for call in (ops.cumsum, ops.sort, ops.fft):
            with pytest.raises(IndexError):
                call(x, axis=2)
        with pytest.raises(ValueError, match="no elements"):
            ops.max(x[:0])
        with pytest.raises(ValueError, match="shape"):
            ops.sum(x, axis=0, out=np.zeros(2))
        with pytest.raises(TypeError, match="cannot cast"):
            ops.sum(x, axis=0, out=np.zeros(3, np.int64))
        y = x.sum()
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 1.0)


def test_empty_arrays() -> None:
    x, y, tape = Duplicated(np.zeros((0, 3))), Duplicated(np.ones(3)), Tape()
    with tape:
        x += y
        results = [x.sum(axis=0), x.prod(axis=0), x.max(axis=1), x.var(axis=1), x @ np.ones((3, 2)), x.cumsum(axis=0), ops.sort(x)]
        results += [ops.einsum("ij->j", x), x.T @ x, ops.concatenate([x, x]), ops.take(x, np.zeros(0, int), axis=0), x[:, [0, 1]]]
    tape.reverse({r: 1.0 for r in results if r.size}, allow_unused=True)  # there is nothing that could reach them
    np.testing.assert_array_equal(y.shadow, 0)
    np.testing.assert_array_equal(results[1].primal, 1)


# --- products --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(3)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("spelling", ["@", "in place", "itself", "transposed", "dot", "outer", "stacks", "gemm"])
def test_products(dtype: Any, spelling: str) -> None:
    a, b = numbers(3, 3, dtype=dtype), numbers(3, 3, dtype=dtype, seed=1)

    def gemm(a: Any, b: Any) -> Any:
        ops.gemm(0.5, a, b[::-1], 2.0, b)
        return b

    def in_place(a: Any, b: Any) -> Any:
        ops.matmul(a, b, out=a)
        ops.matmul(b.T, a[::-1], out=b)
        return ops.matmul(a, a[:, 1], out=b[2])

    def in_place_plain(a: Any, b: Any) -> Any:
        a = a @ b
        b = b.T @ a[::-1]
        return a @ a[:, 1]

    def stacks(a: Any, b: Any) -> Any:
        return (a.reshape(1, 3, 3) @ b) @ ops.stack([a, b, a]) if isinstance(a, Duplicated) else (a[None] @ b) @ np.stack([a, b, a])

    programs: dict[str, tuple[Program, Program]] = {
        "@": (lambda a, b: a @ b[0] + (a[1] @ b) * (a[0] @ b[:, 1]), lambda a, b: a @ b[0] + (a[1] @ b) * (a[0] @ b[:, 1])),
        "in place": (in_place, in_place_plain),
        "itself": (lambda a, b: ops.matmul(a, a, out=b), lambda a, b: a @ a),
        "transposed": (lambda a, b: ops.matmul(a, a.T, out=b), lambda a, b: a @ a.T),
        "dot": (lambda a, b: a.dot(b) + np.dot(a[0], b[0]), lambda a, b: a.dot(b) + np.dot(a[0], b[0])),
        "outer": (lambda a, b: ops.outer(a, b[0]), lambda a, b: np.outer(a, b[0])),
        "stacks": (stacks, stacks),
        "gemm": (gemm, lambda a, b: 0.5 * a @ b[::-1] + 2.0 * b),
    }
    check(*programs[spelling], a, b)


def test_a_real_operand_of_a_complex_product_gets_a_real_gradient() -> None:
    check(lambda a, b: a @ b, lambda a, b: a @ b, numbers(2, 3), numbers(3, 2, dtype=complex))
    check(lambda a, b: ops.einsum("ij,jk->k", a, b), lambda a, b: np.einsum("ij,jk->k", a, b), numbers(2, 3), numbers(3, 2, dtype=complex))
    check(lambda a, b: a * b + b / (a + 3), lambda a, b: a * b + b / (a + 3), numbers(2, 3), numbers(3, dtype=complex))


def test_products_refuse_what_does_not_fit_before_anything_runs() -> None:
    a, b, tape = Duplicated(numbers(2, 3)), Duplicated(numbers(2, 3)), Tape()
    with tape:
        for call, error in (
            (lambda: a @ b, ValueError),
            (lambda: ops.matmul(a, b.T, out=np.zeros((3, 3))), ValueError),
            (lambda: ops.matmul(a, b.T * 1j, out=Duplicated(np.zeros((2, 2)))), TypeError),
            (lambda: ops.gemm(1.0, a, b, 0.0, Duplicated(np.zeros((2, 2)))), ValueError),
            (lambda: ops.matmul(a, b.T, out=Duplicated(np.broadcast_to(np.zeros(2), (2, 2)))), gpuad.LaunchError),
        ):
            with pytest.raises(error):
                call()
        c = ops.matmul(a, b.T)
    tape.reverse({c: 1.0})
    np.testing.assert_allclose(a.shadow, np.ones((2, 2)) @ b.primal)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    "text",
    [
        "ii->i",
        "ii",
        "iij->j",
        "iji->ij",
        "ij,jk,kl->il",
        "ij,jk,ki->",
        "i,i,i->i",
        "...j,j->...",
        "i...,...k",
        "...",
        "ij,jj->i",
        "ij,kl->il",
    ],
)
def test_einsum(text: str, dtype: Any) -> None:
    count = text.partition("->")[0].count(",") + 1
    terms = text.partition("->")[0].split(",")
    arrays = [numbers(*(3,) * (len(t.replace("...", "zz"))), dtype=dtype, seed=i) for i, t in enumerate(terms)]
    check(lambda *a: ops.einsum(text, *a), lambda *a: np.asarray(np.einsum(text, *a)), *arrays)
    assert len(arrays) == count

    def into_its_operand(*a: Any) -> Any:
        return ops.einsum("ij,ij,ji->ij", a[0], a[1], a[0], out=a[0])

    check(into_its_operand, lambda *a: a[0] * a[1] * a[0].T, numbers(3, 3, dtype=dtype), numbers(3, 3, dtype=dtype, seed=1))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("trans", [0, "T", "C"])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems(lower: bool, trans: Any, unit: bool, dtype: Any) -> None:
    def plain(a: Any, b: Any) -> Any:
        t = np.tril(a, -unit) if lower else np.triu(a, unit)
        t = t + np.eye(3) * unit
        return np.linalg.solve({0: t, "T": t.T, "C": t.conj().T}[trans], b)

    def in_place(a: Any, b: Any) -> Any:
        return ops.solve_triangular(a, b, lower, trans, out=b, unit_diagonal=unit)

    a, b = numbers(3, 3, dtype=dtype) + 3 * np.eye(3), numbers(3, 2, dtype=dtype)
    check(lambda a, b: ops.solve_triangular(a, b, lower, trans, unit_diagonal=unit), plain, a, b)
    check(in_place, plain, a, b)
    check(lambda a, b: ops.solve_triangular(a, b, lower, trans, unit_diagonal=unit), plain, a, b[:, 0].copy())


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_norms(dtype: Any) -> None:
    for keywords in ({}, {"axis": 1}, {"axis": 0, "ord": 2}, {"axis": (0, 1), "keepdims": True}):
        check(lambda x, k=keywords: ops.norm(x, **k), lambda x, k=keywords: np.asarray(np.linalg.norm(x, **k)), numbers(3, 4, dtype=dtype))
    with Tape(), pytest.raises(UnsupportedError, match="ord"):
        ops.norm(Duplicated(numbers(3, 4)), 1)


# --- transforms ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(4)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ["fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft"])
def test_transforms(name: str, dtype: Any, norm: Any) -> None:
    if (name == "rfft") == (np.dtype(dtype).kind == "c"):
        dtype = np.float64 if name == "rfft" else np.complex128
    for n in (4, 5):
        x = numbers(3, n, dtype=dtype)
        check(lambda x: getattr(ops, name)(x, norm=norm), lambda x: getattr(np.fft, name)(x, norm=norm), x)
    if name == "irfft":
        check(lambda x: ops.irfft(x, 7, 0), lambda x: np.fft.irfft(x, 7, 0), numbers(4, 3, dtype=dtype))
    elif name in ("fft", "ifft", "rfft"):
        check(lambda x: getattr(ops, name)(x, axis=0), lambda x: getattr(np.fft, name)(x, axis=0), x)


def test_transforms_in_place() -> None:
    def program(x: Any) -> Any:
        ops.fft(x, out=x)
        x *= np.arange(4.0)
        ops.ifft(x[::-1], out=x)
        return x

    check(program, lambda x: np.fft.ifft((np.fft.fft(x) * np.arange(4.0))[::-1]), numbers(3, 4, dtype=complex))
    with Tape():
        x = Duplicated(numbers(4))
        for length in (0, 2.5):
            with pytest.raises(ValueError, match="length"):
                ops.fft(x, length)
        with pytest.raises(ValueError, match="norm"):
            ops.fft(x, norm="else")
        with pytest.raises(TypeError, match="cannot cast"):
            ops.fft(x, out=x)


def test_a_spectral_step() -> None:
    """Heat in Fourier space: real in, real out, complex between."""
    decay = np.exp(-0.1 * np.arange(5.0) ** 2)

    def program(u: Any) -> Any:
        for _ in range(3):
            spectrum = ops.rfft(u)
            spectrum *= decay
            u[...] = ops.irfft(spectrum) + 0.1 * u * u
        return u

    def plain(u: Any) -> Any:
        for _ in range(3):
            u = np.fft.irfft(np.fft.rfft(u) * decay) + 0.1 * u * u
        return u

    check(program, plain, numbers(8))


# --- complex numbers -------------------------------------------------------------------------------------------------------------------

COMPLEX = ["negative", "conjugate", "square", "reciprocal", "log", "sqrt", "exp", "sin", "cos", "sinh", "cosh", "tanh", "absolute"]


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_one_complex_number(name: str) -> None:
    z = numbers(3, 4, dtype=complex) + 1.5
    check(getattr(ops, name), getattr(np, name), z)

    def in_place(z: Any) -> Any:
        getattr(ops, name)(z, out=z)
        getattr(ops, name)(z[:, ::-1], out=z)
        return z * z

    if name != "absolute":
        check(in_place, lambda z: getattr(np, name)(getattr(np, name)(z)[:, ::-1]) ** 2, z)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_functions_of_two_complex_numbers(name: str) -> None:
    call, plain = getattr(ops, name), getattr(np, name)
    x, y, real = numbers(3, 4, dtype=complex), numbers(4, dtype=complex) + 2, numbers(3, 1) + 2
    check(call, plain, x, y)
    check(call, plain, y, x + 2)
    check(call, plain, x, real)
    check(call, plain, real, y)
    check(
        lambda x: call(x, 2 - 1j) + call(0.5, x) + call(1j, x.real + 2),
        lambda x: plain(x, 2 - 1j) + plain(0.5, x) + plain(1j, x.real + 2),
        x + 2,
    )
    check(lambda x: call(x, x), plain if False else (lambda x: plain(x, x)), x)

    def in_place(x: Any, y: Any) -> Any:
        call(x, y, out=x)
        call(y, x[0], out=x[1])
        call(x[1:], x[:-1] + 3.0, out=x[1:])
        call(x[:, ::-1], x, out=x)
        call(x, x, out=x)
        return x * 1.0

    def in_place_plain(x: Any, y: Any) -> Any:
        x = plain(x, y)
        x[1] = plain(y, x[0])
        x[1:] = plain(x[1:], x[:-1] + 3.0)
        x = plain(x[:, ::-1], x)
        return plain(x, x)

    check(in_place, in_place_plain, x, y, tolerance=1e-6)


def test_complex_assignment_masks_and_parts() -> None:
    mask = np.array([True, False, True, False])

    def program(z: Any, x: Any) -> Any:
        w = z * 1.0
        w[1:3] = x[1:3]
        w[0] += 1j
        w = ops.where(mask, w, z * z)
        w.real[...] = w.imag * x
        w.imag -= w.real
        w[[0, 3]] = w[[1, 2]]
        ops.scatter_add(w, np.array([0, 0, 2]), w[1:4] * 0.5)
        ops.axpy(2.0, z, w)
        return ops.concatenate([w, z[::-1]]) - ops.absolute(z).sum() * ops.stack([w, w]).mean()

    def plain(z: Any, x: Any) -> Any:
        w = z * 1.0
        w[1:3] = x[1:3]
        w[0] += 1j
        w = np.where(mask, w, z * z)
        w.real[...] = w.imag * x
        w.imag -= w.real
        w[[0, 3]] = w[[1, 2]]
        np.add.at(w, np.array([0, 0, 2]), w[1:4] * 0.5)
        w += 2.0 * z
        return np.concatenate([w, z[::-1]]) - np.abs(z).sum() * np.stack([w, w]).mean()

    check(program, plain, numbers(4, dtype=complex), numbers(4))


def test_complex_singles_keep_their_type() -> None:
    z, x = Duplicated(numbers(3, dtype=np.complex64)), Duplicated(numbers(3, dtype=np.float32))
    with Tape():
        assert (z * x).dtype == (z * 2.0).dtype == (x * 1j).dtype == ops.fft(x).dtype == np.complex64
        assert abs(z).dtype == z.real.dtype == np.float32
        assert (z + np.ones(3)).dtype == np.complex128
        assert (z * Active(2.0, np.zeros(()))).dtype == np.complex64  # a number of Python's is weak, as in NumPy
        assert (z * Active(np.float64(2.0), np.zeros(()))).dtype == np.complex128
        for call in (ops.maximum, ops.arctan2):
            with pytest.raises(UnsupportedError, match="complex"):
                call(z, z)
    assert z.conj is not None and x.real is x


# --- views and indices -----------------------------------------------------------------------------------------------------------------


def test_views() -> None:
    def program(x: Any) -> Any:
        y = x * 1.0
        ops.swapaxes(y, 0, 2)[1] *= 2.0
        ops.moveaxis(y, 0, -1)[..., 1] += 1.0
        np.flip(y, 1)[0, 0] = 0.5
        np.transpose(y, (2, 0, 1))[2] *= y.transpose(2, 0, 1)[1]
        ops.squeeze(ops.expand_dims(y, 1), 1)[1, 1] -= ops.broadcast_to(y[0, 0, :1], (4,))
        return np.reshape(y, (6, 4)) * y.reshape(-1)[:4] + y.flatten()[4:8]

    def plain(x: Any) -> Any:
        y = x * 1.0
        y.swapaxes(0, 2)[1] *= 2.0
        np.moveaxis(y, 0, -1)[..., 1] += 1.0
        np.flip(y, 1)[0, 0] = 0.5
        y.transpose(2, 0, 1)[2] *= y.transpose(2, 0, 1)[1]
        y[1, 1] -= y[0, 0, :1]
        return y.reshape(6, 4) * y.reshape(-1)[:4] + y.flatten()[4:8]

    check(program, plain, numbers(2, 3, 4))
    with Tape(), pytest.raises(gpuad.LaunchError, match="stride of 0"):
        ops.broadcast_to(Duplicated(numbers(3)), (2, 3))[...] = 1.0


def test_broadcast_operands_of_everything() -> None:
    def program(x: Any) -> Any:
        wide = ops.broadcast_to(x, (3, 4))
        total = wide * wide + wide.sum(axis=0) + wide @ wide.T[:, :1] + ops.take(wide, [0, 0, 1], axis=0) + wide[[2, 1, 0]]
        total += ops.cumsum(wide, axis=0) + ops.sort(wide, axis=1) + ops.einsum("ij,ij->i", wide, wide)[:, None]
        total -= ops.roll(wide, 1, axis=1) + ops.where(wide.primal > 0, wide, 0.5) + wide.max(axis=1, keepdims=True)
        return total * ops.irfft(ops.rfft(wide)) + (wide * 1j * wide).imag

    def plain(x: Any) -> Any:
        wide = np.broadcast_to(x, (3, 4))
        total = wide * wide + wide.sum(axis=0) + wide @ wide.T[:, :1] + np.take(wide, [0, 0, 1], axis=0) + wide[[2, 1, 0]]
        total += np.cumsum(wide, axis=0) + np.sort(wide, axis=1) + np.einsum("ij,ij->i", wide, wide)[:, None]
        total -= np.roll(wide, 1, axis=1) + np.where(wide > 0, wide, 0.5) + wide.max(axis=1, keepdims=True)
        return total * np.fft.irfft(np.fft.rfft(wide)) + (wide * 1j * wide).imag

    check(program, plain, numbers(4), tolerance=1e-6)


def test_scattered_additions_by_their_ufunc() -> None:
    def program(x: Any, v: Any) -> Any:
        np.add.at(x, [0, 0, 2], v)
        return x * x

    def plain(x: Any, v: Any) -> Any:
        np.add.at(x, [0, 0, 2], v)
        return x * x

    check(program, plain, numbers(4), numbers(3))


# --- what is refused -------------------------------------------------------------------------------------------------------------------


def test_new_operations_keep_to_the_rules_of_shadows() -> None:
    x, bare, z = Duplicated(numbers(3)), np.zeros(3), Duplicated(numbers(3, dtype=complex))
    for call in (lambda: x.max(), lambda: z * z, lambda: ops.rfft(x), lambda: x % 1.0, lambda: ops.norm(x)):
        with pytest.raises(TapeError, match="outside of a tape"):
            call()
    with Tape():
        for call in (
            lambda: ops.cumsum(x, out=bare),
            lambda: ops.multiply(z, 2.0, out=bare.astype(complex)),
            lambda: ops.max(x, axis=0, keepdims=True, out=bare[:1]),
            lambda: ops.matmul(x, x, out=bare[0:1].reshape(())),
        ):
            with pytest.raises(ShadowError, match="has no shadow"):
                call()
        ops.multiply(z, 2.0, out=Const(bare.astype(complex)))
        with pytest.raises(ShadowError, match="is read bare"):
            ops.multiply(z.primal, z, out=Duplicated(np.zeros(3, complex)))


def test_explain_names_temporaries_by_their_place() -> None:
    x, w, tape = Duplicated(numbers(3, 3)), Duplicated(numbers(3, 3, seed=1)), Tape(restore=True)
    start = x.primal.copy()
    with tape:
        y = ops.exp(x) @ w
        z = y * y
        y *= 2.0
        x *= y
    rows = tape.explain().rows
    assert [r.name for r in rows if r.name.startswith("(temporary of test_ops_numpy.py:")], str(tape.explain())
    assert not [r for r in rows if r.name.startswith("(temporary") and "to restore" in r.needed_by], "nothing was in there before"
    tape.reverse({z: 1.0, x: 1.0})
    np.testing.assert_array_equal(x.primal, start)
