"""Gathered shadows of which some elements are stale: threads of a box assign, the others add, and nothing is cleared that need not be.

What is stale is poisoned here: the shadows of all that a program writes begin as NaN, so that whoever reads one of them shows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running
from nightly import NIGHTLY, cases
from test_gather import stencil

import gpuad
from gpuad import Duplicated
from gpuad.accumulate.gather_launch import Box, Elements
from gpuad.analysis.affine_forms import Digit, Form, Launch
from gpuad.codegen.cuda import cuda_source
from gpuad.program.ir.region import Region, span
from gpuad.runtime import nvrtc
from gpuad.tape.facade import recording_of
from gpuad.tape.reverse.interior_box import box_within
from gpuad.tools.cases import kernel_folder

# --- the search -------------------------------------------------------------------------------------------------------------------------

SIDE = (9, 7)  # along x and y


def stale(keep: Callable[[Any, Any], Any]) -> Region:
    """The elements of a field that are stale."""
    y, x = np.mgrid[: SIDE[1], : SIDE[0]]
    flat = np.flatnonzero(np.broadcast_to(keep(x, y), x.shape))
    found = span(0, 0)
    for k in flat.tolist():
        found = found | span(k, k + 1)
    return found


def whole(shift: int = 0, lanes: int = 1) -> Elements:
    """A thread for each element of a field, or for `lanes` of them."""
    x, y = Digit("global", "x"), Digit("global", "y")
    forms = tuple(Form(shift + k, ((x, lanes), (y, SIDE[0]))) for k in range(lanes))
    return Elements(forms, ((0, SIDE[0] // lanes - 1), (0, SIDE[1] - 1), (0, 0)), (True, True, False))


def found(elements: Elements, keep: Callable[[Any, Any], Any]) -> Box | None:
    boxed = box_within(elements, stale(keep), Launch((1, 1, 1), (16, 16, 1), {}))
    return boxed.box if boxed is not None else None


@pytest.mark.parametrize(
    ("keep", "box"),
    [
        (lambda x, y: x >= 0, ((0, 8), (0, 6))),
        (lambda x, y: (x > 0) & (x < 8) & (y > 0) & (y < 6), ((1, 7), (1, 5))),
        (lambda x, y: (x > 1) & (y > 2), ((2, 8), (3, 6))),
        (lambda x, y: y > 0, ((0, 8), (1, 6))),
        (lambda x, y: x < 7, ((0, 6), (0, 6))),
        (lambda x, y: (x != 0) | (y != 0), ((1, 8), (0, 6))),  # one corner: the shorter face goes
        (lambda x, y: (x != 4) | (y != 3), None),  # a hole
        (lambda x, y: x < 0, None),
    ],
)
def test_layers_are_taken_off(keep: Any, box: Any) -> None:
    assert found(whole(), keep) == ((*box, (0, 0)) if box is not None else None)


def test_elements_are_counted_from_the_pointer() -> None:
    assert found(whole(-SIDE[0]), lambda x, y: x >= 0) == ((0, 8), (1, 6), (0, 0))


def test_all_lanes_of_a_thread_are_stale() -> None:
    assert found(whole(lanes=3), lambda x, y: x != 4) is None
    assert found(whole(lanes=3), lambda x, y: x != 3) is None
    assert found(whole(lanes=3), lambda x, y: x > 0) == ((1, 2), (0, 6), (0, 0))


def test_threads_that_share_an_element_are_no_box() -> None:
    x, y = Digit("global", "x"), Digit("global", "y")
    meeting = Elements((Form(0, ((x, 1), (y, 4))),), ((0, 5), (0, 3), (0, 0)), (True, True, False))
    assert box_within(meeting, span(0, 100), Launch((1, 1, 1), (16, 16, 1), {})) is None


# --- programs ---------------------------------------------------------------------------------------------------------------------------

HEAD = r"""
#define XY int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y
#define INSIDE x >= lx && x < hx && y >= ly && y < hy
#define K extern "C" __global__ void
#define BOX int nx, int lx, int hx, int ly, int hy
"""
PROGRAMS = (
    HEAD
    + r"""
K linear(double* v, const double* u, BOX) {
    XY; if (INSIDE) { int i = y * nx + x; v[i] = 0.5 * u[i] + 0.1 * (u[i - 1] + 2 * u[i + 1] + 3 * u[i - nx] + 4 * u[i + nx]); } }
K square(double* v, const double* u, BOX) {
    XY; if (INSIDE) { int i = y * nx + x; v[i] = u[i] + 0.1 * u[i] * u[i - 1] - 0.2 * u[i + nx] * u[i + nx]; } }
K wide(double* v, const double* u, BOX) {
    XY; if (INSIDE && x >= lx + 1 && y < hy - 1) { int i = y * nx + x; v[i] = u[i - 2] + 0.3 * u[i + 1] - 0.2 * u[i + 2 * nx]; } }
