"""Array operations inside a tape: values against NumPy, gradients against central differences and closed forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nightly import cases, share

from gpuad import Active, Const, Duplicated, LaunchError, ShadowError, Tape, TapeError, UnsupportedError, ops, pipeline, stop_gradient
from gpuad.codegen.cuda import cuda_source
from gpuad.ops import elementwise, text
from gpuad.ops import text as table
from gpuad.runtime import nvrtc
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.tape.facade import recording_of

HOST, REFERENCE = Host(), Reference()
RNG = np.random.default_rng(7)


@pytest.fixture(params=["host", "reference"])
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with pipeline.executor_for_tests({"host": HOST, "reference": REFERENCE}[request.param]):  # type: ignore[arg-type]
        yield


def positive(*shape: int, dtype: Any = np.float64) -> Any:
    return RNG.uniform(0.5, 1.5, shape).astype(dtype)


Program = Callable[..., Any]


def gradients(program: Program, arrays: Sequence[Any], weights: Any = None) -> tuple[Any, list[Any], Tape]:
    """The program's result on pairs, and the gradients of <weights, result>."""
    pairs = [Duplicated(a.copy()) for a in arrays]
    tape = Tape()
    with tape:
        result = program(*pairs)
    tape.reverse({result: 1.0 if weights is None else weights})
    return result.primal, [p.shadow for p in pairs], tape


def check(program: Program, *arrays: Any, plain: Program | None = None, tolerance: float = 1e-7, h: float = 1e-5) -> Tape:
    """Values against the same program on plain NumPy arrays, gradients against its central differences. Programs give a temporary."""
    plain = plain or program
    wide = [a.astype(np.float64) for a in arrays]
    expected = np.asarray(plain(*[a.copy() for a in wide]))
    weights = RNG.standard_normal(expected.shape)
    single = arrays[0].dtype == np.float32
    value, found, tape = gradients(program, arrays, weights.astype(arrays[0].dtype))
    np.testing.assert_allclose(value, expected, rtol=1e-5 if single else 1e-13, atol=1e-5 if single else 1e-13)
    for i, gradient in enumerate(found):
        numbers = np.zeros(wide[i].shape)
        for place in np.ndindex(numbers.shape):
            moved = [[a.copy() for a in wide] for _ in range(2)]
            moved[0][i][place] += h
            moved[1][i][place] -= h
            up, down = (np.asarray(plain(*m)) for m in moved)
            numbers[place] = ((up - down) * weights).sum() / (2 * h)
        np.testing.assert_allclose(gradient, numbers, rtol=tolerance, atol=1e-4 if single else tolerance)
    return tape


# --- each operation --------------------------------------------------------------------------------------------------------------------

