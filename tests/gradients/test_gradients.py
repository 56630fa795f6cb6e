"""The gradient of every kernel that ships, on every executor, in every way of generating it.

Dot product, Taylor, twice without clearing, primal untouched, second derivatives: what `gpuad.testing` checks. The usual way on the host,
races and bounds are items of the plugin: `pytest kernels`.
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


def ways(number: int) -> list[str]:
    """The usual way, and for every fourth kernel one of the others, in turns; nightly all."""
    first, *others = WAYS
    return [first, *(others if NIGHTLY else others[number // 4 % len(others) :][: number % 4 == 3])]


WITHOUT_HVP = ("scatter_max-normalize_by_max",)  # a maximum on a shared array
EVERY = [(name, e, w) for number, name in enumerate(CASES) for w in ways(number) for e in EXECUTORS if (e, w) != ("host", "usual")]


@pytest.mark.one_of(5)
@pytest.mark.parametrize(("name", "executor", "way"), EVERY)
def test_gradient(name: str, executor: str, way: str) -> None:
    grid, block, shared_mem = CASES[name].geometry({})
    usual = way == "usual"
    compared = {"second_check": True} if name in WITHOUT_HVP else {}  # else as often as anywhere
    with running(executor, *WAYS[way]):
        report = check_gradient(
            shipped(name), arguments(name), grid=grid, block=block, shared_mem=shared_mem,
            directions=2 if usual and NIGHTLY else 1, race_check=False, **compared,
        )  # fmt: skip
    assert not any("no dot product" in note for note in report.notes), report
    assert any("hvp refuses" in note for note in report.notes) == (name in WITHOUT_HVP), report
