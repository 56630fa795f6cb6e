"""Batches of random kernels: the checks of `random_cuda_checks` on the reference executor, kernel by kernel, then on the host, all in one
translation unit. A failing kernel is cut down, and printed with its seed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from nightly import NIGHTLY, cases
from random_cuda import Kernel
from random_cuda_checks import CONFIGURATIONS, Case, Discarded, Failure, Found, Tally, check, check_on, fault, shrink

from gpuad.errors import GpuadError
from gpuad.runtime.compiler import LEVEL, has_compiler
from gpuad.runtime.host import Host

BATCH = 3
COUNT = cases(3, 40)
FIRST = int(os.environ.get("GPUAD_SEED", "0"))
EDGES = 0.05  # share of the elements that may lie at knife edges
PATIENCE = 120.0  # seconds for cutting a failing kernel down
NUMBERS = range(-(-COUNT // BATCH))


@dataclass(frozen=True)
class Batches:
    """`grow`: the kernel of a seed; `case`: it with its arguments. The host runs the first `optimised` batches in full, compiled as for a
    user; of the others every `every`-th kernel, unless it is nightly."""

    grow: Callable[[int], Any]
    case: Callable[[Any], Case]
    optimised: int = 0
    every: int = 3

    def run(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        optimised = bool(NIGHTLY) or number < self.optimised
        monkeypatch.setenv(LEVEL, "3" if optimised else "0")
        tally, passed = Tally(), []
        for seed in range(FIRST + number * BATCH, FIRST + (number + 1) * BATCH):
            passed += self.checked(seed, tally)
        self.on_host(passed if optimised else passed[:: self.every], tangent=optimised)
        print(f"batch {number}: {tally}")
        assert tally.discarded <= BATCH // 2
        assert tally.edges <= EDGES * tally.elements

    def checked(self, seed: int, tally: Tally) -> list[tuple[Case, Found]]:
        """The kernel of a seed with what was found, or nothing if it says nothing."""
        kernel = self.grow(seed)
        try:
            case = self.case(kernel)
            return [(case, check(case, tally, configurations(seed)))]
        except Discarded:
            tally.discarded += 1
        except GpuadError as error:
            pytest.fail(f"seed {seed} is refused: {error}\n{kernel.text}", pytrace=False)
        except Failure as failure:
            pytest.fail(self.report(seed, kernel, failure, None), pytrace=False)
        return []

    def on_host(self, passed: list[tuple[Case, Found]], *, tangent: bool) -> None:
        executor = the_host()
        if executor is None:
            return
        executor.prepare([k for _, found in passed for k in found.kernels.values() if tangent or not k.name.endswith("_forward")])
        for case, found in passed:
            try:
                check_on(executor, case, found, tangent=tangent)
            except Failure as failure:
                pytest.fail(self.report(None, case.kernel, failure, executor), pytrace=False)

    def report(self, seed: int | None, kernel: Kernel, failure: Failure, host: Host | None) -> str:
        """The failure, the kernel that is left of the one that fails, and that one itself."""
        kind, end = fault(kernel, host, self.case), time.monotonic() + PATIENCE
        fails = lambda k: time.monotonic() < end and fault(k, host, self.case) == kind  # noqa: E731
        small = shrink(kernel, fails) if kind is not None else kernel
        launch = f"grid {kernel.grid}, block {kernel.threads}, n {kernel.n}, active {sorted(kernel.active)}"
        return f"{kernel.name}, seed {seed}: {failure}\n{launch}\n\n{small.text}\ncut down from\n\n{kernel.text}"


def configurations(seed: int) -> list[tuple[bool, bool]]:
    """All of them, or for every second kernel one in turn."""
    return CONFIGURATIONS if NIGHTLY else [CONFIGURATIONS[1 + seed // 2 % 3]] if seed % 2 else []


def the_host() -> Host | None:
    return Host() if has_compiler() else None
