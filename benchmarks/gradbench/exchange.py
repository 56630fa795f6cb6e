"""An eval's messages, passed to several tools in turn.

An eval of GradBench is a process that writes messages and reads the answers of one tool. Here gpuad's answers go back to it, so that it is
gpuad whose outputs it validates; the other tools get the same messages, and their outputs are compared with gpuad's. For an evaluation all
tools take turns, several rounds, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Row = dict[str, Any]
GPUAD = "gpuad"
TOLERANCE = 1e-4  # of GradBench's own comparison


@dataclass(frozen=True)
class Command:
    """How a process is started."""

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(repr=False)


@contextmanager
def started(command: Command) -> Iterator[subprocess.Popen[str]]:
    """The process, ended at the end."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command.words, stdin=pipe, stdout=pipe, text=True, cwd=command.folder, env=dict(command.environment))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(tool: subprocess.Popen[str], message: Message) -> Message:
    """A tool's answer; RuntimeError if it has ended."""
    assert tool.stdin is not None and tool.stdout is not None
    try:
        tool.stdin.write(json.dumps(message) + "\n")
        tool.stdin.flush()
    except BrokenPipeError:
        pass
    line = tool.stdout.readline()
    if not line:
        raise RuntimeError(f"the tool has ended; the message was {message['kind']}")
    found: Message = json.loads(line)
    return found


def run(evaluation: Command, tools: Mapping[str, Command], rounds: int) -> Iterator[Row]:
    """A row for each evaluation: function, size, `valid` (None where the eval does not say), and by tool its milliseconds (`ms` the least,
    `median_ms` the lower of the medians of the rounds), how many runs, whether it agrees with gpuad; or how it failed.

    One of `tools` is gpuad."""
    with ExitStack() as stack:
        others = {name: stack.enter_context(started(command)) for name, command in tools.items()}
        asking = stack.enter_context(started(evaluation))
        assert asking.stdin is not None and asking.stdout is not None
        waiting: Row | None = None
        for line in asking.stdout:
            message = json.loads(line)
            if message["kind"] != "analysis" and waiting is not None:
                yield waiting
                waiting = None
            if message["kind"] == "evaluate":
                answer, waiting = _evaluated(others, message, rounds)
            elif message["kind"] == "analysis":
                answer = {"id": message["id"]}
                assert waiting is not None
                waiting |= {"valid": message["valid"]} | ({"error": message["error"]} if "error" in message else {})
            else:
                answers = {name: ask(tool, message) for name, tool in others.items()}
                answer = answers[GPUAD]
                for name in [n for n, a in answers.items() if n != GPUAD and not a.get("success", True)]:
                    del others[name]
            asking.stdin.write(json.dumps(answer) + "\n")
            asking.stdin.flush()
        if waiting is not None:
            yield waiting


def _evaluated(tools: dict[str, subprocess.Popen[str]], message: Message, rounds: int) -> tuple[Message, Row]:
    given = message["input"]
    shorter = message | {"input": given | {"min_seconds": given.get("min_seconds", 0) / rounds}}
    times: dict[str, list[list[int]]] = {name: [] for name in tools}
    answers: dict[str, Message] = {}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for name in (tools if turn % 2 == 0 else reversed(tools)) if rounds > 1 else tools:
            if name in failed:
                continue
            answers[name] = ask(tools[name], shorter)
            if not answers[name].get("success", False):
                failed[name] = str(answers[name].get("error", "no reason given"))[-2000:]
                continue
            times[name].append([t["nanoseconds"] for t in answers[name]["timings"] if t["name"] == "evaluate"])
    row: Row = {"function": message["function"], "size": message.get("description", ""), "valid": None, "tools": {}}
    for name in tools:
        if name in failed:
            row["tools"][name] = {"failed": failed[name]}
            continue
        runs = [t for t in times[name] if t]
        row["tools"][name] = {
            "ms": min(min(t) for t in runs) / 1e6,
            "median_ms": min(statistics.median(t) for t in runs) / 1e6,
            "runs": sum(map(len, runs)),
        }
        if name != GPUAD and GPUAD not in failed:
            row["tools"][name]["agrees"] = agree(answers[name]["output"], answers[GPUAD]["output"])
    return {"id": message["id"]} | answers[GPUAD], row


def agree(one: Any, other: Any) -> bool:
    """Whether two outputs are equal as GradBench means it: numbers to 1e-4 of the sum of their sizes, or of 1 where that is less."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(agree(part, other[name]) for name, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return bool(abs(one - other) <= TOLERANCE * max(1.0, abs(one) + abs(other)))
    return bool(one == other)
