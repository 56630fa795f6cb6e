"""`python -m benchmarks.gradbench.tool`: a tool of GradBench. It reads messages from its standard input and answers on its standard output,
one line of JSON each.

`define` names the eval; `evaluate` one of its functions, with an input: the answer has the output, and the time of each run, of which there
are as many as the input's `min_runs` and `min_seconds` ask for. A first run, in which kernels are compiled, is timed as `prepare`. What
fails is answered with the error's text, and the next message is read.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np

from . import device
from .evals import functions_of

Message = dict[str, Any]


def answer(message: Message) -> Message:
    """The answer to a message."""
    kind = message["kind"]
    found: Message = {"id": message["id"]}
    if kind == "start":
        return found | {"tool": "gpuad"}
    if kind == "define":
        return found | _tried(lambda: functions_of(message["module"]) and {})
    if kind == "evaluate":
        return found | _tried(lambda: evaluated(functions_of(message["module"])[message["function"]], message["input"]))
    return found


def _tried(work: Callable[[], Message]) -> Message:
    try:
        return {"success": True, **work()}
    except Exception as error:  # whatever it is, the eval is told and goes on
        return {"success": False, "error": "".join(traceback.format_exception(error))}


def evaluated(function: Callable[[Any], Callable[[], Any]], given: Message) -> Message:
    """Output and times of a function, which makes of an input what is run."""
    begin = time.perf_counter_ns()
    run = function(given)
    run()
    device.finish()
    timings = [{"name": "prepare", "nanoseconds": time.perf_counter_ns() - begin}]
    runs, spent = 0, 0
    while runs < given.get("min_runs", 1) or spent < given.get("min_seconds", 0) * 1e9:
        begin = time.perf_counter_ns()
        output = run()
        device.finish()
        taken = time.perf_counter_ns() - begin
        timings.append({"name": "evaluate", "nanoseconds": taken})
        runs, spent = runs + 1, spent + taken
    return {"output": plain(output), "timings": timings}


def plain(value: Any) -> Any:
    """The value in lists, dictionaries and numbers."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    host = value.get() if hasattr(value, "get") else value
    return host.tolist() if isinstance(host, (np.ndarray, np.generic)) else host


def serve(lines: Iterable[str], out: IO[str]) -> None:
    """Answers each line."""
    for line in lines:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
