"""Stores the reverse of a recording as files that run without gpuad.

The recording is reversed on paper: the same walk through the versions as in `Tape.reverse`, but where a version would be handed out or put
together, it is written down where its bytes lie: in one of the caller's arrays, in a shadow, in the saved bytes. All texts and tables are
made before the first file is written, so what cannot be stored leaves nothing behind.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from .. import launching
from ..analysis.depth import depths
from ..annotations import address, leaf_memory, namespace, resolve
from ..codegen.cuda import cuda_source
from ..codegen.host.source import has_atomics, host_source
from ..codegen.host.widen import wrapping
from ..codegen.naming import identifier
from ..codegen.structure import written
from ..differentiate import Adjoint, Parameter
from ..errors import TapeError, UnsupportedError
from ..executors.base import Dim3, Memory
from ..executors.serial import serial
from ..ir.dtypes import dtype_of
from ..ir.nodes import Buffer, Kernel, Var
from ..ir.rewrite import walk_stmts
from ..ir.shared import dynamic_bytes
from ..launching import Call, Stage
from ..transform.barriers import waits
from ..transform.stack_layout import GROUP
from .arena import ALIGN, Arena
from .finder import VersionFinder
from .launch import Launched
from .memory import Allocation, Piece, Versions, gather, rows
from .operation import Foreign, Operation, Use
from .portable import Portable
from .recording import Recording
from .region import EMPTY, Region, of_array
from .rules import Ruled
from .stored import FORMAT, order_of

_NOTHING = ("saved", 0, 0, 0, 0)  # where an array without elements lies
_HALF = 1 << 31
_POOL = 512  # CuPy's allocations are rounded up to it
Place = tuple[Any, ...]  # (kind, number, byte offset[, begin and bytes of a saved piece]), ("scalar", dtype, bytes in hex), or ("null",)


def save(recording: Recording, folder: Any, names: Mapping[str, Any]) -> None:
    """Writes the files; TapeError, and nothing is written, if an operation cannot be stored."""
    files = _Store(recording, names).files()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)


@dataclass(eq=False)
class _Room:
    """An allocation or a shadow: what the caller of the stored program has to bring. `live`: what is read of it as it is."""

    name: str
    root: Any  # flat
    dtype: str
    own: bool  # it belongs to the stored program
    live: Region = EMPTY
    clear: list[list[int]] = field(default_factory=list)
    layouts: list[tuple[tuple[int, ...], str]] = field(default_factory=list)  # shape and order, as it was seen whole

    def entry(self, places: _Places) -> dict[str, Any]:
        on_host = isinstance(self.root, np.ndarray)
        size = int(self.root.nbytes)
        packed = namespace(self.root).empty(self.live.nbytes, np.uint8)
        if self.live:
            gather(self.root.view(np.uint8), self.live, packed)
        return {
            "name": self.name, "nbytes": size, "least": size if on_host else max(size - _POOL + 1, 0), "dtype": self.dtype,
            "live": _runs(self.live), "sha256": _digest(_bytes_of(packed)), "clear": self.clear, "own": self.own,
            "content": places.stored(self.root) if self.own and self.live else None, "layouts": self.layouts,
        }  # fmt: skip


class _Places:
    """Names all memory that the program meets, and collects the bytes to be saved."""

    def __init__(self, recording: Recording, names: Mapping[str, Any]) -> None:
        self.recording = recording
        self.wanted = {address(resolve(getattr(a, "primal", a)).root): name for name, a in names.items()}
        self.rooms: dict[str, list[_Room]] = {"array": [], "shadow": []}
        self.by_address: dict[int, tuple[str, int]] = {}
        self.saved: list[bytes] = []
        self.saved_nbytes = 0
        self.known: dict[int, tuple[Any, int]] = {}  # by id: what is saved already, and where
        types, self.layouts = _dtypes(recording.operations), _layouts(recording.operations, names)
        for a in recording.allocations.values():
            plain = bool(names) and a.address not in recording.shadows.by_primal  # a constant that the caller has no name for
            own = (a.address in recording.own or plain) and a.address not in self.wanted
            self._add("array", self.wanted.get(a.address, a.name), a.root, types.get(a.address, "uint8"), own)
        unknown = [name for where, name in self.wanted.items() if where not in recording.allocations]
        if unknown:
            raise TapeError(f"`{unknown[0]}` is not memory of this recording")
        for pairs in recording.shadows.by_primal.values():
            for p in pairs:
                array = self.rooms["array"][self.by_address[p.allocation.address][1]]
                kind, number, _ = self.shadow(p.root, array.name, array.own)
                self.rooms[kind][number].layouts = array.layouts if p.root.size * p.size == array.root.nbytes else []
        for a in recording.allocations.values():
            for root, low, high in recording.shadows.written(a, a.cleared):
                kind, number, _ = self.shadow(root, a.name)
                size = int(root.dtype.itemsize)
                self.rooms[kind][number].clear.append([low * size, 0, (high - low) * size, 1])
        for operation in recording.operations:  # numbers of one name are counted as they were passed
            for name, shadow in _of_numbers(operation):
                self.shadow(shadow, name)

    def _add(self, kind: str, wish: str, root: Any, dtype: str, own: bool) -> None:
        where, size = address(root), int(root.nbytes)
        for other in (r for rooms in self.rooms.values() for r in rooms):
            begin = address(other.root)
            if size and other.root.nbytes and where < begin + other.root.nbytes and begin < where + size:
                raise TapeError(f"`{wish}` overlaps `{other.name}` without being a view of the same array; this cannot be stored")
        taken = {r.name for r in self.rooms[kind] if not r.own}
        if kind == "array" and where not in self.wanted:
            taken |= set(self.wanted.values())
        name = next(n for n in (wish, *(f"{wish}_{k}" for k in range(2, len(taken) + 3))) if n not in taken)
        self.by_address[where] = (kind, len(self.rooms[kind]))
        room = _Room(name, root, dtype, own or not size)  # nobody has to bring what has no bytes
        room.layouts = self.layouts.get(where, [])
        self.rooms[kind].append(room)

    def shadow(self, root: Any, wish: str, own: bool = False) -> tuple[str, int, int]:
        """Where a shadow lies, which is named now if it is new."""
        if address(root) not in self.by_address:
            self._add("shadow", wish, root, str(root.dtype), own)
        return (*self.by_address[address(root)], 0)

    def live(self, memory: Memory) -> Place:
        """A pointer into the caller's memory."""
        return (*self.by_address[address(memory.root)], memory.offset * int(memory.root.dtype.itemsize))

    def read(self, allocation: Allocation, region: Region) -> int:
        """Notes that a region is read live; the number of its array."""
        number = self.by_address[allocation.address][1]
        room = self.rooms["array"][number]
        room.live = room.live | region
        return number

    def saved_piece(self, piece: Piece) -> int:
        """Where in the saved bytes a piece lies, packed."""
        return self.stored(piece.data, piece.packed)

    def stored(self, data: Any, content: Any = None) -> int:
        """Where in the saved bytes an array of the recording lies, which is put there now if it is new; `content`: what is put there, if
        that is something else."""
        held = self.known.get(id(data))
        if held is None:
            held = self.known[id(data)] = (data, self.saved_nbytes)
            found = _bytes_of(data if content is None else content)
            found += bytes(-len(found) % ALIGN)
            self.saved.append(found)
            self.saved_nbytes += len(found)
        return held[1]


