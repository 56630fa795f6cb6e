"""Elementwise and reduction kernels: values against NumPy, gradients against differences of the primal alone and against forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jit_kernels
import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import share

import gpuad
from gpuad import Active, Const, Duplicated, ElementwiseKernel, LaunchError, ReductionKernel, ShadowError, Tape, autodiff
from gpuad.codegen.cuda import cuda_source
from gpuad.elementwise.concrete import Concrete
from gpuad.runtime import nvrtc
from gpuad.testing import check_gradient

RNG = np.random.default_rng(3)


def uniform(*shape: int, dtype: Any = np.float64) -> Any:
    return RNG.uniform(0.5, 1.5, shape).astype(dtype)


def complex_pair(*shape: int) -> Any:
    return Duplicated(RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))


class Case:
    """A kernel, arguments (as pairs where a gradient flows), keywords, and what NumPy says of the outputs."""

    def __init__(self, kernel: Any, make: Callable[[], tuple[Any, ...]], expected: Callable[..., Any], **call: Any) -> None:
        self.kernel, self.make, self.expected, self.call = kernel, make, expected, call

    @property
    def outputs(self) -> int:
        return len(self.kernel.out_params)


def pairs(*shapes: tuple[int, ...], dtype: Any = np.float64) -> tuple[Any, ...]:
    return tuple(Duplicated(uniform(*s, dtype=dtype)) for s in shapes)


def _in_place() -> tuple[Any, ...]:
    x = Duplicated(uniform(5, 4))
    return x, Active(2.0, np.zeros(())), x


def _strided() -> tuple[Any, ...]:
    whole = Duplicated(uniform(6, 8, 3))
    return whole[::2, 1:7:3].T, Duplicated(uniform(1, 3)), Duplicated(uniform(3, 2, 3))[::-1]


def _raw_strided() -> tuple[Any, ...]:
    return Duplicated(uniform(4, 6))[::-1, ::2], Duplicated(uniform(12))


def _neighbour(x: Any, y: Any) -> Any:
    return x + np.roll(x, -1)


SQUARES = ElementwiseKernel("T x", "T y", "y = x * x + sin(x)", "squares")
CASES = {
    "one array": Case(SQUARES, lambda: pairs((7, 3), (7, 3)), lambda x, y: x * x + np.sin(x)),
    "float32": Case(SQUARES, lambda: pairs((40,), (40,), dtype=np.float32), lambda x, y: x * x + np.sin(x)),
    "broadcast": Case(
        ElementwiseKernel("T x, T y", "T z", "z = x / y", "quotient"), lambda: pairs((4, 1), (3,), (4, 3)), lambda x, y, z: x / y
    ),
    "a scalar": Case(
        ElementwiseKernel("T x, T a", "T y", "y = pow(x, a)", "powers"),
        lambda: (Duplicated(uniform(6)), Active(1.7, np.zeros(())), Duplicated(uniform(6))),
        lambda x, a, y: x**a,
    ),
    "in place": Case(
        ElementwiseKernel("T x, T a", "T y", "y = a * x * x", "scaled"), _in_place, lambda x, a, y: a * x * x
    ),
    "adds to the output": Case(
        ElementwiseKernel("T x", "T y", "y += x * y", "grow"), lambda: pairs((3, 3), (3, 3)), lambda x, y: y + x * y
    ),
    "two outputs": Case(
        ElementwiseKernel("T x, T y", "T r, T phi", "r = sqrt(x * x + y * y);\n phi = atan2(y, x)", "polar"),
        lambda: pairs((4, 5), (4, 5), (4, 5), (4, 5)),
        lambda x, y, r, phi: (np.sqrt(x * x + y * y), np.arctan2(y, x)),
    ),
    "strided views": Case(
        ElementwiseKernel("T x, T y", "T z", "z = x * x * y", "strided"), _strided, lambda x, y, z: x * x * y
    ),
    "raw neighbour": Case(
        ElementwiseKernel("raw T x", "T y", "y = x[i] + x[(i + 1) % n] * 1.0", "neighbour"),
        lambda: pairs((9,), (9,)), _neighbour,
    ),
    "raw, its size": Case(
        ElementwiseKernel("raw T x", "T y", "y = x[_ind.size() - 1 - i] * x[x.size() - 1]", "backwards"),
        lambda: pairs((9,), (9,)), lambda x, y: x[::-1] * x[-1],
    ),
    "raw, strided": Case(
        ElementwiseKernel("raw T x", "T y", "y = x[i] * x[i]", "gathered"), _raw_strided, lambda x, y: (x * x).ravel()
    ),
    "raw by a list of indices": Case(
        ElementwiseKernel(
            "raw T x", "T y", "const ptrdiff_t at[] = {i % x.shape()[0], i / x.shape()[0]};\ny = exp(x[at]) * x.ndim", "listed"
        ),
        _raw_strided, lambda x, y: 2 * np.exp(x.T.ravel()),
    ),
    "coordinates": Case(
        ElementwiseKernel("T x", "raw T y", "y[_ind.get()] = x * (_ind.get()[0] + 1)", "placed", reduce_dims=False),
        lambda: (Duplicated(uniform(2, 3, 4)), Duplicated(uniform(4, 3, 2)).T),
        lambda x, y: x * np.arange(1, 3)[:, None, None],
    ),
    "atomic scatter": Case(
        ElementwiseKernel("T x, int32 at", "raw T y", "atomicAdd(&y[at], x * x)", "scatter"),
        lambda: (Duplicated(uniform(6)), np.array([0, 2, 2, 1, 0, 2], np.int32), Duplicated(uniform(3))),
        lambda x, at, y: y + np.bincount(at, x * x),
    ),
    "preamble": Case(
        ElementwiseKernel(
            "float64 x", "float64 y", "y = relu(x - 1) + M_PI", "folded",
            preamble="__device__ double relu(double x) { return x > 0 ? x : 0; }",
        ),
        lambda: pairs((8,), (8,)), lambda x, y: np.maximum(x - 1, 0) + np.pi,
    ),
    "a loop that is left": Case(
        ElementwiseKernel(
            "T x", "T y", "y = 0;\nif (x > 1.2) continue;\nfor (int k = 0; k < 4; ++k) { if (k == 3) break; y += x * k; }", "left"
        ),
        lambda: pairs((8,), (8,)), lambda x, y: np.where(x > 1.2, 0, 3 * x),
    ),
    "return": Case(
        ElementwiseKernel("T x", "T y", "if (x > 1.1) return;\ny = x * x", "returned"),
        lambda: pairs((8,), (8,)), lambda x, y: np.where(x > 1.1, y, x * x),
    ),
    "four axes": Case(
        ElementwiseKernel("T x, T w", "T y", "y = x * w * i", "four"),
        lambda: (Duplicated(uniform(2, 3, 2, 6))[:, ::2, :, ::3], Duplicated(uniform(2, 1, 2, 1)), Duplicated(uniform(2, 2, 2, 2))),
        lambda x, w, y: x * w * np.arange(16).reshape(2, 2, 2, 2),
    ),
    "no axes": Case(ElementwiseKernel("T x", "T y", "y = x * x * (i + 1)", "point"), lambda: pairs((), ()), lambda x, y: x * x),
    "loop_prep": Case(
        ElementwiseKernel("T x, T a", "T y", "y = x * twice", "prepared", loop_prep="const T twice = a + a;"),
        lambda: (Duplicated(uniform(5)), Active(1.5, np.zeros(())), Duplicated(uniform(5))), lambda x, a, y: 2 * a * x,
    ),
    "only raw": Case(
        ElementwiseKernel("raw T x, int64 k", "raw T y", "y[i * k] = x[i] * x[i + 1]", "sized"),
        lambda: (Duplicated(uniform(6)), 2, Duplicated(uniform(10))),
        lambda x, k, y: np.where(np.arange(10) % 2, y, np.repeat(x[:-1] * x[1:], 2)), size=5,
    ),
    "sum of squares": Case(
        ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "sum_of_squares"),
        lambda: pairs((4, 5), (4,)), lambda x, y: (x * x).sum(1), axis=1,
    ),
    "sum of all": Case(
        ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "root"),
        lambda: (Duplicated(uniform(4, 6))[::-1, ::3], Duplicated(uniform())), lambda x, y: np.sqrt((x * x).sum()),
    ),
    "max": Case(
        ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", "-1e300", "largest"),
        lambda: pairs((3, 4, 2), (4,)), lambda x, y: x.max((0, 2)), axis=(0, 2),
    ),
    "product": Case(
        ReductionKernel("T x", "T y", "x", "a * b", "y = a * 2", "1", "product"),
        lambda: pairs((3, 4), (3, 1)), lambda x, y: 2 * x.prod(1, keepdims=True), axis=-1, keepdims=True,
    ),
    "weighted": Case(
        ReductionKernel("T x, raw T w, T c", "T y", "x * w[_J] * c", "a + b", "y = a", "0", "weighted"),
        lambda: (Duplicated(uniform(3, 4)), Duplicated(uniform(12)), Active(0.5, np.zeros(())), Duplicated(uniform(4))),
        lambda x, w, c, y: c * (x * w[:3, None]).sum(0), axis=0,
    ),
    "two results": Case(
        ReductionKernel("T x, T y", "T s, T m", "x * y", "a + b", "s = a, m = a * a", "0", "moments"),
        lambda: pairs((3, 4), (4,), (3,), (3,)), lambda x, y, s, m: ((x * y).sum(1), (x * y).sum(1) ** 2), axis=1,
    ),
    "complex": Case(
        ElementwiseKernel("T x, complex128 a", "T y, float64 r", "y = x * x * a * conj(x);\nr = norm(x) + x.real()", "squared"),
        lambda: (complex_pair(4)[::-1], 2j, complex_pair(4), Duplicated(uniform(4))),
        lambda x, a, y, r: (x * x * a * x.conj(), (x * x.conj()).real + x.real),
    ),
    "sum of complex": Case(
        ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "complex_sum"),
        lambda: (complex_pair(3, 4), complex_pair(4)), lambda x, y: (x * x).sum(0), axis=0,
    ),
    "vectors": Case(
        ElementwiseKernel("raw T x", "T y", "const double2 p = make_double2(x[2 * i], x[2 * i + 1]);\ny = p.x * p.y", "halves"),
        lambda: pairs((8,), (4,)), lambda x, y: x[::2] * x[1::2],
    ),
    "a struct is reduced": Case(
        ReductionKernel(
            "float64 x", "float64 m, float64 v", "Two{x, x * x}", "Two{a.s + b.s, a.q + b.q}", "m = a.s, v = a.q - a.s * a.s / 4",
            "Two{0, 0}", "variance", reduce_type="Two", preamble="struct Two { double s; double q; };",
        ),
        lambda: pairs((3, 4), (3,), (3,)), lambda x, m, v: (x.sum(1), 4 * x.var(1)), axis=1,
    ),
    "in double": Case(
        ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total", reduce_type="double"),
        lambda: pairs((50,), (), dtype=np.float32), lambda x, y: x.astype(float).sum(),
    ),
}  # fmt: skip


def planned(name: str) -> Any:
    return CASES[name].kernel.planned(*CASES[name].make(), **CASES[name].call)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_values(name: str, executor: str) -> None:
    case = CASES[name]
    args = [getattr(a, "primal", a) for a in case.make()]
    expected = case.expected(*(np.copy(a) if hasattr(a, "shape") else a for a in args))
    with running(executor):
        case.kernel(*args, **case.call)
    results = args[-case.outputs :]
    for found, wanted in zip(results, expected if case.outputs > 1 else (expected,), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if found.dtype == np.float32 else 1e-13)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", [(True, True), (False, True), (True, False)], ids=["usual", "all recorded", "atomic"])
def test_gradients(name: str, executor: str, way: tuple[bool, bool]) -> None:
    case = CASES[name]
    with running(executor, *way):
        report = check_gradient(case.kernel, case.make(), directions=1, race_check=executor == "reference", **case.call)
    assert not any("no dot product" in note for note in report.notes), report


@pytest.mark.one_of(4)
@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", share(list(CASES), 2))
def test_text_primal_and_adjoint_compile(name: str) -> None:
    plan = planned(name)
    annotations = {d.name: type(a) for d, a in zip(plan.kernel.parameters, plan.args, strict=True) if isinstance(a, Duplicated | Active)}
    texts = [cuda_source([plan.kernel.primal()]), plan.kernel.adjoint(**annotations).source]
    if "<cupy/complex.cuh>" not in plan.kernel.source:  # which CuPy has, and NVRTC has not
        texts.append(plan.kernel.source)
    for text in texts:
        nvrtc.compile_cuda(text)


def test_nothing_is_atomic_where_each_element_has_its_thread() -> None:
    plan = planned("strided views")
    text = plan.kernel.adjoint(x=Duplicated, y=Duplicated, z=Duplicated, grid=plan.grid, block=plan.block, args=plan.args).source
    assert "dx[" in text and "atomicAdd(&dx" not in text and "atomicAdd(&dz" not in text


# --- calls ---------------------------------------------------------------------------------------------------------------------------


def test_outputs_are_made_and_given_back() -> None:
    polar = CASES["two outputs"].kernel
    x, y = uniform(3), uniform(2, 3)
    r, phi = polar(x, y)
    np.testing.assert_allclose(r, np.hypot(x, y))
    assert phi.shape == (2, 3)
    assert isinstance(ElementwiseKernel("T x", "T y", "y = x", "k", return_tuple=True)(x), tuple)
    assert ElementwiseKernel("T x", "T y", "y = x", "k", no_return=True)(x) is None
    assert SQUARES(np.zeros((0, 3))).shape == (0, 3)


def test_types_as_cupy_decides_them() -> None:
    kernel = ElementwiseKernel("T x, S y, float64 c", "S z", "z = (S)(x * c) + y", "mixed")
    assert kernel(uniform(3, dtype=np.float32), np.arange(3, dtype=np.int32), 2).dtype == np.int32
    assert SQUARES(uniform(3, dtype=np.float32)).dtype == np.float32
    with pytest.raises(TypeError, match=r"`mixed`: `y` got an array of int32, but `S` is float32 already"):
        kernel(uniform(3), np.arange(3, dtype=np.int32), 2, uniform(3, dtype=np.float32))
    with pytest.raises(TypeError, match="`c` got an array of float32, but it is declared float64"):
        kernel(uniform(3), uniform(3), uniform(3, dtype=np.float32))
    with pytest.raises(TypeError, match="no array says which type `S` of `y` is"):
        ElementwiseKernel("T x, S y", "T z", "z = x * y", "k")(uniform(3), 2.0)


def test_calls_that_are_refused() -> None:
    x = uniform(3)
    with pytest.raises(TypeError, match="`squares` takes 1 or, with outputs, 2 arguments, got 3"):
        SQUARES(x, x, x)
    with pytest.raises(ValueError, match="do not fit together"):
        CASES["broadcast"].kernel(uniform(3), uniform(4))
    with pytest.raises(ValueError, match=r"the output `y` has shape \(1,\), the result \(3,\)"):
        SQUARES(x, uniform(1))
    with pytest.raises(ValueError, match="size= is for calls in which all arrays are raw"):
        SQUARES(x, size=3)
    with pytest.raises(ValueError, match=r"pass size="):
        CASES["only raw"].kernel(x, 1, x)
    with pytest.raises(LaunchError, match=r"the output `y` is missing.*Duplicated"):
        SQUARES(Duplicated(x))
    with pytest.raises(LaunchError, match=r"the output `y` is missing.*Duplicated"):
        autodiff(SQUARES, Duplicated(x))
    with pytest.raises(ShadowError, match=r"no path|has no shadow"):
        autodiff(SQUARES, Duplicated(x), uniform(3))
    with pytest.raises(ValueError, match="no elements to reduce"):
        ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None, "k")(np.zeros((3, 0)), axis=1)


def test_a_raw_neighbour_in_place_is_a_race() -> None:
    kernel = ElementwiseKernel("raw T x", "T y", "y = x[i + 1]", "shift")
    x = Duplicated(np.ones(9), np.ones(9))
    with pytest.raises(gpuad.UnsupportedError, match=r"a data race.*`x`") as caught:
        autodiff(kernel, x, x[:-1])
    assert (caught.value.file, caught.value.line, caught.value.column) == ("<operation of shift>", 1, 5)


def test_an_output_that_overlaps_otherwise_than_element_by_element_is_refused() -> None:
    x = Duplicated(uniform(4, 4))
    for a, b in ((x, x.T), (x, x[::-1]), (x[:-1], x[1:]), (x[:1], x), (x.primal, x.primal.T)):
        before = x.primal.copy()
        with pytest.raises(LaunchError, match="`x` and output `y` share memory without being the same elements"):
            SQUARES(a, b)
        assert (x.primal == before).all()
    with pytest.raises(LaunchError, match="share memory"):
        CASES["sum of squares"].kernel(x, x[0], axis=0)
    report = check_gradient(SQUARES, (x.reshape(1, 4, 4), x[None]))
    assert report.passed


def test_numbers_take_the_parameter_s_type() -> None:
    kernel = ElementwiseKernel("T x, T a, int32 k", "T y", "y = x * a + k", "k")
    np.testing.assert_allclose(kernel(uniform(3, dtype=np.float32) * 0 + 1, np.float64(0.5), 2), 2.5)
    with pytest.raises(LaunchError, match="no whole number"):
        kernel(uniform(3), 1.0, 2.5)


def test_second_derivatives() -> None:
    x, d = uniform(5), RNG.standard_normal(5)
    pair, dots = Duplicated(x, np.zeros(5)), Duplicated(d.copy(), np.zeros(5))
    out, outdots = Duplicated(np.zeros(5), np.ones(5)), Duplicated(np.zeros(5), np.zeros(5))
    gpuad.hvp(SQUARES, pair[::-1], out, [dots[::-1], outdots])
    np.testing.assert_allclose(pair.shadow, 2 * x + np.cos(x))
    np.testing.assert_allclose(dots.shadow, (2 - np.sin(x)) * d)


def test_split_pairs() -> None:
    augmented, reverse = gpuad.autodiff_thunk(SQUARES, Duplicated, y=Duplicated)
    x, y = uniform(4, 3), np.zeros((4, 3))
    before = x.copy()
    saved = augmented(x, y)
    single = augmented(*(np.ones(3, np.float32) for _ in range(2)))
    x.fill(0)
    dx = np.zeros((4, 3))
    with pytest.raises(gpuad.GpuadError, match="the last argument is no state"):
        reverse(Duplicated(x, dx), Duplicated(y, np.ones((4, 3))), single)
    reverse(Duplicated(x, dx), Duplicated(y, np.ones((4, 3))), saved)
    np.testing.assert_allclose(dx, 2 * before + np.cos(before))
    with pytest.raises(LaunchError, match="the output `y` is missing"):
        augmented(x)


# --- in tapes ------------------------------------------------------------------------------------------------------------------------


def test_results_are_pairs_inside_of_a_tape() -> None:
    x = Duplicated(uniform(4, 3))
    tape = Tape()
    with tape:
        y = SQUARES(x)
        SQUARES(y[1:], y[1:])
        total = CASES["sum of squares"].kernel(y, axis=0)
    w = uniform(3)
    tape.reverse({total: w})
    inner = x.primal**2 + np.sin(x.primal)
    slope = 2 * x.primal + np.cos(x.primal)
    outer = inner.copy()
    outer[1:] = inner[1:] ** 2 + np.sin(inner[1:])
    factor = np.ones_like(inner)
    factor[1:] = 2 * inner[1:] + np.cos(inner[1:])
    np.testing.assert_allclose(total.primal, (outer**2).sum(0))
    np.testing.assert_allclose(x.shadow, 2 * outer * w * factor * slope)


def test_logsumexp_in_two_kernels() -> None:
    largest = ReductionKernel("T x", "T m", "x", "max(a, b)", "m = a", "-1e300", "largest")
    total = ReductionKernel("T x, T m", "T y", "exp(x - m)", "a + b", "y = a", "0", "total")
    finish = ElementwiseKernel("T s, T m", "T y", "y = log(s) + m", "finish")
    x = Duplicated(RNG.standard_normal((3, 7)) * 30)
    tape = Tape()
    with tape:
        m = largest(x, axis=1, keepdims=True)
        y = finish(total(x, m, axis=1, keepdims=True), m)
    tape.reverse({y: 1.0})
    e = np.exp(x.primal - x.primal.max(1, keepdims=True))
    np.testing.assert_allclose(y.primal[:, 0], np.log(e.sum(1)) + x.primal.max(1))
    np.testing.assert_allclose(x.shadow, e / e.sum(1, keepdims=True), atol=1e-14)


def test_complex_results_are_pairs_too() -> None:
    x, tape = complex_pair(3), Tape()
    with tape:
        y = ElementwiseKernel("T x", "T y", "y = x * x * x", "cube")(x)
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, (3 * x.primal**2).conj())


def test_the_place_of_the_greatest() -> None:
    """As CuPy's own argmax is written: a struct without an identity."""
    preamble = """template <typename T> struct Best {
    T value; int at;
    __device__ Best() : at(-1) {}
    __device__ Best(T v, int i) : value(v), at(i) {}
};
template <typename T> __device__ Best<T> better(const Best<T>& a, const Best<T>& b)
{
    if (a.at == -1) return b;
    if (b.at == -1) return a;
    return a.value >= b.value ? a : b;
}"""
    place = ReductionKernel(
        "T x", "int64 y", "Best<T>(x, _J)", "better(a, b)", "y = a.at", None, "place", reduce_type="Best<T>", preamble=preamble
    )
    x = uniform(5, 4)
    assert (place(x, axis=1) == x.argmax(1)).all()


