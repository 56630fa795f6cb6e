"""Certificates: launches of shipped kernels that are not the user's own have one, no planted fault has, and what isl is told is exact."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from certificate_tools import FAULTS, LAUNCHES, Launch, faulty, launch_of
from gather_tools import is_gathered, pairs, reverse
from launch_tools import CASES, arguments, compiled, running, shipped
from nightly import cases

import gpuad
from gpuad.affine import relations
from gpuad.affine.certificate import Run, meeting
from gpuad.affine.effects import Shape
from gpuad.affine.instances import Instances
from gpuad.affine.relations import Undecided, relation
from gpuad.affine.sampling import Sampler
from gpuad.affine.values import Graph
from gpuad.ir import folding as b
from gpuad.ir.nodes import Binary, Buffer, Cast, Constant, Expr, LaunchIndex, Store
from gpuad.ir.types import F64, I32, I64, U32, Scalar

SHIPPED = [
    "advection-advect_float_Limiter_VanLeer",
    "convolution-convolve_channels",
    "convolution-convolve_image",
    "convolution-convolve_line",
    "dense",
    "fdtd-update_e",
    "fdtd-update_h",
    "fir-fir_double_3_Border_Wrap",
    "fir-fir_float_8",
    "fisher_kpp",
    "gemm",
    "gray_scott",
    "heat",
    "involution",
    "nbody-forces",
    "smoothing-smooth",
    "wave",
]


def of_case(name: str) -> Launch:
    grid, block, _ = CASES[name].geometry()
    return launch_of(shipped(name), grid, block, arguments(name))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_gathered_is_certified(name: str) -> None:
    launch = of_case(name)
    assert any("_gather" in kernel for kernel in launch.names)
    assert launch.refused() == {}


NIGHTLY = ["convolution-convolve_line", "heat", "gemm", "fdtd-update_h"] if os.environ.get("GPUAD_NIGHTLY") else []


@pytest.mark.parametrize("name", ["fir-fir_float_8", *NIGHTLY])
def test_planted_faults_are_refused(name: str) -> None:
    """Each kind of fault, at each place where there can be one."""
    launch, planted = of_case(name), 0
    for kind in (*FAULTS, *LAUNCHES):
        for number, fault in enumerate(faulty(launch, kind)):
            planted += 1
            assert fault.refused(), f"{kind}, place {number}"
    assert planted >= 40


@pytest.mark.parametrize(
    "kind",
    [
        "a clear is one ahead",
        "a clear is one behind",
        "a clear is of the first element",
        "a clear writes something else",
        "a difference is a sum",
    ],
)
def test_planted_faults_of_other_kernels_are_refused(kind: str) -> None:
    """Those that the kernels above have no place for."""
    faults = [fault for name in ("heat", "wave") for fault in faulty(of_case(name), kind)]
    assert faults and all(fault.refused() for fault in faults)


FILTERS = """extern "C" __global__ void k(const double* x, const double* filters, double* y, int n, int share, int h, int w, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = i / h / w, group = c / share, row = i / w % h, column = i % w;
    double sum = 0;
    for (int a = 0; a < m; a++) sum += filters[((group * m + a) * h + row) * w + column] * x[(c * h + row) * w + column];
    y[i] = sum;
}"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "kind", ["a sum is begun before its loop", "a sum is not begun anew", "a loop begins one late", "an element is one ahead"]
)
def test_planted_faults_where_threads_have_several_elements_are_refused(kind: str) -> None:
    """A thread goes through the taps of a filter, and through the channels that share it."""
    arrays = pairs(0, (6, 3, 4), (2, 3, 3, 4), (6, 3, 4))
    launch = launch_of(compiled(FILTERS, "k"), (3,), (32,), (*arrays, 72, 3, 3, 4, 3))
    assert "k_gather" in launch.names and launch.refused() == {}
    faults = list(faulty(launch, kind))
    assert faults and all(fault.refused() for fault in faults)


def test_kinds_of_faults() -> None:
    assert len(FAULTS) + len(LAUNCHES) >= 40


