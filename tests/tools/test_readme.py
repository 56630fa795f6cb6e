"""What the README and the docstrings of the public names show runs, and says what they say."""

from __future__ import annotations

import inspect
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import testing
from gpuad.tools import cases

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STEPS = """
extern "C" __global__ void reset(float* u, float* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { u[i] = i == n / 2; v[i] = i == n / 2; }
}
extern "C" __global__ void step(float* old, const float* now, const float* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) old[i] = 2.0f * now[i] - old[i] + k[i] * (now[i - 1] - 2.0f * now[i] + now[i + 1]);
}"""


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_first_block(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    old = np.linspace(0, 1, names["n"], dtype=np.float32)
    assert np.array_equal(names["x"], old * old) and np.array_equal(names["dx"], 2 * old)
    assert "__global__ void square_reverse(" in capsys.readouterr().out


def test_a_kernel_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("relax.cu").write_text(blocks("cuda")[0])
    names = {"gpuad": gpuad, "n": 50, "x": np.random.default_rng(0).random(50, np.float32), "y": np.zeros(50, np.float32)}
    exec(blocks("python")[1], names | {"grid": 1, "block": 64})
    assert "gradient of `relax`: agrees" in capsys.readouterr().out
    (case,) = cases.read(Path("relax.cu"))
    assert case.kernel == "relax" and set(case.active) == {"x", "y", "rate"}


def test_a_program_and_its_graph() -> None:
    n = 40
    names: dict[str, Any] = {"gpuad": gpuad, "np": np, "Duplicated": gpuad.Duplicated, "n": n, "steps": 7, "grid": 2, "block": 32}
    names |= {name: gpuad.kernel(STEPS, name) for name in ("reset", "step")}
    names |= {name: np.zeros(n, np.float32) for name in ("u", "v", "dk", "target")} | {"k": np.full(n, 0.2, np.float32)}
    exec(blocks("python")[2].replace("range(50)", "range(2)"), names)
    first = names["dk"].copy()
    assert np.any(first != 0)
    names["dk"].fill(0)
    exec(blocks("python")[3], names)
    np.testing.assert_allclose(names["dk"], first, rtol=1e-5, atol=1e-6)


def test_other_kernels_and_derivatives(tmp_path: Path) -> None:
    path = tmp_path / "shown.py"  # a jit function is read from its file
    path.write_text(blocks("python")[0] + "start, first = x.copy(), dx.copy()\n" + blocks("python")[4])
    names = runpy.run_path(str(path))
    x, eps = names["start"].astype(np.float64), np.float32(0.1)
    root = np.sqrt(x * x + eps)
    np.testing.assert_allclose(names["y"], root - eps * root * root, rtol=1e-5)
    np.testing.assert_allclose(names["deps"], np.sum(0.5 / root), rtol=1e-5)
    np.testing.assert_allclose(names["dx_dot"], 4 * x * (names["first"] + x / root), rtol=1e-5)
    _check_rule(names["blur"], len(x))


def _check_rule(blur: Any, n: int) -> None:
    x, y = (gpuad.Duplicated(np.zeros(n)) for _ in range(2))
    plan = np.fft.rfft(np.exp(-np.linspace(0, 9, n)))
    with gpuad.Tape() as tape:
        blur(x, y, plan)
    seed, direction = np.random.default_rng(0).normal(size=(2, n))
    tape.reverse({y: seed})
    moved = np.fft.irfft(plan * np.fft.rfft(direction), n)
    np.testing.assert_allclose(np.dot(x.shadow, direction), np.dot(seed, moved))


def test_the_error_that_is_shown() -> None:
    shown = next(block for block in blocks("") if block.startswith("kernel.cu:"))
    code = 'extern "C" __global__ void k(float* x, cudaTextureObject_t table) {\n    float v = tex1Dfetch<float>(table, threadIdx.x);\n}'
    with pytest.raises(gpuad.UnsupportedError) as caught:
        gpuad.kernel(code, "k")
    assert str(caught.value) == shown.rstrip("\n").replace("kernel.cu", "<source>")


@pytest.mark.parametrize("public", [gpuad.kernel, gpuad.autodiff, gpuad.hvp, gpuad.autodiff_thunk, gpuad.Tape])
def test_examples_of_docstrings(public: Any) -> None:
    square = blocks("python")[0]
    names: dict[str, Any] = {"text": re.findall(r'r"""(.*?)"""', square, re.DOTALL)[0], "gpuad": gpuad, "Duplicated": gpuad.Duplicated}
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
