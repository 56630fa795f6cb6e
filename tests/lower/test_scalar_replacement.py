"""Arrays of a thread whose indices are all numbers are variables: the same values and gradients as with the arrays, and less text."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from launch_tools import running
from nightly import cases

import gpuad
from gpuad import Active, Duplicated, api
from gpuad.ir.nodes import Alloc, Kernel
from gpuad.ir.rewrite import walk_stmts
from gpuad.lower import normalize
from gpuad.testing import check_gradient

COUNT = 12


def arrays_of(text: str) -> list[str]:
    """The arrays that are left in the primal of a kernel `k`."""
    return [s.buffer.name for s in walk_stmts(api.kernel(text, "k").primal().body) if isinstance(s, Alloc)]


def kernel(body: str, before: str = "") -> str:
    return (
        f"{before}\n"
        'extern "C" __global__ void k(const double* x, double* y, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) return;\n"
        f"{body}\n}}"
    )


# --- each form of control flow -------------------------------------------------------------------------------------------------------

BODIES = {
    "in line": "double a[3] = {x[i], 2.0}; a[2] = a[0] * a[1]; a[0] = sin(a[2]); y[i] = a[0] * a[2] + a[1];",
    "one side": "double a[2] = {x[i], 1.0}; if (x[i] > 0.0) { a[1] = a[0] * a[0]; } y[i] += a[1] * a[0];",
    "both sides": "double a[2]; if (x[i] > 0.0) { a[0] = x[i]; a[1] = 2.0; } else { a[1] = x[i]; a[0] = 3.0; } y[i] = a[0] * a[1] * a[1];",
    "loop": "double a[2] = {1.0, x[i]}; for (int t = 0; t < i % 4; t++) { a[1] *= a[0]; a[0] = sin(a[1]); } y[i] = a[0] * a[1];",
    "array in a loop": "double s = 1.0; for (int t = 0; t < 3; t++) { double a[2]; a[0] = s * x[i]; a[1] = a[0]; s *= a[1]; } y[i] = s;",
    "sums": "double a[2] = {}; for (int t = 0; t < 4; t++) { a[0] += x[t] * x[i]; a[1] += x[t]; } y[i] = a[0] * a[1];",
    "while": "double a[1] = {x[i]}; int t = 0; while (a[0] < 3.0 && t < 9) { a[0] = 1.5 * a[0] + 0.5; t++; } y[i] = a[0] * t;",
    "break": "double a[2] = {x[i], 0.0}; for (int t = 0; t < 6; t++) { if (a[0] > 2.0) break; a[1] += a[0] * a[0]; a[0]++; } y[i] = a[1];",
    "return": "double a[2] = {x[i], 2.0}; if (i % 3 == 0) { y[i] = a[0]; return; } a[1] *= a[0]; y[i] = a[1];",
    "pointer": "double a[3] = {x[i], 2.0, 3.0}; double* p = a + 1; p[1] = p[-1] * p[0]; *p = p[1]; y[i] = a[1] * a[2];",
    "one of two": "double a[2] = {x[i], 2.0}, b[2] = {1.0, x[i]}; double* p = i % 2 ? a : b; p[0] = p[1] * p[1]; y[i] = a[0] * b[0];",
    "helper": "double v[3] = {x[i], 2.0, 0.0}; product(v, v + 1); y[i] = v[2];",
    "matrix": "double r[2][2] = {{x[i], 1.0}, {2.0, x[i]}}; y[i] = r[0][0] * r[1][1] - r[0][1] * r[1][0];",
    "struct": "Pair p = {{x[i], 2.0}, 3.0}; Pair q = p; q.v[1] *= q.v[0]; p = q; y[i] = p.v[1] * q.v[0] * p.f;",
    "integers": "int at[2] = {i, n - 1 - i}; double a[2] = {x[at[0]], x[at[1]]}; at[0] = at[1]; y[at[0]] = a[0] * a[1];",
    "half of it unwritten": "double a[2]; if (x[i] > 0.0) a[1] = x[i]; if (x[i] > 0.0) y[i] = a[1] * a[1];",
}
BEFORE = """struct Pair { double v[2]; double f; };
__device__ void product(double* v, const double* w) { v[2] = v[0] * w[0]; v[0] = v[2]; }"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize("name", BODIES)
def test_elements_are_variables(name: str, executor: str) -> None:
    text = kernel(BODIES[name], BEFORE)
    assert arrays_of(text) == []
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, COUNT), rng.normal(0, 1, COUNT)
    with running(executor):
        assert check_gradient(gpuad.kernel(text, "k"), (Duplicated(x), Duplicated(y), COUNT), grid=2, block=8).passed


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("double a[3] = {x[i], 1.0, 2.0}; y[i] = a[i % 3];", "a"),
        ("double a[3]; for (int t = 0; t < 3; t++) a[t] = x[i] * t; y[i] = a[2];", "a"),
        ("double a[2] = {x[i], 1.0}, b[2] = {x[i], 2.0}; y[i] = a[0] * b[i % 2];", "b"),
    ],
)
def test_an_array_with_another_index_stays(body: str, left: str) -> None:
    assert arrays_of(kernel(body)) == [left]