class _Plan(VersionFinder):
    """Finds versions as a reversal does, and writes down where they are."""

    def __init__(self, places: _Places) -> None:
        super().__init__(Arena(lambda n: np.zeros(n, np.uint8)), Versions())
        self.places = places
        self.rooms: list[dict[str, Any]] = []

    def place(self, use: Use, like: Memory, *, own: bool) -> Place:
        """As `memory`, as a place."""
        if not use.region:  # nothing is read there, and memory of no size may be none that the recording knows
            return self.places.live(like) if address(like.root) in self.places.by_address else _NOTHING
        sources = self.held.get(id(use)) or self.versions.sources(use.allocation, use.region)
        if not own and all(piece is None for _, piece in sources):
            self.places.read(use.allocation, use.region)
            return self.places.live(like)
        size = int(like.root.dtype.itemsize)
        if not own and len(sources) == 1:
            piece = sources[0][1]
            if piece is not None and len(piece.region.spans) == 1 and piece.region.low % size == piece.region.nbytes % size == 0:
                begin = self.places.saved_piece(piece)
                return "saved", 0, begin + like.offset * size - piece.region.low, begin, piece.region.nbytes
        low, high = use.region.low, use.region.high
        moves = [m for part, piece in sources for m in self.moves(use.allocation, part, piece, low)]
        self.rooms.append({"nbytes": high - low, "moves": moves})
        return "room", len(self.rooms) - 1, like.offset * size - low // size * size

    def moves(self, allocation: Allocation, part: Region, piece: Piece | None, shift: int) -> list[list[Any]]:
        """Copies that put a part where it belongs, in memory whose first byte is byte `shift` of the allocation."""
        begins, runs = part.spans[:, 0], part.spans[:, 1] - part.spans[:, 0]
        if piece is None:
            source: list[Any] = ["array", self.places.read(allocation, part)]
            return [[*source, *row] for row in _grouped(begins, begins - shift, runs)]
        starts = piece.region.spans[:, 0]
        offsets = np.concatenate([[0], np.cumsum(piece.region.spans[:, 1] - starts)])
        within = np.searchsorted(starts, begins, side="right") - 1
        packed = self.places.saved_piece(piece) + offsets[within] + begins - starts[within]
        return [["saved", 0, *row] for row in _grouped(packed, begins - shift, runs)]


