"""The syntax tree of a function, with the places of its nodes in the file that it was written in.

In: a Python function. Out: its `ast.FunctionDef`, found by name and first line (that of a decorator, if it has one), and spans of nodes:
lines and columns from 1, columns in characters, where `ast` counts bytes of UTF-8 from 0. Parsed files are cached. Assumes that the file is
as it was when the function was compiled. Raises UnsupportedError for a lambda and where no source can be read."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...errors import UnsupportedError
from ...source import SourceFile, Span
from . import fence


@dataclass(frozen=True)
class Source:
    """A function's tree and its file."""

    file: SourceFile
    tree: ast.FunctionDef

    def span(self, node: ast.AST) -> Span:
        """Where a node is; columns in characters."""
        line, column = getattr(node, "lineno", self.tree.lineno), getattr(node, "col_offset", 0)
        text = self.file.line(line).encode()
        first = len(text[:column].decode(errors="ignore"))
        same = getattr(node, "end_lineno", line) == line
        last = len(text[: getattr(node, "end_col_offset", column + 1)].decode(errors="ignore")) if same else first + 1
        return Span(self.file, line, first + 1, max(1, last - first))


def read(function: Callable[..., Any]) -> Source:
    """The source of a Python function. UnsupportedError where there is none to read."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", "function")
    if code is None:
        raise UnsupportedError(f"`{name}` is no Python function")
    if name == "<lambda>":
        raise UnsupportedError(fence.LAMBDA)
    filename = inspect.getsourcefile(code) or code.co_filename
    text = "".join(linecache.getlines(filename))
    tree = _functions(text, filename).get((name, code.co_firstlineno)) if text else None
    if tree is None:
        raise UnsupportedError(f"`{name}`: its Python source cannot be read (from {filename}); define it in a file or a notebook cell")
    return Source(SourceFile(filename, text), tree)


@lru_cache(maxsize=32)
def _functions(text: str, filename: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions of a file by name and first line, that of the first decorator."""
    found = {}
    for node in ast.walk(ast.parse(text, filename)):
        if isinstance(node, ast.FunctionDef):
            found[node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])] = node
    return found
