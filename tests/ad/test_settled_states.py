"""States that a launch leaves in memory: the reverse reads them there, where nothing of the launch comes to them after it was read, and
where whatever overwrites them later is seen by whoever keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running
from tape_tools import run, run_again

import gpuad
from gpuad import BudgetError, Duplicated, api
from gpuad.tape.facade import recording_of
from gpuad.testing import check_gradient

N, STEPS = 8, 4  # threads, which each have a column, and iterations
ROWS = STEPS + 2

SOURCE = r"""
#define K extern "C" __global__ void
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define F for (int t = 0; t < steps; ++t)

K recurrence(double* h, const double* x, int steps, int n) {
    I; F h[(t + 1) * n + i] = 0.5 * h[t * n + i] * x[t * n + i] + sin(h[t * n + i]);
}
K backward(double* h, const double* x, int steps, int n) {
    I; for (int t = steps - 1; t >= 0; --t) h[t * n + i] = 0.6 * h[(t + 1) * n + i] * x[t * n + i] + cos(h[(t + 1) * n + i]);
}
K moments(double* p, const double* g, double* m, double* v, int n) {
    I; m[i] = 0.9 * m[i] + 0.1 * g[i]; v[i] = 0.8 * v[i] + 0.2 * g[i] * g[i]; p[i] -= m[i] / (sqrt(v[i]) + 0.3);
}
K maybe(double* y, const double* x, double* z, const int* mask, int n) { I; if (mask[i]) y[i] = sin(x[i]); z[i] = y[i] * y[i]; }
K indices(int* at, double* h, const double* x, int steps, int n) {
    I;
    F { at[(t + 1) * n + i] = (at[t * n + i] * 5 + 3) % steps; h[t * n + i] = x[at[(t + 1) * n + i] * n + i] * x[at[t * n + i] * n + i]; }
}
K rounded(float* h, const double* x, int steps, int n) { I; F h[(t + 1) * n + i] = sin(1.0 * h[t * n + i]) * x[t * n + i]; }
K slots(double* s, int from, int to, int n) {
    I; s[to * n + i] = 0.8 * sin(s[from * n + i]) * s[from * n + i]; s[4 * n + i] += s[to * n + i] * s[to * n + i];
}
K strides(double* y, const double* x, int pitch, int steps, int n) {
    I; F y[(t + 1) * pitch + i] = 0.6 * sin(y[t * pitch + i]) * x[t * n + i];
}

