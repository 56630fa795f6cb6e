"""The adjoints by hand of `benchmarks/adjoints`, and gpuad's beside them: one gradient, which is that of differences, at small sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import share

from benchmarks.adjoints.__main__ import difference, measured
from benchmarks.adjoints.operations import Operation, made, operations
from benchmarks.measure import Effort
from gpuad.tools.cases import Case

OPERATIONS = list(operations())
NAMES = [case.kernel for case, _ in OPERATIONS]


def test_ten_operations_and_more_have_one_by_hand() -> None:
    assert {
        "softsplat", "correlation", "separable", "involution", "neighbourhood_scores", "neighbourhood_values", "qrnn", "projection",
        "back_projection", "grid_samples", "sample_grid", "spiking", "sinkhorn",
    } == set(NAMES)  # fmt: skip


def slope(operation: Operation, name: str, direction: Any, step: float) -> float:
    """By central differences: how the sum of what the primal leaves, weighted by the seeds, grows along a direction of an array."""
    sides = []
    for sign in (1, -1):
        operation.put_back()
        operation.arrays[name][...] += (sign * step * direction).astype(np.float32)
        operation.workload.bare()
        sides.append(sum(float(np.vdot(seed.astype(float), operation.arrays[n].astype(float))) for n, seed in operation.seeds.items()))
    operation.put_back()
    return (sides[0] - sides[1]) / (2 * step)


@pytest.mark.one_of(4)
@pytest.mark.cpu
@pytest.mark.parametrize(("case", "by_hand"), share(OPERATIONS, 2), ids=share(NAMES, 2))
def test_both_are_the_gradient(case: Case, by_hand: tuple[Case, ...]) -> None:
    with running("host"):
        operation = made(case, by_hand, full=False)
        found = operation.gradients()
        assert found.keys() | operation.outputs == set(case.active)
        rng = np.random.default_rng(1)
        for name, (ours, theirs) in found.items():
            assert difference(ours, theirs, operation.seeds[name]) < 1e-5
            direction = rng.standard_normal(ours.shape)
            expected = float(np.vdot(theirs.astype(float), direction))
            scale = float(np.linalg.norm(theirs) * np.linalg.norm(direction) / np.sqrt(ours.size)) + 1e-2
            assert abs(slope(operation, name, direction, 1e-3) - expected) < 2e-2 * scale


@pytest.mark.cpu
def test_a_row_of_the_table() -> None:
    case, by_hand = OPERATIONS[NAMES.index("sample_grid")]
    with running("host"):
        row = measured(case, by_hand, Effort(1, 1, 1.0), full=False)
    assert row["gpuad_atomics"] == row["by_hand_atomics"] == 40 * 16 * 2 and row["gpuad_bytes"] == row["by_hand_bytes"] == 0
    assert row["ratio"] > 0 and row["sizes"] == {"samples": 40, "side": 16}
