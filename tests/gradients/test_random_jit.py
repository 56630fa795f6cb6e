"""Random jit functions: the primal against the function run by Python itself, gradients against forward mode and differences, second
derivatives against differences of gradients. The functions are the same in every run; `GPUAD_NIGHTLY=500` checks that many."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases
from random_jit import ROW, RandomJit, loaded

from gpuad import Duplicated
from gpuad.testing import check_gradient

N = 6
COUNT = cases(2, 20)
NAMES = ("a", "b", "x", "y", "s")


def _by_python(text: str, memory: dict[str, Any], at: Any) -> None:
    """Runs the text thread after thread."""
    thread = SimpleNamespace(x=0)

    def atomic_add(array: Any, index: int, value: Any) -> None:
        array[index] += value

    jit = SimpleNamespace(
        rawkernel=lambda **_: lambda f: f, grid=lambda _: thread.x, atomic_add=atomic_add,
        blockIdx=SimpleNamespace(x=0), blockDim=SimpleNamespace(x=N), threadIdx=thread,
    )  # fmt: skip
    names: dict[str, Any] = {"jit": jit}
    exec(compile(text.replace("from gpuad import jit\n", ""), "by_python", "exec"), names)
    for thread.x in range(N):
        names["kernel"](*memory.values(), at, N, 2)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_jit(seed: int, tmp_path: Path) -> None:
    made, rng = RandomJit(seed), np.random.default_rng(seed)
    kernel = loaded(made.text, tmp_path / f"jit_{seed}.py").kernel
    start = {name: rng.uniform(0.3, 1.2, (N, ROW) if name == "y" else N) for name in NAMES}
    at = rng.integers(0, N, N).astype(np.int32)
    expected, found = ({k: v.copy() for k, v in start.items()} for _ in range(2))
    _by_python(made.text, expected, at)
    with running("reference" if seed % 8 else "host"):
        kernel[2, 4](*found.values(), at, N, 2)
        for name in NAMES:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-10, atol=1e-10, err_msg=f"{name}\n{made.text}")
        args = (*(Duplicated(v) for v in start.values()), at, N, 2)
        report = check_gradient(kernel, args, grid=2, block=4, directions=1, race_check=False)
    assert report.passed and not any("hvp refuses" in note for note in report.notes), made.text
