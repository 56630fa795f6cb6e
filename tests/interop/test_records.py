"""Records by value and variables of the module through the bridges: taken apart by the framework's own operations, right or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad

N = 20
HEAD = "#include <cupy/complex.cuh>\n#include <cuda_fp16.h>\n"
GUARD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { "


def kernel(parameters: str, statement: str, before: str = "") -> Any:
    return gpuad.kernel(f'{HEAD}{before}\nextern "C" __global__ void k({parameters}, int n) {{ {GUARD}{statement} }} }}', "k")


TURN = kernel(
    "const double2* p, double2* q, double2 c", "q[i] = make_double2(c.x * p[i].x - c.y * p[i].y, c.y * p[i].x + c.x * p[i].y * c.x);"
)
PHASE = kernel("const complex<double>* z, complex<double>* y, complex<double> a", "y[i] = a * a * z[i] + conj(a);")
SPRING = kernel(
    "double* x, Spring s, double dt", "x[i] -= dt * s.stiffness * (s.power == 3 ? x[i] * x[i] * x[i] : x[i]) + s.rest;",
    "struct Spring { double stiffness; int power; double rest; };",
)  # fmt: skip
FILTER = kernel(
    "const double* x, double* y",
    "y[i] = w[0] * x[i] + w[1] * x[(i + 1) % n] + scale * w[2];",
    "__constant__ double w[3]; __device__ double scale;",
)
COUNT = kernel("double* x, const double* y", "if (y[i] > 0) atomicAdd(&total, x[i] * y[i]); x[i] *= 2;", "__device__ double total;")
SPRINGS = np.dtype([("stiffness", "f8"), ("power", "i4"), ("rest", "f8")], align=True)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


class Torch:
    """PyTorch as the tests need it."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")
        import gpuad.torch

        self.function, self.xp = gpuad.torch.function, self.torch

    def array(self, x: Any) -> Any:
        return self.torch.as_tensor(x)

    def stack(self, parts: Any) -> Any:
        return self.torch.stack(parts, -1)

    def roll(self, x: Any) -> Any:
        return x.roll(-1)

    def gradient(self, loss: Any, *args: Any) -> Any:
        free = [self.torch.as_tensor(x).clone().requires_grad_() for x in args]
        return [g.resolve_conj() for g in self.torch.autograd.grad(loss(*free), free)]

    def tangent(self, f: Any, args: Any, ways: Any) -> Any:
        return self.torch.func.jvp(f, tuple(map(self.array, args)), tuple(map(self.array, ways)))[1]


class Jax:
    """JAX as the tests need it."""

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")
        import gpuad.jax

        self.function, self.xp = gpuad.jax.function, self.jax.numpy

    def array(self, x: Any) -> Any:
        return self.xp.asarray(x)

    def stack(self, parts: Any) -> Any:
        return self.xp.stack(parts, -1)

    def roll(self, x: Any) -> Any:
        return self.xp.roll(x, -1)

    def gradient(self, loss: Any, *args: Any) -> Any:
        return self.jax.jit(self.jax.grad(loss, argnums=tuple(range(len(args)))))(*map(self.array, args))

    def tangent(self, f: Any, args: Any, ways: Any) -> Any:
        return self.jax.jvp(f, tuple(map(self.array, args)), tuple(map(self.array, ways)))[1]


@pytest.fixture(params=[Torch, Jax])
def own(request: pytest.FixtureRequest) -> Any:
    """One of the two frameworks, in double precision."""
    made = request.param()
    if isinstance(made, Jax):
        request.getfixturevalue("doubles")
    return made


@pytest.fixture
def doubles() -> Any:
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def made(own: Any, k: Any, **more: Any) -> Any:
    return own.function(k, grid=1, block=32, **more)


