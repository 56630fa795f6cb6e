"""Attacks on the certifier: kernels that nearly do what others do. What differs anywhere has no certificate, what does not has one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launch_tools import compiled

from gpuad.affine.certificate import Run, refused
from gpuad.affine.effects import Shape
from gpuad.ir.nodes import Accumulate, Block, Buffer, How
from gpuad.ir.rewrite import map_blocks

PLANE = """extern "C" __global__ void k(const double* a, const double* dy, double* dx, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < n && y < n) { BODY }
}"""
LINE = """extern "C" __global__ void k(const double* a, double* dv, double* dx, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < n) { BODY }
}"""


def reason(text: str, one: str, other: str, *, zero: bool = False) -> list[str]:
    """Why the second body has no certificate to do what the first does, both with all additions atomic; `zero`: where it stores to `dx`,
    that is 0."""
    plain, made = (compiled(text.replace("BODY", body), "k").primal() for body in (one, other))
    mine = {buffer.name: buffer for buffer in plain.buffers}

    def atomic(block: Block) -> Block:
        out = []
        for stmt in block:
            if isinstance(buffer := getattr(stmt, "buffer", None), Buffer) and buffer.name in mine:
                stmt = replace(stmt, buffer=mine[buffer.name])  # type: ignore[call-arg]
            out.append(map_blocks(replace(stmt, how=How.ATOMIC) if isinstance(stmt, Accumulate) else stmt, atomic))
        return tuple(out)

    def run(kernel: object) -> Run:
        numbers = {v: 11 for v in kernel.scalars}  # type: ignore[attr-defined]
        return Run(atomic(kernel.body), Shape((3, 3 if text == PLANE else 1, 1), (4, 4 if text == PLANE else 1, 1), numbers))  # type: ignore[attr-defined]

    shadows = [b for name, b in mine.items() if name in ("dx", "dv")]
    return list(refused(run(plain), [run(made)], shadows, {mine["dx"]: None} if zero else {}).values())


PRODUCT = "dx[y * n + x] += a[y * n + x] * dy[y * n + x];"
WRONG = {
    "transposed factor": (PLANE, PRODUCT, "dx[y * n + x] += a[x * n + y] * dy[y * n + x];"),
    "transposed seed": (PLANE, PRODUCT, "dx[y * n + x] += a[y * n + x] * dy[x * n + y];"),
    "transposed both": (PLANE, PRODUCT, "dx[y * n + x] += a[x * n + y] * dy[x * n + y];"),
    "transposed element": (PLANE, PRODUCT, "dx[x * n + y] += a[y * n + x] * dy[y * n + x];"),
    "one thread": (PLANE, PRODUCT, "dx[y * n + x] += a[y * n + x] * dy[y * n + x] * (x == 3 && y == 5 ? 1.001 : 1.0);"),
    "nothing on the diagonal": (PLANE, PRODUCT, "dx[y * n + x] += a[y * n + x] * dy[y * n + x] + (x - y) * 1e-3;"),
    "nothing at the corners": (
        PLANE,
        PRODUCT,
        "dx[y * n + x] += a[y * n + x] * dy[y * n + x] + (double)(x * (n - 1 - x) * y * (n - 1 - y)) * 1e-4;",
    ),
    "a digit more": (PLANE, "dx[y * n + x] += a[x & 7];", "dx[y * n + x] += a[x % 7];"),
    "a digit less": (PLANE, "dx[y * n + x] += a[x % 7];", "dx[y * n + x] += a[x & 7];"),
    "a clamp that is one short": (PLANE, "dx[y * n + x] += a[min(x + 2, n - 1)];", "dx[y * n + x] += a[min(x + 2, n - 2)];"),
    "a condition on data, and where": (
        PLANE,
        "if (a[x] > 0.0 && x > 2) dx[y * n + x] += a[y];",
        "if (a[x] > 0.0 && x > 2 && !(x == 7 && y == 6)) dx[y * n + x] += a[y];",
    ),
    "conditions of both sides": (
        PLANE,
        "if (x + y > 10 && x + y < 15) dx[x] += a[y];",
        "if (x + y > 10 && x + y < 15 && x != 7) dx[x] += a[y];",
    ),
    "where data are 0": (PLANE, "if (a[x] > 0.0) dx[y * n + x] += dy[x];", "if (a[x] >= 0.0) dx[y * n + x] += dy[x];"),
    "where data are equal": (PLANE, "if (a[x] > a[y]) dx[y * n + x] += dy[x];", "if (a[x] >= a[y]) dx[y * n + x] += dy[x];"),
    "a small term": (PLANE, "dx[y * n + x] += dy[x] + 1e-7 * a[x];", "dx[y * n + x] += dy[x];"),
    "an unsigned difference": (
        LINE,
        "dx[x] += exp((unsigned long long)x - 5 < 3 ? a[x] : a[x + 1]);",
        "dx[x] += exp(x - 5 < 3 ? a[x] : a[x + 1]);",
    ),
    "cleared before it is read": (LINE, "double t = dv[x]; dv[x] = 0.0; dx[x] += t;", "dv[x] = 0.0; double t = dv[x]; dx[x] += t;"),
    "an iteration in the middle": (
        LINE,
        "double s = 0; for (int k = 0; k < 10; k++) s += a[x + k]; dx[x] += exp(s);",
        "double s = 0; for (int k = 0; k < 10; k++) if (k != 5) s += a[x + k]; dx[x] += exp(s);",
    ),
    "an iteration in the middle of many": (
        LINE,
        "double s = 0; for (int k = 0; k < 30; k++) s += a[x + k]; dx[x] += exp(s);",
        "double s = 0; for (int k = 0; k < 30; k++) s += a[x + (k == 17 ? 18 : k)]; dx[x] += exp(s);",
    ),
    "a table that changes": (
        LINE,
        "double c[2] = {1.0, 2.0}; for (int k = 0; k < n; k++) { dx[x] += c[k % 2] * a[x + k]; c[0] = 5.0; }",
        "double c[2] = {1.0, 2.0}; for (int k = 0; k < n; k++) dx[x] += c[k % 2] * a[x + k];",
    ),
    "a table the other way round": (
        LINE,
        "double c[3] = {1.0, 2.0, 4.0}; for (int k = 0; k < 3; k++) dx[x] += c[k] * a[x + k];",
        "double c[3] = {1.0, 2.0, 4.0}; for (int k = 0; k < 3; k++) dx[x] += c[2 - k] * a[x + k];",
    ),
    "a table of places": (
        LINE,
        "const int d[3] = {1, 0, -1}; for (int k = 0; k < 3; k++) dx[x + 1 + d[k]] += a[x];",
        "const int d[3] = {1, 0, 0}; for (int k = 0; k < 3; k++) dx[x + 1 + d[k]] += a[x];",
    ),
    "past the end of a table": (
        LINE,
        "const int d[3] = {1, 0, -1}; for (int k = 0; k < 3; k++) dx[x + 1 + d[k]] += a[x];",
        "const int d[3] = {1, 0, -1}; for (int k = 0; k < 4; k++) dx[x + 1 + d[k]] += a[x];",
    ),
}
RIGHT = {
    "another order": (PLANE, PRODUCT, "int j = y * n + x; double d = dy[j]; dx[j] += d * a[j];"),
    "the transposed thread": (PLANE, PRODUCT, "dx[x * n + y] += a[x * n + y] * dy[x * n + y];"),
    "a digit": (PLANE, "dx[y * n + x] += a[x & 7];", "dx[y * n + x] += a[x % 8];"),
    "a table turned twice": (
        LINE,
        "double c[3] = {1.0, 2.0, 4.0}; for (int k = 0; k < 3; k++) dx[x] += c[k] * a[x + k];",
        "double c[3] = {4.0, 2.0, 1.0}; for (int k = 0; k < 3; k++) dx[x] += c[k] * a[x + 2 - k];",
    ),
    "a table written out": (
        LINE,
        "const double c[2] = {3.0, 2.0}; const int d[2] = {1, 0}; for (int k = 0; k < 2; k++) dx[x + d[k]] += c[k] * a[x];",
        "dx[x + 1] += 3.0 * a[x]; dx[x] += 2.0 * a[x];",
    ),
    "a table of zeros": (
        LINE,
        "double c[4] = {}; c[1] = 2.0; for (int k = 0; k < 4; k++) dx[x] += c[k] * a[x + k];",
        "dx[x] += 2.0 * a[x + 1];",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_same_is_refused(name: str) -> None:
    assert reason(*WRONG[name])


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_the_same_is_certified(name: str) -> None:
    assert reason(*RIGHT[name]) == []


@pytest.mark.parametrize(
    ("one", "other", "right"),
    [
        ("dx[x] += a[x]; dx[x] += a[x + 1];", "dx[x] = a[x]; dx[x] += a[x + 1];", True),
        ("dx[x] += a[x]; dx[x] += a[x + 1];", "dx[x] += a[x]; dx[x] = a[x + 1];", False),
        ("dx[x] += a[x]; dx[x] += a[x + 1];", "dx[x] = a[x]; dx[x] = a[x + 1];", False),
        ("for (int k = 0; k < 3; k++) dx[x] += a[x + k];", "for (int k = 0; k < 3; k++) dx[x] = a[x + k];", False),
        ("dx[x] += a[x]; dx[x + 1] += a[x + 1];", "dx[x] = a[x]; dx[x + 1] += a[x + 1];", False),
    ],
)
def test_stores_to_what_is_zero(one: str, other: str, right: bool) -> None:
    """A store is an addition where nothing else comes to the element before it."""
    assert (reason(LINE, one, other, zero=True) == []) == right
