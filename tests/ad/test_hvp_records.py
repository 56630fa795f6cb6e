"""Second derivatives of kernels with records by value, structs of several types, and variables of their module: `hvp` beside differences of
`autodiff`'s gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Active, Duplicated, LaunchError, ShadowError, UnsupportedError

N = 5
P = np.dtype([("a", "f8"), ("k", "i4"), ("b", "f8", (2,))], align=True)
Q = np.dtype([("x", "f8"), ("k", "i4"), ("y", "f8")], align=True)
SOURCE = """
#include <cupy/complex.cuh>
#include <cuda_fp16.h>
struct P { double a; int k; double b[2]; };
struct Q { double x; int k; double y; };
__constant__ double w[2];
extern "C" __global__ void mixed(P p, Q* q, double* x, double2 v, complex<double> z, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    double t = sin(p.a * x[i]) * p.k + p.b[1] * x[i] * q[i].x * q[i].y;
    q[i].x = t * q[i].x * q[i].k + v.x * v.y * x[i];
    x[i] = t * t * z.real() * exp(z.imag() * x[i]) + w[0] * x[i] * x[i] * w[1];
}
extern "C" __global__ void halved(__half2 h, float* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = x[i] * x[i] * __half2float(h.x);
}
"""


@pytest.fixture(autouse=True, params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


def structs(rng: np.random.Generator) -> Any:
    found = np.zeros(N, Q)
    found["x"], found["y"] = rng.standard_normal((2, N))
    return found


def along(at: Any, direction: Any, step: float) -> Any:
    """at + step * direction; integers stay."""
    if isinstance(at, tuple):
        return tuple(a + step * d for a, d in zip(at, direction, strict=True))
    if getattr(at, "dtype", None) is None or at.dtype.names is None:
        return at + step * direction
    found = at.copy()
    for name in (n for n in at.dtype.names if n != "k"):
        found[name] = at[name] + step * direction[name]
    return found


def numbers(x: Any) -> np.ndarray:
    """All floats of an array."""
    if x.dtype.names is not None:
        return np.concatenate([x[name].ravel() for name in x.dtype.names if name != "k"])
    return np.asarray(x).ravel()


class Problem:
    """Arguments of `mixed`, their shadows' seeds, and directions of both, by name."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.kernel = gpuad.kernel(SOURCE, "mixed")
        self.kernel.get_global("w")[...] = 0.5, 0.25
        self.at = {
            "p": np.array((0.7, 2, (0.3, 0.4)), P)[()],
            "q": structs(rng),
            "x": rng.standard_normal(N),
            "v": (1.2, 0.5),
            "z": 0.3 + 0.2j,
        }
        self.at["q"]["k"] = 1 + np.arange(N) % 2
        self.dots = {
            "p": np.array((0.3, 0, (0.1, -0.4)), P)[()], "q": structs(rng), "x": rng.standard_normal(N), "v": (0.6, -0.3), "z": -0.1 + 0.4j,
        }  # fmt: skip
        self.seeds = {"p": np.zeros((), P), "q": structs(rng), "x": rng.standard_normal(N), "v": np.zeros(2), "z": np.zeros((), complex)}
        self.seed_dots = {name: structs(rng) if name == "q" else np.zeros_like(seed) for name, seed in self.seeds.items()}
        self.seed_dots["x"] = rng.standard_normal(N)

    def arguments(self, at: dict[str, Any], shadows: dict[str, Any], active: str) -> tuple[Any, ...]:
        made = [at[n] if n not in active else Duplicated(at[n], shadows[n]) if n in "qx" else Active(at[n], shadows[n]) for n in at]
        return (*made, N)

    def gradient(self, step: float, active: str) -> dict[str, np.ndarray]:
        """Shadows, and what the launch left, `step` along the directions of what is active."""
        here = {n: along(x, self.dots[n], step) if n in active else x for n, x in self.at.items()}
        here = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in here.items()}
        shadows = {n: along(s, self.seed_dots[n], step) if n in "qx" else s.copy() for n, s in self.seeds.items()}
        gpuad.autodiff(self.kernel, 1, 8, self.arguments(here, shadows, active))
        return {**{n: numbers(shadows[n]) for n in active}, **{f"{n} after": numbers(here[n]) for n in "qx"}}

    def hvp(self, active: str) -> dict[str, np.ndarray]:
        copied = [
            {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in d.items()}
            for d in (self.at, self.seeds, self.dots, self.seed_dots)
        ]
        at, seeds, dots, seed_dots = copied
        directions = tuple(d if isinstance(d, Active | Duplicated) else None for d in self.arguments(dots, seed_dots, active))
        gpuad.hvp(self.kernel, 1, 8, self.arguments(at, seeds, active), directions)
        return {**{n: numbers(seed_dots[n]) for n in active}, **{f"{n} after": numbers(dots[n]) for n in "qx" if n in active}}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("active", ["pqxvz", "qx", "pqx", "qxv", "qxz"])
