"""A profile as JSON in the trace event format, which ui.perfetto.dev and chrome://tracing open.

Phases are slices, the operations of the last round of each program are slices within them (spread evenly over the phase, since a phase is
one call), bytes by kind are counters, and what is held is an asynchronous slice with its reason. Times are microseconds from the start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..tape.memory.memory_log import Kind
from .records import Measured, Round, steps_of

_PID = 1
_MOST = 20_000  # slices of a kind

Event = dict[str, Any]


def events(measured: Measured) -> Iterator[Event]:
    """All events, in no order."""
    start = measured.seconds[0]
    yield {"ph": "M", "pid": _PID, "tid": 0, "name": "process_name", "args": {"name": "gpuad"}}
    tapes = sorted({r.program.tape for r in measured.rounds})
    for tape in tapes:
        yield {"ph": "M", "pid": _PID, "tid": tape, "name": "thread_name", "args": {"name": f"tape {tape}"}}
    last = {id(r.program): r for r in measured.rounds}
    for number, r in enumerate(measured.rounds):
        yield from _phases(r, start)
        if last[id(r.program)] is r:
            yield from _operations(r, start)
            yield from _counters(r, start)
            yield from _held(r, number, start)
    yield from _levels(measured, start)
    yield from _readings(measured, start)


def _micro(seconds: float, start: float) -> float:
    return round((seconds - start) * 1e6, 3)


def _slice(name: str, cat: str, tape: int, begin: float, end: float, start: float, args: Event) -> Event:
    ts = _micro(begin, start)
    return {
        "ph": "X", "pid": _PID, "tid": tape, "name": name, "cat": cat, "ts": ts, "dur": max(_micro(end, start) - ts, 0.0), "args": args,
    }  # fmt: skip


def _phases(r: Round, start: float) -> Iterator[Event]:
    args = {"program": r.program.title, "peak bytes": r.program.holding.peak}
    yield _slice("recording", "phase", r.program.tape, r.began, r.recorded, start, args)
    if r.reversing is not None and r.reversed is not None:
        yield _slice("reversal", "phase", r.program.tape, r.reversing, r.reversed, start, args)


def _operations(r: Round, start: float) -> Iterator[Event]:
    moments = r.program.holding.moments
    for k, moment in enumerate(moments[:_MOST]):
        if k >= r.program.holding.operations and r.reversing is None:
            return
        end = r.seconds(k + 1) if k + 1 != r.program.holding.operations else r.recorded
        where = {"where": moment.place.where} if moment.place else {}
        yield _slice(str(moment), "operation", r.program.tape, r.seconds(k), end, start, where)


def _counters(r: Round, start: float) -> Iterator[Event]:
    holding = r.program.holding
    curves = {kind: dict(steps_of([h for h in holding.held if h.kind is kind], len(holding.moments))) for kind in Kind}
    now = dict.fromkeys((str(kind) for kind in Kind), 0)
    for moment in sorted({m for curve in curves.values() for m in curve})[:_MOST]:
        now.update({str(kind): curve[moment] for kind, curve in curves.items() if moment in curve})
        name = f"held by tape {r.program.tape}"
        yield {"ph": "C", "pid": _PID, "tid": r.program.tape, "name": name, "ts": _micro(r.seconds(moment), start), "args": dict(now)}


def _held(r: Round, number: int, start: float) -> Iterator[Event]:
    added = sorted((h for h in r.program.holding.held if h.added), key=lambda h: -h.nbytes)[:_MOST]
    for k, h in enumerate(added):
        common = {"pid": _PID, "tid": r.program.tape, "cat": str(h.kind), "name": f"{h.name} ({h.kind})", "id": f"{number}.{k}"}
        yield {"ph": "b", "ts": _micro(r.seconds(h.begin), start), "args": {"bytes": h.nbytes, "reason": h.reason}, **common}
        yield {"ph": "e", "ts": _micro(r.seconds(h.end), start), **common}


def _levels(measured: Measured, start: float) -> Iterator[Event]:
    for seconds, kinds in measured.by_kind:
        args = {str(kind): nbytes for kind, nbytes in kinds.items()}
        yield {"ph": "C", "pid": _PID, "tid": 0, "name": "memory of tapes", "ts": max(_micro(seconds, start), 0.0), "args": args}


def _readings(measured: Measured, start: float) -> Iterator[Event]:
    for reading in measured.readings:
        ts = max(_micro(reading.seconds, start), 0.0)
        figures = {"resident": reading.rss, "pool": reading.pool}
        if reading.device is not None:
            figures |= {"device used": reading.device.used, "device others": reading.device.others}
        for name, value in figures.items():
            if value is not None:
                yield {"ph": "C", "pid": _PID, "tid": 0, "name": name, "ts": ts, "args": {"bytes": value}}


def write(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Writes the file."""
    found = sorted(events(measured), key=lambda e: float(e.get("ts", -1)))
    text = json.dumps({"traceEvents": found, "displayTimeUnit": "ms", "otherData": {"producer": "gpuad.profile"}})
    Path(path).write_text(text, encoding="utf-8")


__all__ = ["events", "write"]
