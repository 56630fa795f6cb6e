"""Gathering by the digits of an index: kernels in a launch along one axis that take coordinates out of it by quotients and remainders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, reverse
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.accumulate.gather_launch import _Sending
from gpuad.api import pattern_of
from gpuad.ir import folding as b
from gpuad.ir import nodes as ir
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import I32
from gpuad.optimize.delinearisation import MixedRadix, _Digits
from gpuad.tools.cases import kernel_folder

INDEX = "blockIdx.x * blockDim.x + threadIdx.x"
KERNEL = """extern "C" __global__ void k(const double* image, const double* scale, double* out, int n, int c, int h, int w) {
    HEAD out[i] = sin(image[i] * scale[(b * h + y) * w + x]);
}"""
HEADS = {
    "quotients": f"int i = {INDEX}; if (i >= n) return; int b = i / (c * h * w), y = (i / w) % h, x = i % w;",
    "one after the other": f"int i = {INDEX}; if (i >= n) return; int t = i / w, x = i - t * w, y = t % h, b = t / h / c;",
    "in the other order": f"int i = {INDEX}; if (i >= n) return; int b = i / h / w / c, y = i / w % h, x = i % w;",
    "by planes": f"int i = {INDEX}; if (i >= n) return; int area = h * w, p = i % area, y = p / w, x = p % w, b = i / area / c;",
    "unsigned": f"unsigned i = {INDEX}; if (i >= n) return; unsigned b = i / (c * h * w), y = i / w % h, x = i % w;",
    "strided": f"for (int i = {INDEX}, b, y, x; i < n; i += blockDim.x * gridDim.x) if (b = i / w / h / c, y = i / w % h, x = i % w, 1)",
    "bits": f"int i = {INDEX}; if (i >= n) return; int b = (i >> 5) / c, y = i >> 3 & 3, x = i & 7;",
}
SHAPE = (2, 3, 4, 8)  # batch, channels, height, width


def arguments(shape: tuple[int, ...] = SHAPE) -> tuple[Any, ...]:
    rng, (batch, channels, height, width) = np.random.default_rng(3), shape
    image, scale, out = (Duplicated(rng.normal(size=s), rng.normal(size=s)) for s in (shape, (batch, height, width), shape))
    return image, scale, out, int(np.prod(shape)), channels, height, width


def stages(text: str, block: int = 32) -> list[ir.Kernel]:
    with running("reference"):
        return reverse(compiled(text, "k"), -(-int(np.prod(SHAPE)) // block), block, arguments())


@pytest.mark.one_of(3)
@pytest.mark.parametrize("head", HEADS)
def test_the_channels_are_gone_through(head: str) -> None:
    """All threads of a pixel add to one element, which is told by three of four digits."""
    text = KERNEL.replace("HEAD", HEADS[head])
    kernels = stages(text)
    assert is_gathered(kernels) and atomics(kernels) == 0
    agree(text, 6, 32, arguments)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 3, 5), (1, 5, 1, 7), (3, 2, 2, 1), (1, 40, 2, 3)])
def test_all_shapes(shape: tuple[int, ...]) -> None:
    agree(KERNEL.replace("HEAD", HEADS["quotients"]), -(-int(np.prod(shape)) // 32), 32, lambda: arguments(shape))


def test_more_threads_than_the_digits_say() -> None:
    """Where nothing asks whether a thread's number is below that of the elements, the last digit goes as far as the threads do."""
    text = KERNEL.replace("HEAD", HEADS["quotients"].replace("if (i >= n) return;", "i = i % n;"))
    agree(text, 8, 32, arguments)


INTERIOR = f"""extern "C" __global__ void k(const double* u, double* v, int h, int w) {{
    int i = {INDEX}, m = w - 2;
    if (i >= m * (h - 2)) return;
    const double* at = u + (i / m + 1) * w + i % m + 1;
    v[i] = at[0] * at[0] - at[1] * at[-1] + at[w] * at[-w];
}}"""


def test_a_stencil_inside_of_an_image() -> None:
    """The number of columns is a difference, which divides as a whole."""

    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        return *(Duplicated(rng.normal(size=s), rng.normal(size=s)) for s in ((7, 9), (5, 7))), 7, 9

    with running("reference"):
        kernels = reverse(compiled(INTERIOR, "k"), 2, 32, make())
    assert is_gathered(kernels) and atomics(kernels) == 0
    agree(INTERIOR, 2, 32, make)


