"""`python -m tests.longest [FILE]`: the ten test files that take longest, of a run's record (`pytest --junitxml FILE`, by default
report.xml). Seconds are those of setup, call and teardown, summed over workers: of a quiet machine, on all of its cores."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

MANY = 10


def longest(report: Path, many: int = MANY) -> list[tuple[str, float, int]]:
    """File, seconds and number of tests, the longest first."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in ET.parse(report).getroot().iter("testcase"):
        name = _file_of(case.get("classname", ""))
        seconds[name] += float(case.get("time", "0"))
        tests[name] += 1
    return [(name, seconds[name], tests[name]) for name, _ in seconds.most_common(many)]


def _file_of(classname: str) -> str:
    """`tests.ad.test_x.TestY` is of the file tests/ad/test_x.py; a described launch, `kernels.heat.cu.heat`, of the folder kernels."""
    parts = classname.split(".")
    found = next((k for k, part in enumerate(parts) if part.startswith("test_")), None)
    return "/".join(parts[: found + 1]) + ".py" if found is not None else parts[0]


def main(words: list[str]) -> None:
    """Prints them."""
    report = Path(words[0] if words else "report.xml")
    if not report.is_file():
        raise SystemExit(f"{report}: there is no such record: write one with `pytest --junitxml {report}`")
    for name, seconds, tests in longest(report):
        print(f"{seconds:8.1f} s  {tests:5} tests  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
