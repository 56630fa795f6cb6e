"""The CPU's loop over a row: in its middle nothing wraps, what a row has in common is computed once, small local arrays are variables."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import texts
from launch_tools import running

import gpuad
from gpuad import api, pipeline
from gpuad.api import pattern_of
from gpuad.codegen.cpu import source
from gpuad.codegen.cpu.source import host_source
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Accumulate, Alloc, Block, How, Kernel, Stmt
from gpuad.ir.rewrite import edit, walk_stmts
from gpuad.ir.verify import verify
from gpuad.optimize.scalar_replacement import unroll_local_arrays
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

WIDTH = 64
HEAD = "const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y; if (x >= w) return;"
PLAIN_INSIDE = {
    "periodic": "V = u[(x + 1 + n) % n] - 2.0f * u[(x - 1 + n) % n];",
    "pushed": "if (x < n) v[y * 64 + (x + 1) % n] = u[x];",
    "a remainder": "V = u[(x + 3) % n];",
    "a remainder of what may be negative": "V = u[(x - 5) % n + 8];",
    "unsigned": "unsigned int m = n, i = x; V = u[(i + m - 1u) % m] + u[(i + 1u) % m];",
    "chosen": "int l = x == 0 ? n - 1 : x - 1, r = n - 1 == x ? 0 : x + 1; V = u[l] - 3.0f * u[r & 63];",
    "not chosen": "int l = x != 0 ? x - 1 : n - 1; V = u[l] + u[x >= n ? x / 2 : x];",
    "clamped": "V = u[max(x - 1, 0)] + u[min(x + 1, n - 1)] + u[min(max(x - 3, 0), n - 1)];",
    "mended": "int l = x - 1; if (l < 0) l += n; int r = x + 2; if (r >= n) r = r % n; V = u[l] - u[r];",
    "after a constant": "V = u[x < 3 ? x + 7 : x - 3] * u[x <= 5 ? 5 : x] + u[2 > x ? 1 : 2];",
}
AS_IT_IS = {
    "with a factor": "V = u[(2 * x + 1) % n];",
    "backwards": "V = u[(64 - x) % n];",
    "with data": "V = u[(x + index[x]) % n];",
    "another sum": "V = u[(x + w + n) % n];",
    "by data": "V = u[x % (index[x] + 1)];",
    "of the row": "V = u[(y + 1) % n + x / 4] + u[(y * w + 3) / n];",
}
APART = {
    "a table": "const int e[3] = {0, 1, -1}; float s = 0.0f; for (int k = 0; k < 3; ++k) s += e[k] * u[x + k]; V = s;",
    "sums": "float s[2] = {1.0f, 2.0f}; for (int k = 0; k < 6; ++k) s[k % 2] += u[x + k]; V = s[0] * s[1];",
    "from the last to the first": "float t[4]; for (int k = 3; k >= 0; --k) t[k] = u[x + k] * k; V = t[0] + t[1] * t[3] - t[2];",
    "shifted": "float t[3] = {u[x], u[x + 1], u[x + 2]}; for (int k = 0; k < 4; ++k) { float s = t[0]; t[0] = t[1]; t[1] = t[2]; "
    "t[2] = s + k; } V = t[0] + 2.0f * t[1] + 3.0f * t[2];",
    "loops in loops": "float t[4]; for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) t[2 * i + j] = u[x + i] * u[x + j]; "
    "float s = 0.0f; for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) s += t[2 * j + i] * (i + 1); V = s;",
    "asked for the iteration": "float t[3]; for (int k = 0; k < 3; ++k) { if (k > 1) t[k] = u[x]; else { float r = u[x + 1]; "
    "t[k] = r * k; } } V = t[0] + t[1] + t[2];",
    "read where it is not certain": "float t[2] = {u[x], u[x + 1]}; if (index[x] > 2) V = t[1]; else V = t[0];",
    "made in a branch": "if (index[x] > 2) { float t[2] = {u[x], 2.0f}; for (int k = 0; k < 2; ++k) t[k] *= 3.0f; V = t[0] + t[1]; }",
    "in a loop that stays": "float s = 0.0f; for (int j = 0; j < n; ++j) { float t[2]; for (int k = 0; k < 2; ++k) t[k] = u[j + k]; "
    "s += t[0] * t[1]; } V = s;",
}
ASSIGNED = {
    "stored to where it is not certain": "float t[2] = {1.0f, 2.0f}; if (index[x] > 2) t[0] = u[x]; float s = 0.0f; "
    "for (int k = 0; k < 2; ++k) s += t[k]; V = s;",
    "of a loop of any length": "float t[2] = {1.0f, 2.0f}; for (int k = 0; k < n; ++k) t[0] += u[k]; float s = 0.0f; "
    "for (int k = 0; k < 2; ++k) s += t[k]; V = s;",
    "of a while": "float t[2] = {1.0f, 2.0f}; int k = 0; while (u[k] < 20.0f) { t[1] += u[k]; ++k; } float s = 0.0f; "
    "for (int j = 0; j < 2; ++j) s += t[j]; V = s;",
    "the state of a step": "float t[2] = {u[x], 0.5f}, d[2], q[2]; for (int k = 0; k < n; ++k) { for (int j = 0; j < 2; ++j) "
    "d[j] = t[1 - j] * u[k]; for (int j = 0; j < 2; ++j) { q[j] = t[j] + 0.1f * d[j]; t[j] = q[j]; } } V = t[0] + t[1];",
    "kept for the next step": "float t[2], s = 0.0f; for (int k = 0; k < n; ++k) { for (int j = 0; j < 2; ++j) { if (k > 0) s += t[j]; "
    "t[j] = u[x] * k + j; } } V = s;",
}
WHOLE = {
    "found by data": "float t[3] = {1.0f, 2.0f, 3.0f}; V = t[index[x] % 3];",
    "found by data, in a loop": "float t[3] = {1.0f, 2.0f, 3.0f}; for (int k = 0; k < n; ++k) t[index[k] % 3] += u[k]; V = t[0];",
    "long": "float t[80]; for (int k = 0; k < 80; ++k) t[k] = u[k & 31]; float s = 0.0f; for (int k = 0; k < 80; ++k) s += t[k]; V = s;",
}
ALL = {**PLAIN_INSIDE, **AS_IT_IS, **APART, **ASSIGNED, **WHOLE}
PARAMETERS = "const float* u, float* v, const int* index, int n, int w"


@cache
def made(name: str) -> Kernel:
    number = list(ALL).index(name)
    text = f'#define V v[y * 64 + x]\nextern "C" __global__ void k{number}({PARAMETERS}) {{ {HEAD} {ALL[name]} }}'
    return primal_of(parse(SourceFile("inside.cu", text)).kernel(f"k{number}"))


@cache
def host() -> Host:
    """All kernels, compiled at once."""
    executor = Host()
    executor.prepare([made(name) for name in ALL])
    return executor


def result(executor: Any, kernel: Kernel, n: int, w: int, grid: tuple[int, int], block: tuple[int, int]) -> Any:
    u, v = np.arange(2 * WIDTH, dtype=np.float32) + 0.5, np.full(WIDTH * 8, -1.0, np.float32)
    index = (np.arange(WIDTH, dtype=np.int32) * 7) % 5
    executor.launch(kernel, (*grid, 1), (*block, 1), [Memory(u), Memory(v), Memory(index), np.int32(n), np.int32(w)])
    return v


@pytest.mark.parametrize("name", ALL)
def test_what_the_cpu_computes_is_what_the_reference_computes(name: str) -> None:
    shapes = (
        (40, 40, (2, 1), (32, 1)),
        (33, 33, (2, 2), (32, 2)),
        (1, 30, (1, 1), (32, 1)),
        (2, 20, (5, 3), (4, 1)),
        (5, 40, (1, 1), (64, 1)),
    )
    for n, w, grid, block in (*shapes, (64, 9, (1, 4), (9, 1)), (7, 1, (1, 1), (1, 1))):
        got, wanted = (result(e, made(name), n, w, grid, block) for e in (host(), Reference()))
        assert np.array_equal(got, wanted), (n, w, grid, block)


@pytest.mark.parametrize("name", [*PLAIN_INSIDE, *AS_IT_IS])
def test_the_loop_over_a_row_is_split_where_nothing_wraps(name: str) -> None:
    text = host_source([made(name)])
    assert ("gpuad_inner" in text) == (name in PLAIN_INSIDE)
    if name in PLAIN_INSIDE:
        middle = text[text.index("gpuad_inner") : text.index("static void gpuad_rows")]
        assert "gpuad_rem" not in middle and "max(" not in middle and "min(" not in middle and "?" not in middle


def test_extents_so_large_that_a_sum_with_them_wraps_have_no_inside() -> None:
    assert "if (!(n <= 1073741824)) gpuad_high = gpuad_low;" in host_source([made("periodic")])
    assert "1073741824" not in host_source([made("a remainder")])


def test_what_a_row_has_in_common_is_divided_once() -> None:
    text = host_source([made("of the row")])
    body = text[text.index("gpuad_body") : text.index("static void gpuad_rows")]
    assert "gpuad_rem" not in body and "gpuad_div" not in body and text.count("gpuad_rem<int>(") == 1 and text.count("gpuad_div<int>(") == 1


@pytest.mark.parametrize("name", [*APART, *ASSIGNED, *WHOLE])
def test_which_local_arrays_become_variables(name: str) -> None:
    for assigned in (False, True):
        taken = unroll_local_arrays(made(name), assigned)
        verify(taken)
        stay = name in WHOLE or (name in ASSIGNED and not assigned)
        assert any(isinstance(s, Alloc) for s in walk_stmts(taken.body)) == stay
    at_once = re.search(r"GPUAD_(?:INDEPENDENT|LANES|FLOATS|DOUBLES)\n +for", host_source([made(name)]))
    assert bool(at_once) == (name != "found by data")  # where there is a loop, every lane has an array of its own


def test_variables_that_belong_to_an_iteration_are_its_own() -> None:
    """Those of the steps between; what the loop carries is declared before it."""
    text = host_source([made("the state of a step")])
    assert set(re.findall(r"float (\w+)\[64\];", text)) == {"t", "t_2"}
    assert "float t_2[64];" in host_source([made("kept for the next step")])


TRUTHS = {
    "compared": "V = u[2 * y + (u[x] > 8.0f)];",
    "chosen": "V = u[2 * y + (u[x] > 8.0f ? 0 : 1)];",
    "negated": "V = u[3 * y + !index[x]];",
    "of the index": "V = u[(x - 7 >= -2 ? 0 : 1) & 127];",
    "met": "int k = 1; if (u[x] > 8.0f) k = 0; V = u[y * 3 + k];",
    "named": "const bool b = u[x] > 8.0f && index[x] > 2; const int k = b; v[y * 64 + 2 * (x / 2) + k] = 1.0f;",
}


@pytest.mark.parametrize("name", TRUTHS)
def test_subscripts_made_of_truth_values(name: str) -> None:
    """Which g++ 12 computes wrongly for several threads at once."""
    text = f'#define V v[y * 64 + x]\nextern "C" __global__ void t({PARAMETERS}) {{ {HEAD} {TRUTHS[name]} }}'
    kernel = primal_of(parse(SourceFile("truths.cu", text)).kernel("t"))
    got, wanted = (result(e, kernel, 5, 40, (2, 3), (32, 1)) for e in (Host(), Reference()))
    assert np.array_equal(got, wanted)
    assert "[gpuad_hidden(" in host_source([kernel])


# --- with sums over threads --------------------------------------------------------------------------------------------------------------

SUMMED = """extern "C" __global__ void k(const double* u, double* v, double a, double b,
                                               int n, int w) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * w;
    if (x >= n) return;
    const double here = u[row + x];
    v[row + (x + 1 + n) % n] = a * here * here + sin(b * here);
    v[(gridDim.y + blockIdx.y) * w + (x - 1 + n) % n] = b / (2.0 + here);
}"""


def summed(executor: str, n: int) -> tuple[Any, ...]:
    """Gradients of a periodic shift for its field and two numbers: random seeds, rows of n."""
    rng, rows, w = np.random.default_rng(n), 3, n + 2
    u, v = (gpuad.Duplicated(rng.standard_normal((k * rows, w)), np.zeros((k * rows, w))) for k in (1, 2))
    v.shadow[...] = rng.standard_normal(v.shape)
    a, b = (gpuad.Active(value, np.zeros(())) for value in (0.7, 1.3))
    with running(executor):
        gpuad.autodiff(gpuad.kernel(SUMMED, "k"), (n // 32 + 1, rows), 32, (u, v, a, b, n, w))
    return u.shadow, v.shadow, a.shadow, b.shadow


@pytest.mark.one_of(3)
@pytest.mark.parametrize("n", [1, 2, 5, 33, 34, 35, 64, 66, 97, 130])
def test_threads_that_add_to_sums_are_split_where_nothing_wraps(n: int) -> None:
    """Each thread's contribution counts once, wherever strips begin and end."""
    for got, wanted in zip(summed("host", n), summed("reference", n), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


def reverse_of_summed() -> Kernel:
    u, v = gpuad.Duplicated(np.ones((3, 42))), gpuad.Duplicated(np.ones((6, 42)))
    k = api.kernel(SUMMED, "k")
    call = k.bind((2, 3), 32, (u, v, gpuad.Active(0.7, np.zeros(())), gpuad.Active(1.3, np.zeros(())), 40, 42), 0, None)
    (stage,) = pipeline.stages(k.reverse_for(pattern_of(k, call), call), call)
    return stage.kernel


def inner_of(text: str) -> str:
    return text[text.index("gpuad_inner") : text.index("static void gpuad_rows")]


def test_the_text_has_strips_in_the_middle_of_a_row() -> None:
    text = host_source([reverse_of_summed()])
    assert "gpuad_rem" not in inner_of(text) and "gpuad_sum1 =" in inner_of(text)
    assert re.search(r"GPUAD_INDEPENDENT\n.*\n.*\n +double gpuad_sum0 = 0;\n +double gpuad_sum1 = 0;\n +gpuad_inner_k_reverse", text)


def test_two_sums_to_one_element_stay_sums() -> None:
    """Elements that a thread adds to twice wait in a variable, but not those that all threads add to."""
    kernel = reverse_of_summed()
    first, second = (s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Accumulate) and s.how is How.REDUCED)

    def to_one(stmt: Stmt) -> Block | None:
        return (replace(stmt, buffer=first),) if isinstance(stmt, Accumulate) and stmt.buffer == second else None

    inner = inner_of(host_source([replace(kernel, body=edit(kernel.body, to_one))]))
    assert "gpuad_sum0 =" in inner and "gpuad_sum1 =" in inner and f"{first.name}[0] =" not in inner


def test_what_is_not_taken_leaves_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elements of `channel` would wait in variables where a row says that they are apart; that makes no vectors of it, and is left."""
    kernel = dict(texts.kernels("channel", "host"))["host-reverse-0"]
    found = host_source([kernel])
    monkeypatch.setattr(source, "promote_registers", lambda inner: None)
    assert host_source([kernel]) == found
