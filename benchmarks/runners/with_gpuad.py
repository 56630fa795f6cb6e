"""gpuad: kernels of `kernels/` as CuPy users launch them, on NumPy or CuPy arrays.

A single launch goes through `autodiff`; a program of launches is recorded on a tape, where shadows that are known to be zero are assigned
and dead ones not cleared. What is said of bytes is counted at the executor: every kernel that a gradient launches is asked what it reads
and writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, Tape
from gpuad.arguments.arrays import address
from gpuad.ir.nodes import Accumulate, Atomic, How
from gpuad.ir.rewrite import walk_stmts
from gpuad.pipeline import executor_of
from gpuad.runtime.base import Memory
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.arena import Arena
from gpuad.tools.cases import kernel_folder

from ..allocations import counted
from ..measure import seconds
from ..problem import Arrays, Missing, Record
from ..workload import touched_bytes

KNOWN = 3  # times that a program has come when it is done as ever after
FLOOR = 64  # bytes; the planner's notes on an operation are smaller, the smallest field is larger


def kernel(file: str, name: str) -> gpuad.Kernel:
    """A kernel that ships."""
    return gpuad.kernel(kernel_folder() / file, name)


class _OnArrays:
    """Moves arrays to a library, waits for it, and tells of a gradient's bytes."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def put(self, array: Any) -> Any:
        """The array in the library's memory, one of its own."""
        return self.library.array(array)

    def get(self, array: Any) -> Any:
        """The array in NumPy's memory."""
        return array if self.library is np else array.get()

    def wait(self) -> None:
        """Until the device has done what it was asked for."""
        if self.library is not np:
            self.library.cuda.Device().synchronize()

    def memory(self) -> int:
        """Bytes that the library's pool holds on a device."""
        return 0 if self.library is np else int(self.library.get_default_memory_pool().total_bytes())

    def said(self, tape: Tape, run: Callable[[], Any], launches: Sequence[Launched]) -> Record:
        """What a tape and the executor say of one gradient; `run` computes it again on the tape, `launches` were noted before."""
        with counted() as made:
            run()
            self.wait()
        stats = tape.stats
        return {
            "saved_bytes": stats.saved_bytes,
            "kept_bytes": stats.saved_bytes + stats.needed_bytes,
            "assembled_bytes": stats.assembled_bytes,
            "arena_bytes": stats.arena_bytes,
            "shadow_bytes": stats.shadow_bytes,
            "held_bytes": stats.retained_bytes + stats.shadow_bytes + stats.saved_bytes,
            "allocations": made.of_at_least(FLOOR),
            **told(launches, 2 * (stats.saved_bytes + stats.assembled_bytes)),
        }


@dataclass(frozen=True)
class Launched:
    """A launch of a kernel that adds atomically to these shadows and moves so many bytes."""

    name: str
    atomic: list[str]
    moved: int


def told(launches: Sequence[Launched], more: int = 0) -> Record:
    """What launches amount to; `more`: bytes that are moved without a kernel."""
    kernels: dict[str, dict[str, int]] = {}
    for each in launches:
        entry = kernels.setdefault(each.name, {"launches": 0, "bytes": 0})
        entry["launches"] += 1
        entry["bytes"] += each.moved
    atomic = sorted({name for each in launches for name in each.atomic})
    return {"moved_bytes": sum(each.moved for each in launches) + more, "atomic": atomic, "kernels": kernels}


@contextlib.contextmanager
def launched(library: Any, tape: Tape | None = None) -> Iterator[list[Launched]]:
    """Within it every launch is noted. What lies in a tape's
    arenas is left out: a kernel sees a whole chunk of it, of which it uses a part, and the tape says itself how much it saves."""
    executor: Any = executor_of("numpy" if library is np else "cupy")
    noted: list[Launched] = []
    known: dict[int, tuple[Any, list[str]]] = {}

    def note(kernel: Any, args: Sequence[Any], grid: Any, block: Any) -> None:
        if id(kernel) not in known:
            known[id(kernel)] = kernel, _atomic(kernel)
        moved = touched_bytes(kernel, [None if _inside(arg, arenas()) else arg for arg in args], (grid, block))
        noted.append(Launched(kernel.name, known[id(kernel)][1], moved))

    def arenas() -> list[tuple[int, int]]:
        mine = [arena for arena in vars(recording_of(tape)).values() if isinstance(arena, Arena)] if tape is not None else []
        return [(address(chunk), address(chunk) + int(chunk.nbytes)) for arena in mine for chunk in arena.chunks]

    replaced = {name: getattr(executor, name) for name in ("launch", "prepared") if hasattr(executor, name)}

    def launch(kernel: Any, grid: Any, block: Any, args: Any, **keywords: Any) -> Any:
        note(kernel, args, grid, block)
        return replaced["launch"](kernel, grid, block, args, **keywords)

    def prepared(kernel: Any, grid: Any, block: Any, args: Any, **keywords: Any) -> Any:
        run = replaced["prepared"](kernel, grid, block, args, **keywords)

        def noting() -> Any:
            note(kernel, args, grid, block)
            return run()

        return noting

    for name, method in (("launch", launch), ("prepared", prepared)):
        if name in replaced:
            setattr(executor, name, method)
    try:
        yield noted
    finally:
        for name in replaced:
            delattr(executor, name)


def _set(target: Any, source: Any) -> None:
    target[...] = source


def _inside(arg: Any, chunks: Sequence[tuple[int, int]]) -> bool:
    return isinstance(arg, Memory) and any(begin <= address(arg.root) < end for begin, end in chunks)


