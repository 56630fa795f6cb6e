"""The machine's C++ compiler: which one, with which options, and how it is run.

Looked for in this order: the command in the environment variable CXX, g++, clang++, c++, and the `ziglang` wheel (`python -m ziglang c++`).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompileError

# -fwrapv: integers wrap. -ffp-contract=off: a product and a sum round twice, as the IR says. No errno, no traps: else nothing vectorises.
# C++14, since g++ takes half as long to read <cmath> as it does of C++17, and for a small kernel that is a third of all.
FLAGS = (
    "-O3", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd",
    "-std=c++14", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-w",
)  # fmt: skip
# g++ 12 makes a memcpy of the copies in a loop, and reads an element anew after it was written. Clang does not know the option.
_GNU = ("-fno-tree-loop-distribute-patterns",)
# For a text on which the compiler itself crashes, as g++ 12 does where it vectorises some queues of registers. The bits are the same.
CAREFUL = ("-O2", "-fno-openmp-simd", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
CRASHED = ("internal compiler error", "PLEASE submit a bug report")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command and what it says about its version and the processor that it compiles for."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The options for it."""
        return (*FLAGS, *(_GNU if "Free Software Foundation" in self.version else ()))

    def build(self, source: Path, target: Path, defines: tuple[str, ...]) -> None:
        """Compiles the file to a shared library, with less skill if the compiler crashes; CompileError with the compiler's own message."""
        run = self._run(*defines, str(source), "-o", str(target))
        if run.returncode < 0 or (run.returncode and any(words in run.stderr for words in CRASHED)):
            run = self._run(*CAREFUL, *defines, str(source), "-o", str(target))
        if run.returncode:
            raise CompileError(f"{' '.join(self.command)} rejects generated code (exit status {run.returncode}):\n{run.stderr[-4000:]}")

    def _run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.command, *self.flags, *more], capture_output=True, text=True, check=False)


def find_compiler() -> Compiler:
    """The machine's compiler; CompileError that says how to get one if there is none, or if the one in CXX does not run."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


def has_compiler() -> bool:
    """Whether there is one."""
    try:
        find_compiler()
    except CompileError:
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
    command = tuple(shlex.split(cxx))
    version = _version(command) if command and shutil.which(command[0], path=path) else None
    if version is None:
        raise CompileError(f"the compiler in the environment variable CXX, {cxx!r}, does not run: unset CXX, or `pip install ziglang`")
    return Compiler(command, version)


def _version(command: tuple[str, ...]) -> str | None:
    """The compiler's version and target; None if it does not run. The processor counts too: code for one may not run on another."""
    try:
        run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=120)
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
