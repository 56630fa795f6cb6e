"""The stand-in for CuPy (`fake_cupy`) with kernels that are compiled by NVRTC and executed as PTX (`ptx`).

A text is compiled with the options that CuPy adds, and loaded with its variables in device memory, as a GPU's driver does. Every allocation
is known with the bytes that were asked for; a kernel that leaves them is found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_cupy
import numpy as np
import pytest
from fake_cupy import Block, CompileException, CUDADriverError, Device, MemoryPointer, Stream, UnownedMemory, ndarray
from ptx import nvrtc
from ptx.launch import Kernel
from ptx.memory import Allocation, Memory
from ptx.module import Loaded, initial
from ptx.parser import parse

from gpuad import pipeline

OVER_BLOCKS = "gpuad_digest"  # reads memory by the block, to see whether anything in it has changed


class _DeviceMemory(Memory):
    """The allocations of the stand-in, looked up when a kernel is launched."""

    def renew(self, whole: bool) -> None:
        """Knows what is allocated now: the bytes that were asked for, or `whole` blocks of CuPy's pool."""
        blocks = {b.ptr: b for b in Block.known.values()}
        self.known = {
            ptr: Allocation(ptr, b.bytes[: b.size if whole else b.asked], f"an allocation of {b.asked} bytes") for ptr, b in blocks.items()
        }
        self.starts = sorted(self.known)


@cache
def headers() -> tuple[Path, ...]:
    """The folders of CuPy's own headers, where its wheel is."""
    found = (Path(folder, "cupy", "_core", "include") for folder in sys.path)
    include = next((folder for folder in found if (folder / "cupy" / "complex.cuh").exists()), None)
    return () if include is None else (include, *sorted(include.glob("cupy/_cccl/*/")))


def compiled(code: str, options: tuple[str, ...], names: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
    """The PTX, and the names in it of name expressions; CuPy's exception where NVRTC refuses the text. One with CuPy's own headers takes
    these from its wheel, which needs no GPU; a test that has none is skipped."""
    standard = () if any(o.lstrip("-").startswith("std") for o in options) else ("-std=c++17",)
    if "#include <cupy/" in code and not (found := headers()):
        pytest.skip("CuPy's headers are not here: pip install --no-deps cupy-cuda12x")
    own = tuple(f"-I{folder}" for folder in found) if "#include <cupy/" in code else ()
    try:
        return nvrtc.ptx(code, (*standard, *options, *own, *nvrtc.CUPY), names)
    except nvrtc.CompileError as error:
        raise CompileException(str(error)) from error


class _Library:
    """A text on the device: its variables in blocks of memory, its kernels."""

    def __init__(self, code: str, options: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.text, self.lowered = compiled(code, options, names)
        self.blocks: dict[str, Block] = {}
        for variable in parse(self.text).variables.values():
            if variable.space != "shared":
                self.blocks[variable.name] = block = Block(max(variable.size, 1))
                block.bytes[: variable.size] = initial(variable)
        self.memory = _DeviceMemory()
        self.loaded = Loaded(self.text, self.memory, {name: block.ptr for name, block in self.blocks.items()})

    def kernel(self, name: str) -> Kernel:
        name = self.lowered.get(name, name)
        if name not in self.loaded.module.functions:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return Kernel(self.loaded, name)


@cache
def _shared_library(code: str, options: tuple[str, ...], names: tuple[str, ...]) -> _Library:
    """For texts without variables that are written to, all kernels of which may be one."""
    return _Library(code, options, names)


class RawKernel(fake_cupy.RawKernel):
    """A kernel that is compiled from its text."""

    _library: _Library | None = None

    def library(self) -> _Library:
        if self._library is None:
            self._library = _shared_library(self.code, tuple(self.options), tuple(self._name_expressions or ()))
        return self._library

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None) -> None:
        kernel = self.library().kernel(self.name)
        allowed = min(self.max_dynamic_shared_size_bytes, Device.attributes["MaxSharedMemoryPerBlockOptin"])
        if shared_mem > allowed:
            raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes of shared memory, {allowed} allowed")
        chosen = stream or Stream.current
        captured = chosen.captured is not None
        values = [_bytes(arg) for arg in args]
        chosen.put(lambda: self.launched(kernel, grid, block, values, shared_mem, Stream.current if captured else chosen))

    def launched(self, kernel: Kernel, grid: Any, block: Any, values: list[Any], shared_mem: int, stream: Stream) -> None:
        stream.launches.append(self.name)
        memory = self.library().memory
        memory.renew(self.name.startswith(OVER_BLOCKS))
        kernel(grid, block, values, shared_mem)
        for allocation in memory.known.values():
            if allocation.loaded or allocation.stored:
                stream.touch(allocation.start, allocation.end, allocation.stored)


def _bytes(arg: Any) -> Any:
    """An argument as CuPy passes it."""
    if isinstance(arg, ndarray):
        return np.uint64(arg.data.ptr)
    if arg is None:
        return np.uint64(0)
    return arg if isinstance(arg, np.generic | np.ndarray) else np.asarray(arg)


class RawModule(fake_cupy.RawModule):
    """Several kernels of one text, and its variables."""

    def __init__(self, *, code: str | None = None, options: tuple[str, ...] = (), name_expressions: Any = None) -> None:
        self.code, self.options, self.name_expressions = code, tuple(options), name_expressions
        self._made: _Library | None = None

    def library(self) -> _Library:
        """Compiled when it is asked for, as CuPy does."""
        if self._made is None:
            assert self.code is not None
            names = tuple(self.name_expressions or ())
            has_variables = any(v.space != "shared" for v in parse(compiled(self.code, self.options, names)[0]).variables.values())
            make = _Library if has_variables else _shared_library
            self._made = make(self.code, self.options, names)
        return self._made

    def get_global(self, name: str) -> MemoryPointer:
        block = self.library().blocks.get(name)
        if block is None:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return MemoryPointer(UnownedMemory(block.ptr, 0, self), 0)

    def get_function(self, name: str) -> RawKernel:
        assert self.code is not None
        if "<" in name and name not in (self.name_expressions or ()):
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        library = self.library()
        library.kernel(name)
        kernel = RawKernel(self.code, library.lowered.get(name, name), self.options)
        kernel._library = library
        if self.name_expressions is not None:
            kernel._name_expressions = tuple(self.name_expressions)
        return kernel


def module() -> ModuleType:
    """A new module `cupy`."""
    cupy = fake_cupy.module()
    vars(cupy).update(RawKernel=RawKernel, RawModule=RawModule)
    return cupy


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """It as `cupy`."""
    made = module()
    monkeypatch.setitem(sys.modules, "cupy", made)
    pipeline._cuda.cache_clear()
    with fake_cupy.waited():
        yield made
    pipeline._cuda.cache_clear()
