"""Random kernels with barriers and shuffles: gradients, and second derivatives, against finite differences, every barrier interval watched
for races."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import running
from nightly import cases
from random_shared import RandomShared

import gpuad
from gpuad import Duplicated
from gpuad.errors import ShadowError
from gpuad.testing import check_gradient

CASES = [*((seed, False, "reference") for seed in range(cases(4, 40))), *((seed, True, "reference") for seed in range(cases(2, 10)))]
CASES += [*((seed, False, "host") for seed in range(40, 40 + cases(2, 5))), *((seed, True, "host") for seed in range(12, 12 + cases(1, 2)))]


@pytest.mark.parametrize(("seed", "warps", "executor"), CASES)
def test_gradient(seed: int, warps: bool, executor: str) -> None:
    made, r = RandomShared(seed, warps=warps), np.random.default_rng(seed)
    n = 2 * made.block - (0 if warps else 3)
    args = (Duplicated(r.uniform(0.3, 0.9, n)), Duplicated(r.normal(size=n)), np.int32(n), np.int32(2))
    kernel = gpuad.kernel(made.text, "k")
    with running(executor):
        try:
            report = check_gradient(kernel, args, grid=2, block=made.block, directions=1, race_check=executor == "reference")
        except ShadowError as error:
            assert "no path from an active input" in str(error)  # what it writes depends on nothing
        else:
            assert not any("hvp refuses" in note for note in report.notes), report