BESIDE = """extern "C" __global__ void k(const double* u, double* v, const double* c, double* y, int n, int m) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v[i] = 2.0 * u[i];
  for (int j = 0; j < m; j++) atomicAdd(&y[j], c[j]);
}"""


def test_threads_that_are_counted_otherwise_are_refused() -> None:
    """Six threads add; a kernel that takes them for as many as there are iterations has no certificate."""
    launch = launch_of(compiled(BESIDE, "k"), (2,), (3,), (*pairs(0, 13, 13, 4, 4), 13, 4))
    assert "k_gather" in launch.names and launch.refused() == {}
    run = launch.made[launch.names.index("k_gather")]
    for count in (1, 5, 7, 15):
        numbers = {v: count if v.name == "threads_x" else n for v, n in run.shape.numbers.items()}
        fault = replace(run, shape=Shape(run.shape.grid, run.shape.block, numbers))
        made = tuple(fault if other is run else other for other in launch.made)
        assert [buffer.name for buffer in replace(launch, made=made).refused()] == ["dc"]


def test_a_clear_that_is_left_out_is_refused() -> None:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    text = (
        f'extern "C" __global__ void k(const double* u, double* v, int n) {{ {index} if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1]; }}'
    )
    launch = launch_of(compiled(text, "k"), (3,), (4,), (*pairs(0, 10, 10), 10))
    faults = list(faulty(launch, "a clear is left out"))
    assert faults and all(fault.refused() for fault in faults)


def test_a_grid_that_is_short_is_refused() -> None:
    launch = of_case("heat")
    x, y, z = launch.made[0].shape.grid
    for grid in ((x - 1, y, z), (x, y - 1, z)):
        short = replace(launch.made[0], shape=Shape(grid, launch.made[0].shape.block, launch.made[0].shape.numbers))
        assert replace(launch, made=(short, *launch.made[1:])).refused()


@pytest.mark.parametrize("n", [0, 3, 6, 7, 13])
def test_on_demand(n: int) -> None:
    """The gradients of a launch that is certified, and that it is gathered all the same."""
    u, v, c, y = pairs(0, n, n, 4, 4)
    c.shadow[...], y.shadow[...] = 0, 1
    with running("reference"):
        assert n == 0 or is_gathered(reverse(compiled(BESIDE, "k"), (2,), (3,), (u, v, c, y, n, 4)))
        gpuad.autodiff(compiled(BESIDE, "k"), (2,), (3,), (u, v, c, y, n, 4))
    np.testing.assert_array_equal(c.shadow, 6)


# --- threads that meet -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(cases(20, 60)))
def test_threads_that_meet(seed: int) -> None:
    """Against all threads of small launches: nothing is said to be apart that is not, and what is affine is told apart."""
    rng = random.Random(seed)
    grid, block = (rng.randint(1, 3), rng.randint(1, 2), 1), (rng.randint(1, 4), rng.randint(1, 3), 1)
    index, buffer = expression(rng, 3), Buffer("x", F64, uid=7)
    body = (Store(buffer, index, b.zero(F64)),)
    elements = [value(index, thread, grid, block) for thread in threads(grid, block)]
    apart = not meeting(Run(body, Shape(grid, block, {})), [buffer])
    assert not apart or len(set(elements)) == len(elements)


@pytest.mark.parametrize("seed", range(cases(25, 80)))
def test_what_isl_is_told_is_exact(seed: int) -> None:
    """Sums, products, quotients and remainders that wrap as C's types do, against plain numbers."""
    rng = random.Random(1000 + seed)
    grid, block = (3, 1, 1), (rng.randint(1, 4), 2, 1)
    expr, instances, shape = expression(rng, 4), Instances(), Shape((3, 1, 1), block, {})
    (effect,) = instances.effects((Store(Buffer("x", F64, uid=7), expr, b.zero(F64)),), shape)
    every = list(threads(grid, block))
    numbers = {d.name: np.array([dict(zip("xyz", global_of(t, block), strict=True))[d.name[1]] for t in every]) for d in effect.dims}
    expected = [value(expr, thread, grid, block) for thread in every]
    if effect.element.text is None:
        return
    np.testing.assert_array_equal(np.broadcast_to(Sampler(instances, numbers, 0).value(effect.element), len(every)), expected)
    try:
        told = relation(instances.graph, effect.dims, effect.guards, [effect.element.text])
    except Undecided:
        pytest.fail("a text that isl does not take")
    pairs_ = {tuple(int(c[k]) for c in numbers.values()): n for k, n in enumerate(expected)}
    found: dict[tuple[int, ...], int] = {}
    told.wrap().foreach_point(lambda p: found.update([_split(p, len(numbers))]))
    assert found == pairs_


