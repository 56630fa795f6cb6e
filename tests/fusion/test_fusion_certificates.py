"""Certificates of fused launches: what is fused has one, no planted fault has, and small launches leave the same fused and apart."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from certificate_tools import FAULTS, places
from certificate_tools import edited as edited_at
from fusion_tools import KERNELS, Joint, faulty, joined, joint, leave, link, with_text
from launch_tools import compiled, running

from gpuad import Duplicated, api, fusion, pipeline
from gpuad.fusion import certified
from gpuad.fusion.forward_reverse_kernel import fused
from gpuad.fusion.link import Link
from gpuad.ir.nodes import Atomic, Block, For, If, Kernel, Let, Load, Stmt, Store, Var
from gpuad.ir.rewrite import map_blocks, walk_stmts
from gpuad.runtime.base import Memory
from gpuad.runtime.reference import RaceError

N = 11  # a block of four is not full


NAMES = re.findall(r"^K (\w+)\(", KERNELS, re.M)


def memory() -> dict[str, Any]:
    numbers = np.random.default_rng(3)
    found: dict[str, Any] = {name: numbers.uniform(0.2, 0.9, 14) for name in "xyz"}
    return found | {
        "s": np.zeros(1),
        "mask": (np.arange(14) * 7 % 5 % 3).astype(np.int32),
        "h": numbers.uniform(0.2, 0.9, 14).astype(np.float16),
    }


A = memory()
X, Y, Z, S, MASK, H = (A[name] for name in ("x", "y", "z", "s", "mask", "h"))


def joints() -> dict[str, Joint]:
    return {
        "values": joint(link("square", X, n=N), link("to", Y, X, n=N), link("axpy", Y, Z, 0.5, n=N)),
        "copies": joint(link("copy", Z, X, n=N), link("sine", X, n=N), link("copy", Y, X, n=N), link("scale", X, 0.3, n=N)),
        "branches": joint(link("masked", X, MASK, n=N), link("masked_fill", Y, MASK, n=N), link("add", Z, X, Y, n=N)),
        "loops": joint(link("loop_square", X, n=N, grid=2), link("loop_to", Y, X, n=N, grid=2), link("loop_square", Y, n=N, grid=2)),
        "exchanges": joint(link("exchange", X, Y, n=N), link("exchange", Y, Z, n=N)),
        "a remainder": joint(link("wrapped", Y, X, n=N), link("square", Y, n=N)),
        "another thread's element of what is only read": joint(link("behind", Y, X, n=N), link("axpy", Y, X, 0.2, n=N)),
        "parts of one array": joint(link("square", X[:5], n=5), link("to", X[5:10], X[:5], n=5)),
        "every other element": joint(link("even", X, n=8), link("odd", X, n=8)),
        "a permutation": joint(link("halves", Y, X, n=8, grid=3), link("square", X, n=8, grid=3)),
    }


@pytest.mark.parametrize("name", joints())
def test_what_is_joined_is_certified(name: str) -> None:
    made = joints()[name]
    assert made.refused() is None and alike(made.apart, made.joined)


@pytest.mark.parametrize("name", joints())
def test_planted_faults_are_refused(name: str) -> None:
    """Each kind of fault in a text, at each place where there can be one."""
    made, planted = joints()[name], 0
    for kind in FAULTS:
        for number, fault in enumerate(faulty(made, kind)):
            planted += 1
            assert fault.refused(), f"{kind}, place {number}"
    assert planted >= 10


# --- faults of fusions --------------------------------------------------------------------------------------------------------------------


def edited(made: Joint, edit: Callable[[Stmt], Block | None]) -> Joint:
    """The first statement for which there is an edit is replaced."""
    left = [1]

    def inside(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            new = edit(stmt) if left[0] else None
            left[0] -= new is not None
            out += new if new is not None else (map_blocks(stmt, inside),)
        return tuple(out)

    found = with_text(made, inside)
    assert not left[0]
    return found


def stale(made: Joint) -> Joint:
    """The last value that is stored is the one that was loaded first."""
    loads = [s.var for s in walk_stmts(made.joined.kernel.body) if isinstance(s, Load)]
    last = [s for s in walk_stmts(made.joined.kernel.body) if isinstance(s, Store)][-1]
    return edited(made, lambda s: (replace(s, value=loads[0]),) if s is last else None)


def without_store_to(made: Joint, number: int) -> Joint:
    buffer = made.joined.kernel.params[number]
    return edited(made, lambda s: () if isinstance(s, Store) and s.buffer == buffer else None)


def reversed_stores(made: Joint) -> Joint:
    """Statements of the guarded block that write, in the other order."""

    def inside(block: Block) -> Block:
        stores = iter([s for s in reversed(block) if isinstance(s, Store)])
        return tuple(next(stores) if isinstance(s, Store) else map_blocks(s, inside) for s in block)

    return with_text(made, inside)


def late_load(made: Joint) -> Joint:
    """What was read first is read again at the end, and stored."""

    def inside(block: Block) -> Block:
        first = next((s for s in block if isinstance(s, Load)), None)
        if first is None:
            return tuple(map_blocks(s, inside) for s in block)
        store = next(s for s in reversed(block) if isinstance(s, Store))
        again = Var("again", first.var.type, 10**6)
        return (*(s for s in block if s is not store), Load(again, first.buffer, first.index), replace(store, value=again))

    return with_text(made, inside)


def unguarded_load(made: Joint) -> Joint:
    def inside(block: Block) -> Block:
        at = next(k for k, s in enumerate(block) if isinstance(s, If))
        guard = block[at]
        assert isinstance(guard, If)
        loads = tuple(s for s in guard.then if isinstance(s, Load))
        return (*block[:at], *loads, replace(guard, then=tuple(s for s in guard.then if s not in loads)), *block[at + 1 :])

    return with_text(made, inside)


def swapped_numbers(made: Joint) -> Joint:
    """Two real numbers are given in each other's place."""
    params, given = made.joined.kernel.params, list(made.joined.arguments)
    one, two = (k for k, p in enumerate(params) if isinstance(p, Var) and p.type.is_float)
    given[one], given[two] = given[two], given[one]
    return replace(made, joined=replace(made.joined, arguments=given))


