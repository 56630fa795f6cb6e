"""Processes that answer in lines, those of `worker.py` above all, seen from the one that asks them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import records
from .problem import Arrays, Record

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0  # seconds until a process that does not answer is ended


class Member(Protocol):
    """Somebody who can be asked."""

    def ask(self, **request: Any) -> None:
        """Sends a request."""

    def answer(self) -> Record:
        """Waits for the answer."""

    def close(self) -> None:
        """Ends it."""


class Answering:
    """A module of this package in a process of its own, which answers in lines. `words`: its name and what it is called with."""

    def __init__(self, *words: str, patience: float = PATIENCE) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.patience, self.lines = patience, queue.SimpleQueue[str]()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            return  # it has ended, which is the answer

    def answer(self) -> Record:
        try:
            line = self.lines.get(timeout=self.patience)
        except queue.Empty:
            self.process.kill()
            return {"failed": f"no answer in {self.patience:.0f} s"}
        if line:
            record: Record = json.loads(line)
            return record
        self.lines.put("")  # it stays ended
        status = self.process.wait()
        self.errors.seek(0)
        return {"failed": records.without_places(f"exit status {status}: ...{self.errors.read()[-600:]}")}

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Process(Answering):
    """A worker in a process of its own."""

    def __init__(self, problem: str, runner: str, place: str, patience: float = PATIENCE) -> None:
        super().__init__("benchmarks.worker", problem, runner, place, patience=patience)


Hire = Callable[[str, str, str], Member]


@contextmanager
def hired(problem: str, runners: list[str], place: str, hire: Hire = Process) -> Iterator[dict[str, Member]]:
    """A worker for each runner, all started at once."""
    with ExitStack() as stack:
        members = {}
        for runner in runners:
            members[runner] = hire(problem, runner, place)
            stack.callback(members[runner].close)
        yield members


@contextmanager
def written(**kinds: Arrays) -> Iterator[str]:
    """A folder with arrays as the workers read them."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        for kind, arrays in kinds.items():
            (Path(folder) / kind).mkdir()
            for name, array in arrays.items():
                np.save(Path(folder) / kind / f"{name}.npy", array)
        yield folder
