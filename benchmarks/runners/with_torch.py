"""PyTorch, eager: autograd as most people use it."""

from __future__ import annotations

import os
from typing import Any

from ..problem import Arrays, Missing, Record, Size


class Torch:
    """The output under `no_grad`, and with `backward`."""

    def __init__(self, problem: Any, size: Size, given: Arrays, place: str) -> None:
        import torch

        if place == "gpu" and not torch.cuda.is_available():
            raise Missing("torch has no gpu")
        torch.set_num_threads(os.cpu_count() or 1)
        self.torch, self.problem, self.size, self.gpu = torch, problem, size, place == "gpu"
        device = "cuda" if self.gpu else "cpu"
        self.x = {name: torch.tensor(array, device=device, requires_grad=name in problem.active) for name, array in given.items()}

    def prepare(self) -> None:
        for name in self.problem.active:
            self.x[name].grad = None

    def primal(self) -> None:
        with self.torch.no_grad():
            self.problem.torch(self.torch, self.size, self.x)
        self._wait()

    def gradient(self) -> None:
        self.problem.torch(self.torch, self.size, self.x).backward(self.x["seed"])
        self._wait()

    def _wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def memory(self) -> int:
        """Bytes that the allocator has held at most on a device."""
        return int(self.torch.cuda.max_memory_reserved())

    def found(self) -> Arrays:
        return {name: self.x[name].grad.cpu().numpy() for name in self.problem.active}

    def about(self) -> Record:
        """The bytes that autograd holds on to."""
        held: dict[int, int] = {}

        def pack(x: Any) -> Any:
            storage = x.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
            return x

        self.prepare()
        with self.torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            self.gradient()
        return {"saved_bytes": sum(held.values())}
