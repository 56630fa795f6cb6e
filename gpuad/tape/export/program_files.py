"""Stores the reverse of a recording as files that run without gpuad.

The recording is reversed on paper: the same walk through the versions as in `Tape.reverse`, but where a version would be handed out or put
together, it is written down where its bytes lie: in one of the caller's arrays, in a shadow, in the saved bytes. All texts and tables are
made before the first file is written, so what cannot be stored leaves nothing behind.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ... import pipeline
from ...ad.stack_layout import GROUP
from ...analysis.trip_counts import depths
from ...arguments.arrays import leaf_memory, namespace, resolve
from ...codegen.cpu.source import has_atomics, host_source
from ...codegen.cpu.widen import wrapping
from ...codegen.cuda import cuda_source
from ...codegen.folded import written
from ...codegen.spelling import identifier
from ...errors import TapeError, UnsupportedError
from ...ir.dtypes import dtype_of
from ...ir.nodes import Buffer, Kernel, Var
from ...ir.rewrite import walk_stmts
from ...ir.shared import dynamic_bytes
from ...optimize.dead_code import waits
from ...pipeline import Call, Stage
from ...pipeline.derived_kernels import Adjoint
from ...pipeline.pattern import Parameter
from ...program.ir.region import of_array
from ...runtime.array_types import NdArray
from ...runtime.base import Dim3
from ...runtime.block_serialisation import serialise_blocks
from ..record.operations import Foreign, Operation
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..record.recording import Recording
from .file_places import Place, Places, Plan, digest, even_runs
from .function_text import Portable
from .standalone import FORMAT

_HALF = 1 << 31


def _unstorable(operation: Ruled, name: str, value: Any) -> TapeError:
    """The error for a value that may mean more than its numbers."""
    return TapeError(
        f"operation {operation.name} ({operation.where}) cannot be stored: its reverse is given `{name}`, a {type(value).__name__}"
    )


def save(recording: Recording, folder: Any, names: Mapping[str, Any]) -> None:
    """Writes the files; TapeError, and nothing is written, if an operation cannot be stored."""
    files = _Store(recording, names).files()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)


class _Store:
    """The stored program while it is made."""

    def __init__(self, recording: Recording, names: Mapping[str, Any]) -> None:
        self.recording = recording
        self.places = Places(recording, names)
        self.plan = Plan(self.places)
        self.kernels: dict[int, Kernel] = {}  # under names of their own, by id of the recording's
        self.serials: dict[tuple[int, Dim3], Kernel] = {}  # those whose threads wait for one another, as the CPU runs them
        self.variants: dict[tuple[bool, bool], dict[str, Kernel]] = {}
        self.partials: dict[Any, Any] = {}  # arrays in which threads keep numbers for others, by number, length and type
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
            "shadows": entries["shadow"], "saved": {"nbytes": len(saved), "sha256": digest(saved)},
            "cuda": {"file": "kernels.cu", "sha256": digest(cuda)}, "host": host, "no_host": reason, "operations": self.operations,
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
            runs += [[kind, number, r] for r in even_runs(of_array(view, memory.offset * int(memory.root.dtype.itemsize)))]
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
        if operation.rule.joint:
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored: it communicates with other processes")
        self.plan.rooms = []
        moved = {n: self._view(s) for n in operation.effect.overwrites if (s := operation.shadow_of(n)) is not None}
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
            if type(value) is not namespace(value).ndarray:
                raise _unstorable(operation, name, value)
            return ["view", _layout(self.plan.place(operation.needs[name], resolve(value), own=False)[:3], value)]
        if kind == "shadow":
            return ["view", self._view(value)]
        if kind in ("room", "none"):
            return [kind]
        return ["moved", value] if kind == "moved" else self._written(value, operation, name)

    def _view(self, shadow: NdArray) -> dict[str, Any]:
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
        raise _unstorable(operation, name, value)

    # --- launches --------------------------------------------------------------------------------------------------------------------

    def _reverse(self, operation: Launched, adjoint: Adjoint) -> None:
        if operation.call.bound.width != 1:
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: it has a batch of shadows")
        if any(a.pieces or (a.array is not None and a.array.dtype.names) for a in operation.call.bound.arguments):
            raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: it takes structs")
        for stage in pipeline.stages(adjoint, operation.call):
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
            case "partial":
                return self._partial(p, call)
            case "base" | "field":
                assert isinstance(p.item, Buffer)
                return "scratch", scratch[p.item], 0
        raise TapeError(f"operation {operation.name} ({operation.where}) cannot be stored in this release: parameter {p.role}")

    def _partial(self, p: Parameter, call: Call) -> Place:
        """An array of the program's own, for all launches of so many threads, since none needs it any more when it is done."""
        assert isinstance(p.item, Buffer)
        key = p.position, call.threads, p.item.element
        if key not in self.partials:
            self.partials[key] = call.executor.zeros(call.threads, dtype_of(p.item.element))
        return self.places.shadow(self.partials[key], p.item.name, own=True)

    def _shadow(self, call: Call, position: int) -> Place:
        memory = pipeline.shadow_of(call, position, 0)
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
            self.serials[key] = replace(serialise_blocks(kernel, block), name=name)
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
                texts[name] = host_source(list(kernels.values()), wide, apart, own_pool=True).encode()
                defines = ["-DGPUAD_RESTRICT=__restrict__"] if apart else []
                table.append({"file": name, "sha256": digest(texts[name]), "defines": defines})
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
            + _TAIL.format(digest=digest(table), arrays=_quoted(listed["array"]), shadows=_quoted(listed["shadow"]))
            + "".join(f"{line}\n" for line in self.lines)
        )


_MACHINE = Path(__file__).with_name("standalone.py")
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


def _layout(place: Sequence[Any], array: NdArray) -> dict[str, Any]:
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
