"""Random programs of array operations, kernels and host code on a tape, against central differences of the same programs on plain arrays.

Three real arrays, one complex, one in single precision, all 4 x 4, an index array and weights that the host changes on the way. A step is a
function of the arrays by name; it does the same to plain NumPy arrays (`gpuad.ops` computes on them too) and to pairs on a tape. Each
program is recorded (twice on one tape) and reversed: with seeds for whole arrays, with seeds for views of them, by the raw rule, with all
saved and checked exactly, and with restoring. All gradients have to agree.

Programs depend on their number alone. GPUAD_NIGHTLY is the number of programs, 6 without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nightly import cases
from tape_tools import cuda, running

from gpuad import Active, Duplicated, Tape, ops

PROGRAMS = cases(2, 12)
LENGTH = 10
NAMES = "abczf"
PARTS: list[Any] = [
    (np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:]), (np.s_[:, 1:], np.s_[:, :-1]), (np.s_[0:2], np.s_[2:4]), (np.s_[::2], np.s_[1::2]),
    (np.s_[:, ::-1], np.s_[:]), (np.s_[0:2], np.s_[1:3]),
]  # fmt: skip
Arrays = dict[str, Any]
Step = Callable[[Arrays, np.random.Generator, "Tape | None"], None]
STEPS: dict[str, Step] = {}


def step(function: Step) -> Step:
    STEPS[function.__name__] = function
    return function


def raw(x: Any) -> Any:
    return getattr(x, "primal", x)


def some(r: np.random.Generator, count: int) -> list[str]:
    return ["abc"[i] for i in r.integers(3, size=count)]


def kernel(name: str, *arrays: Any) -> None:
    """A launch on flat views."""
    cuda(name)[-(-raw(arrays[0]).size // 8), 8](*arrays, raw(arrays[0]).size)


@step
def product(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y, z = some(r, 3)
    ops.matmul(s[x].T if r.integers(2) else s[x], s[y], out=s[z])
    s[z] *= 0.3


@step
def products(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y, z = some(r, 3)
    ops.gemm(0.3, s[x], s[y], [0.0, 0.5][r.integers(2)], s[z])
    ops.einsum(["ij,jk,kl->il", "ij,ij,ij->ij", "ii,jk,kj->jk", "i...,...j,jj->i..."][r.integers(4)], s[x], s[y], s[z], out=s[z])
    s[z] *= 0.2


@step
def part(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    p, q = PARTS[r.integers(len(PARTS))]
    match r.integers(4):
        case 0:
            s[x][p] += s[y][q]
        case 1:
            s[x][p] = s[y][q]
        case 2:
            s[x][p] *= s[y][q]
        case _:
            s[x][p] = s[x][q] * s[y][p] - 0.1 * s[y][q]


@step
def function(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    name = ["exp", "sin", "tanh", "square", "arctan", "arcsinh", "cos"][r.integers(7)]
    getattr(ops, name)(s[x][::-1] * 0.5, out=s[y])
    getattr(ops, name)(s[x].T, out=s[x])
    s[x] *= 0.5
    s[y] += 0.1 * ops.hypot(s[x], s[y] + 3.0)


@step
def reduction(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    name = ["sum", "mean", "prod", "var"][r.integers(4)]
    s[y] += 0.2 * getattr(ops, name)(s[x], axis=[None, 0, 1, (0, 1)][r.integers(4)], keepdims=True)
    ops.sum(s[x], axis=0, out=s[x][int(r.integers(4))])
    s[y] *= 0.3 * ops.broadcast_to(s[x][2], (4, 4)) + 0.5


@step
def ordered(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    ops.cumsum(s[x][::-1], axis=int(r.integers(-2, 2)), out=s[x])
    s[x] *= 0.4
    ops.sort(s[x], axis=int(r.integers(-2, 2)), out=s[y])


@step
def indices(s: Arrays, r: np.random.Generator, tape: Tape | None) -> None:
    x, y = some(r, 2)
    s[y][r.permutation(4)[:2]] = s[x][r.integers(4, size=2)] * 0.9
    ops.scatter_add(s[y], r.integers(4, size=3), s[x][0:3] * 0.3)
    if tape is not None:
        tape.overwrites(s["index"])
    s["index"][...] = r.integers(4, size=4)
    s[x] += 0.2 * s[y][s["index"]]
    mask = r.integers(2, size=(4, 4)).astype(bool)
    s[y][mask] = s[x][mask] * 1.1


@step
def complex_numbers(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    z = s["z"]
    match r.integers(6):
        case 0:
            z *= s[x] * 0.5
            z[1:] -= z[:-1] * 0.3j
        case 1:
            z[...] = ops.conj(z) * 0.7 + s[y]
            s[x] += 0.1 * ops.absolute(z + 3.0)
        case 2:
            ops.fft(z, axis=int(r.integers(2)), norm="ortho", out=z)
            s[x][...] = ops.real(z) * 0.3 + ops.imag(z) * 0.2
        case 3:
            s[y] -= 0.1 * ops.irfft(ops.rfft(s[x]) * z[:, :3])
        case 4:
            ops.matmul(z, s[x], out=z)
            z *= 0.2 / (2.0 + s[y] * s[y])
        case _:
            s["z"] = z * z * 0.5 + 1j * s[x]


@step
def single_precision(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    s[x] += 0.1 * s["f"] * s["f"]
    s[y] -= 0.1 * ops.matmul(s["f"], s[x])


@step
def kernels(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = "abc"[r.integers(3)], "abc"[r.integers(3)]
    u, v = s[x].reshape(-1), s[y].reshape(-1)
    kernel("sine", u)
    if x != y:
        kernel(["times", "square_to", "exchange", "stencil"][r.integers(4)], u, v)
    kernel("product", u[4:12], v[0:8], v[8:16]) if x != y else kernel("decay", u[3:9])


@step
def numpys_own(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    """Functions by NumPy's names, of the arrays and of views of them."""
    x, y = some(r, 2)
    a, b = s[x], s[y][:, ::-1] if r.integers(2) else s[y].T
    match r.integers(8):
        case 0:
            found = np.diff(np.pad(a, ((1, 0), (2, 2)), mode=["edge", "wrap", "reflect"][r.integers(3)]), axis=0)[:, 1:5]
        case 1:
            found = np.tile(a[:2, :2], (2, 2)) - np.repeat(np.repeat(b[1:3, 1:3], 2, 0), 2, axis=1)
        case 2:
            found = np.linalg.solve(a * 0.1 + 3.0 * np.eye(4), b)
        case 3:
            found = np.linalg.inv(b * 0.1 + 3.0 * np.eye(4)) * np.trace(a)
        case 4:
            found = np.vstack([np.hstack([a[:2, :3], b[:2, :1]]), np.tril(b)[2:]])
        case 5:
            found = np.take_along_axis(a, r.permuted(np.tile(np.arange(4), (4, 1)), axis=1), axis=1) + np.outer(b[0], np.fft.fftshift(a[1]))
        case 6:
            found = np.cumprod(1.0 + 0.1 * b, axis=1) - np.kron(a[:2, :2], b[2:, 2:])
        case _:
            found = np.stack([np.convolve(a[k], b[k, :2], "same") for k in range(4)]) + np.median(b, axis=0)
    s[y][...] = 0.3 * found + 0.2 * s[y]


