"""A profile as a snapshot for PyTorch's memory viewer: who holds what, with the reasons as frames.

The viewer wants addresses: what is held gets places in one segment, as an allocator would give them, in the order of time.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..budget import Buffer, Layout
from ..tape.budget.holding import Held, Holding, Place
from .records import Measured

_BASE = 0x7F0000000000  # where the segment begins

Entry = dict[str, Any]


def snapshot(holding: Holding) -> Entry:
    """A dictionary of `segments` with `blocks` and `frames`, and `device_traces`, of a program with its reversal; a moment is 1 ms."""
    layout, buffers = Layout(), dict[int, Buffer]()
    trace: list[Entry] = []
    for moment, begins, held in _in_order(holding):
        if begins:
            buffers[id(held)] = layout.take(held.nbytes)
        else:
            layout.drop([buffers[id(held)]])
        at = _BASE + buffers[id(held)].begin
        actions = ("alloc",) if begins else ("free_requested", "free_completed")
        trace += [
            {"action": a, "addr": at, "size": held.nbytes, "stream": 0, "frames": frames(held), "time_us": 1000 * moment} for a in actions
        ]
    end = len(holding.moments)
    living = sorted((h for h in holding.held if h.end >= end), key=lambda h: buffers[id(h)].begin)
    segment = {
        "device": 0, "address": _BASE, "total_size": layout.top, "allocated_size": sum(h.nbytes for h in living),
        "active_size": sum(h.nbytes for h in living), "requested_size": sum(h.nbytes for h in living), "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "blocks": list(_blocks(living, buffers, layout.top)),
    }  # fmt: skip
    return {"segments": [segment] if layout.top else [], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def _in_order(holding: Holding) -> Iterator[tuple[int, bool, Held]]:
    """What begins and ends, in time; what ends at a moment ends before others begin. What is there at the end stays."""
    end = len(holding.moments)
    changes = [(h.begin, True, h) for h in holding.held] + [(h.end, False, h) for h in holding.held if h.end < end]
    return iter(sorted(changes, key=lambda change: change[:2]))


def _blocks(living: list[Held], buffers: dict[int, Buffer], top: int) -> Iterator[Entry]:
    at = 0
    for h in living:
        begin = buffers[id(h)].begin
        if begin > at:
            yield _block(at, begin - at, "inactive", [])
        yield _block(begin, h.nbytes, "active_allocated", frames(h))
        at = begin + h.nbytes
    if top > at:
        yield _block(at, top - at, "inactive", [])


def _block(begin: int, size: int, state: str, found: list[Entry]) -> Entry:
    return {"address": _BASE + begin, "size": size, "requested_size": size, "state": state, "frames": found}


def frames(held: Held) -> list[Entry]:
    """The reason as a stack: what it is, who needs it, who overwrites it."""
    found = [_frame(f"{held.name} ({held.kind}) {held.why}".strip(), None)]
    for what, place in (("needed by", held.needed_by), ("overwritten by", held.overwritten_by)):
        if place is not None:
            found.append(_frame(f"{what} {place.name}", place))
    return found


def _frame(name: str, place: Place | None) -> Entry:
    file, _, line = (place.where if place is not None else "").rpartition(":")
    return {"filename": file or "gpuad", "line": int(line) if line.isdigit() else 0, "name": name}


def write(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Writes the pickle, of the last program."""
    programs = measured.programs
    holding = programs[-1].holding if programs else Holding(0, (), ())
    Path(path).write_bytes(pickle.dumps(snapshot(holding)))


__all__ = ["frames", "snapshot", "write"]
