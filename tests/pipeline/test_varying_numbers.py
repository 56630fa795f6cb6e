"""Launches that differ in whole numbers: what is found out about one is used for another only where it holds for that one too.

Random kernels use numbers in conditions, bounds, loops, strides, remainders and as values. What a kernel that knows other launches makes of
a launch is compared with what a kernel makes of it that knows none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS
from nightly import cases, share

import gpuad
from gpuad import Duplicated, api, pipeline
from gpuad.pipeline import schedule
from gpuad.pipeline.calls import Call
from gpuad.tape.record import launch_kind
from gpuad.traced_numbers import Recorder

N, MOST = 12, 6  # elements that threads have, and the numbers are below
SIZE = 4 * N + N * MOST
HEAD = """extern "C" __global__ void k(double* y, const double* x, double* h, int a, int b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;"""
Numbers = tuple[int, int]

CONDITIONS = (
    "{a} % 3 == 0",
    "{a} < {b}",
    "i < {a} + 4",
    "{a} != 2",
    "({a} & 1)",
    "i >= {a}",
    "i % ({a} + 1) == 0",
    "{a} * {b} > 5",
    "i + {a} < n",
)
PLACES = ("i", "i + {a}", "i * {a}", "(i + {a}) % n", "i + {a} % 2", "i + {a} * n", "n - 1 - i", "i / ({a} + 1)", "i + {a} * {b}")
VALUES = ("{a}", "(double){a}", "pow(0.9, (double){a})", "({a} > {b} ? 2.0 : 0.5)", "1.0 / ({a} + 1)")
OWN = ("i", "i + {a}", "i + {a} * n", "i + {a} % 2", "(i + {a}) % n")  # no two threads of the first n come to one element


def kernel_text(seed: int) -> str:
    rng = random.Random(seed)

    def filled(choices: Sequence[str]) -> str:
        one, two = rng.choice(("ab", "ba"))
        return "(" + rng.choice(choices).format(a=one, b=two) + ")"

    def read() -> str:
        return f"x[{filled(PLACES)}]"

    def value() -> str:
        return rng.choice((read(), f"{read()} * {read()}", f"sin({read()})", f"{read()} * {filled(VALUES)}"))

    def statement() -> str:
        place = filled(OWN)
        return rng.choice(
            (
                f"y[i] += {value()};",
                f"y[i] = y[i] * {value()};",
                f"h[{place}] = y[i] * {value()};",
                f"h[{place}] += {value()};",
                f"atomicAdd(&h[{filled(PLACES)}], {value()});",
                f"for (int j = 0; j < {filled(('{a}', '{a} + {b}', '{a} % 3 + 1'))}; ++j) y[i] += {read().replace('x[', 'x[j + ')};",
            )
        )

    parts = [
        f"if ({filled(CONDITIONS)}) {{ {statement()} }}" if rng.random() < 0.7 else statement() for _ in range(rng.choice((1, 2, 2, 3)))
    ]
    return f"{HEAD} if (i < n) {{ {' '.join(parts)} }} }}"


def arrays() -> tuple[Duplicated, Duplicated, Duplicated]:
    rng = np.random.default_rng(0)
    return tuple(Duplicated(rng.uniform(0.5, 1.5, size), rng.uniform(-1, 1, size)) for size in (N, SIZE, SIZE))  # type: ignore[return-value]


def launched(kernel: Any, numbers: Numbers, grid: int = 2, block: int = 8) -> list[Any] | str:
    """All arrays and shadows after a launch and its reverse; or why it is refused."""
    given = arrays()
    try:
        gpuad.autodiff(kernel, grid, block, (*given, *numbers, N))
    except gpuad.GpuadError as error:
        return str(error)
    return [part.copy() for x in given for part in (x.primal, x.shadow)]


def recorded(text: str, order: Sequence[Numbers], together: bool) -> tuple[list[Any] | str, int]:
    """The same of a program of such launches, by one kernel or each by its own, and the bytes that its tape saves."""
    kernel = gpuad.kernel(text, "k")
    given = arrays()
    try:
        with gpuad.Tape() as tape:
            for a, b in order:
                (kernel if together else gpuad.kernel(text, "k"))[2, 8](*given, a, b, N)
        tape.reverse({given[0]: np.arange(1.0, N + 1), given[2]: np.linspace(1, 2, SIZE)}, allow_unused=True)
    except gpuad.GpuadError as error:
        return str(error), 0
    return [part.copy() for x in given for part in (x.primal, x.shadow)], tape.stats.saved_bytes


def agree(one: list[Any] | str, other: list[Any] | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return all(np.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True) for a, b in zip(one, other, strict=True))


def mistaken(text: str, rng: random.Random) -> list[Numbers]:
    """The numbers for which a kernel that knows other launches does something else than one that knows none."""
    order = [(rng.randrange(MOST), rng.randrange(MOST)) for _ in range(6)]
    expected = {numbers: launched(gpuad.kernel(text, "k"), numbers) for numbers in order}
    kernel = gpuad.kernel(text, "k")
    permuted = [*order, *rng.sample(order, len(order))]
    return [numbers for numbers in permuted if not agree(launched(kernel, numbers), expected[numbers])]


@pytest.mark.parametrize("seed", range(cases(12, 300)))
@pytest.mark.one_of(4)
def test_a_fact_is_used_where_it_holds(seed: int, executor: Any) -> None:
    text = kernel_text(seed)
    with pipeline.executor_for_tests(executor):
        assert not mistaken(text, random.Random(seed)), text


@pytest.mark.parametrize("seed", range(1000, 1000 + cases(10, 300)))
@pytest.mark.one_of(4)
def test_programs_save_and_reverse_as_if_each_launch_were_the_first(seed: int, executor: Any) -> None:
    rng, text = random.Random(seed), kernel_text(seed)
    order = [(rng.randrange(MOST), rng.randrange(MOST)) for _ in range(5)]
    with pipeline.executor_for_tests(executor):
        (found, saved), (expected, as_saved) = (recorded(text, order, together) for together in (True, False))
    assert agree(found, expected), text
    assert saved == as_saved


# --- keys that are wrong are found ----------------------------------------------------------------------------------------------------

WRONG = {
    "condition": "if (a % 3 == 0) y[i] = y[i] * x[i];",
    "bound": "if (i < a + 4) y[i] = y[i] * x[i]; else h[i] = 0;",
    "stride": "atomicAdd(&h[i * a], x[i]); y[i] = x[i * b];",
    "remainder": "h[i + a % 2] = y[i] * x[i];",
    "sides": "if (a > 2) y[i] = y[i] * x[i]; else h[i] = y[i] * x[i];",
    "loop": "for (int j = 0; j < a; ++j) h[i + j * n] = y[i] * x[j];",
}


@contextmanager
def facts_without_a_number() -> Iterator[None]:
    """Facts of a launch go by one number less, and are those of the launch that came first."""

    def key(self: Call) -> Any:
        ((grid, block, overlaps, arguments)) = original(self)
        return grid, block, overlaps, tuple(None if i == 3 else a for i, a in enumerate(arguments))

    original = Call.key.func  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "key", property(key))
        yield


@contextmanager
def traces_without_guards() -> Iterator[None]:
    """What is found for one value is taken for that of all, whatever was asked of it on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "guard", lambda _, parts, outcome: outcome)
        yield


