"""The operations: their arrays, their wordings, and the cost of a gradient of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gpuad import Duplicated, api
from gpuad.ir.nodes import Accumulate, How, Kernel, Take
from gpuad.ir.rewrite import walk_stmts

from ..adjoints.operations import Launch
from ..adjoints.operations import Operation as Gradient
from ..workload import prepared

HERE = Path(__file__).parent
BY_HAND = "by_hand"
Arrays: TypeAlias = "dict[str, Any]"
Random: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class Operation:
    """An operation: what makes its arrays and numbers, by the names of parameters; the sizes of tests and of the table; which arrays are
    no variables."""

    make: Callable[[Random, int, int], Arrays]
    small: tuple[int, int]
    large: tuple[int, int]
    constant: frozenset[str] = frozenset()


def _in_rows(low: float, high: float) -> Callable[[Random, int, int], Arrays]:
    return lambda rng, n, m: {"y": np.zeros(n), "x": rng.uniform(low, high, n * m)}


def _picked(rng: Random, n: int, m: int) -> Arrays:
    return {"y": np.zeros(n), "x": rng.uniform(0.2, 0.9, n * m), "at": rng.integers(0, m, n).astype(np.int32)}


def _box(rng: Random, n: int, m: int) -> Arrays:
    ends = np.sort(rng.integers(0, m, (n, 2, 2)), axis=2) + np.array([0, 1])
    return {"y": np.zeros(n), "x": rng.uniform(0.2, 0.9, m * m), "at": ends.reshape(-1).astype(np.int32)}


OPERATIONS: dict[str, Operation] = {
    "squares": Operation(lambda rng, n, _: {"y": np.zeros(n), "x": rng.uniform(0.2, 1, n)}, (70, 1), (4_000_000, 1)),
    "fours": Operation(lambda rng, n, _: {"y": np.zeros(n), "x": rng.uniform(0.2, 0.9, 4 * n)}, (70, 1), (1_000_000, 1)),
    "picked": Operation(_picked, (70, 6), (1_000_000, 8)),
    "transmittance": Operation(_in_rows(0.05, 0.6), (70, 6), (65_536, 64)),
    "states": Operation(lambda rng, n, m: {"y": np.zeros(m * n), "x": rng.uniform(0.2, 0.9, m * n)}, (70, 6), (16_384, 64)),
    "recurrence": Operation(lambda rng, n, m: {"y": np.zeros(m * n), "x": rng.uniform(0.2, 0.9, 3 * m * n)}, (70, 6), (16_384, 64)),
    "box": Operation(_box, (70, 8), (20_000, 64)),
    "softmax": Operation(lambda rng, n, m: {"y": np.zeros(n * m), "x": rng.uniform(-2, 2, n * m)}, (70, 6), (16_384, 64)),
    "window": Operation(
        lambda rng, n, m: {"y": np.zeros(n), "x": rng.uniform(0.2, 0.9, n), "w": rng.uniform(0.1, 0.9, 2 * m + 1)},
        (70, 2), (1_000_000, 3), frozenset("w"),
    ),
    "rotary": Operation(
        lambda rng, n, m: {"y": np.zeros(n * m), "x": rng.uniform(0.2, 0.9, n * m), "c": rng.uniform(0.1, 0.9, m)},
        (18, 24), (16_384, 64), frozenset("c"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a kernel is launched: threads for `rows`, for elements of `rows` (`all`) or for n; each of `each`, one grid `over` the elements
    so many times."""

    block: int
    over: int = 1
    each: int = 1
    of: str = "n"

    def grid(self, n: int, m: int) -> int:
        threads = self.block * n if self.of == "rows" else n * m if self.of == "all" else -(-n // self.each)
        return max(1, -(-threads // (self.block * self.over)))


@cache
def ways(operation: str) -> Mapping[str, Way]:
    """How the kernels of an operation are launched, by their names."""
    found = {}
    for name, of, rest in re.findall(r"^//@ (\w+)(?: (rows|all))?((?: \w+=\d+)+)$", text(operation), re.MULTILINE):
        found[name] = Way(**{key: int(value) for key, value in (part.split("=") for part in rest.split())}, of=of or "n")
    return found


@cache
def text(operation: str) -> str:
    """The kernels of an operation."""
    return "".join((HERE / name).read_text(encoding="utf-8") for name in ("common.cuh", f"{operation}.cu"))


def wordings(operation: str) -> list[str]:
    """The primals of an operation."""
    return [name for name in ways(operation) if not name.startswith(BY_HAND)]


def arranged(operation: str, wording: str, *, full: bool = False) -> Gradient:
    """A wording at the sizes of the table (`full`), or at small ones."""
    made = OPERATIONS[operation]
    n, m = made.large if full else made.small
    rng = np.random.default_rng(0)
    arrays = {**made.make(rng, n, m), "n": n, "m": m}
    seed = rng.uniform(0.5, 1.5, arrays["y"].shape)
    active = {name for name, value in arrays.items() if getattr(value, "dtype", None) == np.float64} - made.constant
    shadows, theirs = ({name: seed.copy() if name == "y" else np.zeros_like(arrays[name]) for name in sorted(active)} for _ in range(2))
    kernel = api.kernel(text(operation), wording)
    args = tuple(Duplicated(arrays[d.name], shadows[d.name]) if d.name in active else arrays[d.name] for d in kernel.parameters)
    way = ways(operation)[wording]
    workload = prepared(None, {"n": n, "m": m}, kernel, args, way.grid(n, m), way.block, 0)
    known = {**arrays, **{f"d{name}": shadow for name, shadow in theirs.items()}}
    seeds = {name: shadow.copy() for name, shadow in theirs.items()}
    return Gradient(workload, tuple(_by_hand(operation, known, n, m)), arrays, frozenset({"y"}), shadows, theirs, seeds)


def _by_hand(operation: str, known: Arrays, n: int, m: int) -> Iterator[Launch]:
    for name, way in ways(operation).items():
        if name.startswith(BY_HAND):
            kernel = api.kernel(text(operation), name)
            args = tuple(known[d.name] for d in kernel.parameters)
            call = kernel.bind(way.grid(n, m), way.block, args, 0, None)
            yield Launch(call, kernel.primal(call.aliases()), ())


def atomic_statements(kernels: list[Kernel]) -> int:
    """How many statements add or take atomically."""
    return sum(isinstance(s, Accumulate | Take) and s.how is How.ATOMIC for k in kernels for s in walk_stmts(k.body))
