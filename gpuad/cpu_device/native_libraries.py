"""The shared libraries that CuPy's ROCm wheel asks for, made for the CPU by the machine's C++ compiler, kept in the cache on disk.

Which functions they have to have is read from the wheel: HIP's runtime is in `native/`; the functions of the mathematical libraries are
entries of a table that Python fills (`library_functions`), each by an address to jump to.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from ..errors import CompileError, LaunchError
from ..runtime.compiler import Compiler, find_compiler, output, said
from ..runtime.disk_cache import cached, key_of

NATIVE = Path(__file__).parent / "native"
FLAGS = ("-std=c++17", "-O2", "-g0", "-w", "-shared", "-fPIC")
_LIBRARY = re.compile(r"\[(lib(?:hip|roc|rccl|amdhip)\w*\.so\.\d+)\]")
_FUNCTION = re.compile(r"\bUND\s+((?:__)?(?:hip|roc|rccl|nccl)\w+)(?:@+(\S+))?")
_RUNTIME = "libamdhip64"


@dataclass(frozen=True)
class Wanted:
    """The needs of a wheel: libraries by name, functions of the runtime and of other libraries by their version, and those without one."""

    libraries: tuple[str, ...]
    versioned: Mapping[str, tuple[str, ...]]
    plain: tuple[str, ...]

    @property
    def runtime(self) -> str:
        return next(name for name in self.libraries if name.startswith(_RUNTIME))


def wheel() -> Path:
    """The folder in which CuPy's ROCm wheel is installed. LaunchError if there is none, or another CuPy."""
    found = importlib.util.find_spec("cupy")
    folder = Path(found.origin).parents[1] if found and found.origin else None
    if folder is None or not (folder / "cupy_backends").is_dir():
        raise LaunchError("there is no CuPy to run on the CPU: `pip install cupy-rocm-7-0` into an environment without another CuPy")
    return folder


def wanted(folder: Path) -> Wanted:
    """The needs of the modules of the wheel. LaunchError if they ask for CUDA instead."""
    reader = shutil.which("readelf")
    if reader is None:
        raise CompileError("`readelf` is missing, which says what CuPy asks for: install binutils")
    modules = [str(path) for part in ("cupy", "cupy_backends", "cupyx") for path in sorted((folder / part).rglob("*.so"))]
    run = output([reader, "--wide", "--dynamic", "--dyn-syms", *modules])
    if run.returncode:
        raise CompileError(f"`readelf` does not read CuPy's modules in {folder}{said(run)}")
    symbols = run.stdout
    versioned: defaultdict[str, set[str]] = defaultdict(set)
    for name, version in _FUNCTION.findall(symbols):
        versioned[version].add(name)
    libraries = tuple(sorted(set(_LIBRARY.findall(symbols))))
    if not any(name.startswith(_RUNTIME) for name in libraries):
        raise LaunchError(f"CuPy in {folder} is for CUDA, whose driver it needs: on the CPU `pip install cupy-rocm-7-0` in its place")
    plain = tuple(sorted(versioned.pop("", ())))
    return Wanted(libraries, {version: tuple(sorted(names)) for version, names in sorted(versioned.items())}, plain)


@dataclass(frozen=True)
class Libraries:
    """The device's library, and the table of the other libraries' functions by their names."""

    device: ctypes.CDLL
    table: ctypes.Array[ctypes.c_void_p]
    names: tuple[str, ...]


def loaded(asked: Wanted) -> Libraries:
    """The libraries in this process, where CuPy's modules find them by their names."""
    device = built(asked.runtime, "", _device(asked), *(str(NATIVE / name) for name in ("device.cpp", "threads.cpp")))
    hiprtc = asked.runtime.replace("amdhip64", "hiprtc")
    built(hiprtc, "", "", "-Wl,--no-as-needed", device._name)  # its functions are the device's
    functions = built(_name_of_functions(asked), _functions(asked), "")
    for name in asked.libraries:
        if name not in (asked.runtime, _name_of_functions(asked)):
            built(name, *_empty(asked, name))
    table = (ctypes.c_void_p * len(asked.plain)).in_dll(functions, "gpuad_functions")
    return Libraries(device, table, asked.plain)


