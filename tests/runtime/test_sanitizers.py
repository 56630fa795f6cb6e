"""The crew of threads under the compiler's sanitizers: many batches and launches on few and many threads, that fall asleep and wake, fail,
and are forked (see `crew_driver.cpp`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from nightly import NIGHTLY

from gpuad.codegen.cpu.helpers import POOL
from gpuad.runtime.compiler import find_compiler, has_compiler

DRIVER = Path(__file__).parents[1] / "crew_driver.cpp"
# How many rounds, and forks while other threads wait or work. ThreadSanitizer knows no threads in the child of a fork, and the allocator of
# AddressSanitizer does not get over one while another thread allocates.
WAYS = {"thread": (40, 0, 0), "address": (40, 4, 0), "undefined": (40, 4, 4), "none": (200, 8, 8)}
pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="no C++ compiler"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]


def built(text: str, sanitizer: str, target: Path) -> subprocess.CompletedProcess[str]:
    source = target.with_suffix(".cpp")
    source.write_text(text)
    checked = [] if sanitizer == "none" else [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    command = [*find_compiler().command, "-std=c++14", "-O1", "-g", "-w", "-fwrapv", "-pthread", *checked, str(source), "-o", str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def works(sanitizer: str, folder: Path) -> bool:
    """Whether this compiler and this system have it."""
    target = folder / "empty"
    return built("int main() {}", sanitizer, target).returncode == 0 and subprocess.run([target], check=False).returncode == 0


@pytest.mark.parametrize("sanitizer", list(WAYS) if NIGHTLY else ["thread"])
def test_the_crew(sanitizer: str, tmp_path: Path) -> None:
    if not works(sanitizer, tmp_path):
        pytest.skip(f"no -fsanitize={sanitizer} here")
    build = built(POOL + DRIVER.read_text(encoding="utf-8"), sanitizer, tmp_path / "driver")
    assert build.returncode == 0, build.stderr
    run = subprocess.run([tmp_path / "driver", *map(str, WAYS[sanitizer])], capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "well\n", "")
