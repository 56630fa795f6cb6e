"""Kernels that were written to break gpuad, grouped by the rule that they attack (`attacks.cu`).

Each gradient is compared with differences of the user's own text (`attack_oracle.py`), with the recording analysis on and off, and in
forward mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_cases import CASES, Case
from attack_oracle import Oracle, vectors
from nightly import share

import gpuad
from gpuad import Active, Const, Duplicated, errors, pipeline
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

TOLERANCE = 2e-6


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks")


FAILING_TANGENTS: dict[str, str] = {}


def _marked(case: Case, also: str = "") -> Any:
    reason = case.fails or also
    failing = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(case, id=f"{case.rule}-{case.name.replace(' ', '_')}", marks=failing)


TANGENTS = [_marked(c, FAILING_TANGENTS.get(c.name, "")) for c in CASES if not c.refused and "only_reverse" not in c.flags]
RIGHT = [_marked(c) for c in CASES if not c.refused]
REFUSED = [_marked(c) for c in CASES if c.refused]


def _pairs(case: Case, roots: dict[str, Any], shadows: dict[str, Any]) -> dict[str, Any]:
    def pair(name: str) -> Any:
        root = roots[name]
        if name not in shadows:
            return root
        return Active(root, shadows[name]) if isinstance(root, float) else Duplicated(root, shadows[name])

    return {name: pair(name) for name in roots}


@contextlib.contextmanager
def _configured(way: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.executor_for_tests(Host() if way == "host" else Reference()))
        if way == "recorded":
            stack.enter_context(pipeline.everything_recorded_for_tests())
        yield


def _reverse(case: Case, seeds: dict[str, Any], way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and shadows after forward and reverse."""
    roots = case.state()
    shadows = {name: np.array(seeds[name]) for name in seeds}
    with _configured(way):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, shadows)))
    return roots, shadows


def _check(case: Case, oracle: Oracle, way: str) -> None:
    seeds = vectors(case, 0, case.active)
    roots, shadows = _reverse(case, seeds, way)
    after = oracle.after({}, 0.0)
    for name, root in roots.items():
        np.testing.assert_allclose(root, after[name], rtol=1e-12, atol=1e-12, err_msg=f"{name} after the launch")
    memory = {n: w for n, w in seeds.items() if not isinstance(roots[n], float)}
    for number in (1, 2):
        move = vectors(case, number, case.active)
        held = sum(float(seeds[n] * move[n]) for n in seeds if n not in memory)  # an Active's shadow is added to
        want = oracle.derivative(move, memory) + held
        got = float(sum(np.sum(shadows[n] * move[n]) for n in seeds))
        assert abs(got - want) <= TOLERANCE * (1 + abs(want)), f"<dz, v> is {got}, differences say {want}"


@pytest.mark.one_of(2)
@pytest.mark.parametrize("case", RIGHT)
def test_gradient_is_right(case: Case, folder: Path) -> None:
    oracle = Oracle(case, folder)
    for way in share(("analysed", "recorded"), 2):
        _check(case, oracle, way)


@pytest.mark.parametrize("case", [_marked(c) for c in CASES if "host" in c.flags])
def test_gradient_is_right_on_the_host(case: Case, folder: Path) -> None:
    _check(case, Oracle(case, folder), "host")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("case", TANGENTS)
def test_tangent_is_right(case: Case, folder: Path) -> None:
    roots, tangents = case.state(), vectors(case, 1, case.active)
    seeds = {n: w for n, w in vectors(case, 0, case.active).items() if not isinstance(roots[n], float)}
    want = Oracle(case, folder).derivative(tangents, seeds)
    held = {n: np.array(t) for n, t in tangents.items()}
    with _configured("analysed"):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, held)), mode=gpuad.Forward)
    got = float(sum(np.sum(w * held[n]) for n, w in seeds.items()))
    assert abs(got - want) <= TOLERANCE * (1 + abs(want))


@pytest.mark.parametrize("way", ["analysed", "host"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: Case, way: str) -> None:
    assert case.refused is not None
    roots = case.state()
    before = case.state()
    shadows = {name: np.ones(np.shape(roots[name])) for name in case.active}
    with _configured(way), pytest.raises(case.refused, match=case.match):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, shadows)))
    for name, root in roots.items():
        np.testing.assert_array_equal(root, before[name], err_msg="something was launched")


# --- calls that were written to break the interface -----------------------------------------------------------------------------------


def _kernel(params: str, body: str) -> Any:
    return gpuad.kernel(f'extern "C" __global__ void k({params}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;\n{body} }}', "k")


