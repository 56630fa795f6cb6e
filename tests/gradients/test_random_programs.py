"""Random programs of in-place launches against a model in NumPy, and the bytes that a tape saves against a liveness oracle.

A program is a list of steps over a few arrays: views of one allocation, slices, a plane with a halo, integer indices that change on
the way. Each step is a launch and its meaning in NumPy (on arrays with all directions of a complex step as first axis); it also says,
for the oracle, which elements it writes and which its adjoint needs as they were before it or as they are after it. The oracle goes
through the program element by element: what is needed and then overwritten is saved, once for all who need it. It knows no regions, and
no gpuad.

Programs depend on their number alone. GPUAD_NIGHTLY is the number of programs, 10 without it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tape_tools import THREADS, agree, cuda, jacobian_transposed, launch, run, run_again, running

import gpuad
from gpuad import Const, TapeError

N = 12  # elements of a view
ROWS, COLUMNS = 5, 7
CHUNK = 10
PROGRAMS = int(os.environ.get("GPUAD_NIGHTLY") or 10)
SLICES = {"a": ("one", 0), "b": ("one", N), "c": ("one", 2 * N), "d": ("two", 3), "e": ("three", 0), "f": ("one", N // 2)}
APART = {("a", "f"), ("b", "f")}  # these overlap; every other two views do not

Marks = dict[str, Any]  # for each allocation, which of its elements


@dataclass
class Step:
    """One operation: how it is launched, what it means, and what the oracle has to know of it (views are (allocation, index))."""

    text: str
    launch: Callable[[Any, dict[str, Any]], None]
    model: Callable[[dict[str, Any]], None]
    writes: list[Any] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    bare: str = ""  # the view that is passed without its shadow


def view(name: str) -> tuple[str, slice]:
    allocation, low = SLICES[name]
    return allocation, slice(low, low + N)


def of(arrays: dict[str, Any], name: str) -> Any:
    """A view: of pairs, or of a model's arrays."""
    allocation, part = view(name)
    array = arrays[allocation]
    return array[:, part] if isinstance(array, np.ndarray) else array[part]


def put(arrays: dict[str, Any], name: str, value: Any) -> None:
    allocation, part = view(name)
    arrays[allocation][:, part] = value


def inner(name: str) -> tuple[str, slice]:
    allocation, part = view(name)
    return allocation, slice(part.start + 1, part.stop - 1)


# --- the steps -------------------------------------------------------------------------------------------------------------------------


def sine(x: str) -> Step:
    def model(s: Any) -> None:
        put(s, x, np.sin(of(s, x)) + 0.5 * of(s, x))

    return Step(f"sine({x})", lambda t, p: launch("sine", of(p, x)), model, [view(x)], [view(x)])


def decay(x: str) -> Step:
    def model(s: Any) -> None:
        put(s, x, np.exp(-0.5 * of(s, x)))

    return Step(f"decay({x})", lambda t, p: launch("decay", of(p, x)), model, [view(x)], [], [view(x)])


def powers(x: str) -> Step:
    """Overwrites its element several times in one launch: the reverse works on a copy of its own."""

    def model(s: Any) -> None:
        for _ in range(3):
            put(s, x, 0.8 * of(s, x) ** 2 + 0.2)

    return Step(f"powers({x})", lambda t, p: launch_last("powers", of(p, x), 3), model, [view(x)], [view(x)])


def itself(x: str) -> Step:
    """One array as both arguments."""

    def model(s: Any) -> None:
        put(s, x, of(s, x) ** 2)

    return Step(f"itself({x})", lambda t, p: launch("times", of(p, x), of(p, x)), model, [view(x)], [view(x)])


def lapped(z: str) -> Step:
    """Two arguments that overlap and are only read."""

    def model(s: Any) -> None:
        put(s, z, of(s, "a") * of(s, "f"))

    return Step(
        f"lapped({z}, a, f)", lambda t, p: launch("product", of(p, z), of(p, "a"), of(p, "f")), model, [view(z)], [view("a"), view("f")]
    )


def times(x: str, y: str) -> Step:
    def model(s: Any) -> None:
        put(s, x, of(s, x) * of(s, y))

    return Step(f"times({x}, {y})", lambda t, p: launch("times", of(p, x), of(p, y)), model, [view(x)], [view(x), view(y)])


