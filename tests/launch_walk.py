"""`PYTHONPATH=. python tests/launch_walk.py`: the way of a launch through a new tape whose kernel is known, and of its reversal.

Files of the package that are entered, hops (calls from one file into another of the package) and calls of Python functions, as a profiler
sees them: of a launch on a pair of arrays that is new, of one that comes again with the same objects on the same line, and of the reversal
for each of eight launches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

ROOT = f"{Path(gpuad.__file__).parent}/"
SOURCE = 'extern "C" __global__ void walk(double* y, const double* x, int n) { int i = threadIdx.x; if (i < n) y[i] = sin(x[i]); }'
LAUNCHES = 8


@dataclass(frozen=True)
class Walk:
    """`files`: those entered, in order."""

    files: tuple[str, ...]
    hops: int
    calls: int


def walk(run: Callable[[], object]) -> Walk:
    """The walk of a call."""
    files: dict[str, None] = {}
    counts = [0, 0]

    def look(frame: FrameType, event: str, _: object) -> None:
        name, before = frame.f_code.co_filename, frame.f_back
        counts[1] += event == "call"
        if event == "call" and name.startswith(ROOT):
            files[name.removeprefix(ROOT)] = None
            counts[0] += before is None or before.f_code.co_filename != name

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return Walk(tuple(files), *counts)


def walks() -> dict[str, Walk]:
    """The walks, by what goes."""
    kernel, found = gpuad.kernel(SOURCE, "walk"), {}

    def pair() -> Any:
        return Duplicated(np.ones(8), np.zeros(8))

    for _ in range(2):  # the first time kernels are compiled
        x, y = pair(), pair()
        with gpuad.Tape() as tape:
            for _ in range(LAUNCHES // 2):
                launches = [lambda y=y, x=x: kernel[1, 8](y, x, 8), lambda y=x, x=y: kernel[1, 8](y, x, 8)]
                for launch in launches:
                    known = walk(launch)
        found["launch that comes again"] = known
        found["reversal"] = walk(lambda tape=tape, x=x: tape.reverse({x: 1.0}))
        with gpuad.Tape():
            kernel[1, 8](y, x, 8)
            new = pair()
            found["launch on a new pair"] = walk(lambda new=new, y=y: kernel[1, 8](new, y, 8))
    return found


if __name__ == "__main__":
    for name, one in walks().items():
        print(f"{name:26} {len(one.files):4} files {one.hops:6,} hops {one.calls:6,} calls")
        if "-v" in sys.argv:
            print("   ", "\n    ".join(one.files))
