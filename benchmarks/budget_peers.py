"""`python benchmarks/budget_peers.py jax|torch wave|fisher N STEPS`: gradients of a time loop by others, with less memory for more time.

Runs in an environment of its own, without gpuad, and prints a line of JSON for each way: the bytes that it takes beside the caller's
arrays, CPU and wall seconds of a gradient (the least of two, of PyTorch one, after one that warms up), and sums of the gradients, by which
they are compared. JAX: scans in scans, each inner one under `jax.checkpoint` with a policy; bytes are those of the compiled program.
PyTorch: segments under `torch.utils.checkpoint`, also in segments, and everything under `save_on_cpu`; bytes are the most that its
allocator has handed out at once, as its profiler says. (The process grows by far more: arrays of one size, aligned, leave holes in the C
library's heap that none of them fits into: 400 steps of 256 x 256 in segments of 25 take 33 MB, and 913 of the process.)
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np

SEGMENTS = {(25,): ("nothing", "dots", "everything"), (10,): ("nothing",), (100,): ("nothing",), (10, 10): ("nothing",)}
# steps of the innermost scan, and of that around it; the policies that are tried (a stencil has no dots)
SEGMENTED = ((), (32,), (100, 10))  # steps of PyTorch's segments, the outermost first


def start(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The initial field, and the map whose gradient is wanted."""
    y, x = np.mgrid[0:n, 0:n] / (n - 1.0)
    bump = np.exp(-((x - 0.5) ** 2 + (y - 0.45) ** 2) / 0.02)
    return (0.5 * bump).astype(np.float32), (0.1 * (1 + 0.3 * np.sin(6 * x) * np.cos(5 * y))).astype(np.float32)


def clock(run: Callable[[], Any], times: int, *, warm: bool = False) -> dict[str, float]:
    """The least CPU and wall seconds of some runs, after one that warms up, if that was not done."""
    if not warm:
        run()
    cpu, wall = [], []
    for _ in range(times):
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        run()
        after = resource.getrusage(resource.RUSAGE_SELF)
        wall.append(time.perf_counter() - begin)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"cpu": min(cpu), "wall": min(wall)}


# --- JAX ---------------------------------------------------------------------------------------------------------------------------------


def with_jax(problem: str, n: int, steps: int) -> Iterator[dict[str, Any]]:
    """Scans in scans."""
    import jax
    import jax.numpy as jnp

    policies = jax.checkpoint_policies
    chosen = {"nothing": policies.nothing_saveable, "dots": policies.dots_saveable, "everything": policies.everything_saveable}

    def laplacian(u: Any) -> Any:
        return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]

    def step(state: Any, speed: Any) -> Any:
        if problem == "wave":
            older, now = state
            inner = 2.0 * now[1:-1, 1:-1] - older[1:-1, 1:-1] + speed[1:-1, 1:-1] * laplacian(now)
            return now, older.at[1:-1, 1:-1].set(inner)
        u = state[0][1:-1, 1:-1]
        return (state[0].at[1:-1, 1:-1].set(u + 0.2 * laplacian(state[0]) + speed[1:-1, 1:-1] * u * (1.0 - u)),)

    def looped(lengths: tuple[int, ...], policy: Any) -> Any:
        """A function that goes so many steps."""
        if not lengths:
            return step

        def run(state: Any, speed: Any) -> Any:
            inner = looped(lengths[1:], policy)
            body = jax.checkpoint(inner, policy=policy) if len(lengths) > 1 else inner
            return jax.lax.scan(lambda s, _: (body(s, speed), None), state, None, length=lengths[0])[0]

        return run

    field, speed = map(jnp.asarray, start(n))
    for segments, names in SEGMENTS.items():
        outer = steps
        for k in segments:
            outer //= k
        for name in names:
            policy = chosen[name]
            lengths = (outer, *segments[::-1])

            def loss(field: Any, speed: Any, lengths: Any = lengths, policy: Any = policy) -> Any:
                begin = (field, field) if problem == "wave" else (field,)
                return 0.5 * (looped(lengths, policy)(begin, speed)[-1] ** 2).sum()

            compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(field, speed).compile()
            found = compiled(field, speed)
            seconds = clock(lambda c=compiled: jax.block_until_ready(c(field, speed)), 2)
            taken = int(compiled.memory_analysis().temp_size_in_bytes)
            yield {"way": f"scan {'x'.join(map(str, lengths))}, {name}", "bytes": taken, "sums": _sums(found), **seconds}


# --- PyTorch -----------------------------------------------------------------------------------------------------------------------------


def with_torch(problem: str, n: int, steps: int) -> Iterator[dict[str, Any]]:
    """Segments under `checkpoint`, and all under `save_on_cpu`."""
    import torch
    from torch.utils.checkpoint import checkpoint

    field, speed = (torch.tensor(a, requires_grad=True) for a in start(n))

    def laplacian(u: Any) -> Any:
        return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]

    def padded(inner: Any, around: Any) -> Any:
        new = around.clone()
        new[1:-1, 1:-1] = inner
        return new

    def advance(count: int, *state: Any) -> Any:
        for _ in range(count):
            if problem == "wave":
                older, now = state
                inner = 2.0 * now[1:-1, 1:-1] - older[1:-1, 1:-1] + speed[1:-1, 1:-1] * laplacian(now)
                state = now, padded(inner, older)
            else:
                u = state[0][1:-1, 1:-1]
                state = (padded(u + 0.2 * laplacian(state[0]) + speed[1:-1, 1:-1] * u * (1.0 - u), state[0]),)
        return state

    def segmented(lengths: tuple[int, ...], steps: int, *state: Any) -> Any:
        """So many steps, in segments of the first length, in which those of the next are, and so on."""
        if not lengths:
            return advance(steps, *state)
        for begin in range(0, steps, lengths[0]):
            count = min(lengths[0], steps - begin)
            state = checkpoint(segmented, lengths[1:], count, *state, use_reentrant=False)
        return state

    def run(lengths: tuple[int, ...]) -> None:
        field.grad = speed.grad = None
        state = segmented(lengths, steps, *((field, field) if problem == "wave" else (field,)))
        (0.5 * (state[-1] ** 2).sum()).backward()

    def offloaded() -> None:
        with torch.autograd.graph.save_on_cpu():
            run(())

    ways = [(f"checkpoint of {' of '.join(map(str, k))} steps" if k else "all stored", lambda k=k: run(k)) for k in SEGMENTED]
    for name, way in [*ways, ("save_on_cpu", offloaded)]:
        gc.collect()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
            way()
        events = [(e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
        taken = max(accumulate(nbytes for _, nbytes in sorted(events)))
        del seen, events
        yield {"way": name, "bytes": taken, "sums": _sums((field.grad.numpy(), speed.grad.numpy())), **clock(way, 1, warm=True)}


def _sums(gradients: Any) -> list[float]:
    return [float(np.asarray(g, np.float64).sum()) for g in gradients]


if __name__ == "__main__":
    who, problem, n, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for line in (with_jax if who == "jax" else with_torch)(problem, n, steps):
        print(json.dumps(line), flush=True)
