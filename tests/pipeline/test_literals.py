"""Errors point into the Python file whose literal a kernel's text is, at the line and column that its author sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, literals
from gpuad.api import making

BARRIER = 'asm volatile("membar.gl;");'
HEAD = 'extern "C" __global__ void k(float* x)'
WORDINGS = {
    "raw": 'K = gpuad.kernel(r"""\n{head} {{\n    {body}\n}}""", "k")\n',
    "on the first line": "K = gpuad.kernel(r'''{head} {{ {body} }}''', 'k')\n",
    "on one line": "K = gpuad.kernel('{head} {{ {body} }}', 'k')\n",
    "a constant above": "TEXT = r'''\n\n{head}\n{{ {body} }}\n'''\n\n\ndef made():\n    return gpuad.kernel(TEXT, 'k')\n\n\nK = made()\n",
    "behind letters of two bytes": "é, t = 1, '''{head}\n{{\n{body} }}'''\nK = gpuad.kernel(t, 'k')\n",
}  # fmt: skip
NOT_SHOWN = {
    "composed": "BODY = '{body}'\nK = gpuad.kernel('{head} {{ ' + BODY + ' }}', 'k')\n",
    "with escapes": "K = gpuad.kernel('{head} {{\\n{body}\\n}}', 'k')\n",
    "of two literals": "K = gpuad.kernel('{head} {{'\n    '{body} }}', 'k')\n",
}


@pytest.fixture(autouse=True)
def places_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "calling_file", literals.calling_file)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, wording: str, body: str) -> tuple[Path, str, dict[str, Any]]:
    """Runs a program of its own, which may raise."""
    text = "import gpuad\n\n" + wording.format(head=HEAD, body=body)
    file = folder / "model.py"
    file.write_text(text, encoding="utf-8")
    literals._literals.cache_clear()
    names: dict[str, Any] = {"__name__": "model"}
    monkeypatch.chdir(folder)
    exec(compile(text, str(file), "exec"), names)
    return file, text, names


def place(text: str, part: str) -> tuple[int, int]:
    before = text[: text.index(part)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


@pytest.mark.parametrize("name", WORDINGS)
def test_what_is_refused_is_shown_where_it_is_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gpuad.UnsupportedError) as caught:
        run(tmp_path, monkeypatch, WORDINGS[name], BARRIER)
    text = (tmp_path / "model.py").read_text(encoding="utf-8")
    error = caught.value
    assert (error.file, error.line, error.column) == ("model.py", *place(text, BARRIER))
    assert str(error).startswith(f"model.py:{error.line}:{error.column}: error: inline assembly")


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_what_is_no_literal_is_shown_by_its_own_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gpuad.UnsupportedError, match=r"<source>:\d:") as caught:
        run(tmp_path, monkeypatch, NOT_SHOWN[name], BARRIER)
    assert caught.value.file == "<source>"


def test_launches_reports_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "if (threadIdx.x < 4) x[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];"
    _, text, names = run(tmp_path, monkeypatch, WORDINGS["raw"], body)
    line, column = place(text, "x[threadIdx.x] = ")
    kernel = names["K"]
    assert repr(kernel) == "<gpuad kernel k of model.py:3>"
    assert f"(model.py:{line}:" in str(kernel.adjoint(x=Duplicated).explain())
    with pytest.raises(gpuad.LaunchError, match=re.escape(f"(model.py:{line}:{column})")):
        kernel(1, 4, (np.ones(3, np.float32),))


def test_generated_text_does_not_depend_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, names = run(tmp_path, monkeypatch, WORDINGS["raw"], "x[threadIdx.x] *= x[threadIdx.x];")
    there = names["K"].adjoint(x=Duplicated).source
    text = f"\n{HEAD} {{\n    x[threadIdx.x] *= x[threadIdx.x];\n}}"
    assert gpuad.kernel(text, "k").adjoint(x=Duplicated).source == there


def test_a_caller_without_a_file() -> None:
    names: dict[str, Any] = {}
    exec(f"import gpuad\ntry:\n    gpuad.kernel('{HEAD} {{ {BARRIER} }}', 'k')\nexcept gpuad.UnsupportedError as e: error = e", names)
    assert str(names["error"]).startswith("<source>:1:")


def test_the_file_is_that_of_the_caller_outside() -> None:
    assert literals.calling_file() == __file__
    assert literals.shown(str(Path("a") / "b.py")) == str(Path("a") / "b.py")