class _Store:
    """The stored program while it is made."""

    def __init__(self, recording: Recording, names: Mapping[str, Any]) -> None:
        self.recording = recording
        self.places = _Places(recording, names)
        self.plan = _Plan(self.places)
        self.kernels: dict[int, Kernel] = {}  # under names of their own, by id of the recording's
        self.serials: dict[tuple[int, Dim3], Kernel] = {}  # those whose threads wait for one another, as the CPU runs them
        self.variants: dict[tuple[bool, bool], dict[str, Kernel]] = {}
        self.operations: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.portable = Portable(_names_of(_MACHINE.read_text(encoding="utf-8")))
        self.kept: list[Any] = []  # arrays that are stored, whose ids stay their own

    def files(self) -> dict[str, bytes]:
        """Names and contents of all files."""
        operations = self.recording.operations
        for time in range(len(operations) - 1, -1, -1):
            self.plan.reach(operations[time], time)
            self._operation(operations[time])
        if self.recording.restore:
            self._restore()
        cuda = cuda_source(list(self.kernels.values())).encode()
        host, texts, reason = self._host()
        entries = {kind: [r.entry(self.places) for r in rooms] for kind, rooms in self.places.rooms.items()}
        saved = b"".join(self.places.saved)
        program = {
            "format": FORMAT, "byteorder": sys.byteorder, "restores": self.recording.restore, "arrays": entries["array"],
            "shadows": entries["shadow"], "saved": {"nbytes": len(saved), "sha256": _digest(saved)},
            "cuda": {"file": "kernels.cu", "sha256": _digest(cuda)}, "host": host, "no_host": reason, "operations": self.operations,
        }  # fmt: skip
        table = json.dumps(program, indent=None, allow_nan=False).encode()
        return {**texts, "kernels.cu": cuda, "saved.bin": saved, "program.json": table, "program.py": self._program(table).encode()}

    def _operation(self, operation: Operation) -> None:
        if isinstance(operation, Launched):
            if operation.adjoint is not None:
                self._reverse(operation, operation.adjoint)
        elif isinstance(operation, Foreign):
            self._clear(operation)
        elif isinstance(operation, Ruled):
            self._rule(operation)
        else:
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release")

    def _note(self, entry: dict[str, Any], comment: str, function: str = "") -> None:
        given = f", {function}" if function else ""
        self.lines.append(f"    machine.run({len(self.operations)}{given})  # {' '.join(comment.split())}")
        self.operations.append(entry)

    def _clear(self, operation: Foreign) -> None:
        runs = []
        for view in operation.cleared:
            memory = leaf_memory(view)
            kind, number, _ = self.places.shadow(memory.root, "shadow")
            runs += [[kind, number, r] for r in _runs(of_array(view, memory.offset * int(memory.root.dtype.itemsize)))]
        self._note({"kind": "clear", "runs": runs}, operation.line())

    def _restore(self) -> None:
        for number, a in enumerate(self.recording.allocations.values()):
            self.plan.versions.back_to(a, 0)
            sources = self.plan.versions.sources(a, a.initial)
            moves = [m for part, piece in sources if piece is not None for m in self.plan.moves(a, part, piece, 0)]
            if moves:
                name = self.places.rooms["array"][number].name
                self._note({"kind": "restore", "array": number, "moves": moves}, f"{name} as it was before the recording")

    # --- rules -----------------------------------------------------------------------------------------------------------------------

    def _rule(self, operation: Ruled) -> None:
        self.plan.rooms = []
        moved = {n: self._view(s) for n in operation.rule.effect.overwrites if (s := operation.shadow_of(n)) is not None}
        reverse = operation.rule.reverse if operation.flows else None
        if reverse is None and not moved:
            return
        wanted = operation.rule.wanted if reverse is not None else ()
        arguments = {name: self._given(operation, name) for name in wanted}
        entry = {"kind": "rule", "moved": moved, "arguments": arguments, "rooms": self.plan.rooms}
        self._note(entry, operation.line(), self.portable.add(reverse) if reverse is not None else "None")

    def _given(self, operation: Ruled, name: str) -> list[Any]:
        """What a reverse gets for a parameter, as `Machine.given` reads it."""
        kind, value = operation.meaning(name)
        if kind == "version":
            return ["view", _layout(self.plan.place(operation.needs[name], resolve(value), own=False)[:3], value)]
        if kind == "shadow":
            return ["view", self._view(value)]
        if kind in ("room", "none"):
            return [kind]
        return ["moved", value] if kind == "moved" else self._written(value, operation, name)

    def _view(self, shadow: Any) -> dict[str, Any]:
        memory = leaf_memory(shadow)
        kind, number, _ = self.places.shadow(memory.root, "shadow")
        return _layout((kind, number, memory.offset * int(memory.root.dtype.itemsize)), shadow)

    def _written(self, value: Any, operation: Ruled, name: str) -> list[Any]:
        """A value as the table has it. One of a type that only looks like these (an Enum, a masked array) may mean something else."""
        kind = type(value)
        if value is None:
            return ["none"]
        if isinstance(value, np.generic) and kind.__module__ == "numpy":
            return ["scalar", str(value.dtype), value.tobytes().hex()]
        if kind in (bool, int, str):
            return ["value", value]
        if kind is float:
            return ["float", value.hex()]
        if kind is complex:
            return ["complex", value.real.hex(), value.imag.hex()]
        if kind in (tuple, list):  # which of the two decides what an index means
            return [kind.__name__, [self._written(v, operation, name) for v in value]]
        if hasattr(value, "strides") and value.dtype.kind in "biufc" and kind is namespace(value).ndarray:
            dense = namespace(value).ascontiguousarray(value)
            self.kept.append(dense)
            return ["constant", self.places.stored(dense), str(value.dtype), [int(n) for n in value.shape]]
        raise TapeError(
            f"operation {operation.name} ({operation.where}) cannot be stored: its reverse is given `{name}`, a {kind.__name__}"
        )

    # --- launches --------------------------------------------------------------------------------------------------------------------

    def _reverse(self, operation: Launched, adjoint: Adjoint) -> None:
        if operation.call.bound.width != 1:
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: it has a batch of shadows")
        if any(a.pieces or (a.array is not None and a.array.dtype.names) for a in operation.call.bound.arguments):
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: it takes structs")
        for stage in launching.stages(adjoint, operation.call):
            if stage.fixed is not None:
                what = "its sums are formed in fixed point (gpuad.deterministic)"
                raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: {what}")
            self._launch(operation, adjoint, stage)

    def _launch(self, operation: Launched, adjoint: Adjoint, stage: Stage) -> None:
        call, kernel = operation.call, stage.kernel
        scratch, held, overflow = _scratch(operation, adjoint)
        self.plan.rooms = []
        numbers = [stage.numbers.get((p.role, p.position)) for p in stage.parameters]
        given = [
            self._argument(p, operation, held, overflow) if number is None else _scalar(np.int32(number))
            for p, number in zip(stage.parameters, numbers, strict=True)
        ]
        named = self._named(kernel)
        variant = self._variant(kernel, given, scratch, (stage.grid or call.grid, call.block))
        on_host, host_block = self._on_host(kernel, call.block)
        self.variants.setdefault(variant, {})[on_host.name] = on_host
        arguments = [place[:3] for place in given]
        shown = ", ".join(self._shown(p, a) for p, a in zip(stage.parameters, arguments, strict=True))
        grid = stage.grid or call.grid
        entry = {
            "kind": "launch", "kernel": named.name, "grid": [int(n) for n in grid], "block": [int(n) for n in call.block],
            "shared_mem": max(int(call.shared_mem), dynamic_bytes(kernel)), "exact": call.exact, "host": list(self.variants).index(variant),
            "host_kernel": on_host.name, "host_block": [int(n) for n in host_block], "serial": has_atomics(on_host),
            "rooms": self.plan.rooms, "scratch": scratch, "overflow": overflow, "arguments": arguments,
        }  # fmt: skip
        self._note(entry, f"{named.name}[{tuple(grid)}, {tuple(call.block)}]({shown})  {operation.where}")

    def _argument(self, p: Parameter, operation: Launched, scratch: Mapping[Buffer, int], overflow: int | None) -> Place:
        call = operation.call
        argument = call.bound.arguments[p.position] if p.role in ("primal", "entry", "working") else None
        if argument is not None:
            if p.role == "primal" and not argument.is_pointer:
                return _scalar(argument.value)
            if argument.memory is None:
                return ("null",)
            use = operation.uses.get((p.role, p.position))
            if use is None and p.role != "primal":
                return ("null",)
            return self.places.live(argument.memory) if use is None else self.plan.place(use, argument.memory, own=p.role == "working")
        match p.role:
            case "offset":
                return _scalar(np.int64(call.offsets()[p.position]))
            case "shadow":
                return self._shadow(call, p.position)
            case "log":
                log = operation.logs[p.position]
                begin = self.places.stored(log.root)
                return "saved", 0, begin + log.offset * int(log.root.dtype.itemsize), begin, log.root.nbytes
            case "overflow":
                return "scratch", overflow, 0
            case "base" | "field":
                assert isinstance(p.item, Buffer)
                return "scratch", scratch[p.item], 0
        raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: parameter {p.role}")

    def _shadow(self, call: Call, position: int) -> Place:
        memory = launching.shadow_of(call, position, 0)
        if memory is None:
            return ("null",)
        kind, number, _ = self.places.shadow(memory.root, call.bound.arguments[position].name)
        return kind, number, memory.offset * int(memory.root.dtype.itemsize)

    def _named(self, kernel: Kernel) -> Kernel:
        """The kernel under a name that no other has."""
        if id(kernel) not in self.kernels:
            self.kernels[id(kernel)] = replace(kernel, name=self._free_name(kernel.name))
        return self.kernels[id(kernel)]

    def _on_host(self, kernel: Kernel, block: Dim3) -> tuple[Kernel, Dim3]:
        """What runs on a CPU, and with which blocks: as in the executor, a block of threads that wait for one another is one thread."""
        if not waits(kernel.body):
            return self._named(kernel), block
        key = id(kernel), block
        if key not in self.serials:
            name = self._free_name(f"{self._named(kernel).name}_in_blocks_of_{'_'.join(map(str, block))}")
            self.serials[key] = replace(serial(kernel, block), name=name)
        return self.serials[key], (1, 1, 1)

    def _free_name(self, name: str) -> str:
        taken = {identifier(k.name) for k in (*self.kernels.values(), *self.serials.values())}
        base = identifier(name)
        return next(n for n in (base, *(f"{base}_{k}" for k in range(2, len(taken) + 3))) if n not in taken)

    def _variant(
        self, kernel: Kernel, given: Sequence[Place], scratch: Sequence[dict[str, Any]], shape: tuple[Dim3, Dim3]
    ) -> tuple[bool, bool]:
        """Which text for the CPU fits, by the same judgement as that of the executor: (wide, apart)."""
        changed = {written(s) for s in walk_stmts(kernel.body)}
        met: dict[Place, list[bool]] = {}
        wide = True
        numbers: dict[Var, int] = {}
        for item, place in zip(kernel.params, given, strict=True):
            if isinstance(item, Var):
                if item.type.is_integer:
                    numbers[item] = int(np.frombuffer(bytes.fromhex(place[2]), place[1])[0])
                wide = wide and not (str(item.type) == "uint32" and numbers[item] >= _HALF)
            elif place[0] != "null":
                wide = wide and self._nbytes(place, scratch) < _HALF * item.element.size
                met.setdefault((*place[:2], *place[3:4]), []).append(item in changed)  # each saved piece is memory of its own
        wide = wide and not wrapping(kernel).wraps(*shape, numbers)
        return wide, not any(len(writes) > 1 and any(writes) for writes in met.values())

    def _nbytes(self, place: Place, scratch: Sequence[dict[str, Any]]) -> int:
        match place[0]:
            case "saved":
                return int(place[4])
            case "room":
                return int(self.plan.rooms[place[1]]["nbytes"])
            case "scratch":
                return int(scratch[place[1]]["length"]) * int(np.dtype(scratch[place[1]]["dtype"]).itemsize)
        return int(self.places.rooms[place[0]][place[1]].root.nbytes)

    def _shown(self, p: Parameter, place: Place) -> str:
        match place[0]:
            case "scalar":
                return str(np.frombuffer(bytes.fromhex(place[2]), place[1])[0])
            case "array":
                return self.places.rooms["array"][place[1]].name
            case "shadow":
                return f"d{self.places.rooms['shadow'][place[1]].name}"
            case "saved" | "room":
                return f"{'saved' if place[0] == 'saved' else 'assembled'} {p.item.name}"
        return str(p.item.name)

    # --- texts -----------------------------------------------------------------------------------------------------------------------

    def _host(self) -> tuple[list[dict[str, Any]], dict[str, bytes], str]:
        """The texts for the CPU, one a variant, or why there are none."""
        table, texts = [], {}
        try:
            for number, ((wide, apart), kernels) in enumerate(self.variants.items()):
                name = f"kernels{number + 1 if number else ''}.cpp"
                texts[name] = host_source(list(kernels.values()), wide, apart, crew=True).encode()
                defines = ["-DGPUAD_RESTRICT=__restrict__"] if apart else []
                table.append({"file": name, "sha256": _digest(texts[name]), "defines": defines})
        except UnsupportedError as error:
            for operation in self.operations:
                operation.update({"host": None} if operation["kind"] == "launch" else {})
            return [], {}, str(error)
        return table, texts, ""

    def _program(self, table: bytes) -> str:
        listed = {kind: ", ".join(f"{r.name} ({r.root.nbytes} B)" for r in rooms if not r.own) for kind, rooms in self.places.rooms.items()}
        rules = "\n".join(self.portable.lines())
        return (
            _MACHINE.read_text(encoding="utf-8")
            + (f"{_RULES}{rules}" if rules else "")
            + _TAIL.format(digest=_digest(table), arrays=_quoted(listed["array"]), shadows=_quoted(listed["shadow"]))
            + "".join(f"{line}\n" for line in self.lines)
        )


