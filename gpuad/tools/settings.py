"""What a project says of itself in the table `[tool.gpuad]` of its pyproject.toml, which the pytest plugin and `gpuad ledger` share.

    [tool.gpuad]
    kernels = ["kernels"]                # files and folders with launches to check; no default
    architectures = ["sm_80", "sm_90"]   # for which generated kernels are compiled; default sm_90
    ledger = "gpuad-ledger.toml"         # default
    checks = ["gradient", "forward", "races", "bounds", "determinism", "launch", "memory"]   # default: all of these
    directions = 2                       # random directions of the gradient check; default
    seed = 0                             # of inputs and directions; default
    devices = ["cpu"]                    # what the fixture `gpuad_device` goes through: cpu, gpu; default cpu
    memory = "64 MiB"                    # most that forward and reverse of a launch may take beside its arguments; no default
    gpu_free_memory = "2 GiB"            # a device with less is not free; default 1 GiB
    gpu_utilisation = 20                 # nor one that is busier, in percent; default
    gpu_shared = false                   # whether other processes may be on it; default
    gpu_wait = 0                         # seconds to wait for a free device, before its tests are skipped; default

Nothing of gpuad's is imported to read it, so it is read in no time.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import GpuadError

CHECKS = ("gradient", "forward", "races", "bounds", "determinism", "launch", "memory")
_UNITS = {"B": 1, **{f"{p}B": 1000**k for k, p in enumerate("KMG", 1)}, **{f"{p}iB": 1024**k for k, p in enumerate("KMG", 1)}}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?i?B)\s*\Z")


@dataclass(frozen=True)
class Settings:
    """The table, with defaults; `root` is the folder of the pyproject.toml, or where it was looked for."""

    root: Path
    kernels: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ("sm_90",)
    ledger: str = "gpuad-ledger.toml"
    checks: tuple[str, ...] = CHECKS
    directions: int = 2
    seed: int = 0
    devices: tuple[str, ...] = ("cpu",)
    memory: str = ""
    gpu_free_memory: str = "1 GiB"
    gpu_utilisation: int = 20
    gpu_shared: bool = False
    gpu_wait: int = 0

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files and folders with launches."""
        return tuple(self.root / name for name in self.kernels)


def size_in_bytes(text: str) -> int:
    """`80 MiB`, `1.5 GB` or `100 B` as a number of bytes. ValueError for anything else."""
    match = _SIZE.match(text)
    if not match or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size: write a number and one of {', '.join(_UNITS)}, such as '80 MiB'")
    return int(float(match[1]) * _UNITS[match[2]])


def settings(start: Path) -> Settings:
    """The settings of the project that a folder belongs to. Raises GpuadError, with the file, for a table that is not as it has to be."""
    folder = start.resolve()
    for root in (folder, *folder.parents):
        if (root / "pyproject.toml").is_file():
            return _read(root / "pyproject.toml")
    return Settings(folder)


def _read(path: Path) -> Settings:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise GpuadError(f"{path}: error: {error}") from None
    table: Mapping[str, Any] = document.get("tool", {}).get("gpuad", {})
    made = Settings(path.parent)
    known = {f.name: getattr(made, f.name) for f in fields(made) if f.name != "root"}
    for name, value in table.items():
        if name not in known:
            raise GpuadError(f"{path}: error: [tool.gpuad] has no `{name}`; it has {', '.join(known)}")
        made = replace(made, **{name: _checked(path, name, value, known[name])})
    return made


def _checked(path: Path, name: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise GpuadError(f"{path}: error: [tool.gpuad] {name} has to be a list of strings, not {value!r}")
        allowed = {"checks": CHECKS, "devices": ("cpu", "gpu")}.get(name, value)
        if unknown := [item for item in value if item not in allowed]:
            raise GpuadError(f"{path}: error: [tool.gpuad] {name} knows no `{unknown[0]}`; it knows {', '.join(allowed)}")
        return tuple(value)
    if type(value) is not type(default):
        raise GpuadError(f"{path}: error: [tool.gpuad] {name} has to be a {_WORDS[type(default)]}, not {value!r}")
    if name in ("memory", "gpu_free_memory") and value:
        try:
            size_in_bytes(value)
        except ValueError as error:
            raise GpuadError(f"{path}: error: [tool.gpuad] {name}: {error}") from None
    if name in ("directions", "gpu_utilisation", "gpu_wait", "seed") and value < (1 if name == "directions" else 0):
        raise GpuadError(f"{path}: error: [tool.gpuad] {name} is {value}, which is too small")
    return value


_WORDS: Mapping[type, str] = {str: "string", int: "whole number", bool: "true or false"}
