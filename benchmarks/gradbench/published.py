"""The times that GradBench publishes in `evals/*/summary.json`, as ratios to those of its `manual` tool on the same machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOOLS = ("enzyme", "tapenade", "codipack", "jax", "pytorch")


def ratios(path: Path) -> dict[str, float]:
    """By tool, the derivative's time over `manual`'s at the last size that both have; evals give sizes in the order of their work.
    Empty if there is no such file, or `manual` is not in it."""
    if not path.is_file():
        return {}
    tools = json.loads(path.read_text(encoding="utf-8"))["tools"]
    manual = _seconds(tools.get("manual", {}))
    found = {}
    for tool in TOOLS:
        by = [took / manual[size] for size, took in _seconds(tools.get(tool, {})).items() if size in manual]
        if by:
            found[tool] = round(by[-1], 2)
    return found


def _seconds(sizes: dict[str, Any]) -> dict[str, float]:
    """Of each size the derivative's seconds, where it has any."""
    took = {size: functions.get("derivative") for size, functions in sizes.items()}
    return {size: t["secs"] + t["nanos"] * 1e-9 for size, t in took.items() if t}