def elsewhere(made: Joint) -> Joint:
    """Two arrays are given in each other's place."""
    given = list(made.joined.arguments)
    given[0], given[1] = given[1], given[0]
    return replace(made, joined=replace(made.joined, arguments=given))


HALVES = r"""
#include <cuda_fp16.h>
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
extern "C" __global__ void third(__half* x, int n) { I; x[i] = __float2half(__half2float(x[i]) / 3.0f); }
extern "C" __global__ void widen(float* y, const __half* x, int n) { I; y[i] = __half2float(x[i]); }
"""


def in_one_type(made: Joint) -> Joint:
    """What is stored and read again is not rounded on the way."""
    text = HALVES
    y = np.zeros(14, np.float32)
    found = joint(link("third", H, n=N, text=text), link("widen", y, H, n=N, text=text))
    assert found.refused() is None
    again = [s for s in walk_stmts(found.joined.kernel.body) if isinstance(s, Load)][-1]
    kept = next(s for s in walk_stmts(found.joined.kernel.body) if isinstance(s, Store))
    return edited(found, lambda s: (Let(again.var, kept.value),) if s is again else None)


def other_launch(made: Joint, **of: Any) -> Joint:
    return replace(made, joined=replace(made.joined, **of))


VALUES = joints()["values"]
ONE, TWO, THREE = VALUES.apart
OVERLAP = link("square", X[:-1], n=N), link("to", Y, X[1:], n=N)
LOOPED = joints()["loops"]
BEFORE = link("top", Y, X, n=N), link("sum", X, Z, n=N)
ALONE = link("sum", S, Z, n=1, block=1), link("to", Y, S, n=1, block=1)
PLANTED: dict[str, Callable[[], Joint]] = {
    "constituents swapped": lambda: joint(ONE, TWO, THREE, by=(TWO, ONE, THREE)),
    "the first constituent dropped": lambda: joint(ONE, TWO, THREE, by=(TWO, THREE)),
    "the last constituent dropped": lambda: joint(ONE, TWO, THREE, by=(ONE, TWO)),
    "a constituent twice": lambda: joint(ONE, TWO, THREE, by=(ONE, ONE, TWO, THREE)),
    "a constituent too many": lambda: joint(ONE, TWO, by=(ONE, TWO, THREE)),
    "another kernel": lambda: joint(ONE, TWO, THREE, by=(link("sine", X, n=N), TWO, THREE)),
    "another number": lambda: joint(ONE, TWO, THREE, by=(ONE, TWO, link("axpy", Y, Z, 0.25, n=N))),
    "numbers in each other's place": lambda: swapped_numbers(joint(link("scale", X, 0.5, n=N), link("shift", X, 0.25, n=N))),
    "arrays in each other's place": lambda: elsewhere(joint(link("to", Y, X, n=N), link("sine", Z, n=N))),
    "the guard of one applied to the other": lambda: joint(ONE, link("to", Y, X, n=N - 2), by=(ONE, TWO)),
    "the guard of the other applied to one": lambda: joint(link("square", X, n=N - 2), TWO, by=(ONE, TWO)),
    "a guard that is wider": lambda: joint(ONE, link("rest", Y, n=N), by=(ONE, link("rest", Y, n=N + 1))),
    "a shifted view": lambda: joint(ONE, TWO, by=(ONE, link("to", Y[1:], X, n=N))),
    "a shifted view of what is read": lambda: joint(TWO, THREE, by=(TWO, link("axpy", Y, Z[1:], 0.5, n=N))),
    "a forwarded value that is stale": lambda: stale(joint(ONE, TWO)),
    "a forwarded value that is overwritten": lambda: late_load(joint(link("copy", Z, X, n=N), link("sine", X, n=N))),
    "a cross-thread read kept": lambda: joint(ONE, link("behind", Y, X, n=N)),
    "a cross-thread read kept, modulo": lambda: joint(ONE, link("wrapped", Y, X, n=N)),
    "a cross-thread read kept, by rows": lambda: joint(link("square", X, n=9), link("rows", Y, X, n=9)),
    "a halo that the neighbour wrote": lambda: joint(link("push_right", X, Y, n=N), link("to", Z, X, n=N)),
    "a halo that the neighbour overwrites": lambda: joint(link("right", Y, X, n=N), link("square", X, n=N)),
    "all elements are read": lambda: joint(ONE, link("below", Y, X, n=N)),
    "one thread reads what another wrote": lambda: joint(ONE, link("first", X, n=N)),
    "an index from data": lambda: joint(ONE, link("picked", Y, X, MASK, n=N)),
    "a scatter and a read": lambda: joint(link("bins", Y, X, MASK, n=N), link("to", Z, Y, n=N)),
    "atomics reordered with a read": lambda: joint(*BEFORE, by=BEFORE[::-1]),
    "atomics before a read of another thread": lambda: joint(*BEFORE[::-1]),
    "atomics before a read of the same thread": lambda: joint(*ALONE, by=ALONE[::-1]),
    "a copy dropped though it is read later": lambda: without_store_to(joints()["copies"], 0),
    "the last store dropped": lambda: without_store_to(joint(ONE, TWO), 1),
    "another iteration reads what is overwritten": lambda: joint(
        link("loop_after", X, n=N, grid=1), link("loop_square", X, n=N, grid=1)
    ),
    "a branch taken by all": lambda: edited(
        joint(link("masked_fill", X, MASK, n=N), link("masked", X, MASK, n=N)),
        lambda s: s.then if isinstance(s, If) and s.otherwise and not s.merges else None,
    ),
    "stores in another order": lambda: reversed_stores(joint(link("picked", Y, X, MASK, n=N), link("scatter", Y, Z, MASK, n=N))),
    "aliasing buffers taken as distinct": lambda: joint(*OVERLAP),
    "overlapping views that are both written": lambda: joint(link("square", X[:-1], n=N), link("square", X[1:], n=N)),
    "memory seen under two types": lambda: joint(ONE, link("square", X.view(np.float32), n=N, text=KERNELS.replace("double", "float"))),
    "a part of an element overlaps": lambda: joint(ONE, link("to", Y, Memory(X.view(np.uint8)[4:-4].view(float)), n=N)),
    "other grids": lambda: replace(VALUES, apart=(ONE, replace(TWO, grid=(4, 1, 1)), THREE)),
    "a grid that is too small": lambda: other_launch(VALUES, grid=(2, 1, 1)),
    "other blocks": lambda: replace(VALUES, apart=(ONE, TWO, link("axpy", Y, Z, 0.5, n=N, block=6, grid=2))),
    "a read without its guard": lambda: unguarded_load(VALUES),
    "halves that are not rounded": lambda: in_one_type(VALUES),
    "another iteration reads what was written": lambda: joint(link("loop_square", X, n=N, grid=2), link("loop_right", Y, X, n=N, grid=2)),
    "iterations taken for threads": lambda: joint(link("loop_to", Y, X, n=N, grid=1), link("thread", Y, X, n=N, grid=1)),
    "a loop over other elements": lambda: joint(LOOPED.apart[0], link("loop_to", Y, X, n=N - 1, grid=2), by=LOOPED.apart[:2]),
    "a loop the other way round": lambda: edited(LOOPED, lambda s: (replace(s, backward=True),) if isinstance(s, For) else None),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_of_fusions_are_refused(name: str) -> None:
    assert PLANTED[name]().refused() is not None


def test_what_stands_before_an_atomic_operation_stays_there() -> None:
    """Another thread may wait for it."""
    told = link("told", X, MASK, n=N)
    assert Joint((told,), told).refused() is None

    def inside(block: Block) -> Block:
        at = next((k for k, s in enumerate(block) if isinstance(s, Atomic)), None)
        return tuple(map_blocks(s, inside) for s in block) if at is None else (block[at], *block[:at], *block[at + 1 :])

    assert with_text(Joint((told,), told), inside).refused() == "what stands around atomic operations is moved"


def test_kinds_of_faults() -> None:
    assert len(PLANTED) >= 40


# --- a launch with its reverse ------------------------------------------------------------------------------------------------------------

PAIRED = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define K extern "C" __global__ void
K wave(double* x, const double* w, int n) { I; double s = sin(x[i]); x[i] = s * w[i]; }
K decay(double* x, int n) { I; x[i] = exp(x[i]); }
K loop(double* x, const double* w, int m, int n) { I; double s = 0.0; for (int j = 0; j < m; ++j) s += w[(i + j) % 2] * x[i]; x[i] = s; }
K until(double* x, int n) { I; double s = x[i]; int k = 0; while (k < 3) { s = 0.5 * s; ++k; } x[i] = s; }
K choose(double* x, double* y, int n) { I; double t; if (x[i] > 0.5) t = 2.0 * x[i]; else t = x[i] * x[i]; y[i] += t; x[i] = t; }
K scatter(double* y, const double* x, const int* mask, int n) { I; atomicAdd(&y[mask[i]], x[i] * x[i]); }
K around(double* x, const double* w, int n) { I; x[i] = x[i] * w[(i + 1) % n]; }
"""
OPERANDS: dict[str, tuple[Any, ...]] = {
    "wave": (X, Z), "decay": (X,), "loop": (X, Z, 3), "until": (X,), "choose": (X, Y), "scatter": (Y, X, MASK), "around": (X, Z)
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Paired:
    """A launch, its reverse, and a kernel that is to do both."""

    pointers: certified.Pointers
    primal: Kernel
    stage: pipeline.Stage
    both: Kernel
    reverse_first: bool

    def is_certified(self) -> bool:
        text = (1, 0) if self.reverse_first else (0, 1)
        return certified.is_forward_and_reverse(self.pointers, self.primal, self.stage.kernel, self.stage.parameters, self.both, text)


def paired(name: str, n: int = N) -> Paired:
    kernel = compiled(PAIRED, name)
    args = tuple(Duplicated(a.copy(), np.ones_like(a)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in OPERANDS[name])
    with running("reference"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuad.fusion.forward_reverse.has_atomics", lambda _: False)  # as on a GPU
        call = kernel.bind((3,), (4,), (*args, n), 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        (stage,) = pipeline.stages(adjoint, call)
        found = fusion.fusing(kernel.primal(), adjoint, call, (stage,))
    assert found is not None
    return Paired(certified.Pointers(call, stage.parameters, kernel.primal()), kernel.primal(), stage, found.kernel, found.reverse_first)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", OPERANDS)
def test_planted_faults_of_a_launch_and_its_reverse_are_refused(name: str) -> None:
    made, planted = paired(name), 0
    assert made.is_certified()
    for kind, edit in FAULTS.items():
        for place in range(places(made.both.body, edit)):
            planted += 1
            body = edited_at(made.both.body, edit, [place])
            assert not replace(made, both=replace(made.both, body=body)).is_certified(), f"{kind}, place {place}"
    assert planted >= 10


@pytest.mark.parametrize("name", [name for name in OPERANDS if name not in ("scatter", "until")])
def test_a_reverse_on_the_wrong_side_is_refused(name: str) -> None:
    """What it reads of memory before the launch it reads after it, or the other way round. That of others reads nothing that the launch
    writes."""
    made = paired(name)
    own = dict(enumerate(made.primal.params))
    entry = {p.item: own[p.position] for p in made.stage.parameters if p.role == "entry"}
    both = fused(made.primal, made.stage.kernel, entry, made.both.params, reverse_first=not made.reverse_first)
    assert not replace(made, both=both, reverse_first=not made.reverse_first).is_certified()


@pytest.mark.parametrize("name", OPERANDS)
def test_a_launch_without_its_reverse_is_refused(name: str) -> None:
    made = paired(name)
    for alone in (made.primal, made.stage.kernel):
        assert not replace(made, both=replace(made.both, body=alone.body)).is_certified()


# --- small launches, all of them ----------------------------------------------------------------------------------------------------------

SIZES = [(n, grid, block) for n in range(10) for grid in (1, 2, 3) for block in (1, 2, 3, 4)]
ARRAYS = {"x": X, "y": Y, "z": Z}
NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY", "0"))
LOOPS = [name for name in NAMES if name.startswith(("loop_", "thread"))]
FLAT = [name for name in NAMES if name not in (*LOOPS, "told")]


def sequence(rng: random.Random, n: int, grid: int, block: int) -> list[Link]:
    """Two or three launches, mostly of one size, on arrays that they share and on parts of them."""
    names = FLAT if rng.random() < 0.8 else LOOPS
    found = []
    for _ in range(rng.choice([2, 2, 3])):
        count = n if rng.random() < 0.9 else max(n - 1, 0)
        name = rng.choice(names)
        params = compiled(KERNELS, name).primal().params[:-1]
        shift = [0, 0, 0, 1, 2] if rng.random() < 0.3 else [0]
        given = [MASK if p.name == "mask" else 0.5 if p.name == "a" else rng.choice([X, Y, Z])[rng.choice(shift) :] for p in params]
        found.append(link(name, *given, n=count, grid=grid, block=block))
    return found


def alike(apart: Sequence[Link], joined: Link) -> bool:
    """Whether they leave the same; sums may have been rounded otherwise. True where threads meet in a launch of its own."""
    try:
        expected = leave(apart)
    except RaceError:
        return True
    found = leave([joined])
    return all(np.allclose(found[k], expected[k], rtol=1e-13, atol=0) for k in found)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("part", range(4))
def test_small_launches(part: int) -> None:
    """Whatever is certified leaves what the launches leave apart, with no two threads that meet."""
    rng, certified_ones = random.Random(part), 0
    for _ in range(NIGHTLY or 6):
        for n, grid, block in SIZES[part::4]:
            apart = sequence(rng, n, grid, block)
            made = joined(*apart)
            if made is None:
                continue
            if made.refused() is None:
                certified_ones += 1
                assert alike(apart, made.joined), [(x.kernel.name, x.arguments) for x in apart]
    assert certified_ones > 50