def test_of_equal_elements_the_first_gets_the_gradient_of_a_max() -> None:
    x, y = Duplicated(np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])), Duplicated(np.zeros(2), np.ones(2))
    autodiff(CASES["max"].kernel, x, y, axis=1)
    assert x.shadow.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_an_array_held_constant_stops_the_gradient() -> None:
    x, y, z = uniform(4), Duplicated(uniform(4)), Duplicated(np.zeros(4), np.ones(4))
    autodiff(CASES["broadcast"].kernel, Const(x), y, z)
    np.testing.assert_allclose(y.shadow, -x / y.primal**2)


def test_a_kernel_is_built_once_for_all_sizes() -> None:
    kernel = ElementwiseKernel("T x", "T y", "y = x", "k")
    for size in (3, 5, 700):
        kernel(uniform(size))
    kernel(uniform(3, 4))
    assert len(kernel.specializations) == 1
    kernel(uniform(3, 4, dtype=np.float32))
    assert all(isinstance(c, Concrete) for c in kernel.specializations.values()) and len(kernel.specializations) == 2


# --- CuPy's own objects --------------------------------------------------------------------------------------------------------------


class Info:
    """As CuPy's ParameterInfo."""

    def __init__(self, text: str) -> None:
        *keywords, kind, self.name = text.split()
        self.raw = "raw" in keywords
        self.dtype, self.ctype = (None, kind) if len(kind) == 1 else (np.dtype(kind), kind)


