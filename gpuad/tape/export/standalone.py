"""Runs a stored reverse program, without gpuad: with NumPy and a C++ compiler on the CPU, with CuPy on a GPU.

`tape.save(folder)` copies this text into `program.py` and puts `clear` and `reverse` behind it, the program itself, one line an operation.
What the lines need lies beside: `tape.json` (where each version of memory lies, what each launch is given), `kernels*.cpp` and
`kernels.cu`, `saved.bin` (bytes that the program overwrote). All of it is checked by its hash and its bounds before the first shadow is
touched, and so are the arrays: of what is read live, every byte has to be what it was when the recording ended.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
FORMAT = 3
SLOT = 8  # bytes of an argument
LIBRARIES: dict[tuple[str, ...], Any] = {}  # compiled texts
SHIPPED = ("array", "shadow", "saved")


class StoredError(ValueError):
    """A file or an array is not what the recording left."""


def require(holds: Any, message: str) -> None:
    if not holds:
        raise StoredError(message)


def read_checked(name: str, digest: str) -> bytes:
    """The file's bytes, if they are those that were stored."""
    require(Path(name).name == name, f"{name!r} is not a file of this folder")
    data = (FOLDER / name).read_bytes()
    require(hashlib.sha256(data).hexdigest() == digest, f"{name} has been changed since it was stored")
    return data


class Memory:
    """An array as flat bytes, and where it lies."""

    def __init__(self, array: Any) -> None:
        self.bytes = (array if array.flags.c_contiguous else array.T).reshape(-1).view(np.uint8)
        on_host = isinstance(array, np.ndarray)
        self.address = int((array.__array_interface__ if on_host else array.__cuda_array_interface__)["data"][0])
        self.nbytes = int(array.nbytes)
        self.library: Any = np if on_host else sys.modules["cupy"]  # whoever made the array has it

    def runs(self, low: int, stride: int, run: int, count: int) -> Any:
        """`count` runs of `run` bytes, `stride` apart, as a matrix."""
        inside = low >= 0 and run > 0 and count > 0 and stride >= 0 and low + stride * (count - 1) + run <= self.nbytes
        require(inside, f"bytes from {low} on are outside of an array of {self.nbytes} bytes")
        return self.library.lib.stride_tricks.as_strided(self.bytes[low:], (count, run), (stride, 1))

    def digest(self, rows: list[list[int]]) -> str:
        """The hash of some runs."""
        found = hashlib.sha256()
        for row in rows:
            part = self.runs(*row)
            found.update(np.ascontiguousarray(part if self.library is np else part.get()).tobytes())
        return found.hexdigest()


