"""A profile as a table: rows for other programs to draw, and plain text.

In: a program or all that was measured (`records`), and sentences of advice. Out: `rows`, tuples of texts under `HEAD`, at most 20 bands and
one row for the rest; `summary`, lines on the peak of the tapes, the process, CuPy's allocator and the device; `text`, all of it, with
aligned columns. What could not be read is printed as "not told". Pure functions: nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence

from ..budget import shown
from .bands import bands
from .records import Measured, Program

HEAD = ("array", "kind", "at once", "times", "why")
_MOST = 20  # rows of a program


def rows(program: Program) -> list[tuple[str, ...]]:
    """The largest bands of a program."""
    found = bands(program.holding)
    lines = [(b.name, str(b.kind), shown(b.most), f"{b.count:,}", b.reason) for b in found[:_MOST]]
    rest = found[_MOST:]
    return [*lines, *([(f"{len(rest)} more", "", shown(sum(b.most for b in rest)), "", "")] if rest else [])]


def summary(measured: Measured) -> list[str]:
    """What there was at most, and what the neighbourhood says."""
    kinds = ", ".join(f"{shown(n)} {kind}" for kind, n in measured.peak_by_kind().items() if n)
    lines = [f"peak: the tapes added {shown(measured.peak)}" + (f" ({kinds})" if kinds else "")]
    resident = measured.peak_resident
    lines.append(f"process: {shown(resident) if resident is not None else 'not told'} resident at most")
    if measured.allocator:
        pool = max((r.pool for r in measured.readings if r.pool is not None), default=None)
        lines.append(f"CuPy's allocator ({measured.allocator}): {_bytes(pool)} at most")
        device = next((r.device for r in reversed(measured.readings) if r.device is not None), None)
        if device is None:
            lines.append("device: not told (NVML is not there: pip install nvidia-ml-py)")
        else:
            slow = "not told" if device.throttling is None else ", ".join(device.throttling) or "none"
            figures = f"used {_bytes(device.used)}, free {_bytes(device.free)}, this process {_bytes(device.this_process)}"
            why = f" ({device.why})" if device.why else ""
            lines.append(f"device: {figures}, others {_bytes(device.others)}, throttling {slow}{why}")
    span = measured.seconds[1] - measured.seconds[0]
    lines.append(f"looking took {measured.cost:.3g} s of {span:.3g} s ({measured.cost / max(span, 1e-9):.1%})")
    return lines


def _bytes(nbytes: int | None) -> str:
    return "not told" if nbytes is None else shown(nbytes)


def text(measured: Measured, hints: Sequence[str]) -> str:
    """All of it as plain text; `hints`: what would help."""
    lines = summary(measured)
    for program in measured.programs:
        times = sum(r.program is program for r in measured.rounds)
        lines += ["", f"{program.title}, {times} times; peak {shown(program.holding.peak)}", *_aligned([HEAD, *rows(program)])]
    return "\n".join([*lines, *(["", *(f"* {hint}" for hint in hints)] if hints else [])])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEAD) - 1)]
    right = (2, 3)
    padded = ([c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=False))] for line in lines)
    return ["  " + "  ".join([*cells, line[-1]]).rstrip() for cells, line in zip(padded, lines, strict=True)]


__all__ = ["HEAD", "rows", "summary", "text"]
