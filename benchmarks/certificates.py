"""What certificates cost: `python -m benchmarks.certificates [TEXT ...]`, the CPU time of each over the cases of kernels/, in milliseconds.

A certificate is what is asked before a launch of one kernel with one set of numbers runs for the first time: once for what is gathered,
and once for the shadows that no two threads are to touch. Only the asking counts, not what finds the kernels that are certified. Of each
case whose name has one of the texts in it: the sum of a launch's certificates and how many there are, the shadows gathered and plain.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from gpuad import api, pipeline
from gpuad.api import Kernel
from gpuad.pipeline import certificates, schedule
from gpuad.tools.cases import Case, all_cases


class Clock:
    """Sums up the CPU time of functions."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def timed(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return ask(*args, **named)
            finally:
                self.times.append((time.process_time() - start) * 1e3)

        return asked


def stages_of(case: Case) -> tuple[Any, Any]:
    """The adjoint of a case's launch and the launch, with the kernels of its reverse pass chosen."""
    kernel = Kernel(case.file, case.kernel)
    arrays = case.arrays({d.name: d.type for d in kernel.parameters}, 0)
    grid, block, _ = case.geometry()
    call = kernel.bind(grid, block, tuple(case.annotated(argument, value) for argument, value in arrays.items()), 0, None)
    adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
    pipeline.stages(adjoint, call)
    return adjoint, call


def main(texts: list[str]) -> None:
    clock = Clock()
    certificates.refused = clock.timed(certificates.refused)  # type: ignore[assignment]
    certificates.meeting = clock.timed(certificates.meeting)  # type: ignore[assignment]
    certificates.accumulated_otherwise = clock.timed(certificates.accumulated_otherwise)  # type: ignore[assignment]
    every: list[float] = []
    worst: list[float] = []
    for case in all_cases():
        if texts and not any(text in case.id for text in texts):
            continue
        clock.times.clear()
        adjoint, call = stages_of(case)
        gathered = schedule.gathering(adjoint, call)
        plain = schedule.plain_shadows(adjoint, call)
        every += clock.times
        worst.append(sum(clock.times))
        ways = (("gathered", gathered.buffers if gathered is not None else ()), ("plain", plain))
        said = "; ".join(f"{way} {' '.join(sorted(b.name for b in found)) or '-'}" for way, found in ways)
        print(f"{case.id:<50}{sum(clock.times):8.1f} ms {len(clock.times):3}  {said}")
    print(f"a certificate: median {statistics.median(every):.1f} ms, worst {max(every):.1f} ms, {len(every)} of them")
    print(f"a launch: median {statistics.median(worst):.1f} ms, worst {max(worst):.1f} ms, {len(worst)} of them")


if __name__ == "__main__":
    main(sys.argv[1:])
