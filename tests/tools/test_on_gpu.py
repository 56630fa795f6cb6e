"""The plugin's part for GPUs on a device: which one is free, checks on it with the time they take, compute-sanitizer and its faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuad.runtime.cuda import use_device
from gpuad.tools.checks import How
from gpuad.tools.devices import free_device
from gpuad.tools.examples import of_file
from gpuad.tools.on_gpu import run_on_gpu
from gpuad.tools.sanitized import PLANTED
from gpuad.tools.sanitizer import Sanitizer, tool_path
from gpuad.tools.settings import Settings

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
HEAT = ROOT / "kernels" / "heat.cu"


@pytest.fixture
def device() -> int:
    """A device, whoever else is on it."""
    found = free_device(Settings(ROOT, gpu_shared=True, gpu_utilisation=100, gpu_free_memory="100 MiB"))
    use_device(found.index)
    return found.index


@pytest.mark.parametrize("check", ["gradient", "forward", "determinism", "memory"])
def test_checks_on_the_device(check: str, device: int) -> None:
    (example,) = of_file(HEAT, ROOT)
    figures = run_on_gpu(check, example, How(directions=1, gpu=True), device)
    if check == "gradient":
        milliseconds = figures["GPU ms"]
        assert isinstance(milliseconds, float) and milliseconds > 0


@pytest.mark.parametrize("tool", PLANTED)
def test_planted_faults_are_found_and_a_clean_kernel_is_clean(tool: str, device: int) -> None:
    if tool_path() is None:
        pytest.skip("compute-sanitizer is not installed")
    assert Sanitizer(tool).planted() == ""
    (example,) = of_file(HEAT, ROOT)
    assert Sanitizer(tool).check(example, seed=0) == []
