"""Where a value that a kernel reads decides something: what may not be a little off."""

from __future__ import annotations

import pytest
from launch_tools import compiled

from gpuad.analysis.decisions import decided_by
from gpuad.ir.nodes import Buffer

HEAD = 'extern "C" __global__ void k(float* y, const float* x, const float* w, int n) { int i = threadIdx.x; if (i < n) { '
SMOOTH = [
    "y[i] = x[i] * expf(w[i]) - sqrtf(x[i]) / 3.0f;",
    "float s = 0; for (int k = 0; k < n; k++) s += x[k] * w[k]; y[i] = s;",
    "float a[2]; a[i % 2] = x[i]; y[i] = a[0] * w[i];",
    "if (w[i] > 0) y[i] = x[i]; else y[i] = 2.0f * x[i];",
    "atomicAdd(&y[(int)w[i]], x[i] * x[i]);",
]
DECIDING = [
    "if (x[i] > 0) y[i] = w[i];",
    "y[i] = x[i] > w[i] ? 1.0f : w[i];",
    "y[(int)x[i]] = w[i];",
    "y[i] = fmaxf(x[i], w[i]);",
    "y[i] = w[i] * floorf(x[i]);",
    "y[i] = fabsf(x[i]);",
    "float s = x[i]; int c = 0; while (s > 1.0f) { s *= 0.5f; c++; } y[i] = c * w[i];",
    "float a[2]; a[0] = x[i] * 2.0f; a[1] = w[i]; float b = a[0]; if (b < 1.0f) y[i] = b;",
    "float s = 0; for (int k = 0; k < n; k++) { if (s < 3.0f) s += x[k]; } y[i] = s;",
    "y[i] = x[i]; float z = y[i] + w[i]; y[i + 1] = z == 0.0f ? 0.0f : z;",
    "y[i] = __int_as_float(__float_as_int(x[i]) + 1);",
]


@pytest.mark.parametrize("text", SMOOTH)
def test_smooth_uses_decide_nothing(text: str) -> None:
    kernel = compiled(HEAD + text + " } }", "k").primal()
    assert decided_by(kernel, _buffer(kernel, "x")) is None


@pytest.mark.parametrize("text", DECIDING)
def test_what_decides_is_found(text: str) -> None:
    kernel = compiled(HEAD + text + " } }", "k").primal()
    found = decided_by(kernel, _buffer(kernel, "x"))
    assert found is not None and found.span is not None


def _buffer(kernel: object, name: str) -> Buffer:
    return next(b for b in kernel.buffers if b.name == name)  # type: ignore[attr-defined, no-any-return]
