"""Runs pieces of PTX: an instruction on vectors of operands, a body for the threads of a few blocks, or CUDA text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ptx import nvrtc
from ptx.launch import Kernel
from ptx.memory import Memory
from ptx.module import Loaded
from ptx.parser import Instruction
from ptx.types import dtype

TRIED: set[str] = set()  # the forms of instructions in PTX that tests have written themselves
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
_MOVED = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32", "s8": "b16", "u8": "b16", "pred": "pred"}
REGISTERS = """
    .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .f32 %f<20>; .reg .f64 %g<20>;"""


class Device:
    """Arrays in memory of their own, to which kernels get addresses."""

    def __init__(self) -> None:
        self.memory = Memory()

    def put(self, array: Any) -> np.uint64:
        """The array itself, on the device: kernels change it."""
        return np.uint64(self.memory.place(array.reshape(-1).view(np.uint8)).start)

    def launch(self, text: str, name: str, grid: Any, block: Any, args: Sequence[Any], shared_mem: int = 0) -> None:
        """Arrays among the arguments are put on the device."""
        loaded = Loaded(text, self.memory)
        if text.startswith(HEADER):
            TRIED.update(line.form for f in loaded.module.functions.values() for line in f.body if isinstance(line, Instruction))
        values = [self.put(a) if isinstance(a, np.ndarray) else a for a in args]
        Kernel(loaded, name)(np.atleast_1d(grid), np.atleast_1d(block), values, shared_mem)


def run(
    body: str, arrays: Sequence[Any], threads: int = 32, blocks: int = 1, declared: str = "", module: str = "", shared_mem: int = 0
) -> None:
    """A body of PTX for each thread. `%r0` is the number of the thread in the launch, `%r1` in its block; `%d0`, `%d1`, ... are addresses
    of the arrays."""
    params = ", ".join(f".param .u64 k_{n}" for n in range(len(arrays)))
    loads = "\n".join(f"    ld.param.u64 %d{n}, [k_{n}];" for n in range(len(arrays)))
    text = f"""{HEADER}{module}
.visible .entry k({params})
{{{REGISTERS}
{declared}
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r0, %r2, %r3, %r1;
{loads}
{body}
    ret;
}}"""
    Device().launch(text, "k", blocks, threads, arrays, shared_mem)


def evaluate(instruction: str, result: str, *operands: tuple[str, Any]) -> Any:
    """`instruction` (with `d` and `a`, `b`, `c`, `e` for its operands) on vectors of operands, given with their types."""
    names, count = "abce", max(np.size(values) for _, values in operands)
    arrays = [np.ascontiguousarray(np.broadcast_to(np.asarray(values, _stored(type_)), count)) for type_, values in operands]
    made = np.zeros(count, _stored(result))
    body, registers = [], {"d": _register("d", result)}
    for n, (type_, _) in enumerate(operands):
        registers[names[n]] = _register(names[n], type_)
        body.append(_address(n, _stored(type_).itemsize) + f"    ld.global.{_loaded(type_)} %{names[n]}, [%d30];")
    at = len(operands)
    body.append("    " + " ".join(f"%{w}" if w in registers else w for w in instruction.replace(",", " , ").replace(";", " ;").split()))
    if result == "pred":
        body.append("    selp.u32 %r20, 1, 0, %d;\n    cvt.u16.u32 %h0, %r20;\n" + _address(at, 1) + "    st.global.u8 [%d30], %h0;")
    else:
        body.append(_address(at, _stored(result).itemsize) + f"    st.global.{_loaded(result)} [%d30], %d;")
    guard = f"    setp.ge.u32 %p19, %r0, {count};\n    @%p19 bra END;\n"
    run(guard + "\n".join(body) + "\nEND:", [*arrays, made], 256, -(-count // 256), " ".join(registers.values()))
    return made


def _stored(type_: str) -> Any:
    return np.dtype(np.uint8) if type_ == "pred" else dtype(type_)


def _loaded(type_: str) -> str:
    return {"f16": "u16", "bf16": "u16", "f16x2": "u32", "bf16x2": "u32"}.get(type_, type_)


def _register(name: str, type_: str) -> str:
    return f".reg .{_MOVED.get(type_, type_)} %{name};"


def _address(n: int, size: int) -> str:
    return f"    mul.wide.u32 %d30, %r0, {size};\n    add.s64 %d30, %d30, %d{n};\n"


def cuda(text: str, name: str, grid: Any, block: Any, args: Sequence[Any], shared_mem: int = 0, options: tuple[str, ...] = ()) -> None:
    """CUDA text through NVRTC."""
    Device().launch(nvrtc.ptx(text, ("-std=c++17", *options))[0], name, grid, block, args, shared_mem)
