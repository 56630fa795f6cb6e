"""The programs of `programs.py` as a user of another framework writes them. A framework that is not installed is an ImportError."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .programs import DIFFUSION, Field, Problem, Record, Runner


class Torch:
    """PyTorch, eager, in place as far as its autograd allows: a field that a later step of the reverse needs may not be overwritten, so
    the nonlinear program takes a new one at each step."""

    def __init__(self, problem: Problem) -> None:
        import torch

        self.torch, self.problem = torch, problem
        torch.set_num_threads(os.cpu_count() or 1)
        self.start = torch.from_numpy(problem.start()).requires_grad_(True)

    def _run(self) -> Any:
        a, r = DIFFUSION, self.problem.growth
        u, v = self.start.clone(), self.start.clone()
        for _ in range(self.problem.steps):
            inside = u[1:-1, 1:-1]
            lap = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * inside
            if self.problem.nonlinear:
                v = u.clone()
                v[1:-1, 1:-1] += a * lap + r * inside * (1 - inside)
            else:
                v[1:-1, 1:-1] = inside + a * lap
            u, v = v, u
        return (u * u).sum()

    def primal(self) -> Any:
        """As `Runner` has it."""
        with self.torch.no_grad():
            return self._run()

    def gradient(self) -> Field:
        """As `Runner` has it."""
        self.start.grad = None
        self._run().backward()
        found: Field = self.start.grad.numpy()
        return found

    def about(self) -> Record:
        """As `Runner` has it: the bytes that autograd holds on to, and how often it asks for memory."""
        held: dict[int, int] = {}

        def pack(x: Any) -> Any:
            storage = x.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
            return x

        with self.torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            self.gradient()
        with self.torch.profiler.profile(activities=[self.torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.gradient()
        made = sum(1 for e in profile.profiler.kineto_results.events() if e.name() == "[memory]" and e.nbytes() > 0)
        return {"saved_bytes": sum(held.values()), "allocations": made}


class Jax:
    """JAX, compiled as a whole, with a scan over the steps."""

    def __init__(self, problem: Problem) -> None:
        import jax

        self.jax, self.problem = jax, problem
        self.start = jax.numpy.asarray(problem.start())
        self.loss = jax.jit(self._loss)
        self.compiled = jax.jit(jax.grad(self._loss)).lower(self.start).compile()

    def _loss(self, start: Any) -> Any:
        a, r = DIFFUSION, self.problem.growth

        def step(u: Any, _: Any) -> Any:
            inside = u[1:-1, 1:-1]
            lap = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * inside
            change = a * lap + (r * inside * (1 - inside) if self.problem.nonlinear else 0.0)
            return u.at[1:-1, 1:-1].add(change), None

        last, _ = self.jax.lax.scan(step, start, None, length=self.problem.steps)
        return (last * last).sum()

    def primal(self) -> Any:
        """As `Runner` has it."""
        return self.loss(self.start).block_until_ready()

    def gradient(self) -> Field:
        """As `Runner` has it."""
        import numpy as np

        return np.asarray(self.compiled(self.start).block_until_ready())

    def about(self) -> Record:
        """As `Runner` has it: the bytes that the compiled program takes beside its arguments and result."""
        return {"saved_bytes": int(self.compiled.memory_analysis().temp_size_in_bytes)}


PEERS: dict[str, Callable[[Problem], Runner]] = {"torch": Torch, "jax": Jax}
