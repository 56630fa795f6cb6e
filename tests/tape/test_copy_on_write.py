"""Shadows of temporaries are shared until one of them is written; a user's own shadow never is."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, ops, pipeline
from gpuad.arguments.arrays import address
from gpuad.runtime.actions import Copying
from gpuad.runtime.base import Memory
from gpuad.runtime.reference import Reference
from gpuad.tape.facade import recording_of

N = 5


class Watched(Reference):
    """Keeps which reverse kernels ran and where their arguments lay, and counts new arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.reversed: list[list[int]] = []
        self.made = 0

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any, **keywords: Any) -> None:
        if kernel.name.endswith("_reverse"):
            self.reversed.append([address(a.root) for a in args if isinstance(a, Memory)])
        super().launch(kernel, grid, block, args, **keywords)

    def zeros(self, length: int, dtype: Any) -> Any:
        self.made += 1
        return super().zeros(length, dtype)


@contextmanager
def _watched() -> Iterator[Watched]:
    executor = Watched()
    with pipeline.executor_for_tests(executor):
        yield executor


def _pair(seed: int) -> Duplicated:
    x = np.random.default_rng(seed).uniform(0.5, 1.5, N)
    return Duplicated(x, np.zeros(N))


def test_a_sum_of_temporaries_shares_its_shadow() -> None:
    u, v, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    with _watched() as executor:
        with tape:
            p, q = u * u, v * v
            z = p + q
            ops.multiply(z, z, out=out)
        tape.reverse({out: 1.0})
    assert len(executor.reversed) == 3  # of the sum nothing is run
    squares, of_v, of_u = executor.reversed
    assert set(squares) & set(of_v) & set(of_u) == {address(z.shadow)}
    total = u.primal**2 + v.primal**2
    np.testing.assert_allclose(u.shadow, 4 * total * u.primal)
    np.testing.assert_allclose(v.shadow, 4 * total * v.primal)
    for t in (p, q, z):
        np.testing.assert_array_equal(t.shadow, 0)


def test_who_writes_first_gets_a_copy() -> None:
    """p is used before the sum too, so something is added to its shadow while q lives in the same place."""
    u, v, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            p, q = u * u, v * v
            r = ops.exp(p)
            z = p + q
            ops.multiply(z, r, out=out)
        tape.reverse({out: 1.0})
    a, b = u.primal**2, v.primal**2
    np.testing.assert_allclose(u.shadow, (np.exp(a) + (a + b) * np.exp(a)) * 2 * u.primal)
    np.testing.assert_allclose(v.shadow, np.exp(a) * 2 * v.primal)


def test_a_users_shadow_is_never_lent() -> None:
    """z = x + y of ChainRules' issue 350: what is added to dx later must not move dy."""
    x, y, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            ops.add(x, x * 1.0, out=out)
            ops.add(x, y, out=out)
        tape.reverse({out: 1.0})
    assert len({address(a.shadow) for a in (x, y, out)}) == 3
    np.testing.assert_array_equal(x.shadow, 1)
    np.testing.assert_array_equal(y.shadow, 1)
    x.shadow[...] += 5
    np.testing.assert_array_equal(y.shadow, 1)


def test_the_same_program_again_allocates_no_shadow() -> None:
    u, v, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    first: Any = None
    with _watched() as executor:
        for _ in range(3):
            u.shadow[...] = v.shadow[...] = 0
            before = executor.made
            with tape:
                p, q = u * u, v * v
                r = ops.exp(p)
                ops.multiply(p + q, r, out=out)
            tape.reverse({out: 1.0})
            gradient = u.shadow.copy()
            if first is not None:
                assert executor.made == before and tape.stats.allocations == 0
                np.testing.assert_array_equal(gradient, first)
            first = gradient


def test_a_seed_for_a_temporary() -> None:
    u, v = _pair(0), _pair(1)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            p = u * v
            z = p + p
        tape.reverse({z: np.arange(N, dtype=float), p: 1.0})
    np.testing.assert_allclose(u.shadow, (2 * np.arange(N) + 1) * v.primal)


def test_a_chain_of_sums_and_slices() -> None:
    u, v, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            p, q = u * u, v * v
            s = p + q
            t = s + q
            w = t + s
            w[1:] += q[:-1]
            ops.multiply(w, w, out=out)
        tape.reverse({out: 1.0})
    a, b = u.primal**2, v.primal**2
    w0 = 2 * a + 3 * b
    w0[1:] += b[:-1]
    dw = 2 * w0
    np.testing.assert_allclose(u.shadow, 2 * dw * 2 * u.primal)
    db = 3 * dw
    db[:-1] += dw[1:]
    np.testing.assert_allclose(v.shadow, db * 2 * v.primal)


def test_elements_of_a_shared_shadow_are_not_cleared_in_place() -> None:
    """Some elements of q are overwritten: nobody looks at those of its shadow, but p, which lives in the same place, needs them."""
    u, v, out = _pair(0), _pair(1), _pair(2)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            p, q = u * u, v * v
            q[2:4] = u[1:3]
            ops.copyto(out, p + q)
        tape.reverse({out: 1.0})
    np.testing.assert_allclose(u.shadow, 2 * u.primal + np.array([0, 1, 1, 0, 0]))
    np.testing.assert_allclose(v.shadow, 2 * v.primal * np.array([1, 1, 0, 0, 1]))


