"""Traces: an analysis of numbers that is done again gives what it would give for others, or says that it does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpuad.program.ir.region import EMPTY, Region, lattice, span
from gpuad.traced_numbers import MOST, Traces, recorded, traced

Given = Mapping[str, int]


@dataclass(frozen=True)
class Part:
    low: int
    inner: object = None


def branching(n: Given) -> object:
    a, b = n["a"], n["b"]
    if a < 3:
        return "small", a
    if a % b == 1:
        return [a // b, (a - b) * 2]
    return {"rest": max(a, b), "least": min(a * b, 12), "sign": abs(b - a), "both": divmod(-a, b), "more": -(-a // b)}


def regions(n: Given) -> object:
    a, b = n["a"], n["b"]
    found = EMPTY | span(a, a + 8 * b) | lattice(2 * a, 4, [(16, b), (-64, 2)])
    inside = found & span(0, 40)
    return (
        found,
        (inside, found - inside),
        found.nbytes,
        inside.moved(a),
        bool(inside),
        inside <= found,
        found <= inside,
        span(a, 60) <= found,
    )


def looping(n: Given) -> object:
    return [k * n["a"] for k in range(n["b"] % 3)]


def looked_up(n: Given) -> object:
    return {5: "five"}.get(n["a"], "another"), hash(n["b"]) == n["b"], n["a"] == 5, n["a"] != n["b"], n["a"] in (1, 2, n["b"])


def shared(n: Given) -> object:
    part = Part(n["a"], Part(4))
    return part, (part,), Part(n["b"], part)


@pytest.mark.parametrize("find", [branching, regions, looping, looked_up, shared])
def test_a_trace_gives_what_the_analysis_gives(find: Callable[[Given], object]) -> None:
    rng = random.Random(0)
    traces, hits = Traces(), []
    for _ in range(200):
        given = {"a": rng.randrange(1, 9), "b": rng.randrange(1, 9)}
        before = traces.tried
        assert traces.of(given, find, lambda given=given: find(given)) == find(given)  # type: ignore[misc]
        hits.append(traces.tried == before)
    assert traces.tried <= MOST and sum(hits) > 190


def test_an_object_of_a_result_is_made_once() -> None:
    trace = traced({"a": 1, "b": 2}, shared)
    assert trace is not None
    one, (same,), other = trace.again(7, 8)
    assert one is same and other.inner is one and one == Part(7, Part(4))


def test_numbers_are_kept_apart_from_what_they_are_compared_with() -> None:
    trace = traced({"a": 2}, lambda n: n["a"] < 5)
    assert trace is not None
    assert trace.again(4) is True and trace.again(5) is not True


@pytest.mark.parametrize(
    "find",
    [
        lambda n: n["a"] / 2,
        lambda n: n["a"] ** 2,
        lambda n: frozenset({n["a"]}),
        lambda n: object(),
        lambda n: {}["none"],
    ],
    ids=["quotient", "power", "set", "unknown result", "error"],
)
def test_what_cannot_be_traced_leaves_no_trace(find: Callable[[Given], Any]) -> None:
    assert traced({"a": 3}, find) is None
    assert Traces().of({"a": 3}, find, lambda: "by itself") == "by itself"


def test_a_number_that_was_left_behind_is_its_value() -> None:
    left: list[Any] = []
    traced({"a": 3}, lambda n: left.append(n["a"]))
    (number,) = left
    assert number + 1 == 4 and type(number + 1) is int and {3: "three"}[number] == "three" and number < 4
    again = traced({"a": 5}, lambda n: (n["a"] + number, number * n["a"], n["a"] < number))
    assert again is not None and again.again(6) == (9, 18, False)


def test_a_recorded_function_is_called_with_numbers() -> None:
    seen: list[object] = []

    @recorded
    def noted(n: int, more: tuple[int, ...] = ()) -> Region:
        seen.append((n, more))
        return span(0, n + sum(more))

    trace = traced({"a": 3}, lambda n: noted(n["a"], (1, n["a"])).nbytes)
    assert trace is not None and trace.again(9) == 19
    assert seen == [(3, (1, 3)), (9, (1, 9))]