@step
def host(s: Arrays, r: np.random.Generator, tape: Tape | None) -> None:
    (x,) = some(r, 1)
    i = int(r.integers(4))
    if tape is not None:
        tape.overwrites(s["weights"], s[x][i] if r.integers(2) else raw(s[x])[i])
    else:
        r.integers(2)
    s["weights"][...] = r.normal(size=4)
    raw(s[x])[i][...] = 0.5
    s[x] *= s["weights"] * 0.2 + 1
    ops.fill(raw(s[x])[:, i] if i % 2 else s[x][:, i], 0.25)


@step
def names(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    """Names change places, are bound to temporaries; a temporary outlives the step that made it."""
    x, y = some(r, 2)
    s[x], s[y] = s[y], s[x]
    if "kept" in s:
        s[x] += s["kept"] * 0.2
        s["kept"] *= 0.5
    s["kept"] = s[y] * s[x]
    s[y] = s[x] * 0.5 + s["kept"] * 0.3


@step
def numbers(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    if x != y:
        ops.axpy(s["p"], s[y], s[x])
    s[x] *= s["q"]


@step
def systems(s: Arrays, r: np.random.Generator, _: Tape | None) -> None:
    x, y = some(r, 2)
    a = s[x] * 0.3 + 3.0 * np.eye(4)
    ops.solve_triangular(a, s[y], lower=bool(r.integers(2)), trans=int(r.integers(2)), out=s[y])


def execute(program: list[tuple[str, int]], s: Arrays, tape: Tape | None) -> None:
    for name in NAMES:
        s[name] *= 1.0  # each is met by the program
    for name, number in program:
        STEPS[name](s, np.random.default_rng(number), tape)


def given(start: Arrays, wrap: Callable[[Any], Any], p: Any, q: Any) -> Arrays:
    held = {name: wrap(start[name].copy()) for name in NAMES}
    return {**held, "weights": np.ones(4), "index": np.zeros(4, np.int64), "p": p, "q": q}


def loss(program: list[tuple[str, int]], start: Arrays, p: float, q: float, weights: Arrays) -> float:
    s = given(start, lambda x: x, p, q)
    execute(program, s, None)
    return sum(float((np.conj(weights[n]) * s[n]).sum().real) for n in NAMES)


def seeded(how: str, tape: Tape, s: Arrays, weights: Arrays) -> None:
    match how:
        case "raw":
            for n in NAMES:
                s[n].shadow[...] = weights[n]
            tape.reverse()
        case "views":
            parts = (np.s_[:2], np.s_[3], np.s_[2, ::-1])
            tape.reverse({s[n][p]: weights[n][p] for n in NAMES for p in parts})
        case _:
            tape.reverse({s[n]: weights[n] for n in NAMES})


WAYS: dict[str, dict[str, Any]] = {
    "seeds": {}, "views": {}, "raw": {}, "all": {"save": "all", "check": "exact"}, "restore": {"restore": True},
}  # fmt: skip


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_random_programs_of_operations(number: int) -> None:
    r = np.random.default_rng(number)
    program = [(sorted(STEPS)[r.integers(len(STEPS))], int(r.integers(1 << 31))) for _ in range(LENGTH)]
    kinds = {**dict.fromkeys("abc", float), "z": complex, "f": np.float32}

    def like(kind: Any) -> Any:
        real = r.uniform(-1, 1, (4, 4))
        return (real + 1j * r.uniform(-1, 1, (4, 4)) if kind is complex else real).astype(kind)

    start, weights, along = ({n: like(k) for n, k in kinds.items()} for _ in range(3))
    dp, dq = r.normal(size=2)
    along["f"][...] = 0  # differences in single precision show nothing

    def at(h: float) -> float:
        return loss(program, {n: start[n] + (h * along[n]).astype(kinds[n]) for n in NAMES}, 0.4 + h * dp, 0.9 + h * dq, weights)

    slope, again = ((at(h) - at(-h)) / (2 * h) for h in (1e-6, 5e-7))
    if abs(slope - again) > 1e-5 * max(1.0, abs(slope)):
        return  # two elements change their order, or one its sign, within the step
    with running("host"):
        for how, options in WAYS.items():
            tape = Tape(**options)
            for _ in range(2 if how == "seeds" else 1):
                shadows = np.zeros(()), np.zeros(())
                s = given(start, lambda x: Duplicated(x, np.zeros_like(x)), Active(0.4, shadows[0]), Active(0.9, shadows[1]))
                first = dict(s)
                with tape:
                    execute(program, s, tape)
                seeded(how, tape, s, weights)
                found = sum(float((np.conj(first[n].shadow) * along[n]).sum().real) for n in NAMES)
                found += float(shadows[0]) * dp + float(shadows[1]) * dq
                assert found == pytest.approx(slope, rel=2e-5, abs=2e-5), (how, program)
            for n in NAMES if how == "restore" else ():
                np.testing.assert_array_equal(first[n].primal, start[n])