UNARY = ["negative", "exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "abs", "square", "reciprocal", "log1p", "expm1"]
BINARY = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum"]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_unary(executor: None, name: str, dtype: Any) -> None:
    check(getattr(ops, name), positive(5, dtype=dtype), plain=getattr(np, name), tolerance=1e-3 if dtype == np.float32 else 1e-7)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_binary_with_broadcasting(executor: None, name: str, dtype: Any) -> None:
    arrays = positive(2, 3, dtype=dtype), positive(3, dtype=dtype)
    check(getattr(ops, name), *arrays, plain=getattr(np, name), tolerance=1e-3 if dtype == np.float32 else 1e-7)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power"])
def test_in_place_operators(executor: None, name: str) -> None:
    symbol = {"add": "+=", "subtract": "-=", "multiply": "*=", "divide": "/=", "power": "**="}[name]
    names: dict[str, Any] = {}
    exec(f"def program(x, w):\n    y = x * 1.0\n    y {symbol} w\n    y {symbol} 1.5\n    return y", names)
    check(names["program"], positive(2, 3), positive(3))


def test_operators_both_ways(executor: None) -> None:
    def program(x: Any, w: Any) -> Any:
        return (2.0 - x) / (x + w) + 3 * -w - 1 / x + (x**2) ** 0.5 + 2.0**w + abs(x - 1) + (+w)

    check(program, positive(4), positive(4))


def test_reused_operands(executor: None) -> None:
    def program(x: Any) -> Any:
        y = x * x
        y += y
        y *= y
        return y - y * x

    check(program, positive(4))


def test_where_and_clip(executor: None) -> None:
    x, mask = np.array([0.2, 0.8, 1.2, 1.7]), np.array([True, False, True, False])
    check(lambda x: ops.where(mask, x, x * x), x, plain=lambda x: np.where(mask, x, x * x))
    check(lambda x: ops.where(x > 1, x, 0), x, plain=lambda x: np.where(x > 1, x, 0))
    check(lambda x: ops.clip(x, 0.5, 1.5), x, plain=lambda x: np.clip(x, 0.5, 1.5))
    check(lambda x: np.where(mask, x, 1.0), x)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("where", ["high", "low", "x", "beside high"])
def test_clip_into_an_operand(executor: None, where: str) -> None:
    rng = np.random.default_rng(3)
    memory = [rng.uniform(0.0, 2.0, 9) for _ in range(3)]

    def program(pairs: list[Any], clip: Any) -> Any:
        x, low, high = (p[:8] for p in pairs)
        out = {"x": x, "low": low, "high": high, "beside high": pairs[2][1:]}[where]
        clip(x, low, high, out=out)
        return out

    pairs, tape = [Duplicated(m.copy()) for m in memory], Tape()
    with tape:
        out = program(pairs, ops.clip)
    plain = [m.copy() for m in memory]
    np.testing.assert_array_equal(out.primal, program(plain, np.clip))
    tape.reverse({out: np.ones(8)})
    for k, pair in enumerate(pairs):
        for i in range(8):  # no element is at a bound, so a small step is the derivative
            ends = []
            for step in (1e-6, -1e-6):
                moved = [m.copy() for m in memory]
                moved[k][i] += step
                ends.append(program(moved, np.clip).sum())
            np.testing.assert_allclose(pair.shadow[i], (ends[0] - ends[1]) / 2e-6, atol=1e-6)


def test_maximum_of_ties_and_nan(executor: None) -> None:
    x, y = Duplicated(np.array([1.0, np.nan, 2.0])), Duplicated(np.array([1.0, 3.0, np.nan]))
    tape = Tape()
    with tape:
        z = ops.maximum(x, y)
    tape.reverse({z: 1.0})
    np.testing.assert_array_equal(z.primal, np.maximum(x.primal, y.primal))
    np.testing.assert_array_equal(x.shadow, [1, 1, 0])
    np.testing.assert_array_equal(y.shadow, [0, 0, 1])


def test_fill_copyto_axpy_astype(executor: None) -> None:
    def program(x: Any, w: Any) -> Any:
        y = ops.copy(x)
        y.fill(3.0)
        ops.copyto(y[1:], w[:-1])
        ops.axpy(2.5, x, y)
        ops.axpy(w, x, y)
        return y

    def plain(x: Any, w: Any) -> Any:
        y = np.full_like(x, 3.0)
        y[1:] = w[:-1]
        return y + 2.5 * x + w * x

    check(program, positive(4), positive(4), plain=plain)


def test_numpy_functions_and_arrays_on_the_left(executor: None) -> None:
    k = positive(3)
    check(lambda x: np.exp(-x) * k + k * np.sqrt(x) + np.float64(2) * x, positive(3))
    check(lambda x: np.sum(k - x), positive(3))


def test_cupy_asks_the_pair_too(executor: None) -> None:
    x = Duplicated(positive(3))
    tape = Tape()
    with tape:
        y = x.__cupy_override_elementwise_kernel__(SimpleNamespace(name="cupy_exp"), x)
        z = x.__cupy_override_elementwise_kernel__(SimpleNamespace(name="cupy_true_divide"), 1.0, y)
    tape.reverse({z: 1.0})
    np.testing.assert_allclose(x.shadow, -np.exp(-x.primal))


def test_active_numbers(executor: None) -> None:
    x, da = Duplicated(np.arange(1.0, 65.0)), np.zeros(())
    tape = Tape()
    with tape:
        y = ops.multiply(Active(2.0, da), x)
    tape.reverse({y: 1.0})
    assert da == 2080
    np.testing.assert_array_equal(x.shadow, np.full(64, 2.0))


# --- types -----------------------------------------------------------------------------------------------------------------------------


def test_python_numbers_are_weak_and_arrays_promote(executor: None) -> None:
    x, w = Duplicated(positive(3, dtype=np.float32)), Duplicated(positive(3))
    tape = Tape()
    with tape:
        assert (x * 2.5).dtype == np.float32 and (x * 2).dtype == np.float32 and (x * True).dtype == np.float32
        y = x * w
        assert y.dtype == np.float64 and (x * np.float64(2)).dtype == np.float64
        assert ops.exp(x).dtype == np.float32
        x += w  # computed in float64, stored in float32, as NumPy does
    tape.reverse({y: 1.0})
    assert x.shadow.dtype == np.float32 and w.shadow.dtype == np.float64


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_, np.uint8])
def test_inactive_integer_operands(executor: None, dtype: Any) -> None:
    k = np.array([0, 1, 1]).astype(dtype)
    check(lambda x: x * k + k, positive(3))


def test_types_are_refused_as_numpy_does() -> None:
    x = Duplicated(positive(3))
    with Tape(), pytest.raises(TypeError, match="cannot cast"):
        ops.add(x, 1, out=np.zeros(3, np.int64))
    with Tape(), pytest.raises(TypeError):
        x * [1, 2, 3]
    with Tape(), pytest.raises(UnsupportedError, match="complex"):
        ops.maximum(x, np.ones(3, complex))
    with Tape(), pytest.raises(TypeError, match="cannot cast"):
        x *= np.ones(3, complex)
    with Tape(), pytest.raises(UnsupportedError, match="float16"):
        x * np.ones(3, np.float16)
    with Tape(), pytest.raises(ValueError, match="shape"):
        x += np.ones((2, 3))


# --- views and aliasing (CASES 19, 51, 56) -------------------------------------------------------------------------------------------


def test_a_slice_updated_in_place(executor: None) -> None:
    def program(x: Any, v: Any) -> Any:
        y = x * 1.0
        y[1:4] += v
        y[::2] *= v
        y[::-1] -= x
        y[0] = 2.0
        y[-2:] = v[1]
        return y

    check(program, positive(5), positive(3))


def test_setitem_with_a_view_of_itself_is_nothing() -> None:
    x, v = Duplicated(positive(5)), Duplicated(positive(3))
    tape = Tape()
    with tape:
        x[1:4] += v
    assert len(recording_of(tape).operations) == 1
    tape.reverse({x: 1.0})
    np.testing.assert_array_equal(v.shadow, np.ones(3))
    np.testing.assert_array_equal(x.shadow, np.ones(5))