def product(z: str, x: str, y: str) -> Step:
    def model(s: Any) -> None:
        put(s, z, of(s, x) * of(s, y))

    return Step(
        f"product({z}, {x}, {y})", lambda t, p: launch("product", of(p, z), of(p, x), of(p, y)), model, [view(z)], [view(x), view(y)]
    )


def add(z: str, x: str, y: str) -> Step:
    def model(s: Any) -> None:
        put(s, z, of(s, x) + of(s, y))

    return Step(f"add({z}, {x}, {y})", lambda t, p: launch("add", of(p, z), of(p, x), of(p, y)), model, [view(z)])


def copy(y: str, x: str) -> Step:
    def model(s: Any) -> None:
        put(s, y, of(s, x).copy())

    return Step(f"copy({y}, {x})", lambda t, p: launch("copy", of(p, y), of(p, x)), model, [view(y)])


def axpy(y: str, x: str) -> Step:
    def model(s: Any) -> None:
        put(s, y, of(s, y) + s["c"][:, None] * of(s, x))

    return Step(f"axpy({y}, {x})", lambda t, p: launch_last("axpy", of(p, y), of(p, x), p["c"]), model, [view(y)], [view(x)])


def scale(x: str) -> Step:
    def model(s: Any) -> None:
        put(s, x, s["c"][:, None] * of(s, x))

    return Step(f"scale({x})", lambda t, p: launch_last("scale", of(p, x), p["c"]), model, [view(x)], [view(x)])


def linear(v: str, u: str) -> Step:
    def model(s: Any) -> None:
        x = of(s, u)
        of(s, v)[:, 1:-1] = 0.5 * x[:, 1:-1] + 0.25 * (x[:, :-2] + x[:, 2:])

    return Step(f"linear({v}, {u})", lambda t, p: launch("linear", of(p, v), of(p, u)), model, [inner(v)])


def stencil(v: str, u: str) -> Step:
    def model(s: Any) -> None:
        x = of(s, u)
        of(s, v)[:, 1:-1] = 0.3 * x[:, :-2] + 0.2 * x[:, 1:-1] ** 2 - 0.1 * x[:, 2:] * x[:, 1:-1]

    allocation, part = view(u)
    needed = (allocation, slice(part.start + 1, part.stop))  # u[i] and u[i + 1] for 0 < i < n - 1; u[i - 1] is linear
    return Step(f"stencil({v}, {u})", lambda t, p: launch("stencil", of(p, v), of(p, u)), model, [inner(v)], [needed])


def exchange(x: str, y: str) -> Step:
    def model(s: Any) -> None:
        old = of(s, x).copy()
        put(s, x, of(s, y).copy())
        put(s, y, old)

    return Step(f"exchange({x}, {y})", lambda t, p: launch("exchange", of(p, x), of(p, y)), model, [view(x), view(y)])


def reset(x: str, pair: bool) -> Step:
    def launched(t: Any, p: Any) -> None:
        launch_last("fill", of(p, x) if pair else of(p, x).primal, 0.75)

    def model(s: Any) -> None:
        put(s, x, 0.75)

    return Step(f"reset({x}{'' if pair else ' bare'})", launched, model, [view(x)], bare="" if pair else x)


def around(y: str, x: str) -> Step:
    """Reads one element outside of each end of the slice it is given."""
    allocation, part = view(x)
    low, high = part.start + 1, part.stop - 1
    m = N - 2

    def launched(t: Any, p: Any) -> None:
        launch("around", of(p, y)[:m], of(p, x)[1:-1])

    def model(s: Any) -> None:
        old = of(s, x)
        of(s, y)[:, :m] = old[:, :-2] * old[:, 2:]

    target, at = view(y)
    needed = [(allocation, slice(low - 1, high - 1)), (allocation, slice(low + 1, high + 1))]
    return Step(f"around({y}[:{m}], {x}[1:-1])", launched, model, [(target, slice(at.start, at.start + m))], needed)


