"""Checks in a process of their own, which a launch may end: a kernel that writes outside of its arrays can destroy the process that runs
it, and what remains reports that.

One process serves all checks of a run, one after the other, so that what was imported and derived is there for the next; after one that
died a new one is started. It is started afresh (not forked: a fork has no threads of its parent's), with the parent's `sys.path`, folder
and, for each check, the variables GPUAD_... of its environment. What a conftest.py has changed in the parent's memory is not there."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeAlias

from . import checks
from .checks import Failed, Figures, How, NotApplicable
from .examples import Example

_PREFIX = "GPUAD_"


@dataclass(frozen=True)
class _Raised:
    """What the example's own code raised: the lines of its traceback."""

    text: str


@dataclass(frozen=True)
class _Skipped:
    """Why there was nothing to check."""

    why: str


Outcome: TypeAlias = "Figures | Failed | _Skipped | _Raised"


class ExampleError(Exception):
    """The code of an example raised something else than a GpuadError; its traceback is the text."""


class CheckProcess:
    """The process, started by the first check."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self, check: str, example: Example, how: How) -> Figures:
        """Runs one check as `checks.run` does. Raises what that raises, `Failed` too where the process died, and ExampleError where the
        example's own code raised."""
        process, pipe = self._started()
        try:
            pipe.send((check, example, how, _settings()))
            outcome: Outcome = pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            process.join()
            self._process = self._pipe = None
            raise Failed(checks.died(check, example, _ending(process.exitcode))) from None
        except BaseException:  # an interrupt: the answer of this check is not to be taken for that of the next
            self.close()
            raise
        match outcome:
            case Failed():
                raise outcome
            case _Skipped():
                raise NotApplicable(outcome.why)
            case _Raised():
                raise ExampleError(outcome.text)
        return outcome

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.terminate()
            self._process.join()
        self._process = self._pipe = None

    def _started(self) -> tuple[BaseProcess, Connection]:
        if self._process is None or self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), name="gpuad checks", daemon=True)
            self._process.start()
            theirs.close()  # so that the end of the process ends the pipe
        return self._process, self._pipe


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}


def _ending(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def _serve(pipe: Connection) -> None:
    """Runs what is sent until the other end closes."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle, which ends this process
    with suppress(EOFError, OSError):
        while True:
            check, example, how, settings = pipe.recv()
            for name in [name for name in os.environ if name.startswith(_PREFIX) and name not in settings]:
                del os.environ[name]
            os.environ.update(settings)
            pipe.send(_outcome(check, example, how))


def _outcome(check: str, example: Example, how: How) -> Outcome:
    try:
        return checks.run(check, example, how)
    except Failed as failed:
        return failed
    except NotApplicable as why:
        return _Skipped(str(why))
    except Exception:
        return _Raised(traceback.format_exc())
