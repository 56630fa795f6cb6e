"""What the README and the docstrings of the public names show runs, and says what they say."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snippets import Reader, blocks

import gpuad
from gpuad import testing
from gpuad.tools import cases

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_says_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(ROOT / "README.md")
    first, program = [block for block in blocks(reader.page) if block.language == "python"][:2]
    reader.run(first)
    old = np.linspace(0, 1, reader.names["n"], dtype=np.float32)
    assert np.array_equal(reader.names["x"], old * old) and np.array_equal(reader.names["dx"], 2 * old)
    assert reader.printed.startswith("1.0 2.0\n") and "__global__ void square_reverse(" in reader.printed
    reader.run(program)
    losses = [float(line) for line in reader.printed.splitlines()[:3]]
    assert losses == sorted(losses, reverse=True) and "needed by step" in reader.printed


def test_it_is_read_in_five_minutes() -> None:
    assert len(README.split()) < 1500


def test_the_launch_description_of_ones_own_kernel() -> None:
    page = ROOT / "docs" / "how-to" / "your-own-kernel.md"
    (shown,) = (block for block in blocks(page) if block.title == "checked.cu")
    (case,) = cases.read(shown.text)
    assert case.kernel == "relax" and set(case.active) == {"x", "y", "rate"}


def test_the_first_elementwise_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(ROOT / "docs" / "how-to" / "elementwise-and-jit.md")
    reader.run(next(block for block in blocks(reader.page) if block.language == "python"))
    x = np.linspace(-1, 1, 5, dtype=np.float32).astype(np.float64)
    root = np.sqrt(x * x + np.float32(0.1))
    np.testing.assert_allclose(reader.names["dx"], x / root, rtol=1e-5)
    np.testing.assert_allclose(reader.names["deps"], np.sum(0.5 / root), rtol=1e-5)


def test_the_gradient_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the tutorial has the gradient that differences of its loss have."""
    monkeypatch.chdir(tmp_path)
    reader = Reader(ROOT / "docs" / "tutorial.md")
    shown = [block for block in blocks(reader.page) if block.language == "python"]
    for block in (shown[0], *(block for block in shown if "simulate()" in block.text and "graph" not in block.text)):
        reader.run(replace(block, text=block.text.replace("range(300)", "range(2)")))
    names = reader.names
    rate, direction = names["RATE"], np.random.default_rng(0).normal(size=64).astype(np.float32)
    start = rate.primal.copy()

    def loss(step: float) -> float:
        rate.primal[...] = start + step * direction
        return 0.5 * float(np.sum((names["simulate"]().primal.astype(np.float64) - names["measured"]) ** 2))

    end = names["simulate"]()
    residual = end.primal - names["measured"]
    rate.shadow.fill(0)
    names["tape"].reverse({end: residual})
    slope = float(rate.shadow @ direction)
    difference = (loss(1e-3) - loss(-1e-3)) / 2e-3
    np.testing.assert_allclose(slope, difference, rtol=1e-2)


@pytest.mark.parametrize("public", [gpuad.kernel, gpuad.autodiff, gpuad.hvp, gpuad.autodiff_thunk, gpuad.Tape])
def test_examples_of_docstrings(public: Any) -> None:
    square = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    names: dict[str, Any] = {"text": re.findall(r'r"""(.*?)"""', square.text, re.DOTALL)[0], "gpuad": gpuad, "Duplicated": gpuad.Duplicated}
    names |= {"square": gpuad.kernel(names["text"], "square"), "n": 10, "grid": 1, "block": 32, "seed": 1.0}
    names |= {name: np.ones(10, np.float32) for name in ("x", "dx", "x_dot")} | {"dx_dot": np.zeros(10, np.float32)}
    names["X"] = gpuad.Duplicated(names["x"])
    example = re.findall(r"^(?: {4}.*\n?)+", inspect.getdoc(public) or "", re.MULTILINE)
    assert len(example) == 1
    exec(textwrap.dedent(example[0]), names)


def test_names_that_are_shown_exist() -> None:
    for path in re.findall(r"`((?:gpuad|kernels|tests)/[\w/.]*)`", README):
        assert (ROOT / path).exists(), path
    for name in set(re.findall(r"gpuad\.(\w+)", README)) - {"ops"}:
        assert hasattr(gpuad, name), name
    assert hasattr(testing, "check_gradient")


def test_the_speeds_of_the_first_screen_are_those_of_the_table() -> None:
    row = next(line for line in README.splitlines() if line.startswith("| heat, side 4096, steps 10 |"))
    ours, by_hand, jax, torch, warp = (round(float(cell)) for cell in row.split("|")[2:7])
    (sentence,) = (line for line in README.splitlines() if line.startswith("Speed, on two cores of a CPU:"))
    assert f"takes {ours} ms; adjoint loops in C++ by hand {by_hand} ms, JAX {jax}, Warp {warp}, PyTorch {torch} " in sentence
