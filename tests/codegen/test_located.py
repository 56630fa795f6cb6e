"""CUDA text with the user's lines: the same text, and each line after the place that it comes from."""

from __future__ import annotations

import re

import pytest
import texts
from launch_tools import CASES, shipped
from nightly import share

from gpuad.api import kernel
from gpuad.codegen.cuda import Line, cuda_source, directed, located_lines
from gpuad.ir.nodes import Barrier
from gpuad.runtime import nvrtc
from gpuad.source import SourceFile, Span

SOURCE = """__device__ float twice(float x) {
    return 2.0f * x;
}
extern "C" __global__ void f(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) {
        float a = x[i];
        y[i] = twice(a);
    } else if (i == n) {
        y[i] = x[0];
    } else {
        atomicAdd(&y[0], 1.0f);
        y[i] = 0.0f;
    }
}
"""


def located(text: str) -> list[tuple[int, str]]:
    """The lines that follow a directive, with its number."""
    found = re.findall(r'^#line (\d+) "[^"]*"\n(.*)', text, re.MULTILINE)
    return [(int(number), line.strip()) for number, line in found]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(CASES), 3))
def test_nothing_else_is_changed(name: str) -> None:
    for what, made in texts.kernels(name, "reference"):
        plain, with_lines = cuda_source([made]), cuda_source([made], located=True)
        assert "\0" not in with_lines
        assert "\n".join(line for line in with_lines.split("\n") if not line.startswith("#line")) == plain, what
        lines = shipped(name).file.text.count("\n")
        assert all(1 <= number <= lines for number, _ in located(with_lines))


def test_each_line_has_the_place_of_its_statement() -> None:
    text = cuda_source([kernel(SOURCE, "f").primal()], located=True)
    assert '#line 8 "<source>"' in text
    places = {line: number for number, line in located(text)}
    assert places["y[i] = 2.0f * x[i];"] == 8
    assert places["y[i] = x[0];"] == 10
    assert places["atomicAdd(&y[0], 1.0f);"] == 12
    assert places["y[i] = 0.0f;"] == 13
    assert places["if (i < n) {"] == 6


def test_a_line_has_the_places_of_values_that_are_printed_at_their_use() -> None:
    found = {line.text.strip(): {span.line for span in line.spans} for line in located_lines([kernel(SOURCE, "f").primal()])}
    assert found["y[i] = 2.0f * x[i];"] == {7, 8}
    assert found["y[i] = x[0];"] == {10}
    assert found["}"] == set()


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
def test_it_compiles_with_line_information() -> None:
    text = cuda_source([kernel(SOURCE, "f").primal()], located=True)
    assert b".debug_line" in nvrtc.compile_cuda(text, "sm_90", ["-lineinfo"]).data


def test_names_of_files_are_quoted() -> None:
    lines = [Line("x;", Barrier(), (Span(SourceFile('a "b"\\c.cu', ""), 3, 1),)), Line("}")]
    assert list(directed(lines)) == ['#line 3 "a \\"b\\"\\\\c.cu"', "x;", "}"]
