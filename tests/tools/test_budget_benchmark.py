"""The benchmark of time loops under byte budgets, in small, and what it makes of its rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from launch_tools import running
from typer.testing import CliRunner

from benchmarks import budget_run, budgets, records


@pytest.mark.one_of(2)
@pytest.mark.parametrize("problem", ["wave", "fisher"])
def test_a_problem_in_small(problem: str) -> None:
    with running("host"):
        whole = budget_run.measured(problem, 24, 60, None)
        row = budget_run.measured(problem, 24, 60, whole["predicted"] // 3)
        small = budget_run.measured(problem, 24, 60, 100)
    assert row["gradient"] == whole["gradient"] and row["reruns"] > 0 and row["bytes"] == row["predicted"] <= row["budget"]
    assert row["first recording"] <= row["budget"] and np.allclose(row["sums"], whole["sums"]) and row["cpu"] >= 0
    assert "at least" in small["refused"]


def test_ratios_at_equal_bytes_and_at_equal_time() -> None:
    rows = [{"bytes": 1000, "cpu": 1.0}, {"bytes": 100, "cpu": 2.0}, {"bytes": 10, "cpu": 5.0}]
    peer = {"bytes": 500, "cpu": 3.0}
    found = budgets.compared(peer, rows, lambda limit: {"cpu": 1.5, "bytes": limit})
    assert found == {"time ratio at equal bytes": 2.0, "bytes ratio at equal time": 5.0}
    assert budgets.compared({"bytes": 5, "cpu": 0.5}, rows, lambda limit: {}) == {}
    assert budgets._frontier([*rows, {"bytes": 200, "cpu": 2.5}]) == rows


def test_the_record_and_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"bytes": 100, "cpu": 2.0, "predicted": 100, "sums": [1.0]}]
    found = {"gpuad": [*rows, {"budget": 3, "refused": "at least 5 bytes"}], "stored": 100, "jax": [{"failed": "no"}]}
    monkeypatch.setattr(budgets, "problem_record", lambda *_: found)
    app = budgets.typer.Typer()
    app.command()(budgets.command)
    result = CliRunner().invoke(app, ["--machine", "some", "--results", str(tmp_path), "--only", "wave"])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("budgets-some-*.json")
    assert json.loads(path.read_text(encoding="utf-8"))["problems"]["wave"]["stored"] == 100
    assert path.with_suffix(".png").stat().st_size > 5000 and records.today() in path.name