MATCHES = """extern "C" __global__ void k(const double* a, const double* b, double* match, int channels, int h, int w, int reach) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int side = 2 * reach + 1, column = x + (int)blockIdx.z % side - reach, row = y + (int)blockIdx.z / side - reach;
    if (x >= w || y >= h || column < 0 || column >= w || row < 0 || row >= h) return;
    double sum = 0;
    for (int c = 0; c < channels; c++) sum += a[(c * h + y) * w + x] * b[(c * h + row) * w + column];
    match[(blockIdx.z * h + y) * w + x] = sum;
}"""


def test_displacements_that_a_third_index_holds() -> None:
    """Digits for which no axis is left are gone through; one of two indices that add up along an axis is, too."""

    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(1)
        return *(Duplicated(rng.normal(size=s), rng.normal(size=s)) for s in ((2, 5, 9), (2, 5, 9), (9, 5, 9))), 2, 5, 9, 1

    with running("reference"):
        kernels = reverse(compiled(MATCHES, "k"), (3, 2, 9), (4, 4), make())
    assert is_gathered(kernels) and atomics(kernels) == 0
    agree(MATCHES, (3, 2, 9), (4, 4), make)


FILTERS = f"""extern "C" __global__ void k(const double* x, const double* filters, double* y, int n, int share, int h, int w, int m) {{
    int i = {INDEX};
    if (i >= n) return;
    int c = i / h / w, group = c / share, row = i / w % h, column = i % w;
    double sum = 0;
    for (int a = 0; a < m; a++) for (int b = 0; b < m; b++) {{
        if (row + a < h && column + b < w) {{
            sum += filters[(((group * m + a) * m + b) * h + row) * w + column] * x[(c * h + row + a) * w + column + b];
        }}
    }}
    y[i] = sin(sum) + y[i];
}}"""
LINEAR = FILTERS.replace("sin(sum) + y[i]", "sum")


def filters(groups: int, share: int, height: int, width: int, taps: int) -> tuple[Any, ...]:
    rng, image = np.random.default_rng(2), (groups * share, height, width)
    shapes = image, (groups, taps, taps, height, width), image
    arrays = (Duplicated(rng.normal(size=s), rng.normal(size=s)) for s in shapes)
    return *arrays, int(np.prod(image)), share, height, width, taps


