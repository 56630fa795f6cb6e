"""Programs whose launches differ in whole numbers: found out once for numbers that only move arrays, and all else as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.api import Kernel

STEPS, N = 6, 10
# Bodies for a double* y, const double* x, double* h, int it, int n; each launch has another `it`.
BODIES = {
    "index": "if (i < n) y[i] += sin(x[it]) * x[i + 40];",
    "row": "if (i < n) h[it * n + i] = sin(y[i]); if (i < n) y[i] = y[i] * x[i];",
    "recurrence": "if (i < n) h[(it + 1) * n + i] = sin(h[it * n + i]) * y[i];",
    "backwards": "if (i < n) h[it * n + 9 - i] = x[it + i] * y[i];",
    "unsigned long": "if (i < n) y[i] *= x[(size_t)it + 9 - i];",
    "unsigned": "if (i < n) y[i] *= x[(unsigned)it + 9 - i];",
    "long": "if (i < n) y[i] *= x[(long long)it * n + 9 - i];",
    "pointer": "const double* p = x + it; if (i < n) y[i] = y[i] * p[i] + *p;",
    "one thread": "if (i == 3) h[it] = y[i] * y[i]; if (i < n) y[i] = y[i] * 0.5;",
    "atomic": "if (i < n) atomicAdd(&h[it], y[i] * x[i]); if (i < n) y[i] = cos(y[i]);",
    "loop": "double s = 0; for (int j = 0; j < n; ++j) s += x[it + j] * x[it + j]; if (i < n) y[i] *= s;",
    "value": "if (i < n) y[i] = y[i] * x[it] * (1 + it);",
    "float": "if (i < n) y[i] = y[i] * (double)it + x[i];",
    "decay": "if (i < n) y[i] = y[i] * (1 - pow(0.9, (double)it)) + x[i] / (it + 1.0);",
    "sign": "if (i < n) y[i] = (y[i] - (float)(2 * it)) * fabs(y[i] - (float)(2 * it));",
    "condition": "if (i < n && it % 2 == 0) y[i] = y[i] * x[it];",
    "bound": "if (i < n) for (int j = 0; j < it; ++j) y[i] *= x[j];",
    "stride": "if (i < n) y[i] = y[i] * x[it * i];",
    "remainder": "if (i < n) y[i] = y[i] * x[it % 3 + i];",
}
HEAD = (
    'extern "C" __global__ void k(double* y, const double* x, double* h, int it, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
)


@contextmanager
def as_they_are() -> Iterator[None]:
    """Every call is bound with its own numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "_moved", lambda self, args: None)
        patch.setattr(Kernel, "_values", lambda self: frozenset())
        yield


def run(body: str, program: Callable[..., None]) -> tuple[dict[str, Any], int]:
    """All arrays and shadows after a program and its reverse, and the bytes that it saved."""
    kernel = gpuad.kernel(HEAD + body + " }", "k")
    rng = np.random.default_rng(0)
    y, x, h = (Duplicated(rng.uniform(0.5, 1.5, size)) for size in (N, 64, (STEPS + 1) * N))
    with gpuad.Tape() as tape:
        program(kernel, y, x, h)
    tape.reverse({y: np.arange(1.0, N + 1), h: np.linspace(1, 2, (STEPS + 1) * N)}, allow_unused=True)
    names = {"y": y, "x": x, "h": h}
    return {name: (p.primal, p.shadow) for name, p in names.items()}, tape.stats.saved_bytes


def steps(kernel: Any, y: Any, x: Any, h: Any) -> None:
    for it in range(STEPS):
        kernel[2, 8](y, x, h, it, N)


def down(kernel: Any, y: Any, x: Any, h: Any) -> None:
    for it in reversed(range(STEPS)):
        kernel[1, 16](y, x, h, np.int32(it), N)


def bare(kernel: Any, y: Any, x: Any, h: Any) -> None:
    for it in (0, 2, 2, 1, 5):
        kernel[2, 8](y, x.primal, h, it, N)


def overlapping(kernel: Any, y: Any, x: Any, h: Any) -> None:
    """Two parameters in one array, one of which moves."""
    for it in range(STEPS - 2):
        kernel[2, 8](y, h[N:], h[:N], it, N)


def rows(kernel: Any, y: Any, x: Any, h: Any) -> None:
    grid = h.reshape(STEPS + 1, N)
    for it in range(STEPS):
        kernel[2, 8](y, x, grid, it, N)


