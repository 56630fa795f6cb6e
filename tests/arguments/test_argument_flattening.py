"""Records by value and the variables of a module are numbers and arrays to whatever knows a call again; a struct is known by its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Active, Const, Duplicated, LaunchError, Tape, api
from gpuad.api import FlatArguments, Kernel
from gpuad.api.call_replay import CallReplay

N = 5
P = np.dtype([("a", "f8"), ("k", "i4"), ("b", "f8", (2,))], align=True)
Q = np.dtype([("x", "f8"), ("k", "i4")], align=True)
SOURCE = """
#include <cupy/complex.cuh>
struct P { double a; int k; double b[2]; };
struct Q { double x; int k; };
__constant__ double w[2];
__device__ double kept[3];
extern "C" __global__ void scaled(P p, double* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = p.a * x[i] * x[i] * p.k + p.b[1];
}
extern "C" __global__ void sloped(double* x, double2 v, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = v.x * x[i] / v.y;
}
extern "C" __global__ void turned(double* x, complex<double> z, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = x[i] * z.real() - 1.0 / z.imag();
}
extern "C" __global__ void weighted(double* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = w[0] * x[i] * x[i] + w[1];
}
extern "C" __global__ void moved(Q* q, const Q* by, int n) {
    int i = threadIdx.x;
    if (i < n) q[i].x = q[i].x * q[i].x * q[i].k + by[i].x;
}
extern "C" __global__ void shifted(P p, double* x, const double* bias, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = p.a * x[i] + (bias ? bias[i] * x[i] : p.b[0]);
}
"""


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def params(a: float = 0.5, k: int = 2, b: float = 0.25) -> Any:
    return np.array((a, k, (1.0, b)), P)[()]


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call that was looked up was known."""
    found: list[bool] = []
    made = CallReplay.made
    monkeypatch.setattr(CallReplay, "made", lambda *given: found.append(made(*given)) or found[-1])
    return found


def known(kernel: Any, args: tuple[Any, ...]) -> Any:
    """A kernel that knows a launch with such arguments, and its reverse."""
    for _ in range(4):
        kernel(1, 8, tuple(getattr(x, "primal", getattr(x, "value", x)) for x in args))
        gpuad.autodiff(kernel, 1, 8, args)
    return kernel


FORMS = {
    "scalar": lambda p: p,
    "array of one": lambda p: np.array([p], P),
    "array": lambda p: np.array(p, P),
    "Const": lambda p: p.copy(),
}


# --- what is known of a struct is its bytes -----------------------------------------------------------------------------------------------


@pytest.mark.cpu
@pytest.mark.parametrize("form", FORMS)
def test_a_struct_that_its_owner_changes(form: str, hits: list[bool]) -> None:
    """In place, between two launches in the same words."""
    k = gpuad.kernel(SOURCE, "scaled")
    own = FORMS[form](params())
    given = Const(own) if form == "Const" else own
    x, dx = np.ones(N), np.zeros(N)
    known(k, (given, Duplicated(x, dx), N))
    hits.clear()
    for a, times in ((0.5, 2), (0.75, 2), (-0.0, 2), (0.5, 3)):
        own["a"], own["k"] = a, times
        x[...], dx[...] = 2.0, 1.0
        gpuad.autodiff(k, 1, 8, (given, Duplicated(x, dx), N))
        assert np.array_equal(x, np.full(N, a * 4 * times + 0.25)) and np.array_equal(dx, np.full(N, 2 * a * 2 * times))
        assert np.signbit(dx).all() == np.signbit(a)
        x[...] = 2.0
        k(1, 8, (own, x, N))
        assert np.array_equal(x, np.full(N, a * 4 * times + 0.25))
    assert hits == [True] * 6  # another whole number makes another call