def test_overlapping_sides_are_as_if_copied_first(executor: None) -> None:
    def program(x: Any) -> Any:
        y = x * 1.0
        y[1:] += y[:-1]
        y[1:] *= y[:-1]
        y[1:] = y[:-1]
        y[:-2] = y[2:]
        y[::-1] += y
        return y

    check(program, positive(5))


def test_interleaved_views(executor: None) -> None:
    def program(z: Any) -> Any:
        y = z * 1.0
        y[0::2] += y[1::2]
        y[1::2] *= y[0::2]
        return y

    tape = check(program, positive(6))
    assert len(recording_of(tape).operations) == 3


def test_interleaved_pairs_with_shadows_of_their_own(executor: None) -> None:
    z = positive(6)
    a, b = z[0::2].copy(), z[1::2].copy()
    x, y = Duplicated(z[0::2]), Duplicated(z[5::-2])
    tape = Tape()
    with tape:
        x *= y
    tape.reverse({x: 1.0})
    np.testing.assert_array_equal(x.shadow, b[::-1])
    np.testing.assert_array_equal(y.shadow, a)


def test_real_and_imaginary_part(executor: None) -> None:
    z, dz = positive(3) + 1j * positive(3), np.zeros(3, complex)
    a, b = z.real.copy(), z.imag.copy()
    re, im = Duplicated(z.real, dz.real), Duplicated(z.imag, dz.imag)
    tape = Tape()
    with tape:
        re *= im
    tape.reverse({re: 1.0})
    np.testing.assert_allclose(re.primal, a * b)
    np.testing.assert_allclose(dz, b + 1j * a)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 3, 2, 3), (1, 4, 1), (2, 1, 2, 2, 2)])
def test_axes_in_any_order(executor: None, shape: tuple[int, ...]) -> None:
    k = RNG.standard_normal(shape)
    order = tuple(reversed(range(len(shape))))

    def program(x: Any) -> Any:
        y = x.T * k.transpose(order)
        y += x.T[::-1]
        return y

    check(program, positive(*shape))


def test_broadcast_output_is_refused() -> None:
    x = Duplicated(np.broadcast_to(np.ones(1), (3,)), np.zeros(3))
    with Tape(), pytest.raises(LaunchError, match="stride of 0"):
        x += 1


def test_empty_and_zero_dimensional(executor: None) -> None:
    x = Duplicated(np.zeros((0, 3)))
    tape = Tape()
    with tape:
        y = x * 2
    assert y.shape == (0, 3)
    check(lambda x, w: x * w, np.array(1.5), positive(3))


# --- activity ----------------------------------------------------------------------------------------------------------------------------


def test_outside_of_a_tape_operators_raise() -> None:
    x = Duplicated(positive(3))
    for act in (lambda: x + 1, lambda: x.fill(0), lambda: ops.exp(x), lambda: ops.matmul(x, x), lambda: x[[0, 1]], lambda: np.exp(x)):
        with pytest.raises(TapeError, match="outside of a tape"):
            act()
    with pytest.raises(TapeError, match="outside of a tape"):
        x += 1
    np.testing.assert_array_equal(x > 1, x.primal > 1)


def test_plain_arrays_outside_of_a_tape() -> None:
    a = positive(4)
    np.testing.assert_allclose(ops.multiply(a, a), a * a)
    ops.add(a[1:], a[:-1], out=a[1:])


def test_forgotten_shadows_are_refused() -> None:
    x, plain = Duplicated(positive(3)), np.zeros(3)
    with Tape(), pytest.raises(ShadowError, match="no shadow"):
        ops.copyto(plain, x)
    with Tape(), pytest.raises(ShadowError, match="read bare"):
        y = x * 2
        y += x.primal
    with Tape(), pytest.raises(TypeError):
        plain[:] = x
    with Tape(), pytest.raises(ShadowError, match="different shadows"):
        x *= Duplicated(x.primal, np.zeros(3))


def test_const_and_stop_gradient(executor: None) -> None:
    x = Duplicated(np.array([2.0, 3.0]))
    tape = Tape()
    with tape:
        y = x * Const(np.array([5.0, 7.0]))
        z = y * stop_gradient(x.primal.copy())
    tape.reverse({z: 1.0})
    np.testing.assert_array_equal(x.shadow, [10.0, 21.0])


def test_a_filled_array_takes_its_shadow(executor: None) -> None:
    x = Duplicated(positive(3))
    tape = Tape()
    with tape:
        y = x * x
        x.fill(0)
    old = y.primal**0.5
    tape.reverse({y: 1.0, x: 5.0})
    np.testing.assert_allclose(x.shadow, 2 * old)


def test_foreign_ufunc_methods_are_refused() -> None:
    x = Duplicated(positive(3))
    with Tape(), pytest.raises(TypeError, match="not recorded"):
        np.hypot.reduce(x)
    with Tape(), pytest.raises(TypeError, match="no operation"):
        np.nextafter(x, x)
    with pytest.raises(TypeError):
        np.asarray(x)


# --- indices (CASE 25) -------------------------------------------------------------------------------------------------------------------


def test_take_adds_up_repeated_indices(executor: None) -> None:
    x, index = Duplicated(positive(8)), np.array([3, 5, 3])
    tape = Tape()
    with tape:
        y = ops.take(x, index)
        index[:] = 0  # the caller's own; nothing of it is needed any more
    tape.reverse({y: np.array([1.0, 2.0, 3.0])})
    np.testing.assert_array_equal(x.shadow, [0, 0, 0, 4, 0, 2, 0, 0])


