"""Whole programs as their authors wrote them: each module imports numpy as np, or cupy as cp, and knows nothing of gpuad. With the import
line changed, and with nothing changed by `gpuad.value_and_grad`, gradients are those of central differences of the original; from the third
round on nothing is recorded anew."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from example_sizes import small
from tape_tools import nothing_is_analysed

import gpuad
from gpuad import Active, Duplicated, Tape

TESTS = ("example_sizes", "test_whole_programs", "test_kept_arrays", "test_examples")
HERE, EXAMPLES = Path(__file__).parent, Path(__file__).parents[2] / "examples"
FILES = [*(path for path in HERE.glob("*.py") if path.stem not in TESTS), *EXAMPLES.glob("*_forward.py")]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FILES, key=lambda path: path.stem)}
PROGRAMS = list(TEXTS)
ON_DEVICE = {name for name, text in TEXTS.items() if "import cupy" in text}


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """The stand-in for CuPy, for programs that import it."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name not in ON_DEVICE:
        yield
        return
    request.getfixturevalue("cupy")
    forget()
    yield
    forget()


def forget() -> None:
    """Forgets what was imported over another stand-in."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "cupyx" or n.startswith(("gpuad.cupy", "gpuad.cupyx")) or n in ON_DEVICE]:
        del sys.modules[name]
    vars(gpuad).pop("cupy", None)
    vars(gpuad).pop("cupyx", None)


def original(name: str) -> Any:
    return importlib.import_module(name)


def arguments(module: Any, name: str, rng: Any) -> tuple[Sequence[Any], Sequence[int]]:
    """What a program is called with, and the places of the arguments that gradients are wanted of."""
    return module.arguments(rng) if hasattr(module, "arguments") else small(module, name.removesuffix("_forward"), rng)


def changed(name: str) -> Any:
    """The program with its import lines changed, and nothing else."""
    module: Any = types.ModuleType(f"changed_{name}")
    text = TEXTS[name]
    for library in ("numpy", "cupyx", "cupy"):
        text = text.replace(f"import {library} as", f"import gpuad.{library} as").replace(f"from {library}", f"from gpuad.{library}")
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def host(x: Any) -> Any:
    """An array of the device, or a number, for NumPy."""
    return x.get() if hasattr(x, "get") else x


def slope(loss: Any, args: Sequence[Any], active: Sequence[int], directions: Sequence[Any], h: float = 1e-6) -> float:
    def moved(sign: int) -> float:
        given = list(args)
        for k, d in zip(active, directions, strict=True):
            given[k] = args[k] + given_to(args[k], sign * h * d)
        return float(loss(*given))

    return (moved(1) - moved(-1)) / (2 * h)


def given_to(like: Any, values: Any) -> Any:
    """Values on the device on which an array is."""
    return sys.modules["cupy"].asarray(values) if hasattr(like, "get") else values


def directions_of(rng: Any, args: Sequence[Any], active: Sequence[int]) -> list[Any]:
    found = []
    for k in active:
        d = rng.normal(size=numpy.shape(args[k]))
        found.append(d + 1j * rng.normal(size=d.shape) if getattr(args[k], "dtype", numpy.dtype(float)).kind == "c" else d)
    return found


def inner(gradient: Any, direction: Any) -> float:
    return float(numpy.real(numpy.conj(host(gradient)) * direction).sum())


def pairs_of(args: Sequence[Any], active: Sequence[int]) -> list[Any]:
    """The arguments, those of which gradients are wanted with shadows."""
    given = list(args)
    for k in active:
        given[k] = Active(args[k], numpy.zeros(())) if isinstance(args[k], float) else Duplicated(args[k].copy())
    return given


def known(number: int) -> Any:
    return nothing_is_analysed() if number > 1 else contextlib.nullcontext()


@pytest.mark.one_of(12)
@pytest.mark.parametrize("budget", [None, "64 MiB"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_changed_line(name: str, budget: str | None) -> None:
    args, active = arguments(original(name), name, numpy.random.default_rng(3))
    directions = directions_of(numpy.random.default_rng(4), args, active)
    expected = slope(original(name).loss, args, active, directions)
    module, tape = changed(name), Tape(budget=budget)
    args, _ = arguments(module, name, numpy.random.default_rng(3))
    plain = float(original(name).loss(*args))
    assert float(module.loss(*args)) == plain  # outside of a tape it is the library
    for number in range(4):
        given = pairs_of(args, active)
        with known(number):
            with tape:
                value = module.loss(*given)
            assert float(value.primal) == pytest.approx(plain, rel=1e-12)
            tape.reverse({value: 1.0})
        found = sum(inner(given[k].shadow, d) for k, d in zip(active, directions, strict=True))
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-9)
    assert not tape.explain().anew


@pytest.mark.one_of(9)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_changed_line(name: str) -> None:
    module = original(name)
    args, active = arguments(module, name, numpy.random.default_rng(4))
    directions = directions_of(numpy.random.default_rng(5), args, active)
    expected = slope(module.loss, args, active, directions)
    plain = float(module.loss(*args))
    function = gpuad.value_and_grad(module.loss, active)
    before = [numpy.array(host(args[k])) for k in active]
    for number in range(4):
        with known(number):
            value, gradients = function(*args)
        assert value == pytest.approx(plain, rel=1e-12)
        assert sum(map(inner, gradients, directions)) == pytest.approx(expected, rel=2e-6, abs=1e-9)
    for k, array in zip(active, before, strict=True):
        numpy.testing.assert_array_equal(host(args[k]), array)
    library = "cupy" if name in ON_DEVICE else "numpy"
    assert vars(module).get("np" if library == "numpy" else "cp").__name__ == library