def test_a_temporary_of_an_earlier_recording_is_refused() -> None:
    """The memory of its shadow is another's by now."""
    u, out = _pair(0), _pair(1)
    tape = gpuad.Tape()
    with _watched():
        with tape:
            p = u * 2.0
            ops.copyto(out, p)
        tape.reverse({out: 1.0})
        with tape, pytest.raises(gpuad.errors.ShadowError, match="a temporary of an earlier recording"):
            ops.copyto(out, p)
        with tape:
            q = Duplicated(p.primal)
            ops.copyto(out, q * q)
        tape.reverse({out: 1.0})
    np.testing.assert_allclose(q.shadow, 2 * p.primal)


# --- random expressions ---------------------------------------------------------------------------------------------------------------

UNARY = {"exp": lambda x: np.exp(0.3 * x), "copy": lambda x: x + 0, "negative": lambda x: -x}


def _expression(rng: random.Random) -> list[tuple[Any, ...]]:
    """Steps over a growing list of values, the first two of which are inputs and not written."""
    steps: list[tuple[Any, ...]] = []
    count = 2
    for _ in range(rng.randint(4, 14)):
        a, b = rng.randrange(count), rng.randrange(count)
        kind = rng.choice(("add", "add", "add", "subtract", "multiply", "exp", "copy", "negative", "inplace", "slice", "assign", "take"))
        if kind in ("inplace", "slice", "assign", "take"):
            a = rng.randrange(2, count) if count > 2 else -1
            if a < 0 or (a == b and kind != "inplace"):
                continue
            steps.append((kind, a, b))
            continue
        steps.append((kind, a, b))
        count += 1
    return steps


def _run(steps: list[tuple[Any, ...]], values: list[Any], module: Any) -> Any:
    for kind, a, b in steps:
        x, y = values[a], values[b]
        if kind in ("add", "subtract", "multiply"):
            values.append({"add": x + y, "subtract": x - y, "multiply": x * y}[kind] if module is np else getattr(ops, kind)(x, y))
        elif kind in UNARY:
            scaled = x * 0.3 if kind == "exp" else x
            values.append(UNARY[kind](x) if module is np else getattr(ops, kind)(scaled))
        elif kind == "inplace":
            x += y
        elif kind == "slice":
            x[1:] += y[:-1]
        elif kind == "take":
            x[2:4] = y[1:3]
        else:
            x[...] = y
    return values[-1]


CHUNK = 50 if os.environ.get("GPUAD_NIGHTLY") else 15


@pytest.mark.parametrize("chunk", range(-(-int(os.environ.get("GPUAD_NIGHTLY") or CHUNK) // CHUNK)))
def test_random_expressions(chunk: int) -> None:
    """Against the complex step."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        rng = random.Random(seed)
        steps = _expression(rng)
        inputs = [np.random.default_rng(seed).uniform(0.3, 0.9, N), np.random.default_rng(seed + 1).uniform(0.3, 0.9, N)]
        weights = np.random.default_rng(seed + 2).standard_normal(N)
        wanted = [np.array([_slope(steps, inputs, weights, k, i) for i in range(N)]) for k in range(2)]
        for save in ("needed", "all"):
            pairs = [Duplicated(x.copy(), np.zeros(N)) for x in inputs]
            tape = gpuad.Tape(save=save)
            with _watched():
                for again in range(2):
                    for p in pairs:
                        p.shadow[...] = 0
                    with tape:
                        last = _run(steps, list(pairs), ops)
                    if any(last is p for p in pairs):
                        break
                    if again:
                        last.shadow[...] = weights
                        tape.reverse()
                    else:
                        tape.reverse({last: weights})
                    for p, w in zip(pairs, wanted, strict=True):
                        np.testing.assert_allclose(p.shadow, w, rtol=1e-10, atol=1e-12, err_msg=f"seed {seed}: {steps}")


def _slope(steps: list[tuple[Any, ...]], inputs: list[Any], weights: Any, k: int, i: int) -> float:
    moved = [x.astype(complex) for x in inputs]
    moved[k][i] += 1e-30j
    return float((_run(steps, list(moved), np) @ weights).imag / 1e-30)


def test_a_shadow_that_is_at_home_is_not_moved_for_a_rule() -> None:
    """By whichever array of it a rule comes to it: there was one copy away from home, and one back."""
    x, tape = _pair(0), gpuad.Tape()
    with tape:
        y = ops.matmul(ops.exp(x), np.eye(N))
        loss = ops.sum(ops.sqrt(y))
    tape.reverse({loss: 1.0})
    (plan,) = recording_of(tape).reversals.plans.values()
    assert not [name for action, name, _ in plan.parts if isinstance(action, Copying)]
    np.testing.assert_allclose(x.shadow, 0.5 * np.sqrt(np.exp(x.primal)))
