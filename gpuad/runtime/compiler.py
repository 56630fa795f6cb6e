"""The machine's C++ compiler: which one, with which options, and how it is run.

Looked for in this order: the command in the environment variable CXX, g++, clang++, c++, and the `ziglang` wheel (`python -m ziglang c++`).
Whoever sets CXX means that one: if it does not run, that is an error, and no reason to look further or to do without.

Generated C++ as shared libraries: compiled once, kept in the cache on disk (`disk_cache`) by the hash of everything that they depend on,
loaded. What cannot be used though it is intact is removed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..codegen.cpu.helpers import HEADERS
from ..errors import CompileError
from ..progress import doing
from .disk_cache import cached, discard, key_of, named_folder

# -fwrapv: integers wrap. -ffp-contract=off: a product and a sum round twice, as the IR says. No errno, no traps: else nothing vectorises.
# C++14, since g++ takes half as long to read <cmath> as it does of C++17, and for a small kernel that is a third of all.
FLAGS = (
    "-O3", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd",
    "-std=c++14", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-w",
)  # fmt: skip
# g++ 12 makes a memcpy of the copies in a loop, and reads an element anew after it was written. Clang does not know the option.
_GNU = ("-fno-tree-loop-distribute-patterns",)
# g++ 12 makes masked gather instructions of reads under a condition that is the same for a whole loop (`if (y < height) ... u[column]`),
# and masks that are all 0 for some of them: a 3 x 3 median came out as 0. Gathers of two, four and eight are options of their own, whose
# names depend on the release: the first of these that a compiler takes. Only x86 has them; who takes none makes no such instructions.
NO_GATHERS = (
    "-mtune-ctrl=^use_gather_2parts,^use_gather_4parts,^use_gather_8parts",
    "-mtune-ctrl=^use_gather_2parts,^use_gather_4parts,^use_gather",
    "-mtune-ctrl=^use_gather",
)
# For a text on which the compiler itself crashes, as g++ 12 does where it vectorises some queues of registers. The bits are the same.
CAREFUL = ("-O2", "-fno-openmp-simd", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
CRASHED = ("internal compiler error", "PLEASE submit a bug report")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command and what it says about its version and the processor that it compiles for."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gnu(self) -> bool:
        """True if it is g++."""
        return "Free Software Foundation" in self.version

    @property
    def flags(self) -> tuple[str, ...]:
        """The options for it, with the level of optimisation that is asked for."""
        chosen = tuple(f"-O{level()}" if flag == "-O3" else flag for flag in FLAGS)
        return (*chosen, *_GNU, *_without_gathers(self.command)) if self.is_gnu else chosen

    @property
    def quick_linker(self) -> tuple[str, ...]:
        """The option for a linker that takes a third of the time of binutils' other, where there is one."""
        return ("-fuse-ld=gold",) if self.is_gnu and shutil.which("ld.gold") else ()

    def precompile(self, headers: str, target: Path) -> None:
        """Writes the precompiled form of a text of `#include` lines, `NAME.gch`, for texts compiled with `-include NAME`; CompileError if
        it cannot. Only g++ has this form (https://gcc.gnu.org/onlinedocs/gcc/Precompiled-Headers.html)."""
        source = target.with_suffix("")
        source.write_text(headers, encoding="utf-8")
        run = self._run("-x", "c++-header", str(source), "-o", str(target))
        if run.returncode or not target.is_file():
            raise CompileError(f"{self.shown} precompiles no headers (exit status {run.returncode}){said(run)}")

    def build(self, source: Path, target: Path, defines: tuple[str, ...], headers: Path | None = None) -> None:
        """Compiles the file to a shared library, with less skill if the compiler crashes; CompileError with the compiler's own message.
        `headers`: precompiled. What makes compilation quicker, these and a linker, is done without if the compiler fails with it."""
        shortcuts = (*(("-include", str(headers.with_suffix(""))) if headers else ()), *self.quick_linker)
        run = self._run(*shortcuts, *defines, str(source), "-o", str(target))
        if run.returncode and shortcuts:
            run = self._run(*defines, str(source), "-o", str(target))
        if run.returncode < 0 or (run.returncode and any(words in run.stderr for words in CRASHED)):
            run = self._run(*CAREFUL, *defines, str(source), "-o", str(target))
        if run.returncode < 0:
            raise CompileError(f"{self.shown} was killed (signal {-run.returncode}); is there memory enough?{said(run)}")
        if run.returncode:
            raise CompileError(f"{self.shown} rejects generated code (exit status {run.returncode}){said(run)}")
        if not target.is_file():
            raise CompileError(f"{self.shown} says that it has compiled generated code, but wrote no library: {_ADVICE}{said(run)}")

    @property
    def shown(self) -> str:
        """The command, for messages."""
        return " ".join(self.command)

    def unusable(self, why: object) -> CompileError:
        """The error for a library of its making that cannot be loaded."""
        return CompileError(f"{self.shown} made a library that cannot be used ({why}); it was not kept: {_ADVICE}")

    def _run(self, *more: str) -> subprocess.CompletedProcess[str]:
        try:
            return output([*self.command, *self.flags, *more])
        except OSError as error:
            raise CompileError(f"{self.shown} cannot be run ({error}): {_ADVICE}") from None