def alike(own: Any, ours: Any, theirs: Any, *args: Any) -> None:
    """Gradients and tangents of both."""
    total = lambda f: lambda *a: (abs(f(*a)) ** 2).sum()  # noqa: E731
    for a, b in zip(own.gradient(total(ours), *args), own.gradient(total(theirs), *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    ways = [0.5 * np.asarray(x) + 0.1 for x in args]
    np.testing.assert_allclose(own.tangent(ours, args, ways), own.tangent(theirs, args, ways), rtol=1e-10)


def test_a_vector(own: Any) -> None:
    f = made(own, TURN, outputs={"q": "p"})
    theirs = lambda p, c: own.stack([c[0] * p[:, 0] - c[1] * p[:, 1], c[1] * p[:, 0] + c[0] * p[:, 1] * c[0]])  # noqa: E731
    p, c = numbers(N, 2), numbers(2, seed=1)
    alike(own, lambda p, c: f(p, c, N), theirs, p, c)
    alike(own, lambda p, x: f(p, (x, 0.5), N), lambda p, x: theirs(p, own.xp.stack([x, own.array(np.array(0.5))])), p, c[0])
    np.testing.assert_allclose(f(own.array(p), (0.8, 0.6), N), theirs(own.array(p), (0.8, 0.6)))


def test_a_complex_number(own: Any) -> None:
    f = made(own, PHASE, outputs={"y": "z"})
    z, a = numbers(N) + 1j * numbers(N, seed=1), np.array(0.7 - 0.4j)
    alike(own, lambda z, a: f(z, a, N), lambda z, a: a * a * z + a.conj(), z, a)
    np.testing.assert_allclose(f(own.array(z), 0.5j, N), -0.25 * z - 0.5j)


def test_a_struct(own: Any) -> None:
    f = made(own, SPRING)
    x, stiffness, rest = numbers(N), np.array(0.3), np.array(0.2)
    alike(own, lambda x, s, r: f(x, (s, 3, r), 0.1, N), lambda x, s, r: x - (0.1 * s * x**3 + r), x, stiffness, rest)
    s = np.array((0.3, 3, 0.2), SPRINGS)
    np.testing.assert_allclose(f(own.array(x), s, 0.1, N), x - (0.03 * x**3 + 0.2))


def test_variables_of_the_module(own: Any) -> None:
    f = made(own, FILTER, outputs={"y": "x"})
    x, w, scale = numbers(N), numbers(3, seed=1), np.array(1.5)
    alike(
        own, lambda x, w, s: f(x, N, w=w, scale=s), lambda x, w, s: w[0] * x + w[1] * own.roll(x) + s * w[2], x, w, scale
    )  # fmt: skip
    g = made(own, COUNT, outputs={"total": (), "x": None})
    y = numbers(N, seed=2)
    alike(own, lambda x, y: g(x, y, N)[0], lambda x, y: (x * y * (y > 0)).sum(), x, y)
    before = made(own, COUNT)
    alike(own, lambda x, y, t: before(x, y, N, total=t)[1], lambda x, y, t: t + (x * y * (y > 0)).sum(), x, y, scale)


def test_second_derivatives(own: Any) -> None:
    more = {"twice": True} if isinstance(own, Torch) else {}
    f = made(own, TURN, outputs={"q": "p"}, **more)
    theirs = lambda p, c: own.stack([c[0] * p[:, 0] - c[1] * p[:, 1], c[1] * p[:, 0] + c[0] * p[:, 1] * c[0]])  # noqa: E731
    hessian = own.torch.func.hessian if isinstance(own, Torch) else own.jax.hessian
    p, c = own.array(numbers(4, 2)), own.array(numbers(2, seed=1))
    ours, expected = (hessian(lambda c, g=g: (g(p, c) ** 2).sum())(c) for g in (lambda p, c: f(p, c, 4), theirs))
    np.testing.assert_allclose(ours, expected, rtol=1e-10)
    f = made(own, FILTER, outputs={"y": "x"}, **more)
    x, w, s = own.array(numbers(4)), own.array(numbers(3, seed=1)), own.array(np.array(1.5))
    theirs = lambda w: w[0] * x + w[1] * own.roll(x) + s * w[2]  # noqa: E731
    ours, expected = (hessian(lambda w, g=g: (g(w) ** 3).sum())(w) for g in (lambda w: f(x, 4, w=w, scale=s), theirs))
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


def test_refusals(own: Any) -> None:
    x = own.array(numbers(N))
    refused = [
        (kernel("double* x, P* p", "x[i] += p[i].a;", "struct P { double a; int b; };"), "an array for each field"),
        (kernel("float* x, __half2 h", "x[i] *= __half2float(h.x);"), "a record of halves by value"),
        (kernel("double* x, double2 c, const double* y", "x[i] *= c.x; if (y != nullptr) x[i] += y[i];"), "which may be null"),
    ]
    for k, word in refused:
        with pytest.raises(gpuad.LaunchError, match=word):
            made(own, k)
    f, g = made(own, FILTER, outputs={"y": "x"}), made(own, TURN, outputs={"q": "p"})
    p = own.array(numbers(N, 2))
    for call, word in (
        (lambda: f(x, N), r"takes 2 arguments \(x, n, w=, scale=; variables of its module by name\), got 2\."),
        (lambda: f(x, N, w=x, scale=x[0]), r"`w`, a variable of its module, is an array of shape \(3,\); got \(20,\)"),
        (lambda: g(p, x, N), r"`c` got an array of shape \(20,\); it takes one of shape \(2,\)"),
        (lambda: g(p, 1.0, N), "pass a tuple of its 2 numbers"),
        (lambda: made(own, kernel("double* x", "x[i] *= x[i];"))(x, N, w=x), r"takes 2 arguments \(x, n\), got 2, w="),
    ):  # fmt: skip
        with pytest.raises(gpuad.LaunchError, match=word):
            call()