class Machine:
    """The program's memory. Making one checks all that is given; nothing has been written then."""

    def __init__(self, digest: str, arrays: Mapping[str, Any], shadows: Mapping[str, Any], saved: Any = None) -> None:
        program = json.loads(read_checked("program.json", digest))
        require(program.get("format") == FORMAT, "program.json is of another format")
        require(program["byteorder"] == sys.byteorder, "the program was stored on a machine with another byte order")
        self.program = program
        brought = {
            "array": [None if a["own"] else given(a, arrays, "array", program["restores"]) for a in program["arrays"]],
            "shadow": [None if s["own"] else given(s, shadows, "shadow", True) for s in program["shadows"]],
        }
        every = [m for memories in brought.values() for m in memories if m is not None]
        self.library: Any = every[0].library if every else np
        require(all(m.library is self.library for m in every), "some arrays are NumPy's, others CuPy's")
        check_disjoint(every)
        self.memory: dict[str, list[Memory]] = {"saved": [self.stored_bytes(saved)]}
        for kind, memories in brought.items():
            self.memory[kind] = [m or self.own(entry) for m, entry in zip(memories, program[f"{kind}s"], strict=True)]

    def own(self, entry: Any) -> Memory:
        """Memory of an array that the program made itself, with what is read of it."""
        memory = Memory(self.library.zeros(entry["nbytes"], np.uint8))
        if entry["content"] is not None:
            memory.bytes[...] = self.memory["saved"][0].runs(entry["content"], 0, entry["nbytes"], 1)[0]
        return memory

    def stored_bytes(self, saved: Any) -> Memory:
        entry = self.program["saved"]
        if saved is None:
            saved = np.frombuffer(bytearray(read_checked("saved.bin", entry["sha256"])), np.uint8)
        require(
            str(saved.dtype) == "uint8" and saved.ndim == 1 and saved.nbytes == entry["nbytes"], "`saved` is not the bytes of saved.bin"
        )
        memory = Memory(self.library.array(saved))  # a copy of our own, and aligned
        require(
            memory.digest([[0, 0, memory.nbytes, 1]] if memory.nbytes else []) == entry["sha256"], "`saved` is not the bytes of saved.bin"
        )
        return memory

    def check(self) -> None:
        """What is read live is as the recording left it, and the kernels are there."""
        for entry, memory in zip(self.program["arrays"], self.memory["array"], strict=True):
            message = f"`{entry['name']}` does not hold what it held when the recording ended, which the reverse needs"
            require(memory.digest(entry["live"]) == entry["sha256"], message)
        for operation in self.program["operations"]:
            if operation["kind"] == "launch":
                self.kernel(operation)
            elif operation["kind"] == "rule":
                for layout in layouts(operation):
                    if layout["place"][0] in self.memory:
                        self.view(layout, self.memory)

    def clear(self) -> None:
        """Sets the shadows of all that the program writes to 0."""
        for kind in ("array", "shadow"):
            for entry, memory in zip(self.program[f"{kind}s"], self.memory[kind], strict=True):
                for row in entry["clear"]:
                    memory.runs(*row)[...] = 0

    def run(self, number: int, function: Any = None) -> None:
        """Runs one operation; `function` is the reverse of a rule, if it has one."""
        operation = self.program["operations"][number]
        if operation["kind"] == "rule":
            self.rule(operation, function)
        elif operation["kind"] == "clear":
            for kind, k, row in operation["runs"]:
                self.memory[kind][k].runs(*row)[...] = 0
        elif operation["kind"] == "restore":
            self.move(operation["moves"], self.memory["array"][operation["array"]])
        else:
            self.launch(operation)

    def move(self, moves: list[Any], target: Memory) -> None:
        for kind, k, source, step, to, stride, run, count in moves:
            target.runs(to, stride, run, count)[...] = self.memory[kind][k].runs(source, step, run, count)

    def rooms(self, operation: Any) -> list[Memory]:
        """Versions that have to be put together."""
        rooms = [Memory(self.library.empty(room["nbytes"], np.uint8)) for room in operation["rooms"]]
        for room, memory in zip(operation["rooms"], rooms, strict=True):
            self.move(room["moves"], memory)
        return rooms

    def rule(self, operation: Any, function: Any) -> None:
        """Moves the shadows of what was overwritten, and calls the reverse."""
        places = {**self.memory, "room": self.rooms(operation)}
        moved = {}
        for name, layout in operation["moved"].items():
            shadow = self.view(layout, places)
            moved[name] = self.library.empty(shadow.shape, shadow.dtype)
            moved[name][...] = shadow
            shadow[...] = 0
        if function is not None:
            function(**{name: self.meant(entry, places, moved) for name, entry in operation["arguments"].items()})

    def meant(self, entry: list[Any], places: Mapping[str, list[Memory]], moved: Mapping[str, Any]) -> Any:
        """An argument of a reverse."""
        kind, *rest = entry
        if kind == "view":
            return self.view(rest[0], places)
        if kind == "constant":
            begin, dtype, shape = rest
            count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            return self.memory["saved"][0].bytes[begin : begin + count].view(dtype).reshape(shape).copy()
        if kind in ("tuple", "list"):
            parts = [self.meant(part, places, moved) for part in rest[0]]
            return tuple(parts) if kind == "tuple" else parts
        simple: dict[str, Any] = {
            "none": lambda: None, "value": lambda x: x, "moved": lambda name: moved[name], "float": float.fromhex,
            "complex": lambda a, b: complex(float.fromhex(a), float.fromhex(b)),
            "scalar": lambda dtype, text: np.frombuffer(bytes.fromhex(text), dtype)[0],
            "room": lambda: lambda shape, dtype: self.library.empty(shape, dtype),
        }  # fmt: skip
        return simple[kind](*rest)

    def view(self, layout: Any, places: Mapping[str, list[Memory]]) -> Any:
        """An array in the program's memory."""
        kind, number, offset = layout["place"]
        dtype, shape, strides = np.dtype(layout["dtype"]), tuple(layout["shape"]), tuple(layout["strides"])
        if 0 in shape:
            return self.library.empty(shape, dtype)
        memory = places[kind][number]
        steps = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
        low, high = offset + sum(min(s, 0) for s in steps), offset + sum(max(s, 0) for s in steps) + dtype.itemsize
        require(low >= 0 and high <= memory.nbytes, f"a view from byte {low} to {high} is outside of an array of {memory.nbytes} bytes")
        if self.library is np:
            return np.ndarray(shape, dtype, memory.bytes, offset, strides)
        first = offset % dtype.itemsize
        elements = memory.bytes[first : first + (memory.nbytes - first) // dtype.itemsize * dtype.itemsize].view(dtype)
        return self.library.lib.stride_tricks.as_strided(elements[(offset - first) // dtype.itemsize :], shape, strides)

    def launch(self, operation: Any) -> None:
        """Puts versions together, makes scratch, runs the kernel."""
        rooms = self.rooms(operation)
        scratch = [ascending(self.library, **s) for s in operation["scratch"]]
        places = {**self.memory, "room": rooms, "scratch": [Memory(s) for s in scratch]}
        values = [value(a, places) for a in operation["arguments"]]
        kernel = self.kernel(operation)
        if self.library is np:
            run_on_host(kernel, operation, values)
        else:
            if operation["shared_mem"] > 47 * 1024:  # with what is declared, more than a kernel gets without asking
                kernel.max_dynamic_shared_size_bytes = operation["shared_mem"]
            kernel(tuple(operation["grid"]), tuple(operation["block"]), tuple(values), shared_mem=operation["shared_mem"])
        overflow = operation["overflow"]
        require(
            overflow is None or not int(scratch[overflow or 0][0]), f"{operation['kernel']}: a stack overflowed; the shadows are undefined"
        )

    def kernel(self, operation: Any) -> Any:
        """The operation's compiled kernel."""
        if self.library is np:
            number = operation["host"]
            require(number is not None, f"{operation['kernel']} does not run on the CPU: {self.program['no_host']}")
            entry = getattr(host_library(self.program["host"][number]), f"gpuad_launch_{operation['host_kernel']}")
            entry.argtypes, entry.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_int
            return entry
        options = ("-std=c++17", "-fmad=false") if operation["exact"] else ("-std=c++17",)
        key = (str(FOLDER), self.program["cuda"]["sha256"], *options)
        if key not in LIBRARIES:
            text = read_checked("kernels.cu", self.program["cuda"]["sha256"]).decode()
            LIBRARIES[key] = self.library.RawModule(code=text, options=options)
        return LIBRARIES[key].get_function(operation["kernel"])


def given(entry: Any, arrays: Mapping[str, Any], kind: str, written: bool) -> Memory:
    """The caller's array for an allocation of the recording."""
    name = entry["name"]
    require(name in arrays, f"there is no {kind} `{name}`: needed are {entry['nbytes']} bytes of {entry['dtype']}")
    array = arrays[name]
    what = f"{kind} `{name}`"
    require(array.flags.c_contiguous or array.flags.f_contiguous, f"{what} is not contiguous")
    require(not written or getattr(array.flags, "writeable", True), f"{what} is read-only")
    fits = entry["least"] <= array.nbytes <= entry["nbytes"]
    require(fits, f"{what} has {array.nbytes} bytes, not {entry['nbytes']}: it has to be the whole allocation that was recorded")
    order, known = order_of(array), [order for shape, order in entry["layouts"] if tuple(shape) == tuple(array.shape)]
    require(not order or not known or order in known, f"{what} is in {order} order, but was in the other one when it was recorded")
    parts = {str(array.dtype), f"float{array.dtype.itemsize * 4}" if array.dtype.kind == "c" else ""}
    require(entry["dtype"] in parts, f"{what} is of {array.dtype}, not {entry['dtype']}")
    return Memory(array)


def order_of(array: Any) -> str:
    """'C' or 'F', or '' where that is the same, or neither."""
    orders = {"C": array.flags.c_contiguous, "F": array.flags.f_contiguous}
    return next(order for order in orders if orders[order]) if sum(map(bool, orders.values())) == 1 else ""


def check_disjoint(memories: list[Memory]) -> None:
    """No array may overlap another: none did in the recording."""
    spans = sorted((m.address, m.address + m.nbytes) for m in memories if m.nbytes)
    require(all(a[1] <= b[0] for a, b in pairwise(spans)), "two of the arrays and shadows overlap")


def layouts(operation: Any) -> list[Any]:
    """The views that a rule's reverse is given."""
    return [*operation["moved"].values(), *(entry[1] for entry in operation["arguments"].values() if entry[0] == "view")]


def ascending(library: Any, dtype: str, length: int, step: int) -> Any:
    """The numbers 0, step, 2 * step ..."""
    return library.zeros(length, dtype) if step == 0 else library.arange(0, length * step, step, dtype=dtype)


def value(argument: list[Any], places: Mapping[str, list[Memory]]) -> Any:
    """An argument as the kernel takes it: an address, or a scalar of its type."""
    if argument[0] == "null":
        return np.uint64(0)
    if argument[0] == "scalar":
        return np.frombuffer(bytes.fromhex(argument[2]), argument[1])[0]
    kind, k, offset = argument
    return np.uint64(places[kind][k].address + offset)


# --- on the CPU --------------------------------------------------------------------------------------------------------------------------

FLAGS = (
    "-O3", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-std=c++14",
    "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-w",
)  # fmt: skip
NO_GATHERS = (
    "-mtune-ctrl=^use_gather_2parts,^use_gather_4parts,^use_gather_8parts",
    "-mtune-ctrl=^use_gather_2parts,^use_gather_4parts,^use_gather",
    "-mtune-ctrl=^use_gather",
)
CAREFUL = ("-O2", "-fno-openmp-simd", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
CRASHED = ("internal compiler error", "PLEASE submit a bug report")


def run_on_host(entry: Any, operation: Any, values: list[Any]) -> None:
    """Calls a compiled kernel; each argument takes a slot of 8 bytes."""
    workers = 1 if operation["serial"] else cores()
    geometry = struct.pack("=7q", *operation["grid"], *operation["host_block"], workers)
    status = entry(geometry, b"".join(v.tobytes().ljust(SLOT, b"\0") for v in values))
    require(status == 0, f"{operation['kernel']} failed: " + ("more than 2^31 threads along an axis" if status == 1 else "out of memory"))


def cores() -> int:
    """The number in GPUAD_THREADS, else that of the cores which this process may use."""
    text = os.environ.get("GPUAD_THREADS")
    if text is not None:
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler() -> list[str]:
    """The command in CXX, else g++, clang++ or c++."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    found = next((path for path in map(shutil.which, ("g++", "clang++", "c++")) if path), None)
    require(found, "no C++ compiler: install g++ or clang++, or name one in the environment variable CXX")
    return [str(found)]


def options(command: list[str]) -> list[str]:
    """The options for a compiler. g++ 12 makes a memcpy of the copies in a loop, and reads an element anew after it was written; on x86 it
    makes wrong masks for gather instructions."""
    about = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    if "Free Software Foundation" not in about:
        return [*FLAGS]
    takes = (o for o in NO_GATHERS if subprocess.run([*command, o, "-E", "-x", "c++", os.devnull], capture_output=True).returncode == 0)
    return [*FLAGS, "-fno-tree-loop-distribute-patterns", *[*takes][:1]]


def compiled(command: list[str], rest: list[str]) -> Any:
    """What a compiler says; where it crashes itself, as g++ 12 does on some loops that it vectorises, with less skill."""
    run = subprocess.run([*command, *rest], capture_output=True, text=True, check=False)
    if run.returncode < 0 or (run.returncode and any(words in run.stderr for words in CRASHED)):
        run = subprocess.run([*command, *CAREFUL, *rest], capture_output=True, text=True, check=False)
    return run


def host_library(text: Any) -> Any:
    """A text for the CPU, compiled once a process."""
    key = (str(FOLDER), text["file"], text["sha256"])
    if key not in LIBRARIES:
        source = read_checked(text["file"], text["sha256"])
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path, target = Path(folder, "kernels.cpp"), Path(folder, "kernels.dll" if os.name == "nt" else "kernels.so")
            path.write_bytes(source)
            program = compiler()
            run = compiled([*program, *options(program)], [*text["defines"], str(path), "-o", str(target)])
            require(run.returncode == 0, f"{program[0]} rejects {text['file']}:\n{run.stderr[-4000:]}")
            LIBRARIES[key] = ctypes.CDLL(str(target))
    return LIBRARIES[key]
