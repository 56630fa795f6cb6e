"""`gpuad selftest`: right where all is right, and wrong, with the check's name, where a fault is planted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run

from gpuad.ad import derivatives
from gpuad.tools import selftest


def test_all_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it compiles does not stay on disk, nor does the setting of the cache folder change."""
    before = os.environ.get(selftest.VARIABLE)
    monkeypatch.setattr(selftest, "LIMIT", 600.0)  # on a machine with other work
    result = run("selftest")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("gpuad ") and "NumPy: numpy" in result.stdout and "C++ compiler: " in result.stdout
    assert f"{len(selftest.CHECKS)} ok, 0 wrong, 0 not run" in result.stdout
    assert os.environ.get(selftest.VARIABLE) == before


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(derivatives.RULES, "sin", derivatives.RULES["exp"])
    monkeypatch.setattr(selftest, "_SOURCE", selftest._SOURCE.replace("damp(", "damp /* anew */ ("))  # what is kept of the other is right
    result = selftest._tried("in place", selftest.CHECKS["argument overwritten in place"], np)
    assert result.status == "wrong" and result.detail.startswith("error "), result


@pytest.mark.parametrize("status", ["wrong", "not run"])
def test_exit_status(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(library: Any) -> float:
        raise ArithmeticError("planted\nmore of it")

    monkeypatch.setattr(selftest, "CHECKS", {"planted fault": fails})
    if status == "not run":
        monkeypatch.setattr(selftest, "LIMIT", -1.0)
    result = run("selftest")
    assert result.exit_code == (1 if status == "wrong" else 0)
    assert ("ArithmeticError: planted" in result.stdout) is (status == "wrong") and "more of it" not in result.stdout
    assert f"{status:<8}planted fault (CPU)" in result.stdout


@pytest.mark.parametrize("error", [float("nan"), 1e-6])
def test_numbers_that_are_wrong(error: float) -> None:
    assert selftest._tried("planted", lambda library: error, np).status == "wrong"


def test_a_compiler_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that says its version and compiles nothing."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "planted 1.0" && exit 0\necho "planted: no" >&2\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(selftest, "CHECKS", {"atomics": selftest.CHECKS["atomic additions"]})
    monkeypatch.setattr(selftest, "_SOURCE", selftest._SOURCE.replace("x[i] * x[i]", "x[i] * (x[i] + 1e-3)"))  # not compiled before
    result = run("selftest")
    assert result.exit_code == 1 and "CompileError" in result.stdout, result.output
