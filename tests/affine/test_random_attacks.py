"""Random pairs of kernels, one of which may be the other with something small changed: a certificate is given to none that differ."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from test_certificates import expression, threads, value

from gpuad.affine.certificate import Run, refused
from gpuad.affine.effects import Shape
from gpuad.ir.nodes import Accumulate, Binary, Block, Buffer, Cast, Constant, Expr, How, If, LaunchIndex, Let, Load, Var
from gpuad.ir.rewrite import map_expr
from gpuad.ir.types import BOOL, F64, I32, I64

SEEDS = int(os.environ.get("GPUAD_NIGHTLY") or 0) * 4 or 60
GRID, BLOCK = (3, 2, 1), (3, 2, 1)
DX, DV, A = (Buffer(name, F64, uid=k) for k, name in enumerate(("dx", "dv", "a"), 7))


@dataclass(frozen=True)
class Adding:
    """`if (low <= where) dx[to] += a[factor] * dv[seed];` by each thread."""

    where: Expr
    low: int
    to: Expr
    factor: Expr
    seed: Expr

    def statement(self, uid: int) -> Block:
        a, dv = Var("a", F64, uid=uid), Var("d", F64, uid=uid + 1)
        i, j, k = (Cast(e, I64) if e.type != I64 else e for e in (self.to, self.factor, self.seed))
        adding = (Load(a, A, j), Load(dv, DV, k), Accumulate(DX, i, Binary("*", a, dv, F64), How.ATOMIC))
        condition = Var("c", BOOL, uid=uid + 2)
        return (Let(condition, Binary(">=", self.where, Constant(self.low, self.where.type), BOOL)), If(condition, adding))

    def does(self) -> Counter[tuple[int, int, int]]:
        """What is added, by element, factor and seed."""
        found: Counter[tuple[int, int, int]] = Counter()
        for thread in threads(GRID, BLOCK):
            if value(self.where, thread, GRID, BLOCK) >= self.low:
                found[tuple(value(e, thread, GRID, BLOCK) for e in (self.to, self.factor, self.seed))] += 1  # type: ignore[index]
        return found

    def mapped(self, change: Callable[[Expr], Expr], only: int | None = None) -> Adding:
        parts = [change(e) if only in (None, k) else e for k, e in enumerate((self.where, self.to, self.factor, self.seed))]
        return Adding(parts[0], self.low, *parts[1:])


def other_axis(expr: Expr) -> Expr:
    return LaunchIndex(expr.name, "y" if expr.axis == "x" else "x") if isinstance(expr, LaunchIndex) else expr


def turned(expr: Expr) -> Expr:
    """Blocks in the other order."""
    if not isinstance(expr, LaunchIndex) or expr.name != "blockIdx" or expr.axis != "x":
        return expr
    return Binary("-", Constant(GRID[0] - 1, expr.type), expr, expr.type)


def nudged(rng: random.Random) -> Callable[[Expr], Expr]:
    """One constant is another one."""
    left = [rng.randint(0, 3)]

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Constant) and expr.type.is_integer:
            left[0] -= 1
            if left[0] == -1:
                return Constant(int(expr.value) + 1, expr.type)
        return expr

    return change


def swapped(expr: Expr) -> Expr:
    return Binary(expr.op, expr.right, expr.left, expr.type) if isinstance(expr, Binary) and expr.op == "+" else expr


def near(rng: random.Random, one: Adding) -> Adding:
    """The same by other threads or in other words, or nearly so."""
    only = rng.choice([None, None, 0, 1, 2, 3])
    way = rng.choice([other_axis, turned, swapped, nudged(rng), nudged(rng)])
    found = one.mapped(lambda e: map_expr(e, way), only)
    return Adding(found.where, one.low + rng.choice([0, 0, 0, 1]), found.to, found.factor, found.seed)


def plain_index(rng: random.Random) -> Expr:
    """A thread's place, in one or two dimensions."""
    x, y = (
        Cast(
            Binary(
                "+",
                Binary("*", LaunchIndex("blockIdx", a), LaunchIndex("blockDim", a), LaunchIndex("blockIdx", a).type),
                LaunchIndex("threadIdx", a),
                LaunchIndex("blockIdx", a).type,
            ),
            I32,
        )
        for a in "xy"
    )
    far = Binary(
        "+", Binary("*", y, Constant(rng.choice([1, 3, 9]), I32), I32), Binary("*", x, Constant(rng.choice([1, 1, 4]), I32), I32), I32
    )
    return rng.choice([far, far, Binary("+", far, Constant(rng.randint(-2, 2), I32), I32), x])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("seed", range(SEEDS // 20))
def test_no_pair_that_differs_is_certified(seed: int) -> None:
    rng = random.Random(seed)
    certified = 0
    for _ in range(20):
        pick = lambda: plain_index(rng) if rng.random() < 0.7 else expression(rng, 3)  # noqa: E731
        parts = [Adding(pick(), rng.randint(-2, 4), pick(), pick(), pick()) for _ in range(rng.choice([1, 1, 2]))]
        other = [near(rng, part) for part in reversed(parts)]
        sides = [
            tuple(s for k, part in enumerate(side) for s in part.statement(100 * n + 10 * k)) for n, side in enumerate((parts, other), 1)
        ]
        shape = Shape(GRID, BLOCK, {})
        if refused(Run(sides[0], shape), [Run(sides[1], shape)], [DX]):
            continue
        certified += 1
        assert sum((p.does() for p in parts), Counter()) == sum((p.does() for p in other), Counter())
    assert certified or seed