K leap(double* v, const double* u, BOX) {
    XY; if (INSIDE) { int i = y * nx + x; v[i] = 2 * u[i] - v[i] + 0.2 * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4 * u[i]); } }
K three(double* w, const double* v, const double* u, BOX) {
    XY; if (INSIDE) { int i = y * nx + x; w[i] = 2 * v[i] - u[i] + 0.2 * (v[i - 1] + v[i + 1]) + 0.1 * v[i + nx] * u[i]; } }
K guarded(double* v, const double* u, BOX) {
    XY; if (INSIDE && u[y * nx + x] > 0.2) { int i = y * nx + x; v[i] = u[i - 1] - 0.3 * u[i + nx]; } }
K clamped(double* v, const double* u, BOX) {
    XY; int l = x > 0 ? x - 1 : 0; int r = x < nx - 1 ? x + 1 : x;
    if (x < nx && y < hy + 1) v[y * nx + x] = u[y * nx + l] + 0.5 * u[y * nx + r]; }
K around(double* v, const double* u, BOX) {
    XY; if (x < nx && y < hy + 1) { int r = x < nx - 1 ? x + 1 : 0; v[y * nx + x] = 0.7 * u[y * nx + x] - 0.5 * u[y * nx + r]; } }
K point(double* v, const double* u, BOX) { XY; if (INSIDE) { int i = y * nx + x; v[i] = 0.9 * u[i] + 0.1 * v[i]; } }
K fill(double* v, const double* u, BOX) { XY; if (INSIDE) v[y * nx + x] = 0.25; }
K copy(double* v, const double* u, BOX) { XY; if (x < nx && y < hy + 1) v[y * nx + x] = u[y * nx + x]; }
"""
)
KERNELS = ("linear", "square", "wide", "leap", "guarded", "clamped", "around", "point", "fill", "linear", "square")
NY, NX = 7, 9


class Run:
    """A random program on three fields, two of which are views of one array. It depends on its number alone."""

    def __init__(self, number: int) -> None:
        self.r = np.random.default_rng(number)
        self.views = bool(self.r.integers(2))
        self.copied = bool(self.r.integers(4))
        self.block = ((4, 2), (16, 8), (3, 5), (32, 1))[self.r.integers(4)]
        self.grid = self.geometry()
        self.steps = [self.step() for _ in range(self.r.integers(2, 9))]
        self.seeded = [bool(self.r.integers(2)) for _ in range(2)]

    def geometry(self) -> tuple[int, int]:
        """Blocks that cover a field, or leave out a part, or reach beyond it."""
        cover = [-(-n // b) for n, b in zip((NX, NY), self.block, strict=True)]
        more = int(self.r.integers(-1, 2))
        return max(cover[0] + more, 1), max(cover[1] + int(self.r.integers(0, 2)) * more, 1)

    def step(self) -> tuple[str, list[int], tuple[int, ...]]:
        name = str(self.r.choice(KERNELS)) if self.r.integers(6) else "three"
        fields = self.r.permutation(3)[: 3 if name == "three" else 2].tolist()
        r = lambda a, z: int(self.r.integers(a, z + 1))  # noqa: E731
        box = (1, NX - 1, 1, NY - 1) if self.r.integers(2) else (r(1, 3), r(NX - 3, NX - 1), r(1, 2), r(NY - 2, NY - 1))
        if name == "wide":
            box = (box[0], min(box[1], NX - 2), box[2], min(box[3], NY - 1))
        return name, fields, box

    def fields(self) -> list[Duplicated]:
        rng = np.random.default_rng(5)
        one, two = (Duplicated(rng.standard_normal(s) * 0.5, rng.standard_normal(s)) for s in ((2 * NY + 1, NX), (NY, NX)))
        if self.views:
            return [one[:NY], one[NY : 2 * NY], two]
        return [two, *(Duplicated(rng.standard_normal((NY, NX)) * 0.5, rng.standard_normal((NY, NX))) for _ in range(2))]

    def gradients(self, plain: bool, executor: str = "reference") -> list[Any]:
        with running(executor, plain=plain):
            fields = self.fields()
            start = Duplicated(np.linspace(0, 1, NX * NY).reshape(NY, NX), np.ones((NY, NX)))
            tape = gpuad.Tape()
            with tape:
                for field in fields if self.copied else ():
                    kernel("copy")[(2, 2), (16, 8)](field, start, NX, 0, NX, 0, NY - 1)
                for name, picked, box in self.steps:
                    kernel(name)[self.grid, self.block](*(fields[k] for k in picked), NX, *box)
            if self.copied:
                for field in fields:
                    field.shadow[...] = np.nan
            seeds = {f: np.cos(np.arange(NX * NY).reshape(NY, NX)) for f, wanted in zip(fields, self.seeded, strict=False) if wanted}
            tape.reverse({**seeds, fields[2][2:5]: 0.5})
            return [np.array(f.shadow) for f in (*fields, start)]


@cache
def kernel(name: str) -> Any:
    return compiled(PROGRAMS, name)


BATCH = 20 if NIGHTLY else 6


@pytest.mark.parametrize("first", range(0, cases(BATCH, 80), BATCH))
def test_random_programs(first: int) -> None:
    for number in range(first, first + BATCH):
        run = Run(number)
        for got, right in zip(run.gradients(True), run.gradients(False), strict=True):
            np.testing.assert_allclose(
                got, right, rtol=1e-11, atol=1e-11 * np.abs(right).max(initial=1), err_msg=f"program {number}: {run.steps}"
            )


# --- other shapes ------------------------------------------------------------------------------------------------------------------------

LINES = r"""
#define K extern "C" __global__ void
#define T (int)(blockIdx.x * blockDim.x + threadIdx.x)
K ahead(double* v, const double* u, int n, int lo, int hi) {
    int i = T + 2; if (i >= lo && i < hi) v[i] = u[i] + 0.3 * u[i - 2] * u[i + 1]; }