def plane(target: str, source: str) -> Step:
    """The interior of one plane from that of another, pointers inside of it, with a pitch."""

    def launched(t: Any, p: Any) -> None:
        cuda("plane")[(2, 1), (4, 8)](p[target][1:-1, 1:-1], p[source][1:-1, 1:-1], ROWS - 2, COLUMNS - 2, COLUMNS)

    def model(s: Any) -> None:
        u = s[source].copy()
        s[target][:, 1:-1, 1:-1] = 0.4 * u[:, 1:-1, 1:-1] ** 2 + 0.1 * (u[:, 1:-1, :-2] + u[:, 1:-1, 2:] - u[:, :-2, 1:-1] * u[:, 2:, 1:-1])

    middle, up, down = (np.s_[1:-1, 1:-1], np.s_[:-2, 1:-1], np.s_[2:, 1:-1])
    return Step(f"plane({target}, {source})", launched, model, [(target, middle)], [(source, middle), (source, up), (source, down)])


def masked(x: str, y: str) -> Step:
    def model(s: Any) -> None:
        old = of(s, x)
        put(s, x, np.where(s["mask"] != 0, 0.9 * old * of(s, y) + 0.1, old))

    step = Step(f"masked({x}, {y})", lambda t, p: launch("masked", of(p, x), of(p, y), p["mask"], n=N), model, [view(x)])
    return _with(step, [view(x), view(y), ("mask", slice(None))])


def gather(y: str, x: str) -> Step:
    def model(s: Any) -> None:
        put(s, y, 0.7 * of(s, x)[:, s["index"]] ** 2)

    step = Step(f"gather({y}, {x})", lambda t, p: launch("gather", of(p, y), of(p, x), p["index"], n=N), model, [view(y)])
    return _with(step, [view(x), ("index", slice(None))])


def scatter(y: str, x: str) -> Step:
    def model(s: Any) -> None:
        for i, k in enumerate(s["index"]):
            of(s, y)[:, k] += 0.1 * of(s, x)[:, i] ** 2

    step = Step(f"scatter({y}, {x})", lambda t, p: launch("scatter", of(p, y), of(p, x), p["index"], n=N), model, [view(y)])
    return _with(step, [view(x), ("index", slice(None))])


def iterate(x: str) -> Step:
    def model(s: Any) -> None:
        value = of(s, x).copy()
        for i in range(N):
            for _ in range(s["mask"][i]):
                value[:, i] = np.sin(value[:, i]) * value[:, i] + 0.5
        put(s, x, value)

    step = Step(f"iterate({x})", lambda t, p: launch("iterate", of(p, x), p["mask"], n=N), model, [view(x)])
    return _with(step, [view(x), ("mask", slice(None))])


def next_index() -> Step:
    def model(s: Any) -> None:
        s["index"] = (3 * s["index"] + 1) % N

    return Step("next_index()", lambda t, p: launch("next_index", Const(p["index"])), model, [("index", slice(None))])


def flip() -> Step:
    def model(s: Any) -> None:
        s["mask"] = 1 - s["mask"]

    return Step("flip()", lambda t, p: launch("flip", p["mask"]), model, [("mask", slice(None))])


def foreign(shift: int) -> Step:
    def launched(t: Any, p: Any) -> None:
        t.overwrites(p["index"])
        p["index"][...] = (p["index"] + shift) % N

    def model(s: Any) -> None:
        s["index"] = (s["index"] + shift) % N

    return Step(f"foreign({shift})", launched, model, [("index", slice(None))])


def _with(step: Step, before: list[Any]) -> Step:
    step.before = before
    return step


def blend(z: str, x: str, y: str) -> Step:
    """The adjoint needs one value made of two: the cosine, or what it is the cosine of."""

    def model(s: Any) -> None:
        put(s, z, 0.7 * of(s, z) + np.sin(of(s, x) + 0.5 * of(s, y)))

    return Step(f"blend({z}, {x}, {y})", lambda t, p: launch("blend", of(p, z), of(p, x), of(p, y)), model, [view(z)], [view(x), view(y)])


def sums(z: str, x: str, y: str) -> Step:
    """By way of temporaries, whose shadows are shared."""

    def model(s: Any) -> None:
        put(s, z, (of(s, x) + of(s, y)) * 0.5 + of(s, x) * of(s, y))

    def run(t: Any, p: Any) -> None:
        first, second = of(p, x) * 0.5, of(p, y) * 0.5
        both = first + second
        both += of(p, x) * of(p, y)
        gpuad.ops.copyto(of(p, z), both)

    return Step(f"sums({z}, {x}, {y})", run, model, [view(z)], [view(x), view(y)])


