"""The prelude in clang's own form, which reads in a third of the time: one file for each language standard, in a folder that goes with the
process (https://clang.llvm.org/docs/PCHInternals.html). What cannot be written is done without.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from clang import cindex
from clang.cindex import Diagnostic, TranslationUnit

_PATIENCE = 2  # texts that a process reads before it precompiles the prelude, which takes as long as it saves of two
_FOR_SERIALIZATION = 0x10  # CXTranslationUnit_ForSerialization, for which the bindings have no name
_NAME = "gpuad-prelude.cu"


@dataclass(frozen=True)
class _Kept:
    folder: tempfile.TemporaryDirectory[str]  # removed with the process
    path: Path


_asked: Counter[tuple[str, ...]] = Counter()
_kept: dict[tuple[str, ...], _Kept | None] = {}


def precompiled(arguments: tuple[str, ...], prelude: str) -> Path | None:
    """The file for clang's `-include-pch` which stands for `prelude` in texts that are read with these arguments and more directories; None
    for the first texts of a process, and where it cannot be made."""
    _asked[arguments] += 1
    if _asked[arguments] <= _PATIENCE:
        return None
    kept = _kept.get(arguments)
    if arguments not in _kept or (kept is not None and not kept.path.is_file()):  # folders of temporary files are tidied
        kept = _kept[arguments] = _written(arguments, prelude)
    return kept.path if kept is not None else None


def forget(arguments: tuple[str, ...]) -> None:
    """Does without it from now on."""
    _kept[arguments] = None


def _written(arguments: tuple[str, ...], prelude: str) -> _Kept | None:
    options = TranslationUnit.PARSE_INCOMPLETE | _FOR_SERIALIZATION
    try:
        folder = tempfile.TemporaryDirectory(prefix="gpuad-prelude-", ignore_cleanup_errors=True)
        unit = cindex.Index.create().parse(_NAME, args=list(arguments), unsaved_files=[(_NAME, prelude)], options=options)
        if any(d.severity >= Diagnostic.Error for d in unit.diagnostics):
            return None
        path = Path(folder.name) / "prelude.pch"
        unit.save(str(path))
    except (OSError, cindex.TranslationUnitLoadError, cindex.TranslationUnitSaveError):
        return None
    return _Kept(folder, path)
