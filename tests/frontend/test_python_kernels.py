"""The kernels that ship as Python files: jit functions, elementwise and reduction kernels. Each file has `example(rng)`, which returns a
call and its arguments (and keywords); the last arrays are those that it overwrites. Every file is tested by being there."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

from gpuad.testing import check_gradient
from gpuad.tools.cases import kernel_folder

FILES = {path.stem: path for path in sorted(kernel_folder().glob("*.py"))}
WAYS = {"usual": (True, True), "all recorded": (False, True), "atomic": (True, False)}


def _wave(old: Any, now: Any, speed2: Any) -> tuple[tuple[int, Any], ...]:
    inner = (slice(1, -1), slice(1, -1))
    new, laplace = old.copy(), now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[inner]
    new[inner] = 2 * now[inner] - old[inner] + speed2[inner] * laplace
    return ((0, new),)


def _react(current: Any, dt: Any, a: Any, b: Any, rate: Any, u: Any, v: Any) -> tuple[tuple[int, Any], ...]:
    return (5, u + dt * (u - u**3 / 3 - v + current)), (6, v + dt * rate * (u + a - b * v))


def _log_likelihood(x: Any, mean: Any, deviation: Any, _: Any) -> tuple[tuple[int, Any], ...]:
    z = (x - mean) / deviation
    return ((3, (-0.5 * z * z - np.log(deviation) - 0.5 * np.log(2 * np.pi)).sum(1)),)


# What each example leaves in its arguments: their positions and values.
MODELS: dict[str, Callable[..., tuple[tuple[int, Any], ...]]] = {
    "wave_jit": _wave,
    "fitzhugh_nagumo": _react,
    "log_likelihood": _log_likelihood,
}


def example(name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    call, arguments, *rest = runpy.run_path(str(FILES[name]))["example"](np.random.default_rng(5))
    return call, arguments, rest[0] if rest else {}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_values(name: str, executor: str) -> None:
    call, arguments, keywords = example(name)
    expected = MODELS[name](*(np.copy(a) for a in arguments))
    with running(executor):
        call(*arguments, **keywords)
    for position, value in expected:
        np.testing.assert_allclose(arguments[position], value, rtol=1e-12)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", WAYS)
def test_gradient(name: str, executor: str, way: str) -> None:
    call, arguments, keywords = example(name)
    with running(executor, *WAYS[way]):
        report = check_gradient(call, arguments, directions=2, race_check=executor == "reference", **keywords)
    assert report.passed and not report.notes