def test_more_digits_than_axes() -> None:
    """A thread collects for an element of each iteration of the loops that no axis has room for: for the image of the channels of a group,
    for the filters of the taps."""
    with running("reference"):
        kernels = reverse(compiled(LINEAR, "k"), 4, 32, filters(2, 2, 5, 6, 3))
    assert is_gathered(kernels) and atomics(kernels) == 0
    loops = [s for s in kernels[0].body if isinstance(s, ir.For)]
    assert [sum(isinstance(s, ir.Accumulate) for s in walk_stmts(loop.body)) for loop in loops] == [1, 1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("shape", [(2, 2, 5, 6, 3), (1, 3, 2, 7, 1), (3, 1, 4, 4, 2), (2, 2, 1, 1, 2), (1, 1, 3, 3, 5)])
def test_all_shapes_of_more_digits(shape: tuple[int, ...]) -> None:
    agree(LINEAR, -(-int(np.prod(shape[:4])) // 32) + 1, 32, lambda: filters(*shape))


SQUARE = f"""extern "C" __global__ void square(const double* w, double* u, int n) {{
    int i = {INDEX};
    if (i < n) u[i] = w[i] * w[i];
}}"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_more_digits_where_shadows_begin_as_zero(executor: str) -> None:
    """Where it does not count what is in a shadow's memory, each of a thread's elements is stored to, be it with 0."""

    def run(plain: bool) -> Any:
        with running(executor, plain=plain):
            x, used, y, *numbers = filters(2, 2, 5, 6, 3)
            weights = Duplicated(used.primal.copy(), used.shadow.copy())
            tape = gpuad.Tape()
            with tape:
                compiled(SQUARE, "square")[18, 32](weights, used, used.primal.size)
                compiled(LINEAR, "k")[4, 32](x, used, y, *numbers)
            for array in (x, used, y, weights):
                array.shadow[...] = 7.0
            seed = np.zeros_like(y.primal)
            seed[1, 2, 3] = seed[3, 4, 5] = 1.0
            tape.reverse({y: seed})
            return x.shadow, weights.shadow

    for found, right in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def test_more_digits_where_the_sum_is_used_otherwise() -> None:
    agree(FILTERS, 4, 32, lambda: filters(2, 2, 5, 6, 3))


def test_who_divides_by_what_does_not_fit_is_left() -> None:
    text = KERNEL.replace("HEAD", f"int i = {INDEX}; if (i >= n) return; int b = i / c, y = i / h % 2, x = i % w;").replace(
        "b * h + y", "y"
    )
    assert not is_gathered(stages(text))
    agree(text, 6, 32, arguments)


def test_what_holds_of_all_threads_is_not_asked() -> None:
    """Where there are no more threads than elements, a sender's number is below that of the elements; else it is asked."""
    text = KERNEL.replace("HEAD", HEADS["quotients"])
    for blocks, asked in ((6, False), (7, True)):
        with running("reference"):
            kernels = reverse(compiled(text, "k"), blocks, 32, arguments())
        assert is_gathered(kernels) and (ir.Var in {type(p) for p in kernels[0].params if p.name == "n"}) is asked
        agree(text, blocks, 32, arguments, executors=("reference",))


def test_what_all_senders_share_is_read_once() -> None:
    loop = next(s for s in walk_stmts(stages(KERNEL.replace("HEAD", HEADS["quotients"]))[0].body) if isinstance(s, ir.For))
    assert sorted(s.buffer.name for s in walk_stmts(loop.body) if isinstance(s, ir.Load)) == ["dout", "image"]


def test_questions_that_are_wrongly_left_out_are_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Sending, "surely", lambda self, term, ranges: True)
    text = INTERIOR.replace("k(", "/* of a fault */ k(")

    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        return *(Duplicated(rng.normal(size=s), rng.normal(size=s)) for s in ((7, 9), (5, 7))), 7, 9

    with running("reference"):
        assert not is_gathered(reverse(compiled(text, "k"), 2, 32, make()))
    agree(text, 2, 32, make, executors=("reference",))


def few(self: MixedRadix, count: int, number: Any) -> dict[str, int]:
    found = THREADS(self, count, number)
    return {axis: max(n - 1, 1) for axis, n in found.items()}


def many(self: MixedRadix, count: int, number: Any) -> dict[str, int]:
    found = THREADS(self, count, number)
    return {axis: n + 1 for axis, n in found.items()}


def swapped(self: _Digits, run: Any) -> ir.Expr:
    digits = dict(self.known)
    self.known = dict(zip(digits, [*list(digits.values())[1:], next(iter(digits.values()))], strict=True))
    found = WRITTEN(self, run)
    self.known = digits
    return found


def ahead(self: _Digits, run: Any) -> ir.Expr:
    return b.binary("+", WRITTEN(self, run), b.const(1, I32), I32)


THREADS, WRITTEN = MixedRadix.threads, _Digits.written


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [(MixedRadix, "threads", few), (MixedRadix, "threads", many), (_Digits, "written", swapped), (_Digits, "written", ahead)],
)
def test_planted_faults_are_not_certified(monkeypatch: pytest.MonkeyPatch, where: type, name: str, fault: Any) -> None:
    text = KERNEL.replace("HEAD", HEADS["quotients"].replace("b = ", "/* FAULT */ b = ".replace("FAULT", fault.__name__)))
    monkeypatch.setattr(where, name, fault)
    kernels = stages(text)
    assert not is_gathered(kernels)
    found = gradients(text, 6, 32, arguments, executor="reference")
    for one, right in zip(found, gradients(text, 6, 32, arguments, executor="reference", plain=False), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-12)


def test_what_would_cost_too_much_is_not_certified_in_vain() -> None:
    """A bias for each column, of few columns and many rows: it is known by digits, so that no other way is tried."""
    text = (kernel_folder() / "relu_bias.cu").read_text(encoding="utf-8")
    rows, columns = 20_000, 30
    x, bias = (Duplicated(np.ones(s), np.ones(s)) for s in (rows * columns, columns))
    args = (*(Duplicated(p.primal.astype("f"), p.shadow.astype("f")) for p in (x, bias)), columns, rows * columns)
    with running("reference"):
        kernel = compiled(text, "gelu_bias")
        call = kernel.bind(-(-rows * columns // 128), 128, args, 0, None)
        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        assert not is_gathered([s.kernel for s in pipeline.stages(adjoint, call)])
        assert not pipeline.schedule.uncertified(adjoint, call)
