"""What the tests of gathered accumulations share: the kernels of a launch's reverse pass, and gathered against atomic gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Active, Duplicated, api, pipeline
from gpuad.ir.nodes import Accumulate, How, Kernel, Take
from gpuad.ir.rewrite import walk_stmts


def reverse(kernel: api.Kernel, grid: Any, block: Any, args: tuple[Any, ...]) -> list[Kernel]:
    """The kernels of the launch's reverse pass."""
    call = kernel.bind(grid, block, args, 0, None)
    return [s.kernel for s in pipeline.stages(kernel.reverse_for(api.pattern_of(kernel, call), call), call)]


def atomics(kernels: list[Kernel]) -> int:
    return sum(isinstance(s, Accumulate | Take) and s.how is How.ATOMIC for k in kernels for s in walk_stmts(k.body))


def is_gathered(kernels: list[Kernel]) -> bool:
    return kernels[0].name.endswith("_gather")


def pairs(seed: int, *shapes: Any) -> list[Duplicated]:
    rng = np.random.default_rng(seed)
    return [Duplicated(rng.standard_normal(s), rng.standard_normal(s)) for s in shapes]


def gradients(text: str, grid: Any, block: Any, make: Callable[[], tuple[Any, ...]], name: str = "k", **ways: Any) -> list[Any]:
    args = make()
    with running(**ways):
        gpuad.autodiff(compiled(text, name), grid, block, args)
    return [np.array(a.shadow, copy=True) for a in args if isinstance(a, Duplicated | Active)]


def agree(text: str, grid: Any, block: Any, make: Callable[[], tuple[Any, ...]], name: str = "k", executors: Any = EXECUTORS) -> None:
    """Gathered and atomic gradients are the same on every executor."""
    expected = gradients(text, grid, block, make, name, executor="reference", plain=False)
    for executor in executors:
        for found, right in zip(gradients(text, grid, block, make, name, executor=executor), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12 * max(1.0, float(np.abs(right).max(initial=0))))
