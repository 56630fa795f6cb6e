"""`PYTHONPATH=. python tests/ptx_table.py`: what the compiled code says of the shipped kernels, primal beside reverse, for sm_90.

Of each pass: registers, bytes of local memory (a stack) and of spilled registers, shared memory, the share of a multiprocessor's warps; in
the PTX, atomic instructions; and, from a launch of moderate size in the interpreter: instructions a cell, sectors that warps touch over the
fewest that what they asked for would fit (1 is coalesced), and the bytes of sectors that are read and written at all, a cell. From these
follows what a GPU's record will be held against: reverse over primal, and microseconds a million cells at an H200's bandwidth. That is a
model: memory is moved once a launch, caches hold everything between, and nothing but bandwidth costs time.

Beside each pass stands its floor: the sectors that its launches touch together, each read once and written once, as if all of the pass
were one launch. It is of these kernels with these gradients (scalars among them) and shadows that are added to; the floors of
`benchmarks.problems` are of programs, in which the first addition to a shadow may assign.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ptx_cupy
import pytest
from gpu_checks import seeded
from launch_tools import CASES
from ptx import nvrtc
from ptx.launch import TALLY
from rich.console import Console
from rich.table import Table

from benchmarks.workload import workload
from gpuad.runtime import nvrtc as cubins

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "ptx-sm-90.json"
COMPILED = ("registers", "local_bytes", "spilled_bytes", "shared_bytes", "occupancy")
SECTOR = 32  # bytes
BANDWIDTH = 4.8e12  # bytes a second, of an H200
REGISTERS, SHARED, WARPS, BLOCKS, SYSTEM = 65536, 228 * 1024, 64, 32, 1024  # of a multiprocessor of sm_90
PROBLEMS: dict[str, tuple[dict[str, int], tuple[str, ...]]] = {  # sizes, and those whose product is the number of cells
    "saxpy": ({"n": 1 << 14}, ("n",)),
    "heat": ({"ny": 128, "nx": 128}, ("ny", "nx")),
    "fisher_kpp": ({"n": 128}, ("n", "n")),
    "lattice_boltzmann": ({"ny": 64, "nx": 128}, ("ny", "nx")),
    "fdtd-update_h": ({"ny": 128, "nx": 128}, ("ny", "nx")),
    "fdtd-update_e": ({"ny": 128, "nx": 128}, ("ny", "nx")),
    "nbody-forces": ({"n": 256}, ("n",)),
    "convolution-convolve_line": ({"n": 1 << 13, "taps": 9}, ("n",)),
    "convolution-convolve_image": ({"height": 96, "width": 96}, ("height", "width")),
    "softmax": ({"rows": 512, "n": 64}, ("rows", "n")),
    "histogram": ({"n": 1 << 14, "bins": 256}, ("n",)),
}


class Watched(ptx_cupy.RawKernel):
    """A kernel that notes what each of its launches did."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012

    def launched(self, kernel: Any, grid: Any, block: Any, values: list[Any], shared_mem: int, stream: Any) -> None:
        TALLY.clear()
        super().launched(kernel, grid, block, values, shared_mem, stream)
        self.seen.append(
            {
                "kernel": self.name,
                "read": TALLY.read,
                "written": TALLY.written,
                **_compiled(self.code, self.name, self.options, block, shared_mem),
                "atomic_instructions": len(re.findall(r"\b(?:atom|red)\.", _body(self.library().text, self.name))),
                "instructions": TALLY.instructions,
                "sectors": TALLY.sectors,
                "least_sectors": TALLY.least_sectors,
                "atomic_updates": TALLY.atomics,
                "bytes": int(TALLY.read.size + TALLY.written.size) * SECTOR,
            }
        )


def _body(ptx: str, name: str) -> str:
    """One kernel's part of a module."""
    begin = ptx.index(f".entry {name}(")
    end = ptx.find(".entry ", begin + 1)
    return ptx[begin : end if end > 0 else None]


