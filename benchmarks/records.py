"""The record of a measurement: one JSON file, with the versions that it was made with and without a place or a person."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import gpuad
from gpuad.errors import CompileError
from gpuad.runtime.compiler import find_compiler

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("numpy", "libclang")
_FAILURE_WIDTH = 2000


def today() -> str:
    """The date as a file name takes it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def write(kind: str, machine: str, date: str, record: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Writes the record to `<kind>-<machine>-<date>.json`, over a record of that name. `machine`: what kind of machine, such as 'h200'."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(kind, machine, date, folder)
    path.write_text(json.dumps({"kind": kind, "machine": machine, "date": date, **record}, indent=1) + "\n", encoding="utf-8")
    return path


def of_rows(kind: str, machine: str, rows: Mapping[str, Any]) -> Path:
    """Writes today's record of a table, with what it was measured by."""
    return write(kind, machine, today(), {"versions": versions(), "compiler": compiler(), "load": load(), "rows": rows})


def read(kind: str, machine: str, date: str, folder: Path = RESULTS) -> dict[str, Any]:
    """The record of that name, as `write` was given it; empty if there is none."""
    path = _path(kind, machine, date, folder)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {k: v for k, v in found.items() if k not in ("kind", "machine", "date")}


def _path(kind: str, machine: str, date: str, folder: Path) -> Path:
    return folder / ("-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in (kind, machine, date)) + ".json")


def versions(*packages: str) -> dict[str, str]:
    """Versions of what computes, by name; a package that is not there is left out."""
    found = {"gpuad": gpuad.__version__, "python": platform.python_version()}
    for name in (*_PACKAGES, *packages):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def compiler() -> str:
    """The C++ compiler's own words about its version."""
    try:
        return find_compiler().version.splitlines()[0]
    except CompileError:
        return "none"


def load() -> float:
    """How many processes want to run on this machine, on average over the last minute; 0 where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def failure(error: BaseException) -> dict[str, Any]:
    """A failed measurement as a record has it."""
    return {"failed": without_places(f"{type(error).__name__}: {error}")[:_FAILURE_WIDTH]}


def without_places(text: str) -> str:
    """The text with absolute paths reduced to their last part."""
    return re.sub(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.+-]+)+[\\/]([\w.+-]+)", r"\1", text)
