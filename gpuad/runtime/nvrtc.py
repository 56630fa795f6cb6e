"""Compiles CUDA text without a GPU, with NVRTC from its wheel, and reads what the result needs of a multiprocessor.

The library is found in site-packages (wheel `nvidia-cuda-nvrtc` for CUDA 13, `nvidia-cuda-nvrtc-cu12` for 12) or by the loader. The numbers
come from the cubin, an ELF file: shared memory from the size of a kernel's `.nv.shared` section, which from sm_90 on includes the KiB that
the system keeps for itself; registers, the stack frame and the greatest block from the attributes in `.nv.info`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import CompileError

_PATTERNS = ("libnvrtc.so.*", "nvrtc64_*_0.dll")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_REGISTERS, _FRAME_SIZE, _MAX_THREADS = 0x2F, 0x11, 0x05  # EIATTR codes
_SIZED = 0x04  # EIFMT code of an attribute with a value of any size
_SYSTEM_SHARED = 1024


@dataclass(frozen=True)
class Cubin:
    """Compiled code, and what the compiler said about it."""

    data: bytes
    log: str
    arch: str


@dataclass(frozen=True)
class Resources:
    """What one kernel needs: registers a thread, bytes of static shared memory a block, bytes of stack a thread; `max_threads` is the
    greatest block that it was compiled for."""

    registers: int
    shared_bytes: int
    local_bytes: int
    max_threads: int


@dataclass(frozen=True)
class _Section:
    name: str
    size: int
    data: bytes


def available() -> bool:
    """True if there is an NVRTC to compile with."""
    return _library() is not None


def version() -> str | None:
    """The release of NVRTC, such as "13.0"; None if there is none."""
    library = _library()
    if library is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def compile_cuda(text: str, arch: str = "sm_90", options: Sequence[str] = ()) -> Cubin:
    """Compiles the text for one architecture; CompileError with NVRTC's log if it is rejected, or if there is no NVRTC."""
    library = _library()
    if library is None:
        raise CompileError("there is no NVRTC: `pip install nvidia-cuda-nvrtc`, or nvidia-cuda-nvrtc-cu12 for CUDA 12")
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"gpuad.cu", 0, None, None))
    try:
        flags = [option.encode() for option in (f"-arch={arch}", "-std=c++17", *options)]
        status = library.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        log = _fetch(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if status:
            raise CompileError(f"NVRTC rejects generated code for {arch}: {_message(library, status)}\n{log}")
        return Cubin(_fetch(library, "CUBIN", program), log, arch)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def spilled(log: str) -> dict[str, int]:
    """Bytes of registers that each kernel stores to local memory, as the log of a compilation with `--ptxas-options=-v` tells."""
    entries = re.split(r"Compiling entry function '", log)[1:]
    found = {entry.partition("'")[0]: re.search(r"(\d+) bytes spill stores", entry) for entry in entries}
    return {name: int(match[1]) for name, match in found.items() if match}


def resources(cubin: Cubin | bytes) -> dict[str, Resources]:
    """What each kernel of the cubin needs, by name. CompileError if the bytes are no cubin."""
    sections = {s.name: s for s in _sections(cubin.data if isinstance(cubin, Cubin) else cubin)}
    names = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
    return {name: _of_kernel(name, sections) for name in names}


@dataclass(frozen=True)
class Limits:
    """What an architecture gives one block: registers, which it hands out to so many warps at a time, and bytes of shared memory, declared
    and with dynamic ones that the launch opts in for; and the registers that a thread can address."""

    block_registers: int = 65536
    warp_unit: int = 4
    thread_registers: int = 255
    shared_bytes: int = 48 * 1024
    opted_bytes: int = 48 * 1024


_LIMITS = {"sm_53": Limits(block_registers=32768), "sm_60": Limits(warp_unit=2), "sm_62": Limits(block_registers=32768)}
_OPTED = {
    "sm_70": 96,
    "sm_72": 96,
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_87": 163,
    "sm_89": 99,
    "sm_90": 227,
    "sm_100": 227,
    "sm_103": 227,
}
_LIMITS |= {arch: Limits(opted_bytes=kib * 1024) for arch, kib in {**_OPTED, "sm_110": 227, "sm_120": 99, "sm_121": 99}.items()}


def limits(arch: str) -> Limits:
    """The limits of an architecture such as "sm_90"; those that differ from the usual ones are those of the CUDA programming guide."""
    return _LIMITS.get(arch.replace("compute_", "sm_").rstrip("af"), Limits())


def launchable(needs: Resources, block_threads: int, arch: str = "sm_90", shared_mem: int = 0) -> bool:
    """True if a block of so many threads can run: it fits the registers and the shared memory. `shared_mem`: bytes of dynamic shared
    memory, for which the launch opts in where it takes that."""
    has = limits(arch)
    if not 0 < block_threads <= min(1024, needs.max_threads) or needs.registers > has.thread_registers:
        return False
    registers = -(-max(needs.registers, 1) * 32 // 256) * 256  # a warp gets registers in units of 256
    warps = -(-block_threads // 32)
    warps = -(-warps // has.warp_unit) * has.warp_unit
    fits = needs.shared_bytes <= has.shared_bytes and needs.shared_bytes + shared_mem <= max(has.shared_bytes, has.opted_bytes)
    return warps * registers <= has.block_registers and fits


@functools.cache
def _library() -> ctypes.CDLL | None:
    for path in _candidates():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None


def _candidates() -> Iterator[str]:
    for folder in sys.path:
        for package in ("cu13/lib", "cu13/bin/x86_64", "cuda_nvrtc/lib", "cuda_nvrtc/bin"):
            for pattern in _PATTERNS:
                found = glob.glob(os.path.join(glob.escape(folder), "nvidia", package, pattern))
                yield from sorted(path for path in found if "builtins" not in path)
    yield from _NAMES


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise CompileError(f"NVRTC fails: {_message(library, status)}")


def _message(library: ctypes.CDLL, status: int) -> str:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    text: bytes = library.nvrtcGetErrorString(status)
    return text.decode()


def _fetch(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _sections(data: bytes) -> list[_Section]:
    """The sections of a 64-bit little-endian ELF file."""
    if data[:4] != b"\x7fELF" or data[4:6] != b"\x02\x01":
        raise CompileError("the compiled code is no cubin")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<3H", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + k * entry) for k in range(count)]
    strings = _content(data, headers[names])
    return [_Section(_string(strings, h[0]), h[5], _content(data, h)) for h in headers]


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    no_bits = 8
    return b"" if header[1] == no_bits else data[header[4] : header[4] + header[5]]


def _string(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()


def _symbols(sections: dict[str, _Section]) -> list[str]:
    """The names of the symbols, by number."""
    table, strings = sections.get(".symtab"), sections.get(".strtab")
    if table is None or strings is None:
        return []
    return [_string(strings.data, struct.unpack_from("<I", table.data, at)[0]) for at in range(0, len(table.data), 24)]


def _attributes(section: _Section | None) -> Iterator[tuple[int, bytes]]:
    """The records of an `.nv.info` section: an attribute's code and its value."""
    data, at = section.data if section else b"", 0
    while at + 4 <= len(data):
        form, code, number = struct.unpack_from("<BBH", data, at)
        size = number if form == _SIZED else 0
        yield code, data[at + 4 : at + 4 + size] if form == _SIZED else data[at + 2 : at + 4]
        at += 4 + size


def _by_function(sections: dict[str, _Section], wanted: int) -> dict[str, int]:
    """The values of an attribute that functions have in the common `.nv.info`."""
    symbols = _symbols(sections)
    found = (struct.unpack("<II", value) for code, value in _attributes(sections.get(".nv.info")) if code == wanted)
    return {symbols[number]: amount for number, amount in found}


def _of_kernel(name: str, sections: dict[str, _Section]) -> Resources:
    shared = sections.get(f".nv.shared.{name}")
    system = _SYSTEM_SHARED if shared and ".nv.shared.reserved.0" in sections else 0
    most = 1024
    for code, value in _attributes(sections.get(f".nv.info.{name}")):
        if code == _MAX_THREADS and len(value) == 12:
            x, y, z = struct.unpack("<III", value)
            most = min(most, x * y * z)
    registers, frame = _by_function(sections, _REGISTERS)[name], _by_function(sections, _FRAME_SIZE).get(name, 0)
    return Resources(registers, (shared.size if shared else 0) - system, frame, most)