class Elementwise:
    """As CuPy's ElementwiseKernel: what it offers to readers."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str, **kwargs: Any) -> None:
        self.in_params = tuple(Info(p) for p in in_params.split(","))
        self.out_params = tuple(Info(p) for p in out_params.split(","))
        self.operation, self.name, self.kwargs = operation, name, kwargs
        self.preamble, self.reduce_dims, self.no_return, self.return_tuple = "", True, False, False


def test_a_kernel_of_cupy() -> None:
    cube = Elementwise("T x, raw float64 w", "T y", "y = x * x * x * w[0]", "square", loop_prep="")
    x, y = Duplicated(uniform(4)), Duplicated(np.zeros(4), np.ones(4))
    autodiff(cube, x, np.array([2.0]), y)
    np.testing.assert_allclose(x.shadow, 6 * x.primal**2)


def test_a_kernel_of_cupy_called_with_a_pair_is_not_taken_for_the_function_of_its_name() -> None:
    cube = Elementwise("T x", "T y", "y = x * x * x", "square")
    x = Duplicated(uniform(4))
    tape = Tape()
    with tape:
        y = x.__cupy_override_elementwise_kernel__(cube, x)
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, 3 * x.primal**2)


@pytest.mark.parametrize("save", ["needed", "all"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_program_of_all_kinds(executor: str, save: str) -> None:
    """Views in place, a raw gather of what is overwritten afterwards, a reduction that is broadcast back, a jit function."""
    gather = CASES["raw neighbour"].kernel
    grow = CASES["adds to the output"].kernel
    total = ReductionKernel("T x, T w", "T y", "x * w", "a + b", "y = sin(a)", "0", "total")
    share = ElementwiseKernel("T x, T m", "T y", "y = x * m + y", "share")
    start = 0.3 * uniform(4, 5)

    def program(x: Any) -> Any:
        y = gather(x.reshape(20), *_like(x, 20))
        grow(x[1:, ::2], x[1:, ::2])
        m = total(x, y.reshape(4, 5), axis=0)
        share(x[::-1], m, x[::-1])
        jit_kernels.image[(1, 1), (4, 8)](x, y.reshape(4, 5))
        return total(y.reshape(4, 5), x)

    pair, tape = Duplicated(start.copy()), Tape(save=save)
    with running(executor):
        with tape:
            result = program(pair)
        tape.reverse({result: 1.0})
        slope = np.zeros((4, 5))
        for at in np.ndindex(4, 5):
            ends = []
            for h in (1e-5, -1e-5):
                moved = start.copy()
                moved[at] += h
                ends.append(float(program(moved)))
            slope[at] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(pair.shadow, slope, rtol=1e-6, atol=1e-6)


def _like(x: Any, size: int) -> tuple[Any]:
    return (Duplicated(np.zeros(size)) if isinstance(x, Duplicated) else np.zeros(size),)


def test_windows_and_broadcast_arrays_are_read_where_they_are(executor: Any) -> None:
    """Who is told the strides of its arrays may read elements that share memory."""
    k = ElementwiseKernel("float64 x, float64 a", "float64 y", "y = x * x * a", "windows")
    x = np.arange(6.0)
    for view in (np.lib.stride_tricks.sliding_window_view(x, 3), np.broadcast_to(x, (4, 6))):
        a, y = Duplicated(np.ones(view.shape)), Duplicated(np.zeros(view.shape), np.ones(view.shape))
        autodiff(k, view, a, y)
        np.testing.assert_array_equal(a.shadow, view * view)
    window = np.lib.stride_tricks.sliding_window_view(x, 3)
    with pytest.raises(gpuad.UnsupportedError, match="a pair whose elements share memory"):
        autodiff(k, Duplicated(window), window, np.zeros(window.shape))