PRODUCT = "const double* a, const double* b, double* y"
GATHER = "const double* x, const int* q, double* y, int n"


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with pipeline.executor_for_tests(Reference()):
        yield


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("double t = 1/x[i], u = t*t, r = 0; if (x[i] != 0) r = u; y[i] = r;", [0, -2, -0.25]),
        ("double t = 1/x[i], u = t*t; y[i] = x[i] != 0 ? u : 0;", [0, -2, -0.25]),
        ("double t = 1/x[i], u = t*t; if (x[i] == 0) { y[i] = 0; return; } y[i] = u;", [0, -2, -0.25]),
        ("double t = 1/x[i], u = t*t, r = 0; for (int j = 0; j < (x[i] != 0); j++) r += u; y[i] = r;", [0, -2, -0.25]),
        ("double s = x[i]*log(x[i]); if (x[i] <= 0) s = 0; y[i] = s;", [0, 1, 1 + np.log(2)]),
        ("double s = sqrt(x[i]*x[i]), r = 0; if (s > 0) r = x[i]*x[i]/s; y[i] = r;", [0, 1, 1]),
        ("double s = exp(800*(x[i]+1)), q = s*s; if (x[i] < 5) q = x[i]; y[i] = q;", [1, 1, 1]),
        ("double t[2], s = 0; t[0] = 1/(x[i]*x[i]); t[1] = t[0]*t[0]; if (x[i] > 0) s = t[1]; y[i] = s;", [0, -4, -0.125]),
    ],
)
def test_infinite_partials_of_unused_values(body: str, want: list[float]) -> None:
    x, dx = np.array([0.0, 1.0, 2.0]), np.zeros(3)
    gpuad.autodiff(_kernel("const double* x, double* y", body), 1, 3, (Duplicated(x, dx), Duplicated(np.zeros(3), np.ones(3))))
    np.testing.assert_allclose(dx, want)


@pytest.mark.parametrize(
    "body",
    [
        "double s = 1/x[i]; for (int j = 0; j < 2; j++) s = s*s; if (x[i] <= 0) s = 0; y[i] = s;",
        "double t[2], s = 0; int k = i & 1; t[k] = 1/(x[i]*x[i]); t[1-k] = t[k]*t[k]; if (x[i] > 0) s = t[1-k]; y[i] = s;",
        "y[i] = 1/(x[i]*x[i]); y[i] = y[i]*y[i]; if (x[i] <= 0) y[i] = 0;",
    ],
)
@pytest.mark.xfail(strict=True, reason="A28: a product behind a carried value or memory forms inf * 0")
def test_infinite_partials_behind_loops_and_memory(body: str) -> None:
    x, dx = np.array([0.0, 1.0]), np.zeros(2)
    gpuad.autodiff(_kernel("const double* x, double* y", body), 1, 2, (Duplicated(x, dx), Duplicated(np.zeros(2), np.ones(2))))
    np.testing.assert_allclose(dx, [0, -4])


@pytest.mark.parametrize("size", [1e-170, 1e-23, 1.0, 1e20, 1e170])
def test_atan2_far_from_one(size: float) -> None:
    y, x, dy, dx = np.array([2 * size]), np.array([size]), np.zeros(1), np.zeros(1)
    kernel = _kernel("const double* x, const double* y, double* z", "z[i] = atan2(y[i], x[i]);")
    gpuad.autodiff(kernel, 1, 1, (Duplicated(x, dx), Duplicated(y, dy), Duplicated(np.zeros(1), np.ones(1))))
    np.testing.assert_allclose([dx[0], dy[0]], [-0.4 / size, 0.2 / size])


@pytest.mark.parametrize("order", [0, 1])
def test_stopped_beside_its_own_duplicate(order: int) -> None:
    x, dx = np.array([2.0, 3.0]), np.zeros(2)
    pair = (gpuad.stop_gradient(x), Duplicated(x, dx))
    with pytest.raises(errors.ShadowError, match="is stopped"):
        gpuad.autodiff(_kernel(PRODUCT, "y[i] = a[i]*b[i];"), 1, 2, (*pair[:: 1 - 2 * order], Duplicated(np.zeros(2), np.ones(2))))


def test_bare_beside_its_own_duplicate() -> None:
    x = np.array([2.0, 3.0])
    with pytest.raises(errors.ShadowError, match="which has a shadow"):
        gpuad.autodiff(_kernel(PRODUCT, "y[i] = a[i]*b[i];"), 1, 2, (Duplicated(x), x, Duplicated(np.zeros(2), np.ones(2))))


def test_every_tangent_of_a_batch() -> None:
    x, tangents = np.array([2.0, 3.0]), [np.array([1.0, 0.0]), np.array([1.0, 1.0])]
    kernel = _kernel("double* x", "for (int j = 0; j < 2; j++) x[i] = x[i]*x[i];")
    gpuad.autodiff(kernel, 1, 2, (gpuad.BatchDuplicated(x, tangents),), mode=gpuad.Forward)
    np.testing.assert_allclose([*tangents, x], [[32, 0], [32, 108], [16, 81]])


