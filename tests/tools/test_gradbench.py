"""gpuad as a tool of GradBench: each eval's answers at small sizes against the objective written with NumPy and its differences, the
messages, and an exchange of an eval with two tools. No checkout is needed."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gradbench import exchange, published, tool
from benchmarks.gradbench.evals import NAMES, functions_of

Array = np.ndarray[Any, np.dtype[np.float64]]


def answered(module: str, function: str, given: dict[str, Any]) -> Any:
    """The output that the tool answers with, after two runs more than one: what a run leaves behind must not matter."""
    answer = tool.answer({"id": 0, "kind": "evaluate", "module": module, "function": function, "input": given | {"min_runs": 2}})
    assert answer["success"], answer["error"]
    assert [t["name"] for t in answer["timings"]] == ["prepare", "evaluate", "evaluate"]
    return json.loads(json.dumps(answer["output"]))


def differences(value: Callable[[Array], Any], at: Array, step: float = 1e-6) -> Array:
    """Central differences of a function of a flat array, the derivative by each entry last."""
    columns = []
    for k in range(at.size):
        higher, lower = at.copy(), at.copy()
        higher.flat[k] += step
        lower.flat[k] -= step
        columns.append((np.asarray(value(higher)) - np.asarray(value(lower))) / (2 * step))
    return np.stack(columns, axis=-1)


# --- the evals -----------------------------------------------------------------------------------------------------------------------


def test_lse() -> None:
    x = 100 * np.random.default_rng(1).normal(size=1500)
    given = {"x": x.tolist()}
    e = np.exp(x - x.max())
    assert answered("lse", "primal", given) == pytest.approx(math.log(e.sum()) + x.max(), rel=1e-14)
    np.testing.assert_allclose(answered("lse", "gradient", given), e / e.sum(), rtol=1e-12)


# --- messages ------------------------------------------------------------------------------------------------------------------------


def test_the_messages_of_a_session_are_answered_line_by_line() -> None:
    given = {"x": [0.0, 0.0], "min_runs": 3}
    messages = [
        {"kind": "start", "eval": "lse"},
        {"kind": "define", "module": "lse"},
        {"kind": "evaluate", "module": "lse", "function": "primal", "input": given},
        {"kind": "analysis", "of": 2, "valid": True},
        {"kind": "define", "module": "particle"},
        {"kind": "evaluate", "module": "lse", "function": "primal", "input": {}},
    ]
    out = StringIO()
    tool.serve([json.dumps({"id": k} | m) for k, m in enumerate(messages)], out)
    start, define, evaluate, analysis, unknown, broken = map(json.loads, out.getvalue().splitlines())
    assert start == {"id": 0, "tool": "gpuad"}
    assert define == {"id": 1, "success": True}
    assert evaluate["id"] == 2 and evaluate["output"] == pytest.approx(math.log(2)) and len(evaluate["timings"]) == 4
    assert analysis == {"id": 3}
    assert not unknown["success"] and "no answer to the eval 'particle'" in unknown["error"]
    assert not broken["success"] and "KeyError: 'x'" in broken["error"]


def test_runs_go_on_until_enough_seconds_have_passed() -> None:
    found = tool.evaluated(lambda given: lambda: np.float64(2), {"min_runs": 1, "min_seconds": 0.01})
    assert found["output"] == 2.0 and sum(t["nanoseconds"] for t in found["timings"][1:]) >= 0.01e9


@pytest.mark.parametrize("name", NAMES)
def test_each_eval_has_its_functions(name: str) -> None:
    assert len(functions_of(name)) == 2


EVAL = """
import json, sys
def send(message):
    print(json.dumps(message), flush=True)
    return json.loads(sys.stdin.readline())
send({"id": 0, "kind": "start"})
assert send({"id": 1, "kind": "define", "module": "lse"})["success"]
found = send({"id": 2, "kind": "evaluate", "module": "lse", "function": "primal", "description": "n=2", "input": {"x": [1, 1]}})
send({"id": 3, "kind": "analysis", "of": 2, "valid": found["output"] == 3.0})
found = send({"id": 4, "kind": "evaluate", "module": "lse", "function": "gradient", "description": "n=2", "input": {"x": [1, 1]}})
send({"id": 5, "kind": "analysis", "of": 4, "valid": False, "error": "no"})
"""
TOOL = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"id": message["id"], "success": WANTED}
    if message["kind"] == "evaluate":
        answer["success"] = "gradient" != message["function"] or OUTPUT == 3.0
        timings = [{"name": "prepare", "nanoseconds": 9}, {"name": "evaluate", "nanoseconds": 2000000}]
        answer |= {"output": OUTPUT, "error": "cannot", "timings": timings}
    print(json.dumps(answer), flush=True)
"""


def started(text: str, folder: Path) -> exchange.Command:
    return exchange.Command([sys.executable, "-c", text], folder, os.environ)


def test_an_eval_hears_gpuad_and_the_others_are_compared(tmp_path: Path) -> None:
    tools = {
        "gpuad": started(TOOL.replace("OUTPUT", "3.0").replace("WANTED", "True"), tmp_path),
        "manual": started(TOOL.replace("OUTPUT", "3.1").replace("WANTED", "True"), tmp_path),
        "absent": started(TOOL.replace("OUTPUT", "3.1").replace("WANTED", "False"), tmp_path),
    }
    value, gradient = exchange.run(started(EVAL, tmp_path), tools, rounds=2)
    assert (value["function"], value["size"], value["valid"]) == ("primal", "n=2", True)
    assert value["tools"]["gpuad"] == {"ms": 2.0, "median_ms": 2.0, "runs": 2}
    assert value["tools"]["manual"]["agrees"] is False and set(value["tools"]) == {"gpuad", "manual"}
    assert gradient["valid"] is False and gradient["error"] == "no" and gradient["tools"]["manual"] == {"failed": "cannot"}


def test_a_tool_that_ends_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the tool has ended; the message was start"):
        list(exchange.run(started(EVAL, tmp_path), {"gpuad": started("", tmp_path)}, rounds=1))


def test_outputs_agree_as_gradbench_means_it() -> None:
    assert exchange.agree({"a": [1.0, 2]}, {"a": [1.0001, 2]}) and exchange.agree(1e6, 1e6 + 100)
    assert not exchange.agree({"a": [1.0]}, {"a": [1.001]})
    assert not exchange.agree([1.0], [1.0, 2.0])
    assert not exchange.agree({"a": 1}, {"b": 1}) and not exchange.agree(float("nan"), 1.0)


def test_published_times_are_ratios_to_manual(tmp_path: Path) -> None:
    def took(**seconds: float) -> dict[str, Any]:
        return {size: {"primal": None, "derivative": {"secs": int(s), "nanos": round(s % 1 * 1e9)}} for size, s in seconds.items()}

    tools = {"manual": took(a=1e-4, b=0.5, c=1.0), "enzyme": took(a=1.0, b=1.0, c=3.0), "jax": {"b": {"primal": None}}}
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"tools": tools}))
    assert published.ratios(path) == {"enzyme": 2.5}
    assert published.ratios(tmp_path / "absent.json") == {}
