"""What the fixtures and the markers do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ..arguments.recorder import current
from ..pipeline.modes import deterministic
from ..tape.facade import Tape, recording_of
from ..testing.memory import memory
from ..tools.devices import DeviceError, free_device
from ..tools.settings import Settings, size_in_bytes

_LEFT = 64 * 1024  # bytes of arrays that may stay behind: small constants that libraries keep


@dataclass(frozen=True)
class Device:
    """`kind` is cpu or gpu; `xp` the array library; `name` what the machine calls it, `index` its number among those that CUDA shows."""

    kind: str
    xp: Any
    name: str = "CPU"
    index: int | None = None


def device(kind: str, settings: Settings, required: bool) -> Device:
    """The CPU, or a GPU that is free. Skips the test where there is none, or fails it."""
    if kind == "cpu":
        return Device("cpu", np)
    try:
        found = free_device(settings)
    except DeviceError as none:
        if required:
            pytest.fail(f"a GPU is required, but {none}", pytrace=False)
        pytest.skip(f"no GPU: {none}")
    from ..runtime.cuda import use_device

    return Device("gpu", use_device(found.index), found.name, found.index)


def checked_tape(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """A tape, and a look at what it and the test leave behind."""
    tape = Tape()
    inside = recording_of(tape)
    with memory() as used:
        yield tape
        recording = current.get() is inside
        if recording:
            inside.left(RuntimeError, RuntimeError("the test has ended"))
        vars(inside).clear()  # it is not to be used any more, and whatever still holds it holds nothing
    if recording:
        pytest.fail("the tape was still recording at the end of the test: leave its block", pytrace=False)
    if used.left > _LEFT:
        lines = "\n".join(f"    {size} bytes made at {where}" for where, size in used.kept[:5])
        pytest.fail(f"arrays of {used.left} bytes that were made in the test are still there:\n{lines}", pytrace=False)


@contextlib.contextmanager
def marked(item: pytest.Item) -> Iterator[None]:
    """What the markers of a test ask for, around its call."""
    with contextlib.ExitStack() as stack:
        if item.get_closest_marker("gpuad_deterministic") is not None:
            stack.enter_context(deterministic())
        limit = item.get_closest_marker("gpuad_memory")
        if limit is not None:
            stack.enter_context(_limited(item, _peak(limit)))
        yield


def _peak(marker: pytest.Mark) -> str:
    given = {**marker.kwargs, **({"peak": marker.args[0]} if marker.args else {})}
    if set(given) != {"peak"} or not isinstance(given["peak"], str):
        raise pytest.UsageError('write @pytest.mark.gpuad_memory(peak="80 MiB")')
    try:
        size_in_bytes(given["peak"])
    except ValueError as error:
        raise pytest.UsageError(f"@pytest.mark.gpuad_memory: {error}") from None
    return str(given["peak"])


@contextlib.contextmanager
def _limited(item: pytest.Item, peak: str) -> Iterator[None]:
    given = getattr(item, "funcargs", {}).get("gpuad_device")
    with memory(given.xp if isinstance(given, Device) else np) as used:
        yield
    item.user_properties.append(("gpuad peak bytes", used.peak))
    if used.peak > size_in_bytes(peak):
        pytest.fail(f"the test took {used.peak} bytes at one time; gpuad_memory allows {peak}", pytrace=False)