def test_every_seed_of_a_batch_with_aliases() -> None:
    x, shadows = np.array([2.0, 3.0, 4.0]), [np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])]
    pair = gpuad.BatchDuplicated(x, shadows)
    gpuad.autodiff(_kernel("double* x, const double* y", "if (i == 0) x[0] = x[0]*y[0];"), 1, 2, (pair[:2], pair[1:]))
    np.testing.assert_allclose([*shadows, x], [[3, 2, 0], [3, 3, 1], [6, 3, 4]])


def test_saved_states_last_in_first_out() -> None:
    x, dx = np.array([2.0, 3.0]), np.ones(2)
    augmented, reverse = gpuad.autodiff_thunk(_kernel("double* x", "x[i] = x[i]*x[i];"), Duplicated)
    states = [augmented(1, 2, (x,)), augmented(1, 2, (x,))]
    x[:] = 77
    while states:
        reverse(1, 2, (Duplicated(x, dx),), states.pop())
    np.testing.assert_allclose(dx, [4 * 2**3, 4 * 3**3])


def test_reverse_of_another_grid() -> None:
    x = np.arange(8.0)
    augmented, reverse = gpuad.autodiff_thunk(_kernel("double* x", "x[i] = x[i]*x[i];"), Duplicated)
    saved = augmented(2, 4, (x,))
    with pytest.raises(errors.LaunchError, match="another grid"):
        reverse(1, 4, (Duplicated(x, np.ones(8)),), saved)


@pytest.mark.parametrize("swapped", [True, False])
def test_reverse_of_another_overlap(swapped: bool) -> None:
    u = Duplicated(np.array([2.0, 3.0, 4.0]), np.zeros(3))
    y = Duplicated(np.zeros(2), np.ones(2))
    augmented, reverse = gpuad.autodiff_thunk(_kernel(PRODUCT, "y[i] = a[i]*b[i];"), *[Duplicated] * 3)
    saved = augmented(1, 2, (u.primal[:2], u.primal[1:], y.primal))
    other = (u[1:], u[:2], y) if swapped else (u[:2], Duplicated(np.ones(2)), y)
    with pytest.raises(errors.LaunchError, match="overlaps"):
        reverse(1, 2, other, saved)


def test_promise_not_to_overwrite_is_checked() -> None:
    x, dx, q = np.array([2.0, 3.0, 4.0]), np.zeros(3), np.array([2, 0], np.int32)
    kernel = _kernel(GATHER, "if (i < n) y[i] = x[q[i]]*x[q[i]];")
    augmented, reverse = gpuad.autodiff_thunk(kernel, Duplicated, Const, Duplicated, Const, not_overwritten=("x",))
    saved = augmented(1, 4, (x, q, np.zeros(2), 2))
    x[1] = -7
    with pytest.raises(errors.LaunchError, match="not_overwritten"):
        reverse(1, 4, (Duplicated(x, dx), q, Duplicated(np.zeros(2), np.ones(2)), 2), saved)


def test_everything_overwritten_before_the_reverse() -> None:
    x, dx, q = np.array([2.0, 3.0, 4.0]), np.zeros(3), np.array([2, 0], np.int32)
    augmented, reverse = gpuad.autodiff_thunk(_kernel(GATHER, "if (i < n) y[i] = x[q[i]]*x[q[i]];"), Duplicated, Const, Duplicated, Const)
    saved = augmented(1, 4, (x, q, np.zeros(2), 2))
    x[:], q[:] = -7, 1
    reverse(1, 4, (Duplicated(x, dx), q, Duplicated(np.zeros(2), np.ones(2)), 2), saved)
    np.testing.assert_allclose(dx, [4, 0, 8])


def test_wide_shadow_of_a_scalar_in_a_split_pair() -> None:
    shadow, x, y = np.zeros(()), np.array([2, 3], np.float32), np.zeros(2, np.float32)
    augmented, reverse = gpuad.autodiff_thunk(_kernel("float a, const float* x, float* y", "y[i] = a*x[i];"), Active, Const, Duplicated)
    reverse(1, 2, (Active(1.5, shadow), x, Duplicated(y, np.ones(2, np.float32))), augmented(1, 2, (1.5, x, y)))
    assert shadow == 5


def test_tangents_through_a_constant_workspace() -> None:
    body = "w[i] = x[i]*2; double t = w[i], s = 0; for (int j = 0; j < 2; j++) { s += t; t = t*w[i]; } w[i] = s; y[i] = x[i]*x[i];"
    tangent = np.zeros(2)
    args = (Duplicated(np.array([2.0, 3.0]), np.ones(2)), Const(np.zeros(2)), Duplicated(np.zeros(2), tangent))
    gpuad.autodiff(_kernel("const double* x, double* w, double* y", body), 1, 2, args, mode=gpuad.Forward)
    np.testing.assert_allclose(tangent, [4, 6])


