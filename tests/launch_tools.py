"""What the tests of whole launches share: the shipped cases with kernels prepared once a process, executors, and the ways of running.

Each executor is one object a process, so that a kernel that several tests launch is compiled once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from gpuad import pipeline
from gpuad.api import Kernel, kernel
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.tools.cases import Case, all_cases

CASES: dict[str, Case] = {case.id: case for case in all_cases()}
EXECUTORS: dict[str, Any] = {"reference": Reference(), "host": Host()}


@cache
def shipped(name: str) -> Kernel:
    """The kernel of a case of `kernels/`."""
    return Kernel(CASES[name].file, CASES[name].kernel)


@cache
def compiled(text: str, name: str) -> Kernel:
    """A kernel from its text."""
    return kernel(text, name)


def arguments(name: str, seed: int = 0) -> tuple[Any, ...]:
    """New arguments of a case, with new shadows."""
    case = CASES[name]
    made = case.arrays({d.name: d.type for d in shipped(name).parameters}, seed)
    return tuple(case.annotated(argument, value) for argument, value in made.items())


@contextlib.contextmanager
def running(executor: str, analysis: bool = True, plain: bool = True) -> Iterator[None]:
    """Within it NumPy arrays run on an executor, with recording analysed or not and plain accumulation allowed or not."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.executor_for_tests(EXECUTORS[executor]))
        if not analysis:
            stack.enter_context(pipeline.everything_recorded_for_tests())
        if not plain:
            stack.enter_context(pipeline.nothing_plain_for_tests())
        yield