@pytest.mark.parametrize(
    "key",
    [
        np.array([2, 0]), [True, False, True], (slice(None), np.array([3, 1, 3])), (np.array([0, 1]), np.array([-1, 2])),
        (Ellipsis, np.array([[0], [2]])), (np.array([0, 2]), None, slice(1, 3)), np.eye(3, 4, dtype=bool),
    ],
)  # fmt: skip
def test_index_keys(key: Any) -> None:
    check(lambda x: x[key] * x[key], positive(3, 4))
    check(lambda x: x.T[::-1].T[key] * 1.0, positive(3, 4))


def test_put(executor: None) -> None:
    rows, columns = np.array([0, 2, 1]), np.array([1, 1, 3])

    def program(x: Any, v: Any) -> Any:
        y = x * x
        y[rows, columns] = v * v
        y[y.primal > 2 if isinstance(y, Duplicated) else y > 2] = 0.0
        y[rows, columns] += v
        y[::2][[1]] = v[0]
        return y

    check(program, positive(3, 4), positive(3))


def test_repeated_indices(executor: None) -> None:
    x, v = Duplicated(np.zeros(4)), Duplicated(positive(3))
    with Tape(), pytest.raises(LaunchError, match="scatter_add"):
        x[[1, 2, 1]] = v
    tape = Tape()
    with tape:
        ops.scatter_add(x, [1, 2, 1], v)
    tape.reverse({x: np.arange(4.0)})
    np.testing.assert_array_equal(v.shadow, [1, 2, 1])
    np.testing.assert_array_equal(x.shadow, np.arange(4.0))
    np.testing.assert_allclose(x.primal, [0, v.primal[0] + v.primal[2], v.primal[1], 0])


def test_put_and_take_along_axes() -> None:
    index = np.array([2, 0])
    check(lambda x: ops.take(x, index, axis=1), positive(2, 3), plain=lambda x: np.take(x, index, axis=1))
    check(lambda x: ops.take(x, [-1, 1]), positive(2, 3), plain=lambda x: np.take(x, [-1, 1]))
    with Tape(), pytest.raises(IndexError):
        ops.take(Duplicated(positive(3)), [3])


# --- rules -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes", [((2, 3), (3, 4)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((2, 2, 3), (3, 2)), ((2, 1, 2, 3), (2, 3, 2))]
)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check(lambda a, b: a @ b, *(positive(*s) for s in shapes))


def test_matmul_saves_only_what_is_needed() -> None:
    a, b, plain = Duplicated(positive(3, 3)), Duplicated(positive(3, 3)), positive(3, 3)
    tape = Tape()
    with tape:
        a @ plain
        a.fill(0)
    assert tape.stats.saved_bytes == 0
    with tape:
        a @ b
        a.fill(0)
    assert tape.stats.saved_bytes == 72


def test_gemm_case_17() -> None:
    alpha, beta, a, b, c = 2.0, 0.5, *(Duplicated(np.full((1, 1), v)) for v in (3.0, 4.0, 7.0))
    dalpha, dbeta = np.zeros(()), np.zeros(())
    tape = Tape()
    with tape:
        ops.gemm(Active(alpha, dalpha), a, b, Active(beta, dbeta), c)
    assert c.primal == 27.5 and tape.stats.saved_bytes == 8
    tape.reverse({c: 1.0})
    assert [float(x[()].item()) for x in (dalpha, dbeta, a.shadow, b.shadow, c.shadow)] == [12, 7, 8, 6, 0.5]
    with tape:
        ops.gemm(alpha, a, b, beta, c)
    assert tape.stats.saved_bytes == 0


def test_gemm_nan_is_harmless_with_beta_zero() -> None:
    a, b, c = (Duplicated(np.full((1, 1), v)) for v in (3.0, 4.0, np.nan))
    tape = Tape()
    with tape:
        ops.gemm(2.0, a, b, 0.0, c)
    tape.reverse({c: 1.0})
    assert (c.primal, a.shadow, b.shadow, c.shadow) == (24, 8, 6, 0)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_and_mean(axis: Any, keepdims: bool) -> None:
    for name in ("sum", "mean"):
        call, plain = getattr(ops, name), getattr(np, name)
        check(
            lambda x, f=call: f(x, axis=axis, keepdims=keepdims),
            positive(2, 3, 2),
            plain=lambda x, f=plain: f(x, axis=axis, keepdims=keepdims),
        )


def test_cumsum_and_sort() -> None:
    check(lambda x: ops.cumsum(x, axis=1), positive(2, 3), plain=lambda x: np.cumsum(x, axis=1))
    check(lambda x: x.cumsum(), positive(2, 3), plain=lambda x: np.cumsum(x))
    check(lambda x: ops.sort(x), positive(3, 4), plain=lambda x: np.sort(x))

    def in_place(x: Any) -> Any:
        y = x * x
        ops.cumsum(y, axis=0, out=y)
        ops.sort(y, axis=0, out=y)
        return y * y

    check(in_place, positive(3, 2), plain=lambda x: np.sort(np.cumsum(x * x, 0), 0) ** 2)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("trans", [True, False])
