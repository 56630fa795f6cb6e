"""The gradient of every kernel that ships, on every executor, in every way of generating it.

Dot product, Taylor, twice without clearing, primal untouched: what `gpuad.testing` checks. The usual way on the host, races and bounds are
items of the plugin: `pytest kernels`.
"""

from __future__ import annotations

import pytest
from launch_tools import CASES, EXECUTORS, arguments, running, shipped
from nightly import NIGHTLY

from gpuad.testing import check_gradient

WAYS = {
    "usual": (True, True),
    "all_recorded": (False, True),
    "all_atomic": (True, False),
    **({"all_recorded_all_atomic": (False, False)} if NIGHTLY else {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("executor", "way"), [(e, w) for e in EXECUTORS for w in WAYS if (e, w) != ("host", "usual")])
def test_gradient(name: str, executor: str, way: str) -> None:
    grid, block, shared_mem = CASES[name].geometry({})
    usual = way == "usual"
    with running(executor, *WAYS[way]):
        report = check_gradient(
            shipped(name), arguments(name), grid=grid, block=block, shared_mem=shared_mem,
            directions=2 if usual else 1, race_check=False,
        )  # fmt: skip
    assert not any("no dot product" in note for note in report.notes), report
