"""Forward values that follow from what a launch leaves in memory: what a loop carries and stores, numerators of divisions in place, and the
place of an extremum that is kept in memory. The reverse saves nothing for them, and its gradient is that of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, pipeline
from gpuad.testing import check_gradient

N, STEPS = 6, 5
SOURCE = r"""
#define K extern "C" __global__ void
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define F for (int t = 0; t < steps; ++t)

K rows(real* x, real a, int steps, int n) {
    I; real* line = x + i * steps; real y1 = 0, y2 = 0;
    F { real y = line[t] + a * y1 - (real)0.3 * y2 * y2; line[t] = y; y2 = y1; y1 = y; }
}
K columns(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; F { y = a * y * y + x[t * n + i]; x[t * n + i] = y; }
}
K pitched(real* x, real a, int pitch, int steps, int n) {
    I; real y = (real)0.5; F { y = a * y * y + x[t * pitch + i]; x[t * pitch + i] = y; }
}
K backwards(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; for (int t = steps - 1; t >= 0; t--) { y = a * y * y + x[t * n + i]; x[t * n + i] = y; }
}
K in_twos(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; for (int t = 1; t < steps; t += 2) { y = a * y * y + x[t * n + i]; x[t * n + i] = y; }
}
K by_pointer(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; real* p = x + i; F { y = a * y * y + *p; *p = y; p += n; }
}
K beside(real* x, real* out, real a, int steps, int n) {
    I; real y = x[i]; F { y = a * y * y; out[t * n + i] = y; }
}
K overwritten(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; F { y = a * y * y + x[t * n + i]; x[t * n + i] = y; } x[n + i] *= (real)0.5;
}
K one_place(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; F { y = a * y * y + x[t * n + i]; x[i] = y; }
}
K branches(real* x, real a, int steps, int n) {
    I; real y = (real)0.5; F { y = a * y * y + x[t * n + i]; if (t % 2) x[t * n + i] = y; }
}
K turned(real* x, real a, int steps, int n) {
    I; real sign = 1, sum = 0; F { sum += sign * x[t * n + i] * x[t * n + i]; sign = -sign; } x[i] = sum * a;
}
K turned_active(real* x, real a, int steps, int n) {
    I; real v = a, sum = 0; F { sum += v * v * x[t * n + i]; v = -v; } x[i] = sum;
}
K softmax(real* x, int steps, int n) {
    I; real* row = &x[i * steps]; real largest = row[0], sum = 0;
    for (int k = 1; k < steps; k++) largest = max(largest, row[k]);
    for (int k = 0; k < steps; k++) { row[k] = exp(row[k] - largest); sum += row[k]; }
    for (int k = 0; k < steps; k++) row[k] /= sum;
}
K softmax_columns(real* x, int steps, int n) {
    I; real sum = 0;
    F { real e = exp(x[t * n + i]); x[t * n + i] = e; sum += e; }
    F { real q = x[t * n + i]; q = q / sum; x[t * n + i] = q; }
}
K unit_rows(real* x, int steps, int n) {
    I; real sum = 0; F sum += x[i * steps + t] * x[i * steps + t];
    real norm = sqrt(sum + (real)0.1); F x[i * steps + t] /= norm;
}
K quotient(real* x, const real* s, int steps, int n) { I; F x[t * n + i] = x[t * n + i] / (s[t * n + i] + (real)2); }
K decided(real* x, const real* s, int steps, int n) {
    I; F { real v = x[t * n + i]; x[t * n + i] = v / (s[t * n + i] + (real)2); x[i] += v > 0 ? v * v : 0; }
}
K told(real* x, real* out, int steps, int n) {
    I; real sum = 0; F { x[t * n + i] = exp(x[t * n + i]); sum += x[t * n + i]; }
    F { real e = x[t * n + i]; out[t * n + i] = e * e; x[t * n + i] = e / sum; }
}
K shifted(real* x, int steps, int n) {
    I; real sum = 0; F { x[t * n + i] = exp(x[t * n + i]); sum += x[t * n + i]; }
    for (int t = 1; t < steps; ++t) x[t * n + i] /= sum;
}
K changed_between(real* x, int steps, int n) {
    I; real sum = 0; F { x[t * n + i] = exp(x[t * n + i]); sum += x[t * n + i]; }
    x[n + i] *= x[n + i];
    F x[t * n + i] /= sum;
}
K maximum(real* y, const real* x, int steps, int n) { I; F if (x[t * n + i] > y[i]) y[i] = x[t * n + i]; }
K minimum(real* y, const real* x, int steps, int n) { I; F y[i] = fmin(y[i], x[t * n + i] * x[t * n + i]); }
K maximum_of_each(real* y, const real* x, int steps, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) F if (x[t * n + i] > y[i]) y[i] = x[t * n + i];
}
K maximum_of_a_tile(real* y, const real* x, int steps, int n) {
    __shared__ real tile[4], best[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i] * x[i]; best[threadIdx.x] = y[i];
    __syncthreads();
    for (int k = 0; k < blockDim.x; ++k) if (tile[k] > best[threadIdx.x]) best[threadIdx.x] = tile[k];
    if (i < n) for (int k = 0; k < blockDim.x; ++k) if (best[threadIdx.x] * tile[k] > y[i]) y[i] = best[threadIdx.x] * tile[k];
}
K recurrence_in_memory(real* y, const real* x, int steps, int n) { I; F { real h = y[i]; y[i] = sin(h) * x[t * n + i] + h; } }
K two_in_memory(real* y, real* z, const real* x, int steps, int n) {
    I; F { real a = y[i], b = z[i]; y[i] = a * b + x[t * n + i]; z[i] = b - (real)0.1 * a; }
}
K read_elsewhere(real* y, const real* x, int steps, int n) {
    I; F { real h = y[i]; y[i] = h * h + x[t * n + i]; if (t == 2) y[i] += y[(i / 2) * 2 == i ? i : i]; }
}
K no_iterations(real* y, const real* x, int steps, int n) {
    I; for (int t = 0; t < steps - 5; ++t) if (x[t * n + i] > y[i]) y[i] = x[t * n + i];
}
"""
# what of the launch's memory is copied before it, and whether there is a stack
LEFT = {
    "rows": ("", False), "columns": ("", False), "pitched": ("", False), "backwards": ("", False), "in_twos": ("", False),
    "by_pointer": ("", False), "beside": ("", False), "overwritten": ("x", True), "one_place": ("x", True), "branches": ("x", True),
    "turned": ("x", False), "turned_active": ("x", False), "softmax": ("x", False), "softmax_columns": ("x", False),
    "unit_rows": ("x", False), "quotient": ("", False), "decided": ("x", None),
    "told": ("x", None), "shifted": ("x", None), "changed_between": ("x", None),
    "maximum_of_a_tile": ("y", None),
    "maximum": ("y", False), "minimum": ("y", False), "maximum_of_each": ("y", None), "recurrence_in_memory": ("y", True),
    "two_in_memory": (None, True), "read_elsewhere": ("y", None), "no_iterations": ("y", False),
}  # fmt: skip


def arguments(name: str, dtype: Any) -> list[Any]:
    text = SOURCE[SOURCE.index(f"K {name}(") :]
    rng, numbers = np.random.default_rng(3), {"steps": STEPS, "n": N, "pitch": N + 1}
    found: list[Any] = []
    for parameter in text[text.index("(") + 1 : text.index(")")].split(","):
        word = parameter.split()[-1]
        if "*" in parameter:
            found.append(Duplicated(rng.uniform(-0.9, 0.9, (N + 1) * STEPS).astype(dtype), np.zeros((N + 1) * STEPS, dtype)))
        elif word in numbers:
            found.append(numbers[word])
        else:
            found.append(Active(dtype(0.4), np.zeros(1, dtype)))
    return found


@pytest.mark.one_of(8)
@pytest.mark.parametrize("real", ["double", "float"])
@pytest.mark.parametrize("name", LEFT)
def test_gradients_from_what_is_left(name: str, real: str, executor: Any) -> None:
    kernel = gpuad.kernel(f"typedef {real} real;" + SOURCE, name)
    args = arguments(name, np.float64 if real == "double" else np.float32)
    with pipeline.executor_for_tests(executor):
        check_gradient(kernel, args, grid=2, block=4)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", LEFT)
def test_what_is_saved_for_it(name: str) -> None:
    copied, stack = LEFT[name]
    kernel = gpuad.kernel("typedef double real;" + SOURCE, name)
    page = str(kernel.adjoint(grid=(2,), block=(4,), args=arguments(name, np.float64)).explain())
    rows = [line.split() for line in page.splitlines()]
    copies = [row[1] for row in rows if row[0] == "saved" and "copy" in row]
    assert copied is None or copies == ([copied] if copied else []), page
    assert stack is None or any(row[0] == "stack" for row in rows) == stack, page


@pytest.mark.one_of(2)
@pytest.mark.parametrize("divisor", ["x[i]", "(x[i] + 2)", "(y[i] * x[i] + 2)", "(1 + exp(x[i]))"])
def test_a_numerator_that_its_own_divisor_needs_is_saved(divisor: str, executor: Any) -> None:
    """It does not follow from the quotient: the divisor would have to be known before."""
    text = f"K own_divisor(real* x, const real* y, int n) {{ I; x[i] = x[i] / {divisor}; }}"
    kernel = gpuad.kernel("typedef double real;" + SOURCE + text, "own_divisor")
    x, y = np.random.default_rng(0).uniform(0.5, 1.0, (2, N))
    with pipeline.executor_for_tests(executor):
        check_gradient(kernel, (Duplicated(x.copy(), np.zeros(N)), Duplicated(y, np.zeros(N)), N), grid=2, block=4)
        pair, tape = Duplicated(x.copy()), gpuad.Tape()
        with tape:
            kernel[2, 4](pair, y, N)
        tape.reverse({pair: 1.0})
