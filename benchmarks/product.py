"""What a stateful in-place rule costs beyond its primal: the product of a 16 x 32 and a 32 x 8 matrix into an existing 16 x 8 one.

The example is that of Mooncake's issue 403 (`mul!`), where keeping and restoring what the product overwrites, and adding to the gradients,
cost 1.24 times the primal. Here three parts are told apart: recording the product on a tape, adding to the gradients in the reverse, and
giving back the old result (`restore=True`); for the first program on a tape, and for later ones, which may not allocate. A program of one
operation is mostly the entering and leaving of a tape, so a program of `LOOP` products is timed too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import gpuad
from gpuad import Duplicated, Tape

from . import measure
from .allocations import counted
from .measure import Effort, Pieces

Record: TypeAlias = "dict[str, Any]"

M, K, N = 16, 32, 8
FLOOR = 64  # bytes; the planner's notes on an operation are smaller, the operands are a kilobyte and more
LOOP = 100  # products in the longer program
LATER = 3  # programs on a tape after which its memory is there
Operation: TypeAlias = "Callable[[Any, Any, Any], Any]"

PRIMALS: dict[str, Operation] = {
    "matmul": lambda a, b, c: np.matmul(a, b, out=c),
    "gemm": lambda a, b, c: np.add(c * 0.5, 2.0 * (a @ b), out=c),
}
RECORDED: dict[str, Operation] = {
    "matmul": lambda a, b, c: gpuad.ops.matmul(a, b, out=c),
    "gemm": lambda a, b, c: gpuad.ops.gemm(2.0, a, b, 0.5, c),
}


def measured(effort: Effort) -> dict[str, Record]:
    """For each operation, with and without restoring: microseconds of the primal, of recording beyond it and of the reverse, of the first
    program on a tape and of later ones, and the arrays that these allocate."""
    return {f"{name}{', restored' * restore}": _timed(name, restore, effort) for name in RECORDED for restore in (False, True)}


def _timed(name: str, restore: bool, effort: Effort) -> Record:
    run(name, Tape(restore=restore), operands())  # what the process does once, such as looking for a compiler, is not the tape's
    tape, pairs = Tape(restore=restore), operands()
    plain = [p.primal.copy() for p in pairs]

    def repetition() -> Pieces:
        primal = measure.seconds(lambda: PRIMALS[name](*plain))
        one, many = run(name, tape, pairs), run(name, tape, pairs, LOOP)
        return {"primal": primal, **one, **{f"loop_{part}": seconds / LOOP for part, seconds in many.items()}}

    first = repetition()
    later = measure.lower_medians(repetition, effort)
    return {
        "primal_us": _us(later["primal"]),
        **{f"first_{part}_us": _us(seconds) for part, seconds in _beyond(first).items()},
        **{f"{part}_us": _us(seconds) for part, seconds in _beyond(later).items()},
        "saved_bytes": tape.stats.saved_bytes,
        "first_allocations": allocations(name, restore, 0),
        "allocations": allocations(name, restore, LATER),
    }


def _beyond(pieces: Pieces) -> dict[str, float]:
    """Recording without the primal that it runs, and the reverse."""
    return {name: seconds - pieces["primal"] * name.endswith("record") for name, seconds in pieces.items() if name != "primal"}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def run(name: str, tape: Tape, pairs: tuple[Duplicated, ...], count: int = 1) -> Pieces:
    """The program of `count` operations: seconds of recording it and of its reverse."""
    record = measure.seconds(lambda: _recorded(name, tape, pairs, count))
    return {"record": record, "reverse": measure.seconds(lambda: tape.reverse({pairs[2]: 1.0}))}


def _recorded(name: str, tape: Tape, pairs: tuple[Duplicated, ...], count: int) -> None:
    with tape:
        for _ in range(count):
            RECORDED[name](*pairs)


def operands() -> tuple[Duplicated, ...]:
    """The matrices as pairs."""
    rng = np.random.default_rng(403)
    return tuple(Duplicated(rng.normal(size=shape), np.zeros(shape)) for shape in ((M, K), (K, N), (M, N)))


def allocations(name: str, restore: bool, after: int) -> int:
    """The arrays of `FLOOR` bytes or more that NumPy allocates while the program is recorded and reversed, on a tape that has run it
    `after` times; counted at NumPy's allocator."""
    pairs, tape = operands(), Tape(restore=restore)
    with counted() as made:
        for _ in range(after + 1):
            made.clear()
            run(name, tape, pairs)
    return made.of_at_least(FLOOR)
