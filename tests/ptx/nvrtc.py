"""CUDA text to PTX with NVRTC, from its wheel or where the loader finds it."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
from collections.abc import Sequence

ARCH = "compute_90"
CUPY = ("-ftz=true",)  # what CuPy adds to the options of every kernel


class CompileError(Exception):
    """NVRTC's log."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """NVRTC, or None where there is none."""
    found = [
        path
        for folder in sys.path
        for package in ("cu13", "cuda_nvrtc")
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "nvidia", package, "lib", "libnvrtc.so.*")))
        if "builtins" not in path and "static" not in path
    ]
    for path in (*found, "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


@functools.cache
def ptx(text: str, options: tuple[str, ...] = (), names: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
    """The PTX of a text, and the names in it of the given name expressions."""
    nvrtc = library()
    assert nvrtc is not None, "there is no NVRTC: pip install nvidia-cuda-nvrtc"
    program = ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    try:
        for name in names:
            _check(nvrtc, nvrtc.nvrtcAddNameExpression(program, name.encode()))
        flags = [o.encode() for o in (f"-arch={ARCH}", *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        if status:
            raise CompileError(_fetch(nvrtc, "ProgramLog", program))
        return _fetch(nvrtc, "PTX", program), {name: _lowered(nvrtc, program, name) for name in names}
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _lowered(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> str:
    found = ctypes.c_char_p()
    _check(nvrtc, nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(found)))
    return (found.value or b"").decode()


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        raise CompileError(f"NVRTC fails with status {status}")


def _fetch(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.value.decode(errors="replace")