def test_optional_output_as_none() -> None:
    dx = np.zeros(2)
    kernel = _kernel("const double* x, double* w, double* y, int has", "y[i] = x[i]*x[i]; if (has) w[i] = y[i];")
    gpuad.autodiff(kernel, 1, 2, (Duplicated(np.array([2.0, 3.0]), dx), None, Duplicated(np.zeros(2), np.ones(2)), 0))
    np.testing.assert_allclose(dx, [4, 6])


def test_keep_on_an_alias_that_is_read() -> None:
    x, dx = np.array([2.0, 3.0]), np.ones(2)
    args = (Duplicated(x, dx), Duplicated(x, dx), Duplicated(x, dx, keep=True))
    with pytest.raises(errors.ShadowError, match="keep=True"):
        gpuad.autodiff(_kernel(PRODUCT, "y[i] = a[i]*b[i];"), 1, 2, args)


def test_primals_and_shadows_in_one_pool() -> None:
    pool = np.zeros(24)
    pool[:4], pool[8:12] = [1, 2, 3, 4], [0, 0, 0, 1]
    gpuad.autodiff(_kernel("double* x", "for (int j = 1; j < 4; j++) x[j] = x[j]*x[j-1];"), 1, 1, (Duplicated(pool[:4], pool[8:12]),))
    np.testing.assert_allclose(pool[:12].reshape(3, 4), [[1, 2, 6, 24], [0] * 4, [24, 12, 8, 6]])


@pytest.mark.parametrize(
    ("type_", "dtype"), [("unsigned char", "?"), ("int", "u4"), ("unsigned", "i4"), ("size_t", "i8"), ("signed char", "u1")]
)
def test_integers_of_the_same_width(type_: str, dtype: str) -> None:
    dx = np.zeros(2)
    kernel = _kernel(f"const {type_}* m, const double* x, double* y", "y[i] = m[i]*x[i];")
    gpuad.autodiff(kernel, 1, 2, (np.array([1, 0], dtype), Duplicated(np.ones(2), dx), Duplicated(np.zeros(2), np.ones(2))))
    np.testing.assert_allclose(dx, [1, 0])


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("double t = x[i]*x[i], r = 0; if (i < n) r = (t-1)*(t-1); y[i] = r;", 8),
        ("double r = 0; for (int j = 0; j < n; j++) r += (x[i]-1)*(x[i]-1); y[i] = r;", 4),
        ("double r = 1; for (int j = 0; j < n; j++) r = r*x[i]; y[i] = (r-1)*(r-1);", 8),
        ("double s = x[i] > 0 ? sqrt(x[i]) : 0; y[i] = (s-1)*(s-1);", 0.5),
    ],
)
def test_hessian_at_a_minimum(body: str, want: float) -> None:
    x, y = Duplicated(np.ones(2), np.zeros(2)), Duplicated(np.zeros(2), np.ones(2))
    x_dot, y_dot = Duplicated(np.ones(2), np.zeros(2)), Duplicated(np.zeros(2), np.zeros(2))
    gpuad.hvp(_kernel("const double* x, double* y, int n", body), 1, 2, (x, y, 2), (x_dot, y_dot, None))
    np.testing.assert_allclose(x_dot.shadow, [want, want])


def test_second_derivative_of_a_compaction() -> None:
    x, y = Duplicated(np.array([2.0, 3.0]), np.zeros(2)), Duplicated(np.zeros(2), np.ones(2))
    x_dot, y_dot = Duplicated(np.ones(2), np.zeros(2)), Duplicated(np.zeros(2), np.zeros(2))
    kernel = _kernel("const double* x, double* y, int* c", "int p = atomicAdd(c, 1); y[p] = x[i]*x[i]*x[i];")
    gpuad.hvp(kernel, 1, 2, (x, y, np.zeros(1, np.int32)), (x_dot, y_dot, None))
    np.testing.assert_allclose(x.shadow, [12, 27])
    np.testing.assert_allclose(x_dot.shadow, [12, 18])


@pytest.mark.parametrize("body", ["x[q[i]] = a[i];", "if (i > 0 && i < 3) x[i] = x[i-1] + x[i+1] + a[i];"])
def test_forward_mode_refuses_what_depends_on_chance(body: str) -> None:
    args = (Duplicated(np.ones(4), np.ones(4)), Duplicated(np.ones(4), np.ones(4)), np.array([1, 2, 1, 0], np.int32))
    with pytest.raises((errors.LaunchError, errors.UnsupportedError), match=r"two threads write|data race"), _configured("host"):
        gpuad.autodiff(_kernel("double* x, const double* a, const int* q", body), 1, 4, args, mode=gpuad.Forward)
