"""Generated C++ as shared libraries: compiled once, kept in the cache, loaded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .cache import cached, discard, key_of
from .compiler import Compiler, find_compiler

_SUFFIX = ".dll" if os.name == "nt" else ".so"


def compiled(source: str, symbols: Sequence[str], defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of a text, which has these symbols. CompileError without a compiler, if it rejects the text, or if what it makes cannot
    be used, which is then not kept."""
    compiler = find_compiler()
    key = key_of(source, " ".join((*compiler.command, *compiler.flags, *defines)), compiler.version)
    build = partial(_build, compiler, source, symbols, defines)
    path = cached(key, _SUFFIX, build)
    try:
        return _loaded(path, symbols)
    except (OSError, AttributeError):  # an earlier process has kept what it had not tried
        discard(path)
    return _loaded(cached(key, _SUFFIX, build), symbols)


def _build(compiler: Compiler, source: str, symbols: Sequence[str], defines: tuple[str, ...], target: Path) -> None:
    text = target.with_suffix(".cpp")
    text.write_text(source, encoding="utf-8")
    compiler.build(text, target, defines)
    try:
        _loaded(target, symbols)
    except (OSError, AttributeError) as error:
        raise compiler.unusable(error) from None


def _loaded(path: Path, symbols: Sequence[str]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for symbol in symbols:
        getattr(library, symbol)
    return library
