"""Loops that keep one of many numbers: the iteration that counted is noted, and there is no stack of choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import cases

import gpuad
from gpuad import Duplicated, pipeline, testing

N = 7  # numbers a thread
ROWS = 5

NOTED = {
    "greatest": "float m = x[r * n]; for (int k = 1; k < n; k++) m = fmaxf(m, x[r * n + k]); y[r] = m * m;",
    "of squares": "float m = 0.1f; for (int k = 0; k < n; k++) m = fmaxf(m, x[r * n + k] * x[r * n + k]); y[r] = m;",
    "least": "float m = 9; for (int k = n - 1; k >= 0; k--) m = fminf(x[r * n + k] * w[k], m); y[r] = m * w[0];",
    "ternary": "float m = -9; for (int k = 0; k < n; k++) { float v = x[r * n + k] * w[k]; m = v > m ? v : m; } y[r] = m;",
    "last of equals": "float m = -9; for (int k = 0; k < n; k++) { if (x[r * n + k] >= m) m = x[r * n + k]; } y[r] = m * x[r * n];",
    "nearest": "float best = 9, bw = 0; for (int k = 0; k < n; k++) { float d = (x[r * n + k] - w[k]) * (x[r * n + k] - w[k]);"
    " if (k != r && d < best) { best = d; bw = w[k] * w[k]; } } y[r] = best * bw;",
    "where": "int at = 0; float m = -9; for (int k = 0; k < n; k++) { if (x[r * n + k] > m) { m = x[r * n + k]; at = k; } }"
    " y[r] = m * w[at];",
    "from a thread's number": "float m = -9; for (int k = threadIdx.x; k < n; k++) m = fmaxf(m, x[r * n + k] * w[k]); y[r] = m;",
    "unsigned": "float m = -9; for (unsigned k = 0; k < n; k++) m = fmaxf(m, x[r * n + k] * w[k]); y[r] = m;",
    "by twos": "float m = -9; for (int k = 1; k < n; k += 2) m = fmaxf(m, x[r * n + k] * w[k]); y[r] = m;",
    "in a loop": "float s = 0; for (int j = 0; j < 3; j++) { float m = -9; for (int k = 0; k < n;"
    " k++) m = fmaxf(m, x[r * n + k] * w[k] * (j + 1));"
    " s += m * m; } y[r] = s;",
    "distance in space": "float best = 99; for (int k = 0; k < n - 2; k++) { float d = 0; for (int c = 0; c < 3; c++) {"
    " float e = x[r * n + k + c] - w[c];"
    " d += e * e; } if (d < best) best = d; } y[r] = best;",
    "in place": "float m = x[r * n]; for (int k = 1; k < n; k++) m = fmaxf(m, x[r * n + k]);"
    " for (int k = 0; k < n; k++) x[r * n + k] = expf(x[r * n + k] - m) * w[k]; y[r] = m;",
    "two loops": "float m = -9; for (int a = 0; a < n / 3; a++) for (int k = 3 * a; k < 3 * a + 3; k++) m = fmaxf(m, x[r * n + k] * w[k]);"
    " y[r] = m * m;",
    "a box": "float m = -9; for (int a = r / 2; a < r; a++) for (int k = r % 3; k < n - a; k++) if (x[a * n + k] > m) m = x[a * n + k];"
    " y[r] = m;",
    "three loops": "float m = 9; for (int a = 0; a < r; a++) for (int h = 0; h < n; h += 3) for (int k = h; k < min(h + 3, n); k++)"
    " m = fminf(m, x[a * n + k] * w[k]); y[r] = m;",
    "by pointers": "float m = -9; const float* p = x + r * n; for (int a = 0; a < r; a++) for (int k = 0; k < 1 + (int)w[0]; ++k, ++p)"
    " if (*p > m) m = *p; y[r] = m;",
    "of nothing": "float m = w[r]; for (int k = n; k < n; k++) m = fmaxf(m, x[r * n + k]); y[r] = m * m;",
}  # fmt: skip

OTHERS = {
    "with a sum": "float m = -9, s = 0; for (int k = 0; k < n; k++) { m = fmaxf(m, x[r * n + k]); s += x[r * n + k] * w[k];"
    " } y[r] = m * s;",
    "decays": "float m = x[r * n]; for (int k = 1; k < n; k++) m = fmaxf(m * 0.9f, x[r * n + k]); y[r] = m;",
    "clamped sum": "float s = 0; for (int k = 0; k < n; k++) s = fmaxf(s + x[r * n + k], 0.1f); y[r] = s * w[0];",
    "sum of the positive": "float s = 0; for (int k = 0; k < n; k++) { if (x[r * n + k] > 0) s += x[r * n + k] * w[k]; } y[r] = s;",
    "two greatest": "float a = -9, b = -9; for (int k = 0; k < n; k++) { float v = x[r * n + k]; if (v > a) { b = a; a = v;"
    " } else if (v > b) b = v; }"
    " y[r] = a * b * w[0];",
    "until": "float m = -9; int k = 0; while (k < n && m < 0.5f) { m = fmaxf(m, x[r * n + k]); k++; } y[r] = m * w[0];",
    "half of it": "float m = 0; for (int k = 0; k < n; k++) { if (x[r * n + k] > m) m = 0.5f * (m + x[r * n + k]); } y[r] = m * w[0];",
    "two dimensions": "float m = -9; for (int i = 0; i < 2; i++) for (int k = 0; k < 3;"
    " k++) m = fmaxf(m, x[r * n + 3 * i + k] * w[k]); y[r] = m;",
    "and elsewhere": "float m = 0.1f; for (int k = 0; k < n; k++) { float v = x[r * n + k]; if (v > m) m = v;"
    " else y[r] += v * w[k]; } y[r] *= m;",
    "all, if": "float m = 0.1f; for (int k = 0; k < n; k++) { float v = x[r * n + k]; if (v > m) { m = v; y[r] += v * w[k]; } } y[r] *= m;",
    "backward steps": "float m = 0; for (int k = n - 1; k >= 0; k -= 3) m = fmaxf(m, x[r * n + k]); y[r] = m * w[0];",
}  # fmt: skip


def kernel(body: str) -> gpuad.Kernel:
    text = f"""extern "C" __global__ void k(float* x, const float* w, float* y, int n) {{
        int r = blockIdx.x * blockDim.x + threadIdx.x;
        if (r < {ROWS}) {{ {body} }}
    }}"""
    return gpuad.kernel(text, "k")


def given() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=ROWS * N).astype(np.float32), rng.normal(size=N).astype(np.float32), np.ones(ROWS, np.float32), N]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", [*NOTED, *OTHERS])
def test_gradient(executor: Any, name: str) -> None:
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(kernel((NOTED | OTHERS)[name]), given(), grid=3, block=2)


def reverse_text(body: str) -> str:
    return kernel(body).adjoint(x=Duplicated, w=Duplicated, y=Duplicated).source


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", NOTED)
def test_there_is_no_stack_of_choices(name: str) -> None:
    text = reverse_text(NOTED[name])
    assert "choice" not in text and "_count(" not in text


def test_the_text() -> None:
    text = reverse_text(NOTED["of squares"])
    assert "m_at = " in text and "if (m_at >= 0 && m_at < n) {" in text


def test_iterations_that_are_one_are_gone_straight_to() -> None:
    """Also those that the user wrote so."""
    body = "int j = (int)w[0]; for (int k = 1; k < n; k += 2) { if (k == j) y[r] += x[r * n + k] * x[r * n + k]; }"
    x, w, y, _ = given()
    for j in range(-2, 12):
        w[0] = j + 0.5
        testing.check_gradient(kernel(body), [x, w, y, N], grid=3, block=2)
    assert "% 2 == 0" in reverse_text(body) and "k < n" not in reverse_text(body)


def gradient(body: str, x: Any, w: Any) -> Any:
    y, dx, dy = np.ones(ROWS, np.float32), np.zeros_like(x), np.ones(ROWS, np.float32)
    gpuad.autodiff(kernel(body), 3, 2, (Duplicated(x.copy(), dx), w, Duplicated(y, dy), N))
    return dx.reshape(ROWS, N)


def test_equal_numbers_give_all_to_one_of_them(executor: Any) -> None:
    x, w = np.ones(ROWS * N, np.float32), np.ones(N, np.float32)
    with pipeline.executor_for_tests(executor):
        first = gradient("float m = -9; for (int k = 0; k < n; k++) m = fmaxf(m, x[r * n + k]); y[r] = m;", x, w)
        last = gradient("float m = -9; for (int k = 0; k < n; k++) { if (x[r * n + k] >= m) m = x[r * n + k]; } y[r] = m;", x, w)
    assert (first == np.eye(N)[0]).all() and (last == np.eye(N)[-1]).all()


def test_what_is_no_number_and_what_is_infinite(executor: Any) -> None:
    """A NaN is passed over, and an infinite number that was not kept spoils nothing."""
    x, w = np.linspace(0, 1, ROWS * N, dtype=np.float32), np.ones(N, np.float32)
    x[2::N], x[4::N] = np.nan, -np.inf
    wanted = np.zeros((ROWS, N), np.float32)
    wanted[:, -1] = 2 * x.reshape(ROWS, N)[:, -1]
    with pipeline.executor_for_tests(executor):
        found = gradient("float m = 0; for (int k = 0; k < n; k++) m = fmaxf(m, x[r * n + k]); y[r] = m * m;", x, w)
        squares = gradient("float m = 9; for (int k = 0; k < n; k++) m = fminf(m, 1 - x[r * n + k] * w[k]); y[r] = m;", x, w)
    assert np.allclose(found, wanted)
    assert np.allclose(squares, -np.eye(N)[-1])


def test_the_second_derivative(executor: Any) -> None:
    body = "float m = 0.1f; for (int k = 0; k < n; k++) m = fmaxf(m, x[r * n + k] * x[r * n + k] * x[r * n + k]); y[r] = m;"
    x, w, y, _ = given()
    x += 1.5 - x.reshape(ROWS, N).max(1).min()  # the greatest of each row is above 0.1
    primal, seed = Duplicated(x, np.zeros_like(x)), Duplicated(y, np.ones_like(y))
    direction, other = Duplicated(np.ones_like(x), np.zeros_like(x)), Duplicated(np.zeros_like(y), np.zeros_like(y))
    with pipeline.executor_for_tests(executor):
        gpuad.hvp(kernel(body), 3, 2, (primal, w, seed, N), (direction, None, other, None))
    rows = x.reshape(ROWS, N)
    wanted = 6 * rows * (rows == rows.max(1, keepdims=True))
    assert np.allclose(direction.shadow.reshape(ROWS, N), wanted, rtol=1e-5)


def updates(rng: np.random.Generator) -> str:
    """A loop of random updates of two numbers, of which some keep one of many."""
    values = ["x[r * n + k]", "x[r * n + k] * w[k]", "x[r * n + k] * x[r * n + k]", "(x[r * n + k] - w[k])", "m * 0.5f", "s"]
    lines = []
    for _ in range(rng.integers(1, 4)):
        target, other = rng.permutation(["m", "s"])
        value = rng.choice(values)
        lines.append(
            rng.choice(
                [
                    f"{target} = fmaxf({target}, {value});",
                    f"{target} = fminf({value}, {target});",
                    f"if ({value} > {target}) {target} = {value};",
                    f"if ({value} < {target} && k != r) {{ {target} = {value}; {other} = {rng.choice(values)}; }}",
                    f"{target} = {value} > {target} ? {value} : {target};",
                    f"{target} += {value};",
                    f"if (k > 2) {target} = fmaxf({target}, {value}); else {other} += {value};",
                ]
            )
        )
    head = rng.choice(
        ["int k = 0; k < n; k++", "int k = n - 1; k >= 0; k--", "int k = 1; k < n; k += 2", "int k = threadIdx.x; k < n; k++"]
    )
    return f"float m = x[r * n], s = 0.3f; for ({head}) {{ {' '.join(lines)} }} y[r] = m * s;"


@pytest.mark.parametrize("seed", range(cases(4, 40)))
def test_random_updates(seed: int) -> None:
    testing.check_gradient(kernel(updates(np.random.default_rng(seed))), given(), grid=3, block=2)