def test_solve_triangular(lower: bool, trans: bool) -> None:
    def plain(a: Any, b: Any) -> Any:
        t = np.tril(a) if lower else np.triu(a)
        return np.linalg.solve(t.T if trans else t, b)

    check(lambda a, b: ops.solve_triangular(a, b, lower, trans), positive(3, 3) + np.eye(3), positive(3, 2), plain=plain)
    check(lambda a, b: ops.solve_triangular(a, b, lower, trans), positive(3, 3) + np.eye(3), positive(3), plain=plain)


@pytest.mark.parametrize("text", ["ij,jk->ik", "ij,kj->", "ij,ij", "ij,j->ij", "ij,k->j", "ji,jk"])
def test_einsum(text: str) -> None:
    sizes = dict(i=2, j=3, k=2)
    shapes = [tuple(sizes[c] for c in part) for part in text.partition("->")[0].split(",")]
    check(lambda a, b: ops.einsum(text, a, b), *(positive(*s) for s in shapes), plain=lambda a, b: np.einsum(text, a, b))
    check(lambda a: ops.einsum("ij->j", a), positive(2, 3), plain=lambda a: a.sum(0))


def test_einsum_refuses() -> None:
    x = Duplicated(positive(3, 3))
    for subscripts in ("ijk->i", "ij,jk", "ij->ii", "ij->k", "i...j...->i"):
        with Tape(), pytest.raises(ValueError, match="einsum"):
            ops.einsum(subscripts, x)
    with Tape(), pytest.raises(ValueError, match="3 and 2 elements"):
        ops.einsum("ij,jk->ik", x, Duplicated(positive(2, 3)))


def test_fourier() -> None:
    x = Duplicated(positive(4))
    tape = Tape()
    with tape:
        y = ops.fft(x)
        z = ops.ifft(y)
    seed = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)
    tape.reverse({z: seed})
    np.testing.assert_allclose(z.primal, x.primal, atol=1e-14)
    np.testing.assert_allclose(x.shadow, seed.real)
    c = Duplicated(positive(4) + 1j)
    with tape:
        y = ops.fft(c)
    tape.reverse({y: seed})
    v = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)
    assert np.isclose(np.vdot(seed, np.fft.fft(v)).real, np.vdot(c.shadow, v).real)


# --- real operands of complex results, and types that are refused ------------------------------------------------------------------------


def into(shape: tuple[int, ...]) -> Any:
    """A complex array to write into: for NumPy itself, on a tape as a pair."""
    return np.full(shape, 0.5 + 0.25j)


REAL_TO_COMPLEX: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum, dtype": lambda m, x, out: m.sum(x, axis=1, dtype=complex),
    "sum, keepdims": lambda m, x, out: m.sum(x, axis=0, keepdims=True, out=out(1, 3)),
    "mean, dtype": lambda m, x, out: m.mean(x, dtype=complex),
    "mean, out": lambda m, x, out: m.mean(x, axis=(0, 1), out=out()),
    "cumsum, dtype": lambda m, x, out: m.cumsum(x, axis=1, dtype=complex),
    "cumsum, out": lambda m, x, out: m.cumsum(x, out=out(6)),
    "prod, dtype": lambda m, x, out: m.prod(x, axis=0, dtype=complex),
    "prod, out": lambda m, x, out: m.prod(x, axis=1, out=out(2)),
    "var, dtype": lambda m, x, out: m.var(x, axis=0, dtype=complex),
    "std, out": lambda m, x, out: m.std(x, axis=1, out=out(2)),
    "max, out": lambda m, x, out: m.max(x, axis=1, out=out(2)),
    "min, out": lambda m, x, out: m.min(x, out=out()),
    "take, out": lambda m, x, out: x.ravel()[[0, 1, 1]] + 0j if m is np else m.take(x, [0, 1, 1], out=out(3)),
    "take an axis, out": lambda m, x, out: x[[1, 1, 0]] + 0j if m is np else m.take(x, [1, 1, 0], axis=0, out=out(3, 3)),
    "concatenate, out": lambda m, x, out: m.concatenate([x, x], out=out(4, 3)),
    "matmul, out": lambda m, x, out: m.matmul(x, x.T, out=out(2, 2)),
    "einsum, out": lambda m, x, out: m.einsum("ij,kj->ik", x, x, out=out(2, 2)),
    "absolute, out": lambda m, x, out: m.absolute(x, out=out(2, 3)),
    "reciprocal, out": lambda m, x, out: m.reciprocal(x, out=out(2, 3)),
    "absolute of complex numbers, out": lambda m, x, out: m.absolute(m.multiply(x, 1 + 2j), out=out(2, 3)),
}