@pytest.mark.parametrize("program", [steps, down, bare, rows])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.one_of(6)
def test_gradients_and_saved_bytes_are_those_of_calls_as_they_are(name: str, program: Callable[..., None], executor: Any) -> None:
    with pipeline.executor_for_tests(executor):
        found, saved = run(BODIES[name], program)
        with as_they_are():
            expected, as_saved = run(BODIES[name], program)
    for array, (primal, shadow) in expected.items():
        np.testing.assert_array_equal(found[array][0], primal, err_msg=array)
        np.testing.assert_array_equal(found[array][1], shadow, err_msg=array)
    assert saved == as_saved


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["index", "pointer", "loop", "row"])
def test_arrays_that_share_memory(name: str) -> None:
    """The distance of the arrays changes with the number: of each step by itself."""
    outcomes = []
    for how in (as_they_are, None):
        try:
            if how is None:
                outcomes.append(run(BODIES[name], overlapping)[0])
            else:
                with how():
                    outcomes.append(run(BODIES[name], overlapping)[0])
        except gpuad.GpuadError as refused:
            outcomes.append(str(refused))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        for array in "yxh":
            np.testing.assert_array_equal(outcomes[0][array], outcomes[1][array])


@pytest.mark.parametrize(
    ("name", "most"), [("index", 3), ("row", 4), ("recurrence", 2), ("one thread", 4), ("float", 1), ("decay", 1), ("condition", 2)]
)
def test_what_is_found_out_once(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs of a launch's schedule, with and without zeros: not for each value."""
    from gpuad.pipeline import schedule

    asked = []
    plain = schedule._stages
    monkeypatch.setattr(schedule, "_stages", lambda *args: asked.append(1) or plain(*args))
    run(BODIES[name], lambda kernel, y, x, h: [kernel[2, 8](y, x, h, it, N) for it in range(STEPS)])
    few = len(asked)
    asked.clear()

    def twice(kernel: Any, y: Any, x: Any, h: Any) -> None:
        for it in (0, 1, 2, 3, 4, 5) * 2:
            kernel[2, 8](y, x, h, it, N)

    run(BODIES[name], twice)
    assert few <= most and len(asked) <= most + 1


def test_errors_are_those_of_the_call_as_it_is() -> None:
    kernel = gpuad.kernel(HEAD + BODIES["row"] + " }", "k")
    y, x, h = Duplicated(np.ones(N)), Duplicated(np.ones(64)), Duplicated(np.ones(2 * N))
    with pytest.raises(gpuad.LaunchError, match="writes `h` from element 20 to 29"), gpuad.Tape():
        for it in range(3):
            kernel[2, 8](y, x, h, it, N)


def test_a_known_program_comes_again_with_other_numbers() -> None:
    kernel = gpuad.kernel(HEAD + BODIES["row"] + " }", "k")
    tape = gpuad.Tape()
    for numbers in ((0, 1, 2), (0, 1, 2), (0, 1, 2), (3, 1, 0), (5, 4, 3), (0, 1, 2)):
        y, x, h = Duplicated(np.full(N, 0.5)), Duplicated(np.full(64, 0.9)), Duplicated(np.zeros(7 * N))
        with tape:
            for it in numbers:
                kernel[2, 8](y, x, h, it, N)
        seed = np.zeros(7 * N)
        seed[numbers[2] * N : numbers[2] * N + N] = 1.0
        tape.reverse({h: seed})
        value = 0.5 * 0.81
        np.testing.assert_allclose(h.primal.reshape(7, N)[numbers[2]], np.sin(value))
        np.testing.assert_allclose(y.shadow, 0.81 * np.cos(value))
        np.testing.assert_allclose(x.shadow[:N], 2 * 0.45 * np.cos(value))


@pytest.mark.parametrize("name", ["float", "decay", "index"])
def test_a_reverse_with_another_value_than_its_forward_is_refused(name: str) -> None:
    kernel = gpuad.kernel(HEAD + BODIES[name] + " }", "k")
    augmented, reverse = gpuad.autodiff_thunk(kernel, y=Duplicated, x=Duplicated)
    y, x = np.ones(N), np.ones(64)
    saved = augmented(2, 8, (y, x, None, 3, N))
    dy, dx = np.ones(N), np.zeros(64)
    with pytest.raises(gpuad.LaunchError, match="integers"):
        reverse(2, 8, (Duplicated(y, dy), Duplicated(x, dx), None, 4, N), saved)
    assert dy.all() and not dx.any()
