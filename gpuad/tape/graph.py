"""A recorded program and its reverse, to be run again as a whole, without the Python that recorded them.

    tape.reverse({U: seed})                # the program has been recorded and reversed as ever
    graph = tape.graph({U: seed})
    for iteration in range(100):
        dk.fill(0)
        graph.launch()                     # the program and its reverse, on what the same arrays hold now

A graph repeats what the tape did to memory, at the same addresses: the launches of the program, what was saved on the way, the seeds, and
the adjoints. A state that has to be kept is written to where it is kept, not copied there (`tape.buffer_rotation`), and launches that
follow each other on the same threads are one launch where that is the same (`tape.launch_joining`). On a GPU all of it is one CUDA graph;
on a CPU it is a list of prepared calls. What is not array work is not repeated: numbers that were passed are constants, so are index
arrays and masks of array operations (`x[i]`, `take`, `put`, `scatter_add`; those that a kernel reads are not), and what Python would
decide by looking at results cannot be captured on a GPU, and is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..arguments.recorder import current
from ..errors import LaunchError, TapeError
from ..runtime.actions import Action, ByPython, copying, perform
from ..runtime.base import Executor
from .memory.change_detection import Watch
from .memory.staging import Staging
from .memory.streams import Streams
from .memory.versions import Allocation
from .record.operations import Foreign
from .record.trace import Op
from .replay.batching import batched
from .replay.launch_joining import Part, joined
from .reverse.reversal_plan import Plan


@dataclass(frozen=True, eq=False)
class Captured:
    """What a graph needs of its tape: the memory that its reverse reads live, the tape's streams, and a way to say that the tape's own
    recording is used up (which gives a token that is gone when the tape is used again). `exact_executor`: without contraction of products
    and sums; `sources`: the streams from which arrays that operations made have their memory."""

    allocations: Sequence[Allocation]
    streams: Streams
    executor: Executor
    exact_executor: Executor
    use_up: Callable[[], object]
    token: Callable[[], object]
    sources: Sequence[Any]


class Graph:
    """The forward and the reverse of a recording, for the arrays that it was recorded with. Made by `Tape.graph`."""

    def __init__(self, forward: Sequence[Part], reverse: Sequence[Part], plan: Plan, tape: Captured) -> None:
        forward, reverse = joined(forward, tape.exact_executor), joined(reverse, tape.exact_executor)
        self._parts: Mapping[str, Sequence[Part]] = {"forward": forward, "reverse": reverse, "whole": [*forward, *reverse]}
        self._tape = tape
        self._plan = plan
        self._made: dict[str, Action] = {}
        self._watch: Watch | None = None
        self._token: object = None
        self._launcher("whole")
        weakref.finalize(self, tape.streams.let_all_go, tape.sources).atexit = False

    def launch(self) -> None:
        """Runs the program and its reverse on what the arrays hold now: on a GPU on CuPy's current stream, after what was put into it.
        Shadows of what the program writes are cleared and get their seeds, as the seeds' arrays are now; shadows of what it only reads
        accumulate. Raises TapeError inside of a tape; LaunchError, on a CPU, where a launch is refused."""
        self._run("whole")

    def forward(self) -> None:
        """Runs the program alone, for seeds that depend on its result. `reverse` comes next."""
        self._run("forward")
        self._watch = Watch.of(self._tape.allocations)

    def reverse(self) -> None:
        """Runs the reverse of the last `forward`. Raises TapeError if there was none, if the tape was used since, or if memory that is
        needed was changed."""
        if self._watch is None or self._token is not self._tape.token():
            raise TapeError(
                "graph.reverse() comes after graph.forward(), with no other use of the tape between them. No shadow was touched."
            )
        self._watch.check()
        self._run("reverse")

    def __len__(self) -> int:
        """Number of launches, copies and clearings."""
        return len(self._parts["whole"])

    def explain(self) -> str:
        """What is done, in order, a line for each launch, copy or clearing, with the user's file and line. Operations that became one
        launch, and what is copied and cleared on the way, are in one line."""
        return "\n".join(f"{name}  # {where}" for _, name, where in self._parts["whole"])

    def _run(self, which: str) -> None:
        if current.get() is not None:
            raise TapeError("a graph inside of a tape would not be recorded: launch it outside")
        launcher = self._launcher(which)
        self._watch = None  # also if this fails: what was computed before is not what memory holds then
        self._token = self._tape.use_up()
        self._tape.streams.take_over(self._tape.executor)
        with self._plan.counted() if which != "forward" else nullcontext():
            launcher()

    def _launcher(self, which: str) -> Action:
        """What runs a part, captured now if it is the first time."""
        if which not in self._made:
            parts = self._parts[which]
            if self._tape.executor.stream() is None:
                actions = batched(action for action, _, _ in parts)
                self._made[which] = lambda: perform(actions)
            else:
                self._made[which] = self._captured(parts)
        return self._made[which]

    def _captured(self, parts: Sequence[Part]) -> Action:
        for action, name, where in parts:
            if isinstance(action, ByPython) and action.why:
                raise TapeError(f"operation {name} ({where}) cannot be captured in a graph: {action.why}. Nothing was run.")
        at = 0

        def run() -> None:
            nonlocal at
            for at, (action, _, _) in enumerate(parts):  # noqa: B007  # `at` says where it failed
                action()

        try:
            with self._tape.streams.quiet():
                return self._tape.executor.captured(run)
        except LaunchError as error:
            _, name, where = parts[at]
            raise TapeError(f"operation {name} ({where}) cannot be captured in a graph: {error}. Nothing was run.") from error


def forward_parts(ops: Sequence[Op], changed: Mapping[int, Sequence[Action]]) -> list[Part]:
    """The program, op by op; `changed`: the actions of some, by number. TapeError for one that is not the tape's."""
    found: list[Part] = []
    for number, op in enumerate(ops):
        key = op.key
        if key.what is Foreign:
            what = "code that the tape does not see would not run again"
            raise TapeError(
                f"tape.overwrites ({key.where}) cannot be part of a graph: {what}; make it a kernel or an operation of gpuad.ops"
            )
        if op.operation is None:
            continue
        name = str(getattr(key.what, "name", "temporary"))
        if op.check is not None:
            why = "before each launch it is checked whether two threads write to one element"
            found.append((ByPython(op.check, name, key.where, why), name, key.where))
        loads, stores = ([a for part in parts for a in part.captured(load)] for parts, load in ((op.loads, True), (op.stores, False)))
        found += [(action, name, key.where) for action in (*loads, *changed.get(number, op.actions), *stores)]
    return found


def reverse_parts(plan: Plan, seeds: Sequence[tuple[Any, Any]], staging: Staging, restore: bool) -> list[Part]:
    """The seeds, for each shadow its seed, and the reverse, between copies of shadows for which buffers stand."""
    return [
        *((action, "shadow", "reverse") for action in staging.captured(True, restore)),
        *((copying(shadow, seed), "seed", "reverse") for shadow, seed in seeds),
        *plan.parts,
        *((action, "shadow", "reverse") for action in staging.captured(False, restore)),
    ]