def test_beside_differences_of_gradients(active: str) -> None:
    problem, step = Problem(), 1e-5
    ahead, behind = problem.gradient(step, active), problem.gradient(-step, active)
    found = problem.hvp(active)
    assert set(active) <= set(found)
    for name, value in found.items():
        assert np.allclose(value, (ahead[name] - behind[name]) / (2 * step), rtol=1e-7, atol=1e-8), name
        assert np.abs(value).max() > 1e-3


FORMS: dict[str, Callable[[Any], Any]] = {
    "Const": gpuad.Const,
    "stopped": gpuad.stop_gradient,
    "array": np.array,
    "array of one": lambda p: np.array([p]),
    "recarray": lambda p: np.array(p).view(np.recarray),
    "Const of an array": lambda p: gpuad.Const(np.array(p)),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("form", FORMS)
def test_a_record_without_a_shadow_in_any_form(form: str) -> None:
    expected, problem = Problem().hvp("qx"), Problem()
    problem.at["p"], problem.at["v"] = FORMS[form](problem.at["p"]), gpuad.Const(problem.at["v"])
    found = problem.hvp("qx")
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "none": (lambda _, __: None, "`p_a` needs a direction"),
    "a pair": (lambda p, d: Duplicated(np.array([p]), np.array([d])), "passed by value: use Active"),
    "another shape": (lambda p, _: Active(p, np.zeros(3)), "it needs an array of shape"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_directions_that_do_not_fit(which: str) -> None:
    problem = Problem()
    make, message = REFUSED[which]
    args = problem.arguments(problem.at, problem.seeds, "pqx")
    dots = [Duplicated(problem.dots[n], problem.seed_dots[n]) for n in "qx"]
    direction = make(problem.dots["p"], problem.seed_dots["p"])
    before = problem.at["x"].copy()
    with pytest.raises((ShadowError, LaunchError), match=message):
        gpuad.hvp(problem.kernel, 1, 8, args, (direction, *dots, None, None, None))
    assert np.array_equal(problem.at["x"], before)


def test_halves_by_value_are_refused() -> None:
    k, H = gpuad.kernel(SOURCE, "halved"), np.dtype([("x", "f2"), ("y", "f2")])
    x, dx = np.ones(N, np.float32), np.ones(N, np.float32)
    with pytest.raises(UnsupportedError, match="halves by value"):
        gpuad.hvp(k, 1, 8, (np.ones((), H)[()], Duplicated(x, dx), N), (None, Duplicated(x.copy(), dx.copy()), None))
    assert (x == 1).all() and (dx == 1).all()


SCALED = 'extern "C" __global__ void scaled(float* x, float a, int n) { int i = threadIdx.x; if (i < n) x[i] = a * a * x[i]; }'


@pytest.mark.parametrize("shadow", ["float32", "float64"])
@pytest.mark.parametrize("dot", ["float32", "float64"])
def test_shadows_of_numbers_may_be_wider_than_they(shadow: str, dot: str) -> None:
    """That of the direction is as wide; another is refused before anything runs."""
    x, dx, x_dot, dx_dot = (np.full(N, v, np.float32) for v in (3, 1, 1, 0))
    a, a_dot = Active(np.float32(2), np.zeros((), shadow)), Active(np.float32(1), np.zeros((), dot))
    call = (gpuad.kernel(SCALED, "scaled"), 1, 8, (Duplicated(x, dx), a, N), (Duplicated(x_dot, dx_dot), a_dot, None))
    if shadow != dot:
        with pytest.raises(ShadowError, match=r"the shadow of `a` has the dtype float.*Nothing was launched"):
            gpuad.hvp(*call)
        assert (x == 3).all() and (dx == 1).all() and (x_dot == 1).all() and not a.shadow
        return
    gpuad.hvp(*call)
    assert (x == 12).all() and (dx == 4).all() and (dx_dot == 4).all() and (x_dot == 16).all()
    assert a.shadow == N * 2 * 2 * 3 and a_dot.shadow == N * (2 * 3 + 2 * 2 * 1)
