"""Where a text stands in the Python file that passes it: as a literal there, so that errors point into the file that its author edits.

In: the name of a Python file, or of a notebook's cell, and a text. Out: the place of the text's first character, where the file has a
literal that is the text character by character: raw, or without escapes.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache

_PACKAGE = __name__.partition(".")[0]
_OPENING = re.compile(r"[rRuU]?(\"\"\"|'''|\"|')")


def calling_file() -> str:
    """The Python file of the innermost caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame.f_code.co_filename


def place_of(text: str, file: str) -> tuple[int, int] | None:
    """Line and column, both from 1, of the first character of a literal with this text; None where there is none."""
    return _literals(file).get(text)


def shown(file: str) -> str:
    """The name of a file, from the working directory if it lies below that."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return file if relative.startswith(os.pardir) else relative


@cache
def _literals(file: str) -> Mapping[str, tuple[int, int]]:
    """The places of all literals of a file that is read as Python, of equal ones the first."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    return {text: place for text, place in reversed(list(_found(tree, lines)))}


def _found(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())  # counted in bytes there
        opening = _OPENING.match(lines[node.lineno - 1], column)
        if opening is None:
            continue
        behind = "".join([lines[node.lineno - 1][opening.end() :], *lines[node.lineno : node.end_lineno]])
        if behind.startswith(node.value + opening[1]):
            yield node.value, (node.lineno, opening.end() + 1)