LEVEL = "GPUAD_OPTIMIZE"


def level() -> str:
    """The number in GPUAD_OPTIMIZE, 0 to 3, else 3: less is compiled sooner and runs slower. CompileError for anything else."""
    text = os.environ.get(LEVEL) or "3"
    if text not in ("0", "1", "2", "3"):
        raise CompileError(f"the environment variable {LEVEL} is {text!r}: it has to be 0, 1, 2 or 3, as in the C++ compiler's option -O3")
    return text


_ADVICE = "try it by hand, or name another compiler in the environment variable CXX"


@functools.cache
def _without_gathers(command: tuple[str, ...]) -> tuple[str, ...]:
    """The options that keep a compiler from gather instructions; none where it does not run."""
    try:
        return next(((o,) for o in NO_GATHERS if output([*command, o, "-E", "-x", "c++", os.devnull]).returncode == 0), ())
    except OSError:
        return ()


def said(run: subprocess.CompletedProcess[str]) -> str:
    """The end of what a command has printed, for a message."""
    text = run.stderr.strip() or run.stdout.strip()
    return f":\n{text[-4000:]}" if text else ""


def output(command: Sequence[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. What it prints need not be text in any encoding."""
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False, timeout=timeout)


def find_compiler() -> Compiler:
    """The machine's compiler; CompileError that says how to get one if there is none, or if the one in CXX does not run."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


def has_compiler() -> bool:
    """True if there is one; CompileError if the one in CXX does not run."""
    try:
        find_compiler()
    except CompileError:
        if os.environ.get("CXX"):
            raise
        return False
    return True


@functools.cache
def _find(cxx: str, path: str) -> Compiler:
    if cxx:
        return _named(cxx, path)
    for name in ("g++", "clang++", "c++"):
        found = shutil.which(name, path=path)
        version = _version((found,)) if found else None
        if found and version:
            return Compiler((found,), version)
    if importlib.util.find_spec("ziglang"):
        command = (sys.executable, "-m", "ziglang", "c++")
        version = _version(command)
        if version:
            return Compiler(command, version)
    raise CompileError("no C++ compiler: install g++ or clang++, or `pip install ziglang`, or name one in the environment variable CXX")


def _named(cxx: str, path: str) -> Compiler:
    try:
        command = tuple(shlex.split(cxx))
    except ValueError as error:
        raise CompileError(f"the environment variable CXX, {cxx!r}, is no command ({error}): mend or unset it") from None
    version = _version(command) if command and shutil.which(command[0], path=path) else None
    if version is None:
        raise CompileError(f"the compiler in the environment variable CXX, {cxx!r}, does not run: unset CXX, or `pip install ziglang`")
    return Compiler(command, version)


def _version(command: tuple[str, ...]) -> str | None:
    """The compiler's version and target; None if it does not run. The processor counts too: code for one may not run on another."""
    try:
        run = output([*command, "--version"], timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return f"{run.stdout}\n{_processor()}" if run.returncode == 0 else None


def _processor() -> str:
    """What the machine says about its processor: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


PREFIX = "gpuad_launch_"  # of the entries of kernels
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
    with doing(f"compiling {', '.join(f'`{symbol.removeprefix(PREFIX)}`' for symbol in symbols)}"):
        compiler.build(text, target, defines, _headers(compiler))
    try:
        _loaded(target, symbols)
    except (OSError, AttributeError) as error:
        raise compiler.unusable(error) from None


_HEADERS = ".hpp.gch"
_PATIENCE = 3  # texts that a process compiles before it precompiles their headers, which takes as long as it saves of about three
_asked: Counter[tuple[Path, Compiler]] = Counter()
_precompiled: dict[tuple[Path, Compiler, tuple[str, ...]], Path | None] = {}


def _headers(compiler: Compiler) -> Path | None:
    """The C++ library's headers in the compiler's own form, of which a small text otherwise spends a third of its time reading; None
    where it has no such form, and for the first texts if the cache has none yet."""
    if not compiler.is_gnu:
        return None
    found = named_folder(), compiler, compiler.flags
    if found not in _precompiled:
        key = key_of("headers", HEADERS, " ".join((*compiler.command, *compiler.flags)), compiler.version)
        _asked[found[:2]] += 1
        if _asked[found[:2]] <= _PATIENCE and not (found[0] / (key + _HEADERS)).is_file():
            return None
        try:
            _precompiled[found] = cached(key, _HEADERS, partial(compiler.precompile, HEADERS))
        except CompileError:
            _precompiled[found] = None
    return _precompiled[found]


def _loaded(path: Path, symbols: Sequence[str]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for symbol in symbols:
        getattr(library, symbol)
    return library
