"""What hiprtc does on the CPU: a kernel's text becomes a shared object by the machine's C++ compiler. CuPy keeps it in its own cache."""

from __future__ import annotations

import ctypes
import re
import tempfile
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from ..codegen.cpu.helpers import functions
from ..errors import CompileError
from ..runtime.compiler import Compiler, find_compiler, output, said
from ..runtime.disk_cache import cached, key_of, usable_folder
from .kernel_text import kernel_text
from .native_libraries import NATIVE

INCLUDE = NATIVE / "include"
FLAGS = ("-std=c++17", "-O1", "-g0", "-w", "-fpermissive", "-shared", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off")
DEFINES = ("-D__HIPCC_RTC__", "-D__HIP_PLATFORM_AMD__=1")
_LIBRARY = "#include <cmath>\n#include <cstring>\n#define GPUAD_INLINE static inline\nnamespace gpuad_library {"
_FUNCTIONS = (
    "gpuad_sinpi",
    "gpuad_cospi",
    "gpuad_erfcinv",
    "gpuad_erfinv",
    "gpuad_erfcx",
    "gpuad_bessel_i",
    "half",
    "bfloat16",
    "gpuad_f2i",
)
_KEPT = ("-D", "-U", "-I")  # of the options for NVRTC or hiprtc

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)


def compiler_for(device: ctypes.CDLL) -> Callable[..., int]:
    """The function that the device calls with a text, options, expressions that name kernels, and headers; 0 if it is compiled."""

    def compile_text(text: bytes, options: bytes, names: bytes, headers: bytes) -> int:
        try:
            code, log = compiled(text.decode(), _parts(options), _parts(names), dict(_part(header) for header in _parts(headers)))
        except CompileError as error:
            code, log = b"", str(error)
        except Exception:  # which C++ above it could not take
            code, log = b"", traceback.format_exc()
        device.gpuad_device_compiled(code, ctypes.c_size_t(len(code)), log.encode())
        return 0 if code else 1

    return CALLBACK(compile_text)


def _parts(text: bytes) -> list[str]:
    return text.decode().split("\2")[:-1]


def _part(header: str) -> tuple[str, str]:
    name, _, text = header.partition("\1")
    return name, text


def compiled(text: str, options: list[str], names: list[str], headers: dict[str, str]) -> tuple[bytes, str]:
    """The shared object's bytes and what the compiler said. CompileError with its message."""
    compiler = find_compiler()
    whole = kernel_text(text).with_table(names)
    with tempfile.TemporaryDirectory(prefix="gpuad-") as folder:
        source, target = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        source.write_text(f'#line 1 "kernel.cu"\n{whole}', encoding="utf-8")
        for name, header in headers.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(header, encoding="utf-8")
        kept = [option for option in options if option.startswith(_KEPT)]
        places = (f"-I{folder}", f"-I{INCLUDE}", f"-I{NATIVE}")
        command = (*compiler.command, *FLAGS, *DEFINES, "-include", str(_header(compiler)), *places, *kept, str(source), "-o", str(target))
        run = output(command)
        if run.returncode:
            raise CompileError(re.sub(rf"{re.escape(folder)}/", "", run.stderr[-8000:]))
        return target.read_bytes(), run.stderr


def kernels_folder() -> Path:
    """CuPy's folder for what is compiled for this device: one for each compiler and set of headers, of which it knows nothing."""
    compiler, sources = find_compiler(), sorted(NATIVE.rglob("*.h"))
    texts = [path.read_text(encoding="utf-8") for path in (*sources, Path(__file__), Path(__file__).with_name("kernel_text.py"))]
    return usable_folder() / f"cupy-{key_of(*texts, compiler.version, ' '.join(compiler.command))[:16]}"


@cache
def _header(compiler: Compiler) -> Path:
    """The header that every text begins with: the functions that CUDA has and C++ has not, as the executor of the CPU has them, and the
    language; in the compiler's own form where it has one."""
    pieces = functions()
    text = "\n".join((_LIBRARY, *(pieces[name] for name in _FUNCTIONS), f'}}\n#undef GPUAD_INLINE\n#include "{INCLUDE}/gpuad_device.h"\n'))
    read = text + "".join(path.read_text(encoding="utf-8") for path in sorted(NATIVE.rglob("*.h")))
    header = cached(key_of("cpu device header", read, str(INCLUDE)), ".hpp", partial(_written, text))
    if not compiler.is_gnu:
        return header
    key = key_of("cpu device header", read, str(INCLUDE), " ".join((*compiler.command, *FLAGS, *DEFINES)), compiler.version)
    try:
        return cached(key, ".hpp.gch", partial(_precompiled, compiler, header)).with_suffix("")
    except CompileError:
        return header


def _written(text: str, target: Path) -> None:
    target.write_text(text, encoding="utf-8")


def _precompiled(compiler: Compiler, header: Path, target: Path) -> None:
    flags = [flag for flag in FLAGS if flag != "-shared"]
    command = (*compiler.command, *flags, *DEFINES, "-x", "c++-header", str(header), "-o", str(target))
    run = output(command)
    if run.returncode:
        raise CompileError(f"{compiler.shown} precompiles no headers (exit status {run.returncode}){said(run)}")
