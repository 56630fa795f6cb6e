"""CUDA text that names the user's lines: what a debugger or compute-sanitizer says of a generated kernel then points at the user's file.

Each printed line is preceded by `#line` with the place of the statement that it comes from. The text is for a compiler with -lineinfo, not
for readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ir.nodes import Stmt
from ..source import traced
from .statements import Statements

_TAG = "\0"  # what follows in a line is its place


class Located(Statements):
    """Prints one kernel's body; every line but closing braces carries the place of its innermost statement."""

    def statement(self, stmt: Stmt) -> None:
        before = len(self.lines)
        super().statement(stmt)
        if stmt.span is None:
            return
        where = traced(stmt.span)
        for k in range(before, len(self.lines)):
            if _TAG not in self.lines[k] and self.lines[k].strip(" }{") not in ("", "else"):
                self.lines[k] += f"{_TAG}{where.line} {where.file.name}"


def directed(lines: Sequence[str]) -> Iterator[str]:
    """The lines with directives in the place of tags."""
    for line in lines:
        text, tag, rest = line.partition(_TAG)
        if tag:
            number, _, name = rest.partition(" ")
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            yield f'#line {number} "{quoted}"'
        yield text
