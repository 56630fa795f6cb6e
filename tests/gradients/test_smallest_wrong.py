"""Gradients that were once wrong without a word, each at its smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running

import gpuad
from gpuad import Duplicated, UnsupportedError

HEAD = """extern "C" __global__ void k(double* x, double* y, const double* u, const int* at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;"""


# --- deterministic sums ------------------------------------------------------------------------------------------------------------------

OVERWRITTEN = {
    "stored twice": "x[i] = x[i] * x[i]; y[i] = x[i] * u[at[i]]; x[i] = sin(x[i]);",
    "in a loop": "for (int t = 0; t < 3; t++) x[i] = sin(x[i]) * u[at[i]];",
    "with a stack": "x[i] = x[i] * x[i]; y[i] = x[i]; for (int t = 0; t < at[i]; t++) { x[i] = sin(x[i]) + y[i] * u[t]; y[i] *= x[i]; }",
}


@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize("name", OVERWRITTEN)
def test_a_deterministic_reverse_that_repeats_stores_repeats_them_once(name: str, executor: str) -> None:
    """The kernel that measures left what it had stored in the working copies to the kernel that sums."""
    text = f"{HEAD} if (i < n) {{ {OVERWRITTEN[name]} }} }}"

    def gradients(deterministic: bool) -> list[Any]:
        r = np.random.default_rng(2)
        x, y, u = (Duplicated(r.normal(size=8), r.normal(size=8)) for _ in range(3))
        with running(executor=executor), gpuad.deterministic(deterministic):
            gpuad.autodiff(compiled(text, "k"), 2, 4, (x, y, u, (np.arange(8) % 3).astype(np.int32), 8))
        return [x.shadow, y.shadow, u.shadow]

    np.testing.assert_allclose(gradients(True), gradients(False), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("great", [1e30, 1e300])
def test_deterministic_sums_of_elements_of_very_different_sizes(great: float) -> None:
    """The digits began at the greatest contribution to any element: those to all others were rounded to 0."""
    text = f"{HEAD} if (i < n) y[i] = u[at[i]] * x[i]; }}"
    x, u, at = np.array([great, 1, 2, great, 3, 4]), Duplicated(np.ones(3), np.zeros(3)), (np.arange(6) % 3).astype(np.int32)
    with running(executor="reference"), gpuad.deterministic():
        gpuad.autodiff(compiled(text, "k"), 2, 4, (x, Duplicated(np.zeros(6), np.ones(6)), u, at, 6))
    assert u.shadow.tolist() == [2 * great, 4, 6]


CLEARED = {
    "once": "x[i] = 1; y[i] = x[at[i]];",
    "in a loop": "double s = 0; for (int t = 0; t < 2; t++) { x[i] = t; s += x[at[i]]; } y[i] = s;",
}


@pytest.mark.parametrize("name", CLEARED)
def test_a_shadow_that_is_cleared_after_it_was_added_to_has_no_deterministic_sum(name: str) -> None:
    """The sums came after all else the kernel did: what was cleared was there again."""
    kernel = compiled(f"{HEAD} if (i < n) {{ {CLEARED[name]} }} }}", "k")
    x, y, at = Duplicated(np.ones(4), np.ones(4)), Duplicated(np.ones(4), np.ones(4)), np.arange(4, dtype=np.int32)
    with running(executor="reference"), gpuad.deterministic(), pytest.raises(UnsupportedError, match="`dx` is cleared") as found:
        gpuad.autodiff(kernel, 1, 4, (x, y, np.ones(4), at, 4))
    assert found.value.line == 2
    assert x.shadow.tolist() == x.primal.tolist() == [1, 1, 1, 1]
    with running(executor="reference"):
        gpuad.autodiff(kernel, 1, 4, (x, y, np.ones(4), at, 4))
    assert x.shadow.tolist() == [0, 0, 0, 0]


# --- tapes -------------------------------------------------------------------------------------------------------------------------------


def test_a_copy_for_counting_has_room_for_what_counting_stores() -> None:
    """The stack is counted by a kernel that repeats all stores; the copy had what the reverse reads: memory before it was written."""
    body = """if (at[i] > 1) { x[i] -= y[i + n] - x[i]; y[i + 2 * n] = u[i]; }
        if (x[i] > 1.5) return;
        double s = u[i];
        while (s < 3) s = s * s + 1.5;
        x[i + n] = s;
        y[i] = y[i + 2 * n];"""
    x, y, u, at = *(Duplicated(np.linspace(0.1, 0.9, 12)) for _ in range(3)), np.array([2, 2, 1, 0], np.int32)
    with running(executor="reference"):
        with gpuad.Tape() as tape:
            for _ in range(2):
                compiled(f"{HEAD} if (i >= n) return; {body} }}", "k")[1, 4](x, y, u, at, 4)
        tape.reverse({x: 1.0, y: 1.0})
    assert u.shadow[:4].all()
