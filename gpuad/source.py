"""Where things are: a place in the user's source, and how it is shown to them.

A `Span` is a line and a column (both from 1, columns counted in characters) of a `SourceFile`. Every IR node carries one; generated adjoint
statements inherit the span of the primal statement they come from, so that an error found late still points at the user's line.

A text that gpuad puts together around pieces of the user's knows where each came from (`Piece`); `traced` leads a place in it back there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from .literals import place_of, shown


@dataclass(frozen=True)
class Piece:
    """The characters from `begin` up to `end` of a composed text are those of `file` from `offset` on."""

    begin: int
    end: int
    file: SourceFile
    offset: int


@dataclass(frozen=True)
class SourceFile:
    """A piece of source text and the name under which its user knows it; `pieces`, in order, are those of others in a composed text.
    `python`: the Python file that passed the text, whose place is shown if the text is a literal there."""

    name: str
    text: str
    pieces: tuple[Piece, ...] = ()
    python: str | None = None

    def place(self, line: int, column: int) -> tuple[str, int, int]:
        """File, line and column of a place in the text, as its user finds it: in the Python file, if that is known."""
        begin = place_of(self.text, self.python) if self.python is not None else None
        if begin is None or self.python is None:
            return self.name, line, column
        return shown(self.python), line + begin[0] - 1, column + (begin[1] - 1 if line == 1 else 0)

    @property
    def where(self) -> str:
        """The file's name, and if the text is a literal in Python the line on which it begins."""
        name, line, _ = self.place(1, 1)
        return name if name == self.name else f"{name}:{line}"

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
        return ":".join(map(str, self.place))

    @property
    def in_text(self) -> str:
        """The place in the text itself: for what is generated, which stays the same where the user's file changes above the kernel."""
        return f"{self.file.name}:{self.line}:{self.column}"

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column as the user finds them."""
        return self.file.place(self.line, self.column)

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
