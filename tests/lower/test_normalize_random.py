"""Random programs, lowered and run by the reference executor, against a direct execution of their surface trees."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from nightly import cases
from surface_tools import (
    E,
    Interpreter,
    Steps,
    atomic,
    break_,
    call,
    comma,
    cond,
    const,
    continue_,
    declare,
    do_,
    for_,
    function,
    if_,
    launch,
    math_call,
    pointer,
    return_,
    var,
    while_,
)

from gpuad.ir.printer import to_text
from gpuad.ir.types import F32, I32, U32, Array
from gpuad.ir.verify import verify
from gpuad.lower.normalize import normalize
from gpuad.runtime.base import Memory
from gpuad.runtime.reference import Reference

N = 8


class Generator:
    """Grows a random kernel k(float* x, float* y, int* z, int n, float a): every construct that the core IR can represent. Indices are
    masked to stay in bounds, divisors are made odd, most loops count down a budget."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.x, self.y, self.z = pointer("x"), pointer("y"), pointer("z", I32)
        self.n, self.a = var("n"), var("a", F32)
        self.ints: list[E] = [self.n]
        self.fixed: list[E] = []
        self.floats: list[E] = [self.a]
        self.pointers: list[E] = [self.x, self.y]
        self.arrays: list[E] = []
        self.loops = 0
        self.helper = False
        self.size = 0

    def pick(self, *makers: Any) -> Any:
        return self.r.choice(makers)()

    # --- expressions ---

    def index(self) -> E:
        e = self.pick(lambda: const(self.r.randrange(N)), lambda: self.int(1), lambda: self.r.choice(self.ints + self.fixed))
        return masked(e, N - 1)

    def int(self, depth: int = 2) -> E:
        if depth == 0 or self.r.random() < 0.3:
            return self.pick(
                lambda: const(self.r.randrange(-3, 9)),
                lambda: self.r.choice(self.ints + self.fixed),
                lambda: self.r.choice(self.ints + self.fixed),
                self.int_load,
                lambda: launch("threadIdx").to(I32),
            )
        return self.pick(
            lambda: self.int(depth - 1) + self.int(depth - 1),
            lambda: self.int(depth - 1) - self.int(depth - 1),
            lambda: self.int(depth - 1) * self.int(depth - 1),
            lambda: self.int(depth - 1) / raised(self.int(depth - 1), 1),
            lambda: self.int(depth - 1) % raised(self.int(depth - 1), 1),
            lambda: cond(self.bool(depth - 1), self.int(depth - 1), self.int(depth - 1)),
            lambda: self.float(depth - 1).to(I32),
            lambda: self.effect(depth - 1),
            lambda: (self.int(depth - 1).to(U32) + self.int(depth - 1).to(U32)).to(I32),
        )

    def effect(self, depth: int) -> E:
        v = self.r.choice(self.ints)
        return self.pick(
            lambda: v.inc(self.r.choice("+-"), self.r.random() < 0.5),
            lambda: v.set(self.int(depth)),
            lambda: comma(self.int_load().set(self.int(depth)), self.int(depth)),
            lambda: v if self.helper else atomic("add", self.z + self.index(), self.int(depth)),
        )

    def int_load(self) -> E:
        """An element of the integer array; a helper does not get that, and takes a variable."""
        return self.r.choice(self.ints) if self.helper else self.z[self.index()]

    def float(self, depth: int = 2) -> E:
        if depth == 0 or self.r.random() < 0.3:
            return self.pick(
                lambda: const(self.r.choice([0.5, 1.0, -2.0]), F32),
                lambda: self.r.choice(self.floats),
                lambda: self.r.choice(self.floats),
                lambda: self.load(),
            )
        return self.pick(
            lambda: self.float(depth - 1) + self.float(depth - 1),
            lambda: self.float(depth - 1) - self.float(depth - 1),
            lambda: self.float(depth - 1) * self.float(depth - 1),
            lambda: math_call("fabs", self.float(depth - 1)),
            lambda: cond(self.bool(depth - 1), self.float(depth - 1), self.float(depth - 1)),
            lambda: self.int(depth - 1).to(F32),
            lambda: self.call(depth - 1),
        )

    def load(self) -> E:
        if self.arrays and self.r.random() < 0.4:
            return self.r.choice(self.arrays)[self.index()]
        return self.r.choice(self.pointers)[self.index()]

    def call(self, depth: int) -> E:
        return (
            self.float(depth)
            if self.helper
            else call(make_helper(self.r), self.float(depth), self.r.choice(self.ints), self.r.choice(self.pointers))
        )

    def bool(self, depth: int = 2) -> E:
        if depth <= 0 or self.r.random() < 0.4:
            a, b = self.pick(lambda: (self.int(1), self.int(1)), lambda: (self.float(1), self.float(1)))
            return self.pick(lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b, lambda: a.ne(b))
        return self.pick(
            lambda: self.bool(depth - 1) & self.bool(depth - 1),
            lambda: self.bool(depth - 1) | self.bool(depth - 1),
            lambda: ~self.bool(depth - 1),
        )

    # --- statements ---

    def block(self, depth: int) -> list[Any]:
        saved = [list(v) for v in (self.ints, self.floats, self.pointers, self.arrays, self.fixed)]
        body = [self.stmt(depth) for _ in range(self.r.randrange(1, 4))]
        self.ints, self.floats, self.pointers, self.arrays, self.fixed = saved
        return body

    def stmt(self, depth: int) -> Any:
        self.size += 1
        simple = [self.declare_int, self.declare_float, self.declare_pointer, self.declare_array, self.declare_reference]
        simple += [self.assign] * 4 + [self.store] * 4 + [self.accumulate] * 2 + [self.move]
        control = [self.if_] * 3 + [self.count, self.count, self.odd_loop, self.exit] if depth and self.size < 60 else [self.exit]
        return self.r.choice(simple + control)() if depth == 0 else self.r.choice([*simple, *(lambda c=c: c(depth - 1) for c in control)])()

    def declare_int(self) -> Any:
        v = var("i")
        s = declare(v, self.int())
        self.ints.append(v)
        return s

    def declare_float(self) -> Any:
        v = var("f", F32)
        s = declare(v, self.float())
        self.floats.append(v)
        return s

    def declare_pointer(self) -> Any:
        v = pointer("p")
        s = declare(v, self.address())
        self.pointers.append(v)
        return s

    def declare_array(self) -> Any:
        v = var("m", Array(F32, N))
        s = declare(v, [self.float(0) for _ in range(N)] if self.r.random() < 0.7 else [0.0] * N)
        self.arrays.append(v)
        return s

    def declare_reference(self) -> Any:
        v = var("r", F32, reference=True)
        s = declare(v, self.pick(lambda: self.r.choice(self.floats), self.load))
        self.floats.append(v)
        return s

    def address(self) -> E:
        p, q = self.r.choice(self.pointers), self.r.choice(self.pointers)
        return self.pick(lambda: p, lambda: cond(self.bool(1), p, q))

    def move(self) -> Any:
        own = [p for p in self.pointers if p.tree.declaration.name == "p"]
        if not own:
            return self.store()
        return self.r.choice(own).set(self.address())

    def assign(self) -> Any:
        v, w = self.r.choice(self.ints), self.r.choice(self.floats)
        op = self.r.choice("+-*")
        return self.pick(
            lambda: v.set(self.int()), lambda: w.set(self.float()), lambda: v.update(op, self.int()), lambda: w.update(op, self.float())
        )

    def store(self) -> Any:
        return self.pick(lambda: self.load().set(self.float()), lambda: self.int_load().set(self.int()))

    def accumulate(self) -> Any:
        at = self.load()
        op = self.r.choice("+-*")
        same = at + self.float(1) if op == "+" else at - self.float(1)
        return self.pick(
            lambda: at.update(op, self.float()), lambda: at.set(same), lambda: atomic("add", self.y + self.index(), self.float())
        )

    def if_(self, depth: int) -> Any:
        return if_(self.bool(), self.block(depth), self.block(depth) if self.r.random() < 0.5 else None)

    def count(self, depth: int) -> Any:
        j, bound = var("j"), self.pick(lambda: const(self.r.randrange(5)), lambda: masked(self.int(1), 3))
        up, amount = self.r.random() < 0.6, self.r.choice([1, 1, 2, 3])
        inside = self.loop_body(depth, "fixed" if self.r.random() < 0.8 else "ints", j)
        step = self.pick(
            lambda: j.inc("+" if up else "-"), lambda: j.update("+" if up else "-", amount), lambda: j.set(j + amount if up else j - amount)
        )
        test = self.pick(lambda: j < bound, lambda: j <= bound) if up else self.pick(lambda: j > bound, lambda: j >= bound)
        if up and self.r.random() < 0.2:
            test = j.to(U32) < bound.to(U32)
        start = const(self.r.randrange(3) if up else self.r.randrange(6))
        return for_(declare(j, start), test, step, inside)

    def loop_body(self, depth: int, into: str, v: E) -> list[Any]:
        saved = list(getattr(self, into))
        self.loops += 1
        getattr(self, into).append(v)
        body = self.block(depth)
        setattr(self, into, saved)
        self.loops -= 1
        return body

    def odd_loop(self, depth: int) -> Any:
        k = var("k")
        left = (k.inc("-", False) > 0) if self.r.random() < 0.5 else (k.inc("-") > 0)
        test = left & self.bool(1) if self.r.random() < 0.5 else left
        body = self.loop_body(depth, "fixed", k)
        start = declare(k, self.r.randrange(5))
        return [start, self.pick(lambda: while_(test, body), lambda: do_(body, test), lambda: for_(None, test, None, body))]

    def exit(self, depth: int = 0) -> Any:
        what = return_() if not self.helper else return_(self.float(1))
        leave = self.r.choice([what, break_(), continue_(), break_(), continue_()]) if self.loops else what
        return if_(self.bool(1), [self.assign(), leave])

    def kernel(self) -> Any:
        body = [s for _ in range(6) for s in [self.stmt(3)]]
        tail = [self.y[masked(v, N - 1)].set(f) for v, f in zip(self.ints, self.floats, strict=False)]
        return function("k", [self.x, self.y, self.z, self.n, self.a], body + tail)