def launch_last(name: str, *args: Any) -> None:
    """A kernel of SOURCE with scalars before its number of elements."""
    cuda(name)[-(-N // THREADS), THREADS](*args, N)


UNARY = (sine, decay, scale, iterate, powers, itself)
BINARY = (times, copy, axpy, linear, stencil, exchange, around, masked, gather, scatter)
AFFINE = (sine, decay, scale, powers, itself, lapped, times, copy, axpy, linear, stencil, exchange, around, add, product, plane)


def program(number: int, affine: bool = False) -> tuple[list[Step], dict[str, Any], dict[str, Any]]:
    """The steps of a program, its inputs and its seeds. `affine`: only steps of which the tape knows exactly what they touch."""
    rng = np.random.default_rng([number, affine])
    names = list(rng.permutation(["a", "b", "c", "d", "e", *(["f"] if rng.random() < 0.4 else [])]))
    planes = ["g", "h"]
    steps: list[Step] = []
    for _ in range(int(rng.integers(4, 14))):
        rng.shuffle(names) if rng.random() < 0.5 else names.reverse()  # names are swapped on the host
        steps.append(_step(rng, [str(n) for n in names], planes, affine))
        if rng.random() < 0.2:
            steps.append(steps[-1])  # the same again
    steps = _fair(steps)
    inputs = {
        "one": rng.uniform(0.4, 1.3, 3 * N),
        "two": rng.uniform(0.4, 1.3, N + 5),
        "three": rng.uniform(0.4, 1.3, N),
        "g": rng.uniform(0.4, 1.3, (ROWS, COLUMNS)),
        "h": rng.uniform(0.4, 1.3, (ROWS, COLUMNS)),
        "c": float(rng.uniform(0.5, 1.1)),
        "index": rng.integers(0, N, N).astype(np.int32),
        "mask": rng.integers(0, 2, N).astype(np.int32),
    }
    seeds = {n: rng.normal(size=inputs[n].shape) for n in ("one", "two", "three", "g", "h")}
    return steps, inputs, seeds


def _fair(steps: list[Step]) -> list[Step]:
    """A bare reset of memory that is never seen as a pair, or of which a part is, is beyond what a tape can know, or refused."""
    pairs = {n for s in steps if not s.bare for n in "abcdef" if re.search(rf"\b{n}\b", s.text)}
    unclear = {"a", "b", "f"} if "f" in pairs else {"f"}
    unclear |= {n for s in steps if s.text.startswith("around") for n in "abcdef" if re.search(rf"\b{n}\b", s.text)}
    return [reset(s.bare, True) if s.bare and (s.bare not in pairs or s.bare in unclear) else s for s in steps]


def _step(rng: Any, names: list[str], planes: list[str], affine: bool) -> Step:
    x, y = next((p, q) for p, q in zip(names, names[1:] + names[:1], strict=True) if not overlap(p, q))
    z = next(n for n in names if n not in (x, y) and not overlap(n, x) and not overlap(n, y))
    while True:
        kind = rng.integers(0, 12)
        if kind < 3:
            made = _pick(rng, UNARY)(x)
        elif kind < 7:
            made = _pick(rng, BINARY)(x, y)
        elif kind < 8:
            made = _pick(rng, (add, product, blend, sums))(z, x, (x, y)[rng.integers(0, 2)])
        elif kind < 9 and rng.random() < 0.3 and "f" in names and z in ("c", "d", "e"):
            made = lapped(z)
        elif kind < 9:
            planes.reverse()
            made = plane(planes[0], planes[1])
        elif kind < 10:
            made = reset(x, bool(rng.integers(0, 2)))
        else:
            made = (next_index(), flip(), foreign(int(rng.integers(1, 5))))[rng.integers(0, 3)]
        if not affine or made.text.split("(")[0] in {f.__name__ for f in AFFINE} | {"reset"}:
            return made


def _pick(rng: Any, choices: tuple[Any, ...]) -> Any:
    return choices[rng.integers(0, len(choices))]


def overlap(x: str, y: str) -> bool:
    return (x, y) in APART or (y, x) in APART


# --- the checks ------------------------------------------------------------------------------------------------------------------------


def record(steps: list[Step]) -> Any:
    def recorded(tape: Any, pairs: Any) -> None:
        for step in steps:
            step.launch(tape, pairs)

    return recorded


def modelled(steps: list[Step]) -> Any:
    def meaning(state: Any) -> None:
        for step in steps:
            step.model(state)

    return meaning


def saved_by_oracle(steps: list[Step], inputs: dict[str, Any]) -> int:
    """Bytes that are needed by an adjoint and overwritten before it runs, counted element by element."""
    pending = {n: np.zeros(np.shape(v), bool) for n, v in inputs.items()}
    saved = 0
    for step in steps:
        for name, part in step.before:
            pending[name][part] = True
        for name, part in step.writes:
            saved += int(pending[name][part].sum()) * np.asarray(inputs[name]).dtype.itemsize
            pending[name][part] = False
        for name, part in step.after:
            pending[name][part] = True
    return saved


def tried(number: int, executor: str, affine: bool) -> None:
    """Runs a program in every mode of the tape."""
    steps, inputs, seeds = program(number, affine)
    with np.errstate(all="ignore"):
        finals, gradients = jacobian_transposed(modelled(steps), inputs, seeds)
    what = f"program {number} of {len(steps)} steps: {'; '.join(s.text for s in steps)}: "
    if not all(np.isfinite(v).all() and np.abs(v).max() < 1e4 for v in (*finals.values(), *gradients.values())):
        return  # it explodes: nothing to compare
    with running(executor):
        tape = gpuad.Tape(check="exact" if number % 3 == 0 else None)
        results = {"first": run(record(steps), inputs, seeds, tape, plain=True)}
        saved = tape.stats.saved_bytes
        results["again"] = run(record(steps), inputs, seeds, tape, plain=True)
        assert tape.stats.allocations == 0, f"{what}the second run allocates"
        results["all"] = run(record(steps), inputs, seeds, gpuad.Tape(save="all"), plain=True)
        results["restored"] = run(record(steps), inputs, seeds, gpuad.Tape(restore=True), plain=True)
        results |= dict(run_again(record(steps), inputs, seeds)) if number % 3 == 1 else {}
    for name, result in results.items():
        agree(result.shadows, gradients, f"{what}{name}: gradient of", 1e-10)
        agree(result.primals, inputs if name == "restored" else finals, f"{what}{name}: state of", 1e-10)
    assert saved <= results["all"].tape.stats.saved_bytes
    if affine:
        assert saved == saved_by_oracle(steps, inputs), f"{what}\n{tape.explain()}"


@pytest.mark.parametrize("chunk", range(-(-PROGRAMS // CHUNK)))
def test_random_programs(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        tried(number, "host" if number % 2 else "reference", affine=False)


@pytest.mark.parametrize("chunk", range(-(-PROGRAMS // CHUNK // 3)))
def test_random_affine_programs_save_what_the_oracle_says(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        tried(number, "host" if number % 2 else "reference", affine=True)


@pytest.mark.parametrize("number", range(5))
def test_a_change_between_two_steps_is_noticed(number: int) -> None:
    """The exact check sees one bit changed in anything that is needed, after any step; and nothing in what is not."""
    steps, inputs, seeds = program(number)
    steps = steps[:6]
    needed = {(i, n) for i in range(1, len(steps)) for s in steps[:i] for n, _ in s.before if not _overwritten(n, steps[:i])}
    for at, name in sorted(needed):
        used = next(part for s in steps[:at] for n, part in s.before if n == name)

        def disturb(tape: Any, pairs: Any, name: str = name, used: Any = used) -> None:
            part = getattr(pairs[name], "primal", pairs[name])[used]  # a view
            there = (ctypes.c_ubyte * part.itemsize).from_address(part.ctypes.data)  # past the lock, as other code's views are
            raw = np.frombuffer(there, part.dtype)
            raw[0] = np.nextafter(raw[0], 9.0) if part.dtype.kind == "f" else raw[0] ^ 1

        between = Step("disturb", disturb, lambda s: None)
        with running("reference"), pytest.raises(TapeError, match="changed"):
            run(record([*steps[:at], between, *steps[at:]]), inputs, seeds, gpuad.Tape(check="exact"), plain=True)


def _overwritten(name: str, steps: list[Step]) -> bool:
    return any(n == name for s in steps for n, _ in s.writes)
