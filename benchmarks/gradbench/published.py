"""The times that GradBench publishes in `evals/*/summary.json`, as ratios to those of its `manual` tool on the same machine."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

TOOLS = ("enzyme", "tapenade", "codipack", "jax", "pytorch")
ENOUGH = 1e-3  # seconds of `manual`, from which its time is more than overhead


def ratios(path: Path) -> dict[str, float]:
    """By tool, the median over the sizes of the derivative's time over `manual`'s: over sizes at which that takes a millisecond or more, if
    there are any. Empty if there is no such file, or `manual` is not in it."""
    if not path.is_file():
        return {}
    tools = json.loads(path.read_text(encoding="utf-8"))["tools"]
    manual = _seconds(tools.get("manual", {}))
    sizes = [size for size, took in manual.items() if took >= ENOUGH] or list(manual)
    found = {}
    for tool in TOOLS:
        times = _seconds(tools.get(tool, {}))
        by = [times[size] / manual[size] for size in sizes if size in times]
        if by:
            found[tool] = round(statistics.median(by), 2)
    return found


def _seconds(sizes: dict[str, Any]) -> dict[str, float]:
    """Of each size the derivative's seconds, where it has any."""
    took = {size: functions.get("derivative") for size, functions in sizes.items()}
    return {size: t["secs"] + t["nanos"] * 1e-9 for size, t in took.items() if t}
