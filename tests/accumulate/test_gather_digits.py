"""Gathering by the digits of an index: kernels in a launch along one axis that take coordinates out of it by quotients and remainders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, reverse
from launch_tools import compiled, running

from gpuad import Duplicated, pipeline
from gpuad.api import pattern_of
from gpuad.ir import folding as b
from gpuad.ir import nodes as ir
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


def test_who_divides_by_what_does_not_fit_is_left() -> None:
    text = KERNEL.replace("HEAD", f"int i = {INDEX}; if (i >= n) return; int b = i / c, y = i / h % 2, x = i % w;").replace(
        "b * h + y", "y"
    )
    assert not is_gathered(stages(text))
    agree(text, 6, 32, arguments)


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