def check_directions(call: Any, x: Any) -> None:
    """Value and gradient of a result with complex weights, against NumPy's own in a random direction."""
    expected = np.asarray(call(np, x.copy(), lambda *s: into(s)))
    weights = RNG.standard_normal(expected.shape) + 1j * RNG.standard_normal(expected.shape)
    direction = RNG.standard_normal(x.shape)
    pair, tape = Duplicated(x.copy()), Tape()
    with tape:
        value = call(ops, pair, lambda *s: Duplicated(into(s)))
    assert value.dtype == expected.dtype == complex
    np.testing.assert_allclose(value.primal, expected, rtol=1e-13)
    tape.reverse({value: weights})
    up, down = (np.asarray(call(np, x + h * direction, lambda *s: into(s))) for h in (1e-6, -1e-6))
    slope = (weights.conj() * (up - down)).real.sum() / 2e-6
    assert pair.shadow.dtype == x.dtype
    np.testing.assert_allclose((pair.shadow * direction).sum(), slope, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", REAL_TO_COMPLEX)
def test_a_real_operand_of_a_complex_result_gets_the_real_part(name: str) -> None:
    with pipeline.executor_for_tests(REFERENCE):
        check_directions(REAL_TO_COMPLEX[name], positive(2, 3))


@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("out", [None, complex])
def test_the_spectrum_may_be_real(n: int, out: Any) -> None:
    x, seed = Duplicated(positive(3)), RNG.standard_normal(n) * (1 if out is None else 1 + 1j)
    tape = Tape()
    with tape:
        y = ops.irfft(x, n, out=None if out is None else Duplicated(np.zeros(n, complex)))
    np.testing.assert_allclose(y.primal, np.fft.irfft(x.primal, n))
    tape.reverse({y: seed})
    np.testing.assert_allclose(x.shadow, [(np.fft.irfft(e, n) * seed.real).sum() for e in np.eye(3)])


def test_masks_of_no_axes() -> None:
    for primal in (np.array(2.0), np.array([2.0, 3.0])):
        for key in (np.array(True), np.array(False), True, (None, np.bool_(True))):
            x, tape = Duplicated(primal.copy()), Tape()
            with tape:
                y = x[key]
            np.testing.assert_array_equal(y.primal, primal[key])
            tape.reverse({y: 1.5})
            np.testing.assert_array_equal(x.shadow, np.full(primal.shape, 1.5 if y.size else 0.0))
    x, tape = Duplicated(np.array([1.0, 2.0])), Tape()
    with tape:
        y = ops.take(x, 1)
    tape.reverse({y: 1.0})
    assert y.shape == ()
    np.testing.assert_array_equal(x.shadow, [0, 1])
    x = Duplicated(np.array(2.0))
    with tape:
        y = ops.take(x, [0, -1, 0])
    tape.reverse({y: 1.0})
    assert x.shadow == 3


def swapped(dtype: str) -> Any:
    return np.arange(1, 4).astype(dtype)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: ops.sum(x), lambda x: ops.negative(x), lambda x: x[[0, 1]], lambda x: ops.fft(x),
        lambda x: ops.sort(x), lambda x: ops.einsum("i->", x), lambda x: ops.concatenate([x, x]), lambda x: ops.multiply(x, 1j),
        lambda x: ops.scatter_add(x, [0], 1.0), lambda x: x.fill(1.0),
    ],
)  # fmt: skip
def test_types_without_gradients_are_refused_before_anything_is_recorded(act: Any) -> None:
    cases = [(">f8", "order of bytes"), (">c16", "order of bytes"), ("f2", "float16"), ("i4", "integers|int32"), ("?", "integers|bool")]
    for dtype, words in cases:
        x, tape = Duplicated(swapped(dtype)), Tape()
        with tape, pytest.raises((UnsupportedError, ShadowError), match=words):
            act(x)
        assert not recording_of(tape).operations
        np.testing.assert_array_equal(x.primal, swapped(dtype))


@pytest.mark.parametrize("dtype", ["i4", "?"])
def test_a_copy_of_what_has_no_gradient_is_a_plain_array(dtype: str) -> None:
    x, tape = Duplicated(swapped(dtype)), Tape()
    with tape:
        y = ops.copy(x)
    assert type(y) is np.ndarray and y is not x.primal and not recording_of(tape).operations
    np.testing.assert_array_equal(y, swapped(dtype))


def test_types_that_would_drop_something_are_refused() -> None:
    x, z = Duplicated(positive(3)), Duplicated(positive(3) + 1j)
    for call in (ops.sum, ops.mean, ops.prod, ops.cumsum):
        with Tape(), pytest.raises(UnsupportedError, match="imaginary parts"):
            call(z, dtype=float)
        with Tape(), pytest.raises(UnsupportedError, match="order of bytes"):
            call(x, dtype=">f8")
    with pytest.raises(UnsupportedError, match="integers"):
        ops.mean(positive(3), dtype=int)
    with Tape(), pytest.raises(UnsupportedError, match="order of bytes"):
        x * swapped(">f8")
    with Tape(), pytest.raises(UnsupportedError, match="complex factor"):
        ops.gemm(1j, Duplicated(positive(2, 2)), positive(2, 2), 0.0, Duplicated(positive(2, 2)))
    with Tape(), pytest.raises(ShadowError, match="half of its gradient"):
        ops.gemm(Active(1j, np.zeros(())), np.eye(2) + 0j, np.eye(2) + 0j, 0.0, Duplicated(np.eye(2) + 0j))
    with Tape(), pytest.raises(ValueError, match="shape"):
        ops.concatenate([x, x], out=Duplicated(np.zeros(7)))


CONSTANT: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda c, x: ops.cumsum(c) * x,
    "outer": lambda c, x: ops.outer(c, x),
    "roll": lambda c, x: ops.roll(c, 1) * x,
    "stack": lambda c, x: ops.stack([c, x]),
    "matmul": lambda c, x: ops.matmul(c, x),
    "copy": lambda c, x: ops.copy(c) * x,
    "reshape": lambda c, x: ops.reshape(c, (3, 1)) * x if isinstance(c, np.ndarray) else x * ops.reshape(c, (3, 1)),
    "real": lambda c, x: x * ops.real(c),
    "concatenate": lambda c, x: ops.concatenate([c, x], out=Const(np.zeros(6))).primal,
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants_are_operands_as_plain_arrays_are(name: str) -> None:
    found = []
    for mark in (Const, np.asarray):
        x, tape = Duplicated(np.array([1.0, 2.0, 3.0])), Tape()
        with pipeline.executor_for_tests(REFERENCE), tape:
            y = CONSTANT[name](mark(np.array([4.0, 5.0, 7.0])), x)
        if isinstance(y, Duplicated):
            tape.reverse({y: 1.0})
        found.append((y.primal if isinstance(y, Duplicated) else y, x.shadow))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_products_of_masks_count() -> None:
    a, b = np.array([[True, True], [False, True]]), np.array([[100, 100], [100, 100]], np.int8)
    with pipeline.executor_for_tests(REFERENCE):
        check(lambda x: ops.einsum("ij,jk,kl,l->i", a, a, b, x), positive(2), plain=lambda x: a.astype(float) @ a @ b.astype(float) @ x)


