"""`__constant__` and `__device__` variables: the user's module memory, read, written, changed between launches, and with shadows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, api, pipeline, testing
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import LaunchError, ShadowError, TapeError, UnsupportedError
from gpuad.runtime import nvrtc

TEXT = """
namespace filter { __constant__ double w[3]; }
__constant__ float scale = 0.5f;
__device__ double table[2][2] = {{1, 2}, {3}};
__device__ int count;
__device__ double tap(int k) { return filter::w[k] * scale; }
extern "C" __global__ void smooth(double* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
    for (int k = -1; k <= 1; k++) if (i + k >= 0 && i + k < n) sum += tap(k + 1) * x[i + k];
    y[i] = sum * sum + table[1][0];
}
extern "C" __global__ void tabulate(double s) { int i = threadIdx.x; if (i < 4) table[i / 2][i % 2] = s * i; }
extern "C" __global__ void counted(double* x, int n) { int i = threadIdx.x; if (i < n) { x[i] *= x[i]; atomicAdd(&count, 1); } }
extern "C" __global__ void keep(double* x) { table[0][threadIdx.x & 1] = x[threadIdx.x]; x[threadIdx.x] *= 2; }
"""
W = (0.25, -1.5, 2.0)


def _smooth() -> Any:
    kernel = gpuad.kernel(TEXT, "smooth")
    kernel.get_global("w")[:] = W
    return kernel


def _x(n: int = 20) -> Any:
    return np.random.default_rng(0).normal(size=n)


def _smoothed(x: Any, w: Any = W, scale: float = 0.5, added: float = 3) -> tuple[Any, Any]:
    """The result, and the matrix of d(result)/dx."""
    matrix = scale * sum(weight * np.eye(len(x), k=k) for k, weight in zip((-1, 0, 1), w, strict=True))
    return (matrix @ x) ** 2 + added, 2 * (matrix @ x)[:, None] * matrix


def _gradient(kernel: Any, x: Any, y: Any, dy: Any) -> Any:
    dx = np.zeros_like(x)
    gpuad.autodiff(kernel, 1, 32, (Duplicated(y, dy.copy()), Duplicated(x, dx), len(x)))
    return dx


def test_constants_are_read(executor: Any) -> None:
    x, y, dy = _x(), np.zeros(20), _x()[::-1].copy()
    result, jacobian = _smoothed(x)
    with pipeline.executor_for_tests(executor):
        dx = _gradient(_smooth(), x, y, dy)
        testing.check_gradient(_smooth(), (_x(), _x(), 20), grid=2, block=16)
    np.testing.assert_allclose(y, result)
    np.testing.assert_allclose(dx, dy @ jacobian, rtol=1e-6)


def test_what_get_global_gives() -> None:
    kernel = _smooth()
    assert [p.name for p in kernel.parameters] == ["y", "x", "n"]
    arrays = [kernel.get_global(name) for name in ("filter::w", "w", "scale", "table")]
    assert [(a.shape, a.dtype) for a in arrays] == [((3,), np.float64), ((3,), np.float64), ((), np.float32), ((2, 2), np.float64)]
    assert arrays[0] is arrays[1]
    assert arrays[2] == 0.5
    assert arrays[3].tolist() == [[1, 2], [3, 0]]
    with pytest.raises(LaunchError, match=r"`smooth` reaches no variable `count`; of its module it reaches `filter::w`, `scale`, `table`"):
        kernel.get_global("count")


def test_changes_count_at_the_next_launch() -> None:
    kernel, x, y = _smooth(), _x(), np.zeros(20)
    for scale in (0.5, 2.0):
        kernel.get_global("scale")[...] = scale
        dx = _gradient(kernel, x, y, np.ones(20))
        np.testing.assert_allclose(y, _smoothed(x, scale=scale)[0])
        np.testing.assert_allclose(dx, np.ones(20) @ _smoothed(x, scale=scale)[1])


def test_kernels_of_one_module_share_its_memory() -> None:
    kernel, x, y = _smooth(), _x(), np.zeros(20)
    other = gpuad.kernel(TEXT, "tabulate")
    gpuad.kernel(kernel, "tabulate")(1, 4, (5.0,))
    other(1, 4, (7.0,))  # of a module of its own
    kernel(1, 32, (y, x, 20))
    np.testing.assert_allclose(y, _smoothed(x, added=10)[0])
    assert kernel.get_global("table").tolist() == [[0, 5], [10, 15]]


def test_memory_without_a_value_is_not_read() -> None:
    x = _x()
    with pytest.raises(LaunchError, match=r"`smooth` reads `filter::w`, a variable of its module that has no value yet: set it through"):
        gpuad.kernel(TEXT, "smooth")(1, 32, (x.copy(), x, 20))


def test_integers_are_counted_once(executor: Any) -> None:
    kernel, x, dx = gpuad.kernel(TEXT, "counted"), _x(), np.ones(20)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, 32, (Duplicated(x, dx), 20))
        assert kernel.get_global("count") == 20
        testing.check_gradient(kernel, (_x(), 20), grid=1, block=32)
    assert kernel.get_global("count") == 20  # check_gradient puts it back
    np.testing.assert_allclose(dx, 2 * _x())


# --- with and without shadows ----------------------------------------------------------------------------------------------------------


def test_active_values_need_a_shadow() -> None:
    kernel, x = gpuad.kernel(TEXT, "keep"), _x(2)
    with pytest.raises(ShadowError) as caught:
        gpuad.autodiff(kernel, 1, 2, (Duplicated(x, np.ones(2)),))
    message = "the variable `table` of the module of kernel `keep` gets values that depend on `x`, but it has no shadow"
    assert message in str(caught.value)
    assert "kernel.with_shadow('table', shadow)" in str(caught.value)
    augmented, _ = gpuad.autodiff_thunk(kernel, x=Duplicated)
    with pytest.raises(ShadowError, match=re.escape(message)):
        augmented(1, 2, (x,))
    np.testing.assert_array_equal(x, _x(2))
    with pytest.raises(ShadowError, match=re.escape(message)), gpuad.Tape():
        kernel[1, 2](Duplicated(x, np.ones(2)))


def test_a_shadow_for_what_is_written(executor: Any) -> None:
    shadow, x, dx = np.array([[3.0, 4.0], [5.0, 6.0]]), _x(2), np.ones(2)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(TEXT, "keep").with_shadow("table", shadow), 1, 2, (Duplicated(x, dx),))
    assert dx.tolist() == [5, 6]
    assert shadow.tolist() == [[0, 0], [5, 6]]


def test_a_shadow_for_constants(executor: Any) -> None:
    """The gradient with respect to the filter, by central differences of the primal alone."""
    kernel, x, y, dw = _smooth(), _x(), np.zeros(20), np.zeros(3)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel.with_shadow("w", dw), 1, 32, (Duplicated(y, np.ones(20)), x, 20))
        testing.check_gradient(kernel.with_shadow("w", np.zeros(3)), (Duplicated(y, y), x, 20), grid=1, block=32)
    for k in range(3):
        step = 1e-6 * np.eye(3)[k]
        difference = (_smoothed(x, W + step)[0].sum() - _smoothed(x, W - step)[0].sum()) / 2e-6
        assert abs(dw[k] - difference) < 1e-6 * abs(difference)
    kernel(1, 32, (y, x, 20))  # the one without a shadow still has none
    assert api.kernel(kernel).shadows == {}


def test_forward_mode_and_second_derivatives() -> None:
    kernel, x, y, dw, dy = _smooth(), _x(), np.zeros(20), np.array([1.0, 0, 0]), np.zeros(20)
    gpuad.autodiff(kernel.with_shadow("w", dw), 1, 32, (Duplicated(y, dy), x, 20), mode=gpuad.Forward)
    step = 1e-6 * np.eye(3)[0]
    np.testing.assert_allclose(dy, (_smoothed(x, W + step)[0] - _smoothed(x, W - step)[0]) / 2e-6, rtol=1e-6, atol=1e-7)
    dx, x_dot, dx_dot, seed = np.zeros(20), np.eye(20)[4].copy(), np.zeros(20), np.ones(20)
    directions = (Duplicated(np.zeros(20), np.zeros(20)), Duplicated(x_dot, dx_dot), None)
    gpuad.hvp(kernel, 1, 32, (Duplicated(y, seed), Duplicated(x, dx), 20), directions)
    matrix = _smoothed(x)[1] / (2 * np.sqrt(np.abs(_smoothed(x)[0] - 3)))[:, None]
    np.testing.assert_allclose(dx_dot, 2 * (matrix.T @ matrix)[4], rtol=1e-6, atol=1e-9)


def test_split_pair_keeps_what_may_change() -> None:
    kernel, x, y, dx = _smooth(), _x(), np.zeros(20), np.zeros(20)
    augmented, reverse = gpuad.autodiff_thunk(kernel, y=Duplicated, x=Duplicated)
    saved = augmented(1, 32, (y, x, 20))
    kernel.get_global("w")[:] = 100
    reverse(1, 32, (Duplicated(y, np.ones(20)), Duplicated(x, dx), 20), saved)
    np.testing.assert_allclose(dx, np.ones(20) @ _smoothed(x)[1])


def test_vectors(executor: Any) -> None:
    text = """
    __constant__ float4 c[3];
    __device__ double2 d;
    extern "C" __global__ void k(double* x) { int i = threadIdx.x; x[i] = x[i] * x[i] * c[i].y + d.x * c[1].w; if (i == 0) d.y = 3; }
    """
    kernel, x, dx, dc = gpuad.kernel(text, "k"), np.array([1.0, 2, 3]), np.ones(3), np.zeros((3, 4), np.float32)
    kernel.get_global("c")[:] = np.arange(12).reshape(3, 4)
    kernel.get_global("d")[:] = 5
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel.with_shadow("c", dc), 1, 3, (Duplicated(x, dx),))
    assert (x.tolist(), dx.tolist(), kernel.get_global("d").tolist()) == ([36, 55, 116], [2, 20, 54], [5, 3])
    assert dc.tolist() == [[0, 1, 0, 0], [0, 4, 0, 15], [0, 9, 0, 0]]


# --- on a tape -------------------------------------------------------------------------------------------------------------------------


def _two_steps(check: str | None, announced: bool, view: bool = False) -> tuple[Any, Any]:
    """y = smooth(x) with one filter, z = smooth(y) with another, written through a view from before the tape or not; dx and its value."""
    kernel, w = _smooth(), np.array(W)
    x, y, z = (Duplicated(_x()), *(Duplicated(np.zeros(20)) for _ in range(2)))
    tape, memory = gpuad.Tape(check=check), kernel.get_global("w")
    target = memory[:] if view else memory
    with tape:
        kernel[1, 32](y, x, 20)
        if announced:
            tape.overwrites(memory)
        target[:] = -w
        kernel[2, 16](z, y, 20)
    tape.reverse({z: np.ones(20)})
    middle, first = _smoothed(_x())
    last, second = _smoothed(middle, -w)
    np.testing.assert_allclose(z.primal, last)
    return x.shadow, np.ones(20) @ second @ first


def test_constants_that_change_within_a_recording() -> None:
    for check in (None, "exact"):
        got, wanted = _two_steps(check, announced=True)
        np.testing.assert_allclose(got, wanted)


def test_a_change_behind_the_tape_is_noticed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        _two_steps("exact", announced=False)
    with pytest.raises(TapeError, match="w"):
        _two_steps("exact", announced=False, view=True)


def test_kernels_that_overwrite_module_memory_are_versioned() -> None:
    """tabulate changes the table between two launches that read it; the table is inactive, but its values are factors."""
    text = TEXT.replace("sum * sum + table[1][0]", "sum * table[1][0]")
    kernel = gpuad.kernel(text, "smooth")
    kernel.get_global("w")[:] = W
    tabulate = gpuad.kernel(kernel, "tabulate")
    x, y, z, tape = Duplicated(_x()), Duplicated(np.zeros(20)), Duplicated(np.zeros(20)), gpuad.Tape()
    for _ in range(2):
        x.shadow.fill(0)
        kernel.get_global("table")[...] = [[1, 2], [3, 0]]
        with tape:
            kernel[1, 32](y, x, 20)
            tabulate[1, 4](5.0)
            kernel[1, 32](z, y, 20)
        tape.reverse({z: np.ones(20)})
        matrix = 0.5 * sum(weight * np.eye(20, k=k) for k, weight in zip((-1, 0, 1), W, strict=True))
        np.testing.assert_allclose(x.shadow, np.ones(20) @ (10 * matrix) @ (3 * matrix))


def test_a_constant_with_a_shadow_on_a_tape() -> None:
    plain, x, dw = _smooth(), _x(), np.zeros(3)
    kernel = plain.with_shadow("w", dw)
    y, z, tape = Duplicated(np.zeros(20)), Duplicated(np.zeros(20)), gpuad.Tape()
    with tape:
        kernel[1, 32](y, x, 20)
        kernel[1, 32](z, y, 20)
    tape.reverse({z: np.ones(20)})
    for k in range(3):
        step = 1e-6 * np.eye(3)[k]
        ahead, behind = (_smoothed(_smoothed(x, w)[0], w)[0].sum() for w in (W + step, W - step))
        assert abs(dw[k] - (ahead - behind) / 2e-6) < 1e-5 * abs(dw[k])
    with pytest.raises(ShadowError, match="`w` of `smooth` is read bare, but its memory has a shadow"), gpuad.Tape():
        kernel[1, 32](y, x, 20)
        plain[1, 32](z, y, 20)


# --- structs, complex numbers ------------------------------------------------------------------------------------------------------------

RECORDS = """
struct Cell { float3 origin; int wide; double edge[2]; };
struct Physics { Cell cell; float stiff; bool open; };
struct Spring { double rest, stiff; };
__constant__ Physics physics;
__constant__ Spring springs[3];
__device__ Spring longest;
__constant__ complex<double> turn;
__device__ double inside(double x) { return (x - physics.cell.origin.y) / physics.cell.edge[1]; }
extern "C" __global__ void pull(double* f, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || physics.open) return;
    Spring s = springs[i % physics.cell.wide];
    f[i] += physics.stiff * s.stiff * inside(x[i]) * (x[i] - s.rest);
    if (i == n - 1) longest = s;
}
extern "C" __global__ void stretch(double* x) { longest.rest += x[threadIdx.x] * x[threadIdx.x] * longest.stiff; }
extern "C" __global__ void rotate(complex<double>* z) { z[threadIdx.x] *= turn * turn; }
"""


def _pull() -> Any:
    kernel = gpuad.kernel("#include <cupy/complex.cuh>\n" + RECORDS, "pull")
    physics = kernel.get_global("physics")
    physics["cell"]["origin"] = 0.5, -1.5, 2
    physics["cell"]["wide"], physics["stiff"] = 3, 0.25
    physics["cell"]["edge"] = 2, 4
    kernel.get_global("springs")[...] = [(1, 2), (3, 0.5), (-1, 1.5)]
    return kernel


def _pulled(x: Any, rest: Any, stiff: Any) -> Any:
    k = np.arange(len(x)) % 3
    return 0.25 * stiff[k] * (x + 1.5) / 4 * (x - rest[k])


def test_structs_are_read(executor: Any) -> None:
    kernel, x, f, df = _pull(), _x(), np.zeros(20), np.ones(20)
    springs = kernel.get_global("springs")
    assert (kernel.get_global("physics").shape, springs.shape, springs.dtype.names) == ((), (3,), ("rest", "stiff"))
    dsprings, dphysics, dlongest, dx = (np.zeros_like(a) for a in (springs, kernel.get_global("physics"), kernel.get_global("longest"), x))
    active = kernel.with_shadow("springs", dsprings).with_shadow("physics", dphysics).with_shadow("longest", dlongest)
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(kernel, (f.copy(), x, 20), grid=2, block=16)
        dlongest["rest"] = 7
        gpuad.autodiff(active, 2, 16, (Duplicated(f, df), Duplicated(x, dx), 20))
    rest, stiff, k = springs["rest"], springs["stiff"], np.arange(20) % 3
    np.testing.assert_allclose(f, _pulled(x, rest, stiff))
    np.testing.assert_allclose(dx, 0.25 * stiff[k] / 4 * (2 * x + 1.5 - rest[k]))
    own = [np.where(k == j, 0.25 * (x + 1.5) / 4, 0) for j in range(3)]
    np.testing.assert_allclose(dsprings["stiff"], [(o * (x - rest[j])).sum() for j, o in enumerate(own)])
    np.testing.assert_allclose(dsprings["rest"] - [0, 7, 0], [-(o * stiff[j]).sum() for j, o in enumerate(own)])
    np.testing.assert_allclose(dphysics["stiff"], f.sum() / 0.25, rtol=1e-6)
    np.testing.assert_allclose(dphysics["cell"]["edge"], [0, -f.sum() / 4])
    np.testing.assert_allclose(dphysics["cell"]["origin"], [0, (-0.25 * stiff[k] / 4 * (x - rest[k])).sum(), 0], rtol=1e-6)
    assert not dlongest["rest"]  # it was overwritten by the spring of the last


def test_structs_are_written(executor: Any) -> None:
    kernel, x, dx = gpuad.kernel(_pull(), "stretch"), _x(1), np.zeros(1)
    longest = kernel.get_global("longest")
    longest[...] = 1, 3
    dlongest = np.ones_like(longest)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel.with_shadow("longest", dlongest), 1, 1, (Duplicated(x, dx),))
    assert np.allclose(longest.item(), (1 + 3 * x[0] ** 2, 3))
    assert np.allclose(dx, 6 * x)
    assert np.allclose(dlongest.item(), (1, 1 + x[0] ** 2))


def test_complex_number_of_the_module() -> None:
    kernel, z, dz = gpuad.kernel(_pull(), "rotate"), np.array([1 + 2j, -0.5j]), np.array([1 - 1j, 2 + 0j])
    kernel.get_global("turn")[...] = 0.6 + 0.8j
    testing.check_gradient(kernel, (z.copy(),), grid=1, block=2)
    dturn, seed, before = np.zeros((), complex), dz.copy(), z.copy()
    gpuad.autodiff(kernel.with_shadow("turn", dturn), 1, 2, (Duplicated(z, dz),))
    assert np.allclose(dz, seed * np.conj(0.6 + 0.8j) ** 2)
    assert np.allclose(dturn, (seed * np.conj(2 * (0.6 + 0.8j) * before)).sum())


# --- texts and refusals ------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_generated_text() -> None:
    adjoint = _smooth().adjoint(x=Duplicated, y=Duplicated)
    assert "// w, scale, table: addresses of the variables of that name in the module of smooth." in adjoint.source
    assert "int n, const double* w, const float* scale," in adjoint.source
    nvrtc.compile_cuda(adjoint.source)
    nvrtc.compile_cuda(cuda_source([api.kernel(_smooth()).primal()]))
    assert "double* dw" in _smooth().adjoint(y=Duplicated, w=Duplicated).source
    args = (np.zeros(20), _x(), 20)
    assert "double* dw" in _smooth().adjoint(grid=1, block=32, args=args, y=Duplicated, w=Duplicated).source


REFUSED = {
    "type": (
        "struct P { float* a; }; __device__ P p; __global__ void k(float* x) { x[0] = ^p.a[0]; }",
        "the variable p is of type struct P; variables of the module have to be numbers, vectors, complex numbers, structs without "
        "pointers, or arrays of them",
    ),
    "pointer": (
        "__device__ float* p; __global__ void k(float* x) { x[0] = ^p[0]; }",
        "the variable p is of type float32*; variables of the module have to be numbers, vectors, complex numbers, structs without "
        "pointers, or arrays of them",
    ),
    "struct with a value": (
        "struct P { float a; }; __constant__ P p = {1}; __global__ void k(float* x) { x[0] = ^p.a; }",
        "structs of the module with a value are not supported; set them through kernel.get_global",
    ),
    "vector with a value": (
        "__device__ float2 p = {1, 2}; __global__ void k(float* x) { x[0] = ^p.x; }",
        "vectors of the module with a value are not supported; set them through kernel.get_global",
    ),
    "name": (
        "__constant__ float ^x[2]; __device__ float f() { return x[0]; } __global__ void k(float* x) { x[0] = f(); }",
        "the variable x of the module has the name of a parameter or of another variable that the kernel k uses; rename one of them",
    ),
    "two of one name": (
        "namespace a { __constant__ float w; } namespace b { __constant__ float ^w; } __global__ void k(float* x) { x[0] = a::w + b::w; }",
        "the variable b::w of the module has the name of a parameter or of another variable that the kernel k uses; rename one of them",
    ),
    "unknown length": ("extern __device__ float ^w[]; __global__ void k(float* x) { x[0] = w[1]; }", "an array needs a constant length"),
    "written constant": ("__constant__ float w[2]; __global__ void k(float* x) { ^w[1] = x[0]; }", "'w' is const, but written"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    source, message = REFUSED[name]
    before, _, after = source.partition("^")
    with pytest.raises(UnsupportedError) as caught:
        gpuad.kernel(before + after, "k")
    assert (caught.value.message, caught.value.column) == (message, len(before) + 1)


# --- CuPy ------------------------------------------------------------------------------------------------------------------------------


def test_a_modules_own_memory_is_used(cupy: Any) -> None:
    text = TEXT.replace("namespace filter { __constant__ double w[3]; }", "__constant__ double w[3];").replace("filter::", "")
    module = cupy.RawModule(code=text)
    cupy.ndarray((3,), np.float64, module.get_global("w"))[:] = cupy.asarray(W)
    kernel = gpuad.kernel(module, "smooth")
    x, y, dy, dx = cupy.asarray(_x()), cupy.zeros(20), cupy.ones(20), cupy.zeros(20)
    gpuad.autodiff(kernel, 1, 32, (Duplicated(y, dy), Duplicated(x, dx), 20))
    result, jacobian = _smoothed(_x())
    np.testing.assert_allclose(y.get(), result)
    np.testing.assert_allclose(dx.get(), np.ones(20) @ jacobian)
    gpuad.kernel(module, "tabulate")(1, 4, (5.0,))
    kernel(1, 32, (y, x, 20))
    np.testing.assert_allclose(y.get(), _smoothed(_x(), added=10)[0])
    testing.check_gradient(kernel, (y, x, 20), grid=1, block=32, directions=1)
    with pytest.raises(LaunchError, match="a launch has all arrays, shadows too, on one device"):
        kernel(1, 32, (np.zeros(20), _x(), 20))


def test_structs_of_a_module_are_its_bytes(cupy: Any) -> None:
    """CuPy has no dtype for structs: one of several types of numbers is its bytes, as where it is passed."""
    host, module = _pull(), cupy.RawModule(code="#include <cupy/complex.cuh>\n" + RECORDS)
    kernel = gpuad.kernel(module, "pull")
    assert [kernel.get_global(name).shape for name in ("physics", "springs", "longest")] == [(40,), (3, 2), (2,)]
    kernel.get_global("physics")[...] = cupy.asarray(np.frombuffer(host.get_global("physics").tobytes(), np.uint8))
    kernel.get_global("springs")[...] = cupy.asarray(np.frombuffer(host.get_global("springs").tobytes()).reshape(3, 2))
    f, x, df, dx = cupy.zeros(20), cupy.asarray(_x()), cupy.ones(20), cupy.zeros(20)
    active = kernel.with_shadow("springs", cupy.zeros((3, 2))).with_shadow("longest", cupy.zeros(2))
    gpuad.autodiff(active, 1, 32, (Duplicated(f, df), Duplicated(x, dx), 20))
    springs = host.get_global("springs")
    np.testing.assert_allclose(f.get(), _pulled(_x(), springs["rest"], springs["stiff"]))
    k = np.arange(20) % 3
    np.testing.assert_allclose(dx.get(), 0.25 * springs["stiff"][k] / 4 * (2 * _x() + 1.5 - springs["rest"][k]))


def test_text_on_the_device(cupy: Any) -> None:
    kernel, x = gpuad.kernel(TEXT, "counted"), cupy.asarray(_x())
    kernel(1, 32, (x, 20))
    assert int(kernel.get_global("count")) == 20


def test_a_raw_kernel_does_not_give_its_memory_away(cupy: Any) -> None:
    kernel, x = gpuad.kernel(cupy.RawKernel(TEXT, "counted")), cupy.asarray(_x())
    with pytest.raises(LaunchError, match="`counted` reaches `count`, a variable of its module, which a RawKernel does not give away"):
        kernel(1, 32, (x, 20))


def test_a_stored_program_brings_the_memory_as_arrays(tmp_path: Path) -> None:
    kernel, x, y, z = _smooth(), Duplicated(_x()), Duplicated(np.zeros(20)), Duplicated(np.zeros(20))
    tape, w = gpuad.Tape(), kernel.get_global("w")
    with tape:
        kernel[1, 32](y, x, 20)
        tape.overwrites(w)
        w *= -1
        kernel[1, 32](z, y, 20)
    tape.save(tmp_path, {"x": x, "y": y, "z": z})
    tape.reverse({z: np.ones(20)})
    found = importlib.util.spec_from_file_location("program", tmp_path / "program.py")
    assert found is not None and found.loader is not None
    program = importlib.util.module_from_spec(found)
    found.loader.exec_module(program)
    shadows = {"x": np.zeros(20), "y": np.zeros(20), "z": np.ones(20)}
    memory = {name: kernel.get_global(name) for name in ("w", "scale", "table")}
    program.reverse({"x": x.primal, "y": y.primal, "z": z.primal, **memory}, shadows)
    np.testing.assert_array_equal(shadows["x"], x.shadow)
