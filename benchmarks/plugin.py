"""`python -m benchmarks.plugin`: what the pytest plugin adds to a suite without kernels: CPU seconds of `pytest` on one empty test, without
the plugin, with it, and with it asked for; the least of several runs each, in turn."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 9
WAYS = {
    "without": ["-p", "no:gpuad.pytest_plugin"],
    "off": ["-p", "gpuad.pytest_plugin"],
    "on": ["-p", "gpuad.pytest_plugin", "--gpuad"],
}


def seconds(folder: Path, options: list[str]) -> float:
    """CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-m", "pytest", "-q", *options], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing(): pass\n")
        (folder / "pyproject.toml").write_text('[tool.gpuad]\nkernels = ["."]\n')
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, options in WAYS.items():
                times[way].append(seconds(folder, options))
    least = {way: min(found) for way, found in times.items()}
    for way, best in least.items():
        print(f"{way:<8} {best:.3f} s, {best - least['without']:+.3f} s")


if __name__ == "__main__":
    main()
