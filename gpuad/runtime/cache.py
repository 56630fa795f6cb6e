"""Compiled code on disk, by the hash of everything that it depends on, in a folder that only its owner can write.

A file appears under its name complete or not at all (written beside, then renamed), so that several processes may share the folder. Each
carries a checksum of its content: a damaged one counts as absent. What cannot be used though it is intact is taken out by whoever sees it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import CompileError

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