@pytest.mark.parametrize("fault", [facts_without_a_number, traces_without_guards])
def test_a_key_that_lacks_a_number_is_found(fault: Callable[[], AbstractContextManager[None]]) -> None:
    """By the same comparison, of programs, whose reverse depends on where launches write."""
    order = [(a, 1) for a in (0, 1, 3, 2, 5, 4)]
    wrong = []
    for name, body in share(list(WRONG.items()), 2):
        text = f"{HEAD} if (i < n) {{ {body} }} }}"
        expected = recorded(text, order, False)
        with fault():
            found = recorded(text, order, True)
        wrong += [name] if not agree(found[0], expected[0]) or found[1] != expected[1] else []
        assert agree(recorded(text, order, True)[0], expected[0])
    assert len(wrong) >= 2, wrong


@contextmanager
def facts_of_one_value_for_all() -> Iterator[None]:
    """What is proved of the launch with its own numbers passes for what holds for all of them."""
    original = Call.at_large.func  # type: ignore[attr-defined]

    def at_large(self: Call) -> Call:
        whole = original(self)
        if whole is self:
            return self
        wrong = Call(**{f: getattr(self, f) for f in self.__dataclass_fields__})
        wrong.__dict__["key"] = whole.key
        return wrong

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "at_large", property(at_large))
        patch.setattr(schedule, "_atomic", lambda *_: frozenset())
        yield