_MACHINE = Path(__file__).with_name("stored.py")
_RULES = """

# --- the reverses of rules ---------------------------------------------------------------------------------------------------------------

"""
_TAIL = '''

# --- the program -------------------------------------------------------------------------------------------------------------------------

DIGEST = "{digest}"  # of program.json
ARRAYS = {arrays}
SHADOWS = {shadows}


def clear(arrays: Mapping[str, Any], shadows: Mapping[str, Any]) -> None:
    """Sets the shadows of all that the program writes to 0: do this before the seeds are put in."""
    Machine(DIGEST, arrays, shadows).clear()


def reverse(arrays: Mapping[str, Any], shadows: Mapping[str, Any], saved: Any = None) -> None:
    """Runs the adjoints from the last operation to the first, on the shadows as they are.

    `arrays`: by the names in ARRAYS, the whole allocations as they were when the recording ended. `shadows`: by the names in SHADOWS; seeds
    go in, gradients come out. `saved`: the bytes of saved.bin (flat uint8), which are read if none are given. Raises StoredError, and no
    shadow was touched, if anything is not what it has to be.
    """
    machine = Machine(DIGEST, arrays, shadows, saved)
    machine.check()
'''


def _quoted(text: str) -> str:
    return json.dumps(text)


# --- tables ------------------------------------------------------------------------------------------------------------------------------


