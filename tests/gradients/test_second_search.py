"""The search among second derivatives alone (`second_search`): one kernel of each grammar, and a fault that only they show."""

from __future__ import annotations

import pytest
from nightly import cases
from second_search import GRAMMARS, searched

COUNT = cases(1, 2000)
BATCH = min(COUNT, 50)


@pytest.mark.parametrize("number", range(-(-COUNT // BATCH)))
@pytest.mark.parametrize("name", GRAMMARS)
def test_second_derivatives_alone(name: str, number: int) -> None:
    tally, failed = searched(name, range(7 + number * BATCH, 7 + (number + 1) * BATCH), 1e6)
    assert not failed
    assert tally.kernels + tally.discarded == BATCH
    assert tally.refused <= 0.2 * BATCH


def test_a_wrong_second_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of this grammar have sines, and no cosines but in derivatives."""
    from gpuad.ad import derivatives

    monkeypatch.setitem(derivatives.RULES, "cos", derivatives.RULES["sin"])
    _, failed = searched("shared", range(3), 1e6)
    assert failed and all("second derivatives" in text for text in failed)
