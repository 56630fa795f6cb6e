"""Random kernels through NVRTC and the interpreter of PTX: of the language's grammars primal, tangent and gradient are what the reference
executor computes, of core IR every bit is.

Products and sums are not contracted here, so that both round alike and take the same branches. `GPUAD_NIGHTLY=2000` runs so many of each
grammar, `GPUAD_SEED=n` begins with another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx import nvrtc
from ptx_executor import Ptx, is_defined
from random_cuda import random_kernel
from random_cuda_checks import Case, Discarded, Noting, check_on, configuration, derivatives
from random_kernels import RandomKernel
from random_language import whole_kernel
from random_language_case import WholeCase
from test_host import outcome

from gpuad.runtime.reference import Reference

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY", "0"))
FIRST = int(os.environ.get("GPUAD_SEED", "0" if NIGHTLY else "4"))  # two of moderate size
COUNT = NIGHTLY or 2
BATCH = 2
CORE = 90  # seeds of a batch, of which about every fourth kernel is compared
GRAMMARS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Case]]] = {
    "base": (random_kernel, Case.of),
    "language": (whole_kernel, WholeCase.of),
}


def agrees(grammar: str, seed: int) -> int:
    """Checks one kernel; how many launches it took."""
    grow, case_of = GRAMMARS[grammar]
    case, executor = case_of(grow(seed)), Ptx("-fmad=false")
    try:
        with np.errstate(all="ignore"):
            reference = Noting()
            with configuration(reference):
                found = derivatives(case, reference)
            check_on(executor, case, found)  # type: ignore[arg-type]
    except Discarded:
        return 0
    except Exception as error:
        error.add_note(f"seed {seed} of {grammar}:\n{case.kernel.text}")
        raise
    return executor.launches


@pytest.mark.parametrize("number", range(-(-COUNT // BATCH)))
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_random_kernels(grammar: str, number: int) -> None:
    seeds = range(FIRST + number * BATCH, FIRST + (number + 1) * BATCH)
    assert sum(agrees(grammar, seed) for seed in seeds) > BATCH


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
