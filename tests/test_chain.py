"""Launches of a program that become one: the same numbers as apart, where that is proved, and apart where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from tape_tools import launch, pair

import gpuad
from gpuad import Active, Duplicated, launching, ops
from gpuad.codegen.cuda import cuda_source
from gpuad.executors.base import Prepared

N = 24
Arrays = dict[str, Any]


def launches(graph: Any, which: str) -> list[str]:
    """The kernels that a part of a graph launches."""
    return [action.kernel.name for action, _, _ in graph._parts[which] if isinstance(action, Prepared)]


def texts(graph: Any, which: str) -> list[str]:
    return [cuda_source([action.kernel]).rpartition("\n\n")[2] for action, _, _ in graph._parts[which] if isinstance(action, Prepared)]


def held() -> Arrays:
    numbers = np.random.default_rng(7)
    found: Arrays = {name: pair(numbers.uniform(0.3, 0.9, N)) for name in "xyz"}
    found |= {name: pair(numbers.uniform(0.3, 0.9, N).astype(np.float32)) for name in "fg"}
    found |= {"m": pair(numbers.uniform(0.3, 0.9, (4, 6))), "r": pair(numbers.uniform(0.3, 0.9, 6)), "mask": np.arange(N) % 3 == 0}
    return found


def content(arrays: Arrays) -> dict[str, bytes]:
    pairs = {name: x for name, x in arrays.items() if isinstance(x, Duplicated)}
    return {name + part: getattr(x, part).tobytes() for name, x in pairs.items() for part in ("primal", "shadow")}


def outcome(graph: Any, arrays: Arrays, start: Arrays) -> dict[str, bytes]:
    """What a graph leaves, from a start with some content in all shadows."""
    for name, x in arrays.items():
        if isinstance(x, Duplicated):
            x.primal[...], x.shadow[...] = start[name], 0.25
    graph.launch()
    graph.launch()
    return content(arrays)


def both(program: Callable[[Arrays], Any], seeds: Callable[[Arrays, Any], dict[Any, Any]]) -> tuple[Any, Any, dict[str, bytes]]:
    """The graphs of a program, chained and not, which leave the same."""
    arrays = held()
    start = {name: x.primal.copy() for name, x in arrays.items() if isinstance(x, Duplicated)}
    tape = gpuad.Tape()
    with tape:
        made = program(arrays)
    given = seeds(arrays, made)
    chained = tape.graph(given)
    with launching.nothing_chained_for_tests():
        apart = tape.graph(given)
    expected = outcome(apart, arrays, start)
    found = outcome(chained, arrays, start)
    assert found == expected
    return chained, apart, found


def twelve(a: Arrays) -> Any:
    t = ops.sin(a["x"]) * a["y"]
    for _ in range(2):
        t = ops.tanh(t * t)
        t *= ops.exp(t)
    return ops.square(t) * a["x"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_twelve_operations_are_one_launch_forward_and_one_back(executor: str) -> None:
    with running(executor):
        chained, apart, _ = both(twelve, lambda _, t: {t: 1.0})
    assert len(launches(apart, "forward")) == len(launches(apart, "reverse")) == 12
    assert len(launches(chained, "forward")) == len(launches(chained, "reverse")) == 1


# --- random programs ---------------------------------------------------------------------------------------------------------------------


def random_program(r: random.Random) -> Callable[[Arrays], Any]:
    """A program of elementwise operations and kernels, on whole arrays and views."""
    chosen = [r.choice(CHOICES)(r) for _ in range(r.randrange(4, 14))]

    def program(a: Arrays) -> None:
        temporaries: list[Any] = []
        for name in "xzm":
            ops.square(a[name], out=a[name])
        for step in chosen:
            step(a, temporaries)

    return program


def view(r: random.Random) -> Callable[[Any], Any]:
    cut = r.choice(
        [slice(None)] * 4 + [slice(0, 12), slice(3, 15), slice(12, 24), slice(None, None, 2), slice(1, None, 2), slice(None, None, -1)]
    )
    return lambda x: x[cut]


def unary(r: random.Random) -> Any:
    name, (x, y), cut = r.choice(["sin", "exp", "sqrt", "square", "tanh"]), r.choices("xyzfg", k=2), view(r)
    return lambda a, _: getattr(ops, name)(cut(a[x]), out=cut(a[y])) if a[x].dtype <= a[y].dtype else None


def binary(r: random.Random) -> Any:
    name, (x, y, z) = r.choice(["add", "multiply", "subtract", "maximum"]), r.choices("xyz", k=3)
    cuts = [view(r)] * 3 if r.random() < 0.7 else [view(r) for _ in range(3)]

    def step(a: Arrays, _: list[Any]) -> None:
        given = [cut(a[name]) for cut, name in zip(cuts, (x, y, z), strict=True)]
        if len({g.shape for g in given}) == 1:
            getattr(ops, name)(*given[:2], out=given[2])

    return step


def in_place(r: random.Random) -> Any:
    x, y, cut = r.choice("xyz"), r.choice("xyzfg"), view(r)

    def step(a: Arrays, _: list[Any]) -> None:
        target = cut(a[x])
        target += cut(a[y])
        target *= 0.7

    return step


def temporary(r: random.Random) -> Any:
    x, y, z = r.choices("xyz", k=3)

    def step(a: Arrays, temporaries: list[Any]) -> None:
        t = a[x] * (temporaries[-1] if temporaries else a[y])
        temporaries.append(ops.sin(t) + a[x])
        if len(temporaries) % 2 == 0:
            ops.add(temporaries[0], temporaries[-1], out=a[z])

    return step


def where(r: random.Random) -> Any:
    x, y, z = r.choices("xyz", k=3)
    return lambda a, _: ops.where(a["mask"], a[x], a[y], out=a[z])


def broadcast(r: random.Random) -> Any:
    name = r.choice(["multiply", "add"])
    return lambda a, _: getattr(ops, name)(a["m"], a["r"], out=a["m"])


def across(r: random.Random) -> Any:
    x, y, z = r.sample("xyz", 3)
    kernel = r.choice(["square", "sine", "times", "blend", "copy", "exchange", "stencil", "add", "linear", "masked"])
    given = {"square": (x,), "sine": (x,), "times": (x, y), "copy": (x, y), "exchange": (x, y), "stencil": (x, y), "linear": (x, y)}
    if kernel == "masked":
        return lambda a, _: launch("masked", a[x], a[y], a["mask"].astype(np.int32))
    return lambda a, _: launch(kernel, *(a[n] for n in given.get(kernel, (x, y, z))))


def active(r: random.Random) -> Any:
    x, d = r.choice("xyz"), np.zeros(())
    return lambda a, _: launch("scale", a[x], Active(0.9, d))


CHOICES = [unary, binary, binary, in_place, temporary, where, broadcast, across, across, active]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    with running("reference"):
        both(random_program(random.Random(seed)), lambda a, _: {a["x"]: 1.0, a["z"]: np.linspace(0.5, 1, N), a["m"]: 2.0})


@pytest.mark.parametrize("seed", [3])
def test_random_programs_compiled(seed: int) -> None:
    with running("host"):
        both(random_program(random.Random(seed)), lambda a, _: {a["x"]: 1.0, a["z"]: np.linspace(0.5, 1, N), a["m"]: 2.0})


def test_a_tape_that_reverses_a_known_program_again() -> None:
    """The second reverse of a program that has come again has fewer launches and leaves the same."""
    with running("reference"):
        arrays, tape, results = held(), gpuad.Tape(), []
        start = {name: x.primal.copy() for name, x in arrays.items() if isinstance(x, Duplicated)}
        for _ in range(4):
            for name, value in start.items():
                arrays[name].primal[...], arrays[name].shadow[...] = value, 0
            with tape:
                for _ in range(3):
                    launch("times", arrays["x"], arrays["y"].primal)
                    launch("sine", arrays["x"])
                    launch("product", arrays["z"], arrays["x"], arrays["x"])
            tape.reverse({arrays["z"]: 1.0})
            results.append(content(arrays))
        (plan,) = tape.plans.values()
        assert all(r == results[0] for r in results) and plan.runs == 4
        assert len(plan.again) < len(plan.actions) / 3
