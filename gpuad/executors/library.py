"""Generated C++ as shared libraries: compiled once, kept in the cache, loaded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .cache import cached, key_of
from .compiler import Compiler, find_compiler

_SUFFIX = ".dll" if os.name == "nt" else ".so"


def compiled(source: str, defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of a text. CompileError without a compiler, or if it rejects the text."""
    compiler = find_compiler()
    key = key_of(source, " ".join((*compiler.command, *compiler.flags, *defines)), compiler.version)
    return ctypes.CDLL(str(cached(key, _SUFFIX, lambda target: _build(compiler, source, target, defines))))


def _build(compiler: Compiler, source: str, target: Path, defines: tuple[str, ...]) -> None:
    text = target.with_suffix(".cpp")
    text.write_text(source)
    compiler.build(text, target, defines)
