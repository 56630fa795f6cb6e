"""How long imports take: `python -m benchmarks.imports`.

Each round starts a process for each of NumPy alone, `import gpuad` on top of it, the names that a script with one kernel uses, and all
public names, in turns. Numbers are medians over the rounds in milliseconds, less NumPy's, with a warm cache of the system.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

ROUNDS = 11
WHAT = {
    "import numpy": "pass",
    "import gpuad": "import gpuad",
    "names of one kernel": "from gpuad import Active, Duplicated, autodiff, kernel",
    "all public names": "from gpuad import *",
}


def milliseconds(statement: str) -> float:
    """Of a fresh process."""
    program = f"import time; start = time.perf_counter(); import numpy; {statement}; print((time.perf_counter() - start) * 1e3)"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def measured(rounds: int = ROUNDS) -> dict[str, float]:
    """The medians, by what is imported; NumPy's as it is, the others' less NumPy's."""
    samples = [{what: milliseconds(statement) for what, statement in WHAT.items()} for _ in range(rounds)]
    medians = {what: statistics.median(sample[what] for sample in samples) for what in WHAT}
    return {what: ms - (medians["import numpy"] if what != "import numpy" else 0.0) for what, ms in medians.items()}


def main() -> None:
    for what, ms in measured().items():
        print(f"{what:<22}{ms:8.1f} ms")


if __name__ == "__main__":
    main()
