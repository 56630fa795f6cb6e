"""The cache on disk: files under names that say all that they depend on, in a folder that only its owner can write.

A file appears under its name complete or not at all (written beside, then renamed), so that several processes may share the folder. Each
carries a checksum: a damaged one counts as absent. When the files take more bytes than GPUAD_CACHE_LIMIT, those that were not used for
longest go. Whoever finds the folder full, or the user's own cache folder not to be written, goes on without it: in a folder of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import CompileError

VARIABLE, LIMIT = "GPUAD_CACHE_DIR", "GPUAD_CACHE_LIMIT"
USUAL_LIMIT = 10**9  # bytes
_MARK, _BUILDING = ".sha256", "building-"
_FULL = os.strerror(errno.ENOSPC)  # as a compiler says it
_SHARE = 16  # a process looks at the folder's size again when it has written this part of the limit
_ABANDONED = 86_400  # seconds after which what is being written is of a process that has ended


def cache_folder() -> Path:
    """The folder, made if need be: GPUAD_CACHE_DIR, else `gpuad` in the user's cache folder. CompileError if it cannot be used, or belongs
    to or can be written by someone else."""
    folder = named_folder()
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


def named_folder() -> Path:
    """Where it is, whether there is one or not."""
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


def usable_folder() -> Path:
    """The folder, or one of this process where the user's own cannot be used. CompileError where the folder that cannot be is named in
    GPUAD_CACHE_DIR."""
    try:
        return cache_folder()
    except CompileError:
        if os.environ.get(VARIABLE):
            raise
        return _own_folder()


@cache
def _own_folder() -> Path:
    """A folder that ends with the process. CompileError where not even that can be made."""
    try:
        made = Path(tempfile.mkdtemp(prefix="gpuad-"))
    except OSError as error:
        raise _unkept(Path(tempfile.gettempdir()), error) from None
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def key_of(*parts: str) -> str:
    """A name for what depends on these texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


# --- files that something makes -------------------------------------------------------------------------------------------------------


def cached(key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    """The file `key + suffix` of the cache; made by `build`, which writes the path that it is given, if it is absent or damaged.
    CompileError if it cannot be written, or as `build` raises it."""
    try:
        return _built(usable_folder(), key, suffix, build)
    except OSError:
        pass
    except CompileError as error:
        if _FULL not in str(error):
            raise
    own = _own_folder()
    try:
        return _built(own, key, suffix, build)
    except OSError as error:
        raise _unkept(own, error) from None


def _built(folder: Path, key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    path, mark = folder / (key + suffix), folder / (key + _MARK)
    if _intact(path, mark):
        _used(mark)
        return path
    with tempfile.TemporaryDirectory(dir=folder, prefix=_BUILDING) as scratch:
        made = Path(scratch) / (key + suffix)
        build(made)
        checksum = Path(scratch) / "checksum"
        checksum.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        os.replace(made, path)
        os.replace(checksum, mark)
    _written(folder, path.stat().st_size, key)
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


def _used(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


# --- data -----------------------------------------------------------------------------------------------------------------------------


def read(key: str, suffix: str) -> bytes | None:
    """What was kept under a name; None if nothing was, it is damaged, or the folder cannot be used."""
    with contextlib.suppress(OSError, CompileError):
        folder = named_folder()
        _check_private(folder)
        path = folder / (key + suffix)
        data = path.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            _used(path)
            return data[32:]
    return None


def write(key: str, suffix: str, data: bytes) -> bool:
    """Keeps data under a name, if that can be done; gives whether it was."""
    with contextlib.suppress(OSError, CompileError):
        folder = cache_folder()
        with tempfile.TemporaryDirectory(dir=folder, prefix=_BUILDING) as scratch:
            made = Path(scratch) / "data"
            made.write_bytes(hashlib.sha256(data).digest() + data)
            os.replace(made, folder / (key + suffix))
        _written(folder, len(data), key)
        return True
    return False


# --- how much there is ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """The files of one name, their bytes, and when they were last used (seconds since 1970)."""

    files: tuple[Path, ...]
    nbytes: int
    used: float


def limit() -> int:
    """The bytes that the cache may take: the number in GPUAD_CACHE_LIMIT, else 1 GB. CompileError for what is no number."""
    text = os.environ.get(LIMIT) or str(USUAL_LIMIT)
    if not text.isdigit():
        raise CompileError(f"the environment variable {LIMIT} is {text!r}: it has to be a number of bytes")
    return int(text)


def entries(folder: Path) -> list[Entry]:
    """What is in a folder, which need not be there; the one that was not used for longest first."""
    found: dict[str, list[tuple[Path, os.stat_result]]] = {}
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # another process has removed it
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and _is_key(path.name.partition(".")[0]):
                    found.setdefault(path.name.partition(".")[0], []).append((path, status))
    made = (
        Entry(tuple(p for p, _ in files), sum(s.st_size for _, s in files), max(s.st_mtime for _, s in files)) for files in found.values()
    )
    return sorted(made, key=lambda entry: entry.used)


def _is_key(name: str) -> bool:
    return len(name) == 40 and set(name) <= set("0123456789abcdef")


_since: dict[Path, int] = {}  # bytes written since a folder was last looked at


def _written(folder: Path, nbytes: int, key: str) -> None:
    """Notes that a file was written; `key`: which is not removed for it."""
    before = _since.get(folder)
    _since[folder] = (before or 0) + nbytes
    if before is None or _since[folder] * _SHARE > limit():
        _since[folder] = 0
        trim(folder, limit(), key)


def trim(folder: Path, most: int, kept: str = "") -> None:
    """Removes entries, those that were not used for longest first, until `most` bytes are left; not the one of the name that is `kept`."""
    found = entries(folder)
    total = sum(entry.nbytes for entry in found)
    for entry in found:
        if total <= most:
            break
        if not entry.files[0].name.startswith(kept or "-"):
            remove([entry])
            total -= entry.nbytes
    _remove_abandoned(folder)


def remove(these: Iterable[Entry]) -> None:
    """Removes entries; what another process has removed is gone."""
    for entry in these:
        for path in sorted(entry.files, key=lambda p: p.suffix != _MARK):  # without its mark a file counts as absent
            with contextlib.suppress(OSError):
                path.unlink()


def _remove_abandoned(folder: Path, age: float = _ABANDONED) -> None:
    with contextlib.suppress(OSError):
        for path in folder.glob(_BUILDING + "*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > age:
                    shutil.rmtree(path, ignore_errors=True)


def clear(folder: Path) -> list[Entry]:
    """Removes all entries of a folder, and nothing else that lies there; gives what they were."""
    found = entries(folder)
    remove(found)
    _remove_abandoned(folder)
    return found