# --- programs ----------------------------------------------------------------------------------------------------------------------------


def test_joining() -> None:
    check(lambda x, y: np.concatenate([x, y * y, x]), positive(2, 3), positive(1, 3))
    check(lambda x, y: np.concatenate([x.T, y], axis=-1), positive(2, 3), positive(3, 1))
    check(lambda x, y: np.stack([x, y, x], axis=1), positive(2, 3), positive(2, 3))
    for shift, axis in ((1, None), (-2, 1), (4, 0), (0, 1)):
        check(lambda x, s=shift, a=axis: np.roll(x, s, a) * x, positive(2, 3))


def test_matmul_in_place() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * 1.0
        y @= w
        y[:1] @= w
        return y

    check(program, positive(2, 3), positive(3, 3))


def test_program_with_temporaries(executor: None) -> None:
    def program(x: Any, w: Any) -> Any:
        y = np.exp(-x) * w
        out = y * 1.0
        out *= 0.5
        out = out + y
        return ops.where(out.primal > 0.3, out, 0) if isinstance(out, Duplicated) else np.where(out > 0.3, out, 0)

    check(program, positive(6), positive(6))


def test_leapfrog_with_sampling(executor: None) -> None:
    """User program 2, small: sources, a sponge, receivers."""
    n, steps = 6, 4
    wavelet, sponge, receivers = positive(steps), positive(n), np.array([1, 4, 4])

    def program(k: Any) -> Any:
        wrapped = isinstance(k, Duplicated)
        new = (lambda *s: Duplicated(np.zeros(s))) if wrapped else lambda *s: np.zeros(s)
        now, old, traces = new(n), new(n), new(steps, 3)
        for a in (now, old):
            a.fill(0)
        for t in range(steps):
            old[...] = 2.0 * now - old
            old[1:-1] += k[1:-1] * (now[2:] + now[:-2] - 2.0 * now[1:-1])
            old[2] += wavelet[t]
            old *= sponge
            traces[t] = old[receivers]
            now, old = old, now
        return traces

    check(program, positive(n))


def test_workspace(executor: None) -> None:
    """CASE 18."""
    x, t = Duplicated(np.array([1.2])), Duplicated(np.zeros(1))
    tape = Tape()
    with tape:
        t.fill(1.0)
        for _ in range(5):
            t *= x
    tape.reverse({t: 1.0})
    np.testing.assert_allclose(x.shadow, 10.368)
    work = np.ones(1)
    with Tape():
        for _ in range(2):
            ops.multiply(Const(work), x, out=Const(work))
        for back in (work, Const(work)):
            with pytest.raises(ShadowError, match="active data"):
                ops.add(t, back, out=t)


def test_the_same_program_again_gives_the_same(executor: None) -> None:
    x, w = Duplicated(positive(5)), Duplicated(positive(5))
    tape, found = Tape(), []
    start = x.primal.copy()
    for _ in range(3):
        x.primal[...] = start
        w.shadow.fill(0)
        with tape:
            for _ in range(3):
                x *= w
                x[1:] += x[:-1]
        tape.reverse({x: 1.0})
        found.append((x.shadow.copy(), w.shadow.copy()))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_restore_and_save_all() -> None:
    for keywords in ({"restore": True}, {"save": "all"}, {"check": "exact"}):
        x, w = Duplicated(np.array([1.0, 2.0, 3.0])), Duplicated(np.array([2.0, 2.0, 2.0]))
        tape = Tape(**keywords)
        with tape:
            x *= w
            ops.cumsum(x, axis=0, out=x)
            x[[0, 2]] = 0.0
            x *= x
        tape.reverse({x: 1.0})
        np.testing.assert_array_equal(x.shadow, [24.0, 24.0, 0.0])
        if recording_of(tape).restore:
            np.testing.assert_array_equal(x.primal, [1, 2, 3])


# --- other ways of running -----------------------------------------------------------------------------------------------------------


def mixed(x: Any, w: Any) -> Any:
    """Everything elementwise that has a pattern of its own."""
    y = ops.exp(x) if isinstance(x, Duplicated) else np.exp(x)
    y *= w
    y[::-1, 1:] += y[:, :-1]
    y[1:] *= x[:-1] * w
    y[:, 0] = 3.0
    return y * y.T[::-1].T


@pytest.mark.parametrize("way", [pipeline.everything_recorded_for_tests, pipeline.nothing_plain_for_tests])
def test_with_analyses_off(way: Any) -> None:
    with way():
        check(mixed, positive(3, 4), positive(4))


