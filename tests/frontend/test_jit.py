"""Kernels written in Python: values, gradients against differences of the primal alone, CuPy's types, and places in the Python file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jit_kernels
import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Active, CompileError, Duplicated, LaunchError, Tape, UnsupportedError, autodiff, jit
from gpuad.codegen.cuda import cuda_source
from gpuad.frontend.python_jit.names import Builtin
from gpuad.runtime import nvrtc
from gpuad.testing import check_gradient

RNG = np.random.default_rng(5)


def uniform(*shape: int, dtype: Any = np.float64) -> Any:
    return Duplicated(RNG.uniform(0.5, 1.5, shape).astype(dtype))


class Case:
    """A kernel, its geometry and arguments, and what NumPy says of the array at `out`."""

    def __init__(
        self,
        kernel: Any,
        geometry: Any,
        make: Callable[[], tuple[Any, ...]],
        expected: Callable[..., Any],
        out: int = -1,
        shared_mem: int = 0,
    ) -> None:
        self.kernel, (self.grid, self.block), self.make, self.expected, self.out = kernel, geometry, make, expected, out
        self.shared_mem = shared_mem


def _wave(p: Any, u: Any, c: Any) -> Any:
    q = p.copy()
    q[1:-1] = 2 * u[1:-1] - p[1:-1] + c[1:-1] * 0.3 * (u[:-2] - 2 * u[1:-1] + u[2:])
    return q


def _recurrence(x: Any, steps: int, y: Any) -> Any:
    s = x.copy()
    for _ in range(steps):
        s = np.where(s > 1.1, s * 0.8, s * s + 0.25 * x)
    return np.maximum(s, y) + steps % 2


def _after_loop(x: Any, y: Any) -> Any:
    a, b = x, 2 * x
    for _ in range(3):
        a, b = b, a * b
    return a + b // 2


def _in_place(x: Any, a: float) -> Any:
    z = x * a / np.where(np.arange(x.size) % 2, 4, 3)
    return z - np.abs(z)


def _neighbours(x: Any, y: Any) -> Any:
    lanes = np.arange(32)
    up = x[np.where(lanes % 16 == 0, lanes, lanes - 1)]
    return up * x[lanes ^ 3] * x[lanes // 8 * 8 + 5]


def _stencil(u: Any, v: Any) -> Any:
    w = v.copy()
    w[1:-1] = -2 * (u[2:] - u[:-2])
    return w


J = jit_kernels
CASES = {
    "wave": Case(J.wave, (2, 8), lambda: (uniform(13), uniform(13), uniform(13)), _wave, 0),
    "wave float32": Case(J.wave, (2, 8), lambda: tuple(uniform(13, dtype=np.float32) for _ in range(3)), _wave, 0),
    "image": Case(J.image, ((2, 2), (4, 4)), lambda: (uniform(5, 7), uniform(5, 7)), lambda x, y: x * x + np.sin(x)),
    "image, views": Case(
        J.image, ((2, 2), (4, 4)), lambda: (uniform(14, 5)[::-2].T, uniform(6, 9)[1:, :-2]), lambda x, y: x * x + np.sin(x)
    ),
    "device functions": Case(J.rows, (1, 8), lambda: (uniform(5, 3), uniform(5)), lambda a, out: np.sqrt((a * a).sum(1))),
    "device functions, views": Case(J.rows, (1, 8), lambda: (uniform(3, 5).T[::-1], uniform(5)), lambda a, out: np.sqrt((a * a).sum(1))),
    "grid-stride": Case(
        J.grid_stride, (2, 3), lambda: (uniform(17), uniform(17), 17), lambda x, y, n: y + np.where(x > 1, 0.9 * x, -x * x), 1
    ),
    "atomic": Case(
        J.scatter, (1, 8), lambda: (uniform(6), np.array([0, 2, 2, 1, 0, 2], np.int32), uniform(3)),
        lambda v, at, y: y + np.bincount(at, v * v),
    ),
    "recurrence": Case(J.recurrence, (1, 8), lambda: (uniform(7), 5, uniform(7)), _recurrence),
    "after a loop": Case(J.after_loop, (1, 7), lambda: (uniform(7), uniform(7)), _after_loop),
    "in place": Case(J.in_place, (1, 8), lambda: (uniform(7), Active(np.float64(-0.5), np.zeros(()))), _in_place, 0),
    "constants": Case(J.stencil, (1, 16), lambda: (uniform(9), uniform(9)), _stencil),
    "strides": Case(J.strided, ((2, 2), (4, 4)), lambda: (uniform(5, 7), uniform(7, 5)), lambda x, y: x.T * 56 * 2),
    "shared memory": Case(J.mirrored, (2, 8), lambda: (uniform(16), uniform(16)), lambda x, y: (x * x).reshape(2, 8)[:, ::-1].ravel()),
    "dynamic shared memory": Case(
        J.block_sum, (2, 8), lambda: (uniform(13), uniform(1)), lambda x, y: y + np.sin(x).sum(), shared_mem=64
    ),
    "atomics on shared memory": Case(J.counted, (1, 12), lambda: (uniform(12), uniform(4)), lambda x, y: (x * x).reshape(3, 4).sum(0)),
    "warp": Case(J.warp_sum, (1, 64), lambda: (uniform(64), uniform(2)), lambda x, y: (x * x).reshape(2, 32).sum(1)),
    "shuffles": Case(J.neighbours, (1, 32), lambda: (uniform(32), uniform(32)), _neighbours),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_values(name: str, executor: str) -> None:
    case = CASES[name]
    args = [getattr(a, "primal", a) for a in case.make()]
    expected = case.expected(*(np.copy(a) if hasattr(a, "shape") and a.shape else a for a in args))
    with running(executor):
        case.kernel[case.grid, case.block](*args, shared_mem=case.shared_mem)
    found = args[case.out]
    np.testing.assert_allclose(found, expected, rtol=1e-5 if found.dtype == np.float32 else 1e-7)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", [(True, True), (False, True), (True, False)], ids=["usual", "all recorded", "atomic"])
def test_gradients(name: str, executor: str, way: tuple[bool, bool]) -> None:
    case = CASES[name]
    with running(executor, *way):
        report = check_gradient(
            case.kernel,
            case.make(),
            grid=case.grid,
            block=case.block,
            shared_mem=case.shared_mem,
            directions=1,
            race_check=executor == "reference",
        )
    assert not any("no dot product" in note for note in report.notes), report


@pytest.mark.one_of(4)
@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", CASES)
def test_primal_and_adjoint_compile(name: str) -> None:
    case = CASES[name]
    args = case.make()
    plan = case.kernel.planned(case.grid, case.block, args)
    annotations = {d.name: type(a) for d, a in zip(plan.kernel.parameters, args, strict=False) if isinstance(a, Duplicated | Active)}
    for launch in ({}, {"grid": case.grid, "block": case.block}):
        nvrtc.compile_cuda(case.kernel.adjoint(args=args, shared_mem=case.shared_mem, **launch, **annotations).source)
    nvrtc.compile_cuda(cuda_source([plan.kernel.suited(None, case.shared_mem).primal()]))


def test_the_wave_s_reverse_is_as_from_cuda() -> None:
    args = CASES["wave"].make()
    text = J.wave.adjoint(args=args, grid=2, block=8, p=Duplicated, u=Duplicated, c=Duplicated).source
    assert "wave_reverse" in text and "dc[i] += " in text


# --- types ---------------------------------------------------------------------------------------------------------------------------


def parameters(kernel: Any, *args: Any) -> list[str]:
    return [str(d.type) for d in kernel.concrete(args).parameters[: len(args)]]


@jit
def typed(x, a, y):
    y[0] = x[0] * a


def test_numbers_have_cupy_s_types() -> None:
    x = np.zeros(3, np.float32)
    given = [1, 2**40, 0.5, np.float64(0.5), np.int8(1)]
    assert [parameters(typed, x, a, x)[1] for a in given] == ["int32", "int64", "float32", "float64", "int8"]
    assert parameters(typed, x, Active(0.5, np.zeros(())), x)[1] == "float32"


@jit
def promoted(x, i, u, f, d, out):
    out[0] = i / 2
    out[1] = (i + f) * 1e-9
    out[2] = i - u
    out[3] = i // -2
    out[4] = i % -2
    out[5] = d * 0.1
    third = 0.1
    out[6] = third
    out[7] = f * d
    out[8] = i**3
    out[9] = x[0] if i > 3 else 0.1


def test_operations_have_cupy_s_types() -> None:
    i, f = 7, np.float32(0.3)
    out = np.zeros(10)
    promoted(1, 1, (np.ones(1), i, np.uint32(9), f, np.float64(0.1), out))
    single = np.float32(0.1)
    expected = [3.5, float((np.float32(7) + f) * np.float32(1e-9)), 2.0**32 - 2, -4, -1, 0.1 * 0.1, float(single), float(f) * 0.1, 343, 1]
    assert out.tolist() == expected


@jit
def accumulated(x, out):
    s = 0.0
    for k in range(x.shape[0]):
        s += x[k]
    out[0] = s


def test_a_variable_has_the_type_of_its_first_value() -> None:
    """`s = 0.0` is a float32 in CuPy, whatever is added to it."""
    x, out = np.full(3, 0.1), np.zeros(1)
    accumulated(1, 1, (x, out))
    assert out[0] == float(np.float32(np.float64(np.float32(np.float64(np.float32(0.1)) + 0.1)) + 0.1)) != 0.1 + 0.1 + 0.1


@jit
def negative_modulo(a, b, out):
    for k in range(a.size):
        out[k, 0] = a[k] // b[k]
        out[k, 1] = a[k] % b[k]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_division_rounds_down_as_in_python(dtype: Any) -> None:
    a, b = np.array([7, -7, 7, -7, 6, 5], dtype), np.array([2, 2, -2, -2, 3, 1], dtype)
    out = np.zeros((6, 2), dtype)
    negative_modulo(1, 1, (a, b, out))
    assert (out == np.stack([a // b, a % b], 1)).all()


@jit
def all_compared(a, b, out):
    for i in range(a.size):
        for j in range(b.size):
            out[i, j, 0] = a[i] < b[j]
            out[i, j, 1] = a[i] <= b[j]
            out[i, j, 2] = a[i] > b[j]
            out[i, j, 3] = a[i] >= b[j]
            out[i, j, 4] = a[i] == b[j]
            out[i, j, 5] = a[i] != b[j]


def _in_range(dtype: Any) -> Any:
    if np.dtype(dtype).kind not in "iu":
        return np.array([0, 1] if dtype is np.bool_ else [-1.0, 0.0, 3.0, 2.0**20], dtype)
    info = np.iinfo(dtype)
    return np.array(sorted({int(info.min), max(-1, int(info.min)), 0, 3, int(info.max) // 2 + 1, int(info.max)}), dtype)


_COMPARED = [np.bool_, *(np.dtype(f"{kind}{size}").type for size in (1, 2, 4, 8) for kind in "iu"), np.float32, np.float64]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("one", _COMPARED)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_integers_are_compared_as_int64(one: Any, executor: str) -> None:
    """`cupyx.jit._cuda_typerules.guess_routine` of CuPy 14.2 has `qq` for every pair of integers, of two uint64 too."""
    for other in _COMPARED:
        a, b = _in_range(one), _in_range(other)
        out = np.zeros((a.size, b.size, 6), np.int32)
        with running(executor):
            all_compared(1, 1, (a, b, out))
        shared = np.int64 if a.dtype.kind not in "f" and b.dtype.kind not in "f" else max(one, other, key=_COMPARED.index)
        left, right = a.astype(shared)[:, None], b.astype(shared)[None, :]
        expected = [left < right, left <= right, left > right, left >= right, left == right, left != right]
        assert (out == np.stack(expected, 2)).all(), other


@jit
def below_zero(n, x, y):
    t = n[0] - 5
    if t < 0:
        y[0] = x[0] * x[0]
    else:
        y[0] = x[0]
    if n[0] > -1:
        y[1] = 2.0 * x[0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_difference_of_uint64_may_be_negative(executor: str) -> None:
    x, y = Duplicated(np.array([3.0])), Duplicated(np.zeros(2), np.ones(2))
    with running(executor):
        autodiff(below_zero, 1, 1, (np.array([3], np.uint64), x, y))
    assert (y.primal.tolist(), x.shadow.tolist()) == ([9.0, 6.0], [8.0])


@jit
def beyond_int64(n, y):
    if n[0] < 9223372036854775808:
        y[0] = 1.0


def test_a_constant_beyond_int64_is_refused_in_a_comparison() -> None:
    with pytest.raises(CompileError, match="int64"):
        beyond_int64(1, 1, (np.array([3], np.uint64), np.zeros(1)))


@jit
def extremes(x, y, out):
    i = jit.grid(1)
    out[i] = max(x[i], y[i], 0.0) + min(x[i], 2) + np.maximum(x[i], y[i]) + abs(y[i])


def test_of_equal_numbers_the_first_gets_the_gradient() -> None:
    x, y, out = Duplicated(np.array([1.0, 3.0])), Duplicated(np.array([1.0, 4.0])), Duplicated(np.zeros(2), np.ones(2))
    autodiff(extremes, 1, 2, (x, y, out))
    assert out.primal.tolist() == [4.0, 14.0]
    assert (x.shadow.tolist(), y.shadow.tolist()) == ([3.0, 0.0], [1.0, 3.0])


# --- calls ---------------------------------------------------------------------------------------------------------------------------


def test_in_a_tape() -> None:
    args = CASES["wave"].make()
    p, u, c = args
    tape = Tape()
    with tape:
        for _ in range(3):
            J.wave[2, 8](p, u, c)
            p, u = u, p
    w = RNG.standard_normal(13)
    tape.reverse({u: w})
    found = c.shadow.copy()
    h, slope = 1e-6, np.zeros(13)
    start = [a.copy() for a in (RNG.random(13), RNG.random(13), RNG.random(13))]
    for a, b in zip(args, start, strict=True):
        a.primal[...] = b
        a.shadow[...] = 0
    p, u = args[:2]
    with tape:
        for _ in range(3):
            J.wave[2, 8](p, u, c)
            p, u = u, p
    tape.reverse({u: w})
    found = c.shadow.copy()

    def loss(moved: Any) -> float:
        a, b = start[0], start[1]
        for _ in range(3):
            a, b = b, _wave(a, b, moved)
        return float(w @ b)

    for k in range(13):
        step = np.eye(13)[k] * h
        slope[k] = (loss(start[2] + step) - loss(start[2] - step)) / (2 * h)
    np.testing.assert_allclose(found, slope, atol=1e-6)


def test_second_derivatives_and_split_pairs() -> None:
    x, d = RNG.uniform(0.5, 1.5, (3, 4)), RNG.standard_normal((3, 4))
    pair, dots = Duplicated(x, np.zeros((3, 4))), Duplicated(d, np.zeros((3, 4)))
    out, outdots = Duplicated(np.zeros((3, 4)), np.ones((3, 4))), Duplicated(np.zeros((3, 4)), np.zeros((3, 4)))
    gpuad.hvp(J.image, 1, (4, 4), (pair, out), [dots, outdots])
    np.testing.assert_allclose(dots.shadow, (2 - np.sin(x)) * d)
    augmented, reverse = gpuad.autodiff_thunk(J.image, x=Duplicated, y=Duplicated)
    y, dx = np.zeros((3, 4)), np.zeros((3, 4))
    saved = augmented(1, (4, 4), (x, y))
    reverse(1, (4, 4), (Duplicated(x, dx), Duplicated(y, np.ones((3, 4)))), saved)
    np.testing.assert_allclose(dx, 2 * x + np.cos(x))


def test_one_kernel_for_each_combination_of_types() -> None:
    kernel = jit(jit_kernels.image.__wrapped__)
    for shape in ((3, 4), (5, 6)):
        kernel(1, (8, 8), (np.ones(shape), np.ones(shape)))
    assert len(kernel.specializations) == 1
    kernel(1, (8, 8), (np.ones((3, 4)), np.ones((4, 3)).T))
    assert len(kernel.specializations) == 2


def test_calls_that_are_refused() -> None:
    with pytest.raises(CompileError, match="`wave` takes 3 arguments, got 1"):
        J.wave(1, 1, (np.ones(3),))
    with pytest.raises(LaunchError, match="argument 1 is str 'a'; a jit function takes arrays and numbers"):
        J.wave(1, 1, ("a",))
    with pytest.raises(LaunchError, match="`square` is a device function"):
        J.square(1, 1, (1.0,))
    with pytest.raises(LaunchError, match="write kernel"):
        J.wave[3]
    with pytest.raises(RuntimeError, match=r"jit.grid is for kernels"):
        jit.grid(1)
    with pytest.raises(RuntimeError, match=r"jit.threadIdx.x is for kernels"):
        jit.threadIdx.x  # noqa: B018
    with pytest.raises(UnsupportedError, match="mode='numpy' is not supported"):
        jit.rawkernel(mode="numpy")


@jit
def bools(x: Any, b: Any, c: Any) -> None:
    i = jit.threadIdx.x
    x[0, i] = min(b[i], c[i])
    x[1, i] = max(b[i], c[i])
    x[2, i] = np.square(b[i])
    x[3, i] = np.minimum(b[i], True)
    x[4, i] = max(i > 1, x[5, i] > 0)
    x[5, i] = min(True, b[i], c[i])


def test_extremes_and_squares_of_bools() -> None:
    """As CuPy has them: a bool of bools, and int8 of a square."""
    x, b, c = np.zeros((6, 4)), np.array([1, 0, 1, 0], bool), np.array([1, 1, 0, 0], bool)
    bools(1, 4, (x, b, c))
    np.testing.assert_array_equal(x, [b & c, b | c, b, b, [0, 0, 1, 1], b & c])


def test_errors_are_at_the_python_line() -> None:
    with pytest.raises(CompileError, match="the name 'missing' has no value here") as caught:
        J.nothing_there(1, 1, (np.ones((2, 2)),))
    error = caught.value
    assert Path(str(error.file)).name == "jit_kernels.py"
    assert Path(str(error.file)).read_text().splitlines()[error.line - 1][error.column - 1 :].startswith("missing")


# --- CuPy's own objects --------------------------------------------------------------------------------------------------------------


class _JitRawKernel:
    """As what CuPy's decorator makes: what it offers to readers."""

    def __init__(self, func: Any, device: bool = False) -> None:
        self._func, self._mode, self._device = func, "cuda", device


def test_a_kernel_of_cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names are found in the module `cupyx.jit` itself, and device functions are CuPy's."""
    module = ModuleType("cupyx.jit")
    for name in ("grid", "atomic_add"):
        setattr(module, name, type(name, (), {"__module__": "cupyx.jit._builtin_funcs"})())
    monkeypatch.setitem(sys.modules, "cupyx.jit", module)
    file = tmp_path / "user.py"
    file.write_text("def cube(x):\n    return x * x * x\n\ndef total(x, y):\n    add(y, 0, cube(x[jit.grid(1)]))\n")
    names: dict[str, Any] = {"jit": module, "add": module.atomic_add}
    exec(compile(file.read_text(), str(file), "exec"), names)
    names["cube"] = _JitRawKernel(names["cube"], device=True)
    x, y = uniform(4), Duplicated(np.zeros(1), np.ones(1))
    autodiff(_JitRawKernel(names["total"]), 1, 4, (x, y))
    np.testing.assert_allclose(x.shadow, 3 * x.primal**2)
    assert gpuad.kernel(_JitRawKernel(names["total"])).name == "total"
    assert jit.grid == Builtin("grid")
