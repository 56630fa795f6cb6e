"""Where things are: a place in the user's source, and how it is shown to them.

A `Span` is a line and a column (both from 1, columns counted in characters) of a `SourceFile`. Every IR node carries one; generated adjoint
statements inherit the span of the primal statement they come from, so that an error found late still points at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceFile:
    """A piece of source text and the name under which its user knows it."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), or an empty string beyond the end."""
        lines = self.text.splitlines()
        return lines[number - 1] if 1 <= number <= len(lines) else ""


@dataclass(frozen=True)
class Span:
    """One place in a source file: line and column, both from 1, the column in characters; `length` characters are underlined."""

    file: SourceFile
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}:{self.column}"

    def __repr__(self) -> str:
        return f"Span({self})"

    def caret(self) -> str:
        """The source line with a caret below the place, as compilers show it."""
        text = self.file.line(self.line)
        pad = "".join(c if c == "\t" else " " for c in text[: self.column - 1])
        width = max(1, min(self.length, len(text) - self.column + 1))
        return f"{text}\n{pad}^{'~' * (width - 1)}"