def masked(e: E, mask: int) -> E:
    return e._binary("&", mask)


def raised(e: E, mask: int) -> E:
    return e._binary("|", mask)


def make_helper(r: random.Random) -> Any:
    g = Generator(r.randrange(10**9))
    g.helper = True
    f, i, p = var("f", F32, reference=False), var("i", reference=True), pointer("p")
    g.ints, g.floats, g.pointers, g.y = [i], [f], [p], p
    g.size = 50
    body = [g.stmt(2) for _ in range(3)]
    return function("h", [f, i, p], [*body, return_(g.float(1))], F32)


def run_both(kernel: Any, seed: int, executor: Any) -> None:
    r = np.random.default_rng(seed)
    x, y = (r.integers(-4, 5, N).astype(np.float32) for _ in range(2))
    z = r.integers(-4, 5, N).astype(np.int32)
    n, a = int(r.integers(0, 6)), float(r.integers(-2, 3))
    lists = [x.tolist(), y.tolist(), z.tolist()]
    index = {(name, axis): int(name.endswith("Dim")) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"}
    Interpreter(index).run(kernel, [*((values, 0) for values in lists), n, a])
    core = normalize(kernel)
    verify(core)
    try:
        executor.launch(core, (1, 1, 1), (1, 1, 1), [Memory(x), Memory(y), Memory(z), np.int32(n), np.float32(a)])
        for array, expected in zip((x, y, z), lists, strict=True):
            np.testing.assert_array_equal(array, np.array(expected, dtype=array.dtype))
    except Exception:
        print(to_text(core))
        raise


def one(seed: int, executor: Any) -> bool:
    kernel = Generator(seed).kernel()
    try:
        for trial in range(3):
            run_both(kernel, trial, executor)
    except (Steps, RecursionError):
        return False
    return True


@pytest.mark.parametrize("part", range(-(-cases(25, 200) // 25)))
def test_random_programs(part: int) -> None:
    executor = Reference(check=False)
    assert sum(one(seed, executor) for seed in range(25 * part, 25 * part + 25)) > 12