K again(double* h, const double* x, int steps, int n) {
    I; F { h[(t + 1) * n + i] = sin(h[t * n + i]) * x[i]; if (t == 2) h[n + i] = 0.5 * h[n + i] * h[n + i]; }
}
K folded(double* h, const double* x, int steps, int n) { I; F h[((t + 1) % 2) * n + i] = sin(h[(t % 2) * n + i]) * x[t * n + i]; }
K twice(double* h, double* z, int n) { I; h[i] = sin(h[i]); z[i] = h[i] * h[i]; h[i] = h[i] * z[i]; }
K parted(double* h, const double* x, double* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, next = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
    h[i] = sin(x[i]); __syncthreads(); z[i] = h[i] * h[next]; __syncthreads(); h[next] = z[next] * h[next];
}
K summed(double* h, const double* x, double* z, int n) {
    I; atomicAdd(&h[(i + 1) % n], x[i] * x[i]); z[i] = h[i] * h[i];
}
K counted(int* at, double* h, const double* x, int steps, int n) {
    I; double s = h[i];
    F { at[(t + 1) * n + i] = (at[t * n + i] * 5 + 3) % steps; for (int q = 0; q < at[(t + 1) * n + i]; ++q) s = sin(s) * x[q * n + i]; }
    h[i] = s;
}
K shrink(double* x, int n) { I; x[i] = 0.5 * x[i] * x[i] + 0.2; }
K fill(double* x, double value, int n) { I; x[i] = value; }
"""


def kernel(name: str) -> Any:
    return compiled(SOURCE, name)


def states(seed: int, count: int = 1) -> list[Any]:
    r = np.random.default_rng(seed)
    return [r.uniform(0.3, 1.1, ROWS * N) for _ in range(count)]


def saved(name: str, args: tuple[Any, ...]) -> set[str]:
    """What is saved of the state before a launch."""
    active = {
        d.name: Duplicated for d, a in zip(kernel(name).parameters, args, strict=True) if getattr(a, "dtype", None) in (float, np.float32)
    }
    found = kernel(name).adjoint(grid=2, block=N // 2, args=args, **active).explain()
    return {row.name for row in found.rows if row.topic in ("saved", "stack")}


H, X, Y, Z = states(0, 4)
MASK = np.arange(N, dtype=np.int32) % 2
AT = np.repeat(np.arange(ROWS, dtype=np.int32) % STEPS, N)
LEFT: dict[str, tuple[Any, ...]] = {
    "recurrence": (H, X, STEPS, N),
    "backward": (H, X, STEPS, N),
    "moments": (H, X, Y, Z, N),
    "maybe": (H, X, Y, MASK, N),
    "indices": (AT, H, X, STEPS, N),
    "rounded": (H.astype(np.float32), X, STEPS, N),
    "slots": (H, 0, 1, N),
    "strides": (H, X, N, STEPS, N),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", LEFT)
def test_what_a_launch_leaves_is_not_saved(name: str) -> None:
    with running("host"):
        assert not saved(name, LEFT[name])
        check_gradient(kernel(name), LEFT[name], grid=2, block=N // 2, tolerance=1e-6 if name == "rounded" else None, race_check=True)


CHANGED: dict[str, tuple[Any, ...]] = {
    "again": (H, X, STEPS, N),
    "folded": (H, X, STEPS, N),
    "twice": (H, Y, N),
    "parted": (H, X, Y, N),
    "slots": (H, 1, 1, N),
    "strides": (H, X, 0, STEPS, N),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", CHANGED)
def test_what_a_launch_overwrites_again_is_saved(name: str) -> None:
    """By the thread itself, by one beyond a barrier, or because a launch's numbers make two elements one."""
    with running("host"):
        assert saved(name, CHANGED[name])
        check_gradient(kernel(name), CHANGED[name], grid=2, block=N // 2, race_check=True)


def test_memory_that_threads_add_to_is_not_read_back() -> None:
    with running("host"), pytest.raises(gpuad.UnsupportedError, match="to which threads add atomically"):
        gpuad.autodiff(kernel("summed"), 2, N // 2, (*(Duplicated(a, np.ones_like(a)) for a in (H.copy(), X, Y.copy())), N))


def test_distances_that_are_zero_leave_other_premises_alone() -> None:
    """A slot that is overwritten by itself still has a stride: the same kernel, of which the distance alone is not taken for granted."""
    slots = api.kernel(SOURCE, "slots")
    with running("host"):
        gpuad.autodiff(slots, 2, N // 2, [Duplicated(H.copy(), np.ones_like(H)), 1, 1, N])
    made = [key[1] for key in slots.specializations if key[0] == "reverse"]
    assert [(p.optimistic, p.distances) for p in made] == [(True, True), (True, False)]


# --- within programs -------------------------------------------------------------------------------------------------------------------


def twin(name: str, *args: Any) -> None:
    kernel(name)[2, N // 2](*args)


def forwards(tape: Any, p: Any) -> None:
    """Each state is overwritten later: by the next launch, by a launch of another kind, by an array operation, and by a constant."""
    for _ in range(2):
        twin("recurrence", p["h"], p["x"], STEPS, N)
        twin("moments", p["x"], p["y"], p["m"], p["v"], N)
    twin("shrink", p["h"], N * 3)
    gpuad.ops.copyto(p["m"][N:], p["y"][:-N])
    twin("backward", p["m"], p["h"], STEPS, N)
    twin("fill", p["v"], 0.7, N)
    twin("slots", p["m"], 0, 1, N)
    twin("indices", p["at"], p["y"], p["m"], 3, N)
    twin("slots", p["y"], 2, 2, N)


def inputs() -> dict[str, Any]:
    return {**dict(zip("hxymv", states(1, 5), strict=True)), "at": AT.copy()}


def seeds() -> dict[str, Any]:
    r = np.random.default_rng(2)
    return {n: r.normal(size=ROWS * N) for n in "hxymv"}


def loss(values: dict[str, Any]) -> float:
    """The program without a tape, on arrays alone."""
    p = {n: v.copy() for n, v in values.items()}
    for_arrays = dict(p)
    forwards(None, for_arrays)
    return float(sum((p[n] * s).sum() for n, s in seeds().items()))


@pytest.mark.parametrize("executor", ["host", "reference"])
def test_states_that_are_overwritten_later_are_kept(executor: str) -> None:
    with running(executor):
        found = run(forwards, inputs(), seeds()).shadows
        r, at, step = np.random.default_rng(3), inputs(), 1e-6
        way = {n: r.normal(size=ROWS * N) for n in "hxymv"}
        ends = [loss({n: v + side * step * way[n] if n in way else v for n, v in at.items()}) for side in (1, -1)]
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert sum(float((found[n] * w).sum()) for n, w in way.items()) == pytest.approx(wanted, rel=1e-7)
        others = [run(forwards, inputs(), seeds(), gpuad.Tape(**how)).shadows for how in ({"save": "all"}, {"restore": True})]
        others += [other.shadows for _, other in run_again(forwards, inputs(), seeds())]
        with pytest.raises(BudgetError) as least:
            run(forwards, inputs(), seeds(), gpuad.Tape(budget=0))
        others += [run(forwards, inputs(), seeds(), gpuad.Tape(budget=int(least.value.smallest * f))).shadows for f in (1.0, 1.5)]
    for other in others:
        for n in way:
            np.testing.assert_allclose(other[n], found[n], rtol=1e-12, atol=1e-12)


def test_stacks_are_counted_before_the_launch() -> None:
    """How often the inner loop runs is what the launch is about to write: a budget that asks how deep stacks get must not look there."""

    def program(tape: Any, p: Any) -> None:
        for _ in range(3):
            twin("counted", p["at"], p["h"], p["x"], 3, N)

    garbage = {**inputs(), "at": np.where(np.arange(ROWS * N) < N, AT, 1 << 30).astype(np.int32)}
    with running("reference"):
        wanted = run(program, garbage, {"h": np.ones(ROWS * N)}).shadows
        with pytest.raises(BudgetError) as least:
            run(program, garbage, {"h": np.ones(ROWS * N)}, gpuad.Tape(budget=0))
        tape = gpuad.Tape(budget=least.value.smallest)
        found = run(program, garbage, {"h": np.ones(ROWS * N)}, tape).shadows
    assert recording_of(tape).most <= least.value.smallest
    for n, value in found.items():
        np.testing.assert_array_equal(value, wanted[n])


def test_a_split_pair_keeps_what_its_caller_overwrites() -> None:
    with running("host"):
        pairs = [Duplicated(a.copy(), np.ones_like(a)) for a in (H, X)]
        gpuad.autodiff(kernel("recurrence"), 2, N // 2, (*pairs, STEPS, N))
        forward, reverse = gpuad.autodiff_thunk(kernel("recurrence"), h=Duplicated, x=Duplicated)
        others = [Duplicated(a.copy(), np.ones_like(a)) for a in (H, X)]
        state = forward(2, N // 2, (*others, STEPS, N))
        others[0].primal[...] = 100.0
        reverse(2, N // 2, (*others, STEPS, N), state)
    for pair, other in zip(pairs, others, strict=True):
        np.testing.assert_allclose(other.shadow, pair.shadow, rtol=1e-13)


def test_products_with_the_hessian_read_tangents_as_the_launch_leaves_them() -> None:
    """Against differences of the gradient."""
    start, way = [states(4, 4), states(5, 4)], 1e-6
    args = lambda values, seed: [Duplicated(v.copy(), np.full_like(v, seed)) for v in values]  # noqa: E731
    with running("host"):
        primals, dots = args(start[0], 1.0), args(start[1], 0.0)
        gpuad.hvp(kernel("moments"), 2, N // 2, (*primals, N), (*dots, None))
        ends = []
        for side in (1, -1):
            moved = args([v + side * way * d for v, d in zip(*start, strict=True)], 1.0)
            gpuad.autodiff(kernel("moments"), 2, N // 2, (*moved, N))
            ends.append([m.shadow for m in moved])
    for dot, up, down in zip(dots, *ends, strict=True):
        np.testing.assert_allclose(dot.shadow, (up - down) / (2 * way), rtol=1e-6, atol=1e-8)


def test_views_of_one_memory_are_one_state() -> None:
    """The same launch, of arrays that do not overlap, that overlap by whole rows, and that are one."""
    for rows in (None, 0, 1, 2):
        with running("host"):
            base = Duplicated(states(6)[0], np.zeros(ROWS * N))
            other = Duplicated(states(7)[0], np.zeros(ROWS * N)) if rows is None else base[rows * N :]
            check_gradient(kernel("recurrence"), (base, other, 3, N), grid=2, block=N // 2)
            check_gradient(kernel("recurrence"), (other, base, 3, N), grid=2, block=N // 2)
