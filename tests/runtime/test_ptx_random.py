"""Random kernels through NVRTC and the interpreter of PTX: of the language's grammars primal, tangent and gradient are what the reference
executor computes, of core IR every bit is.

Products and sums are not contracted here, so that both round alike and take the same branches. In CI these are the gradients, and the
states that they leave, of the first kernels with a short text, 9 in all. `GPUAD_NIGHTLY=2000` runs so many of each grammar, long ones
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
from gpuad.ir.nodes import Kernel
from gpuad.runtime import compiler
from gpuad.runtime.compiler import has_compiler
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY", "0"))
FIRST = int(os.environ.get("GPUAD_SEED", "0"))
BATCH = 3
CORE = 20  # kernels of a batch


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


class Drawn(WholeCase):
    """Of a kernel with normal numbers, which are floats: each library of functions has a last digit of its own."""

    @property
    def tolerance(self) -> float:
        return max(super().tolerance, 1e-6)


def whole_case(kernel: Any) -> Case:
    return (Drawn if "curand_normal(" in kernel.text else WholeCase).of(kernel)


GRAMMARS = {
    "base": Grammar(random_kernel, Case.of, 6, 1000),
    "language": Grammar(whole_kernel, whole_case, 3, 2000),
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


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("grammar", "batch"), [(name, batch) for name, grammar in GRAMMARS.items() for batch in range(-(-(NIGHTLY or grammar.count) // BATCH))]
)
def test_random_kernels(grammar: str, batch: int) -> None:
    assert sum(agrees(grammar, seed) > 0 for seed in GRAMMARS[grammar].seeds(batch)) > BATCH // 2


@pytest.mark.parametrize("number", range(-(-(NIGHTLY or 40) // CORE)))
def test_random_core_kernels_agree_bit_for_bit(number: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Those that C++ defines: the executors' own rules for divisions by zero and the like are no compiler's."""
    seeds = (seed for seed in count(FIRST + number * 1000) if is_defined(RandomKernel(seed).kernel))
    for seed in islice(seeds, CORE):
        kernel = RandomKernel(seed).kernel
        expected, found = (outcome(executor, kernel, seed) for executor in (Reference(check=False), Ptx("-fmad=false", "-ftz=false")))
        differing = [param.name for param, a, b in zip(kernel.params, expected, found, strict=False) if not same_bits(a, b)]
        assert not differing or overflows(kernel, seed, monkeypatch, capfd), f"seed {seed}: {differing}"


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """NaN is NaN."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def overflows(kernel: Kernel, seed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> bool:
    """Whether a sum of signed integers leaves its type, which C++ leaves undefined and NVRTC takes as never happening: asked of the C++
    compiler's sanitizer."""
    if not has_compiler():
        return False
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "FLAGS", (*(flag for flag in compiler.FLAGS if flag != "-fwrapv"), "-fsanitize=signed-integer-overflow"))
        outcome(Host(), kernel, seed)
    return "signed integer overflow" in capfd.readouterr().err


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize(("seed", "expected"), [(811727, True), (811728, False)])
def test_a_signed_sum_that_overflows_is_seen(
    seed: int, expected: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the first kernel the least integer and a negative one: NVRTC sets the sign's bit where the reference executor wraps."""
    assert overflows(RandomKernel(seed).kernel, seed, monkeypatch, capfd) == expected


def test_unsigned_sums_wrap() -> None:
    """What NVRTC makes of a signed one with the least integer."""
    k = gpuad.kernel('extern "C" __global__ void k(unsigned* x) { x[threadIdx.x] += 2147483648u; }', "k")
    x = np.arange(2**31 - 4, 2**31 + 4, dtype=np.uint32)
    with configuration(Ptx()):
        k(1, 8, (x,))
    np.testing.assert_array_equal(x, [*range(2**32 - 4, 2**32), *range(4)])
