"""Random CUDA kernels, checked in every configuration that must not matter: `random_cuda` has the kernels, `random_cuda_checks` the checks.

The kernels are the same in every run: batch k holds the seeds from k * BATCH on. `GPUAD_NIGHTLY=5000` checks that many kernels, all of
them in all configurations and on the host; `GPUAD_SEED=n` starts at another seed. A failing kernel is cut down, and printed with its seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from random_cuda import Grammar, Kernel, random_kernel
from random_cuda_checks import CONFIGURATIONS, Case, Discarded, Failure, Found, Tally, check, check_on, fault, shrink

from gpuad.errors import CompileError, GpuadError
from gpuad.executors import compiler, host
from gpuad.executors.compiler import FLAGS, find_compiler
from gpuad.executors.host import Host

BATCH = 10
NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY", "0"))
COUNT = NIGHTLY or 300
FIRST = int(os.environ.get("GPUAD_SEED", "0"))
OPTIMISED = 2  # batches that the host runs in full, compiled as for a user; of the others every third kernel, unless it is nightly
UNOPTIMISED = tuple("-O0" if flag == "-O3" else flag for flag in FLAGS)
EDGES = 0.05  # share of the elements that may lie at knife edges
PATIENCE = 120.0  # seconds for cutting a failing kernel down


@pytest.mark.parametrize("number", range(-(-COUNT // BATCH)))
def test_random_kernels(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    optimised = bool(NIGHTLY) or number < OPTIMISED
    if not optimised:
        monkeypatch.setattr(compiler, "FLAGS", UNOPTIMISED)
        monkeypatch.setattr(host, "FLAGS", UNOPTIMISED)
    tally, passed = Tally(), []
    for seed in range(FIRST + number * BATCH, FIRST + (number + 1) * BATCH):
        kernel = random_kernel(seed)
        try:
            case = Case.of(kernel)
            passed.append((case, check(case, tally, _configurations(seed))))
        except Discarded:
            tally.discarded += 1
        except GpuadError as error:
            pytest.fail(f"seed {seed} is refused: {error}\n{kernel.text}", pytrace=False)
        except Failure as failure:
            pytest.fail(_report(kernel, failure, None), pytrace=False)
    _on_host(passed if optimised else passed[::3], tangent=optimised)
    print(f"batch {number}: {tally}")
    assert tally.discarded <= BATCH // 2
    assert tally.edges <= EDGES * tally.elements


def _configurations(seed: int) -> list[tuple[bool, bool]]:
    """All of them, or for every second kernel one in turn."""
    return CONFIGURATIONS if NIGHTLY else [CONFIGURATIONS[1 + seed // 2 % 3]] if seed % 2 else []


def _on_host(passed: list[tuple[Case, Found]], *, tangent: bool) -> None:
    executor = _host()
    if executor is None:
        return
    executor.prepare([k for _, found in passed for k in found.kernels.values() if tangent or not k.name.endswith("_forward")])
    for case, found in passed:
        try:
            check_on(executor, case, found, tangent=tangent)
        except Failure as failure:
            pytest.fail(_report(case.kernel, failure, executor), pytrace=False)


def _host() -> Host | None:
    try:
        find_compiler()
    except CompileError:
        return None
    return Host()


def _report(kernel: Kernel, failure: Failure, host: Host | None) -> str:
    """The failure, the kernel that is left of the one that fails, and that one itself."""
    kind, end = fault(kernel, host), time.monotonic() + PATIENCE
    small = shrink(kernel, lambda k: time.monotonic() < end and fault(k, host) == kind) if kind is not None else kernel
    launch = f"grid {kernel.grid}, block {kernel.threads}, n {kernel.n}, active {sorted(kernel.active)}"
    return f"seed {kernel.name[1:]}: {failure}\n{launch}\n\n{small.text}\ncut down from\n\n{kernel.text}"


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
    from gpuad.transform import derivatives

    monkeypatch.setitem(derivatives.RULES, "tanh", derivatives.RULES["sin"])
    assert _first_fault(range(20)) == "differences"


def test_values_that_are_not_saved_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuad.analysis import replay

    def forgetful(self: Any, store: Any, load: Any, home: Any, *, later: bool = False) -> bool:
        return False

    monkeypatch.setattr(replay._Judge, "may_hit", forgetful)
    assert _first_fault(range(20)) is not None


def test_cutting_down_keeps_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = random_kernel(3)
    fails: Callable[[Kernel], bool] = lambda k: "x[i]" in k.text  # noqa: E731
    assert len(shrink(kernel, fails).text) < 400
