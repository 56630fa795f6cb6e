"""What a process has executed as PTX, written to the folder that GPUAD_PTX_RECORD names when its tests end, and added up over all that did.

`texts`: digests of the PTX texts; `launches`, `lanes`, `instructions` (of lanes); `met`: forms of instructions (opcodes with their
modifiers), as often as they were decoded; `tried`: those in PTX that the interpreter's own tests have written.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ptx.lanes import MET
from ptx.launch import TALLY
from ptx_tools import TRIED

VARIABLE = "GPUAD_PTX_RECORD"


@dataclass
class Executed:
    """The sum over the processes of a run."""

    texts: set[str] = field(default_factory=set)
    launches: int = 0
    lanes: int = 0
    instructions: int = 0
    met: Counter[str] = field(default_factory=Counter)
    tried: set[str] = field(default_factory=set)


def write() -> None:
    """What this process has executed, if anybody wants to know."""
    folder = os.environ.get(VARIABLE)
    if folder and (MET or TALLY.launches):
        counts = {name: getattr(TALLY, name) for name in ("launches", "lanes", "instructions")}
        told = {"texts": sorted(TALLY.texts), **counts, "met": dict(MET), "tried": sorted(TRIED)}
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(told), encoding="utf-8")


def read(folder: Path) -> Executed:
    """What all processes of a run have written."""
    total = Executed()
    for file in folder.glob("*.json"):
        told = json.loads(file.read_text(encoding="utf-8"))
        total.texts |= set(told["texts"])
        total.tried |= set(told["tried"])
        total.met.update(told["met"])
        for name in ("launches", "lanes", "instructions"):
            setattr(total, name, getattr(total, name) + told[name])
    return total
