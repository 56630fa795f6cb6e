"""Where clang's cursors are in the user's text.

The user's text is parsed with a few lines of ours before it; clang counts columns in bytes, a `Span` counts characters. Both are put right
here, and here only.
"""

from __future__ import annotations

from pathlib import Path

from clang.cindex import Cursor, CursorKind, SourceLocation

from ...source import SourceFile, Span, traced
from .clang_c import file_location
from .options import INCLUDE

MAIN = "gpuad-input.cu"
_NAMED_DECLARATIONS = {
    CursorKind.VAR_DECL,
    CursorKind.PARM_DECL,
    CursorKind.FUNCTION_DECL,
    CursorKind.FUNCTION_TEMPLATE,
    CursorKind.MEMBER_REF_EXPR,
}


class Places:
    """Spans of cursors and locations of one translation unit."""

    def __init__(self, source: SourceFile, header: str) -> None:
        self.source = source
        self._header_lines = header.count("\n")
        self._header_bytes = len(header.encode())
        self._files: dict[str, SourceFile] = {}

    def of(self, cursor: Cursor) -> Span:
        """The place of a declaration's name, else of the first character."""
        start = cursor.location if cursor.kind in _NAMED_DECLARATIONS else cursor.extent.start
        if file_location(start)[0] is None:
            start = cursor.location
        return self.at(start, cursor.extent.end if start == cursor.extent.start else None)

    def at(self, start: SourceLocation, end: SourceLocation | None = None) -> Span:
        """The span that begins at `start`; a single character wide unless `end` is on its line."""
        name, line, column, offset = file_location(start)
        file = self.file(name)
        line -= self._header_lines if name == MAIN else 0
        if line < 1:
            return Span(self.source, 1, 1)
        text = _line(file.text, line)
        first = len(text.encode()[: column - 1].decode(errors="ignore"))
        length = 1
        if end is not None and file_location(end)[0] == name and (size := file_location(end)[3] - offset) > 0:
            length = min(len(text) - first, len(text.encode()[column - 1 : column - 1 + size].decode(errors="ignore")))
        return traced(Span(file, line, first + 1, max(1, length)))

    def is_beyond(self, line: int) -> bool:
        """Whether a line of the parsed text is after the user's last."""
        return line - self._header_lines > self.source.text.count("\n") + 1

    def offset(self, location: SourceLocation) -> int:
        """Offset in bytes in the parsed text of the file where `location` is."""
        return file_location(location)[3]

    def file(self, name: str | None) -> SourceFile:
        """The user's source, or the file that it includes."""
        if name is None or name == MAIN:
            return self.source
        if name not in self._files:
            path = Path(name)
            shown = f"<{path.name}>" if _is_own(path) else name
            self._files[name] = SourceFile(shown, path.read_text(errors="replace") if path.is_file() else "")
        return self._files[name]

    def is_ours(self, span: Span) -> bool:
        """Whether a place is in one of our headers."""
        return any(file is span.file and _is_own(Path(name)) for name, file in self._files.items())


def is_ours(cursor: Cursor) -> bool:
    """True for what the prelude and our standard headers declare, and for clang's built-in functions."""
    name = file_location(cursor.location)[0]
    return name is None or _is_own(Path(name))


def _is_own(path: Path) -> bool:
    return path.is_relative_to(INCLUDE)


def _line(text: str, number: int) -> str:
    """Line `number` as clang counts lines: only line feeds end one."""
    lines = text.split("\n")
    return lines[number - 1].removesuffix("\r") if number <= len(lines) else ""
