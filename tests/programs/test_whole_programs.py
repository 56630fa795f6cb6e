"""Whole programs as their authors wrote them: each module imports numpy as np, and knows nothing of gpuad. With the import line changed,
and with nothing changed by `gpuad.value_and_grad`, gradients are those of central differences of the original."""

from __future__ import annotations

import importlib
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

import gpuad
from gpuad import Duplicated, Tape

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("test_"))


def original(name: str) -> Any:
    return importlib.import_module(name)


def changed(name: str) -> Any:
    """The program with its import lines changed, and nothing else."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8").replace("from numpy import", "from gpuad.numpy import")
    module = types.ModuleType(f"changed_{name}")
    exec(compile(text.replace("import numpy as np", "import gpuad.numpy as np"), f"{name}.py", "exec"), vars(module))
    return module


def slope(loss: Any, args: Sequence[Any], active: Sequence[int], directions: Sequence[Any], h: float = 1e-6) -> float:
    def moved(sign: int) -> float:
        given = list(args)
        for k, d in zip(active, directions, strict=True):
            given[k] = args[k] + sign * h * d
        return float(loss(*given))

    return (moved(1) - moved(-1)) / (2 * h)


def directions_of(rng: Any, args: Sequence[Any], active: Sequence[int]) -> list[Any]:
    found = []
    for k in active:
        d = rng.normal(size=numpy.shape(args[k]))
        found.append(d + 1j * rng.normal(size=d.shape) if numpy.iscomplexobj(args[k]) else d)
    return found


def inner(gradient: Any, direction: Any) -> float:
    return float(numpy.real(numpy.conj(gradient) * direction).sum())


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_changed_line(name: str) -> None:
    rng = numpy.random.default_rng(3)
    args, active = original(name).arguments(rng)
    directions = directions_of(rng, args, active)
    expected = slope(original(name).loss, args, active, directions)
    module, tape = changed(name), Tape()
    assert float(module.loss(*args)) == float(original(name).loss(*args))  # outside of a tape it is NumPy
    for _ in range(2):
        given = list(args)
        for k in active:
            given[k] = Duplicated(args[k].copy())
        with tape:
            value = module.loss(*given)
        assert float(value.primal) == pytest.approx(float(original(name).loss(*args)), rel=1e-12)
        tape.reverse({value: 1.0})
        found = sum(inner(given[k].shadow, d) for k, d in zip(active, directions, strict=True))
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_changed_line(name: str) -> None:
    rng = numpy.random.default_rng(4)
    module = original(name)
    args, active = module.arguments(rng)
    directions = directions_of(rng, args, active)
    expected = slope(module.loss, args, active, directions)
    function = gpuad.value_and_grad(module.loss, active)
    before = [numpy.array(args[k]) for k in active]
    for _ in range(2):
        value, gradients = function(*args)
        assert value == pytest.approx(float(module.loss(*args)), rel=1e-12)
        assert sum(map(inner, gradients, directions)) == pytest.approx(expected, rel=2e-6, abs=1e-9)
    for k, array in zip(active, before, strict=True):
        numpy.testing.assert_array_equal(args[k], array)
    assert module.np is numpy