@pytest.mark.parametrize("form", FORMS)
def test_a_program_with_a_struct_is_known(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    k = gpuad.kernel(SOURCE, "scaled")
    own = FORMS[form](params())
    given = Const(own) if form == "Const" else own
    x, dx = np.ones(N), np.zeros(N)
    X, tape = Duplicated(x, dx), Tape()

    def play() -> None:
        x[...], dx[...] = 2.0, 0.0
        with tape:
            k(1, 8, (given, X, N))
            k(1, 8, (given, X, N))
        tape.reverse({X: 1.0})

    for _ in range(3):
        play()
    first = dx.copy()
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "bind", lambda *_: pytest.fail("it was looked at closer"))
        play()
    assert np.array_equal(dx, first) and dx[0] == 2 * 2.0 * (0.5 * 4 * 2 + 0.25) * 2 * 2 * 0.5
    own["a"] = 0.25
    play()
    assert dx[0] == (2 * 0.25 * 2 * (0.25 * 4 * 2 + 0.25)) * (2 * 0.25 * 2 * 2)


def test_a_struct_that_changes_within_a_program() -> None:
    """Each launch has the numbers that the struct held then, in the reverse too, and when the program comes again."""
    k = gpuad.kernel(SOURCE, "scaled")
    p, x, dx = params(), np.ones(N), np.zeros(N)
    X, tape = Duplicated(x, dx), Tape()
    for factors in ((0.5, 0.25), (0.5, 0.25), (0.5, 0.25), (0.5, 2.0), (0.5, 2.0)):
        x[...], dx[...] = 2.0, 0.0
        with tape:
            for a in factors:
                p["a"] = a
                k(1, 8, (p, X, N))
        p["a"] = 100.0
        tape.reverse({X: 1.0})
        middle = factors[0] * 8 + 0.25
        assert np.allclose(dx, factors[1] * 4 * middle * factors[0] * 8, rtol=1e-15)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("sloped", (2.0, float("inf")), (2.0, float("-inf"))), ("sloped", (0.0, 1.0), (-0.0, 1.0)), ("sloped", (1, 2), (1.0, 4.0)),
        ("sloped", [1.0, 2.0], [3.0, 2.0]), ("turned", complex(0.0, 0.0), complex(0.0, -0.0)), ("turned", 1 + 2j, 1 - 2j),
        ("turned", np.complex128(1 + 2j), np.complex128(1 + 4j)), ("turned", 2, 3),
    ],
)  # fmt: skip
def test_numbers_that_are_told_apart(name: str, one: Any, two: Any) -> None:
    """Equal ones too, if they are not the same; beside a kernel that knows no call."""
    k, x = gpuad.kernel(SOURCE, name), np.ones(N)
    with np.errstate(all="ignore"):
        known(k, (Duplicated(x, np.zeros(N)), one, N))
        for value in (one, two, one):
            x[...] = -3.0
            k(1, 8, (x, value, N))
            found = x.copy()
            x[...] = -3.0
            gpuad.kernel(SOURCE, name)(1, 8, (x, value, N))
            assert found.tobytes() == x.tobytes()


def test_a_list_that_its_owner_changes() -> None:
    k, x, v = gpuad.kernel(SOURCE, "sloped"), np.ones(N), [1.0, 2.0]
    known(k, (Duplicated(x, np.zeros(N)), v, N))
    v[0], x[...] = 3.0, 4.0
    k(1, 8, (x, v, N))
    assert (x == 6.0).all()


# --- shadows of records -------------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_a_struct_with_a_shadow(hits: list[bool]) -> None:
    k = gpuad.kernel(SOURCE, "scaled")
    p, dp, x, dx = params(), np.zeros((), P), np.ones(N), np.zeros(N)
    args = (Active(p, dp), Duplicated(x, dx), N)
    known(k, args)
    hits.clear()
    other = np.zeros((), P)
    for shadow in (dp, dp, other, other):
        x[...], dx[...], shadow["a"], shadow["b"] = 3.0, 1.0, 1.0, 0.0
        gpuad.autodiff(k, 1, 8, (Active(p, shadow), Duplicated(x, dx), N))
        assert shadow["a"] == 1 + N * 9 * 2 and shadow["b"].tolist() == [0, N] and np.array_equal(dx, np.full(N, 6.0))
    assert hits == [True, True]  # another shadow is another call


def test_a_program_that_sums_into_the_shadow_of_a_struct() -> None:
    k = gpuad.kernel(SOURCE, "scaled")
    p, dp, x = params(), np.zeros((), P), np.ones(N)
    X, tape = Duplicated(x), Tape()
    for turn in range(1, 5):
        x[...] = 1.0
        with tape:
            for _ in range(2):
                k(1, 8, (Active(p, dp), X, N))
        tape.reverse({X: 1.0})
        assert np.allclose(dp["a"], turn * N * (2 * 1.25**2 + 5.0), rtol=1e-14)


