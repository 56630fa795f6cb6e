"""`check_gradient` must find every kind of wrong gradient, and say what it could not look at. The kernels are written out in NumPy with
derivatives by hand, so that each can be made wrong in one way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuad import api
from gpuad.arguments.annotations import Active, Const, Duplicated
from gpuad.errors import GpuadError, UnsupportedError
from gpuad.testing import Report, check_gradient, launch_memory, second_check
from gpuad.testing.launch_memory import Launch, LaunchMemory


class Step:
    """`y += a sin(x); x = x |x|`, in place, with its derivatives; `fault` makes one thing wrong."""

    name = "step"

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __call__(self, grid: Any, block: Any, args: Any) -> None:
        x, y, a, _ = args
        y += (a * np.sin(x)).astype(y.dtype)
        x *= np.abs(x)

    def forward(self, x: Any, y: Any, a: Any, n: int) -> None:
        slope = 2 * np.abs(x.primal) * (1.5 if "both" in self.fault else 1)
        y.shadow[...] += a.shadow * np.sin(x.primal) + a.value * np.cos(x.primal) * x.shadow
        x.shadow[...] *= slope

    def reverse(self, x: Any, y: Any, a: Any, n: int) -> None:
        slope = 2 * np.abs(x.primal) * (1.5 if "both" in self.fault else 1)
        a.shadow[...] += (y.shadow * np.sin(x.primal)).sum() * (2 if "scalar" in self.fault else 1)
        cosine = np.sin if "reverse" in self.fault else np.cos
        carried = 0 if "assigns" in self.fault else slope * x.shadow
        x.shadow[...] = carried + a.value * cosine(x.primal) * y.shadow

    def second(self, args: Any, dots: Any) -> None:
        (x, y, a, n), (xt, yt, at, _) = args, dots
        if "hvp" in self.fault:
            raise UnsupportedError("no second derivatives")
        sine, cosine = np.sin(x.primal), np.cos(x.primal)
        at.shadow[...] += (yt.shadow * sine + y.shadow * cosine * xt.primal).sum()
        mixed = at.value * cosine * y.shadow - (0 if "half" in self.fault else a.value * sine * xt.primal * y.shadow)
        kept = xt.shadow if "uncleared" in self.fault else 2 * np.abs(x.primal) * xt.shadow
        xt.shadow[...] = kept + 2 * np.sign(x.primal) * xt.primal * x.shadow + mixed + a.value * cosine * yt.shadow
        self.reverse(x, y, a, n)
        x.shadow[...] *= 2 if "beside" in self.fault else 1
        yt.primal[...] += at.value * sine + a.value * cosine * xt.primal
        xt.primal[...] *= 2 * np.abs(x.primal) * (2 if "tangent" in self.fault else 1)


def fake_autodiff(kernel: Any, grid: Any, block: Any, args: Any, mode: str) -> None:
    full = [a if isinstance(a, Duplicated | Active) else Active(a, np.zeros(())) if isinstance(a, float) else a for a in args]
    if mode == "forward" and "refuses" in kernel.fault:
        raise UnsupportedError("no forward mode")
    getattr(kernel, mode)(*full)
    kernel(grid, block, [getattr(a, "primal", a) for a in args])
    if "primal" in kernel.fault and mode == "reverse":
        args[1].primal[0] += 1


def fake_hvp(kernel: Any, grid: Any, block: Any, args: Any, directions: Any) -> None:
    kernel.second(args, directions)
    kernel(grid, block, [getattr(a, "primal", a) for a in args])


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not request.node.name.startswith("test_real"):
        monkeypatch.setattr(launch_memory, "api", fake := SimpleNamespace(autodiff=fake_autodiff, Forward="forward", Reverse="reverse"))
        fake.kernel = lambda kernel: kernel
        monkeypatch.setattr(second_check, "api", SimpleNamespace(hvp=fake_hvp))


def arguments(dtype: Any = np.float64, n: int = 50) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return rng.normal(0, 1, n).astype(dtype), rng.normal(0, 1, n).astype(dtype), 0.7, n


def check(fault: str = "", args: Any = None, **options: Any) -> Report:
    return check_gradient(Step(fault), arguments() if args is None else args, grid=1, block=64, race_check=False, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_right_gradient_passes(dtype: Any) -> None:
    report = check(args=arguments(dtype), directions=3)
    assert report.passed and len(report.checks) == 15 and "agrees" in str(report)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("both", "Taylor"),
        ("reverse", "dot product"),
        ("assigns", "dot product"),
        ("scalar", "dot product"),
        ("primal", "primal"),
        ("reverse refuses", "Taylor"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_fault_is_found(fault: str, found: str, dtype: Any) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)WRONG.*FAILED {found} 1"):
        check(fault, arguments(dtype))


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("half", "second derivatives"),
        ("uncleared", "second derivatives"),
        ("tangent", "tangent beside hvp"),
        ("beside", "gradient beside hvp"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_fault_of_second_derivatives_is_found(fault: str, found: str, dtype: Any) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)WRONG.*FAILED {found}"):
        check(fault, arguments(dtype))
    assert check(fault, arguments(dtype), second_check=False).passed


def test_what_was_not_compared_is_said() -> None:
    report = check("refuses")
    assert report.passed and "no dot product, since forward mode refuses" in str(report)
    report = check("hvp")
    assert report.passed and "no second derivatives, since hvp refuses this launch: no second derivatives" in str(report)


def test_knife_edges_are_left_out_and_said() -> None:
    x, y, a, n = arguments()
    x[3] = 1e-9  # |x| has its kink here
    kinked = Step()
    kinked.__class__ = type(
        "Kinked", (Step,), {"__call__": _kinked, "forward": _kinked_forward, "reverse": _kinked_reverse, "second": _kinked_second}
    )
    report = check_gradient(kinked, (x, y, a, n), grid=1, block=64, race_check=False)
    assert report.passed and "knife edge" in str(report) and "left out of the second derivatives" in str(report)


def _kinked(self: Any, grid: Any, block: Any, args: Any) -> None:
    args[0][...] = np.abs(args[0])


def _kinked_forward(self: Any, x: Any, y: Any, a: Any, n: int) -> None:
    x.shadow[...] *= np.sign(x.primal)


def _kinked_second(self: Any, args: Any, dots: Any) -> None:
    for x in (args[0].shadow, dots[0].primal, dots[0].shadow):
        x *= np.sign(args[0].primal)


_kinked_reverse = _kinked_forward


def test_nothing_that_can_be_judged_is_a_failure() -> None:
    kinked = type(
        "Kinked", (Step,), {"__call__": _kinked, "forward": _kinked_forward, "reverse": _kinked_reverse, "second": _kinked_second}
    )()
    x = np.full(20, 1e-9)
    x[0] = 1.0
    with pytest.raises(AssertionError, match="knife edges; choose other inputs"):
        check_gradient(kinked, (x, np.full(0, 1.0), 0.5, 20), grid=1, block=32, race_check=False)


def test_arrays_and_shadows_are_as_before() -> None:
    x, y, a, n = arguments()
    dx = np.full_like(x, 7)
    before = x.copy(), y.copy()
    check(args=(Duplicated(x, dx), Duplicated(y), Active(a, np.zeros(())), n))
    with pytest.raises(AssertionError):
        check("both", (x, y, a, n))
    assert np.array_equal(x, before[0]) and np.array_equal(y, before[1]) and (dx == 7).all()


def test_overlapping_views_share_their_shadow() -> None:
    base = np.random.default_rng(0).normal(0, 1, 20)
    state = LaunchMemory(Launch(Step(), 1, 1), (base[:-2], base[2:], 0.5, 18))
    assert np.shares_memory(state.pairs[0].shadow, state.pairs[1].shadow) and len(state.rooms) == 1
    assert launch_memory.address(state.pairs[1].shadow) - launch_memory.address(state.pairs[0].shadow) == 16


def test_annotated_arguments_leave_the_rest_inactive() -> None:
    x, y, a, n = arguments()
    state = LaunchMemory(Launch(Step(), 1, 1), (Duplicated(x), Const(y), a, n))
    assert list(state.pairs) == [0] and not state.scalars


def test_forms_of_a_launch() -> None:
    args = arguments()
    assert check_gradient((Step(), 1, 64), args, race_check=False).kernel == "step"
    assert check_gradient(SimpleNamespace(kernel=Step(), grid=1, block=64), args, race_check=False).passed
    with pytest.raises(TypeError, match="grid="):
        check_gradient(Step(), args)
    with pytest.raises(TypeError, match="no argument is an array of floats"):
        check_gradient((Step(), 1, 64), (3, 0.5))


def test_a_tolerance_can_be_given() -> None:
    with pytest.raises(AssertionError, match="tolerance 1e-30"):
        check(tolerance=1e-30, args=arguments(n=500))


# --- the pipeline itself -------------------------------------------------------------------------------------------------------------

REAL = """
extern "C" __global__ void mix(double* x, double* y, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] += a * sin(x[i]);
    x[i] = x[i] * x[i] * y[i];
}
extern "C" __global__ void smear(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n) x[i] = 0.5 * (x[i] + x[i - 1]);
}
extern "C" __global__ void beyond(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + 1];
}
"""


def test_real_gradient_passes() -> None:
    x, y, a, n = arguments()
    report = check_gradient(api.kernel(REAL, "mix")[2, 32], (x, y, a, n), directions=3)
    assert report.passed and len(report.checks) == 15


def test_real_overlapping_arguments() -> None:
    base = np.random.default_rng(0).uniform(0.5, 1.5, 40)
    args = (base, base, 0.3, 40)
    assert check_gradient(api.kernel(REAL, "mix")[2, 32], args).passed


def test_real_races_and_bounds_are_found() -> None:
    x, y, _, n = arguments()
    before = x.copy()
    with pytest.raises(GpuadError, match=r"(?s)<source>:10:.*error: "):
        check_gradient(api.kernel(REAL, "smear")[2, 32], (x, n))
    with pytest.raises(GpuadError, match=r"reads `x` from element 1 to 50 \(<source>:14:"):
        check_gradient(api.kernel(REAL, "beyond")[2, 32], (x, y, n))
    assert np.array_equal(x, before)


def test_real_views_keep_what_lies_around_them() -> None:
    base = np.random.default_rng(0).uniform(0.5, 1.5, (6, 40))
    before = base.copy()
    assert check_gradient(api.kernel(REAL, "mix")[2, 32], (base[1], base[4], 0.3, 40)).passed
    assert np.array_equal(base, before)