def _atomic(kernel: Any) -> list[str]:
    found = (s for s in walk_stmts(kernel.body) if isinstance(s, Atomic) or (isinstance(s, Accumulate) and s.how is How.ATOMIC))
    return sorted({s.buffer.name for s in found if s.buffer.name.startswith("d")})


class Launch(_OnArrays):
    """One launch and its reverse by `autodiff`. `args`: names of inputs, numbers; `output`: the array that the kernel writes, new where it
    is no input: then `shape` is its shape."""

    def __init__(
        self, library: Any, file: str, name: str, grid: Any, block: Any, args: tuple[Any, ...], given: Arrays, active: Sequence[str],
        output: str, shape: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(library)
        self.file, self.name = file, name
        self.kernel, self.grid, self.block, self.active, self.output = kernel(file, name), grid, block, active, output
        before = given[output] if output in given else np.zeros(shape, np.float32)
        used = [arg for arg in args if isinstance(arg, str)]
        self.arrays = {arg: self.put(before if arg == output else given[arg]) for arg in used}
        self.before, self.seed = self.put(before), self.put(given["seed"])
        self.pairs = {n: Duplicated(self.arrays[n], self.library.zeros_like(self.arrays[n])) for n in {*active, output}}
        self.plain = tuple(self.arrays[arg] if isinstance(arg, str) else arg for arg in args)
        self.args = tuple(self.pairs.get(arg, self.arrays[arg]) if isinstance(arg, str) else arg for arg in args)

    def prepare(self) -> None:
        self.arrays[self.output][...] = self.before
        for name, pair in self.pairs.items():
            if name != self.output:
                pair.shadow.fill(0)
        self.pairs[self.output].shadow[...] = self.seed
        self.wait()

    def primal(self) -> None:
        self.kernel(self.grid, self.block, self.plain)
        self.wait()

    def gradient(self) -> None:
        gpuad.autodiff(self.kernel, self.grid, self.block, self.args)
        self.wait()

    def found(self) -> Arrays:
        return {name: self.get(self.pairs[name].shadow) for name in self.active}

    def about(self) -> Record:
        """Bytes, as a tape counts them that records the launch; it saves what the reverse needs, as `autodiff` does."""
        tape = Tape()

        def run() -> None:
            with tape:
                self.kernel[self.grid, self.block](*self.args)
            tape.reverse({self.pairs[self.output]: self.seed})

        self.prepare()
        run()
        said = self.said(tape, run, ())
        used, self.kernel = self.kernel, kernel(self.file, self.name)  # one that knows no launch yet: each is made anew, and noted
        self.prepare()
        with launched(self.library) as kernels:
            self.gradient()
        self.kernel = used
        return {**said, **told(kernels)}


class Steps(_OnArrays):
    """A program on a tape: `steps` launches from one field to the other and back. `step(v, u)` makes the launch that writes v from u.
    `copied`: a step writes only part of v, so both fields are set to the start first."""

    def __init__(self, library: Any, step: Callable[[Any, Any], None], steps: int, given: Arrays, copied: bool) -> None:
        super().__init__(library)
        self.step, self.steps, self.copied = step, steps, copied
        start = self.put(given["start"])
        self.start, self.seed = Duplicated(start, self.library.zeros_like(start)), self.put(given["seed"])
        self.fields = tuple(Duplicated(self.library.zeros_like(start)) for _ in range(2))
        self.tape, self.last = Tape(), self.start
        self.graph: Any = None
        self.seconds: dict[str, float] = {}

    def prepare(self) -> None:
        self.start.shadow.fill(0)
        self.wait()

    def _run(self, start: Any, fields: Sequence[Any], copy: Callable[[Any, Any], Any]) -> Any:
        v, other = fields
        u = start
        if self.copied:
            for field in fields:
                copy(field, start)
        for _ in range(self.steps):
            self.step(v, u)
            u, v = v, (other if u is start else u)
        return u

    def primal(self) -> Any:
        last = self._run(self.start.primal, [f.primal for f in self.fields], _set)
        self.wait()
        return last

    def gradient(self) -> None:
        self.seconds = {"record": seconds(self._record), "reverse": seconds(self._reverse)}

    def _record(self) -> None:
        with self.tape:
            self.last = self._run(self.start, self.fields, gpuad.ops.copyto)
        self.wait()

    def _reverse(self) -> None:
        self.tape.reverse({self.last: self.seed})
        self.wait()

    def found(self) -> Arrays:
        return {"start": self.get(self.start.shadow)}

    def about(self) -> Record:
        used, self.tape = self.tape, Tape()  # one that knows no program yet: each launch is made anew, and noted
        with launched(self.library, self.tape) as launches:
            for _ in range(KNOWN if self.library is np else 1):  # on a GPU, launches are noted of one of two executors only
                launches.clear()
                self.gradient()
        self.tape = used
        self.gradient()
        said = self.said(self.tape, self.gradient, launches)
        return {**said, **{f"{part}_ms": round(s * 1e3, 4) for part, s in self.seconds.items()}}

    def replay(self) -> None:
        """Forward and reverse as one graph, without Python's part, where this tape can do that."""
        if self.graph is None:
            make = getattr(self.tape, "graph", None)
            if make is None:
                raise Missing("no graphs")
            self._record()
            self._reverse()
            self.graph = make({self.last: self.seed})
            self.prepare()
        self.graph.launch()
        self.wait()
