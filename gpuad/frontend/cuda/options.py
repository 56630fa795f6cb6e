"""The user's compiler options as libclang's.

NVRTC reads its own declarations before a `-D` can change a name in them. So macros of the user do not go onto clang's command line, where
they would be defined while the prelude is read: they become lines between the prelude and the user's text. Options that change neither
names nor types (`--use_fast_math`, `-lineinfo`) are of no interest here.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

INCLUDE = Path(__file__).parent / "include"
HOST_NAMES = ("-include", "gpuad/host.h")  # the options that give a text the names that nvcc has without an #include
_DEFAULT_ARCHITECTURE = 80
_HOST = {
    "__GNUC__",
    "__clang__",
    "__CUDA__",
    "__linux__",
    "__linux",
    "linux",
    "__unix__",
    "__unix",
    "unix",
    "__x86_64__",
    "__x86_64",
    "__amd64__",
}
_HOST |= {"_WIN32", "_WIN64", "_MSC_VER", "__gnu_linux__", "__ELF__", "__llvm__", "_GNU_SOURCE", "__NVPTX__", "__PTX__"}
_SEPARATE = {
    "-D",
    "--define-macro",
    "-U",
    "--undefine-macro",
    "-I",
    "--include-path",
    "-include",
    "--pre-include",
    "-std",
    "--std",
    "-arch",
}
_SEPARATE |= {"--gpu-architecture"}


@dataclass(frozen=True)
class CommandLine:
    """`arguments` for clang, and the lines that go before the user's text."""

    arguments: tuple[str, ...]
    header: str


def command_line(options: tuple[str, ...], name: str = "") -> CommandLine:
    """clang's command line for NVRTC's (or nvcc's) `options`. `name`: the source's; where it is that of a file, what the file includes in
    quotes is sought beside it first."""
    pairs = _pairs(options)
    includes = [f"-iquote{Path(name).parent}"] if name and Path(name).is_file() else []
    includes += [f"-I{INCLUDE / 'std'}", f"-I{INCLUDE}", *(f"-I{v}" for k, v in pairs if k in ("-I", "--include-path"))]
    standards = [v for k, v in pairs if k in ("-std", "--std")] or ["c++17"]
    return CommandLine((*_BASE, f"--target={_target()}", f"-std={standards[-1]}", *includes), _header(options, pairs))


_BASE = (
    *("-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-nostdinc", "--cuda-gpu-arch=sm_80"),
    *("-Wno-unknown-cuda-version", "-w", "-Wno-error=c++11-narrowing", "-Wno-c++11-narrowing", "-fno-builtin", "-ferror-limit=0"),
    "-Wno-register",  # clang would refuse the word in C++17; to CUDA's compilers it is worth a warning
)


def _target() -> str:
    """`long` has 64 bits but on Windows, as in NVRTC there."""
    return "x86_64-pc-windows-msvc" if sys.platform == "win32" else "x86_64-unknown-linux-gnu"


def _pairs(options: tuple[str, ...]) -> list[tuple[str, str]]:
    """(flag, value) of every option, whether written `-Dx`, `-D x`, `--std=c++17` or `-fmad`."""
    pairs, rest = [], list(options)
    while rest:
        option = rest.pop(0).strip()
        if option in _SEPARATE and rest:
            pairs.append((option, rest.pop(0)))
        elif match := re.fullmatch(r"(-[DUI])(.+)|(--?[\w-]+)=(.*)", option, re.DOTALL):
            pairs.append((match[1] or match[3], match[2] if match[1] else match[4]))
        else:
            pairs.append((option, ""))
    return pairs


def _header(options: tuple[str, ...], pairs: list[tuple[str, str]]) -> str:
    lines = [f"#undef {name}" for name in sorted(_HOST)]
    lines += ['#include "gpuad/prelude.h"', "#undef GPUAD_F", "#undef __CUDA_ARCH__", f"#define __CUDA_ARCH__ {10 * _architecture(pairs)}"]
    lines += [_macro(flag, value) for flag, value in pairs if flag in ("-D", "--define-macro", "-U", "--undefine-macro")]
    if {"-default-device", "--device-as-default-execution-space"} & set(options):
        lines.append("#pragma clang force_cuda_host_device begin")
    lines += [f'#include "{value}"' for flag, value in pairs if flag in ("-include", "--pre-include")]
    return "\n".join(lines) + "\n"


def _macro(flag: str, value: str) -> str:
    if flag in ("-U", "--undefine-macro"):
        return f"#undef {value}"
    name, equals, text = value.partition("=")
    return f"#define {name} {text if equals else 1}"


def _architecture(pairs: list[tuple[str, str]]) -> int:
    for flag, value in reversed(pairs):
        if flag in ("-arch", "--gpu-architecture") and (digits := re.search(r"\d+", value)):
            return int(digits[0])
    return _DEFAULT_ARCHITECTURE