K behind(double* v, const double* u, int n, int lo, int hi) { int i = T - 3; if (i >= lo && i < hi) v[i] = 0.4 * u[i] - sin(u[i + 2]); }
K lanes(double* v, const double* u, int n, int lo, int hi) {
    int i = 3 * T; if (i < lo + 3 || i + 6 >= hi) return;
    v[i] = u[i] * u[i + 4]; v[i + 1] = u[i + 1] - 0.2 * u[i - 1]; v[i + 2] = u[i + 2] + 0.3 * u[i + 3]; }
K pairs(double* v, const double* u, int n, int lo, int hi) {
    int i = T; if (i >= n) return;
    double s = 0; for (int j = 0; j < n; ++j) s += sin(u[i] - u[j]);
    if (i >= lo && i < hi) v[i] = 0.1 * s; }
"""
LENGTH = 45


def boxed(tape: Any) -> bool:
    """Whether some launch of the reverse assigned in a box."""
    steps = [known[0] for operation in recording_of(tape).operations for known in operation.plans.values()]
    return any(role == "from" for step in steps for stage in step.stages for role, _ in stage.numbers)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("names", [("ahead",), ("behind",), ("lanes",), ("pairs",), ("ahead", "lanes", "behind", "pairs")])
def test_threads_that_are_not_elements(names: tuple[str, ...], executor: str) -> None:
    """Threads ahead of their elements, or behind, or with three elements, or that go through all others."""

    def run(executor: str, plain: bool) -> list[Any]:
        with running(executor, plain=plain):
            u, v = (Duplicated(np.random.default_rng(k).standard_normal(LENGTH), np.zeros(LENGTH)) for k in range(2))
            tape = gpuad.Tape()
            with tape:
                for lo, hi in ((4, 40), (5, 41), (4, 39)):
                    for name in names:
                        compiled(LINES, name)[4, 16](v, u, LENGTH, lo, hi)
                        u, v = v, u
            tape.reverse({u: np.cos(np.arange(LENGTH))})
            assert boxed(tape) == plain
            return [u.shadow, v.shadow]

    for got, right in zip(run(executor, True), run("reference", False), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("cover", [0, -1, 2])
def test_stencils(dimensions: int, cover: int) -> None:
    """Of radius 2, in one to three dimensions, whose launches cover the field, or a part, or more; both fields begin as a copy."""
    text = stencil(dimensions, 2, False)
    size, block = (13, 9, 8)[:dimensions], (8, 2, 2)[:dimensions]
    grid = tuple(max(1, -(-n // m) + cover) for n, m in zip(size, block, strict=True))

    def run(plain: bool) -> list[Any]:
        with running("reference", plain=plain):
            u, v, start = (Duplicated(np.random.default_rng(k).standard_normal(size[::-1]), np.ones(size[::-1])) for k in range(3))
            tape = gpuad.Tape()
            with tape:
                gpuad.ops.copyto(u, start)
                gpuad.ops.copyto(v, start)
                for _ in range(3):
                    compiled(text, "k")[grid, block](u, v, 0.1, *size)
                    u, v = v, u
            u.shadow[...] = v.shadow[...] = np.nan
            tape.reverse({u: np.cos(start.primal)})
            assert boxed(tape) == plain
            return [u.shadow, v.shadow, start.shadow]

    for got, right in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11)


def test_several_shadows_at_once_and_sums_in_fixed_point() -> None:
    """Where nothing is known of zeros, everything is cleared; what is known stays known where sums must not depend on their order."""

    def run(mode: str) -> Any:
        with running("reference", plain=mode != "atomic"):
            shape = (NY, NY)
            x, y = (np.random.default_rng(k).uniform(size=shape).astype(np.float32) for k in range(2))
            new = lambda: np.full(shape, 0, np.float32)  # noqa: E731
            batch = mode == "batch"
            u, v = (gpuad.BatchDuplicated(a, (new(), new())) if batch else Duplicated(a, new()) for a in (x, y))
            tape, made = gpuad.Tape(), gpuad.kernel(kernel_folder() / "heat.cu", "heat")
            with tape:
                for _ in range(3):
                    made[(1, 1), (16, 8)](u, v, 0.2, *shape)
                    u, v = v, u
            with gpuad.deterministic() if mode == "fixed" else contextlib.nullcontext():
                tape.reverse({u: (1.0, 0.5) if batch else 1.0})
            return [2 * s for s in (u.shadows[1], v.shadows[1])] if batch else [u.shadow, v.shadow]

    right = run("atomic")
    for mode in ("plain", "fixed", "batch"):
        for got, wanted in zip(run(mode), right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


# --- heat and Fisher-KPP -----------------------------------------------------------------------------------------------------------------


def stepped(name: str, plain: bool, executor: str, shape: tuple[int, int] = (NY, NY), seeds: int = 1) -> tuple[gpuad.Tape, list[Any]]:
    """Steps from field to field, and the shadows; what is written begins as NaN."""
    made = gpuad.kernel(kernel_folder() / f"{name}.cu", name)
    numbers = {"heat": (0.2, *shape), "fisher_kpp": (0.2, 0.1, shape[0])}[name]
    with running(executor, plain=plain):
        rng = np.random.default_rng(3)
        u, v = (Duplicated(rng.uniform(size=shape).astype(np.float32), np.zeros(shape, np.float32)) for _ in range(2))
        tape = gpuad.Tape()
        with tape:
            for _ in range(5):
                made[(3, 5), (16, 8)](*((u, v) if name == "heat" else (v, u)), *numbers)
                u, v = v, u
        for field in (u, v):
            field.shadow[1:-1, 1:-1] = np.nan
        given = [(u, rng.standard_normal(shape).astype(np.float32)), (v, 0.5), (v[2:3], 0.25)]
        tape.reverse(dict(given[:seeds]))
        return tape, [u.shadow, v.shadow]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["heat", "fisher_kpp"])
@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_ping_pong(name: str, seeds: int, executor: str) -> None:
    shape = (33, 41) if name == "heat" else (33, 33)
    for got, right in zip(stepped(name, True, executor, shape, seeds)[1], stepped(name, False, "reference", shape, seeds)[1], strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def test_one_launch_a_step_and_nothing_is_cleared() -> None:
    tape, _ = stepped("heat", True, "reference")
    (plan,) = recording_of(tape).reversals.plans.values()
    assert plan.names[:5] == ("heat",) * 5
    assert set(plan.names[5:]) == {"the end"}, "what is stale when all is done is cleared once"


@cache
def boxed_text(name: str) -> str:
    """The kernel that gathers where some elements are stale."""
    tape, _ = stepped(name, True, "reference")
    operation: Any = recording_of(tape).operations[0]
    step, *_ = next(iter(operation.plans.values()))
    (stage,) = step.stages
    return cuda_source([stage.kernel])


def test_it_reads_like_an_adjoint_by_hand() -> None:
    """Whatever is added to a neighbour is collected, then comes the inside's assignment, and the border's addition."""
    from test_golden import body, statements

    lines = statements(body(boxed_text("heat"), "heat_gather"))
    by_hand = 3 + 1 + 5 * 2 + 4  # indices and sum; guards and sums; inside and border
    assert len(lines) <= 1.3 * by_hand, lines
    assert (
        "    // du is known to be 0 here\n    if (x >= from_x && x < to_x && y >= from_y && y < to_y) {\n        du[i] = du_2;\n"
        in boxed_text("heat")
    )


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", ["heat", "fisher_kpp"])
def test_it_compiles(name: str) -> None:
    assert nvrtc.resources(nvrtc.compile_cuda(boxed_text(name)))[f"{name}_gather"].registers > 0


def test_inside_a_box_the_cpu_neither_asks_nor_reads() -> None:
    """The middle part of each row has no branch."""
    from gpuad.codegen.cpu.source import host_source

    tape, _ = stepped("heat", True, "reference")
    step, *_ = next(iter(recording_of(tape).operations[0].plans.values()))
    text = host_source([step.stages[0].kernel])
    inner = text.split("gpuad_inner_heat_gather(", 1)[1].split("\n}\n", 1)[0]
    assert "if (" not in inner
    assert "du[i] = du_2;" in inner
    assert "du[i] +=" not in inner
