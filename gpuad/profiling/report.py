"""A profile, and the forms in which it goes out.

In: what was measured (`records.Measured`). Out: text (`table`), a page of HTML, a PNG by Matplotlib, JSON in the Trace Event Format
(ui.perfetto.dev reads it), a pickle for PyTorch's memory viewer (pytorch.org/memory_viz), and advice. Bytes are those that tapes added,
beside what the process and device report. The PNG needs Matplotlib."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TypeAlias

from ..budget import shown
from ..pages.side_by_side import framed
from . import advice, page, picture, snapshot, table, trace
from .records import Measured

Path: TypeAlias = "str | os.PathLike[str]"


class Profile(Measured):
    """What `gpuad.profile()` found: printable; `.advice` says what would help; `.page`, `.picture`, `.trace` and `.torch_snapshot` write
    files. `.programs` are what was recorded, with all that is held and why; `.peak`, `.peak_by_kind()`, `.peak_resident` are in bytes."""

    @cached_property
    def advice(self) -> tuple[str, ...]:
        """What would help most, in bytes, the most first."""
        return advice.advice(self)

    def __repr__(self) -> str:
        rounds = f"{len(self.rounds)} recording{'' if len(self.rounds) == 1 else 's'}"
        return f"<profile of {rounds}: the tapes added {shown(self.peak)} at most; print it, or write its .page()>"

    def _repr_html_(self) -> str:
        return framed(page.html(self), 760)

    def __str__(self) -> str:
        return table.text(self, self.advice)

    def page(self, path: Path) -> None:
        """Writes a page of HTML that stands alone: bands to hover over, a slider for the budget."""
        page.write(self, path)

    def picture(self, path: Path) -> None:
        """Draws bytes over the program into a PNG, by Matplotlib (the extra `cli`)."""
        picture.draw(self, path)

    def trace(self, path: Path) -> None:
        """Writes JSON in the trace event format, for ui.perfetto.dev and chrome://tracing."""
        trace.write(self, path)

    def torch_snapshot(self, path: Path) -> None:
        """Writes a pickle for PyTorch's memory viewer (pytorch.org/memory_viz), of the last program."""
        snapshot.write(self, path)


__all__ = ["Profile"]
