"""Warp: kernels in Python, each with an adjoint that scatters by atomics; what the reverse needs may not be overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..problem import Arrays, Missing, Record, Size


class Warp:
    """Launches on a tape; its arrays are made once."""

    def __init__(self, problem: Any, size: Size, given: Arrays, place: str) -> None:
        import warp as wp

        wp.config.quiet = True
        wp.config.verbose_warnings = False
        wp.init()
        if place == "gpu" and not wp.is_cuda_available():
            raise Missing("warp has no gpu")
        wp.set_device("cuda:0" if place == "gpu" else "cpu")
        self.wp, self.problem, self.made = wp, problem, 0
        self.x = {name: self._array(array, name in problem.active) for name, array in given.items()}
        self.run = problem.warp(wp, size, self.x, self._new)
        self.tape = wp.Tape()

    def _array(self, array: Any, active: bool) -> Any:
        return self.wp.array(array, dtype=self.wp.dtype_from_numpy(array.dtype), requires_grad=active)

    def _new(self, *shape: int) -> Any:
        self.made += 4 * int(np.prod(shape))
        return self.wp.zeros(shape, dtype=self.wp.float32, requires_grad=True)

    def prepare(self) -> None:
        pass

    def primal(self) -> None:
        self.run()
        self.wp.synchronize()

    def gradient(self) -> None:
        self.tape.zero()
        self.tape.reset()
        with self.tape:
            out = self.run()
        self.tape.backward(grads={out: self.x["seed"]})
        self.wp.synchronize()

    def memory(self) -> int:
        """Bytes that were in use at most on a device."""
        return int(self.wp.get_mempool_used_mem_high("cuda:0"))

    def found(self) -> Arrays:
        return {name: self.x[name].grad.numpy() for name in self.problem.active}

    def about(self) -> Record:
        """The bytes of all intermediates: each is kept, and has a shadow."""
        return {"saved_bytes": self.made}