def _compiled(code: str, name: str, options: tuple[str, ...], block: Any, shared_mem: int) -> dict[str, Any]:
    """What the cubin says, and how many blocks of it a multiprocessor takes."""
    flags = tuple(o for o in options if not o.startswith("-std"))
    cubin = cubins.compile_cuda(code, "sm_90", (*flags, *nvrtc.CUPY, "--ptxas-options=-v"))
    needs = cubins.resources(cubin)[name]
    warps = -(-int(np.prod(block)) // 32)
    registers = -(-needs.registers * 32 // 256) * 256 * warps
    blocks = min(REGISTERS // max(registers, 1), SHARED // (needs.shared_bytes + shared_mem + SYSTEM), WARPS // warps, BLOCKS)
    return {
        "registers": needs.registers,
        "local_bytes": needs.local_bytes,
        "spilled_bytes": cubins.spilled(cubin.log)[name],
        "shared_bytes": needs.shared_bytes + shared_mem,
        "occupancy": round(blocks * warps / WARPS, 2),
    }


def measured(name: str, cupy: Any) -> dict[str, Any]:
    """The launches of the primal alone, of the forward pass and of the reverse pass, added up a cell."""
    sizes, cells = PROBLEMS[name]
    count = math.prod(sizes[axis] for axis in cells)
    work = seeded(workload(CASES[name], cupy, sizes), cupy)
    passes = {}
    state: Any = None
    for pass_, step in (("primal", work.bare), ("forward", work.forward), ("reverse", work.reverse)):
        if pass_ == "forward":
            work.restore()
            state = work.save()
        Watched.seen.clear()
        step() if pass_ == "primal" else step(state)
        passes[pass_] = _added([dict(s) for s in Watched.seen], count)
    forward, reverse, primal = (passes[p] for p in ("forward", "reverse", "primal"))
    ratio = (forward["bytes_a_cell"] + reverse["bytes_a_cell"]) / primal["bytes_a_cell"] - 1
    floor = (forward["floor_bytes_a_cell"] + reverse["floor_bytes_a_cell"]) / primal["floor_bytes_a_cell"] - 1
    saved = round(work.saved_bytes(state) / count, 2)
    return {
        "cells": count,
        "sizes": sizes,
        "saved_bytes_a_cell": saved,
        **passes,
        "predicted_reverse_over_primal": round(ratio, 3),
        "floor_ratio": round(floor, 3),
    }


def _added(launches: list[dict[str, Any]], cells: int) -> dict[str, Any]:
    moved = sum(s["bytes"] for s in launches)
    floor = sum(len(set().union(*(s[how].tolist() for s in launches))) for how in ("read", "written")) * SECTOR
    return {
        "kernels": [{k: s[k] for k in ("kernel", *COMPILED, "atomic_instructions")} for s in launches],
        "instructions_a_cell": round(sum(s["instructions"] for s in launches) / cells, 1),
        "sectors_over_least": round(sum(s["sectors"] for s in launches) / max(sum(s["least_sectors"] for s in launches), 1), 2),
        "atomic_updates_a_cell": round(sum(s["atomic_updates"] for s in launches) / cells, 3),
        "bytes_a_cell": round(moved / cells, 2),
        "floor_bytes_a_cell": round(floor / cells, 2),
        "predicted_us_a_million_cells": round(moved / cells / BANDWIDTH * 1e12, 3),
    }


def main() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptx_cupy, "RawKernel", Watched)
        patch.setattr(TALLY, "traffic", True)
        with ptx_cupy.installed(patch) as cupy:
            rows = {name: measured(name, cupy) for name in PROBLEMS}
    model = "bytes of all sectors of 32 bytes that a launch touches, read or written once, over 4.8 TB/s; a model, not a measurement"
    RESULT.write_text(
        json.dumps({"architecture": "sm_90", "model": model, "bandwidth": BANDWIDTH, "problems": rows}, indent=1) + "\n", encoding="utf-8"
    )
    show(rows)


COLUMNS = (
    *("problem", "pass", "registers", "local B", "spilled B", "shared B", "occupancy", "atomics", "sectors", "instr.", "B", "floor B"),
    *("us / M", "/ primal", "floor"),
)


def lines(rows: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The rows for people, a line for each pass, under COLUMNS."""
    for name, row in rows.items():
        for pass_ in ("primal", "forward", "reverse"):
            p = row[pass_]
            compiled = ["/".join(str(k[what]) for k in p["kernels"]) for what in COMPILED]
            told = ("atomic_updates_a_cell", "sectors_over_least", "instructions_a_cell", "bytes_a_cell", "floor_bytes_a_cell")
            ratios = (row["predicted_reverse_over_primal"], row["floor_ratio"]) if pass_ == "reverse" else ("", "")
            numbers = (*(p[key] for key in told), p["predicted_us_a_million_cells"], *ratios)
            yield (name if pass_ == "primal" else "", pass_, *compiled, *map(str, numbers))


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Prints them."""
    table = Table(*COLUMNS[:2], box=None, header_style="dim", caption="a cell; sectors over the fewest; us a million cells on an H200")
    for column in COLUMNS[2:]:
        table.add_column(column, justify="right")
    for line in lines(rows):
        table.add_row(*line)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