def _name_of_functions(asked: Wanted) -> str:
    return next(name for name in asked.libraries if name.startswith("libhipblas"))


def built(name: str, text: str, versions: str, *more: str) -> ctypes.CDLL:
    """A library of this name from a text and `more` files or options of the linker, with these versions of symbols; loaded for all.
    CompileError if the compiler rejects it."""
    compiler = find_compiler()
    key = key_of("cpu device", name, text, versions, _sources(), compiler.version, " ".join(compiler.command))
    path = cached(key, ".so", partial(_built, compiler, name, text, versions, more))
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


@cache
def _sources() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(NATIVE.glob("*.*")))


def _built(compiler: Compiler, name: str, text: str, versions: str, more: tuple[str, ...], target: Path) -> None:
    source, script = target.with_suffix(".cpp"), target.with_suffix(".map")
    source.write_text(text, encoding="utf-8")
    script.write_text(versions, encoding="utf-8")
    versioned = (f"-Wl,--version-script={script}",) if versions else ()
    command = (*compiler.command, *FLAGS, f"-I{NATIVE}", str(source), *more, "-o", str(target), f"-Wl,-soname,{name}", *versioned, "-ldl")
    run = output(command)
    if run.returncode:
        raise CompileError(f"{compiler.shown} makes no {name} for the CPU (exit status {run.returncode}){said(run)}")


def _device(asked: Wanted) -> str:
    """The versions of the runtime's functions, as the linker reads them."""
    hip = {version: names for version, names in asked.versioned.items() if version.startswith("hip_")}
    own = {"hip_4.2": ("hiprtc*", "hipFuncSetAttribute", "gpuad_*")}
    nodes = (
        f"{version} {{ global: {' '.join(f'{name};' for name in (*names, *own.get(version, ())))} }};" for version, names in hip.items()
    )
    return "\n".join(nodes)


def _functions(asked: Wanted) -> str:
    """A function for each name that jumps to the table's entry, whatever it is called with; at first to one that says what is missing."""
    jumps, missing = [], []
    for number, name in enumerate(asked.plain):
        jumps.append(
            f".globl {name}\n.type {name}, @function\n{name}: movq gpuad_functions@GOTPCREL(%rip), %r11\njmp *{8 * number}(%r11)\n"
        )
        missing.append(f'static int missing_{number}() {{ return gpuad_missing("{name}"); }}\n')
    entries = ", ".join(f"(void*)missing_{number}" for number in range(len(asked.plain)))
    return (
        "#include <cstdio>\n"
        'static int gpuad_missing(const char* name) { fprintf(stderr, "gpuad: %s is not made for the CPU\\n", name); return 7; }\n'
        f"{''.join(missing)}"
        f'extern "C" {{ extern void* gpuad_functions[]; void* gpuad_functions[] = {{{entries}}}; }}\n'
        f'asm(R"(.text\n{"".join(jumps)})");\n'
    )


def _empty(asked: Wanted, name: str) -> tuple[str, str]:
    """A library that is only named: its functions are in the table, or do nothing if they have a version (marks for profilers)."""
    part = "TRACER" if "tracer" in name else "TX" if "roctx" in name else None
    own = {
        v: names
        for v, names in asked.versioned.items()
        if part and part in v and not v.startswith("hip_") and not (part == "TX" and "TRACER" in v)
    }
    text = 'extern "C" {\n' + "".join(f"int {function}() {{ return 0; }}\n" for names in own.values() for function in names) + "}\n"
    return text, "\n".join(f"{version} {{ global: {' '.join(f'{f};' for f in names)} }};" for version, names in own.items())