def _split(point: Any, n: int) -> tuple[tuple[int, ...], int]:
    import islpy

    *where, element = (int(point.get_coordinate_val(islpy.dim_type.set, k).to_python()) for k in range(n + 1))
    return tuple(where), element


def expression(rng: random.Random, depth: int) -> Expr:
    """An integer expression over the thread's indices."""
    if depth == 0 or rng.random() < 0.15:
        leaf = rng.choice([LaunchIndex(n, a) for n in ("threadIdx", "blockIdx", "blockDim", "gridDim") for a in "xy"])
        return rng.choice([leaf, Cast(leaf, I32), Constant(rng.randint(-5, 9), I32), Cast(leaf, I64)])
    kind = rng.choice([I32, I32, I64, U32])
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    op = rng.choice([*"+++--*/%&", ">>"])
    if op in "/%":
        right = Constant(rng.randint(1, 7), kind)
    elif op in ("&", ">>"):
        right = Constant(rng.choice([1, 3, 7] if op == "&" else [0, 1, 2]), kind)
    elif op == "*":
        right = Constant(rng.randint(-4, 7), kind) if kind != U32 else Constant(rng.randint(0, 7), kind)
    return Binary(op, left if left.type == kind else Cast(left, kind), right if right.type == kind else Cast(right, kind), kind)


def threads(grid: tuple[int, int, int], block: tuple[int, int, int]) -> Any:
    for by in range(grid[1]):
        for bx in range(grid[0]):
            for ty in range(block[1]):
                for tx in range(block[0]):
                    yield (tx, ty, 0), (bx, by, 0)


def global_of(thread: Any, block: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = (bi * n + ti for ti, bi, n in zip(*thread, block, strict=True))
    return x, y, z


def value(expr: Expr, thread: Any, grid: tuple[int, int, int], block: tuple[int, int, int]) -> int:
    """What C makes of an expression."""
    match expr:
        case Constant(value=v):
            return int(v)
        case LaunchIndex(name=name, axis=axis):
            return {"threadIdx": thread[0], "blockIdx": thread[1], "blockDim": block, "gridDim": grid}[name]["xyz".index(axis)]
        case Cast(operand=a):
            return wrapped(value(a, thread, grid, block), expr.type)
        case Binary(op=op, left=left, right=right):
            x, y = value(left, thread, grid, block), value(right, thread, grid, block)
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0
            return wrapped(
                {"+": x + y, "-": x - y, "*": x * y, "/": quotient, "%": x - quotient * y, "&": x & y, ">>": x >> (y & 31)}[op], expr.type
            )
    raise AssertionError(expr)


def wrapped(n: int, kind: Scalar) -> int:
    least = -(1 << (kind.bits - 1)) if kind.is_signed else 0
    return (n - least) % (1 << kind.bits) + least


@pytest.mark.parametrize("quotients", [relations.DIVISIONS, relations.DIVISIONS + 1])
def test_a_text_of_many_quotients_is_not_read(quotients: int) -> None:
    """isl takes twice as long for every few of them, minutes for 80, and counts none of that as its steps."""
    text = " + ".join(f"floor({k}/7)" if k % 2 else f"({k} mod 7)" for k in range(quotients))
    if quotients > relations.DIVISIONS:
        with pytest.raises(Undecided, match="quotients"):
            relation(Graph(), (), (), [text])
    else:
        assert not relation(Graph(), (), (), [text]).is_empty()
