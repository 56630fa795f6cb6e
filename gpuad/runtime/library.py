"""Generated C++ as shared libraries: compiled once, kept in a cache on disk by the hash of everything that they depend on, loaded.

The cache lies in a folder that only its owner can write. A file appears under its name complete or not at all (written beside, then
renamed), so that several processes may share the folder. Each carries a checksum: a damaged one counts as absent. What cannot be used
though it is intact is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import CompileError
from .compiler import Compiler, find_compiler

VARIABLE = "GPUAD_CACHE_DIR"
_MARK = ".sha256"


def cache_folder() -> Path:
    """The folder of compiled code, made if need be: GPUAD_CACHE_DIR, else `gpuad` in the user's cache folder. CompileError if it cannot be
    used, or belongs to or can be written by someone else."""
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unkept(folder, error) from None
    return folder


def _unkept(folder: Path, error: OSError) -> CompileError:
    return CompileError(f"compiled code cannot be kept in {folder} ({error}): set {VARIABLE} to a folder that you can write")


def _folder() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "gpuad"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gpuad"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuad"


def _check_private(folder: Path) -> None:
    """Code that someone else could put there would run as us."""
    if not hasattr(os, "getuid"):
        return
    status = folder.stat()
    if status.st_uid != os.getuid():
        raise CompileError(f"{folder} belongs to another user: set {VARIABLE} to a folder of your own")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise CompileError(f"{folder} can be written by other users: `chmod 700` it, or set {VARIABLE} to a folder of your own")


def key_of(*parts: str) -> str:
    """A name for code that depends on these texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def cached(key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    """The file `key + suffix` of the cache; made by `build`, which writes the path that it is given, if it is absent or damaged.
    CompileError if it cannot be written, or as `build` raises it."""
    folder = cache_folder()
    path, mark = folder / (key + suffix), folder / (key + _MARK)
    if _intact(path, mark):
        return path
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="building-") as scratch:
            made = Path(scratch) / (key + suffix)
            build(made)
            checksum = Path(scratch) / "checksum"
            checksum.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
            os.replace(made, path)
            os.replace(checksum, mark)
    except OSError as error:
        raise _unkept(folder, error) from None
    return path


def discard(path: Path) -> None:
    """Takes a file out of the cache, so that it is built again when it is asked for."""
    for one in (path.with_suffix(_MARK), path):  # without its mark it counts as absent
        with contextlib.suppress(OSError):
            one.unlink()


def _intact(path: Path, mark: Path) -> bool:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest() == mark.read_text(errors="replace")
    return False


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
