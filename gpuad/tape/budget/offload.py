"""Memory beyond that of the arrays, for checkpoints: pinned memory of the host for a GPU's, or a file.

One transfer is under way at a time, beside what the program does: on a copy stream, or in a thread. `join` is where the program goes on
only once it is done. A file has no name any more as soon as it is open, so it is gone with the process, whatever ends that.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import TapeError
from ...public_calls import show
from ...runtime.cuda import Pinned

_SAYS = "offload is 'host' (pinned memory, for a program on a GPU) or a folder for a file"


class Level(Protocol):
    """Where checkpoints go. Arrays are flat bytes; they must not be used before `join`."""

    def reserve(self, nbytes: int) -> None:
        """There is room for so many bytes from here on; what was there is lost."""

    def write(self, at: int, data: Any) -> None:
        """Begins to copy an array to place `at`."""

    def read(self, at: int, data: Any) -> None:
        """Begins to copy from there into an array."""

    def join(self) -> None:
        """Waits for what has begun, or lets the current stream do so. OSError where a file could not be written or read."""


def checked(offload: object) -> None:
    """TapeError for what cannot be meant."""
    if offload == "host":
        return
    if not isinstance(offload, str | os.PathLike):
        raise TapeError(f"{_SAYS}; not {show(offload)}")
    if not Path(offload).is_dir():
        raise TapeError(f"{_SAYS}, and `{os.fspath(offload)}` is none; create it first")


def level_of(offload: Any, library: str | None) -> Level:
    """The level that is meant, for arrays of a library. TapeError for 'host' where arrays are the host's already."""
    if offload != "host":
        return InFile(offload)
    if library != "cupy":
        raise TapeError(
            "offload='host' moves checkpoints from a GPU to pinned memory; these arrays are in the host's memory already. offload=<folder> "
            "moves them to a file. Nothing was launched."
        )
    return Pinned()


class InFile:
    """A file without a name, written and read by a thread of its own."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.file = tempfile.TemporaryFile(dir=folder, prefix="gpuad-", buffering=0)  # noqa: SIM115
        self.worker = ThreadPoolExecutor(1, "gpuad offload")
        self.under_way: Future[None] | None = None
        self.then: Callable[[], None] | None = None
        weakref.finalize(self, _closed, self.file, self.worker)

    def reserve(self, nbytes: int) -> None:
        """Nothing: a file grows."""

    def write(self, at: int, data: Any) -> None:
        host = data if isinstance(data, np.ndarray) else data.get()
        self.under_way = self.worker.submit(_written, self.file, at, memoryview(host))  # type: ignore[arg-type]

    def read(self, at: int, data: Any) -> None:
        host = data if isinstance(data, np.ndarray) else np.empty(data.size, np.uint8)
        if host is not data:
            self.then = lambda: data.set(host)
        self.under_way = self.worker.submit(_read, self.file, at, memoryview(host))  # type: ignore[arg-type]

    def join(self) -> None:
        under_way, then, self.under_way, self.then = self.under_way, self.then, None, None
        if under_way is not None:
            under_way.result()
        if then is not None:
            then()


def _written(file: Any, at: int, data: memoryview) -> None:
    file.seek(at)
    while data:
        data = data[file.write(data) :]


def _read(file: Any, at: int, data: memoryview) -> None:
    file.seek(at)
    while data:
        got = file.readinto(data)
        if not got:
            raise OSError("the file of offloaded checkpoints is shorter than what was written")
        data = data[got:]


def _closed(file: Any, worker: ThreadPoolExecutor) -> None:
    worker.shutdown(wait=True)
    file.close()


__all__ = ["InFile", "Level", "Pinned", "checked", "level_of"]
