"""Where things are: a place in the user's source, and how it is shown to them.

A `Span` is a line and a column (both from 1, columns counted in characters) of a `SourceFile`. Every IR node carries one; generated adjoint
statements inherit the span of the primal statement they come from, so that an error found late still points at the user's line.

A text that gpuad puts together around pieces of the user's knows where each came from (`Piece`); `traced` leads a place in it back there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """The characters from `begin` up to `end` of a composed text are those of `file` from `offset` on."""

    begin: int
    end: int
    file: SourceFile
    offset: int


@dataclass(frozen=True)
class SourceFile:
    """A piece of source text and the name under which its user knows it; `pieces`, in order, are those of others in a composed text."""

    name: str
    text: str
    pieces: tuple[Piece, ...] = ()

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


def traced(span: Span) -> Span:
    """The place in the user's own text that a place in a composed text came from; what was put around it stays where it is."""
    pieces = span.file.pieces
    if not pieces:
        return span
    lines = span.file.text.split("\n")
    at = sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
    number = bisect_right([p.begin for p in pieces], at) - 1
    if number < 0:
        return span
    piece = pieces[number]
    if at >= piece.end and "\n" in span.file.text[piece.end : at]:
        return span
    original = piece.offset + min(at, piece.end - 1) - piece.begin
    before = piece.file.text[:original]
    column = original - (before.rfind("\n") + 1)
    rest = len(piece.file.text[original:].partition("\n")[0])
    return Span(piece.file, before.count("\n") + 1, column + 1, max(1, min(span.length, rest)))