# --- variables of the module ------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_variables_are_known_too(hits: list[bool]) -> None:
    k, x, dx, dw = gpuad.kernel(SOURCE, "weighted"), np.ones(N), np.zeros(N), np.zeros(2)
    w = k.get_global("w")
    w[...] = 0.5, 1.0
    own, other = k.with_shadow("w", dw), k.with_shadow("w", np.zeros(2))
    for each in (k, own, other):
        known(each, (Duplicated(x, dx), N))
    hits.clear()
    w[...] = 2.0, 3.0
    for each, summed in ((k, False), (own, True), (other, False), (own, True)):
        x[...], dx[...], dw[...] = 2.0, 1.0, 0.0
        gpuad.autodiff(each, 1, 8, (Duplicated(x, dx), N))
        assert (x == 11.0).all() and (dx == 8.0).all() and dw.tolist() == ([4.0 * N, N] if summed else [0, 0])
    assert hits == [True] * 4


def test_a_program_with_a_variable_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    k, x, dw = gpuad.kernel(SOURCE, "weighted"), np.ones(N), np.zeros(2)
    k.get_global("w")[...] = 0.5, 1.0
    own, X, tape = k.with_shadow("w", dw), Duplicated(x), Tape()

    def play() -> None:
        x[...], dw[...] = 1.0, 0.0
        with tape:
            own(1, 8, (X, N))
        tape.reverse({X: 1.0})
        assert dw.tolist() == [N, N]

    for _ in range(3):
        play()
    monkeypatch.setattr(Kernel, "bind", lambda *_: pytest.fail("it was looked at closer"))
    play()


# --- pointers to structs of several types, optional arrays --------------------------------------------------------------------------------


@pytest.mark.cpu
def test_structs_of_several_types_are_known(hits: list[bool]) -> None:
    k = gpuad.kernel(SOURCE, "moved")
    q, by, dq, dby = (np.zeros(N, Q) for _ in range(4))
    args = (Duplicated(q, dq), Duplicated(by, dby), N)
    known(k, args)
    hits.clear()
    q["x"], q["k"], by["x"], dq["x"], dby["x"] = 3.0, np.arange(N), 0.5, 1.0, 0.0
    gpuad.autodiff(k, 1, 8, args)
    assert hits == [True] and np.array_equal(q["x"], 9.0 * np.arange(N) + 0.5)
    assert np.array_equal(dq["x"], 6.0 * np.arange(N)) and np.array_equal(dby["x"], np.ones(N))


def test_an_optional_array_behind_a_struct() -> None:
    k, x, bias = gpuad.kernel(SOURCE, "shifted"), np.ones(N), np.arange(N, dtype=float)
    for given in (None, bias, None, bias) * 3:
        x[...] = 2.0
        dx = np.ones(N)
        gpuad.autodiff(k, 1, 8, (params(), Duplicated(x, dx), given, N))
        assert np.array_equal(x, np.full(N, 2.0) if given is None else 1.0 + 2.0 * bias)
        assert np.array_equal(dx, np.full(N, 0.5) if given is None else 0.5 + bias)


# --- what is refused ----------------------------------------------------------------------------------------------------------------------


def test_errors_count_the_parameters_as_the_caller_wrote_them() -> None:
    k = gpuad.kernel(SOURCE, "scaled")
    for args, message in (
        ((params(), np.ones(N, np.float32), N), "parameter 2 `double\\* x`"),
        ((params(), np.ones(N), 1.5), "parameter 3 `int n`"),
        ((1.0, np.ones(N), N), "parameter 1 `P p`"),
        ((params(), np.ones(N)), "takes 3 arguments, got 2"),
    ):
        with pytest.raises(LaunchError, match=message):
            k(1, 8, args)


def test_what_is_made_whole() -> None:
    k = api.kernel(SOURCE, "scaled")
    x = np.ones(N)
    whole = k.whole((params(), x, N))
    assert isinstance(whole, FlatArguments) and whole == (0.5, 2, 1.0, 0.25, x, N) and whole[4] is x
    assert k.whole(whole) is whole
    refused = (1.0, x, N)
    assert k.whole(refused) is refused