def test_a_proof_for_one_value_that_passes_for_all_is_found() -> None:
    text = f"{HEAD} if (i < n) {{ y[i] += x[i * (a % 2)] * x[i]; }} }}"
    order = [(a, 1) for a in (1, 3, 5, 0, 2)]
    expected = {numbers: launched(gpuad.kernel(text, "k"), numbers) for numbers in order}

    def wrong() -> list[Numbers]:
        kernel = gpuad.kernel(text, "k")
        return [numbers for numbers in order if not agree(launched(kernel, numbers), expected[numbers])]

    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        assert not wrong()
        with facts_of_one_value_for_all():
            assert wrong()


# --- how often something is found out -------------------------------------------------------------------------------------------------


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "body",
    [
        "if (a % 3 == 0) y[i] += x[i] * x[i + 1];",
        "if (i < a + 4) y[i] += x[i] * x[i + 1];",
        "for (int j = 0; j < a; ++j) y[i] = y[i] * x[i];",
        "y[i] += x[i] * x[i + 1] * a;",
        "if (b > a) y[i] += x[i] * x[i + 1];",
        "y[i] += x[i] * x[i + 1]; if (i < 3) atomicAdd(&h[i * (a + 1)], y[i]);",
    ],
    ids=["condition", "bound", "loop", "value", "two numbers", "stride"],
)
@pytest.mark.parametrize("on_tape", [False, True])
def test_proofs_are_asked_for_the_first_values(body: str, on_tape: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a call alone, and once for all: then never again, in a tape or without one. Where no proof for all is found, of two more."""
    asked: list[int] = []
    for name in ("_inspected", "_plain_shadows"):
        plain = getattr(schedule, name)
        monkeypatch.setattr(schedule, name, lambda *args, plain=plain: (asked.append(1), plain(*args))[1])
    kernel = gpuad.kernel(f"{HEAD} if (i < n) {{ {body} }} }}", "k")
    counts = []
    for steps in (range(3), range(20)):
        given = arrays()
        with gpuad.Tape() if on_tape else _nothing() as tape:
            for a in steps:
                kernel[2, 8](*given, a, 7, N) if on_tape else gpuad.autodiff(kernel, 2, 8, (*given, a, 7, N))
        if tape is not None:
            tape.reverse({given[0]: 1.0}, allow_unused=True)
        counts.append(len(asked))
    assert counts[0] == counts[1] <= (6 if "atomicAdd" in body else 4)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("if (a % 3 == 0) y[i] = y[i] * x[i];", 3),
        ("y[i] = y[i] * x[i + a % 3];", 2),
        ("h[i + a / 8 * n] = y[i] * y[i];", 3),
        ("if (i < a + 4) y[i] = y[i] * x[i];", 3),
        ("if (i >= a) y[i] = y[i] * x[i];", 3),
        ("if (i * (a + 1) < n) y[i * (a + 1)] = y[i * (a + 1)] * x[i];", 2),
        ("for (int j = 0; j < a; ++j) y[i] = y[i] * x[j];", 3),
    ],
)
def test_what_is_touched_is_found_out_for_all_numbers_that_are_alike(body: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plain = launch_kind.reaches_of
    monkeypatch.setattr(launch_kind, "reaches_of", lambda *args: (asked.append(1), plain(*args))[1])
    kernel, given = gpuad.kernel(f"{HEAD} if (i < n) {{ {body} }} }}", "k"), arrays()
    with gpuad.Tape():
        for a in range(20):
            kernel[2, 8](*given, a, 7, N)
    assert len(asked) == most


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def test_a_launch_whose_numbers_are_better_keeps_its_own_proof() -> None:
    """With a stride of 0 all threads add to one element, with others none do: no proof for all strides is as good as that of one."""
    kernel = gpuad.kernel(f"{HEAD} if (i < n) y[i] += x[i * a] * x[i * a]; }}", "k")
    found = []
    for a in (1, 2, 0, 3, 4):
        adjoint, call = api.kernel(kernel).derived(
            ("duplicated", "duplicated", "const", "bare", "bare", "bare"), 2, 8, (*arrays(), a, 1, N)
        )
        found.append(sorted(b.name for b in pipeline.plain_shadows(adjoint, call)))
    assert found == [["dx"], ["dx"], [], ["dx"], ["dx"]]


def test_a_race_that_the_numbers_prove_is_refused_among_other_values() -> None:
    kernel = gpuad.kernel(f"{HEAD} if (i < n) h[i * a] = y[i]; }}", "k")
    for a in (1, 2, 3, 4):
        assert not isinstance(launched(kernel, (a, 1)), str)
    assert "two threads write to one element" in str(launched(kernel, (0, 1)))
