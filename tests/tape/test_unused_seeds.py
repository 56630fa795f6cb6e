"""Seeds that nothing with a shadow reaches: zeros that are right and useless (RULES 29)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, Tape, TapeError, ops, stop_gradient

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
STEP = f'extern "C" __global__ void step(double* u, int n) {{ {HEAD} if (i < n) u[i] = u[i] * u[i]; }}'
INSIDE = (
    f'extern "C" __global__ void inside(const double* u, double* v, int n) {{ {HEAD} if (i > 0 && i < n - 1) v[i] = u[i - 1] + u[i + 1]; }}'
)
SCALED = f'extern "C" __global__ void scaled(double* u, double a, int n) {{ {HEAD} if (i < n) u[i] = a; }}'
N = 6


@pytest.fixture(autouse=True, params=["reference", "host"])
def executor(request: Any) -> Iterator[None]:
    with running(request.param):
        yield


def step(x: Any) -> None:
    gpuad.kernel(STEP, "step")(1, 8, (x, N))


class Program:
    """`H[...] = h0; step(H); loss = sum(H)`, with what comes first given."""

    def __init__(self) -> None:
        self.h, self.h0, self.loss, self.tape = Duplicated(np.ones(N)), np.arange(1.0, N + 1), Duplicated(np.zeros(())), Tape()

    def record(self, first: Any, how: str = "a temporary") -> Any:
        with self.tape:
            first(self)
            step(self.h)
            if how == "a temporary":
                return ops.sum(self.h)
            ops.sum(self.h, out=self.loss)
        return self.loss


def _in_parts(p: Program) -> None:
    for k in range(0, N, 2):
        p.h[k : k + 2] = p.h0[k : k + 2]


def _announced(p: Program) -> None:
    p.tape.overwrites(p.h)
    p.h.primal[...] = p.h0


CUTS = {
    "copyto": lambda p: p.h.__setitem__(..., p.h0),
    "fill": lambda p: p.h.fill(2.0),
    "in parts": _in_parts,
    "a kernel": lambda p: gpuad.kernel(SCALED, "scaled")(1, 8, (p.h, 0.5, N)),
    "announced": _announced,
    "a constant": lambda p: p.h.__setitem__(..., Const(p.h0)),
    "a stopped pair": lambda p: p.h.__setitem__(..., stop_gradient(Duplicated(p.h0))),
    "a temporary of plain data": lambda p: p.h.__setitem__(..., Duplicated(p.h0 * 2).primal),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("how", ["a temporary", "an array"])
@pytest.mark.parametrize("cut", CUTS)
def test_every_path_is_cut(cut: str, how: str) -> None:
    """In every round, before any shadow is touched; and by name it is all right."""
    p = Program()
    p.h.shadow[...] = 7.0
    for _ in range(3):
        loss = p.record(CUTS[cut], how)
        with pytest.raises(TapeError, match=r"\(test_unused_seeds.py:\d+\) overwrites its `\w+` before .* `H.primal\[...\] = h0` before"):
            p.tape.reverse({loss: 1.0})
        assert p.h.shadow.tolist() == [7.0] * N
    with pytest.raises(TapeError, match="allow_unused=True"):
        p.tape.graph({loss: 1.0})
    p.tape.reverse({loss: 1.0}, allow_unused=True)
    assert not p.h.shadow.any()


def test_the_line_is_that_of_the_overwrite() -> None:
    p = Program()
    line = _in_one_line.__code__.co_firstlineno + 1
    loss = p.record(_in_one_line)
    with pytest.raises(TapeError, match=rf"copyto \(test_unused_seeds.py:{line}\)"):
        p.tape.reverse({loss: 1.0})


def _in_one_line(p: Program) -> None:
    p.h[...] = p.h0


def test_seeds_that_come_from_plain_data() -> None:
    x, y, z, tape = Duplicated(np.ones(N)), Duplicated(np.zeros(N)), Duplicated(np.zeros(N)), Tape()
    with tape:
        ops.copyto(y, x)
        ops.multiply(np.arange(N), 2.0, out=z)
    with pytest.raises(TapeError, match=r"which come from plain data alone: multiply \(test_unused_seeds.py:\d+\)"):
        tape.reverse({z: 1.0})
    tape.reverse({z: 1.0, y: 1.0})
    assert x.shadow.tolist() == [1.0] * N


def _before(p: Program) -> None:
    p.h.primal[...] = p.h0


REACHED = {
    "nothing is overwritten": lambda p: None,
    "written before": lambda p: None,
    "a pair of its own": lambda p: p.h.__setitem__(..., Duplicated(p.h0)),
    "one element is left": lambda p: p.h.__setitem__(slice(1, None), 1.0),
    "added to": lambda p: p.h.__iadd__(p.h0),
    "in place": lambda p: p.h.__imul__(0.0),
    "a number": lambda p: gpuad.kernel(SCALED, "scaled")(1, 8, (p.h, Active(0.5, np.zeros(())), N)),
    "another array": lambda p: ops.multiply(Duplicated(p.h0), 2.0, out=p.h),
    "in a temporary": lambda p: p.h.__setitem__(..., Duplicated(p.h0) * 2.0),
    "at indices": lambda p: p.h.__setitem__(np.arange(N), 1.0),
}


@pytest.mark.parametrize("name", REACHED)
def test_no_false_alarm(name: str) -> None:
    """What is zero by its values is no matter, nor what may be left of an array for all that can be told."""
    p = Program()
    loss = p.record(REACHED[name])
    p.tape.reverse({loss: 1.0})


def test_no_false_alarm_for_edges_that_stay() -> None:
    u, v, tape = Duplicated(np.ones(N)), Duplicated(np.ones(N)), Tape()
    for _ in range(2):
        with tape:
            u[1:-1] = 0.0
            gpuad.kernel(INSIDE, "inside")(1, 8, (u, v, N))
        tape.reverse({v[1:-1]: 1.0})
        assert u.shadow.tolist() == [1, 0, 0, 0, 0, 1]


def test_no_false_alarm_for_what_is_only_read() -> None:
    h, k, tape = Duplicated(np.ones(N)), Duplicated(np.full(N, 2.0)), Tape()
    with tape:
        h[...] = 3.0
        h *= k
    tape.reverse({h: 1.0})
    assert k.shadow.tolist() == [3.0] * N


@pytest.mark.parametrize("options", [{"restore": True}, {"check": "exact"}, {"save": "all"}])
def test_on_all_tapes(options: Any) -> None:
    p = Program()
    p.tape = Tape(**options)
    loss = p.record(CUTS["copyto"])
    with pytest.raises(TapeError, match="overwrites its"):
        p.tape.reverse({loss: 1.0})
    if options.get("restore"):
        p.tape.reverse({loss: 1.0}, allow_unused=True)
        assert p.h.primal.tolist() == [1.0] * N


def test_without_seeds_nothing_is_asked() -> None:
    p = Program()
    p.record(CUTS["copyto"])
    p.h.shadow[...] = 1.0
    p.tape.reverse()
    assert not p.h.shadow.any()
    p.record(CUTS["copyto"])
    p.tape.reverse({})


def test_batches() -> None:
    x, tape = BatchDuplicated(np.ones(N), (np.zeros(N), np.zeros(N))), Tape()
    with tape:
        step(x)
    tape.reverse({x: (1.0, 2.0)})
    with tape:
        gpuad.kernel(SCALED, "scaled")(1, 8, (x, 0.5, N))
        step(x)
    with pytest.raises(TapeError, match="overwrites its"):
        tape.reverse({x: (1.0, 2.0)})


def _reset_reverse(dx: Any) -> None: ...


@gpuad.rule(overwrites=("x",), reverse=_reset_reverse)
def reset(x: Any) -> None:
    x[...] = 0.5


def test_a_rule_that_overwrites() -> None:
    p = Program()
    loss = p.record(lambda p: reset(p.h))
    with pytest.raises(TapeError, match=r"reset \(test_unused_seeds.py:\d+\) overwrites its `x`"):
        p.tape.reverse({loss: 1.0})


def test_seeds_that_change_from_round_to_round() -> None:
    """The check is of the plan that is kept for seeds: each is asked."""
    p = Program()
    k = Duplicated(np.ones(()))
    for _ in range(3):
        with p.tape:
            p.h[...] = p.h0
            step(p.h)
            loss = ops.sum(p.h)
            other = loss * k
        p.tape.reverse({other: 1.0}) if _ % 2 else p.tape.reverse({loss: 1.0}, allow_unused=True)


def test_variables_of_the_module_and_numbers_by_value_reach() -> None:
    text = f"""__constant__ double w[2]; extern "C" __global__ void weighted(double* u, int n) {{ {HEAD} if (i < n) u[i] = w[i % 2]; }}"""
    k, dw, u, tape = gpuad.kernel(text, "weighted"), np.zeros(2), Duplicated(np.ones(N)), Tape()
    k.get_global("w")[...] = 2.0
    with tape:
        k.with_shadow("w", dw)(1, 8, (u, N))
    tape.reverse({u: 1.0})
    assert dw.tolist() == [3.0, 3.0]
    pair = f'extern "C" __global__ void both(double* u, double2 a, int n) {{ {HEAD} if (i < n) u[i] = a.x + a.y; }}'
    da = np.zeros(2)
    with tape:
        gpuad.kernel(pair, "both")(1, 8, (u, Active((0.5, 0.25), da), N))
    tape.reverse({u: 1.0})
    assert da.tolist() == [6.0, 6.0]


def test_a_program_of_many_launches() -> None:
    """Two fields in turns, from given values: the first overwrite of each is named."""
    k = gpuad.kernel(f'extern "C" __global__ void to(const double* u, double* v, int n) {{ {HEAD} if (i < n) v[i] = 2 * u[i]; }}', "to")
    u, v, tape = Duplicated(np.ones(N)), Duplicated(np.ones(N)), Tape()
    with tape:
        u[...] = np.arange(N)
        for _ in range(20):
            k(1, 8, (u, v, N))
            k(1, 8, (v, u, N))
    with pytest.raises(TapeError, match=r"are 0: copyto \(test_unused_seeds.py:\d+\) overwrites its `out` before"):
        tape.reverse({u: 1.0})


# --- no seeds --------------------------------------------------------------------------------------------------------------------------

UNSEEDED = {
    "made shadows": lambda: (Duplicated(np.ones(N)), Duplicated(np.zeros(N))),
    "given shadows": lambda: (Duplicated(np.ones(N), np.zeros(N)), Duplicated(np.zeros(N), np.zeros(N))),
    "several shadows": lambda: tuple(BatchDuplicated(np.ones(N), tuple(np.zeros(N) for _ in range(3))) for _ in range(2)),
    "what is only read": lambda: (Duplicated(np.ones(N), np.ones(N)), Duplicated(np.zeros(N))),
}


@pytest.mark.parametrize("kind", UNSEEDED)
def test_a_reverse_without_seeds_where_nothing_is_seeded(kind: str) -> None:
    """In every round, and no shadow is touched; by name it is all right, and one element that is not 0 is a seed."""
    u, v = UNSEEDED[kind]()
    inside, tape = gpuad.kernel(INSIDE, "inside"), Tape()
    for seed in (None, 2, 0, None):  # element 0 is not written by the program, but its array is
        with tape:
            inside(1, 8, (u, v, N))
        shadows = v.shadows if isinstance(v, BatchDuplicated) else (v.shadow,)
        before = (u.shadows if isinstance(u, BatchDuplicated) else (u.shadow,))[-1].copy()
        if seed is None:
            with pytest.raises(TapeError, match=r"nothing is seeded.*`reverse\({loss: 1.0}\)`.*allow_unused=True"):
                tape.reverse()
        else:
            shadows[-1][seed] = 5.0
        tape.reverse(allow_unused=seed is None)
        after = (u.shadows if isinstance(u, BatchDuplicated) else (u.shadow,))[-1]
        np.testing.assert_array_equal(after - before, [0, 5, 0, 5, 0, 0] if seed == 2 else 0)
        for shadow in shadows:
            shadow.fill(0)


def test_a_loss_without_a_seed() -> None:
    x, tape = Duplicated(np.arange(1.0, N + 1)), Tape()
    with tape:
        loss = ops.sum(x * x)
    with pytest.raises(TapeError, match="nothing is seeded"):
        tape.reverse()
    loss.shadow[...] = 1.0
    tape.reverse()
    np.testing.assert_array_equal(x.shadow, 2 * x.primal)
