"""What has been found out about kernels, on disk for later processes: trees, derived kernels and their texts, facts about launches.

In: a kernel's text, or its tree. Out: `Kept`, what its `Kernel` works with, as an earlier process has left it or empty. When the process
ends, and at times before (`save_in_time`), what is new is written beside compiled code (`runtime.disk_cache`).

An entry is found under a digest of all that it depends on: the text with its name, options and kind, the files of this package, and the
versions of Python and of the libraries that facts come from. Which launches a fact is about stands in the fact's own key, as it does within
a process. A text that includes files of its user is parsed in each process, and what is known of it is found by its tree.

Entries are read as data: nothing is made of one but instances of this package's data classes and a few containers, and nothing in it is
called. The folder is one that only its owner can write, and holds compiled code, which is run, anyway. An entry that cannot be read counts
as absent; so do all with GPUAD_CACHE_FACTS=0.
"""

from __future__ import annotations

import atexit
import gc
import io
import logging
import os
import pickle
import platform
import re
import sys
import time
import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import GpuadError
from ..frontend.cuda import parse
from ..ir.surface import Function
from ..memo import Memo, news
from ..progress import doing
from ..recursion_limit import room
from ..runtime import disk_cache
from ..source import SourceFile

VARIABLE, SUFFIX = "GPUAD_CACHE_FACTS", ".facts"
MOST = 1 << 24  # bytes of an entry; a larger one is begun anew, since most of it is of launches that are not made any more
_PAUSE = 30.0  # seconds between looks at what is new: so much is lost when a process is killed
_MANY = 256  # kernels that are kept alive to be written
_LIBRARIES = ("islpy", "libclang", "numpy", "cupy", "cupy-cuda12x", "cupy-cuda13x")
_USERS_FILES = re.compile(r"#\s*include\s*[^<\s]|__has_include")
_FOLDERS = re.compile(r"-I|--include|-include|--pre-include")
_log = logging.getLogger("gpuad")
_IMPORTED = time.time()


@dataclass(eq=False)
class Kept:
    """What is known of a kernel: its tree; what was derived from it, and facts about its launches; the same by shared memory and absent
    arrays (`Kernel.suited`). `key`: under which it is kept, empty if it is not."""

    key: str
    function: Function
    specializations: dict[Hashable, Any] = field(default_factory=dict)
    facts: Memo = field(default_factory=Memo)
    suited: dict[Hashable, tuple[dict[Hashable, Any], Memo]] = field(default_factory=dict)
    written: int = 0  # its size on disk

    def part(self, key: Hashable) -> tuple[dict[Hashable, Any], Memo]:
        """Specializations and facts of the kernel so suited."""
        return self.suited.setdefault(key, ({}, Memo()))

    @property
    def size(self) -> int:
        """How much is known."""
        parts = [(self.specializations, self.facts), *self.suited.values()]
        derived = [x for made, _ in parts for x in made.copy().values() if hasattr(x, "facts")]
        return sum(len(made) + len(facts.known) for made, facts in [*parts, *((x.specializations, x.facts) for x in derived)])


# --- where it is found ----------------------------------------------------------------------------------------------------------------


def of_text(kind: str, file: SourceFile, name: str, options: Sequence[str]) -> Kept:
    """What is known of the kernel `name` of a text. `kind`: what else its binding depends on. Raises as parsing does."""
    given = tuple(options)
    own = not _USERS_FILES.search(file.text) and not any(_FOLDERS.match(o.strip()) for o in given)
    key = _key("text", kind, repr(file), name, repr(given)) if own else ""
    found = _read(key)
    if found is not None:
        return found
    with doing(f"reading `{name}` of {file.name}"):
        function = parse(file, options=given).kernel(name)
    return _noted(Kept(key, function)) if own else of_function(kind, function)


def of_function(kind: str, function: Function) -> Kept:
    """The entry of the kernel of a tree."""
    key = ""
    with suppress(GpuadError), room(function.name, function.span):
        key = _key("tree", kind, sha256(pickle.dumps(function, 5)).hexdigest())
    found = _read(key)
    if found is None:
        return _noted(Kept(key, function))
    return found


def _key(*parts: str) -> str:
    made_by = version() if os.environ.get(VARIABLE) != "0" else ""
    return disk_cache.key_of(made_by, *parts) if made_by else ""


