"""Random kernels through NVRTC and the interpreter of PTX: of the language's grammars primal, tangent and gradient are what the reference
executor computes, of core IR every bit is.

Products and sums are not contracted here, so that both round alike and take the same branches. In CI these are the gradients, and the
states that they leave, of the first kernels with a short text, 100 in all. `GPUAD_NIGHTLY=2000` runs so many of each grammar, long ones
too, primal and tangent as well; `GPUAD_SEED=n` begins with another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from ptx import nvrtc
from ptx_executor import Ptx, is_defined
from random_cuda import random_kernel
from random_cuda_checks import LARGE, Case, Discarded, Noting, check_on, configuration, derivatives, floats, same
from random_kernels import RandomKernel
from random_language import whole_kernel
from random_language_case import WholeCase
from test_host import outcome

import gpuad
from gpuad.runtime.reference import Reference

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY", "0"))
FIRST = int(os.environ.get("GPUAD_SEED", "0"))
BATCH = 5
CORE = 90  # seeds of a batch, of which about every fourth kernel is compared


@dataclass(frozen=True)
class Grammar:
    """How a seed's kernel and its case are made; in CI, how many are run, and how many characters of text are short."""

    grow: Callable[[int], Any]
    case_of: Callable[[Any], Case]
    count: int
    short: int

    def seeds(self, batch: int) -> Iterator[int]:
        """Those of a batch: the next ones, or in CI the first short ones of a thousand."""
        if NIGHTLY:
            return iter(range(FIRST + batch * BATCH, FIRST + (batch + 1) * BATCH))
        return islice((seed for seed in count(FIRST + batch * 1000) if len(self.grow(seed).text) < self.short), BATCH)


GRAMMARS = {
    "base": Grammar(random_kernel, Case.of, 70, 1000),
    "language": Grammar(whole_kernel, WholeCase.of, 30, 2000),
}


def agrees(grammar: str, seed: int) -> int:
    """Checks one kernel; how many launches it took, none if it says nothing."""
    made = GRAMMARS[grammar]
    kernel = made.grow(seed)
    case, executor = made.case_of(kernel), Ptx("-fmad=false")
    try:
        with np.errstate(all="ignore"):
            (everything if NIGHTLY else gradient)(case, executor)
    except Discarded:
        return 0
    except Exception as error:
        error.add_note(f"seed {seed} of {grammar}:\n{kernel.text}")
        raise
    return executor.launches


def everything(case: Case, executor: Ptx) -> None:
    """Primal, tangent and gradient."""
    reference = Noting()
    with configuration(reference):
        found = derivatives(case, reference)
    check_on(executor, case, found)  # type: ignore[arg-type]


def gradient(case: Case, executor: Ptx) -> None:
    """The gradient, and the state that its launches leave."""
    seed = case.seed()
    with configuration(Reference()):
        expected = case.derivative(seed, gpuad.Reverse)
    after = floats(case.left)
    if not all(np.isfinite(x).all() and np.max(np.abs(x), initial=0.0) < LARGE for x in (*after.values(), *expected.values())):
        raise Discarded
    with configuration(executor):
        same("gradient", expected, case.derivative(seed, gpuad.Reverse), case.tolerance)
    same("primal", after, floats(case.left), case.tolerance)


@pytest.mark.parametrize(
    ("grammar", "batch"), [(name, batch) for name, grammar in GRAMMARS.items() for batch in range(-(-(NIGHTLY or grammar.count) // BATCH))]
)
def test_random_kernels(grammar: str, batch: int) -> None:
    assert sum(agrees(grammar, seed) > 0 for seed in GRAMMARS[grammar].seeds(batch)) > BATCH // 2


@pytest.mark.parametrize("number", range(-(-(NIGHTLY or 100) // 20)))
def test_random_core_kernels_agree_bit_for_bit(number: int) -> None:
    """Those that C++ defines: the executors' own rules for divisions by zero and the like are no compiler's."""
    compared = 0
    for seed in range(FIRST + number * CORE, FIRST + (number + 1) * CORE):
        kernel = RandomKernel(seed).kernel
        if is_defined(kernel):
            expected, found = (outcome(executor, kernel, seed) for executor in (Reference(check=False), Ptx("-fmad=false", "-ftz=false")))
            for param, a, b in zip(kernel.params, expected, found, strict=False):
                np.testing.assert_array_equal(b, a, err_msg=f"seed {seed}: {param.name}")
            compared += 1
    assert compared > CORE // 8