def _scratch(operation: Launched, adjoint: Adjoint) -> tuple[list[dict[str, Any]], dict[Buffer, int], int | None]:
    """Arrays that the reverse kernel's stacks need (element i is i * step), by parameter, and the number of the overflow flag."""
    layout, call = adjoint.layout, operation.call
    if not layout.scratch:
        return [], {}, None
    found: list[dict[str, Any]] = []
    held: dict[Buffer, int] = {}
    groups = -(-call.threads // GROUP)
    bounds = adjoint.facts.get(("depths", call.key), lambda: depths(adjoint.unlaid, call.numbers(adjoint.primal)))
    for scratch in layout.scratch:
        depth = bounds.get(scratch.stack)
        if depth is None:
            raise TapeError(
                f"operation {operation.name} ({operation.where}) cannot be stored in this release: how deep its stacks get depends on data"
            )
        held[scratch.base] = len(found)
        found.append({"dtype": "int64", "length": groups + 1, "step": GROUP * int(depth)})
        for array in scratch.fields:
            held[array] = len(found)
            length = max(GROUP * int(depth) * groups, 1)
            found.append({"dtype": str(dtype_of(array.element)), "length": length, "step": 0})
    return [*found, {"dtype": "int32", "length": 1, "step": 0}], held, len(found)


def _of_numbers(operation: Operation) -> Iterator[tuple[str, Any]]:
    """The shadows (flat) of the numbers that an operation is given, by the names of its parameters."""
    if isinstance(operation, Ruled) and operation.flows:
        yield from ((name, leaf_memory(active.shadow).root) for name, active in operation.actives.items())
    elif isinstance(operation, Launched) and operation.adjoint is not None:
        yield from ((a.name, shadow.root) for a in operation.call.bound.arguments if not a.is_pointer for shadow in a.shadows)


def _dtypes(operations: Iterable[Operation]) -> dict[int, str]:
    """The element type of each allocation, by its address."""
    launched = [op for op in operations if isinstance(op, Launched)]
    memories = [a.memory for op in launched for a in op.call.bound.arguments if a.memory is not None]
    found: dict[int, str] = {}
    memories += [o.memory for op in operations if isinstance(op, Ruled) for o in op.operands.values()]
    for memory in memories:
        found.setdefault(address(memory.root), str(memory.root.dtype))
    for op in operations:
        for use in op.effects.writes if isinstance(op, Foreign) else ():
            found.setdefault(use.allocation.address, str(use.allocation.root.dtype))
    return found


def _layouts(operations: Iterable[Operation], names: Mapping[str, Any]) -> dict[int, list[tuple[tuple[int, ...], str]]]:
    """How the arrays are laid out that are all of an allocation, by its address: shape, and 'C' or 'F'."""
    found: dict[int, dict[tuple[tuple[int, ...], str], None]] = {}
    named = (getattr(a, "primal", a) for a in names.values())
    met = ((memory, array) for operation in operations for memory, array in _arrays_of(operation))
    for memory, array in chain(met, ((resolve(array), array) for array in named)):
        order = order_of(array)
        if order and array.nbytes == memory.root.nbytes:
            found.setdefault(address(memory.root), {})[tuple(map(int, array.shape)), order] = None
    return {where: list(layouts) for where, layouts in found.items()}


def _arrays_of(operation: Operation) -> Iterator[tuple[Memory, Any]]:
    if isinstance(operation, Launched):
        yield from ((a.memory, a.array) for a in operation.call.bound.arguments if a.memory is not None and a.array is not None)
    elif isinstance(operation, Ruled):
        yield from ((o.memory, o.array) for o in operation.operands.values())


def _layout(place: Sequence[Any], array: Any) -> dict[str, Any]:
    """Where an array lies and how."""
    shape, strides = ([int(n) for n in numbers] for numbers in (array.shape, array.strides))
    return {"place": list(place), "dtype": str(array.dtype), "shape": shape, "strides": strides}


def _names_of(text: str) -> dict[str, str | None]:
    """The global names of a module's text, and the module where one is imported."""
    found: dict[str, str | None] = dict.fromkeys(("DIGEST", "ARRAYS", "SHADOWS", "clear", "reverse"))
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Import):
            found.update({a.asname or a.name: a.name for a in statement.names})
        elif isinstance(statement, ast.ImportFrom):
            found.update(dict.fromkeys(a.asname or a.name for a in statement.names))
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = None
        elif isinstance(statement, ast.Assign):
            found.update(dict.fromkeys(t.id for t in statement.targets if isinstance(t, ast.Name)))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = None
    return found


def _scalar(value: Any) -> Place:
    return "scalar", str(value.dtype), value.tobytes().hex()


def _runs(region: Region) -> list[list[int]]:
    """[low, stride, run, count] of evenly spaced runs."""
    return [[r.low, r.stride, r.run, r.count] for r in rows(region)] if region else []


def _grouped(sources: Any, targets: Any, runs: Any) -> list[list[int]]:
    """[source, step, target, stride, run, count]: runs as few groups evenly spaced on both sides."""
    found: list[list[int]] = []
    for source, target, run in zip(sources.tolist(), targets.tolist(), runs.tolist(), strict=True):
        if found and found[-1][4] == run:
            s, step, t, stride, _, count = found[-1]
            if count == 1:
                found[-1][1], found[-1][3], found[-1][5] = source - s, target - t, 2
                continue
            if (source, target) == (s + step * count, t + stride * count):
                found[-1][5] += 1
                continue
        found.append([source, 0, target, 0, run, 1])
    return found


def _bytes_of(array: Any) -> bytes:
    host: Any = array if isinstance(array, np.ndarray) else array.get()
    return bytes(host.tobytes())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