@cache
def version() -> str:
    """What facts depend on beside the kernel: a digest of this package's files, and the versions of Python and of libraries. Empty where
    these files cannot be read, or were changed since they were imported."""
    package = Path(__file__).parents[1]
    try:
        files = sorted(_files(str(package)))
        if max(status.st_mtime for _, status in files) > _IMPORTED:
            return ""
        stamps = (f"{path} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}" for path, s in files)
        folders = (f"{path} {os.stat(path).st_mtime_ns}" for path in sys.path if os.path.isdir(path))
        key = disk_cache.key_of("version", sys.version, *stamps, *folders)
        found = disk_cache.read(key, ".version")
        if found is None:
            found = _digest(str(package), [path for path, _ in files]).encode()
            disk_cache.write(key, ".version", found)
    except OSError:
        return ""
    return found.decode()


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                yield from _files(entry.path) if entry.name != "__pycache__" else ()
            else:
                yield entry.path, entry.stat()


def _digest(package: str, files: Sequence[str]) -> str:
    digest = sha256()
    for name in files:
        with open(name, "rb", buffering=0) as file:
            digest.update(name[len(package) :].encode() + b"\0" + sha256(file.read()).digest())
    digest.update("\0".join([sys.version, platform.machine(), *map(_version, _LIBRARIES)]).encode())
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


# --- reading --------------------------------------------------------------------------------------------------------------------------


_ROOMS = ("accumulate", "ad", "affine", "analysis", "codegen", "fusion", "inspect", "ir", "optimize", "pipeline", "program", "tape")
_MODULES = ("gpuad.memo", "gpuad.source", *(f"gpuad.{room}" for room in _ROOMS))
_OURS = {"gpuad.memo.Memo", "gpuad.memo.Same", "gpuad.ir.rewrite.Names", "gpuad.ad.stack_layout._Plan", "gpuad.program.ir.region.of_bytes"}
_NUMPY = re.compile(r"numpy(\.ndarray|\.dtype|\._?core\.(multiarray\.(_reconstruct|scalar)|numeric\._frombuffer))")


class _Reader(pickle.Unpickler):
    """Makes data classes of this package, and what they hold."""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        ours = any(module == m or module.startswith(f"{m}.") for m in _MODULES) and name.isidentifier()
        if not ours and not _NUMPY.fullmatch(full):
            raise pickle.UnpicklingError(f"an entry of the cache has no {full}")
        found = super().find_class(module, name)
        if ours and full not in _OURS and not (isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))):
            raise pickle.UnpicklingError(f"an entry of the cache has no {full}")
        return found


def _read(key: str) -> Kept | None:
    """What this process knows, else what an earlier one has left."""
    if not key or key in _all:
        return _all.get(key)
    data = disk_cache.read(key, SUFFIX)
    if data is None:
        return None
    try:
        found = unpickled(key, data)
    except Exception as error:  # whatever it is, it is not what was written
        _log.debug("an entry of the cache cannot be read: %r", error)
        return None
    return _noted(found)


def unpickled(key: str, data: bytes) -> Kept:
    """What `pickled` was given. Raises whatever comes of data that it has not made."""
    with _without_collections():
        function, made, facts, suited = _Reader(io.BytesIO(data)).load()
    found = Kept(key, function, made, facts, suited)
    found.written = found.size
    return found


@contextmanager
def _without_collections() -> Iterator[None]:
    """Thousands of new objects are no reason to look for garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# --- writing --------------------------------------------------------------------------------------------------------------------------

_all: weakref.WeakValueDictionary[str, Kept] = weakref.WeakValueDictionary()
_held: list[Kept] = []  # which would be gone with their kernels
_seen: dict[str, float] = {"news": 0, "seconds": time.monotonic()}


def _noted(kept: Kept) -> Kept:
    if kept.key:
        if len(_held) >= _MANY:
            save_all()
        _all[kept.key] = kept
        _held.append(kept)
    return kept


def pickled(kept: Kept) -> bytes:
    """What is known of a kernel as bytes. GpuadError for one that is nested too deeply."""
    with room(kept.function.name, kept.function.span):
        return pickle.dumps((kept.function, kept.specializations, kept.facts, kept.suited), 5)


def save(kept: Kept) -> None:
    """Writes what is known of a kernel, if that can be done."""
    try:
        data = pickled(kept)
        if len(data) > MOST:
            data = pickled(Kept(kept.key, kept.function))
        disk_cache.write(kept.key, SUFFIX, data)
    except Exception as error:  # it is found out again
        _log.debug("what is known of %s is not kept: %r", kept.function.name, error)
    kept.written = kept.size


def save_all() -> None:
    """Writes what is new about all kernels."""
    made, _seen["news"], _seen["seconds"] = news["made"] > _seen["news"], news["made"], time.monotonic()
    for kept in list(_all.values()):
        size = kept.size
        if size > kept.written or (made and size):
            save(kept)
    _held.clear()


def save_in_time() -> None:
    """Writes what is new if it has not been done for a while: a process that is killed does so no more."""
    if time.monotonic() - _seen["seconds"] > _PAUSE:
        save_all()


atexit.register(save_all)
