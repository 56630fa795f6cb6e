"""What is saved of random expressions, named and inline, is the fewest bytes of all cuts: each is gone through, without flows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from nightly import cases

from gpuad import Duplicated, api
from gpuad.api import pattern_of
from gpuad.tape.record.checkpoint_kernels import cutting

MOST = 12  # values of a graph
SIZES = {"float": 4, "double": 8}


@dataclass(frozen=True)
class Value:
    """A value of a thread, by its number: what makes it of which others; arrays are values that nothing makes."""

    number: int
    kind: str
    op: str
    of: tuple[int, ...]
    named: bool


def graph(rng: random.Random) -> list[Value]:
    """Values of which no two are the same."""
    values = [Value(k, rng.choice(("float", "double")), "array", (), True) for k in range(rng.randint(2, 5))]
    for _ in range(rng.randint(1, MOST - len(values))):
        op = rng.choice(("+", "+", "-", "*", "sin", "exp"))
        of = tuple(rng.choice(values).number for _ in range(1 if op in ("sin", "exp") else 2))
        kind = "double" if any(values[k].kind == "double" for k in of) else "float"
        if all((v.op, v.of) != (op, of) for v in values):
            values.append(Value(len(values), kind, op, of, rng.random() < 0.2))
    return values


def text(name: str, values: list[Value]) -> str:
    """A kernel that adds to an array what no other value is made of."""

    def spelled(k: int) -> str:
        v = values[k]
        return f"v{k}" if v.named else f"({made(v)})"

    def made(v: Value) -> str:
        if v.op == "array":
            return f"x{v.number}[i]"
        if v.op in ("sin", "exp"):
            return f"{v.op}{'f' if v.kind == 'float' else ''}({spelled(v.of[0])})"
        return f"{spelled(v.of[0])} {v.op} {spelled(v.of[1])}"

    arrays = [v for v in values if v.op == "array"]
    lines = [f"{v.kind} v{v.number} = {made(v)};" for v in values if v.named]
    used = {k for v in values for k in v.of}
    total = " + ".join(spelled(v.number) for v in values if v.number not in used)
    parameters = "".join(f"const {v.kind}* x{v.number}, " for v in arrays)
    return f"""extern "C" __global__ void {name}({parameters}double* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        {" ".join(lines)}
        y[i] += {total};
    }}"""


def fewest(values: list[Value]) -> int:
    """The fewest bytes of values from which all can be made that derivatives need: of `*` both factors, of `exp` its result, and of `sin`
    the cosine, which has the number of the sine and a half."""
    needed: set[float] = set()
    for v in values:
        needed |= set(v.of) if v.op == "*" else {v.number} if v.op == "exp" else {v.number + 0.5} if v.op == "sin" else set()

    @cache
    def least(wanted: frozenset[float]) -> int:
        if not wanted:
            return 0
        last = max(wanted)
        v, rest = values[int(last)], wanted - {last}
        saved = SIZES[v.kind] + least(rest)
        return saved if v.op == "array" else min(saved, least(rest | set(v.of)))

    return least(frozenset(needed))


def saved(name: str, source: str, values: list[Value]) -> int:
    kernel = api.kernel(source, name)
    arrays = [np.ones(4, np.float32 if v.kind == "float" else np.float64) for v in values if v.op == "array"]
    call = kernel.bind((1,), (4,), [*(Duplicated(a, np.zeros_like(a)) for a in (*arrays, np.ones(4))), 4], 0, None)
    cut = cutting(kernel.reverse_for(pattern_of(kernel, call), call), frozenset(range(len(arrays))))
    return cut.nbytes if cut is not None else 0


@pytest.mark.one_of(2)
@pytest.mark.parametrize("first", range(0, cases(60, 1000), 20))
def test_the_fewest_bytes_of_all_cuts(first: int) -> None:
    graphs = {f"k{seed}": graph(random.Random(seed)) for seed in range(first, first + 20)}
    source = "\n".join(text(name, values) for name, values in graphs.items())
    found = {name: saved(name, source, values) for name, values in graphs.items()}
    assert found == {name: fewest(values) for name, values in graphs.items()}
    assert any(found.values())
