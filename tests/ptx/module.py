"""A module that is loaded: its variables have addresses, its functions are decoded.

Shared variables lie in a block's shared memory with gaps between them; the dynamic part, of a launch's size, lies behind. Each function has
a place of its own in every thread's local memory, and its parameters and those that it hands to others have places in rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import accesses, calls, conversions, floating, integers, moves, packed, warps  # noqa: F401  (they register their handlers)
from .faults import PtxError, Unknown
from .lanes import Coded, Step, decode
from .memory import PARAM_WINDOW, Memory
from .parser import Function, Module, Operand, Register, Variable, parse
from .program import Program, compiled
from .types import dtype

GAP = 64


@dataclass
class Code:
    """A function's steps, by block; of blocks that begin with a warp operation its mask, of those that end in a table of branches the
    choice. `watched`: registers that may be read before they are written."""

    program: Program
    steps: list[list[Step]]
    meetings: list[str]
    masks: dict[int, Callable[..., Any]]
    choices: dict[int, Callable[..., Any]]
    watched: frozenset[str]
    entry_places: dict[str, tuple[int, int]]  # of a kernel's parameters: where they begin, and bytes
    handed_places: dict[str, tuple[int, int]]  # of those handed to functions and back
    handed_size: int


def _laid_out(variables: list[Variable], begin: int = 0, gap: int = 0) -> tuple[dict[str, int], int]:
    """Where each begins, and where the last ends."""
    places, at = {}, begin
    for variable in variables:
        at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
        places[variable.name] = at
        at += variable.size + gap
    return places, at


class Loaded:
    """`memory` holds the variables of the module's global and constant space, each an allocation. `placed`: those that are there already,
    by name."""

    def __init__(self, text: str, memory: Memory, placed: dict[str, int] | None = None) -> None:
        self.module: Module = parse(text)
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.memory = memory
        self.addresses: dict[str, int] = dict(placed or {})
        for variable in self.module.variables.values():
            if variable.space != "shared" and variable.name not in self.addresses:
                self.addresses[variable.name] = memory.place(initial(variable), variable.name).start
        self.codes: dict[str, Code] = {}
        self._lay_out()

    def _lay_out(self) -> None:
        everywhere = [*self.module.variables.values(), *(v for f in self.module.functions.values() for v in f.variables)]
        static = [v for v in everywhere if v.space == "shared" and v.size]
        self.shared, end = _laid_out(static, 0, GAP)
        self.dynamic_begin = -(-end // 16) * 16
        self.shared |= {v.name: self.dynamic_begin for v in everywhere if v.space == "shared" and not v.size}
        self.static_shared = [(self.shared[v.name], v.size) for v in static]
        self.has_dynamic = any(v.space == "shared" and not v.size for v in everywhere)
        self.local, self.local_size = _laid_out([v for v in everywhere if v.space == "local"])

    def code(self, name: str) -> Code:
        """A function, decoded."""
        if name not in self.codes:
            function = self.module.functions.get(name)
            if function is None or not function.has_body:
                raise Unknown(f"function {name}")
            self.codes[name] = _Scope(self, function).code()
        return self.codes[name]


def initial(variable: Variable) -> Any:
    """The bytes of a variable as a module begins with them."""
    word = dtype(variable.type)
    data = np.zeros(-(-max(variable.size, 1) // 16) * 16, np.uint8)
    mask = (1 << 8 * word.itemsize) - 1
    for k, value in enumerate(variable.values):
        if isinstance(value, str):
            raise Unknown(f"the address of {value} in {variable.name}")
        data[k * word.itemsize : (k + 1) * word.itemsize] = np.frombuffer((value & mask).to_bytes(word.itemsize, "little"), np.uint8)
    return data[: variable.size]


class _Scope:
    """What names in a function mean."""

    def __init__(self, loaded: Loaded, function: Function) -> None:
        self.loaded, self.function = loaded, function
        self.program = compiled(function)
        own = [v for v in function.variables if v.space == "param"]
        both = [*function.params, *function.results]
        entry, handed = (both, own) if function.is_entry else ([], [*both, *own])
        self.entry, _ = _laid_out(entry)
        self.handed, self.handed_size = _laid_out(handed)
        self.sizes = {v.name: v.size for v in (*entry, *handed)}

    def address(self, name: str) -> int:
        """Of a variable, in its own space; of a parameter whose address is taken."""
        for known in (self.loaded.shared, self.loaded.local, self.loaded.addresses):
            if name in known:
                return known[name]
        return self.parameter(name)

    def parameter(self, name: str) -> int:
        if name in self.entry:
            return self.entry[name]
        if name in self.handed:
            return PARAM_WINDOW + self.handed[name]
        raise Unknown(f"the name {name} in {self.function.name}")

    def is_read(self, operand: Operand) -> bool:
        return isinstance(operand, Register) and operand.name in self.program.read

    def code(self) -> Code:
        blocks = self.program.blocks
        watched = frozenset().union(*(b.undefined for b in blocks))
        meetings = [warps.meeting(b.instructions[0]) if b.waits else "" for b in blocks]
        try:
            steps = [[decode(i, self) for i in b.instructions] for b in blocks]
        except PtxError as error:
            raise type(error)(f"{self.function.name}: {error}") from error
        masks = {
            n: warps.mask_of(blocks[n].instructions[0], Coded(blocks[n].instructions[0], self))
            for n, m in enumerate(meetings)
            if m == "mask"
        }
        choices = {}
        for n, block in enumerate(blocks):
            if block.last is not None and block.last.opcode == "brx":
                choices[n] = Coded(block.last, self).source(0, "u32")
        places = ({name: (at, self.sizes[name]) for name, at in known.items()} for known in (self.entry, self.handed))
        return Code(self.program, steps, meetings, masks, choices, watched, *places, self.handed_size)