def test_wide_indices_and_looped_axes(executor: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "_INT", 4)
    check(mixed, positive(3, 4), positive(4))
    monkeypatch.setattr(elementwise, "_MOST_BLOCKS", 0)
    check(mixed, positive(3, 4), positive(4))


def test_on_a_stand_in_for_the_gpu(cupy: Any) -> None:
    x, w = positive(3, 4), positive(4)
    value, (dx, dw), _ = gradients(mixed, (cupy.asarray(x), cupy.asarray(w)))
    expected, (ex, ew), _ = gradients(mixed, (x, w))
    for one, two in ((value, expected), (dx, ex), (dw, ew)):
        np.testing.assert_allclose(one.get(), two, rtol=1e-13)


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("dtype", share(["float32", "float64"], 2))
def test_generated_text_compiles_for_a_gpu(dtype: str) -> None:
    for name, entry in share(list(table.TABLE.items()), 4):
        count = entry.ufunc.nin + entry.raw
        arrays = tuple(text.Array(dtype, "1s"[i % 2]) for i in range(count + 1))
        spec = text.Spec(name, entry.expression, dtype, arrays, (), tuple(range(1, count + 1)), entry.raw, 0, "int")
        kernel = text.built(spec)
        made = kernel.adjoint(*[Duplicated] * (count + 1))
        nvrtc.compile_cuda(made.source, "sm_90")
        nvrtc.compile_cuda(cuda_source([kernel.primal()]), "sm_90")


# --- random programs -------------------------------------------------------------------------------------------------------------------

SLICES: tuple[Any, ...] = (
    (slice(None), slice(None)), (slice(1, None), slice(None)), (slice(None, -1), slice(None)), (slice(None, None, -1), slice(None)),
    (slice(None), slice(1, 3)), (slice(None), slice(-1, 0, -2)), (slice(0, 2), slice(0, 4, 3)), (slice(1, 2), slice(None)),
)  # fmt: skip


def shape_of(key: Any) -> tuple[int, ...]:
    return np.empty((3, 4))[key].shape


def random_views(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A view to write, and two to read that broadcast to it."""
    out = SLICES[rng.integers(len(SLICES))]
    fitting = [s for s in SLICES if shape_of(s) in (shape_of(out), (1, shape_of(out)[1]))]
    return out, fitting[rng.integers(len(fitting))], fitting[rng.integers(len(fitting))]


def blend(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]] = held[names[1]] * 0.5 + 0.1 * held[names[2]]


def add(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][views[0]] += held[names[1]][views[1]] * 0.5


def scale(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][views[0]] *= held[names[1]][views[1]]


def subtract(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][views[0]] = 0.7 * held[names[1]][views[1]] - held[names[2]][views[2]]


def copy(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][views[0]] = held[names[1]][views[1]]


def function(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][views[0]] = unary(0.3 * held[names[1]][views[1]])


def permute(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][index] = 0.6 * held[names[1]][index[::-1]]


def project(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][:, 1:3] -= 0.5 * (held[names[1]] * held[names[2]]).sum(axis=1, keepdims=True)


def accumulate(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][...] = np.cumsum(held[names[1]], axis=0) * 0.4


def reset(held: list[Any], names: Any, views: Any, unary: Any, index: Any) -> None:
    held[names[0]][1] = 0.25


STEPS = [blend, add, scale, subtract, copy, function, permute, project, accumulate, reset]
SMOOTH = [np.exp, np.sin, np.cos, np.tanh, np.square, np.negative]


def random_program(seed: int, length: int) -> Program:
    """A program on three arrays of shape (3, 4) that NumPy and pairs both run: views, overlaps, broadcasts, temporaries, indices, rules."""
    rng = np.random.default_rng(seed)
    steps = [
        (
            STEPS[rng.integers(len(STEPS))],
            rng.integers(3, size=3),
            random_views(rng),
            SMOOTH[rng.integers(len(SMOOTH))],
            rng.permutation(3)[:2],
        )
        for _ in range(length)
    ]

    def program(*arrays: Any) -> Any:
        held = [a * 1.0 for a in arrays]
        for step, *details in steps:
            step(held, *details)
        return held[0] * held[1] + held[2]

    return program


@pytest.mark.one_of(2)
@pytest.mark.parametrize("seed", range(cases(4, 12)))
def test_random_programs(seed: int) -> None:
    program, rng = random_program(seed, 10), np.random.default_rng(100 + seed)
    arrays = [rng.uniform(0.5, 1.0, (3, 4)) for _ in range(3)]
    weights, directions = rng.standard_normal((3, 4)), [rng.standard_normal((3, 4)) for _ in arrays]
    value, found, _ = gradients(program, arrays, weights)
    np.testing.assert_allclose(value, program(*[a.copy() for a in arrays]), rtol=1e-12)
    up, down = (program(*[a + h * d for a, d in zip(arrays, directions, strict=True)]) for h in (1e-6, -1e-6))
    slope = ((up - down) * weights).sum() / 2e-6
    assert np.isclose(sum((g * d).sum() for g, d in zip(found, directions, strict=True)), slope, rtol=1e-6, atol=1e-6)
    pairs = [Duplicated(a.copy()) for a in arrays]
    everything = Tape(save="all", restore=True, check="exact")
    with everything:
        result = program(*pairs)
    everything.reverse({result: weights})
    for pair, array, gradient in zip(pairs, arrays, found, strict=True):
        np.testing.assert_array_equal(pair.primal, array)
        np.testing.assert_allclose(pair.shadow, gradient, rtol=1e-12, atol=1e-12)