def test_an_index_beyond_the_array_is_still_found() -> None:
    with pytest.raises(gpuad.GpuadError, match="a"):
        check_gradient(
            gpuad.kernel(kernel("double a[2] = {x[i], 1.0}; y[i] = a[0] + a[2];"), "k"), (np.ones(4), np.ones(4), 4), grid=1, block=4
        )


def test_arrays_of_a_struct_by_value_are_its_numbers() -> None:
    text = """struct P { float w[3]; int n; };
extern "C" __global__ void k(P p, const float* x, float* y) {
    int i = threadIdx.x;
    if (i < p.n) y[i] = p.w[0] + x[i] * (p.w[1] + x[i] * p.w[2]);
}"""
    k = gpuad.kernel(text, "k")
    reverse = k.adjoint(p=Active, x=gpuad.Const, y=Duplicated).source.split("void k_reverse")[1]
    assert set(re.findall(r"\w+\[", reverse)) <= {"x[", "dy[", "dp_w_0[", "dp_w_1[", "dp_w_2["}
    p = np.zeros((), np.dtype([("w", np.float32, 3), ("n", np.int32)]))
    p["w"], p["n"] = [0.5, -1.0, 2.0], 5
    assert check_gradient(k, (p, np.linspace(0, 1, 5, dtype=np.float32), np.zeros(5, np.float32)), grid=1, block=8).passed


# --- random bodies, beside the same with arrays --------------------------------------------------------------------------------------


class Writer:
    """Random statements on arrays a[3], b[2] and a number s, each with a value from the beginning, all indices numbers."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.number = itertools.count()

    def term(self) -> str:
        return self.r.choice(["a[0]", "a[1]", "a[2]", "b[0]", "b[1]", "s", "x[i]", "0.5"])

    def expr(self) -> str:
        one, other = self.term(), self.term()
        return self.r.choice([f"sin({one})", f"0.5 * {one} * cos({other})", f"{one} - 0.3 * {other}", f"{one} / (1.5 + {other} * {other})"])

    def target(self) -> str:
        return self.r.choice(["a[0]", "a[1]", "a[2]", "b[0]", "b[1]", "s"])

    def condition(self) -> str:
        return self.r.choice([f"{self.term()} > 0.2", f"i % {self.r.randint(2, 3)} == 0"])

    def block(self, depth: int, in_loop: bool = False) -> str:
        return "{ " + " ".join(self.statement(depth, in_loop) for _ in range(self.r.randint(1, 4))) + " }"

    def statement(self, depth: int, in_loop: bool) -> str:
        kind = self.r.choice(["set", "set", "add", "swap", "own", "if", "if", "for", "while", "leave"] if depth else ["set", "add", "swap"])
        t = f"t{next(self.number)}"
        match kind:
            case "set":
                return f"{self.target()} = {self.expr()};"
            case "add":
                return f"{self.target()} += {self.expr()};"
            case "swap":
                return f"{{ double {t} = a[0]; a[0] = b[1]; b[1] = {t}; }}"
            case "own":
                return f"{{ double c[2] = {{{self.expr()}, {self.term()}}}; c[0] *= c[1]; {self.target()} = c[0] + c[1]; }}"
            case "if":
                other = f" else {self.block(depth - 1, in_loop)}" if self.r.random() < 0.5 else ""
                return f"if ({self.condition()}) {self.block(depth - 1, in_loop)}{other}"
            case "for":
                return f"for (int {t} = 0; {t} < {self.r.choice(['3', 'i % 4', '2'])}; {t}++) {self.block(depth - 1, True)}"
            case "while":
                return f"{{ int {t} = 0; while ({self.term()} < 0.7 && {t}++ < 3) {self.block(depth - 1, True)} }}"
        if in_loop:
            return f"if ({self.condition()}) {self.r.choice(['break', 'continue'])};"
        return f"if ({self.condition()}) {{ y[i] = {self.term()}; return; }}"

    def text(self) -> str:
        lines = " ".join(self.statement(3, False) for _ in range(6))
        begin = "double a[3] = {x[i], 0.3, 0.7}, b[2] = {0.9, x[n - 1 - i]}; double s = 0.1;"
        return kernel(f"{begin} {lines} y[i] = a[0] + a[1] * b[0] + s * b[1] + a[2];")


def outcome(text: str) -> tuple[bytes, np.ndarray]:
    """The primal's result, and the gradient."""
    k = gpuad.kernel(text, "k")
    rng = np.random.default_rng(5)
    x, y, seed = rng.normal(0, 1, COUNT), rng.normal(0, 1, COUNT), rng.normal(0, 1, COUNT)
    left = y.copy()
    k((2,), (8,), (x, left, COUNT))
    dx, dy = np.zeros(COUNT), seed
    gpuad.autodiff(k, (2,), (8,), (Duplicated(x, dx), Duplicated(y, dy), COUNT))
    return left.tobytes(), np.concatenate([dx, dy])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("seed", range(cases(4, 16)))
def test_random_bodies_give_what_they_give_with_arrays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Writer(seed).text()
    assert arrays_of(text) == []
    with running("reference"):
        primal, gradient = outcome(text)
        monkeypatch.setattr(normalize, "replace_aggregates", _unchanged)
        again = text + "\n// with arrays\n"
        assert arrays_of(again) != []
        expected = outcome(again)
    assert primal == expected[0]
    assert np.allclose(gradient, expected[1], rtol=1e-11, atol=1e-12)


def _unchanged(made: Kernel) -> Kernel:
    return made
