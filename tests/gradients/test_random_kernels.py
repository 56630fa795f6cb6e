"""Random CUDA kernels, checked in every configuration that must not matter: `random_cuda` has the kernels, `random_cuda_checks` the checks.

The kernels are the same in every run: batch k holds the seeds from k * BATCH on. `GPUAD_NIGHTLY=5000` checks that many kernels, all of
them in all configurations and on the host; `GPUAD_SEED=n` starts at another seed. A failing kernel is cut down, and printed with its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from random_batches import NUMBERS, Batches
from random_cuda import Grammar, Kernel, random_kernel
from random_cuda_checks import Case, fault, shrink

BATCHES = Batches(random_kernel, Case.of)


@pytest.mark.parametrize("number", NUMBERS)
def test_random_kernels(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    BATCHES.run(number, monkeypatch)


# --- the kernels themselves --------------------------------------------------------------------------------------------------------------


def test_a_seed_gives_one_text() -> None:
    assert random_kernel(7).text == random_kernel(7).text != random_kernel(8).text


def test_grammar_reaches_the_language() -> None:
    """Each construct occurs in the first few hundred kernels."""
    texts = [Grammar(seed).kernel().text for seed in range(300)]
    wanted = [
        "return;", "else if", "break;", "continue;", "do {", "while (", "gridDim.x", "blockIdx.y", "__device__ void", "__device__ bool",
        "double* ", "float* ", "++) y[", "atomicAdd", "&& a[", "|| b[", "[idx[i]]", "? ", "(int)(2", "q[i] = ", "< cnt[i]", "< q[i]",
        "bool f", "for (float k", "unsigned int k", "long long i", "&x[i]", "[2][3]",
    ]  # fmt: skip
    missing = [w for w in wanted if not any(w in text for text in texts)]
    assert not missing


# --- the checks see what they are there to see -----------------------------------------------------------------------------------------


def _first_fault(seeds: range) -> str | None:
    for seed in seeds:
        found = fault(random_kernel(seed))
        if found is not None:
            return found
    return None


def test_a_wrong_partial_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuad.ad import derivatives

    monkeypatch.setitem(derivatives.RULES, "tanh", derivatives.RULES["sin"])
    assert _first_fault(range(20)) == "differences"


def test_values_that_are_not_saved_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuad.analysis import to_be_recorded

    def forgetful(self: Any, store: Any, load: Any, home: Any, *, later: bool = False) -> bool:
        return False

    monkeypatch.setattr(to_be_recorded._Test, "may_hit", forgetful)
    assert _first_fault(range(20)) is not None


def test_cutting_down_keeps_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = random_kernel(3)
    fails: Callable[[Kernel], bool] = lambda k: "x[i]" in k.text  # noqa: E731
    assert len(shrink(kernel, fails).text) < 400
